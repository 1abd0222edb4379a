//! Turns a request into one [`Operation`] that carries parsed types.
//!
//! In two steps, because the body is read only when it is known how large it may be: [`route`] looks at
//! verb, path and options; [`operation`] adds the body. Every complaint about the form of a request arises
//! here and nowhere later. Operations inside a batch take the same road.

mod options;

use self::options::{filter, flag, order, place, select, token_of, top};
use super::error::Failure;
use super::{index, ttl};
use crate::front::head::Head;
use http::header::{CONTENT_TYPE, IF_MATCH};
use rowhouse_query::{Filter, Order};
use rowhouse_service_table::{
    Action, Bookmark, ChangesFrom, NewIndex, Operation as EntityOperation, Place, TableError, Ttl,
};
use rowhouse_types::{
    Access, EntityKey, FoldedName, Grant, IndexName, PartitionKey, Position, RowKey, Service,
    ServicePropertiesUpdate, StoredPolicy, TableName, Timestamp, limits,
};
use rowhouse_wire::changes::Token;
use rowhouse_wire::select::Select;
use rowhouse_wire::uri::{self, Resource, ResourceError};
use rowhouse_wire::{entity, media, tables, xml};
use std::time::Duration;

pub(crate) use self::options::{ParsedFilter, long_filter, ordered_by, parse_filter};

/// Who means everything says so.
const NO_FILTER: &str = "Deleting needs a filter; comp=truncate deletes everything.";

/// Verb and resource, understood. Names and keys are still text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    QueryTables,
    GetTable(String),
    CreateTable,
    DeleteTable(String),
    GetPolicies(String),
    SetPolicies(String),
    QueryEntities(String),
    /// Ours, not the original's: `docs/extensions.md`.
    CountEntities(String),
    /// Ours, not the original's: `docs/extensions.md`.
    Changes(String),
    /// Ours, not the original's: `docs/extensions.md`.
    Explain(String),
    /// Ours, not the original's: `docs/extensions.md`.
    ListIndexes(String),
    /// Ours, not the original's: `docs/extensions.md`.
    CreateIndex(String),
    /// Ours, not the original's: `docs/extensions.md`.
    DropIndex(String),
    /// Ours, not the original's: `docs/extensions.md`.
    CostlyQueries(String),
    /// Ours, not the original's: `docs/extensions.md`.
    GetTtl(String),
    /// Ours, not the original's: `docs/extensions.md`.
    SetTtl(String),
    /// Ours, not the original's: `docs/extensions.md`.
    RemoveTtl(String),
    /// Ours, not the original's: `docs/extensions.md`.
    DeleteMany(String),
    /// Ours, not the original's: `docs/extensions.md`.
    Truncate(String),
    GetEntity(Target),
    Insert(String),
    Update(Target),
    Merge(Target),
    Delete(Target),
    /// An entity is meant, but the URL does not name one.
    KeysMissing(String, Access),
    Batch,
    GetProperties,
    SetProperties,
    GetStats,
}

/// An entity that a URL names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    table: String,
    partition: String,
    row: String,
}

/// What is asked, in types that need no further check.
#[derive(Debug)]
pub(crate) enum Operation {
    QueryTables {
        filter: Option<Filter>,
        top: usize,
        from: Option<FoldedName>,
    },
    GetTable(TableName),
    CreateTable(TableName),
    DeleteTable(TableName),
    GetPolicies(TableName),
    SetPolicies(TableName, Vec<StoredPolicy>),
    QueryEntities(QueryEntities),
    CountEntities {
        table: TableName,
        filter: Option<Filter>,
    },
    Explain {
        query: QueryEntities,
        /// In plain text, not as JSON.
        text: bool,
    },
    ListIndexes(TableName),
    CreateIndex(TableName, NewIndex),
    DropIndex(TableName, IndexName),
    CostlyQueries(TableName),
    GetTtl(TableName),
    SetTtl(TableName, Option<Ttl>),
    DeleteMany(DeleteMany),
    GetEntity {
        table: TableName,
        key: EntityKey,
        select: Option<Select>,
    },
    Write(EntityOperation),
    /// Wrong in itself, which is said only to who may do it and if there is such a table.
    Refused(Refused),
    GetProperties,
    SetProperties(ServicePropertiesUpdate),
    GetStats,
}

