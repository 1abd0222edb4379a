//! Pages of queries, on threads of their own.
//!
//! A page is one read transaction, so it never shows half of a batch. The filter looks at the row
//! where SQLite has it; only rows that match are copied. A page that nobody waits for any more ends.

use crate::committer::Fault;
use crate::entity::{self, with_record};
use crate::store::Shared;
use rowhouse_store::{Conflict, Page, Scan, StoreError, TableId, Take};
use rowhouse_types::{Direction, KeyRange, Position, RecordRef, Row};
use rusqlite::{Connection, Rows, params};
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio::sync::oneshot;

/// How many rows are examined between looks at the clock, unless the filter is long.
const ROWS_PER_LOOK: u64 = 16;
/// With so many conditions every row may take long.
const LONG_FILTER: usize = 64;

/// Where a range ends is judged row by row outside: for SQLite that is a dozen steps each. The three are the ways to
/// begin: at a place, before a place, and at the end of the table.
pub(crate) const FROM: &str = "SELECT pk, rk, record FROM entities
    WHERE table_id = ?1 AND (pk, rk) >= (?2, ?3) ORDER BY pk, rk";
pub(crate) const BEFORE: &str = "SELECT pk, rk, record FROM entities
    WHERE table_id = ?1 AND (pk, rk) < (?2, ?3) ORDER BY pk DESC, rk DESC";
pub(crate) const LAST: &str = "SELECT pk, rk, record FROM entities
    WHERE table_id = ?1 ORDER BY pk DESC, rk DESC";

/// What waits for a thread that reads.
#[derive(Default)]
pub(crate) struct Scans {
    state: Mutex<State>,
    filled: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    closed: bool,
}

/// Something to be read, which sends the answer itself.
type Job = Box<dyn FnOnce(&Connection, &Arc<Shared>) + Send>;

impl fmt::Debug for Scans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scans").field("jobs", &self.lock().jobs.len()).finish_non_exhaustive()
    }
}

impl Scans {
    /// Has a thread read something, unless too many wait already. The reading is told by the last argument
    /// whether anybody still waits for it.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        most: usize,
        read: impl FnOnce(&Connection, &Arc<Shared>, &dyn Fn() -> bool) -> Result<T, StoreError>
        + Send
        + 'static,
    ) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        let job = move |conn: &Connection, shared: &Arc<Shared>| {
            if reply.is_closed() {
                return;
            }
            let work = || read(conn, shared, &|| reply.is_closed());
            // A panic costs its caller the answer, not the others a thread.
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
            let panicked = |_| Err(StoreError::unavailable("reading panicked"));
            let _ = reply.send(result.unwrap_or_else(panicked));
        };
        self.push(Box::new(job), most)?;
        let stopped = |_| Err(StoreError::unavailable("the store is closed"));
        answer.await.unwrap_or_else(stopped)
    }

    fn push(&self, job: Job, most: usize) -> Result<(), StoreError> {
        let mut state = self.lock();
        if state.closed {
            return Err(StoreError::unavailable("the store is closed"));
        }
        if most <= state.jobs.len() {
            return Err(StoreError::Busy);
        }
        state.jobs.push_back(job);
        drop(state);
        self.filled.notify_one();
        Ok(())
    }

    /// Drops what waits and lets the threads end after the page that they are at.
    pub(crate) fn close(&self) {
        let dropped = {
            let mut state = self.lock();
            state.closed = true;
            std::mem::take(&mut state.jobs)
        };
        self.filled.notify_all();
        drop(dropped);
    }

    fn take(&self) -> Option<Job> {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                return Some(job);
            }
            if state.closed {
                return None;
            }
            state = self.filled.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The life of a thread that reads.
pub(crate) fn run(conn: &Connection, shared: &Arc<Shared>, scans: &Scans) {
    while let Some(job) = scans.take() {
        job(conn, shared);
    }
}

/// Reads a page of what is committed now.
pub(crate) fn page(
    conn: &Connection,
    shared: &Shared,
    table: TableId,
    scan: &Scan,
    abandoned: &dyn Fn() -> bool,
) -> Result<Page, StoreError> {
    let not_found = || StoreError::rejected(Conflict::TableNotFound);
    shared.has_table(table).then_some(()).ok_or_else(not_found)?;
    let latest = |conn| -> Result<Page, Fault> {
        let _view = View::begin(conn)?;
        // What a page shows, point reads show from now on.
        shared.readers.advance(entity::last_batch(conn)?);
        read(conn, table, scan, abandoned)
    };
    let page = latest(conn).map_err(Fault::into_store_error)?;
    // If it is there now it was not being swept when the view was taken.
    shared.has_table(table).then_some(()).ok_or_else(not_found)?;
    Ok(page)
}

