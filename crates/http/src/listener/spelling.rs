//! How clients spell the names of metadata headers, and how answers repeat it.
//!
//! Names of headers are the same in any case, and the HTTP library knows them in lower case only. Azure keeps the
//! case of `x-ms-meta-` names, and so does this module. [`Heads`] looks at the bytes that a connection receives while it
//! waits for a request and keeps them from the first such name on: a request without metadata costs one search through
//! its head and no memory. [`extensions`] makes the HTTP library write names as they are spelled.
//!
//! The bytes are parsed by [`Spelling::names`], which an operation that stores metadata calls once the caller is
//! authenticated: nobody else can make the server parse them. Parsing takes time in proportion to the bytes.
//!
//! A head that arrives while an earlier request of its connection is still worked on is not looked at: its names
//! stay in lower case. No known client of Azure pipelines requests.

use crate::Request;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use http_body_util::Empty;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use rowhouse_types::limits;
use rowhouse_wire::metadata::PREFIX;
use std::borrow::Cow;
use std::collections::HashMap;
use std::convert::Infallible;
use std::future::{Future as _, ready};
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What a connection received from the first metadata name of a request on. An extension of the request; absent where no
/// such name was received.
#[derive(Clone, Debug)]
pub(crate) struct Spelling(Bytes);

impl Spelling {
    /// The names of the metadata headers as the client spelled them.
    pub(crate) fn names(&self, headers: &HeaderMap) -> Names<'_> {
        names(&self.0, headers).unwrap_or_default()
    }
}

/// The metadata headers of a head: how the client spelled the name of each, by the name in lower case and the value.
#[derive(Debug, Default)]
pub(crate) struct Names<'a>(HashMap<(Cow<'a, str>, &'a [u8]), &'a str>);

impl<'a> Names<'a> {
    /// The name of a header as it was sent.
    pub(crate) fn of<'b>(&'b self, name: &'b str, value: &'b HeaderValue) -> &'b str
    where
        'a: 'b,
    {
        self.0.get(&(Cow::Borrowed(name), value.as_bytes())).copied().unwrap_or(name)
    }
}

/// The heads of one connection's requests.
#[derive(Debug, Default)]
pub(super) struct Heads(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// A request is worked on: what is received is its body.
    working: bool,
    /// The end of what was received, in case a name begins there.
    tail: Vec<u8>,
    /// What was received from the first name on.
    kept: Vec<u8>,
}

impl Heads {
    fn received(&self, bytes: &[u8]) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let State { working, tail, kept } = &mut *state;
        if *working {
            return;
        }
        if kept.is_empty() {
            let joined = (!tail.is_empty()).then(|| [tail, bytes].concat());
            let bytes = joined.as_deref().unwrap_or(bytes);
            match find(bytes) {
                Ok(at) => *kept = bytes[at..].to_vec(),
                Err(at) => *tail = bytes[at..].to_vec(),
            }
        } else {
            kept.extend_from_slice(bytes);
        }
        kept.truncate(limits::HEAD_BYTES_MAX);
    }

    /// A request is complete as far as its head goes. Returns what was kept of it.
    pub(super) fn begin_work(&self) -> Option<Spelling> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.working = true;
        state.tail = Vec::new();
        let kept = std::mem::take(&mut state.kept);
        (!kept.is_empty()).then(|| Spelling(kept.into()))
    }

    pub(super) fn begin_wait(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).working = false;
    }
}

/// Where the first name starts, or else where one may have begun that is cut off.
fn find(bytes: &[u8]) -> Result<usize, usize> {
    let prefix = PREFIX.as_bytes();
    let mut from = 0;
    while let Some(next) = bytes[from..].iter().position(|byte| byte.eq_ignore_ascii_case(&b'x')) {
        let at = from + next;
        let rest = &bytes[at..];
        let length = rest.len().min(prefix.len());
        if rest[..length].eq_ignore_ascii_case(&prefix[..length]) {
            return if length == prefix.len() { Ok(at) } else { Err(at) };
        }
        from = at + 1;
    }
    Err(bytes.len())
}

/// The names in what was kept. Only a head that has every metadata header of the request with its value is believed: what
/// is left of an earlier body may stand before it, and the request's own body behind it.
///
/// The number of steps is proportional to the bytes and the headers: a head with fewer lines than the request has metadata
/// headers is skipped before any header is looked up in it.
fn names<'a>(kept: &'a [u8], headers: &HeaderMap) -> Option<Names<'a>> {
    let wanted = || headers.iter().filter(|(name, _)| name.as_str().starts_with(PREFIX));
    let count = wanted().count();
    if count == 0 {
        return None;
    }
    let mut lines = kept.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).peekable();
    while lines.peek().is_some() {
        let mut head = Vec::new();
        for line in lines.by_ref().take_while(|line| !line.is_empty()) {
            let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
            let (name, value) = line.split_at(colon);
            if let Ok(name) = str::from_utf8(name)
                && name.get(..PREFIX.len()).is_some_and(|start| start.eq_ignore_ascii_case(PREFIX))
            {
                head.push((name, value[1..].trim_ascii()));
            }
        }
        if head.len() < count {
            continue;
        }
        let lowered = |(name, value): &(&'a str, &'a [u8])| {
            let lower = if has_capital(name) {
                Cow::Owned(name.to_ascii_lowercase())
            } else {
                Cow::Borrowed(*name)
            };
            ((lower, *value), *name)
        };
        let names = Names(head.iter().map(lowered).collect());
        let has = |name: &str, value: &HeaderValue| {
            names.0.contains_key(&(Cow::Borrowed(name), value.as_bytes()))
        };
        if wanted().all(|(name, value)| has(name.as_str(), value)) {
            return Some(names);
        }
    }
    None
}

