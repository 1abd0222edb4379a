//! What a client can see of the limits, over real sockets.

use super::*;
use crate::{Peer, Request};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use rowhouse_types::Timestamp;
use std::path::Path;
use std::time::Instant;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::Notify;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

type Response = http::Response<Full<Bytes>>;

/// Answers with what it saw; `/slow` waits until told, `/panic` panics, `/refuse` leaves the body
/// unread, `/large` is more than sockets hold. All but `/stranger` have a valid credential.
#[derive(Default)]
struct Echo {
    started: Notify,
    go_on: Notify,
}

impl Handler for Echo {
    type Body = Full<Bytes>;

    async fn handle(&self, request: Request, peer: Peer) -> Response {
        let target = request.uri().to_string();
        if request.uri().path() != "/stranger" {
            admission::authenticated(request.extensions());
        }
        match request.uri().path() {
            "/slow" => {
                self.started.notify_one();
                self.go_on.notified().await;
            }
            "/panic" => panic!("on purpose"),
            "/refuse" => {
                let mut response = Response::new(Full::new(Bytes::from_static(b"refused")));
                *response.status_mut() = http::StatusCode::PAYLOAD_TOO_LARGE;
                return response;
            }
            "/large" => return Response::new(Full::new(Bytes::from(vec![b'x'; 32 << 20]))),
            _ => drop(request.into_body().collect().await),
        }
        Response::new(Full::new(Bytes::from(format!("{target} tls={}", peer.tls))))
    }

    fn busy(&self, request: &http::request::Parts) -> Response {
        let mut response = Response::new(Full::new(Bytes::from(format!("busy {}", request.uri))));
        *response.status_mut() = http::StatusCode::SERVICE_UNAVAILABLE;
        response
    }
}

struct Running {
    address: SocketAddr,
    handler: Arc<Echo>,
    metrics: Arc<ListenerMetrics>,
    stop: watch::Sender<bool>,
    ended: tokio::task::JoinHandle<()>,
}

fn start(tls: Option<Tls>, change: impl FnOnce(&mut Limits)) -> Running {
    let mut limits = Limits::default();
    change(&mut limits);
    let metrics = Arc::new(ListenerMetrics::default());
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), tls, limits)
        .unwrap()
        .with_metrics(Arc::clone(&metrics));
    let (stop, shutdown) = watch::channel(false);
    let (address, handler) = (listener.local_addr(), Arc::new(Echo::default()));
    let ended = tokio::spawn(listener.serve(Arc::clone(&handler), shutdown));
    Running { address, handler, metrics, stop, ended }
}

impl Running {
    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Sends text on a connection of its own and reads to the end of the answer.
    async fn ask(&self, text: &str) -> String {
        let mut stream = self.connect().await;
        stream.write_all(text.as_bytes()).await.unwrap();
        read_all(&mut stream).await
    }
}

const GET: &str = "GET /x HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n";

/// Reads until the other side closes, which must happen soon.
async fn read_all(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> String {
    let mut text = Vec::new();
    let read = timeout(Duration::from_secs(10), stream.read_to_end(&mut text)).await;
    let _ = read.expect("the connection is closed in time");
    String::from_utf8_lossy(&text).into_owned()
}

#[tokio::test]
async fn requests_are_answered() {
    let server = start(None, |_| {});
    let target = "/acct/People(PartitionKey='a%20b',RowKey='%c3%A9')?$filter=a%20eq+'x'&&=";
    let text = format!("GET {target} HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n");
    let answer = server.ask(&text).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.ends_with(&format!("{target} tls=false")), "{answer}");

    let answer = server.ask("GET /panic HTTP/1.1\r\nhost: h\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 500 "), "{answer}");
    let answer = server.ask("complete nonsense\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    assert!(server.ask(GET).await.contains("200 OK"), "goes on serving");
}

