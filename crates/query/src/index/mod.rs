//! Secondary indexes: what an entity is entered under, and which entries a filter has to look at.
//!
//! An entry is a string of bytes that sorts as the values do: grouped by type, each type in its own order. Long values
//! are cut, so an entry may stand for several values; whoever reads through an index applies the filter to the
//! entities that it finds. [`spans`] and [`lookups`] only narrow: every entity that satisfies the filter has an
//! entry in the spans.
//! The property tests in `tests/it/index.rs` hold us to that.
//!
//! `docs/formats/index-entries.md` describes the bytes. Nothing here reads storage.

mod component;
pub(crate) mod condition;
mod entry;
mod lookup;
mod set;
mod spans;

pub use entry::entry;
pub use lookup::{lookups, lookups_in_turns};
pub use spans::{is_confined, spans};

/// What an index is of, as far as entries and filters are concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexKeys {
    /// Names of properties, the keys and Timestamp among them; at least one, none twice.
    pub properties: Vec<Box<str>>,
    /// No two entities have the same values.
    pub unique: bool,
}

/// Entries from a place on, up to another; not empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first entry inside, or where it would be.
    pub start: Box<[u8]>,
    /// The first that is not; none if there is no end.
    pub end: Option<Box<[u8]>>,
}

/// The part of one index that has to be looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part<I> {
    /// Which index.
    pub index: I,
    /// Sorted and disjoint, at most [`rowhouse_types::limits::PLAN_RANGES_MAX`]. None at all if nothing can match.
    pub spans: Vec<Span>,
}

impl Span {
    /// Every entry.
    pub fn all() -> Self {
        Self { start: Box::default(), end: None }
    }

    /// The one entry that can be inside, if there is only one: those in it are in the order of keys.
    pub fn single(&self) -> Option<&[u8]> {
        let end = self.end.as_deref()?.strip_suffix(&[0])?;
        (*end == *self.start).then_some(end)
    }

    /// Whether the entry is inside.
    pub fn contains(&self, entry: &[u8]) -> bool {
        *self.start <= *entry && self.end.as_deref().is_none_or(|end| entry < end)
    }
}
