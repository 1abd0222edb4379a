//! The Table service over HTTP: from a request to an [`Operation`](router::Operation) and from its outcome to
//! a response.
//!
//! Once its credentials are good, a request is answered in this order, and the first complaint is the answer: form of the
//! URL, overload, body, and then whatever the services have to say.

mod batch;
mod dispatch;
mod error;
mod explain;
mod feed;
mod head;
mod index;
mod outbox;
mod reply;
mod router;
mod ttl;

pub use outbox::Outbox;

use crate::front::answer::AnswerBody;
use crate::front::head::{Head, Headers};
use crate::front::refusal::Refusal;
use crate::front::reply::Reply;
use crate::front::shares::Shares;
use crate::front::{Front, Progress, Response, Service, Told, Visit};
use crate::{Handler, Peer, Request};
use dispatch::Context;
use error::Failure;
use http::header::{CONTENT_TYPE, HeaderValue};
use hyper::body::Incoming;
use reply::ErrorForm;
use rowhouse_service_account::AccountId;
use rowhouse_service_table::{Reach, TableService};
use rowhouse_types::{Service as Kind, StoredPolicy, TableName, limits};
use rowhouse_wire::media::Metadata;
use rowhouse_wire::uri::Query;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// What the handler is built of, and its settings.
#[derive(Clone, Debug)]
pub struct TableHandlerConfig {
    /// Where requests come in.
    pub front: Arc<Front>,
    /// Tables and entities.
    pub tables: TableService,
    /// The same on a copy that may be behind, for what is read at the secondary endpoint; without, `tables` is read there.
    pub secondary: Option<TableService>,
    /// Where messages go that stand in a batch of entities.
    pub outbox: Outbox,
    /// Turns true when the server stops: nobody waits for changes any longer.
    pub stopping: watch::Receiver<bool>,
}

/// Answers requests to the Table service.
#[derive(Debug)]
pub struct TableHandler {
    config: TableHandlerConfig,
    /// Requests that wait for changes: they are not worked on, and still are not without limit.
    waiting: Arc<Shares>,
}

impl TableHandler {
    async fn batch(
        &self,
        cx: Context<'_>,
        visit: &Visit<'_>,
        body: &[u8],
    ) -> Result<Reply, Failure> {
        let front = &self.config.front;
        let Visit { head, address, account, .. } = visit;
        let request = batch::parse(head.headers.get(&CONTENT_TYPE), body);
        let scan = matches!(request, Ok(rowhouse_wire::batch::Request::Query(_)));
        let _ticket = front.admission.enter(account.id, scan).await?;
        let draw = || front.config.random.guid().to_string();
        let request_id = visit.request_id.to_owned();
        let ids = batch::Ids { request: request_id, batch: draw(), changeset: draw() };
        let reach = if cx.strict { Reach::Partition } else { batch::reach(head.headers)? };
        // The original does not know messages here.
        let around = (!cx.strict).then_some(outbox::Around {
            outbox: &self.config.outbox,
            host: visit.host,
            prefix: address.prefix,
            account: account.name.as_str(),
            version: visit.version,
        });
        batch::run(cx, address.prefix, around, reach, request, &ids).await
    }

    /// Ready to answer.
    pub fn new(config: TableHandlerConfig) -> Self {
        let waiting = Shares::new(limits::CHANGES_WAITING_MAX);
        let shown = Arc::clone(&waiting);
        config.front.config.metrics.add_source(move |out| {
            let help = "Requests that wait for changes now.";
            out.gauge("rowhouse_changes_waiting", help, shown.taken() as u64);
        });
        Self { config, waiting }
    }
}

impl Handler for TableHandler {
    type Body = AnswerBody;

    async fn handle(&self, request: Request, peer: Peer) -> Response {
        self.config.front.handle(self, request, peer).await
    }

    fn busy(&self, request: &http::request::Parts) -> Response {
        self.config.front.busy(self, request)
    }
}

impl Service for TableHandler {
    const KIND: Kind = Kind::Table;
    const SERVER: HeaderValue =
        HeaderValue::from_static(concat!("Rowhouse-Table/", env!("CARGO_PKG_VERSION")));
    type Failure = Failure;

