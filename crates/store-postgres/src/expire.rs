//! What has expired: when a table's entities do, and removing them, a little at a time and by one server at a time.
//!
//! A server passes over a table in the order of its keys, some entities with one statement, and removes those that have
//! expired in small transactions like any other, which look at each entity again: what was written meanwhile stays. How
//! far it is stands in `rowhouse.expiring`. Whoever goes on with a table moves the time from which others may, so after a
//! kill another server goes on from there.
//!
//! Nobody sees what has expired, so there is no hurry, and a table must not be read again and again for nothing. The next
//! pass over it begins when the first of the entities that stayed expires, but no sooner than a minute after the last one,
//! and ten times as long as that took: less than a tenth of the time is spent looking. It begins after an hour at the latest,
//! for what was written since.
//!
//! Nothing is removed within the grace period after a TTL was set: a user who takes it back has every entity again.

use crate::batch::{self, Located, Partition, Work};
use crate::fault::Fault;
use crate::filter;
use crate::index::declare;
use crate::key::DbKey;
use crate::nodes::Nodes;
use crate::pool::Session;
use crate::ticks::Tick;
use crate::time::{CLOCK, ExpiryTime};
use crate::{catalogue, key};
use rowhouse_store::{Command, Condition, Conflict, StoreError, Table, TableId, Ttl, Write};
use rowhouse_types::{EntityKey, Timestamp, limits};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio_postgres::types::ToSql;

/// How often a server looks for a table that is due.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Between two steps: others come first.
const PAUSE: Duration = Duration::from_millis(20);
/// Entities that a step looks at.
const ROWS: i64 = 1000;
/// Entities that are removed with one transaction.
const BATCH: usize = limits::BATCH_OPERATIONS_MAX;
/// How often a transaction that others were faster than is tried again.
const TRIES: u32 = 8;
/// Between two passes over a table, at least and at most.
const INTERVAL_MIN: Duration = Duration::from_mins(1);
const INTERVAL_MAX: Duration = Duration::from_hours(1);

const SET: &str = "UPDATE rowhouse.tables SET ttl = $2, ttl_property = $3
    WHERE tid = $1 AND dropped IS NULL";
// Every statement that changes a row raises `turn`: a trigger keeps servers that do not from removing anything.
const START: &str = "INSERT INTO rowhouse.expiring AS x (tid, due, turn)
    VALUES ($1, now() + $2 * interval '1 ms', 1)
    ON CONFLICT (tid) DO UPDATE SET due = excluded.due, pass = x.pass + 1, place_kp = '', place_rest = '',
        earliest = NULL, took_ms = 0, turn = x.turn + 1";
const STOP: &str = "DELETE FROM rowhouse.expiring WHERE tid = $1";
/// Whoever takes a table has ten seconds for a step.
const TAKE: &str = "UPDATE rowhouse.expiring SET due = now() + interval '10 s', turn = turn + 1
    WHERE tid = (SELECT x.tid FROM rowhouse.expiring x WHERE x.due <= now()
                 ORDER BY x.due LIMIT 1 FOR UPDATE SKIP LOCKED)
    RETURNING tid, pass, place_kp, place_rest, earliest, took_ms";
const GO_ON: &str = "UPDATE rowhouse.expiring
    SET due = now(), place_kp = $3, place_rest = $4, earliest = $5, took_ms = $6, turn = turn + 1
    WHERE tid = $1 AND pass = $2";
const FINISH: &str = "UPDATE rowhouse.expiring
    SET due = now() + $3 * interval '1 ms', pass = pass + 1, place_kp = '', place_rest = '',
        earliest = NULL, took_ms = 0, turn = turn + 1
    WHERE tid = $1 AND pass = $2";
const ACCOUNT: &str = "SELECT a.name FROM rowhouse.accounts a WHERE a.id = $1";
const FORGET: &str = "DELETE FROM rowhouse.expiring WHERE tid = $1 AND pass = $2";