/// An operation that cannot be carried out, whatever is stored.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) table: TableName,
    pub(crate) access: Access,
    pub(crate) why: Box<Failure>,
}

/// One page of a query.
#[derive(Debug)]
pub(crate) struct QueryEntities {
    pub(crate) table: TableName,
    pub(crate) filter: Option<Filter>,
    pub(crate) order: Option<Order>,
    /// Say how many there are in all.
    pub(crate) count: bool,
    pub(crate) select: Option<Select>,
    pub(crate) top: usize,
    /// `$top` was given.
    pub(crate) limited: bool,
    pub(crate) from: Option<Place>,
}

/// One step of deleting entities.
#[derive(Debug)]
pub(crate) struct DeleteMany {
    pub(crate) table: TableName,
    /// Which; all without.
    pub(crate) filter: Option<Filter>,
    pub(crate) top: usize,
    pub(crate) from: Option<Position>,
    /// Only count them.
    pub(crate) dry_run: bool,
}

/// Changes of one table.
#[derive(Debug)]
pub(crate) struct ReadChanges {
    pub(crate) table: TableName,
    pub(crate) from: ChangesFrom,
    pub(crate) top: usize,
    /// How long to wait for one.
    pub(crate) wait: Duration,
}

impl Route {
    /// Its name in metrics and logs.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::QueryTables => "QueryTables",
            Self::GetTable(_) => "GetTable",
            Self::CreateTable => "CreateTable",
            Self::DeleteTable(_) => "DeleteTable",
            Self::GetPolicies(_) => "GetTableAcl",
            Self::SetPolicies(_) => "SetTableAcl",
            Self::QueryEntities(_) => "QueryEntities",
            Self::CountEntities(_) => "CountEntities",
            Self::Changes(_) => "QueryChanges",
            Self::Explain(_) => "ExplainQuery",
            Self::ListIndexes(_) => "ListIndexes",
            Self::CreateIndex(_) => "CreateIndex",
            Self::DropIndex(_) => "DropIndex",
            Self::CostlyQueries(_) => "ListCostlyQueries",
            Self::GetTtl(_) => "GetTableTtl",
            Self::SetTtl(_) | Self::RemoveTtl(_) => "SetTableTtl",
            Self::DeleteMany(_) => "DeleteEntities",
            Self::Truncate(_) => "TruncateTable",
            Self::GetEntity(_) => "GetEntity",
            Self::Insert(_) => "InsertEntity",
            Self::Update(_) => "UpdateEntity",
            Self::Merge(_) => "MergeEntity",
            Self::Delete(_) => "DeleteEntity",
            Self::KeysMissing(..) => "Unknown",
            Self::Batch => "EntityGroupTransaction",
            Self::GetProperties => "GetTableServiceProperties",
            Self::SetProperties => "SetTableServiceProperties",
            Self::GetStats => "GetTableServiceStats",
        }
    }

    /// Whether anything may change: refused at the secondary. What a batch does is known later.
    pub(crate) fn is_write(&self) -> bool {
        match self {
            Self::QueryTables
            | Self::GetTable(_)
            | Self::GetPolicies(_)
            | Self::QueryEntities(_)
            | Self::CountEntities(_)
            | Self::Changes(_)
            | Self::Explain(_)
            | Self::ListIndexes(_)
            | Self::CostlyQueries(_)
            | Self::GetTtl(_)
            | Self::GetEntity(_)
            | Self::GetProperties
            | Self::GetStats
            | Self::KeysMissing(_, Access::ReadEntities)
            | Self::Batch => false,
            Self::CreateTable
            | Self::DeleteTable(_)
            | Self::SetPolicies(_)
            | Self::CreateIndex(_)
            | Self::DropIndex(_)
            | Self::SetTtl(_)
            | Self::RemoveTtl(_)
            | Self::DeleteMany(_)
            | Self::Truncate(_)
            | Self::Insert(_)
            | Self::Update(_)
            | Self::Merge(_)
            | Self::Delete(_)
            | Self::KeysMissing(..)
            | Self::SetProperties => true,
        }
    }

    /// Checks the grant before the body is read, so that a caller who may not write cannot make the server read. The
    /// services check the grant of requests without a body, and that of the key of an entity.
    pub(crate) fn check(&self, grant: &Grant, head: &Head<'_>) -> Result<(), Failure> {
        let change = || match head.headers.get(&IF_MATCH) {
            Some(_) => Access::UpdateEntity,
            None => Access::UpsertEntity,
        };
        let (access, table) = match self {
            Self::Batch => {
                return grant.check_batch().map_err(|denied| TableError::Denied(denied).into());
            }
            Self::CreateTable => (Access::CreateTable, None),
            Self::SetPolicies(table) => (Access::TablePolicies, Some(table)),
            Self::CreateIndex(table) | Self::SetTtl(table) => (Access::TableSettings, Some(table)),
            Self::Insert(table) => (Access::AddEntity, Some(table)),
            Self::Update(target) | Self::Merge(target) => (change(), Some(&target.table)),
            Self::SetProperties => (Access::WriteService, None),
            // Named one by one: a new route has to say whether its body waits for a grant.
            Self::QueryTables
            | Self::GetTable(_)
            | Self::DeleteTable(_)
            | Self::GetPolicies(_)
            | Self::QueryEntities(_)
            | Self::CountEntities(_)
            | Self::Changes(_)
            | Self::Explain(_)
            | Self::ListIndexes(_)
            | Self::DropIndex(_)
            | Self::CostlyQueries(_)
            | Self::GetTtl(_)
            | Self::RemoveTtl(_)
            | Self::DeleteMany(_)
            | Self::Truncate(_)
            | Self::GetEntity(_)
            | Self::Delete(_)
            | Self::KeysMissing(..)
            | Self::GetProperties
            | Self::GetStats => return Ok(()),
        };
        let table = table.map(|name| table_name(name.as_str())).transpose()?;
        grant.check(access, table.as_ref()).map_err(|denied| TableError::Denied(denied).into())
    }

    /// Whether it may read much: admitted separately, so that point reads never wait for it.
    pub(crate) fn is_scan(&self) -> bool {
        matches!(
            self,
            Self::QueryEntities(_)
                | Self::CountEntities(_)
                | Self::Explain(_)
                | Self::DeleteMany(_)
                | Self::Truncate(_)
                | Self::QueryTables
                | Self::Changes(_)
        )
    }

    /// Whether it may be answered in plain text.
    pub(crate) fn speaks_text(&self) -> bool {
        matches!(self, Self::Explain(_) | Self::CountEntities(_))
    }

    /// Largest body, in bytes; none where no body is meant.
    pub(crate) fn body_limit(&self) -> Option<usize> {
        match self {
            Self::CreateTable | Self::Insert(_) | Self::Update(_) | Self::Merge(_) => {
                Some(limits::BODY_BYTES_MAX)
            }
            Self::Batch => Some(limits::BATCH_BODY_BYTES_MAX),
            Self::SetPolicies(_) | Self::SetProperties => Some(limits::XML_BODY_BYTES_MAX),
            Self::CreateIndex(_) => Some(limits::INDEX_BODY_BYTES_MAX),
            Self::SetTtl(_) => Some(limits::TTL_BODY_BYTES_MAX),
            _ => None,
        }
    }
}

