//! How far a transfer is, for whoever shows it.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts that a transfer raises and others may read at any time.
#[derive(Debug, Default)]
pub struct Progress {
    rows: AtomicU64,
    earlier: AtomicU64,
    refused: AtomicU64,
    /// Parts of the whole, whatever they are, and how many of them are done.
    whole: AtomicU64,
    done: AtomicU64,
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

    /// How much of the whole is done, in thousandths; none if nobody knows the whole.
    pub fn share(&self) -> Option<u64> {
        let (whole, done) = (self.whole.load(Ordering::Relaxed), self.done.load(Ordering::Relaxed));
        (0 < whole).then(|| done.min(whole).saturating_mul(1000) / whole)
    }

    /// The whole has so many more parts.
    pub fn expect(&self, parts: u64) {
        self.whole.fetch_add(parts, Ordering::Relaxed);
    }

    /// So many more parts of the whole are done.
    pub fn advance(&self, parts: u64) {
        self.done.fetch_add(parts, Ordering::Relaxed);
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
