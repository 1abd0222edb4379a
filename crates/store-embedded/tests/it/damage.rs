//! A flipped bit is an error or changes nothing: never a wrong answer.
//!
//! `ROWHOUSE_FLIPS` and `ROWHOUSE_FLIPS_MB` make it a long proof (`scripts/verify damage`).

use crate::common::{commit, key, number, put, record, scan_of, table};
use rowhouse_env::{Clock, SystemClock};
use rowhouse_query::index::entry;
use rowhouse_store::conformance::indexed::{index_of, only, ready, scan_through, unique_of};
use rowhouse_store::conformance::queued;
use rowhouse_store::{Batch, Index, Lookup, QueueId, Scan, Store, StoreError, Table, TableId};
use rowhouse_store_embedded::{EmbeddedStore, Options, check};
use rowhouse_types::{KeyRange, Position, Row};
use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const TABLES: [&str; 2] = ["People", "Orders"];
const MESSAGES: usize = 300;

fn setting(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |value| value.parse().expect("a number"))
}

fn open(directory: &Path) -> Result<EmbeddedStore, rowhouse_store_embedded::OpenError> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    // Little is kept in memory, so that most of what is read is read from the file.
    EmbeddedStore::open(Options { cache_bytes: 1024 * 1024, ..Options::new(directory) }, clock)
}

/// A sequence of numbers that a seed decides.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

type Keys = (String, String);

/// What a store must say, or refuse to say.
struct Truth {
    entities: Vec<(TableId, BTreeMap<Keys, Vec<u8>>)>,
    indexes: Vec<Index>,
    queue: QueueId,
    first: Vec<String>,
}

/// Fills a directory, and notes what is in it.
async fn fill(directory: &Path, megabytes: u64) -> Truth {
    let store = open(directory).unwrap();
    let mut random = Random(7);
    let mut indexes = Vec::new();
    for name in TABLES {
        let things = table(&store, name).await;
        indexes.push(ready(&store, things, "number", index_of(&["Number"])).await);
        indexes.push(ready(&store, things, "row", unique_of(&["RowKey"])).await);
        let mut bytes = 0;
        for n in 0_i64.. {
            if megabytes * 500_000 < bytes {
                break;
            }
            let commands = (0..50).map(|m| {
                let number = n * 50 + m;
                // Some are beside their rows, and a few on pages of their own.
                let size = match random.below(100) {
                    0 => 20_000,
                    1..20 => 1_500,
                    _ => 20 + random.below(600),
                };
                bytes += size + 100;
                let size = usize::try_from(size).unwrap();
                put(
                    things,
                    &format!("p{:03}", n % 40),
                    &format!("{number:08}"),
                    record(number, size),
                )
            });
            commit(&store, commands.collect()).await;
        }
    }
    let account = store.accounts().await.unwrap()[0].id;
    let queue = queued::queue(&store, account, "jobs").await;
    for n in 0..MESSAGES {
        let text = format!("{n} {}", "text ".repeat(n * 7));
        queued::put(&store, queue, &text).await;
    }
    let truth = read_all(&store, indexes, queue).await;
    store.close().await.unwrap();
    truth
}

async fn read_all(store: &EmbeddedStore, indexes: Vec<Index>, queue: QueueId) -> Truth {
    let mut entities = Vec::new();
    for name in TABLES {
        let things = table(store, name).await;
        let mut all = BTreeMap::new();
        let page = store.scan(things, scan_of(KeyRange::all())).await.unwrap();
        for row in page.rows.iter() {
            let row = row.unwrap();
            let keys = (row.partition.to_owned(), row.row.to_owned());
            all.insert(keys, row.record.to_owned().as_bytes().to_vec());
        }
        entities.push((things, all));
    }
    let first = queued::peek(store, queue, 32).await;
    let first = first.into_iter().map(|message| message.text.into()).collect();
    Truth { entities, indexes, queue, first }
}

/// What came of questions to a damaged store.
#[derive(Debug, Default)]
struct Tally {
    right: u64,
    refused: u64,
}

