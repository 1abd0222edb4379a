//! What a filter means for one entity.
//!
//! A missing property makes every comparison false, `ne` included. A literal of a type that cannot be
//! widened to the stored one is no error: the stored value then counts as less. Widening follows the
//! stored type and never changes what is stored, so an Int64 literal is a mismatch for an Int32.
//!
//! A function follows the same two rules: of a missing property it makes nothing, so that no comparison holds; of a
//! value that is no text it makes something of a type that does not compare, which counts as less.

use crate::call::{Call, Text};
use crate::case;
use crate::expr::{Comparison, Expr};
use rowhouse_types::{Corrupt, EdmType, RecordRef, Row, Value, ValueRef};
use std::borrow::Cow;
use std::cmp::Ordering;

/// A stored value as far as a comparison looks at it: text stays bytes, because checking that it is UTF-8 would
/// cost more than comparing it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Operand<'a> {
    Text(&'a [u8]),
    Other(ValueRef<'a>),
}

impl<'a> Operand<'a> {
    /// A property of an entity, keys and Timestamp among them.
    pub(crate) fn of_row(row: &Row<'a>, name: &str) -> Result<Option<Self>, Corrupt> {
        Ok(match name {
            "PartitionKey" => Some(Self::Text(row.partition.as_bytes())),
            "RowKey" => Some(Self::Text(row.row.as_bytes())),
            "Timestamp" => Some(Self::Other(ValueRef::DateTime(row.record.timestamp()))),
            name => Self::of(row.record, name)?,
        })
    }

    /// A property of a record.
    fn of(record: RecordRef<'a>, name: &str) -> Result<Option<Self>, Corrupt> {
        Ok(match record.find(name)? {
            None => None,
            Some((EdmType::String, bytes)) => Some(Self::Text(bytes)),
            Some((edm_type, bytes)) => Some(Self::Other(ValueRef::decode(edm_type, bytes)?)),
        })
    }
}

impl<'a> From<ValueRef<'a>> for Operand<'a> {
    fn from(value: ValueRef<'a>) -> Self {
        match value {
            ValueRef::String(text) => Self::Text(text.as_bytes()),
            other => Self::Other(other),
        }
    }
}

