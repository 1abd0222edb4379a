//! Two servers on one database, and kill -9 of either of them or of PostgreSQL under mixed load.
//!
//! Whatever is killed at whatever moment: nothing acknowledged is lost, no batch is half there, the answers of
//! both servers together have an explanation, no ETag is given twice to a key, and tables that are dropped and
//! made again on one server neither lose rows of the other nor show old ones. A server whose neighbour dies goes
//! on; one whose database dies takes writes again by itself once the database is back; one that slept for longer
//! than its lease finds that another has its place, and takes a new one. When all servers die and are started again under load, a
//! crowd that waits for them is served within seconds, with no more connections to the database than they have otherwise.
//!
//! The control is a database that answers before a commit is in its log: it must lose something, or else the test
//! would not have seen it either.
//!
//! `ROWHOUSE_POSTGRES_KILL_ROUNDS` says how often; `make crash STORE=postgres ROUNDS=n` sets it.

#![cfg(unix)]

use rowhouse_env::{Random, SeededRandom};
use rowhouse_testkit::history::{Answer, Order, Record, Witnesses, check};
use rowhouse_testkit::{
    Blow, Client, Load, Pair, TestPostgres, TestServer, Turnover, count_from, entity_path, seed,
    wait_until,
};
use std::time::{Duration, Instant};

const ROUNDS: usize = 6;
/// A round lasts up to this long until something is killed.
const ROUND_MAX: Duration = Duration::from_millis(1200);
/// What is left then goes on for this long.
const AFTERWARDS: Duration = Duration::from_millis(600);
/// A start is interrupted within this time.
const START_MAX: Duration = Duration::from_millis(100);

/// Clients that all come at once when all servers are back, more than these have connections, and what each of them puts.
const CROWD: usize = 96;
const PUTS: usize = 5;
const CROWD_TABLE: &str = "Crowd";
/// Within this time after both servers were killed, everybody in the crowd has been served. It takes about a second, on two
/// cores that are busy with other things.
const SERVED_MAX: Duration = Duration::from_secs(15);
/// Connections that two servers may hold: 32 each as they come, and those that look after the store itself.
const SESSIONS_MAX: usize = 2 * (32 + 8);

struct World {
    pair: Pair,
    load: Load,
    witnesses: Witnesses,
    turnover: Turnover,
    /// How long it took at most until a crowd was served after both servers were killed.
    served: Duration,
}

impl World {
    fn new(seed: u64) -> Self {
        let pair = Pair::start();
        let load = Load::new(&mut pair.servers[0].client(), seed, Order::OfEntity);
        let witnesses = Witnesses::new(&mut pair.servers[1].client(), seed);
        pair.servers[0].client().create_table(CROWD_TABLE);
        Self { pair, load, witnesses, turnover: Turnover::default(), served: Duration::ZERO }
    }

    /// Everything at once on both servers, until something is killed and a moment longer.
    fn run(&mut self, blow: Blow, after: Duration) {
        let addresses = self.pair.addresses();
        let Self { pair, load, witnesses, turnover, served } = self;
        load.run(&addresses, |writers| {
            witnesses.run(&addresses, |clients| {
                turnover.run(&addresses, |owners| {
                    std::thread::sleep(after);
                    let began = Instant::now();
                    pair.strike(blow);
                    if blow == Blow::Servers {
                        serve_crowd(&pair.servers);
                        *served = began.elapsed().max(*served);
                        let sessions = pair.new_sessions();
                        assert!(sessions <= SESSIONS_MAX, "{sessions} sessions");
                        assert!(*served < SERVED_MAX, "a crowd was served after {served:?}");
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
        self.pair.recover(blow, interrupted);
        self.witnesses.settle();
    }

    fn verify(&mut self, round: usize) {
        let mut client = self.pair.servers[round % 2].client();
        if let Err(losses) = self.load.verify(&mut client) {
            panic!("round {round}: {losses}");
        }
        if let Err(reason) = self.turnover.verify(&mut client) {
            panic!("round {round}: {reason}");
        }
    }
}

/// All come at once and ask until they are served, and what they put is there.
fn serve_crowd(servers: &[TestServer]) {
    std::thread::scope(|scope| {
        for (number, server) in (0..CROWD).zip(servers.iter().cycle()) {
            scope.spawn(move || {
                let mut client = Client::new(server.address());
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
        let blow = Blow::ALL[round % Blow::ALL.len()];
        world.turnover.prepare(&mut world.pair.servers[round % 2].client());
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
    let records = world.witnesses.into_records(&mut world.pair.servers[0].client());
    if let Err(violation) = check(&records, Order::OfEntity) {
        panic!("{violation}");
    }
    let usurped = world.pair.servers[0].log().contains("the slot was taken");
    assert!(usurped || rounds < Blow::ALL.len(), "the server that slept has lost its place");
    world.pair.stop();
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
