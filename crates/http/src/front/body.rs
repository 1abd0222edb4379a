//! Bodies in both directions: bounded in bytes, in time, and over all requests together.

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
/// An answer of fewer bytes is not counted: the number of connections bounds those.
const SMALL: usize = 4 * UNIT;

/// Bytes of bodies in one direction, over all and for one account.
#[derive(Debug)]
pub(crate) struct Budget(Arc<Shares>);

/// A body with its share of the budget, given back when it goes.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) bytes: Bytes,
    _share: Option<Share>,
}

impl Budget {
    pub(crate) fn new(bytes: usize) -> Self {
        Self(Shares::new(bytes / UNIT))
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

    /// Counts the bytes of an answer until they are sent, however slowly the client reads.
    ///
    /// What has changed something must be answered, whatever else is being sent.
    pub(crate) fn answer(
        &self,
        body: Vec<u8>,
        account: AccountId,
        changed: bool,
    ) -> Result<Bytes, Refusal> {
        struct Counted(Vec<u8>, #[expect(dead_code, reason = "dropped with the bytes")] Share);

        impl AsRef<[u8]> for Counted {
            fn as_ref(&self) -> &[u8] {
                &self.0
            }
        }

        if body.len() < SMALL {
            return Ok(Bytes::from(body));
        }
        let units = body.len().div_ceil(UNIT);
        let share = match self.0.take(account, units) {
            Some(share) => share,
            None if changed => self.0.overdraw(account, units),
            None => return Err(Refusal::Busy),
        };
        Ok(Bytes::from_owner(Counted(body, share)))
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
                *share = self.0.take(account, more);
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
mod tests {
    use super::*;

    /// A client that is told 503 tries again: never after its write took effect.
    #[test]
    fn a_change_is_answered_even_when_nothing_is_left() {
        let budget = Budget::new(16 * UNIT);
        let account = AccountId(1);
        let large = || vec![0; 8 * UNIT];
        let unsent = budget.answer(large(), account, false).unwrap();
        assert!(matches!(budget.answer(large(), account, false), Err(Refusal::Busy)));
        assert!(budget.answer(large(), account, true).is_ok());
        assert!(budget.answer(vec![0; SMALL - 1], account, false).is_ok(), "small ones pass");
        drop(unsent);
        assert!(budget.answer(large(), account, false).is_ok(), "given back once sent");
    }
}
