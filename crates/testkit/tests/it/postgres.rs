//! The PostgreSQL of the tests: it is real, it can be mistreated, and nothing of it stays behind.

#![cfg(unix)]

use rowhouse_testkit::TestPostgres;
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long anything here may take, even on a busy machine.
const WITHIN: Duration = Duration::from_mins(1);

/// Tells a process of this program that it is the one to be killed.
const CHILD: &str = "ROWHOUSE_TEST_POSTGRES_CHILD";
/// What that process prints when it has a server.
const READY: &str = "the server is ready";

fn wait_until(what: &str, done: impl Fn() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < WITHIN, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn database_of(url: &str) -> &str {
    let url = url.split('?').next().expect("even if it is all");
    url.rsplit('/').next().expect("a path")
}

/// Sends a statement and does not wait for its end.
fn begin(server: &TestPostgres, sql: &str) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", server.port())).expect("it listens");
    stream.set_read_timeout(Some(WITHIN)).expect("a limit can be set");
    let startup = b"\0\x03\0\0user\0postgres\0database\0postgres\0\0";
    send(&mut stream, &[], startup);
    send(&mut stream, b"Q", &[sql.as_bytes(), b"\0"].concat());
    stream
}

/// A message is a letter, except for the first, its length and its content.
fn send(stream: &mut TcpStream, letter: &[u8], content: &[u8]) {
    let length = u32::try_from(content.len() + 4).expect("short").to_be_bytes();
    stream.write_all(&[letter, &length, content].concat()).expect("it is read");
}

/// Command lines of processes that mention a text.
fn processes(text: &str) -> Vec<String> {
    let output = Command::new("ps").args(["-A", "-ww", "-o", "args="]).output();
    let output = output.expect("processes can be listed").stdout;
    let lines = String::from_utf8_lossy(&output);
    lines.lines().filter(|line| line.contains(text)).map(str::to_owned).collect()
}

/// What a server holds of the machine.
struct Traces {
    directory: String,
    name: String,
    segment: String,
}

impl Traces {
    fn of(server: &TestPostgres) -> Self {
        let directory = server.directory().to_str().expect("plain text").to_owned();
        let lock = fs::read_to_string(server.directory().join("data/postmaster.pid"));
        let lock = lock.expect("a server has a lock file");
        let segment = lock.lines().nth(6).and_then(|line| line.split_whitespace().nth(1));
        let traces = Self {
            directory,
            name: server.name(),
            segment: segment.expect("it names its shared memory").to_owned(),
        };
        assert_eq!(traces.found().len(), 4, "{:?}", traces.found());
        traces
    }

    /// Those that are there.
    fn found(&self) -> Vec<&'static str> {
        let segments = fs::read_to_string("/proc/sysvipc/shm").expect("segments can be listed");
        let mut segments = segments.lines().filter_map(|line| line.split_whitespace().nth(1));
        let traces = [
            ("directory", Path::new(&self.directory).exists()),
            ("processes by directory", !processes(&self.directory).is_empty()),
            ("processes by name", !processes(&format!("postgres: {}: ", self.name)).is_empty()),
            ("shared memory", segments.any(|id| id == self.segment)),
        ];
        traces.into_iter().filter(|(_, there)| *there).map(|(what, _)| what).collect()
    }
}

#[test]
fn databases_are_empty_and_apart() {
    let server = TestPostgres::shared();
    let (one, other) = (server.create_database(), server.create_database());
    assert_ne!(one, other);
    for url in [one, other] {
        let name = database_of(&url);
        let made = "CREATE TABLE t (n int); INSERT INTO t VALUES (1), (2); SELECT n, n + 1 FROM t";
        assert_eq!(server.execute(name, made), "1|2\n2|3");
        assert_eq!(server.execute(name, "SHOW server_encoding"), "UTF8");
    }
}

#[test]
fn settings_are_taken() {
    let server = TestPostgres::start_with(&[("work_mem", "1MB"), ("max_connections", "20")]);
    let shown = server.execute("postgres", "SHOW work_mem; SHOW max_connections; SHOW fsync");
    assert_eq!(shown, "1MB\n20\non");
}

/// A server that does not start tells why.
#[test]
#[should_panic(expected = "unrecognized configuration parameter \"no_such_setting\"")]
fn a_wrong_setting_is_told() {
    TestPostgres::start_with(&[("no_such_setting", "1")]);
}

#[test]
fn a_locale_is_taken() {
    let server = TestPostgres::start_with_locale("de");
    let url = server.create_database();
    let sorted = "SELECT x FROM (VALUES ('b'), ('ä'), ('B'), ('a')) AS v (x) ORDER BY x";
    assert_eq!(server.execute(database_of(&url), sorted), "a\nä\nb\nB");
}

/// A backend in the middle of something dies with the server, and what was committed is there afterwards.
#[test]
fn it_survives_kills_and_stops() {
    let mut server = TestPostgres::start();
    let (port, name) = (server.port(), server.name());
    server.execute("postgres", "CREATE TABLE t (n int); INSERT INTO t VALUES (1)");
    let mut busy = begin(&server, "SELECT count(*) FROM generate_series(1, 1000000000000)");
    let running =
        "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT count(*) FROM gen%'";
    wait_until("the backend works", || server.execute("postgres", running) == "1");

    server.kill();
    assert!(!server.is_running());
    assert_eq!(processes(&name), Vec::<String>::new());
    let ended = busy.read_to_end(&mut Vec::new());
    println!("the client of a killed server sees {ended:?}");

    server.restart();
    assert!(server.log().contains("database system was not properly shut down"), "a real crash");
    assert_eq!(server.execute("postgres", "INSERT INTO t VALUES (2); SELECT n FROM t"), "1\n2");

    let _idle = begin(&server, "SELECT 1");
    server.stop();
    assert!(!server.is_running());
    server.restart();
    assert_eq!(server.execute("postgres", "SELECT n FROM t"), "1\n2");
    assert_eq!(server.port(), port);
}

