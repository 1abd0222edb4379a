//! What becomes of messages that nobody finds any more, and what a check finds.

use super::{eventually, open_with, table};
use crate::tuning::Tuning;
use crate::{EmbeddedStore, OpenError, check};
use rowhouse_env::{Clock, SimulatedClock};
use rowhouse_store::conformance::queued::{
    commit, deleting, done, peek, put, putting, queue, take, texts, updating,
};
use rowhouse_store::{Batch, MessageAction, MessageCommand, QueueId, Store, Ttl};
use rowhouse_types::Timestamp;
use rusqlite::{Connection, OpenFlags};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn clock() -> Arc<SimulatedClock> {
    Arc::new(SimulatedClock::new(Timestamp::parse_iso("2026-01-01T00:00:00Z").unwrap()))
}

/// A sweep that looks often and takes small steps.
fn eager() -> Tuning {
    let interval = Duration::from_millis(20);
    Tuning { sweep_rows: 50, free_pages_interval: interval, ..Tuning::default() }
}

fn open(directory: &Path, clock: &Arc<SimulatedClock>, tuning: Tuning) -> Arc<EmbeddedStore> {
    open_with(directory, tuning, Arc::clone(clock) as Arc<dyn Clock>)
}

/// A queue of the one account.
async fn jobs(store: &EmbeddedStore) -> QueueId {
    table(store, "Things").await;
    let account = store.accounts().await.unwrap()[0].id;
    queue(store, account, "jobs").await
}

/// Puts so many messages, some of them long.
async fn fill(store: &EmbeddedStore, queue: QueueId, count: u64, live: Option<u64>) {
    let long = "long ".repeat(5000);
    let text = |n: u64| if n.is_multiple_of(20) { &*long } else { "short" };
    let put = |n| MessageCommand { queue, action: putting(text(n), n % 3, live) };
    let messages = (0..count).map(put).collect();
    commit(store, Batch { commands: Vec::new(), messages }).await.unwrap();
}

fn number(directory: &Path, sql: &str) -> i64 {
    let conn = Connection::open(directory.join("rowhouse.db")).unwrap();
    conn.query_row(sql, [], |row| row.get(0)).unwrap()
}

/// A process that another test is just starting has the lock as well, for a moment.
fn problems(directory: &Path) -> Vec<String> {
    loop {
        match check(directory, &mut |_| {}) {
            Err(OpenError::Locked { .. }) => std::thread::sleep(Duration::from_millis(5)),
            report => return report.unwrap().problems,
        }
    }
}

/// By a drop, by a clear and by time; only what is gone, and its texts with it.
#[tokio::test]
async fn messages_that_are_gone_are_swept() {
    let (directory, clock) = (tempfile::tempdir().unwrap(), clock());
    let path = directory.path();
    let store = open(path, &clock, eager());
    let jobs = jobs(&store).await;
    let account = store.accounts().await.unwrap()[0].id;
    let dropped = queue(&*store, account, "dropped").await;
    let rows = || number(path, "SELECT count(*) FROM messages");
    let texts_beside = || number(path, "SELECT count(*) FROM large");

    fill(&store, dropped, 500, None).await;
    fill(&store, jobs, 500, None).await;
    assert_eq!((rows(), texts_beside()), (1000, 50));
    store.drop_queue(dropped).await.unwrap();
    eventually("the dropped ones are swept", || rows() == 500).await;
    done(&*store, jobs, MessageAction::Clear).await;
    fill(&store, jobs, 200, None).await;
    eventually("the cleared ones are swept", || rows() == 200).await;

    fill(&store, jobs, 300, Some(100)).await;
    clock.advance(Duration::from_secs(101));
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(rows(), 500, "not at once: the clock may be set back a little");
    assert_eq!(store.message_count(jobs).await.unwrap(), 500, "until then they may be counted");
    clock.advance(Duration::from_mins(1));
    eventually("the expired ones are swept", || rows() == 200).await;
    assert_eq!((store.message_count(jobs).await.unwrap(), texts_beside()), (200, 10));
    store.close().await.unwrap();
    assert_eq!(number(path, "SELECT count(*) FROM dropped_piles"), 0);
    let report = check(path, &mut |_| {}).unwrap();
    assert_eq!((report.queues, report.messages, report.problems), (1, 200, Vec::new()));
}

