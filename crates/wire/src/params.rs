//! The parts of a header value: `type; name=value; name="quoted value"`.

/// Splits at a separator, but not inside double quotes. Pieces are trimmed.
pub(crate) fn split(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let mut quoted = false;
    text.split(move |c| {
        quoted ^= c == '"';
        c == separator && !quoted
    })
    .map(str::trim)
}

/// The value of a parameter in `type; name=value; ...`, without its quotes. Names in any case.
pub(crate) fn value<'a>(header: &'a str, name: &str) -> Option<&'a str> {
    split(header, ';').skip(1).find_map(|piece| {
        let (found, value) = piece.split_once('=')?;
        found.trim().eq_ignore_ascii_case(name).then(|| unquote(value.trim()))
    })
}

fn unquote(value: &str) -> &str {
    value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters() {
        let cases = [
            ("multipart/mixed; boundary=b", Some("b")),
            ("multipart/mixed;BOUNDARY=\"b;c\"; x=y", Some("b;c")),
            ("multipart/mixed; x=\"boundary=no\"; boundary = b", Some("b")),
            ("multipart/mixed", None),
            ("boundary=b", None),
            ("", None),
            ("a; boundary=\"", Some("\"")),
        ];
        for (header, expected) in cases {
            assert_eq!(value(header, "boundary"), expected, "{header}");
        }
    }
}
