//! The measurements behind `inline_bytes` and the steps in which indexes are built. Run by hand:
//! `cargo test --release -p rowhouse-store-embedded -- --ignored --nocapture`

use super::common::{commit, key, page, put, record, table};
use super::{open_with, runtime};
use crate::tuning::Tuning;
use crate::{EmbeddedStore, Options};
use rowhouse_env::SystemClock;
use rowhouse_store::conformance::indexed::{index_of, ready};
use rowhouse_store::{IndexId, IndexState, Store, TableId};
use rowhouse_types::KeyRange;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Where records should leave their row: size of the file and time per row for thresholds and sizes.
#[test]
#[ignore = "a measurement"]
fn where_records_spill() {
    println!("record  inline <=   file B/row   write us   get us   scan us");
    for padding in [300, 700, 1_100, 2_000, 4_000, 16_000] {
        for inline_bytes in [480, 960, 1_900, 3_800, 1_000_000] {
            let directory = tempfile::tempdir().unwrap();
            let tuning = Tuning { inline_bytes, ..Tuning::default() };
            let store = open_with(directory.path(), tuning, Arc::new(SystemClock));
            runtime().block_on(async {
                let things = table(&*store, "Things").await;
                let partitions = 100;
                let rows = f64::from(partitions) * 100.0;
                // In an order that is not that of the keys, as entities arrive.
                let start = Instant::now();
                for n in 0..partitions {
                    let rows = (0..100_i32).map(|row| {
                        let partition = ((n * 37 + row * 7) % partitions).to_string();
                        put(things, &partition, &format!("{n:05}{row:05}"), record(1, padding))
                    });
                    commit(&*store, rows.collect()).await;
                }
                let write = start.elapsed().as_secs_f64() * 1e6 / rows;
                let start = Instant::now();
                for n in 0..partitions {
                    for row in 0..100_i32 {
                        let partition = ((n * 37 + row * 7) % partitions).to_string();
                        let key = key(&partition, &format!("{n:05}{row:05}"));
                        assert!(store.get(things, &key).await.unwrap().is_some());
                    }
                }
                let get = start.elapsed().as_secs_f64() * 1e6 / rows;
                let start = Instant::now();
                let read = page(&*store, things, KeyRange::all()).await.rows.len();
                let scan = start.elapsed().as_secs_f64() * 1e6 / rows;
                assert_eq!(read, 10_000);
                store.close().await.unwrap();
                let bytes = std::fs::metadata(directory.path().join("rowhouse.db")).unwrap().len();
                #[expect(clippy::cast_precision_loss, reason = "a size for people")]
                let per_row = bytes as f64 / rows;
                println!(
                    "{padding:6}  {inline_bytes:9}  {per_row:11.0}  {write:9.1}  {get:7.1}  {scan:8.1}"
                );
            });
        }
    }
}

/// What an index costs whoever inserts: time of one thread for each, with as many indexes.
#[test]
#[ignore = "a measurement"]
fn what_indexes_cost() {
    println!("indexes  insert us");
    for indexes in [0, 1, 3] {
        let directory = tempfile::tempdir().unwrap();
        let store = open_with(directory.path(), Tuning::default(), Arc::new(SystemClock));
        runtime().block_on(async {
            let things = table(&*store, "Things").await;
            for n in 0..indexes {
                let name = format!("i{n}");
                ready(&*store, things, &name, index_of(&["Part0", "Number", "RowKey"])).await;
            }
            let count = 50_000_i64;
            let start = Instant::now();
            for n in 0..count / 100 {
                let rows = (0..100).map(|row| {
                    let row = n * 100 + row;
                    put(things, &(row % 37).to_string(), &row.to_string(), record(row * 7919, 100))
                });
                commit(&*store, rows.collect()).await;
            }
            #[expect(clippy::cast_precision_loss, reason = "a time for people")]
            let each = start.elapsed().as_secs_f64() * 1e6 / count as f64;
            println!("{indexes:7}  {each:9.1}");
            store.close().await.unwrap();
        });
    }
}

/// What others notice of an index that is built over a million entities: latencies with nothing else to do, and then.
#[test]
#[ignore = "a measurement"]
fn what_building_costs() {
    const ENTITIES: i64 = 1_000_000;
    let directory = tempfile::tempdir_in(".").unwrap();
    let store = Arc::new(
        EmbeddedStore::open(Options::new(directory.path()), Arc::new(SystemClock)).unwrap(),
    );
    runtime().block_on(async {
        let things = table(&*store, "Things").await;
        let place = |n: i64| ((n % 1000).to_string(), format!("{n:07}"));
        for n in 0..ENTITIES / 500 {
            let rows = (n * 500..(n + 1) * 500).map(|n| {
                let (partition, row) = place(n);
                put(things, &partition, &row, record(n * 7919 % 1_000_003, 250))
            });
            commit(&*store, rows.collect()).await;
        }
        tokio::time::sleep(Duration::from_secs(3)).await;
        let measure = async |what: &str, until: Until| {
            let (mut reads, mut writes, mut n) = (Vec::new(), Vec::new(), 0_i64);
            let start = Instant::now();
            while !until.is_over(&store, start).await {
                for _ in 0..20 {
                    n += 1;
                    let (partition, row) = place(n * 15_485_863 % ENTITIES);
                    let before = Instant::now();
                    assert!(store.get(things, &key(&partition, &row)).await.unwrap().is_some());
                    reads.push(before.elapsed());
                    if n % 5 == 0 {
                        let before = Instant::now();
                        commit(&*store, vec![put(things, &partition, &row, record(n, 250))]).await;
                        writes.push(before.elapsed());
                    }
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
            for (kind, mut times) in [("reads", reads), ("writes", writes)] {
                times.sort();
                let at = |part: usize| times[(times.len() - 1) * part / 1000];
                println!(
                    "{what:8} {kind:6} {:7}  p50 {:?}  p99 {:?}  p99.9 {:?}  of {:?}",
                    times.len(),
                    at(500),
                    at(990),
                    at(999),
                    start.elapsed()
                );
            }
        };
        measure("idle", Until::Elapsed(Duration::from_secs(30))).await;
        let name = "number".parse().unwrap();
        let index = store.create_index(things, &name, index_of(&["Number"])).await.unwrap();
        measure("building", Until::Built(things, index.id)).await;
        store.close().await.unwrap();
    });
}

/// When a measurement is over.
enum Until {
    Elapsed(Duration),
    Built(TableId, IndexId),
}

impl Until {
    async fn is_over(&self, store: &EmbeddedStore, start: Instant) -> bool {
        match self {
            Self::Elapsed(duration) => *duration < start.elapsed(),
            Self::Built(table, index) => {
                store.built(*table, *index).await.unwrap().state != IndexState::Building
            }
        }
    }
}
