//! Reads one flat JSON object, member by member, keeping numbers as they were written.
//!
//! Strings without escapes stay where they are in the body; the others are unescaped into one buffer.
//! Arrays and objects as values are refused where they start, so depth costs nothing.

use super::scan;
use std::ops::Range;

/// The body is not a flat JSON object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// A string of the body; [`Reader::resolve`] has its text.
#[derive(Clone, Debug)]
pub(crate) enum Text<'a> {
    /// As it stands in the body.
    Plain(&'a str),
    /// Within the buffer of unescaped strings.
    Unescaped(Range<usize>),
}

impl Text<'_> {
    /// Keeps so many bytes from the start.
    pub(crate) fn truncate(&mut self, len: usize) {
        match self {
            Self::Plain(text) => *text = &text[..len],
            Self::Unescaped(range) => range.end = range.start + len,
        }
    }
}

/// A value that is neither array nor object.
#[derive(Clone, Debug)]
pub(crate) enum Scalar<'a> {
    /// A string.
    Text(Text<'a>),
    /// A number in the grammar of JSON, as written.
    Number(&'a str),
    /// `true` or `false`.
    Bool(bool),
    /// `null`
    Null,
}

/// Where reading has come to.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    body: &'a str,
    at: usize,
    started: bool,
    unescaped: String,
}

impl<'a> Reader<'a> {
    /// Starts on a whole body.
    pub(crate) fn new(body: &'a [u8]) -> Result<Self, Malformed> {
        let body = std::str::from_utf8(body).map_err(|_| Malformed)?;
        let mut this = Self { body, at: 0, started: false, unescaped: String::new() };
        this.blank();
        this.expect(b'{')?;
        Ok(this)
    }

    /// The next member; nothing once the object and the body are at their end.
    pub(crate) fn member(&mut self) -> Result<Option<(Text<'a>, Scalar<'a>)>, Malformed> {
        self.blank();
        if self.peek() == Some(b'}') {
            self.at += 1;
            self.blank();
            return if self.at == self.body.len() { Ok(None) } else { Err(Malformed) };
        }
        if self.started {
            self.expect(b',')?;
            self.blank();
        }
        self.started = true;
        let name = self.string()?;
        self.blank();
        self.expect(b':')?;
        self.blank();
        let value = match self.peek().ok_or(Malformed)? {
            b'"' => Scalar::Text(self.string()?),
            b'-' | b'0'..=b'9' => Scalar::Number(self.number()?),
            b't' => self.word("true", Scalar::Bool(true))?,
            b'f' => self.word("false", Scalar::Bool(false))?,
            b'n' => self.word("null", Scalar::Null)?,
            _ => return Err(Malformed),
        };
        Ok(Some((name, value)))
    }

    /// The text of a string that this reader returned.
    pub(crate) fn resolve<'t>(&'t self, text: &Text<'t>) -> &'t str {
        match text {
            Text::Plain(text) => text,
            Text::Unescaped(range) => &self.unescaped[range.clone()],
        }
    }

    fn peek(&self) -> Option<u8> {
        self.body.as_bytes().get(self.at).copied()
    }

    fn blank(&mut self) {
        while let Some(b' ' | b'\t' | b'\r' | b'\n') = self.peek() {
            self.at += 1;
        }
    }

    fn expect(&mut self, byte: u8) -> Result<(), Malformed> {
        if self.peek() != Some(byte) {
            return Err(Malformed);
        }
        self.at += 1;
        Ok(())
    }

    fn word(&mut self, word: &str, value: Scalar<'a>) -> Result<Scalar<'a>, Malformed> {
        if !self.body[self.at..].starts_with(word) {
            return Err(Malformed);
        }
        self.at += word.len();
        Ok(value)
    }

    fn number(&mut self) -> Result<&'a str, Malformed> {
        let rest = &self.body[self.at..];
        let len = number_len(rest).ok_or(Malformed)?;
        self.at += len;
        Ok(&rest[..len])
    }

    fn string(&mut self) -> Result<Text<'a>, Malformed> {
        self.expect(b'"')?;
        let start = self.at;
        self.plain_run();
        if self.peek() == Some(b'"') {
            self.at += 1;
            return Ok(Text::Plain(&self.body[start..self.at - 1]));
        }
        let buffer_start = self.unescaped.len();
        self.unescaped.push_str(&self.body[start..self.at]);
        loop {
            match self.peek() {
                Some(b'"') => break,
                Some(b'\\') => {
                    self.at += 1;
                    let c = self.escape()?;
                    self.unescaped.push(c);
                }
                _ => return Err(Malformed),
            }
            let run = self.at;
            self.plain_run();
            self.unescaped.push_str(&self.body[run..self.at]);
        }
        self.at += 1;
        Ok(Text::Unescaped(buffer_start..self.unescaped.len()))
    }

    /// Skips to the next quote, backslash or control character, or to the end.
    fn plain_run(&mut self) {
        self.at = scan::special(self.body.as_bytes(), self.at);
    }

    fn escape(&mut self) -> Result<char, Malformed> {
        let byte = self.peek().ok_or(Malformed)?;
        self.at += 1;
        Ok(match byte {
            b'"' | b'\\' | b'/' => char::from(byte),
            b'b' => '\u{8}',
            b'f' => '\u{C}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let unit = self.hex4()?;
                let second = match unit {
                    0xD800..0xDC00 if self.body[self.at..].starts_with("\\u") => {
                        self.at += 2;
                        Some(self.hex4()?)
                    }
                    _ => None,
                };
                // Fails for half a pair, alone or with something else after it.
                let mut decoded = char::decode_utf16([unit].into_iter().chain(second));
                decoded.next().and_then(Result::ok).ok_or(Malformed)?
            }
            _ => return Err(Malformed),
        })
    }

    fn hex4(&mut self) -> Result<u16, Malformed> {
        let digits = self.body.as_bytes().get(self.at..self.at + 4).ok_or(Malformed)?;
        let mut unit = 0;
        for digit in digits {
            let digit = char::from(*digit).to_digit(16).ok_or(Malformed)?;
            unit = unit * 16 + digit;
        }
        self.at += 4;
        Ok(u16::try_from(unit).expect("four hexadecimal digits make a unit"))
    }
}

