//! Clients that look through a whole table by a property without an index, as fast as they get answers.

use crate::drive::{Driver, Pace, Tally};
use crate::workload::{Operations, Workload};
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

/// Scans the table that others read and change, with so many entities in it.
pub(super) fn scan(
    address: SocketAddrV4,
    network: u8,
    entities: u64,
    clients: usize,
    length: Duration,
) -> io::Result<Tally> {
    let from = Ipv4Addr::new(127, 0, network, 1);
    let mut driver = Driver::open_from(address, Some(from), clients)?;
    let mut scans = Operations::new(Workload::Tablescan, false, entities, "");
    driver.run(&mut scans, length, Pace::Closed)
}
