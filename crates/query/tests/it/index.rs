//! Entries of secondary indexes, and the promise that no match is lost when a filter is read through them.

use crate::common;
use crate::common::{comparison, expr_on, filter, keys, print, value};
use proptest::collection::vec;
use proptest::prelude::*;
use rowhouse_query::index::{IndexKeys, Part, Span, entry, is_confined, lookups, spans};
use rowhouse_query::{Expr, Filter};
use rowhouse_types::{
    Guid, KeyRange, Position, Record, RecordBuilder, Row, Timestamp, Value, limits,
};
use std::cmp::Ordering;

/// Longest entry: four values that are cut, and a hash.
const LONGEST: usize = limits::INDEX_PROPERTIES_MAX * (1 + limits::INDEX_VALUE_BYTES_MAX + 2) + 16;
const NAMES: &[&str] = &["a", "b", "c", "PartitionKey", "RowKey", "Timestamp"];

#[derive(Clone, Debug)]
struct Entity {
    partition: String,
    row: String,
    record: Record,
}

impl Entity {
    fn new(properties: &[(&str, Value)]) -> Self {
        let mut builder = RecordBuilder::new();
        for (name, value) in properties {
            builder.push(name, value.as_ref()).unwrap();
        }
        let record = builder.finish(Timestamp::EDM_MIN);
        Self { partition: "p".to_owned(), row: "r".to_owned(), record }
    }

    fn as_row(&self) -> Row<'_> {
        Row { partition: &self.partition, row: &self.row, record: self.record.as_ref() }
    }

    fn entry(&self, keys: &IndexKeys) -> Option<Vec<u8>> {
        entry(keys, &self.as_row()).unwrap()
    }

    fn matches(&self, filter: &Filter) -> bool {
        filter.matches(&self.as_row()).unwrap()
    }
}

/// Around the length at which values are cut: the same beginning, with a zero in it or not, then few different ends.
fn long() -> BoxedStrategy<String> {
    let edge = limits::INDEX_VALUE_BYTES_MAX;
    let beginning = prop::sample::select(vec!["", "\0", "b"]);
    (beginning, edge - 4..edge + 2, "[a\0é]{0,4}")
        .prop_map(|(beginning, length, end)| {
            let mut text = beginning.to_owned();
            while text.len() < length {
                text.push('a');
            }
            text + &end
        })
        .boxed()
}

/// Values of any type at the places where encodings and comparisons change.
fn edge() -> BoxedStrategy<Value> {
    const EXACT: i64 = 1 << 53;
    let whole = prop_oneof![
        EXACT - 2..=EXACT + 3,
        -EXACT - 3..=-EXACT + 2,
        254..=258i64,
        prop::sample::select(vec![i64::MIN, i64::MIN + 1, i64::MAX - 1, i64::MAX]),
    ];
    let int32 = prop_oneof![
        254..=258i32,
        prop::sample::select(vec![i32::MIN, -256, -1, 0, 65535, 65536, i32::MAX]),
    ];
    let doubles = vec![
        0.0,
        -0.0,
        f64::NAN,
        -f64::NAN,
        f64::MIN,
        f64::MAX,
        f64::MIN_POSITIVE,
        5e-324,
        -5e-324,
        255.5,
        256.0,
        -1.0,
        f64::INFINITY,
        f64::NEG_INFINITY,
    ];
    #[expect(clippy::cast_precision_loss, reason = "that is what is tried")]
    let double = prop_oneof![prop::sample::select(doubles), whole.clone().prop_map(|n| n as f64)];
    let text = prop_oneof![2 => "[ab\0\u{1}\u{2}]{0,3}", 3 => long()];
    let binary = prop_oneof![
        vec(prop::sample::select(vec![0, 1, 2, 0xFE, 0xFF]), 0..4),
        long().prop_map(String::into_bytes),
    ];
    prop_oneof![
        3 => text.prop_map(|text| Value::String(text.into())),
        1 => int32.prop_map(Value::Int32),
        2 => whole.prop_map(Value::Int64),
        2 => double.prop_map(Value::Double),
        1 => binary.prop_map(|bytes| Value::Binary(bytes.into())),
        1 => vec(prop::sample::select(vec![0, 1, 0xFF]), 16)
            .prop_map(|bytes| Value::Guid(Guid(bytes.try_into().unwrap()))),
    ]
    .boxed()
}