#[test]
fn a_synchronous_standby_takes_over() {
    let mut primary = TestPostgres::start();
    primary.execute("postgres", "CREATE TABLE t (n int); INSERT INTO t VALUES (1)");
    let mut standby = primary.standby();
    primary.make_synchronous(&standby.name());
    primary.execute("postgres", "INSERT INTO t VALUES (2)");
    standby.wait_for_replay(&primary);
    assert_eq!(standby.execute("postgres", "SELECT n FROM t"), "1\n2");

    standby.kill();
    let _stuck = begin(&primary, "INSERT INTO t VALUES (3)");
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    wait_until("a commit waits for the standby", || primary.execute("postgres", waiting) == "1");
    standby.restart();
    wait_until("it waits no longer", || primary.execute("postgres", waiting) == "0");

    primary.execute("postgres", "INSERT INTO t VALUES (4)");
    primary.kill();
    standby.promote();
    let after = "INSERT INTO t VALUES (5); SELECT n FROM t ORDER BY n";
    assert_eq!(standby.execute("postgres", after), "1\n2\n3\n4\n5");
}

#[test]
fn nothing_is_left_when_it_is_dropped() {
    let server = TestPostgres::start();
    let standby = server.standby();
    let traces = [Traces::of(&server), Traces::of(&standby)];
    drop((server, standby));
    for traces in traces {
        assert_eq!(traces.found(), Vec::<&str>::new());
    }
}

#[test]
fn nothing_is_left_when_it_is_dropped_after_a_kill() {
    let mut server = TestPostgres::start();
    let traces = Traces::of(&server);
    server.kill();
    assert_eq!(traces.found(), ["directory", "processes by directory", "shared memory"]);
    drop(server);
    assert_eq!(traces.found(), Vec::<&str>::new());
}

/// This program once more, with temporary files in a directory of its own, until it is killed.
fn child(test: &str, directory: &Path, variables: &[(&str, &str)]) -> Child {
    Command::new(std::env::current_exe().expect("a process knows its executable"))
        .args(["--exact", &format!("postgres::{test}"), "--nocapture"])
        .env(CHILD, "1")
        .envs(variables.iter().copied())
        .env("TMPDIR", directory)
        .stdout(Stdio::piped())
        .spawn()
        .expect("it can be started")
}

/// Whether the test is killed when the server is there or while it is being made.
#[test]
fn nothing_is_left_when_the_test_is_killed() {
    if std::env::var_os(CHILD).is_some() {
        let _server = TestPostgres::start();
        println!("\n{READY}");
        std::thread::sleep(WITHIN);
        return;
    }
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let open = fs::set_permissions(directory.path(), Permissions::from_mode(0o755));
    open.expect("other users may look into it");
    let path = directory.path().to_str().expect("plain text");
    let entries = || fs::read_dir(directory.path()).expect("it is there").count();
    for after in [None, Some(100), Some(300), Some(1000)] {
        let mut child = child("nothing_is_left_when_the_test_is_killed", directory.path(), &[]);
        match after {
            None => ready(&mut child),
            Some(milliseconds) => std::thread::sleep(Duration::from_millis(milliseconds)),
        }
        child.kill().expect("it can be killed");
        child.wait().expect("it can be waited for");
        wait_until("the directory goes", || entries() == 0);
        // The server went before it: one without a directory ends by itself, but only after a minute.
        assert_eq!(processes(&format!("-D {path}")), Vec::<String>::new(), "after {after:?}");
        wait_until("the watchdog goes", || processes(path).is_empty());
        assert_eq!(entries(), 0, "after {after:?}");
    }
}

/// Of a server that was named, what was made there is dropped, however the test ends.
#[test]
fn no_database_is_left_on_a_server_that_was_named() {
    const TEST: &str = "no_database_is_left_on_a_server_that_was_named";
    if std::env::var_os(CHILD).is_some() {
        let server = TestPostgres::shared();
        let url = server.create_database();
        server.execute(database_of(&url), "CREATE TABLE something (n integer)");
        println!("\n{READY}");
        std::thread::sleep(WITHIN);
        return;
    }
    let server = TestPostgres::start_with(&[("fsync", "off")]);
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let sql = "SELECT count(*) FROM pg_database WHERE datname LIKE 'rowhouse_test_%'";
    let mut child =
        child(TEST, directory.path(), &[("ROWHOUSE_TEST_POSTGRES", &server.url("postgres"))]);
    ready(&mut child);
    assert_eq!(server.execute("postgres", sql), "1");
    child.kill().expect("it can be killed");
    child.wait().expect("it can be waited for");
    wait_until("the database goes", || server.execute("postgres", sql) == "0");
}

/// Waits until the child has a server.
fn ready(child: &mut Child) {
    let output = BufReader::new(child.stdout.as_mut().expect("it is piped"));
    let mut lines = output.lines().map(|line| line.expect("plain text"));
    assert!(lines.any(|line| line == READY), "the child gets a server");
}
