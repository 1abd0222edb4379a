//! One command on one entity, in as few statements as its condition allows.
//!
//! The column `record` holds either the record itself (a blob) or the number of its row in `large`.
//! While both the old and the new record are of the first kind, which is nearly always, condition and
//! change are one statement, and the number of changed rows tells whether the condition held. All
//! other cases read what is there, judge, and then write. In both ways nothing has been written when
//! a command is rejected.

use crate::committer::Fault;
use rowhouse_store::{Condition, Conflict, Expiry, TableId, Write};
use rowhouse_types::{EntityKey, LimitExceeded, Record, RecordRef, Timestamp};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, ToSql, params};

const SELECT: &str = "SELECT record FROM entities WHERE table_id = ?1 AND pk = ?2 AND rk = ?3";
const INSERT: &str = "INSERT INTO entities (table_id, pk, rk, record) VALUES (?1, ?2, ?3, ?4)
    ON CONFLICT DO NOTHING";
const UPSERT: &str = "INSERT INTO entities (table_id, pk, rk, record) VALUES (?1, ?2, ?3, ?4)
    ON CONFLICT DO UPDATE SET record = excluded.record";
const UPSERT_INLINE: &str =
    "INSERT INTO entities (table_id, pk, rk, record) VALUES (?1, ?2, ?3, ?4)
    ON CONFLICT DO UPDATE SET record = excluded.record WHERE typeof(entities.record) = 'blob'";
const UPDATE_INLINE: &str = "UPDATE entities SET record = ?4
    WHERE table_id = ?1 AND pk = ?2 AND rk = ?3 AND typeof(record) = 'blob'";
const UPDATE_TAGGED: &str = "UPDATE entities SET record = ?4
    WHERE table_id = ?1 AND pk = ?2 AND rk = ?3
      AND typeof(record) = 'blob' AND substr(record, 2, 8) = ?5";
const DELETE: &str = "DELETE FROM entities WHERE table_id = ?1 AND pk = ?2 AND rk = ?3";
const DELETE_INLINE: &str = "DELETE FROM entities
    WHERE table_id = ?1 AND pk = ?2 AND rk = ?3 AND typeof(record) = 'blob'";
const DELETE_TAGGED: &str = "DELETE FROM entities
    WHERE table_id = ?1 AND pk = ?2 AND rk = ?3
      AND typeof(record) = 'blob' AND substr(record, 2, 8) = ?4";
const LARGE_SELECT: &str = "SELECT record FROM large WHERE id = ?1";
const LARGE_INSERT: &str = "INSERT INTO large (record) VALUES (?1)";
const LARGE_UPDATE: &str = "UPDATE large SET record = ?2 WHERE id = ?1";
const LARGE_DELETE: &str = "DELETE FROM large WHERE id = ?1";

/// The place that a command is about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    pub(crate) conn: &'a Connection,
    pub(crate) table: TableId,
    pub(crate) key: &'a EntityKey,
    /// Most bytes of key and record that stay in the row.
    pub(crate) inline_bytes: usize,
}

/// What a command did.
#[derive(Debug)]
pub(crate) enum Effect {
    /// The entity is this now.
    Stored(Record),
    /// The entity is gone.
    Removed,
    /// There was nothing to remove.
    Nothing,
}

/// What is stored there.
struct Old {
    /// The number of the row in `large`, if the record is there.
    large: Option<i64>,
    record: Vec<u8>,
}

