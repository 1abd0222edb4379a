//! Queues: their messages are rows that are found by their place, by their receipt and by when they expire, never by looking at
//! others.
//!
//! The messages of a queue are those of its pile. Clearing or dropping a queue gives the pile up, in one small change
//! whatever its size, and the sweep deletes the rows later. A message stays in the row that it was put into; what a take or
//! an update changes are a few numbers and their entries in two indexes, both of which are appended to, because times rise.
//!
//! Long texts are in `large`, as long records are, so that taking a message does not write its text again.

pub(crate) mod check;
pub(crate) mod commands;
pub(crate) mod dead;
pub(crate) mod declare;
pub(crate) mod read;
pub(crate) mod sweep;
pub(crate) mod time;

use crate::catalogue::{instant, number};
use crate::committer::Fault;
use crate::entity::with_record;
use rowhouse_store::Message;
use rowhouse_types::{Guid, Timestamp};
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, Row};

/// Most bytes of text in a row of `messages`; a longer one goes to `large`. With the numbers beside it, it fits into a page.
const INLINE_BYTES: usize = 3800;

/// A place in the order of a pile, as it stands in the database: when it is visible, and which of those.
pub(crate) type Place = (i64, i64);

/// A time as it stands in the database.
pub(crate) fn ticks(time: Timestamp) -> i64 {
    time.ticks().cast_signed()
}

/// When a message ceases to exist, as it stands in the database.
fn expiry(time: Timestamp) -> Option<i64> {
    (time < Timestamp::MAX).then(|| ticks(time))
}

/// Whether a message that expires then is gone.
fn is_dead(expires: Option<i64>, now: i64) -> bool {
    expires.is_some_and(|expires| expires <= now)
}

/// A message from the columns `id`, `inserted`, `expires`, `visible`, `taken`, `receipt` and `text`, the first of which is at `at`.
fn message(conn: &Connection, row: &Row<'_>, at: usize) -> Result<Message, Fault> {
    let id = row.get_ref(at)?.as_blob().ok().and_then(|id| <[u8; 16]>::try_from(id).ok());
    let id = Guid(id.ok_or_else(|| Fault::Corrupt("the id of a message is not one".into()))?);
    let expires = match row.get_ref(at + 2)? {
        ValueRef::Null => Timestamp::MAX,
        _ => instant(row, at + 2)?,
    };
    Ok(Message {
        id,
        inserted: instant(row, at + 1)?,
        expires,
        visible: instant(row, at + 3)?,
        taken: number(row, at + 4)?,
        receipt: instant(row, at + 5)?,
        text: text(conn, row.get_ref(at + 6)?)?,
    })
}

/// A text, wherever the column says that it is.
fn text(conn: &Connection, column: ValueRef<'_>) -> Result<Box<str>, Fault> {
    let owned = |bytes: &[u8]| match str::from_utf8(bytes) {
        Ok(text) => Ok(text.into()),
        Err(_) => Err(Fault::Corrupt("the text of a message is not UTF-8".into())),
    };
    match column {
        ValueRef::Text(bytes) => owned(bytes),
        ValueRef::Integer(_) => with_record(conn, column, |_, bytes| owned(bytes)),
        _ => Err(Fault::Corrupt("the text of a message is neither a text nor a number".into())),
    }
}

/// Puts a text where its size belongs; what the column says then.
fn store_text<'a>(conn: &Connection, text: &'a str) -> Result<ToSqlOutput<'a>, rusqlite::Error> {
    if text.len() <= INLINE_BYTES {
        return Ok(ToSqlOutput::from(text));
    }
    let id =
        conn.prepare_cached("INSERT INTO large (record) VALUES (?1)")?.insert([text.as_bytes()])?;
    Ok(ToSqlOutput::from(id))
}
