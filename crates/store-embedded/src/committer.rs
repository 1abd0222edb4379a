//! The one thread that changes anything.
//!
//! It takes what waits, runs it in the order of arrival inside one transaction, commits once and then
//! answers everybody, refusals too: a refusal may be due to a change of the same group, which must
//! not be spoken of before it is durable. Groups form by themselves while the last commit waits for
//! the disk; there is no timer. Because there is no other writer, the order of arrival explains every answer.

use crate::catalogue::LoadError;
use crate::change::{Draft, Refreshed};
use crate::entity::{Effect, Place};
use crate::health::FULL;
use crate::index::build::{self, Entering};
use crate::index::entries;
use crate::jobs::{Answer, Job, Outcome, Reply, Work};
use crate::log;
use crate::pages;
use crate::queue::{
    self,
    commands::{Messages, lone_take},
};
use crate::room;
use crate::schema::Marks;
use crate::store::{Shared, spawn};
use crate::sweep::{self, Chore, Note};
use rowhouse_store::{
    Batch, Command, Committed, Condition, Conflict, Message, StoreError, TableId, Write,
};
use rowhouse_types::{Corrupt, EntityKey, RecordRef, Timestamp};
use rusqlite::Connection;
use rusqlite::wal::CheckpointMode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;

/// Nothing can be written any more.
pub(crate) const NO_TICKS: &str =
    "the store has used the last Timestamp that there is, of the year 9999";

/// Why a command did not run.
#[derive(Debug)]
pub(crate) enum Fault {
    /// Its condition did not hold. Nothing was written by it.
    Rejected(Conflict),
    /// It met stored bytes that do not decode. Nothing was written by it.
    Corrupt(String),
    /// There is no Timestamp left to give out. Nothing was written.
    NoTicks,
    /// It needed a page that is damaged. What it wrote before that must be taken back.
    Damaged(String),
    /// As [`Self::Damaged`], and what it wrote can only be taken back with the whole group.
    Unguarded(String),
    /// SQLite failed: nobody knows what was written.
    Sqlite(rusqlite::Error),
}

/// Why a group was not committed.
enum Stopped {
    /// A page is damaged, and what was written before that was noticed can only be taken back with everything else.
    Damaged(String),
    /// SQLite failed: nobody knows what was written.
    Sqlite(rusqlite::Error),
}

/// What became of something that was run, and of a batch which command failed.
type Ran = Result<Answer, (usize, Fault)>;

/// What the commands of a batch have to tell.
struct Told {
    timestamps: Vec<Timestamp>,
    messages: Vec<Message>,
    /// The latest receipt that was restored.
    restored: Timestamp,
    /// Up to where all messages of a pile are dead.
    reached: Vec<(i64, queue::Place)>,
    /// A take has found nothing yet, and there is more to look at.
    unfinished: bool,
}

/// Owns the writing connection.
pub(crate) struct Committer {
    pub(crate) conn: Connection,
    pub(crate) marks: Marks,
    pub(crate) shared: Arc<Shared>,
    pub(crate) sweeper: Sender<Note>,
    /// A damaged page was met: from then on every batch can be taken back by itself, which costs a little.
    pub(crate) is_wary: bool,
}

impl Committer {
    /// Works until the queue is closed and empty, or something fails. Returns the connection if
    /// everything it was given is safely stored.
    pub(crate) fn run(mut self) -> Option<Connection> {
        let shared = Arc::clone(&self.shared);
        let mut jobs = Vec::new();
        while shared.jobs.take(&mut jobs) {
            self.group(std::mem::take(&mut jobs));
            if shared.health.has_failed() {
                return None;
            }
        }
        Some(self.conn)
    }

