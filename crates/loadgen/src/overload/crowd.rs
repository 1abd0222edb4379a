//! Connections that ask once and then do nothing, and how the server receives each.
//!
//! Within its limits a server answers; beyond them it says that it is busy, in the words of the protocol. To close
//! without a word is something else and counted apart. It must not let a client wait for nothing.

use crate::connection::connect;
use crate::drive::Script as _;
use crate::request::Requests;
use crate::response::{Answer, Reader};
use crate::workload::{Operations, Workload};
use memchr::memmem;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::time::{Duration, Instant};

/// Connections from one address, below the server's limit for one.
const PER_ADDRESS: usize = 1000;
/// A client that knows nothing after this time hangs.
const PATIENCE: Duration = Duration::from_secs(5);

/// Connections that are open, and how those fared that are not.
#[derive(Debug, Default)]
pub(super) struct Crowd {
    open: Vec<TcpStream>,
    /// Answered 503 `ServerBusy`.
    pub(super) busy: u64,
    /// Closed without an answer.
    pub(super) closed: u64,
    /// Neither answered nor closed in time.
    pub(super) hung: u64,
    /// The longest time until a client knew where it stands.
    pub(super) slowest: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reception {
    Served,
    Busy,
    Closed,
    Hung,
}

impl Crowd {
    /// Opens connections one after the other, from addresses of a network of this machine, and asks on each for one
    /// entity.
    pub(super) fn gather(
        address: SocketAddrV4,
        network: u8,
        entities: u64,
        connections: usize,
    ) -> io::Result<Self> {
        let mut points = Operations::new(Workload::Point, false, entities, "");
        let mut requests = Requests::new(address);
        let mut crowd = Self::default();
        for index in 0..connections {
            let host = (1 + index / PER_ADDRESS) as u8;
            let mut request = Vec::new();
            requests.refresh();
            points.ask(0, true, &mut requests, &mut request);
            let began = Instant::now();
            let stream = connect(address, Some(Ipv4Addr::new(127, 0, network, host)))?;
            let reception = greet(&stream, &request)?;
            crowd.count(stream, reception, began.elapsed());
        }
        Ok(crowd)
    }

    fn count(&mut self, stream: TcpStream, reception: Reception, took: Duration) {
        self.slowest = self.slowest.max(took);
        match reception {
            _ if took > PATIENCE => self.hung += 1,
            Reception::Served => self.open.push(stream),
            Reception::Busy => self.busy += 1,
            Reception::Closed => self.closed += 1,
            Reception::Hung => self.hung += 1,
        }
    }

    /// How many the server has let in.
    pub(super) fn let_in(&self) -> usize {
        self.open.len()
    }
}

/// Sends a request and waits for what becomes of it.
fn greet(mut stream: &TcpStream, request: &[u8]) -> io::Result<Reception> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    // Who is turned away at once may still find an answer to read.
    let _ = stream.write_all(request);
    let mut reader = Reader::default();
    loop {
        let whole = match stream.read(reader.room()) {
            Ok(0) => return Ok(Reception::Closed),
            Ok(bytes) => reader.advance(bytes),
            Err(fault) if fault.kind() == ErrorKind::WouldBlock => return Ok(Reception::Hung),
            Err(fault) if fault.kind() == ErrorKind::Interrupted => continue,
            Err(_) => return Ok(Reception::Closed),
        };
        if whole.map_err(|_| io::Error::other("a first request got no answer of HTTP"))?
            && let Some(answer) = reader.answer()
        {
            return match answer.status {
                200 => Ok(Reception::Served),
                503 if says_busy(&answer) => Ok(Reception::Busy),
                status => {
                    let body = String::from_utf8_lossy(answer.body);
                    let words = format!("a first request got status {status}: {body}");
                    Err(io::Error::other(words))
                }
            };
        }
    }
}

/// Whether an SDK knows from the answer that it should try again: the code, in header and body.
fn says_busy(answer: &Answer<'_>) -> bool {
    answer.header("x-ms-error-code") == Some("ServerBusy")
        && memmem::find(answer.body, b"ServerBusy").is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// What a client makes of a server that sends these bytes and closes.
    fn reception(answer: &'static [u8]) -> io::Result<Reception> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let server = std::thread::spawn(move || {
            let mut client = listener.accept().unwrap().0;
            let mut request = [0; 3];
            client.read_exact(&mut request).unwrap();
            client.write_all(answer).unwrap();
        });
        let reception = greet(&stream, b"GET");
        server.join().unwrap();
        reception
    }

    #[test]
    fn receptions() {
        let served = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";
        assert_eq!(reception(served).unwrap(), Reception::Served);
        let busy = b"HTTP/1.1 503 Service Unavailable\r\nx-ms-error-code: ServerBusy\r\n\
            Content-Length: 12\r\n\r\n{ServerBusy}";
        assert_eq!(reception(busy).unwrap(), Reception::Busy);
        assert!(reception(b"HTTP/1.1 503 Oh\r\nContent-Length: 0\r\n\r\n").is_err());
        let headless = b"HTTP/1.1 503 Oh\r\nContent-Length: 12\r\n\r\n{ServerBusy}";
        assert!(reception(headless).is_err());
        assert_eq!(reception(b"").unwrap(), Reception::Closed);
        assert!(reception(b"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n").is_err());
    }
}
