//! Shared Key and Shared Key Lite: a signature over one request in the `Authorization` header.
//!
//! The strings to sign of the Table service are here, the same in every version of the protocol; those of queues are in
//! [`crate::canonical`].

use crate::canonical::{self, Blanks};
use crate::mac::Signature;
use crate::path::spellings;
use crate::{AuthError, Request, Service};
use rowhouse_types::Timestamp;

/// Which string is signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// Verb, content digest, content type, date and resource.
    SharedKey,
    /// Date and resource.
    SharedKeyLite,
}

/// A signature of one request, not yet verified.
#[derive(Clone, Debug)]
pub struct SharedKey {
    scheme: Scheme,
    account: Box<str>,
    signature: Signature,
}

impl SharedKey {
    /// From what follows the scheme: `account:signature`.
    pub(crate) fn parse(scheme: Scheme, text: &str) -> Result<Self, AuthError> {
        match text.split_once(':') {
            Some((account, signature)) if !account.is_empty() && !signature.is_empty() => {
                let signature = Signature::parse(signature)?;
                Ok(Self { scheme, account: account.into(), signature })
            }
            _ => Err(AuthError::MalformedHeader),
        }
    }

    /// Which string was signed.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// The account that the header names.
    pub fn account(&self) -> &str {
        &self.account
    }

    /// Accepts the signature if one of the keys made it, of this request to this account, and the signed
    /// date is at most `skew_seconds` from `now`, before or after.
    pub fn verify(
        &self,
        request: &Request<'_>,
        keys: &[&[u8]],
        now: Timestamp,
        skew_seconds: u64,
    ) -> Result<(), AuthError> {
        if *self.account != *request.account {
            return Err(AuthError::Failed("the header names another account than the URL"));
        }
        let date = signed_date(request)?;
        let sent = Timestamp::parse_rfc1123(date)
            .map_err(|_| AuthError::Failed("the date is not in the format of RFC 1123"))?;
        if now.seconds_from(sent) > skew_seconds {
            return Err(AuthError::Date);
        }
        let forms: &[Blanks] = match request.service {
            Service::Table => &[Blanks::Kept],
            Service::Queue { .. } => &[Blanks::Kept, Blanks::Reduced],
        };
        for path in spellings(request.account, request.path) {
            for blanks in forms {
                let text = string_to_sign(self.scheme, request, date, &path, *blanks)?;
                if self.signature.matches(keys, &text) {
                    return Ok(());
                }
            }
        }
        Err(AuthError::Signature)
    }

    /// The signature as it was sent.
    pub(crate) fn sent(&self) -> String {
        self.signature.to_base64()
    }

    /// What the signature should have been made of.
    pub(crate) fn string_to_sign(&self, request: &Request<'_>) -> Option<String> {
        let date = signed_date(request).ok()?;
        string_to_sign(self.scheme, request, date, request.path, Blanks::Reduced).ok()
    }
}

/// `x-ms-date`, or `Date` without it.
pub(crate) fn signed_date<'a>(request: &Request<'a>) -> Result<&'a str, AuthError> {
    let date = (request.header)("x-ms-date").or_else(|| (request.header)("date"));
    date.ok_or(AuthError::Failed("the request has no date"))
}

pub(crate) fn string_to_sign(
    scheme: Scheme,
    request: &Request<'_>,
    date: &str,
    path: &str,
    blanks: Blanks,
) -> Result<String, AuthError> {
    if let Service::Queue { headers, .. } = request.service {
        return canonical::string_to_sign(scheme, request, headers, path, blanks);
    }
    let header = |name| (request.header)(name).unwrap_or_default();
    let mut text = match scheme {
        Scheme::SharedKey => {
            let (digest, content) = (header("content-md5"), header("content-type"));
            let method = request.method;
            [method, "\n", digest, "\n", content, "\n", date, "\n/", request.account, path].concat()
        }
        Scheme::SharedKeyLite => [date, "\n/", request.account, path].concat(),
    };
    push_comp(&mut text, request)?;
    Ok(text)
}

/// The one parameter that is part of the short form of a resource, by the name that the service acts on: that of queues
/// takes it in any case.
pub(crate) fn push_comp(text: &mut String, request: &Request<'_>) -> Result<(), AuthError> {
    let is_comp = |name: &str| match request.service {
        Service::Table => name == "comp",
        Service::Queue { .. } => name.eq_ignore_ascii_case("comp"),
    };
    let mut comps = request.query.iter().filter(|(name, _)| is_comp(name));
    if let Some((_, comp)) = comps.next() {
        text.push_str("?comp=");
        text.push_str(comp);
    }
    // Only one of them would be signed, and nobody knows which one the service acts on.
    match comps.next() {
        Some(_) => Err(AuthError::Failed("the parameter comp is repeated")),
        None => Ok(()),
    }
}
