//! Why a request was not carried out, whichever service it was for.
//!
//! What one of the services has to say is in its own error table; what both say alike is here, once.

use http::StatusCode;
use rowhouse_auth::AuthError;
use rowhouse_service_account::AccountError;
use rowhouse_types::{Denied, limits};
use rowhouse_wire::uri::UriError;
use rowhouse_wire::xml::XmlError;
use std::borrow::Cow;

/// Why a request was not carried out.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// Credentials missing, malformed, wrong, or not valid here and now.
    Auth {
        /// What is wrong with them.
        error: AuthError,
        /// What a client is told beside the code, where the service tells it.
        detail: Option<Box<str>>,
    },
    /// No credentials, at a version that knows no challenge: Azure denies that there is such a queue.
    Anonymous,
    /// The signature names other addresses than this one.
    SourceIp(std::net::IpAddr),
    /// The account service said no.
    Account(AccountError),
    /// No account of that name: told apart in the log only.
    UnknownAccount,
    /// A name from the network that is not this machine's, while the public key is enabled.
    ForeignHost,
    /// Percent-encoding or text encoding of the URL.
    Uri,
    /// `x-ms-version` is not a date, but this.
    Version(Box<str>),
    /// A write to the secondary.
    SecondaryWrite,
    /// A CORS header that a preflight needs.
    PreflightHeader,
    /// No rule for the preflight.
    PreflightRefused,
    /// Neither length nor chunks.
    LengthRequired,
    /// The body exceeds its limit.
    BodyTooLarge,
    /// The body stopped coming, or broke off.
    BodyAborted,
    /// Too much at once.
    Busy,
}

/// What a failure looks like on the wire.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) code: &'static str,
    pub(crate) message: Cow<'static, str>,
}

pub(crate) const PROCESSING: &str = "An error occurred while processing this request.";
const AUTHENTICATION_FAILED: &str = "Server failed to authenticate the request. Make sure the value of \
    Authorization header is formed correctly including the signature.";
const NOT_AUTHENTICATED: &str = "Server failed to authenticate the request. Please refer to the \
    information in the www-authenticate header.";

impl Refusal {
    /// The detail echoes what was sent, so it is cut where it becomes long.
    pub(crate) fn auth(error: AuthError, detail: Option<String>) -> Self {
        let detail = detail.map(|mut detail| {
            detail.truncate(detail.floor_char_boundary(limits::AUTHENTICATION_DETAIL_BYTES_MAX));
            detail.into()
        });
        Self::Auth { error, detail }
    }

    /// Status, code and message.
    pub(crate) fn answer(&self) -> Answer {
        match self {
            Self::SourceIp(ip) => answer(
                403,
                "AuthorizationSourceIPMismatch",
                format!(
                    "This request is not authorized to perform this operation using this source IP \
                     {ip}."
                ),
            ),
            Self::Anonymous => {
                answer(404, "ResourceNotFound", "The specified resource does not exist.")
            }
            Self::Auth { error, .. } => auth(*error),
            Self::Account(error) => account(error),
            Self::UnknownAccount => answer(403, "AuthenticationFailed", AUTHENTICATION_FAILED),
            Self::ForeignHost => answer(
                403,
                "AuthorizationFailure",
                "This request is not authorized to perform this operation.",
            ),
            Self::Uri => invalid_input("Bad Request - Error in query syntax."),
            Self::Version(_) => invalid_header(),
            Self::SecondaryWrite => {
                answer(403, "InsufficientAccountPermissions", "Write operations are not allowed.")
            }
            Self::PreflightHeader => {
                answer(400, "InvalidHeaderValue", "A required CORS header is not present.")
            }
            Self::PreflightRefused => answer(
                403,
                "CorsPreflightFailure",
                "CORS not enabled or no matching rule found for this request.",
            ),
            Self::LengthRequired => {
                answer(411, "MissingContentLengthHeader", "Content-Length HTTP header is missing.")
            }
            Self::BodyTooLarge => answer(
                413,
                "RequestBodyTooLarge",
                "The request body is too large and exceeds the maximum permissible limit.",
            ),
            Self::BodyAborted => invalid_input(PROCESSING),
            Self::Busy => busy(),
        }
    }

    /// Whether a key of the account made the signature of the refused request, which therefore knows the account.
    pub(crate) fn is_after_signature(&self) -> bool {
        match self {
            Self::SourceIp(_) => true,
            // The terms of a signature are checked after the signature itself.
            Self::Auth { error, .. } => matches!(error, AuthError::TimeFrame | AuthError::Protocol),
            _ => false,
        }
    }

    /// Refused at the front door.
    pub(crate) fn is_authentication(&self) -> bool {
        match self {
            Self::UnknownAccount | Self::Anonymous => true,
            Self::Auth { error, .. } => match error {
                AuthError::SourceIp | AuthError::Protocol | AuthError::RepeatedHeader => false,
                AuthError::NoCredentials
                | AuthError::BearerNotSupported
                | AuthError::MalformedHeader
                | AuthError::Signature
                | AuthError::Date
                | AuthError::TimeFrame
                | AuthError::Failed(_) => true,
            },
            _ => false,
        }
    }

