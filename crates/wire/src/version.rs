//! Versions of the protocol: the dates that clients send in `x-ms-version`.

use std::fmt;

/// A version of the protocol, `YYYY-MM-DD`. Later versions are greater.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ApiVersion([u8; 10]);

impl ApiVersion {
    /// The first version with entity group transactions, and the first of all.
    pub const V2009_04_14: Self = Self(*b"2009-04-14");
    /// Messages of 64 KiB.
    pub const V2011_08_18: Self = Self(*b"2011-08-18");
    /// Who puts a message is told its receipt.
    pub const V2016_05_31: Self = Self(*b"2016-05-31");
    /// Messages that live for any time, and the code of an error in a header.
    pub const V2017_07_29: Self = Self(*b"2017-07-29");
    /// Bearer tokens, and one more line in what an account signature signs.
    pub const V2020_12_06: Self = Self(*b"2020-12-06");
    /// What a request without a version gets: the version that most clients send.
    pub const DEFAULT: Self = Self(*b"2019-02-02");

    /// Parses a date from the first version on. Versions that do not exist yet are accepted, so
    /// that newer clients work; dates before the first version are not.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes: [u8; 10] = text.as_bytes().try_into().ok()?;
        let formed = bytes.iter().enumerate().all(|(at, byte)| match at {
            4 | 7 => *byte == b'-',
            _ => byte.is_ascii_digit(),
        });
        if !formed {
            return None;
        }
        let pair = |at: usize| (bytes[at] - b'0') * 10 + (bytes[at + 1] - b'0');
        let version = Self(bytes);
        let dated = (1..=12).contains(&pair(5)) && (1..=31).contains(&pair(8));
        (dated && Self::V2009_04_14 <= version).then_some(version)
    }

    /// The version as clients write it.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("digits and hyphens only")
    }
}

impl Default for ApiVersion {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl fmt::Display for ApiVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for ApiVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ApiVersion({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn order_and_text() {
        let known = ApiVersion::parse("2015-12-11").unwrap();
        assert_eq!(known, ApiVersion(*b"2015-12-11"));
        assert_eq!(known.as_str(), "2015-12-11");
        assert!(known < ApiVersion::DEFAULT && ApiVersion::DEFAULT < ApiVersion::V2020_12_06);
        assert!(ApiVersion::parse("2099-01-31").is_some(), "a version to come");
    }

    #[test]
    fn what_is_not_a_version() {
        let cases = [
            "",
            "2019",
            "2019-2-2",
            "2019-02-02 ",
            "2019/02/02",
            "2019-13-01",
            "2019-00-01",
            "2019-01-00",
            "2019-01-32",
            "20é9-01-1",
            "foo",
            "2008-10-27",
        ];
        for text in cases {
            assert_eq!(ApiVersion::parse(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_answered(text in "\\PC{0,12}|[0-9-]{10}") {
            if let Some(version) = ApiVersion::parse(&text) {
                prop_assert_eq!(version.as_str(), text);
            }
        }
    }
}
