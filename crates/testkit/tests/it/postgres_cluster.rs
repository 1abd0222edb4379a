//! `rowhouse cluster status` on servers of the built binary that share a PostgreSQL database.

#![cfg(unix)]

use rowhouse_testkit::{TestPostgres, TestServer, binary};
use serde_json::{Value, json};
use std::process::Command;
use std::time::{Duration, Instant};

/// Servers publish what they ask for every ten seconds; a busy machine may take longer.
const WITHIN: Duration = Duration::from_mins(1);
/// The PostgreSQL that tests share does not sync.
const LAX: &str = "--ephemeral";

/// What the command prints about the server.
fn status(server: &TestServer, token: &str, arguments: &[&str]) -> String {
    let output = Command::new(binary())
        .args(["cluster", "status", "--admin-token-file", token, "--admin"])
        .arg(format!("http://{}", server.admin_address()))
        .args(arguments)
        .output()
        .expect("it can be started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("it is text")
}

#[test]
fn servers_show_what_all_of_them_ask_for() {
    let url = TestPostgres::shared().create_database();
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let token = directory.path().join("token");
    std::fs::write(&token, "a-token-of-this-test\n").expect("a file can be written");
    let token = token.to_str().expect("it is text");
    let arguments = [LAX, "--admin-token-file", token];
    let start = || TestServer::start_with_store_and(&url, &arguments);
    let (writer, reader) = (start(), start());
    writer.client().create_table("People");
    let (mut writing, mut reading) = (writer.client(), reader.client());
    let began = Instant::now();
    let mut turn = 0;
    loop {
        turn += 1;
        let entity = json!({"PartitionKey": "p", "RowKey": turn.to_string(), "Age": 42});
        assert_eq!(writing.insert("People", &entity).expect("answered").status, 204);
        assert_eq!(reading.get("People", "p", "1").status, 200);
        let shown: Value =
            serde_json::from_str(&status(&writer, token, &["--json"])).expect("JSON");
        assert_eq!(shown["engine"], "postgres");
        assert_eq!(shown["servers"].as_array().map(Vec::len), Some(2));
        let load = &shown["shards"][0]["load"];
        let figure = |name: &str| load[name].as_f64().expect("a number");
        if figure("reads_per_second") > 0.0 && figure("writes_per_second") > 0.0 {
            assert!(figure("busy_ms_per_second") > 0.0, "{shown}");
            break;
        }
        assert!(began.elapsed() < WITHIN, "waited in vain: {shown}");
        std::thread::sleep(Duration::from_millis(100));
    }
    let text = status(&reader, token, &[]);
    for part in ["One PostgreSQL database", "database", "up", "asked now", "\nall "] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
}
