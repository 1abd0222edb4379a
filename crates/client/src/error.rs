//! What can go wrong, and what an answer of the service says about it.

use serde::Deserialize;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// A request that was refused: what the service said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceError {
    /// Status of the answer, or of the part of a batch that failed.
    pub status: u16,
    /// Such as `EntityAlreadyExists`; empty if the service gave none.
    pub code: String,
    /// Its first line.
    pub message: String,
    /// Which operation of a batch it is about, counted from 0, as far as the service tells.
    pub index: Option<usize>,
    /// The table or queue that the request named.
    pub resource: Option<String>,
    /// The `Server` header of the answer, such as `Rowhouse-Table/1.0`; empty if there was none.
    pub server: String,
    /// The request asked for something that only Rowhouse has.
    pub is_extension: bool,
}

impl fmt::Display for ServiceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { status, code, message, .. } = self;
        if let Some(name) = &self.resource {
            match code.as_str() {
                "TableNotFound" => return write!(f, "there is no table {name} ({code})"),
                "QueueNotFound" => return write!(f, "there is no queue {name} ({code})"),
                _ => {}
            }
        }
        let message = message.trim_end_matches('.');
        match (code.is_empty(), message.is_empty()) {
            (true, true) => write!(f, "status {status}"),
            (true, false) => write!(f, "{message} (status {status})"),
            (false, true) => write!(f, "{code} (status {status})"),
            (false, false) => write!(f, "{message} ({code})"),
        }
    }
}

/// Why a request has no usable answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The service refused it.
    #[error("{0}")]
    Service(ServiceError),
    /// No answer, after every attempt. A write may have happened.
    #[error("no answer from {address}: {reason}")]
    Unreachable {
        /// Who was asked.
        address: String,
        /// What happened the last time.
        reason: String,
    },
    /// The answer is larger than this client takes.
    #[error("an answer is larger than {0} MiB")]
    TooLarge(usize),
    /// What answered does not speak the protocol.
    #[error("what answers at {address} is not a Table service: {reason}")]
    Foreign {
        /// Who was asked.
        address: String,
        /// What was wrong with the answer.
        reason: String,
    },
    /// An entity in an answer breaks the rules for entities.
    #[error("an entity that {address} sent cannot be read: {reason}")]
    Entity {
        /// Who was asked.
        address: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The certificate of the other side does not do, or there is nothing to check it with.
    #[error("the certificate of the service cannot be trusted: {0}")]
    Certificates(String),
    /// The other side does not answer with HTTP.
    #[error("what answers at {0} does not speak HTTP")]
    NotHttp(String),
    /// The other side does not encrypt.
    #[error("what answers at {0} does not speak TLS")]
    NotTls(String),
}

impl ClientError {
    /// The error code of the service, if it was the service that refused.
    pub fn code(&self) -> &str {
        match self {
            Self::Service(error) => &error.code,
            _ => "",
        }
    }

    /// The status of the service's refusal, if it was the service that refused.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Service(error) => Some(error.status),
            _ => None,
        }
    }

    /// Whether the same question may be answered later.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Service(error) => matches!(error.status, 408 | 429 | 500..),
            Self::Unreachable { .. } => true,
            _ => false,
        }
    }
}

/// Why a transfer ended before its end.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    /// The service that is read or written.
    #[error("{0}")]
    Client(#[from] ClientError),
    /// A file that is read or written.
    #[error("{}: {error}", path.display())]
    File {
        /// Its name.
        path: PathBuf,
        /// What happened.
        error: io::Error,
    },
    /// Anything else, as a sentence that says what to do.
    #[error("{0}")]
    Refused(String),
}

impl TransferError {
    /// Makes an I/O error one about this file.
    pub(crate) fn file(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |error| Self::File { path, error }
    }
}

#[derive(Deserialize)]
struct JsonError {
    #[serde(rename = "odata.error")]
    error: JsonBody,
}

#[derive(Deserialize)]
struct JsonBody {
    code: String,
    message: JsonMessage,
}

#[derive(Deserialize)]
struct JsonMessage {
    value: String,
}

/// Reads the body of a refusal, in JSON or in XML; an unknown body gives no code and no message.
pub(crate) fn read_refusal(status: u16, body: &[u8]) -> ServiceError {
    let (code, message) = match serde_json::from_slice::<JsonError>(body) {
        Ok(JsonError { error }) => (error.code, error.message.value),
        Err(_) => read_xml(&String::from_utf8_lossy(body)),
    };
    let message = message.lines().next().unwrap_or_default().trim();
    // In a batch the number of the operation stands before the message.
    let numbered =
        message.split_once(':').and_then(|(index, rest)| Some((index.parse().ok()?, rest)));
    let (index, message) = match numbered {
        Some((index, rest)) => (Some(index), rest),
        None => (None, message),
    };
    ServiceError { status, code, message: message.to_owned(), index, ..ServiceError::default() }
}

/// `<m:code>` and `<m:message ...>`, or `<Code>` and `<Message>`.
fn read_xml(text: &str) -> (String, String) {
    let element = |names: [&str; 2]| {
        names.iter().find_map(|name| {
            let (_, rest) = text.split_once(&format!("<{name}"))?;
            let (_, rest) = rest.split_once('>')?;
            let (inner, _) = rest.split_once("</")?;
            Some(inner.to_owned())
        })
    };
    let code = element(["m:code", "Code"]).unwrap_or_default();
    let message = element(["m:message", "Message"]).unwrap_or_default();
    (code, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn refusals_in_both_shapes() {
        let json = br#"{"odata.error":{"code":"EntityAlreadyExists","message":{"lang":"en-US","value":"3:The specified entity already exists.\nRequestId:a\nTime:b"}}}"#;
        let error = read_refusal(409, json);
        assert_eq!((error.code.as_str(), error.index), ("EntityAlreadyExists", Some(3)));
        assert_eq!(error.to_string(), "The specified entity already exists (EntityAlreadyExists)");
        let xml = br#"<?xml version="1.0"?><m:error xmlns:m="x"><m:code>AuthenticationFailed</m:code><m:message xml:lang="en-US">Server failed.
RequestId:a</m:message></m:error>"#;
        assert_eq!(read_refusal(403, xml).to_string(), "Server failed (AuthenticationFailed)");
        assert_eq!(read_refusal(502, b"<html>").to_string(), "status 502");
        let time = br#"{"odata.error":{"code":"C","message":{"value":"Wrong: really"}}}"#;
        assert_eq!(read_refusal(400, time).index, None);
    }

    proptest! {
        #[test]
        fn any_body_is_read(body in "\\PC{0,40}|(<|>|m:code|Code|/|\\{|\"odata.error\"){0,10}") {
            let _ = read_refusal(400, body.as_bytes());
        }
    }
}
