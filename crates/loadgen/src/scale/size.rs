//! Loads everything into partitions of a thousand rows; cost at several sizes, memory, disk, and a start.

use super::trial::Trial;
use crate::batch::Change;
use crate::call::create_table;
use crate::fill::{Loaded, pieces};
use crate::text::count;
use crate::workload::{DATA, Operations, Workload};
use std::io;

/// Sizes at which costs are measured before the full one.
const SIZES: [u64; 2] = [10_000, 1_000_000];

pub(super) fn measure(trial: &mut Trial<'_>, entities: u64) -> io::Result<()> {
    create_table(trial.server.address(), DATA)?;
    let (mut loaded, mut inserted) = (Loaded::default(), 0);
    for size in SIZES.into_iter().filter(|&size| size < entities).chain([entities]) {
        let more = pieces(DATA, loaded.entities, size);
        loaded.add(trial.fill("loading", trial.terms.connections, Change::Upsert, more)?);
        let at = count(size);
        trial.tell_memory(&format!("while loading {at}"));
        if size == entities {
            let each = trial.disk() as f64 / loaded.bytes.max(1) as f64;
            trial.report.fact("disk bytes per byte of JSON", each, "");
        }
        for (workload, name) in [(Workload::Point, "point"), (Workload::Spread, "insert")] {
            let operations = Operations::new(workload, false, size, DATA);
            let mut operations = operations.starting_at(inserted);
            trial.cost(&format!("{name} at {at}"), &mut operations)?;
            inserted = operations.inserted();
        }
        trial.tell_memory(&format!("while measuring at {at}"));
    }
    trial.restart(&format!("{} entities", count(entities)))
}