/// Whether a name is not what the HTTP library would write.
pub(crate) fn has_capital(name: &str) -> bool {
    name.bytes().any(|byte| byte.is_ascii_uppercase())
}

/// Extensions of a response that make the HTTP library write these names as they are spelled.
///
/// The library documents that it repeats the spelling of a request whose extensions a response carries, and offers no
/// other way to choose one. So it is given a request in memory with the names as headers.
pub(crate) fn extensions(names: &[&str]) -> http::Extensions {
    let mut head = b"GET / HTTP/1.1\r\n".to_vec();
    for name in names {
        head.extend_from_slice(name.as_bytes());
        head.extend_from_slice(b": \r\n");
    }
    head.extend_from_slice(b"\r\n");
    let found = Mutex::new(None);
    let service = service_fn(|mut request: Request| {
        let extensions = std::mem::take(request.extensions_mut());
        *found.lock().unwrap_or_else(PoisonError::into_inner) = Some(extensions);
        ready(Ok::<_, Infallible>(http::Response::new(Empty::<Bytes>::new())))
    });
    let connection = http1::Builder::new()
        .header_read_timeout(None)
        .preserve_header_case(true)
        .keep_alive(false)
        .max_headers(limits::QUEUE_HEADERS_MAX)
        .max_buf_size(limits::HEAD_BYTES_MAX)
        .serve_connection(Memory { unread: head.as_slice() }, service);
    let mut connection = pin!(connection);
    // Nothing in there waits; the library may still want to be asked again after some steps.
    let mut cx = Context::from_waker(Waker::noop());
    for _ in 0..limits::HEAD_BYTES_MAX / 1024 {
        if connection.as_mut().poll(&mut cx).is_ready() {
            break;
        }
    }
    let found = found.lock().unwrap_or_else(PoisonError::into_inner).take();
    found.unwrap_or_default()
}

/// A connection on which these bytes come in, and nothing goes anywhere.
struct Memory<'a> {
    unread: &'a [u8],
}

impl Read for Memory<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let (now, later) = self.unread.split_at(self.unread.len().min(buffer.remaining()));
        buffer.put_slice(now);
        self.unread = later;
        Poll::Ready(Ok(()))
    }
}

impl Write for Memory<'_> {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// A stream whose incoming bytes are shown to [`Heads`], if there are any.
#[derive(Debug)]
pub(super) struct Watched<S> {
    stream: S,
    heads: Option<Arc<Heads>>,
}

