//! What was answered to those who put, take and delete messages, and whether it can be explained.
//!
//! No acknowledged message is lost, none is had by two within its visibility, the receipt of an acknowledged take is good, and what
//! was refused has not happened. Nobody but the checker decides what is right, so histories that were falsified on purpose
//! must be noticed by it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// What clocks that are read at two places may differ by.
pub(super) const SLACK: Duration = Duration::from_millis(100);

/// An acknowledged put.
#[derive(Clone, Debug)]
pub(super) struct Put {
    pub(super) number: u64,
    pub(super) id: String,
}

/// An acknowledged take of one message. Times are since the start of the run.
#[derive(Clone, Debug)]
pub(super) struct Take {
    pub(super) number: u64,
    pub(super) id: String,
    pub(super) receipt: String,
    /// How often the message had been taken then.
    pub(super) count: u32,
    pub(super) asked: Duration,
    pub(super) answered: Duration,
    pub(super) hidden: Duration,
}

impl Take {
    /// Until then nobody else may have it.
    fn until(&self) -> Duration {
        self.asked + self.hidden
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The message is gone.
    Done,
    /// The message is not there, or the receipt is no longer good.
    NotFound,
    /// The server said that nothing happened.
    Refused,
    /// The server died before it answered, or said that it does not know.
    Unknown,
}

impl Outcome {
    /// Whether the message may be gone by it.
    fn may_have_deleted(self) -> bool {
        matches!(self, Self::Done | Self::Unknown)
    }
}

/// A delete with the receipt of a take.
#[derive(Clone, Debug)]
pub(super) struct Delete {
    pub(super) number: u64,
    pub(super) count: u32,
    pub(super) answered: Duration,
    /// What came of it.
    pub(super) outcome: Outcome,
}

/// Everything that is known of a run.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    /// Puts that were acknowledged.
    pub(super) puts: Vec<Put>,
    /// The numbers of those of which the server said that nothing happened.
    pub(super) refused: BTreeSet<u64>,
    /// Takes that were acknowledged.
    pub(super) takes: Vec<Take>,
    /// Deletes that were tried.
    pub(super) deletes: Vec<Delete>,
    /// What was still there at the end, when nothing was hidden any more.
    pub(super) left: BTreeMap<u64, String>,
}

/// Panics unless a history can be explained, and none of its falsifications can.
pub(super) fn judge(history: &History) {
    let faults = check(history);
    assert!(faults.is_empty(), "{} faults: {:#?}", faults.len(), &faults[..faults.len().min(20)]);
    for (what, falsified) in falsifications(history) {
        assert!(!check(&falsified).is_empty(), "the checker did not notice: {what}");
    }
}

/// What is wrong with a history; nothing if it can be explained.
pub(super) fn check(history: &History) -> Vec<String> {
    let mut faults = Vec::new();
    let mut takes: BTreeMap<u64, Vec<&Take>> = BTreeMap::new();
    for take in &history.takes {
        takes.entry(take.number).or_default().push(take);
    }
    let mut deletes: BTreeMap<u64, Vec<&Delete>> = BTreeMap::new();
    for delete in &history.deletes {
        deletes.entry(delete.number).or_default().push(delete);
    }
    let mut ids: BTreeMap<u64, BTreeSet<&str>> = BTreeMap::new();
    let puts = history.puts.iter().map(|put| (put.number, put.id.as_str()));
    let had = history.takes.iter().map(|take| (take.number, take.id.as_str()));
    let left = history.left.iter().map(|(&number, id)| (number, id.as_str()));
    for (number, id) in puts.chain(had).chain(left) {
        ids.entry(number).or_default().insert(id);
    }
    for (number, ids) in ids {
        if ids.len() > 1 {
            faults.push(format!("{number} was put once and is there as {ids:?}"));
        }
    }
    for put in &history.puts {
        let gone = deletes
            .get(&put.number)
            .is_some_and(|all| all.iter().any(|delete| delete.outcome.may_have_deleted()));
        if !gone && !history.left.contains_key(&put.number) {
            faults.push(format!("{} was acknowledged, never deleted, and is gone", put.number));
        }
    }
    for number in &history.refused {
        if takes.contains_key(number) || history.left.contains_key(number) {
            faults.push(format!("{number} was refused and is there"));
        }
    }
    for all in takes.values_mut() {
        all.sort_by_key(|take| take.count);
        for pair in all.windows(2) {
            let (first, second) = (pair[0], pair[1]);
            if first.count == second.count {
                faults.push(format!("{} was had twice as take {}", first.number, first.count));
            }
            if second.answered + SLACK < first.until() {
                faults.push(format!(
                    "{} was had again {:?} before its visibility had passed",
                    first.number,
                    first.until().saturating_sub(second.answered)
                ));
            }
        }
    }
    for (number, all) in &deletes {
        check_deletes(
            *number,
            all,
            takes.get(number).map_or(&[][..], Vec::as_slice),
            history,
            &mut faults,
        );
    }
    faults
}

