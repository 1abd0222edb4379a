//! Kill -9 while producers and consumers are at work, again and again: no acknowledged message is lost, none is had by
//! two within its visibility, and the receipt of an acknowledged take is good after the restart.
//!
//! Everything that was answered is written down with the times of question and answer, and judged at the end. Nobody but
//! the checker decides what is right, so histories that were falsified on purpose must be noticed by it.
//!
//! `ROWHOUSE_QUEUE_KILL_ROUNDS` says how often; `make crash ROUNDS=n` sets it.

use rowhouse_env::{Random, SeededRandom};
use rowhouse_testkit::{Client, TestServer, count_from, encode, seed};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const ROUNDS: usize = 8;
/// A round lasts about up to this long.
const ROUND_MILLIS: u64 = 650;
const PRODUCERS: u64 = 3;
const CONSUMERS: u64 = 4;
const QUEUE: &str = "survivors";
/// How long takes hide a message, in seconds: some come back during the run, some stay hidden over a restart.
const SHORT: u64 = 1;
const LONG: u64 = 8;
/// What clocks that are read at two places may differ by.
const SLACK: Duration = Duration::from_millis(100);

/// An acknowledged put.
#[derive(Clone, Debug)]
struct Put {
    number: u64,
    id: String,
}

/// An acknowledged take of one message. Times are since the start of the run.
#[derive(Clone, Debug)]
struct Take {
    number: u64,
    id: String,
    receipt: String,
    count: u32,
    asked: Duration,
    answered: Duration,
    hidden: Duration,
}

impl Take {
    /// Until then nobody else may have it.
    fn until(&self) -> Duration {
        self.asked + self.hidden
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Done,
    NotFound,
    /// The server died before it answered.
    Unknown,
}

/// A delete with the receipt of a take.
#[derive(Clone, Debug)]
struct Delete {
    number: u64,
    count: u32,
    answered: Duration,
    outcome: Outcome,
}

/// Everything that is known of a run.
#[derive(Clone, Debug, Default)]
struct History {
    puts: Vec<Put>,
    takes: Vec<Take>,
    deletes: Vec<Delete>,
    /// What was still there at the end, when nothing was hidden any more.
    left: BTreeMap<u64, String>,
}

/// What is wrong with a history; nothing if it can be explained.
fn check(history: &History) -> Vec<String> {
    let mut faults = Vec::new();
    let mut takes: BTreeMap<u64, Vec<&Take>> = BTreeMap::new();
    for take in &history.takes {
        takes.entry(take.number).or_default().push(take);
    }
    let mut deletes: BTreeMap<u64, Vec<&Delete>> = BTreeMap::new();
    for delete in &history.deletes {
        deletes.entry(delete.number).or_default().push(delete);
    }
    let mut ids: BTreeMap<u64, BTreeSet<&str>> = BTreeMap::new();
    let puts = history.puts.iter().map(|put| (put.number, put.id.as_str()));
    let had = history.takes.iter().map(|take| (take.number, take.id.as_str()));
    let left = history.left.iter().map(|(&number, id)| (number, id.as_str()));
    for (number, id) in puts.chain(had).chain(left) {
        ids.entry(number).or_default().insert(id);
    }
    for (number, ids) in ids {
        if ids.len() > 1 {
            faults.push(format!("{number} was put once and is there as {ids:?}"));
        }
    }
    for put in &history.puts {
        let gone = deletes
            .get(&put.number)
            .is_some_and(|all| all.iter().any(|delete| delete.outcome != Outcome::NotFound));
        if !gone && !history.left.contains_key(&put.number) {
            faults.push(format!("{} was acknowledged, never deleted, and is gone", put.number));
        }
    }
    for all in takes.values_mut() {
        all.sort_by_key(|take| take.count);
        for pair in all.windows(2) {
            let (first, second) = (pair[0], pair[1]);
            if first.count == second.count {
                faults.push(format!("{} was had twice as take {}", first.number, first.count));
            }
            if second.answered + SLACK < first.until() {
                faults.push(format!(
                    "{} was had again {:?} before its visibility had passed",
                    first.number,
                    first.until().saturating_sub(second.answered)
                ));
            }
        }
    }
    for (number, all) in &deletes {
        check_deletes(
            *number,
            all,
            takes.get(number).map_or(&[][..], Vec::as_slice),
            history,
            &mut faults,
        );
    }
    faults
}

/// What was deleted stays deleted, and a receipt is good as long as nobody else can have the message.
fn check_deletes(
    number: u64,
    deletes: &[&Delete],
    takes: &[&Take],
    history: &History,
    faults: &mut Vec<String>,
) {
    for delete in deletes {
        let take = takes.iter().find(|take| take.count == delete.count);
        let take = take.expect("who deletes has taken");
        match delete.outcome {
            Outcome::Done => {
                let again = takes.iter().any(|take| take.asked > delete.answered);
                if again || history.left.contains_key(&number) {
                    faults.push(format!("{number} was deleted and is back"));
                }
            }
            Outcome::NotFound => {
                let others = deletes.iter().filter(|other| other.outcome != Outcome::NotFound);
                if others.count() == 0 && delete.answered + SLACK < take.until() {
                    faults.push(format!(
                        "the receipt of take {} of {number} was refused",
                        take.count
                    ));
                }
            }
            Outcome::Unknown => {}
        }
    }
    let done = deletes.iter().filter(|delete| delete.outcome == Outcome::Done).count();
    if done > 1 {
        faults.push(format!("{number} was deleted {done} times"));
    }
}

/// The text between tags, in every place.
fn elements<'a>(xml: &'a str, name: &str) -> Vec<&'a str> {
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    let parts = xml.split(open.as_str()).skip(1);
    parts.map(|part| part.split(close.as_str()).next().unwrap_or_default()).collect()
}

