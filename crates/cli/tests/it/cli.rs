//! The built binary as people and scripts use it.

use serde_json::Value;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The binary with nothing of ours in its environment.
pub(crate) fn rowhouse(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rowhouse"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("ROWHOUSE_") {
            command.env_remove(name);
        }
    }
    command.current_dir(directory).args(arguments).stdin(Stdio::null());
    command
}

pub(crate) fn output(directory: &Path, arguments: &[&str]) -> Output {
    rowhouse(directory, arguments).output().unwrap()
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Asserts that a command failed with one sentence, and returns it.
pub(crate) fn failure(output: &Output) -> String {
    let text = stderr(output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    text
}

pub(crate) struct Server {
    child: Child,
    admin: String,
    /// What the ready file says.
    pub(crate) ready: Value,
}

impl Server {
    pub(crate) fn start(directory: &Path, arguments: &[&str]) -> Self {
        let fixed = ["serve", "--table-port=0", "--ready-file=ready.json"];
        let child = rowhouse(directory, &[&fixed, arguments].concat())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let begin = Instant::now();
        let ready = loop {
            if let Ok(text) = std::fs::read_to_string(directory.join("ready.json")) {
                break text;
            }
            assert!(begin.elapsed() < Duration::from_secs(20), "is ready in time");
            std::thread::sleep(Duration::from_millis(5));
        };
        assert!(ready.starts_with(r#"{"table":"http"#) && ready.ends_with("}\n"), "{ready}");
        let ready: Value = serde_json::from_str(&ready).unwrap();
        Self { child, admin: ready["admin"].as_str().unwrap().to_owned(), ready }
    }

    /// Asks it to stop, and returns what it printed.
    pub(crate) fn stop(self) -> Output {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        self.child.wait_with_output().unwrap()
    }
}

/// A refusal names the address, so it tells which source won.
#[test]
fn flags_win_over_the_environment_and_that_over_the_file() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("file.toml"), "host = \"192.0.2.1\"\n").unwrap();
    let cases: [(&[&str], Option<&str>, &str); 4] = [
        (&["serve", "--config", "file.toml"], None, "192.0.2.1"),
        (&["serve", "--config", "file.toml"], Some("192.0.2.2"), "192.0.2.2"),
        (
            &["serve", "--config", "file.toml", "--host", "192.0.2.3"],
            Some("192.0.2.2"),
            "192.0.2.3",
        ),
        (&["serve"], Some("192.0.2.2"), "192.0.2.2"),
    ];
    for (arguments, variable, expected) in cases {
        let mut command = rowhouse(directory.path(), arguments);
        if let Some(host) = variable {
            command.env("ROWHOUSE_HOST", host);
        }
        let sentence = failure(&command.output().unwrap());
        assert!(sentence.contains(&format!("reach {expected} ")), "{arguments:?}: {sentence}");
    }
    assert!(!directory.path().join("rowhouse-data").exists(), "a refusal leaves nothing behind");
}

#[test]
fn mistakes_are_told_in_one_sentence() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("file.toml"), "tabel-port = 1\n").unwrap();
    let cases: [(&[&str], &str); 16] = [
        (&["serve", "--config", "file.toml"], "file.toml: line 1: unknown field `tabel-port`"),
        (&["serve", "--config", "absent.toml"], "cannot read absent.toml"),
        (&["serve", "--tls-cert", "c.pem"], "--tls-cert needs --tls-key"),
        (&["serve", "--log-level", "=?"], "--log-level takes"),
        (&["serve", "--log-level", "warning"], "--log-level takes"),
        (&["serve", "--ephemeral", "--data", "d"], "nothing would be kept in --data"),
        (&["check", "absent"], "there is no database in absent"),
        (&["account", "list"], "--data"),
        (&["cluster", "status"], "--data"),
        (&["cluster", "status", "--data", "postgres://ann:secret@db/shop"], "not the database"),
        (&["serve", "--store", "rowhouse-data"], "a directory is named with --data"),
        (&["serve", "--store", "postgres://ann:secret@secret@db/shop"], "%40"),
        (&["serve", "--data", "postgres://ann:secret@db/shop"], "with --store"),
        (&["check", "postgres://ann:secret@db/shop"], "pg_amcheck"),
        (&["account", "list", "--data", "postgres://ann:secret@db/shop"], "not the database"),
        (
            &["serve", "--store", "postgres://ann@db/shop", "--store-password-file", "absent"],
            "the password file absent cannot be read",
        ),
    ];
    for (arguments, expected) in cases {
        let sentence = failure(&output(directory.path(), arguments));
        assert!(!sentence.contains("secret"), "{sentence}");
        assert!(sentence.starts_with("rowhouse: ") && sentence.contains(expected), "{sentence}");
    }
    for usage in [&["serve", "--nonsense"][..], &["serve", "--table-port", "x"], &["nonsense"]] {
        assert_eq!(output(directory.path(), usage).status.code(), Some(2), "{usage:?}");
    }
}

