//! `loadgen queue`: whether a queue costs the same however much is in it, and however much has gone through it.
//!
//! Getting a message and deleting it is measured on a queue with little in it, on one with a million messages, and on
//! one that millions have passed through, after the server has been restarted. The unit is the CPU time of the server.

pub(crate) mod messages;
pub(crate) mod site;

use crate::aims::{Bound, Report};
use crate::measure::Sample;
use crate::process;
use crate::server::Server;
use crate::text::count;
use crate::{Failure, Places};
use messages::Work;
use site::Site;
use std::io;
use std::time::Duration;

/// How many times what it costs on a queue with little in it.
const TIMES: f64 = 1.5;
/// Passes of each measurement, of which the median counts.
const PASSES: u64 = 3;
/// Messages that go through a queue at a time: put first, then got and deleted.
const WAVE: u64 = 100_000;
/// Longest time for one pass.
const WITHIN: Duration = Duration::from_mins(10);

/// Measure what is got and deleted, beside much that is queued and after much that has passed.
#[derive(Debug, clap::Args)]
pub(crate) struct Queue {
    /// Messages in the full queue.
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    queued: u64,

    /// Messages that pass through a queue.
    #[arg(long, value_name = "N", default_value_t = 5_000_000)]
    passed: u64,

    /// Messages that are got and deleted in each pass.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    messages: u64,

    /// Connections.
    #[arg(short, long, value_name = "N", default_value_t = 16)]
    connections: usize,

    #[command(flatten)]
    places: Places,

    /// Further arguments of the server.
    #[arg(last = true)]
    arguments: Vec<String>,
}

impl Queue {
    pub(crate) fn run(self) -> Result<(), Failure> {
        self.measure().map_err(|fault| fault.to_string())
    }

    fn measure(&self) -> io::Result<()> {
        let mut report = Report::default();
        let mut server = Server::start(self.places.rowhouse(&self.arguments), self.places.runs())?;
        let site = site(&server)?;
        let stock = PASSES * self.messages;
        let fresh = site.create("fresh", 1)?;
        site.fill(&fresh, 0, stock)?;
        let base = self.cost("fresh queue", &site, &fresh, &mut report)?;

        let full = site.create("full", 1)?;
        // What the passes take is put besides, so that there are as many as was said from the first to the last.
        let filled = site.fill(&full, 0, self.queued + stock)?;
        report.fact(format!("{} queued: put", count(self.queued)), filled.rate, "/s");
        report.fact(format!("{} queued: put, CPU", count(self.queued)), filled.server_cpu_us, "us");
        let beside = format!("beside {} queued", count(self.queued));
        self.compare(&beside, base, &site, &full, &mut report)?;

        let busy = site.create("busy", 1)?;
        self.pass(&site, &busy, &mut report)?;
        server.restart(false)?;
        report.fact("ready after kill -9", server.started_in().as_secs_f64() * 1e3, "ms");
        let site = self::site(&server)?;
        site.fill(&busy, self.passed, stock)?;
        let after = format!("after {} passed and a restart", count(self.passed));
        self.compare(&after, base, &site, &busy, &mut report)?;
        let memory = process::anonymous_memory(server.pid()) as f64 / 1e6;
        report.fact("memory of the server", memory, "MB");
        report.fact("disk", process::disk_bytes(&server.data()) as f64 / 1e6, "MB");
        report.conclude(&self.places.result("queue"))
    }

    /// Lets messages through a queue, in waves: put, got 32 at a time, deleted.
    fn pass(&self, site: &Site, queue: &[String], report: &mut Report) -> io::Result<()> {
        let (mut done, mut errors) = (0, 0);
        let (mut seconds, mut cpu) = (0.0, 0.0);
        while done < self.passed {
            let wave = WAVE.min(self.passed - done);
            for sample in [site.fill(queue, done, wave)?, site.drain(queue, wave)?] {
                errors += sample.errors;
                seconds += wave as f64 / sample.rate.max(1e-9);
                cpu += sample.server_cpu_us * wave as f64;
                if let Some(fault) = sample.fault {
                    eprintln!("passing through: {fault}");
                }
            }
            done += wave;
        }
        let what = format!("{} passed through", count(self.passed));
        report.fact(format!("{what}: rate"), done as f64 / seconds.max(1e-9), "/s");
        report.fact(format!("{what}: CPU of a message"), cpu / done.max(1) as f64, "us");
        report.aim(format!("{what}: errors"), errors as f64, "", Bound::AtMost(0.0));
        Ok(())
    }

    /// Measures a queue and holds it to what it costs where little is.
    fn compare(
        &self,
        what: &str,
        base: f64,
        site: &Site,
        queue: &[String],
        report: &mut Report,
    ) -> io::Result<()> {
        let cost = self.cost(what, site, queue, report)?;
        let what = format!("{what}: CPU, of that of a fresh queue");
        report.aim(what, cost / base.max(1e-9), "x", Bound::AtMost(TIMES));
        Ok(())
    }

    /// CPU time of the server for getting and deleting one message: the median over the passes.
    fn cost(
        &self,
        what: &str,
        site: &Site,
        queue: &[String],
        report: &mut Report,
    ) -> io::Result<f64> {
        let mut samples = Vec::new();
        for _ in 0..PASSES {
            let terms = (0, self.messages);
            samples.push(site.work(Work::Getdelete, queue, terms, self.connections, WITHIN)?);
        }
        let median = Sample::median(&samples);
        report.fact(format!("{what}: get and delete"), median.rate, "/s");
        report.fact(format!("{what}: CPU"), median.server_cpu_us, "us");
        if let Some(fault) = &median.fault {
            eprintln!("{what}: {fault}");
        }
        report.aim(format!("{what}: errors"), median.errors as f64, "", Bound::AtMost(0.0));
        Ok(median.server_cpu_us)
    }
}

fn site(server: &Server) -> io::Result<Site> {
    Ok(Site { address: server.queue_address()?, pid: server.pid() })
}
