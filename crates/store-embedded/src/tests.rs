//! Tests that need small bounds or a clock that misbehaves.

#[path = "../tests/it/common/mod.rs"]
#[allow(dead_code, reason = "each test file uses some of it")]
pub(crate) mod common;

mod bench;
mod indexes;
mod kill;
mod kill_queues;
mod queues;

use crate::checkpoint::Whole;
use crate::tuning::Tuning;
use crate::{Durability, EmbeddedStore, Options, check};
use common::{commit, key, number, page, put, record, scan_of, table, write};
use rowhouse_env::{Clock, SystemClock};
use rowhouse_query::Filter;
use rowhouse_store::{
    Batch, Condition, Conflict, IndexKeys, Scan, Sort, Store, StoreError, TableId, Take, Write,
};
use rowhouse_types::{Direction, KeyRange, Timestamp};
use rusqlite::wal::CheckpointMode;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

fn open(directory: &Path, tuning: Tuning) -> Arc<EmbeddedStore> {
    open_with(directory, tuning, Arc::new(SystemClock))
}

fn open_with(directory: &Path, tuning: Tuning, clock: Arc<dyn Clock>) -> Arc<EmbeddedStore> {
    let options = Options { durability: Durability::Ephemeral, ..Options::new(directory) };
    Arc::new(EmbeddedStore::open_tuned(options, clock, tuning).unwrap())
}

async fn fill(store: &EmbeddedStore, table: TableId, partitions: usize, padding: usize) {
    for partition in 0..partitions {
        let rows = (0..100).map(|row: i64| {
            put(table, &partition.to_string(), &row.to_string(), record(row, padding))
        });
        commit(store, rows.collect()).await;
    }
}

/// How many entities a table has, page by page, and how many each page examined.
async fn in_pages(store: &EmbeddedStore, table: TableId) -> (usize, Vec<u64>) {
    let (mut found, mut examined) = (0, Vec::new());
    let mut rest = KeyRange::all();
    loop {
        let page = page(store, table, rest.clone()).await;
        found += page.rows.len();
        examined.push(page.examined);
        let Some(next) = page.next else { return (found, examined) };
        rest.start = next;
    }
}

/// Waits until something is true, for seconds if need be.
async fn eventually(what: &str, mut is_true: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_true() {
        assert!(start.elapsed() < Duration::from_secs(20), "never: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_time().build().unwrap()
}

/// A log that is soon full.
fn small_log() -> Tuning {
    Tuning {
        wal_soft_frames: 64,
        wal_hard_frames: 256,
        wal_file_bytes: 256 * 4096,
        restart_pause: Duration::from_millis(10),
        ..Tuning::default()
    }
}

/// What such a log never exceeds.
const SMALL_LOG_BYTES: u64 = 5 * 256 * 4096;

/// Who fills a store waits for the disk at the end, and then everything is in the database.
#[tokio::test]
async fn what_was_filled_is_there_when_it_is_closed() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options { durability: Durability::AtClose, ..Options::new(directory.path()) };
    let clock = Arc::new(SystemClock);
    let store = EmbeddedStore::open_tuned(options, clock, small_log()).unwrap();
    let things = table(&store, "Things").await;
    fill(&store, things, 50, 100).await;
    store.close().await.unwrap();
    assert!(!directory.path().join("rowhouse.db-wal").exists(), "nothing is left in the log");
    assert_eq!(check(directory.path(), &mut |_| {}).unwrap().entities, 5000);
}

/// Pages overlap all the time, so that no moment is free of readers, and writers leave no gap either.
#[test]
fn the_log_stays_bounded_under_constant_load() {
    let directory = tempfile::tempdir().unwrap();
    // With every fsync, because that is when a commit holds SQLite's lock for long.
    let options = Options::new(directory.path());
    let clock = Arc::new(SystemClock);
    let store = Arc::new(EmbeddedStore::open_tuned(options, clock, small_log()).unwrap());
    runtime().block_on(async {
        let things = table(&*store, "Things").await;
        fill(&store, things, 50, 100).await;
        let stop = Arc::new(AtomicBool::new(false));
        let (pages, written) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let mut tasks = Vec::new();
        for task in 0..8_u64 {
            let (store, stop) = (Arc::clone(&store), Arc::clone(&stop));
            let (pages, written) = (Arc::clone(&pages), Arc::clone(&written));
            tasks.push(tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    if task < 2 {
                        page(&*store, things, KeyRange::all()).await;
                        pages.fetch_add(1, Ordering::Relaxed);
                    } else {
                        let n = written.fetch_add(1, Ordering::Relaxed);
                        let (partition, row) = ((n % 50).to_string(), (n % 100).to_string());
                        let command = put(things, &partition, &row, record(1, 5_000));
                        commit(&*store, vec![command]).await;
                    }
                }
            }));
        }
        let start = Instant::now();
        let mut largest = 0;
        // Until six times the bound has gone through the log, at 2 pages a record or more.
        while written.load(Ordering::Relaxed) * 2 * 4096 < 6 * SMALL_LOG_BYTES
            && start.elapsed() < Duration::from_secs(15)
        {
            largest = largest.max(store.stats().log_bytes);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        stop.store(true, Ordering::Relaxed);
        for task in tasks {
            task.await.unwrap();
        }
        let (pages, written) = (pages.load(Ordering::Relaxed), written.load(Ordering::Relaxed));
        println!("{written} writes, {pages} pages, at most {largest} bytes of log");
        assert!(written > 1000 && pages > 10, "{written} writes, {pages} pages");
        assert!(largest < SMALL_LOG_BYTES, "{largest} bytes of log after {written} writes");
        store.close().await.unwrap();
    });
}