fn any_value() -> BoxedStrategy<Value> {
    prop_oneof![3 => value(), 2 => edge()].boxed()
}

fn any_text() -> BoxedStrategy<String> {
    prop_oneof![3 => common::text(), 1 => "[ab\0]{0,2}", 1 => long()].boxed()
}

fn entity() -> BoxedStrategy<Entity> {
    let property = || prop::option::weighted(0.8, any_value());
    let key = || prop_oneof![5 => common::text(), 1 => "a{254,258}"].boxed();
    (key(), key(), property(), property(), property(), 0..3u64)
        .prop_map(|(partition, row, a, b, c, ticks)| {
            let mut builder = RecordBuilder::new();
            for (name, value) in [("a", a), ("b", b), ("c", c)] {
                if let Some(value) = value {
                    builder.push(name, value.as_ref()).unwrap();
                }
            }
            let ticks = Timestamp::from_ticks(Timestamp::EDM_MIN.ticks() + ticks).unwrap();
            Entity { partition, row, record: builder.finish(ticks) }
        })
        .boxed()
}

fn index() -> impl Strategy<Value = IndexKeys> {
    let properties = prop::sample::subsequence(NAMES, 1..=limits::INDEX_PROPERTIES_MAX);
    (properties.prop_shuffle(), any::<bool>())
        .prop_map(|(properties, unique)| keys(&properties, unique))
}

/// The same index with PartitionKey in front.
fn by_partition(keys: IndexKeys) -> IndexKeys {
    let others = keys.properties.into_iter().filter(|name| **name != *"PartitionKey");
    let properties = std::iter::once(Box::from("PartitionKey")).chain(others);
    IndexKeys { properties: properties.take(limits::INDEX_PROPERTIES_MAX).collect(), ..keys }
}

/// A range of keys as signatures have them: mostly of whole partitions, often of one.
fn range() -> BoxedStrategy<KeyRange> {
    let partition = || prop_oneof![5 => common::text(), 1 => "a{254,258}"].boxed();
    let row = || prop_oneof![4 => Just(String::new()), 1 => common::text()].boxed();
    let one = partition().prop_map(|partition| KeyRange::partition(&partition));
    let from = (partition(), row()).prop_map(|(partition, row)| KeyRange {
        start: Position::before(&partition, &row),
        end: None,
    });
    let between = (partition(), row(), partition(), row()).prop_map(|(first, start, last, end)| {
        let start = Position::before(&first, &start);
        let whole = end.is_empty();
        let end =
            if whole { Position::after_partition(&last) } else { Position::after(&last, &end) };
        KeyRange { start, end: Some(end) }
    });
    prop_oneof![2 => one, 1 => from, 2 => between, 1 => Just(KeyRange::all())].boxed()
}

/// A condition of any kind; most often with something at the top that every entity has to satisfy.
fn condition() -> BoxedStrategy<Expr> {
    let any = || expr_on(NAMES, any_value(), any_text()).boxed();
    let equals = (prop::sample::select(NAMES), comparison(), any_value()).prop_map(
        |(name, comparison, literal)| Expr::Compare { property: name.into(), comparison, literal },
    );
    let list = (prop::sample::select(NAMES), vec(any_value(), 2..5)).prop_map(|(name, values)| {
        let equal = |literal| Expr::Compare {
            property: name.into(),
            comparison: rowhouse_query::Comparison::Equal,
            literal,
        };
        Expr::Or(values.into_iter().map(equal).collect())
    });
    let part = prop_oneof![4 => equals, 2 => list, 2 => any()];
    let and = vec(part, 2..4).prop_map(|parts| {
        let flat = parts.into_iter().flat_map(|part| match part {
            Expr::And(inner) => inner,
            other => vec![other],
        });
        Expr::And(flat.collect())
    });
    let and = and.boxed();
    let or = vec(and.clone(), 2..4).prop_map(Expr::Or);
    prop_oneof![2 => any(), 3 => and, 2 => or].boxed()
}

