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
    /// Where parts are read before their rows are done: what was read and not counted yet, and the rows of what was.
    ahead: AtomicU64,
    read: AtomicU64,
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
        let share = (0 < whole).then(|| done.min(whole).saturating_mul(1000) / whole)?;
        match self.read.load(Ordering::Relaxed) {
            0 => Some(share),
            read => Some(share.saturating_mul(self.rows().min(read)) / read),
        }
    }

    /// So many more parts of the whole were read; they count when their rows are done.
    pub fn read_ahead(&self, parts: u64) {
        self.ahead.fetch_add(parts, Ordering::Relaxed);
    }

    /// What was read has so many rows.
    pub(crate) fn expect_rows(&self, rows: u64) {
        self.read.fetch_add(rows, Ordering::Relaxed);
        self.advance(self.ahead.swap(0, Ordering::Relaxed));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_not_done() {
        let progress = Progress::default();
        assert_eq!(progress.share(), None);
        progress.expect(200);
        progress.advance(100);
        assert_eq!(progress.share(), Some(500));
        progress.advance(200);
        assert_eq!(progress.share(), Some(1000), "never more than the whole");

        let progress = Progress::default();
        progress.expect(200);
        progress.read_ahead(100);
        assert_eq!(progress.share(), Some(0));
        progress.expect_rows(10);
        assert_eq!(progress.share(), Some(0));
        progress.add(5);
        assert_eq!(progress.share(), Some(250));
        progress.add(5);
        progress.read_ahead(100);
        assert_eq!(progress.share(), Some(500));
    }
}
