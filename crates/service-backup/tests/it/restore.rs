//! What is backed up comes back: all of it, as it was at one moment, and in spite of interruptions.

use crate::support;
use crate::support::{DAY, World, look};
use proptest::prelude::*;
use rowhouse_service_backup::{BackupError, Survey, restore, unfinished};
use rowhouse_store::{Batch, IndexState, MessageAction};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};

#[tokio::test]
async fn everything_comes_back_as_it_was() {
    let (old, new) = (World::new(1), World::new(2));
    old.fill().await;
    let backup = old.full().await;
    let restored = new.restore(&[&backup]).await.unwrap();
    assert_eq!((restored.accounts, restored.tables, restored.items), (2, 4, 304));
    assert_eq!((restored.indexes, restored.indexes_left_out), (4, 0));
    assert_eq!((restored.queues, restored.messages), (3, 60));
    assert!(!restored.resumed);
    assert_eq!(new.dump().await, old.dump().await);
    assert_eq!(unfinished(&*new.store).await.unwrap(), None);
}

#[tokio::test]
async fn a_survey_tells_what_there_is() {
    let world = World::new(1);
    world.fill().await;
    let backup = world.full().await;
    let Survey { header, catalogue, items, totals, bytes, .. } = look(&backup).await.unwrap();
    assert_eq!((totals.accounts, totals.tables, totals.entities, totals.changes), (2, 4, 304, 0));
    assert_eq!((totals.queues, totals.messages, catalogue.queues.len()), (3, 60, 3));
    assert_eq!(bytes, backup.len() as u64);
    assert_eq!(&*header.product, "0.0.0");
    let people = catalogue.table(&"first".parse().unwrap(), &"PEOPLE".parse().unwrap()).unwrap();
    assert_eq!(items.get(&people.id), Some(&300));
}

/// An empty store is one too.
#[tokio::test]
async fn nothing_comes_back_as_nothing() {
    let (old, new) = (World::new(1), World::new(2));
    let backup = old.full().await;
    new.restore(&[&backup]).await.unwrap();
    assert!(new.dump().await.is_empty());
}

#[tokio::test]
async fn later_timestamps_are_later() {
    let (old, new) = (World::new(1_000_000), World::new(2));
    old.fill().await;
    new.restore(&[&old.full().await]).await.unwrap();
    let table = new.find("second", "Things").await.unwrap();
    let stamp = |bytes: &[u8]| u64::from_le_bytes(bytes[1..9].try_into().unwrap());
    let before = new.entities(table.id).await.iter().map(|(_, bytes)| stamp(bytes)).max();
    new.put(table.id, "new", "", 1).await;
    let after = new.entities(table.id).await.iter().map(|(_, bytes)| stamp(bytes)).max();
    assert!(before < after);
}

/// What is written after the moment was chosen is not in the backup.
#[tokio::test]
async fn a_backup_is_of_one_moment() {
    let (old, new) = (World::new(1), World::new(2));
    old.fill().await;
    let before = old.dump().await;
    let taking = old.service().begin(None).await.unwrap();
    let again = old.service().begin(None).await;
    assert!(matches!(again, Err(BackupError::Busy)), "{again:?}");
    let people = old.find("first", "People").await.unwrap();
    old.put(people.id, "p0", "0000", 1000).await;
    old.store.drop_table(people.id).await.unwrap();
    let mut backup = Vec::new();
    taking.write(&mut backup).await.unwrap();
    new.restore(&[&backup]).await.unwrap();
    assert_eq!(new.dump().await, before);
    old.service().begin(None).await.unwrap();
}

#[tokio::test]
async fn incremental_backups_follow_a_full_one() {
    let old = World::new(1);
    old.fill().await;
    old.store.keep_changes(Some(DAY)).await.unwrap();
    let full = old.full().await;
    let people = old.find("first", "People").await.unwrap();
    old.put(people.id, "p0", "0000", 1000).await;
    old.put(people.id, "new", "", 1001).await;
    old.delete(people.id, "p1", "0001").await;
    let first = old.since(&full).await;
    let state_then = old.dump().await;
    // Gone, and there again under the same name; and a whole account.
    let things = old.find("second", "Things").await.unwrap();
    old.store.drop_table(things.id).await.unwrap();
    let things = old.table("second", "THINGS").await;
    old.put(things.id, "again", "", 7).await;
    let account = old.store.account(&"first".parse().unwrap()).await.unwrap().unwrap();
    old.store.remove_account(account.id).await.unwrap();
    old.account("third").await;
    let third = old.table("third", "People").await;
    old.put(third.id, "p", "r", 1).await;
    let second = old.since(&first).await;
    let nothing = old.since(&second).await;

    let new = World::new(2);
    new.restore(&[&full, &first]).await.unwrap();
    assert_eq!(new.dump().await, state_then);
    for chain in [&[&full[..], &first, &second][..], &[&full[..], &first, &second, &nothing]] {
        let new = World::new(3);
        new.restore(chain).await.unwrap();
        assert_eq!(new.dump().await, old.dump().await);
    }
    assert_eq!(look(&first).await.unwrap().totals.changes, 3);
    assert_eq!(look(&nothing).await.unwrap().totals.changes, 0);
}

