//! Explains a query: how it is read, what else was possible, what it took and what would make it cheap.
//!
//! The first page is read for it, so that what is told happened. Nothing of the data is told, and nothing about entities
//! outside the caller's range: estimates are within it. Which indexes there are is told to those who hold a key of the account.

use crate::advice::{self, Advice};
use crate::planner::{Considered, Estimate, PlanTaken};
use crate::{Caller, EntityQuery, TableError, TableService};
use rowhouse_query::{Filter, Order};
use rowhouse_types::{Access, KeyRange, Position, TableName};
use std::fmt;

/// How a query is read.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// How it was read.
    pub plan: PlanTaken,
    /// Ranges of keys that were read or that entries had to be in, by shape, with how many there are.
    pub ranges: Vec<(RangeShape, usize)>,
    /// How much all pages together were thought to look at.
    pub estimate: Estimate,
    /// How many entities or entries the first page looked at.
    pub examined: u64,
    /// How many entities it has.
    pub returned: u64,
    /// There is another page.
    pub more: bool,
    /// What was weighed.
    pub considered: Vec<Considered>,
    /// What would make it cheap.
    pub advice: Vec<Advice>,
    /// The table, as it is spelled.
    pub table: TableName,
}

/// How wide a range of keys is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeShape {
    /// One key.
    Key,
    /// A part of a partition.
    PartOfPartition,
    /// A partition.
    Partition,
    /// Over several partitions.
    SeveralPartitions,
    /// The whole table.
    Table,
}

impl RangeShape {
    fn of(range: &KeyRange) -> Self {
        let KeyRange { start, end } = range;
        let Some(end) = end else {
            let all = *range == KeyRange::all();
            return if all { Self::Table } else { Self::SeveralPartitions };
        };
        if *range == KeyRange::point(&start.partition, &start.row) {
            Self::Key
        } else if *range == KeyRange::partition(&start.partition) {
            Self::Partition
        } else if *end <= Position::after_partition(&start.partition) {
            Self::PartOfPartition
        } else {
            Self::SeveralPartitions
        }
    }
}

impl fmt::Display for RangeShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Key => "key",
            Self::PartOfPartition => "part of a partition",
            Self::Partition => "partition",
            Self::SeveralPartitions => "several partitions",
            Self::Table => "table",
        })
    }
}

impl TableService {
    /// Reads the first page of a query and tells how.
    pub async fn explain(
        &self,
        caller: Caller<'_>,
        table: &TableName,
        query: EntityQuery,
    ) -> Result<Explanation, TableError> {
        caller.grant.check(Access::ReadEntities, Some(table))?;
        let table = self.table(caller, table).await?;
        let (filter, deadline) = (query.filter.clone(), query.deadline);
        let order = match &query.order {
            Some(Order::Property { name, .. }) => Some(name.clone()),
            Some(Order::Keys { .. }) | None => None,
        };
        let (page, chosen) = self.page(caller, &table, query).await?;
        let estimate = self.estimate(&table, &chosen).await?;
        let mut ranges: Vec<(RangeShape, usize)> = Vec::new();
        for shape in chosen.ranges.iter().map(RangeShape::of) {
            match ranges.iter_mut().find(|(other, _)| *other == shape) {
                Some((_, count)) => *count += 1,
                None => ranges.push((shape, 1)),
            }
        }
        let (examined, returned) = (page.examined, page.rows.len() as u64);
        let mut advice = Vec::new();
        if advice::is_worth(&page.plan, examined, returned) {
            let has_filter = filter.is_some();
            let terms = filter.as_ref().map_or(0, Filter::terms);
            let units = terms.saturating_mul(1 + advice::PROPERTIES_MAX);
            let wanted = move || advice::wanted(filter.as_ref(), order.as_deref());
            let wanted = self.threads.work(units, deadline, wanted).await?;
            advice = if wanted.is_empty() || caller.knows_indexes() {
                advice::advise(&table, has_filter, wanted)
            } else {
                vec![Advice::AskOwner]
            };
        }
        let shown = |way: Considered| Considered { plan: way.plan.shown_to(caller), ..way };
        Ok(Explanation {
            advice,
            plan: page.plan,
            ranges,
            estimate,
            examined,
            returned,
            more: page.next.is_some(),
            considered: chosen.considered.into_iter().map(shown).collect(),
            table: table.name.clone(),
        })
    }
}
