//! Several servers on one database are one store: nothing is lost between them, no batch is seen half, no ETag is
//! given out twice whatever their clocks say, and no server acts on accounts or tables that another one changed.

use crate::common;
use crate::common::{
    account, command, commit, database, key, n, name, number, open, open_at, options, page, put,
    refused, scan_all, table, try_open, write,
};
use rowhouse_env::{Clock, SimulatedClock, SystemClock, SystemRandom};
use rowhouse_store::{
    Account, AccountId, Batch, Command, Condition, Conflict, NewAccount, Page, Placement, Store,
    TableId, Ttl, Write,
};
use rowhouse_store_postgres::{OpenError, Options, PostgresReplica, PostgresStore};
use rowhouse_testkit::TestPostgres;
use rowhouse_types::{AccountName, EntityKey, Etag, Record, StoredPolicy, TableName, Timestamp};
use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// How long the lease of a server lasts, and what a busy machine may add.
const LEASE: Duration = Duration::from_secs(3);
const SLACK: Duration = Duration::from_secs(3);

fn new_database() -> String {
    TestPostgres::shared().create_database()
}

/// So many servers on one new database, with a table.
async fn servers(count: usize) -> (Vec<Arc<PostgresStore>>, TableId) {
    let url = new_database();
    let mut stores = vec![open(&url).await];
    let table = table(&*stores[0]).await;
    while stores.len() < count {
        stores.push(open(&url).await);
    }
    (stores, table)
}

async fn get(store: &PostgresStore, table: TableId, key: &EntityKey) -> Option<Record> {
    store.get(table, key).await.expect("the read succeeds")
}

fn matches(record: &Record) -> Condition {
    Condition::Matches(Etag::new(record.as_ref().timestamp()))
}

/// The rows of a page by RowKey.
fn by_row(page: &Page) -> BTreeMap<String, Record> {
    let rows = page.rows.iter().map(|row| row.expect("a page decodes"));
    rows.map(|row| (row.row.to_owned(), row.record.to_owned())).collect()
}

/// Runs the work on every server, several times at once, and waits for all.
async fn on_each<F: Future<Output = ()> + Send + 'static>(
    stores: &[Arc<PostgresStore>],
    at_once: usize,
    work: impl Fn(Arc<PostgresStore>, usize) -> F,
) {
    let mut tasks = JoinSet::new();
    for worker in 0..stores.len() * at_once {
        tasks.spawn(work(Arc::clone(&stores[worker % stores.len()]), worker));
    }
    while let Some(done) = tasks.join_next().await {
        done.expect("no worker panics");
    }
}

#[test]
fn increments_by_etag_lose_nothing() {
    common::run(async {
        increments(servers(3).await).await;
        increments(skewed_servers().await).await;
    });
}

async fn increments((stores, table): (Vec<Arc<PostgresStore>>, TableId)) {
    const EACH: usize = 15;
    let keys = [key("p", "1"), key("p", "2"), key("q", "1")];
    for key in &keys {
        write(&*stores[0], put(table, key, number(0))).await;
    }
    let shared = keys.clone();
    on_each(&stores, 2, move |store, worker| {
        let keys = shared.clone();
        async move {
            for turn in 0..EACH {
                increment(&store, table, &keys[(turn + worker) % keys.len()]).await;
            }
        }
    })
    .await;
    let mut sum = 0;
    for key in &keys {
        sum += n(&get(&stores[1], table, key).await.expect("it is there"));
    }
    assert_eq!(usize::try_from(sum), Ok(EACH * 2 * stores.len()));
}

/// Reads, adds one and writes under the condition that nobody else has, until it succeeds.
async fn increment(store: &PostgresStore, table: TableId, key: &EntityKey) {
    loop {
        let found = get(store, table, key).await.expect("it is there");
        let new = number(n(&found) + 1);
        let change = if n(&found) % 2 == 0 { Write::Put(new) } else { Write::Merge(new) };
        let done = commit(store, vec![command(table, key, matches(&found), change)]).await;
        match refused(done) {
            Ok(_) => return,
            Err(reason) => assert_eq!(reason, Conflict::ConditionNotMet),
        }
    }
}

/// What the entities that batches move amounts between add up to.
const WHOLE: i64 = 300;

/// Batches move amounts between entities, count themselves, and let a pair of others come and go.
#[test]
fn batches_are_seen_whole_and_in_one_order() {
    common::run(async {
        move_amounts(servers(3).await).await;
        move_amounts(skewed_servers().await).await;
    });
}

async fn move_amounts((stores, table): (Vec<Arc<PostgresStore>>, TableId)) {
    const EACH: usize = 10;
    let mut first = vec![put(table, &key("p", "count"), number(0))];
    for row in ["a", "b", "c"] {
        first.push(put(table, &key("p", row), number(WHOLE / 3)));
    }
    commit(&*stores[0], first).await.expect("the batch succeeds");
    let done = Arc::new(AtomicBool::new(false));
    let reader = tokio::spawn(watch_batches(Arc::clone(&stores[2]), table, Arc::clone(&done)));
    on_each(&stores, 2, |store, worker| async move {
        for turn in 0..EACH {
            transfer(&store, table, worker + turn).await;
        }
    })
    .await;
    done.store(true, Ordering::SeqCst);
    assert!(reader.await.expect("the reader does not panic") > 0);
    let rows = by_row(&page(&*stores[1], table, scan_all()).await);
    check_whole(&rows);
    assert_eq!(usize::try_from(n(&rows["count"])), Ok(EACH * 2 * stores.len()));
}

