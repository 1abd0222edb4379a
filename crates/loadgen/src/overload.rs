//! `loadgen overload`: what the server does with more clients than it can serve.
//!
//! A few healthy clients ask at a moderate, fixed rate all the time, on connections that stay open. Beside them come,
//! phase by phase: connections that do nothing, clients that send a byte a second, clients that ask as fast as
//! they can, and more connections than the server allows. Then writers to many partitions are measured without
//! and with others that write to a single one, and reads and writes of single entities without and with others that
//! scan the whole table. Each phase tells what the healthy ones noticed, and how much memory the server took.
//!
//! Each group comes from addresses of its own, so that limits per address do not hide the others.

pub(crate) mod crowd;
mod eager;
mod hot;
mod scans;
pub(crate) mod steady;
mod trickle;

use crate::aims::{Bound, Report};
use crate::batch::Change;
use crate::call::create_table;
use crate::drive::Tally;
use crate::entity::ROWS;
use crate::fill::{fill, pieces};
use crate::process;
use crate::sampler::Sampler;
use crate::server::Server;
use crate::text::count;
use crate::workload::{DATA, Operations, Workload};
use crate::{Failure, Places};
use crowd::Crowd;
use eager::Eager;
use rowhouse_types::limits::CONNECTIONS_MAX;
use std::io;
use std::thread;
use std::time::Duration;
use steady::{Noticed, Steady};
use trickle::Trickle;

/// Entities in the table that everybody reads and changes.
const ENTITIES: u64 = 10_000;
const HEALTHY_CLIENTS: usize = 16;
/// How long the healthy clients use all their connections beforehand.
const WARM_UP: Duration = Duration::from_millis(200);
/// Writers to one partition, and as many to others.
const WRITERS: usize = 8;
/// A partition that nobody else writes to.
const HOT_PARTITION: u64 = ENTITIES / ROWS;
/// Connections beyond those that the server allows.
const EXCESS: usize = 500;
/// Files that this process needs beside connections.
const OTHER_FILES: usize = 100;

/// Networks (127.0.N.0) that the groups come from.
const IDLE_NETWORK: u8 = 1;
const TRICKLING_NETWORK: u8 = 2;
const EAGER_NETWORK: u8 = 3;
const EXCESS_NETWORK: u8 = 4;
const HOT_NETWORK: u8 = 5;
const SCANNING_NETWORK: u8 = 6;

/// Least share of their rate that healthy clients get beside those that ask for little, in percent: less than
/// [`SERVED`], because a single answer that is late at the end lowers it.
const SHARE: f64 = 90.0;
/// Least share of their requests that healthy clients are served, in percent.
const SERVED: f64 = 99.0;
/// The same beside eager clients. They use the same account, and more of them ask at a time than it may have requests
/// worked on: whoever comes then is refused, healthy or not. It was 97.6 when this was set.
const EAGER_SERVED: f64 = 90.0;
/// Longest p99 of healthy clients beside eager ones, in milliseconds.
const EAGER_P99: f64 = 1000.0;
/// How many times longer the p99 of writers may be beside a hot partition, and what is always allowed, in
/// milliseconds.
const HOT_P99_TIMES: f64 = 10.0;
const HOT_P99: f64 = 50.0;
/// The same of reads and of writes beside scans.
const SCANS_P99_TIMES: f64 = 3.0;
const SCANS_P99: f64 = 10.0;
/// Times the rate of healthy clients at which single entities are read and written beside scans: 99th percentiles need
/// some to choose from.
const SCANS_RATE_TIMES: f64 = 4.0;

/// Measure what healthy clients notice of idle, slow and eager ones, with verdicts.
#[derive(Debug, clap::Args)]
pub(crate) struct Overload {
    /// Connections that do nothing after their first request.
    #[arg(long, value_name = "N", default_value_t = 5000)]
    idle: usize,

    /// Clients that send a byte a second.
    #[arg(long, value_name = "N", default_value_t = 500)]
    trickling: usize,

    /// Clients that ask as fast as they can: upserts, points and queries.
    #[arg(long, value_name = "N", default_value_t = 2000)]
    eager: usize,

