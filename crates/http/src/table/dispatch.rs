//! The one `match` on operations: ask the service, encode, answer.

use super::error::Failure;
use super::router::{self, DeleteMany, Operation, ParsedFilter, QueryEntities, Refused};
use super::{explain, index, ttl};
use crate::front::answer::Content;
use crate::front::reply::Reply;
use http::StatusCode;
use rowhouse_query::{Filter, Order};
use rowhouse_service_account::{AccountService, AccountView};
use rowhouse_service_table::{
    Action, Caller, DeleteQuery, EntityQuery, Operation as EntityOperation, OrderPlace, Place,
    TableError, TableService, Ttl,
};
use rowhouse_types::{
    Corrupt, EntityKey, Grant, Record, Row, Rows, Service, TableName, Timestamp, limits,
};
use rowhouse_wire::media::{Metadata, Prefer};
use rowhouse_wire::select::Select;
use rowhouse_wire::uri::ResourceError;
use rowhouse_wire::{entity, tables, token, uri, xml};
use std::borrow::Cow;
use std::time::Instant;

/// Everything that a handler may need beside the operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context<'a> {
    pub(crate) tables: &'a TableService,
    pub(crate) accounts: &'a AccountService,
    pub(crate) account: &'a AccountView,
    pub(crate) grant: &'a Grant,
    /// URL of the service as the client sees it.
    pub(crate) base: &'a str,
    pub(crate) secondary: bool,
    pub(crate) level: Metadata,
    pub(crate) prefer: Option<Prefer>,
    /// When a page ends even if it is short.
    pub(crate) deadline: Instant,
    pub(crate) now: Timestamp,
    /// Without extensions.
    pub(crate) strict: bool,
}

/// Sets or removes the TTL of a table, which leaves a line in the log: it may remove much.
async fn set_ttl(
    cx: Context<'_>,
    table: &TableName,
    wanted: Option<Ttl>,
) -> Result<Reply, Failure> {
    cx.tables.set_ttl(cx.caller(), table, wanted.clone()).await?;
    let (account, table) = (cx.account.name.as_str(), table.as_str());
    let Some(set) = wanted else {
        tracing::info!(account, table, "the TTL of a table was removed");
        return Ok(Reply::empty(StatusCode::NO_CONTENT));
    };
    let (seconds, property) = (set.after.as_secs(), set.property.as_deref());
    tracing::info!(account, table, seconds, property, "the TTL of a table was set");
    Ok(Reply::plain_json(StatusCode::OK, &ttl::write(Some(&set))))
}

