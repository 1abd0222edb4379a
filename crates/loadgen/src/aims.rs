//! What a measurement has found, beside what was hoped for.
//!
//! A finding with a bound gets a verdict, and a report with a missed bound fails the command. Findings are told
//! as they come, printed as one table at the end, and written as JSON for programs.

use crate::text::{Table, count, figure};
use std::collections::BTreeSet;
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
    pub(crate) fn met(self, value: f64) -> Option<bool> {
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
    /// Why the figure proves nothing, if it does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_verified: Option<String>,
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
        self.judge(what, value, unit, bound, None);
    }

    /// The same, unless something is known that keeps the figure from proving anything: the verdict then is NOT VERIFIED.
    pub(crate) fn judge(
        &mut self,
        what: impl Into<String>,
        value: f64,
        unit: &'static str,
        bound: Bound,
        doubt: Option<&str>,
    ) {
        let met = bound.met(value);
        let not_verified = doubt.filter(|_| met.is_some()).map(str::to_owned);
        let met = met.filter(|_| not_verified.is_none());
        let finding =
            Finding { what: what.into(), value, unit, aim: bound.words(), met, not_verified };
        eprintln!("{}", finding.cells().join("  "));
        self.findings.push(finding);
    }

    /// Prints everything and writes it to a file. Fails if an aim was missed or not verified.
    pub(crate) fn conclude(&self, file: &Path) -> io::Result<()> {
        fs::write(file, serde_json::to_string_pretty(self)? + "\n")?;
        print!("{}", self.plain());
        println!("written: {}", file.display());
        let (missed, aims) = self.missed();
        let unknown = self.doubts().count();
        let aims = aims + unknown;
        for doubt in self.doubts().collect::<BTreeSet<_>>() {
            println!("NOT VERIFIED: {doubt}");
        }
        match (missed, unknown) {
            (0, 0) => Ok(()),
            (missed, 0) => Err(io::Error::other(format!("{missed} of {aims} aims were missed"))),
            (missed, unknown) => Err(io::Error::other(format!(
                "{missed} of {aims} aims were missed, and {unknown} are NOT VERIFIED"
            ))),
        }
    }

    fn plain(&self) -> String {
        let mut table = Table::of_words(&["what", "figure", "unit", "aim", "verdict"]);
        for finding in &self.findings {
            table.push(finding.cells());
        }
        table.plain()
    }

    /// Why figures prove nothing, one for each such figure.
    fn doubts(&self) -> impl Iterator<Item = &str> {
        self.findings.iter().filter_map(|finding| finding.not_verified.as_deref())
    }

    /// How many aims were missed, and how many have a verdict.
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
            None if self.not_verified.is_some() => "NOT VERIFIED",
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
    fn what_proves_nothing_is_neither_met_nor_missed() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("report.json");
        let mut report = Report::default();
        report.judge("size", 3.0, "MB", Bound::None, Some("nobody cares"));
        report.judge("p50", 1.0, "ms", Bound::AtMost(2.0), None);
        report.conclude(&file).unwrap();
        report.judge("p99", 1.0, "ms", Bound::AtMost(2.0), Some("the machine was busy"));
        let words = report.conclude(&file).unwrap_err().to_string();
        assert_eq!(words, "0 of 2 aims were missed, and 1 are NOT VERIFIED");
        let plain = report.plain();
        assert_eq!(plain.matches("NOT VERIFIED").count(), 1, "{plain}");
        assert!(fs::read_to_string(&file).unwrap().contains("the machine was busy"));
    }

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
