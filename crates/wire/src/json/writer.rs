//! Writes JSON straight into the bytes of an answer, without blanks.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rowhouse_types::Timestamp;
use std::fmt;

/// Writes a string with its quotes.
pub(crate) fn string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    escaped(out, text);
    out.push(b'"');
}

/// Writes text as it stands between quotes.
pub(crate) fn escaped(out: &mut Vec<u8>, text: &str) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let bytes = text.as_bytes();
    let (mut done, mut at) = (0, 0);
    while let Some(special) = next_special(bytes, at) {
        let byte = bytes[special];
        out.extend_from_slice(&bytes[done..special]);
        (done, at) = (special + 1, special + 1);
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0x08 => out.extend_from_slice(b"\\b"),
            0x0C => out.extend_from_slice(b"\\f"),
            _ => {
                out.extend_from_slice(b"\\u00");
                out.extend_from_slice(&[HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
            }
        }
    }
    out.extend_from_slice(&bytes[done..]);
}

/// Where the next byte is that JSON wants escaped: a quote, a backslash or a control character.
///
/// Looks at eight bytes at a time, since most text has none.
fn next_special(bytes: &[u8], from: usize) -> Option<usize> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const TOPS: u64 = 0x8080_8080_8080_8080;
    let zeros = |word: u64| word.wrapping_sub(ONES) & !word & TOPS;
    let mut at = from;
    while let Some(Ok(chunk)) = bytes.get(at..at + 8).map(<[u8; 8]>::try_from) {
        let word = u64::from_ne_bytes(chunk);
        let control = word.wrapping_sub(ONES * 0x20) & !word & TOPS;
        if control | zeros(word ^ (ONES * 0x22)) | zeros(word ^ (ONES * 0x5C)) != 0 {
            break;
        }
        at += 8;
    }
    let special = |&byte: &u8| byte < 0x20 || byte == b'"' || byte == b'\\';
    bytes[at..].iter().position(special).map(|offset| at + offset)
}

/// Writes an integer.
pub(crate) fn integer(out: &mut Vec<u8>, value: impl itoa::Integer) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// Writes a finite number so that it reads back the same and is seen to be no integer. Exponents are
/// spelled as the original does: `1.5E+24`, `1E-05`.
pub(crate) fn finite(out: &mut Vec<u8>, value: f64) {
    // Both zeros are written alike: the protocol has no negative zero.
    let value = if value == 0.0 { 0.0 } else { value };
    let mut buffer = ryu::Buffer::new();
    let text = buffer.format_finite(value);
    let (digits, exponent) = text.split_once('e').unwrap_or((text, ""));
    out.extend_from_slice(digits.as_bytes());
    if !exponent.is_empty() {
        let (sign, exponent) = match exponent.strip_prefix('-') {
            Some(rest) => ("E-", rest),
            None => ("E+", exponent),
        };
        out.extend_from_slice(sign.as_bytes());
        if exponent.len() == 1 {
            out.push(b'0');
        }
        out.extend_from_slice(exponent.as_bytes());
    }
}

/// Writes Base64 without quotes.
pub(crate) fn base64(out: &mut Vec<u8>, bytes: &[u8]) {
    let start = out.len();
    out.resize(start + bytes.len().div_ceil(3) * 4, 0);
    let written = STANDARD.encode_slice(bytes, &mut out[start..]);
    debug_assert_eq!(written, Ok(out.len() - start));
}

/// The text of an instant, without an allocation.
pub(crate) struct TimeText {
    bytes: [u8; 28],
    len: usize,
}

impl TimeText {
    pub(crate) fn new(timestamp: Timestamp) -> Self {
        let mut this = Self { bytes: [0; 28], len: 0 };
        timestamp.write_iso(&mut this).expect("an instant takes at most 28 bytes");
        this
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl fmt::Write for TimeText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.len + text.len();
        self.bytes.get_mut(self.len..end).ok_or(fmt::Error)?.copy_from_slice(text.as_bytes());
        self.len = end;
        Ok(())
    }
}

/// An object being written: puts the commas.
pub(crate) struct Object<'o> {
    pub(crate) out: &'o mut Vec<u8>,
    empty: bool,
}

impl<'o> Object<'o> {
    /// Opens it.
    pub(crate) fn open(out: &'o mut Vec<u8>) -> Self {
        out.push(b'{');
        Self { out, empty: true }
    }

    /// Writes the name of the next member, in two parts; its value is the caller's.
    pub(crate) fn name(&mut self, name: &str, suffix: &str) {
        if !std::mem::take(&mut self.empty) {
            self.out.push(b',');
        }
        self.out.push(b'"');
        escaped(self.out, name);
        self.out.extend_from_slice(suffix.as_bytes());
        self.out.extend_from_slice(b"\":");
    }

    /// Writes a member that is a string.
    pub(crate) fn text(&mut self, name: &str, value: &str) {
        self.name(name, "");
        string(self.out, value);
    }

    /// Closes it.
    pub(crate) fn close(self) {
        self.out.push(b'}');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn strings() {
        let cases = [
            ("", r#""""#),
            ("plain é😀\u{7f}\u{2028}", "\"plain é😀\u{7f}\u{2028}\""),
            ("a\"b\\c/d", r#""a\"b\\c/d""#),
            ("\n\r\t\u{8}\u{C}\0\u{1f}", r#""\n\r\t\b\f\u0000\u001f""#),
        ];
        for (text, expected) in cases {
            assert_eq!(written(|out| string(out, text)), expected);
        }
    }

    #[test]
    fn numbers() {
        let cases = [
            (0.0, "0.0"),
            (-0.0, "0.0"),
            (5.0, "5.0"),
            (-1.5, "-1.5"),
            (3.1, "3.1"),
            (200.23, "200.23"),
            (1e20, "1E+20"),
            (1e-7, "1E-07"),
            (1.234_567_890_123_46e24, "1.23456789012346E+24"),
            (f64::MIN_POSITIVE, "2.2250738585072014E-308"),
            (f64::MAX, "1.7976931348623157E+308"),
        ];
        for (value, expected) in cases {
            assert_eq!(written(|out| finite(out, value)), expected);
        }
    }

    #[test]
    fn bytes() {
        for (bytes, expected) in [
            (&b""[..], ""),
            (b"a", "YQ=="),
            (b"ab", "YWI="),
            (b"abc", "YWJj"),
            (b"\xff\xfe", "//4="),
        ] {
            assert_eq!(written(|out| base64(out, bytes)), expected);
        }
    }

    #[test]
    fn instants() {
        for text in ["2022-05-06T00:34:41.820498Z", "9999-12-31T23:59:59.9999999Z"] {
            let time = TimeText::new(Timestamp::parse_iso(text).unwrap());
            assert_eq!(time.as_bytes(), text.as_bytes());
        }
    }
}
