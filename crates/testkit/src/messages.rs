//! Producers and consumers of one queue, whose server may be killed at any time.
//!
//! Everything that was answered is written down with the times of question and answer, to be judged at the end.

mod history;

use history::{Delete, History, Outcome, Put, SLACK, Take, check, judge};

use crate::client::{Client, encode};
use crate::connection::Response;
use crate::load::Cutoff;
use rowhouse_env::{Random, SeededRandom};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

const PRODUCERS: usize = 4;
const CONSUMERS: usize = 4;
const QUEUE: &str = "survivors";
/// How long takes hide a message, in seconds: some come back during the run, some stay hidden over a restart.
const SHORT: u64 = 1;
const LONG: u64 = 8;
/// After an answer that says that the server cannot.
const PAUSE: Duration = Duration::from_millis(10);

/// Those who work, and what they know.
#[derive(Debug)]
pub struct Messages {
    began: Instant,
    next: AtomicU64,
    history: Mutex<History>,
    /// Takes that are kept over the next kill, to be deleted after it.
    held: Mutex<Vec<Take>>,
    /// Answers that said that the server cannot, or does not know.
    failures: AtomicU64,
}

impl Messages {
    /// With a new queue.
    pub fn new(client: &mut Client) -> Self {
        let made = client.request("PUT", QUEUE, &[], b"");
        assert_eq!(made.status, 201, "{}", made.text());
        Self {
            began: Instant::now(),
            next: AtomicU64::new(0),
            history: Mutex::default(),
            held: Mutex::default(),
            failures: AtomicU64::new(0),
        }
    }

    /// Everybody works, on all servers alike, until they no longer answer or are told to rest; `end` is to see to that.
    pub fn run(&self, servers: &[SocketAddr], seed: u64, end: impl FnOnce(&Cutoff)) {
        let cutoff = &Cutoff::default();
        let client = |number: usize| Client::of_queues(servers[number % servers.len()]);
        std::thread::scope(|scope| {
            for number in 0..PRODUCERS {
                scope.spawn(move || self.produce(&mut client(number), cutoff));
            }
            for number in 0..CONSUMERS {
                let chance = SeededRandom::new(seed.wrapping_add(number as u64));
                scope.spawn(move || self.consume(&mut client(number), &chance, cutoff));
            }
            end(cutoff);
        });
    }

    /// Deletes what was taken before the kill and kept over it.
    pub fn delete_held(&self, client: &mut Client) {
        let held = std::mem::take(&mut *self.held.lock().expect("nobody panicked"));
        for take in &held {
            self.delete(client, take).expect("the server is back");
        }
    }

    /// Waits until nothing is hidden any more, not even by a take whose answer was lost.
    pub fn wait_until_all_is_visible(&self) {
        std::thread::sleep(Duration::from_secs(LONG) + SLACK);
    }

    /// Takes everything that is visible, and keeps it.
    pub fn drain(&self, client: &mut Client) {
        loop {
            let takes = self.take(client, 32, 600).expect("the server is there");
            let takes = takes.expect("the server answers");
            if takes.is_empty() {
                return;
            }
            let left = takes.into_iter().map(|take| (take.number, take.id));
            self.history().left.extend(left);
        }
    }

    /// How many messages the server says that there are.
    pub fn counted(&self, client: &mut Client) -> usize {
        let answer = client.request("GET", &format!("{QUEUE}?comp=metadata"), &[], b"");
        let count = answer.header("x-ms-approximate-messages-count").expect("it was counted");
        count.parse().expect("a count is a number")
    }

    /// Panics unless there was load and all answers can be explained.
    pub fn judge(&self, rounds: usize) {
        let history = self.history();
        assert!(history.puts.len() > rounds && done(&history) > rounds, "there was load");
        judge(&history);
    }

    /// What is wrong with the answers; nothing if they can be explained.
    pub fn faults(&self) -> Vec<String> {
        check(&self.history())
    }

    /// How many messages were there at the end.
    pub fn left(&self) -> usize {
        self.history().left.len()
    }

    fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().expect("nobody panicked")
    }

    /// Answers that said that the server cannot, or does not know.
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Whether the server said that it cannot.
    fn has_failed(&self, answer: &Response) -> bool {
        let has_failed = answer.status >= 500;
        if has_failed {
            self.failures.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(PAUSE);
        }
        has_failed
    }

    fn produce(&self, client: &mut Client, cutoff: &Cutoff) -> io::Result<()> {
        while !cutoff.is_rest() {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let body = format!("<QueueMessage><MessageText>{number}</MessageText></QueueMessage>");
            let path = format!("{QUEUE}/messages?messagettl=-1");
            let answer = client.try_request("POST", &path, &[], body.as_bytes())?;
            if self.has_failed(&answer) {
                if answer.status == 503 {
                    self.history().refused.insert(number);
                }
                continue;
            }
            assert_eq!(answer.status, 201, "{}", answer.text());
            let id = elements(&answer.text(), "MessageId")[0].to_owned();
            self.history().puts.push(Put { number, id });
        }
        Ok(())
    }

    /// Takes messages; none if the server cannot.
    fn take(&self, client: &mut Client, most: u64, seconds: u64) -> io::Result<Option<Vec<Take>>> {
        let path = format!("{QUEUE}/messages?numofmessages={most}&visibilitytimeout={seconds}");
        let asked = self.now();
        let answer = client.try_request("GET", &path, &[], b"")?;
        let answered = self.now();
        if self.has_failed(&answer) {
            return Ok(None);
        }
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
        Ok(Some(takes))
    }

    /// Deletes what was taken, with its receipt.
    fn delete(&self, client: &mut Client, take: &Take) -> io::Result<()> {
        let path = format!("{QUEUE}/messages/{}?popreceipt={}", take.id, encode(&take.receipt));
        let answer = client.try_request("DELETE", &path, &[], b"");
        let outcome = match &answer {
            Ok(answer) if answer.status == 204 => Outcome::Done,
            Ok(answer) if answer.status == 404 => Outcome::NotFound,
            Ok(answer) if self.has_failed(answer) && answer.status == 503 => Outcome::Refused,
            Ok(answer) if answer.status >= 500 => Outcome::Unknown,
            Ok(answer) => panic!("{}: {}", answer.status, answer.text()),
            Err(_) => Outcome::Unknown,
        };
        let (number, count, answered) = (take.number, take.count, self.now());
        self.history().deletes.push(Delete { number, count, answered, outcome });
        answer.map(drop)
    }

    /// Takes and deletes, keeps and forgets.
    fn consume(&self, client: &mut Client, chance: &SeededRandom, end: &Cutoff) -> io::Result<()> {
        while !end.is_rest() {
            let seconds = if below(chance, 2) == 0 { SHORT } else { LONG };
            for take in self.take(client, 1 + below(chance, 32), seconds)?.unwrap_or_default() {
                match below(chance, 8) {
                    0 if seconds == LONG => self.held.lock().expect("nobody panicked").push(take),
                    1 if seconds == SHORT => {} // It comes back.
                    _ => self.delete(client, &take)?,
                }
            }
        }
        Ok(())
    }
}

/// Of a run that was judged.
impl fmt::Display for Messages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let history = self.history();
        let again = history.takes.iter().filter(|take| take.count > 1).count();
        write!(
            f,
            "{} messages acknowledged, {} takes ({again} of them again), {} deleted, {} left, \
             0 lost, 0 had by two, 0 receipts refused",
            history.puts.len(),
            history.takes.len(),
            done(&history),
            history.left.len(),
        )
    }
}

fn done(history: &History) -> usize {
    history.deletes.iter().filter(|delete| delete.outcome == Outcome::Done).count()
}

/// The text between tags, in every place.
fn elements<'a>(xml: &'a str, name: &str) -> Vec<&'a str> {
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    let parts = xml.split(open.as_str()).skip(1);
    parts.map(|part| part.split(close.as_str()).next().unwrap_or_default()).collect()
}

fn below(chance: &SeededRandom, end: u64) -> u64 {
    let mut bytes = [0; 8];
    chance.fill(&mut bytes);
    u64::from_le_bytes(bytes) % end
}
