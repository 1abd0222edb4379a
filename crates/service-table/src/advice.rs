//! What would make a query cheap: an index, as the command that declares it, or other keys.
//!
//! An index is advised only if the planner would use it ([`rowhouse_query::index`] is asked). Whether it is worth its
//! writes, nobody here can tell.

use crate::costly::is_costly;
use crate::planner::PlanTaken;
use rowhouse_query::index::{IndexKeys, lookups, spans};
use rowhouse_query::{Call, Comparison, Expr, Filter, PlanKind, Test, Text};
use rowhouse_store::{Index, IndexState, Table};
use rowhouse_types::limits;

/// Most properties of a filter that are looked at.
const PROPERTIES_MAX: usize = limits::INDEXES_MAX;

/// What was asked and what it took.
pub(crate) struct Case<'a> {
    pub(crate) table: &'a Table,
    pub(crate) filter: Option<&'a Filter>,
    /// The property that the answer is in the order of.
    pub(crate) order: Option<&'a str>,
    pub(crate) plan: &'a PlanTaken,
    pub(crate) examined: u64,
    pub(crate) returned: u64,
}

/// The commands that declare the indexes with which a query would be cheap; none if there are no such.
pub(crate) fn commands(table: &str, filter: Option<&Filter>, order: Option<&str>) -> Vec<String> {
    indexes(filter, order).iter().map(|properties| command(table, properties)).collect()
}

/// Sentences for whoever wrote the query; none if it is cheap.
pub(crate) fn advise(case: &Case<'_>) -> Vec<String> {
    let scan = match case.plan {
        PlanTaken::Index(_) | PlanTaken::Keys(PlanKind::Point | PlanKind::MultiPoint) => {
            return Vec::new();
        }
        PlanTaken::Keys(kind) => *kind == PlanKind::TableScan,
    };
    if !scan && !is_costly(case.examined, case.returned) {
        return Vec::new();
    }
    let wanted = indexes(case.filter, case.order);
    if !wanted.is_empty() {
        return wanted.iter().map(|properties| about(case.table, properties)).collect();
    }
    let sentence = match case.filter {
        None => {
            "Without a filter every entity is read. Name the PartitionKey, or a property that has an index."
        }
        Some(_) => {
            "No index helps with this filter: it has no condition that values can be looked up by, which are \
             eq, lt, le, gt, ge, in and startswith on a property. Name the PartitionKey, and where possible a range \
             of RowKeys, or keep what is looked for in a property of its own."
        }
    };
    vec![sentence.to_owned()]
}

fn command(table: &str, properties: &[&str]) -> String {
    format!("rowhouse index create {table} {}", properties.join(","))
}

/// What to do about an index that would help: it may be there.
fn about(table: &Table, properties: &[&str]) -> String {
    let same = |index: &&Index| {
        let has = index.keys.properties.iter().map(|name| &**name);
        has.take(properties.len()).eq(properties.iter().copied())
    };
    let Some(index) = table.indexes.iter().find(same) else {
        return format!("{} avoids this scan.", command(table.name.as_str(), properties));
    };
    let name = &index.name;
    match index.state {
        IndexState::Building => {
            format!("The index {name} will avoid this scan; it is still being built.")
        }
        IndexState::NotUnique => format!(
            "The index {name} would avoid this scan, but was to be unique and values repeat. Drop it, and declare \
             it without --unique."
        ),
        IndexState::Ready => {
            format!("The index {name} is there, but reading through it would look at no less.")
        }
    }
}

/// The properties of each index that is missing for the query to be cheap.
fn indexes<'f>(filter: Option<&'f Filter>, order: Option<&'f str>) -> Vec<Vec<&'f str>> {
    let by_filter = filter.map(of_filter).unwrap_or_default();
    match order {
        Some(property) if by_filter.is_empty() => vec![vec![property]],
        _ => by_filter,
    }
}

fn of_filter(filter: &Filter) -> Vec<Vec<&str>> {
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
    let together: Vec<&str> = equal
        .into_iter()
        .chain(ranged.into_iter().take(1))
        .take(limits::INDEX_PROPERTIES_MAX)
        .collect();
    if !together.is_empty() && spans(filter, &keys(&together)).is_some() {
        return vec![together];
    }
    let mut properties = Vec::new();
    gather(filter.root(), &mut properties);
    let each: Vec<IndexKeys> = properties.iter().map(|property| keys(&[*property])).collect();
    let numbered: Vec<_> = each.iter().enumerate().collect();
    let ways = lookups(filter, &numbered);
    let Some(way) = ways.iter().min_by_key(|way| way.len()) else { return Vec::new() };
    let used = |at: &usize| way.iter().any(|part| part.index == *at);
    (0..properties.len()).filter(used).map(|at| vec![properties[at]]).collect()
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
            let expected: Vec<String> = expected
                .iter()
                .map(|list| format!("rowhouse index create People {list}"))
                .collect();
            assert_eq!(commands("People", filter.as_ref(), *order), expected, "{filter_text}");
        }
    }
}
