//! Partitions of one entity each.

use super::trial::Trial;
use crate::aims::Bound;
use crate::batch::Change;
use crate::call::create_table;
use crate::entity::Key;
use crate::fill::Piece;
use std::io;

/// Connections that insert single entities.
const CONNECTIONS: usize = 64;

pub(super) fn measure(trial: &mut Trial<'_>, partitions: u64) -> io::Result<()> {
    create_table(trial.server.address(), "singles")?;
    let all = (0..partitions).map(|partition| Piece {
        table: "singles".into(),
        first: Key { partition, row: 0 },
        count: 1,
    });
    let loaded = trial.fill("partitions of one", CONNECTIONS, Change::Upsert, all)?;
    let each = trial.disk() as f64 / loaded.bytes.max(1) as f64;
    trial.report.fact("partitions of one: disk bytes per byte of JSON", each, "");
    trial.tell_memory("with partitions of one");
    trial.restart("partitions of one", Bound::None)
}
