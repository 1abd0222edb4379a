//! Plans: golden files, and the promise that no match is lost.
//!
//! Each file under `tests/plans` holds cases: a line with a filter, then the plan. After a wanted change
//! run with `UPDATE_PLANS=1` and read the difference.

use crate::common::{Entity, entity, expr, print};
use proptest::prelude::*;
use rowhouse_query::{Filter, Plan, PlanKind, plan};
use rowhouse_types::{KeyRange, Position, limits};
use std::fmt::Write;
use std::path::Path;
use std::time::{Duration, Instant};

fn planned(text: &str) -> Plan {
    plan(Filter::parse(text).unwrap_or_else(|e| panic!("{text}: {e}")))
}

/// A plan for people, keys shown.
fn render(plan: &Plan) -> String {
    let mut text = format!("  {}\n", plan.kind);
    for range in &plan.ranges {
        writeln!(text, "  read {}", render_range(range)).unwrap();
    }
    if plan.ranges.is_empty() {
        text.push_str("  read nothing\n");
    }
    let check = if plan.residual.is_some() { "the filter" } else { "nothing" };
    writeln!(text, "  check {check}").unwrap();
    text
}

fn render_range(range: &KeyRange) -> String {
    let KeyRange { start, end } = range;
    if *range == KeyRange::all() {
        "everything".to_owned()
    } else if *range == KeyRange::point(&start.partition, &start.row) {
        format!("key {:?} {:?}", start.partition, start.row)
    } else if *range == KeyRange::partition(&start.partition) {
        format!("partition {:?}", start.partition)
    } else {
        let start = match &*start.partition {
            "" if start.row.is_empty() => "the start".to_owned(),
            _ => render_position(start),
        };
        let end = end.as_ref().map_or("the end".to_owned(), render_position);
        format!("from {start} to {end}")
    }
}

fn render_position(position: &Position) -> String {
    let Position { partition, row } = position;
    match (partition.strip_suffix('\0'), row.strip_suffix('\0')) {
        (Some(last), _) if row.is_empty() => format!("after partition {last:?}"),
        (_, Some(last)) => format!("after {partition:?} {last:?}"),
        _ if row.is_empty() => format!("before partition {partition:?}"),
        _ => format!("before {partition:?} {row:?}"),
    }
}

#[test]
fn golden_plans() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/plans");
    let update = std::env::var_os("UPDATE_PLANS").is_some();
    let mut cases = 0;
    for file in std::fs::read_dir(&folder).unwrap() {
        let path = file.unwrap().path();
        let golden = std::fs::read_to_string(&path).unwrap();
        let mut actual = String::new();
        // Lines of plans are indented and made anew; comments, blank lines and filters stay.
        for line in golden.lines().filter(|line| !line.starts_with(' ')) {
            writeln!(actual, "{line}").unwrap();
            if !line.is_empty() && !line.starts_with("--") {
                cases += 1;
                actual.push_str(&render(&planned(line)));
            }
        }
        if update {
            std::fs::write(&path, &actual).unwrap();
        } else {
            assert_eq!(golden, actual, "{}", path.display());
        }
    }
    assert!(cases > 50, "golden files are missing");
}

#[test]
fn no_filter_reads_everything() {
    let all = plan(None);
    assert_eq!(render(&all), "  table-scan\n  read everything\n  check nothing\n");
}

/// Every promise of a plan, on one entity.
fn check(filter: &Filter, plan: &Plan, entity: &Entity) -> Result<(), TestCaseError> {
    let matches = filter.matches(&entity.as_row()).unwrap();
    let inside = plan.ranges.iter().any(|range| range.contains(&entity.partition, &entity.row));
    prop_assert!(inside || !matches, "lost a match: {}", render(plan));
    if plan.residual.is_none() {
        prop_assert_eq!(inside, matches, "read too much unchecked: {}", render(plan));
    }
    Ok(())
}

