//! Batches: every command or none.
//!
//! A batch of one kind into one partition is one statement (see `statement`). Any other batch, and one whose
//! statement found that a condition does not hold, is a transaction: its rows are read and locked at one snapshot,
//! the commands are judged here one after the other, and what they leave is written, with what that changes in the
//! indexes of the tables. A row that changed since the snapshot makes the database refuse, and the transaction starts
//! again. Changes of messages follow those of entities in the same transaction, each a statement of its own that judges itself
//! (see `queue`).

use crate::catalogue;
use crate::entity;
use crate::fault::Fault;
use crate::index::{self, Claims, Difference, Kept, Taken};
use crate::key::DbKey;
use crate::pool::{Session, Values};
use crate::queue::Now;
use crate::queue::write::{Context, run};
use crate::statement::{ROWS_MAX, insert_rows, restore_rows};
use crate::ticks::Tick;
use rowhouse_store::{Command, Conflict, Message, MessageCommand, StoreError, Ttl, Write};
use rowhouse_types::{EntityKey, LimitExceeded, Record, Timestamp};
use std::collections::{BTreeMap, HashMap};
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

/// Locked before the snapshot is taken: whoever sees no such lock knows that no transaction is under way whose snapshot
/// is older. A cluster would lock the table on all nodes, were it not told to leave that to this one.
const SNAPSHOT: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ;
    LOCK TABLE rowhouse.entities IN ROW EXCLUSIVE MODE";
const SNAPSHOT_OF_CLUSTER: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ;
    SET LOCAL citus.enable_ddl_propagation = off;
    LOCK TABLE rowhouse.entities IN ROW EXCLUSIVE MODE";
/// For messages alone.
const SNAPSHOT_ALONE: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ";
/// The tables that are there, each with its mark and the indexes that are kept. One that is not unique is not.
const LIVE: &str =
    "SELECT t.tid, t.indexing, t.ttl, t.ttl_property, i.iid, i.properties, i.is_unique, i.state
    FROM rowhouse.tables t
    LEFT JOIN rowhouse.indexes i ON i.tid = t.tid AND i.dropped IS NULL AND i.state <> 3
    WHERE t.tid = ANY($1) AND t.dropped IS NULL";
/// The index is read in the order of its keys, so transactions lock in one order. Where they do not, the database
/// notices and one of them starts again. Hashes are compared so that the index is not asked for them: with two lists the
/// planner would rather read the partition.
///
/// It deletes nothing, so as to be a write: in a Citus cluster a partition stays on its node for a transaction that has
/// written to it, but not for one that has only locked rows of it. What was judged on one node must not be written to
/// another, where others have changed the rows since.
const LOCK: &str = "WITH nothing AS (
        DELETE FROM rowhouse.entities e WHERE e.dk = $1 AND e.tid = $2 AND e.kp = ANY('{}')
    )
    SELECT e.kp, e.kh, e.ts, e.names, e.props
    FROM rowhouse.entities e WHERE e.dk = $1 AND e.tid = $2 AND e.kp = ANY($3) AND e.kh || '' = ANY($4)
    FOR UPDATE OF e";
/// The same with the mark of the table, as the node has it that holds the partition; without a table, nothing. A row of
/// it is there even if there is no entity.
const LOCK_OF_CLUSTER: &str = "WITH nothing AS (
        DELETE FROM rowhouse.entities e WHERE e.dk = $1 AND e.tid = $2 AND e.kp = ANY('{}')
    ), locked AS (
        SELECT e.kp, e.kh, e.ts, e.names, e.props
        FROM rowhouse.entities e WHERE e.dk = $1 AND e.tid = $2 AND e.kp = ANY($3) AND e.kh || '' = ANY($4)
        FOR UPDATE OF e
    )
    SELECT l.kp, l.kh, l.ts, l.names, l.props, t.indexing
    FROM rowhouse.tables t LEFT JOIN locked l ON true WHERE t.tid = $2 AND t.dropped IS NULL";
const DELETE: &str = "DELETE FROM rowhouse.entities e
    USING unnest($3::bytea[], $4::bytea[]) AS gone(kp, kh)
    WHERE e.dk = $1 AND e.tid = $2 AND e.kp = ANY($3) AND e.kp = gone.kp AND e.kh = gone.kh";

/// A partition of a table, as the database has it. Sorted, so that transactions lock in one order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Partition {
    pub(crate) table: i64,
    pub(crate) home: i64,
}