/// True for the endpoints that speak XML, whatever the client accepts.
pub(crate) fn speaks_xml(head: &Head<'_>) -> bool {
    matches!(head.query.get("comp"), Some("acl" | "properties" | "stats"))
}

/// Verb, path and options; the body comes later.
///
/// A strict server knows no extension.
pub(crate) fn route(head: &Head<'_>, strict: bool) -> Result<Route, Failure> {
    let verb = head.verb()?;
    let resource = match uri::parse_resource(head.path) {
        Err(ResourceError::KeyCount { table }) if table != "Tables" => {
            return Ok(Route::KeysMissing(table, entity_access(verb)));
        }
        resource => resource?,
    };
    let resource = match (resource, verb) {
        (Resource::Below(_), "GET") => return Err(Failure::UnsupportedOption),
        (Resource::Below(table), _) => Resource::Entities(table),
        (resource, _) => resource,
    };
    let comp = head.query.get("comp");
    let service = head.query.get("restype") == Some("service");
    match (resource, verb, comp) {
        (Resource::Service, "GET", Some("properties")) if service => Ok(Route::GetProperties),
        (Resource::Service, "PUT", Some("properties")) if service => Ok(Route::SetProperties),
        (Resource::Service, "GET", Some("stats")) if service => Ok(Route::GetStats),
        (Resource::Service, _, Some("properties" | "stats")) if service => Err(Failure::Verb),
        (Resource::Service, ..) => Err(Failure::Resource(ResourceError::Syntax)),
        (Resource::Entities(table), "GET", Some("acl")) => Ok(Route::GetPolicies(table)),
        (Resource::Entities(table), "PUT", Some("acl")) => Ok(Route::SetPolicies(table)),
        (Resource::Entities(_), _, Some("acl")) => Err(Failure::Verb),
        (Resource::Entities(table), "GET", Some("changes")) if !strict => {
            only_options(head, &["$top", "$format"])?;
            Ok(Route::Changes(table))
        }
        (Resource::Entities(table), verb, Some("index")) if !strict => {
            only_options(head, &["$format"])?;
            match verb {
                "GET" => Ok(Route::ListIndexes(table)),
                "PUT" => Ok(Route::CreateIndex(table)),
                "DELETE" => Ok(Route::DropIndex(table)),
                _ => Err(Failure::Verb),
            }
        }
        (Resource::Entities(table), verb, Some("queries")) if !strict => {
            only_options(head, &["$format"])?;
            if verb == "GET" { Ok(Route::CostlyQueries(table)) } else { Err(Failure::Verb) }
        }
        (Resource::Entities(table), verb, Some("ttl")) if !strict => {
            only_options(head, &["$format"])?;
            match verb {
                "GET" => Ok(Route::GetTtl(table)),
                "PUT" => Ok(Route::SetTtl(table)),
                "DELETE" => Ok(Route::RemoveTtl(table)),
                _ => Err(Failure::Verb),
            }
        }
        (Resource::Entities(table), verb, Some("delete")) if !strict => {
            only_options(head, &["$filter", "$top", "$format"])?;
            if verb == "POST" { Ok(Route::DeleteMany(table)) } else { Err(Failure::Verb) }
        }
        (Resource::Entities(table), verb, Some("truncate")) if !strict => {
            only_options(head, &["$top", "$format"])?;
            if verb == "POST" { Ok(Route::Truncate(table)) } else { Err(Failure::Verb) }
        }
        (Resource::Entities(_), _, Some(_)) => Err(Failure::ParameterValue),
        (Resource::Count(_), ..) if strict => Err(Failure::Resource(ResourceError::Syntax)),
        (Resource::Count(table), "GET", _) => {
            only_options(head, &["$filter", "$format"])?;
            Ok(Route::CountEntities(table))
        }
        (Resource::Entities(table), "GET", _) if !strict => {
            let options =
                ["$filter", "$select", "$top", "$format", "$orderby", "$count", "$explain"];
            only_options(head, &options)?;
            Ok(if flag(head, "$explain")? {
                Route::Explain(table)
            } else {
                Route::QueryEntities(table)
            })
        }
        (resource, verb, _) => {
            only_options(head, &["$filter", "$select", "$top", "$format"])?;
            odata_route(resource, verb)
        }
    }
}

