//! Whose time decides which entities have expired.
//!
//! It is that of the database, which all servers share: a server whose own clock is ahead must not take for expired what is
//! not. A server measures the database's clock whenever it renews its lease, and counts on from there with the time that
//! has passed. Its own clock is compared with it, so that the log and a metric can report that it is wrong.

use crate::options::QueueClock;
use rowhouse_env::Clock;
use rowhouse_types::{Timestamp, limits::DATABASE_CLOCK_SECONDS_MAX};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The time of the database, in ticks.
pub(crate) const CLOCK: &str = "SELECT rowhouse.clock()";
/// A measurement that took longer is less exact than an earlier one.
const MEASURE_WITHIN: Duration = Duration::from_millis(500);

/// The time that entities expire by.
#[derive(Clone, Debug)]
pub(crate) struct ExpiryTime(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    clock: Arc<dyn Clock>,
    whose: QueueClock,
    /// The database's time in ticks, and what the clock had elapsed then.
    measured: Mutex<Option<(u64, Duration)>>,
    /// The log has a warning that still holds.
    warned: AtomicBool,
}

impl ExpiryTime {
    pub(crate) fn new(clock: Arc<dyn Clock>, whose: QueueClock) -> Self {
        let (measured, warned) = (Mutex::new(None), AtomicBool::new(false));
        Self(Arc::new(Inner { clock, whose, measured, warned }))
    }

    /// Whether the database's clock decides.
    pub(crate) fn is_of_database(&self) -> bool {
        self.0.whose == QueueClock::Database
    }

    /// The database said that it was that time, between these two readings of [`Clock::elapsed`].
    pub(crate) fn measure(&self, ticks: i64, before: Duration, after: Duration) {
        let took = after.saturating_sub(before);
        {
            let mut measured = self.0.measured.lock().unwrap_or_else(PoisonError::into_inner);
            if MEASURE_WITHIN < took && measured.is_some() {
                return;
            }
            *measured = Some((ticks.unsigned_abs(), before + took / 2));
        }
        self.warn();
    }

    /// The time that decides, now.
    pub(crate) fn now(&self) -> Timestamp {
        let found = if self.is_of_database() { self.database_now() } else { None };
        found.unwrap_or_else(|| self.0.clock.now())
    }

    fn database_now(&self) -> Option<Timestamp> {
        let measured = *self.0.measured.lock().unwrap_or_else(PoisonError::into_inner);
        let (ticks, at) = measured?;
        let passed = self.0.clock.elapsed().saturating_sub(at).as_nanos() / 100;
        Timestamp::from_ticks(ticks.saturating_add(u64::try_from(passed).unwrap_or(u64::MAX)))
    }

    /// How far this server's clock is from that of the database; nothing if the database's does not decide.
    pub(crate) fn offset(&self) -> Duration {
        if !self.is_of_database() {
            return Duration::ZERO;
        }
        let Some(database) = self.database_now() else { return Duration::ZERO };
        let ticks = database.ticks().abs_diff(self.0.clock.now().ticks());
        Duration::from_nanos(ticks.saturating_mul(100))
    }

    /// Whether this server's clock is so wrong that the server must not remove anything.
    pub(crate) fn is_off(&self) -> bool {
        Duration::from_secs(DATABASE_CLOCK_SECONDS_MAX) < self.offset()
    }

    /// Whether this server may remove what has expired. Not before it has compared its clock with that of the database.
    pub(crate) fn may_remove(&self) -> bool {
        !self.is_of_database() || (self.database_now().is_some() && !self.is_off())
    }

    fn warn(&self) {
        let is_off = self.is_off();
        if self.0.warned.swap(is_off, Ordering::Relaxed) == is_off {
            return;
        }
        if is_off {
            let seconds = self.offset().as_secs();
            tracing::warn!(
                seconds,
                "the clock of this machine differs from that of the database: this server removes no expired \
                 entities until it is right"
            );
        } else {
            tracing::info!("the clock of this machine agrees with that of the database");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rowhouse_env::SimulatedClock;

    fn start() -> Timestamp {
        Timestamp::parse_iso("2026-01-01T00:00:00Z").unwrap()
    }

    fn ticks(time: Timestamp) -> i64 {
        i64::try_from(time.ticks()).unwrap()
    }

    #[test]
    fn the_database_decides_and_time_passes() {
        let clock = Arc::new(SimulatedClock::new(start()));
        let time = ExpiryTime::new(Arc::clone(&clock) as Arc<dyn Clock>, QueueClock::Database);
        assert!(!time.is_off());
        let at = clock.elapsed();
        time.measure(ticks(start().plus_seconds(100)), at, at);
        clock.advance(Duration::from_secs(5));
        assert_eq!(time.now(), start().plus_seconds(105));
        assert_eq!(time.offset().as_secs(), 100);
        assert!(time.is_off());
        // Its own clock is set meanwhile.
        clock.jump(start().plus_seconds(105));
        assert_eq!((time.now(), time.is_off()), (start().plus_seconds(105), false));
    }

    #[test]
    fn a_slow_answer_does_not_replace_a_quick_one() {
        let clock = Arc::new(SimulatedClock::new(start()));
        let time = ExpiryTime::new(Arc::clone(&clock) as Arc<dyn Clock>, QueueClock::Database);
        let (at, slow) = (clock.elapsed(), clock.elapsed() + Duration::from_secs(2));
        clock.advance(Duration::from_secs(2));
        time.measure(ticks(start().plus_seconds(1)), at, slow);
        assert_eq!(time.now(), start().plus_seconds(2), "the first is better than none");
        let at = clock.elapsed();
        time.measure(ticks(start().plus_seconds(100)), at, at);
        time.measure(ticks(start()), at, at + Duration::from_secs(2));
        assert_eq!(time.now(), start().plus_seconds(100));
    }

    #[test]
    fn nothing_is_removed_before_the_clocks_were_compared() {
        let clock = Arc::new(SimulatedClock::new(start()));
        let time = ExpiryTime::new(Arc::clone(&clock) as Arc<dyn Clock>, QueueClock::Database);
        let at = clock.elapsed();
        assert!(!time.may_remove());
        time.measure(ticks(start().plus_seconds(2)), at, at);
        assert!(time.may_remove());
        time.measure(ticks(start().plus_seconds(3)), at, at);
        assert!(!time.may_remove());
        let of_server = ExpiryTime::new(clock, QueueClock::Server);
        assert!(of_server.may_remove());
    }

    #[test]
    fn a_server_decides_where_it_is_told_to() {
        let clock = Arc::new(SimulatedClock::new(start()));
        let time = ExpiryTime::new(Arc::clone(&clock) as Arc<dyn Clock>, QueueClock::Server);
        time.measure(ticks(start().plus_seconds(100)), Duration::ZERO, Duration::ZERO);
        assert_eq!((time.now(), time.offset()), (start(), Duration::ZERO));
    }
}
