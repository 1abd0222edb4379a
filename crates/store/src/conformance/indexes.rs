//! Indexes: declared, built, kept by every write, dropped.

use super::Engine;
use super::extremes::{odd_values, random_key};
use super::fixture::{
    account, command, commit, key, number, open, page, put, record, refusal, scan_all, table,
    write, write_all,
};
use super::indexed::{
    assert_agrees, built, declare, entries_of, entries_wanted, index_of, part, ready, scan_through,
    unique_of, walk_of,
};
use crate::{
    AccountId, Built, Condition, Conflict, Index, IndexId, IndexState, Store, StoreError, Table,
    TableId, Write,
};
use rowhouse_env::SeededRandom;
use rowhouse_query::index::{IndexKeys, Span};
use rowhouse_types::{Etag, Record, Timestamp, ValueRef, limits};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

async fn table_of(store: &dyn Store, account: AccountId, name: &str) -> Arc<Table> {
    let name = name.parse().expect("a legal table name");
    store.table(account, &name).await.expect("the lookup succeeds").expect("the table is there")
}

async fn first(store: &dyn Store) -> AccountId {
    let name = "first".parse().expect("a legal account name");
    store.account(&name).await.expect("the lookup succeeds").expect("the account is there").id
}

/// The indexes of `Things`, once they show that state.
async fn shown(store: &dyn Store, state: IndexState) -> Vec<Index> {
    let account = first(store).await;
    let give_up = Instant::now() + Duration::from_secs(30);
    loop {
        let indexes = table_of(store, account, "Things").await.indexes.clone();
        if indexes.iter().all(|index| index.state == state) {
            return indexes;
        }
        assert!(Instant::now() < give_up, "the table shows what has become of its indexes");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// A text `s` and a number `n`.
fn both(s: &str, n: i64) -> Record {
    record(&[("s", ValueRef::String(s)), ("n", ValueRef::Int64(n))])
}

/// Whatever an index of a dropped table or a dropped index is asked for.
async fn assert_gone(store: &dyn Store, table: TableId, index: &Index) {
    let everything = || vec![part(index, vec![Span::all()])];
    let refused = [
        refusal(store.built(table, index.id).await).1,
        refusal(store.scan(table, scan_through(everything())).await).1,
        refusal(store.walk(table, walk_of(index)).await).1,
        refusal(store.weigh(table, entries_of(everything()), 100).await).1,
        refusal(store.drop_index(table, index.id).await).1,
    ];
    for (which, reason) in refused.into_iter().enumerate() {
        let gone = matches!(reason, Conflict::IndexNotFound | Conflict::TableNotFound);
        assert!(gone, "request {which}: {reason}");
    }
}

/// Names differ by case; other tables do not matter.
pub async fn index_is_kept_as_declared(engine: &dyn Engine) {
    let (store, things) = open(engine).await;
    let owner = first(&*store).await;
    let other = table(&*store, owner, "Other").await;
    let longest = "x".repeat(limits::INDEX_NAME_CHARS_MAX);
    let declared = [
        ("z", index_of(&["s"])),
        ("Z", unique_of(&["PartitionKey", "n"])),
        ("0-_a", index_of(&["Timestamp", "größe", "RowKey", "e\u{301}"])),
        (&*longest, index_of(&["s"])),
    ];
    let mut made = Vec::new();
    for (name, keys) in &declared {
        made.push(ready(&*store, things, name, keys.clone()).await);
        let again = store.create_index(things, &name.parse().expect("legal"), keys.clone()).await;
        assert_eq!(refusal(again), (0, Conflict::IndexExists), "{name}");
    }
    let elsewhere = ready(&*store, other, "z", index_of(&["n"])).await;
    let mut ids: Vec<_> = made.iter().chain([&elsewhere]).map(|index| index.id).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), declared.len() + 1, "no two have the same id");
    assert_eq!(shown(&*store, IndexState::Ready).await, made, "in the order of their declaration");
    let listed = store.tables(owner, None, 10).await.expect("the listing succeeds");
    let indexes: Vec<_> = listed.iter().map(|table| table.indexes.len()).collect();
    assert_eq!(indexes, [1, declared.len()], "a listing has them too");
    let name = "z".parse().expect("a legal name");
    let nowhere = store.create_index(TableId(1 << 40), &name, index_of(&["s"])).await;
    assert_eq!(refusal(nowhere), (0, Conflict::TableNotFound));
    let foreign = store.built(things, elsewhere.id).await;
    assert_eq!(refusal(foreign), (0, Conflict::IndexNotFound), "it is of another table");
    let unknown = Index { id: IndexId(1 << 40), ..elsewhere };
    assert_gone(&*store, things, &unknown).await;
}

