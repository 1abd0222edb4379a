//! A data file that Azurite itself wrote, from entities that the Python SDK sent it.

use rowhouse_client::Entity;
use rowhouse_client::files::{AzuriteReader, Beside, Rows as _};
use rowhouse_types::{Guid, StoredPolicy, Timestamp, Value};
use std::path::Path;

fn rows(account: &str) -> (Vec<String>, Vec<Entity>) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/azurite-3.37.0.json");
    let mut reader = AzuriteReader::open(&path, account).unwrap();
    let tables = reader.tables().iter().map(ToString::to_string).collect();
    let mut entities = Vec::new();
    while let Some(row) = reader.next_row().unwrap() {
        assert_eq!(row.table.as_deref(), Some("Everything"));
        entities.push(row.entity.unwrap());
    }
    (tables, entities)
}

fn properties(entity: &Entity) -> Vec<(String, Value)> {
    let all = entity.record.as_ref().iter().map(|property| property.unwrap());
    all.map(|property| (property.name.to_owned(), property.value.to_owned())).collect()
}

#[test]
fn every_type_is_what_it_was() {
    let (tables, entities) = rows("devstoreaccount1");
    assert_eq!(tables, ["Everything", "Empty"]);
    let [all, bare, merged] = entities.as_slice() else { panic!("three entities") };
    let guid = Value::Guid(Guid::parse("c9da6455-213d-42c9-9a79-3e9149a57833").unwrap());
    let when = Timestamp::parse_iso("2020-01-02T03:04:05.123456Z").unwrap();
    let expected = [
        ("Text", Value::String("it's \"quoted\", é😀\r\n".into())),
        ("EmptyText", Value::String("".into())),
        ("Int32", Value::Int32(-7)),
        ("Int64", Value::Int64(9_007_199_254_740_993)),
        ("Double", Value::Double(1.0)),
        ("Half", Value::Double(0.5)),
        ("Huge", Value::Double(1e300)),
        ("Infinite", Value::Double(f64::NEG_INFINITY)),
        ("Yes", Value::Boolean(true)),
        ("When", Value::DateTime(when)),
        ("Guid", guid.clone()),
        ("Bytes", Value::Binary([0, 1, 255].into())),
        ("NoBytes", Value::Binary([].into())),
    ];
    let (nan, rest): (Vec<_>, Vec<_>) =
        properties(all).into_iter().partition(|(name, _)| name == "NotANumber");
    assert!(matches!(nan[0].1, Value::Double(value) if value.is_nan()));
    assert_eq!(rest, expected.map(|(name, value)| (name.to_owned(), value)));
    assert_eq!(
        (&*bare.partition, &*bare.row, bare.record.as_ref().len()),
        ("", "empty partition", 0)
    );
    let expected = [
        ("A", Value::Int32(1)),
        ("G", guid),
        ("D", Value::Double(2.0)),
        ("L", Value::Int64(5)),
        ("B", Value::Double(2.5)),
        ("C", Value::String("x".into())),
    ];
    assert_eq!(properties(merged), expected.map(|(name, value)| (name.to_owned(), value)));
}

#[test]
fn another_account_has_nothing() {
    let (tables, entities) = rows("other");
    assert!(tables.is_empty() && entities.is_empty());
}

/// Written by Azurite for a table with two policies, one without, and service properties with a CORS rule.
#[test]
fn policies_are_read_and_the_rest_is_told() {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/azurite-3.37.0-policies.json");
    let mut reader = AzuriteReader::open(&path, "devstoreaccount1").unwrap();
    let Beside { policies, has_properties, accounts } = reader.take_beside();
    assert!(has_properties && accounts.is_empty());
    let [(table, policies)] = policies.as_slice() else { panic!("one table: {policies:?}") };
    let policy = |id: &str, start, permission: &str| StoredPolicy {
        id: id.into(),
        start: Some(Timestamp::parse_iso(start).unwrap()),
        expiry: Some(Timestamp::parse_iso("2036-01-02T00:00:00Z").unwrap()),
        permission: Some(permission.into()),
    };
    let expected = [
        policy("readers", "2026-01-02T03:04:05Z", "r"),
        policy("writers", "2026-01-02T00:00:00Z", "raud"),
    ];
    assert_eq!((&**table, policies.as_deref()), ("Guarded", Ok(&expected[..])));
    let Beside { policies, has_properties, accounts } =
        AzuriteReader::open(&path, "other").unwrap().take_beside();
    assert!(policies.is_empty() && !has_properties);
    assert_eq!(accounts.into_iter().collect::<Vec<_>>(), ["devstoreaccount1"]);
}

/// Another program may have written the file anew, in another order: no entity is left out silently.
#[test]
fn objects_before_the_name_of_their_table_are_refused() {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("azurite-out-of-order.json");
    let file = r#"{"collections":[{"data":[{"PartitionKey":"p"}],"name":"devstoreaccount1$T"}]}"#;
    std::fs::write(&path, file).unwrap();
    let refusal = AzuriteReader::open(&path, "devstoreaccount1").unwrap_err().to_string();
    assert!(refusal.contains("objects before its name"), "{refusal}");
}
