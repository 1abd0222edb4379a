//! Entries follow their entities: what a command changes in the indexes of its table.
//!
//! An entity has at most one entry in an index, that of its record. Everything is judged before anything is written, so
//! a command that is refused has written nothing.

use crate::committer::Fault;
use rowhouse_query::index::entry;
use rowhouse_store::{Conflict, Index, IndexId, IndexState};
use rowhouse_types::{EntityKey, RecordRef, Row};
use rusqlite::{Connection, params};

const INSERT: &str = "INSERT INTO entries (index_id, entry, pk, rk) VALUES (?1, ?2, ?3, ?4)
    ON CONFLICT DO NOTHING";
const DELETE: &str = "DELETE FROM entries
    WHERE index_id = ?1 AND entry = ?2 AND pk = ?3 AND rk = ?4";
const TAKEN: &str = "SELECT 1 FROM entries
    WHERE index_id = ?1 AND entry = ?2 AND (pk != ?3 OR rk != ?4) LIMIT 1";

/// What has to be written.
#[derive(Debug)]
pub(crate) struct Difference(Vec<Changed>);

#[derive(Debug)]
struct Changed {
    index: IndexId,
    before: Option<Vec<u8>>,
    after: Option<Vec<u8>>,
}

/// What becomes of the entries when an entity that was this becomes that. Refused if another entity has the values.
pub(crate) fn judge(
    conn: &Connection,
    indexes: &[Index],
    key: &EntityKey,
    before: Option<RecordRef<'_>>,
    after: Option<RecordRef<'_>>,
) -> Result<Difference, Fault> {
    let (partition, row) = (key.partition.as_str(), key.row.as_str());
    let mut changes = Vec::with_capacity(indexes.len());
    for index in indexes.iter().filter(|index| index.state != IndexState::NotUnique) {
        let entry_of = |record: Option<RecordRef<'_>>| match record {
            Some(record) => entry(&index.keys, &Row { partition, row, record }),
            None => Ok(None),
        };
        let (before, after) = (entry_of(before)?, entry_of(after)?);
        if before == after {
            continue;
        }
        if index.keys.unique
            && let Some(after) = &after
            && is_taken(conn, index.id, after, partition, row)?
        {
            return Err(Fault::Rejected(Conflict::NotUnique));
        }
        changes.push(Changed { index: index.id, before, after });
    }
    Ok(Difference(changes))
}

impl Difference {
    pub(crate) fn write(&self, conn: &Connection, key: &EntityKey) -> Result<(), rusqlite::Error> {
        let (partition, row) = (key.partition.as_str(), key.row.as_str());
        for Changed { index, before, after } in &self.0 {
            if let Some(before) = before {
                // While the index is being built it may not be there yet.
                conn.prepare_cached(DELETE)?.execute(params![
                    index.0.cast_signed(),
                    before,
                    partition,
                    row
                ])?;
            }
            if let Some(after) = after {
                insert(conn, *index, after, partition, row)?;
            }
        }
        Ok(())
    }
}

/// Whether another entity has the entry.
pub(crate) fn is_taken(
    conn: &Connection,
    index: IndexId,
    entry: &[u8],
    partition: &str,
    row: &str,
) -> Result<bool, rusqlite::Error> {
    conn.prepare_cached(TAKEN)?.exists(params![index.0.cast_signed(), entry, partition, row])
}

pub(crate) fn insert(
    conn: &Connection,
    index: IndexId,
    entry: &[u8],
    partition: &str,
    row: &str,
) -> Result<(), rusqlite::Error> {
    conn.prepare_cached(INSERT)?
        .execute(params![index.0.cast_signed(), entry, partition, row])
        .map(drop)
}
