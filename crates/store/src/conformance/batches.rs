//! Several commands: all or none, in order.

use super::Engine;
use super::fixture::{
    account, command, commit, content, get, key, number, open, put, read_all, record, refusal,
    table, write, write_all,
};
use crate::{Batch, Condition, Conflict, TableId, Write};
use rowhouse_types::{Etag, ValueRef};

/// The failing command stands at every place of the batch in turn.
pub async fn batch_is_all_or_none(engine: &dyn Engine) {
    let (store, table) = open(engine).await;
    let taken = key("p", "taken");
    write(&*store, put(table, &taken, number(0))).await;
    for n in 0..5 {
        let row = key("p", &format!("old{n}"));
        write(&*store, put(table, &row, number(n))).await;
    }
    let before = read_all(&*store, table, 100).await;
    for failing in 0..10 {
        let commands = (0..10i64).map(|n| {
            let (old, new) = (key("p", &format!("old{}", n / 2)), key("p", &format!("new{n}")));
            match n {
                n if n == failing => {
                    command(table, &taken, Condition::Absent, Write::Put(number(9)))
                }
                n if n % 4 == 0 => command(table, &old, Condition::Exists, Write::Delete),
                n if n % 2 == 0 => {
                    let patch = record(&[("m", ValueRef::Int32(1))]);
                    command(table, &old, Condition::Exists, Write::Merge(patch))
                }
                _ => command(table, &new, Condition::Absent, Write::Put(number(n))),
            }
        });
        let tags = tags(&*store, table).await;
        let result = commit(&*store, commands.collect()).await;
        let expected = usize::try_from(failing).expect("a small number");
        assert_eq!(refusal(result), (expected, Conflict::EntityExists));
        let after = read_all(&*store, table, 100).await;
        assert_eq!(after, before, "command {failing} failed, so none took effect");
        assert_eq!(self::tags(&*store, table).await, tags, "Timestamps are as they were");
    }
    // Two failing commands: the first is named.
    let twice = vec![
        put(table, &key("p", "x"), number(1)),
        command(table, &key("p", "none"), Condition::Exists, Write::Delete),
        command(table, &taken, Condition::Absent, Write::Put(number(1))),
    ];
    assert_eq!(refusal(commit(&*store, twice).await), (1, Conflict::EntityNotFound));
    let empty = store.commit(Batch::default()).await.expect("an empty batch does nothing");
    assert!(empty.timestamps.is_empty());
    assert_eq!(read_all(&*store, table, 100).await, before);
}

async fn tags(store: &dyn crate::Store, table: TableId) -> Vec<rowhouse_types::Timestamp> {
    let page = super::fixture::page(store, table, super::fixture::scan_all()).await;
    page.rows.iter().map(|row| row.expect("a page decodes").record.timestamp()).collect()
}

/// Insert, replace, merge, delete and insert of one key within one batch.
pub async fn later_commands_see_earlier_ones(engine: &dyn Engine) {
    let (store, table) = open(engine).await;
    let key = key("p", "r");
    let stale = write(&*store, put(table, &key, number(0))).await;
    let with = |condition, write| command(table, &key, condition, write);
    let patch = || record(&[("m", ValueRef::Int32(1))]);
    write_all(
        &*store,
        vec![
            with(Condition::Matches(Etag::new(stale)), Write::Delete),
            with(Condition::Absent, Write::Put(number(1))),
            with(Condition::Exists, Write::Merge(patch())),
            with(Condition::Exists, Write::Delete),
            with(Condition::Absent, Write::Put(number(2))),
            with(Condition::Exists, Write::Merge(patch())),
        ],
    )
    .await;
    let wanted = record(&[("n", ValueRef::Int64(2)), ("m", ValueRef::Int32(1))]);
    let found = get(&*store, table, &key).await.expect("the entity is there");
    assert_eq!(content(&found), wanted);

    let refused = vec![
        with(Condition::Exists, Write::Delete),
        with(Condition::Exists, Write::Put(number(3))),
    ];
    assert_eq!(refusal(commit(&*store, refused).await), (1, Conflict::EntityNotFound));
    let tag = Etag::new(found.as_ref().timestamp());
    let refused = vec![
        with(Condition::Any, Write::Put(number(3))),
        with(Condition::Matches(tag), Write::Put(number(4))),
    ];
    assert_eq!(refusal(commit(&*store, refused).await), (1, Conflict::ConditionNotMet));
    assert_eq!(get(&*store, table, &key).await, Some(found));
}

/// Tables of one or two accounts, partitions of one table: one batch, one fate.
pub async fn batch_spans_tables_and_partitions(engine: &dyn Engine) {
    let (store, first) = open(engine).await;
    let other = account(&*store, "second").await;
    let second = table(&*store, other.id, "Others").await;
    let dropped = table(&*store, other.id, "Dropped").await;
    store.drop_table(dropped).await.expect("the table can be dropped");
    let places = [(first, key("p", "r")), (first, key("q", "r")), (second, key("p", "r"))];
    let puts = |n| places.iter().map(move |(table, key)| put(*table, key, number(n)));
    write_all(&*store, puts(1).collect()).await;
    let mut refused: Vec<_> = puts(2).collect();
    refused.push(put(dropped, &key("p", "r"), number(2)));
    assert_eq!(refusal(commit(&*store, refused).await), (3, Conflict::TableNotFound));
    for (table, key) in &places {
        let found = get(&*store, *table, key).await.expect("the entity is there");
        assert_eq!(content(&found), number(1));
    }
}

/// Commits of one partition, one after the other.
pub async fn sequence_rises_in_a_partition(engine: &dyn Engine) {
    let (store, table) = open(engine).await;
    let mut last = None;
    for n in 0..10 {
        let key = key("p", &(n % 3).to_string());
        let committed = commit(&*store, vec![put(table, &key, number(n))]).await;
        let sequence = committed.expect("the write succeeds").sequence;
        assert!(last < Some(sequence), "{last:?} then {sequence}");
        last = Some(sequence);
    }
}

/// Commits of several partitions and tables, also after reopening.
pub async fn sequence_rises_in_the_store(engine: &dyn Engine) {
    let (mut store, first) = open(engine).await;
    let other = account(&*store, "second").await;
    let second = table(&*store, other.id, "Others").await;
    let mut last = None;
    for n in 0..12 {
        if n == 6 {
            let Some(reopened) = engine.reopen(store).await else { return };
            store = reopened;
        }
        let table = if n % 2 == 0 { first } else { second };
        let key = key(&n.to_string(), "r");
        let committed = commit(&*store, vec![put(table, &key, number(n))]).await;
        let sequence = committed.expect("the write succeeds").sequence;
        assert!(last < Some(sequence), "{last:?} then {sequence}");
        last = Some(sequence);
    }
}
