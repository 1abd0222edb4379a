//! How much is worked on at once, over all and for one account.
//!
//! Beyond the limits a request is refused at once with 503, which every SDK retries: memory and latency
//! stay bounded, and one busy account leaves room for the others. Scans have a limit of their own and
//! wait a moment for their turn, so that they never take the place of point reads.

use super::error::Failure;
use rowhouse_types::AccountName;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit};

/// How long a scan waits for its turn.
const SCAN_WAIT: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(crate) struct Admission {
    running: AtomicUsize,
    limit: usize,
    scans: Semaphore,
    by_account: Mutex<HashMap<AccountName, usize>>,
}

/// The right to run, given back when it goes.
#[derive(Debug)]
pub(crate) struct Ticket<'a> {
    admission: &'a Admission,
    account: AccountName,
    scan: Option<SemaphorePermit<'a>>,
}

impl Admission {
    pub(crate) fn new(requests: usize, scans: usize) -> Self {
        Self {
            running: AtomicUsize::new(0),
            limit: requests.max(1),
            scans: Semaphore::new(scans.clamp(1, Semaphore::MAX_PERMITS)),
            by_account: Mutex::default(),
        }
    }

    /// Waits for nothing, unless it is a scan.
    pub(crate) async fn enter(
        &self,
        account: &AccountName,
        scan: bool,
    ) -> Result<Ticket<'_>, Failure> {
        let mut ticket = self.take(account)?;
        if scan {
            let turn = tokio::time::timeout(SCAN_WAIT, self.scans.acquire()).await;
            ticket.scan = Some(turn.map_err(|_| Failure::Busy)?.map_err(|_| Failure::Busy)?);
        }
        Ok(ticket)
    }

    fn take(&self, account: &AccountName) -> Result<Ticket<'_>, Failure> {
        let mut by_account = self.by_account.lock().unwrap_or_else(PoisonError::into_inner);
        // An account alone may use all but an eighth, which is left for whoever comes next.
        let share = if by_account.len() > 1 || !by_account.contains_key(account) {
            (self.limit / 2).max(1)
        } else {
            (self.limit - self.limit / 8).max(1)
        };
        let mine = by_account.get(account).copied().unwrap_or(0);
        if self.limit <= self.running.load(Ordering::Relaxed) || share <= mine {
            return Err(Failure::Busy);
        }
        match by_account.get_mut(account) {
            Some(count) => *count += 1,
            None => {
                by_account.insert(account.clone(), 1);
            }
        }
        self.running.fetch_add(1, Ordering::Relaxed);
        Ok(Ticket { admission: self, account: account.clone(), scan: None })
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        let mut by_account =
            self.admission.by_account.lock().unwrap_or_else(PoisonError::into_inner);
        self.admission.running.fetch_sub(1, Ordering::Relaxed);
        if let Some(count) = by_account.get_mut(&self.account) {
            *count -= 1;
            if *count == 0 {
                by_account.remove(&self.account);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_account_leaves_room_for_another() {
        let admission = Admission::new(8, 1);
        let (a, b): (AccountName, AccountName) = ("aaa".parse().unwrap(), "bbb".parse().unwrap());
        let mut tickets = Vec::new();
        while let Ok(ticket) = admission.enter(&a, false).await {
            tickets.push(ticket);
        }
        assert_eq!(tickets.len(), 7);
        let other = admission.enter(&b, false).await.unwrap();
        assert!(admission.enter(&b, false).await.is_err());
        drop(other);
        drop(tickets);
        assert!(admission.enter(&a, true).await.is_ok());
    }
}
