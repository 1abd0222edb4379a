//! Whether a history of concurrent requests has an explanation.
//!
//! A history is what clients saw: when each request began, when its answer came, and what it said. It is
//! explained by an order of all requests to a partition in which each stands between its beginning and its
//! end, and in which a partition that does one thing at a time ([`State`]) would have answered the same.
//! That is linearizability of the partition as one object, from which follows what is promised: each entity
//! is linearizable, a batch happens as a whole, and a query of the partition is one snapshot.
//!
//! A request without an answer may have happened or not, but not after the server was seen dead.
//!
//! Besides, [`check`] holds tags to what is promised of them ([`Order`]): with one server, a write of any
//! partition that began after another was acknowledged has the later one.
//!
//! The search is Lowe's: events in the order of time, and at each the set of states in which the partition may
//! be, together with which of the open requests have already happened. It grows only with the number of
//! requests that are open at a time.

mod model;
#[cfg(test)]
mod tests;
mod witness;

use rowhouse_types::Timestamp;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;

pub use model::State;
pub use witness::{CLIENTS, PARTITIONS, ROWS, Witnesses};

/// A row of a partition.
pub type Row = u8;

/// What a client asked a partition.
#[derive(Clone, Debug, PartialEq)]
pub enum Call {
    /// One entity.
    Read(Row),
    /// All entities of the partition.
    Query,
    /// One write, or several as a batch.
    Write(Vec<Write>),
}

/// A change of an entity.
#[derive(Clone, Debug, PartialEq)]
pub struct Write {
    /// Which entity.
    pub row: Row,
    /// What is written there, a number that no other write has.
    pub id: u64,
    /// How.
    pub change: Change,
}

/// A kind of change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Only if there is none.
    Insert,
    /// All properties.
    Replace(Condition),
    /// One property more, or another value of it.
    Merge(Condition),
    /// Remove it.
    Delete(Condition),
}

/// What must hold for a change to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Nothing: the entity is made if it is not there.
    Upsert,
    /// There is one.
    Any,
    /// It has this tag.
    Tag(Timestamp),
}

/// An entity as it was seen. The tests write `n` when they insert and replace, and `merged` when they merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// The write that made it or replaced it last.
    pub n: Option<u64>,
    /// The merge after that.
    pub merged: Option<u64>,
    /// Its tag.
    pub tag: Timestamp,
}

/// What the server said.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// To a read.
    Read(Option<Version>),
    /// To a query.
    Query(BTreeMap<Row, Version>),
    /// All writes happened, with these tags; a delete has none.
    Done(Vec<Option<Timestamp>>),
    /// No write happened.
    Refused(Refusal),
    /// Nothing: it may have happened or not.
    Nothing,
}

/// Why a write did not happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There is one already (409).
    Exists,
    /// There is none (404).
    Missing,
    /// It has another tag (412).
    Changed,
}

/// One request of one client.
#[derive(Clone, Debug)]
pub struct Record {
    /// Who asked, for messages.
    pub client: usize,
    /// Which partition.
    pub partition: usize,
    /// When it was about to be sent. All times of a history differ.
    pub began: u64,
    /// When the answer had come, or when the server that was asked was dead.
    pub ended: u64,
    /// What was asked.
    pub call: Call,
    /// What was answered.
    pub answer: Answer,
}

/// A history without an explanation.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The answer that cannot be explained.
    pub record: Record,
    /// What is wrong, with what was possible.
    pub reason: String,
}

/// What is promised of tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// They rise from write to write, whatever is written: one server.
    OfStore,
    /// They rise from version to version of an entity while it is there, and none is given to a key twice:
    /// several servers, each with a clock of its own.
    OfEntity,
}

/// Finds what cannot be explained, if anything.
pub fn check(records: &[Record], order: Order) -> Result<(), Violation> {
    match order {
        Order::OfStore => tags_rise(records)?,
        Order::OfEntity => tags_differ(records)?,
    }
    let partitions: BTreeSet<usize> = records.iter().map(|record| record.partition).collect();
    partitions.into_iter().try_for_each(|partition| {
        let of_it: Vec<&Record> =
            records.iter().filter(|record| record.partition == partition).collect();
        explain(&of_it, order)
    })
}