fn check_form(spans: &[Span]) -> Result<(), TestCaseError> {
    prop_assert!(spans.len() <= limits::PLAN_RANGES_MAX);
    let filled = |span: &Span| span.end.as_ref().is_none_or(|end| span.start < *end);
    prop_assert!(spans.iter().all(filled), "{spans:?}");
    let apart = |pair: &[Span]| pair[0].end.as_ref().is_some_and(|end| *end <= pair[1].start);
    prop_assert!(spans.windows(2).all(apart), "{spans:?}");
    Ok(())
}

fn within(spans: &[Span], entry: Option<&[u8]>) -> bool {
    entry.is_some_and(|entry| spans.iter().any(|span| span.contains(entry)))
}

/// The order of values in an index, said as simply as possible: none if they are of different types.
fn order(a: &Value, b: &Value) -> Option<Ordering> {
    Some(match (a, b) {
        (Value::String(a), Value::String(b)) => a.as_bytes().cmp(b.as_bytes()),
        (Value::Int32(a), Value::Int32(b)) => a.cmp(b),
        (Value::Int64(a), Value::Int64(b)) => a.cmp(b),
        (Value::Double(a), Value::Double(b)) => match (a.is_nan(), b.is_nan()) {
            (false, false) => a.partial_cmp(b).unwrap(),
            (a, b) => a.cmp(&b),
        },
        (Value::Boolean(a), Value::Boolean(b)) => a.cmp(b),
        (Value::DateTime(a), Value::DateTime(b)) => a.cmp(b),
        (Value::Guid(a), Value::Guid(b)) => a.to_string().cmp(&b.to_string()),
        (Value::Binary(a), Value::Binary(b)) => a.cmp(b),
        _ => return None,
    })
}

/// How many bytes a value takes in an entry when nothing is cut, beside its tag and its end.
fn written(value: &Value) -> usize {
    let escaped = |bytes: &[u8]| bytes.len() + bytes.split(|byte| *byte == 0).count() - 1;
    match value {
        Value::String(text) => escaped(text.as_bytes()),
        Value::Binary(bytes) => escaped(bytes),
        _ => 0,
    }
}

/// The entity has the property `a` and does not satisfy the condition.
fn there_but_not(condition: &str) -> String {
    format!("(a ne 1 or a eq 1) and not ({condition})")
}