/// Reads a page within the read transaction that is open.
pub(crate) fn read(
    conn: &Connection,
    table: TableId,
    scan: &Scan,
    abandoned: &dyn Fn() -> bool,
) -> Result<Page, Fault> {
    let long = scan.filter.as_ref().is_some_and(|filter| LONG_FILTER <= filter.terms());
    let rows_per_look = if long { 1 } else { ROWS_PER_LOOK };
    let page = Page::default();
    let mut reading = Reading { conn, scan, abandoned, rows_per_look, page, full: false };
    let mut ranges: Vec<_> = scan.ranges.iter().collect();
    if scan.direction == Direction::Descending {
        ranges.reverse();
    }
    for range in ranges {
        if reading.range(table, range)? == Step::Stop {
            break;
        }
    }
    Ok(reading.page)
}

/// A page in the making.
struct Reading<'a> {
    conn: &'a Connection,
    scan: &'a Scan,
    abandoned: &'a dyn Fn() -> bool,
    rows_per_look: u64,
    page: Page,
    /// The page takes no more rows; what is examined now is only to see whether there is another.
    full: bool,
}

/// Whether there is a reason to go on.
#[derive(PartialEq, Eq)]
enum Step {
    Next,
    Stop,
}

impl Reading<'_> {
    fn range(&mut self, table: TableId, range: &KeyRange) -> Result<Step, Fault> {
        let (sql, edge) = match (self.scan.direction, &range.end) {
            (Direction::Ascending, _) => (FROM, Some(&range.start)),
            (Direction::Descending, Some(end)) => (BEFORE, Some(end)),
            (Direction::Descending, None) => (LAST, None),
        };
        let mut statement = self.conn.prepare_cached(sql)?;
        let table = table.0.cast_signed();
        let rows = match edge {
            Some(edge) => statement.query(params![table, &*edge.partition, &*edge.row])?,
            None => statement.query(params![table])?,
        };
        self.rows(rows, range)
    }

    fn rows(&mut self, mut rows: Rows<'_>, range: &KeyRange) -> Result<Step, Fault> {
        while let Some(row) = rows.next()? {
            let (partition, row_key) = (text(row, 0)?, text(row, 1)?);
            if !range.contains(partition, row_key) {
                break;
            }
            if self.is_out_of_time() {
                self.page.next = Some(Position::before(partition, row_key));
                return Ok(Step::Stop);
            }
            self.page.examined += 1;
            if self.row(partition, row_key, row.get_ref(2)?)? == Step::Stop {
                self.page.next = Some(Position::before(partition, row_key));
                return Ok(Step::Stop);
            }
        }
        Ok(Step::Next)
    }

    /// Takes the row if it matches and there is room; stops at the first match beyond.
    fn row(
        &mut self,
        partition: &str,
        row: &str,
        record: rusqlite::types::ValueRef<'_>,
    ) -> Result<Step, Fault> {
        if self.full && self.scan.filter.is_none() {
            return Ok(Step::Stop);
        }
        let counts = self.scan.take == Take::Count;
        if counts && self.scan.filter.is_none() {
            self.page.counted += 1;
            return Ok(Step::Next);
        }
        let conn = self.conn;
        with_record(conn, record, |_, bytes| {
            let row = Row { partition, row, record: RecordRef::parse(bytes)? };
            let matches = match &self.scan.filter {
                Some(filter) => filter.matches(&row)?,
                None => true,
            };
            if !matches {
                return Ok(Step::Next);
            }
            if self.full {
                return Ok(Step::Stop);
            }
            if counts {
                self.page.counted += 1;
                return Ok(Step::Next);
            }
            let rows = &mut self.page.rows;
            rows.push(&row);
            self.full = self.scan.limit <= rows.len() || self.scan.max_bytes <= rows.byte_len();
            Ok(Step::Next)
        })
    }

    /// Never before the first row was examined.
    fn is_out_of_time(&self) -> bool {
        let examined = self.page.examined;
        let look = examined == 1 || (examined > 0 && examined.is_multiple_of(self.rows_per_look));
        look && (self.scan.deadline <= Instant::now() || (self.abandoned)())
    }
}

fn text<'a>(row: &'a rusqlite::Row<'_>, column: usize) -> Result<&'a str, Fault> {
    let value = row.get_ref(column)?;
    value.as_str().map_err(|_| Fault::Corrupt("a key is not text".into()))
}

/// A read transaction that ends with the scope.
pub(crate) struct View<'a>(&'a Connection);

impl<'a> View<'a> {
    pub(crate) fn begin(conn: &'a Connection) -> Result<Self, rusqlite::Error> {
        conn.prepare_cached("BEGIN DEFERRED")?.execute([])?;
        Ok(Self(conn))
    }
}

impl Drop for View<'_> {
    fn drop(&mut self) {
        let ended = self.0.prepare_cached("COMMIT").and_then(|mut commit| commit.execute([]));
        if let Err(error) = ended {
            tracing::warn!(%error, "ending a read transaction failed");
        }
    }
}
