//! Single tables under new names, into a store that is in use.

mod support;

use rowhouse_service_backup::{BackupError, TableChoice};
use rowhouse_store::Table;
use std::time::Duration;
use support::{DAY, World, header};
use tokio::io::AsyncReadExt as _;

fn choice(from: (&str, &str), into: (&str, &str)) -> TableChoice {
    TableChoice {
        from_account: from.0.parse().unwrap(),
        from_table: from.1.parse().unwrap(),
        into_account: into.0.parse().unwrap(),
        into_table: into.1.parse().unwrap(),
    }
}

const PEOPLE: (&str, &str) = ("first", "People");

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
    let left = world.dump().await.into_keys().filter(|key| key.contains("restoring")).count();
    assert_eq!(left, 0, "no note is left behind");
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

/// A server that is killed cannot take anything back; the next attempt knows what it may throw away.
#[tokio::test]
async fn what_a_kill_has_left_is_begun_again() {
    let world = World::new(1);
    world.fill().await;
    let backup = world.full().await;
    let into = ("second", "Old");
    let (before_end, _) = backup.split_at(backup.len() - 100);
    let (mut client, server) = tokio::io::duplex(1 << 20);
    tokio::io::AsyncWriteExt::write_all(&mut client, before_end).await.unwrap();
    let restore = world.service().restore_table(choice(PEOPLE, into), server.take(u64::MAX));
    let killed = tokio::time::timeout(Duration::from_millis(300), restore).await;
    assert!(killed.is_err(), "it waits for the rest");
    let half = world.find(into.0, into.1).await.expect("it was being filled");

    let other = world.full().await;
    let refused = world.service().restore_table(choice(PEOPLE, into), &other[..]).await;
    assert!(matches!(refused, Err(BackupError::TableExists(_))), "{refused:?}");
    world.service().restore_table(choice(PEOPLE, into), &backup[..]).await.unwrap();
    let whole = world.find(into.0, into.1).await.unwrap();
    assert_ne!(whole.id, half.id);
    assert_eq!(world.entities(whole.id).await.len(), 300);
    let again = world.service().restore_table(choice(PEOPLE, into), &backup[..]).await;
    assert!(matches!(again, Err(BackupError::TableExists(_))), "it is whole now: {again:?}");
}

/// A server that is killed before its note names the new table has left an empty one; any other is not thrown away.
#[tokio::test]
async fn a_kill_before_the_first_entity_is_begun_again() {
    let world = World::new(1);
    world.fill().await;
    let backup = world.full().await;
    let into = ("second", "Old");
    let account = world.store.account(&"second".parse().unwrap()).await.unwrap().unwrap();
    let id = header(&backup).await.id;
    let note = async |table: &[u8]| {
        let value = [&id.0[..], table].concat().into_boxed_slice();
        world.store.set_account_setting(account.id, "restoring old", Some(value)).await.unwrap();
    };
    let restore = || world.service().restore_table(choice(PEOPLE, into), &backup[..]);
    note(&[]).await;
    let half = world.table(into.0, into.1).await;
    world.put(half.id, "somebody", "else", 1).await;
    let refused = restore().await;
    assert!(matches!(refused, Err(BackupError::TableExists(_))), "{refused:?}");
    world.delete(half.id, "somebody", "else").await;
    let policies = world.find(PEOPLE.0, PEOPLE.1).await.unwrap().policies.clone();
    world.store.set_policies(half.id, policies).await.unwrap();
    let refused = restore().await;
    assert!(matches!(refused, Err(BackupError::TableExists(_))), "{refused:?}");
    world.store.set_policies(half.id, Vec::new()).await.unwrap();
    note(b"of a table").await;
    let refused = restore().await;
    assert!(matches!(refused, Err(BackupError::TableExists(_))), "{refused:?}");
    note(&[]).await;
    assert_eq!(restore().await.unwrap().items, 300);
    assert_ne!(world.find(into.0, into.1).await.unwrap().id, half.id);
}
