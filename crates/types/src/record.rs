//! The stored form of an entity: bytes with accessors.
//!
//! What `get` and `scan` return in every engine. Filters are evaluated on it and JSON is written from
//! it without building anything in between. Keys are not inside: they belong to the row that holds it.
//!
//! ```text
//! offset  size  content (all numbers little endian)
//! 0       1     format version, 1
//! 1       8     Timestamp in ticks of 100 ns since 0001-01-01
//! 9       2     number of properties n
//! 11      7 n   directory, in the client's order: type (1), length of name (2), length of value (4)
//! ..            the names, one after the other, UTF-8
//! ..            the values, one after the other
//! ```
//!
//! A String is UTF-8; Int32 takes 4 bytes, Int64 and Double 8, Boolean 1 (0 or 1), DateTime 8 (ticks), Guid
//! 16 in the order of its text; Binary is itself. `docs/formats/record.md` has examples.

mod builder;

pub use builder::RecordBuilder;

use crate::limits;
use crate::name::NameError;
use crate::time::Timestamp;
use crate::value::{EdmType, Guid, ValueRef};

const VERSION: u8 = 1;
const HEADER: usize = 11;
const ENTRY: usize = 7;

/// Stored bytes do not decode. Says where it was noticed, not what the bytes were.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("corrupt record: {0}")]
pub struct Corrupt(pub &'static str);

/// Why a property cannot be part of an entity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PropertyError {
    /// The name is too long, empty or holds a forbidden character.
    #[error("property name: {0}")]
    Name(NameError),
    /// The name was there already.
    #[error("a property is specified more than one time")]
    Duplicate,
    /// One more than [`limits::PROPERTIES_MAX`].
    #[error("too many properties")]
    TooMany,
    /// A String or Binary beyond its limit.
    #[error("the value is too large")]
    ValueTooLarge,
    /// A DateTime before 1601.
    #[error("the date and time is out of range")]
    DateOutOfRange,
}

/// An entity without its keys, owning its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record(Vec<u8>);

/// An entity without its keys, inside a page or a read buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordRef<'a> {
    bytes: &'a [u8],
    count: usize,
    /// Where the values start.
    values: usize,
}

/// One property of a record.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Property<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its value.
    pub value: ValueRef<'a>,
}

/// One property of a record as it is stored, its text unchecked.
#[derive(Clone, Copy, Debug)]
pub struct StoredProperty<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// Its type.
    pub edm_type: EdmType,
    /// Its value; [`ValueRef::decode`] reads it.
    pub value: &'a [u8],
}

impl<'a> StoredProperty<'a> {
    /// Checks and reads it.
    fn decode(self) -> Result<Property<'a>, Corrupt> {
        let name = std::str::from_utf8(self.name).map_err(|_| Corrupt::NAME)?;
        Ok(Property { name, value: ValueRef::decode(self.edm_type, self.value)? })
    }
}

impl Corrupt {
    /// The name of a property is not text.
    pub const NAME: Self = Self("a name is not UTF-8");
    /// A String is not text.
    pub const STRING: Self = Self("a String is not UTF-8");
}

impl Record {
    /// Takes over stored bytes after checking their structure.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self, Corrupt> {
        RecordRef::parse(&bytes)?;
        Ok(Self(bytes))
    }

    /// The bytes to store.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The accessors.
    pub fn as_ref(&self) -> RecordRef<'_> {
        RecordRef::parse(&self.0).expect("a Record is checked when it is made")
    }

    /// Sets the Timestamp in place: the committer decides on it after everything else is done.
    pub fn stamp(&mut self, timestamp: Timestamp) {
        self.0[1..9].copy_from_slice(&timestamp.ticks().to_le_bytes());
    }

    /// `base` with the properties of `patch` in place of its own of the same name, new ones last.
    ///
    /// The Timestamp is that of `patch`. The result may exceed the limits of an entity: ask
    /// [`RecordRef::check_limits`].
    pub fn merge(base: RecordRef<'_>, patch: RecordRef<'_>) -> Result<Self, Corrupt> {
        let mut properties = Vec::with_capacity(base.count + patch.count);
        for property in base.iter() {
            let Property { name, value } = property?;
            properties.push(Property { name, value: patch.get(name)?.unwrap_or(value) });
        }
        for property in patch.iter() {
            let property = property?;
            if base.find(property.name)?.is_none() {
                properties.push(property);
            }
        }
        let name_bytes = properties.iter().map(|property| property.name.len()).sum();
        let value_bytes = properties.iter().map(|property| property.value.stored_len()).sum();
        let mut merged = RecordBuilder::with_room(properties.len(), name_bytes, value_bytes);
        for Property { name, value } in properties {
            merged.append(name, value);
        }
        Ok(merged.finish(patch.timestamp()))
    }
}

