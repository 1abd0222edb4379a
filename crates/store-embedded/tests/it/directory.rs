//! Opening, refusing, reopening and checking data directories.

#[allow(dead_code, reason = "each test file uses some of it")]
use crate::common;
use crate::common::{commit, key, page, put, record, table};
use rowhouse_env::{Clock, SimulatedClock, SystemClock};
use rowhouse_store::conformance::indexed::{index_of, ready, unique_of};
use rowhouse_store::{Condition, Estimate, Placement, Store, Write};
use rowhouse_store_embedded::{EmbeddedStore, OpenError, Options, check};
use rowhouse_types::{Etag, KeyRange, StoredPolicy, Timestamp};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

fn open(directory: &Path) -> Result<EmbeddedStore, OpenError> {
    EmbeddedStore::open(Options::new(directory), Arc::new(SystemClock))
}

/// Names and contents of the files in a directory.
fn files(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files: Vec<_> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.clone(), fs::read(&path).unwrap()))
        .collect();
    files.sort();
    files
}

/// Long and short records, in order and not, with changes that are kept and with pages that nobody uses any more.
#[tokio::test]
async fn a_view_tells_about_how_much_there_is() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path()).unwrap();
    store.keep_changes(Some(Duration::from_hours(1))).await.unwrap();
    let (things, gone) = (table(&store, "Things").await, table(&store, "Gone").await);
    let mut held = 0;
    for batch in 0..40_u64 {
        let commands = |table| {
            let of = |row: u64| {
                let number = (batch * 100 + row).wrapping_mul(0x9E37_79B9_7F4A_7C15);
                let name =
                    if batch % 2 == 0 { format!("{batch}-{row}") } else { number.to_string() };
                let length = if row == 0 { 20_000 } else { 300 };
                (name, record(number.cast_signed(), length), table)
            };
            (0..100).map(of).collect::<Vec<_>>()
        };
        let rows = commands(things);
        held += rows
            .iter()
            .map(|(name, record, _)| name.len() + record.as_bytes().len())
            .sum::<usize>();
        for rows in [rows, commands(gone)] {
            let puts = rows.into_iter().map(|(name, record, table)| put(table, "p", &name, record));
            commit(&store, puts.collect()).await;
        }
    }
    store.drop_table(gone).await.unwrap();
    let give_up = std::time::Instant::now() + Duration::from_secs(20);
    loop {
        let told = store.snapshot().await.unwrap().estimate().await.unwrap();
        let Some(Estimate::Bytes(told)) = told else { panic!("{told:?}") };
        let held = held as u64;
        if held / 10 * 7 < told && told < held / 10 * 14 {
            return;
        }
        // What was dropped is still being deleted.
        assert!(std::time::Instant::now() < give_up, "{told} of {held}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// With and without a proper close; the clock is set back in between.
#[tokio::test]
async fn reopening_keeps_everything_and_timestamps_rise() {
    for close in [true, false] {
        let directory = tempfile::tempdir().unwrap();
        let start = Timestamp::parse_iso("2026-06-01T00:00:00Z").unwrap();
        let clock = Arc::new(SimulatedClock::new(start));
        let reopen = || {
            let clock = Arc::clone(&clock) as Arc<dyn Clock>;
            EmbeddedStore::open(Options::new(directory.path()), clock).unwrap()
        };
        let policy = StoredPolicy {
            id: "policy".into(),
            start: Some(start),
            expiry: None,
            permission: Some("rau".into()),
        };

        let store = reopen();
        let things = table(&store, "Things").await;
        let gone = table(&store, "Gone").await;
        let account = store.accounts().await.unwrap()[0].id;
        store.set_account_setting(account, None, "cors", Some(Box::from(*b"rules"))).await.unwrap();
        let keys = [Box::from(*b"3"), Box::from(*b"4")];
        store.set_account_keys(account, 2, keys).await.unwrap();
        store.set_policies(things, vec![policy.clone()]).await.unwrap();
        let placement = Placement { group: Some("group".into()), route_chars: Some(3) };
        store.create_table(account, &common::name("Placed"), placement.clone()).await.unwrap();
        let before = commit(&store, vec![put(things, "p", "r", record(1, 10))]).await;
        commit(&store, vec![put(things, "p", "large", record(2, 100_000))]).await;
        store.drop_table(gone).await.unwrap();
        if close {
            store.close().await.unwrap();
            store.close().await.unwrap();
        }
        drop(store);
        clock.set(Timestamp::parse_iso("2020-01-01T00:00:00Z").unwrap());

        let store = reopen();
        let account = store.accounts().await.unwrap()[0].clone();
        assert_eq!(&*account.settings["cors"], b"rules");
        assert_eq!((&*account.keys[0], account.version), (&b"3"[..], 3));
        let tables = store.tables(account.id, None, 10).await.unwrap();
        let names: Vec<_> = tables.iter().map(|table| table.name.as_str()).collect();
        assert_eq!(names, ["Placed", "Things"]);
        assert_eq!((&tables[0].placement, &tables[1].policies[..]), (&placement, &[policy][..]));
        let kept = store.get(things, &key("p", "r")).await.unwrap().unwrap();
        assert_eq!(kept.as_ref().timestamp(), before);
        assert_eq!(page(&store, things, KeyRange::all()).await.rows.len(), 2);
        let after = commit(&store, vec![put(things, "p", "r", record(1, 10))]).await;
        assert!(before < after, "close: {close}");
        assert!(gone < table(&store, "Gone").await, "ids are never reused");
        store.close().await.unwrap();
        let names: Vec<_> = files(directory.path())
            .into_iter()
            .map(|(path, _)| path.file_name().unwrap().to_str().unwrap().to_owned())
            .collect();
        assert_eq!(names, ["rowhouse.db", "rowhouse.lock"], "a closed store is one file");
        let report = check(directory.path(), &mut |_| {}).unwrap();
        assert_eq!((report.tables, report.entities), (3, 2));
        assert_eq!(report.problems, Vec::<String>::new());
    }
}

#[tokio::test]
async fn a_directory_has_one_user() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path()).unwrap();
    let refusals = [
        open(directory.path()).map(drop).unwrap_err(),
        check(directory.path(), &mut |_| {}).map(drop).unwrap_err(),
    ];
    for error in refusals {
        assert!(error.to_string().contains("in use by another process"), "{error}");
        let holder = match error {
            OpenError::Locked { holder, .. } => holder,
            other => panic!("{other}"),
        };
        assert_eq!(holder, Some(std::process::id()));
    }
    store.close().await.unwrap();
    drop(open(directory.path()).unwrap());
    open(directory.path()).unwrap();
}

