//! Which operation comes next, whoever is asked for it.
//!
//! Reads and changes go to entities that are there, inserts to keys that never repeat. The same seed gives the same
//! operations in the same order.

use crate::batch::OPERATIONS;
use crate::chance::Chance;
use crate::entity::{Key, ROWS};
use crate::workload::Workload;
use std::ops::Range;

/// Partitions over which inserts are spread.
const INSERT_PARTITIONS: u64 = 256;
/// Rows that `range100` reads.
const RANGE_ROWS: u64 = 100;
/// Rows of a partition that `filterscan` matches.
const FILTER_MATCHES: u64 = 10;

/// One operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Read this entity.
    Get(Key),
    /// Insert this entity.
    Insert(Key),
    /// Replace this entity by its revision of that number.
    Replace(Key, u64),
    /// Change two properties of this entity to that revision.
    Merge(Key, u64),
    /// Insert a hundred entities from this one on.
    Batch(Key),
    /// Read entities.
    Query(Query),
}

/// A query, and how many rows it finds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Query {
    pub(crate) wanted: Wanted,
    pub(crate) rows: u64,
}

/// Which entities a query asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// A partition.
    Partition(u64),
    /// Rows of a partition, by their RowKey.
    Rows(u64, Range<u64>),
    /// Rows of a partition, by their property `Bucket`.
    Buckets(u64, Range<u64>),
    /// Rows of the table, by their property `Bucket`.
    Everywhere(u64),
}

/// Chooses operations of one kind.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    workload: Workload,
    /// Entities in the table that is read.
    entities: u64,
    inserted: u64,
    revision: u64,
    chance: Chance,
}

impl Choice {
    /// Operations on a table with so many entities. New keys start after so many others.
    pub(crate) fn new(workload: Workload, entities: u64, inserted: u64) -> Self {
        Self { workload, entities, inserted, revision: 0, chance: Chance::new(entities) }
    }

    /// How many new keys have been used, with those before the start.
    pub(crate) fn inserted(&self) -> u64 {
        self.inserted
    }

    /// The next operation.
    pub(crate) fn next(&mut self) -> Operation {
        match self.workload {
            Workload::Point | Workload::Deep => Operation::Get(self.any_key()),
            Workload::Insert | Workload::Onepartition | Workload::Spread => {
                Operation::Insert(self.new_key(1))
            }
            Workload::Merge => {
                let (key, revision) = self.change();
                Operation::Merge(key, revision)
            }
            Workload::Mixed if self.chance.below(5) > 0 => Operation::Get(self.any_key()),
            Workload::Mixed | Workload::Upsert => {
                let (key, revision) = self.change();
                Operation::Replace(key, revision)
            }
            Workload::Batch100 => Operation::Batch(self.new_key(OPERATIONS)),
            Workload::Range100
            | Workload::Scan1000
            | Workload::Filterscan
            | Workload::Tablescan => Operation::Query(self.query()),
        }
    }

    fn any_key(&mut self) -> Key {
        let index = self.chance.below(self.entities);
        if self.workload == Workload::Deep {
            return Key { partition: 0, row: index };
        }
        Key::nth(index)
    }

    fn change(&mut self) -> (Key, u64) {
        self.revision += 1;
        (self.any_key(), self.revision)
    }

    /// Where the next new entities go; their number is taken.
    fn new_key(&mut self, count: u64) -> Key {
        let index = self.inserted;
        self.inserted += count;
        match self.workload {
            Workload::Batch100 => Key { partition: index / OPERATIONS, row: 0 },
            Workload::Onepartition => Key { partition: 0, row: index },
            Workload::Spread => {
                let partition = self.chance.below((self.entities / ROWS).max(1));
                Key { partition, row: ROWS + index }
            }
            _ => Key { partition: index % INSERT_PARTITIONS, row: index / INSERT_PARTITIONS },
        }
    }

    fn query(&mut self) -> Query {
        let rows = ROWS.min(self.entities);
        if self.workload == Workload::Tablescan {
            let wanted = Wanted::Everywhere(self.chance.below(rows));
            return Query { wanted, rows: self.entities.div_ceil(ROWS) };
        }
        let partition = self.chance.below((self.entities / ROWS).max(1));
        let mut range = |length: u64| {
            let first = self.chance.below(rows.saturating_sub(length) + 1);
            first..first + length
        };
        match self.workload {
            Workload::Range100 => {
                let wanted = Wanted::Rows(partition, range(RANGE_ROWS));
                Query { wanted, rows: RANGE_ROWS.min(rows) }
            }
            Workload::Filterscan => {
                let wanted = Wanted::Buckets(partition, range(FILTER_MATCHES));
                Query { wanted, rows: FILTER_MATCHES.min(rows) }
            }
            _ => Query { wanted: Wanted::Partition(partition), rows },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_keys_never_repeat() {
        let all = [Workload::Insert, Workload::Onepartition, Workload::Batch100, Workload::Spread];
        for workload in all {
            let mut choice = Choice::new(workload, 1, 0);
            let operations: Vec<_> = (0..1000).map(|_| choice.next()).collect();
            for (index, operation) in operations.iter().enumerate() {
                let new = matches!(operation, Operation::Insert(_) | Operation::Batch(_));
                assert!(new, "{workload}: {operation:?}");
                assert!(!operations[..index].contains(operation), "{workload}: {operation:?}");
            }
        }
    }

    #[test]
    fn what_is_read_is_there() {
        for (workload, entities) in [(Workload::Range100, 3000), (Workload::Filterscan, 1000)] {
            let mut choice = Choice::new(workload, entities, 0);
            for _ in 0..1000 {
                let Operation::Query(Query { wanted, rows }) = choice.next() else { panic!() };
                let (Wanted::Rows(partition, range) | Wanted::Buckets(partition, range)) = wanted
                else {
                    panic!("a range of a partition")
                };
                assert!(partition < entities / ROWS && range.end <= ROWS);
                assert_eq!(range.end - range.start, rows);
            }
        }
    }
}
