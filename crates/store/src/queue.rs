//! Queues: what they hold, what can be done to a message, and what is told of one.
//!
//! The store's time decides what is visible and what has expired: the time of the commit for a command, the later of the
//! clock and the latest commit for a read. So it never goes back, and no message is given to two consumers within the time that the
//! first one has it for, whatever the wall clock does.

use crate::catalogue::AccountId;
use crate::catalogue::{policies_bytes, text_bytes};
use rowhouse_types::{Guid, QueueName, StoredPolicy, Timestamp};

/// Names a queue for ever; never reused, so a queue created under an old name has no old messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueId(pub u64);

/// A queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queue {
    /// Its id.
    pub id: QueueId,
    /// Whose it is.
    pub account: AccountId,
    /// Its name.
    pub name: QueueName,
    /// When it was created.
    pub created: Timestamp,
    /// Names and values that belong to its users, as they were given.
    pub metadata: Metadata,
    /// Access policies in the order in which they were set.
    pub policies: Vec<StoredPolicy>,
}

impl Queue {
    /// What it takes in memory, about.
    pub fn memory_bytes(&self) -> usize {
        let pair = |(name, value): &(Box<str>, Box<str>)| {
            size_of::<(Box<str>, Box<str>)>() + text_bytes(name) + text_bytes(value)
        };
        let metadata: usize = self.metadata.iter().map(pair).sum();
        let name = text_bytes(self.name.as_str());
        size_of::<Self>() + name + metadata + policies_bytes(&self.policies)
    }
}

/// Names and values in the order in which they were given.
pub type Metadata = Vec<(Box<str>, Box<str>)>;

/// A message. It is visible from `visible` on and gone at `expires`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its id, chosen by whoever put it.
    pub id: Guid,
    /// What it says.
    pub text: Box<str>,
    /// When it was put.
    pub inserted: Timestamp,
    /// When it ceases to exist; [`Timestamp::MAX`] if never.
    pub expires: Timestamp,
    /// Who gets messages does not get it before.
    pub visible: Timestamp,
    /// How often it was taken.
    pub taken: u32,
    /// The time of the commit that put, took or updated it last: only who knows it may change the message. Rises with every such
    /// commit and is never given out twice for a message.
    pub receipt: Timestamp,
}

/// A change of the messages of a queue.
#[derive(Clone, Debug)]
pub struct MessageCommand {
    /// Of which queue, else [`crate::Conflict::QueueNotFound`].
    pub queue: QueueId,
    /// What is done.
    pub action: MessageAction,
}

/// What can be done to messages.
#[derive(Clone, Debug)]
pub enum MessageAction {
    /// A message of this id and text is there, visible after so many seconds, gone after so many (never without). Behind
    /// those that are visible already. The id is unlike any other of the queue: drawn at random.
    Put {
        /// Its id.
        id: Guid,
        /// Its text.
        text: Box<str>,
        /// Seconds until it is visible.
        hide_seconds: u64,
        /// Seconds until it is gone.
        live_seconds: Option<u64>,
    },
    /// The next visible messages, at most so many, are given out and not visible for so many seconds. The
    /// one that has been visible for longest comes first.
    Take {
        /// At most so many; at least 1.
        limit: usize,
        /// Seconds until they are visible again.
        hide_seconds: u64,
    },
    /// The message with this receipt (else [`crate::Conflict::MessageNotFound`]) is visible after so many seconds, and says
    /// something else if there is a text.
    Update {
        /// Which message.
        id: Guid,
        /// Its receipt.
        receipt: Timestamp,
        /// Seconds until it is visible.
        hide_seconds: u64,
        /// Its new text.
        text: Option<Box<str>>,
    },
    /// The message with this receipt (else [`crate::Conflict::MessageNotFound`]) is gone.
    Delete {
        /// Which message.
        id: Guid,
        /// Its receipt.
        receipt: Timestamp,
    },
    /// All are gone, visible or not.
    Clear,
    /// Exactly this message is there: what was saved comes back, instead of the same if it is there already. The queue has none of
    /// its id with another receipt. Every Timestamp given out afterwards is later than its receipt.
    Restore(Message),
}

/// Some messages of a queue in the order of their places, for a backup.
#[derive(Clone, Debug, Default)]
pub struct MessagePage {
    /// The messages.
    pub messages: Vec<Message>,
    /// Where the next page starts; none if nothing is left.
    pub next: Option<MessagePlace>,
}

/// A place among the messages of a queue: only the engine that gave it out can read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MessagePlace(pub Timestamp, pub u64);

impl Message {
    /// Whether it is there at that time.
    pub fn exists(&self, now: Timestamp) -> bool {
        now < self.expires
    }

    /// Whether it can be taken at that time.
    pub fn is_visible(&self, now: Timestamp) -> bool {
        self.visible <= now && self.exists(now)
    }
}
