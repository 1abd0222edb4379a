//! `loadgen overload`: what the server does with more clients than it can serve.
//!
//! A few healthy clients ask at a moderate, fixed rate all the time. Beside them come, in steps: connections that
//! do nothing, clients that send a byte a second, clients that ask as fast as they can, and eight writers to one
//! partition. For each step the report says what the healthy ones noticed, how much memory the server took
//! and how often it said that it is busy.
//!
//! Each group comes from an address of its own, so that limits per address do not hide the others.

use crate::batch::Change;
use crate::call::create_table;
use crate::chance::Chance;
use crate::connection::connect;
use crate::drive::{Driver, Pace, Script, Tally, Verdict};
use crate::fill::{fill, pieces};
use crate::measure::Sample;
use crate::process;
use crate::request::{JSON, Requests};
use crate::response::Answer;
use crate::sampler::Sampler;
use crate::server::Server;
use crate::text::{Table, count, figure, megabytes};
use crate::workload::{DATA, Operations, Workload};
use crate::{Failure, Places};
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

/// Entities in the table that everybody reads.
const ENTITIES: u64 = 10_000;
/// Idle connections from one address.
const IDLE_PER_ADDRESS: usize = 1000;
/// Pause of a trickling client between two bytes.
const TRICKLE: Duration = Duration::from_secs(1);
const HEALTHY_CONNECTIONS: usize = 8;
const HOT_WRITERS: usize = 8;

/// Measure what healthy clients notice of idle, slow and eager ones.
#[derive(Debug, clap::Args)]
pub(crate) struct Overload {
    /// Connections that do nothing after their first request.
    #[arg(long, value_name = "N", default_value_t = 5000)]
    idle: usize,

    /// Clients that send a byte a second.
    #[arg(long, value_name = "N", default_value_t = 500)]
    trickling: usize,

    /// Clients that ask as fast as they can: points, upserts and queries.
    #[arg(long, value_name = "N", default_value_t = 2000)]
    eager: usize,

    /// Operations per second of the healthy clients together: four reads to one upsert.
    #[arg(long, value_name = "N", default_value_t = 200.0)]
    rate: f64,

    /// Seconds for each step.
    #[arg(short, long, value_name = "S", default_value_t = 10.0)]
    seconds: f64,

    #[command(flatten)]
    places: Places,

    /// Further arguments of the server.
    #[arg(last = true)]
    arguments: Vec<String>,
}

impl Overload {
    pub(crate) fn run(self) -> Result<(), Failure> {
        self.all_steps().map_err(|fault| fault.to_string())
    }

    fn all_steps(&self) -> io::Result<()> {
        let needed = self.idle + self.trickling + self.eager + 200;
        let allowed = process::raise_file_limit();
        if allowed < needed as u64 {
            let words =
                format!("{needed} open files are needed, {allowed} are allowed (ulimit -n)");
            return Err(io::Error::other(words));
        }
        let server = Server::start(self.places.rowhouse(&self.arguments), self.places.runs())?;
        let address = server.address();
        create_table(address, DATA)?;
        fill(address, 8, Change::Upsert, pieces(DATA, 0, ENTITIES), |_| {})?;
        create_table(address, "hot")?;
        let mut report = Report {
            sampler: Sampler::watch(server.pid()),
            table: Table::new(&[
                "step",
                "healthy/s",
                "p50 ms",
                "p99 ms",
                "max ms",
                "refused",
                "errors",
                "memory",
                "others/s",
                "their 503",
                "their errors",
            ]),
        };
        let length = Duration::from_secs_f64(self.seconds);
        let alone = || Ok(Tally::default());
        report.step("healthy clients alone", self.healthy(address, length, alone)?);
        let idle = open_idle(address, self.idle)?;
        let step = format!("with {} idle connections", self.idle);
        report.step(&step, self.healthy(address, length, alone)?);
        let slow = || trickle(address, self.trickling, length);
        let step = format!("and {} trickling clients", self.trickling);
        let (healthy, slowed) = self.healthy(address, length, slow)?;
        report.step(&step, (healthy, Tally::default()));
        let cut_off = slowed.lost;
        let eager = || {
            thread::scope(|scope| {
                let slow = scope.spawn(|| trickle(address, self.trickling, length));
                let tally = be_eager(address, self.eager, length)?;
                slow.join().map_err(|_| io::Error::other("a thread has failed"))??;
                Ok(tally)
            })
        };
        let step = format!("and {} eager clients", self.eager);
        report.step(&step, self.healthy(address, length, eager)?);
        drop(idle);
        report.step("all of them gone", self.healthy(address, length, alone)?);
        let hot = || write_hot(address, length);
        let step = format!("with {HOT_WRITERS} writers to one partition");
        report.step(&step, self.healthy(address, length, hot)?);
        print!("{}", report.table.plain());
        println!(
            "\nmemory is anonymous memory, the most in the step; latencies count from when a request was due.\n\
             {} of {} trickling clients were cut off within {} s.",
            count(cut_off),
            self.trickling,
            figure(self.seconds)
        );
        Ok(())
    }

    /// Runs the healthy clients beside something else.
    fn healthy(
        &self,
        address: SocketAddrV4,
        length: Duration,
        others: impl Fn() -> io::Result<Tally> + Send,
    ) -> io::Result<(Tally, Tally)> {
        let rate = Pace::Rate(self.rate);
        thread::scope(|scope| {
            let others = scope.spawn(others);
            let mut driver = Driver::open(address, HEALTHY_CONNECTIONS)?;
            let mut operations = Operations::new(Workload::Mixed, false, ENTITIES, "");
            let tally = driver.run(&mut operations, length, rate)?;
            let others = others.join().map_err(|_| io::Error::other("a thread has failed"))??;
            Ok((tally, others))
        })
    }
}

