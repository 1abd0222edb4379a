//! Which part of an index a filter reads: little where it can, and never too much to look for.

use crate::common::{filter, keys};
use rowhouse_query::index::{
    IndexKeys, Part, Span, entry, is_confined, lookups, lookups_in_turns, spans,
};
use rowhouse_types::{KeyRange, Position, RecordBuilder, Row, Timestamp, ValueRef, limits};
use std::cell::Cell;
use std::fmt::Write;
use std::time::{Duration, Instant};

/// A span for people.
fn show(span: &Span) -> String {
    let hex = |bytes: &[u8]| {
        bytes.iter().fold(String::new(), |mut text, byte| {
            write!(text, "{byte:02x}").unwrap();
            text
        })
    };
    match (span.single(), &span.end) {
        (Some(entry), _) => format!("= {}", hex(entry)),
        (_, Some(end)) => format!("{} .. {}", hex(&span.start), hex(end)),
        (_, None) => format!("{} ..", hex(&span.start)),
    }
}

fn shown(text: &str, keys: &IndexKeys) -> Option<Vec<String>> {
    Some(spans(&filter(text), keys)?.iter().map(show).collect())
}

/// An index (its properties, and whether it is unique), a filter, and the spans that it has.
type Case<'a> = (&'a [&'a str], bool, &'a str, Option<&'a [&'a str]>);

