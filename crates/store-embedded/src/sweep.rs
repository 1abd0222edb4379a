//! Deletes the entities of dropped tables and the changes that are too old, and gives the space back, a little
//! at a time.
//!
//! The thread here only decides when; every step is a job of the committer like any other, small
//! enough not to be noticed, and none is asked for while others wait. What is left to do stands in the
//! database (`dropped`), so a restart goes on where the last one stopped.

use crate::committer::Fault;
use crate::entity::remove_large;
use crate::queue::{Answer, Job, Refused, Work};
use crate::store::Shared;
use crate::tuning::Tuning;
use rowhouse_store::TableId;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, params};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use tokio::sync::oneshot;

/// What the sweep is told.
#[derive(Debug)]
pub(crate) enum Note {
    /// There are entities to delete.
    Dropped(TableId),
    /// The store closes.
    Stop,
}

/// Decides when to sweep.
pub(crate) struct Sweeper {
    pub(crate) shared: Arc<Shared>,
    pub(crate) notes: Receiver<Note>,
    pub(crate) pending: VecDeque<TableId>,
}

/// The store closes or has failed: there is nothing left to do.
struct Ended;

impl Sweeper {
    /// The life of the sweep thread.
    pub(crate) fn run(mut self) {
        // Ends with the store, in whichever call notices it first.
        let Err(Ended) = self.work();
    }

    fn work(&mut self) -> Result<std::convert::Infallible, Ended> {
        loop {
            let mut swept = false;
            while let Some(&table) = self.pending.front() {
                if self.sweep(table)? {
                    self.pending.pop_front();
                    swept = true;
                }
                self.pause()?;
            }
            swept |= self.trim()?;
            self.give_back(swept)?;
            match self.notes.recv_timeout(self.shared.tuning.free_pages_interval) {
                Ok(Note::Dropped(table)) => self.pending.push_back(table),
                Ok(Note::Stop) | Err(RecvTimeoutError::Disconnected) => return Err(Ended),
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// One step; true if nothing of the table is left.
    fn sweep(&mut self, table: TableId) -> Result<bool, Ended> {
        Ok(matches!(self.ask(Work::Sweep(table))?, Some(Answer::Swept { finished: true })))
    }

    /// Removes changes that need not be kept; true if there were many.
    fn trim(&mut self) -> Result<bool, Ended> {
        let mut many = false;
        while matches!(self.ask(Work::TrimLog)?, Some(Answer::Swept { finished: false })) {
            many = true;
            self.pause()?;
        }
        Ok(many)
    }

    /// Returns free pages to the file system: after a sweep those it freed, otherwise only when they are
    /// many, because the next writes would take them.
    fn give_back(&mut self, swept: bool) -> Result<(), Ended> {
        let kept = self.shared.tuning.free_pages_kept;
        let counted = self.ask(Work::FreePages { vacuum: false })?;
        let Some(Answer::FreePages { mut free, total }) = counted else { return Ok(()) };
        if free <= kept || (!swept && free <= total / 4) {
            return Ok(());
        }
        while kept < free && self.pending.is_empty() {
            if let Some(Answer::FreePages { free: left, .. }) =
                self.ask(Work::FreePages { vacuum: true })?
            {
                free = left;
            }
            self.pause()?;
        }
        // The file is cut by the checkpoint that follows.
        self.shared.checkpoints.request();
        Ok(())
    }

    /// Waits until the committer has little to do, then has it do something; none if it did not.
    fn ask(&mut self, work: Work) -> Result<Option<Answer>, Ended> {
        while self.shared.tuning.sweep_queue < self.shared.queue.len() {
            self.pause()?;
        }
        let (reply, answer) = oneshot::channel();
        match self.shared.queue.push(Job { work, reply }) {
            Ok(()) => {}
            Err(Refused::Full) => return Ok(None),
            Err(Refused::Closed) => return Err(Ended),
        }
        let answer = answer.blocking_recv().map_err(|_| Ended)?;
        if let Ok(Answer::FreePages { free, .. }) = &answer {
            self.shared.counters.free_pages.store(*free, Ordering::Relaxed);
        }
        Ok(answer.ok())
    }

    /// Lets others have the disk, and hears what happened meanwhile.
    fn pause(&mut self) -> Result<(), Ended> {
        match self.notes.recv_timeout(self.shared.tuning.sweep_pause) {
            Ok(Note::Dropped(table)) => self.pending.push_back(table),
            Ok(Note::Stop) | Err(RecvTimeoutError::Disconnected) => return Err(Ended),
            Err(RecvTimeoutError::Timeout) => {}
        }
        Ok(())
    }
}

/// The tables that were dropped and not yet swept.
pub(crate) fn dropped(conn: &Connection) -> Result<VecDeque<TableId>, rusqlite::Error> {
    let mut statement = conn.prepare("SELECT table_id FROM dropped ORDER BY table_id")?;
    statement.query_map([], |row| Ok(TableId(row.get::<_, i64>(0)?.cast_unsigned())))?.collect()
}

/// Deletes the first entities of a dropped table; run by the committer.
pub(crate) fn step(conn: &Connection, table: TableId, tuning: &Tuning) -> Result<Answer, Fault> {
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
    Ok(Answer::Swept { finished })
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
