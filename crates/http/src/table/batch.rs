//! Transactions: several operations in one body, answered in one body.
//!
//! A transaction takes the road of a single operation as far as it goes: each part is routed and parsed as
//! a request of its own, then all are committed as one. What is wrong with the envelope is the answer to
//! the whole request; what is wrong with an operation is the one part of a 202.

use super::dispatch::{Context, Echo, corrupt, dispatch, on_thread};
use super::error::Failure;
use super::outbox::Around;
use super::reply::{self, ErrorForm, NOSNIFF};
use super::router::{self, Operation, Route};
use crate::front::answer::Content;
use crate::front::head::{Head, Headers};
use crate::front::refusal::Refusal;
use crate::front::reply::{NO_CACHE, Reply};
use crate::queue;
use http::StatusCode;
use http::header::HeaderName;
use rowhouse_service_queue::{Caller as QueueCaller, MessageCommand, MessageOperation, QueueError};
use rowhouse_service_table::{Operation as EntityOperation, Reach, TableError, Transacted};
use rowhouse_types::{Etag, Service, Timestamp};
use rowhouse_wire::batch::{self, BatchError, Part, PartWriter, Request, ResponseWriter};
use rowhouse_wire::media::{self, Metadata, Prefer};
use rowhouse_wire::uri::Query;
use std::borrow::Cow;

/// Identifiers of one answer, drawn by the caller: chance is an argument.
#[derive(Clone, Debug)]
pub(crate) struct Ids {
    pub(crate) request: String,
    pub(crate) batch: String,
    pub(crate) changeset: String,
}

/// How far apart the entities of a changeset may be. Ours, not the original's: `docs/extensions.md`.
pub(crate) fn reach(headers: Headers<'_>) -> Result<Reach, Failure> {
    static TRANSACTION: HeaderName = HeaderName::from_static("x-rowhouse-transaction");
    match headers.get(&TRANSACTION) {
        None => Ok(Reach::Partition),
        Some("account") => Ok(Reach::Account),
        Some(_) => Err(Failure::Reach),
    }
}

/// What a body holds, before anything is done about it.
pub(crate) fn parse<'a>(
    content_type: Option<&str>,
    body: &'a [u8],
) -> Result<Request<'a>, BatchError> {
    let boundary = content_type.and_then(batch::boundary).ok_or(BatchError::Malformed)?;
    batch::parse(body, &boundary)
}

/// Carries a batch out. Fails only where the envelope is at fault or nobody may know the outcome.
pub(crate) async fn run(
    cx: Context<'_>,
    prefix: &str,
    around: Option<Around<'_>>,
    reach: Reach,
    request: Result<Request<'_>, BatchError>,
    ids: &Ids,
) -> Result<Reply, Failure> {
    match request {
        Ok(Request::Changeset(_)) if cx.secondary => Err(Refusal::SecondaryWrite.into()),
        Ok(Request::Changeset(parts)) => changeset(cx, prefix, around, reach, &parts, ids).await,
        Ok(Request::Query(part)) => lone_query(cx, prefix, &part, ids).await,
        Err(BatchError::TooManyOperations) => {
            let failure = Failure::Batch(BatchError::TooManyOperations);
            failed(cx, &failure, None, None, ids)
        }
        Err(error) => Err(error.into()),
    }
}

/// What the answer to a part is made of, once the batch took effect.
enum Due {
    Entity { echo: Echo, level: Metadata, prefer: Option<Prefer> },
    Put,
    Deleted,
}

/// The operations of a changeset, with the positions of their parts.
#[derive(Default)]
struct Plan {
    dues: Vec<Due>,
    entities: Vec<EntityOperation>,
    entity_parts: Vec<usize>,
    messages: Vec<MessageOperation>,
    message_parts: Vec<usize>,
}

impl Plan {
    /// The part that the store knows by that position: entities first, then messages.
    fn part(&self, position: usize) -> usize {
        let parts = self.entity_parts.iter().chain(&self.message_parts);
        parts.copied().nth(position).unwrap_or(position)
    }

    fn push_message(&mut self, part: usize, operation: MessageOperation) {
        self.dues.push(match operation {
            MessageOperation::Put { .. } => Due::Put,
            MessageOperation::Delete { .. } => Due::Deleted,
        });
        self.messages.push(operation);
        self.message_parts.push(part);
    }

