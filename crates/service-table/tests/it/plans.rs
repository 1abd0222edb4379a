//! Whatever filter, indexes, order, range and size of page: a query answers what a look at every entity finds.
//!
//! On the naive model, so that what is compared is the choice of plans and the places between pages; the suite of the store
//! compares engines with the model.

use proptest::collection::vec;
use proptest::prelude::*;
use rowhouse_env::SystemClock;
use rowhouse_query::index::{IndexKeys, entry};
use rowhouse_query::{Filter, Order};
use rowhouse_service_table::{Action, Caller, EntityQuery, NewIndex, Operation, TableService};
use rowhouse_store::model::ModelStore;
use rowhouse_store::{NewAccount, Store as _};
use rowhouse_types::grant::Letters;
use rowhouse_types::{
    EntityKey, FoldedName, Grant, IndexName, KeyRange, Record, RecordBuilder, Row, TableName,
    Timestamp, Value,
};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// An entity: its key and what it has of `A` and `B`.
type Person = ((String, String), [Option<Value>; 2]);

/// Few values, so that they repeat and filters find some.
fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        (0..4).prop_map(Value::Int32),
        (0..4_i64).prop_map(Value::Int64),
        prop_oneof![Just(0.0), Just(-0.0), Just(2.0), Just(f64::NAN)].prop_map(Value::Double),
        "[ab]{0,2}".prop_map(|text| Value::String(text.into())),
        any::<bool>().prop_map(Value::Boolean),
    ]
}

fn people() -> impl Strategy<Value = Vec<Person>> {
    let key = ("[pqr]", "[0-9]{1,2}");
    vec((key, [prop::option::of(value()), prop::option::of(value())]), 0..60).prop_map(
        |mut people| {
            people.sort_by(|(a, _), (b, _)| a.cmp(b));
            people.dedup_by(|(a, _), (b, _)| a == b);
            people
        },
    )
}

fn filter() -> impl Strategy<Value = String> {
    let literal = prop_oneof!["[0-4]", "[0-4]L", "[0-4]\\.0", "'[ab]{0,2}'", "(true|false)"];
    let word = "(eq|ne|lt|le|gt|ge)";
    let leaf = prop_oneof![
        4 => ("[AB]", word, literal).prop_map(|(p, c, l)| format!("{p} {c} {l}")),
        2 => ("[AB]", "[0-4]", "'[ab]'").prop_map(|(p, a, b)| format!("{p} in ({a},{b})")),
        1 => ("[AB]", "[ab]").prop_map(|(p, l)| format!("startswith({p},'{l}')")),
        1 => (word, "[pqr]").prop_map(|(c, l)| format!("PartitionKey {c} '{l}'")),
        1 => (word, "[0-9]").prop_map(|(c, l)| format!("RowKey {c} '{l}'")),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            vec(inner.clone(), 2..4).prop_map(|parts| format!("({})", parts.join(" and "))),
            vec(inner.clone(), 2..4).prop_map(|parts| format!("({})", parts.join(" or "))),
            inner.prop_map(|part| format!("not ({part})")),
        ]
    })
}

fn record(values: &[Option<Value>; 2]) -> Record {
    let mut builder = RecordBuilder::new();
    for (name, value) in ["A", "B"].into_iter().zip(values) {
        if let Some(value) = value {
            builder.push(name, value.as_ref()).unwrap();
        }
    }
    builder.finish(Timestamp::default())
}

fn table() -> TableName {
    "People".parse().unwrap()
}

