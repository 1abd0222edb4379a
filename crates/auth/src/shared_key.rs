//! Shared Key and Shared Key Lite: a signature over one request in the `Authorization` header.
//!
//! The strings to sign are those of the Table service, the same in every version of the protocol.

use crate::mac::Signature;
use crate::path::spellings;
use crate::{AuthError, Request};
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
            return Err(AuthError::Failed("the date is too far from the server's clock"));
        }
        for path in spellings(request.account, request.path) {
            if self.signature.matches(keys, &string_to_sign(self.scheme, request, date, &path)?) {
                return Ok(());
            }
        }
        Err(AuthError::Failed("no key of the account made the signature"))
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
) -> Result<String, AuthError> {
    let header = |name| (request.header)(name).unwrap_or_default();
    let mut text = match scheme {
        Scheme::SharedKey => {
            let (digest, content) = (header("content-md5"), header("content-type"));
            let method = request.method;
            [method, "\n", digest, "\n", content, "\n", date, "\n/", request.account, path].concat()
        }
        Scheme::SharedKeyLite => [date, "\n/", request.account, path].concat(),
    };
    let mut comps = request.query.iter().filter(|(name, _)| name == "comp");
    if let Some((_, comp)) = comps.next() {
        text.push_str("?comp=");
        text.push_str(comp);
    }
    // Only one of them would be signed, and nobody knows which one the service acts on.
    match comps.next() {
        Some(_) => Err(AuthError::Failed("the parameter comp is repeated")),
        None => Ok(text),
    }
}
