//! Copies the write-ahead log into the database, and keeps the log from growing without end.
//!
//! A passive checkpoint disturbs nobody, but the log starts again from its beginning only at a moment
//! when no reader needs it, and readers that overlap leave no such moment. So beyond a size a
//! restart is tried, which holds writers back while the readers of that moment finish: briefly
//! at first, and when the log is four times that size for as long as any page takes. It is announced first, and pages of
//! entities that have been read for a while end then with what they have ([`Requests::or_restart`]): whoever asked goes on
//! from there. Counts, sorted pages and pages through an index or in its order do not end so ([`Whole`]): while a long one of them is under
//! way no restart is tried until the log is twice that size, and then they are waited for.
//!
//! Once writers have rested for a moment whatever is left is copied too: what has come to rest is read faster from
//! the database than from the log.
//!
//! A checkpoint that fails is a failed write: what a later attempt would report cannot be trusted. Only a full disk
//! says so before anything is at risk, and is tried again.

use crate::directory::leave_word;
use crate::pages::{self, Damage};
use crate::store::Shared;
use rusqlite::wal::CheckpointMode;
use rusqlite::{Connection, ErrorCode};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Frames that are copied in a moment.
const LITTLE: i32 = 256;
/// How often the log is copied before it starts again, at most.
const COPIES_MAX: usize = 4;
/// How long pages have to end before writers are held back for them. Those that lag behind are waited for.
const TIME_TO_END: Duration = Duration::from_millis(20);
/// About so many rows a page examines at least: most pages need no more, and one that ends has brought its client further.
const ROWS_KEPT: u64 = 1024;

/// How the committer and the sweep ask for a checkpoint.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    state: Mutex<State>,
    changed: Condvar,
    /// The log is about to start again: pages end that have been read for a while.
    announced: AtomicBool,
    /// Reads under way that take long and do not end before they are done.
    whole: AtomicUsize,
    /// How often the log was to start again.
    #[cfg(test)]
    attempts: AtomicUsize,
}

#[derive(Debug, Default)]
struct State {
    requested: bool,
    stopped: bool,
    /// The log is about to start again: the committer lets that go first.
    restarting: bool,
}

impl Requests {
    /// Asks for a checkpoint soon; asking twice is asking once.
    pub(crate) fn request(&self) {
        let mut state = self.lock();
        if !std::mem::replace(&mut state.requested, true) {
            drop(state);
            self.changed.notify_all();
        }
    }

    /// Ends the thread after the checkpoint that it is at.
    pub(crate) fn stop(&self) {
        self.lock().stopped = true;
        self.changed.notify_all();
    }

    /// Waits for a request, but no longer than this.
    fn wait(&self, patience: Duration) -> Woken {
        let calm = |state: &mut State| !state.stopped && !state.requested;
        let waited = self.changed.wait_timeout_while(self.lock(), patience, calm);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match (state.stopped, std::mem::take(&mut state.requested)) {
            (true, _) => Woken::ToStop,
            (false, true) => Woken::ByRequest,
            (false, false) => Woken::ByTime,
        }
    }

    /// Waits while the log is about to start again. Without this the committer, which lets go of SQLite's
    /// lock only to take it again, would leave no opening.
    pub(crate) fn give_way(&self) {
        let waited = self.changed.wait_while(self.lock(), |state| state.restarting);
        drop(waited);
    }

