//! Drops a table with half of all entities while clients read the other half, and waits for the space.

use super::trial::Trial;
use crate::aims::Bound;
use crate::batch::Change;
use crate::call::{create_table, drop_table};
use crate::drive::{Driver, Pace};
use crate::fill::pieces;
use crate::measure::{Sample, Spent};
use crate::workload::{DATA, Operations, Workload};
use std::io;
use std::time::{Duration, Instant};

const DROPPED: &str = "dropped";
/// Times the size without the dropped table at which its space counts as back.
const SPACE_BACK: f64 = 1.3;
/// Point reads per second meanwhile.
const READS: f64 = 500.0;
const SLICE: Duration = Duration::from_secs(1);

pub(super) fn measure(trial: &mut Trial<'_>, entities: u64) -> io::Result<()> {
    let (address, connections) = (trial.server.address(), trial.terms.connections);
    let kept = (entities / 2).max(1);
    create_table(address, DATA)?;
    trial.fill("table that stays", connections, Change::Upsert, pieces(DATA, 0, kept))?;
    let without = trial.disk().max(1) as f64;
    create_table(address, DROPPED)?;
    trial.fill("table to drop", connections, Change::Upsert, pieces(DROPPED, 0, kept))?;
    trial.report.fact("disk without the table to drop", without / 1e6, "MB");
    trial.report.fact("disk before the drop", trial.disk() as f64 / 1e6, "MB");
    let began = Instant::now();
    drop_table(address, DROPPED)?;
    trial.report.fact("drop answered within", began.elapsed().as_secs_f64() * 1e3, "ms");
    let mut driver = Driver::open(address, connections)?;
    let mut reads = Operations::new(Workload::Point, false, kept, "");
    let within = trial.terms.space_within;
    let mut start = Instant::now();
    let mut meanwhile = driver.run_since(start, &mut reads, SLICE, Pace::Rate(READS))?;
    while trial.disk() as f64 > without * SPACE_BACK && began.elapsed().as_secs_f64() < within {
        start += SLICE;
        meanwhile.add(&driver.run_since(start, &mut reads, SLICE, Pace::Rate(READS))?);
    }
    let took = began.elapsed().as_secs_f64();
    trial.report.aim("space back within", took, "s", Bound::AtMost(within));
    let ratio = trial.disk() as f64 / without;
    trial.report.aim("disk, of that without the table", ratio, "x", Bound::AtMost(SPACE_BACK));
    let sample = Sample::new(&meanwhile, Spent::default());
    trial.report.fact("point reads meanwhile: p50", sample.p50_ms, "ms");
    trial.report.fact("point reads meanwhile: p99", sample.p99_ms, "ms");
    trial.report.fact("point reads meanwhile: max", sample.max_ms, "ms");
    trial.tell_errors("point reads meanwhile", &sample);
    trial.tell_memory("with a table dropped");
    Ok(())
}
