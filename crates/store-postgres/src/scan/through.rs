//! Pages that are read through indexes: in the order of keys, each entity once.
//!
//! Where the entries have to be sorted first, all of them are walked. If that takes half of the page's time, the ranges
//! are read in the order of keys instead, and whether an entity has such an entry is judged here: every page
//! makes progress.

use super::{Cut, Draft, LIVE, Left, SNAPSHOT, Source, Step, steps};
use crate::fault::Fault;
use crate::filter::Parameters;
use crate::index::lookup::{self, Members, Ready, Through};
use crate::pool::Session;
use futures_util::TryStreamExt as _;
use rowhouse_query::Filter;
use rowhouse_store::{Expiry, Lookup, Page, Scan};
use rowhouse_types::{KeyRange, Row};
use std::pin::pin;
use std::time::{Duration, Instant};

/// With less time than this, no entries are sorted; and it is given no more than that.
const LEAST_TIME: Duration = Duration::from_millis(100);
const MOST_TIME: Duration = Duration::from_secs(30);

/// Reads one page.
pub(super) async fn page(
    session: &Session,
    source: Source<'_>,
    scan: &Scan,
    parts: &[Lookup],
) -> Result<Page, Fault> {
    let through = Through::new(parts);
    let left = scan.deadline.saturating_duration_since(Instant::now());
    let sorted = through.is_sorted();
    let in_time = sorted || LEAST_TIME < left;
    let begin = if sorted || !in_time {
        SNAPSHOT.to_owned()
    } else {
        let half = (left / 2).min(MOST_TIME).as_millis();
        format!("{SNAPSHOT}; SET LOCAL statement_timeout = {half}")
    };
    session.begin(&begin).await?;
    let mut draft = Draft::new(scan);
    draft.through = Some(&through);
    let indexes = indexes(parts);
    let ready = lookup::ready(session, source, &indexes);
    let (ready, unread) = if sorted {
        // Sent together, answered one after the other.
        let run = draft.run_all(session, source, all(scan, &through));
        tokio::join!(biased; ready, run)
    } else {
        let ready = ready.await;
        let unread = if ready.is_ok() && in_time {
            draft.run_all(session, source, all(scan, &through)).await
        } else {
            Err(Fault::Unmet)
        };
        (ready, unread)
    };
    let ready = match ready {
        Ok(ready) => ready,
        Err(fault) => {
            session.roll_back().await;
            return Err(fault);
        }
    };
    match unread {
        Ok(unread) => {
            if !unread {
                session.end("COMMIT").await?;
            }
            Ok(draft.page)
        }
        // There was no time, or too little.
        Err(Fault::Cancelled(_) | Fault::Unmet) if !sorted => {
            session.roll_back().await;
            in_key_order(session, source, scan, &through, &ready).await
        }
        Err(fault) => Err(fault),
    }
}

/// What there is to do; nothing if there is no entry to look at.
pub(super) fn all<'a>(scan: &'a Scan, through: &Through<'_>) -> Vec<Step<'a>> {
    if through.arms().is_empty() { Vec::new() } else { steps(scan) }
}

/// Without the entries.
async fn in_key_order(
    session: &Session,
    source: Source<'_>,
    scan: &Scan,
    through: &Through<'_>,
    ready: &Ready,
) -> Result<Page, Fault> {
    let members = Members::new(through, ready);
    let mut draft = Draft::new(scan);
    draft.members = Some(&members);
    session.begin(SNAPSHOT).await?;
    if !draft.run_all(session, source, steps(scan)).await? {
        session.end("COMMIT").await?;
    }
    Ok(draft.page)
}

pub(super) fn indexes(parts: &[Lookup]) -> Vec<i64> {
    let mut indexes: Vec<i64> = parts.iter().map(|part| lookup::number(part.index)).collect();
    indexes.sort_unstable();
    indexes.dedup();
    indexes
}

