//! A directory whose files go back to what was last synced.

use super::{Disk, Library};
use crate::load::Cutoff;
use crate::server::TestServer;
use rowhouse_env::{Random, SeededRandom};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// What a drive writes as a whole.
const SECTOR: usize = 512;

/// A directory, and notes on what each write since the last sync replaced.
#[derive(Debug)]
pub struct HeldBack {
    library: Library,
    directory: TempDir,
    data: PathBuf,
    undo: PathBuf,
    chance: SeededRandom,
    cuts: u64,
}

/// What the library noted before a write; a length of zero is a change of size to `offset`.
#[derive(Debug, PartialEq)]
struct Note<'a> {
    offset: u64,
    length: u64,
    size: u64,
    bytes: &'a [u8],
}

impl HeldBack {
    /// An empty directory, or why there cannot be one here.
    pub fn new(seed: u64) -> Result<Self, String> {
        let library = Library::build()?;
        let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
        // The library compares with what the kernel calls a file.
        let path = directory.path().canonicalize().map_err(|error| error.to_string())?;
        let (data, undo) = (path.join("disk"), path.join("undo"));
        for folder in [&data, &undo] {
            fs::create_dir(folder).map_err(|error| error.to_string())?;
        }
        let chance = SeededRandom::new(seed);
        Ok(Self { library, directory, data, undo, chance, cuts: 0 })
    }

    /// Puts back what was not synced: all of it, or in every other cut any mixture of sectors, because a
    /// drive writes in any order.
    fn put_back(&mut self) -> io::Result<()> {
        self.cuts += 1;
        let mixed = self.cuts.is_multiple_of(2);
        for (inode, path) in inodes(&self.data)? {
            let notes = match fs::read(self.undo.join(inode.to_string())) {
                Ok(notes) => notes,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            let file = File::options().write(true).open(path)?;
            for note in read(&notes).iter().rev() {
                if mixed { self.put_some_back(&file, note)? } else { put_all_back(&file, note)? }
            }
        }
        for notes in fs::read_dir(&self.undo)? {
            fs::remove_file(notes?.path())?;
        }
        Ok(())
    }

    fn put_some_back(&self, file: &File, note: &Note<'_>) -> io::Result<()> {
        if note.length == 0 {
            return if self.toss() { put_all_back(file, note) } else { Ok(()) };
        }
        // What lay beyond the end is zero until it is written.
        let mut before = note.bytes.to_vec();
        before.resize(usize::try_from(note.length).expect("a write fits in memory"), 0);
        let mut offset = note.offset;
        let mut rest = before.as_slice();
        while !rest.is_empty() {
            let to_boundary = SECTOR - usize::try_from(offset % SECTOR as u64).unwrap_or_default();
            let (sector, more) = rest.split_at(to_boundary.min(rest.len()));
            if self.toss() {
                file.write_all_at(sector, offset)?;
            }
            offset += sector.len() as u64;
            rest = more;
        }
        Ok(())
    }

    fn toss(&self) -> bool {
        let mut byte = [0];
        self.chance.fill(&mut byte);
        byte[0] & 1 == 1
    }
}

fn put_all_back(file: &File, note: &Note<'_>) -> io::Result<()> {
    file.write_all_at(note.bytes, note.offset)?;
    file.set_len(note.size)
}

/// Files below a directory by their inode, which survives renaming.
fn inodes(directory: &Path) -> io::Result<BTreeMap<u64, PathBuf>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            found.extend(inodes(&entry.path())?);
        } else {
            found.insert(entry.metadata()?.ino(), entry.path());
        }
    }
    Ok(found)
}

/// The notes that are whole; the last may have been interrupted.
fn read(mut bytes: &[u8]) -> Vec<Note<'_>> {
    let mut notes = Vec::new();
    while let Some((head, rest)) = bytes.split_at_checked(32) {
        let number = |index: usize| {
            let field = head[8 * index..8 * index + 8].try_into().expect("eight bytes");
            u64::from_ne_bytes(field)
        };
        let kept = usize::try_from(number(3)).unwrap_or(usize::MAX);
        let Some((bytes_before, rest)) = rest.split_at_checked(kept) else { break };
        notes.push(Note {
            offset: number(0),
            length: number(1),
            size: number(2),
            bytes: bytes_before,
        });
        bytes = rest;
    }
    notes
}

impl Disk for HeldBack {
    fn method(&self) -> &'static str {
        "a library that takes back unsynced writes"
    }

    fn directory(&self) -> &Path {
        &self.data
    }

    fn variables(&self) -> Vec<(&'static str, OsString)> {
        vec![
            ("LD_PRELOAD", self.library.path().into()),
            ("DISK_DATA", self.data.clone().into()),
            ("DISK_UNDO", self.undo.clone().into()),
        ]
    }

    fn cut(&mut self, server: &mut TestServer, _cutoff: &Cutoff) {
        server.kill();
        assert!(self.directory.path().exists(), "it lives as long as this");
        self.put_back().expect("files can be written");
    }
}
