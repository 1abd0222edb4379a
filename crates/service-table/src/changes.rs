//! The change feed: what became of the entities of one table, in the order in which it did.
//!
//! A reader goes from page to page by [`Bookmark`]s. Every change that is kept is told at least once; those of an
//! entity in the order in which they were made. Changes of entities outside the caller's range are left out, and
//! do not end a wait.

use crate::{Caller, TableError, TableService};
use rowhouse_store::{Change, Changes, ChangesWanted, Kept, Table, TableId};
use rowhouse_types::{Access, Grant, TableName, Timestamp, limits};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::time::{sleep_until, timeout_at};

/// Between two looks at the log while the table is written to all the time.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// How far a reader of one table's changes has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bookmark {
    /// Id of the table: a later one of the same name has another.
    pub table: u64,
    /// When that table was created: the same id in another store is another table.
    pub created: Timestamp,
    /// All changes up to this place are told,
    pub place: u64,
    /// and so many of those after it: not none only inside a batch too large for one answer.
    pub told: usize,
}

/// Where to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangesFrom {
    /// With the oldest change that is kept.
    Beginning,
    /// With what comes next.
    Now,
    /// Where an earlier page ended.
    After(Bookmark),
}

/// Which changes are wanted.
#[derive(Clone, Copy, Debug)]
pub struct ChangesQuery {
    /// Where to start.
    pub from: ChangesFrom,
    /// About how many; a batch is not cut.
    pub limit: usize,
    /// If there is none, wait for one until then.
    pub wait_until: Instant,
}

/// A change and where it stands.
#[derive(Clone, Debug)]
pub struct ChangeItem {
    /// The change.
    pub change: Change,
    /// Where a reader is that has everything before it.
    pub before: Bookmark,
}

/// Some changes.
#[derive(Clone, Debug)]
pub struct ChangesPage {
    /// In order.
    pub items: Vec<ChangeItem>,
    /// Where the next page starts.
    pub next: Bookmark,
    /// Whether there was more when the page was asked for.
    pub more: bool,
}

impl TableService {
    /// Reads changes of one table, or waits for one.
    pub async fn changes(
        &self,
        caller: Caller<'_>,
        name: &TableName,
        query: ChangesQuery,
    ) -> Result<ChangesPage, TableError> {
        caller.grant.check(Access::ReadEntities, Some(name))?;
        let table = self.table(caller, name).await?;
        // Asked first: what is beyond has come since, and is no reason to ask again at once.
        let kept = self.store.kept_changes().await?.ok_or(TableError::ChangesNotKept)?;
        let mut mark = start(&table, kept, query.from)?;
        let mut ear = None::<watch::Receiver<()>>;
        loop {
            let looked = Instant::now();
            let found = self.look(mark, query.limit).await?;
            let page = page(caller.grant, mark, found, kept.until);
            if !page.items.is_empty() || query.wait_until <= Instant::now() {
                return Ok(page);
            }
            mark = page.next;
            if let Some(mut heard) = ear.take() {
                // Whatever ended the wait, the log is looked at again.
                let _ = timeout_at(query.wait_until.into(), heard.changed()).await;
                sleep_until((looked + LOOK_EVERY).into()).await;
            }
            ear = Some(self.watcher.listen(table.id, mark.place));
        }
    }

    async fn look(&self, mark: Bookmark, limit: usize) -> Result<Changes, TableError> {
        let wanted = ChangesWanted {
            after: mark.place,
            table: Some(TableId(mark.table)),
            limit: limit.saturating_add(mark.told),
            max_bytes: limits::PAGE_BYTES_MAX,
            wait_until: Instant::now(),
        };
        Ok(self.store.changes(wanted).await?)
    }
}

/// The bookmark to start from, if it is one of this table.
fn start(table: &Table, kept: Kept, from: ChangesFrom) -> Result<Bookmark, TableError> {
    let at = |place| Bookmark { table: table.id.0, created: table.created, place, told: 0 };
    match from {
        ChangesFrom::Beginning => Ok(at(kept.after)),
        ChangesFrom::Now => Ok(at(kept.until)),
        ChangesFrom::After(mark) => {
            let known = mark.table == table.id.0 && mark.created == table.created;
            if known { Ok(mark) } else { Err(TableError::ChangesExpired) }
        }
    }
}

/// What of the changes after a bookmark is news to the caller.
fn page(grant: &Grant, mark: Bookmark, found: Changes, until: u64) -> ChangesPage {
    let mut before = Bookmark { told: 0, ..mark };
    let mut last = None;
    let mut items = Vec::with_capacity(found.changes.len());
    for (index, change) in found.changes.into_iter().enumerate() {
        match last.replace(change.place) {
            Some(place) if place != change.place => before = Bookmark { place, told: 0, ..before },
            Some(_) => before.told += 1,
            None => {}
        }
        let key = (change.key.partition.as_str(), change.key.row.as_str());
        if mark.told <= index && grant.check_key(key.0, key.1).is_ok() {
            items.push(ChangeItem { change, before });
        }
    }
    let next = Bookmark { place: found.next, told: 0, ..mark };
    ChangesPage { items, next, more: found.next < until }
}
