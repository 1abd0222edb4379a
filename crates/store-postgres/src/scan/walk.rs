//! Pages in the order of an index.

use super::through::judged;
use super::{Cut, LIVE, SNAPSHOT, Source};
use crate::fault::Fault;
use crate::filter::Parameters;
use crate::index::lookup::{self, Arm, JOIN, number};
use crate::pool::Session;
use futures_util::TryStreamExt as _;
use rowhouse_store::{EntryPlace, Walk, WalkPage};
use rowhouse_types::{Direction, KeyRange, Position, Row};
use std::fmt::Write as _;
use std::pin::pin;
use std::time::Instant;
use tokio_postgres::types::Type;

/// Entries that are looked at with one statement, at least and at most, where a filter may leave few.
const LEAST_ROWS: usize = 64;
const MOST_ROWS: usize = 4096;

/// A page in the making.
struct Draft<'a> {
    walk: &'a Walk,
    /// What is in its ranges and its keys; nothing else is asked for.
    ranges: Vec<KeyRange>,
    page: WalkPage,
    buffer: Vec<u8>,
}

/// Where a span was left.
enum Left {
    Exhausted,
    More(EntryPlace),
    Complete,
}

/// Reads one page.
pub(crate) async fn walk(
    session: &Session,
    source: Source<'_>,
    walk: &Walk,
) -> Result<WalkPage, Fault> {
    session.begin(SNAPSHOT).await?;
    let ranges = walk.wanted();
    let mut draft = Draft { walk, ranges, page: WalkPage::default(), buffer: Vec::new() };
    let index = number(walk.index);
    // Sent together, answered one after the other.
    let (ready, unread) = tokio::join!(
        biased;
        lookup::ready(session, source, std::slice::from_ref(&index)),
        draft.run(session, source, index),
    );
    if let Err(fault) = ready {
        session.roll_back().await;
        return Err(fault);
    }
    if !unread? {
        session.end("COMMIT").await?;
    }
    Ok(draft.page)
}

