//! Entities in the order of an index.
//!
//! The entries of a span are read as they lie, forward or backward; of those within the ranges of keys the entity is
//! looked up and shown to the filter, unless the keys alone tell that it is not wanted. An entry outside the ranges is
//! passed: it is not counted, and no page ends there, so whoever is to be done in time has none of them in its spans.

use crate::checkpoint::Whole;
use crate::committer::Fault;
use crate::entity::look;
use crate::index::{guarded, within};
use crate::scan::{Step, View, rows_per_look, text};
use crate::store::Shared;
use rowhouse_query::index::Span;
use rowhouse_store::{EntryPlace, Expiry, IndexId, StoreError, TableId, Walk, WalkPage};
use rowhouse_types::{Corrupt, Direction, Position, RecordRef, Row};
use rusqlite::{Connection, Rows, params};
use std::time::Instant;

/// Entries: from a place on, before a place, or the last.
pub(crate) const FROM: &str = "SELECT entry, pk, rk FROM entries
    WHERE index_id = ?1 AND (entry, pk, rk) >= (?2, ?3, ?4) ORDER BY entry, pk, rk";
pub(crate) const BEFORE: &str = "SELECT entry, pk, rk FROM entries
    WHERE index_id = ?1 AND (entry, pk, rk) < (?2, ?3, ?4)
    ORDER BY entry DESC, pk DESC, rk DESC";
pub(crate) const LAST: &str = "SELECT entry, pk, rk FROM entries
    WHERE index_id = ?1 ORDER BY entry DESC, pk DESC, rk DESC";

/// Hands over the entries of a span in order, until told to stop.
pub(crate) fn entries(
    conn: &Connection,
    index: IndexId,
    span: &Span,
    found: impl FnMut(&[u8], &str, &str) -> Result<Step, Fault>,
) -> Result<Step, Fault> {
    let mut statement = conn.prepare_cached(FROM)?;
    let rows = statement.query(params![index.0.cast_signed(), &*span.start, "", ""])?;
    hand_over(rows, span, found)
}

fn hand_over(
    mut rows: Rows<'_>,
    span: &Span,
    mut found: impl FnMut(&[u8], &str, &str) -> Result<Step, Fault>,
) -> Result<Step, Fault> {
    while let Some(row) = rows.next()? {
        let entry = row.get_ref(0)?.as_blob().map_err(|_| Corrupt("an entry is not a blob"))?;
        if !span.contains(entry) {
            break;
        }
        if found(entry, text(row, 1)?, text(row, 2)?)? == Step::Stop {
            return Ok(Step::Stop);
        }
    }
    Ok(Step::Next)
}

/// Reads a page of what is committed now.
pub(crate) fn page(
    conn: &Connection,
    shared: &Shared,
    table: TableId,
    walk: &Walk,
    abandoned: &dyn Fn() -> bool,
) -> Result<WalkPage, StoreError> {
    guarded(shared, table, &[walk.index], |found| {
        let (_view, _) = View::latest(conn, shared)?;
        let rows_per_look = rows_per_look(walk.filter.as_deref());
        let whole = Whole::new(shared, rows_per_look, abandoned);
        let abandoned = &|| whole.look();
        let page = WalkPage::default();
        let expiry = found.ttl.as_ref().map(|ttl| ttl.at(shared.now(found)));
        let (passed, full) = (0, false);
        Walking { conn, table, expiry, walk, abandoned, rows_per_look, page, passed, full }.run()
    })
}

/// A page in the making.
struct Walking<'a> {
    conn: &'a Connection,
    table: TableId,
    /// What has expired is not there.
    expiry: Option<Expiry<'a>>,
    walk: &'a Walk,
    abandoned: &'a dyn Fn() -> bool,
    rows_per_look: u64,
    page: WalkPage,
    /// How many entries outside the ranges were passed.
    passed: u64,
    /// The page takes no more; what is looked at now is only to see whether there is another.
    full: bool,
}