/// Point reads and pages on many connections: what one has shown, none takes back.
#[test]
fn reads_never_go_back() {
    const READERS: usize = 4;
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), Tuning { wal_soft_frames: 16, ..Tuning::default() });
    runtime().block_on(async {
        let things = table(&*store, "Things").await;
        commit(&*store, vec![put(things, "p", "r", record(0, 10))]).await;
        let (shown, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let mut readers = Vec::new();
        for reader in 0..READERS {
            let (store, shown, stop) = (Arc::clone(&store), Arc::clone(&shown), Arc::clone(&stop));
            readers.push(tokio::spawn(async move {
                let mut reads = 0_u64;
                while !stop.load(Ordering::SeqCst) {
                    let before = shown.load(Ordering::SeqCst);
                    let number = if reader == 0 {
                        let page = page(&*store, things, KeyRange::all()).await;
                        number(&page.rows.iter().next().unwrap().unwrap().record.to_owned())
                    } else {
                        number(&store.get(things, &key("p", "r")).await.unwrap().unwrap())
                    };
                    let number = number.cast_unsigned();
                    assert!(before <= number, "{before} was shown, and then {number}");
                    shown.fetch_max(number, Ordering::SeqCst);
                    reads += 1;
                }
                reads
            }));
        }
        for n in 1..=3000 {
            commit(&*store, vec![put(things, "p", "r", record(n, 10))]).await;
            // An answered write is shown by whoever asks from now on.
            shown.fetch_max(n.cast_unsigned(), Ordering::SeqCst);
        }
        stop.store(true, Ordering::SeqCst);
        for reader in readers {
            assert!(reader.await.unwrap() > 100);
        }
        store.close().await.unwrap();
    });
}

/// A page may show a batch before anybody was told of it. From then on point reads show it too.
#[test]
fn what_a_page_shows_point_reads_show() {
    let directory = tempfile::tempdir().unwrap();
    let options =
        Options { durability: Durability::Ephemeral, readers: 1, ..Options::new(directory.path()) };
    let store = EmbeddedStore::open(options, Arc::new(SystemClock)).unwrap();
    runtime().block_on(async {
        let things = table(&store, "Things").await;
        commit(&store, vec![put(things, "p", "a", record(1, 10))]).await;
        let wanted = key("p", "b");
        assert!(store.get(things, &wanted).await.unwrap().is_none());
        // As between the moment of a commit and that of its answer.
        let other = rusqlite::Connection::open(directory.path().join("rowhouse.db")).unwrap();
        other
            .execute_batch(
                "BEGIN IMMEDIATE;
                 INSERT INTO entities SELECT table_id, pk, 'b', record FROM entities;
                 UPDATE meta SET sequence = sequence + 1;
                 COMMIT",
            )
            .unwrap();
        assert!(store.get(things, &wanted).await.unwrap().is_none(), "nobody was told");
        assert_eq!(page(&store, things, KeyRange::all()).await.rows.len(), 2);
        assert!(store.get(things, &wanted).await.unwrap().is_some());
    });
}

