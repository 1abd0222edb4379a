//! The checker accepts what may happen and rejects what must not.

use super::*;
use proptest::prelude::*;

fn tag(number: u64) -> Timestamp {
    Timestamp::from_ticks(number).expect("a small number is a time")
}

fn version(n: u64, tagged: u64) -> Version {
    Version { n: Some(n), merged: None, tag: tag(tagged) }
}

/// A request with its beginning and end; the times also say who asked.
fn at(began: u64, ended: u64, call: Call, answer: Answer) -> Record {
    Record { client: 0, partition: 0, began, ended, call, answer }
}

fn one(row: Row, id: u64, change: Change) -> Call {
    Call::Write(vec![Write { row, id, change }])
}

fn put(row: Row, id: u64) -> Call {
    one(row, id, Change::Replace(Condition::Upsert))
}

fn done(tagged: u64) -> Answer {
    Answer::Done(vec![Some(tag(tagged))])
}

fn read(row: Row, began: u64, ended: u64, found: Option<Version>) -> Record {
    at(began, ended, Call::Read(row), Answer::Read(found))
}

fn query(began: u64, ended: u64, found: &[(Row, Version)]) -> Record {
    at(began, ended, Call::Query, Answer::Query(found.iter().copied().collect()))
}

fn both(first: u64, second: u64) -> Call {
    let write = |row, id| Write { row, id, change: Change::Replace(Condition::Upsert) };
    Call::Write(vec![write(1, first), write(2, second)])
}

fn both_done(tagged: u64) -> Answer {
    Answer::Done(vec![Some(tag(tagged)), Some(tag(tagged))])
}

/// Two rows made by a batch (numbers 1 and 2, tag 10), to begin with.
fn begin() -> Vec<Record> {
    vec![at(1, 2, both(1, 2), both_done(10))]
}

#[test]
fn what_may_happen_is_accepted() {
    let replace_if = |id, tagged| one(1, id, Change::Replace(Condition::Tag(tag(tagged))));
    let merged = Version { n: Some(1), merged: Some(3), tag: tag(11) };
    let cases: Vec<(&str, Vec<Record>)> = vec![
        (
            "one after the other",
            vec![at(3, 4, put(1, 3), done(11)), read(1, 5, 6, Some(version(3, 11)))],
        ),
        (
            "a concurrent read sees it",
            vec![at(3, 6, put(1, 3), done(11)), read(1, 4, 5, Some(version(3, 11)))],
        ),
        (
            "or does not yet",
            vec![at(3, 6, put(1, 3), done(11)), read(1, 4, 5, Some(version(1, 10)))],
        ),
        (
            "of two with one tag one wins",
            vec![
                at(3, 6, replace_if(3, 10), done(11)),
                at(4, 5, replace_if(4, 10), Answer::Refused(Refusal::Changed)),
            ],
        ),
        (
            "a merge keeps the rest",
            vec![
                at(3, 4, one(1, 3, Change::Merge(Condition::Any)), done(11)),
                read(1, 5, 6, Some(merged)),
            ],
        ),
        (
            "refusals",
            vec![
                at(3, 4, one(1, 3, Change::Insert), Answer::Refused(Refusal::Exists)),
                at(
                    5,
                    6,
                    one(3, 4, Change::Delete(Condition::Any)),
                    Answer::Refused(Refusal::Missing),
                ),
                at(7, 8, one(1, 5, Change::Delete(Condition::Any)), Answer::Done(vec![None])),
                read(1, 9, 10, None),
            ],
        ),
        (
            "unanswered and happened",
            vec![at(3, 6, put(1, 3), Answer::Nothing), read(1, 7, 8, Some(version(3, 11)))],
        ),
        (
            "unanswered and lost",
            vec![at(3, 6, put(1, 3), Answer::Nothing), read(1, 7, 8, Some(version(1, 10)))],
        ),
        (
            "unanswered, unseen, but in the way",
            vec![
                at(3, 6, put(3, 3), Answer::Nothing),
                at(7, 8, one(3, 4, Change::Insert), Answer::Refused(Refusal::Exists)),
            ],
        ),
        (
            "a snapshot before, a snapshot after",
            vec![
                at(3, 8, both(3, 4), both_done(11)),
                query(4, 5, &[(1, version(1, 10)), (2, version(2, 10))]),
                query(6, 7, &[(1, version(3, 11)), (2, version(4, 11))]),
            ],
        ),
        (
            "a refused batch has no effect",
            vec![
                at(
                    3,
                    4,
                    Call::Write(vec![
                        Write { row: 1, id: 3, change: Change::Replace(Condition::Upsert) },
                        Write { row: 2, id: 4, change: Change::Insert },
                    ]),
                    Answer::Refused(Refusal::Exists),
                ),
                query(5, 6, &[(1, version(1, 10)), (2, version(2, 10))]),
            ],
        ),
    ];
    for (name, more) in cases {
        let history = [begin(), more].concat();
        if let Err(violation) = check(&history, Order::OfStore) {
            panic!("{name}: {violation}");
        }
    }
}

