//! The bytes of an entry: one component for each property, and in a unique index what tells cut values apart.

use super::IndexKeys;
use super::component::{self, MISSING};
use crate::evaluate::Operand;
use ring::digest::{Context, SHA256};
use rowhouse_types::{Corrupt, EdmType, Row, ValueRef};

/// How much of the hash stands in an entry.
const HASH: usize = 16;

/// What the entity is entered under; none if it is not in the index.
///
/// An index that is not unique has an entry for every entity with its first property, a unique one for those that
/// have them all. Two entities have the same entry in a unique index just if they have the same values.
pub fn entry(keys: &IndexKeys, row: &Row<'_>) -> Result<Option<Vec<u8>>, Corrupt> {
    let mut entry = Vec::with_capacity(64);
    let mut cut = false;
    for (position, name) in keys.properties.iter().enumerate() {
        match Operand::of_row(row, name)? {
            Some(value) => cut |= component::write(&mut entry, value),
            None if position == 0 || keys.unique => return Ok(None),
            None => entry.push(MISSING),
        }
    }
    if keys.unique && cut {
        entry.extend(hash(keys, row)?);
    }
    Ok(Some(entry))
}

/// Stands for all values, none of them cut.
fn hash(keys: &IndexKeys, row: &Row<'_>) -> Result<[u8; HASH], Corrupt> {
    let mut context = Context::new(&SHA256);
    let mut add = |tag: u8, bytes: &[u8]| {
        context.update(&[tag]);
        context.update(&(bytes.len() as u64).to_be_bytes());
        context.update(bytes);
    };
    for name in &keys.properties {
        match Operand::of_row(row, name)? {
            None => add(MISSING, &[]),
            Some(Operand::Text(bytes)) => add(component::tag(EdmType::String), bytes),
            Some(Operand::Other(ValueRef::Binary(bytes))) => {
                add(component::tag(EdmType::Binary), bytes);
            }
            Some(Operand::Other(value)) => {
                let (component, _) = component::of(value);
                add(component[0], &component[1..]);
            }
        }
    }
    let mut hash = [0; HASH];
    hash.copy_from_slice(&context.finish().as_ref()[..HASH]);
    Ok(hash)
}
