//! A database that an earlier release has filled opens, is all there, and can be written on.
//!
//! `fixtures/schema1.sql` is a database of the first schema: its first part is `migrations/0001.sql` as it was, its second what `pg_dump --inserts`
//! showed after the code of that time had filled it. It is never made again: what is in it is what users have.

use crate::common;
use crate::common::{
    command, commit, database, key, n, name, number, open, page, put, record, scan_all,
};
use rowhouse_store::conformance::indexed::{assert_agrees, index_of, ready};
use rowhouse_store::conformance::queued;
use rowhouse_store::{Condition, Placement, Store, TableId, Ttl, Write};
use rowhouse_testkit::TestPostgres;
use rowhouse_types::{EntityKey, Guid, Record, StoredPolicy, Timestamp, ValueRef};
use std::fs;
use std::time::Duration;

fn fixture() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/schema1.sql");
    fs::read_to_string(path).expect("the fixture is there")
}

/// Every type, the extremes of each, names of any characters, keys of every length.
fn contents() -> Vec<(EntityKey, Record)> {
    let guid = Guid::parse("01234567-89ab-cdef-0123-456789abcdef").expect("a guid");
    let time = |text| ValueRef::DateTime(Timestamp::parse_iso(text).expect("a time"));
    let values = [
        ("Text", ValueRef::String("ä😀\u{0}\"\\")),
        ("Empty", ValueRef::String("")),
        ("Bytes", ValueRef::Binary(&[0, 255, 10])),
        ("NoBytes", ValueRef::Binary(&[])),
        ("Yes", ValueRef::Boolean(true)),
        ("No", ValueRef::Boolean(false)),
        ("Small", ValueRef::Int32(i32::MIN)),
        ("Large", ValueRef::Int64(i64::MAX)),
        ("Least", ValueRef::Int64(i64::MIN)),
        ("Half", ValueRef::Double(-0.5)),
        ("Zero", ValueRef::Double(-0.0)),
        ("Tiny", ValueRef::Double(5e-324)),
        ("Huge", ValueRef::Double(f64::MAX)),
        ("None", ValueRef::Double(f64::NAN)),
        ("Above", ValueRef::Double(f64::INFINITY)),
        ("Below", ValueRef::Double(f64::NEG_INFINITY)),
        ("First", time("1601-01-01T00:00:00.0000001Z")),
        ("Last", time("9999-12-31T23:59:59.9999999Z")),
        ("Id", ValueRef::Guid(guid)),
        ("Größe", ValueRef::Int32(1)),
    ];
    let mut all = vec![(key("types", "all"), record(&values)), (key("", ""), record(&[]))];
    // The longest that there are, two that differ at their end only, and one around what an index holds.
    let long = "😀".repeat(512);
    let other = format!("{}z", "x".repeat(1023));
    for row in [long.as_str(), other.as_str(), &"x".repeat(1024), "short", ""] {
        all.push((key(&long, row), number(1)));
    }
    for row in ["a", "a ", "A", "ä", "a!", "\u{fffd}", "😀"] {
        all.push((key("order", row), record(&[("Row", ValueRef::String(row))])));
    }
    for number in 0..20_usize {
        let text = "é".repeat(number * 20);
        let values =
            [("Text", ValueRef::String(&text)), ("Even", ValueRef::Boolean(number % 2 == 0))];
        all.push((key("rows", &format!("{number:03}")), record(&values)));
    }
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all
}

fn policies() -> Vec<StoredPolicy> {
    let expiry = Timestamp::parse_iso("2030-01-01T00:00:00Z").ok();
    let policy = |id: &str, permission: Option<&str>| StoredPolicy {
        id: id.into(),
        start: None,
        expiry,
        permission: permission.map(Into::into),
    };
    vec![policy("p", Some("raud")), policy("'q", None)]
}

/// A new database with the fixture in it.
fn old_database() -> String {
    let server = TestPostgres::shared();
    let url = server.create_database();
    server.execute(database(&url), &fixture());
    url
}

fn ask(url: &str, sql: &str) -> String {
    TestPostgres::shared().execute(database(url), sql)
}

/// The Timestamps of the entities of a table in the order of their keys, as the old release wrote them.
fn old_times(url: &str, table: TableId) -> Vec<Timestamp> {
    let sql =
        format!("SELECT ts FROM rowhouse.entities WHERE tid = {} ORDER BY kp || rest", table.0);
    let time = |line: &str| line.parse().ok().and_then(Timestamp::from_ticks).expect("a time");
    ask(url, &sql).lines().map(time).collect()
}

/// The fixture is what was released: nobody has changed the first step since.
#[test]
fn the_first_step_is_that_of_the_fixture() {
    let first = include_str!("../../migrations/0001.sql");
    assert!(fixture().contains(first), "what was released never changes");
}

