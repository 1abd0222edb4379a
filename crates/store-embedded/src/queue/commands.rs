//! Changes of messages, run by the committer in the transaction of their batch.
//!
//! A command that is refused has written nothing: it looks first, and writes when nothing can be wrong any more.

use super::{Place, declare, expiry, is_dead, message, store_text, ticks};
use crate::change::Draft;
use crate::committer::Fault;
use crate::entity::remove_large;
use crate::queue::dead::Dead;
use rowhouse_store::{Batch, Conflict, Message, MessageAction, MessageCommand};
use rowhouse_types::{Guid, Timestamp};
use rusqlite::types::ToSqlOutput;
use rusqlite::{Connection, OptionalExtension, params};

/// Most expired messages that a take deletes on its way: it has the pages in its hands.
const DEAD_MAX: usize = 64;

const PILE: &str = "SELECT pile FROM queues WHERE id = ?1";
const COUNT: &str = "UPDATE queues SET messages = messages + ?2 WHERE id = ?1";
const INSERT: &str = "INSERT INTO messages
    (number, pile, id, inserted, expires, visible, place, taken, receipt, text)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?1, ?7, ?8, ?9)";
/// What is visible, in order; from the index alone, so that nothing else is read of messages that have expired.
pub(crate) const VISIBLE: &str = "SELECT number, visible, place, expires FROM messages
    WHERE pile = ?1 AND (visible, place) >= (?2, ?3) AND visible <= ?4 ORDER BY visible, place";
pub(super) const ONE: &str = "SELECT id, inserted, expires, visible, taken, receipt, text
    FROM messages WHERE number = ?1";
pub(crate) const HELD: &str = "SELECT number, id, inserted, expires, visible, taken, receipt, text
    FROM messages WHERE pile = ?1 AND receipt = ?2 AND id = ?3";
pub(crate) const HELD_NUMBER: &str = "SELECT number, expires FROM messages
    WHERE pile = ?1 AND receipt = ?2 AND id = ?3";
const MOVE: &str = "UPDATE messages SET visible = ?2, place = ?3, taken = ?4, receipt = ?5
    WHERE number = ?1";
const RETEXT: &str = "UPDATE messages SET text = ?2 WHERE number = ?1";
const LARGE: &str = "SELECT CASE typeof(text) WHEN 'integer' THEN text END FROM messages
    WHERE number = ?1";
const DELETE: &str = "DELETE FROM messages WHERE number = ?1";
const CLEAR: &str = "UPDATE queues SET pile = ?2, messages = 0 WHERE id = ?1";

/// Whether a batch only takes messages: it may stop on its way and be run again.
pub(crate) fn lone_take(batch: &Batch) -> bool {
    let takes = |command: &MessageCommand| matches!(command.action, MessageAction::Take { .. });
    batch.commands.is_empty() && matches!(&*batch.messages, [one] if takes(one))
}

/// The transaction of a batch.
pub(crate) struct Messages<'a> {
    conn: &'a Connection,
    dead: &'a Dead,
    draft: &'a mut Draft,
    /// The time of queues.
    tick: Timestamp,
    /// Expired messages that a take may walk over.
    walk: usize,
    /// What the commands have to tell.
    pub(crate) told: Vec<Message>,
    /// The latest receipt that was restored.
    pub(crate) restored: Timestamp,
    /// Up to where all messages of a pile are dead, if the batch succeeds.
    pub(crate) reached: Vec<(i64, Place)>,
    /// A take has walked so far and found nothing that lives.
    pub(crate) unfinished: bool,
}

impl<'a> Messages<'a> {
    pub(crate) fn new(
        conn: &'a Connection,
        dead: &'a Dead,
        draft: &'a mut Draft,
        tick: Timestamp,
        walk: usize,
    ) -> Self {
        let (told, restored, reached) = (Vec::new(), Timestamp::default(), Vec::new());
        Self { conn, dead, draft, tick, walk, told, restored, reached, unfinished: false }
    }

