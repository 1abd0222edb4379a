//! Reading through indexes: by what a filter asks for, in the order of an index, and weighed before.

use super::Engine;
use super::fixture::{
    command, filter, key, keys, keys_of, next, number, open, page, put, record, resume, scan_all,
    scan_of, write, write_all,
};
use super::indexed::{
    BOTH, entries_of, entries_wanted, index_of, only, part, ready, scan_pages, scan_through,
    unique_of, walk_all, walk_of, walk_page,
};
use crate::{
    Condition, EntryPlace, Extent, Index, IndexId, Lookup, Scan, Store, TableId, Take, Walk, Write,
};
use rowhouse_query::Filter;
use rowhouse_query::index::{IndexKeys, Part, Span, entry, lookups};
use rowhouse_types::{Direction, KeyRange, Position, Record, Row, Timestamp, ValueRef};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Entities of three partitions whose properties have values of several types, or are not there.
pub(super) async fn mixed(engine: &dyn Engine) -> (Arc<dyn Store>, TableId) {
    let (store, table) = open(engine).await;
    let texts = ["", "a", "ab", "abc", "b", "x"];
    let puts = (0..48i32).map(|n| {
        let text = ValueRef::String(texts[usize::try_from(n).expect("small") % texts.len()]);
        let number = match n % 8 {
            0..4 => ValueRef::Int32(n % 5),
            4 => ValueRef::Int64(i64::from(n % 5)),
            5 => ValueRef::Double(f64::from(n % 4) / 2.0),
            6 => text,
            _ => ValueRef::Boolean(n % 3 == 0),
        };
        let content = match n % 7 {
            0 => record(&[("s", text)]),
            1 => record(&[("n", number), ("u", ValueRef::Int32(n))]),
            _ => record(&[("n", number), ("s", text), ("u", ValueRef::Int32(n))]),
        };
        put(
            table,
            &key(["", "a", "b"][usize::try_from(n % 3).expect("small")], &format!("{n:02}")),
            content,
        )
    });
    write_all(&*store, puts.collect()).await;
    (store, table)
}

pub(super) async fn indexes_of_mixed(store: &dyn Store, table: TableId) -> Vec<Index> {
    let mut made = Vec::new();
    for (name, keys) in [
        ("n", index_of(&["n"])),
        ("s", index_of(&["s"])),
        ("n-s", index_of(&["n", "s"])),
        ("s-row", index_of(&["s", "RowKey"])),
        ("one", unique_of(&["PartitionKey", "u"])),
        ("row", index_of(&["RowKey"])),
    ] {
        made.push(ready(store, table, name, keys).await);
    }
    made
}

/// Whatever an index can be asked for.
const FILTERS: [&str; 26] = [
    "n eq 3",
    "n eq 3L",
    "n eq 0.5",
    "n eq true",
    "n gt 2",
    "n lt 2",
    "n ge 1 and n lt 3",
    "n ne 3",
    "not (n ne 2)",
    "not (n gt 2)",
    "n in (1,3,7)",
    "n eq 99",
    "n eq 1 and n eq 2",
    "s eq 'x'",
    "s ge 'ab' and s lt 'b'",
    "startswith(s,'ab')",
    "startswith(s,'')",
    "s eq 'ab' or n eq 4",
    "s eq 'ab' or n eq 4 or RowKey eq '07'",
    "n eq 1 and s eq 'a'",
    "n eq 1 and s gt 'a'",
    "n eq 1 and PartitionKey eq 'a'",
    "(n eq 1 or n eq 2) and RowKey gt '15'",
    "s eq 'x' and (n eq 0 or RowKey lt '20')",
    "PartitionKey eq 'a' and u eq 7",
    "length(s) eq 2 and s eq 'ab'",
];

/// The ways to find what a filter asks for through these indexes.
pub(super) fn ways(text: &str, indexes: &[Index]) -> Vec<Vec<Lookup>> {
    let filter = filter(text).expect("a filter");
    let indexes: Vec<(IndexId, &IndexKeys)> =
        indexes.iter().map(|index| (index.id, &index.keys)).collect();
    lookups(&filter, &indexes)
}

