//! The changes that a store keeps.

use super::Engine;
use super::fixture::{
    command, commit, key, n, number, open, put, read_all, refusal, table, write, write_all,
};
use crate::{Change, Changes, ChangesWanted, Condition, Conflict, Snapshot, Store, TableId, Write};
use rowhouse_types::{EntityKey, Record, Timestamp};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

const DAY: Duration = Duration::from_hours(24);

fn wanted(after: u64) -> ChangesWanted {
    ChangesWanted {
        after,
        table: None,
        limit: usize::MAX,
        max_bytes: usize::MAX,
        wait_until: Instant::now(),
    }
}

/// Keeps changes from now on; the place of now.
async fn keep(store: &dyn Store) -> u64 {
    store.keep_changes(Some(DAY)).await.expect("changes can be kept");
    store.kept_changes().await.expect("told").expect("they are kept").until
}

/// Everything after the place, in as many answers as it takes.
async fn all(store: &dyn Store, wanted: ChangesWanted) -> Vec<Change> {
    let until = store.kept_changes().await.expect("told").expect("they are kept").until;
    let (mut all, mut after) = (Vec::new(), wanted.after);
    while after < until {
        let found = changes(store, ChangesWanted { after, ..wanted.clone() }).await;
        assert!(after < found.next, "every answer goes on");
        after = found.next;
        all.extend(found.changes);
    }
    all
}

async fn changes(store: &dyn Store, wanted: ChangesWanted) -> Changes {
    store.changes(wanted).await.expect("the changes can be read")
}

/// Whether they can be read after a place, and if not, why.
async fn refused(store: &dyn Store, after: u64) -> Option<Conflict> {
    match store.changes(wanted(after)).await {
        Ok(_) => None,
        result => Some(refusal(result).1),
    }
}

/// Row key and number, if it is there.
fn short(change: &Change) -> (&str, Option<i64>) {
    (change.key.row.as_str(), change.record.as_ref().map(n))
}

/// Off, on, longer, off, on again.
pub async fn changes_are_kept_when_asked(engine: &dyn Engine) {
    let (store, table) = open(engine).await;
    let place = key("p", "r");
    write(&*store, put(table, &place, number(0))).await;
    assert_eq!(store.kept_changes().await.expect("told"), None);
    assert_eq!(refused(&*store, 0).await, Some(Conflict::ChangesNotKept));

    let begin = keep(&*store).await;
    assert!(all(&*store, wanted(begin)).await.is_empty(), "what was before is not told");
    write(&*store, put(table, &place, number(1))).await;
    store.keep_changes(Some(2 * DAY)).await.expect("set");
    let told = all(&*store, wanted(begin)).await;
    assert_eq!(told.iter().map(short).collect::<Vec<_>>(), [("r", Some(1))]);

    store.keep_changes(None).await.expect("set");
    assert_eq!(store.kept_changes().await.expect("told"), None);
    assert_eq!(refused(&*store, begin).await, Some(Conflict::ChangesNotKept));
    write(&*store, put(table, &place, number(2))).await;
    let again = keep(&*store).await;
    assert_eq!(refused(&*store, begin).await, Some(Conflict::ChangesNotKept), "there is a gap");
    write(&*store, put(table, &place, number(3))).await;
    let told = all(&*store, wanted(again)).await;
    assert_eq!(told.iter().map(short).collect::<Vec<_>>(), [("r", Some(3))]);
}

/// Every kind of write, refused ones, several tables, small answers.
pub async fn every_change_is_told_in_order(engine: &dyn Engine) {
    let (store, first) = open(engine).await;
    let account = store.accounts().await.expect("listed")[0].id;
    let second = table(&*store, account, "Second").await;
    let begin = keep(&*store).await;
    let of = |table, row: &str, condition, write| command(table, &key("p", row), condition, write);
    let inserted = write(&*store, of(first, "a", Condition::Absent, Write::Put(number(1)))).await;
    let merged = write(&*store, of(first, "a", Condition::Exists, Write::Merge(number(2)))).await;
    let refused = of(first, "a", Condition::Absent, Write::Put(number(9)));
    refusal(commit(&*store, vec![refused]).await);
    let batch = vec![
        of(first, "b", Condition::Any, Write::Put(number(3))),
        of(first, "c", Condition::Absent, Write::Put(number(4))),
        of(first, "a", Condition::Exists, Write::Delete),
    ];
    write_all(&*store, batch).await;
    let half = vec![
        of(first, "b", Condition::Any, Write::Put(number(9))),
        of(first, "none", Condition::Exists, Write::Delete),
    ];
    refusal(commit(&*store, half).await);
    write(&*store, of(second, "a", Condition::Any, Write::Put(number(5)))).await;
    let mut saved = number(6);
    saved.stamp(Timestamp::default());
    write(&*store, of(second, "b", Condition::Absent, Write::Restore(saved))).await;

    let told = all(&*store, wanted(begin)).await;
    let of_table = |table: TableId| {
        told.iter().filter(|change| change.table == table).map(short).collect::<Vec<_>>()
    };
    let mut batch = of_table(first).split_off(2);
    batch.sort_unstable();
    assert_eq!(of_table(first)[..2], [("a", Some(1)), ("a", Some(2))]);
    assert_eq!(batch, [("a", None), ("b", Some(3)), ("c", Some(4))]);
    assert_eq!(of_table(second), [("a", Some(5)), ("b", Some(6))]);
    assert_eq!((told[0].at, told[1].at), (inserted, merged));
    let restored = told.iter().find(|change| short(change) == ("b", Some(6)));
    assert_eq!(restored.map(|change| change.at), Some(Timestamp::default()));

    // One at a time, and of one table.
    let few = ChangesWanted { limit: 1, max_bytes: 1, ..wanted(begin) };
    let again = all(&*store, few.clone()).await;
    assert_eq!(
        again.iter().map(short).collect::<Vec<_>>(),
        told.iter().map(short).collect::<Vec<_>>()
    );
    let one = all(&*store, ChangesWanted { table: Some(second), ..few }).await;
    assert_eq!(one.iter().map(short).collect::<Vec<_>>(), of_table(second));
}

