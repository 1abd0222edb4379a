//! Secondary indexes: what is declared, how far it is built, and reading through one.
//!
//! An index has an entry for every entity of its table that has the first of its properties (a unique one: all of
//! them), made by [`rowhouse_query::index`]. Entries change in the commit that changes the entity, from the moment the
//! index is declared; the entities that were there before are entered in the background, and only then is the
//! index read.

use rowhouse_query::Filter;
use rowhouse_query::index::{IndexKeys, Part, Span};
use rowhouse_types::{Direction, IndexName, KeyRange, Position, Rows};
use std::sync::Arc;
use std::time::Instant;

/// Names an index for ever; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IndexId(pub u64);

/// A secondary index of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Index {
    /// Its id.
    pub id: IndexId,
    /// Its name, unlike that of any other index of the table.
    pub name: IndexName,
    /// What it is of.
    pub keys: IndexKeys,
    /// Whether it can be read.
    pub state: IndexState,
}

/// Whether an index can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexState {
    /// Entities that were there before it are still being entered.
    Building,
    /// Every entity that belongs into it is.
    Ready,
    /// It was to be unique, and two entities that were there before have the same values. It is not read and
    /// refuses nothing; drop it, and declare it again once they differ.
    NotUnique,
}

/// How far an index is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Built {
    /// Whether it is done.
    pub state: IndexState,
    /// How many entities have been looked at so far, those written meanwhile left out.
    pub examined: u64,
    /// About how many there were when it was declared, if somebody knows.
    pub of: Option<u64>,
}

/// The part of an index of this table.
pub type Lookup = Part<IndexId>;

/// What one may want to read, to be weighed.
#[derive(Clone, Debug)]
pub enum Extent {
    /// All entities in these ranges.
    Keys(Vec<KeyRange>),
    /// Entries in these parts of indexes that are within these ranges of keys. Where a span is of several entries, those outside
    /// are passed, however many there are: whoever has to be done in time names all keys.
    Entries(Vec<Lookup>, Vec<KeyRange>),
}

/// A place in the order of an index: entries first, then keys.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EntryPlace {
    /// The entry.
    pub entry: Box<[u8]>,
    /// The key of its entity.
    pub key: Position,
}

/// One page in the order of an index; entities with the same entry in the order of their keys, in the same direction.
#[derive(Clone, Debug)]
pub struct Walk {
    /// Which index.
    pub index: IndexId,
    /// Sorted and disjoint; nothing outside is read.
    pub spans: Vec<Span>,
    /// Disjoint and in ascending order; no entity outside is read, and no entry of one is counted or named. Such entries are
    /// passed nevertheless, beyond the deadline too: whoever has to be done in time names spans that have none of them
    /// ([`rowhouse_query::index::is_confined`]).
    pub ranges: Vec<KeyRange>,
    /// Disjoint and in ascending order; no entity outside is wanted, as the filter says too. A page may end there.
    pub keys: Vec<KeyRange>,
    /// Which end is read first.
    pub direction: Direction,
    /// Start with this entry, or where it would be; at the first without.
    pub from: Option<EntryPlace>,
    /// Which of the entities are wanted; all without.
    pub filter: Option<Arc<Filter>>,
    /// The properties that are looked at afterwards, as in a [`crate::Scan`].
    pub select: Option<Arc<[Box<str>]>>,
    /// Most entities in the page; at least 1.
    pub limit: usize,
    /// The page ends with the entity that reaches so many bytes ([`Rows::byte_len`]).
    pub max_bytes: usize,
    /// The page ends soon after this time, with at least one entry examined.
    pub deadline: Instant,
}

impl Walk {
    /// What is both in its ranges and in its keys.
    pub fn wanted(&self) -> Vec<KeyRange> {
        let of = |range: &KeyRange| -> Vec<KeyRange> {
            self.keys.iter().filter_map(|keys| range.intersect(keys)).collect()
        };
        self.ranges.iter().flat_map(of).collect()
    }
}

/// What a walk found.
#[derive(Clone, Debug, Default)]
pub struct WalkPage {
    /// The entities in the order of the index.
    pub rows: Rows,
    /// The entry that the next page starts with, within the ranges; none if nothing is left.
    pub next: Option<EntryPlace>,
    /// How many entries within the ranges were looked at.
    pub examined: u64,
}
