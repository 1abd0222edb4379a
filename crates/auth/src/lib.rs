//! Who signed a request: Shared Key, Shared Key Lite and shared access signatures, made and verified.
//!
//! Pure functions over what was on the wire. Keys, the time and the peer's address are arguments; there is
//! no clock, no store and no HTTP library here. [`parse`] tells which kind of credentials a request
//! carries, `verify` whether a key of the account made them, [`Terms::check`] whether they hold here and
//! now, and `grant` what they allow; whether that covers the operation is the business of
//! [`rowhouse_types::Grant`].
//!
//! Signatures are compared in constant time, and no error or debug output shows a signature, a key or
//! a part of a string to sign. Only [`Credentials::explain`] does, for the service whose clients are told.

mod account_sas;
mod canonical;
mod mac;
mod path;
mod queue_sas;
mod sas;
mod shared_key;
pub mod sign;
mod stated;
mod table_sas;
mod terms;

pub use account_sas::{AccountSas, AccountSasFields};
pub use queue_sas::{QueueSas, QueueSasFields};
pub use shared_key::{Scheme, SharedKey};
pub use table_sas::{TableSas, TableSasFields};
pub use terms::{IpRange, Protocol, Terms};

use sas::Parameters;

/// What was on the wire, undecoded where it matters to a signature.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// The verb as sent; of a tunnelled request the outer one.
    pub method: &'a str,
    /// The account that the URL addresses, without `-secondary`.
    pub account: &'a str,
    /// The encoded path exactly as received, with a path-style account segment if there is one.
    pub path: &'a str,
    /// Decoded query parameters in order.
    pub query: &'a [(String, String)],
    /// Looks a header up by its lower-case name.
    pub header: &'a (dyn Fn(&str) -> Option<&'a str> + Sync),
    /// Whose strings to sign are meant.
    pub service: Service<'a>,
}

/// The service that a request is sent to: each has strings to sign of its own.
#[derive(Clone, Copy, Debug)]
pub enum Service<'a> {
    /// Tables.
    Table,
    /// Queues.
    Queue {
        /// The queue that the path names, decoded; empty if it names none.
        queue: &'a str,
        /// Every header, names in any case.
        headers: &'a [(&'a str, &'a str)],
    },
}

/// What a request offers to show who made it. Nothing is verified yet.
#[derive(Debug)]
pub enum Credentials {
    /// A signature over this one request.
    SharedKey(SharedKey),
    /// A shared access signature of the account.
    AccountSas(AccountSas),
    /// A shared access signature of one table.
    TableSas(TableSas),
    /// A shared access signature of one queue.
    QueueSas(QueueSas),
    /// An OAuth token.
    Bearer,
    /// Nothing at all.
    Anonymous,
}

/// Why credentials are not accepted: one variant per distinct answer on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// The request carries no credentials.
    #[error("no credentials")]
    NoCredentials,
    /// The request carries an OAuth token.
    #[error("bearer tokens are not supported")]
    BearerNotSupported,
    /// The `Authorization` header is not `Scheme account:signature`.
    #[error("the Authorization header is malformed")]
    MalformedHeader,
    /// No key of the account made the signature.
    #[error("no key of the account made the signature")]
    Signature,
    /// The date of a signed request is too far from the server's clock.
    #[error("the date is too far from the server's clock")]
    Date,
    /// The signature does not hold yet, or has expired.
    #[error("the signature does not hold at this time")]
    TimeFrame,
    /// A header that is signed stands there twice.
    #[error("a signed header is repeated")]
    RepeatedHeader,
    /// Anything else that keeps a signature from being accepted. The reason is for the log only: the client
    /// is told the same whatever it is.
    #[error("authentication failed: {0}")]
    Failed(&'static str),
    /// The peer's address is outside the range that the signature names.
    #[error("the signature does not cover this source address")]
    SourceIp,
    /// The signature demands an encrypted connection.
    #[error("the signature does not cover this protocol")]
    Protocol,
}

/// Finds the credentials of a request. An `Authorization` header wins over a signature in the URL.
///
/// The form of the credentials is judged here, so that whatever comes out has only its signature and its terms
/// left to check.
pub fn parse(request: &Request<'_>) -> Result<Credentials, AuthError> {
    if let Some(header) = (request.header)("authorization") {
        return parse_header(header);
    }
    let has = |name: &str| request.query.iter().any(|(found, _)| found == name);
    if !has("sig") {
        return Ok(Credentials::Anonymous);
    }
    let parameters = Parameters::new(request.query)?;
    if has("ss") && has("srt") {
        AccountSas::parse(&parameters).map(Credentials::AccountSas)
    } else if let Service::Queue { queue, .. } = request.service {
        QueueSas::parse(&parameters, queue).map(Credentials::QueueSas)
    } else if has("tn") {
        TableSas::parse(&parameters).map(Credentials::TableSas)
    } else {
        Err(AuthError::Failed("the signature is neither of an account nor of a table"))
    }
}

