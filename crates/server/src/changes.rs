//! Whether the store keeps changes, and how many there are.

use crate::config::KeepChanges;
use crate::error::ServerError;
use rowhouse_http::telemetry::Metrics;
use rowhouse_store::Store;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How often the changes that are kept are counted.
const COUNT_EVERY: Duration = Duration::from_secs(10);
/// Counted when none are kept.
const NOT_KEPT: u64 = u64::MAX;

/// Tells the store what was chosen, if anything was, and says in words what holds now; nothing if no changes are
/// kept.
pub(crate) async fn settle(
    chosen: Option<KeepChanges>,
    store: &dyn Store,
) -> Result<Option<String>, ServerError> {
    if let Some(keep) = chosen {
        store.keep_changes(keep.retention()).await.map_err(ServerError::Changes)?;
    }
    let kept = store.kept_changes().await.map_err(ServerError::Changes)?;
    Ok(kept.map(|_| match chosen {
        Some(KeepChanges::For(time)) => format!("kept for {}", words(time)),
        Some(KeepChanges::Off) | None => "kept, as it was set before".to_owned(),
    }))
}

/// A time in the largest unit that tells it exactly.
fn words(time: Duration) -> String {
    let seconds = time.as_secs();
    let units = [(24 * 60 * 60, "day"), (60 * 60, "hour"), (60, "minute"), (1, "second")];
    let (size, name) =
        units.into_iter().find(|(size, _)| seconds.is_multiple_of(*size)).unwrap_or((1, "second"));
    let count = seconds / size;
    format!("{count} {name}{}", if count == 1 { "" } else { "s" })
}

/// Adds the number of places that changes are kept for to the figures, and keeps it up to date while the store
/// lives.
pub(crate) fn count(store: Weak<dyn Store>, metrics: &Metrics) -> impl Future<Output = ()> + use<> {
    let places = Arc::new(AtomicU64::new(NOT_KEPT));
    let shown = Arc::clone(&places);
    metrics.add_source(move |out| {
        let places = shown.load(Relaxed);
        if places != NOT_KEPT {
            let help = "Batches of changes that are kept, as of a few seconds ago.";
            out.gauge("rowhouse_changes_kept", help, places);
        }
    });
    async move {
        loop {
            let Some(store) = store.upgrade() else { return };
            if let Ok(kept) = store.kept_changes().await {
                let count = kept.map_or(NOT_KEPT, |kept| kept.until.saturating_sub(kept.after));
                places.store(count, Relaxed);
            }
            drop(store);
            tokio::time::sleep(COUNT_EVERY).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_in_words() {
        let cases =
            [(604_800, "7 days"), (86_400, "1 day"), (5_400, "90 minutes"), (61, "61 seconds")];
        for (seconds, expected) in cases {
            assert_eq!(words(Duration::from_secs(seconds)), expected);
        }
    }
}