impl<'a> RecordRef<'a> {
    /// Checks the structure: version, lengths, types. Text is checked when it is read.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Corrupt> {
        let header = bytes.get(..HEADER).ok_or(Corrupt("shorter than its header"))?;
        if header[0] != VERSION {
            return Err(Corrupt("unknown version"));
        }
        let count = usize::from(u16::from_le_bytes([header[9], header[10]]));
        let names = HEADER + count * ENTRY;
        let directory = bytes.get(HEADER..names).ok_or(Corrupt("shorter than its directory"))?;
        let (mut name_bytes, mut value_bytes) = (0usize, 0usize);
        for entry in directory.chunks_exact(ENTRY) {
            let (name_len, value_len) = entry_lengths(entry);
            let expected = VALUE_LENGTHS[usize::from(entry[0].min(9))];
            if expected != ANY && expected != value_len {
                entry_type(entry)?;
                return Err(Corrupt("length of a value does not fit its type"));
            }
            name_bytes += name_len;
            value_bytes += value_len;
        }
        let values = names + name_bytes;
        if bytes.len() != values + value_bytes {
            return Err(Corrupt("lengths do not add up"));
        }
        let this = Self { bytes, count, values };
        match Timestamp::from_ticks(this.raw_ticks()) {
            Some(_) => Ok(this),
            None => Err(Corrupt("Timestamp out of range")),
        }
    }

    /// The bytes as stored.
    pub fn as_bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// A copy that owns its bytes.
    pub fn to_owned(self) -> Record {
        Record(self.bytes.to_vec())
    }

    /// When the entity was last written.
    pub fn timestamp(self) -> Timestamp {
        Timestamp::from_ticks(self.raw_ticks()).expect("checked by parse")
    }

    /// Number of properties.
    pub fn len(self) -> usize {
        self.count
    }

    /// True if the entity has keys and a Timestamp only.
    pub fn is_empty(self) -> bool {
        self.count == 0
    }

    /// The value of a property; reads no other value.
    pub fn get(self, name: &str) -> Result<Option<ValueRef<'a>>, Corrupt> {
        match self.find(name)? {
            Some((edm_type, bytes)) => ValueRef::decode(edm_type, bytes).map(Some),
            None => Ok(None),
        }
    }

    /// Type and bytes of a property's value, as stored and unchecked: who compares texts needs no more.
    pub fn find(self, name: &str) -> Result<Option<(EdmType, &'a [u8])>, Corrupt> {
        let (mut name_at, mut value_at) = (HEADER + self.count * ENTRY, self.values);
        for entry in self.directory() {
            let (name_len, value_len) = entry_lengths(entry);
            if name_len == name.len() && &self.bytes[name_at..name_at + name_len] == name.as_bytes()
            {
                let value = &self.bytes[value_at..value_at + value_len];
                return Ok(Some((entry_type(entry)?, value)));
            }
            name_at += name_len;
            value_at += value_len;
        }
        Ok(None)
    }

    /// Every property in the client's order.
    pub fn iter(self) -> impl Iterator<Item = Result<Property<'a>, Corrupt>> {
        self.stored().map(|property| property?.decode())
    }

    /// Every property in the client's order, as stored: who writes text out checks it on the way.
    pub fn stored(self) -> impl Iterator<Item = Result<StoredProperty<'a>, Corrupt>> {
        let (mut name_at, mut value_at) = (HEADER + self.count * ENTRY, self.values);
        self.directory().map(move |entry| {
            let (name_len, value_len) = entry_lengths(entry);
            let name = &self.bytes[name_at..name_at + name_len];
            let value = &self.bytes[value_at..value_at + value_len];
            name_at += name_len;
            value_at += value_len;
            Ok(StoredProperty { name, edm_type: entry_type(entry)?, value })
        })
    }

    /// Size of the entity by the published formula, in bytes: what the limit of 1 MiB counts.
    pub fn size(self, partition: &str, row: &str) -> Result<usize, Corrupt> {
        let units = |text: &str| {
            if text.is_ascii() { text.len() } else { text.encode_utf16().count() }
        };
        let mut size = 4 + 2 * (units(partition) + units(row));
        for property in self.iter() {
            let Property { name, value } = property?;
            size += 8 + 2 * units(name);
            size += match value {
                ValueRef::String(text) => 2 * units(text) + 4,
                ValueRef::Binary(bytes) => bytes.len() + 4,
                ValueRef::DateTime(_) | ValueRef::Double(_) | ValueRef::Int64(_) => 8,
                ValueRef::Guid(_) => 16,
                ValueRef::Int32(_) => 4,
                ValueRef::Boolean(_) => 1,
            };
        }
        Ok(size)
    }

    /// Whether the whole is within the limits of an entity; `None` if it is.
    pub fn check_limits(
        self,
        partition: &str,
        row: &str,
    ) -> Result<Option<LimitExceeded>, Corrupt> {
        if limits::PROPERTIES_MAX < self.count {
            return Ok(Some(LimitExceeded::Properties));
        }
        // UTF-16 at most doubles the bytes: small records need no count.
        let bound = 4 + 2 * (partition.len() + row.len()) + 12 * self.count + 2 * self.bytes.len();
        if bound <= limits::ENTITY_BYTES_MAX {
            return Ok(None);
        }
        let size = self.size(partition, row)?;
        Ok((limits::ENTITY_BYTES_MAX < size).then_some(LimitExceeded::Size))
    }

    fn raw_ticks(self) -> u64 {
        u64::from_le_bytes(self.bytes[1..9].try_into().expect("eight bytes"))
    }

    fn directory(self) -> std::slice::ChunksExact<'a, u8> {
        self.bytes[HEADER..HEADER + self.count * ENTRY].chunks_exact(ENTRY)
    }
}

