//! A long page with a filter, read from both ends by two threads until they meet.
//!
//! The front is the reading that somebody waits for. When it has examined many rows and found little, and there is a processor
//! that reads nothing, another thread reads the same ranges backwards: the back. Where they meet, the page is what the front
//! found and then what the back found, which is what the front would have found alone: both read at one snapshot, or the
//! back does not begin. How the keys are spread does not matter, because neither has a part of its own.
//!
//! The front waits for nobody who has not begun, and for the back only once they have met, which is for a few rows. A page that is full or out of
//! time before that drops what the back has read; [`BACK_ROWS_MAX`] bounds that.

#[cfg(test)]
mod tests;

use super::{Pace, Reading, Role, View};
use crate::committer::Fault;
use crate::entity;
use crate::index;
use crate::store::Shared;
use rowhouse_store::{Page, Scan, Table, Take};
use rowhouse_types::{Direction, Position, Row, Timestamp};
use rusqlite::Connection;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Most rows that a back examines: about a tenth of what a page has time for, as what it reads may be for nothing.
const BACK_ROWS_MAX: u64 = 1024 * 1024;
/// A page that is filled to more than one part in so many is likely to be full before it meets anybody.
const LITTLE: usize = 8;

/// Where two readings of one page are.
#[derive(Debug, Default)]
struct Meeting {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The front has examined every row before this one.
    front: Place,
    /// The front wants no more rows.
    over: bool,
    /// The back has examined every row after this one.
    back: Option<Place>,
    found: Found,
}

/// What the back has found.
#[derive(Debug, Default)]
enum Found {
    /// It has not ended, or not begun.
    #[default]
    Unknown,
    /// It could not read.
    Nothing,
    Page(Page),
}

/// A key, kept without allocating for each.
#[derive(Debug, Default)]
struct Place {
    partition: String,
    row: String,
}

impl Place {
    fn set(&mut self, (partition, row): (&str, &str)) {
        self.partition.clear();
        self.partition.push_str(partition);
        self.row.clear();
        self.row.push_str(row);
    }

    fn key(&self) -> (&str, &str) {
        (&self.partition, &self.row)
    }
}

impl Meeting {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What it takes to ask for a back: of what, and at which snapshot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask<'a> {
    pub(crate) shared: &'a Arc<Shared>,
    pub(crate) table: &'a Table,
    pub(crate) now: Timestamp,
    /// The last batch in the snapshot of the front.
    pub(crate) batch: u64,
}

impl<'a> Ask<'a> {
    /// The role of a reading that may ask.
    pub(super) fn role(self, scan: &Scan) -> Role<'a> {
        let whole = scan.through.is_none()
            && scan.filter.is_some()
            && scan.direction == Direction::Ascending
            && scan.take == Take::Entities;
        if whole { Role::Willing(self) } else { Role::Alone }
    }

    /// Whether it is time to ask, having examined and found so much.
    pub(super) fn is_due(&self, scan: &Scan, page: &Page) -> bool {
        let tuning = &self.shared.tuning;
        page.examined.is_multiple_of(tuning.back_after_rows.into())
            && page.rows.len() < scan.limit.div_ceil(LITTLE)
            && page.rows.byte_len() < scan.max_bytes.div_ceil(LITTLE)
            && self.shared.scans.busy() < tuning.processors.min(half(tuning.scan_threads)) as usize
    }

    /// Has another thread begin at the end of what is left from `key` on, unless somebody waits for one.
    pub(super) fn back(&self, scan: &Scan, key: (&str, &str)) -> Option<Front> {
        let current = index::range_after(&scan.ranges, key.0, key.1);
        let mut ranges = scan.ranges[current..].to_vec();
        ranges.first_mut()?.start = Position::before(key.0, key.1);
        let scan = Scan { ranges, direction: Direction::Descending, ..scan.clone() };
        let meeting = Arc::new(Meeting::default());
        meeting.lock().front.set(key);
        let (table, now, batch, ours) =
            (self.table.clone(), self.now, self.batch, Arc::clone(&meeting));
        self.shared.scans.try_push(Box::new(move |conn, _, length| {
            length.begin(Pace::of(scan.filter.as_deref()));
            let over = || {
                length.look();
                ours.lock().over
            };
            let work = || read(conn, &table, &scan, (now, batch), &ours, &over);
            let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
            ours.lock().found = match found {
                Ok(Ok(Some(page))) => Found::Page(page),
                // What was wrong, the front comes to, and tells.
                Ok(Ok(None) | Err(_)) | Err(_) => Found::Nothing,
            };
            ours.ended.notify_one();
        }))?;
        Some(Front(meeting))
    }
}

