//! The SQL of a filter means what the filter means on a record, for every type, every comparison and every text,
//! whatever the locale of the database.

#[path = "../../../query/tests/it/common/mod.rs"]
mod generator;

use crate::common::{commit, filter, key, open, page, put, record, scan_all, table};
use generator::{expr_on, literal_text, naive, print};
use proptest::strategy::{Just, Strategy, ValueTree as _};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use rowhouse_store::{Page, Scan, TableId};
use rowhouse_store_postgres::PostgresStore;
use rowhouse_testkit::{TestPostgres, seed};
use rowhouse_types::{EntityKey, Guid, Record, Row, Timestamp, Value, ValueRef, limits};
use std::sync::Arc;

const OPERATORS: [&str; 6] = ["eq", "ne", "lt", "le", "gt", "ge"];

/// A table, and everything in it as a scan without a filter returns it.
struct Fixture {
    store: Arc<PostgresStore>,
    table: TableId,
    everything: Page,
}

impl Fixture {
    /// A table of these entities, each of which comes back as it was.
    async fn new(server: &TestPostgres, mut entities: Vec<(EntityKey, Record)>) -> Self {
        let store = open(&server.create_database()).await;
        let table = table(&*store).await;
        for chunk in entities.chunks(limits::BATCH_OPERATIONS_MAX) {
            let commands = chunk.iter().map(|(key, record)| put(table, key, record.clone()));
            commit(&*store, commands.collect()).await.expect("the batch succeeds");
        }
        let everything = page(&*store, table, scan_all()).await;
        entities.sort_by(|(a, _), (b, _)| a.cmp(b));
        assert_eq!(everything.rows.len(), entities.len());
        for (row, (key, record)) in rows(&everything).zip(&entities) {
            assert_eq!((row.partition, row.row), (key.partition.as_str(), key.row.as_str()));
            let mut stored = row.record.to_owned();
            stored.stamp(Timestamp::default());
            assert_eq!(stored, *record, "{:?}", row.row);
        }
        Self { store, table, everything }
    }

    /// One entity for each value, which is its property `v`, and some without it.
    async fn of(server: &TestPostgres, values: Vec<Value>) -> Self {
        let of = |(n, value): (usize, &Value)| {
            (key("p", &format!("{n:03}")), record(&[("v", value.as_ref())]))
        };
        let mut entities: Vec<_> = values.iter().enumerate().map(of).collect();
        entities.push((key("p", "nothing"), record(&[])));
        entities.push((key("p", "another"), record(&[("V", ValueRef::Boolean(true))])));
        Self::new(server, entities).await
    }

    /// A scan finds exactly what satisfies the filter; how much that is.
    async fn check(&self, text: &str) -> usize {
        let filter = filter(text);
        let scan = Scan { filter: Some(Arc::clone(&filter)), ..scan_all() };
        let found = page(&*self.store, self.table, scan).await;
        let owned =
            |row: Row<'_>| (format!("{}/{}", row.partition, row.row), row.record.to_owned());
        let found: Vec<_> = rows(&found).map(owned).collect();
        let matches = |row: &Row<'_>| filter.matches(row).expect("the record decodes");
        let expected: Vec<_> = rows(&self.everything).filter(matches).map(owned).collect();
        if found != expected {
            let without = |some: &[(String, Record)], others: &[(String, Record)]| {
                let rest = some.iter().filter(|entity| !others.contains(entity));
                rest.map(|(key, _)| key.clone()).collect::<Vec<_>>()
            };
            let (missing, surplus) = (without(&expected, &found), without(&found, &expected));
            panic!("{text:.300}: {missing:?} are missing, {surplus:?} are too many");
        }
        found.len()
    }

    /// The same for a filter that is judged by other code too; what satisfies it.
    async fn check_naively(&self, expr: &rowhouse_query::Expr) {
        let text = print(expr);
        let found = self.check(&text).await;
        let holds = |row: &Row<'_>| naive::holds(expr, &naive::properties(row));
        assert_eq!(found, rows(&self.everything).filter(holds).count(), "{text:.300}");
    }

