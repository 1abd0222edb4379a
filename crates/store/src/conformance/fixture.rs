//! Short words for the tests of the suite, and for the tests that an engine has of its own.

use super::Engine;
use crate::{
    Account, AccountId, Batch, Command, Committed, Condition, Conflict, NewAccount, Page,
    Placement, Scan, Store, StoreError, TableId, Take, Write,
};
use rowhouse_query::Filter;
use rowhouse_types::{
    Direction, EntityKey, KeyRange, Position, Record, RecordBuilder, Row, Rows, Timestamp, ValueRef,
};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A new store with an account and a table.
pub(super) async fn open(engine: &dyn Engine) -> (Arc<dyn Store>, TableId) {
    let store = engine.open().await;
    let account = account(&*store, "first").await;
    let table = table(&*store, account.id, "Things").await;
    (store, table)
}

pub(super) async fn account(store: &dyn Store, name: &str) -> Arc<Account> {
    let name = name.parse().expect("a legal account name");
    let keys = [Box::from(*b"key one"), Box::from(*b"key two")];
    store.create_account(NewAccount { name, keys }).await.expect("the account can be created")
}

pub(super) async fn table(store: &dyn Store, account: AccountId, name: &str) -> TableId {
    let name = name.parse().expect("a legal table name");
    let table = store.create_table(account, &name, Placement::default()).await;
    table.expect("the table can be created").id
}

/// A legal key.
pub fn key(partition: &str, row: &str) -> EntityKey {
    EntityKey::new(partition, row).expect("a legal key")
}

