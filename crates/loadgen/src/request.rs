//! Requests as bytes: signed, with the few headers that the protocol needs.

use crate::digits::push_number;
use crate::signer::{ACCOUNT, Signer};
use std::net::SocketAddrV4;

/// What the official SDKs ask for.
pub(crate) const ACCEPT: &str = "application/json;odata=minimalmetadata";

/// Headers of a request that creates something and wants no copy of it back.
pub(crate) const NO_CONTENT: &str =
    "Content-Type: application/json\r\nPrefer: return-no-content\r\n";
/// Headers of a request with an entity.
pub(crate) const JSON: &str = "Content-Type: application/json\r\n";
/// Headers of a change to an entity that must exist.
pub(crate) const JSON_IF_EXISTS: &str = "Content-Type: application/json\r\nIf-Match: *\r\n";

/// Writes requests to one server.
#[derive(Debug)]
pub(crate) struct Requests {
    signer: Signer,
    host: String,
    path: Vec<u8>,
}

impl Requests {
    pub(crate) fn new(address: SocketAddrV4) -> Self {
        Self { signer: Signer::new(), host: address.to_string(), path: Vec::new() }
    }

    /// Brings the signed date up to now.
    pub(crate) fn refresh(&mut self) {
        self.signer.refresh();
    }

    /// Appends a request. `path` is encoded and follows the account's segment, `query` is encoded and empty or
    /// starts with `?`, `headers` are whole lines.
    pub(crate) fn push(
        &mut self,
        out: &mut Vec<u8>,
        method: &str,
        path: &[u8],
        query: &[u8],
        headers: &str,
        body: &[u8],
    ) {
        self.path.clear();
        for part in [b"/".as_slice(), ACCOUNT.as_bytes(), path] {
            self.path.extend_from_slice(part);
        }
        for part in [
            method.as_bytes(),
            b" ",
            &self.path,
            query,
            b" HTTP/1.1\r\nHost: ",
            self.host.as_bytes(),
            b"\r\nx-ms-version: 2019-02-02\r\nDataServiceVersion: 3.0\r\nAccept: ",
            ACCEPT.as_bytes(),
            b"\r\nx-ms-date: ",
            self.signer.date().as_bytes(),
            b"\r\nAuthorization: ",
        ] {
            out.extend_from_slice(part);
        }
        self.signer.push(out, &self.path);
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(headers.as_bytes());
        if !body.is_empty() {
            out.extend_from_slice(b"Content-Length: ");
            push_number(out, body.len() as u64);
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(body);
    }
}
