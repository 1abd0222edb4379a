//! Parts of indexes in SQL: which entries, and the entities that they belong to.
//!
//! A span of which only one entry can be is in the order of keys; several of these are merged, and a page reads
//! little more than it returns. Entries of any other span are sorted by the database, which keeps no more of them than
//! are wanted.

use crate::catalogue;
use crate::fault::Fault;
use crate::filter::Parameters;
use crate::key::{self, DbPosition};
use crate::pool::Session;
use crate::scan::Source;
use rowhouse_query::index::{IndexKeys, Span, entry};
use rowhouse_store::{Conflict, IndexId, Lookup};
use rowhouse_types::{Corrupt, Direction, KeyRange, Position, Row};
use std::collections::HashMap;
use std::fmt::Write as _;
use tokio_postgres::types::Type;

const READY: &str = "SELECT i.iid, i.properties, i.is_unique FROM rowhouse.indexes i
    WHERE i.iid = ANY($1) AND i.tid = $2 AND i.state = 2 AND i.dropped IS NULL";
/// The entity `e` of the entry `x`: an entry has less of a long key in front, and the same hash.
pub(crate) const JOIN: &str = "JOIN rowhouse.entities e ON e.tid = $1 AND e.dk = x.dk
    AND e.kp = substring(x.kp || x.rest, 1, 2000)
    AND e.kh = CASE WHEN length(x.kp) + length(x.rest) > 2000 THEN x.kh ELSE '' END";

/// Indexes that are ready.
pub(crate) type Ready = HashMap<i64, IndexKeys>;

/// Which of the indexes of the table are ready. All have to be.
pub(crate) async fn ready(
    session: &Session,
    source: Source<'_>,
    indexes: &[i64],
) -> Result<Ready, Fault> {
    let rows = session.rows(READY, &[&indexes, &source.number]).await?;
    let ready: Ready =
        rows.iter().map(|row| (row.get(0), super::keys(row.get(1), row.get(2)))).collect();
    if indexes.iter().all(|index| ready.contains_key(index)) {
        return Ok(ready);
    }
    if catalogue::table_of(session, source.id).await?.is_none() {
        return Err(Conflict::TableNotFound.into());
    }
    Err(Conflict::IndexNotFound.into())
}

/// The id as the database has it; one that no index has if it cannot be one.
pub(crate) fn number(index: IndexId) -> i64 {
    i64::try_from(index.0).unwrap_or(-1)
}

/// Parts of indexes.
pub(crate) struct Through<'a> {
    arms: Vec<Arm<'a>>,
    /// An entity may be in more than one.
    overlaps: bool,
}

/// A span of an index.
#[derive(Clone, Copy)]
pub(crate) struct Arm<'a> {
    pub(crate) index: i64,
    pub(crate) span: &'a Span,
}

impl<'a> Through<'a> {
    pub(crate) fn new(parts: &'a [Lookup]) -> Self {
        let of = |part: &'a Lookup| {
            let index = number(part.index);
            part.spans.iter().map(move |span| Arm { index, span })
        };
        Self { arms: parts.iter().flat_map(of).collect(), overlaps: parts.len() > 1 }
    }

    pub(crate) fn arms(&self) -> &[Arm<'a>] {
        &self.arms
    }

    /// Whether the entries of every span are in the order of keys.
    pub(crate) fn is_sorted(&self) -> bool {
        self.arms.iter().all(|arm| arm.span.single().is_some())
    }

    /// The entities in a range of keys in their order, at most so many: rows `e`, and how many entries each has as the
    /// second text says. The first parameter is the table.
    pub(crate) fn from(
        &self,
        source: Source<'_>,
        range: &KeyRange,
        direction: Direction,
        limit: i64,
        live: &str,
        parameters: &mut Parameters,
    ) -> (String, &'static str) {
        parameters.push(source.number, Type::INT8);
        let order = match direction {
            Direction::Ascending => "ORDER BY x.kp, x.rest",
            Direction::Descending => "ORDER BY x.kp DESC, x.rest DESC",
        };
        let within = within(source, range, parameters);
        if let [arm] = &self.arms[..]
            && arm.span.single().is_some()
        {
            let entries = arm.condition(parameters);
            let from = format!(
                "FROM rowhouse.index_entries x {JOIN} WHERE {entries} {within} AND {live}
                 {order} LIMIT {limit}"
            );
            return (from, "1::bigint");
        }
        // Each is in order already, and needs no more than are wanted of all.
        let most = if self.is_sorted() { format!("{order} LIMIT {limit}") } else { String::new() };
        let arms = self.union("x.dk, x.kp, x.kh, x.rest", &format!("{within} {most}"), parameters);
        let (entries, group) = if self.overlaps {
            ("count(*)", "GROUP BY x.kp, x.rest, x.kh, x.dk")
        } else {
            ("1::bigint", "")
        };
        let from = format!(
            "FROM (SELECT x.dk, x.kp, x.kh, x.rest, {entries} AS entries FROM ({arms}) AS x
                {group} {order} LIMIT {limit}) AS x
             {JOIN} WHERE {live} {order} LIMIT {limit}"
        );
        (from, "x.entries")
    }

    /// How many entries are in a range of keys.
    pub(crate) fn count(
        &self,
        source: Source<'_>,
        range: &KeyRange,
        parameters: &mut Parameters,
    ) -> String {
        let within = within(source, range, parameters);
        let arms = self.union("1", &within, parameters);
        format!("SELECT count(*) FROM ({arms}) AS x")
    }

    fn union(&self, columns: &str, more: &str, parameters: &mut Parameters) -> String {
        let mut sql = String::new();
        for (place, arm) in self.arms.iter().enumerate() {
            let all = if place == 0 { "" } else { " UNION ALL " };
            let condition = arm.condition(parameters);
            let _ = write!(
                sql,
                "{all}(SELECT {columns} FROM rowhouse.index_entries x WHERE {condition} {more})"
            );
        }
        sql
    }
}

