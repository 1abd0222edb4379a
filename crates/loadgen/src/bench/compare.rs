//! Contestants in turn on the same workload.

use super::Plan;
use crate::batch::Change;
use crate::call::{call, create_table};
use crate::drive::Pace;
use crate::entity::Key;
use crate::fill::{fill, pieces};
use crate::measure::{Sample, Terms, measure};
use crate::server::{Kind, Recipe, Server};
use crate::workload::{DATA, Operations, Workload};
use memchr::memmem;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::Duration;

/// Connections that load the data.
const LOADERS: usize = 4;

/// What was measured for one workload, of tables or of queues, and number of connections.
#[derive(Clone, Debug, serde::Serialize)]
pub(super) struct Cell<W = Workload> {
    pub(super) workload: W,
    pub(super) connections: usize,
    pub(super) samples: BTreeMap<Kind, Vec<Sample>>,
}

impl<W> Cell<W> {
    pub(super) fn new(workload: W, connections: usize) -> Self {
        Self { workload, connections, samples: BTreeMap::new() }
    }

    /// The median over all passes, if the contestant was measured.
    pub(super) fn median(&self, kind: Kind) -> Option<Sample> {
        self.samples.get(&kind).filter(|samples| !samples.is_empty()).map(|all| Sample::median(all))
    }

    /// How many times the rate of another contestant the product reaches.
    pub(super) fn ratio_to(&self, kind: Kind) -> Option<f64> {
        Some(self.median(Kind::Rowhouse)?.rate / self.median(kind)?.rate)
    }
}

/// A server with its data, paused whenever it is not its turn.
#[derive(Debug)]
pub(super) struct Contestant {
    server: Server,
    /// The process of the database that it keeps its data in, if there is one.
    database: Option<u32>,
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
        Ok(Self { server, database: None, entities, tables: 0 })
    }

    /// Its data is kept in a database, whose CPU time is counted.
    pub(super) fn with_database(self, pid: u32) -> Self {
        Self { database: Some(pid), ..self }
    }

    pub(super) fn kind(&self) -> Kind {
        self.server.kind()
    }

    /// Makes an empty table; its name.
    pub(super) fn fresh_table(&mut self) -> io::Result<String> {
        self.tables += 1;
        let name = format!("inserts{}", self.tables);
        self.server.resume();
        let made = create_table(self.server.address(), &name);
        made.map_err(|fault| self.server.explain(fault))?;
        self.server.pause();
        Ok(name)
    }

    /// Whether an entity of a table can be read.
    pub(super) fn has(&self, table: &str, key: Key) -> io::Result<bool> {
        let (mut path, mut mark) = (Vec::new(), Vec::new());
        key.push_path(&mut path, table);
        key.push_mark(&mut mark);
        self.server.resume();
        let path = String::from_utf8_lossy(&path);
        let reply = call(self.server.address(), "GET", &path, "", "", b"");
        self.server.pause();
        let reply = reply?;
        Ok(reply.status == 200 && memmem::find(&reply.body, &mark).is_some())
    }

    /// Measures a workload.
    pub(super) fn measure(
        &mut self,
        workload: Workload,
        connections: usize,
        (warm_up, length): (Duration, Duration),
        pace: Pace,
    ) -> io::Result<Sample> {
        let (address, bare) = (self.server.address(), self.kind() == Kind::Bare);
        let table = if workload.inserts() && !bare { self.fresh_table()? } else { String::new() };
        self.server.resume();
        let mut operations = Operations::new(workload, bare, self.entities, &table);
        let (pid, database) = (Some(self.server.pid()), self.database);
        let terms = Terms { address, pid, database, connections, warm_up, length, pace };
        let measured = measure(&terms, &mut operations);
        let (_, sample) = measured.map_err(|fault| self.server.explain(fault))?;
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
        let full = self.measure(workload, connections, plan.times(), Pace::Closed)?;
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
    let takes_part = |kind: &Kind| *kind != Kind::Bare || workload.has_limit();
    let kinds: Vec<_> = contestants.iter().map(Contestant::kind).filter(takes_part).collect();
    in_turn(plan, Cell::new(workload, connections), &kinds, |kind| {
        let mut all = contestants.iter_mut();
        let one = all.find(|one| one.kind() == kind).expect("it is one of them");
        one.measure(workload, connections, plan.times(), Pace::Closed)
    })
}

/// Measures contestants in turn, as often as the plan says.
pub(super) fn in_turn<W>(
    plan: &Plan,
    mut cell: Cell<W>,
    kinds: &[Kind],
    mut measure: impl FnMut(Kind) -> io::Result<Sample>,
) -> io::Result<Cell<W>> {
    for _ in 0..plan.repeats {
        for &kind in kinds {
            let sample = measure(kind)?;
            cell.samples.entry(kind).or_default().push(sample);
        }
    }
    Ok(cell)
}
