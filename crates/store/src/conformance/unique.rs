//! Unique indexes: which writes they refuse, and when they stop to.

use super::Engine;
use super::fixture::{
    command, commit, content, filter, get, key, keys, number, open, page, put, record, refusal,
    scan_all, write, write_all,
};
use super::indexed::{assert_agrees, declare, part, ready, scan_through, unique_of, walk_of};
use crate::{
    Command, Condition, Conflict, Index, IndexState, Scan, Store, StoreError, TableId, Write,
};
use rowhouse_query::index::Span;
use rowhouse_types::{Guid, Record, Timestamp, ValueRef};
use std::sync::Arc;

/// A record whose property `u` is the text.
fn u(text: &str) -> Record {
    record(&[("u", ValueRef::String(text))])
}

/// A table with an index that is unique within a partition, which every engine can keep.
async fn with_unique(engine: &dyn Engine) -> (Arc<dyn Store>, TableId, Index) {
    let (store, table) = open(engine).await;
    let index = ready(&*store, table, "one", unique_of(&["PartitionKey", "u"])).await;
    (store, table, index)
}

async fn refused(store: &dyn Store, commands: Vec<Command>, at: usize, case: &str) {
    let result = commit(store, commands).await;
    assert_eq!(refusal(result), (at, Conflict::NotUnique), "{case}");
}

/// By every kind of write, named by its position; the entity that has the values may keep them.
pub async fn unique_refuses_values_of_another(engine: &dyn Engine) {
    let (store, table, index) = with_unique(engine).await;
    let place = |row: &str| key("p", row);
    let any = Condition::Any;
    write(&*store, put(table, &place("a"), u("x"))).await;
    write(&*store, put(table, &place("b"), u("y"))).await;
    write(&*store, put(table, &place("n"), number(1))).await;
    let violations = [
        ("insert", command(table, &place("c"), Condition::Absent, Write::Put(u("x")))),
        ("put into nothing", put(table, &place("c"), u("x"))),
        ("merge into nothing", command(table, &place("c"), any, Write::Merge(u("x")))),
        ("restore", command(table, &place("c"), any, Write::Restore(u("x")))),
        ("replace", command(table, &place("b"), Condition::Exists, Write::Put(u("x")))),
        ("merge", command(table, &place("b"), Condition::Exists, Write::Merge(u("x")))),
        ("a merge that adds it", command(table, &place("n"), any, Write::Merge(u("x")))),
    ];
    for (case, violation) in violations {
        refused(&*store, vec![violation.clone()], 0, case).await;
        let others = |n: i64| put(table, &place(&format!("other{n}")), number(n));
        let batch = vec![others(1), others(2), violation, others(3)];
        refused(&*store, batch, 2, case).await;
        assert!(get(&*store, table, &place("c")).await.is_none(), "{case}");
        assert!(get(&*store, table, &place("other1")).await.is_none(), "{case}");
        let left = get(&*store, table, &place("b")).await.expect("it is there");
        assert_eq!(content(&left), u("y"), "{case}");
        assert_agrees(&*store, table, &index, case).await;
    }
    // What is no violation.
    write(&*store, put(table, &place("a"), u("x"))).await;
    write(&*store, command(table, &place("a"), any, Write::Merge(number(1)))).await;
    write(&*store, put(table, &key("q", "a"), u("x"))).await;
    write(&*store, put(table, &place("c"), u("X"))).await;
    // A condition that does not hold is named before.
    let absent = command(table, &place("b"), Condition::Absent, Write::Put(u("x")));
    assert_eq!(refusal(commit(&*store, vec![absent]).await), (0, Conflict::EntityExists));
    assert_agrees(&*store, table, &index, "in the end").await;
}

/// When the entity is deleted, gets other values, or loses the property.
pub async fn unique_values_become_free(engine: &dyn Engine) {
    let (store, table, index) = with_unique(engine).await;
    let (a, b) = (key("p", "a"), key("p", "b"));
    let frees = [
        ("delete", Write::Delete),
        ("replace", Write::Put(u("other"))),
        ("merge", Write::Merge(u("other"))),
        ("loss", Write::Put(number(1))),
        ("another type", Write::Merge(record(&[("u", ValueRef::Int32(1))]))),
    ];
    for (case, free) in frees {
        write(&*store, put(table, &a, u("x"))).await;
        refused(&*store, vec![put(table, &b, u("x"))], 0, case).await;
        write(&*store, command(table, &a, Condition::Exists, free)).await;
        write(&*store, put(table, &b, u("x"))).await;
        refused(&*store, vec![command(table, &a, Condition::Any, Write::Merge(u("x")))], 0, case)
            .await;
        assert_agrees(&*store, table, &index, case).await;
        write(&*store, command(table, &b, Condition::Exists, Write::Delete)).await;
    }
}

