//! The mixed operations of a soak, with a model of what has been written.
//!
//! Of each entity of the table [`DATA`] the model knows the revision that was last acknowledged and the last that
//! was sent. One write to an entity is under way at a time, so an answer must show a revision between what was
//! acknowledged when it was asked for and what was sent when it came. Even revisions are upserts, odd ones
//! merges; each leaves another note, so half a change would be noticed. What is inserted must not have been
//! there, and what is deleted must be.

use super::ring::{Ring, Step};
use crate::batch::{self, Change, OPERATIONS, Rows};
use crate::chance::Chance;
use crate::drive::{Script, Verdict};
use crate::entity::{Key, ROWS};
use crate::request::{JSON, JSON_IF_EXISTS, NO_CONTENT, Requests};
use crate::response::Answer;
use crate::workload::{DATA, go_on};
use memchr::memmem;

/// The table of single inserts and deletes, with full partitions in the order of time.
pub(super) const CHURN: &str = "churn";
/// The table of batches; each has a partition of its own.
pub(super) const BATCHES: &str = "batches";
/// Rows of a range query.
const RANGE: u64 = 100;
const IF_EXISTS: &str = "If-Match: *\r\n";

/// What has been written to an entity.
#[derive(Clone, Copy, Debug, Default)]
struct Written {
    acknowledged: u32,
    sent: u32,
    /// Whether a write is under way.
    busy: bool,
}

/// An operation under way.
#[derive(Clone, Debug, Default)]
enum Under {
    #[default]
    Nothing,
    /// Consecutive entities, with the revision that each must at least show, and how many have been seen. One is
    /// read by its keys, more by a range.
    Read {
        first: u64,
        least: Vec<u32>,
        seen: usize,
        query: Vec<u8>,
    },
    /// A revision of an entity.
    Write {
        index: u64,
        revision: u32,
    },
    Churn(Step),
    Batch(Step),
    /// A change whose outcome is known.
    Settled,
}

/// Chooses operations and checks their answers.
#[derive(Debug)]
pub(super) struct Mix {
    written: Vec<Written>,
    churn: Ring,
    batches: Ring,
    chance: Chance,
    slots: Vec<Under>,
    path: Vec<u8>,
    body: Vec<u8>,
}

impl Mix {
    /// Tables of these sizes are there, all entities of revision 0.
    pub(super) fn new(entities: u64, churn: u64, batches: u64) -> Self {
        Self {
            written: vec![Written::default(); entities as usize],
            churn: Ring::new(churn),
            batches: Ring::new(batches),
            chance: Chance::new(entities),
            slots: Vec::new(),
            path: Vec::new(),
            body: Vec::new(),
        }
    }

    /// Of a hundred operations: 55 points, 5 ranges, 12 upserts, 12 merges, 14 inserts or deletes, 2 batches.
    fn choose(&mut self) -> Under {
        match self.chance.below(100) {
            0..55 => self.choose_read(1),
            55..60 => self.choose_read(RANGE),
            60..72 => self.choose_write(0),
            72..84 => self.choose_write(1),
            84..98 => Under::Churn(self.churn.step()),
            _ => Under::Batch(self.batches.step()),
        }
    }

    /// Rows of one partition.
    fn choose_read(&mut self, rows: u64) -> Under {
        let entities = self.written.len() as u64;
        let at = self.chance.below(entities);
        let end = (at - at % ROWS + ROWS).min(entities);
        let first = at.min(end.saturating_sub(rows));
        let range = &self.written[first as usize..(first + rows).min(entities) as usize];
        let least = range.iter().map(|one| one.acknowledged).collect();
        Under::Read { first, least, seen: 0, query: Vec::new() }
    }

    fn choose_write(&mut self, odd: u32) -> Under {
        loop {
            let index = self.chance.below(self.written.len() as u64);
            let one = &mut self.written[index as usize];
            if !one.busy {
                one.busy = true;
                one.sent += 1 + u32::from((one.sent + 1) % 2 != odd);
                return Under::Write { index, revision: one.sent };
            }
        }
    }

