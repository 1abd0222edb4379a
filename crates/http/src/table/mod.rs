//! The Table service over HTTP: from a request to an [`Operation`](router::Operation) and from its outcome to
//! a response.
//!
//! A request is answered in this order, and the first complaint is the answer: account, cross-origin
//! preflight, credentials, version, form of the URL, overload, body, and then whatever the services have to say.

mod address;
mod admission;
mod authenticate;
mod batch;
mod body;
mod cors;
mod dispatch;
mod error;
mod explain;
mod feed;
mod head;
mod index;
mod reply;
mod router;
mod shares;
mod ttl;

use crate::telemetry::Metrics;
use crate::{Handler, Peer, Request, Response};
use admission::Admission;
use authenticate::Authenticator;
use bytes::Bytes;
use dispatch::Context;
use error::Failure;
use feed::Asker;
use head::{CLIENT_REQUEST_ID, Head, Headers, VERSION};
use http::header::{
    ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_REQUEST_METHOD, CONTENT_TYPE, HeaderName,
    HeaderValue, ORIGIN,
};
use http_body_util::Full;
use hyper::body::Incoming;
use reply::{ErrorForm, Reply};
use rowhouse_env::{Clock, Random};
use rowhouse_service_account::{AccountService, AccountView};
use rowhouse_service_table::TableService;
use rowhouse_types::{Timestamp, limits};
use rowhouse_wire::media::Metadata;
use rowhouse_wire::uri::Query;
use rowhouse_wire::version::ApiVersion;
use shares::Shares;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// What a client that shows no acceptable token is told; its SDK wants to read an authority from it.
const CHALLENGE: &str = "Bearer authorization_uri=https://localhost/oauth2/authorize \
    resource_id=https://storage.azure.com";

const REQUEST_ID: HeaderName = HeaderName::from_static("x-ms-request-id");

/// What the handler is built of, and its settings.
#[derive(Clone, Debug)]
pub struct TableHandlerConfig {
    /// Tables and entities.
    pub tables: TableService,
    /// The same on a copy that may be behind, for what is read at the secondary endpoint; without, `tables` is read there.
    pub secondary: Option<TableService>,
    /// Accounts and their settings.
    pub accounts: Arc<AccountService>,
    /// The time, for signatures and messages.
    pub clock: Arc<dyn Clock>,
    /// Ids of requests.
    pub random: Arc<dyn Random>,
    /// Where requests are counted.
    pub metrics: Arc<Metrics>,
    /// How far a signed date may be off, in seconds.
    pub clock_skew_seconds: u64,
    /// Requests worked on at once.
    pub max_requests: usize,
    /// Queries among them.
    pub max_scans: usize,
    /// Bytes of requests held at once, and of answers.
    pub max_body_bytes: usize,
    /// Believe `X-Forwarded-For` and `X-Forwarded-Proto`: only behind a proxy that sets them.
    pub trust_forwarded: bool,
    /// No extensions: what the original does not know is answered as it answers that.
    pub strict: bool,
    /// What becomes of requests to an account whose key is public.
    pub public_key: PublicKey,
    /// Names by which this server is called, beside addresses and `localhost`.
    pub own_hosts: Vec<String>,
    /// Turns true when the server stops: nobody waits for changes any longer.
    pub stopping: watch::Receiver<bool>,
}

/// What becomes of requests to an account that has the key which stands in every manual. Asked at every request: where
/// servers share a database, another one may have made the account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PublicKey {
    /// There is no such account, as far as this server is concerned.
    Refused,
    /// Pages of strangers are kept away: see `docs/compatibility.md`.
    Guarded,
    /// They are answered like any others.
    Accepted,
}

/// Answers requests to the Table service.
#[derive(Debug)]
pub struct TableHandler {
    config: TableHandlerConfig,
    admission: Admission,
    /// Requests that wait for changes: they are not worked on, and still are not without limit.
    waiting: Arc<Shares>,
    bodies: body::Budget,
    answers: body::Budget,
}

