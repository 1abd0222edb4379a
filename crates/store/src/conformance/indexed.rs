//! Short words for the tests of indexes, and whether an index holds what it should.

use super::fixture::{keys, keys_of, page, scan_all, scan_of};
use crate::{
    Built, EntryPlace, Extent, Index, IndexId, IndexState, Lookup, Scan, Store, TableId, Walk,
    WalkPage,
};
use rowhouse_query::index::{IndexKeys, Span, entry};
use rowhouse_types::{Direction, KeyRange, Position};
use std::time::{Duration, Instant};

/// No engine takes longer to enter what a test has written.
const BUILD_TIME: Duration = Duration::from_mins(2);
/// Of how many entries [`assert_agrees`] looks each one up.
const LOOKED_UP: usize = 40;

pub(super) const BOTH: [Direction; 2] = [Direction::Ascending, Direction::Descending];

/// An index of these properties.
pub fn index_of(properties: &[&str]) -> IndexKeys {
    let properties = properties.iter().map(|name| Box::from(*name)).collect();
    IndexKeys { properties, unique: false }
}

/// A unique index of these properties.
pub fn unique_of(properties: &[&str]) -> IndexKeys {
    IndexKeys { unique: true, ..index_of(properties) }
}

/// Declares an index that must not be refused, and waits until it is built.
pub async fn declare(store: &dyn Store, table: TableId, name: &str, keys: IndexKeys) -> Index {
    let name = name.parse().expect("a legal name of an index");
    let declared = store.create_index(table, &name, keys.clone()).await;
    let index = declared.expect("the index can be declared");
    assert_eq!((&index.name, &index.keys), (&name, &keys), "an index is what was declared");
    let Built { state, .. } = built(store, table, index.id).await;
    Index { state, ..index }
}

/// Declares an index that must become ready.
pub async fn ready(store: &dyn Store, table: TableId, name: &str, keys: IndexKeys) -> Index {
    let index = declare(store, table, name, keys).await;
    assert_eq!(index.state, IndexState::Ready, "{name}");
    index
}

/// Waits until an index is built.
pub async fn built(store: &dyn Store, table: TableId, index: IndexId) -> Built {
    let give_up = Instant::now() + BUILD_TIME;
    loop {
        let built = store.built(table, index).await.expect("the index is there");
        if built.state != IndexState::Building {
            return built;
        }
        assert!(Instant::now() < give_up, "it is built in time, not {built:?}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// The span of one entry.
pub fn only(entry: &[u8]) -> Span {
    Span { start: entry.into(), end: Some([entry, &[0]].concat().into()) }
}

/// A part of an index.
pub(super) fn part(index: &Index, spans: Vec<Span>) -> Lookup {
    Lookup { index: index.id, spans }
}

/// A scan of everything through these parts.
pub fn scan_through(parts: Vec<Lookup>) -> Scan {
    Scan { through: Some(parts), ..scan_all() }
}

/// What there is in a part of an index, wherever its keys are.
pub fn entries_of(parts: Vec<Lookup>) -> Extent {
    Extent::Entries(parts, vec![KeyRange::all()])
}

/// A walk over a whole index without other limits.
pub fn walk_of(index: &Index) -> Walk {
    Walk {
        index: index.id,
        spans: vec![Span::all()],
        ranges: vec![KeyRange::all()],
        keys: vec![KeyRange::all()],
        direction: Direction::Ascending,
        from: None,
        filter: None,
        select: None,
        limit: usize::MAX,
        max_bytes: usize::MAX,
        deadline: scan_all().deadline,
    }
}

/// A page of a walk that must succeed.
pub async fn walk_page(store: &dyn Store, table: TableId, walk: Walk) -> WalkPage {
    let page = store.walk(table, walk).await.expect("the walk succeeds");
    assert!(page.examined >= page.rows.len() as u64, "what is returned was examined");
    page
}

/// Every page of a walk: what it finds, as `partition/row`.
pub(super) async fn walk_all(store: &dyn Store, table: TableId, mut walk: Walk) -> Vec<String> {
    let mut found = Vec::new();
    loop {
        let page = walk_page(store, table, walk.clone()).await;
        assert!(page.rows.len() <= walk.limit, "limit {}", walk.limit);
        found.extend(keys_of(&page.rows));
        let Some(next) = page.next else { return found };
        assert!(page.examined > 0, "an entry was examined");
        if let Some(from) = &walk.from {
            let onwards = match walk.direction {
                Direction::Ascending => *from < next,
                Direction::Descending => next < *from,
            };
            assert!(onwards, "the next page starts later");
        }
        walk.from = Some(next);
    }
}

/// Every page of a scan: what it finds, as `partition/row`, and how many were examined.
pub(super) async fn scan_pages(
    store: &dyn Store,
    table: TableId,
    mut scan: Scan,
) -> (Vec<String>, u64) {
    let (mut found, mut examined) = (Vec::new(), 0);
    loop {
        let page = page(store, table, scan.clone()).await;
        assert!(page.rows.len() <= scan.limit, "limit {}", scan.limit);
        found.extend(keys(&page));
        examined += page.examined;
        let Some(next) = &page.next else { return (found, examined) };
        assert!(page.examined > 0, "something was examined");
        let rest = super::fixture::resume_in(scan.direction, &scan.ranges, next);
        assert_ne!(rest, scan.ranges, "the next page starts later");
        scan.ranges = rest;
    }
}

/// The entries that the entities of the table call for, in order.
pub async fn entries_wanted(
    store: &dyn Store,
    table: TableId,
    keys: &IndexKeys,
) -> Vec<EntryPlace> {
    let (mut wanted, mut ranges) = (Vec::new(), vec![KeyRange::all()]);
    loop {
        let page = page(store, table, scan_of(ranges.clone())).await;
        for row in page.rows.iter() {
            let row = row.expect("a page decodes");
            if let Some(entry) = entry(keys, &row).expect("the record decodes") {
                let key = Position::before(row.partition, row.row);
                wanted.push(EntryPlace { entry: entry.into(), key });
            }
        }
        let Some(next) = page.next else { break };
        ranges = vec![KeyRange { start: next, end: None }];
    }
    wanted.sort();
    wanted
}

/// Holds an index to the entities of the table, which must not change meanwhile: walked in both directions, weighed,
/// and looked up.
pub async fn assert_agrees(store: &dyn Store, table: TableId, index: &Index, when: &str) {
    let name = &index.name;
    let wanted = entries_wanted(store, table, &index.keys).await;
    let text = |place: &EntryPlace| format!("{}/{}", place.key.partition, place.key.row);
    let mut order: Vec<_> = wanted.iter().map(text).collect();
    for direction in BOTH {
        let walk = Walk { direction, limit: 1000, ..walk_of(index) };
        let found = walk_all(store, table, walk).await;
        assert_eq!(found, order, "{when}: the entries of {name}, {direction:?}");
        order.reverse();
    }
    let step = wanted.len().div_ceil(LOOKED_UP).max(1);
    for place in wanted.iter().step_by(step) {
        let same: Vec<_> =
            wanted.iter().filter(|other| other.entry == place.entry).map(text).collect();
        let parts = vec![part(index, vec![only(&place.entry)])];
        let found = page(store, table, scan_through(parts)).await;
        assert_eq!(keys(&found), same, "{when}: an entry of {name}");
        assert!(found.examined <= same.len() as u64 + 1, "{when}: examined {}", found.examined);
    }
}
