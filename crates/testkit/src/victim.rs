//! A server that is to be mistreated.

use crate::client::Client;
use crate::connection::{Connection, Response};
use crate::server::TestServer;
use serde_json::json;

/// How much more memory a server may hold after the worst that we send, in bytes. Its caches fill and
/// the largest legal bodies are 4 MiB; a leak or an unbounded buffer is far beyond.
const RSS_GROWTH_MAX: u64 = 96 * 1024 * 1024;

/// A server with a table `Things`, and what it must still be like in the end.
#[derive(Debug)]
pub struct Victim {
    /// The server.
    pub server: TestServer,
    /// A client of it.
    pub client: Client,
    rss: u64,
}

impl Victim {
    /// Starts a server, creates the table and notes how large it is.
    pub fn start() -> Self {
        let server = TestServer::start();
        let mut client = server.client();
        client.create_table("Things");
        let entity = json!({ "PartitionKey": "p", "RowKey": "r", "n": 1 });
        assert_eq!(client.insert("Things", &entity).expect("answered").status, 204);
        let rss = server.rss();
        Self { server, client, rss }
    }

    /// The answer must be an error of the client with a code; its status.
    pub fn refused(&self, what: &str, response: &Response) -> u16 {
        let (status, text) = (response.status, response.text());
        assert!((400..500).contains(&status) || status == 501, "{what}: {status} {text}");
        assert!(response.code().is_some(), "{what}: an error has a code: {status} {text}");
        self.still_serves(what);
        status
    }

    /// Posts a body.
    pub fn post(&mut self, path: &str, content_type: &str, body: &[u8]) -> Response {
        self.client.request("POST", path, &[("Content-Type", content_type)], body)
    }

    /// A connection to send anything on.
    pub fn connect(&self) -> Connection {
        Connection::open(self.server.address()).expect("the server accepts")
    }

    /// A client that does nothing wrong is served.
    pub fn still_serves(&self, what: &str) {
        let found = self.server.client().get("Things", "p", "r");
        assert_eq!(found.status, 200, "after {what}: {}", found.text());
    }

    /// Nothing panicked and memory is what it was.
    pub fn unharmed(mut self) {
        self.still_serves("everything");
        assert!(self.server.is_running());
        let log = self.server.log();
        assert!(!log.contains("panicked"), "{log}");
        let (before, after) = (self.rss, self.server.rss());
        println!("memory: {} KiB, then {} KiB", before / 1024, after / 1024);
        assert!(after <= before + RSS_GROWTH_MAX, "memory grew from {before} to {after} bytes");
    }
}
