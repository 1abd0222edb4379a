//! How many tables and queues an account may have: its own limits as a setting, those of the server without.

use crate::error::AccountError;
use rowhouse_store::Account;
use rowhouse_types::limits;
use serde::{Deserialize, Serialize};

/// The name of the setting.
pub(crate) const NAME: &str = "limits";

/// The form that this release writes.
const VERSION: u32 = 1;

/// How many tables and queues an account may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccountLimits {
    /// Tables.
    pub tables: u64,
    /// Queues.
    pub queues: u64,
}

impl Default for AccountLimits {
    fn default() -> Self {
        Self { tables: limits::TABLES_PER_ACCOUNT_MAX, queues: limits::QUEUES_PER_ACCOUNT_MAX }
    }
}

/// What was set for an account alone. What was not follows the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnLimits {
    /// Tables.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tables: Option<u64>,
    /// Queues.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub queues: Option<u64>,
}

impl OwnLimits {
    /// What holds for an account with these limits on a server with those.
    pub fn or(self, server: AccountLimits) -> AccountLimits {
        AccountLimits {
            tables: self.tables.unwrap_or(server.tables),
            queues: self.queues.unwrap_or(server.queues),
        }
    }
}

#[derive(Serialize)]
struct Written {
    version: u32,
    limits: OwnLimits,
}

#[derive(Deserialize)]
struct Version {
    version: u32,
}

#[derive(Deserialize)]
struct Read {
    limits: OwnLimits,
}

/// The limits of an account; none if none were ever set.
pub(crate) fn of(account: &Account) -> Result<OwnLimits, AccountError> {
    match account.settings.get(NAME) {
        None => Ok(OwnLimits::default()),
        Some(bytes) => decode(bytes).map_err(|what| {
            AccountError::Corrupt(format!("the limits of account {} {what}", account.name))
        }),
    }
}

fn decode(bytes: &[u8]) -> Result<OwnLimits, String> {
    let unreadable = |error: serde_json::Error| format!("do not decode: {error}");
    let Version { version } = serde_json::from_slice(bytes).map_err(unreadable)?;
    if version != VERSION {
        return Err(format!("have the form {version}, which a later release wrote"));
    }
    let Read { limits } = serde_json::from_slice(bytes).map_err(unreadable)?;
    Ok(limits)
}

pub(crate) fn encode(limits: OwnLimits) -> Box<[u8]> {
    let written = Written { version: VERSION, limits };
    serde_json::to_vec(&written).expect("plain data has a JSON form").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The form on disk must not change: later releases read it.
    #[test]
    fn frozen_form() {
        let cases = [
            (None, None, r#"{"version":1,"limits":{}}"#),
            (Some(7), None, r#"{"version":1,"limits":{"tables":7}}"#),
            (Some(7), Some(0), r#"{"version":1,"limits":{"tables":7,"queues":0}}"#),
        ];
        for (tables, queues, text) in cases {
            let limits = OwnLimits { tables, queues };
            assert_eq!(&*encode(limits), text.as_bytes());
            assert_eq!(decode(text.as_bytes()), Ok(limits));
        }
        for bad in ["", "[]", r#"{"version":2}"#, r#"{"version":1}"#] {
            assert!(decode(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