fn check_cases(cases: &[Case<'_>]) {
    for (properties, unique, text, expected) in cases {
        let expected = expected.map(|spans| spans.iter().map(|s| (*s).to_owned()).collect());
        let actual = shown(text, &keys(properties, *unique));
        assert_eq!(actual, expected, "{text} on {properties:?}, unique: {unique}");
    }
}

/// Useful filters read little: as few spans as there are values, and nothing beside them.
#[test]
fn useful_filters_are_narrow() {
    let x300 = "x".repeat(300);
    let cut = format!("02{}0002", "78".repeat(256));
    let cut_end = format!("02{}0003", "78".repeat(256));
    let long_eq = format!("N eq '{x300}'");
    let (single_cut, hashed_cut) = (format!("= {cut}"), format!("{cut} .. {cut_end}"));
    check_cases(&[
        (&["N"], false, "N eq 'x'", Some(&["= 02780001"])),
        (&["N"], true, "N eq 'x'", Some(&["= 02780001"])),
        (&["N"], false, "N eq 'x' and Other gt 5", Some(&["= 02780001"])),
        (&["N"], false, "N in ('x','z','y')", Some(&["= 02780001", "= 02790001", "= 027a0001"])),
        (&["N"], false, "N ge 'a' and N lt 'c'", Some(&["02610001 .. 02630001"])),
        (&["N"], false, "N gt 'a' and N le 'c'", Some(&["02610002 .. 02630002"])),
        (&["N"], false, "N gt 'a'", Some(&["02610002 .. 0300000000"])),
        (&["N"], false, "N ge 'a' and N le 'a'", Some(&["= 02610001"])),
        (&["N"], false, "startswith(N,'ab')", Some(&["026162 .. 026163"])),
        (&["N"], false, "not (not startswith(N,'ab'))", Some(&["026162 .. 026163"])),
        (&["N"], false, "contains(N,'ab')", Some(&["020001 .. 0300000000"])),
        (&["N"], false, "tolower(N) eq 'ab'", Some(&["020001 .. 0300000000"])),
        (&["N"], false, "N ne ''", Some(&["020002 .. 0a"])),
        (&["N"], false, "N", Some(&["= 0601"])),
        (&["N"], false, "N eq false", Some(&["= 0600"])),
        // An Int32 literal compares with all numbers, one of Int64 not with Int32.
        (
            &["N"],
            false,
            "N eq 5",
            Some(&["= 0380000005", "= 048000000000000005", "= 05c014000000000000"]),
        ),
        (&["N"], false, "N eq 5L", Some(&["= 048000000000000005", "= 05c014000000000000"])),
        (&["N"], false, "N eq -0.0", Some(&["= 058000000000000000"])),
        (&["N"], false, "N eq NaN", Some(&[])),
        // Neighbours stay apart: each is looked up in the order of keys.
        (
            &["N"],
            false,
            "N in (5L,6L)",
            Some(&[
                "= 048000000000000005",
                "= 048000000000000006",
                "= 05c014000000000000",
                "= 05c018000000000000",
            ]),
        ),
        (
            &["N"],
            false,
            "N gt 5L",
            Some(&[
                "048000000000000006 .. 050000000000000000",
                "05c014000000000001 .. 05ffffffffffffffff",
            ]),
        ),
        (
            &["N"],
            false,
            "N ge datetime'1601-01-01T00:00:00Z' and N lt datetime'1601-01-01T00:00:00.0000256Z'",
            Some(&["070701ce1722770000 .. 070701ce1722770100"]),
        ),
        (
            &["Timestamp"],
            false,
            "Timestamp ge datetime'1601-01-01T00:00:00Z'",
            Some(&["070701ce1722770000 .. 0800000000000000000000000000000000"]),
        ),
        (&["RowKey"], false, "RowKey eq 'x'", Some(&["= 02780001"])),
        (&["RowKey"], false, "RowKey eq 5", Some(&[])),
        (&["RowKey"], false, "RowKey lt 5", None),
        (&["RowKey"], false, "startswith(RowKey,'')", None),
        (
            &["RowKey"],
            false,
            "not (RowKey eq 'x')",
            Some(&["020001 .. 02780001", "02780002 .. 0300000000"]),
        ),
        // Values that are cut.
        (&["N"], false, &long_eq, Some(&[&single_cut])),
        (&["N"], true, &long_eq, Some(&[&hashed_cut])),
    ]);
}

/// The same of several properties, and where an index does not help.
#[test]
fn filters_on_several_properties_are_narrow() {
    check_cases(&[
        (&["N", "M"], false, "N eq 'x'", Some(&["02780001 .. 02780002"])),
        (&["N", "M"], false, "N eq 'x' and M eq 'y'", Some(&["= 0278000102790001"])),
        (&["N", "M"], true, "N eq 'x' and M eq 'y'", Some(&["= 0278000102790001"])),
        (
            &["N", "M"],
            false,
            "N eq 'x' and M ge 'a' and M lt 'c'",
            Some(&["0278000102610001 .. 0278000102630001"]),
        ),
        (
            &["N", "M"],
            false,
            "N in ('x','y') and M eq 'a'",
            Some(&["= 0278000102610001", "= 0279000102610001"]),
        ),
        (&["N", "M"], false, "N gt 'x' and M eq 'a'", Some(&["02780002 .. 0300000000"])),
        (
            &["N", "M"],
            false,
            "N eq 'x' and not (M ge 'a')",
            Some(&["0278000101 .. 0278000102610001", "027800010300000000 .. 027800010a"]),
        ),
        (
            &["N", "PartitionKey"],
            true,
            "N eq 'x' and PartitionKey eq 'p'",
            Some(&["= 0278000102700001"]),
        ),
        (
            &["PartitionKey", "N"],
            true,
            "PartitionKey eq 'p' and N eq 'x'",
            Some(&["= 0270000102780001"]),
        ),
        (&["N", "PartitionKey"], true, "N eq 'x'", Some(&["02780001 .. 02780002"])),
        // An entity without an entry may satisfy the filter.
        (&["N"], false, "Other eq 5", None),
        (&["N"], false, "not (N eq 'x')", None),
        (&["N"], false, "N eq 'x' or Other eq 5", None),
        (&["N", "M"], true, "N eq 'x'", None),
        (&["N", "M"], false, "M eq 'x'", None),
        (&["PartitionKey", "N"], true, "N eq 'x'", None),
        // Nothing can.
        (&["N"], false, "N eq 'x' and N eq 'y'", Some(&[])),
        (&["N"], false, "N eq 'x' and false", Some(&[])),
        (&["N", "M"], true, "M gt 'x' and M gt datetime'1601-01-01T00:00:00Z'", Some(&[])),
    ]);
}

/// A filter, indexes by their properties, and the ways through them.
type Ways<'a> = (&'a str, &'a [&'a [&'a str]], &'a [&'a str]);

/// Every way as text: the place of each index with its spans.
fn ways(text: &str, indexes: &[&[&str]]) -> Vec<String> {
    let indexes: Vec<_> = indexes.iter().map(|properties| keys(properties, false)).collect();
    let named: Vec<_> = indexes.iter().enumerate().collect();
    let part = |part: &Part<usize>| {
        let spans: Vec<_> = part.spans.iter().map(show).collect();
        format!("{}: {}", part.index, spans.join(", "))
    };
    let way = |way: &Vec<Part<usize>>| way.iter().map(part).collect::<Vec<_>>().join("; ");
    lookups(&filter(text), &named).iter().map(way).collect()
}

#[test]
fn an_or_goes_through_several_indexes() {
    let (a, b, c, ab): (&[&str], &[&str], &[&str], &[&str]) = (&["A"], &["B"], &["C"], &["A", "B"]);
    let cases: &[Ways<'_>] = &[
        ("A eq 'x'", &[], &[]),
        ("A eq 'x'", &[b], &[]),
        ("A eq 'x'", &[b, a], &["1: = 02780001"]),
        ("A eq 'x' or B eq 'y'", &[a], &[]),
        ("A eq 'x' or B eq 'y'", &[a, b], &["0: = 02780001; 1: = 02790001"]),
        ("not (not (A eq 'x') and not (B eq 'y'))", &[a, b], &["0: = 02780001; 1: = 02790001"]),
        ("A eq 'x' or B eq 'y' or Other", &[a, b], &[]),
        // The same index for several branches.
        ("A in ('y','x') or B eq 'y'", &[a, b], &["0: = 02780001, = 02790001; 1: = 02790001"]),
        // Within an and, each branch with the rest; one index alone first if it looks as good.
        (
            "C eq 'z' and (A eq 'x' or B eq 'y')",
            &[a, b, c],
            &["2: = 027a0001", "0: = 02780001; 1: = 02790001"],
        ),
        (
            "C gt 'z' and (A eq 'x' or B eq 'y')",
            &[a, b, c],
            &["0: = 02780001; 1: = 02790001", "2: 027a0002 .. 0300000000"],
        ),
        (
            "B eq 'y' and (A eq 'x' or A eq 'z')",
            &[ab],
            &["0: = 0278000102790001, = 027a000102790001"],
        ),
        // What belongs together stays together.
        (
            "A eq 'x' and B eq 'y' or A eq 'y' and B eq 'x'",
            &[ab],
            &[
                "0: = 0278000102790001, = 0279000102780001",
                "0: = 0278000102780001, = 0278000102790001, = 0279000102780001, = 0279000102790001",
            ],
        ),
        // A branch takes the index that looks best.
        ("A eq 'x' and C gt 'a' or B eq 'y'", &[c, b, a], &["1: = 02790001; 2: = 02780001"]),
        // An or inside a branch.
        (
            "A eq 'x' or Other eq 5 and (B eq 'y' or C eq 'z')",
            &[a, b, c],
            &["0: = 02780001; 1: = 02790001; 2: = 027a0001"],
        ),
        // A branch that cannot be satisfied needs no index, and if none can, nothing is read.
        ("A eq 'x' or Other eq 5 and B eq 'y' and B eq 'z'", &[a, b], &["0: = 02780001"]),
        ("A eq 'x' and A eq 'y' or B eq 'x' and B eq 'y'", &[a, b], &["0: "]),
        ("A eq 'x' and B eq 'x' and B eq 'y'", &[a, b], &["1: "]),
    ];
    for (text, indexes, expected) in cases {
        assert_eq!(ways(text, indexes), *expected, "{text}");
    }
}

/// More values than spans are allowed, alone and multiplied: joined, and still few and near what was asked for.
#[test]
fn too_many_spans_are_joined() {
    let max = limits::PLAN_RANGES_MAX;
    let list = |name: &str, count: usize| {
        let values: Vec<_> = (0..count).map(|n| format!("'{n:04}'")).collect();
        format!("{name} in ({})", values.join(","))
    };
    let one = keys(&["A"], false);
    assert_eq!(spans(&filter(&list("A", max)), &one).unwrap().len(), max);
    let joined = spans(&filter(&list("A", max + 1)), &one).unwrap();
    assert!((max / 2..=max).contains(&joined.len()), "{}", joined.len());
    let is_within = |value: &str| {
        let mut builder = RecordBuilder::new();
        builder.push("A", ValueRef::String(value)).unwrap();
        let record = builder.finish(Timestamp::EDM_MIN);
        let row = Row { partition: "p", row: "r", record: record.as_ref() };
        let entry = entry(&one, &row).unwrap().unwrap();
        joined.iter().any(|span| span.contains(&entry))
    };
    for n in 0..=max {
        assert!(is_within(&format!("{n:04}")), "{n}");
    }
    assert!(!is_within("0999"));

    let both = keys(&["A", "B"], false);
    let product = format!("{} and {}", list("A", 16), list("B", 16));
    let exact = spans(&filter(&product), &both).unwrap();
    assert_eq!(exact.len(), max);
    assert!(exact.iter().all(|span| span.single().is_some()));
    let product = format!("{} and {}", list("A", 17), list("B", 16));
    let hulls: Vec<_> = spans(&filter(&product), &both).unwrap();
    assert_eq!(hulls.len(), 17);
    assert_eq!(
        show(&hulls[0]),
        "02303030300001".to_owned() + "02303030300001 .. " + "02303030300001" + "02303031350002"
    );

    // The parts of an or are bounded too.
    let text = format!("{} or {} or C eq 'x'", list("A", 700), list("B", 700));
    let (a, b, c) = (one, keys(&["B"], false), keys(&["C"], false));
    let ways = lookups(&filter(&text), &[(0, &a), (1, &b), (2, &c)]);
    assert_eq!(ways.len(), 1);
    assert_eq!(ways[0].len(), 3);
    assert!(ways[0].iter().all(|part| part.spans.len() <= max));
}

/// A thread that looks for a way pauses often, however the filter is arranged.
#[test]
fn a_long_filter_pauses_often() {
    let indexes: Vec<IndexKeys> =
        (0..16).map(|n| keys(&[&*format!("P{n}"), &*format!("Q{n}")], false)).collect();
    let indexes: Vec<_> = indexes.iter().enumerate().collect();
    let joined = |count: usize, word: &str, part: &dyn Fn(usize) -> String| {
        (0..count).map(part).collect::<Vec<_>>().join(word)
    };
    for (count, least) in [(4, 0), (2_000, 30)] {
        for text in [
            joined(count, " or ", &|n| format!("P{} eq {n}", n % 16)),
            joined(count, " and ", &|n| format!("Q{} ge {n}", n % 16)),
            joined(count / 2, " or ", &|n| format!("(P{0} eq {n} and Q{0} gt 1)", n % 16)),
        ] {
            let pauses = Cell::new(0);
            let pause = || pauses.set(pauses.get() + 1);
            let filter = filter(&text);
            assert_eq!(lookups_in_turns(&filter, &indexes, &pause), lookups(&filter, &indexes));
            let start = &text[..20];
            assert!(least <= pauses.get(), "{} pauses: {start}", pauses.get());
            assert!(least > 0 || pauses.get() == 0, "{} pauses: {start}", pauses.get());
        }
    }
}

/// The longest filters that are allowed, arranged to be as much work as possible, on as many indexes as there can be.
#[test]
fn looking_takes_bounded_time() {
    let fill = |len: usize, word: &str, part: &dyn Fn(usize) -> String| {
        let mut text = part(0);
        for n in 1.. {
            let next = part(n);
            if len < text.len() + word.len() + next.len() {
                break;
            }
            write!(text, "{word}{next}").unwrap();
        }
        text
    };
    let nested = |levels: usize, inner: &str| {
        let open = |n| match n % 2 {
            0 => format!("a{n} eq 1 or ("),
            _ => format!("a{n} ne 1 and ("),
        };
        let open: String = (0..levels).map(open).collect();
        format!("{open}{inner}{}", ")".repeat(levels))
    };
    let properties = limits::INDEX_PROPERTIES_MAX;
    let all = limits::INDEXES_MAX * properties;
    let (len, inner) = (limits::FILTER_BYTES_MAX - 40, limits::FILTER_BYTES_MAX - 4000);
    let equal = |n: usize| format!("a{} eq {n}", n % all);
    let unequal = |n: usize| format!("a0 ne {n}");
    let branch = |n: usize| format!("{} and a{} ne {n}", equal(n), (n + 1) % all);
    let filters = [
        fill(len, " or ", &equal),
        fill(len, " and ", &|n| format!("a{} ne {n}", n % all)),
        fill(len, " and ", &unequal),
        fill(len, " and ", &|n| format!("({} or {})", equal(n), equal(n + 1))),
        fill(len, " or ", &branch),
        fill(len, " or ", &|n| format!("{} and({} or {})", equal(n), equal(n + 1), equal(n + 2))),
        nested(100, &fill(inner, " or ", &equal)),
        nested(100, &fill(inner, " and ", &unequal)),
        nested(100, &fill(inner, " or ", &branch)),
    ];
    let indexes: Vec<_> = (0..limits::INDEXES_MAX)
        .map(|index| IndexKeys {
            properties: (0..properties)
                .map(|n| format!("a{}", index * properties + n).into())
                .collect(),
            unique: false,
        })
        .collect();
    let named: Vec<_> = indexes.iter().enumerate().collect();
    for text in &filters {
        let filter = filter(text);
        let start = Instant::now();
        let ways = lookups(&filter, &named);
        assert!(ways.len() <= 2 * limits::INDEXES_MAX + 1);
        let spans = ways.iter().flatten().map(|part| part.spans.len());
        assert!(spans.max().unwrap_or(0) <= limits::PLAN_RANGES_MAX);
        let taken = start.elapsed();
        assert!(taken < Duration::from_secs(5), "{} took {taken:?}", &text[..60]);
    }
}

/// What a caller that sees one partition, or several, can read of an index without passing anything else.
#[test]
fn an_index_by_partition_is_confined() {
    let partition = KeyRange::partition("p");
    let several = KeyRange {
        start: Position::before_partition("p"),
        end: Some(Position::after_partition("q")),
    };
    let rows = KeyRange { start: Position::before("p", "1"), end: Some(Position::after("p", "2")) };
    let long = KeyRange::partition(&"p".repeat(300));
    let cases: &[(&[&str], &str, &KeyRange, bool)] = &[
        (&["PartitionKey", "N"], "N gt 5", &partition, true),
        (&["PartitionKey", "N"], "N eq 5", &partition, true),
        (&["PartitionKey"], "N eq 5", &partition, true),
        (&["PartitionKey", "N"], "N gt 5", &several, true),
        (&["PartitionKey", "N"], "N gt 5", &rows, false),
        (&["PartitionKey", "N"], "N gt 5", &long, false),
        (&["N"], "N gt 5", &partition, false),
        (&["N", "PartitionKey"], "N gt 5", &partition, false),
        (&["N"], "N gt 5", &KeyRange::all(), true),
    ];
    for (properties, text, range, confined) in cases {
        let keys = keys(properties, false);
        let spans = spans(&filter(text).within_partitions(range), &keys).expect("there are spans");
        let all = spans.iter().all(|span| is_confined(&keys, span, range));
        assert_eq!(all, *confined, "{text} on {properties:?} in {range:?}");
    }
}
