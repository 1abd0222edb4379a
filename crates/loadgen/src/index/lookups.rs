//! Looks up single entities by a property that is not part of their keys, page by page, one after the other.

use super::PROPERTY;
use super::plan::{HEADER, Plan};
use super::site::Site;
use crate::chance::Chance;
use crate::drive::{Pace, Script, Verdict};
use crate::entity::Key;
use crate::measure::{Terms, measure};
use crate::request::Requests;
use crate::response::Answer;
use crate::workload::{DATA, go_on};
use memchr::memmem;
use std::collections::BTreeSet;
use std::io;
use std::time::{Duration, Instant};

/// Queries without an index: so many at least and at most, and no further one after so long.
const SCANS: (u64, u64) = (3, 20);
const SCANS_FOR: Duration = Duration::from_secs(10);
/// Queries that do not count, first without an index and then through it.
const WARM_UP: (u64, u64) = (1, 100);
/// Longest time that all queries may take.
const WITHIN: Duration = Duration::from_hours(2);

/// What came of queries.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    pub(super) queries: u64,
    pub(super) pages: u64,
    /// Pages that were read through an index.
    pub(super) pages_by_index: u64,
    /// Entities or entries that the server looked at.
    pub(super) examined: u64,
    /// Most that it looked at for one query beyond what matched.
    pub(super) most_beyond: u64,
    kinds: BTreeSet<String>,
    /// CPU time of the server and of its database for a query, in microseconds.
    pub(super) cpu_us: f64,
    pub(super) median_ms: f64,
    pub(super) errors: u64,
    pub(super) fault: Option<String>,
}

impl Seen {
    /// The kinds of plans that there were.
    pub(super) fn plans(&self) -> String {
        self.kinds.iter().map(String::as_str).collect::<Vec<_>>().join(" and ")
    }
}

/// The value that an entity has and no other.
pub(super) fn value(key: Key) -> String {
    format!("Customer {:010}", key.number())
}

/// Keys of entities of a filled table, by chance; always the same.
pub(super) fn keys(entities: u64) -> impl Iterator<Item = Key> {
    let mut chance = Chance::new(entities);
    std::iter::repeat_with(move || Key::nth(chance.below(entities)))
}

/// Looks up entities on a server without an index.
pub(super) fn by_scan(site: &Site<'_>) -> io::Result<Seen> {
    run(site, (WARM_UP.0, WARM_UP.0), Duration::ZERO)?;
    run(site, SCANS, SCANS_FOR)
}

/// Looks up entities on a server that has one.
pub(super) fn by_index(site: &Site<'_>) -> io::Result<Seen> {
    run(site, (WARM_UP.1, WARM_UP.1), Duration::ZERO)?;
    let queries = site.terms.queries;
    run(site, (queries, queries), Duration::ZERO)
}

fn run(site: &Site<'_>, (least, most): (u64, u64), until: Duration) -> io::Result<Seen> {
    let terms = Terms {
        address: site.server.address(),
        pid: Some(site.server.pid()),
        database: site.database(),
        connections: 1,
        warm_up: Duration::ZERO,
        length: WITHIN,
        pace: Pace::Closed,
    };
    let mut lookups = Lookups::new(keys(site.terms.entities), least, most, until);
    let (_, sample) = measure(&terms, &mut lookups)?;
    Ok(Seen {
        cpu_us: sample.server_cpu_us + sample.database_cpu_us,
        median_ms: sample.p50_ms,
        errors: sample.errors,
        fault: sample.fault,
        ..lookups.seen
    })
}

/// A query under way.
#[derive(Debug, Default)]
struct Under {
    mark: Vec<u8>,
    query: Vec<u8>,
    rows: u64,
    examined: u64,
    found: bool,
}

/// Queries for one entity each, on one connection.
struct Lookups<I> {
    keys: I,
    least: u64,
    most: u64,
    until: Duration,
    began: Instant,
    asked: u64,
    under: Under,
    seen: Seen,
}

impl<I: Iterator<Item = Key>> Lookups<I> {
    fn new(keys: I, least: u64, most: u64, until: Duration) -> Self {
        let (began, under, seen) = (Instant::now(), Under::default(), Seen::default());
        Self { keys, least, most, until, began, asked: 0, under, seen }
    }

    /// Begins another query, unless there were enough.
    fn choose(&mut self) -> bool {
        let enough = self.asked >= self.least && self.began.elapsed() >= self.until;
        if enough || self.asked >= self.most {
            return false;
        }
        let Some(key) = self.keys.next() else { return false };
        self.asked += 1;
        self.under = Under::default();
        key.push_mark(&mut self.under.mark);
        let value = value(key).replace(' ', "%20");
        let query = format!("?$filter={PROPERTY}%20eq%20%27{value}%27");
        self.under.query = query.into_bytes();
        true
    }

    fn look(&mut self, answer: &Answer<'_>) -> Result<Verdict, String> {
        let plan = answer.header(HEADER).and_then(Plan::parse).ok_or("it does not say its plan")?;
        let under = &mut self.under;
        let rows = memmem::find_iter(answer.body, b"\"RowKey\":").count() as u64;
        if rows != plan.returned {
            return Err(format!("it says that there are {} rows and has {rows}", plan.returned));
        }
        under.rows += rows;
        under.examined += plan.examined;
        under.found |= memmem::find(answer.body, &under.mark).is_some();
        self.seen.pages += 1;
        self.seen.pages_by_index += u64::from(plan.by_index());
        if !self.seen.kinds.contains(plan.kind) {
            self.seen.kinds.insert(plan.kind.to_owned());
        }
        if let Some((partition, row)) = answer.next {
            go_on(&mut under.query, partition, row);
            return Ok(Verdict::More);
        }
        if under.rows != 1 || !under.found {
            return Err(format!("{} rows came, not the one that was asked for", under.rows));
        }
        self.seen.queries += 1;
        self.seen.examined += under.examined;
        self.seen.most_beyond =
            self.seen.most_beyond.max(under.examined.saturating_sub(under.rows));
        Ok(Verdict::Done)
    }
}

