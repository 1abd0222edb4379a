//! A table that is dropped and made again while others write to it.
//!
//! One client drops the table and makes it again, over and over, each time on another server; others insert
//! rows that nobody inserted before. What was acknowledged while the table was there stays until the table is
//! dropped; nothing is acknowledged while there is none; no row of an earlier table is seen in a later one.
//! Where an insert overlapped with a change of the table it may belong to either side of it.

use crate::client::Client;
use crate::connection::Response;
use crate::load::Cutoff;
use serde_json::json;
use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const TABLE: &str = "Turnover";
const PARTITION: &str = "p";
const INSERTERS: usize = 2;
/// How long a table is there at least.
const PAUSE: Duration = Duration::from_millis(100);
/// How long servers that are ready may still refuse to change the table.
const PATIENCE: Duration = Duration::from_secs(30);

/// The clients, and what the table must hold that is there now.
#[derive(Debug, Default)]
pub struct Turnover {
    rounds: u64,
    tables: u64,
    inserts: u64,
    /// Unknown while nobody can say whether there is a table.
    now: Option<Rows>,
}

#[derive(Clone, Debug, Default)]
struct Rows {
    owed: BTreeSet<String>,
    possible: BTreeSet<String>,
}

/// From before a request was sent until after its answer came, or for ever if none came.
#[derive(Clone, Copy, Debug, Default)]
struct Span {
    began: u64,
    ended: u64,
}

#[derive(Debug)]
struct Insert {
    row: String,
    span: Span,
    outcome: Outcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Done,
    NoTable,
    /// The server could not, and nothing happened.
    Refused,
    Unknown,
}

/// A table from its making to its end, if that was tried.
#[derive(Debug, Default)]
struct Life {
    made: Span,
    dropped: Option<Span>,
    seen: Vec<(Span, BTreeSet<String>)>,
}

impl Turnover {
    /// Begins with a new table: whatever there was of it is dropped.
    pub fn prepare(&mut self, client: &mut Client) {
        insist(client, drop_table, &[204, 404]);
        // One that was refused may have been made all the same.
        insist(client, make_table, &[204, 409]);
        self.now = Some(Rows::default());
    }

    /// Changes the table and inserts rows on all servers until they no longer answer; `end` is to see to that.
    pub fn run(&mut self, servers: &[SocketAddr], end: impl FnOnce(&Cutoff)) {
        self.rounds += 1;
        let (time, cutoff, round) = (Time::default(), Cutoff::default(), self.rounds);
        let (time, cutoff) = (&time, &cutoff);
        let (lives, inserts) = std::thread::scope(|scope| {
            let owner = scope.spawn(move || turn_over(servers, time, cutoff));
            let inserters: Vec<_> = (0..INSERTERS)
                .map(|number| {
                    let client = Client::new(servers[number % servers.len()]);
                    scope.spawn(move || insert(client, &format!("{round}-{number}"), time, cutoff))
                })
                .collect();
            end(cutoff);
            let inserts = inserters.into_iter().flat_map(|it| it.join().expect("it ends"));
            let inserts: Vec<Insert> = inserts.collect();
            (owner.join().expect("it ends"), inserts)
        });
        judge(&lives, &inserts).unwrap_or_else(|reason| panic!("turnover: {reason}"));
        self.tables += lives.len() as u64 - 1;
        self.inserts += inserts.iter().filter(|it| it.outcome == Outcome::Done).count() as u64;
        let last = lives.last().expect("there was a table to begin with");
        let known = last.made.is_answered() && last.dropped.is_none();
        self.now = known.then(|| last.rows(&inserts, Span::AFTERWARDS));
    }

    /// Compares with what the server has.
    pub fn verify(&self, client: &mut Client) -> Result<(), String> {
        let Some(rows) = &self.now else { return Ok(()) };
        rows.compare(&listed(client)?)
    }
}

impl fmt::Display for Turnover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} inserts into a table made anew {} times", self.inserts, self.tables)
    }
}

impl Span {
    /// Later than everything.
    const AFTERWARDS: Self = Self { began: u64::MAX, ended: u64::MAX };

    fn is_answered(self) -> bool {
        self.ended < u64::MAX
    }
}

impl Life {
    /// Whether the table was there for the whole of a span, whatever happened when.
    fn holds(&self, span: Span) -> bool {
        self.made.ended < span.began && self.dropped.is_none_or(|end| span.ended < end.began)
    }

