//! Secondary indexes with several servers on one database: no write misses an index that another server declared, of
//! two that want a unique value one gets it, and whoever goes on building goes on where another stopped.

use crate::common;
use crate::common::{
    command, commit, database, key, number, open, options, page, put, record, refused,
};
use rowhouse_env::SystemClock;
use rowhouse_query::index::{Span, entry};
use rowhouse_store::conformance::indexed::{
    assert_agrees, built, declare, index_of, only, ready, scan_through, unique_of,
};
use rowhouse_store::{
    Batch, Condition, Conflict, Index, IndexState, Lookup, Page, Scan, Store, StoreError, TableId,
    Ttl, Write,
};
use rowhouse_store_postgres::{PostgresReplica, PostgresStore, Url};
use rowhouse_testkit::TestPostgres;
use rowhouse_types::{Row, Timestamp, ValueRef};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

async fn servers(count: usize) -> (String, Vec<Arc<PostgresStore>>, TableId) {
    let url = TestPostgres::shared().create_database();
    let mut stores = vec![open(&url).await];
    let table = common::table(&*stores[0]).await;
    while stores.len() < count {
        stores.push(open(&url).await);
    }
    (url, stores, table)
}

/// Writes of all kinds, alone and in batches, until it is told to stop; how many.
async fn keep_writing(
    store: Arc<PostgresStore>,
    table: TableId,
    writer: i64,
    stop: Arc<AtomicBool>,
) -> i64 {
    let mut round = 0;
    while !stop.load(Ordering::SeqCst) {
        round += 1;
        let place = |n: i64| key(&(n % 3).to_string(), &format!("{:03}", n % 200));
        let n = round * 13 + writer * 71;
        let one = |n: i64, kind: i64| match kind % 5 {
            0 => command(table, &place(n), Condition::Any, Write::Delete),
            1 => command(table, &place(n), Condition::Any, Write::Merge(number(n % 17))),
            2 => command(table, &place(n), Condition::Absent, Write::Put(number(n % 17))),
            _ => put(table, &place(n), number(n % 17)),
        };
        let commands = if round % 4 == 0 {
            vec![one(n, 1), one(n + 3, 3), one(n + 6, 0)]
        } else {
            vec![one(n, round)]
        };
        match refused(commit(&*store, commands).await) {
            Ok(_) | Err(Conflict::EntityExists) => {}
            Err(reason) => panic!("refused: {reason}"),
        }
    }
    round
}

