//! Secondary indexes: their entries are rows of one table that all indexes share, each on the shard of its entity.
//!
//! Whoever changes an entity of a table with indexes does so in a transaction that has the indexes at its snapshot
//! (`crate::batch`), and writes the difference of the entries in it. `declare` sees to it that no write is under way
//! that does not know of an index, before anybody relies on that; `build` enters what was there before; `lookup` says in SQL what is read.

pub(crate) mod build;
pub(crate) mod declare;
pub(crate) mod lookup;

use crate::cache::Known;
use crate::entity::{Columns, Place};
use crate::fault::Fault;
use crate::key::{DbKey, EntryKey};
use crate::pool::Session;
use crate::statement::{ROWS_MAX, Typed, ask, tuples};
use crate::ticks::Tick;
use rowhouse_query::index::{IndexKeys, entry};
use rowhouse_store::IndexState;
use rowhouse_types::{EntityKey, Record, Row, Timestamp};
use std::collections::HashMap;
use tokio_postgres::types::{ToSql, Type};

/// Declared: writes keep it, but some may be under way that do not know of it.
pub(crate) const DECLARED: i16 = 0;
pub(crate) const BUILDING: i16 = 1;
pub(crate) const READY: i16 = 2;
pub(crate) const NOT_UNIQUE: i16 = 3;

/// Whatever is there already stays.
pub(crate) const UNLESS_THERE: &str = "ON CONFLICT (iid, entry, kp, kh, dk) DO NOTHING";
/// The same, and it gives way to another entity's entry of a unique index. At the isolation of a batch, a row that the
/// snapshot does not show makes it fail.
const UNLESS_IN_THE_WAY: &str = "ON CONFLICT DO NOTHING";
const REMOVE: &str = "DELETE FROM rowhouse.index_entries x
    USING unnest($2::bigint[], $3::bytea[], $4::bytea[], $5::bytea[]) AS gone(iid, entry, kp, kh)
    WHERE x.dk = $1 AND x.iid = gone.iid AND x.entry = gone.entry AND x.kp = gone.kp AND x.kh = gone.kh";
const HOLDERS: &str = "SELECT x.iid, x.entry, x.dk, x.kp || x.rest
    FROM unnest($1::bigint[], $2::bytea[]) AS wanted(iid, entry)
    JOIN rowhouse.index_entries x ON x.iid = wanted.iid AND x.entry = wanted.entry";

/// An index that writes keep.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub(crate) id: i64,
    pub(crate) keys: IndexKeys,
    /// Entities that were there before may be entered at any moment.
    pub(crate) building: bool,
}

/// An entry in columns.
#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) home: i64,
    pub(crate) index: i64,
    pub(crate) bytes: Vec<u8>,
    pub(crate) key: EntryKey,
    pub(crate) unique: bool,
}

/// What becomes of the entries of some entities.
#[derive(Default)]
pub(crate) struct Difference {
    /// Those that are there, or perhaps only will be.
    removed: Vec<Entry>,
    doubtful: Vec<Entry>,
    added: Vec<Entry>,
}

/// The state as callers know it.
pub(crate) fn state(number: i16) -> IndexState {
    match number {
        READY => IndexState::Ready,
        NOT_UNIQUE => IndexState::NotUnique,
        _ => IndexState::Building,
    }
}

/// The properties and whether it is unique, from these columns.
pub(crate) fn keys(properties: Vec<String>, unique: bool) -> IndexKeys {
    IndexKeys { properties: properties.into_iter().map(String::into_boxed_str).collect(), unique }
}

/// What the entity is entered under, if it is.
fn entered(
    keys: &IndexKeys,
    key: &EntityKey,
    record: Option<&Record>,
) -> Result<Option<Vec<u8>>, Fault> {
    let Some(record) = record else { return Ok(None) };
    let (partition, row) = (key.partition.as_str(), key.row.as_str());
    Ok(entry(keys, &Row { partition, row, record: record.as_ref() })?)
}

impl Difference {
    /// Adds what a change of the entity makes of its entry in the index.
    pub(crate) fn note(
        &mut self,
        kept: &Kept,
        home: i64,
        key: &EntityKey,
        in_entry: &EntryKey,
        [before, after]: [Option<&Record>; 2],
    ) -> Result<(), Fault> {
        let before = entered(&kept.keys, key, before)?;
        let after = entered(&kept.keys, key, after)?;
        if before == after {
            return Ok(());
        }
        let with = |bytes| Entry {
            home,
            index: kept.id,
            bytes,
            key: in_entry.clone(),
            unique: kept.keys.unique,
        };
        if let Some(bytes) = before {
            let entry = with(bytes);
            if kept.building {
                self.doubtful.push(entry.clone());
            }
            self.removed.push(entry);
        }
        self.added.extend(after.map(with));
        Ok(())
    }

