//! Scans: order, ranges, filters, and where a page ends.

use super::Engine;
use super::fixture::{
    command, content, filter, key, keys, next, number, open, page, put, read_all, record, resume,
    resume_in, rows, scan_all, scan_of, write, write_all,
};
use crate::{Condition, Page, Scan, Store, TableId, Take, Write};
use rowhouse_types::{Direction, KeyRange, Position, ValueRef};
use std::sync::Arc;
use std::time::Instant;

/// Ten entities `p/0` to `p/9` with `n` from 0 to 9.
async fn ten(engine: &dyn Engine) -> (Arc<dyn Store>, TableId) {
    let (store, table) = open(engine).await;
    let puts = (0..10).map(|n| put(table, &key("p", &n.to_string()), number(n)));
    write_all(&*store, puts.collect()).await;
    (store, table)
}

fn digits(range: std::ops::Range<i32>) -> Vec<String> {
    range.map(|n| format!("p/{n}")).collect()
}

/// Bytes decide, not UTF-16 units, locales or the order of insertion.
pub async fn scan_is_in_key_order(engine: &dyn Engine) {
    let (store, table) = open(engine).await;
    let texts = [
        "",
        " ",
        "!",
        "0",
        "00",
        "10",
        "9",
        "A",
        "Z",
        "a",
        "aa",
        "é",
        "z",
        "\u{E000}",
        "\u{FFFD}",
        "😀",
        "\u{10FFFF}",
    ];
    let mut all: Vec<_> = texts.iter().flat_map(|p| texts.iter().map(move |r| key(p, r))).collect();
    // Any order but the right one: by the last byte first, then backwards.
    all.sort_by_key(|key| {
        let last = |text: &str| text.as_bytes().last().copied();
        std::cmp::Reverse((last(key.row.as_str()), last(key.partition.as_str())))
    });
    for chunk in all.chunks(100) {
        let puts = chunk.iter().map(|key| put(table, key, number(0)));
        write_all(&*store, puts.collect()).await;
    }
    all.sort();
    let wanted: Vec<_> = all.iter().map(|key| (key.partition.as_str(), key.row.as_str())).collect();
    for limit in [usize::MAX, 7] {
        let found = read_all(&*store, table, limit).await;
        let found: Vec<_> = found.iter().map(|(p, r, _)| (p.as_str(), r.as_str())).collect();
        assert_eq!(found, wanted, "limit {limit}");
    }
}

/// Points, partitions, half-open ranges, several of them, and none at all.
pub async fn scan_reads_its_ranges_only(engine: &dyn Engine) {
    let (store, table) = open(engine).await;
    let all: Vec<_> =
        ["a", "b", "ba", "c"].iter().flat_map(|p| ["", "1", "2", "3"].map(|r| key(p, r))).collect();
    write_all(&*store, all.iter().map(|key| put(table, key, number(0))).collect()).await;
    let range = |start: Position, end: Option<Position>| KeyRange { start, end };
    let cases: Vec<(&str, Vec<KeyRange>, &[&str])> = vec![
        ("nothing", vec![], &[]),
        ("a point", vec![KeyRange::point("b", "2")], &["b/2"]),
        ("a point with an empty row", vec![KeyRange::point("b", "")], &["b/"]),
        ("a point that is not there", vec![KeyRange::point("b", "4")], &[]),
        ("a partition", vec![KeyRange::partition("b")], &["b/", "b/1", "b/2", "b/3"]),
        ("a partition that is not there", vec![KeyRange::partition("bb")], &[]),
        (
            "start inside, end outside",
            vec![range(Position::before("b", "1"), Some(Position::before("b", "3")))],
            &["b/1", "b/2"],
        ),
        (
            "start outside, end inside",
            vec![range(Position::after("b", "1"), Some(Position::after("b", "3")))],
            &["b/2", "b/3"],
        ),
        (
            "over partitions",
            vec![range(Position::before("b", "3"), Some(Position::before("c", "1")))],
            &["b/3", "ba/", "ba/1", "ba/2", "ba/3", "c/"],
        ),
        ("to the end", vec![range(Position::after("c", "1"), None)], &["c/2", "c/3"]),
        ("beyond the end", vec![range(Position::after("c", "3"), None)], &[]),
        (
            "several points",
            vec![
                KeyRange::point("a", "1"),
                KeyRange::point("b", "x"),
                KeyRange::point("b", "3"),
                KeyRange::point("c", ""),
            ],
            &["a/1", "b/3", "c/"],
        ),
        (
            "a point, a partition and the rest",
            vec![
                KeyRange::point("a", "3"),
                KeyRange::partition("ba"),
                range(Position::before("c", "3"), None),
            ],
            &["a/3", "ba/", "ba/1", "ba/2", "ba/3", "c/3"],
        ),
        (
            "neighbours",
            vec![
                range(Position::min(), Some(Position::before("a", "2"))),
                range(Position::before("a", "2"), Some(Position::before("a", "3"))),
            ],
            &["a/", "a/1", "a/2"],
        ),
    ];
    for (case, ranges, wanted) in cases {
        let whole = page(&*store, table, scan_of(ranges.clone())).await;
        assert_eq!(keys(&whole), wanted, "{case}");
        assert_eq!(whole.next, None, "{case}");
        assert_eq!(whole.examined, wanted.len() as u64, "{case}: nothing else is examined");
        // One at a time, the same.
        let (mut found, mut rest) = (Vec::new(), ranges);
        loop {
            let page = page(&*store, table, Scan { limit: 1, ..scan_of(rest.clone()) }).await;
            found.extend(keys(&page));
            match &page.next {
                Some(next) => rest = resume(&rest, next),
                None => break,
            }
        }
        assert_eq!(found, wanted, "{case}, one at a time");
    }
}