/// Refuses any other option that starts with `$`: to ignore it would give a wrong answer.
fn only_options(head: &Head<'_>, options: &[&str]) -> Result<(), Failure> {
    let known = |name: &str| !name.starts_with('$') || options.contains(&name);
    if head.query.iter().all(|(name, _)| known(name)) {
        Ok(())
    } else {
        Err(Failure::UnsupportedOption)
    }
}

/// What an operation on an entity would need, going by its verb alone.
fn entity_access(verb: &str) -> Access {
    match verb {
        "GET" => Access::ReadEntities,
        "POST" => Access::AddEntity,
        "DELETE" => Access::DeleteEntity,
        _ => Access::UpdateEntity,
    }
}

fn odata_route(resource: Resource, verb: &str) -> Result<Route, Failure> {
    Ok(match (resource, verb) {
        (Resource::Tables, "GET") => Route::QueryTables,
        (Resource::Tables, "POST") => Route::CreateTable,
        (Resource::Table(name), "GET") => Route::GetTable(name),
        (Resource::Table(name), "DELETE") => Route::DeleteTable(name),
        (Resource::Batch, "POST") => Route::Batch,
        (Resource::Entities(table), "GET") => Route::QueryEntities(table),
        (Resource::Entities(table), "POST") => Route::Insert(table),
        (Resource::Entities(table), "PUT" | "PATCH" | "MERGE" | "DELETE") => {
            Route::KeysMissing(table, entity_access(verb))
        }
        (Resource::Entity { table, partition, row }, verb) => {
            let target = Target { table, partition, row };
            match verb {
                "GET" => Route::GetEntity(target),
                "PUT" => Route::Update(target),
                "PATCH" | "MERGE" => Route::Merge(target),
                "DELETE" => Route::Delete(target),
                _ => return Err(Failure::Verb),
            }
        }
        _ => return Err(Failure::Verb),
    })
}

