//! Answers that other clients than the usual ones depend on.

use base64::Engine as _;
use rowhouse_auth::{AccountSasFields, QueueSasFields, TableSasFields, sign};
use rowhouse_testkit::{Connection, DEV_ACCOUNT, DEV_KEY, TestServer};
use serde_json::json;
use std::time::Duration;

const JSON: (&str, &str) = ("Content-Type", "application/json");
const MULTIPART: (&str, &str) = ("Content-Type", "multipart/mixed; boundary=b");

fn key() -> Vec<u8> {
    base64::engine::general_purpose::STANDARD.decode(DEV_KEY).unwrap()
}

fn insert_of(row: usize) -> String {
    let entity = json!({ "PartitionKey": "p", "RowKey": row.to_string() });
    format!(
        "--b\r\nContent-Type: multipart/mixed; boundary=c\r\n\r\n--c\r\n\
         Content-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n\
         POST http://127.0.0.1/{DEV_ACCOUNT}/People HTTP/1.1\r\nAccept: application/json\r\n\
         Prefer: return-no-content\r\nContent-Type: application/json\r\n\r\n{entity}\r\n--c--\r\n--b--\r\n"
    )
}

#[test]
fn a_batch_is_accepted_whatever_its_outer_accept_says() {
    let server = TestServer::start();
    let mut client = server.client();
    client.create_table("People");
    let accepts = ["application/atom+xml,application/xml", "multipart/mixed", "application/json"];
    for (row, accept) in accepts.into_iter().enumerate() {
        for (at, path) in ["$batch", "$batch/"].into_iter().enumerate() {
            let body = insert_of(2 * row + at);
            let headers = [MULTIPART, ("Accept", accept)];
            let answer = client.request("POST", path, &headers, body.as_bytes());
            assert_eq!(answer.status, 202, "{accept} {path}: {}", answer.text());
            assert!(answer.text().contains("HTTP/1.1 204"), "{accept} {path}: {}", answer.text());
        }
    }
    assert_eq!(client.query("People", "").len(), 6);
}

#[test]
fn nothing_can_be_read_below_a_table() {
    let server = TestServer::start();
    let mut client = server.client();
    client.create_table("People");
    for path in ["People/anything", "People/People", "People/anything?$top=1", "Nobody/anything"] {
        let answer = client.request("GET", path, &[], b"");
        assert_eq!((answer.status, answer.code()), (501, Some("NotImplemented".into())), "{path}");
    }
    for path in ["People", "People/", "People()"] {
        assert_eq!(client.request("GET", path, &[], b"").status, 200, "{path}");
    }
    // As the SDK asks for the policies of a table that it is told has the name `a//`.
    let answer = client.request("GET", "a//?comp=acl", &[], b"");
    assert_eq!((answer.status, answer.code()), (400, Some("OutOfRangeInput".into())));
    let entity = br#"{"PartitionKey":"p","RowKey":"r"}"#;
    let answer = client.request("POST", "People/People", &[JSON], entity);
    assert_eq!(answer.status, 201, "a write goes by the table: {}", answer.text());
}

#[test]
fn a_count_may_be_asked_for_as_text() {
    let server = TestServer::start();
    let mut client = server.client();
    client.create_table("People");
    for accept in ["text/plain", "text/plain;charset=utf-8", "application/json", "*/*"] {
        let answer = client.request("GET", "People()/$count", &[("Accept", accept)], b"");
        assert_eq!((answer.status, answer.text()), (200, "0".to_owned()), "{accept}");
    }
    let answer = client.request("GET", "People()", &[("Accept", "text/plain")], b"");
    assert_eq!(answer.status, 415, "entities are no text");
}

/// The bytes of an answer, whose names of headers have a case.
fn answer_to(server: &TestServer, head: &[u8]) -> String {
    let mut connection = Connection::open(server.queue_address()).unwrap();
    let head = str::from_utf8(head).unwrap().replacen("\r\n", "\r\nConnection: close\r\n", 1);
    connection.send(head.as_bytes()).unwrap();
    String::from_utf8(connection.receive_rest().unwrap()).unwrap()
}

#[test]
fn names_of_metadata_keep_their_case() {
    let server = TestServer::start();
    let client = server.queue_client();
    let sent = [("X-Ms-Meta-OrderOwner", "Ann"), ("x-ms-meta-lower", "b"), ("x-ms-meta-A_B", "")];
    let created = answer_to(&server, &client.head("PUT", "orders", &sent, Some(0)));
    assert!(created.starts_with("HTTP/1.1 201"), "{created}");
    for path in ["orders?comp=metadata", "orders?comp=metadata&timeout=5"] {
        let read = answer_to(&server, &client.head("GET", path, &[], None));
        for line in ["x-ms-meta-OrderOwner: Ann\r\n", "x-ms-meta-lower: b\r\n", "x-ms-meta-A_B: "] {
            assert!(read.contains(line), "{line} of {path}: {read}");
        }
    }
    let list = client.head("GET", "?comp=list&include=metadata", &[], None);
    let list = answer_to(&server, &list);
    assert!(list.contains("<OrderOwner>Ann</OrderOwner>"), "{list}");
    // The next request of a connection is another one.
    let mut connection = Connection::open(server.queue_address()).unwrap();
    for (name, value) in [("x-ms-meta-One", "1"), ("x-ms-meta-oNE", "2"), ("x-ms-meta-ONE", "1")] {
        let change = client.head("PUT", "orders?comp=metadata", &[(name, value)], Some(0));
        connection.send(&change).unwrap();
        assert_eq!(connection.receive("PUT").unwrap().status, 204);
        let read = answer_to(&server, &client.head("GET", "orders?comp=metadata", &[], None));
        assert!(read.contains(&format!("{name}: {value}\r\n")), "{name}: {read}");
    }
}

