//! How far a transfer is, for whoever shows it.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts that a transfer raises and others may read at any time.
#[derive(Debug, Default)]
pub struct Progress {
    rows: AtomicU64,
    refused: AtomicU64,
}

impl Progress {
    /// Rows that are done, whatever came of them, in this and in earlier runs of the transfer.
    pub fn rows(&self) -> u64 {
        self.rows.load(Ordering::Relaxed)
    }

    /// Rows that were refused.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self, rows: u64) {
        self.rows.fetch_add(rows, Ordering::Relaxed);
    }

    pub(crate) fn add_refused(&self, rows: u64) {
        self.refused.fetch_add(rows, Ordering::Relaxed);
    }
}
