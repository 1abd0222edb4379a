//! Accepts connections and caps what a client may cost before anybody knows who it is.
//!
//! A [`Listener`] owns a bound socket. [`Listener::serve`] hands every request to a [`Handler`] and
//! promises: no more connections than allowed, overall and per address; a head of bounded size that
//! arrives in bounded time; no connection that lies silent for ever; less of all this for connections
//! without a valid credential, which make room for others when they are many; a pause instead of a spin when
//! the machine runs out of descriptors; and, once told to stop, an orderly end in which running
//! requests are answered, idle connections are closed and nothing lasts longer than the drain time.
//!
//! The target of a request reaches the handler as it was received. How much of a body is read, and
//! how slowly it may come, is the handler's business, within the idle time.

pub(crate) mod admission;
mod connection;
pub(crate) mod spelling;
mod tls;

pub use tls::{Tls, TlsError};

use crate::Handler;
use crate::telemetry::ListenerMetrics;
use admission::{Admission, Refusal};
use connection::Shared;
use rowhouse_env::polls;
use rowhouse_types::{Network, limits};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};

/// How often the files of a certificate are looked at.
const TLS_POLL: Duration = Duration::from_secs(2);
/// Longest pause after a failed accept.
const ACCEPT_PAUSE_MAX: Duration = Duration::from_secs(1);

/// What a listener grants its clients.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Most connections at a time. One more is told that the server is busy, and closed.
    pub connections: usize,
    /// Most connections at a time from one address (one /64 of IPv6). One more is told and closed in the same way.
    pub connections_per_address: usize,
    /// Most connections at a time from one address that had no request with a valid credential. One more makes the oldest
    /// idle one of them close.
    pub anonymous_per_address: usize,
    /// Longest time for a head on such a connection.
    pub anonymous_head_time: Duration,
    /// Longest silence on such a connection.
    pub anonymous_idle_time: Duration,
    /// Networks of proxies, whose connections carry the requests of many clients: no limit per address.
    pub trusted_proxies: Vec<Network>,
    /// Largest head of a request, in bytes: request line and headers.
    pub head_bytes: usize,
    /// Most headers of a request.
    pub headers: usize,
    /// Longest time from the first byte of a head, or from the accept, to its end.
    pub head_time: Duration,
    /// Longest time without a byte in either direction.
    pub idle_time: Duration,
    /// Once a client has kept an answer waiting for [`Self::head_time`], it must take it at this rate at
    /// least, in bytes a second.
    pub send_rate: u64,
    /// Longest TLS handshake.
    pub handshake_time: Duration,
    /// Longest time that running requests get once the listener is told to stop.
    pub drain_time: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: limits::CONNECTIONS_MAX,
            connections_per_address: limits::CONNECTIONS_PER_ADDRESS_MAX,
            anonymous_per_address: limits::ANONYMOUS_CONNECTIONS_PER_ADDRESS_MAX,
            anonymous_head_time: Duration::from_secs(limits::ANONYMOUS_HEAD_SECONDS_MAX),
            anonymous_idle_time: Duration::from_secs(limits::ANONYMOUS_IDLE_SECONDS_MAX),
            trusted_proxies: Vec::new(),
            head_bytes: limits::HEAD_BYTES_MAX,
            headers: limits::HEADERS_MAX,
            head_time: Duration::from_secs(limits::HEAD_SECONDS_MAX),
            idle_time: Duration::from_secs(limits::IDLE_SECONDS_MAX),
            send_rate: limits::SEND_BYTES_PER_SECOND_MIN,
            handshake_time: Duration::from_secs(limits::HANDSHAKE_SECONDS_MAX),
            drain_time: Duration::from_secs(limits::DRAIN_SECONDS_MAX),
        }
    }
}

/// A bound socket that is not served yet: clients may connect, and wait.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    address: SocketAddr,
    tls: Option<Tls>,
    limits: Limits,
    metrics: Arc<ListenerMetrics>,
    spelling: bool,
}

impl Listener {
    /// Binds the address; port 0 takes any free one. Must be called within a runtime.
    pub fn bind(address: SocketAddr, tls: Option<Tls>, limits: Limits) -> io::Result<Self> {
        let socket = std::net::TcpListener::bind(address)?;
        socket.set_nonblocking(true)?;
        let socket = TcpListener::from_std(socket)?;
        let address = socket.local_addr()?;
        Ok(Self { socket, address, tls, limits, metrics: Arc::default(), spelling: false })
    }

    /// Counts into the given figures from here on.
    pub fn with_metrics(mut self, metrics: Arc<ListenerMetrics>) -> Self {
        self.metrics = metrics;
        self
    }

    /// Takes so many headers of a request.
    pub fn with_headers(mut self, most: usize) -> Self {
        self.limits.headers = most;
        self
    }

