//! How queries are read, as JSON and as lines for people: the explanation of one, and those that cost most.

use rowhouse_service_table::{
    Advice, Considered, CostlyQuery, Estimate, Explanation, PlanTaken, WantedIndex,
};
use rowhouse_types::{IndexName, TableName};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// The explanation of a query.
pub(crate) fn write(explanation: &Explanation) -> Value {
    let ranges = explanation.ranges.iter();
    let ranges = ranges.map(|(shape, count)| json!({ "shape": shape.to_string(), "count": count }));
    let ways = explanation.considered.iter().map(|Considered { plan, estimate }| {
        let Estimate { rows, or_more } = estimate;
        json!({ "plan": plan.to_string(), "estimated": rows, "orMore": or_more })
    });
    json!({
        "plan": explanation.plan.to_string(),
        "index": indexes(&explanation.plan),
        "ranges": ranges.collect::<Vec<_>>(),
        "estimated": explanation.estimate.rows,
        "orMore": explanation.estimate.or_more,
        "examined": explanation.examined,
        "returned": explanation.returned,
        "more": explanation.more,
        "ways": ways.collect::<Vec<_>>(),
        "advice": sentences(explanation),
        "text": text(explanation),
    })
}

/// The explanation as lines.
pub(crate) fn text(explanation: &Explanation) -> String {
    let ranges = explanation.ranges.iter().map(|(shape, count)| format!("{count} x {shape}"));
    let ranges = ranges.collect::<Vec<_>>().join(", ");
    let ranges = if ranges.is_empty() { "none" } else { &ranges };
    let more = if explanation.more { ", and there are more" } else { "" };
    let Explanation { plan, estimate, examined, returned, .. } = explanation;
    let mut text = format!(
        "plan      {plan}\nranges    {ranges}\nestimated {estimate}\nexamined  {examined}\n\
         returned  {returned}{more}\n"
    );
    for Considered { plan, estimate } in &explanation.considered {
        let _ = writeln!(text, "weighed   {plan}: {estimate}");
    }
    for sentence in sentences(explanation) {
        let _ = writeln!(text, "advice    {sentence}");
    }
    text
}

/// The advice for whoever wrote the query.
fn sentences(explanation: &Explanation) -> Vec<String> {
    let sentence = |advice: &Advice| {
        match advice {
        Advice::Create(wanted) => {
            format!("{} avoids this scan.", command(&explanation.table, wanted))
        }
        Advice::Building(name) => {
            format!("The index {name} will avoid this scan; it is still being built.")
        }
        Advice::NotUnique(name) => format!(
            "The index {name} would avoid this scan, but was to be unique and values repeat. Drop it, and declare \
             it without --unique."
        ),
        Advice::NoLess(name) => {
            format!("The index {name} is there, but reading through it would look at no less.")
        }
        Advice::AskOwner => "An index may avoid this scan. Explain the query with a key of the account \
             to see which one."
            .to_owned(),
        Advice::NoFilter => "Without a filter every entity is read. Name the PartitionKey, or a property that \
             has an index."
            .to_owned(),
        Advice::NoCondition => "No index helps with this filter: it has no condition that values can be looked up \
             by, which are eq, lt, le, gt, ge, in and startswith on a property. Name the PartitionKey, and where \
             possible a range of RowKeys, or keep what is looked for in a property of its own."
            .to_owned(),
    }
    };
    explanation.advice.iter().map(sentence).collect()
}

/// The command that declares an index.
fn command(table: &TableName, wanted: &WantedIndex) -> String {
    let properties = wanted.properties().collect::<Vec<_>>().join(",");
    format!("rowhouse index create {} {properties}", table.as_str())
}

/// Queries that looked at far more than they found.
pub(crate) fn write_queries(table: &TableName, queries: &[CostlyQuery]) -> Value {
    let queries = queries.iter().map(|query| {
        json!({
            "filter": query.filter,
            "order": query.order,
            "plan": query.plan.to_string(),
            "count": query.count,
            "examined": query.examined,
            "returned": query.returned,
            "commands": query.wanted.iter().map(|wanted| command(table, wanted)).collect::<Vec<_>>(),
        })
    });
    json!({ "value": queries.collect::<Vec<_>>() })
}

fn indexes(plan: &PlanTaken) -> Vec<&str> {
    match plan {
        PlanTaken::Index(names) => names.iter().map(IndexName::as_str).collect(),
        PlanTaken::Keys(_) => Vec::new(),
    }
}