#[tokio::test]
async fn heads_are_bounded_in_size() {
    let server = start(None, |limits| {
        limits.headers = 20;
        limits.head_bytes = 16 * 1024;
    });
    let many = "a: b\r\n".repeat(30);
    let large = format!("a: {}\r\n", "b".repeat(20 * 1024));
    for headers in [many, large] {
        let answer = server.ask(&format!("GET / HTTP/1.1\r\n{headers}\r\n")).await;
        assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    }
    let target = "x".repeat(70 * 1024);
    let answer = server.ask(&format!("GET /{target} HTTP/1.1\r\n\r\n")).await;
    assert!(answer.starts_with("HTTP/1.1 4"), "{answer}");
}

#[tokio::test]
async fn slow_heads_and_silent_connections_are_closed() {
    let server = start(None, |limits| {
        limits.head_time = Duration::from_millis(300);
        limits.idle_time = Duration::from_millis(900);
    });
    // Nothing at all: the first head is late.
    let mut silent = server.connect().await;
    assert_eq!(read_all(&mut silent).await, "");

    // A byte now and then does not help.
    let mut dripping = server.connect().await;
    let begin = Instant::now();
    loop {
        if dripping.write_all(b"G").await.is_err() {
            break;
        }
        if let Ok(Ok(0) | Err(_)) =
            timeout(Duration::from_millis(50), dripping.read(&mut [0; 1])).await
        {
            break;
        }
        assert!(begin.elapsed() < Duration::from_secs(5), "is closed in time");
    }

    // After an answer a connection may rest longer than a head may take, but not for ever.
    let mut resting = server.connect().await;
    resting.write_all(b"GET /x HTTP/1.1\r\n\r\n").await.unwrap();
    let begin = Instant::now();
    let answer = read_all(&mut resting).await;
    assert!(answer.contains("200 OK"), "{answer}");
    assert!(begin.elapsed() > Duration::from_millis(600), "{:?}", begin.elapsed());
    assert_eq!(server.metrics.timed_out.load(Relaxed), 3);
}

#[tokio::test]
async fn who_does_not_take_an_answer_is_cut_off() {
    const LENGTH: usize = 32 << 20;
    let at_rate = |rate| {
        start(None, move |limits| {
            limits.head_time = Duration::from_millis(300);
            limits.send_rate = rate;
        })
    };
    let take = async |stream: &mut TcpStream, pause: Duration| {
        stream.write_all(b"GET /large HTTP/1.1\r\n\r\n").await.unwrap();
        let (mut taken, mut buffer) = (0, vec![0; 64 * 1024]);
        while taken < LENGTH {
            match timeout(Duration::from_secs(10), stream.read(&mut buffer)).await {
                Ok(Ok(count @ 1..)) => taken += count,
                _ => break,
            }
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
        }
        taken
    };
    // A few bytes now and then keep the connection from being silent, and still do not help.
    let server = at_rate(1 << 40);
    let mut slow = server.connect().await;
    assert!(take(&mut slow, Duration::from_millis(20)).await < LENGTH);
    assert_eq!(server.metrics.timed_out.load(Relaxed), 1);

    // Who takes it at the rate asked for may rest afterwards.
    let server = at_rate(1);
    let mut quick = server.connect().await;
    assert!(LENGTH <= take(&mut quick, Duration::ZERO).await);
    tokio::time::sleep(Duration::from_millis(700)).await;
    quick.write_all(GET.as_bytes()).await.unwrap();
    assert!(read_all(&mut quick).await.contains("200 OK"), "is still served");
}

#[tokio::test]
async fn connections_are_bounded_overall_and_per_address() {
    let server = start(None, |limits| limits.connections = 1);
    let held = hold(&server).await;
    for _ in 0..2 {
        assert_is_told(&server.ask(GET).await);
    }
    drop(held);
    await_answer(&server).await;

    let server = start(None, |limits| limits.connections_per_address = 1);
    let held = hold(&server).await;
    assert_is_told(&server.ask(GET).await);
    assert_eq!(server.metrics.refused.load(Relaxed), 1);
    drop(held);
    await_answer(&server).await;
}