/// Those who work, and what they know.
struct World {
    began: Instant,
    next: AtomicU64,
    history: Mutex<History>,
    /// Takes that are kept over the next kill, to be deleted after it.
    held: Mutex<Vec<Take>>,
}

impl World {
    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn history(&self) -> std::sync::MutexGuard<'_, History> {
        self.history.lock().expect("nobody panicked")
    }

    /// Puts until the server is gone.
    fn produce(&self, client: &mut Client) -> io::Result<()> {
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let body = format!("<QueueMessage><MessageText>{number}</MessageText></QueueMessage>");
            let path = format!("{QUEUE}/messages?messagettl=-1");
            let answer = client.try_request("POST", &path, &[], body.as_bytes())?;
            assert_eq!(answer.status, 201, "{}", answer.text());
            let id = elements(&answer.text(), "MessageId")[0].to_owned();
            self.history().puts.push(Put { number, id });
        }
    }

    /// Takes messages.
    fn take(&self, client: &mut Client, most: u64, seconds: u64) -> io::Result<Vec<Take>> {
        let path = format!("{QUEUE}/messages?numofmessages={most}&visibilitytimeout={seconds}");
        let asked = self.now();
        let answer = client.try_request("GET", &path, &[], b"")?;
        let answered = self.now();
        assert_eq!(answer.status, 200, "{}", answer.text());
        let text = answer.text();
        let fields = ["MessageId", "PopReceipt", "DequeueCount", "MessageText"];
        let [ids, receipts, counts, texts] = fields.map(|name| elements(&text, name));
        let takes: Vec<_> = (0..ids.len())
            .map(|at| Take {
                number: texts[at].parse().expect("a number was put"),
                id: ids[at].to_owned(),
                receipt: receipts[at].to_owned(),
                count: counts[at].parse().expect("a count is a number"),
                asked,
                answered,
                hidden: Duration::from_secs(seconds),
            })
            .collect();
        self.history().takes.extend(takes.iter().cloned());
        Ok(takes)
    }

    /// Deletes what was taken, with its receipt.
    fn delete(&self, client: &mut Client, take: &Take) -> io::Result<()> {
        let path = format!("{QUEUE}/messages/{}?popreceipt={}", take.id, encode(&take.receipt));
        let answer = client.try_request("DELETE", &path, &[], b"");
        let outcome = match &answer {
            Ok(answer) if answer.status == 204 => Outcome::Done,
            Ok(answer) if answer.status == 404 => Outcome::NotFound,
            Ok(answer) => panic!("{}: {}", answer.status, answer.text()),
            Err(_) => Outcome::Unknown,
        };
        let (number, count, answered) = (take.number, take.count, self.now());
        self.history().deletes.push(Delete { number, count, answered, outcome });
        answer.map(drop)
    }

    /// Takes and deletes, keeps and forgets, until the server is gone.
    fn consume(&self, client: &mut Client, chance: &SeededRandom) -> io::Result<()> {
        loop {
            let seconds = if below(chance, 2) == 0 { SHORT } else { LONG };
            for take in self.take(client, 1 + below(chance, 32), seconds)? {
                match below(chance, 8) {
                    0 if seconds == LONG => self.held.lock().expect("nobody panicked").push(take),
                    1 if seconds == SHORT => {} // It comes back.
                    _ => self.delete(client, &take)?,
                }
            }
        }
    }

    /// All at once, until the server is killed.
    fn run(&self, server: &mut TestServer, seed: u64, after: Duration) {
        let address = server.queue_address();
        std::thread::scope(|scope| {
            for _ in 0..PRODUCERS {
                scope.spawn(move || self.produce(&mut Client::of_queues(address)));
            }
            for number in 0..CONSUMERS {
                let chance = SeededRandom::new(seed.wrapping_add(number));
                scope.spawn(move || self.consume(&mut Client::of_queues(address), &chance));
            }
            std::thread::sleep(after);
            server.kill();
        });
    }
}

