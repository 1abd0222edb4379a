//! Whatever is wrong with the bytes of a backup is noticed, and told apart.

use crate::support;
use crate::support::{DAY, World, look};
use proptest::prelude::*;
use rowhouse_service_backup::{BackupError, FORMAT_VERSION, FileError, Part, Reader};
use rowhouse_store::{Batch, Command, Condition, Index, Message, MessageAction, Ttl, Write};
use rowhouse_types::{EntityKey, Guid, RecordBuilder, Timestamp, ValueRef};
use std::sync::OnceLock;
use std::time::Duration;

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.unwrap().block_on(future)
}

/// The same with queues and messages.
fn queue_samples() -> &'static [Vec<u8>; 2] {
    static SAMPLES: OnceLock<[Vec<u8>; 2]> = OnceLock::new();
    SAMPLES.get_or_init(|| {
        block_on(async {
            let world = World::without_master_key(2);
            world.account("acct").await;
            let table = world.table("acct", "Table").await;
            world.put(table.id, "p", "r1", 1).await;
            let jobs = world.queue("acct", "jobs").await;
            world.queue("acct", "empty").await;
            world.post(jobs, 1, "first", 0, Some(1000)).await;
            world.post(jobs, 2, "zweite é", 30, None).await;
            let take = MessageAction::Take { limit: 1, hide_seconds: 10 };
            world.store.commit(Batch::of_message(jobs, take)).await.unwrap();
            world.store.keep_changes(Some(DAY)).await.unwrap();
            let full = world.full().await;
            world.put(table.id, "p", "r1", 3).await;
            world.store.commit(Batch::of_message(jobs, MessageAction::Clear)).await.unwrap();
            world.post(jobs, 3, "third", 0, None).await;
            let increment = world.since(&full).await;
            [full, increment]
        })
    })
}

/// A full backup and an incremental one.
fn samples() -> &'static [Vec<u8>; 2] {
    static SAMPLES: OnceLock<[Vec<u8>; 2]> = OnceLock::new();
    SAMPLES.get_or_init(|| {
        block_on(async {
            let world = World::without_master_key(1);
            world.account("acct").await;
            let table = world.table("acct", "Table").await;
            world.put(table.id, "p", "r1", 1).await;
            world.put(table.id, "p", "r2", 2).await;
            world.index(table.id, "by-n", &["n", "PartitionKey"], false).await;
            world.index(table.id, "one", &["Näme", "n"], true).await;
            let ttl = Ttl { property: Some("Until".into()), after: Duration::from_mins(1) };
            world.store.set_ttl(table.id, Some(ttl)).await.unwrap();
            world.store.keep_changes(Some(DAY)).await.unwrap();
            let full = world.full().await;
            world.put(table.id, "p", "r1", 3).await;
            world.delete(table.id, "p", "r2").await;
            let increment = world.since(&full).await;
            [full, increment]
        })
    })
}

