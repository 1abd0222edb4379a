//! Lower case, upper case and length of texts, the same wherever a filter is judged.
//!
//! Case is changed character by character, whatever the language. A character whose other case would be several
//! characters stays as it is, so `ß` has no upper case here and a text keeps its number of characters.

use std::borrow::Cow;

/// The text in lower case.
pub(crate) fn lower(text: &str) -> String {
    if text.is_ascii() {
        return text.to_ascii_lowercase();
    }
    text.chars().map(|c| only(c, c.to_lowercase())).collect()
}

/// The text in upper case.
pub(crate) fn upper(text: &str) -> String {
    if text.is_ascii() {
        return text.to_ascii_uppercase();
    }
    text.chars().map(|c| only(c, c.to_uppercase())).collect()
}

/// The length in UTF-16 code units, as the clients of the service count.
pub(crate) fn length(text: &str) -> i32 {
    let units = if text.is_ascii() { text.len() } else { text.encode_utf16().count() };
    i32::try_from(units).unwrap_or(i32::MAX)
}

/// Stored bytes as text. Engines store nothing else; a damaged byte reads as a character that is not what it was.
pub(crate) fn readable(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

fn only(c: char, mut others: impl ExactSizeIterator<Item = char>) -> char {
    match (others.len(), others.next()) {
        (1, Some(other)) => other,
        _ => c,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases() {
        let cases = [
            ("", "", ""),
            ("aBc1 ~", "abc1 ~", "ABC1 ~"),
            ("Éé", "éé", "ÉÉ"),
            ("Straße", "straße", "STRAßE"),
            ("İı", "İı", "İI"),
            ("ΣΑΣ", "σασ", "ΣΑΣ"),
            ("ﬁ", "ﬁ", "ﬁ"),
            ("名😀", "名😀", "名😀"),
            ("𐐀", "𐐨", "𐐀"),
        ];
        for (text, small, large) in cases {
            assert_eq!(lower(text), small, "{text}");
            assert_eq!(upper(text), large, "{text}");
        }
    }

    #[test]
    fn lengths() {
        for (text, expected) in [("", 0), ("abc", 3), ("é名", 2), ("😀", 2), ("e\u{301}", 2)] {
            assert_eq!(length(text), expected, "{text}");
        }
    }
}