impl<I: Iterator<Item = Key>> Script for Lookups<I> {
    fn ask(&mut self, _slot: usize, fresh: bool, to: &mut Requests, out: &mut Vec<u8>) -> bool {
        if fresh && !self.choose() {
            return false;
        }
        let path = format!("/{DATA}()");
        to.push(out, "GET", path.as_bytes(), &self.under.query, "", b"");
        true
    }

    fn judge(&mut self, _slot: usize, answer: &Answer<'_>) -> Verdict {
        if answer.status == 503 {
            return Verdict::Refused;
        }
        let judged = match answer.status {
            200 => self.look(answer),
            status => Err(format!("the status is {status}")),
        };
        judged.unwrap_or_else(|why| {
            let body = String::from_utf8_lossy(&answer.body[..answer.body.len().min(600)]);
            let query = String::from_utf8_lossy(&self.under.query);
            Verdict::Wrong(format!("{query}: {why}: {body}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENTITY: &str = r#"{"value":[{"RowKey":"r0000005","Number":5,"Score":0.5}]}"#;
    const NOTHING: &str = r#"{"value":[]}"#;

    fn lookups(most: u64) -> Lookups<impl Iterator<Item = Key>> {
        Lookups::new(std::iter::repeat(Key::nth(5)), 1, most, Duration::MAX)
    }

    fn ask<I: Iterator<Item = Key>>(all: &mut Lookups<I>, fresh: bool) -> Option<String> {
        let mut out = Vec::new();
        let mut to = Requests::new("127.0.0.1:1".parse().unwrap());
        all.ask(0, fresh, &mut to, &mut out).then(|| String::from_utf8(out).unwrap())
    }

    fn judge<I: Iterator<Item = Key>>(
        all: &mut Lookups<I>,
        plan: &str,
        body: &str,
        next: Option<(&str, &str)>,
    ) -> Verdict {
        let head = format!("HTTP/1.1 200 OK\r\nX-Rowhouse-Plan: {plan}\r\n\r\n");
        let (head, body) = (head.as_bytes(), body.as_bytes());
        all.judge(0, &Answer { status: 200, body, next, head, close: false })
    }

    /// The value that is asked for is the one that the entity has.
    #[test]
    fn values_are_those_of_entities() {
        for key in keys(1_000_000).take(100) {
            let mut json = Vec::new();
            key.push_entity(&mut json, 0);
            let property = format!("\"{PROPERTY}\":\"{}\"", value(key));
            assert!(memmem::find(&json, property.as_bytes()).is_some(), "{property}");
        }
        assert_ne!(value(Key::nth(1)), value(Key::nth(2)));
    }

    #[test]
    fn pages_are_followed_and_counted() {
        let mut all = lookups(2);
        let request = ask(&mut all, true).unwrap();
        let filter = "/devstoreaccount1/bench()?$filter=Name%20eq%20%27Customer%200000000005%27 ";
        assert!(request.contains(filter), "{request}");
        let scan = "table-scan; examined=1000; returned=0";
        assert_eq!(judge(&mut all, scan, NOTHING, Some(("p", "r"))), Verdict::More);
        assert!(ask(&mut all, false).unwrap().contains("&NextPartitionKey=p&NextRowKey=r "));
        let scan = "table-scan; examined=500; returned=1";
        assert_eq!(judge(&mut all, scan, ENTITY, None), Verdict::Done);
        assert!(!ask(&mut all, true).unwrap().contains("NextPartitionKey"));
        let index = "index(Name); examined=1; returned=1";
        assert_eq!(judge(&mut all, index, ENTITY, None), Verdict::Done);
        assert_eq!(ask(&mut all, true), None);
        let Seen { queries, pages, pages_by_index, examined, most_beyond, .. } = all.seen;
        assert_eq!((queries, pages, pages_by_index), (2, 3, 1));
        assert_eq!((examined, most_beyond), (1501, 1499));
        assert_eq!(all.seen.plans(), "index(Name) and table-scan");
    }

    #[test]
    fn what_was_not_asked_for_is_noticed() {
        let index = "index(Name); examined=1; returned=1";
        let other = ENTITY.replace(":5,", ":6,");
        let cases = [
            ("", ENTITY, "does not say its plan"),
            (index, NOTHING, "has 0"),
            (index, other.as_str(), "1 rows came"),
            ("index(Name); examined=0; returned=0", NOTHING, "0 rows came"),
        ];
        for (plan, body, words) in cases {
            let mut all = lookups(1);
            ask(&mut all, true).unwrap();
            let verdict = judge(&mut all, plan, body, None);
            let Verdict::Wrong(fault) = &verdict else { panic!("{verdict:?}") };
            assert!(fault.contains(words), "{fault}");
        }
    }

    #[test]
    fn time_ends_them_but_not_before_the_least() {
        let mut all = Lookups::new(keys(10), 3, 20, Duration::ZERO);
        assert_eq!(std::iter::from_fn(|| ask(&mut all, true)).count(), 3);
        let mut all = Lookups::new(keys(10), 3, 20, Duration::MAX);
        assert_eq!(std::iter::from_fn(|| ask(&mut all, true)).count(), 20);
    }
}
