//! Everything that is signed, changed one at a time, is refused.

use super::{ACCOUNT, DATE, Sent, key, now};
use rowhouse_auth::{
    AccountSasFields, AuthError, Credentials, Scheme, TableSasFields, parse, sign,
};

type Change = fn(Sent) -> Sent;

fn signed(scheme: Scheme, sent: Sent) -> Sent {
    let sent = sent.header("x-ms-date", DATE);
    let authorization = sent.view(|request| sign::shared_key(request, scheme, &key())).unwrap();
    sent.header("authorization", &authorization)
}

fn assert_failed(sent: &Sent, rule: &str) {
    let answer = sent.verify(&[&key()]);
    let refused =
        matches!(answer, Err(AuthError::Failed(_) | AuthError::Signature | AuthError::Date));
    assert!(refused, "{rule}: {answer:?}");
}

#[test]
fn signed_headers() {
    let original = || {
        Sent::new("POST", "/devstoreaccount1/People")
            .query("comp", "acl")
            .header("content-type", "application/json")
            .header("content-md5", "1B2M2Y8AsgTpgAmY7PhCfg==")
    };
    // Whether Shared Key Lite signs it too.
    let changes: &[(&str, bool, Change)] = &[
        ("verb", false, |sent| Sent { method: "PUT".to_owned(), ..sent }),
        ("content type", false, |sent| sent.header("content-type", "application/json ")),
        ("content digest", false, |sent| sent.header("content-md5", "1B2M2Y8AsgTpgAmY7PhCfw==")),
        ("date", true, |sent| sent.header("x-ms-date", "Mon, 27 Jun 2022 15:25:15 GMT")),
        ("path", true, |sent| Sent { path: "/devstoreaccount1/Peoplf".to_owned(), ..sent }),
        ("path without account", true, |sent| Sent { path: "/People".to_owned(), ..sent }),
        ("case of the path", true, |sent| Sent {
            path: "/devstoreaccount1/people".to_owned(),
            ..sent
        }),
        ("comp", true, |sent| sent.query("comp", "stats")),
        ("no comp", true, |sent| sent.without_query("comp")),
        ("comp twice", true, |mut sent| {
            sent.query.push(("comp".to_owned(), "stats".to_owned()));
            sent
        }),
        ("account of the URL", true, |sent| Sent { account: "otheraccount".to_owned(), ..sent }),
        ("account of the header", true, |sent| {
            let header = sent.headers.last().unwrap().1.replace(ACCOUNT, "otheraccount");
            sent.header("authorization", &header)
        }),
        ("the other scheme", true, |sent| {
            let header = &sent.headers.last().unwrap().1;
            let (word, rest) = header.split_once(' ').unwrap();
            let word = if word == "SharedKey" { "SharedKeyLite" } else { "SharedKey" };
            let header = format!("{word} {rest}");
            sent.header("authorization", &header)
        }),
    ];
    for scheme in [Scheme::SharedKey, Scheme::SharedKeyLite] {
        assert!(signed(scheme, original()).is_accepted());
        for (rule, lite, change) in changes {
            let sent = change(signed(scheme, original()));
            if scheme == Scheme::SharedKey || *lite {
                assert_failed(&sent, rule);
            } else {
                assert!(sent.is_accepted(), "{rule}: not signed");
            }
        }
    }
    let unsigned = signed(Scheme::SharedKey, original()).header("if-match", "*").query("x", "y");
    assert!(unsigned.is_accepted(), "what is not signed may change");
}

#[test]
fn every_bit_of_a_signature_counts() {
    let sent = signed(Scheme::SharedKey, Sent::new("GET", "/Tables"));
    let (_, header) = sent.headers.last().unwrap().clone();
    let at = header.find(':').unwrap() + 1;
    for index in at..header.len() {
        let mut changed = header.clone().into_bytes();
        changed[index] = if changed[index] == b'A' { b'B' } else { b'A' };
        let changed = String::from_utf8(changed).unwrap();
        assert_failed(&sent.clone().header("authorization", &changed), &changed);
    }
}

#[test]
fn either_key_and_no_other() {
    let sent = signed(Scheme::SharedKey, Sent::new("GET", "/Tables"));
    assert!(sent.verify(&[b"other", &key()]).is_ok());
    assert!(sent.verify(&[&key(), b"other"]).is_ok());
    assert!(sent.verify(&[b"other", b"another"]).is_err());
    assert!(sent.verify(&[]).is_err());
    // The signature of an empty key is known to everybody.
    let sent = Sent::new("GET", "/Tables").header("x-ms-date", DATE);
    let forged = sent.view(|request| sign::shared_key(request, Scheme::SharedKey, b"")).unwrap();
    assert!(sent.header("authorization", &forged).verify(&[b"", b""]).is_err());
}

