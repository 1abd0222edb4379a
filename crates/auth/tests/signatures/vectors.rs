//! Signatures that were computed elsewhere.

use super::{ACCOUNT, DATE, Sent, key};
use rowhouse_auth::{AccountSasFields, Scheme, TableSasFields, sign};

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