/// Carries the operation out. Reads of one entity and writes are what is done most: what needs more room than they do is boxed.
pub(crate) async fn dispatch(cx: Context<'_>, operation: Operation) -> Result<Reply, Failure> {
    let caller = cx.caller();
    match operation {
        Operation::QueryTables { filter, top, from } => {
            let page = cx.tables.list_tables(caller, filter, from, top, cx.deadline).await?;
            let mut body = Vec::new();
            let names = page.names.iter().map(TableName::as_str);
            tables::write_list(&mut body, cx.base, cx.account.name.as_str(), cx.level, names);
            let mut reply = Reply::json(StatusCode::OK, cx.level, body);
            if let Some(next) = page.next {
                reply.push("x-ms-continuation-NextTableName", token::encode(next.as_str()));
            }
            Ok(reply)
        }
        Operation::GetTable(name) => {
            let name = cx.tables.get_table(caller, &name).await?;
            Ok(Reply::json(StatusCode::OK, cx.level, cx.table_body(&name)))
        }
        Operation::CreateTable(name) => {
            cx.tables.create_table(caller, &name, cx.account.limits.tables).await?;
            let location = [cx.base, "/", &uri::table_path(name.as_str())].concat();
            cx.created(location, || Ok(cx.table_body(&name)))
        }
        Operation::DeleteTable(name) => {
            cx.tables.delete_table(caller, &name).await?;
            Ok(Reply::empty(StatusCode::NO_CONTENT))
        }
        Operation::GetPolicies(name) => {
            let policies = cx.tables.policies(caller, &name).await?;
            Ok(Reply::xml(xml::acl::write(&policies)))
        }
        Operation::SetPolicies(name, policies) => {
            cx.tables.set_policies(caller, &name, policies).await?;
            Ok(Reply::plain(StatusCode::NO_CONTENT))
        }
        Operation::QueryEntities(query) => Box::pin(query_entities(cx, query)).await,
        Operation::CountEntities { table, filter } => {
            Box::pin(count_entities(cx, &table, filter)).await
        }
        Operation::Explain { query, text } => Box::pin(explain_query(cx, query, text)).await,
        Operation::ListIndexes(table) => {
            let indexes = cx.tables.indexes(caller, &table).await?;
            Ok(Reply::plain_json(StatusCode::OK, &index::write_list(&indexes)))
        }
        Operation::CreateIndex(table, new) => {
            let created = cx.tables.create_index(caller, &table, new).await?;
            Ok(Reply::plain_json(StatusCode::CREATED, &index::write(&created)))
        }
        Operation::DropIndex(table, name) => {
            cx.tables.drop_index(caller, &table, &name).await?;
            Ok(Reply::empty(StatusCode::NO_CONTENT))
        }
        Operation::CostlyQueries(table) => {
            let queries = cx.tables.costly_queries(caller, &table).await?;
            Ok(Reply::plain_json(StatusCode::OK, &explain::write_queries(&table, &queries)))
        }
        Operation::GetTtl(table) => {
            let found = cx.tables.ttl(caller, &table).await?;
            Ok(Reply::plain_json(StatusCode::OK, &ttl::write(found.as_ref())))
        }
        Operation::SetTtl(table, wanted) => set_ttl(cx, &table, wanted).await,
        Operation::DeleteMany(delete) => Box::pin(delete_many(cx, delete)).await,
        Operation::GetEntity { table, key, select } => {
            let record = cx.tables.get_entity(caller, &table, &key).await?;
            let body = cx.entity_body(&table, &key, &record, select.as_ref())?;
            let mut reply = Reply::json(StatusCode::OK, cx.level, body);
            reply.push_etag(record.as_ref().timestamp());
            cx.push_plan(&mut reply, "point; examined=1; returned=1");
            Ok(reply)
        }
        Operation::Write(operation) => {
            let echo = Echo::of(cx.base, &operation, cx.prefer);
            let timestamp = cx.tables.write(caller, operation).await?;
            echo.reply(cx, timestamp)
        }
        Operation::Refused(refused) => Err(cx.refuse(refused).await),
        Operation::GetProperties => {
            let properties = cx.accounts.properties(cx.grant, cx.account, Service::Table)?;
            Ok(Reply::xml(xml::service_properties::write(properties)))
        }
        Operation::SetProperties(update) => {
            cx.accounts.set_properties(cx.grant, cx.account, Service::Table, update).await?;
            Ok(Reply::plain(StatusCode::ACCEPTED))
        }
        Operation::GetStats => stats(cx).await,
    }
}

async fn stats(cx: Context<'_>) -> Result<Reply, Failure> {
    // The grant is that of reading properties.
    cx.accounts.properties(cx.grant, cx.account, Service::Table)?;
    if !cx.secondary {
        return Err(Failure::ParameterValue);
    }
    let (status, synced) = match cx.tables.synced().await {
        Ok(synced) => ("live", Some(synced.unwrap_or(cx.now))),
        Err(_) => ("unavailable", None),
    };
    Ok(Reply::xml(xml::stats::write(status, synced)))
}

async fn count_entities(
    cx: Context<'_>,
    table: &TableName,
    filter: Option<Filter>,
) -> Result<Reply, Failure> {
    let counted = cx.tables.count(cx.caller(), table, filter, cx.deadline).await?;
    let mut reply = Reply::empty(StatusCode::OK);
    reply.push("Content-Type", "text/plain;charset=utf-8");
    let plan = format!("{}; examined={}; returned=0", counted.plan, counted.examined);
    cx.push_plan(&mut reply, plan.clone());
    reply.plan = Some(plan);
    reply.body = counted.count.to_string().into_bytes().into();
    Ok(reply)
}

