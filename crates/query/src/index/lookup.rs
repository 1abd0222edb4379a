//! Ways to find what satisfies a filter through several indexes.
//!
//! One index is a way if it has spans for the filter. An `or` whose every branch has a way is another: the parts of all
//! branches together, each branch narrowed by everything else that the filter says. A branch takes the way
//! that looks best by its shape; which way is taken in the end is for whoever knows how many entries there are.

use super::component;
use super::condition::{possible, properties, said};
use super::set::Set;
use super::spans::{merged, spans_of};
use super::{IndexKeys, Part, Span};
use crate::Filter;
use crate::expr::Expr;
use rowhouse_types::limits;
use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;

/// How deep an `or` inside a branch of another is looked at.
const NESTED_MAX: usize = 3;
/// How many branches are looked at in all, so that a filter of any size is done in bounded time.
const BRANCHES_MAX: usize = 2 * limits::PLAN_RANGES_MAX;

/// How many conditions are looked at for a property between pauses, each in up to a microsecond.
const WORK_PER_TURN: usize = 512;

/// Ways to find every entity that satisfies the filter: each is a list of parts of indexes, and every such entity
/// has an entry in at least one of them.
///
/// Those that look best by their shape come first; at most twice as many as there are indexes, and one. If no entity can
/// satisfy the filter and the indexes show it, there is one way, of one part without spans.
pub fn lookups<I: Copy>(filter: &Filter, indexes: &[(I, &IndexKeys)]) -> Vec<Vec<Part<I>>> {
    lookups_in_turns(filter, indexes, &|| ())
}

/// What [`lookups`] finds, for a thread that yields the processor now and then. For a long filter and
/// many indexes this takes milliseconds, and calls `pause` in every fraction of one.
pub fn lookups_in_turns<I: Copy>(
    filter: &Filter,
    indexes: &[(I, &IndexKeys)],
    pause: &dyn Fn(),
) -> Vec<Vec<Part<I>>> {
    if indexes.is_empty() {
        return Vec::new();
    }
    let finder = Finder::new(indexes.iter().map(|(_, keys)| *keys), pause);
    let mut ways = finder.ways(filter.root());
    if let Some(at) = ways.iter().position(|way| way.cost == 0) {
        ways = vec![ways.swap_remove(at)];
    }
    ways.sort_by_key(|way| way.cost);
    let part = |(at, spans): (usize, Vec<Span>)| Part { index: indexes[at].0, spans };
    ways.into_iter().map(|way| way.parts.into_iter().map(part).collect()).collect()
}

/// A condition, or its negation.
#[derive(Clone, Copy)]
struct Condition<'a> {
    expr: &'a Expr,
    negated: bool,
}

/// Parts of indexes, each index once, in their order.
#[derive(PartialEq)]
struct Way {
    parts: Vec<(usize, Vec<Span>)>,
    /// Less looks better; 0 if nothing is read.
    cost: u64,
}

/// What each property can be, in the order of [`Finder::names`]. Most conditions say nothing about most properties, and then
/// nothing is made for them.
type Facts = Vec<Rc<Set>>;

struct Finder<'a> {
    /// The properties of all indexes.
    names: Vec<&'a str>,
    /// Each index with the places of its properties among the names.
    indexes: Vec<(&'a IndexKeys, Vec<usize>)>,
    /// How many branches may still be looked at.
    branches: Cell<usize>,
    /// How many conditions were looked at for a property since the last pause.
    worked: Cell<usize>,
    pause: &'a dyn Fn(),
}

