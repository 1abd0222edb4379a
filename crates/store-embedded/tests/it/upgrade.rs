//! Data written by earlier releases opens, is all there, and can be written on.
//!
//! Each format that was released has a fixture, made by the release itself:
//! `ROWHOUSE_WRITE_FIXTURE=format1 cargo test -p rowhouse-store-embedded --test it upgrade::write -- --ignored`.
//! A fixture is never made again: what is in it is what users have.

#[allow(dead_code, reason = "each test file uses some of it")]
use crate::common;
use crate::common::{commit, key, name, page, put, record, table, write};
use rowhouse_env::{Clock, SystemClock};
use rowhouse_query::index::IndexKeys;
use rowhouse_store::conformance::indexed::{assert_agrees, built, index_of, ready, unique_of};
use rowhouse_store::conformance::queued;
use rowhouse_store::{
    Command, Condition, Index, IndexState, Placement, QueueId, Store, TableId, Ttl, Write,
};
use rowhouse_store_embedded::{EmbeddedStore, Options, add_checksums, check};
use rowhouse_types::{
    EntityKey, KeyRange, Record, RecordBuilder, StoredPolicy, Timestamp, ValueRef,
};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

const FORMATS: [&str; 4] = ["format1", "format2", "format3", "format4"];
/// Those that have indexes, queues and entities that expire.
const THIRD: [&str; 2] = ["format3", "format4"];
/// Longer than any fixture is tested.
const CENTURY: Duration = Duration::from_hours(24 * 36_525);

fn fixture(format: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(format).join("rowhouse.db")
}

fn open(directory: &Path) -> EmbeddedStore {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    EmbeddedStore::open(Options::new(directory), clock).expect("the store opens")
}

/// Every type, long keys, records within a row and beside it.
fn contents() -> Vec<(EntityKey, Record)> {
    let mut builder = RecordBuilder::new();
    let guid = rowhouse_types::Guid::parse("01234567-89ab-cdef-0123-456789abcdef").expect("a guid");
    let time = Timestamp::parse_iso("1601-01-01T00:00:00.0000001Z").expect("a time");
    let values = [
        ("Text", ValueRef::String("ä😀\u{0}\"")),
        ("Empty", ValueRef::String("")),
        ("Bytes", ValueRef::Binary(&[0, 255, 10])),
        ("Yes", ValueRef::Boolean(true)),
        ("Small", ValueRef::Int32(i32::MIN)),
        ("Large", ValueRef::Int64(i64::MAX)),
        ("Half", ValueRef::Double(-0.5)),
        ("None", ValueRef::Double(f64::NAN)),
        ("Time", ValueRef::DateTime(time)),
        ("Id", ValueRef::Guid(guid)),
    ];
    for (name, value) in values {
        builder.push(name, value).expect("a legal property");
    }
    let mut all = vec![(key("types", "all"), builder.finish(Timestamp::default()))];
    all.push((key("", ""), RecordBuilder::new().finish(Timestamp::default())));
    let long = "😀".repeat(512);
    all.push((key(&long, &long), record(1, 100)));
    for number in 0_i32..60 {
        let size = usize::try_from(number).expect("small") * 50;
        all.push((key("rows", &format!("{number:03}")), record(number.into(), size)));
    }
    all.push((key("large", "row"), record(-1, 300_000)));
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all
}

fn policies() -> Vec<StoredPolicy> {
    let expiry = Timestamp::parse_iso("2030-01-01T00:00:00Z").ok();
    vec![StoredPolicy { id: "p".into(), start: None, expiry, permission: Some("raud".into()) }]
}

