//! What requests to the Table service say before their bodies: verb, formats, conditions.

use super::error::Failure;
use crate::front::head::Head;
use http::header::{ACCEPT, HeaderName, IF_MATCH, IF_NONE_MATCH};
use rowhouse_service_table::Match;
use rowhouse_types::Etag;
use rowhouse_wire::media::{self, MediaError, Metadata, Prefer};

static PREFER: HeaderName = HeaderName::from_static("prefer");
static TUNNELLED_METHOD: HeaderName = HeaderName::from_static("x-http-method");

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