/// Refuses bodies in a format that no operation on entities or tables reads.
pub(crate) fn check_content_type(route: &Route, head: &Head<'_>) -> Result<(), Failure> {
    let json = matches!(
        route,
        Route::CreateTable
            | Route::Insert(_)
            | Route::Update(_)
            | Route::Merge(_)
            | Route::CreateIndex(_)
            | Route::SetTtl(_)
    );
    if !json {
        return Ok(());
    }
    match head.headers.get(&CONTENT_TYPE) {
        Some(kind) => Ok(media::check_json(kind)?),
        None => Ok(()),
    }
}

/// The whole request, with its body, and with its filter if that was parsed before.
pub(crate) fn operation(
    route: Route,
    head: &Head<'_>,
    body: &[u8],
    parsed: Option<ParsedFilter>,
    strict: bool,
) -> Result<Operation, Failure> {
    Ok(match route {
        Route::QueryTables => Operation::QueryTables {
            filter: filter(head, parsed, strict)?,
            top: top(head)?,
            from: token_of(head, "NextTableName")?.map(|name| FoldedName::of(&name)),
        },
        Route::GetTable(name) => Operation::GetTable(table_name(name)?),
        Route::CreateTable => {
            let name = tables::read_create(body).map_err(|_| Failure::TableBody)?;
            let name = name.ok_or(Failure::KeyMissing)?;
            Operation::CreateTable(name.parse().map_err(Failure::TableName)?)
        }
        Route::DeleteTable(name) => Operation::DeleteTable(table_name(name)?),
        Route::GetPolicies(name) => Operation::GetPolicies(table_name(name)?),
        Route::SetPolicies(name) => {
            Operation::SetPolicies(table_name(name)?, xml::acl::read(body, Service::Table)?)
        }
        Route::QueryEntities(name) => Operation::QueryEntities(query(name, head, parsed, strict)?),
        Route::Explain(name) => Operation::Explain {
            query: query(name, head, parsed, strict)?,
            text: head.wants_text(),
        },
        Route::ListIndexes(name) => Operation::ListIndexes(table_name(name)?),
        Route::CreateIndex(name) => {
            Operation::CreateIndex(table_name(name)?, index::read_create(body)?)
        }
        Route::DropIndex(name) => {
            let index = head.query.get("name").unwrap_or_default();
            Operation::DropIndex(table_name(name)?, index::name(index)?)
        }
        Route::CostlyQueries(name) => Operation::CostlyQueries(table_name(name)?),
        Route::GetTtl(name) => Operation::GetTtl(table_name(name)?),
        Route::SetTtl(name) => Operation::SetTtl(table_name(name)?, Some(ttl::read(body)?)),
        Route::RemoveTtl(name) => Operation::SetTtl(table_name(name)?, None),
        Route::DeleteMany(name) => {
            let filter = filter(head, parsed, strict)?.ok_or(Failure::Setting(NO_FILTER))?;
            Operation::DeleteMany(delete_many(name, head, Some(filter))?)
        }
        Route::Truncate(name) => Operation::DeleteMany(delete_many(name, head, None)?),
        Route::CountEntities(name) => {
            let table = table_name(name)?;
            Operation::CountEntities { table, filter: filter(head, parsed, strict)? }
        }
        Route::GetEntity(target) => {
            let (table, key) = target.parse()?;
            Operation::GetEntity { table, key, select: select(head)? }
        }
        Route::Insert(name) => insert(name, body)?,
        Route::Update(target) => Operation::Write(change(head, target, body, false)?),
        Route::Merge(target) => Operation::Write(change(head, target, body, true)?),
        Route::Delete(target) => {
            let (table, key) = target.parse()?;
            let wanted = head.if_match("DELETE")?.ok_or(Failure::EtagMissing)?;
            Operation::Write(EntityOperation { table, key, action: Action::Delete(wanted) })
        }
        Route::KeysMissing(name, access) => {
            let why = Failure::Resource(ResourceError::KeyCount { table: name.clone() });
            let table = table_name(name)?;
            Operation::Refused(Refused { table, access, why: Box::new(why) })
        }
        Route::GetProperties => Operation::GetProperties,
        Route::SetProperties => {
            Operation::SetProperties(xml::service_properties::read(body, Service::Table)?)
        }
        Route::GetStats => Operation::GetStats,
        Route::Batch | Route::Changes(_) => return Err(Failure::NotInBatch),
    })
}

