//! How much there is to read, as far as anybody wants to know.

use super::{LIVE, Source, through};
use crate::fault::Fault;
use crate::filter::Parameters;
use crate::index::lookup::{self, Arm, Through};
use crate::key;
use crate::pool::Session;
use rowhouse_store::Extent;
use rowhouse_types::{Direction, KeyRange};
use tokio_postgres::types::Type;

/// Ranges that are asked for one by one; of more, points count as one entity each and entries are asked for from the
/// first range to the last.
const RANGES_MAX: usize = 16;
/// Entries of a span that are looked at to see how many are in a range of keys, at least.
const LOOK_AT: u64 = 1000;

/// How many entities or entries there are, no further than the bound.
pub(crate) async fn weigh(
    session: &Session,
    source: Source<'_>,
    extent: &Extent,
    bound: u64,
) -> Result<u64, Fault> {
    match extent {
        Extent::Keys(ranges) => of_keys(session, source, ranges, bound).await,
        Extent::Entries(parts, ranges) => {
            lookup::ready(session, source, &through::indexes(parts)).await?;
            let through = Through::new(parts);
            let hull;
            let ranges = match (ranges.first(), ranges.last()) {
                (Some(first), Some(last)) if ranges.len() > RANGES_MAX => {
                    hull = [KeyRange { start: first.start.clone(), end: last.end.clone() }];
                    &hull[..]
                }
                _ => &ranges[..],
            };
            of_entries(session, source, &through, ranges, bound).await
        }
    }
}

async fn of_keys(
    session: &Session,
    source: Source<'_>,
    ranges: &[KeyRange],
    bound: u64,
) -> Result<u64, Fault> {
    let mut sum = 0;
    for range in ranges {
        if bound <= sum {
            break;
        }
        if ranges.len() > RANGES_MAX && key::point(range).is_some() {
            sum += 1;
            continue;
        }
        let mut parameters = Parameters::default();
        let limit = number(bound - sum);
        let from = super::from(source, range, Direction::Ascending, limit, &mut parameters);
        sum += count(session, &format!("SELECT 1 {from}"), &parameters).await?;
    }
    Ok(sum.min(bound))
}

async fn of_entries(
    session: &Session,
    source: Source<'_>,
    through: &Through<'_>,
    ranges: &[KeyRange],
    bound: u64,
) -> Result<u64, Fault> {
    let mut sum = 0;
    for arm in through.arms() {
        for range in ranges {
            if bound <= sum {
                return Ok(bound);
            }
            let left = bound - sum;
            sum += if arm.span.single().is_some() || *range == KeyRange::all() {
                seek(session, source, *arm, range, left).await?
            } else {
                look_through(session, source, *arm, range, left).await?
            };
        }
    }
    Ok(sum.min(bound))
}

/// Entries in the range of keys, where that is found without looking at others.
async fn seek(
    session: &Session,
    source: Source<'_>,
    arm: Arm<'_>,
    range: &KeyRange,
    bound: u64,
) -> Result<u64, Fault> {
    let mut parameters = Parameters::default();
    parameters.push(source.number, Type::INT8);
    let condition = arm.condition(&mut parameters);
    let within = lookup::within(source, range, &mut parameters);
    let sql = format!(
        "SELECT 1 FROM rowhouse.index_entries x WHERE {condition} {within} AND {LIVE} LIMIT {}",
        number(bound)
    );
    count(session, &sql, &parameters).await
}

/// Entries in the range of keys, where all of the span have to be looked at: if those are too many, the bound.
async fn look_through(
    session: &Session,
    source: Source<'_>,
    arm: Arm<'_>,
    range: &KeyRange,
    bound: u64,
) -> Result<u64, Fault> {
    let most = bound.max(LOOK_AT);
    let mut parameters = Parameters::default();
    parameters.push(source.number, Type::INT8);
    let condition = arm.condition(&mut parameters);
    let within = lookup::within(source, range, &mut parameters);
    let sql = format!(
        "SELECT (true {within}) AS inside FROM (
            SELECT x.dk, x.kp, x.rest FROM rowhouse.index_entries x WHERE {condition} AND {LIVE} LIMIT {}
         ) AS x",
        number(most)
    );
    let sql = format!("SELECT count(*) FILTER (WHERE inside), count(*) FROM ({sql}) AS found");
    let rows = session.rows_once(&sql, &parameters.typed()).await?;
    let (inside, all): (i64, i64) = rows.first().map_or((0, 0), |row| (row.get(0), row.get(1)));
    Ok(if all.unsigned_abs() >= most { bound } else { inside.unsigned_abs().min(bound) })
}

/// How many rows the query has.
async fn count(session: &Session, query: &str, parameters: &Parameters) -> Result<u64, Fault> {
    let sql = format!("SELECT count(*) FROM ({query}) AS found");
    let rows = session.rows_once(&sql, &parameters.typed()).await?;
    let counted: i64 = rows.first().map_or(0, |row| row.get(0));
    Ok(counted.unsigned_abs())
}

fn number(bound: u64) -> i64 {
    i64::try_from(bound).unwrap_or(i64::MAX)
}
