//! Pages: rows in key order, streamed from the database until the page is full.
//!
//! A page that one statement can answer is one statement. With a filter, or over several ranges, it is a read-only
//! transaction at one snapshot: the filter is judged in the database, on so many rows at a time that the deadline of
//! the page is kept, and the last row looked at is always known. Rows that a filter lets pass in doubt are judged here.
//! So is a page that is read through indexes (`through`), or in the order of one (`walk`) or of none (`sort`).
//!
//! What is spread over the shards of a cluster is read in two steps (`spread`): where a page ends, then its rows.

mod cut;
mod sort;
mod spread;
mod through;
mod walk;
mod weigh;

use cut::Cut;
pub(crate) use sort::sort;
pub(crate) use walk::walk;
pub(crate) use weigh::weigh;

use crate::fault::Fault;
use crate::filter::{self, Condition, Parameters};
use crate::index::lookup::{Members, Through};
use crate::key::{self, DbKey, DbPosition};
use crate::pool::Session;
use futures_util::TryStreamExt as _;
use rowhouse_store::{Conflict, Expiry, Page, Placement, Scan, StoreError, TableId, Take};
use rowhouse_types::{Direction, EntityKey, KeyRange, Position, Row};
use std::pin::pin;
use std::time::Instant;
use tokio_postgres::types::Type;

const SNAPSHOT: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
/// Rows that the filter is judged on at a time, first and at most.
const FIRST_ROWS: i64 = 256;
const MOST_ROWS: i64 = 16_000;
/// Rows that the database let pass in doubt and are judged here, at a time and at least.
const DOUBTFUL_ROWS: i64 = 128;
/// Points that are asked for at a time.
const POINTS_MAX: usize = 16;
const LIVE: &str = "EXISTS (SELECT FROM rowhouse.tables t WHERE t.tid = $1 AND t.dropped IS NULL)";

/// Which table is read, and where its partitions live.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    pub(crate) id: TableId,
    pub(crate) number: i64,
    pub(crate) placement: &'a Placement,
    /// What has expired is not there.
    pub(crate) expiry: Option<Expiry<'a>>,
    /// How many shards of a cluster its partitions are on; none without one.
    pub(crate) shards: usize,
}

impl Source<'_> {
    /// Whether the rows of the range are on several shards.
    fn is_spread(&self, range: &KeyRange) -> bool {
        self.shards > 0 && key::partition(range).is_none()
    }
}

/// A page in the making.
struct Draft<'a> {
    scan: &'a Scan,
    page: Page,
    buffer: Vec<u8>,
    /// Read by the entries in these parts of indexes.
    through: Option<&'a Through<'a>>,
    /// Read otherwise, and only what has such an entry is wanted.
    members: Option<&'a Members<'a>>,
    /// Most rows that the filter is judged on at a time.
    most: i64,
    /// Its time was over before all was read that was asked for.
    late: bool,
}

/// Where a range was left.
enum Left {
    /// Nothing more is in it.
    Exhausted,
    /// More rows have to be looked at, from here on.
    More(Position),
    /// The page is complete.
    Complete,
}

/// Reads one page.
pub(crate) async fn page(
    session: &Session,
    source: Source<'_>,
    scan: &Scan,
) -> Result<Page, Fault> {
    if let Some(parts) = &scan.through {
        return through::page(session, source, scan, parts).await;
    }
    let mut draft = Draft::new(scan);
    let steps = steps(scan);
    let every = scan.filter.is_none() && source.expiry.is_none();
    let whole = !steps.iter().any(|step| step.is_spread(source));
    let one_statement = steps.len() <= 1 && every && whole && scan.take == Take::Entities;
    if one_statement {
        for step in steps {
            session.whole(draft.run(session, source, step)).await?;
        }
        if draft.is_unread() {
            session.mark_unclean();
        }
        return Ok(draft.page);
    }
    session.begin(SNAPSHOT).await?;
    let unread = draft.run_all(session, source, steps).await?;
    if !unread {
        session.end("COMMIT").await?;
    }
    Ok(draft.page)
}

