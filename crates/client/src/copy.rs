//! Tables from one service to another.
//!
//! Ranges of keys of all tables are read side by side, and each page is written in batches before the next one
//! of its range is read. Entities replace what has their keys at the destination, so that writing a page twice
//! changes nothing. A state file says where each range goes on.
//!
//! Verifying reads both sides again and compares how many entities each table has and a digest of all of them.

use crate::client::{Client, Place, Query};
use crate::digest::Digest;
use crate::error::{ClientError, TransferError};
use crate::export::RangeState;
use crate::loader::{Item, Loader, OnConflict};
use crate::progress::Progress;
use crate::range::{self, Range};
use crate::state;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// How often the state is made certain.
const SAVE_EVERY: Duration = Duration::from_secs(1);
/// Batches of one page that are written at a time.
const WRITES_PER_JOB: usize = 4;

/// What to copy.
#[derive(Clone, Debug)]
pub struct Copy {
    /// Names of tables; all if there is none.
    pub tables: Vec<String>,
    /// Ranges that are copied at a time.
    pub jobs: usize,
    /// Where the state is kept, and found again.
    pub state: Option<PathBuf>,
    /// Copy stored access policies too.
    pub acls: bool,
}

/// What was copied.
#[derive(Clone, Debug, Default)]
pub struct Copied {
    /// The tables, in the order of their names.
    pub tables: Vec<String>,
    /// Entities, with those of earlier runs.
    pub entities: u64,
}

/// A table on both sides.
#[derive(Clone, Debug)]
pub struct Compared {
    /// Its name.
    pub table: String,
    /// What the source has.
    pub source: Digest,
    /// What the destination has.
    pub destination: Digest,
}

impl Compared {
    /// Whether both have the same.
    pub fn same(&self) -> bool {
        self.source == self.destination
    }
}

/// What is certain of an unfinished copy.
#[derive(Debug, Serialize, Deserialize)]
struct State {
    source: String,
    destination: String,
    /// The ranges of each table that was begun.
    tables: BTreeMap<String, Vec<RangeState>>,
    entities: u64,
}

/// A range of a table that is to be copied: its place in the state.
struct Task {
    table: String,
    index: usize,
    range: RangeState,
}

impl Copy {
    /// Copies everything that is not copied yet.
    pub async fn run(
        &self,
        source: &Client,
        destination: &Client,
        progress: &Arc<Progress>,
    ) -> Result<Copied, TransferError> {
        let state = self.begin(source, destination)?;
        progress.resume(state.entities, 0);
        let mut tables =
            if self.tables.is_empty() { source.tables().await? } else { self.tables.clone() };
        tables.sort();
        tables.dedup();
        let job = Job {
            source: source.clone(),
            loader: Loader {
                client: destination.clone(),
                on_conflict: OnConflict::Replace,
                progress: progress.clone(),
            },
            saved: Arc::new(Saved::new(state, self.state.clone())),
        };
        let outcome = self.copy_tables(&job, &tables).await;
        // What is done is kept, whatever ended it.
        job.saved.save(true).and(outcome)?;
        let entities = job.saved.lock().state.entities;
        Ok(Copied { tables, entities })
    }

    async fn copy_tables(&self, job: &Job, tables: &[String]) -> Result<(), TransferError> {
        let mut running = JoinSet::new();
        for table in tables {
            for task in self.prepare(job, table).await? {
                if running.len() == self.jobs.max(1) {
                    ended(running.join_next().await)?;
                }
                running.spawn(job.clone().copy_range(task));
            }
        }
        while let Some(done) = running.join_next().await {
            ended(Some(done))?;
        }
        Ok(())
    }

    /// Compares every table on both sides.
    pub async fn compare(
        &self,
        source: &Client,
        destination: &Client,
        tables: &[String],
        progress: &Arc<Progress>,
    ) -> Result<Vec<Compared>, TransferError> {
        let mut compared = Vec::new();
        for table in tables {
            let (source, destination) = tokio::try_join!(
                digest(source, table, self.jobs, progress),
                digest(destination, table, self.jobs, progress),
            )?;
            compared.push(Compared { table: table.clone(), source, destination });
        }
        Ok(compared)
    }

    fn begin(&self, source: &Client, destination: &Client) -> Result<State, TransferError> {
        let new = State {
            source: source.address(),
            destination: destination.address(),
            tables: BTreeMap::new(),
            entities: 0,
        };
        let Some(path) = &self.state else { return Ok(new) };
        match state::load::<State>(path)? {
            None => Ok(new),
            Some(found)
                if (&found.source, &found.destination) == (&new.source, &new.destination) =>
            {
                Ok(found)
            }
            Some(_) => Err(TransferError::Refused(format!(
                "{} is about other services: name another file with --resume, or remove it",
                path.display()
            ))),
        }
    }

