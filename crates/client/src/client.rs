//! The operations of the Table protocol that moving tables needs.
//!
//! A request that fails for a passing reason is sent again. A write may therefore happen twice, or be refused
//! because its first attempt had succeeded: `Replace` and `Merge` do not mind, and who inserts compares.

use crate::batch::{self, Operation};
use crate::changes::ChangesPage;
use crate::entity::{Entity, PageBody};
use crate::error::{ClientError, ServiceError, read_refusal};
use crate::retry;
use crate::target::{Credentials, Target};
use crate::transport::{ANSWER_BYTES_MAX, Answer, Fault, Transport};
use crate::written::{WrittenBody, WrittenPage};
use bytes::Bytes;
use http::{Method, Request};
use http_body_util::Full;
use rowhouse_auth::{Scheme, sign};
use rowhouse_env::{Clock as _, SystemClock, SystemRandom};
use rowhouse_types::{Service, StoredPolicy, limits};
use rowhouse_wire::{uri, xml::acl};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::fmt::{self, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const VERSION: &str = "2019-02-02";
const JSON: &str = "application/json;odata=minimalmetadata";

/// Asks one service. Clones share connections.
#[derive(Clone, Debug)]
pub struct Client {
    target: Target,
    transport: Arc<Transport>,
    /// Somebody has answered there.
    answered: Arc<AtomicBool>,
    /// It was a Rowhouse.
    rowhouse: Arc<AtomicBool>,
    waiting: Waiting,
}

/// Is called before a request is repeated because of a lasting fault, with what happened.
#[derive(Clone, Default)]
struct Waiting(Option<Report>);

type Report = Arc<dyn Fn(&str) + Send + Sync>;

impl fmt::Debug for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Waiting")
    }
}

/// How an entity is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// It must not exist.
    Insert,
    /// It becomes what is sent, whether it exists or not.
    Replace,
    /// It gets the properties that are sent and keeps its others.
    Merge,
}

impl Write {
    pub(crate) fn method(self) -> &'static str {
        match self {
            Self::Insert => "POST",
            Self::Replace => "PUT",
            Self::Merge => "PATCH",
        }
    }
}

/// Which entities of a table, and what of them.
#[derive(Clone, Debug, Default)]
pub struct Query {
    /// `$filter`; all if none.
    pub filter: Option<String>,
    /// `$select`; everything if none.
    pub select: Option<String>,
    /// Most entities of a page; as many as the service gives if none.
    pub top: Option<usize>,
    /// `$orderby`, which only Rowhouse has; by keys if none.
    pub order: Option<String>,
}

/// Where a query goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    partition: String,
    row: Option<String>,
}

impl Place {
    /// Where an answer says that the next one starts.
    pub(crate) fn after(answer: &Answer) -> Option<Self> {
        let token = |name: &str| answer.header(name).filter(|token| !token.is_empty());
        let row = token("x-ms-continuation-nextrowkey").map(str::to_owned);
        let partition = token("x-ms-continuation-nextpartitionkey")?;
        Some(Self { partition: partition.to_owned(), row })
    }
}

/// Some entities in the order of their keys, and where to go on.
#[derive(Debug)]
pub struct Page {
    /// The entities; may be none although there are more.
    pub entities: Vec<Entity>,
    /// Nothing at the end.
    pub next: Option<Place>,
    /// How the service read it, if it says so: Rowhouse does.
    pub plan: Option<String>,
}

/// A request before it is signed.
pub(crate) struct Call {
    method: Method,
    /// Below the service, encoded, with a slash before it.
    path: String,
    query: Vec<(&'static str, String)>,
    pub(crate) content_type: &'static str,
    body: Bytes,
}

impl Call {
    pub(crate) fn new(method: Method, path: impl Into<String>) -> Self {
        let path = path.into();
        Self {
            method,
            path,
            query: Vec::new(),
            content_type: "application/json",
            body: Bytes::new(),
        }
    }

    pub(crate) fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    /// Goes on from there.
    pub(crate) fn place(self, place: Option<&Place>) -> Self {
        self.query("NextPartitionKey", place.map(|place| place.partition.clone()))
            .query("NextRowKey", place.and_then(|place| place.row.clone()))
    }

    pub(crate) fn query(mut self, name: &'static str, value: Option<impl Into<String>>) -> Self {
        self.query.extend(value.map(|value| (name, value.into())));
        self
    }

