//! What an error of the database means for whoever asked.

use crate::options::OpenError;
use rowhouse_store::{Conflict, StoreError};
use tokio_postgres::error::SqlState;

/// What an error of the database means.
#[derive(Debug)]
pub(crate) enum Fault {
    /// A condition did not hold at the command of that position; nothing was written.
    Rejected(usize, Conflict),
    /// Someone else was faster; nothing was written, and another try may succeed.
    Raced(tokio_postgres::Error),
    /// A row of the key is there already; nothing was written.
    Duplicate,
    /// What the statement requires does not hold; nothing was written.
    Unmet,
    /// What is there has this tick, which is not before that of the write; nothing was written.
    Behind(i64),
    /// The database refused; nothing was written.
    Refused(tokio_postgres::Error),
    /// The database gave a statement up. On a cluster the node that did the work may have committed it all the same.
    Cancelled(tokio_postgres::Error),
    /// The connection failed: whether a write took effect is unknown.
    Lost(tokio_postgres::Error),
    /// An error that is none of the database.
    Other(StoreError),
}

impl From<tokio_postgres::Error> for Fault {
    fn from(error: tokio_postgres::Error) -> Self {
        let Some(state) = error.code() else { return Self::Lost(error) };
        match state.code() {
            "RH001" => Self::Rejected(0, Conflict::TableNotFound),
            "RH002" => Self::Unmet,
            "RH003" => Self::Rejected(0, Conflict::QueueNotFound),
            "57014" => Self::Cancelled(error),
            // A shutdown may come after the commit, while the database waits for a standby.
            "57P01" | "57P02" | "57P03" | "57P05" => Self::Lost(error),
            code if code.starts_with("08") => Self::Lost(error),
            // The database does not know whether the statement was completed.
            _ if *state == SqlState::T_R_STATEMENT_COMPLETION_UNKNOWN => Self::Lost(error),
            // Something inside failed, perhaps after the commit on another node.
            "XX000" => Self::Lost(error),
            _ if *state == SqlState::UNIQUE_VIOLATION => Self::Duplicate,
            _ if *state == SqlState::T_R_SERIALIZATION_FAILURE
                || *state == SqlState::T_R_DEADLOCK_DETECTED =>
            {
                Self::Raced(error)
            }
            _ => Self::Refused(error),
        }
    }
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        Self::Other(error)
    }
}

impl From<rowhouse_types::Corrupt> for Fault {
    fn from(error: rowhouse_types::Corrupt) -> Self {
        Self::Other(error.into())
    }
}

impl From<Conflict> for Fault {
    fn from(reason: Conflict) -> Self {
        Self::Rejected(0, reason)
    }
}

impl Fault {
    /// What whoever wrote is told.
    pub(crate) fn of_a_write(self) -> StoreError {
        match self {
            Self::Rejected(index, reason) => StoreError::Rejected { index, reason },
            Self::Raced(error) | Self::Refused(error) => busy(&error),
            Self::Duplicate | Self::Unmet | Self::Behind(_) => StoreError::Busy,
            Self::Cancelled(error) | Self::Lost(error) => StoreError::outcome_unknown(error),
            Self::Other(error) => error,
        }
    }

    /// What whoever wrote is told when the write had been committed before: never that nothing was written.
    pub(crate) fn after_a_write(self) -> StoreError {
        match self.of_a_write() {
            StoreError::Busy => {
                StoreError::outcome_unknown("the database did not answer after a write")
            }
            StoreError::Unavailable(source) => StoreError::OutcomeUnknown(source),
            other => other,
        }
    }

    /// The same fault where nothing had been committed yet: whatever was begun is undone.
    pub(crate) fn before_commit(self) -> Self {
        match self {
            Self::Cancelled(error) | Self::Lost(error) => Self::Refused(error),
            other => other,
        }
    }

    /// Whether a statement failed only because another one of its transaction had.
    pub(crate) fn is_consequence(&self) -> bool {
        let Self::Refused(error) = self else { return false };
        error.code() == Some(&SqlState::IN_FAILED_SQL_TRANSACTION)
    }

    /// What whoever opens a store is told.
    pub(crate) fn of_opening(self) -> OpenError {
        match self {
            Self::Raced(error)
            | Self::Refused(error)
            | Self::Cancelled(error)
            | Self::Lost(error) => OpenError::of(&error),
            other => OpenError::Unreachable(other.of_a_read().to_string()),
        }
    }

    /// What whoever read is told: nothing was written, so trying again is safe.
    pub(crate) fn of_a_read(self) -> StoreError {
        self.before_commit().of_a_write()
    }
}

/// Nothing was written; the log has the reason.
fn busy(error: &tokio_postgres::Error) -> StoreError {
    // The message of the database names no values; its detail might.
    let reason = error.as_db_error().map(|error| (error.code().code(), error.message()));
    tracing::warn!(%error, ?reason, "the database did not answer a request");
    StoreError::Busy
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_always_means_that_nothing_was_written() {
        let busy = || Fault::from(StoreError::Busy);
        assert!(matches!(busy().of_a_write(), StoreError::Busy));
        assert!(matches!(busy().of_a_read(), StoreError::Busy));
        assert!(matches!(busy().after_a_write(), StoreError::OutcomeUnknown(_)));
        assert!(matches!(Fault::Unmet.after_a_write(), StoreError::OutcomeUnknown(_)));
        let closed = Fault::from(StoreError::unavailable("closed"));
        assert!(matches!(closed.after_a_write(), StoreError::OutcomeUnknown(_)));
    }
}
