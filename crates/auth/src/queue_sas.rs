//! Shared access signatures of one queue, with stored access policies.

use crate::mac::Signature;
use crate::sas::{self, Parameters};
use crate::stated::Stated;
use crate::terms::Terms;
use crate::{AuthError, Request};
use rowhouse_types::{Grant, QueueName, Service, StoredPolicy};

/// The signed fields as text; an empty one is as good as absent. The string to sign holds them verbatim.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueSasFields {
    /// `sv`, which selects the string to sign.
    pub version: String,
    /// The queue, which stands in the path.
    pub queue: String,
    /// `sp`: letters of `raup` in this order; empty if the stored policy says it.
    pub permissions: String,
    /// `st`
    pub start: String,
    /// `se`; empty if the stored policy says it.
    pub expiry: String,
    /// `si`
    pub policy_id: String,
    /// `sip`
    pub ip: String,
    /// `spr`
    pub protocol: String,
}

impl QueueSasFields {
    pub(crate) fn string_to_sign(&self, account: &str) -> String {
        let Self { version, queue, permissions, start, expiry, policy_id, ip, protocol } = self;
        let service = if version.as_str() >= sas::NAMED_SERVICE { "/queue" } else { "" };
        let restrictions = if version.as_str() >= sas::RESTRICTIONS {
            format!("{ip}\n{protocol}\n")
        } else {
            String::new()
        };
        format!(
            "{permissions}\n{start}\n{expiry}\n{service}/{account}/{queue}\n{policy_id}\n\
             {restrictions}{version}"
        )
    }
}

/// A shared access signature of one queue, well formed and not yet verified.
#[derive(Clone, Debug)]
pub struct QueueSas {
    fields: QueueSasFields,
    signature: Signature,
    stated: Stated,
    queue: QueueName,
}

impl QueueSas {
    pub(crate) fn parse(parameters: &Parameters<'_>, queue: &str) -> Result<Self, AuthError> {
        let name = queue.parse().map_err(|_| AuthError::Failed("the URL names no queue"))?;
        Ok(Self {
            stated: Stated::parse(parameters, Service::Queue)?,
            signature: Signature::parse(parameters.get("sig").unwrap_or_default())?,
            queue: name,
            fields: QueueSasFields {
                version: parameters.text("sv"),
                queue: queue.to_owned(),
                permissions: parameters.text("sp"),
                start: parameters.text("st"),
                expiry: parameters.text("se"),
                policy_id: parameters.text("si"),
                ip: parameters.text("sip"),
                protocol: parameters.text("spr"),
            },
        })
    }

    /// Accepts the signature if one of the keys made it for this queue of the account that the request addresses.
    pub fn verify(&self, request: &Request<'_>, keys: &[&[u8]]) -> Result<(), AuthError> {
        if self.signature.matches(keys, &self.string_to_sign(request)) {
            Ok(())
        } else {
            Err(AuthError::Signature)
        }
    }

    pub(crate) fn string_to_sign(&self, request: &Request<'_>) -> String {
        self.fields.string_to_sign(request.account)
    }

    /// The queue it is for.
    pub fn queue(&self) -> &QueueName {
        &self.queue
    }

    /// The stored access policy that says what the signature itself leaves open.
    pub fn policy_id(&self) -> Option<&str> {
        self.stated.policy_id()
    }

    /// The effective terms, given the stored policy of that id from the queue it is for.
    pub fn resolve(&self, policy: Option<&StoredPolicy>) -> Result<Terms, AuthError> {
        self.stated.resolve(policy)
    }

    /// What it allows under these terms, once it is verified and they are met.
    pub fn grant(&self, terms: &Terms) -> Grant {
        Grant::QueueSignature { queue: self.queue.clone(), permissions: terms.permissions }
    }
}
