//! Tables: names, listing, drop and re-creation, placement, policies.

use super::Engine;
use super::fixture::{
    account, command, commit, get, is_unreachable, key, number, put, read_all, refusal, table,
    write,
};
use crate::{Condition, Conflict, Placement, Store, TableId, Write};
use rowhouse_types::{FoldedName, StoredPolicy, TableName, Timestamp};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

fn name(text: &str) -> TableName {
    text.parse().expect("a legal table name")
}

/// Found in any case, refused in any case, shown in the case of its creation.
pub async fn table_names_ignore_case(engine: &dyn Engine) {
    let store = engine.open().await;
    let account = account(&*store, "first").await.id;
    let created =
        store.create_table(account, &name("PeoPle"), Placement::default()).await.expect("created");
    assert_eq!((created.account, created.name.as_str()), (account, "PeoPle"));
    for spelling in ["PeoPle", "people", "PEOPLE"] {
        let found = store.table(account, &name(spelling)).await.expect("the lookup succeeds");
        let found = found.expect("the table is there");
        assert_eq!((found.id, found.name.as_str()), (created.id, "PeoPle"), "{spelling}");
        assert_eq!(found.created, created.created, "{spelling}");
        let again = store.create_table(account, &name(spelling), Placement::default()).await;
        assert_eq!(refusal(again), (0, Conflict::TableExists), "{spelling}");
    }
    let other = store.table(account, &name("Peoples")).await.expect("the lookup succeeds");
    assert!(other.is_none());
    let nowhere =
        store.create_table(crate::AccountId(u32::MAX), &name("People"), Placement::default()).await;
    assert_eq!(refusal(nowhere), (0, Conflict::AccountNotFound));
}

