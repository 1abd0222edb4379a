//! What can go wrong with a backup, in words that say what to do next.

use rowhouse_store::StoreError;
use rowhouse_types::limits::{BACKUP_BYTES_PER_SECOND_MIN, CLOCK_SKEW_SECONDS};
use rowhouse_types::{AccountName, Guid, TableName, Timestamp};
use std::fmt;
use std::io;
use std::time::Duration;

/// What is wrong with the bytes of a backup. Each is said of the file: "FILE is damaged ...".
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It begins with something else.
    #[error("is not a Rowhouse backup")]
    Foreign,
    /// Written by a release that this one knows nothing of.
    #[error(
        "was written by a newer release (format {found}, this one reads up to {known}): use that \
         release, or a later one"
    )]
    Newer {
        /// Its format.
        found: u32,
        /// The newest that is known.
        known: u32,
    },
    /// It has no end.
    #[error("is cut short after {at} bytes: it was not copied whole, or the backup did not finish")]
    Truncated {
        /// How much there is.
        at: u64,
    },
    /// What was written is not what is read.
    #[error("is damaged at byte {at} ({what}): use another copy, or another backup")]
    Damaged {
        /// Where the part begins that is wrong.
        at: u64,
        /// What was noticed.
        what: &'static str,
    },
    /// There are bytes behind its end.
    #[error("goes on behind its end at byte {at}: it is not what the backup wrote")]
    Overlong {
        /// Where it should have ended.
        at: u64,
    },
    /// The system does not give its bytes.
    #[error("cannot be read ({0})")]
    Io(#[from] io::Error),
}

/// Why a backup is not made, or not restored.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The bytes are not in order.
    #[error("the backup {0}")]
    File(#[from] FileError),
    /// Nobody takes what is written any more.
    #[error("the backup cannot be written ({0})")]
    Sink(#[source] io::Error),
    /// The store refuses or cannot.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// The changes since the base are not there.
    #[error(
        "the changes since that backup are not kept, or no longer: take a full backup instead, and \
         see to it that changes are kept for longer than it is from one backup to the next"
    )]
    ChangesNotKept,
    /// One is being made.
    #[error("another backup or restore is at work: wait for its end")]
    Busy,
    /// The first of several is not a full one.
    #[error(
        "backup {id} is incremental: restore it together with the full backup and all that are \
         between them, in the order in which they were taken"
    )]
    NotFull {
        /// Which backup.
        id: Guid,
    },
    /// One does not follow the one before it.
    #[error(
        "backup {id} does not follow backup {before}, which is before it: name a full backup and then \
         its incremental ones in the order in which they were taken"
    )]
    Chain {
        /// Which one.
        id: Guid,
        /// What stands before it.
        before: Guid,
    },
    /// Two backups are of different stores.
    #[error(
        "the backups {id} and {before} are not of the same data: they cannot follow each other"
    )]
    OtherOrigin {
        /// Which one.
        id: Guid,
        /// What stands before it.
        before: Guid,
    },
    /// The store has accounts.
    #[error("there are accounts already: a backup is restored only where nothing is")]
    NotEmpty,
    /// The store is half of another backup.
    #[error(
        "the restore of backup {id} was begun there and is not finished: finish that one, or choose \
         another place"
    )]
    OtherRestore {
        /// Which backup.
        id: Guid,
    },
    /// Whoever takes it reads too slowly: the store would keep what it needs for it for ever.
    #[error(
        "the backup was broken off after {bytes} bytes: the client kept it waiting for {} s and read less than \
         {BACKUP_BYTES_PER_SECOND_MIN} bytes a second; write it to a local disk first",
        waited.as_secs()
    )]
    SlowReader {
        /// What was sent, with what was under way.
        bytes: u64,
        /// How long it has waited for the client.
        waited: Duration,
    },
    /// Every later Timestamp of the store would be ahead of the clock too.
    #[error(
        "{what} has the Timestamp {timestamp}, which is ahead of this machine's clock by more than \
         {CLOCK_SKEW_SECONDS} s, and nothing was restored: every later Timestamp would be ahead as well; set the \
         clock if it is wrong, or restore with --allow-future-timestamps"
    )]
    FutureTimestamp {
        /// The table or the queue, with its account.
        what: String,
        /// The latest that it has.
        timestamp: Timestamp,
    },
    /// A file is not the one that was looked at first.
    #[error("the backup has changed while it was restored: begin again")]
    Changed,
    /// The backup has no such table.
    #[error("the backup has no table {table} in an account {account}")]
    NoSuchTable {
        /// The account.
        account: AccountName,
        /// The table.
        table: TableName,
    },
    /// The table in the backup is half of another one.
    #[error(
        "the table {table} of the account {account} was itself half restored when the backup was taken: \
         restore it from the backup that it came from, or from a later one"
    )]
    NotWhole {
        /// The account.
        account: AccountName,
        /// The table.
        table: TableName,
    },
    /// The account to restore into is not there.
    #[error("there is no account {0} to restore the table into")]
    NoSuchAccount(AccountName),
    /// The new name is taken.
    #[error("there is a table {0} already: choose another name")]
    TableExists(TableName),
    /// The table there is half of another backup.
    #[error(
        "the table {table} is half restored from backup {id}: finish that restore by giving its command \
         again, or delete the table, or choose another name"
    )]
    OtherHalf {
        /// The table.
        table: TableName,
        /// Whose half it is.
        id: Guid,
    },
    /// The table there was begun with other incremental backups.
    #[error(
        "the table {0} was half restored together with other incremental backups, and that half has \
         been dropped: give the command again"
    )]
    OtherChain(TableName),
    /// The half is no longer there.
    #[error("the table {0} was deleted while it was restored: nothing of it is left")]
    TableGone(TableName),
    /// Somebody else has gone on with the half.
    #[error(
        "another attempt to restore the table {0} was begun meanwhile, and goes on or has ended in the place of \
         this one"
    )]
    TakenOver(TableName),
    /// It stopped half way, through no fault of the backup.
    #[error(
        "{reason}; what was restored of {table} is kept: give the same command again, which goes on from the \
         last place that was noted"
    )]
    Halted {
        /// Why it stopped.
        reason: String,
        /// The table.
        table: TableName,
    },
    /// What a restore had made could not be taken back.
    #[error("{reason}; the table is there in part, and could not be dropped ({again}): drop it")]
    LeftOver {
        /// Why the restore failed.
        reason: String,
        /// Why the table was not dropped.
        again: StoreError,
    },
}

/// Why a restore stopped, for whoever gives the same command again: what it cannot know of its last write is written once more.
pub fn cause(error: &StoreError) -> &dyn fmt::Display {
    match error {
        StoreError::OutcomeUnknown(cause) => cause,
        error => error,
    }
}

impl BackupError {
    pub(crate) fn damaged(at: u64, what: &'static str) -> Self {
        Self::File(FileError::Damaged { at, what })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_goes_on_is_told_the_cause_only() {
        let full = || StoreError::outcome_unknown("the disk is full");
        assert_eq!(cause(&full()).to_string(), "the disk is full");
        assert_eq!(cause(&StoreError::Busy).to_string(), "store busy");
    }
}
