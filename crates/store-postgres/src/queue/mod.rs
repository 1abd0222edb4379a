//! Queues: their messages as rows of one table that all share, found by queue and id, or in the order in which they
//! become visible.
//!
//! Whatever asks for messages asks in the same statement whether the queue is there. What is visible and what has expired is
//! judged by the clock of the database, when a statement comes in: so servers whose own clocks differ never give out a message
//! that another one has given to somebody.

pub(crate) mod catalogue;
pub(crate) mod clear;
pub(crate) mod count;
pub(crate) mod expiry;
pub(crate) mod floor;
pub(crate) mod read;
pub(crate) mod write;

use crate::fault::Fault;
use crate::options::QueueClock;
use rowhouse_store::{Message, QueueId, StoreError};
use rowhouse_types::{Guid, Timestamp};
use tokio_postgres::Row;

/// What a statement takes for now, whose second value it is: that value, or else the time of the database.
///
/// Said without `coalesce`, in which Citus takes no function that is not immutable.
const NOW: &str = "greatest($2::bigint, (1 - num_nonnulls($2::bigint)) * rowhouse.clock())";
/// The last instant, as statements write it: [`Timestamp::MAX`].
const LAST: &str = "3155378975999999999";
/// The queue, if it is there.
const LIVE: &str = "rowhouse.queues q WHERE q.qid = $1 AND q.dropped IS NULL";
/// What [`message`] reads.
const COLUMNS: &str = "id, text, inserted, expires, visible, taken, receipt";

/// What counts as now for messages; the time of the database without.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now(pub(crate) Option<i64>);

impl Now {
    /// By that clock.
    pub(crate) fn of(clock: QueueClock, of_server: impl FnOnce() -> i64) -> Self {
        Self((clock == QueueClock::Server).then(of_server))
    }
}

/// The id as the database has it, which also says where the queue lives; one that no queue has if it is none.
pub(crate) fn number(queue: QueueId) -> i64 {
    i64::try_from(queue.0).unwrap_or(-1)
}

fn ticks(time: Timestamp) -> i64 {
    i64::try_from(time.ticks()).unwrap_or(i64::MAX)
}

fn instant(ticks: i64) -> Result<Timestamp, Fault> {
    let found = u64::try_from(ticks).ok().and_then(Timestamp::from_ticks);
    found.ok_or_else(|| corrupt("a time is out of range"))
}

fn corrupt(what: &str) -> Fault {
    StoreError::Corrupt(what.to_owned()).into()
}

/// The message of a row that has [`COLUMNS`] from that one on.
fn message(row: &Row, at: usize) -> Result<Message, Fault> {
    let id = <[u8; 16]>::try_from(row.get::<_, &[u8]>(at));
    let text = std::str::from_utf8(row.get::<_, &[u8]>(at + 1));
    Ok(Message {
        id: Guid(id.map_err(|_| corrupt("the id of a message is none"))?),
        text: text.map_err(|_| corrupt("the text of a message is none"))?.into(),
        inserted: instant(row.get(at + 2))?,
        expires: instant(row.get(at + 3))?,
        visible: instant(row.get(at + 4))?,
        taken: u32::try_from(row.get::<_, i64>(at + 5)).unwrap_or(u32::MAX),
        receipt: instant(row.get(at + 6))?,
    })
}

/// [`COLUMNS`] of that table.
fn columns_of(table: &str) -> String {
    COLUMNS.split(", ").map(|column| format!("{table}.{column}")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_know_the_last_instant() {
        assert_eq!(LAST, Timestamp::MAX.ticks().to_string());
        assert!(include_str!("../../migrations/0006.sql").contains(LAST));
    }
}
