//! What the tests of this crate have in common.

use rowhouse_store::{
    Batch, Command, Condition, NewAccount, Page, Placement, Scan, Store, TableId, Take, Write,
};
use rowhouse_types::{
    AccountName, Direction, EntityKey, KeyRange, Record, RecordBuilder, TableName, Timestamp,
    ValueRef,
};
use std::time::{Duration, Instant};

/// A connection that writes as the engine does, checksums included. The process must have opened a store before.
pub(crate) fn writer(directory: &std::path::Path) -> rusqlite::Connection {
    let (path, flags) = (directory.join("rowhouse.db"), rusqlite::OpenFlags::default());
    rusqlite::Connection::open_with_flags_and_vfs(path, flags, c"rowhouse").unwrap()
}

pub(crate) fn name(text: &str) -> TableName {
    text.parse().unwrap()
}

/// The table of that name in the one account, both created if they are not there.
pub(crate) async fn table(store: &dyn Store, table: &str) -> TableId {
    let account: AccountName = "account".parse().unwrap();
    let account = if let Some(found) = store.account(&account).await.unwrap() {
        found
    } else {
        let keys = [Box::from(*b"one"), Box::from(*b"two")];
        store.create_account(NewAccount { name: account, keys }).await.unwrap()
    };
    match store.table(account.id, &name(table)).await.unwrap() {
        Some(found) => found.id,
        None => {
            store.create_table(account.id, &name(table), Placement::default()).await.unwrap().id
        }
    }
}

pub(crate) fn key(partition: &str, row: &str) -> EntityKey {
    EntityKey::new(partition, row).unwrap()
}

/// A record of a number and so many bytes of padding that do not repeat.
pub(crate) fn record(number: i64, padding: usize) -> Record {
    let mut builder = RecordBuilder::new();
    builder.push("Number", ValueRef::Int64(number)).unwrap();
    let mut state = number.cast_unsigned() | 1;
    let mut rest = padding;
    for part in 0.. {
        if rest == 0 {
            break;
        }
        let bytes: Vec<u8> = (0..rest.min(60_000))
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                state.to_le_bytes()[7]
            })
            .collect();
        rest -= bytes.len();
        builder.push(&format!("Part{part}"), ValueRef::Binary(&bytes)).unwrap();
    }
    builder.finish(Timestamp::default())
}

/// The number in a record.
pub(crate) fn number(record: &Record) -> i64 {
    match record.as_ref().get("Number").unwrap() {
        Some(ValueRef::Int64(number)) => number,
        other => panic!("no number but {other:?}"),
    }
}

pub(crate) fn put(table: TableId, partition: &str, row: &str, record: Record) -> Command {
    write(table, partition, row, Condition::Any, Write::Put(record))
}

pub(crate) fn write(
    table: TableId,
    partition: &str,
    row: &str,
    condition: Condition,
    write: Write,
) -> Command {
    Command::Entity { table, key: key(partition, row), condition, write }
}

pub(crate) async fn commit(store: &dyn Store, commands: Vec<Command>) -> Timestamp {
    store.commit(Batch::new(commands)).await.unwrap().timestamps[0]
}

/// Everything in the range, or as much as a page takes.
pub(crate) async fn page(store: &dyn Store, table: TableId, range: KeyRange) -> Page {
    store.scan(table, scan_of(range)).await.unwrap()
}

pub(crate) fn scan_of(range: KeyRange) -> Scan {
    Scan {
        ranges: vec![range],
        through: None,
        direction: Direction::Ascending,
        take: Take::Entities,
        filter: None,
        select: None,
        limit: usize::MAX,
        max_bytes: usize::MAX,
        deadline: Instant::now() + Duration::from_mins(1),
    }
}
