//! Shared access signatures of an account.

use crate::mac::Signature;
use crate::sas::{self, Parameters};
use crate::terms::{IpRange, Protocol, Terms};
use crate::{AuthError, Request};
use rowhouse_types::Grant;
use rowhouse_types::grant::{Letters, ResourceTypes, Services};

/// The signed fields as text; an empty one is as good as absent. The string to sign holds them verbatim.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccountSasFields {
    /// `sv`, which selects the string to sign.
    pub version: String,
    /// `ss`: letters of `bqtf`.
    pub services: String,
    /// `srt`: letters of `sco`.
    pub resource_types: String,
    /// `sp`, in any order.
    pub permissions: String,
    /// `st`
    pub start: String,
    /// `se`
    pub expiry: String,
    /// `sip`
    pub ip: String,
    /// `spr`
    pub protocol: String,
    /// `ses`, signed from version 2020-12-06 on.
    pub encryption_scope: String,
}

impl AccountSasFields {
    /// Unlike in other signatures, the last field too ends with a line break.
    pub(crate) fn string_to_sign(&self, account: &str) -> String {
        let Self { version, services, resource_types, permissions, start, expiry, .. } = self;
        let Self { ip, protocol, encryption_scope, .. } = self;
        let mut text = format!(
            "{account}\n{permissions}\n{services}\n{resource_types}\n{start}\n{expiry}\n{ip}\n\
             {protocol}\n{version}\n"
        );
        if version.as_str() >= sas::ENCRYPTION_SCOPE {
            text.push_str(encryption_scope);
            text.push('\n');
        }
        text
    }
}

/// A shared access signature of an account, well formed and not yet verified.
#[derive(Clone, Debug)]
pub struct AccountSas {
    fields: AccountSasFields,
    signature: Signature,
    /// `ss`: which services it covers.
    pub services: Letters,
    /// `srt`: which kinds of resource it covers.
    pub resource_types: ResourceTypes,
    terms: Terms,
}

impl AccountSas {
    pub(crate) fn parse(parameters: &Parameters<'_>) -> Result<Self, AuthError> {
        let fields = AccountSasFields {
            version: parameters.text("sv"),
            services: parameters.text("ss"),
            resource_types: parameters.text("srt"),
            permissions: parameters.text("sp"),
            start: parameters.text("st"),
            expiry: parameters.text("se"),
            ip: parameters.text("sip"),
            protocol: parameters.text("spr"),
            encryption_scope: parameters.text("ses"),
        };
        sas::check_version(&fields.version, sas::RESTRICTIONS)?;
        let subset =
            |text: &str, of: &str| !text.is_empty() && text.chars().all(|c| of.contains(c));
        if !subset(&fields.services, "bqtf") || !subset(&fields.resource_types, "sco") {
            return Err(AuthError::Failed("the signed services or resource types are unknown"));
        }
        if fields.permissions.is_empty() {
            return Err(AuthError::Failed("the signature has no permissions"));
        }
        let has = |letter| fields.resource_types.contains(letter);
        let expiry = sas::parse_time(&fields.expiry)?;
        Ok(Self {
            services: Letters::new(&fields.services),
            resource_types: ResourceTypes {
                service: has('s'),
                container: has('c'),
                object: has('o'),
            },
            terms: Terms {
                start: sas::parse_time(&fields.start)?,
                expiry: expiry.ok_or(AuthError::Failed("the signature has no expiry"))?,
                permissions: Letters::new(&fields.permissions),
                ip: IpRange::parse(&fields.ip)?,
                protocol: Protocol::parse(&fields.protocol)?,
            },
            signature: Signature::parse(parameters.get("sig").unwrap_or_default())?,
            fields,
        })
    }

    /// Accepts the signature if one of the keys made it for the account that the request addresses.
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

    /// When, from where and over what it holds.
    pub fn terms(&self) -> Terms {
        self.terms
    }

    /// What it allows, once it is verified and its terms are met.
    pub fn grant(&self) -> Grant {
        Grant::AccountSignature {
            services: Services { table: self.services.has('t'), queue: self.services.has('q') },
            resource_types: self.resource_types,
            permissions: self.terms.permissions,
        }
    }
}
