//! What each credential opens, and what each way of tampering with it is answered.
//!
//! Talks to the built binary in raw HTTP. Every row is one change to a request that was accepted before the
//! change, so that a row can only fail for the reason it names.

use base64::Engine;
use rowhouse_auth::{AccountSasFields, Request, Scheme, Service, TableSasFields, sign};
use rowhouse_env::{Clock, SystemClock};
use rowhouse_testkit::{Connection, DEV_ACCOUNT, DEV_KEY, Response, TestServer};
use rowhouse_types::Timestamp;
use std::fmt::Write;

const FAR: &str = "2099-01-01T00:00:00Z";
const PAST: &str = "2001-01-01T00:00:00Z";

fn key() -> Vec<u8> {
    base64::engine::general_purpose::STANDARD.decode(DEV_KEY).unwrap()
}

/// A server with one table that holds an entity in each of three partitions.
fn serve() -> TestServer {
    let server = TestServer::start();
    let mut client = server.client();
    client.create_table("People");
    for partition in ["a", "b", "c"] {
        let entity = serde_json::json!({ "PartitionKey": partition, "RowKey": "r" });
        assert_eq!(client.insert("People", &entity).unwrap().status, 204);
    }
    server
}

/// Sends a request as it stands, with a body where the verb has one.
fn send(
    server: &TestServer,
    method: &str,
    target: &str,
    headers: &[(String, String)],
    body: &str,
) -> Response {
    let mut text = format!("{method} {target} HTTP/1.1\r\nHost: {}\r\n", server.address());
    for (name, value) in headers {
        let _ = write!(text, "{name}: {value}\r\n");
    }
    if !matches!(method, "GET" | "DELETE") {
        let _ = write!(text, "Content-Length: {}\r\n", body.len());
    }
    let _ = write!(text, "\r\n{body}");
    let mut connection = Connection::open(server.address()).unwrap();
    connection.send(text.as_bytes()).unwrap();
    connection.receive(method).unwrap()
}

