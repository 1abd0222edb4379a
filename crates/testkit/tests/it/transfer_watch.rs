//! `rowhouse copy --watch`: a copy that stays true while the source is written to and the command is killed.
//!
//! What arrived is compared through this crate's own client, which shares nothing with the one that moved it.
#![cfg(unix)]

use rowhouse_env::{Random, SeededRandom};
use rowhouse_testkit::{
    Client, DEV_ACCOUNT, DEV_KEY, Door, Operation, TestPostgres, TestServer, binary, entity_path,
    seed,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const WRITERS: usize = 16;
/// Times that it is killed, and how many of them at the latest during the copy.
const KILLS: usize = 8;
const COPYING: usize = 2;
/// Entities that are there before anything is copied.
const BEFORE: u64 = 3000;
/// Rows of each partition that all writers write to.
const ROWS: u64 = 40;
const PARTITIONS: u64 = 5;
/// The table that everybody writes to, and the one whose entities have one writer each.
const TABLE: &str = "People";
const COUNTERS: &str = "Counters";

/// Every entity by its keys, without what differs from server to server.
type Content = BTreeMap<(String, String), Value>;

fn content(server: &TestServer, table: &str) -> Content {
    let entities = server.client().query(table, "");
    let keyed = entities.into_iter().map(|mut entity| {
        let members = entity.as_object_mut().expect("an entity is an object");
        members.retain(|name, _| !name.starts_with("odata.") && name != "Timestamp");
        let key = |name: &str| members[name].as_str().expect("a key is a text").to_owned();
        ((key("PartitionKey"), key("RowKey")), entity)
    });
    keyed.collect()
}

fn connection(address: impl std::fmt::Display) -> String {
    format!(
        "AccountName={DEV_ACCOUNT};AccountKey={DEV_KEY};TableEndpoint=http://{address}/{DEV_ACCOUNT}"
    )
}

/// `rowhouse copy` from one to the other, with its state in the directory.
fn copy(here: &Path, from: &str, to: &TestServer, arguments: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command.current_dir(here).arg("copy").args(arguments).stdin(Stdio::null());
    command.env("ROWHOUSE_COPY_SOURCE", from);
    command.env("ROWHOUSE_COPY_DEST", connection(to.address()));
    command
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[output.stdout.clone(), output.stderr.clone()].concat()).into_owned()
}

fn succeed(mut command: Command) -> String {
    let output = command.output().expect("it can be started");
    assert!(output.status.success(), "{}", text(&output));
    text(&output)
}