    fn push(&mut self, under: &mut Under, to: &mut Requests, out: &mut Vec<u8>) {
        self.path.clear();
        self.body.clear();
        match under {
            Under::Nothing | Under::Settled => {}
            Under::Read { first, least, query, .. } if least.len() == 1 && query.is_empty() => {
                Key::nth(*first).push_path(&mut self.path, DATA);
                to.push(out, "GET", &self.path, b"", "", b"");
            }
            Under::Read { first, least, query, .. } => {
                if query.is_empty() {
                    push_range(query, Key::nth(*first), least.len() as u64);
                }
                self.path.extend_from_slice(b"/bench()");
                to.push(out, "GET", &self.path, query, "", b"");
            }
            Under::Write { index, revision } => {
                let (key, revision) = (Key::nth(*index), *revision);
                key.push_path(&mut self.path, DATA);
                let (method, headers) = if revision % 2 == 1 {
                    key.push_change(&mut self.body, revision.into());
                    ("PATCH", JSON_IF_EXISTS)
                } else {
                    key.push_entity(&mut self.body, revision.into());
                    ("PUT", JSON)
                };
                to.push(out, method, &self.path, b"", headers, &self.body);
            }
            Under::Churn(Step::Add(number)) => {
                self.path.extend_from_slice(b"/churn");
                Key::nth(*number).push_entity(&mut self.body, 0);
                to.push(out, "POST", &self.path, b"", NO_CONTENT, &self.body);
            }
            Under::Churn(Step::Remove(number)) => {
                Key::nth(*number).push_path(&mut self.path, CHURN);
                to.push(out, "DELETE", &self.path, b"", IF_EXISTS, b"");
            }
            Under::Batch(step) => {
                let (change, partition) = match *step {
                    Step::Add(number) => (Change::Insert, number),
                    Step::Remove(number) => (Change::Delete, number),
                };
                let first = Key { partition, row: 0 };
                let rows = Rows { table: BATCHES, first, count: OPERATIONS };
                batch::push(out, &mut self.body, to, change, rows);
            }
        }
    }

    /// Notes what has become of an operation.
    fn settle(&mut self, under: &Under, done: bool) {
        match *under {
            Under::Nothing | Under::Settled | Under::Read { .. } => {}
            Under::Write { index, revision } => {
                let one = &mut self.written[index as usize];
                one.busy = false;
                if done {
                    one.acknowledged = revision;
                }
            }
            Under::Churn(step) => self.churn.settle(step, done),
            Under::Batch(step) => self.batches.settle(step, done),
        }
    }

    /// Checks the entities of an answer, which follow on those before.
    fn check_rows(&self, under: &mut Under, answer: &Answer<'_>) -> Result<Verdict, String> {
        let Under::Read { first, least, seen, query } = under else { return Ok(Verdict::Done) };
        let starts: Vec<usize> = memmem::find_iter(answer.body, b"\"PartitionKey\":").collect();
        for (nth, &start) in starts.iter().enumerate() {
            let end = starts.get(nth + 1).copied().unwrap_or(answer.body.len());
            let least = *least.get(*seen).ok_or("there are too many rows")?;
            let index = *first + *seen as u64;
            let most = self.written[index as usize].sent;
            check_entity(&answer.body[start..end], Key::nth(index), least, most)?;
            *seen += 1;
        }
        if let Some((partition, row)) = answer.next {
            go_on(query, partition, row);
            return Ok(Verdict::More);
        }
        if *seen == least.len() {
            return Ok(Verdict::Done);
        }
        Err(format!("{seen} of {} rows came", least.len()))
    }
}

/// The query for consecutive rows of a partition.
fn push_range(query: &mut Vec<u8>, first: Key, rows: u64) {
    query.extend_from_slice(b"?$filter=PartitionKey%20eq%20%27");
    first.push_partition(query);
    query.extend_from_slice(b"%27%20and%20RowKey%20ge%20%27");
    first.push_row(query);
    query.extend_from_slice(b"%27%20and%20RowKey%20lt%20%27");
    Key { row: first.row + rows, ..first }.push_row(query);
    query.extend_from_slice(b"%27");
}

