//! Messages of one of the two stores: what it must remember of them, and how they are compared.

use super::steps::{Action, QUEUES};
use crate::{Message, MessageAction, MessageCommand, QueueId};
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use rowhouse_types::{Guid, Timestamp};
use std::collections::BTreeMap;

/// A message without what differs between stores: when it was put and its receipt. Other times are told from these.
#[derive(Debug, PartialEq)]
pub(super) struct Told {
    id: [u8; 16],
    text: Box<str>,
    taken: u32,
    hidden_ticks: u64,
    lives_ticks: u64,
}

/// What a side remembers.
#[derive(Debug)]
pub(super) struct Posts {
    /// The latest queue of each name, dropped or not.
    queues: [QueueId; QUEUES.len()],
    /// In which queue each message was put, as often as one was tried: both sides give out the same ids.
    put: Vec<usize>,
    /// Each message as it was told last, with its receipts.
    known: BTreeMap<[u8; 16], (Message, Vec<Timestamp>)>,
}

impl Default for Posts {
    fn default() -> Self {
        let queues = [QueueId(1 << 40); QUEUES.len()];
        Self { queues, put: Vec::new(), known: BTreeMap::new() }
    }
}

impl Posts {
    pub(super) fn created(&mut self, which: usize, queue: QueueId) {
        self.queues[which] = queue;
    }

    pub(super) fn queue(&self, which: usize) -> QueueId {
        self.queues[which]
    }

    pub(super) fn commands(&mut self, actions: &[(usize, Action)]) -> Vec<MessageCommand> {
        let command = |(which, action): &(usize, Action)| {
            let action = self.action(*which, action);
            MessageCommand { queue: self.queues[*which], action }
        };
        actions.iter().map(command).collect()
    }

    fn action(&mut self, queue: usize, action: &Action) -> MessageAction {
        match *action {
            Action::Put { text, hide, live } => {
                self.put.push(queue);
                let id = id(self.put.len() - 1);
                MessageAction::Put { id, text: text.into(), hide_seconds: hide, live_seconds: live }
            }
            Action::Take { limit, hide } => MessageAction::Take { limit, hide_seconds: hide },
            Action::Update { which, stale, hide, text } => {
                let (id, receipt) = self.held(queue, which, stale);
                let text = text.map(Into::into);
                MessageAction::Update { id, receipt, hide_seconds: hide, text }
            }
            Action::Delete { which, stale } => {
                let (id, receipt) = self.held(queue, which, stale);
                MessageAction::Delete { id, receipt }
            }
            Action::Clear => MessageAction::Clear,
            Action::Restore(which) => {
                let id = self.recent(queue, which);
                match self.known.get(&id.0) {
                    Some((message, _)) => MessageAction::Restore(message.clone()),
                    None => MessageAction::Clear,
                }
            }
        }
    }

    /// One of the latest messages of a queue.
    fn recent(&self, queue: usize, which: usize) -> Guid {
        let of_queue = |(number, put): (usize, &usize)| (*put == queue).then_some(number);
        let numbers: Vec<_> = self.put.iter().enumerate().filter_map(of_queue).collect();
        id(numbers.iter().rev().nth(which).or(numbers.last()).copied().unwrap_or(usize::MAX))
    }

    /// A message and a receipt that it has or had.
    fn held(&self, queue: usize, which: usize, stale: bool) -> (Guid, Timestamp) {
        let id = self.recent(queue, which);
        let receipts = self.known.get(&id.0).map_or(&[][..], |(_, receipts)| receipts);
        let receipt = receipts.iter().rev().nth(usize::from(stale)).copied();
        (id, receipt.unwrap_or_default())
    }

    /// Remembers what a commit told.
    pub(super) fn told(&mut self, messages: &[Message]) -> Result<Vec<Told>, TestCaseError> {
        for message in messages {
            let fresh = || (message.clone(), Vec::new());
            let (known, receipts) = self.known.entry(message.id.0).or_insert_with(fresh);
            *known = message.clone();
            // Twice within one batch is one moment.
            if receipts.last() != Some(&message.receipt) {
                let rises = receipts.last().is_none_or(|last| *last < message.receipt);
                prop_assert!(rises, "receipts rise");
                receipts.push(message.receipt);
            }
        }
        Ok(messages.iter().map(tell).collect())
    }

    /// Compares what was read with what was told.
    pub(super) fn seen(&self, messages: &[Message]) -> Result<Vec<Told>, TestCaseError> {
        for message in messages {
            let known = self.known.get(&message.id.0).map(|(message, _)| message);
            prop_assert_eq!(known, Some(message), "a message is as it was told last");
        }
        Ok(messages.iter().map(tell).collect())
    }
}

fn id(number: usize) -> Guid {
    let number = (number as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&number.to_be_bytes());
    Guid(bytes)
}

fn tell(message: &Message) -> Told {
    let Message { id, text, inserted, expires, visible, taken, receipt } = message;
    let lives_ticks = match *expires {
        Timestamp::MAX => u64::MAX,
        expires => expires.ticks().saturating_sub(inserted.ticks()),
    };
    let hidden_ticks = visible.ticks().saturating_sub(receipt.ticks());
    Told { id: id.0, text: text.clone(), taken: *taken, hidden_ticks, lives_ticks }
}
