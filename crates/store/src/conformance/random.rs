//! Random sequences of operations, on the engine and on the model side by side.
//!
//! Few tables, few keys and few values, so that operations meet. Both stores get each operation in turn
//! and must give the same answer; Timestamps differ between stores, so each side is held to its own.
//!
//! A failure prints the seed and the shortest sequence found. `ROWHOUSE_SEED=<seed>` repeats the run,
//! `ROWHOUSE_CASES=<n>` makes it longer.

use super::Engine;
use super::fixture::{account, content, filter, key, resume};
use crate::model::ModelStore;
use crate::{
    AccountId, Batch, Command, Condition, Conflict, Page, Placement, Scan, Store, StoreError,
    TableId, Write,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};
use rowhouse_env::{Clock, Random, SimulatedClock, SystemRandom};
use rowhouse_types::{
    EntityKey, Etag, KeyRange, Position, Record, RecordBuilder, Row, Timestamp, Value,
};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

const TABLES: [&str; 3] = ["One", "Two", "Three"];
const PARTITIONS: [&str; 3] = ["", "a", "ab"];
const ROWS: [&str; 4] = ["", "a", "b", "😀"];
const FILTERS: [&str; 14] = [
    "",
    "n eq 1",
    "n gt 0 and m lt 2",
    "not (n eq 1)",
    "n ne 2 or m eq 0",
    "s ge 'a'",
    "PartitionKey eq 'a'",
    "RowKey gt 'a' and n ge 0",
    "PartitionKey gt 'a' or RowKey le 'a'",
    "missing eq true",
    "startswith(RowKey,'a') and not (length(s) gt 1)",
    "toupper(s) ge 'A'",
    "n in (1,2) or contains(s,'a') ne true",
    "endswith(tolower(PartitionKey),'a') or contains(s,RowKey)",
];

#[derive(Clone, Debug)]
enum Step {
    CreateTable(usize),
    DropTable(usize),
    Commit(Vec<Change>),
    Get(usize, Key),
    Scan { table: usize, ranges: Ranges, filter: &'static str, limit: usize, bytes: usize },
    List { from: Option<&'static str>, limit: usize },
    SetClock { millis: i64 },
    Reopen,
}

#[derive(Clone, Debug)]
struct Change {
    table: usize,
    key: Key,
    when: When,
    what: What,
}

/// A condition, in words that mean the same on both sides.
#[derive(Clone, Copy, Debug)]
enum When {
    Absent,
    Exists,
    Any,
    /// Has the tag that the key last had.
    Latest,
    /// Has the tag that it had before.
    Stale,
}

#[derive(Clone, Debug)]
enum What {
    Put(Content),
    Merge(Content),
    Delete,
}

/// A sequence, a line per step when printed.
#[derive(Clone)]
struct Steps(Vec<Step>);

impl fmt::Debug for Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|step| write!(f, "\n  {step:?}"))
    }
}

/// Keys, ranges and records that print their content: a failure is to be read by people.
#[derive(Clone)]
struct Key(EntityKey);

#[derive(Clone)]
struct Ranges(Vec<KeyRange>);

/// A record without its Timestamp.
#[derive(Clone, PartialEq)]
struct Content(Record);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({:?}, {:?})", self.0.partition.as_str(), self.0.row.as_str())
    }
}

impl fmt::Debug for Ranges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = |at: &Position| (at.partition.clone(), at.row.clone());
        let range = |range: &KeyRange| (place(&range.start), range.end.as_ref().map(place));
        f.debug_list().entries(self.0.iter().map(range)).finish()
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let properties = self.0.as_ref().iter().flatten();
        f.debug_map().entries(properties.map(|each| (each.name, each.value))).finish()
    }
}

/// The answer to a step, without Timestamps.
#[derive(Debug, PartialEq)]
enum Answer {
    Nothing,
    Rejected(usize, Conflict),
    Entity(Option<Content>),
    Pages(Vec<Found>),
    Names(Vec<String>),
}

/// A page: its rows and where to resume.
#[derive(Debug, PartialEq)]
struct Found {
    rows: Vec<(String, String, Content)>,
    next: Option<(String, String)>,
}

