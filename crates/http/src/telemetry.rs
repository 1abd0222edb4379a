//! Figures of the running server, in the text form that Prometheus reads.
//!
//! Names are constant and labels come from the program, never from a request: neither a table, a
//! key nor an account appears here, and the number of series has an upper bound. Counting a request
//! costs a few atomic additions and takes no lock; only reading the figures does.
//!
//! What a store has to say comes in through [`Metrics::add_source`], since this crate knows no
//! engine.

use crate::front::denial::Denial;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// Upper bounds of the duration buckets, in nanoseconds, with the text of each in seconds.
const BUCKETS: [(u64, &str); 16] = [
    (100_000, "0.0001"),
    (250_000, "0.00025"),
    (500_000, "0.0005"),
    (1_000_000, "0.001"),
    (2_500_000, "0.0025"),
    (5_000_000, "0.005"),
    (10_000_000, "0.01"),
    (25_000_000, "0.025"),
    (50_000_000, "0.05"),
    (100_000_000, "0.1"),
    (250_000_000, "0.25"),
    (500_000_000, "0.5"),
    (1_000_000_000, "1"),
    (2_500_000_000, "2.5"),
    (5_000_000_000, "5"),
    (10_000_000_000, "10"),
];

/// Operations that are told apart; any beyond these are counted together as `other`.
const OPERATIONS_MAX: usize = 64;

const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// All figures of a process.
#[derive(Default)]
pub struct Metrics {
    operations: Operations,
    denials: [AtomicU64; Denial::ALL.len()],
    listeners: Mutex<Vec<Arc<ListenerMetrics>>>,
    sources: Mutex<Vec<Source>>,
}

type Source = Box<dyn Fn(&mut Exposition) + Send + Sync>;

impl Metrics {
    /// Counts one answered request.
    ///
    /// `operation` is one of a fixed set of names; `seconds` is from the end of the head to the
    /// answer.
    pub fn request(&self, operation: &'static str, status: u16, seconds: f64) {
        self.operations.get(operation).record(status, seconds);
    }

    /// Counts a request whose caller was not authenticated.
    pub(crate) fn authentication_failed(&self, denial: Denial) {
        self.denials[denial as usize].fetch_add(1, Relaxed);
    }

    /// The figures of one listener, known by `name` from here on.
    pub fn listener(&self, name: &'static str) -> Arc<ListenerMetrics> {
        let listener = Arc::new(ListenerMetrics { name, ..ListenerMetrics::default() });
        lock(&self.listeners).push(Arc::clone(&listener));
        listener
    }

    /// Adds figures that are asked for whenever somebody reads. Must be quick and must not block.
    pub fn add_source(&self, source: impl Fn(&mut Exposition) + Send + Sync + 'static) {
        lock(&self.sources).push(Box::new(source));
    }

    /// Everything, as text.
    pub fn render(&self) -> String {
        let mut out = Exposition::default();
        self.operations.render(&mut out);
        self.render_denials(&mut out);
        render_listeners(&lock(&self.listeners), &mut out);
        for source in lock(&self.sources).iter() {
            source(&mut out);
        }
        out.text
    }

    /// Every reason, counted or not: an alert needs to see the first one.
    fn render_denials(&self, out: &mut Exposition) {
        let name = "rowhouse_authentication_failures_total";
        out.family(name, "Requests whose caller was not authenticated, by reason.", "counter");
        for denial in Denial::ALL {
            let labels = format!("{{reason=\"{}\"}}", denial.as_str());
            out.sample(name, &labels, self.denials[denial as usize].load(Relaxed));
        }
    }
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

/// A poisoned lock guards nothing but a list that is only appended to.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes families of figures, each with its help and type line.
#[derive(Debug, Default)]
pub struct Exposition {
    text: String,
}

impl Exposition {
    /// A figure that goes up and down.
    pub fn gauge(&mut self, name: &'static str, help: &'static str, value: u64) {
        self.family(name, help, "gauge");
        self.sample(name, "", value);
    }

    /// A figure that only rises while the process lives.
    pub fn counter(&mut self, name: &'static str, help: &'static str, value: u64) {
        self.family(name, help, "counter");
        self.sample(name, "", value);
    }

    /// A constant 1 that carries a fact in a label, such as a version.
    pub fn info(
        &mut self,
        name: &'static str,
        help: &'static str,
        label: &'static str,
        value: &str,
    ) {
        self.family(name, help, "gauge");
        self.sample(name, &format!("{{{label}={value:?}}}"), 1);
    }