/// Tags as an order of writes, over all partitions.
fn tags_rise(records: &[Record]) -> Result<(), Violation> {
    let tags = |record: &Record| -> Vec<Timestamp> {
        let Answer::Done(tags) = &record.answer else { return Vec::new() };
        tags.iter().copied().flatten().collect()
    };
    let mut by_end: Vec<_> = records.iter().collect();
    by_end.sort_by_key(|record| record.ended);
    let mut by_beginning = by_end.clone();
    by_beginning.sort_by_key(|record| record.began);
    let mut ended = by_end.into_iter().peekable();
    let mut latest = None;
    for record in by_beginning {
        while let Some(earlier) = ended.next_if(|earlier| earlier.ended < record.began) {
            latest = latest.max(tags(earlier).into_iter().max());
        }
        if let Some(tag) = tags(record).into_iter().find(|tag| Some(*tag) <= latest) {
            let reason = format!("its tag {tag} is not later than {latest:?}, acknowledged before");
            return Err(Violation { record: record.clone(), reason });
        }
    }
    Ok(())
}

/// Every tag of a key belongs to one write.
fn tags_differ(records: &[Record]) -> Result<(), Violation> {
    let mut writes: HashMap<(usize, Row, Timestamp), u64> = HashMap::new();
    for record in records {
        for (row, id, tag) in model::tagged(record) {
            let known = *writes.entry((record.partition, row, tag)).or_insert(id);
            if known != id {
                let reason = format!("the tag {tag} of row {row} belongs to write {known} as well");
                return Err(Violation { record: record.clone(), reason });
            }
        }
    }
    Ok(())
}

/// A state that the partition may be in, and which of the open requests it already contains.
type Possibility = (State, u64);

/// Looks for an order of the requests to one partition.
fn explain(records: &[&Record], order: Order) -> Result<(), Violation> {
    let seen = model::Seen::new(records, order)?;
    let mut events: Vec<(u64, usize)> = Vec::with_capacity(2 * records.len());
    for (index, record) in records.iter().enumerate() {
        events.extend([(record.began, index), (record.ended, index)]);
    }
    events.sort_unstable();
    // Open requests, each in a place of its own, which is its bit in the possibilities.
    let mut open: Vec<Option<&Record>> = Vec::new();
    let mut places = vec![0; records.len()];
    let mut possible: HashSet<Possibility> = HashSet::from([(State::default(), 0)]);
    for (time, index) in events {
        let record = records[index];
        if time == record.began {
            let free = open.iter().position(Option::is_none).unwrap_or_else(|| {
                open.push(None);
                open.len() - 1
            });
            assert!(free < 64, "a possibility has a bit for each open request");
            (open[free], places[index]) = (Some(record), free);
            continue;
        }
        let next = complete(&possible, places[index], &open, &seen);
        if next.is_empty() {
            return Err(Violation { record: record.clone(), reason: list(&possible) });
        }
        possible = next;
        open[places[index]] = None;
    }
    Ok(())
}

/// Every possibility that contains the request at this place, whichever others happened before it. Its bit
/// is cleared, because the place is free from now on.
fn complete(
    possible: &HashSet<Possibility>,
    place: usize,
    open: &[Option<&Record>],
    seen: &model::Seen,
) -> HashSet<Possibility> {
    let mut next = HashSet::new();
    let mut visited = possible.clone();
    let mut waiting: Vec<Possibility> = possible.iter().cloned().collect();
    while let Some((state, happened)) = waiting.pop() {
        if happened & 1 << place != 0 {
            next.insert((state, happened & !(1 << place)));
            continue;
        }
        for (other, record) in open.iter().enumerate() {
            let Some(record) = record.filter(|_| happened & 1 << other == 0) else { continue };
            for after in state.after(&record.call, &record.answer, seen) {
                let possibility = (after, happened | 1 << other);
                if visited.insert(possibility.clone()) {
                    waiting.push(possibility);
                }
            }
        }
    }
    next
}

fn list(possible: &HashSet<Possibility>) -> String {
    let states: Vec<String> =
        possible.iter().take(4).map(|(state, _)| format!("  {state:?}")).collect();
    format!(
        "no order explains it; {} possible before, such as\n{}",
        possible.len(),
        states.join("\n")
    )
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Record { client, partition, began, ended, call, answer } = &self.record;
        writeln!(f, "client {client}, partition {partition}, from {began} to {ended}:")?;
        write!(f, "{call:?}\nwas answered {answer:?}\n{}", self.reason)
    }
}
