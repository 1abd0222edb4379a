//! A source that gives no more than so many bytes a second.

use crate::Failure;
use std::io::{self, Read};
use std::str::FromStr;
use std::time::{Duration, Instant};

/// A server hangs up on whoever takes less.
const LEAST: u64 = 64 * 1024;
/// Bytes between two looks at the clock.
const PIECE: usize = 64 * 1024;

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
    began: Instant,
    read: u64,
}

impl<R: Read> Limited<R> {
    pub(crate) fn new(source: R, rate: Option<Rate>) -> Self {
        Self { source, rate, began: Instant::now(), read: 0 }
    }
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(Rate(rate)) = self.rate else { return self.source.read(buffer) };
        let due = Duration::from_micros(self.read.saturating_mul(1_000_000) / rate);
        std::thread::sleep(due.saturating_sub(self.began.elapsed()));
        let piece = buffer.len().min(PIECE);
        let read = self.source.read(&mut buffer[..piece])?;
        self.read += read as u64;
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
