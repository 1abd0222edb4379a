//! The drill at one size: backup while clients read, verification, plain copy, restore, comparison.

use super::Drill;
use super::contents::Contents;
use super::plain::{self, Copied};
use crate::aims::{Bound, Report};
use crate::batch::Change;
use crate::command::{Done, Running};
use crate::drive::{Driver, Pace};
use crate::fill::{fill, pieces};
use crate::sampler::Sampler;
use crate::server::Server;
use crate::steady::{Schedule, Steady};
use crate::text::{count, figure};
use crate::workload::{DATA, Operations, Workload};
use std::ffi::{OsStr, OsString};
use std::io;
use std::time::{Duration, Instant};
use tempfile::{NamedTempFile, TempPath};

/// Length of the pieces of which each is told apart by what the host took.
const PIECE: Duration = Duration::from_secs(1);
/// Times the p99 without a backup that a point read may take during one.
const READS_SLOWER: f64 = 3.0;
/// Least rates, as shares of that of a plain copy.
const BACKUP_SHARE: f64 = 0.3;
const RESTORE_SHARE: f64 = 0.15;

/// The server that is backed up.
pub(super) struct Site<'a> {
    terms: &'a Drill,
    pub(super) server: Server,
    memory: Sampler,
    loaded: u64,
}

/// What came of a size.
pub(super) struct Round {
    /// The file, which is removed with this.
    pub(super) backup: TempPath,
    pub(super) contents: Contents,
    pub(super) memory: Memory,
}

/// Most anonymous memory of each process, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Memory {
    pub(super) server: u64,
    pub(super) backup: u64,
    pub(super) verify: u64,
    pub(super) restore: u64,
}

/// Figures go into the report with the size in front, and with a verdict if this is the size that counts.
struct Teller<'a> {
    report: &'a mut Report,
    size: u64,
    judged: bool,
}

impl Teller<'_> {
    fn fact(&mut self, what: &str, value: f64, unit: &'static str) {
        self.report.fact(format!("{}: {what}", count(self.size)), value, unit);
    }

    fn aim(&mut self, what: &str, value: f64, unit: &'static str, bound: Bound) {
        let bound = if self.judged { bound } else { Bound::None };
        self.report.aim(format!("{}: {what}", count(self.size)), value, unit, bound);
    }

    /// The time that a command took, in every unit of interest.
    fn work(&mut self, what: &str, done: &Done, plain: &Copied, share: Bound) {
        let seconds = done.took.as_secs_f64();
        self.fact(&format!("{what}, entities"), self.size as f64 / seconds, "/s");
        self.fact(&format!("{what}, stored bytes"), plain.bytes as f64 / 1e6 / seconds, "MB/s");
        let words = format!("{what}, of the rate of a plain copy");
        self.aim(&words, plain.took.as_secs_f64() / seconds, "x", share);
        self.fact(&format!("{what}, CPU"), done.cpu.as_secs_f64(), "s");
        self.fact(&format!("{what}, memory"), done.memory as f64 / 1e6, "MB");
    }
}

impl<'a> Site<'a> {
    pub(super) fn start(terms: &'a Drill) -> io::Result<Self> {
        let mut arguments = vec!["--cache-mib".to_owned(), terms.cache_mib.to_string()];
        arguments.extend_from_slice(&terms.arguments);
        let server = Server::start(terms.places.rowhouse(&arguments), terms.places.runs())?;
        let memory = Sampler::watch(server.pid());
        Ok(Self { terms, server, memory, loaded: 0 })
    }

    /// Fills the store up to a size and goes through the drill.
    pub(super) fn round(
        &mut self,
        size: u64,
        judged: bool,
        report: &mut Report,
    ) -> io::Result<Round> {
        let mut tell = Teller { report, size, judged };
        self.fill(&mut tell)?;
        self.warm_up(size)?;
        let backup = NamedTempFile::with_prefix_in("backup-", self.terms.places.runs())?;
        let backup = backup.into_temp_path();
        // A backup never overwrites; the name stays ours.
        std::fs::remove_file(&backup)?;
        let (taken, server) = self.back_up(&backup, &mut tell)?;
        let verified = self.run(["backup", "verify", "--json"], &[backup.as_os_str()])?;
        let data = self.server.data().join("rowhouse.db");
        let plain = plain::copy(&data, &self.terms.places.runs().join("plain-copy"))?;
        tell_plain(&plain, &mut tell);
        let (about_taken, about_verified) = (taken.json()?, verified.json()?);
        let bytes = about_taken[0]["bytes"].as_u64().unwrap_or_default() as f64;
        tell.fact("backup, of the stored bytes", bytes / plain.bytes.max(1) as f64, "x");
        tell.work("backup", &taken, &plain, Bound::AtLeast(BACKUP_SHARE));
        tell.work("verify", &verified, &plain, Bound::None);
        let contents = Contents::read(self.server.address(), DATA)?;
        let expected = [about_taken, about_verified].map(|about| about[0]["entities"].as_u64());
        if expected != [Some(size); 2] || contents.entities != size {
            return Err(io::Error::other("the backup does not hold what was loaded"));
        }
        let restored = self.restore(&backup, &contents, &plain, &mut tell)?;
        let (backup_memory, verify) = (taken.memory, verified.memory);
        let memory = Memory { server, backup: backup_memory, verify, restore: restored.memory };
        Ok(Round { backup, contents, memory })
    }

