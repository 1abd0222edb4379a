//! Work that can wait: deletes the entities of dropped tables, the entries of dropped indexes, the messages of queues that were
//! dropped or cleared, what has expired (`expire`, `queue`) and the changes that are too old, gives the space back, and builds
//! indexes, a little at a time.
//!
//! The thread here only decides when; every step is a job of the committer like any other, small
//! enough not to be noticed, and none is asked for while others wait. What is left to do stands in the
//! database (`dropped`, `dropped_indexes`, `dropped_piles`, `indexes`), so a restart goes on where the last one stopped.

use crate::committer::Fault;
use crate::entity::remove_large;
use crate::expire::Expiring;
use crate::index::build::{self, Chunk};
use crate::index::find;
use crate::jobs::{Answer, Job, Refused, Work};
use crate::queue;
use crate::schema;
use crate::store::{About, Shared};
use crate::tuning::SWEEP_QUEUE;
use crate::tuning::Tuning;
use rowhouse_store::{IndexId, IndexState, StoreError, TableId};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, params};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// What the sweep is told.
#[derive(Debug)]
pub(crate) enum Note {
    /// There is something to delete.
    Sweep(Chore),
    /// There is an index to build.
    Build(TableId, IndexId),
    /// Entities of a table expire, or otherwise than before.
    Expire(TableId),
    /// The store closes.
    Stop,
}

/// What is gone for everybody and still in the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Chore {
    /// The entities of a table.
    Entities(TableId),
    /// The entries of an index.
    Entries(IndexId),
    /// The messages of a pile.
    Messages(i64),
}

/// Decides when to sweep and to build.
pub(crate) struct Sweeper {
    pub(crate) shared: Arc<Shared>,
    pub(crate) notes: Receiver<Note>,
    pub(crate) pending: VecDeque<Chore>,
    pub(crate) builds: VecDeque<(TableId, IndexId)>,
    /// What is being entered into the first of them.
    pub(crate) chunk: Option<Chunk>,
    /// Tables whose entities expire.
    pub(crate) expiring: Expiring,
    /// Reads what has to be entered.
    pub(crate) conn: Connection,
}

/// The store closes or has failed: there is nothing left to do.
pub(crate) struct Ended;

impl Sweeper {
    /// The life of the sweep thread.
    pub(crate) fn run(mut self) {
        // Who reads everything must not hold up who reads one thing.
        rowhouse_env::step_back();
        // Ends with the store, in whichever call notices it first.
        let Err(Ended) = self.work();
    }

    fn work(&mut self) -> Result<std::convert::Infallible, Ended> {
        loop {
            let (mut swept, mut looked_after) = (false, Instant::now());
            while self.has_work() {
                if let Some(&chore) = self.pending.front() {
                    if self.sweep(chore)? {
                        self.pending.pop_front();
                        if let Chore::Messages(pile) = chore {
                            self.shared.dead.forget(pile);
                        }
                        swept = true;
                    }
                    self.pause(self.shared.tuning.sweep_pause)?;
                }
                if let Some(&(table, index)) = self.builds.front() {
                    let start = Instant::now();
                    if self.build(table, index)? {
                        self.builds.pop_front();
                        self.chunk = None;
                    }
                    let tuning = &self.shared.tuning;
                    let pause = start.elapsed().min(tuning.build_pause_max);
                    let pause = pause.max(tuning.sweep_pause);
                    self.pause(pause)?;
                }
                if self.expiring.is_due() {
                    swept |= self.expire()?;
                }
                // Large tables can be at it without an end: what is old must not gather meanwhile.
                if self.shared.tuning.free_pages_interval <= looked_after.elapsed() {
                    self.look_after(swept)?;
                    (swept, looked_after) = (false, Instant::now());
                }
            }
            self.look_after(swept)?;
            self.pause(self.shared.tuning.free_pages_interval)?;
        }
    }

