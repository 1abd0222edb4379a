//! The change feed as a client meets it: what it tells, what it refuses, how it waits and how the wait ends.

use base64::Engine;
use rowhouse_auth::{TableSasFields, sign};
use rowhouse_testkit::{
    Client, Connection, DEV_ACCOUNT, DEV_KEY, Operation, Response, TestServer, encode, entity_path,
};
use serde_json::{Value, json};
use std::thread;
use std::time::{Duration, Instant};

/// A server that keeps changes, with the table `People`.
fn serve(arguments: &[&str]) -> TestServer {
    let server = TestServer::start_with(&[&["--keep-changes", "1h"], arguments].concat());
    server.client().create_table("People");
    server
}

fn ask(client: &mut Client, options: &str) -> Response {
    client.request("GET", &format!("People?comp=changes{options}"), &[], b"")
}

fn read(client: &mut Client, options: &str) -> Value {
    let response = ask(client, options);
    assert_eq!(response.status, 200, "{options}: {}", response.text());
    response.json()
}

/// The option that goes on after an answer.
fn after(answer: &Value) -> String {
    format!("&from={}", encode(answer["next"].as_str().expect("every answer has a token")))
}

/// What an answer tells, in short: the row, with `-` before it if it was deleted.
fn told(answer: &Value) -> Vec<String> {
    let short = |change: &Value| {
        let row = change["entity"]["RowKey"].as_str().expect("an entity has a key");
        match change["change"].as_str() {
            Some("put") => row.to_owned(),
            Some("delete") => format!("-{row}"),
            other => panic!("a change is none of {other:?}"),
        }
    };
    answer["value"].as_array().expect("an answer has a list").iter().map(short).collect()
}

fn insert(client: &mut Client, row: &str) {
    let entity = json!({ "PartitionKey": "p", "RowKey": row, "Age": 7 });
    assert_eq!(client.insert("People", &entity).expect("answered").status, 204);
}

fn error(response: &Response) -> (u16, String) {
    (response.status, response.code().unwrap_or_default())
}

#[test]
fn every_kind_of_write_is_told() {
    let server = serve(&[]);
    let mut client = server.client();
    let begin = read(&mut client, "&from=now");
    assert_eq!((told(&begin), &begin["more"]), (vec![], &json!(false)));
    insert(&mut client, "a");
    let path = entity_path("People", "p", "a");
    let merged = client.update(
        "PATCH",
        &path,
        Some("*"),
        &json!({ "Big@odata.type": "Edm.Int64", "Big": "5" }),
    );
    let tag = merged.expect("answered").etag().to_owned();
    let batch = [
        Operation::insert("People", json!({ "PartitionKey": "p", "RowKey": "b" })),
        Operation::delete("People", ("p", "a"), "*"),
    ];
    assert_eq!(client.batch(&batch).expect("answered").response.status, 202);
    let refused = client.insert("People", &json!({ "PartitionKey": "p", "RowKey": "b" }));
    assert_eq!(refused.expect("answered").status, 409, "and not told");

    let all = read(&mut client, &after(&begin));
    assert_eq!(told(&all), ["a", "a", "b", "-a"]);
    assert_eq!(told(&read(&mut client, "")), ["a", "a", "b", "-a"], "from the beginning");
    let entity = &all["value"][1]["entity"];
    assert_eq!(entity["odata.etag"], json!(tag));
    assert_eq!((&entity["Age"], &entity["Big"]), (&json!(7), &json!("5")));
    assert_eq!(entity["Big@odata.type"], "Edm.Int64");
    assert_eq!(all["value"][2]["sequence"], all["value"][3]["sequence"], "one batch");
    let metadata = all["odata.metadata"].as_str().expect("it says what it is about");
    assert!(metadata.ends_with("/$metadata#People"), "{metadata}");

    // Few at a time, and never half a batch.
    let first = read(&mut client, &format!("{}&$top=1", after(&begin)));
    assert_eq!((told(&first), &first["more"]), (vec!["a".to_owned()], &json!(true)));
    let third = read(&mut client, &format!("{}&$top=2", after(&first)));
    assert_eq!(
        (told(&third), &third["more"]),
        (["a", "b", "-a"].map(String::from).to_vec(), &json!(false))
    );
    let end = read(&mut client, &after(&third));
    assert_eq!((told(&end), &end["next"]), (vec![], &third["next"]));

    // At the level of metadata that is asked for.
    let bare = client.request(
        "GET",
        "People?comp=changes&$top=2",
        &[("Accept", "application/json;odata=nometadata")],
        b"",
    );
    let members = bare.json()["value"][1]["entity"].as_object().expect("an entity").len();
    assert_eq!(members, 5, "{}", bare.text());
    let full = client.request(
        "GET",
        "People?comp=changes&$format=application/json;odata=fullmetadata",
        &[],
        b"",
    );
    assert!(full.text().contains("Timestamp@odata.type"), "{}", full.text());
}

