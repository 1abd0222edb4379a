//! Two servers on one database, and kill -9 of either of them, of both, or of PostgreSQL under mixed load.
//!
//! Whatever is killed at whatever moment: nothing acknowledged is lost, no batch is half there, the answers of
//! both servers together have an explanation, no ETag is given twice to a key, and tables that are dropped and
//! made again on one server neither lose rows of the other nor show old ones. A server whose neighbour dies goes
//! on; one whose database dies takes writes again by itself once the database is back; one that slept for longer
//! than its lease finds that another has its place, and takes a new one. All servers at once come back under the load that
//! they were killed under, before the database is done with what they left: they serve again within seconds, and their
//! number of connections stays within what they are allowed.
//!
//! The control is a database that answers before a commit is in its log: it must lose something, or else the test
//! would not have seen it either.
//!
//! `ROWHOUSE_POSTGRES_KILL_ROUNDS` says how often; `make crash STORE=postgres ROUNDS=n` sets it.

#![cfg(unix)]

use rowhouse_env::{Random, SeededRandom};
use rowhouse_testkit::history::{Answer, Order, Record, Witnesses, check};
use rowhouse_testkit::{
    Client, Load, TestPostgres, TestServer, Turnover, count_from, entity_path, seed,
};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

const ROUNDS: usize = 6;
/// A round lasts up to this long until something is killed.
const ROUND_MAX: Duration = Duration::from_millis(1200);
/// What is left then goes on for this long.
const AFTERWARDS: Duration = Duration::from_millis(600);
/// Longer than a server's lease on its place among the others.
const SLEEP: Duration = Duration::from_millis(3500);
/// A start is interrupted within this time.
const START_MAX: Duration = Duration::from_millis(100);
/// How long it may take until all is well again, even on a busy machine.
const RECOVERY_MAX: Duration = Duration::from_mins(1);

/// Clients that all come at once when all servers are back, more than these have connections, and what each of them puts.
const CROWD: usize = 96;
const PUTS: usize = 5;
const CROWD_TABLE: &str = "Crowd";
/// Within this time after both servers were killed, everybody in the crowd has been served. It takes about a second, on two
/// cores that are busy with other things.
const SERVED_MAX: Duration = Duration::from_secs(15);
/// Connections that two servers may hold: 32 each as they come, and those that look after the store itself.
const SESSIONS_MAX: usize = 2 * (32 + 8);

/// What happens to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Blow {
    Server(usize),
    Postgres,
    /// Both at once. They are started again under load, while the database still works for those that died.
    Servers,
    /// The first server sleeps for longer than its lease. Meanwhile the other dies and comes back in its place.
    Sleep,
}

/// In turn. The first server has the first place until it sleeps: it is the one that another takes.
const BLOWS: [Blow; 5] =
    [Blow::Server(0), Blow::Postgres, Blow::Server(1), Blow::Sleep, Blow::Servers];

struct World {
    postgres: TestPostgres,
    database: String,
    servers: Vec<TestServer>,
    load: Load,
    witnesses: Witnesses,
    turnover: Turnover,
    /// When both servers were killed, in the database's words.
    died: String,
    /// How long it took at most until a crowd was served after that.
    served: Duration,
}

impl World {
    fn new(seed: u64) -> Self {
        let postgres = TestPostgres::start();
        let url = postgres.create_database();
        let database = url.rsplit('/').next().expect("a path").to_owned();
        let names = (0..2).map(|number| format!("{url}?application_name={}", name(number)));
        let servers: Vec<_> = names.map(|url| TestServer::start_with_store(&url)).collect();
        let load = Load::new(&mut servers[0].client(), seed, Order::OfEntity);
        let witnesses = Witnesses::new(&mut servers[1].client(), seed);
        servers[0].client().create_table(CROWD_TABLE);
        let (turnover, died, served) = (Turnover::default(), String::new(), Duration::ZERO);
        Self { postgres, database, servers, load, witnesses, turnover, died, served }
    }

