//! Point reads, on the thread of the caller.
//!
//! A cached read takes a few microseconds, less than handing it to another thread would; where the database does not fit into
//! memory, callers are threads that may wait. Nothing but point reads uses these connections, so no scan can be in the way.
//!
//! Beginning and ending a read transaction costs more than the read: system calls for SQLite's locks, and
//! a lock that all connections share. So a connection keeps its snapshot until it is too old. It is too
//! old as soon as any later batch has been acknowledged, or shown by any other connection: whoever has
//! seen a change, or been told of it, never sees the state before it again.
//!
//! A kept snapshot holds on to the write-ahead log. While the log is being copied none is kept.

use crate::cache::Cache;
use crate::committer::Fault;
use crate::entity;
use crate::schema;
use rowhouse_store::{StoreError, TableId};
use rowhouse_types::{EntityKey, Record};
use rusqlite::Connection;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// Read-only connections for whoever comes.
#[derive(Debug)]
pub(crate) struct Readers {
    slots: Box<[Mutex<Slot>]>,
    /// The latest batch that anybody has been told of or has seen.
    latest: AtomicU64,
    /// Whether snapshots may outlive the read that took them.
    keeping: AtomicBool,
    /// Whether connections are to read through a mapping.
    mapped: AtomicBool,
}

#[derive(Debug)]
struct Slot {
    /// None once the store is closed.
    conn: Option<Connection>,
    /// The last batch in the snapshot that is open.
    snapshot: Option<u64>,
    /// Whether the connection reads through a mapping.
    mapped: bool,
}

impl Readers {
    /// `latest` is the number of the last batch in the database, `mapped` how the connections read.
    pub(crate) fn new(connections: Vec<Connection>, latest: u64, mapped: bool) -> Self {
        let slot = |conn| Mutex::new(Slot { conn: Some(conn), snapshot: None, mapped });
        Self {
            slots: connections.into_iter().map(slot).collect(),
            latest: AtomicU64::new(latest),
            keeping: AtomicBool::new(true),
            mapped: AtomicBool::new(mapped),
        }
    }

    /// From their next snapshots on connections read through a mapping, or not.
    pub(crate) fn map(&self, mapped: bool) {
        self.mapped.store(mapped, Ordering::Relaxed);
    }

    /// From here on every read shows this batch.
    pub(crate) fn advance(&self, batch: u64) {
        self.latest.fetch_max(batch, Ordering::AcqRel);
    }

    /// Reads one record at its latest committed state, and offers it to those who ask next.
    pub(crate) fn get(
        &self,
        table: TableId,
        key: &EntityKey,
        cache: &Cache,
    ) -> Result<Option<Record>, StoreError> {
        let mut slot = self.free_slot();
        let found = self.renew(&mut slot).and_then(|conn| match conn {
            Some(conn) => entity::get(conn, table, key).map(Some),
            None => Ok(None),
        });
        if let (Ok(Some(Some(record))), Some(batch)) = (&found, slot.snapshot) {
            cache.offer(table, key, record, batch);
        }
        if found.is_err() || !self.keeping.load(Ordering::Acquire) {
            slot.release();
        }
        match found {
            Ok(Some(record)) => Ok(record),
            Ok(None) => Err(StoreError::unavailable("the store is closed")),
            Err(fault) => Err(fault.into_store_error()),
        }
    }

    /// Reads a record so that the system has it in memory. Whether there is one, and whether that went well, whoever
    /// needs it finds out.
    pub(crate) fn touch(&self, table: TableId, key: &EntityKey) {
        let mut slot = self.free_slot();
        let touched = self
            .renew(&mut slot)
            .and_then(|conn| conn.map(|conn| entity::get(conn, table, key)).transpose());
        if touched.is_err() || !self.keeping.load(Ordering::Acquire) {
            slot.release();
        }
    }

    /// Lets go of the log until the guard is dropped.
    pub(crate) fn let_go(&self) -> LetGo<'_> {
        self.keeping.store(false, Ordering::Release);
        // Whoever read with the old value held the lock of its slot meanwhile.
        for slot in &self.slots {
            lock(slot).release();
        }
        LetGo(self)
    }

    /// Waits for reads under way and closes every connection.
    pub(crate) fn close(&self) {
        for slot in &self.slots {
            lock(slot).conn.take();
        }
    }

    /// Makes sure that the slot's snapshot is recent enough. None if the store is closed.
    fn renew<'a>(&self, slot: &'a mut Slot) -> Result<Option<&'a Connection>, Fault> {
        // Asked after the lock was taken, so after the caller asked to read.
        let latest = self.latest.load(Ordering::Acquire);
        if slot.snapshot.is_none_or(|batch| batch < latest) {
            slot.release();
            let Some(conn) = &slot.conn else { return Ok(None) };
            let mapped = self.mapped.load(Ordering::Relaxed);
            if std::mem::replace(&mut slot.mapped, mapped) != mapped {
                schema::map(conn, mapped)?;
            }
            conn.prepare_cached("BEGIN DEFERRED")?.execute([])?;
            let batch = entity::last_batch(conn)?;
            slot.snapshot = Some(batch);
            // It may hold a batch that nobody has been told of yet. What is shown once stays shown.
            self.advance(batch);
        }
        Ok(slot.conn.as_ref())
    }

    /// The connection that this thread used last, or any that is free, or else the next to become so.
    fn free_slot(&self) -> MutexGuard<'_, Slot> {
        let home = home();
        let slot = |offset: usize| &self.slots[home.wrapping_add(offset) % self.slots.len()];
        for offset in 0..self.slots.len() {
            match slot(offset).try_lock() {
                Ok(guard) => return guard,
                // A read that panicked left its connection usable: its statements were reset.
                Err(TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => {}
            }
        }
        lock(slot(0))
    }
}

