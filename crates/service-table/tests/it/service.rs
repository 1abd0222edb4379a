//! The rules of the service on the naive model: what HTTP and engines cannot change.

use rowhouse_env::SystemClock;
use rowhouse_query::{Filter, Order, PlanKind};
use rowhouse_service_table::{
    Action, Bookmark, Caller, ChangeItem, ChangesFrom, ChangesPage, ChangesQuery, EntityQuery,
    Match, Operation, Place, PlanTaken, Reach, TableError, TableService,
};
use rowhouse_store::model::ModelStore;
use rowhouse_store::{AccountId, NewAccount, Store};
use rowhouse_types::grant::{Letters, ResourceTypes, Services};
use rowhouse_types::{
    Denied, EntityKey, Etag, FoldedName, Grant, KeyRange, Position, Record, RecordBuilder,
    TableName, Timestamp, ValueRef,
};
use std::sync::Arc;
use std::time::{Duration, Instant};

struct Fixture {
    store: Arc<ModelStore>,
    service: TableService,
    account: AccountId,
}

impl Fixture {
    async fn new() -> Self {
        let store = Arc::new(ModelStore::new(Arc::new(SystemClock)));
        let name = "acct".parse().unwrap();
        let keys = [Box::from(&b"1"[..]), Box::from(&b"2"[..])];
        let account = store.create_account(NewAccount { name, keys }).await.unwrap().id;
        let service = TableService::new(Arc::<ModelStore>::clone(&store));
        let this = Self { store, service, account };
        this.service.create_table(this.owner(), &table("People"), u64::MAX).await.unwrap();
        this
    }

    fn owner(&self) -> Caller<'static> {
        self.with(&Grant::AccountKey)
    }

    fn with<'a>(&self, grant: &'a Grant) -> Caller<'a> {
        Caller { account: self.account, grant }
    }

    async fn keep_changes(&self) {
        self.store.keep_changes(Some(Duration::from_hours(1))).await.unwrap();
    }

    async fn insert(&self, partition: &str, row: &str) -> Timestamp {
        let operation = operation(partition, row, Action::Insert(record(1)));
        self.service.write(self.owner(), operation).await.unwrap()
    }

    async fn query(&self, grant: &Grant, filter: &str, limit: usize) -> (Vec<String>, PlanTaken) {
        let query = query(filter, None, limit);
        let page = self.service.query(self.with(grant), &table("people"), query).await.unwrap();
        let keys = page.rows.iter().map(|row| row.unwrap());
        (keys.map(|row| format!("{}/{}", row.partition, row.row)).collect(), page.plan)
    }
}

fn table(name: &str) -> TableName {
    name.parse().unwrap()
}

fn record(n: i32) -> Record {
    let mut builder = RecordBuilder::new();
    builder.push("n", ValueRef::Int32(n)).unwrap();
    builder.finish(Timestamp::default())
}

fn operation(partition: &str, row: &str, action: Action) -> Operation {
    Operation { table: table("People"), key: EntityKey::new(partition, row).unwrap(), action }
}

fn query(filter: &str, from: Option<Place>, limit: usize) -> EntityQuery {
    let deadline = Instant::now() + Duration::from_secs(5);
    let filter = Filter::parse(filter).unwrap();
    EntityQuery { filter, select: None, order: None, from, limit, limited: false, deadline }
}

fn signature(letters: &str, range: KeyRange) -> Grant {
    let table = FoldedName::of("People");
    Grant::TableSignature { table, permissions: Letters::new(letters), range }
}

#[tokio::test]
async fn tables_are_one_whatever_their_case() {
    let f = Fixture::new().await;
    let created = f.service.create_table(f.owner(), &table("PEOPLE"), u64::MAX).await;
    assert!(matches!(created, Err(TableError::TableExists)));
    let found = f.service.get_table(f.owner(), &table("people")).await.unwrap();
    assert_eq!(found.as_str(), "People");
    f.service.delete_table(f.owner(), &table("pEOPLE")).await.unwrap();
    let again = f.service.delete_table(f.owner(), &table("People")).await;
    assert!(matches!(again, Err(TableError::ResourceNotFound)));
    let key = EntityKey::new("", "").unwrap();
    let read = f.service.get_entity(f.owner(), &table("People"), &key).await;
    assert!(matches!(read, Err(TableError::TableNotFound)));
}

