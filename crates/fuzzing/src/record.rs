use rowhouse_types::{RecordBuilder, RecordRef, ValueRef};

/// Stored records: bytes from a damaged disk decode, or fail with `Corrupt`.
///
/// A record that decodes completely survives being built again from its properties.
pub fn record(data: &[u8]) {
    let Ok(record) = RecordRef::parse(data) else { return };
    let Ok(properties) = record.iter().collect::<Result<Vec<_>, _>>() else { return };
    let _ = record.check_limits("partition", "row");
    assert_eq!(properties.len(), record.len());

    let mut builder = RecordBuilder::new();
    for property in &properties {
        let found = record.get(property.name).expect("every property was readable");
        assert!(found.is_some(), "a listed property must be found by its name");
        if builder.push(property.name, property.value).is_err() {
            return; // A name or value that no client could have stored.
        }
    }
    let again = builder.finish(record.timestamp());
    let pairs = again.as_ref().iter().map(|property| property.expect("just built"));
    for (left, right) in properties.iter().zip(pairs) {
        assert_eq!(left.name, right.name);
        assert!(same(left.value, right.value), "a value changed in a round trip");
    }
}

/// Equality by stored bits: NaN equals itself.
fn same(left: ValueRef<'_>, right: ValueRef<'_>) -> bool {
    match (left, right) {
        (ValueRef::Double(a), ValueRef::Double(b)) => a.to_bits() == b.to_bits(),
        (a, b) => a == b,
    }
}
