//! The changes that are kept, by a trigger on the entities, for all servers alike.
//!
//! Numbers are drawn while the changed row is locked, so those of one entity are in the order of its changes; but a
//! transaction that drew a small number may commit after one that drew a large one. So a reader first notes the last
//! number drawn, then waits until every transaction that was under way then has ended: up to that number nothing can
//! appear any more. A transaction of somebody else on the same database that does not end holds readers up. A reader
//! within a view does not wait: it is told of those that the view shows.

use crate::fault::Fault;
use crate::key;
use crate::pool::{Pool, Session, Values};
use crate::props::{self, JsonbRef};
use crate::schema;
use rowhouse_store::{Change, Changes, ChangesWanted, Conflict, Kept, StoreError, TableId};
use rowhouse_types::{EntityKey, Record, Timestamp};
use std::time::{Duration, Instant};
use tokio_postgres::Row;

/// Most changes in one answer.
const ROWS_MAX: usize = 1000;
/// Changes that are asked for first. What is asked for and does not fit has to be read all the same.
const FIRST_ROWS: usize = 16;
/// Most numbers that are looked through for one answer.
const SPAN: i64 = 50_000;
/// How long transactions under way are waited for.
const SETTLE_WITHIN: Duration = Duration::from_secs(10);
/// How often old changes are looked for, and the pause between steps.
const TRIM_EVERY: Duration = Duration::from_secs(1);
const TRIM_PAUSE: Duration = Duration::from_millis(20);
/// Rows that a step looks at, and removes at most.
const TRIM_ROWS: i64 = 1000;
/// Held by whoever removes changes.
const TRIM_LOCK: i64 = 0x726F_7768_6F75_7367;

const MARKS: &str = "SELECT retention IS NOT NULL, changes_after FROM rowhouse.catalogue";
const LAST: &str =
    "SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM rowhouse.changes_id_seq";
/// Takes a number of its own, after those of all transactions that are under way: a snapshot knows of none that
/// began after the last one that ended.
const UNDER_WAY: &str = "SELECT pg_current_xact_id()::text::bigint";
const OLDEST: &str = "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint";
/// A number that no change has: whoever draws it later than another has a later place.
const DRAW: &str = "SELECT nextval('rowhouse.changes_id_seq')";
const READ: &str = "SELECT id, tid, key, pl, ts, names, props FROM rowhouse.changes
    WHERE id > $1 AND id <= $2 AND ($3::bigint IS NULL OR tid = $3) ORDER BY id LIMIT $4";
const ON: &str = "DROP TRIGGER IF EXISTS note_change ON rowhouse.entities;
    CREATE TRIGGER note_change AFTER INSERT OR UPDATE OR DELETE ON rowhouse.entities
    FOR EACH ROW EXECUTE FUNCTION rowhouse.note_change()";
const OFF: &str = "DROP TRIGGER IF EXISTS note_change ON rowhouse.entities";
const TRIM: &str = "WITH old AS (
        SELECT c.id FROM (SELECT id, made FROM rowhouse.changes ORDER BY id LIMIT $1) AS c, rowhouse.catalogue m
        WHERE c.id <= m.changes_after OR c.made < clock_timestamp() - m.retention
    ), gone AS (
        DELETE FROM rowhouse.changes WHERE id = ANY (ARRAY(SELECT id FROM old)) RETURNING id
    )
    SELECT max(id), count(*) FROM gone";
const TRIMMED: &str = "UPDATE rowhouse.catalogue SET changes_after = GREATEST(changes_after, $1)";

/// Keeps changes from now on, or no longer; run as a change of the catalogue.
pub(crate) async fn keep(session: &Session, retention: Option<Duration>) -> Result<(), Fault> {
    if retention.is_some() && schema::is_distributed(session).await? {
        tracing::warn!(
            "changes cannot be kept on a Citus cluster: it has no triggers on what it distributes"
        );
        return Err(Conflict::ChangesNotKept.into());
    }
    let was_on = marks(session).await?.is_some();
    if was_on != retention.is_some() {
        // Whoever writes meanwhile waits: from the trigger on nothing is missed.
        session.run(if was_on { OFF } else { ON }).await?;
        let last = last(session).await?;
        session.execute("UPDATE rowhouse.catalogue SET changes_after = $1", &[&last]).await?;
    }
    let seconds = retention.map(|retention| retention.as_secs_f64());
    let sql = "UPDATE rowhouse.catalogue SET retention = $1::float8 * interval '1 second'";
    session.execute(sql, &[&seconds]).await?;
    Ok(())
}

