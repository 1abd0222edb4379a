//! No request holds the thread that others wait for: the server logs a task that worked for too long at a time, and here it
//! gets what takes longest. Runs the built binary.

#![cfg(unix)]

use rowhouse_testkit::{Client, Connection, Operation, TestServer, encode};
use rowhouse_types::limits;
use serde_json::{Value, json};
use std::fmt::Write as _;
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
    // The line is written when the poll ends, which may be after its answer arrived.
    std::thread::sleep(Duration::from_millis(5));
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

/// The nice value of each thread for long work.
#[cfg(target_os = "linux")]
fn filter_threads(server: &TestServer) -> Vec<i64> {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", server.pid())).expect("it runs");
    let stats =
        tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("stat")).ok());
    let nice = |stat: &str| stat.rsplit_once(") ")?.1.split(' ').nth(16)?.parse().ok();
    stats.filter(|stat| stat.contains("(rowhouse-filter)")).filter_map(|stat| nice(&stat)).collect()
}

/// To plan such a filter without indexes, and to evaluate it on no entity, is little work.
#[cfg(target_os = "linux")]
#[test]
fn a_long_filter_is_parsed_by_a_thread_with_a_low_priority() {
    let filter = |bytes: usize| {
        let terms = bytes / 16;
        let terms: Vec<_> = (0..terms).map(|n| format!("Prop{n:03} eq {n}")).collect();
        encode(&terms.join(" or "))
    };
    let (short, long) = (filter(limits::FILTER_INLINE_BYTES_MAX / 2), filter(FILTER_BYTES));
    for path in ["People()?$filter=", "People()/$count?$filter=", "Tables?$filter="] {
        let server = TestServer::start();
        let mut client = server.client();
        client.create_table("People");
        get(&mut client, &format!("{path}{short}"));
        assert!(filter_threads(&server).is_empty(), "{path}");
        get(&mut client, &format!("{path}{long}"));
        let threads = filter_threads(&server);
        assert!(
            !threads.is_empty() && threads.iter().all(|nice| *nice >= 10),
            "{threads:?} {path}"
        );
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
    // Whether a page fits depends on every byte of it.
    get(&mut client, "Bodies()");
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

/// Fills a table with batches of entities, each with as many properties as it may have.
fn fill(server: &TestServer, client: &mut Client, table: &str, batches: usize, value: &Value) {
    client.create_table(table);
    let mut entity = json!({ "PartitionKey": "p" });
    for n in 0..limits::PROPERTIES_MAX {
        entity[format!("P{n:03}")] = value.clone();
    }
    for batch in 0..batches {
        let inserts = (0..limits::BATCH_OPERATIONS_MAX).map(|n| {
            entity["RowKey"] = json!(format!("{batch:02}{n:03}"));
            Operation::insert(table, entity.clone())
        });
        let answer = client.batch(&inserts.collect::<Vec<_>>()).expect("answered");
        assert!(answer.succeeded(), "{}", answer.response.text());
        assert_short(server, &format!("a batch for {table}"));
    }
}

#[test]
fn pages_of_many_properties_hold_no_thread() {
    let server = TestServer::start_with(&["--keep-changes", "1h"]);
    let mut client = server.client();
    // As many bytes as a batch may have.
    fill(&server, &mut client, "Texts", 1, &json!("t".repeat(130)));
    fill(&server, &mut client, "Numbers", 10, &json!(7));
    let full = ("Accept", "application/json;odata=fullmetadata");
    let absent: Vec<_> = (0..limits::PROPERTIES_MAX).map(|n| format!("A{n:03}")).collect();
    let absent = absent.join(",");
    for (table, options) in [
        ("Texts", String::new()),
        ("Numbers", String::new()),
        ("Numbers", format!("$select={absent}")),
        ("Numbers", format!("$select={absent}&$top=20")),
        ("Numbers", format!("$select={}", &absent[..40 * 5 - 1])),
    ] {
        for level in [&[][..], &[full]] {
            let answer = client.request("GET", &format!("{table}()?{options}"), level, b"");
            assert_eq!(answer.status, 200, "{}", answer.text());
            assert_short(&server, &format!("a page of {table} {options} {level:?}"));
        }
    }
    for table in ["Texts", "Numbers"] {
        get(&mut client, &format!("{table}?comp=changes"));
        assert_short(&server, &format!("changes of {table}"));
        let (kind, body) = lone_query(&server, table);
        let answer = client.request("POST", "$batch", &[("Content-Type", &kind)], &body);
        assert_eq!(answer.status, 202, "{}", answer.text());
        assert!(answer.body.len() > 1 << 20, "{} bytes", answer.body.len());
        assert_short(&server, &format!("a page of {table} in a batch"));
    }
}

/// A batch of one query.
fn lone_query(server: &TestServer, table: &str) -> (String, Vec<u8>) {
    let url = format!("http://{}/{}/{table}()", server.address(), rowhouse_testkit::DEV_ACCOUNT);
    let body = format!(
        "--batch_b\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n\
         GET {url} HTTP/1.1\r\nAccept: application/json;odata=minimalmetadata\r\n\r\n\r\n--batch_b--\r\n"
    );
    ("multipart/mixed; boundary=batch_b".to_owned(), body.into_bytes())
}

/// Texts of characters that JSON escapes: only writing it shows how long a page becomes.
#[test]
fn pages_that_may_not_fit_hold_no_thread() {
    let server = TestServer::start();
    let mut client = server.client();
    client.create_table("Bodies");
    let text = "\u{1}".repeat(30 * 1024);
    for row in 0..100 {
        let entity = json!({ "PartitionKey": "p", "RowKey": format!("{row:03}"), "Text": text });
        let answer = client.insert("Bodies", &entity).expect("answered");
        assert_eq!(answer.status, 204, "{}", answer.text());
    }
    assert_short(&server, "entities to escape");
    let answer = client.request("GET", "Bodies()", &[], b"");
    assert!(answer.body.len() > limits::PAGE_REPLY_BYTES_MAX / 2, "{}", answer.body.len());
    assert!(answer.header("x-ms-continuation-NextRowKey").is_some(), "it does not fit");
    assert_short(&server, "a page to escape");
}

#[test]
fn large_messages_hold_no_thread() {
    let server = TestServer::start();
    let mut client = server.queue_client();
    assert_eq!(client.request("PUT", "things", &[], b"").status, 201);
    let text = "&lt;".repeat(limits::MESSAGE_BYTES_MAX);
    let body = format!("<QueueMessage><MessageText>{text}</MessageText></QueueMessage>");
    for _ in 0..limits::MESSAGES_MAX {
        let put = client.request("POST", "things/messages", &[], body.as_bytes());
        assert_eq!(put.status, 201, "{}", put.text());
    }
    assert_short(&server, "a message to escape");
    for options in ["&peekonly=true", ""] {
        get(&mut client, &format!("things/messages?numofmessages=32{options}"));
        assert_short(&server, &format!("messages to escape {options}"));
    }
}

/// Anybody may send as many headers as fit into a head.
#[test]
fn many_metadata_headers_hold_no_thread() {
    let server = TestServer::start();
    let name = |n: usize| format!("x-ms-meta-A{n:03}");
    let most = limits::QUEUE_HEADERS_MAX - 20;
    let mut names: Vec<_> = (0..most).map(name).collect();
    let mut client = server.queue_client();
    for round in ["in order", "reversed"] {
        for target in ["many?comp=metadata", "many", "many/messages", "?comp=list"] {
            let mut head =
                format!("PUT /devstoreaccount1/{target} HTTP/1.1\r\nHost: localhost\r\n");
            for name in &names {
                let _ = write!(head, "{name}: \r\n");
            }
            let mut anonymous = Connection::open(server.queue_address()).expect("it listens");
            anonymous.send(format!("{head}Content-Length: 0\r\n\r\n").as_bytes()).expect("read");
            assert_eq!(anonymous.receive("PUT").expect("answered").status / 100, 4);
            assert_short(&server, &format!("anonymous headers {round} for {target}"));
            let headers: Vec<_> = names.iter().map(|name| (name.as_str(), "")).collect();
            let answer = client.request("PUT", target, &headers, b"");
            assert_eq!(answer.status / 100, 4, "{}", answer.text());
            assert_short(&server, &format!("headers {round} for {target}"));
        }
        names.reverse();
    }
    // As many as a queue keeps.
    names.truncate(limits::METADATA_BYTES_MAX / "A0000".len());
    let headers: Vec<_> = names.iter().map(|name| (name.as_str(), "")).collect();
    let made = client.request("PUT", "many", &headers, b"");
    assert_eq!(made.status, 201, "{}", made.text());
    let answer = client.request("GET", "many?comp=metadata", &[], b"");
    let kept = answer.headers.iter().filter(|(name, _)| name.starts_with("x-ms-meta-A")).count();
    assert_eq!((answer.status, kept), (200, names.len()));
    assert_short(&server, "headers that are kept");
}

#[test]
fn settings_hold_no_thread() {
    let server = TestServer::start();
    client_settings(&server, &mut server.client(), "People");
    client_settings(&server, &mut server.queue_client(), "people");
}

/// Access policies and properties as long as they may be, and some that are nothing.
fn client_settings(server: &TestServer, client: &mut Client, resource: &str) {
    let xml = ("Content-Type", "application/xml");
    if resource == "People" {
        client.create_table(resource);
    } else {
        assert_eq!(client.request("PUT", resource, &[], b"").status, 201);
    }
    let signed = |n: usize| {
        let id = format!("{n}{}", "i".repeat(63));
        format!(
            "<SignedIdentifier><Id>{id}</Id><AccessPolicy><Permission>r</Permission></AccessPolicy></SignedIdentifier>"
        )
    };
    let policies = |text: &str| format!("<SignedIdentifiers>{text}</SignedIdentifiers>");
    let name = "x-ms-".to_owned() + &"h".repeat(17);
    let headers = vec![name; limits::CORS_LITERAL_HEADERS_MAX].join(",");
    let rule = |headers: &str| {
        format!(
            "<CorsRule><AllowedOrigins>*</AllowedOrigins><AllowedMethods>GET</AllowedMethods>\
             <AllowedHeaders>{headers}</AllowedHeaders><ExposedHeaders/>\
             <MaxAgeInSeconds>5</MaxAgeInSeconds></CorsRule>"
        )
    };
    let rules = |text: &str| {
        format!("<StorageServiceProperties><Cors>{text}</Cors></StorageServiceProperties>")
    };
    let longest = |text: &str| text.repeat((limits::XML_BODY_BYTES_MAX - 256) / text.len());
    let (acl, properties) =
        (format!("{resource}?comp=acl"), "?restype=service&comp=properties".to_owned());
    for (target, body, is_right) in [
        (&acl, policies(&(0..5).map(signed).collect::<String>()), true),
        (&acl, policies(&longest(&signed(1))), false),
        (&acl, policies(&longest("<a/>")), false),
        (&acl, longest("<a>"), false),
        (&acl, policies(&longest("&amp;")), false),
        (&properties, rules(&rule(&headers)), true),
        (&properties, rules(&longest(&rule("a"))), false),
        (&properties, rules(&rule(&longest("a,"))), false),
        (&properties, rules(&longest("<a/>")), false),
    ] {
        let answer = client.request("PUT", target, &[xml], body.as_bytes());
        // What has no form is refused, or nothing is read from it.
        let is_answered = if is_right { answer.status < 300 } else { answer.status < 500 };
        assert!(is_answered, "{target}: {} {}", answer.status, answer.text());
        assert_short(server, &format!("{target} {}", &body[..body.len().min(200)]));
    }
    for target in [&acl, &properties] {
        get(client, target);
        assert_short(server, target);
    }
}

#[test]
fn long_lists_of_accounts_hold_no_thread() {
    const ACCOUNTS: usize = 400;
    const TOKEN: &str = "0123456789abcdef0123456789abcdef";
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let token = directory.path().join("token");
    std::fs::write(&token, TOKEN).expect("a file can be written");
    let token = token.to_str().expect("the path is text");
    let server = TestServer::start_with(&["--admin-token-file", token]);
    let mut connection = Connection::open(server.admin_address()).expect("it listens");
    let mut ask = |method: &str, path: &str, body: &str| {
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        connection.send(request.as_bytes()).expect("it is read");
        connection.receive(method).expect("it is answered")
    };
    for n in 0..ACCOUNTS {
        let made =
            ask("POST", "/v1/accounts", &json!({ "name": format!("account{n:05}") }).to_string());
        assert_eq!(made.status, 201, "{}", made.text());
    }
    let listed = ask("GET", "/v1/accounts", "");
    assert!(listed.text().contains(&format!("account{:05}", ACCOUNTS - 1)), "{}", listed.status);
    assert_short(&server, "accounts");
}
