//! Queues as such: found, listed, described, dropped.

use super::Engine;
use super::fixture::{account, refusal};
use super::queued::{act, deleting, done, listed, open, peek, put, putting, queue, take, texts};
use crate::{AccountId, Conflict, MessageAction, Metadata, QueueId, Store, StoreError};
use rowhouse_types::{StoredPolicy, Timestamp};
use std::sync::Arc;
use std::time::Duration;

fn metadata(pairs: &[(&str, &str)]) -> Metadata {
    pairs.iter().map(|(name, value)| (Box::from(*name), Box::from(*value))).collect()
}

fn policies() -> Vec<StoredPolicy> {
    let time = Timestamp::parse_iso("2026-03-04T05:06:07.0000008Z").expect("a date");
    let full = StoredPolicy {
        id: "full".into(),
        start: Some(time),
        expiry: Some(Timestamp::MAX),
        permission: Some("raup".into()),
    };
    let empty = StoredPolicy { id: "".into(), start: None, expiry: None, permission: None };
    vec![full, empty]
}

/// Two queues of an account, and one of the same name in another.
pub async fn queue_is_kept_as_created(engine: &dyn Engine) {
    let (store, jobs) = open(engine).await;
    let second = account(&*store, "second").await.id;
    let name = "jobs".parse().expect("legal");
    assert_eq!(store.queue(second, &name).await.expect("looked up"), None);
    let given = metadata(&[("Purpose", "tests"), ("a", ""), ("Zone", "x y")]);
    let created = store.create_queue(second, &name, given.clone()).await.expect("created");
    assert_ne!(created.id, jobs);
    assert_eq!((created.account, &created.name, &created.metadata), (second, &name, &given));
    assert_eq!(created.policies, []);
    assert_eq!(store.queue(second, &name).await.expect("looked up"), Some(created));
    put(&*store, jobs, "mine").await;
    let first = store.queues(AccountId(1 << 20), "", 10).await.expect("listed");
    assert_eq!(first, [], "an account that is not there has no queues");
    let theirs = store.queue(second, &name).await.expect("looked up").expect("there").id;
    assert_eq!(texts(&peek(&*store, theirs, 10).await), Vec::<&str>::new());
    let again = store.create_queue(second, &name, Vec::new()).await;
    assert_eq!(refusal(again), (0, Conflict::QueueExists));
    let nobody = store.create_queue(AccountId(1 << 20), &name, Vec::new()).await;
    assert_eq!(refusal(nobody), (0, Conflict::AccountNotFound));
    let kept = store.queue(second, &name).await.expect("looked up").expect("there");
    assert_eq!(kept.metadata, given, "a refusal changes nothing");
}

/// Both, as a whole, in order.
pub async fn metadata_and_policies_are_replaced(engine: &dyn Engine) {
    let (store, jobs) = open(engine).await;
    let owner = store.accounts().await.expect("listed")[0].id;
    let name = "jobs".parse().expect("legal");
    let queue = async || store.queue(owner, &name).await.expect("looked up").expect("there");
    for given in [metadata(&[("b", "1"), ("a", "2")]), metadata(&[("c", "")]), Vec::new()] {
        store.set_metadata(jobs, given.clone()).await.expect("set");
        assert_eq!(queue().await.metadata, given);
    }
    store.set_metadata(jobs, metadata(&[("k", "v")])).await.expect("set");
    for given in [policies(), Vec::new(), policies()] {
        store.set_queue_policies(jobs, given.clone()).await.expect("set");
        let found = queue().await;
        assert_eq!((&found.policies, &found.metadata), (&given, &metadata(&[("k", "v")])));
    }
    let gone = QueueId(1 << 40);
    let refused = store.set_metadata(gone, Vec::new()).await;
    assert_eq!(refusal(refused), (0, Conflict::QueueNotFound));
    let refused = store.set_queue_policies(gone, Vec::new()).await;
    assert_eq!(refusal(refused), (0, Conflict::QueueNotFound));
}

/// From any text on, few at a time.
pub async fn queues_are_listed_in_order(engine: &dyn Engine) {
    let (store, _) = open(engine).await;
    let owner = store.accounts().await.expect("listed")[0].id;
    let other = account(&*store, "second").await.id;
    for name in ["zebra", "a-b", "abc", "ab0", "job", "jobs-2"] {
        queue(&*store, owner, name).await;
    }
    queue(&*store, other, "job").await;
    let list = async |from: &str, limit: usize| {
        let queues = store.queues(owner, from, limit).await.expect("listed");
        queues.iter().map(|queue| queue.name.to_string()).collect::<Vec<_>>()
    };
    let all = ["a-b", "ab0", "abc", "job", "jobs", "jobs-2", "zebra"];
    assert_eq!(list("", 100).await, all);
    assert_eq!(list("", 2).await, all[..2]);
    assert_eq!(list("job", 100).await, all[3..]);
    assert_eq!(list("jobs", 1).await, all[4..5]);
    assert_eq!(list("joc", 100).await, all[6..]);
    assert_eq!(list("b", 2).await, all[3..5]);
    assert_eq!(list("zebra0", 100).await, all[7..]);
}

