//! Indexes, orders and explanations on the naive model: what HTTP and engines cannot change.

use rowhouse_env::SystemClock;
use rowhouse_query::{Filter, Order};
use rowhouse_service_table::{
    Action, Advice, Caller, EntityPage, EntityQuery, Explanation, IndexState, NewIndex, Operation,
    Place, Reach, TableError, TableService, WantedIndex,
};
use rowhouse_store::model::ModelStore;
use rowhouse_store::{AccountId, NewAccount, Store as _};
use rowhouse_types::grant::{Letters, ResourceTypes, Services};
use rowhouse_types::{
    EntityKey, FoldedName, Grant, IndexName, KeyRange, Position, Record, RecordBuilder, TableName,
    Timestamp, ValueRef,
};
use std::sync::Arc;
use std::time::{Duration, Instant};

const OWNER: Grant = Grant::AccountKey;

struct Fixture {
    service: TableService,
    account: AccountId,
}

impl Fixture {
    /// `count` people in ten partitions: Email is unlike any other, City one of four, Age below 100 in all but each seventh.
    async fn new(count: usize) -> Self {
        let store = Arc::new(ModelStore::new(Arc::new(SystemClock)));
        let name = "acct".parse().unwrap();
        let keys = [Box::from(&b"1"[..]), Box::from(&b"2"[..])];
        let account = store.create_account(NewAccount { name, keys }).await.unwrap().id;
        let this = Self { service: TableService::new(store), account };
        this.service.create_table(this.with(&OWNER), &people(), u64::MAX).await.unwrap();
        for n in 0..count {
            let (partition, row) = (format!("p{}", n % 10), format!("{n:04}"));
            this.write(&partition, &row, Action::Insert(person(n))).await.unwrap();
        }
        this
    }

    fn with<'a>(&self, grant: &'a Grant) -> Caller<'a> {
        Caller { account: self.account, grant }
    }

    async fn write(
        &self,
        partition: &str,
        row: &str,
        action: Action,
    ) -> Result<Timestamp, TableError> {
        let key = EntityKey::new(partition, row).unwrap();
        self.service.write(self.with(&OWNER), Operation { table: people(), key, action }).await
    }

    async fn index(&self, properties: &str, unique: bool) -> Result<IndexState, TableError> {
        let properties = properties.split(',').map(Into::into).collect();
        let new = NewIndex { name: None, properties, unique };
        let view = self.service.create_index(self.with(&OWNER), &people(), new).await?;
        Ok(view.state)
    }

    async fn ask(&self, grant: &Grant, query: EntityQuery) -> Result<EntityPage, TableError> {
        self.service.query(self.with(grant), &people(), query).await
    }

    /// All pages of a query: the RowKeys, the plan of the last page and how much was looked at.
    async fn all(&self, grant: &Grant, query: &EntityQuery) -> (Vec<String>, String, u64) {
        let (mut rows, mut examined, mut query) = (Vec::new(), 0, query.clone());
        loop {
            let page = self.ask(grant, query.clone()).await.unwrap();
            examined += page.examined;
            assert!(page.rows.len() <= query.limit);
            rows.extend(page.rows.iter().map(|row| row.unwrap().row.to_owned()));
            match page.next {
                None => return (rows, page.plan.to_string(), examined),
                next => query.from = next,
            }
        }
    }

    async fn explain(&self, grant: &Grant, query: EntityQuery) -> Explanation {
        self.service.explain(self.with(grant), &people(), query).await.unwrap()
    }
}

fn people() -> TableName {
    "People".parse().unwrap()
}

fn person(n: usize) -> Record {
    let (email, city) = (format!("{n}@example.com"), ["Oslo", "Bergen", "Rome", "Turin"][n % 4]);
    let mut builder = RecordBuilder::new();
    builder.push("Email", ValueRef::String(&email)).unwrap();
    builder.push("City", ValueRef::String(city)).unwrap();
    if !n.is_multiple_of(7) {
        builder.push("Age", ValueRef::Int32(age(n))).unwrap();
    }
    builder.finish(Timestamp::default())
}

fn age(n: usize) -> i32 {
    i32::try_from(n * 37 % 100).unwrap()
}