    /// What a page asks whenever it has examined so many rows, whether to end: as it would anyway, and also when it has been
    /// read for a while and writers would have to wait for it.
    pub(crate) fn or_restart<'a>(
        &'a self,
        rows_per_look: u64,
        abandoned: &'a dyn Fn() -> bool,
    ) -> impl Fn() -> bool + 'a {
        let rows = Cell::new(0);
        move || {
            rows.set(rows.get() + rows_per_look);
            abandoned() || (ROWS_KEPT <= rows.get() && self.announced.load(Ordering::Relaxed))
        }
    }

    /// Whether a read is under way that takes long and does not end early.
    pub(crate) fn is_read_whole(&self) -> bool {
        self.whole.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn announce(&self, announced: bool) {
        #[cfg(test)]
        self.attempts.fetch_add(announced.into(), Ordering::Relaxed);
        self.announced.store(announced, Ordering::Relaxed);
    }

    #[cfg(test)]
    pub(crate) fn attempts(&self) -> usize {
        self.attempts.load(Ordering::Relaxed)
    }

    fn set_restarting(&self, restarting: bool) {
        self.lock().restarting = restarting;
        self.changed.notify_all();
    }

    /// Lets time pass unless the thread shall end.
    fn pause(&self, duration: Duration) {
        let state = self.lock();
        let waited = self.changed.wait_timeout_while(state, duration, |state| !state.stopped);
        drop(waited);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A read that is of use only as a whole: known of as soon as it has taken a while, until it is done.
pub(crate) struct Whole<'a> {
    shared: &'a Shared,
    rows_per_look: u64,
    rows: Cell<u64>,
    abandoned: &'a dyn Fn() -> bool,
}

impl<'a> Whole<'a> {
    pub(crate) fn new(
        shared: &'a Shared,
        rows_per_look: u64,
        abandoned: &'a dyn Fn() -> bool,
    ) -> Self {
        Self { shared, rows_per_look, rows: Cell::new(0), abandoned }
    }

    /// What it asks whenever it has examined so many rows: whether nobody waits for it any more.
    pub(crate) fn look(&self) -> bool {
        let was_long = self.is_long();
        self.rows.set(self.rows.get() + self.rows_per_look);
        if self.is_long() && !was_long {
            self.shared.checkpoints.whole.fetch_add(1, Ordering::Relaxed);
        }
        (self.abandoned)()
    }

    fn is_long(&self) -> bool {
        u64::from(self.shared.tuning.whole_rows) <= self.rows.get()
    }
}

impl Drop for Whole<'_> {
    fn drop(&mut self) {
        if self.is_long() {
            self.shared.checkpoints.whole.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// An attempt to have the log start again: nobody ends or waits for it any longer than it lasts.
struct Restart<'a>(&'a Requests);

impl<'a> Restart<'a> {
    fn announce(requests: &'a Requests) -> Self {
        requests.announce(true);
        Self(requests)
    }
}

impl Drop for Restart<'_> {
    fn drop(&mut self) {
        self.0.set_restarting(false);
        self.0.announce(false);
    }
}

/// Why the checkpoint thread wakes up.
enum Woken {
    ByRequest,
    ByTime,
    ToStop,
}

/// The life of the checkpoint thread.
pub(crate) fn run(conn: &Connection, shared: &Arc<Shared>) {
    let mut seen = 0;
    loop {
        let woken = shared.checkpoints.wait(shared.tuning.wal_idle);
        let groups = shared.counters.groups.load(Ordering::Relaxed);
        let at_rest = std::mem::replace(&mut seen, groups) == groups;
        match woken {
            Woken::ToStop => return,
            Woken::ByTime if !at_rest || is_copied(conn) => continue,
            Woken::ByTime | Woken::ByRequest => {}
        }
        if shared.health.has_failed() {
            return;
        }
        if let Err(error) = checkpoint(conn, shared) {
            let damage = pages::take_last();
            if let Some(damage @ Damage::Frame(_)) = damage {
                leave_word(shared.database(), damage);
            }
            let what = damage.map_or_else(|| error.to_string(), |damage| damage.to_string());
            shared.fail(&format!("a checkpoint of the database failed: {what}"));
            return;
        }
    }
}

/// Whether the database has all that is in the log.
fn is_copied(conn: &Connection) -> bool {
    let size = conn.wal_checkpoint_v2(Some(rusqlite::MAIN_DB), CheckpointMode::NOOP);
    size.is_ok_and(|(frames, copied)| frames == copied)
}

/// What has become of a checkpoint.
enum Outcome {
    Done,
    /// The log could not start again for readers that need it.
    InVain,
}

fn checkpoint(conn: &Connection, shared: &Shared) -> Result<(), rusqlite::Error> {
    match attempt(conn, shared) {
        Ok(Outcome::Done) => return Ok(()),
        Ok(Outcome::InVain) => tracing::debug!("readers keep the log from starting again"),
        // The log has it all, and the next attempt copies the same again. Commits may go on if they fit.
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::DiskFull) => {
            tracing::warn!("the disk is full: the log cannot be copied into the database");
        }
        Err(error) => return Err(error),
    }
    shared.checkpoints.pause(shared.tuning.restart_pause);
    Ok(())
}

fn attempt(conn: &Connection, shared: &Shared) -> Result<Outcome, rusqlite::Error> {
    let hard = shared.tuning.wal_hard_frames;
    let _let_go = shared.readers.let_go();
    let Some(frames) = copy(conn, shared)? else { return Ok(Outcome::Done) };
    shared.look_at_size();
    // A view of the past needs the log as it is, for longer than anybody should wait.
    if frames < hard || shared.frozen.load(Ordering::Acquire) > 0 {
        return Ok(Outcome::Done);
    }
    // Writers would wait for nothing.
    if frames / hard < 2 && shared.checkpoints.is_read_whole() {
        return Ok(Outcome::InVain);
    }
    let patience = match frames / hard {
        ..2 => Duration::from_millis(100),
        2..4 => Duration::from_secs(1),
        4.. => Duration::from_secs(10),
    };
    conn.busy_timeout(patience)?;
    match restart(conn, shared) {
        Ok(()) => Ok(Outcome::Done),
        Err(error) if is_busy(&error) => Ok(Outcome::InVain),
        Err(error) => Err(error),
    }
}

/// Has the log start again, once pages have had time to end.
fn restart(conn: &Connection, shared: &Shared) -> Result<(), rusqlite::Error> {
    let _restart = Restart::announce(&shared.checkpoints);
    if shared.scans.busy() > 0 {
        shared.checkpoints.pause(TIME_TO_END);
        // What they held on to, and what was committed meanwhile.
        if copy(conn, shared)?.is_none() {
            return Ok(());
        }
    }
    shared.checkpoints.set_restarting(true);
    conn.wal_checkpoint_v2(Some(rusqlite::MAIN_DB), CheckpointMode::RESTART).map(drop)
}

/// Copies what is in the log while commits go on, again until little is left: what is left is copied while nobody can
/// commit. The number of frames in the log, or none if it could not be copied.
fn copy(conn: &Connection, shared: &Shared) -> Result<Option<i32>, rusqlite::Error> {
    let mut frames = 0;
    for _ in 0..COPIES_MAX {
        match conn.wal_checkpoint_v2(Some(rusqlite::MAIN_DB), CheckpointMode::PASSIVE) {
            Ok((all, copied)) => {
                frames = all;
                if all < shared.tuning.wal_hard_frames || all - copied < LITTLE {
                    break;
                }
            }
            Err(error) if is_busy(&error) => return Ok(None),
            Err(error) => return Err(error),
        }
    }
    Ok(Some(frames))
}

fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}