/// No command reaches what was dropped, and what is created under its name knows nothing of it.
pub async fn recreated_queue_is_empty(engine: &dyn Engine) {
    let (store, old) = open(engine).await;
    let owner = store.accounts().await.expect("listed")[0].id;
    store.set_metadata(old, metadata(&[("k", "v")])).await.expect("set");
    store.set_queue_policies(old, policies()).await.expect("set");
    let message = put(&*store, old, "old").await;
    put(&*store, old, "older").await;
    store.drop_queue(old).await.expect("dropped");
    assert_eq!(refusal(store.drop_queue(old).await), (0, Conflict::QueueNotFound));
    let name = "jobs".parse().expect("legal");
    assert_eq!(store.queue(owner, &name).await.expect("looked up"), None);
    for fresh in [None, Some(queue(&*store, owner, "jobs").await)] {
        for action in [
            putting("late", 0, None),
            MessageAction::Take { limit: 1, hide_seconds: 1 },
            deleting(&message),
            MessageAction::Clear,
        ] {
            let late = act(&*store, old, action).await;
            assert_eq!(refusal(late), (0, Conflict::QueueNotFound));
        }
        assert_eq!(refusal(store.peek(old, 1).await), (0, Conflict::QueueNotFound));
        assert_eq!(refusal(store.message_count(old).await), (0, Conflict::QueueNotFound));
        let Some(fresh) = fresh else { continue };
        assert_ne!(fresh, old);
        let found = store.queue(owner, &name).await.expect("looked up").expect("there");
        assert_eq!((found.metadata.len(), found.policies.len()), (0, 0));
        assert_eq!(texts(&take(&*store, fresh, 10, 1).await), Vec::<&str>::new());
        assert_eq!(store.message_count(fresh).await.expect("counted"), 0);
        let with_old_receipt = act(&*store, fresh, deleting(&message)).await;
        assert_eq!(refusal(with_old_receipt), (0, Conflict::MessageNotFound));
        put(&*store, fresh, "new").await;
        assert_eq!(texts(&peek(&*store, fresh, 10).await), ["new"]);
    }
}

/// An account of the same name that comes later has none of them.
pub async fn removed_account_takes_its_queues_along(engine: &dyn Engine) {
    let (store, mine) = open(engine).await;
    let owner = account(&*store, "second").await.id;
    let theirs = queue(&*store, owner, "jobs").await;
    put(&*store, mine, "mine").await;
    put(&*store, theirs, "theirs").await;
    store.remove_account(owner).await.expect("removed");
    let late = act(&*store, theirs, putting("late", 0, None)).await;
    assert_eq!(refusal(late), (0, Conflict::QueueNotFound));
    assert_eq!(refusal(store.peek(theirs, 1).await), (0, Conflict::QueueNotFound));
    let owner = account(&*store, "second").await.id;
    assert_eq!(store.queues(owner, "", 10).await.expect("listed"), []);
    let fresh = queue(&*store, owner, "jobs").await;
    assert_eq!(texts(&peek(&*store, fresh, 10).await), Vec::<&str>::new());
    assert_eq!(texts(&peek(&*store, mine, 10).await), ["mine"]);
}

/// Dropped before and after a restart.
pub async fn queue_ids_are_not_reused_after_reopening(engine: &dyn Engine) {
    let (mut store, first) = open(engine).await;
    let owner = store.accounts().await.expect("listed")[0].id;
    let mut ids = vec![first];
    for _ in 0..3 {
        let id = queue(&*store, owner, "passing").await;
        assert!(!ids.contains(&id), "{id:?}");
        ids.push(id);
        put(&*store, id, "left behind").await;
        store.drop_queue(id).await.expect("dropped");
        let Some(reopened) = engine.reopen(store).await else { return };
        store = reopened;
        let late = act(&*store, id, putting("late", 0, None)).await;
        assert_eq!(refusal(late), (0, Conflict::QueueNotFound));
    }
    let id = queue(&*store, owner, "passing").await;
    assert!(!ids.contains(&id), "{id:?}");
    assert_eq!(texts(&peek(&*store, id, 10).await), Vec::<&str>::new());
}

