//! The answers of the Table service, good and bad.

use super::error::Failure;
use crate::front::answer::Content;
use crate::front::reply::{Header, NO_CACHE, Reply};
use http::StatusCode;
use rowhouse_types::{Etag, Timestamp};
use rowhouse_wire::error;
use rowhouse_wire::media::{self, Metadata, Prefer};
use std::borrow::Cow;

pub(crate) const NOSNIFF: Header =
    (Cow::Borrowed("X-Content-Type-Options"), Cow::Borrowed("nosniff"));

impl Reply {
    /// An OData answer without a body.
    pub(crate) fn empty(status: StatusCode) -> Self {
        let mut reply = Self::plain(status);
        reply.headers.extend([NOSNIFF, NO_CACHE]);
        reply
    }

    /// An OData answer with a JSON body.
    pub(crate) fn json(status: StatusCode, level: Metadata, body: impl Into<Content>) -> Self {
        let mut reply = Self::plain(status);
        reply.push("Content-Type", media::content_type(level));
        reply.headers.extend([NOSNIFF, NO_CACHE]);
        reply.body = body.into();
        reply
    }

    /// JSON that is not OData.
    pub(crate) fn plain_json(status: StatusCode, value: &serde_json::Value) -> Self {
        let mut reply = Self::empty(status);
        reply.push("Content-Type", "application/json;charset=utf-8");
        reply.body = value.to_string().into_bytes().into();
        reply
    }

    /// Adds the tag of an entity last written then.
    pub(crate) fn push_etag(&mut self, timestamp: Timestamp) {
        self.push("ETag", String::from(Etag::new(timestamp)));
    }
}

/// How a failure is to be written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ErrorForm {
    /// The endpoint speaks XML, or the client that failed to authenticate asked for it.
    pub(crate) xml: bool,
    /// Metadata level that the client asked for.
    pub(crate) level: Metadata,
    /// `Prefer` of the request, where it applies.
    pub(crate) prefer: Option<Prefer>,
}

/// The answer to a request that failed.
pub(crate) fn failure(
    failure: &Failure,
    form: ErrorForm,
    request_id: &str,
    now: Timestamp,
) -> Reply {
    let answer = failure.answer();
    let front_door = failure.is_authentication();
    let mut reply = Reply::plain(answer.status);
    if form.xml {
        reply.push("Content-Type", "application/xml");
        reply.push("x-ms-error-code", answer.code);
        reply.body = error::xml(answer.code, &answer.message, request_id, now).into_bytes().into();
        return reply;
    }
    reply.body = error::json(answer.code, &answer.message, request_id, now).into_bytes().into();
    if front_door {
        reply.push("Content-Type", "application/json");
        reply.push("x-ms-error-code", answer.code);
        return reply;
    }
    reply.headers.push(NOSNIFF);
    if !is_early(failure) {
        reply.headers.push(NO_CACHE);
        if let Some(prefer) = form.prefer {
            reply.push("Preference-Applied", prefer.as_str());
        }
    }
    reply.push("Content-Type", media::content_type(form.level));
    reply
}

/// Noticed before the original looks at preferences and forbids caching: a missing table or a bad name.
fn is_early(failure: &Failure) -> bool {
    use rowhouse_service_table::TableError;
    match failure {
        Failure::Part { source, .. } => is_early(source),
        Failure::Table(TableError::Operation { source, .. }) => {
            matches!(**source, TableError::TableNotFound)
        }
        Failure::TableName(_) | Failure::Table(TableError::TableNotFound) => true,
        _ => false,
    }
}
