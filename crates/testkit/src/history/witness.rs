//! Clients that get in each other's way on a few keys, and remember everything.

use super::{Answer, Call, Change, Condition, Record, Refusal, Row, Version, Write};
use crate::batch::Operation;
use crate::client::{Client, encode, entity_path};
use crate::connection::Response;
use crate::load::Cutoff;
use rowhouse_env::{Random, SeededRandom};
use rowhouse_types::{Etag, Timestamp};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

const TABLE: &str = "History";
/// How many clients there are.
pub const CLIENTS: usize = 8;
/// How many partitions they share.
pub const PARTITIONS: u64 = 4;
/// How many rows each of those has.
pub const ROWS: u64 = 5;

/// All of them, with one time for what they do.
#[derive(Debug)]
pub struct Witnesses {
    time: Time,
    witnesses: Vec<Witness>,
}

impl Witnesses {
    /// Prepares a server that has nothing yet.
    pub fn new(client: &mut Client, seed: u64) -> Self {
        client.create_table(TABLE);
        let witnesses = (0..CLIENTS).map(|number| Witness::new(number, seed)).collect();
        Self { time: Time::new(0), witnesses }
    }

    /// Asks the servers, each client one of them, until they no longer answer; `end` is to see to that.
    pub fn run(&mut self, servers: &[SocketAddr], end: impl FnOnce(&Cutoff)) {
        let cutoff = Cutoff::default();
        std::thread::scope(|scope| {
            for (witness, server) in self.witnesses.iter_mut().zip(servers.iter().cycle()) {
                let (client, time, cutoff) = (Client::new(*server), &self.time, &cutoff);
                scope.spawn(move || witness.run(client, time, cutoff));
            }
            end(&cutoff);
        });
    }

    /// What was not answered and has not happened by now will never happen: whoever would do it is dead.
    pub fn settle(&mut self) {
        for witness in &mut self.witnesses {
            if std::mem::take(&mut witness.is_open)
                && let Some(last) = witness.records.last_mut()
            {
                last.ended = tick(&self.time);
            }
        }
    }

    /// How often a server answered that it had failed.
    pub fn failures(&self) -> u64 {
        self.witnesses.iter().map(|witness| witness.failures).sum()
    }

    /// Everything that was seen, and what there is in the end.
    pub fn into_records(self, client: &mut Client) -> Vec<Record> {
        let mut records: Vec<_> =
            self.witnesses.into_iter().flat_map(|witness| witness.records).collect();
        for partition in 0..usize::try_from(PARTITIONS).expect("a few") {
            let began = tick(&self.time);
            let answer = ask(client, partition, &Call::Query).expect("an answer");
            let ended = tick(&self.time);
            let (client, call) = (CLIENTS, Call::Query);
            records.push(Record { client, partition, began, ended, call, answer });
        }
        records
    }
}

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
#[derive(Debug)]
struct Witness {
    number: usize,
    random: SeededRandom,
    tags: HashMap<(usize, Row), Timestamp>,
    records: Vec<Record>,
    /// The last request has no answer and may still happen.
    is_open: bool,
    writes: u64,
    failures: u64,
}

/// Why there is no answer that says anything.
#[derive(Debug)]
enum Silence {
    /// The connection broke.
    Gone,
    /// The server said that it could not, and that nothing happened.
    Refusal,
    /// The server said that it has failed.
    Failure,
}

