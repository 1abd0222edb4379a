//! The store: every method of the contract, on the parts beside it.

use crate::alone::Alone;
use crate::batch::{self, Located, Outcome, Partition, Work};
use crate::cache::{Cache, Known};
use crate::entity::{self, Done, Place};
use crate::expire::{self, Expirer};
use crate::fault::Fault;
use crate::frozen::Frozen;
use crate::index::{self, build, declare};
use crate::key;
use crate::load::{self, Kind};
use crate::membership::{Membership, NO_TICKS};
use crate::nodes::Nodes;
use crate::options::{OpenError, Options, QueueClock};
use crate::pool::{self, Pool, Session};
use crate::queue::floor::Floors;
use crate::queue::write::Context;
use crate::queue::{self, Now};
use crate::quota::Quota;
use crate::reader::{Reader, within};
use crate::ticks::Tick;
use crate::time::ExpiryTime;
use crate::{catalogue, log, rights, schema, statement, status, sweep};
use async_trait::async_trait;
use rowhouse_env::{Clock, Random};
use rowhouse_query::index::IndexKeys;
use rowhouse_store::{
    Account, AccountId, Batch, Built, Changes, ChangesWanted, Command, Committed, Condition,
    Conflict, Extent, Index, IndexId, Kept, Message, MessageCommand, Metadata, NewAccount, Page,
    Placement, Queue, QueueId, Scan, Snapshot, Sort, Store, StoreError, Table, TableId, Ttl, Walk,
    WalkPage, Write,
};
use rowhouse_types::cluster::ClusterStatus;
use rowhouse_types::{
    AccountName, EntityKey, FoldedName, IndexName, QueueName, Record, StoredPolicy, TableName,
    Timestamp,
};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, RwLock, RwLockReadGuard};
use tokio::task::JoinHandle;

/// Connections for leases and ticks.
const MEMBER_CONNECTIONS: usize = 2;
/// How often whoever waits for changes looks.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How often a transaction that others were faster than is tried again.
const TRIES: u32 = 12;

/// A store on PostgreSQL.
#[derive(Debug)]
pub struct PostgresStore {
    reader: Reader,
    membership: Arc<Membership>,
    write_within: Duration,
    queue_clock: QueueClock,
    ttl_grace: Duration,
    floors: Floors,
    table_quota: Quota,
    queue_quota: Quota,
    /// Keeps others off the database.
    alone: Option<Arc<Alone>>,
    /// Held shared by whatever writes, and alone by closing.
    open: RwLock<()>,
    background: Mutex<Vec<JoinHandle<()>>>,
    /// There is an index to build.
    build: Arc<Notify>,
    /// There is a table to look through for what has expired.
    expire: Arc<Notify>,
    commits: AtomicU64,
    retries: AtomicU64,
}

/// What a store is doing.
#[derive(Clone, Copy, Debug)]
pub struct Stats {
    /// Connections that are open.
    pub connections: usize,
    /// Those that nobody uses.
    pub idle: usize,
    /// Requests that wait for one.
    pub waiting: usize,
    /// Batches that took effect.
    pub commits: u64,
    /// Transactions that were tried again because others were faster.
    pub retries: u64,
    /// How long the lease on what is cached still lasts.
    pub lease_left: Duration,
    /// How far this server's clock is from that of the database.
    pub clock_offset: Duration,
    /// Memory of what is remembered of accounts, tables and queues, about.
    pub catalogue_bytes: usize,
}

impl PostgresStore {
    /// Brings the schema up to date and joins the servers on the database. Refused while it is open to somebody
    /// alone.
    pub async fn open(
        options: Options,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
    ) -> Result<Self, OpenError> {
        Self::open_with(options, clock, random, false).await
    }

    /// The same for whoever must be the only one on the database until the store is closed. Refused, with nothing changed,
    /// while anybody else is there; what a process that was killed has left is waited for.
    pub async fn open_alone(
        options: Options,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
    ) -> Result<Self, OpenError> {
        Self::open_with(options, clock, random, true).await
    }