    /// Whether the table may have been there for a moment of a span.
    fn touches(&self, span: Span) -> bool {
        self.made.began <= span.ended && self.dropped.is_none_or(|end| span.began < end.ended)
    }

    /// What a list of that span must and may hold.
    fn rows(&self, inserts: &[Insert], list: Span) -> Rows {
        let mut rows = Rows::default();
        for Insert { row, span, outcome } in inserts {
            let left_nothing = matches!(outcome, Outcome::NoTable | Outcome::Refused);
            if left_nothing || list.ended < span.began || !self.touches(*span) {
                continue;
            }
            rows.possible.insert(row.clone());
            let before = span.ended < list.began;
            if *outcome == Outcome::Done && before && self.holds(*span) {
                rows.owed.insert(row.clone());
            }
        }
        rows
    }
}

impl Rows {
    fn compare(&self, found: &BTreeSet<String>) -> Result<(), String> {
        if let Some(row) = self.owed.difference(found).next() {
            return Err(format!("row {row} was acknowledged and is not there"));
        }
        match found.difference(&self.possible).next() {
            Some(row) => Err(format!("row {row} is there, which belongs to an earlier table")),
            None => Ok(()),
        }
    }
}

/// Whether the answers fit what happened to the table.
fn judge(lives: &[Life], inserts: &[Insert]) -> Result<(), String> {
    for Insert { row, span, outcome } in inserts {
        if *outcome == Outcome::Done && !lives.iter().any(|life| life.touches(*span)) {
            return Err(format!("row {row} was acknowledged while there was no table"));
        }
        if *outcome == Outcome::NoTable && lives.iter().any(|life| life.holds(*span)) {
            return Err(format!("row {row} was refused while there was a table"));
        }
    }
    for life in lives {
        for (span, found) in &life.seen {
            life.rows(inserts, *span).compare(found)?;
        }
    }
    Ok(())
}

/// Numbers that order everything: taken before sending and after receiving.
type Time = AtomicU64;

/// When a request was made and its answer; for ever if there was none.
fn timed<T, E>(time: &Time, request: impl FnOnce() -> Result<T, E>) -> (Span, Option<T>) {
    let tick = || time.fetch_add(1, Ordering::SeqCst) + 1;
    let began = tick();
    let answer = request().ok();
    let ended = if answer.is_some() { tick() } else { u64::MAX };
    (Span { began, ended }, answer)
}

/// Lists, drops and makes the table, in turn on each server, until something is not answered.
fn turn_over(servers: &[SocketAddr], time: &Time, cutoff: &Cutoff) -> Vec<Life> {
    let mut lives = vec![Life::default()];
    let mut clients: Vec<_> = servers.iter().map(|server| Client::new(*server)).collect();
    while !cutoff.is_rest() {
        std::thread::sleep(PAUSE);
        let life = lives.last_mut().expect("one at least");
        // Not asked of the server that made it.
        let lister = clients.last_mut().expect("one at least");
        let (span, Some(found)) = timed(time, || listed(lister)) else { break };
        life.seen.push((span, found));
        let (span, dropped) = timed(time, || done(drop_table(&mut clients[0])));
        life.dropped = Some(span);
        if dropped.is_none() {
            break;
        }
        clients.rotate_left(1);
        let (made, answer) = timed(time, || done(make_table(&mut clients[0])));
        lives.push(Life { made, ..Life::default() });
        if answer.is_none() {
            break;
        }
    }
    lives
}

/// Inserts rows until something is not answered.
fn insert(mut client: Client, prefix: &str, time: &Time, cutoff: &Cutoff) -> Vec<Insert> {
    let mut inserts = Vec::new();
    while !cutoff.is_rest() {
        let row = format!("{prefix}-{}", inserts.len());
        let entity = json!({ "PartitionKey": PARTITION, "RowKey": row });
        let (span, outcome) = timed(time, || match client.insert(TABLE, &entity) {
            Ok(response) if response.status == 204 => Ok(Outcome::Done),
            Ok(response) if response.code().as_deref() == Some("TableNotFound") => {
                Ok(Outcome::NoTable)
            }
            Ok(response) if response.status == 503 => Ok(Outcome::Refused),
            Ok(response) if response.status < 500 => panic!("{row}: {}", response.text()),
            _ => Err(()),
        });
        let outcome = outcome.unwrap_or(Outcome::Unknown);
        inserts.push(Insert { row, span, outcome });
        if matches!(outcome, Outcome::Refused | Outcome::Unknown) {
            break;
        }
    }
    inserts
}

