//! Asks a transfer to end at its next good place: what is under way is finished, and its place is kept.

use std::future::pending;
use tokio::sync::watch;

/// Asks.
#[derive(Debug)]
pub struct Stopper(watch::Sender<bool>);

/// Is asked. Clones are asked together.
#[derive(Clone, Debug)]
pub struct Stop(watch::Receiver<bool>);

impl Stopper {
    /// Asks everybody who has the other half.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

impl Stop {
    /// Both halves.
    pub fn new() -> (Stopper, Self) {
        let (sender, receiver) = watch::channel(false);
        (Stopper(sender), Self(receiver))
    }

    /// For what ends by itself.
    pub fn never() -> Self {
        Self::new().1
    }

    /// Whether it was asked.
    pub fn is_asked(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until it is asked.
    pub async fn asked(&self) {
        if self.0.clone().wait_for(|stop| *stop).await.is_err() {
            pending::<()>().await;
        }
    }
}