impl Tally {
    fn refuse(&mut self, error: &StoreError) {
        assert!(matches!(error, StoreError::Corrupt(_)), "another error: {error}");
        assert!(error.to_string().contains("is damaged"), "{error}");
        self.refused += 1;
    }
}

/// Asks in every way, and holds each answer to the truth.
async fn ask(store: &EmbeddedStore, truth: &Truth, random: &mut Random, tally: &mut Tally) {
    for (things, all) in &truth.entities {
        let keys: Vec<_> = all.keys().collect();
        let mut from = Position::min();
        let mut behind = all.iter().peekable();
        loop {
            let range = KeyRange { start: from.clone(), end: None };
            match store.scan(*things, Scan { limit: 500, ..scan_of(range) }).await {
                Ok(page) => {
                    for row in page.rows.iter() {
                        let row = row.unwrap();
                        let (keys, bytes) = behind.next().expect("one that is there");
                        assert_eq!((row.partition, row.row), (&*keys.0, &*keys.1));
                        assert_eq!(row.record.to_owned().as_bytes(), bytes);
                        tally.right += 1;
                    }
                    let Some(next) = page.next else { break };
                    from = next;
                }
                Err(error) => {
                    tally.refuse(&error);
                    // Others are served: from somewhere behind, on.
                    for _ in 0..600 {
                        behind.next();
                    }
                    let Some((keys, _)) = behind.peek() else { break };
                    from = Position::before(&keys.0, &keys.1);
                }
            }
        }
        for _ in 0..150 {
            let keys = keys[usize::try_from(random.below(keys.len() as u64)).unwrap()];
            match store.get(*things, &key(&keys.0, &keys.1)).await {
                Ok(found) => {
                    let found = found.expect("what is there is found");
                    assert_eq!(found.as_bytes(), all[keys]);
                    tally.right += 1;
                }
                Err(error) => tally.refuse(&error),
            }
            let absent = key(&keys.0, &format!("{}x", keys.1));
            match store.get(*things, &absent).await {
                Ok(found) => assert!(found.is_none()),
                Err(error) => tally.refuse(&error),
            }
        }
    }
    through_indexes(store, truth, random, tally).await;
    match store.peek(truth.queue, 32).await {
        Ok(found) => {
            let texts: Vec<_> =
                found.into_iter().map(|message| String::from(message.text)).collect();
            assert_eq!(texts, truth.first);
            tally.right += 1;
        }
        Err(error) => tally.refuse(&error),
    }
    match store.message_count(truth.queue).await {
        Ok(count) => assert_eq!(count, MESSAGES as u64),
        Err(error) => tally.refuse(&error),
    }
}

async fn through_indexes(
    store: &EmbeddedStore,
    truth: &Truth,
    random: &mut Random,
    tally: &mut Tally,
) {
    for index in &truth.indexes {
        let account = store.accounts().await.unwrap()[0].id;
        let tables = store.tables(account, None, 10).await.unwrap();
        let has = |table: &&Arc<Table>| table.indexes.iter().any(|found| found.id == index.id);
        let things = tables.iter().find(has).expect("its table").id;
        let (_, all) = truth.entities.iter().find(|(table, _)| *table == things).expect("it");
        let keys: Vec<_> = all.keys().collect();
        for _ in 0..40 {
            let keys = keys[usize::try_from(random.below(keys.len() as u64)).unwrap()];
            let record = rowhouse_types::RecordRef::parse(&all[keys]).unwrap();
            let row = Row { partition: &keys.0, row: &keys.1, record };
            let entry = entry(&index.keys, &row).unwrap().expect("it has an entry");
            let part = Lookup { index: index.id, spans: vec![only(&entry)] };
            match store.scan(things, scan_through(vec![part])).await {
                Ok(page) => {
                    let found: Vec<_> =
                        page.rows.iter().map(|row| row.unwrap().row.to_owned()).collect();
                    assert_eq!(found, std::slice::from_ref(&keys.1), "through {}", index.name);
                    tally.right += 1;
                }
                Err(error) => tally.refuse(&error),
            }
        }
    }
}

fn flip(path: &Path, bit: u64) {
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, bit / 8).unwrap();
    byte[0] ^= 1 << (bit % 8);
    file.write_all_at(&byte, bit / 8).unwrap();
}

