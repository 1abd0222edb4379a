//! From the body of a request to a record.

use crate::json::reader::{Malformed, Reader, Scalar, Text};
use base64::Engine as _;
use base64::alphabet;
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};
use memchr::memchr_iter;
use rowhouse_types::{
    EdmType, Guid, PropertyError, Record, RecordBuilder, Timestamp, ValueRef, limits,
};
use std::borrow::Cow;

/// What the body of an insert, update or merge says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntityBody<'a> {
    /// PartitionKey, unchecked, if there and not null.
    pub partition: Option<Cow<'a, str>>,
    /// RowKey, unchecked, if there and not null.
    pub row: Option<Cow<'a, str>>,
    /// A key is annotated or written as something else than a String: an insert cannot have that, while
    /// in an update the keys of the URL count.
    pub foreign_key: bool,
    /// Everything else. Its Timestamp is for the committer to set: what the client sent is ignored.
    pub record: Record,
}

/// Why a body is not an entity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EntityError {
    /// Not a flat JSON object, an unknown type, or a value that is not of its type.
    #[error("the body is malformed")]
    Syntax,
    /// A property that cannot be part of an entity.
    #[error("property: {error}")]
    Property {
        /// Its name.
        name: String,
        /// What is wrong with it.
        error: PropertyError,
    },
    /// A DateTime before 1601.
    #[error("a date and time is out of range")]
    DateOutOfRange {
        /// Name of the property.
        name: String,
        /// Its value.
        value: Timestamp,
    },
}

impl From<Malformed> for EntityError {
    fn from(_: Malformed) -> Self {
        Self::Syntax
    }
}

/// Reads the body of an insert, update or merge.
///
/// A type annotation may stand before or after its property; without one, the form of the value decides.
/// Nulls, Timestamp, `odata.*` and annotations without a property are ignored.
pub fn read(body: &[u8]) -> Result<EntityBody<'_>, EntityError> {
    let mut reader = Reader::new(body)?;
    let members = Members::collect(&mut reader)?;
    let (mut partition, mut row, mut foreign) = (None, None, false);
    let mut builder = members.builder();
    let mut binary = Vec::new();
    for member in &members.list {
        let name = reader.resolve(&member.name);
        match (member.kind, &member.value) {
            (Kind::Type | Kind::Timestamp, _) | (Kind::Property, Scalar::Null) => {}
            (Kind::PartitionKey | Kind::RowKey, value) => {
                foreign |= match members.annotation(member, name, &reader) {
                    Some(annotation) => edm_type(&reader, annotation)? != EdmType::String,
                    None => matches!(value, Scalar::Number(_) | Scalar::Bool(_)),
                };
                let slot = if member.kind == Kind::RowKey { &mut row } else { &mut partition };
                *slot = key(&reader, value);
            }
            (Kind::Property, value) => {
                let value = match members.annotation(member, name, &reader) {
                    None => inferred(&reader, value)?,
                    Some(annotation) => {
                        let edm_type = edm_type(&reader, annotation)?;
                        annotated(&reader, value, edm_type, &mut binary).ok_or(Malformed)?
                    }
                };
                builder.push_distinct(name, value).map_err(|error| refused(name, value, error))?;
            }
        }
    }
    let record = builder.finish(Timestamp::default());
    Ok(EntityBody { partition, row, foreign_key: foreign, record })
}

fn refused(name: &str, value: ValueRef<'_>, error: PropertyError) -> EntityError {
    let name = name.to_owned();
    match (error, value) {
        (PropertyError::DateOutOfRange, ValueRef::DateTime(value)) => {
            EntityError::DateOutOfRange { name, value }
        }
        (error, _) => EntityError::Property { name, error },
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    PartitionKey,
    RowKey,
    Timestamp,
    /// Any other `X`.
    Property,
    /// `X@odata.type`
    Type,
}

impl Kind {
    /// Of a member, by its whole name, with the length of the property's name in it. None if it is ignored.
    fn of(name: &str) -> Option<(Self, usize)> {
        const MARK: &str = "@odata.";
        let mut annotations = memchr_iter(b'@', name.as_bytes());
        if let Some(at) = annotations.find(|&at| name[at..].starts_with(MARK)) {
            return (&name[at + MARK.len()..] == "type").then_some((Self::Type, at));
        }
        let kind = match name {
            "PartitionKey" => Self::PartitionKey,
            "RowKey" => Self::RowKey,
            "Timestamp" => Self::Timestamp,
            _ => Self::Property,
        };
        Some((kind, name.len()))
    }
}

/// A member of the body that is not ignored.
struct Member<'a> {
    kind: Kind,
    /// Of the property's name, so that looking for one compares few texts.
    hash: u32,
    /// The property's name, also for an annotation.
    name: Text<'a>,
    value: Scalar<'a>,
}

