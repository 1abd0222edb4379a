//! What a message costs: put, and taken and deleted again, in a queue that holds nothing else and in one that holds many.
//! `cargo run --release -p rowhouse-store-embedded --example queue [messages] [directory] [ephemeral]`: with the last word nothing
//! waits for the disk, so that what is measured is the work alone.

use rowhouse_env::SystemClock;
use rowhouse_store::{Batch, MessageAction, MessageCommand, NewAccount, QueueId, Store};
use rowhouse_store_embedded::{Durability, EmbeddedStore, Options};
use rowhouse_types::Guid;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How many operations are timed.
const ROUNDS: u32 = 2000;

/// An id in no order.
fn id(number: u64) -> Guid {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes());
    bytes[8..].copy_from_slice(&number.to_le_bytes());
    Guid(bytes)
}

fn put(number: u64) -> MessageAction {
    let text = format!("message {number} {}", "x".repeat(200)).into();
    MessageAction::Put { id: id(number), text, hide_seconds: 0, live_seconds: Some(604_800) }
}

/// Takes and deletes one message after the other; the median and the mean of both together.
async fn drain(store: &EmbeddedStore, queue: QueueId) -> (Duration, Duration) {
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let take = MessageAction::Take { limit: 1, hide_seconds: 30 };
        let taken = store.commit(Batch::of_message(queue, take)).await.expect("taken").messages;
        let delete = MessageAction::Delete { id: taken[0].id, receipt: taken[0].receipt };
        store.commit(Batch::of_message(queue, delete)).await.expect("deleted");
        times.push(start.elapsed());
    }
    times.sort_unstable();
    (times[times.len() / 2], times.iter().sum::<Duration>() / ROUNDS)
}

async fn fill(store: &EmbeddedStore, queue: QueueId, from: u64, count: u64) -> Duration {
    let start = Instant::now();
    for first in (from..from + count).step_by(500) {
        let numbers = first..(first + 500).min(from + count);
        let messages = numbers.map(|number| MessageCommand { queue, action: put(number) });
        let batch = Batch { commands: Vec::new(), messages: messages.collect() };
        store.commit(batch).await.expect("put");
    }
    start.elapsed()
}

#[tokio::main]
async fn main() {
    let mut args = std::env::args().skip(1);
    let many: u64 = args.next().map_or(1_000_000, |text| text.parse().expect("a number"));
    let parent = args.next().unwrap_or_else(|| ".".into());
    let directory = tempfile::tempdir_in(parent).expect("a directory");
    let durability = match args.next() {
        Some(_) => Durability::Ephemeral,
        None => Durability::Full,
    };
    let options = Options { durability, ..Options::new(directory.path()) };
    let store = EmbeddedStore::open(options, Arc::new(SystemClock)).expect("the store opens");
    let keys = [Box::from([]), Box::from([])];
    let name = "first".parse().expect("legal");
    let account = store.create_account(NewAccount { name, keys }).await.expect("created").id;
    let (mut queues, mut number) = (Vec::new(), 0);
    for name in ["fresh", "long"] {
        let name = name.parse().expect("legal");
        queues.push(store.create_queue(account, &name, Vec::new()).await.expect("created").id);
    }
    let rounds = u64::from(ROUNDS);
    let mut fresh = Vec::new();
    for round in 0..3 {
        fill(&store, queues[0], number, rounds).await;
        number += rounds;
        let (median, mean) = drain(&store, queues[0]).await;
        println!("fresh {round}: take and delete p50 {median:?} mean {mean:?}");
        fresh.push((median, mean));
    }
    let took = fill(&store, queues[1], number, many).await;
    number += many;
    println!("{many} messages put in {took:?}");
    tokio::time::sleep(Duration::from_secs(5)).await;
    fill(&store, queues[0], number, rounds * 3).await;
    for round in 0..3 {
        let (median, mean) = drain(&store, queues[1]).await;
        let (short, average) = drain(&store, queues[0]).await;
        println!(
            "long {round}: take and delete p50 {median:?} mean {mean:?}; in the short queue beside p50 {short:?} mean {average:?}; \
             {:.2} of it",
            mean.as_secs_f64() / average.as_secs_f64()
        );
    }
    let start = Instant::now();
    let count = store.message_count(queues[1]).await.expect("counted");
    println!("counted {count} in {:?}", start.elapsed());
    let start = Instant::now();
    store.peek(queues[1], 32).await.expect("peeked");
    println!("peeked in {:?}", start.elapsed());
    let start = Instant::now();
    store.commit(Batch::of_message(queues[1], MessageAction::Clear)).await.expect("cleared");
    println!("cleared in {:?}", start.elapsed());
    println!("{:?}", store.stats());
    store.close().await.expect("closed");
}
