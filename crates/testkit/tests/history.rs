//! Concurrent clients on few keys, with kills in between: everything that they saw has an explanation.
//!
//! Eight clients read, query, insert, replace, merge, delete and run batches on a few rows of a few
//! partitions, with and without tags, so that they get in each other's way all the time. The server is killed
//! several times; what was under way may have happened or not. `rowhouse_testkit::history` then looks for an
//! order that explains every answer. In the end the history is falsified in ways that a broken server would
//! show, to see that the checker notices in a history of this size too.
//!
//! `ROWHOUSE_HISTORY_ROUNDS` says how many times the server is killed.

use rowhouse_env::{Random, SeededRandom};
use rowhouse_testkit::history::{
    Answer, Call, Change, Condition, Record, Refusal, Row, Version, Write, check,
};
use rowhouse_testkit::{
    Client, Operation, Response, TestServer, count_from, encode, entity_path, seed,
};
use rowhouse_types::{Etag, Timestamp};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const TABLE: &str = "History";
const ROUNDS: usize = 20;
const ROUND: Duration = Duration::from_secs(1);
const CLIENTS: usize = 8;
const PARTITIONS: u64 = 4;
const ROWS: u64 = 5;
/// Falsified histories of each kind.
const FALSIFIED: usize = 3;

/// Numbers that order everything: taken before sending and after receiving.
type Time = AtomicU64;

fn tick(time: &Time) -> u64 {
    time.fetch_add(1, Ordering::SeqCst)
}

fn timestamp(tag: &str) -> Timestamp {
    let tag: Etag = tag.parse().expect("a tag of an entity");
    tag.timestamp().expect("a tag is a time")
}

fn version(value: &Value) -> Version {
    let tag = timestamp(value["odata.etag"].as_str().expect("an entity has a tag"));
    Version { n: value["n"].as_u64(), merged: value["merged"].as_u64(), tag }
}

fn keys(partition: usize, row: Row) -> (String, String) {
    (format!("p{partition}"), format!("r{row}"))
}

/// One client: what it asked, what it was told, and the tags that it remembers.
struct Witness {
    number: usize,
    random: SeededRandom,
    tags: HashMap<(usize, Row), Timestamp>,
    records: Vec<Record>,
    writes: u64,
}

impl Witness {
    fn new(number: usize, seed: u64) -> Self {
        let random = SeededRandom::new(seed.wrapping_add(1 + number as u64));
        Self { number, random, tags: HashMap::new(), records: Vec::new(), writes: 0 }
    }

    fn draw(&self, below: u64) -> u64 {
        let mut bytes = [0; 8];
        self.random.fill(&mut bytes);
        u64::from_le_bytes(bytes) % below
    }

    fn row(&self) -> Row {
        Row::try_from(self.draw(ROWS)).expect("a few rows")
    }

    /// Asks until there is no answer. When that request ended is for the caller to say.
    fn run(&mut self, mut client: Client, time: &Time) {
        loop {
            let partition = usize::try_from(self.draw(PARTITIONS)).expect("a few partitions");
            let call = self.call(partition);
            let began = tick(time);
            let answer = ask(&mut client, partition, &call);
            let ended = tick(time);
            let unanswered = answer.is_none();
            let answer = answer.unwrap_or(Answer::Nothing);
            self.remember(partition, &call, &answer);
            let client = self.number;
            self.records.push(Record { client, partition, began, ended, call, answer });
            if unanswered {
                return;
            }
        }
    }

    fn call(&mut self, partition: usize) -> Call {
        match self.draw(20) {
            0..6 => Call::Read(self.row()),
            6..10 => Call::Query,
            10..17 => {
                let row = self.row();
                Call::Write(vec![self.write(partition, row)])
            }
            _ => {
                let first = self.draw(ROWS);
                let count = 2 + self.draw(ROWS - 1);
                let rows =
                    (0..count).map(|step| Row::try_from((first + step) % ROWS).expect("few"));
                Call::Write(rows.map(|row| self.write(partition, row)).collect())
            }
        }
    }

