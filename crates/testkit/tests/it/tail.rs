//! `rowhouse tail` as people run it: through the loss of its server, to Ctrl-C and on from there.

use rowhouse_testkit::{Client, DEV_ACCOUNT, DEV_KEY, Door, TestServer, binary};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

fn tail(address: SocketAddr, arguments: &[&str]) -> Command {
    let mut command = Command::new(binary());
    let connection = format!(
        "DefaultEndpointsProtocol=http;AccountName={DEV_ACCOUNT};AccountKey={DEV_KEY};\
         TableEndpoint=http://{address}/{DEV_ACCOUNT};"
    );
    command.args(["tail", "People"]).args(arguments).env("ROWHOUSE_CONNECTION", connection);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn insert(client: &mut Client, row: &str) {
    let entity = json!({ "PartitionKey": "p", "RowKey": row });
    assert_eq!(client.insert("People", &entity).expect("answered").status, 204);
}

/// The rows that lines of output are about.
fn rows(lines: &str) -> Vec<String> {
    let row = |line: &str| {
        let change: Value = serde_json::from_str(line).expect("a line is JSON");
        change["entity"]["RowKey"].as_str().expect("a key").to_owned()
    };
    lines.lines().map(row).collect()
}

/// The token that the last line of standard error tells.
fn token(errors: &str) -> String {
    let line = errors.lines().last().expect("it says something");
    let (_, token) = line.split_once("--from '").unwrap_or_else(|| panic!("no token: {errors}"));
    token.trim_end_matches('\'').to_owned()
}

/// A tail that runs, read line by line.
struct Running {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Running {
    fn start(address: SocketAddr, arguments: &[&str]) -> Self {
        let mut child = tail(address, arguments).spawn().expect("it can be started");
        let out = BufReader::new(child.stdout.take().expect("it is piped"));
        Self { child, out }
    }

    fn next_row(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).expect("it prints");
        rows(&line).pop().unwrap_or_else(|| panic!("it ended"))
    }

    /// Ctrl-C; the rest of what it prints, and what it says.
    fn interrupt(mut self) -> (Vec<String>, String) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &id]).status().expect("sent").success());
        let (mut rest, mut errors) = (String::new(), String::new());
        self.out.read_to_string(&mut rest).expect("it ends");
        let mut stderr = self.child.stderr.take().expect("it is piped");
        stderr.read_to_string(&mut errors).expect("it ends");
        assert!(self.child.wait().expect("it ends").success(), "{errors}");
        (rows(&rest), errors)
    }
}

#[test]
fn nothing_is_left_out_when_the_server_dies() {
    let mut server = TestServer::start_with(&["--keep-changes", "1h"]);
    let mut client = server.client();
    client.create_table("People");
    insert(&mut client, "before");
    let door = Door::before(&server);
    let mut running = Running::start(door.address(), &["--from", "beginning"]);
    assert_eq!(running.next_row(), "before");
    insert(&mut client, "one");
    assert_eq!(running.next_row(), "one");
    server.kill();
    server.restart();
    let mut client = server.client();
    insert(&mut client, "two");
    door.lead_to(&server);
    let began = Instant::now();
    assert_eq!(running.next_row(), "two");
    println!(
        "the change after a restart was printed {:?} after the server was back",
        began.elapsed()
    );
    insert(&mut client, "three");
    assert_eq!(running.next_row(), "three");
    // It waits for more by now.
    thread::sleep(Duration::from_millis(300));
    let (rest, errors) = running.interrupt();
    assert!(rest.is_empty(), "{rest:?}");
    insert(&mut client, "four");
    let token = token(&errors);
    let output = tail(server.address(), &["--once", "--from", &token]).output().expect("it runs");
    assert_eq!(rows(&text(&output.stdout)), ["four"], "{output:?}");
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn sentence(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let sentence = text(&output.stderr);
    assert_eq!(sentence.lines().count(), 1, "{sentence}");
    sentence
}

#[test]
fn refusals_say_what_to_do() {
    let server = TestServer::start();
    let once = |arguments: &[&str]| {
        let arguments = [&["--once"], arguments].concat();
        tail(server.address(), &arguments).output().expect("it runs")
    };
    assert!(sentence(&once(&[])).contains("table"), "there is none");
    server.client().create_table("People");
    assert!(sentence(&once(&[])).contains("--keep-changes"));
    assert!(sentence(&once(&["--from", "yesterday"])).contains("check the token"));
}
