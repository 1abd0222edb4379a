//! Deleting what satisfies a filter, a bounded step at a time.
//!
//! A step reads a page of matches as a query does, and deletes each on the condition that it is still what was read. One
//! that was changed meanwhile is looked at again and goes only if it still matches. The entities of a partition go
//! together, some partitions side by side. Whoever repeats a step repeats nothing: what is gone is not found again.

use crate::planner::{PlanTaken, Reading};
use crate::{Caller, TableError, TableService};
use rowhouse_query::Filter;
use rowhouse_store::{
    Batch, Command, Condition, Conflict, Store, StoreError, TableId, Take, Write,
};
use rowhouse_types::{
    Access, Corrupt, Direction, EntityKey, Etag, Position, Row, TableName, Timestamp, limits,
};
use std::sync::Arc;
use std::time::Instant;
use tokio::task::JoinSet;

/// Entities that are deleted with one commit.
const GROUP_MAX: usize = limits::BATCH_OPERATIONS_MAX;
/// Commits that are under way at the same time.
const SIDE_BY_SIDE: usize = 8;

/// One step of deleting.
#[derive(Clone, Debug)]
pub struct DeleteQuery {
    /// Which entities; all without.
    pub filter: Option<Filter>,
    /// Where the step before ended.
    pub from: Option<Position>,
    /// Most entities; at least 1.
    pub limit: usize,
    /// Only count them.
    pub dry_run: bool,
    /// When the step ends even if there is more.
    pub deadline: Instant,
}

/// What a step did.
#[derive(Clone, Debug)]
pub struct DeleteStep {
    /// So many entities are gone; would be, if they were only counted.
    pub deleted: u64,
    /// How many entities or entries of indexes were looked at for it.
    pub examined: u64,
    /// Where the next step starts; none if nothing is left.
    pub next: Option<Position>,
    /// How they were found.
    pub plan: PlanTaken,
}

/// Entities of one partition, each with the Timestamp that it had.
type Group = Vec<(EntityKey, Timestamp)>;

impl TableService {
    /// Deletes some of the entities that satisfy the filter. Those outside the caller's range are not even looked at.
    pub async fn delete_step(
        &self,
        caller: Caller<'_>,
        table: &TableName,
        query: DeleteQuery,
    ) -> Result<DeleteStep, TableError> {
        caller.grant.check(Access::ReadEntities, Some(table))?;
        caller.grant.check(Access::DeleteEntity, Some(table))?;
        let table = self.table(caller, table).await?;
        let direction = Direction::Ascending;
        let from = query.from.as_ref().map(|from| direction.rest(from));
        let mut chosen =
            self.choose(caller, &table, query.filter, from.as_ref(), query.deadline).await?;
        let now = Instant::now();
        let (take, limit, deadline) = if query.dry_run {
            (Take::Count, usize::MAX, query.deadline)
        } else {
            // The other half is for deleting what was found.
            let half = query.deadline.saturating_duration_since(now) / 2;
            (Take::Entities, query.limit.clamp(1, limits::PAGE_ITEMS_MAX), now + half)
        };
        let reading = Reading { direction, take, select: None, limit, deadline };
        let page = self.read(&table, &mut chosen, &reading).await?;
        let plan = chosen.plan.shown_to(caller);
        let (examined, next) = (page.examined, page.next);
        if query.dry_run {
            return Ok(DeleteStep { deleted: page.counted, examined, next, plan });
        }
        let groups = groups(page.rows.iter())?;
        let deleting = Deleting { store: &self.store, table: table.id, filter: chosen.filter };
        let (deleted, stopped) = deleting.run(groups, query.deadline).await?;
        Ok(DeleteStep { deleted, examined, next: stopped.or(next), plan })
    }
}

/// The rows by partition, in their order.
fn groups<'a>(
    rows: impl Iterator<Item = Result<Row<'a>, Corrupt>>,
) -> Result<Vec<Group>, TableError> {
    let mut groups: Vec<Group> = Vec::new();
    for row in rows {
        let row = row?;
        let Ok(key) = EntityKey::new(row.partition, row.row) else { continue };
        let entity = (key, row.record.timestamp());
        match groups.last_mut() {
            Some(group) if group.len() < GROUP_MAX && is_of(group, row.partition) => {
                group.push(entity);
            }
            _ => groups.push(vec![entity]),
        }
    }
    Ok(groups)
}

fn is_of(group: &Group, partition: &str) -> bool {
    group.first().is_some_and(|(key, _)| key.partition.as_str() == partition)
}

struct Deleting<'a> {
    store: &'a Arc<dyn Store>,
    table: TableId,
    filter: Option<Arc<Filter>>,
}

impl Deleting<'_> {
    /// How many are gone, and where it stopped if not all were tried. What fails after something is gone only ends the
    /// step: whoever goes on from there meets it again.
    async fn run(
        &self,
        groups: Vec<Group>,
        deadline: Instant,
    ) -> Result<(u64, Option<Position>), TableError> {
        let mut groups = groups.into_iter();
        let mut deleted = 0;
        loop {
            let wave: Vec<Group> = groups.by_ref().take(SIDE_BY_SIDE).collect();
            if wave.is_empty() {
                return Ok((deleted, None));
            }
            let places: Vec<Position> = wave.iter().filter_map(place).collect();
            let mut running = JoinSet::new();
            for (at, group) in wave.into_iter().enumerate() {
                let (store, filter) = (Arc::clone(self.store), self.filter.clone());
                let table = self.table;
                running.spawn(async move { (at, delete(&*store, table, filter, group).await) });
            }
            let mut failed: Option<(usize, StoreError)> = None;
            while let Some(done) = running.join_next().await {
                match done {
                    Ok((_, Ok(gone))) => deleted += gone,
                    Ok((at, Err(error))) => {
                        if failed.as_ref().is_none_or(|(first, _)| at < *first) {
                            failed = Some((at, error));
                        }
                    }
                    Err(error) => return Err(StoreError::unavailable(error).into()),
                }
            }
            match failed {
                Some((at, _)) if deleted > 0 => return Ok((deleted, places.into_iter().nth(at))),
                Some((_, error)) => return Err(error.into()),
                None => {}
            }
            if deadline <= Instant::now() {
                return Ok((deleted, groups.next().as_ref().and_then(place)));
            }
        }
    }
}