impl Draft<'_> {
    fn is_full(&self) -> bool {
        let (rows, walk) = (&self.page.rows, self.walk);
        !rows.is_empty() && (walk.limit <= rows.len() || walk.max_bytes <= rows.byte_len())
    }

    /// Until the page is complete; whether there may be more rows than are worth reading.
    async fn run(
        &mut self,
        session: &Session,
        source: Source<'_>,
        index: i64,
    ) -> Result<bool, Fault> {
        let mut spans: Vec<_> = self.walk.spans.iter().collect();
        if self.walk.direction == Direction::Descending {
            spans.reverse();
        }
        for span in spans {
            if !self.ranges.is_empty() && self.span(session, source, Arm { index, span }).await? {
                break;
            }
        }
        let (rows, walk) = (&self.page.rows, self.walk);
        Ok(self.page.next.is_some() && rows.len() < walk.limit && self.is_full())
    }

    /// Whether the page is complete.
    async fn span(
        &mut self,
        session: &Session,
        source: Source<'_>,
        arm: Arm<'_>,
    ) -> Result<bool, Fault> {
        let mut place = self.walk.from.clone();
        if place.as_ref().is_some_and(|place| self.is_behind(arm, place)) {
            return Ok(false);
        }
        let filtered = self.walk.filter.is_some() || source.expiry.is_some();
        let mut rows = self.walk.limit.saturating_sub(self.page.rows.len()).saturating_add(1);
        rows = rows.clamp(if filtered { LEAST_ROWS } else { 1 }, MOST_ROWS);
        loop {
            // What is looked at beyond its time is at least one.
            if self.walk.deadline <= Instant::now() {
                rows = 1;
            }
            let began = Instant::now();
            match self.chunk(session, source, arm, place.as_ref(), rows).await? {
                Left::Exhausted => return Ok(false),
                Left::Complete => return Ok(true),
                Left::More(next) if self.walk.deadline <= Instant::now() => {
                    self.page.next = Some(next);
                    return Ok(true);
                }
                Left::More(next) => place = Some(next),
            }
            // As many as will surely be done in time: large entities take long.
            let left = self.walk.deadline.saturating_duration_since(Instant::now());
            rows = if 8 * began.elapsed() < left { 4 * rows } else { rows / 2 };
            rows = rows.clamp(1, MOST_ROWS);
        }
    }

    /// Whether the span has been passed before that place.
    fn is_behind(&self, arm: Arm<'_>, place: &EntryPlace) -> bool {
        match self.walk.direction {
            Direction::Ascending => arm.span.end.as_ref().is_some_and(|end| *end <= place.entry),
            Direction::Descending => place.entry < arm.span.start,
        }
    }

    /// Looks at so many entries; one more says where to go on.
    async fn chunk(
        &mut self,
        session: &Session,
        source: Source<'_>,
        arm: Arm<'_>,
        place: Option<&EntryPlace>,
        rows: usize,
    ) -> Result<Left, Fault> {
        let mut parameters = Parameters::default();
        let from = self.from(source, arm, place, rows + 1, &mut parameters);
        let filter = self.walk.filter.as_deref();
        let wanted = (filter, source.expiry);
        let (mut sql, exact) = judged(&from, "x.entry", wanted, false, &mut parameters);
        let cut = Cut::of(self.walk.select.as_deref());
        let cut = cut.map(|cut| if exact { cut } else { cut.with(filter) });
        if let Some(cut) = &cut {
            sql = cut.apply(&sql, ", hit, more", &mut parameters);
        }
        let stream = session.client().query_typed_raw(&sql, parameters.typed()).await?;
        let mut stream = pin!(stream);
        let mut read = 0;
        while let Some(found) = stream.try_next().await? {
            read += 1;
            if read > rows {
                return Ok(Left::More(self.place(&found)?));
            }
            self.page.examined += 1;
            let hit: bool = found.get(6);
            if !hit {
                continue;
            }
            let full = self.is_full();
            let (partition, row) = super::halves(&found, &mut self.buffer)?;
            let record = super::cut::record(&found, cut.as_ref())?;
            let candidate = Row { partition, row, record: record.as_ref() };
            if !exact
                && let Some(filter) = filter
                && !filter.matches(&candidate)?
            {
                continue;
            }
            if full {
                self.page.next = Some(self.place(&found)?);
                return Ok(Left::Complete);
            }
            self.page.rows.push(&candidate);
        }
        Ok(Left::Exhausted)
    }

    fn place(&mut self, found: &tokio_postgres::Row) -> Result<EntryPlace, Fault> {
        let (partition, row) = super::halves(found, &mut self.buffer)?;
        let key = Position::before(partition, row);
        Ok(EntryPlace { entry: found.get::<_, &[u8]>(7).into(), key })
    }

    /// The entities of a span in the order of their entries, at most so many. The first parameter is the table.
    fn from(
        &self,
        source: Source<'_>,
        arm: Arm<'_>,
        place: Option<&EntryPlace>,
        limit: usize,
        parameters: &mut Parameters,
    ) -> String {
        parameters.push(source.number, Type::INT8);
        let mut entries = arm.condition(parameters);
        entries.push_str(&within(source, &self.ranges, parameters));
        let order = match self.walk.direction {
            Direction::Ascending => "x.entry, x.kp, x.rest",
            Direction::Descending => "x.entry DESC, x.kp DESC, x.rest DESC",
        };
        if let Some(EntryPlace { entry, key }) = place {
            let entry = parameters.push(entry.to_vec(), Type::BYTEA);
            let _ = match self.walk.direction {
                Direction::Ascending => {
                    let key = lookup::place(key, parameters);
                    write!(entries, " AND (x.entry, x.kp, x.rest) >= ({entry}, {key})")
                }
                Direction::Descending => {
                    let after = Position::after(&key.partition, &key.row);
                    let key = lookup::place(&after, parameters);
                    write!(entries, " AND (x.entry, x.kp, x.rest) < ({entry}, {key})")
                }
            };
        }
        format!(
            "FROM rowhouse.index_entries x {JOIN} WHERE {entries} AND {LIVE}
             ORDER BY {order} LIMIT {limit}"
        )
    }
}

/// Holds for the entries `x` of the ranges; starts with `AND`, or is nothing.
pub(super) fn within(
    source: Source<'_>,
    ranges: &[KeyRange],
    parameters: &mut Parameters,
) -> String {
    if let [range] = ranges {
        return lookup::within(source, range, parameters);
    }
    let mut sql = String::new();
    for (place, range) in ranges.iter().enumerate() {
        let or = if place == 0 { " AND (" } else { " OR " };
        let _ = write!(sql, "{or}(true{})", lookup::within(source, range, parameters));
    }
    if !ranges.is_empty() {
        sql.push(')');
    }
    sql
}
