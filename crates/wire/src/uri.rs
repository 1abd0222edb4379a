//! Addresses: percent-encoding, query strings and resource paths.
//!
//! A path is decoded exactly once, after its signature has been checked on the raw text. Names and keys
//! come out as they were meant, unchecked.

mod queue;
mod resource;

pub use queue::{QueueResource, parse_queue_resource};
pub use resource::{Resource, ResourceError, parse_resource};

use memchr::{memchr, memchr2};
use rowhouse_types::limits::QUERY_PARAMETERS_MAX;
use std::borrow::Cow;

/// A malformed percent-escape, escapes that are not UTF-8, or more parameters than a query may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed percent-encoding, or too many parameters")]
pub struct UriError;

/// Decodes percent-escapes once. A `+` stays a plus.
pub fn decode(raw: &str) -> Result<Cow<'_, str>, UriError> {
    if raw.contains('%') { unescape(raw, false).map(Cow::Owned) } else { Ok(Cow::Borrowed(raw)) }
}

fn unescape(raw: &str, plus_is_space: bool) -> Result<String, UriError> {
    let raw = raw.as_bytes();
    let first = if plus_is_space { memchr2(b'%', b'+', raw) } else { memchr(b'%', raw) };
    let (plain, rest) = raw.split_at(first.unwrap_or(raw.len()));
    let mut bytes = Vec::with_capacity(raw.len());
    bytes.extend_from_slice(plain);
    // After the first escape there are often many, a few bytes apart. To search for each of them
    // costs more than to look at every byte.
    let digit = |byte: u8| char::from(byte).to_digit(16).ok_or(UriError);
    let mut rest = rest.iter().copied();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let mut next = || rest.next().ok_or(UriError).and_then(digit);
                let value = next()? * 16 + next()?;
                u8::try_from(value).expect("two hexadecimal digits make a byte")
            }
            b'+' if plus_is_space => b' ',
            byte => byte,
        });
    }
    String::from_utf8(bytes).map_err(|_| UriError)
}

/// The parameters of a query string, decoded, in the order in which they came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Parses what stands after the `?`. Here a `+` is a blank; `%2B` is a plus.
    pub fn parse(raw: &str) -> Result<Self, UriError> {
        let pieces = raw.split('&').filter(|piece| !piece.is_empty());
        // Counted before anything is decoded: anybody can send a query.
        if pieces.clone().nth(QUERY_PARAMETERS_MAX).is_some() {
            return Err(UriError);
        }
        pieces
            .map(|piece| {
                let (name, value) = piece.split_once('=').unwrap_or((piece, ""));
                Ok((unescape(name, true)?, unescape(value, true)?))
            })
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// The first value of a parameter. Names are case-sensitive.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|(found, _)| *found == name).map(|(_, value)| value)
    }

    /// How often a parameter was given.
    pub fn count(&self, name: &str) -> usize {
        self.iter().filter(|(found, _)| *found == name).count()
    }

    /// Every parameter in order, as signatures are verified on them.
    pub fn pairs(&self) -> &[(String, String)] {
        &self.0
    }

    /// Every parameter in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }
}

/// Address of an entity below the service: `people(PartitionKey='p',RowKey='r')`.
pub fn entity_path(table: &str, partition: &str, row: &str) -> String {
    let mut out = Vec::with_capacity(table.len() + partition.len() + row.len() + 32);
    write_entity_path(&mut out, table, partition, row);
    String::from_utf8(out).expect("only ASCII is written")
}

/// Address of an entity with that of the service before it.
pub fn entity_url(base: &str, table: &str, partition: &str, row: &str) -> String {
    let length = base.len() + 1 + table.len() + partition.len() + row.len() + 32;
    let mut out = Vec::with_capacity(length);
    out.extend_from_slice(base.as_bytes());
    out.push(b'/');
    write_entity_path(&mut out, table, partition, row);
    String::from_utf8(out).expect("the base is text and the rest ASCII")
}

/// Address of a table below the service: `Tables('people')`.
pub fn table_path(table: &str) -> String {
    let mut out = b"Tables('".to_vec();
    write_key(&mut out, table);
    out.extend_from_slice(b"')");
    String::from_utf8(out).expect("only ASCII is written")
}

