//! Names of accounts, tables and properties: text that has been checked once.

use crate::limits;
use std::fmt;
use std::str::FromStr;

/// Why a string is not a name or a key. Carries the offence, not the input: keys are user data.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Too short or too long.
    #[error("length {actual} is not within {min}..={max}")]
    Length {
        /// What was given, in the unit of the limit.
        actual: usize,
        /// Least allowed.
        min: usize,
        /// Most allowed.
        max: usize,
    },
    /// A character that the rule forbids, or forbids in its place.
    #[error("character {0:?} is not allowed")]
    Character(char),
    /// `Tables`, which names the collection of tables.
    #[error("the name is reserved")]
    Reserved,
}

/// Name of a table: a letter, then 2 to 62 letters or digits, ASCII only.
///
/// Keeps the case it was created with. Not `PartialEq` on purpose: names that differ only in
/// case are the same table, so comparing goes through [`TableName::is_same`] and storing through
/// [`TableName::folded`].
#[derive(Clone, Debug)]
pub struct TableName(Box<str>);

/// A table name in lower case: what makes two names the same table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FoldedName(Box<str>);

impl TableName {
    /// Checks the text and takes it over, without a copy if it is owned.
    ///
    /// Length comes before characters, and the whole name is judged, as the original does.
    pub fn new(text: impl AsRef<str> + Into<Box<str>>) -> Result<Self, NameError> {
        check_table_name(text.as_ref())?;
        Ok(Self(text.into()))
    }

    /// The name as it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// True if both name the same table.
    pub fn is_same(&self, other: &Self) -> bool {
        self.0.eq_ignore_ascii_case(&other.0)
    }

    /// The name as it is compared and stored.
    pub fn folded(&self) -> FoldedName {
        FoldedName(self.0.to_ascii_lowercase().into())
    }
}

impl FoldedName {
    /// Folds any text, valid as a table name or not: a place in the order of tables.
    pub fn of(text: &str) -> Self {
        Self(text.to_ascii_lowercase().into())
    }

    /// The lower-case text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for TableName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        Self::new(text)
    }
}

fn chars(text: &str) -> usize {
    if text.is_ascii() { text.len() } else { text.chars().count() }
}

/// Names the first character that is not allowed in its place. Only ASCII may be allowed.
fn check_bytes(text: &str, allowed: impl Fn(usize, u8) -> bool) -> Result<(), NameError> {
    let offence = text.bytes().enumerate().position(|(index, byte)| !allowed(index, byte));
    match offence.and_then(|at| text[at..].chars().next()) {
        Some(c) => Err(NameError::Character(c)),
        None => Ok(()),
    }
}

