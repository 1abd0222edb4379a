//! Pages that are written while they are sent, as clients of all kinds get them.

use rowhouse_testkit::{Client, Connection, Operation, TestServer};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const TABLE: &str = "Large";
const QUERY: &str = "Large()";
const FULL: (&str, &str) = ("Accept", "application/json;odata=fullmetadata");
const ENTITIES: usize = 1000;

/// A server with a page of entities of all types, with texts of about so many bytes.
fn server(arguments: &[&str], bytes: usize) -> TestServer {
    let server = TestServer::start_with(arguments);
    let mut client = server.client();
    client.create_table(TABLE);
    for first in (0..ENTITIES).step_by(100) {
        let operations: Vec<_> = (first..first + 100).map(|n| insert(n, bytes)).collect();
        let answer = client.batch(&operations).expect("answered");
        assert!(answer.succeeded(), "{answer:?}");
    }
    server
}

fn insert(n: usize, bytes: usize) -> Operation {
    let entity = json!({
        "PartitionKey": "p \"q\" é",
        "RowKey": format!("{n:04}"),
        "Text": "a \"word\"\n\u{1}é and more of it".repeat(bytes / 27),
        "Int": n,
        "Long": n.to_string(),
        "Long@odata.type": "Edm.Int64",
        "Bytes": "AAEC/w==",
        "Bytes@odata.type": "Edm.Binary",
        "When": "2020-02-02T02:02:02.123Z",
        "When@odata.type": "Edm.DateTime",
        "Ratio": 0.5,
        "Yes": true,
    });
    Operation::insert(TABLE, entity)
}

fn entities(page: &Value) -> &[Value] {
    page["value"].as_array().expect("a page has a list")
}

#[test]
fn a_large_page_arrives_in_chunks_and_is_what_point_reads_give() {
    let server = server(&[], 1000);
    let mut client = server.client();
    for headers in [&[][..], &[FULL]] {
        let answer = client.request("GET", QUERY, headers, b"");
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(answer.header("transfer-encoding"), Some("chunked"));
        assert_eq!(answer.header("content-length"), None);
        let plan = answer.header("x-rowhouse-plan").unwrap_or_default();
        assert!(plan.ends_with("returned=1000"), "{plan}");
        let page = answer.json();
        assert_eq!(entities(&page).len(), ENTITIES);
        // The connection is used again for each.
        for entity in entities(&page).iter().step_by(if headers.is_empty() { 1 } else { 50 }) {
            let keys =
                [&entity["PartitionKey"], &entity["RowKey"]].map(|key| key.as_str().unwrap());
            let path = rowhouse_testkit::entity_path(TABLE, keys[0], keys[1]);
            let mut read = client.request("GET", &path, headers, b"").json();
            read.as_object_mut().unwrap().remove("odata.metadata");
            assert_eq!(&read, entity);
        }
    }
    let small = client.request("GET", "Large()?$top=5", &[], b"");
    assert_eq!(small.header("transfer-encoding"), None);
    assert_eq!(small.header("content-length"), Some(&*small.body.len().to_string()));
    let part = client.request("GET", "Large()?$top=500&$select=Int,Text,None", &[], b"");
    assert_eq!(part.header("transfer-encoding"), Some("chunked"));
    assert!(part.header("x-ms-continuation-NextRowKey").is_some());
    assert_eq!(entities(&part.json()).len(), 500);
    assert!(part.text().ends_with(",\"None\":null}]}"), "to the end");
}

#[test]
fn old_clients_and_batches_get_a_page_as_a_whole() {
    let server = server(&[], 1000);
    let mut client = server.client();
    let expected = client.request("GET", QUERY, &[], b"").json();
    let head = client.head("GET", QUERY, &[], None);
    let old = String::from_utf8(head).unwrap().replacen("HTTP/1.1", "HTTP/1.0", 1);
    let mut connection = Connection::open(server.address()).unwrap();
    connection.send(old.as_bytes()).unwrap();
    let answer = String::from_utf8(connection.receive_rest().unwrap()).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.0 200 OK\r\n"), "{head}");
    assert!(!head.to_lowercase().contains("transfer-encoding"), "{head}");
    assert_eq!(serde_json::from_str::<Value>(body).unwrap(), expected);

    let inner = format!(
        "--b\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n\
         GET http://{}/devstoreaccount1/{QUERY} HTTP/1.1\r\n\
         Accept: application/json;odata=minimalmetadata\r\n\r\n\r\n--b--\r\n",
        server.address()
    );
    let batch = [("Content-Type", "multipart/mixed; boundary=b")];
    let answer = client.request("POST", "$batch", &batch, inner.as_bytes());
    assert_eq!(answer.status, 202, "{}", answer.text());
    assert!(answer.header("content-length").is_some());
    let text = answer.text();
    let body = text.split("\r\n\r\n").find(|part| part.starts_with('{')).unwrap();
    let body = body.split("\r\n--").next().unwrap();
    assert_eq!(serde_json::from_str::<Value>(body).unwrap(), expected);

    let refused = client.request("HEAD", QUERY, &[], b"");
    assert!((400..500).contains(&refused.status), "{}", refused.status);
}

/// Asks for so many pages without reading more than the beginning of the first.
fn stall(client: &Client, server: &TestServer, pages: usize) -> Connection {
    let mut connection = Connection::open(server.address()).unwrap();
    for _ in 0..pages {
        connection.send(&client.head("GET", QUERY, &[], None)).unwrap();
    }
    assert!(connection.has_answer(Duration::from_secs(30)));
    connection
}

/// Of 8 MiB for answers an account has seven: room for one page of 4 MiB of rows and what the connection holds back.
#[test]
fn who_does_not_read_holds_room_until_it_goes() {
    let server = server(&["--max-body-mib", "8"], 5000);
    let mut client = server.client();
    let page = client.request("GET", QUERY, &[], b"");
    assert_eq!((page.status, page.header("transfer-encoding")), (200, Some("chunked")));
    // Together more than sockets hold, so one of them is held up.
    let stalled = stall(&client, &server, 8);
    let status = |client: &mut Client| client.request("GET", QUERY, &[], b"").status;
    let until = |client: &mut Client, expected: u16| {
        let give_up = Instant::now() + Duration::from_secs(20);
        while status(client) != expected {
            assert!(Instant::now() < give_up, "never {expected}");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    until(&mut client, 503);
    assert_eq!(client.get(TABLE, "p \"q\" é", "0007").status, 200, "others are served");
    drop(stalled);
    until(&mut client, 200);
    for _ in 0..50 {
        drop(stall(&client, &server, 1));
    }
    until(&mut client, 200);
    assert_eq!(client.request("GET", QUERY, &[], b"").json(), page.json());
}
