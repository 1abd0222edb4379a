//! Signatures that were computed elsewhere.

use super::{ACCOUNT, DATE, Sent, key};
use rowhouse_auth::{AccountSasFields, AuthError, QueueSasFields, Scheme, TableSasFields, sign};

#[test]
fn header_vectors() {
    let full = Scheme::SharedKey;
    let lite = Scheme::SharedKeyLite;
    let cases = [
        (full, Sent::new("GET", "/Tables"), "9SjHnQ77zPy9wlz6gGjv2JNa4gteQAmB11gLX/93GV4="),
        (
            full,
            Sent::new("POST", "/devstoreaccount1/Tables")
                .header("content-type", "application/json"),
            "f9LpP64zCa427WW9fpXi3YQfrDa60V/R3qz/3cKVyE4=",
        ),
        (
            lite,
            Sent::new("GET", "/devstoreaccount1/people(PartitionKey='a%27%27b',RowKey='r')"),
            "8VkxhFFIhDfh4meoaPqrYdQy9pOQNfMUODSxf09cNVI=",
        ),
        (
            lite,
            Sent::new("GET", "/devstoreaccount1/people").query("timeout", "5").query("comp", "acl"),
            "C7MXN2Zw0WK+ToGUlxuhmjIgVahBENO+RedymqysbSM=",
        ),
    ];
    for (scheme, sent, signature) in cases {
        let word = if scheme == full { "SharedKey" } else { "SharedKeyLite" };
        let expected = format!("{word} {ACCOUNT}:{signature}");
        for date in ["x-ms-date", "date"] {
            let sent = sent.clone().header(date, DATE);
            let actual = sent.view(|request| sign::shared_key(request, scheme, &key())).unwrap();
            assert_eq!(actual, expected, "{}", sent.path);
            assert!(sent.header("Authorization", &expected).is_accepted(), "{signature}");
        }
    }
}

#[test]
fn table_sas_vectors() {
    let text = str::to_owned;
    let common = TableSasFields {
        version: text("2019-02-02"),
        table: text("People"),
        ..TableSasFields::default()
    };
    let expiry = text("2099-01-01T00:00:00Z");
    let cases = [
        (
            TableSasFields { permissions: text("r"), expiry: expiry.clone(), ..common.clone() },
            "N/au4Q6K20xONe1cqLhFGtx/CgkB9h4C+ylCFrrTpeI=",
        ),
        (
            TableSasFields {
                permissions: text("raud"),
                start: text("2022-01-01T00:00:00Z"),
                expiry,
                protocol: text("https,http"),
                start_partition: Some(text("A")),
                start_row: Some(text("1")),
                end_partition: Some(text("B")),
                end_row: Some(text("9")),
                ..common.clone()
            },
            "dbDrC785bFaY5c1fc4R4zTjL//6RKncQ8SKw75S0guM=",
        ),
        (
            TableSasFields { policy_id: text("policy1"), ..common },
            "EZKTkTjEWVlkV/jiHSuudJa0ZFHVSr832k9uPK254wI=",
        ),
    ];
    for (fields, signature) in cases {
        let token = sign::table_sas(ACCOUNT, &key(), &fields);
        assert_eq!(token.pairs().last().unwrap(), &("sig", text(signature)));
        let sent = Sent::with_token(&token);
        assert!(sent.is_accepted(), "{signature}");
        assert!(sent.query("tn", "PEOPLE").is_accepted(), "{signature}: any case of the name");
    }
}

#[test]
fn account_sas_vectors() {
    let cases = [
        ("2019-02-02", "fBYcYgVfJO3anX0sXeu2Qjif5fJqMrvc56uYFpAQvD8="),
        ("2020-12-06", "viV03gshfZHMuqolDzVDw8lXFh/OlWCJPr+Gzy9HJoM="),
    ];
    for (version, signature) in cases {
        let fields = AccountSasFields {
            version: version.to_owned(),
            services: "t".to_owned(),
            resource_types: "sco".to_owned(),
            permissions: "rwdlacu".to_owned(),
            expiry: "2099-01-01T00:00:00Z".to_owned(),
            ..AccountSasFields::default()
        };
        let token = sign::account_sas(ACCOUNT, &key(), &fields);
        assert_eq!(token.pairs().last().unwrap(), &("sig", signature.to_owned()), "{version}");
        assert!(Sent::with_token(&token).is_accepted(), "{version}");
    }
}

#[test]
fn a_token_prints_as_it_stands_in_a_url() {
    let fields = TableSasFields {
        version: "2019-02-02".to_owned(),
        table: "People".to_owned(),
        permissions: "r".to_owned(),
        expiry: "2099-01-01T00:00:00Z".to_owned(),
        start_partition: Some("é &".to_owned()),
        ..TableSasFields::default()
    };
    let text = sign::table_sas(ACCOUNT, &key(), &fields).to_string();
    let prefix = "sv=2019-02-02&tn=People&sp=r&se=2099-01-01T00%3A00%3A00Z&spk=%C3%A9%20%26&sig=";
    assert!(text.starts_with(prefix), "{text}");
    assert!(text.ends_with("%3D"), "{text}");
}