/// Fills a new store as the fixture of the present format.
async fn fill(store: &dyn Store) {
    let people = table(store, "People").await;
    for (key, record) in contents() {
        let put = Command::Entity {
            table: people,
            key,
            condition: Condition::Absent,
            write: Write::Put(record),
        };
        commit(store, vec![put]).await;
    }
    store.set_policies(people, policies()).await.expect("set");
    let account = store.accounts().await.expect("listed")[0].id;
    store.set_account_setting(account, None, "s", Some(Box::from(*b"v"))).await.expect("set");
    let placement = Placement { group: Some("g".into()), route_chars: Some(3) };
    store.create_table(account, &name("Placed"), placement).await.expect("created");
    let dropped = table(store, "Dropped").await;
    for number in 0..3000 {
        commit(store, vec![put(dropped, "p", &number.to_string(), record(number, 10))]).await;
    }
    store.drop_table(dropped).await.expect("dropped");
    store.keep_changes(Some(CENTURY)).await.expect("kept");
    commit(store, vec![put(people, "rows", "059", record(59, 59 * 50))]).await;
    for (name, keys) in indexes() {
        let name = name.parse().expect("a legal name");
        let index = store.create_index(people, &name, keys).await.expect("declared");
        built(store, people, index.id).await;
    }
    fill_queue(store).await;
    fill_fading(store).await;
}

/// A queue with a message that was taken and one that is updated, one that is visible and long, and one that was deleted.
async fn fill_queue(store: &dyn Store) {
    let account = store.accounts().await.expect("listed")[0].id;
    let mail = queued::queue(store, account, "mail").await;
    store.set_metadata(mail, metadata()).await.expect("set");
    store.set_queue_policies(mail, policies()).await.expect("set");
    queued::put_for(store, mail, "täken", 0, Some(CENTURY.as_secs())).await;
    queued::take(store, mail, 1, 0).await;
    queued::take(store, mail, 1, CENTURY.as_secs()).await;
    let updated = queued::put(store, mail, "before").await;
    queued::done(store, mail, queued::updating(&updated, 0, Some("updated"))).await;
    queued::put(store, mail, &long_text()).await;
    let deleted = queued::put(store, mail, "deleted").await;
    queued::done(store, mail, queued::deleting(&deleted)).await;
}

/// Entities of which one expires at a time of its own and the other never.
async fn fill_fading(store: &dyn Store) {
    let fading = table(store, "Fading").await;
    for (row, record) in fading_contents() {
        commit(store, vec![put(fading, "p", row, record)]).await;
    }
    store.set_ttl(fading, Some(ttl())).await.expect("set");
}

fn metadata() -> Vec<(Box<str>, Box<str>)> {
    vec![("Zone".into(), "x".into()), ("a".into(), "".into())]
}

fn long_text() -> String {
    "lang é ".repeat(2000)
}

fn ttl() -> Ttl {
    Ttl { property: Some("Until".into()), after: Duration::from_hours(1) }
}

