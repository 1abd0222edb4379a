//! Declaring and dropping indexes: changes of the catalogue, and when nobody acts on what was before.
//!
//! A write of a table without indexes is one statement that looks itself whether that is so. Before the first index is
//! declared the table is marked, and whatever was under way then is waited for: from there on all writes of the table
//! are transactions that read the indexes at their snapshot. Of two of them that change one entity, one of which knows
//! of an index and the other does not, the later one is refused by the database and starts again; so an entity has the
//! entry that it should have, or none because nobody who knew of the index has written it, and those are the ones
//! that are entered later, again when no write is under way that does not know.
//!
//! A write holds a lock on the table of entities, taken before its snapshot: that is how it is seen to be under way. On
//! a cluster it is seen on the node that the server asked, so all nodes are looked at. There a change of the catalogue
//! is one on every node: where it is prepared and not committed, because the node was lost in between, writes do not
//! know of it yet, and that is waited for like a write.

use super::{BUILDING, DECLARED, NOT_UNIQUE, READY};
use crate::catalogue;
use crate::fault::Fault;
use crate::nodes::Nodes;
use crate::pool::{Pool, Session};
use rowhouse_query::index::IndexKeys;
use rowhouse_store::{Built, Conflict, Index, IndexId, StoreError, TableId};
use rowhouse_types::{IndexName, limits};
use std::collections::HashSet;
use std::time::{Duration, Instant};

/// How often is looked whether writes have ended, and for how long.
const LOOK_EVERY: Duration = Duration::from_millis(5);
const DRAIN_WITHIN: Duration = Duration::from_secs(20);

const TABLE: &str =
    "SELECT t.indexing FROM rowhouse.tables t WHERE t.tid = $1 AND t.dropped IS NULL";
const NAMES: &str = "SELECT i.name FROM rowhouse.indexes i WHERE i.tid = $1 AND i.dropped IS NULL";
/// The version of the catalogue, which the change that this is part of has raised.
const VERSION: &str = "SELECT version FROM rowhouse.catalogue";
const MARK: &str = "UPDATE rowhouse.tables SET indexing = $2 WHERE tid = $1";
const NEXT_ID: &str =
    "UPDATE rowhouse.catalogue SET last_index = last_index + 1 RETURNING last_index";
const INSERT: &str = "INSERT INTO rowhouse.indexes (iid, tid, name, properties, is_unique, state)
    VALUES ($1, $2, $3, $4, $5, $6)";
const DROP: &str = "UPDATE rowhouse.indexes SET dropped = now(), name = '!' || iid
    WHERE iid = $1 AND tid = $2 AND dropped IS NULL";
/// An index, or that what has expired is not there: single statements know of neither.
const KEPT: &str =
    "SELECT FROM rowhouse.tables t WHERE t.tid = $1 AND (t.ttl IS NOT NULL OR EXISTS (
    SELECT FROM rowhouse.indexes i WHERE i.tid = $1 AND i.dropped IS NULL AND i.state <> 3))";
const BUILT: &str = "SELECT i.state, i.examined, i.expected FROM rowhouse.indexes i
    WHERE i.iid = $1 AND i.tid = $2 AND i.dropped IS NULL";
const FINISH: &str = "UPDATE rowhouse.indexes SET state = $2
    WHERE iid = $1 AND dropped IS NULL AND state = $3 RETURNING tid";
/// Who is writing entities, by transaction.
const WRITERS: &str = "SELECT DISTINCT l.virtualtransaction FROM pg_catalog.pg_locks l
    WHERE l.locktype = 'relation' AND l.relation = 'rowhouse.entities'::regclass
    AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = current_database())
    AND l.mode = 'RowExclusiveLock' AND l.granted AND l.pid <> pg_backend_pid()";
/// What the cluster has prepared here and not committed.
const PREPARED: &str = "SELECT x.gid FROM pg_catalog.pg_prepared_xacts x
    WHERE x.database = current_database() AND starts_with(x.gid, 'citus_')";

/// Marks the table, as part of a change of the catalogue; how it is marked now.
pub(crate) async fn mark(
    session: &Session,
    table: TableId,
    name: &IndexName,
    keys: &IndexKeys,
    cluster: bool,
) -> Result<i64, Fault> {
    let id = catalogue::number(table).ok_or(Conflict::TableNotFound)?;
    let marked = admit(session, id, name).await?;
    let in_one_partition = keys.properties.iter().any(|property| &**property == "PartitionKey");
    if cluster && keys.unique && !in_one_partition {
        return Err(Conflict::UniqueAcrossNodes.into());
    }
    if marked == 0 { renumber(session, id).await } else { Ok(marked) }
}

/// Declares the index, as part of a change of the catalogue; none if the table is no longer marked as it was.
pub(crate) async fn declare(
    session: &Session,
    table: TableId,
    name: &IndexName,
    keys: &IndexKeys,
    marked: i64,
) -> Result<Option<Index>, Fault> {
    let table = catalogue::number(table).ok_or(Conflict::TableNotFound)?;
    if admit(session, table, name).await? != marked {
        return Ok(None);
    }
    let row = session.row(NEXT_ID, &[]).await?;
    let id: i64 = row.map_or(0, |row| row.get(0));
    let properties: Vec<&str> = keys.properties.iter().map(|property| &**property).collect();
    session
        .execute(INSERT, &[&id, &table, &name.as_str(), &properties, &keys.unique, &DECLARED])
        .await?;
    renumber(session, table).await?;
    Ok(Some(Index {
        id: IndexId(id.unsigned_abs()),
        name: name.clone(),
        keys: keys.clone(),
        state: super::state(DECLARED),
    }))
}

