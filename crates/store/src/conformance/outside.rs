//! Whoever reads within ranges learns nothing of what is outside them: not from what is found, and not from a number.
//!
//! Every question is asked twice: of a table that has nothing but what is in the ranges, and of one that has more.

use super::Engine;
use super::fixture::{
    account, filter, keys, keys_of, page, put, resume_in, scan_of, table, write_all,
};
use super::indexed::{BOTH, index_of, part, ready, unique_of, walk_of};
use super::lookups::ways;
use super::sorts::sort_by;
use crate::{EntryPlace, Extent, Index, Lookup, Scan, Sort, Store, TableId, Take, Walk};
use rowhouse_query::index::{Span, spans};
use rowhouse_types::{EntityKey, KeyRange, Position, Record, ValueRef};
use std::time::Instant;

/// More than any engine passes before it gives up counting.
const MANY: usize = 4_200;
/// Entities of a batch.
const BATCH: usize = 100;

const FILTERS: [&str; 11] = [
    "n eq 3",
    "n gt 2",
    "n ge 1 and n lt 4",
    "n in (1,3,7)",
    "n eq 1 and n eq 2",
    "startswith(s,'a')",
    "s eq 'ab' or n eq 4",
    "s eq 'ab' or n gt 4",
    "n eq 1 and s gt 'a'",
    "PartitionKey eq 'm' and n gt 2",
    "PartitionKey eq 'm' and u lt 40",
];

/// Tables with the same indexes: one with all the entities, one with those in the ranges.
struct Pair {
    ranges: Vec<KeyRange>,
    whole: Side,
    part: Side,
}

struct Side {
    table: TableId,
    indexes: Vec<Index>,
}

impl Pair {
    fn sides(&self) -> [&Side; 2] {
        [&self.part, &self.whole]
    }
}

impl Side {
    async fn new(store: &dyn Store, table: TableId, entities: &[(EntityKey, Record)]) -> Self {
        for batch in entities.chunks(BATCH) {
            let puts = batch.iter().map(|(key, content)| put(table, key, content.clone()));
            write_all(store, puts.collect()).await;
        }
        let mut indexes = Vec::new();
        for (name, keys) in [
            ("n", index_of(&["n"])),
            ("s", index_of(&["s"])),
            ("n-s", index_of(&["n", "s"])),
            ("partition-n", index_of(&["PartitionKey", "n"])),
            ("one", unique_of(&["PartitionKey", "u"])),
        ] {
            indexes.push(ready(store, table, name, keys).await);
        }
        Self { table, indexes }
    }

    fn ways(&self, text: &str) -> Vec<Vec<Lookup>> {
        ways(text, &self.indexes)
    }
}

fn entities() -> Vec<(EntityKey, Record)> {
    let texts = ["", "a", "ab", "abc", "b"];
    let partitions = ["a", "m", "m0", "z"];
    let entity = |at: usize| {
        let number = i32::try_from(at).expect("small");
        let properties = [
            ("n", ValueRef::Int32(number % 7)),
            ("s", ValueRef::String(texts[at % texts.len()])),
            ("u", ValueRef::Int32(number)),
        ];
        let partition = partitions[at / 3 % partitions.len()];
        let key = super::fixture::key(partition, &format!("{at:03}"));
        (key, super::fixture::record(&properties[usize::from(at.is_multiple_of(11))..]))
    };
    (0..96).map(entity).collect()
}

fn is_inside(ranges: &[KeyRange], key: &EntityKey) -> bool {
    ranges.iter().any(|range| range.contains(key.partition.as_str(), key.row.as_str()))
}