/// Whether the condition holds for the values that `lookup` finds; stops at its first error.
pub(crate) fn holds<'a, E>(
    expr: &Expr,
    lookup: &mut impl FnMut(&str) -> Result<Option<Operand<'a>>, E>,
) -> Result<bool, E> {
    match expr {
        Expr::And(parts) => {
            for part in parts {
                if !holds(part, lookup)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        Expr::Or(parts) => {
            for part in parts {
                if holds(part, lookup)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        Expr::Not(part) => Ok(!holds(part, lookup)?),
        Expr::Compare { property, comparison, literal } => Ok(match lookup(property)? {
            Some(stored) => comparison.accepts(order(stored, literal)),
            None => false,
        }),
        Expr::Call { call, comparison, literal } => call_holds(call, *comparison, literal, lookup),
        Expr::Property(name) => {
            Ok(matches!(lookup(name)?, Some(Operand::Other(ValueRef::Boolean(true)))))
        }
        Expr::Constant(value) => Ok(*value),
    }
}

/// A text that a function looks at.
enum Found<'a> {
    Missing,
    /// A value that is no text.
    Foreign,
    Text(Cow<'a, [u8]>),
}

fn call_holds<'a, E>(
    call: &Call,
    comparison: Comparison,
    literal: &Value,
    lookup: &mut impl FnMut(&str) -> Result<Option<Operand<'a>>, E>,
) -> Result<bool, E> {
    let standing = match call {
        Call::Text(text) => match find(text, lookup)? {
            Found::Missing => return Ok(false),
            Found::Foreign => MISMATCH,
            Found::Text(text) => order(Operand::Text(&text), literal),
        },
        Call::Length(text) => match find(text, lookup)? {
            Found::Missing => return Ok(false),
            Found::Foreign => MISMATCH,
            Found::Text(text) => {
                let units = case::length(&case::readable(&text));
                // Compares with every number.
                let units = match literal {
                    Value::Double(_) => ValueRef::Double(units.into()),
                    _ => ValueRef::Int64(units.into()),
                };
                order(units.into(), literal)
            }
        },
        Call::Test { test, text, part } => match (find(text, lookup)?, find(part, lookup)?) {
            (Found::Missing, _) | (_, Found::Missing) => return Ok(false),
            (Found::Text(text), Found::Text(part)) => {
                order(ValueRef::Boolean(test.holds(&text, &part)).into(), literal)
            }
            _ => MISMATCH,
        },
    };
    Ok(comparison.accepts(standing))
}

fn find<'s, 'a: 's, E>(
    text: &'s Text,
    lookup: &mut impl FnMut(&str) -> Result<Option<Operand<'a>>, E>,
) -> Result<Found<'s>, E> {
    let changed = |found, change: fn(&str) -> String| match found {
        Found::Text(text) => Found::Text(Cow::Owned(change(&case::readable(&text)).into_bytes())),
        other => other,
    };
    Ok(match text {
        Text::Literal(text) => Found::Text(Cow::Borrowed(text.as_bytes())),
        Text::Property(name) => match lookup(name)? {
            None => Found::Missing,
            Some(Operand::Text(bytes)) => Found::Text(Cow::Borrowed(bytes)),
            Some(Operand::Other(_)) => Found::Foreign,
        },
        Text::Lower(inner) => changed(find(inner, lookup)?, case::lower),
        Text::Upper(inner) => changed(find(inner, lookup)?, case::upper),
    })
}

/// How a value of a type stands to a literal that its type does not compare with: always so.
pub(crate) const MISMATCH: Option<Ordering> = Some(Ordering::Less);

/// How the stored value stands to the literal; none if a NaN is involved.
fn order(stored: Operand<'_>, literal: &Value) -> Option<Ordering> {
    let stored = match (stored, literal) {
        (Operand::Text(a), Value::String(b)) => return Some(a.cmp(b.as_bytes())),
        (Operand::Text(_), _) => return MISMATCH,
        (Operand::Other(stored), _) => stored,
    };
    match (stored, literal) {
        (ValueRef::Int32(a), Value::Int32(b)) => Some(a.cmp(b)),
        (ValueRef::Int64(a), Value::Int32(b)) => Some(a.cmp(&i64::from(*b))),
        (ValueRef::Int64(a), Value::Int64(b)) => Some(a.cmp(b)),
        (ValueRef::Double(a), Value::Int32(b)) => a.partial_cmp(&f64::from(*b)),
        (ValueRef::Double(a), Value::Int64(b)) => a.partial_cmp(&widened(*b)),
        (ValueRef::Double(a), Value::Double(b)) => a.partial_cmp(b),
        (ValueRef::Boolean(a), Value::Boolean(b)) => Some(a.cmp(b)),
        (ValueRef::DateTime(a), Value::DateTime(b)) => Some(a.cmp(b)),
        (ValueRef::Guid(a), Value::Guid(b)) => Some(a.cmp(b)),
        (ValueRef::Binary(a), Value::Binary(b)) => Some(a.cmp(&**b)),
        _ => MISMATCH,
    }
}

/// The literal as a value of the stored type; none if that does not compare with it. Agrees with [`order`].
pub(crate) fn as_stored(literal: &Value, stored: EdmType) -> Option<ValueRef<'_>> {
    match (stored, literal.as_ref()) {
        (EdmType::Int64, ValueRef::Int32(n)) => Some(ValueRef::Int64(n.into())),
        (EdmType::Double, ValueRef::Int32(n)) => Some(ValueRef::Double(n.into())),
        (EdmType::Double, ValueRef::Int64(n)) => Some(ValueRef::Double(widened(n))),
        (_, literal) => (literal.edm_type() == stored).then_some(literal),
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "widening to the stored type rounds, as it does there"
)]
fn widened(n: i64) -> f64 {
    n as f64
}

impl Comparison {
    /// Whether a value that stands so to the literal satisfies the comparison. None stands for NaN,
    /// which is only ever different.
    pub(crate) fn accepts(self, order: Option<Ordering>) -> bool {
        match self {
            Self::Equal => order == Some(Ordering::Equal),
            Self::NotEqual => order != Some(Ordering::Equal),
            Self::LessThan => order == Some(Ordering::Less),
            Self::LessThanOrEqual => matches!(order, Some(Ordering::Less | Ordering::Equal)),
            Self::GreaterThan => order == Some(Ordering::Greater),
            Self::GreaterThanOrEqual => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
        }
    }
}
