//! Chooses what to read for a filter: ranges of keys, or parts of secondary indexes.
//!
//! [`rowhouse_query`] tells which ways there are, and that none of them loses a match; the store tells how much each would
//! look at ([`rowhouse_store::Store::weigh`]), and the least wins. Weighing stops early: a point is never weighed, what is small enough
//! is taken at once, and what is too much to count is not counted to its end. A table without indexes costs nothing here.
//!
//! Everything is within the range that the caller may see, estimates too. For one that sees only a part of the table, an index is
//! read only where its entries can be clipped to that part without passing others: one entry, whose entities are in the
//! order of keys, or entries of the partitions in the part ([`is_confined`]). So neither the plan nor any number, nor the time that
//! it takes, depends on what is outside.

use crate::threads::give_way;
use crate::{Caller, TableError, TableService};
use rowhouse_query::index::{is_confined, lookups_in_turns};
use rowhouse_query::{Filter, Plan, PlanKind};
use rowhouse_store::{
    Conflict, Extent, IndexId, IndexState, Lookup, Page, Scan, StoreError, Table, Take,
};
use rowhouse_types::{Direction, IndexName, KeyRange, limits};
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

/// What looks at no more than so much is taken without looking for something better.
const SMALL: u64 = 32;
/// How far is counted at first, and how far if everything is more than that.
const BOUNDS: [u64; 2] = [1_000, 10_000];
/// Most ways through indexes that are weighed.
const WAYS_MAX: usize = 3;

/// How an answer was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanTaken {
    /// In ranges of keys.
    Keys(PlanKind),
    /// Through these indexes; none is named to a caller that may not know them.
    Index(Vec<IndexName>),
}

impl PlanTaken {
    /// As the caller may know it.
    pub(crate) fn shown_to(self, caller: Caller<'_>) -> Self {
        match self {
            Self::Index(_) if !caller.knows_indexes() => Self::Index(Vec::new()),
            plan => plan,
        }
    }
}

impl fmt::Display for PlanTaken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Keys(kind) => write!(f, "{kind}"),
            Self::Index(names) if names.is_empty() => f.write_str("index"),
            Self::Index(names) => {
                f.write_str("index(")?;
                for (at, name) in names.iter().enumerate() {
                    f.write_str(if at > 0 { "," } else { "" })?;
                    f.write_str(name.as_str())?;
                }
                f.write_str(")")
            }
        }
    }
}

/// How much would be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// So many entities or entries.
    pub rows: u64,
    /// It may be more: nobody counted further.
    pub or_more: bool,
}

impl Estimate {
    fn within(rows: u64, bound: u64) -> Self {
        Self { rows, or_more: rows >= bound }
    }
}

/// `12`, or `at least 10000`.
impl fmt::Display for Estimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.or_more { "at least " } else { "" })?;
        write!(f, "{}", self.rows)
    }
}

/// A way that was weighed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Considered {
    /// Which.
    pub plan: PlanTaken,
    /// How much it would look at.
    pub estimate: Estimate,
}

/// What is read.
#[derive(Debug)]
pub(crate) struct Chosen {
    pub(crate) plan: PlanTaken,
    /// How much would be read by keys alone.
    pub(crate) kind: PlanKind,
    /// Within what the caller may see, and what is left of it.
    pub(crate) ranges: Vec<KeyRange>,
    pub(crate) through: Option<Vec<Lookup>>,
    /// None if all in the ranges satisfy it.
    pub(crate) filter: Option<Arc<Filter>>,
    /// If it was weighed.
    pub(crate) estimate: Option<Estimate>,
    pub(crate) considered: Vec<Considered>,
}

/// A way through indexes, while they are compared.
struct Way {
    plan: PlanTaken,
    parts: Vec<Lookup>,
    /// Every span is a single entry: matches come in the order of keys, and a page stops at its limit.
    singles: bool,
    rows: u64,
}

/// One page of what was chosen.
pub(crate) struct Reading {
    pub(crate) direction: Direction,
    pub(crate) take: Take,
    /// The properties that are looked at afterwards; all without.
    pub(crate) select: Option<Arc<[Box<str>]>>,
    pub(crate) limit: usize,
    pub(crate) deadline: Instant,
}

impl Chosen {
    fn by_keys(plan: Plan, clips: &[KeyRange]) -> Self {
        let Plan { kind, ranges, residual } = plan;
        let ranges = clips.iter().fold(ranges, |ranges, clip| clipped(&ranges, clip));
        Self {
            plan: PlanTaken::Keys(kind),
            kind,
            ranges,
            through: None,
            filter: residual,
            estimate: None,
            considered: Vec::new(),
        }
    }

    /// Goes by keys alone: the index is gone.
    pub(crate) fn forget_index(&mut self) {
        self.plan = PlanTaken::Keys(self.kind);
        self.through = None;
        self.estimate = None;
    }

