//! `loadgen pair`: two builds of the server in turn, so that a difference of a few percent can be shown.
//!
//! Absolute figures of one build differ by several percent between two runs on the same machine. The ratio of two
//! measurements that follow each other directly differs less. For every workload, each round measures both builds
//! and yields one ratio. The order changes every round, so a machine that becomes faster or slower does not favour a
//! build. The median of the ratios is the result. Quartiles that lie too far apart make it NOT VERIFIED.

use super::compare::Contestant;
use crate::drive::Pace;
use crate::host::Taken;
use crate::measure::Sample;
use crate::quartiles::{Quartiles, ROUNDING};
use crate::text::{Table, figure};
use crate::workload::Workload;
use crate::{Failure, Places, SERVER, WORK};
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

/// A reported ratio is verified if its quartiles are at most this far apart.
const SPREAD_MAX: f64 = 0.04;

/// Compare two builds of the server in alternating rounds.
#[derive(Debug, clap::Args)]
pub(crate) struct Pair {
    /// The build to compare with.
    #[arg(long, value_name = "FILE")]
    old: PathBuf,

    /// The build that is compared with it.
    #[arg(long, value_name = "FILE", default_value = SERVER)]
    new: PathBuf,

    /// Rounds for each workload; each measures both builds once.
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,

    /// Seconds for each measurement.
    #[arg(short, long, value_name = "S", default_value_t = 5.0)]
    seconds: f64,

    /// Seconds before each measurement that do not count.
    #[arg(long, value_name = "S", default_value_t = 0.5)]
    warm_up: f64,

    /// Connections.
    #[arg(short, long, value_name = "N", default_value_t = super::MANY)]
    connections: usize,

    /// Entities in the table that is read and changed.
    #[arg(short, long, value_name = "N", default_value_t = 10_000)]
    entities: u64,

    /// Fail if the median CPU ratio of a workload exceeds this, or is NOT VERIFIED.
    #[arg(long, value_name = "RATIO")]
    at_most: Option<f64>,

    /// Workloads. Default: point, insert, batch100 and range100.
    #[arg(value_enum)]
    workloads: Vec<Workload>,

    /// Directory for data and results; must be on the disk that is to be measured.
    #[arg(long, value_name = "DIR", default_value = WORK)]
    work: PathBuf,

    /// Further arguments of both servers.
    #[arg(last = true)]
    arguments: Vec<String>,
}

/// The measurements of one workload, in the order of the rounds.
#[derive(Debug, serde::Serialize)]
struct Rounds {
    workload: Workload,
    old: Vec<Sample>,
    new: Vec<Sample>,
}

/// A reported ratio NEW/OLD.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
struct Ratio(Quartiles);

impl Ratio {
    fn is_verified(self) -> bool {
        // A spread that is not a number is not verified either.
        self.0.spread() <= SPREAD_MAX + ROUNDING
    }

    /// Why the ratio does not keep to the bound; nothing if it does.
    fn failure(self, at_most: f64) -> Option<String> {
        if !self.is_verified() {
            return Some("NOT VERIFIED".to_owned());
        }
        let median = self.0.median;
        (median > at_most + ROUNDING).then(|| format!("{median:.3}"))
    }

    fn cells(self) -> Vec<String> {
        let Quartiles { q1, median, q3 } = self.0;
        let mut cells: Vec<_> =
            [median, q1, q3].iter().map(|ratio| format!("{ratio:.3}")).collect();
        cells.push(if self.is_verified() { "verified" } else { "NOT VERIFIED" }.to_owned());
        cells
    }
}

impl Rounds {
    /// The ratios of a figure, one for each round.
    fn ratio(&self, figure: fn(&Sample) -> f64) -> Ratio {
        let rounds = self.old.iter().zip(&self.new);
        Ratio(Quartiles::of(rounds.map(|(old, new)| figure(new) / figure(old))))
    }

    fn cpu(&self) -> Ratio {
        self.ratio(|sample| sample.server_cpu_us)
    }

