//! `loadgen latency`: how long answers take at a share of what the server can do.
//!
//! The full rate of point reads and of writes is measured first, each connection asking as fast as it gets
//! answers. Then requests are sent on a schedule at a share of that rate, whatever the answers do, and each
//! latency counts from when its request was due.
//!
//! The verdicts are over everything; beside them stands how evenly the machine ran before and after, what its host took, and
//! what the latencies were while it took next to nothing.

use crate::aims::{Bound, Report};
use crate::batch::Change;
use crate::call::create_table;
use crate::drive::Pace;
use crate::fill::{fill, pieces};
use crate::measure::{Sample, Terms, measure};
use crate::server::Server;
use crate::steady::{Schedule, Steady};
use crate::workload::{DATA, Operations, Workload};
use crate::{Failure, Places, even, host};
use std::io;
use std::time::Duration;

/// Seconds for which the full rate is measured.
const FULL_SECONDS: f64 = 5.0;
/// How long the speed of the machine is looked at.
const EVEN: Duration = Duration::from_secs(10);
const WARM_UP: Duration = Duration::from_millis(500);
/// Share of the scheduled rate that must be answered for the latencies to mean something.
const RATE_KEPT: f64 = 0.98;
/// Length of the pieces of which each is told apart by what the host took, in seconds.
const PIECE_SECONDS: f64 = 10.0;
/// Aims, in milliseconds.
const POINT_P99: f64 = 2.0;
const WRITE_P99: f64 = 10.0;
const WRITE_P999: f64 = 50.0;
const WRITE_MAX: f64 = 1000.0;

/// Measure latencies at a fixed share of the full rate, with verdicts.
#[derive(Debug, clap::Args)]
pub(crate) struct Latency {
    /// What to measure, one after the other: reads of one entity, or writes of one.
    #[arg(value_name = "WORKLOADS", value_enum, default_values_t = [Workload::Point, Workload::Upsert, Workload::Insert])]
    workloads: Vec<Workload>,

    /// Share of the full rate, in percent.
    #[arg(long, value_name = "PERCENT", default_value_t = 60.0)]
    share: f64,

    /// Connections.
    #[arg(short, long, value_name = "N", default_value_t = 16)]
    connections: usize,

    /// Seconds for each kind of operation.
    #[arg(short, long, value_name = "S", default_value_t = 60.0)]
    seconds: f64,

    /// Entities in the table that is read and changed.
    #[arg(short, long, value_name = "N", default_value_t = 100_000)]
    entities: u64,

    #[command(flatten)]
    places: Places,

    /// Further arguments of the server.
    #[arg(last = true)]
    arguments: Vec<String>,
}

impl Latency {
    pub(crate) fn run(self) -> Result<(), Failure> {
        self.measure().map_err(|fault| fault.to_string())
    }

    fn measure(&self) -> io::Result<()> {
        let server = Server::start(self.places.rowhouse(&self.arguments), self.places.runs())?;
        create_table(server.address(), DATA)?;
        fill(server.address(), 8, Change::Upsert, pieces(DATA, 0, self.entities), |_| {})?;
        let mut report = Report::default();
        host::tell_idle(&mut report);
        even::tell("before", EVEN, &mut report);
        for &workload in &self.workloads {
            let sample = self.steady(&server, workload, &mut report)?;
            let mut aim = |what: &str, value, most| {
                report.aim(format!("{workload} {what}"), value, "ms", Bound::AtMost(most));
            };
            if workload == Workload::Point {
                aim("p99", sample.p99_ms, POINT_P99);
                continue;
            }
            aim("p99", sample.p99_ms, WRITE_P99);
            aim("p99.9", sample.p999_ms, WRITE_P999);
            aim("max", sample.max_ms, WRITE_MAX);
        }
        even::tell("after", EVEN, &mut report);
        report.conclude(&self.places.result("latency"))
    }

    /// Measures the full rate, then the latencies at the share of it.
    fn steady(
        &self,
        server: &Server,
        workload: Workload,
        report: &mut Report,
    ) -> io::Result<Sample> {
        let table = "latency";
        if workload.inserts() {
            create_table(server.address(), table)?;
        }
        let mut operations = Operations::new(workload, false, self.entities, table);
        let terms = |seconds, pace| Terms {
            address: server.address(),
            pid: Some(server.pid()),
            database: None,
            connections: self.connections,
            warm_up: WARM_UP,
            length: Duration::from_secs_f64(seconds),
            pace,
        };
        let full = terms(FULL_SECONDS.min(self.seconds), Pace::Closed);
        let (_, full) = measure(&full, &mut operations)?;
        let rate = full.rate * self.share / 100.0;
        let steady = self.on_schedule(server, rate, &mut operations)?;
        let sample = steady.sample();
        report.fact(format!("{workload} full rate"), full.rate, "/s");
        let kept = Bound::AtLeast(rate * RATE_KEPT);
        report.aim(format!("{workload} rate"), sample.rate, "/s", kept);
        report.fact(format!("{workload} p50"), sample.p50_ms, "ms");
        let errors = (full.errors + sample.errors) as f64;
        report.aim(format!("{workload} errors"), errors, "", Bound::AtMost(0.0));
        for fault in [&full.fault, &sample.fault].into_iter().flatten() {
            eprintln!("{workload}: {fault}");
        }
        steady.tell(workload.name(), report);
        Ok(sample)
    }

    /// Asks at a fixed rate, piece by piece on one schedule.
    fn on_schedule(
        &self,
        server: &Server,
        rate: f64,
        operations: &mut Operations,
    ) -> io::Result<Steady> {
        let pieces = (self.seconds / PIECE_SECONDS).round().max(1.0);
        let length = Duration::from_secs_f64(self.seconds / pieces);
        let schedule = Schedule::begin(server.address(), self.connections, rate, length)?;
        let mut left = pieces as u32;
        schedule.until(operations, || {
            left -= 1;
            left == 0
        })
    }
}
