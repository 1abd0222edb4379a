//! One measurement: a workload on a server for a while, with what it cost.

use crate::drive::{Driver, Pace, Script, Tally};
use crate::process;
use crate::quartiles::Quartiles;
use std::io;
use std::net::SocketAddrV4;
use std::time::{Duration, Instant};

/// A server that spends less than this in [`LOOK`] has nothing left to do.
const QUIET: Duration = Duration::from_millis(30);
const LOOK: Duration = Duration::from_secs(1);
/// How long it may be busy with what came before.
const SETTLES_WITHIN: Duration = Duration::from_mins(2);

/// What is measured, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) address: SocketAddrV4,
    /// The server's process, if its CPU time is to be known.
    pub(crate) pid: Option<u32>,
    /// The process of the database below it, if there is one.
    pub(crate) database: Option<u32>,
    pub(crate) connections: usize,
    /// Time before the measurement that does not count.
    pub(crate) warm_up: Duration,
    pub(crate) length: Duration,
    pub(crate) pace: Pace,
}

/// CPU time that was spent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spent {
    pub(crate) server: Duration,
    pub(crate) database: Duration,
    pub(crate) client: Duration,
}

impl Spent {
    /// Since their start, by a server, a database and this process.
    pub(crate) fn so_far(server: Option<u32>, database: Option<u32>) -> Self {
        let of = |pid: Option<u32>| pid.map_or(Duration::ZERO, process::cpu);
        Self { server: of(server), database: of(database), client: process::own_cpu() }
    }

    /// Between two such times.
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            server: self.server.saturating_sub(before.server),
            database: self.database.saturating_sub(before.database),
            client: self.client.saturating_sub(before.client),
        }
    }
}

/// Waits until a server, and the database below it, have nothing left to do of what came before.
pub(crate) fn settle(server: u32, database: Option<u32>) {
    let spent = || Spent::so_far(Some(server), database);
    let began = Instant::now();
    while began.elapsed() < SETTLES_WITHIN {
        let before = spent();
        std::thread::sleep(LOOK);
        let since = spent().since(before);
        if since.server + since.database < QUIET {
            return;
        }
    }
    eprintln!("the server is still busy; its CPU time will count against what follows");
}

/// What came of it, in the units of reports.
#[derive(Clone, Debug, serde::Serialize)]
pub(crate) struct Sample {
    /// Operations per second.
    pub(crate) rate: f64,
    /// CPU time of the server for an operation, in microseconds.
    pub(crate) server_cpu_us: f64,
    /// CPU time of all processes of the database for an operation, in microseconds.
    pub(crate) database_cpu_us: f64,
    /// CPU time of the client for an operation, in microseconds.
    pub(crate) client_cpu_us: f64,
    /// Latencies in milliseconds.
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) p999_ms: f64,
    pub(crate) max_ms: f64,
    pub(crate) operations: u64,
    pub(crate) errors: u64,
    /// The first error, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fault: Option<String>,
}

/// Runs a script for a while.
pub(crate) fn measure(terms: &Terms, script: &mut impl Script) -> io::Result<(Tally, Sample)> {
    let mut driver = Driver::open(terms.address, terms.connections)?;
    let spent = || Spent::so_far(terms.pid, terms.database);
    let times = (terms.warm_up, terms.length);
    weigh(times, spent, |length| driver.run(script, length, terms.pace))
}

/// The same without a server: whatever runs sends statements to a database.
pub(crate) fn measure_direct(
    database: u32,
    times: (Duration, Duration),
    run: impl FnMut(Duration) -> io::Result<Tally>,
) -> io::Result<Sample> {
    let spent = || Spent::so_far(None, Some(database));
    weigh(times, spent, run).map(|(_, sample)| sample)
}

/// Runs something for a while that does not count, and then for as long as it is measured.
fn weigh(
    (warm_up, length): (Duration, Duration),
    spent: impl Fn() -> Spent,
    mut run: impl FnMut(Duration) -> io::Result<Tally>,
) -> io::Result<(Tally, Sample)> {
    let mut before = Tally::default();
    if warm_up > Duration::ZERO {
        before = run(warm_up)?;
    }
    let start = spent();
    let tally = run(length)?;
    let mut sample = Sample::new(&tally, spent().since(start));
    // A wrong answer is wrong before the measurement too.
    sample.errors += before.errors();
    sample.fault = before.fault.or(sample.fault);
    Ok((tally, sample))
}

impl Sample {
    pub(crate) fn new(tally: &Tally, spent: Spent) -> Self {
        let each = |cpu: Duration| cpu.as_secs_f64() * 1e6 / tally.operations.max(1) as f64;
        let latency = tally.latency();
        let quantile = |share| latency.quantile(share).as_secs_f64() * 1e3;
        Self {
            rate: tally.rate(),
            server_cpu_us: each(spent.server),
            database_cpu_us: each(spent.database),
            client_cpu_us: each(spent.client),
            p50_ms: quantile(0.5),
            p99_ms: quantile(0.99),
            p999_ms: quantile(0.999),
            max_ms: latency.largest().as_secs_f64() * 1e3,
            operations: tally.operations,
            errors: tally.errors(),
            fault: tally.fault.clone(),
        }
    }

    /// The median of each figure over several samples, of which there is at least one. Errors add up.
    pub(crate) fn median(samples: &[Self]) -> Self {
        let of = |figure: fn(&Self) -> f64| Quartiles::of(samples.iter().map(figure)).median;
        Self {
            rate: of(|sample| sample.rate),
            server_cpu_us: of(|sample| sample.server_cpu_us),
            database_cpu_us: of(|sample| sample.database_cpu_us),
            client_cpu_us: of(|sample| sample.client_cpu_us),
            p50_ms: of(|sample| sample.p50_ms),
            p99_ms: of(|sample| sample.p99_ms),
            p999_ms: of(|sample| sample.p999_ms),
            max_ms: of(|sample| sample.max_ms),
            operations: samples.iter().map(|sample| sample.operations).sum(),
            errors: samples.iter().map(|sample| sample.errors).sum(),
            fault: samples.iter().find_map(|sample| sample.fault.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        let sample = |rate| {
            let tally =
                Tally { operations: rate, elapsed: Duration::from_secs(1), ..Tally::default() };
            Sample::new(&tally, Spent::default())
        };
        let median = Sample::median(&[sample(10), sample(1000), sample(20)]);
        assert!((median.rate - 20.0).abs() < 1e-6);
        assert_eq!(median.operations, 1030);
        let median = Sample::median(&[sample(10), sample(20)]);
        assert!((median.rate - 15.0).abs() < 1e-6);
    }
}
