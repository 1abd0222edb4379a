//! The store itself: opening, the methods of the contract, closing.

use crate::cache::Cache;
use crate::catalogue::Catalogue;
use crate::change::Change;
use crate::checkpoint::{self, Requests};
use crate::committer::{Committer, Fault, NO_TICKS};
use crate::directory::{Directory, OpenError, check_version, explain, word};
use crate::expire::Expiring;
use crate::fit::Fit;
use crate::frozen::Frozen;
use crate::health::Health;
use crate::index::{self, build, walk, weigh};
use crate::jobs::{Answer, Job, JobQueue, Refused, Work};
use crate::lead::Lead;
use crate::log;
use crate::pages::{self, Damages};
use crate::queue::{self, commands::lone_take, dead::Dead, time::QueueTime};
use crate::reader::Readers;
use crate::rewrite;
use crate::scan::{self, Pace, Scans, sort};
use crate::schema::{self, Marks};
use crate::sweep::{self, Note, Sweeper};
use crate::tuning::Tuning;
use arc_swap::{ArcSwap, Guard};
use async_trait::async_trait;
use rowhouse_env::Clock;
use rowhouse_query::index::IndexKeys;
use rowhouse_store::{
    Account, AccountId, Batch, Built, Changes, ChangesWanted, Command, Committed, Conflict, Extent,
    Index, IndexId, IndexState, Kept, Message, Metadata, NewAccount, Page, Placement, Queue,
    QueueId, Scan, Snapshot, Sort, Store, StoreError, Table, TableId, Ttl, Walk, WalkPage,
};
use rowhouse_types::{
    AccountName, EntityKey, FoldedName, IndexName, QueueName, Record, StoredPolicy, TableName,
    Timestamp, limits,
};
use rusqlite::Connection;
use rusqlite::config::DbConfig;
use rusqlite::wal::CheckpointMode;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};

/// Least number of connections for point reads. As many can wait for the disk at the same time.
const POINT_CONNECTIONS: usize = 16;
/// Memory of the sweep for pages of the database: it reads ahead and never twice.
const SWEEP_CACHE_BYTES: u64 = 1024 * 1024;

/// Where and how to keep data.
#[derive(Clone, Debug)]
pub struct Options {
    /// Created, readable by its owner only, if it is not there.
    pub directory: PathBuf,
    /// Memory for records and for pages of the database, all connections together, in bytes.
    pub cache_bytes: u64,
    /// How many point reads run at the same time, at least; where they wait for the disk it is 16 or more.
    pub readers: usize,
    /// When a change counts as stored.
    pub durability: Durability,
    /// Memory of the machine, or of the container, in bytes; none if nobody knows.
    pub memory_bytes: Option<u64>,
    /// Expired entities are removed no sooner than this after the TTL of their table was set, or the store was opened.
    pub ttl_grace: Duration,
    /// Memory for what is kept of an account's tables and queues, in bytes; many small ones may take more.
    pub account_bytes_max: u64,
}

/// When a change counts as stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// When it would survive a power cut.
    Full,
    /// When the store has been closed. A power cut before that leaves a beginning of what was committed, in order and
    /// nothing by half. For whoever fills a store and tells nobody until it is closed.
    AtClose,
    /// When the operating system has it. For directories that are thrown away afterwards.
    Ephemeral,
}

/// Numbers for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Size of the database file.
    pub database_bytes: u64,
    /// Size of the write-ahead log.
    pub log_bytes: u64,
    /// Pages of the database that hold nothing, as of a few seconds ago.
    pub free_pages: u64,
    /// Transactions since the store was opened.
    pub groups: u64,
    /// Batches that took effect since the store was opened.
    pub commits: u64,
    /// Changes that wait now.
    pub queued: u64,
    /// Memory of what is known of accounts, tables and queues, about.
    pub catalogue_bytes: u64,
    /// Tables of all accounts.
    pub tables: u64,
    /// Queues of all accounts.
    pub queues: u64,
    /// Places of the database that requests found to be damaged since the store was opened.
    pub damaged: u64,
}

/// A store in one directory of the file system. Dropping it without closing it is a clean stop too, and
/// waits for its threads.
#[derive(Debug)]
pub struct EmbeddedStore {
    pub(crate) shared: Arc<Shared>,
    running: Arc<Mutex<Option<Running>>>,
}

