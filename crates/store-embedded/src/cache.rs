//! Records that were read by key, kept in memory so that the next reader needs no database.
//!
//! What is found here is the latest committed state, always. Two rules see to that. Before a batch is
//! committed, whatever it touches is removed. And a record is let in only if the snapshot that it was read
//! from holds every batch that has touched its set since, so that a slow reader cannot put back what is
//! out of date.
//!
//! Keys are spread over small sets by hash. Each has its own lock and its own share of the memory, and
//! within a set the records that are asked for move to the front, away from the end that is cut off.

use rowhouse_store::TableId;
use rowhouse_types::{EntityKey, Record};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Memory of a set, in bytes.
const SET_BYTES: usize = 16 * 1024;
/// The largest record that is kept with its keys: others would leave a set with hardly anything else.
const ENTRY_BYTES_MAX: usize = SET_BYTES / 4;
/// What an entry occupies beside its bytes: its place in a set that may be half empty, and three blocks of memory.
const OVERHEAD: usize = 208;

/// The records, and what may still be added.
#[derive(Debug)]
pub(crate) struct Cache {
    sets: Box<[Mutex<Set>]>,
    hasher: RandomState,
}

#[derive(Debug, Default)]
struct Set {
    entries: Vec<Entry>,
    bytes: usize,
    /// The latest batch that touched a key of this set.
    touched: u64,
}

#[derive(Debug)]
struct Entry {
    hash: u64,
    table: TableId,
    key: EntityKey,
    record: Record,
}

impl Cache {
    /// Occupies at most so many bytes, or very little more.
    pub(crate) fn new(bytes: u64) -> Self {
        let sets = usize::try_from(bytes / SET_BYTES as u64).unwrap_or(usize::MAX).max(1);
        Self { sets: (0..sets).map(|_| Mutex::default()).collect(), hasher: RandomState::new() }
    }

    pub(crate) fn get(&self, table: TableId, key: &EntityKey) -> Option<Record> {
        let hash = self.hash(table, key);
        let mut set = self.set(hash);
        let at = set.find(hash, table, key)?;
        // Half way to the front each time.
        set.entries.swap(at, at / 2);
        Some(set.entries[at / 2].record.clone())
    }

    /// Offers a record read from a snapshot that ends with the given batch.
    pub(crate) fn offer(&self, table: TableId, key: &EntityKey, record: &Record, snapshot: u64) {
        let bytes = weight(key, record);
        if ENTRY_BYTES_MAX < bytes {
            return;
        }
        let hash = self.hash(table, key);
        let mut set = self.set(hash);
        if snapshot < set.touched || set.find(hash, table, key).is_some() {
            return;
        }
        while SET_BYTES < set.bytes + bytes
            && let Some(last) = set.entries.pop()
        {
            set.bytes -= last.weight();
        }
        set.bytes += bytes;
        set.entries.push(Entry { hash, table, key: key.clone(), record: record.clone() });
    }

    /// Removes what a batch is about to change. True if there was something.
    pub(crate) fn forget(&self, table: TableId, key: &EntityKey, batch: u64) -> bool {
        let hash = self.hash(table, key);
        let mut set = self.set(hash);
        set.touched = set.touched.max(batch);
        match set.find(hash, table, key) {
            Some(at) => {
                let removed = set.entries.remove(at);
                set.bytes -= removed.weight();
                true
            }
            None => false,
        }
    }

    fn hash(&self, table: TableId, key: &EntityKey) -> u64 {
        self.hasher.hash_one((table.0, key.partition.as_str(), key.row.as_str()))
    }

    fn set(&self, hash: u64) -> MutexGuard<'_, Set> {
        let at = usize::try_from(hash % self.sets.len() as u64).unwrap_or(0);
        // Nothing inside the lock can panic half way through a change.
        self.sets[at].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Set {
    fn find(&self, hash: u64, table: TableId, key: &EntityKey) -> Option<usize> {
        let is_it = |entry: &Entry| entry.hash == hash && entry.table == table && entry.key == *key;
        self.entries.iter().position(is_it)
    }
}

impl Entry {
    fn weight(&self) -> usize {
        weight(&self.key, &self.record)
    }
}

fn weight(key: &EntityKey, record: &Record) -> usize {
    OVERHEAD + key.partition.as_str().len() + key.row.as_str().len() + record.as_bytes().len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rowhouse_types::{RecordBuilder, Timestamp, ValueRef};

    const TABLE: TableId = TableId(1);

    fn key(row: usize) -> EntityKey {
        EntityKey::new("p", &row.to_string()).unwrap()
    }

    fn record(text: &str) -> Record {
        let mut builder = RecordBuilder::new();
        builder.push("Text", ValueRef::String(text)).unwrap();
        builder.finish(Timestamp::default())
    }

    #[test]
    fn what_a_batch_touches_is_gone_and_stays_so_for_older_snapshots() {
        let cache = Cache::new(1 << 20);
        let (old, new) = (record("old"), record("new"));
        cache.offer(TABLE, &key(1), &old, 5);
        assert_eq!(cache.get(TABLE, &key(1)).unwrap().as_bytes(), old.as_bytes());
        assert!(cache.get(TableId(2), &key(1)).is_none());
        assert!(cache.forget(TABLE, &key(1), 7));
        assert!(cache.get(TABLE, &key(1)).is_none());
        cache.offer(TABLE, &key(1), &old, 6);
        assert!(cache.get(TABLE, &key(1)).is_none(), "read before the batch");
        cache.offer(TABLE, &key(1), &new, 7);
        assert_eq!(cache.get(TABLE, &key(1)).unwrap().as_bytes(), new.as_bytes());
    }

    #[test]
    fn memory_is_bounded_and_what_is_used_stays() {
        let cache = Cache::new(1);
        let (favourite, padding) = (key(0), "x".repeat(300));
        for row in 0..1000 {
            cache.offer(TABLE, &key(row), &record(&padding), 0);
            assert!(cache.get(TABLE, &favourite).is_some(), "asked for all the time");
        }
        let set = cache.sets[0].lock().unwrap();
        assert_eq!(set.bytes, set.entries.iter().map(Entry::weight).sum::<usize>());
        assert!(set.bytes <= SET_BYTES && set.entries.len() > 20, "{} entries", set.entries.len());
        drop(set);
        cache.offer(TABLE, &key(5000), &record(&"x".repeat(ENTRY_BYTES_MAX)), 0);
        assert!(cache.get(TABLE, &key(5000)).is_none(), "too large");
    }
}
