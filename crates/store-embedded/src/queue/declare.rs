//! Queues are created, described and dropped: changes of the catalogue, run by the committer.

use super::ticks;
use crate::change::Draft;
use crate::committer::Fault;
use crate::jobs::Answer;
use rowhouse_store::{AccountId, Conflict, Metadata, Queue, QueueId};
use rowhouse_types::{QueueName, StoredPolicy, Timestamp};
use rusqlite::{Connection, params};
use std::sync::Arc;

/// Refuses a new queue of an account that has as many as it may, or whose tables and queues take all the memory that they
/// may. A restore may create any number.
pub(crate) fn check(
    draft: &Draft,
    account: AccountId,
    name: &QueueName,
    most: u64,
) -> Result<(), Fault> {
    let full = most <= draft.catalogue.held(account).queues
        || (most < u64::MAX && draft.catalogue.is_full(account));
    if full && draft.catalogue.queue(account, name).is_none() {
        return Err(Fault::Rejected(Conflict::TooManyQueues));
    }
    Ok(())
}

/// Creates a queue with a pile that nothing was ever in.
pub(crate) fn create(
    conn: &Connection,
    draft: &mut Draft,
    account: AccountId,
    name: QueueName,
    metadata: Metadata,
    created: Timestamp,
) -> Result<Answer, Fault> {
    if draft.catalogue.account_by_id(account).is_none() {
        return Err(Fault::Rejected(Conflict::AccountNotFound));
    }
    if draft.catalogue.queue(account, &name).is_some() {
        return Err(Fault::Rejected(Conflict::QueueExists));
    }
    draft.marks.last_queue += 1;
    draft.marks.last_pile += 1;
    let id = QueueId(draft.marks.last_queue);
    conn.prepare_cached(
        "INSERT INTO queues (id, account, name, created, pile, messages)
         VALUES (?1, ?2, ?3, ?4, ?5, 0)",
    )?
    .execute(params![
        id.0.cast_signed(),
        account.0,
        name.as_str(),
        ticks(created),
        draft.marks.last_pile.cast_signed(),
    ])?;
    write_metadata(conn, id, &metadata)?;
    let policies = Vec::new();
    let queue = Arc::new(Queue { id, account, name, created, metadata, policies });
    draft.catalogue.put_queue(Arc::clone(&queue));
    Ok(Answer::Queue(queue))
}

/// Drops a queue and gives its pile up.
pub(crate) fn drop_one(
    conn: &Connection,
    draft: &mut Draft,
    queue: QueueId,
) -> Result<Answer, Fault> {
    if draft.catalogue.queue_by_id(queue).is_none() {
        return Err(Fault::Rejected(Conflict::QueueNotFound));
    }
    let id = queue.0.cast_signed();
    let pile = conn
        .prepare_cached("SELECT pile FROM queues WHERE id = ?1")?
        .query_row([id], |row| row.get(0))?;
    give_up(conn, draft, pile)?;
    conn.prepare_cached("DELETE FROM queue_metadata WHERE queue_id = ?1")?.execute([id])?;
    conn.prepare_cached("DELETE FROM queue_policies WHERE queue_id = ?1")?.execute([id])?;
    conn.prepare_cached("DELETE FROM queues WHERE id = ?1")?.execute([id])?;
    draft.catalogue.remove_queue(queue);
    Ok(Answer::Done)
}

/// Has the messages of a pile swept: nobody finds them any more.
pub(crate) fn give_up(
    conn: &Connection,
    draft: &mut Draft,
    pile: i64,
) -> Result<(), rusqlite::Error> {
    conn.prepare_cached("INSERT INTO dropped_piles (pile) VALUES (?1)")?.execute([pile])?;
    draft.dropped_piles.push(pile);
    Ok(())
}

/// Replaces the metadata of a queue.
pub(crate) fn set_metadata(
    conn: &Connection,
    draft: &mut Draft,
    queue: QueueId,
    metadata: Metadata,
) -> Result<Answer, Fault> {
    let found = changed(draft, queue, |queue| queue.metadata = metadata)?;
    conn.prepare_cached("DELETE FROM queue_metadata WHERE queue_id = ?1")?
        .execute([queue.0.cast_signed()])?;
    write_metadata(conn, queue, &found.metadata)?;
    draft.catalogue.put_queue(Arc::new(found));
    Ok(Answer::Done)
}

/// Replaces the access policies of a queue.
pub(crate) fn set_policies(
    conn: &Connection,
    draft: &mut Draft,
    queue: QueueId,
    policies: Vec<StoredPolicy>,
) -> Result<Answer, Fault> {
    let found = changed(draft, queue, |queue| queue.policies = policies)?;
    let id = queue.0.cast_signed();
    conn.prepare_cached("DELETE FROM queue_policies WHERE queue_id = ?1")?.execute([id])?;
    let mut insert = conn.prepare_cached(
        "INSERT INTO queue_policies (queue_id, position, id, start, expiry, permission)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?;
    for (position, policy) in (0_i64..).zip(&found.policies) {
        insert.execute(params![
            id,
            position,
            &*policy.id,
            policy.start.map(ticks),
            policy.expiry.map(ticks),
            policy.permission.as_deref(),
        ])?;
    }
    draft.catalogue.put_queue(Arc::new(found));
    Ok(Answer::Done)
}

/// The queue as it is after a change; refused if it takes more memory then and the account has none left.
fn changed(draft: &Draft, queue: QueueId, change: impl FnOnce(&mut Queue)) -> Result<Queue, Fault> {
    let found = draft.catalogue.queue_by_id(queue);
    let found = found.ok_or(Fault::Rejected(Conflict::QueueNotFound))?;
    let mut changed = Queue::clone(found);
    change(&mut changed);
    let grows = found.memory_bytes() < changed.memory_bytes();
    if grows && draft.catalogue.is_full(found.account) {
        return Err(Fault::Rejected(Conflict::TooManyQueues));
    }
    Ok(changed)
}

fn write_metadata(
    conn: &Connection,
    queue: QueueId,
    metadata: &Metadata,
) -> Result<(), rusqlite::Error> {
    let mut insert = conn.prepare_cached(
        "INSERT INTO queue_metadata (queue_id, position, name, value) VALUES (?1, ?2, ?3, ?4)",
    )?;
    for (position, (name, value)) in (0_i64..).zip(metadata) {
        insert.execute(params![queue.0.cast_signed(), position, &**name, &**value])?;
    }
    Ok(())
}
