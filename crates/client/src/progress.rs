//! How far a transfer is, for whoever shows it.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts that a transfer raises and others may read at any time.
#[derive(Debug, Default)]
pub struct Progress {
    rows: AtomicU64,
    earlier: AtomicU64,
    refused: AtomicU64,
}

impl Progress {
    /// Rows that are done, whatever came of them, in this and in earlier runs of the transfer.
    pub fn rows(&self) -> u64 {
        self.rows.load(Ordering::Relaxed)
    }

    /// Those of them that this run has done.
    pub fn rows_now(&self) -> u64 {
        self.rows().saturating_sub(self.earlier.load(Ordering::Relaxed))
    }

    /// Rows that were refused.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Counts what earlier runs have done.
    pub(crate) fn resume(&self, rows: u64, refused: u64) {
        self.earlier.store(rows, Ordering::Relaxed);
        self.add(rows);
        self.add_refused(refused);
    }

    pub(crate) fn add(&self, rows: u64) {
        self.rows.fetch_add(rows, Ordering::Relaxed);
    }

    pub(crate) fn add_refused(&self, rows: u64) {
        self.refused.fetch_add(rows, Ordering::Relaxed);
    }
}