    /// The property compared with the literal in all six ways.
    async fn check_comparisons(&self, property: &str, literal: &Value) {
        let literal = literal_text(literal);
        for operator in OPERATORS {
            self.check(&format!("{property} {operator} {literal}")).await;
        }
    }
}

fn rows(page: &Page) -> impl Iterator<Item = Row<'_>> {
    page.rows.iter().map(|row| row.expect("a page decodes"))
}

/// Texts that encodings, escapes, collations and casts might get wrong.
const TEXTS: &[&str] = &[
    "",
    "a",
    "b",
    "A",
    "B",
    "ab",
    "a ",
    " ",
    "a9",
    "a10",
    "ä",
    "Ä",
    "a\u{308}",
    "z",
    "ß",
    "ss",
    "é",
    "e\u{301}",
    "\u{0}",
    "\u{0}\u{0}",
    "\u{1}",
    "\u{1}\u{1}",
    "\u{1}\u{2}",
    "\u{2}",
    "a\u{0}b",
    "a\u{1}b",
    "a\u{2}b",
    "a\u{0}",
    "\u{7F}",
    "\u{AD}",
    "\u{D7FF}",
    "\u{E000}",
    "\u{FFFF}",
    "😀",
    "\u{10FFFF}",
    "名",
    "'",
    "''",
    "\"",
    "\\",
    "\\u0000",
    "%",
    "_",
    "NaN",
    "Infinity",
    "-0",
    "true",
    "null",
    "1",
    "[\"b\", true]",
    "\r\n",
    "00000000-0000-0000-0000-000000000000",
];

fn texts() -> impl Iterator<Item = Value> {
    TEXTS.iter().map(|text| Value::String((*text).into()))
}

fn numbers() -> impl Iterator<Item = Value> {
    let narrow = [i32::MIN, -1, 0, 1, 3, i32::MAX].map(Value::Int32);
    let (exact, beyond) = (1i64 << 53, 1i64 << 31);
    let wide = [
        i64::MIN,
        i64::MIN + 1,
        -exact - 1,
        -beyond - 1,
        -1,
        0,
        1,
        3,
        beyond,
        exact,
        exact + 1,
        i64::MAX - 1,
        i64::MAX,
    ];
    narrow.into_iter().chain(wide.map(Value::Int64)).chain(doubles())
}

fn doubles() -> impl Iterator<Item = Value> {
    let finite = [
        0.0,
        0.1,
        0.5,
        1.0,
        3.0,
        1e-7,
        1e16,
        1e22,
        123_456_789.125,
        2_147_483_648.0,
        9_007_199_254_740_992.0,
        9_223_372_036_854_775_808.0,
        5e-324,
        f64::MIN_POSITIVE,
        f64::EPSILON,
        f64::MAX,
        f64::INFINITY,
    ];
    let bits = [
        0x7FF8_0000_0000_0000,
        0xFFF8_0000_0000_0000,
        0x7FF0_0000_0000_0001,
        0x7FFF_FFFF_FFFF_FFFF,
    ];
    let both = finite.into_iter().flat_map(|n: f64| [n, -n]);
    both.chain(bits.map(f64::from_bits)).map(Value::Double)
}

fn others() -> impl Iterator<Item = Value> {
    let (first, last) = (Timestamp::EDM_MIN, Timestamp::MAX);
    let second = Timestamp::parse_iso("2026-01-01T00:00:00.0000001Z").expect("a date");
    let times = [first, first.next(), second, last].map(Value::DateTime);
    let guids = [[0; 16], [0xFF; 16], [0x0A; 16], *b"0123456789abcdef"];
    let guids = guids.map(|bytes| Value::Guid(Guid(bytes)));
    [true, false].map(Value::Boolean).into_iter().chain(times).chain(guids)
}

fn binary(len: usize) -> Value {
    Value::Binary((0..len).map(|n| u8::try_from(n * 37 % 256).expect("a byte")).collect())
}

