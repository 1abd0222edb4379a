//! How a Citus cluster runs what the engine sends, seen in the commands to shards that it tells the engine's sessions of:
//! an operation that names a partition is one task, done by the node that the session is on, because that is the one which
//! holds the partition; a page of the whole table is one task a shard, each with a limit, for its keys, and one for the
//! entities that it has. A write of a table with indexes is several tasks, all of them there, and so is a page through an
//! index in a partition.
//!
//! Needs the URL of a database with the Citus extension and its nodes in `ROWHOUSE_TEST_CITUS`; everything in its schema
//! `rowhouse` is removed.

use crate::common;
use crate::common::{command, commit, filter, key, number, open, page, put, record, scan_of};
use rowhouse_query::index::entry;
use rowhouse_store::conformance::indexed::{index_of, only, ready, scan_through, unique_of};
use rowhouse_store::{
    AccountId, Command, Condition, Lookup, Placement, Scan, Store, TableId, Take, Write,
};
use rowhouse_store_postgres::PostgresStore;
use rowhouse_testkit::{TestCitus, Worker};
use rowhouse_types::{Direction, EntityKey, Etag, KeyRange, Position, Row, ValueRef};
use std::sync::{Arc, Mutex, Once, PoisonError};

/// Partitions, and entities in each.
const PARTITIONS: usize = 40;
const ROWS: usize = 100;
/// How often a statement is sent: often enough that the cluster keeps a plan for it, and then uses what it kept.
const TIMES: usize = 10;
/// Entities of a page.
const PAGE: usize = 30;
/// Entities of a page that are too many to send them with their keys.
const MANY: usize = 3000;
/// What every session is asked to tell.
const TELL: &[(&str, &str)] = &[
    ("client_min_messages", "notice"),
    ("citus.log_remote_commands", "on"),
    ("citus.log_local_commands", "on"),
];
/// How the cluster calls a command to a shard of the node that the session is on, and to one of another node.
const LOCAL: &str = "NOTICE: executing the command locally: ";
const REMOTE: &str = "NOTICE: issuing ";
/// The names of shards start so; and what is said of a transaction that has written to several nodes.
const SHARDS: [&str; 3] = ["rowhouse.entities_", "rowhouse.index_entries_", "PREPARE TRANSACTION"];

/// Keeps what sessions are told.
struct Notices(Mutex<Vec<String>>);

static NOTICES: Notices = Notices(Mutex::new(Vec::new()));

impl Notices {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl log::Log for Notices {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.target().starts_with("tokio_postgres")
    }

    fn log(&self, record: &log::Record<'_>) {
        if self.enabled(record.metadata()) {
            let mut notices = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            notices.push(record.args().to_string());
        }
    }

    fn flush(&self) {}
}

/// The commands to shards of entities and entries that the cluster made of one operation.
#[derive(Debug, Default)]
struct Tasks {
    /// On the node of the session.
    local: Vec<String>,
    /// On others.
    remote: Vec<String>,
}

impl Tasks {
    fn of(notices: Vec<String>) -> Self {
        let mut tasks = Self::default();
        let of_shards = |notice: &String| SHARDS.iter().any(|shard| notice.contains(shard));
        for notice in notices.into_iter().filter(of_shards) {
            if notice.starts_with(LOCAL) {
                tasks.local.push(notice);
            } else if notice.starts_with(REMOTE) {
                tasks.remote.push(notice);
            }
        }
        tasks
    }

    /// Those that send no properties, and those that do.
    fn steps(&self) -> (Vec<&String>, Vec<&String>) {
        self.local.iter().chain(&self.remote).partition(|sql| !sql.contains("props"))
    }
}

/// A table in many partitions, on a cluster that tells what it does.
struct Fixture {
    cluster: TestCitus,
    store: Arc<PostgresStore>,
    account: AccountId,
    table: TableId,
    shards: usize,
}

impl Fixture {
    async fn new() -> Self {
        static LOGGER: Once = Once::new();
        LOGGER.call_once(|| {
            log::set_logger(&NOTICES).expect("there is no other");
            log::set_max_level(log::LevelFilter::Info);
        });
        let cluster = TestCitus::named();
        cluster.empty();
        let store = open(&cluster.url_with(TELL)).await;
        let account = common::account(&*store).await;
        let table =
            store.create_table(account, &common::name("Things"), Placement::default()).await;
        let table = table.expect("the table is new").id;
        for partition in 0..PARTITIONS {
            let rows = (0..ROWS).map(|row| put(table, &row_of(partition, row), number(1)));
            commit(&*store, rows.collect()).await.expect("it is written");
        }
        let shards = cluster.shards().len();
        Self { cluster, store, account, table, shards }
    }

