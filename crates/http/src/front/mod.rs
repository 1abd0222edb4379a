//! The way of every request to a service, up to the point where the services differ, and that of its answer.
//!
//! A request is answered in this order, and the first complaint is the answer: cross-origin preflight, credentials,
//! version; then the service has its say. One [`Front`] serves all services of a server: what it limits, it limits for all of
//! them together.

pub(crate) mod address;
pub(crate) mod admission;
pub(crate) mod answer;
pub(crate) mod authenticate;
pub(crate) mod body;
mod cors;
pub(crate) mod denial;
pub(crate) mod head;
mod proxies;
pub(crate) mod refusal;
pub(crate) mod reply;
pub(crate) mod shares;

use crate::listener::{admission as connections, spelling};
use crate::telemetry::Metrics;
use crate::{Peer, Request};
use address::Address;
use admission::Admission;
use answer::{AnswerBody, Content};
use authenticate::Authenticator;
use denial::{Denial, Sampler};
use head::{CLIENT_REQUEST_ID, Head, Headers, VERSION};
use http::header::{
    ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_REQUEST_METHOD, AUTHORIZATION, HeaderName,
    HeaderValue, ORIGIN,
};
use http::request::Parts;
use hyper::body::Incoming;
use refusal::Refusal;
use reply::Reply;
use rowhouse_env::{Clock, Random};
use rowhouse_service_account::{AccountId, AccountService, AccountView};
use rowhouse_types::{Grant, Network, Service as Kind, ServiceProperties, StoredPolicy, Timestamp};
use rowhouse_wire::uri::Query;
use rowhouse_wire::version::ApiVersion;
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

/// What a client that shows no acceptable token is told; its SDK wants to read an authority from it.
const CHALLENGE: &str = "Bearer authorization_uri=https://localhost/oauth2/authorize \
    resource_id=https://storage.azure.com";

const REQUEST_ID: HeaderName = HeaderName::from_static("x-ms-request-id");

/// An answer of a service.
pub(crate) type Response = http::Response<AnswerBody>;

/// What all services share, and its settings.
#[derive(Clone, Debug)]
pub struct FrontConfig {
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
    /// Whose `X-Forwarded-For` and `X-Forwarded-Proto` are believed.
    pub trusted_proxies: Vec<Network>,
    /// No extensions: what the original does not know is answered as it answers that.
    pub strict: bool,
    /// What becomes of requests to an account whose key is public.
    pub public_key: PublicKey,
    /// Names by which this server is called, beside addresses and `localhost`.
    pub own_hosts: Vec<String>,
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

/// Where requests to all services of a server come in.
#[derive(Debug)]
pub struct Front {
    pub(crate) config: FrontConfig,
    pub(crate) admission: Admission,
    bodies: body::Budget,
    answers: body::Budget,
    denials: Sampler,
}

/// A service behind the front: what it does with a request that may come in, and how it says that it failed.
pub(crate) trait Service: Send + Sync + 'static {
    /// Which one.
    const KIND: Kind;
    /// What it calls itself.
    const SERVER: HeaderValue;
    /// Why it does not carry a request out.
    type Failure: From<Refusal> + Send;

    /// The stored policy of that id, of the table or queue of that name.
    fn stored_policy(
        &self,
        account: AccountId,
        resource: &str,
        id: &str,
    ) -> impl Future<Output = Result<Option<StoredPolicy>, Self::Failure>> + Send;

    /// Carries a request out.
    fn answer(
        &self,
        visit: Visit<'_>,
        body: &mut Incoming,
        progress: &mut Progress,
    ) -> impl Future<Output = Result<Reply, Self::Failure>> + Send;

    /// Says that a request failed.
    fn failed(&self, failure: &Self::Failure, told: &Told<'_>) -> Reply;

    /// What both services refuse alike, if it is that.
    fn refusal(failure: &Self::Failure) -> Option<&Refusal>;

    /// What the log should know of a failure and the client need not.
    fn detail(failure: &Self::Failure) -> Option<String>;
}

/// A request whose credentials are good.
#[derive(Debug)]
pub(crate) struct Visit<'a> {
    pub(crate) parts: &'a Parts,
    pub(crate) address: Address<'a>,
    pub(crate) head: Head<'a>,
    /// Whom the request names as its host.
    pub(crate) host: &'a str,
    pub(crate) account: Arc<AccountView>,
    pub(crate) grant: Grant,
    pub(crate) version: ApiVersion,
    pub(crate) authenticator: Authenticator,
    pub(crate) now: Timestamp,
    pub(crate) request_id: &'a str,
}

