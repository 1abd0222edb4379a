//! Concurrent clients on few keys, with kills in between: everything that they saw has an explanation.
//!
//! Eight clients read, query, insert, replace, merge, delete and run batches on a few rows of a few
//! partitions, with and without tags, so that they get in each other's way all the time. The server is killed
//! several times; what was under way may have happened or not. `rowhouse_testkit::history` then looks for an
//! order that explains every answer. In the end the history is falsified in ways that a broken server would
//! show, to see that the checker notices in a history of this size too.
//!
//! `ROWHOUSE_HISTORY_ROUNDS` says how many times the server is killed.

use rowhouse_env::{Random, SeededRandom};
use rowhouse_testkit::history::{
    Answer, CLIENTS, Call, Order, PARTITIONS, ROWS, Record, Row, Version, Witnesses, check,
};
use rowhouse_testkit::{TestServer, count_from, seed};
use rowhouse_types::Timestamp;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

const ROUNDS: usize = 20;
const ROUND: Duration = Duration::from_secs(1);
/// Falsified histories of each kind.
const FALSIFIED: usize = 3;

#[test]
fn every_history_has_an_explanation() {
    let rounds = count_from("ROWHOUSE_HISTORY_ROUNDS", ROUNDS);
    let seed = seed();
    let chance = SeededRandom::new(seed);
    let mut server = TestServer::start();
    let mut witnesses = Witnesses::new(&mut server.client(), seed);
    for _ in 0..rounds {
        witnesses.run(&[server.address()], |_| {
            let mut byte = [0];
            chance.fill(&mut byte);
            std::thread::sleep(ROUND * u32::from(byte[0]) / u32::from(u8::MAX));
            server.kill();
        });
        witnesses.settle();
        server.restart();
    }
    assert_eq!(witnesses.failures(), 0, "the server failed at nothing before it was killed");
    let records = witnesses.into_records(&mut server.client());
    let began = Instant::now();
    if let Err(violation) = check(&records, Order::OfStore) {
        panic!("{violation}");
    }
    let took = began.elapsed();
    let count = |of: fn(&Record) -> bool| records.iter().filter(|record| of(record)).count();
    println!(
        "history: {} requests of {CLIENTS} clients on {PARTITIONS} partitions of {ROWS} rows, {rounds} kills \
         with {} requests unanswered, {} refused: linearizable, no half batch seen, tags only rose; \
         checked in {:.1} s",
        records.len(),
        count(|record| record.answer == Answer::Nothing),
        count(|record| matches!(record.answer, Answer::Refused(_))),
        took.as_secs_f64(),
    );
    assert!(!server.log().contains("panicked"), "nothing panicked");
    let began = Instant::now();
    let noticed = falsify(&records, &chance);
    println!(
        "history: falsified {noticed} times, noticed each time, in {:.1} s",
        began.elapsed().as_secs_f64()
    );
}

/// A way to falsify a record of a history; false if that record does not lend itself to it.
type Lie = fn(&[Record], usize) -> Option<Vec<Record>>;

const LIES: [(&str, Lie); 4] = [
    ("a stale read", stale_read),
    ("half a batch", half_batch),
    ("a tag that goes back", early_tag),
    ("an acknowledged write that was lost", lost_write),
];

/// Tells each kind of lie at a few random places; panics if one is believed.
fn falsify(records: &[Record], chance: &SeededRandom) -> usize {
    let mut noticed = 0;
    for (name, lie) in LIES {
        let mut told = 0;
        for _ in 0..100_000 {
            let mut bytes = [0; 8];
            chance.fill(&mut bytes);
            let index = usize::from_le_bytes(bytes) % records.len();
            let Some(false_records) = lie(records, index) else { continue };
            assert!(
                check(&false_records, Order::OfStore).is_err(),
                "{name} at {index} was not noticed"
            );
            told += 1;
            if told == FALSIFIED {
                break;
            }
        }
        assert_eq!(told, FALSIFIED, "a history of this size has places for {name}");
        noticed += told;
    }
    noticed
}

