//! Queues of the model: messages in a list, in the order in which they became visible.

use super::state::State;
use crate::{
    AccountId, Conflict, Message, MessageAction, MessageCommand, MessagePage, MessagePlace,
    Metadata, Queue, QueueId, StoreError,
};
use rowhouse_types::{Guid, QueueName, Timestamp};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The messages of one queue, each with its place.
pub(super) type Messages = BTreeMap<MessagePlace, Message>;

impl State {
    pub(super) fn queue(&self, account: AccountId, name: &QueueName) -> Option<Arc<Queue>> {
        let mut queues = self.queues.values();
        queues.find(|queue| queue.account == account && queue.name == *name).cloned()
    }

    pub(super) fn queues_of(&self, account: AccountId) -> BTreeMap<QueueName, Arc<Queue>> {
        let queues = self.queues.values().filter(|queue| queue.account == account);
        queues.map(|queue| (queue.name.clone(), Arc::clone(queue))).collect()
    }

    pub(super) fn create_queue(
        &mut self,
        account: AccountId,
        name: &QueueName,
        metadata: Metadata,
        most: u64,
        created: Timestamp,
    ) -> Result<Arc<Queue>, StoreError> {
        self.account(account)?;
        if self.queue(account, name).is_some() {
            return Err(StoreError::rejected(Conflict::QueueExists));
        }
        if most <= self.queues.values().filter(|queue| queue.account == account).count() as u64 {
            return Err(StoreError::rejected(Conflict::TooManyQueues));
        }
        self.last_queue += 1;
        let (id, name, policies) = (QueueId(self.last_queue), name.clone(), Vec::new());
        let queue = Arc::new(Queue { id, account, name, created, metadata, policies });
        self.queues.insert(id, Arc::clone(&queue));
        self.messages.insert(id, Messages::new());
        Ok(queue)
    }

    pub(super) fn drop_queue(&mut self, queue: QueueId) -> Result<(), StoreError> {
        self.messages.remove(&queue);
        let dropped = self.queues.remove(&queue);
        dropped.map(drop).ok_or_else(|| StoreError::rejected(Conflict::QueueNotFound))
    }

    pub(super) fn change_queue(
        &mut self,
        queue: QueueId,
        change: impl FnOnce(&mut Queue),
    ) -> Result<(), StoreError> {
        let found = self.queues.get_mut(&queue);
        let found = found.ok_or_else(|| StoreError::rejected(Conflict::QueueNotFound))?;
        change(Arc::make_mut(found));
        Ok(())
    }

    pub(super) fn messages(&self, queue: QueueId) -> Result<&Messages, StoreError> {
        let found = self.messages.get(&queue);
        found.ok_or_else(|| StoreError::rejected(Conflict::QueueNotFound))
    }

    pub(super) fn peek(
        &self,
        queue: QueueId,
        limit: usize,
        now: Timestamp,
    ) -> Result<Vec<Message>, StoreError> {
        let visible = self.messages(queue)?.values().filter(|message| message.is_visible(now));
        Ok(visible.take(limit).cloned().collect())
    }

    pub(super) fn message_page(
        &self,
        queue: QueueId,
        from: Option<MessagePlace>,
        limit: usize,
        max_bytes: usize,
    ) -> Result<MessagePage, StoreError> {
        let now = self.last_timestamp;
        let mut page = MessagePage::default();
        let mut bytes = 0;
        let existing = self.messages(queue)?.iter().filter(|(_, message)| message.exists(now));
        for (place, message) in
            existing.filter(|(place, _)| from.is_none_or(|from| from <= **place))
        {
            if !page.messages.is_empty() && (limit <= page.messages.len() || max_bytes <= bytes) {
                page.next = Some(*place);
                break;
            }
            bytes += message.text.len();
            page.messages.push(message.clone());
        }
        Ok(page)
    }
}

/// What a batch makes of messages: those of every queue that it touches, and what it tells.
#[derive(Default)]
pub(super) struct QueueEffects {
    pub(super) queues: BTreeMap<QueueId, Messages>,
    pub(super) told: Vec<Message>,
    /// How many places have been given out.
    pub(super) places: u64,
    /// The latest receipt that was restored.
    pub(super) latest: Timestamp,
}

impl QueueEffects {
    pub(super) fn run(
        &mut self,
        state: &State,
        command: MessageCommand,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let MessageCommand { queue, action } = command;
        let stored = state.messages(queue)?;
        let messages = self.queues.entry(queue).or_insert_with(|| stored.clone());
        messages.retain(|_, message| message.exists(now));
        let mut place = |visible| {
            self.places += 1;
            MessagePlace(visible, state.last_place + self.places)
        };
        match action {
            MessageAction::Put { id, text, hide_seconds, live_seconds } => {
                let (visible, expires) = (
                    now.plus_seconds(hide_seconds),
                    live_seconds.map_or(Timestamp::MAX, |seconds| now.plus_seconds(seconds)),
                );
                let message =
                    Message { id, text, inserted: now, expires, visible, taken: 0, receipt: now };
                self.told.push(message.clone());
                messages.insert(place(visible), message);
            }
            MessageAction::Take { limit, hide_seconds } => {
                let visible = messages.iter().filter(|(_, message)| message.is_visible(now));
                let places: Vec<_> = visible.map(|(place, _)| *place).take(limit).collect();
                for old in places {
                    let mut message = messages.remove(&old).expect("just seen");
                    message.visible = now.plus_seconds(hide_seconds);
                    message.taken += 1;
                    message.receipt = now;
                    self.told.push(message.clone());
                    messages.insert(place(message.visible), message);
                }
            }
            MessageAction::Update { id, receipt, hide_seconds, text } => {
                let mut message = remove(messages, id, receipt)?;
                message.visible = now.plus_seconds(hide_seconds);
                message.receipt = now;
                message.text = text.unwrap_or(message.text);
                self.told.push(message.clone());
                messages.insert(place(message.visible), message);
            }
            MessageAction::Delete { id, receipt } => drop(remove(messages, id, receipt)?),
            MessageAction::Clear => messages.clear(),
            MessageAction::Restore(message) => {
                self.latest = self.latest.max(message.receipt);
                messages.retain(|_, other| other.id != message.id);
                messages.insert(place(message.visible), message);
            }
        }
        Ok(())
    }
}

fn remove(messages: &mut Messages, id: Guid, receipt: Timestamp) -> Result<Message, StoreError> {
    let found = messages.iter().find(|(_, it)| it.id == id && it.receipt == receipt);
    let place = found.map(|(place, _)| *place);
    let place = place.ok_or_else(|| StoreError::rejected(Conflict::MessageNotFound))?;
    Ok(messages.remove(&place).expect("just seen"))
}
