//! The checksum of a page.
//!
//! CRC-32 over the content and the page number notices every change of up to three bits of a page
//! and every page that stands in another one's place. It is stored twice, the second time inverted,
//! so that a flipped bit in it is noticed as well, and a page of zeros never looks intact.

use super::{PAGE_BYTES, SUM_BYTES};

/// Bytes of the page before its checksum.
const CONTENT: usize = PAGE_BYTES - SUM_BYTES;
/// Where the header of a database, on its first page, says how many bytes of a page are reserved.
const RESERVED_AT: usize = 20;
/// Where it says how large a page is, in two bytes.
const SIZE_AT: usize = 16;
const MAGIC: &[u8] = b"SQLite format 3\0";

/// The checksum of a page's content.
fn sum(number: u32, content: &[u8]) -> [u8; SUM_BYTES] {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(content);
    hasher.update(&number.to_be_bytes());
    let sum = hasher.finalize();
    let mut bytes = [0; SUM_BYTES];
    bytes[..4].copy_from_slice(&sum.to_be_bytes());
    bytes[4..].copy_from_slice(&(!sum).to_be_bytes());
    bytes
}

/// Writes the checksum of a page into its end.
pub(super) fn seal(number: u32, page: &mut [u8; PAGE_BYTES]) {
    let (content, end) = page.split_at_mut(CONTENT);
    end.copy_from_slice(&sum(number, content));
}

/// Whether a page is what was written. One that was never written is not: SQLite reads no such page, so a block of zeros
/// that it reads was lost.
pub(crate) fn is_intact(number: u32, page: &[u8]) -> bool {
    if page.len() != PAGE_BYTES {
        return false;
    }
    let (content, end) = page.split_at(CONTENT);
    sum(number, content) == end
}

/// Whether a page may never have been written. There are such pages in a sound file: those that were freed before they were
/// written, and the one that SQLite leaves out for its locks.
pub(crate) fn is_blank(page: &[u8]) -> bool {
    page.iter().all(|byte| *byte == 0)
}

/// Whether the beginning of a database says that its pages have our size, and room for a checksum.
pub(crate) fn is_reserved(header: &[u8]) -> bool {
    let number = |at: usize| header.get(at).map(|byte| usize::from(*byte));
    header.starts_with(MAGIC)
        && number(SIZE_AT) == Some(PAGE_BYTES >> 8)
        && number(SIZE_AT + 1) == Some(PAGE_BYTES & 0xFF)
        && number(RESERVED_AT) == Some(SUM_BYTES)
}

/// Whether a page leads to others: SQLite's interior pages, of tables and of indexes.
pub(super) fn is_interior(number: u32, page: &[u8]) -> bool {
    let at = if number == 1 { 100 } else { 0 };
    matches!(page.get(at), Some(2 | 5))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_flipped_bit_is_noticed() {
        let mut page = [0; PAGE_BYTES];
        for (at, byte) in page.iter_mut().enumerate() {
            *byte = u8::try_from(at * 31 % 251).unwrap();
        }
        seal(7, &mut page);
        assert!(is_intact(7, &page));
        assert!(!is_intact(8, &page), "a page that stands elsewhere");
        for bit in 0..PAGE_BYTES * 8 {
            page[bit / 8] ^= 1 << (bit % 8);
            assert!(!is_intact(7, &page), "bit {bit}");
            page[bit / 8] ^= 1 << (bit % 8);
        }
        assert!(is_intact(7, &page));
    }

    #[test]
    fn a_page_of_zeros_is_not_intact() {
        let mut page = [0; PAGE_BYTES];
        assert!(!is_intact(3, &page) && is_blank(&page));
        seal(3, &mut page);
        assert!(is_intact(3, &page));
        assert_ne!(page, [0; PAGE_BYTES]);
    }
}
