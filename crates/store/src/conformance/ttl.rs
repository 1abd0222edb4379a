//! Entities that expire: what nobody sees any more, and that it is removed.

use super::Engine;
use super::fixture::{
    command, commit, get, key, keys, number, open, page, put, read_all, record, refusal, scan_all,
    table, write, write_all,
};
use super::indexed::{
    assert_agrees, entries_of, index_of, part, ready, scan_through, unique_of, walk_all, walk_of,
};
use crate::{
    Change, ChangesWanted, Command, Condition, Conflict, Scan, Store, TableId, Take, Ttl, Write,
};
use rowhouse_env::Clock as _;
use rowhouse_query::index::Span;
use rowhouse_types::{EntityKey, Etag, Record, Timestamp, ValueRef};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const HOUR: Duration = Duration::from_hours(1);
/// No engine takes longer to remove what a test has written.
const SWEEP_TIME: Duration = Duration::from_mins(2);

/// So long after the Timestamp.
fn after(after: Duration) -> Ttl {
    Ttl { property: None, after }
}

/// When the property says.
fn by(property: &str, after: Duration) -> Ttl {
    Ttl { property: Some(property.into()), after }
}

async fn set(store: &dyn Store, table: TableId, ttl: Ttl) {
    store.set_ttl(table, Some(ttl)).await.expect("it can be set");
}

async fn unset(store: &dyn Store, table: TableId) {
    store.set_ttl(table, None).await.expect("it can be set");
}

/// So many seconds from now, or before.
fn from_now(engine: &dyn Engine, seconds: i64) -> Timestamp {
    let ticks = engine.clock().now().ticks().saturating_add_signed(seconds * 10_000_000);
    Timestamp::from_ticks(ticks).expect("a time")
}

fn place(row: &str) -> EntityKey {
    key("p", row)
}

fn insert(table: TableId, row: &str, record: Record) -> Command {
    command(table, &place(row), Condition::Absent, Write::Put(record))
}

async fn ttl_of(store: &dyn Store, name: &str) -> Option<Ttl> {
    let account = store.accounts().await.expect("listed")[0].id;
    let name = name.parse().expect("a legal table name");
    let table = store.table(account, &name).await.expect("looked up").expect("it is there");
    let listed = store.tables(account, None, 1000).await.expect("listed");
    let same = listed.iter().find(|listed| listed.id == table.id).expect("it is listed");
    assert_eq!(same.ttl, table.ttl, "{name}");
    table.ttl.clone()
}

/// Set, set again, dropped with its table, and after a restart.
pub async fn ttl_is_kept_as_set(engine: &dyn Engine) {
    let (mut store, things) = open(engine).await;
    let account = store.accounts().await.expect("listed")[0].id;
    let odd = table(&*store, account, "Odd").await;
    assert_eq!(ttl_of(&*store, "Things").await, None);
    let month = after(30 * 24 * HOUR);
    set(&*store, things, month.clone()).await;
    assert_eq!(ttl_of(&*store, "Things").await.as_ref(), Some(&month));
    let by_time = by("Größe_é", Duration::from_nanos(1_234_567_800));
    set(&*store, odd, by_time.clone()).await;
    set(&*store, odd, by_time.clone()).await;
    if let Some(reopened) = engine.reopen(Arc::clone(&store)).await {
        store = reopened;
    }
    assert_eq!(ttl_of(&*store, "Things").await.as_ref(), Some(&month));
    assert_eq!(ttl_of(&*store, "Odd").await.as_ref(), Some(&by_time));
    unset(&*store, things).await;
    assert_eq!(ttl_of(&*store, "Things").await, None);
    assert_eq!(ttl_of(&*store, "Odd").await.as_ref(), Some(&by_time));

    store.drop_table(odd).await.expect("dropped");
    assert_eq!(refusal(store.set_ttl(odd, None).await), (0, Conflict::TableNotFound));
    let never = TableId(1 << 40);
    assert_eq!(refusal(store.set_ttl(never, Some(month)).await), (0, Conflict::TableNotFound));
    table(&*store, account, "Odd").await;
    assert_eq!(ttl_of(&*store, "Odd").await, None);
}

