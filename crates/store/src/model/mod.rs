//! The contract in the most obvious way: sorted maps behind one lock.
//!
//! For tests only. Engines are compared with it step by step, and the layers above are tested on it
//! without a disk. It keeps every promise of [`Store`] except that it forgets everything with the last
//! handle; speed is no concern of it.

mod indexes;
mod queues;
mod state;

use self::state::{Effects, State};
use crate::{
    Account, AccountId, Batch, Built, Changes, ChangesWanted, Committed, Conflict, Estimate,
    Extent, First, Index, IndexId, Kept, Message, MessagePage, MessagePlace, Metadata, NewAccount,
    Page, Placement, Queue, QueueId, Scan, Snapshot, Sort, Store, StoreError, Table, TableId, Ttl,
    Walk, WalkPage,
};
use async_trait::async_trait;
use rowhouse_env::Clock;
use rowhouse_query::index::IndexKeys;
use rowhouse_types::{
    AccountName, EntityKey, FoldedName, IndexName, QueueName, Record, StoredPolicy, TableName,
};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A store in memory.
#[derive(Debug)]
pub struct ModelStore {
    clock: Arc<dyn Clock>,
    state: Arc<Mutex<State>>,
    closed: AtomicBool,
    creations: AtomicUsize,
}

impl ModelStore {
    /// An empty store.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            state: Arc::default(),
            closed: AtomicBool::default(),
            creations: AtomicUsize::default(),
        }
    }

    /// How often this handle was asked to create a queue, whatever came of it: engines pay for each.
    pub fn queue_creations(&self) -> usize {
        self.creations.load(Ordering::Relaxed)
    }

    /// Another handle to the same data, open whether or not this one is: what a restart is to an engine.
    pub fn reopen(&self) -> Self {
        Self {
            clock: Arc::clone(&self.clock),
            state: Arc::clone(&self.state),
            closed: AtomicBool::default(),
            creations: AtomicUsize::default(),
        }
    }

    fn state(&self) -> Result<MutexGuard<'_, State>, StoreError> {
        self.ready()?;
        // A test that panicked elsewhere does not make the maps inconsistent: changes are applied last.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.expire(self.clock.now());
        Ok(state)
    }
}

#[async_trait]
impl Store for ModelStore {
    async fn get(&self, table: TableId, key: &EntityKey) -> Result<Option<Record>, StoreError> {
        Ok(self.state()?.entities(table)?.get(key).cloned())
    }

    async fn scan(&self, table: TableId, scan: Scan) -> Result<Page, StoreError> {
        self.state()?.scan(table, &scan)
    }

    async fn commit(&self, batch: Batch) -> Result<Committed, StoreError> {
        let mut state = self.state()?;
        let timestamp = self.clock.now().max(state.last_timestamp.next());
        let mut effects = Effects::default();
        let at = |index: usize| {
            move |error| match error {
                StoreError::Rejected { reason, .. } => StoreError::Rejected { index, reason },
                other => other,
            }
        };
        let entities = batch.commands.len();
        for (index, command) in batch.commands.into_iter().enumerate() {
            state.run(command, timestamp, &mut effects).map_err(at(index))?;
        }
        for (index, command) in batch.messages.into_iter().enumerate() {
            effects.queues.run(&state, command, timestamp).map_err(at(entities + index))?;
        }
        let Effects { entities, timestamps, changes, queues } = effects;
        state.last_place += queues.places;
        state.messages.extend(queues.queues);
        for ((table, key), record) in entities {
            let entities = state.entities.entry(table).or_default();
            match record {
                Some(record) => entities.insert(key, record),
                None => entities.remove(&key),
            };
        }
        state.last_timestamp =
            timestamps.iter().fold(timestamp.max(queues.latest), |latest, it| latest.max(*it));
        state.last_sequence += 1;
        if state.retention.is_some() {
            state.changes.extend(changes.into_iter().map(|change| (timestamp, change)));
        }
        Ok(Committed { sequence: state.last_sequence, timestamps, messages: queues.told })
    }

    async fn table(
        &self,
        account: AccountId,
        name: &TableName,
    ) -> Result<Option<Arc<Table>>, StoreError> {
        Ok(self.state()?.table(account, &name.folded()))
    }

    async fn tables(
        &self,
        account: AccountId,
        from: Option<&FoldedName>,
        limit: usize,
    ) -> Result<Vec<Arc<Table>>, StoreError> {
        let by_name = self.state()?.tables_of(account);
        let listed = by_name.into_iter().filter(|(name, _)| from.is_none_or(|from| from <= name));
        Ok(listed.take(limit).map(|(_, table)| table).collect())
    }

