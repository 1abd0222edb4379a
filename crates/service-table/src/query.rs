//! Queries: plan, clip to what the caller may see, read one page.

use crate::costly::Seen;
use crate::order::Ordered;
use crate::planner::{Chosen, PlanTaken, Reading};
use crate::{Caller, OrderPlace, TableError, TableService};
use rowhouse_query::{Filter, Order, PlanKind};
use rowhouse_store::{Page, Table, TableId, Take};
use rowhouse_types::{
    Access, Corrupt, Direction, EntityKey, KeyRange, Position, Row, Rows, TableName, limits,
};
use std::sync::Arc;
use std::time::Instant;

/// One page of a query.
#[derive(Clone, Debug)]
pub struct EntityQuery {
    /// Which entities; all without.
    pub filter: Option<Filter>,
    /// The properties that the caller looks at; all without. What is found may have more.
    pub select: Option<Arc<[Box<str>]>>,
    /// In which order; that of keys without.
    pub order: Option<Order>,
    /// Where the page before ended.
    pub from: Option<Place>,
    /// Most entities; none if 0.
    pub limit: usize,
    /// The caller named the limit: it wants no more than so many.
    pub limited: bool,
    /// When the page ends even if it is short.
    pub deadline: Instant,
}

/// Where a page ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the order of keys.
    Key(Position),
    /// In the order of a property.
    Order(OrderPlace),
}

/// What a query found.
#[derive(Clone, Debug)]
pub struct EntityPage {
    /// The entities in the order asked for.
    pub rows: Rows,
    /// Where the next page starts; none after the last match.
    pub next: Option<Place>,
    /// How the page was read.
    pub plan: PlanTaken,
    /// How many entities or entries of indexes were looked at for it.
    pub examined: u64,
    pub(crate) ordered: Option<Ordered>,
}

impl EntityPage {
    /// The place of one of its entities: a page that starts there starts with it.
    pub fn place_of(&self, row: &Row<'_>) -> Result<Place, Corrupt> {
        match &self.ordered {
            None => Ok(Place::Key(Position::before(row.partition, row.row))),
            Some(ordered) => ordered.place_of(row).map(Place::Order),
        }
    }
}

/// How many entities satisfy a filter.
#[derive(Clone, Debug)]
pub struct EntityCount {
    /// So many.
    pub count: u64,
    /// How they were counted.
    pub plan: PlanTaken,
    /// How many entities or entries of indexes were looked at for it.
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
        let mut chosen = self.choose(caller, &table, filter, None, deadline).await?;
        let reading = Reading {
            direction: Direction::Ascending,
            take: Take::Count,
            select: None,
            limit: usize::MAX,
            deadline,
        };
        let page = self.read(&table, &mut chosen, &reading).await?;
        let (plan, examined, count) = (chosen.plan, page.examined, page.counted);
        let seen = Seen { plan: plan.clone(), examined, returned: count };
        self.note(&table, chosen.filter, None, seen, deadline).await;
        match page.next {
            None => Ok(EntityCount { count, plan: plan.shown_to(caller), examined }),
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
        let (page, _) = self.page(caller, &table, query).await?;
        Ok(page)
    }

    /// A page, and how it was chosen to be read so.
    pub(crate) async fn page(
        &self,
        caller: Caller<'_>,
        table: &Arc<Table>,
        query: EntityQuery,
    ) -> Result<(EntityPage, Chosen), TableError> {
        let direction = match &query.order {
            None => Direction::Ascending,
            Some(Order::Keys { direction, within_partition: false }) => *direction,
            Some(Order::Keys { direction, within_partition: true }) => {
                // A token of the order of RowKeys over partitions is one of a property.
                let one = matches!(query.from, Some(Place::Key(_)) | None)
                    && self.is_one_partition(query.filter.as_ref(), query.deadline).await?;
                if !one {
                    let direction = *direction;
                    return self.page_by_property(caller, table, "RowKey", direction, query).await;
                }
                *direction
            }
            Some(Order::Property { name, direction }) => {
                let (name, direction) = (name.clone(), *direction);
                return self.page_by_property(caller, table, &name, direction, query).await;
            }
        };
        let from = match query.from {
            None => None,
            Some(Place::Key(position)) => Some(direction.rest(&position)),
            Some(Place::Order(_)) => return Err(TableError::OrderPlaceGone),
        };
        let deadline = query.deadline;
        let mut chosen = self.choose(caller, table, query.filter, from.as_ref(), deadline).await?;
        let page = if query.limit == 0 || chosen.ranges.is_empty() {
            Page::default()
        } else if chosen.kind == PlanKind::Point {
            self.read_point(table.id, &chosen.ranges[0], chosen.filter.as_deref()).await?
        } else {
            let limit = query.limit.min(limits::PAGE_ITEMS_MAX);
            let select = query.select;
            let reading = Reading { direction, take: Take::Entities, select, limit, deadline };
            self.read(table, &mut chosen, &reading).await?
        };
        let page = EntityPage {
            rows: page.rows,
            next: page.next.map(Place::Key),
            plan: chosen.plan.clone().shown_to(caller),
            examined: page.examined,
            ordered: None,
        };
        let returned = page.rows.len() as u64;
        let seen = Seen { plan: chosen.plan.clone(), examined: page.examined, returned };
        self.note(table, chosen.filter.clone(), None, seen, deadline).await;
        Ok((page, chosen))
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
