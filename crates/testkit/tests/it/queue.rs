//! Queues and messages from end to end: what clients rely on, over HTTP on the built binary.

use rowhouse_testkit::{Client, Response, TestServer, encode};
use std::collections::HashSet;
use std::sync::Mutex;
use std::thread::sleep;
use std::time::Duration;

fn body(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('\r', "&#xD;");
    format!(
        "<?xml version='1.0' encoding='utf-8'?>\n<QueueMessage><MessageText>{text}</MessageText></QueueMessage>"
    )
}

/// What stands in the first element of that name, with the five entities read.
fn element<'a>(xml: &'a str, name: &str) -> Option<&'a str> {
    let (start, end) = (format!("<{name}>"), format!("</{name}>"));
    let from = xml.find(&start)? + start.len();
    let length = xml[from..].find(&end)?;
    Some(&xml[from..from + length])
}

fn unescape(text: &str) -> String {
    let text = text.replace("&lt;", "<").replace("&gt;", ">").replace("&#xD;", "\r");
    text.replace("&amp;", "&")
}

/// A message as it came.
#[derive(Clone, Debug, Default)]
struct Got {
    id: String,
    receipt: String,
    count: u32,
    text: String,
}

fn got(response: &Response) -> Vec<Got> {
    let xml = response.text();
    let parts = xml.split("<QueueMessage>").skip(1);
    let all = parts.map(|part| Got {
        id: element(part, "MessageId").unwrap_or_default().to_owned(),
        receipt: element(part, "PopReceipt").unwrap_or_default().to_owned(),
        count: element(part, "DequeueCount").map_or(0, |count| count.parse().unwrap()),
        text: unescape(element(part, "MessageText").unwrap_or_default()),
    });
    all.collect()
}

/// A server with a queue `orders`.
fn serve() -> (TestServer, Client) {
    let server = TestServer::start();
    let mut client = server.queue_client();
    assert_eq!(client.request("PUT", "orders", &[], b"").status, 201);
    (server, client)
}

fn put(client: &mut Client, options: &str, text: &str) -> Got {
    let path = format!("orders/messages{options}");
    let response = client.request("POST", &path, &[], body(text).as_bytes());
    assert_eq!(response.status, 201, "{}", response.text());
    got(&response).remove(0)
}

fn take(client: &mut Client, options: &str) -> Vec<Got> {
    let response = client.request("GET", &format!("orders/messages{options}"), &[], b"");
    assert_eq!(response.status, 200, "{}", response.text());
    got(&response)
}

fn target(message: &Got) -> String {
    format!("orders/messages/{}?popreceipt={}", message.id, encode(&message.receipt))
}

fn delete(client: &mut Client, message: &Got) -> (u16, Option<String>) {
    let response = client.request("DELETE", &target(message), &[], b"");
    (response.status, response.code())
}

fn not_found(code: &str) -> (u16, Option<String>) {
    (404, Some(code.to_owned()))
}

#[test]
fn queues_come_and_go() {
    let (_server, mut client) = serve();
    let red = [("x-ms-meta-color", "red"), ("x-ms-meta", "{'val': 'value'}")];
    let answers = [
        ("PUT", "orders", &[][..], 204),
        ("PUT", "orders", &red[..], 409),
        ("PUT", "colors", &red[..], 201),
        ("PUT", "colors", &red[..], 204),
        ("PUT", "colors", &[][..], 409),
        ("DELETE", "orders", &[][..], 204),
        ("DELETE", "orders", &[][..], 404),
        ("PUT", "orders", &[][..], 201),
    ];
    for (method, path, headers, status) in answers {
        let response = client.request(method, path, headers, b"");
        assert_eq!(response.status, status, "{method} {path} {headers:?}: {}", response.text());
        assert!(response.header("etag").is_none() && response.header("cache-control").is_none());
        assert_eq!(response.header("x-ms-version"), Some("2019-02-02"));
        match status {
            409 => assert_eq!(response.code().as_deref(), Some("QueueAlreadyExists")),
            404 => assert_eq!(response.code().as_deref(), Some("QueueNotFound")),
            _ => assert!(response.body.is_empty() && response.code().is_none()),
        }
    }
}

