//! All accounts, tables and queues of a store or a backup.

use crate::error::BackupError;
use crate::keys::KeepKeys;
use crate::queues;
use rowhouse_store::{Account, AccountId, Queue, QueueId, Snapshot, StoreError, Table, TableId};
use rowhouse_types::{AccountName, TableName, Timestamp};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Accounts in the order of their names, tables and queues in the order of their ids.
#[derive(Clone, Debug, Default)]
pub struct Catalogue {
    /// Every account.
    pub accounts: Vec<Account>,
    /// Every table.
    pub tables: Vec<Table>,
    /// Every queue.
    pub queues: Vec<Queue>,
}

impl Catalogue {
    /// Everything that the snapshot shows, with keys as a backup may hold them.
    pub(crate) async fn of(snapshot: &dyn Snapshot, keys: &KeepKeys) -> Result<Self, StoreError> {
        let mut catalogue = Self::default();
        for account in snapshot.accounts().await? {
            let tables = snapshot.tables(account.id).await?;
            catalogue.tables.extend(tables.iter().map(|table| Table::clone(table)));
            let keys = keys.of(&account);
            catalogue.accounts.push(Account { keys, ..Account::clone(&account) });
        }
        catalogue.tables.sort_unstable_by_key(|table| table.id);
        let accounts = catalogue.accounts.iter().map(|account| account.id);
        catalogue.queues = queues::of(snapshot, accounts).await?;
        Ok(catalogue)
    }

    /// Whether every table and every queue has an account, and no two the same name in it.
    pub(crate) fn check(&self) -> Result<(), BackupError> {
        let accounts: BTreeSet<AccountId> =
            self.accounts.iter().map(|account| account.id).collect();
        if accounts.len() < self.accounts.len() {
            return Err(BackupError::damaged(0, "two accounts have the same id"));
        }
        let mut names = BTreeSet::new();
        for table in &self.tables {
            if !accounts.contains(&table.account) {
                return Err(BackupError::damaged(0, "a table has no account"));
            }
            if !names.insert((table.account, table.name.folded())) {
                return Err(BackupError::damaged(0, "two tables have the same name"));
            }
        }
        let mut names = BTreeSet::new();
        for queue in &self.queues {
            if !accounts.contains(&queue.account) {
                return Err(BackupError::damaged(0, "a queue has no account"));
            }
            if !names.insert((queue.account, &queue.name)) {
                return Err(BackupError::damaged(0, "two queues have the same name"));
            }
        }
        Ok(())
    }

    /// Account and name of every table that was itself being restored and is not whole, as `ACCOUNT/TABLE`.
    pub fn halves(&self) -> Vec<String> {
        let halves = self.tables.iter().filter(|table| !table.is_whole());
        let named = |table: &Table| Some(format!("{}/{}", self.owner(table)?, table.name));
        halves.filter_map(named).collect()
    }

    /// An account by its name.
    pub fn account(&self, name: &AccountName) -> Option<&Account> {
        let found = self.accounts.binary_search_by(|account| account.name.cmp(name)).ok()?;
        self.accounts.get(found)
    }

    /// A table by its name.
    pub fn table(&self, account: &AccountName, name: &TableName) -> Option<&Table> {
        let account = self.account(account)?.id;
        self.tables.iter().find(|table| table.account == account && table.name.is_same(name))
    }

    /// The name of an account that a table belongs to.
    pub fn owner(&self, table: &Table) -> Option<&str> {
        let owner = self.accounts.iter().find(|account| account.id == table.account);
        owner.map(|account| account.name.as_str())
    }

    /// Whether this can be a later state of that one: what has the same id is the same thing, and if there
    /// was anything then something of it is still there.
    pub fn continues(&self, earlier: &Self) -> bool {
        type Born<'a> = (Timestamp, &'a AccountName);
        let before: BTreeMap<AccountId, Born<'_>> = earlier
            .accounts
            .iter()
            .map(|account| (account.id, (account.created, &account.name)))
            .collect();
        let common = |account: &&Account| before.contains_key(&account.id);
        let same = |account: &Account| {
            before.get(&account.id).is_none_or(|born| *born == (account.created, &account.name))
        };
        let tables: HashMap<TableId, Timestamp> =
            earlier.tables.iter().map(|table| (table.id, table.created)).collect();
        let same_table =
            |table: &Table| tables.get(&table.id).is_none_or(|created| *created == table.created);
        let queues: HashMap<QueueId, Timestamp> =
            earlier.queues.iter().map(|queue| (queue.id, queue.created)).collect();
        let same_queue =
            |queue: &Queue| queues.get(&queue.id).is_none_or(|created| *created == queue.created);
        (before.is_empty() || self.accounts.iter().any(|account| common(&account)))
            && self.accounts.iter().all(same)
            && self.tables.iter().all(same_table)
            && self.queues.iter().all(same_queue)
    }
}
