//! Batches of one kind into one partition: one statement each, all or nothing by itself.

use crate::batch::{Located, Outcome, Partition};
use crate::entity::{self, Columns};
use crate::fault::Fault;
use crate::key::DbKey;
use crate::pool::Session;
use crate::ticks::Tick;
use rowhouse_store::{Command, Condition, Write};
use rowhouse_types::{Record, limits};
use std::collections::HashSet;
use std::fmt::Write as _;
use std::sync::LazyLock;
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

/// Rows that one statement writes at most.
pub(crate) const ROWS_MAX: usize = limits::BATCH_OPERATIONS_MAX;
/// Rows that one statement brings back at most.
const SAVED_MAX: usize = 1000;
/// The numbers of rows whose statements a connection keeps prepared. Each takes memory in the database.
const KEPT: [usize; 7] = [1, 2, 3, 4, 5, 10, ROWS_MAX];
/// Without indexes, too: entries of indexes are written by a transaction.
const LIVE: &str = "EXISTS (SELECT FROM rowhouse.tables t
    WHERE t.tid = $2 AND t.dropped IS NULL AND t.indexing = 0)";

/// Runs the batch as one statement, if it is of one kind that allows it. None if it does not, or if the
/// statement found that it takes a transaction.
pub(crate) async fn run(
    session: &Session,
    commands: &[Located],
    tick: Tick,
) -> Result<Option<Outcome>, Fault> {
    if let Some((condition, rows)) = saved(commands) {
        let conflict = if condition == Condition::Any { entity::OR_OVERWRITE } else { "" };
        let table = commands[0].partition.table;
        return match restore_rows(session, table, rows.into_iter(), conflict, true).await {
            Ok(_) => Ok(Some(Outcome::of(tick))),
            Err(Fault::Duplicate) => Ok(None),
            Err(fault) => Err(fault),
        };
    }
    let Some(kind) = Kind::of(commands) else { return Ok(None) };
    let mut rows: Vec<&Located> = commands.iter().collect();
    rows.sort_by(|a, b| a.key.cmp(&b.key));
    let partition = commands[0].partition;
    let written = match kind {
        Kind::Insert | Kind::Upsert(_) => {
            let records = rows.iter().map(|located| (&located.key, record_of(&located.command)));
            insert_rows(session, partition, records, kind.conflict(), tick.at, true).await
        }
        Kind::Update(_) => update_rows(session, partition, &rows, kind, tick.at).await,
        Kind::Delete => delete_rows(session, partition, &rows).await,
    };
    match written {
        // Some rows would have raised an error; no row at all is a condition of each that does not hold.
        Ok(found) if found.len() == commands.len() => Ok(Some(Outcome::of(tick))),
        Ok(_) | Err(Fault::Duplicate | Fault::Unmet) => Ok(None),
        Err(fault) => Err(fault),
    }
}

/// A batch that one statement can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// None of the entities may be there.
    Insert,
    /// Whatever is there.
    Upsert(How),
    /// All must be there, some with a certain tag.
    Update(How),
    Delete,
}

/// What becomes of an entity that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Replace,
    Merge,
}

impl Kind {
    fn of(commands: &[Located]) -> Option<Self> {
        let partition = commands.first()?.partition;
        let kind = Self::of_one(&commands[0].command)?;
        let mut keys = HashSet::new();
        let alike = commands.iter().all(|located| {
            located.partition == partition
                && Self::of_one(&located.command) == Some(kind)
                && keys.insert(&located.key)
        });
        (alike && commands.len() <= ROWS_MAX).then_some(kind)
    }

    fn of_one(Command::Entity { key, condition, write, .. }: &Command) -> Option<Self> {
        if !entity::is_plain(key, *condition, write) {
            return None;
        }
        let how = if matches!(write, Write::Merge(_)) { How::Merge } else { How::Replace };
        Some(match (condition, write) {
            (Condition::Any | Condition::Absent, Write::Delete) => return None,
            (Condition::Exists | Condition::Matches(_), Write::Delete) => Self::Delete,
            (Condition::Absent, _) => Self::Insert,
            (Condition::Any, _) => Self::Upsert(how),
            (Condition::Exists | Condition::Matches(_), _) => Self::Update(how),
        })
    }

