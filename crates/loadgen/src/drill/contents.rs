//! Everything that a table holds, as clients see it: keys, types, values, Timestamps and ETags.
//!
//! The table is read page by page through the protocol. Where pages end does not matter, and neither does the
//! address of the server, so stores of both kinds can be compared.

use crate::aims::{Bound, Report};
use crate::drive::{Driver, Pace, Script, Verdict};
use crate::request::Requests;
use crate::response::Answer;
use crate::workload::go_on;
use memchr::memmem;
use ring::digest::{Context, SHA256};
use std::io;
use std::net::SocketAddrV4;
use std::time::Duration;

/// Longest time that reading may take.
const WITHIN: Duration = Duration::from_hours(2);

/// How many entities, and a digest of all of them in the order of their keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Contents {
    pub(super) entities: u64,
    digest: Vec<u8>,
}

impl Contents {
    /// Reads a table whole.
    pub(super) fn read(address: SocketAddrV4, table: &str) -> io::Result<Self> {
        let path = format!("/{table}()");
        let mut pages = Pages::of(path);
        let tally = Driver::open(address, 1)?.run(&mut pages, WITHIN, Pace::Closed)?;
        if tally.operations != 1 {
            let why = tally.fault.unwrap_or_else(|| "the server was busy".to_owned());
            return Err(io::Error::other(format!("{table} was not read to its end: {why}")));
        }
        Ok(Self { entities: pages.entities, digest: pages.digest.finish().as_ref().to_vec() })
    }

    /// Reads the same table elsewhere, and tells whether it is the same.
    pub(super) fn compare(
        &self,
        address: SocketAddrV4,
        what: &str,
        report: &mut Report,
    ) -> io::Result<()> {
        let other = Self::read(address, crate::workload::DATA)?;
        let missing = self.entities.abs_diff(other.entities) as f64;
        report.aim(format!("{what}: entities missing"), missing, "", Bound::AtMost(0.0));
        let differs = f64::from(u8::from(other.digest != self.digest));
        report.aim(format!("{what}: digests that differ"), differs, "", Bound::AtMost(0.0));
        Ok(())
    }
}

/// A query that is followed to its end.
struct Pages {
    path: String,
    query: Vec<u8>,
    begun: bool,
    entities: u64,
    digest: Context,
}

impl Pages {
    fn of(path: String) -> Self {
        let query = b"?timeout=30".to_vec();
        Self { path, query, begun: false, entities: 0, digest: Context::new(&SHA256) }
    }
}

impl Script for Pages {
    fn ask(&mut self, _slot: usize, fresh: bool, to: &mut Requests, out: &mut Vec<u8>) -> bool {
        if fresh && std::mem::replace(&mut self.begun, true) {
            return false;
        }
        to.push(out, "GET", self.path.as_bytes(), &self.query, "", b"");
        true
    }

    fn judge(&mut self, _slot: usize, answer: &Answer<'_>) -> Verdict {
        let Some(entities) = entities(answer.body).filter(|_| answer.status == 200) else {
            return Verdict::Wrong(format!("a page was answered with status {}", answer.status));
        };
        if !entities.is_empty() {
            self.digest.update(b",");
            self.digest.update(entities);
            self.entities += memmem::find_iter(entities, b"\"RowKey\":").count() as u64;
        }
        match answer.next {
            Some((partition, row)) => {
                go_on(&mut self.query, partition, row);
                Verdict::More
            }
            None => Verdict::Done,
        }
    }
}

/// The entities of a page, without what is around them.
fn entities(body: &[u8]) -> Option<&[u8]> {
    let start = b"\"value\":[";
    let at = memmem::find(body, start)? + start.len();
    body[at..].strip_suffix(b"]}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(pages: &[(&str, Option<(&str, &str)>)]) -> (u64, Vec<u8>) {
        let mut all = Pages::of("/t()".to_owned());
        for (body, next) in pages {
            let answer =
                Answer { status: 200, body: body.as_bytes(), next: *next, head: b"", close: false };
            let verdict = if next.is_some() { Verdict::More } else { Verdict::Done };
            assert_eq!(all.judge(0, &answer), verdict);
        }
        (all.entities, all.digest.finish().as_ref().to_vec())
    }

    #[test]
    fn where_a_page_ends_does_not_matter() {
        let (a, b) = (r#"{"RowKey":"a"}"#, r#"{"RowKey":"b"}"#);
        let whole = format!(r#"{{"odata.metadata":"http://one","value":[{a},{b}]}}"#);
        let first = format!(r#"{{"odata.metadata":"http://two","value":[{a}]}}"#);
        let second = format!(r#"{{"value":[{b}]}}"#);
        let none = r#"{"value":[]}"#;
        let next = Some(("p", "r"));
        let expected = digest(&[(&whole, None)]);
        assert_eq!(expected.0, 2);
        assert_eq!(digest(&[(&first, next), (none, next), (&second, None)]), expected);
        assert_ne!(digest(&[(&second, next), (&first, None)]), expected);
    }

    #[test]
    fn what_is_not_a_page_is_noticed() {
        assert_eq!(entities(b"{\"value\":[1]}"), Some(&b"1"[..]));
        for odd in ["", "{}", "{\"value\":[1]", "]}"] {
            assert_eq!(entities(odd.as_bytes()), None, "{odd}");
        }
    }
}
