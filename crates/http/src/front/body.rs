//! Bodies in both directions: bounded in bytes, in time, and over all requests together.

use super::answer::{AnswerBody, Page};
use super::refusal::Refusal;
use super::shares::{Share, Shares};
use bytes::{Bytes, BytesMut};
use http_body::Body;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use rowhouse_service_account::AccountId;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A client that sends nothing for so long has gone.
const IDLE: Duration = Duration::from_secs(10);
/// A body takes no longer than this, whatever the client does.
const WHOLE: Duration = Duration::from_mins(1);
/// After [`IDLE`], a body must have come at this rate at least, in bytes a second.
const RATE: usize = 8 * 1024;
/// How much of a refused body is read to keep the connection or to let the answer through.
const DRAIN_BYTES: usize = 1024 * 1024;
const DRAIN_TIME: Duration = Duration::from_millis(500);
/// The budget is counted in units of so many bytes.
const UNIT: usize = 4096;
/// How long an answer waits for room before what it tells of is done.
const ANSWER_WAIT: Duration = Duration::from_secs(2);
/// An answer of fewer bytes is not counted: the number of connections bounds those.
const SMALL: usize = 4 * UNIT;

/// Bytes of bodies in one direction, over all and for one account.
#[derive(Debug)]
pub(crate) struct Budget {
    units: Arc<Shares>,
    /// Places of those who wait for room.
    waiting: Arc<Shares>,
    /// How long they wait.
    patience: Duration,
}

/// Room for an answer that is still to be made.
#[derive(Debug)]
pub(crate) struct Reserved(Share);

/// A body with its share of the budget, given back when it goes.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) bytes: Bytes,
    _share: Option<Share>,
}

/// Counts a page while it is being sent.
#[derive(Debug)]
pub(crate) struct Tally {
    units: Arc<Shares>,
    account: AccountId,
    _rows: Share,
}

impl Tally {
    /// Counts a piece until it is sent. It cannot be refused any more; the connection asks for no more of them than it
    /// holds anyway.
    pub(crate) fn count(&self, piece: Vec<u8>) -> Bytes {
        let share = self.units.overdraw(self.account, piece.len().div_ceil(UNIT));
        counted(piece, share)
    }
}