    /// Clients that scan the whole table as fast as they can.
    #[arg(long, value_name = "N", default_value_t = 16)]
    scanning: usize,

    /// Entities in the table that is scanned.
    #[arg(long, value_name = "N", default_value_t = 200_000)]
    scanned: u64,

    /// Requests per second of the healthy clients together: four reads to one upsert. So few that 16 connections
    /// suffice even if each answer takes a quarter of a second.
    #[arg(long, value_name = "N", default_value_t = 50.0)]
    rate: f64,

    /// Seconds for each phase.
    #[arg(short, long, value_name = "S", default_value_t = 10.0)]
    seconds: f64,

    /// Cache of the server, in MiB; its memory must stay below this and 150 MB.
    #[arg(long, value_name = "MIB", default_value_t = 128)]
    cache_mib: u64,

    /// Connections that the server allows.
    #[arg(long, value_name = "N", default_value_t = CONNECTIONS_MAX)]
    max_connections: usize,

    #[command(flatten)]
    places: Places,

    /// Further arguments of the server.
    #[arg(last = true)]
    arguments: Vec<String>,
}

impl Overload {
    pub(crate) fn run(self) -> Result<(), Failure> {
        self.all_phases().map_err(|fault| fault.to_string())
    }

    fn all_phases(&self) -> io::Result<()> {
        self.check_file_limit()?;
        let mut trial = Trial::start(self)?;
        self.crowds(&mut trial)?;
        self.hot_partition(&mut trial)?;
        self.scans(&mut trial)?;
        trial.report.conclude(&self.places.result("overload"))
    }

    /// Connections of this process and those of the server count against the same limit, each on its own.
    fn check_file_limit(&self) -> io::Result<()> {
        let groups = self.idle + self.trickling + self.eager;
        let needed = groups.max(self.max_connections + EXCESS) + HEALTHY_CLIENTS + OTHER_FILES;
        process::need_files(needed as u64, "ask for fewer clients and a lower --max-connections")
    }

    fn length(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }

    /// Healthy clients beside idle, trickling, eager and too many others.
    fn crowds(&self, trial: &mut Trial<'_>) -> io::Result<()> {
        let address = trial.server.address();
        let operations = Operations::new(Workload::Mixed, false, ENTITIES, "");
        let mut healthy =
            Steady::open(address, HEALTHY_CLIENTS, operations, self.rate, self.length())?;
        // A full server closes connections without credentials in favour of new ones, and the rate
        // of the healthy clients leaves some of theirs unused.
        healthy.warm_up(WARM_UP)?;
        let phase = "healthy clients alone";
        let (noticed, ()) = trial.phase(phase, &mut healthy, || Ok(()))?;
        trial.aim_share(phase, &noticed);

        let idle = Crowd::gather(address, IDLE_NETWORK, ENTITIES, self.idle)?;
        let let_in = idle.let_in() as f64;
        trial.report.aim("idle connections let in", let_in, "", Bound::AtLeast(self.idle as f64));
        let phase = format!("beside {} idle connections", count(self.idle as u64));
        let (noticed, ()) = trial.phase(&phase, &mut healthy, || Ok(()))?;
        trial.aim_share(&phase, &noticed);

        let trickling = Trickle::start(address, TRICKLING_NETWORK, self.trickling)?;
        let phase = format!("and {} trickling clients", count(self.trickling as u64));
        let (noticed, ()) = trial.phase(&phase, &mut healthy, || Ok(()))?;
        trial.aim_share(&phase, &noticed);

        let eager = Eager::open(address, EAGER_NETWORK, ENTITIES, self.eager)?;
        let phase = format!("and {} eager clients", count(self.eager as u64));
        let length = self.length();
        let (noticed, tally) = trial.phase(&phase, &mut healthy, || eager.run(length))?;
        trial.tell_eager(&phase, &noticed, &tally);
        let cut_off = trickling.finish()?;
        trial.report.fact("trickling clients cut off", cut_off as f64, "");

        let room = self.max_connections.saturating_sub(self.idle + HEALTHY_CLIENTS);
        let too_many = || Crowd::gather(address, EXCESS_NETWORK, ENTITIES, room + EXCESS);
        let phase = format!("beside {EXCESS} connections too many");
        let (noticed, crowd) = trial.phase(&phase, &mut healthy, too_many)?;
        trial.aim_share(&phase, &noticed);
        trial.tell_excess(&crowd);

        drop((idle, crowd));
        let phase = "all others gone";
        let (noticed, ()) = trial.phase(phase, &mut healthy, || Ok(()))?;
        trial.aim_share(phase, &noticed);
        Ok(())
    }

