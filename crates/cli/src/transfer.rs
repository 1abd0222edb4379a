//! What export, import and copy share: running them, showing how far they are, and telling what went wrong.

use crate::progress::{self, Meter, Status};
use crate::signals::stop_requested;
use crate::{Failure, advice, health};
use rowhouse_client::{Client, Progress, Target, TransferError};
use std::fmt::Write as _;
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
    client: &Client,
    transfer: impl Future<Output = Result<T, TransferError>>,
) -> Result<T, Failure> {
    run_hinting(client, "", transfer)
}

/// The same; the hint follows where a table is missing.
pub(crate) fn run_hinting<T>(
    client: &Client,
    hint: &str,
    transfer: impl Future<Output = Result<T, TransferError>>,
) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("cannot start: {error}"))?;
    let outcome = runtime.block_on(async {
        match transfer.await {
            Ok(done) => Ok(done),
            Err(error) => Err(advice::advise(client, &error, hint).await),
        }
    });
    // What was read ahead for somebody who does not want it any more must not keep the process.
    runtime.shutdown_background();
    outcome
}

/// The same until Ctrl-C, which ends it with a sentence that says how to go on.
pub(crate) fn run_until_stopped<T>(
    client: &Client,
    hint: &str,
    transfer: impl Future<Output = Result<T, TransferError>>,
    stopped: impl FnOnce() -> Failure,
) -> Result<T, Failure> {
    run_hinting(client, hint, async {
        tokio::select! {
            outcome = transfer => outcome,
            () = stop_requested() => Err(TransferError::Refused(stopped())),
        }
    })
}

/// A client that prints on standard error when it waits for the service.
pub(crate) fn client(target: &Target) -> Result<Client, Failure> {
    let client = Client::new(target).map_err(|error| error.to_string())?;
    let address = client.address();
    let told = AtomicBool::new(false);
    Ok(client.on_wait(move |reason| {
        if !told.swap(true, Ordering::Relaxed) {
            let (address, reason) = (address.clone(), reason.to_owned());
            // Asking the server why must not hold up the next attempt.
            std::thread::spawn(move || {
                let why = health::why_not_ready(&address).map(|why| format!("; {why}"));
                progress::make_room();
                eprintln!("rowhouse: waiting for {address}: {reason}{}", why.unwrap_or_default());
            });
        }
    }))
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
