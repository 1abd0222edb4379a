//! The built binary on a real PostgreSQL: what a start needs, what it refuses, and several servers on one database.

#![cfg(unix)]

use rowhouse_testkit::{Connection, Operation, Response, TestPostgres, TestServer, binary};
use serde_json::json;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long anything here may take, even on a busy machine.
const WITHIN: Duration = Duration::from_mins(1);
/// The PostgreSQL that tests share does not sync.
const LAX: &[&str] = &["--ephemeral"];

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < WITHIN, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn ask_admin(server: &TestServer, path: &str) -> Response {
    let mut connection = Connection::open(server.admin_address()).expect("it listens");
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    connection.send(request.as_bytes()).expect("it is read");
    connection.receive("GET").expect("it is answered")
}

/// `serve` on a database, with everything else in a directory.
fn serve(directory: &Path, url: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command
        .args(["serve", "--data", "data", "--table-port=0", "--admin-port=0"])
        .args(arguments)
        .env("ROWHOUSE_STORE", url)
        .current_dir(directory)
        .stdin(Stdio::null());
    command
}

/// Everything that a server prints which does not start on this database.
fn refused(url: &str, arguments: &[&str]) -> String {
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let output = serve(directory.path(), url, arguments).output().expect("it can be started");
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert_eq!(output.status.code(), Some(1), "{text}");
    text
}

/// Without checksums PostgreSQL returns damaged pages as they are.
#[test]
fn a_database_without_checksums_is_told() {
    for (postgres, is_told) in
        [(TestPostgres::start(), true), (TestPostgres::start_with_checksums(), false)]
    {
        let server = TestServer::start_with_store(&postgres.create_database());
        let log = server.log();
        assert_eq!(log.contains("data_checksums off"), is_told, "{log}");
        assert_eq!(log.contains("pg_checksums --enable"), is_told, "{log}");
    }
}

#[test]
fn data_is_in_the_database_and_files_of_the_server_in_its_directory() {
    let postgres = TestPostgres::start();
    let mut server = TestServer::start_with_store(&postgres.create_database());
    let place = format!("PostgreSQL at 127.0.0.1:{}/rowhouse_test_", postgres.port());
    assert!(server.log().contains(&place), "{}", server.log());
    let mut client = server.client();
    client.create_table("People");
    let entity = json!({"PartitionKey": "p", "RowKey": "r", "Age": 42});
    assert_eq!(client.insert("People", &entity).expect("answered").status, 204);
    let figures = ask_admin(&server, "/metrics").text();
    for line in [
        "rowhouse_store_info{engine=\"postgres\"} 1",
        "rowhouse_store_ready 1",
        "rowhouse_store_commits_total 1",
        "rowhouse_store_waiting 0",
    ] {
        assert!(figures.lines().any(|found| found == line), "{line}: {figures}");
    }
    server.kill();
    server.restart();
    assert_eq!(server.client().get("People", "p", "r").json()["Age"], 42);
    assert!(server.stop().success());
    let files: Vec<_> = fs::read_dir(server.data()).expect("it is there").collect();
    assert_eq!(files.len(), 1, "{files:?}");
    assert!(server.data().join("admin-token").exists());
}

#[test]
fn servers_that_start_at_the_same_moment_share_the_development_account() {
    let url = TestPostgres::shared().create_database();
    let mut servers: Vec<TestServer> = std::thread::scope(|scope| {
        let start = || TestServer::start_with_store_and(&url, LAX);
        let starting = [(); 3].map(|()| scope.spawn(start));
        starting.into_iter().map(|thread| thread.join().expect("it starts")).collect()
    });
    for server in &servers {
        assert!(server.log().contains("AccountName=devstoreaccount1"), "{}", server.log());
    }
    servers[0].client().create_table("Shared");
    let entity = json!({"PartitionKey": "p", "RowKey": "r", "n": 1});
    assert_eq!(servers[1].client().insert("Shared", &entity).expect("answered").status, 204);
    assert_eq!(servers[2].client().get("Shared", "p", "r").status, 200);
    for server in &mut servers {
        assert!(server.stop().success());
    }
}

