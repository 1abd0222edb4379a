//! Says that the server is ready: to people on standard output, to programs in the ready file.

use crate::accounts::Known;
use crate::banner::{Banner, connection_string};
use crate::config::Config;
use crate::database::DatabaseAddress;
use crate::error::ServerError;
use crate::files;
use crate::notes::notes;
use serde::Serialize;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::PathBuf;

/// What the start has found out.
#[derive(Debug)]
pub(crate) struct Started {
    /// URL of the Table service.
    pub(crate) table: String,
    /// URL of the Queue service.
    pub(crate) queue: String,
    /// URL of the admin listener.
    pub(crate) admin: String,
    /// Whether tables and queues are served on every address of this machine.
    pub(crate) served_everywhere: bool,
    /// Whether the admin listener is on every address of this machine.
    pub(crate) admin_everywhere: bool,
    /// Where the data is.
    pub(crate) data: Data,
    /// Whether changes are kept, in words; none if they are not.
    pub(crate) changes: Option<String>,
    /// Where the token of the admin API is.
    pub(crate) token: PathBuf,
    /// Certificate that clients must be told to trust.
    pub(crate) trust: Option<PathBuf>,
    /// What accounts there are.
    pub(crate) known: Known,
    /// Whether there are no extensions.
    pub(crate) strict: bool,
}

/// Where the data is.
#[derive(Debug)]
pub(crate) enum Data {
    /// In this directory.
    Directory(PathBuf),
    /// Nowhere, once the server stops.
    Nowhere,
    /// In a database that waits for its disk.
    Database(DatabaseAddress),
    /// In a database that need not.
    LaxDatabase(DatabaseAddress),
}

/// What stands in the ready file. It holds no secret: the key of the development account is public, and the token is
/// in a file of its own.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Ready {
    table: String,
    queue: String,
    admin: String,
    /// Of the development account, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    connection_string: Option<String>,
    admin_token_file: String,
    /// Certificate that clients must trust.
    #[serde(skip_serializing_if = "Option::is_none")]
    certificate_file: Option<String>,
}

impl Ready {
    fn of(started: &Started) -> Self {
        let Started { table, queue, admin, token, trust, known, .. } = started;
        let absolute = |path: &PathBuf| {
            let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
            path.to_string_lossy().into_owned()
        };
        Self {
            table: table.clone(),
            queue: queue.clone(),
            admin: admin.clone(),
            connection_string: known.development_key.then(|| connection_string(table, queue)),
            admin_token_file: absolute(token),
            certificate_file: trust.as_ref().map(absolute),
        }
    }
}

/// Announces a server that answers already.
pub(crate) fn announce(config: &Config, started: Started) -> Result<(), ServerError> {
    let notes = notes(config, &started.known);
    for note in &notes {
        tracing::warn!("{note}");
    }
    let ready = Ready::of(&started);
    if !config.quiet {
        let mut out = io::stdout();
        let banner = Banner { started, notes, bold: out.is_terminal() };
        // Nobody has to read it.
        let _ = write!(out, "\n{banner}\n").and_then(|()| out.flush());
    }
    match &config.ready_file {
        Some(path) => {
            let line = serde_json::to_string(&ready).expect("strings are written as JSON");
            files::write_whole(path, &format!("{line}\n"))
        }
        None => Ok(()),
    }
}
