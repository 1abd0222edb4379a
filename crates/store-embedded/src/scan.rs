//! Pages of queries, on threads of their own.
//!
//! A page is one read transaction, so it never shows half of a batch. The filter looks at the row
//! where SQLite has it; only rows that match are copied. A page that nobody waits for any more ends, and so does a long one
//! that the log waits for ([`checkpoint`](crate::checkpoint)).
//!
//! A page that takes long lets everybody else go first: the rest of it is read at a lower priority.
//! With a long filter that is after half a millisecond, with any other after many rows. No thread
//! can take that back, so the next page on its connection is read by another thread. While a processor reads
//! nothing, two threads read such a page from both ends ([`meet`]).

mod meet;
pub(crate) mod sort;

use self::meet::{Ask, Back, Front, Told};
use crate::checkpoint::Whole;
use crate::committer::Fault;
use crate::entity::{self, with_record};
use crate::index::{self, Way, lookup};
use crate::schema;
use crate::store::Shared;
use rowhouse_query::Filter;
use rowhouse_store::{Expiry, Extent, Page, Scan, StoreError, Table, TableId, Take};
use rowhouse_types::{Corrupt, Direction, KeyRange, Position, RecordRef, Row, Timestamp};
use rusqlite::{Connection, Rows, params};
use std::cell::{Cell, OnceCell};
use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// How many rows are examined between looks at the clock, unless the filter is long.
const ROWS_PER_LOOK: u64 = 16;
/// After so many looks, about half a millisecond, whoever waits for the processor has a turn. Linux lets a thread go on for
/// up to 4 ms otherwise, also while one with a higher priority waits. A page of a thousand rows does not get there: with 16 looks
/// the filter over a partition cost a fifth more.
const LOOKS_PER_TURN: u32 = 64;
/// With so many conditions every row may take long.
const LONG_FILTER: usize = 64;
/// A reading with a long filter steps back after this time, and yields the processor whenever so
/// much has passed again: the number of looks does not say how long it takes. A page of 1,000 rows
/// with a filter of a few conditions takes about as long.
const TURN: Duration = Duration::from_micros(500);
/// Until the system is asked again for a thread that it did not give.
const NO_THREAD_PAUSE: Duration = Duration::from_millis(100);

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
    /// How many threads are reading.
    busy: AtomicUsize,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    closed: bool,
}

/// Something to be read, which sends the answer itself.
type Job = Box<dyn FnOnce(&Connection, &Arc<Shared>, &Length) + Send>;

/// How long a reading takes: counted in looks, and with a long filter also measured.
struct Length {
    looks: Cell<u32>,
    /// From this number of looks on it is long; `u32::MAX` if the thread must not step back.
    long_looks: u32,
    long: Cell<bool>,
    timed: OnceCell<Timed>,
}

/// The time of a reading with a long filter.
struct Timed {
    /// What the thread had used before, of the processor.
    used: Duration,
    /// When the current turn began.
    turn: Cell<Instant>,
}

impl Length {
    fn new(long_looks: u32) -> Self {
        let (looks, long, timed) = (Cell::new(0), Cell::new(false), OnceCell::new());
        Self { looks, long_looks, long, timed }
    }

    /// The reading begins. Only one with a long filter reads the clock.
    fn begin(&self, pace: Pace) {
        if pace == Pace::Timed {
            let turn = Cell::new(Instant::now());
            self.timed.get_or_init(|| Timed { used: rowhouse_env::thread_time(), turn });
        }
    }

    /// Counts a look. Now and then others have a turn, and when the reading becomes long, its thread steps back for ever.
    fn look(&self) {
        let looks = self.looks.get().saturating_add(1);
        self.looks.set(looks);
        if looks == self.long_looks {
            self.step_back();
        }
        match self.timed.get() {
            None if looks.is_multiple_of(LOOKS_PER_TURN) => thread::yield_now(),
            None => {}
            Some(timed) => self.end_turn(timed),
        }
    }

    /// Ends the turn if it has lasted long enough. The thread may have waited meanwhile for a
    /// processor, so the reading is long only if it has used one for as long.
    fn end_turn(&self, timed: &Timed) {
        if timed.turn.get().elapsed() < TURN {
            return;
        }
        let used = || rowhouse_env::thread_time().saturating_sub(timed.used);
        if self.long_looks < u32::MAX && !self.is_long() && TURN <= used() {
            self.step_back();
        }
        thread::yield_now();
        timed.turn.set(Instant::now());
    }

