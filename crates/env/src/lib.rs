//! The outside world as arguments: time, identifiers and chance.
//!
//! Nothing else in Rowhouse reads a wall clock or draws a random number. The real ones are [`SystemClock`]
//! and [`SystemRandom`]; a test passes [`SimulatedClock`] and [`SeededRandom`], and one seed is the same
//! run twice. Beside them, how a thread that can wait lets others go first, [`step_back`] and [`breathe`], and how much memory
//! there is.

mod memory;
mod priority;

pub use memory::memory_bytes;
pub use priority::{breathe, step_back};
use rowhouse_types::{Guid, Timestamp};
use std::cell::RefCell;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The wall clock. May jump; who needs strictly rising times keeps a mark of their own.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// The time now.
    fn now(&self) -> Timestamp;
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

/// A clock that stands still until it is told otherwise.
#[derive(Debug)]
pub struct SimulatedClock(AtomicU64);

impl SimulatedClock {
    /// Starts at the given time.
    pub fn new(start: Timestamp) -> Self {
        Self(AtomicU64::new(start.ticks()))
    }

    /// Sets the clock, forwards or back.
    pub fn set(&self, now: Timestamp) {
        self.0.store(now.ticks(), Ordering::SeqCst);
    }

    /// Moves the clock forwards.
    pub fn advance(&self, by: Duration) {
        let ticks = u64::try_from(by.as_nanos() / 100).unwrap_or(u64::MAX);
        self.0.fetch_add(ticks, Ordering::SeqCst);
    }
}

impl Clock for SimulatedClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_ticks(self.0.load(Ordering::SeqCst)).unwrap_or(Timestamp::MAX)
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
}