#[test]
fn dates() {
    let sent = signed(Scheme::SharedKey, Sent::new("GET", "/Tables"));
    let at = |sent: &Sent, seconds: i64| {
        sent.view(|request| {
            let Ok(Credentials::SharedKey(shared)) = parse(request) else { panic!("no header") };
            let ticks = now().ticks().checked_add_signed(seconds * 10_000_000).unwrap();
            let now = rowhouse_types::Timestamp::from_ticks(ticks).unwrap();
            shared.verify(request, &[&key()], now, 900).is_ok()
        })
    };
    for (seconds, expected) in [(0, true), (900, true), (-900, true), (901, false), (-901, false)] {
        assert_eq!(at(&sent, seconds), expected, "{seconds}");
    }
    let other = "Tue, 28 Jun 2022 15:25:14 GMT";
    assert!(at(&sent.clone().header("date", other), 0), "x-ms-date wins");
    let header = sent.headers.last().unwrap().1.clone();
    let plain = Sent::new("GET", "/Tables").header("authorization", &header);
    assert!(!at(&plain, 0), "no date");
    assert!(at(&plain.clone().header("date", DATE), 0), "Date alone");
    assert!(!at(&plain.clone().header("date", "yesterday"), 0), "not a date");
    let both = plain.header("date", DATE).header("x-ms-date", other);
    assert!(!at(&both, 0), "x-ms-date wins over a Date that was signed");
}

/// Clients differ in which spelling of the path they sign.
#[test]
fn spellings_of_the_path() {
    let sign_as = |signed_path: &str, sent_path: &str| {
        let sent = signed(Scheme::SharedKeyLite, Sent::new("GET", signed_path));
        Sent { path: sent_path.to_owned(), ..sent }
    };
    let cases = [
        ("/devstoreaccount1-secondary/Tables", "/devstoreaccount1-secondary/Tables", true),
        ("/devstoreaccount1/Tables", "/devstoreaccount1-secondary/Tables", true),
        ("/devstoreaccount1-secondary/Tables", "/devstoreaccount1/Tables", false),
        (
            "/t(PartitionKey='a',RowKey='%C3%A9')",
            "/t(PartitionKey=%27a%27,RowKey=%27%c3%a9%27)",
            true,
        ),
        ("/t(PartitionKey='a/b')", "/t(PartitionKey='a%2Fb')", false),
        ("/t('a')", "/t('b')", false),
    ];
    for (signed_path, sent_path, expected) in cases {
        assert_eq!(sign_as(signed_path, sent_path).is_accepted(), expected, "{sent_path}");
    }
}

/// Replaces, removes or adds each parameter in turn.
fn assert_every_parameter_is_signed(original: &Sent, others: &[(&str, &str)]) {
    assert!(original.is_accepted());
    for (name, other) in others {
        assert_failed(&original.clone().query(name, other), name);
        if original.query.iter().any(|(found, _)| found == name) {
            assert_failed(&original.clone().without_query(name), &format!("no {name}"));
        }
    }
    assert_failed(&Sent { account: "otheraccount".to_owned(), ..original.clone() }, "account");
}

#[test]
fn table_sas_fields() {
    let text = str::to_owned;
    let least = TableSasFields {
        version: text("2019-02-02"),
        table: text("People"),
        permissions: text("r"),
        expiry: text("2099-01-01T00:00:00Z"),
        ..TableSasFields::default()
    };
    let full = TableSasFields {
        start: text("2022-01-01T00:00:00Z"),
        policy_id: text("policy1"),
        ip: text("192.0.2.1-192.0.2.9"),
        protocol: text("https"),
        start_partition: Some(text("A")),
        start_row: Some(text("1")),
        end_partition: Some(text("B")),
        end_row: Some(text("9")),
        ..least.clone()
    };
    let others = [
        ("sv", "2018-03-28"),
        ("sv", "2014-02-14"),
        ("tn", "Others"),
        ("sp", "ra"),
        ("st", "2021-01-01T00:00:00Z"),
        ("st", "2022-01-01"),
        ("se", "2099-01-02T00:00:00Z"),
        ("se", "2099-01-01"),
        ("si", "policy2"),
        ("sip", "0.0.0.0-255.255.255.255"),
        ("spr", "https,http"),
        ("spk", "0"),
        ("srk", "0"),
        ("epk", "Z"),
        ("erk", "99"),
        ("sig", "N/au4Q6K20xONe1cqLhFGtx/CgkB9h4C+ylCFrrTpeJ="),
        ("sig", "9SjHnQ77zPy9wlz6gGjv2JNa4gteQAmB11gLX/93GV4="),
        ("sig", ""),
    ];
    for fields in [full, least] {
        let original = Sent::with_token(&sign::table_sas(ACCOUNT, &key(), &fields));
        // Without the signature there are no credentials at all.
        let bare = original.clone().without_query("sig");
        assert_eq!(bare.verify(&[&key()]).err(), Some(AuthError::NoCredentials));
        let (sigs, others): (Vec<_>, Vec<_>) = others.iter().partition(|(name, _)| *name == "sig");
        assert_every_parameter_is_signed(&original, &others);
        for (name, other) in sigs {
            assert_failed(&original.clone().query(name, other), other);
        }
    }
}