impl Place<'_> {
    /// Runs a command and tells what it did; a rejected one has changed nothing.
    pub(crate) fn apply(
        self,
        condition: Condition,
        write: Write,
        tick: Timestamp,
    ) -> Result<Effect, Fault> {
        match write {
            Write::Put(mut record) => {
                record.stamp(tick);
                self.put(condition, &record)?;
                Ok(Effect::Stored(record))
            }
            Write::Restore(record) => {
                self.put(condition, &record)?;
                Ok(Effect::Stored(record))
            }
            Write::Merge(patch) => self.merge(condition, patch, tick).map(Effect::Stored),
            Write::Delete => self.delete(condition),
        }
    }

    /// As [`Self::apply`], where something beside the entity follows from it: `judge` is shown what is there and what
    /// will be, before anything is written, and may refuse. What it says is handed back, unless nothing changes.
    ///
    /// Where entities expire, one that has is nothing to a condition and to a merge. It is still what is replaced, and a
    /// delete that nothing may be in the way of removes it.
    pub(crate) fn apply_judged<T>(
        self,
        condition: Condition,
        write: Write,
        tick: Timestamp,
        expiry: Option<Expiry<'_>>,
        judge: impl FnOnce(Option<RecordRef<'_>>, Option<RecordRef<'_>>) -> Result<T, Fault>,
    ) -> Result<(Effect, Option<T>), Fault> {
        let record = match write {
            Write::Put(mut record) => {
                record.stamp(tick);
                record
            }
            Write::Restore(record) => record,
            Write::Merge(patch) => {
                let old = self.read()?;
                let living = living(old.as_ref(), expiry)?;
                let merged = self.merged(condition, living, patch, tick)?;
                let judged = judge(parsed(old.as_ref())?, Some(merged.as_ref()))?;
                self.store(old.as_ref(), merged.as_bytes())?;
                return Ok((Effect::Stored(merged), Some(judged)));
            }
            Write::Delete => {
                let old = self.read()?;
                meets(condition, living(old.as_ref(), expiry)?)?;
                let Some(old) = old else { return Ok((Effect::Nothing, None)) };
                let judged = judge(parsed(Some(&old))?, None)?;
                self.execute(DELETE, &[])?;
                self.delete_large(&old)?;
                return Ok((Effect::Removed, Some(judged)));
            }
        };
        if condition == Condition::Absent && expiry.is_none() {
            // Nearly always there is nothing, so that is not looked for first.
            let judged = match judge(None, Some(record.as_ref())) {
                Err(Fault::Rejected(_)) if self.read()?.is_some() => {
                    Err(Fault::Rejected(Conflict::EntityExists))
                }
                judged => judged,
            }?;
            self.put(condition, &record)?;
            return Ok((Effect::Stored(record), Some(judged)));
        }
        let old = self.read()?;
        meets(condition, living(old.as_ref(), expiry)?)?;
        let judged = judge(parsed(old.as_ref())?, Some(record.as_ref()))?;
        self.store(old.as_ref(), record.as_bytes())?;
        Ok((Effect::Stored(record), Some(judged)))
    }

    fn put(self, condition: Condition, record: &Record) -> Result<(), Fault> {
        let bytes = record.as_bytes();
        if self.is_inline(bytes) {
            let changed = match condition {
                Condition::Absent => {
                    return match self.execute(INSERT, &[&bytes])? {
                        0 => Err(Fault::Rejected(Conflict::EntityExists)),
                        _ => Ok(()),
                    };
                }
                Condition::Any => self.execute(UPSERT_INLINE, &[&bytes])?,
                Condition::Exists => self.execute(UPDATE_INLINE, &[&bytes])?,
                Condition::Matches(tag) => match tag.timestamp() {
                    Some(time) => self.execute(UPDATE_TAGGED, &[&bytes, &stored(time)])?,
                    None => 0,
                },
            };
            if changed == 1 {
                return Ok(());
            }
        }
        let old = self.read()?;
        meets(condition, old.as_ref())?;
        self.store(old.as_ref(), bytes)
    }

    fn merge(self, condition: Condition, patch: Record, tick: Timestamp) -> Result<Record, Fault> {
        let old = self.read()?;
        let merged = self.merged(condition, old.as_ref(), patch, tick)?;
        self.store(old.as_ref(), merged.as_bytes())?;
        Ok(merged)
    }

    /// What a merge leaves, if it may be made.
    fn merged(
        self,
        condition: Condition,
        old: Option<&Old>,
        patch: Record,
        tick: Timestamp,
    ) -> Result<Record, Fault> {
        meets(condition, old)?;
        let mut merged = match old {
            Some(old) => Record::merge(RecordRef::parse(&old.record)?, patch.as_ref())?,
            None => patch,
        };
        let (partition, row) = (self.key.partition.as_str(), self.key.row.as_str());
        match merged.as_ref().check_limits(partition, row)? {
            Some(LimitExceeded::Properties) => Err(Fault::Rejected(Conflict::TooManyProperties)),
            Some(LimitExceeded::Size) => Err(Fault::Rejected(Conflict::EntityTooLarge)),
            None => {
                merged.stamp(tick);
                Ok(merged)
            }
        }
    }

    fn delete(self, condition: Condition) -> Result<Effect, Fault> {
        let changed = match condition {
            Condition::Absent => 0,
            Condition::Any | Condition::Exists => self.execute(DELETE_INLINE, &[])?,
            Condition::Matches(tag) => match tag.timestamp() {
                Some(time) => self.execute(DELETE_TAGGED, &[&stored(time)])?,
                None => 0,
            },
        };
        if changed == 1 {
            return Ok(Effect::Removed);
        }
        let old = self.read()?;
        meets(condition, old.as_ref())?;
        let Some(old) = old else { return Ok(Effect::Nothing) };
        self.execute(DELETE, &[])?;
        self.delete_large(&old)?;
        Ok(Effect::Removed)
    }

    fn read(self) -> Result<Option<Old>, Fault> {
        let mut statement = self.conn.prepare_cached(SELECT)?;
        let mut rows = statement.query(params![
            self.table.0.cast_signed(),
            self.key.partition.as_str(),
            self.key.row.as_str()
        ])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        with_record(self.conn, row.get_ref(0)?, |large, record| {
            Ok(Some(Old { large, record: record.to_vec() }))
        })
    }

    /// Writes the record where its size puts it, and removes what stood elsewhere.
    fn store(self, old: Option<&Old>, record: &[u8]) -> Result<(), Fault> {
        let inline = self.is_inline(record);
        match (inline, old.and_then(|old| old.large)) {
            (true, _) => {
                self.execute(UPSERT, &[&record])?;
                if let Some(old) = old {
                    self.delete_large(old)?;
                }
            }
            (false, Some(id)) => {
                self.conn.prepare_cached(LARGE_UPDATE)?.execute(params![id, record])?;
            }
            (false, None) => {
                let id = self.conn.prepare_cached(LARGE_INSERT)?.insert(params![record])?;
                self.execute(UPSERT, &[&id])?;
            }
        }
        Ok(())
    }

    fn delete_large(self, old: &Old) -> Result<(), Fault> {
        if let Some(id) = old.large {
            self.conn.prepare_cached(LARGE_DELETE)?.execute([id])?;
        }
        Ok(())
    }

    /// Moving a short record out of a row with long keys would not make the row small.
    fn is_inline(self, record: &[u8]) -> bool {
        let keys = self.key.partition.as_str().len() + self.key.row.as_str().len();
        keys + record.len() <= self.inline_bytes || record.len() <= self.inline_bytes / 8
    }

    /// Runs a statement whose first three parameters are the key.
    fn execute(self, sql: &str, rest: &[&dyn ToSql]) -> Result<usize, rusqlite::Error> {
        let mut statement = self.conn.prepare_cached(sql)?;
        statement.raw_bind_parameter(1, self.table.0.cast_signed())?;
        statement.raw_bind_parameter(2, self.key.partition.as_str())?;
        statement.raw_bind_parameter(3, self.key.row.as_str())?;
        for (index, value) in (4..).zip(rest) {
            statement.raw_bind_parameter(index, value)?;
        }
        statement.raw_execute()
    }
}

