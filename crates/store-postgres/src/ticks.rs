//! Ticks for Timestamps: rising on every server, and never the same on two.
//!
//! A tick carries in its low bits the slot that its server holds. A server gives out ticks up to a mark that the
//! database has for its slot, and whoever takes the slot over starts beyond that mark: so no tick is given out
//! twice, whatever clocks, crashes and pauses do.

use rowhouse_types::Timestamp;
use std::sync::{Mutex, PoisonError};

/// How many servers there can be.
pub(crate) const SLOTS: i64 = 64;
/// How far ahead of its ticks a server moves its mark.
pub(crate) const AHEAD: i64 = 2 * TICKS_PER_SECOND;
const TICKS_PER_SECOND: i64 = 10_000_000;

/// A tick that nobody else has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tick {
    pub(crate) at: i64,
}

/// What a server has given out and may give out.
#[derive(Debug)]
pub(crate) struct Ticks(Mutex<State>);

#[derive(Clone, Copy, Debug)]
struct State {
    slot: i64,
    last: i64,
    mark: i64,
}

/// The mark must be moved first, at least to here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exhausted(pub(crate) i64);

impl Ticks {
    /// Of a slot, beyond everything given out before.
    pub(crate) fn new(slot: i64, last: i64, mark: i64) -> Self {
        Self(Mutex::new(State { slot, last, mark }))
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        // Every change is one assignment: a panic elsewhere leaves nothing half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time, or the next tick after the last.
    pub(crate) fn next(&self, now: Timestamp) -> Result<Tick, Exhausted> {
        self.next_of(now, 1)
    }

    /// The same for so many ticks, each [`SLOTS`] after the one before it.
    pub(crate) fn next_of(&self, now: Timestamp, count: i64) -> Result<Tick, Exhausted> {
        let mut state = self.state();
        let now = i64::try_from(now.ticks()).unwrap_or(i64::MAX / 2);
        let at = after(state.last.max(now - 1), state.slot);
        let last = at + SLOTS * (count.max(1) - 1);
        if last > state.mark {
            return Err(Exhausted(last));
        }
        state.last = last;
        Ok(Tick { at })
    }

    /// Takes note of another server's tick: those that follow are later. An error if the mark must be moved first.
    pub(crate) fn observe(&self, tick: i64) -> Result<(), Exhausted> {
        let mut state = self.state();
        state.last = state.last.max(tick);
        if tick > state.mark { Err(Exhausted(tick)) } else { Ok(()) }
    }

    /// The database has this mark now.
    pub(crate) fn raise(&self, mark: i64) {
        let mut state = self.state();
        state.mark = state.mark.max(mark);
    }

    /// Another slot was taken, with everything before it given out.
    pub(crate) fn take(&self, slot: i64, last: i64, mark: i64) {
        let mut state = self.state();
        *state = State { slot, last: state.last.max(last), mark };
    }

    pub(crate) fn slot(&self) -> i64 {
        self.state().slot
    }

    pub(crate) fn last(&self) -> i64 {
        self.state().last
    }
}

/// The least tick of the slot that is later.
pub(crate) fn after(tick: i64, slot: i64) -> i64 {
    let at = tick - tick.rem_euclid(SLOTS) + slot;
    if at > tick { at } else { at + SLOTS }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn time(ticks: i64) -> Timestamp {
        Timestamp::from_ticks(ticks.try_into().unwrap()).unwrap()
    }

    #[test]
    fn rises_and_stops_at_the_mark() {
        let ticks = Ticks::new(3, 0, 1000);
        let at = |now| ticks.next(time(now)).map(|tick| tick.at);
        assert_eq!(at(100), Ok(131));
        assert_eq!(at(100), Ok(195));
        assert_eq!(at(0), Ok(259));
        assert_eq!(at(940), Ok(963));
        assert_eq!(at(940), Err(Exhausted(1027)));
        ticks.raise(2000);
        assert_eq!(at(940), Ok(1027));
        assert_eq!(ticks.observe(1500), Ok(()));
        assert_eq!(at(940), Ok(1539));
        assert_eq!(ticks.observe(5000), Err(Exhausted(5000)));
    }

    #[test]
    fn several_at_once_are_given_out_once() {
        let ticks = Ticks::new(3, 0, 1000);
        assert_eq!(ticks.next_of(time(100), 3), Ok(Tick { at: 131 }));
        assert_eq!(ticks.next(time(100)), Ok(Tick { at: 131 + 3 * SLOTS }));
        assert_eq!(ticks.next_of(time(100), 20), Err(Exhausted(387 + 19 * SLOTS)));
        assert_eq!(ticks.next(time(100)), Ok(Tick { at: 387 }));
    }

    proptest! {
        #[test]
        fn two_slots_never_meet(tick in 0i64..1 << 40, a in 0..SLOTS, b in 0..SLOTS) {
            let (x, y) = (after(tick, a), after(tick, b));
            prop_assert!(tick < x && x <= tick + SLOTS && x % SLOTS == a);
            prop_assert_eq!(x == y, a == b);
        }
    }
}
