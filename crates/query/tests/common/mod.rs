//! Random filters and entities, and a filter written back as text. The tests of engines use it too.

#![allow(dead_code, reason = "every test file uses a part of it")]

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use rowhouse_query::{Comparison, Expr};
use rowhouse_types::{Guid, Record, RecordBuilder, Row, Timestamp, Value};
use std::fmt::Write;

/// Halves of keys and String values: few letters, so that collisions are common; empty ones, quotes,
/// and characters of one to four bytes.
pub(crate) fn text() -> impl Strategy<Value = String> {
    prop_oneof![3 => "[ab]{0,1}", 1 => "[ab'é\u{FFFD}😀]{0,2}"]
}

/// A value of any type, from few.
pub(crate) fn value() -> impl Strategy<Value = Value> {
    let double = prop_oneof![
        Just(-0.0),
        Just(1.0),
        Just(0.5),
        Just(1e300),
        Just(f64::INFINITY),
        Just(f64::NEG_INFINITY)
    ];
    prop_oneof![
        4 => text().prop_map(|text| Value::String(text.into())),
        1 => prop_oneof![-1..=1, Just(i32::MIN)].prop_map(Value::Int32),
        1 => prop_oneof![-1..=1i64, Just(i64::MAX)].prop_map(Value::Int64),
        1 => double.prop_map(Value::Double),
        1 => any::<bool>().prop_map(Value::Boolean),
        1 => (0..3u64).prop_map(|ticks| Value::DateTime(instant(ticks))),
        1 => (0..3u8).prop_map(|last| Value::Guid(Guid([last; 16]))),
        1 => vec(0..2u8, 0..3).prop_map(|bytes| Value::Binary(bytes.into())),
    ]
}

fn instant(ticks: u64) -> Timestamp {
    Timestamp::from_ticks(Timestamp::EDM_MIN.ticks() + ticks).unwrap()
}

pub(crate) fn comparison() -> impl Strategy<Value = Comparison> {
    prop::sample::select(vec![
        Comparison::Equal,
        Comparison::NotEqual,
        Comparison::LessThan,
        Comparison::LessThanOrEqual,
        Comparison::GreaterThan,
        Comparison::GreaterThanOrEqual,
    ])
}

/// A condition, on keys most of the time.
pub(crate) fn expr() -> impl Strategy<Value = Expr> {
    let key = prop::sample::select(vec!["PartitionKey", "RowKey"]);
    let equal = |name, text: String| compare(name, Comparison::Equal, Value::String(text.into()));
    let on_key = (key, comparison(), text())
        .prop_map(|(name, op, text)| compare(name, op, Value::String(text.into())));
    let whole_key = (text(), text())
        .prop_map(move |(p, r)| Expr::And(vec![equal("PartitionKey", p), equal("RowKey", r)]));
    let names = &["PartitionKey", "RowKey", "Timestamp", "a", "b", "datetime"];
    nested(prop_oneof![
        12 => on_key,
        8 => whole_key,
        6 => leaf(names, value()),
    ])
}

/// A condition on any of these properties, with literals of that kind.
pub(crate) fn expr_on(
    names: &'static [&'static str],
    literals: impl Strategy<Value = Value> + 'static,
) -> impl Strategy<Value = Expr> {
    nested(leaf(names, literals))
}

fn compare(name: &str, comparison: Comparison, literal: Value) -> Expr {
    Expr::Compare { property: name.into(), comparison, literal }
}

fn leaf(
    names: &'static [&'static str],
    literals: impl Strategy<Value = Value> + 'static,
) -> impl Strategy<Value = Expr> {
    let name = prop::sample::select(names);
    let comparison = (name.clone(), comparison(), literals);
    prop_oneof![
        4 => comparison.prop_map(|(name, op, literal)| compare(name, op, literal)),
        1 => name.prop_map(|name| Expr::Property(name.into())),
        1 => any::<bool>().prop_map(Expr::Constant),
    ]
}

