//! Whoever has a database to itself has it alone: no server and no second of its kind is on it until it is closed or gone.

use crate::common;
use crate::common::{
    account, database, key, name, number, open, options, put, table, try_open, write,
};
use rowhouse_env::{SystemClock, SystemRandom};
use rowhouse_store::{NewAccount, Placement, Store, StoreError};
use rowhouse_store_postgres::{OpenError, PostgresStore};
use rowhouse_testkit::TestPostgres;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longer than anything here takes on a busy machine.
const WITHIN: Duration = Duration::from_mins(1);
/// Connections that hold the lock.
const HOLDERS: &str = "SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database
    WHERE l.locktype = 'advisory' AND l.granted AND l.mode = 'ExclusiveLock'
    AND l.classid = x'726F7768'::bigint AND l.objid = x'6F757369'::bigint
    AND d.datname = current_database()";
const END_HOLDERS: &str =
    "SELECT pg_terminate_backend(l.pid) FROM pg_locks l JOIN pg_database d ON d.oid = l.database
    WHERE l.locktype = 'advisory' AND l.classid = x'726F7768'::bigint
    AND l.objid = x'6F757369'::bigint AND d.datname = current_database()";
const LEASES: &str = "SELECT count(*) FROM rowhouse.servers WHERE expires > now()";

async fn open_alone(url: &str) -> Result<PostgresStore, OpenError> {
    let (clock, random) = (Arc::new(SystemClock), Arc::new(SystemRandom));
    PostgresStore::open_alone(options(url), clock, random).await
}

fn ask(url: &str, sql: &str) -> String {
    TestPostgres::shared().execute(database(url), sql)
}

#[test]
fn no_server_comes_while_somebody_is_alone() {
    common::run(async {
        let url = TestPostgres::shared().create_database();
        let alone = open_alone(&url).await.expect("nobody is there");
        let refused = try_open(&url).await;
        assert!(matches!(refused, Err(OpenError::Restoring)), "{refused:?}");
        assert_eq!(ask(&url, LEASES), "1", "who was refused has no lease");
        let table = table(&alone).await;
        write(&alone, put(table, &key("p", "r"), number(1))).await;
        alone.close().await.expect("it closes");
        assert_eq!(ask(&url, HOLDERS), "0");
        let server = open(&url).await;
        assert!(server.get(table, &key("p", "r")).await.expect("the read succeeds").is_some());
    });
}

#[test]
fn nobody_is_alone_where_a_server_is() {
    common::run(async {
        let url = TestPostgres::shared().create_database();
        let (one, other) = (open(&url).await, open(&url).await);
        let before = ask(&url, "SELECT version FROM rowhouse.catalogue");
        let refused = open_alone(&url).await;
        assert!(matches!(refused, Err(OpenError::Served { servers: 2 })), "{refused:?}");
        assert_eq!(ask(&url, "SELECT version FROM rowhouse.catalogue"), before);
        one.close().await.expect("it closes");
        // One that ends meanwhile is waited for.
        let (alone, closed) = tokio::join!(open_alone(&url), async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            other.close().await
        });
        closed.expect("it closes");
        alone.expect("nobody is there").close().await.expect("it closes");
    });
}

#[test]
fn only_one_is_alone() {
    common::run(async {
        let url = TestPostgres::shared().create_database();
        let first = open_alone(&url).await.expect("nobody is there");
        let second = open_alone(&url).await;
        assert!(matches!(second, Err(OpenError::RestoredByAnother)), "{second:?}");
        account(&first).await;
        first.close().await.expect("it closes");
        let third = open_alone(&url).await.expect("nobody is there any more");
        third.close().await.expect("it closes");
    });
}

/// Servers that start and somebody who wants to be alone, at the same moment: never both.
#[test]
fn of_those_who_come_at_once_one_is_refused() {
    common::run(async {
        let url = TestPostgres::shared().create_database();
        open(&url).await.close().await.expect("it closes");
        for _ in 0..8 {
            let (alone, server) = tokio::join!(open_alone(&url), try_open(&url));
            match (&alone, &server) {
                (Ok(_), Err(OpenError::Restoring)) | (Err(OpenError::Served { .. }), Ok(_)) => {}
                other => panic!("{other:?}"),
            }
            for store in [alone, server].into_iter().flatten() {
                store.close().await.expect("it closes");
            }
        }
    });
}

/// Without the connection that keeps others off, nothing is written any more.
#[test]
fn who_is_no_longer_alone_writes_nothing() {
    common::run(async {
        let url = TestPostgres::shared().create_database();
        let alone = open_alone(&url).await.expect("nobody is there");
        let account = account(&alone).await;
        ask(&url, END_HOLDERS);
        let began = Instant::now();
        let mut number = 0;
        let error = loop {
            number += 1;
            let table = name(&format!("Table{number}"));
            match alone.create_table(account, &table, Placement::default()).await {
                Ok(_) => assert!(began.elapsed() < WITHIN, "it is noticed"),
                Err(error) => break error,
            }
        };
        let StoreError::Unavailable(reason) = &error else { panic!("{error:?}") };
        assert!(reason.to_string().contains("kept servers off"), "{reason}");
    });
}

/// A server that was cut off from the database when somebody came who is alone, and is back.
#[test]
fn a_server_that_comes_back_is_noticed() {
    common::run(async {
        let url = TestPostgres::shared().create_database();
        let alone = open_alone(&url).await.expect("nobody is there");
        let account = account(&alone).await;
        ask(
            &url,
            "UPDATE rowhouse.servers SET holder = 7, since = now() - interval '1 hour',
             expires = now() + interval '1 hour' WHERE slot = 9",
        );
        let began = Instant::now();
        let keys = || [Box::from(*b"key one"), Box::from(*b"key two")];
        while alone.ready().is_ok() {
            assert!(began.elapsed() < WITHIN, "it is noticed");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let new = NewAccount { name: "another".parse().expect("a legal name"), keys: keys() };
        let error = alone.create_account(new).await.expect_err("nothing is written any more");
        assert!(error.to_string().contains("a server is running on the database"), "{error}");
        assert!(alone.table(account, &name("Things")).await.is_ok(), "reads go on");
    });
}