/// Whole, in pages, and from names that are no tables.
pub async fn tables_are_listed_in_order(engine: &dyn Engine) {
    let store = engine.open().await;
    let owner = account(&*store, "first").await.id;
    let other = account(&*store, "second").await.id;
    table(&*store, other, "Elsewhere").await;
    for text in ["zebra", "Yak", "ant10", "Ant2", "bee", "ANT1", "B00"] {
        table(&*store, owner, text).await;
    }
    let sorted = ["ANT1", "ant10", "Ant2", "B00", "bee", "Yak", "zebra"];
    let list = async |from: Option<&str>, limit| {
        let from = from.map(FoldedName::of);
        let found = store.tables(owner, from.as_ref(), limit).await.expect("the listing succeeds");
        found.iter().map(|table| table.name.as_str().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(list(None, 100).await, sorted);
    assert_eq!(list(None, 3).await, sorted[..3]);
    assert_eq!(list(Some("ant2"), 2).await, sorted[2..4], "from the name itself on");
    assert_eq!(list(Some("ANT2"), 2).await, sorted[2..4], "whatever its case");
    assert_eq!(list(Some("c"), 100).await, sorted[5..], "from a name that is no table");
    assert_eq!(list(Some("zz"), 100).await, [""; 0]);
    assert_eq!(list(Some("zebra"), 1).await, ["zebra"]);
    let yak = store.table(owner, &name("yak")).await.expect("the lookup succeeds");
    store.drop_table(yak.expect("the table is there").id).await.expect("dropped");
    assert_eq!(list(Some("c"), 100).await, ["zebra"]);
    let nobodys = store.tables(crate::AccountId(u32::MAX), None, 100).await;
    assert!(nobodys.expect("the listing succeeds").is_empty());
}

/// Again and again under one name.
pub async fn recreated_table_is_empty(engine: &dyn Engine) {
    let store = engine.open().await;
    let owner = account(&*store, "first").await.id;
    let place = key("p", "r");
    let mut old: Vec<TableId> = Vec::new();
    for round in 0..5 {
        let id = table(&*store, owner, if round % 2 == 0 { "Same" } else { "sAME" }).await;
        assert!(!old.contains(&id), "the id is new");
        assert!(read_all(&*store, id, 100).await.is_empty(), "round {round}");
        let absent = command(id, &place, Condition::Absent, Write::Put(number(round)));
        write(&*store, absent).await;
        for dropped in &old {
            assert!(is_unreachable(&*store, *dropped, &place).await);
            let late = commit(&*store, vec![put(*dropped, &place, number(0))]).await;
            assert_eq!(refusal(late), (0, Conflict::TableNotFound));
        }
        store.drop_table(id).await.expect("dropped");
        assert_eq!(refusal(store.drop_table(id).await), (0, Conflict::TableNotFound));
        assert!(is_unreachable(&*store, id, &place).await);
        old.push(id);
    }
    let unknown = commit(&*store, vec![put(TableId(1 << 40), &place, number(0))]).await;
    assert_eq!(refusal(unknown), (0, Conflict::TableNotFound));
}

/// Writers hold an id and go on while the table is dropped and created again.
pub async fn dropped_table_takes_no_writes(engine: &dyn Engine) {
    let store = engine.open().await;
    let owner = account(&*store, "first").await.id;
    for round in 0..4 {
        let id = table(&*store, owner, "Busy").await;
        let dropped = Arc::new(AtomicBool::new(false));
        let writers: Vec<_> = (0..4)
            .map(|writer| {
                let (store, dropped) = (Arc::clone(&store), Arc::clone(&dropped));
                tokio::spawn(write_until_refused(store, id, writer, dropped))
            })
            .collect();
        while read_all(&*store, id, 1000).await.len() < 4 {
            tokio::task::yield_now().await;
        }
        store.drop_table(id).await.expect("dropped");
        dropped.store(true, Ordering::SeqCst);
        let again = table(&*store, owner, "Busy").await;
        assert!(read_all(&*store, again, 100).await.is_empty(), "round {round}");
        for writer in writers {
            writer.await.expect("a writer was refused in the end");
        }
        assert!(read_all(&*store, again, 100).await.is_empty(), "round {round}");
        assert!(is_unreachable(&*store, id, &key("p0", "0")).await, "round {round}");
        store.drop_table(again).await.expect("dropped");
    }
}

async fn write_until_refused(
    store: Arc<dyn Store>,
    table: TableId,
    writer: usize,
    dropped: Arc<AtomicBool>,
) {
    for n in 0.. {
        let late = dropped.load(Ordering::SeqCst);
        let key = key(&format!("p{writer}"), &n.to_string());
        match commit(&*store, vec![put(table, &key, number(n))]).await {
            Ok(_) => assert!(!late, "a write that began after the drop was acknowledged"),
            result => {
                assert_eq!(refusal(result), (0, Conflict::TableNotFound));
                return;
            }
        }
        tokio::task::yield_now().await;
    }
}

/// Groups and routes come back.
pub async fn placement_is_kept(engine: &dyn Engine) {
    let store = engine.open().await;
    let owner = account(&*store, "first").await.id;
    let cases = [
        ("Default", Placement::default()),
        ("Grouped", Placement { group: Some("gruppe ä".into()), route_chars: None }),
        ("Routed", Placement { group: Some("".into()), route_chars: Some(u32::MAX) }),
    ];
    for (text, placement) in cases {
        let created = store.create_table(owner, &name(text), placement.clone()).await;
        assert_eq!(created.expect("created").placement, placement, "{text}");
        let found = store.table(owner, &name(text)).await.expect("the lookup succeeds");
        assert_eq!(found.expect("the table is there").placement, placement, "{text}");
    }
}

/// Set, replaced, emptied; gone with the table.
pub async fn policies_are_replaced(engine: &dyn Engine) {
    let store = engine.open().await;
    let owner = account(&*store, "first").await.id;
    let id = table(&*store, owner, "Guarded").await;
    let policies = async || {
        let found = store.table(owner, &name("Guarded")).await.expect("the lookup succeeds");
        found.expect("the table is there").policies.clone()
    };
    let policy = |id: &str, start, permission: Option<&str>| StoredPolicy {
        id: id.into(),
        start,
        expiry: Some(Timestamp::MAX),
        permission: permission.map(Into::into),
    };
    assert!(policies().await.is_empty());
    let lists = [
        vec![policy("z", None, None), policy("a", Some(Timestamp::EDM_MIN), Some("raud"))],
        vec![policy("ä ' \"", Some(Timestamp::MAX), Some(""))],
        vec![],
        vec![policy(&"x".repeat(64), None, Some("r")); 5],
    ];
    for list in lists {
        store.set_policies(id, list.clone()).await.expect("set");
        assert_eq!(policies().await, list);
    }
    write(&*store, put(id, &key("p", "r"), number(1))).await;
    assert!(get(&*store, id, &key("p", "r")).await.is_some());
    store.drop_table(id).await.expect("dropped");
    assert_eq!(refusal(store.set_policies(id, vec![]).await), (0, Conflict::TableNotFound));
    table(&*store, owner, "Guarded").await;
    assert!(policies().await.is_empty(), "a new table has none");
}

/// By nobody who looks while it is made, not in a snapshot, and not after a restart.
pub async fn a_table_begins_with_its_policies(engine: &dyn Engine) {
    let store = engine.open().await;
    let owner = account(&*store, "first").await.id;
    let policy = |id: &str| StoredPolicy {
        id: id.into(),
        start: Some(Timestamp::EDM_MIN),
        expiry: None,
        permission: Some("r".into()),
    };
    let policies = vec![policy("z"), policy("ä ' \""), policy(&"x".repeat(200))];
    let made = Arc::new(AtomicBool::new(false));
    let watcher = {
        let (store, made) = (Arc::clone(&store), Arc::clone(&made));
        tokio::spawn(async move {
            while !made.load(Ordering::SeqCst) {
                let found = store.tables(owner, None, 100).await.expect("the listing succeeds");
                assert!(found.iter().all(|table| table.policies.len() == 3), "{found:?}");
                tokio::task::yield_now().await;
            }
        })
    };
    for n in 0..20 {
        let (name, placement) = (name(&format!("Guarded{n}")), Placement::default());
        let created = store.create_table_with_policies(
            owner,
            &name,
            placement.clone(),
            policies.clone(),
            u64::MAX,
        );
        let created = created.await.expect("created");
        assert_eq!(created.policies, policies);
        let found = store.table(owner, &name).await.expect("the lookup succeeds");
        assert_eq!(found.expect("the table is there").policies, policies);
        let again =
            store.create_table_with_policies(owner, &name, placement, Vec::new(), u64::MAX).await;
        assert_eq!(refusal(again), (0, Conflict::TableExists));
    }
    made.store(true, Ordering::SeqCst);
    watcher.await.expect("none is found without its policies");
    let snapshot = store.snapshot().await.expect("a snapshot");
    let saved = snapshot.tables(owner).await.expect("the listing succeeds");
    drop(snapshot);
    assert_eq!(saved.len(), 20);
    assert!(saved.iter().all(|table| table.policies == policies), "{saved:?}");
    let Some(store) = engine.reopen(store).await else { return };
    let kept = store.tables(owner, None, 100).await.expect("the listing succeeds");
    assert_eq!(kept.len(), 20);
    assert!(kept.iter().all(|table| table.policies == policies), "{kept:?}");
}

/// Many at the same time, beside another account that has as many as it likes.
pub async fn an_account_has_no_more_tables_than_it_may(engine: &dyn Engine) {
    const MOST: u64 = 5;
    let store = engine.open().await;
    let owner = account(&*store, "first").await.id;
    let other = account(&*store, "second").await.id;
    for n in 0..MOST + 3 {
        let name = name(&format!("Other{n}"));
        store.create_table(other, &name, Placement::default()).await.expect("created");
    }
    let create = |store: &Arc<dyn Store>, text: String, most: u64| {
        let store = Arc::clone(store);
        async move {
            let placement = Placement::default();
            let (name, policies) = (name(&text), Vec::new());
            store.create_table_with_policies(owner, &name, placement, policies, most).await
        }
    };
    let creating: Vec<_> =
        (0..3 * MOST).map(|n| tokio::spawn(create(&store, format!("Table{n}"), MOST))).collect();
    let mut created = Vec::new();
    for task in creating {
        match task.await.expect("no panic") {
            Ok(table) => created.push(table),
            refused => assert_eq!(refusal(refused), (0, Conflict::TooManyTables)),
        }
    }
    assert_eq!(created.len() as u64, MOST);
    let listed = store.tables(owner, None, 100).await.expect("the listing succeeds");
    assert_eq!(listed.len() as u64, MOST);
    // One that is there is told apart from one too many, under lower limits too.
    let there = created[0].name.as_str().to_owned();
    let again = create(&store, there, 0).await;
    assert_eq!(refusal(again), (0, Conflict::TableExists));
    let lower = create(&store, "Lower".to_owned(), MOST - 1).await;
    assert_eq!(refusal(lower), (0, Conflict::TooManyTables));
    create(&store, "Higher".to_owned(), MOST + 1).await.expect("there is room");
    for table in created.iter().take(2) {
        store.drop_table(table.id).await.expect("dropped");
    }
    create(&store, "Later".to_owned(), MOST).await.expect("dropped ones do not count");
    let full = create(&store, "Last".to_owned(), MOST).await;
    assert_eq!(refusal(full), (0, Conflict::TooManyTables));
    let Some(store) = engine.reopen(store).await else { return };
    let full = create(&store, "Last".to_owned(), MOST).await;
    assert_eq!(refusal(full), (0, Conflict::TooManyTables), "after a restart too");
}