/// How the table is marked, if another index of that name may be there.
async fn admit(session: &Session, table: i64, name: &IndexName) -> Result<i64, Fault> {
    let found = session.row(TABLE, &[&table]).await?.ok_or(Conflict::TableNotFound)?;
    let names = session.rows(NAMES, &[&table]).await?;
    if names.iter().any(|row| row.get::<_, &str>(0) == name.as_str()) {
        return Err(Conflict::IndexExists.into());
    }
    if names.len() >= limits::INDEXES_MAX {
        return Err(Conflict::TooManyIndexes.into());
    }
    Ok(found.get(0))
}

/// A new number for what writes have to keep, never used before.
async fn renumber(session: &Session, table: i64) -> Result<i64, Fault> {
    let row = session.row(VERSION, &[]).await?;
    let version: i64 = row.map_or(0, |row| row.get(0));
    session.execute(MARK, &[&table, &version]).await?;
    Ok(version)
}

/// The same after an index is no longer kept: none if no other is.
async fn unkeep(session: &Session, table: i64) -> Result<(), Fault> {
    if session.row(KEPT, &[&table]).await?.is_some() {
        renumber(session, table).await?;
    } else {
        session.execute(MARK, &[&table, &0i64]).await?;
    }
    Ok(())
}

/// Another mark, or none if nothing has to be kept; as part of a change of the catalogue.
pub(crate) async fn unmark(session: &Session, table: TableId) -> Result<(), Fault> {
    unkeep(session, catalogue::number(table).ok_or(Conflict::TableNotFound)?).await
}

/// Drops an index, as part of a change of the catalogue.
pub(crate) async fn drop(session: &Session, table: TableId, index: IndexId) -> Result<(), Fault> {
    let (table, index) = numbers(table, index)?;
    if session.execute(DROP, &[&index, &table]).await? == 0 {
        return Err(Conflict::IndexNotFound.into());
    }
    unkeep(session, table).await
}

/// Everything was entered, as part of a change of the catalogue.
pub(crate) async fn finish(session: &Session, index: i64) -> Result<(), Fault> {
    session.row(FINISH, &[&index, &READY, &BUILDING]).await?;
    Ok(())
}

/// Two entities have the same values, as part of a change of the catalogue: it is kept no longer.
pub(crate) async fn give_up(session: &Session, index: i64) -> Result<(), Fault> {
    match session.row(FINISH, &[&index, &NOT_UNIQUE, &BUILDING]).await? {
        Some(row) => unkeep(session, row.get(0)).await,
        None => Ok(()),
    }
}

/// How far an index is built.
pub(crate) async fn built(
    session: &Session,
    table: TableId,
    index: IndexId,
) -> Result<Built, Fault> {
    let (table, index) = numbers(table, index)?;
    let row = session.row(BUILT, &[&index, &table]).await?.ok_or(Conflict::IndexNotFound)?;
    let (examined, expected): (i64, Option<i64>) = (row.get(1), row.get(2));
    Ok(Built {
        state: super::state(row.get(0)),
        examined: examined.unsigned_abs(),
        of: expected.map(i64::unsigned_abs),
    })
}

/// The ids as the database has them.
pub(crate) fn numbers(table: TableId, index: IndexId) -> Result<(i64, i64), Fault> {
    let numbers = catalogue::number(table).zip(i64::try_from(index.0).ok());
    Ok(numbers.ok_or(Conflict::IndexNotFound)?)
}

/// Waits until every write that was under way has ended. [`StoreError::Busy`] if one does not.
pub(crate) async fn drain(nodes: &Nodes) -> Result<(), Fault> {
    let cluster = nodes.is_cluster();
    if cluster {
        // Others may write through a node that has just come.
        nodes.read().await?;
    }
    for pool in nodes.pools() {
        drain_one(&pool, cluster).await?;
    }
    Ok(())
}

async fn drain_one(pool: &Pool, cluster: bool) -> Result<(), Fault> {
    let session = pool.session().await?;
    let writers = async || -> Result<HashSet<String>, Fault> {
        let mut rows = session.rows(WRITERS, &[]).await?;
        if cluster {
            rows.extend(session.rows(PREPARED, &[]).await?);
        }
        Ok(rows.iter().map(|row| row.get(0)).collect())
    };
    let began = Instant::now();
    let mut left = writers().await?;
    while !left.is_empty() {
        if began.elapsed() > DRAIN_WITHIN {
            tracing::warn!("a write on the database has been open for long: an index waits for it");
            return Err(StoreError::Busy.into());
        }
        tokio::time::sleep(LOOK_EVERY).await;
        let now = writers().await?;
        left.retain(|writer| now.contains(writer));
    }
    Ok(())
}