/// Each command of a batch sees what those before it have left, and nothing of those behind it.
pub async fn unique_is_judged_in_order(engine: &dyn Engine) {
    let (store, table, index) = with_unique(engine).await;
    let of = |row: &str, text: &str| put(table, &key("p", row), u(text));
    let delete = |row: &str| command(table, &key("p", row), Condition::Exists, Write::Delete);
    write_all(&*store, vec![of("a", "x"), of("b", "y")]).await;
    let cases = [
        ("insert before the delete", vec![of("c", "x"), delete("a")], Some(0)),
        ("exchange", vec![of("a", "y"), of("b", "x")], Some(0)),
        ("twice in a batch", vec![of("c", "z"), of("d", "z")], Some(1)),
        ("again after an update", vec![of("a", "z"), of("c", "x"), of("d", "x")], Some(2)),
        ("delete before the insert", vec![delete("a"), of("c", "x")], None),
        ("exchange through a third", vec![of("b", "t"), of("c", "y"), of("b", "x")], None),
        ("there and gone", vec![of("d", "z"), delete("d"), of("e", "z")], None),
        ("taken and given back", vec![of("e", "w"), of("f", "z"), delete("f"), of("e", "z")], None),
    ];
    for (case, batch, failing) in cases {
        match failing {
            Some(at) => refused(&*store, batch, at, case).await,
            None => write_all(&*store, batch).await,
        }
        assert_agrees(&*store, table, &index, case).await;
    }
    let found = keys(&page(&*store, table, scan_all()).await);
    assert_eq!(found, ["p/b", "p/c", "p/e"]);
}

/// Any number of entities may lack one of the properties.
pub async fn unique_leaves_out_incomplete_entities(engine: &dyn Engine) {
    let (store, table) = open(engine).await;
    let keys = unique_of(&["PartitionKey", "u", "v"]);
    let index = ready(&*store, table, "pair", keys).await;
    let pair = |first: &str, second: &str| {
        record(&[("u", ValueRef::String(first)), ("v", ValueRef::String(second))])
    };
    for n in 0..3 {
        write(&*store, put(table, &key("p", &format!("u{n}")), u("x"))).await;
        write(&*store, put(table, &key("p", &format!("n{n}")), number(1))).await;
    }
    write(&*store, put(table, &key("p", "a"), pair("x", "1"))).await;
    write(&*store, put(table, &key("p", "b"), pair("x", "2"))).await;
    let complete = record(&[("v", ValueRef::String("1"))]);
    let merge = command(table, &key("p", "u0"), Condition::Any, Write::Merge(complete.clone()));
    refused(&*store, vec![merge], 0, "completed").await;
    write(&*store, command(table, &key("p", "n0"), Condition::Any, Write::Merge(complete))).await;
    assert_agrees(&*store, table, &index, "in the end").await;
}

/// Same values are those that a filter calls equal and that are of one type; long ones are told apart to the end.
pub async fn unique_tells_values_apart(engine: &dyn Engine) {
    let (store, table, index) = with_unique(engine).await;
    let long = "é".repeat(400);
    let (longer, other) = (format!("{long}a"), format!("{long}b"));
    let bytes = vec![0; 300];
    let different = [
        ValueRef::Int32(5),
        ValueRef::Int64(5),
        ValueRef::Double(5.0),
        ValueRef::String("5"),
        ValueRef::String("5 "),
        ValueRef::String(""),
        ValueRef::String("\u{0}"),
        ValueRef::String(&long),
        ValueRef::String(&longer),
        ValueRef::String(&other),
        ValueRef::Binary(&[]),
        ValueRef::Binary(b"5"),
        ValueRef::Binary(&bytes),
        ValueRef::Binary(&bytes[1..]),
        ValueRef::Boolean(true),
        ValueRef::Boolean(false),
        ValueRef::Double(0.0),
        ValueRef::Double(f64::INFINITY),
        ValueRef::DateTime(Timestamp::EDM_MIN),
        ValueRef::Guid(Guid([5; 16])),
    ];
    let of = |value| record(&[("u", value)]);
    for (n, value) in different.iter().enumerate() {
        write(&*store, put(table, &key("p", &format!("{n:02}")), of(*value))).await;
    }
    for (n, value) in different.iter().chain([&ValueRef::Double(-0.0)]).enumerate() {
        let again = put(table, &key("p", "again"), of(*value));
        refused(&*store, vec![again], 0, &format!("value {n}")).await;
    }
    assert_agrees(&*store, table, &index, "all of them").await;
}

