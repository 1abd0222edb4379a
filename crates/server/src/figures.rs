//! What the store and the process have to say about themselves, for the metrics.

use crate::VERSION;
use rowhouse_env::Clock;
use rowhouse_http::telemetry::Metrics;
use rowhouse_store::Store as _;
use rowhouse_store_embedded::EmbeddedStore;
use std::sync::Arc;

/// Adds what the store and the process have to say to the figures.
pub(crate) fn observe(metrics: &Metrics, store: &Arc<EmbeddedStore>, clock: &dyn Clock) {
    let started = u64::try_from(clock.now().unix_seconds()).unwrap_or(0);
    let store = Arc::downgrade(store);
    metrics.add_source(move |out| {
        out.info("rowhouse_build_info", "Version of this build.", "version", VERSION);
        let help = "When the process started, in seconds since 1970.";
        out.gauge("process_start_time_seconds", help, started);
        let Some(store) = store.upgrade() else { return };
        let stats = store.stats();
        let ready = u64::from(store.ready().is_ok());
        out.gauge("rowhouse_store_ready", "Whether the store takes writes.", ready);
        let help = "Size of the database file.";
        out.gauge("rowhouse_store_database_bytes", help, stats.database_bytes);
        let help = "Size of the write-ahead log.";
        out.gauge("rowhouse_store_log_bytes", help, stats.log_bytes);
        let help = "Pages of the database that hold nothing.";
        out.gauge("rowhouse_store_free_pages", help, stats.free_pages);
        out.gauge("rowhouse_store_queued", "Changes that wait now.", stats.queued);
        let help = "Transactions, each with one fsync.";
        out.counter("rowhouse_store_groups_total", help, stats.groups);
        out.counter("rowhouse_store_commits_total", "Batches that took effect.", stats.commits);
    });
}
