//! The embedded engine keeps every promise of the contract, with a database that fits into memory and with one that does not.

use async_trait::async_trait;
use rowhouse_env::{Clock, SimulatedClock};
use rowhouse_store::Store;
use rowhouse_store::conformance::Engine;
use rowhouse_store_embedded::{EmbeddedStore, Options};
use rowhouse_types::Timestamp;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Each store has a directory of its own, found again by the address of the store.
struct Embedded {
    clock: Arc<SimulatedClock>,
    root: tempfile::TempDir,
    opened: AtomicUsize,
    directories: Mutex<BTreeMap<usize, PathBuf>>,
    memory_bytes: Option<u64>,
}

impl Embedded {
    fn new() -> Self {
        let start = Timestamp::parse_iso("2026-01-01T00:00:00Z").expect("a date");
        Self {
            clock: Arc::new(SimulatedClock::new(start)),
            root: tempfile::tempdir().expect("a temporary directory"),
            opened: AtomicUsize::new(0),
            directories: Mutex::default(),
            memory_bytes: None,
        }
    }

    /// Every database is too large.
    fn without_memory() -> Self {
        Self { memory_bytes: Some(0), ..Self::new() }
    }

    fn open_at(&self, directory: PathBuf) -> Arc<dyn Store> {
        let clock = Arc::clone(&self.clock) as Arc<dyn Clock>;
        let memory_bytes = self.memory_bytes;
        // What a test has expire is removed at once.
        let ttl_grace = Duration::ZERO;
        let options = Options { readers: 2, memory_bytes, ttl_grace, ..Options::new(&directory) };
        let store: Arc<dyn Store> =
            Arc::new(EmbeddedStore::open(options, clock).expect("the store opens"));
        self.directories.lock().expect("not poisoned").insert(address(&store), directory);
        store
    }
}

fn address(store: &Arc<dyn Store>) -> usize {
    Arc::as_ptr(store).cast::<()>().addr()
}

#[async_trait]
impl Engine for Embedded {
    async fn open(&self) -> Arc<dyn Store> {
        let number = self.opened.fetch_add(1, Ordering::Relaxed);
        self.open_at(self.root.path().join(number.to_string()))
    }

    async fn reopen(&self, store: Arc<dyn Store>) -> Option<Arc<dyn Store>> {
        let directory =
            self.directories.lock().expect("not poisoned").get(&address(&store))?.clone();
        store.close().await.expect("the store closes");
        Some(self.open_at(directory))
    }

    fn clock(&self) -> &SimulatedClock {
        &self.clock
    }
}

rowhouse_store::conformance_suite!(Embedded::new());

mod larger_than_memory {
    use super::Embedded;

    rowhouse_store::conformance_suite!(Embedded::without_memory());
}