    fn group(&mut self, jobs: Vec<Job>) {
        if self.shared.health.is_full() {
            let is_tried = jobs.iter().any(|job| matches!(job.work, Work::Heal));
            if !is_tried || !self.heal() {
                for job in jobs {
                    let _ = job.reply.send(Err(self.shared.health.refusal()));
                }
                return;
            }
        }
        let (work, replies): (Vec<_>, Vec<_>) =
            jobs.into_iter().map(|job| (job.work, job.reply)).unzip();
        let shared = Arc::clone(&self.shared);
        // Dropped before the replies: whoever is told that the store stopped finds it stopped.
        let _latch = LatchOnPanic(&shared);
        self.shared.checkpoints.give_way();
        if let Err(error) = self.execute("BEGIN IMMEDIATE") {
            self.refuse(&error, replies);
            return;
        }
        match self.transact(work) {
            Ok((draft, answers)) => {
                self.publish(draft);
                self.shared.counters.groups.fetch_add(1, Ordering::Relaxed);
                for (reply, answer) in replies.into_iter().zip(answers) {
                    // Who no longer waits has lost nothing but the answer.
                    let _ = reply.send(answer);
                }
                self.look_after_the_log();
            }
            Err(Stopped::Damaged(what)) => self.become_wary(&what, replies),
            Err(Stopped::Sqlite(error)) => {
                let is_full = self.is_full(&error);
                if !is_full {
                    self.shared.fail(&format!("a write to the database failed: {error}"));
                }
                let _ = self.conn.execute_batch("ROLLBACK");
                if is_full {
                    self.wait_for_room(replies);
                }
            }
        }
    }

    /// A command met a damaged page half way, so nothing of its group may stay. All are asked to try again, and from now on
    /// a command that meets damage fails alone.
    fn become_wary(&mut self, what: &str, replies: Vec<Reply>) {
        let _ = self.conn.execute_batch("ROLLBACK");
        if self.is_wary || !self.conn.is_autocommit() {
            self.shared.fail(&format!("nothing can be stored: {what}"));
            return;
        }
        self.is_wary = true;
        self.shared.dead.forget_all();
        for reply in replies {
            let _ = reply.send(Err(StoreError::Busy));
        }
    }

    /// The disk had no room for the transaction, which was rolled back: nothing shows it, and the next one overwrites what
    /// there is of it in the log. If the process is killed before that, the log may hold all of it.
    fn wait_for_room(&self, replies: Vec<Reply>) {
        if !self.conn.is_autocommit() {
            self.shared.fail("a write to the full disk could not be undone");
            return;
        }
        self.shared.dead.forget_all();
        let is_new = self.shared.health.fill();
        for reply in replies {
            let _ = reply.send(Err(StoreError::outcome_unknown(FULL)));
        }
        for job in self.shared.jobs.empty() {
            let _ = job.reply.send(Err(self.shared.health.refusal()));
        }
        if is_new {
            let shared = Arc::clone(&self.shared);
            drop(spawn("rowhouse-room", move || room::wait(&shared)));
        }
    }

