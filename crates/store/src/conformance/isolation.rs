//! Many at once: snapshots, lost updates, serialisability.

use super::Engine;
use super::fixture::{
    command, commit, content, get, key, keys, n, number, open, page, put, read_all, refusal, rows,
    scan_all, write, write_all,
};
use crate::{Condition, Conflict, Store, StoreError, TableId, Write};
use rowhouse_types::{EntityKey, Etag};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Rewrites the keys together, each time with another number, while others read them all: they must
/// always see one number.
async fn rewrite_and_read(store: &Arc<dyn Store>, table: TableId, places: Vec<EntityKey>) {
    const ROUNDS: i64 = 25;
    let puts = |n| places.iter().map(|key| put(table, key, number(n))).collect();
    write_all(&**store, puts(0)).await;
    let done = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = (0..3)
        .map(|_| {
            let (store, done) = (Arc::clone(store), Arc::clone(&done));
            let count = places.len();
            tokio::spawn(async move {
                let mut pages = 0;
                while pages < 5 || !done.load(Ordering::SeqCst) {
                    let page = page(&*store, table, scan_all()).await;
                    let rows = rows(&page);
                    assert_eq!(rows.len(), count);
                    let seen: BTreeSet<_> = rows.iter().map(|(_, _, record)| n(record)).collect();
                    assert_eq!(seen.len(), 1, "a page shows one batch, not a part: {seen:?}");
                    pages += 1;
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    for round in 1..=ROUNDS {
        write_all(&**store, puts(round)).await;
        tokio::task::yield_now().await;
    }
    done.store(true, Ordering::SeqCst);
    for reader in readers {
        reader.await.expect("a reader saw what it should");
    }
}

/// A hundred entities of one partition, rewritten by batches.
pub async fn page_is_a_snapshot_of_a_partition(engine: &dyn Engine) {
    let (store, table) = open(engine).await;
    let places = (0..100).map(|n| key("p", &n.to_string())).collect();
    rewrite_and_read(&store, table, places).await;
}

/// A hundred entities of ten partitions, rewritten by batches.
pub async fn page_is_one_snapshot(engine: &dyn Engine) {
    let (store, table) = open(engine).await;
    let places = (0..100).map(|n| key(&(n % 10).to_string(), &n.to_string())).collect();
    rewrite_and_read(&store, table, places).await;
}

/// Eight count together on one entity, each by read and conditional write.
pub async fn increments_by_etag_lose_nothing(engine: &dyn Engine) {
    const TASKS: i64 = 8;
    const EACH: i64 = 10;
    let (store, table) = open(engine).await;
    let counter = key("p", "counter");
    write(&*store, put(table, &counter, number(0))).await;
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let (store, counter) = (Arc::clone(&store), counter.clone());
            tokio::spawn(async move {
                let mut left = EACH;
                while left > 0 {
                    let found = get(&*store, table, &counter).await.expect("the counter is there");
                    let tag = Etag::new(found.as_ref().timestamp());
                    let next = Write::Put(number(n(&found) + 1));
                    let next = command(table, &counter, Condition::Matches(tag), next);
                    match commit(&*store, vec![next]).await {
                        Ok(_) => left -= 1,
                        result => assert_eq!(refusal(result), (0, Conflict::ConditionNotMet)),
                    }
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("a task counted to its end");
    }
    let found = get(&*store, table, &counter).await.expect("the counter is there");
    assert_eq!(n(&found), TASKS * EACH);
}

/// Money moves between ten places; the batches name the state that they are based on, so the sum stays.
pub async fn batches_are_serialisable(engine: &dyn Engine) {
    const PLACES: usize = 10;
    let (store, table) = open(engine).await;
    let places: Vec<_> = (0..PLACES).map(|n| key("p", &n.to_string())).collect();
    write_all(&*store, places.iter().map(|key| put(table, key, number(100))).collect()).await;
    let movers: Vec<_> = (0..6usize)
        .map(|mover| {
            let (store, places) = (Arc::clone(&store), places.clone());
            tokio::spawn(async move {
                let mut moved = 0;
                for step in 0..40usize {
                    let (from, to) = ((mover * 3 + step) % PLACES, (mover + step * 7) % PLACES);
                    if from == to {
                        continue;
                    }
                    let mut commands = Vec::new();
                    for (place, change) in [(&places[from], -1), (&places[to], 1)] {
                        let found = get(&*store, table, place).await.expect("the place is there");
                        let tag = Condition::Matches(Etag::new(found.as_ref().timestamp()));
                        let changed = Write::Put(number(n(&found) + change));
                        commands.push(command(table, place, tag, changed));
                    }
                    match commit(&*store, commands).await {
                        Ok(_) => moved += 1,
                        result => assert_eq!(refusal(result).1, Conflict::ConditionNotMet),
                    }
                    tokio::task::yield_now().await;
                }
                moved
            })
        })
        .collect();
    let mut moved = 0;
    for mover in movers {
        let page = page(&*store, table, scan_all()).await;
        let sum: i64 = rows(&page).iter().map(|(_, _, record)| n(record)).sum();
        assert_eq!(sum, 100 * i64::try_from(PLACES).expect("few"), "while money moves");
        moved += mover.await.expect("a mover moved to its end");
    }
    assert!(moved > 0, "something moved");
    let all = read_all(&*store, table, 3).await;
    let sum: i64 = all.iter().map(|(_, _, record)| n(record)).sum();
    assert_eq!(sum, 100 * i64::try_from(PLACES).expect("few"), "in the end");
}

/// Each of several tasks reads its own writes at once, by key and by scan.
pub async fn answered_writes_are_seen(engine: &dyn Engine) {
    let (store, table) = open(engine).await;
    let tasks: Vec<_> = (0..4)
        .map(|task| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                let key = key(&format!("p{task}"), "r");
                for round in 0..15 {
                    write(&*store, put(table, &key, number(round))).await;
                    let found = get(&*store, table, &key).await.expect("just written");
                    assert_eq!(content(&found), number(round));
                    let page = page(&*store, table, scan_all()).await;
                    let mine = format!("p{task}/r");
                    let at = keys(&page).iter().position(|key| *key == mine);
                    assert_eq!(n(&rows(&page)[at.expect("just written")].2), round);
                    write(&*store, command(table, &key, Condition::Exists, Write::Delete)).await;
                    assert_eq!(get(&*store, table, &key).await, None);
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("a task read what it wrote");
    }
}

/// Ten rounds of ten inserts.
pub async fn one_of_many_inserts_wins(engine: &dyn Engine) {
    let (store, table) = open(engine).await;
    for round in 0..10 {
        let key = key("p", &round.to_string());
        let tasks: Vec<_> = (0..10)
            .map(|task| {
                let (store, key) = (Arc::clone(&store), key.clone());
                let insert = command(table, &key, Condition::Absent, Write::Put(number(task)));
                tokio::spawn(async move { (task, commit(&*store, vec![insert]).await) })
            })
            .collect();
        let mut winners = Vec::new();
        for task in tasks {
            match task.await.expect("an insert was answered") {
                (task, Ok(_)) => winners.push(task),
                (_, Err(StoreError::Rejected { index: 0, reason: Conflict::EntityExists })) => {}
                (_, other) => panic!("round {round}: {other:?}"),
            }
        }
        assert_eq!(winners.len(), 1, "round {round}");
        let found = get(&*store, table, &key).await.expect("just inserted");
        assert_eq!(n(&found), winners[0], "round {round}");
    }
}
