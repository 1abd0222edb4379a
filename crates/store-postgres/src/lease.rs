//! How long a server may act on what it remembers.
//!
//! The database counts a lease on while the machine of the server, or the virtual machine that it is, is suspended. So the
//! server counts with [`boot_time`]: a server that wakes up after its lease has run out knows that it has.

use rowhouse_env::boot_time;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How long a lease is trusted after it was requested: less than the database keeps it, for clocks that run at different speeds.
const TRUST: Duration = Duration::from_millis(2500);

/// The lease of this server.
#[derive(Debug)]
pub(crate) struct Lease {
    /// A clock that goes on while the machine is suspended.
    clock: fn() -> Duration,
    joined: Duration,
    until: Mutex<Option<Duration>>,
}

impl Lease {
    /// A lease that is not granted yet.
    pub(crate) fn new() -> Self {
        Self::with_clock(boot_time)
    }

    fn with_clock(clock: fn() -> Duration) -> Self {
        Self { clock, joined: clock(), until: Mutex::new(None) }
    }

    /// The time to remember when a lease is requested.
    pub(crate) fn now(&self) -> Duration {
        (self.clock)()
    }

    /// The lease that was requested at that time was granted.
    pub(crate) fn renew(&self, requested: Duration) {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner) = Some(requested + TRUST);
    }

    /// Nothing is trusted from now on.
    pub(crate) fn end(&self) {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// How long it lasts from now; zero if it has run out.
    pub(crate) fn left(&self) -> Duration {
        let until = *self.until.lock().unwrap_or_else(PoisonError::into_inner);
        until.map_or(Duration::ZERO, |until| until.saturating_sub(self.now()))
    }

    /// Since when the server has had leases.
    pub(crate) fn age(&self) -> Duration {
        self.now().saturating_sub(self.joined)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    thread_local! {
        static NOW: Cell<Duration> = const { Cell::new(Duration::from_secs(100)) };
    }

    #[test]
    fn a_lease_runs_out_while_the_machine_is_suspended() {
        let lease = Lease::with_clock(|| NOW.get());
        assert_eq!(lease.left(), Duration::ZERO);
        lease.renew(lease.now());
        NOW.set(NOW.get() + Duration::from_secs(1));
        assert_eq!(lease.left(), Duration::from_millis(1500));
        // Suspended for a minute: no code runs, and std's Instant stands still.
        NOW.set(NOW.get() + Duration::from_mins(1));
        assert_eq!((lease.left(), lease.age()), (Duration::ZERO, Duration::from_secs(61)));
        lease.renew(lease.now());
        lease.end();
        assert_eq!(lease.left(), Duration::ZERO);
    }

    #[test]
    fn servers_use_the_clock_that_goes_on() {
        assert!(std::ptr::fn_addr_eq(Lease::new().clock, boot_time as fn() -> Duration));
    }
}