/// What is known of a request that failed.
#[derive(Debug)]
pub(crate) struct Told<'a> {
    pub(crate) parts: &'a Parts,
    pub(crate) version: Option<ApiVersion>,
    pub(crate) request_id: &'a str,
    pub(crate) now: Timestamp,
}

/// What is known of a request while it is worked on, for the answer and the log.
#[derive(Debug)]
pub(crate) struct Progress {
    pub(crate) operation: &'static str,
    version: Option<ApiVersion>,
    account: Option<Arc<AccountView>>,
    /// The operation changes something, if it succeeds.
    pub(crate) changes: bool,
    /// The client waits to be told before it sends its body.
    expects: bool,
    /// Room for the answer, where it must be there before anything is done.
    reserved: Option<body::Reserved>,
    /// Why the account that was addressed counts as absent, for the log: the caller must not tell it from a wrong key.
    absent: Option<Denial>,
}

impl Progress {
    /// Nothing but the head is known.
    fn new(parts: &Parts) -> Self {
        Self {
            operation: "Unknown",
            version: None,
            account: None,
            changes: false,
            expects: parts.headers.contains_key(http::header::EXPECT),
            reserved: None,
            absent: None,
        }
    }
}

impl Front {
    /// Ready to let requests in.
    pub fn new(config: FrontConfig) -> Self {
        let admission = Admission::new(config.max_requests, config.max_scans);
        let budget = || body::Budget::new(config.max_body_bytes, config.max_requests);
        let (bodies, answers) = (budget(), budget());
        Self { config, admission, bodies, answers, denials: Sampler::default() }
    }