/// An incremental backup has the messages as they are, whatever became of those in the backups before it.
#[tokio::test]
async fn incremental_backups_have_all_messages() {
    let old = World::new(1);
    old.fill().await;
    old.store.keep_changes(Some(DAY)).await.unwrap();
    let full = old.full().await;
    let account = old.store.account(&"first".parse().unwrap()).await.unwrap().unwrap().id;
    let jobs = old.store.queue(account, &"jobs".parse().unwrap()).await.unwrap().unwrap();
    let messages = old.messages(jobs.id).await;
    for (message, text) in messages.iter().zip([None, Some("another text"), None]) {
        let (id, receipt) = (message.id, message.receipt);
        let action = match text {
            Some(_) => {
                let text = text.map(Into::into);
                MessageAction::Update { id, receipt, hide_seconds: 5, text }
            }
            None => MessageAction::Delete { id, receipt },
        };
        old.store.commit(Batch::of_message(jobs.id, action)).await.unwrap();
    }
    old.post(jobs.id, 1000, "new", 0, None).await;
    let dropped = old.store.account(&"second".parse().unwrap()).await.unwrap().unwrap().id;
    let empty = old.store.queue(dropped, &"empty".parse().unwrap()).await.unwrap().unwrap();
    old.store.drop_queue(empty.id).await.unwrap();
    old.store.set_metadata(jobs.id, Vec::new()).await.unwrap();
    let increment = old.since(&full).await;
    let totals = look(&increment).await.unwrap().totals;
    assert_eq!((totals.queues, totals.messages, totals.changes), (2, 59, 0));
    let new = World::new(2);
    let restored = new.restore(&[&full, &increment]).await.unwrap();
    assert_eq!((restored.queues, restored.messages), (2, 59));
    assert_eq!(new.dump().await, old.dump().await);
    // Receipts that were given out before still work, and new ones are later.
    let account = new.store.account(&"first".parse().unwrap()).await.unwrap().unwrap().id;
    let jobs = new.store.queue(account, &"jobs".parse().unwrap()).await.unwrap().unwrap().id;
    let kept = &messages[3];
    let delete = MessageAction::Delete { id: kept.id, receipt: kept.receipt };
    new.store.commit(Batch::of_message(jobs, delete)).await.unwrap();
    let latest = new.messages(jobs).await.iter().map(|message| message.receipt).max();
    assert!(latest < Some(new.post(jobs, 2000, "newer", 0, None).await.receipt));
}

/// What was not unique yet when the full backup was taken, and what was dropped or declared later.
#[tokio::test]
async fn indexes_are_those_of_the_last_backup() {
    let old = World::new(1);
    old.fill().await;
    let things = old.find("second", "Things").await.unwrap();
    for row in ["1", "2", "3"] {
        old.put(things.id, "same", row, 7).await;
    }
    old.index(things.id, "passing", &["n"], false).await;
    old.store.keep_changes(Some(DAY)).await.unwrap();
    let full = old.full().await;
    let passing = old.find("second", "Things").await.unwrap().indexes[0].id;
    old.store.drop_index(things.id, passing).await.unwrap();
    old.delete(things.id, "same", "2").await;
    old.put(things.id, "same", "3", 8).await;
    old.index(things.id, "later", &["n"], true).await;
    old.put(things.id, "same", "1", 9).await;
    old.put(things.id, "same", "2", 7).await;
    let increment = old.since(&full).await;
    let new = World::new(2);
    let restored = new.restore(&[&full, &increment]).await.unwrap();
    assert_eq!((restored.indexes, restored.indexes_left_out), (5, 0));
    assert_eq!(new.dump().await, old.dump().await);
    let things = new.find("second", "Things").await.unwrap();
    assert_eq!(things.indexes[0].state, IndexState::Ready);
    let again = new.find("second", "people").await.unwrap();
    assert_eq!(again.indexes[0].state, IndexState::NotUnique);
}