#[test]
fn metadata_and_the_count() {
    let (_server, mut client) = serve();
    for method in ["GET", "HEAD"] {
        let response = client.request(method, "orders?comp=metadata", &[], b"");
        assert_eq!(response.status, 200);
        assert_eq!(response.header("x-ms-approximate-messages-count"), Some("0"));
        assert_eq!(response.header("cache-control"), Some("no-cache"));
        assert_eq!(response.header("content-length"), Some("0"));
    }
    let meta = [("x-ms-meta-color", "red"), ("x-ms-meta-empty", "")];
    assert_eq!(client.request("PUT", "orders?comp=metadata", &meta, b"").status, 204);
    put(&mut client, "", "visible");
    put(&mut client, "?visibilitytimeout=100", "hidden");
    let response = client.request("GET", "orders?comp=metadata", &[], b"");
    assert_eq!(response.header("x-ms-meta-color"), Some("red"));
    assert_eq!(response.header("x-ms-meta-empty"), Some(""));
    assert_eq!(response.header("x-ms-approximate-messages-count"), Some("2"));
    assert_eq!(client.request("PUT", "orders?comp=metadata", &[], b"").status, 204);
    let response = client.request("GET", "orders?comp=metadata", &[], b"");
    assert_eq!(response.header("x-ms-meta-color"), None);
    for method in ["GET", "HEAD", "PUT"] {
        let response = client.request(method, "missing?comp=metadata", &[], b"");
        assert_eq!(
            (response.status, response.header("x-ms-error-code")),
            (404, Some("QueueNotFound"))
        );
        assert_eq!(method == "HEAD", response.body.is_empty());
    }
}

#[test]
fn texts_come_back_as_they_were() {
    let (_server, mut client) = serve();
    let wide = "\u{1F600}".repeat(16 * 1024);
    let long = "x".repeat(64 * 1024);
    let texts = ["", " \t\n ", "<&>\"'", "a\r\nb\rc", "&lt;message1&gt;", "größe", &wide, &long];
    for text in texts {
        let sent = put(&mut client, "", text);
        let peeked = take(&mut client, "?peekonly=true");
        assert_eq!((peeked[0].text.as_str(), peeked[0].count), (text, 0));
        assert!(peeked[0].receipt.is_empty());
        let taken = take(&mut client, "").remove(0);
        assert_eq!((taken.text.as_str(), taken.count, &taken.id), (text, 1, &sent.id));
        assert_eq!(delete(&mut client, &taken).0, 204);
    }
    let empty = client.request("GET", "orders/messages", &[], b"");
    assert!(empty.text().ends_with("<QueueMessagesList />"), "{}", empty.text());
    assert_eq!(empty.header("content-type"), Some("application/xml"));
    assert_eq!(empty.header("cache-control"), Some("no-cache"));
}

#[test]
fn a_message_is_hidden_and_comes_back() {
    let (_server, mut client) = serve();
    put(&mut client, "?visibilitytimeout=1", "late");
    assert!(take(&mut client, "").is_empty());
    sleep(Duration::from_millis(1100));
    let first = take(&mut client, "?visibilitytimeout=1").remove(0);
    assert!(take(&mut client, "").is_empty());
    sleep(Duration::from_millis(1100));
    let second = take(&mut client, "").remove(0);
    assert_eq!((second.id.as_str(), second.count), (first.id.as_str(), 2));
    assert_eq!(delete(&mut client, &first), not_found("MessageNotFound"), "a stale receipt");
    assert_eq!(delete(&mut client, &second).0, 204);
    assert_eq!(delete(&mut client, &second), not_found("MessageNotFound"));
}

