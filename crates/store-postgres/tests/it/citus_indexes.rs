//! Secondary indexes on a Citus cluster: entries are written where their entity is, in one transaction on one node; no
//! write of any server misses an index, whatever the nodes have heard of it so far.
//!
//! Needs the URL of a superuser's database with the Citus extension and its nodes in `ROWHOUSE_TEST_CITUS`; everything in
//! its schema `rowhouse` is removed. Run one test at a time: `cargo test --test citus_indexes -- --ignored --test-threads=1`.

use crate::common;
use crate::common::{command, commit, key, number, open, put, refused, write};
use rowhouse_store::conformance::indexed::{assert_agrees, index_of, ready, unique_of};
use rowhouse_store::{Batch, Condition, Conflict, Index, Store, StoreError, TableId, Write};
use rowhouse_store_postgres::PostgresStore;
use rowhouse_testkit::{TestCitus, Worker};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;

/// Partitions that are tried until every worker has some.
const PARTITIONS: usize = 40;

async fn servers(count: usize) -> (TestCitus, Vec<Arc<PostgresStore>>, TableId) {
    let cluster = TestCitus::named();
    cluster.empty();
    let mut stores = vec![open(cluster.url()).await];
    let table = common::table(&*stores[0]).await;
    while stores.len() < count {
        stores.push(open(cluster.url()).await);
    }
    (cluster, stores, table)
}

/// A partition of each worker, with an entity.
async fn a_partition_each(
    cluster: &TestCitus,
    store: &PostgresStore,
    table: TableId,
) -> BTreeMap<Worker, String> {
    for partition in 0..PARTITIONS {
        write(store, put(table, &key(&format!("p{partition}"), "r"), number(0))).await;
    }
    let holders: BTreeMap<i64, Worker> = cluster.shards().into_iter().collect();
    let partitions = cluster.partitions("Things").into_iter();
    let held: BTreeMap<_, _> =
        partitions.map(|(partition, shard)| (holders[&shard].clone(), partition)).collect();
    assert!(held.len() > 1, "it takes two workers");
    held
}

/// The number of the shard of a table that every node has a copy of.
fn copy_of(cluster: &TestCitus, table: &str) -> String {
    cluster.execute(&format!(
        "SELECT shardid FROM pg_dist_shard WHERE logicalrelid = 'rowhouse.{table}'::regclass"
    ))
}

/// Writes of all kinds in many partitions, alone and in batches, until it is told to stop; how many.
async fn keep_writing(
    store: Arc<PostgresStore>,
    table: TableId,
    writer: i64,
    stop: Arc<AtomicBool>,
) -> i64 {
    let mut round = 0;
    while !stop.load(Ordering::SeqCst) {
        round += 1;
        let n = round * 13 + writer * 71;
        let one = |n: i64, kind: i64| {
            let place = key(&(n % 7).to_string(), &format!("{:03}", n % 100));
            match kind % 5 {
                0 => command(table, &place, Condition::Any, Write::Delete),
                1 => command(table, &place, Condition::Any, Write::Merge(number(n % 17))),
                2 => command(table, &place, Condition::Absent, Write::Put(number(n % 17))),
                _ => put(table, &place, number(n % 17)),
            }
        };
        // Some batches are on several nodes.
        let commands = match round % 6 {
            0 => vec![one(n, 1), one(n + 7, 3), one(n + 14, 0)],
            3 => vec![one(n, 1), one(n + 1, 3), one(n + 2, 0)],
            _ => vec![one(n, round)],
        };
        match refused(commit(&*store, commands).await) {
            Ok(_) | Err(Conflict::EntityExists) => {}
            Err(reason) => panic!("refused: {reason}"),
        }
    }
    round
}

#[test]
#[ignore = "ROWHOUSE_TEST_CITUS names a cluster"]
fn every_server_keeps_an_index_that_one_declares() {
    common::run(async {
        let (_, stores, table) = servers(3).await;
        let stop = Arc::new(AtomicBool::new(false));
        let mut writers = JoinSet::new();
        for writer in 0..6 {
            let store = Arc::clone(&stores[writer % stores.len()]);
            let writer = i64::try_from(writer).expect("small");
            writers.spawn(keep_writing(store, table, writer, Arc::clone(&stop)));
        }
        let mut indexes: Vec<Index> = Vec::new();
        for round in 0..6 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            let keys = index_of(&["n", ["RowKey", "PartitionKey", "Timestamp"][round % 3]]);
            indexes.push(ready(&*stores[round % 3], table, &format!("i{round}"), keys).await);
            if round % 2 == 1 {
                // The next one may be the first of the table again.
                for dropped in indexes.drain(..if round == 3 { 2 } else { 1 }) {
                    stores[2].drop_index(table, dropped.id).await.expect("it is there");
                }
            }
        }
        stop.store(true, Ordering::SeqCst);
        let mut count = 0;
        while let Some(written) = writers.join_next().await {
            count += written.expect("no writer panics");
        }
        for store in &stores {
            for index in &indexes {
                assert_agrees(&**store, table, index, "when all is quiet").await;
            }
        }
        println!(
            "citus indexes: 6 declared and {} dropped under {count} writes of three servers, none missed",
            6 - indexes.len()
        );
    });
}

