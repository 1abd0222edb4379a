//! Changes of a table, made at another service.
//!
//! What is made twice is made once: an entity that is put replaces what is there, and one that is gone need not be
//! there. Changes of one partition are made in order, in batches where several follow each other; partitions side by
//! side.

use crate::batch::{self, Operation};
use crate::changes::Change;
use crate::client::{Client, Write};
use crate::error::{ClientError, ServiceError, TransferError};
use crate::lanes::Lanes;
use crate::loader::is_about_entities;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

/// Requests about one page of changes at a time.
const REQUESTS: usize = 4;

/// Makes changes of one table.
#[derive(Clone, Debug)]
pub(crate) struct Applier {
    pub(crate) client: Client,
    pub(crate) table: Arc<str>,
}

impl Applier {
    /// Makes all of them, no entity twice among them.
    pub(crate) async fn apply(&self, changes: Vec<Change>) -> Result<(), TransferError> {
        let mut lanes = Lanes::new(REQUESTS);
        for partition in by_partition(changes) {
            let this = self.clone();
            if !lanes.begin(Box::pin(async move { this.apply_partition(&partition).await })).await {
                break;
            }
        }
        lanes.finish().await
    }

    async fn apply_partition(&self, mut changes: &[Change]) -> Result<(), TransferError> {
        while !changes.is_empty() {
            let count = batch::fitting(changes.iter().map(|change| &change.entity));
            let (now, later) = changes.split_at(count);
            self.apply_batch(now).await?;
            changes = later;
        }
        Ok(())
    }

    async fn apply_batch(&self, changes: &[Change]) -> Result<(), TransferError> {
        if let [change] = changes {
            return self.apply_one(change).await;
        }
        let operations: Vec<_> = changes.iter().map(operation).collect();
        match self.client.batch(&self.table, &operations).await {
            Err(ClientError::Service(error)) if is_absent(&error) => {
                self.apply_apart(changes).await
            }
            Err(ClientError::Service(error)) if is_too_large(&error) => {
                let (first, rest) = changes.split_at(changes.len() / 2);
                Box::pin(self.apply_batch(first)).await?;
                Box::pin(self.apply_batch(rest)).await
            }
            outcome => outcome.map_err(|error| self.told(error)),
        }
    }

    /// Something that is to be deleted is not there, which fails a whole batch: what is put goes as a batch, and
    /// then what is gone one by one.
    async fn apply_apart(&self, changes: &[Change]) -> Result<(), TransferError> {
        let (gone, put): (Vec<_>, Vec<_>) = changes.iter().cloned().partition(|change| change.gone);
        if !put.is_empty() {
            Box::pin(self.apply_batch(&put)).await?;
        }
        let mut lanes = Lanes::new(REQUESTS);
        for change in gone {
            let this = self.clone();
            if !lanes.begin(Box::pin(async move { this.apply_one(&change).await })).await {
                break;
            }
        }
        lanes.finish().await
    }

    async fn apply_one(&self, change: &Change) -> Result<(), TransferError> {
        let Change { entity, gone } = change;
        let made = if *gone {
            self.client.delete(&self.table, &entity.partition, &entity.row).await.map(drop)
        } else {
            self.client.write(&self.table, Write::Replace, entity).await
        };
        made.map_err(|error| self.told(error))
    }

    fn told(&self, error: ClientError) -> TransferError {
        match error {
            ClientError::Service(error) if is_about_entities(&error) => TransferError::Refused(
                format!("the destination refuses an entity of {}: {error}", self.table),
            ),
            error => error.into(),
        }
    }
}

fn operation(change: &Change) -> Operation<'_> {
    let Change { entity, gone } = change;
    if *gone { Operation::Delete(entity) } else { Operation::Write(Write::Replace, entity) }
}

fn is_absent(error: &ServiceError) -> bool {
    error.status == 404 && error.code != "TableNotFound"
}

fn is_too_large(error: &ServiceError) -> bool {
    error.status == 413 || error.code == "RequestBodyTooLarge"
}

/// Changes of the same partition together, in their order.
fn by_partition(changes: Vec<Change>) -> Vec<Vec<Change>> {
    let mut partitions: Vec<Vec<Change>> = Vec::new();
    let mut places = HashMap::new();
    for change in changes {
        match places.entry(change.entity.partition.clone()) {
            Entry::Occupied(place) => {
                let place: usize = *place.get();
                partitions[place].push(change);
            }
            Entry::Vacant(place) => {
                place.insert(partitions.len());
                partitions.push(vec![change]);
            }
        }
    }
    partitions
}