/// The records of one partition: the others need not be checked again.
fn of_partition(records: &[Record], partition: usize) -> impl Iterator<Item = &Record> {
    records.iter().filter(move |record| record.partition == partition)
}

/// The records of its partition, with another answer in this one.
fn with_answer(records: &[Record], of: &Record, answer: &Answer) -> Vec<Record> {
    let swap = |record: &Record| {
        let mut record = record.clone();
        if record.began == of.began {
            record.answer = answer.clone();
        }
        record
    };
    of_partition(records, of.partition).map(swap).collect()
}

/// A version of a row that had been replaced before a time, by a write that was acknowledged then.
fn outdated(records: &[Record], partition: usize, row: Row, before: u64) -> Option<Version> {
    let mut seen: BTreeMap<Timestamp, Version> = BTreeMap::new();
    let mut latest = None;
    for record in of_partition(records, partition).filter(|record| record.ended < before) {
        match (&record.call, &record.answer) {
            (Call::Read(read), Answer::Read(Some(version))) if *read == row => {
                seen.insert(version.tag, *version);
            }
            (Call::Write(writes), Answer::Done(tags)) => {
                let of_row = writes.iter().zip(tags).filter(|(write, _)| write.row == row);
                latest = latest.max(of_row.filter_map(|(_, tag)| *tag).max());
            }
            _ => {}
        }
    }
    seen.range(..latest?).next_back().map(|(_, version)| *version)
}

fn stale_read(records: &[Record], index: usize) -> Option<Vec<Record>> {
    let record = &records[index];
    let Call::Read(row) = record.call else { return None };
    let old = outdated(records, record.partition, row, record.began)?;
    Some(with_answer(records, record, &Answer::Read(Some(old))))
}

/// Two rows of a snapshot come from one batch: one of them becomes what it was before.
fn half_batch(records: &[Record], index: usize) -> Option<Vec<Record>> {
    let record = &records[index];
    let Answer::Query(rows) = &record.answer else { return None };
    let shares = |version: &Version| rows.values().filter(|other| other.tag == version.tag).count();
    let (row, version) = rows.iter().find(|(_, version)| shares(version) > 1)?;
    let old = outdated(records, record.partition, *row, record.began)?;
    if version.tag <= old.tag {
        return None;
    }
    let mut rows = rows.clone();
    rows.insert(*row, old);
    Some(with_answer(records, record, &Answer::Query(rows)))
}

fn early_tag(records: &[Record], index: usize) -> Option<Vec<Record>> {
    let record = &records[index];
    let Answer::Done(tags) = &record.answer else { return None };
    let [Some(_)] = tags.as_slice() else { return None };
    let earlier =
        of_partition(records, record.partition).filter(|other| other.ended < record.began);
    let earlier = earlier.filter_map(|other| match &other.answer {
        Answer::Done(tags) => tags.iter().flatten().min(),
        _ => None,
    });
    let tag = *earlier.max()?;
    Some(with_answer(records, record, &Answer::Done(vec![Some(tag)])))
}

/// A write that was acknowledged and seen never happened: whoever saw it has no explanation.
fn lost_write(records: &[Record], index: usize) -> Option<Vec<Record>> {
    let record = &records[index];
    let Answer::Done(tags) = &record.answer else { return None };
    let [Some(tag)] = tags.as_slice() else { return None };
    let saw = |other: &Record| match &other.answer {
        Answer::Read(Some(version)) => version.tag == *tag,
        Answer::Query(rows) => rows.values().any(|version| version.tag == *tag),
        _ => false,
    };
    of_partition(records, record.partition).find(|other| saw(other))?;
    let others = of_partition(records, record.partition).filter(|o| o.began != record.began);
    Some(others.cloned().collect())
}