    /// Answers one request to a service.
    pub(crate) async fn handle<S: Service>(
        &self,
        service: &S,
        request: Request,
        peer: Peer,
    ) -> Response {
        let started = Instant::now();
        let now = self.config.clock.now();
        let request_id = self.config.random.guid().text();
        let request_id = str::from_utf8(&request_id).expect("digits and hyphens only");
        let (parts, mut body) = request.into_parts();
        let mut progress = Progress::new(&parts);
        let peer = proxies::client(&self.config.trusted_proxies, &parts.headers, peer);
        let outcome = match self.enter(service, &parts, peer, now, request_id, &mut progress).await
        {
            Ok(Entered::Visit(visit)) => service.answer(*visit, &mut body, &mut progress).await,
            Ok(Entered::Preflight(reply)) => Ok(reply),
            Err(failure) => Err(failure),
        };
        let reserved = progress.reserved.take();
        let outcome = outcome.and_then(|mut reply| {
            let body = std::mem::take(&mut reply.body);
            let (account, changes) = (&progress.account, progress.changes);
            let content = match (body, account) {
                (Content::Whole(body), Some(account)) => {
                    self.answers.answer(body, account.id, changes, reserved)?.into()
                }
                (Content::Page(page), Some(account)) => self.answers.page(*page, account.id)?,
                (body, None) => body.into(),
            };
            Ok((reply, content))
        });
        let (reply, content, detail) = match outcome {
            Ok((reply, content)) => (reply, content, None),
            Err(failure) => {
                // To read now would be to ask for the body.
                let reusable = !progress.expects && body::drain(body).await;
                let version = progress.version;
                let told = Told { parts: &parts, version, request_id, now };
                let mut reply = service.failed(&failure, &told);
                if !reusable {
                    reply.push("Connection", "close");
                }
                if let Some(denial) = S::refusal(&failure).and_then(Denial::of) {
                    let denial = progress.absent.unwrap_or(denial);
                    self.denied::<S>(denial, &parts, peer, request_id, now);
                }
                let at_door = S::refusal(&failure).is_some_and(Refusal::is_authentication);
                if reply.status == http::StatusCode::UNAUTHORIZED {
                    reply.push("WWW-Authenticate", CHALLENGE);
                } else if at_door && hides_version(S::KIND, &parts) {
                    progress.version = None;
                }
                let content = std::mem::take(&mut reply.body).into();
                (reply, content, S::detail(&failure))
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
        respond::<S>(reply, content, &parts, &progress, request_id)
    }

    /// Says that there is no room for a connection, whoever asks on it and whatever for: the credentials are not looked at.
    pub(crate) fn busy<S: Service>(&self, service: &S, parts: &Parts) -> Response {
        let request_id = self.config.random.guid().text();
        let request_id = str::from_utf8(&request_id).expect("digits and hyphens only");
        let told = Told { parts, version: None, request_id, now: self.config.clock.now() };
        let mut reply = service.failed(&Refusal::Busy.into(), &told);
        reply.push("x-ms-error-code", refusal::busy().code);
        let content = std::mem::take(&mut reply.body).into();
        respond::<S>(reply, content, parts, &Progress::new(parts), request_id)
    }

    /// Finds out who asks.
    async fn enter<'a, S: Service>(
        &self,
        service: &S,
        parts: &'a Parts,
        peer: Peer,
        now: Timestamp,
        request_id: &'a str,
        progress: &mut Progress,
    ) -> Result<Entered<'a>, S::Failure> {
        let config = &self.config;
        let host = host(parts);
        let scheme = if peer.tls { "https" } else { "http" };
        let address = address::parse(S::KIND, scheme, host, parts.uri.path());
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
            spelling: parts.extensions.get(),
        };
        let authenticator = Authenticator { now, skew_seconds: config.clock_skew_seconds, peer };
        let version = version(&head);
        let assumed = version.as_ref().copied().unwrap_or(ApiVersion::DEFAULT);
        let account = authenticate::find_account(&config.accounts, &address).await?;
        let refused = config.public_key == PublicKey::Refused;
        let (account, absent) = match account {
            None => (None, Some(Denial::UnknownAccount)),
            Some(account) if refused && authenticate::has_public_key(&account) => {
                (None, Some(Denial::PublicKey))
            }
            Some(account) => (Some(account), None),
        };
        // From here to the grant an account that is absent is answered as one that is there, without rules and with other
        // keys than the caller has: strangers must not learn which accounts exist.
        if head.method == "OPTIONS" {
            progress.operation = "Preflight";
            let reply = preflight(&head, account.as_deref().map(|it| it.properties_of(S::KIND)))?;
            return Ok(Entered::Preflight(reply));
        }
        progress.version = version.as_ref().ok().copied();
        let Some(account) = account else {
            progress.absent = absent;
            return Err(authenticator.stranger(service, &address, &head, assumed).await);
        };
        let granted = authenticator.grant(service, &account, &address, &head, assumed).await;
        // An answer with an account carries the headers of its CORS rules, which would tell a stranger that it exists. The
        // page whose signature has expired knows the account, and may read why it is refused.
        let shows = |failure| S::refusal(failure).is_some_and(Refusal::is_after_signature);
        if granted.as_ref().err().is_none_or(shows) {
            progress.account = Some(Arc::clone(&account));
        }
        let grant = granted?;
        let origin = head.headers.get(&ORIGIN);
        let hosts = &config.own_hosts;
        authenticate::guard(config.public_key, &account, S::KIND, host, origin, hosts)?;
        connections::authenticated(&parts.extensions);
        let version = version?;
        if let Some(error) = query_error {
            return Err(Refusal::from(error).into());
        }
        Ok(Entered::Visit(Box::new(Visit {
            parts,
            address,
            head,
            host,
            account,
            grant,
            version,
            authenticator,
            now,
            request_id,
        })))
    }

    /// Account and grant of a request that has waited, as they are now.
    pub(crate) async fn enter_again<S: Service>(
        &self,
        service: &S,
        visit: &Visit<'_>,
    ) -> Result<(Arc<AccountView>, Grant, Timestamp), S::Failure> {
        let Visit { address, head, version, authenticator, .. } = visit;
        let now = self.config.clock.now();
        let account = authenticate::find_account(&self.config.accounts, address).await?;
        let account = account.ok_or(Refusal::UnknownAccount)?;
        let authenticator = Authenticator { now, ..*authenticator };
        let grant = authenticator.grant(service, &account, address, head, *version).await?;
        Ok((account, grant, now))
    }

    /// Reads the body of a request, no more than so many bytes.
    pub(crate) async fn read(
        &self,
        visit: &Visit<'_>,
        body: &mut Incoming,
        limit: usize,
        progress: &mut Progress,
    ) -> Result<body::Held, Refusal> {
        let headers = &visit.parts.headers;
        let framed = headers.contains_key(http::header::CONTENT_LENGTH)
            || headers.contains_key(http::header::TRANSFER_ENCODING);
        if !framed {
            return Err(Refusal::LengthRequired);
        }
        progress.expects = false;
        self.bodies.read(body, limit, visit.account.id).await
    }

    /// Keeps room for an answer of about so many bytes, or refuses while nothing has been done.
    pub(crate) async fn reserve(
        &self,
        visit: &Visit<'_>,
        bytes: usize,
        progress: &mut Progress,
    ) -> Result<(), Refusal> {
        progress.reserved = Some(self.answers.reserve(bytes, visit.account.id).await?);
        Ok(())
    }

    /// Counts a failed authentication, and logs it now and then.
    fn denied<S: Service>(
        &self,
        denial: Denial,
        parts: &Parts,
        peer: Peer,
        request_id: &str,
        now: Timestamp,
    ) {
        self.config.metrics.authentication_failed(denial);
        let account = address::parse(S::KIND, "", host(parts), parts.uri.path()).account;
        self.denials.log(denial, S::KIND.label(), account, peer, request_id, now);
    }
}

