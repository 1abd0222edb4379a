//! Messages that are gone for everybody are deleted a few at a time; run by the committer.

use super::ticks;
use crate::committer::Fault;
use crate::entity::remove_large;
use crate::jobs::Answer;
use crate::tuning::Tuning;
use rowhouse_types::Timestamp;
use rusqlite::{Connection, params};
use std::collections::BTreeMap;

/// Messages are deleted so many seconds after they expired: a clock that was a little ahead when the store was opened deletes none.
const GRACE_SECONDS: u64 = 60;

pub(crate) const PILE: &str = "SELECT number, pile, CASE typeof(text) WHEN 'integer' THEN text END
    FROM messages WHERE pile = ?1 ORDER BY visible, place";
pub(crate) const EXPIRED: &str =
    "SELECT number, pile, CASE typeof(text) WHEN 'integer' THEN text END
    FROM messages WHERE expires <= ?1 ORDER BY expires";

/// Deletes the first messages of a pile that nobody needs; true if none are left.
pub(crate) fn delete_pile(conn: &Connection, pile: i64, tuning: &Tuning) -> Result<bool, Fault> {
    let (finished, _) = delete(conn, PILE, pile, tuning)?;
    if finished {
        conn.prepare_cached("DELETE FROM dropped_piles WHERE pile = ?1")?.execute([pile])?;
    }
    Ok(finished)
}

/// Deletes messages that have expired a while ago, those that did first.
pub(crate) fn expire(conn: &Connection, now: Timestamp, tuning: &Tuning) -> Result<Answer, Fault> {
    let grace = ticks(Timestamp::default().plus_seconds(GRACE_SECONDS));
    let (finished, deleted) = delete(conn, EXPIRED, ticks(now) - grace, tuning)?;
    let mut count =
        conn.prepare_cached("UPDATE queues SET messages = messages - ?2 WHERE pile = ?1")?;
    for (pile, messages) in deleted {
        count.execute(params![pile, messages])?;
    }
    Ok(Answer::Swept { finished })
}

/// Deletes the first messages that a statement names. Whether they were all, and how many of each pile.
fn delete(
    conn: &Connection,
    sql: &str,
    key: i64,
    tuning: &Tuning,
) -> Result<(bool, BTreeMap<i64, i64>), Fault> {
    let (mut numbers, mut bytes) = (Vec::new(), 0);
    let mut piles = BTreeMap::new();
    {
        let mut select = conn.prepare_cached(sql)?;
        let mut rows = select.query([key])?;
        while numbers.len() < tuning.sweep_rows && bytes < tuning.sweep_bytes {
            let Some(row) = rows.next()? else { break };
            numbers.push(row.get::<_, i64>(0)?);
            *piles.entry(row.get(1)?).or_insert(0) += 1;
            if let Some(large) = row.get(2)? {
                bytes += remove_large(conn, large)?;
            }
        }
    }
    let mut delete = conn.prepare_cached("DELETE FROM messages WHERE number = ?1")?;
    for number in &numbers {
        delete.execute([number])?;
    }
    Ok((numbers.len() < tuning.sweep_rows && bytes < tuning.sweep_bytes, piles))
}