    fn write(&mut self, partition: usize, row: Row) -> Write {
        self.writes += 1;
        let id = self.writes * CLIENTS as u64 + self.number as u64;
        let known = self.tags.get(&(partition, row)).map(|tag| Condition::Tag(*tag));
        let strict = known.unwrap_or(Condition::Any);
        let change = match self.draw(12) {
            0 => Change::Insert,
            1..4 => Change::Replace(Condition::Upsert),
            4..6 => Change::Merge(Condition::Upsert),
            6..8 => Change::Replace(strict),
            8..10 => Change::Merge(strict),
            10 => Change::Delete(strict),
            _ => Change::Delete(Condition::Any),
        };
        Write { row, id, change }
    }

    fn remember(&mut self, partition: usize, call: &Call, answer: &Answer) {
        match (call, answer) {
            (Call::Read(row), Answer::Read(Some(version))) => {
                self.tags.insert((partition, *row), version.tag);
            }
            (Call::Query, Answer::Query(rows)) => {
                let tags = rows.iter().map(|(row, version)| ((partition, *row), version.tag));
                self.tags.extend(tags);
            }
            (Call::Write(writes), Answer::Done(tags)) => {
                for (write, tag) in writes.iter().zip(tags) {
                    self.tags.extend(tag.map(|tag| ((partition, write.row), tag)));
                }
            }
            _ => {}
        }
    }
}

/// Asks the server; none if it did not answer.
fn ask(client: &mut Client, partition: usize, call: &Call) -> Option<Answer> {
    match call {
        Call::Read(row) => {
            let (partition, row) = keys(partition, *row);
            let path = entity_path(TABLE, &partition, &row);
            let response = client.try_request("GET", &path, &[], b"").ok()?;
            Some(Answer::Read(match response.status {
                200 => Some(version(&response.json())),
                404 => None,
                _ => panic!("{}: {}", response.status, response.text()),
            }))
        }
        Call::Query => {
            let filter = encode(&format!("PartitionKey eq '{}'", keys(partition, 0).0));
            let path = format!("{TABLE}()?$filter={filter}");
            let response = client.try_request("GET", &path, &[], b"").ok()?;
            assert_eq!(response.status, 200, "{}", response.text());
            assert!(response.header("x-ms-continuation-NextPartitionKey").is_none(), "one page");
            let page = response.json();
            let row = |value: &Value| {
                let key = value["RowKey"].as_str().and_then(|key| key.strip_prefix('r'));
                (key.and_then(|key| key.parse().ok()).expect("a row of ours"), version(value))
            };
            let entities = page["value"].as_array().expect("a page has a list");
            Some(Answer::Query(entities.iter().map(row).collect()))
        }
        Call::Write(writes) => {
            let operations: Vec<_> =
                writes.iter().map(|write| operation(partition, write)).collect();
            if let [operation] = operations.as_slice() {
                let response = client.send(operation).ok()?;
                if response.status == 204 {
                    return Some(Answer::Done(vec![response.header("etag").map(timestamp)]));
                }
                return Some(Answer::Refused(refusal(response.status, &response)));
            }
            let answer = client.batch(&operations).ok()?;
            if answer.succeeded() {
                assert_eq!(answer.parts.len(), operations.len());
                let tag = |tag: &Option<String>| tag.as_deref().map(timestamp);
                return Some(Answer::Done(
                    answer.parts.iter().map(|part| tag(&part.etag)).collect(),
                ));
            }
            let status = answer.parts.first().map_or(answer.response.status, |part| part.status);
            Some(Answer::Refused(refusal(status, &answer.response)))
        }
    }
}

fn refusal(status: u16, response: &Response) -> Refusal {
    match status {
        404 => Refusal::Missing,
        409 => Refusal::Exists,
        412 => Refusal::Changed,
        _ => panic!("{status}: {}", response.text()),
    }
}

