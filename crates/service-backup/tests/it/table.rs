//! Single tables under new names, into a store that is in use.

use crate::support::stopping::Stopping;
use crate::support::{DAY, World, look};
use rowhouse_env::Clock as _;
use rowhouse_service_backup::{
    BackupError, RestoredTable, TableChoice, check_times, restore_table,
};
use rowhouse_store::{Conflict, Table, Ttl};
use rowhouse_types::Timestamp;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, ReadBuf};

fn choice(from: (&str, &str), into: (&str, &str)) -> TableChoice {
    TableChoice {
        from_account: from.0.parse().unwrap(),
        from_table: from.1.parse().unwrap(),
        into_account: into.0.parse().unwrap(),
        into_table: into.1.parse().unwrap(),
        until: None,
        expired_by: None,
    }
}

const PEOPLE: (&str, &str) = ("first", "People");
const INTO: (&str, &str) = ("second", "Old");

#[tokio::test]
async fn a_table_comes_back_under_a_new_name() {
    let world = World::new(1);
    world.fill().await;
    let backup = world.full().await;
    let people = world.find("first", "People").await.unwrap();
    let then = world.entities(people.id).await;
    world.put(people.id, "p0", "0000", 1000).await;
    for into in [("first", "Old"), ("second", "Old"), ("second", "OLD2")] {
        let restored = world.service().restore_table(choice(PEOPLE, into), &backup[..]).await;
        let restored = restored.unwrap();
        assert_eq!((restored.items, restored.indexes, restored.indexes_left_out), (300, 2, 0));
        let table = world.find(into.0, into.1).await.unwrap();
        assert_eq!(world.entities(table.id).await, then);
        assert_eq!((&table.policies, &table.placement), (&people.policies, &people.placement));
        let declared = |table: &Table| {
            let indexes = table.indexes.iter();
            indexes.map(|index| (index.name.clone(), index.keys.clone())).collect::<Vec<_>>()
        };
        assert_eq!(declared(&table), declared(&people));
        assert_eq!(table.name.as_str(), into.1);
    }
}

#[tokio::test]
async fn what_cannot_be_restored_is_told() {
    let world = World::new(1);
    world.fill().await;
    let backup = world.full().await;
    let before = world.dump().await;
    let cases = [
        (choice(PEOPLE, ("first", "people")), "there is a table people already"),
        (choice(PEOPLE, ("nobody", "Old")), "no account nobody"),
        (choice(("first", "Things"), ("first", "Old")), "no table Things in an account first"),
        (choice(("third", "People"), ("first", "Old")), "no table People in an account third"),
    ];
    for (choice, expected) in cases {
        let error = world.service().restore_table(choice, &backup[..]).await.unwrap_err();
        assert!(error.to_string().contains(expected), "{expected}: {error}");
        assert_eq!(world.dump().await, before, "{expected}");
    }
}

#[tokio::test]
async fn incremental_backups_follow_in_the_same_stream() {
    let world = World::new(1);
    world.fill().await;
    world.store.keep_changes(Some(DAY)).await.unwrap();
    let full = world.full().await;
    let things = world.find("second", "Things").await.unwrap();
    world.put(things.id, "more", "", 1).await;
    let first = world.since(&full).await;
    let then = world.entities(things.id).await;
    world.store.drop_table(things.id).await.unwrap();
    let second = world.since(&first).await;
    let again = world.table("second", "Things").await;
    world.put(again.id, "again", "", 2).await;
    let third = world.since(&second).await;

    let things = ("second", "Things");
    let restore = async |into: &str, files: &[&[u8]]| {
        let bytes = files.concat();
        world.service().restore_table(choice(things, ("first", into)), &bytes[..]).await
    };
    restore("One", &[&full, &first]).await.unwrap();
    let one = world.find("first", "One").await.unwrap();
    assert_eq!(world.entities(one.id).await, then);
    let dropped = restore("Two", &[&full, &first, &second]).await;
    assert!(matches!(dropped, Err(BackupError::NoSuchTable { .. })), "{dropped:?}");
    assert!(world.find("first", "Two").await.is_none());
    assert_eq!(restore("Three", &[&full, &first, &second, &third]).await.unwrap().items, 1);
    let three = world.find("first", "Three").await.unwrap();
    assert_eq!(world.entities(three.id).await, world.entities(again.id).await);
    for wrong in [&[&first[..]][..], &[&full, &second], &[&full, &full]] {
        assert!(restore("Four", wrong).await.is_err());
        assert!(world.find("first", "Four").await.is_none());
    }
}

