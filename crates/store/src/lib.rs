//! The contract between services and engines: what a store promises, in a few methods.
//!
//! At the level of accounts, tables and entities, so that an engine may keep filters, indexes and routing
//! in its own language. Every promise below has a test in `conformance`, which every engine
//! passes; promises hold for all engines unless marked *single-node*.
//!
//! Nothing here knows of HTTP, JSON or SQL.

mod batch;
mod catalogue;
mod error;
mod scan;

#[cfg(feature = "conformance")]
pub mod conformance;
#[cfg(feature = "conformance")]
pub mod model;

pub use batch::{Batch, Command, Committed, Condition, Write};
pub use catalogue::{Account, AccountId, NewAccount, Placement, Table, TableId};
pub use error::{BoxError, Conflict, StoreError};
pub use scan::{Page, Scan};

use async_trait::async_trait;
use rowhouse_types::{
    AccountName, EntityKey, FoldedName, Record, StoredPolicy, TableName, Timestamp,
};
use std::fmt;
use std::sync::Arc;

/// Durable storage of accounts, tables and entities, ordered by partition key and then row key.
///
/// Object-safe: configuration chooses the engine at start. Conveniences are built on top of these
/// few methods. Whatever returns `Ok` after changing something would survive a power cut. A change is
/// seen by every read that starts after it was answered.
#[async_trait]
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// Reads one entity at its latest committed state.
    async fn get(&self, table: TableId, key: &EntityKey) -> Result<Option<Record>, StoreError>;

    /// Reads entities in key order within the ranges, those that satisfy the filter, until a limit of
    /// the [`Scan`] is reached, with where to resume.
    ///
    /// A page is one snapshot of each partition it reads (of the whole page: *single-node*); two pages of one
    /// query need not be. A page may be empty and still say where to resume. Resuming works
    /// whether or not the entity at that place still exists.
    async fn scan(&self, table: TableId, scan: Scan) -> Result<Page, StoreError>;

    /// Runs every command of the batch, or none: entities of any tables and partitions.
    ///
    /// The only write path of data: one insert is a batch of one. Commands carry their own conditions and
    /// see the effects of those before them; the first that fails is named by position. A command on a
    /// table that has been dropped fails with [`Conflict::TableNotFound`], whoever looked the table up
    /// before. Batches are serialisable: there is one order that explains every answer.
    ///
    /// The Timestamps given out rise strictly: an entity's ETag never repeats, not even after a delete, a
    /// restart or a wall clock set back.
    ///
    /// Every error but [`StoreError::OutcomeUnknown`] says that nothing was written.
    async fn commit(&self, batch: Batch) -> Result<Committed, StoreError>;

    /// Looks a table up by name, whatever its case.
    async fn table(
        &self,
        account: AccountId,
        name: &TableName,
    ) -> Result<Option<Arc<Table>>, StoreError>;

    /// At most `limit` tables of the account in the order of their folded names, from `from` on.
    async fn tables(
        &self,
        account: AccountId,
        from: Option<&FoldedName>,
        limit: usize,
    ) -> Result<Vec<Arc<Table>>, StoreError>;

    /// Creates a table under an id that was never used before.
    ///
    /// Fails with [`Conflict::TableExists`] or [`Conflict::AccountNotFound`].
    async fn create_table(
        &self,
        account: AccountId,
        name: &TableName,
        placement: Placement,
    ) -> Result<Arc<Table>, StoreError>;

    /// Drops a table: its name is free and its entities are unreachable at once; their space comes back
    /// in the background. Fails with [`Conflict::TableNotFound`].
    async fn drop_table(&self, table: TableId) -> Result<(), StoreError>;

    /// Replaces the access policies of a table. Fails with [`Conflict::TableNotFound`].
    async fn set_policies(
        &self,
        table: TableId,
        policies: Vec<StoredPolicy>,
    ) -> Result<(), StoreError>;

    /// Looks an account up by name.
    async fn account(&self, name: &AccountName) -> Result<Option<Arc<Account>>, StoreError>;

    /// All accounts, in the order of their names.
    async fn accounts(&self) -> Result<Vec<Arc<Account>>, StoreError>;

    /// Creates an account under an id that was never used before. Fails with [`Conflict::AccountExists`].
    async fn create_account(&self, account: NewAccount) -> Result<Arc<Account>, StoreError>;

    /// Replaces the sealed keys of an account. Fails with [`Conflict::AccountNotFound`].
    async fn set_account_keys(
        &self,
        account: AccountId,
        keys: [Box<[u8]>; 2],
    ) -> Result<(), StoreError>;

    /// Stores or removes a named setting of an account: bytes that only a service understands.
    /// Fails with [`Conflict::AccountNotFound`].
    async fn set_account_setting(
        &self,
        account: AccountId,
        name: &str,
        value: Option<Box<[u8]>>,
    ) -> Result<(), StoreError>;

    /// Removes an account with all its tables. Fails with [`Conflict::AccountNotFound`].
    async fn remove_account(&self, account: AccountId) -> Result<(), StoreError>;

    /// Whether the store can take writes. Once a write or fsync has failed it cannot, until a restart.
    fn ready(&self) -> Result<(), StoreError>;

    /// Until when reads here show everything that was answered, if this is a copy that follows another
    /// store; `None` if it is none.
    async fn synced(&self) -> Result<Option<Timestamp>, StoreError> {
        Ok(None)
    }

    /// Finishes what was accepted, refuses the rest with [`StoreError::Unavailable`] and releases
    /// everything. Calling it again does nothing.
    async fn close(&self) -> Result<(), StoreError>;
}
