//! Every rule of the Queue service that a request can break, one row each: status, code, and the elements that say what was
//! wrong. Afterwards the server serves as before.

use rowhouse_testkit::{Client, Connection, Response, TestServer, encode};
use rowhouse_types::limits;

const GUID: &str = "917274f0-d51e-4768-9892-e6fdb9663621";
/// Base64 that nobody was given.
const RECEIPT: &str = "AgAAAAMAAAAAAAAAdUgTn0do1QE=";

fn serve() -> (TestServer, Client) {
    let server = TestServer::start();
    let mut client = server.queue_client();
    assert_eq!(client.request("PUT", "orders", &[], b"").status, 201);
    (server, client)
}

fn message(text: &str) -> String {
    format!("<QueueMessage><MessageText>{text}</MessageText></QueueMessage>")
}

/// The elements after the message.
fn details(response: &Response) -> String {
    let text = response.text();
    let end = text.find("</Message>").map_or(0, |at| at + "</Message>".len());
    text[end..].trim_end_matches("</Error>").to_owned()
}

struct Case<'a> {
    method: &'a str,
    path: &'a str,
    headers: &'a [(&'a str, &'a str)],
    body: &'a str,
    status: u16,
    code: &'a str,
    details: &'a str,
}

impl Case<'_> {
    fn check(&self, client: &mut Client) {
        let Self { method, path, headers, body, status, code, details: expected } = self;
        let what = format!("{method} {path:.80} {headers:.80?} {body:.80?}");
        let response = client.request(method, path, headers, body.as_bytes());
        assert_eq!(response.status, *status, "{what}: {}", response.text());
        assert_eq!(response.header("x-ms-error-code"), Some(*code), "{what}: {}", response.text());
        assert_eq!(response.header("content-type"), Some("application/xml"), "{what}");
        assert_eq!(response.header("cache-control"), None, "{what}");
        assert_eq!(response.header("x-ms-version"), Some("2019-02-02"), "{what}");
        let text = response.text();
        let start = format!(
            "<?xml version=\"1.0\" encoding=\"utf-8\"?><Error><Code>{code}</Code><Message>"
        );
        assert!(text.starts_with(&start) && text.ends_with("</Error>"), "{what}: {text}");
        let id = response.header("x-ms-request-id").unwrap();
        assert!(text.contains(&format!("\nRequestId:{id}\nTime:2")), "{what}: {text}");
        assert_eq!(details(&response), *expected, "{what}");
    }
}

fn parameter(name: &str, value: &str, reason: &str) -> String {
    let element = |tag: &str, text: &str| match text {
        "" => format!("<{tag} />"),
        text => format!("<{tag}>{text}</{tag}>"),
    };
    element("QueryParameterName", name)
        + &element("QueryParameterValue", value)
        + &element("Reason", reason)
}

fn range(name: &str, value: &str, min: u64, max: u64) -> String {
    format!(
        "<QueryParameterName>{name}</QueryParameterName><QueryParameterValue>{value}</QueryParameterValue><MinimumAllowed>{min}</MinimumAllowed><MaximumAllowed>{max}</MaximumAllowed>"
    )
}