/// Indexes are declared on one server and dropped on another, while all of them write.
#[test]
fn every_server_keeps_an_index_that_one_declares() {
    common::run(async {
        let (_, stores, table) = servers(3).await;
        let stop = Arc::new(AtomicBool::new(false));
        let mut writers = JoinSet::new();
        for writer in 0..6 {
            let store = Arc::clone(&stores[writer % stores.len()]);
            let writer = i64::try_from(writer).expect("small");
            writers.spawn(keep_writing(store, table, writer, Arc::clone(&stop)));
        }
        let mut indexes: Vec<Index> = Vec::new();
        for round in 0..3 {
            tokio::time::sleep(Duration::from_millis(200)).await;
            let name = format!("i{round}");
            let keys = index_of(&["n", ["RowKey", "PartitionKey", "Timestamp"][round]]);
            indexes.push(ready(&*stores[round], table, &name, keys).await);
            if round == 1 {
                let dropped = indexes.remove(0);
                stores[2].drop_index(table, dropped.id).await.expect("it is there");
            }
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
        stop.store(true, Ordering::SeqCst);
        while let Some(written) = writers.join_next().await {
            assert!(written.expect("no writer panics") > 0);
        }
        for store in &stores {
            for index in &indexes {
                assert_agrees(&**store, table, index, "when all is quiet").await;
            }
        }
    });
}

/// Two living entities have one value while others expire all the time: the build ends, and the next one goes on.
#[test]
fn what_expires_all_the_time_does_not_keep_a_build_from_its_end() {
    common::run(async {
        let (_, stores, table) = servers(1).await;
        let store = &stores[0];
        for row in ["a", "b"] {
            commit(&**store, vec![put(table, &key("living", row), number(1))]).await.expect("put");
        }
        let ttl = Ttl { property: Some("Until".into()), after: Duration::ZERO };
        store.set_ttl(table, Some(ttl)).await.expect("it can be set");
        let stop = Arc::new(AtomicBool::new(false));
        let mut writers = JoinSet::new();
        for writer in 0..3 {
            let (store, stop) = (Arc::clone(store), Arc::clone(&stop));
            writers.spawn(async move {
                let past = Timestamp::parse_iso("2020-01-01T00:00:00Z").expect("a time");
                let past = record(&[("Until", ValueRef::DateTime(past))]);
                for row in 0..i32::MAX {
                    if stop.load(Ordering::SeqCst) {
                        break;
                    }
                    let place = |n: i32| key(&format!("expired{writer}"), &format!("{row} {n}"));
                    let batch = (0..5).map(|n| put(table, &place(n), past.clone())).collect();
                    commit(&*store, batch).await.expect("put");
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            });
        }
        let unique = declare(&**store, table, "one", unique_of(&["n"])).await;
        assert_eq!(unique.state, IndexState::NotUnique);
        ready(&**store, table, "by-n", index_of(&["n"])).await;
        stop.store(true, Ordering::SeqCst);
        while let Some(written) = writers.join_next().await {
            written.expect("no writer panics");
        }
    });
}

/// The first index of a table: until it is declared, writes are single statements.
#[test]
fn the_first_index_misses_no_write_that_was_under_way() {
    common::run(async {
        for round in 0..4 {
            let (_, stores, table) = servers(2).await;
            let stop = Arc::new(AtomicBool::new(false));
            let mut writers = JoinSet::new();
            for writer in 0..8 {
                let store = Arc::clone(&stores[writer % 2]);
                let writer = i64::try_from(writer).expect("small");
                writers.spawn(keep_writing(store, table, writer, Arc::clone(&stop)));
            }
            tokio::time::sleep(Duration::from_millis(50 * (round + 1))).await;
            let index = ready(&*stores[0], table, "n", index_of(&["n"])).await;
            stop.store(true, Ordering::SeqCst);
            while let Some(written) = writers.join_next().await {
                written.expect("no writer panics");
            }
            assert_agrees(&*stores[1], table, &index, "when all is quiet").await;
        }
    });
}

/// A write that began before the index was declared, and ends long after its time, is waited for.
#[test]
fn an_index_waits_for_a_write_that_is_under_way() {
    common::run(async {
        let (url, stores, table) = servers(1).await;
        commit(&*stores[0], vec![put(table, &key("p", "r"), number(1))]).await.expect("written");
        let (client, connection) =
            tokio_postgres::connect(&url, tokio_postgres::NoTls).await.expect("a connection");
        let connection = tokio::spawn(connection);
        // As a server does that writes an entity of a table without indexes.
        let late = "BEGIN; INSERT INTO rowhouse.entities
            SELECT dk, tid, kp || 'x', kh, rest, pl, ts, size, names, props FROM rowhouse.entities";
        client.batch_execute(late).await.expect("it is written");
        let store = Arc::clone(&stores[0]);
        let declared =
            tokio::spawn(async move { ready(&*store, table, "n", index_of(&["n"])).await });
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(!declared.is_finished(), "it waits");
        client.batch_execute("COMMIT").await.expect("committed");
        let index = declared.await.expect("it is declared");
        assert_agrees(&*stores[0], table, &index, "with what was late").await;
        assert_eq!(built(&*stores[0], table, index.id).await.examined, 2);
        drop(client);
        let _ = connection.await;
    });
}

fn unique(text: &str) -> rowhouse_types::Record {
    record(&[("u", ValueRef::String(text))])
}

/// Many servers want the same value at once, for entities of different partitions.
#[test]
fn one_server_gets_a_unique_value() {
    common::run(async {
        let (_, stores, table) = servers(3).await;
        let index = ready(&*stores[0], table, "u", unique_of(&["u"])).await;
        for round in 0..20 {
            let mut tasks = JoinSet::new();
            for writer in 0..6 {
                let store = Arc::clone(&stores[writer % stores.len()]);
                tasks.spawn(async move {
                    let place = key(&writer.to_string(), &format!("{round:02}"));
                    let new = unique(&format!("value {round}"));
                    // A single insert, a put, and a batch of which the second is refused.
                    let commands = match writer % 3 {
                        0 => vec![command(table, &place, Condition::Absent, Write::Put(new))],
                        1 => vec![put(table, &place, new)],
                        _ => {
                            let other = key(&writer.to_string(), &format!("{round:02} first"));
                            vec![put(table, &other, number(1)), put(table, &place, new)]
                        }
                    };
                    let position = commands.len() - 1;
                    match commit(&*store, commands).await {
                        Ok(_) => true,
                        Err(StoreError::Rejected { index, reason: Conflict::NotUnique }) => {
                            assert_eq!(index, position);
                            false
                        }
                        Err(other) => panic!("neither written nor refused: {other:?}"),
                    }
                });
            }
            let mut winners = 0;
            while let Some(won) = tasks.join_next().await {
                winners += usize::from(won.expect("no writer panics"));
            }
            assert_eq!(winners, 1, "round {round}");
        }
        assert_agrees(&*stores[1], table, &index, "after all").await;
    });
}

/// A batch exchanges unique values between partitions, which no order of single changes could.
#[test]
fn a_batch_exchanges_unique_values() {
    common::run(async {
        let (_, stores, table) = servers(2).await;
        let (a, b) = (key("a", "r"), key("b", "r"));
        let index = ready(&*stores[0], table, "u", unique_of(&["u"])).await;
        commit(&*stores[0], vec![put(table, &a, unique("x")), put(table, &b, unique("y"))])
            .await
            .expect("written");
        let refused = commit(&*stores[1], vec![put(table, &a, unique("y"))]).await;
        assert!(matches!(
            refused,
            Err(StoreError::Rejected { index: 0, reason: Conflict::NotUnique })
        ));
        for turn in 0..4 {
            let (first, second) = if turn % 2 == 0 { ("y", "x") } else { ("x", "y") };
            let commands = vec![
                put(table, &a, unique("between")),
                put(table, &b, unique(second)),
                put(table, &a, unique(first)),
            ];
            commit(&*stores[turn % 2], commands).await.expect("each command finds its value free");
        }
        assert_agrees(&*stores[0], table, &index, "after all").await;
    });
}

/// Values that are there twice: the index says so, and refuses nothing any more on any server.
#[test]
fn what_is_not_unique_refuses_nothing() {
    common::run(async {
        let (_, stores, table) = servers(2).await;
        for n in 0..100 {
            let text = if n == 99 { "7".to_owned() } else { n.to_string() };
            let place = key(&(n % 5).to_string(), &n.to_string());
            commit(&*stores[0], vec![put(table, &place, unique(&text))]).await.expect("written");
        }
        let index = declare(&*stores[0], table, "u", unique_of(&["u"])).await;
        assert_eq!(index.state, IndexState::NotUnique);
        let give_up = Instant::now() + Duration::from_secs(10);
        for store in &stores {
            // Another server may have judged so for as long as it takes to see the catalogue.
            while let Err(reason) =
                refused(commit(&**store, vec![put(table, &key("new", "r"), unique("3"))]).await)
            {
                assert_eq!(reason, Conflict::NotUnique);
                assert!(Instant::now() < give_up, "it is no longer judged");
            }
        }
    });
}

/// The server that builds is gone in the middle, and another goes on.
#[test]
fn another_server_goes_on_building() {
    common::run(async {
        let url = TestPostgres::shared().create_database();
        let first = open(&url).await;
        let table = common::table(&*first).await;
        for start in 0..30 {
            let puts = (0..100).map(|n| {
                let n = start * 100 + n;
                put(table, &key(&format!("{}", n % 7), &format!("{n:05}")), number(n % 50))
            });
            commit(&*first, puts.collect()).await.expect("written");
        }
        let name = "n".parse().expect("a legal name");
        let index = first.create_index(table, &name, index_of(&["n"])).await.expect("declared");
        let give_up = Instant::now() + Duration::from_secs(30);
        while first.built(table, index.id).await.expect("it is there").examined == 0 {
            assert!(Instant::now() < give_up, "it is begun");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        // As if its process had ended.
        drop(first);
        let second = open(&url).await;
        let built = built(&*second, table, index.id).await;
        assert_eq!((built.state, built.examined), (IndexState::Ready, 3000), "none twice");
        assert_agrees(&*second, table, &index, "after another server went on").await;
    });
}

/// Entries of dropped indexes and tables are removed.
#[test]
fn entries_of_what_is_dropped_are_swept() {
    common::run(async {
        let (url, stores, table) = servers(1).await;
        let puts = (0..100).map(|n| put(table, &key("p", &n.to_string()), number(n)));
        commit(&*stores[0], puts.collect()).await.expect("written");
        let one = ready(&*stores[0], table, "one", index_of(&["n"])).await;
        ready(&*stores[0], table, "other", index_of(&["RowKey"])).await;
        let count = || {
            let sql = "SELECT count(*) FROM rowhouse.index_entries";
            TestPostgres::shared().execute(database(&url), sql).trim().parse::<usize>()
        };
        assert_eq!(count(), Ok(200));
        let wait_for = async |left: usize| {
            let give_up = Instant::now() + Duration::from_secs(30);
            while count() != Ok(left) {
                assert!(Instant::now() < give_up, "{left} are left");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        stores[0].drop_index(table, one.id).await.expect("dropped");
        wait_for(100).await;
        stores[0].drop_table(table).await.expect("dropped");
        wait_for(0).await;
    });
}

/// Entries that would have to be sorted cannot be read in time: the page is made without them.
#[test]
fn a_page_is_made_without_entries_that_take_too_long() {
    common::run(async {
        let (url, stores, table) = servers(1).await;
        let puts = (0..100).map(|n| put(table, &key("p", &format!("{n:02}")), number(n % 10)));
        commit(&*stores[0], puts.collect()).await.expect("written");
        let index = ready(&*stores[0], table, "n", index_of(&["n"])).await;
        let entry = |n: i64| {
            let record = number(n);
            let row = Row { partition: "", row: "", record: record.as_ref() };
            entry(&index.keys, &row).expect("the record decodes").expect("it has one")
        };
        let spans = vec![Span { start: entry(3).into(), end: Some(entry(5).into()) }];
        let parts = vec![Lookup { index: index.id, spans }];
        let scan = |left: Duration| Scan {
            deadline: Instant::now() + left,
            limit: 7,
            ..scan_through(parts.clone())
        };
        let whole = page(&*stores[0], table, scan(Duration::from_mins(1))).await;
        assert_eq!(whole.examined, 20, "every entry of the span");
        let (client, connection) =
            tokio_postgres::connect(&url, tokio_postgres::NoTls).await.expect("a connection");
        let connection = tokio::spawn(connection);
        let lock = "BEGIN; LOCK TABLE rowhouse.index_entries IN ACCESS EXCLUSIVE MODE";
        client.batch_execute(lock).await.expect("it is locked");
        let began = Instant::now();
        let late = page(&*stores[0], table, scan(Duration::from_secs(2))).await;
        assert!(began.elapsed() >= Duration::from_secs(1), "half of the time was waited");
        assert!(began.elapsed() < Duration::from_secs(10), "no longer");
        drop(client);
        let _ = connection.await;
        let rows = |page: &Page| -> Vec<String> {
            page.rows.iter().map(|row| row.expect("it decodes").row.to_owned()).collect()
        };
        assert_eq!(rows(&late), ["03", "04", "13", "14", "23", "24", "33"]);
        assert_eq!((rows(&late), &late.next), (rows(&whole), &whole.next));
    });
}

/// Reads through an index, and how far one is, on what only reads.
#[test]
fn a_replica_reads_through_indexes() {
    common::run(async {
        let (url, stores, table) = servers(1).await;
        let puts = (0..10).map(|n| put(table, &key("p", &n.to_string()), number(n % 2)));
        commit(&*stores[0], puts.collect()).await.expect("written");
        let index = ready(&*stores[0], table, "n", index_of(&["n"])).await;
        let options = options(&url);
        let replica = PostgresReplica::new(&Url::new(url), &options, Arc::new(SystemClock))
            .expect("an address");
        assert_agrees(&replica, table, &index, "on a replica").await;
        let built = replica.built(table, index.id).await.expect("it is there");
        assert_eq!(built.state, IndexState::Ready);
        let name = "m".parse().expect("a legal name");
        assert!(replica.create_index(table, &name, index_of(&["m"])).await.is_err());
        assert!(replica.drop_index(table, index.id).await.is_err());
        assert!(replica.commit(Batch::default()).await.is_err());
        let unknown = Lookup { index: rowhouse_store::IndexId(99), spans: vec![only(b"x")] };
        let lost = replica.scan(table, scan_through(vec![unknown])).await;
        assert!(matches!(lost, Err(StoreError::Rejected { reason: Conflict::IndexNotFound, .. })));
        assert_eq!(page(&replica, table, common::scan_all()).await.rows.len(), 10);
    });
}
