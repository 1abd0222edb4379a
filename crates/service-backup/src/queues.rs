//! Queues and their messages in a backup: all of them in every one, full or not.
//!
//! The changes of a store are those of its entities, so an incremental backup has the messages whole. A restore takes those of
//! the last backup alone.

use crate::error::BackupError;
use crate::fields::{Fields, Offence, Put};
use crate::items::{policy, put_policies};
use rowhouse_store::{AccountId, Message, Metadata, Queue, QueueId, Snapshot, Store, StoreError};
use rowhouse_types::{Guid, limits};
use std::collections::HashMap;

pub(crate) fn put(out: &mut Vec<u8>, queue: &Queue) {
    out.put_u64(queue.id.0);
    out.put_u32(queue.account.0);
    out.put_u64(queue.created.ticks());
    out.put_short(queue.name.as_str().as_bytes());
    out.put_u16(u16::try_from(queue.metadata.len()).expect("metadata has few bytes"));
    for (name, value) in &queue.metadata {
        out.put_short(name.as_bytes());
        out.put_short(value.as_bytes());
    }
    put_policies(out, &queue.policies);
}

pub(crate) fn read(fields: &mut Fields<'_>) -> Result<Queue, Offence> {
    let id = QueueId(fields.u64()?);
    let account = AccountId(fields.u32()?);
    let created = fields.time()?;
    let name = fields.text()?.parse().map_err(|_| "a queue has a name that none can have")?;
    let mut metadata = Metadata::new();
    for _ in 0..fields.u16()? {
        metadata.push((fields.text()?.into(), fields.text()?.into()));
    }
    let policies = (0..fields.u16()?).map(|_| policy(fields)).collect::<Result<_, _>>()?;
    Ok(Queue { id, account, name, created, metadata, policies })
}

/// What a frame of messages begins with: their queue, and how many of it came before.
pub(crate) fn put_messages_head(out: &mut Vec<u8>, queue: QueueId, before: u64) {
    out.put_u64(queue.0);
    out.put_u64(before);
}

pub(crate) fn messages_head(fields: &mut Fields<'_>) -> Result<(QueueId, u64), Offence> {
    Ok((QueueId(fields.u64()?), fields.u64()?))
}

pub(crate) fn put_message(out: &mut Vec<u8>, message: &Message) {
    out.extend_from_slice(&message.id.0);
    for time in [message.inserted, message.expires, message.visible, message.receipt] {
        out.put_u64(time.ticks());
    }
    out.put_u32(message.taken);
    out.put_long(message.text.as_bytes());
}

pub(crate) fn message(fields: &mut Fields<'_>) -> Result<Message, Offence> {
    let id = Guid(fields.id()?);
    let (inserted, expires, visible, receipt) =
        (fields.time()?, fields.time()?, fields.time()?, fields.time()?);
    let taken = fields.u32()?;
    let text = str::from_utf8(fields.long()?).map_err(|_| "a text is not UTF-8")?;
    if limits::MESSAGE_BYTES_MAX < text.len() {
        return Err("a message is longer than any can be");
    }
    Ok(Message { id, text: text.into(), inserted, expires, visible, taken, receipt })
}

/// All queues that the snapshot shows, in the order of their ids.
pub(crate) async fn of(
    snapshot: &dyn Snapshot,
    accounts: impl Iterator<Item = AccountId>,
) -> Result<Vec<Queue>, StoreError> {
    let mut queues = Vec::new();
    for account in accounts {
        let found = snapshot.queues(account).await?;
        queues.extend(found.iter().map(|queue| Queue::clone(queue)));
    }
    queues.sort_unstable_by_key(|queue| queue.id);
    Ok(queues)
}

/// Makes what is missing of queues, and returns their new ids.
pub(crate) async fn rebuild(
    store: &dyn Store,
    queues: &[Queue],
    accounts: &HashMap<AccountId, AccountId>,
) -> Result<HashMap<QueueId, QueueId>, BackupError> {
    let mut rebuilt = HashMap::new();
    for saved in queues {
        let Some(&account) = accounts.get(&saved.account) else { continue };
        let queue = match store.queue(account, &saved.name).await? {
            Some(queue) => queue,
            None => store.create_queue(account, &saved.name, saved.metadata.clone()).await?,
        };
        if queue.metadata != saved.metadata {
            store.set_metadata(queue.id, saved.metadata.clone()).await?;
        }
        if queue.policies != saved.policies {
            store.set_queue_policies(queue.id, saved.policies.clone()).await?;
        }
        rebuilt.insert(saved.id, queue.id);
    }
    Ok(rebuilt)
}
