//! Accounts, tables and queues as one immutable value.
//!
//! A request takes the current snapshot and needs no lock. Only the committer makes new ones; clones
//! share everything that did not change. The maps agree with each other: whatever is in one is in
//! its twin.

use crate::schema;
use imbl::OrdMap;
use rowhouse_query::index::IndexKeys;
use rowhouse_store::{
    Account, AccountId, Index, IndexId, IndexState, Placement, Queue, QueueId, Table, TableId, Ttl,
};
use rowhouse_types::limits::CATALOGUE_BYTES_PER_ITEM;
use rowhouse_types::{AccountName, FoldedName, QueueName, StoredPolicy, Timestamp};
use rusqlite::{Connection, Row};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Everything that a store knows beside entities and messages.
#[derive(Clone, Debug, Default)]
pub(crate) struct Catalogue {
    accounts: OrdMap<AccountName, Arc<Account>>,
    account_ids: OrdMap<AccountId, Arc<Account>>,
    tables: OrdMap<(AccountId, FoldedName), Arc<Table>>,
    table_ids: OrdMap<TableId, Arc<Table>>,
    queues: OrdMap<(AccountId, Box<str>), Arc<Queue>>,
    queue_ids: OrdMap<QueueId, Arc<Queue>>,
    held: OrdMap<AccountId, Held>,
    /// What all of it takes in memory, about.
    bytes: u64,
    /// What the tables and queues of an account may take, unless they are many and small.
    account_bytes_max: u64,
}

/// How much an account has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) tables: u64,
    pub(crate) queues: u64,
    /// What they take in memory, about.
    bytes: u64,
}

impl Held {
    /// What a table or queue took, and takes now.
    fn replace(&mut self, before: Option<usize>, after: Option<usize>) {
        let bytes = |item: usize| (item + ENTRY_BYTES) as u64;
        self.bytes += after.map_or(0, bytes);
        self.bytes -= before.map_or(0, bytes);
    }
}

/// What an entry takes in the two maps that it is in, beside itself.
const ENTRY_BYTES: usize = 256;

impl Catalogue {
    /// How many tables and queues an account has.
    pub(crate) fn held(&self, account: AccountId) -> Held {
        self.held.get(&account).copied().unwrap_or_default()
    }

