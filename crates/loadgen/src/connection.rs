//! One kept-alive connection that has at most one request under way.

use crate::response::{Malformed, Reader};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// What has become of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Nothing yet, or a part.
    Waiting,
    /// The answer is whole.
    Answered,
    /// The connection is of no more use.
    Lost,
}

/// A connection that never blocks.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    /// The request; written by whoever owns the connection.
    pub(crate) out: Vec<u8>,
    sent: usize,
    pub(crate) reader: Reader,
}

impl Connection {
    /// Connects, from a given address of this machine if one is named.
    pub(crate) fn open(to: SocketAddrV4, from: Option<Ipv4Addr>) -> io::Result<Self> {
        let stream = connect(to, from)?;
        Ok(Self { stream, out: Vec::new(), sent: 0, reader: Reader::default() })
    }

    /// Forgets the last exchange, so that the next request can be written to `out`.
    pub(crate) fn prepare(&mut self) {
        self.out.clear();
        self.sent = 0;
        self.reader.clear();
    }

    /// Sends what the socket takes of the request. True when all of it is sent.
    pub(crate) fn send(&mut self) -> io::Result<bool> {
        while self.sent < self.out.len() {
            match self.stream.write(&self.out[self.sent..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => self.sent += count,
                Err(fault) if fault.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(fault) if fault.kind() == ErrorKind::Interrupted => {}
                Err(fault) => return Err(fault),
            }
        }
        Ok(true)
    }

    /// Reads what has arrived.
    pub(crate) fn receive(&mut self) -> Progress {
        loop {
            let room = self.reader.room();
            let asked = room.len();
            match self.stream.read(room) {
                Ok(0) => return Progress::Lost,
                Ok(count) => match self.reader.advance(count) {
                    Ok(true) => return Progress::Answered,
                    // A short read has emptied the socket; a full one may have left more.
                    Ok(false) if count < asked => return Progress::Waiting,
                    Ok(false) => {}
                    Err(Malformed) => return Progress::Lost,
                },
                Err(fault) if fault.kind() == ErrorKind::WouldBlock => return Progress::Waiting,
                Err(fault) if fault.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Progress::Lost,
            }
        }
    }
}

/// A socket that does not block, connected from a given address of this machine if one is named.
pub(crate) fn connect(to: SocketAddrV4, from: Option<Ipv4Addr>) -> io::Result<TcpStream> {
    let stream = match from {
        None => TcpStream::connect(to)?,
        Some(from) => {
            let (family, flags) = (AddressFamily::INET, SocketFlags::CLOEXEC);
            let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
            rustix::net::bind(&socket, &SocketAddrV4::new(from, 0))?;
            rustix::net::connect(&socket, &to)?;
            TcpStream::from(socket)
        }
    };
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    Ok(stream)
}

/// How a single exchange has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exchange {
    /// The reader holds the whole answer.
    Answered,
    /// The server closed the connection without an answer.
    Closed,
    /// Nothing has arrived for too long.
    Silent,
}

/// Sends a request on a connection and waits for the answer, with the socket in blocking mode from then on. Fails if
/// what arrives is not HTTP.
pub(crate) fn exchange(
    mut stream: &TcpStream,
    request: &[u8],
    reader: &mut Reader,
    patience: Duration,
) -> io::Result<Exchange> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(patience))?;
    // A client that is turned away at once may still find an answer to read.
    let _ = stream.write_all(request);
    loop {
        match stream.read(reader.room()) {
            Ok(0) => return Ok(Exchange::Closed),
            Ok(bytes) => match reader.advance(bytes) {
                Ok(true) => return Ok(Exchange::Answered),
                Ok(false) => {}
                Err(Malformed) => {
                    return Err(io::Error::other("the server sent something that is not HTTP"));
                }
            },
            Err(fault) if fault.kind() == ErrorKind::WouldBlock => return Ok(Exchange::Silent),
            Err(fault) if fault.kind() == ErrorKind::Interrupted => {}
            Err(_) => return Ok(Exchange::Closed),
        }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
