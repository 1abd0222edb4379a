//! Queues on one database: one clock for all servers whatever their own say, every message to one consumer at a time, and
//! changes of messages in the transactions of entities.

use crate::common;
use crate::common::{account, command, database, key, number, open, open_at, options};
use rowhouse_env::{Clock, Random, SimulatedClock, SystemClock, SystemRandom};
use rowhouse_store::{
    AccountId, Batch, Committed, Condition, Conflict, Message, MessageAction, MessageCommand,
    Placement, QueueId, Store, StoreError, Write,
};
use rowhouse_store_postgres::{Options, PostgresReplica, PostgresStore, QueueClock, Url};
use rowhouse_testkit::TestPostgres;
use rowhouse_types::{Guid, QueueName, Timestamp};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

fn queue_name(text: &str) -> QueueName {
    text.parse().expect("a legal name")
}

async fn queue(store: &dyn Store, account: AccountId, name: &str) -> QueueId {
    let created = store.create_queue(account, &queue_name(name), Vec::new()).await;
    created.expect("the queue is new").id
}

fn of(queue: QueueId, action: MessageAction) -> MessageCommand {
    MessageCommand { queue, action }
}

fn put(text: &str) -> MessageAction {
    put_for(text, 0, None)
}

fn put_for(text: &str, hide_seconds: u64, live_seconds: Option<u64>) -> MessageAction {
    MessageAction::Put { id: SystemRandom.guid(), text: text.into(), hide_seconds, live_seconds }
}

fn take(limit: usize, hide_seconds: u64) -> MessageAction {
    MessageAction::Take { limit, hide_seconds }
}

fn delete(message: &Message) -> MessageAction {
    MessageAction::Delete { id: message.id, receipt: message.receipt }
}

fn update(message: &Message, hide_seconds: u64, text: Option<&str>) -> MessageAction {
    let (id, receipt, text) = (message.id, message.receipt, text.map(Into::into));
    MessageAction::Update { id, receipt, hide_seconds, text }
}

async fn commit(
    store: &dyn Store,
    messages: Vec<MessageCommand>,
) -> Result<Committed, (usize, Conflict)> {
    rejected(store.commit(Batch { commands: Vec::new(), messages }).await)
}

fn rejected<T>(result: Result<T, StoreError>) -> Result<T, (usize, Conflict)> {
    match result {
        Ok(done) => Ok(done),
        Err(StoreError::Rejected { index, reason }) => Err((index, reason)),
        Err(other) => panic!("neither done nor refused: {other:?}"),
    }
}

/// What one action tells; refused is an error.
async fn act(
    store: &dyn Store,
    queue: QueueId,
    action: MessageAction,
) -> Result<Vec<Message>, Conflict> {
    let done = commit(store, vec![of(queue, action)]).await;
    done.map(|done| done.messages).map_err(|(_, reason)| reason)
}

fn texts(messages: &[Message]) -> Vec<&str> {
    messages.iter().map(|message| &*message.text).collect()
}

fn start() -> Timestamp {
    Timestamp::parse_iso("2026-01-01T00:00:00Z").expect("a date")
}

/// A store whose time is that of a clock that the test moves.
async fn simulated() -> (Arc<PostgresStore>, Arc<SimulatedClock>, AccountId, QueueId, String) {
    let url = TestPostgres::shared().create_database();
    let clock = Arc::new(SimulatedClock::new(start()));
    let options = Options { queue_clock: QueueClock::Server, ..options(&url) };
    let of_store = Arc::clone(&clock) as Arc<dyn Clock>;
    let store = PostgresStore::open(options, of_store, Arc::new(SystemRandom)).await;
    let store = Arc::new(store.expect("the store opens"));
    let account = account(&*store).await;
    let queue = queue(&*store, account, "jobs").await;
    (store, clock, account, queue, url)
}