/// The cache holds what the last command of a batch left.
#[tokio::test]
async fn a_key_twice_in_a_batch() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), Tuning::default());
    let things = table(&*store, "Things").await;
    let set = |n: i64| put(things, "p", "r", record(n, 10));
    let delete = || write(things, "p", "r", Condition::Any, Write::Delete);
    let batches = [
        (vec![set(1), set(2)], Some(2)),
        (vec![set(3), delete()], None),
        (vec![set(4), delete(), set(5)], Some(5)),
    ];
    for (batch, left) in batches {
        commit(&*store, vec![set(0)]).await;
        assert!(store.get(things, &key("p", "r")).await.unwrap().is_some());
        commit(&*store, batch).await;
        let found = store.get(things, &key("p", "r")).await.unwrap();
        assert_eq!(found.as_ref().map(number), left);
    }
}

/// When writers rest, the database gets what is left in the log, and then there is peace.
#[tokio::test]
async fn the_log_is_copied_when_writers_rest() {
    let directory = tempfile::tempdir().unwrap();
    let tuning = Tuning { wal_idle: Duration::from_millis(10), ..Tuning::default() };
    let store = open(directory.path(), tuning);
    let things = table(&*store, "Things").await;
    commit(&*store, vec![put(things, "p", "r", record(1, 10))]).await;
    let other = rusqlite::Connection::open(directory.path().join("rowhouse.db")).unwrap();
    let in_log = || {
        let (frames, copied) =
            other.wal_checkpoint_v2(Some(rusqlite::MAIN_DB), CheckpointMode::NOOP).unwrap();
        frames - copied
    };
    eventually("the log is copied", || in_log() == 0).await;
    commit(&*store, vec![put(things, "p", "r", record(2, 10))]).await;
    eventually("the log is copied again", || in_log() == 0).await;
}

/// Writers would wait for a page that is read for long when the log is to start again: it ends, and goes on from there. Short
/// ones do not notice.
#[test]
fn long_pages_end_when_the_log_starts_again() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), Tuning::default());
    runtime().block_on(async {
        let things = table(&*store, "Things").await;
        fill(&store, things, 50, 100).await;
        let whole = page(&*store, things, KeyRange::all()).await;
        assert_eq!((whole.rows.len(), whole.next.is_none()), (5000, true));

        store.shared.checkpoints.announce(true);
        // The first look is after one row, then there is one after every 16.
        assert_eq!(in_pages(&store, things).await, (5000, vec![1008, 1008, 1008, 1008, 968]));
        let short = page(&*store, things, KeyRange::partition("7")).await;
        assert_eq!((short.rows.len(), short.next.is_none()), (100, true));
        let thousand = Scan { limit: 1000, ..scan_of(KeyRange::all()) };
        let thousand = store.scan(things, thousand).await.unwrap();
        assert_eq!((thousand.rows.len(), thousand.examined), (1000, 1001));

        // Half a count is of no use to anybody.
        let count = Scan { take: Take::Count, ..scan_of(KeyRange::all()) };
        let count = store.scan(things, count).await.unwrap();
        assert_eq!((count.counted, count.next.is_none()), (5000, true));

        store.shared.checkpoints.announce(false);
        assert_eq!(page(&*store, things, KeyRange::all()).await.rows.len(), 5000);
        store.close().await.unwrap();
    });
}

