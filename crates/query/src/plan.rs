//! Turns a filter into the cheapest scan that cannot miss a match.
//!
//! The planner only narrows: it derives ranges of keys from comparisons and beginnings of PartitionKey and
//! RowKey in any combination of `and`, `or` and `not`, and leaves every other condition to the residual
//! filter, which whoever scans applies to each entity. A plan may read too much; it must never read too little.
//! The property test `plan_never_loses_a_match` holds us to that.
//!
//! Nothing here touches storage, and nothing is estimated: the same filter always has the same plan.
//! Golden files under `tests/plans` show what becomes of which filter.

use crate::call::{Call, Test, Text};
use crate::evaluate::MISMATCH;
use crate::expr::{Comparison, Expr, Filter};
use crate::keyset::{KeySet, Texts};
use crate::steps::after;
use rowhouse_types::{EdmType, KeyRange, Position, Value, limits};
use std::fmt;
use std::sync::Arc;

/// What to read, and what to check on everything that is read.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How much is read, in one word.
    pub kind: PlanKind,
    /// Sorted, disjoint and not empty, at most [`limits::PLAN_RANGES_MAX`]. No ranges at all if no
    /// entity can match.
    pub ranges: Vec<KeyRange>,
    /// The whole filter; none if every entity in the ranges satisfies it.
    pub residual: Option<Arc<Filter>>,
}

/// How much a plan reads.
///
/// The ranges of one plan may differ in nature; the widest decides. From narrow to wide: a key, a part
/// of a partition, a whole partition, a range over several partitions, the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PlanKind {
    /// Exactly one key.
    Point,
    /// Several keys and nothing else. Also the kind of a plan that reads nothing.
    MultiPoint,
    /// A part of a partition, or a range over partitions that is bounded on at least one side.
    Range,
    /// One or more partitions, each named and whole.
    PartitionScan,
    /// Every entity of the table.
    TableScan,
}

impl fmt::Display for PlanKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Point => "point",
            Self::MultiPoint => "multi-point",
            Self::Range => "range",
            Self::PartitionScan => "partition-scan",
            Self::TableScan => "table-scan",
        })
    }
}

/// Decides what to read for a filter; without one, the whole table.
pub fn plan(filter: Option<Filter>) -> Plan {
    let Some(filter) = filter else {
        return Plan { kind: PlanKind::TableScan, ranges: vec![KeyRange::all()], residual: None };
    };
    let bound = bound(filter.root(), false);
    let (ranges, tight) = bound.keys.ranges();
    let exact = bound.exact && tight;
    Plan { kind: kind(&ranges), ranges, residual: (!exact).then(|| Arc::new(filter)) }
}

/// What the keys alone say about a condition.
struct Bound {
    /// Holds the key of every entity that satisfies the condition.
    keys: KeySet,
    /// Every entity with such a key satisfies the condition.
    exact: bool,
}

impl Bound {
    fn exactly(keys: KeySet) -> Self {
        Self { keys, exact: true }
    }

    /// The same for every entity.
    fn constant(value: bool) -> Self {
        Self::exactly(KeySet::constant(value))
    }

    /// The keys say nothing.
    fn unknown() -> Self {
        Self { keys: KeySet::constant(true), exact: false }
    }

    fn and(&self, other: &Self) -> Self {
        let keys = self.keys.intersect(&other.keys);
        let exact = (self.exact && other.exact) || keys.is_empty();
        Self { keys, exact }.limited()
    }

    fn or(&self, other: &Self) -> Self {
        let keys = self.keys.union(&other.keys);
        let exact = match (self.exact, other.exact) {
            (true, true) => true,
            // The inexact side does not matter if the exact one covers it.
            (true, false) => keys == self.keys,
            (false, true) => keys == other.keys,
            (false, false) => false,
        };
        Self { keys, exact }.limited()
    }

    /// Gives up precision so that a filter of any size has a plan of bounded size, made in bounded time.
    fn limited(self) -> Self {
        match self.keys.widened(limits::PLAN_RANGES_MAX) {
            Some(keys) => Self { keys, exact: false },
            None => self,
        }
    }
}

/// The bound of a condition or of its negation.
///
/// A negation is carried down to the comparisons. There it is exact for keys, which always exist and
/// are Strings; about anything else the keys say nothing either way.
fn bound(expr: &Expr, negated: bool) -> Bound {
    match expr {
        Expr::And(parts) if negated => combine(parts, negated, Bound::or),
        Expr::And(parts) => combine(parts, negated, Bound::and),
        Expr::Or(parts) if negated => combine(parts, negated, Bound::and),
        Expr::Or(parts) => combine(parts, negated, Bound::or),
        Expr::Not(part) => bound(part, !negated),
        Expr::Constant(value) => Bound::constant(*value != negated),
        Expr::Property(name) => match system_type(name) {
            // None of them is a Boolean.
            Some(_) => Bound::constant(negated),
            None => Bound::unknown(),
        },
        Expr::Compare { property, comparison, literal } => {
            compared(property, *comparison, literal, negated)
        }
        Expr::Call { call, comparison, literal } => called(call, *comparison, literal, negated),
    }
}

