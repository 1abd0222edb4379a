//! Tells whether two tables hold the same, in whatever order they are read.
//!
//! Each entity has a digest of its keys and its properties in the order of their names, types included and
//! the Timestamp not. The digest of a table is the sum of those of its entities, so that ranges may be added
//! up as they come.

use crate::entity::Entity;
use ring::digest::{Context, SHA256};
use rowhouse_types::ValueRef;
use serde::{Deserialize, Serialize};
use std::fmt;

/// How many entities, and a digest of all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Digest {
    /// How many.
    pub entities: u64,
    /// The sum of their digests, lowest part first.
    sum: [u64; 4],
}

impl Digest {
    /// Adds one entity.
    pub fn add(&mut self, entity: &Entity) {
        self.merge(&of(entity));
    }

    /// Adds all entities of another.
    pub fn merge(&mut self, other: &Self) {
        self.entities += other.entities;
        let mut carry = false;
        for (mine, theirs) in self.sum.iter_mut().zip(other.sum) {
            let (sum, first) = mine.overflowing_add(theirs);
            let (sum, second) = sum.overflowing_add(u64::from(carry));
            (*mine, carry) = (sum, first || second);
        }
    }
}

/// Sixteen digits, enough for people to compare.
impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.sum[3])
    }
}

/// The digest of a single entity.
pub(crate) fn of(entity: &Entity) -> Digest {
    let mut context = Context::new(&SHA256);
    let mut field = |bytes: &[u8]| {
        context.update(&(bytes.len() as u64).to_le_bytes());
        context.update(bytes);
    };
    field(entity.partition.as_bytes());
    field(entity.row.as_bytes());
    let record = entity.record.as_ref();
    let mut properties: Vec<_> = record.iter().flatten().collect();
    properties.sort_unstable_by_key(|property| property.name);
    for property in properties {
        field(property.name.as_bytes());
        field(&[property.value.edm_type() as u8]);
        match property.value {
            ValueRef::String(text) => field(text.as_bytes()),
            ValueRef::Int32(n) => field(&n.to_le_bytes()),
            ValueRef::Int64(n) => field(&n.to_le_bytes()),
            // One NaN and one zero: the protocol knows no others.
            ValueRef::Double(n) if n.is_nan() => field(b"NaN"),
            ValueRef::Double(n) => field(&(n + 0.0).to_le_bytes()),
            ValueRef::Boolean(b) => field(&[u8::from(b)]),
            ValueRef::DateTime(t) => field(&t.ticks().to_le_bytes()),
            ValueRef::Guid(g) => field(&g.0),
            ValueRef::Binary(bytes) => field(bytes),
        }
    }
    let hash = context.finish();
    let mut sum = [0; 4];
    for (part, bytes) in sum.iter_mut().zip(hash.as_ref().chunks_exact(8)) {
        *part = u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    }
    Digest { entities: 1, sum }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(json: &[&str]) -> Digest {
        let mut all = Digest::default();
        for json in json {
            all.add(&Entity::from_json(json.as_bytes()).unwrap());
        }
        all
    }

    #[test]
    fn order_and_time_do_not_count() {
        let a =
            r#"{"PartitionKey":"p","RowKey":"1","A":1,"B":"x","Timestamp":"2020-01-01T00:00:00Z"}"#;
        let a_again = r#"{"PartitionKey":"p","RowKey":"1","B":"x","A":1}"#;
        let b = r#"{"PartitionKey":"p","RowKey":"2"}"#;
        assert_eq!(digest(&[a, b]), digest(&[b, a_again]));
        assert_eq!(digest(&[a, b]).entities, 2);
        let mut halves = digest(&[a]);
        halves.merge(&digest(&[b]));
        assert_eq!(halves, digest(&[a, b]));
    }

    #[test]
    fn everything_else_counts() {
        let base = digest(&[r#"{"PartitionKey":"p","RowKey":"1","A":1}"#]);
        for other in [
            r#"{"PartitionKey":"p","RowKey":"1","A":2}"#,
            r#"{"PartitionKey":"p","RowKey":"1","A":1.0}"#,
            r#"{"PartitionKey":"p","RowKey":"1","A@odata.type":"Edm.Int64","A":"1"}"#,
            r#"{"PartitionKey":"p","RowKey":"1","a":1}"#,
            r#"{"PartitionKey":"p1","RowKey":"","A":1}"#,
            r#"{"PartitionKey":"p","RowKey":"1"}"#,
        ] {
            assert_ne!(digest(&[other]), base, "{other}");
        }
        let twice = r#"{"PartitionKey":"p","RowKey":"1"}"#;
        assert_ne!(digest(&[twice, twice]), Digest::default(), "a pair does not cancel itself out");
    }
}
