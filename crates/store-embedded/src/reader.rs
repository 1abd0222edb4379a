//! Point reads, on the thread of the caller.
//!
//! A cached read takes a few microseconds, less than handing it to another thread would. Nothing but
//! point reads uses these connections, so no scan can be in the way.

use crate::committer::Fault;
use crate::entity;
use rowhouse_store::{StoreError, TableId};
use rowhouse_types::{EntityKey, Record};
use rusqlite::Connection;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// Read-only connections for whoever comes.
#[derive(Debug)]
pub(crate) struct Readers {
    /// Empty once the store is closed.
    slots: Box<[Mutex<Option<Connection>>]>,
    next: AtomicUsize,
}

impl Readers {
    pub(crate) fn new(connections: Vec<Connection>) -> Self {
        let slots = connections.into_iter().map(|conn| Mutex::new(Some(conn))).collect();
        Self { slots, next: AtomicUsize::new(0) }
    }

    /// Reads one record at its latest committed state.
    pub(crate) fn get(
        &self,
        table: TableId,
        key: &EntityKey,
    ) -> Result<Option<Record>, StoreError> {
        match self.free_slot().as_ref() {
            Some(conn) => entity::get(conn, table, key).map_err(Fault::into_store_error),
            None => Err(StoreError::unavailable("the store is closed")),
        }
    }

    /// Waits for reads under way and closes every connection.
    pub(crate) fn close(&self) {
        for slot in &self.slots {
            slot.lock().unwrap_or_else(PoisonError::into_inner).take();
        }
    }

    /// Any connection that is free, or else the next to become so.
    fn free_slot(&self) -> MutexGuard<'_, Option<Connection>> {
        let start = self.next.fetch_add(1, Ordering::Relaxed);
        let slot = |offset: usize| &self.slots[start.wrapping_add(offset) % self.slots.len()];
        for offset in 0..self.slots.len() {
            match slot(offset).try_lock() {
                Ok(guard) => return guard,
                // A read that panicked left its connection usable: its statements were reset.
                Err(TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => {}
            }
        }
        slot(0).lock().unwrap_or_else(PoisonError::into_inner)
    }
}