/// Reads one page in the transaction that is open, where there are no indexes.
pub(crate) async fn page_within(
    session: &Session,
    source: Source<'_>,
    scan: &Scan,
) -> Result<Page, Fault> {
    if scan.through.is_some() {
        return Err(Conflict::IndexNotFound.into());
    }
    let mut draft = Draft::new(scan);
    // What was asked for and is not wanted is read before the next page.
    draft.run_all(session, source, steps(scan)).await?;
    Ok(draft.page)
}

/// Ranges that one statement reads.
enum Step<'a> {
    Range(&'a KeyRange),
    Points(Vec<EntityKey>),
}

impl Step<'_> {
    fn is_spread(&self, source: Source<'_>) -> bool {
        matches!(self, Self::Range(range) if source.is_spread(range))
    }
}

/// Points that follow each other are asked for together.
fn steps(scan: &Scan) -> Vec<Step<'_>> {
    let mut ranges: Vec<_> = scan.ranges.iter().collect();
    if scan.direction == Direction::Descending {
        ranges.reverse();
    }
    if scan.through.is_some() {
        return ranges.into_iter().map(Step::Range).collect();
    }
    let mut steps: Vec<Step<'_>> = Vec::new();
    for range in ranges {
        match (key::point(range), steps.last_mut()) {
            (Some(point), Some(Step::Points(points))) if points.len() < POINTS_MAX => {
                points.push(point);
            }
            (Some(point), _) => steps.push(Step::Points(vec![point])),
            (None, _) => steps.push(Step::Range(range)),
        }
    }
    steps
}

impl<'a> Draft<'a> {
    fn new(scan: &'a Scan) -> Self {
        let page = Page::default();
        let buffer = Vec::new();
        Self { scan, page, buffer, through: None, members: None, most: MOST_ROWS, late: false }
    }

    /// Until the page is complete; whether some of what was asked for has not been read.
    async fn run_all(
        &mut self,
        session: &Session,
        source: Source<'_>,
        steps: Vec<Step<'_>>,
    ) -> Result<bool, Fault> {
        for step in steps {
            if self.run(session, source, step).await? {
                break;
            }
        }
        Ok(self.is_unread())
    }

    /// Whether the page is complete.
    async fn run(
        &mut self,
        session: &Session,
        source: Source<'_>,
        step: Step<'_>,
    ) -> Result<bool, Fault> {
        match step {
            Step::Points(points) => self.points(session, source, &points).await,
            Step::Range(range) if self.through.is_none() && source.is_spread(range) => {
                self.spread(session, source, range).await
            }
            Step::Range(range) if self.is_judged() || source.expiry.is_some() => {
                self.filtered(session, source, range).await
            }
            Step::Range(range) => self.unfiltered(session, source, range).await,
        }
    }

    /// Whether not every row of a range is returned.
    fn is_judged(&self) -> bool {
        let among = self.through.is_some() || self.members.is_some();
        among || self.scan.filter.is_some() || self.counts()
    }

    fn counts(&self) -> bool {
        self.scan.take == Take::Count
    }

    /// What is only counted leaves the page empty, and so it never is.
    fn is_full(&self) -> bool {
        let (rows, scan) = (&self.page.rows, self.scan);
        !rows.is_empty() && (scan.limit <= rows.len() || scan.max_bytes <= rows.byte_len())
    }

    /// Most rows that are still wanted, with the one where the next page starts.
    fn wanted(&self) -> i64 {
        let limit = if self.counts() { usize::MAX } else { self.scan.limit };
        let wanted = if self.is_full() { 0 } else { limit - self.page.rows.len() };
        i64::try_from(wanted).unwrap_or(i64::MAX - 2).min(i64::MAX - 2) + 1
    }

    /// Whether its bytes or its time ended the page, so that a statement may have more rows than are worth reading: its
    /// connection is closed instead.
    fn is_unread(&self) -> bool {
        let ended = self.page.next.is_some() && self.page.rows.len() < self.scan.limit;
        self.late || (ended && self.is_full())
    }

