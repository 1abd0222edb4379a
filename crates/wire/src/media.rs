//! How much metadata an answer carries, and whether an insert answers with what it inserted.

use crate::params;

/// How much metadata JSON carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Metadata {
    /// Values alone.
    None,
    /// ETags, and the types that JSON cannot show.
    #[default]
    Minimal,
    /// Addresses and the name of the set as well.
    Full,
}

/// Why there is no form in which to answer. Each has an error code of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MediaError {
    /// Atom, which versions from 2015-12-11 on refuse and this server does at every version.
    #[error("Atom is not supported")]
    Atom,
    /// JSON of OData 2.
    #[error("verbose JSON is not supported")]
    JsonVerbose,
    /// Anything else.
    #[error("none of the media types is supported")]
    Unsupported,
}

/// Decides on the form of the answer from the `Accept` header and the `$format` option.
///
/// `$format` wins over `Accept`; in a list the first acceptable type wins, whatever its weight.
/// Neither given means minimal metadata.
pub fn negotiate(accept: Option<&str>, format: Option<&str>) -> Result<Metadata, MediaError> {
    match format.map(str::trim) {
        Some(short) if short.eq_ignore_ascii_case("json") => return Ok(Metadata::Minimal),
        Some(short) if short.eq_ignore_ascii_case("atom") => return Err(MediaError::Atom),
        _ => {}
    }
    let wanted = format.or(accept).map_or("", str::trim);
    if wanted.is_empty() {
        return Ok(Metadata::Minimal);
    }
    if let Some(level) = usual(wanted) {
        return Ok(level);
    }
    let mut refused = MediaError::Unsupported;
    for range in params::split(wanted, ',') {
        match media_range(range) {
            Ok(level) => return Ok(level),
            Err(MediaError::Unsupported) => {}
            Err(error) if refused == MediaError::Unsupported => refused = error,
            Err(_) => {}
        }
    }
    Err(refused)
}

/// The level of the spellings that SDKs send: nearly every request has one of them.
fn usual(accept: &str) -> Option<Metadata> {
    Some(match accept {
        "application/json;odata=minimalmetadata" | "application/json" => Metadata::Minimal,
        "application/json;odata=nometadata" => Metadata::None,
        "application/json;odata=fullmetadata" => Metadata::Full,
        _ => return None,
    })
}

/// Whether a body of this `Content-Type` is JSON: any metadata level will do.
pub fn check_json(content_type: &str) -> Result<(), MediaError> {
    match content_type.trim() {
        "" => Ok(()),
        kind if usual(kind).is_some() => Ok(()),
        kind => media_range(kind).map(drop),
    }
}

fn media_range(range: &str) -> Result<Metadata, MediaError> {
    let media_type = params::split(range, ';').next().unwrap_or("");
    let is = |name: &str| media_type.eq_ignore_ascii_case(name);
    if is("application/atom+xml") {
        return Err(MediaError::Atom);
    }
    if !is("application/json") && !is("*/*") && !is("application/*") {
        return Err(MediaError::Unsupported);
    }
    let levels = [
        ("nometadata", Ok(Metadata::None)),
        ("minimalmetadata", Ok(Metadata::Minimal)),
        ("fullmetadata", Ok(Metadata::Full)),
        ("verbose", Err(MediaError::JsonVerbose)),
    ];
    match params::value(range, "odata") {
        None => Ok(Metadata::Minimal),
        Some(level) => levels
            .into_iter()
            .find(|(name, _)| level.eq_ignore_ascii_case(name))
            .map_or(Err(MediaError::Unsupported), |(_, result)| result),
    }
}

/// The `Content-Type` of JSON at this level.
pub fn content_type(level: Metadata) -> &'static str {
    match level {
        Metadata::None => "application/json;odata=nometadata;streaming=true;charset=utf-8",
        Metadata::Minimal => "application/json;odata=minimalmetadata;streaming=true;charset=utf-8",
        Metadata::Full => "application/json;odata=fullmetadata;streaming=true;charset=utf-8",
    }
}

/// Whether an insert answers with what it inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Prefer {
    /// `return-content`
    Content,
    /// `return-no-content`
    NoContent,
}

impl Prefer {
    /// The preference as `Preference-Applied` repeats it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Content => "return-content",
            Self::NoContent => "return-no-content",
        }
    }
}

/// The first preference in a `Prefer` header that means something here.
pub fn prefer(header: &str) -> Option<Prefer> {
    let known = |piece: &str| {
        [Prefer::Content, Prefer::NoContent]
            .into_iter()
            .find(|preference| piece.eq_ignore_ascii_case(preference.as_str()))
    };
    // Nearly every header is one preference and nothing else.
    known(header).or_else(|| params::split(header, ',').find_map(known))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn negotiation() {
        use MediaError::{Atom, JsonVerbose, Unsupported};
        use Metadata::{Full, Minimal, None as Bare};
        let cases = [
            (None, None, Ok(Minimal)),
            (Some(""), None, Ok(Minimal)),
            (Some("*/*"), None, Ok(Minimal)),
            (Some("application/json"), None, Ok(Minimal)),
            (Some("application/json;odata=nometadata"), None, Ok(Bare)),
            (Some("application/json; odata=minimalmetadata"), None, Ok(Minimal)),
            (Some("application/json ; ODATA = FullMetadata ; q=0.5"), None, Ok(Full)),
            (Some("application/json;odata=\"nometadata\""), None, Ok(Bare)),
            (Some("application/atom+xml,application/json;odata=nometadata"), None, Ok(Bare)),
            (Some("text/html, application/xml;q=0.9, */*;q=0.8"), None, Ok(Minimal)),
            (Some("application/atom+xml,application/xml"), None, Err(Atom)),
            (Some("application/atom+xml"), None, Err(Atom)),
            (Some("application/json;odata=verbose"), None, Err(JsonVerbose)),
            (Some("application/json;odata=other"), None, Err(Unsupported)),
            (Some("text/plain"), None, Err(Unsupported)),
            (Some("application/xml"), None, Err(Unsupported)),
            (Some("application/atom+xml"), Some("json"), Ok(Minimal)),
            (Some("text/plain"), Some("application/json;odata=fullmetadata"), Ok(Full)),
            (Some("application/json"), Some("atom"), Err(Atom)),
            (None, Some("xml"), Err(Unsupported)),
        ];
        for (accept, format, expected) in cases {
            assert_eq!(negotiate(accept, format), expected, "{accept:?} {format:?}");
        }
    }

    #[test]
    fn preferences() {
        let cases = [
            ("return-content", Some(Prefer::Content)),
            (" return-no-content ", Some(Prefer::NoContent)),
            ("wait=10, return-no-content", Some(Prefer::NoContent)),
            ("return=minimal", None),
            ("", None),
        ];
        for (header, expected) in cases {
            assert_eq!(prefer(header), expected, "{header}");
        }
    }

    /// The short cut says what the parser would say.
    #[test]
    fn usual_spellings_are_no_exception() {
        for level in ["", ";odata=minimalmetadata", ";odata=nometadata", ";odata=fullmetadata"] {
            let text = format!("application/json{level}");
            assert_eq!(usual(&text), media_range(&text).ok(), "{text}");
        }
        for text in ["", "*/*", "application/json;odata=verbose", "text/plain"] {
            assert_eq!(usual(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_answered(text in "\\PC{0,40}|[a-z/;=,\" *]{0,40}") {
            let _ = negotiate(Some(&text), None);
            let _ = negotiate(None, Some(&text));
            let _ = prefer(&text);
        }
    }
}
