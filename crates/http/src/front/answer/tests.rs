//! A page on its way through the real listener, to clients of all kinds.

use super::*;
use crate::front::body::Budget;
use crate::listener::{Limits, Listener};
use crate::{Handler, Peer, Request};
use http_body_util::BodyExt as _;
use rowhouse_service_account::AccountId;
use rowhouse_types::{Record, RecordBuilder, Row, Rows, Timestamp, ValueRef};
use rowhouse_wire::entity::{self, Context as Encoding};
use rowhouse_wire::media::Metadata;
use rowhouse_wire::select::Select;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use tokio::sync::{mpsc, watch};

const ACCOUNT: AccountId = AccountId(1);
const ENCODING: Encoding<'static> =
    Encoding { base: "b", account: "a", table: "t", level: Metadata::Minimal, select: None };

fn record(text: &str) -> Record {
    let mut builder = RecordBuilder::new();
    builder.push("text", ValueRef::String(text)).unwrap();
    builder.finish(Timestamp::EDM_MIN)
}

/// So many entities of about a kilobyte.
fn rows(count: usize) -> Rows {
    let mut rows = Rows::new();
    for n in 0..count {
        let record = record(&"x".repeat(1000));
        rows.push(&Row { partition: "p", row: &n.to_string(), record: record.as_ref() });
    }
    rows
}

fn page(rows: Rows) -> Content {
    Content::page(PageWriter::new(&ENCODING, None, rows)).unwrap()
}

fn whole(rows: &Rows) -> Vec<u8> {
    let mut out = Vec::new();
    entity::write_page(&mut out, &ENCODING, None, rows.iter(), usize::MAX).unwrap();
    out
}

/// A record whose text is none.
fn broken() -> Record {
    let mut bytes = record("x").as_bytes().to_vec();
    *bytes.last_mut().unwrap() = 0xFF;
    Record::from_bytes(bytes).unwrap()
}

/// Notes with every piece how often another task had its turn before.
struct Watched {
    body: AnswerBody,
    turns: Arc<AtomicUsize>,
    pieces: mpsc::UnboundedSender<usize>,
}

impl Body for Watched {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if let Poll::Ready(Some(Ok(_))) = polled {
            self.pieces.send(self.turns.load(Relaxed)).unwrap();
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl From<Bytes> for Watched {
    fn from(bytes: Bytes) -> Self {
        let (pieces, _) = mpsc::unbounded_channel();
        Self { body: bytes.into(), turns: Arc::default(), pieces }
    }
}

/// Answers every request with the same page.
struct Pages {
    budget: Budget,
    rows: Rows,
    turns: Arc<AtomicUsize>,
    pieces: mpsc::UnboundedSender<usize>,
}

impl Handler for Pages {
    type Body = Watched;

    async fn handle(&self, _: Request, _: Peer) -> http::Response<Watched> {
        let Content::Page(page) = page(self.rows.clone()) else { panic!("the page is large") };
        let body = self.budget.page(*page, ACCOUNT).unwrap();
        let (turns, pieces) = (Arc::clone(&self.turns), self.pieces.clone());
        http::Response::new(Watched { body, turns, pieces })
    }

    fn busy(&self, _: &http::request::Parts) -> http::Response<Watched> {
        http::Response::new(Bytes::new().into())
    }
}

/// A server of that page, and what tells of its pieces.
fn serve(rows: Rows, limits: Limits) -> (Arc<Pages>, SocketAddr, mpsc::UnboundedReceiver<usize>) {
    let (pieces, told) = mpsc::unbounded_channel();
    let budget = Budget::new(1 << 30, 8);
    let pages = Arc::new(Pages { budget, rows, turns: Arc::default(), pieces });
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), None, limits).unwrap();
    let address = listener.local_addr();
    let (stop, shutdown) = watch::channel(false);
    let handler = Arc::clone(&pages);
    tokio::spawn(async move {
        listener.serve(handler, shutdown).await;
        drop(stop);
    });
    (pages, address, told)
}

const GET: &[u8] = b"GET / HTTP/1.1\r\nhost: h\r\n\r\n";

/// A client that has asked and read the beginning of the answer. Its socket takes little, so that the rest stays behind.
fn ask(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(GET).unwrap();
    stream.read_exact(&mut [0; 100]).unwrap();
    stream
}

