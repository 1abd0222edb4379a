//! How queries are read, as JSON: the explanation of one, and those that cost most.

use rowhouse_service_table::{Considered, CostlyQuery, Estimate, Explanation, PlanTaken};
use rowhouse_types::IndexName;
use serde_json::{Value, json};

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
        "advice": explanation.advice,
        "text": explanation.to_string(),
    })
}

/// Queries that looked at far more than they found.
pub(crate) fn write_queries(queries: &[CostlyQuery]) -> Value {
    let queries = queries.iter().map(|query| {
        json!({
            "filter": query.filter,
            "order": query.order,
            "plan": query.plan.to_string(),
            "count": query.count,
            "examined": query.examined,
            "returned": query.returned,
            "commands": query.commands,
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