/// What the threads and the callers have in common.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) tuning: Tuning,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) health: Health,
    pub(crate) jobs: JobQueue,
    pub(crate) scans: Scans,
    pub(crate) catalogue: ArcSwap<Catalogue>,
    pub(crate) checkpoints: Requests,
    pub(crate) counters: Counters,
    pub(crate) readers: Readers,
    pub(crate) fit: Fit,
    waiting: Arc<Semaphore>,
    pub(crate) dead: Dead,
    pub(crate) queue_time: QueueTime,
    pub(crate) lead: Lead,
    pub(crate) records: Cache,
    damages: Damages,
    is_verified: bool,
    /// The last batch that is committed, as long as changes are kept.
    pub(crate) committed: watch::Sender<u64>,
    /// How many views of the past are open.
    pub(crate) frozen: AtomicUsize,
    /// How far the index is that is being built, ahead of what the database says: how many entities, of how many.
    entered: Mutex<Option<(IndexId, u64, Option<u64>)>>,
    database: PathBuf,
    log: PathBuf,
}

/// What a request was about that met damage.
#[derive(Clone, Copy, Debug)]
pub(crate) enum About {
    Table(TableId),
    Queue(QueueId),
    /// Neither, or nobody knows.
    Store,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) groups: AtomicU64,
    pub(crate) commits: AtomicU64,
    pub(crate) free_pages: AtomicU64,
}

/// What must be ended, in the order of the fields, when the store closes.
#[derive(Debug)]
struct Running {
    notes: Sender<Note>,
    sweeper: JoinHandle<()>,
    committer: JoinHandle<Option<Connection>>,
    checkpoints: JoinHandle<()>,
    scans: Vec<JoinHandle<()>>,
    directory: Directory,
}

impl Options {
    /// Durable, with as many readers as there are processors and 128 MiB of cache.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        let readers = thread::available_parallelism().map_or(4, |n| n.get().clamp(2, 16));
        Self {
            directory: directory.into(),
            cache_bytes: 128 * 1024 * 1024,
            readers,
            durability: Durability::Full,
            memory_bytes: rowhouse_env::memory_bytes(),
            ttl_grace: Duration::from_secs(limits::TTL_GRACE_SECONDS),
            account_bytes_max: limits::CATALOGUE_BYTES_PER_ACCOUNT_MAX,
        }
    }
}

impl EmbeddedStore {
    /// Opens the store in a directory, creating it if there is none. Takes as long with a million entities
    /// as with none.
    pub fn open(options: Options, clock: Arc<dyn Clock>) -> Result<Self, OpenError> {
        Self::open_tuned(options, clock, Tuning::default())
    }

