//! Removes what has expired, table by table.
//!
//! The thread of the sweep passes over a table in the order of its keys, a few entities in one short transaction, and has
//! the committer remove those that have expired: in small batches like any other, which look at each entity again, so
//! what was written meanwhile stays. A restart begins the pass again; what it had removed is gone.
//!
//! Nobody sees what has expired, so there is no hurry, and a table must not be read again and again for nothing. The next
//! pass over it begins when the first of the entities that stayed expires, but no sooner than a minute after the last one,
//! and ten times as long as that took: less than a tenth of the time is spent on it. It begins after an hour at the latest,
//! for what was written since.
//!
//! Nothing is removed within the grace period after a TTL was set: a user who takes it back has every entity again. When
//! it was set is not stored, so the grace period also begins when the store is opened.

use crate::catalogue::Catalogue;
use crate::committer::{Fault, expire};
use crate::entity::with_record;
use crate::jobs::{Job, Refused, Work};
use crate::scan::{FROM, text};
use crate::sweep::{Ended, Sweeper};
use rowhouse_store::{Batch, Conflict, StoreError, TableId, Ttl};
use rowhouse_types::{EntityKey, Position, RecordRef, Timestamp};
use rusqlite::params;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Entities that a step reads.
const ROWS: usize = 512;
/// Entities that are removed with one batch.
const BATCH: usize = 100;
/// Between two passes over a table, at least and at most.
const INTERVAL_MIN: Duration = Duration::from_mins(1);
const INTERVAL_MAX: Duration = Duration::from_hours(1);

/// Tables whose entities expire.
#[derive(Debug, Default)]
pub(crate) struct Expiring {
    /// When each is looked through next.
    due: BTreeMap<TableId, Instant>,
    /// The pass that is under way.
    pass: Option<Pass>,
    /// How long a table is left alone after its TTL was set.
    grace: Duration,
    removed: Removed,
}

/// How far a table is looked through.
#[derive(Debug)]
struct Pass {
    table: TableId,
    place: Position,
    /// When the first of those that stay expires.
    earliest: Option<Timestamp>,
    /// How long looking, removing and the pauses took so far.
    took: Duration,
}

/// How many entities were removed from each table and not reported yet: of what account, which table. Kept apart from the
/// pass, and reported when it is dropped: a new TTL ends a pass, closing the store ends the thread.
#[derive(Debug, Default)]
struct Removed(BTreeMap<TableId, (String, String, u64)>);

impl Removed {
    fn add(&mut self, catalogue: &Catalogue, table: TableId, gone: u64) {
        if let Some((_, _, removed)) = self.0.get_mut(&table) {
            *removed += gone;
        } else if let Some(found) = catalogue.table_by_id(table) {
            let account = catalogue.account_by_id(found.account);
            let account = account.map_or_else(String::new, |account| account.name.as_str().into());
            self.0.insert(table, (account, found.name.as_str().to_owned(), gone));
        }
    }

    /// A line in the log about what was removed from a table.
    fn report(&mut self, table: TableId) {
        if let Some((account, table, removed)) = self.0.remove(&table) {
            tracing::info!(account, table, removed, "expired entities were removed");
        }
    }
}

impl Drop for Removed {
    fn drop(&mut self) {
        for table in self.0.keys().copied().collect::<Vec<_>>() {
            self.report(table);
        }
    }
}

/// What a step found.
struct Looked {
    expired: Vec<EntityKey>,
    /// Nothing is left in the table.
    finished: bool,
}

impl Expiring {
    /// All that there are; a table may have been left in the middle.
    pub(crate) fn new(catalogue: &Catalogue, grace: Duration) -> Self {
        let due = Instant::now() + grace;
        let expiring = catalogue.all_tables().filter(|table| table.ttl.is_some());
        let due = expiring.map(|table| (table.id, due)).collect();
        Self { due, pass: None, grace, removed: Removed::default() }
    }

    /// The TTL of the table was set: it is looked through from its beginning, after the grace period.
    pub(crate) fn hear(&mut self, table: TableId) {
        self.due.insert(table, Instant::now() + self.grace);
        if self.pass.as_ref().is_some_and(|pass| pass.table == table) {
            self.pass = None;
        }
    }

    pub(crate) fn is_due(&self) -> bool {
        let now = Instant::now();
        self.pass.is_some() || self.due.values().any(|due| *due <= now)
    }

    /// The pass that is under way, or one over the table that has waited longest.
    fn take(&mut self) -> Option<Pass> {
        if let Some(pass) = self.pass.take() {
            return Some(pass);
        }
        let now = Instant::now();
        let (table, _) =
            self.due.iter().filter(|(_, due)| **due <= now).min_by_key(|(_, due)| **due)?;
        let (table, place) = (*table, Position::min());
        Some(Pass { table, place, earliest: None, took: Duration::ZERO })
    }
}

