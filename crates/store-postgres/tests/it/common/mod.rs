//! What the tests of this crate have in common: stores on a real PostgreSQL, and short words for the contract.

#![allow(dead_code, reason = "every test file uses a part of it")]

use rowhouse_env::{Clock, SystemClock, SystemRandom};
use rowhouse_query::Filter;
use rowhouse_store::{AccountId, Conflict, NewAccount, Placement, Store, StoreError, TableId};
use rowhouse_store_postgres::{Durability, OpenError, Options, PostgresStore};
use rowhouse_types::TableName;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

#[allow(unused_imports, reason = "every test file uses a part of it")]
pub(crate) use rowhouse_store::conformance::fixture::{
    command, commit, key, n, number, page, put, record, scan_all, scan_of, write,
};

/// Runs a test on a runtime of its own.
pub(crate) fn run<T>(test: impl Future<Output = T>) -> T {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(4).enable_all().build().expect("a runtime can be made");
    runtime.block_on(test)
}

/// A few connections, and whatever durability the server of the tests has.
pub(crate) fn options(url: &str) -> Options {
    let (durability, ttl_grace) = (Durability::Ephemeral, Duration::ZERO);
    Options { connections: 8, durability, ttl_grace, ..Options::new(url) }
}

pub(crate) async fn try_open(url: &str) -> Result<PostgresStore, OpenError> {
    PostgresStore::open(options(url), Arc::new(SystemClock), Arc::new(SystemRandom)).await
}

pub(crate) async fn open(url: &str) -> Arc<PostgresStore> {
    Arc::new(try_open(url).await.expect("the store opens"))
}

pub(crate) async fn open_at(url: &str, clock: impl Clock) -> Arc<PostgresStore> {
    let store = PostgresStore::open(options(url), Arc::new(clock), Arc::new(SystemRandom)).await;
    Arc::new(store.expect("the store opens"))
}

/// The last part of the URL of a database.
pub(crate) fn database(url: &str) -> &str {
    url.rsplit('/').next().expect("a URL has a path")
}

pub(crate) async fn account(store: &dyn Store) -> AccountId {
    let name = "account".parse().expect("a legal name");
    let keys = [Box::from(*b"key one"), Box::from(*b"key two")];
    store.create_account(NewAccount { name, keys }).await.expect("the account is new").id
}

pub(crate) fn name(text: &str) -> TableName {
    text.parse().expect("a legal name")
}

/// A new table in a new account.
pub(crate) async fn table(store: &dyn Store) -> TableId {
    let account = account(store).await;
    let table = store.create_table(account, &name("Things"), Placement::default()).await;
    table.expect("the table is new").id
}

/// Why it was refused; panics on any other error.
pub(crate) fn refused<T>(result: Result<T, StoreError>) -> Result<T, Conflict> {
    match result {
        Ok(done) => Ok(done),
        Err(StoreError::Rejected { reason, .. }) => Err(reason),
        Err(other) => panic!("neither done nor refused: {other:?}"),
    }
}

/// Processes that are stopped until this is dropped. They neither answer nor end, and the system takes what is sent to them.
pub(crate) struct Stopped(Vec<String>);

impl Stopped {
    /// Stops the processes of these numbers.
    pub(crate) fn new(processes: Vec<String>) -> Self {
        assert!(!processes.is_empty(), "there is none to stop");
        let stopped = Self(processes);
        assert!(stopped.signal("STOP"), "a process is not there");
        stopped
    }

    fn signal(&self, name: &str) -> bool {
        let done = Command::new("kill").args(["-s", name, "--"]).args(&self.0).status();
        done.is_ok_and(|status| status.success())
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        self.signal("CONT");
    }
}

pub(crate) fn filter(text: &str) -> Arc<Filter> {
    let parsed = Filter::parse(text).unwrap_or_else(|error| panic!("{text:.200}: {error}"));
    Arc::new(parsed.expect("not blank"))
}
