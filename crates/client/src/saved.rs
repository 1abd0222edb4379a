//! How far a copy has got, in memory and in its file.

use crate::client::{Client, Place};
use crate::error::TransferError;
use crate::export::RangeState;
use crate::state;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often the state is made certain.
const SAVE_EVERY: Duration = Duration::from_secs(1);

/// What is certain of an unfinished copy.
#[derive(Debug, Serialize, Deserialize)]
struct State {
    source: String,
    destination: String,
    /// The ranges of each table that was begun.
    tables: BTreeMap<String, Vec<RangeState>>,
    entities: u64,
    /// Where the change feed of each table goes on, if changes are copied too. The first place of a table is from before
    /// the first range of it was read.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    places: BTreeMap<String, String>,
}

/// The state and its file.
#[derive(Debug)]
pub(crate) struct Saved {
    path: Option<PathBuf>,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    state: State,
    saved: Instant,
}

impl Saved {
    /// What the file says, or the beginning of a copy.
    pub(crate) fn open(
        path: Option<&Path>,
        source: &Client,
        destination: &Client,
    ) -> Result<Self, TransferError> {
        let mut state = State {
            source: source.address(),
            destination: destination.address(),
            tables: BTreeMap::new(),
            entities: 0,
            places: BTreeMap::new(),
        };
        if let Some(path) = path
            && let Some(found) = state::load::<State>(path)?
        {
            if (&found.source, &found.destination) != (&state.source, &state.destination) {
                return Err(TransferError::Refused(format!(
                    "{} is about other services: name another file with --resume, or remove it",
                    path.display()
                )));
            }
            state = found;
        }
        let inner = Mutex::new(Inner { state, saved: Instant::now() });
        Ok(Self { path: path.map(Path::to_owned), inner })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Entities that were copied.
    pub(crate) fn entities(&self) -> u64 {
        self.lock().state.entities
    }

    /// The ranges of a table, if it was begun.
    pub(crate) fn ranges(&self, table: &str) -> Option<Vec<RangeState>> {
        self.lock().state.tables.get(table).cloned()
    }

    /// Whether all ranges of a table are copied.
    pub(crate) fn is_copied(&self, table: &str) -> bool {
        let tables = &self.lock().state.tables;
        tables.get(table).is_some_and(|ranges| ranges.iter().all(|range| range.done))
    }

    /// A table is begun.
    pub(crate) fn begin(&self, table: &str, ranges: Vec<RangeState>) -> Result<(), TransferError> {
        self.lock().state.tables.insert(table.to_owned(), ranges);
        self.save_now()
    }

    /// A page of a range was copied; the range goes on at the place, or is done.
    pub(crate) fn note(
        &self,
        table: &str,
        index: usize,
        entities: u64,
        place: Option<&Place>,
    ) -> Result<(), TransferError> {
        let mut inner = self.lock();
        inner.state.entities += entities;
        if let Some(range) = inner.state.tables.get_mut(table).and_then(|all| all.get_mut(index)) {
            range.place = place.cloned();
            range.done = place.is_none();
        }
        drop(inner);
        self.save()
    }

    /// The tables whose changes are copied.
    pub(crate) fn followed(&self) -> Vec<String> {
        self.lock().state.places.keys().cloned().collect()
    }

    /// Where the change feed of a table goes on.
    pub(crate) fn place(&self, table: &str) -> Option<String> {
        self.lock().state.places.get(table).cloned()
    }

    /// Everything in the change feed of a table up to this place is at the destination, or will be copied.
    pub(crate) fn reach(&self, table: &str, place: String) -> Result<(), TransferError> {
        self.lock().state.places.insert(table.to_owned(), place);
        self.save()
    }

    /// Writes the file, unless that was done a moment ago.
    fn save(&self) -> Result<(), TransferError> {
        if self.lock().saved.elapsed() < SAVE_EVERY { Ok(()) } else { self.save_now() }
    }

    /// Writes the file.
    pub(crate) fn save_now(&self) -> Result<(), TransferError> {
        let Some(path) = &self.path else { return Ok(()) };
        let mut inner = self.lock();
        inner.saved = Instant::now();
        tokio::task::block_in_place(|| state::save(path, &inner.state))
    }
}