/// What fails takes back what it has made, wherever the bytes end.
#[tokio::test]
async fn half_a_backup_leaves_nothing() {
    let world = World::new(1);
    world.fill().await;
    let backup = world.full().await;
    let before = world.dump().await;
    for length in (0..backup.len()).step_by(101) {
        let choice = choice(PEOPLE, ("second", "Old"));
        let failed = world.service().restore_table(choice, &backup[..length]).await;
        assert!(matches!(failed, Err(BackupError::File(_))), "{length}: {failed:?}");
        assert_eq!(world.dump().await, before, "{length}");
    }
}

/// What a client sends whose connection breaks after so many bytes.
fn broken_off(bytes: &[u8], after: usize) -> impl AsyncRead + Unpin {
    struct Broken;
    impl AsyncRead for Broken {
        fn poll_read(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            _: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()))
        }
    }
    bytes[..after].chain(Broken)
}

/// Wherever the connection breaks, nothing half is taken for a table, and the same goes on.
#[tokio::test]
async fn a_restore_that_was_broken_off_goes_on() {
    let world = World::new(1);
    world.fill().await;
    world.store.keep_changes(Some(DAY)).await.unwrap();
    let full = world.full().await;
    let people = world.find("first", "People").await.unwrap();
    for n in 0..40 {
        world.put(people.id, "new", &format!("{n}"), n).await;
        world.put(people.id, "p0", "0000", n).await;
        if n % 3 == 0 {
            world.delete(people.id, "new", &format!("{n}")).await;
        }
    }
    let chain = [full.clone(), world.since(&full).await].concat();
    let then = world.entities(people.id).await;
    let into = ("second", "Old");
    let before = world.dump().await;
    let mut resumed = 0;
    for after in (0..chain.len()).step_by(61) {
        let broken = broken_off(&chain, after);
        let failed = world.service().restore_table(choice(PEOPLE, into), broken).await.unwrap_err();
        let half = world.find(into.0, into.1).await;
        let is_kept = matches!(failed, BackupError::Halted { .. });
        assert_eq!(half.is_some(), is_kept, "{after}: {failed}");
        assert!(half.is_none_or(|table| !table.is_whole()), "{after}");
        let restored = world.service().restore_table(choice(PEOPLE, into), &chain[..]).await;
        let restored = restored.unwrap();
        assert_eq!(restored.resumed, is_kept, "{after}");
        resumed += usize::from(is_kept);
        let table = world.find(into.0, into.1).await.unwrap();
        assert!(table.is_whole() && table.policies == people.policies, "{after}");
        assert_eq!(world.entities(table.id).await, then, "{after}");
        world.store.drop_table(table.id).await.unwrap();
        assert_eq!(world.dump().await, before, "{after}: nothing else is left");
    }
    assert!(resumed > 10, "{resumed}");
}