/// Values of every type, none of them large.
fn values() -> Vec<Value> {
    let binaries = [0, 1, 2, 3, 57, 76, 77].map(binary);
    let similar =
        [vec![0; 3], vec![0xFF; 2], vec![0, 37, 75]].map(|bytes| Value::Binary(bytes.into()));
    texts().chain(numbers()).chain(others()).chain(binaries).chain(similar).collect()
}

async fn every_literal_and_comparison(server: &TestPostgres) {
    let fixture = Fixture::of(server, values()).await;
    for literal in values() {
        fixture.check_comparisons("v", &literal).await;
    }
    fixture.check_comparisons("v", &Value::DateTime(Timestamp::default())).await;
}

/// Texts compare by their bytes, whatever the language.
async fn texts_of_any_language(server: &TestPostgres) {
    let fixture = Fixture::of(server, texts().collect()).await;
    for literal in texts() {
        fixture.check_comparisons("v", &literal).await;
    }
}

/// The largest values, and Binary of every length that base64 and its lines could care about.
async fn large_values(server: &TestPostgres) {
    let longest = limits::STRING_UTF16_UNITS_MAX;
    let texts = ["x".repeat(longest), "\u{1}\u{0}".repeat(longest / 2), "x".repeat(20_000)];
    let texts = texts.map(|text| Value::String(text.into()));
    let binaries = (0..=80).chain([10_000, limits::BINARY_BYTES_MAX]).map(binary);
    let fixture = Fixture::of(server, binaries.chain(texts.iter().cloned()).collect()).await;
    for literal in [binary(0), binary(58), binary(10_000), texts[2].clone()] {
        fixture.check_comparisons("v", &literal).await;
    }
}

/// Nothing is unknown: `not` finds the rest, missing properties and NaN included.
async fn negations(server: &TestPostgres) {
    let fixture = Fixture::of(server, values()).await;
    let all = fixture.everything.rows.len();
    for literal in ["'b'", "3", "3L", "3D", "NaN", "true", "X'0025'", "datetime'2026-01-01'"] {
        for operator in OPERATORS {
            let text = format!("v {operator} {literal}");
            let found = fixture.check(&text).await;
            assert_eq!(fixture.check(&format!("not ({text})")).await, all - found, "{text}");
        }
    }
    for (text, expected) in [("true", all), ("false", 0), ("not true", 0), ("not false", all)] {
        assert_eq!(fixture.check(text).await, expected, "{text}");
    }
    for text in ["v", "V", "missing", "PartitionKey", "RowKey", "Timestamp"] {
        let found = fixture.check(text).await;
        assert_eq!(fixture.check(&format!("not {text}")).await, all - found, "{text}");
        assert_eq!(found, usize::from(matches!(text, "v" | "V")), "{text}");
    }
}

async fn keys_and_timestamps(server: &TestPostgres) {
    let long = ["名".repeat(1024), "名".repeat(1023) + "b", "k".repeat(1024)];
    let short = ["", "a", "A", "ä", "a9", "a10", "'", "é", "e\u{301}", "\u{10FFFF}"];
    let halves: Vec<_> = short.into_iter().chain(long.iter().map(|text| &**text)).collect();
    let entities = halves.iter().flat_map(|p| halves.iter().map(|r| (key(p, r), record(&[]))));
    let fixture = Fixture::new(server, entities.collect()).await;
    let times: Vec<_> = rows(&fixture.everything).map(|row| row.record.timestamp()).collect();
    let first = *times.iter().min().expect("there are entities");
    let mut literals: Vec<_> = halves.iter().map(|text| Value::String((*text).into())).collect();
    literals.extend(["\u{0}", "a\u{0}", "a\u{1}", "名"].map(|text| Value::String(text.into())));
    literals
        .extend([first, first.next(), Timestamp::default(), Timestamp::MAX].map(Value::DateTime));
    literals.extend([Value::Int32(1), Value::Double(f64::NAN), Value::Boolean(true), binary(1)]);
    for property in ["PartitionKey", "RowKey", "Timestamp"] {
        for literal in &literals {
            fixture.check_comparisons(property, literal).await;
        }
    }
}

