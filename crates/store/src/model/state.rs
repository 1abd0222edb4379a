//! Everything that the model knows, how it is read and how a command changes it.

use super::indexes::entries_in;
use super::queues::{Messages, QueueEffects};
use crate::{
    Account, AccountId, Change, Changes, ChangesWanted, Command, Condition, Conflict, IndexId,
    Page, Queue, QueueId, Scan, StoreError, Table, TableId, Take, Write,
};
use rowhouse_types::{
    AccountName, Direction, EntityKey, FoldedName, KeyRange, LimitExceeded, Position, Record, Row,
    Timestamp,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Everything that a durable engine would have on disk.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    pub(super) last_timestamp: Timestamp,
    pub(super) last_sequence: u64,
    pub(super) last_account: u32,
    pub(super) last_table: u64,
    pub(super) last_index: u64,
    pub(super) last_queue: u64,
    pub(super) last_place: u64,
    pub(super) accounts: BTreeMap<AccountName, Account>,
    pub(super) tables: BTreeMap<TableId, Arc<Table>>,
    pub(super) entities: BTreeMap<TableId, BTreeMap<EntityKey, Record>>,
    pub(super) queues: BTreeMap<QueueId, Arc<Queue>>,
    pub(super) messages: BTreeMap<QueueId, Messages>,
    /// How many entities there were when an index was declared.
    pub(super) entered: BTreeMap<IndexId, u64>,
    /// How long changes are kept, if they are; all after that place, each with when it was made.
    pub(super) retention: Option<Duration>,
    pub(super) changes_after: u64,
    pub(super) changes: Vec<(Timestamp, Change)>,
}

/// What a batch has done so far; nothing of it is in the state until the whole batch has passed.
#[derive(Default)]
pub(super) struct Effects {
    pub(super) entities: BTreeMap<(TableId, EntityKey), Option<Record>>,
    pub(super) timestamps: Vec<Timestamp>,
    pub(super) changes: Vec<Change>,
    pub(super) queues: QueueEffects,
}

impl State {
    pub(super) fn account(&mut self, id: AccountId) -> Result<&mut Account, StoreError> {
        let found = self.accounts.values_mut().find(|account| account.id == id);
        found.ok_or_else(|| StoreError::rejected(Conflict::AccountNotFound))
    }

    /// The account, if it has the version that is expected.
    pub(super) fn account_at(
        &mut self,
        id: AccountId,
        expected: Option<u64>,
    ) -> Result<&mut Account, StoreError> {
        let found = self.account(id)?;
        match expected {
            Some(expected) if expected != found.version => {
                Err(StoreError::rejected(Conflict::AccountChanged))
            }
            Some(_) | None => Ok(found),
        }
    }

    pub(super) fn table(&self, account: AccountId, name: &FoldedName) -> Option<Arc<Table>> {
        let mut tables = self.tables.values();
        tables.find(|table| table.account == account && table.name.folded() == *name).cloned()
    }

    pub(super) fn entities(
        &self,
        table: TableId,
    ) -> Result<&BTreeMap<EntityKey, Record>, StoreError> {
        let found = self.entities.get(&table);
        found.ok_or_else(|| StoreError::rejected(Conflict::TableNotFound))
    }

    pub(super) fn tables_of(&self, account: AccountId) -> BTreeMap<FoldedName, Arc<Table>> {
        let tables = self.tables.values().filter(|table| table.account == account);
        tables.map(|table| (table.name.folded(), Arc::clone(table))).collect()
    }

    pub(super) fn scan(&self, table: TableId, scan: &Scan) -> Result<Page, StoreError> {
        let entities = self.entities(table)?;
        let parts = scan.through.as_ref().map(|parts| self.parts(table, parts)).transpose()?;
        let mut page = Page::default();
        let mut full = false;
        let inside = |key: &EntityKey| is_inside(&scan.ranges, key);
        let mut in_ranges: Vec<_> = entities.iter().filter(|(key, _)| inside(key)).collect();
        if scan.direction == Direction::Descending {
            in_ranges.reverse();
        }
        for (key, record) in in_ranges {
            let (partition, row) = (key.partition.as_str(), key.row.as_str());
            let here = Some(Position::before(partition, row));
            let row = Row { partition, row, record: record.as_ref() };
            let looked_at = parts.as_ref().map_or(Ok(1), |parts| entries_in(parts, &row))?;
            if looked_at == 0 {
                continue;
            }
            if page.examined > 0 && scan.deadline <= Instant::now() {
                page.next = here;
                break;
            }
            page.examined += looked_at;
            if !scan.filter.as_ref().map_or(Ok(true), |filter| filter.matches(&row))? {
                continue;
            }
            if full {
                page.next = here;
                break;
            }
            if scan.take == Take::Count {
                page.counted += 1;
                continue;
            }
            page.rows.push(&row);
            full = scan.limit <= page.rows.len() || scan.max_bytes <= page.rows.byte_len();
        }
        Ok(page)
    }

