//! Messages through queues: what is asked for, with a check of every answer.
//!
//! Every message carries a number. Whoever gets one twice, gets one that was never put, or one that says it was got
//! before, has a wrong answer: a visibility of ten minutes hides what is taken for longer than any run lasts.

use crate::digits::push_number;
use crate::drive::{Script, Verdict};
use crate::request::Requests;
use crate::response::Answer;
use memchr::memmem;
use std::fmt;

/// Most messages that one request gets.
const MOST: usize = 32;
/// How long what was got stays hidden, in seconds.
const HIDDEN: &[u8] = b"600";
/// Length of a message's text: the published targets are for messages of 1 KiB.
const TEXT_BYTES: usize = 1024;

/// What is done with messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Work {
    /// Put a message.
    Put,
    /// Get one message and delete it.
    Getdelete,
    /// So many connections get 32 at a time and delete them, while as many others put.
    Consumers(usize),
    /// Get 32 at a time and leave them hidden.
    Get32,
    /// Get 32 at a time and delete them.
    Drain,
}

impl Work {
    /// What counts once, for people.
    pub(crate) fn meaning(self) -> &'static str {
        match self {
            Self::Put => "put a message of 1 KiB",
            Self::Getdelete => "get one message and delete it: two requests",
            Self::Consumers(_) => {
                "a message that was put, got 32 at a time by one of so many connections, and deleted; as many others put; latencies are those of puts"
            }
            Self::Get32 => "get 32 messages: one request",
            Self::Drain => "get 32 messages and delete them",
        }
    }

    fn gets(self, slot: usize) -> Option<usize> {
        match self {
            Self::Put => None,
            Self::Getdelete => Some(1),
            Self::Consumers(number) => (slot < number).then_some(MOST),
            Self::Get32 | Self::Drain => Some(MOST),
        }
    }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Put => f.pad("put"),
            Self::Getdelete => f.pad("getdelete"),
            Self::Consumers(number) => f.pad(&format!("consumers{number}")),
            Self::Get32 => f.pad("get32"),
            Self::Drain => f.pad("drain"),
        }
    }
}

/// A message that was got and has to be deleted.
#[derive(Clone, Debug)]
struct Taken {
    id: Vec<u8>,
    receipt: Vec<u8>,
}

/// What a connection is about.
#[derive(Clone, Debug, Default)]
struct Slot {
    /// Whether it puts.
    puts: bool,
    /// Whether the answer to a get is awaited.
    getting: bool,
    taken: Vec<Taken>,
}

/// Asks for work on the messages of some queues.
#[derive(Debug)]
pub(crate) struct Messages {
    work: Work,
    queues: Vec<String>,
    /// The number of the next message, and where numbers end.
    next: u64,
    end: u64,
    /// Messages that were there at the start, or are to be put: more are not asked for.
    stock: u64,
    /// Gets that were asked for.
    asked: u64,
    /// A bit for each number that was got.
    seen: Vec<u64>,
    got: u64,
    deleted: u64,
    slots: Vec<Slot>,
    path: Vec<u8>,
    body: Vec<u8>,
}

impl Messages {
    /// Work on these queues. New messages have numbers from `first` on, and there are so many at most; those who only
    /// get ask for as many.
    pub(crate) fn new(work: Work, queues: &[String], first: u64, stock: u64) -> Self {
        Self {
            work,
            queues: queues.to_vec(),
            next: first,
            end: first.saturating_add(stock),
            stock,
            asked: 0,
            seen: Vec::new(),
            got: 0,
            deleted: 0,
            slots: Vec::new(),
            path: Vec::new(),
            body: Vec::new(),
        }
    }

    /// Messages that were got.
    pub(crate) fn got(&self) -> u64 {
        self.got
    }

    /// Messages that were deleted.
    pub(crate) fn deleted(&self) -> u64 {
        self.deleted
    }

