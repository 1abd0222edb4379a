//! No request works longer on the thread of its task than a poll may: what takes long is done elsewhere.

use rowhouse_env::SystemClock;
use rowhouse_env::polls::{POLL_CPU_MAX, watched};
use rowhouse_query::{Filter, Order};
use rowhouse_service_table::{
    Action, Caller, DeleteQuery, EntityQuery, NewIndex, Operation, TableService,
};
use rowhouse_store::model::ModelStore;
use rowhouse_store::{AccountId, NewAccount, Store as _};
use rowhouse_types::{EntityKey, Grant, RecordBuilder, TableName, Timestamp, ValueRef, limits};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

const OWNER: Grant = Grant::AccountKey;

async fn service() -> (TableService, AccountId) {
    let store = Arc::new(ModelStore::new(Arc::new(SystemClock)));
    let name = "acct".parse().unwrap();
    let keys = [Box::from(&b"1"[..]), Box::from(&b"2"[..])];
    let account = store.create_account(NewAccount { name, keys }).await.unwrap().id;
    (TableService::new(store), account)
}

fn people() -> TableName {
    "People".parse().unwrap()
}

/// A table with as many indexes of as many properties as there can be, and one entity.
async fn with_indexes() -> (TableService, AccountId) {
    let (service, account) = service().await;
    let caller = Caller { account, grant: &OWNER };
    service.create_table(caller, &people(), u64::MAX).await.unwrap();
    let mut builder = RecordBuilder::new();
    builder.push("P0", ValueRef::Int32(1)).unwrap();
    let action = Action::Insert(builder.finish(Timestamp::default()));
    let key = EntityKey::new("p", "r").unwrap();
    service.write(caller, Operation { table: people(), key, action }).await.unwrap();
    for at in 0..limits::INDEXES_MAX {
        let first = at * limits::INDEX_PROPERTIES_MAX;
        let properties = first..first + limits::INDEX_PROPERTIES_MAX;
        let properties = properties.map(|n| format!("P{n}").into()).collect();
        let new = NewIndex { name: None, properties, unique: false };
        service.create_index(caller, &people(), new).await.unwrap();
    }
    (service, account)
}

/// As much of a filter as is allowed, made of such parts.
fn longest(by: &str, part: impl Fn(usize) -> String) -> Filter {
    let mut text = String::new();
    for n in 0.. {
        let part = part(n);
        if limits::FILTER_BYTES_MAX < text.len() + by.len() + part.len() {
            break;
        }
        let _ = write!(text, "{}{part}", if n == 0 { "" } else { by });
    }
    Filter::parse(&text).unwrap().unwrap()
}

/// Filters that planning takes longest for.
fn filters() -> Vec<(&'static str, Filter)> {
    vec![
        ("one value of each", longest(" or ", |n| format!("P{n} eq {n}"))),
        ("each property", longest(" or ", |n| format!("P{} eq {n}", n % 64))),
        ("each property, all", longest(" and ", |n| format!("P{} ge {n}", n % 64))),
        ("few branches", longest(" or ", |n| format!("(P{} eq {n} and P1 gt {n})", n % 64))),
        ("ranges", longest(" or ", |n| format!("(P{0} gt {n} and P{0} lt {1})", n % 4, n + 1))),
        ("keys", longest(" or ", |n| format!("(PartitionKey eq '{n}' and RowKey gt '{n}')"))),
        ("values not wanted", longest(" and ", |n| format!("P{} ne {n}", n % 8))),
        (
            "nested",
            longest(" and ", |n| format!("(P{} eq {n} or (P1 eq 1 and P{} eq 2))", n % 64, n % 7)),
        ),
    ]
}

fn query(filter: &Filter) -> EntityQuery {
    EntityQuery {
        filter: Some(filter.clone()),
        select: None,
        order: None,
        from: None,
        limit: 1000,
        limited: true,
        deadline: Instant::now() + Duration::from_mins(1),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn planning_holds_no_thread() {
    let (service, account) = with_indexes().await;
    let caller = Caller { account, grant: &OWNER };
    for (name, filter) in filters() {
        let over = |what: &'static str| {
            move |took: Duration| panic!("{what}, {name}: a poll took {took:?} of {POLL_CPU_MAX:?}")
        };
        let soon = query(&filter).deadline;
        watched(service.query(caller, &people(), query(&filter)), over("query")).await.unwrap();
        watched(service.explain(caller, &people(), query(&filter)), over("explain")).await.unwrap();
        for order in ["P0", "RowKey", "Other desc"] {
            let ordered = EntityQuery { order: Order::parse(order).unwrap(), ..query(&filter) };
            watched(service.query(caller, &people(), ordered), over("order")).await.unwrap();
        }
        let table = people();
        let counted = service.count(caller, &table, Some(filter.clone()), soon);
        watched(counted, over("count")).await.unwrap();
        let delete = DeleteQuery {
            filter: Some(filter.clone()),
            from: None,
            limit: 10,
            dry_run: true,
            deadline: soon,
        };
        watched(service.delete_step(caller, &people(), delete), over("delete")).await.unwrap();
    }
}

/// All tables that satisfy a filter, page by page, each of which ends at its deadline.
#[tokio::test(flavor = "multi_thread")]
async fn listing_tables_holds_no_thread() {
    const TABLES: usize = 3_000;
    let (service, account) = service().await;
    let caller = Caller { account, grant: &OWNER };
    for n in 0..TABLES {
        service
            .create_table(caller, &format!("Table{n:05}").parse().unwrap(), u64::MAX)
            .await
            .unwrap();
    }
    let text: Vec<String> = (0..900).map(|n| format!("TableName eq 'Other{n}'")).collect();
    let text = format!("{} or TableName ge 'Table02999'", text.join(" or "));
    let filter = Filter::parse(&text).unwrap();
    let over = |took: Duration| panic!("a poll took {took:?} of {POLL_CPU_MAX:?}");
    let far = Instant::now() + Duration::from_mins(5);
    let all = service.list_tables(caller, filter.clone(), None, 1000, far);
    let page = watched(all, over).await.unwrap();
    assert_eq!((page.names.len(), page.next), (1, None));
    // A page that is late is short, and goes on where it was.
    let (mut from, mut pages, mut found) = (None, 0, 0);
    loop {
        let late = service.list_tables(caller, filter.clone(), from, 1000, Instant::now());
        let page = watched(late, over).await.unwrap();
        (pages, found) = (pages + 1, found + page.names.len());
        from = page.next;
        if from.is_none() {
            break;
        }
    }
    assert!(found == 1 && pages > 1, "{found} in {pages} pages");
}