    /// What is to be done now and then, whatever else there is to do: removes what is too old and gives space back.
    fn look_after(&mut self, mut swept: bool) -> Result<(), Ended> {
        swept |= self.repeat(|| Work::TrimLog)?;
        swept |= self.repeat(|| Work::Expire)?;
        self.give_back(swept)
    }

    fn has_work(&self) -> bool {
        !self.pending.is_empty() || !self.builds.is_empty() || self.expiring.is_due()
    }

    /// One step; true if nothing is left of it, or nothing more can be done before the next start.
    fn sweep(&mut self, chore: Chore) -> Result<bool, Ended> {
        let answer = self.ask(Work::Sweep(chore))?;
        Ok(matches!(answer, Some(Answer::Swept { finished: true } | Answer::Damaged)))
    }

    /// One step of building an index; true if nothing is left to do for it, or it cannot be built for damage.
    fn build(&mut self, table: TableId, index: IndexId) -> Result<bool, Ended> {
        if self.chunk.is_none() {
            match self.read_ahead(table, index) {
                Ok(Some(chunk)) => self.chunk = Some(chunk),
                Ok(None) => return Ok(true),
                Err(fault @ (Fault::Damaged(_) | Fault::Corrupt(_))) => {
                    let error = fault.into_store_error();
                    self.shared.notice(About::Table(table), &error);
                    tracing::error!(%error, "an index cannot be built");
                    return Ok(true);
                }
                Err(fault) => {
                    let error = fault.into_store_error();
                    tracing::warn!(%error, "building an index is interrupted");
                    self.pause(self.shared.tuning.restart_pause)?;
                    return Ok(false);
                }
            }
        }
        let Some(chunk) = &mut self.chunk else { return Ok(false) };
        let step = chunk.step(&self.shared.tuning);
        self.shared.set_entered(index, chunk.examined(), chunk.expected());
        let answer = loop {
            self.wait_for_calm(self.shared.tuning.build_patience)?;
            match self.put(Work::Enter(Arc::clone(&step)))? {
                Some(answer) => break answer,
                None => self.pause(self.shared.tuning.sweep_pause)?,
            }
        };
        if step.reached.is_some() {
            self.chunk = None;
        }
        if matches!(answer, Answer::Damaged) {
            tracing::error!("an index cannot be built");
        }
        Ok(matches!(answer, Answer::Swept { finished: true } | Answer::Damaged))
    }

    /// Reads what comes next for the index; none if it is not there any more or not being built.
    fn read_ahead(&self, table: TableId, index: IndexId) -> Result<Option<Chunk>, Fault> {
        let catalogue = self.shared.catalogue.load_full();
        let found = catalogue.table_by_id(table).and_then(|table| find(table, index));
        let Some(found) = found.filter(|index| index.state == IndexState::Building) else {
            return Ok(None);
        };
        let Some(mut progress) = build::progress(&self.conn, index)? else { return Ok(None) };
        let (tuning, stop) = (&self.shared.tuning, || self.shared.health.is_closed());
        if progress.place.is_none() {
            progress.expected = build::count(&self.conn, table, &stop)?;
        }
        Chunk::read(&self.conn, (table, index), &found.keys, progress, tuning, &stop).map(Some)
    }

    /// Removes what is too old until nothing is left of it; true if there was much.
    fn repeat(&mut self, work: fn() -> Work) -> Result<bool, Ended> {
        let mut many = false;
        while matches!(self.ask(work())?, Some(Answer::Swept { finished: false })) {
            many = true;
            self.pause(self.shared.tuning.sweep_pause)?;
        }
        Ok(many)
    }