/// A batch is there as a whole or not at all.
fn check_whole(rows: &BTreeMap<String, Record>) {
    assert_eq!(["a", "b", "c"].map(|row| n(&rows[row])).iter().sum::<i64>(), WHOLE);
    let expected = n(&rows["count"]) % 2 == 1;
    let pair = ["left", "right"].map(|row| rows.contains_key(row));
    assert_eq!(pair, [expected; 2]);
}

async fn watch_batches(store: Arc<PostgresStore>, table: TableId, done: Arc<AtomicBool>) -> usize {
    let (mut seen, mut last) = (0, 0);
    while !done.load(Ordering::SeqCst) {
        let rows = by_row(&page(&*store, table, scan_all()).await);
        check_whole(&rows);
        assert!(last <= n(&rows["count"]), "what was read goes back");
        last = n(&rows["count"]);
        seen += 1;
    }
    seen
}

/// One batch of puts, merges, and inserts or deletes, all under conditions, until it succeeds.
async fn transfer(store: &PostgresStore, table: TableId, turn: usize) {
    loop {
        let rows = by_row(&page(store, table, scan_all()).await);
        let names = ["a", "b", "c"];
        let (from, to) = (names[turn % 3], names[(turn + 1) % 3]);
        let add = |row: &str, amount| {
            (key("p", row), matches(&rows[row]), number(n(&rows[row]) + amount))
        };
        let mut commands = Vec::new();
        for (key, condition, new) in [add(from, -7), add("count", 1)] {
            commands.push(command(table, &key, condition, Write::Put(new)));
        }
        let (key_to, condition, new) = add(to, 7);
        commands.push(command(table, &key_to, condition, Write::Merge(new)));
        for row in ["left", "right"] {
            let (condition, change) = match rows.get(row) {
                Some(found) => (matches(found), Write::Delete),
                None => (Condition::Absent, Write::Put(number(1))),
            };
            commands.push(command(table, &key("p", row), condition, change));
        }
        match refused(commit(store, commands).await) {
            Ok(_) => return,
            Err(reason) => assert_eq!(reason, Conflict::ConditionNotMet),
        }
    }
}

/// Each of two batches deletes what the other one writes, whether or not it is there: whichever is the later one, what
/// the earlier one wrote is gone.
#[test]
fn batches_that_delete_what_is_absent_are_in_one_order() {
    common::run(async {
        let (stores, table) = servers(2).await;
        for round in 0..10 {
            let (a, b) = (key("p", &format!("{round}a")), key("p", &format!("{round}b")));
            let batch = |gone: &EntityKey, new: &EntityKey| {
                let delete = command(table, gone, Condition::Any, Write::Delete);
                vec![delete, put(table, new, number(1))]
            };
            let (one, other) = tokio::join!(
                commit(&*stores[0], batch(&a, &b)),
                commit(&*stores[1], batch(&b, &a))
            );
            one.and(other).expect("both succeed");
            let there = [get(&stores[0], table, &a).await, get(&stores[0], table, &b).await];
            assert_eq!(there.iter().flatten().count(), 1, "round {round}");
        }
    });
}

/// The machine's clock, late or early.
#[derive(Debug)]
struct Skewed(i64);

impl Clock for Skewed {
    fn now(&self) -> Timestamp {
        let ticks = SystemClock.now().ticks().saturating_add_signed(self.0 * 10_000_000);
        Timestamp::from_ticks(ticks).expect("it is some year in between")
    }
}

/// A server whose clock is early, one whose clock is late, and one that is right.
async fn skewed_servers() -> (Vec<Arc<PostgresStore>>, TableId) {
    let url = new_database();
    let mut stores = Vec::new();
    for seconds in [10, -10, 0] {
        stores.push(open_at(&url, Skewed(seconds)).await);
    }
    let table = table(&*stores[0]).await;
    (stores, table)
}

#[test]
fn timestamps_rise_whatever_the_clocks_say() {
    common::run(async {
        let (stores, table) = skewed_servers().await;
        let keys = [key("p", "1"), key("p", "2")];
        let mut last = Timestamp::default();
        for turn in 0..30 {
            let store = &stores[turn % stores.len()];
            let change = if turn % 2 == 0 { Write::Put } else { Write::Merge };
            let commands: Vec<_> = keys[..=turn % 4 / 2]
                .iter()
                .map(|key| command(table, key, Condition::Any, change(number(1))))
                .collect();
            let given = commit(&**store, commands).await.expect("it succeeds").timestamps[0];
            assert!(last < given, "turn {turn}");
            for reader in &stores {
                let found = get(reader, table, &keys[0]).await.expect("it is there");
                assert_eq!(found.as_ref().timestamp(), given, "turn {turn}");
            }
            last = given;
        }
    });
}