#[test]
fn names_and_paths() {
    let (_server, mut client) = serve();
    let (long, longest) = ("a".repeat(64), "a".repeat(63));
    let name = "InvalidResourceName";
    for (path, code) in [
        ("ab", "OutOfRangeInput"),
        (long.as_str(), "OutOfRangeInput"),
        ("Orders", name),
        ("or_ders", name),
        ("-orders", name),
        ("orders-", name),
        ("or--ders", name),
        ("or%7Cders", name),
        ("or%20ders", name),
        ("or%2Fders", name),
        ("schl%C3%A4nge", name),
        ("$logs", name),
    ] {
        let case =
            Case { method: "PUT", path, headers: &[], body: "", status: 400, code, details: "" };
        case.check(&mut client);
        // The name comes before options and the body.
        let path = format!("{path}/messages?visibilitytimeout=x");
        Case { method: "POST", path: &path, body: "no xml", ..case }.check(&mut client);
    }
    let text = client.request("PUT", "Orders", &[], b"").text();
    assert!(text.contains("The specifed resource name contains invalid characters."), "{text}");
    for path in [longest.as_str(), "abc", "0-9", "a-b-c"] {
        assert_eq!(client.request("PUT", path, &[], b"").status, 201, "{path}");
    }
    let nowhere = Case {
        method: "GET",
        path: "orders/other",
        headers: &[],
        body: "",
        status: 400,
        code: "InvalidUri",
        details: "",
    };
    for path in ["orders/other", "orders/messages/a/b", "orders/Messages"] {
        Case { path, ..nowhere }.check(&mut client);
    }
    for path in ["orders////x", "orders/messages/a//x", "orders/messages//a"] {
        Case { method: "DELETE", path, ..nowhere }.check(&mut client);
    }
    for path in ["orders?comp=%zz", "orders?comp=%FF", "or%zzders", "%FF"] {
        let code = "InvalidQueryParameterValue";
        Case { path, code, ..nowhere }.check(&mut client);
    }
    let parameters = "&x=1".repeat(limits::QUERY_PARAMETERS_MAX);
    let path = &format!("orders?comp=metadata{parameters}");
    Case { path, code: "InvalidQueryParameterValue", ..nowhere }.check(&mut client);
    for (method, path, value) in [
        ("GET", "orders", ""),
        ("HEAD", "orders", ""),
        ("GET", "orders?comp=none", "none"),
        ("DELETE", "orders?comp=none", "none"),
        ("GET", "", ""),
        ("GET", "?comp=properties", "properties"),
        ("GET", "?comp=none&restype=service", "none"),
    ] {
        let details = parameter("comp", value, "");
        let (details, code) = (details.as_str(), "InvalidQueryParameterValue");
        if method == "HEAD" {
            assert_eq!(client.request(method, path, &[], b"").status, 400);
        } else {
            Case { method, path, code, details, ..nowhere }.check(&mut client);
        }
    }
    for (method, path) in [
        ("POST", "orders"),
        ("PATCH", "orders?comp=metadata"),
        ("DELETE", "orders?comp=acl"),
        ("PUT", "orders/messages"),
        ("POST", "orders/messages/x"),
        ("GET", "orders/messages/x"),
        ("POST", "?comp=list"),
        ("DELETE", "?comp=properties&restype=service"),
        ("PUT", "?comp=stats&restype=service"),
    ] {
        Case { method, path, status: 405, code: "UnsupportedHttpVerb", ..nowhere }
            .check(&mut client);
    }
}