/// By every way to read, and every condition.
pub async fn expired_entities_do_not_exist(engine: &dyn Engine) {
    let (store, table) = open(engine).await;
    let index = ready(&*store, table, "by-n", index_of(&["n"])).await;
    for at in 0..4 {
        write(&*store, insert(table, &format!("old{at}"), number(at))).await;
    }
    let tag = write(&*store, insert(table, "tagged", number(4))).await;
    engine.clock().advance(2 * HOUR);
    write(&*store, insert(table, "young", number(2))).await;
    assert_eq!(read_all(&*store, table, 2).await.len(), 6, "nothing has expired yet");
    set(&*store, table, after(HOUR)).await;

    assert!(get(&*store, table, &place("old0")).await.is_none());
    assert!(get(&*store, table, &place("young")).await.is_some());
    for limit in [1, 2, 1000] {
        let all = read_all(&*store, table, limit).await;
        assert_eq!(all.len(), 1, "pages of {limit}");
    }
    let counting = Scan { take: Take::Count, ..scan_all() };
    assert_eq!(page(&*store, table, counting.clone()).await.counted, 1);
    let whole = || vec![part(&index, vec![Span::all()])];
    assert_eq!(keys(&page(&*store, table, scan_through(whole())).await), ["p/young"]);
    let counting = Scan { take: Take::Count, ..scan_through(whole()) };
    assert_eq!(page(&*store, table, counting).await.counted, 1);
    assert_eq!(walk_all(&*store, table, walk_of(&index)).await, ["p/young"]);
    assert!(store.weigh(table, entries_of(whole()), 100).await.expect("weighed") >= 1);

    let gone = |condition, write| command(table, &place("old0"), condition, write);
    let exists = Condition::Exists;
    for refused in [
        gone(exists, Write::Put(number(9))),
        gone(exists, Write::Merge(number(9))),
        gone(exists, Write::Delete),
        command(table, &place("tagged"), Condition::Matches(Etag::new(tag)), Write::Delete),
        command(table, &place("tagged"), Condition::Matches(Etag::new(tag)), Write::Put(number(9))),
    ] {
        let refusal = refusal(commit(&*store, vec![refused]).await);
        assert_eq!(refusal, (0, Conflict::EntityNotFound));
    }
    write(&*store, gone(Condition::Any, Write::Delete)).await;
    // A merge finds nothing to keep.
    let patch = record(&[("m", ValueRef::Int64(7))]);
    let merged = command(table, &place("old1"), Condition::Any, Write::Merge(patch.clone()));
    write(&*store, merged).await;
    let found = get(&*store, table, &place("old1")).await.expect("it is there again");
    assert_eq!(super::fixture::content(&found), patch);
    write(&*store, insert(table, "old2", number(20))).await;
    write(&*store, put(table, &place("old3"), number(30))).await;
    let batch = vec![insert(table, "tagged", number(40)), insert(table, "new", number(50))];
    write_all(&*store, batch).await;
    let again = insert(table, "tagged", number(41));
    assert_eq!(refusal(commit(&*store, vec![again]).await), (0, Conflict::EntityExists));
    let there: Vec<_> = read_all(&*store, table, 1000).await;
    let there: Vec<_> = there.iter().map(|(_, row, _)| row.as_str()).collect();
    assert_eq!(there, ["new", "old1", "old2", "old3", "tagged", "young"]);
    let walked = walk_all(&*store, table, walk_of(&index)).await;
    assert_eq!(walked, ["p/young", "p/old2", "p/old3", "p/tagged", "p/new"]);
}

