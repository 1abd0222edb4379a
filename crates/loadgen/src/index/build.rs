//! Makes an index while clients read and write, and tells what they notice.

use super::PROPERTY;
use super::site::Site;
use super::writes::Writes;
use crate::aims::{Bound, Report};
use crate::drive::Script;
use crate::sampler::Sampler;
use crate::steady::{Schedule, Steady};
use crate::text::figure;
use crate::workload::{DATA, Operations, Workload};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Connections of those who read, and of those who write: neither wait for the other's.
const CONNECTIONS: usize = 16;
/// Length of the pieces of which each is told apart by what the host took.
const PIECE: Duration = Duration::from_secs(1);
/// Times the p99 without a build that reads and writes may take during one.
const SLOWER: f64 = 3.0;

/// What came of both kinds of clients.
struct Noticed {
    reads: Steady,
    writes: Steady,
}

pub(super) fn measure(site: &Site<'_>, report: &mut Report) -> io::Result<()> {
    let (terms, began) = (site.terms, Instant::now());
    let mut writes = Writes::new(terms.entities);
    let without = load(site, &mut writes, || began.elapsed().as_secs_f64() >= terms.seconds)?;
    let memory = Sampler::watch(site.server.pid());
    let running = site.begin_index(DATA, PROPERTY)?;
    let during = load(site, &mut writes, || running.is_over());
    // Why the command failed tells more than what came of the clients.
    let done = running.finish()?;
    let during = during?;
    report.fact("build", done.took.as_secs_f64(), "s");
    let entities = terms.entities as f64;
    report.fact("build, entities", entities / done.took.as_secs_f64(), "/s");
    report.fact("memory of the server during the build, most", memory.take() as f64 / 1e6, "MB");
    tell("reads", terms.reads, (&without.reads, &during.reads), report);
    tell("writes", terms.writes, (&without.writes, &during.writes), report);
    Ok(())
}

/// Reads and writes at their rates until something is over.
fn load(
    site: &Site<'_>,
    writes: &mut Writes,
    is_over: impl FnMut() -> bool,
) -> io::Result<Noticed> {
    let terms = site.terms;
    let schedule = |rate| Schedule::begin(site.server.address(), CONNECTIONS, rate, PIECE);
    let (reading, writing) = (schedule(terms.reads)?, schedule(terms.writes)?);
    let mut reads = Operations::new(Workload::Point, false, terms.entities, "");
    let (reads, writes) = both((reading, &mut reads), (writing, writes), is_over);
    Ok(Noticed { reads: reads?, writes: writes? })
}

/// Keeps to two schedules at a time, the second on a thread of its own, until something is over.
fn both(
    (first, one): (Schedule, &mut impl Script),
    (second, other): (Schedule, &mut (impl Script + Send)),
    is_over: impl FnMut() -> bool,
) -> (io::Result<Steady>, io::Result<Steady>) {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| second.until(other, || over.load(Relaxed)));
        let first = first.until(one, is_over);
        over.store(true, Relaxed);
        let second = thread.join().unwrap_or_else(|_| Err(io::Error::other("writing panicked")));
        (first, second)
    })
}

fn tell(kind: &str, rate: f64, (without, during): (&Steady, &Steady), report: &mut Report) {
    for (steady, when) in [(without, "without a build"), (during, "during the build")] {
        let (sample, rate) = (steady.sample(), figure(rate));
        report.fact(format!("{rate} {kind}/s {when}, p50"), sample.p50_ms, "ms");
        report.fact(format!("{rate} {kind}/s {when}, p99"), sample.p99_ms, "ms");
        if let Some(fault) = &sample.fault {
            eprintln!("{kind} {when}: {fault}");
        }
        let errors = sample.errors as f64;
        report.aim(format!("{kind} {when}, errors"), errors, "", Bound::AtMost(0.0));
        steady.tell(&format!("{kind} {when},"), report);
    }
    let ratio = during.sample().p99_ms / without.sample().p99_ms;
    let what = format!("p99 of {kind} during the build, of that without");
    report.aim(what, ratio, "x", Bound::AtMost(SLOWER));
    if let (Some(during), Some(without)) = (during.calm(), without.calm()) {
        let what = format!("p99 of {kind}, the same while calm");
        report.fact(what, during.p99_ms / without.p99_ms, "x");
    }
}
