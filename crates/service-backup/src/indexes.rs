//! Secondary indexes in a backup: what is declared, not the entries. Those are made again.

use crate::fields::{Fields, Offence, Put};
use rowhouse_store::{Conflict, Index, IndexId, IndexKeys, IndexState, Store, StoreError, TableId};
use rowhouse_types::{check_property_name, limits};

/// Backups before this version of the format have none.
pub(crate) const FIRST_VERSION_WITH_INDEXES: u32 = 2;

pub(crate) fn put(out: &mut Vec<u8>, indexes: &[Index]) {
    let count = |count: usize| u8::try_from(count).expect("indexes and properties are few");
    out.put_u8(count(indexes.len()));
    for Index { name, keys, .. } in indexes {
        out.put_short(name.as_str().as_bytes());
        out.put_u8(u8::from(keys.unique));
        out.put_u8(count(keys.properties.len()));
        for property in &keys.properties {
            out.put_short(property.as_bytes());
        }
    }
}

pub(crate) fn read(fields: &mut Fields<'_>) -> Result<Vec<Index>, Offence> {
    let count = usize::from(fields.u8()?);
    if limits::INDEXES_MAX < count {
        return Err("a table has more indexes than one can have");
    }
    let mut indexes: Vec<Index> = Vec::with_capacity(count);
    for _ in 0..count {
        let index = index(fields)?;
        if indexes.iter().any(|other| other.name == index.name) {
            return Err("two indexes of a table have the same name");
        }
        indexes.push(index);
    }
    Ok(indexes)
}

/// It has no id and no state outside a store.
fn index(fields: &mut Fields<'_>) -> Result<Index, Offence> {
    let name = fields.text()?.parse().map_err(|_| "an index has a name that none can have")?;
    let unique = match fields.u8()? {
        0 => false,
        1 => true,
        _ => return Err("what says whether an index is unique is neither 0 nor 1"),
    };
    let count = usize::from(fields.u8()?);
    if count == 0 || limits::INDEX_PROPERTIES_MAX < count {
        return Err("an index has a number of properties that none can have");
    }
    let mut properties: Vec<Box<str>> = Vec::with_capacity(count);
    for _ in 0..count {
        let property = fields.text()?;
        let is_legal = check_property_name(property).is_ok();
        if !is_legal || properties.iter().any(|other| **other == *property) {
            return Err("an index has a property that it cannot have");
        }
        properties.push(property.into());
    }
    let keys = IndexKeys { properties, unique };
    Ok(Index { id: IndexId(0), name, keys, state: IndexState::Building })
}

/// How many indexes were declared, and how many the store cannot keep.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Declared {
    pub(crate) kept: u64,
    pub(crate) left_out: u64,
}

/// Declares the indexes that a table had; those that are there were declared by an earlier attempt.
///
/// Entities come first: an index that is unique now need not have been when the backup that was begun with was taken.
pub(crate) async fn declare(
    store: &dyn Store,
    table: TableId,
    saved: &[Index],
) -> Result<Declared, StoreError> {
    let mut declared = Declared::default();
    for Index { name, keys, .. } in saved {
        match store.create_index(table, name, keys.clone()).await {
            Ok(_) | Err(StoreError::Rejected { reason: Conflict::IndexExists, .. }) => {
                declared.kept += 1;
            }
            Err(StoreError::Rejected { reason: Conflict::UniqueAcrossNodes, .. }) => {
                declared.left_out += 1;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(declared)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One whose name begins with `u` is unique.
    fn declared(name: &str, properties: &[&str]) -> Index {
        let properties = properties.iter().map(|name| Box::from(*name)).collect();
        let keys = IndexKeys { properties, unique: name.starts_with('u') };
        let name = name.parse().unwrap();
        Index { id: IndexId(0), name, keys, state: IndexState::Building }
    }

    /// As `docs/formats/backup.md` has them.
    #[test]
    fn definitions_are_these_bytes() {
        let mut bytes = Vec::new();
        put(&mut bytes, &[declared("by-n", &["n", "PartitionKey"]), declared("u", &["Näme"])]);
        let expected: [&[u8]; 4] = [
            b"\x02\x04\0by-n\0\x02\x01\0n",
            b"\x0c\0PartitionKey",
            b"\x01\0u\x01\x01",
            b"\x05\0N\xc3\xa4me",
        ];
        assert_eq!(bytes, expected.concat());
    }

    #[test]
    fn definitions_come_back() {
        let many = (0..limits::INDEXES_MAX).map(|n| declared(&format!("i{n}"), &["größe"]));
        let lists = [vec![], vec![declared("u", &["PartitionKey", "a", "b", "c"])], many.collect()];
        for list in lists {
            let mut bytes = Vec::new();
            put(&mut bytes, &list);
            let mut fields = Fields::new(&bytes);
            assert_eq!(read(&mut fields), Ok(list));
            assert!(fields.is_empty());
        }
    }

    #[test]
    fn what_no_table_can_have_is_noticed() {
        let many = (0..=limits::INDEXES_MAX).map(|n| declared(&format!("i{n}"), &["a"]));
        let cases = [
            ("more indexes", many.collect()),
            ("the same name", vec![declared("a", &["a"]), declared("a", &["b"])]),
            ("number of properties", vec![declared("a", &[])]),
            ("number of properties", vec![declared("a", &["a", "b", "c", "d", "e"])]),
            ("cannot have", vec![declared("a", &["a", "a"])]),
            ("cannot have", vec![declared("a", &["1"])]),
            ("cannot have", vec![declared("a", &[""])]),
        ];
        for (expected, list) in cases {
            let mut bytes = Vec::new();
            put(&mut bytes, &list);
            let offence = read(&mut Fields::new(&bytes)).unwrap_err();
            assert!(offence.contains(expected), "{expected}: {offence}");
        }
        let mut bytes = Vec::new();
        put(&mut bytes, &[declared("a", &["a"])]);
        let unique = bytes.iter().position(|&byte| byte == b'a').unwrap() + 1;
        bytes[unique] = 2;
        assert!(read(&mut Fields::new(&bytes)).unwrap_err().contains("neither 0 nor 1"));
        assert!(read(&mut Fields::new(&[1, 1, 0, b'/'])).unwrap_err().contains("a name"));
    }
}
