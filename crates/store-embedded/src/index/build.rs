//! Enters the entities that were there before their index was declared.
//!
//! The thread of the sweep reads ahead (`Chunk`): some entities after the place that was reached, sorted by their
//! entries, so that the pages of the index are written a few times and not once for every entity. Then the committer is
//! given their keys in small steps ([`enter`]), looks at each entity as it is by then, and writes its entry. Whatever
//! others change meanwhile they enter themselves. The place moves in the transaction of the last step of a
//! chunk: after a kill at most that chunk is entered again, which changes nothing.

use crate::change::Draft;
use crate::committer::Fault;
use crate::entity::{look, with_record};
use crate::index::entries::{holders, insert};
use crate::index::{declare, find};
use crate::jobs::Answer;
use crate::scan::FROM;
use crate::tuning::Tuning;
use rowhouse_query::index::{IndexKeys, entry};
use rowhouse_store::{IndexId, IndexState, TableId};
use rowhouse_types::{EntityKey, Position, RecordRef, Row};
use rusqlite::{Connection, OptionalExtension, params};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Entities that are read in one transaction: none may stay open for long.
const ROWS_PER_READ: usize = 512;
/// Entities that are counted in one transaction.
const ROWS_PER_COUNT: u64 = 10_000;
/// How long entities are counted before they are entered.
const COUNT_PATIENCE: Duration = Duration::from_secs(20);

/// A step: entities to be looked at.
#[derive(Debug)]
pub(crate) struct Entering {
    pub(crate) table: TableId,
    pub(crate) index: IndexId,
    /// PartitionKey and RowKey.
    pub(crate) keys: Vec<(Box<str>, Box<str>)>,
    /// With the last step of a chunk: what is reached then.
    pub(crate) reached: Option<Progress>,
}

/// How far an index is built.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// The last entity that was looked at; none before the first.
    pub(crate) place: Option<(Box<str>, Box<str>)>,
    /// How many entities were looked at.
    pub(crate) examined: u64,
    /// How many there were in the beginning, if that was counted.
    pub(crate) expected: Option<u64>,
    /// There are no more.
    pub(crate) finished: bool,
}

impl Entering {
    /// What it holds in memory, roughly.
    pub(crate) fn bytes(&self) -> usize {
        self.keys.iter().map(|(partition, row)| 32 + partition.len() + row.len()).sum()
    }
}

/// Enters some entities; run by the committer. What is answered says whether nothing is left to do.
///
/// What has expired must not keep others from having its values, so whatever is in the way of a unique index is offered
/// to `expire`, which removes it if it has.
pub(crate) fn enter(
    conn: &Connection,
    draft: &mut Draft,
    entering: &Entering,
    expire: &mut dyn FnMut(&mut Draft, EntityKey) -> Result<bool, Fault>,
) -> Result<Answer, Fault> {
    let &Entering { table, index, ref keys, ref reached } = entering;
    let found = draft.catalogue.table_by_id(table).cloned();
    let found = found.as_ref().and_then(|table| find(table, index));
    let Some(found) = found.filter(|index| index.state == IndexState::Building) else {
        return Ok(Answer::Swept { finished: true });
    };
    for (partition, row) in keys {
        let entered = look(conn, table, partition, row, |bytes| {
            Ok(entry(&found.keys, &Row { partition, row, record: RecordRef::parse(bytes)? })?)
        });
        let Some(entry) = undamaged(entered)?.flatten().flatten() else { continue };
        let others = if found.keys.unique {
            holders(conn, index, &entry, partition, row)?
        } else {
            Vec::new()
        };
        if !others.is_empty() {
            let key = EntityKey::new(partition, row);
            let key = key.map_err(|error| Fault::Corrupt(error.to_string()))?;
            if expire(draft, key)? {
                continue;
            }
        }
        for other in others {
            if !expire(draft, other)? {
                declare::set_state(conn, draft, table, index, IndexState::NotUnique)?;
                declare::give_up_entries(conn, draft, index)?;
                return Ok(Answer::Swept { finished: true });
            }
        }
        insert(conn, index, &entry, partition, row)?;
    }
    let Some(reached) = reached else { return Ok(Answer::Swept { finished: false }) };
    let place = reached.place.as_ref();
    conn.prepare_cached(
        "UPDATE indexes SET entered_pk = ?2, entered_rk = ?3, examined = ?4, expected = ?5
         WHERE id = ?1",
    )?
    .execute(params![
        index.0.cast_signed(),
        place.map(|(partition, _)| &**partition),
        place.map(|(_, row)| &**row),
        reached.examined.cast_signed(),
        reached.expected.map(u64::cast_signed),
    ])?;
    if reached.finished {
        declare::set_state(conn, draft, table, index, IndexState::Ready)?;
    }
    Ok(Answer::Swept { finished: reached.finished })
}

/// What is damaged cannot be entered; reading it says so, and so does a check.
fn undamaged<T>(read: Result<T, Fault>) -> Result<Option<T>, Fault> {
    match read {
        Ok(found) => Ok(Some(found)),
        Err(Fault::Corrupt(error) | Fault::Damaged(error)) => {
            tracing::warn!(error, "an entity cannot be entered into an index");
            Ok(None)
        }
        Err(other) => Err(other),
    }
}

/// How far an index is built, as a connection sees it; none if it is not there.
pub(crate) fn progress(
    conn: &Connection,
    index: IndexId,
) -> Result<Option<Progress>, rusqlite::Error> {
    conn.prepare_cached(
        "SELECT entered_pk, entered_rk, examined, expected FROM indexes WHERE id = ?1",
    )?
    .query_row([index.0.cast_signed()], |row| {
        let place: (Option<String>, Option<String>) = (row.get(0)?, row.get(1)?);
        let expected: Option<i64> = row.get(3)?;
        Ok(Progress {
            place: place.0.zip(place.1).map(|(partition, row)| (partition.into(), row.into())),
            examined: row.get::<_, i64>(2)?.cast_unsigned(),
            expected: expected.map(i64::cast_unsigned),
            finished: false,
        })
    })
    .optional()
}