/// Of one property, of several, of the keys and of the Timestamp.
async fn some_indexes(store: &dyn Store, table: TableId) -> Vec<Index> {
    let mut made = Vec::new();
    for (name, keys) in [
        ("n", index_of(&["n"])),
        ("s-n", index_of(&["s", "n"])),
        ("row", index_of(&["RowKey", "s"])),
        ("time", index_of(&["Timestamp"])),
        ("one", unique_of(&["PartitionKey", "u", "n"])),
    ] {
        made.push(ready(store, table, name, keys).await);
    }
    made
}

async fn assert_all_agree(store: &dyn Store, table: TableId, indexes: &[Index], when: &str) {
    for index in indexes {
        assert_agrees(store, table, index, when).await;
    }
}

/// Alone and in batches, with properties that come, change, stay and go.
pub async fn index_follows_every_write(engine: &dyn Engine) {
    let (store, table) = open(engine).await;
    let indexes = some_indexes(&*store, table).await;
    let place = |row: &str| key("p", row);
    let int = |n| record(&[("n", ValueRef::Int32(n))]);
    let u = |u: &str, n| record(&[("u", ValueRef::String(u)), ("n", ValueRef::Int64(n))]);
    let mut saved = both("saved", 1);
    saved.stamp(Timestamp::parse_iso("2020-01-01T00:00:00Z").expect("a date"));
    let any = Condition::Any;
    let steps = [
        ("insert", place("a"), Condition::Absent, Write::Put(both("a", 1))),
        ("insert another", key("q", "a"), Condition::Absent, Write::Put(u("x", 1))),
        ("insert without", place("none"), Condition::Absent, Write::Put(record(&[]))),
        ("replace", place("a"), Condition::Exists, Write::Put(both("b", 2))),
        ("the same again", place("a"), any, Write::Put(both("b", 2))),
        ("another type", place("a"), any, Write::Put(int(2))),
        ("a merge that adds", place("a"), any, Write::Merge(u("y", 7))),
        ("a merge that changes", place("a"), Condition::Exists, Write::Merge(int(3))),
        ("a merge that leaves it", place("a"), any, Write::Merge(record(&[]))),
        ("a merge into nothing", place("b"), any, Write::Merge(both("b", 3))),
        ("a property goes", place("b"), any, Write::Put(number(3))),
        ("all go", place("b"), any, Write::Put(record(&[]))),
        ("and come back", place("b"), any, Write::Merge(both("b", 4))),
        ("restore", place("c"), any, Write::Restore(saved.clone())),
        ("restore over", place("a"), any, Write::Restore(saved)),
        ("delete", place("a"), Condition::Exists, Write::Delete),
        ("delete nothing", place("a"), any, Write::Delete),
        ("insert again", place("a"), Condition::Absent, Write::Put(both("a", 1))),
    ];
    for (step, place, condition, write) in steps {
        super::fixture::write(&*store, command(table, &place, condition, write)).await;
        assert_all_agree(&*store, table, &indexes, step).await;
    }
    let all: Vec<_> = (0..100).map(|n| put(table, &place(&n.to_string()), both("s", n))).collect();
    write_all(&*store, all).await;
    assert_all_agree(&*store, table, &indexes, "a batch of one kind").await;
    let mixed = |last: Condition| {
        vec![
            put(table, &place("1"), int(5)),
            command(table, &place("1"), any, Write::Merge(both("again", 6))),
            command(table, &place("2"), any, Write::Delete),
            put(table, &place("2"), number(1)),
            put(table, &place("new"), both("new", 1)),
            command(table, &place("new"), any, Write::Delete),
            command(table, &place("3"), Condition::Exists, Write::Merge(int(1))),
            command(table, &place("4"), last, Write::Put(u("u", 1))),
        ]
    };
    let stale = Condition::Matches(Etag::new(Timestamp::default()));
    let failed = commit(&*store, mixed(stale)).await;
    assert_eq!(refusal(failed), (7, Conflict::ConditionNotMet));
    assert_all_agree(&*store, table, &indexes, "a batch that fails").await;
    write_all(&*store, mixed(Condition::Exists)).await;
    assert_all_agree(&*store, table, &indexes, "a batch of many kinds").await;
    let spread = (0..20).map(|n| put(table, &key(&n.to_string(), "r"), both("spread", n % 3)));
    write_all(&*store, spread.collect()).await;
    assert_all_agree(&*store, table, &indexes, "a batch over partitions").await;
}