/// Sets when the entities of a table expire, as part of a change of the catalogue. Writes of such a table are transactions:
/// single statements do not know of it.
pub(crate) async fn set(
    session: &Session,
    table: TableId,
    ttl: Option<&Ttl>,
    grace: Duration,
) -> Result<(), Fault> {
    let id = catalogue::number(table).ok_or(Conflict::TableNotFound)?;
    let ticks = ttl.map(|ttl| i64::try_from(ttl.ticks()).unwrap_or(i64::MAX));
    let property = ttl.and_then(|ttl| ttl.property.as_deref());
    if session.execute(SET, &[&id, &ticks, &property]).await? == 0 {
        return Err(Conflict::TableNotFound.into());
    }
    if ttl.is_some() {
        session.execute(START, &[&id, &milliseconds(grace)]).await?;
    } else {
        session.execute(STOP, &[&id]).await?;
    }
    declare::unmark(session, table).await
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

/// Removes what has expired.
#[derive(Clone, Debug)]
pub(crate) struct Expirer {
    nodes: Arc<Nodes>,
    time: ExpiryTime,
}

/// How far a table is looked through.
struct Pass {
    table: i64,
    number: i64,
    place: (Vec<u8>, Vec<u8>),
    /// When the first of those that stay expires.
    earliest: Option<i64>,
    /// How long looking took so far.
    took: Duration,
}

/// What a step found.
struct Looked {
    expired: Vec<Located>,
    /// The last entity that was looked at; none if there was none.
    last: Option<(Vec<u8>, Vec<u8>)>,
    finished: bool,
    earliest: Option<i64>,
}

impl Expirer {
    pub(crate) fn new(nodes: Arc<Nodes>, time: ExpiryTime) -> Self {
        Self { nodes, time }
    }

    /// The time that decides what is removed: what the database says itself, at this moment.
    async fn now(&self, session: &Session) -> Result<Timestamp, Fault> {
        if !self.time.is_of_database() {
            return Ok(self.time.now());
        }
        let row = session.row(CLOCK, &[]).await?;
        let ticks = row.and_then(|row| u64::try_from(row.get::<_, i64>(0)).ok());
        let now = ticks.and_then(Timestamp::from_ticks);
        now.ok_or_else(|| StoreError::Corrupt("the time of the database is none".to_owned()).into())
    }

    /// Looks for what has expired for as long as the store is open.
    pub(crate) async fn keep_looking(self, wake: Arc<Notify>) {
        let mut removed = Removed::default();
        loop {
            let _ = tokio::time::timeout(LOOK_EVERY, wake.notified()).await;
            // A server whose clock is wrong leaves the removal to others.
            while self.time.may_remove() {
                match self.step(&mut removed).await {
                    Ok(true) => tokio::time::sleep(PAUSE).await,
                    Ok(false) => break,
                    Err(fault) => {
                        tracing::debug!(?fault, "removing what has expired goes on later");
                        break;
                    }
                }
            }
            // A pass that goes on is another server's, or goes on later.
            removed.report_all();
        }
    }

    /// Some entities of a table that is due; false if there is none.
    async fn step(&self, removed: &mut Removed) -> Result<bool, Fault> {
        let session = self.nodes.first().session().await?;
        let Some(row) = session.row(TAKE, &[]).await? else { return Ok(false) };
        let took: i64 = row.get(5);
        let mut pass = Pass {
            table: row.get(0),
            number: row.get(1),
            place: (row.get(2), row.get(3)),
            earliest: row.get(4),
            took: Duration::from_millis(took.unsigned_abs()),
        };
        let id = TableId(pass.table.unsigned_abs());
        let known = catalogue::table_of(&session, id).await?;
        let Some((table, ttl)) =
            known.as_ref().and_then(|known| Some((&known.table, known.table.ttl.as_ref()?)))
        else {
            session.execute(FORGET, &[&pass.table, &pass.number]).await?;
            return Ok(true);
        };
        let (began, now) = (Instant::now(), self.now(&session).await?);
        let looked = look(&session, pass.table, ttl, &pass.place, now).await?;
        pass.took += began.elapsed();
        pass.earliest = [pass.earliest, looked.earliest].into_iter().flatten().min();
        self.remove(&session, table, looked.expired, now, removed).await?;
        let took = i64::try_from(pass.took.as_millis()).unwrap_or(i64::MAX);
        if let (false, Some((prefix, rest))) = (looked.finished, looked.last) {
            let values: crate::pool::Values<'_> =
                &[&pass.table, &pass.number, &prefix, &rest, &pass.earliest, &took];
            session.execute(GO_ON, values).await?;
        } else {
            let wait = milliseconds(interval(&pass, ttl, now));
            session.execute(FINISH, &[&pass.table, &pass.number, &wait]).await?;
            removed.report(id);
        }
        Ok(true)
    }

    /// Everything in a table that has expired; whether there was something. A server whose clock is wrong fails: another one
    /// goes on with what needs it.
    pub(crate) async fn remove_all(&self, table: i64) -> Result<bool, Fault> {
        if !self.time.may_remove() {
            return Err(StoreError::unavailable("the clock of this machine is wrong").into());
        }
        let session = self.nodes.first().session().await?;
        let known = catalogue::table_of(&session, TableId(table.unsigned_abs())).await?;
        let Some((found, ttl)) =
            known.as_ref().and_then(|known| Some((&known.table, known.table.ttl.as_ref()?)))
        else {
            return Ok(false);
        };
        let (mut place, mut had_expired) = ((Vec::new(), Vec::new()), false);
        let mut removed = Removed::default();
        loop {
            let now = self.now(&session).await?;
            let looked = look(&session, table, ttl, &place, now).await?;
            had_expired |= !looked.expired.is_empty();
            self.remove(&session, found, looked.expired, now, &mut removed).await?;
            match looked.last {
                Some(last) if !looked.finished => place = last,
                _ => return Ok(had_expired),
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// In small transactions, except those that are there again. On a cluster each transaction stays in one partition's
    /// home.
    async fn remove(
        &self,
        session: &Session,
        table: &Table,
        mut expired: Vec<Located>,
        now: Timestamp,
        removed: &mut Removed,
    ) -> Result<(), Fault> {
        if !expired.is_empty() {
            removed.begin(session, table).await?;
        }
        expired.sort_by(|a, b| (a.partition, &a.key).cmp(&(b.partition, &b.key)));
        let cluster = self.nodes.is_cluster();
        while let Some(first) = expired.first() {
            let home = first.partition;
            let alike = |located: &&Located| !cluster || located.partition == home;
            let count = expired.iter().take(BATCH).take_while(alike).count();
            let rest = expired.split_off(count);
            let batch = std::mem::replace(&mut expired, rest);
            removed.add(table.id, self.remove_batch(session, batch, now).await?);
        }
        Ok(())
    }

    async fn remove_batch(
        &self,
        session: &Session,
        mut batch: Vec<Located>,
        now: Timestamp,
    ) -> Result<usize, Fault> {
        let mut tries = 0;
        // Nothing is left with it: what was there and what was not are both gone.
        let tick = Tick { at: i64::MAX };
        while !batch.is_empty() {
            let cluster = self.nodes.is_cluster();
            match batch::as_transaction(session, Work::of_entities(&batch), tick, now, cluster)
                .await
            {
                Ok(_) => return Ok(batch.len()),
                Err(Fault::Rejected(index, Conflict::EntityExists)) => drop(batch.remove(index)),
                Err(Fault::Raced(_) | Fault::Unmet) if tries < TRIES => {
                    tries += 1;
                    tokio::time::sleep(Duration::from_millis(1 << tries)).await;
                }
                Err(fault) => return Err(fault),
            }
        }
        Ok(0)
    }
}

/// How many entities this server removed from each table, and did not report yet: of what account, which table. What is
/// left is reported when it is dropped: a step that fails and a server that stops have removed some, too.
#[derive(Debug, Default)]
struct Removed(BTreeMap<TableId, (String, String, usize)>);

impl Removed {
    /// Before the first removal: what was removed can then be counted whatever the database answers.
    async fn begin(&mut self, session: &Session, table: &Table) -> Result<(), Fault> {
        if self.0.contains_key(&table.id) {
            return Ok(());
        }
        let account = i64::from(table.account.0);
        let row = session.row(ACCOUNT, &[&account]).await?;
        let account = row.map_or_else(String::new, |row| row.get(0));
        self.0.insert(table.id, (account, table.name.as_str().to_owned(), 0));
        Ok(())
    }

    fn add(&mut self, table: TableId, gone: usize) {
        if let Some((_, _, count)) = self.0.get_mut(&table) {
            *count += gone;
        }
    }

    /// A line in the log about a pass that removed something.
    fn report(&mut self, table: TableId) {
        if let Some((account, table, removed @ 1..)) = self.0.remove(&table) {
            tracing::info!(account, table, removed, "expired entities were removed");
        }
    }

    fn report_all(&mut self) {
        for table in self.0.keys().copied().collect::<Vec<_>>() {
            self.report(table);
        }
    }
}

impl Drop for Removed {
    fn drop(&mut self) {
        self.report_all();
    }
}

/// How long a table is left alone after a pass.
fn interval(pass: &Pass, ttl: &Ttl, now: Timestamp) -> Duration {
    let least = INTERVAL_MIN.max(10 * pass.took);
    let most = INTERVAL_MAX.max(least);
    let until = pass.earliest.map_or(most, |since| {
        let expires = since.unsigned_abs().saturating_add(ttl.ticks());
        Duration::from_nanos(expires.saturating_sub(now.ticks()).saturating_mul(100))
    });
    until.clamp(least, most)
}

/// Looks at the entities after a place: those that have expired, the last, and the least time that others count from.
async fn look(
    session: &Session,
    table: i64,
    ttl: &Ttl,
    (prefix, rest): &(Vec<u8>, Vec<u8>),
    now: Timestamp,
) -> Result<Looked, Fault> {
    let last = ttl.at(now).last().map_or(-1, filter::ticks);
    let property = ttl.property.as_deref();
    let since = if property.is_some() { filter::time("e", "$6::text") } else { "e.ts".to_owned() };
    let sql = format!(
        "SELECT l.dk, l.kp, l.rest, l.pl, l.since <= $4 AS expired, l.earliest, l.count FROM (
            SELECT s.*, row_number() OVER w AS n, count(*) OVER () AS count,
                min(s.since) FILTER (WHERE s.since > $4) OVER () AS earliest
            FROM (SELECT e.dk, e.kp, e.rest, e.pl, {since} AS since FROM rowhouse.entities e
                  WHERE e.tid = $1 AND (e.kp, e.rest) > ($2, $3)
                  ORDER BY e.kp, e.rest LIMIT $5) AS s
            WINDOW w AS (ORDER BY s.kp, s.rest)) AS l
         WHERE l.since <= $4 OR l.n = l.count ORDER BY l.n"
    );
    let mut values: Vec<&(dyn ToSql + Sync)> = vec![&table, prefix, rest, &last, &ROWS];
    if let Some(property) = &property {
        values.push(property);
    }
    let rows = session.rows(&sql, &values).await?;
    let mut looked = Looked { expired: Vec::new(), last: None, finished: true, earliest: None };
    for row in &rows {
        looked.earliest = row.get(5);
        looked.finished = row.get::<_, i64>(6) < ROWS;
        looked.last = Some((row.get(1), row.get(2)));
        if row.get::<_, Option<bool>>(4) == Some(true) {
            let partition = Partition { table, home: row.get(0) };
            let mut buffer = Vec::new();
            let halves = key::split(row.get(1), row.get(2), row.get(3), &mut buffer);
            let key = halves.and_then(|(partition, row)| EntityKey::new(partition, row).ok());
            let key = key.ok_or_else(|| StoreError::Corrupt("a key is none".to_owned()))?;
            looked.expired.push(Located {
                partition,
                key: DbKey::new(&key),
                // Refused unless it has expired, and is not another by then.
                command: Command::Entity {
                    table: TableId(table.unsigned_abs()),
                    key,
                    condition: Condition::Absent,
                    write: Write::Delete,
                },
            });
        }
    }
    Ok(looked)
}