    fn fill(&mut self, tell: &mut Teller<'_>) -> io::Result<()> {
        let (mut told, size) = (Instant::now(), tell.size);
        let (address, connections) = (self.server.address(), self.terms.connections);
        let more = pieces(DATA, self.loaded, size);
        let loaded = fill(address, connections, Change::Upsert, more, |so_far| {
            if told.elapsed() > Duration::from_secs(10) {
                told = Instant::now();
                let (entities, rate) = (count(so_far.entities), figure(so_far.rate()));
                eprintln!("loading: {entities} entities, {rate}/s");
            }
        })?;
        self.loaded = size;
        tell.fact("loaded, entities", loaded.rate(), "/s");
        Ok(())
    }

    /// Reads as fast as the server answers, so that its cache is full at any size.
    fn warm_up(&self, size: u64) -> io::Result<()> {
        let mut driver = Driver::open(self.server.address(), self.terms.connections)?;
        let length = Duration::from_secs_f64(self.terms.seconds);
        driver.run(&mut reads(size), length, Pace::Closed).map(drop)
    }

    /// Takes a backup while clients read. Returns what it took, and the most memory of the server meanwhile.
    fn back_up(&self, to: &TempPath, tell: &mut Teller<'_>) -> io::Result<(Done, u64)> {
        let mut without = self.read_without(tell.size)?;
        self.memory.take();
        let admin = self.server.admin().unwrap_or_default();
        let data = self.server.data();
        let rest = [to.as_os_str(), "--data".as_ref(), data.as_os_str()];
        let running = self.begin(["backup", "--json", "--admin", &admin], &rest)?;
        let during = self.schedule()?.until(&mut reads(tell.size), || running.is_over())?;
        let done = running.finish()?;
        let memory = self.memory.take();
        without.add(&self.read_without(tell.size)?);
        self.tell_reads(&without, &during, tell);
        let bound = Bound::memory(self.terms.cache_mib);
        tell.aim("memory of the server during the backup, most", memory as f64 / 1e6, "MB", bound);
        Ok((done, memory))
    }

    fn read_without(&self, size: u64) -> io::Result<Steady> {
        let (began, seconds) = (Instant::now(), self.terms.seconds);
        self.schedule()?.until(&mut reads(size), || began.elapsed().as_secs_f64() >= seconds)
    }

    fn schedule(&self) -> io::Result<Schedule> {
        let terms = self.terms;
        Schedule::begin(self.server.address(), terms.connections, terms.rate, PIECE)
    }

    fn tell_reads(&self, without: &Steady, during: &Steady, tell: &mut Teller<'_>) {
        for (steady, when) in [(without, "without a backup"), (during, "during the backup")] {
            let sample = steady.sample();
            let rate = figure(self.terms.rate);
            tell.fact(&format!("{rate} reads/s {when}, p50"), sample.p50_ms, "ms");
            tell.fact(&format!("{rate} reads/s {when}, p99"), sample.p99_ms, "ms");
            if let Some(fault) = &sample.fault {
                eprintln!("reads {when}: {fault}");
            }
            let errors = format!("{}: reads {when}, errors", count(tell.size));
            tell.report.aim(errors, sample.errors as f64, "", Bound::AtMost(0.0));
            steady.tell(&format!("{}: reads {when},", count(tell.size)), tell.report);
        }
        let ratio = during.sample().p99_ms / without.sample().p99_ms;
        tell.aim("p99 during the backup, of that without", ratio, "x", Bound::AtMost(READS_SLOWER));
        if let (Some(during), Some(without)) = (during.calm(), without.calm()) {
            tell.fact("the same while calm", during.p99_ms / without.p99_ms, "x");
        }
    }

    /// Restores into an empty directory, and looks at it through a server.
    fn restore(
        &self,
        backup: &TempPath,
        contents: &Contents,
        plain: &Copied,
        tell: &mut Teller<'_>,
    ) -> io::Result<Done> {
        let directory = Server::directory(self.terms.places.runs())?;
        let data = directory.path().join("data");
        let arguments = [backup.as_os_str(), "--data".as_ref(), data.as_os_str()];
        let done = self.run(["restore", "--json"], &arguments)?;
        tell.work("restore", &done, plain, Bound::AtLeast(RESTORE_SHARE));
        let server = Server::start_in(self.terms.places.rowhouse(&[]), directory)?;
        let what = format!("{}, restored", count(tell.size));
        contents.compare(server.address(), &what, tell.report)?;
        Ok(done)
    }

    fn begin<const N: usize>(&self, words: [&str; N], rest: &[&OsStr]) -> io::Result<Running> {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        let all = words.iter().map(OsString::as_os_str).chain(rest.iter().copied());
        Running::start(&self.terms.places.binary(), all)
    }

    fn run<const N: usize>(&self, words: [&str; N], rest: &[&OsStr]) -> io::Result<Done> {
        self.begin(words, rest)?.finish()
    }
}

fn reads(size: u64) -> Operations {
    Operations::new(Workload::Point, false, size, "")
}

fn tell_plain(plain: &Copied, tell: &mut Teller<'_>) {
    tell.fact("data file", plain.bytes as f64 / 1e6, "MB");
    let rate = plain.bytes as f64 / 1e6 / plain.took.as_secs_f64();
    tell.fact("plain copy of it, synced", rate, "MB/s");
    let share = 100.0 * plain.from_disk as f64 / plain.bytes.max(1) as f64;
    tell.fact("plain copy of it, read from the disk and not from memory", share, "%");
}
