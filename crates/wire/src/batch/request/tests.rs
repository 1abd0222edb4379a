use super::*;
use proptest::prelude::*;

const SAMPLE: &str = "--batch_045c
Content-Type: multipart/mixed; boundary=changeset_d06f

--changeset_d06f
Content-Type: application/http
Content-Transfer-Encoding: binary
Content-ID: 0

POST https://acct.table.example.net/people HTTP/1.1
x-ms-version: 2019-02-02
Prefer: return-no-content
Content-Type: application/json;odata=nometadata
Content-Length: 39

{\"PartitionKey\":\"p\",\"RowKey\":\"1\",\"a\":1}
--changeset_d06f
Content-Type: application/http
Content-Transfer-Encoding: binary

DELETE https://acct.table.example.net/people(PartitionKey='p',RowKey='2') HTTP/1.1
If-Match: *
content-id: 7
Accept: application/json;odata=minimalmetadata


--changeset_d06f--

--batch_045c--
";

const QUERY: &str = "--b
Content-Type: application/http
Content-Transfer-Encoding: binary

GET /acct/people()?$filter=a%20eq%201 HTTP/1.1
Accept: application/json

--b--";

fn changeset(body: &str) -> Vec<Part<'_>> {
    match parse(body.as_bytes(), "batch_045c") {
        Ok(Request::Changeset(parts)) => parts,
        other => panic!("{other:?} from {body:?}"),
    }
}

#[test]
fn the_sample() {
    let parts = changeset(SAMPLE);
    assert_eq!(parts.len(), 2);
    let [insert, delete] = parts[..] else { unreachable!() };
    assert_eq!((insert.method, insert.target), ("POST", "https://acct.table.example.net/people"));
    assert_eq!(insert.body, b"{\"PartitionKey\":\"p\",\"RowKey\":\"1\",\"a\":1}");
    assert_eq!(insert.header("PREFER"), Some("return-no-content"));
    assert_eq!(insert.header("If-Match"), None);
    assert_eq!(insert.inner_content_id(), None, "that of the part around it does not count");
    assert_eq!(delete.method, "DELETE");
    assert!(delete.target.ends_with("/people(PartitionKey='p',RowKey='2')"));
    assert_eq!(delete.body, b"");
    assert_eq!(delete.header("if-match"), Some("*"));
    assert_eq!(delete.header_count("If-Match"), 1);
    assert_eq!(delete.inner_content_id(), Some("7"));
}

#[test]
fn every_spelling_is_read_alike() {
    let shape = |body: &str| {
        changeset(body)
            .iter()
            .map(|part| {
                let header = part.header("If-Match").map(str::to_owned);
                (part.method.to_owned(), part.target.to_owned(), part.body.to_vec(), header)
            })
            .collect::<Vec<_>>()
    };
    let expected = shape(SAMPLE);
    let spellings = [
        SAMPLE.replace('\n', "\r\n"),
        SAMPLE.trim_end().to_owned(),
        SAMPLE.replace("--batch_045c--", "--batch_045c"),
        SAMPLE.replace("--changeset_d06f--\n", "--changeset_d06f\n"),
        SAMPLE.replace("minimalmetadata\n\n\n", "minimalmetadata\n"),
        SAMPLE.replace("minimalmetadata\n\n\n", "minimalmetadata\n\n\n\n"),
        SAMPLE.replace("boundary=changeset_d06f", "boundary=\"changeset_d06f\""),
        SAMPLE.replace("Content-Length: 39\n", ""),
        SAMPLE.replace("Content-Length: 39\n", "Content-Length: 3\n"),
        SAMPLE.replace("Content-Length: 39\n", "content-length:39\nHost: x:1\n"),
        format!("\r\npreamble\n{SAMPLE}epilogue"),
        SAMPLE.replace("--batch_045c\n", "--batch_045c \t\n"),
    ];
    for body in spellings {
        assert_eq!(shape(&body), expected, "{body}");
    }
    let origin = SAMPLE.replace("https://acct.table.example.net", "");
    assert_eq!(changeset(&origin)[0].target, "/people");
}

