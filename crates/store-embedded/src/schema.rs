//! The database: its tables, its format version, and how connections to it are set up.
//!
//! `docs/formats/embedded.md` describes the same for people. A later format adds an entry to
//! [`MIGRATIONS`]; what was released never changes.

use crate::catalogue::{LoadError, instant, number};
use crate::pages;
use crate::store::Durability;
use crate::tuning::Tuning;
use rowhouse_types::Timestamp;
use rusqlite::config::DbConfig;
use rusqlite::wal::CheckpointMode;
use rusqlite::{Connection, OpenFlags, params};
use std::path::Path;
use std::time::Duration;

/// Says that a SQLite file is ours: "Rowh".
pub(crate) const APPLICATION_ID: u32 = 0x526F_7768;
/// The newest format, which new databases have.
pub(crate) const VERSION: u32 = 4;
/// The first format whose pages have checksums. It has the tables of the one before; to become one,
/// a database is written anew ([`crate::rewrite`]).
pub(crate) const CHECKSUMS_SINCE: u32 = 4;
/// What turns format n + 1 into n + 2, at index n.
const MIGRATIONS: [&str; 2] = [
    "
ALTER TABLE meta ADD COLUMN retention INTEGER;
ALTER TABLE meta ADD COLUMN changes_after INTEGER NOT NULL DEFAULT 0;
CREATE TABLE changes (
    sequence INTEGER PRIMARY KEY,
    tick INTEGER NOT NULL,
    batch BLOB NOT NULL
) STRICT;
",
    "
ALTER TABLE meta ADD COLUMN last_index INTEGER NOT NULL DEFAULT 0;
CREATE TABLE indexes (
    id INTEGER PRIMARY KEY,
    table_id INTEGER NOT NULL,
    name TEXT NOT NULL,
    is_unique INTEGER NOT NULL,
    state INTEGER NOT NULL,
    entered_pk TEXT,
    entered_rk TEXT,
    examined INTEGER NOT NULL,
    expected INTEGER,
    UNIQUE (table_id, name)
) STRICT;
CREATE TABLE index_properties (
    index_id INTEGER NOT NULL,
    position INTEGER NOT NULL,
    name TEXT NOT NULL,
    PRIMARY KEY (index_id, position)
) STRICT, WITHOUT ROWID;
CREATE TABLE entries (
    index_id INTEGER NOT NULL,
    entry BLOB NOT NULL,
    pk TEXT NOT NULL,
    rk TEXT NOT NULL,
    PRIMARY KEY (index_id, entry, pk, rk)
) STRICT, WITHOUT ROWID;
CREATE TABLE dropped_indexes (
    index_id INTEGER PRIMARY KEY
) STRICT;
ALTER TABLE tables ADD COLUMN ttl INTEGER;
ALTER TABLE tables ADD COLUMN ttl_property TEXT;
ALTER TABLE meta ADD COLUMN last_queue INTEGER NOT NULL DEFAULT 0;
ALTER TABLE meta ADD COLUMN last_pile INTEGER NOT NULL DEFAULT 0;
ALTER TABLE meta ADD COLUMN last_place INTEGER NOT NULL DEFAULT 0;
CREATE TABLE queues (
    id INTEGER PRIMARY KEY,
    account INTEGER NOT NULL,
    name TEXT NOT NULL,
    created INTEGER NOT NULL,
    pile INTEGER NOT NULL UNIQUE,
    messages INTEGER NOT NULL,
    UNIQUE (account, name)
) STRICT;
CREATE TABLE queue_metadata (
    queue_id INTEGER NOT NULL,
    position INTEGER NOT NULL,
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (queue_id, position)
) STRICT, WITHOUT ROWID;
CREATE TABLE queue_policies (
    queue_id INTEGER NOT NULL,
    position INTEGER NOT NULL,
    id TEXT NOT NULL,
    start INTEGER,
    expiry INTEGER,
    permission TEXT,
    PRIMARY KEY (queue_id, position)
) STRICT, WITHOUT ROWID;
CREATE TABLE messages (
    number INTEGER PRIMARY KEY,
    pile INTEGER NOT NULL,
    id BLOB NOT NULL,
    inserted INTEGER NOT NULL,
    expires INTEGER,
    visible INTEGER NOT NULL,
    place INTEGER NOT NULL,
    taken INTEGER NOT NULL,
    receipt INTEGER NOT NULL,
    text ANY NOT NULL
) STRICT;
CREATE INDEX messages_by_place ON messages (pile, visible, place, expires);
CREATE UNIQUE INDEX messages_by_receipt ON messages (pile, receipt, id);
CREATE INDEX messages_by_expiry ON messages (expires) WHERE expires IS NOT NULL;
CREATE TABLE dropped_piles (
    pile INTEGER PRIMARY KEY
) STRICT;
",
];
/// The first format that has indexes, and tables whose entities expire.
pub(crate) const INDEXES_SINCE: u32 = 3;
/// The first format that has queues.
pub(crate) const QUEUES_SINCE: u32 = 3;