/// Reads one record on any connection.
pub(crate) fn get(
    conn: &Connection,
    table: TableId,
    key: &EntityKey,
) -> Result<Option<Record>, Fault> {
    look(conn, table, key.partition.as_str(), key.row.as_str(), |bytes| {
        Ok(Record::from_bytes(bytes.to_vec())?)
    })
}

/// Hands the bytes of a record to `use_it`, if the entity is there.
pub(crate) fn look<T>(
    conn: &Connection,
    table: TableId,
    partition: &str,
    row: &str,
    use_it: impl FnOnce(&[u8]) -> Result<T, Fault>,
) -> Result<Option<T>, Fault> {
    let mut statement = conn.prepare_cached(SELECT)?;
    let mut rows = statement.query(params![table.0.cast_signed(), partition, row])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    with_record(conn, row.get_ref(0)?, |_, bytes| use_it(bytes)).map(Some)
}

/// The number of the last batch that a connection's snapshot holds.
pub(crate) fn last_batch(conn: &Connection) -> Result<u64, Fault> {
    let mut statement = conn.prepare_cached("SELECT sequence FROM meta WHERE id = 1")?;
    let sequence: i64 = statement.query_row([], |row| row.get(0))?;
    Ok(sequence.cast_unsigned())
}

/// Hands the bytes of a record to `use_it`, wherever the column says that they are, without a copy.
///
/// The statement that yielded the column must still be active, so that both are of one snapshot.
pub(crate) fn with_record<T>(
    conn: &Connection,
    column: ValueRef<'_>,
    use_it: impl FnOnce(Option<i64>, &[u8]) -> Result<T, Fault>,
) -> Result<T, Fault> {
    match column {
        ValueRef::Blob(bytes) => use_it(None, bytes),
        ValueRef::Integer(id) => {
            let mut statement = conn.prepare_cached(LARGE_SELECT)?;
            let mut rows = statement.query([id])?;
            match rows.next()? {
                Some(row) => match row.get_ref(0)? {
                    ValueRef::Blob(bytes) => use_it(Some(id), bytes),
                    _ => Err(Fault::Corrupt("a large record is not a blob".into())),
                },
                None => Err(Fault::Corrupt("a large record is missing".into())),
            }
        }
        _ => Err(Fault::Corrupt("a record is neither a blob nor a number".into())),
    }
}

