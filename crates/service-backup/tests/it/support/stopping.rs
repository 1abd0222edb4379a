//! A store that stops taking changes of its catalogue, as if its server had been killed there, or refuses all batches.

use async_trait::async_trait;
use rowhouse_store::{
    Account, AccountId, Batch, Built, Changes, ChangesWanted, Committed, Conflict, Extent, Index,
    IndexId, IndexKeys, Kept, Message, Metadata, NewAccount, Page, Placement, Queue, QueueId, Scan,
    Snapshot, Sort, Store, StoreError, Table, TableId, Ttl, Walk, WalkPage,
};
use rowhouse_types::{
    AccountName, EntityKey, FoldedName, IndexName, QueueName, Record, StoredPolicy, TableName,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

#[derive(Debug)]
pub(crate) struct Stopping {
    inner: Arc<dyn Store>,
    left: AtomicUsize,
    refusal: Option<Conflict>,
}

impl Stopping {
    /// Takes so many changes of tables and accounts, and no more.
    pub(crate) fn after(changes: usize, inner: &Arc<dyn Store>) -> Arc<dyn Store> {
        let (inner, left) = (Arc::clone(inner), AtomicUsize::new(changes));
        Arc::new(Self { inner, left, refusal: None })
    }

    /// Takes all of these, but no batch.
    pub(crate) fn refusing(reason: Conflict, inner: &Arc<dyn Store>) -> Arc<dyn Store> {
        let (inner, left) = (Arc::clone(inner), AtomicUsize::new(usize::MAX));
        Arc::new(Self { inner, left, refusal: Some(reason) })
    }

    fn step(&self) -> Result<(), StoreError> {
        let less = |left: usize| left.checked_sub(1);
        match self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less) {
            Ok(_) => Ok(()),
            Err(_) => Err(StoreError::unavailable("stopped")),
        }
    }
}

#[async_trait]
impl Store for Stopping {
    async fn get(&self, table: TableId, key: &EntityKey) -> Result<Option<Record>, StoreError> {
        self.inner.get(table, key).await
    }

    async fn scan(&self, table: TableId, scan: Scan) -> Result<Page, StoreError> {
        self.inner.scan(table, scan).await
    }

    async fn commit(&self, batch: Batch) -> Result<Committed, StoreError> {
        match self.refusal {
            Some(reason) => Err(StoreError::rejected(reason)),
            None => self.inner.commit(batch).await,
        }
    }

    async fn table(
        &self,
        account: AccountId,
        name: &TableName,
    ) -> Result<Option<Arc<Table>>, StoreError> {
        self.inner.table(account, name).await
    }

    async fn tables(
        &self,
        account: AccountId,
        from: Option<&FoldedName>,
        limit: usize,
    ) -> Result<Vec<Arc<Table>>, StoreError> {
        self.inner.tables(account, from, limit).await
    }

    async fn create_table_with_policies(
        &self,
        account: AccountId,
        name: &TableName,
        placement: Placement,
        policies: Vec<StoredPolicy>,
        most: u64,
    ) -> Result<Arc<Table>, StoreError> {
        self.step()?;
        self.inner.create_table_with_policies(account, name, placement, policies, most).await
    }

    async fn drop_table(&self, table: TableId) -> Result<(), StoreError> {
        self.step()?;
        self.inner.drop_table(table).await
    }

    async fn set_policies(
        &self,
        table: TableId,
        policies: Vec<StoredPolicy>,
    ) -> Result<(), StoreError> {
        self.step()?;
        self.inner.set_policies(table, policies).await
    }

    async fn set_ttl(&self, table: TableId, ttl: Option<Ttl>) -> Result<(), StoreError> {
        self.step()?;
        self.inner.set_ttl(table, ttl).await
    }

    async fn create_index(
        &self,
        table: TableId,
        name: &IndexName,
        keys: IndexKeys,
    ) -> Result<Index, StoreError> {
        self.step()?;
        self.inner.create_index(table, name, keys).await
    }

