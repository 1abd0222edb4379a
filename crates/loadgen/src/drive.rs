//! Many connections on one thread: sends what a script asks, times the answers, lets the script judge.
//!
//! The loop is the client's whole cost beside making requests, so it does little: one write and one read for a
//! small exchange, and no change of registration. Two ways of asking: each connection as fast as answers
//! come (closed loop), or at a fixed rate whatever the answers do (open loop). In the latter a latency
//! counts from when its request was due, so that a server that stalls is charged for all who would have waited.

use crate::connection::{Connection, Progress};
use crate::histogram::Histogram;
use crate::request::Requests;
use crate::response::Answer;
use rustix::event::{Timespec, epoll};
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// How long answers may take after the last request was sent.
const GRACE: Duration = Duration::from_mins(2);
/// How long at least what was due may be sent late.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest sleep, so that the end is noticed.
const NAP: Duration = Duration::from_millis(100);

/// What to ask, and whether the answer is right.
pub(crate) trait Script {
    /// Writes the next request of a connection. `fresh` starts another operation, otherwise the last one goes
    /// on. False if there is nothing left to ask.
    fn ask(&mut self, slot: usize, fresh: bool, to: &mut Requests, out: &mut Vec<u8>) -> bool;

    /// Judges the answer to the last request of a connection.
    fn judge(&mut self, slot: usize, answer: &Answer<'_>) -> Verdict;

    /// Whether the operation of a connection changes something: those are timed apart.
    fn writes(&self, _slot: usize) -> bool {
        false
    }
}

/// What an answer means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The operation is complete, and its answer is right.
    Done,
    /// The operation needs another request.
    More,
    /// The server said that it is busy.
    Refused,
    /// Anything else, in words.
    Wrong(String),
}

/// How fast to ask.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Pace {
    /// Every connection, as soon as its last answer is there.
    Closed,
    /// So many operations a second over all connections.
    Rate(f64),
}

/// What came of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    /// Complete operations with right answers.
    pub(crate) operations: u64,
    /// Operations that the server was too busy for.
    pub(crate) refused: u64,
    /// Operations with wrong answers.
    pub(crate) wrong: u64,
    /// Operations that ended with the connection.
    pub(crate) lost: u64,
    /// Operations that were due and never sent, because no connection was free in time.
    pub(crate) unsent: u64,
    /// The first wrong answer, in words.
    pub(crate) fault: Option<String>,
    /// From the start to the last answer.
    pub(crate) elapsed: Duration,
    /// Latencies of the right answers to reads.
    pub(crate) reads: Histogram,
    /// Latencies of the right answers to writes.
    pub(crate) writes: Histogram,
    /// Whether the script had nothing left to ask.
    pub(crate) exhausted: bool,
}

impl Tally {
    /// Complete operations per second.
    pub(crate) fn rate(&self) -> f64 {
        self.operations as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// Latencies of reads and writes together.
    pub(crate) fn latency(&self) -> Histogram {
        let mut all = self.reads.clone();
        all.add(&self.writes);
        all
    }

    /// Everything that should not happen on a server that is not overloaded.
    pub(crate) fn errors(&self) -> u64 {
        self.refused + self.wrong + self.lost + self.unsent
    }

    /// Adds the counts of a later run.
    pub(crate) fn add(&mut self, other: &Self) {
        self.operations += other.operations;
        self.refused += other.refused;
        self.wrong += other.wrong;
        self.lost += other.lost;
        self.unsent += other.unsent;
        self.fault = self.fault.take().or_else(|| other.fault.clone());
        self.elapsed += other.elapsed;
        self.reads.add(&other.reads);
        self.writes.add(&other.writes);
        self.exhausted |= other.exhausted;
    }
}

#[derive(Debug)]
struct Line {
    connection: Connection,
    /// When the operation under way began; nothing if there is none.
    began: Option<Instant>,
    /// Whether the socket is watched for room to write.
    writing: bool,
}

/// Connections to one server.
#[derive(Debug)]
pub(crate) struct Driver {
    to: SocketAddrV4,
    from: Option<Ipv4Addr>,
    requests: Requests,
    epoll: OwnedFd,
    lines: Vec<Line>,
    idle: Vec<usize>,
    busy: usize,
}

impl Driver {
    /// Opens the connections.
    pub(crate) fn open(to: SocketAddrV4, connections: usize) -> io::Result<Self> {
        Self::open_from(to, None, connections)
    }