#[test]
fn a_lone_query() {
    for body in [QUERY.to_owned(), QUERY.replace('\n', "\r\n")] {
        let Ok(Request::Query(part)) = parse(body.as_bytes(), "b") else { panic!("{body}") };
        assert_eq!((part.method, part.target), ("GET", "/acct/people()?$filter=a%20eq%201"));
        assert_eq!(part.header("accept"), Some("application/json"));
        assert_eq!(part.body, b"");
    }
}

#[test]
fn what_is_refused() {
    use BatchError::{Empty, Malformed, MixedQuery, SeveralChangesets};
    let set =
        "--b\nContent-Type: multipart/mixed; boundary=c\n\n--c\n\nPUT /t HTTP/1.1\n\n{}\n--c--\n";
    let get = "--b\nContent-Type: application/http\n\nGET /t HTTP/1.1\n\n";
    let cases = [
        (String::new(), Malformed),
        ("--x\n".into(), Malformed),
        ("--b".into(), Empty),
        ("--b--".into(), Empty),
        ("--b\n\n--b--".into(), Malformed),
        (set.into(), Malformed),
        (set.replace("--c--\n", "--b--"), Malformed),
        (set.replace("--c--\n", ""), Malformed),
        (format!("{set}{set}--b--"), SeveralChangesets),
        (format!("{set}{get}--b--"), MixedQuery),
        (format!("{get}{set}--b--"), MixedQuery),
        (format!("{get}{get}--b--"), MixedQuery),
        (format!("{}--b--", set.replace("PUT", "GET")), MixedQuery),
        (format!("{}--b--", get.replace("GET", "POST")), Malformed),
        (format!("{}--b--", set.replace("--c\n\nPUT /t HTTP/1.1\n\n{}\n", "")), Empty),
        (format!("{}--b--", set.replace("PUT /t HTTP/1.1", "PUT /t")), Malformed),
        (format!("{}--b--", set.replace("PUT /t HTTP/1.1", "PUT  HTTP/1.1")), Malformed),
        (format!("{}--b--", set.replace("PUT /t HTTP/1.1", "P;T /t HTTP/1.1")), Malformed),
        (format!("{}--b--", set.replace("PUT /t HTTP/1.1", "PUT /t FTP/1.1")), Malformed),
        (format!("{}--b--", set.replace("HTTP/1.1\n", "HTTP/1.1\nno header\n")), Malformed),
        (format!("{}--b--", set.replace("HTTP/1.1\n", "HTTP/1.1\n: x\n")), Malformed),
        (format!("{}--b--", set.replace("HTTP/1.1\n", "HTTP/1.1\nA: x\rB: y\n")), Malformed),
        (format!("{}--b--", set.replace("HTTP/1.1\n", "HTTP/1.1\nA: \0\n")), Malformed),
    ];
    for (body, error) in cases {
        assert_eq!(parse(body.as_bytes(), "b"), Err(error), "{body}");
    }
    assert!(parse(format!("{set}--b--").as_bytes(), "b").is_ok());
}

#[test]
fn operations_on_both_sides_of_the_limit() {
    let body = |count: usize| {
        let part = "--c\nContent-Type: application/http\n\nPUT /t HTTP/1.1\n\n{}\n";
        let parts = part.repeat(count);
        format!("--b\nContent-Type: multipart/mixed; boundary=c\n\n{parts}--c--\n--b--\n")
    };
    let most = body(limits::BATCH_OPERATIONS_MAX);
    assert!(
        matches!(parse(most.as_bytes(), "b"), Ok(Request::Changeset(parts)) if parts.len() == 100)
    );
    for count in [limits::BATCH_OPERATIONS_MAX + 1, 100_000] {
        let result = parse(body(count).as_bytes(), "b").map(drop);
        assert_eq!(result, Err(BatchError::TooManyOperations));
    }
}

