//! The suite is tested too: stores with one small fault each, which it must find.

use async_trait::async_trait;
use rowhouse_env::{Clock, SimulatedClock};
use rowhouse_store::conformance::{Engine, random, run};
use rowhouse_store::model::ModelStore;
use rowhouse_store::{
    Account, AccountId, Batch, Changes, ChangesWanted, Command, Committed, Condition, Kept,
    NewAccount, Page, Placement, Scan, Snapshot, Store, StoreError, Table, TableId,
};
use rowhouse_types::{
    AccountName, EntityKey, FoldedName, KeyRange, Record, StoredPolicy, TableName, Timestamp,
};
use std::sync::Arc;
use std::time::Duration;

#[derive(Clone, Copy, Debug)]
enum Fault {
    None,
    /// The last command of a batch is forgotten.
    HalfBatch,
    /// A tag that does not match is taken for one that does.
    AnyTag,
    /// Every write replaces; properties that a merge should keep are lost.
    MergeReplaces,
    /// The filter is not applied.
    NoFilter,
    /// A page of exactly the rest says that there is more.
    TokenAtTheEnd,
    /// Only the first range is read.
    FirstRangeOnly,
    /// A dropped table can still be read.
    DropForgets,
}

#[derive(Debug)]
struct Faulty {
    inner: ModelStore,
    fault: Fault,
}

struct Faults {
    clock: Arc<SimulatedClock>,
    fault: Fault,
}

#[async_trait]
impl Engine for Faults {
    async fn open(&self) -> Arc<dyn Store> {
        let inner = ModelStore::new(Arc::clone(&self.clock) as Arc<dyn Clock>);
        Arc::new(Faulty { inner, fault: self.fault })
    }

    async fn reopen(&self, _: Arc<dyn Store>) -> Option<Arc<dyn Store>> {
        None
    }

    fn clock(&self) -> &SimulatedClock {
        &self.clock
    }
}

#[async_trait]
impl Store for Faulty {
    async fn get(&self, table: TableId, key: &EntityKey) -> Result<Option<Record>, StoreError> {
        self.inner.get(table, key).await
    }

    async fn scan(&self, table: TableId, mut scan: Scan) -> Result<Page, StoreError> {
        match self.fault {
            Fault::NoFilter => scan.filter = None,
            Fault::FirstRangeOnly => scan.ranges.truncate(1),
            _ => {}
        }
        let limit = scan.limit;
        let mut page = self.inner.scan(table, scan).await?;
        if matches!(self.fault, Fault::TokenAtTheEnd) && page.rows.len() == limit {
            page.next = page.next.or_else(|| KeyRange::point("z", "").end);
        }
        Ok(page)
    }

    async fn commit(&self, mut batch: Batch) -> Result<Committed, StoreError> {
        let count = batch.commands.len();
        for Command::Entity { condition, write, .. } in &mut batch.commands {
            match (self.fault, &write) {
                (Fault::AnyTag, _) if matches!(condition, Condition::Matches(_)) => {
                    *condition = Condition::Exists;
                }
                (Fault::MergeReplaces, rowhouse_store::Write::Merge(record)) => {
                    *write = rowhouse_store::Write::Put(record.clone());
                }
                _ => {}
            }
        }
        if matches!(self.fault, Fault::HalfBatch) && count > 1 {
            batch.commands.pop();
        }
        let mut committed = self.inner.commit(batch).await?;
        committed.timestamps.resize(count, committed.timestamps[0]);
        Ok(committed)
    }

    async fn table(
        &self,
        account: AccountId,
        name: &TableName,
    ) -> Result<Option<Arc<Table>>, StoreError> {
        self.inner.table(account, name).await
    }

    async fn tables(
        &self,
        account: AccountId,
        from: Option<&FoldedName>,
        limit: usize,
    ) -> Result<Vec<Arc<Table>>, StoreError> {
        self.inner.tables(account, from, limit).await
    }

    async fn create_table(
        &self,
        account: AccountId,
        name: &TableName,
        placement: Placement,
    ) -> Result<Arc<Table>, StoreError> {
        self.inner.create_table(account, name, placement).await
    }

    async fn drop_table(&self, table: TableId) -> Result<(), StoreError> {
        if matches!(self.fault, Fault::DropForgets) {
            return self.inner.set_policies(table, Vec::new()).await;
        }
        self.inner.drop_table(table).await
    }

    async fn set_policies(
        &self,
        table: TableId,
        policies: Vec<StoredPolicy>,
    ) -> Result<(), StoreError> {
        self.inner.set_policies(table, policies).await
    }

    async fn account(&self, name: &AccountName) -> Result<Option<Arc<Account>>, StoreError> {
        self.inner.account(name).await
    }

    async fn accounts(&self) -> Result<Vec<Arc<Account>>, StoreError> {
        self.inner.accounts().await
    }

    async fn create_account(&self, account: NewAccount) -> Result<Arc<Account>, StoreError> {
        self.inner.create_account(account).await
    }

    async fn set_account_keys(
        &self,
        account: AccountId,
        keys: [Box<[u8]>; 2],
    ) -> Result<(), StoreError> {
        self.inner.set_account_keys(account, keys).await
    }

    async fn set_account_setting(
        &self,
        account: AccountId,
        name: &str,
        value: Option<Box<[u8]>>,
    ) -> Result<(), StoreError> {
        self.inner.set_account_setting(account, name, value).await
    }

    async fn remove_account(&self, account: AccountId) -> Result<(), StoreError> {
        self.inner.remove_account(account).await
    }

    async fn snapshot(&self) -> Result<Box<dyn Snapshot>, StoreError> {
        self.inner.snapshot().await
    }

    async fn keep_changes(&self, retention: Option<Duration>) -> Result<(), StoreError> {
        self.inner.keep_changes(retention).await
    }

    async fn kept_changes(&self) -> Result<Option<Kept>, StoreError> {
        self.inner.kept_changes().await
    }

    async fn changes(&self, wanted: ChangesWanted) -> Result<Changes, StoreError> {
        self.inner.changes(wanted).await
    }

    fn ready(&self) -> Result<(), StoreError> {
        self.inner.ready()
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.inner.close().await
    }
}

/// Whether random sequences tell the store from the model.
fn is_found(fault: Fault) -> bool {
    let start = Timestamp::parse_iso("2026-01-01T00:00:00Z").expect("a date");
    let engine = move || Faults { clock: Arc::new(SimulatedClock::new(start)), fault };
    let run = move || {
        run(engine, |engine| async move {
            random::behaves_as_the_model(&engine).await;
        });
    };
    std::panic::catch_unwind(run).is_err()
}

#[test]
fn random_sequences_find_every_fault() {
    assert!(!is_found(Fault::None), "a store without a fault passes");
    for fault in [
        Fault::HalfBatch,
        Fault::AnyTag,
        Fault::MergeReplaces,
        Fault::NoFilter,
        Fault::TokenAtTheEnd,
        Fault::FirstRangeOnly,
        Fault::DropForgets,
    ] {
        assert!(is_found(fault), "{fault:?}");
    }
}
