//! Operations on queues themselves: list, create, delete, metadata, access policies.

use crate::{Caller, QueueError, QueueService};
use rowhouse_store::{Conflict, Metadata, Queue, StoreError};
use rowhouse_types::{QueueAccess, QueueName, StoredPolicy};
use std::sync::Arc;

/// Some of the queues of an account, in the order of their names.
#[derive(Clone, Debug, Default)]
pub struct QueuePage {
    /// The queues.
    pub queues: Vec<Arc<Queue>>,
    /// The queue that the next page starts with; none after the last.
    pub next: Option<Arc<Queue>>,
}

/// What became of a request to create a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Created {
    /// It is there now.
    New,
    /// It was there, with the same metadata.
    Same,
}

impl QueueService {
    /// At most `limit` queues whose names start with `prefix`, from the name `from` on.
    pub async fn list_queues(
        &self,
        caller: Caller<'_>,
        prefix: &str,
        from: &str,
        limit: usize,
    ) -> Result<QueuePage, QueueError> {
        const STEP: usize = 1000;
        caller.grant.check_queue(QueueAccess::ListQueues, None)?;
        let mut page = QueuePage::default();
        let mut from = prefix.max(from).to_owned();
        loop {
            let step = STEP.min(limit - page.queues.len());
            let mut found = self.store.queues(caller.account, &from, step + 1).await?;
            // In the order of names, those with the prefix stand together.
            found.retain(|queue| queue.name.as_str().starts_with(prefix));
            let next = found.get(step).cloned();
            found.truncate(step);
            page.queues.append(&mut found);
            match next {
                Some(next) if page.queues.len() < limit => {
                    next.name.as_str().clone_into(&mut from);
                }
                next => {
                    page.next = next;
                    return Ok(page);
                }
            }
        }
    }

    /// Creates a queue, unless it is there with the same metadata. Names of metadata are the same in any case of letters.
    ///
    /// One that is not there is refused if the account has `most` queues already.
    ///
    /// Clients ask for a queue that is there before every message: that costs a look, and no change of the catalogue.
    pub async fn create_queue(
        &self,
        caller: Caller<'_>,
        name: &QueueName,
        metadata: Metadata,
        most: u64,
    ) -> Result<Created, QueueError> {
        caller.grant.check_queue(QueueAccess::CreateQueue, Some(name))?;
        if let Some(queue) = self.store.queue(caller.account, name).await? {
            return exists(&queue, &metadata);
        }
        let (account, wanted) = (caller.account, metadata.clone());
        match self.store.create_queue_within(account, name, wanted, most).await {
            Ok(_) => Ok(Created::New),
            // Somebody else was faster.
            Err(StoreError::Rejected { reason: Conflict::QueueExists, .. }) => {
                match self.store.queue(caller.account, name).await? {
                    Some(queue) => exists(&queue, &metadata),
                    None => Err(QueueError::QueueExists),
                }
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Deletes a queue with everything in it; its name is free at once.
    pub async fn delete_queue(
        &self,
        caller: Caller<'_>,
        name: &QueueName,
    ) -> Result<(), QueueError> {
        caller.grant.check_queue(QueueAccess::DeleteQueue, Some(name))?;
        let queue = self.queue(caller, name).await?;
        Ok(self.store.drop_queue(queue.id).await?)
    }

    /// A queue with its metadata, and about how many messages it has: never fewer than there are.
    pub async fn metadata(
        &self,
        caller: Caller<'_>,
        name: &QueueName,
    ) -> Result<(Arc<Queue>, u64), QueueError> {
        caller.grant.check_queue(QueueAccess::ReadMetadata, Some(name))?;
        let queue = self.queue(caller, name).await?;
        let count = self.store.message_count(queue.id).await?;
        Ok((queue, count))
    }

    /// Replaces the metadata of a queue.
    pub async fn set_metadata(
        &self,
        caller: Caller<'_>,
        name: &QueueName,
        metadata: Metadata,
    ) -> Result<(), QueueError> {
        caller.grant.check_queue(QueueAccess::WriteMetadata, Some(name))?;
        let queue = self.queue(caller, name).await?;
        Ok(self.store.set_metadata(queue.id, metadata).await?)
    }

    /// The access policies of a queue.
    pub async fn policies(
        &self,
        caller: Caller<'_>,
        name: &QueueName,
    ) -> Result<Vec<StoredPolicy>, QueueError> {
        caller.grant.check_queue(QueueAccess::QueuePolicies, Some(name))?;
        Ok(self.queue(caller, name).await?.policies.clone())
    }

    /// Replaces the access policies of a queue, at once for every signature that names one.
    pub async fn set_policies(
        &self,
        caller: Caller<'_>,
        name: &QueueName,
        policies: Vec<StoredPolicy>,
    ) -> Result<(), QueueError> {
        caller.grant.check_queue(QueueAccess::QueuePolicies, Some(name))?;
        let queue = self.queue(caller, name).await?;
        Ok(self.store.set_queue_policies(queue.id, policies).await?)
    }
}

/// What a queue that is there means to who wants to create it.
fn exists(queue: &Queue, metadata: &Metadata) -> Result<Created, QueueError> {
    if is_same(&queue.metadata, metadata) {
        Ok(Created::Same)
    } else {
        Err(QueueError::QueueExists)
    }
}

fn is_same(a: &Metadata, b: &Metadata) -> bool {
    a.len() == b.len() && sorted(a) == sorted(b)
}

/// By names in lower case: there may be thousands.
fn sorted(pairs: &Metadata) -> Vec<(String, &str)> {
    let lower = pairs.iter().map(|(name, value)| (name.to_ascii_lowercase(), &**value));
    let mut sorted: Vec<_> = lower.collect();
    sorted.sort_unstable();
    sorted
}