    fn push_entity(
        &mut self,
        part: usize,
        cx: Context<'_>,
        operation: EntityOperation,
        level: Metadata,
        prefer: Option<Prefer>,
    ) {
        self.dues.push(Due::Entity { echo: Echo::of(cx.base, &operation, prefer), level, prefer });
        self.entities.push(operation);
        self.entity_parts.push(part);
    }
}

async fn changeset(
    cx: Context<'_>,
    prefix: &str,
    around: Option<Around<'_>>,
    reach: Reach,
    parts: &[Part<'_>],
    ids: &Ids,
) -> Result<Reply, Failure> {
    let mut plan = Plan::default();
    let mut slice = TimeSlice::default();
    for (index, part) in parts.iter().enumerate() {
        slice.spend(part.body.len()).await;
        let failure = if let Some(message) = around.and_then(|around| around.read(part)) {
            match message {
                // It came to the table endpoint, whatever it is about.
                Ok(operation) => match cx.grant.check_service(Service::Table) {
                    Ok(()) => {
                        plan.push_message(index, operation);
                        continue;
                    }
                    Err(denied) => TableError::Denied(denied).into(),
                },
                Err(failure) => failure,
            }
        } else {
            match parse_write(cx, prefix, part) {
                Ok((Operation::Write(operation), level, prefer)) => {
                    plan.push_entity(index, cx, operation, level, prefer);
                    continue;
                }
                Ok((Operation::Refused(refused), ..)) => cx.refuse(refused).await,
                Ok(_) => Failure::NotInBatch,
                Err(failure) => failure,
            }
        };
        let failure = Failure::Part { index, source: Box::new(failure) };
        return failed(cx, &failure, Some(part), prefer_of(part), ids);
    }
    let messages = match prepare(cx, around, &mut plan).await {
        Ok(messages) => messages,
        Err(QueueError::Operation { index, source }) => {
            let index = plan.message_parts.get(index).copied().unwrap_or(index);
            let part = parts.get(index);
            let source = Box::new(super::outbox::failure(*source));
            let failure = Failure::Part { index, source };
            return failed(cx, &failure, part, part.and_then(prefer_of), ids);
        }
        Err(error) => return Err(super::outbox::failure(error)),
    };
    let entities = std::mem::take(&mut plan.entities);
    let done = match cx.tables.transact(cx.caller(), reach, entities, messages).await {
        Ok(done) => done,
        Err(TableError::Operation { index, source }) => {
            // The original leaves the index out when a lone operation on an entity fails at execution.
            let executed = matches!(
                *source,
                TableError::EntityExists
                    | TableError::ResourceNotFound
                    | TableError::EtagMismatch
                    | TableError::NotUnique { .. }
            );
            let index = plan.part(index);
            let part = parts.get(index);
            let failure = if parts.len() == 1 && executed {
                Failure::Table(*source)
            } else {
                Failure::Table(TableError::Operation { index, source })
            };
            return failed(cx, &failure, part, part.and_then(prefer_of), ids);
        }
        Err(error) => return Err(error.into()),
    };
    answers(cx, around, plan.dues, done, parts, ids).await
}

/// Bytes of a time slice. So much of entities with many small properties is parsed in up to 300 us.
const SLICE_BYTES: usize = 16 * 1024;

/// Megabytes of entities are parsed and written in time slices, after which the task yields its thread.
#[derive(Default)]
struct TimeSlice {
    bytes: usize,
}

impl TimeSlice {
    /// Yields if these bytes no longer fit into the time slice.
    async fn spend(&mut self, bytes: usize) {
        self.bytes += bytes;
        if SLICE_BYTES < self.bytes {
            self.bytes = bytes;
            tokio::task::yield_now().await;
        }
    }
}

/// Makes commands of the messages, which are then gone from the plan.
async fn prepare(
    cx: Context<'_>,
    around: Option<Around<'_>>,
    plan: &mut Plan,
) -> Result<Vec<MessageCommand>, QueueError> {
    match around {
        Some(around) if !plan.messages.is_empty() => {
            let caller = QueueCaller { account: cx.account.id, grant: cx.grant };
            let messages = std::mem::take(&mut plan.messages);
            around.outbox.queues.prepare(caller, messages).await
        }
        _ => Ok(Vec::new()),
    }
}

/// The answers to all parts of a changeset that took effect.
async fn answers(
    cx: Context<'_>,
    around: Option<Around<'_>>,
    dues: Vec<Due>,
    done: Transacted,
    parts: &[Part<'_>],
    ids: &Ids,
) -> Result<Reply, Failure> {
    let mut writer = ResponseWriter::changeset(&ids.batch, &ids.changeset);
    writer.reserve(dues.iter().map(room).sum());
    let (mut timestamps, mut messages) = (done.timestamps.into_iter(), done.messages.iter());
    let mut slice = TimeSlice::default();
    for (due, part) in dues.into_iter().zip(parts) {
        // An entity that is sent back is about as long as it came.
        slice.spend(part.body.len()).await;
        let content_id = part.inner_content_id();
        match due {
            Due::Entity { echo, level, prefer } => {
                let cx = Context { level, prefer, ..cx };
                let timestamp = timestamps.next().unwrap_or_default();
                write_echo(&mut writer, content_id, cx, echo, timestamp)?;
            }
            Due::Put => {
                let message = messages.next().ok_or(Failure::Internal("no message to tell of"))?;
                let version = around.map(|around| around.version).unwrap_or_default();
                write_part(&mut writer, content_id, queue::created(message, version))?;
            }
            Due::Deleted => write_part(&mut writer, content_id, queue::deleted())?,
        }
    }
    Ok(accepted(writer))
}

/// About how many bytes the answer to a write takes.
fn room(due: &Due) -> usize {
    const LINES: usize = 448;
    match due {
        Due::Entity { echo: Echo::Insert { location, .. }, .. } => LINES + 2 * location.len(),
        Due::Put => 2 * LINES,
        Due::Entity { .. } | Due::Deleted => LINES,
    }
}

/// The answer to a write that took effect: what [`Echo::reply`] says, in the order of the original.
fn write_echo(
    writer: &mut ResponseWriter,
    content_id: Option<&str>,
    cx: Context<'_>,
    echo: Echo,
    timestamp: Timestamp,
) -> Result<(), Failure> {
    const NO_CONTENT: &str = "204 No Content";
    let changed = !matches!(echo, Echo::Delete);
    let Echo::Insert { location, inserted } = echo else {
        let mut part = start(writer, NO_CONTENT, content_id);
        common_headers(&mut part);
        part.header("DataServiceVersion", "1.0;");
        if changed {
            Etag::new(timestamp).with_text(|text| part.header("ETag", text));
        }
        part.body(b"");
        return Ok(());
    };
    let body = inserted.map(|inserted| inserted.body(cx, timestamp)).transpose()?;
    let status = if body.is_some() { "201 Created" } else { NO_CONTENT };
    let mut part = start(writer, status, content_id);
    if body.is_some() {
        part.header("DataServiceVersion", "3.0;");
        part.header("Content-Type", media::content_type(cx.level));
    }
    common_headers(&mut part);
    if let Some(prefer) = cx.prefer {
        part.header("Preference-Applied", prefer.as_str());
    }
    if body.is_none() {
        part.header("DataServiceVersion", "3.0;");
    }
    part.header("Location", &location);
    if body.is_none() {
        part.header("DataServiceId", &location);
    }
    Etag::new(timestamp).with_text(|text| part.header("ETag", text));
    part.body(body.as_deref().unwrap_or_default());
    Ok(())
}

fn start<'w>(
    writer: &'w mut ResponseWriter,
    status: &str,
    content_id: Option<&str>,
) -> PartWriter<'w> {
    let mut part = writer.part(status);
    if let Some(id) = content_id {
        part.header("Content-ID", id);
    }
    part
}

