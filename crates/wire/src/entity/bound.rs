//! Whether a page fits into so many bytes of JSON, told without writing it.
//!
//! Never says so of a page that is longer, and looks at no more records than it takes: at none of most pages, at nearly all of
//! those that are as large as they may be. The property test `what_fits_is_not_longer` holds us to the first.

use super::page::{begin, end};
use super::write::{Context, custom_names, write_members};
use crate::json::writer::{self, Object};
use crate::media::Metadata;
use rowhouse_types::{Corrupt, EdmType, RecordBuilder, Row, Rows, StoredProperty, Timestamp};

/// Around the name of a property: a comma, quotes and a colon.
const AROUND_NAME: usize = ",\"\":".len();
/// What tells a type, beside the name of the property once more.
const ANNOTATION: usize = "@odata.type\":\"Edm.DateTime\",\"".len();

/// Whether all these entities certainly fit. Where it cannot be told, or a record does not decode, they may not.
pub fn fits(cx: &Context<'_>, count: Option<u64>, rows: &Rows, limit: usize) -> bool {
    proved(cx, count, rows, limit).unwrap_or(false)
}

/// How many bytes of JSON these entities are at most, whatever their records hold. Looks at none of them; `None` if it cannot be
/// told.
pub fn most_bytes(cx: &Context<'_>, count: Option<u64>, rows: &Rows) -> Option<usize> {
    unseen(cx, count, rows).ok()
}

fn unseen(cx: &Context<'_>, count: Option<u64>, rows: &Rows) -> Result<usize, Corrupt> {
    let mut around = Vec::new();
    begin(&mut around, cx, count);
    end(&mut around);
    Ok(around.len() + rows.len() * blank(cx)? + growth(cx.level) * rows.byte_len())
}

fn proved(
    cx: &Context<'_>,
    count: Option<u64>,
    rows: &Rows,
    limit: usize,
) -> Result<bool, Corrupt> {
    let mut most = unseen(cx, count, rows)?;
    for row in rows.iter() {
        if most <= limit {
            break;
        }
        let row = row?;
        let stored = row.partition.len() + row.row.len() + row.record.as_bytes().len();
        most = most - growth(cx.level) * stored + of_row(cx, &row)?;
    }
    Ok(most <= limit)
}

/// How many bytes a stored byte becomes at most, beside [`blank`]. In text and keys it is six, for `\u0000`; a property has
/// seven bytes beside its name and value, which is more than enough for what stands around those. Its name is written
/// twice where its type is told, and holds nothing that is escaped. Keys are written twice more in addresses, a byte as
/// three.
fn growth(level: Metadata) -> usize {
    match level {
        Metadata::None | Metadata::Minimal => 6,
        Metadata::Full => 12,
    }
}

/// What every entity takes: all but keys and properties, and all that is selected as if it were not there.
fn blank(cx: &Context<'_>) -> Result<usize, Corrupt> {
    // No time is longer than one with all its digits.
    let time = Timestamp::from_ticks(1).unwrap_or_default();
    let record = RecordBuilder::new().finish(time);
    let mut out = vec![b','];
    let mut object = Object::open(&mut out);
    write_members(&mut object, cx, &Row { partition: "", row: "", record: record.as_ref() })?;
    object.close();
    Ok(out.len())
}

fn of_row(cx: &Context<'_>, row: &Row<'_>) -> Result<usize, Corrupt> {
    let mut most = 0;
    for key in [row.partition, row.row] {
        most += writer::escaped_most(key.as_bytes());
        if cx.level == Metadata::Full {
            // In both addresses, every byte as `%` and two digits.
            most += 2 * 3 * key.len();
        }
    }
    match cx.select {
        None => {
            for property in row.record.stored() {
                most += of_property(cx.level, property?);
            }
        }
        Some(select) => {
            for name in custom_names(select) {
                if let Some((edm_type, value)) = row.record.find(name)? {
                    let name = name.as_bytes();
                    most += of_property(cx.level, StoredProperty { name, edm_type, value });
                }
            }
        }
    }
    Ok(most)
}

fn of_property(level: Metadata, property: StoredProperty<'_>) -> usize {
    let StoredProperty { name, edm_type, value } = property;
    let name = writer::escaped_most(name);
    let (annotated, length) = match edm_type {
        EdmType::String => (false, 2 + writer::escaped_most(value)),
        EdmType::Int32 => (false, "-2147483648".len()),
        EdmType::Boolean => (false, "false".len()),
        EdmType::Double => (true, "-2.2250738585072014E-308".len()),
        EdmType::Int64 => (true, "\"-9223372036854775808\"".len()),
        EdmType::DateTime => (true, "\"0001-01-01T00:00:00.0000001Z\"".len()),
        EdmType::Guid => (true, "\"00000000-0000-0000-0000-000000000000\"".len()),
        EdmType::Binary => (true, 2 + value.len().div_ceil(3) * 4),
    };
    let annotation = if annotated && level != Metadata::None { name + ANNOTATION } else { 0 };
    AROUND_NAME + annotation + name + length
}