/// Nobody waits for a count that takes long before the log is twice as long as it should be; afterwards it starts again.
#[test]
fn the_log_gives_long_counts_time() {
    const HARD: u64 = 256 * 4096;
    let directory = tempfile::tempdir().unwrap();
    let tuning =
        Tuning { restart_pause: Duration::from_millis(1), whole_rows: 1024, ..small_log() };
    let store = open(directory.path(), tuning);
    let other = rusqlite::Connection::open(directory.path().join("rowhouse.db")).unwrap();
    runtime().block_on(async {
        let things = table(&*store, "Things").await;
        let mut n = 0;
        let mut write = async || {
            n += 1;
            commit(&*store, vec![put(things, "0", "1", record(n, 5_000))]).await;
            store.stats().log_bytes
        };
        let somebody_waits = || false;
        let count = Whole::new(&store.shared, 16, &somebody_waits);
        (0..64).for_each(|_| assert!(!count.look()));
        other.execute_batch("BEGIN; SELECT count(*) FROM entities;").unwrap();
        while write().await < 15 * HARD / 8 {}
        assert_eq!(store.shared.checkpoints.attempts(), 0, "writers are not held back");
        while store.shared.checkpoints.attempts() == 0 {
            write().await;
        }

        other.execute_batch("COMMIT").unwrap();
        drop(count);
        let mut log = u64::MAX;
        for _ in 0..3000 {
            log = write().await;
            if log <= HARD {
                break;
            }
        }
        assert!(log <= HARD, "the log started again, and its file was cut");
        store.close().await.unwrap();
    });
}

/// What is of use only as a whole is known of while it is read, if it takes long.
#[test]
fn long_counts_and_sorts_are_known_of() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), Tuning { whole_rows: 1024, ..Tuning::default() });
    runtime().block_on(async {
        let things = table(&*store, "Things").await;
        fill(&store, things, 50, 100).await;
        let requests = &store.shared.checkpoints;
        let scan = scan_of(KeyRange::all());
        let keys = IndexKeys { properties: vec!["Number".into()], unique: false };
        let sort = Sort {
            keys,
            direction: Direction::Ascending,
            from: None,
            ranges: scan.ranges.clone(),
            through: None,
            filter: None,
            select: None,
            limit: 1,
            max_bytes: usize::MAX,
            deadline: scan.deadline,
        };
        let count = Scan { take: Take::Count, ..scan };
        for sorted in [false, true] {
            let (store, sort, count) = (Arc::clone(&store), sort.clone(), count.clone());
            let reading = tokio::spawn(async move {
                loop {
                    if sorted {
                        let page = store.sort(things, sort.clone()).await.unwrap().unwrap();
                        assert_eq!(page.rows.len(), 1);
                    } else {
                        store.scan(things, count.clone()).await.unwrap();
                    }
                }
            });
            eventually("it is known of", || requests.is_read_whole()).await;
            reading.abort();
            assert!(reading.await.unwrap_err().is_cancelled());
            eventually("it is over", || !requests.is_read_whole()).await;
        }
        let some = page(&*store, things, KeyRange::partition("7")).await;
        assert_eq!((some.rows.len(), requests.is_read_whole()), (100, false));
        store.close().await.unwrap();
    });
}

/// A connection that has read once and is never used again keeps no snapshot for ever.
#[test]
fn idle_readers_do_not_hold_the_log() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), small_log());
    runtime().block_on(async {
        let things = table(&*store, "Things").await;
        fill(&store, things, 10, 100).await;
        for round in 0..10 {
            // Never the same entity twice, so that all connections read and are idle afterwards.
            let reads = (10..42).map(|row: i32| {
                let store = Arc::clone(&store);
                let key = key(&round.to_string(), &row.to_string());
                tokio::spawn(async move { store.get(things, &key).await.unwrap() })
            });
            for read in reads.collect::<Vec<_>>() {
                assert!(read.await.unwrap().is_some());
            }
            for n in 0..200 {
                commit(&*store, vec![put(things, "0", "1", record(round * 1000 + n, 5_000))]).await;
            }
            let log = store.stats().log_bytes;
            assert!(log < SMALL_LOG_BYTES, "{log} bytes of log after round {round}");
        }
        store.close().await.unwrap();
    });
}

/// The rows go, then the file shrinks; an account's tables go with it.
#[tokio::test]
async fn dropped_tables_give_their_space_back() {
    for whole_account in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let store = open(directory.path(), Tuning::default());
        let (things, large) = (table(&*store, "Things").await, table(&*store, "Large").await);
        fill(&store, things, 100, 300).await;
        fill(&store, large, 1, 30_000).await;
        let full = directory.path().join("rowhouse.db");
        store.close().await.unwrap();
        drop(store);
        let before = std::fs::metadata(&full).unwrap().len();

        let store = open(directory.path(), Tuning::default());
        if whole_account {
            let account = store.accounts().await.unwrap()[0].id;
            store.remove_account(account).await.unwrap();
        } else {
            store.drop_table(things).await.unwrap();
            store.drop_table(large).await.unwrap();
        }
        eventually("the file shrinks", || store.stats().database_bytes < before / 5).await;
        store.close().await.unwrap();
        let report = check(directory.path(), &mut |_| {}).unwrap();
        assert_eq!((report.entities, report.problems), (0, Vec::new()));
    }
}

