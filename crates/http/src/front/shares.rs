//! A limit that accounts share fairly: one busy account leaves room for the others.
//!
//! While others are active an account gets at most half of what there is; alone it gets all but an eighth,
//! which is kept for whoever comes next. What is not there is refused, at once or after a while.

use rowhouse_service_account::AccountId;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;

/// So many units of something, over all accounts.
#[derive(Debug)]
pub(crate) struct Shares {
    limit: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    taken: usize,
    /// Those that have any: few, so that looking one up takes less than hashing its id.
    by_account: BTreeMap<AccountId, usize>,
    /// Who waits, in the order of arrival.
    waiters: VecDeque<Waiter>,
}

#[derive(Debug)]
struct Waiter {
    account: AccountId,
    units: usize,
    granted: oneshot::Sender<Share>,
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
        Arc::new(Self { limit: limit.max(1), state: Mutex::default() })
    }

    /// Units that are taken now.
    pub(crate) fn taken(&self) -> usize {
        self.lock().taken
    }

    /// Takes units for an account, or nothing.
    pub(crate) fn take(self: &Arc<Self>, account: AccountId, units: usize) -> Option<Share> {
        let mut share = Share { shares: Arc::clone(self), account, units: 0 };
        share.grow(units).then_some(share)
    }

    /// Takes units for an account as soon as they are there, within a time. Of one account, who came first is
    /// first.
    pub(crate) async fn wait(
        self: &Arc<Self>,
        account: AccountId,
        units: usize,
        time: Duration,
    ) -> Option<Share> {
        let turn = {
            let mut state = self.lock();
            let others_wait = state.waiters.iter().any(|waiter| waiter.is_of(account));
            if !others_wait && state.has_room(self.limit, account, units) {
                state.add(account, units);
                return Some(Share { shares: Arc::clone(self), account, units });
            }
            let (granted, turn) = oneshot::channel();
            state.waiters.push_back(Waiter { account, units, granted });
            turn
        };
        tokio::time::timeout(time, turn).await.ok()?.ok()
    }

    /// Takes units for an account even beyond the limit, for what cannot be refused any more.
    pub(crate) fn overdraw(self: &Arc<Self>, account: AccountId, units: usize) -> Share {
        self.lock().add(account, units);
        Share { shares: Arc::clone(self), account, units }
    }

    /// What an account can have as soon as nobody holds anything, and while others are active too.
    pub(crate) fn half(&self) -> usize {
        (self.limit / 2).max(1)
    }

    fn give_back(self: &Arc<Self>, account: AccountId, units: usize) {
        let mut state = self.lock();
        state.give_back(account, units);
        while let Some(Waiter { account, units, granted }) = state.next_waiter(self.limit) {
            drop(state);
            // Who has given up meanwhile drops it, and the next gets it.
            let _ = granted.send(Share { shares: Arc::clone(self), account, units });
            state = self.lock();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing inside the lock can panic half way through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiter {
    /// Whether it waits for this account, and still waits.
    fn is_of(&self, account: AccountId) -> bool {
        self.account == account && !self.granted.is_closed()
    }
}

impl State {
    fn has_room(&self, limit: usize, account: AccountId, units: usize) -> bool {
        let mine = self.by_account.get(&account).copied().unwrap_or(0);
        let alone = self.by_account.len() <= usize::from(mine > 0);
        let most = if alone { limit - limit / 8 } else { limit / 2 };
        self.taken + units <= limit && mine + units <= most.max(1)
    }

    /// Takes the first waiter out for whom there is room now, with its units.
    fn next_waiter(&mut self, limit: usize) -> Option<Waiter> {
        self.waiters.retain(|waiter| !waiter.granted.is_closed());
        let fits = |waiter: &Waiter| self.has_room(limit, waiter.account, waiter.units);
        let at = self.waiters.iter().position(fits)?;
        let waiter = self.waiters.remove(at)?;
        self.add(waiter.account, waiter.units);
        Some(waiter)
    }

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
        let mut state = self.shares.lock();
        if !state.has_room(self.shares.limit, self.account, units) {
            return false;
        }
        state.add(self.account, units);
        drop(state);
        self.units += units;
        true
    }

    /// Holds exactly so many units from now on, even beyond the limit: for what cannot be refused any more.
    pub(crate) fn settle(&mut self, units: usize) {
        let held = std::mem::replace(&mut self.units, units);
        if units < held {
            self.shares.give_back(self.account, held - units);
        } else {
            self.shares.lock().add(self.account, units - held);
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if self.units > 0 {
            self.shares.give_back(self.account, self.units);
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
    async fn who_came_first_is_first() {
        let (shares, account) = (Shares::new(1), AccountId(1));
        let mut held = shares.take(account, 1);
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = Vec::new();
        for n in 0..5 {
            let (shares, order) = (Arc::clone(&shares), Arc::clone(&order));
            tasks.push(tokio::spawn(async move {
                let share = shares.wait(account, 1, Duration::from_secs(5)).await;
                order.lock().unwrap().push(n);
                drop(share.expect("a turn"));
            }));
            tokio::task::yield_now().await;
        }
        let late = shares.wait(account, 1, Duration::from_millis(1));
        assert!(late.await.is_none(), "gives up");
        held.take();
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3, 4]);
        assert!(shares.take(account, 1).is_some(), "everything was given back");
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

    #[tokio::test]
    async fn who_needs_less_lets_others_in() {
        let (shares, account) = (Shares::new(8), AccountId(1));
        let mut share = shares.take(account, shares.half()).unwrap();
        let waiting = shares.wait(account, 5, Duration::from_secs(5));
        let (next, ()) = tokio::join!(waiting, async { share.settle(1) });
        assert_eq!((share.units(), shares.taken()), (1, 6));
        share.settle(3);
        assert_eq!((share.units(), shares.taken()), (3, 8), "more than the account may take");
        drop((share, next));
        assert_eq!(shares.taken(), 0);
    }
}
