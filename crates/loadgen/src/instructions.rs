//! `loadgen instructions`: how many instructions the server executes for one request.
//!
//! The count hardly depends on the machine, its load or its clock rate, so it shows a difference of one percent that
//! CPU time cannot show. The built server runs under callgrind, a tool of valgrind, with one worker thread. This
//! process is the client: it is not counted. One connection sends one request at a time, so groups of commits and the
//! order of events repeat. Counting starts after the warm-up, so neither the start of the server nor the loading of its
//! data is counted. Writes are sent in bursts, and the checkpoint in the pause after each burst is counted.
//!
//! What the count leaves out: the kernel, waiting for the disk, and misses of caches.

use crate::batch::Change;
use crate::call::create_table;
use crate::drive::{Driver, Pace, Script, Verdict};
use crate::fill::{fill, pieces};
use crate::quartiles::{Quartiles, ROUNDING};
use crate::request::Requests;
use crate::response::Answer;
use crate::server::{Recipe, Server};
use crate::text::Table;
use crate::workload::{DATA, Operations, Workload};
use crate::{Failure, Places, SERVER, WORK};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use std::{fs, io};

/// What is counted, in the order of the report. Reads come first, so that they find the same data each time.
const OPERATIONS: [Workload; 4] =
    [Workload::Point, Workload::Range100, Workload::Insert, Workload::Batch100];
/// Counts of one build that differ by more than this share are reported as not repeatable.
const SPREAD_MAX: f64 = 0.01;
/// Parts in which the requests are sent, with a pause after each if they write.
const BURSTS: u64 = 5;
/// How long the server has no requests, so that it copies its WAL to the database and starts it again. Without pauses
/// the time of that is chance. What a commit costs depends on it: the index of a longer WAL has more collisions.
const PAUSE: Duration = Duration::from_secs(2);
/// Connections that load the data.
const LOADERS: usize = 4;
/// How long the requests of one count may take.
const WITHIN: Duration = Duration::from_mins(10);

/// Count the instructions that the server executes for a request, with valgrind.
#[derive(Debug, clap::Args)]
pub(crate) struct Instructions {
    /// The build to count.
    #[arg(long, value_name = "FILE", default_value = SERVER)]
    new: PathBuf,

    /// A build to compare with.
    #[arg(long, value_name = "FILE")]
    old: Option<PathBuf>,

    /// Requests of each kind that are counted; a tenth of it for operations on 100 entities.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    requests: u64,

    /// Requests of each kind before those; a tenth of it for operations on 100 entities.
    #[arg(long, value_name = "N", default_value_t = 200)]
    warm_up: u64,

    /// Counts of each build, each with a newly started server.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    repeats: u32,

    /// Entities in the table that is read.
    #[arg(short, long, value_name = "N", default_value_t = 10_000)]
    entities: u64,

    /// Fail if the ratio NEW/OLD of an operation exceeds this, or is not repeatable.
    #[arg(long, value_name = "RATIO", requires = "old")]
    at_most: Option<f64>,

    /// Directory for data.
    #[arg(long, value_name = "DIR", default_value = WORK)]
    work: PathBuf,

    /// Further arguments of the server.
    #[arg(last = true)]
    arguments: Vec<String>,
}

/// Instructions per request of one operation, from several counts.
#[derive(Clone, Debug, Default)]
struct Counts(Vec<f64>);

impl Counts {
    fn median(&self) -> f64 {
        Quartiles::of(self.0.iter().copied()).median
    }

    /// How far the highest count is above the lowest, as a share of the lowest.
    fn spread(&self) -> f64 {
        let most = self.0.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let least = self.0.iter().copied().fold(f64::INFINITY, f64::min);
        most / least - 1.0
    }

    fn is_repeatable(&self) -> bool {
        self.spread() <= SPREAD_MAX + ROUNDING
    }

    fn cells(&self) -> [String; 2] {
        [format!("{:.1}", self.median() / 1e3), format!("{:.2} %", 100.0 * self.spread())]
    }
}

/// One operation of both builds.
#[derive(Debug)]
struct Line {
    operation: Workload,
    new: Counts,
    old: Option<Counts>,
}

impl Line {
    fn ratio(&self) -> Option<f64> {
        self.old.as_ref().map(|old| self.new.median() / old.median())
    }

    fn is_repeatable(&self) -> bool {
        self.new.is_repeatable() && self.old.as_ref().is_none_or(Counts::is_repeatable)
    }

    /// Why the ratio does not keep to the bound; nothing if it does.
    fn failure(&self, at_most: f64) -> Option<String> {
        let ratio = self.ratio()?;
        if !self.is_repeatable() {
            return Some(format!("{} NOT REPEATABLE", self.operation));
        }
        (ratio > at_most + ROUNDING).then(|| format!("{} {ratio:.4}", self.operation))
    }
}

impl Instructions {
    pub(crate) fn run(self) -> Result<(), Failure> {
        self.compare().map_err(|fault| fault.to_string())
    }