    /// Returns what is left to copy of a table, which is at the destination then.
    async fn prepare(&self, job: &Job, table: &str) -> Result<Vec<Task>, TransferError> {
        let known = job.saved.lock().state.tables.get(table).cloned();
        let ranges = match known {
            Some(ranges) => ranges,
            None => self.make(job, table).await?,
        };
        let open = ranges.into_iter().enumerate().filter(|(_, range)| !range.done);
        Ok(open.map(|(index, range)| Task { table: table.to_owned(), index, range }).collect())
    }

    /// Makes the table at the destination and cuts it into ranges.
    async fn make(&self, job: &Job, table: &str) -> Result<Vec<RangeState>, TransferError> {
        let destination = &job.loader.client;
        match destination.create_table(table).await {
            // A signature of the table alone may write to it and not make it: the first write will tell.
            Err(error) if error.status() == Some(403) => {}
            outcome => drop(outcome?),
        }
        if self.acls {
            destination.set_acl(table, &job.source.acl(table).await?).await?;
        }
        let ranges = range::plan(&job.source, table, self.jobs).await?;
        let ranges: Vec<_> = ranges.into_iter().map(RangeState::new).collect();
        job.saved.lock().state.tables.insert(table.to_owned(), ranges.clone());
        job.saved.save(true)?;
        Ok(ranges)
    }
}

/// What every task of a copy needs.
#[derive(Clone)]
struct Job {
    source: Client,
    loader: Loader,
    saved: Arc<Saved>,
}

impl Job {
    async fn copy_range(self, task: Task) -> Result<(), TransferError> {
        let Task { table, index, range } = task;
        let query = Query { filter: range.range.filter(None), ..Query::default() };
        let name: Arc<str> = table.as_str().into();
        let mut place = range.place;
        loop {
            let page = self.source.page(&table, &query, place.as_ref()).await?;
            let rows = page.entities.len() as u64;
            let item = |entity| Item { table: name.clone(), number: 0, entity };
            let items = page.entities.into_iter().map(item).collect();
            let loaded = self.loader.load(items, WRITES_PER_JOB).await?;
            if let Some((_, reason)) = loaded.refused.first() {
                return Err(TransferError::Refused(format!(
                    "the destination refuses an entity of {table}: {reason}"
                )));
            }
            place = page.next;
            self.saved.note(&table, index, rows, place.as_ref());
            self.saved.save(false)?;
            if place.is_none() {
                return Ok(());
            }
        }
    }
}

/// The state and its file.
struct Saved {
    path: Option<PathBuf>,
    inner: Mutex<Inner>,
}

struct Inner {
    state: State,
    saved: Instant,
}

impl Saved {
    fn new(state: State, path: Option<PathBuf>) -> Self {
        Self { path, inner: Mutex::new(Inner { state, saved: Instant::now() }) }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A page of a range was copied; the range goes on at the place, or is done.
    fn note(&self, table: &str, index: usize, entities: u64, place: Option<&Place>) {
        let mut inner = self.lock();
        inner.state.entities += entities;
        if let Some(range) = inner.state.tables.get_mut(table).and_then(|all| all.get_mut(index)) {
            range.place = place.cloned();
            range.done = place.is_none();
        }
    }

    /// Writes the file, unless that was done a moment ago and is not asked for.
    fn save(&self, now: bool) -> Result<(), TransferError> {
        let Some(path) = &self.path else { return Ok(()) };
        let mut inner = self.lock();
        if !now && inner.saved.elapsed() < SAVE_EVERY {
            return Ok(());
        }
        inner.saved = Instant::now();
        tokio::task::block_in_place(|| state::save(path, &inner.state))
    }
}

fn ended(
    done: Option<Result<Result<(), TransferError>, tokio::task::JoinError>>,
) -> Result<(), TransferError> {
    done.map_or(Ok(()), |done| done.expect("a task that copies does not panic"))
}

/// Reads a whole table and adds up its digest.
async fn digest(
    client: &Client,
    table: &str,
    jobs: usize,
    progress: &Arc<Progress>,
) -> Result<Digest, ClientError> {
    let mut waiting = range::plan(client, table, jobs).await?.into_iter();
    let mut running = JoinSet::new();
    let mut all = Digest::default();
    loop {
        while running.len() < jobs.max(1) {
            let Some(range) = waiting.next() else { break };
            running.spawn(digest_range(client.clone(), table.to_owned(), range, progress.clone()));
        }
        match running.join_next().await {
            Some(done) => all.merge(&done.expect("a task that reads does not panic")?),
            None => return Ok(all),
        }
    }
}

async fn digest_range(
    client: Client,
    table: String,
    range: Range,
    progress: Arc<Progress>,
) -> Result<Digest, ClientError> {
    let query = Query { filter: range.filter(None), ..Query::default() };
    let (mut all, mut place) = (Digest::default(), None);
    loop {
        let page = client.page(&table, &query, place.as_ref()).await?;
        progress.add(page.entities.len() as u64);
        page.entities.iter().for_each(|entity| all.add(entity));
        match page.next {
            Some(next) => place = Some(next),
            None => return Ok(all),
        }
    }
}
