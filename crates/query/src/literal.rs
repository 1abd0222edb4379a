//! Turns the text of a literal into a value.
//!
//! Every function answers `None` for what is no literal of its kind, however strange the text.

use rowhouse_types::{Guid, Timestamp, Value};

/// The text between the quotes, doubled quotes made one. `token` has both its quotes.
pub(crate) fn text(token: &str) -> Box<str> {
    let inner = &token[1..token.len() - 1];
    if inner.contains('\'') { inner.replace("''", "'").into() } else { inner.into() }
}

/// A literal with a type in front of the quotes. The case of the type does not matter.
pub(crate) fn prefixed(token: &str) -> Option<Value> {
    let (prefix, quoted) = token.split_at(token.find('\'')?);
    let inner = text(quoted);
    if prefix.eq_ignore_ascii_case("datetime") {
        Timestamp::parse_date_or_iso(&inner).ok().map(Value::DateTime)
    } else if prefix.eq_ignore_ascii_case("guid") {
        Guid::parse(&inner).map(Value::Guid)
    } else {
        hexadecimal(&inner).map(Value::Binary)
    }
}

/// A number: Int32 by default, Int64 when it needs to be or says `L`, Double with a fraction, an
/// exponent or one of the suffixes of the floating and decimal types.
pub(crate) fn number(token: &str) -> Option<Value> {
    if token == "-INF" {
        return Some(Value::Double(f64::NEG_INFINITY));
    }
    let digits_end = token.trim_end_matches(|c: char| c.is_ascii_alphabetic()).len();
    let (body, suffix) = token.split_at(digits_end);
    let whole = whole(body)?;
    let double = || body.parse().ok().filter(|n: &f64| n.is_finite()).map(Value::Double);
    match suffix {
        "" if whole => match body.parse() {
            Ok(n) => Some(Value::Int32(n)),
            Err(_) => body.parse().ok().map(Value::Int64),
        },
        "L" | "l" if whole => body.parse().ok().map(Value::Int64),
        "" | "D" | "d" | "F" | "f" | "M" | "m" => double(),
        _ => None,
    }
}

/// The numbers that are spelled as words.
pub(crate) fn special_double(word: &str) -> Option<Value> {
    match word {
        "NaN" => Some(Value::Double(f64::NAN)),
        "INF" => Some(Value::Double(f64::INFINITY)),
        _ => None,
    }
}

/// True for an integer, false for a number with a fraction or an exponent.
fn whole(body: &str) -> Option<bool> {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let unsigned = body.strip_prefix('-').unwrap_or(body);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (unsigned, None),
    };
    let (integer, fraction) = match mantissa.split_once('.') {
        Some((integer, fraction)) => (integer, Some(fraction)),
        None => (mantissa, None),
    };
    let legal = digits(integer)
        && fraction.is_none_or(digits)
        && exponent.is_none_or(|e| digits(e.strip_prefix(['+', '-']).unwrap_or(e)));
    legal.then_some(fraction.is_none() && exponent.is_none())
}

fn hexadecimal(text: &str) -> Option<Box<[u8]>> {
    if !text.len().is_multiple_of(2) {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|d| u8::try_from(d).ok());
    text.as_bytes()
        .chunks_exact(2)
        .map(|pair| Some(digit(pair[0])? * 16 + digit(pair[1])?))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        let cases = [
            ("0", Some(Value::Int32(0))),
            ("-0", Some(Value::Int32(0))),
            ("007", Some(Value::Int32(7))),
            ("2147483647", Some(Value::Int32(i32::MAX))),
            ("-2147483648", Some(Value::Int32(i32::MIN))),
            ("2147483648", Some(Value::Int64(2_147_483_648))),
            ("-2147483649", Some(Value::Int64(-2_147_483_649))),
            ("3L", Some(Value::Int64(3))),
            ("-3l", Some(Value::Int64(-3))),
            ("9223372036854775807L", Some(Value::Int64(i64::MAX))),
            ("-9223372036854775808", Some(Value::Int64(i64::MIN))),
            ("9223372036854775808", None),
            ("9223372036854775808L", None),
            ("4.1", Some(Value::Double(4.1))),
            ("1e3", Some(Value::Double(1000.0))),
            ("-1.5E-1", Some(Value::Double(-0.15))),
            ("1e+2", Some(Value::Double(100.0))),
            ("5D", Some(Value::Double(5.0))),
            ("5d", Some(Value::Double(5.0))),
            ("5F", Some(Value::Double(5.0))),
            ("5.25m", Some(Value::Double(5.25))),
            ("9223372036854775808D", Some(Value::Double(9_223_372_036_854_775_808.0))),
            ("-INF", Some(Value::Double(f64::NEG_INFINITY))),
            ("1e999", None),
            ("1.5L", None),
            ("1e3L", None),
            ("5.", None),
            ("5.e1", None),
            ("1.2.3", None),
            ("1e", None),
            ("1e1.5", None),
            ("0x1F", None),
            ("5LL", None),
            ("5or", None),
            ("-", None),
            ("", None),
        ];
        for (text, expected) in cases {
            assert_eq!(number(text), expected, "{text}");
        }
    }

    #[test]
    fn prefixed_literals() {
        let instant = |text| Timestamp::parse_iso(text).ok().map(Value::DateTime);
        let guid = Guid::parse("a455c695-df98-5678-aaaa-81d3367e5a34").map(Value::Guid);
        let binary = |bytes: &[u8]| Some(Value::Binary(bytes.into()));
        let cases = [
            ("datetime'2008-07-10T00:00:00Z'", instant("2008-07-10T00:00:00Z")),
            ("datetime'2008-07-10T00:00:00.1234567Z'", instant("2008-07-10T00:00:00.1234567Z")),
            ("DateTime'2008-07-10T02:00:00+02:00'", instant("2008-07-10T00:00:00Z")),
            ("datetime'2008-07-10'", instant("2008-07-10T00:00:00Z")),
            ("datetime'2008-13-10T00:00:00Z'", None),
            ("datetime''", None),
            ("guid'a455c695-df98-5678-aaaa-81d3367e5a34'", guid.clone()),
            ("GUID'A455C695-DF98-5678-AAAA-81D3367E5A34'", guid),
            ("guid'a455c695'", None),
            ("X'62696e'", binary(b"bin")),
            ("x'FFff'", binary(&[255, 255])),
            ("binary'00'", binary(&[0])),
            ("X''", binary(&[])),
            ("X'0'", None),
            ("X'0g'", None),
            ("X'é'", None),
            ("binary'''0'", None),
        ];
        for (text, expected) in cases {
            assert_eq!(prefixed(text), expected, "{text}");
        }
    }

    #[test]
    fn quotes() {
        for (token, expected) in
            [("''", ""), ("'a'", "a"), ("'O''Brien'", "O'Brien"), ("''''", "'")]
        {
            assert_eq!(&*text(token), expected, "{token}");
        }
    }
}