    fn compare(&self) -> io::Result<()> {
        let mut lines: Vec<Line> = OPERATIONS
            .iter()
            .map(|&operation| Line {
                operation,
                new: Counts::default(),
                old: self.old.as_ref().map(|_| Counts::default()),
            })
            .collect();
        for repeat in 1..=self.repeats {
            for (name, build) in [("OLD", self.old.as_ref()), ("NEW", Some(&self.new))] {
                let Some(build) = build else { continue };
                eprintln!("counting {name}, {repeat} of {} ...", self.repeats);
                for (line, count) in lines.iter_mut().zip(self.count(build)?) {
                    let counts =
                        if name == "OLD" { line.old.as_mut() } else { Some(&mut line.new) };
                    counts.expect("only a build that was named is counted").0.push(count);
                }
            }
        }
        print!("{}", table(&lines).plain());
        println!("{}", self.summary(&lines));
        let failures: Vec<String> = self.at_most.map_or_else(Vec::new, |at_most| {
            lines.iter().filter_map(|line| line.failure(at_most)).collect()
        });
        if failures.is_empty() {
            return Ok(());
        }
        let (at_most, failures) = (self.at_most.unwrap_or_default(), failures.join(", "));
        Err(io::Error::other(format!("NEW/OLD is not shown to be at most {at_most}: {failures}")))
    }

    fn summary(&self, lines: &[Line]) -> String {
        let name = |line: &Line| line.operation.to_string();
        let varying: Vec<String> =
            lines.iter().filter(|line| !line.is_repeatable()).map(name).collect();
        let (repeats, most) = (self.repeats, 100.0 * SPREAD_MAX);
        let verdict = if repeats < 2 {
            "not repeated, so the spread is unknown".to_owned()
        } else if varying.is_empty() {
            format!("all within {most:.0} %")
        } else {
            format!("NOT REPEATABLE within {most:.0} %: {}", varying.join(", "))
        };
        format!("thousands of instructions per request, {repeats} counts of each build: {verdict}")
    }

    /// Instructions per request of every operation, on a server of its own.
    fn count(&self, build: &Path) -> io::Result<Vec<f64>> {
        let places = Places { server: build.to_owned(), work: self.work.clone() };
        let directory = Server::directory(places.runs())?;
        let out = std::path::absolute(directory.path().join("callgrind"))?;
        let recipe = Recipe::Counted {
            by: callgrind(&out),
            binary: places.binary(),
            arguments: self.arguments.clone(),
        };
        let mut server = Server::start_in(recipe, directory)?;
        let counts = self.count_on(&server, &out);
        counts.map_err(|fault| server.explain(fault))
    }

    fn count_on(&self, server: &Server, out: &Path) -> io::Result<Vec<f64>> {
        let address = server.address();
        create_table(address, DATA)?;
        fill(address, LOADERS, Change::Upsert, pieces(DATA, 0, self.entities), |_| {})?;
        std::thread::sleep(PAUSE);
        order(server.pid(), "instrumentation on")?;
        let mut counts = Vec::new();
        for (dumps, operation) in OPERATIONS.into_iter().enumerate() {
            let table = format!("counted{operation}");
            if operation.inserts() {
                create_table(address, &table)?;
            }
            let operations = Operations::new(operation, false, self.entities, &table);
            let mut script = Limited { script: operations, left: 0 };
            let mut driver = Driver::open(address, 1)?;
            let [warm_up, requests] =
                [self.warm_up, self.requests].map(|given| share(operation, given));
            script.send(&mut driver, warm_up)?;
            settle(operation);
            order(server.pid(), "zero")?;
            for burst in 0..BURSTS {
                let until = |burst| requests * burst / BURSTS;
                script.send(&mut driver, until(burst + 1) - until(burst))?;
                settle(operation);
            }
            order(server.pid(), "dump")?;
            counts.push(total(out, dumps + 1)? as f64 / requests as f64);
        }
        Ok(counts)
    }
}

/// How many requests of an operation are sent. One on 100 entities takes as long as many others.
fn share(operation: Workload, requests: u64) -> u64 {
    match operation {
        Workload::Range100 | Workload::Batch100 => requests.div_ceil(10),
        _ => requests,
    }
}

/// Waits until the server has done the work that writes leave behind.
fn settle(operation: Workload) {
    if operation.inserts() {
        std::thread::sleep(PAUSE);
    }
}

fn table(lines: &[Line]) -> Table {
    let compared = lines.iter().any(|line| line.old.is_some());
    let heading: &[&str] = if compared {
        &["operation", "OLD", "spread", "NEW", "spread", "NEW/OLD", "verdict"]
    } else {
        &["operation", "NEW", "spread", "verdict"]
    };
    let mut table = Table::new(heading).with_words(&[heading.len() - 1]);
    for line in lines {
        let mut row = vec![line.operation.to_string()];
        row.extend(line.old.iter().flat_map(Counts::cells));
        row.extend(line.new.cells());
        row.extend(line.ratio().map(|ratio| format!("{ratio:.4}")));
        row.push(if line.is_repeatable() { "repeatable" } else { "NOT REPEATABLE" }.to_owned());
        table.push(row);
    }
    table
}

