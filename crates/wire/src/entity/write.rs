//! From records to the body of an answer.

use crate::json::writer::{self, Object};
use crate::media::Metadata;
use crate::select::Select;
use crate::uri;
use rowhouse_types::{
    Corrupt, EdmType, IsoText, Property, RecordRef, Row, StoredProperty, ValueRef,
};
use std::collections::HashMap;

/// What an answer needs to know beside the entities.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// URL of the service including the account, without a slash at the end.
    pub base: &'a str,
    /// Name of the account.
    pub account: &'a str,
    /// Name of the table as the request spelled it.
    pub table: &'a str,
    /// How much metadata.
    pub level: Metadata,
    /// Which properties; all if none is named.
    pub select: Option<&'a Select>,
}

/// Writes one entity as the whole answer. After an error `out` is as it was before.
pub fn write_one(out: &mut Vec<u8>, cx: &Context<'_>, row: &Row<'_>) -> Result<(), Corrupt> {
    let start = out.len();
    let mut object = Object::open(out);
    write_metadata(&mut object, cx, "/@Element");
    let result = write_members(&mut object, cx, row);
    object.close();
    if result.is_err() {
        out.truncate(start);
    }
    result
}

/// Writes one entity and nothing around it: its keys, its Timestamp if wanted, and every property with its type
/// unless JSON shows that. [`read`](super::read) reads the same record back. After an error `out` is as it was
/// before.
///
/// A Double always has its type: programs that pass JSON on often write `1.0` as `1`.
pub fn write_plain(out: &mut Vec<u8>, row: &Row<'_>, timestamp: bool) -> Result<(), Corrupt> {
    let start = out.len();
    let mut object = Object::open(out);
    object.text("PartitionKey", row.partition);
    object.text("RowKey", row.row);
    if timestamp {
        object.name("Timestamp", "@odata.type");
        writer::string(object.out, EdmType::DateTime.name());
        object.name("Timestamp", "");
        write_time(object.out, &row.record.timestamp().iso());
    }
    let mut result = Ok(());
    for property in row.record.iter() {
        match property {
            Ok(Property { name, value }) => {
                if !matches!(value.edm_type(), EdmType::String | EdmType::Int32 | EdmType::Boolean)
                {
                    object.name(name, "@odata.type");
                    writer::string(object.out, value.edm_type().name());
                }
                object.name(name, "");
                write_value(object.out, value);
            }
            Err(error) => result = Err(error),
        }
    }
    object.close();
    if result.is_err() {
        out.truncate(start);
    }
    result
}

/// Writes what the answer is about, unless nobody wants to know.
pub(crate) fn write_metadata(object: &mut Object<'_>, cx: &Context<'_>, suffix: &str) {
    if cx.level == Metadata::None {
        return;
    }
    object.name("odata.metadata", "");
    let out = &mut *object.out;
    out.push(b'"');
    writer::escaped(out, cx.base);
    out.extend_from_slice(b"/$metadata#");
    writer::escaped(out, cx.table);
    out.extend_from_slice(suffix.as_bytes());
    for (index, name) in cx.select.map_or(&[][..], Select::names).iter().enumerate() {
        out.extend_from_slice(if index == 0 { b"&$select=" } else { b"," });
        writer::escaped(out, name);
    }
    out.push(b'"');
}

/// Writes what an entity consists of: annotations, keys and Timestamp, properties.
pub(crate) fn write_members(
    object: &mut Object<'_>,
    cx: &Context<'_>,
    row: &Row<'_>,
) -> Result<(), Corrupt> {
    let time = row.record.timestamp().iso();
    if cx.level == Metadata::Full {
        object.name("odata.type", "");
        object.out.push(b'"');
        writer::escaped(object.out, cx.account);
        object.out.push(b'.');
        writer::escaped(object.out, cx.table);
        object.out.push(b'"');
        object.name("odata.id", "");
        write_address(object.out, Some(cx.base), cx.table, row);
    }
    if cx.level != Metadata::None {
        object.name("odata.etag", "");
        write_etag(object.out, &time);
    }
    if cx.level == Metadata::Full {
        object.name("odata.editLink", "");
        write_address(object.out, None, cx.table, row);
    }
    // System properties come first and in this order, wherever a selection names them.
    let selected = |name| cx.select.is_none_or(|select| select.contains(name));
    if selected("PartitionKey") {
        object.text("PartitionKey", row.partition);
    }
    if selected("RowKey") {
        object.text("RowKey", row.row);
    }
    if selected("Timestamp") {
        if cx.level == Metadata::Full {
            object.name("Timestamp", "@odata.type");
            writer::string(object.out, EdmType::DateTime.name());
        }
        object.name("Timestamp", "");
        write_time(object.out, &time);
    }
    match cx.select {
        None => {
            for property in row.record.stored() {
                write_property(object, cx.level, property?)?;
            }
        }
        Some(select) => {
            let find = finder(row.record, select)?;
            for name in custom_names(select) {
                if let Some((edm_type, value)) = find(name)? {
                    let name = name.as_bytes();
                    write_property(object, cx.level, StoredProperty { name, edm_type, value })?;
                } else {
                    object.name(name, "");
                    object.out.extend_from_slice(b"null");
                }
            }
        }
    }
    Ok(())
}

