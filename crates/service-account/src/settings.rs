//! Service properties as bytes. The store keeps them and does not know what they are.

use crate::error::AccountError;
use rowhouse_store::Account;
use rowhouse_types::{Service, ServiceProperties};
use serde::{Deserialize, Serialize};

/// The name of the setting that holds the properties of a service.
pub(crate) fn name(service: Service) -> &'static str {
    match service {
        Service::Table => "table-properties",
        Service::Queue => "queue-properties",
    }
}

/// The form that this release writes.
const VERSION: u32 = 1;

#[derive(Serialize)]
struct Written<'a> {
    version: u32,
    properties: &'a ServiceProperties,
}

#[derive(Deserialize)]
struct Version {
    version: u32,
}

#[derive(Deserialize)]
struct Read {
    properties: ServiceProperties,
}

/// The properties of a service; those of a new account if none were ever set.
pub(crate) fn properties(
    account: &Account,
    service: Service,
) -> Result<ServiceProperties, AccountError> {
    match account.settings.get(name(service)) {
        None => Ok(ServiceProperties::default()),
        Some(bytes) => decode(bytes).map_err(|what| {
            let (name, label) = (&account.name, service.label());
            AccountError::Corrupt(format!(
                "the {label} service properties of account {name} {what}"
            ))
        }),
    }
}

/// The version is read first: a form that we do not know may look like anything.
fn decode(bytes: &[u8]) -> Result<ServiceProperties, String> {
    let unreadable = |error: serde_json::Error| format!("do not decode: {error}");
    let Version { version } = serde_json::from_slice(bytes).map_err(unreadable)?;
    if version != VERSION {
        return Err(format!("have the form {version}, which a later release wrote"));
    }
    let Read { properties } = serde_json::from_slice(bytes).map_err(unreadable)?;
    Ok(properties)
}

pub(crate) fn encode(properties: &ServiceProperties) -> Box<[u8]> {
    let written = Written { version: VERSION, properties };
    serde_json::to_vec(&written).expect("plain data has a JSON form").into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The form on disk must not change: later releases read it.
    #[test]
    fn frozen_form() {
        let text = r#"{"version":1,"properties":{"logging":{"version":"1.0","read":false,"write":false,"delete":false,"retention_days":null},"hour_metrics":{"version":"1.0","enabled":true,"include_apis":true,"retention_days":7},"minute_metrics":{"version":"1.0","enabled":false,"include_apis":null,"retention_days":null},"cors":[]}}"#;
        let properties = ServiceProperties::default();
        assert_eq!(&*encode(&properties), text.as_bytes());
        assert_eq!(decode(text.as_bytes()), Ok(properties));
        assert_eq!(
            decode(br#"{"version":2}"#).unwrap_err(),
            "have the form 2, which a later release wrote"
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_answered(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = decode(&bytes);
        }
    }
}