fn database(directory: &Path) -> PathBuf {
    directory.join("rowhouse.db")
}

#[tokio::test]
async fn a_flipped_bit_is_never_an_answer() {
    let (flips, megabytes) = (setting("ROWHOUSE_FLIPS", 40), setting("ROWHOUSE_FLIPS_MB", 4));
    let sound = tempfile::tempdir().unwrap();
    let truth = fill(sound.path(), megabytes).await;
    let bytes = fs::metadata(database(sound.path())).unwrap().len();
    let mut random = Random(setting("ROWHOUSE_SEED", 1));
    let (mut tally, mut not_opened, mut noticed) = (Tally::default(), 0, 0);
    for _ in 0..flips {
        let directory = tempfile::tempdir().unwrap();
        fs::copy(database(sound.path()), database(directory.path())).unwrap();
        let bit = random.below(bytes * 8);
        flip(&database(directory.path()), bit);
        let page = bit / 8 / 4096 + 1;
        match check(directory.path(), &mut |_| {}) {
            Ok(report) => {
                let named = format!("page {page} of the database is damaged");
                let found = report.problems.iter().find(|problem| problem.starts_with(&named));
                assert!(found.is_some(), "bit {bit}, page {page}: {report:?}");
            }
            // The header says that it is another file, or what.
            Err(error) => assert_eq!(page, 1, "bit {bit}: {error}"),
        }
        let refused = tally.refused;
        match open(directory.path()) {
            Ok(store) => {
                ask(&store, &truth, &mut random, &mut tally).await;
                let _ = store.close().await;
            }
            Err(_) => not_opened += 1,
        }
        noticed += u64::from(refused < tally.refused);
    }
    let Tally { right, refused } = tally;
    println!(
        "{flips} flips in {} MB: {right} right answers, {refused} refused, 0 wrong; requests met {noticed} of \
         them, {not_opened} stores did not open",
        bytes / 1_000_000
    );
    assert!(refused * 5 < right, "others are served: {refused} refused, {right} right");
    assert!(flips / 4 < noticed, "most pages are read: {noticed} of {flips}");
}

/// Reads and writes go on while bits flip in the file of an open store.
#[tokio::test]
async fn a_bit_that_flips_meanwhile_is_never_an_answer() {
    let directory = tempfile::tempdir().unwrap();
    let mut truth = fill(directory.path(), setting("ROWHOUSE_FLIPS_MB", 4)).await;
    let store = open(directory.path()).unwrap();
    let bytes = fs::metadata(database(directory.path())).unwrap().len();
    let mut random = Random(setting("ROWHOUSE_SEED", 2));
    let mut tally = Tally::default();
    let (mut stored, mut failed) = (0, 0);
    for round in 0..10 {
        // Not the first pages: what is in memory of the catalogue is written over them.
        flip(&database(directory.path()), (8 * 4096 + random.below(bytes - 8 * 4096)) * 8 + 3);
        // A page that leads to others may have been verified just now.
        std::thread::sleep(std::time::Duration::from_millis(20));
        ask(&store, &truth, &mut random, &mut tally).await;
        for (things, all) in &mut truth.entities {
            let keys: Vec<Keys> = all.keys().cloned().collect();
            for _ in 0..150 {
                let keys = &keys[usize::try_from(random.below(keys.len() as u64)).unwrap()];
                let number: i64 = keys.1.parse().unwrap();
                let size = usize::try_from(random.below(900)).unwrap();
                let batch = Batch::new(vec![put(*things, &keys.0, &keys.1, record(number, size))]);
                match store.commit(batch).await {
                    Ok(_) => {
                        stored += 1;
                        match store.get(*things, &key(&keys.0, &keys.1)).await {
                            Ok(found) => {
                                let found = found.expect("it was stored");
                                all.insert(keys.clone(), found.as_bytes().to_vec());
                            }
                            Err(error) => panic!("what was just stored is intact: {error}"),
                        }
                    }
                    Err(StoreError::Busy) => failed += 1,
                    Err(error) => {
                        tally.refuse(&error);
                        failed += 1;
                    }
                }
            }
        }
        assert!(store.ready().is_ok(), "round {round}: writes are taken");
    }
    println!("{tally:?}, {stored} stored, {failed} not");
    assert!(failed * 5 < stored && tally.refused * 5 < tally.right, "others are served");
    let _ = store.close().await;
    // What was damaged and not written again is named.
    let report = check(directory.path(), &mut |_| {}).unwrap();
    let pages = report.problems.iter().filter(|problem| problem.starts_with("page ")).count();
    assert!(pages <= 10, "{report:?}");
    assert_eq!(pages == 0, report.problems.is_empty(), "{report:?}");
}