    /// What a refusal says; the header counts where the body says nothing.
    fn refusal(&self, answer: &Answer) -> ServiceError {
        let mut error = read_refusal(answer.status, &answer.body);
        if error.code.is_empty() {
            answer.header("x-ms-error-code").unwrap_or_default().clone_into(&mut error.code);
        }
        error.resource = self.resource().map(str::to_owned);
        answer.header("server").unwrap_or_default().clone_into(&mut error.server);
        error.is_extension = self.is_extension();
        error
    }

    /// The table or queue that the path names. Names need no decoding: those that do are no names.
    fn resource(&self) -> Option<&str> {
        let segment = self.path.trim_start_matches('/').split(['(', '/']).next()?;
        let legal = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        let is_name = !segment.is_empty() && segment.bytes().all(legal);
        (is_name && segment != "Tables").then_some(segment)
    }

    /// Whether it asks for something that only Rowhouse has.
    fn is_extension(&self) -> bool {
        self.query.iter().any(|(name, value)| match *name {
            "comp" => value != "acl",
            "$orderby" | "$explain" => true,
            _ => false,
        }) || self.path.ends_with("/$count")
    }
}

impl Client {
    /// A client of that service. Connects when it is first asked.
    pub fn new(target: &Target) -> Result<Self, ClientError> {
        let transport = Arc::new(Transport::new(target.endpoint.clone())?);
        let (answered, rowhouse) = (Arc::default(), Arc::default());
        let waiting = Waiting::default();
        Ok(Self { target: target.clone(), transport, answered, rowhouse, waiting })
    }

    /// Reports what a request waits for: the function is called when an attempt has failed for a passing reason for
    /// the second time or more, and another one follows. Not before the service has answered something.
    #[must_use]
    pub fn on_wait(mut self, report: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.waiting = Waiting(Some(Arc::new(report)));
        self
    }

    /// Which service it is a client of.
    pub fn kind(&self) -> Service {
        self.target.kind
    }

    /// Whether this is the development account with its public key.
    pub fn is_development(&self) -> bool {
        self.target.is_development()
    }

    /// The address of the service, without secrets.
    pub fn address(&self) -> String {
        self.target.address()
    }

    /// Whether the last answer said that it comes from a Rowhouse, which has more than the protocol.
    pub(crate) fn is_rowhouse(&self) -> bool {
        self.rowhouse.load(Ordering::Relaxed)
    }

    /// The names of all tables.
    pub async fn tables(&self) -> Result<Vec<String>, ClientError> {
        #[derive(Deserialize)]
        struct Tables {
            value: Vec<Table>,
        }
        #[derive(Deserialize)]
        struct Table {
            #[serde(rename = "TableName")]
            name: String,
        }
        let (mut names, mut next) = (Vec::new(), None::<String>);
        loop {
            let call = Call::new(Method::GET, "/Tables").query("NextTableName", next.take());
            let answer = self.ask(call).await?;
            let tables: Tables = self.read(&answer)?;
            names.extend(tables.value.into_iter().map(|table| table.name));
            match answer.header("x-ms-continuation-nexttablename") {
                Some(name) if !name.is_empty() => next = Some(name.to_owned()),
                _ => return Ok(names),
            }
        }
    }

    /// Creates a table; false if it is there already.
    pub async fn create_table(&self, name: &str) -> Result<bool, ClientError> {
        let call =
            Call::new(Method::POST, "/Tables").body(json!({ "TableName": name }).to_string());
        match self.ask(call).await {
            Err(error) if error.code() == "TableAlreadyExists" => Ok(false),
            outcome => outcome.map(|_| true),
        }
    }

    /// Deletes a table; false if there is none.
    pub async fn delete_table(&self, name: &str) -> Result<bool, ClientError> {
        let call = Call::new(Method::DELETE, format!("/{}", uri::table_path(name)));
        match self.ask(call).await {
            Err(error) if error.status() == Some(404) => Ok(false),
            outcome => outcome.map(|_| true),
        }
    }

    /// The stored access policies of a table.
    pub async fn acl(&self, table: &str) -> Result<Vec<StoredPolicy>, ClientError> {
        let call = Call::new(Method::GET, path_of(table)).query("comp", Some("acl"));
        let answer = self.ask(call).await?;
        // Some services write a mark before the XML.
        let body = answer.body.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(&answer.body);
        acl::read(body, Service::Table).map_err(|error| self.foreign(&error))
    }

