//! Clients that send the same expensive requests as fast as they get answers.

use crate::drive::{Driver, Pace, Script, Tally, Verdict};
use crate::request::Requests;
use crate::response::Answer;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

/// Sends whole requests, one after the other, over connections from one address of this machine.
pub(super) fn send(
    to: SocketAddrV4,
    from: Ipv4Addr,
    clients: usize,
    requests: &[Vec<u8>],
    length: Duration,
) -> io::Result<Tally> {
    let mut driver = Driver::open_from(to, Some(from), clients)?;
    driver.run(&mut Flood { requests, sent: 0 }, length, Pace::Closed)
}

/// Why an attack did not happen, if no answer shows that the server worked on it.
pub(super) fn is_void(tally: &Tally) -> Option<String> {
    let fault = tally.fault.as_deref().unwrap_or("there was no answer");
    (tally.wrong > 0 || tally.operations == 0).then(|| fault.to_owned())
}

struct Flood<'a> {
    requests: &'a [Vec<u8>],
    sent: usize,
}

impl Script for Flood<'_> {
    fn ask(&mut self, _slot: usize, _fresh: bool, _to: &mut Requests, out: &mut Vec<u8>) -> bool {
        out.extend_from_slice(&self.requests[self.sent % self.requests.len()]);
        self.sent += 1;
        true
    }

    fn judge(&mut self, _slot: usize, answer: &Answer<'_>) -> Verdict {
        match answer.status {
            200 => Verdict::Done,
            503 => Verdict::Refused,
            status => {
                let body = String::from_utf8_lossy(answer.body);
                Verdict::Wrong(format!("an attacker got status {status}: {body}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attack_that_is_not_answered_is_void() {
        let tally =
            |operations, refused, wrong| Tally { operations, refused, wrong, ..Tally::default() };
        assert!(is_void(&tally(1, 5, 0)).is_none());
        assert!(is_void(&tally(0, 5, 0)).is_some());
        assert!(is_void(&tally(1, 0, 1)).is_some());
    }
}
