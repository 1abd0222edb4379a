//! Answers, before they meet HTTP: the same reply is a response or a part of a batch response.

use super::error::Failure;
use bytes::Bytes;
use http::StatusCode;
use http::header::{self, HeaderName, HeaderValue};
use rowhouse_types::{Etag, Timestamp, limits};
use rowhouse_wire::error;
use rowhouse_wire::media::{self, Metadata, Prefer};
use std::borrow::Cow;

/// Status, headers and body of an answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    /// In the order in which the original sends them inside a batch.
    pub(crate) headers: Vec<(&'static str, Cow<'static, str>)>,
    pub(crate) body: Vec<u8>,
    /// How the page was read and how many entities it took, for the log.
    pub(crate) plan: Option<String>,
}

pub(crate) const NOSNIFF: (&str, Cow<'static, str>) =
    ("X-Content-Type-Options", Cow::Borrowed("nosniff"));
pub(crate) const NO_CACHE: (&str, Cow<'static, str>) = ("Cache-Control", Cow::Borrowed("no-cache"));

impl Reply {
    /// A bare answer of an XML endpoint.
    pub(crate) fn plain(status: StatusCode) -> Self {
        Self { status, headers: Vec::with_capacity(8), body: Vec::new(), plan: None }
    }

    /// An XML document.
    pub(crate) fn xml(body: String) -> Self {
        let mut reply = Self::plain(StatusCode::OK);
        reply.push("Content-Type", "application/xml");
        reply.body = body.into_bytes();
        reply
    }

    /// An OData answer without a body.
    pub(crate) fn empty(status: StatusCode) -> Self {
        let mut reply = Self::plain(status);
        reply.headers.extend([NOSNIFF, NO_CACHE]);
        reply
    }

    /// An OData answer with a JSON body.
    pub(crate) fn json(status: StatusCode, level: Metadata, body: Vec<u8>) -> Self {
        let mut reply = Self::plain(status);
        reply.push("Content-Type", media::content_type(level));
        reply.headers.extend([NOSNIFF, NO_CACHE]);
        reply.body = body;
        reply
    }

    /// JSON that is not OData.
    pub(crate) fn plain_json(status: StatusCode, value: &serde_json::Value) -> Self {
        let mut reply = Self::empty(status);
        reply.push("Content-Type", "application/json;charset=utf-8");
        reply.body = value.to_string().into_bytes();
        reply
    }

    /// Adds the tag of an entity last written then.
    pub(crate) fn push_etag(&mut self, timestamp: Timestamp) {
        self.push("ETag", String::from(Etag::new(timestamp)));
    }

    /// Adds a header.
    pub(crate) fn push(&mut self, name: &'static str, value: impl Into<Cow<'static, str>>) {
        self.headers.push((name, value.into()));
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
        reply.body = error::xml(answer.code, &answer.message, request_id, now).into_bytes();
        return reply;
    }
    reply.body = error::json(answer.code, &answer.message, request_id, now).into_bytes();
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

/// A header's name as HTTP has it, which knows no case. The usual ones cost nothing.
pub(crate) fn header_name(spelled: &'static str) -> Option<HeaderName> {
    const PLAN: HeaderName = HeaderName::from_static("x-rowhouse-plan");
    const PREFERENCE: HeaderName = HeaderName::from_static("preference-applied");
    const SERVICE_ID: HeaderName = HeaderName::from_static("dataserviceid");
    Some(match spelled {
        "Content-Type" => header::CONTENT_TYPE,
        "X-Content-Type-Options" => header::X_CONTENT_TYPE_OPTIONS,
        "Cache-Control" => header::CACHE_CONTROL,
        "ETag" => header::ETAG,
        "Location" => header::LOCATION,
        "Preference-Applied" => PREFERENCE,
        "DataServiceId" => SERVICE_ID,
        "x-rowhouse-plan" => PLAN,
        other => return HeaderName::from_bytes(other.as_bytes()).ok(),
    })
}

/// A header's value without copying it, or none if HTTP cannot carry it.
pub(crate) fn header_value(text: Cow<'static, str>) -> Option<HeaderValue> {
    let bytes = match text {
        Cow::Borrowed(text) => Bytes::from_static(text.as_bytes()),
        Cow::Owned(text) => Bytes::from(text),
    };
    HeaderValue::from_maybe_shared(bytes).ok()
}

/// The client's own id of a request, if it may be echoed.
pub(crate) fn client_request_id(value: Option<&str>) -> Option<&str> {
    value.filter(|id| {
        id.len() <= limits::CLIENT_REQUEST_ID_CHARS_MAX
            && id.bytes().all(|byte| (0x20..0x7F).contains(&byte))
    })
}
