//! `loadgen bench`: the product, the peer and the server that only answers, in turn on the same machine.
//!
//! For every workload and number of connections the servers are measured one after the other, and that
//! several times over, so that whatever else happens on the machine hits all of them alike. A server that is not
//! being measured is paused. The result is one table of ratios; the full bench also writes it into the
//! documentation, with a plot.

mod compare;
mod machine;
mod plot;
mod report;

use crate::server::{Kind, Recipe};
use crate::workload::Workload;
use crate::{Failure, Places};
use compare::{Cell, Contestant};
use machine::Machine;
use report::Results;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

/// The number of connections of the results in short.
const MANY: usize = 64;
/// Connections of the measurement at a fixed rate, and the share of the full rate at which it runs.
const STEADY: (usize, f64) = (16, 0.6);

/// Compare Rowhouse with its peer and with a server that only answers.
#[derive(Debug, clap::Args)]
pub(crate) struct Bench {
    /// A short run that shows whether things are in order: one pass, little data, no documentation.
    #[arg(long)]
    quick: bool,

    /// Directory in which the peer (azurite) is installed; without it there is no peer.
    #[arg(long, value_name = "DIR")]
    peer: Option<PathBuf>,

    /// Directory for performance.md and performance.svg; without it they go to the work directory.
    #[arg(long, value_name = "DIR")]
    docs: Option<PathBuf>,

    /// Only these workloads.
    #[arg(value_enum)]
    workloads: Vec<Workload>,

    #[command(flatten)]
    places: Places,
}

/// How much is measured.
#[derive(Clone, Debug, serde::Serialize)]
pub(crate) struct Plan {
    quick: bool,
    workloads: Vec<Workload>,
    connections: Vec<usize>,
    repeats: usize,
    #[serde(skip)]
    warm_up: Duration,
    seconds: f64,
    steady_seconds: f64,
    entities: u64,
}

impl Plan {
    fn new(quick: bool, workloads: &[Workload]) -> Self {
        let workloads = if workloads.is_empty() { &Workload::COMPARED[..] } else { workloads };
        Self {
            quick,
            workloads: workloads.to_vec(),
            connections: vec![1, 16, MANY],
            repeats: if quick { 1 } else { 3 },
            warm_up: Duration::from_millis(if quick { 100 } else { 1000 }),
            seconds: if quick { 0.5 } else { 3.0 },
            steady_seconds: if quick { 1.0 } else { 30.0 },
            entities: if quick { 5_000 } else { 10_000 },
        }
    }

    fn length(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }
}

impl Bench {
    pub(crate) fn run(self) -> Result<(), Failure> {
        self.compare().map_err(|fault| fault.to_string())
    }

    fn compare(&self) -> io::Result<()> {
        let plan = Plan::new(self.quick, &self.workloads);
        let recipes = [
            Some(self.places.rowhouse(&[])),
            self.peer.as_ref().map(|installed| Recipe::Peer { installed: installed.clone() }),
            Some(Recipe::Bare),
        ];
        fs::create_dir_all(&self.places.work)?;
        let machine = Machine::describe(&self.places, self.peer.as_deref());
        eprintln!("starting the servers and loading {} entities into each ...", plan.entities);
        let mut contestants = Vec::new();
        for recipe in recipes.into_iter().flatten() {
            contestants.push(Contestant::prepare(recipe, self.places.runs(), plan.entities)?);
        }
        let mut cells = Vec::new();
        for &workload in &plan.workloads {
            for &connections in &plan.connections {
                let cell = compare::alternate(&mut contestants, &plan, workload, connections)?;
                eprintln!("{}", report::progress(&cell));
                cells.push(cell);
            }
        }
        let steady = Self::steady(&mut contestants, &plan)?;
        let one = contestants.first_mut().expect("the product is always there");
        let terms = (Workload::Onepartition, MANY);
        let one_partition = compare::alternate(std::slice::from_mut(one), &plan, terms.0, terms.1)?;
        drop(contestants);
        let results = Results { machine, plan, cells, steady, one_partition };
        self.publish(&results)
    }

    /// Latencies at a fixed share of the full rate, of the servers that do the work.
    fn steady(contestants: &mut [Contestant], plan: &Plan) -> io::Result<Vec<Cell>> {
        let mut cells = Vec::new();
        let wanted = |workload: &Workload| matches!(workload, Workload::Point | Workload::Insert);
        for &workload in plan.workloads.iter().filter(|workload| wanted(workload)) {
            let mut cell = Cell::new(workload, STEADY.0);
            for contestant in contestants.iter_mut().filter(|one| one.kind() != Kind::Bare) {
                let sample = contestant.measure_steady(plan, workload, STEADY.0, STEADY.1)?;
                cell.samples.insert(contestant.kind(), vec![sample]);
            }
            eprintln!("{} at {:.0} % of its rate", report::progress(&cell), 100.0 * STEADY.1);
            cells.push(cell);
        }
        Ok(cells)
    }

    fn publish(&self, results: &Results) -> io::Result<()> {
        let docs = self.docs.as_deref().filter(|_| !self.quick);
        let directory = docs.unwrap_or(&self.places.work);
        let json = serde_json::to_string_pretty(results)?;
        let name = if self.quick { "results-quick.json" } else { "results.json" };
        fs::write(self.places.work.join(name), json + "\n")?;
        fs::create_dir_all(directory)?;
        fs::write(directory.join("performance.svg"), plot::draw(results, MANY))?;
        let page = directory.join("performance.md");
        let old = fs::read_to_string(&page).unwrap_or_default();
        fs::write(&page, report::page(results, &old))?;
        println!("{}", report::plain(results));
        println!("written: {}, {}", show(&page), show(&self.places.work.join(name)));
        match results.fault() {
            Some(fault) => Err(io::Error::other(format!("there were wrong answers: {fault}"))),
            None => Ok(()),
        }
    }
}

fn show(path: &Path) -> String {
    path.display().to_string()
}
