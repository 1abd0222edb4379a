//! What comparisons mean, for every pair of types.

use crate::common::{entity, expr, literal_text, naive, operator, print};
use proptest::prelude::*;
use rowhouse_query::{Comparison, Filter};
use rowhouse_types::{
    Corrupt, EdmType, Guid, Record, RecordBuilder, RecordRef, Row, Timestamp, Value, ValueRef,
};
use std::cmp::Ordering;

const OPERATORS: [Comparison; 6] = [
    Comparison::Equal,
    Comparison::NotEqual,
    Comparison::LessThan,
    Comparison::LessThanOrEqual,
    Comparison::GreaterThan,
    Comparison::GreaterThanOrEqual,
];

fn filter(text: &str) -> Filter {
    Filter::parse(text).unwrap_or_else(|e| panic!("{text}: {e}")).expect("not blank")
}

fn record(properties: &[(&str, Value)]) -> Record {
    let mut builder = RecordBuilder::new();
    for (name, value) in properties {
        builder.push(name, value.as_ref()).unwrap();
    }
    builder.finish(Timestamp::parse_iso("2020-01-01T00:00:00Z").unwrap())
}

fn matches(text: &str, record: &Record) -> bool {
    filter(text).matches(&Row { partition: "p", row: "r", record: record.as_ref() }).unwrap()
}

fn string(text: &str) -> Value {
    Value::String(text.into())
}

fn instant(text: &str) -> Value {
    Value::DateTime(Timestamp::parse_iso(text).unwrap())
}

fn guid(text: &str) -> Value {
    Value::Guid(Guid::parse(text).unwrap())
}

fn binary(bytes: &[u8]) -> Value {
    Value::Binary(bytes.into())
}

/// Two values of each type, the lesser first; numbers of different types have the same two.
fn samples() -> [[Value; 2]; 8] {
    [
        [string("B"), string("b")],
        [Value::Int32(3), Value::Int32(4)],
        [Value::Int64(3), Value::Int64(4)],
        [Value::Double(3.0), Value::Double(4.0)],
        [Value::Boolean(false), Value::Boolean(true)],
        [instant("2008-07-10T00:00:00Z"), instant("2008-07-10T00:00:00.0000001Z")],
        [
            guid("0455c695-df98-5678-aaaa-81d3367e5a34"),
            guid("a455c695-df98-5678-aaaa-81d3367e5a33"),
        ],
        [binary(&[0x7F]), binary(&[0x80])],
    ]
}

/// The table of the protocol: which literals compare with which stored type.
fn comparable(stored: EdmType, literal: EdmType) -> bool {
    use EdmType::{Double, Int32, Int64};
    stored == literal || matches!((stored, literal), (Int64 | Double, Int32) | (Double, Int64))
}

fn expected(comparison: Comparison, order: Ordering) -> bool {
    match comparison {
        Comparison::Equal => order.is_eq(),
        Comparison::NotEqual => order.is_ne(),
        Comparison::LessThan => order.is_lt(),
        Comparison::LessThanOrEqual => order.is_le(),
        Comparison::GreaterThan => order.is_gt(),
        Comparison::GreaterThanOrEqual => order.is_ge(),
    }
}

#[test]
fn every_pair_of_types_and_every_operator() {
    let mut pairs = 0;
    for stored_type in samples() {
        for literal_type in samples() {
            pairs += 1;
            for (i, stored) in stored_type.iter().enumerate() {
                for (j, literal) in literal_type.iter().enumerate() {
                    let types = (stored.as_ref().edm_type(), literal.as_ref().edm_type());
                    let order =
                        if comparable(types.0, types.1) { i.cmp(&j) } else { Ordering::Less };
                    let entity = record(&[("x", stored.clone())]);
                    for comparison in OPERATORS {
                        let text = format!("x {} {}", operator(comparison), literal_text(literal));
                        let wanted = expected(comparison, order);
                        assert_eq!(matches(&text, &entity), wanted, "{stored:?}: {text}");
                        assert_eq!(matches(&format!("not ({text})"), &entity), !wanted, "{text}");
                    }
                }
            }
        }
    }
    assert_eq!(pairs, 64);
}