/// Length of the JSON number at the start of the text.
pub(crate) fn number_len(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let digits = |at: usize| bytes[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let mut at = usize::from(bytes.first() == Some(&b'-'));
    let whole = digits(at);
    if whole == 0 || whole > 1 && bytes[at] == b'0' {
        return None;
    }
    at += whole;
    if bytes.get(at) == Some(&b'.') {
        let fraction = digits(at + 1);
        if fraction == 0 {
            return None;
        }
        at += 1 + fraction;
    }
    if let Some(b'e' | b'E') = bytes.get(at) {
        at += 1;
        if let Some(b'+' | b'-') = bytes.get(at) {
            at += 1;
        }
        let exponent = digits(at);
        if exponent == 0 {
            return None;
        }
        at += exponent;
    }
    Some(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(body: &[u8]) -> Result<Vec<(String, String)>, Malformed> {
        let mut reader = Reader::new(body)?;
        let mut members = Vec::new();
        while let Some((name, value)) = reader.member()? {
            let value = match value {
                Scalar::Text(text) => format!("'{}'", reader.resolve(&text)),
                Scalar::Number(number) => number.to_owned(),
                Scalar::Bool(value) => value.to_string(),
                Scalar::Null => "null".to_owned(),
            };
            members.push((reader.resolve(&name).to_owned(), value));
        }
        Ok(members)
    }

    #[test]
    fn flat_objects() {
        let cases: &[(&str, &[(&str, &str)])] = &[
            ("{}", &[]),
            (" {\r\n}\t", &[]),
            (r#"{"a":1}"#, &[("a", "1")]),
            (
                r#" { "a" : -0.50e+3 , "b":null,"c":true ,"d":false} "#,
                &[("a", "-0.50e+3"), ("b", "null"), ("c", "true"), ("d", "false")],
            ),
            (r#"{"a\u0062":"\"\\\/\b\f\n\r\t"}"#, &[("ab", "'\"\\/\u{8}\u{C}\n\r\t'")]),
            (r#"{"e":"x\u00e9y\ud83d\ude00z"}"#, &[("e", "'xéy😀z'")]),
            ("{\"e\":\"é😀\u{7f}\"}", &[("e", "'é😀\u{7f}'")]),
            (r#"{"a":"","":""}"#, &[("a", "''"), ("", "''")]),
        ];
        for (body, expected) in cases {
            let members = read(body.as_bytes()).unwrap();
            let members: Vec<_> = members.iter().map(|(n, v)| (&**n, &**v)).collect();
            assert_eq!(members, *expected, "{body}");
        }
    }

    #[test]
    fn what_is_malformed() {
        let cases = [
            "",
            " ",
            "null",
            "[]",
            "1",
            "{",
            "}",
            "{}{}",
            "{}x",
            "{,}",
            r#"{"a"}"#,
            r#"{"a":}"#,
            r#"{"a":1,}"#,
            r#"{"a":1 "b":2}"#,
            "{a:1}",
            "{'a':1}",
            r#"{"a":[]}"#,
            r#"{"a":{}}"#,
            r#"{"a":01}"#,
            r#"{"a":1.}"#,
            r#"{"a":.5}"#,
            r#"{"a":+1}"#,
            r#"{"a":1e}"#,
            r#"{"a":-}"#,
            r#"{"a":NaN}"#,
            r#"{"a":0x1}"#,
            r#"{"a":tru}"#,
            r#"{"a":nul}"#,
            r#"{"a":truee}"#,
            r#"{"a":"x}"#,
            r#"{"a":"\x"}"#,
            r#"{"a":"\u12"}"#,
            r#"{"a":"\u12g4"}"#,
            r#"{"a":"\ud83d"}"#,
            r#"{"a":"\ude00"}"#,
            r#"{"a":"\ud83d\ud83d"}"#,
            r#"{"a":"\ud83dx"}"#,
            r#"{"a":"\u+123"}"#,
            "{\"a\":\"\n\"}",
            "{\"a\":\"\0\"}",
            "\u{FEFF}{}",
            r#"{"a":"\"#,
            r#"{"a":"\ud83d\u"#,
        ];
        for body in cases {
            assert_eq!(read(body.as_bytes()), Err(Malformed), "{body}");
        }
        assert_eq!(read(b"{\"a\":\"\xFF\"}"), Err(Malformed));
        assert_eq!(read(b"{\"a\":\"\xED\xA0\x80\"}"), Err(Malformed), "half a pair as UTF-8");
        let nested = format!("{{\"a\":{}", "[".repeat(1 << 20));
        assert_eq!(read(nested.as_bytes()), Err(Malformed));
    }

    proptest! {
        #[test]
        fn any_bytes_are_answered(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = read(&bytes);
        }

        #[test]
        fn any_text_is_answered(text in r#"\{("[a\\u0dDc/é]{0,8}"[:,]|[-0-9.eE,"\\ ]){0,6}\}?"#) {
            let _ = read(text.as_bytes());
        }
    }
}