/// A merge tells the whole entity, so a batch of small merges may be large; it is told in pieces then.
#[test]
fn a_batch_beyond_all_bounds_is_told_in_pieces() {
    const ENTITIES: usize = 20;
    let server = serve(&[]);
    let mut client = server.client();
    let pad = "x".repeat(30_000);
    let large: serde_json::Map<_, _> =
        (0..16).map(|n| (format!("pad{n}"), Value::from(pad.clone()))).collect();
    let key = |n: usize| format!("{n:03}");
    for n in 0..ENTITIES {
        let path = entity_path("People", "p", &key(n));
        let put = client.update("PUT", &path, None, &Value::Object(large.clone()));
        assert_eq!(put.expect("answered").status, 204);
    }
    let begin = read(&mut client, "&from=now");
    let merges: Vec<_> = (0..ENTITIES)
        .map(|n| Operation::merge("People", ("p", &key(n)), None, json!({ "Age": n })))
        .collect();
    assert_eq!(client.batch(&merges).expect("answered").parts.len(), ENTITIES);
    insert(&mut client, "next");
    let mut answer = read(&mut client, &after(&begin));
    let sequence = answer["value"][0]["sequence"].clone();
    let (mut heard, mut answers) = (Vec::new(), 1);
    loop {
        heard.extend(told(&answer));
        if answer["more"] == false {
            break;
        }
        let changes = answer["value"].as_array().expect("a list");
        assert!(
            changes.iter().all(|change| change["sequence"] == sequence),
            "alone in its answers"
        );
        answer = read(&mut client, &after(&answer));
        answers += 1;
    }
    let expected: Vec<_> = (0..ENTITIES).map(key).chain(["next".to_owned()]).collect();
    assert_eq!(heard, expected);
    assert!((2..5).contains(&answers), "{answers}");
}

/// Whoever asks for nothing of it gets what the original answers.
#[test]
fn what_is_refused() {
    let server = serve(&[]);
    let mut client = server.client();
    let unknown = (400, "InvalidQueryParameterValue".to_owned());
    let invalid = (400, "InvalidInput".to_owned());
    let cases = [
        ("GET", "People?comp=change", unknown.clone()),
        ("GET", "People?comp=Changes", unknown.clone()),
        ("POST", "People?comp=changes", unknown.clone()),
        ("DELETE", "People?comp=changes", unknown.clone()),
        ("GET", "People?comp=changes&from=", unknown.clone()),
        ("GET", "People?comp=changes&from=1!4!cA--", unknown.clone()),
        ("GET", "People?comp=changes&wait=31", unknown.clone()),
        ("GET", "People?comp=changes&wait=-1", unknown.clone()),
        ("GET", "People?comp=changes&wait=soon", unknown.clone()),
        ("GET", "People?comp=changes&$top=0", invalid.clone()),
        ("GET", "People?comp=changes&$top=1001", invalid.clone()),
        ("GET", "People?comp=changes&$filter=Age%20eq%201", (501, "NotImplemented".to_owned())),
        ("GET", "Nobody?comp=changes", (404, "TableNotFound".to_owned())),
        ("GET", "Nobody?comp=changes&wait=30", (404, "TableNotFound".to_owned())),
        ("GET", "No-one?comp=changes", (400, "InvalidResourceName".to_owned())),
    ];
    for (method, path, expected) in cases {
        let answer = client.request(method, path, &[], b"");
        assert_eq!(error(&answer), expected, "{method} {path}: {}", answer.text());
    }
    let mut secondary = server.client().at_secondary();
    assert_eq!(error(&ask(&mut secondary, "")), unknown);
    for path in ["People?comp=changes", "People()?comp=changes"] {
        let body = format!(
            "--batch_b\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n\
             GET http://{}/{DEV_ACCOUNT}/{path} HTTP/1.1\r\nAccept: application/json\r\n\r\n\r\n--batch_b--\r\n",
            server.address()
        );
        let headers = [("Content-Type", "multipart/mixed; boundary=batch_b")];
        let answer = client.request("POST", "$batch", &headers, body.as_bytes());
        assert!(answer.text().contains("400 Bad Request"), "{}", answer.text());
    }
    let off = TestServer::start();
    let mut client = off.client();
    client.create_table("People");
    let answer = ask(&mut client, "&wait=30");
    assert_eq!(error(&answer), (409, "ChangesNotKept".to_owned()));
    assert!(answer.text().contains("--keep-changes"), "{}", answer.text());
}