async fn until(what: &str, done: impl Fn() -> bool) {
    let give_up = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < give_up, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn pieces_are_the_page() {
    let expected = rows(500);
    assert_eq!(page(expected.clone()).into_whole().unwrap(), whole(&expected));
    let body = AnswerBody::from(page(expected.clone()));
    assert_eq!(body.size_hint().exact(), None);
    assert_eq!(body.collect().await.unwrap().to_bytes(), whole(&expected));
    assert!(matches!(page(rows(50)), Content::Whole(bytes) if bytes == whole(&rows(50))));
}

/// Nobody holds megabytes of rows until a client has taken their keys.
#[test]
fn where_little_is_selected_rows_are_not_held() {
    let select = Select::parse("RowKey").unwrap();
    let encoding = Encoding { select: select.as_ref(), ..ENCODING };
    let rows = rows(5000);
    let Content::Whole(bytes) =
        Content::page(PageWriter::new(&encoding, None, rows.clone())).unwrap()
    else {
        panic!("the rows are held");
    };
    assert!(limits::PAGE_PIECE_BYTES < bytes.len() && bytes.len() < rows.byte_len() / LITTLE);
    let mut expected = Vec::new();
    entity::write_page(&mut expected, &encoding, None, rows.iter(), usize::MAX).unwrap();
    assert_eq!(bytes, expected);
}

/// All on one thread, with another task that lets others go first too: those who do so are woken in turn from either end, so
/// two turns of two pieces may meet.
#[tokio::test]
async fn others_have_their_turn() {
    let (pages, address, mut told) = serve(rows(4000), Limits::default());
    let turns = Arc::clone(&pages.turns);
    let other = tokio::spawn(async move {
        loop {
            turns.fetch_add(1, Relaxed);
            tokio::task::yield_now().await;
        }
    });
    let expected = whole(&pages.rows).len();
    let reader = tokio::task::spawn_blocking(move || {
        let mut stream = ask(address);
        let mut buffer = vec![0; 1 << 20];
        let mut read = 100;
        while read < expected {
            read += stream.read(&mut buffer).unwrap();
        }
    });
    reader.await.unwrap();
    other.abort();
    let mut pieces = Vec::new();
    while let Ok(turn) = told.try_recv() {
        pieces.push(turn);
    }
    assert!(60 < pieces.len(), "{pieces:?}");
    let crowded = pieces.windows(5).find(|turns| turns[0] == turns[4]);
    assert_eq!(crowded, None, "five pieces and nobody between: {pieces:?}");
}

/// It holds the rows and what the connection holds back, and gives both back when it is cut off.
#[tokio::test]
async fn a_client_that_stops_reading_holds_little_and_not_for_long() {
    let limits = Limits { head_time: Duration::from_secs(1), ..Limits::default() };
    let held_back = limits.head_bytes.max(64 * 1024) + 3 * limits::PAGE_PIECE_BYTES;
    // More than sockets hold.
    let (pages, address, mut told) = serve(rows(40_000), limits);
    let stream = tokio::task::spawn_blocking(move || ask(address)).await.unwrap();
    while tokio::time::timeout(Duration::from_millis(300), told.recv()).await.is_ok() {}
    let taken = pages.budget.taken_bytes();
    let rows = pages.rows.byte_len();
    assert!((rows..rows + held_back).contains(&taken), "{taken} of {rows}");
    until("it is cut off", || pages.budget.taken_bytes() == 0).await;
    drop(stream);
}

#[tokio::test]
async fn a_client_that_goes_away_gives_all_back() {
    let (pages, address, _told) = serve(rows(40_000), Limits::default());
    let stream = tokio::task::spawn_blocking(move || ask(address)).await.unwrap();
    assert!(pages.rows.byte_len() < pages.budget.taken_bytes());
    drop(stream);
    until("it is noticed", || pages.budget.taken_bytes() == 0).await;
}

#[tokio::test]
async fn what_does_not_decode_fails_early_or_breaks_off() {
    let (good, bad) = (rows(200), broken());
    let bad = Row { partition: "p", row: "z", record: bad.as_ref() };
    let mut early = Rows::new();
    early.push(&bad);
    assert!(Content::page(PageWriter::new(&ENCODING, None, early)).is_err());
    let mut late = good;
    late.push(&bad);
    let mut body = AnswerBody::from(page(late.clone()));
    let mut pieces = 0;
    let error = loop {
        match body.frame().await.expect("it does not end well") {
            Ok(_) => pieces += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(
        (pieces, error.to_string()),
        (3, "corrupt record: a String is not UTF-8".to_owned())
    );
    assert!(page(late).into_whole().is_err());
}

/// The connection asks for a piece when all but a little of those before has been taken.
#[tokio::test]
async fn who_takes_a_page_too_slowly_is_cut_off() {
    let ago = |seconds: u64| Instant::now().checked_sub(Duration::from_secs(seconds)).unwrap();
    for (seconds, expected) in [(0, true), (limits::HEAD_SECONDS_MAX + 1, true), (60, false)] {
        let Content::Page(page) = page(rows(500)) else { panic!("the page is large") };
        let AnswerBody(Inner::Page(mut page)) = page.send(Bytes::from, None) else { panic!() };
        page.began = ago(seconds);
        let body = AnswerBody(Inner::Page(page)).collect().await;
        assert_eq!(body.is_ok(), expected, "{seconds}");
    }
}