/// What has expired and is not swept is walked over in steps between which others commit, and that once.
#[tokio::test]
async fn a_take_that_meets_many_dead_lets_others_in() {
    let (directory, clock) = (tempfile::tempdir().unwrap(), clock());
    let store = open(directory.path(), &clock, Tuning { take_walk: 100, ..eager() });
    let jobs = jobs(&store).await;
    fill(&store, jobs, 500, Some(10)).await;
    clock.advance(Duration::from_secs(5));
    fill(&store, jobs, 5000, Some(60)).await;
    done(&*store, jobs, putting("alive", 3, None)).await;
    let commits = || store.stats().commits;
    clock.advance(Duration::from_secs(61));
    let before = commits();
    assert_eq!(texts(&take(&*store, jobs, 2, 30).await), ["alive"]);
    let steps = commits() - before;
    assert!((20..60).contains(&steps), "5,500 dead were walked over in {steps} steps");

    // Those of the first ten seconds are swept in several steps; of the others nobody has to know again.
    clock.advance(Duration::from_secs(5));
    let rows = || number(directory.path(), "SELECT count(*) FROM messages WHERE number <= 500");
    assert!(rows() > 100);
    eventually("the first are swept", || rows() == 0).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let before = commits();
    assert!(take(&*store, jobs, 1, 30).await.is_empty());
    assert_eq!(commits() - before, 1, "the dead were walked over again");
    put(&*store, jobs, "another").await;
    assert_eq!(texts(&take(&*store, jobs, 2, 30).await), ["another"]);
    store.close().await.unwrap();
}

/// However long it takes to look for entities that have expired.
#[tokio::test]
async fn messages_expire_while_tables_are_looked_through() {
    let (directory, clock) = (tempfile::tempdir().unwrap(), clock());
    let path = directory.path();
    // A step every half second: the pass over the table takes twenty seconds at least.
    let slow = Tuning { sweep_pause: Duration::from_millis(500), ..eager() };
    let store = open(path, &clock, slow);
    let jobs = jobs(&store).await;
    let things = table(&*store, "Large").await;
    super::fill(&store, things, 205, 0).await;
    fill(&store, jobs, 30, Some(100)).await;
    store
        .set_ttl(things, Some(Ttl { property: None, after: Duration::from_hours(9999) }))
        .await
        .unwrap();
    let set = Instant::now();
    tokio::time::sleep(Duration::from_millis(600)).await;
    clock.advance(Duration::from_secs(161));
    eventually("they are swept", || number(path, "SELECT count(*) FROM messages") == 0).await;
    assert!(set.elapsed() < Duration::from_secs(15), "they waited for the pass");
    store.close().await.unwrap();
}

/// What was given up before a restart is swept after it.
#[tokio::test]
async fn a_sweep_of_messages_survives_a_restart() {
    let (directory, clock) = (tempfile::tempdir().unwrap(), clock());
    let path = directory.path();
    let slow = Tuning { sweep_rows: 10, sweep_pause: Duration::from_hours(1), ..Tuning::default() };
    let store = open(path, &clock, slow);
    let jobs = jobs(&store).await;
    fill(&store, jobs, 500, None).await;
    done(&*store, jobs, MessageAction::Clear).await;
    put(&*store, jobs, "kept").await;
    store.close().await.unwrap();
    drop(store);
    let rows = || number(path, "SELECT count(*) FROM messages");
    assert!(rows() > 450);
    assert_eq!(problems(path), Vec::<String>::new());
    let store = open(path, &clock, eager());
    eventually("nothing is left to sweep", || rows() == 1).await;
    assert_eq!(texts(&peek(&*store, jobs, 9).await), ["kept"]);
}

/// Those that a take meets are deleted by it, a few at a time; it finds what is behind them all the same.
#[tokio::test]
async fn a_take_deletes_what_it_meets() {
    let (directory, clock) = (tempfile::tempdir().unwrap(), clock());
    let path = directory.path();
    let store = open(path, &clock, Tuning::default());
    let jobs = jobs(&store).await;
    let short = |_| MessageCommand { queue: jobs, action: putting("short", 0, Some(10)) };
    let messages = (0..300).map(short).collect();
    commit(&*store, Batch { commands: Vec::new(), messages }).await.unwrap();
    put(&*store, jobs, "behind").await;
    clock.advance(Duration::from_secs(11));
    assert_eq!(texts(&take(&*store, jobs, 1, 0).await), ["behind"]);
    let left = number(path, "SELECT count(*) FROM messages");
    assert_eq!(left, 301 - 64);
    assert_eq!(store.message_count(jobs).await.unwrap(), left.cast_unsigned());
    // From here on they are not looked at again, by takes and by peeks.
    for _ in 0..3 {
        assert_eq!(texts(&take(&*store, jobs, 1, 0).await), ["behind"]);
        assert_eq!(texts(&peek(&*store, jobs, 9).await), ["behind"]);
    }
    assert_eq!(number(path, "SELECT count(*) FROM messages"), left);
    store.close().await.unwrap();
    assert_eq!(problems(path), Vec::<String>::new());
}