/// Which limit of a whole entity was exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitExceeded {
    /// More than [`limits::PROPERTIES_MAX`] properties.
    Properties,
    /// More than [`limits::ENTITY_BYTES_MAX`] bytes.
    Size,
}

/// Values of this type may have any length.
const ANY: usize = usize::MAX - 1;
/// There is no such type, so nothing has this length.
const NONE: usize = usize::MAX;
/// How many bytes a value takes, by the number of its type.
const VALUE_LENGTHS: [usize; 10] = [NONE, ANY, 4, 8, 8, 1, 8, 16, ANY, NONE];

fn entry_type(entry: &[u8]) -> Result<EdmType, Corrupt> {
    EdmType::from_tag(entry[0]).ok_or(Corrupt("unknown type of a property"))
}

/// Lengths of name and value.
fn entry_lengths(entry: &[u8]) -> (usize, usize) {
    let name_len = usize::from(u16::from_le_bytes([entry[1], entry[2]]));
    let value_len = u32::from_le_bytes([entry[3], entry[4], entry[5], entry[6]]) as usize;
    (name_len, value_len)
}

impl<'a> ValueRef<'a> {
    /// Reads the stored form of a value.
    pub fn decode(edm_type: EdmType, bytes: &'a [u8]) -> Result<Self, Corrupt> {
        const LENGTH: Corrupt = Corrupt("length of a value does not fit its type");
        let eight = || <[u8; 8]>::try_from(bytes).map_err(|_| LENGTH);
        Ok(match edm_type {
            EdmType::String => {
                ValueRef::String(std::str::from_utf8(bytes).map_err(|_| Corrupt::STRING)?)
            }
            EdmType::Int32 => {
                ValueRef::Int32(i32::from_le_bytes(bytes.try_into().map_err(|_| LENGTH)?))
            }
            EdmType::Int64 => ValueRef::Int64(i64::from_le_bytes(eight()?)),
            EdmType::Double => ValueRef::Double(f64::from_le_bytes(eight()?)),
            EdmType::Boolean => match bytes {
                [0] => ValueRef::Boolean(false),
                [1] => ValueRef::Boolean(true),
                _ => return Err(Corrupt("a Boolean is neither 0 nor 1")),
            },
            EdmType::DateTime => ValueRef::DateTime(
                Timestamp::from_ticks(u64::from_le_bytes(eight()?))
                    .ok_or(Corrupt("a DateTime is out of range"))?,
            ),
            EdmType::Guid => ValueRef::Guid(Guid(bytes.try_into().map_err(|_| LENGTH)?)),
            EdmType::Binary => ValueRef::Binary(bytes),
        })
    }

