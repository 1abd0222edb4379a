//! CSV as Azure Storage Explorer writes it, with types.
//!
//! The first line names the columns: `PartitionKey,RowKey,Timestamp`, then for each property `Name` and
//! `Name@type`. The type stands beside each value, as `Int32` or `Edm.Int32`; a value without one is a String.
//! Where both are empty, the entity does not have the property. Quotes, commas and line ends inside a value
//! are as in RFC 4180.

use super::{BadRow, FileRow, ROW_BYTES_MAX, Rows};
use crate::entity::Entity;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rowhouse_types::{EdmType, Timestamp, ValueRef};
use std::borrow::Cow;
use std::io::{self, BufRead, Write};

/// Marks the column that holds the types of another.
const TYPE_MARK: &str = "@type";

/// Writes entities with a fixed list of properties.
#[derive(Debug)]
pub struct CsvWriter<W> {
    out: W,
    names: Vec<String>,
    line: Vec<u8>,
}

impl<W: Write> CsvWriter<W> {
    /// Writes the line of names.
    pub fn new(out: W, names: Vec<String>) -> io::Result<Self> {
        let mut this = Self { out, names, line: Vec::new() };
        this.line.extend_from_slice(b"PartitionKey,RowKey,Timestamp");
        for name in &this.names {
            for suffix in ["", TYPE_MARK] {
                this.line.push(b',');
                push_field(&mut this.line, &format!("{name}{suffix}"));
            }
        }
        this.end_line()?;
        Ok(this)
    }

    /// Writes an entity; properties that are not in the list are left out.
    pub fn write(&mut self, entity: &Entity) -> io::Result<()> {
        let record = entity.record.as_ref();
        push_field(&mut self.line, &entity.partition);
        self.line.push(b',');
        push_field(&mut self.line, &entity.row);
        self.line.push(b',');
        if record.timestamp() != Timestamp::default() {
            self.line.extend_from_slice(record.timestamp().iso().as_bytes());
        }
        for name in &self.names {
            let value = record.get(name).map_err(io::Error::other)?;
            self.line.push(b',');
            if let Some(value) = value {
                push_field(&mut self.line, &text_of(value));
            }
            self.line.push(b',');
            if let Some(value) = value {
                self.line.extend_from_slice(short_name(value.edm_type()).as_bytes());
            }
        }
        self.end_line()
    }

    /// Hands out what is buffered.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.flush()?;
        Ok(self.out)
    }

    fn end_line(&mut self) -> io::Result<()> {
        self.line.extend_from_slice(b"\r\n");
        self.out.write_all(&self.line)?;
        self.line.clear();
        Ok(())
    }
}

/// `Int32` of `Edm.Int32`.
fn short_name(edm_type: EdmType) -> &'static str {
    edm_type.name().trim_start_matches("Edm.")
}

fn text_of(value: ValueRef<'_>) -> Cow<'_, str> {
    match value {
        ValueRef::String(text) => text.into(),
        ValueRef::Int32(n) => n.to_string().into(),
        ValueRef::Int64(n) => n.to_string().into(),
        ValueRef::Double(n) if n.is_nan() => "NaN".into(),
        ValueRef::Double(n) if n.is_infinite() => {
            if n > 0.0 {
                "Infinity".into()
            } else {
                "-Infinity".into()
            }
        }
        // The shortest text that reads back the same, with a point or an exponent.
        ValueRef::Double(n) => format!("{n:?}").into(),
        ValueRef::Boolean(b) => b.to_string().into(),
        ValueRef::DateTime(t) => t.iso().as_str().to_owned().into(),
        ValueRef::Guid(g) => g.to_string().into(),
        ValueRef::Binary(bytes) => STANDARD.encode(bytes).into(),
    }
}

fn push_field(out: &mut Vec<u8>, text: &str) {
    let quoted = text.contains(['"', ',', '\r', '\n']) || text.trim().len() != text.len();
    if !quoted {
        return out.extend_from_slice(text.as_bytes());
    }
    out.push(b'"');
    out.extend_from_slice(text.replace('"', "\"\"").as_bytes());
    out.push(b'"');
}

/// What a column holds.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Column {
    PartitionKey,
    RowKey,
    Timestamp,
    /// Values of a property, and the column of their types if there is one.
    Property {
        name: String,
        types: Option<usize>,
    },
    /// Types of another column.
    Types,
}