fn query(
    name: String,
    head: &Head<'_>,
    parsed: Option<ParsedFilter>,
    strict: bool,
) -> Result<QueryEntities, Failure> {
    let order = order(head)?;
    Ok(QueryEntities {
        table: table_name(name)?,
        filter: filter(head, parsed, strict)?,
        count: flag(head, "$count")?,
        select: select(head)?,
        top: top(head)?,
        limited: head.query.get("$top").is_some(),
        from: place(head, order.as_ref())?,
        order,
    })
}

/// `comp=delete` and `comp=truncate`: how many, from where on, and whether they are only counted.
fn delete_many(
    name: String,
    head: &Head<'_>,
    filter: Option<Filter>,
) -> Result<DeleteMany, Failure> {
    let from = match place(head, None)? {
        Some(Place::Key(from)) => Some(from),
        Some(Place::Order(_)) => return Err(Failure::OptionValue),
        None => None,
    };
    let top = top(head)?;
    if top == 0 {
        return Err(Failure::OptionValue);
    }
    let dry_run = flag(head, "dryrun")?;
    Ok(DeleteMany { table: table_name(name)?, filter, top, from, dry_run })
}

fn insert(name: String, body: &[u8]) -> Result<Operation, Failure> {
    let table = table_name(name)?;
    let entity::EntityBody { partition, row, foreign_key, record } = entity::read(body)?;
    if foreign_key {
        return Err(Failure::KeyType);
    }
    let Some((partition, row)) = partition.zip(row) else {
        let (access, why) = (Access::AddEntity, Box::new(Failure::KeyMissing));
        return Ok(Operation::Refused(Refused { table, access, why }));
    };
    let key = EntityKey {
        partition: body_key("PartitionKey", &partition)?,
        row: body_key("RowKey", &row)?,
    };
    Ok(Operation::Write(EntityOperation { table, key, action: Action::Insert(record) }))
}

/// PUT and PATCH: the URL's keys decide, and the body may repeat them but not contradict.
fn change(
    head: &Head<'_>,
    target: Target,
    body: &[u8],
    merge: bool,
) -> Result<EntityOperation, Failure> {
    let wanted = head.if_match(if merge { "MERGE" } else { "PUT" })?;
    let (table, key) = target.parse()?;
    let entity::EntityBody { partition, row, record, .. } = entity::read(body)?;
    let agrees = partition.is_none_or(|partition| partition == key.partition.as_str())
        && row.is_none_or(|row| row == key.row.as_str());
    if !agrees {
        return Err(Failure::KeyMismatch);
    }
    let action = match (wanted, merge) {
        (Some(wanted), false) => Action::Update(record, wanted),
        (Some(wanted), true) => Action::Merge(record, wanted),
        (None, false) => Action::InsertOrReplace(record),
        (None, true) => Action::InsertOrMerge(record),
    };
    Ok(EntityOperation { table, key, action })
}

fn body_key<K: std::str::FromStr<Err = rowhouse_types::NameError>>(
    name: &'static str,
    value: &str,
) -> Result<K, Failure> {
    value.parse().map_err(|error| Failure::BodyKey { name, value: value.to_owned(), error })
}

impl Target {
    fn parse(self) -> Result<(TableName, EntityKey), Failure> {
        let table = table_name(self.table)?;
        let partition = PartitionKey::new(self.partition).map_err(Failure::PathKey)?;
        let row = RowKey::new(self.row).map_err(Failure::PathKey)?;
        Ok((table, EntityKey { partition, row }))
    }
}

fn table_name(text: impl AsRef<str> + Into<Box<str>>) -> Result<TableName, Failure> {
    // The original keeps metrics in tables of such names; we have none of them.
    if text.as_ref().starts_with("$Metrics") {
        return Err(Failure::Table(TableError::TableNotFound));
    }
    TableName::new(text).map_err(Failure::TableName)
}

