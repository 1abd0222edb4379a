//! What is written: commands with their conditions, all or none.

use crate::catalogue::TableId;
use crate::error::Conflict;
use crate::queue::{Message, MessageAction, MessageCommand, QueueId};
use rowhouse_types::{EntityKey, Etag, Record, Timestamp};

/// Commands that take effect together or not at all, in order: those of entities, then those of messages.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// Changes of entities, run one after the other.
    pub commands: Vec<Command>,
    /// Changes of messages, run after those. Their positions go on where those of the entities end.
    pub messages: Vec<MessageCommand>,
}

/// One change, with the condition under which it may be made.
#[derive(Clone, Debug)]
pub enum Command {
    /// A change of one entity.
    Entity {
        /// In which table.
        table: TableId,
        /// Which entity.
        key: EntityKey,
        /// What must be true of it.
        condition: Condition,
        /// What becomes of it.
        write: Write,
    },
}

/// What must be true of an entity before it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// It does not exist, else [`crate::Conflict::EntityExists`].
    Absent,
    /// It exists, else [`crate::Conflict::EntityNotFound`].
    Exists,
    /// It exists (else [`crate::Conflict::EntityNotFound`]) and has this tag (else
    /// [`crate::Conflict::ConditionNotMet`]).
    Matches(Etag),
    /// Nothing: whatever is there.
    Any,
}

/// What becomes of an entity. The store sets the Timestamp of the record it keeps, but where it says otherwise.
#[derive(Clone, Debug)]
pub enum Write {
    /// It is exactly this.
    Put(Record),
    /// It is exactly this and keeps the Timestamp that the record carries: what was saved comes back.
    /// Every Timestamp given out afterwards is later.
    Restore(Record),
    /// Its properties of these names have these values and the others stay; just these if there was
    /// none. The result is held to the limits of an entity ([`crate::Conflict::EntityTooLarge`],
    /// [`crate::Conflict::TooManyProperties`]).
    Merge(Record),
    /// It is gone. If it has expired it was so for everybody before, and an engine may remove what is left of it:
    /// under [`Condition::Absent`] nothing else.
    Delete,
}

/// A batch that took effect.
#[derive(Clone, Debug)]
pub struct Committed {
    /// Rises with every commit; where several servers share a store, with every commit of one of them.
    pub sequence: u64,
    /// The new Timestamp of each command's entity, in order.
    pub timestamps: Vec<Timestamp>,
    /// The messages that were put, taken or updated, as they are now, in order.
    pub messages: Vec<Message>,
}

impl Condition {
    /// Whether it holds for an entity last written then, or for none.
    pub fn judge(self, stored: Option<Timestamp>) -> Result<(), Conflict> {
        match (self, stored) {
            (Self::Any, _) | (Self::Absent, None) | (Self::Exists, Some(_)) => Ok(()),
            (Self::Absent, Some(_)) => Err(Conflict::EntityExists),
            (Self::Exists | Self::Matches(_), None) => Err(Conflict::EntityNotFound),
            (Self::Matches(etag), Some(at)) if etag.matches(at) => Ok(()),
            (Self::Matches(_), Some(_)) => Err(Conflict::ConditionNotMet),
        }
    }
}

impl Batch {
    /// Changes of entities.
    pub fn new(commands: Vec<Command>) -> Self {
        Self { commands, messages: Vec::new() }
    }

    /// A batch of one.
    pub fn of(command: Command) -> Self {
        Self::new(vec![command])
    }

    /// A change of messages alone.
    pub fn of_message(queue: QueueId, action: MessageAction) -> Self {
        Self { commands: Vec::new(), messages: vec![MessageCommand { queue, action }] }
    }
}