/// The client learns that there is no room, in the words of the handler, and that the connection ends.
fn assert_is_told(answer: &str) {
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.ends_with("busy /x"), "{answer}");
    let (head, _) = answer.split_once("\r\n\r\n").unwrap();
    for header in ["retry-after: 1", "connection: close", "content-length: 7"] {
        assert!(head.contains(&format!("\r\n{header}")), "{answer}");
    }
}

/// The answer is there to be read although the rest of the request is not taken any more.
#[tokio::test]
async fn who_is_one_too_many_may_send_a_body() {
    let server = start(None, |limits| limits.connections = 1);
    let _held = hold(&server).await;
    let mut stream = server.connect().await;
    let body = vec![b'x'; 8 * 1024 * 1024];
    let head = format!("POST /x HTTP/1.1\r\ncontent-length: {}\r\n\r\n", body.len());
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&body).await.unwrap();
    assert_is_told(&read_all(&mut stream).await);
}

/// A client that says nothing is closed, and nobody who comes later waits for it.
#[tokio::test]
async fn who_is_one_too_many_and_silent_is_closed() {
    let server = start(None, |limits| limits.connections = 1);
    let _held = hold(&server).await;
    let mut silent = server.connect().await;
    assert_eq!(read_all(&mut silent).await, "");
    assert_is_told(&server.ask(GET).await);
}

/// A connection that has been served and stays open.
async fn hold(server: &Running) -> TcpStream {
    let mut stream = server.connect().await;
    assert!(is_answered(&mut stream, "/x").await);
    stream
}

/// Whether a request on a connection that stays open is answered.
async fn is_answered(stream: &mut TcpStream, path: &str) -> bool {
    let text = format!("GET {path} HTTP/1.1\r\n\r\n");
    if stream.write_all(text.as_bytes()).await.is_err() {
        return false;
    }
    let mut answer = [0; 1024];
    let read = timeout(Duration::from_secs(5), stream.read(&mut answer)).await;
    matches!(read, Ok(Ok(1..))) && answer.starts_with(b"HTTP/1.1 200 ")
}

#[tokio::test]
async fn who_shows_no_credential_may_not_rest() {
    let server = start(None, |limits| {
        limits.anonymous_head_time = Duration::from_millis(300);
        limits.anonymous_idle_time = Duration::from_millis(300);
    });
    let mut silent = server.connect().await;
    assert_eq!(read_all(&mut silent).await, "", "the first head is late");
    let mut stranger = server.connect().await;
    assert!(is_answered(&mut stranger, "/stranger").await);
    assert_eq!(server.metrics.anonymous.load(Relaxed), 1);
    assert_eq!(read_all(&mut stranger).await, "", "is closed when it is idle");
    assert_eq!(server.metrics.timed_out.load(Relaxed), 2);

    let mut known = server.connect().await;
    for _ in 0..2 {
        assert!(is_answered(&mut known, "/x").await);
        assert_eq!(server.metrics.anonymous.load(Relaxed), 0);
        tokio::time::sleep(Duration::from_millis(900)).await;
    }
    assert!(is_answered(&mut known, "/stranger").await, "once known, always known");
}

#[tokio::test]
async fn strangers_make_room_for_others() {
    let server = start(None, |limits| limits.anonymous_per_address = 3);
    let mut known = hold(&server).await;
    let mut strangers = Vec::new();
    for _ in 0..10 {
        let mut stream = server.connect().await;
        assert!(is_answered(&mut stream, "/stranger").await, "a newcomer is answered");
        strangers.push(stream);
    }
    for (at, stranger) in strangers.iter_mut().enumerate() {
        assert_eq!(is_answered(stranger, "/stranger").await, 7 <= at, "{at}");
    }
    assert!(is_answered(&mut known, "/x").await);
    assert_eq!(server.metrics.evicted.load(Relaxed), 7);
    // The same of the listener as a whole, in front of somebody with a credential.
    let server = start(None, |limits| limits.connections = 2);
    let mut stranger = server.connect().await;
    assert!(is_answered(&mut stranger, "/stranger").await);
    let known = [hold(&server).await, hold(&server).await];
    assert!(!is_answered(&mut stranger, "/stranger").await, "it made room");
    assert_is_told(&server.ask(GET).await);
    drop(known);
}

