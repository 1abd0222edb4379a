//! Deleting what satisfies a filter: exactly that, in steps, within what the caller may see.

use proptest::prelude::*;
use rowhouse_env::{Clock, SimulatedClock};
use rowhouse_query::Filter;
use rowhouse_service_table::{
    Action, Caller, DeleteQuery, EntityQuery, NewIndex, Operation, TableError, TableService,
};
use rowhouse_store::model::ModelStore;
use rowhouse_store::{AccountId, NewAccount, Store};
use rowhouse_types::{EntityKey, Grant, Position, RecordBuilder, TableName, Timestamp, ValueRef};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

struct World {
    service: TableService,
    account: AccountId,
    table: TableName,
}

impl World {
    async fn new(rows: &[(u8, u8, i64)]) -> Self {
        let clock = SimulatedClock::new(Timestamp::EDM_MIN.plus_seconds(1));
        let store: Arc<dyn Store> = Arc::new(ModelStore::new(Arc::new(clock) as Arc<dyn Clock>));
        let keys = [Box::from(*b"1"), Box::from(*b"2")];
        let account = NewAccount { name: "acct".parse().unwrap(), keys };
        let account = store.create_account(account).await.unwrap().id;
        let world =
            Self { service: TableService::new(store), account, table: "Things".parse().unwrap() };
        world.service.create_table(world.caller(), &world.table, u64::MAX).await.unwrap();
        for (partition, row, n) in rows {
            let key = EntityKey::new(&partition.to_string(), &format!("{row:03}")).unwrap();
            let mut builder = RecordBuilder::new();
            builder.push("n", ValueRef::Int64(*n)).unwrap();
            let action = Action::InsertOrReplace(builder.finish(Timestamp::default()));
            let operation = Operation { table: world.table.clone(), key, action };
            world.service.write(world.caller(), operation).await.unwrap();
        }
        world
    }

    fn caller(&self) -> Caller<'static> {
        Caller { account: self.account, grant: &Grant::AccountKey }
    }

    /// All steps; how many were deleted, and how many steps it took.
    async fn delete(
        &self,
        filter: &str,
        limit: usize,
        dry_run: bool,
    ) -> Result<(u64, usize), TableError> {
        let (mut from, mut sum, mut steps): (Option<Position>, _, _) = (None, 0, 0);
        loop {
            let filter = Filter::parse(filter).unwrap();
            let deadline = Instant::now() + Duration::from_mins(10);
            let query = DeleteQuery { filter, from, limit, dry_run, deadline };
            let step = self.service.delete_step(self.caller(), &self.table, query).await?;
            sum += step.deleted;
            steps += 1;
            match step.next {
                Some(next) => from = Some(next),
                None => return Ok((sum, steps)),
            }
        }
    }

    async fn rows(&self, filter: &str) -> BTreeSet<(String, String)> {
        let query = EntityQuery {
            filter: Filter::parse(filter).unwrap(),
            select: None,
            order: None,
            from: None,
            limit: 1000,
            limited: false,
            deadline: Instant::now() + Duration::from_mins(10),
        };
        let page = self.service.query(self.caller(), &self.table, query).await.unwrap();
        assert!(page.next.is_none());
        let rows = page.rows.iter().map(|row| row.unwrap());
        rows.map(|row| (row.partition.to_owned(), row.row.to_owned())).collect()
    }
}

const FILTERS: [&str; 8] = [
    "",
    "n eq 1",
    "n ge 1 and n lt 3",
    "PartitionKey eq '1'",
    "PartitionKey eq '1' and RowKey ge '004' and n ne 2",
    "PartitionKey eq '0' and RowKey eq '001'",
    "not (n eq 0)",
    "n eq 77",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// What a query finds is gone, the rest stays: with and without an index, however small the steps.
    #[test]
    fn exactly_what_matches_goes(
        rows in proptest::collection::vec((0..3u8, 0..12u8, 0..4i64), 0..40),
        filter in proptest::sample::select(&FILTERS[..]),
        limit in proptest::sample::select(vec![1_usize, 2, 7, 1000]),
        indexed in any::<bool>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let world = World::new(&rows).await;
            if indexed {
                let new = NewIndex { name: None, properties: vec!["n".into()], unique: false };
                world.service.create_index(world.caller(), &world.table, new).await.unwrap();
            }
            let (all, doomed) = (world.rows("").await, world.rows(filter).await);
            let (counted, _) = world.delete(filter, limit, true).await.unwrap();
            prop_assert_eq!(counted, doomed.len() as u64);
            prop_assert_eq!(world.rows("").await, all.clone(), "only counted");
            let (deleted, steps) = world.delete(filter, limit, false).await.unwrap();
            prop_assert_eq!(deleted, doomed.len() as u64);
            prop_assert!(steps >= doomed.len() / limit, "{} steps", steps);
            prop_assert_eq!(world.rows("").await, &all - &doomed);
            prop_assert_eq!(world.delete(filter, limit, false).await.unwrap().0, 0);
            Ok(())
        })?;
    }
}
