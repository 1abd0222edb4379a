//! What waits for the committer: bounded in number and bytes, taken in groups.
//!
//! Whoever comes when it is full is told so at once. Whatever was accepted before the queue was
//! closed is still handed out.

use crate::change::Change;
use crate::index::build::Entering;
use crate::sweep::Chore;
use crate::tuning::Tuning;
use rowhouse_store::{
    Account, Batch, Command, Committed, Index, MessageAction, Queue, StoreError, Table, Write,
};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// Something to be done in the order of arrival, and who waits for the answer.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) work: Work,
    pub(crate) reply: Reply,
}

/// Dropped without an answer, it tells the caller that nobody knows what became of the job.
pub(crate) type Reply = oneshot::Sender<Outcome>;

/// What became of a job.
pub(crate) type Outcome = Result<Answer, StoreError>;

/// What the committer can do.
#[derive(Debug)]
pub(crate) enum Work {
    /// Change entities and messages.
    Batch(Batch),
    /// Change accounts, tables or queues.
    Change(Change),
    /// Delete some of what was dropped.
    Sweep(Chore),
    /// Enter some entities into an index.
    Enter(Arc<Entering>),
    /// Give some free pages back, if so told, and count the others.
    FreePages { vacuum: bool },
    /// Remove some changes that need not be kept.
    TrimLog,
    /// Delete some messages that have expired.
    Expire,
    /// Find out whether a disk that was full has room.
    Heal,
}

/// What the committer says; which variant follows from the work.
#[derive(Debug)]
pub(crate) enum Answer {
    Committed(Committed),
    /// A take has found nothing so far but what has expired, and was told to let others have their turn.
    Again,
    Table(Arc<Table>),
    Account(Arc<Account>),
    Index(Index),
    Queue(Arc<Queue>),
    Done,
    Swept {
        finished: bool,
    },
    FreePages {
        free: u64,
        total: u64,
    },
    /// Only to the sweep: what it asked for met damage, and will again.
    Damaged,
}

/// Why a job was not taken.
#[derive(Debug)]
pub(crate) enum Refused {
    Full,
    Closed,
}

#[derive(Debug)]
pub(crate) struct JobQueue {
    state: Mutex<State>,
    filled: Condvar,
    tuning: Tuning,
}

#[derive(Debug, Default)]
struct State {
    jobs: VecDeque<(Job, usize)>,
    bytes: usize,
    closed: bool,
    /// The committer sleeps and must be woken.
    waiting: bool,
}

impl JobQueue {
    pub(crate) fn new(tuning: Tuning) -> Self {
        Self { state: Mutex::default(), filled: Condvar::new(), tuning }
    }

    /// Puts a job last.
    pub(crate) fn push(&self, job: Job) -> Result<(), Refused> {
        let bytes = job.work.bytes();
        let mut state = self.lock();
        if state.closed {
            return Err(Refused::Closed);
        }
        let no_room = self.tuning.queue_jobs <= state.jobs.len()
            || (!state.jobs.is_empty() && self.tuning.queue_bytes < state.bytes + bytes);
        if no_room {
            return Err(Refused::Full);
        }
        state.bytes += bytes;
        state.jobs.push_back((job, bytes));
        if std::mem::take(&mut state.waiting) {
            drop(state);
            self.filled.notify_one();
        }
        Ok(())
    }

    /// Waits for work and moves as much of it as one transaction may hold into `group`. False when
    /// the queue is closed and empty.
    pub(crate) fn take(&self, group: &mut Vec<Job>) -> bool {
        let mut state = self.lock();
        while state.jobs.is_empty() {
            if state.closed {
                return false;
            }
            state.waiting = true;
            state = self.filled.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let (mut commands, mut bytes) = (0, 0);
        while commands < self.tuning.group_commands && bytes < self.tuning.group_bytes {
            let Some((job, job_bytes)) = state.jobs.pop_front() else { break };
            state.bytes -= job_bytes;
            bytes += job_bytes;
            commands += job.work.commands();
            group.push(job);
        }
        true
    }

    /// Takes no more jobs; those inside are still handed out.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.filled.notify_one();
    }

