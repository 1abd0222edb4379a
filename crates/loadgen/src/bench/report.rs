//! Results for people: on the screen and in the documentation.

use super::compare::Cell;
use super::machine::Machine;
use super::page::{self, shown};
use super::queues;
use super::{MANY, Plan, STEADY};
use crate::measure::Sample;
use crate::server::Kind;
use crate::text::{Table, figure};
use crate::workload::Workload;

/// Everything that a bench has found out.
#[derive(Clone, Debug, serde::Serialize)]
pub(super) struct Results {
    pub(super) machine: Machine,
    pub(super) plan: Plan,
    pub(super) cells: Vec<Cell>,
    /// Latencies at a fixed rate.
    pub(super) steady: Vec<Cell>,
    /// Inserts into a single partition of the product.
    pub(super) one_partition: Cell,
    /// Messages through queues.
    pub(super) queues: Vec<Cell<queues::Load>>,
}

impl Results {
    /// Everything that was measured of tables.
    pub(super) fn cells(&self) -> impl Iterator<Item = &Cell> {
        self.cells.iter().chain(&self.steady).chain([&self.one_partition])
    }

    fn rate(&self, workload: Workload) -> Option<f64> {
        let cell =
            self.cells.iter().find(|one| (one.workload, one.connections) == (workload, MANY));
        cell?.median(Kind::Rowhouse).map(|sample| sample.rate)
    }
}

/// All tables, for a terminal.
pub(super) fn plain(results: &Results) -> String {
    let mut out = format!("\n{}\n", ratios(results).plain());
    let percent = 100.0 * STEADY.1;
    out += &format!("latency at {percent:.0} % of the full rate, {} connections\n", STEADY.0);
    out += &steady(results).plain();
    out += &format!("\nmessages through queues\n{}", queues::table(&results.queues).plain());
    out += "\npublished targets of the original\n";
    out += &targets(results).plain();
    out
}

fn ratios(results: &Results) -> Table {
    let mut table = Table::new(&[
        "workload", "conn", "ops/s", "x peer", "x bare", "CPU us", "peer CPU", "bare CPU",
        "p50 ms", "p99 ms", "peer p50", "peer p99",
    ]);
    for cell in &results.cells {
        let of = |kind: Kind, field: fn(&Sample) -> f64| {
            shown(cell.median(kind).map(|sample| field(&sample)))
        };
        table.push(vec![
            cell.workload.to_string(),
            cell.connections.to_string(),
            of(Kind::Rowhouse, |sample| sample.rate),
            shown(cell.ratio_to(Kind::Peer)),
            shown(cell.ratio_to(Kind::Bare)),
            of(Kind::Rowhouse, |sample| sample.server_cpu_us),
            of(Kind::Peer, |sample| sample.server_cpu_us),
            of(Kind::Bare, |sample| sample.server_cpu_us),
            of(Kind::Rowhouse, |sample| sample.p50_ms),
            of(Kind::Rowhouse, |sample| sample.p99_ms),
            of(Kind::Peer, |sample| sample.p50_ms),
            of(Kind::Peer, |sample| sample.p99_ms),
        ]);
    }
    table
}

fn steady(results: &Results) -> Table {
    let mut table = Table::new(&[
        "workload", "server", "ops/s", "p50 ms", "p99 ms", "p99.9 ms", "max ms", "unserved",
    ]);
    for cell in &results.steady {
        for (kind, name) in [(Kind::Rowhouse, "Rowhouse"), (Kind::Peer, "peer")] {
            let Some(sample) = cell.median(kind) else { continue };
            table.push(vec![
                cell.workload.to_string(),
                name.to_owned(),
                figure(sample.rate),
                figure(sample.p50_ms),
                figure(sample.p99_ms),
                figure(sample.p999_ms),
                figure(sample.max_ms),
                sample.errors.to_string(),
            ]);
        }
    }
    table
}

