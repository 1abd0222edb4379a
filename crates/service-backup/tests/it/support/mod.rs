//! A store with something of everything in it, its backups, and all that it holds in a form to compare.

#![allow(dead_code, reason = "each test file uses its part")]

pub(crate) mod stopping;

use rowhouse_env::{SeededRandom, SimulatedClock};
use rowhouse_service_backup::{
    BackupError, BackupService, Base, Header, KeepKeys, Restored, Survey, beginning, restore,
    survey,
};
use rowhouse_store::model::ModelStore;
use rowhouse_store::{
    Batch, Command, Condition, IndexKeys, Message, MessageAction, NewAccount, Placement, QueueId,
    Scan, Store, Table, TableId, Take, Ttl, Write,
};
use rowhouse_types::{
    Direction, EntityKey, Guid, KeyRange, Record, RecordBuilder, StoredPolicy, Timestamp, ValueRef,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) const DAY: Duration = Duration::from_hours(24);

pub(crate) struct World {
    pub(crate) clock: Arc<SimulatedClock>,
    pub(crate) store: Arc<dyn Store>,
    service: BackupService,
}

impl World {
    /// An empty store, whose backups hold keys as they are stored: sealed, say.
    pub(crate) fn new(seed: u64) -> Self {
        Self::with(seed, KeepKeys::new(|account| account.keys.clone()))
    }

    /// One whose backups leave keys out.
    pub(crate) fn without_master_key(seed: u64) -> Self {
        Self::with(seed, KeepKeys::new(|_| [Box::from([2]), Box::from([2])]))
    }

    fn with(seed: u64, keys: KeepKeys) -> Self {
        let clock = Arc::new(SimulatedClock::new(Timestamp::EDM_MIN.plus_seconds(seed)));
        let store: Arc<dyn Store> = Arc::new(ModelStore::new(Arc::<SimulatedClock>::clone(&clock)));
        let random = Arc::new(SeededRandom::new(seed));
        let clock_of_service = Arc::<SimulatedClock>::clone(&clock);
        let service =
            BackupService::new(Arc::clone(&store), clock_of_service, random, keys, "0.0.0");
        Self { clock, store, service }
    }

    pub(crate) async fn account(&self, name: &str) {
        let keys = [format!("\0{name} 1"), format!("\0{name} 2")];
        let keys = keys.map(|key| key.into_bytes().into_boxed_slice());
        let account = NewAccount { name: name.parse().unwrap(), keys };
        self.store.create_account(account).await.unwrap();
    }

    pub(crate) async fn table(&self, account: &str, name: &str) -> Arc<Table> {
        let account = self.store.account(&account.parse().unwrap()).await.unwrap().unwrap();
        let placement = Placement { group: Some("g".into()), route_chars: Some(3) };
        self.store.create_table(account.id, &name.parse().unwrap(), placement).await.unwrap()
    }

    pub(crate) async fn index(&self, table: TableId, name: &str, of: &[&str], unique: bool) {
        let properties = of.iter().map(|name| Box::from(*name)).collect();
        let keys = IndexKeys { properties, unique };
        self.store.create_index(table, &name.parse().unwrap(), keys).await.unwrap();
    }

    pub(crate) async fn find(&self, account: &str, name: &str) -> Option<Arc<Table>> {
        let account = self.store.account(&account.parse().unwrap()).await.unwrap().unwrap();
        self.store.table(account.id, &name.parse().unwrap()).await.unwrap()
    }

    pub(crate) async fn put(&self, table: TableId, partition: &str, row: &str, n: i32) {
        self.write(table, partition, row, Write::Put(record(n))).await;
    }

    /// An entity of about so many bytes.
    pub(crate) async fn put_large(&self, table: TableId, partition: &str, row: &str, bytes: usize) {
        let mut builder = RecordBuilder::new();
        builder.push("Data", ValueRef::Binary(&vec![7; bytes])).unwrap();
        let record = builder.finish(Timestamp::EDM_MIN);
        self.write(table, partition, row, Write::Put(record)).await;
    }

    pub(crate) async fn delete(&self, table: TableId, partition: &str, row: &str) {
        self.write(table, partition, row, Write::Delete).await;
    }

