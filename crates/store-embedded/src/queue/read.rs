//! What is told of messages without changing them.

use super::commands::{ONE, VISIBLE};
use super::{is_dead, message, ticks};
use crate::committer::Fault;
use crate::entity;
use crate::scan::View;
use crate::store::Shared;
use rowhouse_store::{Conflict, Message, MessagePage, MessagePlace, QueueId, StoreError};
use rowhouse_types::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};

const PILE: &str = "SELECT pile, messages FROM queues WHERE id = ?1";
pub(crate) const FROM: &str =
    "SELECT id, inserted, expires, visible, taken, receipt, text, place FROM messages
    WHERE pile = ?1 AND (visible, place) >= (?2, ?3) ORDER BY visible, place";

/// The next messages, as they are now.
pub(crate) fn peek(
    conn: &Connection,
    shared: &Shared,
    queue: QueueId,
    limit: usize,
    abandoned: &dyn Fn() -> bool,
) -> Result<Vec<Message>, StoreError> {
    let found = latest(conn, shared, |conn| {
        let Some((pile, _)) = pile(conn, queue)? else { return Ok(Vec::new()) };
        let now = ticks(shared.queue_time.now());
        let (visible, place) = shared.dead.before(pile, entity::last_batch(conn)?);
        let mut found = Vec::new();
        let mut statement = conn.prepare_cached(VISIBLE)?;
        let mut rows = statement.query([pile, visible, place, now])?;
        while found.len() < limit && !abandoned() {
            let Some(row) = rows.next()? else { break };
            if is_dead(row.get(3)?, now) {
                continue;
            }
            let mut statement = conn.prepare_cached(ONE)?;
            let mut rows = statement.query([row.get::<_, i64>(0)?])?;
            let Some(row) = rows.next()? else {
                return Err(Fault::Corrupt("an index names a message that is not there".into()));
            };
            found.push(message(conn, row, 0)?);
        }
        Ok(found)
    });
    there(shared, queue)?;
    found
}

/// How many messages there are; those that have expired are among them until they are swept.
pub(crate) fn count(conn: &Connection, shared: &Shared, queue: QueueId) -> Result<u64, StoreError> {
    let found = latest(conn, shared, |conn| Ok(pile(conn, queue)?.map_or(0, |(_, count)| count)));
    there(shared, queue)?;
    found.map(|count| u64::try_from(count).unwrap_or(0))
}

/// Messages of a queue that exist at that time, from a place on, within the read transaction that is open.
pub(crate) fn page(
    conn: &Connection,
    queue: QueueId,
    from: Option<MessagePlace>,
    (limit, max_bytes): (usize, usize),
    now: Timestamp,
) -> Result<MessagePage, Fault> {
    let mut page = MessagePage::default();
    let Some((pile, _)) = pile(conn, queue)? else { return Ok(page) };
    let start = from.map_or((i64::MIN, 0), |MessagePlace(visible, place)| {
        (ticks(visible), place.cast_signed())
    });
    let mut bytes = 0;
    let mut statement = conn.prepare_cached(FROM)?;
    let mut rows = statement.query(params![pile, start.0, start.1])?;
    while let Some(row) = rows.next()? {
        if is_dead(row.get(2)?, ticks(now)) {
            continue;
        }
        let message = message(conn, row, 0)?;
        if !page.messages.is_empty() && (limit <= page.messages.len() || max_bytes <= bytes) {
            let place: i64 = row.get(7)?;
            page.next = Some(MessagePlace(message.visible, place.cast_unsigned()));
            break;
        }
        bytes += message.text.len();
        page.messages.push(message);
    }
    Ok(page)
}

/// The pile of a queue and how many messages are in it.
fn pile(conn: &Connection, queue: QueueId) -> Result<Option<(i64, i64)>, Fault> {
    let mut statement = conn.prepare_cached(PILE)?;
    let columns = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
    Ok(statement.query_row([queue.0.cast_signed()], columns).optional()?)
}

fn latest<T>(
    conn: &Connection,
    shared: &Shared,
    read: impl FnOnce(&Connection) -> Result<T, Fault>,
) -> Result<T, StoreError> {
    let (view, _) = View::latest(conn, shared).map_err(Fault::into_store_error)?;
    let found = read(conn).map_err(Fault::into_store_error);
    drop(view);
    found
}

/// Asked afterwards: if the queue is there now, it was not given up a moment ago. One that was created just now may not
/// be in the snapshot; then it was empty.
fn there(shared: &Shared, queue: QueueId) -> Result<(), StoreError> {
    if shared.catalogue.load().queue_by_id(queue).is_none() {
        return Err(StoreError::rejected(Conflict::QueueNotFound));
    }
    Ok(())
}