/// Bytes of the database that readers may map into memory: address space, not memory. Pages beyond are read
/// through the cache.
const MAP_BYTES: i64 = 256 * 1024 * 1024 * 1024;
/// Statements that a connection keeps prepared; more than there are.
const STATEMENTS: usize = 128;
/// How long a reader waits for a lock within SQLite, which only a restart of the log can hold for long.
const PATIENCE: Duration = Duration::from_mins(1);

const SCHEMA: &str = "
CREATE TABLE meta (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    tick INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    last_table INTEGER NOT NULL,
    last_account INTEGER NOT NULL
) STRICT;
INSERT INTO meta VALUES (1, 0, 0, 0, 0);
CREATE TABLE accounts (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    created INTEGER NOT NULL,
    key1 BLOB NOT NULL,
    key2 BLOB NOT NULL,
    version INTEGER NOT NULL
) STRICT;
CREATE TABLE account_settings (
    account INTEGER NOT NULL,
    name TEXT NOT NULL,
    value BLOB NOT NULL,
    PRIMARY KEY (account, name)
) STRICT, WITHOUT ROWID;
CREATE TABLE tables (
    id INTEGER PRIMARY KEY,
    account INTEGER NOT NULL,
    folded TEXT NOT NULL,
    name TEXT NOT NULL,
    created INTEGER NOT NULL,
    placement_group TEXT,
    route_chars INTEGER,
    UNIQUE (account, folded)
) STRICT;
CREATE TABLE policies (
    table_id INTEGER NOT NULL,
    position INTEGER NOT NULL,
    id TEXT NOT NULL,
    start INTEGER,
    expiry INTEGER,
    permission TEXT,
    PRIMARY KEY (table_id, position)
) STRICT, WITHOUT ROWID;
CREATE TABLE dropped (
    table_id INTEGER PRIMARY KEY
) STRICT;
CREATE TABLE entities (
    table_id INTEGER NOT NULL,
    pk TEXT NOT NULL,
    rk TEXT NOT NULL,
    record ANY NOT NULL,
    PRIMARY KEY (table_id, pk, rk)
) STRICT, WITHOUT ROWID;
CREATE TABLE large (
    id INTEGER PRIMARY KEY,
    record BLOB NOT NULL
) STRICT;
";

/// What must never go back: one row, written with the commits that it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Marks {
    /// The latest Timestamp that was given out.
    pub(crate) tick: Timestamp,
    /// The number of the latest batch.
    pub(crate) sequence: u64,
    /// The latest id of a table.
    pub(crate) last_table: u64,
    /// The latest id of an account.
    pub(crate) last_account: u32,
    /// How long changes are kept, if they are.
    pub(crate) retention: Option<Duration>,
    /// The changes of all batches after this one are there, if they are kept.
    pub(crate) changes_after: u64,
    /// The latest id of an index.
    pub(crate) last_index: u64,
    /// The latest id of a queue.
    pub(crate) last_queue: u64,
    /// The latest id of a pile of messages.
    pub(crate) last_pile: u64,
    /// The latest place among messages.
    pub(crate) last_place: u64,
}

impl Marks {
    pub(crate) fn load(conn: &Connection) -> Result<Self, LoadError> {
        let version = version(conn)?;
        let since_2 = if version < 2 { "NULL, 0" } else { "retention, changes_after" };
        let since_3 = if version < INDEXES_SINCE {
            "0, 0, 0, 0"
        } else {
            "last_index, last_queue, last_pile, last_place"
        };
        let mut statement = conn.prepare_cached(&format!(
            "SELECT tick, sequence, last_table, last_account, {since_2}, {since_3}
             FROM meta WHERE id = 1"
        ))?;
        let mut rows = statement.query([])?;
        match rows.next()? {
            Some(row) => Ok(Self {
                tick: instant(row, 0)?,
                sequence: number(row, 1)?,
                last_table: number(row, 2)?,
                last_account: number(row, 3)?,
                retention: row
                    .get::<_, Option<i64>>(4)?
                    .map(|millis| Duration::from_millis(millis.cast_unsigned())),
                changes_after: number(row, 5)?,
                last_index: number(row, 6)?,
                last_queue: number(row, 7)?,
                last_pile: number(row, 8)?,
                last_place: number(row, 9)?,
            }),
            None => Err(LoadError::Damaged("the marks are missing".into())),
        }
    }

