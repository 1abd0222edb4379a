//! Sets of components, as far as a condition on one property can describe them.
//!
//! A property that is missing has a component too, so a set says whether an entity without it may be meant. Union and
//! intersection are exact up to [`limits::PLAN_RANGES_MAX`] intervals; beyond, neighbours are joined, which only adds.

use super::component::{self, END, MISSING};
use rowhouse_types::{EdmType, limits};
use std::rc::Rc;

/// The components from one place on up to another; not empty.
///
/// An edge is a component, the place after one, or a beginning of components: never a component with something
/// behind it. So what follows a component in an entry does not move it across an edge.
#[derive(Clone, Debug)]
pub(crate) struct Interval {
    pub(crate) start: Rc<[u8]>,
    pub(crate) end: Rc<[u8]>,
    /// Holds one component, which is `start`.
    pub(crate) single: bool,
}

impl Interval {
    fn new(start: Rc<[u8]>, end: Rc<[u8]>) -> Self {
        let single = component::is_whole(&start) && *component::after(&start) == *end;
        Self { start, end, single }
    }
}

/// Sorted and disjoint intervals. Those that touch are one, unless both are single: single ones are looked up by
/// themselves.
#[derive(Clone, Debug, Default)]
pub(crate) struct Set(Vec<Interval>);

impl Set {
    /// Nothing.
    pub(crate) fn none() -> Self {
        Self::default()
    }

    /// Every value, and none.
    pub(crate) fn all() -> Self {
        let mut set = Self::none();
        set.push([MISSING], [END]);
        set
    }

    /// Every value of a type.
    pub(crate) fn of_type(edm_type: EdmType) -> Self {
        let mut set = Self::none();
        set.push_type(edm_type);
        set
    }

    /// Adds an interval that starts no earlier than the last one; nothing if it is empty.
    pub(crate) fn push(&mut self, start: impl Into<Rc<[u8]>>, end: impl Into<Rc<[u8]>>) {
        let (start, end) = (start.into(), end.into());
        if start < end {
            self.add(Interval::new(start, end));
        }
    }

    /// Adds all values of a type, as [`Self::push`] does.
    pub(crate) fn push_type(&mut self, edm_type: EdmType) {
        let tag = component::tag(edm_type);
        self.push(component::first(tag), component::first(tag + 1));
    }

    /// Adds that the property is missing, as [`Self::push`] does.
    pub(crate) fn push_missing(&mut self) {
        self.push([MISSING], component::after(&[MISSING]));
    }

    fn add(&mut self, next: Interval) {
        match self.0.last_mut() {
            Some(last)
                if next.start < last.end
                    || (next.start == last.end && !(last.single && next.single)) =>
            {
                if last.end < next.end {
                    *last = Interval::new(Rc::clone(&last.start), next.end);
                }
            }
            _ => self.0.push(next),
        }
    }

    /// What is in either.
    pub(crate) fn union(&self, other: &Self) -> Self {
        let mut result = Self::none();
        let (mut left, mut right) = (self.0.iter().peekable(), other.0.iter().peekable());
        loop {
            let next = match (left.peek(), right.peek()) {
                (None, None) => return result.limited(),
                (Some(a), Some(b)) if a.start <= b.start => left.next(),
                (Some(_), None) => left.next(),
                _ => right.next(),
            };
            if let Some(interval) = next {
                result.add(interval.clone());
            }
        }
    }

    /// What is in any. Neighbours meet first, which is much quicker than adding one by one to a set that grows.
    pub(crate) fn any_of(mut sets: Vec<Self>) -> Self {
        while sets.len() > 1 {
            let mut rest = sets.into_iter();
            sets = Vec::new();
            while let Some(first) = rest.next() {
                sets.push(match rest.next() {
                    Some(second) => first.union(&second),
                    None => first,
                });
            }
        }
        sets.pop().unwrap_or_default()
    }

    /// What is in both.
    pub(crate) fn intersect(&self, other: &Self) -> Self {
        let mut result = Self::none();
        let (mut left, mut right) = (self.0.iter().peekable(), other.0.iter().peekable());
        while let (Some(a), Some(b)) = (left.peek(), right.peek()) {
            let (start, end) = ((&a.start).max(&b.start), (&a.end).min(&b.end));
            if start < end {
                // Neighbours stay apart as they were: what is single on one side stays so.
                result.0.push(Interval::new(Rc::clone(start), Rc::clone(end)));
            }
            if a.end <= b.end {
                left.next()
            } else {
                right.next()
            };
        }
        result.limited()
    }

    /// Gives up precision so that a filter of any size has spans of bounded number, found in bounded time.
    fn limited(self) -> Self {
        Self(thinned(
            self.0,
            |interval| interval.start[0],
            |last, next| *last = Interval::new(Rc::clone(&last.start), next.end),
        ))
    }

    /// The same without gaps.
    pub(crate) fn hull(&self) -> Self {
        match (self.0.first(), self.0.last()) {
            (Some(first), Some(last)) => {
                Self(vec![Interval::new(Rc::clone(&first.start), Rc::clone(&last.end))])
            }
            _ => Self::none(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether an entity without the property is meant.
    pub(crate) fn has_missing(&self) -> bool {
        self.0.first().is_some_and(|first| first.start[0] == MISSING)
    }

    /// Whether everything in the other set is in this one.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        let mut intervals = self.0.iter().peekable();
        other.0.iter().all(|wanted| {
            while intervals.next_if(|interval| interval.end <= wanted.start).is_some() {}
            let mut reached = &wanted.start;
            for interval in intervals.clone() {
                if *reached < interval.start || wanted.end <= *reached {
                    break;
                }
                reached = &interval.end;
            }
            wanted.end <= *reached
        })
    }

    pub(crate) fn intervals(&self) -> &[Interval] {
        &self.0
    }
}

/// At most [`limits::PLAN_RANGES_MAX`]: neighbours of the same tag are joined, few at a time.
pub(crate) fn thinned<T>(
    mut items: Vec<T>,
    tag: impl Fn(&T) -> u8,
    join: impl Fn(&mut T, T),
) -> Vec<T> {
    let max = limits::PLAN_RANGES_MAX;
    // There are fewer tags than that, so every turn but the last leaves fewer.
    while max < items.len() {
        let most = items.len().div_ceil(max);
        let mut thinner: Vec<T> = Vec::with_capacity(max);
        let mut joined = 0;
        for item in items {
            match thinner.last_mut() {
                Some(last) if joined < most && tag(last) == tag(&item) => {
                    join(last, item);
                    joined += 1;
                }
                _ => {
                    thinner.push(item);
                    joined = 1;
                }
            }
        }
        items = thinner;
    }
    items
}