/// Metadata, policies, messages with all that is known of them, their order, receipts; and what was removed stays away.
pub async fn queues_survive_reopening(engine: &dyn Engine) {
    let (store, jobs) = open(engine).await;
    let owner = store.accounts().await.expect("listed")[0].id;
    let dropped = queue(&*store, owner, "dropped").await;
    put(&*store, dropped, "dropped").await;
    store.set_metadata(jobs, metadata(&[("b", "1"), ("a", "2")])).await.expect("set");
    store.set_queue_policies(jobs, policies()).await.expect("set");
    let long = "long ".repeat(13_000);
    for text in ["taken", "second", "deleted", "third", &long, "updated"] {
        put(&*store, jobs, text).await;
    }
    let hidden = super::queued::put_for(&*store, jobs, "hidden", 500, Some(1000)).await;
    let held = take(&*store, jobs, 1, 100).await.remove(0);
    let rest = take(&*store, jobs, 10, 1).await;
    done(&*store, jobs, deleting(&rest[1])).await;
    let updated = super::queued::updating(&rest[4], 5, Some("otherwise"));
    done(&*store, jobs, updated).await;
    store.drop_queue(dropped).await.expect("dropped");
    let view = store.snapshot().await.expect("a view can be taken");
    let before = listed(&*view, jobs).await;
    drop(view);
    assert_eq!(before.len(), 6);
    let count = store.message_count(jobs).await.expect("counted");
    let named = store.queues(owner, "", 10).await.expect("listed");

    let Some(store) = engine.reopen(store).await else { return };
    assert_eq!(store.queues(owner, "", 10).await.expect("listed"), named);
    let view = store.snapshot().await.expect("a view can be taken");
    assert_eq!(listed(&*view, jobs).await, before);
    assert_eq!(store.message_count(jobs).await.expect("counted"), count);
    engine.clock().advance(Duration::from_secs(10));
    let next = take(&*store, jobs, 10, 1).await;
    assert_eq!(texts(&next), ["second", "third", &long, "otherwise"]);
    let taken: Vec<_> = next.iter().map(|message| message.taken).collect();
    assert_eq!(taken, [2, 2, 2, 2]);
    done(&*store, jobs, deleting(&held)).await;
    done(&*store, jobs, deleting(&hidden)).await;
}

/// Every kind of change.
pub async fn close_refuses_queues(engine: &dyn Engine) {
    let (store, jobs) = open(engine).await;
    let owner = store.accounts().await.expect("listed")[0].id;
    let message = put(&*store, jobs, "there").await;
    store.close().await.expect("closed");
    let name = "late".parse().expect("legal");
    let refusals = [
        store.create_queue(owner, &name, Vec::new()).await.map(drop),
        store.drop_queue(jobs).await,
        store.set_metadata(jobs, Vec::new()).await,
        store.set_queue_policies(jobs, Vec::new()).await,
        act(&*store, jobs, putting("late", 0, None)).await.map(drop),
        act(&*store, jobs, deleting(&message)).await.map(drop),
    ];
    for (which, result) in refusals.into_iter().enumerate() {
        assert!(matches!(result, Err(StoreError::Unavailable(_))), "change {which}: {result:?}");
    }
}

/// Many at the same time, beside another account that has as many as it likes.
pub async fn an_account_has_no_more_queues_than_it_may(engine: &dyn Engine) {
    const MOST: u64 = 5;
    let store = engine.open().await;
    let owner = account(&*store, "first").await.id;
    let other = account(&*store, "second").await.id;
    for n in 0..MOST + 3 {
        let name = format!("other{n}").parse().expect("legal");
        store.create_queue(other, &name, Metadata::new()).await.expect("created");
    }
    let create = |store: &Arc<dyn Store>, text: String, most: u64| {
        let store = Arc::clone(store);
        async move {
            let name = text.parse().expect("legal");
            store.create_queue_within(owner, &name, Metadata::new(), most).await
        }
    };
    let creating: Vec<_> =
        (0..3 * MOST).map(|n| tokio::spawn(create(&store, format!("queue{n}"), MOST))).collect();
    let mut created = Vec::new();
    for task in creating {
        match task.await.expect("no panic") {
            Ok(queue) => created.push(queue),
            refused => assert_eq!(refusal(refused), (0, Conflict::TooManyQueues)),
        }
    }
    assert_eq!(created.len() as u64, MOST);
    let listed = store.queues(owner, "", 100).await.expect("the listing succeeds");
    assert_eq!(listed.len() as u64, MOST);
    let again = create(&store, created[0].name.as_str().to_owned(), 0).await;
    assert_eq!(refusal(again), (0, Conflict::QueueExists));
    store.drop_queue(created[0].id).await.expect("dropped");
    create(&store, "later".to_owned(), MOST).await.expect("dropped ones do not count");
    let Some(store) = engine.reopen(store).await else { return };
    let full = create(&store, "last".to_owned(), MOST).await;
    assert_eq!(refusal(full), (0, Conflict::TooManyQueues), "after a restart too");
}