impl Arm<'_> {
    /// Holds for the entries `x` of the span.
    pub(crate) fn condition(&self, parameters: &mut Parameters) -> String {
        let index = parameters.push(self.index, Type::INT8);
        if let Some(single) = self.span.single() {
            let entry = parameters.push(single.to_vec(), Type::BYTEA);
            return format!("x.iid = {index} AND x.entry = {entry}");
        }
        let start = parameters.push(self.span.start.to_vec(), Type::BYTEA);
        let mut sql = format!("x.iid = {index} AND x.entry >= {start}");
        if let Some(end) = &self.span.end {
            let end = parameters.push(end.to_vec(), Type::BYTEA);
            let _ = write!(sql, " AND x.entry < {end}");
        }
        sql
    }
}

/// Holds for the entries `x` of a range of keys; starts with `AND`, or is nothing.
pub(crate) fn within(source: Source<'_>, range: &KeyRange, parameters: &mut Parameters) -> String {
    let mut sql = String::new();
    if let Some(partition) = key::partition(range) {
        let home = key::home(source.id, source.placement, partition);
        let _ = write!(sql, " AND x.dk = {}", parameters.push(home, Type::INT8));
    }
    if range.start != Position::min() {
        let start = place(&range.start, parameters);
        let _ = write!(sql, " AND (x.kp, x.rest) >= ({start})");
    }
    if let Some(end) = &range.end {
        let end = place(end, parameters);
        let _ = write!(sql, " AND (x.kp, x.rest) < ({end})");
    }
    sql
}

/// A place among keys as two parameters.
pub(crate) fn place(position: &Position, parameters: &mut Parameters) -> String {
    let DbPosition { prefix, rest } = DbPosition::in_entries(position);
    let prefix = parameters.push(prefix, Type::BYTEA);
    format!("{prefix}, {}", parameters.push(rest, Type::BYTEA))
}

/// What has an entry in parts of indexes, judged on the entity itself.
pub(crate) struct Members<'a>(Vec<(IndexKeys, Vec<&'a Span>)>);

impl<'a> Members<'a> {
    pub(crate) fn new(through: &Through<'a>, ready: &Ready) -> Self {
        let mut of_indexes: HashMap<i64, Vec<&'a Span>> = HashMap::new();
        for arm in &through.arms {
            of_indexes.entry(arm.index).or_default().push(arm.span);
        }
        let with_keys = |(index, spans)| Some((ready.get(&index)?.clone(), spans));
        Self(of_indexes.into_iter().filter_map(with_keys).collect())
    }

    pub(crate) fn contains(&self, row: &Row<'_>) -> Result<bool, Corrupt> {
        for (keys, spans) in &self.0 {
            if let Some(entry) = entry(keys, row)?
                && spans.iter().any(|span| span.contains(&entry))
            {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
