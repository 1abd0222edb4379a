//! The PostgreSQL engine keeps every promise of the contract, whatever the locale of the database.

use async_trait::async_trait;
use rowhouse_env::{Clock, SimulatedClock, SystemRandom};
use rowhouse_store::Store;
use rowhouse_store::conformance::Engine;
use rowhouse_store_postgres::{Durability, Options, PostgresStore, QueueClock};
use rowhouse_testkit::TestPostgres;
use rowhouse_types::Timestamp;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Each store has a database of its own, found again by the address of the store.
struct Postgres {
    server: &'static TestPostgres,
    clock: Arc<SimulatedClock>,
    databases: Mutex<BTreeMap<usize, String>>,
}

impl Postgres {
    fn new(server: &'static TestPostgres) -> Self {
        let start = Timestamp::parse_iso("2026-01-01T00:00:00Z").expect("a date");
        let clock = Arc::new(SimulatedClock::new(start));
        Self { server, clock, databases: Mutex::default() }
    }

    async fn open_at(&self, url: String) -> Arc<dyn Store> {
        let clock = Arc::clone(&self.clock) as Arc<dyn Clock>;
        // The server of the tests does not wait for its disk.
        let durability = Durability::Ephemeral;
        let queue_clock = QueueClock::Server;
        // What a test has expire is removed at once.
        let ttl_grace = Duration::ZERO;
        let options = Options {
            connections: 8,
            durability,
            queue_clock,
            ttl_grace,
            ..Options::new(url.clone())
        };
        let store = PostgresStore::open(options, clock, Arc::new(SystemRandom)).await;
        let store: Arc<dyn Store> = Arc::new(store.expect("the store opens"));
        self.databases.lock().expect("not poisoned").insert(address(&store), url);
        store
    }
}

fn address(store: &Arc<dyn Store>) -> usize {
    Arc::as_ptr(store).cast::<()>().addr()
}

#[async_trait]
impl Engine for Postgres {
    async fn open(&self) -> Arc<dyn Store> {
        self.open_at(self.server.create_database()).await
    }

    async fn reopen(&self, store: Arc<dyn Store>) -> Option<Arc<dyn Store>> {
        let url = self.databases.lock().expect("not poisoned").get(&address(&store))?.clone();
        store.close().await.expect("the store closes");
        Some(self.open_at(url).await)
    }

    fn clock(&self) -> &SimulatedClock {
        &self.clock
    }
}

mod any_locale {
    use super::{Postgres, TestPostgres};

    rowhouse_store::conformance_suite!(Postgres::new(TestPostgres::shared()));
}

/// Where texts sort and compare by the rules of a language.
mod icu_locale {
    use super::{Postgres, TestPostgres};

    rowhouse_store::conformance_suite!(Postgres::new(TestPostgres::shared_with_locale()));
}
