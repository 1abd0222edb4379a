//! A client of the Table service or the Queue service that signs what it sends.

use crate::batch::{BatchAnswer, Operation, multipart};
use crate::connection::{Connection, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rowhouse_auth::{Request, Scheme, Service, sign};
use rowhouse_env::{Clock, SystemClock};
use rowhouse_types::Service as Kind;
use rowhouse_wire::uri::Query;
use serde_json::Value;
use std::fmt::Write as _;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// The well-known development account.
pub const DEV_ACCOUNT: &str = "devstoreaccount1";
/// Its well-known key, in Base64.
pub const DEV_KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// Path-style access to one account over one kept connection.
#[derive(Debug)]
pub struct Client {
    address: SocketAddr,
    account: String,
    /// What the path starts with.
    segment: String,
    key: Vec<u8>,
    /// Whose strings are signed.
    service: Kind,
    connection: Option<Connection>,
    retries: Retries,
    repeated: u64,
}

/// What a client does when a server has failed or could not be heard: it asks again, as the SDKs do.
#[derive(Clone, Copy, Debug, Default)]
pub struct Retries {
    /// How often, at most.
    pub most: u32,
    /// How long it waits before the first time; each time twice as long as before.
    pub pause: Duration,
}

impl Client {
    /// The development account of the server there.
    pub fn new(address: SocketAddr) -> Self {
        Self::with_account(address, DEV_ACCOUNT, DEV_KEY)
    }

    /// Any account, with its key in Base64.
    pub fn with_account(address: SocketAddr, account: &str, key: &str) -> Self {
        let key = STANDARD.decode(key).expect("a key is Base64");
        let segment = account.to_owned();
        Self {
            address,
            account: account.to_owned(),
            segment,
            key,
            service: Kind::Table,
            connection: None,
            retries: Retries::default(),
            repeated: 0,
        }
    }

    /// The Queue service of any account, with its key in Base64.
    pub fn of_queues_of(address: SocketAddr, account: &str, key: &str) -> Self {
        Self { service: Kind::Queue, ..Self::with_account(address, account, key) }
    }

    /// The Queue service of the development account of the server there.
    pub fn of_queues(address: SocketAddr) -> Self {
        Self { service: Kind::Queue, ..Self::new(address) }
    }

    /// From now on it asks again. A request may then take effect and be refused: it was sent twice.
    pub fn with_retries(self, retries: Retries) -> Self {
        Self { retries, ..self }
    }

    /// How often it asked again.
    pub fn repeated(&self) -> u64 {
        self.repeated
    }

    /// The same account at its secondary endpoint.
    pub fn at_secondary(self) -> Self {
        let segment = format!("{}-secondary", self.account);
        Self { segment, connection: None, ..self }
    }

    /// The bytes of a signed request for a path below the account. The body is not among them, its length
    /// is.
    pub fn head(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        length: Option<usize>,
    ) -> Vec<u8> {
        let date = SystemClock.now().rfc1123();
        let target = format!("/{}/{path}", self.segment);
        let (bare, query) = target.split_once('?').unwrap_or((&target, ""));
        let query = Query::parse(query).unwrap_or_default();
        let mut all = vec![("x-ms-date", date.as_str())];
        for (name, value) in
            [("x-ms-version", "2019-02-02"), ("Accept", "application/json;odata=minimalmetadata")]
        {
            if !headers.iter().any(|(given, _)| given.eq_ignore_ascii_case(name)) {
                all.push((name, value));
            }
        }
        all.extend_from_slice(headers);
        let length = length.map(|length| length.to_string());
        if let Some(length) = &length {
            all.push(("Content-Length", length));
        }
        let find = |name: &str| {
            all.iter().find(|(given, _)| given.eq_ignore_ascii_case(name)).map(|(_, value)| *value)
        };
        let service = match self.service {
            Kind::Table => Service::Table,
            Kind::Queue => Service::Queue { queue: "", headers: &all },
        };
        let (account, query) = (self.account.as_str(), query.pairs());
        let signed = Request { method, account, path: bare, query, header: &find, service };
        let authorization =
            sign::shared_key(&signed, Scheme::SharedKey, &self.key).expect("it has a date");
        let mut text = format!("{method} {target} HTTP/1.1\r\nHost: {}\r\n", self.address);
        for (name, value) in &all {
            let _ = write!(text, "{name}: {value}\r\n");
        }
        let _ = write!(text, "Authorization: {authorization}\r\n");
        text.push_str("\r\n");
        text.into_bytes()
    }

    /// Sends a signed request and reads the answer. After an error nobody knows whether it took effect.
    pub fn try_request(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> io::Result<Response> {
        let mut pause = self.retries.pause;
        for _ in 0..self.retries.most {
            let answer = self.request_once(method, path, headers, body);
            if answer.as_ref().is_ok_and(|response| response.status < 500) {
                return answer;
            }
            self.repeated += 1;
            std::thread::sleep(pause);
            pause *= 2;
        }
        self.request_once(method, path, headers, body)
    }

    fn request_once(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> io::Result<Response> {
        let length = (!body.is_empty() || method != "GET").then_some(body.len());
        let mut bytes = self.head(method, path, headers, length);
        bytes.extend_from_slice(body);
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => Connection::open(self.address)?,
        };
        connection.send(&bytes)?;
        let response = connection.receive(method)?;
        if !response.closes() {
            self.connection = Some(connection);
        }
        Ok(response)
    }

    /// As [`Client::try_request`], but the server must answer.
    pub fn request(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Response {
        self.try_request(method, path, headers, body)
            .unwrap_or_else(|error| panic!("no answer to {method}: {error}"))
    }

    /// Creates a table; panics unless it was created.
    pub fn create_table(&mut self, name: &str) {
        let body = serde_json::json!({ "TableName": name }).to_string();
        let headers = [("Content-Type", "application/json"), ("Prefer", "return-no-content")];
        let response = self.request("POST", "Tables", &headers, body.as_bytes());
        assert_eq!(response.status, 204, "{}", response.text());
    }

    /// Inserts an entity given as JSON; 204 when it worked.
    pub fn insert(&mut self, table: &str, entity: &Value) -> io::Result<Response> {
        let headers = [("Content-Type", "application/json"), ("Prefer", "return-no-content")];
        self.try_request("POST", table, &headers, entity.to_string().as_bytes())
    }

    /// Replaces (`PUT`) or merges (`PATCH`); without a tag it may also insert.
    pub fn update(
        &mut self,
        method: &str,
        path: &str,
        if_match: Option<&str>,
        properties: &Value,
    ) -> io::Result<Response> {
        let mut headers = vec![("Content-Type", "application/json")];
        headers.extend(if_match.map(|tag| ("If-Match", tag)));
        self.try_request(method, path, &headers, properties.to_string().as_bytes())
    }

    /// Deletes an entity.
    pub fn delete(&mut self, path: &str, if_match: &str) -> io::Result<Response> {
        self.try_request("DELETE", path, &[("If-Match", if_match)], b"")
    }

    /// Reads one entity.
    pub fn get(&mut self, table: &str, partition: &str, row: &str) -> Response {
        self.request("GET", &entity_path(table, partition, row), &[], b"")
    }

    /// Every entity that satisfies the filter, over all pages.
    pub fn query(&mut self, table: &str, filter: &str) -> Vec<Value> {
        self.try_query(table, filter).unwrap_or_else(|reason| panic!("{reason}"))
    }

    /// As [`Client::query`], or what the server said instead.
    pub fn try_query(&mut self, table: &str, filter: &str) -> Result<Vec<Value>, String> {
        let mut entities = Vec::new();
        let mut token = String::new();
        loop {
            let path = format!("{table}()?$filter={}{token}", encode(filter));
            let response =
                self.try_request("GET", &path, &[], b"").map_err(|error| error.to_string())?;
            if response.status != 200 {
                return Err(format!("{}: {}", response.status, response.text()));
            }
            let mut page = response.json();
            let Value::Array(values) = page["value"].take() else { panic!("a page has a list") };
            entities.extend(values);
            token.clear();
            for name in ["NextPartitionKey", "NextRowKey"] {
                if let Some(value) = response.header(&format!("x-ms-continuation-{name}")) {
                    let _ = write!(token, "&{name}={}", encode(value));
                }
            }
            if token.is_empty() {
                return Ok(entities);
            }
        }
    }

    /// Sends an operation by itself that could also be part of a batch.
    pub fn send(&mut self, operation: &Operation) -> io::Result<Response> {
        let body = operation.body.as_ref().map(Value::to_string).unwrap_or_default();
        let mut headers = Vec::new();
        if operation.body.is_some() {
            headers.push(("Content-Type", "application/json"));
        }
        if operation.method == "POST" {
            headers.push(("Prefer", "return-no-content"));
        }
        headers.extend(operation.if_match.as_deref().map(|tag| ("If-Match", tag)));
        self.try_request(operation.method, &operation.path, &headers, body.as_bytes())
    }

    /// Runs an entity group transaction.
    pub fn batch(&mut self, operations: &[Operation]) -> io::Result<BatchAnswer> {
        let base = format!("http://{}/{}", self.address, self.account);
        let (content_type, body) = multipart(&base, operations);
        let response =
            self.try_request("POST", "$batch", &[("Content-Type", &content_type)], &body)?;
        Ok(BatchAnswer::new(response))
    }
}

/// Percent-encodes everything but letters, digits and `-_.~`.
pub fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

/// The path of an entity below the account.
pub fn entity_path(table: &str, partition: &str, row: &str) -> String {
    let quoted = |text: &str| encode(&text.replace('\'', "''"));
    format!("{table}(PartitionKey='{}',RowKey='{}')", quoted(partition), quoted(row))
}