/// The service with these people and indexes, and the account that they belong to.
async fn service(people: &[Person], indexes: &[&str]) -> (TableService, rowhouse_store::AccountId) {
    let store = Arc::new(ModelStore::new(Arc::new(SystemClock)));
    let name = "acct".parse().unwrap();
    let keys = [Box::from(&b"1"[..]), Box::from(&b"2"[..])];
    let account = store.create_account(NewAccount { name, keys }).await.unwrap().id;
    let service = TableService::new(store);
    let owner = Caller { account, grant: &Grant::AccountKey };
    service.create_table(owner, &table(), u64::MAX).await.unwrap();
    for ((partition, row), values) in people {
        let key = EntityKey::new(partition, row).unwrap();
        let action = Action::Insert(record(values));
        service.write(owner, Operation { table: table(), key, action }).await.unwrap();
    }
    for (number, properties) in indexes.iter().enumerate() {
        let (list, unique) = match properties.strip_prefix('!') {
            Some(list) => (list, true),
            None => (*properties, false),
        };
        let name = Some(IndexName::new(format!("i{number}")).unwrap());
        let new = NewIndex { name, properties: list.split(',').map(Into::into).collect(), unique };
        service.create_index(owner, &table(), new).await.unwrap();
    }
    (service, account)
}

/// What a look at every entity finds, in order.
fn expected(people: &[Person], filter: &Filter, grant: &Grant, order: &str) -> Vec<String> {
    let (property, descending) = match order.strip_suffix(" desc") {
        Some(property) => (property, true),
        None => (order, false),
    };
    let keys = IndexKeys { properties: vec![property.into()], unique: false };
    let mut found = Vec::new();
    for ((partition, row), values) in people {
        let stored = record(values);
        let entity = Row { partition, row, record: stored.as_ref() };
        let seen = grant.check_key(partition, row).is_ok() && filter.matches(&entity).unwrap();
        if let Some(place) = entry(&keys, &entity).unwrap().filter(|_| seen) {
            found.push((place, partition, row));
        }
    }
    found.sort();
    if descending {
        found.reverse();
    }
    found.iter().map(|(_, partition, row)| format!("{partition}/{row}")).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_plan_changes_an_answer(
        people in people(),
        text in filter(),
        indexes in prop::sample::subsequence(
            vec!["A", "B", "A,B", "B,A", "RowKey", "!A,RowKey,PartitionKey", "!A"], 0..=4),
        order in prop::sample::select(
            vec!["PartitionKey", "PartitionKey desc", "A", "A desc", "B", "RowKey desc"]),
        limit in 1_usize..20,
        ranged in any::<bool>(),
    ) {
        let filter = Filter::parse(&text).unwrap().unwrap();
        let table_signature = Grant::TableSignature {
            table: FoldedName::of("People"),
            permissions: Letters::new("r"),
            range: KeyRange::partition("q"),
        };
        let grant = if ranged { table_signature } else { Grant::AccountKey };
        let expected = expected(&people, &filter, &grant, order);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (found, count) = runtime.block_on(async {
            let (service, account) = service(&people, &indexes).await;
            let caller = Caller { account, grant: &grant };
            let deadline = Instant::now() + Duration::from_mins(1);
            let count = service.count(caller, &table(), Some(filter.clone()), deadline).await;
            let mut query = EntityQuery {
                filter: Some(filter),
                select: None,
                order: Order::parse(order).unwrap(),
                from: None,
                limit,
                limited: true,
                deadline,
            };
            let mut found = Vec::new();
            loop {
                let page = service.query(caller, &table(), query.clone()).await.unwrap();
                for row in page.rows.iter() {
                    let row = row.unwrap();
                    found.push(format!("{}/{}", row.partition, row.row));
                }
                match page.next {
                    None => return (found, count.unwrap().count),
                    next => query.from = next,
                }
            }
        });
        if order.starts_with("PartitionKey") {
            prop_assert_eq!(count, expected.len() as u64);
        }
        // An index of more properties has entities with the same value in an order of its own.
        let tied = indexes.iter().any(|list| *list == "A,B" || *list == "B,A");
        if tied && (order.starts_with('A') || order.starts_with('B')) {
            let sorted = |mut keys: Vec<String>| { keys.sort(); keys };
            prop_assert_eq!(sorted(found), sorted(expected), "{} {:?}", text, indexes);
        } else {
            prop_assert_eq!(found, expected, "{} {:?}", text, indexes);
        }
    }
}
