//! Entities that expire and entities that are deleted by a filter, as they are on the wire and on the command line, on
//! both engines, and after kill -9. Runs the built binary.

#![cfg(unix)]

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rowhouse_auth::{TableSasFields, sign};
use rowhouse_testkit::{
    Client, Connection, DEV_ACCOUNT, DEV_KEY, Operation, Response, TestPostgres, TestServer,
    binary, encode,
};
use serde_json::{Value, json};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const JSON: (&str, &str) = ("Content-Type", "application/json");
/// How long anything here may take, even on a busy machine.
const WITHIN: Duration = Duration::from_mins(2);
const LOGS: usize = 120;

fn servers() -> [TestServer; 2] {
    let url = TestPostgres::shared().create_database();
    let at_once = ["--ttl-grace-seconds", "0"];
    [
        TestServer::start_with(&at_once),
        TestServer::start_with_store_and(&url, &[&at_once[..], &["--ephemeral"]].concat()),
    ]
}

/// Runs a test on a server of each engine, which has a table of logs.
fn on_both(test: impl Fn(&TestServer, &mut Client)) {
    for server in servers() {
        let mut client = server.client();
        fill(&mut client, LOGS, 3);
        test(&server, &mut client);
        assert!(!server.log().contains("panicked"), "{}", server.log());
    }
}

/// Makes the table of logs: every second one is of yesterday.
fn fill(client: &mut Client, logs: usize, partitions: usize) {
    client.create_table("Logs");
    for partition in 0..partitions {
        let mine: Vec<usize> = (0..logs).filter(|n| n % partitions == partition).collect();
        for chunk in mine.chunks(100) {
            let operations: Vec<Operation> =
                chunk.iter().map(|n| Operation::insert("Logs", entry(*n, partition))).collect();
            let answer = client.batch(&operations).expect("answered");
            assert!(answer.succeeded(), "{answer:?}");
        }
    }
}

fn entry(n: usize, partition: usize) -> Value {
    let until = if n % 2 == 1 { "2020-01-01T00:00:00Z" } else { "2999-01-01T00:00:00Z" };
    let level = ["debug", "info", "error"][n % 3];
    json!({
        "PartitionKey": format!("p{partition}"),
        "RowKey": format!("{n:05}"),
        "Level": level,
        "Number": n,
        "Until": until,
        "Until@odata.type": "Edm.DateTime",
    })
}

fn set(client: &mut Client, body: &Value) -> Response {
    client.request("PUT", "Logs?comp=ttl", &[JSON], body.to_string().as_bytes())
}

fn get(client: &mut Client, path: &str) -> Response {
    client.request("GET", path, &[], b"")
}

/// How many there are, and how many were looked at to tell.
fn count(client: &mut Client, options: &str) -> (usize, usize) {
    let answer = get(client, &format!("Logs()/$count{options}"));
    assert_eq!(answer.status, 200, "{}", answer.text());
    let plan = answer.header("x-rowhouse-plan").expect("a plan").to_owned();
    let examined = plan.split("examined=").nth(1).and_then(|rest| rest.split(';').next());
    (answer.text().parse().expect("a number"), examined.and_then(|n| n.parse().ok()).expect("told"))
}