#[test]
fn a_database_of_the_first_schema_is_brought_up_to_date() {
    common::run(async {
        let url = old_database();
        assert_eq!(ask(&url, "SELECT version FROM rowhouse.schema_version"), "1");
        let times = old_times(&url, TableId(1));
        // Two at once: one of them does it.
        let (store, other) = tokio::join!(open(&url), open(&url));
        assert_eq!(ask(&url, "SELECT version FROM rowhouse.schema_version"), "8");
        for store in [&store, &other] {
            verify(&**store, &times).await;
        }
        other.close().await.expect("it closes");
        go_on(&*store).await;
        store.close().await.expect("it closes");
        verify(&*open(&url).await, &times).await;
    });
}

/// Everything is as it was, with its Timestamps.
async fn verify(store: &dyn Store, times: &[Timestamp]) {
    let accounts = store.accounts().await.expect("listed");
    let told: Vec<_> =
        accounts.iter().map(|it| (it.name.as_str(), &*it.keys[0], &*it.keys[1])).collect();
    let expected: [(&str, &[u8], &[u8]); 2] =
        [("account", b"key one", b"key two"), ("second", b"\0\x01", b"\xff")];
    assert_eq!(told, expected);
    assert_eq!(accounts[0].settings.get("s").map(AsRef::as_ref), Some(&b"v\0\xff"[..]));
    let tables = store.tables(accounts[0].id, None, 10).await.expect("listed");
    let names: Vec<_> = tables.iter().map(|table| table.name.as_str()).collect();
    assert_eq!(names[..2], ["People", "Placed"]);
    let (people, placed) = (&tables[0], &tables[1]);
    assert_eq!((people.id, &people.policies), (TableId(1), &policies()));
    assert!(people.indexes.is_empty() && people.ttl.is_none());
    let placement = Placement { group: Some("g".into()), route_chars: Some(3) };
    assert_eq!(placed.placement, placement);

    let expected: Vec<_> = contents()
        .into_iter()
        .zip(times)
        .map(|((key, mut record), time)| {
            record.stamp(*time);
            (key, record)
        })
        .collect();
    assert_eq!(expected.len(), times.len(), "every entity has a time");
    let whole = page(store, people.id, scan_all()).await;
    let found: Vec<_> = whole
        .rows
        .iter()
        .map(|row| row.expect("a page decodes"))
        .map(|row| (key(row.partition, row.row), row.record.to_owned()))
        .collect();
    assert!(found == expected, "{found:?}");
    for (key, record) in &expected {
        let found = store.get(people.id, key).await.expect("the read succeeds");
        assert_eq!(found.as_ref(), Some(record), "{key:?}");
    }
    let second = store.table(accounts[1].id, &name("PEOPLE")).await.expect("read").expect("there");
    for (table, key, number) in [(placed.id, key("abcdef", "r"), 7), (second.id, key("p", "r"), 8)]
    {
        let found = store.get(table, &key).await.expect("the read succeeds").expect("there");
        assert_eq!(n(&found), number);
    }
}

/// What later schemas have brought works on what was there, and leaves it as it was.
async fn go_on(store: &dyn Store) {
    let account = store.accounts().await.expect("listed")[0].id;
    let people = store.table(account, &name("People")).await.expect("read").expect("there").id;
    let (_, old) = &contents()[0];
    let row = key("rows", "later");
    let merge = Write::Merge(record(&[("Later", ValueRef::Boolean(true))]));
    for write in [Write::Put(old.clone()), merge, Write::Delete] {
        let change = command(people, &row, Condition::Any, write);
        commit(store, vec![change]).await.expect("the write succeeds");
    }
    let index = ready(store, people, "even", index_of(&["Even"])).await;
    assert_agrees(store, people, &index, "the first schema").await;
    store.drop_index(people, index.id).await.expect("dropped");

    let fading = store.create_table(account, &name("Zfading"), Placement::default()).await;
    let fading = fading.expect("created").id;
    assert!(people < fading, "no id is used again");
    let ttl = Ttl { property: Some("Until".into()), after: Duration::ZERO };
    store.set_ttl(fading, Some(ttl)).await.expect("set");
    let until = Timestamp::parse_iso("2001-01-01T00:00:00Z").expect("a time");
    let gone = record(&[("Until", ValueRef::DateTime(until))]);
    commit(
        store,
        vec![put(fading, &key("p", "gone"), gone), put(fading, &key("p", "r"), number(1))],
    )
    .await
    .expect("the batch succeeds");
    assert_eq!(page(store, fading, scan_all()).await.rows.len(), 1);

    let jobs = queued::queue(store, account, "jobs").await;
    queued::put(store, jobs, "text").await;
    assert_eq!(queued::texts(&queued::take(store, jobs, 9, 0).await), ["text"]);
    store.keep_changes(Some(Duration::from_hours(1))).await.expect("kept");
    commit(store, vec![put(fading, &key("p", "r"), number(2))]).await.expect("the write succeeds");
    assert!(store.kept_changes().await.expect("read").is_some());
}
