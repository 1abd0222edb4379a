//! How PostgreSQL runs what the engine sends, seen in the plans that it logs: entities are found by the primary key,
//! what concerns one of them is one statement whether or not its condition holds, and a page reads little more than it returns, on a table with statistics and on one without. So does one that is read
//! through an index.

use crate::common;
use crate::common::{
    command, commit, database, filter, key, number, open, page, put, refused, scan_of, table,
};
use rowhouse_query::index::{Span, entry};
use rowhouse_store::conformance::indexed::{index_of, only, ready, walk_of, walk_page};
use rowhouse_store::{
    Batch, Condition, Conflict, Lookup, Message, MessageAction, Scan, Store, TableId, Walk, Write,
};
use rowhouse_store_postgres::PostgresStore;
use rowhouse_testkit::TestPostgres;
use rowhouse_types::{Direction, EntityKey, Etag, KeyRange, Position, Row, Timestamp};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Partitions, and entities in each.
const PARTITIONS: usize = 50;
const ROWS: usize = 1000;
/// Other tables, all of them empty.
const TABLES: usize = 2000;
/// How often a statement is sent: often enough that the database stops planning for its values.
const TIMES: usize = 8;
/// Entities of a page.
const PAGE: usize = 100;
/// Rows that a page may read beyond those that it returns.
const BEYOND: usize = 64;

/// Logs every statement, and every plan with the rows that each part gave. Statistics are only ever made by the test.
const SETTINGS: &[(&str, &str)] = &[
    ("fsync", "off"),
    ("autovacuum", "off"),
    ("log_statement", "all"),
    ("session_preload_libraries", "auto_explain"),
    ("auto_explain.log_min_duration", "0"),
    ("auto_explain.log_analyze", "on"),
    ("auto_explain.log_timing", "off"),
];

/// How a transaction that writes entities begins.
const TRANSACTION: &str = "LOCK TABLE rowhouse.entities";

/// A large table, on a server that logs its plans.
struct Fixture {
    server: TestPostgres,
    url: String,
    store: Arc<PostgresStore>,
    table: TableId,
}

impl Fixture {
    async fn new(analyzed: bool) -> Self {
        let server = TestPostgres::start_with(SETTINGS);
        let url = server.create_database();
        let store = open(&url).await;
        let table = table(&*store).await;
        for partition in 0..PARTITIONS {
            let key = key(&format!("p{partition:02}"), "r");
            commit(&*store, vec![put(table, &key, number(1))]).await.expect("it is written");
        }
        // The others are made of these, each in the partition of the one that it is made of.
        let sql = format!(
            "INSERT INTO rowhouse.entities
             SELECT dk, tid, kp || convert_to(to_char(n, 'FM0000'), 'UTF8'), kh, rest, pl, ts, size, names, props
             FROM rowhouse.entities, generate_series(1, {}) AS n",
            ROWS - 1
        );
        server.execute(database(&url), &sql);
        let sql = format!(
            "INSERT INTO rowhouse.tables (tid, account, folded, name, created)
             SELECT n + 100, account, folded || n, name || n, created
             FROM rowhouse.tables, generate_series(1, {TABLES}) AS n"
        );
        server.execute(database(&url), &sql);
        if analyzed {
            server.execute(database(&url), "ANALYZE");
        }
        Self { server, url, store, table }
    }

    /// Checks every statement on entities that the work sends, which it does several times.
    async fn check(&self, check: impl Fn(&str), work: impl AsyncFn(usize)) {
        for plan in self.plans(work).await {
            check(&plan);
        }
    }

    /// As [`Fixture::check`], of work that is to be one statement each time.
    async fn check_one(&self, check: impl Fn(&str), work: impl AsyncFn(usize)) {
        let before = self.server.log().len();
        for turn in 0..TIMES {
            work(turn).await;
        }
        // Whatever was answered before is logged before.
        let last = format!("SELECT 'after {before}'");
        self.server.execute(database(&self.url), &last);
        let log = self.server.log();
        let log = &log[before..];
        assert!(log.contains(&last), "statements are logged");
        let plans = plans_in(log);
        assert_eq!(plans.len(), TIMES, "one statement each time:\n{}", plans.join("\n"));
        assert!(!log.contains(TRANSACTION), "no transaction");
        for plan in plans {
            check(&plan);
        }
    }