/// A text that grows and shrinks leaves nothing behind.
#[tokio::test]
async fn long_texts_are_beside_their_messages() {
    let (directory, clock) = (tempfile::tempdir().unwrap(), clock());
    let path = directory.path();
    let store = open(path, &clock, Tuning::default());
    let jobs = jobs(&store).await;
    let mut message = put(&*store, jobs, "").await;
    for length in [3800, 3801, 65_536, 0, 65_536, 10_000, 1] {
        let text = "t".repeat(length);
        message = done(&*store, jobs, updating(&message, 0, Some(&text))).await.remove(0);
        let beside = number(path, "SELECT count(*) FROM large");
        assert_eq!(beside, i64::from(3800 < length), "{length}");
        assert_eq!(peek(&*store, jobs, 9).await, std::slice::from_ref(&message));
    }
    let text = "t".repeat(65_536);
    message = done(&*store, jobs, updating(&message, 0, Some(&text))).await.remove(0);
    done(&*store, jobs, deleting(&message)).await;
    assert_eq!(number(path, "SELECT count(*) FROM large"), 0);
}

/// Each kind of damage that does not hinder SQLite.
#[tokio::test]
async fn a_check_finds_what_is_wrong_with_messages() {
    for (damage, found) in [
        ("UPDATE queues SET messages = 7", "queue jobs: it says that it has 7 messages and has 5"),
        ("UPDATE messages SET pile = 77 WHERE number = 1", "belongs to no queue (pile 77)"),
        ("UPDATE messages SET id = x'00' WHERE number = 1", "the id of a message is not one"),
        ("UPDATE messages SET receipt = receipt * 6 WHERE number = 1", "a time is out of range"),
        ("UPDATE messages SET receipt = receipt + 9 WHERE number = 5", "never given out"),
        ("UPDATE messages SET place = 99 WHERE number = 1", "its place was never given out"),
        ("UPDATE messages SET text = x'ff' WHERE number = 1", "neither a text nor a number"),
        ("UPDATE messages SET expires = 5 WHERE number = 1", "it expired before it was put"),
        ("DELETE FROM large", "large record"),
        ("UPDATE queues SET account = 9", "belongs to no account"),
        ("UPDATE queues SET name = 'NO'", "the name of a queue is not valid"),
        ("UPDATE meta SET last_queue = 0", "its id was never given out"),
        ("INSERT INTO queue_metadata VALUES (9, 0, 'a', 'b')", "belongs to no queue"),
    ] {
        let (directory, clock) = (tempfile::tempdir().unwrap(), clock());
        let store = open(directory.path(), &clock, Tuning::default());
        let jobs = jobs(&store).await;
        fill(&store, jobs, 5, None).await;
        store.close().await.unwrap();
        drop(store);
        assert_eq!(problems(directory.path()), Vec::<String>::new());
        let conn = crate::schema::open(&directory.path().join("rowhouse.db"), OpenFlags::default());
        let conn = conn.unwrap();
        conn.execute(damage, []).unwrap();
        drop(conn);
        let problems = problems(directory.path());
        assert!(problems.iter().any(|problem| problem.contains(found)), "{damage}: {problems:?}");
    }
}

/// A little more: the time of queues is slower while it is ahead, and batches at one moment of the clock are a tick apart.
const SECOND: Duration = Duration::from_millis(1100);

/// Ten minutes after the time that it is.
fn ahead(clock: &SimulatedClock) -> Timestamp {
    clock.now().plus_seconds(600)
}

