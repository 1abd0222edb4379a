//! Clients that ask at a fixed rate whatever others do, and what they notice.

use crate::drive::{Driver, Pace, Script, Verdict};
use crate::histogram::Histogram;
use crate::measure::{Sample, Spent};
use crate::request::Requests;
use crate::response::Answer;
use crate::text::{count, figure, megabytes};
use crate::workload::Operations;
use std::io;
use std::net::SocketAddrV4;
use std::time::{Duration, Instant};

/// Connections that stay open, as those of an SDK do, and what is asked on them.
pub(crate) struct Steady {
    driver: Driver,
    operations: Operations,
    rate: f64,
    length: Duration,
}

impl Steady {
    pub(crate) fn open(
        address: SocketAddrV4,
        connections: usize,
        operations: Operations,
        rate: f64,
        length: Duration,
    ) -> io::Result<Self> {
        Ok(Self { driver: Driver::open(address, connections)?, operations, rate, length })
    }

    /// Uses every connection for a while, as fast as answers come: all of them have then shown their credentials.
    pub(crate) fn warm_up(&mut self, length: Duration) -> io::Result<()> {
        self.driver.run(&mut self.operations, length, Pace::Closed).map(drop)
    }

    /// Asks for the length of a phase.
    pub(crate) fn run(&mut self) -> io::Result<Noticed> {
        let seconds = (self.length.as_secs() as usize).max(1);
        let mut timed = Timed::new(&mut self.operations, seconds);
        let tally = self.driver.run(&mut timed, self.length, Pace::Rate(self.rate))?;
        Ok(Noticed {
            asked: self.rate,
            served: tally.operations,
            silent: timed.silent(),
            busy: tally.refused,
            failed: tally.wrong + tally.lost + tally.unsent,
            sample: Sample::new(&tally, Spent::default()),
            reads: tally.reads,
            writes: tally.writes,
        })
    }
}

/// What came of the requests of a phase.
pub(crate) struct Noticed {
    /// Requests per second that were due.
    pub(crate) asked: f64,
    /// Requests answered as they should.
    served: u64,
    pub(crate) sample: Sample,
    reads: Histogram,
    writes: Histogram,
    /// Requests answered 503 `ServerBusy`.
    pub(crate) busy: u64,
    /// Requests that failed in any other way, or could not be sent.
    pub(crate) failed: u64,
    /// Seconds in which no request was answered as it should.
    pub(crate) silent: u64,
}

impl Noticed {
    /// Requests answered as they should, sooner or later, in percent of those that were due.
    pub(crate) fn served(&self) -> f64 {
        let due = self.served + self.busy + self.failed;
        100.0 * self.served as f64 / due.max(1) as f64
    }

    /// The 99th percentiles of reads and of writes, in milliseconds.
    pub(crate) fn p99s(&self) -> [f64; 2] {
        [&self.reads, &self.writes].map(|latency| latency.quantile(0.99).as_secs_f64() * 1e3)
    }

    /// The rate of right answers, in percent of that at which requests were due.
    pub(crate) fn share(&self) -> f64 {
        100.0 * self.sample.rate / self.asked
    }

    pub(crate) fn line(&self, phase: &str, memory: u64) -> String {
        let Sample { rate, fault, .. } = &self.sample;
        let fault = fault.as_ref().map(|words| format!("  {words}")).unwrap_or_default();
        format!(
            "{phase}: {} of {}/s  p50/p99/max of reads {} ms, writes {} ms  503 {}  other failures {}  \
             silent seconds {}  memory {}{fault}",
            figure(*rate),
            figure(self.asked),
            latencies(&self.reads),
            latencies(&self.writes),
            count(self.busy),
            count(self.failed),
            self.silent,
            megabytes(memory),
        )
    }
}

/// Median, 99th percentile and maximum, in milliseconds.
fn latencies(latency: &Histogram) -> String {
    let ms = |time: Duration| figure(time.as_secs_f64() * 1e3);
    let [p50, p99] = [0.5, 0.99].map(|share| ms(latency.quantile(share)));
    format!("{p50}/{p99}/{}", ms(latency.largest()))
}

/// Counts the right answers of each second.
struct Timed<'a> {
    operations: &'a mut Operations,
    began: Instant,
    served: Vec<u64>,
}

impl<'a> Timed<'a> {
    fn new(operations: &'a mut Operations, seconds: usize) -> Self {
        Self { operations, began: Instant::now(), served: vec![0; seconds] }
    }

    fn silent(&self) -> u64 {
        self.served.iter().filter(|&&answers| answers == 0).count() as u64
    }
}

impl Script for Timed<'_> {
    fn ask(&mut self, slot: usize, fresh: bool, to: &mut Requests, out: &mut Vec<u8>) -> bool {
        self.operations.ask(slot, fresh, to, out)
    }

    fn judge(&mut self, slot: usize, answer: &Answer<'_>) -> Verdict {
        let verdict = self.operations.judge(slot, answer);
        let second = self.began.elapsed().as_secs() as usize;
        // Late answers come after the last second.
        if verdict == Verdict::Done
            && let Some(answers) = self.served.get_mut(second)
        {
            *answers += 1;
        }
        verdict
    }

    fn writes(&self, slot: usize) -> bool {
        self.operations.writes(slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Workload;

    fn judge(timed: &mut Timed<'_>, status: u16, body: &[u8]) {
        let mut to = Requests::new("127.0.0.1:1".parse().unwrap());
        assert!(timed.ask(0, true, &mut to, &mut Vec::new()));
        timed.judge(0, &Answer { status, body, next: None, head: b"", close: false });
    }

    #[test]
    fn only_right_answers_break_the_silence() {
        let mut operations = Operations::new(Workload::Upsert, false, 1, "");
        let mut timed = Timed::new(&mut operations, 3);
        judge(&mut timed, 503, b"ServerBusy");
        judge(&mut timed, 500, b"");
        assert_eq!(timed.silent(), 3);
        timed.began = Instant::now().checked_sub(Duration::from_secs(1)).unwrap();
        judge(&mut timed, 204, b"");
        assert_eq!((timed.silent(), &timed.served[..]), (2, &[0, 1, 0][..]));
        timed.began = Instant::now().checked_sub(Duration::from_mins(1)).unwrap();
        judge(&mut timed, 204, b"");
        assert_eq!(timed.silent(), 2);
    }
}
