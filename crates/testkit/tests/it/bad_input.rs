//! Bodies and keys that are wrong or extreme: a clear error, no panic, no growing memory, the next request
//! served.

use rowhouse_testkit::{Operation, Victim, entity_path, multipart};
use serde_json::json;
use std::fmt::Write as _;

#[test]
fn malformed_json() {
    let mut victim = Victim::start();
    let deep = "[".repeat(100_000);
    let nested =
        format!("{{\"PartitionKey\":\"p\",\"RowKey\":\"x\",\"a\":{}", "{\"a\":".repeat(50_000));
    let long_number =
        format!("{{\"PartitionKey\":\"p\",\"RowKey\":\"x\",\"a\":{}}}", "9".repeat(100_000));
    let cases: &[(&str, &[u8])] = &[
        ("empty", b""),
        ("a space", b" "),
        ("cut", b"{\"PartitionKey\":\"p\",\"RowKey\":\"x"),
        ("no object", b"[]"),
        ("a number", b"17"),
        ("null", b"null"),
        ("trailing comma", b"{\"PartitionKey\":\"p\",\"RowKey\":\"x\",}"),
        ("more behind it", b"{\"PartitionKey\":\"p\",\"RowKey\":\"x\"}}"),
        ("two objects", b"{\"PartitionKey\":\"p\",\"RowKey\":\"x\"}{}"),
        ("single quotes", b"{'PartitionKey':'p','RowKey':'x'}"),
        ("no keys", b"{\"a\":1}"),
        ("null key", b"{\"PartitionKey\":null,\"RowKey\":\"x\"}"),
        ("number as key", b"{\"PartitionKey\":1,\"RowKey\":\"x\"}"),
        ("object as value", b"{\"PartitionKey\":\"p\",\"RowKey\":\"x\",\"a\":{}}"),
        ("array as value", b"{\"PartitionKey\":\"p\",\"RowKey\":\"x\",\"a\":[1]}"),
        ("key twice", b"{\"PartitionKey\":\"p\",\"PartitionKey\":\"q\",\"RowKey\":\"x\"}"),
        ("property twice", b"{\"PartitionKey\":\"p\",\"RowKey\":\"x\",\"a\":1,\"a\":2}"),
        ("bad escape", b"{\"PartitionKey\":\"p\",\"RowKey\":\"x\",\"a\":\"\\q\"}"),
        ("half a surrogate", b"{\"PartitionKey\":\"p\",\"RowKey\":\"x\",\"a\":\"\\ud800\"}"),
        ("control character", b"{\"PartitionKey\":\"p\",\"RowKey\":\"x\",\"a\":\"\x01\"}"),
        ("NaN", b"{\"PartitionKey\":\"p\",\"RowKey\":\"x\",\"a\":NaN}"),
        ("01", b"{\"PartitionKey\":\"p\",\"RowKey\":\"x\",\"a\":01}"),
        ("bad name", b"{\"PartitionKey\":\"p\",\"RowKey\":\"x\",\"a-b\":1}"),
        ("unknown type", b"{\"PartitionKey\":\"p\",\"RowKey\":\"x\",\"a@odata.type\":\"Edm.X\",\"a\":1}"),
        ("no Guid", b"{\"PartitionKey\":\"p\",\"RowKey\":\"x\",\"a@odata.type\":\"Edm.Guid\",\"a\":\"zzz\"}"),
        ("no Binary", b"{\"PartitionKey\":\"p\",\"RowKey\":\"x\",\"a@odata.type\":\"Edm.Binary\",\"a\":\"%%%\"}"),
        ("no Int64", b"{\"PartitionKey\":\"p\",\"RowKey\":\"x\",\"a@odata.type\":\"Edm.Int64\",\"a\":\"1e9\"}"),
        ("no date", b"{\"PartitionKey\":\"p\",\"RowKey\":\"x\",\"a@odata.type\":\"Edm.DateTime\",\"a\":\"soon\"}"),
        ("not UTF-8", b"{\"PartitionKey\":\"p\",\"RowKey\":\"x\",\"a\":\"\xFF\xFE\"}"),
        ("overlong UTF-8", b"{\"PartitionKey\":\"p\",\"RowKey\":\"x\",\"a\":\"\xC0\xAF\"}"),
        ("UTF-16", b"\xFF\xFE{\0\"\0P\0"),
        ("100,000 brackets", deep.as_bytes()),
        ("50,000 objects", nested.as_bytes()),
        ("a number of 100,000 digits", long_number.as_bytes()),
        ("not JSON at all", b"PartitionKey=p&RowKey=x"),
    ];
    for (what, body) in cases {
        let response = victim.post("Things", "application/json", body);
        victim.refused(what, &response);
    }
    let found = victim.client.get("Things", "p", "x");
    assert_eq!(found.status, 404, "nothing of it was stored: {}", found.text());
    for (what, body) in
        [("no name", &b"{}"[..]), ("bad name", b"{\"TableName\":\"a b\"}"), ("cut", b"{\"Tab")]
    {
        let response = victim.post("Tables", "application/json", body);
        victim.refused(&format!("table, {what}"), &response);
    }
    for (what, body) in [
        ("cut", "<SignedIdentifiers><SignedIdent"),
        ("other document", "<a/>"),
        (
            "a document type",
            "<!DOCTYPE a [<!ENTITY b \"c\">]><SignedIdentifiers>&b;</SignedIdentifiers>",
        ),
        ("text", "hello"),
    ] {
        let headers = [("Content-Type", "application/xml")];
        let response = victim.client.request("PUT", "Things?comp=acl", &headers, body.as_bytes());
        victim.refused(&format!("policies, {what}"), &response);
    }
    victim.unharmed();
}

