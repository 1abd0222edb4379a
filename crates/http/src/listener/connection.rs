//! One connection from accept to close.

use super::admission::{Admitted, Anonymous, Standing};
use super::spelling::{Heads, Watched};
use super::{Limits, stopped};
use crate::telemetry::ListenerMetrics;
use crate::{Handler, Peer, Request};
use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rowhouse_types::limits::ANONYMOUS_HEAD_BYTES_MAX;
use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{Notify, OwnedSemaphorePermit, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_rustls::TlsAcceptor;

/// Longest time that a closing connection goes on reading what its client still sends.
const LINGER_TIME: Duration = Duration::from_secs(2);
/// Longest time for the request of a client that is one too many, and its answer.
const COURTESY_TIME: Duration = Duration::from_secs(2);

/// Headers that the HTTP library takes if it is not told how many.
const USUAL_HEADERS: usize = 100;

/// What all connections of a listener have in common.
pub(super) struct Shared<H> {
    pub(super) handler: Arc<H>,
    pub(super) limits: Limits,
    /// The same for a connection that had no request with a valid credential.
    pub(super) anonymous: Limits,
    pub(super) metrics: Arc<ListenerMetrics>,
    /// Requests come with the names of their metadata as they were sent.
    pub(super) spelling: bool,
}

impl<H> Shared<H> {
    fn limits_of(&self, standing: &Standing) -> &Limits {
        if standing.is_known() { &self.limits } else { &self.anonymous }
    }
}

/// Serves one connection until either side ends it.
pub(super) async fn serve<H: Handler>(
    stream: TcpStream,
    addr: SocketAddr,
    admitted: &Admitted,
    tls: Option<TlsAcceptor>,
    shared: Arc<Shared<H>>,
    mut shutdown: watch::Receiver<bool>,
) {
    let _open = shared.metrics.hold(|metrics| &metrics.open);
    // Answers are written whole or in large pieces: waiting for more to send would only add latency.
    let _ = stream.set_nodelay(true);
    let standing = admitted.standing();
    let pace = Arc::new(Pace::new());
    let (stream, returned) = Metered::new(stream, standing, &pace, &shared.metrics);
    let peer = Peer { addr, tls: tls.is_some() };
    match tls {
        None => serve_http(stream, peer, standing, &shared, &pace, &shutdown).await,
        Some(acceptor) => {
            let handshake = timeout(shared.limits.handshake_time, acceptor.accept(stream));
            let stream = tokio::select! {
                stream = handshake => stream,
                () = standing.stop.notified() => return,
                () = stopped(&mut shutdown) => return,
            };
            match stream {
                Ok(Ok(stream)) => {
                    pace.begin_head();
                    serve_http(stream, peer, standing, &shared, &pace, &shutdown).await;
                }
                Ok(Err(error)) => tracing::debug!(peer = %addr, %error, "handshake failed"),
                Err(_) => {
                    pace.end();
                    shared.metrics.timed_out.fetch_add(1, Relaxed);
                    tracing::debug!(peer = %addr, "handshake took too long");
                }
            }
        }
    }
    if let Ok(stream) = returned.await
        && !pace.is_over()
    {
        linger(stream).await;
    }
}

async fn serve_http<H: Handler>(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    peer: Peer,
    standing: &Arc<Standing>,
    shared: &Arc<Shared<H>>,
    pace: &Arc<Pace>,
    shutdown: &watch::Receiver<bool>,
) {
    let heads = shared.spelling.then(|| Arc::new(Heads::default()));
    let service = service_fn(|mut request: Request| {
        pace.begin_work();
        standing.begin_work();
        if !standing.is_known() {
            request.extensions_mut().insert(Anonymous(Arc::clone(standing)));
        }
        if let Some(spelling) = heads.as_ref().and_then(|heads| heads.begin_work()) {
            request.extensions_mut().insert(spelling);
        }
        let (shared, pace, heads) = (Arc::clone(shared), Arc::clone(pace), heads.clone());
        let standing = Arc::clone(standing);
        async move {
            let in_flight = shared.metrics.hold(|metrics| &metrics.in_flight);
            let response = answer(&*shared.handler, request, peer).await;
            drop(in_flight);
            pace.begin_wait();
            standing.end_work();
            if let Some(heads) = heads {
                heads.begin_wait();
            }
            Ok::<_, Infallible>(response)
        }
    });
    let stream = TokioIo::new(Watched::new(stream, heads.clone()));
    let connection = builder(&shared.limits).serve_connection(stream, service);
    let mut connection = pin!(connection);
    let stop = StopSignal::watch(shutdown.clone(), &standing.stop);
    let mut draining = false;
    let mut look_at = pace.next_look(shared.limits_of(standing));
    loop {
        tokio::select! {
            biased;
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(peer = %peer.addr, %error, "connection ended");
                }
                return;
            }
            () = sleep_until(look_at) => {
                look_at = pace.next_look(shared.limits_of(standing));
                if look_at <= Instant::now() {
                    shared.metrics.timed_out.fetch_add(1, Relaxed);
                    tracing::debug!(peer = %peer.addr, "client is idle or too slow");
                    pace.end();
                    return;
                }
            }
            () = stop.received(), if !draining => {
                if standing.is_evicted() {
                    tracing::debug!(peer = %peer.addr, "closed to make room for others");
                    pace.end();
                    return;
                }
                draining = true;
                pace.end();
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}

/// HTTP within the limits of a head.
fn builder(limits: &Limits) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .header_read_timeout(None)
        .max_header_size(limits.head_bytes)
        .max_buf_size(limits.head_bytes.max(64 * 1024));
    // As many as it takes unasked stand on its stack; any number that is asked for is allocated for every request.
    if limits.headers != USUAL_HEADERS {
        builder.max_headers(limits.headers);
    }
    builder
}

/// The listener's shutdown, heard by a task of its own.
///
/// The connection is polled with every request, and so is whatever it waits for at the same time; the
/// listener's channel is one lock for all connections, this is one for each.
struct StopSignal {
    stop: Arc<Notify>,
    watcher: JoinHandle<()>,
}

impl StopSignal {
    fn watch(mut shutdown: watch::Receiver<bool>, stop: &Arc<Notify>) -> Self {
        let (stop, heard) = (Arc::clone(stop), Arc::clone(stop));
        let watcher = tokio::spawn(async move {
            stopped(&mut shutdown).await;
            heard.notify_one();
        });
        Self { stop, watcher }
    }

    async fn received(&self) {
        self.stop.notified().await;
    }
}

impl Drop for StopSignal {
    fn drop(&mut self) {
        self.watcher.abort();
    }
}

/// Asks the handler. A panic in there is a bug, and still an answer: the client learns that it was
/// not its fault, and the panic has been reported by the process's hook.
async fn answer<H: Handler>(handler: &H, request: Request, peer: Peer) -> http::Response<H::Body> {
    let mut future = pin!(handler.handle(request, peer));
    let outcome = poll_fn(|cx| {
        let polled = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx)));
        match polled {
            Ok(poll) => poll.map(Some),
            Err(_) => Poll::Ready(None),
        }
    });
    outcome.await.unwrap_or_else(|| {
        tracing::error!("a handler panicked");
        let mut response = http::Response::new(H::Body::from(Bytes::new()));
        *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        response
    })
}

