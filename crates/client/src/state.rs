//! Where a transfer has got to, in a small file that is replaced as a whole.

use crate::error::TransferError;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// A name beside a file: that of the file with something after it.
pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

/// Writes the state; after a crash the file holds either what it held before or this.
pub(crate) fn save(path: &Path, state: &impl Serialize) -> Result<(), TransferError> {
    let new = beside(path, ".new");
    let text = serde_json::to_vec(state).expect("the state is plain data");
    let written = || -> io::Result<()> {
        let mut file = File::create(&new)?;
        file.write_all(&text)?;
        file.sync_all()?;
        fs::rename(&new, path)
    };
    written().map_err(TransferError::file(path))
}

/// Reads the state; nothing if there is none.
pub(crate) fn load<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, TransferError> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(TransferError::file(path)(error)),
    };
    serde_json::from_slice(&text).map(Some).map_err(|_| {
        TransferError::Refused(format!(
            "{} does not hold the state of such a transfer: remove it to begin anew",
            path.display()
        ))
    })
}

/// Removes the state of a transfer that is done.
pub(crate) fn remove(path: &Path) -> Result<(), TransferError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(TransferError::file(path)(error))
        }
        _ => Ok(()),
    }
}