/// Some ranges of the keys.
pub(super) fn some_ranges() -> Vec<Vec<KeyRange>> {
    vec![
        vec![KeyRange::all()],
        vec![KeyRange::partition("a")],
        vec![
            KeyRange { start: Position::min(), end: Some(Position::after("", "21")) },
            KeyRange::point("a", "07"),
            KeyRange { start: Position::before("b", "17"), end: None },
        ],
    ]
}

/// Every way, in both directions, whole and in small pages, within ranges, counted, and when the time is over.
pub async fn lookup_finds_what_the_filter_finds(engine: &dyn Engine) {
    let (store, table) = mixed(engine).await;
    let indexes = indexes_of_mixed(&*store, table).await;
    let mut used = 0;
    for text in FILTERS {
        let found = ways(text, &indexes);
        used += found.len();
        for (ranges, way) in
            some_ranges().iter().flat_map(|ranges| found.iter().map(move |way| (ranges, way)))
        {
            let plain = Scan { filter: filter(text), ..scan_of(ranges.clone()) };
            let scan = Scan { through: Some(way.clone()), ..plain.clone() };
            let mut wanted = keys(&page(&*store, table, plain).await);
            for direction in BOTH {
                let what = format!("{text} {direction:?} through {way:?}");
                let scan = Scan { direction, ..scan.clone() };
                for limit in [100, 1, 3] {
                    let first = page(&*store, table, Scan { limit, ..scan.clone() }).await;
                    let held = limit.min(wanted.len());
                    assert_eq!(keys(&first), wanted[..held], "{what}, limit {limit}");
                    assert_eq!(next(&first), wanted.get(held).cloned(), "{what}, limit {limit}");
                    let (all, _) = scan_pages(&*store, table, Scan { limit, ..scan.clone() }).await;
                    assert_eq!(all, wanted, "{what}, limit {limit}, page by page");
                }
                let late = Scan { deadline: Instant::now(), ..scan.clone() };
                let (all, _) = scan_pages(&*store, table, late).await;
                assert_eq!(all, wanted, "{what}, when the time is over");
                let count = Scan { take: Take::Count, limit: 1, max_bytes: 1, ..scan };
                let counted = page(&*store, table, count).await;
                assert_eq!(counted.counted, wanted.len() as u64, "{what}, counted");
                assert_eq!((counted.rows.len(), counted.next), (0, None), "{what}, counted");
                wanted.reverse();
            }
        }
    }
    assert!(used >= FILTERS.len(), "indexes were asked: {used} times");
}

