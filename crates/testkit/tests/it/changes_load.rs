//! A consumer of the change feed against everything that may go wrong at once.
//!
//! A hundred writers insert, replace, delete and run batches; the consumer, a process of its own, is killed (SIGKILL) at
//! random and started again, and goes on from the last token that it has kept; the server is killed in between. Afterwards
//! the consumer must have heard of every write that was answered, of none that was not sent, of those of one entity in order, of a batch all
//! in one answer or nothing, and have the same table as a query shows.

use rowhouse_env::{Random, SeededRandom};
use rowhouse_testkit::history::Order;
use rowhouse_testkit::{Client, Operation, TestServer, entity_path, seed};
use rowhouse_types::Timestamp;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const WRITERS: usize = 100;
const KILLS: usize = 3;
const ROUND: Duration = Duration::from_millis(2500);
const TABLE: &str = "Feed";
/// Rows that all writers fight for.
const SHARED_ROWS: u64 = 5;
/// Rows of each writer's own partition.
const OWN_ROWS: u64 = 8;

type Key = (String, String);

/// What a write was to do. Every one that leaves an entity has an id of its own in it.
#[derive(Clone, Debug)]
struct Sent {
    /// The entities that it changes, each with the id it leaves, or none if it is to be deleted.
    effects: BTreeMap<Key, Option<String>>,
    /// Whether the server said that it was done.
    answered: bool,
}

/// Where the server is now, since a restart moves it.
struct Place(Mutex<Option<SocketAddr>>);