#[test]
fn malformed_multipart() {
    let mut victim = Victim::start();
    let good = "multipart/mixed; boundary=batch_b";
    let (_, whole) = multipart(
        "http://localhost/devstoreaccount1",
        &[Operation::insert("Things", json!({ "PartitionKey": "p", "RowKey": "x" }))],
    );
    // Cut anywhere, the batch is refused or harmlessly understood, never half applied.
    for cut in (0..whole.len()).step_by(7) {
        let response = victim.post("$batch", good, &whole[..cut]);
        assert!(response.status < 500, "cut at {cut}: {}", response.text());
        if response.status == 202 {
            let path = entity_path("Things", "p", "x");
            let deleted = victim.client.delete(&path, "*").expect("answered");
            assert!(matches!(deleted.status, 204 | 404), "cut at {cut}: {}", deleted.text());
        }
    }
    let inner = |request: &str| {
        format!(
            "--batch_b\r\nContent-Type: multipart/mixed; boundary=changeset_c\r\n\r\n--changeset_c\r\n\
             Content-Type: application/http\r\n\r\n{request}\r\n--changeset_c--\r\n--batch_b--\r\n"
        )
    };
    let cases = [
        ("no boundary", "multipart/mixed", String::from_utf8_lossy(&whole).into_owned()),
        ("another type", "application/json", String::from_utf8_lossy(&whole).into_owned()),
        (
            "another boundary",
            "multipart/mixed; boundary=x",
            String::from_utf8_lossy(&whole).into_owned(),
        ),
        (
            "an endless boundary",
            &format!("multipart/mixed; boundary={}", "b".repeat(9_000)),
            "--b".into(),
        ),
        ("empty", good, String::new()),
        ("nothing inside", good, "--batch_b--\r\n".into()),
        ("an empty change set", good, inner("")),
        ("no request line", good, inner("hello")),
        ("an unknown verb", good, inner("BREW /devstoreaccount1/Things HTTP/1.1\r\n\r\n{}")),
        ("no path", good, inner("POST HTTP/1.1\r\n\r\n{}")),
        ("another account", good, inner("POST /other/Things HTTP/1.1\r\n\r\n{}")),
        ("a query inside", good, inner("GET /devstoreaccount1/Things() HTTP/1.1\r\n\r\n")),
        ("a batch inside", good, inner("POST /devstoreaccount1/$batch HTTP/1.1\r\n\r\n{}")),
        (
            "a table inside",
            good,
            inner("POST /devstoreaccount1/Tables HTTP/1.1\r\n\r\n{\"TableName\":\"Inner\"}"),
        ),
        (
            "bad percent",
            good,
            inner(
                "DELETE /devstoreaccount1/Things(PartitionKey='%zz',RowKey='x') HTTP/1.1\r\nIf-Match: *\r\n\r\n",
            ),
        ),
    ];
    for (what, content_type, body) in cases {
        let response = victim.post("$batch", content_type, body.as_bytes());
        if response.status == 202 {
            // The change set was understood, and its one part says what was wrong.
            assert!(response.text().contains("\"code\":\""), "{what}: {}", response.text());
            victim.still_serves(what);
        } else {
            victim.refused(what, &response);
        }
    }
    victim.unharmed();
}

