//! Verifies queues and their messages.

use super::{expiry, message, ticks};
use crate::catalogue::{Catalogue, LoadError};
use crate::schema::Marks;
use crate::sweep::Chore;
use rowhouse_store::{Message, QueueId};
use rowhouse_types::limits;
use rusqlite::{Connection, Row};
use std::collections::BTreeMap;

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) queues: u64,
    pub(crate) messages: u64,
    /// Rows of `large` that belong to texts.
    pub(crate) large: u64,
    pub(crate) problems: Vec<String>,
}

/// A queue and how many of its messages were seen.
struct Pile {
    queue: QueueId,
    said: i64,
    seen: i64,
}

/// Reads every queue and every message once.
pub(crate) fn check(
    conn: &Connection,
    catalogue: &Catalogue,
    dropped: &[Chore],
    marks: Marks,
) -> Result<Found, LoadError> {
    let mut found = Found::default();
    let mut piles = BTreeMap::new();
    let mut statement = conn.prepare("SELECT id, pile, messages FROM queues ORDER BY id")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let queue = QueueId(row.get::<_, i64>(0)?.cast_unsigned());
        let (pile, said): (i64, i64) = (row.get(1)?, row.get(2)?);
        found.queues += 1;
        if marks.last_queue < queue.0 || marks.last_pile.cast_signed() < pile {
            found.problems.push(format!("{}: its id was never given out", name(catalogue, queue)));
        }
        if catalogue
            .queue_by_id(queue)
            .is_none_or(|queue| catalogue.account_by_id(queue.account).is_none())
        {
            found.problems.push(format!("queue {} belongs to no account", queue.0));
        }
        let policies = catalogue.queue_by_id(queue).map_or(0, |queue| queue.policies.len());
        if limits::POLICIES_MAX < policies {
            let name = name(catalogue, queue);
            found.problems.push(format!("{name}: it has too many access policies"));
        }
        piles.insert(pile, Pile { queue, said, seen: 0 });
    }
    let mut statement = conn.prepare(
        "SELECT pile, place, number, id, inserted, expires, visible, taken, receipt, text
         FROM messages ORDER BY number",
    )?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let pile: i64 = row.get(0)?;
        found.large += u64::from(row.get_ref(9)?.as_i64().is_ok());
        let name = match piles.get_mut(&pile) {
            Some(pile) => {
                pile.seen += 1;
                name(catalogue, pile.queue)
            }
            None if dropped.contains(&Chore::Messages(pile)) => continue,
            None => {
                found.problems.push(format!("a message belongs to no queue (pile {pile})"));
                continue;
            }
        };
        found.messages += 1;
        let problem = match message(conn, row, 3) {
            Ok(message) => problem(row, &message, marks)?,
            Err(fault) => Some(fault.into_store_error().to_string()),
        };
        if let Some(problem) = problem {
            let number: i64 = row.get(2)?;
            found.problems.push(format!("{name}, message number {number}: {problem}"));
        }
    }
    for pile in piles.values().filter(|pile| pile.said != pile.seen) {
        let (name, said, seen) = (name(catalogue, pile.queue), pile.said, pile.seen);
        found.problems.push(format!("{name}: it says that it has {said} messages and has {seen}"));
    }
    Ok(found)
}

/// What is wrong with a message, if anything.
fn problem(row: &Row<'_>, message: &Message, marks: Marks) -> Result<Option<String>, LoadError> {
    let (place, number): (i64, i64) = (row.get(1)?, row.get(2)?);
    let last = marks.last_place.cast_signed();
    Ok(if last < place || last < number {
        Some("its place was never given out".into())
    } else if marks.tick < message.receipt {
        Some("its receipt was never given out".into())
    } else if limits::MESSAGE_BYTES_MAX < message.text.len() {
        Some("its text is too long".into())
    } else if expiry(message.expires).is_some_and(|expires| expires < ticks(message.inserted)) {
        Some("it expired before it was put".into())
    } else {
        None
    })
}

fn name(catalogue: &Catalogue, queue: QueueId) -> String {
    match catalogue.queue_by_id(queue) {
        Some(queue) => format!("queue {}", queue.name),
        None => format!("queue {}", queue.0),
    }
}
