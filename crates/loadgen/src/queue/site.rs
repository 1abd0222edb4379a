//! Queues of one server, and work on them.

use super::messages::{Messages, Work};
use crate::drive::{Driver, Pace, Script, Tally, Verdict};
use crate::histogram::Histogram;
use crate::measure::{Sample, Spent};
use crate::request::Requests;
use crate::response::Answer;
use std::io;
use std::net::SocketAddrV4;
use std::time::Duration;

/// Longest time for work that ends by itself.
const WITHIN: Duration = Duration::from_hours(6);
/// Connections that fill a queue, and that empty one.
const MANY: usize = 64;

/// The queue service of a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Site {
    pub(crate) address: SocketAddrV4,
    pub(crate) pid: u32,
}

impl Site {
    /// Makes queues that start with that name.
    pub(crate) fn create(&self, name: &str, count: usize) -> io::Result<Vec<String>> {
        let names: Vec<_> = (1..=count).map(|number| format!("{name}-{number}")).collect();
        for name in &names {
            let mut driver = Driver::open(self.address, 1)?;
            let mut once = Create { name, asked: false, status: 0 };
            driver.run(&mut once, Duration::from_mins(1), Pace::Closed)?;
            if once.status != 201 {
                let words = format!("creating the queue {name} was answered with {}", once.status);
                return Err(io::Error::other(words));
            }
        }
        Ok(names)
    }

    /// Puts messages with the numbers from `first` on.
    pub(crate) fn fill(&self, queues: &[String], first: u64, count: u64) -> io::Result<Sample> {
        self.work(Work::Put, queues, (first, count), MANY, WITHIN)
    }

    /// Gets and deletes so many messages, as many at a time as can be.
    pub(crate) fn drain(&self, queues: &[String], count: u64) -> io::Result<Sample> {
        self.work(Work::Drain, queues, (0, count), MANY, WITHIN)
    }

    /// Works for a while, or until there is nothing left to do. The unit is a message: put, or got and deleted.
    pub(crate) fn work(
        &self,
        work: Work,
        queues: &[String],
        (first, count): (u64, u64),
        connections: usize,
        length: Duration,
    ) -> io::Result<Sample> {
        let mut messages = Messages::new(work, queues, first, count);
        let mut driver = Driver::open(self.address, connections)?;
        let before = Spent::so_far(Some(self.pid), None);
        let tally = driver.run(&mut messages, length, Pace::Closed)?;
        let spent = Spent::so_far(Some(self.pid), None).since(before);
        Ok(Sample::new(&by_message(work, tally, &messages), spent))
    }
}

/// The tally of a run with a message as the unit, where an operation is about several.
fn by_message(work: Work, tally: Tally, messages: &Messages) -> Tally {
    match work {
        Work::Put | Work::Getdelete => tally,
        Work::Get32 => Tally { operations: messages.got(), ..tally },
        Work::Drain => Tally { operations: messages.deleted(), ..tally },
        // An answer with up to 32 messages has no latency that could be compared.
        Work::Consumers(_) => {
            Tally { operations: messages.deleted(), reads: Histogram::default(), ..tally }
        }
    }
}

/// Creates one queue.
struct Create<'a> {
    name: &'a str,
    asked: bool,
    status: u16,
}

impl Script for Create<'_> {
    fn ask(&mut self, _slot: usize, _fresh: bool, to: &mut Requests, out: &mut Vec<u8>) -> bool {
        if self.asked {
            return false;
        }
        self.asked = true;
        to.push_queue(out, "PUT", format!("/{}", self.name).as_bytes(), &[], b"");
        true
    }

    fn judge(&mut self, _slot: usize, answer: &Answer<'_>) -> Verdict {
        self.status = answer.status;
        Verdict::Done
    }
}
