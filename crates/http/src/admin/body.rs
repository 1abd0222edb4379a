//! Bodies of the admin listener: whole ones, and a backup that is made while it is sent.

use crate::BoxError;
use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use hyper::body::Incoming;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, DuplexStream, ReadBuf};
use tokio::sync::oneshot;

/// Bytes that are handed on at a time.
const CHUNK: usize = 64 * 1024;

/// An answer of this listener.
pub(super) type Response = http::Response<AdminBody>;

/// What an answer of the admin listener carries.
#[derive(Debug)]
pub struct AdminBody(Inner);

#[derive(Debug)]
enum Inner {
    Whole(Full<Bytes>),
    Stream(Stream),
}

/// Bytes that somebody is writing, and whether they were all.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) bytes: DuplexStream,
    /// Comes after the last byte. Without it, or with `false`, the body is broken off instead of ended.
    pub(super) finished: oneshot::Receiver<bool>,
}

impl From<Bytes> for AdminBody {
    fn from(bytes: Bytes) -> Self {
        Self(Inner::Whole(Full::new(bytes)))
    }
}

impl From<Stream> for AdminBody {
    fn from(stream: Stream) -> Self {
        Self(Inner::Stream(stream))
    }
}

impl Body for AdminBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut self.0 {
            Inner::Whole(body) => Pin::new(body).poll_frame(cx).map_err(Into::into),
            Inner::Stream(stream) => stream.poll_chunk(cx).map_ok(Frame::data),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Inner::Whole(body) => body.is_end_stream(),
            Inner::Stream(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Inner::Whole(body) => body.size_hint(),
            Inner::Stream(_) => SizeHint::default(),
        }
    }
}

impl Stream {
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BoxError>>> {
        let mut chunk = BytesMut::zeroed(CHUNK);
        let mut buffer = ReadBuf::new(&mut chunk);
        ready!(Pin::new(&mut self.bytes).poll_read(cx, &mut buffer))?;
        let read = buffer.filled().len();
        if 0 < read {
            chunk.truncate(read);
            return Poll::Ready(Some(Ok(chunk.freeze())));
        }
        let finished = ready!(pin!(&mut self.finished).poll(cx));
        if finished.is_ok_and(|finished| finished) {
            return Poll::Ready(None);
        }
        Poll::Ready(Some(Err("it could not be made to its end".into())))
    }
}

/// The body of a request as a stream of bytes.
#[derive(Debug)]
pub(super) struct Received {
    body: Incoming,
    chunk: Bytes,
}

impl Received {
    pub(super) fn new(body: Incoming) -> Self {
        Self { body, chunk: Bytes::new() }
    }
}

impl AsyncRead for Received {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.chunk.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => self.chunk = frame.into_data().unwrap_or_default(),
                Some(Err(error)) => return Poll::Ready(Err(io::Error::other(error))),
                None => return Poll::Ready(Ok(())),
            }
        }
        let count = self.chunk.len().min(buffer.remaining());
        buffer.put_slice(&self.chunk.split_to(count));
        Poll::Ready(Ok(()))
    }
}