fn common_headers(part: &mut PartWriter<'_>) {
    for (name, value) in [NOSNIFF, NO_CACHE] {
        part.header(&name, &value);
    }
}

/// All of a body at once. A page is large, so it is written on another thread.
async fn whole(body: Content) -> Result<Vec<u8>, Failure> {
    let whole = match body {
        Content::Whole(bytes) => Ok(bytes),
        page @ Content::Page(_) => on_thread(|| page.into_whole()).await?,
    };
    whole.map_err(corrupt)
}

/// What a query alone in a batch would be answered outside.
async fn answer(cx: Context<'_>, prefix: &str, part: &Part<'_>) -> Result<Reply, Failure> {
    let head = head(prefix, part)?;
    let route = router::route(&head, cx.strict)?;
    let known = matches!(route, Route::GetEntity(_) | Route::QueryEntities(_));
    if !known {
        return Err(Failure::NotInBatch);
    }
    let parsed = match router::long_filter(&route, &head) {
        Some(text) => Some(cx.parse_filter(text).await?),
        None => None,
    };
    let operation = router::operation(route, &head, part.body, parsed, cx.strict)?;
    dispatch(Context { level: head.metadata()?, prefer: None, ..cx }, operation).await
}

/// A query alone in a batch: one entity or one page.
async fn lone_query(
    cx: Context<'_>,
    prefix: &str,
    part: &Part<'_>,
    ids: &Ids,
) -> Result<Reply, Failure> {
    // What does not decode is said in the part.
    let answer = match answer(cx, prefix, part).await {
        Ok(mut reply) => whole(std::mem::take(&mut reply.body)).await.map(|body| {
            reply.body = body.into();
            reply
        }),
        Err(failure) => Err(failure),
    };
    let mut writer = ResponseWriter::query(&ids.batch);
    match answer {
        Ok(mut reply) => {
            reply.headers.insert(0, (Cow::Borrowed("DataServiceVersion"), Cow::Borrowed("3.0;")));
            write_part(&mut writer, part.inner_content_id(), reply)?;
        }
        Err(failure) => {
            let failure = Failure::Part { index: 0, source: Box::new(failure) };
            let reply = error_part(cx, &failure, None, ids);
            write_part(&mut writer, part.inner_content_id(), reply)?;
        }
    }
    Ok(accepted(writer))
}