    fn step_back(&self) {
        if !self.long.replace(true) {
            rowhouse_env::step_back();
        }
    }

    fn is_long(&self) -> bool {
        self.long.get()
    }
}

/// What a look is a measure of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Looks come after about the same time.
    Looks,
    /// What is between two looks may take as long as a page otherwise does: the time counts.
    Timed,
}

impl Pace {
    /// Of a reading with this filter.
    pub(crate) fn of(filter: Option<&Filter>) -> Self {
        let long = filter.is_some_and(|filter| LONG_FILTER <= filter.terms());
        if long { Self::Timed } else { Self::Looks }
    }

    /// Of an estimate: each span or range is a search of its own.
    pub(crate) fn of_extent(extent: &Extent) -> Self {
        let searches = match extent {
            Extent::Keys(ranges) => ranges.len(),
            Extent::Entries(parts, ranges) => {
                parts.iter().map(|part| part.spans.len()).sum::<usize>() * ranges.len()
            }
        };
        if LONG_FILTER <= searches { Self::Timed } else { Self::Looks }
    }
}

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
        self.ask_at(Pace::Looks, most, read).await
    }

    /// The same at this pace.
    pub(crate) async fn ask_at<T: Send + 'static>(
        &self,
        pace: Pace,
        most: usize,
        read: impl FnOnce(&Connection, &Arc<Shared>, &dyn Fn() -> bool) -> Result<T, StoreError>
        + Send
        + 'static,
    ) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        let job = move |conn: &Connection, shared: &Arc<Shared>, length: &Length| {
            if reply.is_closed() {
                return;
            }
            length.begin(pace);
            let abandoned = || {
                length.look();
                reply.is_closed()
            };
            let work = || read(conn, shared, &abandoned);
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

    /// Has a thread read something, if nothing else waits for one.
    fn try_push(&self, job: Job) -> Option<()> {
        self.push(job, 1).ok()
    }

    /// How many threads are reading now.
    pub(crate) fn busy(&self) -> usize {
        self.busy.load(Ordering::Relaxed)
    }

    /// Does a job, counted as long as it lasts.
    fn work(&self, job: Job, conn: &Connection, shared: &Arc<Shared>, length: &Length) {
        self.busy.fetch_add(1, Ordering::Relaxed);
        job(conn, shared, length);
        self.busy.fetch_sub(1, Ordering::Relaxed);
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

/// The life of a thread that reads whatever is asked for, and stays as it is.
pub(crate) fn run(conn: &Connection, shared: &Arc<Shared>, scans: &Scans) {
    while let Some(job) = scans.take() {
        scans.work(job, conn, shared, &Length::new(u32::MAX));
    }
}

/// The life of a thread that has others read, one after the other: each until it was at something long.
///
/// A new thread is as far back as the one that starts it. This one never steps back.
pub(crate) fn run_in_turns(mut conn: Connection, shared: &Arc<Shared>) {
    loop {
        let conn = &mut conn;
        let ended = thread::scope(|scope| {
            let reader = thread::Builder::new().name("rowhouse-scan".to_owned());
            let reader = reader.spawn_scoped(scope, move || read_until_long(conn, shared));
            // What panics outside of a reading would do so again.
            reader.map(|reader| reader.join().unwrap_or(Ended::Closed))
        });
        match ended {
            Ok(Ended::Long) => {}
            Ok(Ended::Closed) => return,
            Err(error) => {
                tracing::warn!(%error, "there is no thread for a page");
                thread::sleep(NO_THREAD_PAUSE);
                if shared.scans.lock().closed {
                    return;
                }
            }
        }
    }
}

/// Why a thread reads no more.
enum Ended {
    /// It has stepped back.
    Long,
    /// The store is closed.
    Closed,
}

fn read_until_long(conn: &Connection, shared: &Arc<Shared>) -> Ended {
    let mut mapped = None;
    while let Some(job) = shared.scans.take() {
        let fits = shared.fit.fits();
        if mapped.replace(fits) != Some(fits)
            && let Err(error) = schema::map(conn, fits)
        {
            tracing::warn!(%error, "the way of reading was not changed");
        }
        let length = Length::new(shared.tuning.long_looks);
        shared.scans.work(job, conn, shared, &length);
        if length.is_long() {
            return Ended::Long;
        }
    }
    Ended::Closed
}

/// Reads a page of what is committed now.
pub(crate) fn page(
    conn: &Connection,
    shared: &Arc<Shared>,
    table: TableId,
    scan: &Scan,
    abandoned: &dyn Fn() -> bool,
) -> Result<Page, StoreError> {
    let indexes: Vec<_> = scan.through.iter().flatten().map(|part| part.index).collect();
    index::guarded(shared, table, &indexes, |table| {
        let (_view, batch) = View::latest(conn, shared)?;
        let now = shared.now(table);
        let role = Ask { shared, table, now, batch }.role(scan);
        let rows = rows_per_look(scan.filter.as_deref());
        // A count is whole or of no use, and what an index has gathered so far would be lost.
        if scan.take == Take::Count || scan.through.is_some() {
            let whole = Whole::new(shared, rows, abandoned);
            return read(conn, table, scan, now, &|| whole.look(), role);
        }
        let abandoned = shared.checkpoints.or_restart(rows, abandoned);
        read(conn, table, scan, now, &abandoned, role)
    })
}

/// Reads a page within the read transaction that is open, without what has expired by `now`.
pub(crate) fn read(
    conn: &Connection,
    table: &Table,
    scan: &Scan,
    now: Timestamp,
    abandoned: &dyn Fn() -> bool,
    role: Role<'_>,
) -> Result<Page, Fault> {
    let ways = match &scan.through {
        Some(parts) => Way::all(table, parts)?,
        None => Vec::new(),
    };
    let mut reading = Reading {
        conn,
        table: table.id,
        expiry: table.ttl.as_ref().map(|ttl| ttl.at(now)),
        scan,
        abandoned,
        rows_per_look: rows_per_look(scan.filter.as_deref()),
        page: Page::default(),
        full: false,
        ways: &[],
        role,
    };
    match &scan.through {
        Some(_) => lookup::read(&mut reading, &ways)?,
        None => reading.ranges()?,
    }
    Ok(reading.page)
}

/// How many rows are examined between looks at the clock.
pub(crate) fn rows_per_look(filter: Option<&Filter>) -> u64 {
    match Pace::of(filter) {
        Pace::Looks => ROWS_PER_LOOK,
        Pace::Timed => 1,
    }
}

/// A page in the making.
pub(crate) struct Reading<'a> {
    pub(crate) conn: &'a Connection,
    pub(crate) table: TableId,
    /// What has expired is not there.
    pub(crate) expiry: Option<Expiry<'a>>,
    pub(crate) scan: &'a Scan,
    pub(crate) abandoned: &'a dyn Fn() -> bool,
    pub(crate) rows_per_look: u64,
    pub(crate) page: Page,
    /// The page takes no more rows; what is examined now is only to see whether there is another.
    pub(crate) full: bool,
    /// An entity must be in one of these, if there are any.
    pub(crate) ways: &'a [Way<'a>],
    /// Who else reads this page.
    pub(crate) role: Role<'a>,
}