/// Some hundred entities with and without the property, and none at all.
pub async fn index_enters_what_was_there(engine: &dyn Engine) {
    let (store, table) = open(engine).await;
    let empty = ready(&*store, table, "empty", index_of(&["n"])).await;
    assert_agrees(&*store, table, &empty, "an empty table").await;
    for start in (0..600).step_by(100) {
        let puts = (start..start + 100).map(|n| {
            let record = if n % 3 == 0 { record(&[]) } else { both(&format!("{}", n % 7), n) };
            put(table, &key(&(n % 5).to_string(), &format!("{n:04}")), record)
        });
        write_all(&*store, puts.collect()).await;
    }
    for (name, keys) in [
        ("n", index_of(&["n"])),
        ("s-n", index_of(&["s", "n"])),
        ("one", unique_of(&["PartitionKey", "n"])),
    ] {
        let index = ready(&*store, table, name, keys).await;
        let Built { examined, .. } = built(&*store, table, index.id).await;
        assert_eq!(examined, 600, "{name}: every entity has been looked at");
        assert_agrees(&*store, table, &index, "what was there").await;
    }
    assert_agrees(&*store, table, &empty, "what was written later").await;
    assert_eq!(shown(&*store, IndexState::Ready).await.len(), 4);
}

/// Entities are written, changed and deleted from before the declaration until after it is done.
pub async fn index_is_built_while_others_write(engine: &dyn Engine) {
    let (store, table) = open(engine).await;
    for start in (0..1000).step_by(100) {
        let puts = (start..start + 100)
            .map(|n| put(table, &key(&(n % 4).to_string(), &format!("{n:04}")), both("before", n)));
        write_all(&*store, puts.collect()).await;
    }
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..4i64)
        .map(|writer| {
            let (store, stop) = (Arc::clone(&store), Arc::clone(&stop));
            tokio::spawn(async move {
                let mut round = 0;
                while !stop.load(Ordering::SeqCst) {
                    round += 1;
                    // All over the table, so that some are before the place of the build and some behind it.
                    let n = (round * 37 + writer * 251) % 1100;
                    let place = key(&writer.to_string(), &format!("{n:04}"));
                    let write = match round % 4 {
                        0 => Write::Delete,
                        1 => Write::Merge(number(round)),
                        _ => Write::Put(both("during", round % 10)),
                    };
                    let change = command(table, &place, Condition::Any, write);
                    commit(&*store, vec![change]).await.expect("the write succeeds");
                    // A store that never waits would keep everybody else from running.
                    tokio::task::yield_now().await;
                }
                round
            })
        })
        .collect();
    let mut indexes = Vec::new();
    for (name, keys) in [("n", index_of(&["n"])), ("s-n", index_of(&["s", "n"]))] {
        tokio::time::sleep(Duration::from_millis(5)).await;
        indexes.push(ready(&*store, table, name, keys).await);
    }
    stop.store(true, Ordering::SeqCst);
    for writer in writers {
        assert!(writer.await.expect("a writer ends") > 0, "it has written");
    }
    assert_all_agree(&*store, table, &indexes, "when all is quiet").await;
}

