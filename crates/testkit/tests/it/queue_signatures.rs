//! What each credential opens in the Queue service, and what tampering with it is answered.

use base64::Engine as _;
use rowhouse_auth::{
    AccountSasFields, QueueSasFields, Request, Scheme, Service, TableSasFields, sign,
};
use rowhouse_env::{Clock, SystemClock};
use rowhouse_testkit::{Connection, DEV_ACCOUNT, DEV_KEY, Response, TestServer, encode};
use rowhouse_types::Timestamp;
use std::fmt::Write as _;

const FAR: &str = "2099-01-01T00:00:00Z";
const PAST: &str = "2001-01-01T00:00:00Z";
/// The detail of a signature that ends when it starts.
const NEVER: &str = "<AuthenticationErrorDetail>Signed expiry time [Thu, 01 Jan 2099 00:00:00 GMT] must be \
    after signed start time [Thu, 01 Jan 2099 00:00:00 GMT]";

fn key() -> Vec<u8> {
    base64::engine::general_purpose::STANDARD.decode(DEV_KEY).unwrap()
}

/// A server with the queues `orders`, which holds a message, and `others`.
fn serve() -> TestServer {
    let server = TestServer::start();
    let mut client = server.queue_client();
    for name in ["orders", "others"] {
        assert_eq!(client.request("PUT", name, &[], b"").status, 201);
    }
    assert_eq!(client.request("POST", "orders/messages", &[], BODY.as_bytes()).status, 201);
    server
}

const BODY: &str = "<QueueMessage><MessageText>x</MessageText></QueueMessage>";

