//! What would make a query cheap: an index, or other keys.
//!
//! How it is said, and with which command an index is declared, is for whoever shows it.
//!
//! An index is advised only if the planner would use it ([`rowhouse_query::index`] is asked). Whether it is worth its
//! writes, nobody here can tell.

use crate::costly::is_costly;
use crate::planner::PlanTaken;
use crate::threads::give_way;
use rowhouse_query::index::{IndexKeys, lookups_in_turns, spans};
use rowhouse_query::{Call, Comparison, Expr, Filter, PlanKind, Test, Text};
use rowhouse_store::{Index, IndexState, Table};
use rowhouse_types::{IndexName, limits};

/// Most properties of a filter that are looked at.
pub(crate) const PROPERTIES_MAX: usize = limits::INDEXES_MAX;

/// What would make a query cheap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Advice {
    /// An index of this avoids the scan.
    Create(WantedIndex),
    /// This index will avoid the scan; it is still being built.
    Building(IndexName),
    /// This index would avoid the scan, but was to be unique and values repeat.
    NotUnique(IndexName),
    /// This index is there, but reading through it would look at no less.
    NoLess(IndexName),
    /// An index may avoid the scan. Which one is for those to know who hold a key of the account.
    AskOwner,
    /// There is no filter.
    NoFilter,
    /// The filter has no condition that an index can look up.
    NoCondition,
}

/// An index with which a query would be cheap: it has these properties in front.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedIndex {
    /// Properties whose values the filter names, in any order.
    pub equal: Vec<Box<str>>,
    /// The property after them, of which the filter or the order names a range.
    pub ranged: Option<Box<str>>,
}

impl WantedIndex {
    /// All properties, in an order that an index may have them in.
    pub fn properties(&self) -> impl Iterator<Item = &str> {
        self.equal.iter().chain(&self.ranged).map(|name| &**name)
    }

    /// Whether an index serves as well, whether or not it can be read now.
    pub(crate) fn is_covered_by(&self, keys: &IndexKeys) -> bool {
        let Some((first, rest)) = keys.properties.split_at_checked(self.equal.len()) else {
            return false;
        };
        let same = self.equal.iter().all(|name| first.contains(name));
        let ranged = self.ranged.as_ref().is_none_or(|name| rest.first() == Some(name));
        // Of a unique index entities are missing that lack one of its other properties.
        let whole = !keys.unique || keys.properties.len() == self.properties().count();
        same && ranged && whole
    }
}

/// The indexes with which a query would be cheap.
pub(crate) fn wanted(filter: Option<&Filter>, order: Option<&str>) -> Vec<WantedIndex> {
    let by_filter = filter.map(of_filter).unwrap_or_default();
    match order {
        Some(property) if by_filter.is_empty() => {
            vec![WantedIndex { equal: Vec::new(), ranged: Some(property.into()) }]
        }
        _ => by_filter,
    }
}

/// Whether a query that was read so is worth advice.
pub(crate) fn is_worth(plan: &PlanTaken, examined: u64, returned: u64) -> bool {
    match plan {
        PlanTaken::Index(_) | PlanTaken::Keys(PlanKind::Point | PlanKind::MultiPoint) => false,
        PlanTaken::Keys(kind) => *kind == PlanKind::TableScan || is_costly(examined, returned),
    }
}

/// What to do for a query for which these indexes are wanted.
pub(crate) fn advise(table: &Table, has_filter: bool, wanted: Vec<WantedIndex>) -> Vec<Advice> {
    if wanted.is_empty() {
        return vec![if has_filter { Advice::NoCondition } else { Advice::NoFilter }];
    }
    wanted.into_iter().map(|wanted| about(table, wanted)).collect()
}

/// Those of the wanted indexes that the table has not, in any state.
pub(crate) fn missing(table: &Table, wanted: &[WantedIndex]) -> Vec<WantedIndex> {
    let is_there =
        |wanted: &WantedIndex| table.indexes.iter().any(|index| wanted.is_covered_by(&index.keys));
    wanted.iter().filter(|wanted| !is_there(wanted)).cloned().collect()
}

/// What to do about an index that would help: it may be there.
fn about(table: &Table, wanted: WantedIndex) -> Advice {
    let covering = table.indexes.iter().filter(|index| wanted.is_covered_by(&index.keys));
    // One that can be read says more than one that cannot.
    let first = covering.min_by_key(|index| match index.state {
        IndexState::Ready => 0,
        IndexState::Building => 1,
        IndexState::NotUnique => 2,
    });
    match first {
        None => Advice::Create(wanted),
        Some(Index { name, state: IndexState::Building, .. }) => Advice::Building(name.clone()),
        Some(Index { name, state: IndexState::NotUnique, .. }) => Advice::NotUnique(name.clone()),
        Some(Index { name, state: IndexState::Ready, .. }) => Advice::NoLess(name.clone()),
    }
}

