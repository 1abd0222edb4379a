//! The part of a request before its body: of an HTTP request, or of an operation inside a batch.

use super::error::Failure;
use http::HeaderMap;
use http::header::{ACCEPT, HeaderName, IF_MATCH, IF_NONE_MATCH};
use rowhouse_service_table::Match;
use rowhouse_types::Etag;
use rowhouse_wire::batch::Part;
use rowhouse_wire::media::{self, MediaError, Metadata, Prefer};
use rowhouse_wire::uri::Query;

/// The client's own id of a request.
pub(crate) static CLIENT_REQUEST_ID: HeaderName = HeaderName::from_static("x-ms-client-request-id");
/// The version of the protocol.
pub(crate) static VERSION: HeaderName = HeaderName::from_static("x-ms-version");
static PREFER: HeaderName = HeaderName::from_static("prefer");
static TUNNELLED_METHOD: HeaderName = HeaderName::from_static("x-http-method");

/// Verb, path, options and headers.
#[derive(Debug)]
pub(crate) struct Head<'a> {
    /// As on the wire; see [`Head::verb`].
    pub(crate) method: &'a str,
    /// After the account, still encoded.
    pub(crate) path: &'a str,
    /// Decoded.
    pub(crate) query: Query,
    /// By name.
    pub(crate) headers: Headers<'a>,
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
            Self::Outer(map) => map.get(name).map(|value| value.to_str().unwrap_or("\u{FFFD}")),
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

impl<'a> Head<'a> {
    /// The verb that is meant: a `POST` may carry another one in `X-HTTP-Method`.
    pub(crate) fn verb(&self) -> Result<&'a str, Failure> {
        let Some(tunnelled) = self.headers.get(&TUNNELLED_METHOD) else { return Ok(self.method) };
        if self.method != "POST" {
            return Err(Failure::TunnelNotPost);
        }
        if self.headers.count(&TUNNELLED_METHOD) > 1 {
            return Err(Failure::TunnelCount);
        }
        match tunnelled {
            "MERGE" | "PATCH" | "PUT" | "DELETE" => Ok(tunnelled),
            _ => Err(Failure::TunnelValue),
        }
    }

    /// How much metadata the answer carries. `$format` goes before `Accept`.
    pub(crate) fn metadata(&self) -> Result<Metadata, MediaError> {
        media::negotiate(self.headers.get(&ACCEPT), self.query.get("$format"))
    }

    /// Whether plain text is asked for, where there is some. `$format` goes before `Accept`.
    pub(crate) fn wants_text(&self) -> bool {
        let accept = self.headers.get(&ACCEPT).filter(|_| self.query.get("$format").is_none());
        accept.is_some_and(|accept| accept.trim_start().starts_with("text/plain"))
    }

    /// `Prefer`, where it says something that we know.
    pub(crate) fn prefer(&self) -> Option<Prefer> {
        self.headers.get(&PREFER).and_then(media::prefer)
    }

    /// `If-Match`; also refuses what the protocol refuses of `If-None-Match`.
    pub(crate) fn if_match(&self, verb: &str) -> Result<Option<Match>, Failure> {
        let value = self.headers.get(&IF_MATCH);
        if self.headers.get(&IF_NONE_MATCH).is_some() {
            return Err(match value {
                Some(_) => Failure::BothConditions,
                None => Failure::IfNoneMatch(verb.to_owned()),
            });
        }
        let Some(value) = value else { return Ok(None) };
        if self.headers.count(&IF_MATCH) > 1 {
            return Err(Failure::Etag(value.to_owned()));
        }
        if value.trim() == "*" {
            return Ok(Some(Match::Any));
        }
        match value.parse::<Etag>() {
            Ok(etag) => Ok(Some(Match::Etag(etag))),
            Err(_) => Err(Failure::Etag(value.to_owned())),
        }
    }
}
