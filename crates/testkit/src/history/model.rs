//! A partition that does one thing at a time.

use super::{
    Answer, Call, Change, Condition, Order, Record, Refusal, Row, Version, Violation, Write,
};
use rowhouse_types::Timestamp;
use std::collections::{BTreeMap, HashMap};

/// What a partition holds, and the latest tag it gave that anybody knows, where that matters.
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

/// What is known of tags before the search.
pub(super) struct Seen {
    /// The tag of each write that somebody saw, so that the search need not guess those of writes without an
    /// answer.
    tags: HashMap<u64, Timestamp>,
    order: Order,
}

impl Version {
    /// The write that made this version.
    fn made_by(&self) -> Option<u64> {
        self.merged.or(self.n)
    }

    fn is(&self, entity: &Entity) -> bool {
        (self.n, self.merged, Some(self.tag)) == (entity.n, entity.merged, entity.tag)
    }
}

/// Which writes of which rows have which tags, as far as the answer tells.
pub(super) fn tagged(record: &Record) -> Vec<(Row, u64, Timestamp)> {
    let of = |row: Row, version: &Version| Some((row, version.made_by()?, version.tag));
    match (&record.call, &record.answer) {
        (Call::Read(row), Answer::Read(version)) => {
            version.iter().filter_map(|version| of(*row, version)).collect()
        }
        (Call::Query, Answer::Query(versions)) => {
            versions.iter().filter_map(|(row, version)| of(*row, version)).collect()
        }
        (Call::Write(writes), Answer::Done(tags)) => {
            let pairs = writes.iter().zip(tags);
            pairs.filter_map(|(write, tag)| Some((write.row, write.id, (*tag)?))).collect()
        }
        _ => Vec::new(),
    }
}

impl Seen {
    /// An error if a write was seen with two tags.
    pub(super) fn new(records: &[&Record], order: Order) -> Result<Self, Violation> {
        let mut tags = HashMap::new();
        for record in records.iter().filter(|record| !matches!(record.call, Call::Write(_))) {
            for (_, id, tag) in tagged(record) {
                let known = *tags.entry(id).or_insert(tag);
                if known != tag {
                    let reason = format!("write {id} was seen with the tag {known} as well");
                    return Err(Violation { record: (*record).clone(), reason });
                }
            }
        }
        Ok(Self { tags, order })
    }
}

impl State {
    /// The states after a request that was answered so: none if this state would not have answered that.
    pub(super) fn after(&self, call: &Call, answer: &Answer, seen: &Seen) -> Vec<Self> {
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
                match self.write(writes, seen.order, tag) {
                    Ok(Some(state)) if tags.len() == writes.len() => vec![state],
                    _ => Vec::new(),
                }
            }
            (Call::Write(writes), Answer::Refused(refusal)) => {
                unchanged(self.write(writes, seen.order, |_| None) == Err(*refusal))
            }
            (Call::Write(writes), Answer::Nothing) => {
                let tag = |index: usize| seen.tags.get(&writes[index].id).copied();
                let mut states = vec![self.clone()];
                states.extend(self.write(writes, seen.order, tag).ok().flatten());
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
        order: Order,
        tag: impl Fn(usize) -> Option<Timestamp>,
    ) -> Result<Option<Self>, Refusal> {
        let mut state = self.clone();
        for (index, write) in writes.iter().enumerate() {
            state.apply(write, tag(index))?;
        }
        let before = |row: &Row| match order {
            Order::OfStore => self.latest,
            Order::OfEntity => self.rows.get(row).and_then(|entity| entity.tag),
        };
        let tagged =
            writes.iter().enumerate().filter_map(|(index, write)| Some((write, tag(index)?)));
        let rises = tagged.clone().all(|(write, tag)| before(&write.row) < Some(tag));
        if order == Order::OfStore {
            state.latest = self.latest.max(tagged.map(|(_, tag)| tag).max());
        }
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
