//! How much is worked on at once, over all and for one account.
//!
//! Beyond the limits a request is refused with 503, which every SDK retries: memory and latency stay bounded.
//! Scans have a limit of their own and wait a moment for their turn, so that they never take the
//! place of point reads.

use super::error::Failure;
use super::shares::{Share, Shares};
use rowhouse_service_account::AccountId;
use std::sync::Arc;
use std::time::Duration;

/// How long a scan waits for its turn.
const SCAN_WAIT: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(crate) struct Admission {
    requests: Arc<Shares>,
    scans: Arc<Shares>,
}

/// The right to run, given back when it goes.
#[derive(Debug)]
pub(crate) struct Ticket {
    _request: Share,
    _scan: Option<Share>,
}

impl Admission {
    pub(crate) fn new(requests: usize, scans: usize) -> Self {
        Self { requests: Shares::new(requests), scans: Shares::new(scans) }
    }

    /// Waits for nothing, unless it is a scan.
    pub(crate) async fn enter(&self, account: AccountId, scan: bool) -> Result<Ticket, Failure> {
        let request = self.requests.take(account, 1).ok_or(Failure::Busy)?;
        let scan = if scan {
            Some(self.scans.wait(account, 1, SCAN_WAIT).await.ok_or(Failure::Busy)?)
        } else {
            None
        };
        Ok(Ticket { _request: request, _scan: scan })
    }
}
