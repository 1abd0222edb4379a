//! Kill -9 under mixed load, again and again: nothing acknowledged is lost, no batch is half there.
//!
//! Each writer owns a partition and knows what it must hold: what was acknowledged, and, for the one
//! request that was under way when the server died, the state before it and the state after it. Nothing
//! else may be found after the restart. One more entity is shared: everybody counts on it with ETags.

use rowhouse_env::{Random, SeededRandom};
use rowhouse_testkit::{Client, Operation, TestServer, entity_path, seed};
use rowhouse_types::{Etag, Timestamp};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const TABLE: &str = "Killed";
const ROUNDS: usize = 50;
const WRITERS: usize = 4;
const ROWS: u64 = 250;

/// What an entity must look like.
#[derive(Clone, Debug, PartialEq)]
struct Entity {
    n: i64,
    merged: Option<i64>,
    /// Unknown while the answer that would tell it never came.
    tag: Option<Timestamp>,
}

type Rows = BTreeMap<String, Entity>;

struct Writer {
    partition: String,
    random: SeededRandom,
    rows: Rows,
    /// What the rows are if the request under way took effect.
    under_way: Option<Rows>,
    /// The latest tag of all: no later write may have an earlier one.
    last: Timestamp,
    next: i64,
    acknowledged: u64,
    batches: u64,
    counted: u64,
    /// Increments of the shared counter whose answer never came.
    uncertain: u64,
}

fn timestamp(tag: &str) -> Timestamp {
    let tag: Etag = tag.parse().expect("a tag of an entity");
    tag.timestamp().expect("a tag is a time")
}

/// What the server shows of a partition.
fn stored(client: &mut Client, partition: &str) -> Rows {
    let entities = client.query(TABLE, &format!("PartitionKey eq '{partition}'"));
    let entity = |value: &Value| Entity {
        n: value["n"].as_i64().expect("a number"),
        merged: value["merged"].as_i64(),
        tag: value["odata.etag"].as_str().map(timestamp),
    };
    let row = |value: &Value| value["RowKey"].as_str().expect("a key").to_owned();
    entities.iter().map(|value| (row(value), entity(value))).collect()
}

impl Writer {
    fn new(number: usize, seed: u64) -> Self {
        let random = SeededRandom::new(seed.wrapping_add(number as u64));
        Self {
            partition: format!("writer{number}"),
            random,
            rows: Rows::new(),
            under_way: None,
            last: Timestamp::default(),
            next: 0,
            acknowledged: 0,
            batches: 0,
            counted: 0,
            uncertain: 0,
        }
    }

    fn draw(&self, below: u64) -> u64 {
        let mut bytes = [0; 8];
        self.random.fill(&mut bytes);
        u64::from_le_bytes(bytes) % below
    }

    /// Writes until the server is gone.
    fn run(&mut self, mut client: Client, stop: &AtomicBool) {
        while !stop.load(Ordering::SeqCst) {
            let done = match self.draw(10) {
                0 => self.count(&mut client),
                1 | 2 => self.batch(&mut client),
                _ => self.single(&mut client),
            };
            if done.is_none() {
                return;
            }
        }
    }

    /// One operation on a row: what it is depends on whether the row is there.
    fn operation(&mut self, row: &str, rows: &mut Rows) -> Operation {
        self.next += 1;
        let n = self.next;
        let keys = (self.partition.as_str(), row);
        let Some(old) = rows.get(row).cloned() else {
            rows.insert(row.to_owned(), Entity { n, merged: None, tag: None });
            let entity = json!({ "PartitionKey": keys.0, "RowKey": row, "n": n });
            return Operation::insert(TABLE, entity);
        };
        let tag = old.tag.map(|tag| Etag::new(tag).to_string());
        let tag = tag.as_deref().unwrap_or("*");
        match self.draw(4) {
            0 => {
                rows.remove(row);
                Operation::delete(TABLE, keys, tag)
            }
            1 | 2 => {
                rows.insert(row.to_owned(), Entity { merged: Some(n), tag: None, ..old });
                Operation::merge(TABLE, keys, Some(tag), json!({ "merged": n }))
            }
            _ => {
                rows.insert(row.to_owned(), Entity { n, merged: None, tag: None });
                Operation::replace(TABLE, keys, Some(tag), json!({ "n": n }))
            }
        }
    }

    fn single(&mut self, client: &mut Client) -> Option<()> {
        let row = self.draw(ROWS).to_string();
        let mut after = self.rows.clone();
        let operation = self.operation(&row, &mut after);
        self.under_way = Some(after);
        let if_match = operation.if_match.as_deref();
        let none = Value::Null;
        let answer = match operation.method {
            "POST" => client.insert(&operation.path, operation.body.as_ref().unwrap_or(&none)),
            "DELETE" => client.delete(&operation.path, if_match.unwrap_or("*")),
            method => {
                let body = operation.body.as_ref().unwrap_or(&none);
                client.update(method, &operation.path, if_match, body)
            }
        };
        let answer = answer.ok()?;
        assert_eq!(answer.status, 204, "{operation:?}: {}", answer.text());
        self.adopt([(row, answer.header("etag").map(str::to_owned))]);
        Some(())
    }