/// Of concurrent inserts of one value exactly one succeeds, and of updates to it as well.
async fn one_wins(engine: &dyn Engine, properties: &[&str], partition: fn(usize) -> &'static str) {
    let (store, table) = open(engine).await;
    let index = ready(&*store, table, "one", unique_of(properties)).await;
    for round in 0..10 {
        let value = format!("value{round}");
        let writers: Vec<_> = (0..8)
            .map(|writer| {
                let (store, value) = (Arc::clone(&store), value.clone());
                tokio::spawn(async move {
                    let place = key(partition(writer), &format!("{round}-{writer}"));
                    // Half of them have an entity already.
                    if writer % 2 == 0 {
                        write(&*store, put(table, &place, u(&format!("{round}-{writer}")))).await;
                    }
                    let change = command(table, &place, Condition::Any, Write::Merge(u(&value)));
                    match commit(&*store, vec![change]).await {
                        Ok(_) => Some(format!("{}/{round}-{writer}", partition(writer))),
                        result => {
                            assert_eq!(refusal(result), (0, Conflict::NotUnique));
                            None
                        }
                    }
                })
            })
            .collect();
        let mut winners = Vec::new();
        for writer in writers {
            winners.extend(writer.await.expect("a writer ends"));
        }
        assert_eq!(winners.len(), 1, "round {round}: {winners:?}");
        let text = format!("u eq '{value}'");
        let scan = Scan { filter: filter(&text), ..scan_all() };
        assert_eq!(keys(&page(&*store, table, scan).await), winners, "round {round}");
    }
    assert_agrees(&*store, table, &index, "in the end").await;
}

/// In one partition.
pub async fn one_of_many_equal_values_wins(engine: &dyn Engine) {
    one_wins(engine, &["PartitionKey", "u"], |_| "p").await;
}

/// Two partitions, any of them, and at the same time.
pub async fn unique_holds_over_the_table(engine: &dyn Engine) {
    let (store, table) = open(engine).await;
    let index = ready(&*store, table, "one", unique_of(&["u"])).await;
    write(&*store, put(table, &key("p", "a"), u("x"))).await;
    refused(&*store, vec![put(table, &key("q", "a"), u("x"))], 0, "another partition").await;
    let moved = vec![
        command(table, &key("p", "a"), Condition::Exists, Write::Delete),
        put(table, &key("q", "a"), u("x")),
    ];
    write_all(&*store, moved).await;
    refused(&*store, vec![put(table, &key("p", "a"), u("x"))], 0, "where it was").await;
    assert_agrees(&*store, table, &index, "in the end").await;
    one_wins(engine, &["u"], |writer| ["p", "q", "r"][writer % 3]).await;
}

/// Either it holds for any two entities, or the declaration is refused; with PartitionKey it never is.
pub async fn unique_without_a_partition_is_kept_or_refused(engine: &dyn Engine) {
    let (store, table) = open(engine).await;
    let name = "one".parse().expect("a legal name");
    match store.create_index(table, &name, unique_of(&["u"])).await {
        Ok(index) => {
            let state = super::indexed::built(&*store, table, index.id).await.state;
            assert_eq!(state, IndexState::Ready);
            for partition in 0..20 {
                let place = key(&partition.to_string(), "r");
                let written = commit(&*store, vec![put(table, &place, u("x"))]).await;
                match partition {
                    0 => drop(written.expect("the first has the value")),
                    _ => assert_eq!(refusal(written), (0, Conflict::NotUnique)),
                }
            }
        }
        Err(StoreError::Rejected { reason: Conflict::UniqueAcrossNodes, .. }) => {}
        Err(other) => panic!("{other}"),
    }
    ready(&*store, table, "with", unique_of(&["u", "PartitionKey"])).await;
    ready(&*store, table, "first", unique_of(&["PartitionKey", "RowKey"])).await;
}

/// It is not read and refuses nothing, until it is dropped and declared again.
pub async fn duplicates_end_a_unique_index(engine: &dyn Engine) {
    let (store, table) = open(engine).await;
    let puts = (0..100).map(|n| put(table, &key("p", &format!("{n:02}")), number(n % 99)));
    write_all(&*store, puts.collect()).await;
    let keys = || unique_of(&["PartitionKey", "n"]);
    let index = declare(&*store, table, "one", keys()).await;
    assert_eq!(index.state, IndexState::NotUnique);
    let through = scan_through(vec![part(&index, vec![Span::all()])]);
    assert_eq!(refusal(store.scan(table, through).await), (0, Conflict::IndexNotFound));
    assert_eq!(refusal(store.walk(table, walk_of(&index)).await), (0, Conflict::IndexNotFound));
    write(&*store, put(table, &key("p", "more"), number(7))).await;
    write(&*store, put(table, &key("p", "99"), number(5000))).await;
    write(&*store, command(table, &key("p", "more"), Condition::Exists, Write::Delete)).await;
    let state = super::indexed::built(&*store, table, index.id).await.state;
    assert_eq!(state, IndexState::NotUnique, "it stays so");
    let again = store.create_index(table, &index.name, keys()).await;
    assert_eq!(refusal(again), (0, Conflict::IndexExists));
    store.drop_index(table, index.id).await.expect("dropped");
    let index = ready(&*store, table, "one", keys()).await;
    assert_agrees(&*store, table, &index, "declared again").await;
    refused(&*store, vec![put(table, &key("p", "more"), number(7))], 0, "declared again").await;
}
