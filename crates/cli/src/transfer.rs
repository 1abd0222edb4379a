//! What export, import and copy share: running them, showing how far they are, and telling what went wrong.

use crate::Failure;
use crate::progress::{Meter, Status};
use rowhouse_client::{Client, ClientError, Progress, Target, TransferError};
use std::fmt::Write as _;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Names of tables that could be meant for something else are refused before anything is asked.
pub(crate) fn check_table(name: &str) -> Result<(), Failure> {
    let legal = (3..=63).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric())
        && name.as_bytes()[0].is_ascii_alphabetic();
    if legal {
        return Ok(());
    }
    Err(format!(
        "{name:?} is not the name of a table: those are 3 to 63 letters and digits, a letter first"
    ))
}

/// Runs a transfer to its end.
pub(crate) fn run<T>(
    transfer: impl Future<Output = Result<T, TransferError>>,
) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("cannot start: {error}"))?;
    runtime.block_on(transfer).map_err(|error| told(&error))
}

pub(crate) fn client(target: &Target) -> Result<Client, Failure> {
    Client::new(target).map_err(|error| error.to_string())
}

/// The error as a sentence that says what to do.
pub(crate) fn told(error: &TransferError) -> Failure {
    let error = match error {
        TransferError::Client(error) => error,
        TransferError::File { error: cause, .. } if cause.kind() == ErrorKind::StorageFull => {
            return format!("{error}: make room, then give the command again with --resume");
        }
        error => return error.to_string(),
    };
    let advice = match error {
        ClientError::Unreachable { .. } => "check the address, and that the server runs",
        ClientError::Certificates(_) => {
            "name a file with the authority that vouches for it in SSL_CERT_FILE"
        }
        ClientError::Service(refused) => match (refused.status, refused.code.as_str()) {
            (401 | 403, _) => "check the key, or what the shared access signature allows",
            (404, _) => "check the name of the table; import makes it with --create",
            (409, "TableBeingDeleted") => "try again when the service has deleted it",
            _ => return error.to_string(),
        },
        _ => return error.to_string(),
    };
    format!("{error}: {advice}")
}

/// Says how far something is, until it is dropped.
pub(crate) struct Shown {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Shown {
    /// Shows so many of `what`.
    pub(crate) fn start(progress: &Arc<Progress>, what: &'static str) -> Self {
        let progress = progress.clone();
        Self::with(move |elapsed| status(&progress, elapsed, what))
    }

    /// Shows whatever is said, which is asked again and again.
    pub(crate) fn with(status: impl FnMut(Duration) -> Status + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let thread = {
            let stop = stop.clone();
            std::thread::spawn(move || show(status, &stop))
        };
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // Nothing is lost if it could not print.
            let _ = thread.join();
        }
    }
}

fn show(mut status: impl FnMut(Duration) -> Status, stop: &AtomicBool) {
    let mut meter = Meter::new();
    while !stop.load(Ordering::Relaxed) {
        std::thread::park_timeout(Duration::from_millis(100));
        if meter.is_due() && !stop.load(Ordering::Relaxed) {
            let status = status(meter.elapsed());
            meter.show(&status);
        }
    }
}

/// `12000 entities, 3000 a second, 2 refused`
pub(crate) fn status(progress: &Progress, elapsed: Duration, what: &str) -> Status {
    let rate = rate(progress, elapsed);
    let mut text = format!("{} {what}, {rate} a second", progress.rows());
    let refused = progress.refused();
    if refused > 0 {
        // Writing to a string cannot fail.
        let _ = write!(text, ", {refused} refused");
    }
    Status { text, share: progress.share() }
}

/// How many rows this run has done in a second.
pub(crate) fn rate(progress: &Progress, elapsed: Duration) -> u64 {
    let millis = elapsed.as_millis().max(1);
    u64::try_from(u128::from(progress.rows_now()) * 1000 / millis).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_progress() {
        let progress = Progress::default();
        let said = status(&progress, Duration::ZERO, "entities");
        assert_eq!((said.text.as_str(), said.share), ("0 entities, 0 a second", None));
        progress.expect(8);
        progress.advance(2);
        assert_eq!(status(&progress, Duration::ZERO, "entities").share, Some(250));
    }

    #[test]
    fn names_of_tables() {
        for name in ["abc", "People2"] {
            assert_eq!(check_table(name), Ok(()));
        }
        for name in ["", "ab", "1abc", "a-b-c", "Tables('x')", &"a".repeat(64)] {
            assert!(check_table(name).unwrap_err().contains("name of a table"), "{name}");
        }
    }
}