/// Puts a file where the database should be.
type Setup = Box<dyn Fn(&Path)>;

/// What is not ours is refused in a sentence, and nothing in the directory changes.
#[test]
fn what_is_not_ours_is_left_alone() {
    let sqlite = |setup: &'static str| {
        move |path: &Path| rusqlite::Connection::open(path).unwrap().execute_batch(setup).unwrap()
    };
    let cases: [(&str, Setup, &str); 5] = [
        ("empty", Box::new(|path| fs::write(path, "").unwrap()), "is not a Rowhouse database"),
        ("text", Box::new(|path| fs::write(path, "x".repeat(200)).unwrap()), "is not a Rowhouse"),
        ("foreign database", Box::new(sqlite("CREATE TABLE t (x)")), "is not a Rowhouse database"),
        (
            "newer format",
            Box::new(sqlite(
                "PRAGMA application_id = 0x526F7768; PRAGMA user_version = 99; CREATE TABLE t (x)",
            )),
            "has format 99, and this release knows formats up to 4: use the release that wrote it",
        ),
        (
            "no format",
            Box::new(sqlite("PRAGMA application_id = 0x526F7768; CREATE TABLE t (x)")),
            "has format 0",
        ),
    ];
    for (what, setup, message) in cases {
        let directory = tempfile::tempdir().unwrap();
        setup(&directory.path().join("rowhouse.db"));
        let before = files(directory.path());
        let error = open(directory.path()).map(drop).unwrap_err().to_string();
        assert!(error.contains(message), "{what}: {error}");
        let error = check(directory.path(), &mut |_| {}).map(drop).unwrap_err().to_string();
        assert!(error.contains(message), "{what}: {error}");
        assert!(files(directory.path()) == before, "{what}: something changed");
    }
}