    pub(crate) fn open_tuned(
        options: Options,
        clock: Arc<dyn Clock>,
        tuning: Tuning,
    ) -> Result<Self, OpenError> {
        let Options { directory, cache_bytes, readers, durability, memory_bytes, .. } = options;
        let Options { ttl_grace, account_bytes_max, .. } = options;
        let directory = Directory::open(&directory, durability)?;
        let path = directory.database();
        let sqlite = |error: rusqlite::Error| explain(&path, error);
        let scan_threads = tuning.scan_threads.max(readers);
        let tuning = Tuning { scan_threads, ..tuning };
        let readers = readers.max(POINT_CONNECTIONS);
        // A quarter for the committer, a quarter as records, the rest for pages of those who read.
        let read_cache = cache_bytes / 2 / (readers + scan_threads) as u64;

        // What is not synced may be cut short anywhere by a power cut, which would look like damage.
        if durability == Durability::Full {
            refuse_damaged_log(&directory)?;
        }
        let writer = || schema::writer(&path, durability, cache_bytes / 4, &tuning).map_err(sqlite);
        let mut conn = writer()?;
        let version = schema::version(&conn).map_err(sqlite)?;
        check_version(&path, version)?;
        schema::migrate(&conn, version).map_err(sqlite)?;
        if version < schema::CHECKSUMS_SINCE && rewrite::is_quick(&path) {
            drop(conn);
            rewrite::try_rewrite(&directory, durability)?;
            conn = writer()?;
        }
        let is_verified = schema::CHECKSUMS_SINCE <= schema::version(&conn).map_err(sqlite)?;
        let marks = Marks::load(&conn).map_err(|error| explain(&path, error))?;
        let mut catalogue = Catalogue::load(&conn).map_err(|error| explain(&path, error))?;
        catalogue.limit(account_bytes_max);
        let queue_time = QueueTime::new(Arc::clone(&clock), marks.tick);
        let lead = Lead::new(marks.tick, &*clock);
        let pending = sweep::dropped(&conn).map_err(sqlite)?;
        let builds = building(&catalogue);
        let expiring = Expiring::new(&catalogue, ttl_grace);
        let fit = Fit::new(memory_bytes, &path);
        let mapped = fit.fits();
        let read_connections = |count: usize| -> Result<Vec<Connection>, OpenError> {
            (0..count).map(|_| schema::reader(&path, read_cache, mapped).map_err(sqlite)).collect()
        };
        let point_connections = read_connections(readers)?;
        let scan_connections = read_connections(scan_threads)?;
        let sweep_connection = schema::reader(&path, SWEEP_CACHE_BYTES, mapped).map_err(sqlite)?;
        let checkpoint_connection =
            schema::writer(&path, durability, 0, &tuning).map_err(sqlite)?;

        let shared = Arc::new(Shared {
            tuning,
            clock,
            health: Health::default(),
            jobs: JobQueue::new(tuning),
            scans: Scans::default(),
            catalogue: ArcSwap::from_pointee(catalogue),
            checkpoints: Requests::default(),
            counters: Counters::default(),
            readers: Readers::new(point_connections, marks.sequence, mapped),
            fit,
            waiting: Arc::new(Semaphore::new(readers)),
            dead: Dead::default(),
            queue_time,
            lead,
            records: Cache::new(cache_bytes / 4),
            damages: Damages::default(),
            is_verified,
            committed: watch::Sender::new(marks.sequence),
            frozen: AtomicUsize::new(0),
            entered: Mutex::default(),
            database: directory.database(),
            log: directory.log(),
        });
        let (notes, heard) = mpsc::channel();
        let sweeper = Sweeper {
            shared: Arc::clone(&shared),
            notes: heard,
            pending,
            builds,
            chunk: None,
            expiring,
            conn: sweep_connection,
        };
        let committer = Committer {
            conn,
            marks,
            shared: Arc::clone(&shared),
            sweeper: notes.clone(),
            is_wary: false,
        };
        let for_checkpoints = Arc::clone(&shared);
        let mut scans = Vec::with_capacity(scan_threads);
        for conn in scan_connections {
            let shared = Arc::clone(&shared);
            scans.push(spawn("rowhouse-turns", move || scan::run_in_turns(conn, &shared)));
        }
        let running = Running {
            notes,
            sweeper: spawn("rowhouse-sweep", move || sweeper.run()),
            committer: spawn("rowhouse-commit", move || committer.run()),
            checkpoints: spawn("rowhouse-wal", move || {
                checkpoint::run(&checkpoint_connection, &for_checkpoints);
            }),
            scans,
            directory,
        };
        Ok(Self { shared, running: Arc::new(Mutex::new(Some(running))) })
    }

    /// Numbers for metrics.
    pub fn stats(&self) -> Stats {
        let size = |path| std::fs::metadata(path).map_or(0, |metadata| metadata.len());
        let counters = &self.shared.counters;
        let catalogue = self.shared.catalogue.load();
        let counts = catalogue.counts();
        Stats {
            database_bytes: size(&self.shared.database),
            log_bytes: size(&self.shared.log),
            free_pages: counters.free_pages.load(Ordering::Relaxed),
            groups: counters.groups.load(Ordering::Relaxed),
            commits: counters.commits.load(Ordering::Relaxed),
            queued: self.shared.jobs.len() as u64,
            catalogue_bytes: catalogue.memory_bytes(),
            tables: counts.tables,
            queues: counts.queues,
            damaged: self.shared.damages.len() as u64,
        }
    }

    /// Whether the pages of the database have checksums.
    pub fn is_verified(&self) -> bool {
        self.shared.is_verified
    }

    /// Whether writes are refused because the disk is full. They are taken again when there is room.
    pub fn is_full(&self) -> bool {
        self.shared.health.is_full()
    }