fn check_form(plan: &Plan) -> Result<(), TestCaseError> {
    let ranges = &plan.ranges;
    prop_assert!(ranges.len() <= limits::PLAN_RANGES_MAX);
    prop_assert!(!ranges.iter().any(KeyRange::is_empty));
    let apart = |pair: &[KeyRange]| pair[0].end.as_ref().is_some_and(|end| *end < pair[1].start);
    prop_assert!(ranges.windows(2).all(apart));
    prop_assert_eq!(plan.kind == PlanKind::TableScan, *ranges == [KeyRange::all()]);
    let is_point = |r: &KeyRange| *r == KeyRange::point(&r.start.partition, &r.start.row);
    let points = ranges.iter().all(is_point);
    prop_assert_eq!(plan.kind == PlanKind::Point, points && ranges.len() == 1);
    prop_assert_eq!(plan.kind == PlanKind::MultiPoint, points && ranges.len() != 1);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn plan_never_loses_a_match(
        expr in expr(),
        entities in prop::collection::vec(entity(), 1..40),
    ) {
        let text = print(&expr);
        let filter = Filter::parse(&text).unwrap().unwrap();
        let plan = plan(Some(filter.clone()));
        check_form(&plan)?;
        for entity in &entities {
            check(&filter, &plan, entity)?;
        }
    }
}

/// Filters with more ranges than a plan may have, in every arrangement.
#[test]
fn too_many_ranges_are_joined() {
    let max = limits::PLAN_RANGES_MAX;
    let or = |n: usize, part: &dyn Fn(usize) -> String| {
        (0..n).map(part).collect::<Vec<_>>().join(" or ")
    };
    let pairs = |n| or(n, &|i| format!("PartitionKey eq 'p{i:04}' and RowKey eq 'r{i:04}'"));
    let rows = |n| or(n, &|i| format!("RowKey eq 'r{i:04}'"));
    let partitions = |n| or(n, &|i| format!("PartitionKey eq 'p{i:04}'"));

    assert_eq!(planned(&pairs(max)).kind, PlanKind::MultiPoint);
    assert_eq!(planned(&pairs(max)).ranges.len(), max);

    let wide = [
        (pairs(max + 1), "from before \"p0000\" \"r0000\" to after \"p0256\" \"r0256\""),
        (partitions(max + 1), "from before partition \"p0000\" to after partition \"p0256\""),
        (
            format!("PartitionKey eq 'p' and ({})", rows(max + 1)),
            "from before \"p\" \"r0000\" to after \"p\" \"r0256\"",
        ),
    ];
    for (text, expected) in &wide {
        let plan = planned(text);
        let ranges: Vec<_> = plan.ranges.iter().map(render_range).collect();
        assert_eq!(ranges, [*expected]);
        assert!(plan.residual.is_some());
        assert_eq!(plan.kind, PlanKind::Range);
    }

    // 30 partitions of 10 rows each: too many keys, but one range a partition is fine.
    let plan = planned(&format!("({}) and ({})", partitions(30), rows(10)));
    assert_eq!(plan.ranges.len(), 30);
    assert_eq!(
        render_range(&plan.ranges[0]),
        "from before \"p0000\" \"r0000\" to after \"p0000\" \"r0009\""
    );
    assert!(plan.residual.is_some());
}

/// The longest filters that are allowed, arranged to be as much work as possible.
#[test]
fn planning_takes_bounded_time() {
    let fill = |part: &dyn Fn(usize) -> String, word: &str, len: usize| {
        let mut text = part(0);
        for i in 1.. {
            let next = part(i);
            if len < text.len() + word.len() + next.len() {
                break;
            }
            write!(text, "{word}{next}").unwrap();
        }
        text
    };
    let len = limits::FILTER_BYTES_MAX - 40;
    let pk = |i: usize| format!("PartitionKey eq'{i:x}'");
    let rk = |i: usize| format!("RowKey eq'{i:x}'");
    let not_rk = |i: usize| format!("RowKey ne'{i:x}'");
    let both = |i: usize| format!("PartitionKey eq'{i:x}'and RowKey ne'{i:x}'");
    let filters = [
        fill(&pk, " or ", len),
        fill(&rk, " or ", len),
        fill(&not_rk, " and ", len),
        fill(&both, " or ", len),
        fill(&|i| format!("({} or {})", pk(i), rk(i)), " and ", len),
        fill(&|i| format!("({} or {})", not_rk(i), rk(i + 1)), " and ", len),
        format!("({}) and ({})", fill(&pk, " or ", len / 2), fill(&rk, " or ", len / 2)),
        format!("({}) and ({})", fill(&both, " or ", len / 2), fill(&not_rk, " and ", len / 2)),
        format!("not ({})", fill(&both, " or ", len)),
    ];
    for text in &filters {
        let start = Instant::now();
        let plan = planned(text);
        assert!(plan.ranges.len() <= limits::PLAN_RANGES_MAX);
        assert!(
            start.elapsed() < Duration::from_secs(5),
            "{} took {:?}",
            &text[..60],
            start.elapsed()
        );
    }
}
