//! From credentials to a grant.
//!
//! No grant, no routing. Which check comes first decides what a client is told; the order is that of the
//! protocol: account, kind of credentials, signature, time, address, transport. What the grant covers is
//! asked later, by the services.

use super::PublicKey;
use super::address::Address;
use super::cors;
use super::error::Failure;
use super::head::Head;
use crate::Peer;
use http::header::{AUTHORIZATION, CONTENT_TYPE, DATE, HeaderName};
use rowhouse_auth::{AuthError, Credentials, Request, Terms};
use rowhouse_service_account::{AccountKey, AccountService, AccountView, DEVELOPMENT_KEY};
use rowhouse_service_table::TableService;
use rowhouse_types::{AccountName, Grant, TableName, Timestamp};
use rowhouse_wire::version::ApiVersion;
use std::sync::{Arc, LazyLock};

/// What authentication depends on beside the request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Authenticator<'a> {
    pub(crate) tables: &'a TableService,
    pub(crate) now: Timestamp,
    pub(crate) skew_seconds: u64,
    pub(crate) peer: Peer,
}

/// The account that a request addresses.
pub(crate) async fn find_account(
    accounts: &AccountService,
    address: &Address<'_>,
) -> Result<Arc<AccountView>, Failure> {
    let name: AccountName = address.account.parse().map_err(|_| Failure::UnknownAccount)?;
    accounts.find(&name).await?.ok_or(Failure::UnknownAccount)
}

/// The key that stands in every manual, whichever account has it.
static PUBLIC_KEY: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let key = AccountKey::from_base64(DEVELOPMENT_KEY).expect("a constant in Base64");
    key.as_bytes().to_vec()
});

/// Keeps strangers away from an account whose key everybody knows, as far as it is told.
pub(crate) fn guard(
    public_key: PublicKey,
    account: &AccountView,
    host: &str,
    origin: Option<&str>,
    extra_hosts: &[String],
) -> Result<(), Failure> {
    if !account.keys.iter().any(|key| key.as_bytes() == PUBLIC_KEY.as_slice()) {
        return Ok(());
    }
    match public_key {
        PublicKey::Refused => Err(Failure::PublicKey),
        PublicKey::Guarded => guard_from_pages(account, host, origin, extra_hosts),
        PublicKey::Accepted => Ok(()),
    }
}

/// Keeps web pages of strangers away.
///
/// A page can make a browser call `127.0.0.1`, directly or under a name of its own that it points there, and
/// sign with the public key. So such a request must name this machine as itself, and a page's origin must
/// be on this machine too or be named by a cross-origin rule.
fn guard_from_pages(
    account: &AccountView,
    host: &str,
    origin: Option<&str>,
    extra_hosts: &[String],
) -> Result<(), Failure> {
    use super::address::{host_name, is_own_name, is_own_origin};
    let extra = |name: &str| {
        let name = name.to_ascii_lowercase();
        extra_hosts.iter().map(|suffix| suffix.to_ascii_lowercase()).any(|suffix| {
            name.strip_suffix(&suffix).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        })
    };
    let host = host_name(host);
    let origin_known = origin.is_none_or(|origin| {
        let name = host_name(origin.split_once("://").map_or(origin, |(_, rest)| rest));
        is_own_origin(name)
            || name.eq_ignore_ascii_case(host)
            || extra(name)
            || cors::origin_is_known(&account.table_properties, origin)
    });
    if (is_own_name(host) || extra(host)) && origin_known {
        Ok(())
    } else {
        Err(Failure::ForeignHost)
    }
}

/// The header of that name, if it is one of those that credentials are made of: found at no cost.
fn signed_header(name: &str) -> Option<&'static HeaderName> {
    static CONTENT_MD5: HeaderName = HeaderName::from_static("content-md5");
    static SIGNED_DATE: HeaderName = HeaderName::from_static("x-ms-date");
    Some(match name {
        "authorization" => &AUTHORIZATION,
        "content-md5" => &CONTENT_MD5,
        "content-type" => &CONTENT_TYPE,
        "date" => &DATE,
        "x-ms-date" => &SIGNED_DATE,
        _ => return None,
    })
}

impl Authenticator<'_> {
    /// What the credentials of the request allow.
    pub(crate) async fn grant(
        &self,
        account: &AccountView,
        address: &Address<'_>,
        head: &Head<'_>,
        version: ApiVersion,
    ) -> Result<Grant, Failure> {
        let headers = head.headers;
        let lookup = move |name: &str| match signed_header(name) {
            Some(known) => headers.get(known),
            None => headers.get(&HeaderName::from_bytes(name.as_bytes()).ok()?),
        };
        let request = Request {
            method: head.method,
            account: address.account,
            path: address.signed_path,
            query: head.query.pairs(),
            header: &lookup,
        };
        let keys = [account.keys[0].as_bytes(), account.keys[1].as_bytes()];
        match rowhouse_auth::parse(&request)? {
            Credentials::SharedKey(signature) => {
                signature.verify(&request, &keys, self.now, self.skew_seconds)?;
                Ok(Grant::AccountKey)
            }
            Credentials::AccountSas(signature) => {
                signature.verify(&request, &keys)?;
                self.check(&signature.terms())?;
                Ok(signature.table_grant())
            }
            Credentials::TableSas(signature) => {
                signature.verify(&request, &keys)?;
                let policy = match signature.policy_id.as_deref() {
                    Some(id) => {
                        let table: TableName = signature
                            .table()
                            .as_str()
                            .parse()
                            .map_err(|_| AuthError::Failed("tn is not the name of a table"))?;
                        let policy = self.tables.stored_policy(account.id, &table, id).await?;
                        Some(policy.ok_or(AuthError::Failed("no such stored policy"))?)
                    }
                    None => None,
                };
                let terms = signature.resolve(policy.as_ref())?;
                self.check(&terms)?;
                Ok(signature.grant(&terms))
            }
            // Older versions know no challenge.
            Credentials::Bearer | Credentials::Anonymous if version < ApiVersion::V2020_12_06 => {
                Err(AuthError::Failed("no acceptable credentials").into())
            }
            Credentials::Bearer => Err(AuthError::BearerNotSupported.into()),
            Credentials::Anonymous => Err(AuthError::NoCredentials.into()),
        }
    }

    fn check(&self, terms: &Terms) -> Result<(), Failure> {
        let ip = self.peer.addr.ip();
        terms.check(self.now, ip, self.peer.tls).map_err(|error| match error {
            AuthError::SourceIp => Failure::SourceIp(ip),
            error => error.into(),
        })
    }
}
