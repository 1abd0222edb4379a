//! A full disk where backup, restore, export and copy write to: a sentence that says so, nothing that looks whole and is
//! not, and the same command goes on when there is room again.

#![cfg(unix)]

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rowhouse_env::{Random, SeededRandom};
use rowhouse_testkit::{Client, Connection, DEV_ACCOUNT, DEV_KEY, SmallDisk, TestServer, binary};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Entities of each table, each of about 20 KB that cannot be compressed.
const ENTITIES: usize = 120;
const TABLES: [&str; 2] = ["First", "Second"];
/// Room for a few times as much as everything.
const DISK_MIB: usize = 40;
/// What is left of it when a command begins.
const LEFT_KIB: [usize; 4] = [0, 100, 700, 2500];

/// A small disk, or a line that says that nothing was verified.
fn small_disk() -> Option<SmallDisk> {
    let disk = SmallDisk::mount(DISK_MIB);
    if disk.is_none() {
        println!("full disk: NOT VERIFIED, a small file system cannot be mounted here");
    }
    disk
}

fn rowhouse(arguments: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run(command: &mut Command) -> Output {
    command.output().expect("it can be started")
}

fn succeed(command: &mut Command) -> String {
    let output = run(command);
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{command:?}: {text}");
    text
}

/// The one sentence of a command that found no room.
fn no_room(command: &mut Command) -> String {
    let output = run(command);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{command:?}: {text}");
    assert!(!text.contains("panicked"), "{text}");
    let last = text.lines().last().unwrap_or_default().to_owned();
    println!("{last}");
    assert!(last.starts_with("rowhouse: "), "{text}");
    let lower = last.to_lowercase();
    assert!(lower.contains("no space left") || lower.contains("full"), "it says why: {last}");
    let advice =
        ["make room", "nothing of it was kept", "whether the disk is full", "mend the cause"];
    assert!(advice.iter().any(|words| last.contains(words)), "it says what to do: {last}");
    last
}

fn fill(client: &mut Client) {
    let chance = SeededRandom::new(1);
    for table in TABLES {
        client.create_table(table);
        for row in 0..ENTITIES {
            let mut noise = vec![0; 20_000];
            chance.fill(&mut noise);
            let entity = json!({
                "PartitionKey": format!("p{}", row % 7), "RowKey": format!("{row:04}"),
                "Noise@odata.type": "Edm.Binary", "Noise": STANDARD.encode(noise),
            });
            assert_eq!(client.insert(table, &entity).expect("answered").status, 204);
        }
    }
}

fn contents(server: &TestServer) -> Vec<Vec<Value>> {
    let mut client = server.client();
    TABLES
        .map(|table| {
            let mut entities = client.query(table, "");
            for entity in &mut entities {
                let entity = entity.as_object_mut().expect("an entity");
                entity.retain(|name, _| !name.starts_with("odata.") && name != "Timestamp");
            }
            entities
        })
        .into()
}

fn ask(server: &TestServer, arguments: &[&str]) -> Command {
    let mut command = rowhouse(arguments);
    command.arg("--admin").arg(format!("http://{}", server.admin_address()));
    command.arg("--admin-token-file").arg(server.data().join("admin-token"));
    command
}

fn connection(server: &TestServer) -> String {
    format!(
        "AccountName={DEV_ACCOUNT};AccountKey={DEV_KEY};TableEndpoint=http://{}/{DEV_ACCOUNT}",
        server.address()
    )
}

/// The names in a directory, without the ballast.
fn names(directory: &Path) -> Vec<String> {
    let names = fs::read_dir(directory).expect("it can be read");
    let names = names.map(|entry| entry.expect("it can be read").file_name());
    let names = names.map(|name| name.into_string().expect("a plain name"));
    names.filter(|name| name != "ballast").collect()
}

#[test]
fn of_a_backup() {
    let Some(disk) = small_disk() else { return };
    let server = TestServer::start();
    fill(&mut server.client());
    let file = disk.path().join("all.rhb");
    for left in LEFT_KIB {
        disk.fill(left);
        let sentence = no_room(ask(&server, &["backup"]).arg(&file));
        assert!(sentence.contains("all.rhb"), "it says where: {sentence}");
        assert_eq!(names(disk.path()), [""; 0], "nothing is left with {left} KiB");
        disk.make_room();
    }
    succeed(ask(&server, &["backup"]).arg(&file));
    succeed(rowhouse(&["backup", "verify"]).arg(&file));
}

#[test]
fn of_a_restore() {
    let Some(disk) = small_disk() else { return };
    let source = TestServer::start();
    fill(&mut source.client());
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let file = directory.path().join("all.rhb");
    succeed(ask(&source, &["backup"]).arg(&file));
    let data = disk.path().join("data");
    for left in LEFT_KIB {
        disk.fill(left);
        let restore = || {
            let mut command = rowhouse(&["restore"]);
            command.arg(&file).arg("--data").arg(&data);
            command
        };
        let sentence = no_room(&mut restore());
        assert!(sentence.contains("small/data"), "it says where: {sentence}");
        // Again without room: what is there does not get worse.
        no_room(&mut restore());
        disk.make_room();
        let begun = starts_empty_or_refuses(&data);
        let said = succeed(&mut restore());
        assert!(said.starts_with("Restored 1 account, 2 tables and 240 entities"), "{said}");
        assert!(begun || !said.contains("the rest of an earlier attempt"), "{said}");
        let checked = succeed(rowhouse(&["check"]).arg(&data));
        assert!(checked.contains("2 tables with 240 entities"), "{checked}");
        let restored = TestServer::start_in(disk.path(), &[]);
        assert_eq!(contents(&restored), contents(&source), "with {left} KiB");
        drop(restored);
        fs::remove_dir_all(&data).expect("it can be removed");
    }
}

/// A server whose disk is full answers reads, refuses writes, and takes them again when there is room, without a restart.
/// Everything that was acknowledged is there, also after it was killed.
#[test]
fn of_a_server_that_goes_on() {
    let Some(disk) = small_disk() else { return };
    let mut server = TestServer::start_in(disk.path(), &[]);
    let mut client = server.client();
    client.create_table("Fill");
    let mut acknowledged = Vec::new();
    let mut row = 0;
    let mut insert = |client: &mut Client, acknowledged: &mut Vec<String>| {
        row += 1;
        let key = format!("{row:06}");
        let pad = "x".repeat(30_000);
        let entity = json!({ "PartitionKey": "p", "RowKey": key, "Pad": pad });
        let status = client.insert("Fill", &entity).expect("answered").status;
        if status == 204 {
            acknowledged.push(key);
        }
        status
    };
    for left in [0, 700, 2500] {
        disk.fill(left);
        let mut statuses = Vec::new();
        while statuses.len() < 3 {
            let status = insert(&mut client, &mut acknowledged);
            if status != 204 {
                statuses.push(status);
            }
        }
        assert_eq!(statuses, [500, 503, 503], "with {left} KiB");
        let ready = admin(&server, "/readyz");
        assert!(
            ready.contains(" 503 ") && ready.contains("the disk is full: make room"),
            "{ready}"
        );
        assert!(rows(&mut client, "Fill").is_superset(&acknowledged.iter().cloned().collect()));
        // Not while there is only a little.
        std::thread::sleep(Duration::from_millis(2500));
        assert_eq!(insert(&mut client, &mut acknowledged), 503);
        disk.make_room();
        let began = Instant::now();
        while !server.is_ready() {
            assert!(
                began.elapsed() < Duration::from_secs(30),
                "it does not go on: {}",
                server.log()
            );
            std::thread::sleep(Duration::from_millis(50));
        }
        assert_eq!(insert(&mut client, &mut acknowledged), 204, "with {left} KiB");
        assert_eq!(names(disk.path()), ["data"]);
        let files = names(&disk.path().join("data"));
        assert!(!files.iter().any(|name| name.starts_with("room")), "{files:?}");
    }
    let log = server.log();
    assert_eq!(
        log.matches("the disk is full, no more writes until there is room").count(),
        3,
        "{log}"
    );
    assert_eq!(log.matches("the disk has room again").count(), 3, "{log}");
    server.kill();
    server.restart();
    assert!(
        rows(&mut server.client(), "Fill").is_superset(&acknowledged.iter().cloned().collect())
    );
    drop(server);
    let checked = succeed(rowhouse(&["check"]).arg(disk.path().join("data")));
    assert!(checked.contains("everything is in order"), "{checked}");
}

/// The RowKeys of a table.
fn rows(client: &mut Client, table: &str) -> BTreeSet<String> {
    let found = client.query(table, "");
    found.iter().map(|entity| entity["RowKey"].as_str().expect("a key").to_owned()).collect()
}

/// What the admin listener answers.
fn admin(server: &TestServer, path: &str) -> String {
    let mut connection = Connection::open(server.admin_address()).expect("it listens");
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    connection.send(request.as_bytes()).expect("it is read");
    let response = connection.receive("GET").expect("it is answered");
    format!(" {} {}", response.status, response.text())
}

/// A data directory that was closed needs a little room to be opened, even to be read.
#[test]
fn of_a_directory_that_was_closed() {
    let Some(disk) = small_disk() else { return };
    let source = TestServer::start();
    fill(&mut source.client());
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let file = directory.path().join("all.rhb");
    succeed(ask(&source, &["backup"]).arg(&file));
    let data = disk.path().join("data");
    succeed(rowhouse(&["restore"]).arg(&file).arg("--data").arg(&data));
    disk.fill(0);
    no_room(rowhouse(&["check"]).arg(&data));
    no_room(rowhouse(&["serve", "--table-port", "0", "--admin-port", "0", "--data"]).arg(&data));
    disk.make_room();
    let checked = succeed(rowhouse(&["check"]).arg(&data));
    assert!(checked.contains("240 entities: everything is in order"), "{checked}");
}

/// A server on half a restore does not start; one on nothing has nothing. True for the first.
fn starts_empty_or_refuses(data: &Path) -> bool {
    let ready = data.with_file_name("ready");
    let mut server = rowhouse(&["serve", "--table-port=0", "--admin-port=0", "--quiet"])
        .arg("--development-account=false")
        .arg("--ready-file")
        .arg(&ready)
        .arg("--data")
        .arg(data)
        .spawn()
        .expect("it can be started");
    while server.try_wait().expect("it can be asked").is_none() {
        if ready.exists() {
            server.kill().expect("it can be killed");
            server.wait().expect("it can be waited for");
            fs::remove_file(ready).expect("it is there");
            let checked = succeed(rowhouse(&["check"]).arg(data));
            assert!(checked.starts_with("0 tables with 0 entities"), "{checked}");
            return false;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let output = server.wait_with_output().expect("it has ended");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("is not finished"), "{text}");
    true
}

#[test]
fn of_an_export() {
    let Some(disk) = small_disk() else { return };
    let server = TestServer::start();
    fill(&mut server.client());
    for (name, jobs) in [("out.ndjson", "1"), ("out.csv", "2")] {
        let whole = tempfile::tempdir().expect("a temporary directory can be made");
        let whole = whole.path().join(name);
        let export = |file: &Path, more: &[&str]| {
            let mut command = rowhouse(&["export", "First", "--jobs", jobs, "--out"]);
            command.arg(file).args(more).env("ROWHOUSE_CONNECTION", connection(&server));
            command
        };
        succeed(&mut export(&whole, &[]));
        let file = disk.path().join(name);
        for left in LEFT_KIB {
            disk.fill(left);
            let sentence = no_room(&mut export(&file, &["--resume"]));
            assert!(sentence.contains(name), "it says where: {sentence}");
            assert!(!file.exists(), "the file has its name when it is complete");
            no_room(&mut export(&file, &["--resume"]));
            disk.make_room();
            let said = succeed(&mut export(&file, &["--resume"]));
            assert!(said.starts_with("Exported 120 entities of First"), "{said}");
            assert_eq!(lines(&file), lines(&whole), "{name} with {left} KiB");
            assert_eq!(names(disk.path()), [name], "nothing else is left");
            fs::remove_file(&file).expect("it can be removed");
        }
    }
}

/// With several jobs pages stand in the file as they came.
fn lines(file: &Path) -> Vec<String> {
    let text = fs::read_to_string(file).expect("it can be read");
    let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn of_the_state_of_a_copy() {
    let Some(disk) = small_disk() else { return };
    let source = TestServer::start();
    fill(&mut source.client());
    let state = disk.path().join("copy.state");
    let destination = TestServer::start();
    let copy = || {
        let mut command = rowhouse(&["copy", "--resume"]);
        command.arg(&state);
        command.env("ROWHOUSE_COPY_SOURCE", connection(&source));
        command.env("ROWHOUSE_COPY_DEST", connection(&destination));
        command
    };
    disk.fill(0);
    let sentence = no_room(&mut copy());
    assert!(sentence.contains("copy.state"), "it says where: {sentence}");
    disk.make_room();
    let said = succeed(&mut copy());
    assert!(said.starts_with("Copied 240 entities of 2 tables"), "{said}");
    assert_eq!(contents(&destination), contents(&source));
}

/// What an import could not take is told in a file; the rows that it took stay.
#[test]
fn of_the_errors_of_an_import() {
    let Some(disk) = small_disk() else { return };
    let server = TestServer::start();
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let file = directory.path().join("in.ndjson");
    let row = |n: usize| match n % 2 {
        0 => json!({ "PartitionKey": "p", "RowKey": n.to_string() }).to_string(),
        _ => json!({ "PartitionKey": "p" }).to_string(),
    };
    fs::write(&file, (0..2000).map(row).collect::<Vec<_>>().join("\n")).expect("it can be written");
    let errors = disk.path().join("refused.ndjson");
    let import = || {
        let mut command = rowhouse(&["import", "People", "--create", "--errors"]);
        command.arg(&errors).arg(&file).env("ROWHOUSE_CONNECTION", connection(&server));
        command
    };
    disk.fill(0);
    let sentence = no_room(&mut import());
    assert!(sentence.contains("refused.ndjson"), "it says where: {sentence}");
    disk.make_room();
    let output = run(import().arg("--resume"));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("1000 rows were refused"), "{text}");
    assert_eq!(lines(&errors).len(), 1000);
    assert_eq!(server.client().query("People", "").len(), 1000);
}