fn of_filter(filter: &Filter) -> Vec<WantedIndex> {
    let keys = |properties: &[&str]| IndexKeys {
        properties: properties.iter().map(|&name| name.into()).collect(),
        unique: false,
    };
    let conditions: &[Expr] = match filter.root() {
        Expr::And(parts) => parts,
        other => std::slice::from_ref(other),
    };
    let (mut equal, mut ranged) = (Vec::new(), Vec::new());
    for condition in conditions {
        match looked_up(condition) {
            Some((property, true)) if !equal.contains(&property) => equal.push(property),
            Some((property, false)) if !ranged.contains(&property) => ranged.push(property),
            _ => {}
        }
    }
    // The partition is found by its key; in an index it would only make entries longer.
    equal.retain(|property| *property != "PartitionKey");
    ranged.retain(|property| *property != "PartitionKey" && !equal.contains(property));
    equal.truncate(limits::INDEX_PROPERTIES_MAX);
    ranged.truncate(usize::from(equal.len() < limits::INDEX_PROPERTIES_MAX));
    let together: Vec<&str> = equal.iter().chain(&ranged).copied().collect();
    if !together.is_empty() && spans(filter, &keys(&together)).is_some() {
        let owned = |name: &&str| Box::from(*name);
        let equal = equal.iter().map(owned).collect();
        return vec![WantedIndex { equal, ranged: ranged.first().map(owned) }];
    }
    let mut properties = Vec::new();
    gather(filter.root(), &mut properties);
    let each: Vec<IndexKeys> = properties.iter().map(|property| keys(&[*property])).collect();
    let numbered: Vec<_> = each.iter().enumerate().collect();
    let ways = lookups_in_turns(filter, &numbered, &give_way);
    let Some(way) = ways.iter().min_by_key(|way| way.len()) else { return Vec::new() };
    let used = |at: &usize| way.iter().any(|part| part.index == *at);
    // Alone and in front, it does not matter whether its values are named.
    let of = |at: usize| WantedIndex { equal: vec![properties[at].into()], ranged: None };
    (0..properties.len()).filter(used).map(of).collect()
}

/// The property whose values a condition looks up, and whether it names the values one by one.
fn looked_up(condition: &Expr) -> Option<(&str, bool)> {
    match condition {
        Expr::Compare { comparison: Comparison::NotEqual, .. } => None,
        Expr::Compare { property, comparison, .. } => {
            Some((property, *comparison == Comparison::Equal))
        }
        Expr::Property(name) => Some((name, true)),
        Expr::Call {
            call: Call::Test { test: Test::StartsWith, text: Text::Property(name), part },
            ..
        } => matches!(part, Text::Literal(_)).then_some((name, false)),
        Expr::Or(parts) => {
            let mut all = parts.iter().map(looked_up);
            let first = all.next()??;
            all.all(|other| other == Some(first)).then_some(first)
        }
        Expr::And(_) | Expr::Not(_) | Expr::Call { .. } | Expr::Constant(_) => None,
    }
}

/// Every property that some condition looks up, in the order of the filter.
fn gather<'f>(expr: &'f Expr, found: &mut Vec<&'f str>) {
    match expr {
        Expr::And(parts) | Expr::Or(parts) => parts.iter().for_each(|part| gather(part, found)),
        condition => {
            if let Some((property, _)) = looked_up(condition)
                && found.len() < PROPERTIES_MAX
                && property != "PartitionKey"
                && !found.contains(&property)
            {
                found.push(property);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_for_filters() {
        let cases: &[(&str, Option<&str>, &[&str])] = &[
            ("Email eq 'x'", None, &["Email"]),
            ("Email eq 'x'", Some("Age"), &["Email"]),
            ("", Some("Age"), &["Age"]),
            ("", None, &[]),
            ("Age gt 5 and City eq 'a'", None, &["City,Age"]),
            ("Age gt 5 and Age lt 9", None, &["Age"]),
            ("City in ('a','b') and startswith(Name,'x')", None, &["City,Name"]),
            ("City eq 'a' or Zip eq 'b'", None, &["City", "Zip"]),
            ("PartitionKey eq 'p' and Email eq 'x'", None, &["Email"]),
            ("RowKey eq 'r'", None, &["RowKey"]),
            ("Active", None, &["Active"]),
            ("contains(Name,'x')", None, &[]),
            ("City eq 'a' and contains(Name,'x')", None, &["City"]),
            ("City eq 'a' or contains(Name,'x')", None, &[]),
            ("City ne 'a'", None, &[]),
        ];
        for (filter, order, expected) in cases {
            let filter_text = filter;
            let filter = Filter::parse(filter).unwrap();
            let found: Vec<String> = wanted(filter.as_ref(), *order)
                .iter()
                .map(|wanted| wanted.properties().collect::<Vec<_>>().join(","))
                .collect();
            assert_eq!(found, *expected, "{filter_text}");
        }
    }

    #[test]
    fn what_serves_as_well() {
        let cases: &[(&str, Option<&str>, &str, bool, bool)] = &[
            ("Email eq 'x'", None, "Email", false, true),
            ("Email eq 'x'", None, "Email", true, true),
            ("Email eq 'x'", None, "Email,City", false, true),
            ("Email eq 'x'", None, "Email,City", true, false),
            ("Email eq 'x'", None, "City,Email", false, false),
            ("City eq 'a' and Zip eq 'b'", None, "Zip,City", false, true),
            ("City eq 'a' and Zip eq 'b'", None, "Zip", false, false),
            ("City eq 'a' and Age gt 5", None, "City,Age", false, true),
            ("City eq 'a' and Age gt 5", None, "Age,City", false, false),
            ("City eq 'a' and Age gt 5", None, "City", false, false),
            ("", Some("Age"), "Age,City", false, true),
            ("", Some("Age"), "City,Age", false, false),
        ];
        for (filter, order, properties, unique, covered) in cases {
            let parsed = Filter::parse(filter).unwrap();
            let wanted = wanted(parsed.as_ref(), *order).remove(0);
            let properties = properties.split(',').map(Into::into).collect();
            let keys = IndexKeys { properties, unique: *unique };
            assert_eq!(wanted.is_covered_by(&keys), *covered, "{filter} {order:?} {keys:?}");
        }
    }
}
