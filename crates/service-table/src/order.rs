//! Answers in the order of a property: by walking an index of it, or by sorting what a scan finds.
//!
//! Both have the same order, that of the entries of an index ([`rowhouse_query::index`]), and leave out entities without the
//! property. A place in it names its index, so that a page never goes on in another one: where an index has more
//! properties, they decide between entities that have the same value.
//!
//! Sorting reads everything that the filter leaves, for every page and at one moment, and keeps no more than a page of it.
//!
//! For a caller that sees only a part of the table the part is always sorted: an index would be walked over what is outside.

use crate::costly::Seen;
use crate::planner::{Chosen, PlanTaken};
use crate::{Caller, EntityPage, EntityQuery, Place, TableError, TableService};
use rowhouse_query::index::{IndexKeys, Span, entry, spans};
use rowhouse_query::{Filter, PlanKind};
use rowhouse_store::{
    Conflict, EntryPlace, Index, IndexId, IndexState, Sort, StoreError, Table, Walk, WalkPage,
};
use rowhouse_types::{Corrupt, Direction, KeyRange, Position, Row, Rows, limits};
use std::sync::Arc;
use std::time::Instant;

/// A filter that leaves no more than so many is sorted rather than looked for along an index.
const SORTED_MAX: u64 = 1_000;

/// Where a page in the order of a property ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderPlace {
    /// Of which index, by its id; none where entities are sorted.
    pub index: Option<u64>,
    /// What the next entity is entered under.
    pub entry: Box<[u8]>,
    /// Its key.
    pub key: Position,
}

/// What a page is in the order of.
#[derive(Clone, Debug)]
pub(crate) struct Ordered {
    index: Option<IndexId>,
    keys: IndexKeys,
}

/// How a page in the order of a property is asked for.
struct Wanted<'a> {
    property: &'a str,
    direction: Direction,
    from: Option<EntryPlace>,
    /// The properties that the caller looks at; all without.
    select: Option<Arc<[Box<str>]>>,
    limit: usize,
    deadline: Instant,
}

impl Ordered {
    /// Where nothing is kept in that order.
    fn sorted(property: &str) -> Self {
        let keys = IndexKeys { properties: vec![property.into()], unique: false };
        Self { index: None, keys }
    }

    fn of(index: &Index) -> Self {
        Self { index: Some(index.id), keys: index.keys.clone() }
    }

    pub(crate) fn place_of(&self, row: &Row<'_>) -> Result<OrderPlace, Corrupt> {
        let entry = entry(&self.keys, row)?.unwrap_or_default();
        let key = Position::before(row.partition, row.row);
        Ok(self.place(EntryPlace { entry: entry.into(), key }))
    }

    /// What is read of an entity: what is wanted of it, and what its place follows from.
    fn reads(&self, select: Option<&[Box<str>]>) -> Option<Arc<[Box<str>]>> {
        let select = select?;
        let more = self.keys.properties.iter().filter(|name| !select.contains(name));
        Some(select.iter().chain(more).cloned().collect())
    }

    fn place(&self, place: EntryPlace) -> OrderPlace {
        let EntryPlace { entry, key } = place;
        OrderPlace { index: self.index.map(|IndexId(id)| id), entry, key }
    }

    fn page(
        self,
        rows: Rows,
        next: Option<EntryPlace>,
        plan: PlanTaken,
        examined: u64,
    ) -> EntityPage {
        let next = next.map(|next| Place::Order(self.place(next)));
        EntityPage { rows, next, plan, examined, ordered: Some(self) }
    }
}

