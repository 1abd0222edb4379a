//! An entity on its way from one place to another.

use rowhouse_types::{Corrupt, EntityKey, LimitExceeded, Record, Row, Timestamp};
use rowhouse_wire::entity::{self, EntityError};
use serde::Deserialize;
use serde_json::value::RawValue;

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

    /// Reads the JSON of one entity, as the service writes it or a file holds it.
    pub fn from_json(json: &[u8]) -> Result<Self, String> {
        let body = entity::read(json).map_err(|error| told(&error))?;
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
fn told(error: &EntityError) -> String {
    match error {
        EntityError::Syntax => {
            "not a flat JSON object, or a value that is not of the type it is said to have"
                .to_owned()
        }
        EntityError::Property { name, error } => format!("property {name:?}: {error}"),
        EntityError::DateOutOfRange { name, .. } => {
            format!("property {name:?}: a date before the year 1601")
        }
    }
}