impl Member<'_> {
    fn is(&self, kind: Kind, hash: u32, name: &str, reader: &Reader<'_>) -> bool {
        self.hash == hash && self.kind == kind && reader.resolve(&self.name) == name
    }
}

/// All members of a body, so that annotations may follow what they annotate; none twice.
struct Members<'a> {
    list: Vec<Member<'a>>,
    /// A bit for the hash of every value and of every annotation: a clear one saves a search.
    values: u64,
    types: u64,
    /// How many properties there are, and how many bytes their names take.
    properties: usize,
    name_bytes: usize,
    /// About how many bytes the values of the properties take.
    value_bytes: usize,
}

impl<'a> Members<'a> {
    /// Reads them to the end of the body.
    fn collect(reader: &mut Reader<'a>) -> Result<Self, EntityError> {
        let list = Vec::with_capacity(32);
        let mut this =
            Self { list, values: 0, types: 0, properties: 0, name_bytes: 0, value_bytes: 0 };
        while let Some((name, value)) = reader.member()? {
            let whole = reader.resolve(&name);
            if whole.starts_with("odata.") {
                continue;
            }
            if let Some((kind, len)) = Kind::of(whole) {
                this.add(reader, kind, len, name, value)?;
            }
        }
        Ok(this)
    }

    fn add(
        &mut self,
        reader: &Reader<'a>,
        kind: Kind,
        name_len: usize,
        mut name: Text<'a>,
        value: Scalar<'a>,
    ) -> Result<(), EntityError> {
        name.truncate(name_len);
        let text = reader.resolve(&name);
        let hash = hash(text);
        let seen = if kind == Kind::Type { &mut self.types } else { &mut self.values };
        let again = *seen & bit(hash) != 0
            && self.list.iter().any(|other| other.is(kind, hash, text, reader));
        let refuse = |error| EntityError::Property { name: text.to_owned(), error };
        if again {
            return Err(refuse(PropertyError::Duplicate));
        }
        if self.list.len() == limits::ENTITY_MEMBERS_MAX {
            return Err(refuse(PropertyError::TooMany));
        }
        *seen |= bit(hash);
        if kind == Kind::Property && !matches!(value, Scalar::Null) {
            self.properties += 1;
            self.name_bytes += name_len;
            self.value_bytes += match &value {
                Scalar::Text(text) => reader.resolve(text).len(),
                _ => 8,
            };
        }
        self.list.push(Member { kind, hash, name, value });
        Ok(())
    }

    /// What the body says about the type of a member.
    fn annotation(
        &self,
        member: &Member<'_>,
        name: &str,
        reader: &Reader<'_>,
    ) -> Option<&Scalar<'a>> {
        if self.types & bit(member.hash) == 0 {
            return None;
        }
        let found = self.list.iter().find(|other| other.is(Kind::Type, member.hash, name, reader));
        found.map(|annotation| &annotation.value)
    }

    /// With room for all properties, going by the length of what came in.
    fn builder(&self) -> RecordBuilder {
        RecordBuilder::with_room(self.properties, self.name_bytes, self.value_bytes)
    }
}

/// Both ends of the text and its length, mixed.
fn hash(text: &str) -> u32 {
    let bytes = text.as_bytes();
    let ends = match (bytes.first_chunk(), bytes.last_chunk()) {
        (Some(first), Some(last)) => {
            u64::from_le_bytes(*first) ^ u64::from_le_bytes(*last).rotate_left(29)
        }
        _ => bytes.iter().fold(0, |sum, &byte| sum << 8 | u64::from(byte)),
    };
    let mixed = (ends ^ bytes.len() as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> 32) as u32
}