/// Bytes that give a share back when they go.
fn counted(bytes: Vec<u8>, share: Share) -> Bytes {
    struct Counted(Vec<u8>, #[expect(dead_code, reason = "dropped with the bytes")] Share);

    impl AsRef<[u8]> for Counted {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }

    Bytes::from_owner(Counted(bytes, share))
}

impl Budget {
    /// So many bytes, and so many who may wait for some.
    pub(crate) fn new(bytes: usize, waiting: usize) -> Self {
        let (units, waiting) = (Shares::new(bytes / UNIT), Shares::new(waiting));
        Self { units, waiting, patience: ANSWER_WAIT }
    }

    /// Reads the whole body. What a client merely promises to send costs nothing.
    pub(crate) async fn read(
        &self,
        body: &mut Incoming,
        limit: usize,
        account: AccountId,
    ) -> Result<Held, Refusal> {
        if usize::try_from(body.size_hint().lower()).map_or(true, |length| limit < length) {
            return Err(Refusal::BodyTooLarge);
        }
        tokio::time::timeout(WHOLE, self.read_frames(body, limit, account))
            .await
            .unwrap_or(Err(Refusal::BodyAborted))
    }

    async fn read_frames(
        &self,
        body: &mut Incoming,
        limit: usize,
        account: AccountId,
    ) -> Result<Held, Refusal> {
        let started = Instant::now();
        let mut share: Option<Share> = None;
        let mut whole = BytesMut::new();
        let mut only: Option<Bytes> = None;
        let mut length = 0usize;
        while let Some(frame) =
            tokio::time::timeout(IDLE, body.frame()).await.map_err(|_| Refusal::BodyAborted)?
        {
            let Ok(data) = frame.map_err(|_| Refusal::BodyAborted)?.into_data() else { continue };
            length += data.len();
            if limit < length {
                return Err(Refusal::BodyTooLarge);
            }
            let late = started.elapsed().saturating_sub(IDLE).as_secs();
            if usize::try_from(late).unwrap_or(usize::MAX).saturating_mul(RATE) > length {
                return Err(Refusal::BodyAborted);
            }
            self.hold(&mut share, length, account)?;
            // Most bodies come in one piece: no copy.
            match only.take() {
                None if whole.is_empty() => only = Some(data),
                None => whole.extend_from_slice(&data),
                Some(first) => {
                    whole.extend_from_slice(&first);
                    whole.extend_from_slice(&data);
                }
            }
        }
        Ok(Held { bytes: only.unwrap_or_else(|| whole.freeze()), _share: share })
    }

    /// Room for an answer of about so many bytes, for what changes something and tells much: it must be refused before
    /// it is done. Waits a moment, for most of those who hold room need far less of it as soon as they are done.
    ///
    /// Where nobody holds anything there is always room: what is more than the half of all counts as that. An answer that
    /// turns out longer than expected counts in full, and nobody gets more room until there is some again.
    pub(crate) async fn reserve(
        &self,
        bytes: usize,
        account: AccountId,
    ) -> Result<Reserved, Refusal> {
        let units = bytes.div_ceil(UNIT).min(self.units.half());
        let _place = self.waiting.take(account, 1).ok_or(Refusal::Busy)?;
        let share = self.units.wait(account, units, self.patience).await.ok_or(Refusal::Busy)?;
        Ok(Reserved(share))
    }

    /// Counts the bytes of an answer until they are sent, however slowly the client reads. What was reserved for it
    /// beyond that is given back.
    ///
    /// What has changed something must be answered, whatever else is being sent.
    pub(crate) fn answer(
        &self,
        body: Vec<u8>,
        account: AccountId,
        changed: bool,
        reserved: Option<Reserved>,
    ) -> Result<Bytes, Refusal> {
        if body.len() < SMALL {
            return Ok(Bytes::from(body));
        }
        let units = body.len().div_ceil(UNIT);
        let share = match reserved {
            Some(Reserved(mut share)) => {
                share.settle(units);
                share
            }
            None => match self.units.take(account, units) {
                Some(share) => share,
                None if changed => self.units.overdraw(account, units),
                None => return Err(Refusal::Busy),
            },
        };
        Ok(counted(body, share))
    }

    /// Counts a page that is written while it is sent: its rows until its last piece is written, and each piece until it is
    /// sent. There must be room for the rows and the first piece.
    pub(crate) fn page(&self, page: Page, account: AccountId) -> Result<AnswerBody, Refusal> {
        let take =
            |bytes: usize| self.units.take(account, bytes.div_ceil(UNIT)).ok_or(Refusal::Busy);
        let (rows, first) = (take(page.held_bytes())?, take(page.first_bytes())?);
        let tally = Tally { units: Arc::clone(&self.units), account, _rows: rows };
        Ok(page.send(|bytes| counted(bytes, first), Some(tally)))
    }

    fn hold(
        &self,
        share: &mut Option<Share>,
        length: usize,
        account: AccountId,
    ) -> Result<(), Refusal> {
        let held = share.as_ref().map_or(0, Share::units);
        let more = length.div_ceil(UNIT).saturating_sub(held);
        let enough = match share {
            _ if more == 0 => true,
            Some(share) => share.grow(more),
            None => {
                *share = self.units.take(account, more);
                share.is_some()
            }
        };
        if enough { Ok(()) } else { Err(Refusal::Busy) }
    }
}

/// Reads and drops what is left, within limits, so that the answer is seen and the connection can be used
/// again. False beyond them: then the connection must be closed, and the client told so.
pub(crate) async fn drain(mut body: Incoming) -> bool {
    let read = async {
        let mut length = 0;
        while length <= DRAIN_BYTES && !body.is_end_stream() {
            match body.frame().await {
                Some(Ok(frame)) => length += frame.data_ref().map_or(0, Bytes::len),
                Some(Err(_)) => return false,
                None => return true,
            }
        }
        body.is_end_stream()
    };
    tokio::time::timeout(DRAIN_TIME, read).await.unwrap_or(false)
}

#[cfg(test)]
impl Budget {
    /// Bytes that are counted now.
    pub(crate) fn taken_bytes(&self) -> usize {
        self.units.taken() * UNIT
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::front::answer::Content;
    use rowhouse_types::{RecordBuilder, Row, Rows, Timestamp, ValueRef};
    use rowhouse_wire::entity::{Context, PageWriter};
    use rowhouse_wire::media::Metadata;

    fn budget(units: usize) -> Budget {
        Budget { patience: Duration::from_millis(50), ..Budget::new(units * UNIT, 8) }
    }

    /// A client that is told 503 tries again: never after its write took effect.
    #[test]
    fn a_change_is_answered_even_when_nothing_is_left() {
        let (budget, account) = (budget(16), AccountId(1));
        let large = || vec![0; 8 * UNIT];
        let answer = |body, changed| budget.answer(body, account, changed, None);
        let unsent = answer(large(), false).unwrap();
        assert!(matches!(answer(large(), false), Err(Refusal::Busy)));
        assert!(answer(large(), true).is_ok());
        assert!(answer(vec![0; SMALL - 1], false).is_ok(), "small ones pass");
        drop(unsent);
        assert!(answer(large(), false).is_ok(), "given back once sent");
    }

    /// Of 64 units, one account has 56: for the 32 of the rows and the 17 of a first piece once.
    #[test]
    fn a_page_is_refused_where_there_is_no_room_for_its_rows() {
        let mut builder = RecordBuilder::new();
        builder.push("text", ValueRef::String(&"x".repeat(UNIT))).unwrap();
        let record = builder.finish(Timestamp::EDM_MIN);
        let mut rows = Rows::new();
        while rows.byte_len() < 31 * UNIT {
            rows.push(&Row { partition: "", row: "", record: record.as_ref() });
        }
        let (base, account, table) = ("", "", "");
        let cx = Context { base, account, table, level: Metadata::None, select: None };
        let page = || match Content::page(PageWriter::new(&cx, None, rows.clone())) {
            Ok(Content::Page(page)) => *page,
            other => panic!("{other:?}"),
        };
        let (budget, account) = (budget(64), AccountId(1));
        let sent = budget.page(page(), account).unwrap();
        assert_eq!(budget.units.taken(), 32 + 17);
        assert!(matches!(budget.page(page(), account), Err(Refusal::Busy)));
        assert_eq!(budget.units.taken(), 32 + 17, "nothing is kept of what was refused");
        drop(sent);
        assert_eq!(budget.units.taken(), 0);
        assert!(budget.page(page(), account).is_ok());
    }

    #[tokio::test]
    async fn what_is_reserved_is_there_until_the_answer_is_made() {
        let (budget, account) = (budget(64), AccountId(1));
        let mut held = Vec::new();
        while let Ok(reserved) = budget.reserve(8 * UNIT, account).await {
            held.push(reserved);
        }
        assert_eq!(held.len(), 7, "all but an eighth");
        let small = budget.answer(vec![0; 1], account, true, held.pop()).unwrap();
        let large = budget.answer(vec![0; 6 * UNIT], account, true, held.pop()).unwrap();
        assert_eq!(budget.units.taken(), 5 * 8 + 6, "what is not needed is given back");
        let larger = budget.answer(vec![0; 10 * UNIT], account, true, held.pop()).unwrap();
        assert_eq!(budget.units.taken(), 4 * 8 + 6 + 10, "and what is needed counts");
        drop((small, large, larger, held));
        assert_eq!(budget.units.taken(), 0);
    }

    #[tokio::test]
    async fn who_is_alone_has_room_for_any_answer() {
        let (budget, account) = (budget(1024), AccountId(1));
        let whole = budget.reserve(usize::MAX, account).await.unwrap();
        assert!(budget.reserve(usize::MAX, account).await.is_err(), "one at a time");
        let next = budget.reserve(usize::MAX, account);
        let (next, sent) =
            tokio::join!(next, async { budget.answer(vec![0; SMALL], account, true, Some(whole)) });
        assert!(next.is_ok() && sent.is_ok(), "who waits gets what is given back");
    }

    #[tokio::test]
    async fn not_too_many_wait() {
        let (budget, account) = (Arc::new(Budget::new(16 * UNIT, 8)), AccountId(1));
        let held = budget.reserve(usize::MAX, account).await.unwrap();
        let asked: Vec<_> = (0..20)
            .map(|_| {
                let budget = Arc::clone(&budget);
                tokio::spawn(async move { budget.reserve(usize::MAX, account).await.is_ok() })
            })
            .collect();
        tokio::task::yield_now().await;
        let refused = asked.iter().filter(|asked| asked.is_finished()).count();
        assert_eq!(refused, 20 - 7, "an eighth of the places is kept for others");
        drop(held);
        let mut served = 0;
        for asked in asked {
            served += usize::from(asked.await.unwrap());
        }
        assert_eq!(served, 7);
    }
}
