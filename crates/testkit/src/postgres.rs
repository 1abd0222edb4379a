//! A real PostgreSQL for tests.
//!
//! [`TestPostgres`] makes a server in a directory of its own on a free port of 127.0.0.1, with fsync on, so
//! that it can be killed like the product; tests that do not hurt it share one ([`TestPostgres::shared`]) and
//! each take a database of their own. Nothing stays behind when the test ends, not even when it is killed; of a server
//! that was named, the databases that were made there are dropped.
//!
//! The programs are those on the `PATH` or of Debian's packages (`scripts/setup postgres` installs them). As
//! root they run as the user `postgres`.

mod cleaner;
mod installation;
mod watchdog;

use cleaner::Cleaner;
use installation::Installation;
use rowhouse_env::{Random, SystemRandom};
use std::fs;
use std::io::{Seek, Write};
use std::net::TcpListener;
use std::ops::Range;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use watchdog::{Watchdog, without_settings};

/// How long a server may take to do what it was told, recovery included, even on a busy machine.
const WITHIN: Duration = Duration::from_mins(1);
/// How often we look whether it has.
const EVERY: Duration = Duration::from_millis(50);
/// Below the ports that systems give to outgoing connections: a server that is down keeps its own.
/// Above those of the product, which the documentation's examples use.
const PORTS: Range<u16> = 11_000..30_000;
/// Lines of the log that are shown when something went wrong.
const LOG_LINES: usize = 30;
/// The database that every server has.
const FIRST_DATABASE: &str = "postgres";
/// Names a server to be shared instead of one of our own.
const VARIABLE: &str = "ROWHOUSE_TEST_POSTGRES";
/// German, with numbers inside of text sorted as numbers: far from the order of bytes.
const LOCALE: &str = "de-DE-u-kn-true";

/// What every server of ours is told: to be small, to reconnect quickly, and to keep all shared memory that
/// has a name in its own directory.
const SETTINGS: &[(&str, &str)] = &[
    ("shared_buffers", "32MB"),
    ("max_connections", "200"),
    ("jit", "off"),
    ("wal_retrieve_retry_interval", "200ms"),
    ("dynamic_shared_memory_type", "mmap"),
];

/// A PostgreSQL server. One of our own is killed when dropped, and its directory removed.
#[derive(Debug)]
pub struct TestPostgres {
    address: Address,
    host: Host,
    /// The ICU locale by which its new databases sort text, if not by bytes.
    locale: Option<&'static str>,
}

/// Whose server it is.
#[derive(Debug)]
enum Host {
    Ours(Own),
    /// Somebody else's, where databases of ours must not stay.
    Theirs(Cleaner),
}

impl TestPostgres {
    /// An empty server that syncs its writes.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// An empty server with settings of `postgresql.conf`.
    pub fn start_with(settings: &[(&str, &str)]) -> Self {
        Self::start_in(&std::env::temp_dir(), settings)
    }

    /// The same, with its directory inside of one that the user of the server can reach.
    pub fn start_in(parent: &Path, settings: &[(&str, &str)]) -> Self {
        Self::make(parent, settings, &[])
    }

    /// An empty server with checksums on its pages.
    pub fn start_with_checksums() -> Self {
        Self::make(&std::env::temp_dir(), &[], &["--data-checksums".to_owned()])
    }

    /// An empty server whose databases sort text as an ICU locale does, such as `de-u-kn`.
    pub fn start_with_locale(locale: &str) -> Self {
        let icu = ["--locale-provider=icu".to_owned(), format!("--icu-locale={locale}")];
        Self::make(&std::env::temp_dir(), &[], &icu)
    }

