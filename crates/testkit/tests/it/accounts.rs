//! Accounts of several servers on one database: their keys, and what strangers learn of them.

#![cfg(unix)]

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rowhouse_auth::{AccountSasFields, sign};
use rowhouse_testkit::{Client, Connection, Response, TestPostgres, TestServer, encode};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::time::Duration;
use tempfile::TempDir;

const TOKEN: &str = "a-token-of-this-test";

/// A directory with an admin token, and the arguments of a server on the PostgreSQL that tests share.
struct Site {
    directory: TempDir,
    url: String,
}

impl Site {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        fs::write(directory.path().join("token"), TOKEN).expect("a file can be written");
        Self { directory, url: TestPostgres::shared().create_database() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn start(&self, arguments: &[&str]) -> TestServer {
        let token = self.path("token");
        let mut all = vec!["--ephemeral", "--development-account=false", "--admin-token-file"];
        all.push(text(&token));
        all.extend_from_slice(arguments);
        TestServer::start_with_store_and(&self.url, &all)
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("the path is text")
}

/// A request to the admin API.
fn admin(server: &TestServer, method: &str, path: &str, body: &str) -> Response {
    let mut connection = Connection::open(server.admin_address()).expect("it listens");
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    connection.send(request.as_bytes()).expect("it is read");
    connection.receive(method).expect("it is answered")
}

fn create(server: &TestServer, name: &str) {
    let body = json!({ "name": name }).to_string();
    let created = admin(server, "POST", "/v1/accounts", &body);
    assert_eq!(created.status, 201, "{}", created.text());
}

fn keys(server: &TestServer, name: &str) -> [String; 2] {
    let shown = admin(server, "GET", &format!("/v1/accounts/{name}/keys"), "");
    assert_eq!(shown.status, 200, "{}", shown.text());
    let shown: Value = shown.json();
    [0, 1].map(|slot| shown["keys"][slot].as_str().expect("a key").to_owned())
}

/// The new key.
fn rotate(server: &TestServer, name: &str, slot: u8) -> String {
    let path = format!("/v1/accounts/{name}/keys/{slot}/rotate");
    let rotated = admin(server, "POST", &path, "");
    assert_eq!(rotated.status, 200, "{}", rotated.text());
    rotated.json()["key"].as_str().expect("a key").to_owned()
}

/// Whether the key opens the account there.
fn opens(server: &TestServer, name: &str, key: &str) -> bool {
    let mut client = Client::with_account(server.address(), name, key);
    let answer = client.request("GET", "Tables", &[], b"");
    match answer.status {
        200 => true,
        403 => false,
        other => panic!("{other}: {}", answer.text()),
    }
}

/// Each of them was answered as done, so each is: the old keys open nothing on any server.
#[test]
fn keys_rotated_through_two_servers_at_once_stay_rotated() {
    let site = Site::new();
    let servers = [site.start(&[]), site.start(&[])];
    create(&servers[0], "shop");
    for round in 0..8 {
        let before = keys(&servers[round % 2], "shop");
        let barrier = Barrier::new(2);
        let after: [String; 2] = std::thread::scope(|scope| {
            let (servers, barrier) = (&servers, &barrier);
            let rotating = [0, 1].map(|number: u8| {
                scope.spawn(move || {
                    barrier.wait();
                    rotate(&servers[usize::from(number)], "shop", number + 1)
                })
            });
            rotating.map(|thread| thread.join().expect("it is rotated"))
        });
        for server in &servers {
            assert_eq!(keys(server, "shop"), after, "round {round}");
            for key in &after {
                assert!(opens(server, "shop", key), "round {round}: a new key opens nothing");
            }
            for key in &before {
                assert!(!opens(server, "shop", key), "round {round}: a replaced key still works");
            }
        }
    }
}

/// One request to a service, by hand.
fn ask(server: &TestServer, queues: bool, method: &str, path: &str, headers: &str) -> Response {
    let address = if queues { server.queue_address() } else { server.address() };
    let mut connection = Connection::open(address).expect("it listens");
    let request = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n");
    connection.send(request.as_bytes()).expect("it is read");
    connection.receive(method).expect("it is answered")
}

/// Everything of an answer but the id of the request, the time, and the name that the request itself held.
fn without_the_moment(response: &Response, account: &str) -> String {
    let id = response.header("x-ms-request-id").expect("every answer has one").to_owned();
    let mut text = format!("{}\n", response.status);
    for (name, value) in &response.headers {
        if !name.eq_ignore_ascii_case("date") {
            text.extend([name.as_str(), ": ", value.as_str(), "\n"]);
        }
    }
    text.push_str(&response.text());
    let text = text.replace(&id, "ID").replace(account, "NAME");
    match text.split_once("Time:") {
        // Up to the end of the instant: 2026-01-02T03:04:05.1234567Z
        Some((before, after)) => format!("{before}{}", after.get(28..).unwrap_or_default()),
        None => text,
    }
}

/// CORS rules of both services: one origin that is named, and any that gets nothing but `PUT`.
fn set_rules(server: &TestServer, name: &str) {
    let rule = |origin: &str, method: &str| {
        format!(
            "<CorsRule><AllowedOrigins>{origin}</AllowedOrigins><AllowedMethods>{method}</AllowedMethods>\
             <AllowedHeaders>x-ms-*</AllowedHeaders><ExposedHeaders>x-ms-*</ExposedHeaders>\
             <MaxAgeInSeconds>5</MaxAgeInSeconds></CorsRule>"
        )
    };
    let rules = rule("http://a.example", "GET,HEAD,POST,DELETE,MERGE") + &rule("*", "PUT");
    let update =
        format!("<StorageServiceProperties><Cors>{rules}</Cors></StorageServiceProperties>");
    let key = &keys(server, name)[0];
    let xml = ("Content-Type", "application/xml");
    for mut client in [
        Client::with_account(server.address(), name, key),
        Client::of_queues_of(server.queue_address(), name, key),
    ] {
        let target = "?restype=service&comp=properties";
        let set = client.request("PUT", target, &[xml], update.as_bytes());
        assert_eq!(set.status, 202, "{}", set.text());
    }
}

/// However a caller without a valid credential asks, an account that exists answers as one that does not. A preflight that a
/// CORS rule of the account allows is the one exception (`docs/compatibility.md`).
#[test]
fn strangers_cannot_tell_which_accounts_exist() {
    let site = Site::new();
    let token = site.path("token");
    let embedded = TestServer::start_with(&["--admin-token-file", text(&token)]);
    let postgres = site.start(&[]);
    let signature = "sv=2019-02-02&sig=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA%3D";
    let date = "x-ms-date: Wed, 18 Nov 2026 10:00:00 GMT\r\n";
    let now = format!(
        "x-ms-date: {}\r\n",
        rowhouse_env::Clock::now(&rowhouse_env::SystemClock).rfc1123()
    );
    let origin = "Origin: http://a.example\r\n";
    let wrong = "Authorization: SharedKey ACCT:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\r\n";
    let lite = "Authorization: SharedKeyLite ACCT:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\r\n";
    let credentials = [
        String::new(),
        origin.to_owned(),
        "Authorization: nonsense\r\n".to_owned(),
        "Authorization: SharedKey\r\n".to_owned(),
        "Authorization: SharedKey ACCT\r\n".to_owned(),
        "Authorization: SharedKey ACCT:?\r\n".to_owned(),
        "Authorization: Bearer abc\r\n".to_owned(),
        wrong.to_owned(),
        format!("{wrong}{date}"),
        format!("{wrong}{now}"),
        format!("{lite}{now}{origin}"),
        format!("{wrong}{now}{now}"),
        format!("{}{now}", wrong.replace("ACCT", "another")),
    ];
    let preflights = [
        String::new(),
        origin.to_owned(),
        "Access-Control-Request-Method: GET\r\n".to_owned(),
        "Origin: http://b.example\r\nAccess-Control-Request-Method: GET\r\n".to_owned(),
        format!("{origin}Access-Control-Request-Method: PATCH\r\n"),
        format!(
            "{origin}Access-Control-Request-Method: GET\r\nAccess-Control-Request-Headers: y\r\n"
        ),
        format!(
            "{origin}Access-Control-Request-Method: x\r\nAccess-Control-Request-Headers: y\r\n"
        ),
    ];
    let versions =
        ["", "x-ms-version: 2019-02-02\r\n", "x-ms-version: 2021-12-02\r\n", "x-ms-version: x\r\n"];
    let paths = |queues: bool| -> Vec<String> {
        let (resource, sas) =
            if queues { ("things/messages", "") } else { ("Things()", "&tn=things") };
        vec![
            format!("/ACCT/{resource}"),
            "/ACCT".to_owned(),
            "/ACCT/".to_owned(),
            format!("/ACCT-secondary/{resource}"),
            "/ACCT/?restype=service&comp=properties".to_owned(),
            format!("/ACCT/{resource}?{signature}&se=2090-01-01&sp=r{sas}"),
            format!("/ACCT/{resource}?{signature}&se=2020-01-01&sp=r{sas}"),
            format!("/ACCT/{resource}?{signature}&si=policy{sas}"),
            format!("/ACCT/{resource}?{signature}&ss=tq&srt=sco&se=2090-01-01&sp=r"),
            format!(
                "/ACCT/{resource}?{signature}&ss=tq&srt=sco&se=2090-01-01&sp=r&spr=https&sip=10.0.0.1"
            ),
            format!("/ACCT/{resource}?{signature}"),
            format!("/ACCT/{resource}?%zz"),
        ]
    };
    let mut compared = 0;
    for server in [&embedded, &postgres] {
        create(server, "shop");
        set_rules(server, "shop");
        for queues in [false, true] {
            let asks = format!("{origin}Access-Control-Request-Method: GET\r\n");
            for (name, status) in [("shop", 200), ("nope", 403)] {
                let path = format!("/{name}/Things()");
                assert_eq!(ask(server, queues, "OPTIONS", &path, &asks).status, status, "{name}");
            }
            for path in paths(queues) {
                let ordinary = ["GET", "HEAD", "POST", "DELETE", "MERGE"]
                    .map(|method| (method, &credentials[..]));
                for (method, headers) in ordinary.into_iter().chain([("OPTIONS", &preflights[..])])
                {
                    // All combinations for the ways that clients use most.
                    let all = matches!(method, "GET" | "OPTIONS");
                    for headers in headers {
                        for version in versions.iter().take(if all { 4 } else { 1 }) {
                            let length =
                                if method == "POST" { "Content-Length: 0\r\n" } else { "" };
                            let headers = format!("{headers}{version}{length}");
                            let [there, absent] = ["shop", "nope"].map(|name| {
                                let fill = |text: &str| text.replace("ACCT", name);
                                let answer =
                                    ask(server, queues, method, &fill(&path), &fill(&headers));
                                assert!(400 <= answer.status, "{method} {path} {headers}");
                                without_the_moment(&answer, name)
                            });
                            assert_eq!(there, absent, "{method} {path} {headers}");
                            compared += 1;
                        }
                    }
                }
            }
        }
    }
    assert!(compared > 1000, "{compared}");
}

/// A page whose signature has expired reads why it is refused: a key of the account made the signature.
#[test]
fn pages_can_read_that_their_signature_has_expired() {
    let site = Site::new();
    let token = site.path("token");
    let server = TestServer::start_with(&["--admin-token-file", text(&token)]);
    create(&server, "shop");
    set_rules(&server, "shop");
    let key = STANDARD.decode(&keys(&server, "shop")[0]).expect("a key is Base64");
    let fields = AccountSasFields {
        version: "2019-02-02".into(),
        services: "tq".into(),
        resource_types: "sco".into(),
        permissions: "rl".into(),
        expiry: "2020-01-01T00:00:00Z".into(),
        ..AccountSasFields::default()
    };
    let signed = sign::account_sas("shop", &key, &fields);
    let pairs = signed.pairs().iter().map(|(name, value)| format!("{name}={}", encode(value)));
    let query = pairs.collect::<Vec<_>>().join("&");
    for (queues, path) in [(false, "/shop/Tables?"), (true, "/shop/?comp=list&")] {
        for (query, origin) in
            [(query.clone(), Some("http://a.example")), (query.replace("sp=rl", "sp=l"), None)]
        {
            let origin_header = "Origin: http://a.example\r\n";
            let answer = ask(&server, queues, "GET", &format!("{path}{query}"), origin_header);
            assert_eq!(answer.status, 403, "{}", answer.text());
            assert_eq!(answer.header("access-control-allow-origin"), origin, "{path}{query}");
        }
    }
}

/// Wrong signatures are counted by reason and leave a few lines, whatever a stranger sends as a name.
#[test]
fn failed_authentication_is_counted_and_logged() {
    let site = Site::new();
    let token = site.path("token");
    let server = TestServer::start_with(&["--admin-token-file", text(&token)]);
    create(&server, "shop");
    let other = keys(&server, "shop")[0].replace(['a', 'b', 'c', 'd'], "x");
    for _ in 0..200 {
        assert!(!opens(&server, "shop", &other));
    }
    let lengthy = "y".repeat(3000);
    for name in ["made-up", &lengthy, "x%0a%22"] {
        assert_eq!(ask(&server, true, "GET", &format!("/{name}/q"), "").status, 404);
    }
    assert_eq!(ask(&server, false, "GET", "/shop/Tables", "").status, 403);
    let metrics = admin(&server, "GET", "/metrics", "").text();
    for (reason, count) in
        [("signature", 200), ("unknown_account", 3), ("no_credentials", 1), ("date", 0)]
    {
        let line = format!("rowhouse_authentication_failures_total{{reason=\"{reason}\"}} {count}");
        assert!(metrics.lines().any(|found| found == line), "{line}\n{metrics}");
    }
    let log = server.log();
    let lines: Vec<_> = log.lines().filter(|line| line.contains("authentication failed")).collect();
    assert!(
        lines.iter().any(|line| {
            ["WARN", "shop", "127.0.0.1", "signature"].iter().all(|part| line.contains(part))
        }),
        "{log}"
    );
    // Ten a second, and the whole test takes a few seconds.
    assert!((1..150).contains(&lines.len()), "{} lines", lines.len());
    assert!(lines.iter().all(|line| line.len() < 600), "{log}");
}

/// Tokens come and go while the server runs; a broken file takes nobody's away.
#[test]
fn admin_tokens_are_read_again() {
    let site = Site::new();
    let token = site.path("token");
    let server = TestServer::start_with(&["--admin-token-file", text(&token)]);
    let accepted = |sent: &str| {
        let mut connection = Connection::open(server.admin_address()).expect("it listens");
        let request = format!(
            "GET /v1/accounts HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {sent}\r\n\r\n"
        );
        connection.send(request.as_bytes()).expect("it is read");
        connection.receive("GET").expect("it is answered").status == 200
    };
    let write = |content: &str| {
        fs::write(site.path("token.new"), content).expect("a file can be written");
        fs::rename(site.path("token.new"), &token).expect("it can be renamed");
        // It is looked at twice a second.
        std::thread::sleep(Duration::from_millis(1500));
    };
    assert!(accepted(TOKEN) && !accepted("another-token-of-this-test"));
    write("another-token-of-this-test read");
    assert!(!accepted(TOKEN) && accepted("another-token-of-this-test"));
    write("short");
    assert!(accepted("another-token-of-this-test"), "{}", server.log());
    assert!(server.log().contains("the admin tokens stay as they were"), "{}", server.log());
    write(TOKEN);
    assert!(accepted(TOKEN) && !accepted("another-token-of-this-test"));
}

fn reseal(server: &TestServer, token: &Path) -> std::process::Child {
    std::process::Command::new(rowhouse_testkit::binary())
        .args(["account", "reseal", "--admin-token-file", text(token), "--admin"])
        .arg(format!("http://{}", server.admin_address()))
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("it can be started")
}

/// The server that seals is killed on the way; the other one serves all accounts, and finishes. Then the old master key is not
/// needed any more.
#[test]
fn the_master_key_is_replaced_while_servers_run() {
    let site = Site::new();
    let token = site.path("token");
    let (old, new) = ("ab".repeat(32), "cd".repeat(32));
    let file = |name: &str, content: String| {
        fs::write(site.path(name), content).expect("a file can be written");
        site.path(name).to_str().expect("the path is text").to_owned()
    };
    let before = file("old", old.clone());
    let both = file("both", format!("{new}\n{old}\n"));
    let after = file("new", new);
    let names: Vec<_> = (0..8).map(|number| format!("account{number}")).collect();
    let first = site.start(&["--master-key-file", &before]);
    let keys: Vec<_> = names
        .iter()
        .map(|name| {
            create(&first, name);
            keys(&first, name)
        })
        .collect();
    drop(first);
    let check = |server: &TestServer| {
        for (name, keys) in names.iter().zip(&keys) {
            assert!(keys.iter().all(|key| opens(server, name, key)), "{name}");
        }
    };
    let mut servers = [(); 2].map(|()| site.start(&["--master-key-file", &both]));
    let mut sealing = reseal(&servers[0], &token);
    // A change takes half a second, because the other server has to see it.
    std::thread::sleep(Duration::from_millis(1500));
    servers[0].kill();
    assert!(!sealing.wait().expect("it ends").success(), "it was interrupted");
    check(&servers[1]);
    let output = reseal(&servers[1], &token).wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success() && said.contains("all are under the first master key"),
        "{said}"
    );
    check(&servers[1]);
    check(&site.start(&["--master-key-file", &after]));
}

/// The same for a data directory, whose server is restarted in between.
#[test]
fn the_master_key_of_a_data_directory_is_replaced() {
    let site = Site::new();
    let (token, master) = (site.path("token"), site.path("master"));
    let (old, new) = ("ab".repeat(32), "cd".repeat(32));
    let write = |content: &str| fs::write(&master, content).expect("a file can be written");
    write(&old);
    let mut server = TestServer::start_with(&[
        "--development-account=false",
        "--admin-token-file",
        text(&token),
        "--master-key-file",
        text(&master),
    ]);
    create(&server, "shop");
    let keys = keys(&server, "shop");
    assert!(server.stop().success());
    write(&new);
    let refused = server.try_restart().expect_err("the new key opens nothing yet");
    assert!(refused.contains("do not open with this master key"), "{refused}");
    write(&format!("{new}\n{old}"));
    server.restart();
    assert!(opens(&server, "shop", &keys[1]));
    let output = reseal(&server, &token).wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("Sealed the keys of 1 account anew"), "{said}");
    assert!(server.stop().success());
    write(&new);
    server.restart();
    assert!(keys.iter().all(|key| opens(&server, "shop", key)));
}

