//! Scans and walks that look at some of the properties.

use super::Engine;
use super::fixture::{filter, key, open, page, put, record, resume_in, scan_of, write_all};
use super::indexed::{BOTH, index_of, part, ready, scan_through, walk_of, walk_page};
use super::sorts::{sort_by, sort_page};
use crate::{Index, Scan, Sort, Store, TableId, Ttl, Walk};
use rowhouse_query::index::Span;
use rowhouse_types::{KeyRange, Rows, Timestamp, ValueRef};
use std::sync::Arc;
use std::time::Duration;

/// Names that entities have, that they have in another case, that some have, and that none can have.
const SELECTIONS: &[&[&str]] = &[
    &["text"],
    &["Text", "double", "missing"],
    &["big"],
    &["n", "text", "Text", "double", "bytes", "at"],
    &["RowKey", "n", "Timestamp", "TEXT", "no name", "a\0b", "", "'\"$1{}\\"],
    &["PartitionKey"],
    &[],
];
/// Judged by keys, by what may not be selected, by texts that only their whole tells apart, and not at all.
const FILTERS: &[&str] = &[
    "",
    "n ge 3L",
    "RowKey ge '04' and n ne 7L",
    "tolower(text) eq 'é'",
    "contains(Text,'1') or tolower(text) eq 'é'",
    "nothing eq 1",
];

/// Twelve entities in two partitions: values of every kind, and few properties that all of them have.
async fn twelve(store: &dyn Store, table: TableId) {
    let big = "0123456789abcdef".repeat(2000);
    let doubles = [f64::NAN, -0.0, f64::INFINITY, 0.1];
    let long_ago = ValueRef::DateTime(Timestamp::EDM_MIN);
    for partition in ["p", "q"] {
        let of = |n: i64| {
            let upper = format!("{n}\0\u{1}");
            let mut properties = vec![
                ("n", ValueRef::Int64(n)),
                ("text", ValueRef::String(if n % 3 == 0 { "É" } else { "È" })),
                ("Text", ValueRef::String(&upper)),
                ("double", ValueRef::Double(doubles[usize::try_from(n).expect("small") % 4])),
                ("bytes", ValueRef::Binary(&[0, 255])),
            ];
            if n % 2 == 0 {
                properties.push(("big", ValueRef::String(&big)));
            }
            if n == 5 {
                properties.push(("at", long_ago));
            }
            record(&properties)
        };
        let puts = (0..12_i64).map(|n| put(table, &key(partition, &format!("{n:02}")), of(n)));
        write_all(store, puts.collect()).await;
    }
}

fn names(selection: &[&str]) -> Arc<[Box<str>]> {
    selection.iter().map(|name| Box::from(*name)).collect()
}

/// The same entities with the same Timestamps, and the same of what was selected.
fn assert_same(found: &Rows, whole: &Rows, selection: &[&str], about: &str) {
    let about = format!("{about}, {selection:?}");
    assert_eq!(found.len(), whole.len(), "{about}");
    for (found, whole) in found.iter().zip(whole.iter()) {
        let (found, whole) = (found.expect("decodes"), whole.expect("decodes"));
        assert_eq!((found.partition, found.row), (whole.partition, whole.row), "{about}");
        let (some, all) = (found.record, whole.record);
        assert_eq!(some.timestamp(), all.timestamp(), "{about}");
        for name in selection {
            let (some, all) = (some.find(name).expect("decodes"), all.find(name).expect("decodes"));
            assert_eq!(some, all, "{about}: {name:?}");
        }
        for property in some.iter() {
            let name = property.expect("decodes").name;
            assert!(all.find(name).expect("decodes").is_some(), "{about}: {name:?} is made up");
        }
    }
}

