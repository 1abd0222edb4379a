//! A partition that does one thing at a time.

use super::{Answer, Call, Change, Condition, Record, Refusal, Row, Version, Violation, Write};
use rowhouse_types::Timestamp;
use std::collections::{BTreeMap, HashMap};

/// What a partition holds, and the latest tag it gave that anybody knows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct State {
    rows: BTreeMap<Row, Entity>,
    latest: Option<Timestamp>,
}

/// An entity. Its tag is unknown if the write that made it had no answer and nobody saw what it made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Entity {
    n: Option<u64>,
    merged: Option<u64>,
    tag: Option<Timestamp>,
}

/// Tags by the write that they belong to.
pub(super) type Tags = HashMap<u64, Timestamp>;

impl Version {
    /// The write that made this version.
    fn made_by(&self) -> Option<u64> {
        self.merged.or(self.n)
    }

    fn is(&self, entity: &Entity) -> bool {
        (self.n, self.merged, Some(self.tag)) == (entity.n, entity.merged, entity.tag)
    }
}

/// The tag of each write that somebody saw, so that the search need not guess those of writes without an answer.
pub(super) fn tags_seen(records: &[&Record]) -> Result<Tags, Violation> {
    let mut tags = Tags::new();
    for record in records {
        let versions: Vec<&Version> = match &record.answer {
            Answer::Read(version) => version.iter().collect(),
            Answer::Query(versions) => versions.values().collect(),
            _ => continue,
        };
        for version in versions {
            let Some(id) = version.made_by() else { continue };
            let known = *tags.entry(id).or_insert(version.tag);
            if known != version.tag {
                let reason = format!("write {id} was seen with the tag {known} as well");
                return Err(Violation { record: (*record).clone(), reason });
            }
        }
    }
    Ok(tags)
}

impl State {
    /// The states after a request that was answered so: none if this state would not have answered that.
    pub(super) fn after(&self, call: &Call, answer: &Answer, seen: &Tags) -> Vec<Self> {
        let unchanged = |fits: bool| if fits { vec![self.clone()] } else { Vec::new() };
        match (call, answer) {
            (Call::Read(row), Answer::Read(version)) => {
                unchanged(match (version, self.rows.get(row)) {
                    (None, None) => true,
                    (Some(version), Some(entity)) => version.is(entity),
                    _ => false,
                })
            }
            (Call::Query, Answer::Query(versions)) => unchanged(
                versions.len() == self.rows.len()
                    && versions
                        .iter()
                        .zip(&self.rows)
                        .all(|((row, version), (held, entity))| row == held && version.is(entity)),
            ),
            (Call::Write(writes), Answer::Done(tags)) => {
                let tag = |index: usize| tags.get(index).copied().flatten();
                match self.write(writes, tag) {
                    Ok(Some(state)) if tags.len() == writes.len() => vec![state],
                    _ => Vec::new(),
                }
            }
            (Call::Write(writes), Answer::Refused(refusal)) => {
                unchanged(self.write(writes, |_| None) == Err(*refusal))
            }
            (Call::Write(writes), Answer::Nothing) => {
                let tag = |index: usize| seen.get(&writes[index].id).copied();
                let mut states = vec![self.clone()];
                states.extend(self.write(writes, tag).ok().flatten());
                states
            }
            (Call::Read(_) | Call::Query, Answer::Nothing) => unchanged(true),
            _ => Vec::new(),
        }
    }

    /// All of the writes, or the refusal of the first that cannot be; none if the tags are out of order.
    fn write(
        &self,
        writes: &[Write],
        tag: impl Fn(usize) -> Option<Timestamp>,
    ) -> Result<Option<Self>, Refusal> {
        let mut state = self.clone();
        for (index, write) in writes.iter().enumerate() {
            state.apply(write, tag(index))?;
        }
        let tags = (0..writes.len()).filter_map(&tag);
        let rises = tags.clone().all(|tag| self.latest < Some(tag));
        state.latest = self.latest.max(tags.max());
        Ok(rises.then_some(state))
    }

    fn apply(&mut self, write: &Write, tag: Option<Timestamp>) -> Result<(), Refusal> {
        let Write { row, id, change } = *write;
        let old = self.rows.get(&row).copied();
        match change {
            Change::Insert if old.is_some() => return Err(Refusal::Exists),
            Change::Insert => {}
            Change::Replace(condition) | Change::Merge(condition) | Change::Delete(condition) => {
                match (condition, old) {
                    (Condition::Upsert, _) | (Condition::Any, Some(_)) => {}
                    (Condition::Any | Condition::Tag(_), None) => return Err(Refusal::Missing),
                    (Condition::Tag(wanted), Some(old)) if old.tag == Some(wanted) => {}
                    (Condition::Tag(_), Some(_)) => return Err(Refusal::Changed),
                }
            }
        }
        match change {
            Change::Insert | Change::Replace(_) => {
                self.rows.insert(row, Entity { n: Some(id), merged: None, tag });
            }
            Change::Merge(_) => {
                let n = old.and_then(|old| old.n);
                self.rows.insert(row, Entity { n, merged: Some(id), tag });
            }
            Change::Delete(_) => {
                self.rows.remove(&row);
            }
        }
        Ok(())
    }
}
