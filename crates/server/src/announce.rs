//! Says that the server is ready: to people on standard output, to programs in the ready file.

use crate::accounts::Known;
use crate::banner::Banner;
use crate::config::Config;
use crate::database::DatabaseAddress;
use crate::error::ServerError;
use crate::files;
use crate::notes::notes;
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

/// Announces a server that answers already.
pub(crate) fn announce(config: &Config, started: Started) -> Result<(), ServerError> {
    let notes = notes(config, &started.known);
    for note in &notes {
        tracing::warn!("{note}");
    }
    // URLs hold nothing that JSON would escape.
    let Started { table, queue, admin, .. } = &started;
    let line = format!(r#"{{"table":"{table}","queue":"{queue}","admin":"{admin}"}}"#);
    if !config.quiet {
        let mut out = io::stdout();
        let banner = Banner { started, notes, bold: out.is_terminal() };
        // Nobody has to read it.
        let _ = write!(out, "\n{banner}\n").and_then(|()| out.flush());
    }
    match &config.ready_file {
        Some(path) => files::write_whole(path, &format!("{line}\n")),
        None => Ok(()),
    }
}
