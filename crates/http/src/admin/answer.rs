//! Answers of the admin listener: JSON for programs, plain text for probes, one table of problems.

use super::Scope;
use super::body::{AdminBody, Response};
use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use serde::Serialize;
use std::borrow::Cow;

pub(super) const PLAIN: &str = "text/plain; charset=utf-8";

/// Why a request is not done: a status, a code for programs and a sentence for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) status: StatusCode,
    pub(super) code: &'static str,
    pub(super) message: Cow<'static, str>,
}

impl Problem {
    pub(super) const HOST: Self = Self::new(
        StatusCode::FORBIDDEN,
        "HostNotAllowed",
        "This listener answers to localhost, 127.0.0.1 and [::1] only.",
    );
    pub(super) const TLS: Self =
        Self::new(StatusCode::FORBIDDEN, "TlsRequired", "This listener requires HTTPS.");
    pub(super) const TOKEN: Self = Self::new(
        StatusCode::UNAUTHORIZED,
        "TokenRequired",
        "Send a valid token as 'Authorization: Bearer TOKEN'.",
    );
    pub(super) const NOT_FOUND: Self =
        Self::new(StatusCode::NOT_FOUND, "NotFound", "There is nothing at this path.");
    pub(super) const METHOD: Self = Self::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "MethodNotAllowed",
        "This path does not take this method.",
    );
    pub(super) const NO_ACCOUNT: Self =
        Self::new(StatusCode::NOT_FOUND, "AccountNotFound", "There is no account of this name.");
    pub(super) const ACCOUNT_EXISTS: Self = Self::new(
        StatusCode::CONFLICT,
        "AccountExists",
        "There is an account of this name already.",
    );
    pub(super) const NO_MASTER_KEY: Self = Self::new(
        StatusCode::CONFLICT,
        "NoMasterKey",
        "The server has no master key: start it with --master-key-file.",
    );
    pub(super) const BODY_TOO_LARGE: Self =
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "BodyTooLarge", "The body is too large.");
    pub(super) const BODY_TOO_SLOW: Self =
        Self::new(StatusCode::REQUEST_TIMEOUT, "BodyTooSlow", "The body did not arrive in time.");
    pub(super) const BUSY: Self =
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "ServerBusy", "The server is busy; try again.");
    pub(super) const OUTCOME_UNKNOWN: Self = Self::new(
        StatusCode::INTERNAL_SERVER_ERROR,
        "OperationTimedOut",
        "The change may have been made or not: the store did not answer in time. Look before you try again.",
    );

    const fn new(status: StatusCode, code: &'static str, message: &'static str) -> Self {
        Self { status, code, message: Cow::Borrowed(message) }
    }

    /// The request makes no sense.
    pub(super) fn bad(message: impl Into<Cow<'static, str>>) -> Self {
        Self { status: StatusCode::BAD_REQUEST, code: "BadRequest", message: message.into() }
    }

    /// The store or the seal does not allow it now.
    pub(super) fn unavailable(message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            status: StatusCode::SERVICE_UNAVAILABLE,
            code: "Unavailable",
            message: message.into(),
        }
    }

    /// The token is valid and not enough.
    pub(super) fn scope(scope: Scope) -> Self {
        Self {
            status: StatusCode::FORBIDDEN,
            code: "ScopeRequired",
            message: format!("The token lacks the scope '{}'.", scope.as_str()).into(),
        }
    }

    pub(super) fn into_response(self) -> Response {
        #[derive(Serialize)]
        struct Body<'a> {
            error: Inner<'a>,
        }
        #[derive(Serialize)]
        struct Inner<'a> {
            code: &'a str,
            message: &'a str,
        }
        let body = Body { error: Inner { code: self.code, message: &self.message } };
        let mut response = json(self.status, &body);
        if self.status == StatusCode::UNAUTHORIZED {
            let challenge = HeaderValue::from_static("Bearer");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
        }
        response
    }
}

pub(super) fn json(status: StatusCode, body: &impl Serialize) -> Response {
    let mut text = serde_json::to_string(body).expect("our own structures become JSON");
    text.push('\n');
    self::text(status, "application/json", text)
}

/// Nothing here may be kept by a cache: figures age, and keys are secrets.
pub(super) fn text(status: StatusCode, kind: &'static str, text: String) -> Response {
    let mut response = Response::new(AdminBody::from(Bytes::from(text)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

pub(super) fn empty() -> Response {
    let mut response = Response::new(AdminBody::from(Bytes::new()));
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}
