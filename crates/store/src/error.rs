//! What can go wrong in a store, as far as a caller can act on it.

/// Whatever an engine has to say for the log.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// What a caller can act on, and nothing about how an engine is built.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A condition did not hold. Nothing was written; the same request would fail again.
    #[error("command {index} rejected: {reason}")]
    Rejected {
        /// Position in the batch; 0 outside batches.
        index: usize,
        /// Which condition.
        reason: Conflict,
    },
    /// The store cannot serve now. Nothing was written.
    #[error("store unavailable: {0}")]
    Unavailable(#[source] BoxError),
    /// Nobody can say whether the write took effect: it was under way when something failed or took too long. Repeat
    /// only what is safe to repeat.
    #[error("outcome unknown: {0}")]
    OutcomeUnknown(#[source] BoxError),
    /// Too many requests wait already. Nothing was written; try later.
    #[error("store busy")]
    Busy,
    /// Stored bytes do not decode. Never retried.
    #[error("stored data is corrupt: {0}")]
    Corrupt(String),
}

/// Which condition did not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Conflict {
    /// No such table, or no longer.
    #[error("the table does not exist")]
    TableNotFound,
    /// A table of that name is there.
    #[error("the table exists")]
    TableExists,
    /// No such account.
    #[error("the account does not exist")]
    AccountNotFound,
    /// An account of that name is there.
    #[error("the account exists")]
    AccountExists,
    /// The account has another version than the change was made for.
    #[error("the account has changed meanwhile")]
    AccountChanged,
    /// [`crate::Condition::Absent`] did not hold.
    #[error("the entity exists")]
    EntityExists,
    /// The entity is not there.
    #[error("the entity does not exist")]
    EntityNotFound,
    /// The entity has another tag.
    #[error("the etag does not match")]
    ConditionNotMet,
    /// A merge would exceed 1 MiB.
    #[error("the entity would be too large")]
    EntityTooLarge,
    /// Changes after that place are not there, or no longer.
    #[error("the changes are not kept")]
    ChangesNotKept,
    /// A unique index has these values of another entity.
    #[error("a unique index has these values already")]
    NotUnique,
    /// An index of that name is there.
    #[error("the index exists")]
    IndexExists,
    /// No such index, or no longer, or it is not ready.
    #[error("the index does not exist or is not ready")]
    IndexNotFound,
    /// The account has as many tables as it may.
    #[error("the account has too many tables")]
    TooManyTables,
    /// The account has as many queues as it may.
    #[error("the account has too many queues")]
    TooManyQueues,
    /// The table has as many indexes as it may.
    #[error("the table has too many indexes")]
    TooManyIndexes,
    /// Only the entities of one partition are on one node.
    #[error("a unique index across nodes must name PartitionKey")]
    UniqueAcrossNodes,
    /// No such queue, or no longer.
    #[error("the queue does not exist")]
    QueueNotFound,
    /// A queue of that name is there.
    #[error("the queue exists")]
    QueueExists,
    /// No such message, or no longer, or it has another receipt.
    #[error("the message does not exist")]
    MessageNotFound,
    /// A merge would exceed 252 properties.
    #[error("the entity would have too many properties")]
    TooManyProperties,
}

impl StoreError {
    /// A rejection outside a batch.
    pub fn rejected(reason: Conflict) -> Self {
        Self::Rejected { index: 0, reason }
    }

    /// An engine's own error; nothing was written.
    pub fn unavailable(error: impl Into<BoxError>) -> Self {
        Self::Unavailable(error.into())
    }

    /// An engine's own error while a write was under way.
    pub fn outcome_unknown(error: impl Into<BoxError>) -> Self {
        Self::OutcomeUnknown(error.into())
    }
}

impl From<rowhouse_types::Corrupt> for StoreError {
    fn from(error: rowhouse_types::Corrupt) -> Self {
        Self::Corrupt(error.to_string())
    }
}
