//! Backups of a store that is in use.

use crate::error::BackupError;
use crate::items::{Base, Totals};
use crate::table::{RestoredTable, TableChoice, restore_table};
use crate::write::{About, check_kept, write_full, write_incremental};
use rowhouse_env::{Clock, Random};
use rowhouse_store::{Snapshot, Store};
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Takes backups and restores tables: one of each at a time, because both are much work.
#[derive(Debug)]
pub struct BackupService {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
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
    about: About,
    _only: OwnedSemaphorePermit,
}

impl BackupService {
    /// A service over a store; `product` is the release that backups name as their origin.
    pub fn new(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
        product: &'static str,
    ) -> Self {
        let (taking, restoring) = (Arc::new(Semaphore::new(1)), Arc::new(Semaphore::new(1)));
        Self { store, clock, random, product, taking, restoring }
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
        let about = About { id: self.random.guid(), taken, product: self.product.into() };
        Ok(Taking { snapshot, base, about, _only: only })
    }

    /// Restores one table under a new name, as [`restore_table`] does.
    pub async fn restore_table<R: AsyncRead + Unpin>(
        &self,
        choice: TableChoice,
        source: R,
    ) -> Result<RestoredTable, BackupError> {
        let _only = self.restoring.try_acquire().map_err(|_| BackupError::Busy)?;
        restore_table(Arc::clone(&self.store), choice, source).await
    }
}

impl Taking {
    /// Writes it. Whoever takes the bytes decides how fast; one who takes none ends it by hanging up.
    pub async fn write<W: AsyncWrite + Unpin>(self, sink: W) -> Result<Totals, BackupError> {
        match self.base {
            None => write_full(&*self.snapshot, self.about, sink).await,
            Some(base) => write_incremental(&*self.snapshot, base, self.about, sink).await,
        }
    }
}
