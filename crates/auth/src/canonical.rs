//! The strings to sign of queues: verb, standard headers, every `x-ms-` header, and the resource with its parameters.

use crate::shared_key::push_comp;
use crate::{AuthError, Request, Scheme};

/// From this version on a length of zero is signed as if there were none.
const NO_ZERO_LENGTH: &str = "2015-02-21";
/// From this version on headers without a value are signed.
const EMPTY_HEADERS: &str = "2016-05-31";
/// The standard headers that are signed, in order; `date` stands where it belongs.
const SIGNED: [&str; 11] = [
    "content-encoding",
    "content-language",
    "content-length",
    "content-md5",
    "content-type",
    "date",
    "if-modified-since",
    "if-match",
    "if-none-match",
    "if-unmodified-since",
    "range",
];

/// What becomes of blanks inside the value of a header. The protocol reduces them; some clients do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blanks {
    /// Signed as they are.
    Kept,
    /// Each run outside quotes is signed as one.
    Reduced,
}

pub(crate) fn string_to_sign(
    scheme: Scheme,
    request: &Request<'_>,
    headers: &[(&str, &str)],
    path: &str,
    blanks: Blanks,
) -> Result<String, AuthError> {
    let find = |name: &str| {
        let mut found = headers.iter().filter(|(other, _)| other.eq_ignore_ascii_case(name));
        match (found.next(), found.next()) {
            (_, Some(_)) => Err(AuthError::RepeatedHeader),
            (found, None) => Ok(found.map_or("", |(_, value)| value.trim())),
        }
    };
    let version = find("x-ms-version")?;
    let dated = !find("x-ms-date")?.is_empty();
    let mut text = [request.method, "\n"].concat();
    let signed: &[&str] = match scheme {
        Scheme::SharedKey => &SIGNED,
        Scheme::SharedKeyLite => &["content-md5", "content-type", "date"],
    };
    for name in signed {
        let value = find(name)?;
        let empty = match *name {
            "date" => dated,
            "content-length" => value == "0" && (version.is_empty() || NO_ZERO_LENGTH <= version),
            _ => false,
        };
        text.push_str(if empty { "" } else { value });
        text.push('\n');
    }
    push_headers(&mut text, headers, version, blanks)?;
    text.extend(["/", request.account, path]);
    match scheme {
        Scheme::SharedKey => push_parameters(&mut text, request.query)?,
        Scheme::SharedKeyLite => push_comp(&mut text, request)?,
    }
    Ok(text)
}

/// Every `x-ms-` header, by name.
fn push_headers(
    text: &mut String,
    headers: &[(&str, &str)],
    version: &str,
    blanks: Blanks,
) -> Result<(), AuthError> {
    let lower = headers.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.trim()));
    let mut own: Vec<_> = lower.filter(|(name, _)| name.starts_with("x-ms-")).collect();
    own.sort();
    if own.windows(2).any(|pair| pair[0].0 == pair[1].0) {
        return Err(AuthError::RepeatedHeader);
    }
    let empties = version.is_empty() || EMPTY_HEADERS <= version;
    for (name, value) in own.iter().filter(|(_, value)| empties || !value.is_empty()) {
        text.extend([name.as_str(), ":"]);
        match blanks {
            Blanks::Kept => text.push_str(value),
            Blanks::Reduced => push_reduced(text, value),
        }
        text.push('\n');
    }
    Ok(())
}

fn push_reduced(text: &mut String, value: &str) {
    let (mut quoted, mut blank) = (false, false);
    for c in value.chars() {
        quoted ^= c == '"';
        let is_blank = matches!(c, ' ' | '\t') && !quoted;
        match (is_blank, blank) {
            (true, true) => {}
            (true, false) => text.push(' '),
            (false, _) => text.push(c),
        }
        blank = is_blank;
    }
}

/// Every parameter by name, values of one name sorted and with commas between them. The service takes names in any case of
/// ASCII and knows no other, so no others are folded.
///
/// Line breaks separate parameters: with one inside, a parameter could pass for two.
fn push_parameters(text: &mut String, query: &[(String, String)]) -> Result<(), AuthError> {
    if query.iter().any(|(name, value)| name.contains('\n') || value.contains('\n')) {
        return Err(AuthError::Failed("a parameter of the URL holds a line break"));
    }
    let lower = query.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.as_str()));
    let mut parameters: Vec<_> = lower.collect();
    parameters.sort();
    let mut last: Option<&str> = None;
    for (name, value) in &parameters {
        if last == Some(name) {
            text.extend([",", value]);
        } else {
            text.extend(["\n", name, ":", value]);
        }
        last = Some(name);
    }
    Ok(())
}