#[tokio::test]
async fn counts_are_those_of_the_range() {
    let f = Fixture::new().await;
    for (partition, row) in [("a", "1"), ("a", "2"), ("b", "1"), ("c", "1")] {
        f.insert(partition, row).await;
    }
    let later = Instant::now() + Duration::from_secs(5);
    let count = async |grant: &Grant, filter: &str, deadline| {
        let filter = Filter::parse(filter).unwrap();
        let counted = f.service.count(f.with(grant), &table("people"), filter, deadline).await;
        counted.map(|counted| counted.count)
    };
    let b = signature("r", KeyRange::partition("b"));
    for (grant, filter, expected) in [
        (&Grant::AccountKey, "", 4),
        (&Grant::AccountKey, "PartitionKey eq 'a'", 2),
        (&Grant::AccountKey, "PartitionKey eq 'a' and RowKey eq '2'", 1),
        (&Grant::AccountKey, "RowKey eq '1'", 3),
        (&Grant::AccountKey, "n eq 2", 0),
        (&b, "", 1),
        (&b, "RowKey eq '1'", 1),
        (&b, "PartitionKey eq 'a'", 0),
    ] {
        assert_eq!(count(grant, filter, later).await.unwrap(), expected, "{filter}");
    }
    let writer = signature("a", KeyRange::all());
    assert!(matches!(count(&writer, "", later).await, Err(TableError::Denied(_))));
    let late = count(&Grant::AccountKey, "", Instant::now()).await;
    assert!(matches!(late, Err(TableError::TooManyToCount)));
}

#[tokio::test]
async fn pages_go_backwards() {
    let f = Fixture::new().await;
    for (partition, row) in [("a", "1"), ("a", "2"), ("b", "1"), ("c", "1")] {
        f.insert(partition, row).await;
    }
    let read = async |grant: &Grant, order: &str, filter: &str, from| {
        let order = Order::parse(order).unwrap();
        let query = EntityQuery { order, ..query(filter, from, 2) };
        let page = f.service.query(f.with(grant), &table("people"), query).await?;
        let keys = page.rows.iter().map(|row| row.unwrap());
        let keys: Vec<_> = keys.map(|row| format!("{}/{}", row.partition, row.row)).collect();
        Ok::<_, TableError>((keys.join(" "), page.next))
    };
    let descending = "PartitionKey desc,RowKey desc";
    let (first, next) = read(&Grant::AccountKey, descending, "", None).await.unwrap();
    assert_eq!(first, "c/1 b/1");
    let (second, end) = read(&Grant::AccountKey, descending, "", next.clone()).await.unwrap();
    assert_eq!((second.as_str(), end), ("a/2 a/1", None));
    let a = signature("r", KeyRange::partition("a"));
    assert_eq!(read(&a, descending, "", next).await.unwrap().0, "a/2 a/1");
    let rows = read(&Grant::AccountKey, "RowKey desc", "PartitionKey eq 'a'", None).await.unwrap();
    assert_eq!(rows.0, "a/2 a/1");
    for filter in ["", "PartitionKey ge 'a'", "PartitionKey eq 'a' or PartitionKey eq 'b'"] {
        let rows = read(&Grant::AccountKey, "RowKey desc", filter, None).await;
        assert!(matches!(rows, Err(TableError::OrderOfPartitions)), "{filter}");
    }
}