    /// Runs one command.
    pub(crate) fn run(&mut self, command: MessageCommand) -> Result<(), Fault> {
        let MessageCommand { queue, action } = command;
        let queue = queue.0.cast_signed();
        let found =
            self.conn.prepare_cached(PILE)?.query_row([queue], |row| row.get(0)).optional()?;
        let Some(pile) = found else {
            return Err(Fault::Rejected(Conflict::QueueNotFound));
        };
        let more = match action {
            MessageAction::Put { id, text, hide_seconds, live_seconds } => {
                let now = self.tick;
                let expires = live_seconds.map_or(Timestamp::MAX, |live| now.plus_seconds(live));
                let visible = now.plus_seconds(hide_seconds);
                let message =
                    Message { id, text, inserted: now, expires, visible, taken: 0, receipt: now };
                self.insert(pile, &message)?;
                self.told.push(message);
                1
            }
            MessageAction::Take { limit, hide_seconds } => self.take(pile, limit, hide_seconds)?,
            MessageAction::Update { id, receipt, hide_seconds, text } => {
                self.update(pile, (id, receipt), hide_seconds, text)?;
                0
            }
            MessageAction::Delete { id, receipt } => {
                let held = self.held(pile, id, receipt)?;
                let held = held.filter(|(_, expires)| !is_dead(*expires, ticks(self.tick)));
                let (number, _) = held.ok_or(Fault::Rejected(Conflict::MessageNotFound))?;
                self.delete(number)?;
                -1
            }
            MessageAction::Clear => {
                self.draft.marks.last_pile += 1;
                let fresh = self.draft.marks.last_pile.cast_signed();
                declare::give_up(self.conn, self.draft, pile)?;
                self.conn.prepare_cached(CLEAR)?.execute([queue, fresh])?;
                0
            }
            MessageAction::Restore(message) => {
                let before = match self.held(pile, message.id, message.receipt)? {
                    Some((number, _)) => self.delete(number).map(|()| 1)?,
                    None => 0,
                };
                self.insert(pile, &message)?;
                // It may stand where all were dead.
                self.dead.forget(pile);
                self.reached.retain(|(noted, _)| *noted != pile);
                self.restored = self.restored.max(message.receipt);
                1 - before
            }
        };
        if more != 0 {
            self.conn.prepare_cached(COUNT)?.execute([queue, more])?;
        }
        Ok(())
    }

    fn insert(&mut self, pile: i64, message: &Message) -> Result<(), Fault> {
        let number = self.next_place();
        let text = store_text(self.conn, &message.text)?;
        self.conn.prepare_cached(INSERT)?.execute(params![
            number,
            pile,
            message.id.0,
            ticks(message.inserted),
            expiry(message.expires),
            ticks(message.visible),
            message.taken,
            ticks(message.receipt),
            text,
        ])?;
        Ok(())
    }

    /// Gives out what is next; by how many the messages of the queue are more.
    fn take(&mut self, pile: i64, limit: usize, hide_seconds: u64) -> Result<i64, Fault> {
        let (live, dead) = self.next(pile, limit)?;
        let mut taken = Vec::with_capacity(live.len());
        for number in live {
            let mut statement = self.conn.prepare_cached(ONE)?;
            let mut rows = statement.query([number])?;
            let Some(row) = rows.next()? else {
                return Err(Fault::Corrupt("an index names a message that is not there".into()));
            };
            taken.push((number, message(self.conn, row, 0)?));
        }
        for (number, mut message) in taken {
            message.visible = self.tick.plus_seconds(hide_seconds);
            message.taken = message.taken.saturating_add(1);
            message.receipt = self.tick;
            self.moved(number, &message)?;
            self.told.push(message);
        }
        for number in &dead {
            self.delete(*number)?;
        }
        Ok(-i64::try_from(dead.len()).unwrap_or(i64::MAX))
    }

