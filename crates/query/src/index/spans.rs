//! From the values that properties can have to spans of entries.
//!
//! Entries sort property by property, so a set of the second property narrows only where the first is one value, and so
//! on. Where that would make too many spans, a set is taken without its gaps.

use super::component;
use super::condition::{possible, values};
use super::set::{Interval, Set, thinned};
use super::{IndexKeys, Span};
use crate::Filter;
use rowhouse_types::{KeyRange, ValueRef, limits};

/// Sorted, disjoint spans that hold the entry of every entity that satisfies the filter; none if that cannot be said,
/// because an entity without an entry may satisfy it, or if the filter says nothing about the properties.
///
/// At most [`limits::PLAN_RANGES_MAX`]; no span at all if no entity can satisfy the filter.
pub fn spans(filter: &Filter, keys: &IndexKeys) -> Option<Vec<Span>> {
    let sets: Vec<_> =
        keys.properties.iter().map(|name| values(filter.root(), false, name)).collect();
    spans_of(keys, &sets.iter().collect::<Vec<_>>())
}

/// Whether every entity that can have an entry in the span has its key in the range: the range is of whole partitions, and the
/// index begins with PartitionKey. Whoever may see no more than the range can read such a span without passing anything else.
pub fn is_confined(keys: &IndexKeys, span: &Span, range: &KeyRange) -> bool {
    if *range == KeyRange::all() {
        return true;
    }
    let KeyRange { start, end } = range;
    let by_partition = keys.properties.first().is_some_and(|name| **name == *"PartitionKey");
    let whole = start.row.is_empty() && end.as_ref().is_none_or(|end| end.row.is_empty());
    if !by_partition || !whole {
        return false;
    }
    // Of what is cut, another partition may have the same component.
    let edge = |partition: &str| {
        let (edge, cut) = component::of(ValueRef::String(partition));
        (!cut).then_some(edge)
    };
    let Some(first) = edge(&start.partition) else { return false };
    let ends_inside = match end {
        None => true,
        Some(end) => edge(&end.partition)
            .zip(span.end.as_deref())
            .is_some_and(|(edge, span_end)| *span_end <= *edge),
    };
    *first <= *span.start && ends_inside
}

/// What [`spans`] finds for entities whose properties have values in these sets, one for each property of the index.
pub(super) fn spans_of(keys: &IndexKeys, sets: &[&Set]) -> Option<Vec<Span>> {
    if sets.iter().any(|set| set.is_empty()) {
        return Some(Vec::new());
    }
    let needed = if keys.unique { sets.len() } else { 1 };
    if sets.iter().take(needed).any(|set| set.has_missing()) {
        return None;
    }
    let mut pieces = vec![Piece::Open { values: Vec::new(), cut: false }];
    let mut depth = 0;
    for (set, name) in sets.iter().zip(&keys.properties) {
        if set.covers(&possible(name)) {
            break;
        }
        let open = pieces.iter().filter(|piece| matches!(piece, Piece::Open { .. })).count();
        let many = pieces.len() - open + open * set.intervals().len();
        let hull = (limits::PLAN_RANGES_MAX < many).then(|| set.hull());
        let set = hull.as_ref().unwrap_or(set);
        pieces = pieces.into_iter().flat_map(|piece| piece.narrowed(set)).collect();
        depth += 1;
    }
    let all_named = depth == sets.len();
    let spans = pieces.into_iter().map(|piece| match piece {
        Piece::Closed(span) => span,
        // Behind values that were cut, an entry of a unique index has a hash.
        Piece::Open { values, cut } if all_named && !(keys.unique && cut) => one(values),
        Piece::Open { values, .. } => {
            let end = component::after_all(&values);
            between(values, end)
        }
    });
    (depth > 0).then(|| spans.collect())
}

/// Entries on the way to spans.
enum Piece {
    /// Those whose first properties have these values; the next property may narrow them.
    Open { values: Vec<u8>, cut: bool },
    /// Nothing narrows them any more.
    Closed(Span),
}

impl Piece {
    /// The same, as far as the next property is in the set.
    fn narrowed(self, set: &Set) -> Vec<Self> {
        let (values, cut) = match self {
            Self::Closed(_) => return vec![self],
            Self::Open { values, cut } => (values, cut),
        };
        let followed = |bytes: &[u8]| [&*values, bytes].concat();
        let narrow = |interval: &Interval| {
            let start = followed(&interval.start);
            if interval.single {
                Self::Open { values: start, cut: cut || component::is_cut(&interval.start) }
            } else {
                Self::Closed(between(start, followed(&interval.end)))
            }
        };
        set.intervals().iter().map(narrow).collect()
    }
}

fn one(entry: Vec<u8>) -> Span {
    let end = [&*entry, &[0]].concat();
    between(entry, end)
}

fn between(start: Vec<u8>, end: Vec<u8>) -> Span {
    Span { start: start.into(), end: Some(end.into()) }
}

/// The entries in any of the spans, as spans that are sorted, disjoint and not too many.
pub(super) fn merged(mut spans: Vec<Span>) -> Vec<Span> {
    spans.sort_by(|a, b| a.start.cmp(&b.start));
    let mut apart: Vec<Span> = Vec::with_capacity(spans.len());
    for span in spans {
        match apart.last_mut() {
            Some(last) if last.end.as_ref().is_none_or(|end| span.start < *end) => {
                join(last, span);
            }
            _ => apart.push(span),
        }
    }
    thinned(apart, |span| span.start.first().copied().unwrap_or(0), join)
}

fn join(last: &mut Span, next: Span) {
    last.end = match (last.end.take(), next.end) {
        (Some(a), Some(b)) => Some(a.max(b)),
        _ => None,
    };
}
