//! What a shared access signature of one table or queue says of its terms, and what it leaves to a stored policy.

use crate::AuthError;
use crate::sas::{self, Parameters};
use crate::terms::{IpRange, Protocol, Terms};
use rowhouse_types::grant::Letters;
use rowhouse_types::{Service, StoredPolicy, Timestamp};

/// The terms that stand in the URL.
#[derive(Clone, Debug)]
pub(crate) struct Stated {
    policy_id: Option<Box<str>>,
    start: Option<Timestamp>,
    expiry: Option<Timestamp>,
    permissions: Option<Letters>,
    ip: Option<IpRange>,
    protocol: Protocol,
    /// The permissions that there are, in the order in which they are written.
    letters: &'static str,
}

impl Stated {
    /// Reads the terms. Without a stored policy they must be complete.
    pub(crate) fn parse(parameters: &Parameters<'_>, service: Service) -> Result<Self, AuthError> {
        let letters = service.letters();
        let text = |name| parameters.get(name).unwrap_or_default();
        let version = text("sv");
        sas::check_version(version, sas::FIRST)?;
        // Whoever holds the signature could drop them unnoticed, so they must not seem to protect.
        let restricted = !text("sip").is_empty() || !text("spr").is_empty();
        if restricted && version < sas::RESTRICTIONS {
            return Err(AuthError::Failed("the signed version has no restrictions"));
        }
        let stated = Self {
            policy_id: Some(text("si")).filter(|id| !id.is_empty()).map(Into::into),
            start: sas::parse_time(text("st"))?,
            expiry: sas::parse_time(text("se"))?,
            permissions: parse_permissions(text("sp"), letters)?,
            ip: IpRange::parse(text("sip"))?,
            protocol: Protocol::parse(text("spr"))?,
            letters,
        };
        if stated.policy_id.is_none() {
            stated.resolve(None)?;
        }
        Ok(stated)
    }

    /// The stored access policy that says what the signature itself leaves open.
    pub(crate) fn policy_id(&self) -> Option<&str> {
        self.policy_id.as_deref()
    }

    /// The effective terms, given the stored policy of that id.
    pub(crate) fn resolve(&self, policy: Option<&StoredPolicy>) -> Result<Terms, AuthError> {
        let policy = match &self.policy_id {
            None => None,
            Some(id) => match policy {
                Some(policy) if policy.id == *id => Some(policy),
                _ => return Err(AuthError::Failed("the stored policy does not exist")),
            },
        };
        let stored_permissions = match policy.and_then(|policy| policy.permission.as_deref()) {
            Some(text) => stored_permissions(text, self.letters)?,
            None => None,
        };
        let expiry = one_of(self.expiry, policy.and_then(|policy| policy.expiry))?;
        let permissions = one_of(self.permissions, stored_permissions)?;
        Ok(Terms {
            start: one_of(self.start, policy.and_then(|policy| policy.start))?,
            expiry: expiry.ok_or(AuthError::Failed("the signature has no expiry"))?,
            permissions: permissions
                .ok_or(AuthError::Failed("the signature has no permissions"))?,
            ip: self.ip,
            protocol: self.protocol,
        })
    }
}

fn one_of<T>(signed: Option<T>, stored: Option<T>) -> Result<Option<T>, AuthError> {
    match (signed, stored) {
        (Some(_), Some(_)) => {
            Err(AuthError::Failed("signature and stored policy both say the same field"))
        }
        (signed, stored) => Ok(signed.or(stored)),
    }
}

/// The same of a stored policy, where queues have them in any order.
fn stored_permissions(text: &str, letters: &str) -> Result<Option<Letters>, AuthError> {
    let sorted: String = letters.chars().filter(|letter| text.contains(*letter)).collect();
    if sorted.len() == text.len() {
        parse_permissions(&sorted, letters)
    } else {
        Err(AuthError::Failed("the stored permissions are not those of the service"))
    }
}

/// Letters of those, each at most once and in this order; none if the field is empty.
fn parse_permissions(text: &str, letters: &str) -> Result<Option<Letters>, AuthError> {
    let mut order = letters.chars();
    if text.chars().all(|letter| order.any(|next| next == letter)) {
        Ok((!text.is_empty()).then(|| Letters::new(text)))
    } else {
        Err(AuthError::Failed("the permissions are not those of the service in their order"))
    }
}
