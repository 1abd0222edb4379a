//! `loadgen attack`: what one account notices while another one, and strangers, attack the server.
//!
//! A client of the development account reads single entities at a fixed rate all the time, and the
//! server is probed for being ready. The same is measured in a calm phase, under each attack alone,
//! and under all of them:
//! - listing: clients with a signature that only allows to list tables filter thousands of tables,
//! - planning: clients with a signature that only allows to read one table send long filters on
//!   many indexes,
//! - strangers: connections without credentials fill the listener, while a client from elsewhere
//!   connects.
//!
//! A latency counts from when its request was due. All sides come from addresses of their own, on
//! loopback only.

mod filters;
mod flood;
mod probe;
mod strangers;
mod tenant;

use crate::aims::{Bound, Report};
use crate::batch::Change;
use crate::call::create_table;
use crate::drive::Tally;
use crate::fill::{fill, pieces};
use crate::host::Taken;
use crate::measure::settle;
use crate::overload::crowd::Crowd;
use crate::overload::steady::{Noticed, Steady};
use crate::process;
use crate::sampler::Sampler;
use crate::server::Server;
use crate::text::count;
use crate::workload::{DATA, Operations, Workload};
use crate::{Failure, Places};
use probe::Probes;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;
use strangers::{Besieged, Siege};

/// Entities in the table that is read.
const ENTITIES: u64 = 10_000;
/// Connections of the client that is measured: at 200 reads/s enough even if each takes a quarter
/// of a second.
const READERS: usize = 64;
const WARM_UP: Duration = Duration::from_secs(2);
/// Files that this process needs beside the connections of strangers.
const OTHER_FILES: usize = 500;

/// Where the attackers with signatures come from, and the probes.
const LISTING: Ipv4Addr = Ipv4Addr::new(127, 0, 1, 1);
const PLANNING: Ipv4Addr = Ipv4Addr::new(127, 0, 2, 1);
const PROBING: Ipv4Addr = Ipv4Addr::new(127, 0, 3, 1);

/// Times the p99 of the calm phase that reads under attack may take at the 99th percentile.
const P99_TIMES: f64 = 3.0;
/// Longest read, and longest answer to a probe, in milliseconds.
const LONGEST: f64 = 250.0;
/// Memory that attacks may take beyond that of the idle server, in MB.
const MEMORY: f64 = 150.0;
/// Share of the processors in the calm phase from which on others use the machine too, in percent:
/// the phase itself takes a few.
const BUSY: f64 = 25.0;

/// Measure what one account notices while others attack the server, with verdicts.
#[derive(Debug, clap::Args)]
pub(crate) struct Attack {
    /// Tables of the attackers' account.
    #[arg(long, value_name = "N", default_value_t = 24_000)]
    tables: usize,

    /// Entities in the table with indexes that filters are sent on.
    #[arg(long, value_name = "N", default_value_t = 100)]
    indexed: usize,

    /// Clients that list tables, and as many that send filters on indexes.
    #[arg(long, value_name = "N", default_value_t = 14)]
    clients: usize,

    /// Connections without credentials, half of them from either of two addresses.
    #[arg(long, value_name = "N", default_value_t = 8192)]
    strangers: usize,

    /// Most connections without credentials that are opened again in a second, after the server has
    /// refused or closed them.
    #[arg(long, value_name = "N", default_value_t = 500)]
    renewals: usize,

    /// Requests from a third address, each on a new connection.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    requests: usize,

    /// Reads per second that are measured.
    #[arg(long, value_name = "N", default_value_t = 200.0)]
    rate: f64,

    /// Seconds for each phase: calm, each attack alone, all of them, calm again.
    #[arg(short, long, value_name = "S", default_value_t = 20.0)]
    seconds: f64,

    /// Only these attacks, one after the other.
    #[arg(long, value_name = "ATTACK", value_delimiter = ',')]
    only: Vec<Kind>,

    #[command(flatten)]
    places: Places,

    /// Further arguments of the server.
    #[arg(last = true)]
    arguments: Vec<String>,
}

/// A phase with attacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Kind {
    Listing,
    Planning,
    Strangers,
    /// All of them at the same time.
    All,
}