/// Reads CSV with or without types.
#[derive(Debug)]
pub struct CsvReader<R> {
    records: Records<R>,
    columns: Vec<Column>,
}

impl<R: BufRead + Send> CsvReader<R> {
    /// Reads the line of names; the error is a sentence about it.
    pub fn new(input: R) -> Result<Self, String> {
        let mut records = Records { input, line: 1, fields: Vec::new(), first: true };
        match records.next_record() {
            Ok(Some((_, Ok(())))) => {}
            Ok(Some((_, Err(reason)))) => return Err(format!("the line of names: {reason}")),
            Ok(None) => {
                return Err("the file is empty: the first line must name columns".to_owned());
            }
            Err(error) => return Err(error.to_string()),
        }
        let columns = columns_of(&records.fields)?;
        Ok(Self { records, columns })
    }

    fn entity(&self) -> Result<Entity, String> {
        let fields = &self.records.fields;
        if fields.len() != self.columns.len() {
            return Err(format!(
                "{} fields where the first line names {}",
                fields.len(),
                self.columns.len()
            ));
        }
        let mut json = Vec::from(*b"{");
        for (column, value) in self.columns.iter().zip(fields) {
            match column {
                Column::PartitionKey => push_member(&mut json, "PartitionKey", value),
                Column::RowKey => push_member(&mut json, "RowKey", value),
                Column::Timestamp if !value.is_empty() => {
                    push_member(&mut json, "Timestamp", value);
                }
                Column::Timestamp | Column::Types => {}
                Column::Property { name, types } => {
                    let edm_type = types.map_or("", |types| fields[types].trim());
                    if edm_type.is_empty() && value.is_empty() {
                        continue;
                    }
                    if !edm_type.is_empty() {
                        let whole = if edm_type.contains('.') {
                            edm_type.to_owned()
                        } else {
                            format!("Edm.{edm_type}")
                        };
                        if EdmType::from_name(&whole).is_none() {
                            return Err(format!("column {name:?}: {edm_type:?} is not a type"));
                        }
                        push_member(&mut json, &format!("{name}@odata.type"), &whole);
                    }
                    push_member(&mut json, name, value);
                }
            }
        }
        // The keys were written, so a comma is the last.
        json.pop();
        json.push(b'}');
        Entity::from_json(&json)
    }

    /// The record is no entity; its keys are known if it has as many fields as there are columns.
    fn bad_row(&self, reason: String) -> BadRow {
        let fields = &self.records.fields;
        if fields.len() != self.columns.len() {
            return BadRow::unreadable(reason);
        }
        let key = |key: &Column| {
            let at = self.columns.iter().position(|column| column == key)?;
            fields.get(at).map(String::as_str)
        };
        BadRow::new(reason, key(&Column::PartitionKey), key(&Column::RowKey))
    }
}

fn push_member(json: &mut Vec<u8>, name: &str, value: &str) {
    for (text, after) in [(name, b':'), (value, b',')] {
        serde_json::to_writer(&mut *json, text).expect("text can always be written");
        json.push(after);
    }
}

impl<R: BufRead + Send> Rows for CsvReader<R> {
    fn next_row(&mut self) -> io::Result<Option<FileRow>> {
        let Some((number, record)) = self.records.next_record()? else { return Ok(None) };
        let entity = record
            .map_err(BadRow::unreadable)
            .and_then(|()| self.entity().map_err(|reason| self.bad_row(reason)));
        Ok(Some(FileRow { number, table: None, entity }))
    }

    fn skip_rows(&mut self, count: u64) -> io::Result<()> {
        for _ in 0..count {
            if self.records.next_record()?.is_none() {
                break;
            }
        }
        Ok(())
    }
}