fn query(filter: &str) -> EntityQuery {
    EntityQuery {
        filter: Filter::parse(filter).unwrap(),
        select: None,
        order: None,
        from: None,
        limit: 1000,
        limited: false,
        deadline: Instant::now() + Duration::from_mins(1),
    }
}

fn by(order: &str, filter: &str, limit: usize) -> EntityQuery {
    EntityQuery { order: Order::parse(order).unwrap(), limit, limited: true, ..query(filter) }
}

fn signature(range: KeyRange) -> Grant {
    let (table, permissions) = (FoldedName::of("People"), Letters::new("raud"));
    Grant::TableSignature { table, permissions, range }
}

#[tokio::test]
async fn a_query_takes_the_way_that_looks_at_least() {
    let f = Fixture::new(200).await;
    let plan = async |filter: &str| {
        let (rows, plan, examined) = f.all(&OWNER, &query(filter)).await;
        (plan, rows.len(), examined)
    };
    assert_eq!(plan("Email eq '7@example.com'").await, ("table-scan".to_owned(), 1, 200));
    f.index("Email", true).await.unwrap();
    f.index("City", false).await.unwrap();
    f.index("City,Age", false).await.unwrap();
    let cases = [
        ("Email eq '7@example.com'", "index(Email)", 1, 1),
        ("Email eq 'nobody'", "index(Email)", 0, 0),
        ("Email in ('7@example.com','8@example.com','x')", "index(Email)", 2, 2),
        ("City eq 'Rome'", "index(City)", 50, 50),
        ("City eq 'Rome' and Age lt 10", "index(City-Age)", 4, 4),
        ("City eq 'Rome' and contains(Email,'2@')", "index(City)", 10, 50),
        ("Email eq '7@example.com' or City eq 'Rome'", "index(Email,City)", 51, 51),
        ("Email eq '7@example.com' or Age eq 7", "table-scan", 3, 200),
        ("not (City eq 'x')", "table-scan", 200, 200),
        ("City ge 'A'", "table-scan", 200, 200),
        ("PartitionKey eq 'p7' and RowKey eq '0007' and Email eq '7@example.com'", "point", 1, 1),
        // Twenty entities are fewer than anybody weighs.
        ("PartitionKey eq 'p7' and Email eq '7@example.com'", "partition-scan", 1, 20),
        ("PartitionKey ge 'p5' and Email eq '7@example.com'", "index(Email)", 1, 1),
        ("PartitionKey lt 'p5' and Email eq '7@example.com'", "index(Email)", 0, 0),
        ("City eq 'a' and City eq 'b'", "index(", 0, 0),
        ("", "table-scan", 200, 200),
    ];
    for (filter, kind, found, examined) in cases {
        let (taken, rows, looked) = plan(filter).await;
        assert!(taken.starts_with(kind), "{filter}: {taken}");
        assert_eq!(rows, found, "{filter}");
        let least =
            if kind.starts_with("index") { looked <= examined + 1 } else { looked == examined };
        assert!(least, "{filter}: {looked} for {examined}");
    }
}

/// Whatever the plan, the answer is that of a scan, in the order of keys, page by page and counted.
#[tokio::test]
async fn indexes_change_no_answer() {
    let f = Fixture::new(120).await;
    let filters = [
        "Email ge '5' and City eq 'Oslo'",
        "City in ('Oslo','Rome') and Age gt 50",
        "Age lt 20 or Email eq '7@example.com'",
        "not (Age ge 5)",
        "Age ne 7",
        "startswith(Email,'1') and Age le 50",
        "RowKey eq '0033'",
        "PartitionKey ge 'p3' and PartitionKey lt 'p6' and Age lt 90",
        "City eq 'Rome' and (Age eq 1 or Age eq 3 or RowKey gt '01')",
    ];
    let grants = [OWNER, signature(KeyRange::partition("p3"))];
    let ask = async |filter: &str, grant: &Grant| {
        let mut answers = Vec::new();
        for limit in [1, 3, 1000] {
            for order in ["PartitionKey", "PartitionKey desc"] {
                answers.push(f.all(grant, &by(order, filter, limit)).await.0);
            }
        }
        let deadline = query("").deadline;
        let filter = Filter::parse(filter).unwrap();
        let count = f.service.count(f.with(grant), &people(), filter, deadline).await.unwrap();
        assert_eq!(count.count, answers[0].len() as u64);
        answers
    };
    let mut before = Vec::new();
    for filter in filters {
        for grant in &grants {
            before.push(ask(filter, grant).await);
        }
    }
    for properties in ["Age", "City,Age", "Email", "RowKey", "Timestamp"] {
        f.index(properties, false).await.unwrap();
    }
    let mut before = before.into_iter();
    for filter in filters {
        for grant in &grants {
            assert_eq!(ask(filter, grant).await, before.next().unwrap(), "{filter}");
        }
    }
}

