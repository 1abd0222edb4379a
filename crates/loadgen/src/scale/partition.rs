//! One partition with many entities: points, the first rows, and inserts.

use super::trial::{Trial, deep_pieces};
use crate::aims::Bound;
use crate::batch::Change;
use crate::call::create_table;
use crate::workload::{DATA, Operations, Workload};
use std::io;

pub(super) fn measure(trial: &mut Trial<'_>, rows: u64) -> io::Result<()> {
    create_table(trial.server.address(), DATA)?;
    let connections = trial.terms.connections;
    trial.fill("one partition", connections, Change::Upsert, deep_pieces(DATA, rows))?;
    trial.tell_memory("while loading one partition");
    let mut points = Operations::new(Workload::Deep, false, rows, DATA);
    trial.cost("point in one partition", &mut points)?;
    trial.top("$top=10 of one partition", DATA, 0, [Bound::None; 2])?;
    let inserts = Operations::new(Workload::Onepartition, false, rows, DATA);
    trial.cost("insert into one partition", &mut inserts.starting_at(rows))?;
    trial.tell_memory("while measuring one partition");
    Ok(())
}
