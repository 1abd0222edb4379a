//! Indexes that are built in small steps, interrupted, dropped and damaged.

use super::common::{commit, key, put, record, table, write};
use super::{eventually, fill, open};
use crate::check;
use crate::tuning::Tuning;
use rowhouse_query::index::Span;
use rowhouse_store::conformance::fixture;
use rowhouse_store::conformance::indexed::{
    assert_agrees, built, declare, index_of, ready, scan_through, unique_of,
};
use rowhouse_store::{Batch, Condition, Conflict, IndexState, Lookup, Scan, Store, StoreError};
use rowhouse_store::{Take, Ttl, Write};
use rowhouse_types::{Direction, ValueRef};
use std::path::Path;
use std::time::{Duration, Instant};

/// Chunks and steps that are soon done.
pub(super) fn small_steps() -> Tuning {
    Tuning { build_rows: 20, build_chunk_rows: 300, ..Tuning::default() }
}

/// A connection whose pages get their checksums.
fn writer(directory: &Path) -> rusqlite::Connection {
    crate::schema::open(&directory.join("rowhouse.db"), rusqlite::OpenFlags::default()).unwrap()
}

fn count(directory: &Path, sql: &str) -> i64 {
    let conn = rusqlite::Connection::open(directory.join("rowhouse.db")).unwrap();
    conn.query_row(sql, [], |row| row.get(0)).unwrap()
}

/// Whatever was reached is kept, what was written meanwhile is in, and the counts go on.
#[tokio::test]
async fn a_build_survives_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), Tuning::default());
    let things = table(&*store, "Things").await;
    fill(&store, things, 30, 10).await;
    store.close().await.unwrap();
    drop(store);

    let slow = Tuning { sweep_pause: Duration::from_millis(5), ..small_steps() };
    let store = open(directory.path(), slow);
    let keys = index_of(&["Number"]);
    let index = store.create_index(things, &"n".parse().unwrap(), keys).await.unwrap();
    assert_eq!(index.state, IndexState::Building);
    let place = "SELECT count(*) FROM indexes WHERE entered_pk IS NOT NULL";
    eventually("a chunk is entered", || count(directory.path(), place) == 1).await;
    let delete = |row| write(things, "7", row, Condition::Exists, Write::Delete);
    commit(
        &*store,
        vec![put(things, "0", "0", record(-1, 0)), put(things, "z", "z", record(5, 0))],
    )
    .await;
    commit(&*store, vec![delete("5"), delete("50"), put(things, "7", "51", record(99, 0))]).await;
    let halfway = store.built(things, index.id).await.unwrap();
    assert_eq!(halfway.state, IndexState::Building);
    assert!((300..3000).contains(&halfway.examined), "{halfway:?}");
    assert_eq!(halfway.of, Some(3000));
    store.close().await.unwrap();
    drop(store);
    let report = check(directory.path(), &mut |_| {}).unwrap();
    assert_eq!(report.problems, Vec::<String>::new(), "half built is in order");
    let entered = count(directory.path(), "SELECT count(*) FROM entries");
    assert!((300..2990).contains(&entered), "{entered} entries");

    let store = open(directory.path(), small_steps());
    let done = built(&*store, things, index.id).await;
    assert_eq!(done.state, IndexState::Ready);
    assert!((2990..=3001).contains(&done.examined), "{done:?}");
    assert_agrees(&*store, things, &index, "after a restart").await;
    store.close().await.unwrap();
    assert_eq!(check(directory.path(), &mut |_| {}).unwrap().problems, Vec::<String>::new());
}

/// Those of a dropped index, of a dropped table, and of one that turned out not to be unique.
#[tokio::test]
async fn entries_that_nobody_needs_are_swept() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), Tuning { sweep_rows: 70, ..small_steps() });
    let (things, others) = (table(&*store, "Things").await, table(&*store, "Others").await);
    fill(&store, things, 10, 10).await;
    fill(&store, others, 10, 10).await;
    let kept = ready(&*store, things, "kept", index_of(&["Number"])).await;
    let dropped = ready(&*store, things, "dropped", index_of(&["RowKey"])).await;
    ready(&*store, others, "number", index_of(&["Number"])).await;
    let repeated = declare(&*store, things, "repeated", unique_of(&["Number"])).await;
    assert_eq!(repeated.state, IndexState::NotUnique);
    store.drop_index(things, dropped.id).await.unwrap();
    store.drop_table(others).await.unwrap();
    let left = || count(directory.path(), "SELECT count(*) FROM entries");
    eventually("only what is needed is left", || left() == 1000).await;
    let pending = || count(directory.path(), "SELECT count(*) FROM dropped_indexes");
    eventually("nothing is left to do", || pending() == 0).await;
    assert_agrees(&*store, things, &kept, "after the sweep").await;
    // Nothing is refused by it and nothing is entered into it.
    commit(&*store, vec![put(things, "0", "more", record(5, 0))]).await;
    assert_eq!(left(), 1001);
    store.drop_index(things, repeated.id).await.unwrap();
    eventually("that is swept too", || pending() == 0).await;
    store.close().await.unwrap();
    assert_eq!(check(directory.path(), &mut |_| {}).unwrap().problems, Vec::<String>::new());
}

