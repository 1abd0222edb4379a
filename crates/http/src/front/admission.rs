//! How much is worked on at once, over all and for one account.
//!
//! Beyond the limits a request is refused with 503, which every SDK retries: memory and latency stay bounded.
//! Scans have a limit of their own and wait a moment for their turn, not too many at a time. Only then do they count
//! as requests, so that those who wait never take the place of point reads.

use super::refusal::Refusal;
use super::shares::{Share, Shares};
use rowhouse_service_account::AccountId;
use std::sync::Arc;
use std::time::Duration;

/// How long a scan waits for its turn.
const SCAN_WAIT: Duration = Duration::from_secs(2);
/// How many scans may wait for each that may run. One that has its turn still counts until it wakes up, when whoever was served may have
/// asked again.
const WAITING_PER_SCAN: usize = 8;

#[derive(Debug)]
pub(crate) struct Admission {
    requests: Arc<Shares>,
    scans: Arc<Shares>,
    waiting_scans: Arc<Shares>,
}

/// The right to run, given back when it goes.
#[derive(Debug)]
pub(crate) struct Ticket {
    _request: Share,
    _scan: Option<Share>,
}

impl Admission {
    pub(crate) fn new(requests: usize, scans: usize) -> Self {
        Self {
            requests: Shares::new(requests),
            scans: Shares::new(scans),
            waiting_scans: Shares::new(scans.saturating_mul(WAITING_PER_SCAN)),
        }
    }

    /// Waits for nothing, unless it is a scan.
    pub(crate) async fn enter(&self, account: AccountId, scan: bool) -> Result<Ticket, Refusal> {
        let scan = if scan { Some(self.turn(account).await.ok_or(Refusal::Busy)?) } else { None };
        let request = self.requests.take(account, 1).ok_or(Refusal::Busy)?;
        Ok(Ticket { _request: request, _scan: scan })
    }

    /// For a scan that has a place among a limited number: it may wait for its turn without another.
    pub(crate) async fn enter_with(
        &self,
        account: AccountId,
        _place: &Share,
    ) -> Result<Ticket, Refusal> {
        let scan = self.scans.wait(account, 1, SCAN_WAIT).await.ok_or(Refusal::Busy)?;
        let request = self.requests.take(account, 1).ok_or(Refusal::Busy)?;
        Ok(Ticket { _request: request, _scan: Some(scan) })
    }

    /// The turn of a scan, unless it takes too long or too many wait already.
    async fn turn(&self, account: AccountId) -> Option<Share> {
        let _place = self.waiting_scans.take(account, 1)?;
        self.scans.wait(account, 1, SCAN_WAIT).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::task::Poll;

    #[tokio::test]
    async fn scans_that_wait_take_no_place_of_others() {
        let (admission, account) = (Arc::new(Admission::new(8, 1)), AccountId(1));
        let running = admission.enter(account, true).await.unwrap();
        let scans: Vec<_> = (0..20)
            .map(|_| {
                let admission = Arc::clone(&admission);
                tokio::spawn(async move { admission.enter(account, true).await.is_ok() })
            })
            .collect();
        tokio::task::yield_now().await;
        let mut points = Vec::new();
        for _ in 0..6 {
            points.push(admission.enter(account, false).await.unwrap());
        }
        assert!(admission.enter(account, false).await.is_err(), "an eighth is kept for others");
        let at_once = scans.iter().filter(|scan| scan.is_finished()).count();
        let may_wait = WAITING_PER_SCAN - WAITING_PER_SCAN / 8;
        assert_eq!(at_once, 20 - may_wait, "more may not wait: an eighth is kept for others");
        drop((running, points));
        let mut served = 0;
        for scan in scans {
            served += usize::from(scan.await.unwrap());
        }
        assert_eq!(served, may_wait, "who waited gets a turn, one after the other");
    }

    /// Scans that end at one moment are followed by as many before those who waited have woken up.
    #[tokio::test]
    async fn as_many_connections_as_wait_and_run_are_all_served() {
        let (admission, account) = (Arc::new(Admission::new(512, 16)), AccountId(1));
        let ask = || {
            let admission = Arc::clone(&admission);
            tokio::spawn(async move { admission.enter(account, true).await })
        };
        let first: Vec<_> = (0..64).map(|_| ask()).collect();
        tokio::task::yield_now().await;
        let (running, waiting): (Vec<_>, Vec<_>) =
            first.into_iter().partition(tokio::task::JoinHandle::is_finished);
        assert_eq!((running.len(), waiting.len()), (14, 50));
        let mut tickets = Vec::new();
        for scan in running {
            tickets.push(scan.await.unwrap().unwrap());
        }
        let asked_again = tickets.len();
        drop(tickets);
        let mut again: Vec<_> =
            (0..asked_again).map(|_| Box::pin(admission.enter(account, true))).collect();
        for scan in &mut again {
            let looked = poll_fn(|cx| Poll::Ready(scan.as_mut().poll(cx))).await;
            assert!(!matches!(looked, Poll::Ready(Err(_))), "none is refused");
        }
    }
}
