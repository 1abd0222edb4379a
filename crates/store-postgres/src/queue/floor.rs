//! From where on a queue is looked through for messages to take.
//!
//! What is left of messages that were taken and deleted stands before those that are there. PostgreSQL clears it away, but not while
//! a transaction is open that might see it, such as a backup's: then everyone who takes would read past all that was taken since
//! that began. So a server remembers until when there was nothing, and looks from there on.
//!
//! A message may still appear before that place: one whose commit takes long, one that is restored, one that somebody had in hand and
//! let go, or any when the clock of the database is set back. So the place stays behind the time by more than a write takes, and
//! every few seconds everything is looked through.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often everything is looked through, unless that takes long; and at least how often.
const WHOLE_EVERY: Duration = Duration::from_secs(5);
const WHOLE_AT_LEAST: Duration = Duration::from_mins(1);
/// It may take this part of the time.
const PART: u32 = 20;
/// Added to what a write may take.
const SLACK: Duration = Duration::from_secs(5);
/// Queues after which all are forgotten: a bound of memory.
const QUEUES_MAX: usize = 50_000;

/// The places of the queues that this server takes from.
#[derive(Debug)]
pub(crate) struct Floors {
    queues: Mutex<HashMap<i64, Floor>>,
    /// How far they stay behind, in ticks.
    behind: i64,
}

#[derive(Clone, Copy, Debug)]
struct Floor {
    /// Nothing that is visible was before.
    at: i64,
    /// When everything is looked through next.
    whole: Instant,
}

/// Where to look from, and since when.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) from: i64,
    began: Instant,
}

impl Floors {
    /// For writes that take that long at most.
    pub(crate) fn new(write_within: Duration) -> Self {
        let behind = (write_within + SLACK).as_nanos() / 100;
        Self { queues: Mutex::default(), behind: i64::try_from(behind).unwrap_or(i64::MAX) }
    }

    fn change<T>(&self, change: impl FnOnce(&mut HashMap<i64, Floor>) -> T) -> T {
        // Every change is one insertion: a panic elsewhere leaves nothing half done.
        change(&mut self.queues.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// From where on to look through a queue: its beginning if it is time for that, and then others need not.
    pub(crate) fn ask(&self, queue: i64) -> Asked {
        self.ask_at(queue, Instant::now())
    }

    fn ask_at(&self, queue: i64, began: Instant) -> Asked {
        self.change(|queues| {
            let Some(floor) = queues.get_mut(&queue) else { return Asked { from: 0, began } };
            if floor.whole <= began {
                floor.whole = began + WHOLE_AT_LEAST;
                return Asked { from: 0, began };
            }
            Asked { from: floor.at, began }
        })
    }

    /// What was found at that time of the database: the first that was visible, if any.
    pub(crate) fn learn(&self, queue: i64, asked: Asked, now: i64, first: Option<i64>) {
        let took = asked.began.elapsed();
        self.learn_after(queue, asked, took, now, first);
    }

    fn learn_after(&self, queue: i64, asked: Asked, took: Duration, now: i64, first: Option<i64>) {
        let at = first.unwrap_or(i64::MAX).min(now.saturating_sub(self.behind));
        self.change(|queues| {
            if asked.from == 0 {
                if queues.len() >= QUEUES_MAX {
                    queues.clear();
                }
                let wait = (took * PART).clamp(WHOLE_EVERY, WHOLE_AT_LEAST);
                queues.insert(queue, Floor { at, whole: asked.began + took + wait });
            } else if let Some(floor) = queues.get_mut(&queue) {
                floor.at = floor.at.max(at);
            }
        });
    }

    /// Something was put before the place.
    pub(crate) fn forget(&self, queue: i64) {
        self.change(|queues| queues.remove(&queue));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 10_000_000;
    const SOON: Duration = Duration::from_millis(1);

    #[test]
    fn stays_behind_the_time_and_before_what_was_found() {
        let (floors, began) = (Floors::new(Duration::from_secs(15)), Instant::now());
        let asked = floors.ask_at(7, began);
        assert_eq!(asked.from, 0);
        floors.learn_after(7, asked, SOON, 100 * SECOND, None);
        assert_eq!(floors.ask_at(7, began).from, 80 * SECOND);
        assert_eq!(floors.ask_at(8, began).from, 0, "another queue");
        floors.learn_after(7, floors.ask_at(7, began), SOON, 110 * SECOND, Some(85 * SECOND));
        assert_eq!(floors.ask_at(7, began).from, 85 * SECOND);
        floors.learn_after(7, floors.ask_at(7, began), SOON, 90 * SECOND, None);
        assert_eq!(floors.ask_at(7, began).from, 85 * SECOND, "it does not go back");
        floors.forget(7);
        assert_eq!(floors.ask_at(7, began).from, 0);
    }

    #[test]
    fn everything_is_looked_through_by_one_every_few_seconds() {
        let (floors, began) = (Floors::new(Duration::from_secs(15)), Instant::now());
        floors.learn_after(7, floors.ask_at(7, began), SOON, 100 * SECOND, None);
        let later = began + WHOLE_EVERY + Duration::from_secs(1);
        let whole = floors.ask_at(7, later);
        assert_eq!(whole.from, 0);
        assert_eq!(floors.ask_at(7, later).from, 80 * SECOND, "one does");
        // What was found there counts, though it is before the place.
        let took = Duration::from_secs(1);
        floors.learn_after(7, whole, took, 110 * SECOND, Some(3 * SECOND));
        assert_eq!(floors.ask_at(7, later).from, 3 * SECOND);
        let soon = later + WHOLE_EVERY + Duration::from_secs(2);
        assert_eq!(
            floors.ask_at(7, soon).from,
            3 * SECOND,
            "it takes long, so it is done less often"
        );
        assert_eq!(floors.ask_at(7, later + took * (PART + 2)).from, 0);
    }
}
