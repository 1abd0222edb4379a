//! Checksums of the pages in the write-ahead log, in memory.
//!
//! SQLite writes checksums into the log and looks at them when it recovers it, but not when it reads
//! a page from it. So the layer below SQLite remembers what was written, for all connections of this
//! process to one log; no other process uses the database. When SQLite recovers a log it reads it
//! whole, and what it reads is remembered.

use super::PAGE_BYTES;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};

/// Bytes before the first frame.
pub(super) const HEADER_BYTES: usize = 32;
/// Bytes of a frame before its page.
pub(super) const FRAME_HEADER_BYTES: usize = 24;
/// Bytes of a frame.
pub(super) const FRAME_BYTES: usize = FRAME_HEADER_BYTES + PAGE_BYTES;
/// The same, as distances in the file.
const HEADER: u64 = HEADER_BYTES as u64;
const FRAME_HEADER: u64 = FRAME_HEADER_BYTES as u64;
const FRAME: u64 = FRAME_BYTES as u64;
/// Set in the entry of a frame whose checksum is known.
const KNOWN: u64 = 1 << 32;

/// The checksums of one log.
#[derive(Debug, Default)]
pub(super) struct LogSums {
    frames: RwLock<Vec<AtomicU64>>,
}

impl LogSums {
    /// Those of the log at a path, shared with every other connection to it.
    pub(super) fn of(path: &Path) -> Arc<Self> {
        static ALL: Mutex<Option<HashMap<PathBuf, Weak<LogSums>>>> = Mutex::new(None);
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        let all = all.get_or_insert_default();
        if let Some(sums) = all.get(path).and_then(Weak::upgrade) {
            return sums;
        }
        all.retain(|_, sums| sums.strong_count() > 0);
        let sums = Arc::new(Self::default());
        all.insert(path.to_owned(), Arc::downgrade(&sums));
        sums
    }

    /// Remembers what bytes of the log are now. Of a frame of which only a part is written nothing
    /// is known.
    pub(super) fn wrote(&self, offset: u64, bytes: &[u8]) {
        match frame_of(offset, bytes) {
            Some((frame, page)) => self.set(frame, KNOWN | u64::from(crc32fast::hash(page))),
            None => self.forget(offset, bytes.len() as u64),
        }
    }

    /// Whether bytes that were read are what was written; the number of the frame, from 1, if not.
    /// What is not known yet is remembered.
    pub(super) fn read(&self, offset: u64, bytes: &[u8]) -> Result<(), u32> {
        let Some((frame, page)) = frame_of(offset, bytes) else { return Ok(()) };
        let sum = KNOWN | u64::from(crc32fast::hash(page));
        let known = self.get(frame);
        if known & KNOWN == 0 {
            self.set(frame, sum);
            return Ok(());
        }
        if known == sum { Ok(()) } else { Err(u32::try_from(frame + 1).unwrap_or(u32::MAX)) }
    }

    /// The log is this long now.
    pub(super) fn cut(&self, length: u64) {
        self.forget(length, u64::MAX - length);
    }

    fn get(&self, frame: u64) -> u64 {
        let frames = self.frames.read().unwrap_or_else(PoisonError::into_inner);
        let at = usize::try_from(frame).unwrap_or(usize::MAX);
        frames.get(at).map_or(0, |sum| sum.load(Ordering::Acquire))
    }

    fn set(&self, frame: u64, sum: u64) {
        let at = usize::try_from(frame).unwrap_or(usize::MAX);
        {
            let frames = self.frames.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(known) = frames.get(at) {
                known.store(sum, Ordering::Release);
                return;
            }
        }
        let mut frames = self.frames.write().unwrap_or_else(PoisonError::into_inner);
        if frames.len() <= at {
            frames.resize_with(at + 1, AtomicU64::default);
        }
        frames[at].store(sum, Ordering::Release);
    }

    /// What is known of frames that have a byte in this part of the file is not true any more.
    fn forget(&self, offset: u64, length: u64) {
        // The header of the file, and those of frames, are not part of any page.
        if length <= FRAME_HEADER && offset >= HEADER && (offset - HEADER).is_multiple_of(FRAME) {
            return;
        }
        let first = offset.saturating_sub(HEADER) / FRAME;
        let end = offset.saturating_add(length);
        let last = end.saturating_sub(HEADER).div_ceil(FRAME);
        let frames = self.frames.read().unwrap_or_else(PoisonError::into_inner);
        let (first, last) = (
            usize::try_from(first).unwrap_or(usize::MAX).min(frames.len()),
            usize::try_from(last).unwrap_or(usize::MAX).min(frames.len()),
        );
        for known in &frames[first..last.max(first)] {
            known.store(0, Ordering::Release);
        }
    }
}

/// The frame whose page these bytes of the log are, alone or behind its header, and the page.
fn frame_of(offset: u64, bytes: &[u8]) -> Option<(u64, &[u8])> {
    let behind = offset.checked_sub(HEADER)?;
    let (frame, within) = (behind / FRAME, behind % FRAME);
    match (within, bytes.len()) {
        (FRAME_HEADER, PAGE_BYTES) => Some((frame, bytes)),
        (0, length) if length as u64 == FRAME => Some((frame, &bytes[length - PAGE_BYTES..])),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page_at(frame: u64) -> u64 {
        HEADER + frame * FRAME + FRAME_HEADER
    }

    #[test]
    fn what_was_written_is_what_may_be_read() {
        let sums = LogSums::default();
        let (one, other) = ([1; PAGE_BYTES], [2; PAGE_BYTES]);
        sums.wrote(page_at(0), &one);
        sums.wrote(page_at(5), &other);
        // The header of the next frame changes nothing of this one.
        sums.wrote(HEADER + FRAME, &[9; FRAME_HEADER_BYTES]);
        assert_eq!(sums.read(page_at(0), &one), Ok(()));
        assert_eq!(sums.read(page_at(0), &other), Err(1));
        assert_eq!(sums.read(page_at(5), &other), Ok(()));
        assert_eq!(sums.read(page_at(5), &one), Err(6));
        // Nobody knows what these were; from the first time on they must stay as they are.
        assert_eq!(sums.read(page_at(3), &one), Ok(()));
        assert_eq!(sums.read(page_at(3), &other), Err(4));
        let whole: Vec<u8> = [7; FRAME_HEADER_BYTES].into_iter().chain(other).collect();
        assert_eq!(sums.read(HEADER + 9 * FRAME, &whole), Ok(()), "as recovery reads");
        assert_eq!(sums.read(page_at(9), &one), Err(10));
    }

    #[test]
    fn what_is_cut_off_or_written_in_part_is_not_known() {
        let sums = LogSums::default();
        for frame in 0..4 {
            sums.wrote(page_at(frame), &[1; PAGE_BYTES]);
        }
        sums.wrote(page_at(1), &[3; 100]);
        sums.cut(HEADER + 3 * FRAME);
        let other = [2; PAGE_BYTES];
        assert_eq!(sums.read(page_at(0), &other), Err(1));
        assert_eq!(sums.read(page_at(1), &other), Ok(()));
        assert_eq!(sums.read(page_at(2), &other), Err(3));
        assert_eq!(sums.read(page_at(3), &other), Ok(()));
        sums.cut(0);
        assert_eq!(sums.read(page_at(0), &[5; PAGE_BYTES]), Ok(()));
    }
}
