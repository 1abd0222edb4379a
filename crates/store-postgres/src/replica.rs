//! A copy of the database that follows it, for reading only.

use crate::cache::Cache;
use crate::nodes::Nodes;
use crate::options::{OpenError, Options, Url};
use crate::pool::Pool;
use crate::queue::Now;
use crate::reader::Reader;
use crate::store::PostgresStore;
use crate::time::ExpiryTime;
use async_trait::async_trait;
use rowhouse_env::Clock;
use rowhouse_query::index::IndexKeys;
use rowhouse_store::{
    Account, AccountId, Batch, Built, Changes, ChangesWanted, Committed, Conflict, Extent, Index,
    IndexId, Kept, Message, Metadata, NewAccount, Page, Placement, Queue, QueueId, Scan, Snapshot,
    Sort, Store, StoreError, Table, TableId, Ttl, Walk, WalkPage,
};
use rowhouse_types::{
    AccountName, EntityKey, FoldedName, IndexName, QueueName, Record, StoredPolicy, TableName,
    Timestamp,
};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long accounts and tables are remembered: a copy is behind anyway.
const REMEMBER: Duration = Duration::from_secs(1);
/// Every change that was committed until then is here. The servers write twice a second, so it is never old.
const SYNCED: &str = "SELECT floor(extract(epoch FROM
    CASE WHEN pg_is_in_recovery() THEN pg_last_xact_replay_timestamp() ELSE now() END) * 1e7)::bigint";

/// A store that reads from a replica of another one's database. It may be behind, and takes no writes.
#[derive(Debug)]
pub struct PostgresReplica {
    reader: Reader,
    forgotten: Mutex<Instant>,
}

impl PostgresReplica {
    /// Makes no connection yet: a replica that cannot be reached is no reason not to start.
    pub fn new(url: &Url, options: &Options, clock: Arc<dyn Clock>) -> Result<Self, OpenError> {
        let pool = Pool::new(url, options)?;
        let nodes = Arc::new(Nodes::new(pool, options.clone()));
        let time = ExpiryTime::new(clock, options.queue_clock);
        let reader = Reader { nodes, cache: Arc::new(Cache::default()), time };
        Ok(Self { reader, forgotten: Mutex::new(Instant::now()) })
    }

    /// What has expired is decided by the same clock as in that store: the one of its database.
    #[must_use]
    pub fn with_time_of(mut self, store: &PostgresStore) -> Self {
        self.reader.time = store.expiry_time();
        self
    }

    /// Forgets what is too old; what is left may be trusted.
    fn trust(&self) -> bool {
        let mut forgotten = self.forgotten.lock().unwrap_or_else(PoisonError::into_inner);
        if forgotten.elapsed() > REMEMBER {
            self.reader.cache.forget();
            *forgotten = Instant::now();
        }
        true
    }
}

fn refused<T>() -> Result<T, StoreError> {
    Err(StoreError::unavailable("a replica takes no writes"))
}

#[async_trait]
impl Store for PostgresReplica {
    async fn get(&self, table: TableId, key: &EntityKey) -> Result<Option<Record>, StoreError> {
        self.reader.get(table, key, self.trust()).await
    }

    async fn scan(&self, table: TableId, scan: Scan) -> Result<Page, StoreError> {
        self.reader.scan(table, &scan, self.trust()).await
    }

    async fn commit(&self, _: Batch) -> Result<Committed, StoreError> {
        refused()
    }

    async fn table(
        &self,
        account: AccountId,
        name: &TableName,
    ) -> Result<Option<Arc<Table>>, StoreError> {
        self.reader.table(account, name, self.trust()).await
    }

    async fn tables(
        &self,
        account: AccountId,
        from: Option<&FoldedName>,
        limit: usize,
    ) -> Result<Vec<Arc<Table>>, StoreError> {
        self.reader.tables(account, from, limit).await
    }

    async fn create_table_with_policies(
        &self,
        _: AccountId,
        _: &TableName,
        _: Placement,
        _: Vec<StoredPolicy>,
        _: u64,
    ) -> Result<Arc<Table>, StoreError> {
        refused()
    }

    async fn drop_table(&self, _: TableId) -> Result<(), StoreError> {
        refused()
    }

    async fn set_policies(&self, _: TableId, _: Vec<StoredPolicy>) -> Result<(), StoreError> {
        refused()
    }

    async fn set_ttl(&self, _: TableId, _: Option<Ttl>) -> Result<(), StoreError> {
        refused()
    }

