//! Answers, before they meet HTTP: the same reply is a response or a part of a batch response.

use super::answer::Content;
use bytes::Bytes;
use http::StatusCode;
use http::header::{self, HeaderName, HeaderValue};
use rowhouse_types::limits;
use std::borrow::Cow;

/// Name and value of a header.
pub(crate) type Header = (Cow<'static, str>, Cow<'static, str>);

/// Status, headers and body of an answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    /// In the order in which the original sends them inside a batch.
    pub(crate) headers: Vec<Header>,
    pub(crate) body: Content,
    /// How the page was read and how many entities it took, for the log.
    pub(crate) plan: Option<String>,
}

pub(crate) const NO_CACHE: Header = (Cow::Borrowed("Cache-Control"), Cow::Borrowed("no-cache"));

impl Reply {
    /// A bare answer of an XML endpoint.
    pub(crate) fn plain(status: StatusCode) -> Self {
        Self { status, headers: Vec::with_capacity(8), body: Content::default(), plan: None }
    }

    /// An XML document.
    pub(crate) fn xml(body: String) -> Self {
        let mut reply = Self::plain(StatusCode::OK);
        reply.push("Content-Type", "application/xml");
        reply.body = body.into_bytes().into();
        reply
    }

    /// Adds a header.
    pub(crate) fn push(&mut self, name: &'static str, value: impl Into<Cow<'static, str>>) {
        self.headers.push((Cow::Borrowed(name), value.into()));
    }
}

/// A header's name as HTTP has it, which knows no case. The usual ones cost nothing.
pub(crate) fn header_name(spelled: &str) -> Option<HeaderName> {
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