fn is_cut(value: &Value) -> bool {
    limits::INDEX_VALUE_BYTES_MAX < written(value)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_way_loses_a_match(
        expr in condition(),
        indexes in vec(index(), 1..6),
        entities in vec(entity(), 1..20),
    ) {
        let filter = filter(&print(&expr));
        for keys in &indexes {
            let Some(spans) = spans(&filter, keys) else { continue };
            check_form(&spans)?;
            for entity in entities.iter().filter(|entity| entity.matches(&filter)) {
                let entry = entity.entry(keys);
                prop_assert!(within(&spans, entry.as_deref()), "{keys:?} {entry:?} {spans:?}");
            }
        }
        let named: Vec<_> = indexes.iter().enumerate().collect();
        let ways = lookups(&filter, &named);
        prop_assert!(ways.len() <= 2 * indexes.len() + 1);
        for way in &ways {
            prop_assert!(way.is_sorted_by(|a, b| a.index < b.index), "an index twice");
            way.iter().try_for_each(|part| check_form(&part.spans))?;
            for entity in entities.iter().filter(|entity| entity.matches(&filter)) {
                let found = |part: &Part<usize>| {
                    within(&part.spans, entity.entry(&indexes[part.index]).as_deref())
                };
                prop_assert!(way.iter().any(found), "{way:?} misses {entity:?}");
            }
        }
        // What one index can do is among the ways, unless it is known that there is nothing to find.
        let nothing = ways.iter().flatten().all(|part| part.spans.is_empty());
        for (at, keys) in named {
            if let Some(spans) = spans(&filter, keys).filter(|_| ways.is_empty() || !nothing) {
                let there = |way: &Vec<Part<usize>>| {
                    way.len() == 1 && way[0].index == at && way[0].spans == spans
                };
                prop_assert!(ways.iter().any(there), "{ways:?} without {at}");
            }
        }
    }

    /// Whoever sees a range of keys alone finds every match there, and a span that is confined holds nothing else.
    #[test]
    fn a_confined_span_holds_nothing_outside(
        expr in condition(),
        keys in index(),
        range in range(),
        entities in vec(entity(), 1..20),
    ) {
        let keys = by_partition(keys);
        let filter = filter(&print(&expr));
        let narrowed = filter.within_partitions(&range);
        let visible = |entity: &&Entity| range.contains(&entity.partition, &entity.row);
        for entity in entities.iter().filter(visible) {
            prop_assert_eq!(entity.matches(&narrowed), entity.matches(&filter));
        }
        let Some(spans) = spans(&narrowed, &keys) else { return Ok(()) };
        for entity in entities.iter().filter(visible).filter(|entity| entity.matches(&filter)) {
            prop_assert!(within(&spans, entity.entry(&keys).as_deref()), "{:?}", entity);
        }
        for span in spans.iter().filter(|span| is_confined(&keys, span, &range)) {
            let outside = entities.iter().filter(|entity| !visible(entity));
            for entry in outside.filter_map(|entity| entity.entry(&keys)) {
                prop_assert!(!span.contains(&entry), "{:?} {:?}", span, entry);
            }
        }
    }

    /// As long as nothing is cut, one comparison reads what satisfies it and nothing else.
    #[test]
    fn a_comparison_is_exact(
        comparison in comparison(),
        negated: bool,
        literal in any_value(),
        entities in vec(entity(), 20..40),
    ) {
        prop_assume!(!is_cut(&literal));
        let expr = Expr::Compare { property: "a".into(), comparison, literal };
        let text = print(&expr);
        let filter = filter(&if negated { there_but_not(&text) } else { text });
        let keys = keys(&["a"], false);
        let Some(spans) = spans(&filter, &keys) else {
            prop_assert!(false, "an entity without the property does not satisfy it");
            unreachable!();
        };
        for entity in &entities {
            let entry = entity.entry(&keys);
            prop_assert_eq!(within(&spans, entry.as_deref()), entity.matches(&filter), "{:?}", entry);
        }
    }

    /// The same for how a text begins.
    #[test]
    fn a_beginning_is_exact(
        prefix in "[ab\0é]{0,3}",
        literal: bool,
        comparison in comparison(),
        texts in vec(any_text(), 20..40),
    ) {
        let prefix = prefix.replace('\'', "''");
        let text = format!("startswith(a,'{prefix}') {} {literal}", common::operator(comparison));
        let filter = filter(&text);
        let keys = keys(&["a"], false);
        let spans = spans(&filter, &keys).unwrap();
        let others = [Value::Int32(1), Value::Boolean(true), Value::Binary([0x61].into())];
        let texts = texts.into_iter().map(|text| Value::String(text.into()));
        for value in texts.chain(others) {
            let entity = Entity::new(&[("a", value)]);
            let entry = entity.entry(&keys);
            prop_assert_eq!(within(&spans, entry.as_deref()), entity.matches(&filter), "{:?}", entry);
        }
    }

    /// Values that differ only where they are cut, and a literal among them.
    #[test]
    fn what_was_cut_is_not_lost(
        (comparison, literal, unique) in (comparison(), any::<bool>(), any::<bool>()),
        text in long(),
        texts in vec(long(), 20..40),
    ) {
        let operator = common::operator(comparison);
        let keys = keys(&["a"], unique);
        for condition in [
            format!("a {operator} '{text}'"),
            format!("startswith(a,'{text}') {operator} {literal}"),
        ] {
            for filter in [filter(&condition), filter(&there_but_not(&condition))] {
                let spans = spans(&filter, &keys).unwrap();
                for text in &texts {
                    let entity = Entity::new(&[("a", Value::String(text.as_str().into()))]);
                    let found = within(&spans, entity.entry(&keys).as_deref());
                    prop_assert!(found || !entity.matches(&filter), "{:?}", filter);
                }
            }
        }
    }

    /// A function of two properties does not hold where one is missing, whatever the other is.
    #[test]
    fn functions_of_two_properties(
        (comparison, literal) in (comparison(), any::<bool>()),
        call in prop::sample::select(vec![
            "startswith(a,b)", "startswith(b,a)", "contains(tolower(a),b)", "endswith(a,a)",
        ]),
        entities in vec(entity(), 10..20),
    ) {
        let condition = format!("{call} {} {literal}", common::operator(comparison));
        let keys = keys(&["a"], false);
        for filter in [filter(&condition), filter(&there_but_not(&condition))] {
            let spans = spans(&filter, &keys).unwrap();
            for entity in &entities {
                let found = within(&spans, entity.entry(&keys).as_deref());
                prop_assert!(found || !entity.matches(&filter), "{:?} {:?}", filter, entity);
            }
        }
    }

    #[test]
    fn entries_sort_as_values_do(a in any_value(), b in any_value()) {
        let keys = keys(&["v"], false);
        let of = |value: &Value| Entity::new(&[("v", value.clone())]).entry(&keys).unwrap();
        let (first, second) = (of(&a), of(&b));
        let types = (a.as_ref().edm_type(), b.as_ref().edm_type());
        match order(&a, &b) {
            None => prop_assert_eq!(first.cmp(&second), types.0.cmp(&types.1)),
            Some(order) if is_cut(&a) && is_cut(&b) => {
                prop_assert!(first == second || first.cmp(&second) == order);
            }
            Some(order) => prop_assert_eq!(first.cmp(&second), order),
        }
        prop_assert!(first == second || !first.starts_with(&second), "a beginning of another");
        prop_assert!(of(&a).len() <= 1 + limits::INDEX_VALUE_BYTES_MAX + 2);
    }

    /// Property by property, those that are missing first.
    #[test]
    fn entries_of_several_properties(a in entity(), b in entity(), keys in index()) {
        let (first, second) = (a.entry(&keys), b.entry(&keys));
        let single: Vec<_> = keys.properties.iter().map(|name| IndexKeys {
            properties: vec![name.clone()],
            unique: false,
        }).collect();
        let parts = |entity: &Entity| -> Vec<Option<Vec<u8>>> {
            single.iter().map(|keys| entity.entry(keys)).collect()
        };
        let (first_parts, second_parts) = (parts(&a), parts(&b));
        let needed = if keys.unique { single.len() } else { 1 };
        for (entry, parts) in [(&first, &first_parts), (&second, &second_parts)] {
            prop_assert_eq!(entry.is_some(), parts[..needed].iter().all(Option::is_some));
            prop_assert!(entry.as_ref().is_none_or(|entry| entry.len() <= LONGEST));
        }
        if let (Some(first), Some(second)) = (first, second)
            && first_parts != second_parts
        {
            prop_assert_eq!(first.cmp(&second), first_parts.cmp(&second_parts));
        }
    }

    #[test]
    fn unique_entries_are_equal_just_if_the_values_are(
        a in vec(prop_oneof![any_value(), edge()], 1..=3),
        b in vec(prop_oneof![any_value(), edge()], 3),
        same in vec(any::<bool>(), 3),
    ) {
        let b: Vec<_> = a.iter().zip(b).zip(same)
            .map(|((a, b), same)| if same { a.clone() } else { b })
            .collect();
        let names = ["a", "b", "c"];
        let keys = keys(&names[..a.len()], true);
        let of = |values: &[Value]| {
            let properties: Vec<_> = names.into_iter().zip(values.iter().cloned()).collect();
            Entity::new(&properties).entry(&keys).unwrap()
        };
        let equal = a.iter().zip(&b).all(|(a, b)| order(a, b) == Some(Ordering::Equal));
        prop_assert_eq!(of(&a) == of(&b), equal);
    }
}

