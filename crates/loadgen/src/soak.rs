//! `loadgen soak`: mixed load at a fixed rate for hours, and whether the server stays as it was.
//!
//! Every interval tells what clients noticed and what the server holds. In the end the last quarter of the time is
//! compared with the second: memory, files and latencies must not have grown beyond stated bounds. Every answer
//! is checked against what was written.

mod mix;
mod quarter;
mod ring;

use crate::batch::Change;
use crate::batch::OPERATIONS;
use crate::call::create_table;
use crate::drive::{Driver, Pace, Tally};
use crate::entity::Key;
use crate::fill::{Piece, fill, pieces};
use crate::histogram::Histogram;
use crate::host::Taken;
use crate::process;
use crate::sampler::Sampler;
use crate::server::Server;
use crate::text::{figure, megabytes};
use crate::workload::DATA;
use crate::{Failure, Places};
use mix::{BATCHES, CHURN, Mix};
use quarter::Interval;
use std::io;
use std::time::{Duration, Instant};

/// Rows that are kept in the table of single inserts and deletes.
const CHURN_ROWS: u64 = 10_000;
/// Partitions of a hundred rows that are kept in the table of batches.
const BATCH_PARTITIONS: u64 = 100;
/// Longest interval, and the least number of them.
const MINUTE: f64 = 60.0;
const INTERVALS: f64 = 12.0;

/// Run mixed load for hours and see whether memory, files and latencies stay flat.
#[derive(Debug, clap::Args)]
pub(crate) struct Soak {
    /// Hours to run.
    #[arg(long, value_name = "N", default_value_t = 2.0)]
    hours: f64,

    /// Seconds to run, instead of hours.
    #[arg(short, long, value_name = "S", conflicts_with = "hours")]
    seconds: Option<f64>,

    /// Operations per second; a batch of 100 is one.
    #[arg(short, long, value_name = "N", default_value_t = 1000.0)]
    rate: f64,

    /// Connections.
    #[arg(short, long, value_name = "N", default_value_t = 16)]
    connections: usize,

    /// Entities in the table that is read and changed.
    #[arg(short, long, value_name = "N", default_value_t = 100_000)]
    entities: u64,

    #[command(flatten)]
    places: Places,

    /// Further arguments of the server.
    #[arg(last = true)]
    arguments: Vec<String>,
}

impl Soak {
    pub(crate) fn run(self) -> Result<(), Failure> {
        self.soak().map_err(|fault| fault.to_string())
    }

    fn soak(&self) -> io::Result<()> {
        let server = Server::start(self.places.rowhouse(&self.arguments), self.places.runs())?;
        let mut mix = self.prepare(&server)?;
        let mut watch = Watch::new(&server);
        let mut driver = Driver::open(server.address(), self.connections)?;
        let seconds = self.seconds.unwrap_or(3600.0 * self.hours);
        let each = MINUTE.min(seconds / INTERVALS);
        let (length, begin) = (Duration::from_secs_f64(each), Instant::now());
        let mut intervals = Vec::new();
        for index in 0..(seconds / each).round() as u32 {
            let pace = Pace::Rate(self.rate);
            let tally = driver.run_since(begin + length * index, &mut mix, length, pace)?;
            let interval = watch.interval(tally, length);
            println!("{}", line(begin.elapsed(), &interval));
            intervals.push(interval);
        }
        quarter::report(&intervals, self.rate).conclude(&self.places.result("soak"))
    }

    /// Fills the three tables to the size that they keep.
    fn prepare(&self, server: &Server) -> io::Result<Mix> {
        let address = server.address();
        for table in [DATA, CHURN, BATCHES] {
            create_table(address, table)?;
        }
        fill(address, 8, Change::Upsert, pieces(DATA, 0, self.entities), |_| {})?;
        fill(address, 8, Change::Upsert, pieces(CHURN, 0, CHURN_ROWS), |_| {})?;
        let batches = (0..BATCH_PARTITIONS).map(|partition| Piece {
            table: BATCHES.into(),
            first: Key { partition, row: 0 },
            count: OPERATIONS,
        });
        fill(address, 8, Change::Upsert, batches, |_| {})?;
        Ok(Mix::new(self.entities, CHURN_ROWS, BATCH_PARTITIONS))
    }
}

/// What is looked at beside the answers.
struct Watch<'a> {
    server: &'a Server,
    memory: Sampler,
    wal: Sampler,
    taken: Taken,
}

impl<'a> Watch<'a> {
    fn new(server: &'a Server) -> Self {
        let wal = server.data().join("rowhouse.db-wal");
        let memory = Sampler::watch(server.pid());
        let wal = Sampler::of(move || process::file_bytes(&wal));
        Self { server, memory, wal, taken: Taken::now() }
    }

    fn interval(&mut self, tally: Tally, length: Duration) -> Interval {
        let (taken, _) = std::mem::replace(&mut self.taken, Taken::now()).percents_since();
        Interval {
            tally,
            length,
            taken,
            memory: self.memory.take(),
            wal: self.wal.take(),
            database: process::file_bytes(&self.server.data().join("rowhouse.db")),
            files: process::open_files(self.server.pid()),
        }
    }
}

fn line(passed: Duration, interval: &Interval) -> String {
    let latencies = |latency: &Histogram| {
        let ms = |time: Duration| figure(time.as_secs_f64() * 1e3);
        let [p50, p99, p999] = [0.5, 0.99, 0.999].map(|share| ms(latency.quantile(share)));
        format!("{p50}/{p99}/{p999}/{}", ms(latency.largest()))
    };
    let Interval { tally, taken, memory, wal, database, files, .. } = interval;
    let fault = tally.fault.as_ref().map(|words| format!("  {words}")).unwrap_or_default();
    format!(
        "{:>6.0} s  {} ops/s  reads p50/p99/p99.9/max {} ms  writes {} ms  errors {}  memory {}  WAL {}  \
         database {}  files {files}  host took {} %{fault}",
        passed.as_secs_f64(),
        figure(interval.rate()),
        latencies(&tally.reads),
        latencies(&tally.writes),
        tally.errors(),
        megabytes(*memory),
        megabytes(*wal),
        megabytes(*database),
        figure(*taken),
    )
}
