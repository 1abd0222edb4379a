//! Whether a data directory is in order, and whole.

use rowhouse_store_embedded::{CheckReport, OpenError};
use rowhouse_types::Guid;
use std::path::Path;

/// What a check found.
#[derive(Clone, Debug)]
pub struct Checked {
    /// What is there, and what is wrong with it.
    pub report: CheckReport,
    /// The backup of which the directory holds a part only, because its restore is not finished.
    pub unfinished: Option<Guid>,
}

/// Verifies a data directory that no server uses. `progress` hears from time to time how many entities
/// have been read.
pub fn check(directory: &Path, progress: &mut dyn FnMut(u64)) -> Result<Checked, OpenError> {
    let report = rowhouse_store_embedded::check(directory, progress)?;
    let unfinished = rowhouse_service_backup::unfinished_in(&report.accounts);
    Ok(Checked { report, unfinished })
}

/// Rewrites a data directory of an older format, so that a damaged page of it is noticed. False if that was done before.
pub fn add_checksums(directory: &Path) -> Result<bool, OpenError> {
    rowhouse_store_embedded::add_checksums(directory)
}
