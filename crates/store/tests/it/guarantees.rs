//! The table of guarantees in the documentation, and the numbers over it, say what the tags of the suite say.
//!
//! `ROWHOUSE_WRITE_DOCS=1 cargo test -p rowhouse-store --test guarantees` writes the table.

use rowhouse_store::conformance::{PROMISES, Scope};
use std::fmt::Write as _;
use std::path::Path;

const BEGIN: &str = "<!-- promises: made from the tags of the conformance suite -->\n";
const END: &str = "<!-- end of promises -->\n";

/// How far an engine keeps a promise of that scope.
type Kept = fn(Scope) -> &'static str;

const ENGINES: [(&str, Kept); 3] =
    [("Embedded", embedded), ("PostgreSQL", postgres), ("Citus cluster", citus)];

fn embedded(_: Scope) -> &'static str {
    "yes"
}

fn postgres(scope: Scope) -> &'static str {
    match scope {
        Scope::All | Scope::SingleNode => "yes",
        Scope::SingleServer => "on each server",
    }
}

/// A cluster runs the tests of the first scope only.
fn citus(scope: Scope) -> &'static str {
    match scope {
        Scope::All => "yes",
        Scope::SingleNode | Scope::SingleServer => "not promised",
    }
}

fn table() -> String {
    let all = PROMISES.iter().filter(|promise| promise.scope == Scope::All).count();
    let mut text =
        format!("Promises: {}; kept on a Citus cluster too: {all}.\n\n| Promise |", PROMISES.len());
    let mut rule = String::from("|---|");
    for (engine, _) in ENGINES {
        let _ = write!(text, " {engine} |");
        rule.push_str("---|");
    }
    let _ = writeln!(text, "\n{rule}");
    for promise in PROMISES {
        let _ = write!(text, "| {} |", promise.sentence);
        for (_, kept) in ENGINES {
            let _ = write!(text, " {} |", kept(promise.scope));
        }
        text.push('\n');
    }
    text
}

#[test]
fn the_documented_table_is_that_of_the_suite() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guarantees.md");
    let page = std::fs::read_to_string(&path).expect("the page is there");
    let (before, rest) = page.split_once(BEGIN).expect("the table has a beginning");
    let (found, after) = rest.split_once(END).expect("the table has an end");
    let expected = table();
    if std::env::var_os("ROWHOUSE_WRITE_DOCS").is_some() {
        let page = [before, BEGIN, &expected, END, after].concat();
        std::fs::write(&path, page).expect("the page can be written");
        return;
    }
    assert!(found == expected, "the table in {} should be:\n{expected}", path.display());
}