/// Whichever change of the catalogue is the last that a server makes, nothing half is taken for a table, and the same goes on:
/// also where a unique value has moved from one entity to another, and the changes could not be made once more under the index.
#[tokio::test]
async fn a_restore_whose_server_was_killed_goes_on() {
    let world = World::new(1);
    world.fill().await;
    world.store.keep_changes(Some(DAY)).await.unwrap();
    let unique = world.table("first", "Unique").await;
    world.index(unique.id, "by-n", &["n"], true).await;
    let full = world.full().await;
    for (row, n) in [("a", 1), ("a", 2), ("b", 1)] {
        world.put(unique.id, "p", row, n).await;
    }
    let chain = [full.clone(), world.since(&full).await].concat();
    let before = world.dump().await;
    for from in [PEOPLE, ("first", "Unique")] {
        let original = world.find(from.0, from.1).await.unwrap();
        let then = world.entities(original.id).await;
        for changes in 0.. {
            let stopping = Stopping::after(changes, &world.store);
            let stopped = restore_table(stopping, choice(from, INTO), &chain[..]).await;
            let left = world.find(INTO.0, INTO.1).await;
            if stopped.is_err() {
                assert!(left.is_none_or(|table| !table.is_whole()), "{from:?} {changes}");
                let store = Arc::clone(&world.store);
                let again = restore_table(store, choice(from, INTO), &chain[..]).await;
                assert!(again.is_ok(), "{from:?} {changes}: {again:?}");
            }
            let table = world.find(INTO.0, INTO.1).await.unwrap();
            assert!(table.is_whole() && table.policies == original.policies, "{changes}");
            assert_eq!(table.indexes.len(), original.indexes.len(), "{from:?} {changes}");
            assert_eq!(world.entities(table.id).await, then, "{from:?} {changes}");
            world.store.drop_table(table.id).await.unwrap();
            assert_eq!(world.dump().await, before, "{from:?} {changes}: nothing else is left");
            if stopped.is_ok() {
                assert!(changes > 3, "{from:?} {changes}");
                break;
            }
        }
    }
}

/// Where all was in but the settings of the original, another incremental backup cannot follow any more.
#[tokio::test]
async fn nothing_follows_the_last_backup() {
    let world = World::new(1);
    world.fill().await;
    world.store.keep_changes(Some(DAY)).await.unwrap();
    let full = world.full().await;
    let people = world.find(PEOPLE.0, PEOPLE.1).await.unwrap();
    world.put(people.id, "new", "", 1).await;
    let chain = [full.clone(), world.since(&full).await].concat();
    // The table is made, and marked as complete; its first index is not declared.
    let stopping = Stopping::after(2, &world.store);
    let stopped = restore_table(stopping, choice(PEOPLE, INTO), &full[..]).await;
    assert!(matches!(stopped, Err(BackupError::Halted { .. })), "{stopped:?}");
    let restore = || world.service().restore_table(choice(PEOPLE, INTO), &chain[..]);
    let refused = restore().await;
    assert!(matches!(refused, Err(BackupError::OtherChain(_))), "{refused:?}");
    assert!(world.find(INTO.0, INTO.1).await.is_none());
    assert_eq!(restore().await.unwrap().items, 301);
}

/// A table that was itself half when the backup was taken does not come back as if it were whole; once it is whole in a
/// backup that follows, it does.
#[tokio::test]
async fn half_a_table_in_a_backup_is_told() {
    let world = World::new(1);
    world.store.keep_changes(Some(DAY)).await.unwrap();
    let first = large(&world).await;
    let broken = broken_off(&first, first.len() * 3 / 4);
    let halted = world.service().restore_table(choice(LARGE, INTO), broken).await;
    assert!(matches!(halted, Err(BackupError::Halted { .. })), "{halted:?}");
    let second = world.full().await;
    world.service().restore_table(choice(LARGE, INTO), &first[..]).await.unwrap();
    let chain = [second.clone(), world.since(&second).await].concat();
    let before = world.dump().await;
    let again = choice(INTO, ("first", "Again"));
    let refused = world.service().restore_table(again.clone(), &second[..]).await;
    assert!(matches!(refused, Err(BackupError::NotWhole { .. })), "{refused:?}");
    assert_eq!(world.dump().await, before, "nothing is left");
    world.service().restore_table(again, &chain[..]).await.unwrap();
    let table = world.find("first", "Again").await.unwrap();
    assert!(table.is_whole());
    assert_eq!(world.entities(table.id).await.len(), 20);
}