#[test]
fn keys_sealed_by_another_server_are_explained() {
    let url = TestPostgres::shared().create_database();
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let key = |name: &str, byte: &str| {
        let path = directory.path().join(name);
        fs::write(&path, byte.repeat(32)).expect("a file can be written");
        path.to_str().expect("it is text").to_owned()
    };
    let (right, wrong) = (key("right", "ab"), key("wrong", "cd"));
    let with_right = ["--ephemeral", "--master-key-file", &right];
    let _first = TestServer::start_with_store_and(&url, &with_right);
    for arguments in [LAX, &["--ephemeral", "--master-key-file", &wrong]] {
        let text = refused(&url, arguments);
        assert!(text.contains("need the same master key"), "{text}");
    }
    TestServer::start_with_store_and(&url, &with_right);
}

/// Somebody's laptop does not open a database of a site to everybody.
#[test]
fn the_public_key_is_not_brought_into_a_database_that_does_without() {
    let url = TestPostgres::shared().create_database();
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let token = directory.path().join("token");
    fs::write(&token, "a token of this test\n".replace(' ', "-")).expect("a file can be written");
    let token = token.to_str().expect("it is text");
    let site = ["--ephemeral", "--development-account=false", "--admin-token-file", token];
    let server = TestServer::start_with_store_and(&url, &site);
    let created = Command::new(binary())
        .args(["account", "create", "shop", "--admin-token-file", token, "--admin"])
        .arg(format!("http://{}", server.admin_address()))
        .output()
        .expect("it can be started");
    assert!(created.status.success(), "{}", String::from_utf8_lossy(&created.stderr));
    let text = refused(&url, LAX);
    assert!(text.contains("add --development-account=false"), "{text}");
}

/// A database without accounts lets a development server in, whose account a site then does not serve.
#[test]
fn the_public_key_opens_nothing_on_a_server_that_does_without() {
    let url = TestPostgres::shared().create_database();
    let site =
        TestServer::start_with_store_and(&url, &["--ephemeral", "--development-account=false"]);
    let laptop = TestServer::start_with_store_and(&url, LAX);
    laptop.client().create_table("Things");
    let refused = site.client().request("GET", "Tables", &[], b"");
    let (status, code) = (refused.status, refused.code());
    assert_eq!(
        (status, code.as_deref()),
        (403, Some("AuthenticationFailed")),
        "{}",
        refused.text()
    );
    assert_eq!(laptop.client().request("GET", "Tables", &[], b"").status, 200);
}

#[test]
fn databases_that_cannot_be_used_are_refused_at_once() {
    let postgres = TestPostgres::start_with(&[("fsync", "off")]);
    let text = refused(&postgres.create_database(), &[]);
    assert!(text.contains("fsync=off") && text.contains("--ephemeral"), "{text}");
    postgres
        .execute("postgres", "CREATE DATABASE old TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'");
    let text = refused(&postgres.url("old"), LAX);
    assert!(text.contains("ENCODING 'UTF8'"), "{text}");
}

/// From the address and from a file; a wrong one is told without telling it.
#[test]
fn a_password_is_used_and_never_shown() {
    let postgres = TestPostgres::start();
    let database = postgres.create_database();
    let name = database.rsplit('/').next().expect("a path");
    postgres.execute(
        name,
        &format!(
            "CREATE ROLE ann LOGIN PASSWORD 's3cr@t/?'; GRANT CREATE ON DATABASE {name} TO ann"
        ),
    );
    let rules = "host all ann 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\n";
    fs::write(postgres.directory().join("data/pg_hba.conf"), rules).expect("it can be written");
    postgres.execute(name, "SELECT pg_reload_conf()");
    let place = format!("127.0.0.1:{}/{name}", postgres.port());
    let without = format!("postgres://ann@{place}");
    wait_until("the rules hold", || {
        refused(&without, &["--store-wait-seconds=0"]).contains("password")
    });

    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let file = directory.path().join("password");
    fs::write(&file, "s3cr@t/?\n").expect("a file can be written");
    let from_file =
        ["--log-level=trace", "--store-password-file", file.to_str().expect("it is text")];
    let in_address = format!("postgres://ann:s3cr%40t%2F%3F@{place}");
    let servers = [
        TestServer::start_with_store_and(&in_address, &["--log-level=trace"]),
        TestServer::start_with_store_and(&without, &from_file),
    ];
    for server in servers {
        let log = server.log();
        assert!(log.contains(&place) && !log.contains("s3cr"), "{log}");
    }
    // At once, however long a database that is not there would be waited for.
    let (began, patient) = (Instant::now(), "--store-wait-seconds=600");
    let wrong = format!("postgres://ann:wr0ng@{place}");
    let text = refused(&wrong, &[patient, "--log-level=trace"]);
    assert!(text.contains(&place) && !text.contains("wr0ng"), "{text}");
    let text = refused(&without, &[patient]);
    assert!(text.contains("password missing") && text.contains("check the address"), "{text}");
    assert!(began.elapsed() < WITHIN, "a wrong password is waited for");
}