/// Most names that are looked up one after the other, each by a walk through the record. A table takes longer to make than
/// these walks.
const WALKS_MAX: usize = 16;

/// Type and value of a property, by its name.
type Found<'a> = Option<(EdmType, &'a [u8])>;

/// Looks up selected properties of a record, in time that grows with the number of names plus the number of properties.
fn finder<'a>(
    record: RecordRef<'a>,
    select: &Select,
) -> Result<impl Fn(&str) -> Result<Found<'a>, Corrupt>, Corrupt> {
    let mut table = HashMap::new();
    let walks = select.names().len() <= WALKS_MAX;
    if !walks {
        for property in record.stored() {
            let StoredProperty { name, edm_type, value } = property?;
            table.insert(name, (edm_type, value));
        }
    }
    Ok(
        move |name: &str| {
            if walks { record.find(name) } else { Ok(table.get(name.as_bytes()).copied()) }
        },
    )
}

/// What is selected of an entity beside its keys and its Timestamp.
pub(super) fn custom_names(select: &Select) -> impl Iterator<Item = &str> {
    let names = select.names().iter().map(|name| &**name);
    names.filter(|name| !matches!(*name, "PartitionKey" | "RowKey" | "Timestamp"))
}

fn write_address(out: &mut Vec<u8>, base: Option<&str>, table: &str, row: &Row<'_>) {
    out.push(b'"');
    if let Some(base) = base {
        writer::escaped(out, base);
        out.push(b'/');
    }
    uri::write_entity_path(out, table, row.partition, row.row);
    out.push(b'"');
}

/// The text of [`rowhouse_types::Etag`] inside JSON.
fn write_etag(out: &mut Vec<u8>, time: &IsoText) {
    // The colons are always in the same places.
    let time = time.as_bytes();
    for piece in
        [b"\"W/\\\"datetime'", &time[..13], b"%3A", &time[14..16], b"%3A", &time[17..], b"'\\\"\""]
    {
        out.extend_from_slice(piece);
    }
}

fn write_time(out: &mut Vec<u8>, time: &IsoText) {
    out.push(b'"');
    out.extend_from_slice(time.as_bytes());
    out.push(b'"');
}

/// Writes a property, and its type before it where JSON does not show the type.
fn write_property(
    object: &mut Object<'_>,
    level: Metadata,
    property: StoredProperty<'_>,
) -> Result<(), Corrupt> {
    let StoredProperty { name, edm_type, value } = property;
    if edm_type == EdmType::String {
        object.stored_name(name, None)?;
        let out = &mut *object.out;
        out.push(b'"');
        writer::escaped_bytes(out, value).map_err(|_| Corrupt::STRING)?;
        out.push(b'"');
        return Ok(());
    }
    let value = ValueRef::decode(edm_type, value)?;
    let hidden = match value {
        ValueRef::String(_) | ValueRef::Int32(_) | ValueRef::Boolean(_) => false,
        ValueRef::Double(value) => !value.is_finite(),
        ValueRef::Int64(_) | ValueRef::DateTime(_) | ValueRef::Guid(_) | ValueRef::Binary(_) => {
            true
        }
    };
    let annotation = hidden && level != Metadata::None;
    object.stored_name(name, annotation.then_some(edm_type))?;
    write_value(object.out, value);
    Ok(())
}

fn write_value(out: &mut Vec<u8>, value: ValueRef<'_>) {
    match value {
        ValueRef::String(text) => writer::string(out, text),
        ValueRef::Int32(value) => writer::integer(out, value),
        ValueRef::Int64(value) => {
            out.push(b'"');
            writer::integer(out, value);
            out.push(b'"');
        }
        ValueRef::Boolean(value) => out.extend_from_slice(if value { b"true" } else { b"false" }),
        ValueRef::Double(value) if value.is_finite() => writer::finite(out, value),
        ValueRef::Double(value) if value.is_nan() => out.extend_from_slice(b"\"NaN\""),
        ValueRef::Double(value) if value > 0.0 => out.extend_from_slice(b"\"Infinity\""),
        ValueRef::Double(_) => out.extend_from_slice(b"\"-Infinity\""),
        ValueRef::DateTime(value) => write_time(out, &value.iso()),
        ValueRef::Guid(value) => {
            out.push(b'"');
            out.extend_from_slice(&value.text());
            out.push(b'"');
        }
        ValueRef::Binary(bytes) => {
            out.push(b'"');
            writer::base64(out, bytes);
            out.push(b'"');
        }
    }
}
