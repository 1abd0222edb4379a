//! Indexes without anything stored: what an entity is entered under is computed whenever somebody asks.
//!
//! An index is done when it is declared, and a unique one compares with every other entity of the table.

use super::state::{Effects, State, is_inside};
use crate::{
    Built, Conflict, EntryPlace, Extent, Index, IndexId, IndexState, Lookup, StoreError, Table,
    TableId, Walk, WalkPage,
};
use rowhouse_query::index::{IndexKeys, entry};
use rowhouse_types::{Direction, EntityKey, IndexName, Position, Record, Row, limits};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

/// A part of an index that is there.
pub(super) type FoundPart<'a> = (&'a Index, &'a Lookup);

impl State {
    pub(super) fn create_index(
        &mut self,
        table: TableId,
        name: &IndexName,
        keys: IndexKeys,
    ) -> Result<Index, StoreError> {
        let indexes = &self.found(table)?.indexes;
        if indexes.iter().any(|index| index.name == *name) {
            return Err(StoreError::rejected(Conflict::IndexExists));
        }
        if limits::INDEXES_MAX <= indexes.len() {
            return Err(StoreError::rejected(Conflict::TooManyIndexes));
        }
        let entries = self.entries(table, &keys)?;
        let repeats =
            || entries.keys().zip(entries.keys().skip(1)).any(|(a, b)| a.entry == b.entry);
        let state =
            if keys.unique && repeats() { IndexState::NotUnique } else { IndexState::Ready };
        let entered = self.entities(table)?.len() as u64;
        self.last_index += 1;
        let index = Index { id: IndexId(self.last_index), name: name.clone(), keys, state };
        self.entered.insert(index.id, entered);
        self.change_indexes(table, |indexes| indexes.push(index.clone()));
        Ok(index)
    }

    pub(super) fn drop_index(&mut self, table: TableId, index: IndexId) -> Result<(), StoreError> {
        self.index(table, index)?;
        self.change_indexes(table, |indexes| indexes.retain(|each| each.id != index));
        Ok(())
    }

    pub(super) fn built(&self, table: TableId, index: IndexId) -> Result<Built, StoreError> {
        let state = self.index(table, index)?.state;
        let examined = self.entered.get(&index).copied().unwrap_or_default();
        Ok(Built { state, examined, of: Some(examined) })
    }

    pub(super) fn walk(&self, table: TableId, walk: &Walk) -> Result<WalkPage, StoreError> {
        let index = self.ready_index(table, walk.index)?;
        let ahead = |place: &EntryPlace| match (&walk.from, walk.direction) {
            (None, _) => true,
            (Some(from), Direction::Ascending) => from <= place,
            (Some(from), Direction::Descending) => place <= from,
        };
        let mut entries: Vec<_> = self.entries(table, &index.keys)?.into_iter().collect();
        entries.retain(|(place, (key, _))| {
            let within = walk.spans.iter().any(|span| span.contains(&place.entry));
            within && is_inside(&walk.ranges, key) && is_inside(&walk.keys, key) && ahead(place)
        });
        if walk.direction == Direction::Descending {
            entries.reverse();
        }
        let mut page = WalkPage::default();
        let mut full = false;
        for (place, (key, record)) in entries {
            if page.examined > 0 && walk.deadline <= Instant::now() {
                page.next = Some(place);
                break;
            }
            page.examined += 1;
            let row = row_of(key, record);
            if !walk.filter.as_ref().map_or(Ok(true), |filter| filter.matches(&row))? {
                continue;
            }
            if full {
                page.next = Some(place);
                break;
            }
            page.rows.push(&row);
            full = walk.limit <= page.rows.len() || walk.max_bytes <= page.rows.byte_len();
        }
        Ok(page)
    }