#[test]
fn single_questions() {
    let entity = record(&[
        ("s", string("b")),
        ("quote", string("O'Brien")),
        ("i", Value::Int32(3)),
        ("l", Value::Int64(1_099_511_627_776)),
        ("d", Value::Double(4.1)),
        ("zero", Value::Double(-0.0)),
        ("nan", Value::Double(f64::NAN)),
        ("inf", Value::Double(f64::INFINITY)),
        ("yes", Value::Boolean(true)),
        ("no", Value::Boolean(false)),
        ("bytes", binary(&[1, 2])),
        ("huge", string("\u{FFFD}")),
        ("eq", Value::Int32(1)),
        ("datetime", Value::Int32(1)),
    ]);
    let cases = [
        // Text, by UTF-8 bytes.
        ("s gt 'B'", true),
        ("s lt 'bB'", true),
        ("s eq 'B'", false),
        ("quote eq 'O''Brien'", true),
        ("huge lt '😀'", true),
        // Numbers.
        ("i lt 5", true),
        ("5 gt i", true),
        ("5 lt i", false),
        ("l eq 1099511627776L", true),
        ("l eq 1099511627776", true),
        ("d lt 4.2", true),
        ("d eq 4.1D", true),
        ("zero eq 0", true),
        ("zero eq 0.0", true),
        ("zero lt 0L", false),
        ("inf gt 1e308", true),
        ("inf eq INF", true),
        ("inf gt -INF", true),
        ("nan eq NaN", false),
        ("nan ne NaN", true),
        ("nan lt 1", false),
        ("nan ge 1", false),
        ("nan ne 1", true),
        ("d ne NaN", true),
        ("d le NaN", false),
        ("not (nan lt 1)", true),
        // Another type: less, always.
        ("i lt '3'", true),
        ("i ne 3L", true),
        ("i ge 3L", false),
        ("nan lt ''", true),
        ("yes ne ''", true),
        // Missing properties.
        ("x eq 3", false),
        ("x ne 3", false),
        ("x lt 3", false),
        ("not (x ne 3)", true),
        ("x", false),
        ("not x", true),
        // Names are case-sensitive.
        ("S eq 'b'", false),
        ("partitionkey eq 'p'", false),
        // Bare properties.
        ("yes", true),
        ("no", false),
        ("i", false),
        ("s", false),
        ("not no and yes", true),
        ("yes eq True", true),
        // Binary.
        ("bytes gt X'01'", true),
        ("bytes lt binary'0103'", true),
        ("bytes eq X'0102'", true),
        // Names that look like something else.
        ("eq eq 1 and datetime eq 1", true),
        // Keys and Timestamp.
        ("PartitionKey eq 'p' and RowKey eq 'r'", true),
        ("'p' eq PartitionKey", true),
        ("PartitionKey ge 'o' and PartitionKey lt 'q'", true),
        ("Timestamp eq datetime'2020-01-01T00:00:00Z'", true),
        ("Timestamp gt datetime'2019-12-31T23:59:59.9999999Z'", true),
        ("Timestamp lt 5", true),
        ("PartitionKey eq 5", false),
        ("PartitionKey ne 5", true),
        ("PartitionKey", false),
        // Precedence.
        ("yes or no and no", true),
        ("(yes or no) and no", false),
        ("not no or yes", true),
        ("(PartitionKey eq '')or(no eq false)", true),
        ("true", true),
        ("false", false),
        ("not false", true),
    ];
    for (text, wanted) in cases {
        assert_eq!(matches(text, &entity), wanted, "{text}");
    }
}

