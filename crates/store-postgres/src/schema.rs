//! The schema: numbered migrations, run by one server at a time.

use crate::fault::Fault;
use crate::options::OpenError;
use crate::pool::Session;

/// What turns schema n into n + 1, at index n. What was released never changes.
const MIGRATIONS: [&str; 8] = [
    include_str!("../migrations/0001.sql"),
    include_str!("../migrations/0002.sql"),
    include_str!("../migrations/0003.sql"),
    include_str!("../migrations/0004.sql"),
    include_str!("../migrations/0005.sql"),
    include_str!("../migrations/0006.sql"),
    include_str!("../migrations/0007.sql"),
    include_str!("../migrations/0008.sql"),
];
/// What spreads the entities over the nodes of a Citus cluster and puts the catalogue onto each of them.
const DISTRIBUTE: &str = include_str!("../migrations/citus.sql");
/// The same for secondary indexes.
const DISTRIBUTE_INDEXES: &str = include_str!("../migrations/citus_indexes.sql");
/// The same for queues.
const DISTRIBUTE_QUEUES: &str = include_str!("../migrations/citus_queues.sql");
/// Statements that change tables of the cluster follow each other, as some of them must in one transaction.
const ONE_BY_ONE: &str = "SET LOCAL citus.multi_shard_modify_mode = 'sequential'";
/// Held while the schema changes: "rowhouse" in ASCII, as a number.
const LOCK: i64 = 0x726F_7768_6F75_7365;

/// Brings the schema up to date; refuses one that is newer. Whether the entities are spread over nodes.
pub(crate) async fn migrate(session: &Session) -> Result<bool, OpenError> {
    let known = i32::try_from(MIGRATIONS.len()).expect("there are few");
    let found = version(session).await.map_err(Fault::of_opening)?;
    let spread = found > 0 && is_distributed(session).await.map_err(Fault::of_opening)?;
    let cluster = has_citus(session).await.map_err(Fault::of_opening)?;
    if found == known && spread == cluster {
        return Ok(spread);
    }
    let applied = apply(session, known, cluster).await;
    if applied.is_err() {
        // Whatever was begun is undone; a connection that is gone has undone it already.
        let _ = session.run("ROLLBACK").await;
    }
    applied.map(|()| cluster)
}

async fn apply(session: &Session, known: i32, cluster: bool) -> Result<(), OpenError> {
    session
        .run(&format!("BEGIN; SELECT pg_advisory_xact_lock({LOCK});"))
        .await
        .map_err(Fault::of_opening)?;
    // Another server may have been faster.
    let found = version(session).await.map_err(Fault::of_opening)?;
    if found > known {
        return Err(OpenError::Newer { found, known });
    }
    if found == 0 {
        let first = "CREATE SCHEMA IF NOT EXISTS rowhouse; \
                     CREATE TABLE rowhouse.schema_version (version integer NOT NULL); \
                     INSERT INTO rowhouse.schema_version VALUES (0);";
        session.run(first).await.map_err(Fault::of_opening)?;
    }
    if cluster && found > 0 {
        session.run(ONE_BY_ONE).await.map_err(Fault::of_opening)?;
    }
    let done = usize::try_from(found).unwrap_or(0);
    for (at, sql) in MIGRATIONS.iter().enumerate().skip(done) {
        tracing::info!(version = at + 1, "bringing the schema of the database up to date");
        session.run(sql).await.map_err(Fault::of_opening)?;
    }
    if cluster && !is_distributed(session).await.map_err(Fault::of_opening)? {
        tracing::info!("spreading the entities over the nodes of the cluster");
        session.run(DISTRIBUTE).await.map_err(Fault::of_opening)?;
    }
    if cluster && !is_spread(session, "index_entries").await.map_err(Fault::of_opening)? {
        session.run(DISTRIBUTE_INDEXES).await.map_err(Fault::of_opening)?;
    }
    if cluster && !is_spread(session, "messages").await.map_err(Fault::of_opening)? {
        session.run(DISTRIBUTE_QUEUES).await.map_err(Fault::of_opening)?;
    }
    let finish = format!("UPDATE rowhouse.schema_version SET version = {known}; COMMIT;");
    session.run(&finish).await.map_err(Fault::of_opening)
}

/// 0 if there is no schema yet.
async fn version(session: &Session) -> Result<i32, Fault> {
    // As the statement's own snapshot has it: a name that was looked up before the lock may be remembered.
    let there = "SELECT FROM pg_catalog.pg_tables
        WHERE schemaname = 'rowhouse' AND tablename = 'schema_version'";
    if session.client().query_opt(there, &[]).await?.is_none() {
        return Ok(0);
    }
    let row = session.client().query_one("SELECT version FROM rowhouse.schema_version", &[]);
    Ok(row.await?.get(0))
}

/// Whether the database is part of a Citus cluster.
async fn has_citus(session: &Session) -> Result<bool, Fault> {
    let sql = "SELECT FROM pg_catalog.pg_extension WHERE extname = 'citus'";
    Ok(session.client().query_opt(sql, &[]).await?.is_some())
}

/// Whether the entities are spread over nodes.
pub(crate) async fn is_distributed(session: &Session) -> Result<bool, Fault> {
    is_spread(session, "entities").await
}

/// Whether that table is.
async fn is_spread(session: &Session, table: &str) -> Result<bool, Fault> {
    if !has_citus(session).await? {
        return Ok(false);
    }
    let sql = "SELECT FROM pg_catalog.pg_dist_partition p
        JOIN pg_catalog.pg_class c ON c.oid = p.logicalrelid
        JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = 'rowhouse' AND c.relname = $1::text";
    Ok(session.client().query_opt(sql, &[&table]).await?.is_some())
}
