//! The only place where something that went wrong in the Queue service becomes a status, a code and a message; what any
//! service refuses is in [`crate::front::refusal`].

use crate::front::refusal::{
    self, Answer, Refusal, answer, busy, denied, internal, invalid_header, invalid_parameter,
    timed_out,
};
use rowhouse_auth::AuthError;
use rowhouse_service_account::AccountError;
use rowhouse_service_queue::QueueError;
use rowhouse_types::{NameError, limits};
use rowhouse_wire::metadata::MetadataError;
use rowhouse_wire::uri::UriError;
use rowhouse_wire::xml::XmlError;

/// Why a request was not carried out.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Refused before it came to this service, or as any service would.
    Refused(Refusal),
    /// The service said no.
    Queue(QueueError),
    /// The name of a queue.
    Name(NameError),
    /// The path names nothing that there is.
    Nothing,
    /// The verb does not fit the resource.
    Verb,
    /// An option that does not parse, is none, or does not fit another one.
    Parameter { name: &'static str, value: String, reason: &'static str },
    /// A number beyond its range.
    Range { name: &'static str, value: String, min: u64, max: u64 },
    /// An option that must be there is not.
    Missing(&'static str),
    /// The marker of another account, or of nobody.
    Marker,
    /// Headers with metadata.
    Metadata(MetadataError),
    /// The body, and where it ceases to be XML if it does.
    Xml { error: XmlError, fault: Option<(usize, usize)> },
    /// A text of more bytes than that.
    TextTooLarge(usize),
}

/// Elements that stand after the message.
type Details = Vec<(&'static str, String)>;

impl Failure {
    /// Status, code and message, with what else there is to say.
    pub(crate) fn answer(&self) -> (Answer, Details) {
        let own = |text: &str| text.to_owned();
        match self {
            Self::Refused(refusal) => refused(refusal),
            Self::Queue(error) => (queue(error), Vec::new()),
            Self::Name(error) => (refusal::name(error), Vec::new()),
            Self::Nothing => (
                answer(
                    400,
                    "InvalidUri",
                    "The requested URI does not represent any resource on the server.",
                ),
                Vec::new(),
            ),
            Self::Verb => (
                answer(
                    405,
                    "UnsupportedHttpVerb",
                    "The resource doesn't support the specified HTTP verb.",
                ),
                Vec::new(),
            ),
            Self::Parameter { name, value, reason } => (
                invalid_parameter(),
                vec![
                    ("QueryParameterName", own(name)),
                    ("QueryParameterValue", value.clone()),
                    ("Reason", own(reason)),
                ],
            ),
            Self::Range { name, value, min, max } => (
                answer(
                    400,
                    "OutOfRangeQueryParameterValue",
                    "One of the query parameters specified in the request URI is outside the \
                     permissible range.",
                ),
                vec![
                    ("QueryParameterName", own(name)),
                    ("QueryParameterValue", value.clone()),
                    ("MinimumAllowed", min.to_string()),
                    ("MaximumAllowed", max.to_string()),
                ],
            ),
            Self::Missing(name) => (
                answer(
                    400,
                    "MissingRequiredQueryParameter",
                    "A query parameter that's mandatory for this request is not specified.",
                ),
                vec![("QueryParameterName", own(name))],
            ),
            Self::Marker => (
                answer(400, "OutOfRangeInput", "One of the request inputs is out of range."),
                Vec::new(),
            ),
            Self::Metadata(error) => match error {
                MetadataError::EmptyName { value } => {
                    (metadata(error), vec![("MetadataValue", value.clone().into_string())])
                }
                error => (metadata(error), Vec::new()),
            },
            Self::Xml { error, fault } => (refusal::xml(*error), place(*error, *fault)),
            Self::TextTooLarge(max) => too_large(*max),
        }
    }

    /// What the log should know and the client need not.
    pub(crate) fn detail(&self) -> Option<String> {
        match self {
            Self::Refused(refusal) => refusal.detail(),
            Self::Queue(
                error @ (QueueError::Unavailable(_)
                | QueueError::OutcomeUnknown(_)
                | QueueError::Corrupt(_)),
            ) => Some(error.to_string()),
            _ => None,
        }
    }
}

fn refused(refusal: &Refusal) -> (Answer, Details) {
    match refusal {
        Refusal::Auth { detail: Some(detail), .. } => {
            (refusal.answer(), vec![("AuthenticationErrorDetail", detail.to_string())])
        }
        Refusal::Auth { error: AuthError::RepeatedHeader, .. } => (invalid_header(), Vec::new()),
        Refusal::Version(value) => (
            invalid_header(),
            vec![
                ("HeaderName", "x-ms-version".to_owned()),
                ("HeaderValue", value.clone().into_string()),
            ],
        ),
        Refusal::Uri => (invalid_parameter(), Vec::new()),
        Refusal::LengthRequired => (
            answer(
                411,
                "MissingContentLengthHeader",
                "The Content-Length header was not specified.",
            ),
            Vec::new(),
        ),
        Refusal::BodyTooLarge => too_large(limits::MESSAGE_BYTES_MAX),
        refusal => (refusal.answer(), Vec::new()),
    }
}

fn too_large(max: usize) -> (Answer, Details) {
    (Refusal::BodyTooLarge.answer(), vec![("MaxLimit", max.to_string())])
}

/// The original says where a document is not well formed, and nothing more of one that is.
fn place(error: XmlError, fault: Option<(usize, usize)>) -> Details {
    let (line, position, reason) = match (error, fault) {
        (XmlError::PolicyId { line, position }, _) => {
            let reason = "Signed identifier ID cannot be empty or over 64 characters in length";
            (line, position, reason)
        }
        (XmlError::Syntax, Some((line, position))) => (line, position, "Error parsing Xml content"),
        (XmlError::Syntax, None) => (0, 0, ""),
        _ => return Vec::new(),
    };
    vec![
        ("LineNumber", line.to_string()),
        ("LinePosition", position.to_string()),
        ("Reason", reason.to_owned()),
    ]
}

/// What the service says.
pub(crate) fn queue(error: &QueueError) -> Answer {
    match error {
        QueueError::QueueNotFound => {
            answer(404, "QueueNotFound", "The specified queue does not exist.")
        }
        QueueError::QueueExists => {
            answer(409, "QueueAlreadyExists", "The specified queue already exists.")
        }
        // No conflict: clients that create a queue if it is not there take any conflict for success.
        QueueError::TooManyQueues => answer(
            403,
            "TooManyQueues",
            "The account has as many queues as it may have. Delete queues, or ask the operator for a higher limit.",
        ),
        QueueError::MessageNotFound => {
            answer(404, "MessageNotFound", "The specified message does not exist.")
        }
        QueueError::Denied(reason) => denied(*reason),
        QueueError::Operation { source, .. } => queue(source),
        QueueError::Busy | QueueError::Unavailable(_) => busy(),
        QueueError::OutcomeUnknown(_) => timed_out(),
        QueueError::Corrupt(_) => internal(),
    }
}

fn metadata(error: &MetadataError) -> Answer {
    match error {
        MetadataError::Invalid => answer(
            400,
            "InvalidMetadata",
            "The metadata specified is invalid. It has characters that are not permitted.",
        ),
        MetadataError::EmptyName { .. } => answer(
            400,
            "EmptyMetadataKey",
            "The key for one of the metadata key-value pairs is empty.",
        ),
        MetadataError::TooLarge => answer(
            400,
            "MetadataTooLarge",
            "The size of the specified metadata exceeds the maximum size permitted.",
        ),
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<QueueError> for Failure {
    fn from(error: QueueError) -> Self {
        Self::Queue(error)
    }
}

impl From<AccountError> for Failure {
    fn from(error: AccountError) -> Self {
        Refusal::from(error).into()
    }
}

impl From<UriError> for Failure {
    fn from(error: UriError) -> Self {
        Refusal::from(error).into()
    }
}

impl From<MetadataError> for Failure {
    fn from(error: MetadataError) -> Self {
        Self::Metadata(error)
    }
}
