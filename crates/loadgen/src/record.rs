//! The entities of every measurement as the store has them: what `entity` says in JSON, in typed values.

use crate::digits::push_padded;
use crate::entity::Key;
use rowhouse_types::{EntityKey, Guid, Record, RecordBuilder, Timestamp, ValueRef};

/// The key of an entity.
pub(crate) fn key(key: Key) -> EntityKey {
    let partition = text(|out| key.push_partition(out));
    let row = text(|out| key.push_row(out));
    EntityKey::new(&partition, &row).expect("letters and digits are a key")
}

/// The whole entity, as [`Key::push_entity`] says it.
pub(crate) fn entity(key: Key, revision: u64) -> Record {
    let name = text(|out| {
        out.extend_from_slice(b"Customer ");
        push_padded(out, key.number(), 10);
    });
    let city = text(|out| {
        out.extend_from_slice(b"Little Rowhouse upon Sea ");
        push_padded(out, key.row % 97, 3);
    });
    let id = text(|out| key.push_id(out));
    let number = key.number();
    let mut builder = RecordBuilder::with_room(10, 60, 200);
    let mut push = |name, value| {
        builder.push_distinct(name, value).expect("ten small values are within the limits");
    };
    push("Name", ValueRef::String(&name));
    push("City", ValueRef::String(&city));
    push("Number", ValueRef::Int32(int32(number)));
    push("Bucket", ValueRef::Int32(int32(key.bucket())));
    push("Active", ValueRef::Boolean(key.row.is_multiple_of(2)));
    push("Visits", ValueRef::Int64((number * 1_000_003).cast_signed()));
    push("Since", ValueRef::DateTime(since(key)));
    push("Id", ValueRef::Guid(Guid::parse(&id).expect("it is written as a Guid")));
    push("Note", ValueRef::String("as agreed, ring twice and leave it"));
    push("Score", ValueRef::Double(score(revision)));
    builder.finish(Timestamp::default())
}

/// A change of two properties, as [`Key::push_change`] says it.
pub(crate) fn change(revision: u64) -> Record {
    let mut builder = RecordBuilder::with_room(2, 10, 60);
    let mut push = |name, value| {
        builder.push_distinct(name, value).expect("two small values are within the limits");
    };
    push("Note", ValueRef::String("as agreed, but do not leave it"));
    push("Score", ValueRef::Double(score(revision)));
    builder.finish(Timestamp::default())
}

/// Whether it is this entity.
pub(crate) fn is(record: &Record, key: Key) -> bool {
    record.as_ref().get("Number") == Ok(Some(ValueRef::Int32(int32(key.number()))))
}

fn text(write: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut out = Vec::with_capacity(40);
    write(&mut out);
    String::from_utf8(out).expect("letters and digits are text")
}

fn int32(number: u64) -> i32 {
    i32::try_from(number).expect("below 2^31")
}

fn score(revision: u64) -> f64 {
    revision as f64 + 0.5
}

fn since(key: Key) -> Timestamp {
    let text = text(|out| key.push_since(out));
    Timestamp::parse_iso(&text).expect("it is written as a time")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever writes it, the store gets the same.
    #[test]
    fn a_record_is_what_the_server_reads() {
        for at in [Key::nth(0), Key::nth(123_456), Key { partition: 9_999_999, row: 9_999_999 }] {
            let mut json = Vec::new();
            at.push_entity(&mut json, 7);
            let read = rowhouse_wire::entity::read(&json).unwrap();
            assert_eq!(read.record, entity(at, 7));
            assert!(is(&read.record, at));
            json.clear();
            at.push_change(&mut json, 8);
            assert_eq!(rowhouse_wire::entity::read(&json).unwrap().record, change(8));
        }
        assert!(!is(&entity(Key::nth(1), 0), Key::nth(2)));
    }
}
