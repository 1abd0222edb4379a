//! Kills a process that builds indexes and writes into them: indexes and entities agree, and building goes on.

use super::common::{key, put, record, table};
use super::indexes::small_steps;
use super::runtime;
use crate::{EmbeddedStore, Options, check};
use rowhouse_env::SystemClock;
use rowhouse_store::conformance::indexed::{assert_agrees, built, index_of, unique_of};
use rowhouse_store::{Batch, Conflict, IndexState, Store, StoreError};
use rowhouse_types::{RecordBuilder, Timestamp, ValueRef};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

const ROUNDS: i64 = 8;
const WRITERS: i64 = 6;
/// Values that the writers contend for; fewer than twice as many as writers.
const VALUES: i64 = 10;

fn open(directory: &Path) -> EmbeddedStore {
    let options = Options::new(directory);
    EmbeddedStore::open_tuned(options, Arc::new(SystemClock), small_steps()).unwrap()
}

/// The process that is killed; as a test of its own it does nothing.
///
/// Every writer claims one value after the other, of which nobody else may have the same, with the number of its claim, and
/// changes a few entities that an index is being built of.
#[test]
fn building_process() {
    let Ok(directory) = std::env::var("ROWHOUSE_TEST_KILL_INDEX") else { return };
    let round: i64 = std::env::var("ROWHOUSE_TEST_ROUND").unwrap().parse().unwrap();
    runtime().block_on(async {
        let store = Arc::new(open(&PathBuf::from(directory)));
        let things = table(&*store, "Things").await;
        let name = format!("round{round}").parse().unwrap();
        store.create_index(things, &name, index_of(&["Number", "RowKey"])).await.unwrap();
        let writers = (0..WRITERS).map(|writer| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                for n in 0_i64.. {
                    let claim = round * 1_000_000 + n;
                    let mut builder = RecordBuilder::new();
                    let value = (n * 7 + writer * 3) % VALUES;
                    builder.push("Value", ValueRef::Int64(value)).unwrap();
                    builder.push("Number", ValueRef::Int64(claim)).unwrap();
                    let claimed = builder.finish(Timestamp::default());
                    let other = (n * 37 + writer * 101) % 2000;
                    let commands = vec![
                        put(things, "claims", &writer.to_string(), claimed),
                        put(things, "many", &format!("{other:05}"), record(claim, 10)),
                    ];
                    match store.commit(Batch::new(commands)).await {
                        Ok(_) => {
                            let line = format!("\nACK {writer} {claim}\n");
                            std::io::stdout().lock().write_all(line.as_bytes()).unwrap();
                        }
                        Err(StoreError::Rejected { index: 0, reason: Conflict::NotUnique }) => {}
                        Err(other) => panic!("{other}"),
                    }
                }
            })
        });
        for writer in writers.collect::<Vec<_>>() {
            writer.await.unwrap();
        }
    });
}

#[tokio::test]
async fn a_killed_build_goes_on() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("data");
    let store = open(&directory);
    let things = table(&store, "Things").await;
    let unique = unique_of(&["Value"]);
    store.create_index(things, &"value".parse().unwrap(), unique).await.unwrap();
    for start in (0..2000).step_by(100) {
        let rows =
            (start..start + 100).map(|n| put(things, "many", &format!("{n:05}"), record(n, 10)));
        store.commit(Batch::new(rows.collect())).await.unwrap();
    }
    store.close().await.unwrap();
    drop(store);
    let (mut claims, mut interrupted) = (BTreeMap::<i64, i64>::new(), 0);
    for round in 0..ROUNDS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["tests::kill::building_process", "--exact", "--nocapture"])
            .env("ROWHOUSE_TEST_KILL_INDEX", &directory)
            .env("ROWHOUSE_TEST_ROUND", round.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = child.stdout.take().unwrap();
        let reader = std::thread::spawn(move || {
            let lines = BufReader::new(output).lines().map_while(Result::ok);
            lines.filter(|line| line.starts_with("ACK ")).collect::<Vec<_>>()
        });
        std::thread::sleep(Duration::from_millis(100 + 60 * round.cast_unsigned()));
        child.kill().unwrap();
        child.wait().unwrap();
        for line in reader.join().unwrap() {
            let words: Vec<_> = line.split(' ').collect();
            let [_, writer, claim] = words[..] else { continue };
            claims.insert(writer.parse().unwrap(), claim.parse().unwrap());
        }

        let report = check(&directory, &mut |_| {}).unwrap();
        assert_eq!(report.problems, Vec::<String>::new(), "round {round}, as it was left");
        let store = open(&directory);
        let account = store.accounts().await.unwrap()[0].id;
        let listed = store.table(account, &"Things".parse().unwrap()).await.unwrap().unwrap();
        for index in &listed.indexes {
            interrupted += u32::from(index.state == IndexState::Building);
            assert_eq!(built(&store, things, index.id).await.state, IndexState::Ready);
            assert_agrees(&store, things, index, &format!("round {round}")).await;
            if round % 2 == 1 && index.name.as_str() != "value" {
                store.drop_index(things, index.id).await.unwrap();
            }
        }
        for (writer, claim) in &claims {
            let stored = store.get(things, &key("claims", &writer.to_string())).await.unwrap();
            let stored = super::common::number(&stored.unwrap());
            assert!(*claim <= stored, "round {round}: writer {writer} {claim} {stored}");
        }
        store.close().await.unwrap();
        drop(store);
        let report = check(&directory, &mut |_| {}).unwrap();
        assert_eq!(report.problems, Vec::<String>::new(), "round {round}, when it went on");
    }
    println!("{interrupted} builds of {ROUNDS} were interrupted, claims {claims:?}");
    assert!(interrupted > 0 && !claims.is_empty(), "too little happened to show anything");
}
