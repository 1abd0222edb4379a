//! Tells those who wait for changes of a table when there are some: one reader of all changes for all who wait.
//!
//! The reader runs while somebody waits, however many do. Whoever listens before it looks misses nothing: what it did
//! not see is read, and told, after that.

use rowhouse_store::{Changes, ChangesWanted, Store, StoreError, TableId};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Most changes that are read at a time.
const READ_CHANGES: usize = 1000;
/// Most bytes that are read at a time.
const READ_BYTES: usize = 1024 * 1024;
/// Between two readings while there is always something to read.
const READ_EVERY: Duration = Duration::from_millis(20);
/// How long the reader stays when nobody listens any more and nothing is written.
const STAY: Duration = Duration::from_secs(1);

/// Who listens to which table.
type Ears = HashMap<TableId, watch::Sender<()>>;

/// Reads for all who wait.
#[derive(Debug)]
pub(crate) struct Watcher {
    store: Arc<dyn Store>,
    /// None if nobody reads.
    ears: Mutex<Option<Ears>>,
}

impl Watcher {
    pub(crate) fn new(store: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self { store, ears: Mutex::new(None) })
    }

    /// Changes when something of the table is written from now on, or when the reader fails. `place` is one that is
    /// not long ago.
    pub(crate) fn listen(self: &Arc<Self>, table: TableId, place: u64) -> watch::Receiver<()> {
        let mut ears = self.lock();
        if ears.is_none() {
            tokio::spawn(Arc::clone(self).read(place));
        }
        let ears = ears.get_or_insert_default();
        ears.entry(table).or_insert_with(|| watch::Sender::new(())).subscribe()
    }

    async fn read(self: Arc<Self>, mut place: u64) {
        loop {
            let began = Instant::now();
            let Ok(found) = self.next(place).await else {
                // Whoever listens hears that nobody reads any more, looks, and sees why.
                self.lock().take();
                return;
            };
            place = found.next;
            if !self.tell(&found) {
                return;
            }
            tokio::time::sleep_until((began + READ_EVERY).into()).await;
        }
    }

    async fn next(&self, after: u64) -> Result<Changes, StoreError> {
        let wanted = ChangesWanted {
            after,
            table: None,
            limit: READ_CHANGES,
            max_bytes: READ_BYTES,
            wait_until: Instant::now() + STAY,
        };
        self.store.changes(wanted).await
    }

    /// Tells those whom it concerns; false, and nobody reads, if nobody listens any more.
    fn tell(&self, found: &Changes) -> bool {
        let mut ears = self.lock();
        let listening = ears.get_or_insert_default();
        listening.retain(|_, ear| 0 < ear.receiver_count());
        if listening.is_empty() {
            *ears = None;
            return false;
        }
        let mut last = None;
        for change in &found.changes {
            if last.replace(change.table) != Some(change.table)
                && let Some(ear) = listening.get(&change.table)
            {
                ear.send_replace(());
            }
        }
        true
    }

    fn lock(&self) -> MutexGuard<'_, Option<Ears>> {
        // Nothing inside the lock can panic half way through a change.
        self.ears.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
