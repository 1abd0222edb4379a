//! A limit that accounts share fairly: one busy account leaves room for the others.
//!
//! While others are active an account gets at most half of what there is; alone it gets all but an eighth,
//! which is kept for whoever comes next. What is not there is refused, at once or after a while.

use rowhouse_service_account::AccountId;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// So many units of something, over all accounts.
#[derive(Debug)]
pub(crate) struct Shares {
    limit: usize,
    state: Mutex<State>,
    /// How many wait for something to be returned.
    waiting: AtomicUsize,
    returned: Notify,
}

#[derive(Debug, Default)]
struct State {
    taken: usize,
    by_account: HashMap<AccountId, usize>,
}

/// Units that are given back when it goes.
#[derive(Debug)]
pub(crate) struct Share {
    shares: Arc<Shares>,
    account: AccountId,
    units: usize,
}

impl Shares {
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        let (state, waiting) = (Mutex::default(), AtomicUsize::new(0));
        Arc::new(Self { limit: limit.max(1), state, waiting, returned: Notify::new() })
    }

    /// Takes units for an account, or nothing.
    pub(crate) fn take(self: &Arc<Self>, account: AccountId, units: usize) -> Option<Share> {
        let mut share = Share { shares: Arc::clone(self), account, units: 0 };
        share.grow(units).then_some(share)
    }

    /// Takes units for an account as soon as they are there, within a time.
    pub(crate) async fn wait(
        self: &Arc<Self>,
        account: AccountId,
        units: usize,
        time: Duration,
    ) -> Option<Share> {
        if let Some(share) = self.take(account, units) {
            return Some(share);
        }
        let waiting = async {
            loop {
                let returned = self.returned.notified();
                if let Some(share) = self.take(account, units) {
                    return share;
                }
                returned.await;
            }
        };
        let _one_more = Waiting::new(&self.waiting);
        tokio::time::timeout(time, waiting).await.ok()
    }

    /// Takes units for an account even beyond the limit, for what cannot be refused any more.
    pub(crate) fn overdraw(self: &Arc<Self>, account: AccountId, units: usize) -> Share {
        self.lock().add(account, units);
        Share { shares: Arc::clone(self), account, units }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing inside the lock can panic half way through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One who waits, also if they give up.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl State {
    fn add(&mut self, account: AccountId, units: usize) {
        self.taken += units;
        *self.by_account.entry(account).or_default() += units;
    }

    fn give_back(&mut self, account: AccountId, units: usize) {
        self.taken -= units;
        if let Entry::Occupied(mut count) = self.by_account.entry(account) {
            *count.get_mut() -= units;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

impl Share {
    pub(crate) fn units(&self) -> usize {
        self.units
    }

    /// Takes more units, or none and says so.
    pub(crate) fn grow(&mut self, units: usize) -> bool {
        let limit = self.shares.limit;
        let mut state = self.shares.lock();
        let mine = state.by_account.get(&self.account).copied().unwrap_or(0);
        let alone = state.by_account.len() <= usize::from(mine > 0);
        let most = if alone { limit - limit / 8 } else { limit / 2 };
        if limit < state.taken + units || most.max(1) < mine + units {
            return false;
        }
        state.add(self.account, units);
        drop(state);
        self.units += units;
        true
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if self.units == 0 {
            return;
        }
        self.shares.lock().give_back(self.account, self.units);
        if self.shares.waiting.load(Ordering::SeqCst) > 0 {
            self.shares.returned.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_account_leaves_room_for_another() {
        let shares = Shares::new(8);
        let (a, b) = (AccountId(1), AccountId(2));
        let mut busy = shares.take(a, 1).unwrap();
        while busy.grow(1) {}
        assert_eq!(busy.units(), 7);
        let other = shares.take(b, 1).unwrap();
        assert!(shares.take(b, 1).is_none(), "all is taken");
        drop(busy);
        assert_eq!(shares.take(a, 4).map(|share| share.units()), Some(4));
        assert!(shares.take(a, 5).is_none(), "more than half while another is active");
        drop(other);
        assert!(shares.take(a, 7).is_some());
        assert!(shares.take(a, 8).is_none());
    }
    #[tokio::test]
    async fn who_waits_gets_what_is_returned() {
        let shares = Shares::new(2);
        let (a, b) = (AccountId(1), AccountId(2));
        let first = shares.take(a, 1).unwrap();
        let second = shares.take(b, 1).unwrap();
        assert!(shares.wait(b, 1, Duration::from_millis(5)).await.is_none());
        let waiting = shares.wait(b, 1, Duration::from_secs(5));
        let (share, ()) = tokio::join!(waiting, async { drop(second) });
        assert!(share.is_some());
        let beyond = shares.overdraw(a, 5);
        assert!(shares.take(b, 1).is_none());
        drop((first, beyond, share));
        assert!(shares.take(b, 1).is_some());
    }
}
