//! The eight types of a property, owned on the way in and borrowed everywhere else.

use crate::time::Timestamp;
use std::fmt;

/// Type of a property. The numbers are part of the record format and never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum EdmType {
    /// UTF-8 text.
    String = 1,
    /// 32-bit signed integer.
    Int32 = 2,
    /// 64-bit signed integer.
    Int64 = 3,
    /// 64-bit float.
    Double = 4,
    /// True or false.
    Boolean = 5,
    /// Instant in ticks of 100 ns.
    DateTime = 6,
    /// 128-bit identifier.
    Guid = 7,
    /// Bytes.
    Binary = 8,
}

impl EdmType {
    /// From the number in a record.
    pub fn from_tag(tag: u8) -> Option<Self> {
        Some(match tag {
            1 => Self::String,
            2 => Self::Int32,
            3 => Self::Int64,
            4 => Self::Double,
            5 => Self::Boolean,
            6 => Self::DateTime,
            7 => Self::Guid,
            8 => Self::Binary,
            _ => return None,
        })
    }

    /// From its name on the wire. Case matters.
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "Edm.String" => Self::String,
            "Edm.Int32" => Self::Int32,
            "Edm.Int64" => Self::Int64,
            "Edm.Double" => Self::Double,
            "Edm.Boolean" => Self::Boolean,
            "Edm.DateTime" => Self::DateTime,
            "Edm.Guid" => Self::Guid,
            "Edm.Binary" => Self::Binary,
            _ => return None,
        })
    }

    /// `Edm.Int32` and so on, as on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::String => "Edm.String",
            Self::Int32 => "Edm.Int32",
            Self::Int64 => "Edm.Int64",
            Self::Double => "Edm.Double",
            Self::Boolean => "Edm.Boolean",
            Self::DateTime => "Edm.DateTime",
            Self::Guid => "Edm.Guid",
            Self::Binary => "Edm.Binary",
        }
    }
}

/// A Guid, its bytes in the order in which its text shows them, so that bytes sort as text does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Guid(pub [u8; 16]);

impl Guid {
    /// Parses `8-4-4-4-12` hexadecimal digits of either case.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.as_bytes();
        if text.len() != 36 {
            return None;
        }
        let mut bytes = [0; 16];
        let mut filled = 0;
        let mut at = 0;
        while at < 36 {
            if matches!(at, 8 | 13 | 18 | 23) {
                if text[at] != b'-' {
                    return None;
                }
                at += 1;
                continue;
            }
            let digit = |byte: u8| char::from(byte).to_digit(16);
            let (high, low) = (digit(text[at])?, digit(text[at + 1])?);
            bytes[filled] = u8::try_from(high * 16 + low).ok()?;
            filled += 1;
            at += 2;
        }
        Some(Self(bytes))
    }
}

impl Guid {
    /// The canonical text: lower-case digits in groups of 8, 4, 4, 4 and 12.
    pub fn text(self) -> [u8; 36] {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        let mut text = [b'-'; 36];
        let mut at = 0;
        for (index, byte) in self.0.iter().enumerate() {
            if matches!(index, 4 | 6 | 8 | 10) {
                at += 1;
            }
            text[at] = HEX[usize::from(byte >> 4)];
            text[at + 1] = HEX[usize::from(byte & 15)];
            at += 2;
        }
        text
    }
}

impl fmt::Display for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(std::str::from_utf8(&self.text()).expect("ASCII digits only"))
    }
}

/// A value that owns its bytes.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Text.
    String(Box<str>),
    /// 32-bit integer.
    Int32(i32),
    /// 64-bit integer.
    Int64(i64),
    /// Float.
    Double(f64),
    /// Boolean.
    Boolean(bool),
    /// Instant.
    DateTime(Timestamp),
    /// Identifier.
    Guid(Guid),
    /// Bytes.
    Binary(Box<[u8]>),
}

/// A value inside a record.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ValueRef<'a> {
    /// Text.
    String(&'a str),
    /// 32-bit integer.
    Int32(i32),
    /// 64-bit integer.
    Int64(i64),
    /// Float.
    Double(f64),
    /// Boolean.
    Boolean(bool),
    /// Instant.
    DateTime(Timestamp),
    /// Identifier.
    Guid(Guid),
    /// Bytes.
    Binary(&'a [u8]),
}

impl Value {
    /// The same value, borrowed.
    pub fn as_ref(&self) -> ValueRef<'_> {
        match self {
            Self::String(text) => ValueRef::String(text),
            Self::Int32(n) => ValueRef::Int32(*n),
            Self::Int64(n) => ValueRef::Int64(*n),
            Self::Double(n) => ValueRef::Double(*n),
            Self::Boolean(b) => ValueRef::Boolean(*b),
            Self::DateTime(t) => ValueRef::DateTime(*t),
            Self::Guid(g) => ValueRef::Guid(*g),
            Self::Binary(bytes) => ValueRef::Binary(bytes),
        }
    }
}

impl ValueRef<'_> {
    /// The type of the value.
    pub fn edm_type(self) -> EdmType {
        match self {
            Self::String(_) => EdmType::String,
            Self::Int32(_) => EdmType::Int32,
            Self::Int64(_) => EdmType::Int64,
            Self::Double(_) => EdmType::Double,
            Self::Boolean(_) => EdmType::Boolean,
            Self::DateTime(_) => EdmType::DateTime,
            Self::Guid(_) => EdmType::Guid,
            Self::Binary(_) => EdmType::Binary,
        }
    }

    /// A copy that owns its bytes.
    pub fn to_owned(self) -> Value {
        match self {
            Self::String(text) => Value::String(text.into()),
            Self::Int32(n) => Value::Int32(n),
            Self::Int64(n) => Value::Int64(n),
            Self::Double(n) => Value::Double(n),
            Self::Boolean(b) => Value::Boolean(b),
            Self::DateTime(t) => Value::DateTime(t),
            Self::Guid(g) => Value::Guid(g),
            Self::Binary(bytes) => Value::Binary(bytes.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_tags_come_back() {
        let known: Vec<_> = (0..=u8::MAX).filter_map(EdmType::from_tag).collect();
        assert_eq!(known.len(), 8);
        for edm_type in known {
            assert_eq!(EdmType::from_tag(edm_type as u8), Some(edm_type));
            assert_eq!(EdmType::from_name(edm_type.name()), Some(edm_type));
        }
        for unknown in ["", "Int32", "Edm.Byte", "edm.Int32", "Edm.Int32 "] {
            assert_eq!(EdmType::from_name(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn guid_text() {
        let text = "c9da6455-213d-42c9-9a79-3e9149a57833";
        assert_eq!(Guid::parse(text).unwrap().to_string(), text);
        assert_eq!(Guid::parse(&text.to_uppercase()).unwrap().to_string(), text);
        for bad in ["", "zzz", "c9da6455213d42c99a793e9149a57833", &format!("{{{text}}}")] {
            assert_eq!(Guid::parse(bad), None, "{bad}");
        }
        assert_eq!(Guid::parse("c9da6455-213d-42c9-9a79-3e9149a5783é"), None);
    }
}