/// Ready, unique, unfinished and dropped ones; and ids.
pub async fn indexes_survive_reopening(engine: &dyn Engine) {
    let (store, table) = open(engine).await;
    for start in (0..1000).step_by(100) {
        let puts = (start..start + 100)
            .map(|n| put(table, &key(&(n % 4).to_string(), &format!("{n:04}")), both("s", n)));
        write_all(&*store, puts.collect()).await;
    }
    let first = ready(&*store, table, "first", index_of(&["n"])).await;
    let unique = ready(&*store, table, "unique", unique_of(&["PartitionKey", "n"])).await;
    let repeated = declare(&*store, table, "repeated", unique_of(&["PartitionKey", "s"])).await;
    assert_eq!(repeated.state, IndexState::NotUnique);
    let dropped = ready(&*store, table, "dropped", index_of(&["s"])).await;
    store.drop_index(table, dropped.id).await.expect("dropped");
    let name = "unfinished".parse().expect("a legal name");
    let unfinished = store.create_index(table, &name, index_of(&["s", "n"])).await;
    let unfinished = unfinished.expect("the index can be declared");
    let Some(store) = engine.reopen(store).await else { return };
    write(&*store, put(table, &key("0", "later"), both("later", 5000))).await;
    let state = async |index: &Index| built(&*store, table, index.id).await.state;
    assert_eq!(state(&unfinished).await, IndexState::Ready);
    assert_eq!(state(&repeated).await, IndexState::NotUnique);
    assert_all_agree(&*store, table, &[first, unfinished, unique], "after a restart").await;
    let again = commit(&*store, vec![put(table, &key("0", "again"), both("s", 5000))]).await;
    assert_eq!(refusal(again), (0, Conflict::NotUnique));
    assert_gone(&*store, table, &dropped).await;
    let account = self::first(&*store).await;
    let listed = table_of(&*store, account, "Things").await;
    let names: Vec<_> = listed.indexes.iter().map(|index| index.name.as_str()).collect();
    assert_eq!(names, ["first", "unique", "repeated", "unfinished"]);
    let late = ready(&*store, table, "dropped", index_of(&["n"])).await;
    store.drop_index(table, late.id).await.expect("dropped");
    let Some(store) = engine.reopen(store).await else { return };
    let latest = ready(&*store, table, "latest", index_of(&["n"])).await;
    let used = listed.indexes.iter().map(|index| index.id).chain([dropped.id, late.id]);
    assert!(used.into_iter().all(|id| id != latest.id), "no id is used again");
}

/// Its name is free at once, whatever becomes of the entries.
pub async fn dropped_index_is_gone(engine: &dyn Engine) {
    let (store, table) = open(engine).await;
    let puts = (0..100).map(|n| put(table, &key("p", &format!("{n:02}")), both("s", n)));
    write_all(&*store, puts.collect()).await;
    let mut old: Vec<Index> = Vec::new();
    for (round, keys) in
        [index_of(&["n"]), index_of(&["s"]), index_of(&["n", "s"])].into_iter().enumerate()
    {
        let index = ready(&*store, table, "same", keys).await;
        assert!(old.iter().all(|dropped| dropped.id != index.id), "the id is new");
        assert_agrees(&*store, table, &index, "declared anew").await;
        for dropped in &old {
            assert_gone(&*store, table, dropped).await;
        }
        let n = i64::try_from(round).expect("a small number");
        write(&*store, put(table, &key("p", "07"), both("changed", n))).await;
        store.drop_index(table, index.id).await.expect("dropped");
        assert_gone(&*store, table, &index).await;
        assert!(shown(&*store, IndexState::Ready).await.is_empty());
        old.push(index);
    }
    // While it is being built; and a unique one refuses nothing any more.
    let name = "same".parse().expect("a legal name");
    let keys = unique_of(&["PartitionKey", "n"]);
    let building = store.create_index(table, &name, keys).await.expect("declared");
    store.drop_index(table, building.id).await.expect("dropped");
    write(&*store, put(table, &key("p", "twin"), number(50))).await;
    assert_gone(&*store, table, &building).await;
    let page = page(&*store, table, scan_all()).await;
    assert_eq!(page.rows.len(), 101, "entities stay");
}