    /// Returns free pages to the file system: after a sweep those it freed, otherwise only when they are
    /// many, because the next writes would take them. For a short time only if there is something else to do.
    fn give_back(&mut self, swept: bool) -> Result<(), Ended> {
        let kept = u64::from(self.shared.tuning.free_pages_kept);
        let counted = self.ask(Work::FreePages { vacuum: false })?;
        let Some(Answer::FreePages { mut free, total }) = counted else { return Ok(()) };
        if free <= kept || (!swept && free <= total / 4) {
            return Ok(());
        }
        let (began, share) = (Instant::now(), self.shared.tuning.free_pages_interval / 10);
        while kept < free && (began.elapsed() < share || !self.has_work()) {
            match self.ask(Work::FreePages { vacuum: true })? {
                Some(Answer::FreePages { free: left, .. }) => free = left,
                Some(Answer::Damaged) => break,
                _ => {}
            }
            self.pause(self.shared.tuning.sweep_pause)?;
        }
        // The file is cut by the checkpoint that follows.
        self.shared.checkpoints.request();
        Ok(())
    }

    /// Waits until the committer has little to do, then has it do something; none if it did not.
    fn ask(&mut self, work: Work) -> Result<Option<Answer>, Ended> {
        self.wait_for_calm(Duration::MAX)?;
        self.put(work)
    }

    /// Waits until the committer has little to do, but no longer than this.
    pub(crate) fn wait_for_calm(&mut self, patience: Duration) -> Result<(), Ended> {
        let start = Instant::now();
        while SWEEP_QUEUE < self.shared.jobs.len() && start.elapsed() < patience {
            self.pause(self.shared.tuning.sweep_pause)?;
        }
        Ok(())
    }

    /// Has the committer do something; none if it did not.
    fn put(&mut self, work: Work) -> Result<Option<Answer>, Ended> {
        let (reply, answer) = oneshot::channel();
        match self.shared.jobs.push(Job { work, reply }) {
            Ok(()) => {}
            Err(Refused::Full) => return Ok(None),
            Err(Refused::Closed) => return Err(Ended),
        }
        let answer = answer.blocking_recv().map_err(|_| Ended)?;
        if let Ok(Answer::FreePages { free, .. }) = &answer {
            self.shared.counters.free_pages.store(*free, Ordering::Relaxed);
        }
        if let Err(error @ StoreError::Corrupt(_)) = &answer {
            self.shared.notice(About::Store, error);
            return Ok(Some(Answer::Damaged));
        }
        Ok(answer.ok())
    }

    /// Lets others have the disk, and hears what happened meanwhile.
    pub(crate) fn pause(&mut self, pause: Duration) -> Result<(), Ended> {
        match self.notes.recv_timeout(pause) {
            Ok(Note::Sweep(chore)) => self.pending.push_back(chore),
            Ok(Note::Build(table, index)) => self.builds.push_back((table, index)),
            Ok(Note::Expire(table)) => self.expiring.hear(table),
            Ok(Note::Stop) | Err(RecvTimeoutError::Disconnected) => return Err(Ended),
            Err(RecvTimeoutError::Timeout) => {}
        }
        Ok(())
    }
}

/// What was dropped and is not yet swept.
pub(crate) fn dropped(conn: &Connection) -> Result<VecDeque<Chore>, rusqlite::Error> {
    let mut chores = VecDeque::new();
    let mut list = |sql: &str, chore: fn(u64) -> Chore| -> Result<(), rusqlite::Error> {
        let mut statement = conn.prepare(sql)?;
        let ids = statement.query_map([], |row| row.get::<_, i64>(0))?;
        for id in ids {
            chores.push_back(chore(id?.cast_unsigned()));
        }
        Ok(())
    };
    list("SELECT table_id FROM dropped ORDER BY table_id", |id| Chore::Entities(TableId(id)))?;
    if schema::INDEXES_SINCE <= schema::version(conn)? {
        let sql = "SELECT index_id FROM dropped_indexes ORDER BY index_id";
        list(sql, |id| Chore::Entries(IndexId(id)))?;
    }
    if schema::QUEUES_SINCE <= schema::version(conn)? {
        let sql = "SELECT pile FROM dropped_piles ORDER BY pile";
        list(sql, |pile| Chore::Messages(pile.cast_signed()))?;
    }
    Ok(chores)
}