#[test]
fn options_of_messages() {
    let (_server, mut client) = serve();
    let body = message("x");
    let (number, week) = ("Not a number", 604_800);
    let get = |options: &str| ("GET", format!("orders/messages?{options}"));
    let put = |options: &str| ("POST", format!("orders/messages?{options}"));
    let update = |options: &str| ("PUT", format!("orders/messages/{GUID}?{options}"));
    let delete = |options: &str| ("DELETE", format!("orders/messages/{GUID}?{options}"));
    let receipt = encode(RECEIPT);
    let received = |options: &str| update(&format!("popreceipt={receipt}{options}"));
    let both = "messagettl must be greater than visibilitytimeout";
    let ttl = "messagettl must be -1 or greater than 0";
    let invalid = "InvalidQueryParameterValue";
    let beyond = "OutOfRangeQueryParameterValue";
    let missing = "MissingRequiredQueryParameter";
    let named = |name: &str| format!("<QueryParameterName>{name}</QueryParameterName>");
    let twice = "The parameter is given more than once";
    let (visibility, life) = ("visibilitytimeout", "messagettl");
    let (huge, less) = ("99999999999999999999", "-99999999999999999999");
    let cases = [
        (get("numofmessages=0"), beyond, range("numofmessages", "0", 1, 32)),
        (get("numofmessages=33"), beyond, range("numofmessages", "33", 1, 32)),
        (get("numofmessages=-1"), beyond, range("numofmessages", "-1", 1, 32)),
        (get("numofmessages=x"), invalid, parameter("numofmessages", "x", number)),
        (get("numofmessages="), invalid, parameter("numofmessages", "", number)),
        (get("numofmessages=1&numofmessages=2"), invalid, parameter("numofmessages", "2", twice)),
        (get("visibilitytimeout=0"), beyond, range(visibility, "0", 1, week)),
        (get("visibilitytimeout=604801"), beyond, range(visibility, "604801", 1, week)),
        (get("visibilitytimeout=1.5"), invalid, parameter(visibility, "1.5", number)),
        (get("visibilitytimeout=%2B1"), invalid, parameter(visibility, "+1", number)),
        (get(&format!("numofmessages={huge}")), beyond, range("numofmessages", huge, 1, 32)),
        (get(&format!("numofmessages=-{huge}")), beyond, range("numofmessages", less, 1, 32)),
        (get(&format!("visibilitytimeout={huge}")), beyond, range(visibility, huge, 1, week)),
        (put(&format!("visibilitytimeout={huge}")), beyond, range(visibility, huge, 0, week)),
        (put(&format!("messagettl={huge}")), invalid, parameter(life, huge, ttl)),
        (get("peekonly=maybe"), invalid, parameter("peekonly", "maybe", "")),
        (get("peekonly=true&numofmessages=33"), beyond, range("numofmessages", "33", 1, 32)),
        (put("visibilitytimeout=-1"), beyond, range(visibility, "-1", 0, week)),
        (put("visibilitytimeout=604801"), beyond, range(visibility, "604801", 0, week)),
        (put("visibilitytimeout=x"), invalid, parameter(visibility, "x", number)),
        (put("messagettl=0"), invalid, parameter(life, "0", ttl)),
        (put("messagettl=-2"), invalid, parameter(life, "-2", ttl)),
        (put("messagettl=2147483648"), invalid, parameter(life, "2147483648", ttl)),
        (put("messagettl=x"), invalid, parameter(life, "x", number)),
        (put("messagettl=5&visibilitytimeout=5"), invalid, parameter(visibility, "5", both)),
        (put("messagettl=5&visibilitytimeout=6"), invalid, parameter(visibility, "6", both)),
        (update("visibilitytimeout=0"), missing, named("popreceipt")),
        (received(""), missing, named(visibility)),
        (received("&visibilitytimeout=-1"), beyond, range(visibility, "-1", 0, week)),
        (received("&visibilitytimeout=604801"), beyond, range(visibility, "604801", 0, week)),
        (delete(""), missing, named("popreceipt")),
        (
            delete("popreceipt=invalid"),
            invalid,
            parameter("popreceipt", "invalid", "Invalid pop receipt format"),
        ),
        (
            ("DELETE", "orders/messages?popreceipt=AAAA".to_owned()),
            invalid,
            parameter("popreceipt", "AAAA", "The receipt comes without a message"),
        ),
        (
            ("DELETE", "orders/messages/?popreceipt=".to_owned()),
            invalid,
            parameter("popreceipt", "", "The receipt comes without a message"),
        ),
        (
            update("popreceipt=&visibilitytimeout=0"),
            invalid,
            parameter("popreceipt", "", "Invalid pop receipt format"),
        ),
    ];
    for ((method, path), code, details) in &cases {
        let case = Case { method, path, headers: &[], body: "", status: 400, code, details };
        case.check(&mut client);
        // Options come before the body and the queue.
        let elsewhere = path.replacen("orders", "missing", 1);
        Case { path: &elsewhere, body: "no xml", ..case }.check(&mut client);
    }
    for options in [
        "visibilitytimeout=604800",
        "messagettl=1",
        "messagettl=2147483647",
        "messagettl=-1&visibilitytimeout=604800",
        "messagettl=6&visibilitytimeout=5",
        "timeout=30&unknown=1",
    ] {
        let (_, path) = put(options);
        let response = client.request("POST", &path, &[], body.as_bytes());
        assert_eq!(response.status, 201, "{options}: {}", response.text());
    }
    for options in ["visibilitytimeout=604800&numofmessages=32", "peekonly=True", "peekonly=false"]
    {
        let response = client.request("GET", &get(options).1, &[], b"");
        assert_eq!(response.status, 200, "{options}: {}", response.text());
    }
}

