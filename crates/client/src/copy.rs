//! Tables from one service to another.
//!
//! Ranges of keys of all tables are read side by side, and each page is written in batches before the next one
//! of its range is read. Entities replace what has their keys at the destination, so that writing a page twice
//! changes nothing. A state file says where each range goes on. Stored access policies are copied by every run, so that
//! one that resumes another has them right as well.
//!
//! Verifying reads both sides again and compares how many entities each table has, a digest of all of them, and the
//! policies.

use crate::beside::{self, Brought, Note, Notes, Policies};
use crate::client::{Client, Query};
use crate::digest::Digest;
use crate::error::{ClientError, TransferError};
use crate::export::RangeState;
use crate::lanes::Lanes;
use crate::loader::{Item, Loader, OnConflict, Refused};
use crate::progress::Progress;
use crate::range::{self, Range};
use crate::saved::Saved;
use crate::stop::Stop;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::task::JoinSet;

/// Batches of one page that are written at a time.
const WRITES_PER_JOB: usize = 4;
/// Parts that each table is counted as, to tell how far a copy is.
const TABLE_PARTS: u64 = 1000;

/// What to copy.
#[derive(Clone, Debug)]
pub struct Copy {
    /// Names of tables; all if there is none.
    pub tables: Vec<String>,
    /// Ranges that are copied at a time.
    pub jobs: usize,
    /// Where the state is kept, and found again.
    pub state: Option<PathBuf>,
    /// Whether stored access policies are copied too.
    pub policies: Policies,
}

/// What was copied.
#[derive(Clone, Debug, Default)]
pub struct Copied {
    /// The tables, in the order of their names.
    pub tables: Vec<String>,
    /// Entities, with those of earlier runs.
    pub entities: u64,
    /// What was not copied beside them.
    pub notes: Vec<Note>,
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
    /// Whether both have the same access policies; nothing if that was not compared.
    pub policies: Option<bool>,
}

impl Compared {
    /// Whether both have the same entities.
    pub fn same_entities(&self) -> bool {
        self.source == self.destination
    }

    /// Whether both have the same, as far as it was compared.
    pub fn same(&self) -> bool {
        self.same_entities() && self.policies != Some(false)
    }
}

/// A range of a table that is to be copied: its place in the state.
struct Task {
    table: String,
    index: usize,
    range: RangeState,
    /// How much of the table it is taken to be.
    parts: u64,
}

impl Copy {
    /// Copies everything that is not copied yet.
    pub async fn run(
        &self,
        source: &Client,
        destination: &Client,
        progress: &Arc<Progress>,
    ) -> Result<Copied, TransferError> {
        let job = self.open(source, destination, progress, Stop::never())?;
        let tables = self.names(source).await?;
        let outcome = self.copy_tables(&job, &tables).await;
        // What is done is kept, whatever ended it.
        job.saved.save_now().and(outcome)?;
        Ok(Copied { tables, entities: job.saved.entities(), notes: job.notes.take() })
    }

    /// The tables that are meant, in the order of their names.
    pub(crate) async fn names(&self, source: &Client) -> Result<Vec<String>, ClientError> {
        let mut tables =
            if self.tables.is_empty() { source.tables().await? } else { self.tables.clone() };
        tables.sort();
        tables.dedup();
        Ok(tables)
    }

    /// The copy as it was left, or its beginning.
    pub(crate) fn open(
        &self,
        source: &Client,
        destination: &Client,
        progress: &Arc<Progress>,
        stop: Stop,
    ) -> Result<Job, TransferError> {
        let saved = Saved::open(self.state.as_deref(), source, destination)?;
        progress.resume(saved.entities(), 0);
        let loader = Loader {
            client: destination.clone(),
            on_conflict: OnConflict::Replace,
            progress: progress.clone(),
        };
        let (saved, notes, brought) = (Arc::new(saved), Arc::default(), Arc::default());
        Ok(Job { source: source.clone(), loader, saved, notes, brought, stop })
    }