    /// The numbers of the next messages, and of some that stood before them and have expired.
    fn next(&mut self, pile: i64, limit: usize) -> Result<(Vec<i64>, Vec<i64>), Fault> {
        let (mut live, mut dead) = (Vec::new(), Vec::new());
        let (visible, place) = self.dead.before(pile, self.draft.marks.sequence);
        let now = ticks(self.tick);
        // Where the first that lives stands, or where the walk ended; how many that have expired were left before.
        let (mut reached, mut left): (Option<Place>, usize) = (None, 0);
        let mut statement = self.conn.prepare_cached(VISIBLE)?;
        let mut rows = statement.query([pile, visible, place, now])?;
        while live.len() < limit {
            let Some(row) = rows.next()? else { break };
            let number = row.get(0)?;
            if !is_dead(row.get(3)?, now) {
                reached = reached.or(Some((row.get(1)?, row.get(2)?)));
                live.push(number);
            } else if dead.len() < DEAD_MAX {
                dead.push(number);
            } else if left < self.walk {
                left += 1;
            } else {
                self.unfinished = live.is_empty();
                reached = reached.or(Some((row.get(1)?, row.get(2)?)));
                break;
            }
        }
        if 0 < left {
            // If nothing that lives is visible, what comes is put behind now.
            let behind = (now, self.draft.marks.last_place.cast_signed() + 1);
            self.reached.push((pile, reached.unwrap_or(behind)));
        }
        Ok((live, dead))
    }

    fn update(
        &mut self,
        pile: i64,
        (id, receipt): (Guid, Timestamp),
        hide_seconds: u64,
        text: Option<Box<str>>,
    ) -> Result<(), Fault> {
        let (number, mut message) = {
            let mut statement = self.conn.prepare_cached(HELD)?;
            let mut rows = statement.query(params![pile, ticks(receipt), id.0])?;
            let found = match rows.next()? {
                Some(row) => Some((row.get::<_, i64>(0)?, message(self.conn, row, 1)?)),
                None => None,
            };
            let found = found.filter(|(_, message)| message.exists(self.tick));
            found.ok_or(Fault::Rejected(Conflict::MessageNotFound))?
        };
        message.visible = self.tick.plus_seconds(hide_seconds);
        message.receipt = self.tick;
        self.moved(number, &message)?;
        if let Some(text) = text {
            self.remove_text(number)?;
            let stored: ToSqlOutput<'_> = store_text(self.conn, &text)?;
            self.conn.prepare_cached(RETEXT)?.execute(params![number, stored])?;
            message.text = text;
        }
        self.told.push(message);
        Ok(())
    }

    /// The number of a message, if it has that receipt, and when it expires.
    fn held(
        &self,
        pile: i64,
        id: Guid,
        receipt: Timestamp,
    ) -> Result<Option<(i64, Option<i64>)>, Fault> {
        let mut statement = self.conn.prepare_cached(HELD_NUMBER)?;
        let key = params![pile, ticks(receipt), id.0];
        Ok(statement.query_row(key, |row| Ok((row.get(0)?, row.get(1)?))).optional()?)
    }

    /// Writes what a take or an update changes, and puts the message behind all that are visible then.
    fn moved(&mut self, number: i64, message: &Message) -> Result<(), Fault> {
        let place = self.next_place();
        self.conn.prepare_cached(MOVE)?.execute(params![
            number,
            ticks(message.visible),
            place,
            message.taken,
            ticks(message.receipt),
        ])?;
        Ok(())
    }

    fn next_place(&mut self) -> i64 {
        self.draft.marks.last_place += 1;
        self.draft.marks.last_place.cast_signed()
    }

    fn delete(&self, number: i64) -> Result<(), Fault> {
        self.remove_text(number)?;
        self.conn.prepare_cached(DELETE)?.execute([number])?;
        Ok(())
    }

    /// Removes the text of a message if it is in `large`.
    fn remove_text(&self, number: i64) -> Result<(), Fault> {
        let large: Option<i64> =
            self.conn.prepare_cached(LARGE)?.query_row([number], |row| row.get(0))?;
        if let Some(large) = large {
            remove_large(self.conn, large)?;
        }
        Ok(())
    }
}