#[test]
fn who_is_not_there() {
    let (_server, mut client) = serve();
    let receipt = encode(RECEIPT);
    let body = message("x");
    let queue = ("QueueNotFound", "The specified queue does not exist.");
    let gone = ("MessageNotFound", "The specified message does not exist.");
    for (method, path, body, (code, sentence)) in [
        ("DELETE", "missing".to_owned(), "", queue),
        ("GET", "missing?comp=metadata".into(), "", queue),
        ("PUT", "missing?comp=metadata".into(), "", queue),
        ("GET", "missing?comp=acl".into(), "", queue),
        ("PUT", "missing?comp=acl".into(), "", queue),
        ("POST", "missing/messages".into(), body.as_str(), queue),
        ("GET", "missing/messages".into(), "", queue),
        ("GET", "missing/messages?peekonly=true".into(), "", queue),
        ("DELETE", "missing/messages".into(), "", queue),
        ("DELETE", format!("missing/messages/{GUID}?popreceipt={receipt}"), "", queue),
        ("DELETE", format!("missing/messages/x?popreceipt={receipt}"), "", queue),
        ("PUT", format!("missing/messages/x?popreceipt={receipt}&visibilitytimeout=0"), "", queue),
        ("DELETE", format!("orders/messages/{GUID}?popreceipt={receipt}"), "", gone),
        ("DELETE", format!("orders/messages/x?popreceipt={receipt}"), "", gone),
        ("PUT", format!("orders/messages/x?popreceipt={receipt}&visibilitytimeout=0"), "", gone),
        ("PUT", format!("orders/messages/{GUID}?popreceipt=AAAA&visibilitytimeout=0"), "", gone),
    ] {
        Case { method, path: &path, headers: &[], body, status: 404, code, details: "" }
            .check(&mut client);
        let text = client.request(method, &path, &[], body.as_bytes()).text();
        assert!(text.contains(sentence), "{text}");
    }
}

#[test]
fn bodies_of_messages() {
    let (_server, mut client) = serve();
    let sent = client.request("POST", "orders/messages", &[], message("x").as_bytes()).text();
    let element = |name: &str| {
        let from = sent.find(&format!("<{name}>")).unwrap() + name.len() + 2;
        sent[from..].split('<').next().unwrap().to_owned()
    };
    let (id, receipt) = (element("MessageId"), encode(&element("PopReceipt")));
    let update = format!("orders/messages/{id}?popreceipt={receipt}&visibilitytimeout=0");
    let place = |line: usize, position: usize, reason: &str| {
        let reason = match reason {
            "" => "<Reason />".to_owned(),
            reason => format!("<Reason>{reason}</Reason>"),
        };
        format!("<LineNumber>{line}</LineNumber><LinePosition>{position}</LinePosition>{reason}")
    };
    let parsing = "Error parsing Xml content";
    let python = |text: &str| format!("<?xml version='1.0' encoding='utf-8'?>\n{}", message(text));
    let cases = [
        (python("a\u{1}b"), place(2, 29, parsing)),
        (python("\u{1}"), place(2, 28, parsing)),
        (python("&#1;"), place(2, 28, parsing)),
        (python("\u{FFFE}"), place(2, 28, parsing)),
        (python("&nothing;"), place(2, 28, parsing)),
        ("<QueueMessage></QueueMessage>".into(), place(0, 0, "")),
        ("<QueueMessage><Text>x</Text></QueueMessage>".into(), place(0, 0, "")),
        ("<Other><MessageText>x</MessageText></Other>".into(), place(0, 0, "")),
        ("<!DOCTYPE a><QueueMessage/>".into(), place(1, 1, parsing)),
    ];
    let put = ("POST", "orders/messages");
    for (method, path) in [put, ("PUT", update.as_str())] {
        for (body, details) in &cases {
            let (status, code) = (400, "InvalidXmlDocument");
            Case { method, path, headers: &[], body, status, code, details }.check(&mut client);
        }
        let large = message(&"x".repeat(65_537));
        let huge = message(&"&lt;".repeat(300_000));
        let wide = message(&"\u{1F600}".repeat(16 * 1024 + 1));
        for body in [&large, &huge, &wide] {
            let (status, code) = (413, "RequestBodyTooLarge");
            let details = "<MaxLimit>65536</MaxLimit>";
            Case { method, path, headers: &[], body, status, code, details }.check(&mut client);
        }
    }
    let nothing = Case {
        method: "POST",
        path: "orders/messages",
        headers: &[],
        body: "",
        status: 400,
        code: "InvalidXmlDocument",
        details: &place(0, 0, ""),
    };
    nothing.check(&mut client);
    // The body comes before the queue.
    Case { path: "missing/messages", ..nothing }.check(&mut client);
    // As large as it may be, with every character escaped.
    let escaped = message(&"&quot;".repeat(65_536));
    let response = client.request("POST", "orders/messages", &[], escaped.as_bytes());
    assert_eq!(response.status, 201, "{}", response.text());
}

