//! The spellings of a path that a client may have signed.
//!
//! The signature is over the path as the client saw it, which is nearly always the path as received. Two
//! kinds of client differ in a known way, and a signature over their spelling is accepted too: those that
//! drop `-secondary` from a path-style address before signing, and those whose URL library rewrites
//! percent-escapes before signing but not before sending. Each spelling names the same resource.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::iter;

/// The path as received, then the others that differ from it. Nothing is computed before it is asked for.
pub(crate) fn spellings<'a>(account: &str, raw: &'a str) -> impl Iterator<Item = Cow<'a, str>> {
    let sent = iter::once(Cow::Borrowed(raw)).chain(primary(account, raw));
    let requoted = sent.clone().filter_map(|path| {
        let requoted = requote(&path);
        (requoted != *path).then_some(Cow::Owned(requoted))
    });
    sent.chain(requoted)
}

/// The path at the primary endpoint, if this one is at `/account-secondary`.
fn primary<'a>(account: &str, raw: &str) -> Option<Cow<'a, str>> {
    let rest = raw.strip_prefix('/')?.strip_prefix(account)?.strip_prefix("-secondary")?;
    (rest.is_empty() || rest.starts_with('/')).then(|| Cow::Owned(format!("/{account}{rest}")))
}

/// Decodes what need not be encoded in a path and encodes everything else, with upper-case digits.
/// An escaped `/` or `+` stays escaped: decoded it would mean something else.
fn requote(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let [byte, tail @ ..] = rest {
        let escape = match rest {
            [b'%', high, low, ..] => hex(*high).zip(hex(*low)).map(|(high, low)| high * 16 + low),
            _ => None,
        };
        let (byte, plain) = if let Some(escaped) = escape {
            rest = &rest[3..];
            (escaped, is_plain(escaped) && !matches!(escaped, b'/' | b'+'))
        } else {
            rest = tail;
            (*byte, is_plain(*byte))
        };
        if plain {
            out.push(char::from(byte));
        } else {
            write!(out, "%{byte:02X}").expect("writing to a String cannot fail");
        }
    }
    out
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| value.try_into().ok())
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$'()*,+&=;@:/".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_spellings() {
        let cases: &[(&str, &[&str])] = &[
            ("/acct/Tables", &["/acct/Tables"]),
            ("/acct-secondary/Tables", &["/acct-secondary/Tables", "/acct/Tables"]),
            ("/acct-secondary", &["/acct-secondary", "/acct"]),
            ("/acct-secondaryx/Tables", &["/acct-secondaryx/Tables"]),
            (
                "/t(PartitionKey=%27a%2fb%27)",
                &["/t(PartitionKey=%27a%2fb%27)", "/t(PartitionKey='a%2Fb')"],
            ),
            ("/t(PartitionKey='%C3%A9%20%2B+')", &["/t(PartitionKey='%C3%A9%20%2B+')"]),
            (
                "/t('!$&*,;=:@~[]{}|^`%7E%24')",
                &["/t('!$&*,;=:@~[]{}|^`%7E%24')", "/t('!$&*,;=:@~%5B%5D%7B%7D%7C%5E%60~$')"],
            ),
            ("/t('%zz%')", &["/t('%zz%')", "/t('%25zz%25')"]),
            (
                "/acct-secondary/t%28%29",
                &["/acct-secondary/t%28%29", "/acct/t%28%29", "/acct-secondary/t()", "/acct/t()"],
            ),
        ];
        for (raw, expected) in cases {
            let found: Vec<_> = spellings("acct", raw).collect();
            assert_eq!(&found, expected, "{raw}");
        }
    }

    proptest! {
        #[test]
        fn requoting_settles(path in "[/a%20-9A-F'é\u{1F600} ]{0,12}") {
            let once = requote(&path);
            prop_assert_eq!(requote(&once), once);
        }
    }
}