fn record() -> impl Strategy<Value = Content> {
    let value = prop_oneof![
        (0..3).prop_map(Value::Int32),
        (0..3i64).prop_map(Value::Int64),
        select(vec!["", "a", "b"]).prop_map(|text| Value::String(text.into())),
        any::<f64>().prop_map(Value::Double),
    ];
    let int = (0..3).prop_map(Value::Int32);
    let property = prop_oneof![
        3 => (select(vec!["n", "m"]), int),
        1 => (select(vec!["n", "m", "s", "x"]), value),
    ];
    vec(property, 0..4).prop_map(|properties| {
        let mut builder = RecordBuilder::new();
        for (name, value) in properties {
            // A name drawn twice stays with its first value.
            let _ = builder.push(name, value.as_ref());
        }
        Content(builder.finish(Timestamp::default()))
    })
}

fn any_key() -> impl Strategy<Value = Key> {
    (select(&PARTITIONS[..]), select(&ROWS[..])).prop_map(|(p, r)| Key(key(p, r)))
}

fn change() -> impl Strategy<Value = Change> {
    // Mostly conditions that hold: a batch of which every command may fail never does anything.
    let when = prop_oneof![
        10 => Just(When::Any),
        2 => Just(When::Absent),
        2 => Just(When::Exists),
        2 => Just(When::Latest),
        1 => Just(When::Stale),
    ];
    let what = prop_oneof![
        3 => record().prop_map(What::Put),
        2 => record().prop_map(What::Merge),
        1 => Just(What::Delete),
    ];
    (0..TABLES.len(), any_key(), when, what).prop_map(|(table, key, when, what)| Change {
        table,
        key,
        when,
        what,
    })
}

fn position() -> impl Strategy<Value = Position> {
    (any_key(), 0..4).prop_map(|(Key(key), kind)| {
        let (partition, row) = (key.partition.as_str(), key.row.as_str());
        match kind {
            0 => Position::before(partition, row),
            1 => Position::after(partition, row),
            2 => Position::before_partition(partition),
            _ => Position::after_partition(partition),
        }
    })
}

/// Disjoint ranges in order; the last may be open.
fn ranges() -> impl Strategy<Value = Ranges> {
    let some = (vec(position(), 0..7), any::<bool>()).prop_map(|(mut positions, open)| {
        positions.sort();
        let pairs = positions.chunks(2).filter_map(|pair| match pair {
            [start, end] => Some(KeyRange { start: start.clone(), end: Some(end.clone()) }),
            [start] if open => Some(KeyRange { start: start.clone(), end: None }),
            _ => None,
        });
        Ranges(pairs.filter(|range| !range.is_empty()).collect())
    });
    prop_oneof![2 => Just(Ranges(vec![KeyRange::all()])), 3 => some]
}

fn step() -> impl Strategy<Value = Step> {
    let table = 0..TABLES.len();
    let limit = select(vec![1, 2, 3, 5, 1000]);
    let bytes = select(vec![1, 60, 200, usize::MAX, usize::MAX]);
    prop_oneof![
        2 => table.clone().prop_map(Step::CreateTable),
        1 => table.clone().prop_map(Step::DropTable),
        12 => vec(change(), 1..5).prop_map(Step::Commit),
        4 => (table.clone(), any_key()).prop_map(|(table, key)| Step::Get(table, key)),
        6 => (table, ranges(), select(&FILTERS[..]), limit.clone(), bytes).prop_map(
            |(table, ranges, filter, limit, bytes)| Step::Scan { table, ranges, filter, limit, bytes }
        ),
        1 => (select(vec![None, Some("P"), Some("three"), Some("z")]), limit)
            .prop_map(|(from, limit)| Step::List { from, limit }),
        2 => (-2000..2000i64).prop_map(|millis| Step::SetClock { millis }),
        1 => Just(Step::Reopen),
    ]
}

/// Runs the sequences; the first difference fails with its seed.
#[expect(clippy::unused_async, reason = "every test of the suite has one form")]
pub async fn behaves_as_the_model(engine: &dyn Engine) {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seed = number("ROWHOUSE_SEED").unwrap_or_else(|| {
        let mut bytes = [0; 8];
        SystemRandom.fill(&mut bytes);
        u64::from_le_bytes(bytes)
    });
    let cases = number("ROWHOUSE_CASES").and_then(|cases| u32::try_from(cases).ok()).unwrap_or(64);
    let config =
        Config { cases, failure_persistence: None, max_shrink_iters: 500, ..Config::default() };
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(config, rng);
    // Every table is there at first and holds something, so that short sequences meet something.
    let fill = vec((0..TABLES.len(), any_key(), record()), 0..20).prop_map(|puts| {
        let put = |(table, key, record)| {
            Step::Commit(vec![Change { table, key, when: When::Any, what: What::Put(record) }])
        };
        puts.into_iter().map(put)
    });
    let steps = (fill, vec(step(), 1..50)).prop_map(|(fill, steps)| {
        let create = (0..TABLES.len()).map(Step::CreateTable);
        Steps(create.chain(fill).chain(steps).collect())
    });
    let runtime = tokio::runtime::Handle::current();
    let result = tokio::task::block_in_place(|| {
        runner.run(&steps, |Steps(steps)| runtime.block_on(compare(engine, steps)))
    });
    if let Err(error) = result {
        panic!("ROWHOUSE_SEED={seed} repeats this: {error}");
    }
}

