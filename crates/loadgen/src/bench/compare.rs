//! Servers in turn on the same workload.

use super::Plan;
use crate::batch::Change;
use crate::call::create_table;
use crate::drive::Pace;
use crate::fill::{fill, pieces};
use crate::measure::{Sample, Terms, measure};
use crate::server::{Kind, Recipe, Server};
use crate::workload::{DATA, Operations, Workload};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::Duration;

/// Connections that load the data.
const LOADERS: usize = 4;

/// What was measured for one workload and number of connections.
#[derive(Clone, Debug, serde::Serialize)]
pub(super) struct Cell {
    pub(super) workload: Workload,
    pub(super) connections: usize,
    pub(super) samples: BTreeMap<Kind, Vec<Sample>>,
}

impl Cell {
    pub(super) fn new(workload: Workload, connections: usize) -> Self {
        Self { workload, connections, samples: BTreeMap::new() }
    }

    /// The median over all passes, if the server was measured.
    pub(super) fn median(&self, kind: Kind) -> Option<Sample> {
        self.samples.get(&kind).filter(|samples| !samples.is_empty()).map(|all| Sample::median(all))
    }

    /// How many times the rate of another server the product reaches.
    pub(super) fn ratio_to(&self, kind: Kind) -> Option<f64> {
        Some(self.median(Kind::Rowhouse)?.rate / self.median(kind)?.rate)
    }
}

/// A server with its data, paused whenever it is not its turn.
#[derive(Debug)]
pub(super) struct Contestant {
    server: Server,
    entities: u64,
    tables: usize,
}

impl Contestant {
    /// Starts a server and loads its data.
    pub(super) fn prepare(recipe: Recipe, parent: &Path, entities: u64) -> io::Result<Self> {
        let server = Server::start(recipe, parent)?;
        if server.kind() != Kind::Bare {
            create_table(server.address(), DATA)?;
            let all = pieces(DATA, 0, entities);
            fill(server.address(), LOADERS, Change::Upsert, all, |_| {})?;
        }
        server.pause();
        Ok(Self { server, entities, tables: 0 })
    }

    pub(super) fn kind(&self) -> Kind {
        self.server.kind()
    }

    fn measure(
        &mut self,
        workload: Workload,
        connections: usize,
        (warm_up, length): (Duration, Duration),
        pace: Pace,
    ) -> io::Result<Sample> {
        self.server.resume();
        let (address, bare) = (self.server.address(), self.kind() == Kind::Bare);
        self.tables += 1;
        let table = format!("inserts{}", self.tables);
        if workload.inserts() && !bare {
            create_table(address, &table)?;
        }
        let mut operations = Operations::new(workload, bare, self.entities, &table);
        let pid = Some(self.server.pid());
        let terms = Terms { address, pid, connections, warm_up, length, pace };
        let (_, sample) = measure(&terms, &mut operations)?;
        self.server.pause();
        Ok(sample)
    }

    /// Measures the full rate, and then latencies at a share of it.
    pub(super) fn measure_steady(
        &mut self,
        plan: &Plan,
        workload: Workload,
        connections: usize,
        share: f64,
    ) -> io::Result<Sample> {
        let times = (plan.warm_up, plan.length());
        let full = self.measure(workload, connections, times, Pace::Closed)?;
        let times = (plan.warm_up, Duration::from_secs_f64(plan.steady_seconds));
        self.measure(workload, connections, times, Pace::Rate(full.rate * share))
    }
}

/// Measures every server in turn, as often as the plan says.
pub(super) fn alternate(
    contestants: &mut [Contestant],
    plan: &Plan,
    workload: Workload,
    connections: usize,
) -> io::Result<Cell> {
    let mut cell = Cell::new(workload, connections);
    for _ in 0..plan.repeats {
        for contestant in contestants.iter_mut() {
            let kind = contestant.kind();
            if kind == Kind::Bare && !workload.has_limit() {
                continue;
            }
            let times = (plan.warm_up, plan.length());
            let sample = contestant.measure(workload, connections, times, Pace::Closed)?;
            cell.samples.entry(kind).or_default().push(sample);
        }
    }
    Ok(cell)
}
