//! Cuts a table into ranges of keys that can be read side by side.
//!
//! The protocol lists no partitions, so cuts are found by asking for the first key at or after a text. Any
//! cuts are right: each range is a filter, and together they cover every key once. Which cuts are good is a
//! guess; there are several ranges for each reader, so that unequal ones even out.
//!
//! Services disagree on the order of keys: Rowhouse has that of UTF-8, Azurite that of UTF-16, where U+10000 and beyond
//! come before U+E000. Cuts are only such texts that both put in the same order; with others a key could lie in two
//! ranges.

use crate::client::{Client, Query};
use crate::error::ClientError;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Ranges for each reader.
const RANGES_PER_JOB: usize = 4;
/// Looking for cuts ends after so many questions, or after so long.
const QUESTIONS_MAX: usize = 96;
const TIME_MAX: Duration = Duration::from_secs(20);

/// Some keys of a table: from the first text on and before the second.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Range {
    /// Whole partitions.
    Partitions {
        /// The first may be this.
        from: Option<String>,
        /// None is this or beyond.
        to: Option<String>,
    },
    /// Rows of one partition.
    Rows {
        /// The partition.
        partition: String,
        /// The first may be this.
        from: Option<String>,
        /// None is this or beyond.
        to: Option<String>,
    },
}

impl Range {
    /// Every key.
    pub fn all() -> Self {
        Self::Partitions { from: None, to: None }
    }

    /// The filter that only keys of this range pass, together with another filter.
    pub fn filter(&self, further: Option<&str>) -> Option<String> {
        let mut terms = Vec::new();
        let (name, from, to) = match self {
            Self::Partitions { from, to } => ("PartitionKey", from, to),
            Self::Rows { partition, from, to } => {
                terms.push(format!("PartitionKey eq {}", quoted(partition)));
                ("RowKey", from, to)
            }
        };
        terms.extend(from.as_ref().map(|from| format!("{name} ge {}", quoted(from))));
        terms.extend(to.as_ref().map(|to| format!("{name} lt {}", quoted(to))));
        terms.extend(further.map(|filter| format!("({filter})")));
        (!terms.is_empty()).then(|| terms.join(" and "))
    }
}

/// The filter for rows of one partition, from the first to the last.
pub(crate) fn span(partition: &str, first: &str, last: &str) -> String {
    let (partition, first, last) = (quoted(partition), quoted(first), quoted(last));
    format!("PartitionKey eq {partition} and RowKey ge {first} and RowKey le {last}")
}

/// The filter for one entity, fit to be joined with others by `or`.
pub(crate) fn point(partition: &str, row: &str) -> String {
    format!("(PartitionKey eq {} and RowKey eq {})", quoted(partition), quoted(row))
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// Cuts a table for so many readers. A small table, or one reader, needs no cuts.
pub(crate) async fn plan(
    client: &Client,
    table: &str,
    jobs: usize,
) -> Result<Vec<Range>, ClientError> {
    if jobs <= 1 {
        return Ok(vec![Range::all()]);
    }
    let first = client.page(table, &Query::default(), None).await?;
    if first.next.is_none() {
        return Ok(vec![Range::all()]);
    }
    let mut scout = Scout { client, table, partition: None, questions: 0, started: Instant::now() };
    let wanted = jobs * RANGES_PER_JOB;
    let cuts = scout.cuts(wanted).await?;
    match scout.few_partitions(jobs).await? {
        Some(partitions) if cuts.len() < jobs => scout.cut_rows(&partitions, wanted).await,
        _ => Ok(between(&cuts, |from, to| Range::Partitions { from, to })),
    }
}

/// The ranges between neighbouring cuts, and before the first and after the last.
fn between(
    cuts: &BTreeSet<String>,
    range: impl Fn(Option<String>, Option<String>) -> Range,
) -> Vec<Range> {
    let starts = std::iter::once(None).chain(cuts.iter().cloned().map(Some));
    let ends = cuts.iter().cloned().map(Some).chain(std::iter::once(None));
    starts.zip(ends).map(|(from, to)| range(from, to)).collect()
}

/// Asks for keys: for partitions of a table, or for rows of one partition.
struct Scout<'a> {
    client: &'a Client,
    table: &'a str,
    partition: Option<String>,
    questions: usize,
    started: Instant,
}