/// As many anonymous connections as the listener has, from two addresses: a third one is served as ever.
#[tokio::test]
async fn a_crowd_of_strangers_leaves_room() {
    const CONNECTIONS: usize = 64;
    let server = start(None, |limits| limits.connections = CONNECTIONS);
    let connect = async |from: &str| {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind(format!("{from}:0").parse().unwrap()).unwrap();
        socket.connect(server.address).await.unwrap()
    };
    let mut crowd = Vec::new();
    for at in 0..2 * CONNECTIONS {
        let mut stream = connect(["127.0.0.2", "127.0.0.3"][at % 2]).await;
        assert!(is_answered(&mut stream, "/stranger").await, "{at}");
        crowd.push(stream);
    }
    let mut others = Vec::new();
    for at in 0..CONNECTIONS / 2 {
        let mut stream = connect("127.0.0.4").await;
        assert!(is_answered(&mut stream, "/x").await, "{at}");
        others.push(stream);
    }
    for stream in &mut others {
        assert!(is_answered(stream, "/x").await, "stays open");
    }
    assert_eq!(server.metrics.refused.load(Relaxed), 0);
    assert!(server.metrics.anonymous.load(Relaxed) <= CONNECTIONS as u64 / 2);
}

/// Before anybody knows who sends it, few large heads are read at a time; the next one waits, and is answered then.
#[tokio::test]
async fn large_heads_of_strangers_wait_for_each_other() {
    let server = start(None, |limits| limits.anonymous_head_time = Duration::from_secs(4));
    let filler = "b".repeat(60 * 1024);
    let mut unfinished = Vec::new();
    for _ in 0..limits::ANONYMOUS_HEADS_PER_ADDRESS_MAX {
        let mut stream = server.connect().await;
        stream.write_all(format!("GET /x HTTP/1.1\r\na: {filler}").as_bytes()).await.unwrap();
        unfinished.push(stream);
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    let large = format!("GET /x HTTP/1.1\r\na: {filler}\r\nconnection: close\r\n\r\n");
    let mut waiting = server.connect().await;
    waiting.write_all(large.as_bytes()).await.unwrap();
    let early = timeout(Duration::from_millis(500), waiting.read(&mut [0; 1])).await;
    assert!(early.is_err(), "it waits");
    assert!(server.ask(GET).await.contains("200 OK"), "small ones do not");
    let mut known = hold(&server).await;
    known.write_all(large.as_bytes()).await.unwrap();
    assert!(read_all(&mut known).await.contains("200 OK"), "nor do those of known clients");
    unfinished.pop();
    let answer = read_all(&mut waiting).await;
    assert!(answer.contains("00 OK"), "{answer}");
}

async fn await_answer(server: &Running) {
    let begin = Instant::now();
    while !server.ask(GET).await.contains("200 OK") {
        assert!(begin.elapsed() < Duration::from_secs(5), "the place comes back");
    }
}

/// The client gets to read why its body was refused, although it sends more than sockets buffer.
#[tokio::test]
async fn a_refused_body_does_not_hide_the_answer() {
    let server = start(None, |_| {});
    let mut stream = server.connect().await;
    let body = vec![b'x'; 8 * 1024 * 1024];
    let head = format!("POST /refuse HTTP/1.1\r\ncontent-length: {}\r\n\r\n", body.len());
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&body).await.unwrap();
    let answer = read_all(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 413 ") && answer.ends_with("refused"), "{answer}");
}

#[tokio::test]
async fn draining_answers_what_runs_and_closes_what_rests() {
    let server = start(None, |_| {});
    let mut resting = hold(&server).await;
    let mut slow = server.connect().await;
    slow.write_all(b"GET /slow HTTP/1.1\r\n\r\n").await.unwrap();
    server.handler.started.notified().await;

    server.stop.send(true).unwrap();
    read_all(&mut resting).await;
    assert!(!server.ended.is_finished(), "waits for the running request");
    assert!(TcpStream::connect(server.address).await.is_err(), "takes no new connections");

    server.handler.go_on.notify_one();
    let answer = read_all(&mut slow).await;
    assert!(answer.contains("200 OK") && answer.contains("connection: close"), "{answer}");
    timeout(Duration::from_secs(5), server.ended).await.unwrap().unwrap();
}

#[tokio::test]
async fn draining_has_an_end() {
    let server = start(None, |limits| limits.drain_time = Duration::from_millis(200));
    let mut slow = server.connect().await;
    slow.write_all(b"GET /slow HTTP/1.1\r\n\r\n").await.unwrap();
    server.handler.started.notified().await;
    server.stop.send(true).unwrap();
    timeout(Duration::from_secs(5), server.ended).await.unwrap().unwrap();
    assert_eq!(read_all(&mut slow).await, "");
}

fn now() -> Timestamp {
    Timestamp::from_unix(std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap())
}

/// Asks over TLS, trusting the given certificate only.
async fn ask_tls(address: SocketAddr, trusted: &Path, name: &str) -> Result<String, io::Error> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(trusted).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let stream = TcpStream::connect(address).await?;
    let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    stream.write_all(GET.as_bytes()).await?;
    Ok(read_all(&mut stream).await)
}

