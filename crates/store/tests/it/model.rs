//! The model passes the suite that it is the measure of.

use async_trait::async_trait;
use rowhouse_env::{Clock, SimulatedClock};
use rowhouse_store::Store;
use rowhouse_store::conformance::{Engine, PROMISES};
use rowhouse_store::model::ModelStore;
use rowhouse_types::Timestamp;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

/// Keeps the stores it opened, to find the data of the one that is to be opened again.
struct Model {
    clock: Arc<SimulatedClock>,
    opened: Mutex<Vec<Arc<ModelStore>>>,
}

impl Model {
    fn new() -> Self {
        let start = Timestamp::parse_iso("2026-01-01T00:00:00Z").expect("a date");
        Self { clock: Arc::new(SimulatedClock::new(start)), opened: Mutex::default() }
    }

    fn keep(&self, store: ModelStore) -> Arc<dyn Store> {
        let store = Arc::new(store);
        self.opened.lock().expect("not poisoned").push(Arc::clone(&store));
        store
    }
}

#[async_trait]
impl Engine for Model {
    async fn open(&self) -> Arc<dyn Store> {
        self.keep(ModelStore::new(Arc::clone(&self.clock) as Arc<dyn Clock>))
    }

    async fn reopen(&self, store: Arc<dyn Store>) -> Option<Arc<dyn Store>> {
        let same = |kept: &&Arc<ModelStore>| {
            Arc::as_ptr(kept).cast::<()>() == Arc::as_ptr(&store).cast::<()>()
        };
        let again = self.opened.lock().expect("not poisoned").iter().find(same)?.reopen();
        store.close().await.expect("closed");
        Some(self.keep(again))
    }

    fn clock(&self) -> &SimulatedClock {
        &self.clock
    }
}

rowhouse_store::conformance_suite!(Model::new());

/// Names and sentences make a table of guarantees: each is there once.
#[test]
fn promises_are_distinct() {
    let names: BTreeSet<_> = PROMISES.iter().map(|promise| promise.name).collect();
    let sentences: BTreeSet<_> = PROMISES.iter().map(|promise| promise.sentence).collect();
    assert_eq!((names.len(), sentences.len()), (PROMISES.len(), PROMISES.len()));
}
