//! One entity, one statement: reads, and writes whose conditions are judged in the statement itself.

use crate::fault::Fault;
use crate::key::DbKey;
use crate::pool::Session;
use crate::props::{self, Jsonb, JsonbRef};
use crate::ticks::Tick;
use rowhouse_store::{Condition, Conflict, Write};
use rowhouse_types::{EntityKey, Record, limits};
use std::sync::LazyLock;
use tokio_postgres::Row;

/// A row without an entity if there is just the table, and none if there is no table.
const GET: &str =
    "SELECT e.ts, e.names, e.props FROM rowhouse.tables t LEFT JOIN rowhouse.entities e
    ON e.dk = $1 AND e.tid = $2 AND e.kp = $3 AND e.kh = $4
    WHERE t.tid = $2 AND t.dropped IS NULL";
const INSERT: &str = "INSERT INTO rowhouse.entities AS e
        (dk, tid, kp, kh, rest, pl, ts, size, names, props)
    VALUES ($1, rowhouse.live($2), $3, $4, $5, $6, $7, $8, $9, $10)";
/// Instead of failing when the key is there.
const OR_NOTHING: &str = "ON CONFLICT (tid, kp, kh, dk) DO NOTHING";
const OR_REPLACE: &str = "ON CONFLICT (tid, kp, kh, dk) DO UPDATE SET
    ts = excluded.ts, size = excluded.size, names = excluded.names, props = excluded.props
    WHERE e.ts < excluded.ts";
/// Only if the result is surely within the limits of an entity.
const OR_MERGE: &str = "ON CONFLICT (tid, kp, kh, dk) DO UPDATE SET
    ts = excluded.ts, size = e.size + excluded.size,
    names = rowhouse.merged_names(e.names, excluded.names), props = e.props || excluded.props
    WHERE e.ts < excluded.ts AND e.size + excluded.size <= 1048576
    AND cardinality(e.names) + cardinality(excluded.names) <= 252";
/// As [`OR_REPLACE`]; where that would do nothing, the statement fails with all its rows.
pub(crate) const OR_REPLACE_OR_FAIL: &str = "ON CONFLICT (tid, kp, kh, dk) DO UPDATE SET
    ts = rowhouse.require(e.ts < excluded.ts, excluded.ts),
    size = excluded.size, names = excluded.names, props = excluded.props";
/// As [`OR_MERGE`]; where that would do nothing, the statement fails with all its rows.
pub(crate) const OR_MERGE_OR_FAIL: &str = "ON CONFLICT (tid, kp, kh, dk) DO UPDATE SET
    ts = rowhouse.require(e.ts < excluded.ts AND e.size + excluded.size <= 1048576
        AND cardinality(e.names) + cardinality(excluded.names) <= 252, excluded.ts),
    size = e.size + excluded.size,
    names = rowhouse.merged_names(e.names, excluded.names), props = e.props || excluded.props";
/// Exactly what is given: the transaction has locked what was there, and knows that the tick is later.
pub(crate) const OR_OVERWRITE: &str = "ON CONFLICT (tid, kp, kh, dk) DO UPDATE SET
    ts = excluded.ts, size = excluded.size, names = excluded.names, props = excluded.props";

static INSERT_OR_NOTHING: LazyLock<String> = LazyLock::new(|| inserting(OR_NOTHING));
static INSERT_OR_REPLACE: LazyLock<String> = LazyLock::new(|| inserting(OR_REPLACE));
static INSERT_OR_MERGE: LazyLock<String> = LazyLock::new(|| inserting(OR_MERGE));
static UPDATE_REPLACE: LazyLock<String> = LazyLock::new(|| updating(REPLACE, ""));
static UPDATE_MERGE: LazyLock<String> = LazyLock::new(|| updating(MERGE, MERGE_FITS));
static DELETE: LazyLock<String> = LazyLock::new(|| {
    explained(&format!(
        "DELETE FROM rowhouse.entities e WHERE {WHERE} AND ($5::bigint IS NULL OR e.ts = $5) AND {LIVE}"
    ))
});