/// `comp=changes`: where to start, how many, and how long to wait.
pub(crate) fn changes(name: String, head: &Head<'_>) -> Result<ReadChanges, Failure> {
    let top = match top(head)? {
        0 => return Err(Failure::OptionValue),
        top => top,
    };
    let from = match head.query.get("from") {
        None | Some("beginning") => ChangesFrom::Beginning,
        Some("now") => ChangesFrom::Now,
        Some(text) => ChangesFrom::After(bookmark(text).ok_or(Failure::ParameterValue)?),
    };
    let wait = match head.query.get("wait").map(str::parse::<u64>) {
        None => 0,
        Some(Ok(seconds)) if seconds <= limits::CHANGES_WAIT_SECONDS_MAX => seconds,
        Some(_) => return Err(Failure::ParameterValue),
    };
    let wait = Duration::from_secs(wait);
    Ok(ReadChanges { table: table_name(name)?, from, top, wait })
}

fn bookmark(text: &str) -> Option<Bookmark> {
    let Token { table, created, place, told } = Token::decode(text)?;
    let (created, told) = (Timestamp::from_ticks(created)?, usize::try_from(told).ok()?);
    Some(Bookmark { table, created, place, told })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::front::head::Headers;
    use http::HeaderMap;
    use rowhouse_types::KeyRange;
    use rowhouse_types::grant::{Letters, ResourceTypes, Services};
    use rowhouse_wire::uri::Query;

    /// Every route, as a chain: a new one does not compile before it has a place here.
    fn after(route: &Route) -> Option<Route> {
        let table = || "People".to_owned();
        let target = || Target { table: table(), partition: "p".into(), row: "r".into() };
        Some(match route {
            Route::QueryTables => Route::GetTable(table()),
            Route::GetTable(_) => Route::CreateTable,
            Route::CreateTable => Route::DeleteTable(table()),
            Route::DeleteTable(_) => Route::GetPolicies(table()),
            Route::GetPolicies(_) => Route::SetPolicies(table()),
            Route::SetPolicies(_) => Route::QueryEntities(table()),
            Route::QueryEntities(_) => Route::CountEntities(table()),
            Route::CountEntities(_) => Route::Changes(table()),
            Route::Changes(_) => Route::Explain(table()),
            Route::Explain(_) => Route::ListIndexes(table()),
            Route::ListIndexes(_) => Route::CreateIndex(table()),
            Route::CreateIndex(_) => Route::DropIndex(table()),
            Route::DropIndex(_) => Route::CostlyQueries(table()),
            Route::CostlyQueries(_) => Route::GetTtl(table()),
            Route::GetTtl(_) => Route::SetTtl(table()),
            Route::SetTtl(_) => Route::RemoveTtl(table()),
            Route::RemoveTtl(_) => Route::DeleteMany(table()),
            Route::DeleteMany(_) => Route::Truncate(table()),
            Route::Truncate(_) => Route::GetEntity(target()),
            Route::GetEntity(_) => Route::Insert(table()),
            Route::Insert(_) => Route::Update(target()),
            Route::Update(_) => Route::Merge(target()),
            Route::Merge(_) => Route::Delete(target()),
            Route::Delete(_) => Route::KeysMissing(table(), Access::AddEntity),
            Route::KeysMissing(..) => Route::Batch,
            Route::Batch => Route::GetProperties,
            Route::GetProperties => Route::SetProperties,
            Route::SetProperties => Route::GetStats,
            Route::GetStats => return None,
        })
    }

    #[test]
    fn no_body_is_read_without_a_grant() {
        let nothing = [
            Grant::AccountSignature {
                services: Services::default(),
                resource_types: ResourceTypes::default(),
                permissions: Letters::default(),
            },
            Grant::TableSignature {
                table: TableName::new("People").unwrap().folded(),
                permissions: Letters::default(),
                range: KeyRange::all(),
            },
        ];
        let headers = HeaderMap::new();
        let head = Head {
            method: "PUT",
            path: "/",
            query: Query::default(),
            headers: Headers::Outer(&headers),
            spelling: None,
        };
        let routes = std::iter::successors(Some(Route::QueryTables), after);
        let with_body: Vec<_> = routes.filter(|route| route.body_limit().is_some()).collect();
        assert_eq!(with_body.len(), 9);
        for route in &with_body {
            for grant in &nothing {
                assert!(route.check(grant, &head).is_err(), "{route:?} {grant:?}");
            }
            assert!(route.check(&Grant::AccountKey, &head).is_ok(), "{route:?}");
        }
    }
}
