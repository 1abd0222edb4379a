//! Random filters and entities, and a filter written back as text. The tests of engines use it too.

#![allow(dead_code, reason = "every test file uses a part of it")]

pub(crate) mod naive;

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use rowhouse_query::index::IndexKeys;
use rowhouse_query::{Call, Comparison, Expr, Filter, Test, Text};
use rowhouse_types::{Guid, Record, RecordBuilder, Row, Timestamp, Value};
use std::fmt::Write;

/// Halves of keys and String values: few letters, so that collisions are common; empty ones, quotes,
/// characters of one to four bytes, and letters whose other case is a letter of its own or none.
pub(crate) fn text() -> impl Strategy<Value = String> {
    prop_oneof![3 => "[ab]{0,1}", 1 => "[ab'é\u{FFFD}😀]{0,2}", 1 => "[aAbBÉéßΣ𐐀]{0,3}"]
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
        6 => prefix_of_key(),
        6 => leaf(names, value(), text().boxed()),
    ])
}

/// A condition on any of these properties, with literals and texts of that kind.
pub(crate) fn expr_on(
    names: &'static [&'static str],
    literals: impl Strategy<Value = Value> + 'static,
    texts: BoxedStrategy<String>,
) -> impl Strategy<Value = Expr> {
    nested(leaf(names, literals, texts))
}

/// How a key begins, said in every way.
fn prefix_of_key() -> impl Strategy<Value = Expr> {
    let key = prop::sample::select(vec!["PartitionKey", "RowKey"]);
    (key, text(), comparison(), any::<bool>()).prop_map(|(key, prefix, comparison, literal)| {
        let (text, part) = (Text::Property(key.into()), Text::Literal(prefix.into()));
        let call = Call::Test { test: Test::StartsWith, text, part };
        Expr::Call { call, comparison, literal: Value::Boolean(literal) }
    })
}

/// A text that depends on a property.
fn made_text(names: &'static [&'static str]) -> impl Strategy<Value = Text> {
    let property = prop::sample::select(names).prop_map(|name| Text::Property(name.into()));
    property.prop_recursive(2, 4, 1, |inner| {
        prop_oneof![
            inner.clone().prop_map(|inner| Text::Lower(Box::new(inner))),
            inner.prop_map(|inner| Text::Upper(Box::new(inner))),
        ]
    })
}

/// A function, in the form that parsing gives: not of literals alone.
fn call(
    names: &'static [&'static str],
    texts: BoxedStrategy<String>,
) -> impl Strategy<Value = Expr> {
    let which = prop::sample::select(vec![Test::StartsWith, Test::EndsWith, Test::Contains]);
    let either = |texts: BoxedStrategy<String>| {
        prop_oneof![
            3 => texts.prop_map(|text| Text::Literal(text.into())),
            1 => made_text(names),
        ]
    };
    let of = |call, comparison, literal| Expr::Call { call, comparison, literal };
    let looked_for = (
        which,
        made_text(names),
        either(texts.clone()),
        any::<bool>(),
        comparison(),
        any::<bool>(),
    );
    let number = prop_oneof![
        (-1..5).prop_map(Value::Int32),
        (-1..5i64).prop_map(Value::Int64),
        prop::sample::select(vec![0.0, 1.5, 2.0, f64::INFINITY]).prop_map(Value::Double),
    ];
    let made = made_text(names)
        .prop_filter("a property alone is none", |text| !matches!(text, Text::Property(_)));
    prop_oneof![
        4 => looked_for.prop_map(move |(test, a, b, swapped, comparison, literal)| {
            let (text, part) = if swapped { (b, a) } else { (a, b) };
            of(Call::Test { test, text, part }, comparison, Value::Boolean(literal))
        }),
        2 => (made, comparison(), texts).prop_map(move |(text, comparison, literal)| {
            of(Call::Text(text), comparison, Value::String(literal.into()))
        }),
        2 => (made_text(names), comparison(), number).prop_map(move |(text, comparison, literal)| {
            of(Call::Length(text), comparison, literal)
        }),
    ]
}

fn compare(name: &str, comparison: Comparison, literal: Value) -> Expr {
    Expr::Compare { property: name.into(), comparison, literal }
}

fn leaf(
    names: &'static [&'static str],
    literals: impl Strategy<Value = Value> + 'static,
    texts: BoxedStrategy<String>,
) -> impl Strategy<Value = Expr> {
    let name = prop::sample::select(names);
    let comparison = (name.clone(), comparison(), literals);
    prop_oneof![
        4 => comparison.prop_map(|(name, op, literal)| compare(name, op, literal)),
        3 => call(names, texts),
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
        Expr::Call { call, comparison, literal } => {
            format!("{} {} {}", print_call(call), operator(*comparison), literal_text(literal))
        }
        Expr::Property(name) => name.to_string(),
        Expr::Constant(value) => value.to_string(),
    }
}

fn print_call(call: &Call) -> String {
    match call {
        Call::Text(text) => print_text(text),
        Call::Length(text) => format!("length({})", print_text(text)),
        Call::Test { test, text, part } => {
            let name = match test {
                Test::StartsWith => "startswith",
                Test::EndsWith => "endswith",
                Test::Contains => "contains",
            };
            format!("{name}({},{})", print_text(text), print_text(part))
        }
    }
}

fn print_text(text: &Text) -> String {
    match text {
        Text::Property(name) => name.to_string(),
        Text::Literal(text) => format!("'{}'", text.replace('\'', "''")),
        Text::Lower(inner) => format!("tolower({})", print_text(inner)),
        Text::Upper(inner) => format!("toupper({})", print_text(inner)),
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

/// A filter that is one.
pub(crate) fn filter(text: &str) -> Filter {
    Filter::parse(text).unwrap_or_else(|e| panic!("{text}: {e}")).expect("not blank")
}

/// An index over these properties.
pub(crate) fn keys(properties: &[&str], unique: bool) -> IndexKeys {
    IndexKeys { properties: properties.iter().map(|name| (*name).into()).collect(), unique }
}