    fn consider(&mut self, plan: PlanTaken, rows: u64, bound: u64) {
        let estimate = Estimate::within(rows, bound);
        match self.considered.iter_mut().find(|other| other.plan == plan) {
            Some(other) => other.estimate = estimate,
            None => self.considered.push(Considered { plan, estimate }),
        }
    }

    fn take(&mut self, way: Way) {
        self.estimate = self.estimate_of(&way.plan);
        self.plan = way.plan;
        if way.parts.iter().all(|part| part.spans.is_empty()) {
            self.ranges.clear();
        }
        self.through = Some(way.parts);
    }

    fn estimate_of(&self, plan: &PlanTaken) -> Option<Estimate> {
        self.considered.iter().find(|other| other.plan == *plan).map(|other| other.estimate)
    }
}

impl TableService {
    /// What to read for a filter within what the caller may see, from a place on.
    pub(crate) async fn choose(
        &self,
        caller: Caller<'_>,
        table: &Arc<Table>,
        filter: Option<Filter>,
        from: Option<&KeyRange>,
        deadline: Instant,
    ) -> Result<Chosen, TableError> {
        let clips: Vec<KeyRange> =
            [caller.grant.range(), from].into_iter().flatten().cloned().collect();
        let units = filter.as_ref().map_or(0, |filter| units(filter, table));
        let planned = {
            let (table, visible) = (Arc::clone(table), caller.visible().cloned());
            move || {
                let chosen = Chosen::by_keys(rowhouse_query::plan(filter), &clips);
                let ways = ways(&table, &chosen, visible.as_ref());
                (chosen, ways)
            }
        };
        let (mut chosen, ways) = self.threads.work(units, deadline, planned).await?;
        if ways.is_empty() {
            return Ok(chosen);
        }
        match self.compare(table, &mut chosen, ways).await {
            Ok(Some(way)) => chosen.take(way),
            Ok(None) => chosen.estimate = chosen.estimate_of(&chosen.plan),
            Err(StoreError::Rejected { reason: Conflict::IndexNotFound, .. }) => {
                chosen.considered.clear();
            }
            Err(error) => return Err(error.into()),
        }
        Ok(chosen)
    }

    /// The way that looks at least; none if that is the one by keys.
    async fn compare(
        &self,
        table: &Table,
        chosen: &mut Chosen,
        mut ways: Vec<Way>,
    ) -> Result<Option<Way>, StoreError> {
        let by_keys = chosen.plan.clone();
        let keys = Extent::Keys(chosen.ranges.clone());
        if chosen.ranges[..] != [KeyRange::all()] {
            let rows = self.store.weigh(table.id, keys.clone(), SMALL + 1).await?;
            chosen.consider(by_keys.clone(), rows, SMALL + 1);
            if rows <= SMALL {
                return Ok(None);
            }
        }
        let [first, last] = BOUNDS;
        for bound in [first, last] {
            for at in 0..ways.len() {
                let rows = self.weigh(table, &ways[at].parts, &chosen.ranges, bound).await?;
                ways[at].rows = rows;
                chosen.consider(ways[at].plan.clone(), rows, bound);
                if rows <= SMALL {
                    return Ok(Some(ways.swap_remove(at)));
                }
            }
            // Of equals the first: that is one of single entries, if there is one.
            let Some(best) = (0..ways.len()).min_by_key(|&at| (ways[at].rows, at)) else { break };
            let rows = ways[best].rows;
            if bound <= rows && bound < last {
                continue;
            }
            let rows_by_keys = self.store.weigh(table.id, keys, rows + 1).await?;
            chosen.consider(by_keys, rows_by_keys, rows + 1);
            // Where nobody knows how much there is, single entries still cost no more than the page they fill.
            let worth = rows < bound || ways[best].singles;
            let less = worth && rows < rows_by_keys;
            return Ok(less.then(|| ways.swap_remove(best)));
        }
        Ok(None)
    }

    /// How many entries a way looks at; the entries of unique indexes need no counting. Where a span is one entry, it is looked at
    /// within the ranges only; any other is looked at as a whole.
    async fn weigh(
        &self,
        table: &Table,
        parts: &[Lookup],
        ranges: &[KeyRange],
        bound: u64,
    ) -> Result<u64, StoreError> {
        let unique = |id: IndexId| table.indexes.iter().any(|i| i.id == id && i.keys.unique);
        let spans: usize = parts.iter().map(|part| part.spans.len()).sum();
        let spans = spans as u64;
        let few = spans <= SMALL && parts.iter().all(|part| unique(part.index) && singles(part));
        if few || spans == 0 {
            return Ok(spans);
        }
        let those = |single: bool| -> Vec<Lookup> {
            let of = |part: &Lookup| {
                let spans = part.spans.iter().filter(|span| span.single().is_some() == single);
                Lookup { index: part.index, spans: spans.cloned().collect() }
            };
            parts.iter().map(of).filter(|part| !part.spans.is_empty()).collect()
        };
        let mut rows = 0;
        for (parts, ranges) in [(those(true), ranges), (those(false), &[KeyRange::all()])] {
            if !parts.is_empty() && rows < bound {
                let extent = Extent::Entries(parts, ranges.to_vec());
                rows += self.store.weigh(table.id, extent, bound - rows).await?;
            }
        }
        Ok(rows.min(bound))
    }