#[tokio::test]
async fn tables_are_listed_by_page_and_filter() {
    let f = Fixture::new().await;
    for name in ["apples", "Bananas", "cherries"] {
        f.service.create_table(f.owner(), &table(name), u64::MAX).await.unwrap();
    }
    let list = async |filter: &str, from, limit| {
        let filter = Filter::parse(filter).unwrap();
        let deadline = Instant::now() + Duration::from_mins(1);
        let page = f.service.list_tables(f.owner(), filter, from, limit, deadline).await.unwrap();
        let names: Vec<_> = page.names.iter().map(|name| name.as_str().to_owned()).collect();
        (names, page.next)
    };
    let (names, next) = list("", None, 3).await;
    assert_eq!(names, ["apples", "Bananas", "cherries"]);
    let (names, next) = list("", next, 3).await;
    assert_eq!((names, next), (vec!["People".to_owned()], None));
    let (names, next) = list("TableName gt 'b'", None, 1).await;
    assert_eq!((names, next), (vec!["cherries".to_owned()], None));
    assert_eq!(list("", None, 0).await, (vec![], None));
}

#[tokio::test]
async fn a_filter_that_names_a_key_is_a_point_read() {
    const POINT: PlanTaken = PlanTaken::Keys(PlanKind::Point);
    let f = Fixture::new().await;
    for (partition, row) in [("p", "1"), ("p", "2"), ("q", "1")] {
        f.insert(partition, row).await;
    }
    let all = Grant::AccountKey;
    let point = "PartitionKey eq 'p' and RowKey eq '2'";
    assert_eq!(f.query(&all, point, 10).await, (vec!["p/2".to_owned()], POINT));
    let residual = format!("{point} and n eq 2");
    assert_eq!(f.query(&all, &residual, 10).await, (vec![], POINT));
    let illegal = "PartitionKey eq 'a/b' and RowKey eq ''";
    assert_eq!(f.query(&all, illegal, 10).await, (vec![], POINT));
    assert_eq!(f.query(&all, "", 0).await.0, Vec::<String>::new());
    assert_eq!(f.query(&all, "n eq 1", 10).await.0.len(), 3);
}

#[tokio::test]
async fn a_page_resumes_where_the_last_one_ended() {
    let f = Fixture::new().await;
    for row in ["a", "b", "c"] {
        f.insert("p", row).await;
    }
    let people = table("People");
    let page = f.service.query(f.owner(), &people, query("", None, 2)).await.unwrap();
    assert_eq!(page.rows.len(), 2);
    let next = page.next.unwrap();
    assert_eq!(next, Place::Key(Position::before("p", "c")));
    let page = f.service.query(f.owner(), &people, query("", Some(next), 2)).await.unwrap();
    assert_eq!((page.rows.len(), page.next), (1, None));
}

#[tokio::test]
async fn a_range_clips_reads_and_refuses_writes() {
    let f = Fixture::new().await;
    for partition in ["a", "b", "c"] {
        f.insert(partition, "r").await;
    }
    let grant = signature("raud", KeyRange::partition("b"));
    assert_eq!(f.query(&grant, "", 10).await.0, ["b/r"]);
    assert_eq!(f.query(&grant, "PartitionKey eq 'a'", 10).await.0, Vec::<String>::new());
    let people = table("People");
    let outside = EntityKey::new("a", "r").unwrap();
    let read = f.service.get_entity(f.with(&grant), &people, &outside).await;
    assert!(matches!(read, Err(TableError::ResourceNotFound)));
    for action in [
        Action::Insert(record(2)),
        Action::Update(record(2), Match::Any),
        Action::InsertOrMerge(record(2)),
        Action::Delete(Match::Any),
    ] {
        let write = f.service.write(f.with(&grant), operation("a", "r", action.clone())).await;
        assert!(matches!(write, Err(TableError::Denied(Denied::Operation))));
        let inside = operation("b", "x", Action::InsertOrReplace(record(1)));
        let batch = vec![inside, operation("a", "r", action)];
        let write = f.service.transact(f.with(&grant), Reach::Partition, batch, Vec::new()).await;
        assert!(matches!(write, Err(TableError::Operation { index: 1, .. })), "{write:?}");
    }
    assert_eq!(f.query(&Grant::AccountKey, "", 10).await.0, ["a/r", "b/r", "c/r"]);
}