    pub(crate) fn save(&self, conn: &Connection) -> Result<(), rusqlite::Error> {
        conn.prepare_cached(
            "UPDATE meta SET tick = ?1, sequence = ?2, last_table = ?3, last_account = ?4,
                 retention = ?5, changes_after = ?6, last_index = ?7, last_queue = ?8, last_pile = ?9,
                 last_place = ?10
             WHERE id = 1",
        )?
        .execute(params![
            self.tick.ticks().cast_signed(),
            self.sequence.cast_signed(),
            self.last_table.cast_signed(),
            self.last_account,
            self.retention.map(|kept| i64::try_from(kept.as_millis()).unwrap_or(i64::MAX)),
            self.changes_after.cast_signed(),
            self.last_index.cast_signed(),
            self.last_queue.cast_signed(),
            self.last_pile.cast_signed(),
            self.last_place.cast_signed(),
        ])?;
        Ok(())
    }
}

/// Makes a new database in an empty file.
pub(crate) fn create(path: &Path, durability: Durability) -> Result<(), rusqlite::Error> {
    let conn = open(path, WRITE)?;
    pages::reserve(&conn)?;
    synchronise(&conn, durability)?;
    // These three must come before the first table.
    conn.execute_batch(
        "PRAGMA page_size = 4096; PRAGMA encoding = 'UTF-8'; PRAGMA auto_vacuum = INCREMENTAL;",
    )?;
    let later = MIGRATIONS.concat();
    conn.execute_batch(&format!(
        "BEGIN; PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {VERSION};
         {SCHEMA} {later} COMMIT;"
    ))?;
    use_log(&conn)?;
    conn.close().map_err(|(_, error)| error)
}

/// Completes a copy of an older database whose pages have checksums.
pub(crate) fn seal(path: &Path, durability: Durability) -> Result<(), rusqlite::Error> {
    let conn = open(path, WRITE)?;
    synchronise(&conn, durability)?;
    conn.pragma_update(None, "user_version", VERSION)?;
    use_log(&conn)?;
    conn.close().map_err(|(_, error)| error)
}

/// The format as the database says, its log included.
pub(crate) fn version(conn: &Connection) -> Result<u32, rusqlite::Error> {
    conn.pragma_query_value(None, "user_version", |row| row.get(0))
}

/// Gives a database of an older format the tables of the newest one, a transaction per step. Afterwards the header says so,
/// whatever becomes of the log: an older release must recognise what it does not know.
pub(crate) fn migrate(conn: &Connection, from: u32) -> Result<(), rusqlite::Error> {
    if CHECKSUMS_SINCE <= from + 1 {
        return Ok(());
    }
    for (version, migration) in (2_u32..).zip(MIGRATIONS) {
        if from < version {
            conn.execute_batch(&format!(
                "BEGIN IMMEDIATE; {migration}; PRAGMA user_version = {version}; COMMIT;"
            ))?;
        }
    }
    conn.wal_checkpoint_v2(Some(rusqlite::MAIN_DB), CheckpointMode::TRUNCATE).map(drop)
}

const WRITE: OpenFlags = OpenFlags::SQLITE_OPEN_READ_WRITE.union(OpenFlags::SQLITE_OPEN_NO_MUTEX);
const READ: OpenFlags = OpenFlags::SQLITE_OPEN_READ_ONLY.union(OpenFlags::SQLITE_OPEN_NO_MUTEX);

/// Every connection goes through the layer that writes and verifies checksums.
pub(crate) fn open(path: &Path, flags: OpenFlags) -> Result<Connection, rusqlite::Error> {
    Connection::open_with_flags_and_vfs(path, flags, pages::vfs()?)
}

/// A connection for the committer or the checkpoints.
pub(crate) fn writer(
    path: &Path,
    durability: Durability,
    cache_bytes: u64,
    tuning: &Tuning,
) -> Result<Connection, rusqlite::Error> {
    let mut conn = open(path, WRITE)?;
    // Only a restart of the log holds the lock, for a moment: wait for it in small steps.
    let step = Duration::from_millis(1);
    let most =
        i32::try_from(tuning.lock_patience.as_millis() / step.as_millis()).unwrap_or(i32::MAX);
    conn.busy_handler(Some(move |tries| {
        std::thread::sleep(step);
        tries < most
    }))?;
    synchronise(&conn, durability)?;
    use_log(&conn)?;
    conn.pragma_update(None, "wal_autocheckpoint", 0)?;
    conn.pragma_update(None, "journal_size_limit", tuning.wal_file_bytes)?;
    finish(&conn, cache_bytes)?;
    Ok(conn)
}

/// A connection that cannot write.
pub(crate) fn reader(
    path: &Path,
    cache_bytes: u64,
    mapped: bool,
) -> Result<Connection, rusqlite::Error> {
    let conn = open(path, READ)?;
    conn.busy_timeout(PATIENCE)?;
    map(&conn, mapped)?;
    finish(&conn, cache_bytes)?;
    Ok(conn)
}