    /// How much there is to read in the ranges, unless it was weighed before.
    pub(crate) async fn estimate(
        &self,
        table: &Table,
        chosen: &Chosen,
    ) -> Result<Estimate, TableError> {
        let bound = BOUNDS[BOUNDS.len() - 1];
        match (chosen.estimate, chosen.kind) {
            (Some(estimate), _) => Ok(estimate),
            (None, PlanKind::Point | PlanKind::MultiPoint) => {
                Ok(Estimate { rows: chosen.ranges.len() as u64, or_more: false })
            }
            (None, _) if chosen.ranges.is_empty() => Ok(Estimate { rows: 0, or_more: false }),
            (None, _) => {
                let keys = Extent::Keys(chosen.ranges.clone());
                let rows = self.store.weigh(table.id, keys, bound).await?;
                Ok(Estimate::within(rows, bound))
            }
        }
    }

    /// Reads a page of what was chosen; without the index if that is gone meanwhile.
    pub(crate) async fn read(
        &self,
        table: &Table,
        chosen: &mut Chosen,
        reading: &Reading,
    ) -> Result<Page, TableError> {
        if chosen.ranges.is_empty() {
            return Ok(Page::default());
        }
        let counting = reading.take == Take::Count;
        let scan = |chosen: &Chosen| Scan {
            ranges: chosen.ranges.clone(),
            through: chosen.through.clone(),
            direction: reading.direction,
            take: reading.take,
            filter: chosen.filter.clone(),
            select: reading.select.clone(),
            limit: reading.limit,
            max_bytes: if counting { usize::MAX } else { limits::PAGE_BYTES_MAX },
            deadline: reading.deadline,
        };
        match self.store.scan(table.id, scan(chosen)).await {
            Err(StoreError::Rejected { reason: Conflict::IndexNotFound, .. })
                if chosen.through.is_some() =>
            {
                chosen.forget_index();
                Ok(self.store.scan(table.id, scan(chosen)).await?)
            }
            outcome => Ok(outcome?),
        }
    }
}

/// How much work it is to plan a filter for a table, as [`crate::threads`] counts.
pub(crate) fn units(filter: &Filter, table: &Table) -> usize {
    let properties: usize = table.indexes.iter().map(|index| index.keys.properties.len()).sum();
    filter.terms().saturating_mul(1 + properties)
}

/// Ways through indexes that can be read, the most promising first; none where the keys tell as much.
fn ways(table: &Table, chosen: &Chosen, visible: Option<&KeyRange>) -> Vec<Way> {
    let ready: Vec<_> = table
        .indexes
        .iter()
        .filter(|index| index.state == IndexState::Ready)
        .map(|index| (index.id, &index.keys))
        .collect();
    let points = matches!(chosen.kind, PlanKind::Point | PlanKind::MultiPoint);
    let Some(filter) = &chosen.filter else { return Vec::new() };
    if ready.is_empty() || points || chosen.ranges.is_empty() {
        return Vec::new();
    }
    let narrowed = visible.map(|range| filter.within_partitions(range));
    let found = lookups_in_turns(narrowed.as_ref().unwrap_or(filter), &ready, &give_way);
    // What cannot be clipped to what the caller may see is not read.
    let clips = |part: &Lookup| {
        let keys = ready.iter().find(|(id, _)| *id == part.index).map(|(_, keys)| *keys);
        visible.is_none_or(|range| {
            let confined = |span| keys.is_some_and(|keys| is_confined(keys, span, range));
            part.spans.iter().all(|span| span.single().is_some() || confined(span))
        })
    };
    let way = |parts: Vec<Lookup>| Way {
        plan: taken(table, &parts),
        singles: parts.iter().all(singles),
        parts,
        rows: 0,
    };
    let mut ways: Vec<Way> =
        found.into_iter().filter(|parts| parts.iter().all(clips)).map(way).collect();
    ways.sort_by_key(|way| (!way.singles, way.parts.len()));
    ways.truncate(WAYS_MAX);
    ways
}

fn singles(part: &Lookup) -> bool {
    part.spans.iter().all(|span| span.single().is_some())
}

fn taken(table: &Table, parts: &[Lookup]) -> PlanTaken {
    let read = |id: IndexId| parts.iter().any(|part| part.index == id);
    let names = table.indexes.iter().filter(|index| read(index.id));
    let names: Vec<_> = names.map(|index| index.name.clone()).collect();
    if names.is_empty() { PlanTaken::Keys(PlanKind::MultiPoint) } else { PlanTaken::Index(names) }
}

/// What of the ranges is inside another.
fn clipped(ranges: &[KeyRange], clip: &KeyRange) -> Vec<KeyRange> {
    ranges.iter().filter_map(|range| range.intersect(clip)).collect()
}