fn operation(partition: usize, write: &Write) -> Operation {
    let (partition, row) = keys(partition, write.row);
    let keys = (partition.as_str(), row.as_str());
    let condition = |condition| match condition {
        Condition::Upsert => None,
        Condition::Any => Some("*".to_owned()),
        Condition::Tag(tag) => Some(Etag::new(tag).to_string()),
    };
    match write.change {
        Change::Insert => {
            let entity = json!({ "PartitionKey": keys.0, "RowKey": keys.1, "n": write.id });
            Operation::insert(TABLE, entity)
        }
        Change::Replace(wanted) => {
            let body = json!({ "n": write.id });
            Operation::replace(TABLE, keys, condition(wanted).as_deref(), body)
        }
        Change::Merge(wanted) => {
            let body = json!({ "merged": write.id });
            Operation::merge(TABLE, keys, condition(wanted).as_deref(), body)
        }
        Change::Delete(wanted) => {
            Operation::delete(TABLE, keys, condition(wanted).as_deref().unwrap_or("*"))
        }
    }
}

#[test]
fn every_history_has_an_explanation() {
    let rounds = count_from("ROWHOUSE_HISTORY_ROUNDS", ROUNDS);
    let seed = seed();
    let chance = SeededRandom::new(seed);
    let mut server = TestServer::start();
    server.client().create_table(TABLE);
    let time = Time::new(0);
    let mut witnesses: Vec<_> = (0..CLIENTS).map(|number| Witness::new(number, seed)).collect();
    for _ in 0..rounds {
        std::thread::scope(|scope| {
            for witness in &mut witnesses {
                let (client, time) = (server.client(), &time);
                scope.spawn(move || witness.run(client, time));
            }
            let mut byte = [0];
            chance.fill(&mut byte);
            std::thread::sleep(ROUND * u32::from(byte[0]) / u32::from(u8::MAX));
            server.kill();
        });
        // The process is gone, so what it had not done by now it will never do.
        for witness in &mut witnesses {
            let last = witness.records.last_mut().expect("at least the one without an answer");
            last.ended = tick(&time);
        }
        server.restart();
    }
    // And what is there in the end is part of the history.
    let mut last = Witness::new(CLIENTS, seed);
    for partition in 0..usize::try_from(PARTITIONS).expect("a few") {
        let began = tick(&time);
        let answer = ask(&mut server.client(), partition, &Call::Query).expect("an answer");
        let ended = tick(&time);
        let (client, call) = (CLIENTS, Call::Query);
        last.records.push(Record { client, partition, began, ended, call, answer });
    }
    witnesses.push(last);
    let records: Vec<Record> = witnesses.into_iter().flat_map(|witness| witness.records).collect();
    let began = Instant::now();
    if let Err(violation) = check(&records) {
        panic!("{violation}");
    }
    let took = began.elapsed();
    let count = |of: fn(&Record) -> bool| records.iter().filter(|record| of(record)).count();
    println!(
        "history: {} requests of {CLIENTS} clients on {PARTITIONS} partitions of {ROWS} rows, {rounds} kills \
         with {} requests unanswered, {} refused: linearizable, no half batch seen, tags only rose; \
         checked in {:.1} s",
        records.len(),
        count(|record| record.answer == Answer::Nothing),
        count(|record| matches!(record.answer, Answer::Refused(_))),
        took.as_secs_f64(),
    );
    assert!(!server.log().contains("panicked"), "nothing panicked");
    let began = Instant::now();
    let noticed = falsify(&records, &chance);
    println!(
        "history: falsified {noticed} times, noticed each time, in {:.1} s",
        began.elapsed().as_secs_f64()
    );
}

/// A way to falsify a record of a history; false if that record does not lend itself to it.
type Lie = fn(&[Record], usize) -> Option<Vec<Record>>;

const LIES: [(&str, Lie); 4] = [
    ("a stale read", stale_read),
    ("half a batch", half_batch),
    ("a tag that goes back", early_tag),
    ("an acknowledged write that was lost", lost_write),
];

/// Tells each kind of lie at a few random places; panics if one is believed.
fn falsify(records: &[Record], chance: &SeededRandom) -> usize {
    let mut noticed = 0;
    for (name, lie) in LIES {
        let mut told = 0;
        for _ in 0..100_000 {
            let mut bytes = [0; 8];
            chance.fill(&mut bytes);
            let index = usize::from_le_bytes(bytes) % records.len();
            let Some(false_records) = lie(records, index) else { continue };
            assert!(check(&false_records).is_err(), "{name} at {index} was not noticed");
            told += 1;
            if told == FALSIFIED {
                break;
            }
        }
        assert_eq!(told, FALSIFIED, "a history of this size has places for {name}");
        noticed += told;
    }
    noticed
}

