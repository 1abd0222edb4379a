//! Waits until a full disk has room again.
//!
//! Room is there when a file of some size can be written beside the database. Then the committer tries a transaction
//! ([`Work::Heal`]), and if that is stored writes are taken again.

use crate::jobs::{Job, Refused, Work};
use crate::store::Shared;
use rowhouse_types::limits::ROOM_BYTES_MIN;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// How often the disk is tried, and how soon the thread notices that the store is closed.
const TRY_EVERY: Duration = Duration::from_secs(1);
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Written at a time.
const CHUNK: usize = 64 * 1024;

/// Returns when writes are taken again, or never will be.
pub(crate) fn wait(shared: &Arc<Shared>) {
    let directory = directory_of(shared.database());
    while shared.health.is_full() {
        let tried = Instant::now();
        while tried.elapsed() < TRY_EVERY {
            if shared.health.is_closed() || shared.health.has_failed() {
                return;
            }
            thread::sleep(LOOK_EVERY);
        }
        if try_to_write(directory).is_err() {
            continue;
        }
        let (reply, answer) = oneshot::channel();
        match shared.jobs.push(Job { work: Work::Heal, reply }) {
            // If it was in vain, the disk is tried again.
            Ok(()) => drop(answer.blocking_recv()),
            Err(Refused::Full) => {}
            Err(Refused::Closed) => return,
        }
    }
}

/// Whether a file next to the database cannot be written because the disk is full or a quota is exceeded.
pub(crate) fn is_used_up(database: &Path) -> bool {
    use io::ErrorKind::{QuotaExceeded, StorageFull};
    let tried = try_to_write(directory_of(database));
    tried.is_err_and(|error| matches!(error.kind(), QuotaExceeded | StorageFull))
}

fn directory_of(database: &Path) -> &Path {
    database.parent().unwrap_or_else(|| Path::new("."))
}

/// Writes as much as the store should have room for, and removes it.
fn try_to_write(directory: &Path) -> io::Result<()> {
    let path = directory.join(format!("room-{}.tmp", std::process::id()));
    let mut file = File::create(&path)?;
    // Removed at once where that is possible, so that nothing is left behind by a process that is killed.
    let removed = fs::remove_file(&path);
    let chunk = vec![0; CHUNK];
    let mut left = ROOM_BYTES_MIN;
    let written = loop {
        if left == 0 {
            break Ok(());
        }
        if let Err(error) = file.write_all(&chunk) {
            break Err(error);
        }
        left = left.saturating_sub(CHUNK as u64);
    };
    drop(file);
    if removed.is_err() {
        fs::remove_file(&path)?;
    }
    written
}