struct Report {
    sampler: Sampler,
    table: Table,
}

impl Report {
    fn step(&mut self, step: &str, (healthy, others): (Tally, Tally)) {
        let sample = Sample::new(&healthy, Duration::ZERO, Duration::ZERO);
        let failed = |tally: &Tally| tally.wrong + tally.lost + tally.unsent;
        for fault in [&healthy.fault, &others.fault].into_iter().flatten() {
            eprintln!("{step}: {fault}");
        }
        self.table.push(vec![
            step.to_owned(),
            figure(sample.rate),
            figure(sample.p50_ms),
            figure(sample.p99_ms),
            figure(sample.max_ms),
            count(healthy.refused),
            count(failed(&healthy)),
            megabytes(self.sampler.take()),
            figure(others.rate()),
            count(others.refused),
            count(failed(&others)),
        ]);
        eprintln!("{step}: done");
    }
}

/// Opens connections, uses each once and leaves it open.
fn open_idle(address: SocketAddrV4, connections: usize) -> io::Result<Vec<Driver>> {
    let mut drivers = Vec::new();
    let mut left = connections;
    while left > 0 {
        let now = left.min(IDLE_PER_ADDRESS);
        let from = Ipv4Addr::new(127, 0, 1, 1 + drivers.len() as u8);
        let mut driver = Driver::open_from(address, Some(from), now)?;
        let points = Operations::new(Workload::Point, false, ENTITIES, "");
        let mut greeting = Greeting { points, left: now };
        let tally = driver.run(&mut greeting, Duration::from_mins(1), Pace::Closed)?;
        if tally.errors() > 0 {
            eprintln!("idle connections: {} first requests failed", tally.errors());
        }
        drivers.push(driver);
        left -= now;
    }
    Ok(drivers)
}

/// As many point reads as there are connections, so that each is used once.
struct Greeting {
    points: Operations,
    left: usize,
}

impl Script for Greeting {
    fn ask(&mut self, slot: usize, fresh: bool, to: &mut Requests, out: &mut Vec<u8>) -> bool {
        let some = self.left > 0 && self.points.ask(slot, fresh, to, out);
        self.left = self.left.saturating_sub(1);
        some
    }

    fn judge(&mut self, slot: usize, answer: &Answer<'_>) -> Verdict {
        self.points.judge(slot, answer)
    }
}

/// Clients that send a request a byte a second: every other one the head, the rest the body. Counts as lost those
/// that the server has closed.
fn trickle(address: SocketAddrV4, clients: usize, length: Duration) -> io::Result<Tally> {
    let from = Ipv4Addr::new(127, 0, 2, 1);
    let mut request = Vec::new();
    Requests::new(address).push(&mut request, "POST", b"/hot", b"", JSON, &[b' '; 4096]);
    let head = request.len() - 4096;
    let mut open: Vec<Option<(TcpStream, usize)>> = Vec::with_capacity(clients);
    for index in 0..clients {
        let mut stream = connect(address, Some(from))?;
        let start = if index % 2 == 0 { 0 } else { head };
        stream.write_all(&request[..start])?;
        open.push(Some((stream, start)));
    }
    let end = Instant::now() + length;
    let mut tally = Tally::default();
    while Instant::now() < end {
        for client in &mut open {
            let Some((stream, sent)) = client else { continue };
            let mut answer = [0; 512];
            let closed = matches!(stream.read(&mut answer), Ok(0));
            let byte = &request[*sent..(*sent + 1).min(request.len())];
            if closed || stream.write_all(byte).is_err() {
                tally.lost += 1;
                *client = None;
            } else {
                *sent = (*sent + 1).min(request.len());
            }
        }
        thread::sleep(TRICKLE.min(end.saturating_duration_since(Instant::now())));
    }
    Ok(tally)
}

fn be_eager(address: SocketAddrV4, clients: usize, length: Duration) -> io::Result<Tally> {
    let from = Ipv4Addr::new(127, 0, 3, 1);
    let mut driver = Driver::open_from(address, Some(from), clients)?;
    driver.run(&mut Eager::new(clients), length, Pace::Closed)
}

fn write_hot(address: SocketAddrV4, length: Duration) -> io::Result<Tally> {
    let from = Ipv4Addr::new(127, 0, 4, 1);
    let mut driver = Driver::open_from(address, Some(from), HOT_WRITERS)?;
    let mut inserts = Operations::new(Workload::Onepartition, false, ENTITIES, "hot");
    driver.run(&mut inserts, length, Pace::Closed)
}

/// Two upserts to one point read and one query.
struct Eager {
    kinds: [Operations; 3],
    chosen: Vec<usize>,
    chance: Chance,
}

impl Eager {
    fn new(clients: usize) -> Self {
        let kinds = [Workload::Upsert, Workload::Point, Workload::Range100];
        Self {
            kinds: kinds.map(|workload| Operations::new(workload, false, ENTITIES, "")),
            chosen: vec![0; clients],
            chance: Chance::new(7),
        }
    }
}

impl Script for Eager {
    fn ask(&mut self, slot: usize, fresh: bool, to: &mut Requests, out: &mut Vec<u8>) -> bool {
        if fresh {
            self.chosen[slot] = [0, 0, 1, 2][self.chance.below(4) as usize];
        }
        self.kinds[self.chosen[slot]].ask(slot, fresh, to, out)
    }

    fn judge(&mut self, slot: usize, answer: &Answer<'_>) -> Verdict {
        self.kinds[self.chosen[slot]].judge(slot, answer)
    }
}