#[test]
fn whoever_puts_a_message_may_change_it() {
    let (_server, mut client) = serve();
    let sent = put(&mut client, "?visibilitytimeout=100", "first");
    let path = format!("{}&visibilitytimeout=0", target(&sent));
    let updated = client.request("PUT", &path, &[], body("second").as_bytes());
    assert_eq!(updated.status, 204, "{}", updated.text());
    assert!(updated.header("x-ms-time-next-visible").unwrap().ends_with(" GMT"));
    assert_eq!(delete(&mut client, &sent), not_found("MessageNotFound"), "the old receipt is dead");
    let receipt = updated.header("x-ms-popreceipt").unwrap().to_owned();
    let now = Got { receipt, ..sent };
    assert_eq!(take(&mut client, "?peekonly=true")[0].text, "second");
    // Without a body only the visibility moves.
    let kept = client.request("PUT", &format!("{}&visibilitytimeout=1", target(&now)), &[], b"");
    assert_eq!(kept.status, 204);
    assert!(take(&mut client, "?peekonly=true").is_empty());
    let receipt = kept.header("x-ms-popreceipt").unwrap().to_owned();
    let now = Got { receipt, ..now };
    let emptied = format!("{}&visibilitytimeout=0", target(&now));
    let answer = client.request("PUT", &emptied, &[], body("").as_bytes());
    assert_eq!(answer.status, 204);
    let taken = take(&mut client, "").remove(0);
    assert_eq!((taken.text.as_str(), taken.count), ("", 1), "an empty text is a text");
    let receipt = answer.header("x-ms-popreceipt").unwrap().to_owned();
    assert_eq!(delete(&mut client, &Got { receipt, ..now }), not_found("MessageNotFound"));
}

#[test]
fn messages_expire_or_never() {
    let (_server, mut client) = serve();
    let gone = put(&mut client, "?messagettl=1", "short");
    let taken = take(&mut client, "?visibilitytimeout=60").remove(0);
    assert_eq!(taken.id, gone.id);
    sleep(Duration::from_millis(1100));
    assert_eq!(delete(&mut client, &taken), not_found("MessageNotFound"), "gone while hidden");
    let response =
        client.request("POST", "orders/messages?messagettl=-1", &[], body("ever").as_bytes());
    let expires = response.text();
    assert_eq!(element(&expires, "ExpirationTime"), Some("Fri, 31 Dec 9999 23:59:59 GMT"));
    assert_eq!(take(&mut client, "").remove(0).text, "ever");
}

/// Clients must pair receipts with ids: one Get has one for all, the next Get another.
#[test]
fn messages_taken_together_share_a_receipt() {
    let (_server, mut client) = serve();
    for text in ["a", "b", "c"] {
        put(&mut client, "", text);
    }
    let (two, one) = (take(&mut client, "?numofmessages=2"), take(&mut client, ""));
    assert_eq!((two.len(), one.len()), (2, 1));
    assert_eq!(two[0].receipt, two[1].receipt);
    assert_ne!(two[0].receipt, one[0].receipt);
    let crossed = Got { receipt: one[0].receipt.clone(), ..two[0].clone() };
    assert_eq!(delete(&mut client, &crossed), not_found("MessageNotFound"));
    assert_eq!(delete(&mut client, &two[0]).0, 204);
    assert_eq!(delete(&mut client, &two[1]).0, 204, "the other is not gone with it");
}

