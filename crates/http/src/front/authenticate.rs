//! From credentials to a grant.
//!
//! No grant, no routing. Which check comes first decides what a client is told; the order is that of the
//! protocol: account, kind of credentials, signature, time, address, transport. What the grant covers is
//! asked later, by the services.

use super::address::Address;
use super::cors;
use super::head::{Head, Headers};
use super::refusal::Refusal;
use super::{PublicKey, Service};
use crate::Peer;
use http::header::{AUTHORIZATION, CONTENT_TYPE, DATE, HeaderName};
use rowhouse_auth::{AuthError, Credentials, Request, Terms};
use rowhouse_service_account::{
    AccountId, AccountKey, AccountService, AccountView, DEVELOPMENT_KEY,
};
use rowhouse_types::{AccountName, Grant, Service as Kind, ServiceProperties, Timestamp};
use rowhouse_wire::uri::parse_queue_resource;
use rowhouse_wire::version::ApiVersion;
use std::sync::{Arc, LazyLock};

/// Why a request without a signature is refused by versions that know no challenge.
pub(crate) const NOT_ACCEPTABLE: &str = "no acceptable credentials";

/// What authentication depends on beside the request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Authenticator {
    pub(crate) now: Timestamp,
    pub(crate) skew_seconds: u64,
    pub(crate) peer: Peer,
}

/// The account that a request addresses, if there is one.
pub(crate) async fn find_account(
    accounts: &AccountService,
    address: &Address<'_>,
) -> Result<Option<Arc<AccountView>>, Refusal> {
    match address.account.parse::<AccountName>() {
        Ok(name) => Ok(accounts.find(&name).await?),
        Err(_) => Ok(None),
    }
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
    service: Kind,
    host: &str,
    origin: Option<&str>,
    extra_hosts: &[String],
) -> Result<(), Refusal> {
    match public_key {
        PublicKey::Guarded if has_public_key(account) => {
            guard_from_pages(account.properties_of(service), host, origin, extra_hosts)
        }
        // Where it is refused, the account is not even found.
        PublicKey::Refused | PublicKey::Guarded | PublicKey::Accepted => Ok(()),
    }
}

/// Whether the key that everybody knows opens the account.
pub(crate) fn has_public_key(account: &AccountView) -> bool {
    account.keys.iter().flatten().any(|key| key.as_bytes() == PUBLIC_KEY.as_slice())
}

