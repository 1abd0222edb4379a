//! Messages that have expired: removed in small steps.

use super::{NOW, Now};
use crate::fault::Fault;
use crate::pool::Session;
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// In the order in which they expired. The second condition is that of the index.
const EXPIRED: &str = "SELECT m.qid, m.id FROM rowhouse.messages m
    WHERE m.expires <= coalesce($1::bigint, rowhouse.clock()) AND m.expires < 3155378975999999999
    ORDER BY m.expires LIMIT $2";
/// One that somebody has in hand is left for the next time.
static REMOVE: LazyLock<String> = LazyLock::new(|| {
    format!(
        "DELETE FROM rowhouse.messages m WHERE m.qid = $1 AND m.id = ANY(ARRAY(
             SELECT e.id FROM rowhouse.messages e WHERE e.qid = $1 AND e.id = ANY($3) AND e.expires <= {NOW}
             FOR UPDATE SKIP LOCKED
         ))"
    )
});

/// Removes messages that have expired, at most so many; how many it was.
pub(crate) async fn remove(session: &Session, now: Now, most: i64) -> Result<u64, Fault> {
    let mut expired: BTreeMap<i64, Vec<&[u8]>> = BTreeMap::new();
    let rows = session.rows(EXPIRED, &[&now.0, &most]).await?;
    for row in &rows {
        expired.entry(row.get(0)).or_default().push(row.get(1));
    }
    let mut removed = 0;
    for (queue, ids) in expired {
        removed += session.execute(&REMOVE, &[&queue, &now.0, &ids]).await?;
    }
    Ok(removed)
}