/// The one sentence with which it fails.
fn refused(mut command: Command) -> String {
    let output = command.output().expect("it can be started");
    let said = text(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    said
}

fn below(chance: &SeededRandom, limit: u64) -> u64 {
    let mut bytes = [0; 8];
    chance.fill(&mut bytes);
    u64::from_le_bytes(bytes) % limit
}

/// Properties of every type, which change with the number.
fn properties(number: u64) -> Value {
    let texts = ["", "it's, \"quoted\"\r\nand more", "é😀"];
    let text = texts[usize::try_from(number).unwrap() % texts.len()];
    let doubles = [json!(1.0), json!("NaN"), json!("-Infinity"), json!(1e300), json!(0.1)];
    let double = doubles[usize::try_from(number).unwrap() % doubles.len()].clone();
    let mut properties = json!({
        "Text": text,
        "Int": number % 1000,
        "Double@odata.type": "Edm.Double",
        "Double": double,
        "Long@odata.type": "Edm.Int64",
        "Long": (u64::MAX / 4 - number).to_string(),
        "Yes": number.is_multiple_of(2),
        "When@odata.type": "Edm.DateTime",
        "When": format!("2020-01-02T03:04:05.{:07}Z", number % 10_000_000),
        "Guid@odata.type": "Edm.Guid",
        "Guid": format!("c9da6455-213d-42c9-9a79-{number:012x}"),
        "Bytes@odata.type": "Edm.Binary",
        "Bytes": "AAH/",
    });
    if number.is_multiple_of(3) {
        properties["Sometimes"] = json!(format!("{number}"));
    }
    properties
}

/// Inserts, merges, replaces, deletes and runs batches, until it is told to stop; and counts up.
fn write(index: usize, seed: u64, server: &TestServer, stop: &AtomicBool) -> u64 {
    let chance = SeededRandom::new(seed.wrapping_add(index as u64));
    let mut client = server.client();
    let mut written = 0;
    while !stop.load(Ordering::Relaxed) {
        let number = below(&chance, 1 << 40);
        let partition = format!("p{}", below(&chance, PARTITIONS));
        let row = format!("{:03}", below(&chance, ROWS));
        let path = entity_path(TABLE, &partition, &row);
        let status = match below(&chance, 12) {
            0..2 => {
                let mut entity = properties(number);
                entity["PartitionKey"] = json!(partition);
                entity["RowKey"] = json!(row);
                client.insert(TABLE, &entity).expect("answered").status
            }
            2..4 => {
                client.update("PUT", &path, None, &properties(number)).expect("answered").status
            }
            4..6 => {
                let some = json!({ "Merged": number % 1000, "Int": 7 });
                client.update("PATCH", &path, None, &some).expect("answered").status
            }
            6..8 => client.delete(&path, "*").expect("answered").status,
            8..10 => batch(&mut client, &chance, &partition),
            _ => count_up(&mut client, index, written),
        };
        assert!(matches!(status, 200..300 | 404 | 409 | 412 | 503), "{status}");
        written += u64::from((200..300).contains(&status));
    }
    written
}

/// A batch of replaces and deletes; refused if what it deletes is not there.
fn batch(client: &mut Client, chance: &SeededRandom, partition: &str) -> u16 {
    let first = below(chance, ROWS);
    let operation = |row: u64| {
        let row = format!("{:03}", row % ROWS);
        match below(chance, 6) {
            0 => Operation::delete(TABLE, (partition, &row), "*"),
            _ => Operation::replace(TABLE, (partition, &row), None, properties(first + 1)),
        }
    };
    let operations: Vec<_> = (first..first + 2 + below(chance, 8)).map(operation).collect();
    let answer = client.batch(&operations).expect("answered");
    if answer.succeeded() { 202 } else { answer.parts.first().map_or(503, |part| part.status) }
}

fn count_up(client: &mut Client, index: usize, count: u64) -> u16 {
    let path = entity_path(COUNTERS, &format!("w{index}"), "count");
    client.update("PUT", &path, None, &json!({ "Count": count })).expect("answered").status
}

/// Reads the counters at the destination again and again: none may ever count down.
fn look(server: &TestServer, stop: &AtomicBool) -> u64 {
    let mut client = server.client();
    let (mut seen, mut looks) = (BTreeMap::new(), 0);
    while !stop.load(Ordering::Relaxed) {
        thread::sleep(Duration::from_millis(2));
        let Ok(entities) = client.try_query(COUNTERS, "") else { continue };
        for entity in entities {
            let key = (entity["PartitionKey"].to_string(), entity["RowKey"].to_string());
            let count = entity["Count"].as_u64();
            let before = seen.insert(key, count);
            assert!(before.is_none_or(|before| before <= count), "{before:?}, then {entity}");
            looks += 1;
        }
    }
    looks
}

fn load(server: &TestServer) {
    let mut client = server.client();
    for table in [TABLE, COUNTERS] {
        client.create_table(table);
    }
    let rows: Vec<u64> = (0..BEFORE).collect();
    for chunk in rows.chunks(100) {
        let partition = format!("old{:02}", chunk[0] / 300);
        let replace = |row: &u64| {
            Operation::replace(TABLE, (&partition, &format!("{row:05}")), None, properties(*row))
        };
        let operations: Vec<_> = chunk.iter().map(replace).collect();
        assert!(client.batch(&operations).expect("answered").succeeded());
    }
}

/// Writers write, the copy is killed and started again, and in the end both sides are the same.
fn follow(from: &TestServer) {
    let seed = seed();
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let to = TestServer::start();
    load(from);
    let source = connection(from.address());
    let chance = SeededRandom::new(seed);
    let (stop, over) = (AtomicBool::new(false), AtomicBool::new(false));
    let began = Instant::now();
    let (written, looks) = thread::scope(|scope| {
        let looker = scope.spawn(|| look(&to, &over));
        let writers: Vec<_> = (0..WRITERS)
            .map(|index| {
                let stop = &stop;
                scope.spawn(move || write(index, seed, from, stop))
            })
            .collect();
        for kill in 0..KILLS {
            let arguments = ["--watch", "--resume", "state", "--jobs", "3", "--acls"];
            let log = here.join("log");
            let mut running = start(copy(here, &source, &to, &arguments), &log);
            if COPYING < kill {
                running.until("it follows", |log| log.contains("ollowing the changes"));
            }
            thread::sleep(Duration::from_millis(50 + below(&chance, 1200)));
            if kill == KILLS / 2 {
                from.client().create_table("Later");
                let entity = json!({ "PartitionKey": "p", "RowKey": "r", "A": 1 });
                from.client().insert("Later", &entity).expect("answered");
            }
            running.kill();
        }
        stop.store(true, Ordering::Relaxed);
        let written: u64 = writers.into_iter().map(|writer| writer.join().expect("no panic")).sum();
        let last = ["--watch", "--until-caught-up", "--verify", "--resume", "state", "--acls"];
        let said = succeed(copy(here, &source, &to, &last));
        assert!(said.contains("Caught up with the source: "), "{said}");
        assert_eq!(said.matches("same").count(), 3, "{said}");
        over.store(true, Ordering::Relaxed);
        (written, looker.join().expect("nothing went back"))
    });
    let mut entities = 0;
    for table in [TABLE, COUNTERS, "Later"] {
        let (source, copied) = (content(from, table), content(&to, table));
        assert_eq!(source, copied, "{table}");
        entities += copied.len();
    }
    assert!(0 < looks && 2000 < entities, "{looks} looks, {entities} entities");
    for server in [from, &to] {
        assert!(!server.log().contains("panicked"), "nothing panicked");
    }
    println!(
        "{WRITERS} writers, {written} writes, killed {KILLS} times: {entities} entities are the same, {looks} looks at \
         counters that never went back; {:.0} s",
        began.elapsed().as_secs_f64()
    );
}

#[test]
fn a_copy_stays_true_while_it_is_killed() {
    follow(&TestServer::start_with(&["--keep-changes", "1h"]));
}

#[test]
fn the_same_from_postgresql() {
    let postgres = TestPostgres::start();
    let url = postgres.create_database();
    follow(&TestServer::start_with_store_and(&url, &["--keep-changes", "1h"]));
}

/// A run that did all and was killed before it could say so is repeated: more changes than one answer holds, all of
/// them older than what the destination has.
#[test]
fn nothing_goes_back_when_changes_are_heard_again() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let (from, to) = (TestServer::start_with(&["--keep-changes", "1h"]), TestServer::start());
    let mut client = from.client();
    client.create_table(COUNTERS);
    let source = connection(from.address());
    let arguments = ["--watch", "--until-caught-up", "--resume", "state"];
    succeed(copy(here, &source, &to, &arguments));
    let before = fs::read(here.join("state")).unwrap();
    for count in 0..30 {
        let row = |row: u64| {
            let row = format!("{row:02}");
            Operation::replace(COUNTERS, ("p", &row), None, json!({ "Count": count }))
        };
        let operations: Vec<_> = (0..100).map(row).collect();
        assert!(client.batch(&operations).expect("answered").succeeded());
    }
    succeed(copy(here, &source, &to, &arguments));
    fs::write(here.join("state"), before).unwrap();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let looker = scope.spawn(|| look(&to, &over));
        let said = succeed(copy(here, &source, &to, &arguments));
        assert!(said.contains("3000 changes of 1 table copied"), "{said}");
        over.store(true, Ordering::Relaxed);
        assert!(looker.join().expect("nothing went back") > 100);
    });
    assert_eq!(content(&from, COUNTERS), content(&to, COUNTERS));
}

