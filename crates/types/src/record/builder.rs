//! Writes a record property by property, into one buffer.

use super::{ENTRY, HEADER, PropertyError, Record, VERSION};
use crate::limits;
use crate::name::check_property_name;
use crate::time::Timestamp;
use crate::value::ValueRef;

/// Collects properties into a record, checking each.
///
/// If it was told what is coming, everything is written once and where it stays.
#[derive(Clone, Debug)]
pub struct RecordBuilder {
    /// The record, its header still blank, with room left after the directory and after the names.
    bytes: Vec<u8>,
    /// Number of properties.
    count: usize,
    /// Where the names start: the end of the room for the directory.
    names: usize,
    /// Where the next name goes.
    names_end: usize,
    /// Where the values start: the end of the room for the names.
    values: usize,
}

impl Default for RecordBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl RecordBuilder {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::with_room(0, 0, 0)
    }

    /// Nothing yet, with room for so many properties whose names and values take so many bytes.
    pub fn with_room(count: usize, name_bytes: usize, value_bytes: usize) -> Self {
        let names = HEADER + count * ENTRY;
        let values = names + name_bytes;
        let mut bytes = Vec::with_capacity(values + value_bytes);
        bytes.resize(values, 0);
        Self { bytes, count: 0, names, names_end: names, values }
    }

    /// Adds a property after checking name, value and number.
    pub fn push(&mut self, name: &str, value: ValueRef<'_>) -> Result<(), PropertyError> {
        check_property(name, value)?;
        if self.contains(name) {
            return Err(PropertyError::Duplicate);
        }
        self.push_checked(name, value)
    }

    /// Adds a property like [`Self::push`]; the caller knows that the name is not there yet.
    pub fn push_distinct(&mut self, name: &str, value: ValueRef<'_>) -> Result<(), PropertyError> {
        check_property(name, value)?;
        debug_assert!(!self.contains(name), "the caller has looked for duplicates");
        self.push_checked(name, value)
    }

    fn push_checked(&mut self, name: &str, value: ValueRef<'_>) -> Result<(), PropertyError> {
        if self.count == limits::PROPERTIES_MAX {
            return Err(PropertyError::TooMany);
        }
        self.append(name, value);
        Ok(())
    }

    /// Number of properties so far.
    pub fn len(&self) -> usize {
        self.count
    }

    /// True if there is none yet.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The record, with the Timestamp it shall have.
    pub fn finish(mut self, timestamp: Timestamp) -> Record {
        let count =
            u16::try_from(self.count).expect("push keeps to the limit, merge to twice that");
        if self.directory_end() != self.names || self.names_end != self.values {
            self.set_room(self.count, self.names_end - self.names);
        }
        self.bytes[0] = VERSION;
        self.bytes[1..9].copy_from_slice(&timestamp.ticks().to_le_bytes());
        self.bytes[9..HEADER].copy_from_slice(&count.to_le_bytes());
        // Room was made by the length of what came in; who counts a record's memory counts its bytes.
        if self.bytes.capacity() > 2 * self.bytes.len() {
            self.bytes.shrink_to_fit();
        }
        Record(self.bytes)
    }

    fn directory_end(&self) -> usize {
        HEADER + self.count * ENTRY
    }

    fn contains(&self, name: &str) -> bool {
        let mut at = self.names;
        self.bytes[HEADER..self.directory_end()].chunks_exact(ENTRY).any(|entry| {
            let len = usize::from(u16::from_le_bytes([entry[1], entry[2]]));
            let found = &self.bytes[at..at + len] == name.as_bytes();
            at += len;
            found
        })
    }

    pub(super) fn append(&mut self, name: &str, value: ValueRef<'_>) {
        let (entry, name_end) = (self.directory_end(), self.names_end + name.len());
        if self.names < entry + ENTRY || self.values < name_end {
            let name_bytes = name_end - self.names;
            self.set_room(2 * (self.count + 4), 2 * (name_bytes + 32));
            return self.append(name, value);
        }
        let start = self.bytes.len();
        match value {
            ValueRef::String(text) => self.bytes.extend_from_slice(text.as_bytes()),
            ValueRef::Int32(n) => self.bytes.extend_from_slice(&n.to_le_bytes()),
            ValueRef::Int64(n) => self.bytes.extend_from_slice(&n.to_le_bytes()),
            ValueRef::Double(n) => self.bytes.extend_from_slice(&n.to_le_bytes()),
            ValueRef::Boolean(b) => self.bytes.push(u8::from(b)),
            ValueRef::DateTime(t) => self.bytes.extend_from_slice(&t.ticks().to_le_bytes()),
            ValueRef::Guid(g) => self.bytes.extend_from_slice(&g.0),
            ValueRef::Binary(bytes) => self.bytes.extend_from_slice(bytes),
        }
        let name_len = u16::try_from(name.len()).expect("names are checked").to_le_bytes();
        let value_len = self.bytes.len() - start;
        let value_len = u32::try_from(value_len).expect("values are checked").to_le_bytes();
        let edm_type = value.edm_type() as u8;
        let directory = &mut self.bytes[entry..entry + ENTRY];
        directory[0] = edm_type;
        directory[1..3].copy_from_slice(&name_len);
        directory[3..].copy_from_slice(&value_len);
        self.bytes[self.names_end..name_end].copy_from_slice(name.as_bytes());
        self.names_end = name_end;
        self.count += 1;
    }

    /// Moves what is there so that directory and names have this room.
    fn set_room(&mut self, count: usize, name_bytes: usize) {
        let value_bytes = self.bytes.len() - self.values;
        let mut moved = Self::with_room(count, name_bytes, value_bytes);
        moved.count = self.count;
        moved.names_end += self.names_end - self.names;
        let directory = HEADER..self.directory_end();
        moved.bytes[directory.clone()].copy_from_slice(&self.bytes[directory]);
        moved.bytes[moved.names..moved.names_end]
            .copy_from_slice(&self.bytes[self.names..self.names_end]);
        moved.bytes.extend_from_slice(&self.bytes[self.values..]);
        *self = moved;
    }
}

/// Whether name and value may be those of a property.
fn check_property(name: &str, value: ValueRef<'_>) -> Result<(), PropertyError> {
    check_property_name(name).map_err(PropertyError::Name)?;
    let fits = match value {
        ValueRef::String(text) => {
            text.len() <= limits::STRING_UTF16_UNITS_MAX
                || text.encode_utf16().count() <= limits::STRING_UTF16_UNITS_MAX
        }
        ValueRef::Binary(bytes) => bytes.len() <= limits::BINARY_BYTES_MAX,
        ValueRef::DateTime(t) if !t.is_edm() => return Err(PropertyError::DateOutOfRange),
        _ => true,
    };
    if fits { Ok(()) } else { Err(PropertyError::ValueTooLarge) }
}
