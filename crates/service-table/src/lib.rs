//! The rules of the Table service, free of HTTP.
//!
//! A [`TableService`] takes parsed values, asks the caller's grant, turns an operation into one call of the
//! store and answers in its own words: [`TableError`]. It keeps nothing between calls but a bounded record of queries that
//! cost much; while somebody waits for changes, one task reads them for all.

mod advice;
mod changes;
mod costly;
mod delete;
mod entity;
mod error;
mod explain;
mod index;
mod order;
mod planner;
mod query;
mod shape;
mod table;
mod threads;
mod ttl;
mod watcher;

pub use advice::{Advice, WantedIndex};
pub use changes::{Bookmark, ChangeItem, ChangesFrom, ChangesPage, ChangesQuery};
pub use costly::CostlyQuery;
pub use delete::{DeleteQuery, DeleteStep};
pub use entity::{Action, Match, Operation, Reach, Transacted};
pub use error::TableError;
pub use explain::{Explanation, RangeShape};
pub use index::{IndexView, NewIndex};
pub use order::OrderPlace;
pub use planner::{Considered, Estimate, PlanTaken};
pub use query::{EntityCount, EntityPage, EntityQuery, Place};
pub use rowhouse_store::{IndexState, Ttl};
pub use table::TablePage;

use costly::Costly;
use rowhouse_store::{AccountId, Store, Table};
use rowhouse_types::{Grant, KeyRange, TableName, Timestamp};
use std::sync::Arc;
use std::time::Instant;
use threads::Threads;
use watcher::Watcher;

/// Who asks: the account that the request addresses, and what its credentials allow there.
#[derive(Clone, Copy, Debug)]
pub struct Caller<'a> {
    /// The account.
    pub account: AccountId,
    /// What is allowed.
    pub grant: &'a Grant,
}

impl<'a> Caller<'a> {
    /// The keys that are all the caller may know of; none if it may read the whole table.
    fn visible(&self) -> Option<&'a KeyRange> {
        self.grant.range().filter(|range| **range != KeyRange::all())
    }

    /// Whether the caller may know which indexes there are: they are settled with a key of the account.
    fn knows_indexes(&self) -> bool {
        *self.grant == Grant::AccountKey
    }
}

/// Tables and entities of all accounts.
#[derive(Clone, Debug)]
pub struct TableService {
    store: Arc<dyn Store>,
    watcher: Arc<Watcher>,
    costly: Arc<Costly>,
    threads: Threads,
}

impl TableService {
    /// On top of a store.
    pub fn new(store: Arc<dyn Store>) -> Self {
        let watcher = Watcher::new(Arc::clone(&store));
        Self { store, watcher, costly: Arc::default(), threads: Threads::new() }
    }

    /// Does on a thread with a low priority what would hold a task's thread for too long, as parsing
    /// a long filter does. For requests that are admitted as scans. Fails with [`TableError::Busy`]
    /// if no thread was free before the deadline.
    pub async fn long_work<T: Send + 'static>(
        &self,
        deadline: Instant,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, TableError> {
        self.threads.long_work(deadline, work).await
    }

    /// Until when it shows everything that was answered, if it is on a copy; `None` if it is on no copy.
    pub async fn synced(&self) -> Result<Option<Timestamp>, TableError> {
        Ok(self.store.synced().await?)
    }

    async fn table(&self, caller: Caller<'_>, name: &TableName) -> Result<Arc<Table>, TableError> {
        self.whole(caller.account, name).await?.ok_or(TableError::TableNotFound)
    }

    /// The table of that name. One that is being restored is not there before it is whole.
    async fn whole(
        &self,
        account: AccountId,
        name: &TableName,
    ) -> Result<Option<Arc<Table>>, TableError> {
        let table = self.store.table(account, name).await?;
        Ok(table.filter(|table| table.is_whole()))
    }
}