fn parse_write(
    cx: Context<'_>,
    prefix: &str,
    part: &Part<'_>,
) -> Result<(Operation, Metadata, Option<Prefer>), Failure> {
    let head = head(prefix, part)?;
    let route = router::route(&head, cx.strict)?;
    let level = head.metadata()?;
    if router::long_filter(&route, &head).is_some() {
        // A query does not belong here, whatever is wrong with its filter.
        return Err(Failure::NotInBatch);
    }
    Ok((router::operation(route, &head, part.body, None, cx.strict)?, level, head.prefer()))
}

/// The URL of a part may be absolute or not, and name a host that only the client knows: its path counts.
fn head<'a>(prefix: &str, part: &'a Part<'a>) -> Result<Head<'a>, Failure> {
    let target = match part.target.split_once("://") {
        Some((_, rest)) => rest.find('/').map_or("/", |at| &rest[at..]),
        None => part.target,
    };
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let path = match path.strip_prefix(prefix) {
        Some(rest) if rest.starts_with('/') => rest,
        _ => path,
    };
    Ok(Head {
        method: part.method,
        path,
        query: Query::parse(query)?,
        headers: Headers::Part(part),
        spelling: None,
    })
}

fn prefer_of(part: &Part<'_>) -> Option<Prefer> {
    (part.method == "POST").then(|| part.header("prefer").and_then(media::prefer)).flatten()
}

/// A 202 whose one part says what failed.
fn failed(
    cx: Context<'_>,
    failure: &Failure,
    part: Option<&Part<'_>>,
    prefer: Option<Prefer>,
    ids: &Ids,
) -> Result<Reply, Failure> {
    let mut writer = ResponseWriter::changeset(&ids.batch, &ids.changeset);
    let reply = error_part(cx, failure, prefer, ids);
    write_part(&mut writer, part.and_then(Part::inner_content_id), reply)?;
    Ok(accepted(writer))
}

fn error_part(cx: Context<'_>, failure: &Failure, prefer: Option<Prefer>, ids: &Ids) -> Reply {
    let form = ErrorForm { xml: false, level: Metadata::Minimal, prefer };
    let mut reply = reply::failure(failure, form, &ids.request, cx.now);
    let at = reply.headers.len() - 1;
    reply.headers.insert(at, (Cow::Borrowed("DataServiceVersion"), Cow::Borrowed("3.0;")));
    reply
}

fn write_part(
    writer: &mut ResponseWriter,
    content_id: Option<&str>,
    reply: Reply,
) -> Result<(), Failure> {
    let reason = reply.status.canonical_reason().unwrap_or("");
    let status = [reply.status.as_str(), " ", reason].concat();
    let mut part = start(writer, &status, content_id);
    for (name, value) in &reply.headers {
        part.header(name, value);
    }
    part.body(&reply.body.into_whole().map_err(corrupt)?);
    Ok(())
}

fn accepted(writer: ResponseWriter) -> Reply {
    let mut reply = Reply::plain(StatusCode::ACCEPTED);
    reply.headers.extend([NOSNIFF, NO_CACHE]);
    reply.push("Content-Type", writer.content_type());
    reply.body = writer.finish().into();
    reply
}
