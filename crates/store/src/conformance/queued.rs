//! Short words for tests of queues, and for the tests that an engine has of its own.

use super::Engine;
use super::fixture::account;
use crate::{
    AccountId, Batch, Committed, Message, MessageAction, MessageCommand, QueueId, Snapshot, Store,
    StoreError,
};
use rowhouse_types::{Guid, Timestamp};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A new store with an account and a queue.
pub(super) async fn open(engine: &dyn Engine) -> (Arc<dyn Store>, QueueId) {
    let store = engine.open().await;
    let account = account(&*store, "first").await;
    let queue = queue(&*store, account.id, "jobs").await;
    (store, queue)
}

/// A new queue without metadata.
pub async fn queue(store: &dyn Store, account: AccountId, name: &str) -> QueueId {
    let name = name.parse().expect("a legal name of a queue");
    store.create_queue(account, &name, Vec::new()).await.expect("the queue can be created").id
}

/// An id that was never used, in no order.
pub fn new_id() -> Guid {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes());
    bytes[8..].copy_from_slice(&number.to_le_bytes());
    Guid(bytes)
}

/// A message that is visible after so many seconds and gone after so many.
pub fn putting(text: &str, hide_seconds: u64, live_seconds: Option<u64>) -> MessageAction {
    MessageAction::Put { id: new_id(), text: text.into(), hide_seconds, live_seconds }
}

/// The message is deleted.
pub fn deleting(message: &Message) -> MessageAction {
    MessageAction::Delete { id: message.id, receipt: message.receipt }
}

/// The message is visible after so many seconds, with another text if there is one.
pub fn updating(message: &Message, hide_seconds: u64, text: Option<&str>) -> MessageAction {
    let text = text.map(Into::into);
    MessageAction::Update { id: message.id, receipt: message.receipt, hide_seconds, text }
}

/// Commits, and tries again as long as the store is busy.
pub async fn commit(store: &dyn Store, batch: Batch) -> Result<Committed, StoreError> {
    loop {
        match store.commit(batch.clone()).await {
            Err(StoreError::Busy) => tokio::time::sleep(Duration::from_millis(1)).await,
            result => return result,
        }
    }
}

/// Commits one change of messages.
pub async fn act(
    store: &dyn Store,
    queue: QueueId,
    action: MessageAction,
) -> Result<Vec<Message>, StoreError> {
    let committed = commit(store, Batch::of_message(queue, action)).await?;
    assert_eq!(committed.timestamps, [], "there was no entity");
    Ok(committed.messages)
}

/// A change of messages that must succeed.
pub async fn done(store: &dyn Store, queue: QueueId, action: MessageAction) -> Vec<Message> {
    act(store, queue, action).await.expect("the change succeeds")
}

/// Puts a message that is visible at once and never expires.
pub async fn put(store: &dyn Store, queue: QueueId, text: &str) -> Message {
    put_for(store, queue, text, 0, None).await
}

/// Puts a message.
pub async fn put_for(
    store: &dyn Store,
    queue: QueueId,
    text: &str,
    hide_seconds: u64,
    live_seconds: Option<u64>,
) -> Message {
    let mut told = done(store, queue, putting(text, hide_seconds, live_seconds)).await;
    assert_eq!(told.len(), 1, "what was put is told");
    told.remove(0)
}

/// Takes messages.
pub async fn take(
    store: &dyn Store,
    queue: QueueId,
    limit: usize,
    hide_seconds: u64,
) -> Vec<Message> {
    done(store, queue, MessageAction::Take { limit, hide_seconds }).await
}

/// The messages that a take would give out.
pub async fn peek(store: &dyn Store, queue: QueueId, limit: usize) -> Vec<Message> {
    store.peek(queue, limit).await.expect("the queue can be read")
}

/// What messages say, in order.
pub fn texts(messages: &[Message]) -> Vec<&str> {
    messages.iter().map(|message| &*message.text).collect()
}

/// A batch of nothing but these changes of one queue.
pub(super) fn batch(queue: QueueId, actions: Vec<MessageAction>) -> Batch {
    let messages = actions.into_iter().map(|action| MessageCommand { queue, action }).collect();
    Batch { commands: Vec::new(), messages }
}

/// All messages of a queue in a view, in the order of their ids, read in pages of a few.
pub(super) async fn listed(view: &dyn Snapshot, queue: QueueId) -> Vec<Message> {
    let (mut all, mut from) = (Vec::new(), None);
    loop {
        let page = view.messages(queue, from, 3, 1 << 20).await.expect("the view can be read");
        assert!(page.messages.len() <= 3, "no more than asked for");
        assert!(!page.messages.is_empty() || page.next.is_none(), "pages come to an end");
        all.extend(page.messages);
        match page.next {
            Some(next) => from = Some(next),
            None => break,
        }
    }
    all.sort_unstable_by_key(|message| message.id.0);
    all
}

/// That time, so many seconds later.
pub(super) fn after(time: Timestamp, seconds: u64) -> Timestamp {
    time.plus_seconds(seconds)
}