    /// Stores something, to find out whether the disk has room; true if so.
    fn heal(&self) -> bool {
        let shared = Arc::clone(&self.shared);
        let _latch = LatchOnPanic(&shared);
        let store = || {
            self.execute("BEGIN IMMEDIATE")?;
            self.execute("UPDATE meta SET tick = tick WHERE id = 1")?;
            self.execute("COMMIT")
        };
        match store() {
            Ok(()) => {
                self.shared.health.heal();
                true
            }
            Err(error) => {
                let _ = self.conn.execute_batch("ROLLBACK");
                let is_held = error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy);
                if !(is_held || self.is_full(&error)) || !self.conn.is_autocommit() {
                    self.shared.fail(&format!("a write to the database failed: {error}"));
                }
                false
            }
        }
    }

    /// Whether the operating system refused to take what was written for want of room. An fsync that fails says something
    /// else. SQLite reports an exceeded quota as any failed write, so another write shows whether that was the reason.
    fn is_full(&self, error: &rusqlite::Error) -> bool {
        match error.sqlite_error().map(|error| error.extended_code) {
            // The index of the log could not grow, which is not even a file that must last.
            Some(rusqlite::ffi::SQLITE_IOERR_SHMSIZE) => true,
            Some(rusqlite::ffi::SQLITE_IOERR_WRITE) => room::is_used_up(self.shared.database()),
            _ => error.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull),
        }
    }

    /// Nothing was begun, so nothing was written: if another program holds the database, it may let go of it.
    fn refuse(&self, error: &rusqlite::Error, replies: Vec<Reply>) {
        let is_held = error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy);
        if is_held {
            tracing::warn!("another program holds the database locked");
        } else {
            self.shared.fail(&format!("a transaction could not begin: {error}"));
        }
        for reply in replies {
            let refusal = if is_held { StoreError::Busy } else { self.shared.health.refusal() };
            let _ = reply.send(Err(refusal));
        }
    }

    fn transact(&self, group: Vec<Work>) -> Result<(Draft, Vec<Outcome>), Stopped> {
        let mut draft = Draft {
            marks: self.marks,
            queue_time: self.shared.queue_time.committed(),
            catalogue: self.shared.catalogue.load().as_ref().clone(),
            catalogue_changed: false,
            dropped: Vec::new(),
            dropped_indexes: Vec::new(),
            dropped_piles: Vec::new(),
            building: Vec::new(),
            expiring: Vec::new(),
            refreshed: Vec::new(),
            log: Vec::new(),
        };
        let mut answers = Vec::with_capacity(group.len());
        for work in group {
            // Batches are what there is much of; only they are worth doing without.
            let ran = if self.is_wary || !matches!(work, Work::Batch(_)) {
                self.run_guarded(work, &mut draft)?
            } else {
                self.run_one(work, &mut draft)?
            };
            answers.push(match ran {
                Ok(answer) => Ok(answer),
                Err((_, Fault::Unguarded(what))) => return Err(Stopped::Damaged(what)),
                Err((index, fault)) => Err(fault.at(index)?),
            });
        }
        if draft.marks != self.marks {
            draft.marks.save(&self.conn)?;
        }
        self.execute("COMMIT")?;
        Ok((draft, answers))
    }

    /// Runs something so that damage which it meets half way takes back this and nothing else.
    fn run_guarded(&self, work: Work, draft: &mut Draft) -> Result<Ran, Stopped> {
        let before = draft.mark();
        self.execute("SAVEPOINT work")?;
        let ran = self.run_one(work, draft)?;
        if matches!(ran, Err((_, Fault::Damaged(_)))) {
            self.execute("ROLLBACK TO work")?;
            draft.go_back_to(before);
        }
        self.execute("RELEASE work")?;
        Ok(ran)
    }

    /// Runs something. What it wrote before a fault is taken back, unless a damaged page was the cause and it is the only
    /// command of its batch.
    fn run_one(&self, work: Work, draft: &mut Draft) -> Result<Ran, Stopped> {
        let tuning = &self.shared.tuning;
        let result = match work {
            Work::Batch(batch) => return self.batch(batch, draft),
            Work::Change(change) => change.apply(&self.conn, draft, self.shared.clock.now()),
            Work::Sweep(chore) => sweep::step(&self.conn, chore, tuning),
            Work::Enter(entering) => self.enter(&entering, draft),
            Work::FreePages { vacuum } => sweep::free_pages(&self.conn, vacuum),
            Work::TrimLog => {
                log::trim(&self.conn, &mut draft.marks, self.shared.clock.now(), tuning)
            }
            Work::Heal => Ok(Answer::Done),
            Work::Expire => {
                let now = self.shared.queue_time.now();
                queue::sweep::expire(&self.conn, now, tuning)
            }
        };
        Ok(result.map_err(|fault| (0, fault)))
    }

    /// Every command or none, under one tick.
    fn batch(&self, batch: Batch, draft: &mut Draft) -> Result<Ran, Stopped> {
        let now = self.shared.clock.now();
        let tick = now.max(draft.marks.tick.next());
        let queue_time = self.shared.queue_time.now().max(draft.queue_time.next());
        if tick <= draft.marks.tick || queue_time <= draft.queue_time {
            return Ok(Err((0, Fault::NoTicks)));
        }
        // A lone command that is rejected has written nothing, so there is nothing to take back. Unless it has what has
        // expired give up its values: that can fail when the command itself is written.
        let guarded = batch.commands.len() + batch.messages.len() > 1
            || batch.commands.iter().any(|command| may_free(draft, command));
        if guarded {
            self.execute("SAVEPOINT batch")?;
        }
        let has_messages = !batch.messages.is_empty();
        let (refreshed, piles) = (draft.refreshed.len(), draft.dropped_piles.len());
        draft.log.clear();
        let ran = match self.commands(batch, draft, (tick, queue_time), now) {
            Ok(ran) => ran,
            Err((_, Fault::Sqlite(error))) => return Err(error.into()),
            Err(failed) => {
                draft.refreshed.truncate(refreshed);
                draft.dropped_piles.truncate(piles);
                if guarded {
                    self.execute("ROLLBACK TO batch")?;
                    self.execute("RELEASE batch")?;
                }
                return Ok(Err(match failed {
                    // What it wrote before it met the damage is still there.
                    (index, Fault::Damaged(what)) if !guarded && !self.is_wary => {
                        (index, Fault::Unguarded(what))
                    }
                    failed => failed,
                }));
            }
        };
        if guarded {
            self.execute("RELEASE batch")?;
        }
        // What was restored may have been written by a clock ahead of this one.
        draft.marks.tick = ran.timestamps.iter().fold(tick.max(ran.restored), |a, b| a.max(*b));
        // Timestamps of entities that are restored do not move it: messages of others would be visible too early.
        draft.queue_time = queue_time.max(ran.restored);
        // No receipt is later than the mark, where the time of queues starts the next time.
        if has_messages {
            draft.marks.tick = draft.marks.tick.max(draft.queue_time);
        }
        draft.marks.sequence += 1;
        let sequence = draft.marks.sequence;
        if !draft.log.is_empty()
            && let Err(error) = log::append(&self.conn, sequence, tick, &draft.log)
        {
            return match Fault::from(error) {
                Fault::Sqlite(error) => Err(Stopped::Sqlite(error)),
                // With the damage of the log everything that it is about is taken back.
                Fault::Damaged(what) if self.is_wary => Ok(Err((0, Fault::Damaged(what)))),
                Fault::Damaged(what) => Ok(Err((0, Fault::Unguarded(what)))),
                other => Ok(Err((0, other))),
            };
        }
        for (pile, place) in ran.reached {
            self.shared.dead.note(pile, place, sequence);
        }
        self.shared.counters.commits.fetch_add(1, Ordering::Relaxed);
        if ran.unfinished {
            return Ok(Ok(Answer::Again));
        }
        let (timestamps, messages) = (ran.timestamps, ran.messages);
        Ok(Ok(Answer::Committed(Committed { sequence, timestamps, messages })))
    }

    /// Runs the commands of a batch up to the first that fails, whose position is told.
    fn commands(
        &self,
        batch: Batch,
        draft: &mut Draft,
        (tick, queue_time): (Timestamp, Timestamp),
        now: Timestamp,
    ) -> Result<Told, (usize, Fault)> {
        let count = batch.commands.len();
        let walk = if lone_take(&batch) { self.shared.tuning.take_walk } else { usize::MAX };
        let mut timestamps = Vec::with_capacity(count);
        for (index, command) in batch.commands.into_iter().enumerate() {
            timestamps
                .push(self.command(command, draft, tick, now).map_err(|fault| (index, fault))?);
        }
        let mut messages = Messages::new(&self.conn, &self.shared.dead, draft, queue_time, walk);
        for (index, command) in batch.messages.into_iter().enumerate() {
            messages.run(command).map_err(|fault| (count + index, fault))?;
        }
        let Messages { told, restored, reached, unfinished, .. } = messages;
        Ok(Told { timestamps, messages: told, restored, reached, unfinished })
    }

    /// Enters entities into an index. What is removed for it is a batch like any other.
    fn enter(&self, entering: &Entering, draft: &mut Draft) -> Result<Answer, Fault> {
        let now = self.shared.clock.now();
        let tick = now.max(draft.marks.tick.next());
        draft.log.clear();
        let mut removed = false;
        let mut expire = |draft: &mut Draft, key| {
            match self.command(expire(entering.table, key), draft, tick, now) {
                Ok(_) => removed = true,
                // What is damaged is not known to have expired.
                Err(Fault::Rejected(_) | Fault::Corrupt(_)) => return Ok(false),
                Err(fault) => return Err(fault),
            }
            Ok(true)
        };
        let answer = build::enter(&self.conn, draft, entering, &mut expire);
        // Also if it went no further: what is removed by then stays so.
        if removed {
            draft.marks.tick = tick;
            draft.queue_time = self.shared.queue_time.now().max(draft.queue_time.next());
            draft.marks.sequence += 1;
            if !draft.log.is_empty() {
                log::append(&self.conn, draft.marks.sequence, tick, &draft.log)?;
            }
        }
        answer
    }

    /// Runs a command of a batch and tells the Timestamp of its entity. `now` decides what has expired.
    fn command(
        &self,
        command: Command,
        draft: &mut Draft,
        tick: Timestamp,
        now: Timestamp,
    ) -> Result<Timestamp, Fault> {
        let Command::Entity { table, key, condition, write } = command;
        let Some(found) = draft.catalogue.table_by_id(table) else {
            return Err(Fault::Rejected(Conflict::TableNotFound));
        };
        let conn = &self.conn;
        let inline_bytes = self.shared.tuning.inline_bytes;
        let place = Place { conn, table, key: &key, inline_bytes };
        let effect = if found.indexes.is_empty() && found.ttl.is_none() {
            place.apply(condition, write, tick)?
        } else {
            let expiry = found.ttl.as_ref().map(|ttl| ttl.at(now).sparing(tick));
            let judge = |before: Option<RecordRef<'_>>, after: Option<RecordRef<'_>>| {
                entries::judge(conn, found, expiry, &key, before, after)
            };
            let (effect, difference) = place.apply_judged(condition, write, tick, expiry, judge)?;
            if let Some(mut difference) = difference {
                for holder in difference.freed.drain(..) {
                    self.command(expire(table, holder), draft, tick, now)?;
                }
                difference.write(conn, &key)?;
            }
            effect
        };
        let stored = match effect {
            Effect::Stored(record) => Some(record),
            Effect::Removed => None,
            Effect::Nothing => return Ok(tick),
        };
        if draft.marks.retention.is_some() {
            log::push(&mut draft.log, table, &key, stored.as_ref());
        }
        let timestamp = stored.as_ref().map_or(tick, |record| record.as_ref().timestamp());
        let batch = draft.marks.sequence + 1;
        let was_cached = self.shared.records.forget(table, &key, batch);
        let was_refreshed = draft.withdraw(table, &key, batch);
        if let (true, Some(record)) = (was_cached || was_refreshed, stored) {
            draft.refreshed.push(Refreshed { table, key, record, batch });
        }
        Ok(timestamp)
    }

    /// Makes a committed group visible.
    fn publish(&mut self, draft: Draft) {
        self.marks = draft.marks;
        self.shared.queue_time.commit(draft.queue_time);
        self.shared.lead.note(self.marks.tick, &*self.shared.clock);
        self.shared.readers.advance(self.marks.sequence);
        for Refreshed { table, key, record, batch } in draft.refreshed {
            self.shared.records.offer(table, &key, &record, batch);
        }
        if draft.catalogue_changed {
            self.shared.catalogue.store(Arc::new(draft.catalogue));
        }
        if self.marks.retention.is_some() {
            self.shared.committed.send_replace(self.marks.sequence);
        }
        let tables = draft.dropped.into_iter().map(|table| Note::Sweep(Chore::Entities(table)));
        let entries = draft.dropped_indexes.into_iter();
        let entries = entries.map(|index| Note::Sweep(Chore::Entries(index)));
        let builds = draft.building.into_iter().map(|(table, index)| Note::Build(table, index));
        let piles = draft.dropped_piles.into_iter();
        let piles = piles.map(|pile| Note::Sweep(Chore::Messages(pile)));
        let expiring = draft.expiring.into_iter().map(Note::Expire);
        for note in tables.chain(entries).chain(piles).chain(builds).chain(expiring) {
            // The sweep may have ended already; then it finds the work when the store is opened.
            let _ = self.sweeper.send(note);
        }
    }

    /// Calls for a checkpoint when enough has gathered in the log.
    fn look_after_the_log(&self) {
        let tuning = &self.shared.tuning;
        // Does no work, just reads the two numbers. A failure here says nothing about what is stored.
        let size = self.conn.wal_checkpoint_v2(Some(rusqlite::MAIN_DB), CheckpointMode::NOOP);
        if let Ok((frames, copied)) = size
            && (tuning.wal_soft_frames <= frames - copied || tuning.wal_hard_frames <= frames)
        {
            self.shared.checkpoints.request();
        }
    }

    fn execute(&self, sql: &str) -> Result<(), rusqlite::Error> {
        self.conn.prepare_cached(sql)?.execute([]).map(drop)
    }
}