#[tokio::test]
async fn counts_go_through_indexes() {
    let f = Fixture::new(200).await;
    f.index("City", false).await.unwrap();
    let count = async |grant: &Grant| {
        let filter = Filter::parse("City eq 'Rome'").unwrap();
        let counted = f.service.count(f.with(grant), &people(), filter, query("").deadline).await;
        let counted = counted.unwrap();
        (counted.count, counted.plan.to_string(), counted.examined)
    };
    assert_eq!(count(&OWNER).await, (50, "index(City)".to_owned(), 50));
    let even = signature(KeyRange { start: KeyRange::partition("p4").start, end: None });
    assert_eq!(count(&even).await, (30, "index".to_owned(), 30));
}

/// The order of a property is the same whether an index has it or it is sorted, at any size of page.
#[tokio::test]
async fn orders_by_a_property() {
    let f = Fixture::new(60).await;
    let mut ages: Vec<_> = (0..60).filter(|n| n % 7 != 0).map(|n| (age(n), n % 10, n)).collect();
    ages.sort_unstable();
    let expected: Vec<String> = ages.iter().map(|(_, _, n)| format!("{n:04}")).collect();
    let backwards: Vec<String> = expected.iter().rev().cloned().collect();
    let rome: Vec<String> =
        ages.iter().filter(|(_, _, n)| n % 4 == 2).map(|(_, _, n)| format!("{n:04}")).collect();
    let p3: Vec<String> =
        ages.iter().filter(|(_, p, _)| *p == 3).map(|(_, _, n)| format!("{n:04}")).collect();
    for kept in [false, true] {
        if kept {
            f.index("Age", false).await.unwrap();
        }
        for limit in [1, 7, 1000] {
            let rows = async |grant: &Grant, order, filter| {
                let (rows, plan, _) = f.all(grant, &by(order, filter, limit)).await;
                assert_eq!(plan == "index(Age)", kept, "{plan}");
                rows
            };
            assert_eq!(rows(&OWNER, "Age", "").await, expected);
            assert_eq!(rows(&OWNER, "Age desc", "").await, backwards);
            assert_eq!(rows(&OWNER, "Age", "City eq 'Rome'").await, rome);
        }
        let range = signature(KeyRange::partition("p3"));
        assert_eq!(f.all(&range, &by("Age", "", 2)).await.0, p3);
        assert_eq!(f.all(&OWNER, &by("Age", "Age lt 0", 2)).await.0, Vec::<String>::new());
        assert_eq!(f.all(&OWNER, &by("Missing", "", 2)).await.0, Vec::<String>::new());
        assert_eq!(f.ask(&OWNER, by("Age", "", 0)).await.unwrap().rows.len(), 0);
    }
    let (_, _, examined) = f.all(&OWNER, &by("Age", "", 1000)).await;
    assert_eq!(examined, expected.len() as u64);
    // A filter that leaves little is sorted, even where there is an index.
    let (rows, plan, _) = f.all(&OWNER, &by("Age", "PartitionKey eq 'p3'", 2)).await;
    assert_eq!((rows, plan.as_str()), (p3, "partition-scan"));
}

#[tokio::test]
async fn an_order_without_an_index_needs_a_limit() {
    let f = Fixture::new(20).await;
    let unlimited = |order: &str| EntityQuery { limited: false, ..by(order, "", 1000) };
    let refused = f.ask(&OWNER, unlimited("Age")).await;
    assert!(matches!(refused, Err(TableError::OrderNeedsIndex { .. })));
    let refused = f.ask(&OWNER, unlimited("RowKey desc")).await;
    assert!(matches!(refused, Err(TableError::OrderOfPartitions)));
    let (rows, ..) = f.all(&OWNER, &by("RowKey desc", "", 3)).await;
    assert_eq!((rows.len(), rows[0].as_str()), (20, "0019"));
    f.index("Age", false).await.unwrap();
    f.index("RowKey", true).await.unwrap();
    assert_eq!(f.all(&OWNER, &unlimited("Age")).await.1, "index(Age)");
    assert_eq!(f.all(&OWNER, &unlimited("RowKey desc")).await.0[0], "0019");
    let late = EntityQuery { deadline: Instant::now(), ..by("City", "", 3) };
    assert!(matches!(f.ask(&OWNER, late).await, Err(TableError::TooManyToSort { .. })));
}

