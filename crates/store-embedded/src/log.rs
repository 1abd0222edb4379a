//! The changes that are kept: a row for each batch, in the order of the commits.
//!
//! Written in the transaction of the batch itself, so the row is there exactly if the batch is. A row holds what every
//! command of the batch left. Rows that are too old are removed in small steps, and readers are told how far back
//! the rest reaches.

use crate::committer::Fault;
use crate::jobs::Answer;
use crate::scan::View;
use crate::schema::Marks;
use crate::store::Shared;
use crate::tuning::Tuning;
use rowhouse_store::{Change, Changes, ChangesWanted, Conflict, Kept, StoreError, TableId};
use rowhouse_types::{Corrupt, EntityKey, Record, RecordRef, Timestamp};
use rusqlite::{Connection, params};
use std::time::Duration;

/// Most bytes of the log that are looked through for one answer.
const EXAMINED_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Table, and the lengths of PartitionKey, RowKey and record.
const HEAD: usize = 8 + 2 + 2 + 4;

/// What one command left.
struct Entry<'a> {
    table: TableId,
    partition: &'a str,
    row: &'a str,
    /// Empty if the entity was deleted.
    record: &'a [u8],
}

/// Appends what a command left to the row of its batch.
pub(crate) fn push(out: &mut Vec<u8>, table: TableId, key: &EntityKey, record: Option<&Record>) {
    let (partition, row) = (key.partition.as_str(), key.row.as_str());
    let record = record.map_or(&[][..], Record::as_bytes);
    let short = |len: usize| u16::try_from(len).expect("a key is short").to_le_bytes();
    let len = u32::try_from(record.len()).expect("a record is at most a few MiB");
    out.extend_from_slice(&table.0.to_le_bytes());
    out.extend_from_slice(&short(partition.len()));
    out.extend_from_slice(&short(row.len()));
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(partition.as_bytes());
    out.extend_from_slice(row.as_bytes());
    out.extend_from_slice(record);
}

/// Takes the first entry off.
fn pull<'a>(bytes: &mut &'a [u8]) -> Result<Entry<'a>, Corrupt> {
    let head = bytes.split_off(..HEAD).ok_or(Corrupt("a change is cut off"))?;
    let number = |at: usize, len: usize| {
        let digits = head[at..at + len].iter().rev();
        digits.fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte))
    };
    let mut take = |at: usize, len: usize| -> Result<&'a [u8], Corrupt> {
        let len = usize::try_from(number(at, len)).unwrap_or(usize::MAX);
        bytes.split_off(..len).ok_or(Corrupt("a change is cut off"))
    };
    let text = |bytes| str::from_utf8(bytes).map_err(|_| Corrupt("a key is not UTF-8"));
    let (partition, row, record) = (take(8, 2)?, take(10, 2)?, take(12, 4)?);
    Ok(Entry { table: TableId(number(0, 8)), partition: text(partition)?, row: text(row)?, record })
}

impl Entry<'_> {
    fn change(&self, place: u64, batch: Timestamp) -> Result<Change, Fault> {
        let key = EntityKey::new(self.partition, self.row);
        let key = key.map_err(|error| Fault::Corrupt(error.to_string()))?;
        let record = if self.record.is_empty() {
            None
        } else {
            Some(RecordRef::parse(self.record)?.to_owned())
        };
        let at = record.as_ref().map_or(batch, |record| record.as_ref().timestamp());
        Ok(Change { place, table: self.table, key, at, record })
    }
}

/// Stores the row of a batch; run by the committer.
pub(crate) fn append(
    conn: &Connection,
    sequence: u64,
    tick: Timestamp,
    batch: &[u8],
) -> rusqlite::Result<()> {
    conn.prepare_cached("INSERT INTO changes (sequence, tick, batch) VALUES (?1, ?2, ?3)")?
        .execute(params![sequence.cast_signed(), tick.ticks().cast_signed(), batch])
        .map(drop)
}

/// Removes the first rows that need not be kept; run by the committer.
pub(crate) fn trim(
    conn: &Connection,
    marks: &mut Marks,
    now: Timestamp,
    tuning: &Tuning,
) -> Result<Answer, Fault> {
    let (mut rows, mut bytes, mut last) = (0, 0, None);
    let mut finished = true;
    {
        let mut select = conn.prepare_cached(
            "SELECT sequence, tick, length(batch) FROM changes ORDER BY sequence",
        )?;
        let mut found = select.query([])?;
        while let Some(row) = found.next()? {
            let (sequence, tick): (i64, i64) = (row.get(0)?, row.get(1)?);
            if !marks.is_stale(sequence.cast_unsigned(), tick.cast_unsigned(), now) {
                break;
            }
            if tuning.sweep_rows <= rows || tuning.sweep_bytes <= bytes {
                finished = false;
                break;
            }
            rows += 1;
            bytes += usize::try_from(row.get::<_, i64>(2)?).unwrap_or(0);
            last = Some(sequence);
        }
    }
    if let Some(last) = last {
        conn.prepare_cached("DELETE FROM changes WHERE sequence <= ?1")?.execute([last])?;
        marks.changes_after = marks.changes_after.max(last.cast_unsigned());
    }
    Ok(Answer::Swept { finished })
}