/// The records of one partition: the others need not be checked again.
fn of_partition(records: &[Record], partition: usize) -> impl Iterator<Item = &Record> {
    records.iter().filter(move |record| record.partition == partition)
}

/// The records of its partition, with another answer in this one.
fn with_answer(records: &[Record], of: &Record, answer: &Answer) -> Vec<Record> {
    let swap = |record: &Record| {
        let mut record = record.clone();
        if record.began == of.began {
            record.answer = answer.clone();
        }
        record
    };
    of_partition(records, of.partition).map(swap).collect()
}

/// A version of a row that had been replaced before a time, by a write that was acknowledged then.
fn outdated(records: &[Record], partition: usize, row: Row, before: u64) -> Option<Version> {
    let mut seen: BTreeMap<Timestamp, Version> = BTreeMap::new();
    let mut latest = None;
    for record in of_partition(records, partition).filter(|record| record.ended < before) {
        match (&record.call, &record.answer) {
            (Call::Read(read), Answer::Read(Some(version))) if *read == row => {
                seen.insert(version.tag, *version);
            }
            (Call::Write(writes), Answer::Done(tags)) => {
                let of_row = writes.iter().zip(tags).filter(|(write, _)| write.row == row);
                latest = latest.max(of_row.filter_map(|(_, tag)| *tag).max());
            }
            _ => {}
        }
    }
    seen.range(..latest?).next_back().map(|(_, version)| *version)
}

fn stale_read(records: &[Record], index: usize) -> Option<Vec<Record>> {
    let record = &records[index];
    let Call::Read(row) = record.call else { return None };
    let old = outdated(records, record.partition, row, record.began)?;
    Some(with_answer(records, record, &Answer::Read(Some(old))))
}

/// Two rows of a snapshot come from one batch: one of them becomes what it was before.
fn half_batch(records: &[Record], index: usize) -> Option<Vec<Record>> {
    let record = &records[index];
    let Answer::Query(rows) = &record.answer else { return None };
    let shares = |version: &Version| rows.values().filter(|other| other.tag == version.tag).count();
    let (row, version) = rows.iter().find(|(_, version)| shares(version) > 1)?;
    let old = outdated(records, record.partition, *row, record.began)?;
    if version.tag <= old.tag {
        return None;
    }
    let mut rows = rows.clone();
    rows.insert(*row, old);
    Some(with_answer(records, record, &Answer::Query(rows)))
}

fn early_tag(records: &[Record], index: usize) -> Option<Vec<Record>> {
    let record = &records[index];
    let Answer::Done(tags) = &record.answer else { return None };
    let [Some(_)] = tags.as_slice() else { return None };
    let earlier =
        of_partition(records, record.partition).filter(|other| other.ended < record.began);
    let earlier = earlier.filter_map(|other| match &other.answer {
        Answer::Done(tags) => tags.iter().flatten().min(),
        _ => None,
    });
    let tag = *earlier.max()?;
    Some(with_answer(records, record, &Answer::Done(vec![Some(tag)])))
}

/// A write that was acknowledged and seen never happened: whoever saw it has no explanation.
fn lost_write(records: &[Record], index: usize) -> Option<Vec<Record>> {
    let record = &records[index];
    let Answer::Done(tags) = &record.answer else { return None };
    let [Some(tag)] = tags.as_slice() else { return None };
    let saw = |other: &Record| match &other.answer {
        Answer::Read(Some(version)) => version.tag == *tag,
        Answer::Query(rows) => rows.values().any(|version| version.tag == *tag),
        _ => false,
    };
    of_partition(records, record.partition).find(|other| saw(other))?;
    let others = of_partition(records, record.partition).filter(|o| o.began != record.began);
    Some(others.cloned().collect())
}