    /// Replaces the stored access policies of a table.
    pub async fn set_acl(&self, table: &str, policies: &[StoredPolicy]) -> Result<(), ClientError> {
        let mut call = Call::new(Method::PUT, path_of(table)).query("comp", Some("acl"));
        call.content_type = "application/xml";
        self.ask(call.body(acl::write(policies))).await.map(drop)
    }

    /// One page of a query. A page that would be too large for this client is asked for in smaller pieces.
    pub async fn page(
        &self,
        table: &str,
        query: &Query,
        place: Option<&Place>,
    ) -> Result<Page, ClientError> {
        let mut top = query.top;
        loop {
            match self.page_of(table, query, top, place).await {
                Err(ClientError::TooLarge(_)) if top != Some(1) => {
                    top = Some((top.unwrap_or(limits::PAGE_ITEMS_MAX) / 4).max(1));
                }
                outcome => return outcome,
            }
        }
    }

    async fn page_of(
        &self,
        table: &str,
        query: &Query,
        top: Option<usize>,
        place: Option<&Place>,
    ) -> Result<Page, ClientError> {
        let answer = self.ask_page(table, query, top, place).await?;
        let body: PageBody<'_> =
            serde_json::from_slice(&answer.body).map_err(|error| self.foreign(&error))?;
        let entities = body.value.iter().map(|json| self.entity(json.get()));
        let entities = entities.collect::<Result<_, _>>()?;
        let plan = answer.header("x-rowhouse-plan").map(str::to_owned);
        Ok(Page { entities, next: Place::after(&answer), plan })
    }

    async fn ask_page(
        &self,
        table: &str,
        query: &Query,
        top: Option<usize>,
        place: Option<&Place>,
    ) -> Result<Answer, ClientError> {
        let call = Call::new(Method::GET, path_of(table) + "()")
            .query("$filter", query.filter.clone())
            .query("$select", query.select.clone())
            .query("$orderby", query.order.clone())
            .query("$top", top.map(|top| top.to_string()))
            .place(place);
        self.ask(call).await
    }

    /// One page of a query as the service wrote it: for people, who may select what is no entity.
    pub async fn page_as_written(
        &self,
        table: &str,
        query: &Query,
        place: Option<&Place>,
    ) -> Result<WrittenPage, ClientError> {
        let answer = self.ask_page(table, query, query.top, place).await?;
        let body: WrittenBody = self.read(&answer)?;
        let plan = answer.header("x-rowhouse-plan").map(str::to_owned);
        Ok(WrittenPage { entities: body.value, next: Place::after(&answer), plan })
    }

    /// How many entities of a table satisfy a filter, which only Rowhouse counts, and how it read them.
    pub async fn count(
        &self,
        table: &str,
        filter: Option<&str>,
    ) -> Result<(u64, Option<String>), ClientError> {
        let call = Call::new(Method::GET, path_of(table) + "()/$count").query("$filter", filter);
        let answer = self.ask(call).await?;
        let text = String::from_utf8_lossy(&answer.body);
        let number = text.trim().trim_start_matches('\u{FEFF}');
        let number = number.parse().map_err(|_| self.foreign(&"a count is not a number"))?;
        Ok((number, answer.header("x-rowhouse-plan").map(str::to_owned)))
    }

    /// Changes of a table from a place on, which is `beginning`, `now` or the token of an earlier page; waits for one
    /// that long if there is none. About so many, or as many as the service gives.
    pub async fn changes(
        &self,
        table: &str,
        from: &str,
        wait: Duration,
        top: Option<usize>,
    ) -> Result<ChangesPage, ClientError> {
        let call = Call::new(Method::GET, path_of(table))
            .query("comp", Some("changes"))
            .query("from", Some(from))
            .query("wait", (!wait.is_zero()).then(|| wait.as_secs().to_string()))
            .query("$top", top.map(|top| top.to_string()));
        let answer = self.ask(call).await?;
        self.read(&answer)
    }

