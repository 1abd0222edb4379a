//! `loadgen index`: what a secondary index saves a query, what building one does to others, and what keeping it costs.
//!
//! A server is filled, and single entities are looked up by a property that is not part of their keys: by reading the
//! whole table first, and through an index afterwards, by this client and by the official Python SDK. The index is made
//! with the product's own command while clients read and write at fixed rates. On a server of its own, entities are
//! inserted into tables with and without indexes, in turn. CPU time is that of the server, and on PostgreSQL that of
//! all processes of the database too.

mod build;
mod inserts;
mod lookups;
mod plan;
mod sdk;
mod site;
mod writes;

use crate::aims::{Bound, Report};
use crate::text::count;
use crate::{Failure, Places};
use lookups::Seen;
use site::Site;
use std::io;
use std::path::PathBuf;

/// The property by which entities are looked up: each has a value of its own.
const PROPERTY: &str = "Name";
/// Times the CPU time of a query through the index that one without it should take at least.
const SAVED: f64 = 1000.0;
/// Entries that a query may look at beyond those that match.
const BEYOND: f64 = 1.0;

/// Measure what an index saves and what it costs, with verdicts.
#[derive(Debug, clap::Args)]
pub(crate) struct Measure {
    /// Entities of about 400 bytes.
    #[arg(short, long, value_name = "N", default_value_t = 1_000_000)]
    entities: u64,

    /// What to measure; without it, everything.
    #[arg(long, value_name = "PARTS", value_delimiter = ',', value_enum)]
    parts: Vec<Part>,

    /// Where Rowhouse keeps its data.
    #[arg(long, value_enum, default_value_t = Engine::Embedded)]
    store: Engine,

    /// Queries through the index.
    #[arg(long, value_name = "N", default_value_t = 2000)]
    queries: u64,

    /// Point reads per second, with and without a build.
    #[arg(long, value_name = "N", default_value_t = 1000.0)]
    reads: f64,

    /// Writes per second, with and without a build.
    #[arg(long, value_name = "N", default_value_t = 200.0)]
    writes: f64,

    /// Seconds of reading and writing before the build.
    #[arg(short, long, value_name = "S", default_value_t = 20.0)]
    seconds: f64,

    /// Seconds for each measurement of inserts.
    #[arg(long, value_name = "S", default_value_t = 3.0)]
    insert_seconds: f64,

    /// A Python that has the official SDK; without it, that part is left out.
    #[arg(long, value_name = "FILE", default_value = ".work/venv/bin/python")]
    python: PathBuf,

    #[command(flatten)]
    places: Places,

    /// Further arguments of the server.
    #[arg(last = true)]
    arguments: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// A query before and after an index is made, and what others notice of its making.
    Query,
    /// What an insert costs with none, one and three indexes.
    Insert,
}

/// Where Rowhouse keeps its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Engine {
    /// In a directory.
    Embedded,
    /// In a PostgreSQL that is made for the run.
    Postgres,
}

impl Measure {
    pub(crate) fn run(self) -> Result<(), Failure> {
        self.all_parts().map_err(|fault| fault.to_string())
    }

    fn all_parts(&self) -> io::Result<()> {
        let mut report = Report::default();
        let wanted = |part| self.parts.is_empty() || self.parts.contains(&part);
        if wanted(Part::Query) {
            self.measure_query(&mut report)?;
        }
        if wanted(Part::Insert) {
            inserts::measure(&Site::start(self)?, &mut report)?;
        }
        report.conclude(&self.places.result("index"))
    }

    fn measure_query(&self, report: &mut Report) -> io::Result<()> {
        let site = Site::start(self)?;
        site.fill(report)?;
        site.settle();
        let before = lookups::by_scan(&site)?;
        tell_queries("without an index", &before, report);
        let sdk_before = sdk::by_scan(&site)?;
        build::measure(&site, report)?;
        site.settle();
        let after = lookups::by_index(&site)?;
        tell_queries("through the index", &after, report);
        let missed = after.pages - after.pages_by_index;
        report.aim("pages not read through the index", missed as f64, "", Bound::AtMost(0.0));
        let beyond = after.most_beyond as f64;
        report.aim("examined beyond what matches, most", beyond, "", Bound::AtMost(BEYOND));
        let saved = before.cpu_us / after.cpu_us;
        let what = "CPU of a query without an index, of that through it";
        report.aim(what, saved, "x", Bound::AtLeast(SAVED));
        sdk::tell(sdk_before, sdk::by_index(&site)?, report);
        Ok(())
    }
}

fn tell_queries(how: &str, seen: &Seen, report: &mut Report) {
    let what = format!("query by {PROPERTY} {how}");
    eprintln!("{what}: {} queries, planned as {}", count(seen.queries), seen.plans());
    let each = |all: u64| all as f64 / seen.queries.max(1) as f64;
    report.fact(format!("{what}: pages"), each(seen.pages), "");
    report.fact(format!("{what}: examined"), each(seen.examined), "");
    report.fact(format!("{what}: median"), seen.median_ms, "ms");
    report.fact(format!("{what}: CPU"), seen.cpu_us, "us");
    if let Some(fault) = &seen.fault {
        eprintln!("{what}: {fault}");
    }
    report.aim(format!("{what}: errors"), seen.errors as f64, "", Bound::AtMost(0.0));
}