    /// What everything takes in memory, about.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.bytes
    }

    /// How many tables and queues there are.
    pub(crate) fn counts(&self) -> Held {
        let (tables, queues) = (self.table_ids.len() as u64, self.queue_ids.len() as u64);
        Held { tables, queues, bytes: self.bytes }
    }

    /// Limits what an account's tables and queues take in memory from now on.
    pub(crate) fn limit(&mut self, account_bytes_max: u64) {
        self.account_bytes_max = account_bytes_max;
    }

    /// Whether the account's tables and queues take all the memory that they may: one more is refused, and one that takes
    /// more than before.
    pub(crate) fn is_full(&self, account: AccountId) -> bool {
        let held = self.held(account);
        let many = CATALOGUE_BYTES_PER_ITEM * (held.tables + held.queues);
        self.account_bytes_max.max(many) <= held.bytes
    }

    fn hold(&mut self, account: AccountId, change: impl FnOnce(&mut Held)) {
        let mut held = self.held(account);
        change(&mut held);
        self.held.insert(account, held);
    }

    fn add_bytes(&mut self, entry: usize) {
        self.bytes += (entry + ENTRY_BYTES) as u64;
    }

    fn take_bytes(&mut self, entry: usize) {
        self.bytes -= (entry + ENTRY_BYTES) as u64;
    }

    pub(crate) fn account(&self, name: &AccountName) -> Option<&Arc<Account>> {
        self.accounts.get(name)
    }

    pub(crate) fn account_by_id(&self, id: AccountId) -> Option<&Arc<Account>> {
        self.account_ids.get(&id)
    }

    pub(crate) fn accounts(&self) -> impl Iterator<Item = &Arc<Account>> {
        self.accounts.values()
    }

    pub(crate) fn table(&self, account: AccountId, name: FoldedName) -> Option<&Arc<Table>> {
        self.tables.get(&(account, name))
    }

    pub(crate) fn table_by_id(&self, id: TableId) -> Option<&Arc<Table>> {
        self.table_ids.get(&id)
    }

    pub(crate) fn has_table(&self, id: TableId) -> bool {
        self.table_ids.contains_key(&id)
    }

    /// The tables of an account in the order of their folded names.
    pub(crate) fn tables(
        &self,
        account: AccountId,
        from: Option<&FoldedName>,
    ) -> impl Iterator<Item = &Arc<Table>> {
        let from = from.cloned().unwrap_or_else(|| FoldedName::of(""));
        self.tables
            .range((account, from)..)
            .take_while(move |((owner, _), _)| *owner == account)
            .map(|(_, table)| table)
    }

    /// Adds a table or replaces the one of this id.
    pub(crate) fn put_table(&mut self, table: Arc<Table>) {
        let (account, after) = (table.account, table.memory_bytes());
        self.add_bytes(after);
        self.tables.insert((account, table.name.folded()), Arc::clone(&table));
        let before = self.table_ids.insert(table.id, table).map(|before| before.memory_bytes());
        if let Some(before) = before {
            self.take_bytes(before);
        }
        self.hold(account, |held| {
            held.tables += u64::from(before.is_none());
            held.replace(before, Some(after));
        });
    }

    /// Changes what is said of a table that is there.
    pub(crate) fn change_table(&mut self, id: TableId, change: impl FnOnce(&mut Table)) {
        if let Some(table) = self.table_ids.get(&id) {
            let mut table = Table::clone(table);
            change(&mut table);
            self.put_table(Arc::new(table));
        }
    }

    /// Every table.
    pub(crate) fn all_tables(&self) -> impl Iterator<Item = &Arc<Table>> {
        self.table_ids.values()
    }

    pub(crate) fn remove_table(&mut self, id: TableId) {
        if let Some(table) = self.table_ids.remove(&id) {
            self.tables.remove(&(table.account, table.name.folded()));
            self.take_bytes(table.memory_bytes());
            self.hold(table.account, |held| {
                held.tables -= 1;
                held.replace(Some(table.memory_bytes()), None);
            });
        }
    }

    pub(crate) fn queue(&self, account: AccountId, name: &QueueName) -> Option<&Arc<Queue>> {
        self.queues.get(&(account, name.as_str().into()))
    }

    pub(crate) fn queue_by_id(&self, id: QueueId) -> Option<&Arc<Queue>> {
        self.queue_ids.get(&id)
    }

    /// The queues of an account in the order of their names, from that text on.
    pub(crate) fn queues(
        &self,
        account: AccountId,
        from: &str,
    ) -> impl Iterator<Item = &Arc<Queue>> + use<'_> {
        self.queues
            .range((account, from.into())..)
            .take_while(move |((owner, _), _)| *owner == account)
            .map(|(_, queue)| queue)
    }

    /// Adds a queue or replaces the one of this id.
    pub(crate) fn put_queue(&mut self, queue: Arc<Queue>) {
        let (account, after) = (queue.account, queue.memory_bytes());
        self.add_bytes(after);
        self.queues.insert((account, queue.name.as_str().into()), Arc::clone(&queue));
        let before = self.queue_ids.insert(queue.id, queue).map(|before| before.memory_bytes());
        if let Some(before) = before {
            self.take_bytes(before);
        }
        self.hold(account, |held| {
            held.queues += u64::from(before.is_none());
            held.replace(before, Some(after));
        });
    }

    pub(crate) fn remove_queue(&mut self, id: QueueId) {
        if let Some(queue) = self.queue_ids.remove(&id) {
            self.queues.remove(&(queue.account, queue.name.as_str().into()));
            self.take_bytes(queue.memory_bytes());
            self.hold(queue.account, |held| {
                held.queues -= 1;
                held.replace(Some(queue.memory_bytes()), None);
            });
        }
    }

    /// Adds an account or replaces the one of this id; names never change.
    pub(crate) fn put_account(&mut self, account: Arc<Account>) {
        self.add_bytes(account.memory_bytes());
        self.accounts.insert(account.name.clone(), Arc::clone(&account));
        if let Some(before) = self.account_ids.insert(account.id, account) {
            self.take_bytes(before.memory_bytes());
        }
    }

    /// Removes an account; its tables and queues are removed one by one before.
    pub(crate) fn remove_account(&mut self, id: AccountId) {
        if let Some(account) = self.account_ids.remove(&id) {
            self.accounts.remove(&account.name);
            self.take_bytes(account.memory_bytes());
            self.held.remove(&id);
        }
    }

    /// Reads everything from the database.
    pub(crate) fn load(conn: &Connection) -> Result<Self, LoadError> {
        let mut catalogue = Self { account_bytes_max: u64::MAX, ..Self::default() };
        for account in load_accounts(conn)?.into_values() {
            catalogue.put_account(Arc::new(account));
        }
        let mut tables = load_tables(conn)?;
        if schema::INDEXES_SINCE <= schema::version(conn)? {
            load_indexes(conn, &mut tables)?;
        }
        for table in tables.into_values() {
            catalogue.put_table(Arc::new(table));
        }
        if schema::QUEUES_SINCE <= schema::version(conn)? {
            for queue in load_queues(conn)?.into_values() {
                catalogue.put_queue(Arc::new(queue));
            }
        }
        Ok(catalogue)
    }
}