    async fn stored_policy(
        &self,
        account: AccountId,
        resource: &str,
        id: &str,
    ) -> Result<Option<StoredPolicy>, Failure> {
        let Ok(table) = resource.parse::<TableName>() else { return Ok(None) };
        Ok(self.config.tables.stored_policy(account, &table, id).await?)
    }

    async fn answer(
        &self,
        visit: Visit<'_>,
        body: &mut Incoming,
        progress: &mut Progress,
    ) -> Result<Reply, Failure> {
        let front = &self.config.front;
        let strict = front.config.strict;
        let Visit { head, address, account, grant, now, .. } = &visit;
        let route = router::route(head, strict)?;
        progress.operation = route.name();
        progress.changes = route.is_write() || route == router::Route::Batch;
        if address.secondary && route.is_write() {
            return Err(Refusal::SecondaryWrite.into());
        }
        // Each part of a batch says itself what it accepts.
        let batch = route == router::Route::Batch;
        let text = route.speaks_text() && head.wants_text();
        let level = if batch || text || router::speaks_xml(head) {
            Metadata::Minimal
        } else {
            head.metadata()?
        };
        router::check_content_type(&route, head)?;
        route.check(grant, head)?;
        let content = match route.body_limit() {
            Some(limit) => Some(front.read(&visit, body, limit, progress).await?),
            None => None,
        };
        let body: &[u8] = content.as_ref().map_or(&[], |content| &content.bytes);
        let copy = self.config.secondary.as_ref().filter(|_| address.secondary);
        let cx = Context {
            tables: copy.unwrap_or(&self.config.tables),
            accounts: &front.config.accounts,
            account,
            grant,
            base: &address.base,
            secondary: address.secondary,
            level,
            prefer: if head.method == "POST" { head.prefer() } else { None },
            deadline: Instant::now() + page_time(head)?,
            now: *now,
            strict,
        };
        // Every request is moved with room for the largest of what it may become, so what is large is boxed.
        if let router::Route::Changes(name) = route {
            return Box::pin(self.changes(cx, name, &visit)).await;
        }
        if route == router::Route::Batch {
            return Box::pin(self.batch(cx, &visit, body)).await;
        }
        let _ticket = front.admission.enter(account.id, route.is_scan()).await?;
        let parsed = match router::long_filter(&route, head) {
            Some(text) => Some(Box::pin(cx.parse_filter(text)).await?),
            None => None,
        };
        let operation = router::operation(route, head, body, parsed, strict)?;
        dispatch::dispatch(cx, operation).await
    }

    fn failed(&self, failure: &Failure, told: &Told<'_>) -> Reply {
        let mut form = error_form(told.parts);
        if failure.is_authentication() {
            form.xml = wants_xml(&told.parts.headers);
        }
        reply::failure(failure, form, told.request_id, told.now)
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

/// In which form a client is told that its request failed.
fn error_form(parts: &http::request::Parts) -> ErrorForm {
    let head = Head {
        method: parts.method.as_str(),
        path: parts.uri.path(),
        query: Query::parse(parts.uri.query().unwrap_or("")).unwrap_or_default(),
        headers: Headers::Outer(&parts.headers),
        spelling: None,
    };
    ErrorForm {
        xml: router::speaks_xml(&head),
        level: head.metadata().unwrap_or(Metadata::Minimal),
        prefer: if head.method == "POST" { head.prefer() } else { None },
    }
}

/// Before authentication a client is answered in XML unless it asks for JSON.
fn wants_xml(headers: &http::HeaderMap) -> bool {
    let accept = headers.get(http::header::ACCEPT).and_then(|accept| accept.to_str().ok());
    accept.is_none_or(|accept| !accept.contains("json"))
}

/// How long a page may take: five seconds, or less if the client says so.
fn page_time(head: &Head<'_>) -> Result<Duration, Failure> {
    let most = Duration::from_millis(limits::PAGE_MILLIS_MAX);
    match head.query.get("timeout") {
        None => Ok(most),
        Some(text) => match text.parse::<u64>() {
            Ok(seconds) if seconds > 0 => Ok(most.min(Duration::from_secs(seconds))),
            _ => Err(Failure::OptionValue),
        },
    }
}
