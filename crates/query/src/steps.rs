//! Functions of text that change at finitely many places.
//!
//! The planner's arithmetic: a set of RowKeys is a function from text to yes or no, and a set of keys a
//! function from the PartitionKey to such a set. Both are combined by the one merge below.
//!
//! Text is ordered by bytes, so nothing lies between a text and the same text with U+0000 appended;
//! with that, every place is "right before some text" and every comparison is exact.

use std::rc::Rc;

/// A function of text: each value holds from its place on, up to the next place.
///
/// The first place is the empty text, places increase, and neighbours differ, so that equal functions
/// are equal structures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Steps<V>(Vec<(Rc<str>, V)>);

/// The texts between two places that have one value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step<'a, V> {
    /// The first text.
    pub(crate) start: &'a str,
    /// No text is here or beyond; none if the step goes on for ever.
    pub(crate) end: Option<&'a str>,
    /// Their value.
    pub(crate) value: &'a V,
}

/// The place right after a text.
pub(crate) fn after(text: &str) -> String {
    format!("{text}\0")
}

impl<V: PartialEq> Steps<V> {
    /// The same value everywhere.
    pub(crate) fn constant(value: V) -> Self {
        Self(vec![("".into(), value)])
    }

    /// Changes the value from a place on to the end. Places must not decrease from call to call.
    pub(crate) fn then(mut self, place: impl Into<Rc<str>>, value: V) -> Self {
        self.push(place.into(), value);
        self
    }

    fn push(&mut self, place: Rc<str>, value: V) {
        if self.0.last().is_some_and(|(last, _)| *last == place) {
            self.0.pop();
        }
        if self.0.last().is_none_or(|(_, before)| *before != value) {
            self.0.push((place, value));
        }
    }

    /// The function that has at every text what `f` makes of the value there.
    pub(crate) fn map<W: PartialEq>(&self, f: impl Fn(&V) -> W) -> Steps<W> {
        let mut result = Steps(Vec::with_capacity(self.0.len()));
        for (place, value) in &self.0 {
            result.push(Rc::clone(place), f(value));
        }
        result
    }

    /// The function that has at every text what `f` makes of the two values there.
    pub(crate) fn merge(&self, other: &Self, f: impl Fn(&V, &V) -> V) -> Self {
        let mut result = Self(Vec::new());
        let (mut at, mut other_at) = (0, 0);
        loop {
            let (place, value) = &self.0[at];
            let (other_place, other_value) = &other.0[other_at];
            result.push(Rc::clone(place.max(other_place)), f(value, other_value));
            // On to the nearer of the two next places; on both sides if they are the same.
            match (self.0.get(at + 1), other.0.get(other_at + 1)) {
                (None, None) => return result,
                (Some(_), None) => at += 1,
                (None, Some(_)) => other_at += 1,
                (Some((next, _)), Some((other_next, _))) => {
                    at += usize::from(next <= other_next);
                    other_at += usize::from(other_next <= next);
                }
            }
        }
    }

    /// The value, if it is the same everywhere.
    pub(crate) fn as_constant(&self) -> Option<&V> {
        match &*self.0 {
            [(_, value)] => Some(value),
            _ => None,
        }
    }

    /// Every step in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Step<'_, V>> {
        self.0.iter().enumerate().map(|(index, (start, value))| Step {
            start,
            end: self.0.get(index + 1).map(|(end, _)| &**end),
            value,
        })
    }
}

impl<V> Step<'_, V> {
    /// The only text of the step, if it has just one.
    pub(crate) fn single(&self) -> bool {
        self.end.and_then(|end| end.strip_suffix('\0')) == Some(self.start)
    }
}
