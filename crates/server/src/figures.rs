//! What the store and the process have to say about themselves, for the metrics.

use crate::VERSION;
use crate::engine::Engine;
use rowhouse_env::Clock;
use rowhouse_http::telemetry::{Exposition, Metrics};
use rowhouse_store::Store;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Adds what the store and the process have to say to the figures.
pub(crate) fn observe(metrics: &Metrics, engine: &Engine, clock: &dyn Clock) {
    let started = u64::try_from(clock.now().unix_seconds()).unwrap_or(0);
    metrics.add_source(move |out| {
        out.info("rowhouse_build_info", "Version of this build.", "version", VERSION);
        let help = "When the process started, in seconds since 1970.";
        out.gauge("process_start_time_seconds", help, started);
    });
    let name = engine.name();
    match engine {
        Engine::Embedded(store) => observe_store(metrics, name, store, |store, out| {
            embedded(&store.stats(), out);
            ahead(store.ahead(), out);
        }),
        Engine::Postgres(store) => observe_store(metrics, name, store, |store, out| {
            postgres(store.stats(), out);
            ahead(store.ahead(), out);
        }),
    }
}

/// Adds what every engine tells, and what only this one does, as long as the store is open.
fn observe_store<S: Store>(
    metrics: &Metrics,
    engine: &'static str,
    store: &Arc<S>,
    tell: impl Fn(&S, &mut Exposition) + Send + Sync + 'static,
) {
    let store: Weak<S> = Arc::downgrade(store);
    metrics.add_source(move |out| {
        let Some(store) = store.upgrade() else { return };
        out.info("rowhouse_store_info", "Engine of the store.", "engine", engine);
        let ready = u64::from(store.ready().is_ok());
        out.gauge("rowhouse_store_ready", "Whether the store takes writes.", ready);
        tell(&store, out);
    });
}

fn ahead(ahead: Duration, out: &mut Exposition) {
    let help = "How far the last Timestamp is ahead of the clock of this machine.";
    let millis = u64::try_from(ahead.as_millis()).unwrap_or(u64::MAX);
    out.gauge("rowhouse_store_ahead_of_clock_milliseconds", help, millis);
}

fn embedded(stats: &rowhouse_store_embedded::Stats, out: &mut Exposition) {
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
    out.gauge("rowhouse_store_tables", "Tables of all accounts.", stats.tables);
    out.gauge("rowhouse_store_queues", "Queues of all accounts.", stats.queues);
    let help = "Memory of what is known of accounts, tables and queues, about.";
    out.gauge("rowhouse_store_catalogue_bytes", help, stats.catalogue_bytes);
    let help = "Damaged places that requests met since the start.";
    out.gauge("rowhouse_store_damaged", help, stats.damaged);
}

fn postgres(stats: rowhouse_store_postgres::Stats, out: &mut Exposition) {
    let help = "Open connections to the database.";
    out.gauge("rowhouse_store_connections", help, stats.connections as u64);
    let help = "Connections among them that nobody uses now.";
    out.gauge("rowhouse_store_idle_connections", help, stats.idle as u64);
    let help = "Requests that wait for a connection now.";
    out.gauge("rowhouse_store_waiting", help, stats.waiting as u64);
    out.counter("rowhouse_store_commits_total", "Batches that took effect.", stats.commits);
    let help = "Transactions that were tried again because others were faster.";
    out.counter("rowhouse_store_retries_total", help, stats.retries);
    let help = "How long the lease on accounts and tables still lasts.";
    let left = u64::try_from(stats.lease_left.as_millis()).unwrap_or(u64::MAX);
    out.gauge("rowhouse_store_lease_left_milliseconds", help, left);
    let help = "Memory of what is remembered of accounts, tables and queues, about.";
    out.gauge("rowhouse_store_catalogue_bytes", help, stats.catalogue_bytes as u64);
    let help = "How far the clock of this machine is from that of the database.";
    let millis = u64::try_from(stats.clock_offset.as_millis()).unwrap_or(u64::MAX);
    out.gauge("rowhouse_store_clock_offset_milliseconds", help, millis);
}