#[test]
fn no_etag_is_given_out_twice() {
    common::run(async {
        let (stores, table) = skewed_servers().await;
        let keys = [key("p", "1"), key("p", "2")];
        let given: Arc<Mutex<HashSet<(EntityKey, Timestamp)>>> = Arc::default();
        let tags = Arc::clone(&given);
        on_each(&stores, 2, move |store, worker| {
            let (given, keys) = (Arc::clone(&tags), keys.clone());
            async move {
                for turn in worker..worker + 25 {
                    change_at_random(&store, table, &keys, turn, &given).await;
                }
            }
        })
        .await;
        assert!(given.lock().expect("not poisoned").len() > 50);
    });
}

/// Some write of some of the keys; takes note of the tags that it was given.
async fn change_at_random(
    store: &PostgresStore,
    table: TableId,
    keys: &[EntityKey; 2],
    turn: usize,
    given: &Mutex<HashSet<(EntityKey, Timestamp)>>,
) {
    let key = &keys[turn % 2];
    let (condition, change) = match turn * 7 % 5 {
        0 => (Condition::Absent, Write::Put(number(1))),
        1 => (Condition::Any, Write::Delete),
        2 => (Condition::Any, Write::Merge(number(2))),
        3 => (Condition::Exists, Write::Put(number(3))),
        _ => (Condition::Any, Write::Put(number(4))),
    };
    let mut commands = vec![command(table, key, condition, change)];
    if turn.is_multiple_of(3) {
        commands.push(put(table, &keys[(turn + 1) % 2], number(5)));
    }
    let Ok(committed) = refused(commit(store, commands.clone()).await) else { return };
    for (Command::Entity { key, write, .. }, at) in commands.iter().zip(committed.timestamps) {
        if !matches!(write, Write::Delete) {
            let new = given.lock().expect("not poisoned").insert((key.clone(), at));
            assert!(new, "a tag was given out twice for one entity");
        }
    }
}

async fn find(store: &PostgresStore, account: AccountId, name: &TableName) -> Option<TableId> {
    let found = store.table(account, name).await.expect("the look-up succeeds");
    found.map(|table| table.id)
}

async fn create(store: &PostgresStore, account: AccountId, name: &TableName) -> TableId {
    let created = store.create_table(account, name, Placement::default()).await;
    created.expect("the table is new").id
}

/// What was written and answered, table and RowKey.
type Answered = Mutex<Vec<(TableId, String)>>;

#[test]
fn tables_come_and_go_under_writers() {
    common::run(async {
        for [of_owner, of_other] in [[0, 0], [10, -10], [-10, 10]] {
            let url = new_database();
            let owner = open_at(&url, Skewed(of_owner)).await;
            come_and_go_under_writers(&owner, open_at(&url, Skewed(of_other)).await).await;
        }
    });
}

async fn come_and_go_under_writers(owner: &PostgresStore, other: Arc<PostgresStore>) {
    let account = account(owner).await;
    let name = name("Things");
    let mut current = create(owner, account, &name).await;
    let answered: Arc<Answered> = Arc::default();
    let done = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..3)
        .map(|writer| {
            let (store, answered) = (Arc::clone(&other), Arc::clone(&answered));
            tokio::spawn(write_by_name(store, account, writer, answered, Arc::clone(&done)))
        })
        .collect();
    for _ in 0..4 {
        wait_for_answers(&answered, current).await;
        check_answered(owner, current, &answered).await;
        owner.drop_table(current).await.expect("the table is there");
        assert_eq!(find(&other, account, &name).await, None);
        let late = commit(&*other, vec![put(current, &key("p", "late"), number(1))]).await;
        assert_eq!(refused(late).err(), Some(Conflict::TableNotFound));
        current = create(owner, account, &name).await;
        assert_eq!(find(&other, account, &name).await, Some(current));
    }
    wait_for_answers(&answered, current).await;
    done.store(true, Ordering::SeqCst);
    for writer in writers {
        writer.await.expect("no writer panics");
    }
    check_answered(owner, current, &answered).await;
}

/// Inserts into whatever table has the name.
async fn write_by_name(
    store: Arc<PostgresStore>,
    account: AccountId,
    writer: usize,
    answered: Arc<Answered>,
    done: Arc<AtomicBool>,
) {
    for turn in 0.. {
        if done.load(Ordering::SeqCst) {
            return;
        }
        let Some(table) = find(&store, account, &name("Things")).await else { continue };
        let row = format!("{writer}-{turn}");
        let key = key("p", &row);
        let insert = command(table, &key, Condition::Absent, Write::Put(number(turn)));
        let mut commands = vec![insert];
        if turn % 2 == 0 {
            // Takes a transaction instead of a statement.
            commands.push(command(table, &key, Condition::Exists, Write::Merge(number(turn))));
        }
        match refused(commit(&*store, commands).await) {
            Ok(_) => answered.lock().expect("not poisoned").push((table, row)),
            Err(reason) => assert_eq!(reason, Conflict::TableNotFound),
        }
    }
}

fn answered_in(answered: &Answered, table: TableId) -> Vec<String> {
    let answered = answered.lock().expect("not poisoned");
    answered.iter().filter(|(of, _)| *of == table).map(|(_, row)| row.clone()).collect()
}