/// What becomes of a request at the door.
enum Entered<'a> {
    /// It may go on.
    Visit(Box<Visit<'a>>),
    /// It only wanted to know what it may ask.
    Preflight(Reply),
}

/// Whether an answer to bad credentials leaves the version out: queues do so for those in the header only.
fn hides_version(service: Kind, parts: &Parts) -> bool {
    match service {
        Kind::Table => true,
        Kind::Queue => parts.headers.contains_key(AUTHORIZATION),
    }
}

/// An absolute request target names the host itself.
fn host(parts: &Parts) -> &str {
    let header = || parts.headers.get(http::header::HOST).and_then(|host| host.to_str().ok());
    parts.uri.authority().map(http::uri::Authority::as_str).or_else(header).unwrap_or("localhost")
}

fn version(head: &Head<'_>) -> Result<ApiVersion, Refusal> {
    let signed = || head.query.get("sig").and_then(|_| head.query.get("sv"));
    let text = head.headers.get(&VERSION).or_else(|| head.query.get("api-version")).or_else(signed);
    match text {
        Some(text) => ApiVersion::parse(text).ok_or_else(|| Refusal::Version(text.into())),
        None => Ok(ApiVersion::DEFAULT),
    }
}

fn preflight(head: &Head<'_>, properties: Option<&ServiceProperties>) -> Result<Reply, Refusal> {
    let origin = head.headers.get(&ORIGIN);
    let method = head.headers.get(&ACCESS_CONTROL_REQUEST_METHOD);
    let (origin, method) = origin.zip(method).ok_or(Refusal::PreflightHeader)?;
    let asked = head.headers.get(&ACCESS_CONTROL_REQUEST_HEADERS);
    let allowed = properties.and_then(|rules| cors::preflight(rules, origin, method, asked));
    let headers = allowed.ok_or(Refusal::PreflightRefused)?;
    let mut reply = Reply::plain(http::StatusCode::OK);
    for (name, value) in headers {
        reply.push(name, value);
    }
    Ok(reply)
}

/// Adds what every response carries.
fn respond<S: Service>(
    reply: Reply,
    content: AnswerBody,
    parts: &Parts,
    progress: &Progress,
    request_id: &str,
) -> Response {
    // Room for those of a reply and those added here.
    let mut headers = http::HeaderMap::with_capacity(12);
    let spelled = spelled(&reply.headers);
    for (name, value) in reply.headers {
        if let (Some(name), Some(value)) = (reply::header_name(&name), reply::header_value(value)) {
            headers.insert(name, value);
        }
    }
    headers.insert(http::header::SERVER, S::SERVER);
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
            // Queues tell of those too that the connection adds, whichever it is.
            let later: &[&str] = match S::KIND {
                Kind::Table => &[],
                Kind::Queue => &["content-length", "date", "transfer-encoding"],
            };
            let later = later.iter().copied().filter(|name| !headers.contains_key(*name));
            let present = headers.keys().map(HeaderName::as_str).chain(later);
            cors::actual(account.properties_of(S::KIND), origin, method, present)
        };
        for (name, value) in added {
            if let Ok(value) = HeaderValue::from_str(&value) {
                headers.insert(name, value);
            }
        }
    }
    let mut response = Response::new(content);
    *response.status_mut() = reply.status;
    *response.headers_mut() = headers;
    if let Some(spelled) = spelled {
        *response.extensions_mut() = spelled;
    }
    response
}

/// How names of metadata are written that are not in lower case. All other names are constants, which have no case that
/// anybody could notice.
fn spelled(headers: &[reply::Header]) -> Option<http::Extensions> {
    let capital = headers.iter().filter_map(|(name, _)| match name {
        Cow::Owned(name) if spelling::has_capital(name) => Some(name.as_str()),
        _ => None,
    });
    let names: Vec<_> = capital.collect();
    (!names.is_empty()).then(|| spelling::extensions(&names))
}