/// With and without an age on top.
pub async fn entities_expire_by_a_property(engine: &dyn Engine) {
    let (store, table) = open(engine).await;
    let until = |seconds: i64| record(&[("Until", ValueRef::DateTime(from_now(engine, seconds)))]);
    let text = engine.clock().now().iso7();
    let rows = [
        ("past", until(-1)),
        ("now", until(0)),
        ("soon", until(1)),
        ("late", until(10)),
        ("none", number(1)),
        ("text", record(&[("Until", ValueRef::String(&text))])),
        ("number", record(&[("Until", ValueRef::Int64(0))])),
        ("first", record(&[("Until", ValueRef::DateTime(Timestamp::EDM_MIN))])),
        ("last", record(&[("Until", ValueRef::DateTime(Timestamp::MAX))])),
    ];
    for (row, record) in rows {
        write(&*store, insert(table, row, record)).await;
    }
    let there = async || -> BTreeSet<String> {
        read_all(&*store, table, 3).await.into_iter().map(|(_, row, _)| row).collect()
    };
    let expect = |gone: &[&str]| -> BTreeSet<String> {
        let all = ["past", "now", "soon", "late", "none", "text", "number", "first", "last"];
        all.iter().filter(|row| !gone.contains(row)).map(|row| (*row).to_owned()).collect()
    };
    // Longest first: what one setting has removed the next does not bring back.
    set(&*store, table, by("Until", Duration::MAX)).await;
    assert_eq!(there().await, expect(&[]));
    set(&*store, table, by("Until", Duration::from_millis(500))).await;
    assert_eq!(there().await, expect(&["past", "first"]));
    set(&*store, table, by("Until", Duration::ZERO)).await;
    assert_eq!(there().await, expect(&["past", "first", "now"]));
    engine.clock().advance(Duration::from_secs(2));
    assert_eq!(there().await, expect(&["past", "first", "now", "soon"]));
    assert!(get(&*store, table, &place("soon")).await.is_none());
    assert!(get(&*store, table, &place("late")).await.is_some());
    // It lives on when the property says so.
    let later = until(100);
    write(&*store, command(table, &place("late"), Condition::Exists, Write::Merge(later))).await;
    engine.clock().advance(Duration::from_secs(20));
    assert_eq!(there().await, expect(&["past", "first", "now", "soon"]));
    // And one that is written too late never appears.
    write(&*store, insert(table, "past", until(-5))).await;
    assert!(get(&*store, table, &place("past")).await.is_none());
    write(&*store, insert(table, "past", until(5))).await;
    assert!(get(&*store, table, &place("past")).await.is_some());
}

/// Longer, shorter and off again.
pub async fn ttl_holds_from_when_it_is_set(engine: &dyn Engine) {
    let (store, table) = open(engine).await;
    set(&*store, table, after(10 * HOUR)).await;
    write(&*store, insert(table, "a", number(1))).await;
    write(&*store, insert(table, "b", number(1))).await;
    engine.clock().advance(6 * HOUR);
    write(&*store, put(table, &place("a"), number(2))).await;
    engine.clock().advance(6 * HOUR);
    assert!(get(&*store, table, &place("a")).await.is_some(), "written again");
    assert!(get(&*store, table, &place("b")).await.is_none());
    set(&*store, table, after(24 * HOUR)).await;
    assert!(get(&*store, table, &place("a")).await.is_some());
    set(&*store, table, after(5 * HOUR)).await;
    assert!(get(&*store, table, &place("a")).await.is_none());
    write(&*store, insert(table, "c", number(3))).await;
    unset(&*store, table).await;
    engine.clock().advance(100 * HOUR);
    assert!(get(&*store, table, &place("c")).await.is_some());
    write(&*store, command(table, &place("c"), Condition::Exists, Write::Merge(number(4)))).await;
}

fn u(text: &str, n: i64) -> Record {
    record(&[("u", ValueRef::String(text)), ("n", ValueRef::Int64(n))])
}