impl Marks {
    /// Whether a batch of the log need not be kept.
    fn is_stale(&self, sequence: u64, tick: u64, now: Timestamp) -> bool {
        let Some(retention) = self.retention else { return true };
        let oldest = now.ticks().saturating_sub(ticks(retention));
        sequence <= self.changes_after || tick < oldest
    }
}

fn ticks(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos() / 100).unwrap_or(u64::MAX)
}

/// Which changes there are.
pub(crate) fn kept(conn: &Connection) -> Result<Option<Kept>, StoreError> {
    let marks = Marks::load(conn).map_err(|error| Fault::from(error).into_store_error())?;
    let kept = Kept { after: marks.changes_after, until: marks.sequence };
    Ok(marks.retention.map(|_| kept))
}

/// Changes after a place, without waiting for any.
pub(crate) fn read(
    conn: &Connection,
    shared: &Shared,
    wanted: &ChangesWanted,
) -> Result<Changes, StoreError> {
    let read = || {
        let _view = View::begin(conn)?;
        let marks = Marks::load(conn)?;
        shared.readers.advance(marks.sequence);
        Reading::new(conn, wanted).run(&marks)
    };
    read().map_err(Fault::into_store_error)
}

/// Changes after a place that the view shows which the connection is in.
pub(crate) fn read_within(
    conn: &Connection,
    wanted: &ChangesWanted,
) -> Result<Changes, StoreError> {
    let read = || Reading::new(conn, wanted).run(&Marks::load(conn)?);
    read().map_err(Fault::into_store_error)
}

/// An answer in the making.
struct Reading<'a> {
    conn: &'a Connection,
    wanted: &'a ChangesWanted,
    found: Changes,
    /// Bytes of keys and records that are in the answer.
    bytes: usize,
    /// Bytes of the log that were looked at.
    examined: usize,
}

impl<'a> Reading<'a> {
    fn new(conn: &'a Connection, wanted: &'a ChangesWanted) -> Self {
        Self { conn, wanted, found: Changes::default(), bytes: 0, examined: 0 }
    }

    fn run(mut self, marks: &Marks) -> Result<Changes, Fault> {
        let reaches =
            marks.changes_after <= self.wanted.after && self.wanted.after <= marks.sequence;
        if marks.retention.is_none() || !reaches {
            return Err(Fault::Rejected(Conflict::ChangesNotKept));
        }
        let mut statement = self.conn.prepare_cached(
            "SELECT sequence, tick, batch FROM changes WHERE sequence > ?1 ORDER BY sequence",
        )?;
        let mut rows = statement.query([self.wanted.after.cast_signed()])?;
        while let Some(row) = rows.next()? {
            let place = row.get::<_, i64>(0)?.cast_unsigned();
            let tick = row.get::<_, i64>(1)?.cast_unsigned();
            let tick = Timestamp::from_ticks(tick).ok_or(Corrupt("a time is out of range"))?;
            let batch = row.get_ref(2)?.as_blob().map_err(|_| Corrupt("a batch is not a blob"))?;
            self.batch(place, tick, batch)?;
            if self.is_full() {
                self.found.next = place;
                return Ok(self.found);
            }
        }
        self.found.next = marks.sequence;
        Ok(self.found)
    }

    fn batch(&mut self, place: u64, tick: Timestamp, mut batch: &[u8]) -> Result<(), Fault> {
        self.examined += batch.len();
        while !batch.is_empty() {
            let entry = pull(&mut batch)?;
            if self.wanted.table.is_none_or(|table| table == entry.table) {
                self.bytes += entry.partition.len() + entry.row.len() + entry.record.len();
                self.found.changes.push(entry.change(place, tick)?);
            }
        }
        Ok(())
    }

    fn is_full(&self) -> bool {
        self.wanted.limit <= self.found.changes.len()
            || self.wanted.max_bytes <= self.bytes
            || EXAMINED_BYTES_MAX <= self.examined
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rowhouse_store::conformance::fixture::{key, number};

    #[test]
    fn entries_come_back_as_they_were() {
        let mut batch = Vec::new();
        push(&mut batch, TableId(7), &key("p", "😀"), Some(&number(5)));
        push(&mut batch, TableId(u64::MAX), &key("", ""), None);
        let mut rest = &*batch;
        let first = pull(&mut rest).unwrap().change(3, Timestamp::MAX).unwrap();
        assert_eq!((first.place, first.table, first.at), (3, TableId(7), Timestamp::default()));
        assert_eq!((first.key, first.record), (key("p", "😀"), Some(number(5))));
        let second = pull(&mut rest).unwrap().change(3, Timestamp::MAX).unwrap();
        assert_eq!((second.table, second.at), (TableId(u64::MAX), Timestamp::MAX));
        assert_eq!((second.key, second.record), (key("", ""), None));
        assert!(rest.is_empty());
    }

    #[test]
    fn what_is_cut_off_is_noticed() {
        let mut batch = Vec::new();
        push(&mut batch, TableId(7), &key("part", "row"), Some(&number(5)));
        for len in 0..batch.len() {
            let whole = pull(&mut &batch[..len]).is_ok();
            assert!(!whole, "{len} of {} bytes", batch.len());
        }
    }
}