impl<S> Watched<S> {
    pub(super) fn new(stream: S, heads: Option<Arc<Heads>>) -> Self {
        Self { stream, heads }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        if let Some(heads) = &self.heads {
            heads.received(&buffer.filled()[before..]);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderName;
    use proptest::prelude::*;
    use rowhouse_env::polls;

    fn map(headers: &[(&str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            map.append(name, HeaderValue::from_str(value).unwrap());
        }
        map
    }

    fn spelled(chunks: &[&[u8]], headers: &HeaderMap) -> Option<Vec<String>> {
        let heads = Heads::default();
        for chunk in chunks {
            heads.received(chunk);
        }
        let spelling = heads.begin_work()?;
        let names = spelling.names(headers);
        let spelled = headers.iter().map(|(name, value)| names.of(name.as_str(), value).to_owned());
        let spelled: Vec<_> = spelled.filter(|name| has_capital(name)).collect();
        (!spelled.is_empty()).then_some(spelled)
    }

    #[test]
    fn names_are_found_wherever_the_bytes_are_cut() {
        let head = b"PUT /a/q?comp=metadata HTTP/1.1\r\nHost: x\r\nX-Ms-Meta-Owner: Ann\r\nx-ms-date: x\r\n\
            x-ms-meta-TWO:  b\r\n\r\n";
        let headers = map(&[("host", "x"), ("x-ms-meta-owner", "Ann"), ("x-ms-meta-two", "b")]);
        let expected = vec!["X-Ms-Meta-Owner".to_owned(), "x-ms-meta-TWO".to_owned()];
        for cut in 0..head.len() {
            let (first, second) = head.split_at(cut);
            assert_eq!(spelled(&[first, second], &headers), Some(expected.clone()), "{cut}");
        }
        let one_by_one: Vec<_> = head.chunks(1).collect();
        assert_eq!(spelled(&one_by_one, &headers), Some(expected));
    }

    #[test]
    fn only_the_head_of_the_request_is_believed() {
        let headers = map(&[("x-ms-meta-a", "1")]);
        let cases: [(&[u8], Option<&str>); 8] = [
            (b"PUT /q HTTP/1.1\r\nx-ms-meta-A: 1\r\n\r\nx-ms-meta-a: 1", Some("x-ms-meta-A")),
            (
                b"<x>x-ms-meta-\xC3\xA9: 1\r\n\r\nPUT /q HTTP/1.1\r\nx-ms-meta-A: 1\r\n\r\n",
                Some("x-ms-meta-A"),
            ),
            (b"PUT /q HTTP/1.1\nx-ms-meta-A:1\n\n", Some("x-ms-meta-A")),
            (b"GET /q?x-ms-meta-b: HTTP/1.1\r\nX-MS-META-A: 1\r\n\r\n", Some("X-MS-META-A")),
            (b"GET /q?X-Ms-Meta-A:2 HTTP/1.1\r\nx-ms-meta-A: 1\r\n\r\n", Some("x-ms-meta-A")),
            (b"PUT /q HTTP/1.1\r\nx-ms-meta-A: 2\r\n\r\n", None),
            (b"PUT /q HTTP/1.1\r\nx-ms-meta-a: 1\r\n\r\n", None),
            (b"PUT /q HTTP/1.1\r\nhost: x\r\n\r\n", None),
        ];
        for (bytes, expected) in cases {
            let found = spelled(&[bytes], &headers);
            let expected = expected.map(|name| vec![name.to_owned()]);
            assert_eq!(found, expected, "{}", String::from_utf8_lossy(bytes));
        }
    }

    /// As many names as fit into a head, where each is compared with each, take about a hundred times as long.
    #[test]
    fn many_names_take_time_in_proportion() {
        const MANY: usize = limits::HEAD_BYTES_MAX / "x-ms-meta-A0000:\n".len();
        let spelled: Vec<_> = (0..MANY).map(|n| format!("x-ms-meta-A{n:04}")).collect();
        let mut headers = HeaderMap::new();
        for name in &spelled {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            headers.append(name, HeaderValue::from_static(""));
        }
        let in_head = |names: &mut dyn Iterator<Item = &String>| -> String {
            names.flat_map(|name| [name.as_str(), ":\n"]).collect()
        };
        let forward = in_head(&mut spelled.iter());
        let backward = in_head(&mut spelled.iter().rev());
        // Many short heads: none has all names.
        let blank = forward.replace(":\n", ":\n\n");
        for (kept, found) in [(forward, true), (backward, true), (blank, false)] {
            let spelling = Spelling(kept.into());
            let mut work = pin!(polls::watched(
                async {
                    let names = spelling.names(&headers);
                    let all = headers.iter().zip(&spelled);
                    all.filter(|((name, value), spelled)| {
                        names.of(name.as_str(), value) == *spelled
                    })
                    .count()
                },
                |took| panic!("{took:?} for {MANY} names"),
            ));
            let polled = work.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            assert_eq!(polled, Poll::Ready(if found { MANY } else { 0 }));
        }
    }

    #[test]
    fn nothing_is_kept_of_other_requests() {
        let heads = Heads::default();
        heads.received(
            b"POST /a/q/messages HTTP/1.1\r\nx-ms-version: 2019-02-02\r\nx-ms-meta: {}\r\n\r\n",
        );
        let state = || heads.0.lock().unwrap();
        assert!(state().kept.is_empty() && state().tail.is_empty());
        assert!(heads.begin_work().is_none());
        heads.received(b"x-ms-meta-A: 1\r\n");
        assert!(state().kept.is_empty() && state().tail.is_empty());
        heads.begin_wait();
        for _ in 0..4 {
            heads.received(
                &[b"x-ms-meta-A: ", vec![b'v'; limits::HEAD_BYTES_MAX].as_slice()].concat(),
            );
        }
        assert_eq!(state().kept.len(), limits::HEAD_BYTES_MAX);
    }

    #[test]
    fn answers_repeat_any_spelling() {
        let many: Vec<_> = (0..3000).map(|n| format!("x-ms-meta-A{n}")).collect();
        let names: Vec<_> = many.iter().map(String::as_str).collect();
        // What the extension holds is private to the library; that it is written is tested with a connection.
        assert!(!extensions(&names).is_empty());
        assert!(!extensions(&["x-ms-meta-Owner"]).is_empty());
    }

    proptest! {
        #[test]
        fn any_bytes_are_looked_at(chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..6)) {
            let heads = Heads::default();
            for chunk in &chunks {
                heads.received(chunk);
            }
            if let Some(spelling) = heads.begin_work() {
                let _ = spelling.names(&map(&[("x-ms-meta-a", "1")]));
            }
        }
    }
}
