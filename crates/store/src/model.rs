//! The contract in the most obvious way: sorted maps behind one lock.
//!
//! For tests only. Engines are compared with it step by step, and the layers above are tested on it
//! without a disk. It keeps every promise of [`Store`] except that it forgets everything with the last
//! handle; speed is no concern of it.

use crate::{
    Account, AccountId, Batch, Change, Changes, ChangesWanted, Command, Committed, Condition,
    Conflict, Kept, NewAccount, Page, Placement, Scan, Snapshot, Store, StoreError, Table, TableId,
    Take, Write,
};
use async_trait::async_trait;
use rowhouse_env::Clock;
use rowhouse_types::{
    AccountName, Direction, EntityKey, FoldedName, LimitExceeded, Record, Row, StoredPolicy,
    TableName, Timestamp,
};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A store in memory.
#[derive(Debug)]
pub struct ModelStore {
    clock: Arc<dyn Clock>,
    state: Arc<Mutex<State>>,
    closed: AtomicBool,
}

/// Everything that a durable engine would have on disk.
#[derive(Clone, Debug, Default)]
struct State {
    last_timestamp: Timestamp,
    last_sequence: u64,
    last_account: u32,
    last_table: u64,
    accounts: BTreeMap<AccountName, Account>,
    tables: BTreeMap<TableId, Arc<Table>>,
    entities: BTreeMap<TableId, BTreeMap<EntityKey, Record>>,
    /// How long changes are kept, if they are; all after that place, each with when it was made.
    retention: Option<Duration>,
    changes_after: u64,
    changes: Vec<(Timestamp, Change)>,
}

/// What a batch has done so far; nothing of it is in the state until the whole batch has passed.
#[derive(Default)]
struct Effects {
    entities: BTreeMap<(TableId, EntityKey), Option<Record>>,
    timestamps: Vec<Timestamp>,
    changes: Vec<Change>,
}