    fn start_path(&mut self, slot: usize) {
        let queue = &self.queues[slot % self.queues.len()];
        self.path.clear();
        self.path.push(b'/');
        self.path.extend_from_slice(queue.as_bytes());
        self.path.extend_from_slice(b"/messages");
    }

    fn ask_put(&mut self, to: &mut Requests, out: &mut Vec<u8>) -> bool {
        if self.next == self.end {
            return false;
        }
        self.body.clear();
        self.body.extend_from_slice(b"<QueueMessage><MessageText>");
        push_text(&mut self.body, self.next);
        self.body.extend_from_slice(b"</MessageText></QueueMessage>");
        self.next += 1;
        to.push_queue(out, "POST", &self.path, &[], &self.body);
        true
    }

    fn ask_get(&mut self, count: usize, to: &mut Requests, out: &mut Vec<u8>) -> bool {
        // Who takes one at a time must find one each time; others ask until they have all.
        let enough = if count == 1 { self.asked == self.stock } else { self.got == self.stock };
        if enough {
            return false;
        }
        self.asked += 1;
        let number = count.to_string();
        let parameters = [("numofmessages", number.as_bytes()), ("visibilitytimeout", HIDDEN)];
        to.push_queue(out, "GET", &self.path, &parameters, b"");
        true
    }

    /// Notes the messages of an answer.
    fn take(&mut self, slot: usize, body: &[u8], most: usize) -> Result<(), String> {
        let taken = parse(body)?;
        if taken.len() > most || (most == 1 && taken.is_empty()) {
            return Err(format!("{} messages instead of {most}", taken.len()));
        }
        for (message, number) in taken {
            let (word, bit) = ((number / 64) as usize, 1 << (number % 64));
            if self.seen.len() <= word {
                self.seen.resize(word + 1, 0);
            }
            if self.seen[word] & bit != 0 {
                return Err(format!("message {number} was got twice"));
            }
            self.seen[word] |= bit;
            self.got += 1;
            self.slots[slot].taken.push(message);
        }
        Ok(())
    }

    fn judge_step(&mut self, slot: usize, answer: &Answer<'_>) -> Result<Verdict, String> {
        let status = |right: u16| {
            let words = || format!("status {} instead of {right}", answer.status);
            if answer.status == right { Ok(()) } else { Err(words()) }
        };
        if self.slots[slot].puts {
            status(201)?;
            let receipt = element(answer.body, "PopReceipt");
            return receipt.map(|_| Verdict::Done).ok_or_else(|| "no receipt".to_owned());
        }
        if self.slots[slot].getting {
            status(200)?;
            let most = self.work.gets(slot).expect("it has asked for messages");
            self.take(slot, answer.body, most)?;
            if self.work == Work::Get32 {
                self.slots[slot].taken.clear();
            }
        } else {
            status(204)?;
            self.slots[slot].taken.pop();
            self.deleted += 1;
        }
        self.slots[slot].getting = false;
        Ok(if self.slots[slot].taken.is_empty() { Verdict::Done } else { Verdict::More })
    }
}

impl Script for Messages {
    fn writes(&self, slot: usize) -> bool {
        self.slots.get(slot).is_some_and(|slot| slot.puts)
    }

    fn ask(&mut self, slot: usize, fresh: bool, to: &mut Requests, out: &mut Vec<u8>) -> bool {
        if self.slots.len() <= slot {
            self.slots.resize(slot + 1, Slot::default());
        }
        self.start_path(slot);
        if fresh {
            let gets = self.work.gets(slot);
            self.slots[slot] = Slot { puts: gets.is_none(), getting: true, taken: Vec::new() };
            return match gets {
                Some(count) => self.ask_get(count, to, out),
                None => self.ask_put(to, out),
            };
        }
        let taken = self.slots[slot].taken.last().expect("there is more to delete");
        self.path.push(b'/');
        self.path.extend_from_slice(&taken.id);
        to.push_queue(out, "DELETE", &self.path, &[("popreceipt", &taken.receipt)], b"");
        true
    }