/// Parts of one index and of several, which share entities; and no parts at all.
pub async fn lookup_takes_each_entity_once(engine: &dyn Engine) {
    let (store, table) = mixed(engine).await;
    let indexes = indexes_of_mixed(&*store, table).await;
    let [n, s, pair, ..] = &indexes[..] else { panic!("there are indexes") };
    let of = |index: &Index, content: &Record| {
        let row = Row { partition: "a", row: "07", record: content.as_ref() };
        let entry = entry(&index.keys, &row).expect("the record decodes");
        entry.expect("the entity has an entry")
    };
    let (one, ab) =
        (record(&[("n", ValueRef::Int32(1))]), record(&[("s", ValueRef::String("ab"))]));
    let (one, ab) = (of(n, &one), of(s, &ab));
    let from = |entry: &[u8]| Span { start: entry.into(), end: None };
    let until = |entry: &[u8]| Span { start: Box::default(), end: Some(entry.into()) };
    let cases: Vec<(&str, Vec<Lookup>)> = vec![
        ("nothing", vec![]),
        ("no spans", vec![part(n, vec![])]),
        ("one entry", vec![part(n, vec![only(&one)])]),
        ("twice the same", vec![part(n, vec![only(&one)]), part(n, vec![only(&one)])]),
        ("single entries of two", vec![part(n, vec![only(&one)]), part(s, vec![only(&ab)])]),
        ("an entry and a range", vec![part(n, vec![only(&one)]), part(s, vec![from(&ab)])]),
        ("two ranges", vec![part(n, vec![until(&one)]), part(s, vec![from(&ab)])]),
        ("a range with a gap", vec![part(n, vec![until(&one), from(&[&*one, &[0]].concat())])]),
        ("everything of two", vec![part(pair, vec![Span::all()]), part(s, vec![Span::all()])]),
    ];
    for (case, parts) in cases {
        let mut wanted = Vec::new();
        for part in &parts {
            let index = indexes.iter().find(|index| index.id == part.index).expect("just named");
            let inside = |at: &EntryPlace| part.spans.iter().any(|span| span.contains(&at.entry));
            let entries = entries_wanted(&*store, table, &index.keys).await;
            wanted.extend(entries.into_iter().filter(inside).map(|place| place.key));
        }
        wanted.sort();
        wanted.dedup();
        let mut wanted: Vec<_> =
            wanted.iter().map(|at| format!("{}/{}", at.partition, at.row)).collect();
        for direction in BOTH {
            let now = Instant::now();
            for (limit, deadline) in [(100, None), (1, None), (4, None), (100, Some(now))] {
                let scan = scan_through(parts.clone());
                let deadline = deadline.unwrap_or(scan.deadline);
                let scan = Scan { direction, limit, deadline, ..scan };
                let (found, _) = scan_pages(&*store, table, scan).await;
                assert_eq!(found, wanted, "{case}, {direction:?}, limit {limit}");
            }
            let count = Scan { take: Take::Count, direction, ..scan_through(parts.clone()) };
            let counted = page(&*store, table, count).await.counted;
            assert_eq!(counted, wanted.len() as u64, "{case}, counted");
            wanted.reverse();
        }
    }
}

/// Few matches among many, alone and with a range of keys, of a property and of several.
pub async fn lookup_examines_little(engine: &dyn Engine) {
    let (store, table) = open(engine).await;
    for start in (0..400).step_by(100) {
        let puts = (start..start + 100).map(|n| {
            let content = record(&[
                ("email", ValueRef::String(&format!("{n}@example.com"))),
                ("group", ValueRef::Int32(i32::try_from(n % 40).expect("small"))),
                ("kind", ValueRef::String(["a", "b"][n % 2])),
            ]);
            put(table, &key(&(n % 4).to_string(), &format!("{n:03}")), content)
        });
        write_all(&*store, puts.collect()).await;
    }
    let email = ready(&*store, table, "email", index_of(&["email"])).await;
    let unique = ready(&*store, table, "unique", unique_of(&["PartitionKey", "email"])).await;
    let group = ready(&*store, table, "group", index_of(&["group", "kind"])).await;
    let cases: &[(&str, &Index, usize)] = &[
        ("email eq '77@example.com'", &email, 1),
        ("email eq 'nobody@example.com'", &email, 0),
        ("PartitionKey eq '1' and email eq '77@example.com'", &unique, 1),
        ("PartitionKey eq '2' and email eq '77@example.com'", &unique, 0),
        ("group eq 7 and kind eq 'b'", &group, 10),
        ("group eq 7 and kind eq 'a'", &group, 0),
        ("email in ('1@example.com','2@example.com','x','399@example.com')", &email, 3),
    ];
    for (text, index, matches) in cases {
        for way in ways(text, &[Index::clone(index)]) {
            for direction in BOTH {
                let scan = Scan { filter: filter(text), direction, ..scan_through(way.clone()) };
                let whole = page(&*store, table, scan.clone()).await;
                assert_eq!(whole.rows.len(), *matches, "{text}");
                let most = *matches as u64 + 1;
                assert!(whole.examined <= most, "{text}: {} examined", whole.examined);
                for limit in 1..=*matches {
                    let page = page(&*store, table, Scan { limit, ..scan.clone() }).await;
                    assert_eq!(page.rows.len(), limit, "{text}");
                    let most = limit as u64 + 1;
                    let singles = way.iter().map(|part| part.spans.len()).sum::<usize>() as u64;
                    // Whoever merges entries has looked at the next of each.
                    let most = most.max(limit as u64 + singles);
                    assert!(page.examined <= most, "{text}, limit {limit}: {}", page.examined);
                }
                let count = Scan { take: Take::Count, ..scan };
                let counted = page(&*store, table, count).await;
                assert!(counted.examined <= most, "{text}, counted: {}", counted.examined);
            }
        }
        assert!(!ways(text, &[Index::clone(index)]).is_empty(), "{text}: there is a way");
    }
    // Within a range of keys, entries outside it are not looked at.
    let text = "group eq 7";
    let spans = ways(text, std::slice::from_ref(&group)).remove(0);
    let pairs = ready(&*store, table, "only", index_of(&["group"])).await;
    let single = ways(text, std::slice::from_ref(&pairs)).remove(0);
    let ranges = vec![KeyRange { start: Position::before("3", "100"), end: None }];
    for (way, bounded) in [(spans, false), (single, true)] {
        let scan = Scan { filter: filter(text), ranges: ranges.clone(), ..scan_through(way) };
        let found = page(&*store, table, scan).await;
        assert_eq!(keys(&found), ["3/127", "3/167", "3/207", "3/247", "3/287", "3/327", "3/367"]);
        assert!(found.examined <= 8 || !bounded, "{} examined", found.examined);
    }
}