#[test]
fn functions() {
    let entity = record(&[
        ("s", string("Grüße, Ann")),
        ("empty", string("")),
        ("face", string("😀")),
        ("part", string("Ann")),
        ("i", Value::Int32(3)),
        ("yes", Value::Boolean(true)),
    ]);
    let cases = [
        ("startswith(s,'Grü')", true),
        ("startswith(s,'grü')", false),
        ("endswith(s,'Ann')", true),
        ("endswith(s,part)", true),
        ("contains(s,'ße, ')", true),
        ("substringof('ße',s)", true),
        ("substringof(s,'ße')", false),
        ("contains('ABAnnC',part)", true),
        ("contains(s,'')", true),
        ("startswith(empty,'')", true),
        ("contains(empty,'a')", false),
        ("startswith(s,'Grüße, Ann and more')", false),
        ("tolower(s) eq 'grüße, ann'", true),
        ("toupper(s) eq 'GRÜßE, ANN'", true),
        ("contains(tolower(s),tolower('GRÜ'))", true),
        ("tolower(s) gt 'grü'", true),
        ("tolower(part) in ('bob','ann')", true),
        ("s in ('x',5)", false),
        ("i in (1,3)", true),
        ("i in (1L,3L)", false),
        // Length is in UTF-16 units and compares with every number.
        ("length(s) eq 10", true),
        ("length(s) eq 10L", true),
        ("length(s) lt 10.5", true),
        ("length(face) eq 2", true),
        ("length(empty) eq 0", true),
        // True and false.
        ("startswith(s,'x') eq false", true),
        ("startswith(s,'x') ne true", true),
        ("not startswith(s,'x')", true),
        ("startswith(s,'G') gt false", true),
        // A missing property: no comparison holds.
        ("contains(x,'')", false),
        ("contains(x,'') eq false", false),
        ("contains(x,'') ne true", false),
        ("not contains(x,'')", true),
        ("length(x) ge 0", false),
        ("length(x) ne 0", false),
        ("tolower(x) ne 'a'", false),
        ("contains(i,x) ne true", false),
        // No text: less, always.
        ("contains(i,'3')", false),
        ("contains(i,'3') eq false", false),
        ("contains(i,'3') ne true", true),
        ("contains(i,'3') lt false", true),
        ("length(i) lt 0", true),
        ("length(i) ge 0", false),
        ("tolower(i) ne '3'", true),
        ("tolower(i) eq '3'", false),
        ("contains(s,i) ne false", true),
        ("startswith(Timestamp,'2')", false),
        // Keys.
        ("startswith(PartitionKey,'p') and toupper(RowKey) eq 'R'", true),
        ("length(RowKey) gt 1", false),
        ("PartitionKey in ('o','p')", true),
    ];
    for (text, wanted) in cases {
        assert_eq!(matches(text, &entity), wanted, "{text}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn means_what_it_means_said_naively(
        expr in expr(),
        entities in prop::collection::vec(entity(), 1..20),
    ) {
        let filter = filter(&print(&expr));
        for entity in &entities {
            let expected = naive::holds(&expr, &naive::properties(&entity.as_row()));
            prop_assert_eq!(filter.matches(&entity.as_row()), Ok(expected), "{}", print(&expr));
        }
    }
}

#[test]
fn things_that_are_not_entities() {
    let by_name = |text: &str| {
        filter(text)
            .matches_with(&mut |name| (name == "TableName").then_some(ValueRef::String("people")))
    };
    for (text, wanted) in [
        ("TableName eq 'people'", true),
        ("TableName ge 'p' and TableName lt 'q'", true),
        ("TableName eq 'People'", false),
        ("startswith(TableName,'peo') and length(TableName) eq 6", true),
        ("contains(PartitionKey,'') eq false", false),
        ("PartitionKey eq 'people'", false),
        ("PartitionKey ne 'people'", false),
    ] {
        assert_eq!(by_name(text), wanted, "{text}");
    }
}

#[test]
fn a_corrupt_value_is_noticed_only_when_it_is_read() {
    let mut bytes =
        record(&[("a", Value::Boolean(true)), ("b", Value::Int32(1))]).as_bytes().to_vec();
    let at = bytes.len() - 5;
    assert_eq!(bytes[at], 1);
    bytes[at] = 0xFF;
    let row = Row { partition: "p", row: "r", record: RecordRef::parse(&bytes).unwrap() };
    assert_eq!(filter("b eq 1").matches(&row), Ok(true));
    assert_eq!(filter("b eq 2 and a").matches(&row), Ok(false));
    assert!(matches!(filter("a").matches(&row), Err(Corrupt(_))));
}

/// Checking that a text is UTF-8 for every condition on it made long filters cost seconds a row.
#[test]
fn text_is_compared_as_it_is_stored() {
    let mut bytes = record(&[("a", string("x"))]).as_bytes().to_vec();
    *bytes.last_mut().unwrap() = 0xFF;
    let row = Row { partition: "p", row: "r", record: RecordRef::parse(&bytes).unwrap() };
    assert_eq!(filter("a eq 'x'").matches(&row), Ok(false));
    assert_eq!(filter("a gt 'x'").matches(&row), Ok(true));
    assert_eq!(filter("a").matches(&row), Ok(false));
}
