//! Pages in an order that no index has.

use super::Engine;
use super::fixture::{
    filter, key, keys_of, n, number, open, put, record, refusal, scan_all, write, write_all,
};
use super::indexed::{BOTH, index_of, ready, scan_through, walk_of, walk_page};
use super::lookups::{indexes_of_mixed, mixed, some_ranges, ways};
use crate::{Conflict, IndexKeys, Sort, Store, TableId, Walk, WalkPage};
use rowhouse_types::{Direction, EntityKey, KeyRange, Rows, ValueRef};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;
use tokio::task::JoinHandle;

/// Pages that a reader reads beside a writer, on average.
const PAGES: usize = 20;
/// More than is read at a time.
const MANY: i64 = 2_100;

/// Everything in the order of these, without other limits.
pub(super) fn sort_by(keys: IndexKeys) -> Sort {
    Sort {
        keys,
        direction: Direction::Ascending,
        from: None,
        ranges: vec![KeyRange::all()],
        through: None,
        filter: None,
        select: None,
        limit: usize::MAX,
        max_bytes: usize::MAX,
        deadline: scan_all().deadline,
    }
}

/// A page that must succeed, in time.
pub(super) async fn sort_page(store: &dyn Store, table: TableId, sort: Sort) -> WalkPage {
    let page = store.sort(table, sort).await.expect("the sort succeeds");
    let page = page.expect("there is time");
    assert!(page.examined >= page.rows.len() as u64, "what is returned was examined");
    page
}

/// As many numbers as are read in several pieces, of one partition, in an order that is not that of the keys.
async fn many(engine: &dyn Engine) -> (Arc<dyn Store>, TableId) {
    let (store, table) = open(engine).await;
    let numbers: Vec<i64> = (0..MANY).collect();
    for some in numbers.chunks(100) {
        let puts = some.iter().map(|n| put(table, &place(*n), number(n * 7919 % MANY)));
        write_all(&*store, puts.collect()).await;
    }
    (store, table)
}

/// The numbers of these, in their order.
fn numbers(rows: &Rows) -> Vec<i64> {
    rows.iter().map(|row| n(&row.expect("a page decodes").record.to_owned())).collect()
}

fn place(n: i64) -> EntityKey {
    key("p", &format!("{n:04}"))
}

/// With values of several types, in both directions, within ranges, with filters and through indexes, page by page.
pub async fn sort_has_the_order_of_an_index(engine: &dyn Engine) {
    let (store, table) = mixed(engine).await;
    let indexes = indexes_of_mixed(&*store, table).await;
    let texts = [None, Some("n eq 3"), Some("s ge 'ab' and s lt 'b'"), Some("s eq 'ab' or n eq 4")];
    for (index, text) in indexes.iter().flat_map(|index| texts.map(|text| (index, text))) {
        let filter = text.and_then(filter);
        let through = text.map(|text| ways(text, &indexes)).unwrap_or_default();
        let through: Vec<_> = through.into_iter().map(Some).chain([None]).collect();
        for (ranges, direction) in
            some_ranges().into_iter().flat_map(|ranges| BOTH.map(|each| (ranges.clone(), each)))
        {
            let walk = Walk {
                ranges: ranges.clone(),
                direction,
                filter: filter.clone(),
                ..walk_of(index)
            };
            let wanted = walk_page(&*store, table, walk).await;
            let wanted = keys_of(&wanted.rows);
            for (through, limit) in
                through.iter().flat_map(|through| [100, 7].map(|limit| (through.clone(), limit)))
            {
                let mut sort = Sort {
                    direction,
                    ranges: ranges.clone(),
                    through,
                    filter: filter.clone(),
                    limit,
                    ..sort_by(index.keys.clone())
                };
                let mut found = Vec::new();
                loop {
                    let page = sort_page(&*store, table, sort.clone()).await;
                    assert!(page.rows.len() <= limit, "{text:?}");
                    found.extend(keys_of(&page.rows));
                    sort.from = page.next;
                    if sort.from.is_none() {
                        break;
                    }
                    assert_eq!(page.rows.len(), limit, "{text:?}: more follow a full page");
                }
                assert_eq!(found, wanted, "{}, {text:?}, {direction:?}, {limit}", index.name);
            }
        }
    }
}

