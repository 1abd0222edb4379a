//! Backups as files: read whole, or written as they arrive and verified on the way.
//!
//! These block, and are for commands that do nothing else.

use crate::error::ServerError;
use rowhouse_service_backup::{
    BackupError, Catalogue, Header, Progress, Survey, beginning, survey,
};
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, ReadBuf};

/// Reads a backup to its end, and tells what is in it.
pub fn verify_backup(path: &Path, progress: impl FnMut(Progress)) -> Result<Survey, ServerError> {
    let source = open(path)?;
    let surveyed = block_on(survey(source, |_, _| Ok(()), progress))?;
    surveyed.map_err(|error| ServerError::of_backup(path, error))
}

/// Reads no more of a backup than its header, its accounts and its tables.
pub fn read_base(path: &Path) -> Result<(Header, Catalogue), ServerError> {
    let source = open(path)?;
    block_on(beginning(source))?.map_err(|error| ServerError::of_backup(path, error))
}

/// Writes a backup as it arrives, and verifies what was written: it ends well only with a whole backup, and
/// with one of the same data as `base` if there is one.
pub fn receive_backup(
    source: impl Read + Unpin,
    sink: impl Write + Unpin,
    base: Option<&(Header, Catalogue)>,
    mut progress: impl FnMut(Progress),
) -> Result<Survey, BackupError> {
    let accept = |header: &Header, catalogue: &Catalogue| match base {
        Some((before, earlier)) if !catalogue.continues(earlier) => {
            Err(BackupError::OtherOrigin { id: header.id, before: before.id })
        }
        _ => Ok(()),
    };
    // It runs beside the server that sends it.
    rowhouse_env::step_back();
    let source = Blocking(Tee { source, sink });
    let blocked = block_on(survey(source, accept, |done| {
        rowhouse_env::breathe();
        progress(done);
    }));
    blocked.map_err(|error| BackupError::Sink(io::Error::other(error)))?
}

pub(crate) fn open(path: &Path) -> Result<Blocking<io::BufReader<File>>, ServerError> {
    let file = File::open(path).map_err(|source| ServerError::BackupFile {
        path: path.to_owned(),
        source: source.into(),
    })?;
    Ok(Blocking(io::BufReader::with_capacity(256 * 1024, file)))
}

fn block_on<T>(future: impl Future<Output = T>) -> Result<T, ServerError> {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    Ok(runtime.map_err(ServerError::System)?.block_on(future))
}

/// A source that blocks, where nothing else waits.
#[derive(Debug)]
pub(crate) struct Blocking<R>(R);

impl<R: Read + Unpin> AsyncRead for Blocking<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = self.0.read(buffer.initialize_unfilled())?;
        buffer.advance(read);
        Poll::Ready(Ok(()))
    }
}

/// Writes down whatever is read.
struct Tee<R, W> {
    source: R,
    sink: W,
}

impl<R: Read, W: Write> Read for Tee<R, W> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.source.read(buffer)?;
        self.sink.write_all(&buffer[..read]).map_err(|error| {
            io::Error::new(error.kind(), format!("it cannot be written down: {error}"))
        })?;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rowhouse_service_backup::FileError;

    /// A disk with room for so many bytes.
    struct Small(usize);

    impl Write for Small {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::StorageFull)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    const BACKUP: &[u8] =
        include_bytes!("../../service-backup/tests/fixtures/v1-full.rhb").as_slice();

    #[test]
    fn a_full_disk_ends_a_backup() {
        for room in 0..BACKUP.len() {
            let error = receive_backup(BACKUP, Small(room), None, |_| {}).unwrap_err();
            let BackupError::File(FileError::Io(error)) = error else { panic!("{error}") };
            assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        }
        let survey = receive_backup(BACKUP, Small(BACKUP.len()), None, |_| {}).unwrap();
        assert_eq!(survey.totals.entities, 2);
    }

    #[test]
    fn what_arrives_is_verified() {
        let cut = receive_backup(&BACKUP[..200], io::sink(), None, |_| {}).unwrap_err();
        assert!(matches!(cut, BackupError::File(FileError::Truncated { at: 200 })), "{cut}");
    }
}
