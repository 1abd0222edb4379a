//! Sets of entity keys, as far as comparisons of PartitionKey and RowKey can describe them.
//!
//! Union and intersection are exact. What is not exact says so: [`KeySet::widened`] trades precision for
//! size, and [`KeySet::ranges`] has to read whole partitions where a condition on RowKey spans several.
//! Both only ever add keys.

use crate::steps::{Step, Steps, after};
use rowhouse_types::{KeyRange, Position};
use std::rc::Rc;

/// A set of halves of keys: true for those inside.
pub(crate) type Texts = Steps<bool>;

/// A set of keys: for every PartitionKey the RowKeys inside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeySet(Steps<Rc<Texts>>);

impl KeySet {
    /// Every key or none.
    pub(crate) fn constant(all: bool) -> Self {
        Self::of_rows(Texts::constant(all))
    }

    /// The keys with such a PartitionKey.
    pub(crate) fn of_partitions(partitions: &Texts) -> Self {
        let (all, none) = (Rc::new(Texts::constant(true)), Rc::new(Texts::constant(false)));
        Self(partitions.map(|&inside| Rc::clone(if inside { &all } else { &none })))
    }

    /// The keys with such a RowKey, in every partition.
    pub(crate) fn of_rows(rows: Texts) -> Self {
        Self(Steps::constant(Rc::new(rows)))
    }

    /// The keys in both.
    pub(crate) fn intersect(&self, other: &Self) -> Self {
        Self(self.0.merge(&other.0, |a, b| match (a.as_constant(), b.as_constant()) {
            (Some(true), _) | (_, Some(false)) => Rc::clone(b),
            (Some(false), _) | (_, Some(true)) => Rc::clone(a),
            _ => Rc::new(a.merge(b, |&a, &b| a && b)),
        }))
    }

    /// The keys in either.
    pub(crate) fn union(&self, other: &Self) -> Self {
        Self(self.0.merge(&other.0, |a, b| match (a.as_constant(), b.as_constant()) {
            (Some(false), _) | (_, Some(true)) => Rc::clone(b),
            (Some(true), _) | (_, Some(false)) => Rc::clone(a),
            _ => Rc::new(a.merge(b, |&a, &b| a || b)),
        }))
    }

    /// True if no key is inside.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.as_constant().is_some_and(|rows| rows.as_constant() == Some(&false))
    }

    /// A larger set that takes at most `max` ranges to describe; none if this one does already.
    ///
    /// First the rows of each partition are joined into one range. If partitions alone are too many, one
    /// range goes from the first key to the last.
    pub(crate) fn widened(&self, max: usize) -> Option<Self> {
        if self.size() <= max {
            return None;
        }
        let joined = Self(self.0.map(|rows| Rc::new(hull(rows))));
        if joined.size() <= max {
            return Some(joined);
        }
        let (ranges, _) = joined.ranges();
        let (Some(first), Some(last)) = (ranges.first(), ranges.last()) else {
            return Some(Self::constant(false));
        };
        let from_first = Self::from(&first.start);
        Some(match &last.end {
            Some(end) => from_first.intersect(&Self::from(end).complement()),
            None => from_first,
        })
    }

    /// Sorted, disjoint, non-empty ranges that hold every key of the set, and whether they hold no other.
    pub(crate) fn ranges(&self) -> (Vec<KeyRange>, bool) {
        let mut ranges = Vec::new();
        let mut exact = true;
        for step in self.0.iter() {
            let runs = step.value.iter().filter(|run| *run.value);
            if step.value.as_constant() == Some(&true) {
                let end = step.end.map(|end| Position::before(end, ""));
                push(&mut ranges, Position::before(step.start, ""), end);
            } else if step.single() {
                for run in runs {
                    let end = match run.end {
                        Some(end) => Position::before(step.start, end),
                        None => Position::after_partition(step.start),
                    };
                    push(&mut ranges, Position::before(step.start, run.start), Some(end));
                }
            } else if let Some((start, end)) = outermost(step.value) {
                exact = false;
                push(&mut ranges, first_edge(&step, start), last_edge(&step, end));
            }
        }
        (ranges, exact)
    }

    /// Every key from the position on.
    fn from(position: &Position) -> Self {
        let texts = |inside| Rc::new(Texts::constant(inside));
        let rows = Texts::constant(false).then(&*position.row, true);
        let steps = Steps::constant(texts(false))
            .then(&*position.partition, Rc::new(rows))
            .then(after(&position.partition), texts(true));
        Self(steps)
    }

    fn complement(&self) -> Self {
        Self(self.0.map(|rows| Rc::new(rows.map(|inside| !inside))))
    }

    /// Number of rectangles; never less than the number of ranges.
    fn size(&self) -> usize {
        self.0.iter().map(|step| step.value.iter().filter(|run| *run.value).count()).sum()
    }
}

