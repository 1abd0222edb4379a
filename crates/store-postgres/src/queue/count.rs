//! How many messages a queue has, without reading all of them.
//!
//! Up to a number that is read in no time they are counted. Of a queue with more, a few are read in each of many equal parts of
//! the ids, which are random: how far apart they are tells how many the part has. What chance may hide is added, so it is never
//! fewer than there are, but with a probability below one in a million; and a little more, as a rule. Messages that have expired
//! and wait to be swept are counted then.
//!
//! Parts, because ids are not spread evenly once a queue is cleared in the order of its ids, and filled again meanwhile: within
//! each they are, but for the one where clearing stopped.

use super::{LIVE, NOW, Now, number};
use crate::fault::Fault;
use crate::pool::Session;
use rowhouse_store::{Conflict, QueueId};
use std::sync::LazyLock;

/// Messages that are counted.
const EXACT: i64 = 100_000;
/// Parts of the ids, by their first byte.
const PARTS: u8 = 64;
/// Messages that are read of a part.
const OF_PART: i64 = 500;
/// Standard deviations that are added.
const MARGIN: f64 = 5.0;

static COUNT: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT c.rows, c.living FROM (SELECT q.qid FROM {LIVE}) AS q LEFT JOIN (
             SELECT count(*) AS rows, count(*) FILTER (WHERE i.expires > {NOW}) AS living FROM (
                 SELECT m.expires FROM rowhouse.messages m WHERE m.qid = $1 ORDER BY m.id LIMIT $3
             ) AS i
         ) AS c ON true"
    )
});
/// How many there are from an id on, and the beginning of the last one as a number.
const PART: &str =
    "SELECT count(*), max(('x' || encode(substring(i.id FROM 1 FOR 7), 'hex'))::bit(56)::bigint)
    FROM (
        SELECT m.id FROM rowhouse.messages m WHERE m.qid = $1 AND m.id >= $2 AND m.id < $3
        ORDER BY m.id LIMIT $4
    ) AS i";

/// How many messages there are, visible or not; never fewer.
pub(crate) async fn count(session: &Session, queue: QueueId, now: Now) -> Result<u64, Fault> {
    let row = session.row(&COUNT, &[&number(queue), &now.0, &EXACT]).await?;
    let row = row.ok_or(Conflict::QueueNotFound)?;
    if row.get::<_, i64>(0) < EXACT {
        return Ok(row.get::<_, i64>(1).unsigned_abs());
    }
    let mut parts = Vec::with_capacity(usize::from(PARTS));
    for part in 0..PARTS {
        parts.push(estimate(session, number(queue), part).await?);
    }
    Ok(never_fewer(&parts))
}

/// About how many messages a part has.
async fn estimate(session: &Session, queue: i64, part: u8) -> Result<f64, Fault> {
    let width = u8::MAX / PARTS + 1;
    let first = part * width;
    // Behind every id if it is the last part.
    let end = first.checked_add(width).map_or(vec![u8::MAX; 17], |end| vec![end]);
    let from = vec![first];
    let values: crate::pool::Values<'_> = &[&queue, &from, &end, &OF_PART];
    let row = session.row(PART, values).await?.ok_or(Fault::Unmet)?;
    let (rows, last): (i64, Option<i64>) = (row.get(0), row.get(1));
    let beginning = i64::from(first) << 48;
    Ok(match last {
        Some(last) if rows == OF_PART => extrapolated(last - beginning, i64::from(width) << 48),
        _ => float(rows),
    })
}

/// As many as a part has if those that were read reach so far into it.
fn extrapolated(reach: i64, width: i64) -> f64 {
    float(OF_PART) * float(width) / float(reach + 1)
}

/// All parts together: with what chance may hide, and what the one may have more where clearing stopped.
fn never_fewer(parts: &[f64]) -> u64 {
    let (sum, largest) = (parts.iter().sum::<f64>(), parts.iter().copied().fold(0.0, f64::max));
    let read = float(OF_PART) * f64::from(PARTS);
    let count = sum * (1.0 + MARGIN / read.sqrt()) + largest;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is positive, and more than a number can hold saturates"
    )]
    let count = count.ceil() as u64;
    count
}

#[expect(clippy::cast_precision_loss, reason = "an estimate needs few digits")]
fn float(number: i64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_more_by_a_few_percent() {
        let even = [10_000.0; 64];
        assert_eq!(never_fewer(&even), 667_889);
        assert!((extrapolated((1 << 40) - 1, 1 << 44) - 8000.0).abs() < f64::EPSILON);
    }
}