    /// Keeps the case of the names of metadata headers, which the HTTP library drops.
    pub fn with_spelling(mut self) -> Self {
        self.spelling = true;
        self
    }

    /// The address that clients connect to, with the port that was chosen.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Whether connections are encrypted.
    pub fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Serves until `shutdown` turns true, then drains. Returns when the last connection is gone.
    pub async fn serve<H: Handler>(self, handler: Arc<H>, mut shutdown: watch::Receiver<bool>) {
        let admission = Admission::new(&self.limits, Arc::clone(&self.metrics));
        let shared = Arc::new(Shared {
            handler,
            limits: self.limits.clone(),
            anonymous: Limits {
                head_time: self.limits.head_time.min(self.limits.anonymous_head_time),
                idle_time: self.limits.idle_time.min(self.limits.anonymous_idle_time),
                ..self.limits.clone()
            },
            metrics: Arc::clone(&self.metrics),
            spelling: self.spelling,
        });
        let watches = std::env::var_os(polls::WATCH_POLLS).is_some();
        let mut connections = JoinSet::new();
        let mut tls_poll = tokio::time::interval(TLS_POLL);
        let mut pause = Duration::ZERO;
        loop {
            let accepted = tokio::select! {
                biased;
                () = stopped(&mut shutdown) => break,
                Some(ended) = connections.join_next(), if !connections.is_empty() => {
                    log_end(ended);
                    continue;
                }
                _ = tls_poll.tick(), if self.tls.is_some() => {
                    self.tls.iter().for_each(Tls::reload_if_changed);
                    continue;
                }
                accepted = self.socket.accept() => accepted,
            };
            let (stream, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    pause = pause_after(&error, pause).await;
                    continue;
                }
            };
            pause = Duration::ZERO;
            self.metrics.accepted.fetch_add(1, Relaxed);
            match admission.admit(peer.ip()) {
                Ok(admitted) => {
                    let shared = Arc::clone(&shared);
                    let tls = self.tls.as_ref().map(Tls::acceptor);
                    let shutdown = shutdown.clone();
                    let serving = async move {
                        connection::serve(stream, peer, &admitted, tls, shared, shutdown).await;
                    };
                    if watches {
                        connections.spawn(polls::watched(serving, log_long_poll));
                    } else {
                        connections.spawn(serving);
                    }
                }
                Err(refusal) => {
                    self.metrics.refused.fetch_add(1, Relaxed);
                    tracing::debug!(%peer, reason = refusal.reason.as_str(), "connection refused");
                    self.refuse(stream, refusal, &shared, &mut connections);
                }
            }
        }
        drop(self.socket);
        drain(connections, self.limits.drain_time).await;
    }

    /// Says "busy" as long as few others are being told. To say it encrypted would take a handshake, which costs more than
    /// most requests: there the connection is just closed.
    fn refuse<H: Handler>(
        &self,
        stream: TcpStream,
        refusal: Refusal,
        shared: &Arc<Shared<H>>,
        connections: &mut JoinSet<()>,
    ) {
        if let Some(courtesy) = refusal.courtesy.filter(|_| self.tls.is_none()) {
            let shared = Arc::clone(shared);
            connections.spawn(async move {
                connection::answer_busy(stream, &shared).await;
                drop(courtesy);
            });
        }
    }
}

/// Resolves once the owner of the switch says stop, or is gone.
async fn stopped(shutdown: &mut watch::Receiver<bool>) {
    let _ = shutdown.wait_for(|stop| *stop).await;
}

/// A client that gave up costs nothing; anything else (no descriptors, no memory) needs time to
/// pass.
async fn pause_after(error: &io::Error, last: Duration) -> Duration {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    if matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted) {
        return last;
    }
    let pause = (last * 2).clamp(Duration::from_millis(10), ACCEPT_PAUSE_MAX);
    if last < ACCEPT_PAUSE_MAX {
        tracing::warn!(%error, pause_ms = pause.as_millis(), "cannot accept connections");
    }
    tokio::time::sleep(pause).await;
    pause
}

async fn drain(mut connections: JoinSet<()>, time: Duration) {
    let all_ended = async {
        while let Some(ended) = connections.join_next().await {
            log_end(ended);
        }
    };
    if tokio::time::timeout(time, all_ended).await.is_err() {
        tracing::warn!(connections = connections.len(), "drain time is over, closing connections");
        connections.shutdown().await;
    }
}

/// Whoever else waited for the thread waited as long.
fn log_long_poll(took: Duration) {
    tracing::error!(millis = took.as_millis(), "{}", polls::LONG_POLL);
}

/// A panic outside of handlers is a fault of the listener; it ends one connection, and is told.
fn log_end(ended: Result<(), JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        tracing::error!(%error, "a connection ended in a panic");
    }
}

#[cfg(test)]
mod tests;
