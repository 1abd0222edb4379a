//! The contract between services and engines: what a store promises, in a few methods.
//!
//! At the level of accounts, tables, entities, queues and messages, so that an engine may keep filters, indexes and routing
//! in its own language. Every promise below has a test in `conformance`, which every engine
//! passes; promises hold for all engines unless marked *single-node*.
//!
//! Nothing here knows of HTTP, JSON or SQL.

mod batch;
mod catalogue;
mod changes;
mod error;
mod half;
mod index;
mod queue;
mod scan;
mod snapshot;
mod sort;
mod ttl;

#[cfg(feature = "conformance")]
pub mod conformance;
#[cfg(feature = "conformance")]
pub mod model;

pub use batch::{Batch, Command, Committed, Condition, Write};
pub use catalogue::{Account, AccountId, NewAccount, Placement, Table, TableId};
pub use changes::{Change, Changes, ChangesWanted, Kept};
pub use error::{BoxError, Conflict, StoreError};
pub use half::Half;
pub use index::{Built, EntryPlace, Extent, Index, IndexId, IndexState, Lookup, Walk, WalkPage};
pub use queue::{
    Message, MessageAction, MessageCommand, MessagePage, MessagePlace, Metadata, Queue, QueueId,
};
pub use rowhouse_query::index::IndexKeys;
pub use scan::{Page, Scan, Take};
pub use snapshot::{Estimate, Snapshot};
pub use sort::{First, Sort};
pub use ttl::{Expiry, Ttl};