/// On a property, on keys, on a missing property, with and without matches.
pub async fn scan_applies_its_filter(engine: &dyn Engine) {
    let (store, table) = ten(engine).await;
    let cases: &[(&str, &[&str])] = &[
        ("n ge 7L", &["p/7", "p/8", "p/9"]),
        ("n eq 3L or n eq 5L", &["p/3", "p/5"]),
        ("RowKey lt '2'", &["p/0", "p/1"]),
        ("PartitionKey eq 'p' and n lt 1L", &["p/0"]),
        ("n gt 100L", &[]),
        ("other eq 1", &[]),
    ];
    for (text, wanted) in cases {
        let page = page(&*store, table, Scan { filter: filter(text), ..scan_all() }).await;
        assert_eq!(keys(&page), *wanted, "{text}");
        assert_eq!(page.next, None, "{text}");
    }
}

/// Entities whose property `v` is that text; two without one, and one without the property.
async fn of_texts(engine: &dyn Engine, texts: &[&str]) -> (Arc<dyn Store>, TableId) {
    let (store, table) = open(engine).await;
    let of = |value| record(&[("v", value)]);
    let texts = texts.iter().map(|text| put(table, &key("p", text), of(ValueRef::String(text))));
    let others = [
        put(table, &key("q", "number"), of(ValueRef::Int32(3))),
        put(table, &key("q", "truth"), of(ValueRef::Boolean(true))),
        put(table, &key("q", "without"), record(&[])),
    ];
    write_all(&*store, texts.chain(others).collect()).await;
    (store, table)
}

/// In the properties and in the keys. Escapes, cases that are several characters, and what languages disagree on.
pub async fn functions_judge_texts_alike(engine: &dyn Engine) {
    let texts = ["", "ANN", "Ann", "Straße", "ann", "É", "é", "İ", "ı", "Σ", "名", "😀", "😀é"];
    let (store, table) = of_texts(engine, &texts).await;
    let cases: &[(&str, &[&str])] = &[
        ("startswith(v,'An')", &["Ann"]),
        ("startswith(tolower(v),'an')", &["ANN", "Ann", "ann"]),
        ("endswith(toupper(v),'N')", &["ANN", "Ann", "ann"]),
        ("contains(v,'n')", &["Ann", "ann"]),
        ("substringof('ße',v)", &["Straße"]),
        ("tolower(v) eq 'é'", &["É", "é"]),
        ("toupper(v) eq 'STRASSE'", &[]),
        ("toupper(v) eq 'STRAßE'", &["Straße"]),
        ("tolower(v) eq 'i'", &[]),
        ("toupper(v) eq 'I'", &["ı"]),
        ("tolower(v) eq 'σ'", &["Σ"]),
        ("tolower(v) in ('ann','σ')", &["ANN", "Ann", "ann", "Σ"]),
        ("length(v) eq 2", &["😀"]),
        ("length(v) eq 3L", &["ANN", "Ann", "ann", "😀é"]),
        ("length(v) lt 0.5", &["", "number", "truth"]),
        ("contains(v,v) and length(v) eq 0", &[""]),
        ("contains('Annabel',v)", &["", "Ann"]),
        ("endswith(v,RowKey) and startswith(v,'A')", &["ANN", "Ann"]),
        ("contains(v,'n') eq false and length(v) ge 3", &["ANN", "Straße", "😀é"]),
        ("contains(v,'n') ne true and PartitionKey eq 'q'", &["number", "truth"]),
        ("not contains(v,'') ", &["number", "truth", "without"]),
        ("not (contains(tolower(v),'é') or length(v) lt 100)", &["without"]),
        ("toupper(RowKey) eq 'É'", &["É", "é"]),
        ("contains(tolower(RowKey),'ru')", &["truth"]),
        ("length(RowKey) eq 7", &["without"]),
        ("startswith(tolower(PartitionKey),'q') and endswith(RowKey,'r')", &["number"]),
        ("contains(Timestamp,'2')", &[]),
        ("contains(Timestamp,'2') ne true and RowKey eq 'ann'", &["ann"]),
    ];
    for (text, wanted) in cases {
        let page = page(&*store, table, Scan { filter: filter(text), ..scan_all() }).await;
        let found: Vec<_> = page.rows.iter().map(|row| row.expect("decodes").row).collect();
        assert_eq!(found, *wanted, "{text}");
        assert_eq!(page.examined, 16, "{text}");
        let points = Scan { filter: filter(text), ..scan_of(vec![KeyRange::point("p", "Ann")]) };
        let point = self::page(&*store, table, points).await;
        assert_eq!(!point.rows.is_empty(), wanted.contains(&"Ann"), "{text}, read by key");
    }
}

