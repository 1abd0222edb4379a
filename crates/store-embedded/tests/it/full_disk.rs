//! A disk that takes no more: the store reports it, and what it acknowledged is there. After a failure of unknown cause it
//! takes no more writes; after an exceeded quota it does as soon as there is room.
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

/// The process whose quota is exceeded for a while; as a test of its own it does nothing.
#[test]
fn process_with_quota() {
    let Ok(directory) = std::env::var("ROWHOUSE_TEST_QUOTA") else { return };
    let flag = std::env::var("QUOTA_FLAG").unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let directory = PathBuf::from(directory);
        let store = open(&directory);
        let things = table(&store, "Things").await;
        let insert = |n: i64| Batch::of(put(things, "p", &n.to_string(), record(n, 3_000)));
        for round in [0, 10] {
            store.commit(insert(round)).await.unwrap();
            std::fs::write(&flag, "").unwrap();
            let refused = store.commit(insert(round + 1)).await;
            assert!(matches!(refused, Err(StoreError::OutcomeUnknown(_))), "{refused:?}");
            let refused = store.commit(insert(round + 2)).await;
            assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
            assert!(store.is_full(), "it waits for room");
            assert!(store.get(things, &key("p", "0")).await.unwrap().is_some(), "reads go on");
            std::fs::remove_file(&flag).unwrap();
            let began = std::time::Instant::now();
            while store.is_full() {
                assert!(began.elapsed().as_secs() < 30, "it goes on when there is room");
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            store.commit(insert(round + 3)).await.unwrap();
            for (n, is_there) in [(0, true), (1, false), (2, false), (3, true)] {
                let found = store.get(things, &key("p", &(round + n).to_string())).await.unwrap();
                assert_eq!(found.is_some(), is_there, "{round} {n}");
            }
        }
        store.close().await.unwrap();
        assert_eq!(check(&directory, &mut |_| {}).unwrap().problems, Vec::<String>::new());
        say("HEALED");
    });
}

/// SQLite reports a quota as any failed write. Linux alone lets a library stand between a program and its writes so easily.
#[cfg(target_os = "linux")]
#[test]
fn an_exceeded_quota_is_a_full_disk() {
    let root = tempfile::tempdir().unwrap();
    let library = root.path().join("quota.so");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/quota.c");
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(source);
    assert!(compiler.status().unwrap().success(), "the compiler that builds SQLite builds it");
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["full_disk::process_with_quota", "--exact", "--nocapture"])
        .env("ROWHOUSE_TEST_QUOTA", root.path().join("data"))
        .env("QUOTA_FLAG", root.path().join("flag"))
        .env("LD_PRELOAD", &library)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("HEALED"), "{output:?}");
}