#[test]
fn what_must_not_happen_is_rejected() {
    let replace_if = |id, tagged| one(1, id, Change::Replace(Condition::Tag(tag(tagged))));
    let cases: Vec<(&str, Vec<Record>)> = vec![
        ("a stale read", vec![at(3, 4, put(1, 3), done(11)), read(1, 5, 6, Some(version(1, 10)))]),
        (
            "a read that goes back",
            vec![
                at(3, 8, put(1, 3), done(11)),
                read(1, 4, 5, Some(version(3, 11))),
                read(1, 6, 7, Some(version(1, 10))),
            ],
        ),
        (
            "a lost update",
            vec![at(3, 6, replace_if(3, 10), done(11)), at(4, 5, replace_if(4, 10), done(12))],
        ),
        (
            "an acknowledged write that is gone",
            vec![at(3, 4, put(3, 3), done(11)), read(3, 5, 6, None)],
        ),
        ("a deleted entity that is back", {
            let delete = one(1, 3, Change::Delete(Condition::Any));
            vec![at(3, 4, delete, Answer::Done(vec![None])), read(1, 5, 6, Some(version(1, 10)))]
        }),
        (
            "half a batch",
            vec![
                at(3, 8, both(3, 4), both_done(11)),
                query(4, 5, &[(1, version(3, 11)), (2, version(2, 10))]),
            ],
        ),
        (
            "half a batch by two reads",
            vec![
                at(3, 8, both(3, 4), both_done(11)),
                read(1, 4, 5, Some(version(3, 11))),
                read(2, 6, 7, Some(version(2, 10))),
            ],
        ),
        (
            "half a batch after a crash",
            vec![
                at(3, 4, both(3, 4), Answer::Nothing),
                query(5, 6, &[(1, version(1, 10)), (2, version(4, 11))]),
            ],
        ),
        ("a query that leaves one out", vec![query(3, 4, &[(1, version(1, 10))])]),
        (
            "an unanswered write that comes later",
            vec![
                at(3, 4, put(1, 3), Answer::Nothing),
                read(1, 5, 6, Some(version(1, 10))),
                read(1, 7, 8, Some(version(3, 11))),
            ],
        ),
        ("a tag that goes back", vec![at(3, 4, put(1, 3), done(9))]),
        ("a tag given twice", vec![at(3, 4, put(1, 3), done(10))]),
        ("a tag that changes", vec![read(1, 3, 4, Some(version(1, 11)))]),
        ("a refused write that happened", {
            let refused = Answer::Refused(Refusal::Changed);
            vec![at(3, 4, replace_if(3, 9), refused), read(1, 5, 6, Some(version(3, 11)))]
        }),
        (
            "a refusal without a reason",
            vec![at(3, 4, replace_if(3, 10), Answer::Refused(Refusal::Changed))],
        ),
        ("a merge that forgets the rest", {
            let merged = Version { n: None, merged: Some(3), tag: tag(11) };
            let merge = one(1, 3, Change::Merge(Condition::Any));
            vec![at(3, 4, merge, done(11)), read(1, 5, 6, Some(merged))]
        }),
        ("something that nobody wrote", vec![read(1, 3, 4, Some(version(9, 11)))]),
    ];
    for (name, more) in cases {
        let history = [begin(), more].concat();
        assert!(check(&history, Order::OfStore).is_err(), "{name} was accepted");
    }
}

#[test]
fn tags_rise_over_partitions_too() {
    let mut history = begin();
    history.push(Record { partition: 1, ..at(3, 4, put(1, 3), done(9)) });
    assert!(check(&history, Order::OfStore).is_err());
    // Unless they overlap: then nobody knows which was first.
    history[1].began = 0;
    assert!(check(&history, Order::OfStore).is_ok());
}

/// With several servers only the versions of one entity are in order.
#[test]
fn tags_rise_in_an_entity_and_are_given_once() {
    let delete = one(1, 3, Change::Delete(Condition::Any));
    let deleted = || [begin(), vec![at(3, 4, delete.clone(), Answer::Done(vec![None]))]].concat();
    let then = |mut history: Vec<Record>, record| {
        history.push(record);
        check(&history, Order::OfEntity).is_ok()
    };
    let elsewhere = Record { partition: 1, ..at(3, 4, put(1, 3), done(9)) };
    assert!(then(begin(), elsewhere), "another partition");
    assert!(then(begin(), at(3, 4, put(3, 3), done(9))), "another row");
    assert!(then(deleted(), at(5, 6, put(1, 4), done(9))), "another entity of the key");
    assert!(!then(begin(), at(3, 4, put(1, 3), done(9))), "an earlier tag");
    assert!(!then(begin(), at(3, 4, put(1, 3), done(10))), "the same tag");
    assert!(!then(deleted(), at(5, 6, put(1, 4), done(10))), "the same tag after a delete");
}

/// What a request is about: kind, row, and how long it takes to begin and to end around its moment.
fn requests() -> impl Strategy<Value = Vec<(u8, Row, u64, u64, bool)>> {
    let request = (0..9_u8, 0..3 as Row, 0..6_u64, 0..6_u64, prop::bool::weighted(0.9));
    prop::collection::vec(request, 1..60)
}