impl Sweeper {
    /// Looks at some entities of a table that is due; true if some of them are gone.
    pub(crate) fn expire(&mut self) -> Result<bool, Ended> {
        let Some(mut pass) = self.expiring.take() else { return Ok(false) };
        let table = pass.table;
        let Some(ttl) = self.ttl_of(table) else {
            self.expiring.due.remove(&table);
            self.expiring.removed.report(table);
            return Ok(false);
        };
        let began = Instant::now();
        let looked = match self.look(&mut pass, &ttl) {
            Ok(looked) => looked,
            Err(fault) => {
                let error = fault.into_store_error();
                tracing::warn!(%error, "looking for what has expired is interrupted");
                Looked { expired: Vec::new(), finished: true }
            }
        };
        self.expiring.pass = Some(pass);
        let removed = self.remove(table, looked.expired)?;
        self.pause(self.shared.tuning.sweep_pause)?;
        // None if the entities expire otherwise by now: then everything is looked at again.
        if let Some(mut pass) = self.expiring.pass.take() {
            pass.took += began.elapsed();
            if looked.finished {
                self.expiring.removed.report(table);
                let wait = self.interval(&pass);
                self.expiring.due.insert(table, Instant::now() + wait);
            } else {
                self.expiring.pass = Some(pass);
            }
        }
        Ok(0 < removed)
    }

    fn ttl_of(&self, table: TableId) -> Option<Ttl> {
        self.shared.catalogue.load().table_by_id(table)?.ttl.clone()
    }

    /// Reads on, in one transaction.
    fn look(&self, pass: &mut Pass, ttl: &Ttl) -> Result<Looked, Fault> {
        let expiry = ttl.at(self.shared.clock.now());
        let mut looked = Looked { expired: Vec::new(), finished: true };
        let mut statement = self.conn.prepare_cached(FROM)?;
        let (table, place) = (pass.table.0.cast_signed(), pass.place.clone());
        let mut rows = statement.query(params![table, &*place.partition, &*place.row])?;
        let mut examined = 0;
        while let Some(found) = rows.next()? {
            let (partition, row) = (text(found, 0)?, text(found, 1)?);
            if examined == ROWS {
                pass.place = Position::before(partition, row);
                looked.finished = false;
                break;
            }
            examined += 1;
            let judged = with_record(&self.conn, found.get_ref(2)?, |_, bytes| {
                let record = RecordRef::parse(bytes)?;
                Ok((expiry.has_expired(record)?, ttl.expires(record)?))
            });
            match judged {
                Ok((true, _)) => {
                    let key = EntityKey::new(partition, row);
                    looked.expired.push(key.map_err(|error| Fault::Corrupt(error.to_string()))?);
                }
                Ok((false, Some(at))) => {
                    pass.earliest = Some(pass.earliest.map_or(at, |earliest| earliest.min(at)));
                }
                // What is damaged stays: reading it says so, and so does a check.
                Ok((false, None)) | Err(Fault::Corrupt(_)) => {}
                Err(fault) => return Err(fault),
            }
        }
        Ok(looked)
    }

    /// How long a table is left alone after a pass.
    fn interval(&self, pass: &Pass) -> Duration {
        let least = INTERVAL_MIN.max(10 * pass.took);
        let most = INTERVAL_MAX.max(least);
        let now = self.shared.clock.now();
        let until = pass.earliest.map_or(most, |at| {
            Duration::from_nanos(at.ticks().saturating_sub(now.ticks()).saturating_mul(100))
        });
        until.clamp(least, most)
    }

    /// Has the committer remove them, except those that are there again; returns how many are gone.
    fn remove(&mut self, table: TableId, mut expired: Vec<EntityKey>) -> Result<u64, Ended> {
        let mut removed = 0;
        while !expired.is_empty() {
            let rest = expired.split_off(expired.len().min(BATCH));
            let mut batch = std::mem::replace(&mut expired, rest);
            while !batch.is_empty() {
                self.wait_for_calm(Duration::MAX)?;
                match self.commit(table, &batch)? {
                    Ok(()) => {
                        let gone = batch.len() as u64;
                        self.expiring.removed.add(&self.shared.catalogue.load(), table, gone);
                        removed += gone;
                        break;
                    }
                    Err(Some(index)) => drop(batch.remove(index)),
                    // The table is gone, or the store is busy: what is left is found by the next pass.
                    Err(None) => return Ok(removed),
                }
                self.pause(self.shared.tuning.sweep_pause)?;
            }
            self.pause(self.shared.tuning.sweep_pause)?;
        }
        Ok(removed)
    }

    /// One batch; which one of its entities is there, if one is.
    fn commit(
        &mut self,
        table: TableId,
        keys: &[EntityKey],
    ) -> Result<Result<(), Option<usize>>, Ended> {
        let commands = keys.iter().map(|key| expire(table, key.clone())).collect();
        let (reply, answer) = oneshot::channel();
        match self.shared.jobs.push(Job { work: Work::Batch(Batch::new(commands)), reply }) {
            Ok(()) => {}
            Err(Refused::Full) => return Ok(Err(None)),
            Err(Refused::Closed) => return Err(Ended),
        }
        Ok(match answer.blocking_recv().map_err(|_| Ended)? {
            Ok(_) => Ok(()),
            Err(StoreError::Rejected { index, reason: Conflict::EntityExists }) => Err(Some(index)),
            Err(_) => Err(None),
        })
    }
}