#[test]
fn metadata() {
    let (_server, mut client) = serve();
    let most = "v".repeat(8 * 1024 - 1);
    let invalid = "InvalidMetadata";
    let cases: [(&[(&str, &str)], &str); 6] = [
        (&[("x-ms-meta-1a", "x")], invalid),
        (&[("x-ms-meta-a-b", "x")], invalid),
        (&[("x-ms-meta-a.b", "x")], invalid),
        (&[("x-ms-meta-", "x")], "EmptyMetadataKey"),
        (&[("x-ms-meta-a", &most), ("x-ms-meta-b", "")], "MetadataTooLarge"),
        (&[("x-ms-meta-ab", &most)], "MetadataTooLarge"),
    ];
    for (headers, code) in cases {
        for path in ["colors", "orders?comp=metadata", "missing?comp=metadata"] {
            let details = match code {
                "EmptyMetadataKey" => "<MetadataValue>x</MetadataValue>",
                _ => "",
            };
            Case { method: "PUT", path, headers, body: "", status: 400, code, details }
                .check(&mut client);
        }
    }
    let response = client.request("PUT", "colors", &[("x-ms-meta-a", &most)], b"");
    assert_eq!(response.status, 201, "{}", response.text());
    // As many pairs as fit: each has the shortest name that is left, and no value.
    let (first, rest) = ("abcdefghijklmnopqrstuvwxyz_", "abcdefghijklmnopqrstuvwxyz_0123456789");
    let mut names: Vec<String> = first.chars().map(String::from).collect();
    for at in 0.. {
        let longer: Vec<_> = rest.chars().map(|c| format!("{}{c}", names[at])).collect();
        names.extend(longer);
        if 8 * 1024 < names.iter().map(String::len).sum::<usize>() {
            break;
        }
    }
    while 8 * 1024 < names.iter().map(String::len).sum::<usize>() {
        names.pop();
    }
    let headers: Vec<_> = names.iter().map(|name| format!("x-ms-meta-{name}")).collect();
    let headers: Vec<_> = headers.iter().map(|name| (name.as_str(), "")).collect();
    assert_eq!(headers.len(), 3081);
    for (path, status) in [("many", 201), ("many", 204), ("many?comp=metadata", 204)] {
        let response = client.request("PUT", path, &headers, b"");
        assert_eq!(response.status, status, "{}", response.text());
    }
    let read = client.request("GET", "many?comp=metadata", &[], b"");
    assert_eq!(
        read.headers.iter().filter(|(name, _)| name.starts_with("x-ms-meta-")).count(),
        3081
    );
}

fn list(path: &str) -> Case<'_> {
    let code = "OutOfRangeQueryParameterValue";
    Case { method: "GET", path, headers: &[], body: "", status: 400, code, details: "" }
}