    fn conflict(self) -> &'static str {
        match self {
            Self::Upsert(How::Replace) => entity::OR_REPLACE_OR_FAIL,
            Self::Upsert(How::Merge) => entity::OR_MERGE_OR_FAIL,
            Self::Insert | Self::Update(_) | Self::Delete => "",
        }
    }
}

fn record_of(Command::Entity { write, .. }: &Command) -> Option<&Record> {
    match write {
        Write::Put(record) | Write::Restore(record) | Write::Merge(record) => Some(record),
        Write::Delete => None,
    }
}

/// A value and its type.
pub(crate) type Typed<'a> = (&'a (dyn ToSql + Sync), Type);

/// The columns `kp, kh, rest, pl, size, names, props` of a row.
fn stored<'a>(key: &'a DbKey, columns: &'a Columns<'_>) -> [Typed<'a>; 7] {
    [
        (&key.prefix, Type::BYTEA),
        (&key.hash, Type::BYTEA),
        (&key.rest, Type::BYTEA),
        (&key.partition_len, Type::INT2),
        (&columns.size, Type::INT4),
        (&columns.names, Type::TEXT_ARRAY),
        (&columns.props, Type::JSONB),
    ]
}

/// A row that is brought back: where its partition lives, its key, its record.
type Saved<'a> = (i64, &'a DbKey, &'a Record);

/// The rows of a batch that only brings entities of one table back, all under one condition; of any partitions.
fn saved(commands: &[Located]) -> Option<(Condition, Vec<Saved<'_>>)> {
    let Command::Entity { condition: first, .. } = commands.first()?.command;
    let table = commands.first()?.partition.table;
    let mut keys = HashSet::new();
    let alike = |located: &Located| {
        let Command::Entity { condition, write, .. } = &located.command;
        matches!(write, Write::Restore(_))
            && *condition == first
            && located.partition.table == table
            && keys.insert((located.partition, located.key.clone()))
    };
    let plain = matches!(first, Condition::Absent | Condition::Any);
    if !plain || SAVED_MAX < commands.len() || !commands.iter().all(alike) {
        return None;
    }
    let rows = commands.iter().map(|Located { partition, key, command }| {
        Some((partition.home, key, record_of(command)?))
    });
    Some((first, rows.collect::<Option<_>>()?))
}

/// Inserts rows of one table, each with the Timestamp of its record.
pub(crate) async fn restore_rows<'a>(
    session: &Session,
    table: i64,
    records: impl Iterator<Item = (i64, &'a DbKey, &'a Record)>,
    conflict: &str,
    check_table: bool,
) -> Result<Vec<Row>, Fault> {
    let mut rows = Vec::new();
    for (home, key, record) in records {
        let ts = i64::try_from(record.as_ref().timestamp().ticks()).unwrap_or(i64::MAX);
        rows.push((home, ts, key, Columns::of(key, record)?));
    }
    let mut values: Vec<Typed<'_>> = vec![(&table, Type::INT8)];
    for (home, ts, key, columns) in &rows {
        values.extend::<[Typed<'_>; 2]>([(home, Type::INT8), (ts, Type::INT8)]);
        values.extend(stored(key, columns));
    }
    let first = if check_table { "rowhouse.live($1)" } else { "$1" };
    let sql = format!(
        "INSERT INTO rowhouse.entities AS e (tid, dk, ts, kp, kh, rest, pl, size, names, props)
         VALUES ({first}, {}) {conflict} RETURNING e.ts",
        tuples(rows.len(), 2, 9, "), ($1, ")
    );
    ask(session, rows.len(), &sql, values).await
}

/// Inserts rows of one partition by one statement, in their order. Without a record it is nothing that anybody sees: it
/// is taken away before the transaction ends.
pub(crate) async fn insert_rows<'a>(
    session: &Session,
    partition: Partition,
    records: impl Iterator<Item = (&'a DbKey, Option<&'a Record>)>,
    conflict: &str,
    tick: i64,
    check_table: bool,
) -> Result<Vec<Row>, Fault> {
    let mut rows = Vec::new();
    for (key, record) in records {
        let columns = match record {
            Some(record) => Columns::of(key, record)?,
            None => Columns::nothing(),
        };
        rows.push((key, columns));
    }
    let mut values: Vec<Typed<'_>> =
        vec![(&partition.home, Type::INT8), (&partition.table, Type::INT8), (&tick, Type::INT8)];
    for (key, columns) in &rows {
        values.extend(stored(key, columns));
    }
    let table = if check_table { "rowhouse.live($2)" } else { "$2" };
    let sql = format!(
        "INSERT INTO rowhouse.entities AS e (dk, tid, ts, kp, kh, rest, pl, size, names, props)
         VALUES ($1, {table}, $3, {}) {conflict} RETURNING e.ts",
        inserted_tuples(rows.len())
    );
    ask(session, rows.len(), &sql, values).await
}