/// The rows of the table.
fn listed(client: &mut Client) -> Result<BTreeSet<String>, String> {
    let found = client.try_query(TABLE, &format!("PartitionKey eq '{PARTITION}'"));
    let found = found.inspect_err(|reason| assert!(!reason.starts_with('4'), "{reason}"))?;
    Ok(found.iter().filter_map(|entity| Some(entity["RowKey"].as_str()?.to_owned())).collect())
}

fn drop_table(client: &mut Client) -> io::Result<Response> {
    client.try_request("DELETE", &format!("Tables('{TABLE}')"), &[], b"")
}

fn make_table(client: &mut Client) -> io::Result<Response> {
    let headers = [("Content-Type", "application/json"), ("Prefer", "return-no-content")];
    let body = json!({ "TableName": TABLE }).to_string();
    client.try_request("POST", "Tables", &headers, body.as_bytes())
}

/// An error unless the answer says that it was done; nobody else changes the table, so nothing else is right.
fn done(answer: io::Result<Response>) -> io::Result<()> {
    match answer? {
        response if response.status == 204 => Ok(()),
        response if response.status >= 500 => Err(io::ErrorKind::Other.into()),
        response => panic!("the table was there or was not: {}", response.text()),
    }
}

/// Asks until the server answers with one of these.
fn insist(client: &mut Client, request: fn(&mut Client) -> io::Result<Response>, wanted: &[u16]) {
    let began = Instant::now();
    loop {
        let response = request(client).expect("answered");
        if wanted.contains(&response.status) {
            return;
        }
        let hope = response.status >= 500 && began.elapsed() < PATIENCE;
        assert!(hope, "{}: {}", response.status, response.text());
        std::thread::sleep(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(began: u64, ended: u64) -> Span {
        Span { began, ended }
    }

    fn row(name: &str, span: Span, outcome: Outcome) -> Insert {
        Insert { row: name.to_owned(), span, outcome }
    }

    /// A table until 10 to 20, and another from 30 to 40 on.
    fn two_lives(seen: &[&str]) -> Vec<Life> {
        let seen = seen.iter().map(|&row| row.to_owned()).collect();
        let first = Life { dropped: Some(span(10, 20)), ..Life::default() };
        let second = Life { made: span(30, 40), seen: vec![(span(60, 70), seen)], dropped: None };
        vec![first, second]
    }

    #[test]
    fn what_may_happen_is_accepted() {
        let cases = [
            ("of the table", row("a", span(45, 50), Outcome::Done), &["a"] as &[&str]),
            ("of the one before", row("a", span(1, 2), Outcome::Done), &[]),
            ("while it is dropped", row("a", span(5, 25), Outcome::Done), &[]),
            ("while it is made", row("a", span(25, 35), Outcome::Done), &["a"]),
            ("refused between", row("a", span(21, 29), Outcome::NoTable), &[]),
            ("refused when dropped", row("a", span(5, 15), Outcome::NoTable), &[]),
            ("not possible", row("a", span(45, 50), Outcome::Refused), &[]),
            ("nobody knows", row("a", span(1, u64::MAX), Outcome::Unknown), &["a"]),
            ("too late for the list", row("a", span(65, 80), Outcome::Done), &[]),
        ];
        for (name, insert, seen) in cases {
            assert_eq!(judge(&two_lives(seen), &[insert]), Ok(()), "{name}");
        }
    }

    #[test]
    fn what_must_not_happen_is_noticed() {
        let cases = [
            ("vanished", row("a", span(45, 50), Outcome::Done), &[] as &[&str]),
            ("came back", row("a", span(1, 2), Outcome::Done), &["a"]),
            ("came back late", row("a", span(5, 25), Outcome::Done), &["a"]),
            ("nowhere", row("a", span(21, 29), Outcome::Done), &[]),
            ("refused for nothing", row("a", span(45, 50), Outcome::NoTable), &[]),
            ("from nowhere", row("a", span(45, 50), Outcome::Done), &["a", "b"]),
            ("though it was not possible", row("a", span(45, 50), Outcome::Refused), &["a"]),
        ];
        for (name, insert, seen) in cases {
            assert!(judge(&two_lives(seen), &[insert]).is_err(), "{name}");
        }
    }
}
