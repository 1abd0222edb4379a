//! Functions of texts in SQL.
//!
//! The database judges what it judges as a record is judged, whatever its locale: the case and the length of texts that
//! are ASCII, and parts that are literals. Everything else is in doubt. Stored texts are escaped, which matters only where
//! what is looked for could be found in the middle of an escape.

use super::{Doubt, PARTITION_KEY, Parameters, ROW_KEY, accepts_less, constant, operator};
use crate::props::{escaped, letter};
use rowhouse_query::{Call, Comparison, Test, Text};
use rowhouse_types::{EdmType, Value};
use std::fmt::Write as _;
use tokio_postgres::types::Type;

/// What a function makes, compared with a literal.
pub(super) fn push(
    out: &mut String,
    call: &Call,
    comparison: Comparison,
    literal: &Value,
    parameters: &mut Parameters,
    doubt: &mut Doubt<'_>,
) {
    let Some(property) = only_property(call) else { return out.push_str(doubt.sql()) };
    let mut judge = |stored: &str, parameters: &mut Parameters| {
        let judged = judged(call, stored, comparison, literal, parameters);
        match certain(call, stored) {
            Some(certain) => {
                format!("(CASE WHEN {certain} THEN {judged} ELSE {} END)", doubt.sql())
            }
            None => judged,
        }
    };
    let key = |bytes| format!("convert_from({bytes}, 'UTF8')");
    match property {
        "PartitionKey" => out.push_str(&judge(&key(PARTITION_KEY), parameters)),
        "RowKey" => out.push_str(&judge(&key(ROW_KEY), parameters)),
        "Timestamp" => out.push_str(constant(accepts_less(comparison))),
        name => {
            let name = parameters.push(name.to_owned(), Type::TEXT);
            let judged = judge(&format!("(i.props->{name}->>1)"), parameters);
            let less = accepts_less(comparison);
            let other = if less { format!("i.props ? {name}") } else { "false".to_owned() };
            let text = letter(EdmType::String);
            let _ = write!(
                out,
                "(CASE WHEN i.props->{name}->>0 = '{text}' THEN {judged} ELSE {other} END)"
            );
        }
    }
}

/// The property that alone decides; none if a literal is searched for one, or there are two.
fn only_property(call: &Call) -> Option<&str> {
    match call {
        Call::Text(text) | Call::Length(text) | Call::Test { text, part: Text::Literal(_), .. } => {
            property(text)
        }
        Call::Test { .. } => None,
    }
}

fn property(text: &Text) -> Option<&str> {
    match text {
        Text::Property(name) => Some(name),
        Text::Literal(_) => None,
        Text::Lower(inner) | Text::Upper(inner) => property(inner),
    }
}

/// When the condition is judged exactly, as a condition on the stored text; none if always.
fn certain(call: &Call, stored: &str) -> Option<String> {
    // Escapes are of ASCII too, but longer than what they stand for.
    let without_escapes = format!("strpos({stored}, E'\\x01') = 0");
    let ascii = format!("octet_length({stored}) = char_length({stored})");
    match call {
        Call::Length(_) => Some(format!("{ascii} AND {without_escapes}")),
        Call::Test { test, text, part } => {
            let aligned = *test == Test::StartsWith || !may_be_in_an_escape(part);
            match (aligned, is_of_case(text)) {
                (true, false) => None,
                (true, true) => Some(ascii),
                (false, false) => Some(without_escapes),
                (false, true) => Some(format!("{ascii} AND {without_escapes}")),
            }
        }
        Call::Text(text) => is_of_case(text).then_some(ascii),
    }
}

/// Escapes begin with U+0001 and end with that or U+0002: what begins with any other character is found where it is.
fn may_be_in_an_escape(part: &Text) -> bool {
    matches!(part, Text::Literal(part) if part.starts_with(|c| c <= '\u{2}'))
}

fn is_of_case(text: &Text) -> bool {
    matches!(text, Text::Lower(_) | Text::Upper(_))
}

/// The condition, for a stored text of which it is certain.
fn judged(
    call: &Call,
    stored: &str,
    comparison: Comparison,
    literal: &Value,
    parameters: &mut Parameters,
) -> String {
    let operator = operator(comparison);
    match call {
        Call::Text(text) => {
            let literal = match literal {
                Value::String(literal) => escaped(literal).into_owned(),
                _ => return constant(accepts_less(comparison)).to_owned(),
            };
            let literal = parameters.push(literal, Type::TEXT);
            format!("({} {operator} {literal})", made(text, stored))
        }
        Call::Length(text) => {
            let literal = match literal {
                Value::Int32(n) => parameters.push(i64::from(*n), Type::INT8),
                Value::Int64(n) => parameters.push(*n, Type::INT8),
                // For the database NaN is greater than all numbers.
                Value::Double(n) if n.is_nan() => {
                    return constant(comparison == Comparison::NotEqual).to_owned();
                }
                Value::Double(n) => parameters.push(*n, Type::FLOAT8),
                _ => return constant(accepts_less(comparison)).to_owned(),
            };
            format!("(char_length({}) {operator} {literal})", made(text, stored))
        }
        Call::Test { test, text, part } => {
            let (Text::Literal(part), Value::Boolean(literal)) = (part, literal) else {
                return constant(accepts_less(comparison)).to_owned();
            };
            let (part, text) = (escaped(part).into_owned(), made(text, stored));
            let characters = part.chars().count();
            let part = parameters.push(part, Type::TEXT);
            let holds = match test {
                Test::StartsWith => format!("starts_with({text}, {part})"),
                Test::EndsWith => format!("(right({text}, {characters}) = {part})"),
                Test::Contains => format!("(strpos({text}, {part}) > 0)"),
            };
            format!("({holds} {operator} {})", constant(*literal))
        }
    }
}

/// The text that is made of the stored one. Its order is that of bytes, and only ASCII has case.
fn made(text: &Text, stored: &str) -> String {
    match text {
        Text::Property(_) | Text::Literal(_) => format!("({stored} COLLATE \"C\")"),
        Text::Lower(inner) => format!("lower({})", made(inner, stored)),
        Text::Upper(inner) => format!("upper({})", made(inner, stored)),
    }
}