#[test]
fn a_message_lives_as_the_contract_says() {
    common::run(async {
        let (store, clock, _, queue, _) = simulated().await;
        let store = &*store;
        let first = act(store, queue, put("one")).await.expect("put");
        assert_eq!(texts(&first), ["one"]);
        assert_eq!((first[0].taken, first[0].expires), (0, Timestamp::MAX));
        assert_eq!(first[0].inserted, first[0].visible);
        act(store, queue, put_for("two", 0, Some(60))).await.expect("put");
        act(store, queue, put_for("later", 5, None)).await.expect("put");
        assert_eq!(store.message_count(queue).await.unwrap(), 3);
        assert_eq!(texts(&store.peek(queue, 10).await.unwrap()), ["one", "two"]);

        let taken = act(store, queue, take(1, 30)).await.expect("taken");
        assert_eq!(texts(&taken), ["one"]);
        assert_eq!(taken[0].taken, 1);
        assert!(taken[0].receipt > first[0].receipt);
        assert_eq!(taken[0].visible, taken[0].receipt.plus_seconds(30));
        assert_eq!(act(store, queue, delete(&first[0])).await, Err(Conflict::MessageNotFound));
        let more = act(store, queue, take(10, 3)).await.expect("taken");
        assert_eq!(texts(&more), ["two"]);
        assert_eq!(act(store, queue, take(10, 30)).await, Ok(vec![]));

        // What comes back is behind what has been visible for longer.
        clock.advance(Duration::from_secs(6));
        assert_eq!(texts(&store.peek(queue, 10).await.unwrap()), ["two", "later"]);
        let updated = act(store, queue, update(&taken[0], 0, Some("uno"))).await.expect("updated");
        assert_eq!((texts(&updated), updated[0].taken), (vec!["uno"], 1));
        let unchanged = act(store, queue, update(&updated[0], 0, None)).await.expect("updated");
        assert_eq!(texts(&unchanged), ["uno"]);
        assert_eq!(act(store, queue, delete(&updated[0])).await, Err(Conflict::MessageNotFound));
        let all = act(store, queue, take(10, 30)).await.expect("taken");
        assert_eq!(texts(&all), ["two", "later", "uno"]);
        assert_eq!(all.iter().map(|message| message.taken).collect::<Vec<_>>(), [2, 1, 2]);

        // Expired: gone, whatever its receipt.
        clock.advance(Duration::from_mins(1));
        assert_eq!(act(store, queue, delete(&all[0])).await, Err(Conflict::MessageNotFound));
        assert_eq!(
            act(store, queue, update(&all[0], 1, None)).await,
            Err(Conflict::MessageNotFound)
        );
        assert_eq!(store.message_count(queue).await.unwrap(), 2);
        act(store, queue, delete(&all[1])).await.expect("deleted, though it is visible again");
        assert_eq!(texts(&store.peek(queue, 10).await.unwrap()), ["uno"]);
        act(store, queue, MessageAction::Clear).await.expect("cleared");
        assert_eq!(store.message_count(queue).await.unwrap(), 0);
    });
}

#[test]
fn any_text_and_any_time_is_kept() {
    common::run(async {
        let (store, _, account, queue, _) = simulated().await;
        let long = "\u{10FFFF}é\0".repeat(8 * 1024);
        for text in ["", "\0", "a\0b\u{1}c", "名前 \u{FFFF}", &long] {
            act(&*store, queue, put(text)).await.expect("put");
            let found = act(&*store, queue, take(1, u64::MAX)).await.expect("taken");
            assert_eq!(texts(&found), [text]);
            assert_eq!(found[0].visible, Timestamp::MAX);
            act(&*store, queue, delete(&found[0])).await.expect("deleted");
        }
        let told = act(&*store, queue, put_for("x", u64::MAX, Some(u64::MAX))).await.expect("put");
        assert_eq!((told[0].visible, told[0].expires), (Timestamp::MAX, Timestamp::MAX));
        let metadata: Vec<(Box<str>, Box<str>)> =
            vec![("b".into(), "\0\u{1}".into()), ("a".into(), "ü".into()), ("b".into(), "".into())];
        store.set_metadata(queue, metadata.clone()).await.unwrap();
        let found = store.queue(account, &queue_name("jobs")).await.unwrap().expect("there");
        assert_eq!(found.metadata, metadata);
    });
}