async fn pairs(store: &dyn Store) -> Vec<Pair> {
    let account = account(store, "first").await;
    let rows =
        KeyRange { start: Position::before("m", "020"), end: Some(Position::after("m", "070")) };
    let cases = [
        vec![KeyRange::partition("m")],
        vec![rows],
        vec![KeyRange::point("a", "001"), KeyRange::partition("m"), KeyRange::point("z", "010")],
    ];
    let mut pairs = Vec::new();
    for (at, ranges) in cases.into_iter().enumerate() {
        let all = entities();
        let inside = all.iter().filter(|(key, _)| is_inside(&ranges, key));
        let inside: Vec<_> = inside.cloned().collect();
        assert!(!inside.is_empty() && inside.len() < all.len(), "some are outside");
        let named = async |name: &str| table(store, account.id, &format!("{name}{at}")).await;
        let part = Side::new(store, named("Part").await, &inside).await;
        let whole = Side::new(store, named("Whole").await, &all).await;
        pairs.push(Pair { ranges, whole, part });
    }
    pairs
}

/// Every page of a scan, with what it says of itself.
async fn scanned(store: &dyn Store, table: TableId, mut scan: Scan) -> Vec<String> {
    let mut told = Vec::new();
    loop {
        let page = page(store, table, scan.clone()).await;
        let next = page.next.as_ref().map(|next| format!("{}/{}", next.partition, next.row));
        told.push(format!("{:?} {} {} {next:?}", keys(&page), page.counted, page.examined));
        let Some(next) = &page.next else { return told };
        scan.ranges = resume_in(scan.direction, &scan.ranges, next);
    }
}

fn place(next: Option<&EntryPlace>) -> String {
    next.map(|next| format!("{:?} {}/{}", next.entry, next.key.partition, next.key.row))
        .unwrap_or_default()
}

async fn walked(store: &dyn Store, table: TableId, mut walk: Walk) -> Vec<String> {
    let mut told = Vec::new();
    loop {
        let page = store.walk(table, walk.clone()).await.expect("the walk succeeds");
        let next = place(page.next.as_ref());
        told.push(format!("{:?} {} {next}", keys_of(&page.rows), page.examined));
        walk.from = page.next;
        if walk.from.is_none() {
            return told;
        }
    }
}

async fn sorted(store: &dyn Store, table: TableId, mut sort: Sort) -> Vec<String> {
    let mut told = Vec::new();
    loop {
        let page = store.sort(table, sort.clone()).await.expect("the sort succeeds");
        let page = page.expect("there is time");
        let next = place(page.next.as_ref());
        told.push(format!("{:?} {} {next}", keys_of(&page.rows), page.examined));
        sort.from = page.next;
        if sort.from.is_none() {
            return told;
        }
    }
}

/// Pages through indexes and in their order, counts, sorted pages and estimates; whole, small and late.
pub async fn nothing_outside_the_ranges_shows(engine: &dyn Engine) {
    let store = engine.open().await;
    let store = &*store;
    for pair in &pairs(store).await {
        for text in FILTERS {
            let sides = pair.sides().map(|side| (side, side.ways(text)));
            let [(_, ways), (_, same)] = &sides;
            assert_eq!(ways.len(), same.len(), "{text}: the same ways");
            for at in 0..ways.len() {
                for direction in BOTH {
                    let mut told = Vec::new();
                    for (side, ways) in &sides {
                        let scan = Scan {
                            through: Some(ways[at].clone()),
                            filter: filter(text),
                            direction,
                            ..scan_of(pair.ranges.clone())
                        };
                        let late = Instant::now();
                        let mut pages = Vec::new();
                        for scan in [
                            scan.clone(),
                            Scan { limit: 2, ..scan.clone() },
                            Scan { deadline: late, ..scan.clone() },
                            Scan { take: Take::Count, ..scan.clone() },
                        ] {
                            pages.push(scanned(store, side.table, scan).await);
                        }
                        told.push(pages);
                    }
                    assert_eq!(told[0], told[1], "{text}, {direction:?}, way {at}");
                }
                for bound in [1, 3, 1000] {
                    let mut weights = Vec::new();
                    for (side, ways) in &sides {
                        let extent = Extent::Entries(ways[at].clone(), pair.ranges.clone());
                        weights
                            .push(store.weigh(side.table, extent, bound).await.expect("weighed"));
                    }
                    assert_eq!(weights[0], weights[1], "{text}, way {at}, bound {bound}");
                }
            }
        }
        in_an_order(store, pair).await;
    }
}