    async fn open_with(
        options: Options,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
        is_alone: bool,
    ) -> Result<Self, OpenError> {
        let pool = Pool::new(&options.url, &options)?;
        let session = pool.first().await?;
        pool::examine(&session, options.durability).await?;
        rights::check(&session).await?;
        let alone = if is_alone { Some(Alone::take(&options).await?) } else { None };
        let distributed = schema::migrate(&session).await?;
        drop(session);
        let cache = Arc::new(Cache::default());
        // Connections of its own, so that a lease never waits behind requests.
        let few = Options { connections: MEMBER_CONNECTIONS, ..options.clone() };
        let of_member = Pool::new(&options.url, &few)?;
        let time = ExpiryTime::new(Arc::clone(&clock), options.queue_clock);
        let (of_cache, of_time) = (Arc::clone(&cache), time.clone());
        let membership = if is_alone {
            Membership::join(of_member, of_cache, of_time, clock, &*random).await?
        } else {
            Membership::join_others(of_member, of_cache, of_time, clock, &*random).await?
        };
        let membership = Arc::new(membership);
        let Options { write_within, queue_clock, ttl_grace, .. } = options;
        let nodes = Arc::new(Nodes::new(pool.clone(), options));
        let of_sweeper = Arc::clone(&membership);
        let now = move || Now::of(queue_clock, || of_sweeper.now());
        let mut background = vec![
            tokio::spawn(Arc::clone(&membership).keep_renewing()),
            tokio::spawn(sweep::keep_sweeping(pool.clone(), now)),
            tokio::spawn(log::keep_trimming(pool)),
        ];
        if let Some(alone) = &alone {
            let (_, holder) = membership.identity();
            background.push(tokio::spawn(Arc::clone(alone).keep_watching(holder)));
        }
        if distributed {
            nodes.read().await.map_err(Fault::of_opening)?;
            background.push(tokio::spawn(Arc::clone(&nodes).keep_reading()));
        }
        let publishing = load::keep_publishing(Arc::clone(&nodes), Arc::clone(&membership));
        background.push(tokio::spawn(publishing));
        let build = Arc::new(Notify::new());
        let expirer = Expirer::new(Arc::clone(&nodes), time.clone());
        let (of_builder, of_cache) = (Arc::clone(&nodes), Arc::clone(&cache));
        let building =
            build::keep_building(of_builder, of_cache, expirer.clone(), Arc::clone(&build));
        background.push(tokio::spawn(building));
        let expire = Arc::new(Notify::new());
        background.push(tokio::spawn(expirer.keep_looking(Arc::clone(&expire))));
        Ok(Self {
            reader: Reader { nodes, cache, time },
            membership,
            write_within,
            queue_clock,
            ttl_grace,
            floors: Floors::new(write_within),
            table_quota: Quota::default(),
            queue_quota: Quota::default(),
            alone,
            open: RwLock::new(()),
            background: Mutex::new(background),
            build,
            expire,
            commits: AtomicU64::new(0),
            retries: AtomicU64::new(0),
        })
    }

    /// What it is doing now.
    pub fn stats(&self) -> Stats {
        let (connections, idle, waiting) = self.reader.nodes.usage();
        Stats {
            connections,
            idle,
            waiting,
            commits: self.commits.load(Ordering::Relaxed),
            retries: self.retries.load(Ordering::Relaxed),
            lease_left: self.membership.lease_left(),
            clock_offset: self.reader.time.offset(),
            catalogue_bytes: self.reader.cache.bytes(),
        }
    }

    /// The time that decides what has expired.
    pub(crate) fn expiry_time(&self) -> ExpiryTime {
        self.reader.time.clone()
    }

    /// Whether there are Timestamps left to give out.
    pub fn has_timestamps(&self) -> bool {
        self.membership.has_ticks()
    }

    /// By how much the latest Timestamp that was given out here is ahead of this server's clock.
    pub fn ahead(&self) -> Duration {
        self.membership.ahead()
    }

    /// What is wrong though the store takes writes, in a sentence.
    pub fn warning(&self) -> Option<String> {
        let seconds = self.reader.time.offset().as_secs();
        self.reader.time.is_off().then(|| {
            format!(
                "the clock of this machine is {seconds} s off that of the database, so this server removes no \
                 expired entities: set the clock"
            )
        })
    }