/// A message that is taken for a second is given out again after a second, and one that is hidden for a minute is not given out
/// earlier, though the clock was ten minutes ahead while something was written.
#[tokio::test]
async fn queues_go_on_after_a_clock_was_ahead() {
    let (directory, clock) = (tempfile::tempdir().unwrap(), clock());
    let store = open(directory.path(), &clock, Tuning::default());
    let jobs = jobs(&store).await;
    let things = table(&*store, "Things").await;
    let write = |row| Batch::of(super::put(things, "p", row, super::record(1, 10)));
    let right = clock.now();
    done(&*store, jobs, putting("late", 60, None)).await;
    put(&*store, jobs, "text").await;
    clock.jump(ahead(&clock));
    let timestamp = store.commit(write("r")).await.unwrap().timestamps[0];
    assert_eq!(timestamp, clock.now());
    assert_eq!(texts(&take(&*store, jobs, 9, 1).await), ["text"], "nothing is early");
    clock.jump(right);
    assert_eq!(texts(&take(&*store, jobs, 9, 1).await), [""; 0]);
    clock.advance(SECOND);
    assert_eq!(texts(&take(&*store, jobs, 9, 1).await), ["text"]);
    assert_eq!(store.ahead().as_secs(), 598, "Timestamps wait for the clock");
    clock.advance(SECOND);
    assert_eq!(texts(&peek(&*store, jobs, 9).await), ["text"]);

    // The mark of the next start is ahead of the clock, and time goes on from there.
    assert_eq!(texts(&take(&*store, jobs, 9, 5).await), ["text"]);
    store.close().await.unwrap();
    drop(store);
    let store = open(directory.path(), &clock, Tuning::default());
    let found = take(&*store, jobs, 9, 1).await;
    assert_eq!(texts(&found), ["text", "late"], "the mark is ten minutes later");
    assert_eq!(texts(&take(&*store, jobs, 9, 1).await), [""; 0]);
    clock.advance(SECOND);
    assert_eq!(texts(&take(&*store, jobs, 9, 1).await), ["text", "late"]);
    clock.advance(Duration::from_mins(10));
    store.commit(write("s")).await.unwrap();
    assert!(store.ahead().as_secs() < 5, "the clock has caught up");
}

/// The store was opened while the clock was ahead. Started again an hour later, when the last Timestamp is that of the clock
/// again, queues go on from where they were.
#[tokio::test]
async fn queues_go_on_after_a_start_while_the_clock_was_ahead() {
    let (directory, clock) = (tempfile::tempdir().unwrap(), clock());
    let right = clock.now();
    clock.jump(ahead(&clock));
    let store = open(directory.path(), &clock, Tuning::default());
    let jobs = jobs(&store).await;
    put(&*store, jobs, "text").await;
    clock.jump(right);
    clock.advance(Duration::from_hours(1));
    let taken = take(&*store, jobs, 9, 30).await.remove(0);
    assert!(clock.now().plus_seconds(300) < taken.receipt);
    store.close().await.unwrap();
    drop(store);
    let store = open(directory.path(), &clock, Tuning::default());
    assert_eq!(texts(&take(&*store, jobs, 9, 30).await), [""; 0]);
    clock.advance(Duration::from_secs(33));
    let again = take(&*store, jobs, 9, 30).await.remove(0);
    assert!(taken.receipt < again.receipt);
}

/// Messages that have expired are left at the front and noted; a clock that is set back puts nothing before that place.
#[tokio::test]
async fn nothing_is_put_before_what_has_expired() {
    let (directory, clock) = (tempfile::tempdir().unwrap(), clock());
    let store = open(directory.path(), &clock, Tuning { take_walk: 10, ..Tuning::default() });
    let jobs = jobs(&store).await;
    fill(&store, jobs, 300, Some(5)).await;
    let right = clock.now();
    clock.advance(Duration::from_secs(6));
    assert_eq!(texts(&take(&*store, jobs, 1, 1).await), [""; 0]);
    clock.jump(right);
    put(&*store, jobs, "text").await;
    assert_eq!(texts(&peek(&*store, jobs, 1).await), ["text"]);
    assert_eq!(texts(&take(&*store, jobs, 1, 1).await), ["text"]);
    clock.advance(SECOND);
    assert_eq!(texts(&take(&*store, jobs, 1, 1).await), ["text"]);
}

/// Nothing can be written when the last Timestamp is used, and the store is not ready.
#[tokio::test]
async fn a_store_without_timestamps_is_not_ready() {
    let (directory, clock) = (tempfile::tempdir().unwrap(), clock());
    let store = open(directory.path(), &clock, Tuning::default());
    let things = table(&*store, "Things").await;
    let write = |row| Batch::of(super::put(things, "p", row, super::record(1, 10)));
    store.commit(write("r")).await.unwrap();
    store.ready().unwrap();
    let last = rowhouse_types::RecordBuilder::new().finish(Timestamp::MAX);
    let key = super::key("p", "last");
    let (condition, write_last) =
        (rowhouse_store::Condition::Any, rowhouse_store::Write::Restore(last));
    let restore =
        rowhouse_store::Command::Entity { table: things, key, condition, write: write_last };
    store.commit(Batch::of(restore)).await.unwrap();
    let refused = store.commit(write("s")).await.unwrap_err();
    assert!(matches!(refused, rowhouse_store::StoreError::Unavailable(_)), "{refused}");
    let reason = store.ready().unwrap_err().to_string();
    assert!(reason.contains("last Timestamp"), "{reason}");
    store.close().await.unwrap();
    drop(store);
    let store = open(directory.path(), &clock, Tuning::default());
    assert!(store.ready().unwrap_err().to_string().contains("last Timestamp"));
}