    async fn create_table_with_policies(
        &self,
        account: AccountId,
        name: &TableName,
        placement: Placement,
        policies: Vec<StoredPolicy>,
        most: u64,
    ) -> Result<Arc<Table>, StoreError> {
        let mut state = self.state()?;
        state.account(account)?;
        if state.table(account, &name.folded()).is_some() {
            return Err(StoreError::rejected(Conflict::TableExists));
        }
        if most <= state.tables.values().filter(|table| table.account == account).count() as u64 {
            return Err(StoreError::rejected(Conflict::TooManyTables));
        }
        state.last_table += 1;
        let table = Arc::new(Table {
            id: TableId(state.last_table),
            account,
            name: name.clone(),
            created: self.clock.now(),
            placement,
            policies,
            indexes: Vec::new(),
            ttl: None,
        });
        state.tables.insert(table.id, Arc::clone(&table));
        state.entities.insert(table.id, BTreeMap::new());
        Ok(table)
    }

    async fn drop_table(&self, table: TableId) -> Result<(), StoreError> {
        let mut state = self.state()?;
        state.entities(table)?;
        state.tables.remove(&table);
        state.entities.remove(&table);
        Ok(())
    }

    async fn set_policies(
        &self,
        table: TableId,
        policies: Vec<StoredPolicy>,
    ) -> Result<(), StoreError> {
        let mut state = self.state()?;
        let found = state.tables.get_mut(&table);
        let found = found.ok_or_else(|| StoreError::rejected(Conflict::TableNotFound))?;
        *found = Arc::new(Table { policies, ..Table::clone(found) });
        Ok(())
    }

    async fn set_ttl(&self, table: TableId, ttl: Option<Ttl>) -> Result<(), StoreError> {
        let mut state = self.state()?;
        let found = state.tables.get_mut(&table);
        let found = found.ok_or_else(|| StoreError::rejected(Conflict::TableNotFound))?;
        *found = Arc::new(Table { ttl, ..Table::clone(found) });
        Ok(())
    }

    async fn create_index(
        &self,
        table: TableId,
        name: &IndexName,
        keys: IndexKeys,
    ) -> Result<Index, StoreError> {
        self.state()?.create_index(table, name, keys)
    }

    async fn drop_index(&self, table: TableId, index: IndexId) -> Result<(), StoreError> {
        self.state()?.drop_index(table, index)
    }

    async fn built(&self, table: TableId, index: IndexId) -> Result<Built, StoreError> {
        self.state()?.built(table, index)
    }

    async fn walk(&self, table: TableId, walk: Walk) -> Result<WalkPage, StoreError> {
        self.state()?.walk(table, &walk)
    }

    async fn sort(&self, table: TableId, sort: Sort) -> Result<Option<WalkPage>, StoreError> {
        let state = self.state()?;
        let mut first = First::new(&sort);
        let whole = Scan { limit: usize::MAX, max_bytes: usize::MAX, ..sort.piece() };
        let page = state.scan(table, &whole)?;
        first.take(&page)?;
        Ok(page.next.is_none().then(|| first.finish()))
    }

    async fn weigh(&self, table: TableId, extent: Extent, bound: u64) -> Result<u64, StoreError> {
        self.state()?.weigh(table, &extent, bound)
    }

    async fn queue(
        &self,
        account: AccountId,
        name: &QueueName,
    ) -> Result<Option<Arc<Queue>>, StoreError> {
        Ok(self.state()?.queue(account, name))
    }

    async fn queues(
        &self,
        account: AccountId,
        from: &str,
        limit: usize,
    ) -> Result<Vec<Arc<Queue>>, StoreError> {
        let by_name = self.state()?.queues_of(account);
        let listed = by_name.into_iter().filter(|(name, _)| from <= name.as_str());
        Ok(listed.take(limit).map(|(_, queue)| queue).collect())
    }

    async fn create_queue_within(
        &self,
        account: AccountId,
        name: &QueueName,
        metadata: Metadata,
        most: u64,
    ) -> Result<Arc<Queue>, StoreError> {
        self.creations.fetch_add(1, Ordering::Relaxed);
        self.state()?.create_queue(account, name, metadata, most, self.clock.now())
    }

    async fn drop_queue(&self, queue: QueueId) -> Result<(), StoreError> {
        self.state()?.drop_queue(queue)
    }

    async fn set_metadata(&self, queue: QueueId, metadata: Metadata) -> Result<(), StoreError> {
        self.state()?.change_queue(queue, |queue| queue.metadata = metadata)
    }

    async fn set_queue_policies(
        &self,
        queue: QueueId,
        policies: Vec<StoredPolicy>,
    ) -> Result<(), StoreError> {
        self.state()?.change_queue(queue, |queue| queue.policies = policies)
    }

    async fn peek(&self, queue: QueueId, limit: usize) -> Result<Vec<Message>, StoreError> {
        let state = self.state()?;
        let now = self.clock.now().max(state.last_timestamp);
        state.peek(queue, limit, now)
    }

    async fn message_count(&self, queue: QueueId) -> Result<u64, StoreError> {
        let state = self.state()?;
        let now = self.clock.now().max(state.last_timestamp);
        let existing = state.messages(queue)?.values().filter(|message| message.exists(now));
        Ok(existing.count() as u64)
    }

    async fn account(&self, name: &AccountName) -> Result<Option<Arc<Account>>, StoreError> {
        Ok(self.state()?.accounts.get(name).cloned().map(Arc::new))
    }