/// The strings of versions before 2015-04-05 have no published signatures: here they are spelled out.
#[test]
fn older_forms_of_table_signatures() {
    use ring::hmac;
    let cases = [
        ("2012-02-12", "r\n\n2099-01-01\n/devstoreaccount1/people\n\n2012-02-12\nA\n\n\n"),
        ("2014-02-14", "r\n\n2099-01-01\n/devstoreaccount1/people\n\n2014-02-14\nA\n\n\n"),
        ("2015-02-21", "r\n\n2099-01-01\n/table/devstoreaccount1/people\n\n2015-02-21\nA\n\n\n"),
        (
            "2015-04-05",
            "r\n\n2099-01-01\n/table/devstoreaccount1/people\n\n\n\n2015-04-05\nA\n\n\n",
        ),
        (
            "2199-12-31",
            "r\n\n2099-01-01\n/table/devstoreaccount1/people\n\n\n\n2199-12-31\nA\n\n\n",
        ),
    ];
    for (version, string) in cases {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &key());
        let signature = {
            use base64::Engine as _;
            base64::engine::general_purpose::STANDARD.encode(hmac::sign(&key, string.as_bytes()))
        };
        let sent = Sent::new("GET", "/People()")
            .query("sv", version)
            .query("tn", "People")
            .query("sp", "r")
            .query("se", "2099-01-01")
            .query("spk", "A")
            .query("sig", &signature);
        assert!(sent.is_accepted(), "{version}");
    }
}

/// The vector of the protocol, and variants of it whose strings are spelled out.
#[test]
fn queue_header_vectors() {
    let peek = Sent::to_queue("GET", "/devstoreaccount1/q1/messages", "q1")
        .query("peekonly", "true")
        .query("numofmessages", "1")
        .header("x-ms-date", DATE);
    let published = "hBsGxPHdm76pYt6M2bTFRTNOHCbvUjo5CTjF4QSUZB8=";
    let actual = peek.view(|request| sign::shared_key(request, Scheme::SharedKey, &key())).unwrap();
    assert_eq!(actual, format!("SharedKey {ACCOUNT}:{published}"));
    assert!(peek.clone().header("Authorization", &actual).is_accepted());
    let blobs = Sent::to_queue("PUT", "/devstoreaccount1/c1/b1", "c1")
        .header("content-length", "11")
        .header("Content-Type", "text/plain; charset=UTF-8")
        .header("x-ms-blob-type", "BlockBlob")
        .header("x-ms-date", DATE)
        .query("timeout", "30");
    let actual =
        blobs.view(|request| sign::shared_key(request, Scheme::SharedKey, &key())).unwrap();
    assert_eq!(actual, format!("SharedKey {ACCOUNT}:m2rxV39eRymSSahleZrJzEwiTNTFQjnUFu3iBSEvIUo="));

    let put = || {
        Sent::to_queue("PUT", "/devstoreaccount1/q1", "q1")
            .header("X-MS-Date", DATE)
            .header("Date", "ignored beside the other")
    };
    let dated = format!("x-ms-date:{DATE}\n");
    let cases = [
        (
            "a length of zero is none",
            Scheme::SharedKey,
            put().header("Content-Length", "0"),
            format!("PUT{}{dated}x-ms-version:2020-04-08\n/A/A/q1", "\n".repeat(12)),
        ),
        (
            "before 2015-02-21 it is zero",
            Scheme::SharedKey,
            put().header("Content-Length", "0").header("x-ms-version", "2014-02-14"),
            format!("PUT\n\n\n0{}{dated}x-ms-version:2014-02-14\n/A/A/q1", "\n".repeat(9)),
        ),
        (
            "without another date the line has it",
            Scheme::SharedKey,
            Sent::to_queue("PUT", "/devstoreaccount1/q1", "q1").header("date", DATE),
            format!(
                "PUT{}{DATE}{}x-ms-version:2020-04-08\n/A/A/q1",
                "\n".repeat(6),
                "\n".repeat(6)
            ),
        ),
        (
            "blanks in headers are reduced, but not in quotes; empty ones are signed",
            Scheme::SharedKey,
            put().header("x-ms-meta-b", " a  \t b \"c  d\" ").header("x-ms-meta-a", ""),
            format!(
                "PUT{}{dated}x-ms-meta-a:\nx-ms-meta-b:a b \"c  d\"\nx-ms-version:2020-04-08\n/A/A/q1",
                "\n".repeat(12)
            ),
        ),
        (
            "before 2016-05-31 they are not",
            Scheme::SharedKey,
            put().header("x-ms-meta-a", "").header("x-ms-version", "2015-12-11"),
            format!("PUT{}{dated}x-ms-version:2015-12-11\n/A/A/q1", "\n".repeat(12)),
        ),
        (
            "parameters by name, decoded",
            Scheme::SharedKey,
            put().query("Timeout", "30").query("comp", "a b"),
            format!(
                "PUT{}{dated}x-ms-version:2020-04-08\n/A/A/q1\ncomp:a b\ntimeout:30",
                "\n".repeat(12)
            ),
        ),
        (
            "the short form",
            Scheme::SharedKeyLite,
            put().query("comp", "metadata").query("timeout", "30").header("Content-Type", "t"),
            format!("PUT\n\nt\n\n{dated}x-ms-version:2020-04-08\n/A/A/q1?comp=metadata"),
        ),
    ];
    for (rule, scheme, sent, string) in cases {
        let string = string.replace("/A", &format!("/{ACCOUNT}"));
        let authorization = authorization(scheme, &string);
        let actual = sent.view(|request| sign::shared_key(request, scheme, &key())).unwrap();
        assert_eq!(actual, authorization, "{rule}");
        let sent = sent.header("Authorization", &authorization);
        assert!(sent.is_accepted(), "{rule}");
        let wrong = sent.header("Authorization", &format!("SharedKey {ACCOUNT}:{published}"));
        assert_eq!(wrong.verify(&[&key()]).err(), Some(AuthError::Signature), "{rule}");
        if scheme == Scheme::SharedKey {
            let told =
                wrong.view(|request| rowhouse_auth::parse(request).unwrap().explain(request));
            let told = told.unwrap();
            assert_eq!((told.sent.as_str(), told.signed), (published, string), "{rule}");
        }
    }
}

