use crate::valid_prefix;
use rowhouse_query::index::{IndexKeys, entry, lookups};
use rowhouse_query::{Filter, plan};
use rowhouse_types::{Guid, Record, RecordBuilder, Row, Timestamp, ValueRef};
use std::sync::LazyLock;

/// Few and short, so that the literals of a filter often equal one of them.
const KEYS: [&str; 8] = ["", "a", "aa", "b", "a'b", "é", "\u{1F600}", "\u{FFFD}"];

/// One record for each type of the property `p`, and one without it.
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

/// `$filter`: no plan and no index lookup loses an entity that satisfies the filter.
///
/// A filter that Azure accepts means the same with Rowhouse's extensions.
pub fn filter(data: &[u8]) {
    let text = valid_prefix(data);
    let original = Filter::parse_original(text);
    let Ok(filter) = Filter::parse(text) else {
        assert!(original.is_err(), "the extensions reject a filter that Azure accepts");
        return;
    };
    if let Ok(original) = original {
        assert_eq!(format!("{original:?}"), format!("{filter:?}"));
    }
    let indexes: Vec<_> = INDEXES.iter().map(|keys| (keys, keys)).collect();
    let lookups = filter.as_ref().map_or_else(Vec::new, |filter| lookups(filter, &indexes));
    let plan = plan(filter.clone());
    for partition in KEYS {
        for (at, row) in KEYS.into_iter().enumerate() {
            // Every other record under each key: all of them would double the time of a run.
            for record in RECORDS.iter().skip(at % 2).step_by(2) {
                let entity = Row { partition, row, record: record.as_ref() };
                let matches =
                    filter.as_ref().is_none_or(|f| f.matches(&entity).expect("a sound record"));
                let read = plan.ranges.iter().any(|range| range.contains(partition, row));
                assert!(read || !matches, "the plan misses an entity that matches");
                for lookup in lookups.iter().filter(|_| matches) {
                    let found = lookup.iter().any(|part| {
                        let entry = entry(part.index, &entity).expect("a sound record");
                        entry.is_some_and(|entry| part.spans.iter().any(|s| s.contains(&entry)))
                    });
                    assert!(found, "an index lookup misses an entity that matches");
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
}
