//! Kill -9 under mixed load, again and again: nothing acknowledged is lost, no batch is half there.
//!
//! `ROWHOUSE_KILL_ROUNDS` says how often; `make crash ROUNDS=n` sets it. The server dies at any moment: while
//! it writes, while it has just begun to, and in every fourth round once more while it starts again.

use rowhouse_env::{Random, SeededRandom};
use rowhouse_testkit::history::Order;
use rowhouse_testkit::{Load, TestServer, count_from, seed};
use std::time::{Duration, Instant};

const ROUNDS: usize = 20;
/// A round lasts up to this long.
const ROUND_MAX: Duration = Duration::from_millis(600);
/// A start is interrupted within this time.
const START_MAX: Duration = Duration::from_millis(25);
/// How often a long run says where it is.
const REPORT_EVERY: usize = 100;

fn any(chance: &SeededRandom, below: Duration) -> Duration {
    let mut bytes = [0; 2];
    chance.fill(&mut bytes);
    below * u32::from(u16::from_le_bytes(bytes)) / u32::from(u16::MAX)
}

#[test]
fn kills_lose_nothing() {
    let rounds = count_from("ROWHOUSE_KILL_ROUNDS", ROUNDS);
    let seed = seed();
    let chance = SeededRandom::new(seed);
    let mut server = TestServer::start();
    let mut load = Load::new(&mut server.client(), seed, Order::OfStore);
    let began = Instant::now();
    let mut ready = Vec::new();
    let mut kills = 0;
    for round in 1..=rounds {
        load.run(&[server.address()], |_| {
            std::thread::sleep(any(&chance, ROUND_MAX));
            server.kill();
        });
        if round % 4 == 0 {
            server.restart_and_kill(any(&chance, START_MAX));
            kills += 1;
        }
        kills += 1;
        server.restart();
        ready.push(server.started_in());
        if let Err(losses) = load.verify(&mut server.client()) {
            panic!("round {round}: {losses}");
        }
        if round % REPORT_EVERY == 0 {
            println!("round {round}: {}", load.tally());
        }
    }
    assert_eq!(load.tally().failures, 0, "the server failed at nothing before it was killed");
    assert!(load.tally().writes > rounds as u64, "there was load");
    assert!(!server.log().contains("panicked"), "nothing panicked");
    assert!(server.stop().success(), "a clean end after all that");
    server.check().unwrap_or_else(|problems| panic!("{problems}"));
    ready.sort();
    println!(
        "kill: {rounds} rounds, {kills} kills, {}, 0 lost, 0 half batches, ETags only rose; \
         ready after {} ms (median) and {} ms (slowest); {:.0} s",
        load.tally(),
        ready[ready.len() / 2].as_millis(),
        ready[ready.len() - 1].as_millis(),
        began.elapsed().as_secs_f64(),
    );
}
