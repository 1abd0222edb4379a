//! Kill -9 while producers and consumers are at work, again and again: no acknowledged message is lost, none is had by
//! two within its visibility, and the receipt of an acknowledged take is good after the restart.
//!
//! `ROWHOUSE_QUEUE_KILL_ROUNDS` says how often; `make crash ROUNDS=n` sets it.

use rowhouse_env::{Random, SeededRandom};
use rowhouse_testkit::{Messages, TestServer, count_from, seed};
use std::time::{Duration, Instant};

const ROUNDS: usize = 8;
/// A round lasts about up to this long.
const ROUND_MILLIS: u64 = 650;

#[test]
fn kills_lose_no_message() {
    let rounds = count_from("ROWHOUSE_QUEUE_KILL_ROUNDS", ROUNDS);
    let (began, seed) = (Instant::now(), seed());
    let chance = SeededRandom::new(seed);
    let mut server = TestServer::start();
    let messages = Messages::new(&mut server.queue_client());
    for round in 0..rounds {
        let length = Duration::from_millis(ROUND_MILLIS / 10 + below(&chance, ROUND_MILLIS));
        let address = [server.queue_address()];
        messages.run(&address, seed ^ (round as u64) << 32, |_| {
            std::thread::sleep(length);
            server.kill();
        });
        server.restart();
        messages.delete_held(&mut server.queue_client());
    }
    messages.wait_until_all_is_visible();
    let mut client = server.queue_client();
    messages.drain(&mut client);
    messages.judge(rounds);
    assert_eq!(messages.failures(), 0, "a server that lives does what it is asked");
    assert_eq!(messages.counted(&mut client), messages.left(), "as many as were there");
    assert!(!server.log().contains("panicked"), "nothing panicked");
    assert!(server.stop().success(), "a clean end after all that");
    server.check().unwrap_or_else(|problems| panic!("{problems}"));
    println!("queue kill: {rounds} kills, {messages}; {:.0} s", began.elapsed().as_secs_f64());
}

fn below(chance: &SeededRandom, end: u64) -> u64 {
    let mut bytes = [0; 8];
    chance.fill(&mut bytes);
    u64::from_le_bytes(bytes) % end
}