/// In the form that parsing gives: flat chains of at least two.
fn nested(leaf: impl Strategy<Value = Expr> + 'static) -> impl Strategy<Value = Expr> {
    leaf.prop_recursive(5, 24, 4, |inner| {
        prop_oneof![
            3 => vec(inner.clone(), 2..5).prop_map(|parts| chain(parts, true)),
            3 => vec(inner.clone(), 2..5).prop_map(|parts| chain(parts, false)),
            1 => inner.prop_map(|part| Expr::Not(Box::new(part))),
        ]
    })
}

fn chain(parts: Vec<Expr>, and: bool) -> Expr {
    let flat = parts.into_iter().flat_map(|part| match part {
        Expr::And(inner) if and => inner,
        Expr::Or(inner) if !and => inner,
        other => vec![other],
    });
    if and { Expr::And(flat.collect()) } else { Expr::Or(flat.collect()) }
}

/// An entity with a key and properties `a` and `b`, or not.
#[derive(Clone, Debug)]
pub(crate) struct Entity {
    pub(crate) partition: String,
    pub(crate) row: String,
    pub(crate) record: Record,
}

impl Entity {
    pub(crate) fn as_row(&self) -> Row<'_> {
        Row { partition: &self.partition, row: &self.row, record: self.record.as_ref() }
    }
}

pub(crate) fn entity() -> impl Strategy<Value = Entity> {
    let name = prop::sample::select(vec!["a", "b", "datetime"]);
    (text(), text(), 0..3u64, btree_map(name, value(), 0..4)).prop_map(
        |(partition, row, ticks, properties)| {
            let mut builder = RecordBuilder::new();
            for (name, value) in &properties {
                builder.push(name, value.as_ref()).unwrap();
            }
            Entity { partition, row, record: builder.finish(instant(ticks)) }
        },
    )
}

/// The condition in the language it was parsed from.
pub(crate) fn print(expr: &Expr) -> String {
    let joined = |parts: &[Expr], word: &str| {
        let parts: Vec<_> = parts
            .iter()
            .map(|part| match part {
                Expr::Or(_) => format!("({})", print(part)),
                _ => print(part),
            })
            .collect();
        parts.join(word)
    };
    match expr {
        Expr::And(parts) => joined(parts, " and "),
        Expr::Or(parts) => joined(parts, " or "),
        Expr::Not(part) => format!("not ({})", print(part)),
        Expr::Compare { property, comparison, literal } => {
            format!("{property} {} {}", operator(*comparison), literal_text(literal))
        }
        Expr::Property(name) => name.to_string(),
        Expr::Constant(value) => value.to_string(),
    }
}

pub(crate) fn operator(comparison: Comparison) -> &'static str {
    match comparison {
        Comparison::Equal => "eq",
        Comparison::NotEqual => "ne",
        Comparison::LessThan => "lt",
        Comparison::LessThanOrEqual => "le",
        Comparison::GreaterThan => "gt",
        Comparison::GreaterThanOrEqual => "ge",
    }
}

pub(crate) fn literal_text(value: &Value) -> String {
    match value {
        Value::String(text) => format!("'{}'", text.replace('\'', "''")),
        Value::Int32(n) => n.to_string(),
        Value::Int64(n) => format!("{n}L"),
        Value::Double(n) if n.is_nan() => "NaN".to_owned(),
        Value::Double(n) if n.is_infinite() => if *n < 0.0 { "-INF" } else { "INF" }.to_owned(),
        Value::Double(n) => format!("{n:e}D"),
        Value::Boolean(b) => b.to_string(),
        Value::DateTime(t) => format!("datetime'{t}'"),
        Value::Guid(g) => format!("guid'{g}'"),
        Value::Binary(bytes) => {
            let hex = bytes.iter().fold(String::new(), |mut hex, byte| {
                write!(hex, "{byte:02x}").unwrap();
                hex
            });
            format!("X'{hex}'")
        }
    }
}