    /// How many rows these commands return, each on the shard that it was sent to.
    fn sent(&self, commands: &[&String]) -> usize {
        let shards = self.cluster.shards();
        let rows = |command: &&String| -> usize {
            let sql = &command[command.find("SELECT").expect("it reads")..];
            let sql = sql.rsplit_once(';').map_or(sql, |(sql, _)| sql);
            let of = |(shard, _): &&(i64, Worker)| sql.contains(&format!("entities_{shard}"));
            let (_, worker) = shards.iter().find(of).expect("it is of a shard");
            let count = format!("SELECT count(*) FROM ({sql}) AS sent");
            self.cluster.execute_on(worker, &count).parse().expect("a number")
        };
        commands.iter().map(rows).sum()
    }

    /// What the cluster makes of an operation that is done several times.
    async fn tasks(&self, work: impl AsyncFn(usize)) -> Vec<Tasks> {
        let mut all = Vec::new();
        for turn in 0..TIMES {
            NOTICES.take();
            work(turn).await;
            all.push(Tasks::of(NOTICES.take()));
        }
        all
    }

    /// An operation on one partition: one task, where the partition is.
    async fn one_task(&self, what: &str, work: impl AsyncFn(usize)) {
        for tasks in self.tasks(work).await {
            assert_eq!((tasks.local.len(), tasks.remote.len()), (1, 0), "{what}: {tasks:#?}");
        }
    }

    /// Several tasks, all where the partition is.
    async fn all_here(&self, what: &str, work: impl AsyncFn(usize)) {
        for tasks in self.tasks(work).await {
            assert!(!tasks.local.is_empty() && tasks.remote.is_empty(), "{what}: {tasks:#?}");
        }
    }

    async fn write(&self, commands: Vec<Command>) {
        commit(&*self.store, commands).await.expect("the conditions hold");
    }
}

fn row_of(partition: usize, row: usize) -> EntityKey {
    key(&format!("p{partition:02}"), &format!("r{row:04}"))
}

async fn points(fixture: &Fixture) {
    let Fixture { store, table, .. } = fixture;
    let at = |turn: usize| row_of(turn, 7);
    let write = async |turn, condition, write| {
        fixture.write(vec![command(*table, &at(turn), condition, write)]).await;
    };
    let read = async |turn| {
        let found = store.get(*table, &at(turn)).await.expect("the read succeeds");
        found.expect("it is there").as_ref().timestamp()
    };
    let mut tags = Vec::new();
    for turn in 0..TIMES {
        tags.push(Condition::Matches(Etag::new(read(turn).await)));
    }
    let get = async |turn| {
        read(turn).await;
    };
    fixture.one_task("get", get).await;
    let update = async |turn: usize| write(turn, tags[turn], Write::Put(number(2))).await;
    fixture.one_task("conditional update", update).await;
    let merge = async |turn| write(turn, Condition::Exists, Write::Merge(number(3))).await;
    fixture.one_task("merge", merge).await;
    let upsert = async |turn| write(turn, Condition::Any, Write::Put(number(4))).await;
    fixture.one_task("insert or replace", upsert).await;
    let upsert = async |turn| write(turn, Condition::Any, Write::Merge(number(5))).await;
    fixture.one_task("insert or merge", upsert).await;
    let delete = async |turn| write(turn, Condition::Exists, Write::Delete).await;
    fixture.one_task("delete", delete).await;
    let insert = async |turn| write(turn, Condition::Absent, Write::Put(number(6))).await;
    fixture.one_task("insert", insert).await;
}

async fn batches(fixture: &Fixture) {
    let batch = async |turn: usize, condition, write: Write| {
        let rows = (0..100).map(|row| key("batch", &format!("r{:04}", turn * 100 + row)));
        let commands = rows.map(|key| command(fixture.table, &key, condition, write.clone()));
        fixture.write(commands.collect()).await;
    };
    let put = || Write::Put(number(1));
    let merge = || Write::Merge(number(2));
    let (absent, any, exists) = (Condition::Absent, Condition::Any, Condition::Exists);
    fixture.one_task("100 inserts", async |turn| batch(turn, absent, put()).await).await;
    fixture.one_task("100 inserts or replaces", async |turn| batch(turn, any, put()).await).await;
    fixture.one_task("100 inserts or merges", async |turn| batch(turn, any, merge()).await).await;
    fixture.one_task("100 replaces", async |turn| batch(turn, exists, put()).await).await;
    fixture.one_task("100 merges", async |turn| batch(turn, exists, merge()).await).await;
    fixture.one_task("100 deletes", async |turn| batch(turn, exists, Write::Delete).await).await;
    mixed(fixture).await;
}