    pub(super) fn weigh(
        &self,
        table: TableId,
        extent: &Extent,
        bound: u64,
    ) -> Result<u64, StoreError> {
        let (Extent::Keys(ranges) | Extent::Entries(_, ranges)) = extent;
        let parts = match extent {
            Extent::Keys(_) => None,
            Extent::Entries(parts, _) => Some(self.parts(table, parts)?),
        };
        let mut weight = 0;
        for (key, record) in self.entities(table)?.iter().filter(|(key, _)| is_inside(ranges, key))
        {
            let row = row_of(key, record);
            weight += parts.as_ref().map_or(Ok(1), |parts| entries_in(parts, &row))?;
        }
        Ok(weight.min(bound))
    }

    /// The indexes that the parts are of. All must be ready.
    pub(super) fn parts<'a>(
        &'a self,
        table: TableId,
        parts: &'a [Lookup],
    ) -> Result<Vec<FoundPart<'a>>, StoreError> {
        parts.iter().map(|part| Ok((self.ready_index(table, part.index)?, part))).collect()
    }

    /// Whether a unique index has the values that an entity is to have of another one.
    pub(super) fn check_unique(
        &self,
        table: TableId,
        key: &EntityKey,
        record: &Record,
        effects: &Effects,
    ) -> Result<(), StoreError> {
        let indexes = &self.found(table)?.indexes;
        for Index { keys, state, .. } in indexes {
            if !keys.unique || *state == IndexState::NotUnique {
                continue;
            }
            let Some(wanted) = entry(keys, &row_of(key, record))? else { continue };
            let mut others: BTreeMap<_, _> =
                self.entities(table)?.iter().map(|(key, record)| (key, Some(record))).collect();
            let written = effects.entities.iter().filter(|((of, _), _)| *of == table);
            others.extend(written.map(|((_, key), record)| (key, record.as_ref())));
            others.remove(key);
            for (key, record) in others {
                let Some(record) = record else { continue };
                if entry(keys, &row_of(key, record))?.as_ref() == Some(&wanted) {
                    return Err(StoreError::rejected(Conflict::NotUnique));
                }
            }
        }
        Ok(())
    }

    /// What is in an index, in its order.
    fn entries(
        &self,
        table: TableId,
        keys: &IndexKeys,
    ) -> Result<BTreeMap<EntryPlace, (&EntityKey, &Record)>, StoreError> {
        let mut entries = BTreeMap::new();
        for (key, record) in self.entities(table)? {
            let row = row_of(key, record);
            if let Some(entry) = entry(keys, &row)? {
                let place = EntryPlace {
                    entry: entry.into(),
                    key: Position::before(row.partition, row.row),
                };
                entries.insert(place, (key, record));
            }
        }
        Ok(entries)
    }

    fn index(&self, table: TableId, index: IndexId) -> Result<&Index, StoreError> {
        let found = self.found(table)?.indexes.iter().find(|each| each.id == index);
        found.ok_or_else(|| StoreError::rejected(Conflict::IndexNotFound))
    }

    fn ready_index(&self, table: TableId, index: IndexId) -> Result<&Index, StoreError> {
        let found = self.index(table, index)?;
        if found.state == IndexState::Ready {
            return Ok(found);
        }
        Err(StoreError::rejected(Conflict::IndexNotFound))
    }

    fn found(&self, table: TableId) -> Result<&Table, StoreError> {
        let found = self.tables.get(&table);
        found.map(Arc::as_ref).ok_or_else(|| StoreError::rejected(Conflict::TableNotFound))
    }

    fn change_indexes(&mut self, table: TableId, change: impl FnOnce(&mut Vec<Index>)) {
        if let Some(table) = self.tables.get_mut(&table) {
            change(&mut Arc::make_mut(table).indexes);
        }
    }
}

/// In how many of the parts the entity has its entry.
pub(super) fn entries_in(parts: &[FoundPart<'_>], row: &Row<'_>) -> Result<u64, StoreError> {
    let mut count = 0;
    for (index, part) in parts {
        if let Some(entry) = entry(&index.keys, row)? {
            count += u64::from(part.spans.iter().any(|span| span.contains(&entry)));
        }
    }
    Ok(count)
}

fn row_of<'a>(key: &'a EntityKey, record: &'a Record) -> Row<'a> {
    Row { partition: key.partition.as_str(), row: key.row.as_str(), record: record.as_ref() }
}
