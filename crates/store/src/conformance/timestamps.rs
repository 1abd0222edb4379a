//! Timestamps, and with them ETags: rising whatever the clock does.

use super::Engine;
use super::fixture::{command, commit, get, key, number, open, page, put, scan_all, table, write};
use crate::{Condition, Store, TableId, Write};
use rowhouse_env::Clock;
use rowhouse_types::{EntityKey, Timestamp};
use std::time::Duration;

const HOUR: Duration = Duration::from_hours(1);

fn earlier(now: Timestamp) -> Timestamp {
    let ticks = u64::try_from(HOUR.as_nanos() / 100).expect("an hour has few ticks");
    Timestamp::from_ticks(now.ticks() - ticks).expect("earlier than a legal time")
}

/// By key and by scan, for every command of a batch.
pub async fn timestamps_are_those_stored(engine: &dyn Engine) {
    let (store, table) = open(engine).await;
    let keys: Vec<_> = (0..5).map(|n| key("p", &n.to_string())).collect();
    let mut record = number(1);
    record.stamp(Timestamp::MAX);
    let puts = keys.iter().map(|key| put(table, key, record.clone())).collect();
    let committed = commit(&*store, puts).await.expect("the batch succeeds");
    for (key, timestamp) in keys.iter().zip(&committed.timestamps) {
        let found = get(&*store, table, key).await.expect("the entity is there");
        assert_eq!(found.as_ref().timestamp(), *timestamp);
    }
    let page = page(&*store, table, scan_all()).await;
    let scanned: Vec<_> =
        page.rows.iter().map(|row| row.expect("a page decodes").record.timestamp()).collect();
    assert_eq!(scanned, committed.timestamps);
}

/// Puts, merges, deletes and inserts one key over and over; every Timestamp must be new and later.
async fn churn(store: &dyn Store, table: TableId, key: &EntityKey, last: &mut Timestamp) {
    let writes = [
        Write::Put(number(1)),
        Write::Put(number(1)),
        Write::Merge(number(1)),
        Write::Delete,
        Write::Put(number(1)),
        Write::Delete,
    ];
    for what in writes {
        let timestamp = write(store, command(table, key, Condition::Any, what.clone())).await;
        if !matches!(what, Write::Delete) {
            assert!(*last < timestamp, "{last} then {timestamp}");
            *last = timestamp;
        }
    }
}

/// The clock stands still, goes forward and is set back.
pub async fn etag_of_an_entity_never_repeats(engine: &dyn Engine) {
    let (store, table) = open(engine).await;
    let key = key("p", "r");
    let mut last = Timestamp::default();
    churn(&*store, table, &key, &mut last).await;
    engine.clock().advance(Duration::from_millis(5));
    churn(&*store, table, &key, &mut last).await;
    engine.clock().set(earlier(engine.clock().now()));
    churn(&*store, table, &key, &mut last).await;
}

/// Restarts with the clock as it was and set back, with and without the entity there.
pub async fn etag_never_repeats_after_reopening(engine: &dyn Engine) {
    let (mut store, table) = open(engine).await;
    let key = key("p", "r");
    let mut last = Timestamp::default();
    for round in 0..4 {
        churn(&*store, table, &key, &mut last).await;
        if round % 2 == 0 {
            last = write(&*store, put(table, &key, number(1))).await;
        }
        if round > 0 {
            engine.clock().set(earlier(engine.clock().now()));
        }
        let Some(reopened) = engine.reopen(store).await else { return };
        store = reopened;
    }
    churn(&*store, table, &key, &mut last).await;
}

/// Different entities of different tables, deletes too.
pub async fn timestamps_rise_over_the_store(engine: &dyn Engine) {
    let (mut store, first) = open(engine).await;
    let other = super::fixture::account(&*store, "second").await;
    let second = table(&*store, other.id, "Others").await;
    let mut last = Timestamp::default();
    for n in 0..24 {
        if n % 6 == 5 {
            engine.clock().set(earlier(engine.clock().now()));
        }
        if n == 12 {
            // Where nothing is kept, the rest holds all the same.
            if let Some(reopened) = engine.reopen(std::sync::Arc::clone(&store)).await {
                store = reopened;
            }
        }
        let table = if n % 2 == 0 { first } else { second };
        let key = key(&(n % 5).to_string(), "r");
        let what = if n % 4 == 3 { Write::Delete } else { Write::Put(number(n)) };
        let timestamp = write(&*store, command(table, &key, Condition::Any, what)).await;
        assert!(last < timestamp, "{last} then {timestamp} at {n}");
        last = timestamp;
    }
}

/// Forward steps are followed at once.
pub async fn timestamps_follow_the_clock(engine: &dyn Engine) {
    let (store, table) = open(engine).await;
    for n in 0..4 {
        engine.clock().advance(HOUR);
        let now = engine.clock().now();
        let timestamp = write(&*store, put(table, &key("p", "r"), number(n))).await;
        assert!(now <= timestamp, "{timestamp} is before the clock, {now}");
        assert!(timestamp.seconds_from(now) < 1, "{timestamp} is far after the clock, {now}");
    }
}
