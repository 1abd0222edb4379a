//! Queries: plan, clip to what the caller may see, read one page.

use crate::{Caller, TableError, TableService};
use rowhouse_query::{Filter, Order, Plan, PlanKind};
use rowhouse_store::{Page, Scan, TableId, Take};
use rowhouse_types::{
    Access, Direction, EntityKey, KeyRange, Position, Row, Rows, TableName, limits,
};
use std::time::Instant;

/// One page of a query.
#[derive(Clone, Debug)]
pub struct EntityQuery {
    /// Which entities; all without.
    pub filter: Option<Filter>,
    /// In which order; that of keys without.
    pub order: Option<Order>,
    /// Where the page before ended.
    pub from: Option<Position>,
    /// Most entities; none if 0.
    pub limit: usize,
    /// When the page ends even if it is short.
    pub deadline: Instant,
}

/// What a query found.
#[derive(Clone, Debug)]
pub struct EntityPage {
    /// The entities in the order asked for.
    pub rows: Rows,
    /// Where the next page starts; none after the last match.
    pub next: Option<Position>,
    /// How the page was read.
    pub plan: PlanKind,
    /// How many entities were looked at for it.
    pub examined: u64,
}

/// How many entities satisfy a filter.
#[derive(Clone, Copy, Debug)]
pub struct EntityCount {
    /// So many.
    pub count: u64,
    /// How they were counted.
    pub plan: PlanKind,
    /// How many entities were looked at for it.
    pub examined: u64,
}

impl TableService {
    /// Counts the entities that satisfy the filter; those outside the caller's range are not even looked at. Fails with
    /// [`TableError::TooManyToCount`] if the deadline comes first.
    pub async fn count(
        &self,
        caller: Caller<'_>,
        table: &TableName,
        filter: Option<Filter>,
        deadline: Instant,
    ) -> Result<EntityCount, TableError> {
        caller.grant.check(Access::ReadEntities, Some(table))?;
        let table = self.table(caller, table).await?;
        let Plan { kind: plan, ranges, residual } = rowhouse_query::plan(filter);
        let ranges = clipped(ranges, caller.grant.range());
        if ranges.is_empty() {
            return Ok(EntityCount { count: 0, plan, examined: 0 });
        }
        let scan = Scan {
            ranges,
            direction: Direction::Ascending,
            take: Take::Count,
            filter: residual,
            limit: usize::MAX,
            max_bytes: usize::MAX,
            deadline,
        };
        let page = self.store.scan(table.id, scan).await?;
        match page.next {
            None => Ok(EntityCount { count: page.counted, plan, examined: page.examined }),
            Some(_) => Err(TableError::TooManyToCount),
        }
    }

    /// Reads one page. Entities outside the caller's range are not even looked at.
    pub async fn query(
        &self,
        caller: Caller<'_>,
        table: &TableName,
        query: EntityQuery,
    ) -> Result<EntityPage, TableError> {
        caller.grant.check(Access::ReadEntities, Some(table))?;
        let table = self.table(caller, table).await?;
        let Plan { kind, ranges, residual } = rowhouse_query::plan(query.filter);
        if query.order.is_some_and(|order| order.within_partition) && !is_one_partition(&ranges) {
            return Err(TableError::OrderOfPartitions);
        }
        let direction = query.order.map_or(Direction::Ascending, |order| order.direction);
        let resumed = query.from.map(|from| direction.rest(&from));
        let ranges = clipped(clipped(ranges, caller.grant.range()), resumed.as_ref());
        let found = |page: Page| EntityPage {
            rows: page.rows,
            next: page.next,
            plan: kind,
            examined: page.examined,
        };
        if query.limit == 0 || ranges.is_empty() {
            return Ok(found(Page::default()));
        }
        if kind == PlanKind::Point {
            return Ok(found(self.read_point(table.id, &ranges[0], residual.as_deref()).await?));
        }
        let scan = Scan {
            ranges,
            direction,
            take: Take::Entities,
            filter: residual,
            limit: query.limit.min(limits::PAGE_ITEMS_MAX),
            max_bytes: limits::PAGE_BYTES_MAX,
            deadline: query.deadline,
        };
        Ok(found(self.store.scan(table.id, scan).await?))
    }

    /// A filter that names one key costs what a read of one entity costs.
    async fn read_point(
        &self,
        table: TableId,
        range: &KeyRange,
        filter: Option<&Filter>,
    ) -> Result<Page, TableError> {
        let mut page = Page::default();
        // A text that is not a legal key is the key of nothing.
        let Ok(key) = EntityKey::new(&range.start.partition, &range.start.row) else {
            return Ok(page);
        };
        if let Some(record) = self.store.get(table, &key).await? {
            page.examined = 1;
            let (partition, row) = (key.partition.as_str(), key.row.as_str());
            let row = Row { partition, row, record: record.as_ref() };
            if filter.map_or(Ok(true), |filter| filter.matches(&row))? {
                page.rows.push(&row);
            }
        }
        Ok(page)
    }
}

/// What of the ranges is inside another.
fn clipped(ranges: Vec<KeyRange>, clip: Option<&KeyRange>) -> Vec<KeyRange> {
    match clip {
        Some(clip) => ranges.iter().filter_map(|range| range.intersect(clip)).collect(),
        None => ranges,
    }
}

/// True if no two partitions can be in the ranges.
fn is_one_partition(ranges: &[KeyRange]) -> bool {
    let Some(first) = ranges.first() else { return true };
    let partition = KeyRange::partition(&first.start.partition);
    ranges.iter().all(|range| range.intersect(&partition).as_ref() == Some(range))
}