/// What is in the table already is not written again, and only what was is counted.
#[tokio::test]
async fn a_large_table_goes_on_where_it_was() {
    const ENTITIES: u64 = 600;
    let world = World::new(1);
    world.fill().await;
    let large = world.table("first", "Large").await;
    for n in 0..ENTITIES {
        world.put_large(large.id, "p", &format!("{n:04}"), 60_000).await;
    }
    let then = world.entities(large.id).await;
    let backup = world.full().await;
    let into = ("second", "Old");
    let restore = || choice(("first", "Large"), into);
    let broken = broken_off(&backup, backup.len() * 9 / 10);
    world.service().restore_table(restore(), broken).await.unwrap_err();
    let half = world.find(into.0, into.1).await.unwrap();
    assert!(half.half().is_some_and(|half| half.parts > 128), "{half:?}");
    let restored = world.service().restore_table(restore(), &backup[..]).await.unwrap();
    assert!(restored.resumed && restored.items < ENTITIES / 2, "{restored:?}");
    let whole = world.find(into.0, into.1).await.unwrap();
    assert_eq!((whole.id, whole.is_whole()), (half.id, true));
    assert_eq!(world.entities(whole.id).await, then);
}

/// A half that was begun with other incremental backups is not gone on with.
#[tokio::test]
async fn a_half_of_other_backups_is_told_from_this_one() {
    let world = World::new(1);
    world.fill().await;
    world.store.keep_changes(Some(DAY)).await.unwrap();
    let full = world.full().await;
    let people = world.find("first", "People").await.unwrap();
    let then = world.entities(people.id).await;
    world.put(people.id, "more", "", 1).await;
    let [first, second] = [world.since(&full).await, world.since(&full).await];
    let into = ("second", "Old");
    let restore =
        async |bytes: &[u8]| world.service().restore_table(choice(PEOPLE, into), bytes).await;
    let begin = async |bytes: &[u8]| {
        let broken = broken_off(bytes, bytes.len() - 8);
        let halted = world.service().restore_table(choice(PEOPLE, into), broken).await;
        assert!(matches!(halted, Err(BackupError::Halted { .. })), "{halted:?}");
    };
    for other in [full.clone(), [full.clone(), second].concat()] {
        begin(&[&full[..], &first].concat()).await;
        let refused = restore(&other).await;
        assert!(matches!(refused, Err(BackupError::OtherChain(_))), "{refused:?}");
        assert!(world.find(into.0, into.1).await.is_none());
    }
    begin(&full).await;
    let refused = restore(&world.full().await).await;
    assert!(matches!(refused, Err(BackupError::OtherHalf { .. })), "{refused:?}");
    assert!(restore(&full).await.unwrap().resumed);
    let whole = world.find(into.0, into.1).await.unwrap();
    assert_eq!(world.entities(whole.id).await, then);
    let again = restore(&full).await;
    assert!(matches!(again, Err(BackupError::TableExists(_))), "it is whole now: {again:?}");
}

/// An attempt through another server, as slow as its client.
struct Slow<'a> {
    client: DuplexStream,
    restoring: Pin<Box<dyn Future<Output = Result<RestoredTable, BackupError>> + 'a>>,
}

impl<'a> Slow<'a> {
    /// Sends what comes first.
    async fn begin(world: &'a World, choice: TableChoice, beginning: &[u8]) -> Self {
        let (mut client, source) = tokio::io::duplex(beginning.len() + 1024 * 1024);
        client.write_all(beginning).await.unwrap();
        let store = Arc::clone(&world.store);
        Self { client, restoring: Box::pin(restore_table(store, choice, source)) }
    }

    /// Goes on until that is so, which it is before the rest is sent.
    async fn until(&mut self, is_so: impl AsyncFn() -> bool) {
        while !is_so().await {
            let step = tokio::time::timeout(Duration::from_millis(1), &mut self.restoring);
            let ended = step.await;
            assert!(ended.is_err(), "it waits for the rest: {ended:?}");
        }
    }