/// In one statement and in a transaction, of one queue and of several, with entities and without.
#[test]
fn a_batch_is_all_or_none() {
    common::run(async {
        let (store, _, account, jobs, _) = simulated().await;
        let store = &*store;
        let other = queue(store, account, "other").await;
        let puts = (0..250).map(|n| of(jobs, put(&n.to_string()))).collect();
        let told = commit(store, puts).await.expect("put").messages;
        assert_eq!(told.len(), 250);
        let order: Vec<_> = (0..250).map(|n| n.to_string()).collect();
        let peeked = store.peek(jobs, 1000).await.unwrap();
        assert_eq!(texts(&peeked), order);
        assert_eq!(peeked, told);

        let taken = act(store, jobs, take(2, 30)).await.expect("taken");
        let mixed = vec![
            of(jobs, delete(&taken[0])),
            of(other, put("a")),
            of(other, take(5, 30)),
            of(jobs, update(&taken[1], 0, Some("again"))),
        ];
        let told = commit(store, mixed.clone()).await.expect("done").messages;
        assert_eq!(texts(&told), ["a", "a", "again"]);
        assert_eq!(commit(store, mixed).await.err(), Some((0, Conflict::MessageNotFound)));
        assert_eq!(store.message_count(other).await.unwrap(), 1);
        let gone = QueueId(4711);
        let failing = vec![of(other, put("b")), of(gone, put("c"))];
        assert_eq!(commit(store, failing).await.err(), Some((1, Conflict::QueueNotFound)));
        assert_eq!(store.message_count(other).await.unwrap(), 1);

        let things = common::name("Things");
        let table = store.create_table(account, &things, Placement::default()).await;
        let table = table.expect("the table is new").id;
        let key = key("p", "r");
        let insert = command(table, &key, Condition::Absent, Write::Put(number(1)));
        let batch = |messages| Batch { commands: vec![insert.clone()], messages };
        let refused = batch(vec![of(other, put("d")), of(jobs, delete(&taken[0]))]);
        assert_eq!(
            rejected(store.commit(refused).await).err(),
            Some((2, Conflict::MessageNotFound))
        );
        assert_eq!(store.get(table, &key).await.unwrap(), None);
        let done = store.commit(batch(vec![of(other, put("d"))])).await.expect("done");
        assert_eq!((done.timestamps.len(), texts(&done.messages)), (1, vec!["d"]));
        assert!(store.get(table, &key).await.unwrap().is_some());
        let again = batch(vec![of(other, put("e"))]);
        assert_eq!(rejected(store.commit(again).await).err(), Some((0, Conflict::EntityExists)));
        assert_eq!(store.message_count(other).await.unwrap(), 2);
    });
}

#[test]
fn a_dropped_queue_is_gone_at_once() {
    common::run(async {
        let (store, _, account, jobs, url) = simulated().await;
        let store = &*store;
        let told = act(store, jobs, put("one")).await.expect("put").remove(0);
        let second = queue(store, account, "second").await;
        act(store, second, put("two")).await.expect("put");
        store.drop_queue(jobs).await.expect("dropped");
        for action in [
            put("x"),
            take(1, 0),
            update(&told, 0, None),
            delete(&told),
            MessageAction::Clear,
            MessageAction::Restore(told.clone()),
        ] {
            let outcome = act(store, jobs, action.clone()).await;
            assert_eq!(outcome, Err(Conflict::QueueNotFound), "{action:?}");
        }
        for refused in [
            rejected(store.peek(jobs, 1).await).err(),
            rejected(store.message_count(jobs).await).err(),
            rejected(store.drop_queue(jobs).await).err(),
            rejected(store.set_metadata(jobs, Vec::new()).await).err(),
            rejected(store.set_queue_policies(jobs, Vec::new()).await).err(),
        ] {
            assert_eq!(refused, Some((0, Conflict::QueueNotFound)));
        }
        assert_eq!(store.queue(account, &queue_name("jobs")).await.unwrap(), None);
        let again = queue(store, account, "jobs").await;
        assert_ne!(again, jobs);
        assert_eq!(store.message_count(again).await.unwrap(), 0);
        store.remove_account(account).await.expect("removed");
        assert_eq!(act(store, second, take(1, 0)).await, Err(Conflict::QueueNotFound));
        // What is left of them is swept.
        let left = "SELECT count(*) FROM rowhouse.messages";
        wait_until("rows are swept", || {
            TestPostgres::shared().execute(database(&url), left).trim() == "0"
        })
        .await;
    });
}

async fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(20), "{what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[test]
fn a_snapshot_shows_the_messages_that_there_were() {
    common::run(async {
        let (store, clock, account, jobs, url) = simulated().await;
        let store = &*store;
        for n in 0..10 {
            let live = (n % 5 == 0).then_some(10);
            act(store, jobs, put_for(&format!("{n:05}"), n % 3, live)).await.expect("put");
        }
        clock.advance(Duration::from_secs(20));
        let expected: HashMap<Guid, Message> = store
            .peek(jobs, 100)
            .await
            .unwrap()
            .into_iter()
            .map(|message| (message.id, message))
            .collect();
        assert_eq!(expected.len(), 8);
        let snapshot = store.snapshot().await.unwrap();
        act(store, jobs, MessageAction::Clear).await.expect("cleared");
        store.drop_queue(jobs).await.expect("dropped");
        let queues = snapshot.queues(account).await.unwrap();
        assert_eq!(queues.len(), 1);
        let mut saved = Vec::new();
        for (limit, max_bytes) in [(1, 1000), (3, 1000), (100, 11), (100, 1), (8, 1000)] {
            let (mut found, mut from) = (Vec::new(), None);
            loop {
                let page = snapshot.messages(jobs, from, limit, max_bytes).await.unwrap();
                assert!(!page.messages.is_empty() && page.messages.len() <= limit);
                assert!(page.messages.len() <= max_bytes.div_ceil(5));
                found.extend(page.messages);
                from = page.next;
                if from.is_none() {
                    break;
                }
            }
            assert_eq!(found.len(), expected.len());
            assert!(found.iter().all(|message| expected[&message.id] == *message));
            saved = found;
        }
        assert_eq!(
            rejected(snapshot.messages(QueueId(99), None, 1, 1).await).err(),
            Some((0, Conflict::QueueNotFound))
        );
        drop(snapshot);
        // Brought back, in place of what is there.
        let copy = queue(store, account, "copy").await;
        let mut ahead = saved[3].clone();
        ahead.receipt = ahead.receipt.plus_seconds(3600);
        ahead.taken = 7;
        let restore = |message: &Message| of(copy, MessageAction::Restore(message.clone()));
        let mut restored: Vec<_> = saved.iter().map(restore).collect();
        restored.push(restore(&ahead));
        commit(store, restored).await.expect("restored");
        let found = store.peek(copy, 100).await.unwrap();
        assert_eq!(found.len(), saved.len());
        assert!(found.contains(&ahead) && !found.contains(&saved[3]));
        let both = vec![restore(&saved[5]), of(copy, take(100, 0))];
        let taken = commit(store, both).await.expect("restored and taken").messages;
        let again = taken.iter().find(|message| message.id == saved[5].id).expect("it was taken");
        assert!(again.receipt > saved[5].receipt, "taking changes what was just restored");
        let next = act(store, copy, put("next")).await.expect("put");
        assert!(next[0].receipt > ahead.receipt, "whatever is given out is later");
        let left = "SELECT count(*) FROM rowhouse.messages WHERE expires < 3000000000000000000";
        wait_until("what has expired is swept", || {
            TestPostgres::shared().execute(database(&url), left).trim() == "0"
        })
        .await;
    });
}

#[test]
fn a_replica_shows_queues_and_gives_nothing_out() {
    common::run(async {
        let url = TestPostgres::shared().create_database();
        let store = open(&url).await;
        let account = account(&*store).await;
        let jobs = queue(&*store, account, "jobs").await;
        let told = act(&*store, jobs, put("one")).await.expect("put");
        let replica =
            PostgresReplica::new(&Url::new(&url), &options(&url), Arc::new(SystemClock)).unwrap();
        assert_eq!(replica.peek(jobs, 5).await.unwrap(), told);
        assert_eq!(replica.message_count(jobs).await.unwrap(), 1);
        let found = replica.queue(account, &queue_name("jobs")).await.unwrap();
        assert_eq!(found.expect("there").id, jobs);
        assert_eq!(replica.queues(account, "", 10).await.unwrap().len(), 1);
        let taken = replica.commit(Batch::of_message(jobs, take(1, 1))).await;
        assert!(matches!(taken, Err(StoreError::Unavailable(_))));
    });
}