/// A sweep that was interrupted goes on after a restart, and a re-created table keeps its own rows.
#[tokio::test]
async fn a_sweep_survives_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let slow = Tuning { sweep_rows: 10, sweep_pause: Duration::from_hours(1), ..Tuning::default() };
    let store = open(directory.path(), slow);
    let things = table(&*store, "Things").await;
    fill(&store, things, 20, 300).await;
    store.drop_table(things).await.unwrap();
    let again = table(&*store, "Things").await;
    commit(&*store, vec![put(again, "0", "0", record(7, 10))]).await;
    store.close().await.unwrap();
    drop(store);
    let count = |sql: &str| -> i64 {
        let conn = rusqlite::Connection::open(directory.path().join("rowhouse.db")).unwrap();
        conn.query_row(sql, [], |row| row.get(0)).unwrap()
    };
    assert_eq!(count("SELECT count(*) FROM dropped"), 1);
    assert!(count("SELECT count(*) FROM entities") > 1900);
    assert_eq!(check(directory.path(), &mut |_| {}).unwrap().entities, 1);

    let store = open(directory.path(), Tuning::default());
    eventually("nothing is left to sweep", || count("SELECT count(*) FROM dropped") == 0).await;
    assert_eq!(count("SELECT count(*) FROM entities"), 1);
    assert!(store.get(again, &key("0", "0")).await.unwrap().is_some());
    assert_eq!(
        store.get(things, &key("0", "0")).await.unwrap_err().to_string(),
        StoreError::rejected(Conflict::TableNotFound).to_string()
    );
}

/// Stops the committer for as long as the test holds the lock, and panics if so told.
#[derive(Debug, Default)]
struct Gate {
    held: Mutex<()>,
    arrivals: AtomicU64,
    panic: AtomicBool,
}

impl Clock for Gate {
    fn now(&self) -> Timestamp {
        assert!(!self.panic.load(Ordering::SeqCst), "a clock that fails");
        self.arrivals.fetch_add(1, Ordering::SeqCst);
        drop(self.held.lock());
        SystemClock.now()
    }
}

/// What does not fit into the queue is refused at once; what fits is committed together.
#[test]
fn a_full_queue_is_busy_and_waiting_batches_share_a_commit() {
    let directory = tempfile::tempdir().unwrap();
    let clock = Arc::new(Gate::default());
    let tuning = Tuning { queue_jobs: 20, ..Tuning::default() };
    let store = open_with(directory.path(), tuning, clock.clone());
    runtime().block_on(async {
        let things = table(&*store, "Things").await;
        commit(&*store, vec![put(things, "p", "r", record(1, 10))]).await;
        let insert = |n: i64| {
            let store = Arc::clone(&store);
            let batch = Batch::of(put(things, "p", &n.to_string(), record(n, 10)));
            tokio::spawn(async move { store.commit(batch).await })
        };
        let held = clock.held.lock();
        let arrivals = clock.arrivals.load(Ordering::SeqCst);
        let first = insert(0);
        // The committer asks for the time once it has taken its group: the first alone.
        eventually("the first is taken", || clock.arrivals.load(Ordering::SeqCst) > arrivals).await;
        let groups = store.stats().groups;
        // One after the other until the queue is full: the sweep, which has just started, may have a job in it.
        let mut waiting = Vec::new();
        while store.stats().queued < 20 {
            let before = store.stats().queued;
            waiting.push(insert(1 + i64::try_from(waiting.len()).unwrap()));
            eventually("it waits", || store.stats().queued > before).await;
        }
        assert!(18 <= waiting.len(), "{} of twenty places", waiting.len());
        let refused = insert(100).await.unwrap();
        assert!(matches!(refused, Err(StoreError::Busy)), "{refused:?}");
        let read = store.get(things, &key("p", "r")).await.unwrap();
        assert!(read.is_some(), "reads do not wait for writes");
        drop(held);
        first.await.unwrap().unwrap();
        for job in waiting {
            job.await.unwrap().unwrap();
        }
        assert!(store.stats().groups - groups <= 4, "twenty batches in a few groups");
        store.close().await.unwrap();
    });
}