    async fn drop_index(&self, table: TableId, index: IndexId) -> Result<(), StoreError> {
        self.step()?;
        self.inner.drop_index(table, index).await
    }

    async fn built(&self, table: TableId, index: IndexId) -> Result<Built, StoreError> {
        self.inner.built(table, index).await
    }

    async fn walk(&self, table: TableId, walk: Walk) -> Result<WalkPage, StoreError> {
        self.inner.walk(table, walk).await
    }

    async fn sort(&self, table: TableId, sort: Sort) -> Result<Option<WalkPage>, StoreError> {
        self.inner.sort(table, sort).await
    }

    async fn weigh(&self, table: TableId, extent: Extent, bound: u64) -> Result<u64, StoreError> {
        self.inner.weigh(table, extent, bound).await
    }

    async fn queue(
        &self,
        account: AccountId,
        name: &QueueName,
    ) -> Result<Option<Arc<Queue>>, StoreError> {
        self.inner.queue(account, name).await
    }

    async fn queues(
        &self,
        account: AccountId,
        from: &str,
        limit: usize,
    ) -> Result<Vec<Arc<Queue>>, StoreError> {
        self.inner.queues(account, from, limit).await
    }

    async fn create_queue_within(
        &self,
        account: AccountId,
        name: &QueueName,
        metadata: Metadata,
        most: u64,
    ) -> Result<Arc<Queue>, StoreError> {
        self.inner.create_queue_within(account, name, metadata, most).await
    }

    async fn drop_queue(&self, queue: QueueId) -> Result<(), StoreError> {
        self.inner.drop_queue(queue).await
    }

    async fn set_metadata(&self, queue: QueueId, metadata: Metadata) -> Result<(), StoreError> {
        self.inner.set_metadata(queue, metadata).await
    }

    async fn set_queue_policies(
        &self,
        queue: QueueId,
        policies: Vec<StoredPolicy>,
    ) -> Result<(), StoreError> {
        self.inner.set_queue_policies(queue, policies).await
    }

    async fn peek(&self, queue: QueueId, limit: usize) -> Result<Vec<Message>, StoreError> {
        self.inner.peek(queue, limit).await
    }

    async fn message_count(&self, queue: QueueId) -> Result<u64, StoreError> {
        self.inner.message_count(queue).await
    }

    async fn account(&self, name: &AccountName) -> Result<Option<Arc<Account>>, StoreError> {
        self.inner.account(name).await
    }

    async fn accounts(&self) -> Result<Vec<Arc<Account>>, StoreError> {
        self.inner.accounts().await
    }

    async fn create_account(&self, account: NewAccount) -> Result<Arc<Account>, StoreError> {
        self.inner.create_account(account).await
    }

    async fn set_account_keys(
        &self,
        account: AccountId,
        version: u64,
        keys: [Box<[u8]>; 2],
    ) -> Result<(), StoreError> {
        self.inner.set_account_keys(account, version, keys).await
    }

    async fn set_account_setting(
        &self,
        account: AccountId,
        version: Option<u64>,
        name: &str,
        value: Option<Box<[u8]>>,
    ) -> Result<(), StoreError> {
        self.step()?;
        self.inner.set_account_setting(account, version, name, value).await
    }

    async fn remove_account(&self, account: AccountId) -> Result<(), StoreError> {
        self.inner.remove_account(account).await
    }

    async fn snapshot(&self) -> Result<Box<dyn Snapshot>, StoreError> {
        self.inner.snapshot().await
    }

    async fn keep_changes(&self, retention: Option<Duration>) -> Result<(), StoreError> {
        self.inner.keep_changes(retention).await
    }

    async fn kept_changes(&self) -> Result<Option<Kept>, StoreError> {
        self.inner.kept_changes().await
    }

    async fn changes(&self, wanted: ChangesWanted) -> Result<Changes, StoreError> {
        self.inner.changes(wanted).await
    }

    fn ready(&self) -> Result<(), StoreError> {
        self.inner.ready()
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.inner.close().await
    }
}