/// Sends a number of requests, one after the other.
struct Limited {
    script: Operations,
    left: u64,
}

impl Limited {
    fn send(&mut self, driver: &mut Driver, requests: u64) -> io::Result<()> {
        self.left = requests;
        let tally = driver.run(self, WITHIN, Pace::Closed)?;
        if tally.errors() > 0 || tally.operations != requests {
            let words = tally.fault.unwrap_or_else(|| "the server refused requests".to_owned());
            let done = tally.operations;
            return Err(io::Error::other(format!("{done} of {requests} right answers: {words}")));
        }
        Ok(())
    }
}

impl Script for Limited {
    fn ask(&mut self, slot: usize, fresh: bool, to: &mut Requests, out: &mut Vec<u8>) -> bool {
        if fresh {
            let Some(left) = self.left.checked_sub(1) else { return false };
            self.left = left;
        }
        self.script.ask(slot, fresh, to, out)
    }

    fn judge(&mut self, slot: usize, answer: &Answer<'_>) -> Verdict {
        self.script.judge(slot, answer)
    }
}

/// The command line of callgrind, in front of that of the server. It writes each dump to the given path with the next
/// number as extension. Loading the data is faster without counting.
fn callgrind(out: &Path) -> Vec<OsString> {
    let mut file = OsString::from("--callgrind-out-file=");
    file.push(out);
    let mut program: Vec<OsString> =
        ["valgrind", "--quiet", "--tool=callgrind", "--instr-atstart=no"].map(Into::into).into();
    program.push(file);
    program
}

/// Sends an order to the callgrind that runs this process.
fn order(pid: u32, order: &str) -> io::Result<()> {
    let mut command = Command::new("vgdb");
    command.arg(format!("--pid={pid}")).args(order.split(' '));
    let output = command.output().map_err(|fault| {
        io::Error::other(format!("vgdb, a program of valgrind, does not start: {fault}"))
    })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("vgdb {order} failed: {said}")))
}

/// Instructions in the dump of this number.
fn total(out: &Path, dump: usize) -> io::Result<u64> {
    let path = out.with_extension(dump.to_string());
    let text = fs::read_to_string(&path)?;
    parse_total(&text)
        .ok_or_else(|| io::Error::other(format!("{} has no line 'totals: N'", path.display())))
}

fn parse_total(dump: &str) -> Option<u64> {
    dump.lines().rev().find_map(|line| line.strip_prefix("totals: "))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(new: &[f64], old: Option<&[f64]>) -> Line {
        let counts = |figures: &[f64]| Counts(figures.to_vec());
        Line { operation: Workload::Point, new: counts(new), old: old.map(counts) }
    }

    #[test]
    fn one_percent_is_the_limit_of_repeatable() {
        for (counts, repeatable) in [
            (&[100.0][..], true),
            (&[100.0, 101.0], true),
            (&[101.1, 100.0], false),
            (&[100.0, 100.5, 102.0], false),
            (&[], false),
        ] {
            assert_eq!(Counts(counts.to_vec()).is_repeatable(), repeatable, "{counts:?}");
        }
    }

    #[test]
    fn a_bound_holds_only_for_a_repeatable_ratio() {
        let old = Some(&[1000.0, 1000.0][..]);
        assert_eq!(line(&[1010.0, 1010.0], old).failure(1.01), None);
        assert_eq!(line(&[1011.0, 1011.0], old).failure(1.01).as_deref(), Some("point 1.0110"));
        let varying = line(&[900.0, 1000.0], old).failure(1.01);
        assert_eq!(varying.as_deref(), Some("point NOT REPEATABLE"));
        assert_eq!(line(&[1.0], None).failure(1.01), None, "there is no ratio");
    }

    #[test]
    fn tables_with_and_without_another_build() {
        let (new, old) = ([90_500.0, 90_500.0], [100_000.0, 102_000.0]);
        assert_eq!(
            table(&[line(&new, Some(&old))]).plain(),
            "\
operation    OLD  spread   NEW  spread  NEW/OLD  verdict
point      101.0  2.00 %  90.5  0.00 %   0.8960  NOT REPEATABLE
"
        );
        assert_eq!(
            table(&[line(&new, None)]).plain(),
            "\
operation   NEW  spread  verdict
point      90.5  0.00 %  repeatable
"
        );
    }

    #[test]
    fn the_total_of_a_dump() {
        let dump = "events: Ir\nsummary: 7\n\nfn=(1)\n1 3\n\ntotals: 1234\n";
        assert_eq!(parse_total(dump), Some(1234));
        assert_eq!(parse_total("events: Ir\n"), None);
    }
}
