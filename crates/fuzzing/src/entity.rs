use rowhouse_types::{Property, Record, Row, ValueRef};
use rowhouse_wire::entity::{self, Context};
use rowhouse_wire::media::Metadata;
use rowhouse_wire::tables;

/// Entity JSON: an entity survives being written at every metadata level and read again.
pub fn entity(data: &[u8]) {
    let _ = tables::read_create(data);
    let Ok(body) = entity::read(data) else { return };
    let partition = body.partition.as_deref().unwrap_or("p");
    let row = body.row.as_deref().unwrap_or("r");
    for level in [Metadata::None, Metadata::Minimal, Metadata::Full] {
        let context = Context {
            base: "http://127.0.0.1:10002/acct",
            account: "acct",
            table: "table",
            level,
            select: None,
        };
        let mut out = Vec::new();
        entity::write_one(
            &mut out,
            &context,
            &Row { partition, row, record: body.record.as_ref() },
        )
        .expect("a record that was just built is sound");
        let again = entity::read(&out).expect("what we write we can read");
        assert_eq!(again.partition.as_deref(), Some(partition));
        assert_eq!(again.row.as_deref(), Some(row));
        // Without metadata the types are not written; with it nothing may be lost.
        if level != Metadata::None {
            assert_same(&body.record, &again.record);
        }
    }
}

#[expect(clippy::float_cmp, reason = "a round trip keeps every digit")]
fn assert_same(left: &Record, right: &Record) {
    assert_eq!(left.as_ref().len(), right.as_ref().len());
    for (left, right) in left.as_ref().iter().zip(right.as_ref().iter()) {
        let (left, right): (Property<'_>, Property<'_>) =
            (left.expect("sound"), right.expect("sound"));
        assert_eq!(left.name, right.name);
        let same = match (left.value, right.value) {
            // Negative zero is written as zero.
            (ValueRef::Double(a), ValueRef::Double(b)) => a == b || (a.is_nan() && b.is_nan()),
            (a, b) => a == b,
        };
        assert!(same, "a value changed in a round trip");
    }
}
