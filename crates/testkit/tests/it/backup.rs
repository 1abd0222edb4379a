//! Backup and restore with the built binary: under load, killed, interrupted, damaged; on both engines.

#![cfg(unix)]

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rowhouse_env::{Random, SeededRandom};
use rowhouse_testkit::{Client, Operation, TestPostgres, TestServer, binary, seed};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const TABLES: [&str; 3] = ["Alpha", "Beta", "Gamma"];
/// Entities of each table.
const ENTITIES: usize = 2_000;
const WRITERS: usize = 3;
/// Entities that a writer changes together, in each of two tables.
const TOGETHER: usize = 5;
const KEEP: &str = "--keep-changes=1h";

/// Where a server keeps its data.
struct Place {
    parent: TempDir,
    database: Option<Database>,
}

/// A database of its own on a PostgreSQL that syncs.
struct Database {
    server: Arc<TestPostgres>,
    url: String,
}

impl Place {
    fn directory() -> Self {
        Self { parent: temporary(), database: None }
    }

    fn database() -> Self {
        Self::on(&Arc::new(TestPostgres::start()))
    }

    fn on(server: &Arc<TestPostgres>) -> Self {
        let database = Database { server: Arc::clone(server), url: server.create_database() };
        Self { parent: temporary(), database: Some(database) }
    }

    /// A place of the same kind with nothing in it.
    fn another(&self) -> Self {
        self.database.as_ref().map_or_else(Self::directory, |database| Self::on(&database.server))
    }

    fn serve(&self, arguments: &[&str]) -> TestServer {
        match &self.database {
            None => TestServer::start_in(self.parent.path(), arguments),
            Some(database) => TestServer::start_with_store_and(&database.url, arguments),
        }
    }

    fn restore(&self, files: &[&Path]) -> Command {
        let mut command = rowhouse(&["restore"]);
        command.args(files);
        match &self.database {
            None => command.arg("--data").arg(self.parent.path().join("data")),
            Some(database) => command.env("ROWHOUSE_STORE", &database.url),
        };
        command
    }

    /// What the database says to a question.
    fn ask(&self, sql: &str) -> String {
        let database = self.database.as_ref().expect("it is a database");
        database.server.execute(database.url.rsplit('/').next().unwrap_or_default(), sql)
    }

    /// Whether some tables are there.
    fn has_begun(&self) -> bool {
        if self.database.is_none() {
            let log = self.parent.path().join("data/rowhouse.db-wal");
            return fs::metadata(log).is_ok_and(|log| 100_000 < log.len());
        }
        let is = |sql| self.ask(sql) == "t";
        is("SELECT to_regclass('rowhouse.tables') IS NOT NULL")
            && is("SELECT count(*) > 5 FROM rowhouse.tables")
    }