#[tokio::test]
async fn every_operation_needs_its_letters() {
    let f = Fixture::new().await;
    f.insert("p", "r").await;
    let cases = [
        ("a", Action::Insert(record(1))),
        ("u", Action::Update(record(1), Match::Any)),
        ("u", Action::Merge(record(1), Match::Any)),
        ("au", Action::InsertOrReplace(record(1))),
        ("au", Action::InsertOrMerge(record(1))),
        ("d", Action::Delete(Match::Any)),
    ];
    for (needed, action) in cases {
        for letters in ["", "r", "a", "u", "d", "au", "raud"] {
            let grant = signature(letters, KeyRange::all());
            let result = f.service.write(f.with(&grant), operation("p", "r", action.clone())).await;
            let denied = matches!(result, Err(TableError::Denied(Denied::Permission)));
            let allowed = needed.chars().all(|letter| letters.contains(letter));
            assert_eq!(denied, !allowed, "{letters:?} for {action:?}");
        }
    }
}

#[tokio::test]
async fn a_transaction_is_of_one_partition_and_names_an_entity_once() {
    let f = Fixture::new().await;
    let insert = |partition: &str, row: &str| operation(partition, row, Action::Insert(record(1)));
    let transact = async |operations| match f
        .service
        .transact(f.owner(), Reach::Partition, operations, Vec::new())
        .await
    {
        Err(TableError::Operation { index, source }) => format!("{index} {source:?}"),
        other => format!("{other:?}"),
    };
    let cases = [
        (vec![insert("p", "1"), insert("q", "1")], "1 DifferentPartitions"),
        (vec![insert("p", "1"), insert("p", "2"), insert("p", "1")], "2 DuplicateRow"),
        (
            vec![insert("p", "1"), operation("p", "2", Action::Delete(Match::Any))],
            "1 ResourceNotFound",
        ),
        (vec![Operation { table: table("other"), ..insert("p", "1") }], "0 TableNotFound"),
        (
            vec![insert("p", "1"), Operation { table: table("other"), ..insert("p", "2") }],
            "1 DifferentPartitions",
        ),
    ];
    for (operations, expected) in cases {
        assert_eq!(transact(operations).await, expected);
        assert!(f.query(&Grant::AccountKey, "", 10).await.0.is_empty(), "nothing of {expected}");
    }
    let mixed = vec![insert("p", "1"), Operation { table: table("PEOPLE"), ..insert("p", "2") }];
    assert_eq!(
        f.service
            .transact(f.owner(), Reach::Partition, mixed, Vec::new())
            .await
            .unwrap()
            .timestamps
            .len(),
        2
    );
}

#[tokio::test]
async fn a_transaction_may_reach_over_tables_and_partitions_if_asked() {
    let f = Fixture::new().await;
    f.service.create_table(f.owner(), &table("Archive"), u64::MAX).await.unwrap();
    let insert = |name: &str, partition: &str, row: &str| Operation {
        table: table(name),
        ..operation(partition, row, Action::Insert(record(1)))
    };
    let transact = async |grant: &Grant, operations| {
        let done = f.service.transact(f.with(grant), Reach::Account, operations, Vec::new()).await;
        match done {
            Ok(done) => done.timestamps.len().to_string(),
            Err(TableError::Operation { index, source }) => format!("{index} {source:?}"),
            Err(error) => format!("{error:?}"),
        }
    };
    let archived = async || {
        let key = EntityKey::new("p", "1").unwrap();
        f.service.get_entity(f.owner(), &table("archive"), &key).await.is_ok()
    };
    let (key, one_table) = (Grant::AccountKey, signature("raud", KeyRange::all()));
    let cases = [
        // The same entity by two spellings of its table.
        (
            &key,
            vec![
                insert("People", "p", "1"),
                insert("Archive", "p", "1"),
                insert("PEOPLE", "p", "1"),
            ],
            "2 DuplicateRow",
        ),
        (&key, vec![insert("Archive", "p", "1"), insert("Nowhere", "p", "1")], "1 TableNotFound"),
        (
            &key,
            vec![insert("Archive", "p", "1"), operation("p", "2", Action::Delete(Match::Any))],
            "1 ResourceNotFound",
        ),
        // Each operation needs what it would need alone.
        (
            &one_table,
            vec![insert("People", "p", "1"), insert("Archive", "p", "1")],
            "1 Denied(Operation)",
        ),
    ];
    for (grant, operations, expected) in cases {
        assert_eq!(transact(grant, operations).await, expected);
        assert!(f.query(&key, "", 10).await.0.is_empty(), "nothing of {expected}");
        assert!(!archived().await, "nothing of {expected}");
    }
    let far =
        vec![insert("People", "p", "1"), insert("Archive", "p", "1"), insert("people", "q", "1")];
    assert_eq!(transact(&key, far).await, "3");
    assert_eq!(f.query(&key, "", 10).await.0, ["p/1", "q/1"]);
    assert!(archived().await);
}