/// A batch of several kinds is a transaction on one node, each statement of it one task.
async fn mixed(fixture: &Fixture) {
    let work = async |turn| {
        let (gone, changed, new) = (row_of(turn, 1), row_of(turn, 2), row_of(turn, ROWS));
        let commands = vec![
            command(fixture.table, &gone, Condition::Exists, Write::Delete),
            command(fixture.table, &changed, Condition::Exists, Write::Merge(number(2))),
            command(fixture.table, &new, Condition::Absent, Write::Put(number(2))),
        ];
        fixture.write(commands).await;
    };
    for tasks in fixture.tasks(work).await {
        // They are read and locked, two are put, one is deleted.
        assert_eq!((tasks.local.len(), tasks.remote.len()), (3, 0), "{tasks:#?}");
    }
}

async fn pages(fixture: &Fixture) {
    let Fixture { store, table, shards, .. } = fixture;
    let read = async |range: KeyRange, (condition, select): (Option<&str>, bool)| {
        let filter = condition.map(filter);
        let select = select.then(|| Arc::from(["n".into()]));
        let scan = Scan { filter, select, limit: PAGE, ..scan_of(vec![range]) };
        assert_eq!(page(&**store, *table, scan).await.rows.len(), PAGE);
    };
    let rest = |partition: &str| KeyRange {
        start: Position::after(partition, "r0044"),
        end: Some(Position::after_partition(partition)),
    };
    for condition in
        [(None, false), (Some("n lt 100L"), false), (None, true), (Some("n lt 100L"), true)]
    {
        let partition = async |_| read(KeyRange::partition("p20"), condition).await;
        fixture.one_task("query of a partition", partition).await;
        fixture.one_task("page in a partition", async |_| read(rest("p21"), condition).await).await;
        for tasks in fixture.tasks(async |_| read(KeyRange::all(), condition).await).await {
            let (keys, rows) = tasks.steps();
            // What is small comes with the keys.
            let steps = if condition == (None, false) { (0, *shards) } else { (*shards, *shards) };
            assert_eq!((keys.len(), rows.len()), steps, "a task for each shard: {tasks:#?}");
            let limited = |sql: &&String| sql.contains("LIMIT");
            assert!(keys.iter().chain(&rows).all(limited), "{tasks:#?}");
        }
    }
    // Of many rows every shard sends the keys first, and of the entities those that are on the page.
    let many = Scan { limit: MANY, ..scan_of(vec![KeyRange::all()]) };
    for tasks in fixture.tasks(async |_| drop(page(&**store, *table, many.clone()).await)).await {
        let (keys, rows) = tasks.steps();
        assert_eq!((keys.len(), rows.len()), (*shards, *shards), "{tasks:#?}");
        assert_eq!(fixture.sent(&rows), MANY, "{tasks:#?}");
    }
    let count = Scan { take: Take::Count, ..scan_of(vec![KeyRange::all()]) };
    for tasks in fixture.tasks(async |_| drop(page(&**store, *table, count.clone()).await)).await {
        assert!(tasks.steps().1.is_empty(), "what is counted is not sent: {tasks:#?}");
    }
}