    /// Takes no more jobs and gives back those inside, which nobody has begun.
    pub(crate) fn abandon(&self) -> impl Iterator<Item = Job> + use<> {
        self.give_back(true)
    }

    /// Gives back the jobs inside, which nobody has begun.
    pub(crate) fn empty(&self) -> impl Iterator<Item = Job> + use<> {
        self.give_back(false)
    }

    fn give_back(&self, close: bool) -> impl Iterator<Item = Job> + use<> {
        let left = {
            let mut state = self.lock();
            state.closed |= close;
            state.bytes = 0;
            std::mem::take(&mut state.jobs)
        };
        self.filled.notify_one();
        left.into_iter().map(|(job, _)| job)
    }

    /// How many jobs wait.
    pub(crate) fn len(&self) -> usize {
        self.lock().jobs.len()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing inside the lock can panic half way through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Work {
    fn commands(&self) -> usize {
        match self {
            Self::Batch(batch) => {
                let taken = |action: &MessageAction| match action {
                    MessageAction::Take { limit, .. } => *limit,
                    _ => 1,
                };
                let messages: usize = batch.messages.iter().map(|it| taken(&it.action)).sum();
                (batch.commands.len() + messages).max(1)
            }
            Self::Enter(entering) => entering.keys.len().max(1),
            Self::Change(_)
            | Self::Sweep(_)
            | Self::FreePages { .. }
            | Self::TrimLog
            | Self::Expire
            | Self::Heal => 1,
        }
    }

    /// What the job holds in memory, roughly.
    fn bytes(&self) -> usize {
        const OVERHEAD: usize = 128;
        match self {
            Self::Batch(batch) => {
                let entities = batch.commands.iter().fold(OVERHEAD, |sum, command| {
                    let Command::Entity { key, write, .. } = command;
                    let record = match write {
                        Write::Put(record) | Write::Restore(record) | Write::Merge(record) => {
                            record.as_bytes().len()
                        }
                        Write::Delete => 0,
                    };
                    let keys = key.partition.as_str().len() + key.row.as_str().len();
                    sum + OVERHEAD + keys + record
                });
                batch.messages.iter().fold(entities, |sum, command| {
                    let text = match &command.action {
                        MessageAction::Put { text, .. }
                        | MessageAction::Update { text: Some(text), .. } => text.len(),
                        MessageAction::Restore(message) => message.text.len(),
                        _ => 0,
                    };
                    sum + OVERHEAD + text
                })
            }
            Self::Change(change) => OVERHEAD + change.bytes(),
            Self::Enter(entering) => OVERHEAD + entering.bytes(),
            Self::Sweep(_) | Self::FreePages { .. } | Self::TrimLog | Self::Expire | Self::Heal => {
                OVERHEAD
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job() -> Job {
        Job { work: Work::Batch(Batch::default()), reply: oneshot::channel().0 }
    }

    #[test]
    fn full_means_refused_and_closed_means_drained() {
        let queue = JobQueue::new(Tuning { queue_jobs: 3, group_commands: 2, ..Tuning::default() });
        for _ in 0..3 {
            queue.push(job()).unwrap();
        }
        assert!(matches!(queue.push(job()), Err(Refused::Full)));
        let mut group = Vec::new();
        assert!(queue.take(&mut group));
        assert_eq!((group.len(), queue.len()), (2, 1));
        queue.close();
        assert!(matches!(queue.push(job()), Err(Refused::Closed)));
        assert!(queue.take(&mut group));
        assert_eq!(group.len(), 3);
        assert!(!queue.take(&mut group));
    }

    #[test]
    fn bytes_are_bounded_but_one_job_always_fits() {
        let queue = JobQueue::new(Tuning { queue_bytes: 1, group_bytes: 1, ..Tuning::default() });
        queue.push(job()).unwrap();
        assert!(matches!(queue.push(job()), Err(Refused::Full)));
        let mut group = Vec::new();
        assert!(queue.take(&mut group));
        queue.push(job()).unwrap();
    }
}
