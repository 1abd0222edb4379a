//! The tool against the built server: every workload runs, and every answer is right.
//!
//! The runs are far too short to measure anything.

use crate::common::{loadgen, loadgen_with_aims};

/// The last column of every line is the number of errors.
fn assert_no_errors(table: &str, lines: usize) {
    assert_eq!(table.lines().count(), lines + 1, "{table}");
    for line in table.lines().skip(1) {
        let words: Vec<_> = line.split_whitespace().collect();
        assert_eq!(words.last(), Some(&"0"), "{table}");
        assert_ne!(words.get(2), Some(&"0"), "operations were done: {table}");
    }
}

#[test]
fn every_workload_is_answered_rightly() {
    let all = "point insert upsert merge mixed batch100 range100 scan1000 filterscan tablescan onepartition";
    let table = loadgen(&format!("run {all} -c 4 -s 0.2 --warm-up 0 --entities 3000"));
    assert_no_errors(&table, all.split_whitespace().count());
}

#[test]
fn a_fixed_rate_is_kept() {
    let table = loadgen("run point upsert -c 4 -s 1 --warm-up 0 --rate 100 --entities 1000");
    assert_no_errors(&table, 2);
    for line in table.lines().skip(1) {
        let rate: f64 = line.split_whitespace().nth(2).unwrap().parse().unwrap();
        // The last answer, which ends the time, may be late on a busy machine.
        assert!((50.0..=110.0).contains(&rate), "{table}");
    }
}

#[test]
fn the_bare_server_answers() {
    assert_no_errors(&loadgen("run --bare -c 4 -s 0.2 --warm-up 0"), 6);
}

#[test]
fn a_table_is_loaded() {
    let table = loadgen("load --entities 2150 -c 4");
    assert!(table.contains("2,150"), "{table}");
}

#[test]
fn size_is_measured() {
    let table = loadgen_with_aims("scale --entities 12000 -c 4 -s 0.2 --space-within 3");
    for step in [
        "point at 10,000",
        "insert at 12,000",
        "12,000 entities: ready after kill -9",
        "space back within",
        "6 tables: listed",
        "partitions of one: 1,200 entities",
        "point in one partition",
        "$top=10 of a purged partition: median",
    ] {
        assert!(table.contains(step), "{step}: {table}");
    }
}

#[test]
fn one_part_is_measured_alone() {
    let table = loadgen_with_aims("scale --entities 4000 --parts tables -s 0.2");
    assert!(table.contains("2 tables: listed") && !table.contains("purged"), "{table}");
}

#[test]
fn a_short_soak_is_right() {
    let table = loadgen_with_aims("soak --seconds 3 --rate 100 -c 4 --entities 2000");
    assert!(table.contains("memory, most, last quarter"), "{table}");
}

#[test]
fn latencies_are_measured() {
    let table = loadgen_with_aims("latency --seconds 0.5 -c 4 --entities 2000");
    assert!(table.contains("point p99") && table.contains("insert max"), "{table}");
}

#[test]
fn the_drill_is_measured() {
    let table = loadgen_with_aims("drill --entities 20000 -c 4 -s 0.5 --rate 200");
    for step in [
        "2,000: p99 during the backup, of that without",
        "20,000: backup, of the rate of a plain copy",
        "20,000: verify, entities",
        "20,000: restore, stored bytes",
        "memory of a restore, of that at a tenth",
    ] {
        assert!(table.contains(step), "{step}: {table}");
    }
    for place in ["2,000, restored", "20,000, restored", "2,000, into PostgreSQL"] {
        for nothing in ["entities missing", "digests that differ"] {
            let words = format!("{place}: {nothing}");
            let line = table.lines().find(|line| line.starts_with(&words));
            assert!(line.is_some_and(|line| line.ends_with(" met")), "{words}: {table}");
        }
    }
}

#[test]
fn an_index_is_measured() {
    let few = "--queries 50 --reads 100 --writes 20 -s 0.5 --insert-seconds 0.2";
    let table = loadgen_with_aims(&format!("index --entities 3000 {few}"));
    for sure in ["pages not read through the index", "examined beyond what matches"] {
        let line = table.lines().find(|line| line.starts_with(sure));
        assert!(line.is_some_and(|line| line.ends_with(" met")), "{sure}: {table}");
    }
    for step in [
        "query by Name without an index: CPU",
        "build, entities",
        "p99 of writes during the build, of that without",
        "CPU of a query without an index, of that through it",
        "insert with 3 indexes: CPU, of that without",
    ] {
        assert!(table.contains(step), "{step}: {table}");
    }
}

#[test]
fn queues_are_measured() {
    let table = loadgen_with_aims("queue --queued 2000 --passed 3000 --messages 100 -c 4");
    for step in [
        "fresh queue: CPU",
        "beside 2,000 queued: CPU, of that of a fresh queue",
        "3,000 passed through: rate",
        "after 3,000 passed and a restart: CPU, of that of a fresh queue",
    ] {
        assert!(table.contains(step), "{step}: {table}");
    }
}

#[test]
fn overload_is_measured() {
    let crowd = "--idle 20 --trickling 4 --eager 20 --max-connections 100 --scanned 12000";
    let table = loadgen_with_aims(&format!("overload {crowd} --rate 50 -s 0.5"));
    let sure = [
        "failures other than 503",
        "let in",
        "connections refused: ServerBusy",
        "closed without a word",
        "that hang",
        "memory, most",
        "scans: other answers",
    ];
    for words in sure {
        assert!(table.contains(words), "{words}: {table}");
    }
    for line in table.lines().filter(|line| sure.iter().any(|words| line.contains(words))) {
        assert!(line.ends_with(" met"), "{table}");
    }
    for phase in [
        "and 20 eager clients: p99",
        "and 20 eager clients: requests served",
        "beside 8 writers to one partition: p99",
        "beside 16 clients that scan: p99 of reads",
        "beside 16 clients that scan: p99 of writes",
    ] {
        assert!(table.contains(phase), "{phase}: {table}");
    }
}

#[test]
fn attacks_are_measured() {
    let few = "--tables 200 --clients 2 --strangers 40 --renewals 20 --requests 20 --indexed 3";
    let table = loadgen_with_aims(&format!("attack {few} --rate 100 -s 1"));
    let sure = [
        "calm: reads that failed",
        "listing: reads that failed",
        "planning: reads that failed",
        "strangers: reads that failed",
        "strangers: requests from a third address answered",
        "all: /readyz, not answered 200",
        "all: memory beyond idle, most",
        "all: requests from a third address answered",
    ];
    for words in sure {
        let line = table.lines().find(|line| line.starts_with(words));
        assert!(line.is_some_and(|line| line.ends_with(" met")), "{words}: {table}");
    }
    for step in ["planning: reads, p99", "all: /readyz, longest", "calm again: reads, p99"] {
        assert!(table.contains(step), "{step}: {table}");
    }
    assert!(!table.contains("did not take place"), "{table}");
}
