//! Checksums of the pages of the database, verified whenever a page is read.
//!
//! A bit that flips on the disk is noticed, wherever it is: in a record, a key, an index entry, a
//! message, the catalogue, or in what leads SQLite from one page to the next. The last eight bytes
//! of every page are its checksum ([`sum`]), over the content and the number of the page, and a
//! layer below SQLite ([`vfs`]) writes and verifies it. SQLite leaves these bytes alone, because
//! the database is made with so many reserved bytes in each page. Pages that are still in the
//! write-ahead log are verified against a checksum in memory ([`log_sums`]), and [`log`] notices
//! at the start when a log was damaged that SQLite would cut short.
//!
//! A damaged page is an error of whoever needs it, and of nobody else: SQLite gets
//! `SQLITE_CORRUPT`, the request fails, and pages that are intact are served as before.
//!
//! Databases of format 3 and older have no reserved bytes and are not verified. They are rewritten
//! ([`crate::rewrite`]).

mod log_sums;
mod sum;
mod vfs;

pub(crate) mod log;
pub(crate) mod tree;

pub(crate) use sum::{is_blank, is_intact, is_reserved};
pub(crate) use vfs::{reserve, vfs};

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Bytes of a page.
pub(crate) const PAGE_BYTES: usize = 4096;
/// Bytes at the end of a page that are its checksum.
pub(crate) const SUM_BYTES: usize = 8;
/// The pages of this process that are remembered as damaged. There may be more.
const DAMAGED_MAX: usize = 1024;
/// How long after a damaged page was logged it may be logged again.
const LOG_AGAIN: Duration = Duration::from_mins(1);

/// What was found to be damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Damage {
    /// A page of the database, numbered as SQLite does.
    Page(u32),
    /// A page in the write-ahead log, by the number of its frame.
    Frame(u32),
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Page(number) => write!(f, "page {number} of the database is damaged"),
            Self::Frame(number) => write!(f, "frame {number} of the write-ahead log is damaged"),
        }
    }
}

thread_local! {
    /// What SQLite was refused last on this thread, until somebody asks.
    static LAST: Cell<Option<Damage>> = const { Cell::new(None) };
}

/// Notes what the layer below SQLite refuses to hand up.
fn note(damage: Damage) {
    LAST.set(Some(damage));
}

/// What was damaged when SQLite failed last on this thread.
pub(crate) fn take_last() -> Option<Damage> {
    LAST.take()
}

/// The damage that a store has met since it was opened, for metrics and for a log that does not
/// fill up.
#[derive(Debug, Default)]
pub(crate) struct Damages {
    /// When each was logged last.
    seen: Mutex<BTreeMap<String, Instant>>,
}

impl Damages {
    /// Counts what was met; true if it is time for a line in the log.
    pub(crate) fn meet(&self, what: &str) -> bool {
        let mut seen = self.lock();
        let now = Instant::now();
        if let Some(logged) = seen.get_mut(what) {
            let again = LOG_AGAIN <= now.duration_since(*logged);
            if again {
                *logged = now;
            }
            return again;
        }
        if seen.len() < DAMAGED_MAX {
            seen.insert(what.to_owned(), now);
            return true;
        }
        false
    }

    /// How many different places were met.
    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Instant>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