#[test]
fn boundaries() {
    let cases = [
        ("multipart/mixed; boundary=batch_1", Some("batch_1")),
        ("Multipart/Mixed;boundary=\"batch 1\"", Some("batch 1")),
        ("multipart/mixed; charset=utf-8; Boundary = b ", Some("b")),
        ("multipart/mixed", None),
        ("multipart/mixed; boundary=", None),
        ("multipart/mixed; boundary=\"\"", None),
        ("application/json; boundary=b", None),
        ("", None),
    ];
    for (content_type, expected) in cases {
        assert_eq!(boundary(content_type).as_deref(), expected, "{content_type}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_answered(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        let _ = parse(&bytes, "b");
        let mut framed = b"--b\n\n".to_vec();
        framed.extend(&bytes);
        let _ = parse(&framed, "b");
    }

    #[test]
    fn any_lines_are_answered(
        body in "(--b|--c|--b--|--c--|\r\n|\n|GET / HTTP/1.1|PUT / HTTP/1.1|a: b|\\{\\}|Content-Type: multipart/mixed; boundary=c){0,20}",
        text in "\\PC{0,40}",
    ) {
        let _ = parse(body.as_bytes(), "b");
        let _ = boundary(&text);
    }

    #[test]
    fn a_batch_cut_off_is_never_a_shorter_batch(at: prop::sample::Index) {
        // Up to the last delimiter's hyphens, which clients leave out.
        let end = SAMPLE.rfind("--batch_045c").unwrap();
        let cut = at.index(end);
        prop_assert!(parse(&SAMPLE.as_bytes()[..cut], "batch_045c").is_err());
    }

    /// Few kinds of lines and every kind of line end, so that delimiters meet everything else.
    #[test]
    fn every_body_is_split_as_line_by_line(
        pieces in prop::collection::vec(prop::sample::select(&PIECES[..]), 0..30),
        cut: prop::sample::Index,
        change: (prop::sample::Index, u8),
    ) {
        let body = pieces.concat();
        same_as_line_by_line(&body)?;
        same_as_line_by_line(&body[..cut.index(body.len() + 1)])?;
        let framed = [OPENING.as_bytes(), &body, b"\n--c--\n--b--"].concat();
        same_as_line_by_line(&framed)?;
        let mut changed = SAMPLE.replace("batch_045c", "b").replace("changeset_d06f", "c").into_bytes();
        same_as_line_by_line(&changed)?;
        let at = change.0.index(changed.len());
        changed[at] = change.1;
        same_as_line_by_line(&changed)?;
    }
}

const OPENING: &str = "--b\nContent-Type: multipart/mixed; boundary=c\n\n--c\n\nPUT / HTTP/1.1\n";

const PIECES: [&[u8]; 30] = [
    b"\n",
    b"\n",
    b"\n",
    b"\r\n",
    b"\r\n",
    b"\n\n",
    b"\r",
    b" ",
    b"--",
    b"--b",
    b"--c",
    b"--b--",
    b"--c--",
    b"\n--c\n\nPUT / HTTP/1.1\nA: b\n\n{}\n",
    b"\n--c\r\n\r\nPUT / HTTP/1.1\r\nA: b\r\n\r\n{}\r\n",
    b"GET / HTTP/1.1",
    b"PUT / HTTP/1.1",
    b"PUT  /x y  HTTP/1.0 ",
    b"a: b",
    b"A:\tb\t",
    b"a:",
    b":",
    b"a b: c",
    b"{}",
    "é: é".as_bytes(),
    b"a: \xFF",
    b"a: \x7F",
    "a: \u{85}".as_bytes(),
    b"Content-Type: multipart/mixed; boundary=c",
    b"content-type:multipart/mixed;boundary=b",
];

fn same_as_line_by_line(body: &[u8]) -> Result<(), TestCaseError> {
    let found = parse(body, "b");
    prop_assert_eq!(&found, &naive::parse(body, "b"));
    let parts = match found {
        Ok(Request::Changeset(parts)) => parts,
        Ok(Request::Query(part)) => vec![part],
        Err(_) => Vec::new(),
    };
    for part in parts {
        for name in ["A", "é", "content-type", "other"] {
            prop_assert_eq!(part.header(name), naive::header(part.headers, name));
        }
    }
    Ok(())
}
