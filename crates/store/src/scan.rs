//! What is read: ranges of keys, a filter, and when to stop.

use crate::index::Lookup;
use rowhouse_query::Filter;
use rowhouse_types::{Direction, KeyRange, Position, Rows};
use std::sync::Arc;
use std::time::Instant;

/// One page of a query.
#[derive(Clone, Debug)]
pub struct Scan {
    /// Disjoint and in ascending order; nothing outside is read.
    pub ranges: Vec<KeyRange>,
    /// Look only at entities with an entry in one of these parts of indexes; at all in the ranges without. The answer
    /// is in the order of keys all the same, and each entity is in it once. Fails with
    /// [`crate::Conflict::IndexNotFound`] if an index is not there or not ready.
    pub through: Option<Vec<Lookup>>,
    /// Which end is read first.
    pub direction: Direction,
    /// Whether the entities are returned.
    pub take: Take,
    /// Which of the entities in the ranges are wanted; all without.
    pub filter: Option<Arc<Filter>>,
    /// The properties that are looked at afterwards, by their exact names; all without. Keys and Timestamps are always
    /// there. An engine need not read the others: a record may hold more than these, in any order, and what it holds of
    /// them is exact. Bytes are those of what is returned.
    pub select: Option<Arc<[Box<str>]>>,
    /// Most entities in the page; at least 1. What is only counted has no limit, and no bytes.
    pub limit: usize,
    /// The page ends with the entity that reaches so many bytes ([`Rows::byte_len`]).
    pub max_bytes: usize,
    /// The page ends soon after this time, with at least one entity examined. Where entities are returned, an engine
    /// may end it sooner when it has examined many: a page of a thousand entities, all of them wanted, is never cut short.
    pub deadline: Instant,
}

/// What is taken of the entities that are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Take {
    /// They are returned.
    #[default]
    Entities,
    /// They are counted.
    Count,
}

/// What a scan found.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// The entities in the order asked for; none if they are only counted.
    pub rows: Rows,
    /// How many there are, if they are only counted.
    pub counted: u64,
    /// Where the next page starts; none if nothing is left in the ranges.
    ///
    /// Names a key that exists within the ranges at the time of the page: when limit or bytes ended the
    /// page, the next entity that satisfies the filter, as far as there was time to look.
    pub next: Option<Position>,
    /// How many entities were looked at; through an index, how many entries within the ranges.
    pub examined: u64,
}