#[tokio::test]
async fn the_generated_certificate_verifies() {
    let directory = tempfile::tempdir().unwrap();
    let tls = Tls::self_signed(directory.path(), &[], now()).unwrap();
    let trusted = tls.certificate_file().to_owned();
    let server = start(Some(tls), |_| {});
    for name in ["localhost", "127.0.0.1", "devstoreaccount1.table.localhost", "a.table.localhost"]
    {
        let answer = ask_tls(server.address, &trusted, name).await.unwrap();
        assert!(answer.contains("200 OK") && answer.ends_with("tls=true"), "{name}: {answer}");
    }
    assert!(ask_tls(server.address, &trusted, "example.org").await.is_err());
}

/// A handshake that never ends does not hold a place for ever.
#[tokio::test]
async fn handshakes_have_an_end() {
    let directory = tempfile::tempdir().unwrap();
    let tls = Tls::self_signed(directory.path(), &[], now()).unwrap();
    let server = start(Some(tls), |limits| limits.handshake_time = Duration::from_millis(200));
    let mut silent = server.connect().await;
    assert_eq!(read_all(&mut silent).await, "");
}

#[tokio::test]
async fn a_changed_certificate_is_used_and_a_broken_one_is_not() {
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for directory in [&first, &second] {
        Tls::self_signed(directory.path(), &[], now()).unwrap();
    }
    let used = tempfile::tempdir().unwrap();
    let copy = |from: &tempfile::TempDir| {
        for file in ["tls-cert.pem", "tls-key.pem"] {
            std::fs::copy(from.path().join(file), used.path().join(file)).unwrap();
        }
    };
    copy(&first);
    let path = |file: &str| used.path().join(file);
    let tls = Tls::from_files(path("tls-cert.pem"), path("tls-key.pem")).unwrap();
    let server = start(Some(tls), |_| {});
    let trusted = |by: &tempfile::TempDir| by.path().join("tls-cert.pem");
    assert!(ask_tls(server.address, &trusted(&first), "localhost").await.is_ok());

    copy(&second);
    let begin = Instant::now();
    while ask_tls(server.address, &trusted(&second), "localhost").await.is_err() {
        assert!(begin.elapsed() < Duration::from_secs(10), "the new certificate is used");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }

    std::fs::write(path("tls-cert.pem"), "broken").unwrap();
    tokio::time::sleep(TLS_POLL + Duration::from_millis(500)).await;
    assert!(ask_tls(server.address, &trusted(&second), "localhost").await.is_ok());
}