/// A clock that is wrong by so much.
#[derive(Debug)]
struct Skewed(i64);

impl Clock for Skewed {
    fn now(&self) -> Timestamp {
        let ticks = SystemClock.now().ticks().saturating_add_signed(self.0 * 10_000_000);
        Timestamp::from_ticks(ticks).expect("within the years")
    }
}

/// When it was asked for, when it came, and with which receipt.
type Given = (Instant, Instant, Timestamp);

/// Three servers whose clocks differ by twenty seconds give every message to one consumer at a time, each for as long as it
/// was told.
#[test]
fn servers_with_wrong_clocks_share_a_queue() {
    const MESSAGES: usize = 120;
    const HIDE: u64 = 3;
    common::run(async {
        let url = TestPostgres::shared().create_database();
        let mut stores = Vec::new();
        for skew in [0, 10, -10] {
            stores.push(open_at(&url, Skewed(skew)).await);
        }
        let account = account(&*stores[0]).await;
        let jobs = queue(&*stores[0], account, "jobs").await;
        for n in 0..MESSAGES {
            act(&*stores[n % 3], jobs, put(&n.to_string())).await.expect("put");
        }
        // Each is given out twice: the first consumer lets it go.
        let given: Arc<Mutex<HashMap<Guid, Vec<Given>>>> = Arc::default();
        let done: Arc<Mutex<HashSet<Guid>>> = Arc::default();
        let mut consumers = JoinSet::new();
        for consumer in 0..9 {
            let store = Arc::clone(&stores[consumer % 3]);
            let (given, done) = (Arc::clone(&given), Arc::clone(&done));
            consumers.spawn(async move {
                let began = Instant::now();
                while done.lock().unwrap().len() < MESSAGES {
                    assert!(began.elapsed() < Duration::from_mins(1), "messages are missing");
                    let asked = Instant::now();
                    let found = act(&*store, jobs, take(1 + consumer % 4, HIDE)).await.unwrap();
                    let answered = Instant::now();
                    if found.is_empty() {
                        tokio::time::sleep(Duration::from_millis(20)).await;
                    }
                    for message in found {
                        let times = {
                            let mut given = given.lock().unwrap();
                            let times = given.entry(message.id).or_default();
                            times.push((asked, answered, message.receipt));
                            assert_eq!(usize::try_from(message.taken), Ok(times.len()));
                            times.len()
                        };
                        if times == 2 {
                            act(&*store, jobs, delete(&message)).await.expect("it is ours");
                            done.lock().unwrap().insert(message.id);
                        }
                    }
                }
            });
        }
        while let Some(consumer) = consumers.join_next().await {
            consumer.expect("no consumer panics");
        }
        assert_eq!(stores[2].message_count(jobs).await.unwrap(), 0);
        let given = given.lock().unwrap();
        assert_eq!(given.len(), MESSAGES);
        for times in given.values() {
            let [(asked, _, first), (_, again, second)] = times[..] else {
                panic!("given out {} times", times.len());
            };
            assert!(second > first, "receipts rise");
            // It was hidden from when the first request came in at the earliest.
            assert!(again - asked >= Duration::from_secs(HIDE), "given out twice within its time");
        }
    });
}