fn queue_fields(permissions: &str) -> QueueSasFields {
    QueueSasFields {
        version: "2019-02-02".into(),
        queue: "orders".into(),
        permissions: permissions.into(),
        expiry: "2099-01-01T00:00:00Z".into(),
        ..QueueSasFields::default()
    }
}

fn peek(server: &TestServer, fields: &QueueSasFields) -> String {
    let token = sign::queue_sas(DEV_ACCOUNT, &key(), fields);
    let head = format!(
        "GET /{DEV_ACCOUNT}/orders/messages?peekonly=true&{token} HTTP/1.1\r\nHost: {}\r\n\r\n",
        server.queue_address()
    );
    answer_to(server, head.as_bytes())
}

#[test]
fn an_expired_signature_without_a_start_starts_when_it_is_used() {
    let server = TestServer::start();
    assert_eq!(server.queue_client().request("PUT", "orders", &[], b"").status, 201);
    let mut fields = queue_fields("r");
    fields.expiry = "2002-01-01T00:00:00Z".into();
    let expiry = "Signed expiry time [Tue, 01 Jan 2002 00:00:00 GMT]";
    let open = peek(&server, &fields);
    assert!(open.contains(&format!("{expiry} must be after signed start time [")), "{open}");
    fields.start = "2001-01-01T00:00:00Z".into();
    let frame = "Signature not valid in the specified time frame: Start [Mon, 01 Jan 2001";
    let framed = peek(&server, &fields);
    assert!(framed.contains(frame), "{framed}");
}

#[test]
fn letters_of_a_queue_policy_in_any_order() {
    let server = TestServer::start();
    let mut client = server.queue_client();
    assert_eq!(client.request("PUT", "orders", &[], b"").status, 201);
    for (letters, status) in [("raup", 200), ("pura", 200), ("pr", 200), ("pu", 403)] {
        let policy = format!(
            "<SignedIdentifiers><SignedIdentifier><Id>one</Id><AccessPolicy>\
             <Expiry>2099-01-01T00:00:00Z</Expiry><Permission>{letters}</Permission>\
             </AccessPolicy></SignedIdentifier></SignedIdentifiers>"
        );
        let set = client.request("PUT", "orders?comp=acl", &[], policy.as_bytes());
        assert_eq!(set.status, 204, "{letters}: {}", set.text());
        let kept = client.request("GET", "orders?comp=acl", &[], b"").text();
        assert!(kept.contains(&format!("<Permission>{letters}</Permission>")), "{kept}");
        let fields = QueueSasFields {
            policy_id: "one".into(),
            permissions: String::new(),
            expiry: String::new(),
            ..queue_fields("")
        };
        let answer = peek(&server, &fields);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{letters}: {answer}");
    }
}

/// Otherwise any valid signature could make the server read and keep large bodies.
#[test]
fn a_batch_that_may_do_nothing_is_refused_before_its_body() {
    let server = TestServer::start();
    let account = |services: &str, types: &str, letters: &str| {
        let fields = AccountSasFields {
            version: "2019-02-02".into(),
            services: services.into(),
            resource_types: types.into(),
            permissions: letters.into(),
            expiry: "2099-01-01".into(),
            ..AccountSasFields::default()
        };
        sign::account_sas(DEV_ACCOUNT, &key(), &fields).to_string()
    };
    let table = TableSasFields {
        version: "2019-02-02".into(),
        table: "People".into(),
        permissions: String::new(),
        expiry: "2099-01-01".into(),
        ..TableSasFields::default()
    };
    let table = |letters: &str| {
        let fields = TableSasFields { permissions: letters.into(), ..table.clone() };
        sign::table_sas(DEV_ACCOUNT, &key(), &fields).to_string()
    };
    let cases = [
        (account("q", "sco", "raup"), Some("AuthorizationServiceMismatch")),
        (account("t", "sc", "raud"), Some("AuthorizationResourceTypeMismatch")),
        (account("t", "sco", "l"), Some("AuthorizationPermissionMismatch")),
        (account("t", "sco", "p"), Some("AuthorizationPermissionMismatch")),
        (account("qt", "o", "p"), None),
        (account("t", "o", "d"), None),
        (table("r"), None),
        (table("a"), None),
    ];
    for (token, code) in cases {
        let head = format!(
            "POST /{DEV_ACCOUNT}/$batch?{token} HTTP/1.1\r\nHost: {}\r\nAccept: application/json\r\n\
             Content-Type: multipart/mixed; boundary=b\r\nContent-Length: 4000000\r\n\r\n",
            server.address()
        );
        let mut connection = Connection::open(server.address()).unwrap();
        connection.send(head.as_bytes()).unwrap();
        let Some(code) = code else {
            assert!(!connection.has_answer(Duration::from_millis(300)), "{token}: the body counts");
            continue;
        };
        assert!(connection.has_answer(Duration::from_secs(20)), "{token}: nobody reads the body");
        let answer = connection.receive("POST").unwrap();
        assert_eq!((answer.status, answer.code()), (403, Some(code.into())), "{token}");
    }
}