fn send(
    server: &TestServer,
    method: &str,
    target: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Response {
    let mut text = format!("{method} {target} HTTP/1.1\r\nHost: {}\r\n", server.queue_address());
    for (name, value) in headers {
        let _ = write!(text, "{name}: {value}\r\n");
    }
    if !matches!(method, "GET" | "DELETE") {
        let _ = write!(text, "Content-Length: {}\r\n", body.len());
    }
    let _ = write!(text, "\r\n{body}");
    let mut connection = Connection::open(server.queue_address()).unwrap();
    connection.send(text.as_bytes()).unwrap();
    connection.receive(method).unwrap()
}

fn answer(response: &Response) -> (u16, String) {
    (response.status, response.code().unwrap_or_default())
}

fn queue_fields(permissions: &str) -> QueueSasFields {
    QueueSasFields {
        version: "2019-02-02".into(),
        queue: "orders".into(),
        permissions: permissions.into(),
        start: PAST.into(),
        expiry: FAR.into(),
        ip: "127.0.0.1-127.0.0.9".into(),
        protocol: "https,http".into(),
        ..QueueSasFields::default()
    }
}

fn account_fields(services: &str, types: &str, permissions: &str) -> AccountSasFields {
    AccountSasFields {
        version: "2019-02-02".into(),
        services: services.into(),
        resource_types: types.into(),
        permissions: permissions.into(),
        expiry: FAR.into(),
        ..AccountSasFields::default()
    }
}

/// Verb, path and body; a letter, or none; a type of resource; letters.
type Row = (&'static str, &'static str, &'static str, Option<char>, char, &'static str);

/// Every operation with the letter of a queue's signature that it needs, and type and letters of an account's.
fn operations() -> [Row; 16] {
    let message = "orders/messages/917274f0-d51e-4768-9892-e6fdb9663621?popreceipt=AAAA";
    [
        ("GET", "orders/messages?peekonly=true", "", Some('r'), 'o', "r"),
        ("GET", "orders?comp=metadata", "", Some('r'), 'c', "r"),
        ("POST", "orders/messages", BODY, Some('a'), 'o', "a"),
        ("GET", "orders/messages", "", Some('p'), 'o', "p"),
        ("DELETE", message, "", Some('p'), 'o', "p"),
        ("PUT", "orders/messages/x?popreceipt=AAAA&visibilitytimeout=0", "", Some('u'), 'o', "u"),
        ("DELETE", "orders/messages", "", None, 'o', "d"),
        ("PUT", "orders", "", None, 'c', "cw"),
        ("PUT", "orders?comp=metadata", "", None, 'c', "w"),
        ("GET", "?comp=list", "", None, 's', "l"),
        ("GET", "?restype=service&comp=properties", "", None, 's', "r"),
        ("PUT", "?restype=service&comp=properties", "<StorageServiceProperties/>", None, 's', "w"),
        ("GET", "?restype=service&comp=stats", "", None, 's', "r"),
        ("GET", "orders?comp=acl", "", None, '-', ""),
        ("PUT", "orders?comp=acl", "", None, '-', ""),
        ("DELETE", "orders", "", None, 'c', "d"),
    ]
}

fn with_token(path: &str, token: &str) -> String {
    let join = if path.contains('?') { '&' } else { '?' };
    format!("/{DEV_ACCOUNT}/{path}{join}{token}")
}

/// Whether the credential was enough, whatever came of the operation.
fn allowed(response: &Response) -> Result<(), String> {
    let (status, code) = answer(response);
    if status == 403 { Err(code) } else { Ok(()) }
}

#[test]
fn each_letter_of_a_queues_signature() {
    let server = serve();
    for (method, path, body, needed, ..) in operations() {
        for letter in "raup".chars() {
            let fields = queue_fields(&letter.to_string());
            let token = sign::queue_sas(DEV_ACCOUNT, &key(), &fields).to_string();
            let response = send(&server, method, &with_token(path, &token), &[], body);
            let expected = match needed {
                Some(needed) if needed == letter => Ok(()),
                Some(_) => Err("AuthorizationPermissionMismatch".to_owned()),
                // Without a queue in the URL there is no such signature.
                None if path.starts_with('?') => Err("AuthenticationFailed".to_owned()),
                None => Err("AuthorizationFailure".to_owned()),
            };
            assert_eq!(allowed(&response), expected, "{method} {path} {letter}");
            // A signature of one queue is none of another.
            if path.starts_with("orders") {
                let other = with_token(&path.replacen("orders", "others", 1), &token);
                let response = send(&server, method, &other, &[], body);
                assert_eq!(
                    allowed(&response),
                    Err("AuthenticationFailed".into()),
                    "{method} {path}"
                );
            }
        }
    }
}

#[test]
fn each_letter_of_an_accounts_signature() {
    let server = serve();
    for (method, path, body, _, right, letters) in operations() {
        for kind in ["s", "c", "o"] {
            for letter in "rwdlacup".chars() {
                let fields = account_fields("q", kind, &letter.to_string());
                let token = sign::account_sas(DEV_ACCOUNT, &key(), &fields).to_string();
                let response = send(&server, method, &with_token(path, &token), &[], body);
                let expected = if path.contains("comp=acl") {
                    Err("AuthorizationFailure".to_owned())
                } else if !kind.starts_with(right) {
                    Err("AuthorizationResourceTypeMismatch".to_owned())
                } else if letters.contains(letter) {
                    Ok(())
                } else {
                    Err("AuthorizationPermissionMismatch".to_owned())
                };
                assert_eq!(allowed(&response), expected, "{method} {path} {kind} {letter}");
            }
        }
        let fields = account_fields("btf", "sco", "rwdlacup");
        let token = sign::account_sas(DEV_ACCOUNT, &key(), &fields).to_string();
        let response = send(&server, method, &with_token(path, &token), &[], body);
        let expected = Err("AuthorizationServiceMismatch".to_owned());
        assert_eq!(allowed(&response), expected, "{method} {path}");
    }
}

#[test]
fn every_field_of_a_signature_is_signed() {
    let server = serve();
    let token = sign::queue_sas(DEV_ACCOUNT, &key(), &queue_fields("raup"));
    let pairs: Vec<(String, String)> =
        token.pairs().iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    let get = |pairs: &[(String, String)]| {
        let encoded: Vec<_> =
            pairs.iter().map(|(name, value)| format!("{name}={}", encode(value))).collect();
        let target = with_token("orders/messages?peekonly=true", &encoded.join("&"));
        answer(&send(&server, "GET", &target, &[], ""))
    };
    assert_eq!(get(&pairs).0, 200);
    let refused = (403, "AuthenticationFailed".to_owned());
    for at in 0..pairs.len() {
        let other = match pairs[at].0.as_str() {
            "sv" => "2020-12-06",
            "sp" => "r",
            "st" => "2002-01-01T00:00:00Z",
            "se" => "2098-01-01T00:00:00Z",
            "sip" => "127.0.0.1-127.0.0.8",
            "spr" => "https",
            "sig" => "9SjHnQ77zPy9wlz6gGjv2JNa4gteQAmB11gLX/93GV4=",
            name => panic!("no other value for {name}"),
        };
        let mut changed = pairs.clone();
        changed[at].1 = other.to_owned();
        // The version of the protocol is that of the signature, which is then another.
        assert_eq!(get(&changed), refused, "{} changed", pairs[at].0);
        let mut removed = pairs.clone();
        removed.remove(at);
        let (status, code) = get(&removed);
        // Without `sig` it is a request without credentials.
        assert!(matches!(status, 401 | 403 | 404), "{} removed: {status} {code}", pairs[at].0);
        let mut doubled = pairs.clone();
        doubled.push(pairs[at].clone());
        assert_eq!(get(&doubled), refused, "{} doubled", pairs[at].0);
    }
    let mut added = pairs;
    added.push(("si".into(), "policy".into()));
    assert_eq!(get(&added), refused, "si added");
}

#[test]
fn a_right_signature_is_held_to_its_terms() {
    let server = serve();
    let ask = |change: &dyn Fn(&mut QueueSasFields)| {
        let mut fields = queue_fields("r");
        change(&mut fields);
        let token = sign::queue_sas(DEV_ACCOUNT, &key(), &fields).to_string();
        send(&server, "GET", &with_token("orders/messages?peekonly=true", &token), &[], "")
    };
    let frame =
        "<AuthenticationErrorDetail>Signature not valid in the specified time frame: Start [";
    let cases = [
        ("expired", ask(&|f| f.expiry = "2002-01-01".into()), "AuthenticationFailed", frame),
        ("not yet valid", ask(&|f| f.start = "2098-01-01".into()), "AuthenticationFailed", frame),
        ("never valid", ask(&|f| f.start = FAR.into()), "AuthenticationFailed", NEVER),
        ("no expiry", ask(&|f| f.expiry = String::new()), "AuthenticationFailed", "has no expiry"),
        ("order", ask(&|f| f.permissions = "pr".into()), "AuthenticationFailed", "in their order"),
        ("tables' letter", ask(&|f| f.permissions = "rd".into()), "AuthenticationFailed", "order"),
        ("policy", ask(&|f| f.policy_id = "nobody".into()), "AuthenticationFailed", "policy"),
        ("address", ask(&|f| f.ip = "10.1.1.1".into()), "AuthorizationSourceIPMismatch", ""),
        ("transport", ask(&|f| f.protocol = "https".into()), "AuthorizationProtocolMismatch", ""),
    ];
    for (what, response, code, detail) in &cases {
        assert_eq!(answer(response), (403, (*code).to_owned()), "{what}");
        assert!(response.text().contains(detail), "{what}: {}", response.text());
        assert_eq!(response.header("x-ms-version"), Some("2019-02-02"), "{what}");
    }
    for version in ["2012-02-12", "2015-02-21"] {
        let old = ask(&|f| {
            f.version = version.into();
            (f.ip, f.protocol) = (String::new(), String::new());
        });
        assert_eq!(old.status, 200, "{version}: {}", old.text());
    }
    let table = TableSasFields {
        version: "2019-02-02".into(),
        table: "orders".into(),
        permissions: "raud".into(),
        expiry: FAR.into(),
        ..TableSasFields::default()
    };
    let token = sign::table_sas(DEV_ACCOUNT, &key(), &table).to_string();
    let target = with_token("orders/messages?peekonly=true", &token);
    let response = send(&server, "GET", &target, &[], "");
    assert_eq!(answer(&response), (403, "AuthenticationFailed".into()), "one of a table");
}

#[test]
fn a_stored_policy_says_what_the_signature_does_not() {
    let server = serve();
    let mut owner = server.queue_client();
    let set = |owner: &mut rowhouse_testkit::Client, inner: &str| {
        let body = format!("<SignedIdentifiers>{inner}</SignedIdentifiers>");
        assert_eq!(owner.request("PUT", "orders?comp=acl", &[], body.as_bytes()).status, 204);
    };
    let fields = QueueSasFields {
        permissions: String::new(),
        expiry: String::new(),
        start: String::new(),
        policy_id: "one".into(),
        ..queue_fields("")
    };
    let token = sign::queue_sas(DEV_ACCOUNT, &key(), &fields).to_string();
    let ask = |method: &str, path: &str| {
        let body = if method == "POST" { BODY } else { "" };
        answer(&send(&server, method, &with_token(path, &token), &[], body))
    };
    let refused = (403, "AuthenticationFailed".to_owned());
    assert_eq!(ask("GET", "orders/messages"), refused);
    let policy = |letters: &str, expiry: &str| {
        format!(
            "<SignedIdentifier><Id>one</Id><AccessPolicy><Expiry>{expiry}</Expiry><Permission>{letters}</Permission></AccessPolicy></SignedIdentifier>"
        )
    };
    set(&mut owner, &policy("p", FAR));
    assert_eq!(ask("GET", "orders/messages").0, 200);
    assert_eq!(ask("POST", "orders/messages"), (403, "AuthorizationPermissionMismatch".into()));
    assert_eq!(ask("GET", "others/messages"), refused, "of another queue");
    set(&mut owner, &policy("ap", FAR));
    assert_eq!(ask("POST", "orders/messages").0, 201, "at once");
    set(&mut owner, &policy("ap", PAST));
    assert_eq!(ask("POST", "orders/messages"), refused);
    set(&mut owner, "");
    assert_eq!(ask("GET", "orders/messages"), refused, "revoked");
}

/// A request of the key, with its signature.
struct Signed {
    method: &'static str,
    target: String,
    headers: Vec<(String, String)>,
}

fn signed(scheme: Scheme, date: Timestamp, account: &str) -> Signed {
    let date = date.rfc1123();
    let mut headers = vec![
        ("x-ms-date".to_owned(), date),
        ("x-ms-version".to_owned(), "2020-04-08".to_owned()),
        ("Content-Type".to_owned(), "application/xml".to_owned()),
        ("x-ms-meta-a".to_owned(), "b".to_owned()),
    ];
    let authorization = {
        let all: Vec<_> = headers.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        let find = |name: &str| {
            let found = all.iter().find(|(given, _)| given.eq_ignore_ascii_case(name));
            found.map(|(_, value)| *value)
        };
        let request = Request {
            method: "GET",
            account,
            path: &format!("/{account}/orders"),
            query: &[("comp".into(), "metadata".into()), ("timeout".into(), "30".into())],
            header: &find,
            service: Service::Queue { queue: "orders", headers: &all },
        };
        sign::shared_key(&request, scheme, &key()).unwrap()
    };
    headers.push(("Authorization".to_owned(), authorization));
    let target = format!("/{account}/orders?comp=metadata&timeout=30");
    Signed { method: "GET", target, headers }
}

/// What is changed after signing, in words and in fact.
type Change<'a> = (&'a str, &'a dyn Fn(&mut Signed));

fn ask(server: &TestServer, signed: &Signed) -> Response {
    let headers: Vec<_> = signed.headers.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    send(server, signed.method, &signed.target, &headers, "")
}

#[test]
fn every_signed_header_is_signed() {
    let server = serve();
    let now = || SystemClock.now();
    let set = |signed: &mut Signed, name: &str, value: &str| {
        let found = signed.headers.iter_mut().find(|(given, _)| given == name);
        found.unwrap().1 = value.to_owned();
    };
    for scheme in [Scheme::SharedKey, Scheme::SharedKeyLite] {
        let good = signed(scheme, now(), DEV_ACCOUNT);
        assert_eq!(ask(&server, &good).status, 200, "{scheme:?}");
        let changes: [Change<'_>; 7] = [
            ("verb", &|s| s.method = "HEAD"),
            ("type", &|s| set(s, "Content-Type", "text/plain")),
            ("version", &|s| set(s, "x-ms-version", "2020-06-12")),
            ("metadata", &|s| set(s, "x-ms-meta-a", "c")),
            ("another header", &|s| s.headers.push(("x-ms-meta-b".into(), "c".into()))),
            ("path", &|s| s.target = s.target.replace("orders", "others")),
            ("comp", &|s| s.target = s.target.replace("metadata", "acl")),
        ];
        for (what, change) in changes {
            let mut bad = signed(scheme, now(), DEV_ACCOUNT);
            change(&mut bad);
            let response = ask(&server, &bad);
            let code = response.header("x-ms-error-code").unwrap().to_owned();
            assert_eq!((response.status, code.as_str()), (403, "AuthenticationFailed"), "{what}");
            assert_eq!(response.header("x-ms-version"), None, "{what}");
            if bad.method != "HEAD" {
                let text = response.text();
                let start = "</Message><AuthenticationErrorDetail>The MAC signature found in the HTTP request '";
                assert!(text.contains(start), "{what}: {text}");
                assert!(text.contains("Server used following string to sign: 'GET\n"), "{text}");
            }
        }
        // The short form signs no other parameter.
        let mut other = signed(scheme, now(), DEV_ACCOUNT);
        other.target = other.target.replace("timeout=30", "timeout=31");
        let expected = if scheme == Scheme::SharedKey { 403 } else { 200 };
        assert_eq!(ask(&server, &other).status, expected);
    }
}

/// The string to sign is echoed so that a client can compare, not so that anyone gets back all that a URL can hold.
#[test]
fn a_long_string_to_sign_is_cut() {
    let server = serve();
    let detail = |units: usize| {
        let mut bad = signed(Scheme::SharedKey, SystemClock.now(), DEV_ACCOUNT);
        bad.target = format!("{}&x={}", bad.target, "%C3%A9".repeat(units));
        let response = ask(&server, &bad);
        assert_eq!(answer(&response), (403, "AuthenticationFailed".into()));
        let text = response.text();
        let (_, rest) = text.split_once("<AuthenticationErrorDetail>").unwrap();
        rest.split_once("</AuthenticationErrorDetail>").unwrap().0.to_owned()
    };
    let (short, long) = (detail(1000), detail(9000));
    assert!(short.ends_with("é'."), "whole: {short}");
    assert!(short.starts_with("The MAC signature") && long.starts_with("The MAC signature"));
    assert!(
        long.ends_with('é') && (8 * 1024 - 1..=8 * 1024).contains(&long.len()),
        "{}",
        long.len()
    );
}

#[test]
fn clocks_accounts_and_no_credentials() {
    let server = serve();
    let (full, now) = (Scheme::SharedKey, SystemClock.now());
    let at = |seconds: i64| {
        let ticks = i64::try_from(now.ticks()).unwrap() + seconds * 10_000_000;
        Timestamp::from_ticks(u64::try_from(ticks).unwrap()).unwrap()
    };
    for (seconds, status) in [(-880, 200), (880, 200), (-920, 403), (920, 403)] {
        let response = ask(&server, &signed(full, at(seconds), DEV_ACCOUNT));
        assert_eq!(response.status, status, "{seconds}");
        if status == 403 {
            let text = response.text();
            let detail = format!("Request date header too old: '{}'", at(seconds).rfc1123());
            assert!(text.contains(&detail), "{text}");
        }
    }
    // Whoever guesses names of accounts learns nothing.
    let unknown = ask(&server, &signed(full, now, "nobodyatall"));
    let mut known = signed(full, now, DEV_ACCOUNT);
    known.headers[3].1 = "c".to_owned();
    let known = ask(&server, &known);
    let shape = |response: &Response| {
        let names: Vec<_> = response.headers.iter().map(|(name, _)| name.clone()).collect();
        (response.status, response.code(), names, response.text().contains("string to sign"))
    };
    assert_eq!(shape(&unknown), shape(&known));
    let bare = |headers: &[(&str, &str)]| {
        let target = format!("/{DEV_ACCOUNT}/orders?comp=metadata");
        send(&server, "GET", &target, headers, "")
    };
    let nobody = bare(&[("x-ms-version", "2020-12-06")]);
    assert_eq!(answer(&nobody), (401, "NoAuthenticationInformation".into()));
    assert!(nobody.header("www-authenticate").unwrap().starts_with("Bearer "));
    let nobody = bare(&[("x-ms-version", "2019-02-02")]);
    assert_eq!(answer(&nobody), (404, "ResourceNotFound".into()), "as recorded");
    let target = "/nobodyatall/orders?comp=metadata";
    let nowhere = send(&server, "GET", target, &[("x-ms-version", "2019-02-02")], "");
    assert_eq!(shape(&nowhere), shape(&nobody));
    let malformed = bare(&[("Authorization", "SharedKey x")]);
    assert_eq!(answer(&malformed), (400, "InvalidAuthenticationInfo".into()));
    assert_eq!(malformed.header("x-ms-version"), None);
    let mut twice = signed(full, now, DEV_ACCOUNT);
    twice.headers.push(("x-ms-meta-a".into(), "b".into()));
    assert_eq!(answer(&ask(&server, &twice)), (400, "InvalidHeaderValue".into()));
}
