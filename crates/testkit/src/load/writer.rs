//! One writer, its partition, and what it was promised.

use super::{COUNTER, Cutoff, Losses, TABLE, Tally};
use crate::batch::Operation;
use crate::client::{Client, entity_path};
use crate::connection::Response;
use crate::history::Order;
use rowhouse_env::{Random, SeededRandom};
use rowhouse_types::{Etag, Timestamp};
use serde_json::json;
use std::collections::{BTreeMap, HashSet};
use std::io;
use std::time::{Duration, Instant};

const ROWS: u64 = 250;
const BATCH_MAX: u64 = 100;
/// Long enough that some records need overflow pages and some the side table of the engine.
const FILLER_MAX: i64 = 2000;

/// What an entity must look like.
#[derive(Clone, Debug, PartialEq)]
struct Entity {
    n: Option<i64>,
    merged: Option<i64>,
    /// Unknown while the answer that would tell it never came.
    tag: Option<Timestamp>,
}

type Rows = BTreeMap<String, Entity>;

/// Writes to a partition of its own, one request at a time.
#[derive(Debug)]
pub(super) struct Writer {
    partition: String,
    random: SeededRandom,
    rows: Rows,
    /// What the rows are if the request under way took effect.
    under_way: Option<Rows>,
    order: Order,
    /// The latest tag of all: with one server no later write may have an earlier one.
    pub(super) latest: Timestamp,
    /// Every tag that a row is known to have had.
    given: HashSet<(String, Timestamp)>,
    next: i64,
    /// Increments of the shared counter since it was last looked at.
    pub(super) counted: u64,
    /// Such increments whose answer never came.
    pub(super) uncertain: u64,
    /// Tags of the increments that were acknowledged.
    pub(super) counts: Vec<Timestamp>,
    pub(super) tally: Tally,
}

/// A connection that is deaf from the cutoff on.
struct Line<'a> {
    client: Client,
    cutoff: &'a Cutoff,
    slowest: Duration,
}

impl Line<'_> {
    /// The answer, if it came and came in time.
    fn ask<T>(&mut self, request: impl FnOnce(&mut Client) -> io::Result<T>) -> Option<T> {
        let began = Instant::now();
        let answer = request(&mut self.client);
        self.slowest = self.slowest.max(began.elapsed());
        let answer = answer.ok()?;
        (!self.cutoff.is_over()).then_some(answer)
    }
}

/// Text that follows from a number, so that a damaged record shows.
fn filler(n: i64) -> String {
    let letter = char::from(b'a' + u8::try_from(n % 26).unwrap_or_default());
    letter.to_string().repeat(usize::try_from(n * 97 % FILLER_MAX).unwrap_or_default())
}

fn timestamp(tag: &str) -> Timestamp {
    let tag: Etag = tag.parse().expect("a tag of an entity");
    tag.timestamp().expect("a tag is a time")
}

fn tag_text(tag: Option<Timestamp>) -> String {
    tag.map_or_else(|| "*".to_owned(), |tag| Etag::new(tag).to_string())
}

/// What the server shows of a partition, or why it shows nothing.
fn stored(client: &mut Client, partition: &str) -> Result<Rows, String> {
    let mut rows = Rows::new();
    for value in client.try_query(TABLE, &format!("PartitionKey eq '{partition}'"))? {
        let n = value["n"].as_i64();
        let text = n.map(filler);
        if value["text"].as_str() != text.as_deref() {
            return Err(format!("the text of {} is damaged", value["RowKey"]));
        }
        let tag = value["odata.etag"].as_str().map(timestamp);
        let row = value["RowKey"].as_str().expect("a key").to_owned();
        rows.insert(row, Entity { n, merged: value["merged"].as_i64(), tag });
    }
    Ok(rows)
}

impl Writer {
    pub(super) fn new(number: usize, seed: u64, order: Order) -> Self {
        Self {
            partition: format!("writer{number}"),
            random: SeededRandom::new(seed.wrapping_add(number as u64)),
            rows: Rows::new(),
            under_way: None,
            order,
            latest: Timestamp::default(),
            given: HashSet::new(),
            next: 0,
            counted: 0,
            uncertain: 0,
            counts: Vec::new(),
            tally: Tally::default(),
        }
    }

    fn draw(&self, below: u64) -> u64 {
        let mut bytes = [0; 8];
        self.random.fill(&mut bytes);
        u64::from_le_bytes(bytes) % below
    }

    /// Writes until the server does not answer as a healthy one would.
    pub(super) fn run(&mut self, client: Client, cutoff: &Cutoff) {
        let mut line = Line { client, cutoff, slowest: Duration::ZERO };
        while !cutoff.is_rest() {
            let done = match self.draw(16) {
                0 => self.count(&mut line),
                1 => self.stale(&mut line),
                2..5 => self.batch(&mut line),
                _ => self.single(&mut line),
            };
            if done.is_none() {
                break;
            }
        }
        self.tally.repeated += line.client.repeated();
        self.tally.slowest = self.tally.slowest.max(line.slowest);
    }