    /// What a server says that does not start here; none if it does.
    fn refusal(&self) -> Option<String> {
        let ready = self.parent.path().join("ready");
        let mut command = rowhouse(&["serve", "--table-port=0", "--admin-port=0", "--quiet"]);
        command.arg("--development-account=false").arg("--ready-file").arg(&ready);
        command.arg("--data").arg(self.parent.path().join("data"));
        if let Some(database) = &self.database {
            command.env("ROWHOUSE_STORE", &database.url);
        }
        let mut server = command.spawn().expect("it can be started");
        while server.try_wait().expect("it can be asked").is_none() {
            if ready.exists() {
                server.kill().expect("it can be killed");
                server.wait().expect("it can be waited for");
                return None;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Some(failure(&server.wait_with_output().expect("it has ended")))
    }
}

fn temporary() -> TempDir {
    tempfile::tempdir().expect("a temporary directory can be made")
}

fn rowhouse(arguments: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A command that asks a running server.
fn ask(server: &TestServer, arguments: &[&str]) -> Command {
    let mut command = rowhouse(arguments);
    command.arg("--admin").arg(format!("http://{}", server.admin_address()));
    command.arg("--admin-token-file").arg(server.data().join("admin-token"));
    command
}

fn success(mut command: Command) -> String {
    let output = command.output().expect("it can be started");
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{command:?}: {text}");
    text
}

/// The one sentence of a command that failed.
fn failure(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{text}");
    let last = text.lines().last().unwrap_or_default();
    assert!(last.starts_with("rowhouse: "), "{text}");
    last.to_owned()
}

fn backup(server: &TestServer, file: &Path, base: Option<&Path>) -> String {
    let mut command = ask(server, &["backup"]);
    command.arg(file);
    if let Some(base) = base {
        command.arg("--incremental").arg(base);
    }
    success(command)
}

/// Fills tables that nobody changes later.
fn fill(client: &mut Client) {
    for table in TABLES {
        client.create_table(table);
        for batch in 0..ENTITIES / 100 {
            let operations: Vec<_> = (0..100)
                .map(|row| Operation::insert(table, entity(&format!("p{batch}"), row)))
                .collect();
            assert!(client.batch(&operations).expect("answered").succeeded());
        }
    }
}

fn entity(partition: &str, row: usize) -> Value {
    json!({
        "PartitionKey": partition,
        "RowKey": format!("{row:04}"),
        "Name": format!("é {row}"),
        "Count": row,
        "Big@odata.type": "Edm.Int64",
        "Big": format!("{}", row as u64 * 1_000_000_007),
        "Ratio": 0.1,
        "When@odata.type": "Edm.DateTime",
        "When": "2026-01-02T03:04:05.1234567Z",
        "Raw@odata.type": "Edm.Binary",
        "Raw": "AAEC",
    })
}

/// Every entity of the tables with types, Timestamp and ETag, as a client sees it.
fn contents(client: &mut Client, tables: &[&str]) -> BTreeMap<String, Vec<Value>> {
    let read = |table: &&str| ((*table).to_owned(), client.query(table, ""));
    tables.iter().map(read).collect()
}

/// Writers that each raise the number of their entities, first in one table and then in another, and then put a message into
/// a queue of their own.
#[derive(Default)]
struct Counters {
    over: AtomicBool,
    begun: [AtomicU64; WRITERS],
    acknowledged: [AtomicU64; WRITERS],
}

impl Counters {
    const TABLES: [&'static str; 2] = ["First", "Second"];

    const MESSAGE: &'static str = "<QueueMessage><MessageText>done</MessageText></QueueMessage>";

    fn write(&self, [tables, queues]: [SocketAddr; 2], writer: usize) {
        let (mut client, mut queue) = (Client::new(tables), Client::of_queues(queues));
        let messages = format!("writer-{writer}/messages");
        for n in self.acknowledged[writer].load(Ordering::SeqCst) + 1.. {
            if self.over.load(Ordering::SeqCst) {
                return;
            }
            self.begun[writer].store(n, Ordering::SeqCst);
            for table in Self::TABLES {
                let partition = format!("w{writer}");
                let operations: Vec<_> = (0..TOGETHER)
                    .map(|row| {
                        let keys = (partition.as_str(), &*row.to_string());
                        Operation::merge(table, keys, None, json!({ "n": n }))
                    })
                    .collect();
                match client.batch(&operations) {
                    Ok(answer) => assert!(answer.succeeded(), "{answer:?}"),
                    // It was killed.
                    Err(_) => return,
                }
            }
            match queue.try_request("POST", &messages, &[], Self::MESSAGE.as_bytes()) {
                Ok(answer) => assert_eq!(answer.status, 201, "{}", answer.text()),
                Err(_) => return,
            }
            self.acknowledged[writer].store(n, Ordering::SeqCst);
        }
    }

    fn now(counts: &[AtomicU64; WRITERS]) -> [u64; WRITERS] {
        counts.each_ref().map(|count| count.load(Ordering::SeqCst))
    }

    /// Whether the state is one that there was between two moments.
    fn check(server: &TestServer, least: [u64; WRITERS], most: [u64; WRITERS]) {
        let (mut client, mut queues) = (server.client(), server.queue_client());
        for writer in 0..WRITERS {
            let filter = format!("PartitionKey eq 'w{writer}'");
            let [first, second] = Self::TABLES.map(|table| {
                let found = client.query(table, &filter);
                let numbers: Vec<_> = found.iter().map(|e| e["n"].as_u64().unwrap()).collect();
                assert_eq!(numbers.len(), TOGETHER, "{table} {writer}");
                assert!(numbers.iter().all(|n| *n == numbers[0]), "half a batch: {numbers:?}");
                numbers[0]
            });
            for n in [first, second] {
                assert!(least[writer] <= n && n <= most[writer], "{least:?} {n} {most:?}");
            }
            let queue = format!("writer-{writer}?comp=metadata");
            let answer = queues.request("GET", &queue, &[], b"");
            let messages = answer.header("x-ms-approximate-messages-count").expect("a number");
            let messages: u64 = messages.parse().expect("a number");
            assert!(
                messages <= second && second <= first && first <= messages + 1,
                "one moment: {first}, {second}, {messages} messages"
            );
        }
    }
}

/// Backups of which each follows the one before, taken while others wrote.
struct Taken {
    files: Vec<PathBuf>,
    /// What had been acknowledged before each, and begun after it.
    least: Vec<[u64; WRITERS]>,
    most: Vec<[u64; WRITERS]>,
}

impl Taken {
    /// Takes a full one and incremental ones.
    fn take(server: &TestServer, counters: &Counters, directory: &Path) -> Self {
        let mut taken = Self { files: Vec::new(), least: Vec::new(), most: Vec::new() };
        for name in ["full.rhb", "first.rhb", "second.rhb"] {
            let file = directory.join(name);
            taken.least.push(Counters::now(&counters.acknowledged));
            let began = Instant::now();
            let told = backup(server, &file, taken.files.last().map(PathBuf::as_path));
            taken.most.push(Counters::now(&counters.begun));
            assert!(told.contains("1 account, 5 tables") && told.contains("Keys"), "{told}");
            let bytes = fs::metadata(&file).expect("it is there").len();
            println!("{name} of {bytes} bytes in {:?} while {WRITERS} wrote", began.elapsed());
            taken.files.push(file);
        }
        taken
    }

    /// Restores the first so many; what there is then.
    fn restore(&self, count: usize, into: &Place) -> BTreeMap<String, Vec<Value>> {
        let files: Vec<&Path> = self.files[..count].iter().map(PathBuf::as_path).collect();
        let began = Instant::now();
        success(into.restore(&files));
        println!("{count} restored in {:?}", began.elapsed());
        let restored = into.serve(&[]);
        Counters::check(&restored, self.least[count - 1], self.most[count - 1]);
        contents(&mut restored.client(), &[&TABLES[..], &Counters::TABLES].concat())
    }
}

/// Takes backups while others write, kills the server, and finds in other places what there was: of the same engine and
/// of another.
fn backup_under_load(place: &Place, other: &Place) {
    let directory = temporary();
    let mut server = place.serve(&[KEEP]);
    let mut client = server.client();
    fill(&mut client);
    for table in Counters::TABLES {
        client.create_table(table);
    }
    for writer in 0..WRITERS {
        let queue = format!("writer-{writer}");
        assert_eq!(server.queue_client().request("PUT", &queue, &[], b"").status, 201);
    }
    let counters = Counters::default();
    let addresses = [server.address(), server.queue_address()];
    let still = contents(&mut client, &TABLES);
    let taken = std::thread::scope(|scope| {
        let counters = &counters;
        for writer in 0..WRITERS {
            scope.spawn(move || counters.write(addresses, writer));
        }
        while Counters::now(&counters.acknowledged).contains(&0) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let taken = Taken::take(&server, counters, directory.path());
        server.kill();
        counters.over.store(true, Ordering::SeqCst);
        taken
    });
    drop(client);
    for count in [taken.files.len(), 1] {
        let elsewhere = place.another();
        let found = taken.restore(count, &elsewhere);
        for (table, entities) in &still {
            assert_eq!(&found[table], entities, "types, Timestamps and ETags are the same");
        }
        assert_eq!(taken.restore(count, &other.another()), found, "on the other engine");
        if count == 1 {
            goes_on(&elsewhere, &taken.files[0], &still["Alpha"][0]);
        }
    }
}

/// It is a server like any other: later tags are later, and what is there is in the way.
fn goes_on(place: &Place, file: &Path, entity: &Value) {
    let restored = place.serve(&[]);
    let etag = entity["odata.etag"].as_str().expect("an ETag");
    let path = rowhouse_testkit::entity_path("Alpha", "p0", "0000");
    let mut client = restored.client();
    let updated = client.update("PUT", &path, Some(etag), &json!({ "n": 1 })).expect("answered");
    assert_eq!(updated.status, 204, "{}", updated.text());
    assert!(etag < updated.etag());
    drop((client, restored));
    let again = place.restore(&[file]).output().expect("it can be started");
    assert!(failure(&again).contains("there are accounts already"));
}

#[test]
fn a_backup_under_load_comes_back() {
    backup_under_load(&Place::directory(), &Place::database());
}

#[test]
fn a_backup_under_load_comes_back_on_postgres() {
    backup_under_load(&Place::database(), &Place::directory());
}

/// Many tables, which make a restore long, and many frames.
fn fill_many(client: &mut Client, tables: usize) -> Vec<String> {
    let names: Vec<_> = (0..tables).map(|n| format!("Table{n:03}")).collect();
    for name in &names {
        client.create_table(name);
        let operations: Vec<_> =
            (0..20).map(|row| Operation::insert(name, entity("p", row))).collect();
        assert!(client.batch(&operations).expect("answered").succeeded());
    }
    names
}

/// A restore that is killed again and again is not served, and ends as if nothing had happened.
fn killed_restore(place: &Place, tables: usize, mut longest: Duration) {
    let chance = SeededRandom::new(seed());
    let directory = temporary();
    let server = place.serve(&[]);
    let mut client = server.client();
    let names = fill_many(&mut client, tables);
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let file = directory.path().join("backup.rhb");
    backup(&server, &file, None);
    let expected = contents(&mut client, &names);
    let elsewhere = place.another();
    let began = Instant::now();
    kill_in_the_middle(&elsewhere, &file);
    let refused = elsewhere.refusal().expect("half of a backup is not served");
    assert!(
        refused.contains("is not finished: run the same 'rowhouse restore' again"),
        "{refused}"
    );
    if place.database.is_none() {
        let data = elsewhere.parent.path().join("data");
        let checked = rowhouse(&["check"]).arg(data).output().expect("it can be started");
        assert!(failure(&checked).contains("whose restore is not finished"), "{checked:?}");
    }
    let mut kills = 1;
    while !restore_or_kill(&elsewhere, &file, any(&chance, longest)) {
        kills += 1;
        longest += longest / 5;
    }
    println!("whole after {kills} kills and {:?}", began.elapsed());
    let restored = elsewhere.serve(&[]);
    assert_eq!(contents(&mut restored.client(), &names), expected);
}

/// Kills a restore that has made some tables, and not all.
fn kill_in_the_middle(place: &Place, file: &Path) {
    let mut restore = place.restore(&[file]).spawn().expect("it can be started");
    while !place.has_begun() {
        let ended = restore.try_wait().expect("it can be asked");
        assert!(ended.is_none(), "it ended before it was killed");
    }
    restore.kill().expect("it can be killed");
    restore.wait().expect("it can be waited for");
}

/// Whether the restore came to its end before it was killed.
fn restore_or_kill(place: &Place, file: &Path, after: Duration) -> bool {
    let mut restore = place.restore(&[file]).spawn().expect("it can be started");
    std::thread::sleep(after);
    if restore.try_wait().expect("it can be asked").is_some() {
        let output = restore.wait_with_output().expect("it has ended");
        let text = String::from_utf8_lossy(&output.stderr);
        // The one before had come to its end when it was killed.
        let ended_before = text.contains("there are accounts already");
        assert!(output.status.success() || ended_before, "{text}");
        return true;
    }
    restore.kill().expect("it can be killed");
    restore.wait().expect("it can be waited for");
    false
}

fn any(chance: &SeededRandom, below: Duration) -> Duration {
    let mut bytes = [0; 2];
    chance.fill(&mut bytes);
    below * u32::from(u16::from_le_bytes(bytes)) / u32::from(u16::MAX)
}

#[test]
fn a_killed_restore_goes_on() {
    killed_restore(&Place::directory(), 300, Duration::from_millis(100));
}

#[test]
fn a_killed_restore_goes_on_on_postgres() {
    // Each attempt waits until what the one before had leased has run out.
    killed_restore(&Place::database(), 60, Duration::from_secs(4));
}

/// A process of ours, told to stand still or to go on.
fn signal(process: &Child, name: &str) {
    let sent = Command::new("kill").args([&format!("-{name}"), &process.id().to_string()]).status();
    assert!(sent.expect("it can be started").success());
}

/// A backup of many tables.
fn backup_of_many(place: &Place, file: &Path) {
    let server = place.serve(&[]);
    fill_many(&mut server.client(), 60);
    backup(&server, file, None);
}

/// While a restore is at work there is no second one, and no server.
#[test]
fn a_restore_has_the_database_to_itself() {
    let (place, directory) = (Place::database(), temporary());
    let file = directory.path().join("backup.rhb");
    backup_of_many(&place, &file);
    let elsewhere = place.another();
    let mut first = elsewhere.restore(&[&file]).spawn().expect("it can be started");
    while !elsewhere.has_begun() {
        let ended = first.try_wait().expect("it can be asked");
        assert!(ended.is_none(), "it ended before it was stopped");
    }
    // It stands still, so that it is at work for as long as the others are looked at.
    signal(&first, "STOP");
    let tables = elsewhere.ask("SELECT count(*) FROM rowhouse.tables");
    let second = elsewhere.restore(&[&file]).output().expect("it can be started");
    assert!(failure(&second).contains("another 'rowhouse restore' into it is at work"));
    let server = elsewhere.refusal().expect("no server starts");
    assert!(server.contains("a backup is being restored into it"), "{server}");
    assert_eq!(elsewhere.ask("SELECT count(*) FROM rowhouse.tables"), tables);
    signal(&first, "CONT");
    let output = first.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let third = elsewhere.restore(&[&file]).output().expect("it can be started");
    assert!(failure(&third).contains("there are accounts already"));
    let restored = elsewhere.serve(&[]);
    assert_eq!(restored.client().query("Table059", "").len(), 20);
}

/// A server on an empty database is in the way of a restore, which changes nothing; when it is gone, the same command goes on.
#[test]
fn a_database_that_is_served_is_not_restored_into() {
    let (place, directory) = (Place::database(), temporary());
    let file = directory.path().join("backup.rhb");
    backup_of_many(&place, &file);
    let elsewhere = place.another();
    let mut server = elsewhere.serve(&["--development-account=false"]);
    let refused = elsewhere.restore(&[&file]).output().expect("it can be started");
    let sentence = failure(&refused);
    for part in ["servers are running on it (1): stop them", "nothing was changed"] {
        assert!(sentence.contains(part), "{sentence}");
    }
    let left =
        "SELECT (SELECT count(*) FROM rowhouse.accounts) + (SELECT count(*) FROM rowhouse.tables)";
    assert_eq!(elsewhere.ask(left), "0");
    // What a killed one has leased runs out while the restore waits for it.
    server.kill();
    success(elsewhere.restore(&[&file]));
    let restored = elsewhere.serve(&[]);
    assert_eq!(restored.client().query("Table059", "").len(), 20);
}

/// A full backup and two that follow it, with tables that come, go and come again in between.
fn incremental(place: &Place) {
    let directory = temporary();
    let server = place.serve(&[KEEP]);
    let mut client = server.client();
    fill(&mut client);
    let file = |name: &str| directory.path().join(name);
    let (full, first, second) = (file("full.rhb"), file("first.rhb"), file("second.rhb"));
    backup(&server, &full, None);
    assert_eq!(client.delete("Tables('Beta')", "*").expect("answered").status, 204);
    let path = rowhouse_testkit::entity_path("Alpha", "p0", "0000");
    assert_eq!(
        client.update("PUT", &path, None, &json!({ "n": 1 })).expect("answered").status,
        204
    );
    backup(&server, &first, Some(&full));
    client.create_table("Beta");
    client.insert("Beta", &entity("again", 1)).expect("answered");
    let path = rowhouse_testkit::entity_path("Alpha", "p0", "0001");
    assert_eq!(client.delete(&path, "*").expect("answered").status, 204);
    let told = backup(&server, &second, Some(&first));
    assert!(told.contains("2 changes since backup"), "{told}");
    let expected = contents(&mut client, &TABLES);
    let mut verify = rowhouse(&["backup", "verify"]);
    verify.args([&full, &first, &second]);
    assert_eq!(success(verify).matches("Taken").count(), 3);
    let elsewhere = place.another();
    let wrong = elsewhere.restore(&[&full, &second]).output().expect("it can be started");
    assert!(failure(&wrong).contains("does not follow"));
    success(elsewhere.restore(&[&full, &first, &second]));
    let restored = elsewhere.serve(&[]);
    assert_eq!(contents(&mut restored.client(), &TABLES), expected);
    // The base is of another server.
    let mut stranger = ask(&restored, &["backup"]);
    stranger.arg(file("stranger.rhb")).arg("--incremental").arg(&second);
    failure(&stranger.output().expect("it can be started"));
    assert!(!file("stranger.rhb").exists() && !file("stranger.rhb.part").exists());
}

#[test]
fn incremental_backups_come_back() {
    incremental(&Place::directory());
}

#[test]
fn incremental_backups_come_back_on_postgres() {
    incremental(&Place::database());
}

/// Single tables into the running server that they are from.
#[test]
fn a_table_comes_back_beside_what_became_of_it() {
    let directory = temporary();
    let server = TestServer::start();
    let mut client = server.client();
    fill(&mut client);
    let file = directory.path().join("backup.rhb");
    backup(&server, &file, None);
    let expected = client.query("Alpha", "");
    assert_eq!(client.delete("Tables('Alpha')", "*").expect("answered").status, 204);
    let restore = |renamed: &str| {
        let mut command = ask(&server, &["restore"]);
        command.arg(&file).args(["--table", renamed]);
        command
    };
    let told = success(restore("Alpha=Alpha"));
    assert!(told.contains("devstoreaccount1/Alpha as devstoreaccount1/Alpha: 2000"), "{told}");
    let again = client.query("Alpha", "");
    assert_eq!(without_urls(again), without_urls(expected.clone()));
    success(restore("devstoreaccount1/Alpha=Older"));
    assert_eq!(client.query("Older", "").len(), ENTITIES);
    let cases = [
        ("Alpha=Older", "There is a table Older already"),
        ("Nothing=Something", "the backup has no table Nothing"),
        ("Alpha=nobody/Alpha", "There is no account nobody"),
    ];
    for (renamed, expected) in cases {
        let sentence = failure(&restore(renamed).output().expect("it can be started"));
        assert!(sentence.contains(expected), "{renamed}: {sentence}");
    }
    let log = server.log();
    for action in ["backup.take", "backup.end", "table.restore"] {
        assert!(log.contains(action), "{action} leaves a line for the audit");
    }
}

fn without_urls(mut entities: Vec<Value>) -> Vec<Value> {
    for entity in &mut entities {
        let members = entity.as_object_mut().expect("an entity");
        members.retain(|name, _| name == "odata.etag" || !name.starts_with("odata."));
    }
    entities
}

#[test]
fn files_that_are_no_whole_backups_are_refused() {
    let directory = temporary();
    let server = TestServer::start();
    fill(&mut server.client());
    let file = |name: &str| directory.path().join(name);
    let good = file("good.rhb");
    backup(&server, &good, None);
    let bytes = fs::read(&good).expect("it can be read");
    let mut damaged = bytes.clone();
    damaged[bytes.len() / 2] ^= 1;
    let mut newer = bytes.clone();
    newer[8] = 4;
    let longer = [&bytes[..], b"more"].concat();
    let cases: [(&str, &[u8], &str); 6] = [
        ("damaged", &damaged, "is damaged at byte"),
        ("short", &bytes[..bytes.len() - 1], "is cut short after"),
        ("empty", b"", "is not a Rowhouse backup"),
        ("foreign", b"PK\x03\x04 an archive", "is not a Rowhouse backup"),
        ("newer", &newer, "was written by a newer release (format 4"),
        ("longer", &longer, "goes on behind its end"),
    ];
    for (name, content, expected) in cases {
        let path = file(name);
        fs::write(&path, content).expect("it can be written");
        let place = Place::directory();
        let mut verify = rowhouse(&["backup", "verify"]);
        verify.arg(&path);
        let mut table = ask(&server, &["restore"]);
        table.arg(&path).args(["--table", "Alpha=Other"]);
        for mut command in [verify, place.restore(&[&path]), table] {
            let sentence = failure(&command.output().expect("it can be started"));
            assert!(sentence.contains(expected) && sentence.contains(name), "{name}: {sentence}");
        }
        let left = fs::read_dir(place.parent.path()).expect("it is there").count();
        assert_eq!(left, 0, "{name}: nothing was begun");
    }
    let absent = rowhouse(&["backup", "verify", "absent.rhb"]).output().expect("started");
    assert!(failure(&absent).contains("absent.rhb cannot be read"));
}

/// More than sockets hold, and nothing that could be compressed.
fn fill_with_noise(client: &mut Client) {
    let chance = SeededRandom::new(1);
    client.create_table("Noise");
    for row in 0..24 {
        let mut entity = json!({ "PartitionKey": "p", "RowKey": row.to_string() });
        for property in 0..12 {
            let mut noise = vec![0; 64 * 1024];
            chance.fill(&mut noise);
            let name = format!("p{property}");
            entity[format!("{name}@odata.type")] = json!("Edm.Binary");
            entity[name] = json!(STANDARD.encode(noise));
        }
        assert_eq!(client.insert("Noise", &entity).expect("answered").status, 204);
    }
}

/// A backup that has begun, and is so slow that there is time to end it in the middle.
fn slow_backup(server: &TestServer, file: &Path) -> Child {
    let mut slow = ask(server, &["backup", "--rate-limit", "1MB"]);
    let slow = slow.arg(file).spawn().expect("it can be started");
    let began = Instant::now();
    while fs::metadata(part_of(file)).map_or(0, |part| part.len()) == 0 {
        assert!(began.elapsed() < Duration::from_secs(30), "it begins");
        std::thread::sleep(Duration::from_millis(5));
    }
    slow
}

/// What a backup is called before it is whole.
fn part_of(file: &Path) -> PathBuf {
    file.with_extension("rhb.part")
}

/// A backup command that is killed leaves nothing that looks whole, and the server is ready for the next one.
#[test]
fn a_killed_backup_is_taken_again() {
    let directory = temporary();
    let server = TestServer::start();
    let mut client = server.client();
    fill_with_noise(&mut client);
    let file = directory.path().join("nightly.rhb");
    let mut slow = slow_backup(&server, &file);
    slow.kill().expect("it can be killed");
    slow.wait().expect("it can be waited for");
    assert!(!file.exists(), "nothing looks whole");
    let left = fs::metadata(part_of(&file)).expect("what it had is left").len();
    client.create_table("Later");
    assert_eq!(client.insert("Later", &entity("p", 1)).expect("answered").status, 204);

    // The server notices that nobody takes the first one any more.
    let began = Instant::now();
    loop {
        let again = ask(&server, &["backup"]).arg(&file).output().expect("it can be started");
        if again.status.success() {
            break;
        }
        let sentence = failure(&again);
        assert!(sentence.contains("is at work"), "{sentence}");
        assert!(!file.exists() && began.elapsed() < Duration::from_secs(30), "{sentence}");
        std::thread::sleep(Duration::from_millis(50));
    }
    println!("taken again after {:?}", began.elapsed());
    assert!(!part_of(&file).exists(), "what was left has been replaced");
    assert!(left < fs::metadata(&file).expect("it is there").len());
    let mut verify = rowhouse(&["backup", "verify"]);
    verify.arg(&file);
    assert!(success(verify).contains("2 tables"));
    let place = Place::directory();
    success(place.restore(&[&file]));
    let restored = place.serve(&[]);
    assert_eq!(restored.client().query("Noise", ""), client.query("Noise", ""));
    assert_eq!(restored.client().query("Later", "").len(), 1, "of after the kill");
}

/// What ends a backup early leaves no file, and a file that is there stays.
#[test]
fn a_backup_that_fails_leaves_nothing() {
    let directory = temporary();
    let mut server = TestServer::start();
    fill_with_noise(&mut server.client());
    let file = |name: &str| -> PathBuf { directory.path().join(name) };
    fs::write(file("there.rhb"), "mine").expect("it can be written");
    let overwrite = ask(&server, &["backup"]).arg(file("there.rhb")).output().expect("started");
    assert!(failure(&overwrite).contains("never overwrites"));
    assert_eq!(fs::read(file("there.rhb")).expect("it is there"), b"mine");
    let nowhere = ask(&server, &["backup"]).arg(file("no/where.rhb")).output().expect("started");
    assert!(failure(&nowhere).contains("cannot write"));

    let slow = slow_backup(&server, &file("slow.rhb"));
    // Only one into a file, which is left alone; and only one at a time.
    let same = ask(&server, &["backup"]).arg(file("slow.rhb")).output().expect("started");
    assert!(failure(&same).contains("another backup into"), "{same:?}");
    assert_ne!(fs::metadata(file("slow.rhb.part")).expect("it is there").len(), 0);
    let second = ask(&server, &["backup"]).arg(file("second.rhb")).output().expect("started");
    assert!(failure(&second).contains("is at work"));
    server.kill();
    let sentence = failure(&slow.wait_with_output().expect("it ends"));
    assert!(sentence.contains("nothing of it was kept"), "{sentence}");
    let mut left: Vec<_> = fs::read_dir(directory.path())
        .expect("it is there")
        .map(|entry| entry.expect("it can be read").file_name())
        .collect();
    left.sort();
    assert_eq!(left, ["there.rhb"]);
}