    /// Whether there are Timestamps left to give out.
    pub fn has_timestamps(&self) -> bool {
        self.shared.lead.has_ticks()
    }

    /// By how much the last Timestamp is ahead of the clock.
    pub fn ahead(&self) -> Duration {
        self.shared.lead.ahead(&*self.shared.clock)
    }

    /// Reads a record that is likely to be on the disk only, on a thread that may wait for it.
    async fn fetch(&self, table: TableId, key: &EntityKey) -> Result<Option<Record>, StoreError> {
        let permit = self.shared.may_wait().await?;
        let (shared, key) = (Arc::clone(&self.shared), key.clone());
        let read = move || {
            let _permit = permit;
            shared.readers.get(table, &key, &shared.records)
        };
        let ended = |_| Err(StoreError::unavailable("reading panicked"));
        tokio::task::spawn_blocking(read).await.unwrap_or_else(ended)
    }

    /// Has the system read what a batch is about to change, as long as somebody waits for it.
    async fn prepare(&self, batch: &Batch) -> Result<(), StoreError> {
        self.shared.health.writable()?;
        let permit = self.shared.may_wait().await?;
        let keys: Vec<(TableId, EntityKey)> = batch
            .commands
            .iter()
            .map(|Command::Entity { table, key, .. }| (*table, key.clone()))
            .collect();
        let shared = Arc::clone(&self.shared);
        let (done, waiting) = oneshot::channel();
        tokio::task::spawn_blocking(move || {
            let _permit = permit;
            for (table, key) in keys.iter().take_while(|_| !done.is_closed()) {
                shared.readers.touch(*table, key);
            }
            let _ = done.send(());
        });
        // If that fails, the committer finds out why.
        let _ = waiting.await;
        Ok(())
    }

    /// Hands work to the committer and waits for its answer.
    async fn submit(&self, work: Work) -> Result<Answer, StoreError> {
        self.shared.health.writable()?;
        let (reply, answer) = oneshot::channel();
        match self.shared.jobs.push(Job { work, reply }) {
            Ok(()) => {}
            Err(Refused::Full) => return Err(StoreError::Busy),
            Err(Refused::Closed) => return Err(self.shared.health.refusal()),
        }
        answer.await.unwrap_or_else(|_| Err(self.shared.health.unanswered()))
    }

    async fn change(&self, change: Change) -> Result<Answer, StoreError> {
        self.submit(Work::Change(change)).await
    }

    /// Has a thread read something.
    async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection, &Arc<Shared>, &dyn Fn() -> bool) -> Result<T, StoreError>
        + Send
        + 'static,
    ) -> Result<T, StoreError> {
        self.shared.scans.ask(self.shared.tuning.scan_jobs, read).await
    }

    /// Has a thread read what a filter may be long for.
    async fn read_at<T: Send + 'static>(
        &self,
        pace: Pace,
        read: impl FnOnce(&Connection, &Arc<Shared>, &dyn Fn() -> bool) -> Result<T, StoreError>
        + Send
        + 'static,
    ) -> Result<T, StoreError> {
        self.shared.scans.ask_at(pace, self.shared.tuning.scan_jobs, read).await
    }

    /// The current catalogue, unless the store is closed.
    fn catalogue(&self) -> Result<Guard<Arc<Catalogue>>, StoreError> {
        self.shared.health.readable()?;
        Ok(self.shared.catalogue.load())
    }
}

impl Shared {
    /// Stops acknowledging anything, for ever.
    pub(crate) fn fail(&self, what: &str) {
        self.health.fail(what);
        for job in self.jobs.abandon() {
            let _ = job.reply.send(Err(self.health.refusal()));
        }
    }

    pub(crate) fn database(&self) -> &Path {
        &self.database
    }

    /// Leave to use a thread that waits for the disk: one for each connection that reads by key.
    async fn may_wait(&self) -> Result<OwnedSemaphorePermit, StoreError> {
        let closed = |_| StoreError::unavailable("the store is closed");
        Arc::clone(&self.waiting).acquire_owned().await.map_err(closed)
    }

    /// Looks whether the database still fits into memory, and has it read accordingly.
    pub(crate) fn look_at_size(&self) {
        self.fit.look(&self.database);
        self.readers.map(self.fit.fits());
    }