    /// What it runs on: nodes, servers and shards, with what all servers ask of them. A node that does not answer
    /// within two seconds is shown as unreachable.
    pub async fn cluster(&self) -> Result<ClusterStatus, StoreError> {
        let (_, holder) = self.membership.identity();
        let status = status::of(&self.reader.nodes, holder);
        self.reader.in_time(status).await.map_err(Fault::of_a_read)
    }

    /// Kept while something is written; refused once the store closes, or is no longer alone if it has to be.
    fn enter(&self) -> Result<RwLockReadGuard<'_, ()>, StoreError> {
        if let Some(alone) = &self.alone {
            alone.check()?;
        }
        self.open.try_read().map_err(|_| StoreError::unavailable("the store is closed"))
    }

    /// Waits for a write as long as is worth waiting. The connection is closed then, and the database goes on alone.
    async fn in_time<T>(&self, write: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
        if let Ok(result) = tokio::time::timeout(self.write_within, write).await {
            return result;
        }
        let reason = "the database did not answer a write in time";
        tracing::warn!("{reason}");
        Err(StoreError::outcome_unknown(reason).into())
    }

    /// Deletes most of what a command that clears a large queue is to delete; what a fault of the commit means then. Once
    /// something is deleted, nobody is told that nothing was.
    async fn begin_to_clear(
        &self,
        mut clearing: Option<queue::clear::Place>,
    ) -> Result<fn(Fault) -> StoreError, StoreError> {
        let mut meaning: fn(Fault) -> StoreError = Fault::of_a_write;
        while let Some(place) = clearing {
            let step = self.in_time(queue::clear::step(&self.reader.nodes, place)).await;
            clearing = step.map_err(meaning)?;
            if clearing.is_some() {
                meaning = Fault::after_a_write;
            }
        }
        Ok(meaning)
    }

    /// Changes accounts or tables; returns when no other server acts on what was before.
    async fn change<T, F>(&self, work: impl FnOnce(Arc<Session>) -> F) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, Fault>>,
    {
        let _open = self.enter()?;
        let session = Arc::new(self.reader.nodes.first().session().await?);
        let changed = self.in_time(catalogue::change(session, work)).await;
        self.reader.cache.forget();
        let (version, result) = changed.map_err(Fault::of_a_write)?;
        let announced = within(self.write_within, self.membership.announce(version)).await;
        match result {
            Ok(done) => announced.map(|()| done).map_err(Fault::after_a_write),
            Err(refusal) => {
                // It may show what another server changed and could not wait for.
                announced.map_err(Fault::of_a_read)?;
                Err(refusal.of_a_write())
            }
        }
    }

    /// Every command, with where its entity lives; a table with indexes that are kept, if one is known to have any.
    async fn locate(&self, commands: Vec<Command>) -> Result<(Vec<Located>, Option<Known>), Fault> {
        let mut placements: HashMap<TableId, Placement> = HashMap::new();
        let mut indexed = None;
        for (index, Command::Entity { table, .. }) in commands.iter().enumerate() {
            if placements.contains_key(table) {
                continue;
            }
            // A table that is not there is named after the commands before it were judged.
            let placement = match self.reader.known(*table).await {
                Ok(known) => {
                    let placement = known.table.placement.clone();
                    if known.indexing != 0 {
                        indexed = Some(known);
                    }
                    placement
                }
                Err(Fault::Rejected(..)) if index > 0 => Placement::default(),
                Err(fault) => return Err(fault),
            };
            placements.insert(*table, placement);
        }
        let commands = batch::locate(commands, |Command::Entity { table, key, .. }| Partition {
            table: catalogue::number(*table).unwrap_or(-1),
            home: key::home(*table, &placements[table], key.partition.as_str()),
        });
        Ok((commands, indexed))
    }

    /// What counts as now for messages that are read.
    fn now(&self) -> Now {
        Now::of(self.queue_clock, || self.membership.now())
    }

    async fn commit_located(
        &self,
        commands: &[Located],
        indexed: Option<&Known>,
        messages: &[MessageCommand],
    ) -> Result<Outcome, Fault> {
        let of_queue = || messages.first().map_or(0, |command| queue::number(command.queue));
        let home = commands.first().map_or_else(of_queue, |located| located.partition.home);
        let (session, meter) = self.reader.nodes.session_at(home, Kind::Write).await?;
        let outcome = self.commit_on(&session, commands, indexed, messages).await?;
        meter.answered(commands.len() + messages.len());
        Ok(outcome)
    }

    async fn commit_on(
        &self,
        session: &Session,
        commands: &[Located],
        indexed: Option<&Known>,
        messages: &[MessageCommand],
    ) -> Result<Outcome, Fault> {
        let cluster = self.reader.nodes.is_cluster();
        let now = self.reader.time.now();
        let tried = match indexed {
            _ if !messages.is_empty() => Ok(None),
            None => self.as_statement(session, commands).await,
            Some(known) if !cluster => self.as_insert(session, commands, known).await,
            Some(_) => Ok(None),
        };
        match tried {
            Ok(Some(outcome)) => return Ok(outcome),
            // Or it has other indexes since: the transaction tells.
            Ok(None) | Err(Fault::Rejected(_, Conflict::TableNotFound)) => {}
            Err(fault) => return Err(fault),
        }
        let alone = commands.is_empty() && queue::write::is_one_statement(messages);
        for attempt in 1.. {
            let tick = self.membership.tick_of(queue::write::places(messages)).await?;
            let visible = Now::of(self.queue_clock, || tick.at);
            let floors = (self.queue_clock == QueueClock::Database).then_some(&self.floors);
            let work = Work { commands, messages, context: Context { now: visible, floors } };
            let done = if alone {
                of_messages(session, work, tick).await
            } else {
                batch::as_transaction(session, work, tick, now, cluster).await
            };
            match done {
                Err(Fault::Behind(tick)) if attempt < TRIES => {
                    self.membership.observe(tick).await?;
                }
                Err(Fault::Raced(_) | Fault::Unmet) if attempt < TRIES => {
                    self.retries.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(Duration::from_millis(1 << attempt.min(6))).await;
                }
                result => return result,
            }
        }
        Err(StoreError::Busy.into())
    }

    /// Puts in the Timestamps of what was restored, and sees to it that whatever is written next is later.
    async fn follow_restored(
        &self,
        commands: &[Located],
        timestamps: &mut [Timestamp],
        messages: &[MessageCommand],
    ) -> Result<(), Fault> {
        let mut latest = queue::write::latest_restored(messages).map(Timestamp::ticks);
        for (located, timestamp) in commands.iter().zip(timestamps) {
            if let Command::Entity { write: Write::Restore(record), .. } = &located.command {
                *timestamp = record.as_ref().timestamp();
                latest = latest.max(Some(timestamp.ticks()));
            }
        }
        match latest {
            Some(latest) => {
                self.membership.observe(i64::try_from(latest).unwrap_or(i64::MAX)).await
            }
            None => Ok(()),
        }
    }

    /// A new entity with its entries in indexes, as one statement. None if it takes a transaction.
    async fn as_insert(
        &self,
        session: &Session,
        commands: &[Located],
        known: &Known,
    ) -> Result<Option<Outcome>, Fault> {
        let [located] = commands else { return Ok(None) };
        let Command::Entity { key, condition, write, .. } = &located.command;
        let (Condition::Absent, Write::Put(record) | Write::Merge(record)) = (condition, write)
        else {
            return Ok(None);
        };
        if !entity::is_plain(key, *condition, write) {
            return Ok(None);
        }
        let tick = self.membership.tick().await?;
        let Partition { home, table } = located.partition;
        let place = Place { home, table, key: &located.key };
        match index::insert_entity(session, place, key, record, tick, known).await {
            Ok(true) => Ok(Some(Outcome::of(tick))),
            // It may have expired: the transaction tells.
            Ok(false) if known.table.ttl.is_some() => Ok(None),
            Ok(false) => Err(Conflict::EntityExists.into()),
            // A unique index has the values: of which entity, the transaction tells.
            Err(Fault::Duplicate | Fault::Raced(_)) => Ok(None),
            Err(fault) => Err(fault),
        }
    }

    /// None if it takes a transaction.
    async fn as_statement(
        &self,
        session: &Session,
        commands: &[Located],
    ) -> Result<Option<Outcome>, Fault> {
        let tick = self.membership.tick().await?;
        let [located] = commands else {
            return match statement::run(session, commands, tick).await {
                Err(Fault::Raced(_)) => Ok(None),
                result => result,
            };
        };
        let Command::Entity { key, condition, write, .. } = &located.command;
        if !entity::is_plain(key, *condition, write) {
            return Ok(None);
        }
        let Partition { home, table } = located.partition;
        let place = Place { home, table, key: &located.key };
        let done = Some(Outcome::of(tick));
        match entity::write(session, place, *condition, write, tick).await {
            Ok(Done::Written | Done::Nothing) => Ok(done),
            Ok(Done::Behind(stored)) => {
                self.membership.observe(stored).await?;
                Ok(None)
            }
            Ok(Done::Undecided) | Err(Fault::Raced(_) | Fault::Unmet) => Ok(None),
            Err(fault) => Err(fault),
        }
    }
}

