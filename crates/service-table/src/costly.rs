//! Which queries look at far more than they find, counted by shape.
//!
//! In memory and bounded: what is told is since this server started, about the shapes that cost most. Values are not kept
//! ([`crate::shape`]).

use crate::advice::WantedIndex;
use crate::planner::PlanTaken;
use crate::{Caller, TableError, TableService, advice, shape};
use rowhouse_query::Filter;
use rowhouse_store::{Table, TableId};
use rowhouse_types::{Access, TableName};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Most tables of which queries are remembered; the one whose queries cost least makes room.
const TABLES_MAX: usize = 256;
/// Most shapes of a table.
const SHAPES_MAX: usize = 32;

/// Queries of one shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CostlyQuery {
    /// The filter with `?` for every value; empty without one.
    pub filter: String,
    /// `$orderby`, if it was by a property.
    pub order: Option<String>,
    /// How the last of them was read.
    pub plan: PlanTaken,
    /// How many pages or counts were costly.
    pub count: u64,
    /// How many entities or entries they looked at together.
    pub examined: u64,
    /// How many entities they found together.
    pub returned: u64,
    /// Indexes that would make them cheap and that the table has not.
    pub wanted: Vec<WantedIndex>,
}

/// How a page or a count was read, and what it took.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) plan: PlanTaken,
    pub(crate) examined: u64,
    pub(crate) returned: u64,
}

type Shapes = HashMap<(String, Option<String>), CostlyQuery>;

/// All that is remembered.
#[derive(Debug, Default)]
pub(crate) struct Costly {
    tables: Mutex<HashMap<TableId, Shapes>>,
}

/// Whether so much was looked at for so little that somebody should know.
pub(crate) fn is_costly(examined: u64, returned: u64) -> bool {
    100 + returned.saturating_mul(10) < examined
}

impl Costly {
    /// Remembers a page or a count if it was costly.
    fn note(&self, table: &Table, filter: Option<&Filter>, order: Option<&str>, seen: Seen) {
        let Seen { plan, examined, returned } = seen;
        if !is_costly(examined, returned) {
            return;
        }
        let text = filter.map(shape::shape).unwrap_or_default();
        let key = (text, order.map(str::to_owned));
        // Not while others wait for the lock: with a long filter it takes milliseconds.
        let is_known = self.lock().get(&table.id).is_some_and(|known| known.contains_key(&key));
        let wanted = if is_known {
            Vec::new()
        } else {
            // As the property alone: which end comes first does not matter.
            advice::wanted(filter, order.map(|order| order.trim_end_matches(" desc")))
        };
        let mut tables = self.lock();
        make_room(&mut tables, &table.id, TABLES_MAX, |shapes| {
            shapes.values().map(|query| query.examined).sum()
        });
        let shapes = tables.entry(table.id).or_default();
        if is_known && !shapes.contains_key(&key) {
            // It has made room for others meanwhile, so it costs less than they do.
            return;
        }
        make_room(shapes, &key, SHAPES_MAX, |query| query.examined);
        let (text, by) = key.clone();
        let query = shapes.entry(key).or_insert_with(|| CostlyQuery {
            filter: text,
            order: by,
            plan: plan.clone(),
            count: 0,
            examined: 0,
            returned: 0,
            wanted,
        });
        query.plan = plan;
        query.count += 1;
        query.examined += examined;
        query.returned += returned;
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<TableId, Shapes>> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn of(&self, table: TableId) -> Vec<CostlyQuery> {
        self.lock().get(&table).map(|shapes| shapes.values().cloned().collect()).unwrap_or_default()
    }
}

/// Lets the least go if there is no room for one more.
fn make_room<K: Clone + Eq + std::hash::Hash, V>(
    map: &mut HashMap<K, V>,
    key: &K,
    max: usize,
    weight: impl Fn(&V) -> u64,
) {
    if map.len() < max || map.contains_key(key) {
        return;
    }
    if let Some(least) = map.iter().min_by_key(|(_, value)| weight(value)).map(|(k, _)| k.clone()) {
        map.remove(&least);
    }
}

impl TableService {
    /// Remembers a page or a count if it was costly; not if the time is over and other work waits.
    pub(crate) async fn note(
        &self,
        table: &Arc<Table>,
        filter: Option<Arc<Filter>>,
        order: Option<String>,
        seen: Seen,
        deadline: Instant,
    ) {
        if !is_costly(seen.examined, seen.returned) {
            return;
        }
        let terms = filter.as_ref().map_or(0, |filter| filter.terms());
        let units = terms.saturating_mul(1 + advice::PROPERTIES_MAX);
        let (costly, table) = (Arc::clone(&self.costly), Arc::clone(table));
        let note = move || costly.note(&table, filter.as_deref(), order.as_deref(), seen);
        let _ = self.threads.work(units, deadline, note).await;
    }

    /// The queries of a table that looked at far more than they found, since the server started; the costliest first.
    pub async fn costly_queries(
        &self,
        caller: Caller<'_>,
        table: &TableName,
    ) -> Result<Vec<CostlyQuery>, TableError> {
        caller.grant.check(Access::TableSettings, Some(table))?;
        let table = self.table(caller, table).await?;
        let mut queries = self.costly.of(table.id);
        for query in &mut queries {
            query.wanted = advice::missing(&table, &query.wanted);
        }
        queries.sort_by(|a, b| b.examined.cmp(&a.examined).then_with(|| a.filter.cmp(&b.filter)));
        Ok(queries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rowhouse_query::PlanKind;
    use rowhouse_store::{AccountId, Placement};
    use rowhouse_types::Timestamp;

    fn table(id: u64) -> Table {
        Table {
            id: TableId(id),
            account: AccountId(1),
            name: "People".parse().unwrap(),
            created: Timestamp::default(),
            placement: Placement::default(),
            policies: Vec::new(),
            indexes: Vec::new(),
            ttl: None,
        }
    }

    #[test]
    fn few_are_remembered_and_those_that_cost_most() {
        let costly = Costly::default();
        let scan = PlanTaken::Keys(PlanKind::TableScan);
        let note = |id: u64, filter: &str, examined: u64, returned: u64| {
            let filter = Filter::parse(filter).unwrap();
            let seen = Seen { plan: scan.clone(), examined, returned };
            costly.note(&table(id), filter.as_ref(), None, seen);
        };
        note(1, "contains(a,'cheap')", 100, 0);
        note(1, "contains(a,'cheap')", 1100, 100);
        assert_eq!(costly.of(TableId(1)), []);
        note(1, "contains(a,'x')", 5000, 1);
        note(1, "contains(a,'y')", 7000, 2);
        let found = costly.of(TableId(1));
        assert_eq!(found.len(), 1);
        let CostlyQuery { filter, count, examined, returned, .. } = &found[0];
        assert_eq!((filter.as_str(), *count, *examined, *returned), ("contains(a,?)", 2, 12000, 3));
        for n in 0..2 * SHAPES_MAX {
            note(1, &format!("contains(p{n},'x')"), 200, 0);
        }
        let found = costly.of(TableId(1));
        assert_eq!(found.len(), SHAPES_MAX);
        assert!(found.iter().any(|query| query.filter == "contains(a,?)"));
        for id in 2..2 + 2 * TABLES_MAX as u64 {
            note(id, "contains(a,'x')", 200, 0);
        }
        assert_eq!(costly.tables.lock().unwrap().len(), TABLES_MAX);
        assert_eq!(costly.of(TableId(1)).len(), SHAPES_MAX);
    }
}