impl Credentials {
    /// What was compared with what, when [`AuthError::Signature`] was the answer: the signature that was sent and the text
    /// that it should have been made of. Not the signature that would be right.
    pub fn explain(&self, request: &Request<'_>) -> Option<Mismatch> {
        let (sent, signed) = match self {
            Self::SharedKey(key) => (key.sent(), key.string_to_sign(request)?),
            Self::AccountSas(sas) => (sas_signature(request), sas.string_to_sign(request)),
            Self::QueueSas(sas) => (sas_signature(request), sas.string_to_sign(request)),
            Self::TableSas(_) | Self::Bearer | Self::Anonymous => return None,
        };
        Some(Mismatch { sent, signed })
    }
}

fn sas_signature(request: &Request<'_>) -> String {
    let found = request.query.iter().find(|(name, _)| name == "sig");
    found.map(|(_, value)| value.clone()).unwrap_or_default()
}

/// A signature and what it should have been made of.
#[derive(Clone, PartialEq, Eq)]
pub struct Mismatch {
    /// The signature as it was sent.
    pub sent: String,
    /// The string to sign.
    pub signed: String,
}

impl std::fmt::Debug for Mismatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Mismatch")
    }
}

fn parse_header(header: &str) -> Result<Credentials, AuthError> {
    let (word, rest) = header.trim().split_once(' ').ok_or(AuthError::MalformedHeader)?;
    let rest = rest.trim_start();
    let shared_key = |scheme| SharedKey::parse(scheme, rest).map(Credentials::SharedKey);
    let is = |name: &str| word.eq_ignore_ascii_case(name);
    if is("SharedKey") {
        shared_key(Scheme::SharedKey)
    } else if is("SharedKeyLite") {
        shared_key(Scheme::SharedKeyLite)
    } else if is("Bearer") {
        Ok(Credentials::Bearer)
    } else {
        Err(AuthError::MalformedHeader)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Query<'a> = &'a [(&'a str, &'a str)];

    fn parse_with(authorization: Option<&'static str>, query: Query<'_>) -> String {
        let query: Vec<_> = query.iter().map(|&(n, v)| (n.to_owned(), v.to_owned())).collect();
        let header = |name: &str| authorization.filter(|_| name == "authorization");
        let request = Request {
            method: "GET",
            account: "acct",
            path: "/Tables",
            query: &query,
            header: &header,
            service: Service::Table,
        };
        match parse(&request) {
            Ok(Credentials::SharedKey(key)) => format!("{:?} {}", key.scheme(), key.account()),
            Ok(Credentials::AccountSas(_)) => "account".to_owned(),
            Ok(Credentials::TableSas(sas)) => format!("table {}", sas.table().as_str()),
            Ok(Credentials::QueueSas(sas)) => format!("queue {}", sas.queue()),
            Ok(Credentials::Bearer) => "bearer".to_owned(),
            Ok(Credentials::Anonymous) => "anonymous".to_owned(),
            Err(AuthError::Failed(_)) => "failed".to_owned(),
            Err(other) => format!("{other:?}"),
        }
    }

    const SIG: &str = "9SjHnQ77zPy9wlz6gGjv2JNa4gteQAmB11gLX/93GV4=";

    #[test]
    fn header_schemes() {
        let cases = [
            ("SharedKey acct:9SjHnQ77zPy9wlz6gGjv2JNa4gteQAmB11gLX/93GV4=", "SharedKey acct"),
            ("sharedKEYlite  a:9SjHnQ77zPy9wlz6gGjv2JNa4gteQAmB11gLX/93GV4=", "SharedKeyLite a"),
            ("Bearer abc", "bearer"),
            ("", "MalformedHeader"),
            ("SharedKey", "MalformedHeader"),
            ("SharedKey acct", "MalformedHeader"),
            ("SharedKey :sig", "MalformedHeader"),
            ("SharedKey acct:", "MalformedHeader"),
            ("Basic dTpw", "MalformedHeader"),
            ("SharedKey acct:tooshort", "failed"),
            ("SharedKey acct:AAAA", "failed"),
            ("SharedKey acct:9SjHnQ77zPy9wlz6gGjv2JNa4gteQAmB11gLX/93GV4", "failed"),
            ("SharedKey acct:9SjHnQ77zPy9wlz6gGjv2JNa4gteQAmB11gLX/93GV4= ", "SharedKey acct"),
        ];
        for (header, expected) in cases {
            assert_eq!(parse_with(Some(header), &[]), expected, "{header:?}");
        }
        // A header wins, whatever the URL carries.
        let repeated = [("sig", SIG), ("sig", SIG)];
        assert_eq!(parse_with(Some("Bearer x"), &repeated), "bearer");
    }

    #[test]
    fn signatures_in_the_url() {
        let (se, sv, sp) = (("se", "2099-01-01T00:00:00Z"), ("sv", "2019-02-02"), ("sp", "r"));
        let (sig, ss, srt, tn) = (("sig", SIG), ("ss", "t"), ("srt", "sco"), ("tn", "People"));
        let cases: &[(&str, Query<'_>, &str)] = &[
            ("nothing", &[("comp", "acl")], "anonymous"),
            ("fields without a signature", &[se, sv, sp, tn], "anonymous"),
            ("account", &[sv, ss, srt, sp, se, sig], "account"),
            ("table", &[sv, tn, sp, se, sig], "table people"),
            ("table with a policy", &[sv, tn, ("si", "id"), sig], "table people"),
            (
                "unknown parameters may repeat",
                &[sv, tn, sp, se, sig, ("x", ""), ("x", "")],
                "table people",
            ),
            ("no kind", &[sv, sp, se, sig], "failed"),
            ("half an account", &[sv, sp, se, sig, ss], "failed"),
            ("signature twice", &[sv, tn, sp, se, sig, sig], "failed"),
            ("permissions twice", &[sv, tn, sp, se, sig, ("sp", "raud")], "failed"),
            ("table twice", &[sv, tn, sp, se, sig, ("tn", "other")], "failed"),
            ("line break in a field", &[sv, tn, sp, se, sig, ("spk", "a\nb")], "failed"),
            ("no version", &[tn, sp, se, sig], "failed"),
            ("version no date", &[("sv", "2019-2-2"), tn, sp, se, sig], "failed"),
            ("version too old", &[("sv", "2011-08-18"), tn, sp, se, sig], "failed"),
            ("version of the future", &[("sv", "2199-01-01"), tn, sp, se, sig], "table people"),
            ("no expiry", &[sv, tn, sp, sig], "failed"),
            ("no permissions", &[sv, tn, se, sig], "failed"),
            ("empty table", &[sv, ("tn", ""), sp, se, sig], "failed"),
            ("wrong order of permissions", &[sv, tn, ("sp", "ar"), se, sig], "failed"),
            ("permission twice", &[sv, tn, ("sp", "rr"), se, sig], "failed"),
            ("permission of another service", &[sv, tn, ("sp", "rp"), se, sig], "failed"),
            ("bad expiry", &[sv, tn, sp, ("se", "tomorrow"), sig], "failed"),
            ("bad start", &[sv, tn, sp, se, ("st", "2022"), sig], "failed"),
            ("http alone", &[sv, tn, sp, se, ("spr", "http"), sig], "failed"),
            ("bad address", &[sv, tn, sp, se, ("sip", "1.2.3"), sig], "failed"),
            ("row without partition", &[sv, tn, sp, se, ("srk", "1"), sig], "failed"),
            ("last row without partition", &[sv, tn, sp, se, ("erk", "1"), sig], "failed"),
            (
                "address before its time",
                &[("sv", "2013-08-15"), tn, sp, se, ("sip", "1.2.3.4"), sig],
                "failed",
            ),
            ("signature too short", &[sv, tn, sp, se, ("sig", "AAAA")], "failed"),
            ("account: no permissions", &[sv, ss, srt, se, sig], "failed"),
            ("account: no expiry", &[sv, ss, srt, sp, sig], "failed"),
            ("account: before its time", &[("sv", "2014-02-14"), ss, srt, sp, se, sig], "failed"),
            ("account: unknown service", &[sv, ("ss", "x"), srt, sp, se, sig], "failed"),
            ("account: unknown resource type", &[sv, ss, ("srt", "x"), sp, se, sig], "failed"),
            ("account: a policy", &[sv, ss, srt, sp, se, ("si", "id"), sig], "account"),
        ];
        for (rule, query, expected) in cases {
            assert_eq!(&parse_with(None, query), expected, "{rule}");
        }
    }
}