    /// One operation on a row: what it is depends on whether the row is there.
    fn operation(&mut self, row: &str, rows: &mut Rows) -> Operation {
        self.next += 1;
        let n = self.next;
        let keys = (self.partition.as_str(), row);
        let whole = || json!({ "n": n, "text": filler(n) });
        let fresh = Entity { n: Some(n), merged: None, tag: None };
        let Some(old) = rows.get(row).cloned() else {
            return match self.draw(4) {
                0 => {
                    rows.insert(row.to_owned(), fresh);
                    Operation::replace(TABLE, keys, None, whole())
                }
                1 => {
                    rows.insert(row.to_owned(), Entity { n: None, merged: Some(n), tag: None });
                    Operation::merge(TABLE, keys, None, json!({ "merged": n }))
                }
                _ => {
                    rows.insert(row.to_owned(), fresh);
                    let mut entity = whole();
                    entity["PartitionKey"] = keys.0.into();
                    entity["RowKey"] = row.into();
                    Operation::insert(TABLE, entity)
                }
            };
        };
        let tag = tag_text(old.tag);
        // With its tag most of the time, otherwise whatever it is.
        let condition = (self.draw(4) > 0).then_some(tag.as_str());
        match self.draw(4) {
            0 => {
                rows.remove(row);
                Operation::delete(TABLE, keys, condition.unwrap_or("*"))
            }
            1 | 2 => {
                rows.insert(row.to_owned(), Entity { merged: Some(n), tag: None, ..old });
                Operation::merge(TABLE, keys, condition, json!({ "merged": n }))
            }
            _ => {
                rows.insert(row.to_owned(), fresh);
                Operation::replace(TABLE, keys, condition, whole())
            }
        }
    }

    fn single(&mut self, line: &mut Line<'_>) -> Option<()> {
        let row = self.draw(ROWS).to_string();
        let mut after = self.rows.clone();
        let operation = self.operation(&row, &mut after);
        self.under_way = Some(after);
        let answer = line.ask(|client| client.send(&operation))?;
        self.expect(&answer, 204, &operation)?;
        self.adopt([(row, answer.header("etag").map(str::to_owned))]);
        Some(())
    }

    fn batch(&mut self, line: &mut Line<'_>) -> Option<()> {
        let size = usize::try_from(2 + self.draw(BATCH_MAX - 1)).expect("a small number");
        let mut rows: Vec<String> = (0..ROWS).map(|row| row.to_string()).collect();
        for place in 0..size {
            let other = place + usize::try_from(self.draw(ROWS - place as u64)).expect("small");
            rows.swap(place, other);
        }
        rows.truncate(size);
        let mut after = self.rows.clone();
        let operations: Vec<_> = rows.iter().map(|row| self.operation(row, &mut after)).collect();
        self.under_way = Some(after);
        let answer = line.ask(|client| client.batch(&operations))?;
        self.expect(&answer.response, 202, &operations)?;
        // A server that cannot write any more says so inside the batch.
        if let [part] = answer.parts.as_slice()
            && part.status >= 500
        {
            self.failed(part.status);
            return None;
        }
        assert!(answer.succeeded(), "{}", answer.response.text());
        assert_eq!(answer.parts.len(), operations.len());
        self.adopt(rows.into_iter().zip(answer.parts.into_iter().map(|part| part.etag)));
        self.tally.batches += 1;
        Some(())
    }

    /// A write whose tag is out of date: refused, and without effect.
    fn stale(&mut self, line: &mut Line<'_>) -> Option<()> {
        let place = usize::try_from(self.draw(ROWS)).expect("a small number");
        let known = self.rows.iter().skip(place).find_map(|(row, entity)| Some((row, entity.tag?)));
        let Some((row, tag)) = known else { return Some(()) };
        let old = Timestamp::from_ticks(tag.ticks() - 1).expect("an earlier time is a time");
        let path = entity_path(TABLE, &self.partition, row);
        let body = json!({ "n": -1 });
        let tag = tag_text(Some(old));
        let answer = line.ask(|client| client.update("PUT", &path, Some(&tag), &body))?;
        self.expect(&answer, 412, &path)?;
        self.tally.stale += 1;
        Some(())
    }

    /// None if the server says that it has failed.
    fn expect(&mut self, answer: &Response, status: u16, of: &impl std::fmt::Debug) -> Option<()> {
        if answer.status >= 500 {
            self.failed(answer.status);
            return None;
        }
        assert_eq!(answer.status, status, "{of:?}: {}", answer.text());
        Some(())
    }

