//! What is measured: one kind of operation each, with a check of every answer.
//!
//! Reads and changes go to the table [`DATA`], which is filled beforehand with partitions of a thousand rows.
//! Inserts go to a table that is empty at the start of a run, with keys that never repeat.

use crate::bare::ANSWER_BYTES;
use crate::batch::{self, Change, OPERATIONS, Rows};
use crate::choice::{Choice, Operation, Query, Wanted};
use crate::digits::push_number;
use crate::drive::{Script, Verdict};
use crate::entity::Key;
use crate::request::{JSON, JSON_IF_EXISTS, NO_CONTENT, Requests};
use crate::response::Answer;
use crate::text::push_encoded;
use memchr::memmem;
use std::fmt;

/// The table that is read and changed.
pub(crate) const DATA: &str = "bench";

/// A kind of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
#[value(rename_all = "lower")]
pub(crate) enum Workload {
    /// Get one entity by its keys.
    Point,
    /// Insert a new entity.
    Insert,
    /// Replace an entity as a whole.
    Upsert,
    /// Change two properties of an entity.
    Merge,
    /// Four reads of one entity to one upsert.
    Mixed,
    /// Insert 100 entities in one transaction.
    Batch100,
    /// Query 100 rows by a range of keys.
    Range100,
    /// Query a partition of 1000 rows.
    Scan1000,
    /// Query a partition by another property; 10 of 1000 match.
    Filterscan,
    /// Query the table by another property, page by page; one of 1000 matches.
    Tablescan,
    /// Insert new entities, all into one partition.
    Onepartition,
    /// Insert new entities into partitions all over the table that is read, which changes what is in it.
    #[value(skip)]
    Spread,
    /// Get one entity of a table that is a single partition.
    #[value(skip)]
    Deep,
}