    fn judge(&mut self, slot: usize, answer: &Answer<'_>) -> Verdict {
        if answer.status == 503 && memmem::find(answer.body, b"ServerBusy").is_some() {
            return Verdict::Refused;
        }
        self.judge_step(slot, answer).unwrap_or_else(|why| {
            let body = String::from_utf8_lossy(&answer.body[..answer.body.len().min(600)]);
            Verdict::Wrong(format!("{}: {why}: {body}", self.work))
        })
    }
}

/// Appends the text of a message: its number, and what fills it up.
fn push_text(out: &mut Vec<u8>, number: u64) {
    let start = out.len();
    out.extend_from_slice(b"number ");
    push_number(out, number);
    out.push(b' ');
    out.resize(start + TEXT_BYTES, b'.');
}

/// The messages of an answer, with their numbers.
fn parse(body: &[u8]) -> Result<Vec<(Taken, u64)>, String> {
    let mut found = Vec::new();
    let mut rest = body;
    while let Some(at) = memmem::find(rest, b"<QueueMessage>") {
        let end = memmem::find(rest, b"</QueueMessage>").ok_or("a message has no end")?;
        found.push(parse_message(&rest[at..end]).ok_or("a message is not what was put")?);
        rest = &rest[end + 1..];
    }
    Ok(found)
}

fn parse_message(xml: &[u8]) -> Option<(Taken, u64)> {
    let taken = Taken {
        id: element(xml, "MessageId")?.to_vec(),
        receipt: element(xml, "PopReceipt")?.to_vec(),
    };
    let text = element(xml, "MessageText")?;
    let number = std::str::from_utf8(text).ok()?.strip_prefix("number ")?.split(' ').next()?;
    let number = number.parse().ok()?;
    let mut expected = Vec::with_capacity(TEXT_BYTES);
    push_text(&mut expected, number);
    let once = element(xml, "DequeueCount")? == b"1";
    (once && text == expected).then_some((taken, number))
}