use async_trait::async_trait;
use rowhouse_types::{
    AccountName, EntityKey, FoldedName, IndexName, QueueName, Record, StoredPolicy, TableName,
    Timestamp,
};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Durable storage of accounts, tables, entities, ordered by partition key and then row key, and queues of messages.
///
/// Object-safe: configuration chooses the engine at start. Conveniences are built on top of these
/// few methods. Whatever returns `Ok` after changing something would survive a power cut. A change is
/// seen by every read that starts after it was answered.
#[async_trait]
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// Reads one entity at its latest committed state.
    async fn get(&self, table: TableId, key: &EntityKey) -> Result<Option<Record>, StoreError>;

    /// Reads or counts entities in key order within the ranges, those that satisfy the filter, until a limit of
    /// the [`Scan`] is reached, with where to resume.
    ///
    /// A page is one snapshot of each partition it reads (of the whole page: *single-node*); two pages of one
    /// query need not be. A page may be empty and still say where to resume. Resuming works
    /// whether or not the entity at that place still exists. What is outside the ranges changes nothing in a page.
    async fn scan(&self, table: TableId, scan: Scan) -> Result<Page, StoreError>;

    /// Runs every command of the batch, or none: entities of any tables and partitions, then messages of any queues.
    ///
    /// The only write path of data: one insert is a batch of one. Commands carry their own conditions and
    /// see the effects of those before them; the first that fails is named by position. A command on a
    /// table that has been dropped fails with [`Conflict::TableNotFound`], whoever looked the table up
    /// before; one on a queue, with [`Conflict::QueueNotFound`]. Batches are serialisable: there is one order that explains every answer.
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

    /// Creates a table under an id that was never used before, without access policies.
    ///
    /// Fails with [`Conflict::TableExists`] or [`Conflict::AccountNotFound`].
    async fn create_table(
        &self,
        account: AccountId,
        name: &TableName,
        placement: Placement,
    ) -> Result<Arc<Table>, StoreError> {
        self.create_table_with_policies(account, name, placement, Vec::new(), u64::MAX).await
    }

    /// Creates a table as [`Store::create_table`] does, which has these access policies from the beginning: nobody ever
    /// finds it without them, whatever happens meanwhile.
    ///
    /// Fails with [`Conflict::TooManyTables`] if it is not there and the account has `most` tables or more. However many
    /// tables are created at the same time, on however many servers, the account never has more.
    async fn create_table_with_policies(
        &self,
        account: AccountId,
        name: &TableName,
        placement: Placement,
        policies: Vec<StoredPolicy>,
        most: u64,
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

    /// Has the entities of a table expire, or no longer. Whatever is read or judged after the answer goes by it; what
    /// has expired under an earlier setting and is still there is there again if it has not under this one.
    /// Fails with [`Conflict::TableNotFound`].
    async fn set_ttl(&self, table: TableId, ttl: Option<Ttl>) -> Result<(), StoreError>;

    /// Declares an index of a table under an id that was never used before. Every commit that is answered later
    /// keeps it; what is there is entered in the background, and goes on after a restart.
    ///
    /// A unique index refuses, from now on, a command that would give two entities of the table the same values, with
    /// [`Conflict::NotUnique`]; as any condition it is judged command by command, in order.
    ///
    /// Fails with [`Conflict::TableNotFound`], [`Conflict::IndexExists`], [`Conflict::TooManyIndexes`], and where a
    /// table is spread over nodes with [`Conflict::UniqueAcrossNodes`] unless PartitionKey is among the properties.
    async fn create_index(
        &self,
        table: TableId,
        name: &IndexName,
        keys: IndexKeys,
    ) -> Result<Index, StoreError>;

    /// Drops an index: its name is free and nothing reads or keeps it at once; its space comes back in the background.
    /// Fails with [`Conflict::IndexNotFound`].
    async fn drop_index(&self, table: TableId, index: IndexId) -> Result<(), StoreError>;

    /// How far an index is built. Fails with [`Conflict::IndexNotFound`].
    async fn built(&self, table: TableId, index: IndexId) -> Result<Built, StoreError>;

    /// Reads entities in the order of an index, with where to resume; the promises of [`Store::scan`] about pages hold.
    /// Fails with [`Conflict::IndexNotFound`] if it is not there or not ready.
    async fn walk(&self, table: TableId, walk: Walk) -> Result<WalkPage, StoreError>;

    /// Reads all that is wanted and returns the first of it in an order that no index has, with where to resume; a page is
    /// of one moment, as those of [`Store::scan`] are, however much is read for it. None if there was not enough time.
    async fn sort(&self, table: TableId, sort: Sort) -> Result<Option<WalkPage>, StoreError>;

    /// How many entities or entries one would look at to read all of this, no further than `bound`: what a planner
    /// compares. An engine may estimate, and is right when there are few. Nothing outside the ranges of the extent changes the
    /// answer. What has expired counts for as long as it is there to be looked at.
    /// Fails with [`Conflict::IndexNotFound`] if an index is not there or not ready.
    async fn weigh(&self, table: TableId, extent: Extent, bound: u64) -> Result<u64, StoreError>;

    /// Looks a queue up by name.
    async fn queue(
        &self,
        account: AccountId,
        name: &QueueName,
    ) -> Result<Option<Arc<Queue>>, StoreError>;

    /// At most `limit` queues of the account in the order of their names, from that text on.
    async fn queues(
        &self,
        account: AccountId,
        from: &str,
        limit: usize,
    ) -> Result<Vec<Arc<Queue>>, StoreError>;

    /// Creates a queue under an id that was never used before.
    ///
    /// Fails with [`Conflict::QueueExists`] or [`Conflict::AccountNotFound`].
    async fn create_queue(
        &self,
        account: AccountId,
        name: &QueueName,
        metadata: Metadata,
    ) -> Result<Arc<Queue>, StoreError> {
        self.create_queue_within(account, name, metadata, u64::MAX).await
    }

    /// Creates a queue as [`Store::create_queue`] does, unless the account would have more than `most` then: fails with
    /// [`Conflict::TooManyQueues`] if it is not there and the account has so many or more. However many queues are created
    /// at the same time, on however many servers, the account never has more.
    async fn create_queue_within(
        &self,
        account: AccountId,
        name: &QueueName,
        metadata: Metadata,
        most: u64,
    ) -> Result<Arc<Queue>, StoreError>;

    /// Drops a queue: its name is free and its messages are unreachable at once; their space comes back in the
    /// background. Fails with [`Conflict::QueueNotFound`].
    async fn drop_queue(&self, queue: QueueId) -> Result<(), StoreError>;

    /// Replaces what a queue's users say about it. Fails with [`Conflict::QueueNotFound`].
    async fn set_metadata(&self, queue: QueueId, metadata: Metadata) -> Result<(), StoreError>;

    /// Replaces the access policies of a queue. Fails with [`Conflict::QueueNotFound`].
    async fn set_queue_policies(
        &self,
        queue: QueueId,
        policies: Vec<StoredPolicy>,
    ) -> Result<(), StoreError>;

    /// The messages that [`MessageAction::Take`] would give out next, at most so many. Fails with [`Conflict::QueueNotFound`].
    async fn peek(&self, queue: QueueId, limit: usize) -> Result<Vec<Message>, StoreError>;

    /// How many messages a queue has, visible or not; never fewer than there are. Those that have expired may be among
    /// them until they are swept. Fails with [`Conflict::QueueNotFound`].
    async fn message_count(&self, queue: QueueId) -> Result<u64, StoreError>;

    /// Looks an account up by name.
    async fn account(&self, name: &AccountName) -> Result<Option<Arc<Account>>, StoreError>;

    /// All accounts, in the order of their names.
    async fn accounts(&self) -> Result<Vec<Arc<Account>>, StoreError>;

    /// Creates an account under an id that was never used before. Fails with [`Conflict::AccountExists`].
    async fn create_account(&self, account: NewAccount) -> Result<Arc<Account>, StoreError>;

    /// Replaces the sealed keys of an account that has this version; a change in between is never overwritten.
    /// Fails with [`Conflict::AccountNotFound`], or [`Conflict::AccountChanged`] if it has another version.
    async fn set_account_keys(
        &self,
        account: AccountId,
        version: u64,
        keys: [Box<[u8]>; 2],
    ) -> Result<(), StoreError>;

    /// Stores or removes a named setting of an account: bytes that only a service understands. With a version, only
    /// if the account has it: a value that was made from an earlier one needs that.
    /// Fails with [`Conflict::AccountNotFound`], or [`Conflict::AccountChanged`] if it has another version.
    async fn set_account_setting(
        &self,
        account: AccountId,
        version: Option<u64>,
        name: &str,
        value: Option<Box<[u8]>>,
    ) -> Result<(), StoreError>;

    /// Removes an account with all its tables and queues. Fails with [`Conflict::AccountNotFound`].
    async fn remove_account(&self, account: AccountId) -> Result<(), StoreError>;

    /// A view of everything as it is now, which later changes do not alter.
    async fn snapshot(&self) -> Result<Box<dyn Snapshot>, StoreError>;

    /// From now on keeps every change of an entity, for so long after it was made; none stops that and
    /// forgets what was kept. The setting is part of the store: it holds for every server on it, and
    /// after a restart. Setting it to what it is forgets nothing.
    async fn keep_changes(&self, retention: Option<Duration>) -> Result<(), StoreError>;

    /// Which changes there are; none if they are not kept.
    async fn kept_changes(&self) -> Result<Option<Kept>, StoreError>;

    /// Reads changes that are durable, every one and each once for every place that is asked from.
    /// Fails with [`Conflict::ChangesNotKept`] if some after the place are no longer there.
    async fn changes(&self, wanted: ChangesWanted) -> Result<Changes, StoreError>;

    /// Whether the store can take writes: no write or fsync has failed that it has not recovered from, and there are
    /// Timestamps left to give out.
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