impl Place {
    fn get(&self) -> SocketAddr {
        loop {
            if let Some(address) = *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
                return address;
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn set(&self, address: Option<SocketAddr>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = address;
    }
}

fn below(chance: &SeededRandom, limit: u64) -> u64 {
    let mut bytes = [0; 8];
    chance.fill(&mut bytes);
    u64::from_le_bytes(bytes) % limit
}

/// Writes until it is told to stop, and tells everything that it sent.
fn write(index: usize, seed: u64, place: &Place, stop: &AtomicBool) -> Vec<Sent> {
    let chance = SeededRandom::new(seed.wrapping_add(index as u64));
    let own = format!("w{index:03}");
    let (mut sent, mut next) = (Vec::new(), 0);
    let mut client = Client::new(place.get());
    while !stop.load(Ordering::Relaxed) {
        let mut id = || {
            next += 1;
            format!("{own}-{next}")
        };
        let row = below(&chance, OWN_ROWS).to_string();
        let (effects, outcome) = match below(&chance, 10) {
            0..4 => put(&mut client, (own.clone(), row), &id()),
            4..6 => {
                put(&mut client, ("shared".into(), below(&chance, SHARED_ROWS).to_string()), &id())
            }
            6..8 => delete(&mut client, (own.clone(), row)),
            _ => batch(&mut client, &own, 2 + below(&chance, 4), &mut id),
        };
        match outcome {
            Ok(true) => sent.push(Sent { effects, answered: true }),
            Ok(false) => {}
            Err(_) => {
                sent.push(Sent { effects, answered: false });
                client = Client::new(place.get());
            }
        }
    }
    sent
}

type Tried = (BTreeMap<Key, Option<String>>, io::Result<bool>);

fn put(client: &mut Client, key: Key, id: &str) -> Tried {
    let path = entity_path(TABLE, &key.0, &key.1);
    let answer = client.update("PUT", &path, None, &json!({ "id": id }));
    (BTreeMap::from([(key, Some(id.to_owned()))]), done(answer.map(|answer| answer.status)))
}

fn delete(client: &mut Client, key: Key) -> Tried {
    let answer = client.delete(&entity_path(TABLE, &key.0, &key.1), "*");
    (BTreeMap::from([(key, None)]), done(answer.map(|answer| answer.status)))
}

fn batch(client: &mut Client, own: &str, size: u64, id: &mut dyn FnMut() -> String) -> Tried {
    let id = id();
    let keys: Vec<_> = (0..size).map(|row| (own.to_owned(), row.to_string())).collect();
    let replace =
        |key: &Key| Operation::replace(TABLE, (&key.0, &key.1), None, json!({ "id": id }));
    let operations: Vec<_> = keys.iter().map(replace).collect();
    let answer = client.batch(&operations);
    let whole = answer.map(|answer| {
        let worked = answer.parts.len() == operations.len();
        if worked { 204 } else { answer.parts.first().map_or(500, |part| part.status) }
    });
    (keys.into_iter().map(|key| (key, Some(id.clone()))).collect(), done(whole))
}

/// Whether it took effect. A missing entity changed nothing; of an overload nobody knows.
fn done(status: io::Result<u16>) -> io::Result<bool> {
    match status? {
        204 => Ok(true),
        404 => Ok(false),
        503 => Err(io::ErrorKind::WouldBlock.into()),
        status => panic!("a write was answered with {status}"),
    }
}

/// One change as it was heard.
#[derive(Clone, Debug, PartialEq)]
struct Heard {
    sequence: u64,
    key: Key,
    id: Option<String>,
    at: Timestamp,
}

impl Heard {
    fn of(change: &Value) -> Self {
        let entity = &change["entity"];
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        let id = (change["change"] == "put").then(|| text(&entity["id"]));
        Self {
            sequence: text(&change["sequence"]).parse().expect("a number"),
            key: (text(&entity["PartitionKey"]), text(&entity["RowKey"])),
            id,
            at: time(&entity["Timestamp"]),
        }
    }
}

fn time(value: &Value) -> Timestamp {
    Timestamp::parse_iso(value.as_str().expect("a text")).expect("a time")
}

/// The consumer's process, and what it heard by place: a second time must be the same.
struct Consumer {
    directory: TempDir,
    batches: BTreeMap<u64, Vec<Heard>>,
    answers: usize,
    again: usize,
    /// Answers that it was killed in the middle of writing down.
    torn: usize,
    killed: usize,
}

impl Consumer {
    fn new() -> Self {
        Self {
            directory: tempfile::tempdir().expect("a directory can be made"),
            batches: BTreeMap::new(),
            answers: 0,
            again: 0,
            torn: 0,
            killed: 0,
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Where the server is; none while it is down.
    fn find_server(&self, address: Option<SocketAddr>) {
        let text = address.map(|address| address.to_string()).unwrap_or_default();
        fs::write(self.file("address.new"), text).expect("the file can be written");
        fs::rename(self.file("address.new"), self.file("address")).expect("it is there");
    }

    fn start(&self) -> Child {
        let mut command = Command::new(env!("CARGO_BIN_EXE_feed-consumer"));
        command.arg(self.directory.path()).arg(TABLE).stdin(Stdio::null());
        command.spawn().expect("it can be started")
    }

    /// Kills it and starts it again until everything is written, then lets it come to the end. How often it was killed.
    fn torment(&self, seed: u64, over: &AtomicBool) -> usize {
        let chance = SeededRandom::new(seed);
        let mut killed = 0;
        while !over.load(Ordering::Relaxed) {
            let mut process = self.start();
            thread::sleep(Duration::from_millis(20 + below(&chance, 400)));
            let ended = process.try_wait().expect("it can be asked");
            assert!(ended.is_none(), "it ended by itself: {ended:?}");
            process.kill().expect("it can be killed");
            process.wait().expect("it ends");
            killed += 1;
        }
        fs::write(self.file("over"), "").expect("the file can be written");
        assert!(self.start().wait().expect("it ends").success());
        killed
    }

    /// Reads what all its processes have heard.
    fn read(&mut self) {
        let heard = fs::read(self.file("heard")).expect("it has heard something");
        for line in heard.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            match serde_json::from_slice(line) {
                Ok(answer) => self.take(&answer),
                Err(_) => self.torn += 1,
            }
        }
        assert!(self.torn <= self.killed, "{} torn, killed {} times", self.torn, self.killed);
    }

    fn take(&mut self, answer: &Value) {
        let changes: Vec<_> =
            answer["value"].as_array().expect("a list").iter().map(Heard::of).collect();
        self.answers += 1;
        let sequences: Vec<_> = changes.iter().map(|change| change.sequence).collect();
        assert!(sequences.is_sorted(), "in the order of the commits: {sequences:?}");
        for batch in changes.chunk_by(|one, other| one.sequence == other.sequence) {
            let known = self.batches.insert(batch[0].sequence, batch.to_vec());
            if let Some(known) = known {
                self.again += 1;
                assert_eq!(known, batch, "told the same and whole the second time");
            }
        }
    }
}

#[test]
fn every_commit_is_heard_and_none_is_invented() {
    let server = TestServer::start_with(&["--keep-changes", "1h"]);
    hear(server, Order::OfStore);
}

/// There writes that were at work at the same time are in order for each entity, and a batch need not be told in one piece.
#[cfg(unix)]
#[test]
fn the_same_on_postgresql() {
    let postgres = rowhouse_testkit::TestPostgres::start();
    let url = postgres.create_database();
    hear(TestServer::start_with_store_and(&url, &["--keep-changes", "1h"]), Order::OfEntity);
}

fn hear(mut server: TestServer, order: Order) {
    let seed = seed();
    server.client().create_table(TABLE);
    let place = Place(Mutex::new(Some(server.address())));
    let (stop, over) = (AtomicBool::new(false), AtomicBool::new(false));
    let began = Instant::now();
    let mut consumer = Consumer::new();
    consumer.find_server(Some(server.address()));
    let (sent, killed) = thread::scope(|scope| {
        let tormentor = scope.spawn(|| consumer.torment(seed, &over));
        let writers: Vec<_> = (0..WRITERS)
            .map(|index| {
                let (place, stop) = (&place, &stop);
                scope.spawn(move || write(index, seed, place, stop))
            })
            .collect();
        for _ in 0..KILLS {
            thread::sleep(ROUND);
            place.set(None);
            consumer.find_server(None);
            server.kill();
            server.restart();
            place.set(Some(server.address()));
            consumer.find_server(Some(server.address()));
        }
        thread::sleep(ROUND);
        stop.store(true, Ordering::Relaxed);
        let sent: Vec<Vec<Sent>> =
            writers.into_iter().map(|writer| writer.join().expect("no panic")).collect();
        over.store(true, Ordering::Relaxed);
        (sent, tormentor.join().expect("no panic"))
    });
    consumer.killed = killed;
    consumer.read();
    let entities = server.client().query(TABLE, "");
    verify(&sent, &consumer, &entities, order);
    assert!(!server.log().contains("panicked"), "nothing panicked");
    let answered = sent.iter().flatten().filter(|sent| sent.answered).count();
    println!(
        "{WRITERS} writers, {answered} answered writes, {} commits heard in {} answers, {} heard again, {} cut off, consumer killed {} \
         times, server {KILLS} times: none lost, none invented, order kept; {:.0} s",
        consumer.batches.len(),
        consumer.answers,
        consumer.again,
        consumer.torn,
        consumer.killed,
        began.elapsed().as_secs_f64(),
    );
}

/// Compares what was sent, what was heard and what is there.
fn verify(sent: &[Vec<Sent>], consumer: &Consumer, entities: &[Value], order: Order) {
    let mut times: HashMap<&Key, Timestamp> = HashMap::new();
    let mut state: BTreeMap<&Key, &Heard> = BTreeMap::new();
    let mut by_id: HashMap<&str, BTreeSet<&Key>> = HashMap::new();
    let mut deletes: HashMap<&Key, usize> = HashMap::new();
    for batch in consumer.batches.values() {
        for heard in batch {
            let before = times.insert(&heard.key, heard.at);
            assert!(before.is_none_or(|before| before < heard.at), "{heard:?} after {before:?}");
            if let Some(id) = &heard.id {
                state.insert(&heard.key, heard);
                assert!(by_id.entry(id).or_default().insert(&heard.key), "{heard:?} happened once");
            } else {
                let gone = state.remove(&heard.key);
                assert!(gone.is_some(), "only what was there is deleted: {heard:?}");
                *deletes.entry(&heard.key).or_default() += 1;
                if order == Order::OfEntity {
                    times.remove(&heard.key);
                }
            }
            assert_eq!(heard.id, batch[0].id, "a batch is of one writer's making");
        }
    }
    verify_sent(sent, &by_id, &deletes);
    if order == Order::OfStore {
        verify_batches(sent, consumer);
    }
    verify_order(sent, consumer, order);
    let shown: BTreeMap<Key, (String, Timestamp)> = entities
        .iter()
        .map(|entity| {
            let text = |name: &str| entity[name].as_str().expect("a text").to_owned();
            ((text("PartitionKey"), text("RowKey")), (text("id"), time(&entity["Timestamp"])))
        })
        .collect();
    let followed: BTreeMap<Key, (String, Timestamp)> = state
        .iter()
        .map(|(key, heard)| {
            let id = heard.id.clone().expect("it was put");
            ((*key).clone(), (id, heard.at))
        })
        .collect();
    assert_eq!(followed, shown, "who applies the changes has the table");
}

/// Every answered write was heard, whole; what was heard was sent.
fn verify_sent(
    sent: &[Vec<Sent>],
    by_id: &HashMap<&str, BTreeSet<&Key>>,
    deletes: &HashMap<&Key, usize>,
) {
    let mut known = 0;
    let (mut least, mut most): (HashMap<&Key, usize>, HashMap<&Key, usize>) = Default::default();
    for write in sent.iter().flatten() {
        let id = write.effects.values().next().expect("a write does something").as_deref();
        let Some(id) = id else {
            for key in write.effects.keys() {
                *least.entry(key).or_default() += usize::from(write.answered);
                *most.entry(key).or_default() += 1;
            }
            continue;
        };
        let Some(heard) = by_id.get(id) else {
            assert!(!write.answered, "{write:?} was never heard of");
            continue;
        };
        known += 1;
        assert!(heard.iter().copied().eq(write.effects.keys()), "{write:?} was heard as {heard:?}");
    }
    assert_eq!(known, by_id.len(), "nothing is invented");
    for (key, count) in deletes {
        let most = most.get(key).copied().unwrap_or(0);
        assert!(*count <= most, "{key:?} was deleted {most} times at most, heard {count} times");
    }
    for (key, least) in least {
        let count = deletes.get(key).copied().unwrap_or(0);
        assert!(least <= count, "{key:?} was deleted {least} times, heard {count} times");
    }
}

/// What was written at once has one place, and nothing else has it.
fn verify_batches(sent: &[Vec<Sent>], consumer: &Consumer) {
    let sizes: HashMap<&str, usize> = sent
        .iter()
        .flatten()
        .filter_map(|sent| Some((sent.effects.values().next()?.as_deref()?, sent.effects.len())))
        .collect();
    for batch in consumer.batches.values() {
        let size = batch[0].id.as_deref().map_or(1, |id| sizes[id]);
        assert_eq!(batch.len(), size, "{batch:?}");
    }
}

/// What one writer did one after the other, in whatever partitions, was heard one after the other. A write that was not answered
/// because the server was killed may still be under way in a database.
fn verify_order(sent: &[Vec<Sent>], consumer: &Consumer, order: Order) {
    let mut places: HashMap<&str, (u64, u64)> = HashMap::new();
    for heard in consumer.batches.values().flatten() {
        if let Some(id) = &heard.id {
            let place = heard.sequence;
            let (first, last) = places.entry(id).or_insert((place, place));
            (*first, *last) = (place.min(*first), place.max(*last));
        }
    }
    let mut compared = 0;
    for writer in sent {
        let mut before = None;
        for write in writer {
            let id = write.effects.values().next().expect("a write does something").as_deref();
            let Some(&(first, last)) = id.and_then(|id| places.get(id)) else { continue };
            assert!(before < Some(first), "in the order in which it wrote: {write:?}");
            if write.answered || order == Order::OfStore {
                compared += usize::from(before.is_some());
                before = Some(last);
            }
        }
    }
    assert!(WRITERS < compared, "there is something to compare");
}