#[test]
fn impossible_directories_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    let missing = directory.path().join("missing");
    assert!(matches!(open(&file).map(drop), Err(OpenError::NotADirectory { .. })));
    assert!(
        matches!(open(&file.join("below")).map(drop), Err(OpenError::NotADirectory { path }) if path == file)
    );
    assert!(matches!(check(&file, &mut |_| {}), Err(OpenError::NotADirectory { .. })));
    assert!(matches!(check(&missing, &mut |_| {}), Err(OpenError::Missing { .. })));
    assert!(!missing.exists());
}

#[cfg(unix)]
#[tokio::test]
async fn only_the_owner_may_read() {
    use std::os::unix::fs::PermissionsExt;
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("a/b");
    let store = open(&directory).unwrap();
    table(&store, "Things").await;
    assert_eq!(mode(&directory), 0o700);
    let files = files(&directory);
    assert_eq!(files.len(), 4, "database, log, shared memory, lock");
    for (path, _) in files {
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
}

/// Half of a database, as a crash during its creation leaves it, is no obstacle.
#[tokio::test]
async fn unfinished_creation_is_repeated() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("rowhouse.db.new"), "half").unwrap();
    fs::write(directory.path().join("rowhouse.db.new-journal"), "half").unwrap();
    table(&open(directory.path()).unwrap(), "Things").await;
}

/// Damage that only somebody with the sqlite3 tool can do.
#[tokio::test]
async fn check_finds_damage() {
    let cases = [
        (
            "UPDATE entities SET record = x'00' WHERE rk = 'a'",
            "table Things, entity 1 in key order",
        ),
        ("UPDATE entities SET record = 999 WHERE rk = 'a'", "a large record is missing"),
        ("UPDATE entities SET rk = 'a/b' WHERE rk = 'a'", "its key is not legal"),
        ("UPDATE entities SET table_id = 77 WHERE rk = 'a'", "entities belong to no table (id 77)"),
        ("DELETE FROM large", "there are 0 large records for 1 entities"),
        ("UPDATE meta SET tick = 0", "its Timestamp was never given out"),
        ("UPDATE meta SET last_table = 0", "its id was never given out"),
        ("UPDATE tables SET name = 'x'", "the name of a table is not valid"),
        ("DELETE FROM accounts", "a table belongs to no account"),
        ("DELETE FROM meta", "the marks are missing"),
        (
            "DELETE FROM entries WHERE index_id = 1 AND rk = 'b'",
            "table Things, entity 2 in key order: index number has no entry for it",
        ),
        (
            "DELETE FROM entities WHERE rk = 'b'",
            "table Things, index number: 1 entries belong to no entity",
        ),
        (
            "UPDATE entries SET entry = x'0300' WHERE index_id = 1 AND rk = 'b'",
            "table Things, index number: 1 entries belong to no entity",
        ),
        (
            "INSERT INTO entries SELECT index_id, entry, pk, 'x' FROM entries WHERE index_id = 2",
            "table Things, index row: 3 values of a unique index are there twice",
        ),
        ("UPDATE entries SET index_id = 7 WHERE index_id = 1", "entries belong to no index (id 7)"),
        ("UPDATE meta SET last_index = 1", "table Things, index row: its id was never given out"),
        ("UPDATE indexes SET table_id = 7", "an index belongs to no table"),
        ("DELETE FROM index_properties", "an index has no properties"),
        ("UPDATE indexes SET state = 9", "the state of an index is not known"),
    ];
    for (damage, problem) in cases {
        let directory = tempfile::tempdir().unwrap();
        let store = open(directory.path()).unwrap();
        let things = table(&store, "Things").await;
        let rows = [("a", 10), ("b", 20), ("c", 5_000)];
        let commands =
            rows.iter().map(|(row, size)| put(things, "p", row, record(1, *size))).collect();
        commit(&store, commands).await;
        ready(&store, things, "number", index_of(&["Number"])).await;
        ready(&store, things, "row", unique_of(&["RowKey"])).await;
        store.close().await.unwrap();
        let sound = check(directory.path(), &mut |_| {}).unwrap();
        assert_eq!((sound.indexes, sound.problems), (2, Vec::new()));
        common::writer(directory.path()).execute_batch(damage).unwrap();
        let mut read = 0;
        let report = check(directory.path(), &mut |count| read = count).unwrap();
        assert!(
            report.problems.iter().any(|found| found.contains(problem)),
            "{damage}: {report:?}"
        );
    }
}