/// Keeps web pages of strangers away.
///
/// A page can make a browser call `127.0.0.1`, directly or under a name of its own that it points there, and
/// sign with the public key. So such a request must name this machine as itself, and a page's origin must
/// be on this machine too or be named by a cross-origin rule.
fn guard_from_pages(
    properties: &ServiceProperties,
    host: &str,
    origin: Option<&str>,
    extra_hosts: &[String],
) -> Result<(), Refusal> {
    use super::address::{host_name, is_loopback, is_own_name};
    let extra = |name: &str| {
        let name = name.to_ascii_lowercase();
        extra_hosts.iter().map(|suffix| suffix.to_ascii_lowercase()).any(|suffix| {
            name.strip_suffix(&suffix).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        })
    };
    let host = host_name(host);
    let origin_known = origin.is_none_or(|origin| {
        let name = host_name(origin.split_once("://").map_or(origin, |(_, rest)| rest));
        is_loopback(name)
            || name.eq_ignore_ascii_case(host)
            || extra(name)
            || cors::origin_is_known(properties, origin)
    });
    if (is_own_name(host) || extra(host)) && origin_known {
        Ok(())
    } else {
        Err(Refusal::ForeignHost)
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

impl Authenticator {
    /// What the credentials of the request allow.
    pub(crate) async fn grant<S: Service>(
        &self,
        service: &S,
        account: &AccountView,
        address: &Address<'_>,
        head: &Head<'_>,
        version: ApiVersion,
    ) -> Result<Grant, S::Failure> {
        // A key that is absent is no key: there is nothing that a signature could be compared with.
        let (both, one);
        let keys: &[&[u8]] = match &account.keys {
            [Some(first), Some(second)] => {
                both = [first.as_bytes(), second.as_bytes()];
                &both
            }
            [Some(only), None] | [None, Some(only)] => {
                one = [only.as_bytes()];
                &one
            }
            [None, None] => &[],
        };
        self.grant_with(service, Some(account.id), keys, address, head, version).await
    }

    /// Why a request to an account that is not there is refused: as if it had no key.
    pub(crate) async fn stranger<S: Service>(
        &self,
        service: &S,
        address: &Address<'_>,
        head: &Head<'_>,
        version: ApiVersion,
    ) -> S::Failure {
        match self.grant_with(service, None, &[], address, head, version).await {
            Ok(_) => Refusal::UnknownAccount.into(),
            Err(failure) => failure,
        }
    }

    async fn grant_with<S: Service>(
        &self,
        service: &S,
        account: Option<AccountId>,
        keys: &[&[u8]],
        address: &Address<'_>,
        head: &Head<'_>,
        version: ApiVersion,
    ) -> Result<Grant, S::Failure> {
        let headers = head.headers;
        let lookup = move |name: &str| match signed_header(name) {
            Some(known) => headers.get(known),
            None => headers.get(&HeaderName::from_bytes(name.as_bytes()).ok()?),
        };
        let (all, queue) = match S::KIND {
            Kind::Table => (Vec::new(), String::new()),
            Kind::Queue => (every(headers), queue_of(address.path)),
        };
        let signed = match S::KIND {
            Kind::Table => rowhouse_auth::Service::Table,
            Kind::Queue => rowhouse_auth::Service::Queue { queue: &queue, headers: &all },
        };
        let request = Request {
            method: head.method,
            account: address.account,
            path: address.signed_path,
            query: head.query.pairs(),
            header: &lookup,
            service: signed,
        };
        let refuse = |error| Refusal::auth(error, self.detail::<S>(error, None));
        let credentials = rowhouse_auth::parse(&request).map_err(refuse)?;
        let wrong = |error: AuthError| {
            let detail = match error {
                AuthError::Signature if S::KIND == Kind::Queue => {
                    credentials.explain(&request).map(|told| {
                        format!(
                            "The MAC signature found in the HTTP request '{}' is not the same as any \
                             computed signature. Server used following string to sign: '{}'.",
                            told.sent, told.signed
                        )
                    })
                }
                AuthError::Date if S::KIND == Kind::Queue => {
                    let date = lookup("x-ms-date").or_else(|| lookup("date")).unwrap_or_default();
                    Some(format!("Request date header too old: '{date}'"))
                }
                error => self.detail::<S>(error, None),
            };
            Refusal::auth(error, detail)
        };
        match &credentials {
            Credentials::SharedKey(signature) => {
                signature.verify(&request, keys, self.now, self.skew_seconds).map_err(wrong)?;
                Ok(Grant::AccountKey)
            }
            Credentials::AccountSas(signature) => {
                signature.verify(&request, keys).map_err(wrong)?;
                self.check::<S>(&signature.terms())?;
                Ok(signature.grant())
            }
            Credentials::TableSas(signature) => {
                signature.verify(&request, keys).map_err(wrong)?;
                let table = signature.table();
                let id = signature.policy_id().map(|id| (table.as_str(), id));
                let policy = policy(service, account, id).await?;
                let terms = signature.resolve(policy.as_ref()).map_err(wrong)?;
                self.check::<S>(&terms)?;
                Ok(signature.grant(&terms))
            }
            Credentials::QueueSas(signature) => {
                signature.verify(&request, keys).map_err(wrong)?;
                let id = signature.policy_id().map(|id| (signature.queue().as_str(), id));
                let policy = policy(service, account, id).await?;
                let terms = signature.resolve(policy.as_ref()).map_err(wrong)?;
                self.check::<S>(&terms)?;
                Ok(signature.grant(&terms))
            }
            // Older versions know no challenge.
            Credentials::Anonymous
                if S::KIND == Kind::Queue && version < ApiVersion::V2020_12_06 =>
            {
                Err(Refusal::Anonymous.into())
            }
            Credentials::Bearer | Credentials::Anonymous if version < ApiVersion::V2020_12_06 => {
                Err(wrong(AuthError::Failed(NOT_ACCEPTABLE)).into())
            }
            Credentials::Bearer => Err(wrong(AuthError::BearerNotSupported).into()),
            Credentials::Anonymous => Err(wrong(AuthError::NoCredentials).into()),
        }
    }

    fn check<S: Service>(&self, terms: &Terms) -> Result<(), Refusal> {
        let ip = self.peer.addr.ip();
        terms.check(self.now, ip, self.peer.tls).map_err(|error| match error {
            AuthError::SourceIp => Refusal::SourceIp(ip),
            error => Refusal::auth(error, self.detail::<S>(error, Some(terms))),
        })
    }

    /// What a client of queues is told beside the code; one of tables is told nothing.
    fn detail<S: Service>(&self, error: AuthError, terms: Option<&Terms>) -> Option<String> {
        match (S::KIND, error, terms) {
            (Kind::Queue, AuthError::Failed(reason), _) => Some(reason.to_owned()),
            (Kind::Queue, AuthError::TimeFrame, Some(terms)) => {
                // A signature that does not say when it starts does so when it is used.
                let start = terms.start.unwrap_or(self.now);
                let ended = terms.expiry <= start;
                let (start, expiry) = (start.rfc1123(), terms.expiry.rfc1123());
                let now = self.now.rfc1123();
                Some(if ended {
                    format!(
                        "Signed expiry time [{expiry}] must be after signed start time [{start}]"
                    )
                } else {
                    format!(
                        "Signature not valid in the specified time frame: Start [{start}] - \
                         Expiry [{expiry}] - Current [{now}]"
                    )
                })
            }
            _ => None,
        }
    }
}

/// The stored policy that a signature names: of which table or queue, and by which id.
async fn policy<S: Service>(
    service: &S,
    account: Option<AccountId>,
    named: Option<(&str, &str)>,
) -> Result<Option<rowhouse_types::StoredPolicy>, S::Failure> {
    match (account, named) {
        (Some(account), Some((resource, id))) => service.stored_policy(account, resource, id).await,
        _ => Ok(None),
    }
}

/// Every header, by name. One that is not visible ASCII reads as in [`Headers::get`].
fn every(headers: Headers<'_>) -> Vec<(&str, &str)> {
    match headers {
        Headers::Outer(map) => {
            map.iter().map(|(name, value)| (name.as_str(), super::head::text(value))).collect()
        }
        Headers::Part(_) => Vec::new(),
    }
}

/// The queue that a signature of one is for: the one that the path names.
fn queue_of(path: &str) -> String {
    let resource = parse_queue_resource(path).ok();
    resource.and_then(|resource| resource.queue().map(str::to_owned)).unwrap_or_default()
}