/// Entities that are being entered, in the order of their entries.
#[derive(Debug)]
pub(crate) struct Chunk {
    table: TableId,
    index: IndexId,
    left: VecDeque<Ahead>,
    reached: Progress,
    /// How many were looked at before this chunk.
    before: u64,
    /// How many of it have entries.
    count: usize,
}

/// An entity that was read ahead.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Ahead {
    entry: Vec<u8>,
    partition: Box<str>,
    row: Box<str>,
    record_bytes: usize,
}

impl Chunk {
    /// Reads on from what is reached, in transactions of a few milliseconds. Ends early when told to by `stop`.
    pub(crate) fn read(
        conn: &Connection,
        (table, index): (TableId, IndexId),
        keys: &IndexKeys,
        from: Progress,
        tuning: &Tuning,
        stop: &dyn Fn() -> bool,
    ) -> Result<Self, Fault> {
        let before = from.examined;
        let mut chunk =
            Self { table, index, left: VecDeque::new(), reached: from, before, count: 0 };
        let (mut ahead, mut bytes) = (Vec::new(), 0);
        while !chunk.reached.finished
            && chunk.looked_at() < tuning.build_chunk_rows.into()
            && bytes < tuning.build_chunk_bytes
            && !stop()
        {
            let read = chunk.read_some(conn, keys, &mut ahead)?;
            bytes += read;
        }
        ahead.sort_unstable();
        chunk.count = ahead.len();
        chunk.left = ahead.into();
        Ok(chunk)
    }

    fn looked_at(&self) -> u64 {
        self.reached.examined - self.before
    }

    /// One transaction; the bytes of memory that it took.
    fn read_some(
        &mut self,
        conn: &Connection,
        keys: &IndexKeys,
        ahead: &mut Vec<Ahead>,
    ) -> Result<usize, Fault> {
        let start = match &self.reached.place {
            Some((partition, row)) => Position::after(partition, row),
            None => Position::min(),
        };
        let mut statement = conn.prepare_cached(FROM)?;
        let table = self.table.0.cast_signed();
        let mut rows = statement.query(params![table, &*start.partition, &*start.row])?;
        let mut bytes = 0;
        for _ in 0..ROWS_PER_READ {
            let Some(found) = rows.next()? else {
                self.reached.finished = true;
                break;
            };
            let partition: Box<str> = found.get(0)?;
            let row: Box<str> = found.get(1)?;
            let entered = with_record(conn, found.get_ref(2)?, |_, bytes| {
                let record = RecordRef::parse(bytes)?;
                let row = Row { partition: &partition, row: &row, record };
                Ok(entry(keys, &row)?.map(|entry| (entry, bytes.len())))
            });
            self.reached.examined += 1;
            self.reached.place = Some((partition.clone(), row.clone()));
            if let Some((entry, record_bytes)) = undamaged(entered)?.flatten() {
                bytes += size_of::<Ahead>() + entry.len() + partition.len() + row.len();
                ahead.push(Ahead { entry, partition, row, record_bytes });
            }
        }
        Ok(bytes)
    }

    /// The next step; the last one says what is reached.
    pub(crate) fn step(&mut self, tuning: &Tuning) -> Arc<Entering> {
        let (mut keys, mut bytes) = (Vec::new(), 0);
        while keys.len() < tuning.build_rows && bytes < tuning.build_bytes {
            let Some(next) = self.left.pop_front() else { break };
            bytes += next.record_bytes;
            keys.push((next.partition, next.row));
        }
        let reached = self.left.is_empty().then(|| self.reached.clone());
        Arc::new(Entering { table: self.table, index: self.index, keys, reached })
    }

    /// How many entities there are, if that was counted.
    pub(crate) fn expected(&self) -> Option<u64> {
        self.reached.expected
    }

    /// How many entities have been looked at, about.
    pub(crate) fn examined(&self) -> u64 {
        let (left, count) = (self.left.len() as u64, self.count.max(1) as u64);
        self.before + self.looked_at() * (count - left.min(count)) / count
    }
}

/// How many entities a table has; none if that cannot be told in time.
pub(crate) fn count(
    conn: &Connection,
    table: TableId,
    stop: &dyn Fn() -> bool,
) -> Result<Option<u64>, Fault> {
    let start = Instant::now();
    let mut statement = conn.prepare_cached(
        "SELECT pk, rk FROM entities WHERE table_id = ?1 AND (pk, rk) >= (?2, ?3)
         ORDER BY pk, rk LIMIT 1 OFFSET ?4",
    )?;
    let mut rest = conn.prepare_cached(
        "SELECT count(*) FROM entities WHERE table_id = ?1 AND (pk, rk) >= (?2, ?3)",
    )?;
    let (mut place, mut counted) = (Position::min(), 0);
    while !stop() && start.elapsed() < COUNT_PATIENCE {
        let from = params![
            table.0.cast_signed(),
            &*place.partition,
            &*place.row,
            ROWS_PER_COUNT.cast_signed(),
        ];
        let next = statement
            .query_row(from, |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)))
            .optional()?;
        let Some((partition, row)) = next else {
            let from = params![table.0.cast_signed(), &*place.partition, &*place.row];
            let left: i64 = rest.query_row(from, |row| row.get(0))?;
            return Ok(Some(counted + left.cast_unsigned()));
        };
        counted += ROWS_PER_COUNT;
        place = Position::before(&partition, &row);
    }
    Ok(None)
}
