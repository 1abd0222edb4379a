//! No request holds the thread that others wait for: the server logs a task that worked for too long at a time, and here it
//! gets what takes longest. Runs the built binary.

#![cfg(unix)]

use rowhouse_testkit::{Client, TestServer, encode};
use rowhouse_types::limits;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const JSON: (&str, &str) = ("Content-Type", "application/json");
/// Bytes of a filter that still fit into a target when each of them is escaped.
const FILTER_BYTES: usize = 20 * 1024;

fn longest(by: &str, part: impl Fn(usize) -> String) -> String {
    let mut text = part(0);
    for n in 1.. {
        let part = part(n);
        if FILTER_BYTES < text.len() + by.len() + part.len() {
            break;
        }
        text = text + by + &part;
    }
    text
}

/// Names what was asked for if a task held its thread meanwhile.
fn assert_short(server: &TestServer, what: &str) {
    let long = server.long_polls();
    assert!(long.is_empty(), "{what}: {long:#?}");
}

fn get(client: &mut Client, path: &str) {
    let answer = client.request("GET", path, &[], b"");
    assert_eq!(answer.status, 200, "{}", answer.text());
}

#[test]
fn planning_holds_no_thread() {
    let server = TestServer::start();
    let mut client = server.client();
    client.create_table("People");
    client
        .insert("People", &json!({ "PartitionKey": "p", "RowKey": "r", "P0": 1 }))
        .expect("it is");
    for at in 0..limits::INDEXES_MAX {
        let properties = (4 * at..4 * at + 4).map(|n| Value::String(format!("P{n}")));
        let body = json!({ "properties": properties.collect::<Vec<_>>() }).to_string();
        let made = client.request("PUT", "People?comp=index", &[JSON], body.as_bytes());
        assert_eq!(made.status, 201, "{}", made.text());
    }
    let began = Instant::now();
    loop {
        let indexes = client.request("GET", "People?comp=index", &[], b"").json();
        let mut all = indexes["value"].as_array().expect("a list").iter();
        if all.all(|index| index["state"] == "ready") {
            break;
        }
        assert!(began.elapsed() < Duration::from_mins(1), "{indexes}");
        std::thread::sleep(Duration::from_millis(20));
    }
    for (name, filter) in [
        ("one value of each", longest(" or ", |n| format!("P{n} eq {n}"))),
        ("each property", longest(" or ", |n| format!("P{} eq {n}", n % 64))),
        ("all of each", longest(" and ", |n| format!("P{} ge {n}", n % 64))),
        ("branches", longest(" or ", |n| format!("(P{} eq {n} and P1 gt {n})", n % 64))),
        ("keys", longest(" or ", |n| format!("(PartitionKey eq '{n}' and RowKey gt '{n}')"))),
    ] {
        let filter = encode(&filter);
        for options in ["()?", "()/$count?", "()?$explain=true&", "()?$orderby=P0&$top=5&"] {
            get(&mut client, &format!("People{options}$filter={filter}"));
            assert_short(&server, &format!("{name} {options}"));
        }
    }
}

#[test]
fn listing_tables_holds_no_thread() {
    const TABLES: usize = 1_200;
    let server = TestServer::start();
    let mut client = server.client();
    for n in 0..TABLES {
        client.create_table(&format!("Table{n:05}"));
    }
    let filter = longest(" or ", |n| format!("TableName eq 'x{n}'"));
    get(&mut client, &format!("Tables?$filter={}", encode(&filter)));
    get(&mut client, "Tables");
    assert_short(&server, "tables");
}

#[test]
fn large_bodies_hold_no_thread() {
    let server = TestServer::start();
    let mut client = server.client();
    client.create_table("Bodies");
    let mut large = json!({ "PartitionKey": "p", "RowKey": "large" });
    for n in 0..15 {
        large[format!("P{n:02}")] = Value::String("x".repeat(32 * 1024));
    }
    let answer = client.insert("Bodies", &large).expect("answered");
    assert_eq!(answer.status / 100, 2, "{}", answer.text());
    assert_short(&server, "a large entity");
    let mut many = json!({ "PartitionKey": "p", "RowKey": "many" });
    for n in 0..limits::PROPERTIES_MAX {
        many[format!("Property{n:03}")] = json!(n);
    }
    let answer = client.insert("Bodies", &many).expect("answered");
    assert_eq!(answer.status / 100, 2, "{}", answer.text());
    assert_short(&server, "an entity of many properties");
    let escaped = format!(
        r#"{{"PartitionKey":"p","RowKey":"escaped","Text":"{}"}}"#,
        "\\u0041".repeat(limits::STRING_UTF16_UNITS_MAX)
    );
    let answer = client.request("POST", "Bodies", &[JSON], escaped.as_bytes());
    assert_eq!(answer.status / 100, 2, "{}", answer.text());
    assert_short(&server, "an entity with escapes");
    let ignored = vec!["0"; limits::BODY_BYTES_MAX / 2 - 64].join(",");
    let wrong = format!(r#"{{"PartitionKey":"p","RowKey":"wrong","Nested":[{ignored}]}}"#);
    let answer = client.request("POST", "Bodies", &[JSON], wrong.as_bytes());
    assert_eq!(answer.status, 400, "{}", answer.text());
    assert_short(&server, "a body that is no entity");
}

#[test]
fn large_batches_hold_no_thread() {
    use rowhouse_testkit::Operation;
    let server = TestServer::start();
    let mut client = server.client();
    client.create_table("Bodies");
    let text = "x".repeat(30 * 1024);
    let operations: Vec<Operation> = (0..limits::BATCH_OPERATIONS_MAX)
        .map(|n| {
            let entity = json!({ "PartitionKey": "p", "RowKey": format!("{n:03}"), "Text": text });
            Operation::insert("Bodies", entity)
        })
        .collect();
    let answer = client.batch(&operations).expect("answered");
    assert!(answer.succeeded(), "{answer:?}");
    assert_short(&server, "a batch of large entities");
    // Whether a page fits is told by every byte of it, which takes this long where nothing is optimised.
    get(&mut client, "Bodies()?$top=40");
    assert_short(&server, "a page of large entities");
    let lines = "--batch_x\r\nContent-Type: a/b\r\n\r\n".repeat(100_000);
    let kind = ("Content-Type", "multipart/mixed; boundary=batch_x");
    let answer = client.request("POST", "$batch", &[kind], &lines.as_bytes()[..3 << 20]);
    assert_eq!(answer.status / 100, 4, "{}", answer.text());
    assert_short(&server, "a batch of parts that are none");
}

#[test]
fn long_lists_of_queues_hold_no_thread() {
    let server = TestServer::start();
    let mut client = server.queue_client();
    let value = "v".repeat(2_000);
    let headers = ["a", "b", "c"].map(|name| (format!("x-ms-meta-{name}"), value.as_str()));
    let headers: Vec<(&str, &str)> =
        headers.iter().map(|(name, value)| (name.as_str(), *value)).collect();
    for n in 0..1_000 {
        let made = client.request("PUT", &format!("queue{n:05}"), &headers, b"");
        assert_eq!(made.status, 201, "{}", made.text());
    }
    let answer = client.request("GET", "?comp=list&include=metadata", &[], b"");
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(answer.body.len() > 4 << 20, "{} bytes", answer.body.len());
    assert_short(&server, "queues with metadata");
}