    async fn write(&self, table: TableId, partition: &str, row: &str, write: Write) {
        let key = EntityKey::new(partition, row).unwrap();
        let command = Command::Entity { table, key, condition: Condition::Any, write };
        self.store.commit(Batch::of(command)).await.unwrap();
    }

    /// Two accounts, four tables, four indexes, some hundred entities, three queues and sixty messages.
    pub(crate) async fn fill(&self) {
        self.account("first").await;
        self.account("second").await;
        let first = self.store.account(&"first".parse().unwrap()).await.unwrap().unwrap();
        let setting = Some(b"bytes of a service".to_vec().into());
        self.store.set_account_setting(first.id, None, "some", setting).await.unwrap();
        let people = self.table("first", "People").await;
        let policy = StoredPolicy {
            id: "p".into(),
            start: Some(Timestamp::EDM_MIN),
            expiry: None,
            permission: Some("ra".into()),
        };
        self.store.set_policies(people.id, vec![policy]).await.unwrap();
        self.index(people.id, "number", &["n", "RowKey"], true).await;
        // Nobody has such a property.
        let ttl = Ttl { property: Some("Until".into()), after: DAY };
        self.store.set_ttl(people.id, Some(ttl)).await.unwrap();
        self.index(people.id, "both", &["Näme", "PartitionKey"], false).await;
        let empty = self.table("first", "Empty").await;
        self.index(empty.id, "t", &["Timestamp", "RowKey", "a", "b"], false).await;
        let things = self.table("second", "Things").await;
        let same_name = self.table("second", "people").await;
        for n in 0..300 {
            self.put(people.id, &format!("p{}", n % 7), &format!("{n:04}"), n).await;
        }
        self.put(things.id, "", "", -1).await;
        self.put(things.id, "é😀", "'", 1).await;
        self.put(same_name.id, "p0", "0000", 99).await;
        self.put(same_name.id, "p0", "0001", 98).await;
        self.fill_queues().await;
        // Names repeat, so it is never ready; a backup has it all the same.
        self.index(same_name.id, "repeated", &["Näme"], true).await;
    }

    /// Two queues of the same name, with metadata, policies, and messages of every kind; and one without.
    async fn fill_queues(&self) {
        let mut number = 0;
        for account in ["first", "second"] {
            let jobs = self.queue(account, "jobs").await;
            let policy = StoredPolicy {
                id: account.into(),
                start: None,
                expiry: Some(Timestamp::MAX),
                permission: None,
            };
            self.store.set_queue_policies(jobs, vec![policy]).await.unwrap();
            let long = "é".repeat(32_768);
            for text in ["", "text", &long, "taken"].into_iter().cycle().take(30) {
                number += 1;
                let (hide, live) = (number % 3 * 10, (number % 2 == 0).then_some(number * 1000));
                self.post(jobs, number, text, hide, live).await;
            }
            let take = MessageAction::Take { limit: 4, hide_seconds: 50 };
            self.store.commit(Batch::of_message(jobs, take)).await.unwrap();
        }
        self.queue("second", "empty").await;
    }

    pub(crate) async fn queue(&self, account: &str, name: &str) -> QueueId {
        let account = self.store.account(&account.parse().unwrap()).await.unwrap().unwrap();
        let metadata = vec![("Zone".into(), "x".into()), ("a".into(), "".into())];
        let created = self.store.create_queue(account.id, &name.parse().unwrap(), metadata).await;
        created.unwrap().id
    }

    pub(crate) async fn post(
        &self,
        queue: QueueId,
        number: u64,
        text: &str,
        hide_seconds: u64,
        live_seconds: Option<u64>,
    ) -> Message {
        let mut id = [7; 16];
        id[..8].copy_from_slice(&number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes());
        let (id, text) = (Guid(id), text.into());
        let put = MessageAction::Put { id, text, hide_seconds, live_seconds };
        let committed = self.store.commit(Batch::of_message(queue, put)).await.unwrap();
        committed.messages.into_iter().next().unwrap()
    }

    /// All messages of a queue, in their order.
    pub(crate) async fn messages(&self, queue: QueueId) -> Vec<Message> {
        let view = self.store.snapshot().await.unwrap();
        view.messages(queue, None, usize::MAX, usize::MAX).await.unwrap().messages
    }