/// Hundreds of texts that only their whole tells apart, every hundredth of them wanted.
pub async fn functions_look_at_every_page(engine: &dyn Engine) {
    let (store, table) = open(engine).await;
    let of = |n: i32| record(&[("v", ValueRef::String(if n % 100 == 50 { "É" } else { "È" }))]);
    for start in (0..700).step_by(100) {
        let puts = (start..start + 100).map(|n| put(table, &key("p", &format!("{n:03}")), of(n)));
        write_all(&*store, puts.collect()).await;
    }
    let wanted: Vec<_> = (0..7).map(|n| format!("p/{n}50")).collect();
    let filter = filter("tolower(v) eq 'é'");
    let now = scan_all().deadline;
    for (limit, deadline) in [(1000, now), (1, now), (2, now), (7, now), (1000, Instant::now())] {
        let (mut found, mut ranges, mut examined) = (Vec::new(), vec![KeyRange::all()], 0);
        loop {
            let filter = filter.clone();
            let scan = Scan { filter, limit, deadline, ..scan_of(ranges.clone()) };
            let page = page(&*store, table, scan).await;
            found.extend(keys(&page));
            examined += page.examined;
            assert!(page.rows.len() <= limit, "limit {limit}");
            let Some(next) = &page.next else { break };
            assert!(page.examined > 0 && ranges[0].start < *next, "limit {limit}: goes on");
            if deadline == now {
                assert!(wanted.contains(&self::next(&page).expect("just seen")), "limit {limit}");
            }
            ranges = resume(&ranges, next);
        }
        assert_eq!(found, wanted, "limit {limit}");
        // A page looks at the entity where the next one starts.
        let pages = 8;
        assert!(examined <= 700 + pages || deadline != now, "limit {limit}: {examined} examined");
    }
}

/// Some ranges of the keys that [`ten`] makes.
fn some_ranges() -> Vec<Vec<KeyRange>> {
    let part = |start: &str, end: &str| KeyRange {
        start: Position::before("p", start),
        end: Some(Position::after("p", end)),
    };
    vec![
        vec![],
        vec![KeyRange::all()],
        vec![KeyRange::partition("p")],
        vec![KeyRange { start: Position::min(), end: Some(Position::before("p", "4")) }],
        vec![KeyRange { start: Position::after("p", "6"), end: None }],
        vec![part("0", "2"), KeyRange::point("p", "4"), part("7", "8")],
        vec![KeyRange::point("p", "1"), KeyRange::point("p", "5"), KeyRange::point("p", "x")],
    ]
}

/// Filters that a database judges, and one that it cannot.
const SOME_FILTERS: [&str; 4] =
    ["", "n ge 3L", "n eq 2L or n eq 7L", "startswith(RowKey,PartitionKey) eq false"];

