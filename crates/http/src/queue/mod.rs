//! The Queue service over HTTP: from a request to an [`Operation`](router::Operation) and from its outcome to a response.
//!
//! Once its credentials are good, a request is answered in this order, and the first complaint is the answer: names, options,
//! permission, body, overload, and then whatever the services have to say.

mod dispatch;
pub(crate) mod error;
pub(crate) mod router;

pub(crate) use dispatch::{created, deleted};
pub(crate) use error::Failure;

use crate::front::answer::AnswerBody;
use crate::front::refusal::Refusal;
use crate::front::reply::Reply;
use crate::front::{Front, Progress, Response, Service, Told, Visit};
use crate::{Handler, Peer, Request};
use dispatch::Context;
use http::header::HeaderValue;
use hyper::body::Incoming;
use rowhouse_service_account::AccountId;
use rowhouse_service_queue::QueueService;
use rowhouse_types::{QueueName, Service as Kind, StoredPolicy};
use rowhouse_wire::version::ApiVersion;
use std::sync::Arc;

/// What the handler is built of.
#[derive(Clone, Debug)]
pub struct QueueHandlerConfig {
    /// Where requests come in.
    pub front: Arc<Front>,
    /// Queues and messages.
    pub queues: QueueService,
    /// The same on a copy that may be behind, for what is read at the secondary endpoint; without, `queues` is read there.
    pub secondary: Option<QueueService>,
}

/// Answers requests to the Queue service.
#[derive(Debug)]
pub struct QueueHandler {
    config: QueueHandlerConfig,
}

impl QueueHandler {
    /// Ready to answer.
    pub fn new(config: QueueHandlerConfig) -> Self {
        Self { config }
    }
}

impl Handler for QueueHandler {
    type Body = AnswerBody;

    async fn handle(&self, request: Request, peer: Peer) -> Response {
        self.config.front.handle(self, request, peer).await
    }

    fn busy(&self, request: &http::request::Parts) -> Response {
        self.config.front.busy(self, request)
    }
}

impl Service for QueueHandler {
    const KIND: Kind = Kind::Queue;
    const SERVER: HeaderValue =
        HeaderValue::from_static(concat!("Rowhouse-Queue/", env!("CARGO_PKG_VERSION")));
    type Failure = Failure;

    async fn stored_policy(
        &self,
        account: AccountId,
        resource: &str,
        id: &str,
    ) -> Result<Option<StoredPolicy>, Failure> {
        let Ok(queue) = resource.parse::<QueueName>() else { return Ok(None) };
        Ok(self.config.queues.stored_policy(account, &queue, id).await?)
    }

    async fn answer(
        &self,
        visit: Visit<'_>,
        body: &mut Incoming,
        progress: &mut Progress,
    ) -> Result<Reply, Failure> {
        let front = &self.config.front;
        let Visit { head, address, account, grant, version, now, .. } = &visit;
        let route = router::route(head, account.name.as_str(), *version)?;
        progress.operation = route.name();
        progress.changes = route.is_write();
        if address.secondary && route.is_write() {
            return Err(Refusal::SecondaryWrite.into());
        }
        route.check(grant)?;
        let content = match route.body_limit() {
            Some(limit) => Some(front.read(&visit, body, limit, progress).await?),
            None => None,
        };
        let body: &[u8] = content.as_ref().map_or(&[], |content| &content.bytes);
        let operation = router::operation(route, body, *version)?;
        if let Some(bytes) = operation.answer_bytes() {
            front.reserve(&visit, bytes, progress).await?;
        }
        let _ticket = front.admission.enter(account.id, operation.is_scan()).await?;
        let copy = self.config.secondary.as_ref().filter(|_| address.secondary);
        let cx = Context {
            queues: copy.unwrap_or(&self.config.queues),
            accounts: &front.config.accounts,
            account,
            grant,
            base: &address.base,
            secondary: address.secondary,
            version: *version,
            now: *now,
        };
        dispatch::dispatch(cx, operation).await
    }

    fn failed(&self, failure: &Failure, told: &Told<'_>) -> Reply {
        failed(failure, told)
    }

    fn refusal(failure: &Failure) -> Option<&Refusal> {
        match failure {
            Failure::Refused(refusal) => Some(refusal),
            _ => None,
        }
    }

    fn detail(failure: &Failure) -> Option<String> {
        failure.detail()
    }
}

/// The answer to a request that failed.
fn failed(failure: &Failure, told: &Told<'_>) -> Reply {
    let (answer, details) = failure.answer();
    let mut reply = Reply::plain(answer.status);
    reply.push("Content-Type", "application/xml");
    if told.version.is_none_or(|version| ApiVersion::V2017_07_29 <= version) {
        reply.push("x-ms-error-code", answer.code);
    }
    let details: Vec<_> = details.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let (code, message) = (answer.code, &answer.message);
    let body = rowhouse_wire::error::plain_xml(code, message, &details, told.request_id, told.now);
    reply.body = body.into_bytes().into();
    reply
}