#[test]
fn a_database_that_starts_later_is_waited_for_and_one_that_fails_is_told() {
    let mut postgres = TestPostgres::start();
    let url = postgres.create_database();
    postgres.stop();
    let server = std::thread::scope(|scope| {
        let starting = scope.spawn(|| TestServer::start_with_store(&url));
        std::thread::sleep(Duration::from_secs(2));
        assert!(!starting.is_finished(), "it waits");
        postgres.restart();
        starting.join().expect("it starts")
    });
    assert!(server.log().contains("waiting for the database"), "{}", server.log());
    assert_eq!(ask_admin(&server, "/readyz").status, 200);
    postgres.kill();
    wait_until("not ready", || ask_admin(&server, "/readyz").status == 503);
    let text = ask_admin(&server, "/readyz").text();
    assert!(text.contains("recovers by itself"), "{text}");
    postgres.restart();
    wait_until("ready again", || ask_admin(&server, "/readyz").status == 200);
}

/// Ends the connections of three writes that wait for the table, while they wait.
const BREAK_THREE_WRITES: &str = "BEGIN;
    LOCK TABLE rowhouse.entities IN EXCLUSIVE MODE;
    CREATE TEMPORARY VIEW waiting AS
        SELECT pid FROM pg_locks WHERE relation = 'rowhouse.entities'::regclass AND NOT granted;
    DO $$ BEGIN
        WHILE (SELECT count(*) FROM waiting) < 3 LOOP PERFORM pg_sleep(0.01); END LOOP;
        PERFORM pg_terminate_backend(pid) FROM waiting;
        WHILE (SELECT count(*) FROM waiting) > 0 LOOP PERFORM pg_sleep(0.01); END LOOP;
    END $$;
    COMMIT";

/// A statement whose connection broke may have been done. A transaction that had not come to its end was not.
#[test]
fn a_write_that_may_have_happened_is_told_from_one_that_has_not() {
    let postgres = TestPostgres::shared();
    let url = postgres.create_database();
    let database = url.rsplit('/').next().expect("a path");
    let server = TestServer::start_with_store_and(&url, LAX);
    server.client().create_table("Things");
    let insert =
        |row: &str| Operation::insert("Things", json!({"PartitionKey": "p", "RowKey": row}));
    let upsert = |row: &str| Operation::replace("Things", ("p", row), None, json!({"n": 1}));
    let is_locked = "SELECT count(*) FROM pg_locks
        WHERE relation = 'rowhouse.entities'::regclass AND mode = 'ExclusiveLock' AND granted";
    let (single, alike, mixed) = std::thread::scope(|scope| {
        scope.spawn(|| postgres.execute(database, BREAK_THREE_WRITES));
        wait_until("the table is locked", || postgres.execute(database, is_locked) == "1");
        let single = scope.spawn(|| server.client().send(&insert("a")));
        let alike = scope.spawn(|| server.client().batch(&[insert("b"), insert("c")]));
        let mixed = scope.spawn(|| server.client().batch(&[insert("d"), upsert("e")]));
        let single = single.join().expect("it ends").expect("answered");
        let alike = alike.join().expect("it ends").expect("answered");
        (single, alike, mixed.join().expect("it ends").expect("answered"))
    });
    // A batch fails as a whole, which is what SDKs look at before they repeat it.
    for (answer, status, code) in [
        (&single, 500, "OperationTimedOut"),
        (&alike.response, 500, "OperationTimedOut"),
        (&mixed.response, 503, "ServerBusy"),
    ] {
        let text = answer.text();
        assert_eq!((answer.status, answer.code().as_deref()), (status, Some(code)), "{text}");
        let sentence = "The operation could not be completed within the permitted time.";
        assert_eq!(text.contains(sentence), status == 500, "{text}");
    }
    // The pool may hold a connection of which it does not know yet that it broke: 503 then, as before.
    let again = [insert("d"), upsert("e")];
    let mut answer = None;
    wait_until("the server has left its broken connections", || {
        let batch = server.client().batch(&again).expect("answered");
        let busy = batch.response.status == 503;
        answer = Some(batch);
        !busy
    });
    assert!(answer.is_some_and(|batch| batch.succeeded()), "nothing was left of it");
}

