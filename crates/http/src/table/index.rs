//! Secondary indexes as JSON: what declares one, and what is told of them.

use super::error::Failure;
use rowhouse_service_table::{IndexState, IndexView, NewIndex};
use rowhouse_types::{IndexName, check_property_name, limits};
use serde::Deserialize;
use serde_json::{Value, json};

const BODY: &str = "The body must be a JSON object with 'properties', a list of names, and may have 'name', a \
    text, and 'unique', true or false.";
const PROPERTIES: &str = "An index has one to four properties, none twice.";
const PROPERTY: &str = "One of the properties is no name that a property can have.";
const NAME: &str = "The name of an index is 1 to 63 letters, digits, hyphens and underscores, the first a letter \
    or a digit.";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    name: Option<String>,
    properties: Vec<Box<str>>,
    #[serde(default)]
    unique: bool,
}

/// The body that declares an index.
pub(crate) fn read_create(body: &[u8]) -> Result<NewIndex, Failure> {
    let body: Body = serde_json::from_slice(body).map_err(|_| Failure::Setting(BODY))?;
    let Body { name, properties, unique } = body;
    let name = name.as_deref().map(self::name).transpose()?;
    let repeated = (1..properties.len()).any(|at| properties[..at].contains(&properties[at]));
    if properties.is_empty() || limits::INDEX_PROPERTIES_MAX < properties.len() || repeated {
        return Err(Failure::Setting(PROPERTIES));
    }
    if properties.iter().any(|property| check_property_name(property).is_err()) {
        return Err(Failure::Setting(PROPERTY));
    }
    Ok(NewIndex { name, properties, unique })
}

/// The name of an index.
pub(crate) fn name(text: &str) -> Result<IndexName, Failure> {
    IndexName::new(text).map_err(|_| Failure::Setting(NAME))
}

/// One index.
pub(crate) fn write(index: &IndexView) -> Value {
    let state = match index.state {
        IndexState::Building => "building",
        IndexState::Ready => "ready",
        IndexState::NotUnique => "notUnique",
    };
    json!({
        "name": index.name.as_str(),
        "properties": index.properties,
        "unique": index.unique,
        "state": state,
        "examined": index.examined,
        "of": index.of,
    })
}

/// All of them.
pub(crate) fn write_list(indexes: &[IndexView]) -> Value {
    json!({ "value": indexes.iter().map(write).collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions() {
        let read = |body: &str| match read_create(body.as_bytes()) {
            Ok(NewIndex { name, properties, unique }) => {
                let name = name.map(|name| name.as_str().to_owned()).unwrap_or_default();
                format!("{name}:{}:{unique}", properties.join(","))
            }
            Err(Failure::Setting(sentence)) => sentence.to_owned(),
            Err(other) => format!("{other:?}"),
        };
        let long = "p".repeat(256);
        let cases: &[(&str, &str)] = &[
            (r#"{"properties":["Email"]}"#, ":Email:false"),
            (
                r#"{"properties":["A","Timestamp"],"unique":true,"name":"x-1"}"#,
                "x-1:A,Timestamp:true",
            ),
            (r#"{"properties":["A"],"name":null}"#, ":A:false"),
            (r#"{"properties":[]}"#, PROPERTIES),
            (r#"{"properties":["A","A"]}"#, PROPERTIES),
            (r#"{"properties":["A","B","C","D","E"]}"#, PROPERTIES),
            (r#"{"properties":["a-b"]}"#, PROPERTY),
            (&format!(r#"{{"properties":["{long}"]}}"#), PROPERTY),
            (r#"{"properties":["A"],"name":""}"#, NAME),
            (r#"{"properties":["A"],"name":"a b"}"#, NAME),
            (r#"{"properties":"A"}"#, BODY),
            (r#"{"properties":["A"],"properties":["B"]}"#, BODY),
            (r#"{"properties":["A"],"uniqe":true}"#, BODY),
            (r#"{"properties":[["A"]]}"#, BODY),
            ("{}", BODY),
            ("", BODY),
        ];
        for (body, expected) in cases {
            assert_eq!(read(body), *expected, "{body}");
        }
    }
}
