//! A line on the terminal that tells how far a long command has got.

use rowhouse_server::Progress;
use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

const EVERY: Duration = Duration::from_millis(200);

/// Writes to standard error, if that is a terminal; nothing stays there.
#[derive(Debug)]
pub(crate) struct Line {
    watched: bool,
    began: Instant,
    last: Option<Instant>,
}

impl Line {
    pub(crate) fn new() -> Self {
        Self { watched: std::io::stderr().is_terminal(), began: Instant::now(), last: None }
    }

    /// Shows what was done to how much.
    pub(crate) fn show(&mut self, done: &str, progress: Progress) {
        if !self.watched || self.last.is_some_and(|last| last.elapsed() < EVERY) {
            return;
        }
        self.last = Some(Instant::now());
        let text = format!("\r\x1b[K{done} {}", describe(progress, self.began.elapsed()));
        let mut err = std::io::stderr();
        let _ = err.write_all(text.as_bytes()).and_then(|()| err.flush());
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if self.last.is_some() {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

fn describe(progress: Progress, took: Duration) -> String {
    let millis = u64::try_from(took.as_millis()).unwrap_or(u64::MAX).max(1);
    let a_second = |count: u64| count.saturating_mul(1000) / millis;
    format!(
        "{} ({}/s), {} entities ({}/s)",
        bytes(progress.bytes),
        bytes(a_second(progress.bytes)),
        progress.items,
        a_second(progress.items)
    )
}

/// Bytes as people read them.
pub(crate) fn bytes(count: u64) -> String {
    let (unit, name) = match count {
        0..1_000 => return format!("{count} B"),
        1_000..1_000_000 => (1_000, "kB"),
        1_000_000..1_000_000_000 => (1_000_000, "MB"),
        _ => (1_000_000_000, "GB"),
    };
    format!("{}.{} {name}", count / unit, count % unit * 10 / unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short() {
        let cases = [
            (0, "0 B"),
            (999, "999 B"),
            (1_000, "1.0 kB"),
            (52_428_800, "52.4 MB"),
            (3_990_000_000, "3.9 GB"),
        ];
        for (count, expected) in cases {
            assert_eq!(bytes(count), expected);
        }
        let progress = Progress { bytes: 2_000_000, items: 300 };
        let text = "2.0 MB (1.0 MB/s), 300 entities (150/s)";
        assert_eq!(describe(progress, Duration::from_secs(2)), text);
    }
}
