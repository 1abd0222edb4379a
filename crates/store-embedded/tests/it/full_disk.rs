//! A disk that takes no more: the store says so, for good, and what it acknowledged is there.
#![cfg(unix)]

#[allow(dead_code, reason = "each test file uses some of it")]
use crate::common::{key, number, put, record, table};
use rowhouse_env::SystemClock;
use rowhouse_store::{Batch, Store, StoreError};
use rowhouse_store_embedded::{EmbeddedStore, Options, check};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

fn open(directory: &Path) -> EmbeddedStore {
    EmbeddedStore::open(Options::new(directory), Arc::new(SystemClock)).unwrap()
}

/// The process whose files may not grow; as a test of its own it does nothing.
#[test]
fn limited_process() {
    let Ok(directory) = std::env::var("ROWHOUSE_TEST_FULL") else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let store = open(&PathBuf::from(directory));
        let things = table(&store, "Things").await;
        let insert = |n: i64| Batch::of(put(things, "p", &n.to_string(), record(n, 3_000)));
        let mut n = 0;
        loop {
            match store.commit(insert(n)).await {
                Ok(_) => say(&format!("ACK {n}")),
                Err(StoreError::OutcomeUnknown(_)) => break,
                Err(other) => panic!("{other}"),
            }
            n += 1;
        }
        assert!(store.ready().is_err());
        assert!(matches!(store.commit(insert(0)).await, Err(StoreError::Unavailable(_))));
        assert!(matches!(store.drop_table(things).await, Err(StoreError::Unavailable(_))));
        let read = store.get(things, &key("p", "0")).await.unwrap().unwrap();
        assert_eq!(number(&read), 0, "reads go on");
        assert!(store.get(things, &key("p", &n.to_string())).await.unwrap().is_none());
        store.close().await.unwrap();
        say("LATCHED");
    });
}

fn say(line: &str) {
    std::io::stdout().lock().write_all(format!("\n{line}\n").as_bytes()).unwrap();
}

#[tokio::test]
async fn a_full_disk_latches_and_loses_nothing() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("data");
    // Files may have 2 MiB; a write beyond fails as on a full disk instead of ending the process.
    let output = Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 4096; exec \"$0\" \"$@\""])
        .arg(std::env::current_exe().unwrap())
        .args(["full_disk::limited_process", "--exact", "--nocapture"])
        .env("ROWHOUSE_TEST_FULL", &directory)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("LATCHED"), "{output:?}");
    let acknowledged: Vec<i64> =
        text.lines().filter_map(|line| line.strip_prefix("ACK ")?.parse().ok()).collect();
    assert!(acknowledged.len() > 20, "{}", acknowledged.len());

    let store = open(&directory);
    let things = table(&store, "Things").await;
    for n in acknowledged {
        let found = store.get(things, &key("p", &n.to_string())).await.unwrap();
        assert_eq!(found.map(|record| number(&record)), Some(n));
    }
    let again = put(things, "p", "again", record(0, 3_000));
    store.commit(Batch::of(again)).await.unwrap();
    store.close().await.unwrap();
    assert_eq!(check(&directory, &mut |_| {}).unwrap().problems, Vec::<String>::new());
}