#[tokio::test]
async fn a_place_is_one_of_its_order() {
    let f = Fixture::new(40).await;
    f.index("Age", false).await.unwrap();
    f.index("Email", false).await.unwrap();
    let next = f.ask(&OWNER, by("Age", "", 5)).await.unwrap().next.unwrap();
    let resume =
        |order: &str, from: &Place| EntityQuery { from: Some(from.clone()), ..by(order, "", 5) };
    assert!(f.ask(&OWNER, resume("Age", &next)).await.is_ok());
    for order in ["", "PartitionKey", "Email"] {
        let other = f.ask(&OWNER, resume(order, &next)).await;
        assert!(matches!(other, Err(TableError::OrderPlaceGone)), "{order}");
    }
    let key = f.ask(&OWNER, by("", "", 5)).await.unwrap().next.unwrap();
    let other = f.ask(&OWNER, resume("Age", &key)).await;
    assert!(matches!(other, Err(TableError::OrderPlaceGone)));
    let drop = async || {
        let name = IndexName::new("Age").unwrap();
        f.service.drop_index(f.with(&OWNER), &people(), &name).await
    };
    drop().await.unwrap();
    assert!(matches!(drop().await, Err(TableError::IndexNotFound)));
    let gone = f.ask(&OWNER, resume("Age", &next)).await;
    assert!(matches!(gone, Err(TableError::OrderPlaceGone)));
    // Another index of the same name is another one.
    f.index("Age", false).await.unwrap();
    let gone = f.ask(&OWNER, resume("Age", &next)).await;
    assert!(matches!(gone, Err(TableError::OrderPlaceGone)));
}

#[tokio::test]
async fn a_page_of_a_sorted_answer_is_bounded_in_bytes() {
    let f = Fixture::new(0).await;
    let big = vec![7; 60_000];
    for n in 0..100 {
        let mut builder = RecordBuilder::new();
        builder.push("N", ValueRef::Int32(100 - n)).unwrap();
        for name in ["A", "B"] {
            builder.push(name, ValueRef::Binary(&big)).unwrap();
        }
        let record = builder.finish(Timestamp::default());
        f.write("p", &format!("{n:04}"), Action::Insert(record)).await.unwrap();
    }
    let page = f.ask(&OWNER, by("N", "", 1000)).await.unwrap();
    assert!((30..40).contains(&page.rows.len()), "{}", page.rows.len());
    let expected: Vec<String> = (0..100).rev().map(|n| format!("{n:04}")).collect();
    assert_eq!(f.all(&OWNER, &by("N", "", 1000)).await.0, expected);
}

#[tokio::test]
async fn only_the_account_key_settles_indexes() {
    let f = Fixture::new(3).await;
    let account = Grant::AccountSignature {
        services: Services { table: true, queue: false },
        resource_types: ResourceTypes { service: true, container: true, object: true },
        permissions: Letters::new("rwdlacu"),
    };
    for grant in [account, signature(KeyRange::all())] {
        let caller = f.with(&grant);
        let new = NewIndex { name: None, properties: vec!["Age".into()], unique: false };
        let name = IndexName::new("Age").unwrap();
        let created = f.service.create_index(caller, &people(), new).await;
        assert!(matches!(created, Err(TableError::Denied(_))));
        let dropped = f.service.drop_index(caller, &people(), &name).await;
        assert!(matches!(dropped, Err(TableError::Denied(_))));
        assert!(matches!(f.service.indexes(caller, &people()).await, Err(TableError::Denied(_))));
        let costly = f.service.costly_queries(caller, &people()).await;
        assert!(matches!(costly, Err(TableError::Denied(_))));
    }
    assert_eq!(f.index("Age", false).await.unwrap(), IndexState::Ready);
    assert!(matches!(f.index("Age", false).await, Err(TableError::IndexExists)));
    let views = f.service.indexes(f.with(&OWNER), &people()).await.unwrap();
    assert_eq!((views.len(), views[0].name.as_str(), views[0].examined), (1, "Age", 3));
    let missing: TableName = "Missing".parse().unwrap();
    let views = f.service.indexes(f.with(&OWNER), &missing).await;
    assert!(matches!(views, Err(TableError::TableNotFound)));
}