/// Changes rows of one partition by one statement: all of them, or it fails.
async fn update_rows(
    session: &Session,
    partition: Partition,
    rows: &[&Located],
    kind: Kind,
    tick: i64,
) -> Result<Vec<Row>, Fault> {
    let mut changes = Vec::new();
    for located in rows {
        let Command::Entity { condition, .. } = &located.command;
        if let Some(record) = record_of(&located.command) {
            let columns = Columns::of(&located.key, record)?;
            changes.push((&located.key, entity::tag(*condition), columns));
        }
    }
    let mut values: Vec<Typed<'_>> =
        vec![(&partition.home, Type::INT8), (&partition.table, Type::INT8), (&tick, Type::INT8)];
    for (key, tag, columns) in &changes {
        values.extend::<[Typed<'_>; 6]>([
            (&key.prefix, Type::BYTEA),
            (&key.hash, Type::BYTEA),
            (tag, Type::INT8),
            (&columns.size, Type::INT4),
            (&columns.names, Type::TEXT_ARRAY),
            (&columns.props, Type::JSONB),
        ]);
    }
    let (set, fits) = match kind {
        Kind::Update(How::Merge) => (
            "size = e.size + v.size, names = rowhouse.merged_names(e.names, v.names),
             props = e.props || v.props",
            "AND e.size + v.size <= 1048576 AND cardinality(e.names) + cardinality(v.names) <= 252",
        ),
        _ => ("size = v.size, names = v.names, props = v.props", ""),
    };
    let prefixes = keys_of(changes.len(), 4, 6);
    let change = format!(
        "UPDATE rowhouse.entities e
         SET ts = $3, {set}
         FROM (VALUES ({})) AS v(kp, kh, tag, size, names, props)
         WHERE e.dk = $1 AND e.tid = $2 AND e.kp IN ({prefixes}) AND e.kp = v.kp AND e.kh = v.kh
         AND (v.tag IS NULL OR e.ts = v.tag) AND e.ts < $3 {fits} AND {LIVE}
         RETURNING e.ts",
        typed_tuples(changes.len(), 4)
    );
    ask(session, changes.len(), &all_or_none(&change, changes.len()), values).await
}

/// Removes rows of one partition by one statement: all of them, or it fails.
async fn delete_rows(
    session: &Session,
    Partition { home, table }: Partition,
    rows: &[&Located],
) -> Result<Vec<Row>, Fault> {
    let prefixes: Vec<&[u8]> = rows.iter().map(|located| &*located.key.prefix).collect();
    let hashes: Vec<&[u8]> = rows.iter().map(|located| &*located.key.hash).collect();
    let tag = |located: &&Located| {
        let Command::Entity { condition, .. } = &located.command;
        entity::tag(*condition)
    };
    let tags: Vec<Option<i64>> = rows.iter().map(tag).collect();
    let count = i64::try_from(rows.len()).expect("a batch has few rows");
    let change = format!(
        "DELETE FROM rowhouse.entities e
         USING unnest($3::bytea[], $4::bytea[], $5::bigint[]) AS v(kp, kh, tag)
         WHERE e.dk = $1 AND e.tid = $2 AND e.kp = ANY($3) AND e.kp = v.kp AND e.kh = v.kh
         AND (v.tag IS NULL OR e.ts = v.tag) AND {LIVE}
         RETURNING e.ts"
    );
    let sql = all_or_none(&change, "$6");
    session.rows(&sql, &[&home, &table, &prefixes, &hashes, &tags, &count]).await
}

