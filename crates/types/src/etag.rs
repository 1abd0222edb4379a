//! ETags: the Timestamp of an entity, as a client holds it.

use crate::time::Timestamp;
use std::fmt;
use std::str::FromStr;

/// A condition that a client may send with a write.
///
/// Written `W/"datetime'2022-05-06T00%3A34%3A41.820498Z'"`: the Timestamp's text with `:` escaped.
/// A well-formed tag with any other text inside is kept as one that no entity ever has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Etag(Option<Timestamp>);

/// The text is not one weak tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a single weak etag")]
pub struct EtagError;

impl Etag {
    /// The tag of an entity last written then.
    pub fn new(timestamp: Timestamp) -> Self {
        Self(Some(timestamp))
    }

    /// True if an entity with this Timestamp has this tag.
    pub fn matches(self, timestamp: Timestamp) -> bool {
        self.0 == Some(timestamp)
    }

    /// The Timestamp that the tag stands for; none for a tag that no entity has.
    pub fn timestamp(self) -> Option<Timestamp> {
        self.0
    }
}

impl FromStr for Etag {
    type Err = EtagError;

    /// Accepts `:` and `%3A` alike, and fractions with trailing zeros: clients decode and re-encode.
    fn from_str(text: &str) -> Result<Self, EtagError> {
        let inner = text
            .trim()
            .strip_prefix("W/\"")
            .and_then(|rest| rest.strip_suffix('"'))
            .filter(|inner| !inner.contains('"'))
            .ok_or(EtagError)?;
        let instant = inner
            .strip_prefix("datetime'")
            .and_then(|rest| rest.strip_suffix('\''))
            .map(|time| time.replace("%3A", ":").replace("%3a", ":"))
            .and_then(|time| Timestamp::parse_iso(&time).ok());
        Ok(Self(instant))
    }
}

impl Etag {
    /// Hands its text to `take`, which decides where it goes.
    pub fn with_text<T>(self, take: impl FnOnce(&str) -> T) -> T {
        let time = self.0.unwrap_or_default().iso();
        let time = time.as_bytes();
        let mut text = *b"W/\"datetime'0000-00-00T00%3A00%3A00.0000000Z'\"";
        // Only the fraction varies in length.
        text[12..25].copy_from_slice(&time[..13]);
        text[28..30].copy_from_slice(&time[14..16]);
        let (seconds, end) = (&time[17..], 33 + time.len() - 17);
        text[33..end].copy_from_slice(seconds);
        text[end..end + 2].copy_from_slice(b"'\"");
        take(std::str::from_utf8(&text[..end + 2]).expect("ASCII only"))
    }
}

impl fmt::Display for Etag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.with_text(|text| f.write_str(text))
    }
}

/// The text, in exactly the memory that it takes.
impl From<Etag> for String {
    fn from(etag: Etag) -> Self {
        etag.with_text(str::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_a_tag() {
        let t = Timestamp::parse_iso("2022-05-06T00:34:41.820498Z").unwrap();
        let text = "W/\"datetime'2022-05-06T00%3A34%3A41.820498Z'\"";
        assert_eq!(Etag::new(t).to_string(), text);
        assert_eq!(String::from(Etag::new(t)), text);
        let whole = Timestamp::parse_iso("2022-05-06T00:34:41Z").unwrap();
        assert_eq!(Etag::new(whole).to_string(), "W/\"datetime'2022-05-06T00%3A34%3A41Z'\"");
        let longest = "W/\"datetime'9999-12-31T23%3A59%3A59.9999999Z'\"";
        assert_eq!(Etag::new(Timestamp::MAX).to_string(), longest);
        for spelling in [
            text,
            "W/\"datetime'2022-05-06T00:34:41.820498Z'\"",
            "W/\"datetime'2022-05-06T00%3A34%3A41.8204980Z'\"",
        ] {
            assert!(spelling.parse::<Etag>().unwrap().matches(t), "{spelling}");
        }
    }

    #[test]
    fn foreign_tags_match_nothing_and_malformed_ones_are_refused() {
        assert_eq!("W/\"wrong\"".parse::<Etag>().unwrap().timestamp(), None);
        for bad in ["", "test", "\"strong\"", "W/\"a\", W/\"b\"", "W/\"", "*"] {
            assert_eq!(bad.parse::<Etag>(), Err(EtagError), "{bad}");
        }
    }
}