/// Dropped, created again, removed with its account; ready or being built.
pub async fn dropped_table_takes_its_indexes_along(engine: &dyn Engine) {
    let store = engine.open().await;
    let mut ids: Vec<IndexId> = Vec::new();
    for round in 0..4 {
        let owner = account(&*store, "passing").await.id;
        let table = table(&*store, owner, "Things").await;
        assert!(table_of(&*store, owner, "Things").await.indexes.is_empty(), "round {round}");
        let puts = (0..100).map(|n| put(table, &key("p", &format!("{n:02}")), number(n)));
        write_all(&*store, puts.collect()).await;
        let index = ready(&*store, table, "n", index_of(&["n"])).await;
        let name = "unfinished".parse().expect("a legal name");
        let unfinished = store.create_index(table, &name, unique_of(&["PartitionKey", "n"])).await;
        let unfinished = unfinished.expect("declared");
        if round % 2 == 0 {
            store.drop_table(table).await.expect("dropped");
            let again = super::fixture::table(&*store, owner, "Things").await;
            write(&*store, put(again, &key("p", "r"), number(1))).await;
            assert!(table_of(&*store, owner, "Things").await.indexes.is_empty());
        }
        store.remove_account(owner).await.expect("removed");
        for index in [&index, &unfinished] {
            assert_gone(&*store, table, index).await;
            assert!(!ids.contains(&index.id), "the id is new");
            ids.push(index.id);
        }
        let late = store.create_index(table, &name, index_of(&["n"])).await;
        assert_eq!(refusal(late), (0, Conflict::TableNotFound));
    }
}

/// As many as may be, all of them kept; one more when one is dropped.
pub async fn indexes_are_limited(engine: &dyn Engine) {
    let (store, table) = open(engine).await;
    let declared = |n: usize| (format!("i{n}"), index_of(&["n", &format!("x{n}")]));
    let mut indexes = Vec::new();
    for n in 0..limits::INDEXES_MAX {
        let (name, keys) = declared(n);
        indexes.push(ready(&*store, table, &name, keys).await);
    }
    let (name, keys) = declared(limits::INDEXES_MAX);
    let name = name.parse().expect("a legal name");
    let more = store.create_index(table, &name, keys.clone()).await;
    assert_eq!(refusal(more), (0, Conflict::TooManyIndexes));
    let puts = (0..10).map(|n| put(table, &key("p", &n.to_string()), number(n)));
    write_all(&*store, puts.collect()).await;
    assert_all_agree(&*store, table, &indexes, "as many as may be").await;
    store.drop_index(table, indexes.remove(3).id).await.expect("dropped");
    indexes.push(ready(&*store, table, name.as_str(), keys).await);
    write(&*store, put(table, &key("p", "3"), number(33))).await;
    assert_all_agree(&*store, table, &indexes, "one instead of another").await;
}

/// The least, the greatest and the odd ones of each type, in one index; what is cut shares its beginning.
pub async fn every_value_is_indexed(engine: &dyn Engine) {
    let (store, table) = open(engine).await;
    let mut indexes = vec![ready(&*store, table, "early", index_of(&["v"])).await];
    let mut records: Vec<Record> =
        odd_values().iter().map(|value| record(&[("v", value.as_ref())])).collect();
    let max = limits::INDEX_VALUE_BYTES_MAX;
    for length in [0, 1, max - 3, max - 2, max - 1, max, max + 1, max + 2, 3 * max] {
        for fill in ["a", "é", "😀", "\u{0}", "\u{FF}"] {
            let text = fill.repeat(length);
            for end in ["", "\u{0}", "a", "b", "z\u{0}"] {
                let text = format!("{text}{end}");
                records.push(record(&[("v", ValueRef::String(&text))]));
            }
            let bytes = vec![fill.as_bytes()[0]; length];
            records.push(record(&[("v", ValueRef::Binary(&bytes))]));
        }
    }
    for (n, chunk) in records.chunks(20).enumerate() {
        let puts = chunk.iter().enumerate().map(|(m, record)| {
            put(table, &key(&(m % 3).to_string(), &format!("{n:03}-{m:02}")), record.clone())
        });
        write_all(&*store, puts.collect()).await;
    }
    indexes.push(ready(&*store, table, "late", index_of(&["v"])).await);
    indexes.push(ready(&*store, table, "pair", index_of(&["v", "RowKey"])).await);
    assert_all_agree(&*store, table, &indexes, "every value").await;
    let wanted = entries_wanted(&*store, table, &index_of(&["v"])).await;
    assert_eq!(wanted.len(), records.len(), "each has an entry");
}