    /// Writes what goes. An entry that others made since the snapshot would not be seen: putting it there first fails
    /// then, and the transaction starts again.
    pub(crate) async fn remove(&self, session: &Session) -> Result<(), Fault> {
        insert(session, &self.doubtful, UNLESS_IN_THE_WAY).await?;
        let mut homes: Vec<i64> = self.removed.iter().map(|entry| entry.home).collect();
        homes.sort_unstable();
        homes.dedup();
        for home in homes {
            let here = || self.removed.iter().filter(|entry| entry.home == home);
            let indexes: Vec<i64> = here().map(|entry| entry.index).collect();
            let entries: Vec<&[u8]> = here().map(|entry| &*entry.bytes).collect();
            let prefixes: Vec<&[u8]> = here().map(|entry| &*entry.key.prefix).collect();
            let hashes: Vec<&[u8]> = here().map(|entry| &*entry.key.hash).collect();
            session.execute(REMOVE, &[&home, &indexes, &entries, &prefixes, &hashes]).await?;
        }
        Ok(())
    }

    /// Writes what comes, after what goes.
    pub(crate) async fn add(&self, session: &Session) -> Result<(), Fault> {
        insert(session, &self.added, "").await
    }
}

/// Puts entries there, of any partitions.
pub(crate) async fn insert(
    session: &Session,
    entries: &[Entry],
    conflict: &str,
) -> Result<(), Fault> {
    for entries in entries.chunks(ROWS_MAX) {
        let mut values: Vec<Typed<'_>> = Vec::with_capacity(7 * entries.len());
        for Entry { home, index, bytes, key, unique } in entries {
            values.extend::<[Typed<'_>; 7]>([
                (home, Type::INT8),
                (index, Type::INT8),
                (bytes, Type::BYTEA),
                (&key.prefix, Type::BYTEA),
                (&key.hash, Type::BYTEA),
                (&key.rest, Type::BYTEA),
                (unique, Type::BOOL),
            ]);
        }
        let sql = format!(
            "INSERT INTO rowhouse.index_entries (dk, iid, entry, kp, kh, rest, is_unique)
             VALUES ({}) {conflict}",
            tuples(entries.len(), 1, 7, "), (")
        );
        ask(session, entries.len(), &sql, values).await?;
    }
    Ok(())
}

/// A new entity with its entries, if the table's indexes are those that are known; whether it was not there. By one
/// statement, which also looks whether that is so.
pub(crate) async fn insert_entity(
    session: &Session,
    Place { home, table, key }: Place<'_>,
    of: &EntityKey,
    record: &Record,
    tick: Tick,
    known: &Known,
) -> Result<bool, Fault> {
    let mut record = record.clone();
    record.stamp(Timestamp::from_ticks(tick.at.unsigned_abs()).unwrap_or(Timestamp::MAX));
    let mut entries = Vec::new();
    for index in &known.table.indexes {
        if index.state != IndexState::NotUnique
            && let Some(bytes) = entered(&index.keys, of, Some(&record))?
        {
            let id = i64::try_from(index.id.0).unwrap_or(-1);
            entries.push((id, bytes, index.keys.unique));
        }
    }
    let Columns { size, names, props } = Columns::of(key, &record)?;
    let DbKey { prefix, hash, rest, partition_len } = key;
    let in_entry = key.in_entry();
    let mut values: Vec<&(dyn ToSql + Sync)> = vec![
        &home,
        &table,
        prefix,
        hash,
        rest,
        partition_len,
        &tick.at,
        &size,
        &names,
        &props,
        &known.indexing,
    ];
    if !entries.is_empty() {
        let key: [&(dyn ToSql + Sync); 3] = [&in_entry.prefix, &in_entry.hash, &in_entry.rest];
        values.extend(key);
    }
    for (id, bytes, unique) in &entries {
        let entry: [&(dyn ToSql + Sync); 3] = [id, bytes, unique];
        values.extend(entry);
    }
    let row = session.row(&inserting(entries.len()), &values).await?;
    Ok(row.is_some())
}