#[test]
fn lists_policies_and_settings() {
    let (_server, mut client) = serve();
    for value in ["0", "-1"] {
        let details = range("maxresults", value, 1, 5000);
        let path = format!("?comp=list&maxresults={value}");
        Case { details: &details, ..list(&path) }.check(&mut client);
    }
    let code = "InvalidQueryParameterValue";
    let details = parameter("maxresults", "x", "Not a number");
    Case { details: &details, code, ..list("?comp=list&maxresults=x") }.check(&mut client);
    let details = parameter("include", "other", "");
    Case { details: &details, code, ..list("?comp=list&include=other") }.check(&mut client);
    for marker in ["orders", "/other/orders", "%2Fdevstoreaccount1"] {
        let path = format!("?comp=list&marker={marker}");
        Case { code: "OutOfRangeInput", ..list(&path) }.check(&mut client);
    }
    let identifier = |id: &str, permission: &str| {
        format!(
            "<SignedIdentifier><Id>{id}</Id><AccessPolicy><Permission>{permission}</Permission></AccessPolicy></SignedIdentifier>"
        )
    };
    let all = |inner: &str| format!("<SignedIdentifiers>{inner}</SignedIdentifiers>");
    let six: String = (0..6).map(|n| identifier(&n.to_string(), "r")).collect();
    let rule = "<CorsRule><AllowedOrigins>*</AllowedOrigins><AllowedMethods>GET</AllowedMethods><AllowedHeaders/><ExposedHeaders/><MaxAgeInSeconds>5</MaxAgeInSeconds></CorsRule>";
    let rules = format!(
        "<StorageServiceProperties><Cors>{}</Cors></StorageServiceProperties>",
        rule.repeat(6)
    );
    let document = "InvalidXmlDocument";
    let properties = "?restype=service&comp=properties";
    for (path, body) in [
        ("orders?comp=acl", all(&identifier("a", "rwdl"))),
        ("orders?comp=acl", all(&identifier("a", "raud"))),
        ("orders?comp=acl", all(&identifier("a", "rr"))),
        ("orders?comp=acl", all(&six)),
        (properties, rules),
        (properties, "<StorageServiceProperty/>".to_owned()),
    ] {
        let details = "<LineNumber>0</LineNumber><LinePosition>0</LinePosition><Reason />";
        Case { method: "PUT", body: &body, code: document, details, ..list(path) }
            .check(&mut client);
    }
    let body = all(&identifier("", "r"));
    let details = "<LineNumber>1</LineNumber><LinePosition>123</LinePosition><Reason>Signed identifier ID cannot be \
         empty or over 64 characters in length</Reason>";
    Case { method: "PUT", body: &body, code: document, details, ..list("orders?comp=acl") }
        .check(&mut client);
    let policies = client.request("GET", "orders?comp=acl", &[], b"").text();
    assert!(policies.ends_with("<SignedIdentifiers />"), "nothing was set: {policies}");
}

#[test]
fn versions_and_lengths() {
    let (server, mut client) = serve();
    let response = client.request("GET", "?comp=list", &[("x-ms-version", "tomorrow")], b"");
    assert_eq!((response.status, response.code().as_deref()), (400, Some("InvalidHeaderValue")));
    let header = "<HeaderName>x-ms-version</HeaderName><HeaderValue>tomorrow</HeaderValue></Error>";
    assert!(response.text().ends_with(header), "{}", response.text());
    // No length and no chunks.
    let head = client.head("POST", "orders/messages", &[], None);
    let mut connection = Connection::open(server.queue_address()).unwrap();
    connection.send(&head).unwrap();
    let response = connection.receive("POST").unwrap();
    let expected = Some("MissingContentLengthHeader");
    assert_eq!((response.status, response.code().as_deref()), (411, expected));
    // Chunks are fine.
    let headers = [("Transfer-Encoding", "chunked")];
    let mut bytes = client.head("POST", "orders/messages", &headers, None);
    let body = message("chunked");
    bytes.extend_from_slice(format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len()).as_bytes());
    let mut connection = Connection::open(server.queue_address()).unwrap();
    connection.send(&bytes).unwrap();
    assert_eq!(connection.receive("POST").unwrap().status, 201);
    let id = "a".repeat(1024);
    let response = client.request("GET", "?comp=list", &[("x-ms-client-request-id", &id)], b"");
    assert_eq!(response.header("x-ms-client-request-id"), Some(id.as_str()));
    let response = client.request("GET", "?comp=list", &[("Accept", "application/json")], b"");
    assert_eq!(response.header("content-type"), Some("application/xml"));
    assert!(!server.log().contains("panicked"), "{}", server.log());
}
