//! The tool against the built server on a PostgreSQL that it makes, beside statements that it sends directly.
//!
//! Apart from the other tests, because it takes all of the machine; and far too short to measure anything.

#[test]
fn statements_are_compared() {
    let all = "point insert upsert merge batch100 range100 scan1000 filterscan";
    let table = crate::common::loadgen(&format!("bench --store postgres --quick {all}"));
    for line in table.lines().skip(2).take(3 * all.split_whitespace().count()) {
        let words: Vec<_> = line.split_whitespace().collect();
        let share: Option<f64> = words[3].parse().ok();
        assert_eq!(share.is_some(), words[0] != "filterscan", "{table}");
        assert!(share.is_none_or(|share| share > 0.0), "{table}");
        assert_ne!(words[5], "0", "the database has done something: {table}");
    }
    assert!(table.contains("performance-postgres.md"), "{table}");
}
