//! Queues of a backup come back in a data directory, with all that is known of their messages.

use rowhouse_env::{SystemClock, SystemRandom};
use rowhouse_server::{Config, RestoreChoice, restore};
use rowhouse_service_backup::{BackupService, KeepKeys};
use rowhouse_store::{Batch, Message, MessageAction, Queue, Store};
use rowhouse_store_embedded::{EmbeddedStore, Options};
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../service-backup/tests/fixtures").join(name)
}

fn restored(directory: &Path, files: &[PathBuf]) -> (EmbeddedStore, u64) {
    let config = Config { data: directory.to_owned(), ..Config::default() };
    let (restored, _) = restore(&config, files, RestoreChoice::default(), |_, _| {}).unwrap();
    let store = EmbeddedStore::open(Options::new(directory), Arc::new(SystemClock)).unwrap();
    (store, restored.messages)
}

/// The queue `jobs`, and its messages in their order.
async fn jobs(store: &dyn Store) -> (Arc<Queue>, Vec<Message>) {
    let account = store.accounts().await.unwrap()[0].id;
    let queue = store.queue(account, &"jobs".parse().unwrap()).await.unwrap().unwrap();
    let view = store.snapshot().await.unwrap();
    let page = view.messages(queue.id, None, usize::MAX, usize::MAX).await.unwrap();
    (queue, page.messages)
}

#[test]
fn queues_come_back_in_a_data_directory() {
    let root = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let full = [fixture("v2-queues-full.rhb")];
    let (store, count) = restored(&root.path().join("full"), &full);
    assert_eq!(count, 2);
    let again = runtime.block_on(async {
        let (queue, messages) = jobs(&store).await;
        assert_eq!(queue.metadata[0], ("Zone".into(), "x".into()));
        // The other one has expired since.
        let texts: Vec<_> = messages.iter().map(|message| &*message.text).collect();
        assert_eq!(texts, ["zweite é"]);
        let hidden = messages[0].visible.ticks() - messages[0].receipt.ticks();
        assert_eq!((messages[0].taken, hidden), (0, 300_000_000));
        // What is backed up from there is the same.
        let backup = root.path().join("again.rhb");
        let service = BackupService::new(
            Arc::new(store),
            Arc::new(SystemClock),
            Arc::new(SystemRandom),
            KeepKeys::new(|account| account.keys.clone()),
            "0.0.0",
        );
        let mut bytes = Vec::new();
        service.begin(None).await.unwrap().write(&mut bytes).await.unwrap();
        std::fs::write(&backup, bytes).unwrap();
        (backup, messages)
    });
    let (backup, before) = again;
    let (store, count) = restored(&root.path().join("again"), &[backup]);
    assert_eq!(count, 1);
    runtime.block_on(async {
        let (queue, messages) = jobs(&store).await;
        assert_eq!(messages, before);
        // The receipt of the original works.
        let (id, receipt) = (messages[0].id, messages[0].receipt);
        let delete = MessageAction::Delete { id, receipt };
        store.commit(Batch::of_message(queue.id, delete)).await.unwrap();
        assert_eq!(store.message_count(queue.id).await.unwrap(), 0);
    });
    let chain = ["v2-queues-full.rhb", "v2-queues-incremental.rhb"].map(fixture);
    let (store, count) = restored(&root.path().join("chain"), &chain);
    assert_eq!(count, 1);
    let (_, messages) = runtime.block_on(jobs(&store));
    assert_eq!(&*messages[0].text, "third");
}