    fn family(&mut self, name: &str, help: &str, kind: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &str, value: impl std::fmt::Display) {
        let _ = writeln!(self.text, "{name}{labels} {value}");
    }
}

/// Counters by operation: a table that is filled on first use and never shrinks, read without a
/// lock.
struct Operations {
    slots: [OnceLock<Box<Operation>>; OPERATIONS_MAX],
    other: Operation,
}

struct Operation {
    name: &'static str,
    classes: [AtomicU64; CLASSES.len()],
    buckets: [AtomicU64; BUCKETS.len()],
    count: AtomicU64,
    nanos: AtomicU64,
}

impl Default for Operations {
    fn default() -> Self {
        Self { slots: [const { OnceLock::new() }; OPERATIONS_MAX], other: Operation::new("other") }
    }
}

impl Operations {
    fn get(&self, name: &'static str) -> &Operation {
        let start = name
            .bytes()
            .fold(0_usize, |hash, byte| hash.wrapping_mul(31).wrapping_add(usize::from(byte)));
        for step in 0..OPERATIONS_MAX {
            let slot = &self.slots[start.wrapping_add(step) % OPERATIONS_MAX];
            let operation = slot.get_or_init(|| Box::new(Operation::new(name)));
            if operation.name == name {
                return operation;
            }
        }
        &self.other
    }

    fn render(&self, out: &mut Exposition) {
        let mut all: Vec<&Operation> =
            self.slots.iter().filter_map(|slot| slot.get().map(Box::as_ref)).collect();
        all.push(&self.other);
        all.retain(|operation| operation.count.load(Relaxed) > 0);
        all.sort_by_key(|operation| operation.name);

        let name = "rowhouse_requests_total";
        out.family(name, "Requests answered, by operation and class of status.", "counter");
        for operation in &all {
            for (class, count) in CLASSES.iter().zip(&operation.classes) {
                let count = count.load(Relaxed);
                if count > 0 {
                    let labels = format!("{{operation=\"{}\",status=\"{class}\"}}", operation.name);
                    out.sample(name, &labels, count);
                }
            }
        }

        out.family(
            "rowhouse_request_duration_seconds",
            "Time from the head of a request to its answer.",
            "histogram",
        );
        for operation in &all {
            operation.render_durations(out);
        }
    }
}

impl Operation {
    fn new(name: &'static str) -> Self {
        Self {
            name,
            classes: [const { AtomicU64::new(0) }; CLASSES.len()],
            buckets: [const { AtomicU64::new(0) }; BUCKETS.len()],
            count: AtomicU64::new(0),
            nanos: AtomicU64::new(0),
        }
    }

    fn record(&self, status: u16, seconds: f64) {
        let class = usize::from(status / 100).clamp(1, CLASSES.len()) - 1;
        self.classes[class].fetch_add(1, Relaxed);
        let duration = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::ZERO);
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let bucket = BUCKETS.partition_point(|&(bound, _)| bound < nanos);
        if let Some(bucket) = self.buckets.get(bucket) {
            bucket.fetch_add(1, Relaxed);
        }
        self.nanos.fetch_add(nanos, Relaxed);
        self.count.fetch_add(1, Relaxed);
    }

    /// The count is read first, so that no bucket ever exceeds it by more than what arrived
    /// meanwhile; `+Inf` is the larger of both, as the format demands.
    fn render_durations(&self, out: &mut Exposition) {
        let (operation, count) = (self.name, self.count.load(Relaxed));
        let bucket_name = "rowhouse_request_duration_seconds_bucket";
        let mut below = 0;
        for ((_, bound), bucket) in BUCKETS.iter().zip(&self.buckets) {
            below += bucket.load(Relaxed);
            let labels = format!("{{operation=\"{operation}\",le=\"{bound}\"}}");
            out.sample(bucket_name, &labels, below);
        }
        let count = count.max(below);
        out.sample(bucket_name, &format!("{{operation=\"{operation}\",le=\"+Inf\"}}"), count);
        let labels = format!("{{operation=\"{operation}\"}}");
        let nanos = self.nanos.load(Relaxed);
        let seconds = format!("{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000);
        out.sample("rowhouse_request_duration_seconds_sum", &labels, seconds);
        out.sample("rowhouse_request_duration_seconds_count", &labels, count);
    }
}

/// What one listener counts.
#[derive(Debug, Default)]
pub struct ListenerMetrics {
    name: &'static str,
    pub(crate) accepted: AtomicU64,
    pub(crate) open: AtomicU64,
    pub(crate) anonymous: AtomicU64,
    pub(crate) evicted: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) timed_out: AtomicU64,
    pub(crate) in_flight: AtomicU64,
    pub(crate) received_bytes: AtomicU64,
    pub(crate) sent_bytes: AtomicU64,
}

/// Counts one up for as long as it lives.
#[derive(Debug)]
pub(crate) struct Held<F: Fn(&ListenerMetrics) -> &AtomicU64> {
    metrics: Arc<ListenerMetrics>,
    figure: F,
}

impl ListenerMetrics {
    /// Raises a figure until the guard is dropped.
    pub(crate) fn hold<F>(self: &Arc<Self>, figure: F) -> Held<F>
    where
        F: Fn(&ListenerMetrics) -> &AtomicU64,
    {
        figure(self).fetch_add(1, Relaxed);
        Held { metrics: Arc::clone(self), figure }
    }
}

impl<F: Fn(&ListenerMetrics) -> &AtomicU64> Drop for Held<F> {
    fn drop(&mut self) {
        (self.figure)(&self.metrics).fetch_sub(1, Relaxed);
    }
}

