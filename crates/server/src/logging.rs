//! The log: lines or JSON objects on standard error.

use crate::config::{Config, LogFormat};
use crate::error::ServerError;
use std::io::IsTerminal as _;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Starts the log of this process as the configuration says. The first start wins.
pub fn start(config: &Config) -> Result<(), ServerError> {
    let filter = EnvFilter::try_new(&config.log_level).map_err(|_| {
        ServerError::Refused(format!(
            "--log-level takes error, warn, info, debug, trace or directives such as \
             info,audit=off, which {:?} is not",
            config.log_level
        ))
    })?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // A log that is there already, as in tests, stays.
    let _ = match config.log_format {
        LogFormat::Json => builder.json().flatten_event(true).finish().try_init(),
        LogFormat::Text => builder.with_ansi(std::io::stderr().is_terminal()).finish().try_init(),
    };
    Ok(())
}