/// One by one, in a batch, and where the holder is named by the same batch.
pub async fn expired_values_are_free(engine: &dyn Engine) {
    let (store, table) = open(engine).await;
    let unique = ready(&*store, table, "one", unique_of(&["PartitionKey", "u"])).await;
    let other = ready(&*store, table, "two", unique_of(&["PartitionKey", "n"])).await;
    for (row, text, n) in [("a", "x", 1), ("b", "y", 2), ("c", "z", 3), ("d", "w", 4)] {
        write(&*store, insert(table, row, u(text, n))).await;
    }
    engine.clock().advance(2 * HOUR);
    write(&*store, insert(table, "living", u("v", 5))).await;
    set(&*store, table, after(HOUR)).await;
    let taken = insert(table, "new", u("v", 9));
    assert_eq!(refusal(commit(&*store, vec![taken]).await), (0, Conflict::NotUnique));
    // A value of one entity, and one of another.
    write(&*store, insert(table, "new", u("x", 2))).await;
    write(&*store, put(table, &place("living"), u("x2", 1))).await;
    // One that a command takes and the next one needs, too; the holder itself comes back with another.
    let batch = vec![
        insert(table, "e", u("z", 30)),
        insert(table, "c", u("z2", 3)),
        insert(table, "f", u("w", 40)),
    ];
    write_all(&*store, batch).await;
    let again = vec![insert(table, "g", u("q", 50)), insert(table, "h", u("w", 60))];
    assert_eq!(refusal(commit(&*store, again).await), (1, Conflict::NotUnique));
    let all: Vec<_> =
        read_all(&*store, table, 100).await.into_iter().map(|(_, row, _)| row).collect();
    assert_eq!(all, ["c", "e", "f", "living", "new"]);
    // Off: the holders are gone for good, so that no two entities have one value.
    unset(&*store, table).await;
    for index in [&unique, &other] {
        assert_agrees(&*store, table, index, "without expiry").await;
    }
    let all: Vec<_> =
        read_all(&*store, table, 100).await.into_iter().map(|(_, row, _)| row).collect();
    for row in ["a", "b", "d"] {
        assert!(!all.iter().any(|there| there == row), "{row} gave its value away: {all:?}");
    }
}

/// Of the same values, and with a living entity.
pub async fn indexes_are_built_without_what_expired(engine: &dyn Engine) {
    let (store, table) = open(engine).await;
    for at in 0..40 {
        write(&*store, insert(table, &format!("{at:02}"), u("same", at))).await;
    }
    engine.clock().advance(2 * HOUR);
    write(&*store, insert(table, "20b", u("same", 100))).await;
    set(&*store, table, after(HOUR)).await;
    let unique = ready(&*store, table, "one", unique_of(&["PartitionKey", "u"])).await;
    assert_eq!(walk_all(&*store, table, walk_of(&unique)).await, ["p/20b"]);
    let taken = insert(table, "x", u("same", 1));
    assert_eq!(refusal(commit(&*store, vec![taken]).await), (0, Conflict::NotUnique));
    engine.clock().advance(2 * HOUR);
    write(&*store, insert(table, "x", u("same", 1))).await;
    assert_eq!(walk_all(&*store, table, walk_of(&unique)).await, ["p/x"]);
}

/// What expires later stays in it, and so does what comes back because it may live longer.
pub async fn snapshot_has_what_comes_back(engine: &dyn Engine) {
    let (store, table) = open(engine).await;
    set(&*store, table, after(HOUR)).await;
    write(&*store, insert(table, "old", number(1))).await;
    engine.clock().advance(2 * HOUR);
    write(&*store, insert(table, "young", number(2))).await;
    let view = store.snapshot().await.expect("a view can be taken");
    engine.clock().advance(10 * HOUR);
    let account = store.accounts().await.expect("listed")[0].id;
    let tables = view.tables(account).await.expect("listed");
    assert_eq!(tables[0].ttl, Some(after(HOUR)));
    assert!(get(&*store, table, &place("young")).await.is_none(), "outside of it time goes on");
    unset(&*store, table).await;
    let there = keys(&page(&*store, table, scan_all()).await);
    let found = keys(&view.scan(table, scan_all()).await.expect("the view can be read"));
    assert!(found.contains(&"p/young".to_owned()), "{found:?}");
    for key in &there {
        assert!(found.contains(key), "{key} came back, and is not in {found:?}");
    }
    let counted = view.scan(table, Scan { take: Take::Count, ..scan_all() }).await;
    assert_eq!(counted.expect("counted").counted, found.len() as u64);
}

/// The deletes that are told after the place, until there are so many.
async fn told(store: &dyn Store, after: u64, many: usize) -> Vec<Change> {
    let give_up = Instant::now() + SWEEP_TIME;
    let (mut deletes, mut wanted) = (
        Vec::new(),
        ChangesWanted {
            after,
            table: None,
            limit: 1000,
            max_bytes: usize::MAX,
            wait_until: Instant::now(),
        },
    );
    while deletes.len() < many {
        assert!(Instant::now() < give_up, "{} of {many} are removed in time", deletes.len());
        wanted.wait_until = Instant::now() + Duration::from_millis(50);
        let found = store.changes(wanted.clone()).await.expect("the changes can be read");
        wanted.after = found.next;
        deletes.extend(found.changes.into_iter().filter(|change| change.record.is_none()));
        // Reading is what makes the model look at the clock.
        let _ = store.kept_changes().await;
    }
    deletes
}