const WHERE: &str = "e.dk = $1 AND e.tid = $2 AND e.kp = $3 AND e.kh = $4";
/// Without indexes, too: entries of indexes are written by a transaction.
const LIVE: &str = "EXISTS (SELECT FROM rowhouse.tables t
    WHERE t.tid = $2 AND t.dropped IS NULL AND t.indexing = 0)";
const REPLACE: &str = "ts = $6, size = $7, names = $8, props = $9";
const MERGE: &str = "ts = $6, size = e.size + $7, names = rowhouse.merged_names(e.names, $8),
    props = e.props || $9";
const MERGE_FITS: &str = "AND e.size + $7 <= 1048576
    AND cardinality(e.names) + cardinality($8::text[]) <= 252";

/// Where an entity is.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) home: i64,
    pub(crate) table: i64,
    pub(crate) key: &'a DbKey,
}

/// What a statement did.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Done {
    /// It took effect.
    Written,
    /// Nothing was there to delete, and that was no condition.
    Nothing,
    /// It did nothing, because the entity has this tick, which is not before that of the write.
    Behind(i64),
    /// It did nothing, and only a transaction can tell why or do it.
    Undecided,
}

/// A record in columns.
pub(crate) struct Columns<'a> {
    pub(crate) size: i32,
    pub(crate) names: Vec<&'a str>,
    pub(crate) props: Jsonb,
}

impl<'a> Columns<'a> {
    pub(crate) fn of(key: &DbKey, record: &'a Record) -> Result<Self, Fault> {
        let record = record.as_ref();
        let key_bytes = key.prefix.len() + key.rest.len();
        Ok(Self {
            size: props::size_bound(key_bytes, record),
            names: props::names(record)?,
            props: props::encode(record)?,
        })
    }
}

impl Columns<'_> {
    /// What is there for a moment, and no entity. The size tells.
    pub(crate) fn nothing() -> Self {
        Self { size: -1, names: Vec::new(), props: Jsonb::empty() }
    }
}