fn targets(results: &Results) -> Table {
    let mut table = Table::new(&["durable, 64 connections", "target", "here"]);
    let mut row = |what: &str, target: &str, rate: Option<f64>| {
        table.push(vec![what.to_owned(), target.to_owned(), shown(rate)]);
    };
    let mixed = results.rate(Workload::Mixed);
    row("operations/s on one account (mixed)", "20,000", mixed);
    let one = results.one_partition.median(Kind::Rowhouse).map(|sample| sample.rate);
    row("entities/s into one partition (single inserts)", "2,000", one);
    let [queue, got, through] = queues::rates(&results.queues);
    row("messages/s through one queue (put, got 32 at a time, deleted)", "2,000", queue);
    row("messages/s got from eight queues of one account (32 at a time)", "20,000", got);
    row("messages/s through eight queues of one account (put, got, deleted)", "20,000", through);
    table
}

/// The page of the documentation. What a person has written on the old one is kept.
pub(super) fn page(results: &Results, old: &str) -> String {
    let Results { machine, plan, .. } = results;
    let command = if plan.quick { "make bench-quick" } else { "make bench" };
    let peer = machine.peer.as_deref().unwrap_or("not installed");
    format!(
        "# Performance

Written by `{command}`, except for what stands between [where the time goes](#where-the-time-goes) and [the machine](#machine). The figures are ratios within one
run: servers and client share the cores of one machine, and another machine has other absolute figures. The unit
that carries over best is the CPU time of the server per operation.

![operations per second by workload](performance.svg)

## Results

`x peer` is the rate of Rowhouse over that of the peer, `x bare` over that of a server on the same HTTP library that
only answers, which is the practical limit. `CPU us` is the CPU time of the server per operation, then the same of
the peer and of the bare server. Rowhouse answers a write when it is on the disk; the peer keeps everything in
memory and answers before anything is written.

{ratios}
{passes} after a warm-up, servers in turn.

## Latency

At {percent:.0} % of what each server can do with {steady_connections} connections, for {steady_seconds} s, at a fixed rate: a latency counts
from when the request was due. `unserved` are requests that were refused or still waited at the end.

{steady}
## Queues

Messages of 1 KiB. `CPU us` is the CPU time of the server per message. The peer keeps them in memory, as it does entities.
Where messages are got, there are {messages} at the start, and {peer_messages} on the peer, which takes long to fill.

{queues}
{queue_meanings}
## Published targets of the original

{targets}
## Where the time goes

{hand}

## Machine

{machine}
## How it is measured

`{command}` builds the server and the load client, installs the peer (pinned) into `.work/` and runs all. One thread of
the client keeps all connections, signs each request (Shared Key Lite, for queues Shared Key) and checks each answer: the status, the
entity that was asked for, the number of rows, every part of a batch, the text of a message and that nobody had it before. A wrong answer fails the run. Each server starts on an
empty directory with {entities} entities of about 400 bytes of JSON, ten properties of mixed types, in partitions of 1,000
rows; inserts go to a table of their own that is empty at the start of each pass. A server that is not being
measured is paused. Answers are asked for as the official SDKs do, with minimal metadata.

{meanings}
The figures of every pass are in `.work/bench/`. `target/dist/loadgen --help` shows what else it measures: a single
workload on any server, bulk loading, the cost of size, overload.
",
        ratios = ratios(results).markdown(),
        passes = page::passes(plan),
        hand = page::by_hand(old),
        machine = page::machine(machine, ("peer", peer)),
        meanings = page::meanings(&plan.workloads),
        percent = 100.0 * STEADY.1,
        steady_connections = STEADY.0,
        steady_seconds = figure(plan.steady_seconds),
        steady = steady(results).markdown(),
        queues = queues::table(&results.queues).markdown(),
        queue_meanings = queues::meanings(),
        targets = targets(results).markdown(),
        entities = crate::text::count(plan.entities),
        messages = crate::text::count(plan.messages),
        peer_messages = crate::text::count(plan.peer_messages),
    )
}

#[cfg(test)]
mod tests {
    use super::super::compare::Cell;
    use super::super::plot;
    use super::*;
    use crate::drive::Tally;
    use crate::measure::Spent;
    use crate::queue::messages::Work;
    use std::collections::BTreeMap;
    use std::time::Duration;

    fn results() -> Results {
        let sample = |operations: u64| {
            let tally = Tally { operations, elapsed: Duration::from_secs(1), ..Tally::default() };
            vec![Sample::new(&tally, Spent::default())]
        };
        let cell = |workload| {
            let rates = [(Kind::Rowhouse, 5_000), (Kind::Peer, 100), (Kind::Bare, 10_000)];
            let samples = rates.into_iter().map(|(kind, rate)| (kind, sample(rate)));
            Cell { workload, connections: MANY, samples: samples.collect::<BTreeMap<_, _>>() }
        };
        let through = |work, queues, rate| {
            let mut cell = Cell::new(queues::Load { work, queues }, 32);
            cell.samples.insert(Kind::Rowhouse, sample(rate));
            cell
        };
        Results {
            machine: Machine::some(),
            plan: Plan::new(false, &[]),
            cells: Workload::COMPARED.map(cell).to_vec(),
            steady: vec![cell(Workload::Point)],
            one_partition: cell(Workload::Onepartition),
            queues: vec![
                through(Work::Consumers(16), 1, 3_000),
                through(Work::Consumers(16), 8, 4_000),
                through(Work::Consumers(32), 8, 24_000),
                through(Work::Get32, 8, 30_000),
            ],
        }
    }

    #[test]
    fn ratios_are_computed() {
        let text = ratios(&results()).plain();
        let line = text.lines().nth(1).unwrap();
        let words: Vec<_> = line.split_whitespace().collect();
        assert_eq!(&words[..5], ["point", "64", "5,000", "50.0", "0.500"]);
        assert!(page::content(results().cells()).is_ok());
    }

    #[test]
    fn queues_are_held_to_their_targets() {
        let text = targets(&results()).plain();
        let figures = |start: &str| {
            let line = text.lines().find(|line| line.trim_start().starts_with(start)).unwrap();
            line.split_whitespace().rev().take(2).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(figures("messages/s through one queue"), ["3,000", "2,000"]);
        assert_eq!(figures("messages/s got from eight queues"), ["30,000", "20,000"]);
        assert_eq!(figures("messages/s through eight queues"), ["24,000", "20,000"]);
        assert!(page(&results(), "").contains("## Queues"));
    }

    /// Only a peer may be too slow for the pace, and nobody may answer wrongly.
    #[test]
    fn wrong_answers_fail_the_run() {
        let judged = |kind: Kind, fault: Option<&str>| {
            let mut results = results();
            let samples = results.steady[0].samples.get_mut(&kind).unwrap();
            samples[0].errors = 1;
            samples[0].fault = fault.map(str::to_owned);
            page::content(results.cells()).is_ok()
        };
        assert!(judged(Kind::Peer, None));
        assert!(!judged(Kind::Peer, Some("404 instead of 200")));
        assert!(!judged(Kind::Rowhouse, None));
    }

    #[test]
    fn what_a_person_wrote_is_kept() {
        let first = page(&results(), "");
        assert!(first.contains("Not written yet."));
        let edited = first.replace("Not written yet.", "In the disk.");
        let second = page(&results(), &edited);
        assert!(second.contains("In the disk.") && !second.contains("Not written yet."));
        assert_eq!(page(&results(), &second), second);
    }

    #[test]
    fn the_plot_has_a_bar_for_each_server() {
        let drawing = plot::draw(&results(), MANY);
        assert_eq!(drawing.matches("class=\"bar\"").count(), 3 * Workload::COMPARED.len());
        assert!(drawing.contains("50.0 x"));
    }
}
