//! Backups of a store that is in use.

use crate::error::BackupError;
use crate::items::{Base, Totals};
use crate::keys::KeepKeys;
use crate::table::{RestoredTable, TableChoice, restore_table};
use crate::write::{About, check_kept, write_full, write_incremental};
use rowhouse_env::{Clock, Random};
use rowhouse_store::{Estimate, Snapshot, Store};
use rowhouse_types::limits::CLOCK_SKEW_SECONDS;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Takes backups and restores tables: one of each at a time, because both are much work.
#[derive(Debug)]
pub struct BackupService {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    keys: KeepKeys,
    product: &'static str,
    taking: Arc<Semaphore>,
    restoring: Arc<Semaphore>,
}

/// A backup whose moment has been chosen and that is not written yet.
///
/// Holds a snapshot, for which the store keeps what it would otherwise let go of: whoever has one hurries.
#[derive(Debug)]
pub struct Taking {
    snapshot: Box<dyn Snapshot>,
    base: Option<Base>,
    keys: KeepKeys,
    about: About,
    estimate: Option<Estimate>,
    _only: OwnedSemaphorePermit,
}

impl BackupService {
    /// A service over a store; `keys` says what backups hold in the place of keys, and `product` is the release that they name as
    /// their origin.
    pub fn new(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
        keys: KeepKeys,
        product: &'static str,
    ) -> Self {
        let (taking, restoring) = (Arc::new(Semaphore::new(1)), Arc::new(Semaphore::new(1)));
        Self { store, clock, random, keys, product, taking, restoring }
    }

    /// Chooses the moment of a full backup, or of an incremental one. What keeps it from being made is said
    /// here, before a byte of it is written.
    pub async fn begin(&self, base: Option<Base>) -> Result<Taking, BackupError> {
        let only = Arc::clone(&self.taking).try_acquire_owned().map_err(|_| BackupError::Busy)?;
        let taken = self.clock.now();
        let snapshot = self.store.snapshot().await?;
        if let Some(base) = base {
            check_kept(&*snapshot, base).await?;
        }
        let estimate = match base {
            None => snapshot.estimate().await?,
            Some(_) => None,
        };
        let keys = self.keys.clone();
        let about = About { id: self.random.guid(), taken, product: self.product.into() };
        Ok(Taking { snapshot, base, keys, about, estimate, _only: only })
    }

    /// Restores one table under a new name, as [`restore_table`] does. Unless the choice says otherwise, its Timestamps may be
    /// ahead of the clock only by as much as the dates of signatures, and its TTL is left off if entities have expired since the
    /// backup was taken.
    pub async fn restore_table<R: AsyncRead + Unpin>(
        &self,
        choice: TableChoice,
        source: R,
    ) -> Result<RestoredTable, BackupError> {
        let allowed = || self.clock.now().plus_seconds(CLOCK_SKEW_SECONDS);
        let until = Some(choice.until.unwrap_or_else(allowed));
        let expired_by = Some(choice.expired_by.unwrap_or_else(|| self.clock.now()));
        let choice = TableChoice { until, expired_by, ..choice };
        let _only = self.restoring.try_acquire().map_err(|_| BackupError::Busy)?;
        restore_table(Arc::clone(&self.store), choice, source).await
    }
}

impl Taking {
    /// About how much it will hold, if that is known: of bytes, those before they are compressed.
    pub fn estimate(&self) -> Option<Estimate> {
        self.estimate
    }

    /// Writes it. Whoever takes the bytes decides how fast; one who takes none ends it by hanging up.
    pub async fn write<W: AsyncWrite + Unpin>(self, sink: W) -> Result<Totals, BackupError> {
        let Self { snapshot, base, keys, about, _only, .. } = self;
        match base {
            None => write_full(&*snapshot, &keys, about, sink).await,
            Some(base) => write_incremental(&*snapshot, &keys, base, about, sink).await,
        }
    }
}
