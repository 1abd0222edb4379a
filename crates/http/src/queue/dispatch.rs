//! One `match` from an operation to its answer: ask the service, encode, answer.

use super::error::Failure;
use super::router::{Bare, ListQueues, Operation};
use crate::front::reply::{NO_CACHE, Reply};
use http::StatusCode;
use rowhouse_service_account::{AccountService, AccountView};
use rowhouse_service_queue::{Caller, Created, Message, QueueError, QueuePage, QueueService};
use rowhouse_types::{Grant, Service, Timestamp, limits};
use rowhouse_wire::version::ApiVersion;
use rowhouse_wire::xml::message::MessageView;
use rowhouse_wire::xml::queues::{Asked, QueueView};
use rowhouse_wire::{metadata, receipt, xml};
use std::borrow::Cow;

/// Everything that a handler may need beside the operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context<'a> {
    pub(crate) queues: &'a QueueService,
    pub(crate) accounts: &'a AccountService,
    pub(crate) account: &'a AccountView,
    pub(crate) grant: &'a Grant,
    /// URL of the service as the client sees it.
    pub(crate) base: &'a str,
    pub(crate) secondary: bool,
    pub(crate) version: ApiVersion,
    pub(crate) now: Timestamp,
}

/// Carries the operation out.
pub(crate) async fn dispatch(cx: Context<'_>, operation: Operation) -> Result<Reply, Failure> {
    let caller = Caller { account: cx.account.id, grant: cx.grant };
    match operation {
        Operation::Bare(wanted) => bare(cx, caller, wanted).await,
        Operation::PutMessage(queue, times, text) => {
            let (hide, live) = (times.hide_seconds, times.live_seconds);
            let message = cx.queues.put(caller, &queue, text, hide, live).await?;
            Ok(created(&message, cx.version))
        }
        Operation::UpdateMessage(queue, target, hide, text) => {
            let message = cx.queues.update(caller, &queue, target, hide, text).await?;
            let mut reply = Reply::plain(StatusCode::NO_CONTENT);
            reply.push("x-ms-popreceipt", receipt::encode(message.receipt));
            reply.push("x-ms-time-next-visible", message.visible.rfc1123());
            Ok(reply)
        }
        Operation::SetPolicies(queue, policies) => {
            cx.queues.set_policies(caller, &queue, policies).await?;
            Ok(Reply::plain(StatusCode::NO_CONTENT))
        }
        Operation::SetProperties(update) => {
            cx.accounts.set_properties(cx.grant, cx.account, Service::Queue, update).await?;
            Ok(Reply::plain(StatusCode::ACCEPTED))
        }
    }
}

async fn bare(cx: Context<'_>, caller: Caller<'_>, wanted: Bare) -> Result<Reply, Failure> {
    match wanted {
        Bare::ListQueues(wanted) => list(cx, caller, wanted).await,
        Bare::CreateQueue(queue, metadata) => {
            let most = cx.account.limits.queues;
            Ok(Reply::plain(match cx.queues.create_queue(caller, &queue, metadata, most).await? {
                Created::New => StatusCode::CREATED,
                Created::Same => StatusCode::NO_CONTENT,
            }))
        }
        Bare::DeleteQueue(queue) => {
            cx.queues.delete_queue(caller, &queue).await?;
            Ok(deleted())
        }
        Bare::GetMetadata(queue) => {
            let (queue, count) = cx.queues.metadata(caller, &queue).await?;
            let mut reply = Reply::plain(StatusCode::OK);
            reply.headers.push(NO_CACHE);
            // The answer to HEAD says it too.
            reply.push("Content-Length", "0");
            reply.push("x-ms-approximate-messages-count", count.to_string());
            for (name, value) in &queue.metadata {
                let name = [metadata::PREFIX, name].concat();
                reply.headers.push((Cow::Owned(name), Cow::Owned(value.to_string())));
            }
            Ok(reply)
        }
        Bare::SetMetadata(queue, metadata) => {
            cx.queues.set_metadata(caller, &queue, metadata).await?;
            Ok(Reply::plain(StatusCode::NO_CONTENT))
        }
        Bare::GetPolicies(queue) => {
            let policies = cx.queues.policies(caller, &queue).await?;
            Ok(read(xml::acl::write(&policies)))
        }
        Bare::GetMessages { queue, limit, hide_seconds } => {
            let messages = cx.queues.take(caller, &queue, limit, hide_seconds).await?;
            write_messages(messages, |message| MessageView {
                taken: Some((message.receipt, message.visible)),
                ..peeked(message)
            })
            .await
        }
        Bare::PeekMessages { queue, limit } => {
            let messages = cx.queues.peek(caller, &queue, limit).await?;
            write_messages(messages, peeked).await
        }
        Bare::DeleteMessage(queue, target) => {
            cx.queues.delete(caller, &queue, target).await?;
            Ok(deleted())
        }
        Bare::ClearMessages(queue) => {
            cx.queues.clear(caller, &queue).await?;
            Ok(deleted())
        }
        Bare::GetProperties => {
            let properties = cx.accounts.properties(cx.grant, cx.account, Service::Queue)?;
            Ok(read(xml::service_properties::write(properties)))
        }
        Bare::GetStats => stats(cx).await,
    }
}