    /// Sends the rest.
    async fn end(mut self, rest: &[u8]) -> Result<RestoredTable, BackupError> {
        self.client.write_all(rest).await.unwrap();
        drop(self.client);
        self.restoring.await
    }
}

const LARGE: (&str, &str) = ("first", "Large");

/// A backup with a table of several frames.
async fn large(world: &World) -> Vec<u8> {
    world.fill().await;
    let table = world.table(LARGE.0, LARGE.1).await;
    for n in 0..20 {
        world.put_large(table.id, "p", &format!("{n:04}"), 60_000).await;
    }
    world.full().await
}

/// An attempt does not go on when another server has begun a later one: not even with what it has received since.
#[tokio::test]
async fn of_two_attempts_the_later_one_ends() {
    let world = World::new(1);
    let backup = large(&world).await;
    for sent in [backup.len() / 2, backup.len() * 3 / 4, backup.len() - 8] {
        let (beginning, rest) = backup.split_at(sent);
        let mut early = Slow::begin(&world, choice(LARGE, INTO), beginning).await;
        early.until(async || world.find(INTO.0, INTO.1).await.is_some()).await;
        let store = Arc::clone(&world.store);
        let later = restore_table(store, choice(LARGE, INTO), &backup[..]).await;
        assert!(later.unwrap().resumed);
        let table = world.find(INTO.0, INTO.1).await.unwrap();
        assert!(table.is_whole());
        for n in 0..20 {
            world.put(table.id, "p", &format!("{n:04}"), n).await;
        }
        let then = world.entities(table.id).await;
        let early = early.end(rest).await;
        assert!(matches!(early, Err(BackupError::TakenOver(_))), "{sent}: {early:?}");
        let table = world.find(INTO.0, INTO.1).await.unwrap();
        assert!(table.is_whole());
        assert_eq!(world.entities(table.id).await, then, "{sent}: what clients wrote is there");
        world.store.drop_table(table.id).await.unwrap();
    }
}

/// Nor does it drop what is no longer its half, whatever is wrong with what it is sent.
#[tokio::test]
async fn an_attempt_that_fails_late_drops_nothing_of_others() {
    let world = World::new(1);
    let backup = large(&world).await;
    let (beginning, rest) = backup.split_at(backup.len() * 3 / 4);
    let damaged: Vec<u8> = rest.iter().map(|byte| !byte).collect();
    for wrong in [&damaged[..], &[]] {
        let mut early = Slow::begin(&world, choice(LARGE, INTO), beginning).await;
        early.until(async || world.find(INTO.0, INTO.1).await.is_some()).await;
        let store = Arc::clone(&world.store);
        restore_table(store, choice(LARGE, INTO), &backup[..]).await.unwrap();
        let early = early.end(wrong).await;
        assert!(matches!(early, Err(BackupError::TakenOver(_))), "{early:?}");
        let table = world.find(INTO.0, INTO.1).await.expect("the table is there");
        assert_eq!(world.entities(table.id).await.len(), 20);
        world.store.drop_table(table.id).await.unwrap();
    }
}

