//! Writes JSON straight into the bytes of an answer, without blanks.

use super::scan;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rowhouse_types::{Corrupt, EdmType};
use std::str::Utf8Error;

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
    let mut done = 0;
    loop {
        let special = scan::special(bytes, done);
        out.extend_from_slice(&bytes[done..special]);
        let Some(&byte) = bytes.get(special) else { return };
        done = special + 1;
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
}

/// Writes stored text as it stands between quotes; checks that it is text.
pub(crate) fn escaped_bytes(out: &mut Vec<u8>, bytes: &[u8]) -> Result<(), Utf8Error> {
    if scan::special_or_foreign(bytes) == bytes.len() {
        out.extend_from_slice(bytes);
    } else {
        escaped(out, std::str::from_utf8(bytes)?);
    }
    Ok(())
}

/// A length that text does not exceed between quotes; every byte is looked at alike, several at a time.
pub(crate) fn escaped_most(bytes: &[u8]) -> usize {
    const LONG: u8 = 5;
    const CHUNK: usize = 32;
    const { assert!(CHUNK * (LONG as usize) <= u8::MAX as usize, "what a chunk adds fits") }
    let added =
        |byte: u8| LONG * u8::from(byte < 0x20) + u8::from(byte == b'"') + u8::from(byte == b'\\');
    let chunks = bytes.chunks(CHUNK).map(|chunk| chunk.iter().map(|&byte| added(byte)).sum::<u8>());
    bytes.len() + chunks.map(usize::from).sum::<usize>()
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

/// What tells a type, from behind the name of the property to the start of the next member's name.
fn annotation(edm_type: EdmType) -> &'static str {
    match edm_type {
        EdmType::String => "@odata.type\":\"Edm.String\",\"",
        EdmType::Int32 => "@odata.type\":\"Edm.Int32\",\"",
        EdmType::Int64 => "@odata.type\":\"Edm.Int64\",\"",
        EdmType::Double => "@odata.type\":\"Edm.Double\",\"",
        EdmType::Boolean => "@odata.type\":\"Edm.Boolean\",\"",
        EdmType::DateTime => "@odata.type\":\"Edm.DateTime\",\"",
        EdmType::Guid => "@odata.type\":\"Edm.Guid\",\"",
        EdmType::Binary => "@odata.type\":\"Edm.Binary\",\"",
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

    /// Writes the name of the next member as it is stored, after a member that tells its type if one is
    /// given; its value is the caller's.
    pub(crate) fn stored_name(
        &mut self,
        name: &[u8],
        edm_type: Option<EdmType>,
    ) -> Result<(), Corrupt> {
        let out = &mut *self.out;
        out.extend_from_slice(if std::mem::take(&mut self.empty) { b"\"" } else { b",\"" });
        let start = out.len();
        escaped_bytes(out, name).map_err(|_| Corrupt::NAME)?;
        if let Some(edm_type) = edm_type {
            let name = start..out.len();
            out.extend_from_slice(annotation(edm_type).as_bytes());
            out.extend_from_within(name);
        }
        out.extend_from_slice(b"\":");
        Ok(())
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
            assert!(expected.len() - 2 <= escaped_most(text.as_bytes()), "{text:?}");
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
    fn annotations() {
        for edm_type in (1..).map_while(EdmType::from_tag) {
            let expected = format!("@odata.type\":\"{}\",\"", edm_type.name());
            assert_eq!(annotation(edm_type), expected);
        }
    }
}