/// Writes no character that JSON would have to escape.
pub(crate) fn write_entity_path(out: &mut Vec<u8>, table: &str, partition: &str, row: &str) {
    write_key(out, table);
    out.extend_from_slice(b"(PartitionKey='");
    write_key(out, partition);
    out.extend_from_slice(b"',RowKey='");
    write_key(out, row);
    out.extend_from_slice(b"')");
}

/// Doubles quotes and escapes everything but letters, digits and `-_.!~*'()`.
fn write_key(out: &mut Vec<u8>, key: &str) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let mut rest = key.as_bytes();
    while let Some(at) = rest.iter().position(|&byte| !is_plain(byte)) {
        let byte = rest[at];
        out.extend_from_slice(&rest[..at]);
        rest = &rest[at + 1..];
        if byte == b'\'' {
            out.extend_from_slice(b"''");
        } else {
            let (high, low) = (HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]);
            out.extend_from_slice(&[b'%', high, low]);
        }
    }
    out.extend_from_slice(rest);
}

/// Stands for itself in a key that is written.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(byte, b'-' | b'_' | b'.' | b'!' | b'~' | b'*' | b'(' | b')')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn decoding_happens_once() {
        let cases = [
            ("", Ok("")),
            ("a+b", Ok("a+b")),
            ("a%20b%2Bc", Ok("a b+c")),
            ("%2525", Ok("%25")),
            ("caf%C3%A9", Ok("café")),
            ("café", Ok("café")),
            ("%", Err(UriError)),
            ("%2", Err(UriError)),
            ("%zz", Err(UriError)),
            ("%+1", Err(UriError)),
            ("%FF", Err(UriError)),
            ("%é", Err(UriError)),
        ];
        for (raw, expected) in cases {
            assert_eq!(decode(raw).as_deref(), expected.as_ref().copied(), "{raw}");
        }
    }

    #[test]
    fn query_strings() {
        let query =
            Query::parse("%24filter=PartitionKey+eq+%27a%2Bb%27&&$top=3&x=1=2&flag&x=3").unwrap();
        assert_eq!(query.get("$filter"), Some("PartitionKey eq 'a+b'"));
        assert_eq!(query.get("$top"), Some("3"));
        assert_eq!(query.get("x"), Some("1=2"));
        assert_eq!(query.get("flag"), Some(""));
        assert_eq!(query.get("$Top"), None);
        assert_eq!(query.count("x"), 2);
        assert_eq!(query.iter().count(), 5);
        assert_eq!(Query::parse(""), Ok(Query::default()));
        assert_eq!(Query::parse("a=%"), Err(UriError));
    }

    #[test]
    fn queries_have_so_many_parameters() {
        let most = "x=1&&".repeat(QUERY_PARAMETERS_MAX);
        let query = Query::parse(&most).unwrap();
        assert_eq!(query.count("x"), QUERY_PARAMETERS_MAX);
        assert_eq!(Query::parse(&(most + "y")), Err(UriError));
    }

    #[test]
    fn addresses() {
        assert_eq!(entity_path("people", "p", "r"), "people(PartitionKey='p',RowKey='r')");
        assert_eq!(
            entity_path("t", "A'aaa\"_bbbb2", "partition-key:1"),
            "t(PartitionKey='A''aaa%22_bbbb2',RowKey='partition-key%3A1')"
        );
        assert_eq!(
            entity_path("t", "a b%+&=é", ""),
            "t(PartitionKey='a%20b%25%2B%26%3D%C3%A9',RowKey='')"
        );
        assert_eq!(table_path("people"), "Tables('people')");
        assert_eq!(
            entity_url("http://h/a", "people", "p", "r"),
            "http://h/a/people(PartitionKey='p',RowKey='r')"
        );
    }

    proptest! {
        #[test]
        fn any_text_is_answered(raw in "\\PC{0,40}|[%0-9a-fA-F+&=]{0,30}") {
            let _ = decode(&raw);
            let _ = Query::parse(&raw);
        }
    }
}
