//! How slowly a backup may be read.
//!
//! While a backup is taken the store keeps the state of one moment: the write-ahead log cannot be restarted, and on
//! PostgreSQL nothing can be vacuumed. A client that reads a little now and then would keep it so for ever. So the time that
//! the client keeps the backup waiting is limited.

use crate::error::BackupError;
use rowhouse_types::limits::{BACKUP_BYTES_PER_SECOND_MIN, BACKUP_WAIT_SECONDS_MAX};
use std::time::Duration;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::time::{Instant, timeout};

/// What the client has read, and how long it has kept the backup waiting.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    bytes: u64,
    waited: Duration,
}

impl Pace {
    /// Writes all of it, unless the client is too slow.
    pub(crate) async fn write<W: AsyncWrite + Unpin>(
        &mut self,
        sink: &mut W,
        bytes: &[u8],
    ) -> Result<(), BackupError> {
        self.bytes += bytes.len() as u64;
        let began = Instant::now();
        let written = timeout(self.left(), sink.write_all(bytes)).await;
        self.waited += began.elapsed();
        match written {
            Ok(written) => written.map_err(BackupError::Sink),
            Err(_) => Err(BackupError::SlowReader { bytes: self.bytes, waited: self.waited }),
        }
    }

    /// How much longer the client may take.
    fn left(&self) -> Duration {
        let needed = Duration::from_secs(self.bytes / BACKUP_BYTES_PER_SECOND_MIN);
        (Duration::from_secs(BACKUP_WAIT_SECONDS_MAX) + needed).saturating_sub(self.waited)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt as _;

    /// How long a backup of so many bytes lasts that is read at so many a second, and whether it came to its end.
    async fn taken(bytes: usize, a_second: usize) -> (Duration, bool) {
        let (mut sink, mut source) = tokio::io::duplex(1024);
        let reading = tokio::spawn(async move {
            let mut buffer = vec![0; a_second];
            while source.read_exact(&mut buffer).await.is_ok() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
        let (began, mut pace) = (Instant::now(), Pace::default());
        let frame = vec![0; 128 * 1024];
        let mut is_whole = true;
        for _ in 0..bytes / frame.len() {
            is_whole = pace.write(&mut sink, &frame).await.is_ok();
            if !is_whole {
                break;
            }
        }
        drop(sink);
        reading.await.unwrap();
        (began.elapsed(), is_whole)
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_reader_is_not_waited_for_without_end() {
        let (lasted, is_whole) = taken(1 << 30, 32 * 1024).await;
        assert!(!is_whole, "{lasted:?}");
        let most = Duration::from_secs(BACKUP_WAIT_SECONDS_MAX * 4 / 3);
        assert!(lasted < most, "{lasted:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_is_just_fast_enough_gets_all() {
        let (lasted, is_whole) = taken(200 << 20, 300 * 1024).await;
        assert!(is_whole && Duration::from_mins(10) < lasted, "{lasted:?}");
    }
}