/// Every page of both, next to each other. What has expired is examined until it is removed.
async fn assert_scans(store: &dyn Store, table: TableId, expires: bool, scan: Scan, about: &str) {
    for selection in SELECTIONS {
        let (mut scan, mut pages) = (scan.clone(), 0);
        loop {
            let whole = page(store, table, scan.clone()).await;
            let select = Some(names(selection));
            let found = page(store, table, Scan { select, ..scan.clone() }).await;
            assert_same(&found.rows, &whole.rows, selection, about);
            assert_eq!(found.next, whole.next, "{about}");
            if !expires {
                assert_eq!(found.examined, whole.examined, "{about}");
            }
            pages += 1;
            let Some(next) = &whole.next else { break };
            scan.ranges = resume_in(scan.direction, &scan.ranges, next);
            assert!(pages < 100, "{about}: pages come to an end");
        }
    }
}

async fn assert_walks(store: &dyn Store, table: TableId, index: &Index) {
    for (text, direction) in FILTERS.iter().flat_map(|text| BOTH.map(|one| (text, one))) {
        let walk = Walk { filter: filter(text), direction, limit: 7, ..walk_of(index) };
        let whole = walk_page(store, table, walk.clone()).await;
        for selection in SELECTIONS {
            let select = Some(names(selection));
            let found = walk_page(store, table, Walk { select, ..walk.clone() }).await;
            assert_same(&found.rows, &whole.rows, selection, text);
            assert_eq!(found.next, whole.next, "{text}");
        }
    }
}

/// As the index has them, whether they are found through it or not.
async fn assert_sorts(store: &dyn Store, table: TableId, index: &Index) {
    let through = scan_through(vec![part(index, vec![Span::all()])]).through;
    for (text, direction) in FILTERS.iter().flat_map(|text| BOTH.map(|one| (text, one))) {
        let walk = Walk { filter: filter(text), direction, limit: 7, ..walk_of(index) };
        let whole = walk_page(store, table, walk.clone()).await;
        for (selection, through) in
            SELECTIONS.iter().flat_map(|names| [(names, None), (names, through.clone())])
        {
            let select = Some(names(&[selection, &["n"][..]].concat()));
            let (keys, filter, limit) = (index.keys.clone(), walk.filter.clone(), walk.limit);
            let sort = Sort { direction, through, filter, select, limit, ..sort_by(keys) };
            let found = sort_page(store, table, sort).await;
            assert_same(&found.rows, &whole.rows, selection, text);
            assert_eq!(found.next, whole.next, "{text}");
        }
    }
}

/// By keys, through an index, along it and sorted; before and after some of it has expired by what nobody selected.
pub async fn what_is_selected_is_exact(engine: &dyn Engine) {
    let (store, table) = open(engine).await;
    twelve(&*store, table).await;
    let index = ready(&*store, table, "n", index_of(&["n"])).await;
    for expires in [false, true] {
        if expires {
            let ttl = Ttl { property: Some("at".into()), after: Duration::ZERO };
            store.set_ttl(table, Some(ttl)).await.expect("it can be set");
        }
        let ranges = [
            vec![KeyRange::all()],
            vec![KeyRange::partition("p")],
            vec![KeyRange::point("p", "05"), KeyRange::point("p", "06"), KeyRange::partition("q")],
        ];
        for (ranges, text) in ranges.iter().flat_map(|r| FILTERS.iter().map(move |text| (r, text)))
        {
            for (direction, limit) in BOTH.into_iter().zip([100, 5]) {
                let about = format!("{text:?} in {ranges:?}, {limit} {direction:?}");
                let filter = filter(text);
                let scan = Scan { direction, filter, limit, ..scan_of(ranges.clone()) };
                assert_scans(&*store, table, expires, scan, &about).await;
            }
        }
        for text in FILTERS {
            let through = scan_through(vec![part(&index, vec![Span::all()])]);
            let scan = Scan { filter: filter(text), limit: 7, ..through };
            assert_scans(&*store, table, expires, scan, &format!("{text:?} through an index"))
                .await;
        }
        assert_walks(&*store, table, &index).await;
        assert_sorts(&*store, table, &index).await;
    }
}