async fn wait_for_answers(answered: &Answered, table: TableId) {
    let began = Instant::now();
    while answered_in(answered, table).len() < 20 {
        assert!(began.elapsed() < 10 * SLACK, "the writers do not get on");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Everything that was answered is there.
async fn check_answered(store: &PostgresStore, table: TableId, answered: &Answered) {
    let rows = answered_in(answered, table);
    let there = by_row(&page(store, table, scan_all()).await);
    let lost: Vec<_> = rows.iter().filter(|row| !there.contains_key(*row)).collect();
    assert!(lost.is_empty(), "{lost:?} of {table:?} were lost");
}

#[test]
fn changes_of_tables_and_accounts_are_seen_at_once() {
    common::run(async {
        let url = new_database();
        let stores = [open(&url).await, open(&url).await, open(&url).await];
        let id = account(&*stores[0]).await;
        let (account, table) = ("account".parse().expect("a legal name"), name("Things"));
        let created = create(&stores[0], id, &table).await;
        for turn in 0..4u8 {
            let [changes, others @ ..] = [0, 1, 2].map(|n| &stores[(usize::from(turn) + n) % 3]);
            for store in &stores {
                store.table(id, &table).await.expect("the look-up succeeds");
                store.account(&account).await.expect("the look-up succeeds");
            }
            let policy = StoredPolicy {
                id: format!("policy {turn}").into(),
                start: None,
                expiry: Some(Timestamp::EDM_MIN),
                permission: Some("raud".into()),
            };
            changes.set_policies(created, vec![policy.clone()]).await.expect("it is there");
            for store in others {
                let found = store.table(id, &table).await.expect("the look-up succeeds");
                assert_eq!(found.expect("it is there").policies, std::slice::from_ref(&policy));
            }
            let keys = [Box::from([turn]), Box::from([turn + 1])];
            let found = changes.account(&account).await.expect("the look-up succeeds");
            let version = found.expect("it is there").version;
            changes.set_account_keys(id, version, keys.clone()).await.expect("it is there");
            for store in others {
                let found = store.account(&account).await.expect("the look-up succeeds");
                assert_eq!(found.expect("it is there").keys, keys);
            }
        }
        stores[0].remove_account(id).await.expect("it is there");
        for store in &stores {
            assert!(store.account(&account).await.expect("the look-up succeeds").is_none());
            assert!(find(store, id, &table).await.is_none());
        }
    });
}

/// Nobody can read accounts for a while, and those who ask wait: names that strangers make up are answered without asking.
#[test]
fn made_up_names_of_accounts_cost_no_statement() {
    const LOCKED: &str = "BEGIN; LOCK TABLE rowhouse.accounts IN ACCESS EXCLUSIVE MODE;
        SELECT pg_sleep(6); COMMIT";
    const IS_LOCKED: &str = "SELECT count(*) FROM pg_locks
        WHERE relation = 'rowhouse.accounts'::regclass AND mode = 'AccessExclusiveLock' AND granted";
    common::run(async {
        let url = new_database();
        let store = open(&url).await;
        account(&*store).await;
        let made_up = |number: usize| format!("stranger{number}").parse().expect("a legal name");
        let find = async |number: usize| {
            store.account(&made_up(number)).await.expect("the look-up succeeds")
        };
        assert!(find(0).await.is_none());
        let database = database(&url).to_owned();
        let locking = std::thread::spawn(move || {
            TestPostgres::shared().execute(&database, LOCKED);
        });
        let database = common::database(&url);
        while TestPostgres::shared().execute(database, IS_LOCKED).trim() != "1" {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let began = Instant::now();
        for number in 0..5_000 {
            assert!(find(number).await.is_none());
        }
        assert!(began.elapsed() < Duration::from_secs(3), "{:?}: they wait", began.elapsed());
        assert!(!locking.is_finished(), "nobody could have asked");
        locking.join().expect("no statement fails");
    });
}

/// On every server, though all have just said that there is no account of that name.
#[test]
fn new_accounts_are_strangers_nowhere() {
    common::run(async {
        let url = new_database();
        let stores = [open(&url).await, open(&url).await];
        for turn in 0..12 {
            let name: AccountName = format!("account{turn}").parse().expect("a legal name");
            for store in &stores {
                let found = store.account(&name).await.expect("the look-up succeeds");
                assert!(found.is_none(), "{name}");
            }
            let keys = [Box::from(*b"1"), Box::from(*b"2")];
            let creates = &stores[turn % 2];
            let new = NewAccount { name: name.clone(), keys };
            let id = creates.create_account(new).await.expect("it can be created").id;
            for store in &stores {
                let found = store.account(&name).await.expect("the look-up succeeds");
                assert_eq!(found.map(|account| account.id), Some(id), "{name}");
            }
            if turn % 3 == 0 {
                creates.remove_account(id).await.expect("it is there");
                for store in &stores {
                    let found = store.account(&name).await.expect("the look-up succeeds");
                    assert!(found.is_none(), "{name}");
                }
            }
        }
    });
}

/// A server that neither runs nor ends, as one whose machine sleeps.
struct Sleeper<A, T> {
    asleep: mpsc::Receiver<A>,
    wake: mpsc::Sender<()>,
    thread: std::thread::JoinHandle<T>,
}

impl<A: Send + 'static, T: Send + 'static> Sleeper<A, T> {
    /// Does the work on a runtime of one thread. Where the work sleeps, nothing else runs there.
    fn start<F: Future<Output = T>>(work: impl FnOnce(Bed<A>) -> F + Send + 'static) -> Self {
        let (falls_asleep, asleep) = mpsc::channel();
        let (wake, wakes) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_all().build().expect("a runtime can be made");
            runtime.block_on(work(Bed { falls_asleep, wakes }))
        });
        Self { asleep, wake, thread }
    }

    /// What it says before it sleeps.
    fn wait(&self) -> A {
        self.asleep.recv().expect("the store opens")
    }

    fn wake(&self) {
        self.wake.send(()).expect("the server sleeps");
    }

    fn join(self) -> T {
        self.thread.join().expect("the server does not panic")
    }
}

/// Where a server sleeps.
struct Bed<A> {
    falls_asleep: mpsc::Sender<A>,
    wakes: mpsc::Receiver<()>,
}

impl<A> Bed<A> {
    fn sleep(&self, says: A) {
        self.falls_asleep.send(says).expect("the test waits");
        self.wakes.recv().expect("the test wakes it");
    }
}

/// It holds others up for its lease and no longer; when it goes on, it acts on what they did.
#[test]
fn a_paused_server_holds_nobody_up() {
    let url = new_database();
    let of_sleeper = url.clone();
    let sleeper = Sleeper::start(|bed| async move {
        let store = open(&of_sleeper).await;
        let account = account(&*store).await;
        let table = create(&store, account, &name("Things")).await;
        assert_eq!(find(&store, account, &name("Things")).await, Some(table));
        bed.sleep((account, table));
        let late = commit(&*store, vec![put(table, &key("p", "r"), number(1))]).await;
        assert_eq!(refused(late).err(), Some(Conflict::TableNotFound));
        find(&store, account, &name("Things")).await
    });
    let (account, table) = sleeper.wait();
    let created = common::run(async {
        let store = open(&url).await;
        let began = Instant::now();
        store.drop_table(table).await.expect("it is there");
        let created = create(&store, account, &name("Things")).await;
        assert!(began.elapsed() < LEASE + SLACK, "{:?}", began.elapsed());
        let began = Instant::now();
        let keys = [Box::from(*b"1"), Box::from(*b"2")];
        store.set_account_keys(account, 1, keys).await.expect("it is there");
        assert!(began.elapsed() < SLACK, "it waits again for a lease that has run out");
        created
    });
    sleeper.wake();
    assert_eq!(sleeper.join(), Some(created));
}

/// Writes an entity and deletes it, several times; the Timestamps it had.
async fn come_and_go(store: &PostgresStore, table: TableId) -> Vec<Timestamp> {
    let key = key("p", "r");
    let mut given = Vec::new();
    for turn in 0..20 {
        given.push(write(store, put(table, &key, number(turn))).await);
        write(store, command(table, &key, Condition::Any, Write::Delete)).await;
    }
    given
}

/// A server that slept so long that another one took its place gives out nothing that the other has given out, though
/// the clocks of both stand still.
#[test]
fn a_server_that_lost_its_place_repeats_no_etag() {
    let url = new_database();
    let (now, of_sleeper) = (SystemClock.now(), url.clone());
    let sleeper = Sleeper::start(move |bed| async move {
        let store = open_at(&of_sleeper, SimulatedClock::new(now)).await;
        let table = table(&*store).await;
        let mut given = come_and_go(&store, table).await;
        bed.sleep(table);
        given.extend(come_and_go(&store, table).await);
        // Until it has noticed.
        tokio::time::sleep(Duration::from_secs(1)).await;
        given.extend(come_and_go(&store, table).await);
        given
    });
    let table = sleeper.wait();
    let leases = "SELECT count(*) FROM rowhouse.servers WHERE expires > clock_timestamp()";
    let began = Instant::now();
    while TestPostgres::shared().execute(database(&url), leases) != "0" {
        assert!(began.elapsed() < LEASE + SLACK, "the lease does not run out");
        std::thread::sleep(Duration::from_millis(100));
    }
    let mut given = common::run(async {
        let heir = open_at(&url, SimulatedClock::new(now)).await;
        let mut given = come_and_go(&heir, table).await;
        sleeper.wake();
        given.extend(come_and_go(&heir, table).await);
        given
    });
    given.extend(sleeper.join());
    let distinct: HashSet<_> = given.iter().collect();
    assert_eq!(distinct.len(), given.len());
}

#[test]
fn a_dropped_server_holds_others_up_for_its_lease_only() {
    common::run(async {
        let url = new_database();
        let (store, gone) = (open(&url).await, open(&url).await);
        let table = table(&*store).await;
        drop(gone);
        let began = Instant::now();
        store.set_policies(table, Vec::new()).await.expect("it is there");
        assert!(began.elapsed() < LEASE + SLACK, "{:?}", began.elapsed());
        let leases = "SELECT count(*) FROM rowhouse.servers WHERE expires > clock_timestamp()";
        assert_eq!(TestPostgres::shared().execute(database(&url), leases), "1");
        let began = Instant::now();
        store.drop_table(table).await.expect("it is there");
        assert!(began.elapsed() < SLACK, "{:?}", began.elapsed());
    });
}

#[test]
fn there_are_sixty_four_servers_at_most() {
    common::run(async {
        let url = new_database();
        let mut stores = Vec::new();
        for _ in 0..64 {
            let few = Options { connections: 1, ..options(&url) };
            let store = PostgresStore::open(few, Arc::new(SystemClock), Arc::new(SystemRandom));
            stores.push(store.await.expect("the store opens"));
        }
        let refused = try_open(&url).await.expect_err("there is no place left");
        assert!(matches!(refused, OpenError::TooManyServers), "{refused}");
        assert!(refused.to_string().contains("64 servers"), "{refused}");
        stores[17].close().await.expect("it closes");
        let next = try_open(&url).await.expect("a place is free again");
        assert!(next.ready().is_ok());
    });
}

#[test]
fn servers_that_start_at_once_make_one_schema() {
    common::run(async {
        for _ in 0..2 {
            let url = new_database();
            let (a, b, c) = tokio::join!(try_open(&url), try_open(&url), try_open(&url));
            let stores = [a, b, c].map(|store| store.expect("the store opens"));
            let table = table(&stores[0]).await;
            for (index, store) in stores.iter().enumerate() {
                let key = key("p", &index.to_string());
                store.commit(Batch::of(put(table, &key, number(1)))).await.expect("it is written");
            }
            assert_eq!(page(&stores[1], table, scan_all()).await.rows.len(), 3);
        }
    });
}

#[test]
fn a_newer_schema_is_refused() {
    common::run(async {
        let url = new_database();
        open(&url).await.close().await.expect("it closes");
        let newer = "UPDATE rowhouse.schema_version SET version = version + 1";
        TestPostgres::shared().execute(database(&url), newer);
        let error = try_open(&url).await.expect_err("it is newer");
        let OpenError::Newer { found, known } = error else { panic!("{error}") };
        assert_eq!(found, known + 1);
        let older = "UPDATE rowhouse.schema_version SET version = version - 1";
        TestPostgres::shared().execute(database(&url), older);
        open(&url).await;
    });
}

#[test]
fn a_database_of_another_encoding_is_refused() {
    let server = TestPostgres::shared();
    for encoding in ["LATIN1", "SQL_ASCII"] {
        let name = format!("{}_{}", database(&server.create_database()), encoding.to_lowercase());
        let sql =
            format!("CREATE DATABASE {name} TEMPLATE template0 ENCODING '{encoding}' LOCALE 'C'");
        server.execute("postgres", &sql);
        let error =
            common::run(try_open(&server.url(&name))).expect_err("it cannot hold all texts");
        let OpenError::Encoding(found) = error else { panic!("{error}") };
        assert_eq!(found, encoding);
        server.execute("postgres", &format!("DROP DATABASE {name} WITH (FORCE)"));
    }
}

#[test]
fn a_database_that_does_not_sync_is_refused() {
    common::run(async {
        let url = new_database();
        if TestPostgres::shared().execute(database(&url), "SHOW fsync") == "on" {
            return;
        }
        let durable = Options::new(url);
        let opened = PostgresStore::open(durable, Arc::new(SystemClock), Arc::new(SystemRandom));
        let error = opened.await.expect_err("answered writes may be lost");
        assert!(matches!(error, OpenError::NotDurable("fsync")), "{error}");
    });
}

/// A server whose clock is fourteen minutes ahead neither hides nor removes what expires in ten minutes, and warns.
#[test]
fn a_clock_that_is_ahead_expires_nothing() {
    const ENTITIES: i64 = 100;
    common::run(async {
        let url = new_database();
        let right = open_at(&url, SystemClock).await;
        let ahead = open_at(&url, Skewed(14 * 60)).await;
        let table = table(&*right).await;
        for entity in 0..ENTITIES {
            write(&*right, put(table, &key("p", &entity.to_string()), number(entity))).await;
        }
        let ttl = Ttl { property: None, after: Duration::from_mins(10) };
        right.set_ttl(table, Some(ttl)).await.expect("it can be set");
        for _ in 0..4 {
            for store in [&right, &ahead] {
                let found = page(&**store, table, scan_all()).await;
                assert_eq!(by_row(&found).len(), 100);
                assert!(get(store, table, &key("p", "7")).await.is_some());
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        assert_eq!((right.warning(), right.stats().clock_offset.as_secs()), (None, 0));
        let warning = ahead.warning().expect("its clock is wrong");
        assert!(warning.contains("839 s off") || warning.contains("840 s off"), "{warning}");
        ahead.ready().expect("it serves all the same");
    });
}

/// What has expired by the clock of the database is gone, though the server's own clock is behind; it leaves the removal to others.
#[test]
fn a_clock_that_is_behind_expires_what_the_database_says() {
    common::run(async {
        let url = new_database();
        let behind = open_at(&url, Skewed(-14 * 60)).await;
        let table = table(&*behind).await;
        let gone = key("p", "r");
        write(&*behind, put(table, &gone, number(1))).await;
        let ttl = Ttl { property: None, after: Duration::from_mins(10) };
        behind.set_ttl(table, Some(ttl)).await.expect("it can be set");
        assert!(
            get(&behind, table, &gone).await.is_none(),
            "its Timestamp is fourteen minutes old"
        );
        let count = "SELECT count(*) FROM rowhouse.entities";
        let rows = || TestPostgres::shared().execute(database(&url), count).trim().to_owned();
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_eq!(rows(), "1", "a server with a wrong clock removes nothing");
        let _right = open_at(&url, SystemClock).await;
        let began = Instant::now();
        while rows() != "0" {
            assert!(began.elapsed() < Duration::from_secs(20), "nobody removes it");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
}

/// The secondary endpoint goes by the clock of the database too.
#[test]
fn a_replica_expires_what_the_database_says() {
    common::run(async {
        let url = new_database();
        let ahead = open_at(&url, Skewed(14 * 60)).await;
        let right = open_at(&url, SystemClock).await;
        let table = table(&*right).await;
        let kept = key("p", "r");
        write(&*right, put(table, &kept, number(1))).await;
        let ttl = Ttl { property: None, after: Duration::from_mins(10) };
        right.set_ttl(table, Some(ttl)).await.expect("it can be set");
        let options = options(&url);
        let replica = PostgresReplica::new(&options.url, &options, Arc::new(Skewed(14 * 60)));
        let replica = replica.expect("an address").with_time_of(&ahead);
        assert!(replica.get(table, &kept).await.expect("it is read").is_some());
    });
}

/// Nothing can be written when the last Timestamp is used, and no server is ready, also one that comes later.
#[test]
fn a_database_without_timestamps_is_not_ready() {
    common::run(async {
        let url = new_database();
        let store = open(&url).await;
        let table = table(&*store).await;
        store.ready().expect("it is");
        let last = rowhouse_types::RecordBuilder::new().finish(Timestamp::MAX);
        let restore = command(table, &key("p", "last"), Condition::Any, Write::Restore(last));
        commit(&*store, vec![restore]).await.expect("it is written");
        let reason = store.ready().expect_err("there are none left").to_string();
        assert!(reason.contains("last Timestamp") && !store.has_timestamps(), "{reason}");
        let refused = store.commit(Batch::of(put(table, &key("p", "r"), number(1)))).await;
        assert!(refused.expect_err("nothing is written").to_string().contains("last Timestamp"));
        let other = open(&url).await;
        assert!(other.ready().expect_err("nor there").to_string().contains("last Timestamp"));
    });
}

/// A connection that runs the statements of an older server.
async fn old_server(url: &str) -> tokio_postgres::Client {
    let (client, connection) =
        tokio_postgres::connect(url, tokio_postgres::NoTls).await.expect("the database answers");
    tokio::spawn(connection);
    client
}

/// The statement of commit e1fc941 writes both keys as that server had read them, whatever has become of them since.
#[test]
fn an_older_server_cannot_undo_a_rotation() {
    const OLD: &str =
        "UPDATE rowhouse.accounts SET key1 = $2, key2 = $3, version = version + 1 WHERE id = $1";
    const OLD_CREATE: &str = "INSERT INTO rowhouse.accounts VALUES ($1, $2, $3, $4, $5, 1) ON CONFLICT (name) DO NOTHING";
    const OLD_SETTING: &str = "UPDATE rowhouse.accounts SET version = version + 1 WHERE id = $1";
    common::run(async {
        let url = new_database();
        let store = open(&url).await;
        let old = old_server(&url).await;
        let created = 639_305_133_345_663_008_i64;
        let values: &[&(dyn tokio_postgres::types::ToSql + Sync)] =
            &[&99_i64, &"ofold", &created, &&b"1"[..], &&b"2"[..]];
        old.execute(OLD_CREATE, values).await.expect("an older server creates accounts");
        let of_new = account(&*store).await;
        for id in [of_new, AccountId(99)] {
            let found = async || {
                let all = store.accounts().await.expect("they are listed");
                Account::clone(all.iter().find(|account| account.id == id).expect("it is there"))
            };
            let before = found().await;
            let rotated = [Box::from(*b"rotated"), before.keys[1].clone()];
            let done = store.set_account_keys(id, before.version, rotated.clone()).await;
            done.expect("a new server compares");
            let number = i64::from(id.0);
            let error = old
                .execute(OLD, &[&number, &&*before.keys[0], &&b"other"[..]])
                .await
                .expect_err("the key that was rotated away would be valid again");
            assert_eq!(error.code(), Some(&tokio_postgres::error::SqlState::CHECK_VIOLATION));
            old.execute(OLD_SETTING, &[&number]).await.expect("settings are taken");
            let after = found().await;
            assert_eq!((after.keys, after.version), (rotated.clone(), before.version + 2));
            let again = [rotated[0].clone(), Box::from(*b"again")];
            let done = store.set_account_keys(id, after.version, again.clone()).await;
            done.expect("new servers go on");
            assert_eq!(found().await.keys, again);
        }
    });
}

/// The statements of commit e1fc941 that begin to remove what has expired by the server's own clock.
#[test]
fn an_older_server_removes_nothing() {
    const OLD_START: &str = "INSERT INTO rowhouse.expiring AS x (tid, due) VALUES ($1, now())
    ON CONFLICT (tid) DO UPDATE SET due = now(), pass = x.pass + 1, place_kp = '', place_rest = '',
        earliest = NULL, took_ms = 0";
    const OLD_TAKE: &str = "UPDATE rowhouse.expiring SET due = now() + interval '10 s'
    WHERE tid = (SELECT x.tid FROM rowhouse.expiring x WHERE x.due <= now()
                 ORDER BY x.due LIMIT 1 FOR UPDATE SKIP LOCKED)
    RETURNING tid, pass, place_kp, place_rest, earliest, took_ms";
    const OLD_GO_ON: &str = "UPDATE rowhouse.expiring
    SET due = now(), place_kp = $3, place_rest = $4, earliest = $5, took_ms = $6
    WHERE tid = $1 AND pass = $2";
    const OLD_FINISH: &str = "UPDATE rowhouse.expiring
    SET due = now() + $3 * interval '1 ms', pass = pass + 1, place_kp = '', place_rest = '',
        earliest = NULL, took_ms = 0
    WHERE tid = $1 AND pass = $2";
    const WAITS: &str = "SELECT extract(epoch FROM due - now())::float8, pass
    FROM rowhouse.expiring WHERE tid = $1";
    common::run(async {
        let url = new_database();
        // Its own clock is wrong, so it leaves the removal to others: here to nobody.
        let store = open_at(&url, Skewed(-14 * 60)).await;
        let old = old_server(&url).await;
        let waits = async |tid: i64| {
            let row = old.query_one(WAITS, &[&tid]).await.expect("it is there");
            (row.get::<_, f64>(0), row.get::<_, i64>(1))
        };
        let within = |seconds: f64, least: f64| (least - 30.0..=least + 1.0).contains(&seconds);

        let table = table(&*store).await;
        let tid = i64::try_from(table.0).expect("it is small");
        let ttl = Ttl { property: None, after: Duration::from_mins(10) };
        store.set_ttl(table, Some(ttl)).await.expect("it can be set");
        old.batch_execute("UPDATE rowhouse.expiring SET due = now(), turn = turn + 1")
            .await
            .expect("it is due");
        assert!(old.query(OLD_TAKE, &[]).await.expect("it runs").is_empty(), "it would remove");
        // A step that was under way during the upgrade.
        let gone_on = old
            .execute(OLD_GO_ON, &[&tid, &0_i64, &&b""[..], &&b""[..], &None::<i64>, &0_i64])
            .await;
        assert_eq!(gone_on.expect("it runs"), 0);
        assert!(waits(tid).await.0 <= 0.0, "a new server may take it");

        // The grace period of a minute, for a table that has a TTL and one that had none.
        for tid in [tid, 77] {
            old.execute(OLD_START, &[&tid]).await.expect("an older server sets a TTL");
            let (due, _) = waits(tid).await;
            assert!(within(due, 60.0), "{due} s");
        }
        let (_, pass) = waits(tid).await;
        assert_eq!(pass, 1, "what a server notes for the setting before does nothing");
        old.execute(OLD_FINISH, &[&tid, &pass, &3_600_000_f64]).await.expect("it runs");
        let (due, pass) = waits(tid).await;
        assert!(within(due, 3600.0) && pass == 2, "{due} s, pass {pass}");
    });
}

/// Every change of the catalogue waits for a count of an account's tables, so a server remembers it.
#[test]
fn tables_and_queues_are_not_counted_for_each_new_one() {
    // A scan of the whole table or of an index, whichever the planner likes; what one row takes is far less.
    const READ: &str = "SELECT sum(seq_tup_read + idx_tup_fetch)::bigint FROM pg_stat_user_tables
        WHERE schemaname = 'rowhouse' AND relname IN ('tables', 'queues')";
    const MANY: &str = "INSERT INTO rowhouse.tables (tid, account, folded, name, created)
            SELECT n, 1, 'table' || n, 'Table' || n, 0 FROM generate_series(1001, 3000) n;
        INSERT INTO rowhouse.queues (qid, account, name, created)
            SELECT n, 1, 'queue-' || n, 0 FROM generate_series(1001, 3000) n;
        UPDATE rowhouse.catalogue SET last_table = 3000, last_queue = 3000; ANALYZE";
    const CREATED: i64 = 20;
    common::run(async {
        let url = new_database();
        let stores = [open(&url).await, open(&url).await];
        let account = account(&*stores[0]).await;
        TestPostgres::shared().execute(database(&url), MANY);
        let rows = || -> i64 {
            TestPostgres::shared().execute(database(&url), READ).trim().parse().expect("a number")
        };
        let before = rows();
        for n in 0..CREATED {
            let store = &stores[usize::try_from(n % 2).expect("0 or 1")];
            let (table, placement) = (name(&format!("New{n}")), Placement::default());
            let policies = Vec::new();
            let made =
                store.create_table_with_policies(account, &table, placement, policies, 2020).await;
            made.expect("it may have as many");
            let queue = format!("new-{n}").parse().expect("a name");
            let made = store.create_queue_within(account, &queue, Vec::new(), 2020).await;
            made.expect("it may have as many");
        }
        let (table, queue) = (name("TooMany"), "too-many".parse().expect("a name"));
        let made = stores[0]
            .create_table_with_policies(account, &table, Placement::default(), Vec::new(), 2020)
            .await;
        assert_eq!(refused(made).err(), Some(Conflict::TooManyTables));
        let made = stores[1].create_queue_within(account, &queue, Vec::new(), 2020).await;
        assert_eq!(refused(made).err(), Some(Conflict::TooManyQueues));
        // Backends report what they read once a second, and when they are idle.
        tokio::time::sleep(Duration::from_secs(2)).await;
        for store in &stores {
            store.accounts().await.expect("they are listed");
            store.close().await.expect("it closes");
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        // Each server counts once, and once more where the account is full: not for each of the forty.
        let counts = (rows() - before) / 2000;
        assert!((1..=8).contains(&counts), "about {counts} counts");
    });
}
