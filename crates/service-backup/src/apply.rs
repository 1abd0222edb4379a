//! Puts entities and messages into a store, in batches of bounded size, some of them at the same time.

use crate::error::BackupError;
use rowhouse_store::{
    Batch, Change, Command, Condition, Message, MessageAction, MessageCommand, QueueId, Store,
    StoreError, TableId, Write,
};
use rowhouse_types::{EntityKey, Record};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

const BATCH_COMMANDS: usize = 400;
const BATCH_BYTES: usize = 1024 * 1024;
/// Batches on their way: the store can write one while the next is made.
const IN_FLIGHT: usize = 4;
/// A store that has too much to do is asked again after this time, and so often.
const BUSY_PAUSE: Duration = Duration::from_millis(50);
const BUSY_TRIES: usize = 600;

/// Collects commands and commits them.
///
/// Entities have keys of their own, so their batches may overtake each other; changes of one entity must not, and messages are to
/// stay in their order.
#[derive(Debug)]
pub(crate) struct Applier {
    store: Arc<dyn Store>,
    batch: Batch,
    bytes: usize,
    in_flight: JoinSet<Result<(), StoreError>>,
}

impl Applier {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self { store, batch: Batch::default(), bytes: 0, in_flight: JoinSet::new() }
    }

    /// An entity as it was. The one of this key may be there: then it was restored before.
    pub(crate) async fn entity(
        &mut self,
        table: TableId,
        key: EntityKey,
        record: Record,
    ) -> Result<(), BackupError> {
        self.push(table, key, Write::Restore(record), IN_FLIGHT).await
    }

    /// A change as it was made, after all that came before it.
    pub(crate) async fn change(
        &mut self,
        table: TableId,
        change: Change,
    ) -> Result<(), BackupError> {
        match change.record {
            Some(record) => self.push(table, change.key, Write::Restore(record), 1).await,
            None => self.push(table, change.key, Write::Delete, 1).await,
        }
    }

    /// A message as it was, behind all that came before it.
    pub(crate) async fn message(
        &mut self,
        queue: QueueId,
        message: Message,
    ) -> Result<(), BackupError> {
        self.bytes += message.text.len();
        let action = MessageAction::Restore(message);
        self.batch.messages.push(MessageCommand { queue, action });
        self.send_if_full(1).await
    }

    async fn push(
        &mut self,
        table: TableId,
        key: EntityKey,
        write: Write,
        in_flight: usize,
    ) -> Result<(), BackupError> {
        let record = match &write {
            Write::Restore(record) => record.as_bytes().len(),
            _ => 0,
        };
        self.bytes += key.partition.as_str().len() + key.row.as_str().len() + record;
        let condition = Condition::Any;
        self.batch.commands.push(Command::Entity { table, key, condition, write });
        self.send_if_full(in_flight).await
    }

    async fn send_if_full(&mut self, in_flight: usize) -> Result<(), BackupError> {
        let count = self.batch.commands.len() + self.batch.messages.len();
        if BATCH_COMMANDS <= count || BATCH_BYTES <= self.bytes {
            self.send(in_flight).await?;
        }
        Ok(())
    }

    /// Commits what was collected, once fewer than so many batches are on their way; once none is if there are messages
    /// among it, whatever it was filled up with: others with messages may be among those.
    async fn send(&mut self, in_flight: usize) -> Result<(), BackupError> {
        let in_flight = if self.batch.messages.is_empty() { in_flight } else { 1 };
        self.wait_until_fewer_than(in_flight).await?;
        self.bytes = 0;
        let batch = std::mem::take(&mut self.batch);
        self.in_flight.spawn(commit(Arc::clone(&self.store), batch));
        Ok(())
    }

    /// Returns when everything is in the store.
    pub(crate) async fn settle(&mut self) -> Result<(), BackupError> {
        if !self.batch.commands.is_empty() || !self.batch.messages.is_empty() {
            self.send(1).await?;
        }
        self.wait_until_fewer_than(1).await
    }

    async fn wait_until_fewer_than(&mut self, count: usize) -> Result<(), BackupError> {
        while count <= self.in_flight.len() {
            match self.in_flight.join_next().await {
                Some(Ok(committed)) => committed?,
                Some(Err(panic)) => return Err(StoreError::unavailable(panic).into()),
                None => break,
            }
        }
        Ok(())
    }
}

async fn commit(store: Arc<dyn Store>, batch: Batch) -> Result<(), StoreError> {
    for _ in 0..BUSY_TRIES {
        match store.commit(batch.clone()).await {
            Err(StoreError::Busy) => tokio::time::sleep(BUSY_PAUSE).await,
            outcome => return outcome.map(drop),
        }
    }
    Err(StoreError::Busy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rowhouse_env::SystemClock;
    use rowhouse_store::model::ModelStore;
    use rowhouse_types::{Guid, RecordBuilder, Timestamp};

    /// Batches of entities may overtake each other; one with messages waits for those before it, whoever fills it up.
    #[tokio::test]
    async fn messages_are_not_overtaken() {
        let mut applier = Applier::new(Arc::new(ModelStore::new(Arc::new(SystemClock))));
        let entities = async |applier: &mut Applier, count: usize| {
            for n in 0..count {
                let key = EntityKey::new("p", &n.to_string()).unwrap();
                let record = RecordBuilder::new().finish(Timestamp::default());
                applier.entity(TableId(1), key, record).await.unwrap();
            }
        };
        entities(&mut applier, 2 * BATCH_COMMANDS).await;
        assert_eq!(applier.in_flight.len(), 2);
        applier.in_flight.abort_all();
        while applier.in_flight.join_next().await.is_some() {}
        applier.in_flight.spawn(async { Ok(()) });
        let message = Message {
            id: Guid([1; 16]),
            text: "".into(),
            inserted: Timestamp::default(),
            expires: Timestamp::MAX,
            visible: Timestamp::default(),
            taken: 0,
            receipt: Timestamp::default(),
        };
        applier.message(QueueId(1), message).await.unwrap();
        entities(&mut applier, BATCH_COMMANDS - 1).await;
        assert_eq!(applier.in_flight.len(), 1, "it waited for the one before");
    }
}
