//! The schema: numbered migrations, run by one server at a time.

use crate::fault::Fault;
use crate::options::OpenError;
use crate::pool::{Session, error_chain};

/// What turns schema n into n + 1, at index n. What was released never changes.
const MIGRATIONS: [&str; 1] = [include_str!("../migrations/0001.sql")];
/// Held while the schema changes: "rowhouse" in ASCII, as a number.
const LOCK: i64 = 0x726F_7768_6F75_7365;

/// Brings the schema up to date; refuses one that is newer.
pub(crate) async fn migrate(session: &Session) -> Result<(), OpenError> {
    let known = i32::try_from(MIGRATIONS.len()).expect("there are few");
    let found = version(session).await.map_err(unreachable)?;
    if found == known {
        return Ok(());
    }
    let applied = apply(session, known).await;
    if applied.is_err() {
        // Whatever was begun is undone; a connection that is gone has undone it already.
        let _ = session.run("ROLLBACK").await;
    }
    applied
}

async fn apply(session: &Session, known: i32) -> Result<(), OpenError> {
    session
        .run(&format!("BEGIN; SELECT pg_advisory_xact_lock({LOCK});"))
        .await
        .map_err(unreachable)?;
    // Another server may have been faster.
    let found = version(session).await.map_err(unreachable)?;
    if found > known {
        return Err(OpenError::Newer { found, known });
    }
    if found == 0 {
        let first = "CREATE SCHEMA IF NOT EXISTS rowhouse; \
                     CREATE TABLE rowhouse.schema_version (version integer NOT NULL); \
                     INSERT INTO rowhouse.schema_version VALUES (0);";
        session.run(first).await.map_err(unreachable)?;
    }
    let done = usize::try_from(found).unwrap_or(0);
    for (at, sql) in MIGRATIONS.iter().enumerate().skip(done) {
        tracing::info!(version = at + 1, "bringing the schema of the database up to date");
        session.run(sql).await.map_err(unreachable)?;
    }
    let finish = format!("UPDATE rowhouse.schema_version SET version = {known}; COMMIT;");
    session.run(&finish).await.map_err(unreachable)
}

/// 0 if there is no schema yet.
async fn version(session: &Session) -> Result<i32, Fault> {
    // Asked of the catalogue itself: what a session remembers of names may be older than a lock it has waited for.
    let there = "SELECT EXISTS (SELECT FROM pg_catalog.pg_tables
        WHERE schemaname = 'rowhouse' AND tablename = 'schema_version')";
    let row = session.client().query_one(there, &[]).await?;
    if !row.get::<_, bool>(0) {
        return Ok(0);
    }
    let row = session.client().query_one("SELECT version FROM rowhouse.schema_version", &[]);
    Ok(row.await?.get(0))
}

fn unreachable(fault: Fault) -> OpenError {
    OpenError::Unreachable(match fault {
        Fault::Raced(error) | Fault::Refused(error) | Fault::Lost(error) => error_chain(&error),
        other => other.of_a_read().to_string(),
    })
}
