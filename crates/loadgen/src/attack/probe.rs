//! What an orchestrator notices: the server is asked whether it is ready, on a new connection every
//! time.

use crate::connection::{Exchange, connect, exchange};
use crate::histogram::Histogram;
use crate::response::Reader;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::{Duration, Instant};

const EVERY: Duration = Duration::from_millis(50);
/// A probe without an answer after this time has failed.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long probes that were due are sent after the end.
const GRACE: Duration = Duration::from_secs(10);

/// What came of the probes.
#[derive(Debug, Default)]
pub(super) struct Probes {
    /// From when a probe was due to the answer that the server is ready.
    pub(super) latency: Histogram,
    /// Probes that were not answered so, or not sent in time.
    pub(super) failed: u64,
}

/// Probes for the length of a phase.
pub(super) fn ready(admin: SocketAddrV4, from: Ipv4Addr, length: Duration) -> io::Result<Probes> {
    let request = format!("GET /readyz HTTP/1.1\r\nHost: {admin}\r\nConnection: close\r\n\r\n");
    let mut probes = Probes::default();
    let start = Instant::now();
    let mut due = start;
    while due < start + length {
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let in_time = start.elapsed() < length + GRACE;
        if in_time && is_ready(admin, from, request.as_bytes())? {
            probes.latency.record(due.elapsed());
        } else {
            probes.failed += 1;
        }
        due += EVERY;
    }
    Ok(probes)
}

fn is_ready(admin: SocketAddrV4, from: Ipv4Addr, request: &[u8]) -> io::Result<bool> {
    let stream = connect(admin, Some(from))?;
    let mut reader = Reader::default();
    let end = exchange(&stream, request, &mut reader, PATIENCE)?;
    let status = reader.answer().map(|answer| answer.status);
    Ok(end == Exchange::Answered && status == Some(200))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::net::{SocketAddr, TcpListener};

    #[test]
    fn probes_that_are_late_or_refused_count() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let SocketAddr::V4(address) = listener.local_addr().unwrap() else { unreachable!() };
        let server = std::thread::spawn(move || {
            for (pause, status) in [(120, 200), (0, 503), (0, 200)] {
                let mut client = listener.accept().unwrap().0;
                assert!(client.read(&mut [0; 512]).unwrap() > 0);
                std::thread::sleep(Duration::from_millis(pause));
                let answer = format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n");
                client.write_all(answer.as_bytes()).unwrap();
            }
        });
        let probes = ready(address, Ipv4Addr::LOCALHOST, 3 * EVERY).unwrap();
        server.join().unwrap();
        assert_eq!(probes.failed, 1);
        assert!(probes.latency.largest() >= Duration::from_millis(120));
        // The third probe was due at 100 ms, and the first one held it up.
        assert!(probes.latency.quantile(0.5) >= Duration::from_millis(20));
    }
}