    /// The one server of this test program, which nobody may kill; it does not sync. If
    /// `ROWHOUSE_TEST_POSTGRES` is the URL of a server whose role may create databases, it is that one.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<TestPostgres> = OnceLock::new();
        SHARED.get_or_init(Self::named_or_own)
    }

    /// As [`TestPostgres::shared`], with databases in which text sorts and compares by the rules of a language.
    pub fn shared_with_locale() -> &'static Self {
        static SHARED: OnceLock<TestPostgres> = OnceLock::new();
        SHARED.get_or_init(|| {
            let mut server = Self::named_or_own();
            server.locale = Some(LOCALE);
            server
        })
    }

    fn named_or_own() -> Self {
        match std::env::var(VARIABLE) {
            Ok(url) => Self::guest(&url),
            Err(_) => Self::start_with(&[("fsync", "off")]),
        }
    }

    fn guest(url: &str) -> Self {
        let address = Address::parse(url);
        let cleaner = Cleaner::start(&address.url(&address.database));
        Self { address, host: Host::Theirs(cleaner), locale: None }
    }

    fn make(parent: &Path, settings: &[(&str, &str)], of_initdb: &[String]) -> Self {
        let mut own = Own::new(parent);
        own.initialise(of_initdb);
        own.configure(SETTINGS);
        own.configure(settings);
        Self::launch(own)
    }

    fn launch(mut own: Own) -> Self {
        own.start();
        Self { address: Address::local(own.port), host: Host::Ours(own), locale: None }
    }

    /// The URL of a database.
    pub fn url(&self, database: &str) -> String {
        self.address.url(database)
    }

    /// Makes an empty database; its URL.
    pub fn create_database(&self) -> String {
        let mut bytes = [0; 8];
        SystemRandom.fill(&mut bytes);
        let name = format!("rowhouse_test_{:016x}", u64::from_le_bytes(bytes));
        if let Host::Theirs(cleaner) = &self.host {
            cleaner.remember(&name);
        }
        let sorted = self
            .locale
            .map_or(String::new(), |locale| format!(" LOCALE_PROVIDER icu ICU_LOCALE '{locale}'"));
        let sql = format!("CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8'{sorted}");
        self.execute(&self.address.database, &sql);
        self.url(&name)
    }

    /// Runs statements in a database, each a transaction of its own unless they say otherwise. What they
    /// return: a line for each row, with `|` between columns.
    pub fn execute(&self, database: &str, sql: &str) -> String {
        psql(&self.url(database), sql).unwrap_or_else(|reason| panic!("{sql}: {reason}"))
    }

    /// Where it listens; the same for all its life.
    pub fn port(&self) -> u16 {
        let port = self.address.before.rsplit(':').next().and_then(|port| port.parse().ok());
        port.expect("the address of a server for tests has its port")
    }

    /// The process that all its others are children of.
    pub fn pid(&self) -> u32 {
        let path = self.own().watchdog.data().join("postmaster.pid");
        let text = fs::read_to_string(path).expect("a running server has a lock file");
        let line = text.lines().next().and_then(|line| line.parse().ok());
        line.expect("it names the process")
    }

    /// Its directory, with `data` and sockets inside.
    pub fn directory(&self) -> &Path {
        self.own().watchdog.directory()
    }

    /// Everything it has printed since its first start.
    pub fn log(&self) -> String {
        self.own().watchdog.log()
    }

    /// Ends it at once, as a crash would: SIGKILL to the server and all its backends.
    pub fn kill(&mut self) {
        self.own_mut().watchdog.crash();
    }

    /// Asks it to end without waiting for its clients (a fast shutdown), and waits until it has.
    pub fn stop(&mut self) {
        self.own_mut().stop();
    }

    /// Starts it again on the same directory and port.
    pub fn restart(&mut self) {
        assert!(!self.is_running(), "stop or kill the server before it is started again");
        self.own_mut().start();
    }

    /// Whether the process is still there.
    pub fn is_running(&mut self) -> bool {
        self.own_mut().watchdog.is_running()
    }

    /// What it calls itself as a standby, and in the titles of its processes.
    pub fn name(&self) -> String {
        self.own().name()
    }

    /// A copy that follows this server. It takes reads, and writes once it is promoted.
    pub fn standby(&self) -> Self {
        let mut own = Own::new(&std::env::temp_dir());
        own.copy(self.own().port);
        let standby = Self::launch(own);
        // Whom its primary waits for is copied too; a server that is promoted would wait in vain.
        let alone = "ALTER SYSTEM RESET synchronous_standby_names; SELECT pg_reload_conf()";
        standby.execute(FIRST_DATABASE, alone);
        standby
    }

    /// From now on a commit is acknowledged when the standby of that name has synced it too.
    pub fn make_synchronous(&self, name: &str) {
        let sql = format!("ALTER SYSTEM SET synchronous_standby_names = '\"{name}\"'");
        self.execute(FIRST_DATABASE, &format!("{sql}; SELECT pg_reload_conf()"));
        let sql = "SELECT sync_state FROM pg_stat_replication WHERE application_name";
        self.wait_for("a synchronous standby", &format!("{sql} = '{name}'"), "sync");
        // Commits wait once the checkpointer has read the setting, which it has before it makes a checkpoint
        // for a connection that began after all processes were told.
        self.execute(FIRST_DATABASE, "CHECKPOINT");
    }

    /// Makes a standby take writes.
    pub fn promote(&mut self) {
        self.execute(FIRST_DATABASE, "SELECT pg_promote(wait => false)");
        self.wait_for("the promotion", "SELECT pg_is_in_recovery()", "f");
    }

    /// Waits until reads of this standby show everything that its primary has committed so far.
    pub fn wait_for_replay(&self, primary: &Self) {
        let written = primary.execute(FIRST_DATABASE, "SELECT pg_current_wal_flush_lsn()");
        let sql = format!("SELECT pg_last_wal_replay_lsn() >= '{written}'");
        self.wait_for("the replay", &sql, "t");
    }

    fn wait_for(&self, what: &str, sql: &str, expected: &str) {
        let began = Instant::now();
        while self.execute(FIRST_DATABASE, sql) != expected {
            let hope = began.elapsed() < WITHIN;
            assert!(hope, "waited for {what} in vain:\n{}", self.own().log_end());
            std::thread::sleep(EVERY);
        }
    }

    fn own(&self) -> &Own {
        match &self.host {
            Host::Ours(own) => own,
            Host::Theirs(_) => panic!("the server of {VARIABLE} is not ours"),
        }
    }

    fn own_mut(&mut self) -> &mut Own {
        match &mut self.host {
            Host::Ours(own) => own,
            Host::Theirs(_) => panic!("the server of {VARIABLE} is not ours"),
        }
    }
}