/// Keys as long as can be, with as many values as long as can be in one index.
pub async fn longest_keys_are_indexed(engine: &dyn Engine) {
    let (store, table) = open(engine).await;
    let random = SeededRandom::new(0x1DE);
    let names = ["a", "b", "c", "d"];
    let keys = || index_of(&names[..limits::INDEX_PROPERTIES_MAX]);
    let mut indexes = vec![
        ready(&*store, table, "early", keys()).await,
        ready(&*store, table, "unique", IndexKeys { unique: true, ..keys_of_partition() }).await,
        ready(&*store, table, "keys", index_of(&["RowKey", "PartitionKey"])).await,
    ];
    let max = limits::KEY_UTF16_UNITS_MAX;
    let mut puts = Vec::new();
    for width in 0..=4 {
        let (partition, row) = (random_key(&random, width, max), random_key(&random, width, max));
        let text = random_key(&random, width, limits::STRING_UTF16_UNITS_MAX / 8);
        let mut sibling: String = row.chars().take(row.chars().count() - 2).collect();
        sibling.push('~');
        for (n, row) in [&*row, &*sibling, "", "r"].into_iter().enumerate() {
            // The same up to the end, so that only the keys or a digest tell the entries apart.
            let last = format!("{text}{n}");
            let value = ValueRef::String(&last);
            let record = record(&names.map(|name| (name, value)));
            puts.push(put(table, &key(&partition, row), record));
        }
    }
    for chunk in puts.chunks(5) {
        write_all(&*store, chunk.to_vec()).await;
    }
    indexes.push(ready(&*store, table, "late", keys()).await);
    assert_all_agree(&*store, table, &indexes, "the longest").await;
    let last = puts.pop().expect("there are some");
    write_all(&*store, vec![last]).await;
    assert_all_agree(&*store, table, &indexes, "written again").await;
}

fn keys_of_partition() -> IndexKeys {
    index_of(&["PartitionKey", "a", "b", "d"])
}

/// Definitions are part of a view; entries are not.
pub async fn snapshot_shows_indexes(engine: &dyn Engine) {
    let (store, table) = open(engine).await;
    write(&*store, put(table, &key("p", "r"), number(1))).await;
    let index = ready(&*store, table, "n", index_of(&["n"])).await;
    let unique = ready(&*store, table, "u", unique_of(&["PartitionKey", "n"])).await;
    let view = store.snapshot().await.expect("a view can be taken");
    store.drop_index(table, index.id).await.expect("dropped");
    ready(&*store, table, "later", index_of(&["n"])).await;
    let tables = view.tables(first(&*store).await).await.expect("the view can be read");
    let shown: Vec<_> =
        tables[0].indexes.iter().map(|index| (index.id, &index.name, &index.keys)).collect();
    let made = [&index, &unique].map(|index| (index.id, &index.name, &index.keys));
    assert_eq!(shown, made, "as they were");
    let through = scan_through(vec![part(&unique, vec![Span::all()])]);
    assert_eq!(refusal(view.scan(table, through).await), (0, Conflict::IndexNotFound));
    let all = view.scan(table, scan_all()).await.expect("the view can be read");
    assert_eq!(all.rows.len(), 1);
}

/// Of a closed store.
pub async fn close_refuses_indexes(engine: &dyn Engine) {
    let (store, table) = open(engine).await;
    let index = ready(&*store, table, "n", index_of(&["n"])).await;
    store.close().await.expect("closed");
    let name = "late".parse().expect("a legal name");
    let refusals = [
        store.create_index(table, &name, index_of(&["n"])).await.map(drop),
        store.drop_index(table, index.id).await,
    ];
    for (which, result) in refusals.into_iter().enumerate() {
        assert!(matches!(result, Err(StoreError::Unavailable(_))), "change {which}: {result:?}");
    }
}