    /// One entity; nothing if it or the table is not there.
    pub async fn get(
        &self,
        table: &str,
        partition: &str,
        row: &str,
    ) -> Result<Option<Entity>, ClientError> {
        let path = format!("/{}", uri::entity_path(table, partition, row));
        match self.ask(Call::new(Method::GET, path)).await {
            Err(error) if error.status() == Some(404) => Ok(None),
            Err(error) => Err(error),
            Ok(answer) => self.entity(&String::from_utf8_lossy(&answer.body)).map(Some),
        }
    }

    /// Writes one entity.
    pub async fn write(
        &self,
        table: &str,
        write: Write,
        entity: &Entity,
    ) -> Result<(), ClientError> {
        let path = match write {
            Write::Insert => path_of(table),
            Write::Replace | Write::Merge => {
                format!("/{}", uri::entity_path(table, &entity.partition, &entity.row))
            }
        };
        let mut body = Vec::new();
        entity.write_json(&mut body, false);
        let method = Method::from_bytes(write.method().as_bytes()).expect("a known method");
        self.ask(Call::new(method, path).body(body)).await.map(drop)
    }

    /// Deletes one entity, whatever its state; false if it is not there.
    pub async fn delete(
        &self,
        table: &str,
        partition: &str,
        row: &str,
    ) -> Result<bool, ClientError> {
        let path = format!("/{}", uri::entity_path(table, partition, row));
        match self.ask(Call::new(Method::DELETE, path)).await {
            Err(error) if error.status() == Some(404) => Ok(false),
            outcome => outcome.map(|_| true),
        }
    }