    /// Writers to many partitions without and with others that write to a single one.
    fn hot_partition(&self, trial: &mut Trial<'_>) -> io::Result<()> {
        let (address, length) = (trial.server.address(), self.length());
        let operations = Operations::new(Workload::Upsert, false, ENTITIES, "");
        let mut writers = Steady::open(address, WRITERS, operations, self.rate, length)?;
        let (alone, ()) = trial.phase("writers alone", &mut writers, || Ok(()))?;
        let phase = format!("beside {WRITERS} writers to one partition");
        let hot = || hot::write(address, HOT_NETWORK, HOT_PARTITION, WRITERS, length);
        let (beside, tally) = trial.phase(&phase, &mut writers, hot)?;
        tell_fault(&phase, &tally);
        trial.aim_share(&phase, &beside);
        let most = (HOT_P99_TIMES * alone.sample.p99_ms).max(HOT_P99);
        let p99 = beside.sample.p99_ms;
        trial.report.aim(format!("{phase}: p99"), p99, "ms", Bound::AtMost(most));
        trial.report.fact("writers to one partition", tally.rate(), "/s");
        trial.report.aim(
            "writers to one partition: errors",
            tally.errors() as f64,
            "",
            Bound::AtMost(0.0),
        );
        Ok(())
    }

    /// Reads and writes of single entities without and with others that scan the whole table.
    fn scans(&self, trial: &mut Trial<'_>) -> io::Result<()> {
        let (address, length) = (trial.server.address(), self.length());
        let entities = self.scanned.max(ENTITIES);
        fill(address, 8, Change::Upsert, pieces(DATA, ENTITIES, entities), |_| {})?;
        let operations = Operations::new(Workload::Mixed, false, entities, "");
        let rate = SCANS_RATE_TIMES * self.rate;
        let mut healthy = Steady::open(address, HEALTHY_CLIENTS, operations, rate, length)?;
        let phase = format!("healthy clients, {} entities", count(entities));
        let (alone, ()) = trial.phase(&phase, &mut healthy, || Ok(()))?;
        trial.aim_share(&phase, &alone);
        let phase = format!("beside {} clients that scan", self.scanning);
        let scan = || scans::scan(address, SCANNING_NETWORK, entities, self.scanning, length);
        let (beside, tally) = trial.phase(&phase, &mut healthy, scan)?;
        tell_fault(&phase, &tally);
        trial.aim_share(&phase, &beside);
        for ((what, alone), beside) in
            ["reads", "writes"].iter().zip(alone.p99s()).zip(beside.p99s())
        {
            let most = (SCANS_P99_TIMES * alone).max(SCANS_P99);
            trial.report.fact(format!("p99 of {what} without scans"), alone, "ms");
            trial.report.aim(format!("{phase}: p99 of {what}"), beside, "ms", Bound::AtMost(most));
        }
        let report = &mut trial.report;
        report.aim("scans", tally.rate(), "/s", Bound::AtLeast(f64::MIN_POSITIVE));
        report.fact("scans answered 503", tally.refused as f64, "");
        let wrong = (tally.wrong + tally.lost) as f64;
        report.aim("scans: other answers", wrong, "", Bound::AtMost(0.0));
        Ok(())
    }
}

/// A server with a filled table, and the report.
struct Trial<'a> {
    terms: &'a Overload,
    server: Server,
    memory: Sampler,
    report: Report,
}