#[tokio::test]
async fn etags_decide() {
    let f = Fixture::new().await;
    let first = f.insert("p", "r").await;
    let update = async |etag| {
        let action = Action::Update(record(2), Match::Etag(etag));
        f.service.write(f.owner(), operation("p", "r", action)).await
    };
    let second = update(Etag::new(first)).await.unwrap();
    assert!(second > first);
    assert!(matches!(update(Etag::new(first)).await, Err(TableError::EtagMismatch)));
    let foreign: Etag = "W/\"wrong\"".parse().unwrap();
    assert!(matches!(update(foreign).await, Err(TableError::EtagMismatch)));
}

#[tokio::test]
async fn an_entity_beyond_its_limits_is_refused() {
    let f = Fixture::new().await;
    let mut builder = RecordBuilder::new();
    let text = "x".repeat(32 * 1024);
    for n in 0..16 {
        builder.push(&format!("p{n}"), ValueRef::String(&text)).unwrap();
    }
    let large = builder.finish(Timestamp::default());
    let write = f.service.write(f.owner(), operation("p", "r", Action::Insert(large))).await;
    assert!(matches!(write, Err(TableError::EntityTooLarge)));
}

fn from(from: ChangesFrom, limit: usize) -> ChangesQuery {
    ChangesQuery { from, limit, wait_until: Instant::now() }
}

/// The keys of the changes of a page, `-` before those of deletes.
fn told(page: &ChangesPage) -> Vec<String> {
    let text = |item: &ChangeItem| {
        let (key, sign) = (&item.change.key, if item.change.record.is_some() { "" } else { "-" });
        format!("{sign}{}/{}", key.partition.as_str(), key.row.as_str())
    };
    page.items.iter().map(text).collect()
}

#[tokio::test]
async fn changes_are_told_from_where_one_was() {
    let f = Fixture::new().await;
    let read = async |query| f.service.changes(f.owner(), &table("people"), query).await;
    let off = read(from(ChangesFrom::Beginning, 10)).await;
    assert!(matches!(off, Err(TableError::ChangesNotKept)));
    f.insert("p", "before").await;
    f.keep_changes().await;
    let begin = read(from(ChangesFrom::Now, 10)).await.unwrap();
    assert!(told(&begin).is_empty() && !begin.more);

    f.insert("p", "a").await;
    let batch = vec![
        operation("p", "b", Action::Insert(record(2))),
        operation("p", "a", Action::Delete(Match::Any)),
    ];
    f.service.transact(f.owner(), Reach::Partition, batch, Vec::new()).await.unwrap();
    let all = read(from(ChangesFrom::Beginning, 10)).await.unwrap();
    assert_eq!(told(&all), ["p/a", "p/b", "-p/a"]);
    assert!(!all.more);
    let first = read(from(ChangesFrom::After(begin.next), 1)).await.unwrap();
    assert_eq!(told(&first), ["p/a"]);
    assert!(first.more);
    // A batch is whole however few are wanted; what of it was told is not told again.
    let second = read(from(ChangesFrom::After(first.next), 1)).await.unwrap();
    assert_eq!(told(&second), ["p/b", "-p/a"]);
    let rest = read(from(ChangesFrom::After(second.items[1].before), 1)).await.unwrap();
    assert_eq!(told(&rest), ["-p/a"]);
    assert_eq!(rest.next, second.next);
    assert!(told(&read(from(ChangesFrom::After(rest.next), 1)).await.unwrap()).is_empty());

    let future = Bookmark { place: rest.next.place + 1, ..rest.next };
    let future = read(from(ChangesFrom::After(future), 1)).await;
    assert!(matches!(future, Err(TableError::ChangesExpired)));
}

