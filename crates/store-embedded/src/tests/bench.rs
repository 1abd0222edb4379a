//! The measurement behind `inline_bytes`. Run by hand:
//! `cargo test --release -p rowhouse-store-embedded -- --ignored --nocapture`

use super::common::{commit, key, page, put, record, table};
use super::{open_with, runtime};
use crate::tuning::Tuning;
use rowhouse_env::SystemClock;
use rowhouse_store::Store;
use rowhouse_types::KeyRange;
use std::sync::Arc;
use std::time::Instant;

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
