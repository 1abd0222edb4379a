//! `rowhouse health`: does a server take requests?

use crate::admin_client::AdminOptions;
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

impl Health {
    pub(crate) fn run(self) -> Result<(), Failure> {
        self.server.probe()?.ready()?;
        output::print(if self.server.json { "{\"ready\":true}\n" } else { "ready\n" });
        Ok(())
    }
}
