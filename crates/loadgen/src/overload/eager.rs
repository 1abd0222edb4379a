//! Clients that ask as fast as they get answers: two upserts to one point read and one query.

use crate::chance::Chance;
use crate::drive::{Driver, Pace, Script, Tally, Verdict};
use crate::request::Requests;
use crate::response::Answer;
use crate::workload::{Operations, Workload};
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

/// Open connections that have not asked yet.
#[derive(Debug)]
pub(super) struct Eager {
    driver: Driver,
    mix: Mix,
}

impl Eager {
    pub(super) fn open(
        address: SocketAddrV4,
        network: u8,
        entities: u64,
        clients: usize,
    ) -> io::Result<Self> {
        let from = Ipv4Addr::new(127, 0, network, 1);
        let driver = Driver::open_from(address, Some(from), clients)?;
        Ok(Self { driver, mix: Mix::new(entities, clients) })
    }

    pub(super) fn run(mut self, length: Duration) -> io::Result<Tally> {
        self.driver.run(&mut self.mix, length, Pace::Closed)
    }
}

#[derive(Debug)]
struct Mix {
    kinds: [Operations; 3],
    chosen: Vec<usize>,
    chance: Chance,
}

impl Mix {
    fn new(entities: u64, clients: usize) -> Self {
        let kinds = [Workload::Upsert, Workload::Point, Workload::Range100];
        Self {
            kinds: kinds.map(|workload| Operations::new(workload, false, entities, "")),
            chosen: vec![0; clients],
            chance: Chance::new(7),
        }
    }
}

impl Script for Mix {
    fn ask(&mut self, slot: usize, fresh: bool, to: &mut Requests, out: &mut Vec<u8>) -> bool {
        if fresh {
            self.chosen[slot] = [0, 0, 1, 2][self.chance.below(4) as usize];
        }
        self.kinds[self.chosen[slot]].ask(slot, fresh, to, out)
    }

    fn judge(&mut self, slot: usize, answer: &Answer<'_>) -> Verdict {
        self.kinds[self.chosen[slot]].judge(slot, answer)
    }
}