fn own(headers: &[(&str, &str)]) -> Vec<(String, String)> {
    headers.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn json() -> Vec<(String, String)> {
    own(&[
        ("Accept", "application/json;odata=nometadata"),
        ("Content-Type", "application/json"),
        ("x-ms-version", "2019-02-02"),
    ])
}

fn answer(response: &Response) -> (u16, String) {
    (response.status, response.code().unwrap_or_default())
}

fn table_fields() -> TableSasFields {
    TableSasFields {
        version: "2019-02-02".into(),
        table: "People".into(),
        permissions: "raud".into(),
        start: PAST.into(),
        expiry: FAR.into(),
        ip: "127.0.0.1-127.0.0.9".into(),
        protocol: "https,http".into(),
        start_partition: Some("b".into()),
        start_row: Some("a".into()),
        end_partition: Some("b".into()),
        end_row: Some("z".into()),
        ..TableSasFields::default()
    }
}

fn account_fields() -> AccountSasFields {
    AccountSasFields {
        version: "2019-02-02".into(),
        services: "t".into(),
        resource_types: "sco".into(),
        permissions: "rwdlacu".into(),
        start: PAST.into(),
        expiry: FAR.into(),
        ip: "127.0.0.1".into(),
        protocol: "https,http".into(),
        ..AccountSasFields::default()
    }
}

fn encode(pairs: &[(String, String)]) -> String {
    let encoded =
        pairs.iter().map(|(name, value)| format!("{name}={}", rowhouse_testkit::encode(value)));
    encoded.collect::<Vec<_>>().join("&")
}

#[test]
fn every_field_of_a_signature_is_signed() {
    let server = serve();
    let tokens = [
        sign::table_sas(DEV_ACCOUNT, &key(), &table_fields()),
        sign::account_sas(DEV_ACCOUNT, &key(), &account_fields()),
    ];
    for token in tokens {
        let pairs: Vec<(String, String)> =
            token.pairs().iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        let get = |pairs: &[(String, String)]| {
            let target = format!("/{DEV_ACCOUNT}/People()?{}", encode(pairs));
            answer(&send(&server, "GET", &target, &json(), ""))
        };
        assert_eq!(get(&pairs).0, 200);
        let other = |name: &str| match name {
            "sv" => "2020-12-06",
            "tn" => "Other",
            "si" => "policy",
            "sp" => "r",
            "st" => "2002-01-01T00:00:00Z",
            "se" => "2098-01-01T00:00:00Z",
            "sip" => "127.0.0.1-127.0.0.8",
            "spr" => "https",
            "ss" => "bqtf",
            "srt" => "co",
            "spk" | "srk" => "A",
            "epk" | "erk" => "zz",
            "sig" => "9SjHnQ77zPy9wlz6gGjv2JNa4gteQAmB11gLX/93GV4=",
            name => panic!("no other value for {name}"),
        };
        let refused = (403, "AuthenticationFailed".to_owned());
        for at in 0..pairs.len() {
            let name = &pairs[at].0;
            let mut changed = pairs.clone();
            changed[at].1 = other(name).to_owned();
            assert_eq!(get(&changed), refused, "{name} changed");
            let mut removed = pairs.clone();
            removed.remove(at);
            assert_eq!(get(&removed), refused, "{name} removed");
            let mut doubled = pairs.clone();
            doubled.push(pairs[at].clone());
            assert_eq!(get(&doubled), refused, "{name} doubled");
        }
        let mut added = pairs.clone();
        added.push(("si".to_owned(), "policy".to_owned()));
        if pairs.iter().any(|(name, _)| name == "tn") {
            assert_eq!(get(&added), refused, "si added");
        }
    }
}

#[test]
fn a_right_signature_is_held_to_its_terms() {
    let server = serve();
    let get = |token: String| {
        let target = format!("/{DEV_ACCOUNT}/People()?{token}");
        answer(&send(&server, "GET", &target, &json(), ""))
    };
    let table = |change: &dyn Fn(&mut TableSasFields)| {
        let mut fields = table_fields();
        change(&mut fields);
        get(sign::table_sas(DEV_ACCOUNT, &key(), &fields).to_string())
    };
    let account = |change: &dyn Fn(&mut AccountSasFields)| {
        let mut fields = account_fields();
        change(&mut fields);
        get(sign::account_sas(DEV_ACCOUNT, &key(), &fields).to_string())
    };
    let cases = [
        ("expired", table(&|f| f.expiry = PAST.into()), "AuthenticationFailed"),
        ("not yet valid", table(&|f| f.start = FAR.into()), "AuthenticationFailed"),
        ("no expiry", table(&|f| f.expiry = String::new()), "AuthenticationFailed"),
        ("no permissions", table(&|f| f.permissions = String::new()), "AuthenticationFailed"),
        ("letters out of order", table(&|f| f.permissions = "ar".into()), "AuthenticationFailed"),
        ("bad date", table(&|f| f.expiry = "soon".into()), "AuthenticationFailed"),
        ("http alone", table(&|f| f.protocol = "http".into()), "AuthenticationFailed"),
        ("row without partition", table(&|f| f.start_partition = None), "AuthenticationFailed"),
        ("address", table(&|f| f.ip = "10.1.1.1".into()), "AuthorizationSourceIPMismatch"),
        ("transport", table(&|f| f.protocol = "https".into()), "AuthorizationProtocolMismatch"),
        ("letter", table(&|f| f.permissions = "aud".into()), "AuthorizationPermissionMismatch"),
        ("another table", table(&|f| f.table = "Other".into()), "AuthorizationFailure"),
        ("unknown policy", table(&|f| f.policy_id = "nobody".into()), "AuthenticationFailed"),
        ("account expired", account(&|f| f.expiry = PAST.into()), "AuthenticationFailed"),
        (
            "account address",
            account(&|f| f.ip = "10.1.1.1".into()),
            "AuthorizationSourceIPMismatch",
        ),
        (
            "account transport",
            account(&|f| f.protocol = "https".into()),
            "AuthorizationProtocolMismatch",
        ),
        ("service", account(&|f| f.services = "bqf".into()), "AuthorizationServiceMismatch"),
        (
            "resource type",
            account(&|f| f.resource_types = "sc".into()),
            "AuthorizationResourceTypeMismatch",
        ),
        (
            "account letter",
            account(&|f| f.permissions = "wdlacu".into()),
            "AuthorizationPermissionMismatch",
        ),
    ];
    for (case, found, code) in cases {
        assert_eq!(found, (403, code.to_owned()), "{case}");
    }
}

#[test]
fn a_range_is_all_that_a_signature_opens() {
    let server = serve();
    let token = sign::table_sas(DEV_ACCOUNT, &key(), &table_fields()).to_string();
    let ask = |method: &str, path: &str, extra: &[(&str, &str)], body: &str| {
        let separator = if path.contains('?') { '&' } else { '?' };
        let target = format!("/{DEV_ACCOUNT}/{path}{separator}{token}");
        let mut headers = json();
        headers.extend(own(extra));
        send(&server, method, &target, &headers, body)
    };
    let page = ask("GET", "People()", &[], "").json();
    assert_eq!(page["value"].as_array().map(Vec::len), Some(1));
    assert_eq!(page["value"][0]["PartitionKey"], "b");
    assert_eq!(ask("GET", "People(PartitionKey='b',RowKey='r')", &[], "").status, 200);
    let outside = ask("GET", "People(PartitionKey='a',RowKey='r')", &[], "");
    assert_eq!(answer(&outside), (404, "ResourceNotFound".to_owned()));

    let any = [("If-Match", "*")];
    let inside = r#"{"PartitionKey":"b","RowKey":"s"}"#;
    assert_eq!(ask("POST", "People", &[], inside).status, 201);
    let refused = (403, "AuthorizationFailure".to_owned());
    let outside = r#"{"PartitionKey":"b","RowKey":"zz"}"#;
    assert_eq!(answer(&ask("POST", "People", &[], outside)), refused);
    for (method, headers) in [("PUT", &any[..]), ("PATCH", &any), ("PUT", &[]), ("DELETE", &any)] {
        let found = ask(method, "People(PartitionKey='c',RowKey='r')", headers, "{}");
        assert_eq!(answer(&found), refused, "{method}");
    }
    for path in ["People?comp=acl", "Tables", "?restype=service&comp=properties"] {
        assert_eq!(answer(&ask("GET", path, &[], "")), refused, "{path}");
    }
    let secondary = format!("/{DEV_ACCOUNT}-secondary/People?{token}");
    let found = send(&server, "POST", &secondary, &json(), inside);
    assert_eq!(answer(&found), (403, "InsufficientAccountPermissions".to_owned()));
}

#[test]
fn a_stored_policy_opens_and_closes() {
    let server = serve();
    let mut client = server.client();
    let mut set = |body: &str| {
        let headers = [("Content-Type", "application/xml")];
        client.request("PUT", "People?comp=acl", &headers, body.as_bytes()).status
    };
    let policy = format!(
        "<SignedIdentifiers><SignedIdentifier><Id>readers</Id><AccessPolicy><Expiry>{FAR}</Expiry>\
         <Permission>r</Permission></AccessPolicy></SignedIdentifier></SignedIdentifiers>"
    );
    let get = |change: &dyn Fn(&mut TableSasFields)| {
        let mut fields = TableSasFields {
            version: "2019-02-02".into(),
            table: "people".into(),
            policy_id: "readers".into(),
            ..TableSasFields::default()
        };
        change(&mut fields);
        let token = sign::table_sas(DEV_ACCOUNT, &key(), &fields);
        let target = format!("/{DEV_ACCOUNT}/People()?{token}");
        send(&server, "GET", &target, &json(), "").status
    };
    assert_eq!(get(&|_| ()), 403, "no policy yet");
    assert_eq!(set(&policy), 204);
    assert_eq!(get(&|_| ()), 200);
    assert_eq!(get(&|f| f.start = PAST.into()), 200, "what the policy leaves open");
    assert_eq!(get(&|f| f.permissions = "r".into()), 403, "said by both");
    assert_eq!(get(&|f| f.expiry = FAR.into()), 403, "said by both");
    assert_eq!(get(&|f| f.policy_id = "Readers".into()), 403, "another name");
    assert_eq!(set("<SignedIdentifiers/>"), 204);
    assert_eq!(get(&|_| ()), 403, "revoked");
}

/// Behind a proxy the line that it appends counts, not the one that the client sent.
#[test]
fn forwarded_addresses_are_the_proxys_word() {
    let server = TestServer::start_with(&["--trust-forwarded"]);
    server.client().create_table("People");
    let fields =
        TableSasFields { ip: "198.51.100.7".into(), protocol: "https".into(), ..table_fields() };
    let token = sign::table_sas(DEV_ACCOUNT, &key(), &fields);
    let target = format!("/{DEV_ACCOUNT}/People()?{token}");
    let ask = |lines: &[(&str, &str)]| {
        let mut headers = json();
        headers.extend(own(lines));
        answer(&send(&server, "GET", &target, &headers, "")).1
    };
    let (good, bad) = (("X-Forwarded-For", "198.51.100.7"), ("X-Forwarded-For", "203.0.113.9"));
    let (tls, plain) = (("X-Forwarded-Proto", "https"), ("X-Forwarded-Proto", "http"));
    assert_eq!(ask(&[bad, good, plain, tls]), "");
    assert_eq!(ask(&[("X-Forwarded-For", "203.0.113.9, 198.51.100.7"), tls]), "");
    assert_eq!(ask(&[good, bad, tls]), "AuthorizationSourceIPMismatch");
    assert_eq!(ask(&[good, tls, plain]), "AuthorizationProtocolMismatch");
    assert_eq!(ask(&[]), "AuthorizationSourceIPMismatch");
}

/// What is wrong with a request is told to who may make it, and who may not is refused before the server
/// reads a body.
#[test]
fn permission_goes_before_form_and_body() {
    let server = serve();
    let ask = |letters: &str, method: &str, path: &str, body: &str| {
        let fields = TableSasFields { permissions: letters.into(), ..table_fields() };
        let token = sign::table_sas(DEV_ACCOUNT, &key(), &fields);
        let target = format!("/{DEV_ACCOUNT}/{path}?{token}");
        answer(&send(&server, method, &target, &json(), body))
    };
    let no_key = r#"{"PartitionKey":"b"}"#;
    let refused = |code: &str| (403, code.to_owned());
    assert_eq!(ask("a", "POST", "People", no_key), (400, "PropertiesNeedValue".to_owned()));
    assert_eq!(ask("r", "POST", "People", no_key), refused("AuthorizationPermissionMismatch"));
    assert_eq!(ask("d", "DELETE", "People", ""), (400, "InvalidInput".to_owned()));
    assert_eq!(ask("r", "DELETE", "People", ""), refused("AuthorizationPermissionMismatch"));

    // A body that is announced and never sent: the answer does not wait for it.
    let fields = TableSasFields { permissions: "r".into(), ..table_fields() };
    let token = sign::table_sas(DEV_ACCOUNT, &key(), &fields);
    let mut connection = Connection::open(server.address()).unwrap();
    let head = format!(
        "POST /{DEV_ACCOUNT}/People?{token} HTTP/1.1\r\nHost: {}\r\nExpect: 100-continue\r\n\
         Content-Length: 1000\r\nAccept: application/json\r\n\r\n",
        server.address()
    );
    connection.send(head.as_bytes()).unwrap();
    let response = connection.receive("POST").unwrap();
    assert_eq!(answer(&response), refused("AuthorizationPermissionMismatch"));
    assert!(response.closes(), "the client may already be sending");

    let anonymous = send(&server, "GET", "/devstoreaccount1/People()?$filter=%zz", &json(), "");
    assert_eq!(answer(&anonymous), refused("AuthenticationFailed"));
}

/// A request with everything that Shared Key signs.
struct Signed {
    method: String,
    target: String,
    headers: Vec<(String, String)>,
}

fn signed(scheme: Scheme, date: Timestamp) -> Signed {
    let target = format!("/{DEV_ACCOUNT}/People()?comp=none");
    let mut headers = json();
    headers.extend(own(&[("Content-MD5", "abc"), ("x-ms-date", &date.rfc1123())]));
    let authorization = {
        let find = |name: &str| {
            let found = headers.iter().find(|(given, _)| given.eq_ignore_ascii_case(name));
            found.map(|(_, value)| value.as_str())
        };
        let request = Request {
            method: "GET",
            account: DEV_ACCOUNT,
            path: "/devstoreaccount1/People()",
            query: &own(&[("comp", "none")]),
            header: &find,
            service: Service::Table,
        };
        sign::shared_key(&request, scheme, &key()).unwrap()
    };
    headers.push(("Authorization".to_owned(), authorization));
    Signed { method: "GET".to_owned(), target, headers }
}

#[test]
fn every_signed_header_is_signed() {
    let server = serve();
    let ask = |scheme, change: &dyn Fn(&mut Signed)| {
        let mut request = signed(scheme, SystemClock.now());
        change(&mut request);
        let Signed { method, target, headers } = &request;
        let (status, code) = answer(&send(&server, method, target, headers, ""));
        format!("{status} {code}")
    };
    let set = |name: &'static str, value: &'static str| {
        move |request: &mut Signed| {
            let header = request.headers.iter_mut().find(|(given, _)| given == name).unwrap();
            header.1 = value.to_owned();
        }
    };
    // The resource has no such component: proof that the signature was accepted.
    let accepted = "400 InvalidQueryParameterValue";
    let refused = "403 AuthenticationFailed";
    let malformed = "400 InvalidAuthenticationInfo";
    for scheme in [Scheme::SharedKey, Scheme::SharedKeyLite] {
        let full = scheme == Scheme::SharedKey;
        let only_full = if full { refused } else { accepted };
        assert_eq!(ask(scheme, &|_| ()), accepted);
        assert_eq!(ask(scheme, &set("Content-MD5", "abd")), only_full);
        assert_eq!(ask(scheme, &set("Content-Type", "application/jsom")), only_full);
        assert_eq!(ask(scheme, &set("Accept", "application/json")), accepted, "not signed");
        let verb = |request: &mut Signed| request.method = "POST".to_owned();
        assert_eq!(ask(scheme, &verb), only_full);
        let later = |request: &mut Signed| {
            let date = SystemClock.now().plus_seconds(60).rfc1123();
            request.headers.iter_mut().find(|(name, _)| name == "x-ms-date").unwrap().1 = date;
        };
        assert_eq!(ask(scheme, &later), refused);
        let path =
            |request: &mut Signed| request.target = request.target.replace("People", "people");
        assert_eq!(ask(scheme, &path), refused);
        let component = |request: &mut Signed| request.target.push('x');
        assert_eq!(ask(scheme, &component), refused);
        let account = |request: &mut Signed| {
            let header = &mut request.headers.last_mut().unwrap().1;
            *header = header.replace(DEV_ACCOUNT, "devstoreaccount2");
        };
        assert_eq!(ask(scheme, &account), refused);
        let signature = |request: &mut Signed| {
            let header = &mut request.headers.last_mut().unwrap().1;
            let at = header.len() - 10;
            let flipped = if header.as_bytes()[at] == b'A' { "B" } else { "A" };
            header.replace_range(at..=at, flipped);
        };
        assert_eq!(ask(scheme, &signature), refused);
        for (value, expected) in [
            ("SharedKey", malformed),
            ("SharedKey devstoreaccount1", malformed),
            ("Basic abc", malformed),
            ("SharedKey devstoreaccount1:abc", refused),
        ] {
            assert_eq!(ask(scheme, &set("Authorization", value)), expected, "{value}");
        }
    }
}

#[test]
fn dates_and_missing_credentials() {
    let server = serve();
    let now = SystemClock.now();
    let at = |date: Timestamp| {
        let Signed { method, target, headers } = signed(Scheme::SharedKey, date);
        send(&server, &method, &target, &headers, "").status
    };
    let ago = |seconds: u64| {
        Timestamp::from_ticks(now.ticks() - seconds * 10_000_000).expect("long after the year 1")
    };
    assert_eq!(at(ago(14 * 60)), 400, "accepted, then refused for its parameter");
    assert_eq!(at(ago(16 * 60)), 403);
    assert_eq!(at(now.plus_seconds(14 * 60)), 400);
    assert_eq!(at(now.plus_seconds(16 * 60)), 403);

    let ask = |headers: &[(&str, &str)]| {
        let response = send(&server, "GET", "/devstoreaccount1/Tables", &own(headers), "");
        let challenge = response.header("www-authenticate").is_some();
        (response.status, response.code().unwrap_or_default(), challenge)
    };
    let (old, new) = (("x-ms-version", "2019-02-02"), ("x-ms-version", "2020-12-06"));
    let accept = ("Accept", "application/json");
    let bearer = ("Authorization", "Bearer abc");
    let failed = (403, "AuthenticationFailed".to_owned(), false);
    assert_eq!(ask(&[accept, old]), failed);
    assert_eq!(ask(&[accept, old, bearer]), failed);
    assert_eq!(ask(&[accept, new]), (401, "NoAuthenticationInformation".to_owned(), true));
    assert_eq!(ask(&[accept, new, bearer]), (401, "InvalidAuthenticationInfo".to_owned(), true));
}
