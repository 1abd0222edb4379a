//! Says that the server is ready: to people on standard output, to programs in the ready file.

use crate::accounts::Known;
use crate::banner::Banner;
use crate::config::Config;
use crate::database::DatabaseAddress;
use crate::error::ServerError;
use crate::files;
use crate::master_key::MasterKey;
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
    let notes = notes(config, started.known);
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

/// What whoever runs the server should know.
fn notes(config: &Config, known: Known) -> Vec<String> {
    let mut notes = Vec::new();
    let on_network = !config.host.is_loopback();
    if known.development_key && on_network {
        notes.push(
            "everybody who can reach this server can read and change the development account."
                .to_owned(),
        );
    }
    if on_network && !config.uses_tls() {
        notes.push("tables and queues are on the network without TLS.".to_owned());
    }
    if config.master_key == MasterKey::None && (known.others > 0 || !config.development_account) {
        let place = config.data_place();
        notes.push(format!("account keys lie unsealed in {place}; --master-key-file seals them."));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_runs_the_server_is_told_of_dangers() {
        let count = |known, change: fn(&mut Config)| {
            let mut config = Config::default();
            change(&mut config);
            notes(&config, known).len()
        };
        let laptop = Known { development_key: true, others: 0 };
        let site = Known { development_key: false, others: 2 };
        assert_eq!(count(laptop, |_| {}), 0);
        assert_eq!(count(laptop, |config| config.host = "0.0.0.0".parse().unwrap()), 2);
        assert_eq!(count(site, |_| {}), 1);
        assert_eq!(count(site, |config| config.master_key = MasterKey::Text(String::new())), 0);
    }
}
