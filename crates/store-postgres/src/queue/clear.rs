//! Clearing a queue that may have any number of messages: in steps that each end soon, and then what is left at once.
//!
//! One statement that deletes millions of rows takes longer than a write may, so it would be undone, and so would the next. A
//! step passes over what others have in hand, and never goes back: what was put behind it is left to the last statement, with which
//! the queue is empty.

use super::number;
use crate::fault::Fault;
use crate::load::Kind;
use crate::nodes::Nodes;
use rowhouse_store::{MessageAction, MessageCommand};

/// Messages that a step deletes. Fewer are left to the last statement, so a queue that is not large is cleared at one moment.
const STEP: i64 = 5000;

const SOME: &str = "WITH next AS (
        SELECT m.id FROM rowhouse.messages m WHERE m.qid = $1 AND m.id > $2
        ORDER BY m.id LIMIT $3 FOR UPDATE SKIP LOCKED
    ), chosen AS (
        SELECT array_agg(next.id ORDER BY next.id) AS ids, count(*) AS count FROM next
    ), gone AS (
        DELETE FROM rowhouse.messages m USING chosen
        WHERE m.qid = $1 AND m.id = ANY(chosen.ids) AND chosen.count = $3
    )
    SELECT chosen.ids[chosen.count], chosen.count FROM chosen";

/// How far the messages of a queue are deleted.
pub(crate) struct Place {
    queue: i64,
    /// The id of the last one.
    last: Vec<u8>,
}

/// Where to begin, if these commands do nothing but clear a queue: others are one moment with it, whatever it takes.
pub(crate) fn begin(is_alone: bool, messages: &[MessageCommand]) -> Option<Place> {
    match messages {
        [MessageCommand { queue, action: MessageAction::Clear }] if is_alone => {
            Some(Place { queue: number(*queue), last: Vec::new() })
        }
        _ => None,
    }
}

/// One step; none if the statement that clears has little left to do.
pub(crate) async fn step(nodes: &Nodes, place: Place) -> Result<Option<Place>, Fault> {
    let Place { queue, last } = place;
    let (session, meter) = nodes.session_at(queue, Kind::Write).await?;
    let row = session.row(SOME, &[&queue, &last, &STEP]).await?.ok_or(Fault::Unmet)?;
    meter.answered(1);
    let count: i64 = row.get(1);
    Ok((count == STEP).then(|| Place { queue, last: row.get(0) }))
}