    /// The instant at which a page of the table is judged. Nobody asks the clock for one that keeps its entities.
    pub(crate) fn now(&self, table: &Table) -> Timestamp {
        if table.ttl.is_some() { self.clock.now() } else { Timestamp::default() }
    }

    /// Counts and logs what is damaged, if that is the error: which table or queue, and which page.
    pub(crate) fn notice(&self, about: About, error: &StoreError) {
        let StoreError::Corrupt(what) = error else { return };
        let catalogue = self.catalogue.load();
        let (kind, name, account) = match about {
            About::Table(id) => match catalogue.table_by_id(id) {
                Some(table) => ("table", table.name.as_str().to_owned(), Some(table.account)),
                None => ("table", format!("{}", id.0), None),
            },
            About::Queue(id) => match catalogue.queue_by_id(id) {
                Some(queue) => ("queue", queue.name.as_str().to_owned(), Some(queue.account)),
                None => ("queue", format!("{}", id.0), None),
            },
            About::Store => ("store", String::new(), None),
        };
        if !self.damages.meet(what) {
            return;
        }
        let account = account.and_then(|id| catalogue.account_by_id(id));
        let account = account.map(|account| account.name.as_str());
        tracing::error!(account, kind, name, damage = what.as_str(), "stored data is damaged");
    }

    /// As [`Self::notice`], on the way of an error to whoever asked.
    pub(crate) fn noticed<T>(
        &self,
        about: About,
        result: Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        result.inspect_err(|error| self.notice(about, error))
    }

    /// Notes how many entities have been entered into an index, and of how many.
    pub(crate) fn set_entered(&self, index: IndexId, entities: u64, of: Option<u64>) {
        *self.entered.lock().unwrap_or_else(PoisonError::into_inner) = Some((index, entities, of));
    }

    fn entered(&self, index: IndexId) -> (u64, Option<u64>) {
        let entered = *self.entered.lock().unwrap_or_else(PoisonError::into_inner);
        let entered = entered.filter(|(id, ..)| *id == index);
        entered.map_or((0, None), |(_, entities, of)| (entities, of))
    }
}

/// What a batch is about, for the log: its first command.
fn about(batch: &Batch) -> About {
    match (batch.commands.first(), batch.messages.first()) {
        (Some(Command::Entity { table, .. }), _) => About::Table(*table),
        (None, Some(message)) => About::Queue(message.queue),
        (None, None) => About::Store,
    }
}

/// SQLite would take damage in the log for its end, and forget what was acknowledged after it.
fn refuse_damaged_log(directory: &Directory) -> Result<(), OpenError> {
    let path = directory.log();
    if let Some(detail) = word(&directory.database()) {
        return Err(OpenError::Corrupt { path, detail });
    }
    match pages::log::damage(&path) {
        Ok(None) => Ok(()),
        Ok(Some(damage)) => Err(OpenError::Corrupt { path, detail: damage.to_string() }),
        Err(source) => Err(OpenError::Unwritable { path, source }),
    }
}

/// The indexes that are not yet built, the first declared first.
fn building(catalogue: &Catalogue) -> VecDeque<(TableId, IndexId)> {
    let of = |table: &Arc<Table>| {
        let id = table.id;
        let building = table.indexes.iter().filter(|index| index.state == IndexState::Building);
        building.map(move |index| (id, index.id)).collect::<Vec<_>>()
    };
    let mut all: Vec<_> = catalogue.all_tables().flat_map(of).collect();
    all.sort_unstable_by_key(|(_, index)| *index);
    all.into()
}

#[async_trait]
impl Store for EmbeddedStore {
    async fn get(&self, table: TableId, key: &EntityKey) -> Result<Option<Record>, StoreError> {
        self.shared.health.readable()?;
        let record = match self.shared.records.get(table, key) {
            Some(record) => Some(record),
            None if self.shared.fit.fits() => {
                let found = self.shared.readers.get(table, key, &self.shared.records);
                self.shared.noticed(About::Table(table), found)?
            }
            None => {
                let found = self.fetch(table, key).await;
                self.shared.noticed(About::Table(table), found)?
            }
        };
        // Asked afterwards: if the table is there now, it was not being swept a moment ago.
        let catalogue = self.shared.catalogue.load();
        let Some(table) = catalogue.table_by_id(table) else {
            return Err(StoreError::rejected(Conflict::TableNotFound));
        };
        if let (Some(ttl), Some(record)) = (&table.ttl, &record)
            && ttl.at(self.shared.clock.now()).has_expired(record.as_ref())?
        {
            return Ok(None);
        }
        Ok(record)
    }