/// Who holds the key of the account learns which index refused; who may see a part of the table does not.
#[tokio::test]
async fn a_unique_index_refuses() {
    let f = Fixture::new(3).await;
    f.index("Email", true).await.unwrap();
    let again = || Action::Insert(person(1));
    match f.write("p9", "9", again()).await {
        Err(TableError::NotUnique { index: Some(name) }) => assert_eq!(name.as_str(), "Email"),
        other => panic!("{other:?}"),
    }
    let operation =
        || Operation { table: people(), key: EntityKey::new("p9", "9").unwrap(), action: again() };
    let grant = signature(KeyRange::partition("p9"));
    let refused = f.service.write(f.with(&grant), operation()).await;
    assert!(matches!(refused, Err(TableError::NotUnique { index: None })));
    let refused =
        f.service.transact(f.with(&OWNER), Reach::Partition, vec![operation()], Vec::new()).await;
    let Err(TableError::Operation { index: 0, source }) = refused else { panic!("{refused:?}") };
    assert!(matches!(*source, TableError::NotUnique { index: Some(_) }));
    f.index("City", true).await.unwrap();
    let refused = f.write("p9", "9", again()).await;
    assert!(
        matches!(refused, Err(TableError::NotUnique { index: None })),
        "which one is not known"
    );
}

#[tokio::test]
async fn explanations_tell_what_happened_and_what_would_help() {
    let f = Fixture::new(200).await;
    let email = || query("Email eq '7@example.com'");
    let told = f.explain(&OWNER, email()).await;
    assert_eq!(
        (told.plan.to_string().as_str(), told.examined, told.returned),
        ("table-scan", 200, 1)
    );
    assert_eq!((told.estimate.rows, told.estimate.or_more), (200, false));
    assert_eq!(told.advice, [Advice::Create(equal("Email"))]);
    // Which index would help is for those who may declare one.
    let reader = signature(KeyRange::all());
    assert_eq!(f.explain(&reader, email()).await.advice, [Advice::AskOwner]);
    f.index("Email", false).await.unwrap();
    let told = f.explain(&OWNER, email()).await;
    assert_eq!(
        (told.plan.to_string().as_str(), told.examined, told.returned),
        ("index(Email)", 1, 1)
    );
    assert_eq!((told.estimate.rows, told.advice.len()), (1, 0));
    let ways: Vec<_> = told.considered.iter().map(|way| way.plan.to_string()).collect();
    assert_eq!(ways, ["index(Email)"]);
    let told = f.explain(&reader, email()).await;
    assert_eq!((told.plan.to_string().as_str(), told.examined, told.returned), ("index", 1, 1));
    let ways: Vec<_> = told.considered.iter().map(|way| way.plan.to_string()).collect();
    assert_eq!(ways, ["index"]);
    // Nothing is told of what is outside the range.
    let grant = signature(KeyRange::partition("p8"));
    let told = f.explain(&grant, email()).await;
    assert_eq!((told.estimate.rows, told.examined, told.returned), (20, 20, 0));
    let told = f.explain(&OWNER, query("contains(Email,'x')")).await;
    assert_eq!(told.advice, [Advice::NoCondition]);
    let told = f.explain(&OWNER, by("Age", "", 5)).await;
    let age = WantedIndex { equal: vec![], ranged: Some("Age".into()) };
    assert_eq!(told.advice, [Advice::Create(age)]);
    assert!(told.more);
    f.index("Age", false).await.unwrap();
    let told = f.explain(&OWNER, by("Age", "", 5)).await;
    assert_eq!((told.plan.to_string().as_str(), told.examined), ("index(Age)", 6));
    let told = f.explain(&OWNER, query("PartitionKey eq 'p1' and RowKey eq '0001'")).await;
    assert_eq!((told.plan.to_string().as_str(), told.advice.len()), ("point", 0));
    let writer = Grant::TableSignature {
        table: FoldedName::of("People"),
        permissions: Letters::new("a"),
        range: KeyRange::all(),
    };
    let denied = f.service.explain(f.with(&writer), &people(), email()).await;
    assert!(matches!(denied, Err(TableError::Denied(_))));
}

