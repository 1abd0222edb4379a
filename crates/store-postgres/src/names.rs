//! Which names accounts have: a name that no account has costs no statement, however many of them strangers make up.
//!
//! Every name is remembered as a hash, keyed so that nobody outside can find two that are equal. The set may hold too
//! many names, of accounts that were removed: then the database is asked, and knows. It may hold too few only for as
//! long as the cache has been told to forget, and is completed before anybody is called a stranger.

use crate::cache::Generation;
use rowhouse_types::{AccountName, limits};
use std::collections::HashSet;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::sync::{PoisonError, RwLock};
use std::time::{Duration, Instant};
use tokio::sync::{Mutex, MutexGuard};

/// After this long all names are read again instead of the new ones: a database that was set back to an earlier state
/// has other accounts under the same ids.
const RELOAD_AFTER: Duration = Duration::from_mins(1);

/// The names of all accounts, as far as they were read.
#[derive(Debug, Default)]
pub(crate) struct AccountNames {
    hasher: RandomState,
    known: RwLock<Known>,
    /// One reads at a time; the others need what it has read.
    reading: Mutex<()>,
}

#[derive(Debug, Default)]
struct Known {
    hashes: HashSet<u64>,
    /// The latest id among them. Ids are given out in the order in which accounts are created.
    last: i64,
    /// All names that there are in this generation of the cache are among them.
    complete: Option<Generation>,
    /// When all of them were read, not only new ones.
    loaded: Option<Instant>,
    /// There are more than are remembered: nobody is a stranger before the database has been asked.
    too_many: bool,
}

impl AccountNames {
    /// Whether no account has the name in this generation; none if more has to be read to know.
    pub(crate) fn is_stranger(&self, name: &AccountName, now: Generation) -> Option<bool> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let found = known.too_many || known.hashes.contains(&self.hasher.hash_one(name));
        match (found, known.complete) {
            (true, _) => Some(false),
            (false, Some(complete)) if complete == now => Some(true),
            (false, _) => None,
        }
    }

    /// The right to read names, for one at a time.
    pub(crate) async fn turn(&self) -> MutexGuard<'_, ()> {
        self.reading.lock().await
    }

    /// The id after which accounts have to be read.
    pub(crate) fn read_after(&self) -> i64 {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let recent = known.loaded.is_some_and(|loaded| loaded.elapsed() < RELOAD_AFTER);
        if recent { known.last } else { 0 }
    }

    /// Remembers ids and names of all accounts after that id, as they were read in that generation; at most one more
    /// than are remembered.
    pub(crate) fn keep(&self, read: Generation, after: i64, found: &[(i64, AccountName)]) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if after == 0 {
            *known = Known { loaded: Some(Instant::now()), ..Known::default() };
        }
        known.hashes.extend(found.iter().map(|(_, name)| self.hasher.hash_one(name)));
        known.last = found.iter().fold(known.last, |last, (id, _)| last.max(*id));
        known.complete = Some(read);
        if known.hashes.len() > limits::ACCOUNT_NAMES_REMEMBERED_MAX {
            let most = limits::ACCOUNT_NAMES_REMEMBERED_MAX;
            tracing::warn!(most, "too many accounts: the database is asked for unknown ones too");
            *known = Known { too_many: true, ..Known::default() };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::Cache;

    fn name(text: &str) -> AccountName {
        text.parse().unwrap()
    }

    #[test]
    fn a_stranger_is_one_that_is_missing_from_all_names_of_now() {
        let (cache, names) = (Cache::default(), AccountNames::default());
        let first = cache.generation();
        assert_eq!(names.is_stranger(&name("shop"), first), None, "nothing was read yet");
        assert_eq!(names.read_after(), 0);
        names.keep(first, 0, &[(3, name("shop")), (7, name("bakery"))]);
        assert_eq!(names.is_stranger(&name("shop"), first), Some(false));
        assert_eq!(names.is_stranger(&name("nobody"), first), Some(true));
        cache.forget();
        let second = cache.generation();
        assert_eq!(names.is_stranger(&name("shop"), second), Some(false), "the database knows");
        assert_eq!(names.is_stranger(&name("nobody"), second), None, "it may be there by now");
        assert_eq!(names.read_after(), 7, "only new ones are read");
        names.keep(second, 7, &[(8, name("nobody"))]);
        assert_eq!(names.is_stranger(&name("nobody"), second), Some(false));
        assert_eq!(names.is_stranger(&name("somebody"), second), Some(true));
        // What was read before the cache was told to forget says nothing of now.
        cache.forget();
        names.keep(second, 8, &[]);
        assert_eq!(names.is_stranger(&name("somebody"), cache.generation()), None);
    }
}
