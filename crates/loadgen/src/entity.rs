//! The entities of every measurement: about 400 bytes of JSON with ten properties of mixed types.
//!
//! Everything in an entity follows from its key, except `Score`, which counts how often it was written; so a
//! reader can tell from an answer whether it is the right one.

use crate::digits::{push_number, push_padded};

/// Rows of a partition, unless a measurement is about something else.
pub(crate) const ROWS: u64 = 1000;

/// Where an entity is: its partition and its row, as numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) partition: u64,
    pub(crate) row: u64,
}

impl Key {
    /// The key of the n-th entity of a table with full partitions.
    pub(crate) fn nth(index: u64) -> Self {
        Self { partition: index / ROWS, row: index % ROWS }
    }

    /// Appends `table(PartitionKey='..',RowKey='..')` with a slash in front, as it stands in a URL.
    pub(crate) fn push_path(self, out: &mut Vec<u8>, table: &str) {
        out.push(b'/');
        out.extend_from_slice(table.as_bytes());
        out.extend_from_slice(b"(PartitionKey=%27");
        self.push_partition(out);
        out.extend_from_slice(b"%27,RowKey=%27");
        self.push_row(out);
        out.extend_from_slice(b"%27)");
    }

    /// Appends the PartitionKey.
    pub(crate) fn push_partition(self, out: &mut Vec<u8>) {
        out.push(b'p');
        push_padded(out, self.partition, 7);
    }

    /// Appends the RowKey.
    pub(crate) fn push_row(self, out: &mut Vec<u8>) {
        out.push(b'r');
        push_padded(out, self.row, 7);
    }

    /// What `Number` holds: another value for each entity of a table with full partitions.
    pub(crate) fn number(self) -> u64 {
        (self.partition.wrapping_mul(ROWS).wrapping_add(self.row)) % (1 << 31)
    }

    /// What `Bucket` holds: another value for each entity of a full partition.
    pub(crate) fn bucket(self) -> u64 {
        self.row % ROWS
    }

    /// Appends the part of an answer that only this entity has.
    pub(crate) fn push_mark(self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"\"Number\":");
        push_number(out, self.number());
        out.push(b',');
    }

    /// Appends the whole entity.
    pub(crate) fn push_entity(self, out: &mut Vec<u8>, revision: u64) {
        self.push_keys(out);
        out.extend_from_slice(b"\"Name\":\"Customer ");
        push_padded(out, self.number(), 10);
        out.extend_from_slice(b"\",\"City\":\"Little Rowhouse upon Sea ");
        push_padded(out, self.row % 97, 3);
        out.extend_from_slice(b"\",\"Number\":");
        push_number(out, self.number());
        out.extend_from_slice(b",\"Bucket\":");
        push_number(out, self.bucket());
        out.extend_from_slice(b",\"Active\":");
        out.extend_from_slice(if self.row.is_multiple_of(2) { b"true" } else { b"false" });
        out.extend_from_slice(b",\"Visits@odata.type\":\"Edm.Int64\",\"Visits\":\"");
        push_number(out, self.number() * 1_000_003);
        out.extend_from_slice(b"\",\"Since@odata.type\":\"Edm.DateTime\",\"Since\":\"");
        self.push_since(out);
        out.extend_from_slice(b"\",\"Id@odata.type\":\"Edm.Guid\",\"Id\":\"");
        self.push_id(out);
        out.extend_from_slice(b"\",\"Note\":\"as agreed, ring twice and leave it\",\"Score\":");
        push_number(out, revision);
        out.extend_from_slice(b".5}");
    }

    /// Appends a change of two properties.
    pub(crate) fn push_change(self, out: &mut Vec<u8>, revision: u64) {
        self.push_keys(out);
        out.extend_from_slice(b"\"Note\":\"as agreed, but do not leave it\",\"Score\":");
        push_number(out, revision);
        out.extend_from_slice(b".5}");
    }

    /// Appends what `Since` holds.
    pub(crate) fn push_since(self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"2024-01-");
        push_padded(out, 1 + self.row % 28, 2);
        out.extend_from_slice(b"T08:30:00Z");
    }

    /// Appends what `Id` holds.
    pub(crate) fn push_id(self, out: &mut Vec<u8>) {
        push_padded(out, self.partition % 100_000_000, 8);
        out.extend_from_slice(b"-1c2d-4e5f-8a9b-");
        push_padded(out, self.row % 1_000_000_000_000, 12);
    }

    fn push_keys(self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"PartitionKey\":\"");
        self.push_partition(out);
        out.extend_from_slice(b"\",\"RowKey\":\"");
        self.push_row(out);
        out.extend_from_slice(b"\",");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rowhouse_wire::entity;

    /// The server's own reader finds ten properties, and the size is what the reports say.
    #[test]
    fn an_entity_is_valid_and_of_the_promised_size() {
        for key in [Key::nth(0), Key::nth(123_456), Key { partition: 9_999_999, row: 9_999_999 }] {
            let mut out = Vec::new();
            key.push_entity(&mut out, 7);
            assert!((380..=430).contains(&out.len()), "{} bytes", out.len());
            let parsed = entity::read(&out).unwrap();
            assert_eq!(parsed.record.as_ref().len(), 10);
            let mut mark = Vec::new();
            key.push_mark(&mut mark);
            assert!(memchr::memmem::find(&out, &mark).is_some());
            out.clear();
            key.push_change(&mut out, 8);
            assert_eq!(entity::read(&out).unwrap().record.as_ref().len(), 2);
        }
    }
}