/// A command, with where its entity is.
pub(crate) struct Located {
    pub(crate) partition: Partition,
    pub(crate) key: DbKey,
    pub(crate) command: Command,
}

/// A batch that took effect.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    /// The tick of all its entities.
    pub(crate) tick: i64,
    /// What is told of messages.
    pub(crate) messages: Vec<Message>,
}

impl Outcome {
    /// Of entities alone.
    pub(crate) fn of(tick: Tick) -> Self {
        Self { tick: tick.at, messages: Vec::new() }
    }
}

/// What a transaction does.
#[derive(Clone, Copy)]
pub(crate) struct Work<'a> {
    pub(crate) commands: &'a [Located],
    pub(crate) messages: &'a [MessageCommand],
    /// What they go by.
    pub(crate) context: Context<'a>,
}

impl<'a> Work<'a> {
    /// Entities alone.
    pub(crate) fn of_entities(commands: &'a [Located]) -> Self {
        Self { commands, messages: &[], context: Context { now: Now(None), floors: None } }
    }
}

/// An entity in a transaction: what was there, and what the commands so far leave.
struct Entity {
    key: EntityKey,
    stored: Option<Record>,
    current: Option<Record>,
    written: bool,
    /// What was there is so no longer.
    expired: bool,
}

/// Entities of a transaction, by partition and key.
type Entities = BTreeMap<Partition, BTreeMap<DbKey, Entity>>;

/// The tables that are there.
type Tables = HashMap<i64, Live>;

/// A table as the node has it that was asked.
struct Live {
    /// Another number whenever the indexes are others.
    mark: i64,
    ttl: Option<Ttl>,
    indexes: Vec<Kept>,
}

/// The mark of a table, if it is there, as the node has it that holds one of the partitions.
type Seen = (i64, Option<i64>);

/// Runs the batch as a transaction. [`Fault::Raced`] if another try may succeed. `now` decides what has expired.
pub(crate) async fn as_transaction(
    session: &Session,
    work: Work<'_>,
    tick: Tick,
    now: Timestamp,
    cluster: bool,
) -> Result<Outcome, Fault> {
    match in_transaction(session, work, tick, now, cluster).await {
        Ok(outcome) => {
            session.end("COMMIT").await?;
            Ok(outcome)
        }
        Err(fault) => {
            session.roll_back().await;
            Err(fault.before_commit())
        }
    }
}

async fn in_transaction(
    session: &Session,
    Work { commands, messages, context }: Work<'_>,
    tick: Tick,
    now: Timestamp,
    cluster: bool,
) -> Result<Outcome, Fault> {
    if commands.is_empty() {
        session.begin(SNAPSHOT_ALONE).await?;
    } else {
        of_entities(session, commands, tick, now, cluster).await?;
    }
    let told = run(session, messages, tick, context).await;
    let messages = told.map_err(|fault| match fault {
        Fault::Rejected(index, reason) => Fault::Rejected(commands.len() + index, reason),
        other => other,
    })?;
    Ok(Outcome { tick: tick.at, messages })
}

/// Begins the transaction and does what it does to entities.
async fn of_entities(
    session: &Session,
    commands: &[Located],
    tick: Tick,
    now: Timestamp,
    cluster: bool,
) -> Result<(), Fault> {
    let tables: Vec<i64> = commands.iter().map(|located| located.partition.table).collect();
    let mut entities = named(commands);
    let of_tables: Values<'_> = &[&tables];
    // Sent together, answered one after the other.
    let (begun, live, locked) = tokio::join!(
        biased;
        session.begin(if cluster { SNAPSHOT_OF_CLUSTER } else { SNAPSHOT }),
        session.rows(LIVE, of_tables),
        lock(session, &mut entities, cluster),
    );
    begun?;
    // Looked at first: where it fails, what else was asked in the transaction fails because of it.
    let seen = locked?;
    let tables = tables_of(&live?);
    agree(&tables, &seen)?;
    expire(&mut entities, &tables, now)?;
    let latest = entities.values().flat_map(BTreeMap::values).filter_map(|entity| {
        let stored = entity.stored.as_ref()?;
        i64::try_from(stored.as_ref().timestamp().ticks()).ok()
    });
    let (at, latest) = (tick.at, latest.max());
    let mut claims = Claims::default();
    let judged = judge_all(&mut entities, commands, &tables, at, &mut claims);
    // What commands before the one that failed claimed comes first.
    let mut taken = claims.taken(session, cluster).await?;
    release(session, &mut entities, &tables, now, &mut taken).await?;
    if let Some(index) = claims.refused(taken) {
        return Err(Fault::Rejected(index, Conflict::NotUnique));
    }
    judged?;
    if let Some(latest) = latest.filter(|latest| at <= *latest) {
        return Err(Fault::Behind(latest));
    }
    let difference = difference(&entities, &tables)?;
    write_all(session, &entities, at, &difference).await
}

