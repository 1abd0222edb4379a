//! Signs requests, of tables with Shared Key Lite and of queues with Shared Key, one HMAC for each, with the key
//! prepared once.
//!
//! The server's own crate signs too, but prepares the key and allocates every time; here the client must
//! cost as little as it can beside the server that it measures. A test holds both to the same result.

use crate::digits::push_number;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;
use rowhouse_types::Timestamp;
use std::time::{Duration, SystemTime};

/// The account that every Azure SDK and every emulator knows, and its public key.
pub(crate) const ACCOUNT: &str = "devstoreaccount1";
pub(crate) const KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// What the long form of a signature covers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Long<'a> {
    pub(crate) method: &'a str,
    /// Encoded, from the account's segment on.
    pub(crate) path: &'a [u8],
    /// Names in order, values as they are meant.
    pub(crate) parameters: &'a [(&'a str, &'a [u8])],
    pub(crate) version: &'a str,
    /// Of the body.
    pub(crate) length: usize,
    /// Of the body, if there is one.
    pub(crate) content_type: &'a str,
}

/// The key of the development account, and the date that signed requests carry.
#[derive(Debug)]
pub(crate) struct Signer {
    key: hmac::Key,
    second: u64,
    date: String,
    text: Vec<u8>,
}

impl Signer {
    pub(crate) fn new() -> Self {
        let key = STANDARD.decode(KEY).expect("the development key is Base64");
        let key = hmac::Key::new(hmac::HMAC_SHA256, &key);
        let mut signer = Self { key, second: u64::MAX, date: String::new(), text: Vec::new() };
        signer.refresh();
        signer
    }

    /// Brings the date up to now. Cheap within a second.
    pub(crate) fn refresh(&mut self) {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        if now.as_secs() != self.second {
            self.second = now.as_secs();
            self.date = Timestamp::from_unix(Duration::from_secs(self.second)).rfc1123();
        }
    }

    /// The date to send as `x-ms-date`.
    pub(crate) fn date(&self) -> &str {
        &self.date
    }

    /// Appends the value of `Authorization` for an encoded path that starts with the account's segment.
    pub(crate) fn push(&mut self, out: &mut Vec<u8>, path: &[u8]) {
        self.text.clear();
        for part in [self.date.as_bytes(), b"\n/", ACCOUNT.as_bytes(), path] {
            self.text.extend_from_slice(part);
        }
        self.push_signature(out, b"SharedKeyLite ");
    }

    /// Appends the value of `Authorization` of a request to a queue: the long form over method, length and type of the
    /// body, the two headers that every such request has, the path, and the parameters in the order of their names.
    pub(crate) fn push_long(&mut self, out: &mut Vec<u8>, asked: &Long<'_>) {
        self.text.clear();
        self.text.extend_from_slice(asked.method.as_bytes());
        self.text.extend_from_slice(b"\n\n\n");
        if asked.length > 0 {
            push_number(&mut self.text, asked.length as u64);
        }
        let kind = if asked.length > 0 { asked.content_type } else { "" };
        for part in [
            b"\n\n".as_slice(),
            kind.as_bytes(),
            b"\n\n\n\n\n\n\nx-ms-date:",
            self.date.as_bytes(),
            b"\nx-ms-version:",
            asked.version.as_bytes(),
            b"\n/",
            ACCOUNT.as_bytes(),
            asked.path,
        ] {
            self.text.extend_from_slice(part);
        }
        for (name, value) in asked.parameters {
            for part in [b"\n", name.as_bytes(), b":", value] {
                self.text.extend_from_slice(part);
            }
        }
        self.push_signature(out, b"SharedKey ");
    }

    /// Signs the text.
    fn push_signature(&mut self, out: &mut Vec<u8>, scheme: &[u8]) {
        let tag = hmac::sign(&self.key, &self.text);
        let mut signature = [0; 44];
        let encoded = STANDARD.encode_slice(tag, &mut signature);
        encoded.expect("32 bytes are 44 characters in Base64");
        for part in [scheme, ACCOUNT.as_bytes(), b":", &signature] {
            out.extend_from_slice(part);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rowhouse_auth::{Request, Scheme, Service, sign};

    #[test]
    fn signs_as_the_server_expects() {
        let mut signer = Signer::new();
        let path = "/devstoreaccount1/bench(PartitionKey='p',RowKey='r')";
        let mut out = Vec::new();
        signer.push(&mut out, path.as_bytes());
        let date = signer.date().to_owned();
        let header = |name: &str| (name == "x-ms-date").then_some(date.as_str());
        let request = Request {
            method: "GET",
            account: ACCOUNT,
            path,
            query: &[],
            header: &header,
            service: Service::Table,
        };
        let key = STANDARD.decode(KEY).unwrap();
        let expected = sign::shared_key(&request, Scheme::SharedKeyLite, &key).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    /// A vector of the protocol, whose date is fixed.
    #[test]
    fn signs_requests_to_queues() {
        let mut signer = Signer::new();
        signer.date = "Mon, 27 Jun 2022 15:25:14 GMT".to_owned();
        let asked = Long {
            method: "GET",
            path: b"/devstoreaccount1/q1/messages",
            parameters: &[("numofmessages", b"1"), ("peekonly", b"true")],
            version: "2020-04-08",
            length: 0,
            content_type: "application/xml",
        };
        let mut out = Vec::new();
        signer.push_long(&mut out, &asked);
        let expected = "SharedKey devstoreaccount1:hBsGxPHdm76pYt6M2bTFRTNOHCbvUjo5CTjF4QSUZB8=";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
