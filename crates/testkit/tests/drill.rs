//! The commands of `docs/operating/backup.md`, as they are written there, with the output that is promised.

#![cfg(unix)]

use rowhouse_testkit::{Operation, TestServer, binary};
use serde_json::json;
use std::fs;
use std::path::Path;
use std::process::Command;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operating/backup.md");

/// A command and the lines that it prints; `...` stands for anything within a line.
#[derive(Debug)]
struct Step {
    command: String,
    output: Vec<String>,
}

/// What stands in the fenced blocks behind `<!-- run -->`.
fn steps(page: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for block in page.split("<!-- run -->\n```console\n").skip(1) {
        let (block, _) = block.split_once("```").expect("a block has an end");
        for line in block.lines() {
            match line.strip_prefix("$ ") {
                Some(command) => {
                    steps.push(Step { command: command.to_owned(), output: Vec::new() });
                }
                None => steps.last_mut().expect("a command is first").output.push(line.to_owned()),
            }
        }
    }
    steps
}

/// Whether the parts between `...` are in the line, in order, and nothing else is at its ends.
fn fits(pattern: &str, line: &str) -> bool {
    let parts: Vec<&str> = pattern.split("...").collect();
    let mut rest = line;
    for (index, part) in parts.iter().enumerate() {
        let found = if index == 0 {
            rest.strip_prefix(part)
        } else if index + 1 == parts.len() {
            rest.ends_with(part).then_some("")
        } else {
            rest.split_once(part).map(|(_, after)| after)
        };
        match found {
            Some(after) => rest = after,
            None => return false,
        }
    }
    1 < parts.len() || rest.is_empty()
}

fn fill(server: &TestServer) {
    let mut client = server.client();
    for table in ["Alpha", "Beta", "Gamma"] {
        client.create_table(table);
        for batch in 0..20 {
            let entity = |row: usize| json!({ "PartitionKey": format!("p{batch}"), "RowKey": row.to_string(), "n": row });
            let operations: Vec<_> =
                (0..100).map(|row| Operation::insert(table, entity(row))).collect();
            assert!(client.batch(&operations).expect("answered").succeeded());
        }
    }
}

#[test]
fn the_drill_is_as_it_is_written() {
    let page = fs::read_to_string(PAGE).expect("the page is there");
    let steps = steps(&page);
    assert_eq!(page.matches("<!-- run -->").count(), 4, "every block is run");
    let server = TestServer::start_with(&["--keep-changes=7d"]);
    fill(&server);
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    for step in steps {
        let output = Command::new("sh")
            .args(["-c", &step.command])
            .current_dir(directory.path())
            .env("PATH", path_with(binary().parent().expect("it is in a directory")))
            .env("ROWHOUSE_ADMIN", format!("http://{}", server.admin_address()))
            .env("ROWHOUSE_DATA", server.data())
            .output()
            .expect("there is a shell");
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {printed}{said}", step.command);
        let lines: Vec<&str> = printed.lines().collect();
        assert_eq!(lines.len(), step.output.len(), "{}: {printed}", step.command);
        for (pattern, line) in step.output.iter().zip(lines) {
            assert!(fits(pattern, line), "{}: {line:?} is not {pattern:?}", step.command);
        }
    }
}

fn path_with(directory: &Path) -> std::ffi::OsString {
    let old = std::env::var_os("PATH").unwrap_or_default();
    let all = std::iter::once(directory.to_owned()).chain(std::env::split_paths(&old));
    std::env::join_paths(all).expect("directories have no colons")
}

#[test]
fn patterns_fit_lines() {
    let cases = [
        ("a", "a", true),
        ("a", "ab", false),
        ("a ... b", "a x b", true),
        ("a ...", "a x", true),
        ("a ... b", "a x c", false),
        ("a ... b ...", "a x b y", true),
    ];
    for (pattern, line, expected) in cases {
        assert_eq!(fits(pattern, line), expected, "{pattern:?} {line:?}");
    }
}
