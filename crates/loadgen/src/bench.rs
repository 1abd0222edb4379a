//! `loadgen bench`: the product, the peer and the server that only answers, in turn on the same machine; or the
//! product on PostgreSQL and a client that sends the same statements to the same database itself.
//!
//! For every workload and number of connections the contestants are measured one after the other, and that
//! several times over, so that whatever else happens on the machine hits all of them alike. A server that is not
//! being measured is paused. The result is one table of ratios; the full bench also writes it into the
//! documentation, unless an answer was wrong.

mod compare;
mod machine;
mod page;
pub(crate) mod pair;
mod plot;
mod postgres;
mod queues;
mod report;

use crate::server::{Kind, Recipe, Service};
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

/// Where Rowhouse keeps its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Engine {
    /// In a directory; compared with the peer and with a server that only answers.
    Embedded,
    /// In a PostgreSQL that is made for the run; compared with the same statements sent directly.
    Postgres,
}

/// Compare Rowhouse with its peer and with a server that only answers, or with statements that are sent directly.
#[derive(Debug, clap::Args)]
pub(crate) struct Bench {
    /// A short run that shows whether things are in order: one pass, little data, no documentation.
    #[arg(long)]
    quick: bool,

    /// Where Rowhouse keeps its data, and so what it is compared with.
    #[arg(long, value_enum, default_value_t = Engine::Embedded)]
    store: Engine,

    /// Directory in which the peer (azurite) is installed; without it there is no peer.
    #[arg(long, value_name = "DIR")]
    peer: Option<PathBuf>,

    /// Directory for the page and the drawing of the documentation. Without it, or if not everything is measured, they go to
    /// the work directory.
    #[arg(long, value_name = "DIR")]
    docs: Option<PathBuf>,

    /// Only these workloads.
    #[arg(value_enum)]
    workloads: Vec<Workload>,

    #[command(flatten)]
    places: Places,

    /// Further arguments of Rowhouse.
    #[arg(last = true)]
    arguments: Vec<String>,
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
    /// In queues of which messages are got, and in those of the peer: filling them takes it long.
    messages: u64,
    peer_messages: u64,
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
            messages: if quick { 5_000 } else { 60_000 },
            peer_messages: if quick { 1_000 } else { 2_000 },
        }
    }

    /// The time before each measurement that does not count, and its length.
    fn times(&self) -> (Duration, Duration) {
        (self.warm_up, Duration::from_secs_f64(self.seconds))
    }
}

