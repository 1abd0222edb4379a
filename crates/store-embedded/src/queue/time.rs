//! The time of queues: what decides which messages are visible and which have expired.
//!
//! When the store is opened it is the last Timestamp, or that of the wall clock if that is later. From then on it
//! advances with the time that has passed. So a wall clock that is wrong for a moment neither shows hidden messages early
//! nor stops the queues until the right time has caught up. While it is ahead of the wall clock it runs a little slower
//! than time, until it is not. It never goes back, which the places that a take starts at rely on ([`super::dead`]).

use rowhouse_env::Clock;
use rowhouse_types::Timestamp;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// While it is ahead of the wall clock, it leaves out one of so many ticks: ten minutes are made good in less than three hours.
const LEFT_OUT: u64 = 16;

/// The time of queues.
#[derive(Debug)]
pub(crate) struct QueueTime {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// What it was last, in ticks.
    time: u64,
    /// What the clock had elapsed then.
    at: Duration,
    /// The time of the last batch that is committed, in ticks.
    committed: u64,
}

impl QueueTime {
    /// Starts at the mark, or at the time of the clock if that is later.
    pub(crate) fn new(clock: Arc<dyn Clock>, mark: Timestamp) -> Self {
        let (time, committed) = (mark.max(clock.now()).ticks(), mark.ticks());
        let state = Mutex::new(State { time, at: clock.elapsed(), committed });
        Self { clock, state }
    }

    /// The time now.
    pub(crate) fn now(&self) -> Timestamp {
        let (elapsed, wall) = (self.clock.elapsed(), self.clock.now().ticks());
        let mut state = self.state();
        // Another thread may have been here since.
        let passed = elapsed.saturating_sub(state.at).as_nanos() / 100;
        let passed = u64::try_from(passed).unwrap_or(u64::MAX);
        let ahead = state.time.saturating_add(passed).saturating_sub(wall);
        state.time = state.time.saturating_add(passed - ahead.min(passed / LEFT_OUT));
        state.at += Duration::from_nanos(passed.saturating_mul(100));
        state.time = state.time.max(state.committed);
        Timestamp::from_ticks(state.time).unwrap_or(Timestamp::MAX)
    }

    /// The time of the last batch that is committed.
    pub(crate) fn committed(&self) -> Timestamp {
        Timestamp::from_ticks(self.state().committed).unwrap_or(Timestamp::MAX)
    }

    /// A batch of that time is committed.
    pub(crate) fn commit(&self, time: Timestamp) {
        let mut state = self.state();
        state.committed = state.committed.max(time.ticks());
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change is one assignment: a panic elsewhere leaves nothing half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rowhouse_env::SimulatedClock;

    fn start() -> Timestamp {
        Timestamp::parse_iso("2026-01-01T00:00:00Z").unwrap()
    }

    #[test]
    fn a_wall_clock_that_jumps_changes_nothing() {
        let clock = Arc::new(SimulatedClock::new(start()));
        let time = QueueTime::new(Arc::clone(&clock) as Arc<dyn Clock>, Timestamp::default());
        clock.jump(start().plus_seconds(600));
        assert_eq!(time.now(), start());
        clock.advance(Duration::from_secs(10));
        assert_eq!(time.now(), start().plus_seconds(10));
        clock.jump(start().plus_seconds(10));
        clock.advance(Duration::from_secs(10));
        assert_eq!(time.now(), start().plus_seconds(20));
    }

    #[test]
    fn a_lead_is_made_good() {
        let clock = Arc::new(SimulatedClock::new(start()));
        let mark = start().plus_seconds(600);
        let time = QueueTime::new(Arc::clone(&clock) as Arc<dyn Clock>, mark);
        let mut last = time.now();
        assert_eq!(last, mark);
        for _ in 0..600 {
            clock.advance(Duration::from_secs(16));
            let now = time.now();
            assert!(15 <= now.seconds_from(last) && now.seconds_from(last) <= 16);
            last = now;
        }
        assert_eq!(last, clock.now());
    }

    #[test]
    fn it_is_never_before_what_is_committed() {
        let clock = Arc::new(SimulatedClock::new(start()));
        let time = QueueTime::new(Arc::clone(&clock) as Arc<dyn Clock>, Timestamp::default());
        time.commit(start().plus_seconds(1));
        assert_eq!((time.now(), time.committed()), (start().plus_seconds(1), time.now()));
    }
}
