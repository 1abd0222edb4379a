//! Views of everything at one moment, and what is restored from them.

use super::Engine;
use super::fixture::{
    account, command, commit, get, key, n, number, open, put, scan_all, table, write, write_all,
};
use crate::{AccountId, Condition, Snapshot, TableId, Write};
use rowhouse_types::{Etag, KeyRange, Position, Record, StoredPolicy, Timestamp};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

/// All rows of a table, in pages of a few.
async fn rows(view: &dyn Snapshot, table: TableId) -> Vec<(String, String, Record)> {
    let (mut rows, mut start) = (Vec::new(), Position::before("", ""));
    loop {
        let mut scan = scan_all();
        scan.ranges = vec![KeyRange { start: start.clone(), end: None }];
        scan.limit = 7;
        let page = view.scan(table, scan).await.expect("the view can be read");
        for row in page.rows.iter() {
            let row = row.expect("the record decodes");
            rows.push((row.partition.to_owned(), row.row.to_owned(), row.record.to_owned()));
        }
        match page.next {
            Some(next) => start = next,
            None => return rows,
        }
    }
}

async fn names(view: &dyn Snapshot, account: AccountId) -> Vec<String> {
    let tables = view.tables(account).await.expect("the view can be read");
    tables.iter().map(|table| table.name.to_string()).collect()
}

/// Entities, tables, policies, accounts.
pub async fn snapshot_stays_as_it_was(engine: &dyn Engine) {
    let (store, things) = open(engine).await;
    let second = account(&*store, "second").await;
    let other = table(&*store, second.id, "Other").await;
    for index in 0..20 {
        let place = key(&(index % 3).to_string(), &format!("{index:02}"));
        write(&*store, put(things, &place, number(index))).await;
        write(&*store, put(other, &place, number(-index))).await;
    }
    let policies = vec![StoredPolicy {
        id: "p".into(),
        start: None,
        expiry: Some(Timestamp::MAX),
        permission: None,
    }];
    store.set_policies(things, policies.clone()).await.expect("set");
    let first = store.accounts().await.expect("listed")[0].id;

    let view = store.snapshot().await.expect("a view can be taken");
    let before = (rows(&*view, things).await, rows(&*view, other).await);
    assert_eq!((before.0.len(), before.1.len()), (20, 20));
    write(&*store, put(things, &key("0", "00"), number(1000))).await;
    write(&*store, put(things, &key("new", "new"), number(1000))).await;
    write(&*store, command(things, &key("1", "01"), Condition::Exists, Write::Delete)).await;
    store.set_policies(things, Vec::new()).await.expect("set");
    table(&*store, first, "Later").await;
    store.drop_table(things).await.expect("dropped");
    store.remove_account(second.id).await.expect("removed");

    assert_eq!((rows(&*view, things).await, rows(&*view, other).await), before);
    let accounts = view.accounts().await.expect("the view can be read");
    let listed: Vec<_> = accounts.iter().map(|account| account.name.as_str()).collect();
    assert_eq!(listed, ["first", "second"]);
    assert_eq!(
        (names(&*view, first).await, names(&*view, second.id).await),
        (vec!["Things".to_owned()], vec!["Other".to_owned()])
    );
    assert_eq!(view.tables(first).await.expect("read")[0].policies, policies);
    drop(view);
    let view = store.snapshot().await.expect("a view can be taken");
    assert_eq!(names(&*view, first).await, ["Later"]);
    assert_eq!(view.accounts().await.expect("read").len(), 1);
}

/// Writers raise all counters of a partition, or of all, in one batch; every view must show equal ones.
async fn counters_are_equal(engine: &dyn Engine, partitions: &[&str]) {
    let (store, table) = open(engine).await;
    let keys: Vec<_> =
        partitions.iter().flat_map(|it| ["a", "b"].map(|row| key(it, row))).collect();
    let all = |count: i64| keys.iter().map(|it| put(table, it, number(count))).collect();
    write_all(&*store, all(0)).await;
    let (stop, written) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicI64::new(0)));
    let (writer, told, keys) = (Arc::clone(&store), Arc::clone(&stop), keys.clone());
    let count = Arc::clone(&written);
    let writing = tokio::spawn(async move {
        while !told.load(Ordering::SeqCst) {
            let next = count.load(Ordering::SeqCst) + 1;
            let commands = keys.iter().map(|it| put(table, it, number(next))).collect();
            commit(&*writer, commands).await.expect("the batch succeeds");
            count.store(next, Ordering::SeqCst);
        }
    });
    for _ in 0..20 {
        let before = written.load(Ordering::SeqCst);
        while written.load(Ordering::SeqCst) == before && !writing.is_finished() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let view = store.snapshot().await.expect("a view can be taken");
        let found = rows(&*view, table).await;
        tokio::task::yield_now().await;
        let again = rows(&*view, table).await;
        assert_eq!(found, again, "the view does not move");
        let counts: Vec<_> = found.iter().map(|(_, _, record)| n(record)).collect();
        assert!(counts.iter().all(|count| *count == counts[0]), "{counts:?}");
        assert!(before < counts[0], "what was answered is in it");
    }
    stop.store(true, Ordering::SeqCst);
    writing.await.expect("the writer does not panic");
}

/// Batches within a partition.
pub async fn snapshot_cuts_no_batch(engine: &dyn Engine) {
    counters_are_equal(engine, &["one"]).await;
}

/// Batches over partitions.
pub async fn snapshot_is_one_moment(engine: &dyn Engine) {
    counters_are_equal(engine, &["one", "two"]).await;
}

/// Past, and ahead of the clock.
pub async fn restored_records_keep_their_timestamps(engine: &dyn Engine) {
    let (store, table) = open(engine).await;
    let now = write(&*store, put(table, &key("now", ""), number(0))).await;
    let old = Timestamp::from_ticks(now.ticks() - 1_000_000_000).expect("in range");
    let ahead = Timestamp::from_ticks(now.ticks() + 36_000_000_000).expect("in range");
    let restore = |name: &str, at: Timestamp| {
        let mut record = number(7);
        record.stamp(at);
        command(table, &key(name, "r"), Condition::Absent, Write::Restore(record))
    };
    let commands = vec![restore("old", old), restore("ahead", ahead)];
    let committed = commit(&*store, commands).await.expect("restored");
    assert_eq!(committed.timestamps, [old, ahead]);
    for (name, at) in [("old", old), ("ahead", ahead)] {
        let record = get(&*store, table, &key(name, "r")).await.expect("it is there");
        assert_eq!((record.as_ref().timestamp(), n(&record)), (at, 7));
    }
    let again = commit(&*store, vec![restore("old", ahead)]).await;
    assert!(again.is_err(), "its condition holds as for any other write");
    let tag = Condition::Matches(Etag::new(old));
    let changed = command(table, &key("old", "r"), tag, Write::Put(number(8)));
    let later = write(&*store, changed).await;
    assert!(later > ahead, "{later:?} is later than all that was restored");
    let Some(store) = engine.reopen(store).await else { return };
    let later_still = write(&*store, put(table, &key("new", ""), number(0))).await;
    assert!(later_still > later);
}