/// Nor the half that it found when it began, if that was finished meanwhile.
#[tokio::test]
async fn an_attempt_with_other_backups_drops_nothing_of_others() {
    let world = World::new(1);
    world.store.keep_changes(Some(DAY)).await.unwrap();
    let full = large(&world).await;
    let table = world.find(LARGE.0, LARGE.1).await.unwrap();
    world.put(table.id, "more", "", 1).await;
    let chain = [full.clone(), world.since(&full).await].concat();
    let restore =
        async |source| restore_table(Arc::clone(&world.store), choice(LARGE, INTO), source).await;
    let begun =
        restore(Box::new(broken_off(&chain, chain.len() - 8)) as Box<dyn AsyncRead + Unpin>);
    assert!(matches!(begun.await, Err(BackupError::Halted { .. })));
    let (beginning, rest) = full.split_at(full.len() - 8);
    let mut other = Slow::begin(&world, choice(LARGE, INTO), beginning).await;
    let step = tokio::time::timeout(Duration::from_millis(50), &mut other.restoring).await;
    assert!(step.is_err(), "it waits for the rest");
    assert!(restore(Box::new(&chain[..])).await.unwrap().resumed);
    let other = other.end(rest).await;
    assert!(matches!(other, Err(BackupError::TakenOver(_))), "{other:?}");
    let table = world.find(INTO.0, INTO.1).await.expect("the table is there");
    assert!(table.is_whole());
    assert_eq!(world.entities(table.id).await.len(), 21);
}

/// Whoever deletes the half gives it up: that is told, and nothing says that it could be gone on with.
#[tokio::test]
async fn a_half_that_was_deleted_meanwhile_is_told() {
    let world = World::new(1);
    let backup = large(&world).await;
    let before = world.dump().await;
    let (beginning, rest) = backup.split_at(backup.len() / 2);
    let damaged: Vec<u8> = rest.iter().map(|byte| !byte).collect();
    let begin = async || {
        let mut early = Slow::begin(&world, choice(LARGE, INTO), beginning).await;
        early.until(async || world.find(INTO.0, INTO.1).await.is_some()).await;
        let half = world.find(INTO.0, INTO.1).await.unwrap();
        world.store.drop_table(half.id).await.unwrap();
        early
    };
    let early = begin().await.end(rest).await;
    assert!(matches!(early, Err(BackupError::TableGone(_))), "{early:?}");
    assert_eq!(world.dump().await, before);
    let early = begin().await.end(&damaged).await;
    assert!(matches!(early, Err(BackupError::File(_))), "nothing else is wrong: {early:?}");
    assert_eq!(world.dump().await, before);
    let early = begin().await;
    let theirs = world.table(INTO.0, INTO.1).await;
    let early = early.end(rest).await;
    assert!(matches!(early, Err(BackupError::TableGone(_))), "{early:?}");
    assert_eq!(world.find(INTO.0, INTO.1).await.unwrap().id, theirs.id);
    world.store.drop_table(theirs.id).await.unwrap();
    let store = Stopping::refusing(Conflict::TableNotFound, &world.store);
    let gone = restore_table(store, choice(LARGE, INTO), &backup[..]).await;
    assert!(matches!(gone, Err(BackupError::TableGone(_))), "{gone:?}");
}

/// What a store refuses it refuses again: there is nothing to go on with.
#[tokio::test]
async fn a_half_that_is_refused_is_dropped() {
    let world = World::new(1);
    world.fill().await;
    let backup = world.full().await;
    let before = world.dump().await;
    let store = Stopping::refusing(Conflict::NotUnique, &world.store);
    let refused = restore_table(store, choice(PEOPLE, INTO), &backup[..]).await;
    assert!(matches!(refused, Err(BackupError::Store(_))), "{refused:?}");
    assert_eq!(world.dump().await, before);
}

/// An earlier version may have left a note beside the empty table that it had made: that says nothing any more.
#[tokio::test]
async fn a_note_of_an_earlier_version_does_no_harm() {
    let world = World::new(1);
    world.fill().await;
    let backup = world.full().await;
    let account = world.store.account(&INTO.0.parse().unwrap()).await.unwrap().unwrap();
    let note = Some(Box::default());
    world.store.set_account_setting(account.id, None, "restoring old", note).await.unwrap();
    let restore = || world.service().restore_table(choice(PEOPLE, INTO), &backup[..]);
    let empty = world.table(INTO.0, INTO.1).await;
    let refused = restore().await;
    assert!(matches!(refused, Err(BackupError::TableExists(_))), "{refused:?}");
    world.store.drop_table(empty.id).await.unwrap();
    assert_eq!(restore().await.unwrap().items, 300);
    assert!(world.find(INTO.0, INTO.1).await.unwrap().is_whole());
}