    async fn create_index(
        &self,
        _: TableId,
        _: &IndexName,
        _: IndexKeys,
    ) -> Result<Index, StoreError> {
        refused()
    }

    async fn drop_index(&self, _: TableId, _: IndexId) -> Result<(), StoreError> {
        refused()
    }

    async fn built(&self, table: TableId, index: IndexId) -> Result<Built, StoreError> {
        self.reader.built(table, index).await
    }

    async fn walk(&self, table: TableId, walk: Walk) -> Result<WalkPage, StoreError> {
        self.reader.walk(table, &walk, self.trust()).await
    }

    async fn sort(&self, table: TableId, sort: Sort) -> Result<Option<WalkPage>, StoreError> {
        self.reader.sort(table, &sort, self.trust()).await
    }

    async fn weigh(&self, table: TableId, extent: Extent, bound: u64) -> Result<u64, StoreError> {
        self.reader.weigh(table, &extent, bound).await
    }

    async fn queue(
        &self,
        account: AccountId,
        name: &QueueName,
    ) -> Result<Option<Arc<Queue>>, StoreError> {
        self.reader.queue(account, name, self.trust()).await
    }

    async fn queues(
        &self,
        account: AccountId,
        from: &str,
        limit: usize,
    ) -> Result<Vec<Arc<Queue>>, StoreError> {
        self.reader.queues(account, from, limit).await
    }

    async fn create_queue_within(
        &self,
        _: AccountId,
        _: &QueueName,
        _: Metadata,
        _: u64,
    ) -> Result<Arc<Queue>, StoreError> {
        refused()
    }

    async fn drop_queue(&self, _: QueueId) -> Result<(), StoreError> {
        refused()
    }

    async fn set_metadata(&self, _: QueueId, _: Metadata) -> Result<(), StoreError> {
        refused()
    }

    async fn set_queue_policies(&self, _: QueueId, _: Vec<StoredPolicy>) -> Result<(), StoreError> {
        refused()
    }

    async fn peek(&self, queue: QueueId, limit: usize) -> Result<Vec<Message>, StoreError> {
        self.reader.peek(queue, limit, Now(None)).await
    }

    async fn message_count(&self, queue: QueueId) -> Result<u64, StoreError> {
        self.reader.message_count(queue, Now(None)).await
    }

    async fn account(&self, name: &AccountName) -> Result<Option<Arc<Account>>, StoreError> {
        self.reader.account(name, self.trust()).await
    }

    async fn accounts(&self) -> Result<Vec<Arc<Account>>, StoreError> {
        self.reader.accounts().await
    }

    async fn create_account(&self, _: NewAccount) -> Result<Arc<Account>, StoreError> {
        refused()
    }

    async fn set_account_keys(
        &self,
        _: AccountId,
        _: u64,
        _: [Box<[u8]>; 2],
    ) -> Result<(), StoreError> {
        refused()
    }

    async fn set_account_setting(
        &self,
        _: AccountId,
        _: Option<u64>,
        _: &str,
        _: Option<Box<[u8]>>,
    ) -> Result<(), StoreError> {
        refused()
    }

    async fn remove_account(&self, _: AccountId) -> Result<(), StoreError> {
        refused()
    }

    async fn snapshot(&self) -> Result<Box<dyn Snapshot>, StoreError> {
        Err(StoreError::unavailable("views are taken of the database itself"))
    }

    async fn keep_changes(&self, _: Option<Duration>) -> Result<(), StoreError> {
        refused()
    }

    async fn kept_changes(&self) -> Result<Option<Kept>, StoreError> {
        Ok(None)
    }

    async fn changes(&self, _: ChangesWanted) -> Result<Changes, StoreError> {
        Err(StoreError::rejected(Conflict::ChangesNotKept))
    }

    fn ready(&self) -> Result<(), StoreError> {
        refused()
    }

    async fn synced(&self) -> Result<Option<Timestamp>, StoreError> {
        let ask = |session: crate::pool::Session| async move { session.row(SYNCED, &[]).await };
        let row = self.reader.read(ask).await?;
        let since_1970: Option<i64> = row.and_then(|row| row.get(0));
        let since_1970 = since_1970.ok_or(StoreError::Busy)?;
        let micros = u64::try_from(since_1970 / 10).unwrap_or(0);
        Ok(Some(Timestamp::from_unix(Duration::from_micros(micros))))
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.reader.nodes.close();
        Ok(())
    }
}