    /// Copies what is left of the tables, or as much as is under way when it is asked to stop.
    pub(crate) async fn copy_tables(
        &self,
        job: &Job,
        tables: &[String],
    ) -> Result<(), TransferError> {
        let mut lanes = Lanes::new(self.jobs);
        job.loader.progress.expect(TABLE_PARTS * tables.len() as u64);
        'tables: for table in tables {
            let tasks = match self.prepare(job, table).await {
                Ok(tasks) => tasks,
                Err(error) => return lanes.finish().await.and(Err(error)),
            };
            for task in tasks {
                if job.stop.is_asked() || !lanes.begin(job.clone().copy_range(task)).await {
                    break 'tables;
                }
            }
        }
        lanes.finish().await
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
            let policies = self.policies.compare(source, destination, table).await?;
            let (source, destination) = tokio::try_join!(
                digest(source, table, self.jobs, progress),
                digest(destination, table, self.jobs, progress),
            )?;
            compared.push(Compared { table: table.clone(), source, destination, policies });
        }
        Ok(compared)
    }

    /// Returns what is left to copy of a table, which is at the destination then.
    async fn prepare(&self, job: &Job, table: &str) -> Result<Vec<Task>, TransferError> {
        let ranges = match job.saved.ranges(table) {
            Some(ranges) => ranges,
            None => self.make(job, table).await?,
        };
        self.policies.copy(job, table).await?;
        beside::note_extensions(job, table).await;
        let parts = TABLE_PARTS / ranges.len().max(1) as u64;
        let done = ranges.iter().filter(|range| range.done).count() as u64;
        job.loader.progress.advance(done * parts);
        let open = ranges.into_iter().enumerate().filter(|(_, range)| !range.done);
        let task = |(index, range)| Task { table: table.to_owned(), index, range, parts };
        Ok(open.map(task).collect())
    }

    /// Makes the table at the destination and cuts it into ranges.
    async fn make(&self, job: &Job, table: &str) -> Result<Vec<RangeState>, TransferError> {
        let destination = &job.loader.client;
        match destination.create_table(table).await {
            // A signature of the table alone may write to it and not make it: the first write will tell.
            Err(error) if error.status() == Some(403) => {}
            outcome => drop(outcome?),
        }
        let ranges = range::plan(&job.source, table, self.jobs).await?;
        let ranges: Vec<_> = ranges.into_iter().map(RangeState::new).collect();
        job.saved.begin(table, ranges.clone())?;
        Ok(ranges)
    }
}

/// What every task of a copy needs.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) source: Client,
    pub(crate) loader: Loader,
    pub(crate) saved: Arc<Saved>,
    pub(crate) notes: Arc<Notes>,
    pub(crate) brought: Arc<Brought>,
    pub(crate) stop: Stop,
}

impl Job {
    async fn copy_range(self, task: Task) -> Result<(), TransferError> {
        let Task { table, index, range, parts } = task;
        let query = Query { filter: range.range.filter(None), ..Query::default() };
        let name: Arc<str> = table.as_str().into();
        let mut place = range.place;
        loop {
            let page = self.source.page(&table, &query, place.as_ref()).await?;
            let rows = page.entities.len() as u64;
            let item = |entity| Item { table: name.clone(), number: 0, entity };
            let items = page.entities.into_iter().map(item).collect();
            let loaded = self.loader.load(items, WRITES_PER_JOB).await?;
            if let Some(Refused { reason, partition, row, .. }) = loaded.refused.first() {
                let key = |key: &Option<String>| key.clone().unwrap_or_default();
                return Err(TransferError::Refused(format!(
                    "the destination refuses an entity of {table}: {reason}; its keys are {:?} and {:?}",
                    key(partition),
                    key(row)
                )));
            }
            place = page.next;
            self.saved.note(&table, index, rows, place.as_ref())?;
            if place.is_none() {
                self.loader.progress.advance(parts);
            }
            if place.is_none() || self.stop.is_asked() {
                return Ok(());
            }
        }
    }
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
        progress.advance(page.entities.len() as u64);
        page.entities.iter().for_each(|entity| all.add(entity));
        match page.next {
            Some(next) => place = Some(next),
            None => return Ok(all),
        }
    }
}
