//! Connections that ask once and then do nothing, and how the server receives each.
//!
//! Within its limits a server answers; beyond them it says that it is busy, in the words of the protocol. To close
//! without a word is something else and counted apart. It must not let a client wait for nothing.

use crate::connection::{Exchange, connect, exchange};
use crate::drive::Script as _;
use crate::request::Requests;
use crate::response::{Answer, Reader};
use crate::workload::{Operations, Workload};
use memchr::memmem;
use std::io::{self, ErrorKind, Read as _};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::time::{Duration, Instant};

/// Connections from one address, below the server's limit for one.
const PER_ADDRESS: usize = 1000;
/// A client that knows nothing after this time hangs.
const PATIENCE: Duration = Duration::from_secs(5);

/// Connections that are open, and how those fared that are not.
#[derive(Debug, Default)]
pub(crate) struct Crowd {
    open: Vec<TcpStream>,
    /// Answered 503 `ServerBusy`.
    pub(crate) busy: u64,
    /// Closed without an answer.
    pub(crate) closed: u64,
    /// Neither answered nor closed in time.
    pub(crate) hung: u64,
    /// The longest time until a client knew where it stands.
    pub(crate) slowest: Duration,
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
            crowd.join(address, Ipv4Addr::new(127, 0, network, host), &request, 200)?;
        }
        Ok(crowd)
    }

    /// Opens one more connection from an address of this machine, sends a request, and counts how the server receives
    /// it. A connection whose request gets the expected status stays open.
    pub(crate) fn join(
        &mut self,
        to: SocketAddrV4,
        from: Ipv4Addr,
        request: &[u8],
        expected: u16,
    ) -> io::Result<()> {
        let began = Instant::now();
        let stream = connect(to, Some(from))?;
        let reception = greet(&stream, request, expected)?;
        // Whether the server has closed a connection is looked up without waiting.
        stream.set_nonblocking(true)?;
        self.count(stream, reception, began.elapsed());
        Ok(())
    }

    /// Forgets the connections that the server has closed.
    pub(crate) fn forget_closed(&mut self) {
        let waiting = |fault: io::Error| fault.kind() == ErrorKind::WouldBlock;
        self.open.retain(|mut stream| stream.read(&mut [0; 1]).is_err_and(waiting));
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

    /// How many connections are open: all that the server has let in, unless closed ones were forgotten.
    pub(crate) fn let_in(&self) -> usize {
        self.open.len()
    }
}

/// Sends a request, and waits for the status that is expected or for the server to refuse.
fn greet(stream: &TcpStream, request: &[u8], expected: u16) -> io::Result<Reception> {
    let mut reader = Reader::default();
    match exchange(stream, request, &mut reader, PATIENCE)? {
        Exchange::Closed => return Ok(Reception::Closed),
        Exchange::Silent => return Ok(Reception::Hung),
        Exchange::Answered => {}
    }
    let answer = reader.answer().expect("the reader said that the answer is whole");
    match answer.status {
        status if status == expected => Ok(Reception::Served),
        503 if says_busy(&answer) => Ok(Reception::Busy),
        status => {
            let body = String::from_utf8_lossy(answer.body);
            Err(io::Error::other(format!("a first request got status {status}: {body}")))
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
    use std::io::Write as _;
    use std::net::{SocketAddr, TcpListener};

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
        let reception = greet(&stream, b"GET", 200);
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

    #[test]
    fn closed_connections_are_forgotten() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let SocketAddr::V4(address) = listener.local_addr().unwrap() else { unreachable!() };
        let server = std::thread::spawn(move || {
            let mut clients: Vec<TcpStream> = Vec::new();
            for _ in 0..2 {
                let mut client = listener.accept().unwrap().0;
                client.read_exact(&mut [0; 3]).unwrap();
                client.write_all(b"HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n").unwrap();
                clients.push(client);
            }
            clients
        });
        let mut crowd = Crowd::default();
        for _ in 0..2 {
            crowd.join(address, Ipv4Addr::LOCALHOST, b"GET", 403).unwrap();
        }
        let mut clients = server.join().unwrap();
        crowd.forget_closed();
        assert_eq!(crowd.let_in(), 2);
        clients.pop();
        let began = Instant::now();
        while crowd.let_in() == 2 {
            assert!(began.elapsed() < Duration::from_mins(1), "the end of a connection arrives");
            crowd.forget_closed();
        }
        assert_eq!(crowd.let_in(), 1);
    }
}