    /// Bytes of a full backup.
    pub(crate) async fn full(&self) -> Vec<u8> {
        self.take(None).await.unwrap()
    }

    /// Bytes of what has changed since that backup.
    pub(crate) async fn since(&self, base: &[u8]) -> Vec<u8> {
        self.take(Some(header(base).await.as_base())).await.unwrap()
    }

    pub(crate) async fn take(&self, base: Option<Base>) -> Result<Vec<u8>, BackupError> {
        let mut bytes = Vec::new();
        self.service.begin(base).await?.write(&mut bytes).await?;
        Ok(bytes)
    }

    pub(crate) fn service(&self) -> &BackupService {
        &self.service
    }

    pub(crate) async fn restore(&self, backups: &[&[u8]]) -> Result<Restored, BackupError> {
        let mut surveys = Vec::new();
        for backup in backups {
            surveys.push(look(backup).await?);
        }
        let open = |index: usize| Ok(backups[index]);
        let expired_by = Some(rowhouse_env::Clock::now(&*self.clock));
        restore(Arc::clone(&self.store), &surveys, expired_by, open, |_| {}).await
    }

    /// Everything that a client could see.
    pub(crate) async fn dump(&self) -> BTreeMap<String, Vec<u8>> {
        let mut dump = BTreeMap::new();
        for account in self.store.accounts().await.unwrap() {
            let name = &account.name;
            let [first, second] = &account.keys;
            dump.insert(format!("{name} key 1"), first.to_vec());
            dump.insert(format!("{name} key 2"), second.to_vec());
            for (setting, value) in &account.settings {
                dump.insert(format!("{name} setting {setting}"), value.to_vec());
            }
            for table in self.store.tables(account.id, None, usize::MAX).await.unwrap() {
                let declared: Vec<_> =
                    table.indexes.iter().map(|index| (&index.name, &index.keys)).collect();
                let Table { placement, policies, ttl, .. } = &*table;
                let about = format!("{placement:?} {policies:?} {declared:?} {ttl:?}");
                dump.insert(format!("{name}/{}", table.name), about.into_bytes());
                for (key, record) in self.entities(table.id).await {
                    dump.insert(format!("{name}/{}/{key}", table.name), record);
                }
            }
            for queue in self.store.queues(account.id, "", usize::MAX).await.unwrap() {
                let about = format!("{:?} {:?}", queue.metadata, queue.policies);
                dump.insert(format!("{name} queue {}", queue.name), about.into_bytes());
                for (place, message) in self.messages(queue.id).await.iter().enumerate() {
                    let key = format!("{name} queue {} {place:04}", queue.name);
                    dump.insert(key, format!("{message:?}").into_bytes());
                }
            }
        }
        dump
    }

    pub(crate) async fn entities(&self, table: TableId) -> Vec<(String, Vec<u8>)> {
        let deadline = Instant::now() + DAY;
        let (ranges, limit, max_bytes) = (vec![KeyRange::all()], usize::MAX, usize::MAX);
        let (direction, take) = (Direction::Ascending, Take::Entities);
        let (through, filter, select) = (None, None, None);
        let scan =
            Scan { ranges, through, direction, take, filter, select, limit, max_bytes, deadline };
        let page = self.store.scan(table, scan).await.unwrap();
        let row = |row: rowhouse_types::Row<'_>| {
            (format!("{:?} {:?}", row.partition, row.row), row.record.as_bytes().to_vec())
        };
        page.rows.iter().map(|found| row(found.unwrap())).collect()
    }
}

pub(crate) fn record(n: i32) -> Record {
    let mut builder = RecordBuilder::new();
    builder.push("n", ValueRef::Int32(n)).unwrap();
    builder.push("Näme", ValueRef::String("Ann")).unwrap();
    builder.finish(Timestamp::EDM_MIN)
}

pub(crate) async fn header(backup: &[u8]) -> Header {
    beginning(backup).await.unwrap().0
}

pub(crate) async fn look(backup: &[u8]) -> Result<Survey, BackupError> {
    survey(backup, |_, _| Ok(()), |_| {}).await
}