    /// Everything at once on both servers, until something is killed and a moment longer.
    fn run(&mut self, blow: Blow, after: Duration) {
        let addresses: Vec<SocketAddr> = self.servers.iter().map(TestServer::address).collect();
        let Self { postgres, database, servers, load, witnesses, turnover, died, served } = self;
        load.run(&addresses, |writers| {
            witnesses.run(&addresses, |clients| {
                turnover.run(&addresses, |owners| {
                    std::thread::sleep(after);
                    match blow {
                        Blow::Server(number) => servers[number].kill(),
                        Blow::Postgres => postgres.kill(),
                        Blow::Servers => {
                            let began = Instant::now();
                            servers.iter_mut().for_each(TestServer::kill);
                            *died = postgres.execute(database, "SELECT clock_timestamp()");
                            restart_all(servers);
                            serve_crowd(servers);
                            *served = began.elapsed().max(*served);
                            let sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'server%'
                                AND backend_start >= ";
                            let sessions = postgres.execute(database, &format!("{sessions}'{died}'"));
                            let sessions: usize = sessions.parse().expect("a number");
                            assert!(sessions <= SESSIONS_MAX, "{sessions} sessions");
                            assert!(began.elapsed() < SERVED_MAX, "{:?}", began.elapsed());
                        }
                        Blow::Sleep => {
                            servers[0].pause();
                            servers[1].kill();
                            std::thread::sleep(SLEEP);
                            wait_for_sessions(postgres, database, 1);
                            servers[1].restart();
                            servers[0].resume();
                        }
                    }
                    std::thread::sleep(AFTERWARDS);
                    writers.rest();
                    clients.rest();
                    owners.rest();
                });
            });
        });
    }

    /// Starts again what was killed, once nothing of it can take effect any more.
    fn recover(&mut self, blow: Blow, interrupted: Option<Duration>) {
        match blow {
            Blow::Server(number) => {
                wait_for_sessions(&self.postgres, &self.database, number);
                if let Some(after) = interrupted {
                    self.servers[number].restart_and_kill(after);
                }
                self.servers[number].restart();
            }
            Blow::Postgres => self.postgres.restart(),
            Blow::Servers => {
                let sql = format!(
                    "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'server%'
                     AND backend_start < '{}'",
                    self.died
                );
                let (postgres, database) = (&self.postgres, &self.database);
                wait_until("sessions of the dead end", || postgres.execute(database, &sql) == "0");
            }
            Blow::Sleep => {}
        }
        let servers = &self.servers;
        wait_until("ready again", || servers.iter().all(TestServer::is_ready));
        self.witnesses.settle();
    }

    fn verify(&mut self, round: usize) {
        let mut client = self.servers[round % self.servers.len()].client();
        if let Err(losses) = self.load.verify(&mut client) {
            panic!("round {round}: {losses}");
        }
        if let Err(reason) = self.turnover.verify(&mut client) {
            panic!("round {round}: {reason}");
        }
    }
}

/// At the same time, as an operator would whose servers all failed.
fn restart_all(servers: &mut [TestServer]) {
    std::thread::scope(|scope| {
        for server in servers {
            scope.spawn(|| server.restart());
        }
    });
}

/// All come at once and ask until they are served, and what they put is there.
fn serve_crowd(servers: &[TestServer]) {
    let addresses: Vec<SocketAddr> = servers.iter().map(TestServer::address).collect();
    std::thread::scope(|scope| {
        for (number, address) in (0..CROWD).zip(addresses.iter().cycle()) {
            scope.spawn(move || {
                let mut client = Client::new(*address);
                for put in 0..PUTS {
                    let path = entity_path(CROWD_TABLE, &number.to_string(), &put.to_string());
                    let value = serde_json::json!({ "n": put });
                    wait_until("somebody in the crowd is served", || {
                        let answer = client.update("PUT", &path, None, &value);
                        answer.is_ok_and(|answer| answer.status == 204)
                    });
                }
            });
        }
    });
    let found = servers[0].client().query(CROWD_TABLE, "");
    assert_eq!(found.len(), CROWD * PUTS, "what the crowd put is there");
}

fn name(number: usize) -> String {
    format!("server{number}")
}

