//! Writes a database of an older format anew, so that its pages have checksums.
//!
//! SQLite cannot make room for them in pages that are there. So everything is copied into a new file,
//! which takes the place of the old one when it is whole and on the disk: whatever happens before
//! that, the old database is as it was.

use crate::directory::{Directory, OpenError, check_version, explain};
use crate::pages;
use crate::schema;
use crate::store::Durability;
use crate::tuning::Tuning;
use rowhouse_types::limits::REWRITE_BYTES_MAX;
use std::fs::File;
use std::path::Path;

/// Whether it is done within the time that a start may take.
pub(crate) fn is_quick(database: &Path) -> bool {
    std::fs::metadata(database).is_ok_and(|metadata| metadata.len() <= REWRITE_BYTES_MAX)
}

/// Rewrites a database of the format before checksums. If there is no room for a second one, or a page of it cannot be read,
/// it stays as it is: what is intact is served as before.
pub(crate) fn try_rewrite(directory: &Directory, durability: Durability) -> Result<(), OpenError> {
    match rewrite(directory, durability) {
        Err(error @ (OpenError::Unwritable { .. } | OpenError::Corrupt { .. })) => {
            tracing::error!(%error, "the database stays without checksums");
            directory.discard_unfinished()
        }
        other => other,
    }
}

/// Gives the pages of a data directory checksums, however long that takes. Needs room for a second database beside
/// the first. False if they have some.
pub fn add_checksums(directory: &Path) -> Result<bool, OpenError> {
    let directory = Directory::open(directory, Durability::Full)?;
    let path = directory.database();
    let tuning = Tuning::default();
    let sqlite = |error: rusqlite::Error| explain(&path, error);
    let conn = schema::writer(&path, Durability::Full, 0, &tuning).map_err(sqlite)?;
    let version = schema::version(&conn).map_err(sqlite)?;
    check_version(&path, version)?;
    if schema::CHECKSUMS_SINCE <= version {
        return Ok(false);
    }
    schema::migrate(&conn, version).map_err(sqlite)?;
    drop(conn);
    rewrite(&directory, Durability::Full).map(|()| true)
}

fn rewrite(directory: &Directory, durability: Durability) -> Result<(), OpenError> {
    let (old, new) = (directory.database(), directory.begin_database()?);
    let text = new.to_str().ok_or_else(|| OpenError::Unwritable {
        path: new.clone(),
        source: std::io::Error::other("the path is not UTF-8"),
    })?;
    let from_old = |error: rusqlite::Error| explain(&old, error);
    tracing::info!("the database is rewritten with checksums");
    {
        let conn = schema::writer(&old, durability, 0, &Tuning::default()).map_err(from_old)?;
        // The file alone must be all of it when the new one takes its place.
        conn.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").map_err(from_old)?;
        pages::reserve(&conn).map_err(from_old)?;
        conn.execute("VACUUM INTO ?1", [text]).map_err(from_old)?;
    }
    schema::seal(&new, durability).map_err(|error| explain(&new, error))?;
    if durability != Durability::Ephemeral {
        let synced = File::open(&new).and_then(|file| file.sync_all());
        synced.map_err(|source| OpenError::Unwritable { path: new.clone(), source })?;
    }
    directory.finish_database(&new, durability)
}
