//! Up to where the messages at the front of a pile have expired and still wait to be swept.
//!
//! Whoever looks for the next message begins there, so that many messages that expire at the same time are walked over once and
//! not by everybody until they are swept. The time of queues never goes back ([`super::time`]), so what was dead at the
//! time of a batch is dead for every later one, and what is put or comes back stands behind what is visible, so what is noted stays true when they are swept.

use super::Place;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// For each pile that has many.
#[derive(Debug, Default)]
pub(crate) struct Dead(Mutex<BTreeMap<i64, Reach>>);

/// All before the place were dead when that batch ran.
#[derive(Clone, Copy, Debug)]
struct Reach {
    place: Place,
    batch: u64,
}

impl Dead {
    /// Where to begin, for whoever sees that batch and none after it.
    pub(crate) fn before(&self, pile: i64, batch: u64) -> Place {
        let reach = self.lock().get(&pile).copied().filter(|reach| reach.batch <= batch);
        reach.map_or((i64::MIN, 0), |reach| reach.place)
    }

    /// Remembers that all before the place are dead.
    pub(crate) fn note(&self, pile: i64, place: Place, batch: u64) {
        self.lock().insert(pile, Reach { place, batch });
    }

    /// Forgets it: something may stand there.
    pub(crate) fn forget(&self, pile: i64) {
        self.lock().remove(&pile);
    }

    /// Forgets all of it: what a batch noted was rolled back.
    pub(crate) fn forget_all(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<i64, Reach>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