/// A log that a killed process left behind is believed or refused, never cut short.
#[tokio::test]
async fn a_damaged_log_is_not_cut_short() {
    let sound = tempfile::tempdir().unwrap();
    let store = open(sound.path()).unwrap();
    let things = table(&store, "Things").await;
    for n in 0..30 {
        commit(&store, vec![put(things, "p", &format!("{n:02}"), record(n, 500))]).await;
    }
    // As a kill leaves it: nothing is copied into the database.
    let killed = tempfile::tempdir().unwrap();
    for name in ["rowhouse.db", "rowhouse.db-wal"] {
        fs::copy(sound.path().join(name), killed.path().join(name)).unwrap();
    }
    drop(store);
    let log = fs::metadata(killed.path().join("rowhouse.db-wal")).unwrap().len();
    let mut random = Random(3);
    let (mut refused, mut whole, mut cut) = (0, 0, 0);
    for _ in 0..60 {
        let directory = tempfile::tempdir().unwrap();
        for name in ["rowhouse.db", "rowhouse.db-wal"] {
            fs::copy(killed.path().join(name), directory.path().join(name)).unwrap();
        }
        flip(&directory.path().join("rowhouse.db-wal"), random.below(log * 8));
        match open(directory.path()) {
            Ok(store) => {
                let things = table(&store, "Things").await;
                let page = store.scan(things, scan_of(KeyRange::all())).await.unwrap();
                let last = page.rows.iter().count();
                assert!(last >= 29, "only the last batch may look unfinished: {last} of 30");
                if last == 30 { whole += 1 } else { cut += 1 }
            }
            Err(error) => {
                assert!(error.to_string().contains("of the write-ahead log is damaged"), "{error}");
                let found = check(directory.path(), &mut |_| {}).unwrap().problems;
                assert!(found[0].contains("of the write-ahead log is damaged"), "{found:?}");
                refused += 1;
            }
        }
    }
    println!("{refused} refused, {whole} whole, {cut} without the last batch");
    assert!(refused > 40, "{refused} refused, {whole} whole, {cut} without the last batch");
}

/// A table with a damaged page can be dropped and made again, and what cannot be swept holds nothing up.
#[tokio::test]
async fn a_damaged_table_can_be_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let truth = fill(directory.path(), 2).await;
    let store = open(directory.path()).unwrap();
    let (broken, all) = &truth.entities[0];
    // A page of its entities, behind those where trees begin.
    let mut page = 100;
    loop {
        flip(&database(directory.path()), page * 4096 * 8 + 1000);
        std::thread::sleep(std::time::Duration::from_millis(20));
        if store.scan(*broken, scan_of(KeyRange::all())).await.is_err() {
            break;
        }
        flip(&database(directory.path()), page * 4096 * 8 + 1000);
        page += 1;
    }
    store.drop_table(*broken).await.unwrap();
    let again = table(&store, TABLES[0]).await;
    for (number, keys) in (0..).zip(all.keys().take(500)) {
        commit(&store, vec![put(again, &keys.0, &keys.1, record(number, 100))]).await;
    }
    assert_eq!(store.stats().damaged, 1);
    assert!(store.ready().is_ok());
    let page = store.scan(again, scan_of(KeyRange::all())).await.unwrap();
    assert_eq!(page.rows.iter().count(), 500);
    store.close().await.unwrap();
    // Also after a restart.
    let store = open(directory.path()).unwrap();
    let again = table(&store, TABLES[0]).await;
    commit(&store, vec![put(again, "p", "r", record(1, 1))]).await;
}