/// Changes of messages that one statement does.
async fn of_messages(session: &Session, work: Work<'_>, tick: Tick) -> Result<Outcome, Fault> {
    let messages = queue::write::run(session, work.messages, tick, work.context).await?;
    Ok(Outcome { tick: tick.at, messages })
}

/// A store that is dropped without being closed does nothing more, as if its process had ended.
impl Drop for PostgresStore {
    fn drop(&mut self) {
        let background = self.background.get_mut().unwrap_or_else(PoisonError::into_inner);
        for task in background {
            task.abort();
        }
    }
}

#[async_trait]
impl Store for PostgresStore {
    async fn get(&self, table: TableId, key: &EntityKey) -> Result<Option<Record>, StoreError> {
        self.reader.get(table, key, self.membership.trusts_cache()).await
    }

    async fn scan(&self, table: TableId, scan: Scan) -> Result<Page, StoreError> {
        self.reader.scan(table, &scan, self.membership.trusts_cache()).await
    }

    async fn commit(&self, batch: Batch) -> Result<Committed, StoreError> {
        let _open = self.enter()?;
        let Batch { commands, messages } = batch;
        if commands.is_empty() && messages.is_empty() {
            return Ok(Committed { sequence: 0, timestamps: Vec::new(), messages: Vec::new() });
        }
        let located = within(self.write_within, self.locate(commands)).await;
        let (commands, indexed) = located.map_err(Fault::of_a_read)?;
        let clearing = queue::clear::begin(commands.is_empty(), &messages);
        let meaning = self.begin_to_clear(clearing).await?;
        let commit = self.commit_located(&commands, indexed.as_ref(), &messages);
        let outcome = self.in_time(commit).await.map_err(meaning)?;
        self.commits.fetch_add(1, Ordering::Relaxed);
        let timestamp = u64::try_from(outcome.tick).ok().and_then(Timestamp::from_ticks);
        let timestamp = timestamp
            .ok_or_else(|| StoreError::Corrupt("a Timestamp is out of range".to_owned()))?;
        let mut timestamps = vec![timestamp; commands.len()];
        let follow = self.follow_restored(&commands, &mut timestamps, &messages);
        follow.await.map_err(Fault::after_a_write)?;
        Ok(Committed { sequence: timestamp.ticks(), timestamps, messages: outcome.messages })
    }

