//! What a server remembers of accounts, tables and queues. Who may trust it is decided elsewhere.

use crate::names::AccountNames;
use rowhouse_store::{Account, AccountId, Queue, Table, TableId};
use rowhouse_types::limits::CATALOGUE_CACHE_BYTES_MAX;
use rowhouse_types::{AccountName, FoldedName, QueueName};
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

/// What an entry takes in the maps that it is in, beside itself.
const ENTRY_BYTES: usize = 256;

/// A table, and the number of what its writes have to keep of indexes.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) table: Arc<Table>,
    pub(crate) indexing: i64,
}

/// Accounts, tables and queues as they were read.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    state: RwLock<State>,
    /// Which names accounts have, each of them, whether its account is remembered or not.
    pub(crate) names: AccountNames,
}

/// What was used lately, and what was not since that became half of what may be remembered. When it does again, what
/// was not used meanwhile is forgotten: whatever one account has many of, what others use stays.
#[derive(Debug, Default)]
struct State {
    /// Rises whenever everything is forgotten.
    generation: u64,
    recent: Entries,
    older: Entries,
}

#[derive(Debug, Default)]
struct Entries {
    accounts: HashMap<AccountName, Arc<Account>>,
    names: HashMap<(AccountId, FoldedName), Known>,
    /// For what never changes of a table, also while no lease is held; and for what the database judges.
    ids: HashMap<TableId, Known>,
    queues: HashMap<(AccountId, QueueName), Arc<Queue>>,
    /// What they take in memory, about.
    bytes: usize,
}

impl Entries {
    fn add_account(&mut self, account: &Arc<Account>) {
        let before = self.accounts.insert(account.name.clone(), Arc::clone(account));
        self.count(account.memory_bytes(), before.map(|before| before.memory_bytes()));
    }

    fn add_table(&mut self, known: &Known) {
        let table = &known.table;
        self.names.insert((table.account, table.name.folded()), known.clone());
        let before = self.ids.insert(table.id, known.clone());
        self.count(table.memory_bytes(), before.map(|before| before.table.memory_bytes()));
    }

    fn add_queue(&mut self, queue: &Arc<Queue>) {
        let before = self.queues.insert((queue.account, queue.name.clone()), Arc::clone(queue));
        self.count(queue.memory_bytes(), before.map(|before| before.memory_bytes()));
    }

    fn count(&mut self, added: usize, removed: Option<usize>) {
        self.bytes += ENTRY_BYTES + added;
        self.bytes -= removed.map_or(0, |removed| ENTRY_BYTES + removed);
    }
}

impl State {
    /// Remembers something as used lately.
    fn keep(&mut self, add: impl FnOnce(&mut Entries)) {
        if CATALOGUE_CACHE_BYTES_MAX / 2 <= self.recent.bytes {
            self.older = std::mem::take(&mut self.recent);
        }
        add(&mut self.recent);
    }
}

/// When something was read from the database: before it was forgotten, or after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Generation(u64);

impl Cache {
    fn read<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        look(&self.state.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn write(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.write().unwrap_or_else(PoisonError::into_inner));
    }

    /// Asked for before reading what is to be remembered.
    pub(crate) fn generation(&self) -> Generation {
        Generation(self.read(|state| state.generation))
    }

    /// Everything has to be read anew.
    pub(crate) fn forget(&self) {
        self.write(|state| *state = State { generation: state.generation + 1, ..State::default() });
    }

    /// What it takes in memory, about.
    pub(crate) fn bytes(&self) -> usize {
        self.read(|state| state.recent.bytes + state.older.bytes)
    }

    /// Finds something. What was not used lately counts as used again.
    fn find<T>(
        &self,
        find: impl Fn(&Entries) -> Option<T>,
        add: impl FnOnce(&mut Entries, &T),
    ) -> Option<T> {
        let (found, read) = self.read(|state| match find(&state.recent) {
            Some(found) => (Some(found), None),
            None => (find(&state.older), Some(Generation(state.generation))),
        });
        if let (Some(found), Some(read)) = (&found, read) {
            self.keep(read, |entries| add(entries, found));
        }
        found
    }