/// Whether a connection reads the database through a mapping of its file. Has no effect while a page of it is in use.
pub(crate) fn map(conn: &Connection, mapped: bool) -> Result<(), rusqlite::Error> {
    conn.pragma_update(None, "mmap_size", if mapped { MAP_BYTES } else { 0 })
}

fn finish(conn: &Connection, cache_bytes: u64) -> Result<(), rusqlite::Error> {
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    conn.set_prepared_statement_cache_capacity(STATEMENTS);
    conn.pragma_update(None, "temp_store", "MEMORY")?;
    let kibibytes = i64::try_from(cache_bytes / 1024).unwrap_or(i64::MAX).max(256);
    conn.pragma_update(None, "cache_size", -kibibytes)
}

/// A commit returns when it would survive a power cut, or at once. Between the two, the log is on the disk before any of
/// it is copied, and the copy before the log starts again: what is there is always a beginning.
fn synchronise(conn: &Connection, durability: Durability) -> Result<(), rusqlite::Error> {
    let level = match durability {
        Durability::Full => "FULL",
        Durability::AtClose => "NORMAL",
        Durability::Ephemeral => return conn.pragma_update(None, "synchronous", "OFF"),
    };
    conn.pragma_update(None, "synchronous", level)?;
    // Where an ordinary fsync stops at the drive's cache.
    conn.pragma_update(None, "fullfsync", true)?;
    conn.pragma_update(None, "checkpoint_fullfsync", true)
}

fn use_log(conn: &Connection) -> Result<(), rusqlite::Error> {
    let mode: String =
        conn.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0))?;
    if mode == "wal" {
        return Ok(());
    }
    let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CANTOPEN);
    let message = "the file system cannot hold a write-ahead log".to_owned();
    Err(rusqlite::Error::SqliteFailure(code, Some(message)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::{lookup, walk};
    use crate::queue::{commands, read, sweep};
    use crate::scan::{BEFORE, FROM, LAST};

    /// Whoever reads must find the start in the key and take the rows as they come.
    #[test]
    fn reads_follow_the_primary_keys() {
        let conn = Connection::open_in_memory().unwrap();
        conn.execute_batch(SCHEMA).unwrap();
        conn.execute_batch(&MIGRATIONS.concat()).unwrap();
        for (sql, wanted) in [
            (FROM, "entities USING PRIMARY KEY (table_id=? AND (pk,rk)>(?,?))"),
            (BEFORE, "entities USING PRIMARY KEY (table_id=? AND (pk,rk)<(?,?))"),
            (LAST, "entities USING PRIMARY KEY (table_id=?)"),
            (lookup::FROM, "entries USING PRIMARY KEY (index_id=? AND entry=? AND (pk,rk)>(?,?))"),
            (
                lookup::BEFORE,
                "entries USING PRIMARY KEY (index_id=? AND entry=? AND (pk,rk)<(?,?))",
            ),
            (lookup::LAST, "entries USING PRIMARY KEY (index_id=? AND entry=?)"),
            (walk::FROM, "entries USING PRIMARY KEY (index_id=? AND (entry,pk,rk)>(?,?,?))"),
            (walk::BEFORE, "entries USING PRIMARY KEY (index_id=? AND (entry,pk,rk)<(?,?,?))"),
            (walk::LAST, "entries USING PRIMARY KEY (index_id=?)"),
            (
                commands::VISIBLE,
                "messages USING COVERING INDEX messages_by_place \
                 (pile=? AND (visible,place)>(?,?) AND visible<?)",
            ),
            (
                commands::HELD,
                "messages USING INDEX messages_by_receipt (pile=? AND receipt=? AND id=?)",
            ),
            (
                commands::HELD_NUMBER,
                "messages USING INDEX messages_by_receipt (pile=? AND receipt=? AND id=?)",
            ),
            (
                read::FROM,
                "messages USING INDEX messages_by_place (pile=? AND (visible,place)>(?,?))",
            ),
            (sweep::PILE, "messages USING INDEX messages_by_place (pile=?)"),
            (sweep::EXPIRED, "messages USING INDEX messages_by_expiry (expires<?)"),
        ] {
            let mut statement = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
            for index in 1..=statement.parameter_count() {
                statement.raw_bind_parameter(index, "x").unwrap();
            }
            let mut rows = statement.raw_query();
            let mut plan = Vec::new();
            while let Some(row) = rows.next().unwrap() {
                plan.push(row.get::<_, String>(3).unwrap());
            }
            assert_eq!(plan, [format!("SEARCH {wanted}")]);
        }
    }
}