impl TableService {
    /// A page in the order of a property, and how it was chosen to be read so.
    pub(crate) async fn page_by_property(
        &self,
        caller: Caller<'_>,
        table: &Arc<Table>,
        property: &str,
        direction: Direction,
        query: EntityQuery,
    ) -> Result<(EntityPage, Chosen), TableError> {
        let EntityQuery { filter, select, from, limit, limited, deadline, .. } = query;
        let (index, from) = match from {
            None => (index_of(table, property), None),
            Some(Place::Key(_)) => return Err(TableError::OrderPlaceGone),
            Some(Place::Order(OrderPlace { index, entry, key })) => {
                if index.is_some() && caller.visible().is_some() {
                    return Err(TableError::OrderPlaceGone);
                }
                let index = index.map(|id| named(table, property, IndexId(id))).transpose()?;
                (index, Some(EntryPlace { entry, key }))
            }
        };
        let shape = filter.clone().map(Arc::new);
        let mut chosen = self.choose(caller, table, filter, None, deadline).await?;
        let resumed = from.is_some();
        let limit = limit.min(limits::PAGE_ITEMS_MAX);
        let wanted = Wanted { property, direction, from, select, limit, deadline };
        let walked = match index {
            Some(_) if caller.visible().is_some() => None,
            None => None,
            Some(_) if !resumed && self.leaves_little(table, &chosen).await? => None,
            Some(index) => self.walk(table, &mut chosen, index, &wanted).await?,
        };
        let mut page = match walked {
            Some(page) => page,
            // The index that the place is in was dropped under way.
            None if resumed && index.is_some() => return Err(TableError::OrderPlaceGone),
            None if limited || index.is_some() || resumed => {
                self.sort(table, &mut chosen, &wanted).await?
            }
            None if property == "RowKey" => return Err(TableError::OrderOfPartitions),
            None => return Err(TableError::OrderNeedsIndex { property: property.into() }),
        };
        let order = match direction {
            Direction::Ascending => property.to_owned(),
            Direction::Descending => format!("{property} desc"),
        };
        let returned = page.rows.len() as u64;
        let seen = Seen { plan: page.plan.clone(), examined: page.examined, returned };
        self.note(table, shape, Some(order), seen, deadline).await;
        page.plan = page.plan.shown_to(caller);
        Ok((page, chosen))
    }

    /// Whether no two partitions can be in what the filter leaves.
    pub(crate) async fn is_one_partition(
        &self,
        filter: Option<&Filter>,
        deadline: Instant,
    ) -> Result<bool, TableError> {
        let (units, filter) = (filter.map_or(0, Filter::terms), filter.cloned());
        self.threads.work(units, deadline, move || is_one_partition(filter)).await
    }

    /// Whether the filter alone leaves so little that sorting it costs less than walking an index.
    async fn leaves_little(&self, table: &Table, chosen: &Chosen) -> Result<bool, TableError> {
        if chosen.kind == PlanKind::TableScan && chosen.through.is_none() {
            return Ok(false);
        }
        let estimate = self.estimate(table, chosen).await?;
        Ok(!estimate.or_more && estimate.rows <= SORTED_MAX)
    }

    /// A page along the index; none if that is not there any more.
    async fn walk(
        &self,
        table: &Table,
        chosen: &mut Chosen,
        index: &Index,
        wanted: &Wanted<'_>,
    ) -> Result<Option<EntityPage>, TableError> {
        let ordered = Ordered::of(index);
        let plan = PlanTaken::Index(vec![index.name.clone()]);
        chosen.plan = plan.clone();
        let narrowed = match chosen.filter.clone() {
            None => None,
            Some(filter) => {
                let keys = index.keys.clone();
                let units = filter.terms().saturating_mul(keys.properties.len());
                self.threads.work(units, wanted.deadline, move || spans(&filter, &keys)).await?
            }
        };
        let spans = narrowed.unwrap_or_else(|| vec![Span::all()]);
        if wanted.limit == 0 || chosen.ranges.is_empty() || spans.is_empty() {
            return Ok(Some(ordered.page(Rows::default(), None, plan, 0)));
        }
        let walk = Walk {
            index: index.id,
            spans,
            // A page may end at any entry: the caller sees them all.
            ranges: vec![KeyRange::all()],
            keys: chosen.ranges.clone(),
            direction: wanted.direction,
            from: wanted.from.clone(),
            filter: chosen.filter.clone(),
            select: ordered.reads(wanted.select.as_deref()),
            limit: wanted.limit,
            max_bytes: limits::PAGE_BYTES_MAX,
            deadline: wanted.deadline,
        };
        let WalkPage { rows, next, examined } = match self.store.walk(table.id, walk).await {
            Err(StoreError::Rejected { reason: Conflict::IndexNotFound, .. }) => return Ok(None),
            outcome => outcome?,
        };
        Ok(Some(ordered.page(rows, next, plan, examined)))
    }

