//! Secondary indexes: rows of one table, written in the transaction of the entity that they belong to.
//!
//! `entries` keeps them while entities change, `declare` adds and drops indexes, and `build` enters what was there
//! before. `lookup` reads entities through indexes in the order of keys, `walk` in the order of an index, and `weigh`
//! tells how much there would be to read. `check` verifies that indexes and entities agree.
//!
//! Only an index that is ready is read. Whether it is, is asked before a view is taken and again afterwards: the
//! entries of one that is dropped go only after everybody can see that it is.

pub(crate) mod build;
pub(crate) mod check;
pub(crate) mod declare;
pub(crate) mod entries;
pub(crate) mod lookup;
pub(crate) mod walk;
pub(crate) mod weigh;

use crate::catalogue::Catalogue;
use crate::committer::Fault;
use crate::store::Shared;
use rowhouse_query::index::{IndexKeys, Span, entry};
use rowhouse_store::{Conflict, Index, IndexId, IndexState, Lookup, StoreError, Table, TableId};
use rowhouse_types::{Corrupt, KeyRange, Row};
use std::sync::Arc;

/// A part of an index that can be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way<'a> {
    pub(crate) id: IndexId,
    pub(crate) keys: &'a IndexKeys,
    pub(crate) spans: &'a [Span],
}

impl<'a> Way<'a> {
    /// The parts with what their indexes are of; refused unless all of them are ready.
    pub(crate) fn all(table: &'a Table, parts: &'a [Lookup]) -> Result<Vec<Self>, Fault> {
        let way = |part: &'a Lookup| {
            let index = ready(table, part.index)?;
            Ok(Self { id: index.id, keys: &index.keys, spans: &part.spans })
        };
        parts.iter().map(way).collect()
    }

    /// Whether the entity has an entry in this part.
    pub(crate) fn contains(&self, row: &Row<'_>) -> Result<bool, Corrupt> {
        let found = entry(self.keys, row)?;
        let inside = |entry: Vec<u8>| self.spans.iter().any(|span| span.contains(&entry));
        Ok(found.is_some_and(inside))
    }
}

/// The index, if it can be read.
pub(crate) fn ready(table: &Table, index: IndexId) -> Result<&Index, Fault> {
    find(table, index)
        .filter(|index| index.state == IndexState::Ready)
        .ok_or(Fault::Rejected(Conflict::IndexNotFound))
}

pub(crate) fn find(table: &Table, index: IndexId) -> Option<&Index> {
    table.indexes.iter().find(|found| found.id == index)
}

/// Reads something of a table, with the table as it is known before; refused if the table or one of these indexes is
/// not there before and afterwards.
pub(crate) fn guarded<T>(
    shared: &Shared,
    table: TableId,
    indexes: &[IndexId],
    read: impl FnOnce(&Table) -> Result<T, Fault>,
) -> Result<T, StoreError> {
    let look = |catalogue: Arc<Catalogue>| -> Result<Arc<Table>, Fault> {
        let found = catalogue.table_by_id(table).cloned();
        let found = found.ok_or(Fault::Rejected(Conflict::TableNotFound))?;
        indexes.iter().try_for_each(|index| ready(&found, *index).map(drop))?;
        Ok(found)
    };
    let work = || {
        let found = read(&*look(shared.catalogue.load_full())?)?;
        // What is there now was not being swept when the view was taken.
        look(shared.catalogue.load_full())?;
        Ok(found)
    };
    work().map_err(Fault::into_store_error)
}

/// Whether the key is in one of the ranges, which are disjoint and in order.
pub(crate) fn within(ranges: &[KeyRange], partition: &str, row: &str) -> bool {
    ranges[range_after(ranges, partition, row)..]
        .first()
        .is_some_and(|range| range.contains(partition, row))
}

/// The first range that ends after the key.
pub(crate) fn range_after(ranges: &[KeyRange], partition: &str, row: &str) -> usize {
    ranges.partition_point(|range| {
        range.end.as_ref().is_some_and(|end| (&*end.partition, &*end.row) <= (partition, row))
    })
}