/// Carries requests out one at a time and lets each begin before its moment and end after it. What was not
/// answered happened all the same.
fn simulate(requests: &[(u8, Row, u64, u64, bool)]) -> Vec<Record> {
    let mut rows: BTreeMap<Row, Version> = BTreeMap::new();
    // Nobody asks for a tag that no answer gave for that row.
    let mut told: HashSet<(Row, Timestamp)> = HashSet::new();
    let mut records = Vec::new();
    for (index, &(kind, row, before, after, answered)) in requests.iter().enumerate() {
        let moment = index as u64 + 1;
        let change = |condition| match kind {
            2 => Change::Insert,
            3 | 4 => Change::Replace(condition),
            5 => Change::Delete(Condition::Any),
            _ => Change::Merge(condition),
        };
        let condition = match (kind, rows.get(&row)) {
            (3 | 7, Some(version)) if told.contains(&(row, version.tag)) => {
                Condition::Tag(version.tag)
            }
            _ => Condition::Upsert,
        };
        let write = |row, nth: u64| Write { row, id: 2 * moment + nth, change: change(condition) };
        let call = match kind {
            0 => Call::Read(row),
            1 => Call::Query,
            8 => Call::Write(vec![write(0, 0), write(1, 1)]),
            _ => Call::Write(vec![write(row, 0)]),
        };
        let mut answer = carry_out(&mut rows, &call, tag(moment));
        if answered {
            told.extend(
                rows.iter()
                    .filter(|(row, _)| tells(&call, &answer, **row))
                    .map(|(row, version)| (*row, version.tag)),
            );
        } else {
            answer = Answer::Nothing;
        }
        // Times are spread so that those of different requests never meet.
        let spread = |time: u64, half: u64| (time + 10) * 1000 + half * 500 + moment;
        let (began, ended) = (spread(moment - before.min(moment), 0), spread(moment + after, 1));
        records.push(Record { client: 0, partition: 0, began, ended, call, answer });
    }
    records
}

/// Whether an answer tells the tag of a row that is there.
fn tells(call: &Call, answer: &Answer, row: Row) -> bool {
    match (call, answer) {
        (Call::Read(read), _) => *read == row,
        (Call::Query, _) => true,
        (Call::Write(writes), Answer::Done(_)) => writes.iter().any(|write| write.row == row),
        (Call::Write(_), _) => false,
    }
}

fn carry_out(rows: &mut BTreeMap<Row, Version>, call: &Call, now: Timestamp) -> Answer {
    let writes = match call {
        Call::Read(row) => return Answer::Read(rows.get(row).copied()),
        Call::Query => return Answer::Query(rows.clone()),
        Call::Write(writes) => writes,
    };
    let mut after = rows.clone();
    let mut tags = Vec::new();
    for &Write { row, id, change } in writes {
        let old = after.get(&row).copied();
        let version = match change {
            Change::Insert if old.is_some() => return Answer::Refused(Refusal::Exists),
            Change::Delete(_) if old.is_none() => return Answer::Refused(Refusal::Missing),
            Change::Delete(_) => {
                after.remove(&row);
                tags.push(None);
                continue;
            }
            Change::Merge(_) => {
                Version { n: old.and_then(|old| old.n), merged: Some(id), tag: now }
            }
            _ => Version { n: Some(id), merged: None, tag: now },
        };
        after.insert(row, version);
        tags.push(Some(now));
    }
    *rows = after;
    Answer::Done(tags)
}

proptest! {
    #[test]
    fn what_happened_one_at_a_time_is_accepted(requests in requests()) {
        let history = simulate(&requests);
        if let Err(violation) = check(&history, Order::OfStore) {
            prop_assert!(false, "{}", violation);
        }
    }

    /// Without overlaps every answer follows from those before, so any other answer is wrong.
    #[test]
    fn another_answer_is_rejected(requests in requests(), which: prop::sample::Index) {
        let alone: Vec<_> =
            requests.into_iter().map(|(kind, row, _, _, _)| (kind, row, 0, 0, true)).collect();
        let mut history = simulate(&alone);
        let index = which.index(history.len());
        let record = &mut history[index];
        record.answer = match &record.answer {
            Answer::Read(Some(_)) => Answer::Read(None),
            Answer::Read(None) => Answer::Read(Some(version(1, 1))),
            Answer::Query(rows) if rows.is_empty() => {
                Answer::Query(BTreeMap::from([(0, version(1, 1))]))
            }
            Answer::Query(rows) => Answer::Query(rows.iter().skip(1).map(|(k, v)| (*k, *v)).collect()),
            Answer::Done(_) => Answer::Refused(Refusal::Changed),
            Answer::Refused(_) => Answer::Done(vec![Some(tag(index as u64 + 1))]),
            Answer::Nothing => unreachable!("all are answered"),
        };
        prop_assert!(check(&history, Order::OfStore).is_err());
    }
}
