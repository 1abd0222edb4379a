//! Frames: pieces of a backup, compressed and checksummed one by one.
//!
//! ```text
//! 8 bytes   89 52 48 42 0d 0a 1a 0a: what tells a backup from other files
//! 4 bytes   version of the format, 3 (1 and 2 are read too)
//! frames    kind (1), length of the content (4), length of its stored form (4), the stored form (zstd),
//!           the first 8 bytes of the SHA-256 of everything in the file up to here
//! ```
//!
//! All numbers are little endian. Every checksum covers all that is before it, so a frame that is missing,
//! doubled or in the wrong place shows as surely as one that is damaged. Lengths are held to limits before
//! anything is allocated, and nothing is decompressed before its checksum has been compared.

use crate::error::{BackupError, FileError};
use ring::digest::{Context, SHA256};
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt as _};

const MAGIC: [u8; 8] = *b"\x89RHB\r\n\x1a\n";
/// The format that is written, and the newest that is read.
pub const VERSION: u32 = 3;
/// Most bytes of a frame before compression: one that is nearly full, and the largest entity.
pub const FRAME_BYTES_MAX: usize = 4 * 1024 * 1024;
/// A frame that has reached so many bytes gets nothing more. Making one keeps a processor busy for a quarter of a
/// millisecond, and whoever is being served may have to wait for that.
pub(crate) const FRAME_BYTES: usize = 128 * 1024;
/// Compression of what cannot be compressed adds less than this.
const STORED_BYTES_MAX: usize = FRAME_BYTES_MAX + 64 * 1024;
const HEAD: usize = 9;
const CHECK: usize = 8;
/// The fastest: a backup must not take the processor from those who are being served.
const LEVEL: i32 = 1;

/// What a frame holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    Header = 1,
    Accounts = 2,
    Tables = 3,
    Entities = 4,
    TableEnd = 5,
    Changes = 6,
    End = 7,
    Queues = 8,
    Messages = 9,
}

impl Kind {
    fn from_tag(tag: u8) -> Option<Self> {
        use Kind::{Accounts, Changes, End, Entities, Header, Messages, Queues, TableEnd, Tables};
        let all = [Header, Accounts, Tables, Entities, TableEnd, Changes, End, Queues, Messages];
        all.into_iter().find(|&kind| kind as u8 == tag)
    }
}

/// Makes the bytes of frames.
pub(crate) struct FrameMaker {
    digest: Context,
    compressor: zstd::bulk::Compressor<'static>,
}

impl FrameMaker {
    /// The bytes that every backup begins with.
    pub(crate) fn begin() -> io::Result<(Self, Vec<u8>)> {
        let mut digest = Context::new(&SHA256);
        let start = [&MAGIC[..], &VERSION.to_le_bytes()].concat();
        digest.update(&start);
        Ok((Self { digest, compressor: zstd::bulk::Compressor::new(LEVEL)? }, start))
    }

    /// SHA-256 of all bytes so far.
    pub(crate) fn digest(&self) -> [u8; 32] {
        digest_of(&self.digest)
    }

    /// One frame.
    pub(crate) fn frame(&mut self, kind: Kind, content: &[u8]) -> io::Result<Vec<u8>> {
        if FRAME_BYTES_MAX < content.len() {
            return Err(io::Error::other("a part is too large for a frame"));
        }
        let stored = self.compressor.compress(content)?;
        let length = |bytes: &[u8]| u32::try_from(bytes.len()).expect("far below 4 GiB");
        let mut frame = Vec::with_capacity(HEAD + stored.len() + CHECK);
        frame.push(kind as u8);
        frame.extend_from_slice(&length(content).to_le_bytes());
        frame.extend_from_slice(&length(&stored).to_le_bytes());
        frame.extend_from_slice(&stored);
        self.digest.update(&frame);
        let check = digest_of(&self.digest);
        self.digest.update(&check[..CHECK]);
        frame.extend_from_slice(&check[..CHECK]);
        Ok(frame)
    }
}

/// A frame that was read and checked.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) kind: Kind,
    pub(crate) content: Vec<u8>,
    /// Where in the file it began.
    pub(crate) at: u64,
    /// SHA-256 of everything before it.
    pub(crate) digest_before: [u8; 32],
}

