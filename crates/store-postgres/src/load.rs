//! What servers ask of each shard: counted here, and summed over all of them in the database.
//!
//! Counting an operation is a few additions, without a lock. Every ten seconds a server writes what it asked for in
//! a second into the database, where any of them finds the figures of all. Those of a server that is gone or silent
//! are not counted.

use crate::fault::Fault;
use crate::membership::Membership;
use crate::nodes::Nodes;
use crate::pool::Session;
use rowhouse_types::cluster::Load;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The number under which is counted what concerns several shards, or a database without any.
pub(crate) const SEVERAL: i64 = 0;
/// How often a server says what it asked for. SQL takes it for silent after three times as long.
const PUBLISH_EVERY: Duration = Duration::from_secs(10);

const PUBLISH: &str = "INSERT INTO rowhouse.load
        (slot, holder, shard, reads, writes, rows_read, rows_written, busy_ms, since, at)
    SELECT $1::bigint, $2::bigint, m.*, now() - $9::double precision * interval '1 second', now()
    FROM unnest($3::bigint[], $4::double precision[], $5::double precision[], $6::double precision[],
        $7::double precision[], $8::double precision[]) AS m
    ON CONFLICT (slot, shard) DO UPDATE SET holder = excluded.holder,
        reads = excluded.reads, writes = excluded.writes, rows_read = excluded.rows_read,
        rows_written = excluded.rows_written, busy_ms = excluded.busy_ms,
        since = excluded.since, at = excluded.at";
const FORGET: &str = "DELETE FROM rowhouse.load l
    WHERE l.at < now() - interval '30 seconds' OR NOT EXISTS (SELECT FROM rowhouse.servers s
        WHERE s.slot = l.slot AND s.holder = l.holder AND s.expires > now())";
const SUM: &str = "SELECT l.shard, sum(l.reads), sum(l.writes), sum(l.rows_read),
        sum(l.rows_written), sum(l.busy_ms)
    FROM rowhouse.load l JOIN rowhouse.servers s ON s.slot = l.slot AND s.holder = l.holder
    WHERE s.expires > now() AND l.at >= now() - interval '30 seconds' GROUP BY l.shard";

/// What this server has asked of a shard since it knows it.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    reads: AtomicU64,
    writes: AtomicU64,
    rows_read: AtomicU64,
    rows_written: AtomicU64,
    nanos: AtomicU64,
}

/// What counters were at a moment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    reads: u64,
    writes: u64,
    rows_read: u64,
    rows_written: u64,
    nanos: u64,
}

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Write,
}

/// An operation under way. Counted when this is dropped, however it ended.
#[derive(Debug)]
pub(crate) struct Meter {
    counters: Arc<Counters>,
    kind: Kind,
    began: Instant,
    rows: usize,
}

impl Meter {
    /// The database is asked now.
    pub(crate) fn start(counters: &Arc<Counters>, kind: Kind) -> Self {
        Self { counters: Arc::clone(counters), kind, began: Instant::now(), rows: 0 }
    }

    /// It has answered, with so many entities read or written.
    pub(crate) fn answered(mut self, rows: usize) {
        self.rows = rows;
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        let Counters { reads, writes, rows_read, rows_written, nanos } = &*self.counters;
        let (operations, rows) = match self.kind {
            Kind::Read => (reads, rows_read),
            Kind::Write => (writes, rows_written),
        };
        operations.fetch_add(1, Ordering::Relaxed);
        rows.fetch_add(self.rows as u64, Ordering::Relaxed);
        let elapsed = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        nanos.fetch_add(elapsed, Ordering::Relaxed);
    }
}

impl Counters {
    pub(crate) fn totals(&self) -> Totals {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Totals {
            reads: of(&self.reads),
            writes: of(&self.writes),
            rows_read: of(&self.rows_read),
            rows_written: of(&self.rows_written),
            nanos: of(&self.nanos),
        }
    }
}

