//! How far following is, for whoever shows it.

use crate::beside::Note;
use rowhouse_env::{Clock as _, SystemClock};
use rowhouse_types::Timestamp;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often people are told that a service is waited for.
const WAITED_EVERY: Duration = Duration::from_secs(30);

/// What people should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Everything that was there is copied; from now on changes are.
    Following {
        /// Tables.
        tables: usize,
        /// Their entities, with those of earlier runs; none if an earlier run has copied all of them.
        copied: Option<u64>,
    },
    /// Everything that was changed up to now is copied too, for the first time.
    CaughtUp,
    /// A table has come into being at the source, and is followed.
    Made(String),
    /// A table was deleted at the source. The destination keeps it.
    Deleted(String),
    /// What was not copied of some tables.
    NotCopied(Vec<Note>),
    /// One of the services does not answer as it should: it is asked again.
    Waiting(String),
}

/// Counts that following raises and others may read at any time.
pub struct Following {
    changes: AtomicU64,
    tables: Mutex<BTreeMap<String, Standing>>,
    caught_up: AtomicBool,
    /// When somebody was last told that a service is waited for.
    waited: Mutex<Option<Instant>>,
    tell: Box<dyn Fn(Notice) + Send + Sync>,
}

/// How far a table is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// Nothing was heard yet, or lately.
    Unknown,
    /// Changes from then on are not there yet.
    Behind(Timestamp),
    /// There was no other change when it was last asked.
    Level,
}

impl fmt::Debug for Following {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Following").field("changes", &self.changes).finish_non_exhaustive()
    }
}

impl Following {
    /// Notices go to whoever is named.
    pub fn new(tell: impl Fn(Notice) + Send + Sync + 'static) -> Self {
        Self {
            changes: AtomicU64::new(0),
            tables: Mutex::default(),
            caught_up: AtomicBool::new(false),
            waited: Mutex::default(),
            tell: Box::new(tell),
        }
    }

    /// Changes that were told by the source and are at the destination.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    /// Tables that are followed.
    pub fn tables(&self) -> usize {
        self.lock().len()
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.lock().keys().cloned().collect()
    }

    pub(crate) fn has(&self, table: &str) -> bool {
        self.lock().contains_key(table)
    }

    /// Whether no table has changes that are not copied, as far as was heard.
    pub fn is_level(&self) -> bool {
        self.lock().values().all(|standing| *standing == Standing::Level)
    }

    /// How long ago the oldest change was made that is not copied yet; none if all tables are level or nothing is known.
    pub fn behind(&self) -> Option<Duration> {
        self.behind_at(SystemClock.now())
    }

    fn behind_at(&self, now: Timestamp) -> Option<Duration> {
        let tables = self.lock();
        let since = tables.values().filter_map(|standing| match standing {
            Standing::Behind(since) => Some(*since),
            Standing::Unknown | Standing::Level => None,
        });
        let ticks = now.ticks().saturating_sub(since.min()?.ticks());
        Some(Duration::from_micros(ticks / 10))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Standing>> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn tell(&self, notice: Notice) {
        (self.tell)(notice);
    }

    /// A table is followed from now on.
    pub(crate) fn begin(&self, table: &str) {
        self.lock().insert(table.to_owned(), Standing::Unknown);
    }

    /// A table is not followed any more.
    pub(crate) fn end(&self, table: &str) {
        self.lock().remove(table);
    }

    /// There are changes from then on, which are not made yet.
    pub(crate) fn hear(&self, table: &str, first: Timestamp) {
        self.stand(table, Standing::Behind(first));
    }

    /// Nobody knows how far the table is.
    pub(crate) fn lose(&self, table: &str) {
        self.stand(table, Standing::Unknown);
    }

    /// So many changes were made, the last of them then; there may be more.
    pub(crate) fn note(&self, table: &str, changes: u64, last: Option<Timestamp>, more: bool) {
        self.changes.fetch_add(changes, Ordering::Relaxed);
        match (more, last) {
            (false, _) => self.stand(table, Standing::Level),
            (true, Some(last)) => self.stand(table, Standing::Behind(last)),
            (true, None) => {}
        }
        if self.is_level() && !self.caught_up.swap(true, Ordering::Relaxed) {
            self.tell(Notice::CaughtUp);
        }
    }

    fn stand(&self, table: &str, standing: Standing) {
        if let Some(known) = self.lock().get_mut(table) {
            *known = standing;
        }
    }

    /// A service is waited for; it is enough to hear that once in a while.
    pub(crate) fn wait(&self, reason: String) {
        let mut waited = self.waited.lock().unwrap_or_else(PoisonError::into_inner);
        if waited.is_none_or(|told| WAITED_EVERY < told.elapsed()) {
            *waited = Some(Instant::now());
            drop(waited);
            self.tell(Notice::Waiting(reason));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_table_counts() {
        let at = |text: &str| Timestamp::parse_iso(text).unwrap();
        let now = at("2026-01-01T00:01:00Z");
        let following = Following::new(|_| {});
        following.begin("a");
        following.begin("b");
        assert_eq!((following.is_level(), following.behind_at(now)), (false, None));
        following.note("a", 3, Some(at("2026-01-01T00:00:50Z")), true);
        following.note("b", 4, Some(at("2026-01-01T00:00:30Z")), true);
        assert_eq!(following.behind_at(now), Some(Duration::from_secs(30)));
        following.note("b", 0, None, false);
        assert_eq!(following.behind_at(now), Some(Duration::from_secs(10)));
        following.note("a", 1, Some(at("2026-01-01T00:02:00Z")), true);
        assert_eq!(following.behind_at(now), Some(Duration::ZERO), "its clock is ahead");
        following.hear("b", at("2026-01-01T00:00:59Z"));
        assert_eq!(following.behind_at(now), Some(Duration::from_secs(1)));
        following.lose("b");
        following.end("a");
        assert_eq!((following.is_level(), following.behind_at(now)), (false, None));
        following.note("b", 0, None, false);
        assert_eq!((following.is_level(), following.behind_at(now)), (true, None));
        assert_eq!((following.changes(), following.tables()), (8, 1));
    }
}