/// The text of an element without children.
fn element<'a>(xml: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    let start = memmem::find(xml, open.as_bytes())? + open.len();
    let length = memmem::find(&xml[start..], close.as_bytes())?;
    Some(&xml[start..start + length])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, body: &[u8]) -> Answer<'_> {
        Answer { status, body, next: None, head: b"", close: false }
    }

    fn ask(messages: &mut Messages, slot: usize, fresh: bool) -> Option<String> {
        let mut to = Requests::new("127.0.0.1:1".parse().unwrap());
        let mut out = Vec::new();
        messages.ask(slot, fresh, &mut to, &mut out).then(|| String::from_utf8(out).unwrap())
    }

    fn list(numbers: &[u64], count: u64) -> Vec<u8> {
        let mut xml = b"<QueueMessagesList>".to_vec();
        for &number in numbers {
            xml.extend_from_slice(
                format!(
                    "<QueueMessage><MessageId>i{number}</MessageId><PopReceipt>r+/=</PopReceipt>"
                )
                .as_bytes(),
            );
            xml.extend_from_slice(
                format!("<DequeueCount>{count}</DequeueCount><MessageText>").as_bytes(),
            );
            push_text(&mut xml, number);
            xml.extend_from_slice(b"</MessageText></QueueMessage>");
        }
        xml.extend_from_slice(b"</QueueMessagesList>");
        xml
    }

    #[test]
    fn one_is_got_and_deleted() {
        let mut messages = Messages::new(Work::Getdelete, &["q-1".to_owned()], 0, 2);
        let get = ask(&mut messages, 3, true).unwrap();
        let start = "GET /devstoreaccount1/q-1/messages?numofmessages=1&visibilitytimeout=600 HTTP";
        assert!(get.starts_with(start), "{get}");
        assert_eq!(messages.judge(3, &answer(200, &list(&[7], 1))), Verdict::More);
        let delete = ask(&mut messages, 3, false).unwrap();
        let start = "DELETE /devstoreaccount1/q-1/messages/i7?popreceipt=r%2B%2F%3D HTTP";
        assert!(delete.starts_with(start), "{delete}");
        assert_eq!(messages.judge(3, &answer(204, b"")), Verdict::Done);
        assert_eq!(messages.deleted(), 1);
        assert!(ask(&mut messages, 3, true).is_some(), "there is another");
        assert!(ask(&mut messages, 4, true).is_none(), "and no third");
    }

    #[test]
    fn what_is_got_may_be_left_hidden() {
        let mut messages = Messages::new(Work::Get32, &["q-1".to_owned()], 0, 3);
        let get = ask(&mut messages, 0, true).unwrap();
        assert!(get.contains("/q-1/messages?numofmessages=32&"), "{get}");
        assert_eq!(messages.judge(0, &answer(200, &list(&[1, 2], 1))), Verdict::Done);
        assert!(ask(&mut messages, 0, true).is_some(), "one is left");
        assert_eq!(messages.judge(0, &answer(200, &list(&[0], 1))), Verdict::Done);
        assert!(ask(&mut messages, 0, true).is_none());
        assert_eq!((messages.got(), messages.deleted()), (3, 0));
    }

    #[test]
    fn wrong_answers_are_noticed() {
        let wrong: [(&str, u16, Vec<u8>); 6] = [
            ("none", 200, list(&[], 1)),
            ("two", 200, list(&[2, 3], 1)),
            ("seen before", 200, list(&[1], 1)),
            ("got before", 200, list(&[2], 2)),
            (
                "another text",
                200,
                list(&[2], 1).iter().map(|&b| if b == b'.' { b',' } else { b }).collect(),
            ),
            ("not found", 404, list(&[2], 1)),
        ];
        for (rule, status, body) in wrong {
            let mut messages = Messages::new(Work::Getdelete, &["q-1".to_owned()], 0, 9);
            ask(&mut messages, 0, true);
            assert_eq!(messages.judge(0, &answer(200, &list(&[1], 1))), Verdict::More);
            ask(&mut messages, 1, true);
            let verdict = messages.judge(1, &answer(status, &body));
            assert!(matches!(verdict, Verdict::Wrong(_)), "{rule}: {verdict:?}");
        }
    }

    #[test]
    fn producers_stand_beside_consumers() {
        let queues = ["q-1".to_owned(), "q-2".to_owned()];
        let mut messages = Messages::new(Work::Consumers(16), &queues, 5, u64::MAX);
        assert!(ask(&mut messages, 1, true).unwrap().contains("/q-2/messages?numofmessages=32&"));
        assert_eq!(messages.judge(1, &answer(200, b"<QueueMessagesList />")), Verdict::Done);
        let put = ask(&mut messages, 16, true).unwrap();
        assert!(put.starts_with("POST /devstoreaccount1/q-1/messages HTTP"), "{put}");
        assert!(put.contains("<MessageText>number 5 ..."), "{put}");
        assert!(messages.writes(16) && !messages.writes(1));
        let receipt = b"<QueueMessagesList><PopReceipt>x</PopReceipt></QueueMessagesList>";
        assert_eq!(messages.judge(16, &answer(201, receipt)), Verdict::Done);
        assert!(matches!(messages.judge(16, &answer(201, b"")), Verdict::Wrong(_)));
        ask(&mut messages, 2, true);
        assert_eq!(messages.judge(2, &answer(200, &list(&[8, 9], 1))), Verdict::More);
        for expected in [Verdict::More, Verdict::Done] {
            ask(&mut messages, 2, false).unwrap();
            assert_eq!(messages.judge(2, &answer(204, b"")), expected);
        }
    }
}
