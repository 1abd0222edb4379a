//! When entities expire, as JSON.

use super::error::Failure;
use rowhouse_service_table::Ttl;
use rowhouse_types::{check_property_name, limits};
use serde::Deserialize;
use serde_json::{Value, json};
use std::time::Duration;

const BODY: &str =
    "The body must be a JSON object with 'seconds', a number, or 'property', a name, or both.";
const SECONDS: &str = "Entities expire at least 1 and at most 3155760000 seconds after their Timestamp; after what a \
    property says, 0 seconds or more.";
const PROPERTY: &str = "The property is no name that a property can have, or a key.";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    seconds: Option<u64>,
    property: Option<Box<str>>,
}

/// The body that says when entities expire.
pub(crate) fn read(body: &[u8]) -> Result<Ttl, Failure> {
    let body: Body = serde_json::from_slice(body).map_err(|_| Failure::Setting(BODY))?;
    // What every entity has needs no name.
    let property = body.property.filter(|name| **name != *"Timestamp");
    if let Some(name) = &property
        && (check_property_name(name).is_err() || matches!(&**name, "PartitionKey" | "RowKey"))
    {
        return Err(Failure::Setting(PROPERTY));
    }
    let (seconds, least) = match (body.seconds, &property) {
        (None, None) => return Err(Failure::Setting(BODY)),
        (seconds, Some(_)) => (seconds.unwrap_or(0), 0),
        (Some(seconds), None) => (seconds, 1),
    };
    if seconds < least || limits::TTL_SECONDS_MAX < seconds {
        return Err(Failure::Setting(SECONDS));
    }
    Ok(Ttl { property, after: Duration::from_secs(seconds) })
}

/// What is told of it.
pub(crate) fn write(ttl: Option<&Ttl>) -> Value {
    match ttl {
        None => json!({ "expires": false }),
        Some(Ttl { property, after }) => json!({
            "expires": true,
            "seconds": after.as_secs(),
            "property": property,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings() {
        let read = |body: &str| match read(body.as_bytes()) {
            Ok(Ttl { property, after }) => format!("{property:?} {}", after.as_secs()),
            Err(Failure::Setting(sentence)) => sentence.to_owned(),
            Err(other) => format!("{other:?}"),
        };
        for (body, expected) in [
            (r#"{"seconds":60}"#, "None 60"),
            (r#"{"seconds":60,"property":"Timestamp"}"#, "None 60"),
            (r#"{"property":"Until"}"#, r#"Some("Until") 0"#),
            (r#"{"property":"Until","seconds":5}"#, r#"Some("Until") 5"#),
            (r#"{"property":null,"seconds":3155760000}"#, "None 3155760000"),
            (r#"{"seconds":0}"#, SECONDS),
            (r#"{"seconds":3155760001}"#, SECONDS),
            (r#"{"property":"Until","seconds":18446744073709551615}"#, SECONDS),
            (r#"{"property":"RowKey"}"#, PROPERTY),
            (r#"{"property":"a-b"}"#, PROPERTY),
            (r#"{"property":""}"#, PROPERTY),
            (r#"{"property":"Timestamp"}"#, BODY),
            (r#"{"seconds":-1}"#, BODY),
            (r#"{"seconds":1.5}"#, BODY),
            (r#"{"seconds":60,"secs":1}"#, BODY),
            ("{}", BODY),
            ("", BODY),
        ] {
            assert_eq!(read(body), expected, "{body}");
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        let ttl = Ttl { property: Some("Until".into()), after: Duration::from_secs(7) };
        let text = write(Some(&ttl)).to_string();
        assert_eq!(text, r#"{"expires":true,"property":"Until","seconds":7}"#);
        assert_eq!(write(None).to_string(), r#"{"expires":false}"#);
    }
}