    fn batch(&mut self, client: &mut Client) -> Option<()> {
        let size = 2 + self.draw(99);
        let mut after = self.rows.clone();
        let mut rows: Vec<String> = (0..size).map(|_| self.draw(ROWS).to_string()).collect();
        rows.sort();
        rows.dedup();
        let operations: Vec<_> = rows.iter().map(|row| self.operation(row, &mut after)).collect();
        self.under_way = Some(after);
        let answer = client.batch(&operations).ok()?;
        assert!(answer.succeeded(), "{}", answer.response.text());
        assert_eq!(answer.parts.len(), operations.len());
        self.adopt(rows.into_iter().zip(answer.parts.into_iter().map(|part| part.etag)));
        self.batches += 1;
        Some(())
    }

    /// The request under way was acknowledged: its state is the one to find, with these tags.
    fn adopt(&mut self, tags: impl IntoIterator<Item = (String, Option<String>)>) {
        self.rows = self.under_way.take().expect("a request was under way");
        let before = self.last;
        for (row, tag) in tags {
            self.acknowledged += 1;
            if let Some(entity) = self.rows.get_mut(&row) {
                let tag = timestamp(&tag.expect("a write answers with a tag"));
                assert!(before < tag, "tags rise: {before} then {tag}");
                entity.tag = Some(tag);
                self.last = self.last.max(tag);
            }
        }
    }

    /// Adds one to the shared counter, if nobody else was quicker.
    fn count(&mut self, client: &mut Client) -> Option<()> {
        let path = entity_path(TABLE, "shared", "counter");
        let found = client.try_request("GET", &path, &[], b"").ok()?;
        assert_eq!(found.status, 200, "{}", found.text());
        let n = found.json()["n"].as_i64().expect("a number");
        match client.update("PUT", &path, Some(found.etag()), &json!({ "n": n + 1 })) {
            Err(_) => {
                self.uncertain += 1;
                None
            }
            Ok(answer) if answer.status == 412 => Some(()),
            Ok(answer) => {
                assert_eq!(answer.status, 204, "{}", answer.text());
                self.counted += 1;
                self.acknowledged += 1;
                Some(())
            }
        }
    }

    /// Compares with what the server has, and takes over which of the two states it is.
    fn verify(&mut self, client: &mut Client, round: usize) {
        let found = stored(client, &self.partition);
        let same = |wanted: &Rows| {
            found.len() == wanted.len()
                && found.iter().zip(wanted).all(|((row, is), (wanted_row, should))| {
                    let tag = match should.tag {
                        Some(tag) => is.tag == Some(tag),
                        None => is.tag > Some(self.last),
                    };
                    row == wanted_row && tag && (is.n, is.merged) == (should.n, should.merged)
                })
        };
        let after = self.under_way.take();
        let fits = same(&self.rows) || after.as_ref().is_some_and(same);
        if !fits {
            let lost: Vec<_> =
                self.rows.iter().filter(|(row, _)| !found.contains_key(*row)).collect();
            let differs: Vec<_> =
                found.iter().filter(|(row, entity)| self.rows.get(*row) != Some(entity)).collect();
            panic!(
                "round {round}, {}: neither the state before nor after the last request.\n\
                 missing: {lost:?}\ndifferent: {differs:?}\nunder way: {}",
                self.partition,
                after.is_some()
            );
        }
        let newest = found.values().filter_map(|entity| entity.tag).max();
        self.last = self.last.max(newest.unwrap_or_default());
        self.rows = found;
    }
}

#[test]
fn fifty_kills_lose_nothing() {
    let seed = seed();
    let chance = SeededRandom::new(seed);
    let mut server = TestServer::start();
    let mut client = server.client();
    client.create_table(TABLE);
    let shared = json!({ "PartitionKey": "shared", "RowKey": "counter", "n": 0 });
    assert_eq!(client.insert(TABLE, &shared).expect("answered").status, 204);
    let mut writers: Vec<_> = (0..WRITERS).map(|number| Writer::new(number, seed)).collect();
    let began = Instant::now();
    let mut slowest = Duration::ZERO;
    for round in 0..ROUNDS {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for writer in &mut writers {
                let (client, stop) = (server.client(), &stop);
                scope.spawn(move || writer.run(client, stop));
            }
            let mut byte = [0; 1];
            chance.fill(&mut byte);
            std::thread::sleep(Duration::from_millis(200 + 2 * u64::from(byte[0])));
            server.kill();
            stop.store(true, Ordering::SeqCst);
        });
        server.restart();
        slowest = slowest.max(server.started_in());
        let mut client = server.client();
        for writer in &mut writers {
            writer.verify(&mut client, round);
        }
        let found = client.get(TABLE, "shared", "counter").json()["n"].as_u64();
        let counted: u64 = writers.iter().map(|writer| writer.counted).sum();
        let uncertain: u64 = writers.iter().map(|writer| writer.uncertain).sum();
        let found = found.expect("a number");
        assert!(
            (counted..=counted + uncertain).contains(&found),
            "round {round}: {counted} increments acknowledged, {uncertain} unknown, {found} found"
        );
    }
    let sum = |of: fn(&Writer) -> u64| writers.iter().map(of).sum::<u64>();
    println!(
        "{ROUNDS} kills, {} operations acknowledged ({} batches, {} increments) by {WRITERS} writers, \
         none lost; {:.1} s, slowest restart {} ms",
        sum(|writer| writer.acknowledged),
        sum(|writer| writer.batches),
        sum(|writer| writer.counted),
        began.elapsed().as_secs_f64(),
        slowest.as_millis(),
    );
    assert!(sum(|writer| writer.acknowledged) > ROUNDS as u64, "there was load");
    assert!(!server.log().contains("panicked"), "nothing panicked");
    assert!(server.stop().success(), "a clean end after all that");
}