#[test]
fn account_sas_fields() {
    let text = str::to_owned;
    let least = AccountSasFields {
        version: text("2020-12-06"),
        services: text("t"),
        resource_types: text("o"),
        permissions: text("r"),
        expiry: text("2099-01-01T00:00:00Z"),
        ..AccountSasFields::default()
    };
    let full = AccountSasFields {
        start: text("2022-01-01T00:00:00Z"),
        ip: text("192.0.2.1"),
        protocol: text("https"),
        encryption_scope: text("scope"),
        ..least.clone()
    };
    let others = [
        ("sv", "2021-02-12"),
        ("sv", "2019-02-02"),
        ("ss", "bt"),
        ("srt", "sco"),
        ("sp", "rw"),
        ("st", "2021-01-01T00:00:00Z"),
        ("se", "2099-01-02T00:00:00Z"),
        ("sip", "0.0.0.0-255.255.255.255"),
        ("spr", "https,http"),
        ("ses", "other"),
    ];
    for fields in [full, least] {
        let original = Sent::with_token(&sign::account_sas(ACCOUNT, &key(), &fields));
        assert_every_parameter_is_signed(&original, &others);
    }
}

/// The Queue service takes names of parameters in any case, so the short form signs `comp` in any case.
#[test]
fn comp_is_signed_in_any_case() {
    let queue =
        || signed(Scheme::SharedKeyLite, Sent::to_queue("PUT", "/devstoreaccount1/q1", "q1"));
    assert!(queue().is_accepted());
    assert_failed(&queue().query("comp", "acl"), "comp");
    assert_failed(&queue().query("Comp", "acl"), "Comp");
    let named = signed(
        Scheme::SharedKeyLite,
        Sent::to_queue("PUT", "/devstoreaccount1/q1", "q1").query("COMP", "acl"),
    );
    assert!(named.is_accepted());
    assert_failed(&named.query("comp", "acl"), "twice");
    let table = signed(Scheme::SharedKeyLite, Sent::new("PUT", "/devstoreaccount1/People"));
    assert!(table.query("Comp", "acl").is_accepted(), "which means nothing to tables");
}

/// Two parameters of a queue's URL cannot be made one, nor one be hidden behind a name that only looks the same.
#[test]
fn parameters_cannot_be_joined() {
    let new = || Sent::to_queue("GET", "/devstoreaccount1/q1/messages", "q1");
    let both = new().query("numofmessages", "2").query("peekonly", "true");
    let good = signed(Scheme::SharedKey, both);
    assert!(good.is_accepted());
    for (name, value) in
        [("numofmessages", "2\npeekonly:true"), ("numofmessages:2\npeekonly", "true")]
    {
        let mut joined = good.clone();
        joined.query = vec![(name.to_owned(), value.to_owned())];
        let answer = joined.verify(&[&key()]);
        assert!(matches!(answer, Err(AuthError::Failed(_))), "{name}: {answer:?}");
    }
    let hidden = good.without_query("peekonly").query("pee\u{212A}only", "true");
    assert_failed(&hidden, "a letter whose lower case is k");
}

/// A line break within a field must not move text from one field into another.
#[test]
fn fields_cannot_be_shifted() {
    let fields = TableSasFields {
        version: "2013-08-15".to_owned(),
        table: "People".to_owned(),
        permissions: "r".to_owned(),
        expiry: "2099-01-01".to_owned(),
        start_partition: Some("A".to_owned()),
        start_row: Some("x\ny".to_owned()),
        ..TableSasFields::default()
    };
    assert_failed(&Sent::with_token(&sign::table_sas(ACCOUNT, &key(), &fields)), "line break");
}