    /// Reads all that the filter leaves, and keeps the first of it; without the index that narrows it if that is gone meanwhile.
    async fn sort(
        &self,
        table: &Table,
        chosen: &mut Chosen,
        wanted: &Wanted<'_>,
    ) -> Result<EntityPage, TableError> {
        let ordered = Ordered::sorted(wanted.property);
        if wanted.limit == 0 || chosen.ranges.is_empty() {
            return Ok(ordered.page(Rows::default(), None, chosen.plan.clone(), 0));
        }
        let sort = |chosen: &Chosen| Sort {
            keys: ordered.keys.clone(),
            direction: wanted.direction,
            from: wanted.from.clone(),
            ranges: chosen.ranges.clone(),
            through: chosen.through.clone(),
            filter: chosen.filter.clone(),
            select: ordered.reads(wanted.select.as_deref()),
            limit: wanted.limit,
            max_bytes: limits::PAGE_BYTES_MAX,
            deadline: wanted.deadline,
        };
        let sorted = match self.store.sort(table.id, sort(chosen)).await {
            Err(StoreError::Rejected { reason: Conflict::IndexNotFound, .. })
                if chosen.through.is_some() =>
            {
                chosen.forget_index();
                self.store.sort(table.id, sort(chosen)).await?
            }
            outcome => outcome?,
        };
        let too_many = || TableError::TooManyToSort { property: wanted.property.into() };
        let WalkPage { rows, next, examined } = sorted.ok_or_else(too_many)?;
        Ok(ordered.page(rows, next, chosen.plan.clone(), examined))
    }
}

/// An index that has every entity with the property, in the order of it.
fn index_of<'t>(table: &'t Table, property: &str) -> Option<&'t Index> {
    let fits = |index: &&Index| {
        let keys = &index.keys;
        index.state == IndexState::Ready
            && *keys.properties[0] == *property
            && (!keys.unique || keys.properties.len() == 1)
    };
    table.indexes.iter().filter(fits).min_by_key(|index| index.keys.properties.len())
}

/// The index that a place is in.
fn named<'t>(table: &'t Table, property: &str, id: IndexId) -> Result<&'t Index, TableError> {
    let fits = |index: &&Index| index.id == id && *index.keys.properties[0] == *property;
    table.indexes.iter().find(fits).ok_or(TableError::OrderPlaceGone)
}

fn is_one_partition(filter: Option<Filter>) -> bool {
    let ranges = rowhouse_query::plan(filter).ranges;
    let Some(first) = ranges.first() else { return true };
    let partition = KeyRange::partition(&first.start.partition);
    ranges.iter().all(|range| range.intersect(&partition).as_ref() == Some(range))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_place_follows_from_is_read_with_what_is_wanted() {
        let names = |names: &[&str]| names.iter().map(|name| Box::from(*name)).collect::<Vec<_>>();
        let ordered = Ordered::sorted("Age");
        assert_eq!(ordered.reads(None), None);
        for (select, reads) in [
            (&[][..], &["Age"][..]),
            (&["Name"], &["Name", "Age"]),
            (&["Age", "age"], &["Age", "age"]),
        ] {
            assert_eq!(ordered.reads(Some(&names(select))).as_deref(), Some(&*names(reads)));
        }
    }
}
