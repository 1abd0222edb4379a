//! Single requests, for what surrounds a measurement.

use crate::drive::{Driver, Pace, Script, Verdict};
use crate::request::{NO_CONTENT, Requests};
use crate::response::Answer;
use std::io;
use std::net::SocketAddrV4;
use std::time::{Duration, Instant};

/// Longest time that a single request may take.
const WITHIN: Duration = Duration::from_mins(1);

/// Creates a table. That it exists already is no fault.
pub(crate) fn create_table(address: SocketAddrV4, table: &str) -> io::Result<()> {
    let body = format!(r#"{{"TableName":"{table}"}}"#);
    let status = call(address, "POST", "/Tables", "", NO_CONTENT, body.as_bytes())?.status;
    expect(&[201, 204, 409], status, &format!("creating the table {table}"))
}

/// Drops a table.
pub(crate) fn drop_table(address: SocketAddrV4, table: &str) -> io::Result<()> {
    let path = format!("/Tables(%27{table}%27)");
    let status = call(address, "DELETE", &path, "", "", b"")?.status;
    expect(&[204], status, &format!("dropping the table {table}"))
}

fn expect(allowed: &[u16], status: u16, doing: &str) -> io::Result<()> {
    if allowed.contains(&status) {
        return Ok(());
    }
    Err(io::Error::other(format!("{doing} was answered with status {status}")))
}

/// What came back.
#[derive(Debug, Default)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
    /// From sending the request to the whole answer.
    pub(crate) took: Duration,
}

/// Sends one request on a connection of its own.
pub(crate) fn call(
    address: SocketAddrV4,
    method: &str,
    path: &str,
    query: &str,
    headers: &str,
    body: &[u8],
) -> io::Result<Reply> {
    let mut driver = Driver::open(address, 1)?;
    let mut once = Once { method, path, query, headers, body, sent: None, reply: None };
    let tally = driver.run(&mut once, WITHIN, Pace::Closed)?;
    once.reply.ok_or_else(|| {
        let why = tally.fault.unwrap_or_default();
        io::Error::other(format!("{method} {path} was not answered: {why}"))
    })
}

struct Once<'a> {
    method: &'a str,
    path: &'a str,
    query: &'a str,
    headers: &'a str,
    body: &'a [u8],
    sent: Option<Instant>,
    reply: Option<Reply>,
}

impl Script for Once<'_> {
    fn ask(&mut self, _slot: usize, _fresh: bool, to: &mut Requests, out: &mut Vec<u8>) -> bool {
        if self.sent.is_some() {
            return false;
        }
        let (path, query) = (self.path.as_bytes(), self.query.as_bytes());
        to.push(out, self.method, path, query, self.headers, self.body);
        self.sent = Some(Instant::now());
        true
    }

    fn judge(&mut self, _slot: usize, answer: &Answer<'_>) -> Verdict {
        let took = self.sent.map_or(Duration::ZERO, |sent| sent.elapsed());
        self.reply = Some(Reply { status: answer.status, body: answer.body.to_vec(), took });
        Verdict::Done
    }
}