    async fn scan(&self, table: TableId, scan: Scan) -> Result<Page, StoreError> {
        let timing = Pace::of(scan.filter.as_deref());
        let page = self
            .read_at(timing, move |conn, shared, abandoned| {
                scan::page(conn, shared, table, &scan, abandoned)
            })
            .await;
        self.shared.noticed(About::Table(table), page)
    }

    async fn commit(&self, mut batch: Batch) -> Result<Committed, StoreError> {
        if !self.shared.fit.fits() && !batch.commands.is_empty() {
            self.prepare(&batch).await?;
        }
        let about = about(&batch);
        loop {
            let again = lone_take(&batch).then(|| batch.clone());
            let answer = self.submit(Work::Batch(batch)).await;
            match (self.shared.noticed(about, answer)?, again) {
                (Answer::Committed(committed), _) => return Ok(committed),
                (Answer::Again, Some(again)) => batch = again,
                (other, _) => unreachable!("a batch is answered with {other:?}"),
            }
        }
    }

    async fn table(
        &self,
        account: AccountId,
        name: &TableName,
    ) -> Result<Option<Arc<Table>>, StoreError> {
        Ok(self.catalogue()?.table(account, name.folded()).cloned())
    }

    async fn tables(
        &self,
        account: AccountId,
        from: Option<&FoldedName>,
        limit: usize,
    ) -> Result<Vec<Arc<Table>>, StoreError> {
        Ok(self.catalogue()?.tables(account, from).take(limit).cloned().collect())
    }

    async fn create_table_with_policies(
        &self,
        account: AccountId,
        name: &TableName,
        placement: Placement,
        policies: Vec<StoredPolicy>,
        most: u64,
    ) -> Result<Arc<Table>, StoreError> {
        let name = name.clone();
        match self.change(Change::CreateTable { account, name, placement, policies, most }).await? {
            Answer::Table(table) => Ok(table),
            other => unreachable!("a new table is answered with {other:?}"),
        }
    }

    async fn drop_table(&self, table: TableId) -> Result<(), StoreError> {
        self.change(Change::DropTable(table)).await.map(drop)
    }

    async fn set_policies(
        &self,
        table: TableId,
        policies: Vec<StoredPolicy>,
    ) -> Result<(), StoreError> {
        self.change(Change::SetPolicies(table, policies)).await.map(drop)
    }

    async fn set_ttl(&self, table: TableId, ttl: Option<Ttl>) -> Result<(), StoreError> {
        self.change(Change::SetTtl(table, ttl)).await.map(drop)
    }

    async fn create_index(
        &self,
        table: TableId,
        name: &IndexName,
        keys: IndexKeys,
    ) -> Result<Index, StoreError> {
        match self.change(Change::CreateIndex { table, name: name.clone(), keys }).await? {
            Answer::Index(index) => Ok(index),
            other => unreachable!("a new index is answered with {other:?}"),
        }
    }

    async fn drop_index(&self, table: TableId, index: IndexId) -> Result<(), StoreError> {
        self.change(Change::DropIndex(table, index)).await.map(drop)
    }

    async fn built(&self, table: TableId, index: IndexId) -> Result<Built, StoreError> {
        let progress = self
            .read(move |conn, _, _| {
                build::progress(conn, index).map_err(|error| Fault::from(error).into_store_error())
            })
            .await?;
        // The state is what readers know of: a scan through an index that is said to be ready finds it so.
        let catalogue = self.catalogue()?;
        let found = catalogue.table_by_id(table).and_then(|table| index::find(table, index));
        let (Some(progress), Some(found)) = (progress, found) else {
            return Err(StoreError::rejected(Conflict::IndexNotFound));
        };
        let (entered, of) = self.shared.entered(index);
        Ok(Built {
            state: found.state,
            examined: progress.examined.max(entered),
            of: progress.expected.or(of),
        })
    }

