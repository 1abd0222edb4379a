//! Every removal of entities that have expired is counted in a line of the log.

use crate::common::{put, record, table};
use rowhouse_env::SystemClock;
use rowhouse_store::{Batch, Store, TableId, Ttl};
use rowhouse_store_embedded::{EmbeddedStore, Options};
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// What this process logs.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Log {
    /// Of the whole process: engines log on threads of their own. Other tests in it use other tables.
    fn start() -> Self {
        let log = Self::default();
        let writer = log.clone();
        let lines = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone());
        tracing::subscriber::set_global_default(lines.finish()).expect("no other test logs");
        log
    }

    /// What its lines say was removed from a table.
    fn removed(&self, table: &str) -> Vec<i64> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        let of_table = format!("table=\"{table}\"");
        let lines = text.lines().filter(|line| {
            line.contains("expired entities were removed") && line.contains(&of_table)
        });
        lines.map(|line| line.rsplit("removed=").next().unwrap().trim().parse().unwrap()).collect()
    }
}

const ENTITIES: i64 = 4000;

fn open(directory: &Path, ttl_grace: Duration) -> EmbeddedStore {
    let options = Options { ttl_grace, ..Options::new(directory) };
    EmbeddedStore::open(options, Arc::new(SystemClock)).unwrap()
}

async fn expire_now(store: &EmbeddedStore, table: TableId) {
    let ttl = Ttl { property: None, after: Duration::ZERO };
    store.set_ttl(table, Some(ttl)).await.unwrap();
}

/// A pass that a new TTL ends, and one that is under way when the store is closed.
#[tokio::test]
async fn removals_of_unfinished_passes_are_logged() {
    let log = Log::start();
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), Duration::ZERO);
    let things = table(&store, "Unfinished").await;
    let mut batches = (0..ENTITIES).map(|n| put(things, "p", &format!("{n:05}"), record(1, 10)));
    loop {
        let batch: Vec<_> = batches.by_ref().take(100).collect();
        if batch.is_empty() {
            break;
        }
        store.commit(Batch::new(batch)).await.unwrap();
    }
    let left = || {
        let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
        let path = directory.path().join("rowhouse.db");
        let database = rusqlite::Connection::open_with_flags_and_vfs(path, flags, c"rowhouse");
        let count = "SELECT count(*) FROM entities";
        database.unwrap().query_row(count, [], |row| row.get::<_, i64>(0)).unwrap()
    };
    expire_now(&store, things).await;
    for most in [3500, 2500] {
        let began = Instant::now();
        while left() > most {
            assert!(began.elapsed() < Duration::from_secs(30), "nothing is removed");
            std::thread::sleep(Duration::from_millis(1));
        }
        expire_now(&store, things).await;
    }
    store.close().await.unwrap();
    drop(store);
    let removed = ENTITIES - left();
    assert!(removed < ENTITIES, "the last pass was to be unfinished");
    assert_eq!(log.removed("Unfinished").iter().sum::<i64>(), removed);
}
