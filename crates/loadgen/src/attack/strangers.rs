//! Connections without credentials that fill a listener, and a client from another address that
//! must get in.

use crate::drive::Script as _;
use crate::overload::crowd::Crowd;
use crate::request::Requests;
use crate::workload::{Operations, Workload};
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Where the strangers come from.
const STRANGERS: [Ipv4Addr; 2] = [Ipv4Addr::new(127, 0, 0, 2), Ipv4Addr::new(127, 0, 0, 3)];
/// Where the client with credentials comes from.
const GUEST: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 4);
/// How often strangers look for connections that the server has closed.
const LOOK: Duration = Duration::from_millis(250);
/// How long the client may take beyond the length of a phase.
const GRACE: Duration = Duration::from_secs(30);

/// What the strangers and the client ask for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Siege {
    pub(super) to: SocketAddrV4,
    /// Connections of all strangers together.
    pub(super) connections: usize,
    /// Most connections that they open again in a second, after the server has refused or closed
    /// them.
    pub(super) renewals: usize,
    /// Requests of the client, each on a new connection.
    pub(super) requests: usize,
    /// Entities in the table that the client reads.
    pub(super) entities: u64,
    pub(super) length: Duration,
}

/// What came of it.
#[derive(Debug, Default)]
pub(super) struct Besieged {
    /// Connections of strangers that were open at the end.
    pub(super) held: usize,
    /// Connections of strangers that the server refused, in words or without.
    pub(super) refused: u64,
    /// Connections of strangers that the server neither answered nor closed in time.
    pub(super) hung: u64,
    /// What came of the client's requests; nothing if the strangers were not all there in time.
    pub(super) guest: Option<Crowd>,
}

impl Siege {
    /// Lets the strangers come, and the client once all of them have been there.
    pub(super) fn run(&self) -> io::Result<Besieged> {
        let (standing, over) = (AtomicUsize::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let (standing, over) = (&standing, &over);
            let strangers =
                STRANGERS.map(|from| scope.spawn(move || self.crowd(from, standing, over)));
            let guest = self.guest(standing);
            over.store(true, Relaxed);
            let mut besieged = Besieged { guest: guest?, ..Besieged::default() };
            for crowd in strangers {
                let crowd = crowd.join().map_err(|_| io::Error::other("a thread has failed"))??;
                besieged.held += crowd.let_in();
                besieged.refused += crowd.busy + crowd.closed;
                besieged.hung += crowd.hung;
            }
            Ok(besieged)
        })
    }

    /// Opens an address's part of the connections, and opens those again that end, until everything
    /// is over.
    fn crowd(
        &self,
        from: Ipv4Addr,
        standing: &AtomicUsize,
        over: &AtomicBool,
    ) -> io::Result<Crowd> {
        let request = format!(
            "GET /nobody/Nothing(PartitionKey='p',RowKey='r') HTTP/1.1\r\nHost: {}\r\n\
             x-ms-version: 2019-02-02\r\n\r\n",
            self.to
        );
        let wanted = self.connections / STRANGERS.len();
        let mut crowd = Crowd::default();
        for _ in 0..wanted {
            if over.load(Relaxed) {
                return Ok(crowd);
            }
            crowd.join(self.to, from, request.as_bytes(), 403)?;
        }
        standing.fetch_add(1, Relaxed);
        let per_look = renewals_per_look(self.renewals);
        while !over.load(Relaxed) {
            std::thread::sleep(LOOK);
            crowd.forget_closed();
            for _ in crowd.let_in()..wanted.min(crowd.let_in() + per_look) {
                crowd.join(self.to, from, request.as_bytes(), 403)?;
            }
        }
        crowd.forget_closed();
        Ok(crowd)
    }

    /// Sends the client's requests, and stays for the length of the phase.
    fn guest(&self, standing: &AtomicUsize) -> io::Result<Option<Crowd>> {
        let began = Instant::now();
        let are_there = || standing.load(Relaxed) == STRANGERS.len();
        while !are_there() && began.elapsed() < self.length {
            std::thread::sleep(Duration::from_millis(10));
        }
        if !are_there() {
            return Ok(None);
        }
        let mut points = Operations::new(Workload::Point, false, self.entities, "");
        let mut requests = Requests::new(self.to);
        let (mut crowd, mut request) = (Crowd::default(), Vec::new());
        for _ in 0..self.requests {
            if began.elapsed() > self.length + GRACE {
                break;
            }
            request.clear();
            requests.refresh();
            points.ask(0, true, &mut requests, &mut request);
            crowd.join(self.to, GUEST, &request, 200)?;
        }
        std::thread::sleep(self.length.saturating_sub(began.elapsed()));
        Ok(Some(crowd))
    }
}

/// Connections that one address opens again at a time.
fn renewals_per_look(renewals: usize) -> usize {
    let looks = 1.0 / LOOK.as_secs_f64();
    (renewals as f64 / looks / STRANGERS.len() as f64).ceil() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renewals_are_shared_out() {
        assert_eq!(renewals_per_look(800), 100);
        assert_eq!(renewals_per_look(1), 1);
        assert_eq!(renewals_per_look(0), 0);
    }
}
