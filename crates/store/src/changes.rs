//! What was changed, in the order in which it was.

use crate::TableId;
use rowhouse_types::{EntityKey, Record, Timestamp};
use std::time::Instant;

/// One change of one entity.
#[derive(Clone, Debug)]
pub struct Change {
    /// Where it stands among the changes. Where an engine of one server orders them, those of one batch have
    /// the same place.
    pub place: u64,
    /// In which table. It may have been dropped since.
    pub table: TableId,
    /// Which entity.
    pub key: EntityKey,
    /// When: the Timestamp that the entity got, or would have got had it not been deleted.
    pub at: Timestamp,
    /// What it was after the batch; none if it was deleted. What one command of a batch left for a later one need
    /// not be told.
    pub record: Option<Record>,
}

/// Which changes are wanted.
#[derive(Clone, Debug)]
pub struct ChangesWanted {
    /// Those after this place.
    pub after: u64,
    /// Of this table alone, or of all.
    pub table: Option<TableId>,
    /// No more than this, but for what belongs to the last batch.
    pub limit: usize,
    /// No more once they take so many bytes; at least one batch all the same.
    pub max_bytes: usize,
    /// If there are none, wait for one until then.
    pub wait_until: Instant,
}

/// Changes, and how far they go.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// In order: for every entity that in which they were made. An engine of one server tells them in the order of
    /// the commits, and cuts no batch.
    pub changes: Vec<Change>,
    /// Everything wanted up to this place is among them; the next ones come after it.
    pub next: u64,
}

/// Which changes a store still has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// All after this place are there.
    pub after: u64,
    /// Up to here, as of now.
    pub until: u64,
}
