//! What servers ask for is counted, published and summed over all that are there.

use crate::common;
use crate::common::{database, key, number, open, put, table, write};
use rowhouse_store::Store;
use rowhouse_store_postgres::PostgresStore;
use rowhouse_testkit::TestPostgres;
use rowhouse_types::cluster::{Cluster, ClusterStatus, Role};
use std::time::{Duration, Instant};

/// Servers publish every ten seconds; a busy machine may take longer.
const WITHIN: Duration = Duration::from_mins(1);

async fn cluster(store: &PostgresStore) -> Cluster {
    match store.cluster().await.expect("it is told") {
        ClusterStatus::Postgres(cluster) => cluster,
        other => panic!("not what was opened: {other:?}"),
    }
}

#[test]
fn what_servers_ask_for_is_summed_while_they_are_there() {
    common::run(async {
        let url = TestPostgres::shared().create_database();
        let (writer, reader) = (open(&url).await, open(&url).await);
        let table = table(&*writer).await;
        let key = key("p", "r");
        let began = Instant::now();
        let both = loop {
            write(&*writer, put(table, &key, number(1))).await;
            assert!(reader.get(table, &key).await.expect("the read succeeds").is_some());
            let seen = cluster(&writer).await;
            let load = seen.shards[0].load;
            if load.reads_per_second > 0.0 && load.writes_per_second > 0.0 {
                break seen;
            }
            assert!(began.elapsed() < WITHIN, "waited in vain: {seen:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        let load = both.shards[0].load;
        assert!(load.busy_ms_per_second > 0.0, "{load:?}");
        let rows = (load.rows_read_per_second, load.rows_written_per_second);
        assert_eq!(rows, (load.reads_per_second, load.writes_per_second), "one entity each");
        let servers: Vec<_> =
            both.servers.iter().map(|server| (server.slot, server.asked)).collect();
        assert_eq!(servers, [(0, true), (1, false)]);

        // Its figures are of no account at once, and removed by the other in time.
        reader.close().await.expect("it closes");
        let left = cluster(&writer).await;
        assert_eq!((left.servers.len(), left.shards[0].load.reads_per_second), (1, 0.0));
        let count = "SELECT count(*) FROM rowhouse.load WHERE slot = 1";
        while TestPostgres::shared().execute(database(&url), count) != "0" {
            assert!(began.elapsed() < 2 * WITHIN, "waited in vain");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
}

/// Its connection, which it shares, does not answer; so it asks on another.
#[test]
fn a_read_that_asks_again_is_counted_once() {
    common::run(async {
        let server = TestPostgres::shared();
        let url = server.create_database();
        let store = open(&url).await;
        let table = table(&*store).await;
        let key = key("p", "r");
        write(&*store, put(table, &key, number(1))).await;
        let get = async || store.get(table, &key).await.expect("the read succeeds");
        assert!(get().await.is_some());
        let connected = tokio_postgres::connect(&url, tokio_postgres::NoTls).await;
        let (client, connection) = connected.expect("the database can be reached");
        tokio::spawn(connection);
        let lock = "BEGIN; LOCK TABLE rowhouse.entities IN ACCESS EXCLUSIVE MODE";
        client.batch_execute(lock).await.expect("nobody holds it for long");
        let (found, ()) = tokio::join!(get(), async {
            tokio::time::sleep(Duration::from_secs(4)).await;
            client.batch_execute("ROLLBACK").await.expect("the connection is there");
        });
        assert!(found.is_some());
        let answered = server.execute(database(&url), "SELECT now()");
        let sql = format!(
            "SELECT reads = rows_read, at > '{answered}' FROM rowhouse.load
             WHERE shard = 0 AND reads > 0"
        );
        let began = Instant::now();
        loop {
            let published = server.execute(database(&url), &sql);
            assert!(!published.starts_with('f'), "more reads than entities");
            if published == "t|t" {
                break;
            }
            assert!(began.elapsed() < WITHIN, "waited in vain");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
}

#[test]
fn a_database_is_a_node_with_one_shard() {
    common::run(async {
        let server = TestPostgres::shared();
        let url = server.create_database();
        let store = open(&url).await;
        let before = cluster(&store).await;
        let shown = (before.nodes.len(), before.nodes[0].role, before.nodes[0].reachable);
        assert_eq!(shown, (1, Role::Database, true));
        assert!(format!("{}:{}", before.nodes[0].host, before.nodes[0].port).contains(':'));
        let since = before.servers[0].since.as_deref().expect("it has said so");
        assert!(since.starts_with("20") && since.ends_with('Z'), "{since}");
        assert!((1..=3000).contains(&before.servers[0].lease_ms), "{:?}", before.servers);

        let table = table(&*store).await;
        write(&*store, put(table, &key("p", "r"), number(1))).await;
        let [shard] = cluster(&store).await.shards.try_into().expect("there is one");
        assert_eq!((shard.id, shard.node, shard.from), (0, Some(before.nodes[0].id), i32::MIN));
        assert!(shard.bytes > before.shards[0].bytes, "{shard:?}");
    });
}

/// A database of the first schema is brought up to date while its servers go on.
#[test]
fn a_database_of_an_older_schema_is_brought_up_to_date() {
    common::run(async {
        let server = TestPostgres::shared();
        let url = server.create_database();
        let old = open(&url).await;
        let table = table(&*old).await;
        let back =
            "DROP TABLE rowhouse.queues, rowhouse.messages; DROP FUNCTION rowhouse.live_queue, rowhouse.clock;
            ALTER TABLE rowhouse.catalogue DROP COLUMN last_queue;
            DROP TABLE rowhouse.expiring; DROP FUNCTION rowhouse.expiring_by_old_server;
            ALTER TABLE rowhouse.accounts DROP COLUMN keys_digest;
            ALTER TABLE rowhouse.tables DROP COLUMN ttl, DROP COLUMN ttl_property;
            DROP TABLE rowhouse.indexes, rowhouse.index_entries; DROP FUNCTION rowhouse.keeping;
            ALTER TABLE rowhouse.tables DROP COLUMN indexing;
            ALTER TABLE rowhouse.catalogue DROP COLUMN last_index;
            DROP TABLE rowhouse.changes; DROP FUNCTION rowhouse.note_change;
            ALTER TABLE rowhouse.catalogue DROP COLUMN retention, DROP COLUMN changes_after;
            DROP TABLE rowhouse.load; ALTER TABLE rowhouse.servers DROP COLUMN since;
            UPDATE rowhouse.schema_version SET version = 1";
        server.execute(database(&url), back);
        let new = open(&url).await;
        write(&*old, put(table, &key("p", "r"), number(1))).await;
        assert!(new.get(table, &key("p", "r")).await.expect("the read succeeds").is_some());
        let servers = cluster(&new).await.servers;
        assert_eq!(
            servers.iter().map(|server| server.since.is_some()).collect::<Vec<_>>(),
            [false, true]
        );
    });
}