/// Large entities over many partitions: however many there are, those that a page has room for are sent, twice over at most.
async fn large_pages(fixture: &Fixture) {
    const ENTITIES: usize = 60;
    const BYTES: usize = 500_000;
    const PAGE_BYTES: usize = 4 << 20;
    let Fixture { store, .. } = fixture;
    let table = store
        .create_table(fixture.account, &common::name("Large"), Placement::default())
        .await
        .expect("the table is new")
        .id;
    for partition in 0..ENTITIES {
        let blob: Vec<u8> =
            (0..BYTES).map(|at| u8::try_from((at * partition) % 251).unwrap_or(0)).collect();
        let parts =
            blob.chunks(60_000).enumerate().map(|(part, bytes)| (format!("b{part}"), bytes));
        let parts: Vec<_> = parts.collect();
        let mut values = vec![("n", ValueRef::Int64(1)), ("s", ValueRef::String("Ä"))];
        values.extend(parts.iter().map(|(name, bytes)| (name.as_str(), ValueRef::Binary(bytes))));
        fixture.write(vec![put(table, &row_of(partition, 0), record(&values))]).await;
    }
    let all: Vec<_> = (0..ENTITIES).map(|partition| format!("p{partition:02}")).collect();
    for (condition, direction) in [
        (None, Direction::Ascending),
        (None, Direction::Descending),
        (Some("n eq 1"), Direction::Ascending),
        (Some("tolower(s) eq 'ä'"), Direction::Ascending),
    ] {
        let mut found = Vec::new();
        let mut ranges = vec![KeyRange::all()];
        loop {
            NOTICES.take();
            let filter = condition.map(filter);
            let limits = Scan { limit: 1000, max_bytes: PAGE_BYTES, ..scan_of(ranges) };
            let page = page(&**store, table, Scan { filter, direction, ..limits }).await;
            let tasks = Tasks::of(NOTICES.take());
            let sent = fixture.sent(&tasks.steps().1);
            let returned = page.rows.len();
            assert!(page.rows.byte_len() < PAGE_BYTES + 2 * BYTES, "{condition:?}");
            assert!(
                returned <= sent && sent <= 2 * (PAGE_BYTES / BYTES + 2),
                "{sent} for {returned}"
            );
            let rows = page.rows.iter().map(|row| row.expect("it decodes").partition.to_owned());
            found.extend(rows);
            let Some(next) = page.next else { break };
            ranges = vec![direction.rest(&next)];
        }
        if direction == Direction::Descending {
            found.reverse();
        }
        assert_eq!(found, all, "{condition:?}");
    }
}

/// With indexes: everything is on the node of the partition, the entries too, and nothing is prepared.
async fn indexed(fixture: &Fixture) {
    let Fixture { store, table, shards, .. } = fixture;
    let index = ready(&**store, *table, "n", index_of(&["n"])).await;
    ready(&**store, *table, "u", unique_of(&["PartitionKey", "RowKey"])).await;
    let write = async |turn: usize, condition, write: Write| {
        fixture.write(vec![command(*table, &row_of(turn, 50), condition, write)]).await;
    };
    let (absent, any, exists) = (Condition::Absent, Condition::Any, Condition::Exists);
    fixture.all_here("merge", async |turn| write(turn, any, Write::Merge(number(7))).await).await;
    fixture
        .all_here("replace", async |turn| write(turn, exists, Write::Put(number(8))).await)
        .await;
    fixture.all_here("delete", async |turn| write(turn, exists, Write::Delete).await).await;
    fixture.all_here("insert", async |turn| write(turn, absent, Write::Put(number(9))).await).await;
    let batch = async |turn: usize| {
        let rows =
            (0..100).map(|row| put(*table, &key("more", &format!("{turn}-{row}")), number(9)));
        fixture.write(rows.collect()).await;
    };
    fixture.all_here("100 inserts or replaces", batch).await;
    let nine = number(9);
    let row = Row { partition: "p", row: "r", record: nine.as_ref() };
    let nine = entry(&index.keys, &row).expect("it decodes").expect("it has a number");
    let read = async |range: KeyRange, found: usize| {
        let scan = scan_through(vec![Lookup { index: index.id, spans: vec![only(&nine)] }]);
        let scan = Scan { ranges: vec![range], limit: PAGE, ..scan };
        assert_eq!(page(&**store, *table, scan).await.rows.len(), found);
    };
    let in_one = async |_| read(KeyRange::partition("p03"), 1).await;
    fixture.all_here("equal values in a partition", in_one).await;
    for tasks in fixture.tasks(async |_| read(KeyRange::all(), PAGE).await).await {
        let commands: Vec<_> = tasks.local.iter().chain(&tasks.remote).collect();
        assert_eq!(commands.len(), *shards, "a task for each shard: {tasks:#?}");
        assert!(commands.iter().all(|sql| sql.contains("LIMIT")), "{tasks:#?}");
    }
}

#[test]
#[ignore = "ROWHOUSE_TEST_CITUS names a cluster"]
fn an_operation_on_a_partition_is_one_task() {
    common::run(async {
        let fixture = Fixture::new().await;
        points(&fixture).await;
        batches(&fixture).await;
        pages(&fixture).await;
        indexed(&fixture).await;
    });
}

#[test]
#[ignore = "ROWHOUSE_TEST_CITUS names a cluster"]
fn a_page_of_many_shards_is_sent_once() {
    common::run(async { large_pages(&Fixture::new().await).await });
}