#[tokio::test]
async fn without_the_changes_a_full_backup_is_asked_for() {
    let world = World::new(1);
    world.fill().await;
    let refused = |taken: Result<Vec<u8>, BackupError>| {
        let error = taken.unwrap_err();
        assert!(matches!(error, BackupError::ChangesNotKept), "{error}");
        assert!(error.to_string().contains("take a full backup"), "{error}");
    };
    let unkept = support::header(&world.full().await).await.as_base();
    refused(world.take(Some(unkept)).await);
    let people = world.find("first", "People").await.unwrap();
    world.put(people.id, "p", "r", 1).await;
    world.store.keep_changes(Some(DAY)).await.unwrap();
    refused(world.take(Some(unkept)).await);
    let full = support::header(&world.full().await).await.as_base();
    world.put(people.id, "p", "r", 2).await;
    assert!(world.take(Some(full)).await.is_ok());
    world.clock.advance(3 * DAY);
    world.put(people.id, "p", "r", 3).await;
    refused(world.take(Some(full)).await);
    let future = rowhouse_service_backup::Base { place: u64::MAX, ..full };
    refused(world.take(Some(future)).await);
}

#[tokio::test]
async fn backups_that_do_not_follow_each_other_are_refused() {
    let (old, other) = (World::new(1), World::new(9));
    for world in [&old, &other] {
        world.fill().await;
        world.store.keep_changes(Some(DAY)).await.unwrap();
    }
    let full = old.full().await;
    let people = old.find("first", "People").await.unwrap();
    old.put(people.id, "p", "r", 1).await;
    let first = old.since(&full).await;
    old.put(people.id, "p", "r", 2).await;
    let second = old.since(&first).await;
    // Another store that happens to be at a place that fits.
    let foreign = other.since(&full).await;
    let cases: [(&[&[u8]], &str); 6] = [
        (&[&first], "is incremental"),
        (&[&full, &second], "does not follow"),
        (&[&full, &second, &first], "does not follow"),
        (&[&full, &full], "does not follow"),
        (&[&full, &first, &first], "does not follow"),
        (&[&full, &foreign], "not of the same data"),
    ];
    for (chain, expected) in cases {
        let new = World::new(2);
        let error = new.restore(chain).await.unwrap_err().to_string();
        assert!(error.contains(expected), "{expected}: {error}");
        assert!(new.dump().await.is_empty(), "{expected}");
    }
}

/// The mark of an unfinished restore is told from an account that happens to have its name.
#[tokio::test]
async fn no_name_of_an_account_is_reserved() {
    let (old, new) = (World::new(1), World::new(2));
    old.account("rowhouserestoring").await;
    old.account("rowhouserestoring1").await;
    assert_eq!(unfinished(&*old.store).await.unwrap(), None);
    new.restore(&[&old.full().await]).await.unwrap();
    assert_eq!(new.dump().await, old.dump().await);
}

#[tokio::test]
async fn nothing_is_overwritten() {
    let world = World::new(1);
    world.fill().await;
    let (backup, before) = (world.full().await, world.dump().await);
    let refused = world.restore(&[&backup]).await;
    assert!(matches!(refused, Err(BackupError::NotEmpty)), "{refused:?}");
    assert_eq!(world.dump().await, before);
}

/// Gives some bytes, and then fails.
struct Broken<'a>(&'a [u8]);

impl AsyncRead for Broken<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let count = self.0.len().min(buffer.remaining());
        if count == 0 {
            return Poll::Ready(Err(io::Error::other("pulled out")));
        }
        let (now, later) = self.0.split_at(count);
        buffer.put_slice(now);
        self.0 = later;
        Poll::Ready(Ok(()))
    }
}

/// Wherever it stops, the store says that it is not whole, and the same backup makes it so.
#[tokio::test]
async fn an_interrupted_restore_goes_on() {
    let old = World::new(1);
    old.fill().await;
    old.store.keep_changes(Some(DAY)).await.unwrap();
    // Many frames, so that it is noted on the way how far it got.
    for n in 0..40 {
        let table = old.table("first", &format!("Table{n}")).await;
        old.put(table.id, "p", "r", n).await;
    }
    let full = old.full().await;
    let people = old.find("first", "People").await.unwrap();
    old.put(people.id, "p0", "0000", 1000).await;
    let increment = old.since(&full).await;
    let surveys = [look(&full).await.unwrap(), look(&increment).await.unwrap()];
    let files = [&full[..], &increment];
    let mut resumed = 0;
    for stop in (0..full.len() + increment.len()).step_by(97) {
        let new = World::new(2);
        let open = |index: usize| {
            let before = if index == 0 { 0 } else { full.len() };
            Ok(Broken(&files[index][..stop.saturating_sub(before).min(files[index].len())]))
        };
        let broken = restore(Arc::clone(&new.store), &surveys, None, open, |_| {}).await;
        assert!(matches!(broken, Err(BackupError::File(_))), "{stop}: {broken:?}");
        let marked = unfinished(&*new.store).await.unwrap();
        assert_eq!(marked, Some(surveys[1].header.id), "{stop}");
        let other = new.restore(&[&full]).await;
        assert!(matches!(other, Err(BackupError::OtherRestore { .. })), "{stop}: {other:?}");
        let restored = new.restore(&files).await.unwrap();
        resumed += u32::from(restored.resumed);
        assert_eq!(restored.changes, 1, "{stop}: what was not put in this time is not counted");
        assert_eq!(new.dump().await, old.dump().await, "{stop}");
        assert_eq!(unfinished(&*new.store).await.unwrap(), None, "{stop}");
    }
    assert!(5 < resumed, "some of them did not begin from the start: {resumed}");
}