impl Walking<'_> {
    fn run(mut self) -> Result<WalkPage, Fault> {
        let walk = self.walk;
        let mut spans: Vec<_> = walk.spans.iter().collect();
        if walk.direction == Direction::Descending {
            spans.reverse();
        }
        for span in spans {
            if self.span(span)? == Step::Stop {
                break;
            }
        }
        Ok(self.page)
    }

    fn span(&mut self, span: &Span) -> Result<Step, Fault> {
        let (conn, index) = (self.conn, self.walk.index.0.cast_signed());
        let from = self.walk.from.as_ref();
        match self.walk.direction {
            Direction::Ascending => {
                let beginning = (&*span.start, "", "");
                let from = from.map_or(beginning, |from| {
                    beginning.max((&*from.entry, &*from.key.partition, &*from.key.row))
                });
                let mut statement = conn.prepare_cached(FROM)?;
                let rows = statement.query(params![index, from.0, from.1, from.2])?;
                self.rows(rows, span)
            }
            Direction::Descending => {
                let after = from.map(|from| Position::after(&from.key.partition, &from.key.row));
                let from = from.zip(after.as_ref());
                let from = from.map(|(from, after)| (&*from.entry, &*after.partition, &*after.row));
                let end = span.end.as_deref().map(|end| (end, "", ""));
                let edge = match (from, end) {
                    (Some(from), Some(end)) => Some(from.min(end)),
                    (from, end) => from.or(end),
                };
                let Some(edge) = edge else {
                    let mut statement = conn.prepare_cached(LAST)?;
                    let rows = statement.query(params![index])?;
                    return self.rows(rows, span);
                };
                let mut statement = conn.prepare_cached(BEFORE)?;
                let rows = statement.query(params![index, edge.0, edge.1, edge.2])?;
                self.rows(rows, span)
            }
        }
    }

    fn rows(&mut self, rows: Rows<'_>, span: &Span) -> Result<Step, Fault> {
        hand_over(rows, span, |entry, partition, row| {
            if !within(&self.walk.ranges, partition, row) {
                return Ok(self.pass());
            }
            let stops = self.is_out_of_time() || {
                self.page.examined += 1;
                self.entry(partition, row)? == Step::Stop
            };
            if !stops {
                return Ok(Step::Next);
            }
            let key = Position::before(partition, row);
            self.page.next = Some(EntryPlace { entry: entry.into(), key });
            Ok(Step::Stop)
        })
    }

    /// Leaves an entry outside the ranges behind. Stops only when nobody waits for the page any more.
    fn pass(&mut self) -> Step {
        self.passed += 1;
        let look = self.passed.is_multiple_of(self.rows_per_look);
        if look && (self.abandoned)() { Step::Stop } else { Step::Next }
    }

    /// Takes the entity if it matches and there is room; stops at the first match beyond.
    fn entry(&mut self, partition: &str, row: &str) -> Result<Step, Fault> {
        let walk = self.walk;
        if !within(&walk.keys, partition, row) {
            return Ok(Step::Next);
        }
        let expiry = self.expiry;
        let step = look(self.conn, self.table, partition, row, |bytes| {
            let row = Row { partition, row, record: RecordRef::parse(bytes)? };
            if expiry.map_or(Ok(false), |expiry| expiry.has_expired(row.record))? {
                return Ok(Step::Next);
            }
            if let Some(filter) = &walk.filter
                && !filter.matches(&row)?
            {
                return Ok(Step::Next);
            }
            if self.full {
                return Ok(Step::Stop);
            }
            let rows = &mut self.page.rows;
            rows.push(&row);
            self.full = walk.limit <= rows.len() || walk.max_bytes <= rows.byte_len();
            Ok(Step::Next)
        })?;
        Ok(step.unwrap_or(Step::Next))
    }

    /// Never before the first entry was examined.
    fn is_out_of_time(&self) -> bool {
        let examined = self.page.examined;
        let look = examined == 1 || (examined > 0 && examined.is_multiple_of(self.rows_per_look));
        look && (self.walk.deadline <= Instant::now() || (self.abandoned)())
    }
}
