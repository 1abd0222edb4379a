//! Operations on messages: put, take, look, update, delete, and several of them beside changes of entities.

use crate::{Caller, QueueError, QueueService};
use rowhouse_store::{Batch, Message, MessageAction, MessageCommand, Queue};
use rowhouse_types::{Guid, QueueAccess, QueueName, Timestamp};

/// Which message is meant, by whoever was given it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// The message.
    pub id: Guid,
    /// What proves that it was given.
    pub receipt: Timestamp,
}

/// What can be done to messages in one step with changes of entities.
#[derive(Clone, Debug)]
pub enum MessageOperation {
    /// A message is put.
    Put {
        /// Into which queue.
        queue: QueueName,
        /// What it says.
        text: Box<str>,
        /// Seconds until it is visible.
        hide_seconds: u64,
        /// Seconds until it is gone; never without.
        live_seconds: Option<u64>,
    },
    /// A message is deleted.
    Delete {
        /// Of which queue.
        queue: QueueName,
        /// Which; none if there is none that could be meant.
        receipt: Option<Receipt>,
    },
}

impl MessageOperation {
    /// The queue it is about.
    pub fn queue(&self) -> &QueueName {
        match self {
            Self::Put { queue, .. } | Self::Delete { queue, .. } => queue,
        }
    }

    fn access(&self) -> QueueAccess {
        match self {
            Self::Put { .. } => QueueAccess::PutMessage,
            Self::Delete { .. } => QueueAccess::DeleteMessage,
        }
    }
}

impl QueueService {
    /// Puts a message, and tells what became of it.
    pub async fn put(
        &self,
        caller: Caller<'_>,
        queue: &QueueName,
        text: Box<str>,
        hide_seconds: u64,
        live_seconds: Option<u64>,
    ) -> Result<Message, QueueError> {
        caller.grant.check_queue(QueueAccess::PutMessage, Some(queue))?;
        let queue = self.queue(caller, queue).await?;
        let id = self.random.guid();
        let action = MessageAction::Put { id, text, hide_seconds, live_seconds };
        self.one(&queue, action).await
    }

    /// Takes at most so many visible messages, for so many seconds.
    pub async fn take(
        &self,
        caller: Caller<'_>,
        queue: &QueueName,
        limit: usize,
        hide_seconds: u64,
    ) -> Result<Vec<Message>, QueueError> {
        caller.grant.check_queue(QueueAccess::TakeMessages, Some(queue))?;
        let queue = self.queue(caller, queue).await?;
        self.commit(&queue, MessageAction::Take { limit, hide_seconds }).await
    }

    /// Looks at no more than so many visible messages.
    pub async fn peek(
        &self,
        caller: Caller<'_>,
        queue: &QueueName,
        limit: usize,
    ) -> Result<Vec<Message>, QueueError> {
        caller.grant.check_queue(QueueAccess::PeekMessages, Some(queue))?;
        let queue = self.queue(caller, queue).await?;
        Ok(self.store.peek(queue.id, limit).await?)
    }

    /// Changes when a message is visible, and what it says if there is a text. The old receipt is worth nothing
    /// afterwards. Without a receipt that could be one, there is no such message.
    pub async fn update(
        &self,
        caller: Caller<'_>,
        queue: &QueueName,
        receipt: Option<Receipt>,
        hide_seconds: u64,
        text: Option<Box<str>>,
    ) -> Result<Message, QueueError> {
        caller.grant.check_queue(QueueAccess::UpdateMessage, Some(queue))?;
        let queue = self.queue(caller, queue).await?;
        let Receipt { id, receipt } = receipt.ok_or(QueueError::MessageNotFound)?;
        self.one(&queue, MessageAction::Update { id, receipt, hide_seconds, text }).await
    }

    /// Deletes a message. Without a receipt that could be one, there is no such message.
    pub async fn delete(
        &self,
        caller: Caller<'_>,
        queue: &QueueName,
        receipt: Option<Receipt>,
    ) -> Result<(), QueueError> {
        caller.grant.check_queue(QueueAccess::DeleteMessage, Some(queue))?;
        let queue = self.queue(caller, queue).await?;
        let Receipt { id, receipt } = receipt.ok_or(QueueError::MessageNotFound)?;
        self.commit(&queue, MessageAction::Delete { id, receipt }).await.map(drop)
    }

    /// Deletes all messages, visible or not.
    pub async fn clear(&self, caller: Caller<'_>, queue: &QueueName) -> Result<(), QueueError> {
        caller.grant.check_queue(QueueAccess::ClearMessages, Some(queue))?;
        let queue = self.queue(caller, queue).await?;
        self.commit(&queue, MessageAction::Clear).await.map(drop)
    }

    /// Makes commands of operations that are to be committed with others. Asks the grant for each, as if it came alone.
    ///
    /// A failure is a [`QueueError::Operation`] that names the first operation at fault.
    pub async fn prepare(
        &self,
        caller: Caller<'_>,
        operations: Vec<MessageOperation>,
    ) -> Result<Vec<MessageCommand>, QueueError> {
        let mut commands = Vec::with_capacity(operations.len());
        for (index, operation) in operations.into_iter().enumerate() {
            let command = self.prepare_one(caller, operation).await;
            commands.push(command.map_err(|error| error.at(index))?);
        }
        Ok(commands)
    }

    async fn prepare_one(
        &self,
        caller: Caller<'_>,
        operation: MessageOperation,
    ) -> Result<MessageCommand, QueueError> {
        caller.grant.check_queue(operation.access(), Some(operation.queue()))?;
        let queue = self.queue(caller, operation.queue()).await?.id;
        let action = match operation {
            MessageOperation::Put { text, hide_seconds, live_seconds, .. } => {
                let id = self.random.guid();
                MessageAction::Put { id, text, hide_seconds, live_seconds }
            }
            MessageOperation::Delete { receipt, .. } => {
                let Receipt { id, receipt } = receipt.ok_or(QueueError::MessageNotFound)?;
                MessageAction::Delete { id, receipt }
            }
        };
        Ok(MessageCommand { queue, action })
    }

    async fn one(&self, queue: &Queue, action: MessageAction) -> Result<Message, QueueError> {
        let told = self.commit(queue, action).await?;
        let missing = || QueueError::Unavailable("an engine did not tell of a message".into());
        told.into_iter().next().ok_or_else(missing)
    }

    async fn commit(
        &self,
        queue: &Queue,
        action: MessageAction,
    ) -> Result<Vec<Message>, QueueError> {
        Ok(self.store.commit(Batch::of_message(queue.id, action)).await?.messages)
    }
}
