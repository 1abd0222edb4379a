//! Connections that reads by key share.
//!
//! Such a read is done before whoever waits for it is awake. Sent behind one another on a few connections, without
//! waiting for the answers in between, reads cost both sides fewer system calls, and the database fewer processes to
//! wake. Answers come in the order of the questions, so nothing that takes long belongs here: no scan, no write. Where a
//! read does, nobody comes behind it any more: the lane is closed for a while, and its connection is given back when those who
//! are on it have their answers. So a database that is slow, because of its disk, of a lock or of too much work, is asked as if
//! there were no lanes, and nothing is asked twice because of that.

use crate::pool::Session;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// One of so many connections is shared.
const ONE_OF: usize = 4;
/// Reads on one connection before the next one is used.
const FILL: usize = 4;
/// Reads on one connection at most.
const DEPTH: usize = 16;
/// A read that takes longer closes its lane.
const SLOW: Duration = Duration::from_millis(100);
/// How long a lane stays closed.
const CLOSED_FOR: Duration = Duration::from_secs(1);

/// The connections of a pool that are shared, as many as there are lanes at most.
#[derive(Debug)]
pub(crate) struct Lanes(Vec<Lane>);

#[derive(Debug, Default)]
struct Lane {
    reads: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    session: Option<Arc<Session>>,
    closed_until: Option<Instant>,
}

/// A read's place on a shared connection. One that is slow, or is left without an answer, closes the lane: what comes behind it
/// would wait for that.
#[derive(Debug)]
pub(crate) struct Shared {
    session: Arc<Session>,
    lanes: Arc<Lanes>,
    at: usize,
    began: Instant,
    answered: bool,
}

impl Lanes {
    /// Those of a pool of so many connections; none if it is small.
    pub(crate) fn of(connections: usize) -> Arc<Self> {
        Arc::new(Self((0..connections / ONE_OF).map(|_| Lane::default()).collect()))
    }

    /// A place beside others. None if all are taken, and if a lane could have one more connection.
    pub(crate) fn enter(self: &Arc<Self>) -> Option<Shared> {
        let mut least: Option<(usize, usize, Arc<Session>)> = None;
        for (at, lane) in self.0.iter().enumerate() {
            let mut state = lane.state();
            if state.is_closed() {
                continue;
            }
            state.session.take_if(|session| !session.is_open());
            let session = Arc::clone(state.session.as_ref()?);
            drop(state);
            let reads = lane.reads.load(Ordering::Relaxed);
            if least.as_ref().is_none_or(|(fewest, ..)| reads < *fewest) {
                least = Some((reads, at, session));
            }
            if reads < FILL {
                break;
            }
        }
        let (_, at, session) = least.filter(|(reads, ..)| *reads < DEPTH)?;
        self.0[at].reads.fetch_add(1, Ordering::Relaxed);
        let (lanes, began) = (Arc::clone(self), Instant::now());
        Some(Shared { session, lanes, at, began, answered: false })
    }

    /// Makes a connection a shared one if a lane has none; it is given back otherwise.
    pub(crate) fn offer(&self, session: Session) {
        for lane in &self.0 {
            let mut state = lane.state();
            if !state.is_closed() && state.session.is_none() {
                state.session = Some(Arc::new(session));
                return;
            }
        }
    }

    /// How many connections are shared by nobody at the moment.
    pub(crate) fn idle(&self) -> usize {
        let is_idle = |lane: &&Lane| {
            lane.reads.load(Ordering::Relaxed) == 0 && lane.state().session.is_some()
        };
        self.0.iter().filter(is_idle).count()
    }

    /// Gives the connections back.
    pub(crate) fn clear(&self) {
        for lane in &self.0 {
            lane.state().session = None;
        }
    }
}

impl Lane {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn is_closed(&mut self) -> bool {
        self.closed_until.take_if(|until| *until <= Instant::now());
        self.closed_until.is_some()
    }
}

impl Shared {
    pub(crate) fn session(&self) -> &Session {
        &self.session
    }

    /// The answer is there, whatever it is.
    pub(crate) fn answered(mut self) {
        self.answered = true;
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let lane = &self.lanes.0[self.at];
        lane.reads.fetch_sub(1, Ordering::Relaxed);
        if self.answered && self.began.elapsed() < SLOW {
            return;
        }
        let mut state = lane.state();
        if state.session.as_ref().is_some_and(|session| Arc::ptr_eq(session, &self.session)) {
            state.session = None;
            state.closed_until = Some(Instant::now() + CLOSED_FOR);
        }
    }
}