/// Deletes the first of what is left; run by the committer.
pub(crate) fn step(conn: &Connection, chore: Chore, tuning: &Tuning) -> Result<Answer, Fault> {
    let finished = match chore {
        Chore::Entities(table) => delete_entities(conn, table, tuning)?,
        Chore::Entries(index) => delete_entries(conn, index, tuning)?,
        Chore::Messages(pile) => queue::sweep::delete_pile(conn, pile, tuning)?,
    };
    Ok(Answer::Swept { finished })
}

/// Deletes the first entities of a dropped table; true if none are left.
fn delete_entities(conn: &Connection, table: TableId, tuning: &Tuning) -> Result<bool, Fault> {
    let id = table.0.cast_signed();
    let (mut count, mut bytes) = (0, 0);
    let mut last: Option<(String, String)> = None;
    {
        let mut select = conn.prepare_cached(
            "SELECT pk, rk, CASE typeof(record) WHEN 'integer' THEN record END FROM entities
             WHERE table_id = ?1 ORDER BY pk, rk",
        )?;
        let mut rows = select.query([id])?;
        while count < tuning.sweep_rows && bytes < tuning.sweep_bytes {
            let Some(row) = rows.next()? else { break };
            count += 1;
            if let ValueRef::Integer(large) = row.get_ref(2)? {
                bytes += remove_large(conn, large)?;
            }
            // Only the last key matters, but which one is the last is not known before.
            last = Some((row.get(0)?, row.get(1)?));
        }
    }
    if let Some((partition, row)) = &last {
        conn.prepare_cached("DELETE FROM entities WHERE table_id = ?1 AND (pk, rk) <= (?2, ?3)")?
            .execute(params![id, partition, row])?;
    }
    let finished = count < tuning.sweep_rows && bytes < tuning.sweep_bytes;
    if finished {
        conn.prepare_cached("DELETE FROM dropped WHERE table_id = ?1")?.execute([id])?;
    }
    Ok(finished)
}

/// Deletes the first entries of an index that nobody needs; true if none are left.
fn delete_entries(conn: &Connection, index: IndexId, tuning: &Tuning) -> Result<bool, Fault> {
    let id = index.0.cast_signed();
    let mut count = 0;
    let mut last: Option<(Vec<u8>, String, String)> = None;
    {
        let mut select = conn.prepare_cached(
            "SELECT entry, pk, rk FROM entries WHERE index_id = ?1 ORDER BY entry, pk, rk",
        )?;
        let mut rows = select.query([id])?;
        while count < tuning.sweep_rows {
            let Some(row) = rows.next()? else { break };
            count += 1;
            last = Some((row.get(0)?, row.get(1)?, row.get(2)?));
        }
    }
    if let Some((entry, partition, row)) = &last {
        conn.prepare_cached(
            "DELETE FROM entries WHERE index_id = ?1 AND (entry, pk, rk) <= (?2, ?3, ?4)",
        )?
        .execute(params![id, entry, partition, row])?;
    }
    let finished = count < tuning.sweep_rows;
    if finished {
        conn.prepare_cached("DELETE FROM dropped_indexes WHERE index_id = ?1")?.execute([id])?;
    }
    Ok(finished)
}

/// Counts free pages after giving some back, if so told; run by the committer.
pub(crate) fn free_pages(conn: &Connection, vacuum: bool) -> Result<Answer, Fault> {
    if vacuum {
        let mut statement = conn.prepare_cached("PRAGMA incremental_vacuum(256)")?;
        // One row per page, without columns: the work is done by asking for the next.
        let mut rows = statement.query([])?;
        while rows.next()?.is_some() {}
    }
    let count = |pragma: &str| -> Result<u64, Fault> {
        let count: i64 = conn.prepare_cached(pragma)?.query_row([], |row| row.get(0))?;
        Ok(u64::try_from(count).unwrap_or(0))
    };
    Ok(Answer::FreePages {
        free: count("PRAGMA freelist_count")?,
        total: count("PRAGMA page_count")?,
    })
}
