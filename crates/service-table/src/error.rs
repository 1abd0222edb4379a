//! What can go wrong in the Table service, in its own words. No status codes here.

use rowhouse_store::{BoxError, Conflict, StoreError};
use rowhouse_types::{Corrupt, Denied, IndexName};

/// Why an operation was not carried out. Nothing was changed, except where it says otherwise.
///
/// `From<StoreError>` is written by hand: a bare `?` must not turn a conflict into a failure.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// An operation on entities or policies names a table that is not there.
    #[error("the table does not exist")]
    TableNotFound,
    /// A table of that name is there already.
    #[error("the table exists")]
    TableExists,
    /// The entity is not there, or the table that is itself the subject.
    #[error("the resource does not exist")]
    ResourceNotFound,
    /// An insert of an entity that is there.
    #[error("the entity exists")]
    EntityExists,
    /// The entity was changed since the caller read it.
    #[error("the etag does not match")]
    EtagMismatch,
    /// More than 1 MiB.
    #[error("the entity is too large")]
    EntityTooLarge,
    /// More than 252 properties.
    #[error("the entity has too many properties")]
    TooManyProperties,
    /// A transaction names a second table or partition.
    #[error("operations on different partitions")]
    DifferentPartitions,
    /// A transaction names an entity twice.
    #[error("several operations on one entity")]
    DuplicateRow,
    /// No changes are kept in this store.
    #[error("changes are not kept")]
    ChangesNotKept,
    /// Changes after the bookmark are gone, or it belongs to another table.
    #[error("the changes after that place are not there any more")]
    ChangesExpired,
    /// A unique index has these values of another entity.
    #[error("a unique index has these values already")]
    NotUnique {
        /// Which index, if it is known and the caller may know.
        index: Option<IndexName>,
    },
    /// An index of that name is there already.
    #[error("the index exists")]
    IndexExists,
    /// No such index.
    #[error("the index does not exist")]
    IndexNotFound,
    /// The table has as many indexes as it may.
    #[error("the table has too many indexes")]
    TooManyIndexes,
    /// The account has as many tables as it may.
    #[error("the account has as many tables as it may have")]
    TooManyTables,
    /// What is unique in a table that is spread over nodes must be so within a partition.
    #[error("a unique index across nodes must name PartitionKey")]
    UniqueAcrossNodes,
    /// An order of RowKeys that goes over several partitions, without an index or a limit.
    #[error("the order of RowKeys is one within a partition only")]
    OrderOfPartitions,
    /// An order by a property without an index or a limit.
    #[error("entities are not kept in that order")]
    OrderNeedsIndex {
        /// The property.
        property: Box<str>,
    },
    /// The place where a page of an ordered answer ended is one of an index that is gone, or of another order.
    #[error("the place is not one of this order")]
    OrderPlaceGone,
    /// There was no time to put the entities in order.
    #[error("there are too many entities to sort in time")]
    TooManyToSort {
        /// The property.
        property: Box<str>,
    },
    /// There was no time to count them all.
    #[error("there are too many entities to count in time")]
    TooManyToCount,
    /// A message beside the entities is for a queue that is not there any more.
    #[error("the queue does not exist")]
    QueueNotFound,
    /// A message that is to be deleted beside the entities is not there, or somebody else has it now.
    #[error("the message does not exist")]
    MessageNotFound,
    /// The credentials do not cover it.
    #[error("{0}")]
    Denied(Denied),
    /// One operation of a transaction failed, so none was carried out.
    #[error("operation {index}: {source}")]
    Operation {
        /// Its position, from 0.
        index: usize,
        /// Why.
        source: Box<TableError>,
    },
    /// Too much is waiting already; try later.
    #[error("busy")]
    Busy,
    /// The store cannot serve. Nothing was written.
    #[error("storage is unavailable: {0}")]
    Unavailable(#[source] BoxError),
    /// Nobody can say whether the write took effect.
    #[error("the write may have taken effect or not: {0}")]
    OutcomeUnknown(#[source] BoxError),
    /// Stored bytes do not decode.
    #[error("stored data is corrupt: {0}")]
    Corrupt(String),
}

impl TableError {
    /// The error of one operation within a transaction.
    pub(crate) fn at(self, index: usize) -> Self {
        Self::Operation { index, source: Box::new(self) }
    }
}

impl From<Denied> for TableError {
    fn from(denied: Denied) -> Self {
        Self::Denied(denied)
    }
}

impl From<Corrupt> for TableError {
    fn from(corrupt: Corrupt) -> Self {
        Self::Corrupt(corrupt.to_string())
    }
}

impl From<StoreError> for TableError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Rejected { reason, .. } => match reason {
                // An account removed under way has no tables either.
                Conflict::TableNotFound | Conflict::AccountNotFound => Self::TableNotFound,
                Conflict::TableExists | Conflict::AccountExists => Self::TableExists,
                Conflict::EntityExists => Self::EntityExists,
                Conflict::EntityNotFound => Self::ResourceNotFound,
                Conflict::ConditionNotMet => Self::EtagMismatch,
                Conflict::EntityTooLarge => Self::EntityTooLarge,
                Conflict::TooManyProperties => Self::TooManyProperties,
                Conflict::ChangesNotKept => Self::ChangesExpired,
                Conflict::NotUnique => Self::NotUnique { index: None },
                Conflict::IndexExists => Self::IndexExists,
                Conflict::IndexNotFound => Self::IndexNotFound,
                Conflict::TooManyIndexes => Self::TooManyIndexes,
                Conflict::TooManyTables => Self::TooManyTables,
                Conflict::UniqueAcrossNodes => Self::UniqueAcrossNodes,
                Conflict::QueueNotFound => Self::QueueNotFound,
                Conflict::MessageNotFound => Self::MessageNotFound,
                Conflict::QueueExists | Conflict::TooManyQueues | Conflict::AccountChanged => {
                    let text = format!("an engine answered a change of entities with: {reason}");
                    Self::Unavailable(text.into())
                }
            },
            StoreError::Busy => Self::Busy,
            StoreError::Unavailable(source) => Self::Unavailable(source),
            StoreError::OutcomeUnknown(source) => Self::OutcomeUnknown(source),
            StoreError::Corrupt(what) => Self::Corrupt(what),
        }
    }
}
