//! Notices a damaged write-ahead log before SQLite recovers it.
//!
//! SQLite goes through a log that a killed process left behind up to the first frame whose checksum is
//! wrong, and forgets the rest: that is how it forgets what a power cut left of the last
//! transaction. A bit that flipped further in front looks the same to it, and everything that was
//! acknowledged later would vanish without a word.
//!
//! The two can be told apart. A transaction is on the disk before the next one begins, so a wrong
//! frame that is followed by a later transaction was right once. Only damage to the last
//! transaction cannot be told from one that was never finished.

use super::Damage;
use super::log_sums::{FRAME_BYTES, FRAME_HEADER_BYTES, HEADER_BYTES};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

/// The first bytes of a log whose checksums are of little endian numbers; of big endian ones with the last bit set.
const MAGIC: u32 = 0x377F_0682;

/// The first damage of the log that SQLite would take for its end, if there is any. Frame 0 is the
/// header of the file.
pub(crate) fn damage(log: &Path) -> io::Result<Option<Damage>> {
    match File::open(log) {
        Ok(file) => find(BufReader::with_capacity(1024 * 1024, file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// SQLite's checksum of a log: two sums that go on from frame to frame.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Chain {
    sums: (u32, u32),
    big_endian: bool,
}

impl Chain {
    fn add(&mut self, bytes: &[u8]) {
        let number = |four: &[u8]| {
            let four = four.try_into().unwrap_or_default();
            if self.big_endian { u32::from_be_bytes(four) } else { u32::from_le_bytes(four) }
        };
        let (mut one, mut two) = self.sums;
        for eight in bytes.chunks_exact(8) {
            one = one.wrapping_add(number(&eight[..4])).wrapping_add(two);
            two = two.wrapping_add(number(&eight[4..])).wrapping_add(one);
        }
        self.sums = (one, two);
    }
}

fn field(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|four| four.try_into().ok()).map_or(0, u32::from_be_bytes)
}

fn find(mut log: impl Read) -> io::Result<Option<Damage>> {
    let mut header = [0; HEADER_BYTES];
    if fill(&mut log, &mut header)? < header.len() {
        return Ok(None);
    }
    let says = |big_endian| {
        let mut chain = Chain { sums: (0, 0), big_endian };
        chain.add(&header[..24]);
        let magic = MAGIC | u32::from(big_endian);
        let is_right =
            field(&header, 0) == magic && chain.sums == (field(&header, 24), field(&header, 28));
        (chain, is_right)
    };
    // What a wrong header says of the order of bytes may be what is wrong with it.
    let native = cfg!(target_endian = "big");
    let (chain, is_header_right) = match says(!native) {
        (chain, true) => (chain, true),
        _ => says(native),
    };
    let big_endian = chain.big_endian;
    let mut salts = is_header_right.then(|| (field(&header, 16), field(&header, 20)));
    // What the frame before says that the next goes on from, and what it should say.
    let mut before = (chain.sums, chain.sums);
    if !is_header_right {
        before.1 = (field(&header, 24), field(&header, 28));
    }
    // The first frame that SQLite would stop at.
    let mut wrong = (!is_header_right).then_some(0);
    // A transaction has ended behind that frame, with the frame before the one that is looked at.
    let mut has_ended = false;
    let mut frame = vec![0; FRAME_BYTES];
    for number in 1_u32.. {
        if fill(&mut log, &mut frame)? < FRAME_BYTES {
            break;
        }
        let of_frame = (field(&frame, 8), field(&frame, 12));
        let stored = (field(&frame, 16), field(&frame, 20));
        // What a frame goes on from is what the one before it says or, if that is what was damaged, what it should say.
        let goes_on = |from: (u32, u32)| {
            let mut chain = Chain { sums: from, big_endian };
            chain.add(&frame[..8]);
            chain.add(&frame[FRAME_HEADER_BYTES..]);
            chain.sums
        };
        let sums = goes_on(before.0);
        let is_right = sums == stored || before.0 != before.1 && goes_on(before.1) == stored;
        let is_linked = is_right && *salts.get_or_insert(of_frame) == of_frame;
        before = (stored, sums);
        match wrong {
            None if is_linked => {}
            None => wrong = Some(number),
            // A frame that is right, of a later transaction.
            Some(wrong) if is_linked && has_ended => return Ok(Some(Damage::Frame(wrong))),
            // Only a frame that is right says that its transaction was complete. One that does not go on from it was there
            // before: of a transaction that was given up.
            Some(_) => has_ended = is_linked && field(&frame, 4) != 0,
        }
    }
    Ok(None)
}

/// Reads until the buffer is full or nothing is left; how much there was.
fn fill(from: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut length = 0;
    while length < buffer.len() {
        match from.read(&mut buffer[length..]) {
            Ok(0) => break,
            Ok(read) => length += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(length)
}

/// The pages of which the log has a version, whatever is in the database.
pub(crate) fn pages(log: &Path) -> io::Result<BTreeSet<u32>> {
    let mut pages = BTreeSet::new();
    let mut log = match File::open(log) {
        Ok(file) => BufReader::with_capacity(1024 * 1024, file),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(pages),
        Err(error) => return Err(error),
    };
    let mut header = [0; HEADER_BYTES];
    if fill(&mut log, &mut header)? < header.len() {
        return Ok(pages);
    }
    let salts = (field(&header, 16), field(&header, 20));
    let mut frame = vec![0; FRAME_BYTES];
    while fill(&mut log, &mut frame)? == FRAME_BYTES {
        if (field(&frame, 8), field(&frame, 12)) == salts {
            pages.insert(field(&frame, 0));
        }
    }
    Ok(pages)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::Connection;

    /// A log of so many transactions, as a killed process leaves it.
    fn left_behind(transactions: usize) -> Vec<u8> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("test.db");
        let conn = Connection::open(&path).unwrap();
        conn.execute_batch(
            "PRAGMA page_size = 4096; PRAGMA journal_mode = WAL; CREATE TABLE t (a)",
        )
        .unwrap();
        for _ in 1..transactions {
            conn.execute("INSERT INTO t VALUES (randomblob(5000))", []).unwrap();
        }
        let log = std::fs::read(directory.path().join("test.db-wal")).unwrap();
        drop(conn);
        log
    }

    fn found(log: &[u8]) -> Option<Damage> {
        find(log).unwrap()
    }

    #[test]
    fn damage_before_the_last_transaction_is_noticed() {
        let log = left_behind(6);
        assert_eq!(found(&log), None);
        let frames = (log.len() - HEADER_BYTES) / FRAME_BYTES;
        // The first frame of the last transaction follows the last commit but one.
        let at = |frame: usize| HEADER_BYTES + (frame - 1) * FRAME_BYTES;
        let commits: Vec<_> = (1..=frames).filter(|n| field(&log, at(*n) + 4) != 0).collect();
        let last = commits[commits.len() - 2];
        let mut flipped = log.clone();
        for frame in 1..=frames {
            for byte in [0, 3, 5, 9, 13, 17, 22, 24, 700, FRAME_BYTES - 1] {
                flipped[at(frame) + byte] ^= 0x10;
                let damage = found(&flipped);
                flipped[at(frame) + byte] ^= 0x10;
                if frame < last {
                    assert_eq!(damage, Some(Damage::Frame(u32::try_from(frame).unwrap())));
                } else if frame > last {
                    assert_eq!(damage, None, "as a power cut would leave it: frame {frame}");
                }
            }
        }
        for byte in 0..HEADER_BYTES {
            flipped[byte] ^= 1;
            assert_eq!(found(&flipped), Some(Damage::Frame(0)), "byte {byte} of the header");
            flipped[byte] ^= 1;
        }
    }

    #[test]
    fn what_a_power_cut_leaves_is_not_damage() {
        let log = left_behind(4);
        for length in (0..log.len()).step_by(997) {
            assert_eq!(found(&log[..length]), None, "cut at {length}");
            // The file has its length, and the end was not written.
            let mut zeros = log[..length].to_vec();
            zeros.resize(log.len(), 0);
            assert_eq!(found(&zeros), None, "zeros from {length} on");
        }
    }

    /// Frames of a log as SQLite writes them: each goes on from the one before it.
    fn written(from: &[u8], commits: &[bool], fill: u8) -> Vec<u8> {
        let mut log = from.to_vec();
        for (number, commit) in (1..).zip(commits) {
            let seed = if log.len() == HEADER_BYTES { 24 } else { log.len() - FRAME_BYTES + 16 };
            let sums = (field(&log, seed), field(&log, seed + 4));
            let mut frame = vec![fill; FRAME_BYTES];
            frame[..4].copy_from_slice(&u32::to_be_bytes(number));
            frame[4..8].copy_from_slice(&u32::to_be_bytes(u32::from(*commit)));
            frame[8..16].copy_from_slice(&log[16..24]);
            let mut chain = Chain { sums, big_endian: false };
            chain.add(&frame[..8]);
            chain.add(&frame[FRAME_HEADER_BYTES..]);
            frame[16..20].copy_from_slice(&chain.sums.0.to_be_bytes());
            frame[20..24].copy_from_slice(&chain.sums.1.to_be_bytes());
            log.extend(frame);
        }
        log
    }

    /// What transactions leave behind that were given up, or cut off by a power cut, is overwritten by shorter ones. What still
    /// shows of it is no damage.
    #[test]
    fn leftovers_are_not_damage() {
        let header = &left_behind(1)[..HEADER_BYTES];
        let first = written(header, &[true], 1);
        assert_eq!(found(&written(&first, &[false, true, true], 2)), None);
        let given_up = written(&first, &[false; 12], 3);
        let mut cut_off = written(&first, &[false, false, false, false, true], 4);
        assert_eq!(found(&cut_off), None);
        cut_off.extend(&given_up[cut_off.len()..]);
        assert_eq!(found(&cut_off), None);
        // The page of its second frame was not written: nothing of it counts.
        cut_off[first.len() + FRAME_BYTES + 100] ^= 1;
        assert_eq!(found(&cut_off), None);
        // The next one is shorter.
        let mut next = written(&first, &[true], 5);
        next.extend(&cut_off[next.len()..]);
        assert_eq!(found(&next), None);
        let mut longer = written(&first, &[false, true], 6);
        longer.extend(&cut_off[longer.len()..]);
        assert_eq!(found(&longer), None);
    }
}
