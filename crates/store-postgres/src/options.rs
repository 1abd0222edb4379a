//! How a store is opened, and why it may not open.

use rowhouse_types::limits;
use std::error::Error;
use std::io;
use std::time::Duration;
use tokio_rustls::rustls;

/// How a store is opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where the database is: `postgres://user:password@host:port/database`, or the words of a connection string.
    pub url: Url,
    /// The authorities that the database's certificate is checked by, in PEM; without, those of the operating system. Used
    /// when the address has `sslmode=verify-full`, `require` or `verify-ca`.
    pub authorities: Option<Vec<u8>>,
    /// Most connections that this server holds.
    pub connections: usize,
    /// Whether answered writes must survive a power cut.
    pub durability: Durability,
    /// How long a request waits for a connection before the store is busy.
    pub patience: Duration,
    /// How long a write is waited for before its outcome is unknown. The database limits a statement but not the
    /// commit, which waits for a synchronous standby for as long as that is away.
    pub write_within: Duration,
    /// How long a read is waited for before the store is busy. The database limits a statement itself, unless it hangs.
    pub read_within: Duration,
    /// Whose time decides which messages of queues are visible, and what has expired of messages and entities.
    pub queue_clock: QueueClock,
    /// Expired entities are removed no sooner than this after the TTL of their table was set.
    pub ttl_grace: Duration,
}

/// Whose time decides which messages of queues are visible, and what has expired of messages and entities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueClock {
    /// The database's: one clock for all servers, whatever their own say. When it is set back, what it showed as visible
    /// is not for so long.
    Database,
    /// That of this server, never before the latest commit here: for one server, and for tests, whose clock is simulated.
    Server,
}

/// A connection string. It may hold a password, so it is never shown.
#[derive(Clone)]
pub struct Url(String);

impl Url {
    /// The text of a connection string, unchecked: opening the store checks it.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Url {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Url")
    }
}

/// What an answered write survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// A power cut: a database that does not wait for its disk is refused.
    Durable,
    /// What the database's own settings say.
    Ephemeral,
}

impl Options {
    /// The defaults, for the database at this place.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: Url::new(url),
            authorities: None,
            connections: 32,
            durability: Durability::Durable,
            patience: Duration::from_secs(2),
            // Longer than the database lets a statement wait for a lock, whose outcome is known.
            write_within: Duration::from_secs(15),
            // Longer than a page may take, and than the database lets the statement run with which that ends.
            read_within: Duration::from_secs(40),
            queue_clock: QueueClock::Database,
            ttl_grace: Duration::from_secs(limits::TTL_GRACE_SECONDS),
        }
    }
}

impl OpenError {
    /// What a failed connection or statement means for whoever opens a store.
    pub(crate) fn of(error: &tokio_postgres::Error) -> Self {
        match error.as_db_error() {
            // Starting, stopping, or too many connections for the moment.
            Some(said) if ["57", "53", "08"].contains(&&said.code().code()[..2]) => {
                Self::Unreachable(said.message().to_owned())
            }
            Some(said) => Self::Refused(said.message().to_owned()),
            None if may_pass(error) => Self::Unreachable(error_chain(error)),
            None => Self::Misconfigured(error_chain(error)),
        }
    }
}

/// What an error is due to, one after the other.
fn causes(error: &dyn Error) -> impl Iterator<Item = &(dyn Error + 'static)> {
    std::iter::successors(error.source(), |&cause| cause.source())
}

/// Whether the same may succeed later: nobody listens, or a connection broke. A certificate that is not accepted, a
/// password that is missing or TLS that the database does not speak stay what they are.
fn may_pass(error: &dyn Error) -> bool {
    let of_tls = |error: &io::Error| {
        error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()).is_some()
    };
    let of_network = |cause: &(dyn Error + 'static)| {
        cause.downcast_ref::<io::Error>().is_some_and(|error| !of_tls(error))
    };
    error.source().is_none() || causes(error).any(of_network)
}

/// An error with what caused it, in one line.
fn error_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    for cause in causes(error) {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
    }
    text
}

/// Why a store did not open. Each text is one sentence that says what to do.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The connection string is not one.
    #[error("the address of the database cannot be read: {0}")]
    Address(#[source] tokio_postgres::Error),
    /// Nobody could vouch for a certificate.
    #[error("no certificate authority can be read for the connection to the database: {0}")]
    Authorities(String),
    /// No connection, or it was lost.
    #[error("the database cannot be reached: {0}")]
    Unreachable(String),
    /// It listens, but no connection can be made as configured: trying again does not help.
    #[error(
        "no connection can be made as configured: {0}; check the address, the password and --store-ca-file"
    )]
    Misconfigured(String),
    /// Passwords and data would cross the network in plain text.
    #[error(
        "the database is on another machine and offers no TLS: turn on TLS there, or add sslmode=disable to the \
         address to send everything in plain text"
    )]
    PlainText,
    /// It answers, and says no: trying again does not help.
    #[error("the database refuses: {0}")]
    Refused(String),
    /// An encoding that cannot hold every text.
    #[error("the database is encoded in {0}; create it with ENCODING 'UTF8'")]
    Encoding(String),
    /// Older than what is supported.
    #[error("the database is PostgreSQL {0}; version 15 or later is needed")]
    Version(String),
    /// Writes are answered before they are on disk.
    #[error(
        "the database runs with {0}=off, so answered writes may be lost; set it to on, or start with --ephemeral"
    )]
    NotDurable(&'static str),
    /// The role may not do what a server does: every such request would fail.
    #[error(
        "the role {role} may not do what a server has to ({missing}); as the owner of the schema run: {grants}"
    )]
    Rights {
        /// Who connects.
        role: String,
        /// What it may not, by name.
        missing: String,
        /// The statements that allow it.
        grants: String,
    },
    /// Written by a later release.
    #[error(
        "the database has schema {found}, which is newer than {known}, the latest that this release knows; upgrade Rowhouse"
    )]
    Newer {
        /// What the database has.
        found: i32,
        /// What this release knows.
        known: i32,
    },
    /// A backup is being restored into it.
    #[error(
        "a backup is being restored into it: start the server when 'rowhouse restore' has come to its end"
    )]
    Restoring,
    /// The same, for whoever wants to restore one.
    #[error(
        "another 'rowhouse restore' into it is at work: wait for its end; nothing was changed by this one"
    )]
    RestoredByAnother,
    /// Servers are on a database that nobody else may use.
    #[error(
        "servers are running on it ({servers}): stop them, then give the same command again; nothing was changed"
    )]
    Served {
        /// How many.
        servers: i64,
    },
    /// As many servers as there can be.
    #[error("64 servers use this database already, as many as there can be; stop one of them")]
    TooManyServers,
}
