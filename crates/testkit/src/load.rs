//! Load that knows what the server owes it.
//!
//! Each writer owns a partition and knows what it must hold: what was acknowledged, and, for the one
//! request that was under way when the server died, the state before it and the state after it. Nothing
//! else may be found after the restart. One more entity is shared: everybody counts on it with ETags.
//!
//! How the server dies, and whether a loss is a failure or the very thing that is to be shown, is left to
//! the tests.

mod writer;

use crate::client::{Client, Retries};
use crate::history::Order;
use serde_json::json;
use std::collections::HashSet;
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use writer::Writer;

const TABLE: &str = "Owed";
const COUNTER: (&str, &str) = ("shared", "counter");
const WRITERS: usize = 4;

/// Parallel writers and everything that was acknowledged to them.
#[derive(Debug)]
pub struct Load {
    writers: Vec<Writer>,
    retries: Retries,
    /// The shared counter when it was last looked at.
    counter: u64,
}

/// The moment after which answers prove nothing, because no machine would have been there to give them.
///
/// A kill needs none: what the dying server still says holds. When it is the disk that is taken away from a
/// living server, it is the moment before. Clients of a server that is to live on are told to rest.
#[derive(Debug, Default)]
pub struct Cutoff {
    over: AtomicBool,
    rest: AtomicBool,
}

impl Cutoff {
    /// It is now. An answer that a writer has not read yet counts as one that never came.
    pub fn set(&self) {
        self.over.store(true, Ordering::SeqCst);
    }

    /// Nobody asks anything more. What was asked is waited for.
    pub fn rest(&self) {
        self.rest.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    pub(crate) fn is_rest(&self) -> bool {
        self.rest.load(Ordering::SeqCst)
    }
}

/// How much was acknowledged.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Writes of entities, those in batches included.
    pub writes: u64,
    /// Batches.
    pub batches: u64,
    /// Increments of the shared counter.
    pub increments: u64,
    /// Writes with an old tag, every one of which was refused.
    pub stale: u64,
    /// Requests that the server answered with an error of its own, which ended a writer's round.
    pub failures: u64,
    /// Requests that were sent again.
    pub repeated: u64,
    /// The longest time until an answer, with all that was sent again for it.
    pub slowest: Duration,
}

/// What was acknowledged and is not there.
#[derive(Clone, Debug, Default)]
pub struct Losses {
    /// Entities that are neither what was acknowledged nor what the request under way would have made.
    pub entities: u64,
    /// Batches of which some entities are there and some are not.
    pub half_batches: u64,
    /// What was found instead, a line each.
    pub details: Vec<String>,
}

impl Load {
    /// Prepares a server that has nothing yet, and whose tags are in this order.
    pub fn new(client: &mut Client, seed: u64, order: Order) -> Self {
        client.create_table(TABLE);
        let counter = json!({ "PartitionKey": COUNTER.0, "RowKey": COUNTER.1, "n": 0 });
        assert_eq!(client.insert(TABLE, &counter).expect("answered").status, 204);
        let writers = (0..WRITERS).map(|number| Writer::new(number, seed, order)).collect();
        Self { writers, retries: Retries::default(), counter: 0 }
    }

    /// From now on writers ask again when a server has failed. What was sent twice and refused, because it had taken
    /// effect the first time, is an answer that they do not expect.
    pub fn with_retries(self, retries: Retries) -> Self {
        Self { retries, ..self }
    }

    /// Writes to the servers, each writer to one of them, until they no longer answer; `end` is to see to that.
    pub fn run(&mut self, servers: &[SocketAddr], end: impl FnOnce(&Cutoff)) {
        let cutoff = Cutoff::default();
        std::thread::scope(|scope| {
            for (writer, server) in self.writers.iter_mut().zip(servers.iter().cycle()) {
                let client = Client::new(*server).with_retries(self.retries);
                let cutoff = &cutoff;
                scope.spawn(move || writer.run(client, cutoff));
            }
            end(&cutoff);
        });
    }

    /// Compares with what the server has, and goes on from there if nothing is missing.
    pub fn verify(&mut self, client: &mut Client) -> Result<(), Losses> {
        let mut losses = Losses::default();
        for writer in &mut self.writers {
            writer.verify(client, &mut losses);
        }
        self.verify_counter(client, &mut losses);
        self.verify_counts(&mut losses);
        // Time goes on: what comes now must have later tags than anything there was.
        let latest = self.writers.iter().map(|writer| writer.latest).max().unwrap_or_default();
        for writer in &mut self.writers {
            writer.latest = latest;
        }
        if losses.details.is_empty() { Ok(()) } else { Err(losses) }
    }

    fn verify_counter(&mut self, client: &mut Client, losses: &mut Losses) {
        let found = client.get(TABLE, COUNTER.0, COUNTER.1);
        let found = if found.status == 200 { found.json()["n"].as_u64() } else { None };
        let sum = |of: fn(&Writer) -> u64| self.writers.iter().map(of).sum::<u64>();
        let least = self.counter + sum(|writer| writer.counted);
        let most = least + sum(|writer| writer.uncertain);
        match found {
            Some(found) if (least..=most).contains(&found) => {
                self.counter = found;
                for writer in &mut self.writers {
                    (writer.counted, writer.uncertain) = (0, 0);
                }
            }
            _ => {
                losses.entities += 1;
                losses.details.push(format!("the counter is {found:?}, not {least} to {most}"));
            }
        }
    }

    /// No two versions of the counter have the same tag.
    fn verify_counts(&self, losses: &mut Losses) {
        let mut seen = HashSet::new();
        for tag in self.writers.iter().flat_map(|writer| &writer.counts) {
            if !seen.insert(tag) {
                losses.details.push(format!("the tag {tag} of the counter was given twice"));
            }
        }
    }

    /// What has been acknowledged so far.
    pub fn tally(&self) -> Tally {
        let mut sum = Tally::default();
        for writer in &self.writers {
            sum += writer.tally;
        }
        sum
    }
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.writes += other.writes;
        self.batches += other.batches;
        self.increments += other.increments;
        self.stale += other.stale;
        self.failures += other.failures;
        self.repeated += other.repeated;
        self.slowest = self.slowest.max(other.slowest);
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { writes, batches, increments, .. } = self;
        write!(f, "{writes} writes acknowledged ({batches} batches, {increments} increments)")
    }
}

impl fmt::Display for Losses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} entities lost, {} half batches", self.entities, self.half_batches)?;
        self.details.iter().try_for_each(|line| writeln!(f, "  {line}"))
    }
}
