//! The product on PostgreSQL, and the load client that sends the same statements to the same database itself.
//!
//! Both work on one database that is made for the run, in turn: the direct client reads and changes the entities that
//! the server wrote, and each inserts into tables of its own. At the end the server must find what the direct client
//! wrote. The CPU time of the database is that of all its processes.

mod report;

use super::compare::{self, Cell, Contestant};
use super::machine::Machine;
use super::{Bench, MANY, Plan, page};
use crate::choice::Choice;
use crate::database::Database;
use crate::direct::DirectClient;
use crate::drive::Pace;
use crate::entity::Key;
use crate::measure::{Sample, measure_direct};
use crate::server::Kind;
use crate::workload::{DATA, Workload};
use report::Results;
use std::io;

/// Compares, prints and writes the results.
pub(super) fn compare(bench: &Bench) -> io::Result<()> {
    let plan = Plan::new(bench.quick, &bench.workloads);
    std::fs::create_dir_all(&bench.places.work)?;
    let machine = Machine::describe(&bench.places, None);
    eprintln!("starting PostgreSQL and the server, and loading {} entities ...", plan.entities);
    let mut both = Both::prepare(bench, &plan)?;
    let mut cells = Vec::new();
    for &workload in &plan.workloads {
        for &connections in &plan.connections {
            let cell = both.alternate(&plan, workload, connections)?;
            eprintln!("{}", page::progress(&cell));
            cells.push(cell);
        }
    }
    both.look_back()?;
    let database = both.database.describe();
    drop(both);
    let results = Results { machine, database, plan, cells };
    let (judged, tables) = (page::content(results.cells.iter()), report::plain(&results));
    bench.keep("-postgres", &results, judged, |old| report::page(&results, old), &tables)
}

/// Both contestants. Fields are dropped in their order: those who use the database before it.
struct Both {
    server: Contestant,
    client: DirectClient,
    database: Database,
    entities: u64,
    /// A table that the direct client has inserted into.
    inserted: Option<String>,
}

impl Both {
    fn prepare(bench: &Bench, plan: &Plan) -> io::Result<Self> {
        let database = Database::start(bench.places.runs())?;
        let mut arguments = vec!["--store".to_owned(), database.url().to_owned()];
        arguments.extend_from_slice(&bench.arguments);
        let recipe = bench.places.rowhouse(&arguments);
        let server = Contestant::prepare(recipe, bench.places.runs(), plan.entities)?;
        let server = server.with_database(database.pid());
        let client = DirectClient::open(database.url(), MANY)?;
        Ok(Self { server, client, database, entities: plan.entities, inserted: None })
    }

    fn alternate(
        &mut self,
        plan: &Plan,
        workload: Workload,
        connections: usize,
    ) -> io::Result<Cell> {
        let all = [Kind::Rowhouse, Kind::Direct];
        let kinds = if workload.has_statements() { &all[..] } else { &all[..1] };
        let cell = Cell::new(workload, connections);
        compare::in_turn(plan, cell, kinds, |kind| match kind {
            Kind::Direct => self.measure_direct(plan, workload, connections),
            _ => self.server.measure(workload, connections, plan.times(), Pace::Closed),
        })
    }

    fn measure_direct(
        &mut self,
        plan: &Plan,
        workload: Workload,
        connections: usize,
    ) -> io::Result<Sample> {
        let mut table = DATA.to_owned();
        if workload.inserts() {
            table = self.server.fresh_table()?;
            self.inserted = Some(table.clone());
        }
        let load = self.client.load(Choice::new(workload, self.entities, 0), DATA, &table)?;
        measure_direct(self.database.pid(), plan.times(), |length| {
            self.client.run(&load, connections, length)
        })
    }

    /// Reads through the server what the direct client wrote.
    fn look_back(&self) -> io::Result<()> {
        let Some(table) = &self.inserted else { return Ok(()) };
        // Every workload that inserts begins with this key.
        if self.server.has(table, Key { partition: 0, row: 0 })? {
            return Ok(());
        }
        Err(io::Error::other(format!("what was written directly into {table} cannot be read")))
    }
}
