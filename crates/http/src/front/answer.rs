//! What an answer carries: bytes that are there, or a page that is written while it is sent.
//!
//! A large page is written piece by piece from the stored records, each piece when the connection has room for it, and
//! after each the connection goes to the end of the line: others on the same thread have their turn. (The HTTP library asks a
//! second time before it lets go, so a turn writes two pieces at most.) The first piece is written before the status is sent.
//! An entity is never divided: a piece is as long as its last one makes it.
//!
//! The rows and the pieces that are not sent yet count in the budget of answers until they go; that is decided while the
//! request can still be refused. Who takes a page more slowly than [`limits::SEND_BYTES_PER_SECOND_MIN`] is cut off, as with any
//! other answer.
//!
//! The structure of records is checked where they are read from the store; whether text is text, a Boolean 0 or 1 and
//! a DateTime in range is seen only where they are written. To look ahead would take half as long as to
//! write them, or longer. So what does not decode is answered with 500 if it is in the first piece; beyond that the body breaks off, which
//! every client notices, and the log says so.

use super::body::Tally;
use crate::BoxError;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use rowhouse_types::{Corrupt, limits};
use rowhouse_wire::entity::PageWriter;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

/// What is less than one part in so many of its rows is not worth holding them.
const LITTLE: usize = 4;

/// What a reply says, before it is counted.
#[derive(Debug)]
pub(crate) enum Content {
    Whole(Vec<u8>),
    Page(Box<Page>),
}

/// A page of which there is more than its first piece.
#[derive(Debug)]
pub(crate) struct Page {
    first: Vec<u8>,
    rest: PageWriter,
}

/// The body of an answer, counted until it is sent.
#[derive(Debug)]
pub struct AnswerBody(Inner);

#[derive(Debug)]
enum Inner {
    Whole(Full<Bytes>),
    Page(Box<Sending>),
}

#[derive(Debug)]
struct Sending {
    /// The piece that was written before the status was sent.
    first: Option<Bytes>,
    rest: PageWriter,
    tally: Option<Tally>,
    /// Whether others are to have their turn before the next piece is written.
    rests: bool,
    began: Instant,
    /// Bytes handed on so far.
    handed: u64,
}

impl Default for Content {
    fn default() -> Self {
        Self::Whole(Vec::new())
    }
}

impl From<Vec<u8>> for Content {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Whole(bytes)
    }
}

impl Content {
    /// A page that is written while it is sent, unless its first piece is all of it. Where few properties are selected, what
    /// is sent is much less than the rows that would be held for it, and is written at once too.
    pub(crate) fn page(mut page: PageWriter) -> Result<Self, Corrupt> {
        let first = page.piece(limits::PAGE_PIECE_BYTES)?;
        if page.is_ended() {
            return Ok(Self::Whole(first));
        }
        let is_little = page.expected_bytes(first.len()) < page.held_bytes() / LITTLE;
        let page = Self::Page(Box::new(Page { first, rest: page }));
        if is_little { page.into_whole().map(Self::Whole) } else { Ok(page) }
    }

    /// All of it at once, for an answer inside another one.
    pub(crate) fn into_whole(self) -> Result<Vec<u8>, Corrupt> {
        let Page { first: mut whole, mut rest } = match self {
            Self::Whole(bytes) => return Ok(bytes),
            Self::Page(page) => *page,
        };
        while !rest.is_ended() {
            whole.extend_from_slice(&rest.piece(limits::PAGE_PIECE_BYTES)?);
        }
        Ok(whole)
    }
}

impl Page {
    /// Bytes of stored rows that it holds until it is sent.
    pub(crate) fn held_bytes(&self) -> usize {
        self.rest.held_bytes()
    }

    /// Bytes of its first piece.
    pub(crate) fn first_bytes(&self) -> usize {
        self.first.len()
    }

    /// Ready to be sent. `count` is asked about the first piece, the tally about all others.
    pub(crate) fn send(
        self,
        count: impl FnOnce(Vec<u8>) -> Bytes,
        tally: Option<Tally>,
    ) -> AnswerBody {
        let Self { first, rest } = self;
        let first = Some(count(first));
        let (rests, began, handed) = (false, Instant::now(), 0);
        AnswerBody(Inner::Page(Box::new(Sending { first, rest, tally, rests, began, handed })))
    }
}

impl From<Bytes> for AnswerBody {
    fn from(bytes: Bytes) -> Self {
        Self(Inner::Whole(Full::new(bytes)))
    }
}

impl From<Content> for AnswerBody {
    /// Counted nowhere: for what says that something failed, and for what is asked without an account.
    fn from(content: Content) -> Self {
        match content {
            Content::Whole(bytes) => Bytes::from(bytes).into(),
            Content::Page(page) => page.send(Bytes::from, None),
        }
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut self.0 {
            Inner::Whole(body) => Pin::new(body).poll_frame(cx).map_err(Into::into),
            Inner::Page(page) => page.poll_piece(cx).map_ok(Frame::data),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Inner::Whole(body) => body.is_end_stream(),
            Inner::Page(page) => page.first.is_none() && page.rest.is_ended(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Inner::Whole(body) => body.size_hint(),
            Inner::Page(_) => SizeHint::default(),
        }
    }
}

impl Sending {
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BoxError>>> {
        if self.first.is_none() && self.rest.is_ended() {
            return Poll::Ready(None);
        }
        if std::mem::take(&mut self.rests) {
            // Not by waking itself: the runtime would look for news of other connections only after many such turns.
            ready!(pin!(tokio::task::yield_now()).poll(cx));
        }
        let piece = match self.first.take() {
            Some(first) => Ok(first),
            None => self.next(),
        };
        self.rests = true;
        self.handed += piece.as_ref().map_or(0, |piece| piece.len() as u64);
        Poll::Ready(Some(piece))
    }

    fn next(&mut self) -> Result<Bytes, BoxError> {
        // It is asked for when the client has taken all but what the connection holds back.
        let earned = self.handed / limits::SEND_BYTES_PER_SECOND_MIN;
        if Duration::from_secs(limits::HEAD_SECONDS_MAX + earned) < self.began.elapsed() {
            return Err("the client takes the page too slowly".into());
        }
        let piece = self.rest.piece(limits::PAGE_PIECE_BYTES).inspect_err(|error| {
            tracing::error!(%error, "a page broke off");
        })?;
        Ok(match &self.tally {
            Some(tally) => tally.count(piece),
            None => Bytes::from(piece),
        })
    }
}

#[cfg(test)]
mod tests;