/// All after this number are there; none if they are not kept.
async fn marks(session: &Session) -> Result<Option<i64>, Fault> {
    let row = session.row(MARKS, &[]).await?;
    Ok(row.filter(|row| row.get(0)).map(|row| row.get(1)))
}

async fn last(session: &Session) -> Result<i64, Fault> {
    Ok(session.row(LAST, &[]).await?.map_or(0, |row| row.get(0)))
}

/// The last number up to which nothing can appear any more, of which this one is known.
async fn settled(session: &Session, known: i64) -> Result<i64, Fault> {
    let last = last(session).await?;
    if known < last {
        settle(session).await?;
    }
    Ok(last)
}

/// A place of its own, up to which nothing can appear any more, for a view that begins afterwards. It is later than
/// that of every view that began before: what this one shows beyond it can be said to stand at it.
pub(crate) async fn own_place(session: &Session) -> Result<i64, Fault> {
    let place = number(session, DRAW).await?;
    settle(session).await?;
    Ok(place)
}

/// Waits until nothing can appear any more up to the last number that was drawn.
async fn settle(session: &Session) -> Result<(), Fault> {
    // Asked afterwards: whoever drew a number up to that one is among them, or has ended.
    let under_way = number(session, UNDER_WAY).await?;
    let began = Instant::now();
    let mut pause = Duration::from_millis(1);
    while number(session, OLDEST).await? < under_way {
        if began.elapsed() > SETTLE_WITHIN {
            tracing::warn!(
                "a transaction on the database has been open for long: changes wait for it"
            );
            return Err(StoreError::Busy.into());
        }
        tokio::time::sleep(pause).await;
        pause = (2 * pause).min(Duration::from_millis(50));
    }
    Ok(())
}

async fn number(session: &Session, sql: &str) -> Result<i64, Fault> {
    Ok(session.row(sql, &[]).await?.map_or(0, |row| row.get(0)))
}

pub(crate) async fn kept(session: &Session) -> Result<Option<Kept>, Fault> {
    match marks(session).await? {
        Some(after) => {
            let until = settled(session, after).await?;
            Ok(Some(Kept { after: after.unsigned_abs(), until: until.unsigned_abs() }))
        }
        None => Ok(None),
    }
}

/// Changes after a place, without waiting for any.
pub(crate) async fn read(session: &Session, wanted: &ChangesWanted) -> Result<Changes, Fault> {
    let after = place(wanted.after)?;
    let until = settled(session, after).await?;
    let end = until.min(after.saturating_add(SPAN));
    let changes = page(session, after, end, wanted).await?;
    // Asked afterwards: what is removed meanwhile is noticed.
    let reaches = marks(session).await?.is_some_and(|first| first <= after && after <= until);
    if !reaches {
        return Err(Conflict::ChangesNotKept.into());
    }
    // Whether a limit ended it does not matter: then the next answer is empty and goes further.
    let last = changes.last().map(|change| change.place);
    Ok(Changes { changes, next: last.unwrap_or(end.unsigned_abs()) })
}

/// Changes after a place that the view shows which the session is in.
pub(crate) async fn read_within(
    session: &Session,
    wanted: &ChangesWanted,
) -> Result<Changes, Fault> {
    let after = place(wanted.after)?;
    if marks(session).await?.is_none_or(|first| after < first) {
        return Err(Conflict::ChangesNotKept.into());
    }
    let changes = page(session, after, i64::MAX, wanted).await?;
    let last = changes.last().map(|change| change.place);
    Ok(Changes { changes, next: last.unwrap_or(wanted.after) })
}