fn below(chance: &SeededRandom, end: u64) -> u64 {
    let mut bytes = [0; 8];
    chance.fill(&mut bytes);
    u64::from_le_bytes(bytes) % end
}

/// Runs the rounds; the server is running at the end, and everything in the queue was taken.
fn run(rounds: usize, seed: u64) -> (TestServer, World) {
    let chance = SeededRandom::new(seed);
    let mut server = TestServer::start();
    let made = server.queue_client().request("PUT", QUEUE, &[], b"");
    assert_eq!(made.status, 201, "{}", made.text());
    let world = World {
        began: Instant::now(),
        next: AtomicU64::new(0),
        history: Mutex::default(),
        held: Mutex::default(),
    };
    for round in 0..rounds {
        let length = Duration::from_millis(ROUND_MILLIS / 10 + below(&chance, ROUND_MILLIS));
        world.run(&mut server, seed ^ (round as u64) << 32, length);
        server.restart();
        let mut client = server.queue_client();
        let held = std::mem::take(&mut *world.held.lock().expect("nobody panicked"));
        for take in &held {
            world.delete(&mut client, take).expect("the server is back");
        }
    }
    // Nothing is hidden any more then, not even by a take whose answer was lost.
    std::thread::sleep(Duration::from_secs(LONG) + SLACK);
    let mut client = server.queue_client();
    loop {
        let takes = world.take(&mut client, 32, 600).expect("the server is there");
        if takes.is_empty() {
            break;
        }
        let mut history = world.history();
        history.left.extend(takes.into_iter().map(|take| (take.number, take.id)));
    }
    (server, world)
}