impl Kind {
    const EACH: [Self; 4] = [Self::Listing, Self::Planning, Self::Strangers, Self::All];

    fn name(self) -> &'static str {
        match self {
            Self::Listing => "listing",
            Self::Planning => "planning",
            Self::Strangers => "strangers",
            Self::All => "all",
        }
    }
}

/// What the verdict about a figure relies on, beside the attacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relies {
    Nothing,
    /// Other work on the machine can only make the figure worse.
    Speed,
    /// Other work on the machine can make the figure look better too, because it is compared with
    /// the calm phase.
    Calm,
}

impl Relies {
    /// Why a verdict proves nothing, if it does not. An attack that was weaker than it should be
    /// proves no aim met, but it may miss one.
    fn doubt<'a>(self, met: bool, void: Option<&'a str>, busy: Option<&'a str>) -> Option<&'a str> {
        let busy = match self {
            Self::Nothing => None,
            Self::Speed => busy.filter(|_| !met),
            Self::Calm => busy,
        };
        void.filter(|_| met).or(busy)
    }
}

/// What came of the attacks of a phase, of those that took place.
#[derive(Debug, Default)]
struct Outcome {
    listing: Option<Tally>,
    planning: Option<Tally>,
    strangers: Option<Besieged>,
}

impl Attack {
    pub(crate) fn run(self) -> Result<(), Failure> {
        self.all_phases().map_err(|fault| fault.to_string())
    }

    fn all_phases(&self) -> io::Result<()> {
        let needed = self.strangers + self.requests + OTHER_FILES;
        process::need_files(needed as u64, "ask for fewer --strangers")?;
        let mut trial = Trial::start(self)?;
        trial.calm()?;
        let all: &[Kind] = if self.only.is_empty() { &Kind::EACH } else { &self.only };
        for &kind in all {
            trial.attack(kind)?;
        }
        trial.calm_again()?;
        trial.report.conclude(&self.places.result("attack"))
    }

    fn length(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }
}

/// A server with the data of both accounts, and the report.
struct Trial<'a> {
    terms: &'a Attack,
    server: Server,
    admin: SocketAddrV4,
    memory: Sampler,
    /// Anonymous memory of the server before the first request, in bytes.
    idle: u64,
    steady: Steady,
    report: Report,
    /// The p99 of reads in the calm phase, in milliseconds.
    calm_p99: f64,
    /// Why the machine was too busy with other work for latencies to prove something, if it was.
    busy: Option<String>,
}

impl<'a> Trial<'a> {
    fn start(terms: &'a Attack) -> io::Result<Self> {
        let places = &terms.places;
        let mut server = Server::start(places.rowhouse(&terms.arguments), places.runs())?;
        let address = server.address();
        create_table(address, DATA)?;
        fill(address, 8, Change::Upsert, pieces(DATA, 0, ENTITIES), |_| {})?;
        tenant::create(&server, &places.binary())?;
        eprintln!("creating {} tables", count(terms.tables as u64));
        tenant::make_tables(address, terms.tables)?;
        tenant::make_indexes(address, terms.indexed)?;
        // What setting up took is not memory of an idle server.
        server.restart(true)?;
        settle(server.pid(), None);
        let idle = process::anonymous_memory(server.pid());
        let memory = Sampler::watch(server.pid());
        let admin = admin_address(&server)?;
        let points = Operations::new(Workload::Point, false, ENTITIES, "");
        let length = terms.length();
        let mut steady = Steady::open(server.address(), READERS, points, terms.rate, length)?;
        steady.warm_up(WARM_UP)?;
        let report = Report::default();
        let (calm_p99, busy) = (f64::NAN, None);
        Ok(Self { terms, server, admin, memory, idle, steady, report, calm_p99, busy })
    }

    /// Measures without attacks, for the others to be compared with.
    fn calm(&mut self) -> io::Result<()> {
        self.report.fact("memory of the idle server", self.idle as f64 / 1e6, "MB");
        let (noticed, _, used) = self.calm_phase("calm")?;
        self.calm_p99 = noticed.sample.p99_ms;
        let failed = (noticed.busy + noticed.failed) as f64;
        self.report.aim("calm: reads that failed", failed, "", Bound::AtMost(0.0));
        if used > BUSY {
            self.busy = Some(format!(
                "{used:.0} % of the processors were in use in the calm phase: latencies need an \
                 idle machine"
            ));
        }
        Ok(())
    }

