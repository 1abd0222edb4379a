//! Keys of entities, places between them and ranges of them.
//!
//! Order everywhere is the byte order of UTF-8, PartitionKey first. A key holds no U+0000, so the
//! place right after a key is that key with U+0000 appended; [`Position`] builds on it, and every
//! range is half open.

use crate::limits;
use crate::name::NameError;
use std::fmt;
use std::str::FromStr;

/// Checks a PartitionKey or RowKey: at most 1,024 UTF-16 units, none of `/ \ # ?`, no control characters.
fn check_key(text: &str) -> Result<(), NameError> {
    let max = limits::KEY_UTF16_UNITS_MAX;
    // A byte holds at most one UTF-16 unit, so short texts need no count.
    if max < text.len() {
        let actual = text.encode_utf16().count();
        if max < actual {
            return Err(NameError::Length { actual, min: 0, max });
        }
    }
    // Nearly every key is plain ASCII, which is judged byte by byte.
    let plain =
        |byte: &u8| matches!(byte, 0x20..0x7F) && !matches!(byte, b'/' | b'\\' | b'#' | b'?');
    if text.as_bytes().iter().all(plain) {
        return Ok(());
    }
    let forbidden = |c: char| c.is_control() || matches!(c, '/' | '\\' | '#' | '?');
    match text.chars().find(|&c| forbidden(c)) {
        Some(c) => Err(NameError::Character(c)),
        None => Ok(()),
    }
}

macro_rules! key_half {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Box<str>);

        impl $name {
            /// Checks the text and takes it over, without a copy if it is owned.
            pub fn new(text: impl AsRef<str> + Into<Box<str>>) -> Result<Self, NameError> {
                check_key(text.as_ref())?;
                Ok(Self(text.into()))
            }

            /// The key as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = NameError;

            fn from_str(text: &str) -> Result<Self, NameError> {
                Self::new(text)
            }
        }

        /// Shows the length only: keys are user data and must not reach a log.
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({} bytes)"), self.0.len())
            }
        }
    };
}

key_half! {
    /// First half of an entity's key. May be empty.
    PartitionKey
}
key_half! {
    /// Second half of an entity's key. May be empty.
    RowKey
}

/// What names an entity within its table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntityKey {
    /// First half.
    pub partition: PartitionKey,
    /// Second half.
    pub row: RowKey,
}

impl EntityKey {
    /// Checks both halves.
    pub fn new(partition: &str, row: &str) -> Result<Self, NameError> {
        Ok(Self { partition: partition.parse()?, row: row.parse()? })
    }

    /// Checks both halves and keeps nothing.
    pub fn check(partition: &str, row: &str) -> Result<(), NameError> {
        check_key(partition)?;
        check_key(row)
    }
}

/// A place in the order of keys: before every key that is not less than `(partition, row)`.
///
/// Need not be a legal key: it may hold U+0000 (the place right after a key) and be of any length.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// Compared first.
    pub partition: Box<str>,
    /// Compared second.
    pub row: Box<str>,
}

impl Position {
    /// The place before everything.
    pub fn min() -> Self {
        Self::before("", "")
    }

    /// The place right before the key, whether or not an entity has it.
    pub fn before(partition: &str, row: &str) -> Self {
        Self { partition: partition.into(), row: row.into() }
    }

    /// The place right after the key.
    pub fn after(partition: &str, row: &str) -> Self {
        Self { partition: partition.into(), row: format!("{row}\0").into() }
    }

    /// The place before the first key of the partition.
    pub fn before_partition(partition: &str) -> Self {
        Self::before(partition, "")
    }

    /// The place after the last key of the partition.
    pub fn after_partition(partition: &str) -> Self {
        Self { partition: format!("{partition}\0").into(), row: "".into() }
    }
}

impl fmt::Debug for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Position({} bytes, {} bytes)", self.partition.len(), self.row.len())
    }
}

/// A way through the order of keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Direction {
    /// The first key first.
    #[default]
    Ascending,
    /// The last key first.
    Descending,
}

impl Direction {
    /// The keys that are left when everything up to the key, and not the key itself, has been passed.
    pub fn rest(self, key: &Position) -> KeyRange {
        match self {
            Self::Ascending => KeyRange { start: key.clone(), end: None },
            Self::Descending => {
                let end = Position::after(&key.partition, &key.row);
                KeyRange { start: Position::min(), end: Some(end) }
            }
        }
    }
}

/// Keys from `start` on and before `end`; without `end`, to the last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    /// The first key may be here.
    pub start: Position,
    /// No key is here or beyond.
    pub end: Option<Position>,
}

impl KeyRange {
    /// Every key.
    pub fn all() -> Self {
        Self { start: Position::min(), end: None }
    }

    /// Just one key.
    pub fn point(partition: &str, row: &str) -> Self {
        Self { start: Position::before(partition, row), end: Some(Position::after(partition, row)) }
    }

    /// Every key of one partition.
    pub fn partition(partition: &str) -> Self {
        Self {
            start: Position::before_partition(partition),
            end: Some(Position::after_partition(partition)),
        }
    }

    /// True if no key can be inside.
    pub fn is_empty(&self) -> bool {
        self.end.as_ref().is_some_and(|end| *end <= self.start)
    }

    /// True if the key is inside.
    pub fn contains(&self, partition: &str, row: &str) -> bool {
        let key = (partition, row);
        (&*self.start.partition, &*self.start.row) <= key
            && self.end.as_ref().is_none_or(|end| key < (&*end.partition, &*end.row))
    }

    /// The keys in both, or nothing.
    pub fn intersect(&self, other: &Self) -> Option<Self> {
        let start = self.start.clone().max(other.start.clone());
        let end = match (&self.end, &other.end) {
            (Some(a), Some(b)) => Some(a.min(b).clone()),
            (a, b) => a.as_ref().or(b.as_ref()).cloned(),
        };
        let both = Self { start, end };
        (!both.is_empty()).then_some(both)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_rules() {
        for good in ["", "O'Brien", "a%b", "a+b", "a b", "a&b=c", "\"", "é", "😀"] {
            assert!(good.parse::<PartitionKey>().is_ok(), "{good:?}");
        }
        assert!("k".repeat(1024).parse::<RowKey>().is_ok());
        assert!("k".repeat(1025).parse::<RowKey>().is_err());
        assert!("😀".repeat(512).parse::<RowKey>().is_ok());
        assert!("😀".repeat(513).parse::<RowKey>().is_err());
        let controls = (0..=0x1F).chain(0x7F..=0x9F).filter_map(char::from_u32);
        for bad in controls.chain("/\\#?".chars()) {
            let error = format!("a{bad}").parse::<RowKey>().unwrap_err();
            assert_eq!(error, NameError::Character(bad));
        }
    }

    #[test]
    fn ranges() {
        let point = KeyRange::point("p", "r");
        assert!(point.contains("p", "r"));
        assert!(
            !point.contains("p", "r ") && !point.contains("p", "q") && !point.contains("o", "r")
        );
        let partition = KeyRange::partition("p");
        assert!(partition.contains("p", "") && partition.contains("p", "\u{10FFFF}"));
        assert!(!partition.contains("p!", "") && !partition.contains("o", "z"));
        assert_eq!(partition.intersect(&point), Some(point.clone()));
        assert_eq!(KeyRange::partition("q").intersect(&point), None);
        assert_eq!(KeyRange::all().intersect(&point), Some(point));
    }
}