    /// What the log should know and the client need not.
    pub(crate) fn detail(&self) -> Option<String> {
        match self {
            Self::Auth { error, .. } => Some(error.to_string()),
            Self::Anonymous => Some("no credentials".to_owned()),
            Self::UnknownAccount => Some("unknown account".to_owned()),
            Self::ForeignHost => Some("Host or Origin is not this machine".to_owned()),
            Self::Account(error) => Some(error.to_string()),
            _ => None,
        }
    }
}

pub(crate) fn answer(
    status: u16,
    code: &'static str,
    message: impl Into<Cow<'static, str>>,
) -> Answer {
    let status = StatusCode::from_u16(status).expect("written here");
    Answer { status, code, message: message.into() }
}

pub(crate) fn invalid_input(message: impl Into<Cow<'static, str>>) -> Answer {
    answer(400, "InvalidInput", message)
}

pub(crate) fn invalid_header() -> Answer {
    answer(
        400,
        "InvalidHeaderValue",
        "The value for one of the HTTP headers is not in the correct format.",
    )
}

pub(crate) fn invalid_parameter() -> Answer {
    answer(
        400,
        "InvalidQueryParameterValue",
        "Value for one of the query parameters specified in the request URI is invalid.",
    )
}

pub(crate) fn busy() -> Answer {
    answer(
        503,
        "ServerBusy",
        "The server is currently unable to receive requests. Please retry your request.",
    )
}

/// It may have been done or not: whoever asked repeats what is safe to repeat.
pub(crate) fn timed_out() -> Answer {
    answer(
        500,
        "OperationTimedOut",
        "The operation could not be completed within the permitted time.",
    )
}

pub(crate) fn internal() -> Answer {
    answer(
        500,
        "InternalError",
        "Server encountered an internal error. Please try again after some time.",
    )
}

pub(crate) fn denied(denied: Denied) -> Answer {
    let using = |what: &str| {
        format!("This request is not authorized to perform this operation using this {what}.")
    };
    match denied {
        Denied::Service => answer(403, "AuthorizationServiceMismatch", using("service")),
        Denied::ResourceType => {
            answer(403, "AuthorizationResourceTypeMismatch", using("resource type"))
        }
        Denied::Permission => answer(403, "AuthorizationPermissionMismatch", using("permission")),
        Denied::Operation => answer(
            403,
            "AuthorizationFailure",
            "This request is not authorized to perform this operation.",
        ),
    }
}

/// The name of a table or a queue.
pub(crate) fn name(error: &rowhouse_types::NameError) -> Answer {
    match error {
        rowhouse_types::NameError::Length { .. } => answer(
            400,
            "OutOfRangeInput",
            "The specified resource name length is not within the permissible limits.",
        ),
        // The original writes it so.
        _ => answer(
            400,
            "InvalidResourceName",
            "The specifed resource name contains invalid characters.",
        ),
    }
}

pub(crate) fn xml(error: XmlError) -> Answer {
    match error {
        XmlError::Syntax | XmlError::PolicyId { .. } => {
            answer(400, "InvalidXmlDocument", "XML specified is not syntactically valid.")
        }
        XmlError::NodeValue => answer(
            400,
            "InvalidXmlNodeValue",
            "The value for one of the XML nodes is not in the correct format.",
        ),
        XmlError::MissingNode => answer(
            400,
            "MissingRequiredXmlNode",
            "A required XML node was not specified in the request body.",
        ),
        XmlError::UnsupportedNode => answer(
            400,
            "UnsupportedXmlNode",
            "One of the XML nodes specified in the request body is not supported.",
        ),
    }
}

fn account(error: &AccountError) -> Answer {
    match error {
        AccountError::NotFound => answer(403, "AuthenticationFailed", AUTHENTICATION_FAILED),
        AccountError::Denied(reason) => denied(*reason),
        AccountError::Busy | AccountError::Unavailable(_) => busy(),
        AccountError::OutcomeUnknown(_) => timed_out(),
        AccountError::Exists
        | AccountError::Sealed(_)
        | AccountError::NoMasterKey
        | AccountError::Corrupt(_) => internal(),
    }
}

fn auth(error: AuthError) -> Answer {
    match error {
        AuthError::NoCredentials => answer(401, "NoAuthenticationInformation", NOT_AUTHENTICATED),
        AuthError::BearerNotSupported => {
            answer(401, "InvalidAuthenticationInfo", NOT_AUTHENTICATED)
        }
        AuthError::MalformedHeader => answer(
            400,
            "InvalidAuthenticationInfo",
            "Authentication information is not given in the correct format. Check the value of \
             Authorization header.",
        ),
        AuthError::Signature | AuthError::Date | AuthError::TimeFrame | AuthError::Failed(_) => {
            answer(403, "AuthenticationFailed", AUTHENTICATION_FAILED)
        }
        AuthError::RepeatedHeader => invalid_header(),
        AuthError::SourceIp => answer(
            403,
            "AuthorizationSourceIPMismatch",
            "This request is not authorized to perform this operation using this source IP.",
        ),
        AuthError::Protocol => answer(
            403,
            "AuthorizationProtocolMismatch",
            "This request is not authorized to perform this operation using this protocol.",
        ),
    }
}

impl From<AccountError> for Refusal {
    fn from(error: AccountError) -> Self {
        Self::Account(error)
    }
}

impl From<UriError> for Refusal {
    fn from(_: UriError) -> Self {
        Self::Uri
    }
}
