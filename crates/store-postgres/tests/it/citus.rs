//! The engine on a Citus cluster keeps the promises of the contract.
//!
//! Needs the URL of a database with the Citus extension and its nodes in `ROWHOUSE_TEST_CITUS`; everything in its schema
//! `rowhouse` is removed. Run one test at a time: `cargo test --test citus -- --ignored --test-threads=1`.

use async_trait::async_trait;
use rowhouse_env::{Clock, SimulatedClock, SystemRandom};
use rowhouse_store::Store;
use rowhouse_store::conformance::Engine;
use rowhouse_store_postgres::{Durability, Options, PostgresStore, QueueClock};
use rowhouse_types::Timestamp;
use std::sync::Arc;
use std::time::Duration;
use tokio_postgres::SimpleQueryMessage;

/// One database for all tests, emptied whenever a store is opened anew.
struct Citus {
    clock: Arc<SimulatedClock>,
    url: String,
}

impl Citus {
    fn new() -> Self {
        let start = Timestamp::parse_iso("2026-01-01T00:00:00Z").expect("a date");
        let url =
            std::env::var("ROWHOUSE_TEST_CITUS").expect("ROWHOUSE_TEST_CITUS names a cluster");
        Self { clock: Arc::new(SimulatedClock::new(start)), url }
    }

    async fn open_store(&self) -> Arc<dyn Store> {
        let clock = Arc::clone(&self.clock) as Arc<dyn Clock>;
        let durability = Durability::Ephemeral;
        let queue_clock = QueueClock::Server;
        // What a test has expire is removed at once.
        let ttl_grace = Duration::ZERO;
        let options = Options {
            connections: 8,
            durability,
            queue_clock,
            ttl_grace,
            ..Options::new(self.url.clone())
        };
        let store = PostgresStore::open(options, clock, Arc::new(SystemRandom)).await;
        Arc::new(store.expect("the store opens"))
    }

    /// Runs statements on the coordinator; how many rows the last one with any has.
    async fn execute(&self, sql: &str) -> usize {
        let (client, connection) = tokio_postgres::connect(&self.url, tokio_postgres::NoTls)
            .await
            .expect("the cluster can be reached");
        let connection = tokio::spawn(connection);
        let messages = client.simple_query(sql).await.expect("the statements run");
        drop(client);
        let _ = connection.await;
        let is_row = |message: &&SimpleQueryMessage| matches!(message, SimpleQueryMessage::Row(_));
        messages.iter().filter(is_row).count()
    }
}

#[async_trait]
impl Engine for Citus {
    async fn open(&self) -> Arc<dyn Store> {
        self.execute("DROP SCHEMA IF EXISTS rowhouse CASCADE").await;
        self.open_store().await
    }

    async fn reopen(&self, store: Arc<dyn Store>) -> Option<Arc<dyn Store>> {
        store.close().await.expect("the store closes");
        Some(self.open_store().await)
    }

    fn clock(&self) -> &SimulatedClock {
        &self.clock
    }
}

rowhouse_store::conformance_suite!(several nodes: Citus::new(), needs "ROWHOUSE_TEST_CITUS names a cluster");

/// Every step of the schema can be taken where the tables are on several nodes already.
#[tokio::test]
#[ignore = "ROWHOUSE_TEST_CITUS names a cluster"]
async fn a_cluster_of_the_first_schema_is_brought_up_to_date() {
    let citus = Citus::new();
    citus.execute("DROP SCHEMA IF EXISTS rowhouse CASCADE").await;
    citus.execute(include_str!("../fixtures/schema1.sql")).await;
    citus.execute(include_str!("../../migrations/citus.sql")).await;
    let store = citus.open_store().await;
    let accounts = store.accounts().await.expect("they are there");
    assert!(!accounts.is_empty());
    let keys = [Box::from([1; 32]), Box::from([2; 32])];
    store.set_account_keys(accounts[0].id, accounts[0].version, keys).await.expect("rotated");
    let written = "SELECT FROM rowhouse.accounts WHERE keys_digest = sha256(key1 || key2)";
    assert_eq!(citus.execute(written).await, accounts.len());
    assert!(citus.execute("SELECT FROM rowhouse.entities").await > 0);
    store.close().await.expect("the store closes");
}
