//! Two servers on one database, and kill -9 of either of them or of PostgreSQL while producers and consumers are at work on
//! both.
//!
//! Whatever is killed at whatever moment: no acknowledged message is lost, none is had by two within its visibility, not even
//! on different servers, the receipt of an acknowledged take is good on either of them afterwards, and what was answered 503 has
//! not happened. A server whose neighbour dies goes on.
//!
//! The control is a database that answers before a commit is in its log: it must lose something, or else the test would not
//! have seen it either.
//!
//! `ROWHOUSE_POSTGRES_QUEUE_KILL_ROUNDS` says how often; `make crash STORE=postgres ROUNDS=n` sets it.

#![cfg(unix)]

use rowhouse_env::{Random, SeededRandom};
use rowhouse_testkit::{
    Blow, Messages, Pair, TestPostgres, TestServer, count_from, seed, wait_until,
};
use std::time::{Duration, Instant};

const ROUNDS: usize = 4;
/// A round lasts up to this long until something is killed.
const ROUND_MAX: Duration = Duration::from_millis(1200);
/// What is left then goes on for this long.
const AFTERWARDS: Duration = Duration::from_millis(600);

#[test]
fn kills_of_servers_and_of_the_database_lose_no_message() {
    let rounds = count_from("ROWHOUSE_POSTGRES_QUEUE_KILL_ROUNDS", ROUNDS);
    let (began, seed) = (Instant::now(), seed());
    let chance = SeededRandom::new(seed);
    let mut pair = Pair::start();
    let messages = Messages::new(&mut pair.servers[0].queue_client());
    for round in 0..rounds {
        let blow = Blow::ALL[round % Blow::ALL.len()];
        let (failures, length) = (messages.failures(), any(&chance, ROUND_MAX));
        messages.run(&pair.queue_addresses(), seed ^ (round as u64) << 32, |workers| {
            std::thread::sleep(length);
            pair.strike(blow);
            std::thread::sleep(AFTERWARDS);
            workers.rest();
        });
        if matches!(blow, Blow::Server(_)) {
            assert_eq!(messages.failures(), failures, "a server failed because another died");
        }
        pair.recover(blow, None);
        messages.delete_held(&mut pair.servers[round % 2].queue_client());
    }
    messages.wait_until_all_is_visible();
    // What somebody had in hand who died may be found a little later: servers look through all of a queue now and then.
    wait_until("all messages are found", || {
        for server in &pair.servers {
            messages.drain(&mut server.queue_client());
        }
        messages.left() == messages.counted(&mut pair.servers[0].queue_client())
    });
    messages.judge(rounds);
    pair.stop();
    println!(
        "postgres queue kill: {rounds} rounds on two servers, {messages}; {:.0} s",
        began.elapsed().as_secs_f64()
    );
}

fn any(chance: &SeededRandom, below: Duration) -> Duration {
    let mut bytes = [0; 2];
    chance.fill(&mut bytes);
    below * u32::from(u16::from_le_bytes(bytes)) / u32::from(u16::MAX)
}

/// Rounds that the control may take to lose something.
const CONTROL_ROUNDS: u64 = 5;

#[test]
fn a_database_that_does_not_wait_for_its_log_is_caught() {
    let lazy = [("synchronous_commit", "off"), ("wal_writer_delay", "10s")];
    let mut postgres = TestPostgres::start_with(&lazy);
    let server = TestServer::start_with_store_and(&postgres.create_database(), &["--ephemeral"]);
    let messages = Messages::new(&mut server.queue_client());
    postgres.execute("postgres", "CHECKPOINT");
    for round in 1..=CONTROL_ROUNDS {
        messages.run(&[server.queue_address()], seed().wrapping_add(round), |workers| {
            std::thread::sleep(AFTERWARDS);
            postgres.kill();
            workers.rest();
        });
        postgres.restart();
        wait_until("ready again", || server.is_ready());
        messages.wait_until_all_is_visible();
        messages.drain(&mut server.queue_client());
        let faults = messages.faults();
        if let Some(first) = faults.first() {
            let count = faults.len();
            println!("postgres control: {count} faults in round {round}, as it must be: {first}");
            return;
        }
    }
    panic!("{CONTROL_ROUNDS} rounds without a loss that must be there");
}