    async fn table(
        &self,
        account: AccountId,
        name: &TableName,
    ) -> Result<Option<Arc<Table>>, StoreError> {
        self.reader.table(account, name, self.membership.trusts_cache()).await
    }

    async fn tables(
        &self,
        account: AccountId,
        from: Option<&FoldedName>,
        limit: usize,
    ) -> Result<Vec<Arc<Table>>, StoreError> {
        self.reader.tables(account, from, limit).await
    }

    async fn create_table_with_policies(
        &self,
        account: AccountId,
        name: &TableName,
        placement: Placement,
        policies: Vec<StoredPolicy>,
        most: u64,
    ) -> Result<Arc<Table>, StoreError> {
        let (now, quota) = (self.reader.time.now(), &self.table_quota);
        let create = |session: Arc<Session>| async move {
            let table =
                catalogue::create_table(&session, account, name, &placement, policies, now).await?;
            catalogue::check_tables(&session, &table, most, quota).await?;
            Ok(table)
        };
        self.change(create).await.map(Arc::new)
    }

    async fn drop_table(&self, table: TableId) -> Result<(), StoreError> {
        self.change(|session| async move { catalogue::drop_table(&session, table).await }).await
    }

    async fn set_policies(
        &self,
        table: TableId,
        policies: Vec<StoredPolicy>,
    ) -> Result<(), StoreError> {
        let set = |session: Arc<Session>| async move {
            catalogue::set_policies(&session, table, &policies).await
        };
        self.change(set).await
    }

