//! Closing and opening again.

use super::Engine;
use super::fixture::{
    account, command, commit, get, key, number, open, put, read_all, table, write, write_all,
};
use crate::{Batch, Condition, NewAccount, Placement, StoreError, Write};
use rowhouse_types::{StoredPolicy, Timestamp};
use std::sync::Arc;

/// Accounts, keys, settings, tables, placements, policies, entities; and what was removed stays away.
pub async fn everything_survives_reopening(engine: &dyn Engine) {
    let (store, things) = open(engine).await;
    let second = account(&*store, "second").await;
    let removed = account(&*store, "removed").await;
    let keys: [Box<[u8]>; 2] = [Box::from([1, 0, 255]), Box::from([])];
    store.set_account_keys(second.id, second.version, keys.clone()).await.expect("set");
    store.set_account_setting(second.id, None, "s", Some(Box::from(*b"\0v"))).await.expect("set");
    let placement = Placement { group: Some("g".into()), route_chars: Some(3) };
    let name = "PlaCed".parse().expect("legal");
    let placed = store.create_table(second.id, &name, placement).await.expect("created");
    let policies = vec![StoredPolicy {
        id: "p".into(),
        start: None,
        expiry: Some(Timestamp::MAX),
        permission: Some("r".into()),
    }];
    store.set_policies(placed.id, policies.clone()).await.expect("set");
    let dropped = table(&*store, second.id, "Dropped").await;
    let gone = table(&*store, removed.id, "Gone").await;
    for n in 0..50 {
        let place = key(&(n % 3).to_string(), &n.to_string());
        for table in [things, placed.id, dropped, gone] {
            write(&*store, put(table, &place, number(n))).await;
        }
    }
    write(&*store, command(things, &key("0", "0"), Condition::Exists, Write::Delete)).await;
    store.drop_table(dropped).await.expect("dropped");
    store.remove_account(removed.id).await.expect("removed");
    let (before, other) =
        (read_all(&*store, things, 100).await, read_all(&*store, placed.id, 100).await);
    assert_eq!((before.len(), other.len()), (49, 50));
    let tag = get(&*store, things, &key("1", "1")).await;
    let version = store.accounts().await.expect("listed")[1].version;

    let Some(store) = engine.reopen(store).await else { return };
    store.ready().expect("an open store is ready");
    let accounts = store.accounts().await.expect("listed");
    let names: Vec<_> = accounts.iter().map(|account| account.name.as_str()).collect();
    assert_eq!(names, ["first", "second"]);
    assert_eq!((accounts[1].id, accounts[1].version), (second.id, version));
    assert_eq!((&accounts[1].keys, accounts[1].created), (&keys, second.created));
    assert_eq!(accounts[1].settings.get("s").map(AsRef::as_ref), Some(&b"\0v"[..]));
    let tables = store.tables(second.id, None, 10).await.expect("listed");
    assert_eq!(tables.len(), 1);
    assert_eq!((tables[0].id, tables[0].name.as_str()), (placed.id, "PlaCed"));
    assert_eq!((&tables[0].placement, tables[0].created), (&placed.placement, placed.created));
    assert_eq!(tables[0].policies, policies);
    assert_eq!(read_all(&*store, things, 100).await, before);
    assert_eq!(read_all(&*store, placed.id, 100).await, other);
    assert_eq!(get(&*store, things, &key("1", "1")).await, tag, "Timestamps too");
    let again = table(&*store, second.id, "Dropped").await;
    assert!(read_all(&*store, again, 10).await.is_empty());
}

/// The highest ids are those of what was dropped right before.
pub async fn ids_are_not_reused_after_reopening(engine: &dyn Engine) {
    let (mut store, _) = open(engine).await;
    let (mut tables, mut accounts) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let owner = account(&*store, "passing").await.id;
        let id = table(&*store, owner, "Passing").await;
        assert!(!tables.contains(&id) && !accounts.contains(&owner), "{id:?}, {owner:?}");
        tables.push(id);
        accounts.push(owner);
        write(&*store, put(id, &key("p", "r"), number(1))).await;
        store.drop_table(id).await.expect("dropped");
        store.remove_account(owner).await.expect("removed");
        let Some(reopened) = engine.reopen(store).await else { return };
        store = reopened;
    }
}

/// Every kind of write.
pub async fn close_refuses_writes(engine: &dyn Engine) {
    let (store, table) = open(engine).await;
    let owner = account(&*store, "second").await.id;
    store.ready().expect("an open store is ready");
    store.close().await.expect("closed");
    assert!(store.ready().is_err(), "a closed store is not ready");
    let keys = || [Box::from([]), Box::from([])];
    let new = NewAccount { name: "third".parse().expect("legal"), keys: keys() };
    let name = "Late".parse().expect("legal");
    let refusals = [
        store.commit(Batch::of(put(table, &key("p", "r"), number(1)))).await.map(drop),
        store.create_table(owner, &name, Placement::default()).await.map(drop),
        store.drop_table(table).await,
        store.set_policies(table, vec![]).await,
        store.create_account(new).await.map(drop),
        store.set_account_keys(owner, 1, keys()).await,
        store.set_account_setting(owner, None, "s", None).await,
        store.remove_account(owner).await,
    ];
    for (which, result) in refusals.into_iter().enumerate() {
        assert!(matches!(result, Err(StoreError::Unavailable(_))), "write {which}: {result:?}");
    }
    store.close().await.expect("closing again does nothing");
}

/// Writers go on while the store closes.
pub async fn close_finishes_what_it_accepted(engine: &dyn Engine) {
    let (store, table) = open(engine).await;
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                let mut answered = Vec::new();
                for n in 0.. {
                    let key = key(&format!("p{writer}"), &n.to_string());
                    let pair = vec![
                        put(table, &key, number(n)),
                        put(
                            table,
                            &super::fixture::key(&format!("q{writer}"), &n.to_string()),
                            number(n),
                        ),
                    ];
                    match commit(&*store, pair).await {
                        Ok(_) => answered.push(key),
                        Err(StoreError::Unavailable(_)) => break,
                        Err(other) => panic!("{other}"),
                    }
                    tokio::task::yield_now().await;
                }
                answered
            })
        })
        .collect();
    while read_all(&*store, table, 1000).await.len() < 20 {
        tokio::task::yield_now().await;
    }
    store.close().await.expect("closed");
    let mut answered = Vec::new();
    for writer in writers {
        answered.extend(writer.await.expect("a writer was refused in the end"));
    }
    let Some(store) = engine.reopen(store).await else { return };
    for key in &answered {
        assert!(get(&*store, table, key).await.is_some(), "an answered write is there");
    }
    let (mut left, mut right) = (Vec::new(), Vec::new());
    for (partition, row, _) in read_all(&*store, table, 1000).await {
        let (half, writer) = partition.split_at(1);
        let side = if half == "p" { &mut left } else { &mut right };
        side.push((writer.to_owned(), row));
    }
    assert_eq!(left, right, "no batch is half there");
    write_all(&*store, vec![put(table, &key("p", "after"), number(0))]).await;
}