    /// Opens the connections from a given address of this machine.
    pub(crate) fn open_from(
        to: SocketAddrV4,
        from: Option<Ipv4Addr>,
        connections: usize,
    ) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let requests = Requests::new(to);
        let (lines, idle) = (Vec::with_capacity(connections), Vec::with_capacity(connections));
        let mut driver = Self { to, from, requests, epoll, lines, idle, busy: 0 };
        for slot in 0..connections {
            let line = driver.connect(slot)?;
            driver.lines.push(line);
            driver.idle.push(slot);
        }
        Ok(driver)
    }

    fn connect(&self, slot: usize) -> io::Result<Line> {
        let connection = Connection::open(self.to, self.from)?;
        let data = epoll::EventData::new_u64(slot as u64);
        epoll::add(&self.epoll, &connection, data, epoll::EventFlags::IN)?;
        Ok(Line { connection, began: None, writing: false })
    }

    /// Asks for the given time, then waits for the answers that are missing.
    ///
    /// Fails only if the server cannot be reached or stops answering; wrong answers are counted.
    pub(crate) fn run(
        &mut self,
        script: &mut impl Script,
        length: Duration,
        pace: Pace,
    ) -> io::Result<Tally> {
        self.run_since(Instant::now(), script, length, pace)
    }

    /// The same with a schedule that has begun at some time: of runs that follow each other, none forgives what was
    /// due while the one before waited for its last answers.
    pub(crate) fn run_since(
        &mut self,
        start: Instant,
        script: &mut impl Script,
        length: Duration,
        pace: Pace,
    ) -> io::Result<Tally> {
        let mut tally = Tally::default();
        let end = start + length;
        let interval = match pace {
            Pace::Closed => Duration::ZERO,
            Pace::Rate(rate) => Duration::from_secs_f64(1.0 / rate),
        };
        // What was due is sent even after the end, but not for ever.
        let late = if pace == Pace::Closed { end } else { end + length.max(PATIENCE) };
        let mut due = start;
        let mut last = start;
        let mut events = Vec::with_capacity(self.lines.len().max(1));
        loop {
            let now = Instant::now();
            self.requests.refresh();
            while !tally.exhausted && due <= now && due < end && now < late {
                let Some(slot) = self.idle.pop() else { break };
                let began = if pace == Pace::Closed { now } else { due };
                self.begin(slot, began, script, &mut tally)?;
                due += interval;
            }
            let over = tally.exhausted || late <= now || (end <= now && end <= due);
            if over && self.busy == 0 {
                break;
            }
            if late + GRACE < now {
                return Err(io::Error::other("the server has stopped answering"));
            }
            let nap = if over || self.idle.is_empty() || pace == Pace::Closed {
                NAP
            } else {
                due.saturating_duration_since(now).min(NAP)
            };
            self.wait(&mut events, nap)?;
            for event in &events {
                let (data, flags) = (event.data, event.flags);
                let slot = usize::try_from(data.u64()).unwrap_or(usize::MAX);
                if flags.contains(epoll::EventFlags::OUT) {
                    self.send(slot)?;
                }
                if self.receive(slot, script, &mut tally)? {
                    last = Instant::now();
                    let goes_on = pace == Pace::Closed && !tally.exhausted && last < end;
                    if goes_on && let Some(slot) = self.idle.pop() {
                        self.begin(slot, last, script, &mut tally)?;
                    }
                }
            }
        }
        if let Pace::Rate(rate) = pace
            && !tally.exhausted
        {
            tally.unsent += (end.saturating_duration_since(due).as_secs_f64() * rate) as u64;
        }
        tally.elapsed = last.saturating_duration_since(start);
        Ok(tally)
    }

