//! Writes many entities, in batches where that is possible, and leaves out only what cannot be written.

use crate::batch::{self, Operation};
use crate::client::{Client, Query, Write};
use crate::entity::Entity;
use crate::error::{ClientError, ServiceError};
use crate::progress::Progress;
use crate::range;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use tokio::task::JoinSet;

/// After so many refusals of a batch its entities are sent one by one.
const REFUSALS_MAX: usize = 3;
/// Pages that are read to find out which keys of a batch are taken.
const SETTLING_PAGES_MAX: usize = 3;
/// What the service says of keys that are taken.
const TAKEN: &str = "EntityAlreadyExists";

/// What happens to an entity whose keys are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnConflict {
    /// It is refused, unless what is there is exactly the same.
    Fail,
    /// What is there stays.
    Skip,
    /// What is there is replaced.
    Replace,
    /// What is there keeps the properties that the new one does not have.
    Merge,
}

impl OnConflict {
    fn write(self) -> Write {
        match self {
            Self::Fail | Self::Skip => Write::Insert,
            Self::Replace => Write::Replace,
            Self::Merge => Write::Merge,
        }
    }
}

/// An entity with its table and its number in the input.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub(crate) table: Arc<str>,
    pub(crate) number: u64,
    pub(crate) entity: Entity,
}

impl Item {
    fn refused(&self, reason: String) -> Loaded {
        let Self { table, number, entity } = self;
        let refused = Refused {
            number: *number,
            reason,
            table: Some(table.to_string()),
            partition: Some(entity.partition.to_string()),
            row: Some(entity.row.to_string()),
        };
        Loaded { refused: vec![refused], ..Loaded::default() }
    }
}

/// An entity that was not written, or a row that is none.
///
/// The order of the first two is that of older files of progress, which have nothing else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// The line on which the row starts; in Azurite's file its place among the entities.
    pub number: u64,
    /// Why it was not written.
    pub reason: String,
    /// Its table, if that is known.
    #[serde(default)]
    pub table: Option<String>,
    /// Its PartitionKey, as far as that can be read.
    #[serde(default)]
    pub partition: Option<String>,
    /// Its RowKey, as far as that can be read.
    #[serde(default)]
    pub row: Option<String>,
}

/// What came of some entities.
#[derive(Debug, Default)]
pub(crate) struct Loaded {
    pub(crate) written: u64,
    /// Were there already, exactly so.
    pub(crate) present: u64,
    pub(crate) skipped: u64,
    pub(crate) refused: Vec<Refused>,
}

impl Loaded {
    fn add(&mut self, other: Self) {
        self.written += other.written;
        self.present += other.present;
        self.skipped += other.skipped;
        self.refused.extend(other.refused);
    }
}

/// Writes to one service in one way.
#[derive(Clone, Debug)]
pub(crate) struct Loader {
    pub(crate) client: Client,
    pub(crate) on_conflict: OnConflict,
    /// Told of every entity that is done.
    pub(crate) progress: Arc<Progress>,
}

impl Loader {
    /// Writes all of them, no key twice among them, so many batches at a time.
    pub(crate) async fn load(&self, items: Vec<Item>, jobs: usize) -> Result<Loaded, ClientError> {
        let mut waiting = groups(items).into_iter();
        let mut running = JoinSet::new();
        let mut all = Loaded::default();
        loop {
            while running.len() < jobs.max(1) {
                let Some(group) = waiting.next() else { break };
                let this = self.clone();
                running.spawn(async move {
                    let rows = group.len() as u64;
                    let loaded = this.load_group(group).await?;
                    this.progress.add(rows);
                    this.progress.add_refused(loaded.refused.len() as u64);
                    Ok::<_, ClientError>(loaded)
                });
            }
            match running.join_next().await {
                Some(done) => all.add(done.expect("a task that writes does not panic")?),
                None => return Ok(all),
            }
        }
    }

    /// Writes entities of one partition that fit into a batch.
    async fn load_group(&self, mut items: Vec<Item>) -> Result<Loaded, ClientError> {
        let mut all = Loaded::default();
        let mut refusals = 0;
        while items.len() > 1 && refusals < REFUSALS_MAX {
            let write = self.on_conflict.write();
            let operations: Vec<_> =
                items.iter().map(|item| Operation::Write(write, &item.entity)).collect();
            let error = match self.client.batch(&items[0].table, &operations).await {
                Ok(()) => {
                    all.written += items.len() as u64;
                    return Ok(all);
                }
                Err(ClientError::Service(error)) if is_about_entities(&error) => error,
                Err(error) => return Err(error),
            };
            refusals += 1;
            if error.status == 413 || error.code == "RequestBodyTooLarge" {
                let rest = items.split_off(items.len() / 2);
                all.add(Box::pin(self.load_group(items)).await?);
                items = rest;
                continue;
            }
            if error.code == TAKEN && self.settle(&mut items, &mut all).await? {
                continue;
            }
            match error.index.filter(|&index| index < items.len()) {
                Some(index) => all.add(self.load_one(&items.remove(index)).await?),
                None => break,
            }
        }
        for item in &items {
            all.add(self.load_one(item).await?);
        }
        Ok(all)
    }