impl Slot {
    /// Ends the snapshot, if one is open.
    fn release(&mut self) {
        self.snapshot = None;
        if let Some(conn) = self.conn.as_ref().filter(|conn| !conn.is_autocommit()) {
            let ended = conn.prepare_cached("COMMIT").and_then(|mut commit| commit.execute([]));
            if let Err(error) = ended {
                tracing::warn!(%error, "ending a read transaction failed");
            }
        }
    }
}

/// While it lives no snapshot outlives its read.
#[derive(Debug)]
pub(crate) struct LetGo<'a>(&'a Readers);

impl Drop for LetGo<'_> {
    fn drop(&mut self) {
        self.0.keeping.store(true, Ordering::Release);
    }
}

/// A number of this thread, so that each finds the pages it read last in its own connection's cache.
fn home() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static HOME: usize = NEXT.fetch_add(1, Ordering::Relaxed));
    HOME.with(|home| *home)
}

fn lock(slot: &Mutex<Slot>) -> MutexGuard<'_, Slot> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Durability;
    use crate::tuning::Tuning;
    use rowhouse_types::{RecordBuilder, Timestamp};
    use rusqlite::params;

    /// A connection may see a batch before anybody was told of it. From then on all others show it too.
    #[test]
    fn what_one_connection_shows_all_show() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("test.db");
        std::fs::File::create(&path).unwrap();
        schema::create(&path, Durability::Ephemeral).unwrap();
        let writer = schema::writer(&path, Durability::Ephemeral, 0, &Tuning::default()).unwrap();
        let connections = (0..2).map(|_| schema::reader(&path, 0, true).unwrap()).collect();
        let readers = Readers::new(connections, 0, true);
        let key = EntityKey::new("p", "r").unwrap();
        let commit = |batch: u64| {
            let record = RecordBuilder::new().finish(Timestamp::from_ticks(batch).unwrap());
            let row = params![record.as_bytes()];
            writer.execute_batch("BEGIN IMMEDIATE").unwrap();
            writer.execute("REPLACE INTO entities VALUES (1, 'p', 'r', ?1)", row).unwrap();
            let sequence = batch.cast_signed();
            writer.execute("UPDATE meta SET sequence = ?1 WHERE id = 1", [sequence]).unwrap();
            writer.execute_batch("COMMIT").unwrap();
        };
        // The one connection, by keeping the other busy.
        let shown_by = |slot: usize| {
            let _busy = lock(&readers.slots[1 - slot]);
            let found = readers.get(TableId(1), &key, &Cache::new(0)).unwrap();
            found.map(|record| record.as_ref().timestamp().ticks())
        };
        assert_eq!((shown_by(0), shown_by(1)), (None, None));
        commit(1);
        assert_eq!((shown_by(0), shown_by(1)), (None, None), "nobody was told");
        readers.advance(1);
        assert_eq!(shown_by(1), Some(1));
        commit(2);
        assert_eq!(shown_by(0), Some(2), "ahead of what anybody was told");
        assert_eq!(shown_by(1), Some(2));
    }

    /// The way of reading changes with the next snapshot, while the store is in use.
    #[test]
    fn connections_stop_and_begin_to_map() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("test.db");
        std::fs::File::create(&path).unwrap();
        schema::create(&path, Durability::Ephemeral).unwrap();
        let readers = Readers::new(vec![schema::reader(&path, 0, true).unwrap()], 0, true);
        let key = EntityKey::new("p", "r").unwrap();
        let mapped_after = |batch: u64, mapped: bool| {
            readers.map(mapped);
            readers.advance(batch);
            assert_eq!(readers.get(TableId(1), &key, &Cache::new(0)).unwrap(), None);
            let slot = lock(&readers.slots[0]);
            let conn = slot.conn.as_ref().unwrap();
            conn.pragma_query_value(None, "mmap_size", |row| row.get::<_, i64>(0)).unwrap() > 0
        };
        assert!(mapped_after(1, true));
        assert!(!mapped_after(2, false));
        readers.touch(TableId(1), &key);
        assert!(mapped_after(3, true));
    }
}