async fn compare(engine: &dyn Engine, steps: Vec<Step>) -> Result<(), TestCaseError> {
    let clock = Arc::new(SimulatedClock::new(engine.clock().now()));
    let model = Arc::new(ModelStore::new(Arc::clone(&clock) as Arc<dyn Clock>));
    let mut left = Side::new(engine.open().await).await;
    let mut right = Side::new(model).await;
    for (index, step) in steps.into_iter().enumerate() {
        match step {
            Step::SetClock { millis } => {
                let ticks = clock.now().ticks().saturating_add_signed(millis * 10_000);
                let now = Timestamp::from_ticks(ticks).unwrap_or(Timestamp::MAX);
                clock.set(now);
                engine.clock().set(now);
            }
            Step::Reopen => {
                if let Some(reopened) = engine.reopen(Arc::clone(&left.store)).await {
                    left.store = reopened;
                }
            }
            step => {
                let (found, wanted) = (left.run(&step).await?, right.run(&step).await?);
                prop_assert_eq!(found, wanted, "step {}: {:?}", index, step);
            }
        }
    }
    let everything = |table| Step::Scan {
        table,
        ranges: Ranges(vec![KeyRange::all()]),
        filter: "",
        limit: 1000,
        bytes: usize::MAX,
    };
    for table in 0..TABLES.len() {
        let step = everything(table);
        let (found, wanted) = (left.run(&step).await?, right.run(&step).await?);
        prop_assert_eq!(found, wanted, "in the end, table {}", table);
    }
    left.store.close().await.map_err(|error| TestCaseError::fail(error.to_string()))
}

/// One of the two stores, with what it must remember of its own Timestamps.
struct Side {
    store: Arc<dyn Store>,
    account: AccountId,
    /// The latest table of each name, dropped or not.
    tables: [TableId; TABLES.len()],
    /// Every Timestamp that a key ever had, in order.
    tags: BTreeMap<(TableId, EntityKey), Vec<Timestamp>>,
}

impl Side {
    async fn new(store: Arc<dyn Store>) -> Self {
        let account = account(&*store, "first").await.id;
        Self { store, account, tables: [TableId(1 << 40); TABLES.len()], tags: BTreeMap::new() }
    }

    async fn run(&mut self, step: &Step) -> Result<Answer, TestCaseError> {
        let done = match step {
            Step::CreateTable(which) => {
                let name = TABLES[*which].parse().expect("a legal table name");
                let created = self.store.create_table(self.account, &name, Placement::default());
                created.await.map(|table| {
                    self.tables[*which] = table.id;
                    Answer::Nothing
                })
            }
            Step::DropTable(which) => {
                let dropped = self.store.drop_table(self.tables[*which]).await;
                dropped.map(|()| Answer::Nothing)
            }
            Step::Commit(changes) => return self.commit(changes).await,
            Step::Get(which, Key(key)) => {
                let table = self.tables[*which];
                match self.store.get(table, key).await {
                    Ok(Some(record)) => {
                        self.check_tag(table, key, record.as_ref().timestamp())?;
                        Ok(Answer::Entity(Some(Content(content(&record)))))
                    }
                    Err(error) if is_gone(&error) => Ok(Answer::Entity(None)),
                    other => other.map(|_| Answer::Entity(None)),
                }
            }
            Step::Scan { table, ranges, filter: text, limit, bytes } => {
                let scan = Scan {
                    ranges: ranges.0.clone(),
                    direction: rowhouse_types::Direction::Ascending,
                    take: crate::Take::Entities,
                    filter: filter(text),
                    limit: *limit,
                    max_bytes: *bytes,
                    deadline: Instant::now() + Duration::from_mins(10),
                };
                return self.scan(self.tables[*table], scan).await;
            }
            Step::List { from, limit } => {
                let from = from.map(rowhouse_types::FoldedName::of);
                let listed = self.store.tables(self.account, from.as_ref(), *limit).await;
                listed.map(|tables| {
                    Answer::Names(tables.iter().map(|table| table.name.to_string()).collect())
                })
            }
            Step::SetClock { .. } | Step::Reopen => Ok(Answer::Nothing),
        };
        answer(done)
    }

