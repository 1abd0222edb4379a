//! Reads of messages: the next ones, and all of them page by page.

use super::{LIVE, NOW, Now, columns_of, instant, message, number, ticks};
use crate::fault::Fault;
use crate::pool::Session;
use rowhouse_store::{Conflict, Message, MessagePage, MessagePlace, QueueId};
use std::sync::LazyLock;

/// A row without a message if there is just the queue, and none if there is no queue.
static PEEK: LazyLock<String> = LazyLock::new(|| {
    let columns = columns_of("m");
    format!(
        "SELECT {columns} FROM (SELECT q.qid FROM {LIVE}) AS q LEFT JOIN (
             SELECT * FROM rowhouse.messages m
             WHERE m.qid = $1 AND m.qid + 0 = $1 AND m.visible <= {NOW} AND m.expires > {NOW}
             ORDER BY m.visible, m.seq LIMIT $3
         ) AS m ON true ORDER BY m.visible, m.seq"
    )
});
/// One row more than fits, without its text: the place where the next page starts.
static PAGE: LazyLock<String> = LazyLock::new(|| {
    let columns = columns_of("p").replace("p.text", "CASE WHEN p.fits THEN p.text END");
    format!(
        "SELECT {columns}, p.seq, p.fits FROM (SELECT q.qid FROM {LIVE}) AS q LEFT JOIN (
             SELECT f.*, lag(f.fits, 1, true) OVER (ORDER BY f.n) AS shown FROM (
                 SELECT s.*, s.n = 1 OR s.n <= $5 AND s.bytes - octet_length(s.text) < $6 AS fits FROM (
                     SELECT i.*, row_number() OVER (ORDER BY i.visible, i.seq) AS n,
                         sum(octet_length(i.text)) OVER (ORDER BY i.visible, i.seq) AS bytes
                     FROM (
                         SELECT * FROM rowhouse.messages m
                         WHERE m.qid = $1 AND m.qid + 0 = $1 AND m.expires > {NOW}
                             AND (m.visible, m.seq) >= ($3, $4)
                         ORDER BY m.visible, m.seq LIMIT $5::bigint + 1
                     ) AS i
                 ) AS s
             ) AS f
         ) AS p ON p.shown ORDER BY p.n"
    )
});

/// The messages that would be taken next.
pub(crate) async fn peek(
    session: &Session,
    queue: QueueId,
    limit: usize,
    now: Now,
) -> Result<Vec<Message>, Fault> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = session.rows(&PEEK, &[&number(queue), &now.0, &limit]).await?;
    let first = rows.first().ok_or(Conflict::QueueNotFound)?;
    if first.get::<_, Option<&[u8]>>(0).is_none() {
        return Ok(Vec::new());
    }
    rows.iter().map(|row| message(row, 0)).collect()
}

/// Messages from a place on, in the order of their places.
pub(crate) async fn page(
    session: &Session,
    queue: QueueId,
    from: Option<MessagePlace>,
    (limit, max_bytes): (usize, usize),
    now: Now,
) -> Result<MessagePage, Fault> {
    let place =
        |MessagePlace(visible, seq)| (ticks(visible), i64::try_from(seq).unwrap_or(i64::MAX));
    let (visible, seq) = from.map_or((0, 0), place);
    let limit = i64::try_from(limit).unwrap_or(i64::MAX).clamp(1, ROWS_MAX);
    let max_bytes = i64::try_from(max_bytes).unwrap_or(i64::MAX);
    let values: crate::pool::Values<'_> =
        &[&number(queue), &now.0, &visible, &seq, &limit, &max_bytes];
    let rows = session.rows(&PAGE, values).await?;
    let mut page = MessagePage::default();
    for row in &rows {
        match row.get::<_, Option<bool>>(8) {
            None => {}
            Some(true) => page.messages.push(message(row, 0)?),
            Some(false) => {
                let seq: i64 = row.get(7);
                page.next = Some(MessagePlace(instant(row.get(4))?, seq.unsigned_abs()));
            }
        }
    }
    if rows.is_empty() { Err(Conflict::QueueNotFound.into()) } else { Ok(page) }
}

/// Messages of a page at most.
const ROWS_MAX: i64 = 16 * 1024;
