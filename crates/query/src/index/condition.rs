//! From a condition to the values of one property that entities which satisfy it can have.
//!
//! The meaning of a comparison is that of `evaluate.rs`: a literal is widened to the stored type, what does not compare
//! counts as less, a NaN is only ever different. A negation is carried down to the comparisons, where a property
//! that is missing makes it true. A condition on anything else says nothing.

use super::component::{self, END, MISSING};
use super::set::Set;
use crate::call::{Call, Test, Text};
use crate::evaluate::{MISMATCH, as_stored};
use crate::expr::{Comparison, Expr};
use rowhouse_types::{EdmType, Value, ValueRef};
use std::cmp::Ordering;

/// All types, in the order of their tags.
const TYPES: [EdmType; 8] = [
    EdmType::String,
    EdmType::Int32,
    EdmType::Int64,
    EdmType::Double,
    EdmType::Boolean,
    EdmType::DateTime,
    EdmType::Guid,
    EdmType::Binary,
];

/// What a property can be at all: keys and Timestamp are always there, and of one type.
pub(crate) fn possible(property: &str) -> Set {
    match property {
        "PartitionKey" | "RowKey" => Set::of_type(EdmType::String),
        "Timestamp" => Set::of_type(EdmType::DateTime),
        _ => Set::all(),
    }
}

/// Holds the component that the property has in every entity which satisfies the condition, or its negation.
pub(crate) fn values(expr: &Expr, negated: bool, property: &str) -> Set {
    said(expr, negated, property).unwrap_or_else(|| possible(property))
}

/// The same; none if the condition says nothing, which is most often so.
pub(crate) fn said(expr: &Expr, negated: bool, property: &str) -> Option<Set> {
    found(expr, negated, property).map(|set| set.intersect(&possible(property)))
}

fn found(expr: &Expr, negated: bool, property: &str) -> Option<Set> {
    match expr {
        Expr::And(parts) | Expr::Or(parts) => {
            let all = matches!(expr, Expr::And(_)) != negated;
            combined(parts, negated, property, all)
        }
        Expr::Not(part) => found(part, !negated, property),
        Expr::Constant(value) => (*value == negated).then(Set::none),
        Expr::Property(name) => (**name == *property).then(|| is_true(negated)),
        Expr::Compare { property: name, comparison, literal } => {
            (**name == *property).then(|| compared(*comparison, literal, negated))
        }
        Expr::Call { call, comparison, literal } => {
            called(call, *comparison, literal, negated, property)
        }
    }
}

/// Combines neighbours until one is left, as the planner of keys does.
fn combined(parts: &[Expr], negated: bool, property: &str, all: bool) -> Option<Set> {
    let (left, right) = match parts {
        [] => return None,
        [part] => return found(part, negated, property),
        parts => parts.split_at(parts.len() / 2),
    };
    let left = combined(left, negated, property, all);
    if !all && left.is_none() {
        return None;
    }
    match (left, combined(right, negated, property, all)) {
        (Some(left), Some(right)) if all => Some(left.intersect(&right)),
        (Some(left), Some(right)) => Some(left.union(&right)),
        (left, right) if all => left.or(right),
        _ => None,
    }
}

fn is_true(negated: bool) -> Set {
    let (value, _) = component::of(ValueRef::Boolean(true));
    let after = component::after(&value);
    let mut set = Set::none();
    if negated {
        set.push([MISSING], value);
        set.push(after, [END]);
    } else {
        set.push(value, after);
    }
    set
}

fn compared(comparison: Comparison, literal: &Value, negated: bool) -> Set {
    let takes = |order| comparison.accepts(order) != negated;
    let mut set = Set::none();
    if negated {
        set.push_missing();
    }
    for edm_type in TYPES {
        let whole_type = match as_stored(literal, edm_type) {
            None => takes(MISMATCH),
            Some(ValueRef::Double(literal)) if literal.is_nan() => takes(None),
            Some(literal) => {
                push_compared(&mut set, literal, takes);
                false
            }
        };
        if whole_type {
            set.push_type(edm_type);
        }
    }
    set
}

/// The values of the literal's type that stand to it in a way that is taken.
fn push_compared(set: &mut Set, literal: ValueRef<'_>, takes: impl Fn(Option<Ordering>) -> bool) {
    let tag = component::tag(literal.edm_type());
    let (value, cut) = component::of(literal);
    let after = component::after(&value);
    // The first that is a NaN, where there are any, or the end of the type.
    let end = component::first(tag + 1);
    let unordered = match literal {
        ValueRef::Double(_) => component::of(ValueRef::Double(f64::NAN)).0,
        _ => end.clone(),
    };
    // Of what was cut, lesser and greater values have the same component.
    let (less_end, greater_start) = if cut { (&after, &value) } else { (&value, &after) };
    if takes(Some(Ordering::Less)) {
        set.push(component::first(tag), &**less_end);
    }
    if takes(Some(Ordering::Equal)) {
        set.push(&*value, &*after);
    }
    if takes(Some(Ordering::Greater)) {
        set.push(&**greater_start, &*unordered);
    }
    if takes(None) {
        set.push(unordered, end);
    }
}

/// A function says that its properties are there and texts, or not; how one begins it says exactly.
fn called(
    call: &Call,
    comparison: Comparison,
    literal: &Value,
    negated: bool,
    property: &str,
) -> Option<Set> {
    let names = properties(call);
    if !names.contains(&property) {
        return None;
    }
    let takes = |order| comparison.accepts(order) != negated;
    let mut set = Set::none();
    if negated {
        set.push_missing();
    }
    match (call, literal) {
        (
            Call::Test {
                test: Test::StartsWith,
                text: Text::Property(_),
                part: Text::Literal(prefix),
            },
            Value::Boolean(wanted),
        ) => {
            let holds = |made: bool| takes(Some(made.cmp(wanted)));
            push_prefixed(&mut set, prefix, holds(true), holds(false));
        }
        _ => set.push_type(EdmType::String),
    }
    // With another property that is missing nothing holds, whatever this one is.
    if takes(MISMATCH) || (negated && names.iter().any(|name| *name != property)) {
        set.push(component::first(component::tag(EdmType::Int32)), [END]);
    }
    Some(set)
}

fn push_prefixed(set: &mut Set, prefix: &str, inside: bool, outside: bool) {
    let string = component::tag(EdmType::String);
    let (start, end, cut) = component::beginning(prefix);
    let (before, beyond) = if cut { (&end, &start) } else { (&start, &end) };
    if outside {
        set.push(component::first(string), &**before);
    }
    if inside {
        set.push(&*start, &*end);
    }
    if outside {
        set.push(&**beyond, component::first(string + 1));
    }
}

/// The properties that a function looks at.
pub(crate) fn properties(call: &Call) -> Vec<&str> {
    fn of(text: &Text) -> Option<&str> {
        match text {
            Text::Property(name) => Some(name),
            Text::Literal(_) => None,
            Text::Lower(inner) | Text::Upper(inner) => of(inner),
        }
    }
    match call {
        Call::Text(text) | Call::Length(text) => of(text).into_iter().collect(),
        Call::Test { text, part, .. } => [of(text), of(part)].into_iter().flatten().collect(),
    }
}
