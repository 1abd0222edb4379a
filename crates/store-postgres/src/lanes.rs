//! Connections that reads by key share.
//!
//! Such a read is done before whoever waits for it is awake. Sent behind one another on a few connections, without
//! waiting for the answers in between, reads cost both sides fewer system calls, and the database fewer processes to
//! wake. Answers come in the order of the questions, so nothing that takes long belongs here: no scan, no write. Where a
//! read does, nobody comes behind it any more: a lane that has not answered for [`SLOW`], or answered a read later than that, is
//! closed for a while, and its connection is given back when those who are on it have their answers. So a database that is
//! slow, because of its disk, of a lock or of too much work, is asked as if there were no lanes. Closing a lane sends nobody away
//! from it, so nothing is asked twice because of that; a read leaves by itself when it has waited for
//! [`crate::reader::BESIDE_OTHERS`].

use crate::pool::Session;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// One of so many connections is shared.
const ONE_OF: usize = 4;
/// Reads on one connection before the next one is used.
const FILL: usize = 4;
/// Reads on one connection at most.
const DEPTH: usize = 16;
/// A lane is closed when a read takes longer, or is about to.
const SLOW: Duration = Duration::from_millis(100);
/// How long a lane stays closed.
const CLOSED_FOR: Duration = Duration::from_secs(1);
/// How long others leave it to one read to make a connection for a lane that has none.
const MADE_WITHIN: Duration = Duration::from_secs(1);

/// The connections of a pool that are shared, as many as there are lanes at most.
#[derive(Debug)]
pub(crate) struct Lanes(Mutex<State>);

#[derive(Debug)]
struct State {
    lanes: Vec<Lane>,
    /// No connection is shared any more.
    has_ended: bool,
}

#[derive(Debug, Default)]
struct Lane {
    line: Option<Line>,
    closed_until: Option<Instant>,
    /// When a read was sent to make a connection for it.
    made_since: Option<Instant>,
}

/// The connection of a lane, and who is on it.
#[derive(Debug)]
struct Line {
    session: Arc<Session>,
    reads: usize,
    /// When it last answered, or had nothing to answer.
    progress: Instant,
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
        let lanes = (0..connections / ONE_OF).map(|_| Lane::default()).collect();
        Arc::new(Self(Mutex::new(State { lanes, has_ended: false })))
    }

    /// A place beside others. None if all are taken, and for one of those who find all lanes busy and one without a connection, if
    /// there is one to spare: whoever has it may offer it.
    pub(crate) fn enter(self: &Arc<Self>, is_one_spare: impl FnOnce() -> bool) -> Option<Shared> {
        let now = Instant::now();
        let mut state = self.state();
        let mut least: Option<(usize, usize)> = None;
        let mut empty = None;
        for (at, lane) in state.lanes.iter_mut().enumerate() {
            if lane.is_closed(now) {
                continue;
            }
            let Some(line) = &lane.line else {
                empty = empty.or((!lane.is_being_made(now)).then_some(at));
                continue;
            };
            if least.is_none_or(|(fewest, _)| line.reads < fewest) {
                least = Some((line.reads, at));
            }
            if line.reads < FILL {
                break;
            }
        }
        let (reads, at) = least.filter(|(reads, _)| *reads < DEPTH)?;
        if FILL <= reads
            && let Some(empty) = empty
            && is_one_spare()
        {
            state.lanes[empty].made_since = Some(now);
            return None;
        }
        let line = state.lanes[at].line.as_mut()?;
        if line.reads == 0 {
            line.progress = now;
        }
        line.reads += 1;
        let (session, lanes) = (Arc::clone(&line.session), Arc::clone(self));
        Some(Shared { session, lanes, at, began: now, answered: false })
    }

    /// Makes a connection a shared one if a lane has none; it is given back otherwise.
    pub(crate) fn offer(&self, session: Session) {
        let now = Instant::now();
        let mut state = self.state();
        if state.has_ended {
            return;
        }
        for lane in &mut state.lanes {
            if !lane.is_closed(now) && lane.line.is_none() {
                lane.line = Some(Line { session: Arc::new(session), reads: 0, progress: now });
                lane.made_since = None;
                return;
            }
        }
    }

    /// How many connections are shared by nobody at the moment.
    pub(crate) fn idle(&self) -> usize {
        let is_idle = |lane: &&Lane| lane.line.as_ref().is_some_and(|line| line.reads == 0);
        self.state().lanes.iter().filter(is_idle).count()
    }

    /// Gives the connections back, and takes no others.
    pub(crate) fn end(&self) {
        let mut state = self.state();
        state.has_ended = true;
        for lane in &mut state.lanes {
            lane.line = None;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lane {
    /// Whether nobody may come. Closes it if its connection is stuck, and takes one away that is lost.
    fn is_closed(&mut self, now: Instant) -> bool {
        if self.line.as_ref().is_some_and(|line| line.is_stuck(now)) {
            self.close(now);
        }
        self.line.take_if(|line| !line.session.is_open());
        self.closed_until.take_if(|until| *until <= now);
        self.closed_until.is_some()
    }

    fn close(&mut self, now: Instant) {
        self.line = None;
        self.closed_until = Some(now + CLOSED_FOR);
    }

    fn is_being_made(&self, now: Instant) -> bool {
        self.made_since.is_some_and(|since| now.duration_since(since) < MADE_WITHIN)
    }
}

impl Line {
    /// Whether those who wait for an answer have waited too long for the next one.
    fn is_stuck(&self, now: Instant) -> bool {
        0 < self.reads && SLOW < now.duration_since(self.progress)
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
        let now = Instant::now();
        let mut state = self.lanes.state();
        let lane = &mut state.lanes[self.at];
        let is_ours = |line: &&mut Line| Arc::ptr_eq(&line.session, &self.session);
        let Some(ours) = lane.line.as_mut().filter(is_ours) else { return };
        ours.reads -= 1;
        ours.progress = now;
        if !self.answered || SLOW < now.duration_since(self.began) {
            lane.close(now);
        }
    }
}