/// The statement for so many entries.
fn inserting(entries: usize) -> String {
    let entity = "INSERT INTO rowhouse.entities AS e
            (dk, tid, kp, kh, rest, pl, ts, size, names, props)
        VALUES ($1, rowhouse.keeping($2, $11), $3, $4, $5, $6, $7, $8, $9, $10)
        ON CONFLICT (tid, kp, kh, dk) DO NOTHING RETURNING e.ts";
    if entries == 0 {
        return entity.to_owned();
    }
    let first = "$15::bigint, $16::bytea, $17::boolean";
    let others = if entries == 1 {
        String::new()
    } else {
        format!("), ({}", tuples(entries - 1, 18, 3, "), ("))
    };
    format!(
        "WITH e AS ({entity}), x AS (
            INSERT INTO rowhouse.index_entries (dk, iid, entry, kp, kh, rest, is_unique)
            SELECT $1, v.iid, v.entry, $12, $13, $14, v.is_unique
            FROM (VALUES ({first}{others})) AS v(iid, entry, is_unique)
            WHERE EXISTS (SELECT FROM e)
        )
        SELECT e.ts FROM e"
    )
}

/// An entity as entries name it: where its partition lives, and its whole key.
pub(crate) type Owner = (i64, Vec<u8>);

/// Who has an entry of a unique index.
pub(crate) type Taken = HashMap<(i64, Vec<u8>), Owner>;

/// What the commands of a batch make of the entries of unique indexes, in their order.
#[derive(Default)]
pub(crate) struct Claims(Vec<Claim>);

struct Claim {
    command: usize,
    index: i64,
    owner: Owner,
    before: Option<Vec<u8>>,
    after: Option<Vec<u8>>,
}

impl Claims {
    /// Adds what a command made of an entity.
    pub(crate) fn note(
        &mut self,
        command: usize,
        kept: &Kept,
        (home, in_entry): (i64, &EntryKey),
        key: &EntityKey,
        [before, after]: [Option<&Record>; 2],
    ) -> Result<(), Fault> {
        let before = entered(&kept.keys, key, before)?;
        let after = entered(&kept.keys, key, after)?;
        if before != after {
            let owner = (home, [&*in_entry.prefix, &*in_entry.rest].concat());
            self.0.push(Claim { command, index: kept.id, owner, before, after });
        }
        Ok(())
    }

    /// Who has what is claimed.
    pub(crate) async fn taken(&self, session: &Session, cluster: bool) -> Result<Taken, Fault> {
        let mut taken = Taken::new();
        let claimed = || self.0.iter().filter(|claim| claim.after.is_some());
        if cluster {
            // There an index is unique only within partitions.
            let mut homes: Vec<i64> = claimed().map(|claim| claim.owner.0).collect();
            homes.sort_unstable();
            homes.dedup();
            for home in homes {
                let here = claimed().filter(|claim| claim.owner.0 == home);
                holders(session, here, Some(home), &mut taken).await?;
            }
        } else if claimed().next().is_some() {
            holders(session, claimed(), None, &mut taken).await?;
        }
        Ok(taken)
    }

    /// The first command that claims what another entity has.
    pub(crate) fn refused(self, mut taken: Taken) -> Option<usize> {
        for Claim { command, index, owner, before, after } in self.0 {
            if let Some(before) = before.map(|before| (index, before))
                && taken.get(&before) == Some(&owner)
            {
                taken.remove(&before);
            }
            let Some(after) = after else { continue };
            let holder = taken.entry((index, after)).or_insert_with(|| owner.clone());
            if *holder != owner {
                return Some(command);
            }
        }
        None
    }
}

/// Who has what is claimed, as the snapshot shows it.
async fn holders<'a>(
    session: &Session,
    claims: impl Iterator<Item = &'a Claim>,
    home: Option<i64>,
    taken: &mut Taken,
) -> Result<(), Fault> {
    let (indexes, entries): (Vec<i64>, Vec<&[u8]>) =
        claims.map(|claim| (claim.index, claim.after.as_deref().unwrap_or_default())).unzip();
    let rows = match home {
        Some(home) => {
            let sql = format!("{HOLDERS} WHERE x.dk = $3");
            session.rows(&sql, &[&indexes, &entries, &home]).await?
        }
        None => session.rows(HOLDERS, &[&indexes, &entries]).await?,
    };
    for row in rows {
        taken.insert((row.get(0), row.get(1)), (row.get(2), row.get(3)));
    }
    Ok(())
}