#[test]
fn kills_lose_no_message() {
    let rounds = count_from("ROWHOUSE_QUEUE_KILL_ROUNDS", ROUNDS);
    let began = Instant::now();
    let (mut server, world) = run(rounds, seed());
    let history = world.history().clone();
    let faults = check(&history);
    assert!(faults.is_empty(), "{} faults: {:#?}", faults.len(), &faults[..faults.len().min(20)]);

    let answer = server.queue_client().request("GET", &format!("{QUEUE}?comp=metadata"), &[], b"");
    let counted = answer.header("x-ms-approximate-messages-count").map(str::to_owned);
    assert_eq!(counted, Some(history.left.len().to_string()), "as many as were there");
    let again = history.takes.iter().filter(|take| take.count > 1).count();
    let done = history.deletes.iter().filter(|delete| delete.outcome == Outcome::Done).count();
    assert!(history.puts.len() > rounds && done > rounds, "there was load");
    for (what, falsified) in falsifications(&history) {
        assert!(!check(&falsified).is_empty(), "the checker did not notice: {what}");
    }
    assert!(!server.log().contains("panicked"), "nothing panicked");
    assert!(server.stop().success(), "a clean end after all that");
    server.check().unwrap_or_else(|problems| panic!("{problems}"));
    println!(
        "queue kill: {rounds} kills, {} messages acknowledged, {} takes ({again} of them again), {done} deleted, {} left, \
         0 lost, 0 had by two, 0 receipts refused; {:.0} s",
        history.puts.len(),
        history.takes.len(),
        history.left.len(),
        began.elapsed().as_secs_f64(),
    );
}

/// The same history with one thing changed, each of which is a promise broken.
fn falsifications(history: &History) -> Vec<(&'static str, History)> {
    let change = |with: &dyn Fn(&mut History)| {
        let mut changed = history.clone();
        with(&mut changed);
        changed
    };
    // Of a message that nobody else was about, so that the change is all that can be noticed.
    let of_done = |history: &History| {
        let alone = |delete: &&Delete| {
            let same = history.deletes.iter().filter(|other| other.number == delete.number);
            let put = history.puts.iter().any(|put| put.number == delete.number);
            put && same.count() == 1 && delete.outcome == Outcome::Done && delete.count == 1
        };
        let delete = history.deletes.iter().find(alone).expect("something was deleted");
        (delete.number, delete.count)
    };
    let place = |history: &History, number: u64| {
        let place = history.deletes.iter().position(|delete| delete.number == number);
        place.expect("it was deleted")
    };
    let take_of = |history: &History, (number, count): (u64, u32)| {
        let mut takes = history.takes.iter();
        let take = takes.find(|take| (take.number, take.count) == (number, count));
        take.expect("who deletes has taken").clone()
    };
    vec![
        (
            "a message that is gone",
            change(&|history| {
                let (number, _) = of_done(history);
                history.deletes.retain(|delete| delete.number != number);
            }),
        ),
        (
            "a message that is had by two",
            change(&|history| {
                let last = history.takes.last().expect("something was taken").clone();
                history.takes.push(Take { count: last.count + 1, ..last });
            }),
        ),
        (
            "a take that was not counted",
            change(&|history| {
                let last = history.takes.last().expect("something was taken").clone();
                let asked = last.until() + SLACK;
                history.takes.push(Take { asked, answered: asked, ..last });
            }),
        ),
        (
            "a message that is back",
            change(&|history| {
                let take = take_of(history, of_done(history));
                let answered = history.deletes[place(history, take.number)].answered;
                let asked = take.until().max(answered) + SLACK;
                history.takes.push(Take { count: take.count + 1, asked, answered: asked, ..take });
            }),
        ),
        (
            "a receipt that was refused",
            change(&|history| {
                let take = take_of(history, of_done(history));
                let at = place(history, take.number);
                history.deletes[at].outcome = Outcome::NotFound;
                history.deletes[at].answered = take.asked;
                history.left.insert(take.number, take.id);
            }),
        ),
        (
            "a message that is there twice",
            change(&|history| {
                let put = history.puts[0].clone();
                history.puts.push(Put { id: "another".to_owned(), ..put });
            }),
        ),
    ]
}
