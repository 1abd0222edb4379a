//! `rowhouse check`: is a data directory in order?

use crate::backup::half_restored;
use crate::{Failure, output};
use clap::Args;
use rowhouse_server::{Checked, DatabaseAddress};
use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};

/// Verify a data directory that no server uses.
///
/// Only for data in a directory; a PostgreSQL database is verified with its own tools.
///
/// Reads everything and changes nothing. Prints what is wrong, a line each: damaged pages with the tables and queues
/// that are on them, and entities, indexes and messages that do not agree. The exit code is 1 if anything is wrong.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  rowhouse check ./rowhouse-data")]
pub(crate) struct Check {
    /// The data directory.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Rewrite a database of an older release so that its pages have checksums. It takes as long as copying it, and needs
    /// as much space again.
    #[arg(long)]
    add_checksums: bool,
}

impl Check {
    pub(crate) fn run(self) -> Result<(), Failure> {
        if DatabaseAddress::is_meant_by(&self.directory) {
            return Err(
                "'rowhouse check' verifies a data directory: verify a PostgreSQL database with \
                        its own tools, such as pg_amcheck"
                    .to_owned(),
            );
        }
        if self.add_checksums {
            return add_checksums(&self.directory);
        }
        let mut err = std::io::stderr();
        let watched = err.is_terminal();
        let mut progress = |entities: u64| {
            if watched {
                let _ = write!(err, "\r{entities} entities").and_then(|()| err.flush());
            }
        };
        let checked = rowhouse_server::check(&self.directory, &mut progress);
        if watched {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
        let Checked { report, unfinished } = checked.map_err(|error| error.to_string())?;
        for problem in &report.problems {
            output::print(&format!("{problem}\n"));
        }
        if let (true, Some(backup)) = (report.problems.is_empty(), unfinished) {
            return Err(format!(
                "{} holds a part of backup {backup} only, whose restore is not finished: run the same \
                 'rowhouse restore' again, which goes on where it was",
                self.directory.display(),
            ));
        }
        if report.problems.is_empty() {
            let tables = output::counted(report.tables, "table", "tables");
            let entities = output::counted(report.entities, "entity", "entities");
            let mut queues = String::new();
            if report.queues > 0 {
                let messages = output::counted(report.messages, "message", "messages");
                let count = output::counted(report.queues, "queue", "queues");
                queues = format!(", {count} with {messages}");
            }
            output::print(&format!("{tables} with {entities}{queues}: everything is in order.\n"));
            if !report.half_restored.is_empty() {
                output::print(&format!(
                    "{}. The same 'rowhouse restore' goes on with it; deleting it gives it up.\n",
                    half_restored(&report.half_restored)
                ));
            }
            return Ok(());
        }
        let problems = output::counted(report.problems.len() as u64, "problem", "problems");
        Err(format!(
            "{} has {problems}: restore a backup, or recover what is left with the sqlite3 tool",
            self.directory.display(),
        ))
    }
}

fn add_checksums(directory: &Path) -> Result<(), Failure> {
    // A mistyped path must not become a new data directory.
    if !directory.join("rowhouse.db").exists() {
        return Err(format!(
            "there is no database in {}: check the path of the data directory",
            directory.display()
        ));
    }
    let was_rewritten =
        rowhouse_server::add_checksums(directory).map_err(|error| error.to_string())?;
    let said = if was_rewritten {
        "every page has a checksum now"
    } else {
        "every page has a checksum already"
    };
    output::print(&format!("{}: {said}.\n", directory.display()));
    Ok(())
}
