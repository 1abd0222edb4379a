//! Messages in a changeset: they are put and deleted with the entities beside them, or not at all.
//!
//! An extension: `docs/extensions.md`. A part is one of these if its URL is relative and starts with `$queue/`, or is
//! absolute and names the queue endpoint. Every other URL is one of the Table service.

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
    /// Where messages are prepared.
    pub queues: QueueService,
}

/// What is known of the request around a part.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Around<'a> {
    pub(crate) outbox: &'a Outbox,
    /// Whom the batch was sent to.
    pub(crate) host: &'a str,
    /// The part of the path in front of the resource: the account, if the path names it.
    pub(crate) prefix: &'a str,
    pub(crate) account: &'a str,
    pub(crate) version: ApiVersion,
}

impl Around<'_> {
    /// The operation of a part that is about a message; none if it is about something else.
    pub(crate) fn read(&self, part: &Part<'_>) -> Option<Result<MessageOperation, Failure>> {
        if let Some((path, query)) = relative_target(part.target, self.prefix) {
            return Some(self.operation(part, path, query));
        }
        let json = part.header("content-type").is_some_and(|media| media.contains("json"));
        let (address, query) = queue_address(part.target, json, self.host)?;
        if address.account != self.account {
            let denied = rowhouse_service_table::TableError::Denied(Denied::Operation);
            return Some(Err(denied.into()));
        }
        if address.secondary {
            return Some(Err(Refusal::SecondaryWrite.into()));
        }
        Some(self.operation(part, address.path, query))
    }

    fn operation(
        &self,
        part: &Part<'_>,
        path: &str,
        query: &str,
    ) -> Result<MessageOperation, Failure> {
        let head = Head {
            method: part.method,
            path,
            query: Query::parse(query)?,
            headers: Headers::Part(part),
            spelling: None,
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

/// Path and query below `$queue` of a target without a host. The path may start with that of the service.
fn relative_target<'a>(target: &'a str, prefix: &str) -> Option<(&'a str, &'a str)> {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let path = match path.strip_prefix(prefix) {
        Some(rest) if rest.starts_with('/') => rest,
        _ => path,
    };
    let path = path.strip_prefix('/').unwrap_or(path);
    let below = ["$queue", "%24queue"].iter().find_map(|name| path.strip_prefix(name))?;
    below.starts_with('/').then_some((below, query))
}

/// Address and query of a target that names the queue endpoint, in one of two ways.
///
/// The host has the label of queues, or it is the host that the batch was sent to, on another port. A client may see other
/// ports than those that this server listens on, so the port says nothing more. Then the path must be one of messages, and
/// the body not JSON: entities are sent as JSON, and messages as XML.
fn queue_address<'a>(
    target: &'a str,
    json: bool,
    own_host: &str,
) -> Option<(Address<'a>, &'a str)> {
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
    let address = address::parse(Service::Queue, scheme, host, path);
    if address::host_style_account(Service::Queue, host).is_some() {
        return Some((address, query));
    }
    let (name, own_name) = (address::host_name(host), address::host_name(own_host));
    let both_local = address::is_loopback(name) && address::is_loopback(own_name);
    let same_host = name.eq_ignore_ascii_case(own_name) || both_local;
    (same_host && !json && names_messages(address.path)).then_some((address, query))
}