/// What is read in the order of an index, and what is sorted.
async fn in_an_order(store: &dyn Store, pair: &Pair) {
    let texts = [None, Some("n gt 2"), Some("PartitionKey eq 'm' and s ge 'a'")];
    for (at, text) in (0..pair.part.indexes.len()).flat_map(|at| texts.map(|text| (at, text))) {
        for (direction, limit) in BOTH.into_iter().flat_map(|way| [100, 3].map(|n| (way, n))) {
            let mut told = Vec::new();
            for side in pair.sides() {
                let index = &side.indexes[at];
                let filter = text.and_then(filter);
                let narrowed = filter.as_ref().and_then(|filter| spans(filter, &index.keys));
                let walk = Walk {
                    spans: narrowed.unwrap_or_else(|| vec![Span::all()]),
                    ranges: pair.ranges.clone(),
                    direction,
                    filter: filter.clone(),
                    limit,
                    ..walk_of(index)
                };
                let sort = Sort {
                    ranges: pair.ranges.clone(),
                    direction,
                    filter,
                    limit,
                    ..sort_by(index.keys.clone())
                };
                let late = Walk { deadline: Instant::now(), ..walk.clone() };
                told.push([
                    walked(store, side.table, walk).await,
                    walked(store, side.table, late).await,
                    sorted(store, side.table, sort).await,
                ]);
            }
            assert_eq!(told[0], told[1], "{text:?}, index {at}, {direction:?}, limit {limit}");
        }
    }
}

/// However many entries there are outside.
pub async fn many_outside_the_ranges_do_not_show(engine: &dyn Engine) {
    let store = engine.open().await;
    let store = &*store;
    let account = account(store, "first").await;
    let table = table(store, account.id, "Things").await;
    let entity = |at: usize, partition: &str| {
        let number = ValueRef::Int64(i64::try_from(at).expect("small"));
        let key = super::fixture::key(partition, &format!("{at:05}"));
        put(table, &key, super::fixture::record(&[("n", number)]))
    };
    for start in (0..MANY).step_by(BATCH) {
        let puts = (start..start + BATCH)
            .map(|at| entity(at, if at.is_multiple_of(2) { "a" } else { "z" }));
        write_all(store, puts.collect()).await;
    }
    let inside = [7, MANY / 2, MANY - 1];
    write_all(store, inside.iter().map(|at| entity(*at, "m")).collect()).await;
    let index = ready(store, table, "n", index_of(&["n"])).await;
    let everything = || vec![part(&index, vec![Span::all()])];
    let ranges = vec![KeyRange::partition("m")];
    for bound in [2, 100, 10_000] {
        let extent = Extent::Entries(everything(), ranges.clone());
        let weight = store.weigh(table, extent, bound).await.expect("weighed");
        assert_eq!(weight, bound.min(3), "bound {bound}");
    }
    let scan = Scan { through: Some(everything()), ..scan_of(ranges.clone()) };
    for take in [Take::Entities, Take::Count] {
        let found = page(store, table, Scan { take, ..scan.clone() }).await;
        assert_eq!((found.examined, found.next), (3, None), "{take:?}");
    }
    for direction in BOTH {
        let walk = Walk { ranges: ranges.clone(), direction, limit: 2, ..walk_of(&index) };
        let found = store.walk(table, walk).await.expect("the walk succeeds");
        assert_eq!((found.rows.len(), found.examined), (2, 3), "{direction:?}");
        let next = found.next.expect("there is one more");
        assert_eq!(&*next.key.partition, "m", "{direction:?}");
    }
}