    fn rate(&self) -> Ratio {
        self.ratio(|sample| sample.rate)
    }

    fn push_rows(&self, table: &mut Table) {
        let [old, new] = [&self.old, &self.new].map(|samples| Sample::median(samples));
        for (what, ratio, old, new) in [
            ("CPU us/op", self.cpu(), old.server_cpu_us, new.server_cpu_us),
            ("ops/s", self.rate(), old.rate, new.rate),
        ] {
            let mut row =
                vec![self.workload.to_string(), what.to_owned(), figure(old), figure(new)];
            row.extend(ratio.cells());
            table.push(row);
        }
    }
}

impl Pair {
    pub(crate) fn run(self) -> Result<(), Failure> {
        self.compare().map_err(|fault| fault.to_string())
    }

    fn compare(&self) -> io::Result<()> {
        let standard = [Workload::Point, Workload::Insert, Workload::Batch100, Workload::Range100];
        let workloads = if self.workloads.is_empty() { &standard[..] } else { &self.workloads };
        let taken = Taken::now();
        let all: Vec<Rounds> = workloads
            .iter()
            .map(|&workload| self.alternate(workload))
            .collect::<io::Result<_>>()?;
        let results = self.places(&self.new).result("pair");
        fs::write(&results, serde_json::to_string_pretty(&all)? + "\n")?;
        print!("{}", table(&all).plain());
        println!("written: {}", results.display());
        let (host, used) = taken.percents_since();
        println!("processors: {used:.0} % in use, {host:.0} % taken by the host");
        println!("{}", self.summary(&all));
        self.check(&all)
    }

    fn places(&self, server: &Path) -> Places {
        Places { server: server.to_owned(), work: self.work.clone() }
    }

    /// Measures one workload on fresh servers, so that no workload depends on the data of another.
    fn alternate(&self, workload: Workload) -> io::Result<Rounds> {
        let prepare = |server| {
            let places = self.places(server);
            Contestant::prepare(places.rowhouse(&self.arguments), places.runs(), self.entities)
        };
        let mut builds = [prepare(&self.old)?, prepare(&self.new)?];
        let mut rounds = Rounds { workload, old: Vec::new(), new: Vec::new() };
        for round in 0..self.rounds {
            let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
            for build in order {
                let sample = self.measure(&mut builds[build], workload)?;
                [&mut rounds.old, &mut rounds.new][build].push(sample);
            }
            let (old, new) = (&rounds.old[round as usize], &rounds.new[round as usize]);
            eprintln!(
                "{workload:11} round {:>2} of {}  NEW/OLD  CPU {:.3}  rate {:.3}",
                round + 1,
                self.rounds,
                new.server_cpu_us / old.server_cpu_us,
                new.rate / old.rate,
            );
        }
        Ok(rounds)
    }

    fn measure(&self, build: &mut Contestant, workload: Workload) -> io::Result<Sample> {
        let times = [self.warm_up, self.seconds].map(Duration::from_secs_f64);
        let sample = build.measure(workload, self.connections, times.into(), Pace::Closed)?;
        if sample.errors == 0 {
            return Ok(sample);
        }
        let words = sample.fault.as_deref().unwrap_or("the server refused requests");
        Err(io::Error::other(format!("{workload}: {} wrong answers: {words}", sample.errors)))
    }

    fn summary(&self, all: &[Rounds]) -> String {
        let cpu: Vec<String> = all
            .iter()
            .map(|rounds| {
                let doubt = if rounds.cpu().is_verified() { "" } else { " NOT VERIFIED" };
                format!("{} {:.3}{doubt}", rounds.workload, rounds.cpu().0.median)
            })
            .collect();
        let (rounds, seconds) = (self.rounds, self.seconds);
        format!("CPU NEW/OLD, {rounds} rounds of {seconds} s each: {}", cpu.join(", "))
    }