impl TableHandler {
    /// Ready to answer.
    pub fn new(config: TableHandlerConfig) -> Self {
        let admission = Admission::new(config.max_requests, config.max_scans);
        let waiting = Shares::new(limits::CHANGES_WAITING_MAX);
        let shown = Arc::clone(&waiting);
        config.metrics.add_source(move |out| {
            let help = "Requests that wait for changes now.";
            out.gauge("rowhouse_changes_waiting", help, shown.taken() as u64);
        });
        let bodies = body::Budget::new(config.max_body_bytes);
        let answers = body::Budget::new(config.max_body_bytes);
        Self { config, admission, waiting, bodies, answers }
    }
}

/// What is known of a request while it is worked on, for the answer and the log.
#[derive(Debug)]
struct Progress {
    operation: &'static str,
    version: Option<ApiVersion>,
    account: Option<Arc<AccountView>>,
    /// The operation changes something, if it succeeds.
    changes: bool,
    /// The client waits to be told before it sends its body.
    expects: bool,
    form: ErrorForm,
}

impl Handler for TableHandler {
    type Body = Full<Bytes>;

    async fn handle(&self, request: Request, peer: Peer) -> Response {
        let started = Instant::now();
        let now = self.config.clock.now();
        let request_id = self.config.random.guid().text();
        let request_id = str::from_utf8(&request_id).expect("digits and hyphens only");
        let (parts, mut body) = request.into_parts();
        let mut progress = Progress {
            operation: "Unknown",
            version: None,
            account: None,
            changes: false,
            expects: parts.headers.contains_key(http::header::EXPECT),
            form: ErrorForm { xml: false, level: Metadata::Minimal, prefer: None },
        };
        let peer = self.forwarded(&parts.headers, peer);
        let outcome = self.answer(&parts, &mut body, peer, now, request_id, &mut progress).await;
        let outcome = outcome.and_then(|mut reply| {
            let body = std::mem::take(&mut reply.body);
            let content = match &progress.account {
                Some(account) => self.answers.answer(body, account.id, progress.changes)?,
                None => body.into(),
            };
            Ok((reply, content))
        });
        let (reply, content, detail) = match outcome {
            Ok((reply, content)) => (reply, content, None),
            Err(failure) => {
                // To read now would be to ask for the body.
                let reusable = !progress.expects && body::drain(body).await;
                if failure.is_authentication() {
                    progress.form.xml = wants_xml(&parts.headers);
                }
                let mut reply = reply::failure(&failure, progress.form, request_id, now);
                if !reusable {
                    reply.push("Connection", "close");
                }
                if reply.status == http::StatusCode::UNAUTHORIZED {
                    reply.push("WWW-Authenticate", CHALLENGE);
                } else if failure.is_authentication() {
                    progress.version = None;
                }
                let content = std::mem::take(&mut reply.body).into();
                (reply, content, failure.detail())
            }
        };
        let seconds = started.elapsed().as_secs_f64();
        let status = reply.status.as_u16();
        self.config.metrics.request(progress.operation, status, seconds);
        if status >= 500 {
            tracing::warn!(
                operation = progress.operation,
                status,
                request_id,
                detail,
                seconds,
                "failed"
            );
        } else {
            tracing::debug!(
                operation = progress.operation,
                status,
                request_id,
                detail,
                plan = reply.plan,
                seconds,
                "answered"
            );
        }
        respond(reply, content, &parts, &progress, request_id)
    }
}