/// A lone command that is refused has written nothing, nor has one of a batch; and existence comes first.
#[tokio::test]
async fn a_refused_value_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), Tuning::default());
    let things = table(&*store, "Things").await;
    let unique = ready(&*store, things, "unique", unique_of(&["Number"])).await;
    // Within the row and beside it.
    for (row, size) in [("small", 10), ("large", 5_000)] {
        let number = i64::try_from(size).unwrap();
        let insert = |row: &str, number| {
            write(things, "p", row, Condition::Absent, Write::Put(record(number, size)))
        };
        commit(&*store, vec![insert(row, number)]).await;
        let refused = async |command, wanted| match store.commit(Batch::of(command)).await {
            Err(StoreError::Rejected { reason, .. }) => assert_eq!(reason, wanted),
            other => panic!("{other:?}"),
        };
        refused(insert("twin", number), Conflict::NotUnique).await;
        refused(insert(row, number), Conflict::EntityExists).await;
        refused(insert(row, -1), Conflict::EntityExists).await;
        let merge = Write::Merge(record(number, 0));
        refused(write(things, "p", "twin", Condition::Any, merge.clone()), Conflict::NotUnique)
            .await;
        refused(write(things, "p", "twin", Condition::Exists, merge), Conflict::EntityNotFound)
            .await;
        refused(put(things, "p", "twin", record(number, size)), Conflict::NotUnique).await;
        assert!(store.get(things, &key("p", "twin")).await.unwrap().is_none());
    }
    assert_agrees(&*store, things, &unique, "after refusals").await;
    store.close().await.unwrap();
    let report = check(directory.path(), &mut |_| {}).unwrap();
    assert_eq!((report.entities, report.problems), (2, Vec::new()));
}

/// What is damaged is left out, said by a check, and keeps nobody from the rest.
#[tokio::test]
async fn damage_does_not_hold_up_a_build() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), Tuning::default());
    let things = table(&*store, "Things").await;
    fill(&store, things, 5, 10).await;
    commit(&*store, vec![put(things, "large", "one", record(1, 5_000))]).await;
    store.close().await.unwrap();
    drop(store);
    let conn = writer(directory.path());
    conn.execute_batch("UPDATE entities SET record = x'00' WHERE rk = '5'; DELETE FROM large")
        .unwrap();
    drop(conn);
    let store = open(directory.path(), small_steps());
    ready(&*store, things, "n", index_of(&["Number"])).await;
    assert_eq!(count(directory.path(), "SELECT count(*) FROM entries"), 495);
}

/// A lone command that takes the values of what has expired leaves nothing if that cannot be removed.
#[tokio::test]
async fn damage_of_what_expired_leaves_commands_whole() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), Tuning::default());
    let things = table(&*store, "Things").await;
    let of = |number, flag| {
        fixture::record(&[("Number", ValueRef::Int64(number)), ("Flag", ValueRef::Boolean(flag))])
    };
    ready(&*store, things, "unique", unique_of(&["Number"])).await;
    ready(&*store, things, "flag", index_of(&["Flag"])).await;
    commit(&*store, vec![put(things, "p", "old", of(1, true))]).await;
    commit(&*store, vec![put(things, "p", "new", of(2, true))]).await;
    store.close().await.unwrap();
    drop(store);
    let conn = writer(directory.path());
    let sql = "SELECT record FROM entities WHERE rk = 'old'";
    let mut bytes: Vec<u8> = conn.query_row(sql, [], |row| row.get(0)).unwrap();
    assert_eq!(bytes.pop(), Some(1), "the flag");
    bytes.push(2);
    conn.execute("UPDATE entities SET record = ?1 WHERE rk = 'old'", [&bytes]).unwrap();
    drop(conn);

    let store = open(directory.path(), Tuning::default());
    let ttl = Ttl { property: None, after: Duration::from_secs(1) };
    store.set_ttl(things, Some(ttl)).await.unwrap();
    tokio::time::sleep(Duration::from_millis(1100)).await;
    commit(&*store, vec![put(things, "p", "new", of(2, true))]).await;
    assert!(store.get(things, &key("p", "new")).await.unwrap().is_some());
    let sequence = "SELECT sequence FROM meta";
    let before = count(directory.path(), sequence);
    let refused = store.commit(Batch::of(put(things, "p", "new", of(1, true)))).await;
    assert!(matches!(refused, Err(StoreError::Corrupt(_))), "{refused:?}");
    assert_eq!(count(directory.path(), sequence), before);
    store.set_ttl(things, None).await.unwrap();
    store.close().await.unwrap();
    drop(store);
    let store = open(directory.path(), Tuning::default());
    let new = store.get(things, &key("p", "new")).await.unwrap().unwrap();
    assert_eq!(new.as_ref().get("Number").unwrap(), Some(ValueRef::Int64(2)));
}

/// However little time there is: through ranges of entries every page gets somewhere, and nothing is lost or repeated.
#[tokio::test]
async fn short_of_time_a_lookup_reads_on() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), Tuning::default());
    let things = table(&*store, "Things").await;
    fill(&store, things, 20, 10).await;
    let index = ready(&*store, things, "n", index_of(&["Number"])).await;
    let parts = vec![Lookup { index: index.id, spans: vec![Span::all()] }];
    for micros in [0, 50, 500, 5_000, 500_000] {
        for direction in [Direction::Ascending, Direction::Descending] {
            for take in [Take::Entities, Take::Count] {
                let mut ranges = scan_through(Vec::new()).ranges;
                let (mut found, mut pages) = (0, 0_u32);
                loop {
                    let deadline = Instant::now() + Duration::from_micros(micros);
                    let through = Some(parts.clone());
                    let scan = Scan {
                        through,
                        direction,
                        take,
                        deadline,
                        limit: 700,
                        ..fixture::scan_of(ranges.clone())
                    };
                    let page = store.scan(things, scan).await.unwrap();
                    found += page.rows.len() as u64 + page.counted;
                    pages += 1;
                    let Some(next) = page.next else { break };
                    let rest = direction.rest(&next);
                    ranges = ranges.iter().filter_map(|range| range.intersect(&rest)).collect();
                }
                assert_eq!(found, 2000, "{micros} µs, {direction:?}, {take:?}, {pages} pages");
            }
        }
    }
}