impl Witness {
    fn new(number: usize, seed: u64) -> Self {
        let random = SeededRandom::new(seed.wrapping_add(1 + number as u64));
        let (tags, records) = (HashMap::new(), Vec::new());
        Self { number, random, tags, records, is_open: false, writes: 0, failures: 0 }
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
    fn run(&mut self, mut client: Client, time: &Time, cutoff: &Cutoff) {
        while !cutoff.is_rest() {
            let partition = usize::try_from(self.draw(PARTITIONS)).expect("a few partitions");
            let call = self.call(partition);
            let began = tick(time);
            let answer = ask(&mut client, partition, &call);
            let ended = tick(time);
            self.failures += u64::from(matches!(answer, Err(Silence::Refusal | Silence::Failure)));
            if matches!(answer, Err(Silence::Refusal)) {
                return;
            }
            self.is_open = answer.is_err();
            let answer = answer.unwrap_or(Answer::Nothing);
            self.remember(partition, &call, &answer);
            let client = self.number;
            self.records.push(Record { client, partition, began, ended, call, answer });
            if self.is_open {
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

fn ask(client: &mut Client, partition: usize, call: &Call) -> Result<Answer, Silence> {
    match call {
        Call::Read(row) => read(client, partition, *row),
        Call::Query => query(client, partition),
        Call::Write(writes) => {
            let operations: Vec<_> =
                writes.iter().map(|write| operation(partition, write)).collect();
            if let [operation] = operations.as_slice() {
                single(client, operation)
            } else {
                batch(client, &operations)
            }
        }
    }
}

fn read(client: &mut Client, partition: usize, row: Row) -> Result<Answer, Silence> {
    let (partition, row) = keys(partition, row);
    let path = entity_path(TABLE, &partition, &row);
    let response = heard(client.try_request("GET", &path, &[], b""))?;
    Ok(Answer::Read(match response.status {
        200 => Some(version(&response.json())),
        404 => None,
        _ => panic!("{}: {}", response.status, response.text()),
    }))
}

fn query(client: &mut Client, partition: usize) -> Result<Answer, Silence> {
    let filter = encode(&format!("PartitionKey eq '{}'", keys(partition, 0).0));
    let path = format!("{TABLE}()?$filter={filter}");
    let response = heard(client.try_request("GET", &path, &[], b""))?;
    assert_eq!(response.status, 200, "{}", response.text());
    assert!(response.header("x-ms-continuation-NextPartitionKey").is_none(), "one page");
    let page = response.json();
    let row = |value: &Value| {
        let key = value["RowKey"].as_str().and_then(|key| key.strip_prefix('r'));
        (key.and_then(|key| key.parse().ok()).expect("a row of ours"), version(value))
    };
    let entities = page["value"].as_array().expect("a page has a list");
    Ok(Answer::Query(entities.iter().map(row).collect()))
}

fn single(client: &mut Client, operation: &Operation) -> Result<Answer, Silence> {
    let response = heard(client.send(operation))?;
    if response.status == 204 {
        return Ok(Answer::Done(vec![response.header("etag").map(timestamp)]));
    }
    refusal(response.status, &response)
}

fn batch(client: &mut Client, operations: &[Operation]) -> Result<Answer, Silence> {
    let answer = client.batch(operations).map_err(|_| Silence::Gone)?;
    if answer.succeeded() {
        assert_eq!(answer.parts.len(), operations.len());
        let tag = |tag: &Option<String>| tag.as_deref().map(timestamp);
        return Ok(Answer::Done(answer.parts.iter().map(|part| tag(&part.etag)).collect()));
    }
    let status = answer.parts.first().map_or(answer.response.status, |part| part.status);
    refusal(status, &answer.response)
}

/// The answer, unless it says that the server could not.
fn heard(answer: io::Result<Response>) -> Result<Response, Silence> {
    match answer {
        Err(_) => Err(Silence::Gone),
        Ok(response) if response.status >= 500 => Err(failure(response.status)),
        Ok(response) => Ok(response),
    }
}

fn refusal(status: u16, response: &Response) -> Result<Answer, Silence> {
    Ok(Answer::Refused(match status {
        404 => Refusal::Missing,
        409 => Refusal::Exists,
        412 => Refusal::Changed,
        500.. => return Err(failure(status)),
        _ => panic!("{status}: {}", response.text()),
    }))
}

/// With 503 nothing took effect; with anything else nobody knows.
fn failure(status: u16) -> Silence {
    if status == 503 { Silence::Refusal } else { Silence::Failure }
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
