//! The rules of the Queue service, free of HTTP.
//!
//! A [`QueueService`] takes parsed values, asks the caller's grant, turns an operation into one call of the store and answers
//! in its own words: [`QueueError`]. It keeps nothing between calls. Messages can also be put and deleted together with
//! changes of entities: [`QueueService::prepare`] makes of them what a commit takes.

mod error;
mod message;
mod queue;

pub use error::QueueError;
pub use message::{MessageOperation, Receipt};
pub use queue::{Created, QueuePage};
pub use rowhouse_store::{Message, MessageCommand, Metadata, Queue};

use rowhouse_env::Random;
use rowhouse_store::{AccountId, Store};
use rowhouse_types::{Grant, QueueName, StoredPolicy, Timestamp};
use std::sync::Arc;

/// Who asks: the account that the request addresses, and what its credentials allow there.
#[derive(Clone, Copy, Debug)]
pub struct Caller<'a> {
    /// The account.
    pub account: AccountId,
    /// What is allowed.
    pub grant: &'a Grant,
}

/// Queues and messages of all accounts.
#[derive(Clone, Debug)]
pub struct QueueService {
    store: Arc<dyn Store>,
    random: Arc<dyn Random>,
}

impl QueueService {
    /// On top of a store; ids of messages are drawn at random.
    pub fn new(store: Arc<dyn Store>, random: Arc<dyn Random>) -> Self {
        Self { store, random }
    }

    /// Until when it shows everything that was answered, if it is on a copy; `None` if it is on no copy.
    pub async fn synced(&self) -> Result<Option<Timestamp>, QueueError> {
        Ok(self.store.synced().await?)
    }

    /// The policy that a signature names, before there is a grant to ask.
    pub async fn stored_policy(
        &self,
        account: AccountId,
        name: &QueueName,
        id: &str,
    ) -> Result<Option<StoredPolicy>, QueueError> {
        let queue = self.store.queue(account, name).await?;
        Ok(queue.and_then(|queue| queue.policies.iter().find(|p| *p.id == *id).cloned()))
    }

    async fn queue(&self, caller: Caller<'_>, name: &QueueName) -> Result<Arc<Queue>, QueueError> {
        self.store.queue(caller.account, name).await?.ok_or(QueueError::QueueNotFound)
    }
}