fn tables_of(rows: &[Row]) -> Tables {
    let mut tables = Tables::new();
    for row in rows {
        let (mark, ttl) = (row.get(1), catalogue::read_ttl(row, 2));
        let table = tables.entry(row.get(0));
        let table = table.or_insert_with(|| Live { mark, ttl, indexes: Vec::new() });
        if let Some(id) = row.get(4) {
            let keys = index::keys(row.get(5), row.get(6));
            let state: i16 = row.get(7);
            table.indexes.push(Kept { id, keys, building: state != index::READY });
        }
    }
    tables
}

/// On a cluster the node that holds a partition may be another than the one that was asked, and their snapshots are not
/// of one moment. What this transaction has not seen of the indexes must not have been kept by one whose writes it sees,
/// nor the other way round.
fn agree(tables: &Tables, seen: &[Seen]) -> Result<(), Fault> {
    let alike = |(table, mark): &Seen| tables.get(table).map(|live| live.mark) == *mark;
    if seen.iter().all(alike) { Ok(()) } else { Err(Fault::Unmet) }
}

/// Judges the commands in their order, up to the first that fails.
fn judge_all(
    entities: &mut Entities,
    commands: &[Located],
    tables: &Tables,
    tick: i64,
    claims: &mut Claims,
) -> Result<(), Fault> {
    for (index, located) in commands.iter().enumerate() {
        let judged = match tables.get(&located.partition.table) {
            Some(table) => judge(entities, located, tick, &table.indexes, (index, claims)),
            None => Err(Conflict::TableNotFound.into()),
        };
        judged.map_err(|fault| match fault {
            Fault::Rejected(_, reason) => Fault::Rejected(index, reason),
            other => other,
        })?;
    }
    Ok(())
}

/// Every entity that the commands name, not read yet.
fn named(commands: &[Located]) -> Entities {
    let mut entities = Entities::new();
    for Located { partition, key, command } in commands {
        let Command::Entity { key: named, .. } = command;
        let of_partition = entities.entry(*partition).or_default();
        of_partition.entry(key.clone()).or_insert_with(|| Entity {
            key: named.clone(),
            stored: None,
            current: None,
            written: false,
            expired: false,
        });
    }
    entities
}

/// Reads and locks the entities, partition by partition in their order; what the nodes of a cluster that hold them have
/// of the tables.
async fn lock(
    session: &Session,
    entities: &mut Entities,
    cluster: bool,
) -> Result<Vec<Seen>, Fault> {
    let sql = if cluster { LOCK_OF_CLUSTER } else { LOCK };
    let mut seen = Vec::new();
    for (partition, of_partition) in entities {
        let prefixes: Vec<&[u8]> = of_partition.keys().map(|key| &*key.prefix).collect();
        let hashes: Vec<&[u8]> = of_partition.keys().map(|key| &*key.hash).collect();
        let rows = lock_by(sql, session, *partition, &prefixes, &hashes).await?;
        if cluster {
            seen.push((partition.table, rows.first().map(|row| row.get(5))));
        }
        for row in rows {
            let Some(prefix) = row.get::<_, Option<&[u8]>>(0) else { continue };
            let hash: &[u8] = row.get(1);
            let same = |key: &DbKey| key.prefix == prefix && key.hash == hash;
            if let Some((_, entity)) = of_partition.iter_mut().find(|(key, _)| same(key)) {
                entity.stored = Some(entity::record(&row, 2)?);
                entity.current = entity.stored.clone();
            }
        }
    }
    Ok(seen)
}

/// What has expired is not there for any command.
fn expire(entities: &mut Entities, tables: &Tables, now: Timestamp) -> Result<(), Fault> {
    for (partition, of_partition) in entities {
        let ttl = tables.get(&partition.table).and_then(|table| table.ttl.as_ref());
        let Some(expiry) = ttl.map(|ttl| ttl.at(now)) else { continue };
        for entity in of_partition.values_mut() {
            let Some(stored) = &entity.stored else { continue };
            if expiry.has_expired(stored.as_ref())? {
                entity.expired = true;
                entity.current = None;
            }
        }
    }
    Ok(())
}