#[tokio::test]
async fn another_table_of_the_same_name_has_other_changes() {
    let f = Fixture::new().await;
    f.keep_changes().await;
    f.insert("p", "old").await;
    let read = async |from_| f.service.changes(f.owner(), &table("People"), from(from_, 10)).await;
    let place = read(ChangesFrom::Beginning).await.unwrap().next;
    f.service.delete_table(f.owner(), &table("People")).await.unwrap();
    assert!(matches!(read(ChangesFrom::Now).await, Err(TableError::TableNotFound)));
    f.service.create_table(f.owner(), &table("People"), u64::MAX).await.unwrap();
    f.insert("p", "new").await;
    assert!(matches!(read(ChangesFrom::After(place)).await, Err(TableError::ChangesExpired)));
    assert_eq!(told(&read(ChangesFrom::Beginning).await.unwrap()), ["p/new"]);
}

#[tokio::test]
async fn changes_outside_the_range_are_not_told() {
    let f = Fixture::new().await;
    f.keep_changes().await;
    for partition in ["a", "p", "z", "p"] {
        let upsert = Action::InsertOrReplace(record(1));
        f.service.write(f.owner(), operation(partition, "r", upsert)).await.unwrap();
    }
    let reader = signature("r", KeyRange::partition("p"));
    let read = async |grant: &Grant, from_| {
        f.service.changes(f.with(grant), &table("People"), from(from_, 10)).await
    };
    assert_eq!(told(&read(&reader, ChangesFrom::Beginning).await.unwrap()), ["p/r", "p/r"]);
    for grant in [
        signature("aud", KeyRange::all()),
        Grant::AccountSignature {
            services: Services { table: true, queue: false },
            resource_types: ResourceTypes { container: true, ..ResourceTypes::default() },
            permissions: Letters::new("r"),
        },
    ] {
        assert!(matches!(read(&grant, ChangesFrom::Beginning).await, Err(TableError::Denied(_))));
    }
}

/// A wait is ended by what the caller may see, not by anything else.
#[tokio::test]
async fn changes_are_waited_for() {
    let f = Fixture::new().await;
    f.keep_changes().await;
    let reader = signature("r", KeyRange::partition("p"));
    let wait = |millis| ChangesQuery {
        wait_until: Instant::now() + Duration::from_millis(millis),
        ..from(ChangesFrom::Now, 10)
    };
    let people = table("People");
    let began = Instant::now();
    let (page, _) =
        tokio::join!(f.service.changes(f.with(&reader), &people, wait(120)), f.insert("z", "r"));
    let page = page.unwrap();
    assert!(page.items.is_empty() && Duration::from_millis(120) <= began.elapsed());
    let (page, ()) =
        tokio::join!(f.service.changes(f.with(&reader), &people, wait(60_000)), async {
            tokio::time::sleep(Duration::from_millis(30)).await;
            f.insert("z", "s").await;
            tokio::time::sleep(Duration::from_millis(30)).await;
            f.insert("p", "r").await;
        });
    assert_eq!(told(&page.unwrap()), ["p/r"]);
}