/// A statement that fails unless the change returns so many rows, or none.
fn all_or_none(change: &str, rows: impl std::fmt::Display) -> String {
    format!(
        "WITH u AS ({change})
         SELECT u.ts, rowhouse.require((SELECT count(*) FROM u) = {rows}, 0)
         FROM u"
    )
}

/// Sends it, prepared if there are as many rows as often are.
pub(crate) async fn ask(
    session: &Session,
    rows: usize,
    sql: &str,
    values: Vec<Typed<'_>>,
) -> Result<Vec<Row>, Fault> {
    if KEPT.contains(&rows) {
        let values: Vec<_> = values.into_iter().map(|(value, _)| value).collect();
        session.rows(sql, &values).await
    } else {
        session.rows_once(sql, &values).await
    }
}

/// The values of rows that are inserted, at most [`ROWS_MAX`] of them.
fn inserted_tuples(rows: usize) -> &'static str {
    /// Those of most rows; those of fewer are how it begins, up to these places.
    static ALL: LazyLock<(String, Vec<usize>)> = LazyLock::new(|| {
        let of = |rows| tuples(rows, 4, 7, "), ($1, $2, $3, ");
        (of(ROWS_MAX), (0..=ROWS_MAX).map(|rows| of(rows).len()).collect())
    });
    let (text, ends) = &*ALL;
    &text[..ends[rows]]
}

/// `$4, $5, $6` and so on for every row, with a text between the rows.
pub(crate) fn tuples(rows: usize, first: usize, columns: usize, between: &str) -> String {
    let mut sql = String::with_capacity(rows * (columns * 6 + between.len()));
    for row in 0..rows {
        if row > 0 {
            sql.push_str(between);
        }
        let at = first + columns * row;
        for column in at..at + columns {
            let comma = if column == at { "" } else { ", " };
            let _ = write!(sql, "{comma}${column}");
        }
    }
    sql
}

/// As [`tuples`] for rows of an update; the first says of which types the columns are.
fn typed_tuples(rows: usize, first: usize) -> String {
    const TYPES: [&str; 6] = ["bytea", "bytea", "bigint", "integer", "text[]", "jsonb"];
    let mut sql = String::new();
    for (column, name) in TYPES.iter().enumerate() {
        let comma = if column == 0 { "" } else { ", " };
        let _ = write!(sql, "{comma}${}::{name}", first + column);
    }
    if rows > 1 {
        sql.push_str("), (");
        sql.push_str(&tuples(rows - 1, first + TYPES.len(), TYPES.len(), "), ("));
    }
    sql
}

/// The first column of every row.
fn keys_of(rows: usize, first: usize, columns: usize) -> String {
    let mut sql = String::new();
    for row in 0..rows {
        let comma = if row == 0 { "" } else { ", " };
        let _ = write!(sql, "{comma}${}", first + columns * row);
    }
    sql
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_values() {
        assert_eq!(tuples(2, 4, 3, "), ("), "$4, $5, $6), ($7, $8, $9");
        assert_eq!(keys_of(3, 4, 6), "$4, $10, $16");
        for rows in [0, 1, 2, ROWS_MAX] {
            assert_eq!(inserted_tuples(rows), tuples(rows, 4, 7, "), ($1, $2, $3, "));
        }
        let typed = "$4::bytea, $5::bytea, $6::bigint, $7::integer, $8::text[], $9::jsonb";
        assert_eq!(typed_tuples(1, 4), typed);
        let two = format!("{typed}), ($10, $11, $12, $13, $14, $15");
        assert_eq!(typed_tuples(2, 4), two);
    }
}