    /// What a statement sends of the properties; all without. Rows in doubt need what the filter looks at; what has
    /// expired is not among them.
    fn cut(&self, exact: bool) -> Option<Cut<'a>> {
        if self.counts() || self.members.is_some() {
            return None;
        }
        let cut = Cut::of(self.scan.select.as_deref())?;
        Some(if exact { cut } else { cut.with(self.scan.filter.as_deref()) })
    }

    async fn points(
        &mut self,
        session: &Session,
        source: Source<'_>,
        points: &[EntityKey],
    ) -> Result<bool, Fault> {
        let keys: Vec<_> = points.iter().map(DbKey::new).collect();
        let homes: Vec<_> = points
            .iter()
            .map(|point| key::home(source.id, source.placement, point.partition.as_str()))
            .collect();
        let prefixes: Vec<&[u8]> = keys.iter().map(|key| &*key.prefix).collect();
        let sql = format!(
            "SELECT e.kp, e.rest, e.pl, e.ts, e.names, e.props, e.kh FROM rowhouse.entities e
             WHERE e.tid = $1 AND e.dk = ANY($2) AND e.kp = ANY($3)
             AND e.kh || '' = ANY($4) AND {LIVE}"
        );
        let hashes: Vec<&[u8]> = keys.iter().map(|key| &*key.hash).collect();
        let rows = session.rows(&sql, &[&source.number, &homes, &prefixes, &hashes]).await?;
        for wanted in &keys {
            let found = rows.iter().find(|row| {
                row.get::<_, &[u8]>(0) == &*wanted.prefix && row.get::<_, &[u8]>(6) == &*wanted.hash
            });
            let Some(found) = found else { continue };
            if self.judged_here(source, found, None)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Judges a row without the database; whether the page is complete.
    fn judged_here(
        &mut self,
        source: Source<'_>,
        found: &tokio_postgres::Row,
        cut: Option<&Cut<'_>>,
    ) -> Result<bool, Fault> {
        self.page.examined += 1;
        let full = self.is_full();
        let late = self.page.examined > 1 && self.scan.deadline <= Instant::now();
        let mut buffer = std::mem::take(&mut self.buffer);
        let (partition, row) = halves(found, &mut buffer)?;
        let record = cut::record(found, cut)?;
        let record = record.as_ref();
        let candidate = Row { partition, row, record };
        let filter = self.scan.filter.as_ref();
        let hit = !source.expiry.map_or(Ok(false), |expiry| expiry.has_expired(record))?
            && self.members.map_or(Ok(true), |members| members.contains(&candidate))?
            && filter.map_or(Ok(true), |filter| filter.matches(&candidate))?;
        let complete = late || (hit && full);
        if complete {
            self.page.next = Some(Position::before(partition, row));
        } else if hit && self.counts() {
            self.page.counted += 1;
        } else if hit {
            self.page.rows.push(&candidate);
        }
        self.buffer = buffer;
        Ok(complete)
    }

    async fn unfiltered(
        &mut self,
        session: &Session,
        source: Source<'_>,
        range: &KeyRange,
    ) -> Result<bool, Fault> {
        let mut parameters = Parameters::default();
        let mut sql = format!(
            "SELECT e.kp, e.rest, e.pl, e.ts, e.names, e.props {}",
            from(source, range, self.scan.direction, self.wanted(), &mut parameters)
        );
        let cut = self.cut(true);
        if let Some(cut) = &cut {
            sql = cut.apply(&sql, "", &mut parameters);
        }
        let stream = session.client().query_typed_raw(&sql, parameters.typed()).await?;
        let mut stream = pin!(stream);
        while let Some(found) = stream.try_next().await? {
            self.page.examined += 1;
            // Few bytes may be cut from many, and then they are not what ends a page in time.
            self.late =
                cut.is_some() && self.page.examined > 1 && self.scan.deadline <= Instant::now();
            if self.late || self.is_full() {
                self.page.next = Some(self.position(&found)?);
                return Ok(true);
            }
            self.push(&found, cut.as_ref())?;
        }
        Ok(false)
    }

    async fn filtered(
        &mut self,
        session: &Session,
        source: Source<'_>,
        range: &KeyRange,
    ) -> Result<bool, Fault> {
        let mut range = range.clone();
        let mut rows = FIRST_ROWS.min(self.most);
        if let Some(through) = self.through {
            // Little more than is wanted, unless all entries have to be sorted for it.
            if through.is_sorted() {
                rows = self.wanted().min(FIRST_ROWS);
            } else {
                self.walked(session, source, through, &range).await?;
            }
        }
        loop {
            if self.scan.deadline <= Instant::now() {
                rows = 1;
            }
            let began = Instant::now();
            let left = match self.through {
                Some(through) => self.chunk_through(session, source, through, &range, rows).await?,
                None => self.chunk(session, source, &range, rows).await?,
            };
            match left {
                Left::Exhausted => return Ok(false),
                Left::Complete => return Ok(true),
                Left::More(next) if self.scan.deadline <= Instant::now() => {
                    self.page.next = Some(next);
                    return Ok(true);
                }
                Left::More(next) => {
                    let rest = self.scan.direction.rest(&next);
                    let Some(left) = range.intersect(&rest) else { return Ok(false) };
                    range = left;
                }
            }
            // As many as will surely be done in time: large entities take long.
            let left = self.scan.deadline.saturating_duration_since(Instant::now());
            rows = if 8 * began.elapsed() < left { 4 * rows } else { rows / 2 };
            rows = rows.clamp(1, self.most);
        }
    }

    /// Judges the filter on so many rows; one more row says where to go on.
    async fn chunk(
        &mut self,
        session: &Session,
        source: Source<'_>,
        range: &KeyRange,
        rows: i64,
    ) -> Result<Left, Fault> {
        let mut parameters = Parameters::default();
        let from = from(source, range, self.scan.direction, rows + 1, &mut parameters);
        let filter = self.scan.filter.as_deref();
        let Condition { sql: hit, exact } = filter::wanted(filter, source.expiry, &mut parameters);
        let exact = exact && self.members.is_none();
        // A large value is fetched and unpacked by whatever reads it: here once for all comparisons of a row, and after
        // the rows are in order, which would have to hold it.
        let props = if hit.contains("i.props") { "s.props || '{}' AS props" } else { "s.props" };
        let judged = format!(
            "SELECT i.*, row_number() OVER () AS n, lead(true) OVER () IS NULL AS last, {hit} AS hit
                FROM (SELECT s.kp, s.rest, s.pl, s.ts, s.names, {props} FROM (
                    SELECT e.kp, e.rest, e.pl, e.ts, e.names, e.props {from}) AS s OFFSET 0) AS i"
        );
        if self.counts() && exact {
            return self.count(session, &judged, &parameters, rows).await;
        }
        // One more for the row that says where to go on.
        let most = 1 + if exact { self.wanted() } else { self.wanted().max(DOUBTFUL_ROWS) };
        let mut sql = format!(
            "SELECT kp, rest, pl, ts, names, CASE WHEN hit THEN props END, n, hit FROM ({judged}) AS judged
             WHERE hit OR last LIMIT {most}",
        );
        let cut = self.cut(exact);
        if let Some(cut) = &cut {
            sql = cut.apply(&sql, ", n, hit", &mut parameters);
        }
        let stream = session.client().query_typed_raw(&sql, parameters.typed()).await?;
        let mut stream = pin!(stream);
        let (before, mut read) = (self.page.examined, 0);
        while let Some(found) = stream.try_next().await? {
            read += 1;
            let n: i64 = found.get(6);
            let earlier = before + n.unsigned_abs() - 1;
            // Of rows in doubt there may be more than the statement returned.
            if n > rows || (!exact && read == most) {
                self.page.examined = earlier;
                return Ok(Left::More(self.position(&found)?));
            }
            let hit: bool = found.get(7);
            if hit && !exact {
                self.page.examined = earlier;
                if self.judged_here(source, &found, cut.as_ref())? {
                    return Ok(Left::Complete);
                }
                continue;
            }
            self.page.examined = earlier + 1;
            if hit && self.is_full() {
                self.page.next = Some(self.position(&found)?);
                return Ok(Left::Complete);
            }
            if hit {
                self.push(&found, cut.as_ref())?;
            }
        }
        Ok(Left::Exhausted)
    }

    /// Counts so many of the judged rows; one more says where to go on.
    async fn count(
        &mut self,
        session: &Session,
        judged: &str,
        parameters: &Parameters,
        rows: i64,
    ) -> Result<Left, Fault> {
        let beyond = |column: &str| format!("(array_agg({column}) FILTER (WHERE n > {rows}))[1]");
        let sql = format!(
            "SELECT {}, {}, {}, count(*) FILTER (WHERE hit AND n <= {rows}), count(*) FROM ({judged}) AS judged",
            beyond("kp"),
            beyond("rest"),
            beyond("pl")
        );
        let stream = session.client().query_typed_raw(&sql, parameters.typed()).await?;
        let mut stream = pin!(stream);
        let Some(found) = stream.try_next().await? else { return Ok(Left::Exhausted) };
        let (counted, read): (i64, i64) = (found.get(3), found.get(4));
        self.page.counted += counted.unsigned_abs();
        self.page.examined += read.min(rows).unsigned_abs();
        let left = if read > rows { Left::More(self.position(&found)?) } else { Left::Exhausted };
        // To the end, so that the connection has nothing unread.
        while stream.try_next().await?.is_some() {}
        Ok(left)
    }

    fn push(&mut self, found: &tokio_postgres::Row, cut: Option<&Cut<'_>>) -> Result<(), Fault> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let (partition, row) = halves(found, &mut buffer)?;
        let record = cut::record(found, cut)?;
        self.page.rows.push(&Row { partition, row, record: record.as_ref() });
        self.buffer = buffer;
        Ok(())
    }

    fn position(&mut self, found: &tokio_postgres::Row) -> Result<Position, Fault> {
        let (partition, row) = halves(found, &mut self.buffer)?;
        Ok(Position::before(partition, row))
    }
}

/// Both halves of the key of a row that starts with its columns.
fn halves<'a>(
    row: &tokio_postgres::Row,
    buffer: &'a mut Vec<u8>,
) -> Result<(&'a str, &'a str), Fault> {
    let found = key::split(row.get(0), row.get(1), row.get(2), buffer);
    Ok(found.ok_or_else(|| StoreError::Corrupt("a key is none".to_owned()))?)
}