async fn query_entities(cx: Context<'_>, query: QueryEntities) -> Result<Reply, Failure> {
    let (count, select, order) = (query.count, query.select.clone(), query.order.clone());
    let (table, query) = cx.page(query);
    // Whoever goes on has been told.
    let count = if count && query.from.is_none() {
        let filter = query.filter.clone();
        Some(cx.tables.count(cx.caller(), &table, filter, cx.deadline).await?.count)
    } else {
        None
    };
    let mut page = cx.tables.query(cx.caller(), &table, query).await?;
    let body;
    let written;
    (body, written, page.rows) = page_body(cx, &table, select, count, page.rows).await?;
    let mut reply = Reply::json(StatusCode::OK, cx.level, body);
    // What did not fit is where the next page starts.
    let next = match page.rows.iter().nth(written) {
        Some(row) => row.and_then(|row| page.place_of(&row).map(Some)),
        None => Ok(page.next),
    };
    if let Some(next) = next.map_err(corrupt)? {
        let (partition, row) = tokens(order.as_ref(), next);
        reply.push("x-ms-continuation-NextPartitionKey", partition);
        reply.push("x-ms-continuation-NextRowKey", row);
    }
    let plan = format!("{}; examined={}; returned={}", page.plan, page.examined, written);
    cx.push_plan(&mut reply, plan.clone());
    reply.plan = Some(plan);
    Ok(reply)
}

/// The body of a page, how many entities it has, and the rows again, unless they are sent with the body. It is written on
/// another thread if that may take long.
async fn page_body(
    cx: Context<'_>,
    table: &TableName,
    select: Option<Select>,
    count: Option<u64>,
    mut rows: Rows,
) -> Result<(Content, usize, Rows), Failure> {
    let encoding = cx.encoding(table, select.as_ref());
    if is_short(&encoding, count, &rows) {
        let (body, written) = write_page(&encoding, count, &mut rows).map_err(corrupt)?;
        return Ok((body, written, rows));
    }
    let (base, account) = (cx.base.to_owned(), cx.account.name.as_str().to_owned());
    let (table, level) = (table.as_str().to_owned(), cx.level);
    let write = move || {
        let (base, account, table) = (&*base, &*account, &*table);
        let encoding = entity::Context { base, account, table, level, select: select.as_ref() };
        let (body, written) = write_page(&encoding, count, &mut rows)?;
        Ok((body, written, rows))
    };
    on_thread(write).await?.map_err(corrupt)
}

/// Whether [`write_page`] certainly takes no longer than a task may hold its thread: it writes little, or only the first piece
/// of a page that fits whatever is in it. To find what is selected takes time for every name.
fn is_short(encoding: &entity::Context<'_>, count: Option<u64>, rows: &Rows) -> bool {
    let names = encoding.select.map_or(0, |select| select.names().len());
    let is_searched_soon = names * rows.byte_len() <= limits::PAGE_INLINE_BYTES_MAX;
    let most = entity::most_bytes(encoding, count, rows).unwrap_or(usize::MAX);
    let is_sent_in_pieces = limits::PAGE_WHOLE_BYTES_MAX < rows.byte_len();
    let may_be = if is_sent_in_pieces {
        limits::PAGE_REPLY_BYTES_MAX
    } else {
        limits::PAGE_INLINE_BYTES_MAX
    };
    is_searched_soon && most <= may_be
}

/// Does what would hold a task's thread on one that nobody waits for.
pub(super) async fn on_thread<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, TableError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| TableError::Unavailable(error.into()))
}

/// The body of a page, and how many entities it has. One that is large, and known to fit, is written while it is sent, and takes
/// the rows with it; of any other, what does not fit is left out.
fn write_page(
    encoding: &entity::Context<'_>,
    count: Option<u64>,
    rows: &mut Rows,
) -> Result<(Content, usize), Corrupt> {
    let limit = limits::PAGE_REPLY_BYTES_MAX;
    if limits::PAGE_WHOLE_BYTES_MAX < rows.byte_len() && entity::fits(encoding, count, rows, limit)
    {
        let rows = std::mem::take(rows);
        let written = rows.len();
        let page = Content::page(entity::PageWriter::new(encoding, count, rows))?;
        return Ok((page, written));
    }
    let mut body = Vec::with_capacity(rows.byte_len() * 2 + 128);
    let written = entity::write_page(&mut body, encoding, count, rows.iter(), limit)?;
    Ok((body.into(), written))
}