/// Whether a command may have to remove other entities that have expired.
fn may_free(draft: &Draft, Command::Entity { table, .. }: &Command) -> bool {
    let table = draft.catalogue.table_by_id(*table);
    table.is_some_and(|table| {
        table.ttl.is_some() && table.indexes.iter().any(|index| index.keys.unique)
    })
}

/// Removes what has expired. Refused if it has not, or is another by now.
pub(crate) fn expire(table: TableId, key: EntityKey) -> Command {
    Command::Entity { table, key, condition: Condition::Absent, write: Write::Delete }
}

impl Fault {
    /// What the caller hears, or the error that stops the store.
    fn at(self, index: usize) -> Result<StoreError, rusqlite::Error> {
        match self {
            Self::Rejected(reason) => Ok(StoreError::Rejected { index, reason }),
            Self::Corrupt(what) | Self::Damaged(what) | Self::Unguarded(what) => {
                Ok(StoreError::Corrupt(what))
            }
            Self::NoTicks => Ok(StoreError::unavailable(NO_TICKS)),
            Self::Sqlite(error) => Err(error),
        }
    }

    /// What a reader hears.
    pub(crate) fn into_store_error(self) -> StoreError {
        self.at(0).unwrap_or_else(StoreError::unavailable)
    }
}

/// What is damaged, if that is why SQLite failed: a page, or what SQLite itself noticed.
fn damage(error: &rusqlite::Error) -> Option<String> {
    use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase};
    match error.sqlite_error_code() {
        Some(DatabaseCorrupt | NotADatabase) => {
            Some(pages::take_last().map_or_else(|| error.to_string(), |damage| damage.to_string()))
        }
        _ => None,
    }
}

impl From<rusqlite::Error> for Stopped {
    fn from(error: rusqlite::Error) -> Self {
        damage(&error).map_or(Self::Sqlite(error), Self::Damaged)
    }
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        damage(&error).map_or(Self::Sqlite(error), Self::Damaged)
    }
}

impl From<LoadError> for Fault {
    fn from(error: LoadError) -> Self {
        match error {
            LoadError::Sqlite(error) => error.into(),
            LoadError::Damaged(what) => Self::Corrupt(what),
        }
    }
}

impl From<Corrupt> for Fault {
    fn from(error: Corrupt) -> Self {
        Self::Corrupt(error.to_string())
    }
}

/// A panic leaves a transaction in an unknown state: that is a failed write like any other.
struct LatchOnPanic<'a>(&'a Shared);

impl Drop for LatchOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail("the committer panicked");
        }
    }
}
