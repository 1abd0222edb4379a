//! `loadgen run`: workloads one after the other on one server, for profiling, soaking and trying things out.

use crate::batch::Change;
use crate::call::create_table;
use crate::drive::{Driver, Pace, Tally};
use crate::fill::{fill, pieces};
use crate::histogram::Histogram;
use crate::measure::{Sample, Spent};
use crate::process;
use crate::server::{Recipe, Server, Service};
use crate::text::{Table, count, figure, megabytes};
use crate::workload::{DATA, Operations, Workload};
use crate::{Failure, Places};
use std::io;
use std::net::SocketAddrV4;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

/// Measure workloads on one server.
#[derive(Debug, clap::Args)]
pub(crate) struct Run {
    /// Workloads, one after the other. Default: all that are compared.
    #[arg(value_enum)]
    workloads: Vec<Workload>,

    /// Connections.
    #[arg(short, long, value_name = "N", default_value_t = 16)]
    connections: usize,

    /// Seconds for each workload.
    #[arg(short, long, value_name = "S", default_value_t = 5.0)]
    seconds: f64,

    /// Seconds before each that do not count.
    #[arg(long, value_name = "S", default_value_t = 0.5)]
    warm_up: f64,

    /// Operations per second; without it, as many as the server takes.
    #[arg(short, long, value_name = "N")]
    rate: Option<f64>,

    /// Print a line each time so many seconds have passed: latencies, memory and disk.
    #[arg(long, value_name = "S")]
    every: Option<f64>,

    /// Entities in the table that is read and changed.
    #[arg(short, long, value_name = "N", default_value_t = 10_000)]
    entities: u64,

    /// Use a server that runs already, with the development account, instead of starting one.
    #[arg(long, value_name = "HOST:PORT")]
    address: Option<SocketAddrV4>,

    /// Process of that server, for its CPU time and memory.
    #[arg(long, value_name = "PID", requires = "address")]
    pid: Option<u32>,

    /// Measure the server that only answers.
    #[arg(long, conflicts_with_all = ["address", "peer"])]
    bare: bool,

    /// Measure the peer that is installed in this directory.
    #[arg(long, value_name = "DIR", conflicts_with = "address")]
    peer: Option<PathBuf>,

    #[command(flatten)]
    places: Places,

    /// Further arguments of the server.
    #[arg(last = true)]
    arguments: Vec<String>,
}

impl Run {
    pub(crate) fn run(self) -> Result<(), Failure> {
        self.measure().map_err(|fault| fault.to_string())
    }

    fn measure(&self) -> io::Result<()> {
        let recipe = match (&self.peer, self.bare) {
            (Some(installed), _) => {
                Recipe::Peer { installed: installed.clone(), service: Service::Table }
            }
            (None, true) => Recipe::Bare,
            (None, false) => self.places.rowhouse(&self.arguments),
        };
        let server = match self.address {
            Some(_) => None,
            None => Some(Server::start(recipe, self.places.runs())?),
        };
        let address = self.address.or(server.as_ref().map(Server::address));
        let address = address.expect("there is an address or a server");
        let pid = self.pid.or(server.as_ref().map(Server::pid));
        if !self.bare {
            create_table(address, DATA)?;
            fill(address, 8, Change::Upsert, pieces(DATA, 0, self.entities), |_| {})?;
        }
        let all = if self.workloads.is_empty() { &Workload::COMPARED[..] } else { &self.workloads };
        let mut table = Table::new(&[
            "workload",
            "conn",
            "ops/s",
            "server us",
            "client us",
            "p50 ms",
            "p99 ms",
            "p99.9 ms",
            "max ms",
            "errors",
        ]);
        let mut fault = None;
        for &workload in all.iter().filter(|workload| !self.bare || workload.has_limit()) {
            let sample = self.measure_one(workload, address, pid, server.as_ref())?;
            table.push(vec![
                workload.to_string(),
                self.connections.to_string(),
                figure(sample.rate),
                figure(sample.server_cpu_us),
                figure(sample.client_cpu_us),
                figure(sample.p50_ms),
                figure(sample.p99_ms),
                figure(sample.p999_ms),
                figure(sample.max_ms),
                count(sample.errors),
            ]);
            if sample.errors > 0 {
                let words =
                    sample.fault.unwrap_or_else(|| "requests were refused or late".to_owned());
                fault.get_or_insert(words);
            }
        }
        print!("{}", table.plain());
        fault.map_or(Ok(()), |words| Err(io::Error::other(words)))
    }

    fn measure_one(
        &self,
        workload: Workload,
        address: SocketAddrV4,
        pid: Option<u32>,
        server: Option<&Server>,
    ) -> io::Result<Sample> {
        let table = fresh_name(workload);
        if workload.inserts() && !self.bare {
            create_table(address, &table)?;
        }
        let mut operations = Operations::new(workload, self.bare, self.entities, &table);
        let mut driver = Driver::open(address, self.connections)?;
        let pace = self.rate.map_or(Pace::Closed, Pace::Rate);
        let mut total = driver.run(&mut operations, Duration::from_secs_f64(self.warm_up), pace)?;
        // Of the warm-up only what went wrong counts.
        total = Tally {
            operations: 0,
            elapsed: Duration::ZERO,
            reads: Histogram::default(),
            writes: Histogram::default(),
            ..total
        };
        let began = Instant::now();
        let before = Spent::so_far(pid, None);
        let length = Duration::from_secs_f64(self.seconds);
        while began.elapsed() < length {
            let left = length.saturating_sub(began.elapsed());
            let slice = self.every.map_or(left, |every| left.min(Duration::from_secs_f64(every)));
            let tally = driver.run(&mut operations, slice, pace)?;
            total.add(&tally);
            if self.every.is_some() {
                tell(workload, began.elapsed(), &tally, pid, server);
            }
        }
        Ok(Sample::new(&total, Spent::so_far(pid, None).since(before)))
    }
}

/// A table name that no earlier run has used.
fn fresh_name(workload: Workload) -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    format!("{workload}{}", now.as_nanos())
}

fn tell(
    workload: Workload,
    passed: Duration,
    tally: &Tally,
    pid: Option<u32>,
    server: Option<&Server>,
) {
    let sample = Sample::new(tally, Spent::default());
    let memory =
        pid.map_or_else(|| "?".to_owned(), |pid| megabytes(process::anonymous_memory(pid)));
    let disk = server
        .map_or_else(|| "?".to_owned(), |server| megabytes(process::disk_bytes(&server.data())));
    println!(
        "{:>6.0} s  {workload}  {} ops/s  p50 {}  p99 {}  p99.9 {}  max {} ms  errors {}  \
         memory {memory}  disk {disk}",
        passed.as_secs_f64(),
        figure(sample.rate),
        figure(sample.p50_ms),
        figure(sample.p99_ms),
        figure(sample.p999_ms),
        figure(sample.max_ms),
        sample.errors,
    );
}
