//! What the server refuses to start on: one sentence each, and nothing lost.

use rowhouse_testkit::{SmallDisk, TestServer, binary};
use serde_json::json;
use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Runs `serve` on a directory and waits for its end; panics if it is still there after ten seconds.
fn serve(data: &Path, arguments: &[&str]) -> Output {
    let mut child = Command::new(binary())
        .args(["serve", "--data"])
        .arg(data)
        .args(["--table-port", "0", "--admin-port", "0"])
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the server can be started");
    let began = Instant::now();
    while matches!(child.try_wait(), Ok(None)) {
        if Duration::from_secs(10) < began.elapsed() {
            let _ = child.kill();
            let output = child.wait_with_output().expect("the server has ended");
            panic!("the server did not refuse: {output:?}");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().expect("the server has ended")
}

/// It failed with one sentence that holds one of the words, and did not panic.
fn assert_refused(output: &Output, words: &[&str]) {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "the exit code says that it failed: {text}");
    assert!(!text.contains("panicked"), "{text}");
    let lines: Vec<_> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    assert_eq!(lines.len(), 1, "one sentence: {text}");
    let lower = text.to_lowercase();
    assert!(words.iter().any(|word| lower.contains(word)), "it says what is wrong: {text}");
}

fn insert(server: &TestServer, row: &str) {
    let entity = json!({ "PartitionKey": "p", "RowKey": row });
    assert_eq!(server.client().insert("Kept", &entity).expect("answered").status, 204);
}

#[test]
fn a_second_server_on_the_same_directory() {
    let server = TestServer::start();
    server.client().create_table("Kept");
    insert(&server, "before");
    let output = serve(server.data(), &[]);
    assert_refused(&output, &["another", "in use", "already", "lock"]);
    insert(&server, "after");
    assert_eq!(server.client().query("Kept", "").len(), 2, "the first goes on as if nothing was");
}

#[test]
fn a_port_in_use() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = taken.local_addr().expect("an address").port().to_string();
    let flags = ["--table-port", "--queue-port", "--admin-port"];
    for flag in flags {
        let directory = tempfile::tempdir().expect("a temporary directory");
        // The later flag wins where both are given; otherwise the refusal would be about that.
        let mut command = Command::new(binary());
        command.args(["serve", "--data"]).arg(directory.path().join("data"));
        command.args([flag, &port]);
        for other in flags.into_iter().filter(|other| *other != flag) {
            command.args([other, "0"]);
        }
        let output = command.output().expect("it can be run");
        assert_refused(&output, &["in use", &port]);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains(flag), "{text}");
    }
}

#[test]
fn an_unwritable_directory() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("file");
    fs::write(&file, b"not a directory").expect("a file can be written");
    assert_refused(&serve(&file, &[]), &["directory"]);
    assert_refused(&serve(&file.join("below"), &[]), &["directory", "create"]);
    assert_eq!(fs::read(&file).expect("still there"), b"not a directory");

    let locked = directory.path().join("locked");
    fs::create_dir(&locked).expect("a directory can be made");
    let mut permissions = fs::metadata(&locked).expect("there").permissions();
    permissions.set_readonly(true);
    fs::set_permissions(&locked, permissions).expect("permissions can be set");
    if fs::write(locked.join("probe"), b"").is_ok() {
        // The superuser may write anywhere; a file system that nobody can write to does for him.
        assert_refused(&serve(Path::new("/proc/rowhouse"), &[]), &["directory", "create"]);
        return;
    }
    assert_refused(&serve(&locked, &[]), &["permission", "write"]);
}

#[test]
fn a_directory_of_an_unknown_format() {
    let mut server = TestServer::start();
    server.client().create_table("Kept");
    insert(&server, "row");
    assert!(server.stop().success());
    let database = server.data().join("rowhouse.db");
    let genuine = fs::read(&database).expect("the database can be read");
    // SQLite keeps the format of the application at byte 60 of the header.
    let mut newer = genuine.clone();
    newer[60..64].copy_from_slice(&999_999u32.to_be_bytes());
    let text = b"these bytes belong to somebody else".to_vec();
    for (foreign, word) in [(newer, "999999"), (text, "not a rowhouse database")] {
        fs::write(&database, &foreign).expect("the database can be written");
        assert_refused(&serve(server.data(), &[]), &[word]);
        assert!(fs::read(&database).expect("still there") == foreign, "nothing was touched");
    }
    fs::write(&database, genuine).expect("the database can be written");
    server.restart();
    assert_eq!(server.client().query("Kept", "").len(), 1, "nothing was lost");
}

/// Needs a small file system of its own, which only the superuser can mount.
#[test]
fn a_full_disk() {
    let Some(disk) = SmallDisk::mount(24) else {
        println!("NOT VERIFIED: a small file system cannot be mounted here");
        return;
    };
    disk.fill(16 * 1024);
    let mut server = TestServer::start_in(disk.path(), &[]);
    let mut client = server.client();
    client.create_table("Kept");
    let pad = "x".repeat(30_000);
    let (mut kept, mut refused) = (0u32, None);
    for n in 0..5_000 {
        let row = format!("{n:06}");
        let entity = json!({ "PartitionKey": "p", "RowKey": row, "pad": pad });
        let answer = client.insert("Kept", &entity).expect("a full disk is answered");
        if answer.status != 204 {
            refused = Some(answer);
            break;
        }
        kept += 1;
    }
    let refused = refused.expect("the disk is full at some point");
    println!("full after {kept} entities of 30 KB: {} {:?}", refused.status, refused.code());
    assert!(refused.status >= 500, "{}: {}", refused.status, refused.text());
    assert!(!server.log().contains("panicked"), "{}", server.log());
    let found = client.query("Kept", "").len();
    assert!(found >= kept as usize, "{kept} acknowledged, {found} found while full");
    server.kill();
    // With some room again it starts, and has everything that it acknowledged.
    disk.make_room();
    server.restart();
    let found = server.client().query("Kept", "").len();
    assert!(found >= kept as usize, "{kept} acknowledged, {found} found afterwards");
    insert(&server, "after");
    drop(server);

    disk.fill(0);
    let output = serve(&disk.path().join("fresh"), &[]);
    assert_refused(&output, &["full", "space"]);
}
