//! How far the Timestamps of the store are ahead of the clock, and whether any are left.
//!
//! Timestamps rise strictly, so one that was given out while the clock was ahead, or that was restored, keeps all later
//! ones ahead until the clock has caught up. Nobody notices that by itself, so the log and a metric report it.

use rowhouse_env::Clock;
use rowhouse_types::{Timestamp, limits::STORE_AHEAD_SECONDS_WARN};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// The last Timestamp, compared with the clock.
#[derive(Debug)]
pub(crate) struct Lead {
    /// In ticks.
    last: AtomicU64,
    /// The log has a warning that still holds.
    warned: AtomicBool,
}

impl Lead {
    pub(crate) fn new(last: Timestamp, clock: &dyn Clock) -> Self {
        let this = Self { last: AtomicU64::new(0), warned: AtomicBool::new(false) };
        this.note(last, clock);
        this
    }

    /// That was the last Timestamp. Warns when it is ahead of the clock, and once more when it no longer is.
    pub(crate) fn note(&self, last: Timestamp, clock: &dyn Clock) {
        self.last.store(last.ticks(), Ordering::Release);
        let seconds = self.ahead(clock).as_secs();
        let is_ahead = STORE_AHEAD_SECONDS_WARN < seconds;
        if is_ahead == self.warned.load(Ordering::Relaxed) {
            return;
        }
        self.warned.store(is_ahead, Ordering::Relaxed);
        if is_ahead {
            tracing::warn!(
                seconds,
                "Timestamps are ahead of the clock of this machine: check that the clock is right; it was ahead \
                 before, or what was restored was"
            );
        } else {
            tracing::info!("Timestamps are no longer ahead of the clock");
        }
    }

    /// By how much the last Timestamp is ahead of the clock.
    pub(crate) fn ahead(&self, clock: &dyn Clock) -> Duration {
        let ticks = self.last.load(Ordering::Acquire).saturating_sub(clock.now().ticks());
        Duration::from_nanos(ticks.saturating_mul(100))
    }

    /// Whether another Timestamp can be given out.
    pub(crate) fn has_ticks(&self) -> bool {
        self.last.load(Ordering::Acquire) < Timestamp::MAX.ticks()
    }
}