impl Workload {
    /// Those that are compared, in the order of reports.
    pub(crate) const COMPARED: [Self; 10] = [
        Self::Point,
        Self::Insert,
        Self::Upsert,
        Self::Merge,
        Self::Mixed,
        Self::Batch100,
        Self::Range100,
        Self::Scan1000,
        Self::Filterscan,
        Self::Tablescan,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Point => "point",
            Self::Insert => "insert",
            Self::Upsert => "upsert",
            Self::Merge => "merge",
            Self::Mixed => "mixed",
            Self::Batch100 => "batch100",
            Self::Range100 => "range100",
            Self::Scan1000 => "scan1000",
            Self::Filterscan => "filterscan",
            Self::Tablescan => "tablescan",
            Self::Onepartition => "onepartition",
            Self::Spread => "spread",
            Self::Deep => "deep",
        }
    }

    /// What an operation is, for people.
    pub(crate) fn meaning(self) -> &'static str {
        match self {
            Self::Point => "get one entity by its keys",
            Self::Insert => "insert a new entity",
            Self::Upsert => "replace an entity as a whole",
            Self::Merge => "change two properties of an entity",
            Self::Mixed => "four point reads to one upsert",
            Self::Batch100 => "insert 100 entities in one transaction",
            Self::Range100 => "query 100 rows by a range of keys",
            Self::Scan1000 => "query a partition of 1,000 rows, one page",
            Self::Filterscan => "query a partition of 1,000 rows by another property, 10 match",
            Self::Tablescan => {
                "query the whole table by another property, all pages, one row of 1,000 matches"
            }
            Self::Onepartition => "insert a new entity, always into the same partition",
            Self::Spread => "insert a new entity into any partition of a filled table",
            Self::Deep => "get one entity of a table that is a single partition",
        }
    }

    /// Whether a server that only answers does comparable work.
    pub(crate) fn has_limit(self) -> bool {
        self < Self::Range100
    }

    /// Whether the load client can send the statements of it to the database itself.
    pub(crate) fn has_statements(self) -> bool {
        !matches!(self, Self::Filterscan | Self::Tablescan)
    }

    /// Whether it inserts, and so wants an empty table of its own.
    pub(crate) fn inserts(self) -> bool {
        matches!(self, Self::Insert | Self::Batch100 | Self::Onepartition)
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What a connection waits for.
#[derive(Clone, Debug, Default)]
enum Expected {
    /// No content.
    #[default]
    Written,
    /// This entity.
    Entity(Key),
    /// So many operations of a batch.
    Batch(u64),
    /// So many rows in all pages.
    Rows(u64),
}

/// An operation under way.
#[derive(Clone, Debug, Default)]
struct Slot {
    expected: Expected,
    query: Vec<u8>,
    rows: u64,
}

/// Asks for operations of one kind.
#[derive(Debug)]
pub(crate) struct Operations {
    workload: Workload,
    /// Whether the server only answers.
    bare: bool,
    choice: Choice,
    /// Entities in the table that is read.
    entities: u64,
    /// The table for inserts.
    table: String,
    slots: Vec<Slot>,
    path: Vec<u8>,
    body: Vec<u8>,
}

impl Operations {
    /// Operations on a table with so many entities, and inserts into another.
    pub(crate) fn new(workload: Workload, bare: bool, entities: u64, table: &str) -> Self {
        Self {
            workload,
            bare,
            choice: Choice::new(workload, entities, 0),
            entities,
            table: table.to_owned(),
            slots: Vec::new(),
            path: Vec::new(),
            body: Vec::new(),
        }
    }

    /// Lets new keys start later, so that they differ from those of earlier operations on the same table.
    pub(crate) fn starting_at(mut self, inserted: u64) -> Self {
        self.choice = Choice::new(self.workload, self.entities, inserted);
        self
    }

    /// How many new keys have been used, with those before the start.
    pub(crate) fn inserted(&self) -> u64 {
        self.choice.inserted()
    }

    fn ask_point(&mut self, key: Key, to: &mut Requests, out: &mut Vec<u8>) -> Expected {
        key.push_path(&mut self.path, DATA);
        to.push(out, "GET", &self.path, b"", "", b"");
        Expected::Entity(key)
    }

    fn ask_insert(&mut self, key: Key, to: &mut Requests, out: &mut Vec<u8>) -> Expected {
        self.path.push(b'/');
        self.path.extend_from_slice(self.table.as_bytes());
        key.push_entity(&mut self.body, 0);
        to.push(out, "POST", &self.path, b"", NO_CONTENT, &self.body);
        Expected::Written
    }

    fn ask_replace(
        &mut self,
        (key, revision): (Key, u64),
        to: &mut Requests,
        out: &mut Vec<u8>,
    ) -> Expected {
        key.push_path(&mut self.path, DATA);
        key.push_entity(&mut self.body, revision);
        to.push(out, "PUT", &self.path, b"", JSON, &self.body);
        Expected::Written
    }

    fn ask_merge(
        &mut self,
        (key, revision): (Key, u64),
        to: &mut Requests,
        out: &mut Vec<u8>,
    ) -> Expected {
        key.push_path(&mut self.path, DATA);
        key.push_change(&mut self.body, revision);
        to.push(out, "PATCH", &self.path, b"", JSON_IF_EXISTS, &self.body);
        Expected::Written
    }

    fn ask_batch(&mut self, first: Key, to: &mut Requests, out: &mut Vec<u8>) -> Expected {
        let rows = Rows { table: &self.table, first, count: OPERATIONS };
        batch::push(out, &mut self.body, to, Change::Insert, rows);
        Expected::Batch(OPERATIONS)
    }

    fn ask_query(
        &mut self,
        slot: usize,
        query: &Query,
        to: &mut Requests,
        out: &mut Vec<u8>,
    ) -> Expected {
        let text = &mut self.slots[slot].query;
        text.clear();
        text.extend_from_slice(b"?$filter=");
        push_filter(text, &query.wanted);
        self.ask_page(slot, to, out);
        Expected::Rows(query.rows)
    }

    /// Asks for a page of the query of a slot.
    fn ask_page(&mut self, slot: usize, to: &mut Requests, out: &mut Vec<u8>) {
        self.path.push(b'/');
        self.path.extend_from_slice(DATA.as_bytes());
        self.path.extend_from_slice(b"()");
        to.push(out, "GET", &self.path, &self.slots[slot].query, "", b"");
    }

    fn judge_table(slot: &mut Slot, answer: &Answer<'_>) -> Result<Verdict, ()> {
        match slot.expected {
            Expected::Written if answer.status == 204 => Ok(Verdict::Done),
            Expected::Entity(key) if answer.status == 200 => {
                let mut mark = Vec::with_capacity(32);
                key.push_mark(&mut mark);
                memmem::find(answer.body, &mark).map(|_| Verdict::Done).ok_or(())
            }
            Expected::Batch(count) if batch::all_done(answer.status, answer.body, count) => {
                Ok(Verdict::Done)
            }
            Expected::Rows(expected) if answer.status == 200 => {
                slot.rows += memmem::find_iter(answer.body, b"\"RowKey\":").count() as u64;
                let whole = slot.rows == expected;
                match answer.next {
                    Some((partition, row)) => {
                        go_on(&mut slot.query, partition, row);
                        Ok(Verdict::More)
                    }
                    None if whole => Ok(Verdict::Done),
                    None => Err(()),
                }
            }
            _ => Err(()),
        }
    }
}

/// Appends the filter of a query, as it stands in a URL.
fn push_filter(out: &mut Vec<u8>, wanted: &Wanted) {
    let partition = match wanted {
        Wanted::Everywhere(bucket) => {
            out.extend_from_slice(b"Bucket%20eq%20");
            push_number(out, *bucket);
            return;
        }
        Wanted::Partition(partition)
        | Wanted::Rows(partition, _)
        | Wanted::Buckets(partition, _) => *partition,
    };
    let key = Key { partition, row: 0 };
    out.extend_from_slice(b"PartitionKey%20eq%20%27");
    key.push_partition(out);
    out.extend_from_slice(b"%27");
    match wanted {
        Wanted::Rows(_, rows) => {
            out.extend_from_slice(b"%20and%20RowKey%20ge%20%27");
            Key { row: rows.start, ..key }.push_row(out);
            out.extend_from_slice(b"%27%20and%20RowKey%20lt%20%27");
            Key { row: rows.end, ..key }.push_row(out);
            out.extend_from_slice(b"%27");
        }
        Wanted::Buckets(_, buckets) => {
            out.extend_from_slice(b"%20and%20Bucket%20ge%20");
            push_number(out, buckets.start);
            out.extend_from_slice(b"%20and%20Bucket%20lt%20");
            push_number(out, buckets.end);
        }
        Wanted::Partition(_) | Wanted::Everywhere(_) => {}
    }
}

/// Replaces the continuation of a query.
pub(crate) fn go_on(query: &mut Vec<u8>, partition: &str, row: &str) {
    let mark = b"&NextPartitionKey=";
    if let Some(at) = memmem::find(query, mark) {
        query.truncate(at);
    }
    query.extend_from_slice(mark);
    push_encoded(query, partition.as_bytes());
    if !row.is_empty() {
        query.extend_from_slice(b"&NextRowKey=");
        push_encoded(query, row.as_bytes());
    }
}

impl Script for Operations {
    fn writes(&self, slot: usize) -> bool {
        let expected = self.slots.get(slot).map(|slot| &slot.expected);
        matches!(expected, Some(Expected::Written | Expected::Batch(_)))
    }

    fn ask(&mut self, slot: usize, fresh: bool, to: &mut Requests, out: &mut Vec<u8>) -> bool {
        self.path.clear();
        self.body.clear();
        if self.slots.len() <= slot {
            self.slots.resize(slot + 1, Slot::default());
        }
        if !fresh {
            self.ask_page(slot, to, out);
            return true;
        }
        let expected = match self.choice.next() {
            Operation::Get(key) => self.ask_point(key, to, out),
            Operation::Insert(key) => self.ask_insert(key, to, out),
            Operation::Replace(key, revision) => self.ask_replace((key, revision), to, out),
            Operation::Merge(key, revision) => self.ask_merge((key, revision), to, out),
            Operation::Batch(first) => self.ask_batch(first, to, out),
            Operation::Query(query) => self.ask_query(slot, &query, to, out),
        };
        self.slots[slot].expected = expected;
        self.slots[slot].rows = 0;
        true
    }

    fn judge(&mut self, slot: usize, answer: &Answer<'_>) -> Verdict {
        if answer.status == 503 && memmem::find(answer.body, b"ServerBusy").is_some() {
            return Verdict::Refused;
        }
        let slot = &mut self.slots[slot];
        if self.bare {
            let right = match slot.expected {
                Expected::Entity(_) => answer.status == 200 && answer.body.len() == ANSWER_BYTES,
                _ => answer.status == 204,
            };
            if right {
                return Verdict::Done;
            }
        } else if let Ok(verdict) = Self::judge_table(slot, answer) {
            return verdict;
        }
        let body = String::from_utf8_lossy(&answer.body[..answer.body.len().min(600)]);
        let (workload, status, rows) = (self.workload, answer.status, slot.rows);
        Verdict::Wrong(format!(
            "{workload}: {:?} got status {status}, {rows} rows: {body}",
            slot.expected
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer<'a>(status: u16, body: &'a str, next: Option<(&'a str, &'a str)>) -> Answer<'a> {
        Answer { status, body: body.as_bytes(), next, head: b"", close: false }
    }

    fn ask(operations: &mut Operations, fresh: bool) -> String {
        let mut to = Requests::new("127.0.0.1:1".parse().unwrap());
        let mut out = Vec::new();
        assert!(operations.ask(3, fresh, &mut to, &mut out));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_wrong_entity_is_noticed() {
        let mut operations = Operations::new(Workload::Point, false, 1, "x");
        assert!(ask(&mut operations, true).starts_with("GET /devstoreaccount1/bench(Part"));
        assert_eq!(operations.judge(3, &answer(200, r#"{"Number":0,"#, None)), Verdict::Done);
        for wrong in [answer(200, r#"{"Number":1,"#, None), answer(404, r#""Number":0,"#, None)] {
            assert!(matches!(operations.judge(3, &wrong), Verdict::Wrong(_)));
        }
        assert_eq!(operations.judge(3, &answer(503, "ServerBusy", None)), Verdict::Refused);
    }

    #[test]
    fn a_query_follows_its_pages_and_counts() {
        let mut operations = Operations::new(Workload::Tablescan, false, 3000, "x");
        ask(&mut operations, true);
        let row = r#"{"RowKey":"r"}"#;
        assert_eq!(operations.judge(3, &answer(200, row, Some(("1!a=", "b")))), Verdict::More);
        let second = ask(&mut operations, false);
        assert!(second.contains("&NextPartitionKey=1%21a%3D&NextRowKey=b HTTP"), "{second}");
        assert_eq!(operations.judge(3, &answer(200, row, Some(("c", "")))), Verdict::More);
        let third = ask(&mut operations, false);
        assert!(third.contains("&NextPartitionKey=c HTTP"), "{third}");
        assert_eq!(operations.judge(3, &answer(200, row, None)), Verdict::Done);
        ask(&mut operations, true);
        assert!(matches!(operations.judge(3, &answer(200, row, None)), Verdict::Wrong(_)));
    }
}