    async fn walk(&self, table: TableId, walk: Walk) -> Result<WalkPage, StoreError> {
        let timing = Pace::of(walk.filter.as_deref());
        let page = self
            .read_at(timing, move |conn, shared, abandoned| {
                walk::page(conn, shared, table, &walk, abandoned)
            })
            .await;
        self.shared.noticed(About::Table(table), page)
    }

    async fn sort(&self, table: TableId, sort: Sort) -> Result<Option<WalkPage>, StoreError> {
        let timing = Pace::of(sort.filter.as_deref());
        let page = self
            .read_at(timing, move |conn, shared, abandoned| {
                sort::page(conn, shared, table, &sort, abandoned)
            })
            .await;
        self.shared.noticed(About::Table(table), page)
    }

    async fn weigh(&self, table: TableId, extent: Extent, bound: u64) -> Result<u64, StoreError> {
        let timing = Pace::of_extent(&extent);
        let estimate = self
            .read_at(timing, move |conn, shared, abandoned| {
                weigh::weigh(conn, shared, table, &extent, bound, abandoned)
            })
            .await;
        self.shared.noticed(About::Table(table), estimate)
    }

    async fn queue(
        &self,
        account: AccountId,
        name: &QueueName,
    ) -> Result<Option<Arc<Queue>>, StoreError> {
        Ok(self.catalogue()?.queue(account, name).cloned())
    }

    async fn queues(
        &self,
        account: AccountId,
        from: &str,
        limit: usize,
    ) -> Result<Vec<Arc<Queue>>, StoreError> {
        Ok(self.catalogue()?.queues(account, from).take(limit).cloned().collect())
    }

    async fn create_queue_within(
        &self,
        account: AccountId,
        name: &QueueName,
        metadata: Metadata,
        most: u64,
    ) -> Result<Arc<Queue>, StoreError> {
        let name = name.clone();
        match self.change(Change::CreateQueue { account, name, metadata, most }).await? {
            Answer::Queue(queue) => Ok(queue),
            other => unreachable!("a new queue is answered with {other:?}"),
        }
    }

    async fn drop_queue(&self, queue: QueueId) -> Result<(), StoreError> {
        self.change(Change::DropQueue(queue)).await.map(drop)
    }

    async fn set_metadata(&self, queue: QueueId, metadata: Metadata) -> Result<(), StoreError> {
        self.change(Change::SetMetadata(queue, metadata)).await.map(drop)
    }

    async fn set_queue_policies(
        &self,
        queue: QueueId,
        policies: Vec<StoredPolicy>,
    ) -> Result<(), StoreError> {
        self.change(Change::SetQueuePolicies(queue, policies)).await.map(drop)
    }

    async fn peek(&self, queue: QueueId, limit: usize) -> Result<Vec<Message>, StoreError> {
        let found = self
            .read(move |conn, shared, abandoned| {
                queue::read::peek(conn, shared, queue, limit, abandoned)
            })
            .await;
        self.shared.noticed(About::Queue(queue), found)
    }

    async fn message_count(&self, queue: QueueId) -> Result<u64, StoreError> {
        let count = self.read(move |conn, shared, _| queue::read::count(conn, shared, queue)).await;
        self.shared.noticed(About::Queue(queue), count)
    }

    async fn account(&self, name: &AccountName) -> Result<Option<Arc<Account>>, StoreError> {
        Ok(self.catalogue()?.account(name).cloned())
    }

    async fn accounts(&self) -> Result<Vec<Arc<Account>>, StoreError> {
        Ok(self.catalogue()?.accounts().cloned().collect())
    }

    async fn create_account(&self, account: NewAccount) -> Result<Arc<Account>, StoreError> {
        match self.change(Change::CreateAccount(account)).await? {
            Answer::Account(account) => Ok(account),
            other => unreachable!("a new account is answered with {other:?}"),
        }
    }

    async fn set_account_keys(
        &self,
        account: AccountId,
        version: u64,
        keys: [Box<[u8]>; 2],
    ) -> Result<(), StoreError> {
        self.change(Change::SetKeys { account, version, keys }).await.map(drop)
    }

    async fn set_account_setting(
        &self,
        account: AccountId,
        version: Option<u64>,
        name: &str,
        value: Option<Box<[u8]>>,
    ) -> Result<(), StoreError> {
        let name = name.into();
        self.change(Change::SetSetting { account, version, name, value }).await.map(drop)
    }