/// A statement on entities `e` that are found by entries `x`: `kp, rest, pl, ts, names, props, hit`, and one column more.
/// Whether no row that it calls a hit needs to be judged again.
pub(super) fn judged(
    from: &str,
    more: &str,
    (filter, expiry): (Option<&Filter>, Option<Expiry<'_>>),
    counts: bool,
    parameters: &mut Parameters,
) -> (String, bool) {
    if filter.is_none() && expiry.is_none() {
        let props = if counts { "NULL::jsonb" } else { "e.props" };
        let columns = "e.kp, e.rest, e.pl, e.ts, e.names";
        return (format!("SELECT {columns}, {props}, true, {more} {from}"), true);
    }
    let condition = crate::filter::wanted(filter, expiry, parameters);
    let hit = &condition.sql;
    // As for every filter: unpacked once, and after the rows are in order.
    let props = if hit.contains("i.props") { "s.props || '{}' AS props" } else { "s.props" };
    let wanted = if counts && condition.exact { "false" } else { "hit" };
    let sql = format!(
        "SELECT kp, rest, pl, ts, names, CASE WHEN {wanted} THEN props END, hit, more
         FROM (SELECT i.*, row_number() OVER () AS n, {hit} AS hit
            FROM (SELECT s.kp, s.rest, s.pl, s.ts, s.names, {props}, s.more FROM (
                SELECT e.kp, e.rest, e.pl, e.ts, e.names, e.props, {more} AS more {from}
            ) AS s OFFSET 0) AS i) AS judged"
    );
    (sql, condition.exact)
}

impl Draft<'_> {
    /// How many entries have to be sorted.
    pub(super) async fn walked(
        &mut self,
        session: &Session,
        source: Source<'_>,
        through: &Through<'_>,
        range: &KeyRange,
    ) -> Result<(), Fault> {
        let mut parameters = Parameters::default();
        let sql = through.count(source, range, &mut parameters);
        let rows = session.rows_once(&sql, &parameters.typed()).await?;
        let walked: i64 = rows.first().map_or(0, |row| row.get(0));
        self.page.examined += walked.unsigned_abs();
        Ok(())
    }

    /// Judges the filter on so many entities that are found by their entries; one more says where to go on.
    pub(super) async fn chunk_through(
        &mut self,
        session: &Session,
        source: Source<'_>,
        through: &Through<'_>,
        range: &KeyRange,
        rows: i64,
    ) -> Result<Left, Fault> {
        let mut parameters = Parameters::default();
        let direction = self.scan.direction;
        let (from, entries) =
            through.from(source, range, direction, rows + 1, LIVE, &mut parameters);
        let wanted = (self.scan.filter.as_deref(), source.expiry);
        let (mut sql, exact) = judged(&from, entries, wanted, self.counts(), &mut parameters);
        let cut = self.cut(exact);
        if let Some(cut) = &cut {
            sql = cut.apply(&sql, ", hit, more", &mut parameters);
        }
        let sorted = through.is_sorted();
        let stream = session.client().query_typed_raw(&sql, parameters.typed()).await?;
        let mut stream = pin!(stream);
        let mut read = 0;
        while let Some(found) = stream.try_next().await? {
            read += 1;
            if read > rows {
                return Ok(Left::More(self.position(&found)?));
            }
            let (hit, entries): (bool, i64) = (found.get(6), found.get(7));
            if sorted {
                self.page.examined += entries.unsigned_abs();
            }
            if !hit || (!exact && !self.satisfies(&found, cut.as_ref())?) {
                continue;
            }
            if self.is_full() {
                self.page.next = Some(self.position(&found)?);
                return Ok(Left::Complete);
            }
            if self.counts() {
                self.page.counted += 1;
            } else {
                self.push(&found, cut.as_ref())?;
            }
        }
        Ok(Left::Exhausted)
    }

    /// Judges the filter without the database.
    fn satisfies(
        &mut self,
        found: &tokio_postgres::Row,
        cut: Option<&Cut<'_>>,
    ) -> Result<bool, Fault> {
        let (partition, row) = super::halves(found, &mut self.buffer)?;
        let record = super::cut::record(found, cut)?;
        let candidate = Row { partition, row, record: record.as_ref() };
        let filter = self.scan.filter.as_ref();
        Ok(filter.map_or(Ok(true), |filter| filter.matches(&candidate))?)
    }
}
