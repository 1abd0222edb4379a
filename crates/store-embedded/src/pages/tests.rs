//! The layer below SQLite, with SQLite above it.

use super::*;
use crate::Durability;
use crate::schema;
use crate::tuning::Tuning;
use rusqlite::{Connection, params};
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

struct Database {
    _directory: tempfile::TempDir,
    path: PathBuf,
}

/// A database with some entities, all of it copied from the log.
fn database() -> Database {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("test.db");
    std::fs::File::create(&path).unwrap();
    schema::create(&path, Durability::Ephemeral).unwrap();
    let writer = schema::writer(&path, Durability::Ephemeral, 0, &Tuning::default()).unwrap();
    insert(&writer, 0..500);
    writer.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    Database { _directory: directory, path }
}

fn insert(writer: &Connection, rows: std::ops::Range<i64>) {
    writer.execute_batch("BEGIN IMMEDIATE").unwrap();
    for row in rows {
        let key = format!("{row:06}");
        writer
            .execute("INSERT INTO entities VALUES (1, 'p', ?1, randomblob(300))", params![key])
            .unwrap();
    }
    writer.execute_batch("COMMIT").unwrap();
}

fn flip(path: &Path, byte: u64, bit: u32) {
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut one = [0];
    file.read_exact_at(&mut one, byte).unwrap();
    one[0] ^= 1 << bit;
    file.write_all_at(&one, byte).unwrap();
}

fn pages_of(path: &Path) -> u64 {
    std::fs::metadata(path).unwrap().len() / PAGE_BYTES as u64
}

fn count(conn: &Connection) -> Result<i64, rusqlite::Error> {
    conn.query_row("SELECT count(*), sum(length(record)) FROM entities", [], |row| row.get(0))
}

#[test]
fn every_page_has_its_checksum() {
    let database = database();
    let bytes = std::fs::read(&database.path).unwrap();
    assert!(is_reserved(&bytes) && bytes.len() > 40 * PAGE_BYTES);
    for (number, page) in (1..).zip(bytes.chunks(PAGE_BYTES)) {
        assert!(is_intact(number, page), "page {number}");
        assert!(page.iter().any(|byte| *byte != 0), "page {number}");
    }
}

#[test]
fn a_damaged_page_is_refused_however_it_is_read() {
    let database = database();
    for mapped in [true, false] {
        for page in 0..pages_of(&database.path) {
            // A connection that is open, and has read nothing yet.
            let open = schema::reader(&database.path, 0, mapped).unwrap();
            let byte = page * PAGE_BYTES as u64 + 150 + page * 61 % 3900;
            flip(&database.path, byte, 3);
            let read = count(&open);
            let anew = schema::reader(&database.path, 0, mapped).and_then(|conn| count(&conn));
            flip(&database.path, byte, 3);
            for read in [read, anew] {
                match read {
                    // It is not of the entities.
                    Ok(count) => assert_eq!(count, 500),
                    Err(error) => {
                        let code = error.sqlite_error_code();
                        assert_eq!(code, Some(rusqlite::ErrorCode::DatabaseCorrupt), "{error}");
                        let number = u32::try_from(page + 1).unwrap();
                        assert_eq!(LAST.get(), Some(Damage::Page(number)));
                    }
                }
            }
        }
    }
    let damaged = (0..pages_of(&database.path)).filter(|page| {
        flip(&database.path, page * PAGE_BYTES as u64 + 2000, 0);
        let failed = schema::reader(&database.path, 0, true).and_then(|c| count(&c)).is_err();
        flip(&database.path, page * PAGE_BYTES as u64 + 2000, 0);
        failed
    });
    assert!(damaged.count() > 30, "the pages of the entities");
}

#[test]
fn a_damaged_page_in_the_log_is_refused() {
    let database = database();
    let writer =
        schema::writer(&database.path, Durability::Ephemeral, 0, &Tuning::default()).unwrap();
    insert(&writer, 500..800);
    let log = database.path.with_file_name("test.db-wal");
    let frames = (std::fs::metadata(&log).unwrap().len() - 32) / 4120;
    assert!(frames > 20, "{frames} frames");
    let mut refused = 0;
    for frame in 0..frames {
        let byte = 32 + frame * 4120 + 24 + 1000;
        flip(&log, byte, 5);
        let read = schema::reader(&database.path, 0, true).and_then(|conn| count(&conn));
        flip(&log, byte, 5);
        match read {
            Ok(count) => assert_eq!(count, 800),
            Err(error) => {
                assert_eq!(
                    error.sqlite_error_code(),
                    Some(rusqlite::ErrorCode::DatabaseCorrupt),
                    "{error}"
                );
                assert_eq!(take_last(), Some(Damage::Frame(u32::try_from(frame + 1).unwrap())));
                refused += 1;
            }
        }
    }
    assert!(refused > 20, "{refused} of {frames}");
}

#[test]
fn a_database_without_room_for_checksums_is_read_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("old.db");
    Connection::open(&path)
        .unwrap()
        .execute_batch("PRAGMA page_size = 4096; CREATE TABLE t (a); INSERT INTO t VALUES (7)")
        .unwrap();
    let before = std::fs::read(&path).unwrap();
    let conn = schema::reader(&path, 0, true).unwrap();
    let seven: i64 = conn.query_row("SELECT a FROM t", [], |row| row.get(0)).unwrap();
    assert_eq!(seven, 7);
    assert_eq!(std::fs::read(&path).unwrap(), before);
    drop(conn);
    let conn = schema::writer(&path, Durability::Ephemeral, 0, &Tuning::default()).unwrap();
    conn.execute("INSERT INTO t SELECT randomblob(100) FROM t", []).unwrap();
    let all: String = conn.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(all, "ok");
}