/// As many threads as may be busy when a page has a second one: the others are left to whoever comes next.
fn half(threads: usize) -> u32 {
    u32::try_from(threads / 2).unwrap_or(u32::MAX)
}

/// Reads a page backwards, unless something was committed since the snapshot of the front.
fn read(
    conn: &Connection,
    table: &Table,
    scan: &Scan,
    (now, batch): (Timestamp, u64),
    meeting: &Meeting,
    over: &dyn Fn() -> bool,
) -> Result<Option<Page>, Fault> {
    let _view = View::begin(conn)?;
    if over() || entity::last_batch(conn)? != batch {
        return Ok(None);
    }
    let page = super::read(conn, table, scan, now, over, Role::Back(Back(meeting)))?;
    // Where it ended it was not examined; without an end all was.
    let end = page.next.as_ref().or(scan.ranges.first().map(|range| &range.start));
    if let Some(Position { partition, row }) = end {
        meeting.lock().back.get_or_insert_default().set((partition, row));
    }
    Ok(Some(page))
}

/// The side of the back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Back<'a>(&'a Meeting);

impl Back<'_> {
    /// Tells where the back is. True once there is no reason to go on.
    pub(super) fn is_done(self, examined: u64, key: (&str, &str)) -> bool {
        let mut state = self.0.lock();
        state.back.get_or_insert_default().set(key);
        key <= state.front.key() || BACK_ROWS_MAX <= examined
    }
}

/// The side of the front. When it goes, the back ends.
#[derive(Debug)]
pub(crate) struct Front(Arc<Meeting>);

/// What the front is told.
#[derive(Debug)]
pub(super) enum Told {
    /// Go on.
    Apart,
    /// Everything from here on is in this page, the last first, and more that was examined already.
    Met(Page),
    /// Nobody else reads.
    Alone,
}

impl Front {
    /// Tells where the front is: before the row with this key.
    pub(super) fn at(&self, key: (&str, &str), deadline: Instant) -> Told {
        let mut state = self.0.lock();
        state.front.set(key);
        if matches!(state.found, Found::Nothing) {
            return Told::Alone;
        }
        if state.back.as_ref().is_none_or(|back| key <= back.key()) {
            return Told::Apart;
        }
        state.over = true;
        let patience = deadline.saturating_duration_since(Instant::now());
        let waiting = |state: &mut State| matches!(state.found, Found::Unknown);
        let waited = self.0.ended.wait_timeout_while(state, patience, waiting);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match std::mem::take(&mut state.found) {
            Found::Page(page) => Told::Met(page),
            Found::Nothing | Found::Unknown => Told::Alone,
        }
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.0.lock().over = true;
    }
}

impl Reading<'_> {
    /// Ends the page with what the back found from `key` on, as far as there is room.
    pub(super) fn join(&mut self, back: &Page, key: (&str, &str)) -> Result<(), Fault> {
        let rows = back.rows.iter().collect::<Result<Vec<Row<'_>>, _>>()?;
        self.page.examined += back.examined;
        for row in rows.iter().rev().skip_while(|row| (row.partition, row.row) < key) {
            if self.full {
                self.page.next = Some(Position::before(row.partition, row.row));
                break;
            }
            self.take(row);
        }
        Ok(())
    }
}