/// The record of a row that starts with `ts, names, props` at that column.
pub(crate) fn record(row: &Row, at: usize) -> Result<Record, Fault> {
    let names: Vec<&str> = row.get(at + 1);
    Ok(props::decode(row.get(at), &names, row.get::<_, JsonbRef<'_>>(at + 2))?)
}

/// Reads one entity.
pub(crate) async fn get(session: &Session, place: Place<'_>) -> Result<Option<Record>, Fault> {
    let Place { home, table, key } = place;
    let found = session.row(GET, &[&home, &table, &key.prefix, &key.hash]).await?;
    let row = found.ok_or(Conflict::TableNotFound)?;
    if row.get::<_, Option<i64>>(0).is_none() { Ok(None) } else { record(&row, 0).map(Some) }
}

/// Whether the statements here can do it; what is left is done by a transaction.
pub(crate) fn is_plain(key: &EntityKey, condition: Condition, write: &Write) -> bool {
    match write {
        Write::Put(_) => true,
        Write::Restore(_) => false,
        Write::Delete => condition != Condition::Absent,
        Write::Merge(patch) => {
            let (partition, row) = (key.partition.as_str(), key.row.as_str());
            matches!(patch.as_ref().check_limits(partition, row), Ok(None))
        }
    }
}

/// Writes one entity, if its condition holds.
pub(crate) async fn write(
    session: &Session,
    place: Place<'_>,
    condition: Condition,
    write: &Write,
    tick: Tick,
) -> Result<Done, Fault> {
    match (condition, write) {
        (Condition::Absent, Write::Put(record) | Write::Merge(record)) => {
            let done = insert(session, place, &INSERT_OR_NOTHING, record, tick).await?;
            done.ok_or(Conflict::EntityExists.into())
        }
        (Condition::Any, Write::Put(record)) => {
            let done = insert(session, place, &INSERT_OR_REPLACE, record, tick).await?;
            Ok(done.unwrap_or(Done::Undecided))
        }
        (Condition::Any, Write::Merge(record)) => {
            let done = insert(session, place, &INSERT_OR_MERGE, record, tick).await?;
            Ok(done.unwrap_or(Done::Undecided))
        }
        (_, Write::Put(record)) => {
            update(session, place, condition, &UPDATE_REPLACE, record, tick).await
        }
        (_, Write::Merge(record)) => {
            update(session, place, condition, &UPDATE_MERGE, record, tick).await
        }
        (_, Write::Delete) => delete(session, place, condition).await,
        (_, Write::Restore(_)) => Ok(Done::Undecided),
    }
}

fn inserting(conflict: &str) -> String {
    format!("{INSERT} {conflict} RETURNING e.ts")
}

/// None if nothing was written.
async fn insert(
    session: &Session,
    Place { home, table, key }: Place<'_>,
    sql: &str,
    record: &Record,
    tick: Tick,
) -> Result<Option<Done>, Fault> {
    let Columns { size, names, props } = Columns::of(key, record)?;
    let DbKey { prefix, hash, rest, partition_len } = key;
    let values: crate::pool::Values<'_> =
        &[&home, &table, prefix, hash, rest, partition_len, &tick.at, &size, &names, &props];
    let row = session.row(sql, values).await?;
    Ok(row.map(|_| Done::Written))
}

/// The tag that a condition asks for; one that no entity has for a tag that is none.
pub(crate) fn tag(condition: Condition) -> Option<i64> {
    match condition {
        Condition::Matches(etag) => {
            Some(etag.timestamp().map_or(-1, |at| i64::try_from(at.ticks()).unwrap_or(-1)))
        }
        _ => None,
    }
}

/// Says why nothing was written, in the statement that did not write.
fn explained(change: &str) -> String {
    format!(
        "WITH u AS ({change} RETURNING e.ts)
        SELECT u.ts,
            CASE WHEN u.ts IS NULL THEN (SELECT e.ts FROM rowhouse.entities e WHERE {WHERE}) END,
            CASE WHEN u.ts IS NULL THEN {LIVE} END
        FROM (SELECT) AS one LEFT JOIN u ON true"
    )
}

fn updating(set: &str, only_if: &str) -> String {
    explained(&format!(
        "UPDATE rowhouse.entities e SET {set}
         WHERE {WHERE} AND ($5::bigint IS NULL OR e.ts = $5) AND e.ts < $6 {only_if} AND {LIVE}"
    ))
}

async fn update(
    session: &Session,
    Place { home, table, key }: Place<'_>,
    condition: Condition,
    sql: &str,
    record: &Record,
    tick: Tick,
) -> Result<Done, Fault> {
    let Columns { size, names, props } = Columns::of(key, record)?;
    let tag = tag(condition);
    let values: crate::pool::Values<'_> =
        &[&home, &table, &key.prefix, &key.hash, &tag, &tick.at, &size, &names, &props];
    let row = session.row(sql, values).await?;
    decide(&row.ok_or(Fault::Unmet)?, condition, tick.at)
}

async fn delete(
    session: &Session,
    Place { home, table, key }: Place<'_>,
    condition: Condition,
) -> Result<Done, Fault> {
    let tag = tag(condition);
    let row = session.row(&DELETE, &[&home, &table, &key.prefix, &key.hash, &tag]).await?;
    // A delete needs no tick that is later.
    decide(&row.ok_or(Fault::Unmet)?, condition, i64::MAX)
}

/// Reads what [`explained`] said.
fn decide(row: &Row, condition: Condition, tick: i64) -> Result<Done, Fault> {
    let (written, found): (Option<i64>, Option<i64>) = (row.get(0), row.get(1));
    if written.is_some() {
        return Ok(Done::Written);
    }
    if row.get::<_, Option<bool>>(2) == Some(false) {
        return Err(Conflict::TableNotFound.into());
    }
    match (found, tag(condition)) {
        (None, _) if condition == Condition::Any => Ok(Done::Nothing),
        (None, _) => Err(Conflict::EntityNotFound.into()),
        (Some(found), Some(tag)) if found != tag => Err(Conflict::ConditionNotMet.into()),
        (Some(found), _) if tick <= found => Ok(Done::Behind(found)),
        // It was there as it should be and changed under way, or the result may not fit.
        (Some(_), _) => Ok(Done::Undecided),
    }
}

const _: () = assert!(limits::ENTITY_BYTES_MAX == 1_048_576 && limits::PROPERTIES_MAX == 252);