/// Every function with every text, in the properties and in the keys: where the database judges itself, and where it
/// lets pass what is judged afterwards.
async fn functions(server: &TestPostgres) {
    let fixture = Fixture::of(server, values()).await;
    let quoted = |text: &str| literal_text(&Value::String(text.into()));
    for text in TEXTS {
        let text = quoted(text);
        for function in ["startswith", "endswith", "contains"] {
            fixture.check(&format!("{function}(v,{text})")).await;
            fixture.check(&format!("not {function}(v,{text})")).await;
            fixture.check(&format!("{function}(toupper(v),{text})")).await;
        }
        fixture.check(&format!("contains({text},v) or startswith(v,v) eq false")).await;
        fixture.check(&format!("tolower(v) eq {text}")).await;
        fixture.check(&format!("tolower(toupper(v)) le {text}")).await;
    }
    for operator in OPERATORS {
        for number in ["0", "1", "2L", "1.5", "NaN", "-INF"] {
            fixture.check(&format!("length(v) {operator} {number}")).await;
            fixture.check(&format!("not (length(tolower(v)) {operator} {number})")).await;
        }
        for literal in ["true", "false"] {
            fixture.check(&format!("contains(v,'a') {operator} {literal}")).await;
            fixture.check(&format!("endswith(missing,'') {operator} {literal}")).await;
            fixture.check(&format!("startswith(Timestamp,'') {operator} {literal}")).await;
        }
        fixture.check(&format!("toupper(RowKey) {operator} 'NOTHING'")).await;
    }
}

/// Functions of keys, short and long.
async fn functions_of_keys(server: &TestPostgres) {
    let long = ["名".repeat(1024), "Ä".repeat(1023) + "b", "k".repeat(1024)];
    let short = ["", "a", "A", "ä", "Ab", "aB", "'", "é", "e\u{301}", "\u{10FFFF}"];
    let halves: Vec<_> = short.into_iter().chain(long.iter().map(|text| &**text)).collect();
    let entities = halves.iter().flat_map(|p| halves.iter().map(|r| (key(p, r), record(&[]))));
    let fixture = Fixture::new(server, entities.collect()).await;
    for half in ["PartitionKey", "RowKey"] {
        for text in ["", "a", "A", "ä", "b", "B", "e", "\u{301}", "名名", "kk", "\u{1}", "\u{0}"]
        {
            let text = literal_text(&Value::String(text.into()));
            for function in ["startswith", "endswith", "contains"] {
                fixture.check(&format!("{function}({half},{text})")).await;
                fixture.check(&format!("{function}(tolower({half}),{text})")).await;
            }
            fixture.check(&format!("toupper({half}) gt {text}")).await;
        }
        for length in ["0", "1", "2", "1024"] {
            fixture.check(&format!("length({half}) eq {length}")).await;
        }
    }
    fixture.check("startswith(PartitionKey,RowKey) and length(RowKey) ge 1").await;
    fixture.check("PartitionKey in ('a','ä') and RowKey in ('','名')").await;
}

/// Names are only ever names, whatever they look like.
async fn names(server: &TestPostgres) {
    let longest = "n".repeat(limits::PROPERTY_NAME_UTF16_UNITS_MAX);
    let names = [
        "_", "a", "A", "é", "e\u{301}", "名前", "x١", "props", "i", "b", "hit", "kp", "null",
        "select", "_0", &longest,
    ];
    let entities = names.iter().enumerate().flat_map(|(n, name)| {
        let value =
            |suffix: &str, value| (key("p", &format!("{n}{suffix}")), record(&[(name, value)]));
        [
            value("n", ValueRef::Int32(1)),
            value("t", ValueRef::Boolean(true)),
            value("s", ValueRef::String("b")),
        ]
    });
    let fixture = Fixture::new(server, entities.collect()).await;
    for name in names {
        if rowhouse_query::Filter::parse(name).is_err() {
            continue;
        }
        assert_eq!(fixture.check(name).await, 1, "{name}");
        assert_eq!(fixture.check(&format!("{name} eq 1")).await, 1, "{name}");
        assert_eq!(fixture.check(&format!("{name} ge 'b'")).await, 1, "{name}");
        assert_eq!(fixture.check(&format!("{name} ne 2")).await, 3, "{name}");
    }
}

