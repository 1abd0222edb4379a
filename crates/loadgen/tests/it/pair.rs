//! The comparison of two builds, with the same build on both sides.
//!
//! The runs are far too short to measure anything.

use crate::common::server;
use std::path::Path;
use std::process::{Command, Output};

/// Compares the server with itself in a directory of its own.
fn pair(old: &Path, arguments: &str) -> (Output, String) {
    let work = tempfile::tempdir().expect("a temporary directory can be made");
    let output = Command::new(env!("CARGO_BIN_EXE_loadgen"))
        .arg("pair")
        .arg("--old")
        .arg(old)
        .arg("--new")
        .arg(server())
        .arg("--work")
        .arg(work.path())
        .args("--rounds 2 --seconds 0.2 --warm-up 0 -c 4 --entities 2000".split_whitespace())
        .args(arguments.split_whitespace())
        .output()
        .expect("the tool can be started");
    let json = std::fs::read_to_string(work.path().join("pair.json")).unwrap_or_default();
    (output, json)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn two_builds_are_compared() {
    let (output, json) = pair(server(), "point insert");
    let (table, said) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{table}\n{said}");
    for workload in ["point", "insert"] {
        for measure in ["CPU us/op", "ops/s"] {
            let found = table.lines().any(|line| {
                let verdict = line.ends_with("  verified") || line.ends_with("  NOT VERIFIED");
                line.starts_with(workload) && line.contains(measure) && verdict
            });
            assert!(found, "{workload} {measure}: {table}");
        }
        assert_eq!(said.matches(&format!("{workload:11} round ")).count(), 2, "{said}");
    }
    let last = table.lines().last().unwrap_or_default();
    assert!(last.starts_with("CPU NEW/OLD, 2 rounds of 0.2 s each: point "), "{table}");
    assert_eq!(json.matches("\"server_cpu_us\"").count(), 8, "{json}");
}

#[test]
fn a_bound_that_is_exceeded_is_an_error() {
    let (output, _) = pair(server(), "point --at-most 0.01");
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.contains("CPU NEW/OLD is not shown to be at most 0.01: point "), "{said}");
    let table = text(&output.stdout);
    assert!(table.starts_with("workload "), "the table is printed first: {table}");
}

#[test]
fn a_build_that_does_not_start_is_an_error() {
    let (output, _) = pair(Path::new("/missing/rowhouse"), "point");
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.contains("/missing/rowhouse did not start"), "{said}");
}
