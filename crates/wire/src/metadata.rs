//! What users say about a queue, in headers: `x-ms-meta-name: value`.

use rowhouse_types::limits;
use std::collections::HashSet;

/// What the name of such a header starts with.
pub const PREFIX: &str = "x-ms-meta-";

/// Why names and values are refused. Each has an error code of its own.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MetadataError {
    /// A header without a name after the prefix.
    #[error("a name is empty")]
    EmptyName {
        /// The value of that header.
        value: Box<str>,
    },
    /// A name that is no identifier, or stands there twice; a value that is not ASCII.
    #[error("a name or a value has characters that are not permitted")]
    Invalid,
    /// More than 8 KiB.
    #[error("the metadata are too large")]
    TooLarge,
}

/// Names and values in the order in which they were given.
pub type Pairs = Vec<(Box<str>, Box<str>)>;

/// Picks the metadata out of headers. Names are known in any case, and keep theirs; a value is none if it is not visible
/// ASCII.
///
/// A header named like the prefix without its hyphen is some client's mistake, and means nothing.
pub fn read<'a>(
    headers: impl Iterator<Item = (&'a str, Option<&'a str>)>,
) -> Result<Pairs, MetadataError> {
    let mut pairs = Pairs::new();
    let mut known = HashSet::new();
    let mut bytes = 0;
    for (header, value) in headers {
        let Some((start, name)) = header.split_at_checked(PREFIX.len()) else { continue };
        if !start.eq_ignore_ascii_case(PREFIX) {
            continue;
        }
        if name.is_empty() {
            let value = value.unwrap_or_default().trim().into();
            return Err(MetadataError::EmptyName { value });
        }
        let value = value.ok_or(MetadataError::Invalid)?.trim();
        if !is_identifier(name) || !value.is_ascii() || !known.insert(name.to_ascii_lowercase()) {
            return Err(MetadataError::Invalid);
        }
        bytes += name.len() + value.len();
        if limits::METADATA_BYTES_MAX < bytes {
            return Err(MetadataError::TooLarge);
        }
        pairs.push((name.into(), value.into()));
    }
    Ok(pairs)
}

fn is_identifier(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    name.bytes().all(plain) && !name.starts_with(|c: char| c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(headers: &[(&str, &str)]) -> Result<Vec<(String, String)>, MetadataError> {
        let pairs = read(headers.iter().map(|(name, value)| (*name, Some(*value))))?;
        Ok(pairs.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }

    #[test]
    fn names_and_values() {
        let own = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|&(n, v)| (n.to_owned(), v.to_owned())).collect::<Vec<_>>()
        };
        let sent = [
            ("x-ms-meta-color", " red "),
            ("x-ms-meta", "{'val': 'value'}"),
            ("content-type", "x"),
            ("x-ms-meta-_a1", ""),
            ("X-Ms-Meta-UPPER", "Case"),
        ];
        assert_eq!(of(&sent), Ok(own(&[("color", "red"), ("_a1", ""), ("UPPER", "Case")])));
        let most = "v".repeat(limits::METADATA_BYTES_MAX - 1);
        assert!(of(&[("x-ms-meta-a", &most)]).is_ok());
        assert_eq!(
            of(&[("x-ms-meta-a", &most), ("x-ms-meta-b", "")]),
            Err(MetadataError::TooLarge)
        );
        for name in ["x-ms-meta-1a", "x-ms-meta-a-b", "x-ms-meta-a.b", "x-ms-meta-é"] {
            assert_eq!(of(&[(name, "")]), Err(MetadataError::Invalid), "{name}");
        }
        let empty = MetadataError::EmptyName { value: "v".into() };
        assert_eq!(of(&[("x-ms-meta-", "v")]), Err(empty));
        let twice = [("x-ms-meta-a", "1"), ("x-ms-meta-A", "2")];
        assert_eq!(of(&twice), Err(MetadataError::Invalid));
        assert_eq!(read([("x-ms-meta-a", None)].into_iter()), Err(MetadataError::Invalid));
    }

    proptest! {
        #[test]
        fn any_headers_are_answered(name in "(x-ms-meta-)?\\PC{0,6}", value in "\\PC{0,6}") {
            let _ = of(&[(&name, &value)]);
        }
    }
}