    async fn remove_account(&self, account: AccountId) -> Result<(), StoreError> {
        self.change(Change::RemoveAccount(account)).await.map(drop)
    }

    async fn snapshot(&self) -> Result<Box<dyn Snapshot>, StoreError> {
        let take = |_: &_, shared: &_, _: &dyn Fn() -> bool| {
            Frozen::take(shared).map_err(Fault::into_store_error)
        };
        Ok(Box::new(self.read(take).await?))
    }

    async fn keep_changes(&self, retention: Option<Duration>) -> Result<(), StoreError> {
        self.change(Change::KeepChanges(retention)).await.map(drop)
    }

    async fn kept_changes(&self) -> Result<Option<Kept>, StoreError> {
        self.read(|conn, _, _| log::kept(conn)).await
    }

    async fn changes(&self, mut wanted: ChangesWanted) -> Result<Changes, StoreError> {
        let mut committed = self.shared.committed.subscribe();
        loop {
            let seen = *committed.borrow_and_update();
            let asked = wanted.clone();
            let found = self.read(move |conn, shared, _| log::read(conn, shared, &asked)).await?;
            let until = wanted.wait_until;
            if !found.changes.is_empty() || until <= Instant::now() {
                return Ok(found);
            }
            wanted.after = found.next;
            if seen <= found.next {
                // Whether a change or the time ended the wait, the log is looked at again.
                let _ = tokio::time::timeout_at(until.into(), committed.changed()).await;
            }
        }
    }

    fn ready(&self) -> Result<(), StoreError> {
        self.shared.health.writable()?;
        if self.shared.lead.has_ticks() { Ok(()) } else { Err(StoreError::unavailable(NO_TICKS)) }
    }

    async fn close(&self) -> Result<(), StoreError> {
        let (shared, running) = (Arc::clone(&self.shared), Arc::clone(&self.running));
        let (done, closed) = oneshot::channel();
        // Waiting for threads is no work for the caller's.
        spawn("rowhouse-close", move || {
            let _ = done.send(stop(&shared, &running, true));
        });
        closed.await.unwrap_or_else(|_| Err(StoreError::unavailable("closing the store panicked")))
    }
}

impl Drop for EmbeddedStore {
    fn drop(&mut self) {
        // What was acknowledged is in the log: there is nothing left that could fail.
        let _ = stop(&self.shared, &self.running, false);
    }
}

/// Finishes what was accepted, ends every thread and lets go of the directory. With `tidy`, what is in the
/// log moves into the database, so that the database file is all there is.
fn stop(shared: &Shared, running: &Mutex<Option<Running>>, tidy: bool) -> Result<(), StoreError> {
    // Held throughout: who closes at the same time waits for the end too.
    let mut running = running.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(running) = running.take() else { return Ok(()) };
    let Running { notes, sweeper, committer, checkpoints, scans, directory } = running;
    shared.health.close();
    shared.jobs.close();
    shared.scans.close();
    // Whoever waits for a change learns that none will come.
    shared.committed.send_modify(|_| {});
    shared.checkpoints.stop();
    // Their panics were told to whoever waited for them, and ended nothing that matters now.
    let _ = notes.send(Note::Stop);
    let _ = sweeper.join();
    let conn = committer.join().ok().flatten();
    let _ = checkpoints.join();
    for scan in scans {
        let _ = scan.join();
    }
    shared.readers.close();
    let result = match conn {
        Some(conn) if tidy && !shared.health.has_failed() && !shared.health.is_full() => {
            tidy_up(conn)
        }
        _ => Ok(()),
    };
    drop(directory);
    result.map_err(StoreError::unavailable)
}

fn tidy_up(conn: Connection) -> Result<(), rusqlite::Error> {
    conn.wal_checkpoint_v2(Some(rusqlite::MAIN_DB), CheckpointMode::TRUNCATE)?;
    // The last connection to close removes the empty log.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false)?;
    conn.close().map_err(|(_, error)| error)
}

pub(crate) fn spawn<T: Send + 'static>(
    name: &str,
    run: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    thread::Builder::new()
        .name(name.to_owned())
        .spawn(run)
        .expect("the operating system gives a process its first few threads")
}
