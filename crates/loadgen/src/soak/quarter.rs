//! Whether the last quarter of a long run is like the second. The first is left out: caches fill.

use crate::aims::{Bound, Report};
use crate::drive::Tally;
use crate::histogram::Histogram;
use crate::host;
use std::time::Duration;

/// What was seen in one stretch of time.
#[derive(Clone, Debug)]
pub(super) struct Interval {
    pub(super) tally: Tally,
    /// How long requests were due.
    pub(super) length: Duration,
    /// How much of the processors the host took, in percent.
    pub(super) taken: f64,
    /// Anonymous memory, the most in bytes.
    pub(super) memory: u64,
    /// Length of the write-ahead log, the most in bytes.
    pub(super) wal: u64,
    /// Length of the database, in bytes.
    pub(super) database: u64,
    pub(super) files: u64,
}

impl Interval {
    /// Operations per second of the time in which they were due.
    pub(super) fn rate(&self) -> f64 {
        self.tally.operations as f64 / self.length.as_secs_f64().max(1e-9)
    }
}

/// Growth that counts as flat: so many times the figure, and so much more.
struct Flat {
    times: f64,
    more: f64,
}

impl Flat {
    const MEMORY: Self = Self { times: 1.1, more: 16.0 };
    const WAL: Self = Self { times: 1.25, more: 8.0 };
    const DATABASE: Self = Self { times: 1.1, more: 16.0 };
    const FILES: Self = Self { times: 1.0, more: 16.0 };
    const READ_MS: Self = Self { times: 1.5, more: 1.0 };
    const WRITE_MS: Self = Self { times: 1.5, more: 5.0 };

    fn bound(&self, before: f64) -> Bound {
        Bound::AtMost(before * self.times + self.more)
    }
}

/// Compares the quarters, and states the aims of the whole run.
pub(super) fn report(intervals: &[Interval], rate: f64) -> Report {
    let quarter = intervals.len() / 4;
    let second = &intervals[quarter..2 * quarter];
    let last = &intervals[intervals.len() - quarter..];
    let mut report = Report::default();
    let mut compare = |what: &str, unit, flat: &Flat, figure: &dyn Fn(&[Interval]) -> f64| {
        let (before, after) = (figure(second), figure(last));
        report.fact(format!("{what}, second quarter"), before, unit);
        report.aim(format!("{what}, last quarter"), after, unit, flat.bound(before));
    };
    let most = |field: fn(&Interval) -> u64, unit: f64| {
        move |part: &[Interval]| part.iter().map(field).max().unwrap_or_default() as f64 / unit
    };
    compare("memory, most", "MB", &Flat::MEMORY, &most(|one| one.memory, 1e6));
    compare("WAL, most", "MB", &Flat::WAL, &most(|one| one.wal, 1e6));
    compare("database, most", "MB", &Flat::DATABASE, &most(|one| one.database, 1e6));
    compare("open files, most", "", &Flat::FILES, &most(|one| one.files, 1.0));
    for (name, share) in [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)] {
        let reads = |part: &[Interval]| quantile(part, |tally| &tally.reads, share);
        compare(&format!("reads {name}"), "ms", &Flat::READ_MS, &reads);
        let writes = |part: &[Interval]| quantile(part, |tally| &tally.writes, share);
        compare(&format!("writes {name}"), "ms", &Flat::WRITE_MS, &writes);
    }
    // What others took explains latencies, and excuses nothing.
    for (name, part) in [("second", second), ("last", last)] {
        let taken = part.iter().map(|one| one.taken).sum::<f64>() / part.len().max(1) as f64;
        report.fact(format!("processors taken by the host, {name} quarter"), taken, "%");
    }
    host::tell_idle(&mut report);
    let sum = |field: fn(&Interval) -> f64| intervals.iter().map(field).sum::<f64>();
    report.fact("operations", sum(|one| one.tally.operations as f64), "");
    let mean = sum(Interval::rate) / intervals.len().max(1) as f64;
    report.aim("rate", mean, "/s", Bound::AtLeast(0.99 * rate));
    report.aim("errors", sum(|one| one.tally.errors() as f64), "", Bound::AtMost(0.0));
    report
}

/// A quantile over several intervals, in milliseconds.
fn quantile(part: &[Interval], of: fn(&Tally) -> &Histogram, share: f64) -> f64 {
    let mut all = Histogram::default();
    for interval in part {
        all.add(of(&interval.tally));
    }
    all.quantile(share).as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    fn intervals(memory: impl Fn(u64) -> u64) -> Vec<Interval> {
        let interval = |index| {
            let mut tally = Tally { operations: 100, ..Tally::default() };
            tally.reads.record(Duration::from_millis(1));
            tally.writes.record(Duration::from_millis(3));
            let length = Duration::from_secs(1);
            let (taken, memory) = (0.0, memory(index));
            Interval { tally, length, taken, memory, wal: 4, database: 9, files: 30 }
        };
        (0..16).map(interval).collect()
    }

    fn verdict(intervals: &[Interval]) -> Result<(), String> {
        let directory = tempfile::tempdir().unwrap();
        let report = report(intervals, 100.0);
        report.conclude(&directory.path().join("soak.json")).map_err(|fault| fault.to_string())
    }

    #[test]
    fn what_grows_is_noticed_and_a_first_rise_is_forgiven() {
        let flat = intervals(|index| if index < 4 { 1 } else { 200_000_000 });
        verdict(&flat).unwrap();
        let growing = intervals(|index| index * 20_000_000);
        assert!(verdict(&growing).unwrap_err().starts_with("1 of "));
        let mut slow = flat.clone();
        for interval in &mut slow[12..] {
            interval.tally.writes.record(Duration::from_secs(1));
        }
        assert!(verdict(&slow).unwrap_err().starts_with("2 of "));
        let mut wrong = flat;
        wrong[0].tally.wrong = 1;
        assert!(verdict(&wrong).unwrap_err().starts_with("1 of "));
    }
}
