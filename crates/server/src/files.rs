//! Limits and files of the process.

use crate::error::ServerError;
use std::fs;
use std::path::Path;

/// Takes as many descriptors as the system grants: its default for programs is far below the number
/// of connections that a server has.
pub(crate) fn raise_descriptor_limit() {
    #[cfg(unix)]
    {
        use rustix::process::{Resource, getrlimit, setrlimit};
        let mut limit = getrlimit(Resource::Nofile);
        if limit.current != limit.maximum {
            limit.current = limit.maximum;
            if let Err(error) = setrlimit(Resource::Nofile, limit) {
                tracing::debug!(%error, "the limit of descriptors stays as it is");
            }
        }
    }
}

/// Makes a directory that only its owner can look into, if it is not there.
pub(crate) fn make_directory(path: &Path) -> Result<(), ServerError> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path).map_err(|source| ServerError::File { path: path.to_owned(), source })
}

/// Writes a file so that whoever waits for it never reads half of it.
pub(crate) fn write_whole(path: &Path, text: &str) -> Result<(), ServerError> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let attempt = || {
        fs::write(&beside, text)?;
        fs::rename(&beside, path)
    };
    attempt().map_err(|source| ServerError::File { path: path.to_owned(), source })
}

/// The bytes of a file.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, ServerError> {
    fs::read(path).map_err(|source| ServerError::File { path: path.to_owned(), source })
}

/// Warns when a secret can be read by others than its owner.
pub(crate) fn warn_if_shared(path: &Path, what: &str) {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        if let Ok(metadata) = fs::metadata(path)
            && metadata.permissions().mode() & 0o077 != 0
        {
            tracing::warn!(file = %path.display(), "other users can read the {what}");
        }
    }
    #[cfg(not(unix))]
    let _ = (path, what);
}