impl Bench {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let compared = match self.store {
            Engine::Embedded => self.compare(),
            Engine::Postgres => postgres::compare(&self),
        };
        compared.map_err(|fault| fault.to_string())
    }

    fn compare(&self) -> io::Result<()> {
        let plan = Plan::new(self.quick, &self.workloads);
        let recipes = [
            Some(self.places.rowhouse(&self.arguments)),
            self.peer.as_ref().map(|installed| Recipe::Peer {
                installed: installed.clone(),
                service: Service::Table,
            }),
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
                eprintln!("{}", page::progress(&cell));
                cells.push(cell);
            }
        }
        let steady = Self::steady(&mut contestants, &plan)?;
        let one = contestants.first_mut().expect("the product is always there");
        let terms = (Workload::Onepartition, MANY);
        let one_partition = compare::alternate(std::slice::from_mut(one), &plan, terms.0, terms.1)?;
        drop(contestants);
        let queues = self.compare_queues(&plan)?;
        let results = Results { machine, plan, cells, steady, one_partition, queues };
        self.publish(&results)
    }

    /// Queues, unless only some workloads of tables were asked for.
    fn compare_queues(&self, plan: &Plan) -> io::Result<Vec<Cell<queues::Load>>> {
        if !self.workloads.is_empty() {
            return Ok(Vec::new());
        }
        let peer = |installed: &PathBuf| Recipe::Peer {
            installed: installed.clone(),
            service: Service::Queue,
        };
        let recipes = [Some(self.places.rowhouse(&self.arguments)), self.peer.as_ref().map(peer)];
        queues::compare(plan, recipes.into_iter().flatten().collect(), self.places.runs())
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
            eprintln!("{} at {:.0} % of its rate", page::progress(&cell), 100.0 * STEADY.1);
            cells.push(cell);
        }
        Ok(cells)
    }

    fn publish(&self, results: &Results) -> io::Result<()> {
        let judged =
            page::content(results.cells()).and_then(|()| page::content(results.queues.iter()));
        let plain = report::plain(results);
        self.keep("", results, judged, |old| report::page(results, old), &plain)?;
        fs::write(self.pages().join("performance.svg"), plot::draw(results, MANY))
    }

    /// Whether this is all that the documentation tells about, and as it tells it.
    fn is_full(&self) -> bool {
        let against = self.store == Engine::Postgres || self.peer.is_some();
        !self.quick && self.workloads.is_empty() && self.arguments.is_empty() && against
    }

    /// Where pages for people go.
    fn pages(&self) -> &Path {
        self.docs.as_deref().filter(|_| self.is_full()).unwrap_or(&self.places.work)
    }

    /// Writes the figures of every pass, prints what they come to, and writes a page for people, which is made from the one
    /// before. Results that were judged wrong make no page.
    fn keep(
        &self,
        suffix: &str,
        results: &impl serde::Serialize,
        judged: io::Result<()>,
        page: impl FnOnce(&str) -> String,
        plain: &str,
    ) -> io::Result<()> {
        let part = match (self.quick, self.is_full()) {
            (true, _) => "-quick",
            (false, true) => "",
            (false, false) => "-part",
        };
        let figures = self.places.work.join(format!("results{suffix}{part}.json"));
        fs::write(&figures, serde_json::to_string_pretty(results)? + "\n")?;
        println!("{plain}");
        println!("written: {}", show(&figures));
        judged?;
        fs::create_dir_all(self.pages())?;
        let path = self.pages().join(format!("performance{suffix}.md"));
        let old = fs::read_to_string(&path).unwrap_or_default();
        fs::write(&path, page(&old))?;
        println!("written: {}", show(&path));
        Ok(())
    }
}

fn show(path: &Path) -> String {
    path.display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        bench: Bench,
    }

    /// A bench that would write into `docs` below the directory, and what is kept of figures.
    fn keep(directory: &Path, line: &str, judged: io::Result<()>) -> io::Result<()> {
        let [docs, work] = ["docs", "work"].map(|name| directory.join(name));
        fs::create_dir_all(&work)?;
        let mut bench = Line::parse_from(format!("bench {line}").split_whitespace()).bench;
        (bench.docs, bench.places.work) = (Some(docs), work);
        bench.keep("", &"figures", judged, |old| format!("{old}page"), "plain")
    }

    #[test]
    fn only_what_is_whole_and_right_becomes_documentation() {
        let directory = tempfile::tempdir().unwrap();
        let [docs, work] =
            ["docs", "work"].map(|name| directory.path().join(name).join("performance.md"));
        for (line, figures) in [
            ("--peer p --quick", "results-quick.json"),
            ("--peer p point", "results-part.json"),
            ("--peer p -- --cache-mib 1", "results-part.json"),
            ("", "results-part.json"),
        ] {
            keep(directory.path(), line, Ok(())).unwrap();
            assert!(!docs.exists() && work.exists(), "{line}");
            assert!(work.with_file_name(figures).exists(), "{line}");
            fs::remove_file(&work).unwrap();
        }
        for line in ["--peer p", "--store postgres"] {
            keep(directory.path(), line, Err(io::Error::other("wrong"))).unwrap_err();
            assert!(!docs.exists() && !work.exists(), "{line}");
            assert!(work.with_file_name("results.json").exists(), "the figures are there: {line}");
            keep(directory.path(), line, Ok(())).unwrap();
            assert_eq!(fs::read_to_string(&docs).unwrap(), "page", "{line}");
            fs::remove_file(&docs).unwrap();
        }
    }
}
