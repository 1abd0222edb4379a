//! Requests that are wrong before anybody looks at a body: URLs, signatures, sizes, and bytes that are
//! no requests at all. A clear error or a closed connection, no panic, no growing memory, the next
//! request served.

use rowhouse_env::{Random, SeededRandom};
use rowhouse_testkit::{Connection, TestServer, Victim, encode, seed};
use serde_json::json;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

type Headers<'a> = &'a [(&'a str, &'a str)];

/// Below the signature: what is wrong with a path or a query string is told even with a good signature.
#[test]
fn malformed_urls() {
    let mut victim = Victim::start();
    let deep = format!("{}n eq 1{}", "(".repeat(10_000), ")".repeat(10_000));
    let nots = format!("{}(n eq 1)", "not ".repeat(10_000));
    let ands = format!("n eq 1{}", " and n eq 1".repeat(5_000));
    let filter = |text: &str| format!("Things()?$filter={}", encode(text));
    let paths = [
        "Things(PartitionKey='%zz',RowKey='r')".to_owned(),
        "Things(PartitionKey='%',RowKey='r')".into(),
        "Things(PartitionKey='%4',RowKey='r')".into(),
        "Things(PartitionKey='%C3%28',RowKey='r')".into(),
        "Things(PartitionKey='%FF',RowKey='r')".into(),
        "Things(PartitionKey='%ED%A0%80',RowKey='r')".into(),
        "Things(PartitionKey='%00',RowKey='r')".into(),
        "Things(PartitionKey='p')".into(),
        "Things(PartitionKey='p',RowKey='r'".into(),
        "Things(PartitionKey='p',RowKey='r)".into(),
        "Things(PartitionKey=p,RowKey=r)".into(),
        "Things(RowKey='r',RowKey='r')".into(),
        "Things('p','r')".into(),
        "Th%69%FFngs".into(),
        "a".repeat(64) + "()",
        "1Things()".into(),
        "Things()()".into(),
        "Things()?$filter=%zz".into(),
        "Things()?$filter=%C3%28".into(),
        "Things()?$top=-1".into(),
        "Things()?$top=99999999999999999999".into(),
        "Things()?$top=x".into(),
        "Things()?NextPartitionKey=%00".into(),
        "Things()?NextPartitionKey=1!999!x&NextRowKey=x".into(),
        filter("n eq"),
        filter("n eq 'open"),
        filter("n eq 1)"),
        filter("n foo 1"),
        filter("n eq guid'x'"),
        filter("n eq 99999999999999999999"),
        filter("\u{0}"),
        filter(&deep),
        filter(&nots),
        filter(&"(".repeat(10_000)),
        filter(&ands),
    ];
    for path in paths {
        let shown: String = path.chars().take(60).collect();
        let answer = victim.client.try_request("GET", &path, &[], b"");
        match answer {
            // What is longer than a head may be is refused below the protocol, without a code.
            Ok(answer) if path.len() > 8_000 => {
                assert!((400..500).contains(&answer.status), "{shown}: {}", answer.text());
                victim.still_serves(&shown);
            }
            Ok(answer) => {
                victim.refused(&shown, &answer);
            }
            Err(error) => {
                assert!(path.len() > 8_000, "{shown}: {error}");
                victim.still_serves(&shown);
            }
        }
    }
    // The same depth where no limit of the head protects the parser.
    for text in [&deep, &nots, &ands] {
        let mut body = String::from("--batch_b\r\nContent-Type: application/http\r\n\r\n");
        let _ = write!(body, "GET /devstoreaccount1/{} HTTP/1.1\r\n\r\n\r\n", filter(text));
        body.push_str("--batch_b--\r\n");
        let response = victim.post("$batch", "multipart/mixed; boundary=batch_b", body.as_bytes());
        assert!(response.status < 500, "{}", response.text());
        victim.still_serves("a deep filter in a batch");
    }
    victim.unharmed();
}