type Contents = BTreeMap<EntityKey, Record>;

async fn contents(store: &dyn Store, table: TableId) -> Contents {
    let rows = read_all(store, table, 100).await;
    rows.into_iter().map(|(partition, row, record)| (key(&partition, &row), record)).collect()
}

fn apply(contents: &mut Contents, changes: Vec<Change>) {
    for change in changes {
        match change.record {
            Some(mut record) => {
                record.stamp(Timestamp::default());
                contents.insert(change.key, record)
            }
            None => contents.remove(&change.key),
        };
    }
}

/// With writers all the time.
pub async fn changes_of_a_snapshot_follow_it(engine: &dyn Engine) {
    let (store, table) = open(engine).await;
    keep(&*store).await;
    let writers = start_writers(&store, table, 4, 60);
    let mut view = BTreeMap::new();
    let mut after = 0;
    for round in 0..10 {
        tokio::time::sleep(Duration::from_millis(3)).await;
        let frozen = store.snapshot().await.expect("a view can be taken");
        let mut scan = super::fixture::scan_all();
        scan.limit = 10_000;
        let page = frozen.scan(table, scan).await.expect("the view can be read");
        let earlier = std::mem::take(&mut view);
        view = page
            .rows
            .iter()
            .map(|row| {
                let row = row.expect("the record decodes");
                let mut record = row.record.to_owned();
                record.stamp(Timestamp::default());
                (key(row.partition, row.row), record)
            })
            .collect();
        if round > 0 {
            assert_eq!(brought_to(&*frozen, earlier, after).await, view, "round {round}");
        }
        after = frozen.place();
    }
    for writer in writers {
        writer.await.expect("the writer does not panic");
    }
    apply(&mut view, all(&*store, wanted(after)).await);
    assert_eq!(view, contents(&*store, table).await);
}

/// What there was at an earlier place, and then what the view says was changed, in small answers.
async fn brought_to(view: &dyn Snapshot, mut contents: Contents, mut after: u64) -> Contents {
    loop {
        let some = ChangesWanted { limit: 5, ..wanted(after) };
        let found = view.changes(some).await.expect("the view can be read");
        apply(&mut contents, found.changes);
        if found.next <= after {
            return contents;
        }
        after = found.next;
    }
}

/// Each writes, changes and deletes entities of its own and of all.
fn start_writers(
    store: &Arc<dyn Store>,
    table: TableId,
    writers: i64,
    rounds: i64,
) -> Vec<tokio::task::JoinHandle<()>> {
    let start = |writer: i64| {
        let store = Arc::clone(store);
        tokio::spawn(async move {
            for round in 0..rounds {
                let own = key(&format!("w{writer}"), &(round % 7).to_string());
                let shared = key("shared", &(round % 3).to_string());
                let count = number(writer * 1_000_000 + round);
                match round % 4 {
                    3 => {
                        let gone = command(table, &own, Condition::Exists, Write::Delete);
                        // Gone already, at times.
                        let _ = commit(&*store, vec![gone]).await;
                    }
                    2 => {
                        let other = key(&format!("w{writer}"), "batch");
                        let both = vec![put(table, &own, count.clone()), put(table, &other, count)];
                        write_all(&*store, both).await;
                    }
                    _ => {
                        write(&*store, put(table, &own, count.clone())).await;
                        write(&*store, put(table, &shared, count)).await;
                    }
                }
            }
        })
    };
    (0..writers).map(start).collect()
}