    /// Does something to entities of one partition, none twice: everything or nothing. The error is about the first that
    /// was refused.
    pub async fn batch(
        &self,
        table: &str,
        operations: &[Operation<'_>],
    ) -> Result<(), ClientError> {
        let mut call = Call::new(Method::POST, "/$batch");
        call.content_type = batch::CONTENT_TYPE;
        let body = batch::body(&self.address(), table, operations);
        let answer = self.ask(call.body(body)).await?;
        match batch::read_answer(&answer.body, operations.len()) {
            Some(outcome) => outcome.map_err(|error| {
                ClientError::Service(ServiceError { resource: Some(table.to_owned()), ..error })
            }),
            None => Err(self.foreign(&"the answer to a batch does not fit it")),
        }
    }

    fn entity(&self, json: &str) -> Result<Entity, ClientError> {
        let read = Entity::from_json(json.as_bytes());
        read.map_err(|reason| ClientError::Entity { address: self.address(), reason })
    }

    pub(crate) fn read<'a, T: Deserialize<'a>>(
        &self,
        answer: &'a Answer,
    ) -> Result<T, ClientError> {
        serde_json::from_slice(&answer.body).map_err(|error| self.foreign(&error))
    }

    pub(crate) fn foreign(&self, reason: &dyn fmt::Display) -> ClientError {
        ClientError::Foreign { address: self.address(), reason: reason.to_string() }
    }

    /// Sends a request, again if that may help, and returns a successful answer.
    pub(crate) async fn ask(&self, call: Call) -> Result<Answer, ClientError> {
        let mut attempts = 0;
        loop {
            attempts += 1;
            let sent = self.transport.send(self.sign(&call)).await;
            self.answered.fetch_or(sent.is_ok(), Ordering::Relaxed);
            if let Ok(answer) = &sent {
                let server = answer.header("server").unwrap_or_default();
                self.rowhouse.store(server.starts_with("Rowhouse"), Ordering::Relaxed);
            }
            let (reason, asked) = match sent {
                Ok(answer) if (200..300).contains(&answer.status) => {
                    match passing_part(&answer) {
                        // A batch answers 202 even where the service was too busy for it.
                        Some(error) if attempts < retry::ATTEMPTS => (error.to_string(), None),
                        _ => return Ok(answer),
                    }
                }
                Ok(answer) => {
                    let mut error = call.refusal(&answer);
                    error.is_extension &= self.target.kind == Service::Table;
                    if !retry::is_passing(answer.status) || attempts == retry::ATTEMPTS {
                        return Err(ClientError::Service(error));
                    }
                    (error.to_string(), retry_after(&answer))
                }
                Err(Fault::TooLarge) => {
                    return Err(ClientError::TooLarge(ANSWER_BYTES_MAX / (1024 * 1024)));
                }
                Err(Fault::Untrusted(reason)) => return Err(ClientError::Certificates(reason)),
                Err(Fault::NotHttp) => return Err(ClientError::NotHttp(self.address())),
                Err(Fault::NotTls) => return Err(ClientError::NotTls(self.address())),
                Err(Fault::Passing(reason)) => {
                    let ever = self.answered.load(Ordering::Relaxed);
                    if !ever && retry::ATTEMPTS_UNANSWERED <= attempts {
                        attempts = retry::ATTEMPTS;
                    }
                    (reason, None)
                }
            };
            if attempts == retry::ATTEMPTS {
                return Err(ClientError::Unreachable { address: self.address(), reason });
            }
            let answered = self.answered.load(Ordering::Relaxed);
            if let (Some(report), 2.., true) = (&self.waiting.0, attempts, answered) {
                report(&reason);
            }
            tokio::time::sleep(retry::wait(attempts, asked, &SystemRandom)).await;
        }
    }

    /// The request as it goes out, with a date and a signature of now.
    fn sign(&self, call: &Call) -> Request<Full<Bytes>> {
        let path = format!("{}{}", self.target.endpoint.path, call.path);
        let date = SystemClock.now().rfc1123();
        let mut target = path.clone();
        let mut separator = '?';
        for (name, value) in &call.query {
            target.push(separator);
            push_encoded(&mut target, name);
            target.push('=');
            push_encoded(&mut target, value);
            separator = '&';
        }
        let mut request = Request::builder()
            .method(call.method.clone())
            .header("host", self.target.endpoint.authority())
            .header("x-ms-version", VERSION)
            .header("x-ms-date", &date)
            .header("dataserviceversion", "3.0")
            .header("accept", JSON)
            .header("user-agent", concat!("rowhouse/", env!("CARGO_PKG_VERSION")));
        let is_table = self.target.kind == Service::Table;
        if is_table && call.method == Method::POST {
            request = request.header("prefer", "return-no-content");
        }
        if is_table && call.method == Method::DELETE {
            request = request.header("if-match", "*");
        }
        if !call.body.is_empty() {
            request = request.header("content-type", call.content_type);
        }
        match &self.target.credentials {
            Credentials::Sas(sas) => {
                target.push(separator);
                target.push_str(sas);
            }
            Credentials::Key { account, key } => {
                let headers = [
                    ("x-ms-date", date.as_str()),
                    ("x-ms-version", VERSION),
                    ("content-type", if call.body.is_empty() { "" } else { call.content_type }),
                ];
                let headers: Vec<_> =
                    headers.into_iter().filter(|(_, value)| !value.is_empty()).collect();
                let header = |name: &str| {
                    headers.iter().find(|(found, _)| *found == name).map(|(_, value)| *value)
                };
                let service = match self.target.kind {
                    Service::Table => rowhouse_auth::Service::Table,
                    Service::Queue => {
                        rowhouse_auth::Service::Queue { queue: "", headers: &headers }
                    }
                };
                let query: Vec<_> = call
                    .query
                    .iter()
                    .map(|(name, value)| ((*name).to_owned(), value.clone()))
                    .collect();
                let signed = rowhouse_auth::Request {
                    method: call.method.as_str(),
                    account,
                    path: &path,
                    query: &query,
                    header: &header,
                    service,
                };
                let signature = sign::shared_key(&signed, Scheme::SharedKeyLite, key);
                let signature = signature.expect("the request has a date and one comp at most");
                request = request.header("authorization", signature);
            }
        }
        let request = request.uri(target).body(Full::new(call.body.clone()));
        request.expect("names are checked and everything else is encoded")
    }
}

/// The refusal inside a batch's answer that another attempt may turn into a success.
fn passing_part(answer: &Answer) -> Option<ServiceError> {
    let kind = answer.header("content-type").unwrap_or_default();
    if !kind.starts_with("multipart/mixed") {
        return None;
    }
    let refused = batch::read_answer(&answer.body, usize::MAX)?.err()?;
    retry::is_passing(refused.status).then_some(refused)
}

fn retry_after(answer: &Answer) -> Option<Duration> {
    answer.header("retry-after")?.trim().parse().ok().map(Duration::from_secs)
}

/// The path of a table below the service.
pub(crate) fn path_of(table: &str) -> String {
    let mut path = "/".to_owned();
    push_encoded(&mut path, table);
    path
}

/// Escapes everything that is not a letter, a digit or one of `-._~$`.
fn push_encoded(out: &mut String, text: &str) {
    for &byte in text.as_bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~$".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
}