/// Tells a client that there is no room, once it has asked for something, and lets it read that.
pub(super) async fn answer_busy<H: Handler>(stream: TcpStream, shared: &Shared<H>) {
    let service = service_fn(|request: Request| {
        let mut response = shared.handler.busy(&request.into_parts().0);
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        async move { Ok::<_, Infallible>(response) }
    });
    let connection = builder(&shared.limits)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service)
        .without_shutdown();
    if let Ok(Ok(left)) = timeout(COURTESY_TIME, connection).await {
        linger(left.io.into_inner()).await;
    }
}

/// Reads and forgets what a client still sends after the last answer.
///
/// Closing a socket with unread bytes resets the connection, and a reset makes the client lose an
/// answer that it has not read yet: the reason why its body was refused, for example.
async fn linger(mut stream: TcpStream) {
    let rest = async {
        let mut buffer = vec![0; 16 * 1024];
        stream.shutdown().await?;
        while stream.read(&mut buffer).await? > 0 {}
        io::Result::Ok(())
    };
    let _ = timeout(LINGER_TIME, rest).await;
}

/// How a connection gets on: what bytes moved when, and what it is waiting for.
///
/// Times are milliseconds since the connection began, so that they fit an atomic.
#[derive(Debug)]
struct Pace {
    began: Instant,
    /// When a byte last moved.
    moved: AtomicU64,
    /// When the head that is being read began; [`Pace::NO_HEAD`] while there is none.
    head: AtomicU64,
    /// Whether a handler is at work: bytes that come in belong to a body.
    working: AtomicBool,
    /// Whether the client has said all, or is no longer listened to.
    over: AtomicBool,
    /// When the client first kept an answer waiting, or [`Self::NEVER`].
    blocked: AtomicU64,
    /// Bytes that it has taken since.
    taken: AtomicU64,
    /// Bytes of the head that is being read.
    head_bytes: AtomicU64,
}

