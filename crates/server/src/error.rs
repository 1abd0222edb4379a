//! Why a server does not start, or ended badly: one sentence each that says what to do next.

use rowhouse_http::admin::TokenError;
use rowhouse_http::listener::TlsError;
use rowhouse_service_account::AccountError;
use rowhouse_service_backup::{BackupError, FileError, cause};
use rowhouse_store::StoreError;
use rowhouse_store_embedded::OpenError;
use rowhouse_store_postgres::OpenError as DatabaseError;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Why a server does not start, or ended badly.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The configuration asks for something that would not work or would be dangerous.
    #[error("{0}")]
    Refused(String),
    /// The data directory cannot be used.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The database cannot be used.
    #[error("the database {place} cannot be used: {source}")]
    Database {
        /// Host, port and name.
        place: String,
        /// Why, and what to do.
        source: DatabaseError,
    },
    /// The database could not be reached in time.
    #[error(
        "the database {place} could not be reached within {seconds} s: {reason}: start it, or check \
         --store"
    )]
    Unreachable {
        /// Host, port and name.
        place: String,
        /// How long it was tried.
        seconds: u64,
        /// What the last attempt met.
        reason: String,
    },
    /// There is no usable certificate.
    #[error("{0}: check the --tls options")]
    Tls(#[from] TlsError),
    /// The tokens of the admin API cannot be used.
    #[error("{0}")]
    Tokens(#[from] TokenError),
    /// An address cannot be listened on.
    #[error("{}", bind_sentence(*.address, .flags, .source))]
    Bind {
        /// Which address.
        address: SocketAddr,
        /// The options that choose address and port.
        flags: [&'static str; 2],
        /// What the system said.
        source: io::Error,
    },
    /// The master key cannot be used.
    #[error("{0}")]
    MasterKey(String),
    /// Accounts cannot be read or written at the start.
    #[error("the accounts cannot be opened: {0}")]
    Accounts(#[source] AccountError),
    /// Keys in a shared database do not open with the master key of this server.
    #[error(
        "the accounts cannot be opened: {0}; all servers on one database need the same master key: \
         give this one the same --master-key-file or ROWHOUSE_MASTER_KEY as the others"
    )]
    ForeignMasterKey(String),
    /// The store cannot keep changes, or cannot say whether it does.
    #[error("whether changes are kept cannot be set: {0}: see the log of the store")]
    Changes(#[source] StoreError),
    /// A file of ours cannot be written.
    #[error("cannot write {}: {source}: choose a path that can be written", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// No temporary directory can be made.
    #[error(
        "cannot make a temporary directory: {0}: set TMPDIR to a directory that can be written"
    )]
    TemporaryDirectory(#[source] io::Error),
    /// The system refuses threads or signals.
    #[error("the system refuses what a server needs: {0}: check its limits")]
    System(#[source] io::Error),
    /// A file is not the backup that it should be.
    #[error("{} {source}", path.display())]
    BackupFile {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        source: FileError,
    },
    /// A backup is not made, or not restored.
    #[error("{0}")]
    Backup(#[source] BackupError),
    /// A restore ended before its end, which the store did not allow.
    #[error(
        "the restore into {place} was interrupted ({}): mend the cause, then give the same command \
         again, which goes on where it was",
        cause(source)
    )]
    Interrupted {
        /// The data directory or the database.
        place: String,
        /// What the store said.
        source: StoreError,
    },
    /// The store did not close as it should. What was acknowledged is safe.
    #[error("the store did not close cleanly: {0}: run 'rowhouse check' on the data directory")]
    Close(#[source] StoreError),
    /// Connections to the database did not end as they should. What was acknowledged is safe.
    #[error("the connections to the database did not close cleanly: {0}: see the database's log")]
    Disconnect(#[source] StoreError),
}

impl ServerError {
    /// What went wrong with a backup in a file.
    pub(crate) fn of_backup(path: &std::path::Path, error: BackupError) -> Self {
        match error {
            BackupError::File(source) => Self::BackupFile { path: path.to_owned(), source },
            error => Self::Backup(error),
        }
    }
}

fn bind_sentence(address: SocketAddr, flags: &[&str; 2], source: &io::Error) -> String {
    let (ip, port, [host_flag, port_flag]) = (address.ip(), address.port(), flags);
    match source.kind() {
        io::ErrorKind::AddrInUse => format!(
            "port {port} of {ip} is in use: stop the program that has it, or choose another port \
             with {port_flag}"
        ),
        io::ErrorKind::PermissionDenied => format!(
            "the system does not let this user listen on port {port} of {ip}: choose a port above \
             1023 with {port_flag}"
        ),
        io::ErrorKind::AddrNotAvailable => {
            format!("this machine does not have the address {ip}: choose another with {host_flag}")
        }
        _ => format!(
            "cannot listen on {address} ({source}): choose another address with {host_flag} or \
             another port with {port_flag}"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_cannot_be_had_is_explained() {
        let cases = [
            (io::ErrorKind::AddrInUse, "port 10002 of 127.0.0.1 is in use"),
            (io::ErrorKind::PermissionDenied, "above 1023 with --table-port"),
            (io::ErrorKind::AddrNotAvailable, "choose another with --host"),
            (io::ErrorKind::Other, "another port with --table-port"),
        ];
        for (kind, expected) in cases {
            let error = ServerError::Bind {
                address: "127.0.0.1:10002".parse().unwrap(),
                flags: ["--host", "--table-port"],
                source: kind.into(),
            };
            assert!(error.to_string().contains(expected), "{error}");
        }
    }

    #[test]
    fn an_interrupted_restore_has_a_cause() {
        let source = StoreError::outcome_unknown("database or disk is full");
        let error = ServerError::Interrupted { place: "tiny".to_owned(), source };
        let expected = "the restore into tiny was interrupted (database or disk is full): mend the \
                        cause, then give the same command again, which goes on where it was";
        assert_eq!(error.to_string(), expected);
    }
}