fn fading_contents() -> [(&'static str, Record); 2] {
    let until = Timestamp::parse_iso("9998-01-01T00:00:00Z").expect("a time");
    let mut builder = RecordBuilder::new();
    builder.push("Until", ValueRef::DateTime(until)).expect("a legal property");
    [("late", builder.finish(Timestamp::default())), ("never", record(3, 3))]
}

/// What is declared in the fixtures of formats that have indexes.
fn indexes() -> [(&'static str, IndexKeys); 2] {
    [("number", index_of(&["Number"])), ("text", unique_of(&["Text", "RowKey"]))]
}

/// The index of that name, declared now if the fixture is of a format without.
async fn declared(store: &dyn Store, people: TableId, name: &str, keys: IndexKeys) -> Index {
    let account = store.accounts().await.expect("listed")[0].id;
    let table = store.table(account, &common::name("People")).await.expect("read").expect("there");
    match table.indexes.iter().find(|index| index.name.as_str() == name) {
        Some(index) => {
            assert_eq!(built(store, people, index.id).await.state, IndexState::Ready);
            index.clone()
        }
        None => ready(store, people, name, keys).await,
    }
}

/// A queue that is declared now if the fixture is of a format without.
async fn jobs(store: &dyn Store) -> QueueId {
    let account = store.accounts().await.expect("listed")[0].id;
    match store.queue(account, &"jobs".parse().expect("legal")).await.expect("read") {
        Some(queue) => queue.id,
        None => queued::queue(store, account, "jobs").await,
    }
}

/// All entities of a table, without their Timestamps.
async fn found(store: &dyn Store, table: TableId) -> Vec<(EntityKey, Record)> {
    let found = page(store, table, KeyRange::all()).await;
    found
        .rows
        .iter()
        .map(|row| {
            let row = row.expect("the record decodes");
            let mut record = row.record.to_owned();
            record.stamp(Timestamp::default());
            (key(row.partition, row.row), record)
        })
        .collect()
}

async fn verify(store: &dyn Store, format: &str) -> TableId {
    let people = table(store, "People").await;
    assert!(found(store, people).await == contents(), "everything is there as it was");
    let accounts = store.accounts().await.expect("listed");
    assert_eq!(accounts[0].settings.get("s").map(AsRef::as_ref), Some(&b"v"[..]));
    let tables = store.tables(accounts[0].id, None, 10).await.expect("listed");
    let mut names: Vec<_> = tables.iter().map(|table| table.name.as_str()).collect();
    if THIRD.contains(&format) {
        assert_eq!(names.remove(0), "Fading");
    }
    assert_eq!(names, ["People", "Placed"], "{format}");
    let [.., people_table, placed] = &tables[..] else { panic!("{tables:?}") };
    assert_eq!(people_table.policies, policies());
    assert_eq!(placed.placement.route_chars, Some(3));
    people
}

/// What the formats before the third could not have.
async fn verify_third(store: &dyn Store) {
    let account = store.accounts().await.expect("listed")[0].id;
    let people = store.table(account, &name("People")).await.expect("read").expect("there");
    let declared: Vec<_> =
        people.indexes.iter().map(|index| (index.name.as_str(), index.keys.clone())).collect();
    assert_eq!(declared, indexes(), "they were there, and were not declared now");
    let fading = store.table(account, &name("Fading")).await.expect("read").expect("there");
    assert_eq!(fading.ttl, Some(ttl()));
    let expected = fading_contents().map(|(row, record)| (key("p", row), record));
    assert_eq!(found(store, fading.id).await, expected);

    let mail = store.queue(account, &"mail".parse().expect("legal")).await.expect("read");
    let mail = mail.expect("there");
    assert_eq!((mail.metadata.clone(), mail.policies.clone()), (metadata(), policies()));
    assert_eq!(store.message_count(mail.id).await.expect("counted"), 3);
    let view = store.snapshot().await.expect("taken");
    let messages = view.messages(mail.id, None, 10, usize::MAX).await.expect("read").messages;
    let taken = messages.iter().find(|message| &*message.text == "täken").expect("there");
    assert_eq!(taken.taken, 2);
    assert_eq!(taken.expires, taken.inserted.plus_seconds(CENTURY.as_secs()));
    assert_eq!(taken.visible, taken.receipt.plus_seconds(CENTURY.as_secs()));
    let visible = queued::peek(store, mail.id, 9).await;
    assert_eq!(queued::texts(&visible), ["updated", &long_text()], "in the order of the queue");
    assert!(visible.iter().all(|message| message.expires == Timestamp::MAX));
    assert!(visible[0].inserted < visible[0].receipt, "it was updated");
}

/// Who has a receipt of before can still use it.
async fn go_on_with_queue(store: &dyn Store) {
    let account = store.accounts().await.expect("listed")[0].id;
    let mail = store.queue(account, &"mail".parse().expect("legal")).await.expect("read");
    let mail = mail.expect("there").id;
    let view = store.snapshot().await.expect("taken");
    let messages = view.messages(mail, None, 10, usize::MAX).await.expect("read").messages;
    drop(view);
    for message in &messages {
        queued::done(store, mail, queued::updating(message, 0, None)).await;
    }
    let mut taken = queued::take(store, mail, 9, 0).await;
    taken.sort_by(|a, b| a.text.cmp(&b.text));
    assert_eq!(queued::texts(&taken), [&*long_text(), "täken", "updated"]);
}

#[tokio::test]
async fn every_format_opens() {
    for format in FORMATS {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let database = directory.path().join("rowhouse.db");
        fs::copy(fixture(format), &database).expect("the fixture is there");
        let before = check(directory.path(), &mut |_| {}).expect("it can be checked");
        assert_eq!(before.problems, Vec::<String>::new(), "{format}");

        let store = open(directory.path());
        let people = verify(&store, format).await;
        if THIRD.contains(&format) {
            verify_third(&store).await;
        }
        let kept = store.kept_changes().await.expect("read");
        assert_eq!(kept.is_some(), format != "format1", "{format}: changes are kept since");
        let old = store.get(people, &key("rows", "000")).await.expect("read").expect("there");
        let change = Write::Put(record(5, 5));
        let change = write(people, "rows", "000", Condition::Exists, change);
        let written = commit(&store, vec![change]).await;
        assert!(old.as_ref().timestamp() < written, "{format}: time goes on");
        commit(&store, vec![put(people, "rows", "000", record(0, 0))]).await;
        for (name, keys) in indexes() {
            let index = declared(&store, people, name, keys).await;
            assert_agrees(&store, people, &index, format).await;
        }
        let jobs = jobs(&store).await;
        let text = "text ".repeat(1000);
        queued::put(&store, jobs, &text).await;
        assert_eq!(queued::texts(&queued::take(&store, jobs, 9, 0).await), [text], "{format}");
        if THIRD.contains(&format) {
            go_on_with_queue(&store).await;
        }
        store.close().await.expect("closed");

        let after = check(directory.path(), &mut |_| {}).expect("it can be checked");
        assert_eq!((after.problems, after.entities), (Vec::new(), before.entities), "{format}");
        let (queues, messages) = if THIRD.contains(&format) { (2, 4) } else { (1, 1) };
        let found = (after.indexes, after.queues, after.messages);
        assert_eq!(found, (2, queues, messages), "{format}");
        verify(&open(directory.path()), format).await;
        let header = fs::read(&database).expect("read");
        assert_eq!((header[20], header[63]), (8, 4), "{format}: its pages have checksums now");
    }
}

/// A start that is interrupted while it rewrites an older database leaves that as it was.
#[tokio::test]
async fn an_interrupted_rewrite_begins_again() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let database = directory.path().join("rowhouse.db");
    fs::copy(fixture("format3"), &database).expect("the fixture is there");
    fs::write(directory.path().join("rowhouse.db.new"), "half of a database").expect("written");
    fs::write(directory.path().join("rowhouse.db.new-journal"), "and its journal")
        .expect("written");
    let store = open(directory.path());
    assert!(store.is_verified());
    verify(&store, "format3").await;
    store.close().await.expect("closed");
    assert!(!directory.path().join("rowhouse.db.new").exists());
    assert!(!directory.path().join("rowhouse.db.new-journal").exists());
    assert!(!add_checksums(directory.path()).expect("looked at"), "they are there");
}

/// What is damaged in an older database is what it was: everything else is served.
#[tokio::test]
async fn a_damaged_older_database_is_served() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let database = directory.path().join("rowhouse.db");
    let mut bytes = fs::read(fixture("format3")).expect("the fixture is there");
    // A leaf of an index or of the entities is none any more.
    let leaf = (40..bytes.len() / 4096).find(|page| bytes[page * 4096] == 10).expect("a leaf");
    bytes[leaf * 4096] = 0xFF;
    fs::write(&database, bytes).expect("written");
    let store = open(directory.path());
    assert!(!store.is_verified(), "it could not be rewritten");
    assert!(!directory.path().join("rowhouse.db.new").exists());
    let tables = store.accounts().await.expect("listed");
    assert_eq!(tables.len(), 1);
}

/// What a start leaves as it is, because it is large, a command rewrites.
#[tokio::test]
async fn checksums_are_added_when_asked() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let database = directory.path().join("rowhouse.db");
    fs::copy(fixture("format2"), &database).expect("the fixture is there");
    assert!(add_checksums(directory.path()).expect("rewritten"));
    let report = check(directory.path(), &mut |_| {}).expect("it can be checked");
    assert_eq!(report.problems, Vec::<String>::new());
    verify(&open(directory.path()), "format2").await;
}

#[tokio::test]
#[ignore = "makes the fixture of a release, once"]
async fn write_fixture() {
    let format = std::env::var("ROWHOUSE_WRITE_FIXTURE").expect("the name of the fixture");
    let directory = tempfile::tempdir().expect("a temporary directory");
    let store = open(directory.path());
    fill(&store).await;
    store.close().await.expect("closed");
    let to = fixture(&format);
    assert!(!to.exists(), "a fixture is never made again");
    fs::create_dir_all(to.parent().expect("it has one")).expect("made");
    fs::copy(directory.path().join("rowhouse.db"), to).expect("copied");
}