/// A panic of the committer is a failed write: nothing is acknowledged any more, reads go on.
#[tokio::test]
async fn a_panic_latches() {
    let directory = tempfile::tempdir().unwrap();
    let clock = Arc::new(Gate::default());
    let store = open_with(directory.path(), Tuning::default(), clock.clone());
    let things = table(&*store, "Things").await;
    let insert = |row| Batch::of(put(things, "p", row, record(1, 10)));
    store.commit(insert("a")).await.unwrap();
    store.ready().unwrap();
    clock.panic.store(true, Ordering::SeqCst);
    assert!(matches!(store.commit(insert("b")).await, Err(StoreError::OutcomeUnknown(_))));
    assert!(store.ready().is_err());
    clock.panic.store(false, Ordering::SeqCst);
    assert!(matches!(store.commit(insert("c")).await, Err(StoreError::Unavailable(_))));
    assert!(store.get(things, &key("p", "a")).await.unwrap().is_some());
    assert!(store.get(things, &key("p", "b")).await.unwrap().is_none());
    store.close().await.unwrap();
    drop(store);
    let store = open(directory.path(), Tuning::default());
    assert_eq!(page(&*store, things, KeyRange::all()).await.rows.len(), 1);
    store.commit(insert("c")).await.unwrap();
}

/// The rest of a long page is read at a lower priority, what comes after it on the same connection is not.
#[cfg(target_os = "linux")]
#[test]
fn a_long_page_lets_others_go_first() {
    let directory = tempfile::tempdir().unwrap();
    let tuning = Tuning { scan_threads: 1, long_looks: 3, ..Tuning::default() };
    let options = Options { readers: 1, ..Options::new(directory.path()) };
    let store = EmbeddedStore::open_tuned(options, Arc::new(SystemClock), tuning).unwrap();
    let nice = || -> i64 {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        let (_, after_name) = stat.rsplit_once(") ").unwrap();
        after_name.split(' ').nth(16).unwrap().parse().unwrap()
    };
    let after_looks = async |looks: u32| {
        let read = move |_: &_, _: &_, abandoned: &dyn Fn() -> bool| {
            (0..looks).for_each(|_| assert!(!abandoned()));
            Ok(nice())
        };
        store.shared.scans.ask(8, read).await.unwrap()
    };
    let here = nice();
    runtime().block_on(async {
        let back = (here + 10).min(19);
        for (looks, expected) in [(2, here), (3, back), (0, here), (4, back), (4, back), (2, here)]
        {
            assert_eq!(after_looks(looks).await, expected, "{looks} looks");
        }
        let things = table(&store, "Things").await;
        fill(&store, things, 50, 100).await;
        for _ in 0..3 {
            assert_eq!(page(&store, things, KeyRange::all()).await.rows.len(), 5000);
        }
        assert_eq!(after_looks(0).await, here);
        store.close().await.unwrap();
    });
}

/// A page with a long filter steps back after a short time, however few rows it examines.
#[cfg(target_os = "linux")]
#[test]
fn a_long_filter_lets_others_go_first() {
    let directory = tempfile::tempdir().unwrap();
    let tuning = Tuning { scan_threads: 1, ..Tuning::default() };
    let options = Options { readers: 1, ..Options::new(directory.path()) };
    let store = EmbeddedStore::open_tuned(options, Arc::new(SystemClock), tuning).unwrap();
    // A thread that has stepped back is replaced.
    let thread = async || {
        let read = |_: &_, _: &_, _: &dyn Fn() -> bool| Ok(std::thread::current().id());
        store.shared.scans.ask(8, read).await.unwrap()
    };
    let terms = |count: usize| {
        let terms: Vec<_> = (0..count).map(|n| format!("O eq {n}")).collect();
        Filter::parse(&terms.join(" or ")).unwrap().map(Arc::new)
    };
    runtime().block_on(async {
        let things = table(&store, "Things").await;
        fill(&store, things, 1, 100).await;
        for (count, is_long) in [(2, false), (2_000, true), (2, false)] {
            let before = thread().await;
            let scan = Scan { filter: terms(count), ..scan_of(KeyRange::all()) };
            assert_eq!(store.scan(things, scan).await.unwrap().examined, 100);
            assert_eq!(thread().await != before, is_long, "{count} terms");
        }
        store.close().await.unwrap();
    });
}