type Figure = (&'static str, &'static str, &'static str, fn(&ListenerMetrics) -> &AtomicU64);

const LISTENER_FIGURES: [Figure; 9] = [
    ("rowhouse_connections", "Connections open now.", "gauge", |l| &l.open),
    (
        "rowhouse_connections_anonymous",
        "Connections open now that had no request with a valid credential.",
        "gauge",
        |l| &l.anonymous,
    ),
    (
        "rowhouse_connections_evicted_total",
        "Idle connections without a valid credential that were closed to make room for others.",
        "counter",
        |l| &l.evicted,
    ),
    ("rowhouse_connections_accepted_total", "Connections accepted.", "counter", |l| &l.accepted),
    (
        "rowhouse_connections_refused_total",
        "Connections closed at once because a limit was reached.",
        "counter",
        |l| &l.refused,
    ),
    (
        "rowhouse_connections_timed_out_total",
        "Connections closed because the client was idle or too slow.",
        "counter",
        |l| &l.timed_out,
    ),
    ("rowhouse_requests_in_flight", "Requests being answered now.", "gauge", |l| &l.in_flight),
    ("rowhouse_received_bytes_total", "Bytes received on the wire.", "counter", |l| {
        &l.received_bytes
    }),
    ("rowhouse_sent_bytes_total", "Bytes sent on the wire.", "counter", |l| &l.sent_bytes),
];

fn render_listeners(listeners: &[Arc<ListenerMetrics>], out: &mut Exposition) {
    for (name, help, kind, figure) in LISTENER_FIGURES {
        out.family(name, help, kind);
        for listener in listeners {
            let labels = format!("{{listener=\"{}\"}}", listener.name);
            out.sample(name, &labels, figure(listener).load(Relaxed));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str, series: &str) -> Option<String> {
        let line =
            text.lines().find(|line| line.rsplit_once(' ').is_some_and(|l| l.0 == series))?;
        Some(line.rsplit_once(' ')?.1.to_owned())
    }

    #[test]
    fn requests_are_counted_by_operation_and_class() {
        let metrics = Metrics::default();
        metrics.request("GetEntity", 200, 0.000_2);
        metrics.request("GetEntity", 200, 0.3);
        metrics.request("GetEntity", 404, 99.0);
        metrics.request("Batch", 202, f64::NAN);
        let text = metrics.render();
        let cases = [
            (r#"rowhouse_requests_total{operation="GetEntity",status="2xx"}"#, Some("2")),
            (r#"rowhouse_requests_total{operation="GetEntity",status="4xx"}"#, Some("1")),
            (r#"rowhouse_requests_total{operation="GetEntity",status="5xx"}"#, None),
            (r#"rowhouse_requests_total{operation="Batch",status="2xx"}"#, Some("1")),
            (
                r#"rowhouse_request_duration_seconds_bucket{operation="GetEntity",le="0.0001"}"#,
                Some("0"),
            ),
            (
                r#"rowhouse_request_duration_seconds_bucket{operation="GetEntity",le="0.00025"}"#,
                Some("1"),
            ),
            (
                r#"rowhouse_request_duration_seconds_bucket{operation="GetEntity",le="10"}"#,
                Some("2"),
            ),
            (
                r#"rowhouse_request_duration_seconds_bucket{operation="GetEntity",le="+Inf"}"#,
                Some("3"),
            ),
            (
                r#"rowhouse_request_duration_seconds_sum{operation="GetEntity"}"#,
                Some("99.300200000"),
            ),
            (r#"rowhouse_request_duration_seconds_count{operation="GetEntity"}"#, Some("3")),
        ];
        for (series, expected) in cases {
            assert_eq!(value(&text, series).as_deref(), expected, "{series}\n{text}");
        }
    }

    /// Labels stay bounded whatever a caller does.
    #[test]
    fn too_many_operations_are_counted_together() {
        let metrics = Metrics::default();
        for index in 0..OPERATIONS_MAX + 10 {
            let name: &'static str = Box::leak(format!("Operation{index}").into_boxed_str());
            metrics.request(name, 200, 0.0);
        }
        let series = r#"rowhouse_requests_total{operation="other",status="2xx"}"#;
        assert_eq!(value(&metrics.render(), series).as_deref(), Some("10"));
    }

    #[test]
    fn listeners_and_sources_appear() {
        let metrics = Metrics::default();
        let listener = metrics.listener("table");
        let held = listener.hold(|l| &l.in_flight);
        metrics.add_source(|out| out.gauge("rowhouse_store_wal_bytes", "Size of the log.", 7));
        let series = r#"rowhouse_requests_in_flight{listener="table"}"#;
        assert_eq!(value(&metrics.render(), series).as_deref(), Some("1"));
        drop(held);
        let text = metrics.render();
        assert_eq!(value(&text, series).as_deref(), Some("0"));
        assert_eq!(value(&text, "rowhouse_store_wal_bytes").as_deref(), Some("7"));
    }
}
