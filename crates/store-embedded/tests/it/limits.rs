//! What an account's tables and queues take in memory is bounded, whatever they consist of.

use crate::common::{name, table};
use rowhouse_env::SystemClock;
use rowhouse_store::{Conflict, Metadata, Placement, Store, StoreError};
use rowhouse_store_embedded::{EmbeddedStore, Options};
use rowhouse_types::{QueueName, StoredPolicy};
use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;

const MOST: u64 = 2 * 1024 * 1024;
/// Queues that the account may have.
const QUEUES: u64 = 20_000;

fn open(directory: &Path, account_bytes_max: u64) -> EmbeddedStore {
    let options = Options { account_bytes_max, ..Options::new(directory) };
    EmbeddedStore::open(options, Arc::new(SystemClock)).unwrap()
}

fn refusal<T: Debug>(outcome: Result<T, StoreError>) -> Conflict {
    match outcome {
        Err(StoreError::Rejected { reason, .. }) => reason,
        other => panic!("not refused: {other:?}"),
    }
}

fn queue(number: usize) -> QueueName {
    format!("queue-{number}").parse().unwrap()
}

/// 8 KiB, as many as there can be with names that short.
fn metadata() -> Metadata {
    (0..1500).map(|n| (format!("m{n}").into(), "1".into())).collect()
}

fn policies() -> Vec<StoredPolicy> {
    let policy = |n: usize| StoredPolicy {
        id: n.to_string().repeat(64).into(),
        start: None,
        expiry: None,
        permission: None,
    };
    (0..5).map(policy).collect()
}

#[tokio::test]
async fn metadata_cannot_fill_the_memory() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), MOST);
    let things = table(&store, "Things").await;
    let account = store.accounts().await.unwrap()[0].id;
    let mut created = Vec::new();
    let refused = loop {
        let name = queue(created.len());
        match store.create_queue_within(account, &name, metadata(), QUEUES).await {
            Ok(queue) => created.push(queue),
            refused => break refused,
        }
        assert!(created.len() < 100, "there is no end");
    };
    assert_eq!(refusal(refused), Conflict::TooManyQueues);
    let bytes = store.stats().catalogue_bytes;
    assert!((MOST..MOST + 512 * 1024).contains(&bytes), "{bytes} of {} queues", created.len());

    // Nothing of the account may grow, and everything may shrink.
    let new = store
        .create_table_with_policies(account, &name("New"), Placement::default(), Vec::new(), 100)
        .await;
    assert_eq!(refusal(new), Conflict::TooManyTables);
    assert_eq!(refusal(store.set_policies(things, policies()).await), Conflict::TooManyTables);
    let (first, second) = (created[0].id, created[1].id);
    let refused = store.set_queue_policies(first, policies()).await;
    assert_eq!(refusal(refused), Conflict::TooManyQueues);
    let mut longer = metadata();
    longer.push(("more".into(), "1".into()));
    let refused = store.set_metadata(first, longer.clone()).await;
    assert_eq!(refusal(refused), Conflict::TooManyQueues);
    let found = store.queue(account, &queue(0)).await.unwrap().unwrap();
    assert_eq!((&found.metadata, found.policies.len()), (&metadata(), 0), "nothing was changed");
    store.set_metadata(first, metadata()).await.unwrap();
    store.close().await.unwrap();

    // Also after a restart. A restore has no such limit.
    let store = open(directory.path(), MOST);
    let refused = store.set_metadata(first, longer.clone()).await;
    assert_eq!(refusal(refused), Conflict::TooManyQueues);
    store.create_queue(account, &queue(5000), metadata()).await.unwrap();
    store.drop_queue(second).await.unwrap();
    store.set_metadata(created[2].id, Vec::new()).await.unwrap();
    store.set_metadata(first, longer).await.unwrap();
    store.set_queue_policies(first, policies()).await.unwrap();
    store.set_policies(things, policies()).await.unwrap();
    store.close().await.unwrap();
}

/// An operator can allow any number of small ones.
#[tokio::test]
async fn many_small_queues_are_no_matter_of_memory() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), 16 * 1024);
    table(&store, "Things").await;
    let account = store.accounts().await.unwrap()[0].id;
    for n in 0..200 {
        let created = store.create_queue_within(account, &queue(n), Vec::new(), QUEUES).await;
        created.unwrap();
    }
    assert!(store.stats().catalogue_bytes > 32 * 1024);
}