/// A database that outgrows the memory, and shrinks again, is read and written all the while.
#[test]
fn a_database_outgrows_the_memory() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options {
        memory_bytes: Some(2 * 1024 * 1024),
        durability: Durability::Ephemeral,
        ..Options::new(directory.path())
    };
    let store = EmbeddedStore::open_tuned(options, Arc::new(SystemClock), small_log()).unwrap();
    runtime().block_on(async {
        let things = table(&store, "Things").await;
        assert!(store.shared.fit.fits());
        fill(&store, things, 40, 500).await;
        eventually("it no longer fits", || !store.shared.fit.fits()).await;
        for partition in 0..40 {
            let found = store.get(things, &key(&partition.to_string(), "7")).await.unwrap();
            assert_eq!(found.as_ref().map(number), Some(7));
        }
        // Who does not wait any longer leaves nothing behind that others wait for.
        for _ in 0..100 {
            let wanted = key("1", "8");
            let _ = tokio::time::timeout(Duration::ZERO, store.get(things, &wanted)).await;
            let batch = Batch::of(put(things, "1", "8", record(80, 10)));
            let _ = tokio::time::timeout(Duration::ZERO, store.commit(batch)).await;
        }
        commit(&store, vec![put(things, "1", "7", record(70, 10))]).await;
        let found = store.get(things, &key("1", "7")).await.unwrap();
        assert_eq!(found.as_ref().map(number), Some(70));
        assert_eq!(in_pages(&store, things).await.0, 4000);
        store.drop_table(things).await.unwrap();
        let others = table(&store, "Others").await;
        let mut row = 0;
        while !store.shared.fit.fits() {
            // The space comes back as the sweep gets on, and is looked at when there is something to copy.
            commit(&store, vec![put(others, "p", "r", record(row, 10))]).await;
            row += 1;
            assert!(row < 2000, "it never fits again");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let found = store.get(others, &key("p", "r")).await.unwrap();
        assert_eq!(found.as_ref().map(number), Some(row - 1));
        store.close().await.unwrap();
    });
}

/// A page that nobody waits for ends, and those in the queue are not read at all.
#[test]
fn abandoned_pages_end() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), Tuning { scan_jobs: 64, ..Tuning::default() });
    runtime().block_on(async {
        let things = table(&*store, "Things").await;
        fill(&store, things, 50, 100).await;
        for _ in 0..200 {
            let page = store.scan(things, scan_of(KeyRange::all()));
            let _ = tokio::time::timeout(Duration::from_micros(100), page).await;
        }
        let all = page(&*store, things, KeyRange::all()).await;
        assert_eq!(all.rows.len(), 5000);
        store.close().await.unwrap();
    });
}

/// Nothing was begun, so nothing is in doubt: the store says that it is busy and goes on later.
#[test]
fn a_lock_of_another_program_passes() {
    let directory = tempfile::tempdir().unwrap();
    let tuning = Tuning { lock_patience: Duration::from_millis(50), ..Tuning::default() };
    let store = open(directory.path(), tuning);
    let other = rusqlite::Connection::open(directory.path().join("rowhouse.db")).unwrap();
    runtime().block_on(async {
        let things = table(&*store, "Things").await;
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        let refused = store.commit(Batch::of(put(things, "p", "r", record(1, 0)))).await;
        assert!(matches!(refused, Err(StoreError::Busy)), "{refused:?}");
        assert!(store.ready().is_ok());
        other.execute_batch("ROLLBACK").unwrap();
        commit(&*store, vec![put(things, "p", "r", record(1, 0))]).await;
        assert!(store.get(things, &key("p", "r")).await.unwrap().is_some());
    });
}
