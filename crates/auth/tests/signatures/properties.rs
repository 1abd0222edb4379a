//! Whatever a client may send is answered, and whatever we sign is accepted.

use super::{ACCOUNT, DATE, Sent, key, now};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use rowhouse_auth::{AccountSasFields, Credentials, Scheme, TableSasFields, sign};
use rowhouse_types::{FoldedName, StoredPolicy};

/// Text that a key or an identifier may hold: no control characters.
fn text() -> impl Strategy<Value = String> {
    "[^\\p{C}]{1,8}"
}

/// Some letters of a word, in its order.
fn letters(word: &'static str) -> impl Strategy<Value = String> {
    let letters: Vec<char> = word.chars().collect();
    let len = letters.len();
    subsequence(letters, 1..=len).prop_map(String::from_iter)
}

fn version() -> impl Strategy<Value = String> {
    select(vec!["2015-04-05", "2015-12-11", "2019-02-02", "2020-12-06", "2026-04-06"])
        .prop_map(str::to_owned)
}

fn time() -> impl Strategy<Value = String> {
    select(vec!["2021-01-01", "2022-06-01T10:00Z", "2022-06-01T10:00:00.1234567+02:00"])
        .prop_map(str::to_owned)
}

fn or_empty(strategy: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    option::of(strategy).prop_map(Option::unwrap_or_default)
}

fn restrictions() -> impl Strategy<Value = (String, String)> {
    let ip = select(vec!["192.0.2.1", "10.0.0.0-10.255.255.255"]).prop_map(str::to_owned);
    let protocol = select(vec!["https", "https,http"]).prop_map(str::to_owned);
    (or_empty(ip), or_empty(protocol))
}

/// A key range in which no row key stands without its partition key.
fn range_end() -> impl Strategy<Value = (Option<String>, Option<String>)> {
    option::of((text(), option::of(text()))).prop_map(|end| match end {
        Some((partition, row)) => (Some(partition), row),
        None => (None, None),
    })
}

fn table_fields() -> impl Strategy<Value = TableSasFields> {
    let table = "[A-Za-z][A-Za-z0-9]{2,10}";
    let said = (letters("raud"), or_empty(time()), time(), or_empty(text()));
    (version(), table, said, restrictions(), range_end(), range_end()).prop_map(
        |(version, table, (permissions, start, expiry, policy_id), (ip, protocol), from, to)| {
            TableSasFields {
                version,
                table,
                permissions,
                start,
                expiry,
                policy_id,
                ip,
                protocol,
                start_partition: from.0,
                start_row: from.1,
                end_partition: to.0,
                end_row: to.1,
            }
        },
    )
}

fn account_fields() -> impl Strategy<Value = AccountSasFields> {
    let what = (letters("bqtf"), letters("sco"), letters("rwdxylacuptfi"));
    (version(), what, or_empty(time()), time(), restrictions(), or_empty(text())).prop_map(
        |(version, what, start, expiry, (ip, protocol), encryption_scope)| AccountSasFields {
            version,
            services: what.0,
            resource_types: what.1,
            permissions: what.2,
            start,
            expiry,
            ip,
            protocol,
            encryption_scope,
        },
    )
}

/// Runs everything that a server would with a request.
fn exercise(sent: &Sent) {
    let key = key();
    let _ = sent.verify(&[&key]);
    let peer = "192.0.2.1".parse().unwrap();
    match sent.view(rowhouse_auth::parse) {
        Ok(Credentials::AccountSas(sas)) => {
            let _ = sas.terms().check(now(), peer, false);
            let _ = sas.grant();
        }
        Ok(Credentials::TableSas(sas)) => {
            let policy = sas.policy_id().map(|id| StoredPolicy {
                id: id.into(),
                start: None,
                expiry: Some(now()),
                permission: Some("raud".into()),
            });
            if let Ok(terms) = sas.resolve(policy.as_ref()) {
                let _ = terms.check(now(), peer, false);
                let _ = sas.grant(&terms);
            }
        }
        _ => {}
    }
}

proptest! {
    #[test]
    fn any_header_is_answered(
        scheme in select(vec!["SharedKey ", "SharedKeyLite ", "Bearer ", "sharedkey", ""]),
        rest in "(devstoreaccount1)?:?\\PC{0,50}=?",
        date in "\\PC{0,30}",
        path in "/?\\PC{0,20}",
    ) {
        exercise(&Sent::new("GET", &path)
            .header("authorization", &format!("{scheme}{rest}"))
            .header("x-ms-date", &date));
    }

    #[test]
    fn any_query_is_answered(
        query in prop::collection::vec((
            select(vec!["sv", "ss", "srt", "sp", "st", "se", "sip", "spr", "ses", "si", "tn", "spk",
                "srk", "epk", "erk", "sig", "comp", "x"]),
            prop_oneof![
                "(?s).{0,12}",
                select(vec!["2019-02-02", "t", "sco", "r", "https", "1.2.3.4", "2099-01-01",
                    "9SjHnQ77zPy9wlz6gGjv2JNa4gteQAmB11gLX/93GV4="]).prop_map(str::to_owned),
            ],
        ), 0..14),
    ) {
        let mut sent = Sent::new("GET", "/Tables");
        sent.query = query.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        exercise(&sent);
    }

    #[test]
    fn a_signed_request_is_accepted(
        method in "[A-Z]{3,6}",
        path in "/[!-~]{0,30}",
        content_type in option::of("[ -~]{0,30}"),
        comp in option::of("[a-z]{0,8}"),
        lite: bool,
    ) {
        let mut sent = Sent::new(&method, &path).header("x-ms-date", DATE);
        if let Some(content_type) = content_type {
            sent = sent.header("content-type", &content_type);
        }
        if let Some(comp) = comp {
            sent = sent.query("comp", &comp);
        }
        let scheme = if lite { Scheme::SharedKeyLite } else { Scheme::SharedKey };
        let header = sent.view(|request| sign::shared_key(request, scheme, &key())).unwrap();
        let sent = sent.header("authorization", &header);
        prop_assert!(sent.is_accepted());
        prop_assert!(sent.verify(&[b"another key"]).is_err());
    }

    #[test]
    fn a_generated_table_sas_is_accepted(fields in table_fields()) {
        let sent = Sent::with_token(&sign::table_sas(ACCOUNT, &key(), &fields));
        let Ok(Credentials::TableSas(sas)) = sent.verify(&[b"other", &key()]) else {
            return Err(TestCaseError::fail("refused"));
        };
        prop_assert_eq!(sas.table(), FoldedName::of(&fields.table));
        prop_assert_eq!(sas.policy_id().unwrap_or_default(), fields.policy_id);
        prop_assert!(sent.verify(&[b"other"]).is_err());
    }

    #[test]
    fn a_generated_account_sas_is_accepted(fields in account_fields()) {
        let sent = Sent::with_token(&sign::account_sas(ACCOUNT, &key(), &fields));
        prop_assert!(matches!(sent.verify(&[&key()]), Ok(Credentials::AccountSas(_))));
        prop_assert!(sent.verify(&[b"other"]).is_err());
    }
}