/// A batch exchanges the values of two entities of a partition again and again: exactly one has each.
pub async fn lookup_is_a_snapshot_of_a_partition(engine: &dyn Engine) {
    let (store, table) = open(engine).await;
    let index = ready(&*store, table, "n", index_of(&["n"])).await;
    let exchange = |left: i64| {
        vec![put(table, &key("p", "a"), number(left)), put(table, &key("p", "b"), number(1 - left))]
    };
    write_all(&*store, exchange(0)).await;
    let stop = Arc::new(AtomicBool::new(false));
    let writer = tokio::spawn({
        let (store, stop) = (Arc::clone(&store), Arc::clone(&stop));
        async move {
            let mut left = 0;
            while !stop.load(Ordering::SeqCst) {
                left = 1 - left;
                let commands = vec![
                    put(table, &key("p", "a"), number(left)),
                    put(table, &key("p", "b"), number(1 - left)),
                ];
                super::fixture::commit(&*store, commands).await.expect("the batch succeeds");
                tokio::task::yield_now().await;
            }
        }
    });
    let one = ways("n eq 1L", std::slice::from_ref(&index)).remove(0);
    let any = vec![part(&index, vec![Span::all()])];
    for round in 0..200 {
        let scan = Scan { filter: filter("n eq 1L"), ..scan_through(one.clone()) };
        let found = page(&*store, table, scan).await;
        assert_eq!(found.rows.len(), 1, "round {round}: one of both has it");
        let found = page(&*store, table, scan_through(any.clone())).await;
        assert_eq!(keys(&found), ["p/a", "p/b"], "round {round}: each once");
        let walked = walk_page(&*store, table, walk_of(&index)).await;
        let mut walked_keys = keys_of(&walked.rows);
        walked_keys.sort();
        assert_eq!(walked_keys, ["p/a", "p/b"], "round {round}: each once in the walk");
        let values = walked.rows.iter().map(|row| row.expect("decodes").record.to_owned());
        let values: Vec<_> = values.map(|record| super::fixture::n(&record)).collect();
        assert_eq!(values, [0, 1], "round {round}: in order");
    }
    stop.store(true, Ordering::SeqCst);
    writer.await.expect("the writer ends");
}

