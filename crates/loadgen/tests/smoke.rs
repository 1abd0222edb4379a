//! The tool against the built server: every workload runs, and every answer is right.
//!
//! The runs are far too short to measure anything.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// The server: `ROWHOUSE_BIN`, or what lies in the target directory, built if there is none.
fn server() -> &'static Path {
    static SERVER: OnceLock<PathBuf> = OnceLock::new();
    SERVER.get_or_init(|| {
        // Relative paths are meant from where the test was started, which cargo changes.
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let given = std::env::var_os("ROWHOUSE_BIN").map(|path| root.join(path));
        if let Some(path) = given.filter(|path| path.exists()) {
            return path;
        }
        let profile = Path::new(env!("CARGO_BIN_EXE_loadgen")).parent().expect("it is in a folder");
        let target = profile.parent().expect("profiles are in the target directory");
        let found = [profile.join("rowhouse"), target.join("release/rowhouse")];
        if let Some(path) = found.iter().find(|path| path.exists()) {
            return path.clone();
        }
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let built = Command::new(cargo).args(["build", "-p", "rowhouse-cli"]).status();
        assert!(built.is_ok_and(|status| status.success()), "the server can be built");
        target.join("debug/rowhouse")
    })
}

/// Runs the tool with a directory of its own. Returns what it printed, after checking that it was content.
fn loadgen(arguments: &str) -> String {
    run(arguments, false)
}

/// The same for a command with aims, which a busy machine or a slow build may miss.
fn loadgen_with_aims(arguments: &str) -> String {
    let table = run(arguments, true);
    for line in table.lines().filter(|line| line.contains("errors  ")) {
        assert!(line.ends_with(" met"), "{table}");
    }
    table
}

fn run(arguments: &str, may_miss: bool) -> String {
    let work = tempfile::tempdir().expect("a temporary directory can be made");
    let Output { status, stdout, stderr } = Command::new(env!("CARGO_BIN_EXE_loadgen"))
        .args(arguments.split_whitespace())
        .arg("--work")
        .arg(work.path())
        .arg("--server")
        .arg(server())
        .output()
        .expect("the tool can be started");
    let stdout = String::from_utf8(stdout).expect("it prints text");
    let stderr = String::from_utf8_lossy(&stderr);
    let content = status.success() || may_miss && stderr.contains(" aims were missed");
    assert!(content, "loadgen {arguments}: {status}\n{stdout}\n{stderr}");
    stdout
}

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
fn overload_is_measured() {
    let crowd = "--idle 20 --trickling 4 --eager 20 --max-connections 100";
    let table = loadgen_with_aims(&format!("overload {crowd} --rate 50 -s 0.5"));
    let sure =
        ["failures other than 503", "let in", "connections refused", "that hang", "memory, most"];
    for line in table.lines().filter(|line| sure.iter().any(|words| line.contains(words))) {
        assert!(line.ends_with(" met"), "{table}");
    }
    for phase in ["and 20 eager clients: p99", "beside 8 writers to one partition: p99"] {
        assert!(table.contains(phase), "{phase}: {table}");
    }
}
