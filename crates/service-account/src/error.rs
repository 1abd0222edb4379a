//! What can go wrong with accounts.

use rowhouse_store::{BoxError, Conflict, StoreError};
use rowhouse_types::Denied;

/// What can go wrong in the account service, in its own words. No status codes here.
///
/// `From<StoreError>` is written by hand: a bare `?` must not turn a conflict into a failure of the store.
#[derive(Debug, thiserror::Error)]
pub enum AccountError {
    /// No account of that name, or no longer.
    #[error("the account does not exist")]
    NotFound,
    /// An account of that name is there.
    #[error("the account exists already")]
    Exists,
    /// The caller may not do this.
    #[error(transparent)]
    Denied(Denied),
    /// Keys cannot be opened with the master key that the server has, or has not. Says what to do.
    #[error("{0}")]
    Sealed(String),
    /// There is no master key to seal anything with.
    #[error("the server has no master key: start it with --master-key-file")]
    NoMasterKey,
    /// The store cannot serve now. Nothing was changed.
    #[error("storage is unavailable: {0}")]
    Unavailable(#[source] BoxError),
    /// Nobody can say whether the change took effect.
    #[error("the change may have taken effect or not: {0}")]
    OutcomeUnknown(#[source] BoxError),
    /// Too many requests wait already, or change the same account. Nothing was changed.
    #[error("storage is busy")]
    Busy,
    /// Stored bytes do not decode.
    #[error("stored data is corrupt: {0}")]
    Corrupt(String),
}

impl From<Denied> for AccountError {
    fn from(denied: Denied) -> Self {
        Self::Denied(denied)
    }
}

impl From<StoreError> for AccountError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Rejected { reason, .. } => match reason {
                Conflict::AccountNotFound => Self::NotFound,
                Conflict::AccountExists => Self::Exists,
                // The service has tried again as often as it does: others change the account all the time.
                Conflict::AccountChanged => Self::Busy,
                Conflict::TableNotFound
                | Conflict::TableExists
                | Conflict::EntityExists
                | Conflict::EntityNotFound
                | Conflict::ConditionNotMet
                | Conflict::EntityTooLarge
                | Conflict::ChangesNotKept
                | Conflict::NotUnique
                | Conflict::IndexExists
                | Conflict::IndexNotFound
                | Conflict::TooManyIndexes
                | Conflict::TooManyTables
                | Conflict::TooManyQueues
                | Conflict::UniqueAcrossNodes
                | Conflict::QueueNotFound
                | Conflict::QueueExists
                | Conflict::MessageNotFound
                | Conflict::TooManyProperties => Self::Unavailable(
                    format!("an engine answered a change of an account with: {reason}").into(),
                ),
            },
            StoreError::Unavailable(source) => Self::Unavailable(source),
            StoreError::OutcomeUnknown(source) => Self::OutcomeUnknown(source),
            StoreError::Busy => Self::Busy,
            StoreError::Corrupt(what) => Self::Corrupt(what),
        }
    }
}