fn columns_of(names: &[String]) -> Result<Vec<Column>, String> {
    for (at, name) in names.iter().enumerate() {
        if name.is_empty() || names[..at].contains(name) {
            return Err(format!("the line of names has {name:?} empty or twice"));
        }
    }
    for key in ["PartitionKey", "RowKey"] {
        if !names.iter().any(|name| name == key) {
            return Err(format!("the line of names has no {key}"));
        }
    }
    let types_of =
        |name: &str| names.iter().position(|other| other.strip_suffix(TYPE_MARK) == Some(name));
    let column = |name: &String| match name.as_str() {
        "PartitionKey" => Column::PartitionKey,
        "RowKey" => Column::RowKey,
        "Timestamp" => Column::Timestamp,
        other
            if other
                .strip_suffix(TYPE_MARK)
                .is_some_and(|of| names.iter().any(|name| name == of)) =>
        {
            Column::Types
        }
        other => Column::Property { name: other.to_owned(), types: types_of(other) },
    };
    Ok(names.iter().map(column).collect())
}

/// Splits a file into records.
#[derive(Debug)]
struct Records<R> {
    input: R,
    /// The line that comes next.
    line: u64,
    /// Of the last record.
    fields: Vec<String>,
    first: bool,
}

impl<R: BufRead> Records<R> {
    /// The line where the next record starts, and whether it is one; its fields are in `fields`.
    fn next_record(&mut self) -> io::Result<Option<(u64, Result<(), String>)>> {
        let mut bytes = Vec::new();
        let mut length = 0;
        let (mut quotes, mut started) = (0usize, self.line);
        loop {
            let chunk = self.input.fill_buf()?;
            if chunk.is_empty() {
                break;
            }
            let end = chunk.iter().position(|&byte| {
                quotes += usize::from(byte == b'"');
                byte == b'\n'
            });
            let taken = end.map_or(chunk.len(), |at| at + 1);
            length += taken;
            if length <= ROW_BYTES_MAX {
                bytes.extend_from_slice(&chunk[..taken]);
            }
            self.input.consume(taken);
            if end.is_none() {
                continue;
            }
            self.line += 1;
            // A line end inside quotes belongs to the value.
            if quotes % 2 == 1 {
                continue;
            }
            if length <= 2 && bytes.trim_ascii().is_empty() {
                bytes.clear();
                (length, started) = (0, self.line);
                continue;
            }
            break;
        }
        if length == 0 {
            return Ok(None);
        }
        if std::mem::take(&mut self.first) && bytes.starts_with(b"\xEF\xBB\xBF") {
            bytes.drain(..3);
        }
        let outcome = if length > ROW_BYTES_MAX {
            Err("the record is longer than 16 MiB".to_owned())
        } else if quotes % 2 == 1 {
            Err("a quote is opened and not closed".to_owned())
        } else {
            self.split(&bytes)
        };
        Ok(Some((started, outcome)))
    }

    fn split(&mut self, record: &[u8]) -> Result<(), String> {
        let record = std::str::from_utf8(record).map_err(|_| "not UTF-8".to_owned())?;
        let record = record.strip_suffix('\n').unwrap_or(record);
        let mut rest = record.strip_suffix('\r').unwrap_or(record);
        self.fields.clear();
        loop {
            let (field, after) = if let Some(quoted) = rest.strip_prefix('"') {
                split_quoted(quoted)?
            } else {
                let end = rest.find(',').unwrap_or(rest.len());
                (rest[..end].to_owned(), &rest[end..])
            };
            self.fields.push(field);
            match after.strip_prefix(',') {
                Some(next) => rest = next,
                None => return Ok(()),
            }
        }
    }
}

/// The value after an opening quote, and what follows its closing one.
fn split_quoted(text: &str) -> Result<(String, &str), String> {
    let mut value = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('"') {
        value.push_str(before);
        if let Some(more) = after.strip_prefix('"') {
            value.push('"');
            rest = more;
        } else if after.is_empty() || after.starts_with(',') {
            return Ok((value, after));
        } else {
            return Err("something follows a closing quote".to_owned());
        }
    }
    Err("a quote is opened and not closed".to_owned())
}