fn authorization(scheme: Scheme, string: &str) -> String {
    use base64::Engine as _;
    use ring::hmac;
    let key = hmac::Key::new(hmac::HMAC_SHA256, &key());
    let signature =
        base64::engine::general_purpose::STANDARD.encode(hmac::sign(&key, string.as_bytes()));
    let word = if scheme == Scheme::SharedKey { "SharedKey" } else { "SharedKeyLite" };
    format!("{word} {ACCOUNT}:{signature}")
}

/// Some clients sign blanks as they send them.
#[test]
fn blanks_may_be_signed_as_they_are() {
    let sent = Sent::to_queue("PUT", "/devstoreaccount1/q1", "q1")
        .header("x-ms-date", DATE)
        .header("x-ms-meta-a", "two  blanks");
    let string = format!(
        "PUT{}x-ms-date:{DATE}\nx-ms-meta-a:two  blanks\nx-ms-version:2020-04-08\n/{ACCOUNT}/{ACCOUNT}/q1",
        "\n".repeat(12)
    );
    let authorization = authorization(Scheme::SharedKey, &string);
    assert!(sent.header("Authorization", &authorization).is_accepted());
}

#[test]
fn a_signed_header_twice_is_refused() {
    for name in ["x-ms-meta-a", "content-type", "x-ms-version"] {
        let mut sent =
            Sent::to_queue("PUT", "/devstoreaccount1/q1", "q1").header("x-ms-date", DATE);
        sent.headers.extend([(name.into(), "1".into()), (name.to_uppercase(), "1".into())]);
        let sent = sent.header("Authorization", &authorization(Scheme::SharedKey, ""));
        assert_eq!(sent.verify(&[&key()]).err(), Some(AuthError::RepeatedHeader), "{name}");
    }
}

#[test]
fn queue_sas_vectors() {
    let fields = QueueSasFields {
        version: "2019-02-02".to_owned(),
        queue: "q1".to_owned(),
        permissions: "raup".to_owned(),
        expiry: "2099-01-01T00:00:00Z".to_owned(),
        ..QueueSasFields::default()
    };
    let token = sign::queue_sas(ACCOUNT, &key(), &fields);
    let published = "unvdIUGCBbGzIUo0ZH0eSmiWsFlXeZAfG4Crn2G84QA=";
    assert_eq!(token.pairs().last().unwrap(), &("sig", published.to_owned()));
    // The vector's queue has a name that is too short to be one, so it names none here.
    let fields = QueueSasFields { queue: "que".to_owned(), ..fields };
    let to = |queue: &str, fields: &QueueSasFields| {
        let token = sign::queue_sas(ACCOUNT, &key(), fields);
        let mut sent = Sent::with_token(&token);
        sent.queue = Some(queue.to_owned());
        sent
    };
    assert!(to("que", &fields).is_accepted());
    for other in ["qux", "", "QUE", "q1"] {
        assert!(!to(other, &fields).is_accepted(), "{other}");
    }
    for (name, value) in [("sp", "rau"), ("se", "2100-01-01"), ("si", "x"), ("sip", "1.2.3.4")] {
        assert!(!to("que", &fields).query(name, value).is_accepted(), "{name}");
    }
    for wrong in ["rua", "rd", "rr", "raupx"] {
        let fields = QueueSasFields { permissions: wrong.to_owned(), ..fields.clone() };
        assert!(!to("que", &fields).is_accepted(), "{wrong}");
    }
    let policy = QueueSasFields {
        permissions: String::new(),
        expiry: String::new(),
        policy_id: "policy1".to_owned(),
        ..fields.clone()
    };
    assert!(to("que", &policy).is_accepted());
    for version in ["2012-02-12", "2014-02-14", "2015-02-21", "2015-04-05", "2199-12-31"] {
        let fields = QueueSasFields { version: version.to_owned(), ..fields.clone() };
        assert!(to("que", &fields).is_accepted(), "{version}");
    }
}