#[test]
fn a_table_made_again_is_another() {
    let server = serve(&[]);
    let mut client = server.client();
    insert(&mut client, "old");
    let old = read(&mut client, "");
    let headers = [("Content-Type", "application/json")];
    assert_eq!(client.request("DELETE", "Tables('People')", &headers, b"").status, 204);
    assert_eq!(error(&ask(&mut client, &after(&old))), (404, "TableNotFound".to_owned()));
    client.create_table("People");
    insert(&mut client, "new");
    let answer = ask(&mut client, &after(&old));
    assert_eq!(error(&answer), (410, "ChangesExpired".to_owned()));
    assert_eq!(told(&read(&mut client, "")), ["new"]);
}

#[test]
fn old_changes_are_gone_in_time() {
    let server = TestServer::start_with(&["--keep-changes", "1s"]);
    let mut client = server.client();
    client.create_table("People");
    let begin = read(&mut client, "&from=now");
    insert(&mut client, "a");
    let started = Instant::now();
    loop {
        let answer = ask(&mut client, &after(&begin));
        if answer.status == 410 {
            assert_eq!(answer.code().as_deref(), Some("ChangesExpired"));
            break;
        }
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert!(started.elapsed() < Duration::from_secs(30), "forgotten in the background");
        thread::sleep(Duration::from_millis(200));
    }
    let next = read(&mut client, "");
    insert(&mut client, "b");
    assert_eq!(told(&read(&mut client, &after(&next))), ["b"], "and it goes on");
}

/// The setting belongs to the store: a start that says nothing leaves it, and a start that says off forgets.
#[test]
fn the_setting_outlives_the_server() {
    let parent = tempfile::tempdir().expect("a temporary directory");
    let start = |arguments: &[&str]| TestServer::start_in(parent.path(), arguments);
    let mut server = start(&["--keep-changes", "7d"]);
    assert!(server.log().contains("Changes kept for 7 days"), "{}", server.log());
    let mut client = server.client();
    client.create_table("People");
    insert(&mut client, "a");
    assert!(server.stop().success());
    let mut server = start(&[]);
    assert!(server.log().contains("Changes kept"), "{}", server.log());
    let mut client = server.client();
    insert(&mut client, "b");
    let both = read(&mut client, "");
    assert_eq!(told(&both), ["a", "b"]);
    assert!(server.stop().success());
    let mut server = start(&["--keep-changes", "off"]);
    assert_eq!(error(&ask(&mut server.client(), "")), (409, "ChangesNotKept".to_owned()));
    insert(&mut server.client(), "c");
    assert!(server.stop().success());
    let server = start(&["--keep-changes", "7d"]);
    let gap = ask(&mut server.client(), &after(&both));
    assert_eq!(error(&gap), (410, "ChangesExpired".to_owned()), "there is a gap");
}

#[test]
fn a_wait_ends_with_the_change() {
    let server = serve(&[]);
    let mut client = server.client();
    let begin = read(&mut client, "&from=now");
    let started = Instant::now();
    assert_eq!(
        told(&read(&mut client, &format!("{}&wait=1", after(&begin)))),
        Vec::<String>::new()
    );
    assert!(Duration::from_secs(1) <= started.elapsed(), "{:?}", started.elapsed());
    let waiting = {
        let (mut client, options) = (server.client(), format!("{}&wait=30", after(&begin)));
        thread::spawn(move || (read(&mut client, &options), Instant::now()))
    };
    thread::sleep(Duration::from_millis(300));
    let written = Instant::now();
    insert(&mut client, "a");
    let (answer, answered) = waiting.join().expect("no panic");
    assert_eq!(told(&answer), ["a"]);
    let late = answered.saturating_duration_since(written);
    assert!(late < Duration::from_secs(5), "{late:?}");
    println!("a waiting reader heard of a write {late:?} after it was sent");
}

/// Starts requests that wait, each on a connection of its own.
fn crowd(server: &TestServer, options: &str, count: usize) -> Vec<Connection> {
    let client = server.client();
    let start = |_| {
        let head = client.head("GET", &format!("People?comp=changes{options}"), &[], None);
        let mut connection = Connection::open(server.address()).expect("connected");
        connection.send(&head).expect("sent");
        connection
    };
    (0..count).map(start).collect()
}

