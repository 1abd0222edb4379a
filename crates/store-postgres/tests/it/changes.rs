//! What reading and removing the changes that are kept costs.

use crate::common;
use crate::common::{command, commit, database, key, open, record, table};
use rowhouse_store::{Change, ChangesWanted, Condition, Store as _, Write};
use rowhouse_testkit::TestPostgres;
use rowhouse_types::ValueRef;
use std::time::{Duration, Instant};

/// Logs every plan with the rows that each part gave.
const SETTINGS: &[(&str, &str)] = &[
    ("fsync", "off"),
    ("session_preload_libraries", "auto_explain"),
    ("auto_explain.log_min_duration", "0"),
    ("auto_explain.log_analyze", "on"),
    ("auto_explain.log_timing", "off"),
];
const DAY: Duration = Duration::from_hours(24);
/// Changes that a step of removing may look at.
const STEP: usize = 1000;

/// The plans in a log of the statement that removes changes, each with the lines that belong to it.
fn plans_of_trimming(log: &str) -> Vec<String> {
    let mut plans: Vec<String> = Vec::new();
    for line in log.lines() {
        match plans.last_mut() {
            _ if line.ends_with(" plan:") => plans.push(String::new()),
            Some(plan) if line.starts_with('\t') => plan.extend([line, "\n"]),
            _ => {}
        }
    }
    plans.retain(|plan| plan.contains("DELETE FROM rowhouse.changes"));
    plans
}

/// How many rows the steps of a plan gave or threw away.
fn rows(plan: &str) -> Vec<usize> {
    let number = |text: &str| {
        let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().expect("a number")
    };
    let after = |line: &str, mark: &str| line.split(mark).nth(1).map(number);
    let of_line = |line: &str| {
        let removed = line.contains("Rows Removed by").then(|| after(line, ": ")).flatten();
        removed.or_else(|| after(line, "actual rows="))
    };
    plan.lines().filter_map(of_line).collect()
}

/// However many changes are kept, whether some are old or none.
#[test]
fn looking_for_old_changes_reads_few() {
    common::run(async {
        let server = TestPostgres::start_with(SETTINGS);
        let url = server.create_database();
        let store = open(&url).await;
        store.keep_changes(Some(DAY)).await.expect("set");
        let before = server.log().len();
        let fill = "INSERT INTO rowhouse.changes (tid, key, pl, ts, made)
            SELECT 1, 'p'::bytea, 1, n, now() - CASE WHEN n <= 1500 THEN interval '2 days' ELSE '0' END
            FROM generate_series(1, 20000) AS n";
        server.execute(database(&url), fill);
        let began = Instant::now();
        let plans = loop {
            let plans = plans_of_trimming(&server.log()[before..]);
            let left = server.execute(database(&url), "SELECT count(*) FROM rowhouse.changes");
            if plans.len() > 3 && left == "18500" {
                break plans;
            }
            assert!(began.elapsed() < Duration::from_mins(1), "it is looked for them");
            tokio::time::sleep(Duration::from_millis(100)).await;
        };
        let looked_at: Vec<_> = plans.iter().map(|plan| rows(plan)).collect();
        assert!(looked_at.iter().filter(|rows| rows.contains(&STEP)).count() > 2, "{plans:?}");
        for (rows, plan) in looked_at.iter().zip(&plans) {
            assert!(rows.iter().all(|rows| *rows <= STEP), "{plan}");
        }
    });
}

/// Texts that the database stores in a fraction of their length.
#[test]
fn a_page_of_changes_is_as_large_as_was_asked_for() {
    common::run(async {
        let url = TestPostgres::shared().create_database();
        let store = open(&url).await;
        let table = table(&*store).await;
        store.keep_changes(Some(DAY)).await.expect("set");
        let begin = store.kept_changes().await.expect("told").expect("they are kept").until;
        let text = "x".repeat(30_000);
        let names: Vec<String> = (0..10).map(|n| format!("p{n}")).collect();
        let values: Vec<_> = names.iter().map(|name| (&**name, ValueRef::String(&text))).collect();
        for row in 0..40 {
            let (key, put) = (key("p", &format!("{row:02}")), Write::Put(record(&values)));
            commit(&*store, vec![command(table, &key, Condition::Any, put)]).await.expect("put");
        }
        let size = |change: &Change| change.record.as_ref().map_or(0, |it| it.as_bytes().len());
        let (mut after, mut told) = (begin, Vec::new());
        while told.len() < 40 {
            let max_bytes = 1024 * 1024;
            let wait_until = Instant::now();
            let limit = usize::MAX;
            let wanted = ChangesWanted { after, table: None, limit, max_bytes, wait_until };
            let found = store.changes(wanted).await.expect("they can be read");
            assert!(after < found.next, "it goes on");
            after = found.next;
            let sizes: Vec<usize> = found.changes.iter().map(size).collect();
            let all_but_last: usize = sizes.iter().rev().skip(1).sum();
            assert!(all_but_last < max_bytes, "{sizes:?}");
            told.extend(found.changes.into_iter().map(|change| change.key.row));
        }
        assert!(told.is_sorted() && told.len() == 40, "{told:?}");
    });
}
