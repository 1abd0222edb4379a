//! The pages of `docs/operating`, followed as they are written: see `rowhouse_testkit::page`.

#![cfg(unix)]

use rowhouse_testkit::page::{Terminal, steps};
use rowhouse_testkit::{DEV_ACCOUNT, DEV_KEY, SmallDisk, TestPostgres, TestServer, binary};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// Pages that are followed by the tests below.
const FOLLOWED: [&str; 12] = [
    "backup.md",
    "commands.md",
    "damage.md",
    "disk-full.md",
    "first-account.md",
    "install.md",
    "monitor.md",
    "move.md",
    "rotate-keys.md",
    "tls.md",
    "to-postgres.md",
    "upgrade.md",
];

/// Pages that are not, and why.
const OTHERS: [(&str, &str); 6] = [
    ("README.md", "shows no commands"),
    ("citus.md", "needs a cluster, which crates/testkit/tests/it/citus.rs is given"),
    ("durability.md", "tells of tests, which are run themselves"),
    ("postgres.md", "needs standbys and an archive; crates/testkit/tests/postgres*.rs try it"),
    ("server.md", "is a reference; its options are in the help, which is tested"),
    ("transcript.md", "is what was typed on another machine"),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn pages() -> PathBuf {
    root().join("docs/operating")
}

/// Follows a page to its end.
fn follow(page: &str, terminal: &mut Terminal) {
    assert!(FOLLOWED.contains(&page), "{page} is in the list");
    let text = fs::read_to_string(pages().join(page)).expect("the page is there");
    let steps = steps(&text);
    assert!(2 < steps.len(), "{page} has commands");
    for step in &steps {
        terminal.follow(step).unwrap_or_else(|reason| panic!("{page}: {reason}"));
    }
}

/// Gives the page the Python SDK, as `venv`; false where it is not installed.
fn give_python(page: &str, terminal: &Terminal) -> bool {
    let environment = root().join(".work/venv");
    if !environment.join("bin/python").exists() {
        println!("{page}: NOT VERIFIED, the Python SDK is missing: scripts/setup python");
        return false;
    }
    symlink(environment, terminal.here().join("venv")).expect("a link can be made");
    true
}

#[test]
fn every_page_is_followed_or_has_a_reason() {
    let mut found: Vec<_> = fs::read_dir(pages())
        .expect("there are pages")
        .map(|entry| entry.expect("it can be read").file_name().into_string().expect("a name"))
        .collect();
    found.sort();
    let mut known: Vec<_> = FOLLOWED.into_iter().chain(OTHERS.map(|(page, _)| page)).collect();
    known.sort_unstable();
    assert_eq!(found, known);
}

#[test]
fn damage() {
    follow("damage.md", &mut Terminal::new());
}

#[test]
fn install() {
    follow("install.md", &mut Terminal::new());
}

#[test]
fn first_account() {
    let mut terminal = Terminal::new();
    if give_python("first-account.md", &terminal) {
        follow("first-account.md", &mut terminal);
    }
}

#[test]
fn tls() {
    follow("tls.md", &mut Terminal::new());
}

#[test]
fn backup() {
    follow("backup.md", &mut Terminal::new());
}

#[test]
fn commands() {
    let mut terminal = Terminal::new();
    let server = TestServer::start();
    let connection = format!(
        "AccountName={DEV_ACCOUNT};AccountKey={DEV_KEY};TableEndpoint=http://{}/{DEV_ACCOUNT};\
         QueueEndpoint=http://{}/{DEV_ACCOUNT}",
        server.address(),
        server.queue_address()
    );
    terminal.set("ROWHOUSE_CONNECTION", connection);
    symlink(binary(), terminal.here().join("rowhouse")).expect("a link can be made");
    follow("commands.md", &mut terminal);
}

#[test]
fn moving_tables() {
    let mut terminal = Terminal::new();
    let (old, new) = (TestServer::start_with(&["--keep-changes=7d"]), TestServer::start());
    let connection = |server: &TestServer| {
        format!(
            "AccountName={DEV_ACCOUNT};AccountKey={DEV_KEY};TableEndpoint=http://{}/{DEV_ACCOUNT}",
            server.address()
        )
    };
    terminal.set("ROWHOUSE_CONNECTION", connection(&old));
    terminal.set("OLD", connection(&old));
    terminal.set("NEW", connection(&new));
    symlink(binary(), terminal.here().join("rowhouse")).expect("a link can be made");
    let azurite = [
        ("azurite-3.37.0.json", "__azurite_db_table__.json"),
        ("azurite-3.37.0-policies.json", "guarded.json"),
    ];
    for (from, to) in azurite {
        let from = root().join("crates/client/tests/data").join(from);
        fs::copy(from, terminal.here().join(to)).expect("it is there");
    }
    follow("move.md", &mut terminal);
}

#[test]
fn to_postgres() {
    let mut terminal = Terminal::new();
    let postgres = TestPostgres::start();
    postgres.execute("postgres", "CREATE ROLE rowhouse LOGIN");
    let sql = "CREATE DATABASE rowhouse OWNER rowhouse TEMPLATE template0 ENCODING 'UTF8'";
    postgres.execute("postgres", sql);
    terminal.map_port(5432, postgres.port());
    follow("to-postgres.md", &mut terminal);
}

#[test]
fn upgrade() {
    let mut terminal = Terminal::new();
    follow("upgrade.md", &mut terminal);
}

#[test]
fn rotate_keys() {
    let mut terminal = Terminal::new();
    if give_python("rotate-keys.md", &terminal) {
        follow("rotate-keys.md", &mut terminal);
    }
}

#[test]
fn disk_full() {
    let mut terminal = Terminal::new();
    if SmallDisk::mount(1).is_none() {
        println!("disk-full.md: NOT VERIFIED, a small file system cannot be mounted here");
        return;
    }
    terminal.allow_sudo();
    if give_python("disk-full.md", &terminal) {
        follow("disk-full.md", &mut terminal);
    }
}

#[test]
fn monitor() {
    follow("monitor.md", &mut Terminal::new());
}