#[tokio::test]
async fn costly_queries_are_counted_by_shape() {
    let f = Fixture::new(200).await;
    for n in 0..3 {
        f.ask(&OWNER, query(&format!("Email eq '{n}@example.com'"))).await.unwrap();
    }
    f.ask(&OWNER, query("City eq 'Rome'")).await.unwrap();
    f.ask(&OWNER, by("Age desc", "", 2)).await.unwrap();
    let costly = f.service.costly_queries(f.with(&OWNER), &people()).await.unwrap();
    let told: Vec<_> = costly
        .iter()
        .map(|query| {
            let order = query.order.as_deref().unwrap_or_default();
            format!(
                "{}|{order}|{} {} {}",
                query.filter, query.count, query.examined, query.returned
            )
        })
        .collect();
    assert_eq!(told, ["Email eq ?||3 600 3", "|Age desc|1 200 2"]);
    assert_eq!(costly[0].wanted, [equal("Email")]);
    let age = WantedIndex { equal: vec![], ranged: Some("Age".into()) };
    assert_eq!(costly[1].wanted, [age]);
    f.index("Email", true).await.unwrap();
    f.ask(&OWNER, query("Email eq '1@example.com'")).await.unwrap();
    let costly = f.service.costly_queries(f.with(&OWNER), &people()).await.unwrap();
    assert_eq!(costly[0].count, 3);
    // What is there is not advised, and neither is what something else serves as well.
    assert_eq!((costly[0].wanted.len(), costly[1].wanted.len()), (0, 1));
    f.index("Age,City", false).await.unwrap();
    let costly = f.service.costly_queries(f.with(&OWNER), &people()).await.unwrap();
    assert!(costly.iter().all(|query| query.wanted.is_empty()), "{costly:?}");
}

/// An index of this property, whose values are named.
fn equal(property: &str) -> WantedIndex {
    WantedIndex { equal: vec![property.into()], ranged: None }
}

/// Who sees a range of keys goes through an index only where it can be clipped to the range, and sorts what is in it.
#[tokio::test]
async fn a_range_is_not_read_through_what_is_outside() {
    let f = Fixture::new(1000).await;
    for properties in ["Age", "City", "PartitionKey,Age"] {
        f.index(properties, false).await.unwrap();
    }
    let p3 = signature(KeyRange::partition("p3"));
    let rows = signature(KeyRange {
        start: Position::before("p3", "0103"),
        end: Some(Position::after("p3", "0903")),
    });
    let plans = async |grant: &Grant, filter: &str| {
        let (found, plan, examined) = f.all(grant, &query(filter)).await;
        (plan, found.len(), examined)
    };
    let scan = |found: usize, examined| ("table-scan".to_owned(), found, examined);
    let index = |found: usize, examined| ("index".to_owned(), found, examined);
    // One entry is clipped to anything, several are to whole partitions by an index that begins with them.
    assert_eq!(plans(&p3, "City eq 'Bergen'").await, index(50, 50));
    assert_eq!(plans(&rows, "City eq 'Bergen'").await, index(40, 40));
    let young = f.all(&OWNER, &query("PartitionKey eq 'p3' and Age lt 20")).await.0.len();
    assert_eq!(plans(&p3, "Age lt 20").await, index(young, young as u64));
    assert_eq!(plans(&rows, "Age lt 20").await.0, "table-scan");
    assert_eq!(plans(&rows, "Age lt 20").await.2, 81);
    assert_eq!(plans(&p3, "City gt 'Oslo'").await, scan(50, 100));
    let (_, plan, examined) = f.all(&p3, &by("Age", "", 1000)).await;
    assert_eq!((plan.as_str(), examined), ("table-scan", 100));
    // A place in an index is none that such a caller was given.
    let next = f.ask(&OWNER, by("Age", "", 5)).await.unwrap().next;
    let resumed = f.ask(&p3, EntityQuery { from: next, ..by("Age", "", 5) }).await;
    assert!(matches!(resumed, Err(TableError::OrderPlaceGone)));
}