#[test]
fn a_start_that_waits_can_be_stopped() {
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let log = directory.path().join("log");
    let file = fs::File::create(&log).expect("a file can be made");
    let nobody = "postgres://ann@127.0.0.1:1/shop";
    let mut child =
        serve(directory.path(), nobody, &[]).stderr(file).spawn().expect("it can be started");
    wait_until("it waits", || fs::read_to_string(&log).is_ok_and(|text| text.contains("waiting")));
    let asked = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
    assert!(asked.is_ok_and(|status| status.success()), "it can be signalled");
    let ended = child.wait().expect("it ends");
    assert!(ended.success(), "{ended}");
    assert!(!directory.path().join("data").exists(), "nothing is left behind");
}

/// What the service says of its secondary: the status, and until when it is in step.
fn stats(server: &TestServer) -> (String, Option<String>) {
    let mut client = server.client().at_secondary();
    let response = client.request("GET", "?restype=service&comp=stats", &[], &[]);
    assert_eq!(response.status, 200, "{}", response.text());
    let text = response.text();
    let part = |name: &str| {
        let (_, rest) = text.split_once(&format!("<{name}>"))?;
        Some(rest.split_once("</")?.0.to_owned())
    };
    (part("Status").expect("there is one"), part("LastSyncTime"))
}

#[test]
fn the_secondary_endpoint_reads_a_replica_and_tells_how_far_it_is() {
    let primary = TestPostgres::start();
    let url = primary.create_database();
    let mut standby = primary.standby();
    let database = url.rsplit_once('/').expect("a URL").1.to_owned();
    let replica = standby.url(&database);
    let server = TestServer::start_with_store_and(&url, &["--store-replica", &replica]);
    server.client().create_table("People");
    let entity = json!({"PartitionKey": "p", "RowKey": "r", "Age": 42});
    assert_eq!(server.client().insert("People", &entity).expect("answered").status, 204);
    standby.wait_for_replay(&primary);
    let mut secondary = server.client().at_secondary();
    assert_eq!(secondary.get("People", "p", "r").json()["Age"], 42);
    assert_eq!(secondary.query("People", "Age eq 42").len(), 1);
    assert_eq!(secondary.insert("People", &entity).expect("answered").status, 403);
    let (status, first) = stats(&server);
    assert_eq!(status, "live");
    let first = first.expect("it has been in step");
    wait_until("the time goes on", || stats(&server).1.is_some_and(|now| now != first));

    // A replica that stands still keeps showing what it had, and says since when.
    standby.execute(&database, "SELECT pg_wal_replay_pause()");
    let entity = json!({"PartitionKey": "p", "RowKey": "late", "Age": 43});
    assert_eq!(server.client().insert("People", &entity).expect("answered").status, 204);
    assert_eq!(secondary.get("People", "p", "late").status, 404);
    assert_eq!(server.client().get("People", "p", "late").status, 200);
    std::thread::sleep(Duration::from_secs(2));
    let stands = stats(&server);
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(stats(&server), stands);

    standby.kill();
    wait_until("it is gone", || stats(&server) == ("unavailable".to_owned(), None));
    assert_eq!(secondary.get("People", "p", "r").status, 503);
    assert_eq!(server.client().get("People", "p", "r").status, 200, "the primary goes on");
}
