//! What a filter means, said a second time and as simply as possible: values are owned, texts are characters, and
//! nothing of the code under test is used but the tree.

use rowhouse_query::{Call, Comparison, Expr, Test, Text};
use rowhouse_types::{EdmType, Row, Value};
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// Everything that a filter can name.
pub(crate) type Properties = BTreeMap<String, Value>;

/// The properties of an entity, those of the system included.
pub(crate) fn properties(row: &Row<'_>) -> Properties {
    let own = row.record.iter().map(|property| {
        let property = property.expect("the record decodes");
        (property.name.to_owned(), property.value.to_owned())
    });
    let system = [
        ("PartitionKey", Value::String(row.partition.into())),
        ("RowKey", Value::String(row.row.into())),
        ("Timestamp", Value::DateTime(row.record.timestamp())),
    ];
    own.chain(system.map(|(name, value)| (name.to_owned(), value))).collect()
}

/// Whether they satisfy the condition.
pub(crate) fn holds(expr: &Expr, properties: &Properties) -> bool {
    match expr {
        Expr::And(parts) => parts.iter().all(|part| holds(part, properties)),
        Expr::Or(parts) => parts.iter().any(|part| holds(part, properties)),
        Expr::Not(part) => !holds(part, properties),
        Expr::Constant(value) => *value,
        Expr::Property(name) => properties.get(&**name) == Some(&Value::Boolean(true)),
        Expr::Compare { property, comparison, literal } => {
            let stored = properties.get(&**property).cloned();
            compare(stored.map_or(Made::Nothing, Made::Value), *comparison, literal)
        }
        Expr::Call { call, comparison, literal } => {
            compare(call_of(call, literal, properties), *comparison, literal)
        }
    }
}

/// What stands on the left of a comparison.
#[derive(Clone)]
enum Made {
    /// A property is missing.
    Nothing,
    /// A property has no text.
    Wrong,
    Value(Value),
}

fn compare(left: Made, comparison: Comparison, literal: &Value) -> bool {
    let order = match left {
        Made::Nothing => return false,
        Made::Wrong => Some(Ordering::Less),
        Made::Value(value) => order(&value, literal),
    };
    match comparison {
        Comparison::Equal => order == Some(Ordering::Equal),
        Comparison::NotEqual => order != Some(Ordering::Equal),
        Comparison::LessThan => order == Some(Ordering::Less),
        Comparison::LessThanOrEqual => order.is_some_and(Ordering::is_le),
        Comparison::GreaterThan => order == Some(Ordering::Greater),
        Comparison::GreaterThanOrEqual => order.is_some_and(Ordering::is_ge),
    }
}

#[expect(clippy::cast_precision_loss, reason = "widening rounds")]
fn order(stored: &Value, literal: &Value) -> Option<Ordering> {
    let widened = match (stored, literal) {
        (Value::Int64(_), Value::Int32(n)) => Value::Int64(i64::from(*n)),
        (Value::Double(_), Value::Int32(n)) => Value::Double(f64::from(*n)),
        (Value::Double(_), Value::Int64(n)) => Value::Double(*n as f64),
        (_, other) => other.clone(),
    };
    match (stored, &widened) {
        (Value::String(a), Value::String(b)) => Some(a.chars().cmp(b.chars())),
        (Value::Int32(a), Value::Int32(b)) => Some(a.cmp(b)),
        (Value::Int64(a), Value::Int64(b)) => Some(a.cmp(b)),
        (Value::Double(a), Value::Double(b)) => a.partial_cmp(b),
        (Value::Boolean(a), Value::Boolean(b)) => Some(a.cmp(b)),
        (Value::DateTime(a), Value::DateTime(b)) => Some(a.cmp(b)),
        (Value::Guid(a), Value::Guid(b)) => Some(a.to_string().cmp(&b.to_string())),
        (Value::Binary(a), Value::Binary(b)) => Some(a.cmp(b)),
        _ => Some(Ordering::Less),
    }
}

fn call_of(call: &Call, literal: &Value, properties: &Properties) -> Made {
    match call {
        Call::Text(text) => text_of(text, properties),
        Call::Length(text) => match text_of(text, properties) {
            Made::Value(Value::String(text)) => {
                let units: i32 = text.chars().map(|c| if c > '\u{FFFF}' { 2 } else { 1 }).sum();
                Made::Value(match literal.as_ref().edm_type() {
                    EdmType::Double => Value::Double(f64::from(units)),
                    EdmType::Int64 => Value::Int64(i64::from(units)),
                    _ => Value::Int32(units),
                })
            }
            other => other,
        },
        Call::Test { test, text, part } => {
            match (text_of(text, properties), text_of(part, properties)) {
                (Made::Nothing, _) | (_, Made::Nothing) => Made::Nothing,
                (Made::Value(Value::String(text)), Made::Value(Value::String(part))) => {
                    Made::Value(Value::Boolean(tested(*test, &text, &part)))
                }
                _ => Made::Wrong,
            }
        }
    }
}

fn tested(which: Test, whole: &str, part: &str) -> bool {
    let (whole, part): (Vec<char>, Vec<char>) = (whole.chars().collect(), part.chars().collect());
    let Some(last) = whole.len().checked_sub(part.len()) else { return false };
    let at = |place: usize| whole[place..place + part.len()] == part[..];
    match which {
        Test::StartsWith => at(0),
        Test::EndsWith => at(last),
        Test::Contains => (0..=last).any(at),
    }
}

fn text_of(text: &Text, properties: &Properties) -> Made {
    let changed = |made, change: fn(char) -> Vec<char>| match made {
        Made::Value(Value::String(text)) => {
            let one = |c: char| match change(c)[..] {
                [other] => other,
                _ => c,
            };
            Made::Value(Value::String(text.chars().map(one).collect::<String>().into()))
        }
        other => other,
    };
    match text {
        Text::Literal(text) => Made::Value(Value::String(text.clone())),
        Text::Property(name) => match properties.get(&**name) {
            None => Made::Nothing,
            Some(Value::String(text)) => Made::Value(Value::String(text.clone())),
            Some(_) => Made::Wrong,
        },
        Text::Lower(inner) => changed(text_of(inner, properties), |c| c.to_lowercase().collect()),
        Text::Upper(inner) => changed(text_of(inner, properties), |c| c.to_uppercase().collect()),
    }
}