/// Why the catalogue cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoadError {
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    #[error("{0}")]
    Damaged(String),
}

fn load_accounts(conn: &Connection) -> Result<BTreeMap<AccountId, Account>, LoadError> {
    let mut accounts = BTreeMap::new();
    let mut statement =
        conn.prepare("SELECT id, name, created, key1, key2, version FROM accounts")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let id = AccountId(number(row, 0)?);
        let name: String = row.get(1)?;
        let name = name.parse().map_err(|error| damaged("the name of an account", error))?;
        let keys = [row.get::<_, Vec<u8>>(3)?.into(), row.get::<_, Vec<u8>>(4)?.into()];
        let created = instant(row, 2)?;
        let settings = BTreeMap::new();
        let version = number(row, 5)?;
        accounts.insert(id, Account { id, name, created, keys, settings, version });
    }
    let mut statement = conn.prepare("SELECT account, name, value FROM account_settings")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let account = accounts
            .get_mut(&AccountId(number(row, 0)?))
            .ok_or_else(|| LoadError::Damaged("a setting belongs to no account".into()))?;
        let (name, value): (String, Vec<u8>) = (row.get(1)?, row.get(2)?);
        account.settings.insert(name.into(), value.into());
    }
    Ok(accounts)
}

fn load_tables(conn: &Connection) -> Result<BTreeMap<TableId, Table>, LoadError> {
    let mut tables = BTreeMap::new();
    let since_3 = if schema::version(conn)? < schema::INDEXES_SINCE {
        "NULL, NULL"
    } else {
        "ttl, ttl_property"
    };
    let mut statement = conn.prepare(&format!(
        "SELECT id, account, name, created, placement_group, route_chars, {since_3} FROM tables"
    ))?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let id = TableId(number(row, 0)?);
        let name: String = row.get(2)?;
        let name = name.parse().map_err(|error| damaged("the name of a table", error))?;
        let group: Option<String> = row.get(4)?;
        let route_chars = row.get(5)?;
        let placement = Placement { group: group.map(Into::into), route_chars };
        let (account, created) = (AccountId(number(row, 1)?), instant(row, 3)?);
        let ttl = match row.get::<_, Option<i64>>(6)? {
            Some(_) => {
                let property: Option<String> = row.get(7)?;
                Some(Ttl::of_ticks(property.map(Into::into), number(row, 6)?))
            }
            None => None,
        };
        let (policies, indexes) = (Vec::new(), Vec::new());
        tables.insert(id, Table { id, account, name, created, placement, policies, indexes, ttl });
    }
    let mut statement = conn.prepare(
        "SELECT table_id, id, start, expiry, permission FROM policies ORDER BY table_id, position",
    )?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let table = tables
            .get_mut(&TableId(number(row, 0)?))
            .ok_or_else(|| LoadError::Damaged("an access policy belongs to no table".into()))?;
        table.policies.push(policy(row)?);
    }
    Ok(tables)
}

/// An access policy from the columns after the first.
fn policy(row: &Row<'_>) -> Result<StoredPolicy, LoadError> {
    let (id, permission): (String, Option<String>) = (row.get(1)?, row.get(4)?);
    Ok(StoredPolicy {
        id: id.into(),
        start: optional_instant(row, 2)?,
        expiry: optional_instant(row, 3)?,
        permission: permission.map(Into::into),
    })
}