/// Appends a range, or prolongs the last if that ends where this one starts.
fn push(ranges: &mut Vec<KeyRange>, start: Position, end: Option<Position>) {
    match ranges.last_mut() {
        Some(last) if last.end.as_ref() == Some(&start) => last.end = end,
        _ => ranges.push(KeyRange { start, end }),
    }
}

/// From the first text inside to the end of the last; none for the empty set.
fn outermost(texts: &Texts) -> Option<(&str, Option<&str>)> {
    let mut runs = texts.iter().filter(|run| *run.value);
    let first = runs.next()?;
    Some((first.start, runs.last().unwrap_or(first).end))
}

/// The smallest set without gaps that holds this one.
fn hull(texts: &Texts) -> Texts {
    let outside = Texts::constant(false);
    match outermost(texts) {
        None => outside,
        Some((start, None)) => outside.then(start, true),
        Some((start, Some(end))) => outside.then(start, true).then(end, false),
    }
}

/// Where to start in several partitions whose rows start at `row`.
///
/// Only in the very first partition can earlier rows be left out, and only if a partition is named
/// there: right after a key there is none, and an empty place is the start of the table.
fn first_edge(step: &Step<'_, Rc<Texts>>, row: &str) -> Position {
    let named = !step.start.is_empty() && !step.start.ends_with('\0');
    Position::before(step.start, if named { row } else { "" })
}

/// Where to stop in several partitions whose rows end at `row`: in the last one, if it is named.
fn last_edge(step: &Step<'_, Rc<Texts>>, row: Option<&str>) -> Option<Position> {
    let end = step.end?;
    Some(match (end.strip_suffix('\0'), row) {
        (Some(last), Some(row)) => Position::before(last, row),
        _ => Position::before(end, ""),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    /// Halves of keys; few, so that edges meet.
    fn half() -> impl Strategy<Value = String> {
        "[ab]{0,2}"
    }

    fn texts() -> impl Strategy<Value = Texts> {
        vec(half(), 0..5).prop_map(|mut places| {
            places.sort();
            places.iter().enumerate().fold(Texts::constant(false), |texts, (index, place)| {
                texts.then(place.as_str(), index % 2 == 0)
            })
        })
    }

    fn set() -> impl Strategy<Value = KeySet> {
        vec((texts(), texts()), 0..5).prop_map(|boxes| {
            boxes.iter().fold(KeySet::constant(false), |set, (partitions, rows)| {
                let part = KeySet::of_partitions(partitions);
                set.union(&part.intersect(&KeySet::of_rows(rows.clone())))
            })
        })
    }

    fn within(texts: &Texts, text: &str) -> bool {
        let before = |run: &Step<'_, bool>| run.end.is_none_or(|end| text < end);
        *texts.iter().find(before).unwrap().value
    }

    fn contains(set: &KeySet, partition: &str, row: &str) -> bool {
        let before = |step: &Step<'_, Rc<Texts>>| step.end.is_none_or(|end| partition < end);
        within(set.0.iter().find(before).unwrap().value, row)
    }

    proptest! {
        #[test]
        fn algebra(a in set(), b in set(), p in half(), r in half()) {
            let (in_a, in_b) = (contains(&a, &p, &r), contains(&b, &p, &r));
            prop_assert_eq!(contains(&a.intersect(&b), &p, &r), in_a && in_b);
            prop_assert_eq!(contains(&a.union(&b), &p, &r), in_a || in_b);
            prop_assert_eq!(contains(&a.complement(), &p, &r), !in_a);
            prop_assert_eq!(a.is_empty(), a == KeySet::constant(false));
        }

        #[test]
        fn widening_only_adds(a in set(), max in 1usize..6, p in half(), r in half()) {
            match a.widened(max) {
                None => prop_assert!(a.size() <= max),
                Some(wider) => {
                    let (ranges, _) = wider.ranges();
                    prop_assert!(ranges.len() <= max);
                    prop_assert_eq!(wider.union(&a), wider.clone());
                    if contains(&a, &p, &r) {
                        prop_assert!(ranges.iter().any(|range| range.contains(&p, &r)));
                    }
                }
            }
        }

        #[test]
        fn ranges_hold_the_set(a in set(), p in half(), r in half()) {
            let (ranges, exact) = a.ranges();
            let inside = ranges.iter().any(|range| range.contains(&p, &r));
            if exact {
                prop_assert_eq!(inside, contains(&a, &p, &r));
            } else {
                prop_assert!(inside || !contains(&a, &p, &r));
            }
            prop_assert!(!ranges.iter().any(KeyRange::is_empty));
            prop_assert!(ranges.windows(2).all(|w| w[0].end.as_ref().unwrap() < &w[1].start));
        }
    }
}
