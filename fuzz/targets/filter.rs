//! `$filter`: parsing never panics, neither a plan nor a way through indexes loses an entity that satisfies the filter,
//! and what the original understands means the same with the extensions.

#![no_main]

use libfuzzer_sys::fuzz_target;
use rowhouse_query::index::{IndexKeys, entry, lookups};
use rowhouse_query::{Filter, plan};
use rowhouse_types::{Guid, Record, RecordBuilder, Row, Timestamp, ValueRef};
use std::sync::LazyLock;

/// Few and short, so that the literals of a filter meet them often.
const KEYS: [&str; 8] = ["", "a", "aa", "b", "a'b", "é", "\u{1F600}", "\u{FFFD}"];

/// One record for each way in which a property `p` can be there or not.
static RECORDS: LazyLock<Vec<Record>> = LazyLock::new(|| {
    let values = [
        ValueRef::String("a"),
        ValueRef::String("AÉ\u{1F600}ß"),
        ValueRef::Int32(1),
        ValueRef::Int64(1),
        ValueRef::Double(1.0),
        ValueRef::Double(f64::NAN),
        ValueRef::Boolean(true),
        ValueRef::DateTime(Timestamp::EDM_MIN),
        ValueRef::Guid(Guid([0; 16])),
        ValueRef::Binary(&[1]),
    ];
    let with = values.into_iter().map(|value| {
        let mut builder = RecordBuilder::new();
        builder.push("p", value).expect("a legal property");
        builder.finish(Timestamp::EDM_MIN)
    });
    with.chain([RecordBuilder::new().finish(Timestamp::EDM_MIN)]).collect()
});

/// Indexes of the property, alone and with keys, unique and not.
static INDEXES: LazyLock<Vec<IndexKeys>> = LazyLock::new(|| {
    let of = |properties: &[&str], unique| IndexKeys {
        properties: properties.iter().map(|name| (*name).into()).collect(),
        unique,
    };
    vec![
        of(&["p"], false),
        of(&["p", "RowKey"], true),
        of(&["PartitionKey", "p"], false),
        of(&["Timestamp", "RowKey", "p"], true),
    ]
});

fuzz_target!(|text: &str| {
    let original = Filter::parse_original(text);
    let Ok(filter) = Filter::parse(text) else {
        assert!(original.is_err(), "the extensions refuse what the original understands");
        return;
    };
    if let Ok(original) = original {
        assert_eq!(format!("{original:?}"), format!("{filter:?}"));
    }
    let indexes: Vec<_> = INDEXES.iter().map(|keys| (keys, keys)).collect();
    let ways = filter.as_ref().map_or_else(Vec::new, |filter| lookups(filter, &indexes));
    let plan = plan(filter.clone());
    for partition in KEYS {
        for (at, row) in KEYS.into_iter().enumerate() {
            // Not every record under every key: the cost would hide everything else.
            for record in RECORDS.iter().skip(at % 2).step_by(2) {
                let entity = Row { partition, row, record: record.as_ref() };
                let matches =
                    filter.as_ref().is_none_or(|f| f.matches(&entity).expect("a sound record"));
                let read = plan.ranges.iter().any(|range| range.contains(partition, row));
                assert!(read || !matches, "the plan misses an entity that matches");
                for way in ways.iter().filter(|_| matches) {
                    let found = way.iter().any(|part| {
                        let entry = entry(part.index, &entity).expect("a sound record");
                        entry.is_some_and(|entry| part.spans.iter().any(|s| s.contains(&entry)))
                    });
                    assert!(found, "a way through indexes misses an entity that matches");
                }
                assert!(
                    matches || !read || plan.residual.is_some(),
                    "a plan without residual reads an entity that does not match"
                );
            }
        }
    }
    assert!(plan.ranges.iter().all(|range| !range.is_empty()), "an empty range");
    assert!(
        plan.ranges
            .windows(2)
            .all(|pair| pair[0].end.as_ref().is_some_and(|end| *end <= pair[1].start))
    );
});