#[test]
fn batches_of_100_000_operations() {
    let mut victim = Victim::start();
    let content_type = "multipart/mixed; boundary=b";
    let body = |count: usize| {
        let mut body = String::from("--b\nContent-Type: multipart/mixed; boundary=c\n\n");
        for n in 0..count {
            let _ = write!(
                body,
                "--c\n\nPUT /devstoreaccount1/Things(PartitionKey='p',RowKey='{n}') HTTP/1.1\n\n{{}}\n"
            );
        }
        body + "--c--\n--b--\n"
    };
    let whole = body(100_000);
    assert!(whole.len() > 4 << 20);
    let answer = victim.server.client().try_request(
        "POST",
        "$batch",
        &[("Content-Type", content_type)],
        whole.as_bytes(),
    );
    if let Ok(answer) = answer {
        assert_eq!(answer.status, 413, "{}", answer.text());
    }
    victim.still_serves("100,000 operations");
    // As many as fit into a body, and one more than allowed.
    for count in [40_000, 101] {
        let body = body(count);
        assert!(body.len() < 4 << 20);
        let answer = victim.post("$batch", content_type, body.as_bytes());
        assert!(
            answer.text().contains("exceeds the maximum 100 changes"),
            "{count}: {} {}",
            answer.status,
            answer.text()
        );
        victim.still_serves("too many operations");
    }
    assert_eq!(victim.server.client().query("Things", "").len(), 1, "none of it was stored");
    victim.unharmed();
}

#[test]
fn forbidden_characters_in_keys() {
    let mut victim = Victim::start();
    let controls = (0..=0x1F).chain(0x7F..=0x9F).filter_map(char::from_u32);
    for c in controls.chain("/\\#?".chars()) {
        let what = format!("U+{:04X}", c as u32);
        let bad = format!("a{c}b");
        for entity in [
            json!({ "PartitionKey": bad, "RowKey": "r" }),
            json!({ "PartitionKey": "p", "RowKey": bad }),
        ] {
            let answer = victim.client.insert("Things", &entity).expect("answered");
            assert_eq!(answer.status, 400, "{what}: {}", answer.text());
            assert!(answer.code().is_some(), "{what}");
        }
        let batch = victim.client.batch(&[
            Operation::insert("Things", json!({ "PartitionKey": "p", "RowKey": "fine" })),
            Operation::insert("Things", json!({ "PartitionKey": "p", "RowKey": bad })),
        ]);
        assert!(!batch.expect("answered").succeeded(), "{what}");
        for path in [entity_path("Things", &bad, "r"), entity_path("Things", "p", &bad)] {
            let answer = victim.client.request("GET", &path, &[], b"");
            assert!(matches!(answer.status, 400 | 404), "{what}: {}", answer.text());
            let answer = victim.client.update("PUT", &path, None, &json!({})).expect("answered");
            assert_eq!(answer.status, 400, "{what}: {}", answer.text());
        }
    }
    assert_eq!(victim.server.client().query("Things", "").len(), 1, "none of it was stored");
    victim.unharmed();
}

/// Every length from nothing to 1,024 in both halves, and one more.
#[test]
fn keys_of_every_length() {
    let mut victim = Victim::start();
    victim.client.create_table("Lengths");
    let row = |n: usize| "k".repeat(n);
    let lengths: Vec<usize> = (0..=1024).collect();
    for chunk in lengths.chunks(100) {
        let inserts: Vec<_> = chunk
            .iter()
            .map(|&n| {
                Operation::insert(
                    "Lengths",
                    json!({ "PartitionKey": "rows", "RowKey": row(n), "n": n }),
                )
            })
            .collect();
        let answer = victim.client.batch(&inserts).expect("answered");
        assert!(answer.succeeded(), "{}", answer.response.text());
    }
    for &n in &lengths {
        let entity = json!({ "PartitionKey": row(n), "RowKey": "r", "n": n });
        let answer = victim.client.insert("Lengths", &entity).expect("answered");
        assert_eq!(answer.status, 204, "{n}: {}", answer.text());
    }
    for &n in &lengths {
        for (partition, row) in [("rows", row(n).as_str()), (&row(n), "r")] {
            let found = victim.client.get("Lengths", partition, row);
            assert_eq!(found.status, 200, "{n}: {}", found.text());
            assert_eq!(found.json()["n"], n);
        }
    }
    let wide = "😀".repeat(512);
    let entity = json!({ "PartitionKey": wide, "RowKey": wide });
    assert_eq!(victim.client.insert("Lengths", &entity).expect("answered").status, 204);
    assert_eq!(victim.client.get("Lengths", &wide, &wide).status, 200);
    for long in [row(1025), "é".repeat(1025), "😀".repeat(513), row(100_000)] {
        for entity in [
            json!({ "PartitionKey": long, "RowKey": "r" }),
            json!({ "PartitionKey": "p", "RowKey": long }),
        ] {
            let answer = victim.client.insert("Lengths", &entity).expect("answered");
            victim.refused("a long key", &answer);
        }
    }
    assert_eq!(victim.client.query("Lengths", "").len(), 2 * lengths.len() + 1);
    victim.unharmed();
}