#[test]
fn malformed_signatures() {
    let victim = Victim::start();
    let head = String::from_utf8(victim.client.head("GET", "Things()", &[], None)).expect("text");
    let authorization =
        head.lines().find(|line| line.starts_with("Authorization")).expect("signed");
    let date = head.lines().find(|line| line.starts_with("x-ms-date")).expect("dated");
    let signature = authorization.rsplit(':').next().expect("it has one");
    let flipped =
        signature.replacen(&signature[..1], if signature.starts_with('A') { "B" } else { "A" }, 1);
    let with = |value: &str| head.replace(authorization, &format!("Authorization: {value}"));
    let account = "devstoreaccount1";
    let cases = [
        ("no signature", head.replace(&format!("{authorization}\r\n"), "")),
        ("another signature", with(&format!("SharedKey {account}:{flipped}"))),
        ("a cut signature", with(&format!("SharedKey {account}:{}", &signature[..20]))),
        ("not Base64", with(&format!("SharedKey {account}:%%%%"))),
        ("an empty signature", with(&format!("SharedKey {account}:"))),
        ("no colon", with(&format!("SharedKey {account}"))),
        ("nothing", with("")),
        ("the scheme only", with("SharedKey")),
        ("an unknown scheme", with("Basic dXNlcjpwYXNz")),
        ("another account", with(&format!("SharedKey nobody:{signature}"))),
        (
            "Lite with the signature of the other",
            with(&format!("SharedKeyLite {account}:{signature}")),
        ),
        ("100,000 characters", with(&format!("SharedKey {account}:{}", "A".repeat(20_000)))),
        ("a bearer token", with("Bearer abc.def.ghi")),
        ("no date", head.replace(&format!("{date}\r\n"), "")),
        ("an old date", head.replace(date, "x-ms-date: Mon, 27 Jun 2022 15:25:14 GMT")),
        ("no date at all", head.replace(date, "x-ms-date: soon")),
        ("not ASCII", with("SharedKey é:é")),
        (
            "a shared access signature of nonsense",
            head.replace(&format!("{authorization}\r\n"), "")
                .replace("Things()", "Things()?sv=x&tn=%FF&sig=%zz&se=never&sp="),
        ),
        (
            "a doubled parameter",
            head.replace(&format!("{authorization}\r\n"), "").replace(
                "Things()",
                "Things()?sv=2019-02-02&sig=a&sig=b&tn=Things&se=2030-01-01&sp=r",
            ),
        ),
    ];
    for (what, request) in cases {
        let mut connection = victim.connect();
        connection.send(request.as_bytes()).expect("sent");
        let answer = connection.receive("GET").unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(
            matches!(answer.status, 400 | 401 | 403 | 431),
            "{what}: {} {}",
            answer.status,
            answer.text()
        );
        assert!(!answer.text().contains(signature), "{what}: the answer shows no signature");
        victim.still_serves(what);
    }
    assert!(!victim.server.log().contains(signature), "nor does the log");
    victim.unharmed();
}

/// A gigabyte, announced or in chunks, is refused long before it has been sent.
#[test]
fn a_gigabyte() {
    const GIGABYTE: usize = 1 << 30;
    let victim = Victim::start();
    let block = vec![b' '; 1 << 20];
    let json = [("Content-Type", "application/json")];
    let chunked = [("Content-Type", "application/json"), ("Transfer-Encoding", "chunked")];
    let expecting = [("Content-Type", "application/json"), ("Expect", "100-continue")];
    let batch = [("Content-Type", "multipart/mixed; boundary=batch_b")];
    let cases: [(&str, &str, Headers, Option<usize>); 5] = [
        ("announced", "Things", &json, Some(GIGABYTE)),
        ("in chunks", "Things", &chunked, None),
        ("asking first", "Things", &expecting, Some(GIGABYTE)),
        ("a batch", "$batch", &batch, Some(GIGABYTE)),
        ("a table", "Tables", &json, Some(GIGABYTE)),
    ];
    for (what, path, headers, length) in cases {
        let head = victim.client.head("POST", path, headers, length);
        let mut connection = victim.connect();
        connection.send(&head).expect("a head is taken");
        let mut sent = 0;
        let mut refused = connection.has_answer(Duration::from_millis(100));
        while !refused && sent < GIGABYTE {
            let framed;
            let bytes = if length.is_none() {
                framed = [format!("{:x}\r\n", block.len()).as_bytes(), &block, b"\r\n"].concat();
                &framed
            } else {
                &block
            };
            refused =
                connection.send(bytes).is_err() || connection.has_answer(Duration::from_millis(1));
            sent += block.len();
        }
        println!("{what}: refused after {} MiB", sent >> 20);
        assert!(sent <= 64 << 20, "{what}: refused early, not after {sent} bytes");
        // The connection may be cut while we still send; an answer that does come is 413.
        match connection.receive("POST") {
            Ok(answer) => assert_eq!(answer.status, 413, "{what}: {}", answer.text()),
            Err(error) => println!("{what}: closed without an answer ({error})"),
        }
        victim.still_serves(what);
    }
    victim.unharmed();
}