/// Whether a path is `/QUEUE/messages` or `/QUEUE/messages/ID`.
fn names_messages(path: &str) -> bool {
    let mut segments = path.split('/').skip(1);
    let queue = segments.next().is_some_and(|queue| !queue.is_empty());
    queue && segments.next() == Some("messages") && segments.nth(1).is_none()
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
            let (address, query) = queue_address(target, false, host)?;
            Some((address.account.to_owned(), address.path.to_owned(), query.to_owned()))
        };
        let found = |account: &str, path: &str, query: &str| {
            Some((account.to_owned(), path.to_owned(), query.to_owned()))
        };
        let here = "127.0.0.1:10002";
        let messages = || found("a", "/q/messages", "");
        let cases = [
            ("http://127.0.0.1:10001/a/q/messages?x=1", here, found("a", "/q/messages", "x=1")),
            ("http://127.0.0.1:20001/a/q/messages", here, messages()),
            ("http://127.0.0.1/a/q/messages", here, messages()),
            ("http://localhost:10001/a/q/messages", here, messages()),
            ("http://[::1]:10001/a/q/messages/id", here, found("a", "/q/messages/id", "")),
            ("https://a.queue.example.org/q", "a.table.example.org", found("a", "/q", "")),
            ("https://a.queue.example.org:8/q", here, found("a", "/q", "")),
            ("http://box:10001/a/q/messages", "box:10002", messages()),
            ("http://box:10001/a/q/messages", "box", messages()),
            ("HTTP://127.0.0.1:10001/a/q/messages", here, messages()),
            ("http://10.0.0.5:10001/a/q/messages", "10.0.0.5:10002", messages()),
            ("http://10.0.0.6:10001/a/q/messages", "10.0.0.5:10002", None),
            ("http://10.0.0.5:10001/a/q/messages", here, None),
            ("http://127.0.0.1:10001/a/q/messages", "10.0.0.5:10002", None),
            ("ftp://127.0.0.1:10001/a/q/messages", here, None),
            ("ftp://a.queue.example.org/q", here, None),
            ("://127.0.0.1:10001/a/q/messages", here, None),
            ("/a/t?x=http://127.0.0.1:10001/a/q/messages", here, None),
            ("/a/t(PartitionKey='http://a.queue.example.org/q',RowKey='')", here, None),
            ("http://127.0.0.1:10002/a/q/messages", here, None),
            ("http://127.0.0.1:20002/a/people", here, None),
            ("http://127.0.0.1:20002/a/people/people", here, None),
            ("http://127.0.0.1:20002/a/q/messages/a/b", here, None),
            ("http://127.0.0.1:20002/a//messages", here, None),
            ("http://127.0.0.1:20002/a/people(PartitionKey='p',RowKey='r')", here, None),
            ("http://127.0.0.1:10001?x", here, None),
            ("http://other:10001/a/q/messages", here, None),
            ("http://a.table.example.org:10001/q/messages", here, None),
            ("http://queue.example.org:10001/a/q/messages", here, None),
            ("/a/q/messages", here, None),
            ("q/messages", here, None),
        ];
        for (target, host, expected) in cases {
            assert_eq!(find(target, host), expected, "{target} at {host}");
        }
        let below_table = "http://127.0.0.1:20002/a/messages/messages";
        assert!(queue_address(below_table, true, here).is_none(), "a table may have that name");
    }

    #[test]
    fn which_relative_urls_name_a_queue() {
        let cases = [
            ("$queue/q/messages", Some(("/q/messages", ""))),
            ("/$queue/q/messages?x=1", Some(("/q/messages", "x=1"))),
            ("/a/$queue/q/messages/id?x", Some(("/q/messages/id", "x"))),
            ("%24queue/q/messages", Some(("/q/messages", ""))),
            ("$queue", None),
            ("$queues/q/messages", None),
            ("/b/$queue/q/messages", None),
            ("/a/people?x=$queue/q/messages", None),
            ("http://127.0.0.1:10002/a/$queue/q/messages", None),
        ];
        for (target, expected) in cases {
            assert_eq!(relative_target(target, "/a"), expected, "{target}");
        }
        assert_eq!(relative_target("/$queue/q", ""), Some(("/q", "")));
    }

    proptest! {
        #[test]
        fn any_target_is_answered(target in "\\PC{0,30}|(http://|[a:/?.0-9\\]\\[]|queue){0,12}") {
            let _ = queue_address(&target, false, "127.0.0.1:10002");
            let _ = relative_target(&target, "/a");
        }
    }
}