/// A watch that runs, and what it prints.
struct Running<'a> {
    child: Child,
    log: &'a Path,
}

impl Running<'_> {
    /// Waits for words in what it prints.
    fn says(&mut self, words: &str) {
        self.until(words, |log| log.contains(words));
    }

    fn until(&mut self, what: &str, mut happened: impl FnMut(&str) -> bool) {
        let began = Instant::now();
        loop {
            let log = fs::read_to_string(self.log).unwrap();
            if happened(&log) {
                return;
            }
            assert!(self.child.try_wait().unwrap().is_none(), "it ended: {log}");
            assert!(began.elapsed() < Duration::from_mins(1), "{what}: {log}");
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// SIGKILL, and it must not have ended before.
    fn kill(mut self) {
        let ended = self.child.try_wait().unwrap();
        let log = fs::read_to_string(self.log).unwrap();
        assert!(ended.is_none(), "it ended by itself ({ended:?}): {log}");
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Ctrl-C; the last line.
    fn interrupt(mut self) -> String {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
        assert!(self.child.wait().unwrap().success());
        fs::read_to_string(self.log).unwrap().lines().last().unwrap_or_default().to_owned()
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn start(mut command: Command, log: &Path) -> Running<'_> {
    let file = File::create(log).unwrap();
    let command = command.stdout(file.try_clone().unwrap()).stderr(file);
    Running { child: command.spawn().expect("it starts"), log }
}

/// Tables that come and go, policies, Ctrl-C, and a destination that is away for a while.
#[test]
fn what_happens_to_tables_is_followed() {
    let directory = tempfile::tempdir().unwrap();
    let (here, log) = (directory.path(), directory.path().join("log"));
    let from = TestServer::start_with(&["--keep-changes", "1h"]);
    let mut to = TestServer::start();
    let mut client = from.client();
    for table in ["Stays", "Goes"] {
        client.create_table(table);
        client.insert(table, &json!({ "PartitionKey": "p", "RowKey": "1" })).unwrap();
    }
    let source = connection(from.address());
    let watch = |to: &TestServer| copy(here, &source, to, &["--watch", "--resume", "state"]);
    let mut running = start(watch(&to), &log);
    running.says("Copied 2 entities of 2 tables; following the changes.\n");
    running.says("Caught up with the source.\n");
    client.insert("Stays", &json!({ "PartitionKey": "p", "RowKey": "2" })).unwrap();
    running.until("the change arrives", |_| content(&to, "Stays").len() == 2);
    client.create_table("Comes");
    client.insert("Comes", &json!({ "PartitionKey": "p", "RowKey": "1" })).unwrap();
    let policy = b"<SignedIdentifiers><SignedIdentifier><Id>readers</Id><AccessPolicy><Permission>r</Permission>\
                   </AccessPolicy></SignedIdentifier></SignedIdentifiers>";
    assert_eq!(client.request("PUT", "Stays?comp=acl", &[], policy).status, 204);
    assert_eq!(client.request("DELETE", "Tables('Goes')", &[], b"").status, 204);
    running.says("Comes is new at the source: copied, and followed.\n");
    running.says("Goes was deleted at the source: the destination keeps it.\n");
    client.insert("Comes", &json!({ "PartitionKey": "p", "RowKey": "2" })).unwrap();
    running.until("changes of the new table arrive", |_| content(&to, "Comes").len() == 2);
    running.until("the policy arrives", |_| {
        to.client().request("GET", "Stays?comp=acl", &[], b"").text().contains("readers")
    });
    let none = b"<SignedIdentifiers />";
    assert_eq!(client.request("PUT", "Stays?comp=acl", &[], none).status, 204);
    running.until("the policy goes away", |_| {
        !to.client().request("GET", "Stays?comp=acl", &[], b"").text().contains("readers")
    });
    assert_eq!(content(&to, "Goes").len(), 1, "it is kept");
    // A destination that does not answer is waited for.
    to.pause();
    client.insert("Stays", &json!({ "PartitionKey": "p", "RowKey": "3" })).unwrap();
    thread::sleep(Duration::from_millis(500));
    to.resume();
    running.until("it goes on", |_| content(&to, "Stays").len() == 3);
    let said = running.interrupt();
    assert_eq!(said, "Stopped: 3 changes copied, up to date; the same command goes on from here.");
    // What was changed meanwhile is copied by the next run, and no more than that.
    client.delete(&entity_path("Stays", "p", "1"), "*").unwrap();
    let caught_up = ["--watch", "--until-caught-up", "--resume", "state"];
    let said = succeed(copy(here, &source, &to, &caught_up));
    assert!(said.ends_with("Caught up with the source: 1 change of 2 tables copied.\n"), "{said}");
    assert!(said.contains("Goes was deleted at the source"), "{said}");
    assert_eq!(content(&to, "Stays"), content(&from, "Stays"));
    // A table that was deleted and made again has nothing to do with what was copied.
    client.create_table("Goes");
    let said = refused_last(copy(here, &source, &to, &caught_up));
    assert!(said.contains("changes of Goes") && said.contains("delete Goes at the dest"), "{said}");
}

/// The source is killed and started again while it is followed.
#[test]
fn a_source_may_go_away_for_a_while() {
    let directory = tempfile::tempdir().unwrap();
    let (here, log) = (directory.path(), directory.path().join("log"));
    let mut from = TestServer::start_with(&["--keep-changes", "1h"]);
    let to = TestServer::start();
    let door = Door::before(&from);
    from.client().create_table(TABLE);
    let insert = |from: &TestServer, row: &str| {
        let entity = json!({ "PartitionKey": "p", "RowKey": row });
        assert_eq!(from.client().insert(TABLE, &entity).unwrap().status, 204);
    };
    let mut running = start(
        copy(here, &connection(door.address()), &to, &["--watch", "--resume", "state"]),
        &log,
    );
    running.says("Caught up with the source.\n");
    for row in ["1", "2"] {
        from.kill();
        from.restart();
        insert(&from, row);
        door.lead_to(&from);
        running.until("it goes on", |_| content(&to, TABLE) == content(&from, TABLE));
    }
    assert!(running.interrupt().starts_with("Stopped: 2 changes copied, up to date"));
}

/// More tables than changes are waited for at a time.
#[test]
fn many_tables_are_followed() {
    let directory = tempfile::tempdir().unwrap();
    let (here, log) = (directory.path(), directory.path().join("log"));
    let (from, to) = (TestServer::start_with(&["--keep-changes", "1h"]), TestServer::start());
    let tables: Vec<_> = (0..80).map(|number| format!("Table{number}")).collect();
    let mut client = from.client();
    let mut insert_all = |row: &str| {
        for table in &tables {
            let entity = json!({ "PartitionKey": "p", "RowKey": row });
            assert_eq!(client.insert(table, &entity).unwrap().status, 204);
        }
    };
    for table in &tables {
        from.client().create_table(table);
    }
    insert_all("1");
    let source = connection(from.address());
    let mut running = start(copy(here, &source, &to, &["--watch", "--resume", "state"]), &log);
    running.says("Copied 80 entities of 80 tables; following the changes.\n");
    running.says("Caught up with the source.\n");
    insert_all("2");
    for table in &tables {
        running.until("its change arrives", |_| content(&to, table).len() == 2);
    }
    assert!(running.interrupt().starts_with("Stopped: 80 changes copied, up to date"));
}

/// The last line with which it fails, after others.
fn refused_last(mut command: Command) -> String {
    let output = command.output().expect("it can be started");
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn an_interrupted_copy_says_where_it_stands() {
    let directory = tempfile::tempdir().unwrap();
    let (here, log) = (directory.path(), directory.path().join("log"));
    let from = TestServer::start_with(&["--keep-changes", "1h"]);
    let mut to = TestServer::start();
    load(&from);
    let source = connection(from.address());
    let arguments = ["--watch", "--resume", "state"];
    let mut running = start(copy(here, &source, &to, &arguments), &log);
    running.until("the copy begins", |_| here.join("state").exists());
    to.pause();
    let id = running.child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    thread::sleep(Duration::from_millis(300));
    to.resume();
    assert!(running.child.wait().unwrap().success());
    let said = fs::read_to_string(&log).unwrap();
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.starts_with("Stopped while copying: "), "{said}");
    let rest = ["--watch", "--until-caught-up", "--resume", "state"];
    succeed(copy(here, &source, &to, &rest));
    assert_eq!(content(&from, TABLE), content(&to, TABLE));
}

#[test]
fn refusals_say_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let to = TestServer::start();
    let without = TestServer::start();
    without.client().create_table(TABLE);
    let source = connection(without.address());
    assert!(refused(copy(here, &source, &to, &["--watch"])).contains("--keep-changes 7d"));
    let foreign = connection(foreign_service());
    let said = refused(copy(here, &foreign, &to, &["--watch", "--resume", "none"]));
    assert!(said.contains("the source has no change feed, which only Rowhouse has"), "{said}");
    assert_eq!(to.client().request("GET", "Tables", &[], b"").json()["value"], json!([]));
    let said = refused(copy(here, &source, &to, &["--watch", "--verify"]));
    assert!(said.contains("add --until-caught-up"), "{said}");
    let usage = copy(here, &source, &to, &["--until-caught-up"]).output().unwrap();
    assert_eq!(usage.status.code(), Some(2));
    succeed(copy(here, &source, &to, &["--resume", "state"]));
    let said = refused(copy(here, &source, &to, &["--watch", "--resume", "state"]));
    assert!(said.contains("copied without --watch"), "{said}");
}

/// The source forgets changes that nobody has copied yet.
#[test]
fn lost_changes_are_noticed() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let (from, to) = (TestServer::start_with(&["--keep-changes", "1s"]), TestServer::start());
    from.client().create_table(TABLE);
    let source = connection(from.address());
    let arguments = ["--watch", "--until-caught-up", "--resume", "state"];
    succeed(copy(here, &source, &to, &arguments));
    let began = Instant::now();
    let said = loop {
        let entity =
            json!({ "PartitionKey": "p", "RowKey": began.elapsed().as_millis().to_string() });
        from.client().insert(TABLE, &entity).unwrap();
        thread::sleep(Duration::from_millis(2500));
        let output = copy(here, &source, &to, &arguments).output().unwrap();
        if !output.status.success() {
            break text(&output);
        }
        assert!(began.elapsed() < Duration::from_mins(1), "changes are never forgotten");
    };
    assert!(said.contains("no longer kept by the source"), "{said}");
    assert!(said.contains("copy again with another file for --resume"), "{said}");
}

/// Something that lists tables and has no change feed, as Azure answers.
fn foreign_service() -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // Ends with the test's process.
    thread::spawn(move || {
        for stream in listener.incoming() {
            let _ = stream.and_then(|stream| answer_as_azure(&stream));
        }
    });
    address
}

fn answer_as_azure(mut stream: &TcpStream) -> io::Result<()> {
    let mut buffer = [0; 8192];
    let read = stream.read(&mut buffer)?;
    let asked = String::from_utf8_lossy(&buffer[..read]).into_owned();
    let (status, body) = if asked.contains("comp=changes") {
        let message = json!({ "lang": "en-US", "value": "Value for one of the query parameters is invalid." });
        let error = json!({ "code": "InvalidQueryParameterValue", "message": message });
        ("400 Bad Request", json!({ "odata.error": error }))
    } else {
        ("200 OK", json!({ "value": [{ "TableName": "People" }] }))
    };
    let body = body.to_string();
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}
