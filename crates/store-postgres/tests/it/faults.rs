//! A database that fails under load: nothing that was answered is lost, nothing that was refused is there, no batch
//! is there in part, and the store serves again by itself once the database does.

use crate::common;
use crate::common::{Stopped, command, database, key, n, name, number, page, scan_all};
use rowhouse_env::{SystemClock, SystemRandom};
use rowhouse_store::{
    AccountId, Batch, Command, Condition, Placement, QueueId, Store, StoreError, TableId, Write,
};
use rowhouse_store_postgres::{OpenError, Options, PostgresStore};
use rowhouse_testkit::TestPostgres;
use rowhouse_types::TableName;
use std::collections::BTreeMap;
use std::process;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

/// How long after the database serves again the store may take to, on a busy machine too.
const RECOVERY: Duration = Duration::from_secs(10);
/// How long a request may wait for a database that does not answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Entities of a batch.
const ROWS: usize = 5;

/// What an answer says of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Done,
    Nothing,
    Unknown,
}

/// Panics on any error that a failing database must not lead to.
fn outcome<T>(result: Result<T, StoreError>) -> Outcome {
    match result {
        Ok(_) => Outcome::Done,
        Err(StoreError::Busy) => Outcome::Nothing,
        Err(StoreError::OutcomeUnknown(_)) => Outcome::Unknown,
        Err(other) => panic!("a database that fails is no reason for {other:?}"),
    }
}

/// Requests of every kind, over and over, with what became of each write.
struct Load {
    store: Arc<PostgresStore>,
    account: AccountId,
    table: TableId,
    done: AtomicBool,
    succeeded: AtomicUsize,
    failed: AtomicUsize,
    /// Every batch by its PartitionKey, which no other has.
    batches: Mutex<Vec<(String, Outcome)>>,
    tables: Mutex<Vec<(TableName, Outcome)>>,
}

impl Load {
    /// A store on a new database of the server, with requests under way.
    fn start(runtime: &Runtime, server: &TestPostgres) -> (Arc<Self>, Vec<JoinHandle<()>>) {
        let url = server.create_database();
        let load = runtime.block_on(async {
            // The defaults: this database waits for its disk.
            let options = Options { connections: 8, ..Options::new(url) };
            let store = PostgresStore::open(options, Arc::new(SystemClock), Arc::new(SystemRandom));
            let store = Arc::new(store.await.expect("the store opens"));
            let account = common::account(&*store).await;
            let created = store.create_table(account, &name("Things"), Placement::default()).await;
            let table = created.expect("the table is new").id;
            Arc::new(Self {
                store,
                account,
                table,
                done: AtomicBool::new(false),
                succeeded: AtomicUsize::new(0),
                failed: AtomicUsize::new(0),
                batches: Mutex::default(),
                tables: Mutex::default(),
            })
        });
        let mut workers = vec![
            runtime.spawn(Arc::clone(&load).read()),
            runtime.spawn(Arc::clone(&load).create_tables()),
        ];
        for worker in 0..4 {
            workers.push(runtime.spawn(Arc::clone(&load).write(worker)));
        }
        (load, workers)
    }

    fn goes_on(&self) -> bool {
        !self.done.load(Ordering::SeqCst)
    }