impl<'a> Trial<'a> {
    fn start(terms: &'a Overload) -> io::Result<Self> {
        let mut arguments = vec!["--cache-mib".to_owned(), terms.cache_mib.to_string()];
        arguments.extend(["--max-connections".to_owned(), terms.max_connections.to_string()]);
        arguments.extend_from_slice(&terms.arguments);
        let server = Server::start(terms.places.rowhouse(&arguments), terms.places.runs())?;
        create_table(server.address(), DATA)?;
        fill(server.address(), 8, Change::Upsert, pieces(DATA, 0, ENTITIES), |_| {})?;
        let memory = Sampler::watch(server.pid());
        Ok(Self { terms, server, memory, report: Report::default() })
    }

    /// Runs steady clients beside something else, and tells what they noticed. Whatever others do, no request of
    /// theirs may fail other than with 503, and the server's memory is bounded.
    fn phase<T: Send>(
        &mut self,
        phase: &str,
        steady: &mut Steady,
        others: impl FnOnce() -> io::Result<T> + Send,
    ) -> io::Result<(Noticed, T)> {
        let (noticed, others) = thread::scope(|scope| {
            let others = scope.spawn(others);
            let noticed = steady.run();
            let others = others.join().map_err(|_| io::Error::other("a thread has failed"))?;
            io::Result::Ok((noticed?, others?))
        })?;
        let memory = self.memory.take();
        println!("{}", noticed.line(phase, memory));
        let failed = noticed.failed as f64;
        self.report.aim(
            format!("{phase}: failures other than 503"),
            failed,
            "",
            Bound::AtMost(0.0),
        );
        self.report.aim(
            format!("{phase}: anonymous memory, most"),
            memory as f64 / 1e6,
            "MB",
            Bound::memory(self.terms.cache_mib),
        );
        Ok((noticed, others))
    }

    fn aim_share(&mut self, phase: &str, noticed: &Noticed) {
        let what = format!("{phase}: rate, of what was asked");
        self.report.aim(what, noticed.share(), "%", Bound::AtLeast(SHARE));
        self.aim_served(phase, noticed, SERVED);
    }

    fn aim_served(&mut self, phase: &str, noticed: &Noticed, least: f64) {
        let what = format!("{phase}: requests served");
        self.report.aim(what, noticed.served(), "%", Bound::AtLeast(least));
    }

    /// Eager clients may be refused, with the status that says so; healthy ones are still served.
    fn tell_eager(&mut self, phase: &str, noticed: &Noticed, eager: &Tally) {
        tell_fault(phase, eager);
        self.aim_served(phase, noticed, EAGER_SERVED);
        let report = &mut self.report;
        let none = Bound::AtMost(0.0);
        report.fact(format!("{phase}: rate, of what was asked"), noticed.share(), "%");
        report.fact(format!("{phase}: healthy ones answered 503"), noticed.busy as f64, "");
        report.aim(format!("{phase}: seconds without an answer"), noticed.silent as f64, "", none);
        let p99 = noticed.sample.p99_ms;
        report.aim(format!("{phase}: p99"), p99, "ms", Bound::AtMost(EAGER_P99));
        report.fact("eager clients served", eager.rate(), "/s");
        report.fact("eager clients answered 503", eager.refused as f64, "");
        report.fact("eager clients: connections lost", eager.lost as f64, "");
        report.aim("eager clients: other answers", eager.wrong as f64, "", none);
    }

    /// Whoever is too many is told so and does not wait for nothing. They come one after the other: none needs to be
    /// closed without a word.
    fn tell_excess(&mut self, crowd: &Crowd) {
        let report = &mut self.report;
        let (told, closed) = (crowd.busy as f64, crowd.closed as f64);
        report.aim("connections refused: ServerBusy", told, "", Bound::AtLeast(EXCESS as f64));
        report.aim("connections closed without a word", closed, "", Bound::AtMost(0.0));
        report.aim("connections that hang", crowd.hung as f64, "", Bound::AtMost(0.0));
        report.fact("slowest reception", crowd.slowest.as_secs_f64() * 1e3, "ms");
    }
}

fn tell_fault(phase: &str, tally: &Tally) {
    if let Some(fault) = &tally.fault {
        eprintln!("{phase}: {fault}");
    }
}