    async fn set_ttl(&self, table: TableId, ttl: Option<Ttl>) -> Result<(), StoreError> {
        let set = |session: Arc<Session>| async move {
            expire::set(&session, table, ttl.as_ref(), self.ttl_grace).await
        };
        self.change(set).await?;
        self.expire.notify_one();
        Ok(())
    }

    async fn create_index(
        &self,
        table: TableId,
        name: &IndexName,
        keys: IndexKeys,
    ) -> Result<Index, StoreError> {
        let (keys, cluster) = (&keys, self.reader.nodes.is_cluster());
        for _ in 0..TRIES {
            let mark = |session: Arc<Session>| async move {
                declare::mark(&session, table, name, keys, cluster).await
            };
            let marked = self.change(mark).await?;
            if let Err(fault) = declare::drain(&self.reader.nodes).await {
                // Nothing is declared, so writes may be single statements again.
                let unmark =
                    |session: Arc<Session>| async move { declare::unmark(&session, table).await };
                self.change(unmark).await?;
                return Err(fault.of_a_read());
            }
            let declare = |session: Arc<Session>| async move {
                declare::declare(&session, table, name, keys, marked).await
            };
            if let Some(index) = self.change(declare).await? {
                // What is answered from now on keeps it.
                let drained = declare::drain(&self.reader.nodes).await;
                self.build.notify_one();
                return drained.map(|()| index).map_err(Fault::after_a_write);
            }
        }
        Err(StoreError::Busy)
    }

    async fn drop_index(&self, table: TableId, index: IndexId) -> Result<(), StoreError> {
        let drop =
            |session: Arc<Session>| async move { declare::drop(&session, table, index).await };
        self.change(drop).await
    }

    async fn built(&self, table: TableId, index: IndexId) -> Result<Built, StoreError> {
        self.reader.built(table, index).await
    }

    async fn walk(&self, table: TableId, walk: Walk) -> Result<WalkPage, StoreError> {
        self.reader.walk(table, &walk, self.membership.trusts_cache()).await
    }

    async fn sort(&self, table: TableId, sort: Sort) -> Result<Option<WalkPage>, StoreError> {
        self.reader.sort(table, &sort, self.membership.trusts_cache()).await
    }

    async fn weigh(&self, table: TableId, extent: Extent, bound: u64) -> Result<u64, StoreError> {
        self.reader.weigh(table, &extent, bound).await
    }

    async fn queue(
        &self,
        account: AccountId,
        name: &QueueName,
    ) -> Result<Option<Arc<Queue>>, StoreError> {
        self.reader.queue(account, name, self.membership.trusts_cache()).await
    }

    async fn queues(
        &self,
        account: AccountId,
        from: &str,
        limit: usize,
    ) -> Result<Vec<Arc<Queue>>, StoreError> {
        self.reader.queues(account, from, limit).await
    }

    async fn create_queue_within(
        &self,
        account: AccountId,
        name: &QueueName,
        metadata: Metadata,
        most: u64,
    ) -> Result<Arc<Queue>, StoreError> {
        let (now, quota) = (self.reader.time.now(), &self.queue_quota);
        let create = |session: Arc<Session>| async move {
            let queue = queue::catalogue::create(&session, account, name, metadata, now).await?;
            queue::catalogue::check_queues(&session, &queue, most, quota).await?;
            Ok(queue)
        };
        self.change(create).await.map(Arc::new)
    }

    async fn drop_queue(&self, queue: QueueId) -> Result<(), StoreError> {
        let drop =
            |session: Arc<Session>| async move { queue::catalogue::drop(&session, queue).await };
        self.change(drop).await
    }

    async fn set_metadata(&self, queue: QueueId, metadata: Metadata) -> Result<(), StoreError> {
        let set = |session: Arc<Session>| async move {
            queue::catalogue::set_metadata(&session, queue, &metadata).await
        };
        self.change(set).await
    }

