//! The part of a request before its body: of an HTTP request, or of an operation inside a batch.

use crate::listener::spelling::Spelling;
use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};
use rowhouse_wire::batch::Part;
use rowhouse_wire::uri::Query;

/// The client's own id of a request.
pub(crate) static CLIENT_REQUEST_ID: HeaderName = HeaderName::from_static("x-ms-client-request-id");
/// The version of the protocol.
pub(crate) static VERSION: HeaderName = HeaderName::from_static("x-ms-version");

/// Verb, path, options and headers.
#[derive(Debug)]
pub(crate) struct Head<'a> {
    /// As on the wire.
    pub(crate) method: &'a str,
    /// After the account, still encoded.
    pub(crate) path: &'a str,
    /// Decoded.
    pub(crate) query: Query,
    /// By name.
    pub(crate) headers: Headers<'a>,
    /// The bytes that say how the client spelled the names of metadata headers. Parsed only for the operations that store
    /// metadata, because they are as long as the client likes.
    pub(crate) spelling: Option<&'a Spelling>,
}

/// Where headers are looked up.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Headers<'a> {
    /// Of the request itself.
    Outer(&'a HeaderMap),
    /// Of an operation in a batch.
    Part(&'a Part<'a>),
}

impl<'a> Headers<'a> {
    /// The first value. One that is not visible ASCII reads as a character that no valid value has:
    /// present and wrong, not absent.
    pub(crate) fn get(self, name: &HeaderName) -> Option<&'a str> {
        match self {
            Self::Outer(map) => map.get(name).map(text),
            Self::Part(part) => part.header(name.as_str()),
        }
    }

    pub(crate) fn count(self, name: &HeaderName) -> usize {
        match self {
            Self::Outer(map) => map.get_all(name).iter().count(),
            Self::Part(part) => part.header_count(name.as_str()),
        }
    }
}

/// A value as text; if it is not visible ASCII, a character that no valid value has.
pub(crate) fn text(value: &HeaderValue) -> &str {
    value.to_str().unwrap_or("\u{FFFD}")
}
