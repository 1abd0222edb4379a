//! From the body of a request to a record.

use crate::json::reader::{Malformed, Reader, Scalar, Text};
use base64::Engine as _;
use base64::alphabet;
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};
use rowhouse_types::{
    EdmType, Guid, PropertyError, Record, RecordBuilder, Timestamp, ValueRef, limits,
};

/// What the body of an insert, update or merge says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntityBody {
    /// PartitionKey, unchecked, if there and not null.
    pub partition: Option<String>,
    /// RowKey, unchecked, if there and not null.
    pub row: Option<String>,
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
pub fn read(body: &[u8]) -> Result<EntityBody, EntityError> {
    let mut reader = Reader::new(body)?;
    let members = collect(&mut reader)?;
    let (mut partition, mut row, mut foreign) = (None, None, false);
    let mut builder = RecordBuilder::new();
    let mut binary = Vec::new();
    for member in members.iter().filter(|member| member.kind == Kind::Value) {
        let name = reader.resolve(&member.name);
        match (name, &member.value) {
            ("PartitionKey" | "RowKey", value) => {
                let annotation =
                    members.iter().find(|other| other.is(Kind::Type, member.hash, name, &reader));
                foreign |= match annotation {
                    Some(annotation) => edm_type(&reader, &annotation.value)? != EdmType::String,
                    None => matches!(value, Scalar::Number(_) | Scalar::Bool(_)),
                };
                let slot = if name == "RowKey" { &mut row } else { &mut partition };
                *slot = key(&reader, value);
            }
            ("Timestamp", _) | (_, Scalar::Null) => {}
            (_, value) => {
                let annotation =
                    members.iter().find(|other| other.is(Kind::Type, member.hash, name, &reader));
                let value = match annotation {
                    None => inferred(&reader, value)?,
                    Some(annotation) => {
                        let edm_type = edm_type(&reader, &annotation.value)?;
                        annotated(&reader, value, edm_type, &mut binary).ok_or(Malformed)?
                    }
                };
                builder.push(name, value).map_err(|error| refused(name, value, error))?;
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
    /// `X`
    Value,
    /// `X@odata.type`
    Type,
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

/// Reads all members, so that annotations may follow what they annotate, and refuses repeated ones.
fn collect<'a>(reader: &mut Reader<'a>) -> Result<Vec<Member<'a>>, EntityError> {
    let mut members: Vec<Member<'a>> = Vec::with_capacity(32);
    while let Some((mut name, value)) = reader.member()? {
        let whole = reader.resolve(&name);
        if whole.starts_with("odata.") {
            continue;
        }
        let (kind, len) = match whole.split_once("@odata.") {
            None => (Kind::Value, whole.len()),
            Some((property, "type")) => (Kind::Type, property.len()),
            Some(_) => continue,
        };
        name.truncate(len);
        let text = reader.resolve(&name);
        let hash = hash(text);
        let refuse = |error| EntityError::Property { name: text.to_owned(), error };
        if members.iter().any(|other| other.is(kind, hash, text, reader)) {
            return Err(refuse(PropertyError::Duplicate));
        }
        if members.len() == limits::ENTITY_MEMBERS_MAX {
            return Err(refuse(PropertyError::TooMany));
        }
        members.push(Member { kind, hash, name, value });
    }
    Ok(members)
}

/// FNV-1a.
fn hash(text: &str) -> u32 {
    text.bytes().fold(0x811C_9DC5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// The text of a key, whatever it was written as.
fn key(reader: &Reader<'_>, value: &Scalar<'_>) -> Option<String> {
    match value {
        Scalar::Text(text) => Some(reader.resolve(text).to_owned()),
        Scalar::Number(digits) => Some((*digits).to_owned()),
        Scalar::Bool(value) => Some(value.to_string()),
        Scalar::Null => None,
    }
}

fn edm_type(reader: &Reader<'_>, value: &Scalar<'_>) -> Result<EdmType, Malformed> {
    let Scalar::Text(text) = value else { return Err(Malformed) };
    let name = reader.resolve(text);
    (1..).map_while(EdmType::from_tag).find(|known| known.name() == name).ok_or(Malformed)
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