    /// Measures whether the server is as it was once the attacks are over.
    fn calm_again(&mut self) -> io::Result<()> {
        self.calm_phase("calm again").map(drop)
    }

    fn calm_phase(&mut self, phase: &str) -> io::Result<(Noticed, Probes, f64)> {
        let (noticed, probes, _, used) = self.phase(None)?;
        let memory = self.memory.take();
        println!("{}", noticed.line(phase, memory));
        let memory = self.beyond_idle(memory);
        let report = &mut self.report;
        report.fact(format!("{phase}: processors in use"), used, "%");
        report.fact(format!("{phase}: reads, p99"), noticed.sample.p99_ms, "ms");
        report.fact(format!("{phase}: reads, longest"), noticed.sample.max_ms, "ms");
        report.fact(format!("{phase}: /readyz, longest"), longest(&probes), "ms");
        report.fact(format!("{phase}: memory beyond idle"), memory, "MB");
        Ok((noticed, probes, used))
    }

    /// Measures under attack, against the aims.
    fn attack(&mut self, kind: Kind) -> io::Result<()> {
        let phase = kind.name();
        let (noticed, probes, outcome, used) = self.phase(Some(kind))?;
        let memory = self.memory.take();
        println!("{}", noticed.line(phase, memory));
        let memory = self.beyond_idle(memory);
        let void = outcome
            .void()
            .map(|why| format!("{phase}: the attack did not take place as it should: {why}"));
        let (void, busy) = (void.as_deref(), self.busy.as_deref());
        let report = &mut self.report;
        let mut judge = |what: &str, value: f64, unit, bound: Bound, relies: Relies| {
            let doubt = relies.doubt(bound.met(value) == Some(true), void, busy);
            report.judge(format!("{phase}: {what}"), value, unit, bound, doubt);
        };
        let (none, soon) = (Bound::AtMost(0.0), Bound::AtMost(LONGEST));
        let failed = (noticed.busy + noticed.failed) as f64;
        let p99 = Bound::AtMost(P99_TIMES * self.calm_p99);
        judge("processors in use", used, "%", Bound::None, Relies::Nothing);
        judge("reads that failed", failed, "", none, Relies::Nothing);
        judge("reads, p99", noticed.sample.p99_ms, "ms", p99, Relies::Calm);
        judge("reads, longest", noticed.sample.max_ms, "ms", soon, Relies::Speed);
        let failed = probes.failed as f64;
        judge("/readyz, not answered 200", failed, "", none, Relies::Nothing);
        judge("/readyz, longest", longest(&probes), "ms", soon, Relies::Speed);
        let most = Bound::AtMost(MEMORY);
        judge("memory beyond idle, most", memory, "MB", most, Relies::Nothing);
        let mut fact = |what: &str, value: f64, unit| {
            judge(what, value, unit, Bound::None, Relies::Nothing);
        };
        for (who, tally) in [("listing", &outcome.listing), ("planning", &outcome.planning)] {
            let Some(tally) = tally else { continue };
            fact(&format!("{who} requests answered"), tally.rate(), "/s");
            let refused = tally.refused as f64;
            fact(&format!("{who} requests answered 503"), refused, "");
        }
        if let Some(besieged) = &outcome.strangers {
            let Besieged { held, refused, hung, guest } = besieged;
            fact("connections of strangers held", *held as f64, "");
            fact("connections of strangers refused", *refused as f64, "");
            fact("connections of strangers that hang", *hung as f64, "");
            let let_in = guest.as_ref().map_or(0, Crowd::let_in) as f64;
            let all = Bound::AtLeast(self.terms.requests as f64);
            if let Some(guest) = guest {
                let slowest = guest.slowest.as_secs_f64() * 1e3;
                fact("slowest request from a third address", slowest, "ms");
            }
            judge("requests from a third address answered", let_in, "", all, Relies::Nothing);
        }
        Ok(())
    }