impl Scout<'_> {
    /// The first key at or after the text.
    async fn first_from(&mut self, text: &str) -> Result<Option<String>, ClientError> {
        self.questions += 1;
        let from = Some(text.to_owned());
        let range = match &self.partition {
            None => Range::Partitions { from, to: None },
            Some(partition) => Range::Rows { partition: partition.clone(), from, to: None },
        };
        let query = Query {
            filter: range.filter(None),
            select: Some("PartitionKey,RowKey".to_owned()),
            top: Some(1),
            order: None,
        };
        let mut place = None;
        loop {
            let page = self.client.page(self.table, &query, place.as_ref()).await?;
            if let Some(entity) = page.entities.into_iter().next() {
                let key = if self.partition.is_none() { entity.partition } else { entity.row };
                return Ok(Some(key.into()));
            }
            match page.next {
                Some(next) => place = Some(next),
                None => return Ok(None),
            }
        }
    }

    fn is_tired(&self) -> bool {
        QUESTIONS_MAX <= self.questions || TIME_MAX <= self.started.elapsed()
    }

    /// About so many texts that keys lie between; none if all keys are the same.
    async fn cuts(&mut self, wanted: usize) -> Result<BTreeSet<String>, ClientError> {
        let Some(first) = self.first_from("").await? else { return Ok(BTreeSet::new()) };
        let mut prefixes = vec![self.common_prefix(&first).await?];
        let mut cuts = BTreeSet::new();
        // One more character each time, until there are enough.
        while cuts.len() < wanted && !prefixes.is_empty() && !self.is_tired() {
            let mut longer = Vec::new();
            for prefix in prefixes {
                if self.is_tired() {
                    break;
                }
                longer.extend(self.children(&prefix).await?);
            }
            // Nothing lies before a text that the first key starts with.
            cuts.extend(longer.iter().filter(|cut| !first.starts_with(*cut)).cloned());
            prefixes = longer;
        }
        Ok(thinned(agreed(cuts), wanted.saturating_sub(1)))
    }

    /// All partitions, if they are fewer than that.
    async fn few_partitions(&mut self, most: usize) -> Result<Option<Vec<String>>, ClientError> {
        let (mut partitions, mut from) = (Vec::new(), String::new());
        while let Some(partition) = self.first_from(&from).await? {
            if partitions.len() + 1 == most {
                return Ok(None);
            }
            from = after_key(&partition);
            partitions.push(partition);
        }
        Ok(Some(partitions))
    }

    /// Cuts each of the partitions into ranges of rows. What may lie between them is covered too.
    async fn cut_rows(
        &mut self,
        partitions: &[String],
        wanted: usize,
    ) -> Result<Vec<Range>, ClientError> {
        let (mut ranges, mut from) = (Vec::new(), None);
        for partition in partitions {
            ranges.push(Range::Partitions { from, to: Some(partition.clone()) });
            self.partition = Some(partition.clone());
            let cuts = self.cuts(wanted / partitions.len()).await?;
            let rows = |from, to| Range::Rows { partition: partition.clone(), from, to };
            ranges.extend(between(&cuts, rows));
            from = Some(after_key(partition));
        }
        ranges.push(Range::Partitions { from, to: None });
        Ok(ranges)
    }

    /// The longest text that every key starts with, by halving: the first key is known.
    async fn common_prefix(&mut self, first: &str) -> Result<String, ClientError> {
        let ends: Vec<usize> =
            first.char_indices().map(|(at, _)| at).chain([first.len()]).collect();
        let (mut shared, mut beyond) = (0, ends.len());
        while shared + 1 < beyond {
            let middle = usize::midpoint(shared, beyond);
            let alone = match after_prefix(&first[..ends[middle]]) {
                Some(next) => self.first_from(&next).await?.is_none(),
                None => true,
            };
            if alone { shared = middle } else { beyond = middle }
        }
        Ok(first[..ends[shared]].to_owned())
    }

    /// The texts one character longer than the prefix that some key starts with.
    async fn children(&mut self, prefix: &str) -> Result<Vec<String>, ClientError> {
        let mut found = Vec::new();
        // A key that is the prefix itself has no character to go on with.
        let mut from = Some(after_key(prefix));
        while let Some(text) = from.take().filter(|_| !self.is_tired()) {
            let Some(key) = self.first_from(&text).await? else { break };
            let Some(next) = key.strip_prefix(prefix).and_then(|rest| rest.chars().next()) else {
                break;
            };
            let child = format!("{prefix}{next}");
            // In another order than ours the search may come round.
            if found.contains(&child) {
                break;
            }
            from = after_prefix(&child).filter(|text| text.starts_with(prefix));
            found.push(child);
        }
        Ok(found)
    }
}

/// The least key after this one: no character of a key is less than a blank.
fn after_key(key: &str) -> String {
    format!("{key} ")
}

/// The least text after all that start with this one, made of characters that keys may have.
fn after_prefix(prefix: &str) -> Option<String> {
    let legal = |c: &char| !c.is_control() && !matches!(c, '/' | '\\' | '#' | '?');
    let mut rest = prefix;
    while let Some(last) = rest.chars().next_back() {
        rest = &rest[..rest.len() - last.len_utf8()];
        if let Some(next) = (last..=char::MAX).skip(1).find(legal) {
            return Some(format!("{rest}{next}"));
        }
    }
    None
}

