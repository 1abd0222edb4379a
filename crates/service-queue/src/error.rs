//! What can go wrong in the Queue service, in its own words. No status codes here.

use rowhouse_store::{BoxError, Conflict, StoreError};
use rowhouse_types::Denied;

/// Why an operation was not carried out. Nothing was changed, except where it says otherwise.
///
/// `From<StoreError>` is written by hand: a bare `?` must not turn a conflict into a failure.
#[derive(Debug, thiserror::Error)]
pub enum QueueError {
    /// No queue of that name, or no longer.
    #[error("the queue does not exist")]
    QueueNotFound,
    /// A queue of that name is there, and says something else about itself.
    #[error("the queue exists")]
    QueueExists,
    /// The account has as many queues as it may.
    #[error("the account has as many queues as it may have")]
    TooManyQueues,
    /// No such message, or no longer, or somebody else has it now.
    #[error("the message does not exist")]
    MessageNotFound,
    /// The credentials do not cover it.
    #[error("{0}")]
    Denied(Denied),
    /// One operation of several failed, so none was carried out.
    #[error("operation {index}: {source}")]
    Operation {
        /// Its position, from 0.
        index: usize,
        /// Why.
        source: Box<QueueError>,
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

impl QueueError {
    /// The error of one operation of several.
    pub(crate) fn at(self, index: usize) -> Self {
        Self::Operation { index, source: Box::new(self) }
    }
}

impl From<Denied> for QueueError {
    fn from(denied: Denied) -> Self {
        Self::Denied(denied)
    }
}

impl From<StoreError> for QueueError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Rejected { reason, .. } => match reason {
                // An account removed under way has no queues either.
                Conflict::QueueNotFound | Conflict::AccountNotFound => Self::QueueNotFound,
                Conflict::QueueExists => Self::QueueExists,
                Conflict::TooManyQueues => Self::TooManyQueues,
                Conflict::MessageNotFound => Self::MessageNotFound,
                Conflict::TableNotFound
                | Conflict::TableExists
                | Conflict::AccountExists
                | Conflict::AccountChanged
                | Conflict::EntityExists
                | Conflict::EntityNotFound
                | Conflict::ConditionNotMet
                | Conflict::EntityTooLarge
                | Conflict::TooManyProperties
                | Conflict::ChangesNotKept
                | Conflict::NotUnique
                | Conflict::IndexExists
                | Conflict::IndexNotFound
                | Conflict::TooManyIndexes
                | Conflict::TooManyTables
                | Conflict::UniqueAcrossNodes => Self::Unavailable(
                    format!("an engine answered a change of a queue with: {reason}").into(),
                ),
            },
            StoreError::Busy => Self::Busy,
            StoreError::Unavailable(source) => Self::Unavailable(source),
            StoreError::OutcomeUnknown(source) => Self::OutcomeUnknown(source),
            StoreError::Corrupt(what) => Self::Corrupt(what),
        }
    }
}
