//! One value as it stands in an entry: a tag for its type, then bytes that sort as the values of the type do.
//!
//! No component is the beginning of another, so that entries of several properties sort property by property. Text and
//! Binary are cut to [`limits::INDEX_VALUE_BYTES_MAX`]; what was cut sorts after its own beginning and before everything
//! that is greater than both, so a component never contradicts the order of values: it may only leave it open.

use crate::evaluate::Operand;
use rowhouse_types::{EdmType, ValueRef, limits};

/// The property is not there: before every value.
pub(crate) const MISSING: u8 = 1;
/// Beyond every component.
pub(crate) const END: u8 = EdmType::Binary as u8 + 2;

/// In text, stands after a zero byte that belongs to the value.
const ESCAPED: u8 = 0xFF;
/// In text, stands after the zero byte that ends a whole value.
const WHOLE: u8 = 1;
/// In text, stands after the zero byte that ends a value of which the rest is not there.
const CUT: u8 = 2;

/// The tag of a type.
pub(crate) fn tag(edm_type: EdmType) -> u8 {
    edm_type as u8 + 1
}

/// Appends a component; true if the value was cut.
pub(crate) fn write(out: &mut Vec<u8>, value: Operand<'_>) -> bool {
    let value = match value {
        Operand::Text(bytes) => {
            out.push(tag(EdmType::String));
            return write_bytes(out, bytes);
        }
        Operand::Other(value) => value,
    };
    out.push(tag(value.edm_type()));
    match value {
        ValueRef::String(text) => return write_bytes(out, text.as_bytes()),
        ValueRef::Binary(bytes) => return write_bytes(out, bytes),
        ValueRef::Int32(n) => out.extend((n.cast_unsigned() ^ (1 << 31)).to_be_bytes()),
        ValueRef::Int64(n) => out.extend((n.cast_unsigned() ^ (1 << 63)).to_be_bytes()),
        ValueRef::Double(n) => out.extend(sortable(n).to_be_bytes()),
        ValueRef::Boolean(b) => out.push(u8::from(b)),
        ValueRef::DateTime(t) => out.extend(t.ticks().to_be_bytes()),
        ValueRef::Guid(g) => out.extend(g.0),
    }
    false
}

/// The component of a value, and whether it was cut.
pub(crate) fn of(value: ValueRef<'_>) -> (Vec<u8>, bool) {
    let mut bytes = Vec::new();
    let cut = write(&mut bytes, value.into());
    (bytes, cut)
}

/// From where up to where the components of all texts are that begin so, and whether there are others among them
/// because so much of them was cut.
pub(crate) fn beginning(prefix: &str) -> (Vec<u8>, Vec<u8>, bool) {
    let (component, cut) = of(ValueRef::String(prefix));
    if cut {
        let end = after(&component);
        return (component, end, true);
    }
    let beginning = &component[..component.len() - 2];
    match beginning {
        [tag] => (first(*tag), first(tag + 1), false),
        _ => (beginning.to_vec(), after_all(beginning), false),
    }
}

fn write_bytes(out: &mut Vec<u8>, bytes: &[u8]) -> bool {
    let end = out.len() + limits::INDEX_VALUE_BYTES_MAX;
    for &byte in bytes {
        let width = if byte == 0 { 2 } else { 1 };
        if end < out.len() + width {
            out.extend([0, CUT]);
            return true;
        }
        out.push(byte);
        if byte == 0 {
            out.push(ESCAPED);
        }
    }
    out.extend([0, WHOLE]);
    false
}

/// Bits that sort as the numbers do: both zeros are one, and so are all NaN, which are greater than anything.
fn sortable(n: f64) -> u64 {
    if n.is_nan() {
        return u64::MAX;
    }
    // Adding zero makes a positive zero of a negative one.
    let bits = (n + 0.0).to_bits();
    if bits >> 63 == 0 { bits | (1 << 63) } else { !bits }
}

/// The first place among the components of a tag.
pub(crate) fn first(tag: u8) -> Vec<u8> {
    let mut bytes = vec![tag];
    match width(tag) {
        Some(width) => bytes.resize(1 + width, 0),
        None => bytes.extend([0, WHOLE]),
    }
    bytes
}

/// How many bytes follow the tag; none if that depends on the value.
fn width(tag: u8) -> Option<usize> {
    Some(match tag.checked_sub(1).and_then(EdmType::from_tag) {
        None => 0,
        Some(EdmType::String | EdmType::Binary) => return None,
        Some(EdmType::Boolean) => 1,
        Some(EdmType::Int32) => 4,
        Some(EdmType::Int64 | EdmType::Double | EdmType::DateTime) => 8,
        Some(EdmType::Guid) => 16,
    })
}

/// The first place after a component.
pub(crate) fn after(component: &[u8]) -> Vec<u8> {
    let (&kind, payload) = component.split_first().expect("a component has a tag");
    if *component != [tag(EdmType::Boolean), u8::from(true)] {
        let mut next = payload.to_vec();
        for byte in next.iter_mut().rev() {
            *byte = byte.wrapping_add(1);
            if *byte != 0 {
                next.insert(0, kind);
                return next;
            }
        }
    }
    first(kind + 1)
}

/// The first place after everything that begins so.
pub(crate) fn after_all(beginning: &[u8]) -> Vec<u8> {
    let mut next = beginning.to_vec();
    while let Some(last) = next.pop() {
        if last < u8::MAX {
            next.push(last + 1);
            break;
        }
    }
    if next.len() == 1 { first(next[0]) } else { next }
}

/// How long the component is that these bytes begin with; none if they begin with a part of one.
pub(crate) fn length(bytes: &[u8]) -> Option<usize> {
    let (tag, payload) = bytes.split_first()?;
    if let Some(width) = width(*tag) {
        return (width <= payload.len()).then_some(1 + width);
    }
    let mut at = 0;
    loop {
        at += payload[at..].iter().position(|&byte| byte == 0)? + 2;
        match *payload.get(at - 1)? {
            ESCAPED => {}
            WHOLE | CUT => return Some(1 + at),
            _ => return None,
        }
    }
}

/// Whether the bytes are one component.
pub(crate) fn is_whole(bytes: &[u8]) -> bool {
    length(bytes) == Some(bytes.len())
}

/// Whether the component stands for a value that was cut.
pub(crate) fn is_cut(component: &[u8]) -> bool {
    component.first().is_some_and(|&tag| width(tag).is_none()) && component.ends_with(&[0, CUT])
}
