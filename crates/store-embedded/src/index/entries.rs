//! Entries follow their entities: what a command changes in the indexes of its table.
//!
//! An entity has at most one entry in an index, that of its record. Everything is judged before anything is written, so
//! a command that is refused has written nothing.

use crate::committer::Fault;
use crate::entity::look;
use crate::scan::text;
use rowhouse_query::index::entry;
use rowhouse_store::{Conflict, Expiry, IndexId, IndexState, Table};
use rowhouse_types::{EntityKey, RecordRef, Row};
use rusqlite::{Connection, params};

const INSERT: &str = "INSERT INTO entries (index_id, entry, pk, rk) VALUES (?1, ?2, ?3, ?4)
    ON CONFLICT DO NOTHING";
const DELETE: &str = "DELETE FROM entries
    WHERE index_id = ?1 AND entry = ?2 AND pk = ?3 AND rk = ?4";
const HOLDERS: &str = "SELECT pk, rk FROM entries
    WHERE index_id = ?1 AND entry = ?2 AND (pk != ?3 OR rk != ?4)";

/// What has to be written.
#[derive(Debug)]
pub(crate) struct Difference {
    changes: Vec<Changed>,
    /// Entities that have expired and had what this one gets: they have to be gone first.
    pub(crate) freed: Vec<EntityKey>,
}

#[derive(Debug)]
struct Changed {
    index: IndexId,
    before: Option<Vec<u8>>,
    after: Option<Vec<u8>>,
}

/// What becomes of the entries when an entity that was this becomes that. Refused if another entity has the values.
pub(crate) fn judge(
    conn: &Connection,
    table: &Table,
    expiry: Option<Expiry<'_>>,
    key: &EntityKey,
    before: Option<RecordRef<'_>>,
    after: Option<RecordRef<'_>>,
) -> Result<Difference, Fault> {
    let (partition, row) = (key.partition.as_str(), key.row.as_str());
    let (mut changes, mut freed) = (Vec::with_capacity(table.indexes.len()), Vec::new());
    for index in table.indexes.iter().filter(|index| index.state != IndexState::NotUnique) {
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
        {
            for holder in holders(conn, index.id, after, partition, row)? {
                let (partition, row) = (holder.partition.as_str(), holder.row.as_str());
                let gone = match expiry {
                    Some(expiry) => look(conn, table.id, partition, row, |bytes| {
                        Ok(expiry.has_expired(RecordRef::parse(bytes)?)?)
                    })?,
                    None => None,
                };
                if gone != Some(true) {
                    return Err(Fault::Rejected(Conflict::NotUnique));
                }
                freed.push(holder);
            }
        }
        changes.push(Changed { index: index.id, before, after });
    }
    Ok(Difference { changes, freed })
}

impl Difference {
    pub(crate) fn write(&self, conn: &Connection, key: &EntityKey) -> Result<(), rusqlite::Error> {
        let (partition, row) = (key.partition.as_str(), key.row.as_str());
        for Changed { index, before, after } in &self.changes {
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

/// The other entities that have the entry.
pub(crate) fn holders(
    conn: &Connection,
    index: IndexId,
    entry: &[u8],
    partition: &str,
    row: &str,
) -> Result<Vec<EntityKey>, Fault> {
    let mut statement = conn.prepare_cached(HOLDERS)?;
    let mut rows = statement.query(params![index.0.cast_signed(), entry, partition, row])?;
    let mut holders = Vec::new();
    while let Some(row) = rows.next()? {
        let key = EntityKey::new(text(row, 0)?, text(row, 1)?);
        holders.push(key.map_err(|error| Fault::Corrupt(error.to_string()))?);
    }
    Ok(holders)
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