    /// Removes what has expired, whenever somebody looks: nobody ever meets it.
    pub(super) fn expire(&mut self, now: Timestamp) {
        let mut expired = Vec::new();
        for (id, table) in &self.tables {
            let Some(ttl) = &table.ttl else { continue };
            let expiry = ttl.at(now);
            for (key, record) in self.entities.get(id).into_iter().flatten() {
                if matches!(expiry.has_expired(record.as_ref()), Ok(true)) {
                    expired.push((*id, key.clone()));
                }
            }
        }
        if expired.is_empty() {
            return;
        }
        let at = now.max(self.last_timestamp.next());
        self.last_timestamp = at;
        self.last_sequence += 1;
        for (table, key) in expired {
            self.entities.entry(table).or_default().remove(&key);
            if self.retention.is_some() {
                let place = self.last_sequence;
                self.changes.push((at, Change { place, table, key, at, record: None }));
            }
        }
    }

    /// Drops the changes that are too old.
    pub(super) fn forget_changes(&mut self, now: Timestamp) {
        let Some(retention) = self.retention else { return };
        let ticks = u64::try_from(retention.as_nanos() / 100).unwrap_or(u64::MAX);
        let oldest = now.ticks().saturating_sub(ticks);
        let stale = self.changes.iter().take_while(|(made, _)| made.ticks() < oldest).count();
        if let Some((_, last)) = self.changes.drain(..stale).next_back() {
            self.changes_after = last.place;
        }
    }

    pub(super) fn changes(&self, wanted: &ChangesWanted) -> Result<Changes, StoreError> {
        let reaches = self.changes_after <= wanted.after && wanted.after <= self.last_sequence;
        if self.retention.is_none() || !reaches {
            return Err(StoreError::rejected(Conflict::ChangesNotKept));
        }
        let mut found = Changes { changes: Vec::new(), next: self.last_sequence };
        let mut bytes = 0;
        for (_, change) in self.changes.iter().filter(|(_, change)| wanted.after < change.place) {
            let last = found.changes.last().map(|last: &Change| last.place);
            let full = wanted.limit <= found.changes.len() || wanted.max_bytes <= bytes;
            if let Some(place) = last.filter(|place| full && *place < change.place) {
                found.next = place;
                break;
            }
            if wanted.table.is_none_or(|table| table == change.table) {
                let record = change.record.as_ref().map_or(0, |record| record.as_bytes().len());
                let key = &change.key;
                bytes += key.partition.as_str().len() + key.row.as_str().len() + record;
                found.changes.push(change.clone());
            }
        }
        Ok(found)
    }

    /// Judges one command against the state and the effects before it, and adds its own.
    pub(super) fn run(
        &self,
        command: Command,
        timestamp: Timestamp,
        effects: &mut Effects,
    ) -> Result<(), StoreError> {
        let Command::Entity { table, key, condition, write } = command;
        let stored = self.entities(table)?.get(&key);
        let place = (table, key);
        let current = match effects.entities.get(&place) {
            Some(earlier) => earlier.as_ref(),
            None => stored,
        };
        let held = match (condition, current) {
            (Condition::Any, _) | (Condition::Absent, None) | (Condition::Exists, Some(_)) => {
                Ok(())
            }
            (Condition::Absent, Some(_)) => Err(Conflict::EntityExists),
            (Condition::Exists | Condition::Matches(_), None) => Err(Conflict::EntityNotFound),
            (Condition::Matches(etag), Some(record)) => {
                let matches = etag.matches(record.as_ref().timestamp());
                if matches { Ok(()) } else { Err(Conflict::ConditionNotMet) }
            }
        };
        held.map_err(StoreError::rejected)?;
        let restored = matches!(write, Write::Restore(_));
        let nothing = current.is_none();
        let mut result = match write {
            Write::Delete => None,
            Write::Put(record) | Write::Restore(record) => Some(record),
            Write::Merge(patch) => {
                let merged = match current {
                    Some(base) => Record::merge(base.as_ref(), patch.as_ref())?,
                    None => patch,
                };
                let (partition, row) = (place.1.partition.as_str(), place.1.row.as_str());
                match merged.as_ref().check_limits(partition, row)? {
                    Some(LimitExceeded::Properties) => {
                        return Err(StoreError::rejected(Conflict::TooManyProperties));
                    }
                    Some(LimitExceeded::Size) => {
                        return Err(StoreError::rejected(Conflict::EntityTooLarge));
                    }
                    None => Some(merged),
                }
            }
        };
        if let Some(record) = result.as_mut().filter(|_| !restored) {
            record.stamp(timestamp);
        }
        if let Some(record) = &result {
            self.check_unique(place.0, &place.1, record, effects)?;
        }
        let at = result.as_ref().map_or(timestamp, |record| record.as_ref().timestamp());
        effects.timestamps.push(at);
        if result.is_some() || !nothing {
            let (table, key) = place.clone();
            let change =
                Change { place: self.last_sequence + 1, table, key, at, record: result.clone() };
            effects.changes.push(change);
        }
        effects.entities.insert(place, result);
        Ok(())
    }
}

/// Whether the key is in one of the ranges.
pub(super) fn is_inside(ranges: &[KeyRange], key: &EntityKey) -> bool {
    ranges.iter().any(|range| range.contains(key.partition.as_str(), key.row.as_str()))
}
