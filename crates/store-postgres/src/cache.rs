//! What a server remembers of accounts, tables and queues. Who may trust it is decided elsewhere.

use rowhouse_store::{Account, AccountId, Queue, Table, TableId};
use rowhouse_types::{AccountName, FoldedName, QueueName};
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

/// Entries of a kind after which all are forgotten: a bound of memory.
const ENTRIES_MAX: usize = 50_000;

/// A table, and the number of what its writes have to keep of indexes.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) table: Arc<Table>,
    pub(crate) indexing: i64,
}

/// Accounts, tables and queues as they were read.
#[derive(Debug, Default)]
pub(crate) struct Cache(RwLock<State>);

#[derive(Debug, Default)]
struct State {
    /// Rises whenever everything is forgotten.
    generation: u64,
    accounts: HashMap<AccountName, Arc<Account>>,
    names: HashMap<(AccountId, FoldedName), Arc<Table>>,
    /// For what never changes of a table, also while no lease is held; and for what the database judges.
    ids: HashMap<TableId, Known>,
    queues: HashMap<(AccountId, QueueName), Arc<Queue>>,
}

/// When something was read from the database: before it was forgotten, or after.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Generation(u64);

impl Cache {
    fn read<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        look(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn write(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.0.write().unwrap_or_else(PoisonError::into_inner));
    }

    /// Asked for before reading what is to be remembered.
    pub(crate) fn generation(&self) -> Generation {
        Generation(self.read(|state| state.generation))
    }

    /// Everything has to be read anew.
    pub(crate) fn forget(&self) {
        self.write(|state| *state = State { generation: state.generation + 1, ..State::default() });
    }

    pub(crate) fn account(&self, name: &AccountName) -> Option<Arc<Account>> {
        self.read(|state| state.accounts.get(name).cloned())
    }

    pub(crate) fn table(&self, account: AccountId, name: &FoldedName) -> Option<Arc<Table>> {
        self.read(|state| state.names.get(&(account, name.clone())).cloned())
    }

    pub(crate) fn table_of(&self, id: TableId) -> Option<Known> {
        self.read(|state| state.ids.get(&id).cloned())
    }

    pub(crate) fn queue(&self, account: AccountId, name: &QueueName) -> Option<Arc<Queue>> {
        self.read(|state| state.queues.get(&(account, name.clone())).cloned())
    }

    /// Remembers a queue that was read in that generation.
    pub(crate) fn keep_queue(&self, read: Generation, queue: &Arc<Queue>) {
        self.write(|state| {
            if state.generation != read.0 {
                return;
            }
            if state.queues.len() >= ENTRIES_MAX {
                state.queues.clear();
            }
            state.queues.insert((queue.account, queue.name.clone()), Arc::clone(queue));
        });
    }

    /// Remembers an account that was read in that generation.
    pub(crate) fn keep_account(&self, read: Generation, account: &Arc<Account>) {
        self.write(|state| {
            if state.generation == read.0 && state.accounts.len() < ENTRIES_MAX {
                state.accounts.insert(account.name.clone(), Arc::clone(account));
            }
        });
    }

    /// Remembers a table that was read in that generation.
    pub(crate) fn keep_table(&self, read: Generation, known: &Known) {
        self.write(|state| {
            if state.generation != read.0 {
                return;
            }
            if state.ids.len() >= ENTRIES_MAX {
                (state.ids, state.names) = Default::default();
            }
            let table = &known.table;
            state.ids.insert(table.id, known.clone());
            state.names.insert((table.account, table.name.folded()), Arc::clone(table));
        });
    }
}