/// What is read in several pieces is sorted as a whole, a page of it at a time, by number and by bytes.
pub async fn sort_goes_through_everything(engine: &dyn Engine) {
    let (store, table) = many(engine).await;
    for (direction, max_bytes) in
        BOTH.into_iter().flat_map(|each| [(each, usize::MAX), (each, 20_000)])
    {
        let sort = Sort { direction, limit: 900, max_bytes, ..sort_by(index_of(&["n"])) };
        let (mut from, mut found, mut pages) = (None, Vec::new(), 0);
        loop {
            let page = sort_page(&*store, table, Sort { from, ..sort.clone() }).await;
            assert!(MANY.unsigned_abs() <= page.examined, "all is looked at for every page");
            assert!(page.rows.len() <= 900);
            found.extend(numbers(&page.rows));
            pages += 1;
            from = page.next;
            if from.is_none() {
                break;
            }
        }
        let mut wanted: Vec<_> = (0..MANY).collect();
        if direction == Direction::Descending {
            wanted.reverse();
        }
        assert_eq!(found, wanted, "{direction:?}");
        assert_eq!(pages > 3, max_bytes < usize::MAX, "{pages} pages of {max_bytes} bytes");
    }
}

/// Large entities, of which a few are as many bytes as are read at a time.
pub async fn sort_goes_through_large_entities(engine: &dyn Engine) {
    let (store, table) = open(engine).await;
    let text = "x".repeat(30_000);
    let parts = ["a", "b", "c", "d"].map(|name| (name, ValueRef::String(&text)));
    for number in 0..40 {
        let n = [("n", ValueRef::Int64(number * 17 % 40))];
        let content = record(&[&n[..], &parts].concat());
        write(&*store, put(table, &place(number), content)).await;
    }
    for direction in BOTH {
        let sort = Sort { direction, limit: 15, ..sort_by(index_of(&["n"])) };
        let page = sort_page(&*store, table, sort).await;
        let mut wanted: Vec<_> = (0..40).collect();
        if direction == Direction::Descending {
            wanted.reverse();
        }
        assert_eq!(numbers(&page.rows), wanted[..15]);
        assert!(page.next.is_some());
    }
}

/// The first and the last of many are rewritten together, while others sort all of them.
pub async fn sort_is_a_snapshot_of_a_partition(engine: &dyn Engine) {
    let (store, table) = many(engine).await;
    let ends = [place(0), place(MANY - 1)];
    let puts = |n| ends.iter().map(|key| put(table, key, number(n))).collect();
    write_all(&*store, puts(-1)).await;
    let (done, read) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let (store, done, read) = (Arc::clone(&store), Arc::clone(&done), Arc::clone(&read));
            tokio::spawn(async move {
                while !done.load(Ordering::SeqCst) {
                    let sort = Sort { limit: 3, ..sort_by(index_of(&["n"])) };
                    let page = sort_page(&*store, table, sort).await;
                    let seen: BTreeSet<_> = numbers(&page.rows).into_iter().take(2).collect();
                    assert_eq!(seen.len(), 1, "a page shows one batch, not a part: {seen:?}");
                    read.fetch_add(1, Ordering::SeqCst);
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    // For as long as it takes both of them to read some pages beside it.
    for round in 2.. {
        write_all(&*store, puts(-round)).await;
        tokio::task::yield_now().await;
        if PAGES * readers.len() <= read.load(Ordering::SeqCst)
            || readers.iter().any(JoinHandle::is_finished)
        {
            break;
        }
    }
    done.store(true, Ordering::SeqCst);
    for reader in readers {
        reader.await.expect("a reader saw what it should");
    }
}

/// Without time there is no page, never a part of what would be one; nor is there of a table or an index that is gone.
pub async fn sort_is_whole_or_refused(engine: &dyn Engine) {
    let (store, table) = many(engine).await;
    let sort = || Sort { limit: 10, ..sort_by(index_of(&["n"])) };
    let late = Sort { deadline: Instant::now(), ..sort() };
    let late = store.sort(table, late).await.expect("the sort succeeds");
    assert!(late.is_none(), "there was no time");
    let index = ready(&*store, table, "n", index_of(&["n"])).await;
    let through = scan_through(ways("n lt 50L", std::slice::from_ref(&index)).remove(0)).through;
    let narrowed = Sort { through, filter: filter("n lt 50L"), ..sort() };
    let page = sort_page(&*store, table, narrowed.clone()).await;
    assert_eq!(page.rows.len(), 10);
    store.drop_index(table, index.id).await.expect("the index can be dropped");
    assert_eq!(refusal(store.sort(table, narrowed).await).1, Conflict::IndexNotFound);
    store.drop_table(table).await.expect("the table can be dropped");
    assert_eq!(refusal(store.sort(table, sort()).await).1, Conflict::TableNotFound);
}
