//! A page of entities in two buffers instead of three allocations each.

use crate::record::{Corrupt, RecordRef};

/// An entity as it stands in a page or a read buffer.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// PartitionKey.
    pub partition: &'a str,
    /// RowKey.
    pub row: &'a str,
    /// Everything else.
    pub record: RecordRef<'a>,
}

/// Entities in the order in which they were pushed.
#[derive(Clone, Debug, Default)]
pub struct Rows {
    keys: String,
    records: Vec<u8>,
    ends: Vec<Ends>,
}

/// Where an entry ends; it starts where the one before ended.
#[derive(Clone, Copy, Debug, Default)]
struct Ends {
    partition: usize,
    row: usize,
    record: usize,
}

impl Rows {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a copy.
    pub fn push(&mut self, row: &Row<'_>) {
        self.keys.push_str(row.partition);
        let partition = self.keys.len();
        self.keys.push_str(row.row);
        self.records.extend_from_slice(row.record.as_bytes());
        self.ends.push(Ends { partition, row: self.keys.len(), record: self.records.len() });
    }

    /// Number of entities.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Bytes held: keys and records.
    pub fn byte_len(&self) -> usize {
        self.keys.len() + self.records.len()
    }

    /// Every entity in order. An error is a record that does not decode.
    pub fn iter(&self) -> impl Iterator<Item = Result<Row<'_>, Corrupt>> {
        self.iter_from(0)
    }

    /// The entities from a position on, in order.
    pub fn iter_from(&self, position: usize) -> impl Iterator<Item = Result<Row<'_>, Corrupt>> {
        let (before, rest) = self.ends.split_at(position.min(self.ends.len()));
        let mut start = before.last().copied().unwrap_or_default();
        rest.iter().map(move |&end| {
            let from = std::mem::replace(&mut start, end);
            Ok(Row {
                partition: &self.keys[from.row..end.partition],
                row: &self.keys[end.partition..end.row],
                record: RecordRef::parse(&self.records[from.record..end.record])?,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::RecordBuilder;
    use crate::time::Timestamp;
    use crate::value::ValueRef;

    #[test]
    fn rows_keep_order_and_content() {
        let mut rows = Rows::new();
        for n in 0..3 {
            let mut builder = RecordBuilder::new();
            builder.push("n", ValueRef::Int32(n)).unwrap();
            let record = builder.finish(Timestamp::EDM_MIN);
            rows.push(&Row { partition: "", row: &format!("r{n}"), record: record.as_ref() });
        }
        let seen: Vec<_> = rows
            .iter()
            .map(|row| row.unwrap())
            .map(|row| (row.partition, row.row, row.record.get("n").unwrap()))
            .collect();
        let n = |n| Some(ValueRef::Int32(n));
        assert_eq!(seen, [("", "r0", n(0)), ("", "r1", n(1)), ("", "r2", n(2))]);
        for position in 0..5 {
            let rest: Vec<_> = rows.iter_from(position).map(|row| row.unwrap().row).collect();
            assert_eq!(rest, ["r0", "r1", "r2"][position.min(3)..]);
        }
    }
}
