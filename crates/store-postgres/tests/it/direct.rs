//! A bare connection does what the store does: each reads what the other wrote, and conditions are judged alike.

use crate::common;
use crate::common::{command, key, n, name, number, open, options, put, refused, table, write};
use rowhouse_env::SystemClock;
use rowhouse_store::{
    Batch, Command, Condition, Conflict, Scan, Store as _, StoreError, Take, Write,
};
use rowhouse_store_postgres::direct::Direct;
use rowhouse_testkit::TestPostgres;
use rowhouse_types::{Direction, KeyRange};
use std::sync::Arc;
use std::time::{Duration, Instant};

fn of(commands: Vec<Command>) -> Batch {
    Batch::new(commands)
}

#[test]
fn both_read_what_the_other_wrote() {
    common::run(async {
        let url = TestPostgres::shared().create_database();
        let store = open(&url).await;
        let id = table(&*store).await;
        let direct = Direct::new(&options(&url), Arc::new(SystemClock)).unwrap();
        let connection = direct.connect().await.unwrap();
        let account = "account".parse().unwrap();
        let things = connection.table(&account, &name("Things")).await.unwrap();
        assert_eq!(things.id, id);

        let first = key("p", "0");
        write(&*store, put(id, &first, number(1))).await;
        assert_eq!(connection.get(&things, &first).await.unwrap().map(|found| n(&found)), Some(1));
        assert_eq!(connection.get(&things, &key("p", "no")).await.unwrap(), None);

        for (condition, what) in [
            (Condition::Any, Write::Put(number(2))),
            (Condition::Exists, Write::Merge(number(3))),
            (Condition::Any, Write::Merge(number(4))),
        ] {
            let before = store.get(id, &first).await.unwrap().unwrap();
            let batch = of(vec![command(id, &first, condition, what)]);
            connection.commit(&things, batch).await.unwrap();
            let after = store.get(id, &first).await.unwrap().unwrap();
            assert_eq!(n(&after), n(&before) + 1);
            assert!(before.as_ref().timestamp() < after.as_ref().timestamp());
        }
        // The store goes on from there.
        write(&*store, put(id, &first, number(5))).await;

        let keys: Vec<_> = (1..100).map(|row| key("p", &format!("{row:02}"))).collect();
        let insert = |key| command(id, key, Condition::Absent, Write::Put(number(7)));
        connection.commit(&things, of(keys.iter().map(insert).collect())).await.unwrap();
        assert_eq!(n(&store.get(id, &keys[98]).await.unwrap().unwrap()), 7);

        let scan = Scan {
            ranges: vec![KeyRange::partition("p")],
            through: None,
            direction: Direction::Ascending,
            take: Take::Entities,
            filter: None,
            select: None,
            limit: 1000,
            max_bytes: 1 << 20,
            deadline: Instant::now() + Duration::from_secs(10),
        };
        assert_eq!(connection.scan(&things, &scan).await.unwrap().rows.len(), 100);
    });
}

#[test]
fn conditions_are_judged() {
    common::run(async {
        let url = TestPostgres::shared().create_database();
        let store = open(&url).await;
        let id = table(&*store).await;
        let direct = Direct::new(&options(&url), Arc::new(SystemClock)).unwrap();
        let connection = direct.connect().await.unwrap();
        let account = "account".parse().unwrap();
        let none = connection.table(&account, &name("Nothing")).await;
        assert_eq!(refused(none.map(drop)), Err(Conflict::TableNotFound));
        let things = connection.table(&account, &name("Things")).await.unwrap();

        let there = key("p", "1");
        write(&*store, put(id, &there, number(1))).await;
        let insert = |key| command(id, key, Condition::Absent, Write::Put(number(2)));
        let one = connection.commit(&things, of(vec![insert(&there)])).await;
        assert_eq!(refused(one), Err(Conflict::EntityExists));
        // Why not all can be written takes a transaction, which a bare connection does not make.
        let new = key("p", "2");
        let many = connection.commit(&things, of(vec![insert(&new), insert(&there)])).await;
        assert!(matches!(many, Err(StoreError::Busy)), "{many:?}");
        assert_eq!(store.get(id, &new).await.unwrap(), None);
        let merge = command(id, &new, Condition::Exists, Write::Merge(number(3)));
        let merged = connection.commit(&things, of(vec![merge])).await;
        assert_eq!(refused(merged), Err(Conflict::EntityNotFound));
    });
}