/// With and without a filter, by limit and by time, over ranges of every kind.
pub async fn scan_goes_backwards(engine: &dyn Engine) {
    let (store, table) = ten(engine).await;
    for ranges in some_ranges() {
        for text in SOME_FILTERS {
            let scan = || Scan { filter: filter(text), ..scan_of(ranges.clone()) };
            let mut wanted = keys(&page(&*store, table, scan()).await);
            wanted.reverse();
            let now = Instant::now();
            for (limit, deadline) in [(99, None), (1, None), (3, None), (99, Some(now))] {
                let (mut found, mut rest) = (Vec::new(), ranges.clone());
                loop {
                    let scan = Scan {
                        ranges: rest.clone(),
                        direction: Direction::Descending,
                        limit,
                        deadline: deadline.unwrap_or(scan().deadline),
                        ..scan()
                    };
                    let page = page(&*store, table, scan).await;
                    assert!(page.rows.len() <= limit, "{text:?}");
                    found.extend(keys(&page));
                    let Some(next) = &page.next else { break };
                    assert!(page.examined > 0, "{text:?}: makes progress");
                    if deadline.is_none() {
                        let next = self::next(&page).expect("just seen");
                        assert!(wanted.contains(&next), "{text:?}: {next} is a match");
                    }
                    rest = resume_in(Direction::Descending, &rest, next);
                }
                assert_eq!(found, wanted, "{text:?}, limit {limit}, {ranges:?}");
            }
        }
    }
}

/// Limits of a page do not matter; a deadline does.
pub async fn scan_only_counts(engine: &dyn Engine) {
    let (store, table) = ten(engine).await;
    for ranges in some_ranges() {
        for text in SOME_FILTERS {
            let scan = || Scan { filter: filter(text), ..scan_of(ranges.clone()) };
            let wanted = page(&*store, table, scan()).await.rows.len() as u64;
            for direction in [Direction::Ascending, Direction::Descending] {
                let scan =
                    || Scan { take: Take::Count, direction, limit: 1, max_bytes: 1, ..scan() };
                let page = self::page(&*store, table, scan()).await;
                assert_eq!((page.counted, page.rows.len()), (wanted, 0), "{text:?}, {ranges:?}");
                assert_eq!(page.next, None, "{text:?}, {ranges:?}");
                let (mut counted, mut rest) = (0, ranges.clone());
                loop {
                    let late = Scan { ranges: rest.clone(), deadline: Instant::now(), ..scan() };
                    let page = self::page(&*store, table, late).await;
                    counted += page.counted;
                    let Some(next) = &page.next else { break };
                    assert!(page.examined > 0, "{text:?}: makes progress");
                    rest = resume_in(direction, &rest, next);
                }
                assert_eq!(counted, wanted, "{text:?}, {ranges:?}, page by page");
            }
        }
    }
}

/// The page that takes exactly the rest names no place to resume.
pub async fn scan_ends_at_its_limit(engine: &dyn Engine) {
    let (store, table) = ten(engine).await;
    for limit in 1..=11usize {
        let page = page(&*store, table, Scan { limit, ..scan_all() }).await;
        let held = i32::try_from(limit.min(10)).expect("a small number");
        assert_eq!(keys(&page), digits(0..held), "limit {limit}");
        let wanted = (held < 10).then(|| format!("p/{held}"));
        assert_eq!(next(&page), wanted, "limit {limit}");
    }
    for limit in 1..=11 {
        let found = read_all(&*store, table, limit).await;
        assert_eq!(found.len(), 10, "limit {limit}");
    }
}

/// The entity that reaches the bound is the last; a page holds at least one.
pub async fn scan_ends_at_its_bytes(engine: &dyn Engine) {
    let (store, table) = ten(engine).await;
    let whole = page(&*store, table, scan_all()).await;
    let each = whole.rows.byte_len() / 10;
    assert_eq!(each * 10, whole.rows.byte_len(), "all ten are of one size");
    let cases = [
        (0, 1),
        (1, 1),
        (each - 1, 1),
        (each, 1),
        (each + 1, 2),
        (3 * each, 3),
        (10 * each - 1, 10),
        (10 * each, 10),
        (10 * each + 1, 10),
    ];
    for (max_bytes, held) in cases {
        let page = page(&*store, table, Scan { max_bytes, ..scan_all() }).await;
        assert_eq!(keys(&page), digits(0..held), "{max_bytes} bytes");
        let wanted = (held < 10).then(|| format!("p/{held}"));
        assert_eq!(next(&page), wanted, "{max_bytes} bytes");
    }
}

