//! The same lookups through the official Python SDK, which knows nothing of indexes.

use super::site::Site;
use super::{PROPERTY, lookups};
use crate::aims::{Bound, Report};
use crate::command::Running;
use crate::workload::DATA;
use serde_json::Value;
use std::ffi::OsStr;
use std::io;

/// The script that asks.
const SCRIPT: &str = "tests/index/query.py";
/// Queries without an index, and through it.
const QUERIES: (usize, usize) = (3, 100);

/// What came of the queries of a script.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Asked {
    median_ms: f64,
    /// Queries that did not find the one entity.
    wrong: u64,
}

/// Looks up entities without an index; nothing if there is no SDK.
pub(super) fn by_scan(site: &Site<'_>) -> io::Result<Option<Asked>> {
    ask(site, QUERIES.0)
}

/// Looks up entities through one; nothing if there is no SDK.
pub(super) fn by_index(site: &Site<'_>) -> io::Result<Option<Asked>> {
    ask(site, QUERIES.1)
}

fn ask(site: &Site<'_>, queries: usize) -> io::Result<Option<Asked>> {
    let python = &site.terms.python;
    if !python.exists() {
        eprintln!(
            "the Python SDK is left out: there is no {}; scripts/setup python makes it",
            python.display()
        );
        return Ok(None);
    }
    // Links must stay: a virtual environment is known by where its Python lies.
    let python = std::path::absolute(python)?;
    let mut arguments =
        vec![SCRIPT.to_owned(), site.endpoint(), DATA.to_owned(), PROPERTY.to_owned()];
    arguments.extend(lookups::keys(site.terms.entities).take(queries).map(lookups::value));
    let done = Running::start(&python, arguments.iter().map(OsStr::new))?.finish()?;
    Asked::read(&done.json()?, queries).map(Some)
}

impl Asked {
    /// A list of `{"ms": .., "found": ..}`, one for each query.
    fn read(printed: &Value, queries: usize) -> io::Result<Self> {
        let odd = || io::Error::other(format!("{SCRIPT} printed something else: {printed}"));
        let answers = printed.as_array().filter(|all| all.len() == queries).ok_or_else(odd)?;
        let mut times = Vec::with_capacity(queries);
        let mut wrong = 0;
        for answer in answers {
            times.push(answer["ms"].as_f64().ok_or_else(odd)?);
            wrong += u64::from(answer["found"].as_u64() != Some(1));
        }
        times.sort_by(f64::total_cmp);
        let median_ms = *times.get(times.len() / 2).ok_or_else(odd)?;
        Ok(Self { median_ms, wrong })
    }
}

/// Tells both, if there was an SDK.
pub(super) fn tell(before: Option<Asked>, after: Option<Asked>, report: &mut Report) {
    let (Some(before), Some(after)) = (before, after) else { return };
    let what = format!("query by {PROPERTY} with the Python SDK");
    report.fact(format!("{what}, without an index: median"), before.median_ms, "ms");
    report.fact(format!("{what}, through the index: median"), after.median_ms, "ms");
    let ratio = before.median_ms / after.median_ms;
    report.fact(format!("{what}, time without an index, of that through it"), ratio, "x");
    let wrong = (before.wrong + after.wrong) as f64;
    report.aim(format!("{what}: errors"), wrong, "", Bound::AtMost(0.0));
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn answers_of_the_script() {
        let printed = json!([
            {"ms": 9.0, "found": 1},
            {"ms": 1.5, "found": 1},
            {"ms": 3.0, "found": 2},
        ]);
        let asked = Asked::read(&printed, 3).unwrap();
        assert_eq!(asked, Asked { median_ms: 3.0, wrong: 1 });
        for odd in [json!({}), json!([]), json!([1, 2, 3]), json!([{"ms": 1.0, "found": 1}])] {
            assert!(Asked::read(&odd, 3).is_err(), "{odd}");
        }
    }
}