/// The examples of docs/formats/index-entries.md: a change here breaks stored entries.
#[test]
fn format_is_frozen() {
    let string = |text: &str| Value::String(text.into());
    let bytes = |text: &str| {
        let digits: Vec<_> = text.chars().filter(|c| !c.is_whitespace()).collect();
        let byte = |pair: &[char]| u8::from_str_radix(&String::from_iter(pair), 16).unwrap();
        digits.chunks(2).map(byte).collect::<Vec<_>>()
    };
    let values = [
        (string(""), "02 00 01"),
        (string("Ann"), "02 41 6e 6e 00 01"),
        (string("a\0b"), "02 61 00 ff 62 00 01"),
        (Value::Int32(7), "03 80 00 00 07"),
        (Value::Int32(-1), "03 7f ff ff ff"),
        (Value::Int64(7), "04 80 00 00 00 00 00 00 07"),
        (Value::Double(f64::NEG_INFINITY), "05 00 0f ff ff ff ff ff ff"),
        (Value::Double(-1.5), "05 40 07 ff ff ff ff ff ff"),
        (Value::Double(0.0), "05 80 00 00 00 00 00 00 00"),
        (Value::Double(-0.0), "05 80 00 00 00 00 00 00 00"),
        (Value::Double(1.5), "05 bf f8 00 00 00 00 00 00"),
        (Value::Double(f64::INFINITY), "05 ff f0 00 00 00 00 00 00"),
        (Value::Double(f64::NAN), "05 ff ff ff ff ff ff ff ff"),
        (Value::Boolean(false), "06 00"),
        (Value::Boolean(true), "06 01"),
        (Value::DateTime(Timestamp::EDM_MIN), "07 07 01 ce 17 22 77 00 00"),
        (
            Value::Guid(Guid::parse("c9da6455-213d-42c9-9a79-3e9149a57833").unwrap()),
            "08 c9da6455 213d 42c9 9a79 3e9149a57833",
        ),
        (Value::Binary([0x00, 0x01, 0xFF].into()), "09 00 ff 01 ff 00 01"),
    ];
    for (value, expected) in values {
        let entity = Entity::new(&[("V", value.clone())]);
        for unique in [false, true] {
            assert_eq!(entity.entry(&keys(&["V"], unique)), Some(bytes(expected)), "{value:?}");
        }
    }

    let pair = Entity::new(&[("City", string("Ulm")), ("Age", Value::Int32(7))]);
    let city = "02 55 6c 6d 00 01";
    let expected: [(&[&str], String); 4] = [
        (&["City", "Age"], format!("{city} 03 80 00 00 07")),
        (&["City", "Size"], format!("{city} 01")),
        (&["PartitionKey", "RowKey", "City"], format!("02 70 00 01 02 72 00 01 {city}")),
        (&["Timestamp"], "07 07 01 ce 17 22 77 00 00".to_owned()),
    ];
    for (properties, expected) in expected {
        assert_eq!(pair.entry(&keys(properties, false)), Some(bytes(&expected)), "{properties:?}");
    }
    assert_eq!(pair.entry(&keys(&["Size", "City"], false)), None);
    assert_eq!(pair.entry(&keys(&["City", "Size"], true)), None);

    let long = Entity::new(&[("Text", string(&"a".repeat(300))), ("N", Value::Int32(7))]);
    let cut = format!("02 {} 00 02", "61".repeat(256));
    let expected: [(&[&str], bool, String); 4] = [
        (&["Text"], false, cut.clone()),
        (&["Text"], true, format!("{cut} 100c429c08b4b3bd274d0e94b332e282")),
        (&["Text", "N"], false, format!("{cut} 03 80 00 00 07")),
        (&["Text", "N"], true, format!("{cut} 03 80 00 00 07 68ef11277afb3aa2e982963894a9932f")),
    ];
    for (properties, unique, expected) in expected {
        assert_eq!(long.entry(&keys(properties, unique)), Some(bytes(&expected)), "{properties:?}");
    }
    let fits = Entity::new(&[("Text", string(&"a".repeat(256)))]);
    let whole = format!("02 {} 00 01", "61".repeat(256));
    assert_eq!(fits.entry(&keys(&["Text"], true)), Some(bytes(&whole)));
    // An escape is not torn apart: one byte fewer is kept.
    let zero = Entity::new(&[("Text", string(&("a".repeat(255) + "\0")))]);
    let shorter = format!("02 {} 00 02", "61".repeat(255));
    assert_eq!(zero.entry(&keys(&["Text"], false)), Some(bytes(&shorter)));
}