async fn delete_many(cx: Context<'_>, delete: DeleteMany) -> Result<Reply, Failure> {
    let DeleteMany { table, filter, top, from, dry_run } = delete;
    let query = DeleteQuery { filter, from, limit: top, dry_run, deadline: cx.deadline };
    let step = cx.tables.delete_step(cx.caller(), &table, query).await?;
    let deleted = if dry_run { 0 } else { step.deleted };
    let told = serde_json::json!({
        "matched": step.deleted,
        "deleted": deleted,
        "examined": step.examined,
        "done": step.next.is_none(),
    });
    let mut reply = Reply::plain_json(StatusCode::OK, &told);
    if let Some(next) = step.next {
        let (partition, row) = tokens(None, Place::Key(next));
        reply.push("x-ms-continuation-NextPartitionKey", partition);
        reply.push("x-ms-continuation-NextRowKey", row);
    }
    let plan = format!("{}; examined={}; deleted={deleted}", step.plan, step.examined);
    cx.push_plan(&mut reply, plan.clone());
    reply.plan = Some(plan);
    Ok(reply)
}

async fn explain_query(
    cx: Context<'_>,
    query: QueryEntities,
    text: bool,
) -> Result<Reply, Failure> {
    let (table, query) = cx.page(query);
    let explanation = cx.tables.explain(cx.caller(), &table, query).await?;
    if !text {
        return Ok(Reply::plain_json(StatusCode::OK, &explain::write(&explanation)));
    }
    let mut reply = Reply::empty(StatusCode::OK);
    reply.push("Content-Type", "text/plain;charset=utf-8");
    reply.body = explain::text(&explanation).into_bytes().into();
    Ok(reply)
}

/// A place in an answer as the two tokens that clients give back.
fn tokens(order: Option<&Order>, place: Place) -> (String, String) {
    let direction = order.map(Order::direction).unwrap_or_default();
    match place {
        Place::Key(key) => {
            let token = |text: &str| token::encode_in(direction, text);
            (token(&key.partition), token(&key.row))
        }
        Place::Order(OrderPlace { index, entry, key }) => {
            let property = order.and_then(router::ordered_by).unwrap_or_default();
            let (entry, partition, row) = (entry.into(), key.partition.into(), key.row.into());
            let property = property.to_owned();
            token::OrderToken { direction, property, index, entry, partition, row }.encode()
        }
    }
}

/// What is needed of a write to answer it after the operation is gone.
#[derive(Debug)]
pub(crate) enum Echo {
    Insert {
        /// Address of the new entity.
        location: String,
        /// The entity, if the client wants it back.
        inserted: Option<Box<Inserted>>,
    },
    Change,
    Delete,
}

/// An entity that is sent back to who inserted it.
#[derive(Debug)]
pub(crate) struct Inserted {
    table: TableName,
    key: EntityKey,
    record: Record,
}

impl Inserted {
    /// The entity as it was stored then.
    pub(crate) fn body(
        mut self,
        cx: Context<'_>,
        timestamp: Timestamp,
    ) -> Result<Vec<u8>, Failure> {
        self.record.stamp(timestamp);
        cx.entity_body(&self.table, &self.key, &self.record, None)
    }
}

impl Echo {
    /// Keeps no more than what the client wants back. `base` is the address of the service.
    pub(crate) fn of(base: &str, operation: &EntityOperation, prefer: Option<Prefer>) -> Self {
        let EntityOperation { table, key, action } = operation;
        match action {
            Action::Insert(record) => {
                let (partition, row) = (key.partition.as_str(), key.row.as_str());
                let location = uri::entity_url(base, table.as_str(), partition, row);
                let inserted = (prefer != Some(Prefer::NoContent)).then(|| {
                    let (table, key, record) = (table.clone(), key.clone(), record.clone());
                    Box::new(Inserted { table, key, record })
                });
                Self::Insert { location, inserted }
            }
            Action::Delete(_) => Self::Delete,
            Action::Update(..)
            | Action::Merge(..)
            | Action::InsertOrReplace(_)
            | Action::InsertOrMerge(_) => Self::Change,
        }
    }

