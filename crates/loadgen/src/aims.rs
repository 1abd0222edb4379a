//! What a measurement has found, beside what was hoped for.
//!
//! A finding with a bound gets a verdict, and a report with a missed bound fails the command. Findings are told
//! as they come, printed as one table at the end, and written as JSON for programs.

use crate::text::{Table, count, figure};
use std::path::Path;
use std::{fs, io};

/// Memory that a server may take beside its cache, in bytes.
const BESIDE_CACHE: u64 = 150_000_000;

/// What a figure should be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Bound {
    /// Only told.
    None,
    AtMost(f64),
    AtLeast(f64),
}

impl Bound {
    /// Of the anonymous memory of a server with such a cache, in MB.
    pub(crate) fn memory(cache_mib: u64) -> Self {
        Self::AtMost((cache_mib * 1024 * 1024 + BESIDE_CACHE) as f64 / 1e6)
    }

    /// Whether the figure keeps to it; nothing if there is no bound.
    fn met(self, value: f64) -> Option<bool> {
        match self {
            Self::None => None,
            Self::AtMost(most) => Some(value <= most),
            Self::AtLeast(least) => Some(value >= least),
        }
    }

    fn words(self) -> String {
        match self {
            Self::None => String::new(),
            Self::AtMost(most) => format!("<= {}", figure(most)),
            Self::AtLeast(least) => format!(">= {}", figure(least)),
        }
    }
}

#[derive(Debug, serde::Serialize)]
struct Finding {
    what: String,
    value: f64,
    unit: &'static str,
    aim: String,
    met: Option<bool>,
}

/// Findings in the order in which they were made.
#[derive(Debug, Default, serde::Serialize)]
pub(crate) struct Report {
    findings: Vec<Finding>,
}

impl Report {
    /// Adds a figure that is only told.
    pub(crate) fn fact(&mut self, what: impl Into<String>, value: f64, unit: &'static str) {
        self.aim(what, value, unit, Bound::None);
    }

    /// Adds a figure with what it should be.
    pub(crate) fn aim(
        &mut self,
        what: impl Into<String>,
        value: f64,
        unit: &'static str,
        bound: Bound,
    ) {
        let finding =
            Finding { what: what.into(), value, unit, aim: bound.words(), met: bound.met(value) };
        eprintln!("{}", finding.cells().join("  "));
        self.findings.push(finding);
    }

    /// Prints everything and writes it to a file. Fails if an aim was missed.
    pub(crate) fn conclude(&self, file: &Path) -> io::Result<()> {
        fs::write(file, serde_json::to_string_pretty(self)? + "\n")?;
        print!("{}", self.plain());
        println!("written: {}", file.display());
        let (missed, aims) = self.missed();
        if missed == 0 {
            return Ok(());
        }
        Err(io::Error::other(format!("{missed} of {aims} aims were missed")))
    }

    fn plain(&self) -> String {
        let mut table = Table::of_words(&["what", "figure", "unit", "aim", "verdict"]);
        for finding in &self.findings {
            table.push(finding.cells());
        }
        table.plain()
    }

    /// How many aims were missed, and how many there are.
    fn missed(&self) -> (usize, usize) {
        let verdicts = self.findings.iter().filter_map(|finding| finding.met);
        verdicts.fold((0, 0), |(missed, aims), met| (missed + usize::from(!met), aims + 1))
    }
}

impl Finding {
    fn cells(&self) -> Vec<String> {
        let whole = self.value >= 0.0 && self.value.fract() == 0.0;
        let figure = if whole { count(self.value as u64) } else { figure(self.value) };
        let verdict = match self.met {
            None => "",
            Some(true) => "met",
            Some(false) => "MISSED",
        };
        vec![self.what.clone(), figure, self.unit.to_owned(), self.aim.clone(), verdict.to_owned()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missed_aim_fails_the_report() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("report.json");
        let mut report = Report::default();
        report.fact("size", 3.0, "MB");
        report.aim("p99", 2.0, "ms", Bound::AtMost(2.0));
        report.conclude(&file).unwrap();
        report.aim("rate", 9.5, "/s", Bound::AtLeast(10.0));
        report.aim("not a number", f64::NAN, "", Bound::AtMost(1.0));
        let words = report.conclude(&file).unwrap_err().to_string();
        assert_eq!(words, "2 of 3 aims were missed");
        let plain = report.plain();
        assert!(plain.contains("MISSED") && plain.contains("<= 2.00"), "{plain}");
        assert!(fs::read_to_string(&file).unwrap().contains("\"met\": false"));
    }
}
