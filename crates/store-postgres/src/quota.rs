//! How many tables or queues an account has at most, without counting them every time.
//!
//! Counting 50,000 rows took 16 to 21 ms on a busy machine, and every change of the catalogue waits for it. Ids rise by one with each table
//! that any server creates and are never used again. So an account that had n tables when the latest id was i has at most
//! n + (j - i) of them when it is j. They are counted again when that is more than the account may have.

use rowhouse_store::AccountId;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// Accounts that are remembered; beyond that all are forgotten, and counted again.
const ACCOUNTS_MAX: usize = 10_000;

/// What was counted last, of tables or of queues.
#[derive(Debug, Default)]
pub(crate) struct Quota(Mutex<HashMap<AccountId, Counted>>);

#[derive(Clone, Copy, Debug)]
struct Counted {
    rows: u64,
    /// The latest id when they were counted.
    latest: u64,
}

impl Quota {
    /// Whether the account has no more than `most` for certain, when that is the latest id.
    pub(crate) fn is_met(&self, account: AccountId, latest: u64, most: u64) -> bool {
        let counted = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&account).copied();
        // A smaller id is of another database under the same address.
        let made = counted.and_then(|counted| latest.checked_sub(counted.latest));
        counted.zip(made).is_some_and(|(counted, made)| counted.rows.saturating_add(made) <= most)
    }

    /// Notes what was counted. It may include what its transaction takes back: then it is too high.
    pub(crate) fn note(&self, account: AccountId, latest: u64, rows: u64) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if ACCOUNTS_MAX <= all.len() && !all.contains_key(&account) {
            all.clear();
        }
        all.insert(account, Counted { rows, latest });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_counted_again_when_it_may_have_too_many() {
        let (quota, account) = (Quota::default(), AccountId(1));
        assert!(!quota.is_met(account, 100, u64::MAX), "nothing was counted");
        quota.note(account, 100, 7);
        assert!(quota.is_met(account, 100, 7) && !quota.is_met(account, 100, 6));
        assert!(quota.is_met(account, 103, 10) && !quota.is_met(account, 104, 10));
        assert!(!quota.is_met(account, 99, 10), "the ids of another database");
        assert!(!quota.is_met(AccountId(2), 100, 7));
        for other in 2..20_000 {
            quota.note(AccountId(other), 200, 0);
        }
        assert!(quota.0.lock().unwrap().len() <= ACCOUNTS_MAX);
    }
}