    /// The answer to a write that took effect.
    pub(crate) fn reply(self, cx: Context<'_>, timestamp: Timestamp) -> Result<Reply, Failure> {
        let mut reply = match self {
            Self::Delete => return Ok(Reply::empty(StatusCode::NO_CONTENT)),
            Self::Change => Reply::empty(StatusCode::NO_CONTENT),
            Self::Insert { location, inserted } => cx.created(location, || {
                inserted.ok_or(Failure::Internal("no entity to echo"))?.body(cx, timestamp)
            })?,
        };
        reply.push_etag(timestamp);
        Ok(reply)
    }
}

impl<'a> Context<'a> {
    pub(crate) fn caller(&self) -> Caller<'a> {
        Caller { account: self.account.id, grant: self.grant }
    }

    /// The outcome of parsing a long filter, on another thread.
    pub(crate) async fn parse_filter(&self, text: &str) -> Result<ParsedFilter, Failure> {
        let (text, strict) = (text.to_owned(), self.strict);
        let parse = move || router::parse_filter(&text, strict);
        Ok(self.tables.long_work(self.deadline, parse).await?)
    }

    /// What the service is asked for a page.
    fn page(&self, query: QueryEntities) -> (TableName, EntityQuery) {
        let QueryEntities { table, filter, select, order, top, limited, from, .. } = query;
        let select = select.map(|select| select.names().into());
        let deadline = self.deadline;
        (table, EntityQuery { filter, select, order, from, limit: top, limited, deadline })
    }

    /// Says how the answer was found: the original does not.
    fn push_plan(&self, reply: &mut Reply, plan: impl Into<Cow<'static, str>>) {
        if !self.strict {
            reply.push("x-rowhouse-plan", plan);
        }
    }

    /// What to say of an operation that cannot be carried out: that it is not allowed or has no table goes
    /// before what is wrong with it.
    pub(crate) async fn refuse(&self, refused: Refused) -> Failure {
        let Refused { table, access, why } = refused;
        if let Err(error) = self.tables.check_table(self.caller(), access, &table).await {
            return error.into();
        }
        match *why {
            Failure::Resource(ResourceError::KeyCount { table }) => {
                Failure::KeysMissing { account: self.account.name.as_str().to_owned(), table }
            }
            why => why,
        }
    }

    /// 201 with a body or 204 without, as the client prefers, with the new resource's address.
    fn created(
        &self,
        location: String,
        body: impl FnOnce() -> Result<Vec<u8>, Failure>,
    ) -> Result<Reply, Failure> {
        let mut reply = match self.prefer {
            Some(Prefer::NoContent) => Reply::empty(StatusCode::NO_CONTENT),
            _ => Reply::json(StatusCode::CREATED, self.level, body()?),
        };
        if let Some(prefer) = self.prefer {
            reply.push("Preference-Applied", prefer.as_str());
        }
        if self.prefer == Some(Prefer::NoContent) {
            reply.push("Location", location.clone());
            reply.push("DataServiceId", location);
        } else {
            reply.push("Location", location);
        }
        Ok(reply)
    }

    fn table_body(&self, name: &TableName) -> Vec<u8> {
        let mut body = Vec::new();
        let account = self.account.name.as_str();
        tables::write_one(&mut body, self.base, account, self.level, name.as_str());
        body
    }

    fn entity_body(
        &self,
        table: &TableName,
        key: &EntityKey,
        record: &Record,
        select: Option<&Select>,
    ) -> Result<Vec<u8>, Failure> {
        let mut body = Vec::with_capacity(record.as_bytes().len() * 2 + 256);
        let (partition, row) = (key.partition.as_str(), key.row.as_str());
        let row = Row { partition, row, record: record.as_ref() };
        entity::write_one(&mut body, &self.encoding(table, select), &row).map_err(corrupt)?;
        Ok(body)
    }

    pub(crate) fn encoding<'b>(
        &'b self,
        table: &'b TableName,
        select: Option<&'b Select>,
    ) -> entity::Context<'b> {
        entity::Context {
            base: self.base,
            account: self.account.name.as_str(),
            table: table.as_str(),
            level: self.level,
            select,
        }
    }
}

pub(crate) fn corrupt(error: Corrupt) -> Failure {
    Failure::Table(error.into())
}