    fn check(&self, all: &[Rounds]) -> io::Result<()> {
        let Some(at_most) = self.at_most else { return Ok(()) };
        let failures: Vec<String> = all
            .iter()
            .filter_map(|rounds| {
                let why = rounds.cpu().failure(at_most)?;
                Some(format!("{} {why}", rounds.workload))
            })
            .collect();
        if failures.is_empty() {
            return Ok(());
        }
        let failures = failures.join(", ");
        Err(io::Error::other(format!(
            "CPU NEW/OLD is not shown to be at most {at_most}: {failures}"
        )))
    }
}

fn table(all: &[Rounds]) -> Table {
    let heading = ["workload", "measure", "OLD", "NEW", "NEW/OLD", "q1", "q3", "verdict"];
    let mut table = Table::new(&heading).with_words(&[1, 7]);
    for rounds in all {
        rounds.push_rows(&mut table);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ratio(q1: f64, median: f64, q3: f64) -> Ratio {
        Ratio(Quartiles { q1, median, q3 })
    }

    /// Rounds with these CPU times of the old and the new build.
    fn rounds(cpu: &[(f64, f64)]) -> Rounds {
        let sample = |cpu: f64| Sample {
            server_cpu_us: cpu,
            rate: 1e6 / cpu,
            ..Sample::new(&crate::drive::Tally::default(), crate::measure::Spent::default())
        };
        Rounds {
            workload: Workload::Point,
            old: cpu.iter().map(|(old, _)| sample(*old)).collect(),
            new: cpu.iter().map(|(_, new)| sample(*new)).collect(),
        }
    }

    #[test]
    fn quartiles_four_percent_apart_are_the_limit() {
        for (q1, q3, verified) in [
            (1.0, 1.0, true),
            (0.98, 1.02, true),
            (1.00, 1.04, true),
            (0.98, 1.0201, false),
            (0.9, 1.1, false),
            (f64::NAN, 1.0, false),
            (f64::INFINITY, f64::INFINITY, false),
        ] {
            assert_eq!(ratio(q1, 1.0, q3).is_verified(), verified, "{q1} to {q3}");
        }
    }

    #[test]
    fn a_bound_holds_only_for_a_verified_ratio() {
        for (median, spread, why) in [
            (1.02, 0.0, None),
            (0.5, 0.04, None),
            (1.0201, 0.0, Some("1.020")),
            (1.5, 0.01, Some("1.500")),
            (1.0, 0.05, Some("NOT VERIFIED")),
            (f64::NAN, f64::NAN, Some("NOT VERIFIED")),
        ] {
            let ratio = ratio(median - spread / 2.0, median, median + spread / 2.0);
            assert_eq!(ratio.failure(1.02).as_deref(), why, "{median} within {spread}");
        }
    }

    /// The medians of the builds are 100 and 101; the ratios of the rounds say 1.10.
    #[test]
    fn ratios_are_of_rounds_and_not_of_medians() {
        let rounds = rounds(&[(50.0, 55.0), (100.0, 110.0), (101.0, 101.0), (90.0, 99.0)]);
        assert!((rounds.cpu().0.median - 1.1).abs() < 1e-9);
        assert!((rounds.rate().0.median - 1.0 / 1.1).abs() < 1e-9);
    }

    #[test]
    fn the_table_is_aligned() {
        let steady = rounds(&[(10.0, 10.1), (20.0, 20.2)]);
        let noisy = rounds(&[(10.0, 10.0), (10.0, 12.0)]);
        assert_eq!(
            table(&[steady, noisy]).plain(),
            "\
workload  measure        OLD     NEW  NEW/OLD     q1     q3  verdict
point     CPU us/op     15.0    15.1    1.010  1.010  1.010  verified
point     ops/s       75,000  74,300    0.990  0.990  0.990  verified
point     CPU us/op     10.0    11.0    1.100  1.050  1.150  NOT VERIFIED
point     ops/s      100,000  91,700    0.917  0.875  0.958  NOT VERIFIED
"
        );
    }
}
