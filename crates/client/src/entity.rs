//! An entity on its way from one place to another.

use rowhouse_types::{Corrupt, EdmType, EntityKey, LimitExceeded, Record, Row, Timestamp};
use rowhouse_wire::entity::{self, EntityError};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// Keys and everything else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entity {
    /// PartitionKey.
    pub partition: Box<str>,
    /// RowKey.
    pub row: Box<str>,
    /// Properties and Timestamp; the least Timestamp if none is known.
    pub record: Record,
}

/// The members that are no properties.
#[derive(Deserialize)]
struct System {
    #[serde(rename = "Timestamp")]
    timestamp: Option<String>,
}

/// A page of entities, each still in JSON.
#[derive(Deserialize)]
pub(crate) struct PageBody<'a> {
    #[serde(borrow)]
    pub(crate) value: Vec<&'a RawValue>,
}

impl Entity {
    /// The same, borrowed.
    pub fn as_row(&self) -> Row<'_> {
        Row { partition: &self.partition, row: &self.row, record: self.record.as_ref() }
    }

    /// The names of its properties, without those that every entity has.
    pub fn names(&self) -> Vec<String> {
        let properties = self.record.as_ref().iter().flatten();
        properties.map(|property| property.name.to_owned()).collect()
    }

    /// Reads the JSON of one entity, as the service writes it or a file holds it.
    pub fn from_json(json: &[u8]) -> Result<Self, String> {
        let body = entity::read(json).map_err(|error| told(&error, json))?;
        let (Some(partition), Some(row)) = (body.partition, body.row) else {
            return Err("PartitionKey or RowKey is missing".to_owned());
        };
        if body.foreign_key {
            return Err("PartitionKey and RowKey must be texts".to_owned());
        }
        let mut record = body.record;
        let system: Option<System> = serde_json::from_slice(json).ok();
        let timestamp = system.and_then(|system| system.timestamp);
        if let Some(timestamp) = timestamp.and_then(|text| Timestamp::parse_iso(&text).ok()) {
            record.stamp(timestamp);
        }
        let this = Self { partition: partition.into(), row: row.into(), record };
        this.check()?;
        Ok(this)
    }

    /// Appends it as a JSON object: keys, properties with their types and, if wanted, the Timestamp.
    pub fn write_json(&self, out: &mut Vec<u8>, timestamp: bool) {
        entity::write_plain(out, &self.as_row(), timestamp)
            .expect("a record that was built from text is not corrupt");
    }

    /// The rules for keys and for the size of the whole.
    pub(crate) fn check(&self) -> Result<(), String> {
        EntityKey::new(&self.partition, &self.row).map_err(|error| format!("key: {error}"))?;
        let record = self.record.as_ref();
        match record.check_limits(&self.partition, &self.row) {
            Ok(None) => Ok(()),
            Ok(Some(LimitExceeded::Properties)) => Err("more than 252 properties".to_owned()),
            Ok(Some(LimitExceeded::Size)) => Err("larger than 1 MiB".to_owned()),
            Err(Corrupt(reason)) => Err(reason.to_owned()),
        }
    }

    /// The same but for the Timestamp, whatever the order of the properties.
    pub fn same_content(&self, other: &Self) -> bool {
        crate::digest::of(self) == crate::digest::of(other)
    }
}

/// What is wrong with the JSON of an entity, in plain words.
fn told(error: &EntityError, json: &[u8]) -> String {
    match error {
        EntityError::Syntax => blame(json),
        EntityError::Property { name, error } => format!("property {name:?}: {error}"),
        EntityError::DateOutOfRange { name, .. } => {
            format!("property {name:?}: a date before the year 1601")
        }
    }
}

/// What keeps a text from being an entity: that it is not JSON, or one of its members.
fn blame(json: &[u8]) -> String {
    let members: Map<String, Value> = match serde_json::from_slice(json) {
        Ok(members) => members,
        Err(error) if error.is_data() => return "not a JSON object".to_owned(),
        Err(error) => return format!("not JSON: {error}"),
    };
    for (name, value) in &members {
        let annotation = format!("{name}@odata.type");
        let alone: Map<_, _> = [name, &annotation]
            .into_iter()
            .filter_map(|member| Some((member.clone(), members.get(member)?.clone())))
            .collect();
        let text = serde_json::to_vec(&alone).expect("JSON can always be written");
        if entity::read(&text).is_ok() {
            continue;
        }
        return match members.get(&annotation) {
            Some(Value::String(edm_type)) if EdmType::from_name(edm_type).is_some() => {
                format!("property {name:?}: not a value of type {edm_type}")
            }
            Some(edm_type) => format!("property {name:?}: {edm_type} is not a type"),
            None if value.is_array() || value.is_object() => {
                format!("property {name:?}: a list or an object cannot be a value")
            }
            None => format!("property {name:?}: not a value that an entity can have"),
        };
    }
    "not an entity".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_named() {
        let cases = [
            ("", "not JSON: "),
            ("nonsense", "not JSON: "),
            ("[]", "not a JSON object"),
            ("7", "not a JSON object"),
            (r#"{"A":1}"#, "PartitionKey or RowKey is missing"),
            (r#"{"PartitionKey":1,"RowKey":""}"#, "must be texts"),
            (r#"{"PartitionKey":"a/b","RowKey":""}"#, "key: character '/'"),
            (r#"{"PartitionKey":"","RowKey":"","A":[1]}"#, "property \"A\": a list or an object"),
            (
                r#"{"PartitionKey":"","RowKey":"","A@odata.type":"Edm.Int32","A":"many","B":1}"#,
                "property \"A\": not a value of type Edm.Int32",
            ),
            (
                r#"{"PartitionKey":"","RowKey":"","A@odata.type":"Edm.Byte","A":"1"}"#,
                "property \"A\": \"Edm.Byte\" is not a type",
            ),
            (r#"{"PartitionKey":"","RowKey":"","a-b":1}"#, "property \"a-b\": "),
            (
                r#"{"PartitionKey":"","RowKey":"","A@odata.type":"Edm.DateTime","A":"1500-01-01T00:00:00Z"}"#,
                "before the year 1601",
            ),
        ];
        for (json, expected) in cases {
            let reason = Entity::from_json(json.as_bytes()).unwrap_err();
            assert!(reason.contains(expected), "{json}: {reason}");
        }
    }
}
