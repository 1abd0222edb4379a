//! What all shared access signatures have in common: their parameters in the URL.

use crate::AuthError;
use rowhouse_types::Timestamp;

/// Every parameter that a signature of an account or a table may have.
const NAMES: [&str; 16] = [
    "sv", "ss", "srt", "sp", "st", "se", "sip", "spr", "ses", "si", "tn", "spk", "srk", "epk",
    "erk", "sig",
];

/// From this version on the name of the service is part of the signed resource.
pub(crate) const NAMED_SERVICE: &str = "2015-02-21";
/// From this version on addresses and protocols can be restricted, and accounts have signatures.
pub(crate) const RESTRICTIONS: &str = "2015-04-05";
/// From this version on the encryption scope is signed in account signatures.
pub(crate) const ENCRYPTION_SCOPE: &str = "2020-12-06";
/// The first version whose form of table signatures is known.
pub(crate) const FIRST: &str = "2012-02-12";

/// The decoded parameters of a URL in which no signed one is repeated or holds a line break.
///
/// The string to sign separates its fields by line breaks: with one inside a field, two different sets
/// of fields would have the same signature.
pub(crate) struct Parameters<'a>(&'a [(String, String)]);

impl<'a> Parameters<'a> {
    pub(crate) fn new(query: &'a [(String, String)]) -> Result<Self, AuthError> {
        for name in NAMES {
            let mut found = query.iter().filter(|(other, _)| other == name);
            if found.next().is_some_and(|(_, value)| value.contains('\n')) {
                return Err(AuthError::Failed("a parameter of the signature holds a line break"));
            }
            if found.next().is_some() {
                return Err(AuthError::Failed("a parameter of the signature is repeated"));
            }
        }
        Ok(Self(query))
    }

    pub(crate) fn get(&self, name: &str) -> Option<&'a str> {
        self.0.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// The value, empty if the parameter is absent: a signature cannot tell the two apart.
    pub(crate) fn text(&self, name: &str) -> String {
        self.get(name).unwrap_or_default().to_owned()
    }
}

/// Checks that the version is a date. Later ones than we know have the newest form that we know.
pub(crate) fn check_version(version: &str, first: &str) -> Result<(), AuthError> {
    // Dates of equal length compare as text.
    if version.len() != first.len() || Timestamp::parse_date_or_iso(version).is_err() {
        return Err(AuthError::Failed("the signed version is not a date"));
    }
    if version < first {
        return Err(AuthError::Failed("the signed version has no such signatures"));
    }
    Ok(())
}

/// A time, or none if the field is empty.
pub(crate) fn parse_time(text: &str) -> Result<Option<Timestamp>, AuthError> {
    if text.is_empty() {
        return Ok(None);
    }
    let time = Timestamp::parse_date_or_iso(text);
    time.map(Some).map_err(|_| AuthError::Failed("the start or expiry is not a time"))
}