/// What was deleted stays deleted, and a receipt is good as long as nobody else can have the message.
fn check_deletes(
    number: u64,
    deletes: &[&Delete],
    takes: &[&Take],
    history: &History,
    faults: &mut Vec<String>,
) {
    for delete in deletes {
        let take = takes.iter().find(|take| take.count == delete.count);
        let take = take.expect("who deletes has taken");
        match delete.outcome {
            Outcome::Done => {
                let again = takes.iter().any(|take| take.asked > delete.answered);
                if again || history.left.contains_key(&number) {
                    faults.push(format!("{number} was deleted and is back"));
                }
            }
            Outcome::NotFound => {
                let others = deletes.iter().filter(|other| other.outcome.may_have_deleted());
                if others.count() == 0 && delete.answered + SLACK < take.until() {
                    faults.push(format!(
                        "the receipt of take {} of {number} was refused",
                        take.count
                    ));
                }
            }
            Outcome::Refused | Outcome::Unknown => {}
        }
    }
    let done = deletes.iter().filter(|delete| delete.outcome == Outcome::Done).count();
    if done > 1 {
        faults.push(format!("{number} was deleted {done} times"));
    }
}

/// The same history with one thing changed, each of which is a promise broken.
fn falsifications(history: &History) -> Vec<(&'static str, History)> {
    let change = |with: &dyn Fn(&mut History)| {
        let mut changed = history.clone();
        with(&mut changed);
        changed
    };
    // Of a message that nobody else was about, so that the change is all that can be noticed.
    let of_done = |history: &History| {
        let alone = |delete: &&Delete| {
            let same = history.deletes.iter().filter(|other| other.number == delete.number);
            let put = history.puts.iter().any(|put| put.number == delete.number);
            put && same.count() == 1 && delete.outcome == Outcome::Done && delete.count == 1
        };
        let delete = history.deletes.iter().find(alone).expect("something was deleted");
        (delete.number, delete.count)
    };
    let place = |history: &History, number: u64| {
        let place = history.deletes.iter().position(|delete| delete.number == number);
        place.expect("it was deleted")
    };
    let take_of = |history: &History, (number, count): (u64, u32)| {
        let mut takes = history.takes.iter();
        let take = takes.find(|take| (take.number, take.count) == (number, count));
        take.expect("who deletes has taken").clone()
    };
    vec![
        (
            "a message that is gone",
            change(&|history| {
                let (number, _) = of_done(history);
                history.deletes.retain(|delete| delete.number != number);
            }),
        ),
        (
            "a message that is had by two",
            change(&|history| {
                let last = history.takes.last().expect("something was taken").clone();
                history.takes.push(Take { count: last.count + 1, ..last });
            }),
        ),
        (
            "a take that was not counted",
            change(&|history| {
                let last = history.takes.last().expect("something was taken").clone();
                let asked = last.until() + SLACK;
                history.takes.push(Take { asked, answered: asked, ..last });
            }),
        ),
        (
            "a message that is back",
            change(&|history| {
                let take = take_of(history, of_done(history));
                let answered = history.deletes[place(history, take.number)].answered;
                let asked = take.until().max(answered) + SLACK;
                history.takes.push(Take { count: take.count + 1, asked, answered: asked, ..take });
            }),
        ),
        (
            "a receipt that was refused",
            change(&|history| {
                let take = take_of(history, of_done(history));
                let at = place(history, take.number);
                history.deletes[at].outcome = Outcome::NotFound;
                history.deletes[at].answered = take.asked;
                history.left.insert(take.number, take.id);
            }),
        ),
        (
            "a delete that was refused",
            change(&|history| {
                let (number, _) = of_done(history);
                let at = place(history, number);
                history.deletes[at].outcome = Outcome::Refused;
            }),
        ),
        (
            "a message that was refused",
            change(&|history| {
                let last = history.takes.last().expect("something was taken").number;
                history.refused.insert(last);
            }),
        ),
        (
            "a message that is there twice",
            change(&|history| {
                let put = history.puts[0].clone();
                history.puts.push(Put { id: "another".to_owned(), ..put });
            }),
        ),
    ]
}