#[derive(Clone, Debug)]
enum Step {
    Put {
        table: usize,
        key: u8,
        n: i32,
    },
    Delete {
        table: usize,
        key: u8,
    },
    Drop(usize),
    Create(usize),
    /// Declares the index of that number, or drops it.
    Index {
        table: usize,
        number: usize,
    },
    Backup,
}

fn step() -> impl Strategy<Value = Step> {
    let table = 0..3_usize;
    prop_oneof![
        8 => (table.clone(), 0..8_u8, any::<i32>())
            .prop_map(|(table, key, n)| Step::Put { table, key, n }),
        3 => (table.clone(), 0..8_u8).prop_map(|(table, key)| Step::Delete { table, key }),
        1 => table.clone().prop_map(Step::Drop),
        2 => table.clone().prop_map(Step::Create),
        2 => (table, 0..2_usize).prop_map(|(table, number)| Step::Index { table, number }),
        2 => Just(Step::Backup),
    ]
}

async fn run(world: &World, step: &Step, chain: &mut Vec<Vec<u8>>) {
    let name = |table: usize| format!("Table{table}");
    match *step {
        Step::Put { table, key, n } => {
            if let Some(table) = world.find("acct", &name(table)).await {
                world.put(table.id, &format!("p{}", key % 3), &format!("r{key}"), n).await;
            }
        }
        Step::Delete { table, key } => {
            if let Some(table) = world.find("acct", &name(table)).await {
                world.delete(table.id, &format!("p{}", key % 3), &format!("r{key}")).await;
            }
        }
        Step::Drop(table) => {
            if let Some(table) = world.find("acct", &name(table)).await {
                world.store.drop_table(table.id).await.unwrap();
            }
        }
        Step::Create(table) => {
            if world.find("acct", &name(table)).await.is_none() {
                world.table("acct", &name(table)).await;
            }
        }
        Step::Index { table, number } => {
            if let Some(table) = world.find("acct", &name(table)).await {
                let (name, of) = [("a", ["n", "Näme"]), ("b", ["RowKey", "n"])][number];
                match table.indexes.iter().find(|index| index.name.as_str() == name) {
                    Some(index) => world.store.drop_index(table.id, index.id).await.unwrap(),
                    None => world.index(table.id, name, &of, number == 1).await,
                }
            }
        }
        Step::Backup => {
            let backup = match chain.last() {
                Some(base) => world.since(base).await,
                None => world.full().await,
            };
            chain.push(backup);
        }
    }
}

proptest! {
    /// Whatever happened between them, backups end in the state that the last one was taken of.
    #[test]
    fn any_history_comes_back(steps in proptest::collection::vec(step(), 0..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let old = World::new(1);
            old.account("acct").await;
            old.store.keep_changes(Some(DAY)).await.unwrap();
            let mut chain = Vec::new();
            for step in steps.iter().chain([&Step::Backup]) {
                run(&old, step, &mut chain).await;
            }
            let new = World::new(2);
            let files: Vec<&[u8]> = chain.iter().map(Vec::as_slice).collect();
            new.restore(&files).await.unwrap();
            assert_eq!(new.dump().await, old.dump().await);
        });
    }
}

/// A sink that whoever took the bytes has left when there are none to take.
struct Left;

impl AsyncWrite for Left {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let gone = || io::Error::from(io::ErrorKind::BrokenPipe);
        Poll::Ready(if bytes.is_empty() { Err(gone()) } else { Ok(bytes.len()) })
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// All changes are of a table that is gone: none is sent, and that nobody listens any more is noticed all the same.
#[tokio::test]
async fn who_hangs_up_is_noticed_where_nothing_is_sent() {
    let world = World::new(1);
    world.account("acct").await;
    world.store.keep_changes(Some(DAY)).await.unwrap();
    let base = support::header(&world.full().await).await.as_base();
    let table = world.table("acct", "Table").await;
    world.put(table.id, "p", "r", 1).await;
    world.store.drop_table(table.id).await.unwrap();
    let told = world.service().begin(Some(base)).await.unwrap().write(Left).await;
    assert!(matches!(told, Err(BackupError::Sink(_))), "{told:?}");
    // As the listener's end of a backup does.
    let (mut ours, theirs) = tokio::io::duplex(16);
    drop(theirs);
    assert!(ours.write(&[]).await.is_err());
}