    /// Takes out of entities of one partition those whose keys are taken, with few questions. False if that
    /// brought nothing.
    async fn settle(&self, items: &mut Vec<Item>, all: &mut Loaded) -> Result<bool, ClientError> {
        let rows = || items.iter().map(|item| &*item.entity.row);
        let (Some(first), Some(last)) = (rows().min(), rows().max()) else { return Ok(false) };
        let query = Query {
            filter: Some(range::span(&items[0].entity.partition, first, last)),
            select: self.needs_keys_only().then(|| "PartitionKey,RowKey".to_owned()),
            top: None,
            order: None,
        };
        let (mut place, mut there) = (None, HashMap::new());
        for _ in 0..SETTLING_PAGES_MAX {
            let page = self.client.page(&items[0].table, &query, place.as_ref()).await?;
            there.extend(page.entities.into_iter().map(|found| (found.row.clone(), found)));
            place = page.next;
            if place.is_none() {
                break;
            }
        }
        let before = items.len();
        items.retain(|item| match there.get(&item.entity.row) {
            Some(found) => {
                all.add(self.taken(item, found));
                false
            }
            None => true,
        });
        Ok(items.len() < before)
    }

    fn needs_keys_only(&self) -> bool {
        self.on_conflict == OnConflict::Skip
    }

    /// What comes of an entity whose keys another one has.
    fn taken(&self, item: &Item, found: &Entity) -> Loaded {
        if self.needs_keys_only() {
            return Loaded { skipped: 1, ..Loaded::default() };
        }
        if found.same_content(&item.entity) {
            return Loaded { present: 1, ..Loaded::default() };
        }
        item.refused("another entity with these keys is there already".to_owned())
    }

    async fn load_one(&self, item: &Item) -> Result<Loaded, ClientError> {
        let Item { table, entity, .. } = item;
        match self.client.write(table, self.on_conflict.write(), entity).await {
            Ok(()) => Ok(Loaded { written: 1, ..Loaded::default() }),
            Err(ClientError::Service(error)) if error.code == TAKEN => {
                match self.client.get(table, &entity.partition, &entity.row).await? {
                    Some(found) => Ok(self.taken(item, &found)),
                    None => Ok(item.refused(error.to_string())),
                }
            }
            Err(ClientError::Service(error)) if is_about_entities(&error) => {
                Ok(item.refused(error.to_string()))
            }
            Err(error) => Err(error),
        }
    }
}

/// Whether an entity is to blame, not the table, the credentials or the service.
pub(crate) fn is_about_entities(error: &ServiceError) -> bool {
    let table = ["TableBeingDeleted", "InvalidResourceName", "TableNotFound"];
    matches!(error.status, 400 | 409 | 412 | 413) && !table.contains(&error.code.as_str())
}

/// Entities of the same table and partition together, as many as fit into a batch.
fn groups(items: Vec<Item>) -> Vec<Vec<Item>> {
    let mut partitions: Vec<Vec<Item>> = Vec::new();
    let mut places: HashMap<_, usize> = HashMap::new();
    for item in items {
        match places.entry((item.table.clone(), item.entity.partition.clone())) {
            Entry::Occupied(place) => partitions[*place.get()].push(item),
            Entry::Vacant(place) => {
                place.insert(partitions.len());
                partitions.push(vec![item]);
            }
        }
    }
    let mut groups = Vec::new();
    for mut partition in partitions {
        while !partition.is_empty() {
            let count = batch::fitting(partition.iter().map(|item| &item.entity));
            let rest = partition.split_off(count);
            groups.push(std::mem::replace(&mut partition, rest));
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Progress that an older version has kept.
    #[test]
    fn refusals_may_have_only_number_and_reason() {
        let old: Refused = serde_json::from_str(r#"[8,"not JSON"]"#).unwrap();
        assert_eq!((old.number, old.reason.as_str()), (8, "not JSON"));
        assert_eq!((&old.table, &old.partition, &old.row), (&None, &None, &None));
        let text = serde_json::to_string(&old).unwrap();
        assert_eq!(serde_json::from_str::<Refused>(&text).unwrap(), old);
    }

    #[test]
    fn groups_are_batches() {
        let item = |table: &str, partition: &str, number: u64| {
            let json = format!(r#"{{"PartitionKey":"{partition}","RowKey":"{number}"}}"#);
            let entity = Entity::from_json(json.as_bytes()).unwrap();
            Item { table: table.into(), number, entity }
        };
        let mut items: Vec<_> = (0..150).map(|n| item("t", "p", n)).collect();
        items.insert(1, item("t", "q", 1));
        items.push(item("u", "p", 1));
        let groups = groups(items);
        let sizes: Vec<_> = groups.iter().map(Vec::len).collect();
        assert_eq!(sizes, [100, 50, 1, 1]);
        assert_eq!(groups[1][0].number, 100, "order is kept");
    }
}