impl TableHandler {
    async fn answer(
        &self,
        parts: &http::request::Parts,
        body: &mut Incoming,
        peer: Peer,
        now: Timestamp,
        request_id: &str,
        progress: &mut Progress,
    ) -> Result<Reply, Failure> {
        let host = host(parts);
        let scheme = if peer.tls { "https" } else { "http" };
        let address = address::parse(scheme, host, parts.uri.path());
        // What is wrong with the options is said only to who may ask.
        let query = Query::parse(parts.uri.query().unwrap_or(""));
        let (query, query_error) = match query {
            Ok(query) => (query, None),
            Err(error) => (Query::default(), Some(error)),
        };
        let head = Head {
            method: parts.method.as_str(),
            path: address.path,
            query,
            headers: Headers::Outer(&parts.headers),
        };
        progress.form.xml = router::speaks_xml(&head);
        let wanted = head.metadata();
        progress.form.level = wanted.unwrap_or(Metadata::Minimal);
        if head.method == "POST" {
            progress.form.prefer = head.prefer();
        }
        let account = authenticate::find_account(&self.config.accounts, &address).await?;
        if head.method == "OPTIONS" {
            progress.operation = "Preflight";
            return preflight(&head, &account);
        }
        progress.account = Some(Arc::clone(&account));
        let version = version(&head);
        progress.version = version.as_ref().ok().copied();
        let origin = head.headers.get(&ORIGIN);
        let config = &self.config;
        authenticate::guard(config.public_key, &account, host, origin, &config.own_hosts)?;
        let authenticator = Authenticator {
            tables: &self.config.tables,
            now,
            skew_seconds: self.config.clock_skew_seconds,
            peer,
        };
        let assumed = version.as_ref().copied().unwrap_or(ApiVersion::DEFAULT);
        let grant = authenticator.grant(&account, &address, &head, assumed).await?;
        version?;
        if let Some(error) = query_error {
            return Err(error.into());
        }
        let route = router::route(&head, self.config.strict)?;
        progress.operation = route.name();
        progress.changes = route.is_write() || route == router::Route::Batch;
        if address.secondary && route.is_write() {
            return Err(Failure::SecondaryWrite);
        }
        let text = matches!(route, router::Route::Explain(_)) && head.wants_text();
        let level = if progress.form.xml || text { Metadata::Minimal } else { wanted? };
        router::check_content_type(&route, &head)?;
        route.check(&grant, &head)?;
        let content = match route.body_limit() {
            Some(limit) => {
                let headers = &parts.headers;
                let framed = headers.contains_key(http::header::CONTENT_LENGTH)
                    || headers.contains_key(http::header::TRANSFER_ENCODING);
                if !framed {
                    return Err(Failure::LengthRequired);
                }
                progress.expects = false;
                Some(self.bodies.read(body, limit, account.id).await?)
            }
            None => None,
        };
        let body: &[u8] = content.as_ref().map_or(&[], |content| &content.bytes);
        let copy = self.config.secondary.as_ref().filter(|_| address.secondary);
        let cx = Context {
            tables: copy.unwrap_or(&self.config.tables),
            accounts: &self.config.accounts,
            account: &account,
            grant: &grant,
            base: &address.base,
            secondary: address.secondary,
            level,
            prefer: progress.form.prefer,
            deadline: Instant::now() + page_time(&head)?,
            now,
            strict: self.config.strict,
        };
        if let router::Route::Changes(name) = route {
            let asker = Asker { authenticator, address: &address, head: &head, version: assumed };
            return self.changes(cx, name, asker).await;
        }
        if route == router::Route::Batch {
            let request = batch::parse(head.headers.get(&CONTENT_TYPE), body);
            let scan = matches!(request, Ok(rowhouse_wire::batch::Request::Query(_)));
            let _ticket = self.admission.enter(account.id, scan).await?;
            let draw = || self.config.random.guid().to_string();
            let ids =
                batch::Ids { request: request_id.to_owned(), batch: draw(), changeset: draw() };
            return batch::run(cx, address.prefix, request, &ids).await;
        }
        let _ticket = self.admission.enter(account.id, route.is_scan()).await?;
        let operation = router::operation(route, &head, body, cx.strict)?;
        dispatch::dispatch(cx, operation).await
    }

    /// The client behind a proxy, if the proxy is to be believed.
    fn forwarded(&self, headers: &http::HeaderMap, peer: Peer) -> Peer {
        if !self.config.trust_forwarded {
            return peer;
        }
        // The last line and the last entry are the proxy's own; those before may be the client's.
        let text = |name: &str| {
            headers.get_all(name).iter().next_back().and_then(|value| value.to_str().ok())
        };
        let address = text("x-forwarded-for")
            .and_then(|list| list.rsplit(',').next())
            .and_then(|address| address.trim().parse::<IpAddr>().ok())
            .map_or(peer.addr, |ip| SocketAddr::new(ip, 0));
        let tls = text("x-forwarded-proto")
            .and_then(|list| list.rsplit(',').next())
            .map_or(peer.tls, |scheme| scheme.trim() == "https");
        Peer { addr: address, tls }
    }
}

