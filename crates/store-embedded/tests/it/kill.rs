//! Kills a process that writes, again and again: nothing acknowledged is lost, no batch is half there.

#[allow(dead_code, reason = "each test file uses some of it")]
use crate::common;
use crate::common::{key, number, page, put, record, table};
use rowhouse_env::SystemClock;
use rowhouse_store::{Batch, Condition, Store, Write};
use rowhouse_store_embedded::{EmbeddedStore, Options, check};
use rowhouse_types::{Etag, KeyRange};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

const ROUNDS: u64 = 10;
const WRITERS: usize = 8;
const ROWS: usize = 10;

fn open(directory: &Path) -> EmbeddedStore {
    EmbeddedStore::open(Options::new(directory), Arc::new(SystemClock)).unwrap()
}

/// The process that is killed; as a test of its own it does nothing.
///
/// Every writer inserts batches under new partitions and counts them in one entity by its ETag.
#[test]
fn writer_process() {
    let Ok(directory) = std::env::var("ROWHOUSE_TEST_KILL") else { return };
    let round = std::env::var("ROWHOUSE_TEST_ROUND").unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    runtime.block_on(async {
        let store = Arc::new(open(&PathBuf::from(directory)));
        let things = table(&*store, "Things").await;
        let mut writers = Vec::new();
        for writer in 0..WRITERS {
            let (store, round) = (Arc::clone(&store), round.clone());
            writers.push(tokio::spawn(async move {
                let counter = key("counters", &writer.to_string());
                for n in 0.. {
                    let partition = format!("{round} {writer} {n}");
                    // Some records are large enough to live in the side table.
                    let rows = (0..ROWS).map(|row| {
                        put(things, &partition, &row.to_string(), record(n, row * row * 30))
                    });
                    let old = store.get(things, &counter).await.unwrap();
                    let (condition, count) = match &old {
                        None => (Condition::Absent, 1),
                        Some(old) => {
                            let tag = Etag::new(old.as_ref().timestamp());
                            (Condition::Matches(tag), number(old) + 1)
                        }
                    };
                    let row = counter.row.as_str();
                    let put = Write::Put(record(count, 0));
                    let count_up = common::write(things, "counters", row, condition, put);
                    let commands = rows.chain([count_up]).collect();
                    store.commit(Batch::new(commands)).await.unwrap();
                    let line = format!("\nACK {round} {writer} {n} {count}\n");
                    std::io::stdout().lock().write_all(line.as_bytes()).unwrap();
                }
            }));
        }
        for writer in writers {
            writer.await.unwrap();
        }
    });
}

#[tokio::test]
async fn nothing_acknowledged_is_lost() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("data");
    // What was acknowledged: partitions, and how far each writer had counted.
    let (mut partitions, mut counts) = (Vec::new(), BTreeMap::<usize, i64>::new());
    for round in 0..ROUNDS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["kill::writer_process", "--exact", "--nocapture"])
            .env("ROWHOUSE_TEST_KILL", &directory)
            .env("ROWHOUSE_TEST_ROUND", round.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = child.stdout.take().unwrap();
        let reader = std::thread::spawn(move || {
            let lines = BufReader::new(output).lines().map_while(Result::ok);
            lines.filter(|line| line.starts_with("ACK ")).collect::<Vec<_>>()
        });
        std::thread::sleep(Duration::from_millis(150 + 40 * round));
        child.kill().unwrap();
        child.wait().unwrap();
        for line in reader.join().unwrap() {
            // The last line may have been cut; then it was not acknowledged to anybody.
            let words: Vec<_> = line.split(' ').collect();
            let [_, round, writer, n, count] = words[..] else { continue };
            partitions.push(format!("{round} {writer} {n}"));
            let counted = counts.entry(writer.parse().unwrap()).or_default();
            *counted = (*counted).max(count.parse().unwrap());
        }

        let store = open(&directory);
        let things = table(&store, "Things").await;
        let everything = page(&store, things, KeyRange::all()).await;
        let mut rows = BTreeMap::<String, usize>::new();
        for row in everything.rows.iter() {
            *rows.entry(row.unwrap().partition.to_owned()).or_default() += 1;
        }
        for partition in &partitions {
            assert!(rows.contains_key(partition), "round {round}: lost {partition}");
        }
        rows.remove("counters");
        let half: Vec<_> = rows.iter().filter(|(_, count)| **count != ROWS).collect();
        assert!(half.is_empty(), "round {round}: half there: {half:?}");
        let mut total = 0;
        // A writer that was killed before its first answer may have counted too.
        for writer in 0..WRITERS {
            let stored = store.get(things, &key("counters", &writer.to_string())).await.unwrap();
            let stored = stored.map_or(0, |record| number(&record));
            let count = counts.get(&writer).copied().unwrap_or(0);
            assert!(count <= stored, "round {round}: writer {writer} {count} {stored}");
            total += stored;
        }
        assert_eq!(usize::try_from(total).unwrap(), rows.len(), "batches and their counters");
        store.close().await.unwrap();
    }
    println!("{ROUNDS} rounds, {} batches acknowledged", partitions.len());
    assert!(partitions.len() > 20, "too little was written to show anything");
    let report = check(&directory, &mut |_| {}).unwrap();
    assert_eq!(report.problems, Vec::<String>::new());
}
