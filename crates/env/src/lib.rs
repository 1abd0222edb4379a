//! The outside world as arguments: time, identifiers and chance.
//!
//! Nothing else in Rowhouse reads a wall clock or draws a random number. The real ones are [`SystemClock`]
//! and [`SystemRandom`]; a test passes [`SimulatedClock`] and [`SeededRandom`], and one seed is the same
//! run twice. [`boot_time`] is for leases. Beside them, how a thread that can wait lets others go first,
//! [`step_back`] and [`breathe`], how long a task holds its thread ([`polls`]), and how much memory there is.

mod boot;
mod memory;
pub mod polls;
mod priority;

pub use boot::boot_time;
pub use memory::memory_bytes;
pub use polls::thread_time;
pub use priority::{breathe, step_back};
use rowhouse_types::{Guid, Timestamp};
use std::cell::RefCell;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The wall clock. May jump; who needs strictly rising times keeps a mark of their own.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// The time now.
    fn now(&self) -> Timestamp;

    /// How long this clock has run, from a start that means nothing. Only differences count: they are the time that has
    /// passed, whatever the wall clock was set to meanwhile, and include the time that the machine was suspended.
    fn elapsed(&self) -> Duration {
        boot_time()
    }
}

/// Chance, good enough for keys.
pub trait Random: fmt::Debug + Send + Sync + 'static {
    /// Fills the buffer.
    fn fill(&self, buffer: &mut [u8]);

    /// A random identifier (version 4).
    fn guid(&self) -> Guid {
        let mut bytes = [0; 16];
        self.fill(&mut bytes);
        bytes[6] = bytes[6] & 0x0F | 0x40;
        bytes[8] = bytes[8] & 0x3F | 0x80;
        Guid(bytes)
    }
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        Timestamp::from_unix(since)
    }
}

/// The operating system's random numbers.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemRandom;

impl Random for SystemRandom {
    /// Asks the operating system for many bytes at a time, because every request needs a few.
    fn fill(&self, buffer: &mut [u8]) {
        const POOL: usize = 1024;
        thread_local! {
            static UNUSED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
        }
        let draw = |buffer: &mut [u8]| {
            getrandom::fill(buffer).expect("the operating system gives random numbers");
        };
        if POOL / 16 < buffer.len() {
            return draw(buffer);
        }
        UNUSED.with_borrow_mut(|unused| {
            if unused.len() < buffer.len() {
                unused.resize(POOL, 0);
                draw(unused);
            }
            // What is given out is forgotten: nobody gets it again.
            let rest = unused.len() - buffer.len();
            buffer.copy_from_slice(&unused[rest..]);
            unused[rest..].fill(0);
            unused.truncate(rest);
        });
    }
}

/// A clock that stands still until a test moves it.
#[derive(Debug)]
pub struct SimulatedClock(Mutex<Simulated>);

/// All in ticks.
#[derive(Debug)]
struct Simulated {
    wall: u64,
    /// The latest time that the wall clock has shown, leaving out [`SimulatedClock::jump`].
    peak: u64,
    elapsed: u64,
}

impl SimulatedClock {
    /// Starts at the given time.
    pub fn new(start: Timestamp) -> Self {
        let start = start.ticks();
        Self(Mutex::new(Simulated { wall: start, peak: start, elapsed: 0 }))
    }

    /// Sets the clock, forwards or back. Time passes only as far as the new time is later than every time before it.
    pub fn set(&self, now: Timestamp) {
        let mut time = self.time();
        time.wall = now.ticks();
        time.elapsed += time.wall.saturating_sub(time.peak);
        time.peak = time.peak.max(time.wall);
    }

    /// The latest time that it was set to.
    pub fn latest(&self) -> Timestamp {
        Timestamp::from_ticks(self.time().peak).unwrap_or(Timestamp::MAX)
    }

    /// Sets the wall clock to a wrong time, or back to the right one: no time passes.
    pub fn jump(&self, now: Timestamp) {
        self.time().wall = now.ticks();
    }

    /// Lets time pass.
    pub fn advance(&self, by: Duration) {
        let ticks = u64::try_from(by.as_nanos() / 100).unwrap_or(u64::MAX);
        let mut time = self.time();
        time.wall = time.wall.saturating_add(ticks);
        time.elapsed = time.elapsed.saturating_add(ticks);
        time.peak = time.peak.max(time.wall);
    }

    fn time(&self) -> MutexGuard<'_, Simulated> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock for SimulatedClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_ticks(self.time().wall).unwrap_or(Timestamp::MAX)
    }

    fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.time().elapsed.saturating_mul(100))
    }
}

/// Numbers that follow from a seed (splitmix64). Never for keys.
#[derive(Debug)]
pub struct SeededRandom(AtomicU64);

impl SeededRandom {
    /// The same seed gives the same numbers.
    pub fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }

    fn next(&self) -> u64 {
        const STEP: u64 = 0x9E37_79B9_7F4A_7C15;
        let mut z = self.0.fetch_add(STEP, Ordering::SeqCst).wrapping_add(STEP);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

impl Random for SeededRandom {
    fn fill(&self, buffer: &mut [u8]) {
        for chunk in buffer.chunks_mut(8) {
            chunk.copy_from_slice(&self.next().to_le_bytes()[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_is_one_sequence() {
        let draw = |seed| {
            let random = SeededRandom::new(seed);
            (random.guid(), random.guid())
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        assert_ne!(draw(1).0, draw(1).1);
        assert_eq!(draw(1).0.to_string().as_bytes()[14], b'4');
    }

    #[test]
    fn the_system_never_repeats_itself() {
        let mut seen = std::collections::HashSet::new();
        for _ in 0..1000 {
            assert!(seen.insert(SystemRandom.guid()));
        }
        let mut long = [0; 200];
        SystemRandom.fill(&mut long);
        assert_ne!(long[..100], long[100..]);
    }

    #[test]
    fn the_simulated_clock_moves_only_when_told() {
        let clock = SimulatedClock::new(Timestamp::EDM_MIN);
        assert_eq!(clock.now(), clock.now());
        clock.advance(Duration::from_secs(2));
        assert_eq!(clock.now().seconds_from(Timestamp::EDM_MIN), 2);
    }

    #[test]
    fn a_wall_clock_that_is_set_does_not_turn_time_back() {
        let clock = SimulatedClock::new(Timestamp::EDM_MIN.plus_seconds(100));
        let elapsed = || clock.elapsed().as_secs();
        clock.set(Timestamp::EDM_MIN.plus_seconds(110));
        assert_eq!(elapsed(), 10);
        clock.set(Timestamp::EDM_MIN);
        clock.set(Timestamp::EDM_MIN.plus_seconds(110));
        assert_eq!(elapsed(), 10);
        clock.jump(Timestamp::EDM_MIN.plus_seconds(1000));
        assert_eq!((elapsed(), clock.now()), (10, Timestamp::EDM_MIN.plus_seconds(1000)));
        clock.jump(Timestamp::EDM_MIN.plus_seconds(110));
        clock.advance(Duration::from_secs(5));
        assert_eq!((elapsed(), clock.now()), (15, Timestamp::EDM_MIN.plus_seconds(115)));
    }

    #[test]
    fn the_system_clock_measures_what_passes() {
        let (before, began) = (SystemClock.elapsed(), std::time::Instant::now());
        std::thread::sleep(Duration::from_millis(20));
        let passed = SystemClock.elapsed().saturating_sub(before);
        assert!(Duration::from_millis(20) <= passed && passed <= began.elapsed(), "{passed:?}");
    }
}
