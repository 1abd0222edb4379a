//! How much is worked on at once, over all and for one account.
//!
//! Beyond the limits a request is refused with 503, which every SDK retries: memory and latency stay bounded.
//! Scans have a limit of their own and wait a moment for their turn, so that they never take the
//! place of point reads.

use super::error::Failure;
use super::shares::{Share, Shares};
use rowhouse_types::AccountName;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit};

/// How long a scan waits for its turn.
const SCAN_WAIT: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(crate) struct Admission {
    requests: Arc<Shares>,
    scans: Semaphore,
}

/// The right to run, given back when it goes.
#[derive(Debug)]
pub(crate) struct Ticket<'a> {
    _request: Share,
    _scan: Option<SemaphorePermit<'a>>,
}

impl Admission {
    pub(crate) fn new(requests: usize, scans: usize) -> Self {
        Self {
            requests: Shares::new(requests),
            scans: Semaphore::new(scans.clamp(1, Semaphore::MAX_PERMITS)),
        }
    }

    /// Waits for nothing, unless it is a scan.
    pub(crate) async fn enter(
        &self,
        account: &AccountName,
        scan: bool,
    ) -> Result<Ticket<'_>, Failure> {
        let request = self.requests.take(account, 1).ok_or(Failure::Busy)?;
        let scan = if scan {
            let turn = tokio::time::timeout(SCAN_WAIT, self.scans.acquire()).await;
            Some(turn.map_err(|_| Failure::Busy)?.map_err(|_| Failure::Busy)?)
        } else {
            None
        };
        Ok(Ticket { _request: request, _scan: scan })
    }
}
