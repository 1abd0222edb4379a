//! A plain copy of a file, which no backup can be faster than.

use crate::process;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

const BLOCK: usize = 1024 * 1024;

/// What a copy took.
#[derive(Clone, Copy, Debug)]
pub(super) struct Copied {
    pub(super) bytes: u64,
    pub(super) took: Duration,
    /// Bytes that came from the disk; the others were in memory.
    pub(super) from_disk: u64,
}

/// Copies a file byte by byte, syncs the copy and removes it.
pub(super) fn copy(from: &Path, to: &Path) -> io::Result<Copied> {
    let (before, began) = (process::read_from_disk(), Instant::now());
    let (mut source, mut target) = (File::open(from)?, File::create(to)?);
    let (mut block, mut bytes) = (vec![0; BLOCK], 0);
    loop {
        let read = source.read(&mut block)?;
        if read == 0 {
            break;
        }
        target.write_all(&block[..read])?;
        bytes += read as u64;
    }
    target.sync_all()?;
    let took = began.elapsed();
    let from_disk = (process::read_from_disk() - before).min(bytes);
    std::fs::remove_file(to)?;
    Ok(Copied { bytes, took, from_disk })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_copied_whole_and_the_copy_removed() {
        let directory = tempfile::tempdir().unwrap();
        let (from, to) = (directory.path().join("a"), directory.path().join("b"));
        std::fs::write(&from, vec![7; 3 * BLOCK + 1]).unwrap();
        let copied = copy(&from, &to).unwrap();
        assert_eq!(copied.bytes, 3 * BLOCK as u64 + 1);
        assert!(copied.from_disk <= copied.bytes && !to.exists());
    }
}
