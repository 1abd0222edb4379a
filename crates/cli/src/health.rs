//! `rowhouse health`: does a server take requests?

use crate::admin_client::{ADMIN_DEFAULT, AdminOptions};
use crate::{Failure, output};
use clap::Args;

/// Ask a running server whether it takes requests, for health checks.
///
/// Exits with 0 if it does and with 1 if it does not, or if it does not answer within a few seconds.
/// Needs a token only where the admin listener speaks TLS.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  rowhouse health --admin http://127.0.0.1:10003")]
pub(crate) struct Health {
    #[command(flatten)]
    server: AdminOptions,
}

/// Why the server behind a table endpoint of this machine takes no requests, if its admin listener says so.
///
/// Only where the admin listener is known: named by its variable, or where tables are at their usual port.
pub(crate) fn why_not_ready(endpoint: &str) -> Option<Failure> {
    let named = std::env::var("ROWHOUSE_ADMIN").ok().filter(|url| !url.is_empty());
    let usual = ["http://127.0.0.1:10002/", "http://localhost:10002/"];
    let is_usual = usual.iter().any(|start| endpoint.starts_with(start));
    let admin = named.or_else(|| is_usual.then(|| ADMIN_DEFAULT.to_owned()))?;
    AdminOptions::at(admin).probe().ok()?.ready().err()
}

impl Health {
    pub(crate) fn run(self) -> Result<(), Failure> {
        self.server.probe()?.ready()?;
        output::print(if self.server.json { "{\"ready\":true}\n" } else { "ready\n" });
        Ok(())
    }
}
