//! Partitions whose PartitionKey is longer than what the index holds of a key: all their rows look alike to it, and the
//! rest of the key decides. Pages come in order all the same, with every row once.

use crate::common;
use crate::common::{command, commit, filter, key, n, number, open, page, put, scan_of, table};
use rowhouse_store::{Condition, Page, Scan, TableId, Write};
use rowhouse_store_postgres::PostgresStore;
use rowhouse_testkit::TestPostgres;
use rowhouse_types::{EntityKey, KeyRange, Position, limits};
use std::sync::Arc;
use std::time::Instant;

/// Entities of the partition that is paged through.
const ROWS: i64 = 3000;
/// Entities of a page.
const PAGE: usize = 1000;

/// Three partitions whose keys have their first 2,000 bytes in common, and one with a short key on either side.
struct Fixture {
    store: Arc<PostgresStore>,
    table: TableId,
    /// Every key with its number, in order.
    entities: Vec<(EntityKey, i64)>,
}

/// 3,072 bytes, as long as a PartitionKey can be.
fn long(last: &str) -> String {
    "名".repeat(limits::KEY_UTF16_UNITS_MAX - 1) + last
}

/// The partition with many rows.
fn middle() -> String {
    long("b")
}

/// A RowKey, now and then one as long as can be.
fn row(number: i64) -> String {
    if number % 100 == 7 {
        format!("{number:04}{}", "é".repeat(1000))
    } else {
        format!("{number:04}")
    }
}

impl Fixture {
    async fn new() -> Self {
        let store = open(&TestPostgres::shared().create_database()).await;
        let table = table(&*store).await;
        // In no order: neighbours are written far apart.
        let mut entities: Vec<_> =
            (0..ROWS).map(|n| n * 1237 % ROWS).map(|n| (key(&middle(), &row(n)), n)).collect();
        for partition in [long("a"), long("c"), "a".to_owned(), "\u{10FFFF}".to_owned()] {
            entities.extend((0..50).map(|n| (key(&partition, &row(n)), n)));
        }
        for batch in entities.chunks(limits::BATCH_OPERATIONS_MAX) {
            let put = |(key, n): &(EntityKey, i64)| put(table, key, number(*n));
            commit(&*store, batch.iter().map(put).collect()).await.expect("it is written");
        }
        entities.sort();
        Self { store, table, entities }
    }

    /// The keys in the range whose number satisfies the condition, in order.
    fn expected(&self, range: &KeyRange, is_wanted: impl Fn(i64) -> bool) -> Vec<EntityKey> {
        let within = |key: &EntityKey| {
            let at = Position::before(key.partition.as_str(), key.row.as_str());
            range.start <= at && range.end.as_ref().is_none_or(|end| at < *end)
        };
        let wanted = self.entities.iter().filter(|(key, n)| is_wanted(*n) && within(key));
        wanted.map(|(key, _)| key.clone()).collect()
    }

    /// Reads the range page by page, and how many pages that took.
    async fn read(
        &self,
        range: KeyRange,
        limit: usize,
        text: Option<&str>,
    ) -> (Vec<EntityKey>, usize) {
        let (mut found, mut pages, mut next) = (Vec::new(), 0, Some(range.start.clone()));
        while let Some(start) = next {
            let ranges = vec![KeyRange { start, ..range.clone() }];
            let page = self.page(ranges, limit, text).await;
            assert!(page.rows.len() <= limit);
            for row in page.rows.iter() {
                let row = row.expect("a page decodes");
                found.push(key(row.partition, row.row));
            }
            next = page.next;
            pages += 1;
        }
        (found, pages)
    }

    async fn page(&self, ranges: Vec<KeyRange>, limit: usize, text: Option<&str>) -> Page {
        let scan = Scan { filter: text.map(filter), limit, ..scan_of(ranges) };
        page(&*self.store, self.table, scan).await
    }
}

fn rows_between(from: &str, to: &str) -> KeyRange {
    let end = Some(Position::before(&middle(), to));
    KeyRange { start: Position::before(&middle(), from), end }
}

#[test]
fn pages_are_in_order_and_have_every_row_once() {
    common::run(async {
        let fixture = Fixture::new().await;
        let everything = |_| true;
        let ranges = [
            ("the partition", KeyRange::partition(&middle()), PAGE, 3),
            ("the whole table", KeyRange::all(), PAGE, 4),
            ("its rows between two", rows_between("1000", "2000"), 100, 10),
            ("between two that are not there", rows_between("0999x", "2000x"), 99, 11),
            (
                "up to its middle",
                KeyRange { start: Position::min(), ..rows_between("", "1500") },
                500,
                4,
            ),
            ("from its middle", KeyRange { end: None, ..rows_between("1500", "") }, 500, 4),
        ];
        for (what, range, limit, pages) in ranges {
            let began = Instant::now();
            let (found, read) = fixture.read(range.clone(), limit, None).await;
            assert!(found == fixture.expected(&range, everything), "{what}");
            assert_eq!(read, pages, "{what}");
            println!("{what}: {} rows in {read} pages, {:?}", found.len(), began.elapsed());
        }
    });
}

/// A filter, where it is asked, and which numbers satisfy it.
type Case<'a> = (&'a str, KeyRange, fn(i64) -> bool);

#[test]
fn filters_find_in_order_what_satisfies_them() {
    common::run(async {
        let fixture = Fixture::new().await;
        let third = format!("PartitionKey eq '{}' and n ge 1000L and n lt 2000L", middle());
        let cases: [Case<'_>; 4] = [
            ("n ge 1500L", KeyRange::partition(&middle()), |n| n >= 1500),
            ("n lt 40L", KeyRange::all(), |n| n < 40),
            ("RowKey gt '1000' and RowKey lt '1100'", KeyRange::partition(&middle()), |n| {
                (1001..1100).contains(&n)
            }),
            (&third, KeyRange::partition(&middle()), |n| (1000..2000).contains(&n)),
        ];
        for (text, range, is_wanted) in cases {
            let (found, _) = fixture.read(range.clone(), 100, Some(text)).await;
            assert!(found == fixture.expected(&range, is_wanted), "{text:.40}");
        }
    });
}

/// What the place to resume at names may be gone by then.
#[test]
fn a_page_resumes_where_a_row_was_deleted() {
    common::run(async {
        let mut fixture = Fixture::new().await;
        let first = fixture.page(vec![KeyRange::partition(&middle())], PAGE, None).await;
        let next = first.next.expect("there is more");
        let gone =
            fixture.expected(&KeyRange { start: next.clone(), end: None }, |_| true).remove(0);
        let delete = command(fixture.table, &gone, Condition::Exists, Write::Delete);
        commit(&*fixture.store, vec![delete]).await.expect("it is there");
        fixture.entities.retain(|(key, _)| *key != gone);
        let rest = KeyRange { start: next, ..KeyRange::partition(&middle()) };
        let (found, _) = fixture.read(rest.clone(), PAGE, None).await;
        assert!(found == fixture.expected(&rest, |_| true));
        assert_eq!(found.len(), 1999);
    });
}

/// Points of such a partition, all in one page and out of reach of each other.
#[test]
fn points_are_found_by_the_whole_key() {
    common::run(async {
        let fixture = Fixture::new().await;
        let points = [7, 8, 1007, 2999].map(|number| KeyRange::point(&middle(), &row(number)));
        let found = fixture.page(points.to_vec(), PAGE, None).await;
        let numbers: Vec<_> = found
            .rows
            .iter()
            .map(|row| n(&row.expect("a page decodes").record.to_owned()))
            .collect();
        assert_eq!(numbers, [7, 8, 1007, 2999]);
    });
}