    async fn plans(&self, work: impl AsyncFn(usize)) -> Vec<String> {
        let before = self.server.log().len();
        for turn in 0..TIMES {
            work(turn).await;
        }
        let began = Instant::now();
        loop {
            let plans = plans_in(&self.server.log()[before..]);
            if plans.len() >= TIMES {
                return plans;
            }
            assert!(
                began.elapsed() < Duration::from_secs(10),
                "{} plans are missing",
                TIMES - plans.len()
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// The plans in a log, of statements on entities.
fn plans_in(log: &str) -> Vec<String> {
    let mut plans: Vec<String> = Vec::new();
    let mut inside = false;
    for line in log.lines() {
        if line.ends_with(" plan:") {
            plans.push(String::new());
            inside = true;
        } else if inside && line.starts_with('\t') {
            let plan = plans.last_mut().expect("one was begun");
            plan.push_str(line);
            plan.push('\n');
        } else {
            inside = false;
        }
    }
    let of_rows = ["rowhouse.entities", "rowhouse.index_entries", "rowhouse.messages"];
    plans.retain(|plan| of_rows.iter().any(|name| plan.contains(name)));
    // Looking for messages that have expired is nobody's doing, and comes when it likes.
    plans.retain(|plan| !plan.contains("Index Scan using messages_to_sweep "));
    plans
}

/// What the plan does, a line a step, without the text of the query.
fn steps(plan: &str) -> impl Iterator<Item = &str> {
    let of_plan = |line: &&str| {
        line.contains("(cost=") || line.contains(" Cond: ") || line.contains(" Key: ")
    };
    plan.lines().filter(of_plan).map(|line| line.trim_start().trim_start_matches("->  "))
}

/// The conditions under which a plan looks into an index.
fn conditions<'a>(plan: &'a str, index: &str) -> Vec<&'a str> {
    let steps: Vec<_> = steps(plan).collect();
    let using = format!("Index Scan using {index} ");
    let of = |pair: &[&'a str]| pair[0].starts_with(&using).then_some(pair[1]);
    steps.windows(2).filter_map(of).collect()
}

/// Whatever it is, it reads no table from end to end and sorts none.
fn check_any(plan: &str) {
    for step in steps(plan) {
        let bad = ["Seq Scan", "Sort  (", "Bitmap", "Hash"].iter().any(|bad| step.starts_with(bad));
        assert!(!bad, "{plan}");
    }
    let found = conditions(plan, "tables_pkey");
    assert!(found.iter().all(|condition| condition.contains("(tid = ")), "{plan}");
    assert!(!plan.contains("tables_by_name"), "{plan}");
}

/// Entities are found by their whole keys.
fn check_point(plan: &str) {
    check_any(plan);
    let found = conditions(plan, "entities_pkey");
    assert!(!found.is_empty(), "{plan}");
    for condition in found {
        for column in ["(tid = ", "(kp = ", "(kh = ", "(dk = "] {
            assert!(condition.contains(column), "{plan}");
        }
    }
}

/// The rows of an upsert are found by the primary key.
fn check_upsert(plan: &str) {
    check_any(plan);
    assert!(plan.contains("Conflict Arbiter Indexes: entities_pkey"), "{plan}");
}

/// Several entities are found by their keys, or written as an upsert is.
fn check_batch(plan: &str) {
    check_any(plan);
    let found = conditions(plan, "entities_pkey");
    if found.is_empty() {
        return check_upsert(plan);
    }
    let by_keys = |condition: &&str| {
        ["(tid = ", "(kp = ANY ", "(dk = "].iter().all(|column| condition.contains(column))
    };
    assert!(found.iter().all(by_keys), "{plan}");
}

/// A page is read in the order of the index, from where it starts to where it ends.
fn check_page(plan: &str) {
    check_any(plan);
    assert!(steps(plan).any(|step| step.starts_with("Limit ")), "{plan}");
    let [condition] = conditions(plan, "entities_pkey")[..] else { panic!("{plan}") };
    for column in ["(tid = ", "(kp >= ", "(kp <= "] {
        assert!(condition.contains(column), "{plan}");
    }
    check_rows(plan, "using entities_pkey");
}

/// Few rows are read there.
fn check_rows(plan: &str, there: &str) {
    for scan in steps(plan).filter(|step| step.contains(there)) {
        let rows = scan.split("actual rows=").nth(1).and_then(|rest| rest.split(' ').next());
        let rows: usize = rows.and_then(|rows| rows.parse().ok()).expect("it was run");
        assert!(rows <= PAGE + BEYOND, "{rows} rows were read:\n{plan}");
    }
}

/// Entries are found by what is looked up, and the entity of each by its whole key.
fn check_lookup(plan: &str) {
    check_point(plan);
    let found = conditions(plan, "index_entries_pkey");
    assert!(!found.is_empty(), "{plan}");
    for condition in found {
        assert!(condition.contains("(iid = ") && condition.contains("(entry = "), "{plan}");
    }
    check_rows(plan, "using index_entries_pkey");
}

/// Entries are read in their order, and the entity of each is found by its whole key.
fn check_walk(plan: &str) {
    check_point(plan);
    let found = conditions_of(plan, ["Index Scan using", "Index Scan Backward using"]);
    assert!(found.iter().all(|condition| condition.contains("(iid = ")), "{plan}");
    assert!(!found.is_empty(), "{plan}");
    check_rows(plan, "using index_entries_pkey");
}

/// The conditions under which a plan looks into entries in one of these ways.
fn conditions_of<'a>(plan: &'a str, ways: [&str; 2]) -> Vec<&'a str> {
    let steps: Vec<_> = steps(plan).collect();
    let of = |pair: &[&'a str]| {
        let found =
            ways.iter().any(|way| pair[0].starts_with(&format!("{way} index_entries_pkey")));
        found.then_some(pair[1])
    };
    steps.windows(2).filter_map(of).collect()
}

fn check_page_of_partition(plan: &str) {
    check_page(plan);
    assert!(conditions(plan, "entities_pkey")[0].contains("(dk = "), "{plan}");
}

/// An entity that is there, another one every turn.
fn some(turn: usize) -> EntityKey {
    key("p07", &format!("r{:04}", turn + 1))
}

async fn points(fixture: &Fixture) {
    let Fixture { store, table, .. } = fixture;
    let write = async |turn, condition, write| {
        let done = commit(&**store, vec![command(*table, &some(turn), condition, write)]).await;
        done.expect("the condition holds");
    };
    let read = async |turn| {
        let found = store.get(*table, &some(turn)).await.expect("the read succeeds");
        found.expect("it is there").as_ref().timestamp()
    };
    let tag = Condition::Matches(Etag::new(read(0).await));
    let reads = async |turn| {
        read(turn).await;
    };
    fixture.check_one(check_point, reads).await;
    let (exists, any, absent) = (Condition::Exists, Condition::Any, Condition::Absent);
    let (new, patch) = (|| Write::Put(number(2)), || Write::Merge(number(3)));
    fixture.check_one(check_point, async |turn| write(turn, tag, new()).await).await;
    fixture.check_one(check_point, async |turn| write(turn, exists, patch()).await).await;
    fixture.check_one(check_upsert, async |turn| write(turn, any, new()).await).await;
    fixture.check_one(check_upsert, async |turn| write(turn, any, patch()).await).await;
    fixture.check_one(check_point, async |turn| write(turn, exists, Write::Delete).await).await;
    fixture.check_one(check_upsert, async |turn| write(turn, absent, new()).await).await;
}

/// As [`points`], where the condition does not hold.
async fn refused_points(fixture: &Fixture) {
    let Fixture { store, table, .. } = fixture;
    let write = async |key: &EntityKey, condition, write, reason| {
        let done = commit(&**store, vec![command(*table, key, condition, write)]).await;
        assert_eq!(refused(done).err(), Some(reason));
    };
    let none = |turn: usize| key("p07", &format!("none{turn}"));
    let reads = async |turn| {
        let found = store.get(*table, &none(turn)).await.expect("the read succeeds");
        assert!(found.is_none());
    };
    fixture.check_one(check_point, reads).await;
    let (exists, absent) = (Condition::Exists, Condition::Absent);
    let tag = Condition::Matches(Etag::new(Timestamp::EDM_MIN));
    let writes = [Write::Put(number(2)), Write::Merge(number(3)), Write::Delete];
    for change in &writes {
        for condition in [exists, tag] {
            let not_found = async |turn| {
                let reason = Conflict::EntityNotFound;
                write(&none(turn), condition, change.clone(), reason).await;
            };
            fixture.check_one(check_point, not_found).await;
        }
        let not_met = async |turn| {
            write(&some(turn), tag, change.clone(), Conflict::ConditionNotMet).await;
        };
        fixture.check_one(check_point, not_met).await;
    }
    for change in &writes[..2] {
        let there = async |turn| {
            write(&some(turn), absent, change.clone(), Conflict::EntityExists).await;
        };
        fixture.check_one(check_upsert, there).await;
    }
}

async fn batches(fixture: &Fixture) {
    let Fixture { store, table, .. } = fixture;
    let alike = async |turn: usize| {
        let rows = (0..PAGE).map(|row| key("p09", &format!("r{:04}", turn * PAGE + row)));
        let commands = rows.map(|key| put(*table, &key, number(1))).collect();
        commit(&**store, commands).await.expect("the batch succeeds");
    };
    fixture.check(check_upsert, alike).await;
    let mixed = async |turn| {
        let (gone, changed) = (some(2 * turn), some(2 * turn + 1));
        let merge = Write::Merge(number(2));
        let commands = vec![
            command(*table, &gone, Condition::Exists, Write::Delete),
            command(*table, &changed, Condition::Exists, merge),
        ];
        commit(&**store, commands).await.expect("the batch succeeds");
    };
    fixture.check(check_batch, mixed).await;
}

async fn pages(fixture: &Fixture) {
    let Fixture { store, table, .. } = fixture;
    let read = async |range: KeyRange, (condition, select): (Option<&str>, bool)| {
        let filter = condition.map(filter);
        let select = select.then(|| Arc::from(["n".into()]));
        let page =
            page(&**store, *table, Scan { filter, select, limit: PAGE, ..scan_of(vec![range]) })
                .await;
        assert_eq!(page.rows.len(), PAGE);
    };
    let rest = || KeyRange { start: Position::after("p33", "r0444"), end: None };
    for condition in
        [(None, false), (Some("n lt 100L"), false), (None, true), (Some("n lt 100L"), true)]
    {
        let partition = async |_| read(KeyRange::partition("p20"), condition).await;
        fixture.check(check_page_of_partition, partition).await;
        fixture.check(check_page, async |_| read(KeyRange::all(), condition).await).await;
        fixture.check(check_page, async |_| read(rest(), condition).await).await;
    }
}

async fn lookups(fixture: &Fixture, analyzed: bool) {
    let Fixture { store, table, server, url } = fixture;
    let spread =
        "UPDATE rowhouse.entities SET props = jsonb_build_object('n', jsonb_build_array('l',
        ('x' || encode(substring(sha256(kp), 1, 4), 'hex'))::bit(32)::bigint % 100))";
    server.execute(database(url), spread);
    let index = ready(&**store, *table, "n", index_of(&["n"])).await;
    if analyzed {
        server.execute(database(url), "ANALYZE");
    }
    let entry = |n: i64| {
        let record = number(n);
        let row = Row { partition: "", row: "", record: record.as_ref() };
        let entry = entry(&index.keys, &row).expect("the record decodes");
        only(&entry.expect("it has one"))
    };
    let read = async |spans: Vec<Span>, range: KeyRange| {
        let through = Some(vec![Lookup { index: index.id, spans }]);
        let scan = Scan { through, limit: PAGE, ..scan_of(vec![range]) };
        let found = page(&**store, *table, scan).await;
        assert_eq!(found.rows.len(), PAGE);
        assert!(found.examined <= PAGE as u64 + 1, "{} examined", found.examined);
    };
    let rest = || KeyRange { start: Position::after("p03", "r0444"), end: None };
    fixture.check(check_lookup, async |_| read(vec![entry(7)], KeyRange::all()).await).await;
    fixture.check(check_lookup, async |_| read(vec![entry(8)], rest()).await).await;
    let several = || vec![entry(7), entry(9), entry(11)];
    fixture.check(check_lookup, async |_| read(several(), rest()).await).await;
    for direction in [Direction::Ascending, Direction::Descending] {
        let walk = Walk { direction, limit: PAGE, ..walk_of(&index) };
        let walked = async |_| {
            let found = walk_page(&**store, *table, walk.clone()).await;
            assert_eq!(found.rows.len(), PAGE);
        };
        fixture.check(check_walk, walked).await;
    }
    let write = async |turn: usize, condition, write| {
        let key = key("p11", &format!("new{turn}"));
        let done = commit(&**store, vec![command(*table, &key, condition, write)]).await;
        done.expect("the condition holds");
    };
    let absent = Condition::Absent;
    fixture.check(check_any, async |turn| write(turn, absent, Write::Put(number(6))).await).await;
    let exists = Condition::Exists;
    fixture.check(check_any, async |turn| write(turn, exists, Write::Merge(number(7))).await).await;
    fixture.check(check_any, async |turn| write(turn, exists, Write::Delete).await).await;
}

