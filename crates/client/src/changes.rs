//! What the change feed of a Rowhouse service tells. Azure and Azurite have none.

use crate::client::{Client, Query};
use crate::entity::Entity;
use crate::error::ClientError;
use crate::range;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::collections::{HashMap, HashSet};

/// Most keys, and about how many bytes of a filter, that are asked for at once.
const KEYS_MAX: usize = 50;
const FILTER_BYTES: usize = 3000;

/// Some changes in order, and where to go on.
#[derive(Debug, Deserialize)]
pub struct ChangesPage {
    /// Each as the service wrote it: an object with `sequence`, `change` and `entity`.
    #[serde(rename = "value")]
    pub changes: Vec<Box<RawValue>>,
    /// The token of the place after them.
    pub next: String,
    /// Whether there was more already.
    pub more: bool,
}

/// What became of an entity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    /// All of it, or its keys if it is gone; and when.
    pub(crate) entity: Entity,
    pub(crate) gone: bool,
}

#[derive(Deserialize)]
struct Told<'a> {
    change: &'a str,
    #[serde(borrow)]
    entity: &'a RawValue,
}

impl Change {
    fn read(json: &RawValue) -> Result<Self, String> {
        let told: Told<'_> = serde_json::from_str(json.get()).map_err(|error| error.to_string())?;
        let entity = Entity::from_json(told.entity.get().as_bytes())?;
        match told.change {
            "put" => Ok(Self { entity, gone: false }),
            "delete" => Ok(Self { entity, gone: true }),
            other => Err(format!("{other:?} is not a change that this version knows")),
        }
    }
}

impl ChangesPage {
    /// What the changes come to: the last one of each entity, in the order in which they were made.
    pub(crate) fn outcome(&self) -> Result<Vec<Change>, String> {
        let mut seen = HashSet::new();
        let mut last = Vec::new();
        for json in self.changes.iter().rev() {
            let change = Change::read(json)?;
            if seen.insert((change.entity.partition.clone(), change.entity.row.clone())) {
                last.push(change);
            }
        }
        last.reverse();
        Ok(last)
    }
}

/// Keeps the changes after which nothing has happened to their entities. Of an entity whose change is left out, the
/// feed has a later one.
pub(crate) async fn still_true(
    source: &Client,
    table: &str,
    mut changes: Vec<Change>,
) -> Result<Vec<Change>, ClientError> {
    let mut there = HashMap::new();
    let mut waiting = changes.as_slice();
    while !waiting.is_empty() {
        let (count, filter) = points(waiting);
        waiting = &waiting[count..];
        let query = Query {
            filter: Some(filter),
            select: Some("PartitionKey,RowKey,Timestamp".to_owned()),
            top: None,
            order: None,
        };
        let mut place = None;
        loop {
            let page = source.page(table, &query, place.as_ref()).await?;
            for Entity { partition, row, record } in page.entities {
                there.insert((partition, row), record.as_ref().timestamp());
            }
            place = page.next;
            if place.is_none() {
                break;
            }
        }
    }
    changes.retain(|Change { entity, gone }| {
        let now = there.get(&(entity.partition.clone(), entity.row.clone()));
        match now {
            Some(now) => !gone && *now == entity.record.as_ref().timestamp(),
            None => *gone,
        }
    });
    Ok(changes)
}

/// A filter for the entities of the first changes, and of how many.
fn points(changes: &[Change]) -> (usize, String) {
    let mut filter = String::new();
    let mut count = 0;
    for Change { entity, .. } in changes.iter().take(KEYS_MAX) {
        let point = range::point(&entity.partition, &entity.row);
        if count > 0 {
            if FILTER_BYTES < filter.len() + point.len() {
                break;
            }
            filter.push_str(" or ");
        }
        filter.push_str(&point);
        count += 1;
    }
    (count, filter)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rowhouse_types::Timestamp;

    fn page(changes: &[&str]) -> ChangesPage {
        let changes = changes.join(",");
        let body =
            format!(r#"{{"odata.metadata":"m","value":[{changes}],"next":"1!0!","more":false}}"#);
        serde_json::from_str(&body).unwrap()
    }

    #[test]
    fn an_answer_is_kept_as_it_was_written() {
        let change = r#"{"sequence":"1","change":"put","entity":{"Big":"5","Half":0.50}}"#;
        let page = page(&[change]);
        assert_eq!(page.changes[0].get(), change);
        assert_eq!((page.next.as_str(), page.more), ("1!0!", false));
    }

    #[test]
    fn the_last_change_of_an_entity_counts() {
        let put = |row: &str, value: u32| {
            format!(
                r#"{{"sequence":"1","change":"put","entity":{{"PartitionKey":"p","RowKey":"{row}","A":{value}}}}}"#
            )
        };
        let gone = r#"{"sequence":"3","change":"delete","entity":{"PartitionKey":"p","RowKey":"b","Timestamp":"2020-01-01T00:00:00Z"}}"#;
        let page = page(&[&put("a", 1), &put("b", 1), &put("c", 1), gone, &put("a", 2)]);
        let outcome = page.outcome().unwrap();
        let told: Vec<_> =
            outcome.iter().map(|change| (&*change.entity.row, change.gone)).collect();
        assert_eq!(told, [("c", false), ("b", true), ("a", false)]);
        assert_eq!(outcome[2].entity.record.as_ref().iter().count(), 1);
        let at = Timestamp::parse_iso("2020-01-01T00:00:00Z").unwrap();
        assert_eq!(outcome[1].entity.record.as_ref().timestamp(), at);
    }

    #[test]
    fn what_is_not_known_is_not_passed_over() {
        let change = r#"{"change":"rename","entity":{"PartitionKey":"p","RowKey":"b"}}"#;
        assert!(page(&[change]).outcome().unwrap_err().contains("rename"));
    }

    #[test]
    fn filters_stay_short() {
        let change = |row: String| Change {
            entity: Entity::from_json(
                format!(r#"{{"PartitionKey":"it's","RowKey":"{row}"}}"#).as_bytes(),
            )
            .unwrap(),
            gone: true,
        };
        let short: Vec<_> = (0..80).map(|n| change(n.to_string())).collect();
        let (count, filter) = points(&short);
        assert_eq!(filter.matches("RowKey eq").count(), count);
        assert!((30..=KEYS_MAX).contains(&count) && filter.len() <= FILTER_BYTES, "{count}");
        assert!(filter.starts_with("(PartitionKey eq 'it''s' and RowKey eq '0') or "), "{filter}");
        let long: Vec<_> = (0..3).map(|n| change(format!("{n}{}", "x".repeat(1000)))).collect();
        assert_eq!(points(&long).0, 2);
        let (count, filter) = points(&short[..1]);
        assert_eq!((count, filter.contains(" or ")), (1, false));
    }
}