/// The database finishes the statement that it got last before it notices that nobody waits for it.
fn wait_for_sessions(postgres: &TestPostgres, database: &str, number: usize) {
    let of = format!("FROM pg_stat_activity WHERE application_name = '{}'", name(number));
    let sql = format!("SELECT count(*) {of}");
    wait_until("its sessions end", || postgres.execute(database, &sql) == "0");
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < RECOVERY_MAX, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn any(chance: &SeededRandom, below: Duration) -> Duration {
    let mut bytes = [0; 2];
    chance.fill(&mut bytes);
    below * u32::from(u16::from_le_bytes(bytes)) / u32::from(u16::MAX)
}

#[test]
fn kills_of_servers_and_of_the_database_lose_nothing() {
    let rounds = count_from("ROWHOUSE_POSTGRES_KILL_ROUNDS", ROUNDS);
    let seed = seed();
    let chance = SeededRandom::new(seed);
    let mut world = World::new(seed);
    let began = Instant::now();
    let mut slowest = Duration::ZERO;
    for round in 1..=rounds {
        let blow = BLOWS[round % BLOWS.len()];
        world.turnover.prepare(&mut world.servers[round % 2].client());
        let failures = world.load.tally().failures + world.witnesses.failures();
        world.run(blow, any(&chance, ROUND_MAX));
        if matches!(blow, Blow::Server(_)) {
            let now = world.load.tally().failures + world.witnesses.failures();
            assert_eq!(now, failures, "round {round}: a server failed because another died");
        }
        let killed = Instant::now();
        world.recover(blow, (round % 2 == 0).then(|| any(&chance, START_MAX)));
        slowest = slowest.max(killed.elapsed());
        world.verify(round);
        println!("round {round}: {blow:?}, {}, {}", world.load.tally(), world.turnover);
    }
    assert!(world.load.tally().writes > rounds as u64, "there was load");
    let records = world.witnesses.into_records(&mut world.servers[0].client());
    if let Err(violation) = check(&records, Order::OfEntity) {
        panic!("{violation}");
    }
    let usurped = world.servers[0].log().contains("the slot was taken");
    let slept = BLOWS.iter().take(rounds + 1).any(|blow| *blow == Blow::Sleep);
    assert!(usurped || !slept, "the server that slept has lost its place");
    for server in &mut world.servers {
        assert!(!server.log().contains("panicked"), "nothing panicked");
        assert!(server.stop().success(), "a clean end after all that");
    }
    let count = |of: fn(&Record) -> bool| records.iter().filter(|record| of(record)).count();
    println!(
        "postgres kill: {rounds} rounds on two servers, {}, {}, 0 lost, 0 half batches, no ETag twice; \
         {} requests ({} unanswered) linearizable; all well again after {:.1} s at most, a crowd served {:.1} s after both were killed; {:.0} s",
        world.load.tally(),
        world.turnover,
        records.len(),
        count(|record| record.answer == Answer::Nothing),
        slowest.as_secs_f64(),
        world.served.as_secs_f64(),
        began.elapsed().as_secs_f64(),
    );
}

/// Rounds that the control may take to lose something.
const CONTROL_ROUNDS: usize = 10;

#[test]
fn a_database_that_does_not_wait_for_its_log_is_caught() {
    let seed = seed();
    let lazy = [("synchronous_commit", "off"), ("wal_writer_delay", "10s")];
    let mut postgres = TestPostgres::start_with(&lazy);
    let url = postgres.create_database();
    let server = TestServer::start_with_store_and(&url, &["--ephemeral"]);
    let mut load = Load::new(&mut server.client(), seed, Order::OfEntity);
    postgres.execute("postgres", "CHECKPOINT");
    for round in 1..=CONTROL_ROUNDS {
        load.run(&[server.address()], |_| {
            std::thread::sleep(AFTERWARDS);
            postgres.kill();
        });
        postgres.restart();
        wait_until("ready again", || server.is_ready());
        if let Err(losses) = load.verify(&mut server.client()) {
            let lost = losses.details.len();
            println!("postgres control: {lost} losses in round {round}, as it must be");
            return;
        }
    }
    panic!("{CONTROL_ROUNDS} rounds without a loss that must be there");
}
