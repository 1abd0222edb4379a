//! Writers that replace entities of a single partition as fast as they get answers.

use crate::chance::Chance;
use crate::drive::{Driver, Pace, Script, Tally, Verdict};
use crate::entity::{Key, ROWS};
use crate::request::{JSON, Requests};
use crate::response::Answer;
use crate::workload::DATA;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

/// Writes to one partition of the table that others write to.
pub(super) fn write(
    address: SocketAddrV4,
    network: u8,
    partition: u64,
    writers: usize,
    length: Duration,
) -> io::Result<Tally> {
    let from = Ipv4Addr::new(127, 0, network, 1);
    let mut driver = Driver::open_from(address, Some(from), writers)?;
    let (chance, path, body) = (Chance::new(partition), Vec::new(), Vec::new());
    let mut upserts = Upserts { partition, revision: 0, chance, path, body };
    driver.run(&mut upserts, length, Pace::Closed)
}

struct Upserts {
    partition: u64,
    revision: u64,
    chance: Chance,
    path: Vec<u8>,
    body: Vec<u8>,
}

impl Script for Upserts {
    fn ask(&mut self, _slot: usize, _fresh: bool, to: &mut Requests, out: &mut Vec<u8>) -> bool {
        let key = Key { partition: self.partition, row: self.chance.below(ROWS) };
        self.revision += 1;
        self.path.clear();
        self.body.clear();
        key.push_path(&mut self.path, DATA);
        key.push_entity(&mut self.body, self.revision);
        to.push(out, "PUT", &self.path, b"", JSON, &self.body);
        true
    }

    fn judge(&mut self, _slot: usize, answer: &Answer<'_>) -> Verdict {
        match answer.status {
            204 => Verdict::Done,
            503 => Verdict::Refused,
            status => Verdict::Wrong(format!("an upsert to the hot partition got status {status}")),
        }
    }
}
