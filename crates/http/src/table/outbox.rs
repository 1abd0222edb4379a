//! Messages in a changeset: they are put and deleted with the entities beside them, or not at all.
//!
//! Ours, not the original's: `docs/extensions.md`. A part is one of these if its URL is absolute and names the queue endpoint
//! of this server; every other URL means what it always did.

use super::error::Failure;
use crate::front::address::{self, Address};
use crate::front::head::{Head, Headers};
use crate::front::refusal::Refusal;
use crate::queue;
use crate::queue::router::{self, Bare, Route};
use rowhouse_service_queue::{MessageOperation, QueueService};
use rowhouse_types::{Denied, Service};
use rowhouse_wire::batch::Part;
use rowhouse_wire::uri::Query;
use rowhouse_wire::version::ApiVersion;

/// Where messages of a batch go.
#[derive(Clone, Debug)]
pub struct Outbox {
    /// Queues and messages.
    pub queues: QueueService,
    /// The port of the queue endpoint.
    pub port: u16,
}

/// What is known of the request around a part.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Around<'a> {
    pub(crate) outbox: &'a Outbox,
    /// Whom the batch was sent to.
    pub(crate) host: &'a str,
    pub(crate) account: &'a str,
    pub(crate) version: ApiVersion,
}

impl Around<'_> {
    /// The operation of a part that is about a message; none if it is about something else.
    pub(crate) fn read(&self, part: &Part<'_>) -> Option<Result<MessageOperation, Failure>> {
        let (address, query) = queue_address(part.target, self.host, self.outbox.port)?;
        Some(self.operation(part, &address, query))
    }

    fn operation(
        &self,
        part: &Part<'_>,
        address: &Address<'_>,
        query: &str,
    ) -> Result<MessageOperation, Failure> {
        if address.account != self.account {
            return Err(rowhouse_service_table::TableError::Denied(Denied::Operation).into());
        }
        if address.secondary {
            return Err(Refusal::SecondaryWrite.into());
        }
        let head = Head {
            method: part.method,
            path: address.path,
            query: Query::parse(query)?,
            headers: Headers::Part(part),
        };
        match router::route(&head, self.account, self.version)? {
            Route::PutMessage(queue, times) => {
                let text = router::text(part.body, self.version)?;
                let (hide_seconds, live_seconds) = (times.hide_seconds, times.live_seconds);
                Ok(MessageOperation::Put { queue, text, hide_seconds, live_seconds })
            }
            Route::Bare(Bare::DeleteMessage(queue, receipt)) => {
                Ok(MessageOperation::Delete { queue, receipt })
            }
            Route::Bare(_)
            | Route::UpdateMessage(..)
            | Route::SetPolicies(_)
            | Route::SetProperties => Err(Failure::NotInBatch),
        }
    }
}

/// The address and the query of a target that names the queue endpoint: a host with the label of queues, or the port of the
/// endpoint on the host that the batch was sent to, which on this machine itself has several names. What was sent to is never one: that is the table endpoint.
fn queue_address<'a>(target: &'a str, own_host: &str, port: u16) -> Option<(Address<'a>, &'a str)> {
    let (scheme, rest) = target.split_once("://")?;
    if !["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known)) {
        return None;
    }
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (host, rest) = rest.split_at(end);
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    if host.eq_ignore_ascii_case(own_host) {
        return None;
    }
    let labelled = address::host_style_account(Service::Queue, host).is_some();
    let (name, own_name) = (address::host_name(host), address::host_name(own_host));
    let both_local = address::is_loopback(name) && address::is_loopback(own_name);
    let same_host = name.eq_ignore_ascii_case(own_name) || both_local;
    if labelled || same_host && port_of(scheme, host) == Some(port) {
        return Some((address::parse(Service::Queue, scheme, host, path), query));
    }
    None
}

fn port_of(scheme: &str, host: &str) -> Option<u16> {
    let after = host.rsplit_once(']').map_or(host, |(_, after)| after);
    match after.rsplit_once(':') {
        Some((_, port)) => port.parse().ok(),
        None if scheme.eq_ignore_ascii_case("https") => Some(443),
        None => Some(80),
    }
}

/// What a failure of the service is within the batch.
pub(crate) fn failure(error: rowhouse_service_queue::QueueError) -> Failure {
    queue::Failure::from(error).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn which_urls_name_the_queue_endpoint() {
        let find = |target, host| {
            let (address, query) = queue_address(target, host, 10001)?;
            Some((address.account.to_owned(), address.path.to_owned(), query.to_owned()))
        };
        let found = |account: &str, path: &str, query: &str| {
            Some((account.to_owned(), path.to_owned(), query.to_owned()))
        };
        let here = "127.0.0.1:10002";
        let cases = [
            ("http://127.0.0.1:10001/a/q/messages?x=1", here, found("a", "/q/messages", "x=1")),
            ("http://localhost:10001/a/q", here, found("a", "/q", "")),
            ("http://[::1]:10001/a/q", here, found("a", "/q", "")),
            ("https://a.queue.example.org/q", "a.table.example.org", found("a", "/q", "")),
            ("https://a.queue.example.org:8/q", here, found("a", "/q", "")),
            ("http://box:10001/a/q", "box:10002", found("a", "/q", "")),
            ("http://box:10001?x", "box:10002", found("", "", "x")),
            ("HTTP://127.0.0.1:10001/a/q", here, found("a", "/q", "")),
            ("http://10.0.0.5:10001/a/q", "10.0.0.5:10002", found("a", "/q", "")),
            ("http://10.0.0.6:10001/a/q", "10.0.0.5:10002", None),
            ("http://10.0.0.5:10001/a/q", here, None),
            ("http://127.0.0.1:10001/a/q", "10.0.0.5:10002", None),
            ("ftp://127.0.0.1:10001/a/q", here, None),
            ("ftp://a.queue.example.org/q", here, None),
            ("://127.0.0.1:10001/a/q", here, None),
            ("/a/t?x=http://127.0.0.1:10001/a/q", here, None),
            ("/a/t(PartitionKey='http://a.queue.example.org/q',RowKey='')", here, None),
            ("http://127.0.0.1:10002/a/q", here, None),
            ("http://127.0.0.1:10001/a/q", "127.0.0.1:10001", None),
            ("http://other:10001/a/q", here, None),
            ("http://127.0.0.1/a/q", here, None),
            ("http://a.table.example.org:10001/q", here, None),
            ("http://queue.example.org:10001/a/q", here, None),
            ("/a/q/messages", here, None),
            ("q/messages", here, None),
            ("http://127.0.0.1:x/a/q", here, None),
        ];
        for (target, host, expected) in cases {
            assert_eq!(find(target, host), expected, "{target} at {host}");
        }
        assert!(queue_address("http://box/a/q", "box:10002", 80).is_some());
        assert!(queue_address("https://box/a/q", "box:10002", 443).is_some());
    }

    proptest! {
        #[test]
        fn any_target_is_answered(target in "\\PC{0,30}|(http://|[a:/?.0-9\\]\\[]|queue){0,12}") {
            let _ = queue_address(&target, "127.0.0.1:10002", 10001);
        }
    }
}