/// Looks ahead over what the filter rejects, within the ranges only.
pub async fn next_is_a_match(engine: &dyn Engine) {
    let (store, table) = ten(engine).await;
    let scan = |text: &str, limit| Scan { filter: filter(text), limit, ..scan_all() };
    let cases: &[(&str, usize, &[&str], Option<&str>)] = &[
        ("n eq 2L or n eq 7L", 1, &["p/2"], Some("p/7")),
        ("n eq 2L or n eq 7L", 2, &["p/2", "p/7"], None),
        ("n eq 2L", 1, &["p/2"], None),
        ("n ge 8L", 1, &["p/8"], Some("p/9")),
        ("n ge 8L", 2, &["p/8", "p/9"], None),
    ];
    for (text, limit, wanted, resume) in cases {
        let page = page(&*store, table, scan(text, *limit)).await;
        assert_eq!(keys(&page), *wanted, "{text}, limit {limit}");
        assert_eq!(next(&page).as_deref(), *resume, "{text}, limit {limit}");
    }
    let ranges = vec![KeyRange::point("p", "2"), KeyRange::point("p", "5")];
    let two = page(&*store, table, Scan { limit: 1, ..scan_of(ranges.clone()) }).await;
    assert_eq!((keys(&two), next(&two)), (digits(2..3), Some("p/5".to_owned())));
    let one = page(&*store, table, Scan { limit: 1, ..scan_of(ranges[1..].to_vec()) }).await;
    assert_eq!((keys(&one), next(&one)), (digits(5..6), None), "p/6 is outside the ranges");
}

/// A deadline in the past, with and without a filter that rejects everything.
pub async fn scan_past_its_deadline_makes_progress(engine: &dyn Engine) {
    let (store, table) = ten(engine).await;
    for (text, wanted) in [("", digits(0..10)), ("n eq 9L", digits(9..10)), ("n gt 9L", vec![])] {
        let (mut found, mut ranges, mut pages) = (Vec::new(), vec![KeyRange::all()], 0);
        loop {
            let scan =
                Scan { filter: filter(text), deadline: Instant::now(), ..scan_of(ranges.clone()) };
            let page = page(&*store, table, scan).await;
            pages += 1;
            found.extend(keys(&page));
            let Some(next) = &page.next else { break };
            assert!(page.examined > 0, "{text:?}: an entity was examined");
            assert!(ranges[0].start < *next, "{text:?}: the next page starts later");
            let there = page_at(&*store, table, next).await;
            assert_eq!(keys(&there), [self::next(&page).expect("just seen")], "{text:?}");
            ranges = resume(&ranges, next);
            assert!(pages <= 10, "{text:?}: at most a page per entity");
        }
        assert_eq!(found, wanted, "{text:?}");
    }
}

/// What stands exactly at a place.
async fn page_at(store: &dyn Store, table: TableId, at: &Position) -> Page {
    page(store, table, scan_of(vec![KeyRange::point(&at.partition, &at.row)])).await
}

/// The entity at the place to resume is deleted between two pages, then put back.
pub async fn scan_resumes_at_a_deleted_entity(engine: &dyn Engine) {
    let (store, table) = ten(engine).await;
    let first = page(&*store, table, Scan { limit: 4, ..scan_all() }).await;
    let at = first.next.expect("there is more");
    let named = key("p", "4");
    write(&*store, command(table, &named, Condition::Exists, Write::Delete)).await;
    let ranges = resume(&[KeyRange::all()], &at);
    let second = page(&*store, table, scan_of(ranges.clone())).await;
    assert_eq!(keys(&second), digits(5..10));
    write(&*store, put(table, &named, number(40))).await;
    let again = page(&*store, table, scan_of(ranges)).await;
    assert_eq!(keys(&again), digits(4..10));
    assert_eq!(content(&rows(&again)[0].2), number(40));
}

/// Between what was returned and what is in the ranges, and exact where nothing is left.
pub async fn scan_counts_what_it_examined(engine: &dyn Engine) {
    let (store, table) = ten(engine).await;
    let count = async |scan| page(&*store, table, scan).await.examined;
    assert_eq!(count(scan_all()).await, 10);
    assert_eq!(count(scan_of(vec![KeyRange::point("p", "3")])).await, 1);
    assert_eq!(count(scan_of(vec![KeyRange::point("p", "x")])).await, 0);
    let limited = count(Scan { limit: 3, ..scan_all() }).await;
    assert!((3..=4).contains(&limited), "three and perhaps the next one, not {limited}");
    let filtered = count(Scan { filter: filter("n eq 4L"), ..scan_all() }).await;
    assert!((1..=10).contains(&filtered), "at least the match, not {filtered}");
}