/// Writers look up what they have just written, changed and deleted.
pub async fn lookup_sees_answered_writes(engine: &dyn Engine) {
    let (store, table) = open(engine).await;
    let index = ready(&*store, table, "n", index_of(&["n"])).await;
    let writers: Vec<_> = (0..4i64)
        .map(|writer| {
            let (store, index) = (Arc::clone(&store), index.clone());
            tokio::spawn(async move {
                let place = key(&writer.to_string(), "r");
                let looked_up = async |n: i64| {
                    let text = format!("n eq {n}L");
                    let way = ways(&text, std::slice::from_ref(&index)).remove(0);
                    let scan = Scan { filter: filter(&text), ..scan_through(way) };
                    keys(&page(&*store, table, scan).await)
                };
                let here = format!("{writer}/r");
                for round in 0..25 {
                    let n = writer * 1000 + round * 2;
                    write(&*store, put(table, &place, number(n))).await;
                    assert_eq!(looked_up(n).await, [&*here], "written");
                    let change = Write::Merge(number(n + 1));
                    write(&*store, command(table, &place, Condition::Exists, change)).await;
                    assert_eq!(looked_up(n + 1).await, [&*here], "changed");
                    assert!(looked_up(n).await.is_empty(), "changed");
                    write(&*store, command(table, &place, Condition::Exists, Write::Delete)).await;
                    assert!(looked_up(n + 1).await.is_empty(), "deleted");
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.expect("a writer ends");
    }
}

/// The entity at the place to resume is deleted, or gets another value, between two pages.
pub async fn lookup_resumes_where_an_entity_was(engine: &dyn Engine) {
    let (store, table) = open(engine).await;
    let puts = (0..10).map(|n| put(table, &key("p", &n.to_string()), number(n / 5)));
    write_all(&*store, puts.collect()).await;
    let index = ready(&*store, table, "n", index_of(&["n"])).await;
    let way = ways("n eq 0L", std::slice::from_ref(&index)).remove(0);
    let scan = || Scan { filter: filter("n eq 0L"), ..scan_through(way.clone()) };
    let first = page(&*store, table, Scan { limit: 2, ..scan() }).await;
    assert_eq!(
        (keys(&first), next(&first)),
        (vec!["p/0".into(), "p/1".into()], Some("p/2".into()))
    );
    let ranges = resume(&[KeyRange::all()], &first.next.expect("there is more"));
    let rest =
        async || keys(&page(&*store, table, Scan { ranges: ranges.clone(), ..scan() }).await);
    write(&*store, command(table, &key("p", "2"), Condition::Exists, Write::Delete)).await;
    assert_eq!(rest().await, ["p/3", "p/4"]);
    write(&*store, put(table, &key("p", "2"), number(1))).await;
    assert_eq!(rest().await, ["p/3", "p/4"]);
    write(&*store, put(table, &key("p", "7"), number(0))).await;
    write(&*store, put(table, &key("p", "0"), number(0))).await;
    assert_eq!(rest().await, ["p/3", "p/4", "p/7"]);
}

/// Types grouped, ties in the order of keys, both ways; whole, in pages, by bytes, within spans and ranges, with a filter.
pub async fn walk_is_in_the_order_of_the_index(engine: &dyn Engine) {
    let (store, table) = mixed(engine).await;
    let indexes = indexes_of_mixed(&*store, table).await;
    let text = |place: &EntryPlace| format!("{}/{}", place.key.partition, place.key.row);
    for index in &indexes {
        let entries = entries_wanted(&*store, table, &index.keys).await;
        let middle: Box<[u8]> = entries[entries.len() / 2].entry.clone();
        let third: Box<[u8]> = entries[entries.len() / 3].entry.clone();
        let spans = [
            vec![Span::all()],
            vec![only(&middle)],
            vec![Span { start: middle.clone(), end: None }],
            vec![Span { start: Box::default(), end: Some(middle.clone()) }],
            vec![only(&third), Span { start: [&*middle, &[0]].concat().into(), end: None }],
            vec![],
        ];
        for (spans, ranges) in spans
            .iter()
            .flat_map(|spans| some_ranges().into_iter().map(move |ranges| (spans.clone(), ranges)))
        {
            let inside = |place: &&EntryPlace| {
                spans.iter().any(|span| span.contains(&place.entry))
                    && ranges
                        .iter()
                        .any(|range| range.contains(&place.key.partition, &place.key.row))
            };
            let mut wanted: Vec<_> = entries.iter().filter(inside).cloned().collect();
            let whole = Walk { spans: spans.clone(), ranges: ranges.clone(), ..walk_of(index) };
            for direction in BOTH {
                let walk = Walk { direction, ..whole.clone() };
                let order: Vec<_> = wanted.iter().map(text).collect();
                for limit in [100, 1, 5] {
                    let first = walk_page(&*store, table, Walk { limit, ..walk.clone() }).await;
                    let held = limit.min(wanted.len());
                    assert_eq!(keys_of(&first.rows), order[..held], "{}", index.name);
                    assert_eq!(first.next.as_ref(), wanted.get(held), "{}", index.name);
                    let all = walk_all(&*store, table, Walk { limit, ..walk.clone() }).await;
                    assert_eq!(all, order, "{}, {direction:?}, limit {limit}", index.name);
                }
                let bytes = walk_all(&*store, table, Walk { max_bytes: 1, ..walk.clone() }).await;
                assert_eq!(bytes, order, "{}, {direction:?}, by bytes", index.name);
                let late = Walk { deadline: Instant::now(), ..walk.clone() };
                let late = walk_all(&*store, table, late).await;
                assert_eq!(late, order, "{}, when the time is over", index.name);
                wanted.reverse();
            }
        }
    }
}

/// A page holds what satisfies the filter, and names the next that does.
pub async fn walk_applies_its_filter(engine: &dyn Engine) {
    let (store, table) = mixed(engine).await;
    let index = ready(&*store, table, "s", index_of(&["s"])).await;
    let entries = entries_wanted(&*store, table, &index.keys).await;
    for text in ["n eq 3", "n gt 1 and PartitionKey eq 'a'", "RowKey lt '0'", "length(s) eq 2"] {
        let matching = page(&*store, table, Scan { filter: filter(text), ..scan_all() }).await;
        let matching = keys(&matching);
        let name = |place: &EntryPlace| format!("{}/{}", place.key.partition, place.key.row);
        let mut wanted: Vec<_> =
            entries.iter().filter(|place| matching.contains(&name(place))).cloned().collect();
        for direction in BOTH {
            let order: Vec<_> = wanted.iter().map(name).collect();
            for limit in [100, 1, 2] {
                let walk = Walk { direction, filter: filter(text), limit, ..walk_of(&index) };
                let first = walk_page(&*store, table, walk.clone()).await;
                let held = limit.min(wanted.len());
                assert_eq!(first.next.as_ref(), wanted.get(held), "{text}, limit {limit}");
                assert_eq!(walk_all(&*store, table, walk).await, order, "{text}, limit {limit}");
            }
            wanted.reverse();
        }
    }
    let most = walk_page(&*store, table, Walk { limit: 5, ..walk_of(&index) }).await.examined;
    assert!((5..=6).contains(&most), "five and perhaps the next one, not {most}");
}

/// At an entity that was deleted or moved, between two entries, before the first and behind the last.
pub async fn walk_resumes_anywhere(engine: &dyn Engine) {
    let (store, table) = open(engine).await;
    let puts = (0..12).map(|n| put(table, &key("p", &format!("{n:02}")), number(n / 3)));
    write_all(&*store, puts.collect()).await;
    let index = ready(&*store, table, "n", index_of(&["n"])).await;
    let text = |place: &EntryPlace| format!("{}/{}", place.key.partition, place.key.row);
    let mut places = entries_wanted(&*store, table, &index.keys).await;
    let least = EntryPlace { entry: Box::default(), key: Position::min() };
    let greatest = EntryPlace { entry: [0xFF; 20].into(), key: Position::before("z", "") };
    let between = EntryPlace { key: Position::before("o", "zzz"), ..places[4].clone() };
    let after = EntryPlace { key: Position::before("q", ""), ..places[4].clone() };
    places.extend([least, greatest, between, after]);
    let holds = async |when: &str| {
        let entries = entries_wanted(&*store, table, &index.keys).await;
        for from in &places {
            for direction in BOTH {
                let ahead = |place: &&EntryPlace| match direction {
                    Direction::Ascending => from <= *place,
                    Direction::Descending => *place <= from,
                };
                let mut wanted: Vec<_> = entries.iter().filter(ahead).map(text).collect();
                if direction == Direction::Descending {
                    wanted.reverse();
                }
                for limit in [100, 2] {
                    let from = Some(from.clone());
                    let walk = Walk { direction, from, limit, ..walk_of(&index) };
                    let found = walk_all(&*store, table, walk).await;
                    assert_eq!(found, wanted, "{when}, {direction:?}, limit {limit}");
                }
            }
        }
    };
    holds("at first").await;
    write(&*store, command(table, &key("p", "04"), Condition::Exists, Write::Delete)).await;
    holds("one is gone").await;
    write(&*store, put(table, &key("p", "07"), number(0))).await;
    holds("one has another value").await;
    write(&*store, put(table, &key("p", "01"), record(&[]))).await;
    holds("one is no longer in the index").await;
}

/// Exact for few, never more than asked for, of keys and of entries.
pub async fn weigh_counts_few(engine: &dyn Engine) {
    let (store, table) = mixed(engine).await;
    let indexes = indexes_of_mixed(&*store, table).await;
    let weigh = async |extent: Extent, bound| {
        store.weigh(table, extent, bound).await.expect("it can be weighed")
    };
    for ranges in some_ranges() {
        let inside = page(&*store, table, scan_of(ranges.clone())).await.rows.len() as u64;
        for bound in [1, 5, inside, inside + 1, 1000] {
            let weight = weigh(Extent::Keys(ranges.clone()), bound).await;
            assert_eq!(weight, inside.min(bound), "keys, bound {bound}");
        }
        for text in FILTERS {
            for way in ways(text, &indexes) {
                let mut entries = 0;
                for part in &way {
                    let index = indexes.iter().find(|index| index.id == part.index);
                    let keys = &index.expect("just named").keys;
                    let wanted = entries_wanted(&*store, table, keys).await;
                    let counts = |place: &&EntryPlace| {
                        let at = &place.key;
                        part.spans.iter().any(|span| span.contains(&place.entry))
                            && ranges.iter().any(|range| range.contains(&at.partition, &at.row))
                    };
                    entries += wanted.iter().filter(counts).count() as u64;
                }
                for bound in [3, 1000] {
                    let extent = Extent::Entries(way.clone(), ranges.clone());
                    let weight = weigh(extent, bound).await;
                    assert_eq!(weight, entries.min(bound), "{text}, bound {bound}");
                }
            }
        }
    }
    assert_eq!(weigh(Extent::Keys(vec![]), 10).await, 0);
    assert_eq!(weigh(entries_of(vec![]), 10).await, 0);
}

/// By the time of their last change.
pub async fn walk_follows_the_timestamp(engine: &dyn Engine) {
    let (store, table) = open(engine).await;
    let index = ready(&*store, table, "time", index_of(&["Timestamp"])).await;
    let mut wanted = Vec::new();
    for n in [3, 1, 4, 5, 9, 2, 6] {
        write(&*store, put(table, &key("p", &n.to_string()), number(n))).await;
        wanted.push(format!("p/{n}"));
    }
    write(&*store, put(table, &key("p", "4"), number(4))).await;
    wanted.retain(|key| key != "p/4");
    wanted.push("p/4".to_owned());
    assert_eq!(walk_all(&*store, table, walk_of(&index)).await, wanted);
    let whole = walk_page(&*store, table, walk_of(&index)).await;
    let times: Vec<Timestamp> =
        whole.rows.iter().map(|row| row.expect("decodes").record.timestamp()).collect();
    assert!(times.is_sorted(), "{times:?}");
    let text = format!("Timestamp ge datetime'{}'", times[4].iso7());
    let parsed: Filter = Filter::parse(&text).expect("a legal filter").expect("a filter");
    let found: Vec<Vec<Part<IndexId>>> = lookups(&parsed, &[(index.id, &index.keys)]);
    let scan = Scan { filter: Some(Arc::new(parsed)), ..scan_through(found[0].clone()) };
    let mut latest = wanted.split_off(4);
    latest.sort();
    assert_eq!(keys(&page(&*store, table, scan).await), latest);
}
