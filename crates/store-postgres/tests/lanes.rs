//! Reads by key share connections, and do not wait for each other when one of them is held up.

mod common;

use common::{database, key, number, open, put, table, write};
use rowhouse_store::{Store, TableId};
use rowhouse_store_postgres::PostgresStore;
use rowhouse_testkit::TestPostgres;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// So many entities, with their numbers.
const ENTITIES: i64 = 24;

async fn filled(store: &PostgresStore) -> TableId {
    let table = table(store).await;
    for i in 0..ENTITIES {
        write(store, put(table, &key("p", &i.to_string()), number(i))).await;
    }
    table
}

/// Reads as many at once; every answer is the one that was asked for.
async fn read_at_once(store: &Arc<PostgresStore>, table: TableId, reads: i64) {
    let read = |i: i64| {
        let store = Arc::clone(store);
        tokio::spawn(async move {
            let i = i % ENTITIES;
            let found = store.get(table, &key("p", &i.to_string())).await;
            let found = found.expect("the read succeeds").expect("it is there");
            assert_eq!(common::n(&found), i);
        })
    };
    let reads: Vec<_> = (0..reads).map(read).collect();
    for read in reads {
        read.await.expect("it does not panic");
    }
}

/// How many connections of servers to the database there are of which this holds.
fn connections(url: &str, which: &str) -> usize {
    let database = database(url);
    let sql = format!(
        "SELECT count(*) FROM pg_stat_activity
         WHERE application_name = 'rowhouse' AND datname = '{database}' AND {which}"
    );
    TestPostgres::shared().execute("postgres", &sql).parse().expect("a number")
}

#[test]
fn reads_at_once_share_connections() {
    common::run(async {
        let url = TestPostgres::shared().create_database();
        let store = open(&url).await;
        let table = filled(&store).await;
        // Of eight connections two are shared: the first with the first read, the other when there are more.
        read_at_once(&store, table, 1).await;
        read_at_once(&store, table, 6).await;
        let before = connections(&url, "true");
        assert!(before < 10, "{before} with those of the lease");
        for _ in 0..20 {
            read_at_once(&store, table, ENTITIES).await;
        }
        assert_eq!(connections(&url, "true"), before, "nobody needed one more");
    });
}

#[test]
fn more_reads_than_can_share_have_connections_of_their_own() {
    common::run(async {
        let url = TestPostgres::shared().create_database();
        let store = open(&url).await;
        let table = filled(&store).await;
        for _ in 0..5 {
            read_at_once(&store, table, 200).await;
        }
        let stats = store.stats();
        assert!(stats.connections <= 8, "{stats:?}");
        assert_eq!(stats.idle, stats.connections, "all were given back");
    });
}

/// Four reads on one connection, while the table is locked for as long as `meanwhile` takes.
async fn read_while_locked(meanwhile: impl AsyncFnOnce(&str)) {
    let url = TestPostgres::shared().create_database();
    let store = open(&url).await;
    let table = filled(&store).await;
    read_at_once(&store, table, 1).await;
    let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls)
        .await
        .expect("the database can be reached");
    let connection = tokio::spawn(connection);
    let lock = "BEGIN; LOCK TABLE rowhouse.entities IN ACCESS EXCLUSIVE MODE";
    client.batch_execute(lock).await.expect("nobody holds it");
    let held_up = {
        let store = Arc::clone(&store);
        tokio::spawn(async move { read_at_once(&store, table, 4).await })
    };
    meanwhile(&url).await;
    client.batch_execute("ROLLBACK").await.expect("the connection is there");
    held_up.await.expect("all were answered");
    drop(client);
    connection.await.expect("it ends").expect("it ends well");
    store.close().await.expect("it closes");
}

const WAITS: &str = "wait_event_type = 'Lock'";

#[test]
fn reads_that_are_held_up_do_not_wait_behind_each_other_for_long() {
    common::run(read_while_locked(async |url| {
        let began = Instant::now();
        while connections(url, WAITS) < 4 {
            assert!(began.elapsed() < Duration::from_secs(8), "they wait for each other");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }));
}

/// To ask again would be more work for a database that has too much of it.
#[test]
fn a_slow_database_is_not_asked_twice() {
    common::run(read_while_locked(async |url| {
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(700) {
            assert!(connections(url, WAITS) <= 1, "the others are sent, and wait behind the first");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }));
}