/// Waits until nothing is left in the table but so many.
fn swept(client: &mut Client, left: usize) {
    let began = Instant::now();
    while count(client, "") != (left, left) {
        assert!(began.elapsed() < WITHIN, "{:?} of {left}", count(client, ""));
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn said(response: &Response) -> (u16, String) {
    (response.status, response.code().unwrap_or_default())
}

fn expect(status: u16, code: &str) -> (u16, String) {
    (status, code.to_owned())
}

#[test]
fn entities_expire_and_are_removed() {
    on_both(|_, client| {
        assert_eq!(get(client, "Logs?comp=ttl").json(), json!({ "expires": false }));
        assert_eq!(count(client, ""), (LOGS, LOGS));
        let index = br#"{"properties":["Number"],"unique":true}"#;
        let declared = client.request("PUT", "Logs?comp=index", &[JSON], index);
        assert_eq!(declared.status, 201, "{}", declared.text());
        let answer = set(client, &json!({ "property": "Until" }));
        assert_eq!(answer.status, 200, "{}", answer.text());
        let told = json!({ "expires": true, "seconds": 0, "property": "Until" });
        assert_eq!(answer.json(), told);
        assert_eq!(get(client, "Logs?comp=ttl").json(), told);
        // At once, whether it has been removed or not.
        assert_eq!(count(client, "").0, LOGS / 2);
        assert_eq!(client.get("Logs", "p1", "00001").status, 404);
        assert_eq!(client.get("Logs", "p2", "00002").status, 200);
        let path = rowhouse_testkit::entity_path("Logs", "p0", "00003");
        let gone = client.delete(&path, "*").expect("answered");
        assert_eq!(said(&gone), expect(404, "ResourceNotFound"));
        let rows = client.query("Logs", "Number lt 4");
        assert_eq!(rows.len(), 2, "{rows:?}");
        // Its key and its values are free.
        let mut again = entry(4, 1);
        again["RowKey"] = json!("00001");
        again["Number"] = json!(5);
        assert_eq!(client.insert("Logs", &again).expect("answered").status, 204);
        swept(client, LOGS / 2 + 1);
        let removed = client.request("DELETE", "Logs?comp=ttl", &[], b"");
        assert_eq!(removed.status, 204, "{}", removed.text());
        assert_eq!(get(client, "Logs?comp=ttl").json(), json!({ "expires": false }));
        assert_eq!(count(client, "").0, LOGS / 2 + 1);
    });
}

/// A TTL that was set by mistake can be taken back: nothing is removed in the first minute, also after a restart.
#[test]
fn a_mistake_can_be_undone_within_a_minute() {
    let url = TestPostgres::shared().create_database();
    let servers = [TestServer::start(), TestServer::start_with_store_and(&url, &["--ephemeral"])];
    for mut server in servers {
        let mut client = server.client();
        fill(&mut client, LOGS, 3);
        assert_eq!(set(&mut client, &json!({ "property": "Until" })).status, 200);
        assert_eq!(count(&mut client, "").0, LOGS / 2, "expired entities are invisible at once");
        server.kill();
        server.restart();
        let mut client = server.client();
        // Longer than any sweep waits for something else.
        std::thread::sleep(Duration::from_secs(7));
        assert_eq!(count(&mut client, "").0, LOGS / 2);
        assert_eq!(client.request("DELETE", "Logs?comp=ttl", &[], b"").status, 204);
        assert_eq!(count(&mut client, "").0, LOGS, "all of them are there again");
    }
}

/// Who set what, and how much went, without a key or a value.
#[test]
fn settings_and_sweeps_leave_a_line_in_the_log() {
    on_both(|server, client| {
        assert_eq!(set(client, &json!({ "property": "Until" })).status, 200);
        swept(client, LOGS / 2);
        assert_eq!(client.request("DELETE", "Logs?comp=ttl", &[], b"").status, 204);
        let began = Instant::now();
        let lines = || -> Vec<String> {
            let log = server.log();
            log.lines()
                .filter(|line| line.contains("TTL") || line.contains("expired"))
                .map(str::to_owned)
                .collect()
        };
        while lines().len() < 3 {
            assert!(began.elapsed() < WITHIN, "{:?}", lines());
            std::thread::sleep(Duration::from_millis(50));
        }
        let (account, table) = ("account=\"devstoreaccount1\"", "table=\"Logs\"");
        for line in lines() {
            assert!(line.contains(account) && line.contains(table), "{line}");
        }
        let log = lines().join("\n");
        assert!(
            log.contains("the TTL of a table was set") && log.contains("property=\"Until\""),
            "{log}"
        );
        assert!(log.contains("expired entities were removed"), "{log}");
        assert!(log.contains(&format!("removed={}", LOGS / 2)), "{log}");
        assert!(log.contains("the TTL of a table was removed"), "{log}");
        assert!(!server.log().contains("00001"), "no key is logged");
    });
}

#[test]
fn what_matches_is_deleted_step_by_step() {
    on_both(|_, client| {
        let filter = encode("Level eq 'debug'");
        let step = |client: &mut Client, options: &str| {
            let answer = client.request("POST", &format!("Logs?{options}"), &[], b"");
            assert_eq!(answer.status, 200, "{options}: {}", answer.text());
            answer
        };
        let dry = step(client, &format!("comp=delete&$filter={filter}&dryrun=true")).json();
        let (third, all) = (json!(LOGS / 3), json!(LOGS));
        assert_eq!((&dry["matched"], &dry["deleted"], &dry["examined"]), (&third, &json!(0), &all));
        assert_eq!(count(client, "").0, LOGS);
        let (mut next, mut sum, mut steps) = (String::new(), 0, 0);
        loop {
            let asked = format!("comp=delete&$filter={filter}&$top=7{next}");
            let answer = step(client, &asked);
            let told = answer.json();
            let deleted = told["deleted"].as_u64().expect("a number");
            assert!(deleted <= 7, "{told}");
            assert_eq!(told["matched"], told["deleted"]);
            sum += deleted;
            steps += 1;
            let token = |name: &str| {
                let value = answer.header(&format!("x-ms-continuation-{name}"))?;
                Some(format!("&{name}={}", encode(value)))
            };
            let token = token("NextPartitionKey").zip(token("NextRowKey"));
            assert_eq!(told["done"], token.is_none());
            match token {
                Some((partition, row)) => next = partition + &row,
                None => break,
            }
        }
        assert_eq!(sum, (LOGS / 3) as u64);
        assert!(steps >= LOGS / 3 / 7, "{steps} steps");
        assert_eq!(count(client, ""), (LOGS / 3 * 2, LOGS / 3 * 2));
        assert!(client.query("Logs", "Level eq 'debug'").is_empty());
        let told = step(client, "comp=truncate").json();
        assert_eq!((&told["deleted"], &told["done"]), (&json!(LOGS / 3 * 2), &json!(true)));
        assert_eq!(count(client, ""), (0, 0));
        assert_eq!(step(client, "comp=truncate").json()["deleted"], 0);
    });
}

#[test]
fn what_is_wrong_with_such_a_request() {
    let server = TestServer::start();
    let mut client = server.client();
    fill(&mut client, 3, 1);
    for body in [
        json!({}),
        json!({ "seconds": 0 }),
        json!({ "seconds": -1 }),
        json!({ "seconds": "60" }),
        json!({ "property": "RowKey" }),
        json!({ "property": "a-b" }),
        json!({ "seconds": 60, "other": 1 }),
    ] {
        assert_eq!(said(&set(&mut client, &body)), expect(400, "InvalidInput"), "{body}");
    }
    let body = br#"{"seconds":60}"#;
    let no_table = client.request("PUT", "Nobody?comp=ttl", &[JSON], body);
    assert_eq!(said(&no_table), expect(404, "TableNotFound"));
    assert_eq!(said(&get(&mut client, "Nobody?comp=ttl")), expect(404, "TableNotFound"));
    assert_eq!(client.request("POST", "Logs?comp=ttl", &[JSON], body).status, 405);
    for (path, status) in [
        ("Logs?comp=delete", 400),
        ("Logs?comp=delete&$filter=", 400),
        ("Logs?comp=delete&$filter=Level%20eq", 400),
        ("Logs?comp=delete&$filter=Number%20eq%201&$top=0", 400),
        ("Logs?comp=delete&$filter=Number%20eq%201&$top=1001", 400),
        ("Logs?comp=delete&$filter=Number%20eq%201&dryrun=maybe", 400),
        ("Logs?comp=delete&$filter=Number%20eq%201&$orderby=Number", 501),
        ("Logs?comp=truncate&$filter=Number%20eq%201", 501),
        ("Logs?comp=truncate&NextPartitionKey=xyz", 400),
        ("Nobody?comp=truncate", 404),
    ] {
        assert_eq!(client.request("POST", path, &[], b"").status, status, "{path}");
    }
    assert_eq!(client.request("DELETE", "Logs?comp=delete", &[], b"").status, 405);
    assert_eq!(client.request("GET", "Logs?comp=truncate", &[], b"").status, 405);
    assert_eq!(count(&mut client, "").0, 3, "nothing is gone");
}

#[test]
fn a_strict_server_knows_none_of_it() {
    let server = TestServer::start_with(&["--strict"]);
    let mut client = server.client();
    fill(&mut client, 3, 1);
    for (method, path) in [
        ("GET", "Logs?comp=ttl"),
        ("PUT", "Logs?comp=ttl"),
        ("DELETE", "Logs?comp=ttl"),
        ("POST", "Logs?comp=delete&$filter=Number%20ge%200"),
        ("POST", "Logs?comp=truncate"),
    ] {
        let answer = client.request(method, path, &[JSON], b"{\"seconds\":1}");
        assert_eq!(said(&answer), expect(400, "InvalidQueryParameterValue"), "{method} {path}");
    }
    assert_eq!(client.query("Logs", "Number ge 0").len(), 3);
}

/// A signature deletes within its range, if it may delete and read; when entities expire is not its business.
#[test]
fn a_signature_deletes_in_its_range() {
    on_both(|server, client| {
        let ask = |permissions: &str, method: &str, path: &str| {
            let fields = TableSasFields {
                version: "2019-02-02".into(),
                table: "Logs".into(),
                permissions: permissions.into(),
                expiry: "2099-01-01T00:00:00Z".into(),
                start_partition: Some("p1".into()),
                end_partition: Some("p1".into()),
                ..TableSasFields::default()
            };
            let key = STANDARD.decode(DEV_KEY).expect("Base64");
            let sas = sign::table_sas(DEV_ACCOUNT, &key, &fields).to_string();
            let mut connection = Connection::open(server.address()).expect("it listens");
            let request = format!(
                "{method} /{DEV_ACCOUNT}/{path}&{sas} HTTP/1.1\r\nHost: localhost\r\n\
                 Accept: application/json\r\nContent-Type: application/json\r\n\
                 Content-Length: 0\r\n\r\n"
            );
            connection.send(request.as_bytes()).expect("it is read");
            connection.receive(method).expect("it is answered")
        };
        let delete = "Logs?comp=delete&$filter=Number%20ge%200";
        for permissions in ["r", "d", "rau"] {
            for path in [delete, "Logs?comp=truncate", "Logs?comp=truncate&dryrun=true"] {
                assert_eq!(ask(permissions, "POST", path).status, 403, "{permissions} {path}");
            }
        }
        for method in ["GET", "PUT", "DELETE"] {
            assert_eq!(ask("raud", method, "Logs?comp=ttl").status, 403, "{method}");
        }
        assert_eq!(count(client, "").0, LOGS);
        let dry = ask("rd", "POST", "Logs?comp=truncate&dryrun=true").json();
        assert_eq!((&dry["matched"], &dry["examined"]), (&json!(LOGS / 3), &json!(LOGS / 3)));
        let told = ask("rd", "POST", delete).json();
        assert_eq!((&told["deleted"], &told["done"]), (&json!(LOGS / 3), &json!(true)), "{told}");
        assert_eq!(count(client, "").0, LOGS / 3 * 2);
        assert!(client.query("Logs", "PartitionKey eq 'p1'").is_empty());
    });
}

fn command(server: SocketAddr, arguments: &[&str]) -> Command {
    let endpoint = format!("http://{server}/{DEV_ACCOUNT}");
    let mut command = Command::new(binary());
    command.args(arguments);
    command.args(["--endpoint", &endpoint, "--account", DEV_ACCOUNT, "--key", DEV_KEY]);
    command
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

#[test]
fn the_commands() {
    on_both(|server, client| {
        let run = |arguments: &[&str]| {
            let output = command(server.address(), arguments).output().expect("it can be started");
            assert!(output.status.success(), "{arguments:?}: {}", text(&output));
            text(&output)
        };
        let fails = |arguments: &[&str]| {
            let output = command(server.address(), arguments).output().expect("it can be started");
            assert_eq!(output.status.code(), Some(1), "{arguments:?}");
            text(&output)
        };
        let ttl = |more: &[&str]| run(&[&["table", "ttl", "Logs"], more].concat());
        assert_eq!(ttl(&[]), "Entities of Logs do not expire.\n");
        let month = "Entities of Logs expire 30 days after their Timestamp.\n";
        assert_eq!(ttl(&["--after", "30d"]), month);
        assert_eq!(ttl(&[]), month);
        assert_eq!(ttl(&["--json"]), "{\"property\":null,\"seconds\":2592000}\n");
        let until = "Entities of Logs expire when their property Until says.\n";
        let half = format!("{} of {LOGS} entities of Logs would expire within a minute", LOGS / 2);
        let refused = fails(&["table", "ttl", "Logs", "--property", "Until"]);
        assert!(refused.contains(&half) && refused.contains("--yes"), "{refused}");
        assert_eq!(ttl(&["--property", "Until", "--dry-run"]), format!("{half}.\n"));
        let counted = format!("{{\"expired\":{},\"of\":{LOGS}}}\n", LOGS / 2);
        assert_eq!(ttl(&["--property", "Until", "--dry-run", "--json"]), counted);
        assert_eq!(ttl(&[]), month, "nothing was set");
        assert_eq!(count(client, "").0, LOGS);
        // The grace period of these servers is none, so a sentence that promises a minute would be wrong.
        let set = ttl(&["--property", "Until", "--yes"]);
        let promised =
            "Until the server's grace period is over (a minute, unless --ttl-grace-seconds";
        assert!(set.starts_with(until) && set.contains(promised), "{set}");
        assert_eq!(count(client, "").0, LOGS / 2);
        swept(client, LOGS / 2);
        assert_eq!(ttl(&["--off"]), "Entities of Logs do not expire.\n");
        assert!(fails(&["table", "ttl", "Nobody"]).contains("TableNotFound"));

        let filter = "Level eq 'debug'";
        let doomed = client.query("Logs", filter).len();
        let delete = ["table", "delete-where", "Logs", "--filter", filter];
        assert!(fails(&delete).contains("--yes"));
        let dry = run(&[&delete[..], &["--dry-run"]].concat());
        let expected =
            format!("{doomed} entities of Logs would be deleted; looked at {}", LOGS / 2);
        assert!(dry.starts_with(&expected), "{dry}");
        let done = run(&[&delete[..], &["--yes"]].concat());
        assert!(done.starts_with(&format!("Deleted {doomed} entities of Logs in ")), "{done}");
        let none = run(&[&delete[..], &["--yes"]].concat());
        assert!(none.starts_with("Deleted 0 entities of Logs in "), "{none}");
        assert!(
            fails(&["table", "delete-where", "Logs", "--filter", "Level eq", "--yes"])
                .contains("InvalidInput")
        );
        assert!(
            fails(&["table", "delete-where", "Logs", "--filter", " ", "--yes"])
                .contains("truncate")
        );
        assert!(fails(&["table", "truncate", "Logs"]).contains("--yes"));
        let left = LOGS / 2 - doomed;
        let done = run(&["table", "truncate", "Logs", "--yes"]);
        assert!(done.starts_with(&format!("Deleted {left} entities of Logs in ")), "{done}");
        assert_eq!(count(client, ""), (0, 0));
    });
}

/// Index and entities agree: each number is found through the index exactly if a scan finds it.
fn agree(client: &mut Client, numbers: usize, living: impl Fn(usize) -> bool) {
    for n in (0..numbers).step_by(97).chain(numbers - 4..numbers) {
        let found = get(client, &format!("Logs()?$filter=Number%20eq%20{n}"));
        let rows = found.json()["value"].as_array().expect("a list").len();
        assert_eq!(rows, usize::from(living(n)), "{n}");
        let plan = found.header("x-rowhouse-plan").expect("a plan").to_owned();
        assert!(plan.starts_with("index(Number)"), "{plan}");
    }
}

fn index(client: &mut Client) {
    let index = br#"{"properties":["Number"],"unique":true}"#;
    assert_eq!(client.request("PUT", "Logs?comp=index", &[JSON], index).status, 201);
    let began = Instant::now();
    while get(client, "Logs?comp=index").json()["value"][0]["state"] != "ready" {
        assert!(began.elapsed() < WITHIN, "it is built in time");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Kills the server as soon as fewer are stored than before, checks what it left and starts it again.
///
/// How many are stored then; none if there was nothing left to do.
fn interrupt(server: &mut TestServer, embedded: bool, stored: usize, left: usize) -> Option<usize> {
    let began = Instant::now();
    let mut client = server.client();
    loop {
        let (_, now) = count(&mut client, "");
        if now == left {
            return None;
        }
        if now < stored {
            break;
        }
        assert!(began.elapsed() < WITHIN, "{now} of {stored} are left");
    }
    server.kill();
    if embedded {
        server.check().expect("entities and indexes agree");
    }
    server.restart();
    Some(count(&mut server.client(), "").1)
}

fn name(embedded: bool) -> &'static str {
    if embedded { "SQLite" } else { "PostgreSQL" }
}

#[test]
fn a_killed_sweep_goes_on() {
    const MANY: usize = 4000;
    for (mut server, embedded) in servers().into_iter().zip([true, false]) {
        fill(&mut server.client(), MANY, 4);
        index(&mut server.client());
        assert_eq!(set(&mut server.client(), &json!({ "property": "Until" })).status, 200);
        let (mut stored, mut interrupted) = (MANY, 0);
        for round in 0..4 {
            let Some(now) = interrupt(&mut server, embedded, stored, MANY / 2) else { break };
            stored = now;
            interrupted += usize::from(MANY / 2 < stored && stored < MANY);
            assert_eq!(count(&mut server.client(), "").0, MANY / 2, "round {round}");
        }
        let mut client = server.client();
        swept(&mut client, MANY / 2);
        agree(&mut client, MANY, |n| n % 2 == 0);
        server.kill();
        if embedded {
            server.check().expect("entities and indexes agree");
        }
        println!("a sweep on {} was interrupted {interrupted} times", name(embedded));
        assert!(interrupted > 0, "too little happened to show anything");
    }
}

/// An address that stays the same while the server behind it is started again at another one.
struct Relay {
    address: SocketAddr,
    behind: Arc<Mutex<SocketAddr>>,
}

impl Relay {
    fn new(behind: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("there is a port");
        let address = listener.local_addr().expect("it has an address");
        let behind = Arc::new(Mutex::new(behind));
        let to = Arc::clone(&behind);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(*to.lock().expect("not poisoned")) else {
                    continue;
                };
                let pass = |mut from: TcpStream, mut to: TcpStream| {
                    std::thread::spawn(move || {
                        let _ = std::io::copy(&mut from, &mut to);
                        let _ = to.shutdown(Shutdown::Both);
                        let _ = from.shutdown(Shutdown::Both);
                    });
                };
                pass(client.try_clone().expect("one more"), server.try_clone().expect("one more"));
                pass(server, client);
            }
        });
        Self { address, behind }
    }
}

#[test]
fn a_killed_delete_goes_on() {
    const MANY: usize = 6000;
    for (mut server, embedded) in servers().into_iter().zip([true, false]) {
        fill(&mut server.client(), MANY, 40);
        index(&mut server.client());
        let relay = Relay::new(server.address());
        let delete = || {
            let filter = "Level ne 'error'";
            let mut command = command(
                relay.address,
                &["table", "delete-where", "Logs", "--filter", filter, "--yes"],
            );
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            command
        };
        // This one waits for the server, which is killed again and again.
        let patient = delete().spawn().expect("started");
        let (mut stored, mut interrupted) = (MANY, 0);
        for round in 0..3 {
            let Some(now) = interrupt(&mut server, embedded, stored, MANY / 3) else { break };
            *relay.behind.lock().expect("not poisoned") = server.address();
            stored = now;
            interrupted += usize::from(MANY / 3 < stored && stored < MANY);
            if round == 0 {
                // Another one does the same, and is killed itself.
                let mut other = delete().spawn().expect("started");
                std::thread::sleep(Duration::from_millis(100));
                other.kill().expect("it can be killed");
                other.wait().expect("it ends");
            }
        }
        let output = patient.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{}", text(&output));
        let mut client = server.client();
        assert_eq!(count(&mut client, ""), (MANY / 3, MANY / 3));
        agree(&mut client, MANY, |n| n % 3 == 2);
        let again = delete().output().expect("started");
        assert!(text(&again).starts_with("Deleted 0 entities"), "{}", text(&again));
        server.kill();
        if embedded {
            server.check().expect("entities and indexes agree");
        }
        println!("a deletion on {} was interrupted {interrupted} times", name(embedded));
        assert!(interrupted > 0, "too little happened to show anything");
    }
}