/// One of 64.
fn bit(hash: u32) -> u64 {
    1 << (hash >> 26)
}

/// The text of a key, whatever it was written as.
fn key<'a>(reader: &Reader<'a>, value: &Scalar<'a>) -> Option<Cow<'a, str>> {
    match value {
        Scalar::Text(Text::Plain(text)) | Scalar::Number(text) => Some(Cow::Borrowed(text)),
        Scalar::Text(text) => Some(reader.resolve(text).to_owned().into()),
        Scalar::Bool(value) => Some(value.to_string().into()),
        Scalar::Null => None,
    }
}

fn edm_type(reader: &Reader<'_>, value: &Scalar<'_>) -> Result<EdmType, Malformed> {
    let Scalar::Text(text) = value else { return Err(Malformed) };
    EdmType::from_name(reader.resolve(text)).ok_or(Malformed)
}

/// The value without an annotation: an integer that fits is an Int32, any other number a Double.
fn inferred<'v>(reader: &'v Reader<'_>, value: &'v Scalar<'_>) -> Result<ValueRef<'v>, Malformed> {
    match value {
        Scalar::Text(text) => Ok(ValueRef::String(reader.resolve(text))),
        Scalar::Bool(value) => Ok(ValueRef::Boolean(*value)),
        Scalar::Number(digits) => match digits.parse() {
            Ok(value) => Ok(ValueRef::Int32(value)),
            Err(_) => double(digits).map(ValueRef::Double).ok_or(Malformed),
        },
        Scalar::Null => Err(Malformed),
    }
}

/// Accepts unused bits in the last digit, as the original does; padding must be there.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

/// The value as the type that the client says it has; numbers and Booleans may be strings.
fn annotated<'v>(
    reader: &'v Reader<'_>,
    value: &'v Scalar<'_>,
    edm_type: EdmType,
    binary: &'v mut Vec<u8>,
) -> Option<ValueRef<'v>> {
    let text = match value {
        Scalar::Text(text) => reader.resolve(text),
        Scalar::Number(digits) => match edm_type {
            EdmType::Int32 | EdmType::Int64 | EdmType::Double => digits,
            _ => return None,
        },
        Scalar::Bool(value) if edm_type == EdmType::Boolean => {
            return Some(ValueRef::Boolean(*value));
        }
        Scalar::Bool(_) | Scalar::Null => return None,
    };
    Some(match edm_type {
        EdmType::String => ValueRef::String(text),
        EdmType::Int32 => ValueRef::Int32(text.parse().ok()?),
        EdmType::Int64 => ValueRef::Int64(text.parse().ok()?),
        EdmType::Double => ValueRef::Double(match text {
            "NaN" => f64::NAN,
            "Infinity" => f64::INFINITY,
            "-Infinity" => f64::NEG_INFINITY,
            _ => double(text)?,
        }),
        EdmType::Boolean => ValueRef::Boolean(match text {
            _ if text.eq_ignore_ascii_case("true") => true,
            _ if text.eq_ignore_ascii_case("false") => false,
            _ => return None,
        }),
        EdmType::DateTime => ValueRef::DateTime(Timestamp::parse_iso(text).ok()?),
        EdmType::Guid => ValueRef::Guid(Guid::parse(text)?),
        EdmType::Binary => {
            binary.clear();
            BASE64.decode_vec(text, binary).ok()?;
            ValueRef::Binary(binary)
        }
    })
}

/// A finite number in digits. What is too large for a Double is refused; there is no negative zero.
fn double(text: &str) -> Option<f64> {
    // Letters other than the exponent's would let `inf` and `nan` through.
    let numeric = |byte: u8| byte.is_ascii_digit() || b"+-.eE".contains(&byte);
    let value: f64 = text.bytes().all(numeric).then(|| text.parse().ok()).flatten()?;
    value.is_finite().then_some(value + 0.0)
}