fn check_table_name(text: &str) -> Result<(), NameError> {
    let (min, max) = (limits::TABLE_NAME_CHARS_MIN, limits::TABLE_NAME_CHARS_MAX);
    let actual = chars(text);
    if actual < min || max < actual {
        return Err(NameError::Length { actual, min, max });
    }
    check_bytes(text, |index, byte| match index {
        0 => byte.is_ascii_alphabetic(),
        _ => byte.is_ascii_alphanumeric(),
    })?;
    if text.eq_ignore_ascii_case("tables") {
        return Err(NameError::Reserved);
    }
    Ok(())
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Name of a secondary index: 1 to 63 letters, digits, `-` and `_`, the first a letter or digit. Case matters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IndexName(Box<str>);

impl IndexName {
    /// Checks the text and takes it over.
    pub fn new(text: impl AsRef<str> + Into<Box<str>>) -> Result<Self, NameError> {
        let (min, max) = (1, limits::INDEX_NAME_CHARS_MAX);
        let actual = chars(text.as_ref());
        if actual < min || max < actual {
            return Err(NameError::Length { actual, min, max });
        }
        check_bytes(text.as_ref(), |index, byte| match byte {
            b'-' | b'_' => index > 0,
            _ => byte.is_ascii_alphanumeric(),
        })?;
        Ok(Self(text.into()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for IndexName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        Self::new(text)
    }
}

impl fmt::Display for IndexName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Name of a queue: 3 to 63 lower-case letters, digits and `-`, which stands alone and between others.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueName(Box<str>);

impl QueueName {
    /// Checks the text and takes it over. Characters come before length.
    pub fn new(text: impl AsRef<str> + Into<Box<str>>) -> Result<Self, NameError> {
        let (min, max) = (limits::QUEUE_NAME_CHARS_MIN, limits::QUEUE_NAME_CHARS_MAX);
        let bytes = text.as_ref().as_bytes();
        check_bytes(text.as_ref(), |index, byte| match byte {
            b'-' => index > 0 && index + 1 < bytes.len() && bytes[index - 1] != b'-',
            _ => byte.is_ascii_lowercase() || byte.is_ascii_digit(),
        })?;
        let actual = bytes.len();
        if actual < min || max < actual {
            return Err(NameError::Length { actual, min, max });
        }
        Ok(Self(text.into()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for QueueName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        Self::new(text)
    }
}

impl fmt::Display for QueueName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Name of a storage account: 3 to 24 lower-case letters and digits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AccountName(Box<str>);

impl AccountName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for AccountName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let (min, max) = (limits::ACCOUNT_NAME_CHARS_MIN, limits::ACCOUNT_NAME_CHARS_MAX);
        let actual = chars(text);
        if actual < min || max < actual {
            return Err(NameError::Length { actual, min, max });
        }
        check_bytes(text, |_, byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())?;
        Ok(Self(text.into()))
    }
}

impl fmt::Display for AccountName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Checks the name of a property: a letter or `_`, then letters, digits, `_` and the marks that
/// identifiers may hold; at most 255 UTF-16 units. Case matters.
///
/// A function and not a newtype: a property name lives inside a [`crate::Record`], which checks it on
/// the way in.
pub fn check_property_name(text: &str) -> Result<(), NameError> {
    let (min, max) = (1, limits::PROPERTY_NAME_UTF16_UNITS_MAX);
    if (min..=max).contains(&text.len()) && is_plain_identifier(text.as_bytes()) {
        return Ok(());
    }
    let actual = text.encode_utf16().count();
    if actual < min || max < actual {
        return Err(NameError::Length { actual, min, max });
    }
    let allowed = |(index, c): (usize, char)| match c {
        '_' | 'a'..='z' | 'A'..='Z' => true,
        '0'..='9' => index > 0,
        c if c.is_ascii() => false,
        c => c.is_alphabetic() || (index > 0 && (c.is_alphanumeric() || is_identifier_mark(c))),
    };
    match text.char_indices().find(|&at| !allowed(at)) {
        Some((_, c)) => Err(NameError::Character(c)),
        None => Ok(()),
    }
}

/// True for letters, digits and `_` of ASCII that do not start with a digit: nearly every name.
fn is_plain_identifier(name: &[u8]) -> bool {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    !name[0].is_ascii_digit() && name.iter().all(plain)
}

/// Combining marks, connectors and format characters that may follow the first letter of an
/// identifier (categories Mn, Mc, Pc, Cf), as far as the standard library can tell them: everything
/// that is neither whitespace, control, nor one of the blocks of punctuation and symbols.
fn is_identifier_mark(c: char) -> bool {
    matches!(
        c as u32,
        0x00AD | 0x0300..=0x036F | 0x0483..=0x0487 | 0x0591..=0x05BD | 0x0610..=0x061C
            | 0x064B..=0x065F | 0x06D6..=0x06DC | 0x0900..=0x0903 | 0x093A..=0x094F
            | 0x1AB0..=0x1AFF | 0x1DC0..=0x1DFF | 0x200C..=0x200F | 0x202A..=0x202E
            | 0x203F..=0x2040 | 0x2054 | 0x2060..=0x2064 | 0x20D0..=0x20FF | 0xFE00..=0xFE0F
            | 0xFE20..=0xFE2F | 0xFE33..=0xFE34 | 0xFE4D..=0xFE4F | 0xFEFF | 0xFF3F
    )
}

#[cfg(test)]
mod tests {
    use super::NameError::{Character, Length, Reserved};
    use super::*;

    /// One row per rule of the naming section, in its order, on both sides of each edge.
    #[test]
    fn table_name_rules() {
        let (longest, too_long) = ("a".repeat(63), "a".repeat(64));
        let (min, max) = (3, 63);
        let cases: &[(&str, &str, Result<(), NameError>)] = &[
            ("shortest", "abc", Ok(())),
            ("one short", "ab", Err(Length { actual: 2, min, max })),
            ("longest", &longest, Ok(())),
            ("one over", &too_long, Err(Length { actual: 64, min, max })),
            ("digit first", "1ab", Err(Character('1'))),
            ("not ASCII", "tablé", Err(Character('é'))),
            ("reserved, any case", "Tables", Err(Reserved)),
        ];
        for (rule, input, expected) in cases {
            let actual = input.parse::<TableName>().map(drop);
            assert_eq!(&actual, expected, "{rule}: {input:?}");
        }
    }

    #[test]
    fn queue_name_rules() {
        let (longest, too_long) = ("a".repeat(63), "a".repeat(64));
        for good in ["abc", "a-b", "0-9-a", "123", &longest] {
            assert!(good.parse::<QueueName>().is_ok(), "{good:?}");
        }
        let (min, max) = (3, 63);
        let cases: &[(&str, NameError)] = &[
            ("ab", Length { actual: 2, min, max }),
            ("", Length { actual: 0, min, max }),
            (&too_long, Length { actual: 64, min, max }),
            ("Abc", Character('A')),
            ("a_b", Character('_')),
            ("-ab", Character('-')),
            ("ab-", Character('-')),
            ("a--b", Character('-')),
            ("schlänge", Character('ä')),
        ];
        for (bad, expected) in cases {
            assert_eq!(&bad.parse::<QueueName>().unwrap_err(), expected, "{bad:?}");
        }
    }

    #[test]
    fn property_name_rules() {
        for good in ["a", "_", "A1", "größe", "名前", "e\u{301}", &"x".repeat(255)] {
            assert_eq!(check_property_name(good), Ok(()), "{good:?}");
        }
        for bad in ["", "1a", "a-b", "a.b", "a b", "a@b", "a\u{0}", "😀", &"x".repeat(256)] {
            assert!(check_property_name(bad).is_err(), "{bad:?}");
        }
    }
}
