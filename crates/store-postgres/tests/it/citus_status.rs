//! What a Citus cluster is shown as: nodes that answer and one that does not, and the load of each shard.
//!
//! Needs the URL of a database with the Citus extension and its nodes in `ROWHOUSE_TEST_CITUS`; everything in its schema
//! `rowhouse` is removed. Run one test at a time: `cargo test --test citus_status -- --ignored --test-threads=1`.

use crate::common;
use crate::common::{key, number, page, put, scan_all, table, write};
use rowhouse_store_postgres::PostgresStore;
use rowhouse_types::cluster::{Cluster, ClusterStatus, Role, Shard};
use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Servers publish every ten seconds; a busy machine may take longer.
const WITHIN: Duration = Duration::from_mins(1);

fn url() -> String {
    std::env::var("ROWHOUSE_TEST_CITUS").expect("ROWHOUSE_TEST_CITUS names a cluster")
}

async fn execute(sql: &str) {
    let (client, connection) = tokio_postgres::connect(&url(), tokio_postgres::NoTls)
        .await
        .expect("the cluster can be reached");
    let connection = tokio::spawn(connection);
    client.batch_execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    drop(client);
    let _ = connection.await;
}

async fn open() -> Arc<PostgresStore> {
    execute("DROP SCHEMA IF EXISTS rowhouse CASCADE").await;
    common::open(&url()).await
}

async fn cluster(store: &PostgresStore) -> Cluster {
    match store.cluster().await.expect("it is told") {
        ClusterStatus::Citus(cluster) => cluster,
        other => panic!("not what was opened: {other:?}"),
    }
}

#[test]
#[ignore = "ROWHOUSE_TEST_CITUS names a cluster"]
fn load_is_that_of_the_shard_which_holds_the_partition() {
    common::run(async {
        let store = open().await;
        let table = table(&*store).await;
        let began = Instant::now();
        let seen = loop {
            for row in ["1", "2", "3"] {
                write(&*store, put(table, &key("one", row), number(1))).await;
            }
            page(&*store, table, scan_all()).await;
            let seen = cluster(&store).await;
            if seen.shards.iter().any(|shard| shard.load.writes_per_second > 0.0) {
                break seen;
            }
            assert!(began.elapsed() < WITHIN, "waited in vain: {seen:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        };
        let busy = |shard: &&Shard| shard.load.busy_ms_per_second > 0.0;
        assert_eq!(seen.shards.iter().filter(busy).count(), 1, "{seen:?}");
        assert!(seen.several.reads_per_second > 0.0, "{:?}", seen.several);
        let rows: u64 = seen.shards.iter().filter_map(|shard| shard.rows).sum();
        assert!(rows <= 3, "{seen:?}");
    });
}

#[test]
#[ignore = "ROWHOUSE_TEST_CITUS names a cluster"]
fn shards_cover_all_hashes_and_lie_on_nodes_that_answer() {
    common::run(async {
        let seen = cluster(&*open().await).await;
        assert!(seen.nodes.iter().any(|node| node.role == Role::Coordinator), "{seen:?}");
        let mut next = i64::from(i32::MIN);
        for shard in &seen.shards {
            assert_eq!(i64::from(shard.from), next, "{seen:?}");
            next = i64::from(shard.to) + 1;
            let holder = seen.nodes.iter().find(|node| shard.node == Some(node.id));
            assert!(holder.is_some_and(|node| node.reachable && node.active), "{seen:?}");
            assert!(shard.bytes.is_some_and(|bytes| bytes > 0), "{seen:?}");
        }
        assert_eq!(next, i64::from(i32::MAX) + 1);
    });
}

/// It takes connections and says nothing: the worst way of being down.
#[test]
#[ignore = "ROWHOUSE_TEST_CITUS names a cluster"]
fn a_node_that_does_not_answer_holds_nobody_up() {
    common::run(async {
        let store = open().await;
        let mute = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = mute.local_addr().expect("it is bound").port();
        execute(&format!("SELECT citus_add_inactive_node('127.0.0.1', {port})")).await;
        let began = Instant::now();
        let seen = cluster(&store).await;
        let took = began.elapsed();
        execute(&format!("SELECT citus_remove_node('127.0.0.1', {port})")).await;
        assert!(took < Duration::from_secs(5), "{took:?}");
        let down: Vec<_> = seen.nodes.iter().filter(|node| !node.reachable).collect();
        assert_eq!(
            down.iter().map(|node| (node.port, node.active)).collect::<Vec<_>>(),
            [(port, false)]
        );
        assert!(seen.shards.iter().all(|shard| shard.bytes.is_some()), "{seen:?}");
    });
}