    async fn accounts(&self) -> Result<Vec<Arc<Account>>, StoreError> {
        Ok(self.state()?.accounts.values().cloned().map(Arc::new).collect())
    }

    async fn create_account(&self, account: NewAccount) -> Result<Arc<Account>, StoreError> {
        let mut state = self.state()?;
        if state.accounts.contains_key(&account.name) {
            return Err(StoreError::rejected(Conflict::AccountExists));
        }
        state.last_account += 1;
        let account = Account {
            id: AccountId(state.last_account),
            name: account.name,
            created: self.clock.now(),
            keys: account.keys,
            settings: BTreeMap::new(),
            version: 1,
        };
        state.accounts.insert(account.name.clone(), account.clone());
        Ok(Arc::new(account))
    }

    async fn set_account_keys(
        &self,
        account: AccountId,
        version: u64,
        keys: [Box<[u8]>; 2],
    ) -> Result<(), StoreError> {
        let mut state = self.state()?;
        let account = state.account_at(account, Some(version))?;
        account.keys = keys;
        account.version += 1;
        Ok(())
    }

    async fn set_account_setting(
        &self,
        account: AccountId,
        version: Option<u64>,
        name: &str,
        value: Option<Box<[u8]>>,
    ) -> Result<(), StoreError> {
        let mut state = self.state()?;
        let account = state.account_at(account, version)?;
        match value {
            Some(value) => account.settings.insert(name.into(), value),
            None => account.settings.remove(name),
        };
        account.version += 1;
        Ok(())
    }

    async fn remove_account(&self, account: AccountId) -> Result<(), StoreError> {
        let mut state = self.state()?;
        let name = state.account(account)?.name.clone();
        state.accounts.remove(&name);
        state.tables.retain(|_, table| table.account != account);
        let State { tables, entities, .. } = &mut *state;
        entities.retain(|table, _| tables.contains_key(table));
        state.queues.retain(|_, queue| queue.account != account);
        let State { queues, messages, .. } = &mut *state;
        messages.retain(|queue, _| queues.contains_key(queue));
        Ok(())
    }

    async fn snapshot(&self) -> Result<Box<dyn Snapshot>, StoreError> {
        let mut state = self.state()?;
        state.forget_changes(self.clock.now());
        Ok(Box::new(Frozen(state.clone())))
    }

    async fn keep_changes(&self, retention: Option<Duration>) -> Result<(), StoreError> {
        let mut state = self.state()?;
        if state.retention.is_none() || retention.is_none() {
            state.changes.clear();
            state.changes_after = state.last_sequence;
        }
        state.retention = retention;
        Ok(())
    }

    async fn kept_changes(&self) -> Result<Option<Kept>, StoreError> {
        let mut state = self.state()?;
        state.forget_changes(self.clock.now());
        let kept = Kept { after: state.changes_after, until: state.last_sequence };
        Ok(state.retention.map(|_| kept))
    }

    async fn changes(&self, wanted: ChangesWanted) -> Result<Changes, StoreError> {
        loop {
            let found = {
                let mut state = self.state()?;
                state.forget_changes(self.clock.now());
                state.changes(&wanted)?
            };
            if !found.changes.is_empty() || wanted.wait_until <= Instant::now() {
                return Ok(found);
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    fn ready(&self) -> Result<(), StoreError> {
        if self.closed.load(Ordering::SeqCst) {
            return Err(StoreError::unavailable("the store is closed"));
        }
        Ok(())
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.closed.store(true, Ordering::SeqCst);
        Ok(())
    }
}

/// A copy of everything.
#[derive(Debug)]
struct Frozen(State);

#[async_trait]
impl Snapshot for Frozen {
    fn place(&self) -> u64 {
        self.0.last_sequence
    }

    async fn estimate(&self) -> Result<Option<Estimate>, StoreError> {
        let entities: usize = self.0.entities.values().map(BTreeMap::len).sum();
        Ok(Some(Estimate::Items(entities as u64)))
    }

    async fn accounts(&self) -> Result<Vec<Arc<Account>>, StoreError> {
        Ok(self.0.accounts.values().cloned().map(Arc::new).collect())
    }

    async fn tables(&self, account: AccountId) -> Result<Vec<Arc<Table>>, StoreError> {
        Ok(self.0.tables_of(account).into_values().collect())
    }

    async fn scan(&self, table: TableId, scan: Scan) -> Result<Page, StoreError> {
        if scan.through.is_some() {
            return Err(StoreError::rejected(Conflict::IndexNotFound));
        }
        self.0.scan(table, &scan)
    }

    async fn queues(&self, account: AccountId) -> Result<Vec<Arc<Queue>>, StoreError> {
        Ok(self.0.queues_of(account).into_values().collect())
    }

    async fn messages(
        &self,
        queue: QueueId,
        from: Option<MessagePlace>,
        limit: usize,
        max_bytes: usize,
    ) -> Result<MessagePage, StoreError> {
        self.0.message_page(queue, from, limit, max_bytes)
    }

    async fn changes(&self, wanted: ChangesWanted) -> Result<Changes, StoreError> {
        self.0.changes(&wanted)
    }
}