/// Whether it is the entity, of a revision that may be there, and as that revision has left it.
fn check_entity(json: &[u8], key: Key, least: u32, most: u32) -> Result<(), String> {
    let mut mark = Vec::with_capacity(32);
    key.push_mark(&mut mark);
    memmem::find(json, &mark).ok_or_else(|| format!("it is not {key:?}"))?;
    let at = memmem::find(json, b"\"Score\":").ok_or("there is no revision")? + 8;
    let digits = json[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let text = String::from_utf8_lossy(&json[at..at + digits]);
    let revision: u32 = text.parse().map_err(|_| "the revision is not a number")?;
    if !(least..=most).contains(&revision) {
        return Err(format!("{key:?} has revision {revision}, written are {least} to {most}"));
    }
    let merged = memmem::find(json, b"but do not leave it").is_some();
    if merged != (revision % 2 == 1) {
        return Err(format!("{key:?} has half of revision {revision}"));
    }
    Ok(())
}

impl Script for Mix {
    fn ask(&mut self, slot: usize, fresh: bool, to: &mut Requests, out: &mut Vec<u8>) -> bool {
        if self.slots.len() <= slot {
            self.slots.resize(slot + 1, Under::Nothing);
        }
        let mut under = std::mem::take(&mut self.slots[slot]);
        if fresh {
            // Whatever is still there ended with its connection.
            self.settle(&under, false);
            under = self.choose();
        }
        self.push(&mut under, to, out);
        self.slots[slot] = under;
        true
    }

    fn judge(&mut self, slot: usize, answer: &Answer<'_>) -> Verdict {
        let mut under = std::mem::take(&mut self.slots[slot]);
        let busy = answer.status == 503 && memmem::find(answer.body, b"ServerBusy").is_some();
        let right = match &under {
            Under::Read { .. } => answer.status == 200,
            Under::Batch(_) => batch::all_done(answer.status, answer.body, OPERATIONS),
            _ => answer.status == 204,
        };
        let verdict = if busy {
            Verdict::Refused
        } else if right {
            self.check_rows(&mut under, answer).unwrap_or_else(Verdict::Wrong)
        } else {
            let body = String::from_utf8_lossy(&answer.body[..answer.body.len().min(600)]);
            Verdict::Wrong(format!("{under:?} was answered {}: {body}", answer.status))
        };
        self.slots[slot] = match (&verdict, under) {
            (Verdict::More, under) => under,
            (_, Under::Read { .. }) => Under::Nothing,
            (verdict, change) => {
                self.settle(&change, *verdict == Verdict::Done);
                Under::Settled
            }
        };
        verdict
    }

    fn writes(&self, slot: usize) -> bool {
        matches!(self.slots[slot], Under::Settled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entity(key: Key, revision: u32) -> Vec<u8> {
        let mut out = Vec::new();
        key.push_entity(&mut out, revision.into());
        out
    }

    #[test]
    fn values_that_were_not_written_are_noticed() {
        let key = Key::nth(1234);
        check_entity(&entity(key, 4), key, 4, 4).unwrap();
        check_entity(&entity(key, 4), key, 3, 6).unwrap();
        for (json, words) in [
            (entity(Key::nth(1235), 4), "it is not"),
            (entity(key, 2), "has revision 2"),
            (entity(key, 8), "has revision 8"),
            (entity(key, 5), "half of revision 5"),
            (Vec::new(), "it is not"),
        ] {
            let fault = check_entity(&json, key, 3, 6).unwrap_err();
            assert!(fault.contains(words), "{fault}");
        }
    }

    /// A server that does everything at once is right, whatever is chosen.
    #[test]
    fn a_perfect_server_is_right() {
        let mut mix = Mix::new(2500, 10, 3);
        let mut to = Requests::new("127.0.0.1:1".parse().unwrap());
        let mut stored = vec![0_u32; 2500];
        for _ in 0..3000 {
            let mut out = Vec::new();
            assert!(mix.ask(0, true, &mut to, &mut out));
            let mut body = Vec::new();
            let (status, write) = match &mix.slots[0] {
                Under::Read { first, least, .. } => {
                    for index in *first..*first + least.len() as u64 {
                        let (key, revision) = (Key::nth(index), stored[index as usize]);
                        body.extend(entity(key, revision));
                        if revision % 2 == 1 {
                            body.extend_from_slice(b"but do not leave it");
                        }
                    }
                    (200, false)
                }
                Under::Write { index, revision } => {
                    stored[*index as usize] = *revision;
                    (204, true)
                }
                Under::Batch(_) => {
                    body = b"HTTP/1.1 204".repeat(100);
                    (202, true)
                }
                _ => (204, true),
            };
            let answer = Answer { status, body: &body, next: None, head: b"", close: false };
            assert_eq!(mix.judge(0, &answer), Verdict::Done);
            assert_eq!(mix.writes(0), write);
        }
    }
}
