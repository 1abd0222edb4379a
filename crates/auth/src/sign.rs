//! The signing side: what a client does, for tests, tools and our own client.
//!
//! Signs what it is given and judges nothing; that is for the verifying side.

use crate::canonical::Blanks;
use crate::mac::sign;
use crate::shared_key::{signed_date, string_to_sign};
use crate::{AccountSasFields, AuthError, QueueSasFields, Request, Scheme, TableSasFields};
use std::fmt;

/// The value of the `Authorization` header for a request. Fails if it has no date.
pub fn shared_key(request: &Request<'_>, scheme: Scheme, key: &[u8]) -> Result<String, AuthError> {
    let date = signed_date(request)?;
    let text = string_to_sign(scheme, request, date, request.path, Blanks::Reduced)?;
    let signature = sign(key, &text);
    let word = match scheme {
        Scheme::SharedKey => "SharedKey",
        Scheme::SharedKeyLite => "SharedKeyLite",
    };
    Ok(format!("{word} {}:{signature}", request.account))
}

/// A shared access signature of an account.
pub fn account_sas(account: &str, key: &[u8], fields: &AccountSasFields) -> SasToken {
    let signature = sign(key, &fields.string_to_sign(account));
    SasToken::new([
        ("sv", Some(&fields.version)),
        ("ss", Some(&fields.services)),
        ("srt", Some(&fields.resource_types)),
        ("sp", Some(&fields.permissions)),
        ("st", given(&fields.start)),
        ("se", Some(&fields.expiry)),
        ("sip", given(&fields.ip)),
        ("spr", given(&fields.protocol)),
        ("ses", given(&fields.encryption_scope)),
        ("sig", Some(&signature)),
    ])
}

/// A shared access signature of a table.
pub fn table_sas(account: &str, key: &[u8], fields: &TableSasFields) -> SasToken {
    let signature = sign(key, &fields.string_to_sign(account));
    SasToken::new([
        ("sv", Some(&fields.version)),
        ("tn", Some(&fields.table)),
        ("si", given(&fields.policy_id)),
        ("sp", given(&fields.permissions)),
        ("st", given(&fields.start)),
        ("se", given(&fields.expiry)),
        ("sip", given(&fields.ip)),
        ("spr", given(&fields.protocol)),
        ("spk", fields.start_partition.as_ref()),
        ("srk", fields.start_row.as_ref()),
        ("epk", fields.end_partition.as_ref()),
        ("erk", fields.end_row.as_ref()),
        ("sig", Some(&signature)),
    ])
}

/// A shared access signature of a queue.
pub fn queue_sas(account: &str, key: &[u8], fields: &QueueSasFields) -> SasToken {
    let signature = sign(key, &fields.string_to_sign(account));
    SasToken::new([
        ("sv", Some(&fields.version)),
        ("si", given(&fields.policy_id)),
        ("sp", given(&fields.permissions)),
        ("st", given(&fields.start)),
        ("se", given(&fields.expiry)),
        ("sip", given(&fields.ip)),
        ("spr", given(&fields.protocol)),
        ("sig", Some(&signature)),
    ])
}

fn given(text: &String) -> Option<&String> {
    Some(text).filter(|text| !text.is_empty())
}

/// The query parameters of a shared access signature. Prints as they stand in a URL, encoded.
#[derive(Clone)]
pub struct SasToken(Vec<(&'static str, String)>);

impl SasToken {
    fn new<const N: usize>(fields: [(&'static str, Option<&String>); N]) -> Self {
        let given = fields.into_iter();
        Self(given.filter_map(|(name, value)| Some((name, value?.clone()))).collect())
    }

    /// Names and values, not encoded.
    pub fn pairs(&self) -> &[(&'static str, String)] {
        &self.0
    }
}

impl fmt::Display for SasToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (name, value)) in self.0.iter().enumerate() {
            write!(f, "{}{name}=", if index == 0 { "" } else { "&" })?;
            for &byte in value.as_bytes() {
                if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
                    write!(f, "{}", char::from(byte))?;
                } else {
                    write!(f, "%{byte:02X}")?;
                }
            }
        }
        Ok(())
    }
}
