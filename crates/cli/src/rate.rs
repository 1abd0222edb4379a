//! A source that gives no more than so many bytes a second.

use crate::Failure;
use std::io::{self, Read};
use std::str::FromStr;
use std::time::{Duration, Instant};

/// A server hangs up on whoever takes less.
const LEAST: u64 = 64 * 1024;
/// Bytes between two looks at the clock.
const PIECE: usize = 64 * 1024;
/// How much of the time in which nothing came is made up for: a little, so that small pauses do not make it slower.
const CREDIT: Duration = Duration::from_millis(100);

/// Bytes a second, as people write them: `50MB`, `512KiB`, `1G`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rate(u64);

impl FromStr for Rate {
    type Err = Failure;

    fn from_str(text: &str) -> Result<Self, Failure> {
        let wrong = || format!("{text:?} is not a rate such as 50MB (bytes a second)");
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let number: u64 = digits.parse().map_err(|_| wrong())?;
        let unit: u64 = match text[digits.len()..].to_ascii_lowercase().as_str() {
            "" | "b" => 1,
            "k" | "kb" => 1_000,
            "m" | "mb" => 1_000_000,
            "g" | "gb" => 1_000_000_000,
            "kib" => 1 << 10,
            "mib" => 1 << 20,
            "gib" => 1 << 30,
            _ => return Err(wrong()),
        };
        let rate = number.saturating_mul(unit);
        if rate < LEAST {
            return Err("the least rate is 64KiB: a server hangs up on slower ones".to_owned());
        }
        Ok(Self(rate))
    }
}

/// A source held to a rate.
#[derive(Debug)]
pub(crate) struct Limited<R> {
    source: R,
    rate: Option<Rate>,
    pace: Pace,
}

impl<R: Read> Limited<R> {
    pub(crate) fn new(source: R, rate: Option<Rate>) -> Self {
        Self { source, rate, pace: Pace { due: Instant::now() } }
    }
}

/// When what was read so far would all have come at the rate.
#[derive(Debug)]
struct Pace {
    due: Instant,
}

impl Pace {
    /// How long to wait at this moment before more is read.
    fn wait(&mut self, now: Instant) -> Duration {
        if let Some(earliest) = now.checked_sub(CREDIT) {
            self.due = self.due.max(earliest);
        }
        self.due.saturating_duration_since(now)
    }

    fn count(&mut self, bytes: usize, Rate(rate): Rate) {
        let nanoseconds = (bytes as u64).saturating_mul(1_000_000_000) / rate;
        self.due += Duration::from_nanos(nanoseconds);
    }
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(rate) = self.rate else { return self.source.read(buffer) };
        std::thread::sleep(self.pace.wait(Instant::now()));
        let piece = buffer.len().min(PIECE);
        let read = self.source.read(&mut buffer[..piece])?;
        self.pace.count(read, rate);
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_written_as_people_do() {
        let cases = [
            ("50MB", Some(50_000_000)),
            ("512KiB", Some(512 * 1024)),
            ("1g", Some(1_000_000_000)),
            ("65536", Some(65_536)),
            ("65535", None),
            ("1k", None),
            ("", None),
            ("MB", None),
            ("5 MB", None),
            ("5TB", None),
            ("-5MB", None),
        ];
        for (text, expected) in cases {
            assert_eq!(text.parse().ok(), expected.map(Rate), "{text}");
        }
    }

    /// Whoever stood still does not run afterwards.
    #[test]
    fn a_pause_is_not_made_up_for() {
        let rate = Rate(1_000_000);
        let began = Instant::now();
        let mut pace = Pace { due: began };
        pace.count(500_000, rate);
        assert_eq!(pace.wait(began), Duration::from_millis(500));
        // An hour in which nothing came is worth a tenth of a second.
        let later = began + Duration::from_hours(1);
        assert_eq!(pace.wait(later), Duration::ZERO);
        pace.count(100_000, rate);
        assert_eq!(pace.wait(later), Duration::ZERO);
        pace.count(250_000, rate);
        assert_eq!(pace.wait(later), Duration::from_millis(250));
        // A short pause is.
        assert_eq!(pace.wait(later + Duration::from_millis(300)), Duration::ZERO);
        pace.count(150_000, rate);
        assert_eq!(pace.wait(later + Duration::from_millis(300)), Duration::from_millis(100));
    }

    #[test]
    fn a_source_is_slowed_down() {
        let began = Instant::now();
        let mut out = Vec::new();
        let source = io::repeat(7).take(1_000_000);
        Limited::new(source, Some(Rate(5_000_000))).read_to_end(&mut out).unwrap();
        assert_eq!(out.len(), 1_000_000);
        let took = began.elapsed();
        assert!(Duration::from_millis(180) < took && took < Duration::from_secs(5), "{took:?}");
    }
}
