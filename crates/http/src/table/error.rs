//! The only place where something that went wrong in the Table service becomes a status, a code and a message; what any
//! service refuses is in [`crate::front::refusal`].
//!
//! Every way of failing is a variant of [`Failure`] or of an error that it holds. No wildcard arm over our
//! own errors: a new variant does not compile without a line here.

use crate::front::refusal::{
    self, Answer, PROCESSING, Refusal, answer, busy, denied, internal, invalid_input,
    invalid_parameter, timed_out, xml,
};
use crate::queue;
use rowhouse_query::{FilterError, OrderError};
use rowhouse_service_account::AccountError;
use rowhouse_service_queue::QueueError;
use rowhouse_service_table::TableError;
use rowhouse_types::{NameError, PropertyError, limits};
use rowhouse_wire::batch::BatchError;
use rowhouse_wire::entity::EntityError;
use rowhouse_wire::media::MediaError;
use rowhouse_wire::select::SelectError;
use rowhouse_wire::uri::{ResourceError, UriError};
use rowhouse_wire::xml::XmlError;

/// Why a request was not carried out.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Refused before it came to this service, or as any service would.
    Refused(Refusal),
    /// The service said no.
    Table(TableError),
    /// `$filter`
    Filter(FilterError),
    /// `$orderby`
    Order(OrderError),
    /// The definition of an index, or when entities expire: with what is wrong with it.
    Setting(&'static str),
    /// The JSON of an entity.
    Entity(EntityError),
    /// A key in an insert that is not a String.
    KeyType,
    /// PartitionKey or RowKey missing or null in an insert.
    KeyMissing,
    /// A key in the body that is no key.
    BodyKey { name: &'static str, value: String, error: NameError },
    /// A key in the URL that is no key.
    PathKey(NameError),
    /// Keys in URL and body disagree.
    KeyMismatch,
    /// The name of a table.
    TableName(NameError),
    /// A create-table body without a name, or that is no JSON.
    TableBody,
    /// The path.
    Resource(ResourceError),
    /// The verb does not fit the resource.
    Verb,
    /// `X-HTTP-Method`
    TunnelNotPost,
    /// `X-HTTP-Method` more than once.
    TunnelCount,
    /// `X-HTTP-Method` names no verb that can be tunnelled.
    TunnelValue,
    /// `Accept` or `$format`
    Media(MediaError),
    /// `$select`
    Select,
    /// A query option that the service does not have.
    UnsupportedOption,
    /// `$top`, a continuation token or another option that does not parse.
    OptionValue,
    /// `If-Match` is not one weak tag.
    Etag(String),
    /// `DELETE` of an entity without `If-Match`.
    EtagMissing,
    /// `If-None-Match` on a verb that cannot have it.
    IfNoneMatch(String),
    /// `If-Match` and `If-None-Match` together.
    BothConditions,
    /// A message in a batch.
    Message(queue::Failure),
    /// The parts of a batch.
    Batch(BatchError),
    /// `x-rowhouse-transaction`
    Reach,
    /// An operation inside a batch that batches do not have.
    NotInBatch,
    /// An operation of a batch, by its index.
    Part { index: usize, source: Box<Failure> },
    /// The body of an XML endpoint.
    Xml(XmlError),
    /// An entity is meant, but the URL does not name one.
    KeysMissing { account: String, table: String },
    /// `comp` or `restype` name nothing that this resource has; statistics asked of the primary.
    ParameterValue,
    /// A bug: the handler itself gave up.
    Internal(&'static str),
}

const NOT_VALID: &str = "One of the request inputs is not valid.";
const VALUE_TOO_LARGE: &str = "The property value exceeds the maximum allowed size (64KB). If the \
    property value is a string, it is UTF-16 encoded and the maximum number of characters should be \
    32K or less.";
const TOO_MANY_TABLES: &str = "The account has as many tables as it may have. Delete tables, or ask the operator \
     for a higher limit.";
const TOO_MANY_PROPERTIES: &str = "The entity contains more properties than allowed. Each entity can \
    include up to 252 properties to store data. Each entity also has 3 system properties.";
impl Failure {
    /// Status, code and message. The index of a batch operation is part of the message.
    #[expect(clippy::match_same_arms, reason = "a table: alike today, each for its own reason")]
    pub(crate) fn answer(&self) -> Answer {
        if let Self::Part { index, source } = self {
            let inner = source.answer();
            return Answer { message: format!("{index}:{}", inner.message).into(), ..inner };
        }
        if let Self::Table(TableError::Operation { index, source }) = self {
            let inner = table(source);
            return Answer { message: format!("{index}:{}", inner.message).into(), ..inner };
        }
        match self {
            Self::Refused(refusal) => refusal.answer(),
            Self::Table(error) => table(error),
            Self::Filter(error) => filter(error),
            Self::Order(error) => invalid_input(error.to_string()),
            Self::Entity(error) => entity(error),
            Self::KeyMissing => answer(
                400,
                "PropertiesNeedValue",
                "The values are not specified for all properties in the entity.",
            ),
            Self::BodyKey { error: NameError::Length { .. }, .. }
            | Self::PathKey(NameError::Length { .. }) => {
                answer(400, "PropertyValueTooLarge", VALUE_TOO_LARGE)
            }
            Self::BodyKey { name, value, .. } => out_of_range(name, value),
            Self::PathKey(NameError::Character('/' | '\\')) => query_syntax(),
            Self::PathKey(_) => {
                answer(400, "OutOfRangeInput", "One of the request inputs is out of range.")
            }
            Self::TableName(error) => refusal::name(error),
            Self::Resource(error) => resource(error),
            Self::Verb => answer(
                405,
                "UnsupportedHttpVerb",
                "The resource doesn't support specified Http Verb.",
            ),
            Self::TunnelNotPost => answer(
                400,
                "XMethodNotUsingPost",
                "The request uses X-HTTP-Method with an HTTP verb other than POST.",
            ),
            Self::TunnelCount => {
                answer(400, "XMethodIncorrectCount", "More than one X-HTTP-Method is specified.")
            }
            Self::TunnelValue => {
                answer(400, "XMethodIncorrectValue", "The specified X-HTTP-Method is invalid.")
            }
            Self::Media(error) => media(*error),
            Self::Setting(sentence) => invalid_input(*sentence),
            Self::UnsupportedOption => not_implemented(),
            Self::Reach => answer(
                400,
                "InvalidHeaderValue",
                "The header x-rowhouse-transaction can only say account.",
            ),
            Self::Select | Self::OptionValue | Self::KeyMismatch | Self::NotInBatch => {
                answer(400, "InvalidInput", NOT_VALID)
            }
            Self::TableBody | Self::KeyType => invalid_input(PROCESSING),
            Self::Etag(value) => invalid_input(format!(
                "The etag value '{value}' specified in one of the request headers is not valid. \
                 Please make sure only one etag value is specified and is valid."
            )),
            Self::EtagMissing => invalid_input(
                "The If-Match header must be specified to delete an entity; use * for any version.",
            ),
            Self::IfNoneMatch(verb) => invalid_input(format!(
                "If-None-Match HTTP header cannot be specified for {verb} operations."
            )),
            Self::BothConditions => invalid_input(
                "Both If-Match and If-None-Match HTTP headers cannot be specified at the same time. \
                 Please specify either one of the headers or none of them.",
            ),
            // Where tables complain there is no room for further elements.
            Self::Message(failure) => failure.answer().0,
            Self::Batch(error) => batch(*error),
            Self::Xml(error) => xml(*error),
            Self::KeysMissing { account, table } => key_count(&format!("{account}.{table}")),
            Self::ParameterValue => invalid_parameter(),
            Self::Internal(_) => internal(),
            Self::Part { .. } => internal(),
        }
    }

    /// Refused at the front door: the answer has no version and echoes nothing.
    pub(crate) fn is_authentication(&self) -> bool {
        matches!(self, Self::Refused(refusal) if refusal.is_authentication())
    }

    /// What the log should know and the client should not.
    pub(crate) fn detail(&self) -> Option<String> {
        match self {
            Self::Refused(refusal) => refusal.detail(),
            Self::Table(
                error @ (TableError::Unavailable(_)
                | TableError::OutcomeUnknown(_)
                | TableError::Corrupt(_)),
            ) => Some(error.to_string()),
            Self::Internal(what) => Some((*what).to_owned()),
            Self::Part { source, .. } => source.detail(),
            Self::Message(failure) => failure.detail(),
            _ => None,
        }
    }
}

fn query_syntax() -> Answer {
    invalid_input("Bad Request - Error in query syntax.")
}

fn out_of_range(name: &str, value: &str) -> Answer {
    let message = format!("The '{name}' parameter of value '{value}' is out of range.");
    answer(400, "OutOfRangeInput", message)
}

fn not_implemented() -> Answer {
    answer(
        501,
        "NotImplemented",
        "The requested operation is not implemented on the specified resource.",
    )
}

fn table(error: &TableError) -> Answer {
    match error {
        TableError::TableNotFound => {
            answer(404, "TableNotFound", "The table specified does not exist.")
        }
        TableError::TableExists => {
            answer(409, "TableAlreadyExists", "The table specified already exists.")
        }
        TableError::ResourceNotFound => {
            answer(404, "ResourceNotFound", "The specified resource does not exist.")
        }
        TableError::EntityExists => {
            answer(409, "EntityAlreadyExists", "The specified entity already exists.")
        }
        TableError::EtagMismatch => answer(
            412,
            "UpdateConditionNotSatisfied",
            "The update condition specified in the request was not satisfied.",
        ),
        TableError::EntityTooLarge => answer(
            400,
            "EntityTooLarge",
            "The entity is larger than the maximum allowed size (1MB).",
        ),
        TableError::TooManyProperties => answer(400, "TooManyProperties", TOO_MANY_PROPERTIES),
        TableError::DifferentPartitions => answer(
            400,
            "CommandsInBatchActOnDifferentPartitions",
            "All commands in a batch must operate on same entity group.",
        ),
        TableError::DuplicateRow => answer(
            400,
            "InvalidDuplicateRow",
            "The batch request contains multiple changes with same row key. An entity can appear \
             only once in a batch request.",
        ),
        TableError::ChangesNotKept => answer(
            409,
            "ChangesNotKept",
            "Changes are not kept here. Start the server with --keep-changes, for example \
             --keep-changes 7d; what is written from then on is kept.",
        ),
        TableError::ChangesExpired => answer(
            410,
            "ChangesExpired",
            "The changes after this place are no longer kept, or the table is another one of the same \
             name. Ask with from=now for a new place, then read the whole table.",
        ),
        TableError::QueueNotFound => queue::error::queue(&QueueError::QueueNotFound),
        TableError::MessageNotFound => queue::error::queue(&QueueError::MessageNotFound),
        TableError::Denied(reason) => denied(*reason),
        TableError::Operation { source, .. } => table(source),
        TableError::Busy | TableError::Unavailable(_) => busy(),
        TableError::NotUnique { index: Some(name) } => answer(
            409,
            "UniqueIndexViolation",
            format!("The unique index '{name}' has these values of another entity already."),
        ),
        TableError::NotUnique { index: None } => answer(
            409,
            "UniqueIndexViolation",
            "A unique index of the table has these values of another entity already.",
        ),
        TableError::IndexExists => {
            answer(409, "IndexAlreadyExists", "The table has an index of that name already.")
        }
        TableError::IndexNotFound => {
            answer(404, "IndexNotFound", "The table has no index of that name.")
        }
        TableError::TooManyIndexes => answer(
            409,
            "TooManyIndexes",
            format!("The table has {} indexes, and may not have more.", limits::INDEXES_MAX),
        ),
        // No conflict: clients that create a table if it is not there take any conflict for success.
        TableError::TooManyTables => answer(403, "TooManyTables", TOO_MANY_TABLES),
        TableError::UniqueAcrossNodes => invalid_input(
            "The table is spread over nodes, and only the entities of one partition are on one: a unique \
             index must have PartitionKey among its properties here.",
        ),
        TableError::OrderOfPartitions => invalid_input(
            "Entities are in the order of RowKey within one partition only. Name the partition in the \
             filter, declare an index of RowKey, or name a $top.",
        ),
        TableError::OrderNeedsIndex { property } => invalid_input(format!(
            "Entities are not kept in the order of '{property}'. Declare an index of it, or name a $top: then \
             everything that the filter leaves is read and sorted."
        )),
        TableError::OrderPlaceGone => invalid_input(
            "The continuation token is one of another order, or of an index that is not there any more. \
             Start again without it.",
        ),
        TableError::TooManyToSort { property } => invalid_input(format!(
            "There was no time to put all entities in the order of '{property}'. Declare an index of it, or \
             narrow the filter."
        )),
        TableError::OutcomeUnknown(_) | TableError::TooManyToCount => timed_out(),
        TableError::Corrupt(_) => internal(),
    }
}

fn filter(error: &FilterError) -> Answer {
    match error {
        FilterError::Syntax { .. }
        | FilterError::Signature(_)
        | FilterError::Operands { .. }
        | FilterError::TooManyFunctions
        | FilterError::TooManyValues => invalid_input(error.to_string()),
        FilterError::NullLiteral => invalid_input(NOT_VALID),
        FilterError::NullOrder(comparison) => invalid_input(format!(
            "The operator '{comparison}' is not supported for the 'null' literal; only equality \
             checks are supported."
        )),
        FilterError::NotImplemented => not_implemented(),
        FilterError::TooDeep => invalid_input(format!(
            "The filter is nested deeper than {} levels.",
            limits::FILTER_DEPTH_MAX
        )),
        FilterError::TooLong => {
            invalid_input(format!("The filter is longer than {} bytes.", limits::FILTER_BYTES_MAX))
        }
    }
}

fn entity(error: &EntityError) -> Answer {
    match error {
        EntityError::Syntax => invalid_input(PROCESSING),
        EntityError::DateOutOfRange { name, value } => out_of_range(name, &value.us_date()),
        EntityError::Property { name, error } => match error {
            PropertyError::Name(NameError::Length { actual, .. }) if *actual > 0 => answer(
                400,
                "PropertyNameTooLong",
                "The property name exceeds the maximum allowed length (255).",
            ),
            PropertyError::Name(_) => {
                answer(400, "PropertyNameInvalid", "The property name is invalid.")
            }
            PropertyError::Duplicate => answer(
                400,
                "DuplicatePropertiesSpecified",
                "A property is specified more than one time.",
            ),
            PropertyError::TooMany => answer(400, "TooManyProperties", TOO_MANY_PROPERTIES),
            PropertyError::ValueTooLarge => answer(400, "PropertyValueTooLarge", VALUE_TOO_LARGE),
            PropertyError::DateOutOfRange => out_of_range(name, ""),
        },
    }
}

fn resource(error: &ResourceError) -> Answer {
    match error {
        ResourceError::Syntax | ResourceError::SlashInKey => query_syntax(),
        ResourceError::KeyCount { table } => key_count(table),
    }
}

fn key_count(resource: &str) -> Answer {
    invalid_input(format!(
        "The number of keys specified in the URI does not match number of key properties for the \
         resource '{resource}'."
    ))
}

fn media(error: MediaError) -> Answer {
    match error {
        MediaError::Atom => answer(415, "AtomFormatNotSupported", "Atom format is not supported."),
        MediaError::JsonVerbose => {
            answer(415, "JsonVerboseFormatNotSupported", "JSON Verbose format is not supported.")
        }
        MediaError::Unsupported => {
            answer(415, "MediaTypeNotSupported", "None of the provided media types are supported")
        }
    }
}

fn batch(error: BatchError) -> Answer {
    match error {
        BatchError::TooManyOperations => invalid_input(format!(
            "{}:The batch request operation exceeds the maximum {} changes per change set.",
            limits::BATCH_OPERATIONS_MAX - 1,
            limits::BATCH_OPERATIONS_MAX
        )),
        BatchError::Malformed
        | BatchError::MixedQuery
        | BatchError::SeveralChangesets
        | BatchError::Empty => invalid_input(NOT_VALID),
    }
}

/// Errors that are wrapped as they are.
macro_rules! wrap {
    ($($error:ty => $variant:ident),+ $(,)?) => {
        $(impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                Self::$variant(error)
            }
        })+
    };
}

wrap! {
    TableError => Table,
    Refusal => Refused,
    FilterError => Filter,
    OrderError => Order,
    EntityError => Entity,
    ResourceError => Resource,
    MediaError => Media,
    BatchError => Batch,
    queue::Failure => Message,
    XmlError => Xml,
}

impl From<UriError> for Failure {
    fn from(error: UriError) -> Self {
        Refusal::from(error).into()
    }
}

impl From<AccountError> for Failure {
    fn from(error: AccountError) -> Self {
        Refusal::from(error).into()
    }
}

impl From<SelectError> for Failure {
    fn from(_: SelectError) -> Self {
        Self::Select
    }
}