/// After a refused body the next request on the connection is served, or the answer has said that there
/// can be none: a client that keeps connections must be able to tell.
#[test]
fn the_connection_after_a_refused_body() {
    let victim = Victim::start();
    let json = [("Content-Type", "application/json")];
    for (announced, sent) in [(1 << 30, 0), (5 << 20, 5 << 20), (8 << 20, 8 << 20)] {
        let mut connection = victim.connect();
        let head = victim.client.head("POST", "Things", &json, Some(announced));
        connection.send(&head).expect("a head is taken");
        // The server may answer and close before it has everything.
        let _ = connection.send(&vec![b' '; sent]);
        let Ok(refused) = connection.receive("POST") else { continue };
        assert_eq!(refused.status, 413, "{}", refused.text());
        if refused.closes() {
            continue;
        }
        let next = victim.client.head("GET", "Things()", &[], None);
        let answer = connection.send(&next).and_then(|()| connection.receive("GET"));
        let status = answer.map(|answer| answer.status);
        assert!(
            status.as_ref().is_ok_and(|status| *status == 200),
            "{announced} bytes announced, {sent} sent: neither `Connection: close` nor a next answer, \
             but {status:?}"
        );
    }
    victim.unharmed();
}

/// Bytes that are not HTTP, or only nearly.
#[test]
fn garbage_instead_of_requests() {
    let victim = Victim::start();
    let random = SeededRandom::new(seed());
    let noise = |length: usize| {
        let mut bytes = vec![0; length];
        random.fill(&mut bytes);
        bytes
    };
    let repeated = |text: &str, times: usize| text.repeat(times).into_bytes();
    let mut cases: Vec<(String, Vec<u8>)> = vec![
        ("nothing".into(), vec![]),
        ("zeros".into(), vec![0; 1000]),
        ("a verb".into(), b"GET\r\n\r\n".to_vec()),
        ("no version".into(), b"GET /\r\n\r\n".to_vec()),
        ("an unknown version".into(), b"GET / HTTP/9.9\r\nHost: x\r\n\r\n".to_vec()),
        ("HTTP/2".into(), b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec()),
        ("TLS".into(), [&b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..], &noise(200)].concat()),
        ("a line without an end".into(), repeated("A", 1 << 20)),
        ("a path without an end".into(), [b"GET /", &repeated("a", 1 << 20)[..]].concat()),
        ("a header of a megabyte".into(), [b"GET / HTTP/1.1\r\nHost: x\r\nX: ", &repeated("a", 1 << 20)[..], b"\r\n\r\n"].concat()),
        ("10,000 headers".into(), [b"GET / HTTP/1.1\r\nHost: x\r\n", &repeated("X-Y: z\r\n", 10_000)[..], b"\r\n"].concat()),
        ("a bad header".into(), b"GET / HTTP/1.1\r\nHost x\r\n\r\n".to_vec()),
        ("a control character in a header".into(), b"GET / HTTP/1.1\r\nHost: x\r\nX: a\x01b\r\n\r\n".to_vec()),
        ("two lengths".into(), b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab".to_vec()),
        ("a negative length".into(), b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n".to_vec()),
        ("a length beyond numbers".into(), b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999999\r\n\r\n".to_vec()),
        ("length and chunks".into(), b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".to_vec()),
        ("a bad chunk".into(), b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n".to_vec()),
        ("a chunk beyond numbers".into(), b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n".to_vec()),
        ("no host".into(), b"GET / HTTP/1.1\r\n\r\n".to_vec()),
        ("two hosts".into(), b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n".to_vec()),
        ("control characters in the path".into(), b"GET /\x01\x02 HTTP/1.1\r\nHost: x\r\n\r\n".to_vec()),
        ("bytes above ASCII in the path".into(), b"GET /\xC3\xA9\xFF HTTP/1.1\r\nHost: x\r\n\r\n".to_vec()),
        ("dots".into(), b"GET /../../../../etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n".to_vec()),
        ("an unknown verb".into(), b"BREW / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec()),
        ("CONNECT".into(), b"CONNECT example.org:443 HTTP/1.1\r\nHost: example.org\r\n\r\n".to_vec()),
        ("a star".into(), b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n".to_vec()),
    ];
    cases.extend((0..50).map(|n| (format!("noise {n}"), noise(1 + n * 37))));
    for (what, bytes) in cases {
        for address in [victim.server.address(), victim.server.admin_address()] {
            let mut connection = Connection::open(address).expect("the server accepts");
            let began = Instant::now();
            // The server may close before everything is sent.
            let _ = connection.send(&bytes);
            let _ = connection.finish_sending();
            let answer = connection.receive_rest().unwrap_or_default();
            let text = String::from_utf8_lossy(&answer);
            assert!(
                answer.is_empty() || text.starts_with("HTTP/1."),
                "{what}: an HTTP answer or none: {text}"
            );
            assert!(
                !text.starts_with("HTTP/1.1 5") || text.starts_with("HTTP/1.1 50"),
                "{what}: {text}"
            );
            assert!(!text.starts_with("HTTP/1.1 500"), "{what}: {text}");
            assert!(began.elapsed() < Duration::from_secs(20), "{what}: the connection ends");
        }
        victim.still_serves(&what);
    }
    victim.unharmed();
}

/// Beyond the limits on connections a client is told so as its service tells it, and the connection ends.
#[test]
fn connections_beyond_the_limits() {
    let json =
        r#"{"odata.error":{"code":"ServerBusy","message":{"lang":"en-US","value":"The server is"#;
    let xml = "<Error><Code>ServerBusy</Code><Message>The server is";
    for limit in ["--max-connections", "--max-connections-per-address"] {
        let server = TestServer::start_with(&[limit, "1"]);
        let table = || (server.client(), "Tables", json);
        let queue = || (server.queue_client(), "?comp=list", xml);
        for ((mut first, path, body), (mut second, ..)) in [(table(), table()), (queue(), queue())]
        {
            assert_eq!(first.request("GET", path, &[], b"").status, 200, "{limit}: {path}");
            let refused = second.request("GET", path, &[], b"");
            let text = refused.text();
            assert_eq!(refused.status, 503, "{limit}: {text}");
            assert_eq!(refused.header("x-ms-error-code"), Some("ServerBusy"), "{limit}: {path}");
            assert!(refused.header("x-ms-request-id").is_some(), "{limit}: {path}");
            assert!(text.contains(body) && refused.closes(), "{limit}: {text}");
            assert_eq!(first.request("GET", path, &[], b"").status, 200, "{limit}: {path}");
        }
    }
}

/// Many connections that send a byte now and then do not keep others from being served.
#[test]
fn a_trickle_of_headers() {
    let mut victim = Victim::start();
    let mut slow: Vec<_> = (0..60).map(|_| victim.connect()).collect();
    let head = b"GET /devstoreaccount1/Things() HTTP/1.1\r\nHost: localhost\r\nX-Slow: aaaaaaaaaaaaaaaaaaaaaaaa";
    let mut slowest = Duration::ZERO;
    for byte in head.chunks(4) {
        for connection in &mut slow {
            let _ = connection.send(byte);
        }
        let began = Instant::now();
        victim.still_serves("a byte of many slow clients");
        slowest = slowest.max(began.elapsed());
        std::thread::sleep(Duration::from_millis(50));
    }
    // A body that never comes keeps nobody waiting either.
    let started =
        victim.client.head("POST", "Things", &[("Content-Type", "application/json")], Some(100));
    let mut waiting: Vec<_> = (0..20).map(|_| victim.connect()).collect();
    for connection in &mut waiting {
        connection.send(&started).expect("sent");
    }
    let began = Instant::now();
    let entity = json!({ "PartitionKey": "p", "RowKey": "while waiting" });
    assert_eq!(victim.client.insert("Things", &entity).expect("answered").status, 204);
    slowest = slowest.max(began.elapsed());
    println!("slowest request beside 80 slow clients: {} ms", slowest.as_millis());
    assert!(slowest < Duration::from_secs(2), "others are served at once, not after {slowest:?}");
    drop((slow, waiting));
    victim.unharmed();
}