    async fn commit(&mut self, changes: &[Change]) -> Result<Answer, TestCaseError> {
        let commands = changes.iter().map(|change| self.command(change)).collect();
        let committed = match self.store.commit(Batch { commands }).await {
            Ok(committed) => committed,
            Err(error) => return answer(Err(error)),
        };
        prop_assert_eq!(committed.timestamps.len(), changes.len());
        for (change, timestamp) in changes.iter().zip(committed.timestamps) {
            let tags =
                self.tags.entry((self.tables[change.table], change.key.0.clone())).or_default();
            // Twice within one batch may be one moment.
            prop_assert!(tags.last().is_none_or(|last| *last <= timestamp), "Timestamps rise");
            tags.push(timestamp);
        }
        Ok(Answer::Nothing)
    }

    fn command(&self, change: &Change) -> Command {
        let table = self.tables[change.table];
        let tags = self.tags.get(&(table, change.key.0.clone()));
        let tag = |back: usize| {
            let known = tags.and_then(|tags| {
                let latest = *tags.last()?;
                let older = tags.iter().rev().find(|tag| **tag < latest).copied();
                if back == 0 { Some(latest) } else { older }
            });
            Condition::Matches(Etag::new(known.unwrap_or_default()))
        };
        let condition = match change.when {
            When::Absent => Condition::Absent,
            When::Exists => Condition::Exists,
            When::Any => Condition::Any,
            When::Latest => tag(0),
            When::Stale => tag(1),
        };
        let write = match &change.what {
            What::Put(record) => Write::Put(record.0.clone()),
            What::Merge(record) => Write::Merge(record.0.clone()),
            What::Delete => Write::Delete,
        };
        Command::Entity { table, key: change.key.0.clone(), condition, write }
    }

    /// Every page of the query.
    async fn scan(&self, table: TableId, mut scan: Scan) -> Result<Answer, TestCaseError> {
        let mut pages = Vec::new();
        loop {
            let page = match self.store.scan(table, scan.clone()).await {
                Ok(page) => page,
                Err(error) if is_gone(&error) => Page::default(),
                Err(error) => return answer(Err(error)),
            };
            prop_assert!(page.examined >= page.rows.len() as u64, "what is returned was examined");
            let mut rows = Vec::new();
            for row in page.rows.iter() {
                let Row { partition, row, record } = row.expect("a page decodes");
                self.check_tag(table, &key(partition, row), record.timestamp())?;
                rows.push((
                    partition.to_owned(),
                    row.to_owned(),
                    Content(content(&record.to_owned())),
                ));
            }
            let next =
                page.next.as_ref().map(|next| (next.partition.to_string(), next.row.to_string()));
            pages.push(Found { rows, next });
            match page.next {
                Some(next) => scan.ranges = resume(&scan.ranges, &next),
                None => return Ok(Answer::Pages(pages)),
            }
            prop_assert!(pages.len() <= PARTITIONS.len() * ROWS.len(), "pages come to an end");
        }
    }

    fn check_tag(
        &self,
        table: TableId,
        key: &EntityKey,
        found: Timestamp,
    ) -> Result<(), TestCaseError> {
        let wanted = self.tags.get(&(table, key.clone())).and_then(|tags| tags.last());
        prop_assert_eq!(Some(&found), wanted, "the Timestamp is that of the last commit");
        Ok(())
    }
}

/// Reading a dropped table may say so or find nothing: both are taken for nothing.
fn is_gone(error: &StoreError) -> bool {
    matches!(error, StoreError::Rejected { reason: Conflict::TableNotFound, .. })
}

/// Rejections are answers, anything else is a failure.
fn answer(result: Result<Answer, StoreError>) -> Result<Answer, TestCaseError> {
    match result {
        Ok(answer) => Ok(answer),
        Err(StoreError::Rejected { index, reason }) => Ok(Answer::Rejected(index, reason)),
        Err(other) => Err(TestCaseError::fail(other.to_string())),
    }
}
