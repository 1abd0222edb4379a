//! Two servers on one PostgreSQL, any of which can be killed.

use crate::postgres::TestPostgres;
use crate::server::TestServer;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Longer than a server's lease on its place among the others.
const SLEEP: Duration = Duration::from_millis(3500);
/// How long it may take until all is well again, even on a busy machine.
const RECOVERY_MAX: Duration = Duration::from_mins(1);

/// What happens to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blow {
    /// The server of that number is killed.
    Server(usize),
    /// The database is killed.
    Postgres,
    /// Both servers are killed at once, and started again under load while the database still works for those that died.
    Servers,
    /// The first server sleeps for longer than its lease. Meanwhile the other dies and comes back in its place.
    Sleep,
}

impl Blow {
    /// All of them, to be dealt in turn.
    pub const ALL: [Self; 5] =
        [Self::Server(0), Self::Postgres, Self::Server(1), Self::Sleep, Self::Servers];
}

/// The servers and their database.
#[derive(Debug)]
pub struct Pair {
    postgres: TestPostgres,
    database: String,
    /// When both servers were killed, in the database's words.
    died: String,
    /// Two.
    pub servers: Vec<TestServer>,
}

impl Pair {
    /// On a database of their own.
    pub fn start() -> Self {
        let postgres = TestPostgres::start();
        let url = postgres.create_database();
        let database = url.rsplit('/').next().expect("a path").to_owned();
        let names = (0..2).map(|number| format!("{url}?application_name={}", name(number)));
        let servers = names.map(|url| TestServer::start_with_store(&url)).collect();
        Self { postgres, database, died: String::new(), servers }
    }

    /// Where tables are served.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.servers.iter().map(TestServer::address).collect()
    }

    /// Where queues are served.
    pub fn queue_addresses(&self) -> Vec<SocketAddr> {
        self.servers.iter().map(TestServer::queue_address).collect()
    }

    /// Deals a blow.
    pub fn strike(&mut self, blow: Blow) {
        match blow {
            Blow::Server(number) => self.servers[number].kill(),
            Blow::Postgres => self.postgres.kill(),
            Blow::Servers => {
                self.servers.iter_mut().for_each(TestServer::kill);
                self.died = self.postgres.execute(&self.database, "SELECT clock_timestamp()");
                // At the same time, as an operator would whose servers all failed.
                std::thread::scope(|scope| {
                    for server in &mut self.servers {
                        scope.spawn(|| server.restart());
                    }
                });
            }
            Blow::Sleep => {
                self.servers[0].pause();
                self.servers[1].kill();
                std::thread::sleep(SLEEP);
                self.wait_for_sessions(1);
                self.servers[1].restart();
                self.servers[0].resume();
            }
        }
    }

    /// Starts again what was killed, once nothing of it can take effect any more; a start may be interrupted before.
    pub fn recover(&mut self, blow: Blow, interrupted: Option<Duration>) {
        match blow {
            Blow::Server(number) => {
                self.wait_for_sessions(number);
                if let Some(after) = interrupted {
                    self.servers[number].restart_and_kill(after);
                }
                self.servers[number].restart();
            }
            Blow::Postgres => self.postgres.restart(),
            Blow::Servers => wait_until("sessions of the dead end", || self.sessions("<") == 0),
            Blow::Sleep => {}
        }
        wait_until("ready again", || self.servers.iter().all(TestServer::is_ready));
    }

    /// Sessions that servers have in the database which were both killed and started again.
    pub fn new_sessions(&self) -> usize {
        self.sessions(">=")
    }

    /// Sessions of servers that began before they were killed, or since.
    fn sessions(&self, compared: &str) -> usize {
        let sql = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'server%'
             AND backend_start {compared} '{}'",
            self.died
        );
        self.postgres.execute(&self.database, &sql).parse().expect("a number")
    }

    /// Nothing panicked, and the servers end when they are told to.
    pub fn stop(mut self) {
        for server in &mut self.servers {
            assert!(!server.log().contains("panicked"), "nothing panicked");
            assert!(server.stop().success(), "a clean end after all that");
        }
    }

    /// The database finishes the statement that it got last before it notices that nobody waits for it.
    fn wait_for_sessions(&self, number: usize) {
        let of = format!("FROM pg_stat_activity WHERE application_name = '{}'", name(number));
        let sql = format!("SELECT count(*) {of}");
        wait_until("its sessions end", || self.postgres.execute(&self.database, &sql) == "0");
    }
}

fn name(number: usize) -> String {
    format!("server{number}")
}

/// Waits until it holds; panics if it does not within a minute.
pub fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < RECOVERY_MAX, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
