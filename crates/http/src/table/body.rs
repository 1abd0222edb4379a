//! Reading bodies without trusting them: bounded in bytes, in time, and over all requests together.

use super::error::Failure;
use bytes::{Bytes, BytesMut};
use http_body::Body;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit};

/// A client that sends nothing for so long has gone.
const IDLE: Duration = Duration::from_secs(10);
/// A body takes no longer than this, whatever the client does.
const WHOLE: Duration = Duration::from_mins(1);
/// How much of a refused body is read to keep the connection or to let the answer through.
const DRAIN_BYTES: usize = 1024 * 1024;
const DRAIN_TIME: Duration = Duration::from_millis(500);
/// The budget is counted in units of so many bytes.
const UNIT: usize = 4096;

/// Bytes of bodies that all requests together may hold.
#[derive(Debug)]
pub(crate) struct Budget(Semaphore);

/// A body with its share of the budget, given back when it goes.
#[derive(Debug)]
pub(crate) struct Held<'a> {
    pub(crate) bytes: Bytes,
    _share: Option<SemaphorePermit<'a>>,
}

impl Budget {
    pub(crate) fn new(bytes: usize) -> Self {
        Self(Semaphore::new((bytes / UNIT).clamp(1, Semaphore::MAX_PERMITS)))
    }

    /// Reads the whole body. What a client merely promises to send costs nothing.
    pub(crate) async fn read(
        &self,
        body: &mut Incoming,
        limit: usize,
    ) -> Result<Held<'_>, Failure> {
        if usize::try_from(body.size_hint().lower()).map_or(true, |length| limit < length) {
            return Err(Failure::BodyTooLarge);
        }
        tokio::time::timeout(WHOLE, self.read_frames(body, limit))
            .await
            .unwrap_or(Err(Failure::BodyAborted))
    }

    async fn read_frames(&self, body: &mut Incoming, limit: usize) -> Result<Held<'_>, Failure> {
        let mut share: Option<SemaphorePermit<'_>> = None;
        let mut whole = BytesMut::new();
        let mut only: Option<Bytes> = None;
        let mut length = 0usize;
        while let Some(frame) =
            tokio::time::timeout(IDLE, body.frame()).await.map_err(|_| Failure::BodyAborted)?
        {
            let Ok(data) = frame.map_err(|_| Failure::BodyAborted)?.into_data() else { continue };
            length += data.len();
            if limit < length {
                return Err(Failure::BodyTooLarge);
            }
            let held = share.as_ref().map_or(0, SemaphorePermit::num_permits) * UNIT;
            if held < length {
                let more = u32::try_from((length - held).div_ceil(UNIT)).unwrap_or(u32::MAX);
                let more = self.0.try_acquire_many(more).map_err(|_| Failure::Busy)?;
                match &mut share {
                    Some(share) => share.merge(more),
                    None => share = Some(more),
                }
            }
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