/// Those that are in the same order by UTF-16 as by UTF-8.
fn agreed(cuts: BTreeSet<String>) -> BTreeSet<String> {
    let mut kept: Vec<String> = Vec::new();
    for cut in cuts {
        if kept.last().is_none_or(|last| last.encode_utf16().lt(cut.encode_utf16())) {
            kept.push(cut);
        }
    }
    kept.into_iter().collect()
}

/// At most so many of them, evenly.
fn thinned(cuts: BTreeSet<String>, most: usize) -> BTreeSet<String> {
    let count = cuts.len();
    if count <= most {
        return cuts;
    }
    let kept = |index: usize| (index + 1) * most / count != index * most / count;
    cuts.into_iter().enumerate().filter(|(index, _)| kept(*index)).map(|(_, cut)| cut).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::btree_set;
    use proptest::prelude::*;
    use std::cmp::Ordering;

    const KEY: &str = "[a\u{D7FF}\u{E000}\u{FFFD}\u{10000}😀]{0,3}";

    proptest! {
        /// Whatever the order of the service.
        #[test]
        fn every_key_lies_in_one_range(cuts in btree_set(KEY, 0..12), key in KEY) {
            let by_unit = |a: &str, b: &str| a.encode_utf16().cmp(b.encode_utf16());
            let orders: [fn(&str, &str) -> Ordering; 2] = [|a, b| a.cmp(b), by_unit];
            let ranges = between(&agreed(cuts), |from, to| Range::Partitions { from, to });
            for order in orders {
                let holds = |range: &&Range| {
                    let Range::Partitions { from, to } = range else { return false };
                    from.as_ref().is_none_or(|from| order(from, &key).is_le())
                        && to.as_ref().is_none_or(|to| order(&key, to).is_lt())
                };
                prop_assert_eq!(ranges.iter().filter(holds).count(), 1);
            }
        }
    }

    #[test]
    fn cuts_that_all_services_agree_on_stay() {
        let cuts: BTreeSet<String> = ["a", "é", "😀", "😀a", "😁"].map(str::to_owned).into();
        assert_eq!(agreed(cuts.clone()), cuts);
        let mixed: BTreeSet<String> = ["a", "\u{FFFD}", "😀"].map(str::to_owned).into();
        assert_eq!(agreed(mixed).into_iter().collect::<Vec<_>>(), ["a", "\u{FFFD}"]);
    }

    #[test]
    fn filters() {
        let some = |text: &str| Some(text.to_owned());
        let cases = [
            (Range::all(), None, None),
            (Range::all(), Some("A eq 1"), some("(A eq 1)")),
            (
                Range::Partitions { from: some("a'b"), to: some("c") },
                Some("A eq 1 or B eq 2"),
                some("PartitionKey ge 'a''b' and PartitionKey lt 'c' and (A eq 1 or B eq 2)"),
            ),
            (
                Range::Rows { partition: "p".into(), from: None, to: some("c") },
                None,
                some("PartitionKey eq 'p' and RowKey lt 'c'"),
            ),
        ];
        for (range, further, expected) in cases {
            assert_eq!(range.filter(further), expected);
        }
    }

    #[test]
    fn texts_after_a_prefix() {
        let cases = [
            ("", None),
            ("a", Some("b")),
            ("a9", Some("a:")),
            ("a.", Some("a0")),
            ("a~", Some("a\u{A0}")),
            ("a\u{10FFFF}", Some("b")),
            ("\u{10FFFF}", None),
            ("\u{D7FF}", Some("\u{E000}")),
        ];
        for (prefix, expected) in cases {
            assert_eq!(after_prefix(prefix).as_deref(), expected, "{prefix:?}");
        }
    }

    #[test]
    fn cuts_are_thinned_evenly() {
        let cuts: BTreeSet<String> = (0..100).map(|n| format!("{n:03}")).collect();
        let few = thinned(cuts.clone(), 7);
        assert_eq!(few.len(), 7);
        assert_eq!(thinned(few.clone(), 7), few);
        assert_eq!(thinned(cuts, 0).len(), 0);
    }

    #[test]
    fn neighbouring_ranges_leave_no_gap() {
        let cuts: BTreeSet<String> = ["b", "d"].map(str::to_owned).into();
        let ranges = between(&cuts, |from, to| Range::Partitions { from, to });
        let filters: Vec<_> = ranges.iter().map(|range| range.filter(None).unwrap()).collect();
        let expected = [
            "PartitionKey lt 'b'",
            "PartitionKey ge 'b' and PartitionKey lt 'd'",
            "PartitionKey ge 'd'",
        ];
        assert_eq!(filters, expected);
    }
}
