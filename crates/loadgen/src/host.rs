//! What the host of a virtual machine takes of its processors, how busy they are, and when the machine gives them up.

use crate::aims::Report;
use std::fs;
use std::time::Duration;

/// How long a virtual processor without work is kept at most before the host has it, where this system decides that. Whoever wakes it
/// up later waits for its next turn there, which counts as taken by the host.
pub(crate) fn idle_kept() -> Option<Duration> {
    let read = |path: &str| fs::read_to_string(path).ok();
    let governor = read("/sys/devices/system/cpu/cpuidle/current_governor")?;
    let kept = read("/sys/module/haltpoll/parameters/guest_halt_poll_ns")?;
    let kept = kept.trim().parse().ok().map(Duration::from_nanos);
    kept.filter(|_| governor.trim() == "haltpoll")
}

/// Says so in a report.
pub(crate) fn tell_idle(report: &mut Report) {
    if let Some(kept) = idle_kept() {
        report.fact("an idle processor is kept for, at most", kept.as_secs_f64() * 1e6, "us");
    }
}

/// A reading of the kernel's counters, in ticks since the start of the machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    all: u64,
    by_host: u64,
    idle: u64,
}

impl Taken {
    /// Reads the counters; zeros where there are none.
    pub(crate) fn now() -> Self {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        Self::parse(&stat).unwrap_or(Self { all: 0, by_host: 0, idle: 0 })
    }

    /// The first line: user, nice, system, idle, iowait, irq, softirq, steal; what follows is counted in those already.
    fn parse(stat: &str) -> Option<Self> {
        let line = stat.lines().next()?.strip_prefix("cpu ")?;
        let ticks: Vec<u64> =
            line.split_whitespace().take(8).map_while(|n| n.parse().ok()).collect();
        let idle = ticks.get(3)? + ticks.get(4)?;
        Some(Self { all: ticks.iter().sum(), by_host: *ticks.get(7)?, idle })
    }

    /// How much of the processors the host took since this reading, and how much of them was in use here, in percent.
    pub(crate) fn percents_since(self) -> (f64, f64) {
        let now = Self::now();
        let all = now.all.saturating_sub(self.all).max(1);
        let taken = now.by_host.saturating_sub(self.by_host);
        let used = all.saturating_sub(now.idle.saturating_sub(self.idle) + taken);
        (100.0 * taken as f64 / all as f64, 100.0 * used as f64 / all as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_kernel() {
        let stat = "cpu  10 1 20 60 4 0 2 3 9 9\ncpu0 1 2\n";
        let taken = Taken::parse(stat).unwrap();
        assert_eq!((taken.all, taken.by_host, taken.idle), (100, 3, 64));
        for odd in ["", "cpu  1 2 3", "intr 5"] {
            assert!(Taken::parse(odd).is_none());
        }
    }
}