    /// Remembers something that was read in that generation.
    fn keep(&self, read: Generation, add: impl FnOnce(&mut Entries)) {
        self.write(|state| {
            if state.generation == read.0 {
                state.keep(add);
            }
        });
    }

    pub(crate) fn account(&self, name: &AccountName) -> Option<Arc<Account>> {
        self.find(|entries| entries.accounts.get(name).cloned(), Entries::add_account)
    }

    pub(crate) fn table(&self, account: AccountId, name: &FoldedName) -> Option<Arc<Table>> {
        let key = (account, name.clone());
        let found = self.find(|entries| entries.names.get(&key).cloned(), Entries::add_table);
        found.map(|known| known.table)
    }

    pub(crate) fn table_of(&self, id: TableId) -> Option<Known> {
        self.find(|entries| entries.ids.get(&id).cloned(), Entries::add_table)
    }

    pub(crate) fn queue(&self, account: AccountId, name: &QueueName) -> Option<Arc<Queue>> {
        let key = (account, name.clone());
        self.find(|entries| entries.queues.get(&key).cloned(), Entries::add_queue)
    }

    /// Remembers a queue that was read in that generation.
    pub(crate) fn keep_queue(&self, read: Generation, queue: &Arc<Queue>) {
        self.keep(read, |entries| entries.add_queue(queue));
    }

    /// Remembers an account that was read in that generation.
    pub(crate) fn keep_account(&self, read: Generation, account: &Arc<Account>) {
        self.keep(read, |entries| entries.add_account(account));
    }

    /// Remembers a table that was read in that generation.
    pub(crate) fn keep_table(&self, read: Generation, known: &Known) {
        self.keep(read, |entries| entries.add_table(known));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rowhouse_store::{Placement, QueueId};
    use rowhouse_types::{Timestamp, limits};

    fn queue(number: u64) -> Arc<Queue> {
        let metadata: Vec<(Box<str>, Box<str>)> =
            vec![("note".into(), "x".repeat(limits::METADATA_BYTES_MAX - 4).into())];
        Arc::new(Queue {
            id: QueueId(number),
            account: AccountId(1),
            name: format!("queue{number}").parse().unwrap(),
            created: Timestamp::from_ticks(0).unwrap(),
            metadata,
            policies: Vec::new(),
        })
    }

    /// One account's many queues neither fill the memory nor push out what others use.
    #[test]
    fn memory_is_bounded_and_what_is_used_stays() {
        let cache = Cache::default();
        let read = cache.generation();
        let used = Known {
            table: Arc::new(Table {
                id: TableId(7),
                account: AccountId(2),
                name: "People".parse().unwrap(),
                created: Timestamp::from_ticks(0).unwrap(),
                placement: Placement::default(),
                policies: Vec::new(),
                indexes: Vec::new(),
                ttl: None,
            }),
            indexing: 3,
        };
        cache.keep_table(read, &used);
        let many = 3 * CATALOGUE_CACHE_BYTES_MAX / limits::METADATA_BYTES_MAX;
        let mut largest = 0;
        for number in 0..many as u64 {
            cache.keep_queue(read, &queue(number));
            largest = largest.max(cache.bytes());
            let found = cache.table(AccountId(2), &used.table.name.folded());
            assert!(found.is_some(), "{number}");
        }
        assert!(largest <= CATALOGUE_CACHE_BYTES_MAX + 2 * limits::METADATA_BYTES_MAX, "{largest}");
        assert!(CATALOGUE_CACHE_BYTES_MAX / 2 <= largest, "{largest}");
        assert_eq!(cache.table_of(TableId(7)).map(|known| known.indexing), Some(3));
        let name = |number| queue(number).name.clone();
        assert!(cache.queue(AccountId(1), &name(0)).is_none(), "nobody has used it for long");
        assert!(cache.queue(AccountId(1), &name(many as u64 - 1)).is_some());
        cache.forget();
        assert_eq!(cache.bytes(), 0);
        cache.keep_queue(read, &queue(0));
        assert_eq!(cache.bytes(), 0, "it was read before");
    }
}