fn load_queues(conn: &Connection) -> Result<BTreeMap<QueueId, Queue>, LoadError> {
    let mut queues = BTreeMap::new();
    let mut statement = conn.prepare("SELECT id, account, name, created FROM queues")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let id = QueueId(number(row, 0)?);
        let name: String = row.get(2)?;
        let name = name.parse().map_err(|error| damaged("the name of a queue", error))?;
        let (account, created) = (AccountId(number(row, 1)?), instant(row, 3)?);
        let (metadata, policies) = (Vec::new(), Vec::new());
        queues.insert(id, Queue { id, account, name, created, metadata, policies });
    }
    let homeless = || LoadError::Damaged("metadata or a policy belongs to no queue".into());
    let mut statement = conn
        .prepare("SELECT queue_id, name, value FROM queue_metadata ORDER BY queue_id, position")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let queue = queues.get_mut(&QueueId(number(row, 0)?)).ok_or_else(homeless)?;
        let (name, value): (String, String) = (row.get(1)?, row.get(2)?);
        queue.metadata.push((name.into(), value.into()));
    }
    let mut statement = conn.prepare(
        "SELECT queue_id, id, start, expiry, permission FROM queue_policies
         ORDER BY queue_id, position",
    )?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let queue = queues.get_mut(&QueueId(number(row, 0)?)).ok_or_else(homeless)?;
        queue.policies.push(policy(row)?);
    }
    Ok(queues)
}

/// Gives the tables their indexes, in the order of their ids, which is that in which they were declared.
fn load_indexes(conn: &Connection, tables: &mut BTreeMap<TableId, Table>) -> Result<(), LoadError> {
    let mut properties =
        conn.prepare("SELECT name FROM index_properties WHERE index_id = ?1 ORDER BY position")?;
    let mut statement =
        conn.prepare("SELECT id, table_id, name, is_unique, state FROM indexes ORDER BY id")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let id: u64 = number(row, 0)?;
        let table = tables
            .get_mut(&TableId(number(row, 1)?))
            .ok_or_else(|| LoadError::Damaged("an index belongs to no table".into()))?;
        let name: String = row.get(2)?;
        let name = name.parse().map_err(|error| damaged("the name of an index", error))?;
        let properties: Vec<Box<str>> = properties
            .query_map([id.cast_signed()], |row| row.get::<_, String>(0).map(Into::into))?
            .collect::<Result<_, _>>()?;
        if properties.is_empty() {
            return Err(LoadError::Damaged("an index has no properties".into()));
        }
        let state = state(number(row, 4)?)
            .ok_or_else(|| LoadError::Damaged("the state of an index is not known".into()))?;
        let keys = IndexKeys { properties, unique: row.get(3)? };
        table.indexes.push(Index { id: IndexId(id), name, keys, state });
    }
    Ok(())
}

fn state(number: u8) -> Option<IndexState> {
    [IndexState::Building, IndexState::Ready, IndexState::NotUnique]
        .into_iter()
        .find(|state| state_number(*state) == number)
}

/// What stands for a state in the database.
pub(crate) fn state_number(state: IndexState) -> u8 {
    match state {
        IndexState::Building => 0,
        IndexState::Ready => 1,
        IndexState::NotUnique => 2,
    }
}

fn damaged(what: &str, error: impl std::fmt::Display) -> LoadError {
    LoadError::Damaged(format!("{what} is not valid: {error}"))
}

/// A number that was not negative when it was written.
pub(crate) fn number<T: TryFrom<i64>>(row: &Row<'_>, column: usize) -> Result<T, LoadError> {
    let value: i64 = row.get(column)?;
    T::try_from(value).map_err(|_| LoadError::Damaged("a number is out of its range".into()))
}

/// A time in ticks.
pub(crate) fn instant(row: &Row<'_>, column: usize) -> Result<Timestamp, LoadError> {
    Timestamp::from_ticks(number(row, column)?)
        .ok_or_else(|| LoadError::Damaged("a time is out of range".into()))
}

fn optional_instant(row: &Row<'_>, column: usize) -> Result<Option<Timestamp>, LoadError> {
    match row.get_ref(column)? {
        rusqlite::types::ValueRef::Null => Ok(None),
        _ => instant(row, column).map(Some),
    }
}
