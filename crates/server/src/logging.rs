//! The log: lines or JSON objects on standard error.

use crate::config::{Config, LogFormat};
use crate::error::ServerError;
use std::io::IsTerminal as _;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Starts the log of this process as the configuration says. The first start wins.
pub fn start(config: &Config) -> Result<(), ServerError> {
    let filter: Targets = config.log_level.parse().map_err(|_| {
        ServerError::Refused(format!(
            "--log-level takes error, warn, info, debug, trace or a list such as \
             info,audit=off, which {:?} is not",
            config.log_level
        ))
    })?;
    // The filter comes before the level below: lines of the lowest level must reach it.
    let builder = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(std::io::stderr);
    // A log that is there already, as in tests, stays.
    let _ = match config.log_format {
        LogFormat::Json => builder.json().flatten_event(true).finish().with(filter).try_init(),
        LogFormat::Text => {
            let ansi = std::io::stderr().is_terminal();
            builder.with_ansi(ansi).finish().with(filter).try_init()
        }
    };
    Ok(())
}