/// Consumers, each with its own server, that are killed with messages in hand: those come back, none is lost.
#[test]
fn messages_of_a_server_that_dies_come_back() {
    const MESSAGES: usize = 60;
    common::run(async {
        let url = TestPostgres::shared().create_database();
        let store = open(&url).await;
        let account = account(&*store).await;
        let jobs = queue(&*store, account, "jobs").await;
        let puts = (0..MESSAGES).map(|n| of(jobs, put(&n.to_string()))).collect();
        commit(&*store, puts).await.expect("put");
        let other = open(&url).await;
        let dying = tokio::spawn(async move {
            loop {
                for message in act(&*other, jobs, take(3, 2)).await.expect("taken") {
                    if message.text.ends_with('0') {
                        act(&*other, jobs, delete(&message)).await.expect("deleted");
                    }
                }
            }
        });
        tokio::time::sleep(Duration::from_millis(300)).await;
        // Dropped in the middle of whatever it does, with its connections.
        dying.abort();
        let _ = dying.await;
        let mut seen = BTreeMap::new();
        let began = Instant::now();
        while store.message_count(jobs).await.unwrap() > 0 {
            assert!(began.elapsed() < Duration::from_secs(30), "messages do not come back");
            for message in act(&*store, jobs, take(32, 30)).await.expect("taken") {
                act(&*store, jobs, delete(&message)).await.expect("deleted");
                assert_eq!(seen.insert(message.text.clone(), message.taken), None);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        // Only those that the other one deleted are missing.
        for n in (0..MESSAGES).filter(|n| n % 10 != 0) {
            assert!(seen.contains_key(&*n.to_string()), "{n} is lost");
        }
    });
}

/// A connection that is lost while a message is being taken: it was taken or not, and comes back either way.
#[test]
fn a_connection_that_is_lost_loses_no_message() {
    common::run(async {
        let server = TestPostgres::shared();
        let url = server.create_database();
        let store = open(&url).await;
        let account = account(&*store).await;
        let jobs = queue(&*store, account, "jobs").await;
        let puts = (0..40).map(|n| of(jobs, put(&n.to_string()))).collect();
        commit(&*store, puts).await.expect("put");
        let mut takers = JoinSet::new();
        for _ in 0..4 {
            let store = Arc::clone(&store);
            takers.spawn(async move {
                for _ in 0..40 {
                    match store.commit(Batch::of_message(jobs, take(2, 1))).await {
                        Ok(_) | Err(StoreError::OutcomeUnknown(_) | StoreError::Busy) => {}
                        Err(other) => panic!("{other:?}"),
                    }
                }
            });
        }
        for _ in 0..5 {
            tokio::time::sleep(Duration::from_millis(30)).await;
            let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                WHERE datname = current_database() AND application_name = 'rowhouse' AND pid <> pg_backend_pid()";
            server.execute(database(&url), sql);
        }
        while let Some(taker) = takers.join_next().await {
            taker.expect("no taker panics");
        }
        let began = Instant::now();
        let mut found = HashSet::new();
        while found.len() < 40 {
            assert!(began.elapsed() < Duration::from_secs(20), "{} came back", found.len());
            match store.commit(Batch::of_message(jobs, take(32, 60))).await {
                Ok(done) => found.extend(done.messages.into_iter().map(|message| message.text)),
                Err(error) => {
                    assert!(matches!(error, StoreError::OutcomeUnknown(_) | StoreError::Busy));
                }
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
}

/// Consumers never wait for each other, nor for a transaction that has a message in hand.
#[test]
fn takers_skip_what_others_have_in_hand() {
    common::run(async {
        let url = TestPostgres::shared().create_database();
        let store = open(&url).await;
        let account = account(&*store).await;
        let jobs = queue(&*store, account, "jobs").await;
        commit(&*store, vec![of(jobs, put("a")), of(jobs, put("b"))]).await.expect("put");
        let (client, connection) =
            tokio_postgres::connect(&url, tokio_postgres::NoTls).await.expect("connected");
        tokio::spawn(connection);
        let lock = "BEGIN; SELECT FROM rowhouse.messages WHERE text = 'a' FOR UPDATE";
        client.batch_execute(lock).await.expect("locked");
        let began = Instant::now();
        let found = act(&*store, jobs, take(5, 30)).await.expect("taken");
        assert_eq!(texts(&found), ["b"]);
        assert!(began.elapsed() < Duration::from_secs(2));
        client.batch_execute("ROLLBACK").await.expect("undone");
        assert_eq!(texts(&act(&*store, jobs, take(5, 30)).await.expect("taken")), ["a"]);
    });
}