/// Nobody listens there, which is told while the server waits and when it gives up.
#[test]
fn a_database_that_is_not_there_is_told_without_its_password() {
    let directory = tempfile::tempdir().unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = format!("postgres://ann:secret@127.0.0.1:{port}/shop");
    let serve = ["serve", "--table-port", "0", "--store-wait-seconds", "1"];
    let mut command = rowhouse(directory.path(), &serve);
    let output = command.env("ROWHOUSE_STORE", url).env("RUST_BACKTRACE", "1").output().unwrap();
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    let place = format!("127.0.0.1:{port}/shop");
    let last = text.lines().last().unwrap();
    assert!(last.starts_with(&format!("rowhouse: the database {place} could not be")), "{text}");
    assert!(text.contains("waiting for the database"), "{text}");
    assert!(!text.contains("secret") && stdout(&output).is_empty(), "{text}");
}

#[test]
fn versions_and_help_are_printed() {
    let directory = tempfile::tempdir().unwrap();
    let version = format!("rowhouse {}\n", env!("CARGO_PKG_VERSION"));
    for arguments in [&["version"][..], &["--version"]] {
        assert_eq!(stdout(&output(directory.path(), arguments)), version);
    }
    let help = stdout(&output(directory.path(), &["serve", "--help"]));
    for part in ["--table-port <PORT>", "ROWHOUSE_TABLE_PORT", "Default: 10002", "Examples:"] {
        assert!(help.contains(part), "{part}: {help}");
    }
}

#[test]
fn accounts_are_managed_while_the_server_runs() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), &["--log-format=json"]);
    let account = |arguments: &[&str]| {
        let fixed = ["account", "--admin", &server.admin];
        output(directory.path(), &[&fixed, arguments].concat())
    };
    let created = stdout(&account(&["create", "shop"]));
    assert!(created.contains("AccountName=shop;AccountKey="), "{created}");
    assert!(failure(&account(&["create", "shop"])).contains("an account of this name already"));
    assert!(stdout(&account(&["list"])).contains("\nshop "));
    let shown = stdout(&account(&["show", "shop", "--keys", "--json"]));
    let shown: Value = serde_json::from_str(&shown).unwrap();
    let rotated = stdout(&account(&["rotate", "shop", "--slot", "1", "--json"]));
    let rotated: Value = serde_json::from_str(&rotated).unwrap();
    assert_ne!(rotated["key"], shown["keys"][0]);
    let cluster = output(directory.path(), &["cluster", "status", "--admin", &server.admin]);
    assert!(stdout(&cluster).starts_with("There is no cluster: "), "{}", stderr(&cluster));
    assert!(failure(&account(&["remove", "shop"])).contains("--yes"));
    assert!(account(&["remove", "shop", "--yes"]).status.success());
    assert!(failure(&account(&["show", "shop"])).contains("no account of this name"));
    assert!(failure(&output(directory.path(), &["check", "rowhouse-data"])).contains("in use"));

    let ended = server.stop();
    assert_eq!(ended.status.code(), Some(0), "{}", stderr(&ended));
    assert!(stdout(&ended).contains("AccountName=devstoreaccount1;"), "the banner is printed");
    let log = stderr(&ended);
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let audited: Vec<&str> = lines
        .iter()
        .filter(|line| line["target"] == "audit" && line["account"] == "shop")
        .filter_map(|line| line["action"].as_str())
        .collect();
    let expected = ["create", "create", "keys", "rotate", "remove", "show"];
    assert_eq!(audited, expected.map(|action| format!("account.{action}")));
    let secret = rotated["key"].as_str().unwrap();
    assert!(!log.contains(secret), "no key in the log");
    let checked = output(directory.path(), &["check", "rowhouse-data"]);
    assert!(stdout(&checked).contains("everything is in order"), "{}", stderr(&checked));
}