impl Drop for TestPostgres {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Host::Ours(own) = &self.host
        {
            eprintln!("last lines of PostgreSQL's log:\n{}", own.log_end());
        }
    }
}

/// A server that we made.
#[derive(Debug)]
struct Own {
    watchdog: Watchdog,
    port: u16,
}

impl Own {
    fn new(parent: &Path) -> Self {
        Self { watchdog: Watchdog::start(parent), port: free_port() }
    }

    fn initialise(&mut self, further: &[String]) {
        let mut arguments = vec![format!("--pgdata={}", self.watchdog.data().display())];
        let fixed = ["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C"];
        arguments.extend(fixed.map(str::to_owned));
        // A killed process loses nothing that it wrote.
        arguments.push("--no-sync".to_owned());
        arguments.extend_from_slice(further);
        self.run("initdb", &arguments);
    }

    fn copy(&mut self, port: u16) {
        let arguments = [
            format!("--pgdata={}", self.watchdog.data().display()),
            format!("--dbname={}", Address::local(port).before),
            // The primary keeps what the standby has not got yet.
            "--create-slot".to_owned(),
            format!("--slot={}", self.name()),
            "--write-recovery-conf".to_owned(),
            "--checkpoint=fast".to_owned(),
            "--no-sync".to_owned(),
        ];
        self.run("pg_basebackup", &arguments);
    }

    fn run(&mut self, program: &str, arguments: &[String]) {
        let done = self.watchdog.run(program, arguments);
        assert!(done, "{program} failed:\n{}", self.log_end());
    }

    /// Later settings win.
    fn configure(&self, settings: &[(&str, &str)]) {
        let path = self.watchdog.data().join("postgresql.conf");
        let mut file = fs::File::options().append(true).open(path).expect("initdb made it");
        for (name, value) in settings {
            let value = value.replace('\'', "''");
            writeln!(file, "{name} = '{value}'").expect("it can be written");
        }
    }