fn offence(bytes: &[u8]) -> FileError {
    match block_on(look(bytes)) {
        Err(BackupError::File(error)) => error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn any_flipped_bit_is_noticed() {
    for sample in samples().iter().chain(queue_samples()) {
        for bit in 0..sample.len() * 8 {
            let mut bytes = sample.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let error = offence(&bytes);
            match bit / 8 {
                0..8 => assert!(matches!(error, FileError::Foreign), "{bit}: {error}"),
                8..12 => assert!(
                    matches!(error, FileError::Newer { .. } | FileError::Damaged { .. }),
                    "{bit}: {error}"
                ),
                _ => assert!(
                    matches!(error, FileError::Damaged { .. } | FileError::Truncated { .. }),
                    "{bit}: {error}"
                ),
            }
        }
    }
}

#[test]
fn any_cut_is_noticed() {
    for sample in samples().iter().chain(queue_samples()) {
        for length in 1..sample.len() {
            let error = offence(&sample[..length]);
            assert!(matches!(error, FileError::Truncated { at } if at == length as u64), "{error}");
        }
        let longer = [&sample[..], b"\0"].concat();
        assert!(
            matches!(offence(&longer), FileError::Overlong { at } if at == sample.len() as u64)
        );
        let twice = [&sample[..], sample].concat();
        assert!(matches!(offence(&twice), FileError::Overlong { .. }));
    }
}

#[test]
fn other_files_are_told_from_backups() {
    let strangers: [&[u8]; 4] = [b"", b"SQLite format 3\0and more", b"{\"a\":1}\n", &[0; 100]];
    for bytes in strangers {
        let error = offence(bytes);
        assert_eq!(error.to_string(), "is not a Rowhouse backup");
    }
    let mut newer = samples()[0].clone();
    newer[8..12].copy_from_slice(&(FORMAT_VERSION + 1).to_le_bytes());
    let sentence = offence(&newer).to_string();
    assert!(sentence.contains("newer release (format 4, this one reads up to 3)"), "{sentence}");
}

/// Lengths are judged before anything is allocated.
#[test]
fn a_frame_that_claims_to_be_huge_is_not_believed() {
    for at in [13, 17] {
        let mut bytes = samples()[0][..21].to_vec();
        bytes[at..at + 4].copy_from_slice(&u32::MAX.to_le_bytes());
        let sentence = offence(&bytes).to_string();
        assert!(sentence.contains("longer than frames are"), "{sentence}");
    }
}

/// Frames of two backups do not mix, nor does the order of frames change.
#[test]
fn frames_stay_where_they_were_written() {
    for samples in [samples(), queue_samples()] {
        frames_of_one_stay(samples);
    }
}

fn frames_of_one_stay([full, increment]: &[Vec<u8>; 2]) {
    let frames = frames_of(full);
    for left in 0..frames.len() {
        for right in 0..frames.len() {
            let mut order = frames.clone();
            order.swap(left, right);
            let bytes = [&full[..12], &order.concat()].concat();
            assert_eq!(left == right, block_on(look(&bytes)).is_ok(), "{left} {right}");
        }
        let mut without = frames.clone();
        without.remove(left);
        assert!(block_on(look(&[&full[..12], &without.concat()].concat())).is_err(), "{left}");
    }
    let mut mixed = frames_of(increment);
    mixed[0] = frames[0];
    assert!(block_on(look(&[&full[..12], &mixed.concat()].concat())).is_err());
}

fn frames_of(backup: &[u8]) -> Vec<&[u8]> {
    let mut frames = Vec::new();
    let mut rest = &backup[12..];
    while !rest.is_empty() {
        let stored = u32::from_le_bytes(rest[5..9].try_into().unwrap());
        let (frame, after) = rest.split_at(9 + usize::try_from(stored).unwrap() + 8);
        frames.push(frame);
        rest = after;
    }
    frames
}

/// Large entities, many of them: frames stay within their bounds, and everything is there.
#[tokio::test]
async fn large_entities_fit() {
    let (old, new) = (World::new(1), World::new(2));
    old.account("acct").await;
    let table = old.table("acct", "Table").await;
    let text = "\u{ffff}".repeat(32 * 1024);
    for row in 0..4 {
        let mut builder = RecordBuilder::new();
        for property in 0..15 {
            builder.push(&format!("p{property}"), ValueRef::String(&text)).unwrap();
        }
        let write = Write::Put(builder.finish(Timestamp::EDM_MIN));
        let key = EntityKey::new("p", &format!("{row}")).unwrap();
        let command = Command::Entity { table: table.id, key, condition: Condition::Any, write };
        old.store.commit(Batch::of(command)).await.unwrap();
    }
    new.restore(&[&old.full().await]).await.unwrap();
    assert_eq!(new.dump().await, old.dump().await);
}

/// Keys of accounts as the store has them.
async fn keys(world: &World) -> [Box<[u8]>; 2] {
    world.store.account(&"acct".parse().unwrap()).await.unwrap().unwrap().keys.clone()
}

/// Keys may be absent. Everything else is there, of the full one and of the incremental one.
#[tokio::test]
async fn the_third_format_is_read() {
    let full = include_bytes!("../fixtures/v3-full.rhb");
    let increment = include_bytes!("../fixtures/v3-incremental.rhb");
    assert_eq!(full[8..12], [3, 0, 0, 0]);
    for (chain, entities) in [(&[&full[..]][..], 2), (&[&full[..], increment], 1)] {
        let new = World::new(7);
        let restored = new.restore(chain).await.unwrap();
        assert_eq!((restored.accounts, restored.indexes), (1, 2));
        assert_eq!(keys(&new).await, [Box::from([2]), Box::from([2])]);
        let table = new.find("acct", "Table").await.unwrap();
        assert_eq!(new.entities(table.id).await.len(), entities);
    }
    let full = include_bytes!("../fixtures/v3-queues-full.rhb");
    let queues = include_bytes!("../fixtures/v3-queues-incremental.rhb");
    let chains = [(&[&full[..]][..], (2, 1), "first"), (&[&full[..], queues], (1, 2), "third")];
    for (chain, counts, text) in chains {
        let new = World::new(7);
        let restored = new.restore(chain).await.unwrap();
        assert_eq!((restored.queues, (restored.messages, restored.items)), (2, counts));
        let account = new.store.account(&"acct".parse().unwrap()).await.unwrap().unwrap().id;
        let jobs = new.store.queue(account, &"jobs".parse().unwrap()).await.unwrap().unwrap().id;
        assert_eq!(&*new.messages(jobs).await[0].text, text);
    }
    // The last one tells what there is of keys, whatever those before it held.
    let (old, new) = (World::new(1), World::new(7));
    let before = include_bytes!("../fixtures/v2-full.rhb");
    old.restore(&[before]).await.unwrap();
    assert_eq!(keys(&old).await, stored());
    new.restore(&[before, increment]).await.unwrap();
    assert_eq!(keys(&new).await, [Box::from([2]), Box::from([2])]);
}

/// Keys in the fixtures of formats 1 and 2, which were written without a master key: they come back as they were.
fn stored() -> [Box<[u8]>; 2] {
    [Box::from(*b"\0acct 1"), Box::from(*b"\0acct 2")]
}

/// With the definitions of indexes, and when entities expire.
#[tokio::test]
async fn the_second_format_is_read() {
    let full = include_bytes!("../fixtures/v2-full.rhb");
    let increment = include_bytes!("../fixtures/v2-incremental.rhb");
    assert_eq!(full[8..12], [2, 0, 0, 0]);
    let new = World::new(7);
    let restored = new.restore(&[full, increment]).await.unwrap();
    assert_eq!((restored.indexes, restored.indexes_left_out), (2, 0));
    assert_eq!(keys(&new).await, stored());
    let table = new.find("acct", "Table").await.unwrap();
    let declared: Vec<_> = table
        .indexes
        .iter()
        .map(|Index { name, keys, .. }| (name.as_str(), keys.properties.join(","), keys.unique))
        .collect();
    let expected = [("by-n", "n,PartitionKey", false), ("one", "Näme,n", true)];
    assert_eq!(declared, expected.map(|(name, of, unique)| (name, of.to_owned(), unique)));
    let until = Ttl { property: Some("Until".into()), after: Duration::from_mins(1) };
    assert_eq!(table.ttl, Some(until));
    assert_eq!(new.entities(table.id).await.len(), 1);
}

/// With queues and their messages; those of the last backup are restored.
#[tokio::test]
async fn queues_are_read() {
    let full = include_bytes!("../fixtures/v2-queues-full.rhb");
    let increment = include_bytes!("../fixtures/v2-queues-incremental.rhb");
    assert_eq!(full[8..12], [2, 0, 0, 0]);
    let (new, later) = (World::new(7), World::new(8));
    let restored = new.restore(&[full]).await.unwrap();
    assert_eq!((restored.queues, restored.messages, restored.items), (2, 2, 1));
    let account = new.store.account(&"acct".parse().unwrap()).await.unwrap().unwrap().id;
    let queues = new.store.queues(account, "", 10).await.unwrap();
    let names: Vec<_> = queues.iter().map(|queue| queue.name.as_str()).collect();
    assert_eq!(names, ["empty", "jobs"]);
    let metadata = [("Zone".into(), "x".into()), ("a".into(), "".into())];
    assert_eq!(queues[1].metadata, metadata);
    let messages = new.messages(queues[1].id).await;
    let told: Vec<_> = messages
        .iter()
        .map(|message| {
            let Message { text, inserted, expires, visible, taken, receipt, .. } = message;
            let hidden = visible.ticks() - receipt.ticks();
            (&**text, inserted.ticks(), *expires == Timestamp::MAX, hidden, *taken)
        })
        .collect();
    let start = 504_911_232_020_000_000;
    assert_eq!(
        told,
        [
            ("first", start + 1, false, 100_000_000, 1),
            ("zweite é", start + 2, true, 300_000_000, 0),
        ]
    );
    assert_eq!(messages[0].receipt.ticks(), start + 3);
    assert_eq!(messages[0].expires, messages[0].inserted.plus_seconds(1000));

    let restored = later.restore(&[full, increment]).await.unwrap();
    assert_eq!((restored.queues, restored.messages, restored.items), (2, 1, 2));
    let account = later.store.account(&"acct".parse().unwrap()).await.unwrap().unwrap().id;
    let jobs = later.store.queue(account, &"jobs".parse().unwrap()).await.unwrap().unwrap().id;
    assert_eq!(&*later.messages(jobs).await[0].text, "third");
}

/// Backups are read for ever: this one was written by the first release that could.
#[tokio::test]
async fn the_first_format_is_read() {
    let full = include_bytes!("../fixtures/v1-full.rhb");
    let increment = include_bytes!("../fixtures/v1-incremental.rhb");
    let survey = look(full).await.unwrap();
    assert_eq!(survey.header.id, Guid::parse("c15c0289-ec2d-4a91-a7ec-8e65a18debbe").unwrap());
    assert_eq!(survey.header.taken.iso7(), "1601-01-01T00:00:01.0000000Z");
    assert_eq!(survey.totals.entities, 2);
    let new = World::new(7);
    new.restore(&[full, increment]).await.unwrap();
    assert_eq!(keys(&new).await, stored());
    let table = new.find("acct", "Table").await.unwrap();
    assert!(table.indexes.is_empty() && table.ttl.is_none());
    let entities = new.entities(table.id).await;
    let [(key, record)] = &entities[..] else { panic!("{entities:?}") };
    assert_eq!(key, "\"p\" \"r1\"");
    let mut expected = support::record(3);
    expected.stamp(Timestamp::from_ticks(504_911_232_010_000_002).unwrap());
    assert_eq!(record, expected.as_bytes());
}

/// Writes the fixtures; run once for each format.
#[test]
#[ignore = "writes files"]
fn write_fixtures() {
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    std::fs::create_dir_all(&directory).unwrap();
    let [full, increment] = samples();
    let name = |kind: &str| directory.join(format!("v{FORMAT_VERSION}-{kind}.rhb"));
    std::fs::write(name("full"), full).unwrap();
    std::fs::write(name("incremental"), increment).unwrap();
    let [full, increment] = queue_samples();
    std::fs::write(name("queues-full"), full).unwrap();
    std::fs::write(name("queues-incremental"), increment).unwrap();
}

proptest! {
    /// Any bytes behind a good beginning end in an error, not in a panic.
    #[test]
    fn any_bytes_are_judged(
        keep in 0..400_usize,
        tail in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let sample = &samples()[0];
        let bytes = [&sample[..keep.min(sample.len())], &tail[..]].concat();
        let _ = block_on(look(&bytes));
    }

    /// A reader takes its backup, and leaves what is behind it.
    #[test]
    fn what_follows_is_left(tail in proptest::collection::vec(any::<u8>(), 0..20)) {
        let bytes = [&samples()[1][..], &tail].concat();
        block_on(async {
            let mut reader = Reader::begin(&bytes[..]).await.unwrap();
            while !matches!(reader.next().await.unwrap(), Part::End(_)) {}
            assert_eq!(reader.into_inner(), &tail[..]);
        });
    }
}
