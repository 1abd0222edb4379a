//! Requests at a fixed rate, told apart by what the host of the machine took meanwhile.
//!
//! A virtual machine may lose its processors to others on the same host, and then no server keeps to a schedule. So
//! the schedule is kept piece by piece, and beside what came of all pieces stands what came of the calm ones, during
//! which the host took next to nothing.

use crate::aims::Report;
use crate::drive::{Driver, Pace, Script, Tally};
use crate::host::Taken;
use crate::measure::{Sample, Spent};
use std::io;
use std::net::SocketAddrV4;
use std::time::{Duration, Instant};

/// A piece is calm if the host took less than this share of the processors, in percent, and so is the piece before, whose
/// delays it would have to make good.
const CALM: f64 = 2.0;

/// Requests that are due at fixed times, whatever the answers do.
#[derive(Debug)]
pub(crate) struct Schedule {
    driver: Driver,
    rate: f64,
    /// When the next piece begins.
    next: Instant,
    was_calm: bool,
    kept: Steady,
}

/// What came of asking on a schedule.
#[derive(Debug)]
pub(crate) struct Steady {
    pub(crate) all: Tally,
    /// The part during which the machine had its processors.
    calm: Tally,
    /// The largest share of the processors that the host took in one piece, in percent.
    most_taken: f64,
    /// The largest share of the processors that was in use in one piece, in percent.
    most_used: f64,
    piece: Duration,
}

impl Schedule {
    /// Begins one of so many operations a second, in pieces of a length.
    pub(crate) fn begin(
        address: SocketAddrV4,
        connections: usize,
        rate: f64,
        piece: Duration,
    ) -> io::Result<Self> {
        let driver = Driver::open(address, connections)?;
        let (all, calm) = (Tally::default(), Tally::default());
        let kept = Steady { all, calm, most_taken: 0.0, most_used: 0.0, piece };
        Ok(Self { driver, rate, next: Instant::now(), was_calm: true, kept })
    }

    /// Asks for the length of a piece.
    fn piece(&mut self, script: &mut impl Script) -> io::Result<()> {
        let (taken, length) = (Taken::now(), self.kept.piece);
        let tally = self.driver.run_since(self.next, script, length, Pace::Rate(self.rate))?;
        let (share, used) = taken.percents_since();
        self.next += length;
        self.kept.all.add(&tally);
        self.kept.most_taken = self.kept.most_taken.max(share);
        self.kept.most_used = self.kept.most_used.max(used);
        if share < CALM && self.was_calm {
            self.kept.calm.add(&tally);
        }
        self.was_calm = share < CALM;
        Ok(())
    }

    /// Asks for as many pieces as it takes until something is over, and for one at least.
    pub(crate) fn until(
        mut self,
        script: &mut impl Script,
        mut is_over: impl FnMut() -> bool,
    ) -> io::Result<Steady> {
        loop {
            self.piece(script)?;
            if is_over() {
                return Ok(self.kept);
            }
        }
    }
}

impl Steady {
    /// Adds what came of a later schedule.
    pub(crate) fn add(&mut self, other: &Self) {
        self.all.add(&other.all);
        self.calm.add(&other.calm);
        self.most_taken = self.most_taken.max(other.most_taken);
        self.most_used = self.most_used.max(other.most_used);
    }

    /// The figures of everything.
    pub(crate) fn sample(&self) -> Sample {
        Sample::new(&self.all, Spent::default())
    }

    /// The figures of the calm part, if there was one.
    pub(crate) fn calm(&self) -> Option<Sample> {
        (self.calm.operations > 0).then(|| Sample::new(&self.calm, Spent::default()))
    }

    /// Tells what the host took, and the latencies while it took next to nothing.
    pub(crate) fn tell(&self, what: &str, report: &mut Report) {
        let mut fact = |words: &str, value, unit| {
            report.fact(format!("{what} {words}"), value, unit);
        };
        let piece = self.piece.as_secs_f64();
        fact(&format!("most taken by the host in {piece} s"), self.most_taken, "%");
        fact(&format!("processors in use, most in {piece} s"), self.most_used, "%");
        let share = self.calm.elapsed.as_secs_f64() / self.all.elapsed.as_secs_f64().max(1e-9);
        fact("calm time", 100.0 * share, "%");
        if let Some(calm) = self.calm() {
            fact("p99 while calm", calm.p99_ms, "ms");
            fact("p99.9 while calm", calm.p999_ms, "ms");
            fact("max while calm", calm.max_ms, "ms");
        }
    }
}
