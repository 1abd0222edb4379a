//! Loads everything into partitions of a thousand rows; cost at several sizes, memory, disk, and a start.

use super::trial::Trial;
use crate::aims::Bound;
use crate::batch::Change;
use crate::call::create_table;
use crate::fill::{Loaded, pieces};
use crate::text::count;
use crate::workload::{DATA, Operations, Workload};
use std::io;

/// Sizes at which costs are measured before the full one.
const SIZES: [u64; 2] = [10_000, 1_000_000];
/// Time from a start to being ready, in milliseconds.
const READY_WITHIN: f64 = 300.0;
/// Times the CPU of a point read at the smallest size that one may take at the full size.
const POINT_GROWTH: f64 = 1.5;

pub(super) fn measure(trial: &mut Trial<'_>, entities: u64) -> io::Result<()> {
    create_table(trial.server.address(), DATA)?;
    let (mut loaded, mut inserted) = (Loaded::default(), 0);
    let mut point_costs = Vec::new();
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
            let sample = trial.cost(&format!("{name} at {at}"), &mut operations)?;
            if workload == Workload::Point {
                point_costs.push(sample.server_cpu_us);
            }
            inserted = operations.inserted();
        }
        trial.tell_memory(&format!("while measuring at {at}"));
    }
    if let [small, .., full] = point_costs[..] {
        let what = "point: server CPU at the full size, of that at the smallest";
        trial.report.aim(what, full / small, "x", Bound::AtMost(POINT_GROWTH));
    }
    let what = format!("{} entities", count(entities));
    trial.restart(&what, Bound::AtMost(READY_WITHIN))
}