/// A partition is unique by itself; what another has is free.
#[test]
#[ignore = "ROWHOUSE_TEST_CITUS names a cluster"]
fn one_of_many_servers_gets_a_unique_value() {
    common::run(async {
        let (_, stores, table) = servers(3).await;
        let index = ready(&*stores[0], table, "u", unique_of(&["PartitionKey", "n"])).await;
        for round in 0..10 {
            let mut writers = JoinSet::new();
            for writer in 0..12 {
                let store = Arc::clone(&stores[writer % 3]);
                let place = key(&format!("p{}", writer % 4), &format!("{round}-{writer}"));
                writers.spawn(async move {
                    refused(commit(&*store, vec![put(table, &place, number(round))]).await).is_ok()
                });
            }
            let done = writers.join_all().await;
            assert_eq!(done.iter().filter(|written| **written).count(), 4, "one a partition");
        }
        assert_agrees(&*stores[1], table, &index, "when all is quiet").await;
    });
}

/// Nodes hear of an index one after the other. What is judged on one that has not heard of it must not be written by one
/// that has, nor the other way round.
#[test]
#[ignore = "ROWHOUSE_TEST_CITUS names a cluster"]
fn a_write_waits_until_its_nodes_agree_about_the_indexes() {
    common::run(async {
        let (cluster, stores, table) = servers(1).await;
        let store = &stores[0];
        let held = a_partition_each(&cluster, store, table).await;
        let index = ready(&**store, table, "n", index_of(&["n"])).await;
        let held: Vec<_> = held.into_iter().collect();
        let [(_, here), (worker, there), ..] = &held[..] else { panic!("two are there") };
        let batch = |n: i64| {
            let places = [key(here, "r"), key(there, "r")];
            places.map(|place| put(table, &place, number(n))).to_vec()
        };
        commit(&**store, batch(1)).await.expect("all nodes agree");
        let copy = copy_of(&cluster, "tables");
        let set = |by: i64| {
            let sql = format!(
                "SET citus.enable_manual_changes_to_shards = on;
                 UPDATE rowhouse.tables_{copy} SET indexing = indexing + {by}"
            );
            cluster.execute_on(worker, &sql);
        };
        set(1_000_000);
        let refusal = store.commit(Batch::new(batch(2))).await;
        assert!(matches!(refusal, Err(StoreError::Busy)), "{refusal:?}");
        let waiting = {
            let (store, batch) = (Arc::clone(store), batch(3));
            tokio::spawn(async move { commit(&*store, batch).await })
        };
        tokio::time::sleep(Duration::from_millis(20)).await;
        set(-1_000_000);
        waiting.await.expect("no panic").expect("it is written when they agree");
        assert_agrees(&**store, table, &index, "when all agree").await;
    });
}

/// The node that is told to commit first says that an index is ready before the others do.
#[test]
#[ignore = "ROWHOUSE_TEST_CITUS names a cluster"]
fn an_index_is_ready_as_soon_as_one_node_says_so() {
    common::run(async {
        let (cluster, stores, table) = servers(1).await;
        let store = &stores[0];
        let held = a_partition_each(&cluster, store, table).await;
        let index = ready(&**store, table, "n", index_of(&["n"])).await;
        let copy = copy_of(&cluster, "indexes");
        for worker in held.keys() {
            let late = format!(
                "SET citus.enable_manual_changes_to_shards = on;
                 UPDATE rowhouse.indexes_{copy} SET state = 1"
            );
            cluster.execute_on(worker, &late);
        }
        assert_agrees(&**store, table, &index, "when only the coordinator knows").await;
    });
}

/// As when a node is lost after it has promised to commit a change of the catalogue, and has come back.
#[test]
#[ignore = "ROWHOUSE_TEST_CITUS names a cluster"]
fn an_index_waits_for_what_a_node_has_promised_to_commit() {
    common::run(async {
        let (cluster, stores, table) = servers(1).await;
        write(&*stores[0], put(table, &key("p", "r"), number(1))).await;
        let worker = cluster.workers().pop().expect("there are some");
        let promise = "BEGIN; SELECT pg_current_xact_id(); PREPARE TRANSACTION 'citus_of_a_test'";
        cluster.execute_on(&worker, promise);
        let store = Arc::clone(&stores[0]);
        let declared =
            tokio::spawn(async move { ready(&*store, table, "n", index_of(&["n"])).await });
        tokio::time::sleep(Duration::from_secs(2)).await;
        let waits = !declared.is_finished();
        cluster.execute_on(&worker, "COMMIT PREPARED 'citus_of_a_test'");
        assert!(waits, "it waits");
        let index = declared.await.expect("it is declared");
        assert_agrees(&*stores[0], table, &index, "then").await;
    });
}