impl Pace {
    const NO_HEAD: u64 = u64::MAX;
    const NEVER: u64 = u64::MAX;

    /// The first head begins with the connection.
    fn new() -> Self {
        Self {
            began: Instant::now(),
            moved: AtomicU64::new(0),
            head: AtomicU64::new(0),
            working: AtomicBool::new(false),
            over: AtomicBool::new(false),
            blocked: AtomicU64::new(Self::NEVER),
            taken: AtomicU64::new(0),
            head_bytes: AtomicU64::new(0),
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn received(&self, bytes: usize) {
        let now = self.now();
        self.moved.store(now, Relaxed);
        if self.working.load(Relaxed) {
            return;
        }
        self.head_bytes.fetch_add(bytes as u64, Relaxed);
        if self.head.load(Relaxed) == Self::NO_HEAD {
            self.head.store(now, Relaxed);
        }
    }

    /// Whether the head that is being read is longer than is read unasked on an anonymous connection.
    fn has_large_head(&self) -> bool {
        self.head_bytes.load(Relaxed) >= ANONYMOUS_HEAD_BYTES_MAX as u64
    }

    fn sent(&self, bytes: usize) {
        self.moved.store(self.now(), Relaxed);
        self.taken.fetch_add(bytes as u64, Relaxed);
    }

    /// The client does not take what is there for it.
    fn block(&self) {
        if self.blocked.load(Relaxed) == Self::NEVER {
            self.blocked.store(self.now(), Relaxed);
            self.taken.store(0, Relaxed);
        }
    }

    fn begin_head(&self) {
        self.head.store(self.now(), Relaxed);
        self.head_bytes.store(0, Relaxed);
    }

    /// Everything that was there for the client has been taken.
    fn unblock(&self) {
        self.blocked.store(Self::NEVER, Relaxed);
    }

    fn begin_work(&self) {
        self.working.store(true, Relaxed);
        self.head.store(Self::NO_HEAD, Relaxed);
        self.head_bytes.store(0, Relaxed);
    }

    fn begin_wait(&self) {
        self.moved.store(self.now(), Relaxed);
        self.working.store(false, Relaxed);
    }

    fn end(&self) {
        self.over.store(true, Relaxed);
    }

    fn is_over(&self) -> bool {
        self.over.load(Relaxed)
    }

    /// When patience ends, as things stand. In the past: it has ended.
    fn next_look(&self, limits: &Limits) -> Instant {
        let moved = Duration::from_millis(self.moved.load(Relaxed));
        let mut silent = self.began + moved + limits.idle_time;
        let blocked = self.blocked.load(Relaxed);
        if blocked != Self::NEVER {
            // Who takes an answer slower than this holds memory for nothing.
            let earned = self.taken.load(Relaxed) * 1000 / limits.send_rate.max(1);
            let patience = limits.head_time + Duration::from_millis(earned);
            silent = silent.min(self.began + Duration::from_millis(blocked) + patience);
        }
        match self.head.load(Relaxed) {
            Self::NO_HEAD => {
                // A head may begin right after this look, and must not wait for the end of the idle
                // time.
                silent.min(Instant::now() + limits.head_time.max(Duration::from_millis(1)))
            }
            head => silent.min(self.began + Duration::from_millis(head) + limits.head_time),
        }
    }
}

/// The right to read a large head on an anonymous connection: waited for, then held until the request is there.
type LargeHead = Pin<Box<dyn Future<Output = [Option<OwnedSemaphorePermit>; 2]> + Send>>;

/// A socket that counts its bytes, notes its pace, and hands itself back when it is dropped.
struct Metered {
    stream: Option<TcpStream>,
    standing: Arc<Standing>,
    waiting: Option<LargeHead>,
    large_head: Option<[Option<OwnedSemaphorePermit>; 2]>,
    give_back: Option<oneshot::Sender<TcpStream>>,
    pace: Arc<Pace>,
    metrics: Arc<ListenerMetrics>,
}

impl Metered {
    fn new(
        stream: TcpStream,
        standing: &Arc<Standing>,
        pace: &Arc<Pace>,
        metrics: &Arc<ListenerMetrics>,
    ) -> (Self, oneshot::Receiver<TcpStream>) {
        let (give_back, returned) = oneshot::channel();
        let metered = Self {
            stream: Some(stream),
            standing: Arc::clone(standing),
            waiting: None,
            large_head: None,
            give_back: Some(give_back),
            pace: Arc::clone(pace),
            metrics: Arc::clone(metrics),
        };
        (metered, returned)
    }

    fn stream(&mut self) -> Pin<&mut TcpStream> {
        Pin::new(self.stream.as_mut().expect("the socket is only taken when this is dropped"))
    }

    /// Waits while the client of an anonymous connection sends a large head and enough others do: a head may take that much
    /// memory, and is not known to be worth it. The time for the head goes on meanwhile.
    fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.standing.is_known() || !self.pace.has_large_head() {
            self.large_head = None;
            self.waiting = None;
            return Poll::Ready(());
        }
        if self.large_head.is_none() {
            let standing = &self.standing;
            let waiting = self.waiting.get_or_insert_with(|| Box::pin(standing.large_head()));
            self.large_head = Some(ready!(waiting.as_mut().poll(cx)));
            self.waiting = None;
        }
        Poll::Ready(())
    }

    fn note_write(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match &written {
            Poll::Pending => self.pace.block(),
            Poll::Ready(Ok(bytes)) => {
                self.pace.sent(*bytes);
                self.metrics.sent_bytes.fetch_add(*bytes as u64, Relaxed);
            }
            Poll::Ready(Err(_)) => {}
        }
        written
    }
}

impl Drop for Metered {
    fn drop(&mut self) {
        if let (Some(stream), Some(give_back)) = (self.stream.take(), self.give_back.take()) {
            // Nobody waits for it when the connection was cut short: then it closes here.
            let _ = give_back.send(stream);
        }
    }
}

impl AsyncRead for Metered {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.poll_head(cx));
        let before = buffer.filled().len();
        let read = ready!(self.stream().poll_read(cx, buffer));
        let bytes = buffer.filled().len() - before;
        if bytes == 0 {
            self.pace.end();
        } else {
            self.pace.received(bytes);
            self.metrics.received_bytes.fetch_add(bytes as u64, Relaxed);
        }
        Poll::Ready(read)
    }
}

impl AsyncWrite for Metered {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = self.stream().poll_write(cx, bytes);
        self.note_write(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = self.stream().poll_write_vectored(cx, slices);
        self.note_write(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.as_ref().is_some_and(AsyncWrite::is_write_vectored)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.stream().poll_flush(cx))?;
        self.pace.unblock();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_shutdown(cx)
    }
}
