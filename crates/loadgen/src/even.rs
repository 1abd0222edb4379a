//! How evenly the machine runs: the same work on every processor, counted in short stretches.
//!
//! What runs beside a virtual machine on the same cores and caches slows it down without taking its processors, so the kernel
//! counts nothing as taken. At a fixed rate a stretch at half the speed is too much work for a while, and answers wait.

use crate::aims::Report;
use std::hint::black_box;
use std::time::{Duration, Instant};

const STRETCH: Duration = Duration::from_millis(50);
/// As much as does not fit into the caches of one core.
const MEMORY: usize = 8 << 20;
/// Steps between two looks at the clock: some tenths of a millisecond.
const STEPS: usize = 20_000;

/// Works for a while and tells how slow the slowest stretches were.
pub(crate) fn tell(when: &str, length: Duration, report: &mut Report) {
    let mut speeds = speeds(length);
    speeds.sort_by(f64::total_cmp);
    let median = at(&speeds, 0.5);
    if median > 0.0 {
        let mut fact = |what, value| {
            report.fact(format!("speed of the machine {when}, {what}"), value, "% of the median");
        };
        fact("slowest 1 % of 50 ms", 100.0 * at(&speeds, 0.01) / median);
        fact("slowest 50 ms", 100.0 * at(&speeds, 0.0) / median);
    }
}

/// Steps a second in each stretch, of all processors.
fn speeds(length: Duration) -> Vec<f64> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..processors).map(|_| scope.spawn(|| work(length))).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap_or_default()).collect()
    })
}

fn work(length: Duration) -> Vec<f64> {
    let mut memory = vec![0_u8; MEMORY];
    let mut state = 88_172_645_463_325_252_u64;
    let (start, mut speeds) = (Instant::now(), Vec::new());
    while start.elapsed() < length {
        let (stretch, mut steps) = (Instant::now(), 0_u64);
        let elapsed = loop {
            for _ in 0..STEPS {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                let place = &mut memory[state as usize % MEMORY];
                *place = place.wrapping_add(1);
            }
            steps += STEPS as u64;
            let elapsed = stretch.elapsed();
            if elapsed >= STRETCH {
                break elapsed;
            }
        };
        speeds.push(steps as f64 / elapsed.as_secs_f64());
    }
    black_box(&memory);
    speeds
}

/// The value below which a share of them is.
fn at(sorted: &[f64], share: f64) -> f64 {
    let place = (sorted.len() as f64 * share) as usize;
    sorted.get(place).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_what_was_counted() {
        let sorted: Vec<f64> = (0..200).map(f64::from).collect();
        let found = [0.0, 0.01, 0.5].map(|share| at(&sorted, share) as u64);
        assert_eq!(found, [0, 2, 100]);
        assert_eq!(at(&[], 0.5) as u64, 0);
    }

    #[test]
    fn every_stretch_is_counted() {
        let speeds = speeds(Duration::from_millis(200));
        assert!(speeds.len() >= 2 && speeds.iter().all(|speed| *speed > 0.0), "{speeds:?}");
    }
}