/// Those that wait take nobody's place, are not without limit, and do not keep the server from stopping.
#[test]
fn waiting_requests_are_no_burden() {
    let mut server = serve(&["--max-requests", "8", "--max-scans", "2"]);
    let mut client = server.client();
    let mut waiting = crowd(&server, "&from=now&wait=30", 300);
    thread::sleep(Duration::from_millis(500));
    for n in 0..20 {
        let entity = json!({ "PartitionKey": "other", "RowKey": n.to_string() });
        let mut client = server.client();
        client.request("GET", "People()?$top=1", &[], b"");
        assert_eq!(client.insert("Nobody", &entity).expect("answered").status, 404, "not 503");
    }
    let (mut refused, mut others) = (0, Vec::new());
    for mut connection in waiting.drain(..) {
        if connection.has_answer(Duration::from_millis(1)) {
            let answer = connection.receive("GET").expect("answered");
            assert_eq!(error(&answer), (503, "ServerBusy".to_owned()));
            refused += 1;
        } else {
            others.push(connection);
        }
    }
    println!("{} of 300 wait, {refused} were refused", others.len());
    assert_eq!(others.len(), 224, "an eighth of 256 is kept for other accounts");
    let written = Instant::now();
    insert(&mut client, "a");
    for connection in &mut others {
        let answer = connection.receive("GET").expect("answered");
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(told(&answer.json()), ["a"]);
    }
    println!("all heard of the change within {:?}", written.elapsed());

    let mut waiting = crowd(&server, "&from=now&wait=30", 5);
    thread::sleep(Duration::from_millis(300));
    let started = Instant::now();
    let stopped = thread::spawn(move || server.stop().success());
    for connection in &mut waiting {
        let answer = connection.receive("GET").expect("answered although the server stops");
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert!(told(&answer.json()).is_empty());
    }
    drop(waiting);
    assert!(stopped.join().expect("no panic"), "a clean end");
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
}

fn signed(fields: TableSasFields) -> String {
    let key = base64::engine::general_purpose::STANDARD.decode(DEV_KEY).expect("a key is Base64");
    let fields = TableSasFields { version: "2019-02-02".into(), table: "People".into(), ..fields };
    format!("&{}", sign::table_sas(DEV_ACCOUNT, &key, &fields))
}

/// Sends a request that nothing but its address vouches for.
fn open(server: &TestServer, options: &str) -> Connection {
    let mut connection = Connection::open(server.address()).expect("connected");
    let head = format!(
        "GET /{DEV_ACCOUNT}/People?comp=changes{options} HTTP/1.1\r\nHost: {}\r\n\
         Accept: application/json;odata=nometadata\r\n\r\n",
        server.address()
    );
    connection.send(head.as_bytes()).expect("sent");
    connection
}

#[test]
fn a_signature_shows_its_range_only() {
    let server = serve(&[]);
    let mut client = server.client();
    for partition in ["a", "b", "c", "b"] {
        let path = entity_path("People", partition, partition);
        client.update("PUT", &path, None, &json!({})).expect("answered");
    }
    let range = |permissions: &str| {
        signed(TableSasFields {
            permissions: permissions.into(),
            expiry: "2099-01-01T00:00:00Z".into(),
            start_partition: Some("b".into()),
            end_partition: Some("b".into()),
            ..TableSasFields::default()
        })
    };
    let answer = open(&server, &range("r")).receive("GET").expect("answered");
    assert_eq!(told(&answer.json()), ["b", "b"], "{}", answer.text());
    let answer = open(&server, &range("aud")).receive("GET").expect("answered");
    assert_eq!(error(&answer), (403, "AuthorizationPermissionMismatch".to_owned()));
    // What is written elsewhere does not end the wait.
    let options = format!(
        "&from={}&wait=2",
        encode(read(&mut client, "&from=now")["next"].as_str().expect("text"))
    );
    let started = Instant::now();
    let mut waiting = open(&server, &(options + &range("r")));
    client.update("PUT", &entity_path("People", "c", "c"), None, &json!({})).expect("answered");
    let answer = waiting.receive("GET").expect("answered");
    assert!(told(&answer.json()).is_empty());
    assert!(Duration::from_secs(2) <= started.elapsed(), "{:?}", started.elapsed());
}

/// A reader whose right ends while it waits is not told what came afterwards.
#[test]
fn a_right_that_was_taken_away_ends_the_wait_with_nothing() {
    let server = serve(&[]);
    let mut client = server.client();
    let mut set = |policies: &str| {
        let body =
            format!("<?xml version=\"1.0\"?><SignedIdentifiers>{policies}</SignedIdentifiers>");
        let headers = [("Content-Type", "application/xml")];
        let answer = client.request("PUT", "People?comp=acl", &headers, body.as_bytes());
        assert_eq!(answer.status, 204, "{}", answer.text());
    };
    set("<SignedIdentifier><Id>readers</Id><AccessPolicy><Start>2001-01-01T00:00:00Z</Start>\
         <Expiry>2099-01-01T00:00:00Z</Expiry><Permission>r</Permission></AccessPolicy></SignedIdentifier>");
    let right = signed(TableSasFields { policy_id: "readers".into(), ..TableSasFields::default() });
    let mut waiting = open(&server, &format!("&from=now&wait=30{right}"));
    assert!(!waiting.has_answer(Duration::from_millis(300)), "it waits");
    set("");
    insert(&mut server.client(), "secret");
    let answer = waiting.receive("GET").expect("answered");
    assert_eq!(error(&answer), (403, "AuthenticationFailed".to_owned()), "{}", answer.text());
}