/// The wait ends with the change, not long after; without one it ends in time.
pub async fn changes_are_waited_for(engine: &dyn Engine) {
    let (store, table) = open(engine).await;
    let begin = keep(&*store).await;
    let asked = Instant::now();
    let soon = asked + Duration::from_millis(50);
    let none = changes(&*store, ChangesWanted { wait_until: soon, ..wanted(begin) }).await;
    assert!(none.changes.is_empty() && asked.elapsed() >= Duration::from_millis(50));
    let late = Instant::now() + Duration::from_mins(5);
    let waiting = {
        let store = Arc::clone(&store);
        let wanted = ChangesWanted { wait_until: late, ..wanted(none.next) };
        tokio::spawn(async move { store.changes(wanted).await })
    };
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!waiting.is_finished());
    write(&*store, put(table, &key("p", "r"), number(1))).await;
    let found = tokio::time::timeout(Duration::from_mins(1), waiting).await;
    let found = found.expect("it does not wait for ever").expect("no panic").expect("read");
    assert_eq!(found.changes.iter().map(short).collect::<Vec<_>>(), [("r", Some(1))]);
}

/// A consumer follows writers; what it has heard is, for every entity, what it became in order.
pub async fn concurrent_changes_are_all_told(engine: &dyn Engine) {
    let (store, table) = open(engine).await;
    let begin = keep(&*store).await;
    let writers = start_writers(&store, table, 8, 40);
    let (mut heard, mut after) = (Vec::new(), begin);
    loop {
        let over = writers.iter().all(tokio::task::JoinHandle::is_finished);
        let wait_until = Instant::now() + Duration::from_millis(5);
        let some = ChangesWanted { limit: 3, wait_until, ..wanted(after) };
        let found = changes(&*store, some).await;
        let nothing = found.changes.is_empty() && found.next == after;
        after = found.next;
        heard.extend(found.changes);
        if over
            && nothing
            && after == store.kept_changes().await.expect("told").expect("kept").until
        {
            break;
        }
    }
    let once: Vec<_> = heard.iter().map(|change| (change.key.clone(), change.at)).collect();
    let again = all(&*store, wanted(begin)).await;
    let twice: Vec<_> = again.iter().map(|change| (change.key.clone(), change.at)).collect();
    assert!(once == twice, "told the same, once, whenever it is asked");
    let mut latest: BTreeMap<&EntityKey, Timestamp> = BTreeMap::new();
    for change in &heard {
        let before = latest.insert(&change.key, change.at);
        assert!(before.is_none_or(|before| before < change.at), "{change:?} after {before:?}");
    }
    let mut view = Contents::new();
    apply(&mut view, heard.clone());
    assert_eq!(view, contents(&*store, table).await);
}

/// By the clock of the store, or by that of its database: both go on here.
pub async fn old_changes_are_forgotten(engine: &dyn Engine) {
    const KEPT: Duration = Duration::from_secs(4);
    let (store, table) = open(engine).await;
    store.keep_changes(Some(KEPT)).await.expect("changes can be kept");
    let begin = store.kept_changes().await.expect("told").expect("they are kept").until;
    write(&*store, put(table, &key("p", "old"), number(1))).await;
    let between = store.kept_changes().await.expect("told").expect("kept").until;
    let told = all(&*store, wanted(begin)).await;
    assert_eq!(told.iter().map(short).collect::<Vec<_>>(), [("old", Some(1))]);
    pass(engine, KEPT / 2).await;
    let made = Instant::now();
    write(&*store, put(table, &key("p", "new"), number(2))).await;
    while refused(&*store, begin).await.is_none() {
        assert!(made.elapsed() < Duration::from_mins(1), "forgotten in the background");
        pass(engine, Duration::from_millis(100)).await;
    }
    let kept = store.kept_changes().await.expect("told").expect("they are kept");
    if made.elapsed() < KEPT {
        assert_eq!((begin < kept.after, kept.after <= between), (true, true), "{kept:?}");
        let told = all(&*store, wanted(between)).await;
        assert_eq!(told.iter().map(short).collect::<Vec<_>>(), [("new", Some(2))]);
    }
    assert_eq!(refused(&*store, begin).await, Some(Conflict::ChangesNotKept));
    assert_eq!(refused(&*store, kept.until + 1).await, Some(Conflict::ChangesNotKept), "not yet");
}

/// Lets time pass on every clock.
async fn pass(engine: &dyn Engine, time: Duration) {
    engine.clock().advance(time);
    tokio::time::sleep(time).await;
}

/// Changes and setting.
pub async fn kept_changes_survive_reopening(engine: &dyn Engine) {
    let (store, table) = open(engine).await;
    let begin = keep(&*store).await;
    write(&*store, put(table, &key("p", "a"), number(1))).await;
    let Some(store) = engine.reopen(store).await else { return };
    write(&*store, put(table, &key("p", "b"), number(2))).await;
    let told = all(&*store, wanted(begin)).await;
    assert_eq!(told.iter().map(short).collect::<Vec<_>>(), [("a", Some(1)), ("b", Some(2))]);
}
