//! The log: lines or JSON objects on standard error.

use crate::config::{Config, LogFormat};
use crate::error::ServerError;
use std::io::IsTerminal as _;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Starts the log of this process as the configuration says. The first start wins.
pub fn start(config: &Config) -> Result<(), ServerError> {
    let filter = filter(&config.log_level).ok_or_else(|| {
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

/// Reads levels and pairs of target and level; `None` if anything else is among them. A word that is no level would
/// silence the log, and a pair that is not understood would be found out when a line is missing.
fn filter(text: &str) -> Option<Targets> {
    let mut parts = text.split(',').map(str::trim).filter(|part| !part.is_empty()).peekable();
    parts.peek()?;
    parts.try_fold(Targets::new(), |targets, part| {
        let (target, level) = match part.split_once('=') {
            Some((target, level)) => (Some(target.trim()), level.trim()),
            None => (None, part),
        };
        if level.is_empty() {
            return None;
        }
        let level: LevelFilter = level.parse().ok()?;
        match target {
            None => Some(targets.with_default(level)),
            Some("") => None,
            Some(name) if name.contains(['[', '{', ' ']) => None,
            Some(name) => Some(targets.with_target(name, level)),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::filter;
    use tracing::Level;

    /// Which lines are written: of a crate at info and debug, and of the audit at info.
    #[test]
    fn levels_and_lists() {
        let cases = [
            ("info", Some([true, false, true])),
            ("INFO", Some([true, false, true])),
            ("info,", Some([true, false, true])),
            (" info , audit=off ", Some([true, false, false])),
            ("info,audit=off", Some([true, false, false])),
            ("off", Some([false, false, false])),
            ("rowhouse_http=debug", Some([true, true, false])),
            ("warn,rowhouse_http=debug", Some([true, true, false])),
            ("", None),
            (",", None),
            ("inof", None),
            ("audit", None),
            ("info,=debug", None),
            ("rowhouse_http=", None),
            ("rowhouse_http=loud", None),
            ("rowhouse_http[span{field=1}]=info", None),
        ];
        for (text, expected) in cases {
            let actual = filter(text).map(|filter| {
                [
                    ("rowhouse_http", Level::INFO),
                    ("rowhouse_http", Level::DEBUG),
                    ("audit", Level::INFO),
                ]
                .map(|(target, level)| filter.would_enable(target, &level))
            });
            assert_eq!(actual, expected, "{text:?}");
        }
    }
}
