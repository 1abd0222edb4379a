//! Pages in the order of properties that no index has: all that is wanted is read, and the first of it kept.

use crate::{EntryPlace, IndexKeys, Lookup, Page, Scan, Take, WalkPage};
use rowhouse_query::Filter;
use rowhouse_query::index::entry;
use rowhouse_types::{Corrupt, Direction, KeyRange, Position, Record, Row, Rows, limits};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

/// One page in the order of what an index of these keys would have as entries, without there being one.
#[derive(Clone, Debug)]
pub struct Sort {
    /// The properties. Entities that an index of them would not have are left out.
    pub keys: IndexKeys,
    /// Which end comes first.
    pub direction: Direction,
    /// Start with this place, or where it would be; at the first without.
    pub from: Option<EntryPlace>,
    /// As in a [`Scan`].
    pub ranges: Vec<KeyRange>,
    /// As in a [`Scan`].
    pub through: Option<Vec<Lookup>>,
    /// Which of the entities are wanted; all without.
    pub filter: Option<Arc<Filter>>,
    /// The properties that are looked at, those of the keys among them, as in a [`Scan`]; all without.
    pub select: Option<Arc<[Box<str>]>>,
    /// Most entities in the page; at least 1.
    pub limit: usize,
    /// The page ends with the entity that reaches so many bytes, keys and entries counted.
    pub max_bytes: usize,
    /// When there is no more time to read.
    pub deadline: Instant,
}

impl Sort {
    /// What an engine reads at a time; it goes on from there until nothing is left.
    pub fn piece(&self) -> Scan {
        Scan {
            ranges: self.ranges.clone(),
            through: self.through.clone(),
            direction: Direction::Ascending,
            take: Take::Entities,
            filter: self.filter.clone(),
            select: self.select.clone(),
            limit: limits::PAGE_ITEMS_MAX,
            max_bytes: limits::PAGE_BYTES_MAX,
            deadline: self.deadline,
        }
    }

    /// What is left to read from a place on.
    pub fn rest(&self, next: &Position) -> Vec<KeyRange> {
        let rest = Direction::Ascending.rest(next);
        self.ranges.iter().filter_map(|range| range.intersect(&rest)).collect()
    }
}

/// The first entities of an order that are not before a place: as many as make a page, by number and bytes.
#[derive(Debug)]
pub struct First<'a> {
    sort: &'a Sort,
    kept: BTreeMap<EntryPlace, Record>,
    bytes: usize,
    /// The first that was seen and is not kept.
    beyond: Option<EntryPlace>,
    examined: u64,
}

impl<'a> First<'a> {
    /// Of nothing yet.
    pub fn new(sort: &'a Sort) -> Self {
        Self { sort, kept: BTreeMap::new(), bytes: 0, beyond: None, examined: 0 }
    }

    /// Looks at what was read.
    ///
    /// # Errors
    /// If a record does not decode.
    pub fn take(&mut self, piece: &Page) -> Result<(), Corrupt> {
        self.examined += piece.examined;
        for row in piece.rows.iter() {
            let row = row?;
            if let Some(entry) = entry(&self.sort.keys, &row)? {
                self.push(entry, &row);
            }
        }
        Ok(())
    }

    /// The page, once all was looked at.
    pub fn finish(self) -> WalkPage {
        let mut rows = Rows::new();
        let mut push = |(place, record): (&EntryPlace, &Record)| {
            let (partition, row) = (&*place.key.partition, &*place.key.row);
            rows.push(&Row { partition, row, record: record.as_ref() });
        };
        match self.sort.direction {
            Direction::Ascending => self.kept.iter().for_each(&mut push),
            Direction::Descending => self.kept.iter().rev().for_each(&mut push),
        }
        WalkPage { rows, next: self.beyond, examined: self.examined }
    }

    /// Whether one place comes before another.
    fn precedes(&self, one: &EntryPlace, other: &EntryPlace) -> bool {
        match self.sort.direction {
            Direction::Ascending => one < other,
            Direction::Descending => other < one,
        }
    }

    fn push(&mut self, entry: Vec<u8>, row: &Row<'_>) {
        let key = Position::before(row.partition, row.row);
        let place = EntryPlace { entry: entry.into(), key };
        let passed = self.sort.from.as_ref().is_some_and(|from| self.precedes(&place, from));
        let beyond = self.beyond.as_ref().is_some_and(|beyond| !self.precedes(&place, beyond));
        if passed || beyond {
            return;
        }
        self.bytes += size(&place, row.record.as_bytes());
        self.kept.insert(place, row.record.to_owned());
        while self.sort.limit < self.kept.len() || self.overfull() {
            let last = match self.sort.direction {
                Direction::Ascending => self.kept.pop_last(),
                Direction::Descending => self.kept.pop_first(),
            };
            let Some((place, record)) = last else { return };
            self.bytes -= size(&place, record.as_bytes());
            self.beyond = Some(place);
        }
    }

    /// Whether a page is full before its last entity.
    fn overfull(&self) -> bool {
        let last = match self.sort.direction {
            Direction::Ascending => self.kept.last_key_value(),
            Direction::Descending => self.kept.first_key_value(),
        };
        let last = last.map_or(0, |(place, record)| size(place, record.as_bytes()));
        1 < self.kept.len() && self.sort.max_bytes <= self.bytes - last
    }
}

fn size(place: &EntryPlace, record: &[u8]) -> usize {
    place.entry.len() + place.key.partition.len() + place.key.row.len() + record.len()
}