    /// Counts, and gives a database that fails some time.
    async fn take_note(&self, began: Instant, outcome: Outcome) {
        assert!(began.elapsed() < PATIENCE, "a request took {:?}", began.elapsed());
        if outcome == Outcome::Done {
            self.succeeded.fetch_add(1, Ordering::SeqCst);
        } else {
            self.failed.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn write(self: Arc<Self>, worker: usize) {
        for turn in 0.. {
            if !self.goes_on() {
                return;
            }
            let partition = format!("{worker}-{turn}");
            let began = Instant::now();
            let commands = commands(self.table, &partition, turn);
            let outcome = outcome(self.store.commit(Batch::new(commands)).await);
            self.batches.lock().expect("not poisoned").push((partition, outcome));
            self.take_note(began, outcome).await;
        }
    }

    async fn create_tables(self: Arc<Self>) {
        for turn in 0.. {
            if !self.goes_on() {
                return;
            }
            let (began, name) = (Instant::now(), name(&format!("Table{turn}")));
            let created = self.store.create_table(self.account, &name, Placement::default()).await;
            let outcome = outcome(created);
            self.tables.lock().expect("not poisoned").push((name, outcome));
            self.take_note(began, outcome).await;
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
    }

    async fn read(self: Arc<Self>) {
        let key = key("0-1", "0");
        while self.goes_on() {
            let began = Instant::now();
            self.take_note(began, outcome(self.store.get(self.table, &key).await)).await;
            let began = Instant::now();
            self.take_note(began, outcome(self.store.scan(self.table, scan_all()).await)).await;
            let began = Instant::now();
            let found = self.store.table(self.account, &name("Things")).await;
            self.take_note(began, outcome(found)).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until so many more requests have succeeded.
    fn wait_for_success(&self) {
        let before = self.succeeded.load(Ordering::SeqCst);
        wait_until("requests succeed", RECOVERY, || {
            self.succeeded.load(Ordering::SeqCst) > before + 20
        });
    }

    /// Waits until the store says so.
    fn wait_for_ready(&self, ready: bool) {
        wait_until("ready() follows", RECOVERY, || match self.store.ready() {
            Ok(()) => ready,
            Err(StoreError::Unavailable(_)) => !ready,
            Err(other) => panic!("{other:?}"),
        });
    }

    /// Ends the load and compares what is there with what was answered.
    fn finish(&self, runtime: &Runtime, workers: Vec<JoinHandle<()>>) {
        self.done.store(true, Ordering::SeqCst);
        for worker in workers {
            runtime.block_on(worker).expect("no worker panics");
        }
        runtime.block_on(async {
            self.check_batches().await;
            self.check_tables().await;
            self.store.close().await.expect("it closes");
        });
    }

    async fn check_batches(&self) {
        let everything = page(&*self.store, self.table, scan_all()).await;
        let mut there: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
        for row in everything.rows.iter() {
            let row = row.expect("a page decodes");
            there.entry(row.partition).or_default().push(n(&row.record.to_owned()));
        }
        for (partition, outcome) in &*self.batches.lock().expect("not poisoned") {
            match (outcome, there.get(&**partition)) {
                (Outcome::Nothing | Outcome::Unknown, None) => {}
                (Outcome::Done | Outcome::Unknown, Some(rows)) => {
                    let whole = if partition.ends_with(['0', '3', '6', '9']) { 1 } else { ROWS };
                    assert_eq!(*rows, vec![1; whole], "{partition} is there in part");
                }
                (outcome, found) => panic!("{partition} was {outcome:?} and is {found:?}"),
            }
        }
    }

    async fn check_tables(&self) {
        let tables = self.tables.lock().expect("not poisoned").clone();
        for (name, outcome) in &tables {
            let found = self.store.table(self.account, name).await.expect("the look-up succeeds");
            match outcome {
                Outcome::Done => assert!(found.is_some(), "{} is lost", name.as_str()),
                Outcome::Nothing => assert!(found.is_none(), "{} is there", name.as_str()),
                Outcome::Unknown => {}
            }
        }
    }
}

/// By the last digit of the turn: one insert, several that are one statement, or a mix that is a transaction.
fn commands(table: TableId, partition: &str, turn: usize) -> Vec<Command> {
    let insert = |row: usize, value| {
        let key = key(partition, &row.to_string());
        command(table, &key, Condition::Absent, Write::Put(number(value)))
    };
    match turn % 10 % 3 {
        0 => vec![insert(0, 1)],
        1 => (0..ROWS).map(|row| insert(row, 1)).collect(),
        _ => {
            let mut commands: Vec<_> = (0..ROWS).map(|row| insert(row, 0)).collect();
            commands.extend((0..ROWS).map(|row| {
                let key = key(partition, &row.to_string());
                command(table, &key, Condition::Exists, Write::Merge(number(1)))
            }));
            commands
        }
    }
}

fn wait_until(what: &str, within: Duration, holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < within, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(4).enable_all().build().expect("a runtime can be made")
}

#[test]
fn a_database_that_dies_under_load_loses_nothing() {
    let (runtime, mut server) = (runtime(), TestPostgres::start());
    let (load, workers) = Load::start(&runtime, &server);
    for round in 0..4 {
        load.wait_for_success();
        if round % 2 == 0 {
            server.kill();
        } else {
            server.stop();
        }
        if round == 0 {
            load.wait_for_ready(false);
        }
        server.restart();
        load.wait_for_success();
        load.wait_for_ready(true);
    }
    assert!(load.failed.load(Ordering::SeqCst) > 0, "nothing failed");
    load.finish(&runtime, workers);
}

#[test]
fn connections_that_are_terminated_lose_nothing() {
    let (runtime, server) = (runtime(), TestPostgres::start());
    let (load, workers) = Load::start(&runtime, &server);
    for _ in 0..8 {
        load.wait_for_success();
        let sql = "SELECT count(pg_terminate_backend(pid)) > 0 FROM pg_stat_activity \
                   WHERE application_name = 'rowhouse'";
        assert_eq!(server.execute("postgres", sql), "t");
    }
    load.wait_for_success();
    load.wait_for_ready(true);
    load.finish(&runtime, workers);
}

/// Commits wait for a standby without a limit of the database's.
#[test]
fn a_standby_that_is_away_holds_no_write_for_ever() {
    let (runtime, server) = (runtime(), TestPostgres::start());
    let options = Options {
        connections: 4,
        write_within: Duration::from_secs(1),
        ..Options::new(server.create_database())
    };
    let (store, table) = runtime.block_on(async {
        let store = PostgresStore::open(options, Arc::new(SystemClock), Arc::new(SystemRandom));
        let store = store.await.expect("the store opens");
        let table = common::table(&store).await;
        (store, table)
    });
    let insert = |row: &str| {
        let key = key("p", row);
        let insert = command(table, &key, Condition::Absent, Write::Put(number(1)));
        runtime.block_on(async { outcome(store.commit(Batch::of(insert)).await) })
    };
    let waiting = || {
        let sql = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
        server.execute("postgres", sql).parse::<usize>().expect("a number")
    };
    assert_eq!(insert("before"), Outcome::Done);
    // In force once the checkpointer has read it, which it has before the next checkpoint.
    let away = "ALTER SYSTEM SET synchronous_standby_names = 'nobody'; SELECT pg_reload_conf()";
    server.execute("postgres", away);
    server.execute("postgres", "CHECKPOINT");
    let began = Instant::now();
    assert_eq!(insert("first"), Outcome::Unknown);
    assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
    for row in 0..6 {
        let began = Instant::now();
        assert_ne!(insert(&format!("later {row}")), Outcome::Done);
        assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
    }
    let read = runtime.block_on(store.get(table, &key("p", "before")));
    assert!(read.expect("reads go on").is_some());
    assert!(store.ready().is_err(), "it says that it takes no writes");
    assert!(waiting() <= 8, "{} connections wait for the standby", waiting());
    let back = "ALTER SYSTEM RESET synchronous_standby_names; SELECT pg_reload_conf()";
    server.execute("postgres", back);
    let tries = AtomicUsize::new(0);
    wait_until("writes succeed", RECOVERY, || {
        insert(&format!("after {}", tries.fetch_add(1, Ordering::SeqCst))) == Outcome::Done
    });
    wait_until("nobody waits", RECOVERY, || waiting() == 0);
    wait_until("it is ready", RECOVERY, || store.ready().is_ok());
    let first = runtime.block_on(store.get(table, &key("p", "first")));
    assert!(first.expect("reads go on").is_some(), "the database had committed it");
    runtime.block_on(store.close()).expect("it closes");
}

/// What is asked of a database that may hang.
struct Asking {
    store: PostgresStore,
    account: AccountId,
    table: TableId,
    queue: QueueId,
    turn: AtomicUsize,
}

impl Asking {
    async fn new(options: Options) -> Self {
        let store = PostgresStore::open(options, Arc::new(SystemClock), Arc::new(SystemRandom));
        let store = store.await.expect("the store opens");
        let account = common::account(&store).await;
        let table = store.create_table(account, &name("Things"), Placement::default()).await;
        let queue = "jobs".parse().expect("a legal name");
        let queue = store.create_queue(account, &queue, Vec::new()).await.expect("it is new").id;
        let table = table.expect("the table is new").id;
        Self { store, account, table, queue, turn: AtomicUsize::new(0) }
    }

    /// Requests of every kind at once, none of which may wait for ever.
    async fn ask(&self) -> [Outcome; 7] {
        let Self { store, account, table, queue, turn } = self;
        let turn = turn.fetch_add(1, Ordering::SeqCst).to_string();
        let key = key("p", &turn);
        let insert = command(*table, &key, Condition::Absent, Write::Put(number(1)));
        let name = name(&format!("Table{turn}"));
        let asked = async {
            tokio::join!(
                store.get(*table, &key),
                store.scan(*table, scan_all()),
                store.tables(*account, None, 10),
                store.peek(*queue, 1),
                store.accounts(),
                store.commit(Batch::of(insert)),
                store.create_table(*account, &name, Placement::default()),
            )
        };
        let answers = tokio::time::timeout(2 * PATIENCE, asked).await;
        let (get, scan, tables, peek, accounts, insert, create) =
            answers.expect("no request waits for ever");
        let outcomes = [
            outcome(get),
            outcome(scan),
            outcome(tables),
            outcome(peek),
            outcome(accounts),
            outcome(insert),
            outcome(create),
        ];
        assert!(!outcomes[..5].contains(&Outcome::Unknown), "{outcomes:?}");
        outcomes
    }

    /// Asks until everything is done.
    async fn ask_until_done(&self) {
        let began = Instant::now();
        loop {
            let outcomes = self.ask().await;
            if outcomes == [Outcome::Done; 7] {
                return;
            }
            assert!(began.elapsed() < 6 * RECOVERY, "{outcomes:?}");
        }
    }
}

/// A process that is stopped, as one whose disk hangs, takes what is sent to it and does not answer: no limit of the database
/// nor of the network ends that.
#[test]
fn a_database_that_hangs_holds_no_request_for_ever() {
    let (runtime, server) = (runtime(), TestPostgres::start());
    let limit = Duration::from_secs(1);
    let options = Options {
        connections: 4,
        read_within: limit,
        write_within: limit,
        ..Options::new(server.create_database())
    };
    let lines = |text: String| text.lines().map(|line| line.trim().to_owned()).collect();
    runtime.block_on(async {
        let asking = Asking::new(options).await;
        asking.ask_until_done().await;
        // All connections but those of the lease, which may hold a lock just then.
        let sql = "SELECT pid FROM pg_stat_activity WHERE application_name = 'rowhouse' \
                   AND query NOT LIKE '%rowhouse.servers%' AND query NOT LIKE '%rowhouse.catalogue%'";
        let some = Stopped::new(lines(server.execute("postgres", sql)));
        // On others, for nobody gets one again that did not answer.
        asking.ask_until_done().await;
        drop(some);
        let parent = server.pid().to_string();
        let first = Stopped::new(vec![parent.clone()]);
        let children = process::Command::new("ps").args(["-o", "pid=", "--ppid", &parent]).output();
        let children = String::from_utf8(children.expect("ps can be run").stdout);
        let all = Stopped::new(lines(children.expect("numbers are ASCII")));
        for _ in 0..2 {
            let outcomes = asking.ask().await;
            assert!(!outcomes.contains(&Outcome::Done), "{outcomes:?}");
        }
        assert!(asking.store.ready().is_err(), "it says so");
        drop((all, first));
        asking.ask_until_done().await;
        asking.store.close().await.expect("it closes");
    });
}

/// A lone statement may have been committed where the work was done; a transaction had not come to its commit, and a
/// read leaves nothing.
#[test]
fn what_the_database_gives_up_is_unknown_only_if_it_may_have_been_committed() {
    let url = TestPostgres::shared().create_database();
    common::run(async {
        let separator = if url.contains('?') { '&' } else { '?' };
        let impatient = format!("{url}{separator}options=-c%20statement_timeout%3D2s");
        let store = common::open(&impatient).await;
        let table = common::table(&*store).await;
        let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls)
            .await
            .expect("the database can be reached");
        let connection = tokio::spawn(connection);
        let lock = "BEGIN; LOCK TABLE rowhouse.entities IN ACCESS EXCLUSIVE MODE";
        client.batch_execute(lock).await.expect("nobody holds it");
        let (one, two) = (key("p", "1"), key("p", "2"));
        let put = |key, condition| command(table, key, condition, Write::Put(number(1)));
        let mixed = vec![put(&one, Condition::Absent), put(&two, Condition::Any)];
        let (single, mixed, read) = tokio::join!(
            store.commit(Batch::of(put(&one, Condition::Absent))),
            store.commit(Batch::new(mixed)),
            store.get(table, &one),
        );
        assert_eq!(outcome(single), Outcome::Unknown);
        assert_eq!(outcome(mixed), Outcome::Nothing);
        assert_eq!(outcome(read), Outcome::Nothing);
        drop(client);
        connection.await.expect("it ends").expect("it ends well");
        store.close().await.expect("it closes");
    });
}

/// Whatever of it is switched off, an answered write could be lost.
#[test]
fn a_database_that_answers_before_it_syncs_is_refused() {
    let server = TestPostgres::start();
    let url = server.create_database();
    let open = || {
        let options = Options::new(url.clone());
        PostgresStore::open(options, Arc::new(SystemClock), Arc::new(SystemRandom))
    };
    let setting = "synchronous_commit";
    for (value, refused) in [("off", true), ("local", false)] {
        let sql = format!("ALTER DATABASE {} SET {setting} = {value}", database(&url));
        server.execute("postgres", &sql);
        let refusal = common::run(async { open().await.err() });
        let by =
            |error: &OpenError| matches!(error, OpenError::NotDurable(name) if *name == setting);
        assert_eq!(refusal.as_ref().is_some_and(by), refused, "{refusal:?}");
    }
}

/// The database says itself that it does not know whether a statement was completed.
#[test]
fn a_completion_that_the_database_does_not_know_is_unknown() {
    common::run(async {
        let url = TestPostgres::shared().create_database();
        let store = common::open(&url).await;
        let table = common::table(&*store).await;
        let trigger = "CREATE FUNCTION doubt() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN RAISE EXCEPTION 'nobody knows' USING ERRCODE = '40003'; END $$;
            CREATE TRIGGER doubt BEFORE INSERT ON rowhouse.entities
            FOR EACH ROW EXECUTE FUNCTION doubt()";
        TestPostgres::shared().execute(database(&url), trigger);
        let insert = command(table, &key("p", "r"), Condition::Absent, Write::Put(number(1)));
        assert_eq!(outcome(store.commit(Batch::of(insert)).await), Outcome::Unknown);
    });
}