/// The deepest and the longest filters that the language allows.
async fn large_filters(server: &TestPostgres) {
    let values = [Value::Int32(3), Value::Double(4.0), Value::Boolean(true)].into_iter();
    let fixture = Fixture::of(server, values.chain(texts()).collect()).await;
    // Both the word and the parenthesis are a level.
    let depth = limits::FILTER_DEPTH_MAX / 2 - 1;
    let deep = format!("{}v eq 3{}", "not (".repeat(depth), ")".repeat(depth));
    fixture.check(&deep).await;
    let values = vec!["3"; limits::FILTER_LIST_VALUES_MAX].join(",");
    fixture.check(&format!("v in ({values})")).await;
    fixture
        .check(&vec!["contains(tolower(v),'B')"; limits::FILTER_FUNCTIONS_MAX / 2].join(" or "))
        .await;
    for (word, part) in [("or", "v eq 3"), ("and", "v ne 4"), ("or", "v"), ("or", "v eq 'b'")] {
        let joined = format!(" {word} {part}");
        let count = (limits::FILTER_BYTES_MAX - part.len()) / joined.len();
        fixture.check(&format!("{part}{}", joined.repeat(count))).await;
    }
}

/// Filters of any shape over several properties.
async fn random_filters(server: &TestPostgres) {
    const NAMES: &[&str] = &["a", "b", "c", "PartitionKey", "RowKey", "Timestamp", "missing"];
    let mut chance = Chance::new();
    let value = proptest::sample::select(values());
    let property = |name| (proptest::bool::weighted(0.75), Just(name), value.clone());
    let properties = ["a", "b", "c"].map(property);
    let entities = (0..200).map(|n| {
        let drawn = chance.draw(&properties);
        let there = drawn.iter().filter(|(is_there, ..)| *is_there);
        let there: Vec<_> = there.map(|(_, name, value)| (*name, value.as_ref())).collect();
        (key(&format!("{}", n % 3), &format!("{n}")), record(&there))
    });
    let fixture = Fixture::new(server, entities.collect()).await;
    let texts = proptest::sample::select(TEXTS).prop_map(str::to_owned).boxed();
    let filters = expr_on(NAMES, value.clone(), texts);
    for _ in 0..200 {
        fixture.check_naively(&chance.draw(&filters)).await;
    }
}

/// Draws that follow from a seed.
struct Chance(TestRunner);

impl Chance {
    fn new() -> Self {
        let seed: [u8; 32] = std::array::from_fn({
            let bytes = seed().to_le_bytes();
            move |place| bytes[place % bytes.len()]
        });
        let numbers = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
        Self(TestRunner::new_with_rng(Config::default(), numbers))
    }

    fn draw<S: Strategy>(&mut self, from: &S) -> S::Value {
        from.new_tree(&mut self.0).expect("there is always one").current()
    }
}

/// Every check, on the server.
macro_rules! checks {
    ($server:expr; $($check:ident)*) => {
        $(
            #[test]
            fn $check() {
                crate::common::run(super::$check($server));
            }
        )*
    };
}

mod any_locale {
    checks! {
        rowhouse_testkit::TestPostgres::shared();
        every_literal_and_comparison large_values negations keys_and_timestamps functions functions_of_keys
        names large_filters random_filters
    }
}

mod icu_locale {
    checks! {
        rowhouse_testkit::TestPostgres::shared_with_locale();
        texts_of_any_language keys_and_timestamps functions functions_of_keys random_filters
    }
}