    fn wait(&self, events: &mut Vec<epoll::Event>, nap: Duration) -> io::Result<()> {
        let nap = Timespec {
            tv_sec: nap.as_secs().cast_signed(),
            tv_nsec: i64::from(nap.subsec_nanos()),
        };
        events.clear();
        let room = rustix::buffer::spare_capacity(events);
        match epoll::wait(&self.epoll, room, Some(&nap)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(fault) => Err(fault.into()),
        }
    }

    /// Starts an operation on an idle connection, which is no longer in the list of those.
    fn begin(
        &mut self,
        slot: usize,
        began: Instant,
        script: &mut impl Script,
        tally: &mut Tally,
    ) -> io::Result<()> {
        let line = &mut self.lines[slot];
        line.connection.prepare();
        if !script.ask(slot, true, &mut self.requests, &mut line.connection.out) {
            tally.exhausted = true;
            self.idle.push(slot);
            return Ok(());
        }
        line.began = Some(began);
        self.busy += 1;
        self.send(slot)
    }

    /// Sends what can be sent, and watches the socket for room if that was not all. Of a connection that has
    /// failed the next read tells.
    fn send(&mut self, slot: usize) -> io::Result<()> {
        let line = &mut self.lines[slot];
        let Ok(sent) = line.connection.send() else { return Ok(()) };
        if line.writing == sent {
            line.writing = !sent;
            let mut flags = epoll::EventFlags::IN;
            flags.set(epoll::EventFlags::OUT, line.writing);
            let data = epoll::EventData::new_u64(slot as u64);
            epoll::modify(&self.epoll, &line.connection, data, flags)?;
        }
        Ok(())
    }

    /// Reads from a connection. True if an operation has ended, and the connection is in the list of idle ones.
    fn receive(
        &mut self,
        slot: usize,
        script: &mut impl Script,
        tally: &mut Tally,
    ) -> io::Result<bool> {
        let line = &mut self.lines[slot];
        let began = line.began;
        match (line.connection.receive(), began) {
            (Progress::Waiting, _) => Ok(false),
            (Progress::Answered, Some(began)) => {
                let answer = line.connection.reader.answer();
                let answer = answer.expect("the reader said that the answer is whole");
                let close = answer.close;
                let verdict = script.judge(slot, &answer);
                if close {
                    self.lines[slot] = self.connect(slot)?;
                }
                if verdict == Verdict::More {
                    let line = &mut self.lines[slot];
                    line.began = Some(began);
                    line.connection.prepare();
                    let out = &mut line.connection.out;
                    if script.ask(slot, false, &mut self.requests, out) {
                        self.send(slot)?;
                        return Ok(false);
                    }
                }
                match verdict {
                    Verdict::Done | Verdict::More => {
                        tally.operations += 1;
                        let write = script.writes(slot);
                        let latency = if write { &mut tally.writes } else { &mut tally.reads };
                        latency.record(began.elapsed());
                    }
                    Verdict::Refused => tally.refused += 1,
                    Verdict::Wrong(words) => {
                        tally.wrong += 1;
                        tally.fault.get_or_insert(words);
                    }
                }
                self.release(slot);
                Ok(true)
            }
            // Bytes that nobody asked for, or the end of the connection.
            (Progress::Answered | Progress::Lost, began) => {
                self.lines[slot] = self.connect(slot)?;
                if began.is_some() {
                    tally.lost += 1;
                    tally.fault.get_or_insert_with(|| "the connection was lost".to_owned());
                    self.release(slot);
                }
                Ok(began.is_some())
            }
        }
    }

    fn release(&mut self, slot: usize) {
        self.lines[slot].began = None;
        self.idle.push(slot);
        self.busy -= 1;
    }
}
