//! How much there is to read, as far as anybody wants to know. Nothing outside the ranges is counted.

use super::{LIVE, Source, through, walk};
use crate::fault::Fault;
use crate::filter::Parameters;
use crate::index::lookup::{self, Arm, Through};
use crate::key;
use crate::pool::Session;
use rowhouse_store::Extent;
use rowhouse_types::{Direction, KeyRange};
use tokio_postgres::types::Type;

/// Ranges that are asked for one by one; of more, points count as one entity each and entries are asked for in all of them at
/// once.
const RANGES_MAX: usize = 16;

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
            let together = if ranges.len() > RANGES_MAX { ranges.len() } else { 1 };
            let mut sum = 0;
            for arm in through.arms() {
                for ranges in ranges.chunks(together) {
                    if bound <= sum {
                        return Ok(bound);
                    }
                    sum += of_entries(session, source, *arm, ranges, bound - sum).await?;
                }
            }
            Ok(sum.min(bound))
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

/// Entries of a span in the ranges of keys.
async fn of_entries(
    session: &Session,
    source: Source<'_>,
    arm: Arm<'_>,
    ranges: &[KeyRange],
    bound: u64,
) -> Result<u64, Fault> {
    let mut parameters = Parameters::default();
    parameters.push(source.number, Type::INT8);
    let condition = arm.condition(&mut parameters);
    let within = match (ranges.first(), ranges.last()) {
        (Some(first), Some(last)) if ranges.len() > 1 => {
            // From the first to the last is what the database can seek.
            let hull = KeyRange { start: first.start.clone(), end: last.end.clone() };
            let hull = lookup::within(source, &hull, &mut parameters);
            format!("{hull} {}", walk::within(source, ranges, &mut parameters))
        }
        _ => walk::within(source, ranges, &mut parameters),
    };
    let sql = format!(
        "SELECT 1 FROM rowhouse.index_entries x WHERE {condition} {within} AND {LIVE} LIMIT {}",
        number(bound)
    );
    count(session, &sql, &parameters).await
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