/// Timestamps that are too far ahead of the clock are refused, and nothing stays of what was restored before they came.
#[tokio::test]
async fn timestamps_that_are_ahead_of_the_clock_are_refused() {
    let world = World::new(1);
    world.fill().await;
    let people = world.find("first", "People").await.unwrap();
    let right = world.clock.now();
    world.clock.set(right.plus_seconds(3600));
    world.put(people.id, "zzz", "last", 1).await;
    world.clock.set(right);
    let (backup, survey) = (world.full().await, look(&world.full().await).await.unwrap());
    let before = world.dump().await;
    let refused = world.service().restore_table(choice(PEOPLE, INTO), &backup[..]).await;
    let sentence = refused.unwrap_err().to_string();
    for part in ["the table first/People", "900 s", "--allow-future-timestamps"] {
        assert!(sentence.contains(part), "{sentence}");
    }
    assert!(world.find(INTO.0, INTO.1).await.is_none());
    assert_eq!(world.dump().await, before);
    let whole = check_times(std::slice::from_ref(&survey), right).unwrap_err().to_string();
    assert_eq!(whole, sentence);

    check_times(&[survey], right.plus_seconds(2701)).unwrap();
    let any = TableChoice { until: Some(Timestamp::MAX), ..choice(PEOPLE, INTO) };
    assert_eq!(world.service().restore_table(any, &backup[..]).await.unwrap().items, 301);
}

/// A table whose entities have expired since the backup was taken comes back without its TTL: nothing is removed until
/// somebody decides. What had expired before is no reason.
#[tokio::test]
async fn what_has_expired_since_the_backup_is_kept() {
    let world = World::new(1);
    world.fill().await;
    let ttl = Ttl { property: None, after: DAY };
    let things = world.find("second", "Things").await.unwrap();
    world.store.set_ttl(things.id, Some(ttl.clone())).await.unwrap();
    world.clock.advance(DAY / 2);
    world.put(things.id, "fresh", "r", 3).await;
    world.clock.advance(3 * DAY / 4);
    // Two of three have expired, and are in the backup because nobody has removed them.
    let backup = world.full().await;
    let from = ("second", "Things");
    let restore = |into: &'static str, expired_by| {
        let choice = TableChoice { expired_by, ..choice(from, ("second", into)) };
        world.service().restore_table(choice, &backup[..])
    };
    assert!(!restore("Soon", None).await.unwrap().ttl_left_off);
    assert_eq!(world.find("second", "Soon").await.unwrap().ttl, Some(ttl.clone()));

    world.clock.advance(DAY);
    assert!(restore("Late", None).await.unwrap().ttl_left_off);
    let late = world.find("second", "Late").await.unwrap();
    assert_eq!(late.ttl, None);
    let key = rowhouse_types::EntityKey::new("fresh", "r").unwrap();
    assert!(world.store.get(late.id, &key).await.unwrap().is_some());
    let kept = restore("Kept", Some(Timestamp::default())).await.unwrap();
    assert!(!kept.ttl_left_off);
    let kept = world.find("second", "Kept").await.unwrap();
    assert_eq!(kept.ttl, Some(ttl.clone()));
    assert!(world.store.get(kept.id, &key).await.unwrap().is_none());

    // The same for everything.
    let new = World::new(2);
    new.clock.set(world.clock.now());
    let restored = new.restore(&[&backup]).await.unwrap();
    let left_off: Vec<_> = restored
        .ttls_left_off
        .iter()
        .map(|left| (&*left.account, &*left.table, &left.ttl))
        .collect();
    assert_eq!(left_off, [("second", "Things", &ttl)]);
    assert_eq!(new.find("second", "Things").await.unwrap().ttl, None);
    assert!(new.find("first", "People").await.unwrap().ttl.is_some(), "nothing of it has expired");
}