/// Deletes a large record and tells its size, for the sweep.
pub(crate) fn remove_large(conn: &Connection, id: i64) -> Result<usize, rusqlite::Error> {
    let size: Option<i64> = conn
        .prepare_cached("SELECT length(record) FROM large WHERE id = ?1")?
        .query_row([id], |row| row.get(0))
        .optional()?;
    conn.prepare_cached(LARGE_DELETE)?.execute([id])?;
    Ok(usize::try_from(size.unwrap_or(0)).unwrap_or(0))
}

/// What is stored, unless it has expired.
fn living<'a>(old: Option<&'a Old>, expiry: Option<Expiry<'_>>) -> Result<Option<&'a Old>, Fault> {
    match (old, expiry) {
        (Some(old), Some(expiry)) if expiry.has_expired(RecordRef::parse(&old.record)?)? => {
            Ok(None)
        }
        (old, _) => Ok(old),
    }
}

fn meets(condition: Condition, old: Option<&Old>) -> Result<(), Fault> {
    condition.judge(parsed(old)?.map(RecordRef::timestamp)).map_err(Fault::Rejected)
}

fn parsed(old: Option<&Old>) -> Result<Option<RecordRef<'_>>, Fault> {
    Ok(old.map(|old| RecordRef::parse(&old.record)).transpose()?)
}

/// A Timestamp as it stands in a record, from its second byte on.
fn stored(time: Timestamp) -> [u8; 8] {
    time.ticks().to_le_bytes()
}
