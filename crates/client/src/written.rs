//! Entities as the service wrote them, with the order of their properties and their types, for people to look at.

use crate::client::Place;
use serde::de::{MapAccess, Visitor};
use serde::ser::SerializeMap as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use std::fmt;

/// What stands behind the name of a property in the name of the member that says its type.
const TYPE: &str = "@odata.type";

/// A page of a query.
#[derive(Debug)]
pub struct WrittenPage {
    /// The entities; may be none although there are more.
    pub entities: Vec<WrittenEntity>,
    /// Nothing at the end.
    pub next: Option<Place>,
    /// How the service read it, if it says so: Rowhouse does.
    pub plan: Option<String>,
}

#[derive(Deserialize)]
pub(crate) struct WrittenBody {
    pub(crate) value: Vec<WrittenEntity>,
}

/// The members of an entity in the order in which they were written, without those of the protocol.
#[derive(Clone, Debug, PartialEq)]
pub struct WrittenEntity(Vec<(String, Value)>);

/// A value with what the service says of its type: nothing where JSON says it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WrittenValue<'a> {
    /// In JSON.
    pub value: &'a Value,
    /// Such as `Edm.Int64`.
    pub edm: Option<&'a str>,
}

impl WrittenEntity {
    /// The properties, in order.
    pub fn properties(&self) -> impl Iterator<Item = (&str, WrittenValue<'_>)> {
        let properties = self.0.iter().filter(|(name, _)| !name.ends_with(TYPE));
        properties.map(|(name, value)| (name.as_str(), WrittenValue { value, edm: self.edm(name) }))
    }

    fn edm(&self, name: &str) -> Option<&str> {
        let is_type = |member: &str| member.strip_suffix(TYPE) == Some(name);
        self.0.iter().find(|(member, _)| is_type(member)).and_then(|(_, edm)| edm.as_str())
    }
}

/// In the form in which exports have entities.
impl Serialize for WrittenEntity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for WrittenEntity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = WrittenEntity;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an entity")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<WrittenEntity, A::Error> {
                let mut members = Vec::new();
                while let Some((name, value)) = map.next_entry::<String, Value>()? {
                    if !name.starts_with("odata.") {
                        members.push((name, value));
                    }
                }
                Ok(WrittenEntity(members))
            }
        }
        deserializer.deserialize_map(Members)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_and_types_stay() {
        let json = r#"{"odata.etag":"x","PartitionKey":"p","Zeta":1,"Big@odata.type":"Edm.Int64","Big":"5"}"#;
        let entity: WrittenEntity = serde_json::from_str(json).unwrap();
        let found: Vec<_> = entity.properties().map(|(name, value)| (name, value.edm)).collect();
        assert_eq!(found, [("PartitionKey", None), ("Zeta", None), ("Big", Some("Edm.Int64"))]);
        let written = serde_json::to_string(&entity).unwrap();
        assert_eq!(written, json.replace(r#""odata.etag":"x","#, ""));
    }
}