async fn list(cx: Context<'_>, caller: Caller<'_>, wanted: ListQueues) -> Result<Reply, Failure> {
    let prefix = wanted.prefix.as_deref().unwrap_or_default();
    let limit = wanted.max_results.unwrap_or(limits::QUEUES_PAGE_MAX);
    let page = cx.queues.list_queues(caller, prefix, &wanted.from, limit).await?;
    let is_long = wanted.metadata && is_long(&page);
    let (base, account) = (cx.base.to_owned(), cx.account.name.as_str().to_owned());
    let write = move || {
        let asked = Asked {
            prefix: wanted.prefix.as_deref(),
            marker: wanted.marker.as_deref(),
            max_results: wanted.max_results,
        };
        let queues = page.queues.iter().map(|queue| QueueView {
            name: queue.name.as_str(),
            metadata: wanted.metadata.then_some(&queue.metadata[..]),
        });
        let next = page.next.as_ref().map(|queue| queue.name.as_str());
        let most = limits::PAGE_REPLY_BYTES_MAX;
        xml::queues::write(&base, &account, asked, queues, next, most)
    };
    Ok(read(written(is_long, write).await?))
}

/// A list of messages, in XML.
async fn write_messages(
    messages: Vec<Message>,
    view: impl Fn(&Message) -> MessageView<'_> + Send + 'static,
) -> Result<Reply, Failure> {
    // What `<` and `>`, the most frequent escaped characters, become is four times as long.
    const GROWTH: usize = 4;
    let bytes = messages.iter().map(|message| message.text.len()).sum::<usize>();
    let is_long = limits::PAGE_INLINE_BYTES_MAX < GROWTH * bytes;
    let write = move || xml::message::write(messages.iter().map(view));
    Ok(read(written(is_long, write).await?))
}

/// Megabytes are not written while others wait for the thread, but on another one.
async fn written(
    is_long: bool,
    write: impl FnOnce() -> String + Send + 'static,
) -> Result<String, QueueError> {
    if !is_long {
        return Ok(write());
    }
    let written = tokio::task::spawn_blocking(write).await;
    written.map_err(|error| QueueError::Unavailable(error.into()))
}

/// Whether there is more metadata than is written at once.
fn is_long(page: &QueuePage) -> bool {
    let mut bytes = 0;
    let pairs = page.queues.iter().flat_map(|queue| &queue.metadata);
    pairs.into_iter().any(|(name, value)| {
        bytes += 2 * name.len() + value.len();
        limits::PAGE_WHOLE_BYTES_MAX < bytes
    })
}

async fn stats(cx: Context<'_>) -> Result<Reply, Failure> {
    // The grant is that of reading properties.
    cx.accounts.properties(cx.grant, cx.account, Service::Queue)?;
    if !cx.secondary {
        return Err(Failure::Parameter { name: "comp", value: "stats".to_owned(), reason: "" });
    }
    let (status, synced) = match cx.queues.synced().await {
        Ok(synced) => ("live", Some(synced.unwrap_or(cx.now))),
        Err(_) => ("unavailable", None),
    };
    Ok(read(xml::stats::write(status, synced)))
}

/// What was asked for, in XML.
fn read(body: String) -> Reply {
    let mut reply = Reply::xml(body);
    reply.headers.push(NO_CACHE);
    reply
}

/// A message was put. Older clients are not told more.
pub(crate) fn created(message: &Message, version: ApiVersion) -> Reply {
    let mut reply = if version < ApiVersion::V2016_05_31 {
        Reply::plain(StatusCode::CREATED)
    } else {
        Reply::xml(xml::message::write([MessageView {
            taken: Some((message.receipt, message.visible)),
            content: None,
            ..peeked(message)
        }]))
    };
    reply.status = StatusCode::CREATED;
    reply
}

/// Something is gone.
pub(crate) fn deleted() -> Reply {
    Reply::plain(StatusCode::NO_CONTENT)
}

fn peeked(message: &Message) -> MessageView<'_> {
    MessageView {
        id: message.id,
        inserted: message.inserted,
        expires: message.expires,
        taken: None,
        content: Some((message.taken, &message.text)),
    }
}
