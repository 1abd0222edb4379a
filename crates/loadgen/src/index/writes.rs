//! Writes to the table that is read, while an index of it is made.
//!
//! Each is an upsert: every other one replaces an entity, and the rest add entities behind those that are there, so that
//! some change what is in an index and some do not.

use crate::chance::Chance;
use crate::drive::{Script, Verdict};
use crate::entity::Key;
use crate::request::{JSON, Requests};
use crate::response::Answer;
use crate::workload::DATA;

/// Upserts into a table with full partitions.
pub(super) struct Writes {
    entities: u64,
    asked: u64,
    chance: Chance,
    path: Vec<u8>,
    body: Vec<u8>,
}

impl Writes {
    /// Into a table with so many entities.
    pub(super) fn new(entities: u64) -> Self {
        let (path, body) = (Vec::new(), Vec::new());
        Self { entities, asked: 0, chance: Chance::new(!entities), path, body }
    }

    fn choose(&mut self) -> Key {
        self.asked += 1;
        if self.asked.is_multiple_of(2) {
            return Key::nth(self.chance.below(self.entities));
        }
        Key::nth(self.entities + self.asked / 2)
    }
}

impl Script for Writes {
    fn ask(&mut self, _slot: usize, _fresh: bool, to: &mut Requests, out: &mut Vec<u8>) -> bool {
        let key = self.choose();
        self.path.clear();
        self.body.clear();
        key.push_path(&mut self.path, DATA);
        key.push_entity(&mut self.body, self.asked);
        to.push(out, "PUT", &self.path, b"", JSON, &self.body);
        true
    }

    fn judge(&mut self, _slot: usize, answer: &Answer<'_>) -> Verdict {
        match answer.status {
            204 => Verdict::Done,
            503 => Verdict::Refused,
            status => {
                let body = String::from_utf8_lossy(&answer.body[..answer.body.len().min(600)]);
                Verdict::Wrong(format!("a write was answered {status}: {body}"))
            }
        }
    }

    fn writes(&self, _slot: usize) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_replace_and_half_add_without_a_gap() {
        let mut writes = Writes::new(2500);
        let keys: Vec<Key> = (0..1000).map(|_| writes.choose()).collect();
        let (mut added, mut replaced) = (0, 0);
        for key in keys {
            if key.number() < 2500 {
                replaced += 1;
            } else {
                assert_eq!(key, Key::nth(2500 + added));
                added += 1;
            }
        }
        assert_eq!((added, replaced), (500, 500));
    }
}