/// Options are named in any case, as signatures have them.
#[test]
fn names_of_options_have_no_case() {
    let (_server, mut client) = serve();
    put(&mut client, "?MessageTtl=60", "x");
    for _ in 0..2 {
        assert_eq!(take(&mut client, "?PeekOnly=true&NumOfMessages=2").len(), 1, "not hidden");
    }
    let code = |client: &mut Client, method: &str, path: &str| {
        let response = client.request(method, path, &[], b"");
        (response.status, response.header("x-ms-error-code").map(str::to_owned))
    };
    assert_eq!(code(&mut client, "GET", "orders?COMP=metadata"), (200, None));
    assert_eq!(code(&mut client, "GET", "orders?Comp=acl"), (200, None));
    assert_eq!(code(&mut client, "GET", "?Comp=list"), (200, None));
    assert_eq!(code(&mut client, "GET", "?Comp=properties&ResType=service"), (200, None));
    let invalid = (400, Some("InvalidQueryParameterValue".to_owned()));
    assert_eq!(code(&mut client, "DELETE", "orders?Comp=none"), invalid, "no plain delete");
    assert_eq!(code(&mut client, "DELETE", "orders/messages?PopReceipt=AAAA"), invalid);
    assert_eq!(take(&mut client, "?peekOnly=True").len(), 1, "all is there");
}

#[test]
fn clearing_leaves_nothing() {
    let (_server, mut client) = serve();
    let sent = put(&mut client, "?visibilitytimeout=100", "hidden");
    put(&mut client, "", "visible");
    assert_eq!(client.request("DELETE", "orders/messages", &[], b"").status, 204);
    assert!(take(&mut client, "?peekonly=TRUE&numofmessages=32").is_empty());
    assert_eq!(delete(&mut client, &sent), not_found("MessageNotFound"));
    let count = client.request("GET", "orders?comp=metadata", &[], b"");
    assert_eq!(count.header("x-ms-approximate-messages-count"), Some("0"));
}

#[test]
fn every_message_is_taken_once() {
    const MESSAGES: usize = 1000;
    let (server, mut client) = serve();
    for number in 0..MESSAGES {
        put(&mut client, "", &number.to_string());
    }
    let seen = Mutex::new(HashSet::new());
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                let mut client = server.queue_client();
                loop {
                    let taken = take(&mut client, "?numofmessages=7&visibilitytimeout=600");
                    if taken.is_empty() {
                        break;
                    }
                    for message in taken {
                        assert_eq!(delete(&mut client, &message).0, 204);
                        assert!(seen.lock().unwrap().insert(message.text), "{}", message.id);
                    }
                }
            });
        }
    });
    assert_eq!(seen.lock().unwrap().len(), MESSAGES);
}

#[test]
fn lists_with_prefixes_and_markers() {
    let (_server, mut client) = serve();
    let red = [("x-ms-meta-color", "red")];
    for (name, headers) in [("list2", &[][..]), ("list0", &red[..]), ("list1", &[][..])] {
        assert_eq!(client.request("PUT", name, headers, b"").status, 201);
    }
    let mut names = Vec::new();
    let mut marker = String::new();
    loop {
        let path = format!("?comp=list&prefix=list&maxresults=1&include=metadata{marker}");
        let response = client.request("GET", &path, &[], b"");
        assert_eq!(response.status, 200, "{}", response.text());
        assert_eq!(response.header("cache-control"), Some("no-cache"));
        let xml = response.text();
        assert!(xml.contains("/devstoreaccount1/\"><Prefix>list</Prefix>"), "{xml}");
        let name = element(&xml, "Name").unwrap().to_owned();
        let metadata = if name == "list0" {
            "<Metadata><color>red</color></Metadata>"
        } else {
            "<Metadata />"
        };
        assert!(xml.contains(metadata), "{xml}");
        names.push(name);
        match element(&xml, "NextMarker") {
            Some(next) => marker = format!("&marker={}", encode(next)),
            None => break,
        }
        assert!(names.len() < 9);
    }
    assert_eq!(names, ["list0", "list1", "list2"]);
    let all = client.request("GET", "?comp=list", &[], b"").text();
    assert!(all.contains("<Queue><Name>orders</Name></Queue></Queues><NextMarker />"), "{all}");
    assert!(!all.contains("<Prefix") && !all.contains("<Marker") && !all.contains("<Max"), "{all}");
    let many = client.request("GET", "?comp=list&maxresults=6000&prefix=zzz", &[], b"").text();
    assert!(many.contains("<MaxResults>5000</MaxResults><Queues />"), "{many}");
}