/// Takes frames out of a stream of bytes. Reads exactly the bytes of what it returns.
pub(crate) struct FrameReader<R> {
    source: R,
    digest: Context,
    decompressor: zstd::bulk::Decompressor<'static>,
    version: u32,
    at: u64,
    content: u64,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    /// Reads what every backup begins with; none if there is nothing at all.
    pub(crate) async fn begin(mut source: R) -> Result<Option<Self>, BackupError> {
        let mut start = [0; MAGIC.len() + 4];
        let read = read_all(&mut source, &mut start).await?;
        if read == 0 {
            return Ok(None);
        }
        let common = read.min(MAGIC.len());
        if start[..common] != MAGIC[..common] {
            return Err(FileError::Foreign.into());
        }
        if read < start.len() {
            return Err(FileError::Truncated { at: read as u64 }.into());
        }
        let [.., a, b, c, d] = start;
        let version = u32::from_le_bytes([a, b, c, d]);
        if version == 0 {
            return Err(BackupError::damaged(0, "there is no format 0"));
        }
        if VERSION < version {
            return Err(FileError::Newer { found: version, known: VERSION }.into());
        }
        let mut digest = Context::new(&SHA256);
        digest.update(&start);
        let decompressor = zstd::bulk::Decompressor::new().map_err(FileError::Io)?;
        let at = start.len() as u64;
        Ok(Some(Self { source, digest, decompressor, version, at, content: 0 }))
    }

    /// The version of the format.
    pub(crate) fn version(&self) -> u32 {
        self.version
    }

    /// How many bytes have been read.
    pub(crate) fn position(&self) -> u64 {
        self.at
    }

    /// How many bytes these were before they were compressed.
    pub(crate) fn content(&self) -> u64 {
        self.content
    }

    pub(crate) fn into_inner(self) -> R {
        self.source
    }

    pub(crate) async fn next(&mut self) -> Result<Frame, BackupError> {
        let digest_before = digest_of(&self.digest);
        let at = self.at;
        let mut head = [0; HEAD];
        self.fill(&mut head).await?;
        let length = |at: usize| {
            let bytes = head[at..at + 4].try_into().expect("four bytes");
            usize::try_from(u32::from_le_bytes(bytes)).unwrap_or(usize::MAX)
        };
        let (tag, length, stored_length) = (head[0], length(1), length(5));
        if FRAME_BYTES_MAX < length || STORED_BYTES_MAX < stored_length {
            return Err(BackupError::damaged(at, "a frame is longer than frames are"));
        }
        let mut stored = vec![0; stored_length];
        self.fill(&mut stored).await?;
        let expected = digest_of(&self.digest);
        let mut check = [0; CHECK];
        self.fill(&mut check).await?;
        if check != expected[..CHECK] {
            return Err(BackupError::damaged(at, "the checksum differs"));
        }
        let kind =
            Kind::from_tag(tag).ok_or(BackupError::damaged(at, "no frame is of this kind"))?;
        let content = self.decompressor.decompress(&stored, length);
        let content = content.map_err(|_| BackupError::damaged(at, "it does not decompress"))?;
        if content.len() != length {
            return Err(BackupError::damaged(at, "its length differs"));
        }
        self.content += length as u64;
        Ok(Frame { kind, content, at, digest_before })
    }

    async fn fill(&mut self, buffer: &mut [u8]) -> Result<(), BackupError> {
        let read = read_all(&mut self.source, buffer).await?;
        self.at += read as u64;
        if read < buffer.len() {
            return Err(FileError::Truncated { at: self.at }.into());
        }
        self.digest.update(buffer);
        Ok(())
    }

    /// Whether the source has nothing more.
    pub(crate) async fn is_at_end(&mut self) -> Result<bool, BackupError> {
        let read = read_all(&mut self.source, &mut [0]).await?;
        Ok(read == 0)
    }
}

/// Fills the buffer as far as the source goes.
async fn read_all<R: AsyncRead + Unpin>(
    source: &mut R,
    buffer: &mut [u8],
) -> Result<usize, FileError> {
    let mut filled = 0;
    while filled < buffer.len() {
        match source.read(&mut buffer[filled..]).await {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(filled)
}

fn digest_of(context: &Context) -> [u8; 32] {
    context.clone().finish().as_ref().try_into().expect("SHA-256 has 32 bytes")
}