/// A block that reads as zeros was lost, also where SQLite would take it for the end of a long record.
#[tokio::test]
async fn a_page_of_zeros_is_never_an_answer() {
    let sound = tempfile::tempdir().unwrap();
    let store = open(sound.path()).unwrap();
    let things = table(&store, "Things").await;
    commit(&store, vec![put(things, "p", "long", record(1, 50_000))]).await;
    store.close().await.unwrap();
    let all = fs::read(database(sound.path())).unwrap();
    let mut met = 0;
    for page in 1..all.len() / 4096 {
        let directory = tempfile::tempdir().unwrap();
        let mut bytes = all.clone();
        bytes[page * 4096..(page + 1) * 4096].fill(0);
        fs::write(database(directory.path()), bytes).unwrap();
        // An error names it as well.
        let is_named =
            check(directory.path(), &mut |_| {}).map_or(true, |it| !it.problems.is_empty());
        let Ok(store) = open(directory.path()) else {
            assert!(is_named, "page {}", page + 1);
            continue;
        };
        match store.get(things, &key("p", "long")).await {
            Ok(found) => assert_eq!(number(&found.expect("it is there")), 1),
            Err(error) => {
                assert!(matches!(error, StoreError::Corrupt(_)), "{error}");
                assert!(is_named, "page {}", page + 1);
                met += 1;
            }
        }
    }
    assert!(met > 11, "the pages of the record: {met}");
}

/// The log lies beside the database, wherever a link leads.
#[tokio::test]
async fn a_damaged_log_behind_a_link_is_not_cut_short() {
    let (here, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = open(elsewhere.path()).unwrap();
    let things = table(&store, "Things").await;
    for n in 0..30 {
        commit(&store, vec![put(things, "p", &format!("{n:02}"), record(n, 500))]).await;
    }
    let killed = tempfile::tempdir().unwrap();
    for name in ["rowhouse.db", "rowhouse.db-wal"] {
        fs::copy(elsewhere.path().join(name), killed.path().join(name)).unwrap();
    }
    let log = killed.path().join("rowhouse.db-wal");
    flip(&log, fs::metadata(&log).unwrap().len() * 4);
    std::os::unix::fs::symlink(database(killed.path()), database(here.path())).unwrap();
    let error = open(here.path()).map(drop).unwrap_err().to_string();
    assert!(error.contains("of the write-ahead log is damaged"), "{error}");
}

/// Damage of the changes that are kept is refused like other damage, and ends with them.
#[tokio::test]
async fn damage_of_kept_changes_stops_no_server() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path()).unwrap();
    let things = table(&store, "Things").await;
    store.keep_changes(Some(std::time::Duration::from_hours(1))).await.unwrap();
    for n in 0..200 {
        commit(&store, vec![put(things, "p", &format!("{n:03}"), record(n, 300))]).await;
    }
    store.close().await.unwrap();
    let all = fs::metadata(database(directory.path())).unwrap().len() / 4096;
    let is_of_changes = |report: &rowhouse_store_embedded::CheckReport| {
        report.problems.iter().any(|problem| problem.contains("changes that are kept"))
    };
    // The last of their pages, where the next is added.
    let page = (10..all)
        .rev()
        .find(|page| {
            flip(&database(directory.path()), page * 4096 * 8 + 900);
            let report = check(directory.path(), &mut |_| {}).unwrap();
            let found = is_of_changes(&report);
            flip(&database(directory.path()), page * 4096 * 8 + 900);
            found
        })
        .expect("a page of changes");
    flip(&database(directory.path()), page * 4096 * 8 + 900);
    let store = open(directory.path()).unwrap();
    for _ in 0..3 {
        let again = Batch::new(vec![put(things, "p", "again", record(1, 10))]);
        let refused = store.commit(again).await.unwrap_err();
        assert!(matches!(refused, StoreError::Busy | StoreError::Corrupt(_)), "{refused}");
        assert!(store.ready().is_ok());
    }
    store.keep_changes(None).await.unwrap();
    commit(&store, vec![put(things, "p", "again", record(1, 10))]).await;
}