/// Changes after a number and up to another one, ending with the one that reaches the bytes. How many are asked for at
/// a time depends on how large those before were: the database cannot tell how much they take when they are here.
async fn page(
    session: &Session,
    mut after: i64,
    end: i64,
    wanted: &ChangesWanted,
) -> Result<Vec<Change>, Fault> {
    let table = wanted.table.map(|TableId(id)| place(id)).transpose()?;
    let limit = wanted.limit.clamp(1, ROWS_MAX);
    let (mut changes, mut bytes) = (Vec::new(), 0);
    let mut rows = FIRST_ROWS.min(limit);
    loop {
        let before = changes.len();
        let limit_of_rows = i64::try_from(rows).unwrap_or(i64::MAX);
        let values: Values<'_> = &[&after, &end, &table, &limit_of_rows];
        let take = |row: &Row| {
            let change = change(row)?;
            bytes += size(&change);
            changes.push(change);
            Ok(bytes < wanted.max_bytes)
        };
        session.each(READ, values, take).await?;
        let is_last = changes.len() - before < rows;
        if is_last || limit <= changes.len() || wanted.max_bytes <= bytes {
            return Ok(changes);
        }
        after = changes.last().map_or(Ok(after), |last| place(last.place))?;
        let room = (wanted.max_bytes - bytes).saturating_mul(changes.len()) / bytes.max(1);
        rows = room.clamp(1, limit - changes.len());
    }
}

/// How much a change takes, as [`ChangesWanted::max_bytes`] counts it.
fn size(change: &Change) -> usize {
    let record = change.record.as_ref().map_or(0, |record| record.as_bytes().len());
    change.key.partition.as_str().len() + change.key.row.as_str().len() + record
}

fn place(number: u64) -> Result<i64, Fault> {
    i64::try_from(number).map_err(|_| Conflict::ChangesNotKept.into())
}

fn change(row: &Row) -> Result<Change, Fault> {
    let mut buffer = Vec::new();
    let halves = key::split(row.get(2), &[], row.get(3), &mut buffer);
    let key = halves.and_then(|(partition, row)| EntityKey::new(partition, row).ok());
    let key = key.ok_or_else(|| corrupt("a key is none"))?;
    let ts: i64 = row.get(4);
    let at = u64::try_from(ts).ok().and_then(Timestamp::from_ticks);
    let table: i64 = row.get(1);
    Ok(Change {
        place: row.get::<_, i64>(0).unsigned_abs(),
        table: TableId(table.unsigned_abs()),
        key,
        at: at.ok_or_else(|| corrupt("a time is out of range"))?,
        record: record(row, ts)?,
    })
}

fn record(row: &Row, ts: i64) -> Result<Option<Record>, Fault> {
    let names: Option<Vec<&str>> = row.get(5);
    match names {
        Some(names) => Ok(Some(props::decode(ts, &names, row.get::<_, JsonbRef<'_>>(6))?)),
        None => Ok(None),
    }
}

fn corrupt(what: &str) -> Fault {
    StoreError::Corrupt(what.to_owned()).into()
}

/// Removes changes that need not be kept, for as long as the store is open.
pub(crate) async fn keep_trimming(pool: Pool) {
    loop {
        tokio::time::sleep(TRIM_EVERY).await;
        if let Err(fault) = trim_all(&pool).await {
            tracing::debug!(?fault, "old changes are removed later");
        }
    }
}

/// Until nothing is left, or another server does it.
async fn trim_all(pool: &Pool) -> Result<(), Fault> {
    loop {
        let session = pool.session().await?;
        session.begin("BEGIN").await?;
        let turn = session.row("SELECT pg_try_advisory_xact_lock($1)", &[&TRIM_LOCK]).await?;
        let more = turn.is_some_and(|row| row.get(0)) && trim(&session).await?;
        session.end("COMMIT").await?;
        drop(session);
        if !more {
            return Ok(());
        }
        tokio::time::sleep(TRIM_PAUSE).await;
    }
}

/// Removes some changes; whether there may be more.
async fn trim(session: &Session) -> Result<bool, Fault> {
    let Some(row) = session.row(TRIM, &[&TRIM_ROWS]).await? else { return Ok(false) };
    let (last, count): (Option<i64>, i64) = (row.get(0), row.get(1));
    if let Some(last) = last {
        session.execute(TRIMMED, &[&last]).await?;
    }
    Ok(count == TRIM_ROWS)
}