/// Has what has expired give up what it has of unique indexes: it is removed with all its entries.
async fn release(
    session: &Session,
    entities: &mut Entities,
    tables: &Tables,
    now: Timestamp,
    taken: &mut Taken,
) -> Result<(), Fault> {
    let table_of = |index: i64| {
        let has = |table: &&Live| table.indexes.iter().any(|kept| kept.id == index);
        tables.iter().find(|(_, table)| table.ttl.is_some() && has(table)).map(|(id, _)| *id)
    };
    let mut others = Entities::new();
    let mut held = Vec::new();
    for ((index, entry), (home, whole)) in taken.iter() {
        let Some(table) = table_of(*index) else { continue };
        let (name, key) = DbKey::of_whole(whole)
            .ok_or_else(|| StoreError::Corrupt("a key is none".to_owned()))?;
        let partition = Partition { table, home: *home };
        let named = entities.get(&partition).is_some_and(|of| of.contains_key(&key));
        if !named {
            let unread =
                Entity { key: name, stored: None, current: None, written: true, expired: false };
            others.entry(partition).or_default().insert(key.clone(), unread);
        }
        held.push(((*index, entry.clone()), partition, key));
    }
    if !others.is_empty() {
        // On a cluster they are in partitions that are locked already: a unique index names PartitionKey there.
        lock(session, &mut others, false).await?;
        expire(&mut others, tables, now)?;
        for (partition, of_partition) in others {
            let expired = of_partition.into_iter().filter(|(_, entity)| entity.expired);
            entities.entry(partition).or_default().extend(expired);
        }
    }
    for (entry, partition, key) in held {
        let holder = entities.get(&partition).and_then(|of| of.get(&key));
        if holder.is_some_and(|entity| entity.expired) {
            taken.remove(&entry);
        }
    }
    Ok(())
}

/// Reads and locks rows of a partition: `kp, kh, ts, names, props`.
pub(crate) async fn lock_rows(
    session: &Session,
    partition: Partition,
    prefixes: &[&[u8]],
    hashes: &[&[u8]],
) -> Result<Vec<Row>, Fault> {
    lock_by(LOCK, session, partition, prefixes, hashes).await
}

async fn lock_by(
    sql: &str,
    session: &Session,
    partition: Partition,
    prefixes: &[&[u8]],
    hashes: &[&[u8]],
) -> Result<Vec<Row>, Fault> {
    // Planned for these keys: a plan for any number of them may read the partition instead.
    let values: [(&(dyn ToSql + Sync), Type); 4] = [
        (&partition.home, Type::INT8),
        (&partition.table, Type::INT8),
        (&prefixes, Type::BYTEA_ARRAY),
        (&hashes, Type::BYTEA_ARRAY),
    ];
    session.rows_once(sql, &values).await
}

/// Judges one command against what those before it left, and does it.
fn judge(
    entities: &mut Entities,
    located: &Located,
    tick: i64,
    kept: &[Kept],
    (index, claims): (usize, &mut Claims),
) -> Result<(), Fault> {
    let Command::Entity { condition, write, .. } = &located.command;
    let entity = entities
        .get_mut(&located.partition)
        .and_then(|entities| entities.get_mut(&located.key))
        .expect("every command's entity was put there");
    condition.judge(entity.current.as_ref().map(|record| record.as_ref().timestamp()))?;
    let mut result = match write {
        Write::Delete => None,
        Write::Put(record) | Write::Restore(record) => Some(record.clone()),
        Write::Merge(patch) => Some(merge(entity, patch)?),
    };
    if let Some(record) = result.as_mut().filter(|_| !matches!(write, Write::Restore(_))) {
        let at = Timestamp::from_ticks(tick.unsigned_abs());
        record.stamp(at.unwrap_or(Timestamp::MAX));
    }
    for kept in kept.iter().filter(|kept| kept.keys.unique) {
        let place = (located.partition.home, &located.key.in_entry());
        let changed = [entity.current.as_ref(), result.as_ref()];
        claims.note(index, kept, place, &entity.key, changed)?;
    }
    entity.current = result;
    entity.written = true;
    Ok(())
}

fn merge(entity: &Entity, patch: &Record) -> Result<Record, Fault> {
    let merged = match &entity.current {
        Some(base) => Record::merge(base.as_ref(), patch.as_ref())?,
        None => patch.clone(),
    };
    let (partition, row) = (entity.key.partition.as_str(), entity.key.row.as_str());
    match merged.as_ref().check_limits(partition, row)? {
        Some(LimitExceeded::Properties) => Err(Conflict::TooManyProperties.into()),
        Some(LimitExceeded::Size) => Err(Conflict::EntityTooLarge.into()),
        None => Ok(merged),
    }
}