    async fn set_queue_policies(
        &self,
        queue: QueueId,
        policies: Vec<StoredPolicy>,
    ) -> Result<(), StoreError> {
        let set = |session: Arc<Session>| async move {
            queue::catalogue::set_policies(&session, queue, &policies).await
        };
        self.change(set).await
    }

    async fn peek(&self, queue: QueueId, limit: usize) -> Result<Vec<Message>, StoreError> {
        self.reader.peek(queue, limit, self.now()).await
    }

    async fn message_count(&self, queue: QueueId) -> Result<u64, StoreError> {
        self.reader.message_count(queue, self.now()).await
    }

    async fn account(&self, name: &AccountName) -> Result<Option<Arc<Account>>, StoreError> {
        self.reader.account(name, self.membership.trusts_cache()).await
    }

    async fn accounts(&self) -> Result<Vec<Arc<Account>>, StoreError> {
        self.reader.accounts().await
    }

    async fn create_account(&self, account: NewAccount) -> Result<Arc<Account>, StoreError> {
        let now = self.reader.time.now();
        let create = |session: Arc<Session>| async move {
            catalogue::create_account(&session, &account, now).await?;
            let created = catalogue::account(&session, &account.name).await?;
            created.ok_or_else(|| Conflict::AccountNotFound.into())
        };
        self.change(create).await.map(Arc::new)
    }

    async fn set_account_keys(
        &self,
        account: AccountId,
        version: u64,
        keys: [Box<[u8]>; 2],
    ) -> Result<(), StoreError> {
        let set = |session: Arc<Session>| async move {
            catalogue::set_account_keys(&session, account, version, &keys).await
        };
        self.change(set).await
    }

    async fn set_account_setting(
        &self,
        account: AccountId,
        version: Option<u64>,
        name: &str,
        value: Option<Box<[u8]>>,
    ) -> Result<(), StoreError> {
        let set = |session: Arc<Session>| async move {
            let value = value.as_deref();
            catalogue::set_account_setting(&session, account, version, name, value).await
        };
        self.change(set).await
    }

    async fn remove_account(&self, account: AccountId) -> Result<(), StoreError> {
        let remove = |session: Arc<Session>| async move {
            catalogue::remove_account(&session, account).await
        };
        self.change(remove).await
    }

    async fn snapshot(&self) -> Result<Box<dyn Snapshot>, StoreError> {
        Ok(Box::new(Frozen::take(&self.reader.nodes, self.now()).await?))
    }

    async fn keep_changes(&self, retention: Option<Duration>) -> Result<(), StoreError> {
        let keep = |session: Arc<Session>| async move { log::keep(&session, retention).await };
        self.change(keep).await
    }

    async fn kept_changes(&self) -> Result<Option<Kept>, StoreError> {
        self.reader.read(|session| async move { log::kept(&session).await }).await
    }

    async fn changes(&self, wanted: ChangesWanted) -> Result<Changes, StoreError> {
        let mut wanted = wanted;
        loop {
            let read = &wanted;
            let found = self.reader.read(|session| async move { log::read(&session, read).await });
            let found = found.await?;
            if !found.changes.is_empty() || wanted.wait_until <= Instant::now() {
                return Ok(found);
            }
            if found.next == wanted.after {
                drop(self.enter()?);
                tokio::time::sleep(LOOK_EVERY).await;
            }
            wanted.after = found.next;
        }
    }

    fn ready(&self) -> Result<(), StoreError> {
        drop(self.enter()?);
        if !self.membership.has_ticks() {
            Err(StoreError::unavailable(NO_TICKS))
        } else if self.membership.trusts_cache() {
            Ok(())
        } else {
            Err(StoreError::unavailable("the database does not answer"))
        }
    }

    async fn close(&self) -> Result<(), StoreError> {
        let tasks =
            std::mem::take(&mut *self.background.lock().unwrap_or_else(PoisonError::into_inner));
        if tasks.is_empty() {
            return Ok(());
        }
        // Everything that was accepted has been answered once this is held; it is never given back.
        std::mem::forget(self.open.write().await);
        for task in tasks {
            task.abort();
        }
        let left = self.membership.leave().await;
        if let Some(alone) = &self.alone {
            alone.release().await;
        }
        self.reader.nodes.close();
        left.map_err(Fault::of_a_write)
    }
}