/// The limits of an account, through one server, hold on all of them; what other servers write of the account leaves them.
#[test]
fn an_account_has_no_more_tables_and_queues_than_it_may() {
    let site = Site::new();
    let servers = [site.start(&[]), site.start(&["--max-queues-per-account", "3"])];
    create(&servers[0], "shop");
    create(&servers[0], "bakery");
    let limits = |server: &TestServer, method: &str, body: &str| {
        let answer = admin(server, method, "/v1/accounts/shop/limits", body);
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()
    };
    let of = |limit: u64, default: bool| json!({ "limit": limit, "default": default });
    let shown = limits(&servers[0], "GET", "");
    assert_eq!(shown["tables"], of(50_000, true), "{shown}");
    assert_eq!(shown["queues"], of(20_000, true), "{shown}");
    let set = limits(&servers[0], "PATCH", r#"{"tables":4}"#);
    assert_eq!((&set["tables"], &set["queues"]), (&of(4, false), &of(20_000, true)));

    let [key, _] = keys(&servers[0], "shop");
    let client = |server: &TestServer| Client::with_account(server.address(), "shop", &key);
    let create_table = |server: &TestServer, name: &str| {
        let body = json!({ "TableName": name }).to_string();
        let json = [("Content-Type", "application/json")];
        client(server).request("POST", "Tables", &json, body.as_bytes())
    };
    let answers: Vec<u16> = std::thread::scope(|scope| {
        let create_table = &create_table;
        let threads: Vec<_> = (0..12)
            .map(|n| {
                let server = &servers[n % 2];
                scope.spawn(move || create_table(server, &format!("Table{n}")).status)
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("it is answered")).collect()
    });
    let count = |status| answers.iter().filter(|answer| **answer == status).count();
    assert_eq!((count(201), count(403)), (4, 8), "{answers:?}");
    let refused = create_table(&servers[1], "OneMore");
    assert!(refused.text().contains("TooManyTables"), "{}", refused.text());
    let there = answers.iter().position(|status| *status == 201).expect("one was created");
    assert_eq!(create_table(&servers[1], &format!("Table{there}")).status, 409, "it exists");

    // Another property, by the other server: the limits stay. So do they with a key of its own.
    let xml = "<?xml version=\"1.0\"?><StorageServiceProperties><Cors/></StorageServiceProperties>";
    let path = "?restype=service&comp=properties";
    let answer = client(&servers[1]).request("PUT", path, &[], xml.as_bytes());
    assert_eq!(answer.status, 202, "{}", answer.text());
    rotate(&servers[1], "shop", 2);
    for server in &servers {
        assert_eq!(limits(server, "GET", "")["tables"], of(4, false));
    }

    // The default is that of the server, and an account without limits of its own follows it.
    assert_eq!(limits(&servers[1], "GET", "")["queues"], of(3, true));
    let [key, _] = keys(&servers[1], "bakery");
    let mut queues = Client::of_queues_of(servers[1].queue_address(), "bakery", &key);
    for n in 0..5 {
        let answer = queues.request("PUT", &format!("queue{n}"), &[], b"");
        let expected = if n < 3 { 201 } else { 403 };
        assert_eq!(answer.status, expected, "{n}: {}", answer.text());
        assert!(n < 3 || answer.header("x-ms-error-code") == Some("TooManyQueues"), "{n}");
    }
    let there = queues.request("PUT", "queue0", &[], b"");
    assert_eq!(there.status, 204, "one that is there is there");

    let set = limits(&servers[1], "PATCH", r#"{"tables":null,"queues":7}"#);
    assert_eq!((&set["tables"], &set["queues"]), (&of(50_000, true), &of(7, false)));
    assert_eq!(create_table(&servers[0], "OneMore").status, 201);
    for bad in ["", "{", r#"{"tables":-1}"#, r#"{"table":1}"#] {
        let answer = admin(&servers[0], "PATCH", "/v1/accounts/shop/limits", bad);
        assert_eq!(answer.status, 400, "{bad}: {}", answer.text());
    }
    assert_eq!(admin(&servers[0], "PATCH", "/v1/accounts/nobody/limits", "{}").status, 404);
}