/// An absolute request target names the host itself.
fn host(parts: &http::request::Parts) -> &str {
    let header = || parts.headers.get(http::header::HOST).and_then(|host| host.to_str().ok());
    parts.uri.authority().map(http::uri::Authority::as_str).or_else(header).unwrap_or("localhost")
}

/// Before authentication a client is answered in XML unless it asks for JSON.
fn wants_xml(headers: &http::HeaderMap) -> bool {
    let accept = headers.get(http::header::ACCEPT).and_then(|accept| accept.to_str().ok());
    accept.is_none_or(|accept| !accept.contains("json"))
}

fn version(head: &Head<'_>) -> Result<ApiVersion, Failure> {
    let signed = || head.query.get("sig").and_then(|_| head.query.get("sv"));
    let text = head.headers.get(&VERSION).or_else(|| head.query.get("api-version")).or_else(signed);
    match text {
        Some(text) => ApiVersion::parse(text).ok_or(Failure::Version),
        None => Ok(ApiVersion::DEFAULT),
    }
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

fn preflight(head: &Head<'_>, account: &AccountView) -> Result<Reply, Failure> {
    let origin = head.headers.get(&ORIGIN);
    let method = head.headers.get(&ACCESS_CONTROL_REQUEST_METHOD);
    let (origin, method) = origin.zip(method).ok_or(Failure::PreflightHeader)?;
    let asked = head.headers.get(&ACCESS_CONTROL_REQUEST_HEADERS);
    let headers = cors::preflight(&account.table_properties, origin, method, asked)
        .ok_or(Failure::PreflightRefused)?;
    let mut reply = Reply::plain(http::StatusCode::OK);
    reply.headers.extend(headers.into_iter().map(|(name, value)| (name, value.into())));
    Ok(reply)
}

/// Adds what every response carries.
fn respond(
    reply: Reply,
    content: Bytes,
    parts: &http::request::Parts,
    progress: &Progress,
    request_id: &str,
) -> Response {
    const SERVER: HeaderValue =
        HeaderValue::from_static(concat!("Rowhouse-Table/", env!("CARGO_PKG_VERSION")));
    // Room for those of a reply and those added here.
    let mut headers = http::HeaderMap::with_capacity(12);
    for (name, value) in reply.headers {
        if let (Some(name), Some(value)) = (reply::header_name(name), reply::header_value(value)) {
            headers.insert(name, value);
        }
    }
    headers.insert(http::header::SERVER, SERVER);
    if let Ok(id) = HeaderValue::from_str(request_id) {
        headers.insert(REQUEST_ID, id);
    }
    if let Some(version) = &progress.version {
        if let Ok(version) = HeaderValue::from_str(version.as_str()) {
            headers.insert(VERSION.clone(), version);
        }
        let client = Headers::Outer(&parts.headers).get(&CLIENT_REQUEST_ID);
        if let Some(Ok(id)) = reply::client_request_id(client).map(HeaderValue::from_str) {
            headers.insert(CLIENT_REQUEST_ID.clone(), id);
        }
    }
    if let Some(account) = &progress.account {
        let origin = || Headers::Outer(&parts.headers).get(&ORIGIN);
        let method = parts.method.as_str();
        let added = {
            let present = headers.keys().map(HeaderName::as_str);
            cors::actual(&account.table_properties, origin, method, present)
        };
        for (name, value) in added {
            if let Ok(value) = HeaderValue::from_str(&value) {
                headers.insert(name, value);
            }
        }
    }
    let mut response = http::Response::new(Full::new(content));
    *response.status_mut() = reply.status;
    *response.headers_mut() = headers;
    response
}