/// Each once, and what was left when the store was closed.
pub async fn expired_entities_are_removed(engine: &dyn Engine) {
    const MANY: usize = 700;
    let (mut store, table) = open(engine).await;
    let index = ready(&*store, table, "by-n", index_of(&["n"])).await;
    for at in 0..MANY / 50 {
        let at = i64::try_from(50 * at).expect("few");
        let rows = (at..at + 50).map(|n| insert(table, &format!("{n:04}"), number(n)));
        write_all(&*store, rows.collect()).await;
    }
    engine.clock().advance(2 * HOUR);
    write(&*store, insert(table, "young", number(-1))).await;
    store.keep_changes(Some(100 * HOUR)).await.expect("changes can be kept");
    let begin = store.kept_changes().await.expect("told").expect("they are kept").until;
    set(&*store, table, after(HOUR)).await;
    if let Some(reopened) = engine.reopen(Arc::clone(&store)).await {
        store = reopened;
    }
    let deletes = told(&*store, begin, MANY).await;
    let removed: BTreeSet<_> = deletes.iter().map(|change| change.key.row.as_str()).collect();
    assert_eq!((removed.len(), deletes.len()), (MANY, MANY), "each is told once");
    assert!(!removed.contains("young"));
    assert!(deletes.iter().all(|change| change.table == table));
    // For good: they do not come back without the setting.
    unset(&*store, table).await;
    assert_eq!(read_all(&*store, table, 1000).await.len(), 1);
    assert_agrees(&*store, table, &index, "after it").await;
    let all = Scan { take: Take::Count, ..scan_all() };
    assert_eq!(page(&*store, table, all).await.examined, 1, "nothing else is left");
}

/// While somebody writes the same entities all the time.
pub async fn removing_spares_what_is_written_again(engine: &dyn Engine) {
    const ROWS: i64 = 120;
    let (store, table) = open(engine).await;
    let index = ready(&*store, table, "by-n", index_of(&["n"])).await;
    let unique = ready(&*store, table, "one", unique_of(&["PartitionKey", "n"])).await;
    for n in 0..ROWS {
        write(&*store, insert(table, &format!("{n:03}"), number(n))).await;
    }
    engine.clock().advance(2 * HOUR);
    set(&*store, table, after(HOUR)).await;
    let done = Arc::new(AtomicBool::new(false));
    let sweeper = {
        let (store, done) = (Arc::clone(&store), Arc::clone(&done));
        tokio::spawn(async move {
            // Whoever sets it has it looked through again.
            while !done.load(Ordering::SeqCst) {
                set(&*store, table, after(HOUR)).await;
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
    };
    let writers = (0..4).map(|of| {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            for n in (0..ROWS).rev().filter(|n| n % 4 == of) {
                let row = format!("{n:03}");
                match n % 3 {
                    0 => drop(write(&*store, insert(table, &row, number(n + 1000))).await),
                    1 => drop(write(&*store, put(table, &place(&row), number(n))).await),
                    // Takes what has expired from another, which stays away.
                    _ => drop(write(&*store, insert(table, &format!("x{row}"), number(n))).await),
                }
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.expect("the writer succeeds");
    }
    done.store(true, Ordering::SeqCst);
    sweeper.await.expect("it can be set");
    let wanted: BTreeSet<String> = (0..ROWS)
        .map(|n| if n % 3 == 2 { format!("x{n:03}") } else { format!("{n:03}") })
        .collect();
    let there = read_all(&*store, table, 1000).await;
    let there: BTreeSet<String> = there.into_iter().map(|(_, row, _)| row).collect();
    assert_eq!(there, wanted);
    for index in [&index, &unique] {
        assert_agrees(&*store, table, index, "in the end").await;
    }
    unset(&*store, table).await;
    for index in [&index, &unique] {
        assert_agrees(&*store, table, index, "whatever is still there").await;
    }
}
