//! Reads by key share connections, and do not wait for each other when one of them is held up.

use crate::common;
use crate::common::{Stopped, database, key, number, open, put, table, write};
use futures_util::future::join_all;
use rowhouse_store::{Batch, Store, StoreError, TableId};
use rowhouse_store_postgres::PostgresStore;
use rowhouse_testkit::TestPostgres;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use tokio_postgres::{Client, NoTls};

/// So many entities, with their numbers.
const ENTITIES: i64 = 24;
/// A read that takes longer is alone on its connection, as are those that come after it.
const SLOW: Duration = Duration::from_millis(100);
/// How long a read waits on a connection that it shares.
const BESIDE_OTHERS: Duration = Duration::from_secs(2);
/// What a busy machine may take for anything.
const WITHIN: Duration = Duration::from_secs(30);
/// Holds of connections whose latest statement reads an entity by its key.
const BY_KEY: &str = "query LIKE 'SELECT e.ts, e.names, e.props FROM rowhouse.tables t LEFT JOIN rowhouse.entities e%'";
/// Holds of connections that wait for a lock.
const WAITS: &str = "wait_event_type = 'Lock'";

async fn filled(store: &PostgresStore) -> TableId {
    let table = table(store).await;
    for i in 0..ENTITIES {
        write(store, put(table, &key("p", &i.to_string()), number(i))).await;
    }
    table
}

/// A store with a table, on a new database. One connection is shared.
async fn sharing(server: &TestPostgres) -> (String, Arc<PostgresStore>, TableId) {
    let url = server.create_database();
    let store = open(&url).await;
    let table = filled(&store).await;
    read(&store, table, 0).await;
    (url, store, table)
}

/// Reads an entity; the answer is the one that was asked for.
async fn read(store: &PostgresStore, table: TableId, i: i64) {
    let found = store.get(table, &key("p", &i.to_string())).await;
    let found = found.expect("the read succeeds").expect("it is there");
    assert_eq!(common::n(&found), i);
}

/// Reads as many at once; how long the longest took.
async fn read_at_once(store: &Arc<PostgresStore>, table: TableId, reads: i64) -> Duration {
    let read = |i: i64| {
        let store = Arc::clone(store);
        tokio::spawn(async move {
            let began = Instant::now();
            read(&store, table, i % ENTITIES).await;
            began.elapsed()
        })
    };
    let reads: Vec<_> = (0..reads).map(read).collect();
    let mut longest = Duration::ZERO;
    for read in reads {
        longest = longest.max(read.await.expect("it does not panic"));
    }
    longest
}

/// Begins as many reads one right after the other; ends when all are answered.
fn begin(store: &Arc<PostgresStore>, table: TableId, reads: i64) -> JoinHandle<()> {
    let store = Arc::clone(store);
    tokio::spawn(async move {
        join_all((0..reads).map(|i| read(&store, table, i))).await;
    })
}

/// The processes of connections of servers to the database of which this holds.
fn connections(server: &TestPostgres, url: &str, which: &str) -> Vec<String> {
    let database = database(url);
    let sql = format!(
        "SELECT pid FROM pg_stat_activity
         WHERE application_name = 'rowhouse' AND datname = '{database}' AND {which}"
    );
    server.execute("postgres", &sql).lines().map(str::to_owned).collect()
}

/// How many reads by key wait for a lock.
fn held_up(url: &str) -> usize {
    connections(TestPostgres::shared(), url, &format!("{WAITS} AND {BY_KEY}")).len()
}