    /// How many bytes its stored form takes.
    fn stored_len(self) -> usize {
        match self {
            ValueRef::String(text) => text.len(),
            ValueRef::Binary(bytes) => bytes.len(),
            value => VALUE_LENGTHS[value.edm_type() as usize],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Value;
    use proptest::collection::{btree_map, vec};
    use proptest::prelude::*;

    fn value() -> impl Strategy<Value = Value> {
        prop_oneof![
            ".{0,8}".prop_map(|s| Value::String(s.into())),
            any::<i32>().prop_map(Value::Int32),
            any::<i64>().prop_map(Value::Int64),
            any::<f64>().prop_map(Value::Double),
            any::<bool>().prop_map(Value::Boolean),
            (Timestamp::EDM_MIN.ticks()..=Timestamp::MAX.ticks())
                .prop_map(|t| Value::DateTime(Timestamp::from_ticks(t).unwrap())),
            any::<[u8; 16]>().prop_map(|g| Value::Guid(Guid(g))),
            vec(any::<u8>(), 0..8).prop_map(|b| Value::Binary(b.into())),
        ]
    }

    #[test]
    fn room_that_was_not_needed_is_given_back() {
        let mut builder = RecordBuilder::with_room(1, 1, 4_000_000);
        builder.push("A", Value::Int64(1).as_ref()).unwrap();
        let record = builder.finish(Timestamp::EDM_MIN);
        assert!(record.0.capacity() <= 2 * record.0.len(), "{}", record.0.capacity());
    }

    fn build(properties: &[(String, Value)]) -> Record {
        let mut builder = RecordBuilder::new();
        for (name, value) in properties {
            builder.push(name, value.as_ref()).unwrap();
        }
        builder.finish(Timestamp::EDM_MIN)
    }

    /// The format, written down piece by piece.
    fn naive(properties: &[(String, Value)]) -> Vec<u8> {
        let (mut directory, mut names, mut values) = (vec![], vec![], vec![]);
        for (name, value) in properties {
            let bytes = match value {
                Value::String(text) => text.as_bytes().to_vec(),
                Value::Int32(n) => n.to_le_bytes().to_vec(),
                Value::Int64(n) => n.to_le_bytes().to_vec(),
                Value::Double(n) => n.to_le_bytes().to_vec(),
                Value::Boolean(b) => vec![u8::from(*b)],
                Value::DateTime(t) => t.ticks().to_le_bytes().to_vec(),
                Value::Guid(g) => g.0.to_vec(),
                Value::Binary(bytes) => bytes.to_vec(),
            };
            directory.push(value.as_ref().edm_type() as u8);
            directory.extend(u16::try_from(name.len()).unwrap().to_le_bytes());
            directory.extend(u32::try_from(bytes.len()).unwrap().to_le_bytes());
            names.extend(name.as_bytes());
            values.extend(bytes);
        }
        let count = u16::try_from(properties.len()).unwrap();
        let mut record = vec![VERSION];
        record.extend(Timestamp::EDM_MIN.ticks().to_le_bytes());
        record.extend(count.to_le_bytes());
        [record, directory, names, values].concat()
    }

    fn properties() -> impl Strategy<Value = Vec<(String, Value)>> {
        btree_map("[a-e]{1,2}", value(), 0..6)
            .prop_map(|map| map.into_iter().collect::<Vec<_>>())
            .prop_shuffle()
    }

    /// NaN equals itself here: what matters is the bytes.
    fn same(a: ValueRef<'_>, b: ValueRef<'_>) -> bool {
        match (a, b) {
            (ValueRef::Double(a), ValueRef::Double(b)) => a.to_bits() == b.to_bits(),
            _ => a == b,
        }
    }

    proptest! {
        #[test]
        fn what_goes_in_comes_out(properties in properties()) {
            let record = build(&properties);
            let back = RecordRef::parse(record.as_bytes()).unwrap();
            prop_assert_eq!(back.len(), properties.len());
            for (found, (name, value)) in back.iter().zip(&properties) {
                let found = found.unwrap();
                prop_assert_eq!(found.name, name);
                prop_assert!(same(found.value, value.as_ref()));
                prop_assert!(same(back.get(name).unwrap().unwrap(), value.as_ref()));
            }
            prop_assert_eq!(back.get("zz").unwrap(), None);
        }

        /// Whatever room was announced, the bytes are those of the format.
        #[test]
        fn announced_room_leaves_no_trace(
            properties in properties(),
            (count, names, values) in (0usize..12, 0usize..24, 0usize..64),
        ) {
            let mut builder = RecordBuilder::with_room(count, names, values);
            for (name, value) in &properties {
                builder.push_distinct(name, value.as_ref()).unwrap();
            }
            let record = builder.finish(Timestamp::EDM_MIN);
            prop_assert_eq!(record.as_bytes(), naive(&properties));
            prop_assert_eq!(&record, &build(&properties));
        }

        #[test]
        fn merge_overwrites_and_keeps(base in properties(), patch in properties()) {
            let merged = Record::merge(build(&base).as_ref(), build(&patch).as_ref()).unwrap();
            let lookup = |list: &[(String, Value)], name: &str| {
                list.iter().find(|(n, _)| n == name).map(|(_, v)| v.clone())
            };
            for name in base.iter().chain(&patch).map(|(name, _)| name) {
                let expected = lookup(&patch, name).or_else(|| lookup(&base, name)).unwrap();
                let found = merged.as_ref().get(name).unwrap().unwrap();
                prop_assert!(same(found, expected.as_ref()), "{}", name);
            }
            let names: std::collections::BTreeSet<_> =
                base.iter().chain(&patch).map(|(name, _)| name).collect();
            prop_assert_eq!(merged.as_ref().len(), names.len());
        }

        #[test]
        fn any_bytes_are_answered(bytes in vec(any::<u8>(), 0..64), ticks in any::<[u8; 8]>()) {
            let mut framed = vec![VERSION];
            framed.extend(ticks);
            framed.extend(&bytes);
            for bytes in [&bytes, &framed] {
                if let Ok(record) = RecordRef::parse(bytes) {
                    for property in record.iter() {
                        let _ = property;
                    }
                    let _ = (record.get("a"), record.size("p", "r"), record.timestamp());
                }
            }
        }

        #[test]
        fn a_flipped_byte_never_panics(properties in properties(), at: prop::sample::Index, bits: u8) {
            let mut bytes = build(&properties).as_bytes().to_vec();
            let at = at.index(bytes.len());
            bytes[at] ^= bits;
            if let Ok(record) = RecordRef::parse(&bytes) {
                record.iter().for_each(drop);
            }
        }
    }

    /// The example of docs/formats/record.md: a change here breaks stored data.
    #[test]
    fn format_is_frozen() {
        let mut builder = RecordBuilder::new();
        builder.push("Age", ValueRef::Int32(7)).unwrap();
        builder.push("Näme", ValueRef::String("Ann")).unwrap();
        let record = builder.finish(Timestamp::from_ticks(0x0102_0304_0506_0708).unwrap());
        let mut expected = vec![1, 8, 7, 6, 5, 4, 3, 2, 1, 2, 0];
        expected.extend([2, 3, 0, 4, 0, 0, 0]);
        expected.extend([1, 5, 0, 3, 0, 0, 0]);
        expected.extend("AgeNäme".as_bytes());
        expected.extend([7, 0, 0, 0]);
        expected.extend(b"Ann");
        assert_eq!(record.as_bytes(), expected);
    }

    #[test]
    fn limits_on_both_sides() {
        let mut builder = RecordBuilder::new();
        for n in 0..limits::PROPERTIES_MAX {
            builder.push(&format!("p{n}"), ValueRef::Boolean(true)).unwrap();
        }
        assert_eq!(builder.push("more", ValueRef::Boolean(true)), Err(PropertyError::TooMany));
        assert_eq!(builder.push("p0", ValueRef::Boolean(true)), Err(PropertyError::Duplicate));

        let mut builder = RecordBuilder::new();
        let text = "é".repeat(limits::STRING_UTF16_UNITS_MAX);
        builder.push("s", ValueRef::String(&text)).unwrap();
        let longer = format!("{text}x");
        assert_eq!(builder.push("t", ValueRef::String(&longer)), Err(PropertyError::ValueTooLarge));
        let bytes = vec![0; limits::BINARY_BYTES_MAX + 1];
        assert_eq!(builder.push("b", ValueRef::Binary(&bytes)), Err(PropertyError::ValueTooLarge));
        builder.push("b", ValueRef::Binary(&bytes[1..])).unwrap();
    }

    #[test]
    fn size_follows_the_published_formula() {
        let mut builder = RecordBuilder::new();
        builder.push("s", ValueRef::String("héé")).unwrap();
        builder.push("i", ValueRef::Int32(1)).unwrap();
        let record = builder.finish(Timestamp::EDM_MIN);
        let expected = 4 + 2 * (1 + 2) + (8 + 2 + 6 + 4) + (8 + 2 + 4);
        assert_eq!(record.as_ref().size("p", "rr").unwrap(), expected);
    }
}