/// Where a group starts.
fn place(group: &Group) -> Option<Position> {
    let (key, _) = group.first()?;
    Some(Position::before(key.partition.as_str(), key.row.as_str()))
}

/// Deletes entities, each if it is still what was read or at least still satisfies the filter; how many.
async fn delete(
    store: &dyn Store,
    table: TableId,
    filter: Option<Arc<Filter>>,
    mut group: Group,
) -> Result<u64, StoreError> {
    while !group.is_empty() {
        let command = |(key, at): &(EntityKey, Timestamp)| Command::Entity {
            table,
            key: key.clone(),
            condition: Condition::Matches(Etag::new(*at)),
            write: Write::Delete,
        };
        let commands = group.iter().map(command).collect();
        let (index, reason) = match store.commit(Batch::new(commands)).await {
            Ok(_) => return Ok(group.len() as u64),
            Err(StoreError::Rejected { index, reason }) => (index, reason),
            Err(error) => return Err(error),
        };
        let changed = match reason {
            Conflict::EntityNotFound => None,
            Conflict::ConditionNotMet => {
                let (key, _) = &group[index];
                let record = store.get(table, key).await?;
                let matches = |record: &rowhouse_types::Record| {
                    let (partition, row) = (key.partition.as_str(), key.row.as_str());
                    let row = Row { partition, row, record: record.as_ref() };
                    filter.as_ref().map_or(Ok(true), |filter| filter.matches(&row))
                };
                match record {
                    Some(record) if matches(&record)? => Some(record.as_ref().timestamp()),
                    _ => None,
                }
            }
            reason => return Err(StoreError::Rejected { index, reason }),
        };
        match changed {
            Some(at) => group[index].1 = at,
            None => drop(group.remove(index)),
        }
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rowhouse_env::{Clock, SimulatedClock};
    use rowhouse_store::conformance::fixture::{n, number, page, put, scan_all, write};
    use rowhouse_store::model::ModelStore;
    use rowhouse_store::{NewAccount, Placement};
    use std::time::Duration;

    async fn with_table() -> (Arc<dyn Store>, TableId) {
        let clock = SimulatedClock::new(Timestamp::EDM_MIN.plus_seconds(1));
        let store = ModelStore::new(Arc::new(clock) as Arc<dyn Clock>);
        let keys = [Box::from(*b"1"), Box::from(*b"2")];
        let account = NewAccount { name: "acct".parse().unwrap(), keys };
        let account = store.create_account(account).await.unwrap();
        let name = "Things".parse().unwrap();
        let table = store.create_table(account.id, &name, Placement::default()).await.unwrap();
        (Arc::new(store), table.id)
    }

    fn key(row: &str) -> EntityKey {
        EntityKey::new("p", row).unwrap()
    }

    /// What was changed since it was read is judged again: by what it is now.
    #[tokio::test]
    async fn what_changed_meanwhile_is_judged_again() {
        let (store, table) = with_table().await;
        let mut group = Group::new();
        for row in ["same", "still", "no more", "gone", "again"] {
            let at = write(&*store, put(table, &key(row), number(1))).await;
            group.push((key(row), at));
        }
        group.push((key("never"), Timestamp::EDM_MIN));
        write(&*store, put(table, &key("still"), number(5))).await;
        write(&*store, put(table, &key("no more"), number(0))).await;
        let remove = |row: &str| Command::Entity {
            table,
            key: key(row),
            condition: Condition::Exists,
            write: Write::Delete,
        };
        write(&*store, remove("gone")).await;
        write(&*store, remove("again")).await;
        write(&*store, put(table, &key("again"), number(7))).await;
        let filter = Filter::parse("n gt 0").unwrap().map(Arc::new);
        let deleted = delete(&*store, table, filter, group).await.unwrap();
        assert_eq!(deleted, 3);
        let left = page(&*store, table, scan_all()).await;
        let left: Vec<_> = left.rows.iter().map(|row| row.unwrap().row.to_owned()).collect();
        assert_eq!(left, ["no more"]);
        assert_eq!(n(&store.get(table, &key("no more")).await.unwrap().unwrap()), 0);
    }

    /// A step whose time is over has done something, and says where the next one goes on.
    #[tokio::test]
    async fn a_late_step_goes_on_where_it_stopped() {
        let (store, table) = with_table().await;
        let mut groups = Vec::new();
        for at in 0..3 * SIDE_BY_SIDE {
            let key = EntityKey::new(&format!("{at:03}"), "r").unwrap();
            let stamp = write(&*store, put(table, &key, number(1))).await;
            groups.push(vec![(key, stamp)]);
        }
        let deleting = Deleting { store: &store, table, filter: None };
        let late = Instant::now();
        let (deleted, stopped) = deleting.run(groups.clone(), late).await.unwrap();
        assert_eq!(deleted, SIDE_BY_SIDE as u64);
        assert_eq!(stopped, place(&groups[SIDE_BY_SIDE]));
        let (deleted, stopped) =
            deleting.run(groups, late + Duration::from_mins(10)).await.unwrap();
        assert_eq!((deleted, stopped), (2 * SIDE_BY_SIDE as u64, None));
    }
}