impl ModelStore {
    /// An empty store.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, state: Arc::default(), closed: AtomicBool::new(false) }
    }

    /// Another handle to the same data, open whether or not this one is: what a restart is to an engine.
    pub fn reopen(&self) -> Self {
        Self {
            clock: Arc::clone(&self.clock),
            state: Arc::clone(&self.state),
            closed: AtomicBool::new(false),
        }
    }

    fn state(&self) -> Result<MutexGuard<'_, State>, StoreError> {
        self.ready()?;
        // A test that panicked elsewhere does not make the maps inconsistent: changes are applied last.
        Ok(self.state.lock().unwrap_or_else(PoisonError::into_inner))
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
        for (index, command) in batch.commands.into_iter().enumerate() {
            state.run(command, timestamp, &mut effects).map_err(|error| match error {
                StoreError::Rejected { reason, .. } => StoreError::Rejected { index, reason },
                other => other,
            })?;
        }
        let Effects { entities, timestamps, changes } = effects;
        for ((table, key), record) in entities {
            let entities = state.entities.entry(table).or_default();
            match record {
                Some(record) => entities.insert(key, record),
                None => entities.remove(&key),
            };
        }
        state.last_timestamp = timestamps.iter().fold(timestamp, |latest, it| latest.max(*it));
        state.last_sequence += 1;
        if state.retention.is_some() {
            state.changes.extend(changes.into_iter().map(|change| (timestamp, change)));
        }
        Ok(Committed { sequence: state.last_sequence, timestamps })
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

    async fn create_table(
        &self,
        account: AccountId,
        name: &TableName,
        placement: Placement,
    ) -> Result<Arc<Table>, StoreError> {
        let mut state = self.state()?;
        state.account(account)?;
        if state.table(account, &name.folded()).is_some() {
            return Err(StoreError::rejected(Conflict::TableExists));
        }
        state.last_table += 1;
        let table = Arc::new(Table {
            id: TableId(state.last_table),
            account,
            name: name.clone(),
            created: self.clock.now(),
            placement,
            policies: Vec::new(),
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
        keys: [Box<[u8]>; 2],
    ) -> Result<(), StoreError> {
        let mut state = self.state()?;
        let account = state.account(account)?;
        account.keys = keys;
        account.version += 1;
        Ok(())
    }

    async fn set_account_setting(
        &self,
        account: AccountId,
        name: &str,
        value: Option<Box<[u8]>>,
    ) -> Result<(), StoreError> {
        let mut state = self.state()?;
        let account = state.account(account)?;
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
        Ok(())
    }

    async fn snapshot(&self) -> Result<Box<dyn Snapshot>, StoreError> {
        Ok(Box::new(Frozen(self.state()?.clone())))
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

    async fn accounts(&self) -> Result<Vec<Arc<Account>>, StoreError> {
        Ok(self.0.accounts.values().cloned().map(Arc::new).collect())
    }

    async fn tables(&self, account: AccountId) -> Result<Vec<Arc<Table>>, StoreError> {
        Ok(self.0.tables_of(account).into_values().collect())
    }

    async fn scan(&self, table: TableId, scan: Scan) -> Result<Page, StoreError> {
        self.0.scan(table, &scan)
    }
}

impl State {
    fn account(&mut self, id: AccountId) -> Result<&mut Account, StoreError> {
        let found = self.accounts.values_mut().find(|account| account.id == id);
        found.ok_or_else(|| StoreError::rejected(Conflict::AccountNotFound))
    }

    fn table(&self, account: AccountId, name: &FoldedName) -> Option<Arc<Table>> {
        let mut tables = self.tables.values();
        tables.find(|table| table.account == account && table.name.folded() == *name).cloned()
    }

    fn entities(&self, table: TableId) -> Result<&BTreeMap<EntityKey, Record>, StoreError> {
        let found = self.entities.get(&table);
        found.ok_or_else(|| StoreError::rejected(Conflict::TableNotFound))
    }

    fn tables_of(&self, account: AccountId) -> BTreeMap<FoldedName, Arc<Table>> {
        let tables = self.tables.values().filter(|table| table.account == account);
        tables.map(|table| (table.name.folded(), Arc::clone(table))).collect()
    }

    fn scan(&self, table: TableId, scan: &Scan) -> Result<Page, StoreError> {
        let entities = self.entities(table)?;
        let mut page = Page::default();
        let mut full = false;
        let inside = |key: &EntityKey| {
            let key = (key.partition.as_str(), key.row.as_str());
            scan.ranges.iter().any(|range| range.contains(key.0, key.1))
        };
        let mut in_ranges: Vec<_> = entities.iter().filter(|(key, _)| inside(key)).collect();
        if scan.direction == Direction::Descending {
            in_ranges.reverse();
        }
        for (key, record) in in_ranges {
            let (partition, row) = (key.partition.as_str(), key.row.as_str());
            let here = Some(rowhouse_types::Position::before(partition, row));
            if page.examined > 0 && scan.deadline <= Instant::now() {
                page.next = here;
                break;
            }
            page.examined += 1;
            let row = Row { partition, row, record: record.as_ref() };
            if !scan.filter.as_ref().map_or(Ok(true), |filter| filter.matches(&row))? {
                continue;
            }
            if full {
                page.next = here;
                break;
            }
            if scan.take == Take::Count {
                page.counted += 1;
                continue;
            }
            page.rows.push(&row);
            full = scan.limit <= page.rows.len() || scan.max_bytes <= page.rows.byte_len();
        }
        Ok(page)
    }

    /// Drops the changes that are too old.
    fn forget_changes(&mut self, now: Timestamp) {
        let Some(retention) = self.retention else { return };
        let ticks = u64::try_from(retention.as_nanos() / 100).unwrap_or(u64::MAX);
        let oldest = now.ticks().saturating_sub(ticks);
        let stale = self.changes.iter().take_while(|(made, _)| made.ticks() < oldest).count();
        if let Some((_, last)) = self.changes.drain(..stale).next_back() {
            self.changes_after = last.place;
        }
    }

    fn changes(&self, wanted: &ChangesWanted) -> Result<Changes, StoreError> {
        let reaches = self.changes_after <= wanted.after && wanted.after <= self.last_sequence;
        if self.retention.is_none() || !reaches {
            return Err(StoreError::rejected(Conflict::ChangesNotKept));
        }
        let mut found = Changes { changes: Vec::new(), next: self.last_sequence };
        let mut bytes = 0;
        for (_, change) in self.changes.iter().filter(|(_, change)| wanted.after < change.place) {
            let last = found.changes.last().map(|last: &Change| last.place);
            let full = wanted.limit <= found.changes.len() || wanted.max_bytes <= bytes;
            if let Some(place) = last.filter(|place| full && *place < change.place) {
                found.next = place;
                break;
            }
            if wanted.table.is_none_or(|table| table == change.table) {
                let record = change.record.as_ref().map_or(0, |record| record.as_bytes().len());
                let key = &change.key;
                bytes += key.partition.as_str().len() + key.row.as_str().len() + record;
                found.changes.push(change.clone());
            }
        }
        Ok(found)
    }

    /// Judges one command against the state and the effects before it, and adds its own.
    fn run(
        &self,
        command: Command,
        timestamp: Timestamp,
        effects: &mut Effects,
    ) -> Result<(), StoreError> {
        let Command::Entity { table, key, condition, write } = command;
        let stored = self.entities(table)?.get(&key);
        let place = (table, key);
        let current = match effects.entities.get(&place) {
            Some(earlier) => earlier.as_ref(),
            None => stored,
        };
        let held = match (condition, current) {
            (Condition::Any, _) | (Condition::Absent, None) | (Condition::Exists, Some(_)) => {
                Ok(())
            }
            (Condition::Absent, Some(_)) => Err(Conflict::EntityExists),
            (Condition::Exists | Condition::Matches(_), None) => Err(Conflict::EntityNotFound),
            (Condition::Matches(etag), Some(record)) => {
                let matches = etag.matches(record.as_ref().timestamp());
                if matches { Ok(()) } else { Err(Conflict::ConditionNotMet) }
            }
        };
        held.map_err(StoreError::rejected)?;
        let restored = matches!(write, Write::Restore(_));
        let nothing = current.is_none();
        let mut result = match write {
            Write::Delete => None,
            Write::Put(record) | Write::Restore(record) => Some(record),
            Write::Merge(patch) => {
                let merged = match current {
                    Some(base) => Record::merge(base.as_ref(), patch.as_ref())?,
                    None => patch,
                };
                let (partition, row) = (place.1.partition.as_str(), place.1.row.as_str());
                match merged.as_ref().check_limits(partition, row)? {
                    Some(LimitExceeded::Properties) => {
                        return Err(StoreError::rejected(Conflict::TooManyProperties));
                    }
                    Some(LimitExceeded::Size) => {
                        return Err(StoreError::rejected(Conflict::EntityTooLarge));
                    }
                    None => Some(merged),
                }
            }
        };
        if let Some(record) = result.as_mut().filter(|_| !restored) {
            record.stamp(timestamp);
        }
        let at = result.as_ref().map_or(timestamp, |record| record.as_ref().timestamp());
        effects.timestamps.push(at);
        if result.is_some() || !nothing {
            let (table, key) = place.clone();
            let change =
                Change { place: self.last_sequence + 1, table, key, at, record: result.clone() };
            effects.changes.push(change);
        }
        effects.entities.insert(place, result);
        Ok(())
    }
}