async fn every_statement(analyzed: bool) {
    let fixture = Fixture::new(analyzed).await;
    points(&fixture).await;
    refused_points(&fixture).await;
    batches(&fixture).await;
    pages(&fixture).await;
    lookups(&fixture, analyzed).await;
}

#[test]
fn with_statistics_keys_find_everything() {
    common::run(every_statement(true));
}

#[test]
fn without_statistics_keys_find_everything() {
    common::run(every_statement(false));
}

/// One message of many, by its queue and id.
fn check_message(plan: &str) {
    check_any(plan);
    let found = conditions(plan, "messages_pkey");
    assert!(!found.is_empty(), "{plan}");
    for condition in found {
        assert!(condition.contains("(qid = ") && condition.contains("(id = "), "{plan}");
    }
    check_rows(plan, "using messages_pkey");
}

/// The next messages are found in their order, and no more of them are looked at than are taken: rows that have expired
/// are not.
fn check_take(plan: &str) {
    check_message(plan);
    let [condition] = conditions(plan, "messages_to_take")[..] else { panic!("{plan}") };
    for part in ["(qid + 0) = ", "(visible <= ", "(expires > "] {
        assert!(condition.contains(part), "{plan}");
    }
    check_rows(plan, "using messages_to_take");
}

/// In a queue that was empty when someone counted, and in one that was not.
async fn messages(analyzed: bool) {
    let fixture = Fixture::new(true).await;
    let Fixture { server, url, store, .. } = &fixture;
    let account = store.accounts().await.expect("listed")[0].id;
    let name = "jobs".parse().expect("a legal name");
    let queue = store.create_queue(account, &name, Vec::new()).await.expect("created").id;
    let fill = format!(
        "INSERT INTO rowhouse.messages (qid, id, visible, seq, receipt, inserted, expires, taken, text)
         SELECT {}, decode(md5(n::text), 'hex'), n, n, 7, n, 3155378975999999999, 0, 'text'
         FROM generate_series(1, 50000) AS n",
        queue.0
    );
    server.execute(database(url), &fill);
    if analyzed {
        server.execute(database(url), "ANALYZE rowhouse.messages");
    }
    let act = async |action| {
        let done = store.commit(Batch::of_message(queue, action)).await;
        done.expect("the condition holds").messages
    };
    let taken = std::sync::Mutex::new(Vec::new());
    let take = async |_| {
        let found = act(MessageAction::Take { limit: 32, hide_seconds: 600 }).await;
        assert_eq!(found.len(), 32);
        taken.lock().expect("not poisoned").extend(found);
    };
    fixture.check(check_take, take).await;
    let next = || taken.lock().expect("not poisoned").pop().expect("there are more");
    let update = async |_| {
        let Message { id, receipt, .. } = next();
        act(MessageAction::Update { id, receipt, hide_seconds: 600, text: None }).await;
    };
    fixture.check(check_message, update).await;
    let delete = async |_| {
        let Message { id, receipt, .. } = next();
        act(MessageAction::Delete { id, receipt }).await;
    };
    fixture.check(check_message, delete).await;
}

#[test]
fn messages_with_statistics() {
    common::run(messages(true));
}

#[test]
fn messages_without_statistics() {
    common::run(messages(false));
}