    /// What differs between a server and its standby is told here, for all else is copied.
    fn start(&mut self) {
        let directory = self.watchdog.directory().display();
        let arguments = [
            "-D".to_owned(),
            format!("{directory}/data"),
            "-c".to_owned(),
            format!("port={}", self.port),
            "-c".to_owned(),
            "listen_addresses=127.0.0.1".to_owned(),
            "-c".to_owned(),
            format!("unix_socket_directories={directory}"),
            "-c".to_owned(),
            format!("cluster_name={}", self.name()),
        ];
        self.watchdog.start_server(&arguments);
        let began = Instant::now();
        while !self.watchdog.is_ready() {
            let hope = began.elapsed() < WITHIN && self.watchdog.is_running();
            assert!(hope, "PostgreSQL did not become ready:\n{}", self.log_end());
            std::thread::sleep(EVERY);
        }
    }

    fn stop(&mut self) {
        self.watchdog.ask_to_stop();
        let began = Instant::now();
        while self.watchdog.is_running() {
            let hope = began.elapsed() < WITHIN;
            assert!(hope, "PostgreSQL did not stop:\n{}", self.log_end());
            std::thread::sleep(EVERY);
        }
        assert!(self.watchdog.ended_well(), "PostgreSQL stopped badly:\n{}", self.log_end());
    }

    fn name(&self) -> String {
        format!("rowhouse_{}", self.port)
    }

    fn log_end(&self) -> String {
        let log = self.watchdog.log();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
    }
}

fn free_port() -> u16 {
    loop {
        let mut bytes = [0; 2];
        SystemRandom.fill(&mut bytes);
        let port = u16::from_le_bytes(bytes);
        if PORTS.contains(&port) && TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// A URL around the name of its database.
#[derive(Debug, PartialEq)]
struct Address {
    before: String,
    database: String,
    after: String,
}

impl Address {
    fn local(port: u16) -> Self {
        Self {
            before: format!("postgres://postgres@127.0.0.1:{port}"),
            database: FIRST_DATABASE.to_owned(),
            after: String::new(),
        }
    }

    fn parse(url: &str) -> Self {
        let authority = url.find("://").unwrap_or_else(|| panic!("{VARIABLE} is a URL")) + 3;
        let (url, after) = url.split_at(url.find('?').unwrap_or(url.len()));
        let path = url[authority..].find('/').map_or(url.len(), |found| authority + found);
        let database = match url[path..].trim_start_matches('/') {
            "" => FIRST_DATABASE,
            named => named,
        };
        Self {
            before: url[..path].to_owned(),
            database: database.to_owned(),
            after: after.to_owned(),
        }
    }

    fn url(&self, database: &str) -> String {
        format!("{}/{database}{}", self.before, self.after)
    }
}

/// What the statements return, or what was wrong.
pub(crate) fn psql(url: &str, sql: &str) -> Result<String, String> {
    let mut input = tempfile::tempfile().expect("a temporary file can be made");
    input.write_all(sql.as_bytes()).expect("it can be written");
    input.rewind().expect("it can be read");
    let output = without_settings(Command::new(Installation::get().program("psql")))
        .args(["--no-psqlrc", "--quiet", "--no-align", "--tuples-only"])
        .args(["--set=ON_ERROR_STOP=1", "--dbname", url])
        .env("PGCONNECT_TIMEOUT", WITHIN.as_secs().to_string())
        .stdin(input)
        .output()
        .expect("psql can be run");
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim_end_matches('\n').to_owned());
    }
    Err(String::from_utf8_lossy(&output.stderr).into_owned())
}

#[cfg(test)]
mod tests {
    use super::Address;

    /// The name of the database is exchanged, and all else stays.
    #[test]
    fn urls() {
        let cases = [
            ("postgres://u:p@h:1/d", "d", "postgres://u:p@h:1/x"),
            ("postgresql://h", "postgres", "postgresql://h/x"),
            ("postgres://h/?sslmode=disable", "postgres", "postgres://h/x?sslmode=disable"),
            ("postgres://h?a=/b", "postgres", "postgres://h/x?a=/b"),
            ("postgres:///d?host=/run", "d", "postgres:///x?host=/run"),
        ];
        for (url, database, other) in cases {
            let address = Address::parse(url);
            assert_eq!(address.database, database, "{url}");
            assert_eq!(address.url("x"), other, "{url}");
        }
    }
}
