//! Deletes the first half of a large partition, then reads from its start.

use super::trial::{Trial, deep_pieces};
use crate::aims::Bound;
use crate::batch::Change;
use crate::call::create_table;
use std::io;

/// Time in which the first rows should come, in milliseconds: the first time, when the pages on the way may not be in memory,
/// and later.
const TOP_WITHIN: f64 = 5.0;

pub(super) fn measure(trial: &mut Trial<'_>, rows: u64) -> io::Result<()> {
    create_table(trial.server.address(), "purged")?;
    let (connections, half) = (trial.terms.connections, rows / 2);
    trial.fill("partition to purge", connections, Change::Upsert, deep_pieces("purged", rows))?;
    trial.fill("purging half", connections, Change::Delete, deep_pieces("purged", half))?;
    let bounds = [TOP_WITHIN; 2].map(Bound::AtMost);
    trial.top("$top=10 of a purged partition", "purged", half, bounds)?;
    trial.tell_memory("after a purge");
    Ok(())
}