#[test]
fn policies_come_back_in_normal_form() {
    let (_server, mut client) = serve();
    let none = client.request("GET", "orders?comp=acl", &[], b"");
    assert!(none.text().ends_with("<SignedIdentifiers />"), "{}", none.text());
    let policy = "<SignedIdentifiers><SignedIdentifier><Id>one</Id><AccessPolicy><Start>2011-10-11</Start><Permission>par</Permission></AccessPolicy></SignedIdentifier></SignedIdentifiers>";
    let sent = policy.replace("<Start>", "<Unknown><Id>two</Id></Unknown><Start>");
    assert_eq!(client.request("PUT", "orders?comp=acl", &[], sent.as_bytes()).status, 204);
    let read = client.request("GET", "orders?comp=acl", &[], b"").text();
    let normal = policy.replace("2011-10-11", "2011-10-11T00:00:00.0000000Z");
    assert!(read.ends_with(&normal), "{read}");
    assert_eq!(client.request("PUT", "orders?comp=acl", &[], b"").status, 204);
    let none = client.request("GET", "orders?comp=acl", &[], b"");
    assert!(none.text().ends_with("<SignedIdentifiers />"), "{}", none.text());
}

#[test]
fn settings_are_those_of_queues() {
    let (server, mut client) = serve();
    let path = "?restype=service&comp=properties";
    let update = "<StorageServiceProperties><Logging><Version>1.0</Version><Read>True</Read><Write>False</Write><Delete>true</Delete><RetentionPolicy><Enabled>False</Enabled></RetentionPolicy></Logging><Cors><CorsRule><AllowedOrigins>http://a.example</AllowedOrigins><AllowedMethods>GET</AllowedMethods><AllowedHeaders>*</AllowedHeaders><ExposedHeaders>x-ms-*</ExposedHeaders><MaxAgeInSeconds>5</MaxAgeInSeconds></CorsRule></Cors></StorageServiceProperties>";
    let set = client.request("PUT", path, &[], update.as_bytes());
    assert_eq!(set.status, 202, "{}", set.text());
    let read = client.request("GET", path, &[], b"").text();
    assert!(read.contains("<Read>true</Read><Write>false</Write><Delete>true</Delete>"), "{read}");
    let tables = server.client().request("GET", path, &[], b"").text();
    assert!(tables.contains("<Read>false</Read>") && tables.contains("<Cors />"), "{tables}");
    let origin = [("Origin", "http://a.example")];
    let actual = client.request("GET", "orders/messages?peekonly=true", &origin, b"");
    assert_eq!(actual.header("access-control-allow-origin"), Some("http://a.example"));
    assert!(actual.header("access-control-expose-headers").unwrap().contains("x-ms-version"));
    let any = update.replace("http://a.example", "*").replace("x-ms-*", "*");
    assert_eq!(client.request("PUT", path, &[], any.as_bytes()).status, 202);
    for target in ["orders/messages?peekonly=true", "orders?comp=metadata", "missing/messages"] {
        let exposed = client.request("GET", target, &origin, b"");
        let exposed = exposed.header("access-control-expose-headers").unwrap().to_owned();
        let mut names: Vec<_> = exposed.split(',').collect();
        for name in ["x-ms-request-id", "server", "content-length", "date", "transfer-encoding"] {
            assert!(names.contains(&name), "{target}: {exposed}");
        }
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{target}: {exposed}");
    }
    assert_eq!(client.request("PUT", path, &[], update.as_bytes()).status, 202);
    let failed = client.request("GET", "missing/messages", &origin, b"");
    assert_eq!(failed.header("access-control-allow-origin"), Some("http://a.example"));
    let ask = [("Origin", "http://a.example"), ("Access-Control-Request-Method", "GET")];
    assert_eq!(client.request("OPTIONS", "orders", &ask, b"").status, 200);
    let ask = [("Origin", "http://b.example"), ("Access-Control-Request-Method", "GET")];
    assert_eq!(client.request("OPTIONS", "orders", &ask, b"").status, 403);
}

