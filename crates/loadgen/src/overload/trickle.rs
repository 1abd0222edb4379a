//! Clients that send a request a byte at a time: every other one the head, the rest the body.
//!
//! Whoever the server cuts off comes again, so their number stays the same.

use crate::connection::connect;
use crate::request::{JSON, Requests};
use crate::workload::DATA;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Pause of a client between two bytes.
const PAUSE: Duration = Duration::from_secs(1);
/// How often the end is looked for.
const NAP: Duration = Duration::from_millis(50);
/// Bytes of a body, more than a phase has seconds.
const BODY: usize = 8 * 1024;

/// A thread with trickling clients.
#[derive(Debug)]
pub(super) struct Trickle {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<u64>,
}

impl Trickle {
    pub(super) fn start(address: SocketAddrV4, network: u8, clients: usize) -> io::Result<Self> {
        let from = Ipv4Addr::new(127, 0, network, 1);
        let open = |index: usize| Client::open(address, from, index.is_multiple_of(2));
        let mut all: Vec<Client> = (0..clients).map(open).collect::<io::Result<_>>()?;
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let (mut cut_off, mut next) = (0, Instant::now());
            while !told.load(Relaxed) {
                if next <= Instant::now() {
                    cut_off += all.iter_mut().map(|client| u64::from(client.go_on())).sum::<u64>();
                    next += PAUSE;
                }
                std::thread::sleep(NAP);
            }
            cut_off
        });
        Ok(Self { stop, thread })
    }

    /// Ends them all. Returns how often one was cut off.
    pub(super) fn finish(self) -> io::Result<u64> {
        self.stop.store(true, Relaxed);
        self.thread.join().map_err(|_| io::Error::other("a thread has failed"))
    }
}

#[derive(Debug)]
struct Client {
    address: SocketAddrV4,
    from: Ipv4Addr,
    /// Whether the head trickles; otherwise it is sent at once, and the body trickles.
    head: bool,
    stream: TcpStream,
    request: Vec<u8>,
    sent: usize,
}

impl Client {
    fn open(address: SocketAddrV4, from: Ipv4Addr, head: bool) -> io::Result<Self> {
        let mut request = Vec::new();
        let path = format!("/{DATA}");
        Requests::new(address).push(
            &mut request,
            "POST",
            path.as_bytes(),
            b"",
            JSON,
            &[b' '; BODY],
        );
        let sent = if head { 0 } else { request.len() - BODY };
        let mut stream = connect(address, Some(from))?;
        stream.write_all(&request[..sent])?;
        // What has been sent and most of the body need not be kept.
        request.truncate(if head { request.len() - BODY } else { sent + 1 });
        Ok(Self { address, from, head, stream, request, sent })
    }

    /// Sends a byte. True if the server has cut it off, and it had to come again.
    fn go_on(&mut self) -> bool {
        let waiting = |fault: io::Error| fault.kind() == ErrorKind::WouldBlock;
        let open = self.stream.read(&mut [0; 512]).is_err_and(waiting);
        let byte = self.request[self.sent.min(self.request.len() - 1)];
        if open && self.stream.write_all(&[byte]).is_ok() {
            self.sent += 1;
            return false;
        }
        // If there is no way back now, the next turn tries again.
        if let Ok(again) = Self::open(self.address, self.from, self.head) {
            *self = again;
        }
        true
    }
}