impl Totals {
    /// What was counted since then, in a second.
    fn rate(self, earlier: Self, elapsed: Duration) -> Load {
        let rate = |now, then| per_second(now, then, elapsed);
        Load {
            reads_per_second: rate(self.reads, earlier.reads),
            writes_per_second: rate(self.writes, earlier.writes),
            rows_read_per_second: rate(self.rows_read, earlier.rows_read),
            rows_written_per_second: rate(self.rows_written, earlier.rows_written),
            busy_ms_per_second: rate(self.nanos, earlier.nanos) / 1e6,
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a rate that is shown needs few digits")]
fn per_second(now: u64, then: u64, elapsed: Duration) -> f64 {
    now.saturating_sub(then) as f64 / elapsed.as_secs_f64().max(1e-3)
}

/// All counters at a moment, by shard.
struct Sample {
    at: Instant,
    totals: BTreeMap<i64, Totals>,
}

impl Sample {
    fn of(nodes: &Nodes) -> Self {
        Self { at: Instant::now(), totals: nodes.totals() }
    }

    /// What was asked of each shard since then, in a second.
    fn rates(&self, earlier: &Self) -> Vec<(i64, Load)> {
        let elapsed = self.at - earlier.at;
        let before = |shard| earlier.totals.get(shard).copied().unwrap_or_default();
        self.totals
            .iter()
            .map(|(shard, totals)| (*shard, totals.rate(before(shard), elapsed)))
            .collect()
    }
}

/// Says what this server asks for, for as long as the store is open.
pub(crate) async fn keep_publishing(nodes: Arc<Nodes>, membership: Arc<Membership>) {
    let mut last = Sample::of(&nodes);
    loop {
        tokio::time::sleep(PUBLISH_EVERY).await;
        let now = Sample::of(&nodes);
        if let Err(fault) = publish(&nodes, &membership, &now, &last).await {
            tracing::debug!(?fault, "what this server asks for could not be published");
        }
        last = now;
    }
}

async fn publish(
    nodes: &Nodes,
    membership: &Membership,
    now: &Sample,
    last: &Sample,
) -> Result<(), Fault> {
    let rates = now.rates(last);
    let shards: Vec<i64> = rates.iter().map(|(shard, _)| *shard).collect();
    let column = |figure: fn(&Load) -> f64| -> Vec<f64> {
        rates.iter().map(|(_, load)| figure(load)).collect()
    };
    let reads = column(|load| load.reads_per_second);
    let writes = column(|load| load.writes_per_second);
    let rows_read = column(|load| load.rows_read_per_second);
    let rows_written = column(|load| load.rows_written_per_second);
    let busy = column(|load| load.busy_ms_per_second);
    let seconds = (now.at - last.at).as_secs_f64();
    let (slot, holder) = membership.identity();
    let session = nodes.first().session().await?;
    session.execute(FORGET, &[]).await?;
    let values: crate::pool::Values<'_> =
        &[&slot, &holder, &shards, &reads, &writes, &rows_read, &rows_written, &busy, &seconds];
    session.execute(PUBLISH, values).await?;
    Ok(())
}

/// What all servers together ask for, by shard.
pub(crate) async fn sum(session: &Session) -> Result<HashMap<i64, Load>, Fault> {
    let rows = session.rows(SUM, &[]).await?;
    let load = |row: &tokio_postgres::Row| Load {
        reads_per_second: row.get(1),
        writes_per_second: row.get(2),
        rows_read_per_second: row.get(3),
        rows_written_per_second: row.get(4),
        busy_ms_per_second: row.get(5),
    };
    Ok(rows.iter().map(|row| (row.get(0), load(row))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_counted_however_they_end() {
        let counters = Arc::new(Counters::default());
        Meter::start(&counters, Kind::Read).answered(3);
        Meter::start(&counters, Kind::Write).answered(100);
        drop(Meter::start(&counters, Kind::Write));
        let Totals { reads, writes, rows_read, rows_written, nanos } = counters.totals();
        assert_eq!((reads, writes, rows_read, rows_written), (1, 2, 3, 100));
        assert!(nanos > 0);
    }

    #[test]
    fn rates_are_of_the_time_between() {
        let earlier = Totals { reads: 5, nanos: 1_000_000_000, ..Totals::default() };
        let now = Totals { reads: 25, writes: 4, nanos: 3_000_000_000, ..earlier };
        let load = now.rate(earlier, Duration::from_secs(4));
        let expected = Load {
            reads_per_second: 5.0,
            writes_per_second: 1.0,
            busy_ms_per_second: 500.0,
            ..Load::default()
        };
        assert_eq!(load, expected);
    }
}