/// What the commands make of the entries of indexes.
fn difference(entities: &Entities, tables: &Tables) -> Result<Difference, Fault> {
    let mut difference = Difference::default();
    for (partition, of_partition) in entities {
        let kept = tables.get(&partition.table).map_or(&[][..], |table| &table.indexes);
        if kept.is_empty() {
            continue;
        }
        for (key, entity) in of_partition.iter().filter(|(_, entity)| entity.written) {
            let in_entry = key.in_entry();
            let changed = [entity.stored.as_ref(), entity.current.as_ref()];
            for kept in kept {
                difference.note(kept, partition.home, &entity.key, &in_entry, changed)?;
            }
        }
    }
    Ok(difference)
}

/// Writes what the commands left of the entities, and of their entries in indexes.
async fn write_all(
    session: &Session,
    entities: &Entities,
    tick: i64,
    difference: &Difference,
) -> Result<(), Fault> {
    let of_entities = async {
        for (partition, entities) in entities {
            write(session, *partition, entities, tick).await?;
        }
        Ok(())
    };
    let of_entries = async {
        difference.remove(session).await?;
        difference.add(session).await
    };
    // Sent together, answered one after the other.
    let (of_entities, of_entries) = tokio::join!(biased; of_entities, of_entries);
    match (of_entities, of_entries.map_err(unmet)) {
        // It failed because the other one did.
        (Err(fault), Err(cause)) if Fault::is_consequence(&fault) => Err(cause),
        (Err(fault), _) | (Ok(()), Err(fault)) => Err(fault),
        (Ok(()), Ok(())) => Ok(()),
    }
}

/// Writes what the commands left of a partition's entities.
async fn write(
    session: &Session,
    partition: Partition,
    entities: &BTreeMap<DbKey, Entity>,
    tick: i64,
) -> Result<(), Fault> {
    let changed = || entities.iter().filter(|(_, entity)| entity.written);
    // What was absent and stays so is put there and taken away again: a transaction that writes it meets this one.
    let put: Vec<_> = changed()
        .filter(|(_, entity)| entity.current.is_some() || entity.stored.is_none())
        .map(|(key, entity)| (key, entity.current.as_ref()))
        .collect();
    let restored = |record: Option<&Record>| {
        record.is_some_and(|record| record.as_ref().timestamp().ticks() != tick.unsigned_abs())
    };
    let (saved, put): (Vec<_>, Vec<_>) = put.into_iter().partition(|(_, record)| restored(*record));
    for rows in put.chunks(ROWS_MAX) {
        // At this isolation, a row that the snapshot does not show is a conflict and not replaced.
        let rows = rows.iter().copied();
        let written =
            insert_rows(session, partition, rows, entity::OR_OVERWRITE, tick, false).await;
        written.map_err(unmet)?;
    }
    for rows in saved.chunks(ROWS_MAX) {
        let rows = rows.iter().filter_map(|(key, record)| Some((partition.home, *key, (*record)?)));
        let written =
            restore_rows(session, partition.table, rows, entity::OR_OVERWRITE, false).await;
        written.map_err(unmet)?;
    }
    let gone = || changed().filter(|(_, entity)| entity.current.is_none()).map(|(key, _)| key);
    let prefixes: Vec<&[u8]> = gone().map(|key| &*key.prefix).collect();
    if !prefixes.is_empty() {
        let hashes: Vec<&[u8]> = gone().map(|key| &*key.hash).collect();
        let Partition { home, table } = partition;
        session.execute(DELETE, &[&home, &table, &prefixes, &hashes]).await?;
    }
    Ok(())
}

fn unmet(fault: Fault) -> Fault {
    match fault {
        // Cannot be told from a race on a key that was absent.
        Fault::Duplicate => Fault::Unmet,
        other => other,
    }
}

/// Every command with where its entity lives.
pub(crate) fn locate(
    commands: Vec<Command>,
    mut home: impl FnMut(&Command) -> Partition,
) -> Vec<Located> {
    let located = |command: Command| {
        let partition = home(&command);
        let Command::Entity { key, .. } = &command;
        Located { partition, key: DbKey::new(key), command }
    };
    commands.into_iter().map(located).collect()
}