/// The part of a reading in its page.
#[derive(Debug)]
pub(crate) enum Role<'a> {
    /// It reads all of it.
    Alone,
    /// It has another read from the end, as soon as that is likely to help.
    Willing(Ask<'a>),
    /// It reads from the beginning, and another from the end.
    Front(Front),
    /// It reads from the end, for the front.
    Back(Back<'a>),
}

/// Whether there is a reason to go on.
#[derive(PartialEq, Eq)]
pub(crate) enum Step {
    Next,
    Stop,
}

impl Reading<'_> {
    /// Reads all ranges, as far as the page goes.
    pub(crate) fn ranges(&mut self) -> Result<(), Fault> {
        let scan = self.scan;
        let mut ranges: Vec<_> = scan.ranges.iter().collect();
        if scan.direction == Direction::Descending {
            ranges.reverse();
        }
        for range in ranges {
            if self.range(range)? == Step::Stop {
                break;
            }
        }
        Ok(())
    }

    fn range(&mut self, range: &KeyRange) -> Result<Step, Fault> {
        let (sql, edge) = match (self.scan.direction, &range.end) {
            (Direction::Ascending, _) => (FROM, Some(&range.start)),
            (Direction::Descending, Some(end)) => (BEFORE, Some(end)),
            (Direction::Descending, None) => (LAST, None),
        };
        let mut statement = self.conn.prepare_cached(sql)?;
        let table = self.table.0.cast_signed();
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
            if self.is_look() && self.look_around((partition, row_key))? == Step::Stop {
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

    /// Tells whoever reads the same page where this reading is, before the row with this key. Stops when the
    /// page is done, or the back's part of it.
    fn look_around(&mut self, key: (&str, &str)) -> Result<Step, Fault> {
        match &self.role {
            Role::Alone => {}
            Role::Willing(ask) => {
                if ask.is_due(self.scan, &self.page)
                    && let Some(front) = ask.back(self.scan, key)
                {
                    self.role = Role::Front(front);
                }
            }
            Role::Front(front) => match front.at(key, self.scan.deadline) {
                Told::Apart => {}
                Told::Alone => self.role = Role::Alone,
                Told::Met(back) => {
                    self.join(&back, key)?;
                    return Ok(Step::Stop);
                }
            },
            Role::Back(back) => {
                if back.is_done(self.page.examined, key) {
                    self.page.next = Some(Position::before(key.0, key.1));
                    return Ok(Step::Stop);
                }
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
        if let Some(step) = self.unseen() {
            return Ok(step);
        }
        let conn = self.conn;
        with_record(conn, record, |_, bytes| self.record(partition, row, bytes))
    }

    /// What follows from a row that nobody needs to look into: without a filter every one counts, or is one too many.
    pub(crate) fn unseen(&mut self) -> Option<Step> {
        if self.is_choosy() || !self.ways.is_empty() {
            return None;
        }
        if self.full {
            return Some(Step::Stop);
        }
        if self.scan.take == Take::Count {
            self.page.counted += 1;
            return Some(Step::Next);
        }
        None
    }

    /// Takes the entity if it matches and there is room; stops at the first match beyond.
    pub(crate) fn record(
        &mut self,
        partition: &str,
        row: &str,
        bytes: &[u8],
    ) -> Result<Step, Fault> {
        let row = Row { partition, row, record: RecordRef::parse(bytes)? };
        if !self.matches(&row)? {
            return Ok(Step::Next);
        }
        if self.full {
            return Ok(Step::Stop);
        }
        match self.scan.take {
            Take::Count => self.page.counted += 1,
            Take::Entities => self.take(&row),
        }
        Ok(Step::Next)
    }

    /// Whether entities have to be looked into: not every one is wanted.
    pub(crate) fn is_choosy(&self) -> bool {
        self.scan.filter.is_some() || self.expiry.is_some()
    }

    pub(crate) fn matches(&self, row: &Row<'_>) -> Result<bool, Corrupt> {
        if let Some(expiry) = self.expiry
            && expiry.has_expired(row.record)?
        {
            return Ok(false);
        }
        if let Some(filter) = &self.scan.filter
            && !filter.matches(row)?
        {
            return Ok(false);
        }
        for way in self.ways {
            if way.contains(row)? {
                return Ok(true);
            }
        }
        Ok(self.ways.is_empty())
    }

    pub(crate) fn take(&mut self, row: &Row<'_>) {
        let rows = &mut self.page.rows;
        rows.push(row);
        self.full = self.scan.limit <= rows.len() || self.scan.max_bytes <= rows.byte_len();
    }

    /// Never before the first row was examined.
    pub(crate) fn is_out_of_time(&self) -> bool {
        self.is_look() && (self.scan.deadline <= Instant::now() || (self.abandoned)())
    }

    /// Whether it is time to look at something else than rows: after the first, and then after a few.
    fn is_look(&self) -> bool {
        let examined = self.page.examined;
        examined == 1 || (examined > 0 && examined.is_multiple_of(self.rows_per_look))
    }
}

pub(crate) fn text<'a>(row: &'a rusqlite::Row<'_>, column: usize) -> Result<&'a str, Fault> {
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

    /// A view of what is committed now, and its last batch. What it shows, point reads show from now on.
    pub(crate) fn latest(conn: &'a Connection, shared: &Shared) -> Result<(Self, u64), Fault> {
        let view = Self::begin(conn)?;
        let batch = entity::last_batch(conn)?;
        shared.readers.advance(batch);
        Ok((view, batch))
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
