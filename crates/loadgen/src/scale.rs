//! `loadgen scale`: how cost, memory and disk grow with the number of entities, and how space comes back.
//!
//! Each part starts a server of its own on an empty directory, so any of them can be run alone. Sizes follow from the
//! number of entities: all of them for `size` and `drop`, a tenth for the others.

mod drop;
mod partition;
mod purge;
mod singles;
mod size;
mod tables;
mod trial;

use crate::aims::Report;
use crate::{Failure, Places};
use std::io;
use trial::Trial;

/// Measure how cost, memory and disk grow with size, with verdicts.
#[derive(Debug, clap::Args)]
pub(crate) struct Scale {
    /// Entities of about 400 bytes in all.
    #[arg(short, long, value_name = "N", default_value_t = 10_000_000)]
    entities: u64,

    /// What to measure; without it, everything.
    #[arg(long, value_name = "PARTS", value_delimiter = ',', value_enum)]
    parts: Vec<Part>,

    /// Seconds for each measurement.
    #[arg(short, long, value_name = "S", default_value_t = 5.0)]
    seconds: f64,

    /// Connections.
    #[arg(short, long, value_name = "N", default_value_t = 16)]
    connections: usize,

    /// Cache of the server, in MiB; its memory must stay below this and 150 MB.
    #[arg(long, value_name = "MIB", default_value_t = 128)]
    cache_mib: u64,

    /// Seconds within which the space of a dropped table should be back.
    #[arg(long, value_name = "S", default_value_t = 300.0)]
    space_within: f64,

    #[command(flatten)]
    places: Places,

    /// Further arguments of the server.
    #[arg(last = true)]
    arguments: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// Load everything; cost, memory, disk and start at several sizes.
    Size,
    /// Drop a table with half of all entities while clients read.
    Drop,
    /// Thousands of tables.
    Tables,
    /// Partitions of one entity each.
    Singles,
    /// One partition with many entities.
    Partition,
    /// Delete the first half of a partition and read on from its start.
    Purge,
}

impl Part {
    const ALL: [Self; 6] =
        [Self::Size, Self::Drop, Self::Tables, Self::Singles, Self::Partition, Self::Purge];
}

impl Scale {
    pub(crate) fn run(self) -> Result<(), Failure> {
        self.all_parts().map_err(|fault| fault.to_string())
    }

    fn all_parts(&self) -> io::Result<()> {
        let parts = if self.parts.is_empty() { &Part::ALL[..] } else { &self.parts };
        let mut report = Report::default();
        let tenth = (self.entities / 10).max(1);
        for part in parts {
            let mut trial = Trial::start(self, &mut report)?;
            match part {
                Part::Size => size::measure(&mut trial, self.entities)?,
                Part::Drop => drop::measure(&mut trial, self.entities)?,
                Part::Tables => tables::measure(&mut trial, (self.entities / 2000).max(1))?,
                Part::Singles => singles::measure(&mut trial, tenth)?,
                Part::Partition => partition::measure(&mut trial, tenth)?,
                Part::Purge => purge::measure(&mut trial, tenth)?,
            }
        }
        report.conclude(&self.places.result("scale"))
    }
}
