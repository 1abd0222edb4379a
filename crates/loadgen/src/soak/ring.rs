//! A table that is written at one end and deleted at the other, so that its size stays the same.

use std::collections::VecDeque;

/// The next change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Insert what has this number; it has never been there.
    Add(u64),
    /// Delete what has this number; it is there.
    Remove(u64),
}

/// Which numbers are there.
#[derive(Debug)]
pub(super) struct Ring {
    next: u64,
    live: VecDeque<u64>,
    size: usize,
}

impl Ring {
    /// Filled with the numbers below the size.
    pub(super) fn new(size: u64) -> Self {
        Self { next: size, live: (0..size).collect(), size: size as usize }
    }

    /// Adds and removes in turn. What is under way belongs to nobody until it is settled.
    pub(super) fn step(&mut self) -> Step {
        if self.live.len() >= self.size
            && let Some(oldest) = self.live.pop_front()
        {
            return Step::Remove(oldest);
        }
        self.next += 1;
        Step::Add(self.next - 1)
    }

    /// Notes what has become of a step. Of a step that was not done nothing is kept when it would have added, and
    /// the number stays when it would have removed.
    pub(super) fn settle(&mut self, step: Step, done: bool) {
        match (step, done) {
            (Step::Add(number), true) => self.live.push_back(number),
            (Step::Remove(number), false) => self.live.push_front(number),
            (Step::Add(_), false) | (Step::Remove(_), true) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_stays_and_numbers_do_not_repeat() {
        let mut ring = Ring::new(3);
        let mut seen = Vec::new();
        for round in 0..100 {
            let step = ring.step();
            if let Step::Add(number) = step {
                assert!(number >= 3 && !seen.contains(&number));
                seen.push(number);
            }
            ring.settle(step, round % 10 != 9);
            assert!((2..=3).contains(&ring.live.len()), "{ring:?}");
        }
        assert!(seen.len() > 40);
    }
}