/// Combines neighbours until one is left: parts of a long chain meet in small groups first, which is
/// much quicker than adding them one by one to a set that grows.
fn combine(parts: &[Expr], negated: bool, join: fn(&Bound, &Bound) -> Bound) -> Bound {
    match parts {
        [] => Bound::unknown(),
        [part] => bound(part, negated),
        parts => {
            let (left, right) = parts.split_at(parts.len() / 2);
            join(&combine(left, negated, join), &combine(right, negated, join))
        }
    }
}

fn compared(property: &str, comparison: Comparison, literal: &Value, negated: bool) -> Bound {
    let Some(edm_type) = system_type(property) else {
        return Bound::unknown();
    };
    if literal.as_ref().edm_type() != edm_type {
        return Bound::constant(comparison.accepts(MISMATCH) != negated);
    }
    match (property, literal) {
        ("PartitionKey", Value::String(text)) => {
            let keys = texts(comparison, text, negated);
            Bound::exactly(KeySet::of_partitions(&keys))
        }
        ("RowKey", Value::String(text)) => {
            Bound::exactly(KeySet::of_rows(texts(comparison, text, negated)))
        }
        _ => Bound::unknown(),
    }
}

/// The keys say something about how they begin, and about no other function.
fn called(call: &Call, comparison: Comparison, literal: &Value, negated: bool) -> Bound {
    let Call::Test {
        test: Test::StartsWith,
        text: Text::Property(property),
        part: Text::Literal(prefix),
    } = call
    else {
        return Bound::unknown();
    };
    let Value::Boolean(wanted) = literal else { return Bound::unknown() };
    let holds = |made: bool| comparison.accepts(Some(made.cmp(wanted))) != negated;
    let (inside, outside) = (holds(true), holds(false));
    let keys = || {
        let texts = Texts::constant(outside).then(&**prefix, inside);
        match after_prefix(prefix) {
            Some(end) => texts.then(end, outside),
            None => texts,
        }
    };
    match &**property {
        "PartitionKey" => Bound::exactly(KeySet::of_partitions(&keys())),
        "RowKey" => Bound::exactly(KeySet::of_rows(keys())),
        _ => Bound::unknown(),
    }
}

/// The first text after all that begin with the prefix; none if nothing is.
fn after_prefix(prefix: &str) -> Option<String> {
    let mut chars: Vec<char> = prefix.chars().collect();
    while let Some(last) = chars.pop() {
        if let Some(next) = (last..=char::MAX).nth(1) {
            chars.push(next);
            return Some(chars.into_iter().collect());
        }
    }
    None
}

/// The type of a property that every entity has.
fn system_type(property: &str) -> Option<EdmType> {
    match property {
        "PartitionKey" | "RowKey" => Some(EdmType::String),
        "Timestamp" => Some(EdmType::DateTime),
        _ => None,
    }
}

/// The texts that stand so to the literal, or those that do not.
fn texts(comparison: Comparison, literal: &str, negated: bool) -> Texts {
    let from_start = |inside: bool| Texts::constant(inside != negated);
    let (yes, no) = (!negated, negated);
    match comparison {
        Comparison::Equal => from_start(false).then(literal, yes).then(after(literal), no),
        Comparison::NotEqual => from_start(true).then(literal, no).then(after(literal), yes),
        Comparison::LessThan => from_start(true).then(literal, no),
        Comparison::LessThanOrEqual => from_start(true).then(after(literal), no),
        Comparison::GreaterThan => from_start(false).then(after(literal), yes),
        Comparison::GreaterThanOrEqual => from_start(false).then(literal, yes),
    }
}

/// How wide a single range is, from narrow to wide.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Width {
    Key,
    PartOfPartition,
    Partition,
    SeveralPartitions,
    Table,
}

fn width(range: &KeyRange) -> Width {
    let KeyRange { start, end } = range;
    let Some(end) = end else {
        return if *range == KeyRange::all() { Width::Table } else { Width::SeveralPartitions };
    };
    if *range == KeyRange::point(&start.partition, &start.row) {
        Width::Key
    } else if *range == KeyRange::partition(&start.partition) {
        Width::Partition
    } else if *end <= Position::after_partition(&start.partition) {
        Width::PartOfPartition
    } else {
        Width::SeveralPartitions
    }
}

fn kind(ranges: &[KeyRange]) -> PlanKind {
    match ranges.iter().map(width).max() {
        Some(Width::Key) if ranges.len() == 1 => PlanKind::Point,
        None | Some(Width::Key) => PlanKind::MultiPoint,
        Some(Width::PartOfPartition | Width::SeveralPartitions) => PlanKind::Range,
        Some(Width::Partition) => PlanKind::PartitionScan,
        Some(Width::Table) => PlanKind::TableScan,
    }
}