/// The rows of a range in their order, at most so many. The first parameter is the table.
fn from(
    source: Source<'_>,
    range: &KeyRange,
    direction: Direction,
    limit: i64,
    parameters: &mut Parameters,
) -> String {
    let within = within("e", source, range, parameters);
    format!("{within} ORDER BY {} LIMIT {limit}", order("e", direction))
}

/// The rows of a range under this name, in any order. The first parameter is the table.
fn within(row: &str, source: Source<'_>, range: &KeyRange, parameters: &mut Parameters) -> String {
    parameters.push(source.number, Type::INT8);
    let mut place = |position: &DbPosition| {
        let prefix = parameters.push(position.prefix.clone(), Type::BYTEA);
        let rest = parameters.push(position.rest.clone(), Type::BYTEA);
        format!("({prefix}, {rest})")
    };
    let start = place(&DbPosition::new(&range.start));
    let end = place(&range.end.as_ref().map_or_else(DbPosition::end, DbPosition::new));
    let home = match key::partition(range) {
        Some(partition) => {
            let home = key::home(source.id, source.placement, partition);
            format!("AND {row}.dk = {}", parameters.push(home, Type::INT8))
        }
        None => String::new(),
    };
    format!(
        "FROM rowhouse.entities {row} WHERE {row}.tid = $1 {home}
         AND ({row}.kp, {row}.rest) >= {start} AND ({row}.kp, {row}.rest) < {end} AND {LIVE}"
    )
}

/// The order of keys, for rows of this name.
fn order(row: &str, direction: Direction) -> String {
    match direction {
        Direction::Ascending => format!("{row}.kp, {row}.rest"),
        Direction::Descending => format!("{row}.kp DESC, {row}.rest DESC"),
    }
}