#[test]
fn the_secondary_is_for_reading() {
    let (server, mut client) = serve();
    put(&mut client, "", "text");
    let mut copy = server.queue_client().at_secondary();
    let message = "orders/messages/x?popreceipt=AAAA";
    for (method, path) in [
        ("PUT", "other"),
        ("DELETE", "orders"),
        ("PUT", "orders?comp=metadata"),
        ("PUT", "orders?comp=acl"),
        ("POST", "orders/messages"),
        ("GET", "orders/messages"),
        ("DELETE", "orders/messages"),
        ("DELETE", message),
        ("PUT", "?restype=service&comp=properties"),
    ] {
        let response = copy.request(method, path, &[], b"");
        let answer = (response.status, response.code());
        let expected = Some("InsufficientAccountPermissions".to_owned());
        assert_eq!(answer, (403, expected), "{method} {path}");
    }
    for path in [
        "?comp=list",
        "orders?comp=metadata",
        "orders?comp=acl",
        "orders/messages?peekonly=true",
        "?restype=service&comp=properties",
        "?restype=service&comp=stats",
    ] {
        let response = copy.request("GET", path, &[], b"");
        assert_eq!(response.status, 200, "{path}: {}", response.text());
    }
    let stats = copy.request("GET", "?restype=service&comp=stats", &[], b"").text();
    assert!(stats.contains("<Status>live</Status><LastSyncTime>"), "{stats}");
    let primary = client.request("GET", "?restype=service&comp=stats", &[], b"");
    assert_eq!(primary.code().as_deref(), Some("InvalidQueryParameterValue"));
}

#[test]
fn older_versions_are_answered_as_they_were() {
    let (_server, mut client) = serve();
    let put_as = |client: &mut Client, version: &str, options: &str, text: &str| {
        let path = format!("orders/messages{options}");
        client.request("POST", &path, &[("x-ms-version", version)], body(text).as_bytes())
    };
    let old = put_as(&mut client, "2015-12-11", "", "x");
    assert_eq!((old.status, old.body.len()), (201, 0));
    assert_eq!(old.header("x-ms-version"), Some("2015-12-11"));
    let new = put_as(&mut client, "2026-10-06", "?messagettl=604801", "x");
    assert_eq!(new.status, 201);
    assert_eq!(new.header("x-ms-version"), Some("2026-10-06"));
    let long = put_as(&mut client, "2017-04-17", "?messagettl=604801", "x");
    assert!(long.text().contains("<Code>OutOfRangeQueryParameterValue</Code>"), "{}", long.text());
    assert_eq!(long.header("x-ms-error-code"), None, "not before 2017-07-29");
    let large = put_as(&mut client, "2009-09-19", "", &"x".repeat(8193));
    assert!(large.text().contains("<MaxLimit>8192</MaxLimit>"), "{}", large.text());
    assert_eq!(put_as(&mut client, "2009-09-19", "", &"x".repeat(8192)).status, 201);
}

/// What was put and answered is there after a crash, and what was deleted is not.
#[test]
fn messages_survive_a_crash() {
    let (mut server, mut client) = serve();
    let kept: Vec<_> = (0..20).map(|n| put(&mut client, "", &n.to_string())).collect();
    let taken = take(&mut client, "?visibilitytimeout=600").remove(0);
    assert_eq!(delete(&mut client, &kept[1]).0, 204);
    server.kill();
    server.restart();
    let mut client = server.queue_client();
    let texts: Vec<_> =
        take(&mut client, "?numofmessages=32").into_iter().map(|m| m.text).collect();
    let expected: Vec<_> = (2..20).map(|n: u32| n.to_string()).collect();
    assert_eq!(texts, expected, "one is taken and one is gone");
    assert_eq!(delete(&mut client, &taken).0, 204, "its receipt is still good");
}