async fn wait_until(what: &str, within: Duration, holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < within, "waited in vain until {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Someone else who can lock what a store reads and writes.
struct Locker(Client);

impl Locker {
    async fn connect(url: &str) -> Self {
        let connected = tokio_postgres::connect(url, NoTls).await;
        let (client, connection) = connected.expect("the database can be reached");
        tokio::spawn(connection);
        Self(client)
    }

    /// Nobody reads an entity from now on.
    async fn lock_table(&self) {
        let lock = "BEGIN; LOCK TABLE rowhouse.entities IN ACCESS EXCLUSIVE MODE";
        self.0.batch_execute(lock).await.expect("nobody holds it for long");
    }

    /// Nobody writes one that is there.
    async fn lock_rows(&self) {
        let lock = "BEGIN; SELECT FROM rowhouse.entities FOR UPDATE";
        self.0.batch_execute(lock).await.expect("nobody holds them for long");
    }

    async fn release(&self) {
        self.0.batch_execute("ROLLBACK").await.expect("the connection is there");
    }
}

#[test]
fn reads_at_once_share_connections() {
    common::run(async {
        // When the machine pauses, the database seems slow, and connections are not shared.
        for _ in 0..20 {
            let server = TestPostgres::shared();
            let (url, store, table) = sharing(server).await;
            let used = || connections(server, &url, BY_KEY).len();
            let mut longest = Duration::ZERO;
            // Of eight connections two are shared: the first with the first read, the other when there are more.
            for _ in 0..50 {
                longest = longest.max(read_at_once(&store, table, 8).await);
                if used() == 2 {
                    break;
                }
            }
            for _ in 0..10 {
                longest = longest.max(read_at_once(&store, table, ENTITIES).await);
            }
            let used = used();
            store.close().await.expect("it closes");
            if longest < SLOW {
                assert_eq!(used, 2, "nobody needed one more");
                return;
            }
        }
        panic!("the machine is too busy to tell");
    });
}

#[test]
fn more_reads_than_can_share_have_connections_of_their_own() {
    common::run(async {
        let (_, store, table) = sharing(TestPostgres::shared()).await;
        for _ in 0..5 {
            read_at_once(&store, table, 200).await;
        }
        assert!(store.stats().connections <= 8, "{:?}", store.stats());
        // Others than reads use them too, now and then.
        let all_given_back = || {
            let stats = store.stats();
            stats.idle == stats.connections
        };
        wait_until("all are given back", WITHIN, all_given_back).await;
    });
}

#[test]
fn reads_that_are_held_up_do_not_wait_behind_each_other_for_long() {
    common::run(async {
        let (url, store, table) = sharing(TestPostgres::shared()).await;
        let locker = Locker::connect(&url).await;
        locker.lock_table().await;
        let reads = begin(&store, table, 4);
        wait_until("each has a connection", 4 * BESIDE_OTHERS, || held_up(&url) == 4).await;
        locker.release().await;
        reads.await.expect("all were answered");
    });
}

/// To ask again would be more work for a database that has too much of it. One that comes later closes the lane, and sends
/// nobody away from there.
#[test]
fn a_slow_database_is_not_asked_twice() {
    common::run(async {
        let (url, store, table) = sharing(TestPostgres::shared()).await;
        let locker = Locker::connect(&url).await;
        locker.lock_table().await;
        let (began, reads) = (Instant::now(), begin(&store, table, 4));
        tokio::time::sleep(3 * SLOW).await;
        let later = begin(&store, table, 1);
        while began.elapsed() < BESIDE_OTHERS / 2 {
            let asked = held_up(&url);
            let late = BESIDE_OTHERS <= began.elapsed();
            assert!(asked <= 2 || late, "the others are sent, and wait behind the first");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        locker.release().await;
        reads.await.expect("all were answered");
        later.await.expect("it was answered");
    });
}

#[test]
fn nobody_comes_behind_a_read_that_is_stuck() {
    common::run(async {
        let server = TestPostgres::start_with(&[("fsync", "off")]);
        let (url, store, table) = sharing(&server).await;
        let stopped = Stopped::new(connections(&server, &url, BY_KEY));
        let stuck = begin(&store, table, 1);
        tokio::time::sleep(3 * SLOW).await;
        assert!(!stuck.is_finished(), "another connection was shared");
        read_at_once(&store, table, 6).await;
        // It leaves after two seconds; those behind it would have left later.
        assert!(!stuck.is_finished(), "they waited for what is stuck");
        stuck.await.expect("it was answered");
        drop(stopped);
        read_at_once(&store, table, 6).await;
        store.close().await.expect("it closes");
    });
}

#[test]
fn nobody_comes_behind_a_read_that_was_slow() {
    common::run(async {
        let (url, store, table) = sharing(TestPostgres::shared()).await;
        let locker = Locker::connect(&url).await;
        locker.lock_table().await;
        let slow = begin(&store, table, 1);
        wait_until("the read waits", WITHIN, || held_up(&url) == 1).await;
        tokio::time::sleep(2 * SLOW).await;
        locker.release().await;
        slow.await.expect("it was answered");
        locker.lock_table().await;
        let reads = begin(&store, table, 4);
        // Earlier than they would leave a connection that they share.
        let soon = BESIDE_OTHERS.saturating_sub(2 * SLOW);
        wait_until("each has a connection", soon, || held_up(&url) == 4).await;
        locker.release().await;
        reads.await.expect("all were answered");
    });
}

#[test]
fn reads_share_what_there_is_while_writes_hold_all_else() {
    common::run(async {
        let (url, store, table) = sharing(TestPostgres::shared()).await;
        let locker = Locker::connect(&url).await;
        locker.lock_rows().await;
        let write = |i: i64| {
            let store = Arc::clone(&store);
            let batch = Batch::of(put(table, &key("p", &i.to_string()), number(i)));
            tokio::spawn(async move { store.commit(batch).await })
        };
        // Of eight connections one is shared.
        let writes: Vec<_> = (0..7).map(write).collect();
        let waits = || connections(TestPostgres::shared(), &url, WAITS).len() == 7;
        wait_until("the writes hold their connections", WITHIN, waits).await;
        for _ in 0..10 {
            read_at_once(&store, table, 12).await;
        }
        locker.release().await;
        for write in writes {
            let done = write.await.expect("it does not panic");
            assert!(matches!(done, Ok(_) | Err(StoreError::Busy)), "{done:?}");
        }
    });
}

/// Also none that was lent when the store was closed, and might be shared.
#[test]
fn a_store_that_is_closed_keeps_no_connection() {
    common::run(async {
        let server = TestPostgres::shared();
        let url = server.create_database();
        let store = open(&url).await;
        let table = filled(&store).await;
        let locker = Locker::connect(&url).await;
        locker.lock_table().await;
        let last = begin(&store, table, 1);
        wait_until("the read waits", WITHIN, || held_up(&url) == 1).await;
        store.close().await.expect("it closes");
        locker.release().await;
        last.await.expect("it was answered");
        let none = || connections(server, &url, "true").is_empty();
        wait_until("no connection is left", WITHIN, none).await;
    });
}
