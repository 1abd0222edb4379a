//! Results on PostgreSQL for people: on the screen and in the documentation.

use super::super::compare::Cell;
use super::super::machine::Machine;
use super::super::page::{self, shown};
use super::super::{MANY, Plan};
use crate::measure::Sample;
use crate::server::Kind;
use crate::text::{Table, count};
use crate::workload::Workload;

/// The share of the direct rate that the product should reach at many connections, and for which workloads.
const AIM: f64 = 0.6;
const AIMED: [Workload; 3] = [Workload::Point, Workload::Insert, Workload::Batch100];

/// Everything that a bench has found out.
#[derive(Clone, Debug, serde::Serialize)]
pub(super) struct Results {
    pub(super) machine: Machine,
    pub(super) database: String,
    pub(super) plan: Plan,
    pub(super) cells: Vec<Cell>,
}

/// All tables, for a terminal.
pub(super) fn plain(results: &Results) -> String {
    format!("\n{}\n{}", ratios(results).plain(), aims(results).plain())
}

fn ratios(results: &Results) -> Table {
    let mut table = Table::new(&[
        "workload",
        "conn",
        "ops/s",
        "x direct",
        "server CPU us",
        "database CPU us",
        "direct: database CPU us",
        "p50 ms",
        "p99 ms",
        "direct p50",
        "direct p99",
    ]);
    for cell in &results.cells {
        let of = |kind: Kind, field: fn(&Sample) -> f64| {
            shown(cell.median(kind).map(|sample| field(&sample)))
        };
        table.push(vec![
            cell.workload.to_string(),
            cell.connections.to_string(),
            of(Kind::Rowhouse, |sample| sample.rate),
            shown(cell.ratio_to(Kind::Direct)),
            of(Kind::Rowhouse, |sample| sample.server_cpu_us),
            of(Kind::Rowhouse, |sample| sample.database_cpu_us),
            of(Kind::Direct, |sample| sample.database_cpu_us),
            of(Kind::Rowhouse, |sample| sample.p50_ms),
            of(Kind::Rowhouse, |sample| sample.p99_ms),
            of(Kind::Direct, |sample| sample.p50_ms),
            of(Kind::Direct, |sample| sample.p99_ms),
        ]);
    }
    table
}

fn aims(results: &Results) -> Table {
    let mut table = Table::new(&["share of the direct rate, 64 connections", "aim", "here", ""]);
    for workload in AIMED {
        let mut cells = results.cells.iter();
        let cell = cells.find(|one| (one.workload, one.connections) == (workload, MANY));
        let Some(ratio) = cell.and_then(|cell| cell.ratio_to(Kind::Direct)) else { continue };
        let verdict = if ratio >= AIM { "met" } else { "missed" };
        let (aim, here) = (format!(">= {AIM}"), shown(Some(ratio)));
        table.push(vec![workload.to_string(), aim, here, verdict.to_owned()]);
    }
    table
}

/// The page of the documentation. What a person has written on the old one is kept.
pub(super) fn page(results: &Results, old: &str) -> String {
    let Results { machine, plan, database, .. } = results;
    let target = if plan.quick { "bench-quick" } else { "bench" };
    format!(
        "# Performance on PostgreSQL

Written by `make {target} STORE=postgres`, except for what stands between [where the time goes](#where-the-time-goes) and [the machine](#machine). The figures are ratios
within one run: database, server and client share the cores of one machine. [performance.md](performance.md) has those of the
data directory.

## Results

`x direct` is the rate of Rowhouse over that of a client that sends the same statements with the same values to the same
database itself, without a server in between. CPU time is per operation: of the server, of all processes of the database
below it, and of those when the client sends directly. Every write is on the disk when it is answered.

{ratios}
{passes} after a warm-up, Rowhouse and the direct client in turn. An operation of `batch100` is 100 entities. Queries
with a filter are not sent directly.

## Aims

{aims}
## Where the time goes

{hand}

## Machine

{machine}
## How it is measured

`make {target} STORE=postgres` builds the server and the load client and makes a PostgreSQL in `.work/`, with fsync and
synchronous_commit on. The server starts on an empty database and writes {entities} entities of about 400 bytes of JSON, ten
properties of mixed types, in partitions of 1,000 rows. Both contestants read and change these; each inserts into tables of its
own that are empty at the start of each pass. One thread of the client keeps all connections, to the server or to the
database, and checks each answer. The server has the connections to the database that it has by default. The direct client has one for each that it simulates,
with the driver of the server and prepared statements, and uses the server's own functions to put values into
columns and rows into entities, so that it costs what any client of the database would have to do; it has no pool, no
cache and no lease. While it is measured the server is paused. At the end the server reads what the direct client wrote.

{meanings}
The figures of every pass are in `.work/bench/`.
",
        ratios = ratios(results).markdown(),
        passes = page::passes(plan),
        aims = aims(results).markdown(),
        hand = page::by_hand(old),
        machine = page::machine(machine, ("database", database)),
        entities = count(plan.entities),
        meanings = page::meanings(&plan.workloads),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::Tally;
    use crate::measure::Spent;
    use std::time::Duration;

    fn results() -> Results {
        let sample = |operations: u64, database: u64| {
            let tally = Tally { operations, elapsed: Duration::from_secs(1), ..Tally::default() };
            let spent = Spent { database: Duration::from_secs(database), ..Spent::default() };
            vec![Sample::new(&tally, spent)]
        };
        let cell = |workload: Workload| {
            let mut cell = Cell::new(workload, MANY);
            cell.samples.insert(Kind::Rowhouse, sample(5_000, 1));
            if workload.has_statements() {
                let rate = if workload == Workload::Point { 8_000 } else { 10_000 };
                cell.samples.insert(Kind::Direct, sample(rate, 2));
            }
            cell
        };
        Results {
            machine: Machine::some(),
            database: "PostgreSQL 15".to_owned(),
            plan: Plan::new(false, &[]),
            cells: Workload::COMPARED.map(cell).to_vec(),
        }
    }

    fn words(table: &Table, line: usize) -> Vec<String> {
        let text = table.plain();
        text.lines().nth(line).unwrap().split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn shares_and_costs_are_computed() {
        let ratios = ratios(&results());
        assert_eq!(words(&ratios, 1)[..7], ["point", "64", "5,000", "0.625", "0", "200", "250"]);
        assert_eq!(words(&ratios, 9)[..4], ["filterscan", "64", "5,000", "-"]);
        let aims = aims(&results());
        assert_eq!(words(&aims, 1), ["point", ">=", "0.6", "0.625", "met"]);
        assert_eq!(words(&aims, 2), ["insert", ">=", "0.6", "0.500", "missed"]);
    }

    #[test]
    fn what_a_person_wrote_is_kept() {
        let first = page(&results(), "");
        let edited = first.replace("Not written yet.", "In the database.");
        assert_eq!(page(&results(), &edited), edited);
    }
}