impl<'a> Finder<'a> {
    fn new(indexes: impl Iterator<Item = &'a IndexKeys>, pause: &'a dyn Fn()) -> Self {
        let mut names: Vec<&str> = Vec::new();
        let mut place = |name: &'a str| {
            names.iter().position(|known| *known == name).unwrap_or_else(|| {
                names.push(name);
                names.len() - 1
            })
        };
        let indexes = indexes
            .map(|keys| (keys, keys.properties.iter().map(|name| place(name)).collect()))
            .collect();
        let (branches, worked) = (Cell::new(BRANCHES_MAX), Cell::new(0));
        Self { names, indexes, branches, worked, pause }
    }

    /// One for each index that has spans, and one for each `or` that every entity has to satisfy.
    fn ways(&self, root: &Expr) -> Vec<Way> {
        let condition = Condition { expr: root, negated: false };
        let possible = self.names.iter().map(|name| Rc::new(possible(name))).collect();
        let facts = self.narrowed(possible, &[condition]);
        let mut ways = self.of_one(&facts);
        let most = 2 * self.indexes.len() + 1;
        for branches in condition.alternatives() {
            if most <= ways.len() || ways.iter().any(|way| way.cost == 0) {
                break;
            }
            ways.extend(
                self.of_all(branches, &facts, NESTED_MAX).filter(|way| !ways.contains(way)),
            );
        }
        ways
    }

    /// What every entity has that has this and satisfies at least one of the conditions.
    fn narrowed(&self, mut facts: Facts, any: &[Condition<'_>]) -> Facts {
        let conditions = any.iter().map(|condition| condition.expr.terms()).sum();
        for (name, fact) in self.names.iter().zip(&mut facts) {
            let sets = any.iter().map(|c| said(c.expr, c.negated, name));
            if let Some(sets) = sets.collect::<Option<Vec<_>>>() {
                *fact = Rc::new(fact.intersect(&Set::any_of(sets)));
            }
            self.count(conditions);
        }
        facts
    }

    /// Counts conditions that were looked at, and pauses after some.
    fn count(&self, conditions: usize) {
        let worked = self.worked.get() + conditions;
        if worked < WORK_PER_TURN {
            self.worked.set(worked);
        } else {
            self.worked.set(0);
            (self.pause)();
        }
    }

    /// The ways through one index.
    fn of_one(&self, facts: &Facts) -> Vec<Way> {
        let of = |(at, (keys, places)): (usize, &(&IndexKeys, Vec<usize>))| {
            let sets: Vec<_> = places.iter().map(|place| &*facts[*place]).collect();
            Some(Way::new(vec![(at, spans_of(keys, &sets)?)]))
        };
        self.indexes.iter().enumerate().filter_map(of).collect()
    }

    /// The way through the parts of all branches; none if a branch has no way.
    fn of_all(&self, branches: Vec<Condition<'_>>, facts: &Facts, nested: usize) -> Option<Way> {
        let branches = grouped(branches);
        self.branches.set(self.branches.get().checked_sub(branches.len())?);
        let mut parts: Vec<Vec<Span>> = vec![Vec::new(); self.indexes.len()];
        for branch in branches {
            let facts = self.narrowed(facts.clone(), &branch);
            for (at, spans) in self.best(&branch, &facts, nested)?.parts {
                parts[at].extend(spans);
            }
        }
        let used = parts.into_iter().enumerate().filter(|(_, spans)| !spans.is_empty());
        let mut parts: Vec<_> = used.map(|(at, spans)| (at, merged(spans))).collect();
        if parts.is_empty() {
            parts.push((0, Vec::new()));
        }
        Some(Way::new(parts))
    }

    /// The way that looks best for a branch.
    fn best(&self, branch: &[Condition<'_>], facts: &Facts, nested: usize) -> Option<Way> {
        let one = self.of_one(facts).into_iter().min_by_key(|way| way.cost);
        let (Some(deeper), [condition]) = (nested.checked_sub(1), branch) else { return one };
        let several = condition.alternatives().into_iter();
        let several = several.filter_map(|branches| self.of_all(branches, facts, deeper));
        one.into_iter().chain(several).min_by_key(|way| way.cost)
    }
}

/// Conditions on the same property alone become one branch, the others one each.
fn grouped(conditions: Vec<Condition<'_>>) -> Vec<Vec<Condition<'_>>> {
    let mut branches: Vec<Vec<Condition<'_>>> = Vec::new();
    let mut known = HashMap::new();
    for condition in conditions {
        let place = match condition.property() {
            Some(name) => *known.entry(name).or_insert(branches.len()),
            None => branches.len(),
        };
        match branches.get_mut(place) {
            Some(branch) => branch.push(condition),
            None => branches.push(vec![condition]),
        }
    }
    branches
}

impl<'a> Condition<'a> {
    fn part(self, expr: &'a Expr) -> Self {
        Self { expr, ..self }
    }

    /// Every `or` that has to be satisfied, each as its branches.
    fn alternatives(self) -> Vec<Vec<Self>> {
        match self.expr {
            Expr::Not(part) => Self { expr: part, negated: !self.negated }.alternatives(),
            Expr::And(parts) | Expr::Or(parts) if self.is_all() => {
                parts.iter().flat_map(|part| self.part(part).alternatives()).collect()
            }
            Expr::And(_) | Expr::Or(_) => vec![self.branches()],
            _ => Vec::new(),
        }
    }

    /// The conditions of which one has to be satisfied.
    fn branches(self) -> Vec<Self> {
        match self.expr {
            Expr::Not(part) => Self { expr: part, negated: !self.negated }.branches(),
            Expr::And(parts) | Expr::Or(parts) if !self.is_all() => {
                parts.iter().flat_map(|part| self.part(part).branches()).collect()
            }
            _ => vec![self],
        }
    }

    /// Of several conditions, whether all have to be satisfied.
    fn is_all(self) -> bool {
        matches!(self.expr, Expr::And(_)) != self.negated
    }

    /// The one property that a single comparison is about.
    fn property(self) -> Option<&'a str> {
        match self.expr {
            Expr::Compare { property, .. } | Expr::Property(property) => Some(property),
            Expr::Call { call, .. } => match *properties(call) {
                [name] => Some(name),
                _ => None,
            },
            _ => None,
        }
    }
}

impl Way {
    fn new(parts: Vec<(usize, Vec<Span>)>) -> Self {
        let cost = parts.iter().flat_map(|(_, spans)| spans).map(cost).sum();
        Self { parts, cost }
    }
}

/// How wide a span looks, when nothing is known of the values.
fn cost(span: &Span) -> u64 {
    const ENTRY: u64 = 1;
    const VALUE: u64 = 4;
    const BETWEEN: u64 = 64;
    const FROM_OR_TO: u64 = 512;
    const TYPE: u64 = 4096;
    let (start, Some(end)) = (&*span.start, span.end.as_deref()) else { return TYPE };
    if span.single().is_some() {
        return ENTRY;
    }
    let first = component::length(start).map(|len| component::after(&start[..len]));
    if first.is_some_and(|after| *end <= *after) {
        return VALUE;
    }
    let Some(&tag) = start.first() else { return TYPE };
    let (lowest, highest) = (component::first(tag), component::first(tag + 1));
    match (lowest[..] < *start, *end < highest[..]) {
        (true, true) => BETWEEN,
        (false, false) => TYPE,
        _ => FROM_OR_TO,
    }
}
