//! Cuts the text of a filter into tokens.
//!
//! Never fails: what is no token becomes [`Kind::Bad`], and the parser complains when it gets there, so
//! that the first mistake from the left is the one reported. Whether a word is a keyword or the name
//! of a property is for the parser to say.

/// A piece of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token<'a> {
    /// What it is.
    pub(crate) kind: Kind,
    /// How it is written.
    pub(crate) text: &'a str,
    /// Offset of its end, in bytes.
    pub(crate) end: usize,
}

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A keyword or a name.
    Word,
    /// Text in quotes.
    Quoted,
    /// Text in quotes right after one of the words in [`PREFIXES`].
    Prefixed,
    /// Begins like a number; may still not be one.
    Number,
    /// `(`
    Open,
    /// `)`
    Close,
    /// `,`
    Comma,
    /// `/` or a minus sign before anything but a number: OData that is not offered.
    Foreign,
    /// No token of the language, or quotes that are not closed.
    Bad,
    /// After the last.
    End,
}

/// Words that make a literal of the quoted text that follows without a space, in any case.
const PREFIXES: [&str; 4] = ["datetime", "guid", "X", "binary"];

/// Every token of the text, the last being [`Kind::End`].
pub(crate) fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut at = 0;
    loop {
        let rest = text[at..].trim_start();
        at = text.len() - rest.len();
        let Some(first) = rest.chars().next() else {
            tokens.push(Token { kind: Kind::End, text: "", end: at });
            return tokens;
        };
        let (kind, len) = token(rest, first);
        at += len;
        tokens.push(Token { kind, text: &rest[..len], end: at });
    }
}

/// The kind and the length in bytes of the token that `rest` begins with.
fn token(rest: &str, first: char) -> (Kind, usize) {
    match first {
        '(' => (Kind::Open, 1),
        ')' => (Kind::Close, 1),
        '\'' => quoted(rest, Kind::Quoted),
        '0'..='9' => (Kind::Number, number_len(rest)),
        '-' => {
            let after = &rest[1..];
            if after.starts_with(|c: char| c.is_ascii_digit()) || &after[..word_len(after)] == "INF"
            {
                (Kind::Number, 1 + number_len(after))
            } else {
                (Kind::Foreign, 1)
            }
        }
        ',' => (Kind::Comma, 1),
        '/' => (Kind::Foreign, 1),
        c if c == '_' || c.is_alphabetic() => {
            let len = word_len(rest);
            let (word, after) = rest.split_at(len);
            if after.starts_with('\'') && PREFIXES.iter().any(|p| p.eq_ignore_ascii_case(word)) {
                let (kind, quoted_len) = quoted(after, Kind::Prefixed);
                (kind, len + quoted_len)
            } else {
                (Kind::Word, len)
            }
        }
        c => (Kind::Bad, c.len_utf8()),
    }
}

/// Text in quotes, in which a quote is doubled.
fn quoted(rest: &str, kind: Kind) -> (Kind, usize) {
    let mut at = 1;
    while let Some(found) = rest[at..].find('\'') {
        at += found + 1;
        if !rest[at..].starts_with('\'') {
            return (kind, at);
        }
        at += 1;
    }
    (Kind::Bad, rest.len())
}

/// Everything that could belong to a word; whether it is a legal name is checked by the parser.
fn word_len(rest: &str) -> usize {
    let part = |c: char| {
        c == '_' || c.is_alphanumeric() || (!c.is_ascii() && !c.is_whitespace() && !c.is_control())
    };
    rest.find(|c| !part(c)).unwrap_or(rest.len())
}

/// Everything that could belong to a number, with its exponent and suffix.
fn number_len(rest: &str) -> usize {
    let mut before = ' ';
    let end = rest.find(|c: char| {
        let sign_of_exponent = matches!(c, '+' | '-') && matches!(before, 'e' | 'E');
        before = c;
        !(c.is_ascii_alphanumeric() || c == '.' || sign_of_exponent)
    });
    end.unwrap_or(rest.len())
}

#[cfg(test)]
mod tests {
    use super::Kind::{Bad, Close, Comma, End, Foreign, Number, Open, Prefixed, Quoted, Word};
    use super::*;

    #[test]
    fn kinds_and_extents() {
        let cases: &[(&str, &[(Kind, &str)])] = &[
            ("", &[]),
            (" \t\r\n", &[]),
            ("a eq 1", &[(Word, "a"), (Word, "eq"), (Number, "1")]),
            (
                "(a)or(b)",
                &[
                    (Open, "("),
                    (Word, "a"),
                    (Close, ")"),
                    (Word, "or"),
                    (Open, "("),
                    (Word, "b"),
                    (Close, ")"),
                ],
            ),
            ("'O''Brien' ''", &[(Quoted, "'O''Brien'"), (Quoted, "''")]),
            ("'''' '", &[(Quoted, "''''"), (Bad, "'")]),
            ("1'invalid'", &[(Number, "1"), (Quoted, "'invalid'")]),
            (
                "X'00' x'ff' GUID'' binary'",
                &[(Prefixed, "X'00'"), (Prefixed, "x'ff'"), (Prefixed, "GUID''"), (Bad, "binary'")],
            ),
            ("datetime 'a'", &[(Word, "datetime"), (Quoted, "'a'")]),
            ("time'a'", &[(Word, "time"), (Quoted, "'a'")]),
            (
                "-1 -1.5e-3D -INF 1e+5 1+1",
                &[
                    (Number, "-1"),
                    (Number, "-1.5e-3D"),
                    (Number, "-INF"),
                    (Number, "1e+5"),
                    (Number, "1"),
                    (Bad, "+"),
                    (Number, "1"),
                ],
            ),
            (
                "-x -INFx - a/b,",
                &[
                    (Foreign, "-"),
                    (Word, "x"),
                    (Foreign, "-"),
                    (Word, "INFx"),
                    (Foreign, "-"),
                    (Word, "a"),
                    (Foreign, "/"),
                    (Word, "b"),
                    (Comma, ","),
                ],
            ),
            ("größe_1 😀 a😀", &[(Word, "größe_1"), (Bad, "😀"), (Word, "a😀")]),
            ("a=\"b\"", &[(Word, "a"), (Bad, "="), (Bad, "\""), (Word, "b"), (Bad, "\"")]),
        ];
        for (text, expected) in cases {
            let mut found: Vec<_> = tokens(text).iter().map(|t| (t.kind, t.text)).collect();
            assert_eq!(found.pop(), Some((End, "")), "{text}");
            assert_eq!(found, *expected, "{text}");
        }
    }
}