    /// The server has failed. It says whether nothing took effect (503), or that nobody knows.
    fn failed(&mut self, status: u16) {
        self.tally.failures += 1;
        if status == 503 {
            self.under_way = None;
        }
    }

    /// The request under way was acknowledged: its state is the one to find, with these tags.
    fn adopt(&mut self, tags: impl IntoIterator<Item = (String, Option<String>)>) {
        let mut rows = self.under_way.take().expect("a request was under way");
        let mut latest = self.latest;
        for (row, tag) in tags {
            self.tally.writes += 1;
            if let Some(entity) = rows.get_mut(&row) {
                let tag = timestamp(&tag.expect("a write answers with a tag"));
                assert!(
                    self.may_be_new(&row, tag),
                    "the tag {tag} of {row} is none of a new version"
                );
                entity.tag = Some(tag);
                latest = latest.max(tag);
                self.given.insert((row, tag));
            }
        }
        (self.rows, self.latest) = (rows, latest);
    }

    /// Whether this may be the tag of a version of the row that was not there before.
    fn may_be_new(&self, row: &str, tag: Timestamp) -> bool {
        match self.order {
            Order::OfStore => self.latest < tag,
            Order::OfEntity => {
                let before = self.rows.get(row).and_then(|entity| entity.tag);
                before < Some(tag) && !self.given.contains(&(row.to_owned(), tag))
            }
        }
    }

    /// Adds one to the shared counter, if nobody else was quicker.
    fn count(&mut self, line: &mut Line<'_>) -> Option<()> {
        let path = entity_path(TABLE, COUNTER.0, COUNTER.1);
        let found = line.ask(|client| client.try_request("GET", &path, &[], b""))?;
        self.expect(&found, 200, &path)?;
        let n = found.json()["n"].as_i64().expect("a number");
        let (tag, body) = (found.etag(), json!({ "n": n + 1 }));
        let repeated = line.client.repeated();
        let Some(answer) = line.ask(|client| client.update("PUT", &path, Some(tag), &body)) else {
            self.uncertain += 1;
            return None;
        };
        if answer.status == 412 {
            // What was sent twice may have been refused because of itself.
            self.uncertain += u64::from(repeated < line.client.repeated());
            return Some(());
        }
        if answer.status >= 500 && answer.status != 503 {
            self.uncertain += 1;
        }
        self.expect(&answer, 204, &path)?;
        let (before, tag) = (timestamp(found.etag()), timestamp(answer.etag()));
        assert!(before < tag, "tags rise: {before} then {tag}");
        if self.order == Order::OfStore {
            assert!(self.latest < tag, "tags rise: {} then {tag}", self.latest);
        }
        self.latest = self.latest.max(tag);
        self.counts.push(tag);
        self.counted += 1;
        self.tally.increments += 1;
        self.tally.writes += 1;
        Some(())
    }

    /// Compares with what the server has, and takes over which of the two states it is.
    pub(super) fn verify(&mut self, client: &mut Client, losses: &mut Losses) {
        let found = match stored(client, &self.partition) {
            Ok(found) => found,
            Err(reason) => {
                losses.entities += self.rows.len() as u64;
                losses.details.push(format!("{}: {reason}", self.partition));
                return;
            }
        };
        let after = self.under_way.take().unwrap_or_else(|| self.rows.clone());
        let same = |wanted: &Rows, row: &String| match (wanted.get(row), found.get(row)) {
            (None, None) => true,
            (Some(wanted), Some(found)) => {
                let tag = match wanted.tag {
                    Some(tag) => found.tag == Some(tag),
                    None => found.tag.is_some_and(|tag| self.may_be_new(row, tag)),
                };
                tag && (wanted.n, wanted.merged) == (found.n, found.merged)
            }
            _ => false,
        };
        let keys: std::collections::BTreeSet<&String> =
            self.rows.keys().chain(after.keys()).chain(found.keys()).collect();
        let all = |wanted: &Rows| keys.iter().all(|row| same(wanted, row));
        if all(&self.rows) || all(&after) {
            let newest = found.values().filter_map(|entity| entity.tag).max();
            self.latest = self.latest.max(newest.unwrap_or_default());
            let tags = found.iter().filter_map(|(row, entity)| Some((row.clone(), entity.tag?)));
            self.given.extend(tags);
            self.rows = found;
            return;
        }
        let strange: Vec<_> =
            keys.iter().filter(|row| !same(&self.rows, row) && !same(&after, row)).collect();
        losses.entities += strange.len() as u64;
        if strange.is_empty() {
            losses.half_batches += 1;
            losses.details.push(format!("{}: half of a batch", self.partition));
        }
        for row in strange.iter().take(3) {
            losses.details.push(format!(
                "{}, {row}: {:?} acknowledged, {:?} under way, {:?} found",
                self.partition,
                self.rows.get(**row),
                after.get(**row),
                found.get(**row)
            ));
        }
    }
}
