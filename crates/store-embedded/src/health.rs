//! Whether the store may still acknowledge anything.
//!
//! The latch closes once and never opens: after a failed write nobody knows what the disk holds, and
//! a second fsync may claim success for pages that the first one lost. Reads may go on after a
//! failure, but not after the store was closed.
//!
//! A full disk is another matter: the operating system refuses to take what is written, so nothing that it took is in
//! doubt. The transaction is rolled back, and writes are refused until there is room ([`crate::room`]).

use rowhouse_store::StoreError;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// The latch.
#[derive(Debug, Default)]
pub(crate) struct Health {
    failure: OnceLock<String>,
    full: AtomicBool,
    closed: AtomicBool,
}

/// Why writes are refused while the disk is full.
pub(crate) const FULL: &str = "the disk is full";

impl Health {
    /// Notes the first failure; later ones follow from it.
    pub(crate) fn fail(&self, what: &str) {
        if self.failure.set(what.to_owned()).is_ok() {
            tracing::error!(reason = what, "store failed, no more writes until restart");
        }
    }

    /// The disk is full; true if that is new.
    pub(crate) fn fill(&self) -> bool {
        let is_new = !self.full.swap(true, Ordering::SeqCst);
        if is_new {
            tracing::error!("the disk is full, no more writes until there is room");
        }
        is_new
    }

    /// The disk has room again.
    pub(crate) fn heal(&self) {
        if self.full.swap(false, Ordering::SeqCst) {
            tracing::info!("the disk has room again, and writes are taken");
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.full.load(Ordering::SeqCst)
    }

    /// Nothing is served from now on.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failure.get().is_some()
    }

    /// Whether reads are served.
    pub(crate) fn readable(&self) -> Result<(), StoreError> {
        if self.is_closed() { Err(StoreError::unavailable("the store is closed")) } else { Ok(()) }
    }

    /// Whether writes are served.
    pub(crate) fn writable(&self) -> Result<(), StoreError> {
        self.readable()?;
        match self.failure.get() {
            Some(failure) => Err(StoreError::unavailable(failure.as_str())),
            None if self.is_full() => Err(StoreError::unavailable(FULL)),
            None => Ok(()),
        }
    }

    /// What to say to somebody whose change was not begun.
    pub(crate) fn refusal(&self) -> StoreError {
        let closed = || StoreError::unavailable("the store is closed");
        self.writable().err().unwrap_or_else(closed)
    }

    /// What to say to somebody whose change was begun and will never be answered.
    pub(crate) fn unanswered(&self) -> StoreError {
        let failure = self.failure.get().map(String::as_str);
        StoreError::outcome_unknown(failure.unwrap_or("the store stopped before it answered"))
    }
}