    /// Reads, probes and attacks for the length of a phase. Returns also how much of the processors
    /// was in use, in percent.
    fn phase(&mut self, attack: Option<Kind>) -> io::Result<(Noticed, Probes, Outcome, f64)> {
        let (terms, length, to) = (self.terms, self.terms.length(), self.server.address());
        let (admin, steady, clients) = (self.admin, &mut self.steady, terms.clients);
        let (listings, queries) = (tenant::listings(to), tenant::queries(to));
        let siege = Siege {
            to,
            connections: terms.strangers,
            renewals: terms.renewals,
            requests: terms.requests,
            entities: ENTITIES,
            length,
        };
        let taken = Taken::now();
        let (noticed, probes, outcome) = thread::scope(|scope| {
            let probes = scope.spawn(|| probe::ready(admin, PROBING, length));
            let has = |kind| attack == Some(kind) || attack == Some(Kind::All);
            let listing = has(Kind::Listing)
                .then(|| scope.spawn(|| flood::send(to, LISTING, clients, &listings, length)));
            let planning = has(Kind::Planning)
                .then(|| scope.spawn(|| flood::send(to, PLANNING, clients, &queries, length)));
            let strangers = has(Kind::Strangers).then(|| scope.spawn(|| siege.run()));
            let noticed = steady.run();
            let outcome = Outcome {
                listing: listing.map(joined).transpose()?,
                planning: planning.map(joined).transpose()?,
                strangers: strangers.map(joined).transpose()?,
            };
            io::Result::Ok((noticed?, joined(probes)?, outcome))
        })
        .map_err(|fault| self.server.explain(fault))?;
        let (_, used) = taken.percents_since();
        Ok((noticed, probes, outcome, used))
    }

    fn beyond_idle(&self, memory: u64) -> f64 {
        memory.saturating_sub(self.idle) as f64 / 1e6
    }
}

impl Outcome {
    /// Why an attack did not take place as it should, of the first that did not.
    fn void(&self) -> Option<String> {
        let tallies = [&self.listing, &self.planning];
        let void = tallies.into_iter().flatten().find_map(flood::is_void);
        let late = self.strangers.as_ref().is_some_and(|besieged| besieged.guest.is_none());
        void.or_else(|| late.then(|| "the strangers were not there in time".to_owned()))
    }
}

/// The longest time until the server said that it is ready, in milliseconds.
fn longest(probes: &Probes) -> f64 {
    probes.latency.largest().as_secs_f64() * 1e3
}

fn joined<T>(thread: ScopedJoinHandle<'_, io::Result<T>>) -> io::Result<T> {
    thread.join().map_err(|_| io::Error::other("a thread has failed"))?
}

fn admin_address(server: &Server) -> io::Result<SocketAddrV4> {
    let url = server.admin().unwrap_or_default();
    let address = url.strip_prefix("http://").map(|rest| rest.trim_end_matches('/').parse());
    address
        .and_then(Result::ok)
        .ok_or_else(|| io::Error::other(format!("{url:?} is not an admin listener without TLS")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_doubted() {
        let (void, busy) = (Some("void"), Some("busy"));
        for (relies, met, expected) in [
            (Relies::Nothing, true, [None, void, None]),
            (Relies::Nothing, false, [None, None, None]),
            (Relies::Speed, true, [None, void, None]),
            (Relies::Speed, false, [None, None, busy]),
            (Relies::Calm, true, [None, void, busy]),
            (Relies::Calm, false, [None, None, busy]),
        ] {
            let found = [(None, None), (void, None), (None, busy)]
                .map(|(void, busy)| relies.doubt(met, void, busy));
            assert_eq!(found, expected, "{relies:?} {met}");
        }
    }

    #[test]
    fn an_attack_that_did_not_take_place_is_void() {
        assert!(Outcome::default().void().is_none());
        let worked = Tally { operations: 1, ..Tally::default() };
        let listing = Some(Tally::default());
        let outcome = Outcome { listing, planning: Some(worked), ..Outcome::default() };
        assert_eq!(outcome.void().as_deref(), Some("there was no answer"));
        let outcome = Outcome { strangers: Some(Besieged::default()), ..Outcome::default() };
        assert_eq!(outcome.void().as_deref(), Some("the strangers were not there in time"));
    }
}
