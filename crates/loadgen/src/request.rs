//! Requests as bytes: signed, with the few headers that the protocol needs.

use crate::digits::push_number;
use crate::signer::{ACCOUNT, Long, Signer};
use crate::text::push_encoded;
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

/// The version of the protocol that requests to queues name, and the type of their bodies.
const QUEUE_VERSION: &str = "2021-02-12";
const XML: &str = "application/xml";

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

    /// Appends a request to the queue service. `path` is encoded and follows the account's segment, `parameters` are in
    /// the order of their names, with values that are not encoded.
    pub(crate) fn push_queue(
        &mut self,
        out: &mut Vec<u8>,
        method: &str,
        path: &[u8],
        parameters: &[(&str, &[u8])],
        body: &[u8],
    ) {
        self.path.clear();
        for part in [b"/".as_slice(), ACCOUNT.as_bytes(), path] {
            self.path.extend_from_slice(part);
        }
        for part in [method.as_bytes(), b" ", &self.path] {
            out.extend_from_slice(part);
        }
        for (at, (name, value)) in parameters.iter().enumerate() {
            out.push(if at == 0 { b'?' } else { b'&' });
            out.extend_from_slice(name.as_bytes());
            out.push(b'=');
            push_encoded(out, value);
        }
        for part in [
            b" HTTP/1.1\r\nHost: ".as_slice(),
            self.host.as_bytes(),
            b"\r\nx-ms-version: ",
            QUEUE_VERSION.as_bytes(),
            b"\r\nx-ms-date: ",
            self.signer.date().as_bytes(),
            b"\r\nAuthorization: ",
        ] {
            out.extend_from_slice(part);
        }
        let (version, length) = (QUEUE_VERSION, body.len());
        let asked =
            Long { method, path: &self.path, parameters, version, length, content_type: XML };
        self.signer.push_long(out, &asked);
        if !body.is_empty() {
            out.extend_from_slice(b"\r\nContent-Type: ");
            out.extend_from_slice(XML.as_bytes());
        }
        // Requests without a body say so: some servers want to know of those that change something.
        out.extend_from_slice(b"\r\nContent-Length: ");
        push_number(out, length as u64);
        out.extend_from_slice(b"\r\n\r\n");
        out.extend_from_slice(body);
    }
}