/// A record of these properties. Its Timestamp is an old one, which no store may keep.
pub fn record(properties: &[(&str, ValueRef<'_>)]) -> Record {
    let mut builder = RecordBuilder::new();
    for (name, value) in properties {
        builder.push(name, *value).expect("a legal property");
    }
    builder.finish(Timestamp::default())
}

/// A record whose property `n` is the number.
pub fn number(n: i64) -> Record {
    record(&[("n", ValueRef::Int64(n))])
}

/// The property `n`.
pub fn n(record: &Record) -> i64 {
    match record.as_ref().get("n") {
        Ok(Some(ValueRef::Int64(n))) => n,
        other => panic!("property n is {other:?}"),
    }
}

/// The record without the Timestamp that the store gave it.
pub(super) fn content(record: &Record) -> Record {
    let mut record = record.clone();
    record.stamp(Timestamp::default());
    record
}

/// A change of one entity.
pub fn command(table: TableId, key: &EntityKey, condition: Condition, write: Write) -> Command {
    Command::Entity { table, key: key.clone(), condition, write }
}

/// Insert or replace.
pub fn put(table: TableId, key: &EntityKey, record: Record) -> Command {
    command(table, key, Condition::Any, Write::Put(record))
}

/// Commits, and tries again as long as the store is busy.
pub async fn commit(store: &dyn Store, commands: Vec<Command>) -> Result<Committed, StoreError> {
    loop {
        match store.commit(Batch::new(commands.clone())).await {
            Err(StoreError::Busy) => tokio::time::sleep(Duration::from_millis(1)).await,
            result => return result,
        }
    }
}

/// Commits one command that must succeed; its Timestamp.
pub async fn write(store: &dyn Store, command: Command) -> Timestamp {
    let committed = commit(store, vec![command]).await.expect("the write succeeds");
    assert_eq!(committed.timestamps.len(), 1, "one Timestamp per command");
    committed.timestamps[0]
}

/// Commits commands that must succeed.
pub(super) async fn write_all(store: &dyn Store, commands: Vec<Command>) {
    let count = commands.len();
    let committed = commit(store, commands).await.expect("the batch succeeds");
    assert_eq!(committed.timestamps.len(), count, "one Timestamp per command");
}

pub(super) async fn get(store: &dyn Store, table: TableId, key: &EntityKey) -> Option<Record> {
    store.get(table, key).await.expect("the read succeeds")
}

/// Which command was refused and why; panics on anything else.
pub(super) fn refusal<T: std::fmt::Debug>(result: Result<T, StoreError>) -> (usize, Conflict) {
    match result {
        Err(StoreError::Rejected { index, reason }) => (index, reason),
        other => panic!("expected a rejection, got {other:?}"),
    }
}

/// A scan of these ranges without other limits.
pub fn scan_of(ranges: Vec<KeyRange>) -> Scan {
    Scan {
        ranges,
        through: None,
        direction: Direction::Ascending,
        take: Take::Entities,
        filter: None,
        select: None,
        limit: usize::MAX,
        max_bytes: usize::MAX,
        deadline: Instant::now() + Duration::from_mins(10),
    }
}

/// A scan of everything.
pub fn scan_all() -> Scan {
    scan_of(vec![KeyRange::all()])
}

pub(super) fn filter(text: &str) -> Option<Arc<Filter>> {
    Filter::parse(text).expect("a legal filter").map(Arc::new)
}

/// A page of a scan that must succeed.
pub async fn page(store: &dyn Store, table: TableId, scan: Scan) -> Page {
    store.scan(table, scan).await.expect("the scan succeeds")
}

/// The ranges from the place on.
pub(super) fn resume(ranges: &[KeyRange], from: &Position) -> Vec<KeyRange> {
    resume_in(Direction::Ascending, ranges, from)
}

/// The ranges from the place on, in that direction.
pub(super) fn resume_in(
    direction: Direction,
    ranges: &[KeyRange],
    from: &Position,
) -> Vec<KeyRange> {
    let rest = direction.rest(from);
    ranges.iter().filter_map(|range| range.intersect(&rest)).collect()
}

/// What a page holds, for comparing.
pub(super) fn rows(page: &Page) -> Vec<(String, String, Record)> {
    let owned = |row: Row<'_>| {
        (row.partition.to_owned(), row.row.to_owned(), content(&row.record.to_owned()))
    };
    page.rows.iter().map(|row| owned(row.expect("a page decodes"))).collect()
}

/// The keys of a page, each as `partition/row`.
pub(super) fn keys(page: &Page) -> Vec<String> {
    keys_of(&page.rows)
}

/// The keys of entities, each as `partition/row`.
pub(super) fn keys_of(rows: &Rows) -> Vec<String> {
    let rows = rows.iter().map(|row| row.expect("a page decodes"));
    rows.map(|row| format!("{}/{}", row.partition, row.row)).collect()
}

/// The place to resume, as `partition/row`.
pub(super) fn next(page: &Page) -> Option<String> {
    page.next.as_ref().map(|next| format!("{}/{}", next.partition, next.row))
}

/// The whole table, page by page, a page of `limit` entities at a time.
pub(super) async fn read_all(
    store: &dyn Store,
    table: TableId,
    limit: usize,
) -> Vec<(String, String, Record)> {
    let (mut ranges, mut all) = (vec![KeyRange::all()], Vec::new());
    loop {
        let page = page(store, table, Scan { limit, ..scan_of(ranges.clone()) }).await;
        all.extend(rows(&page));
        match &page.next {
            Some(next) => ranges = resume(&ranges, next),
            None => return all,
        }
    }
}

/// Whether nothing of the table can be read: either it is said to be gone or it looks empty.
pub(super) async fn is_unreachable(store: &dyn Store, table: TableId, key: &EntityKey) -> bool {
    let gone = |error: &StoreError| {
        matches!(error, StoreError::Rejected { reason: Conflict::TableNotFound, .. })
    };
    let read = match store.get(table, key).await {
        Ok(found) => found.is_none(),
        Err(error) => gone(&error),
    };
    let scanned = match store.scan(table, scan_all()).await {
        Ok(page) => page.rows.is_empty() && page.next.is_none(),
        Err(error) => gone(&error),
    };
    read && scanned
}