#[tokio::test]
async fn check_finds_damaged_pages() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path()).unwrap();
    let things = table(&store, "Things").await;
    for n in 0..20 {
        let rows = (0..100).map(|m| put(things, &n.to_string(), &m.to_string(), record(m, 300)));
        commit(&store, rows.collect()).await;
    }
    store.close().await.unwrap();
    let database = directory.path().join("rowhouse.db");
    let mut bytes = fs::read(&database).unwrap();
    let middle = bytes.len() / 2 / 4096 * 4096;
    bytes[middle..middle + 4096].fill(0xA5);
    fs::write(&database, bytes).unwrap();
    match check(directory.path(), &mut |_| {}) {
        Ok(report) => assert!(!report.problems.is_empty()),
        Err(error) => panic!("{error}"),
    }
}

/// The log of a store that was killed is read, not repaired: a check can be made before a start.
#[tokio::test]
async fn check_reads_an_unfinished_log() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path()).unwrap();
    let things = table(&store, "Things").await;
    commit(&store, vec![put(things, "p", "r", record(1, 10))]).await;
    drop(store);
    let database = directory.path().join("rowhouse.db");
    let before = fs::read(&database).unwrap();
    let report = check(directory.path(), &mut |_| {}).unwrap();
    assert_eq!((report.tables, report.entities), (1, 1));
    assert_eq!(report.problems, Vec::<String>::new());
    assert!(fs::read(&database).unwrap() == before);
}

/// A record may move between its row and the side table with every write, under every condition.
#[tokio::test]
async fn records_of_every_size_are_replaced_and_deleted() {
    let directory = tempfile::tempdir().unwrap();
    let clock = Arc::new(SimulatedClock::new(Timestamp::EDM_MIN));
    let store = EmbeddedStore::open(Options::new(directory.path()), clock.clone()).unwrap();
    let things = table(&store, "Things").await;
    let sizes = [0, 100, 900, 1_000, 5_000, 300_000];
    let mut count = 0;
    for from in sizes {
        for to in sizes {
            for tagged in [true, false] {
                count += 1;
                clock.advance(Duration::from_millis(1));
                let first = put(things, "p", "r", record(count, from));
                let tag = Etag::new(commit(&store, vec![first]).await);
                let condition = if tagged { Condition::Matches(tag) } else { Condition::Exists };
                let put = Write::Put(record(count + 1000, to));
                let write = |write| common::write(things, "p", "r", condition, write);
                commit(&store, vec![write(put)]).await;
                let found = store.get(things, &key("p", "r")).await.unwrap().unwrap();
                assert_eq!(found.as_bytes()[9..], record(count + 1000, to).as_bytes()[9..]);
                let page = page(&store, things, KeyRange::all()).await;
                assert_eq!(page.rows.iter().next().unwrap().unwrap().record, found.as_ref());
                let stale = store.commit(rowhouse_store::Batch::of(write(Write::Delete))).await;
                assert_eq!(stale.is_err(), tagged, "{from} to {to}");
            }
        }
    }
    commit(&store, vec![common::write(things, "p", "r", Condition::Any, Write::Delete)]).await;
    store.close().await.unwrap();
    let report = check(directory.path(), &mut |_| {}).unwrap();
    assert_eq!((report.tables, report.entities), (1, 0));
    assert_eq!(report.problems, Vec::<String>::new());
}
