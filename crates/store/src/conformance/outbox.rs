//! Messages together with entities: in one batch, in one view, from a backup.

use super::Engine;
use super::fixture::{account, command, get, key, number, refusal, table};
use super::queued::{
    act, batch, commit, deleting, done, listed, new_id, open, peek, put, put_for, putting, queue,
    take, texts, updating,
};
use crate::{
    Batch, Command, Condition, Conflict, Message, MessageAction, MessageCommand, QueueId, Store,
    TableId, Write,
};
use rowhouse_types::Timestamp;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

async fn table_beside(store: &dyn Store) -> TableId {
    let owner = store.accounts().await.expect("listed")[0].id;
    table(store, owner, "Things").await
}

fn of(commands: Vec<Command>, queue: QueueId, actions: Vec<MessageAction>) -> Batch {
    Batch { commands, ..batch(queue, actions) }
}

/// An entity and a message, whichever of them fails, at whatever position.
pub async fn messages_are_in_the_batch(engine: &dyn Engine) {
    let (store, jobs) = open(engine).await;
    let things = table_beside(&*store).await;
    let there = put(&*store, jobs, "there").await;
    let (one, two) = (key("p", "1"), key("p", "2"));
    let insert = |key| command(things, key, Condition::Absent, Write::Put(number(1)));
    let both = of(vec![insert(&one), insert(&two)], jobs, vec![putting("new", 0, None)]);
    let committed = commit(&*store, both).await.expect("all of it can be done");
    assert_eq!((committed.timestamps.len(), texts(&committed.messages)), (2, vec!["new"]));
    assert!(
        get(&*store, things, &one).await.is_some() && get(&*store, things, &two).await.is_some()
    );
    assert_eq!(texts(&peek(&*store, jobs, 9).await), ["there", "new"]);

    let three = key("p", "3");
    let strange = MessageAction::Delete { id: new_id(), receipt: there.receipt };
    let receipt = there.receipt;
    let cases = [
        (
            of(vec![insert(&three), insert(&one)], jobs, vec![putting("no", 0, None)]),
            (1, Conflict::EntityExists),
        ),
        (
            of(vec![insert(&three)], jobs, vec![putting("no", 0, None), strange.clone()]),
            (2, Conflict::MessageNotFound),
        ),
        (
            of(vec![insert(&three)], jobs, vec![MessageAction::Clear, strange.clone()]),
            (2, Conflict::MessageNotFound),
        ),
        (
            of(vec![insert(&three)], QueueId(1 << 40), vec![putting("no", 0, None)]),
            (1, Conflict::QueueNotFound),
        ),
        (
            batch(jobs, vec![MessageAction::Take { limit: 9, hide_seconds: 9 }, strange.clone()]),
            (1, Conflict::MessageNotFound),
        ),
        (batch(jobs, vec![deleting(&there), strange.clone()]), (1, Conflict::MessageNotFound)),
        (
            batch(jobs, vec![updating(&there, 9, Some("no")), strange]),
            (1, Conflict::MessageNotFound),
        ),
    ];
    for (which, (batch, wanted)) in cases.into_iter().enumerate() {
        assert_eq!(refusal(commit(&*store, batch).await), wanted, "case {which}");
        assert_eq!(get(&*store, things, &three).await, None, "case {which}");
        let left = peek(&*store, jobs, 9).await;
        assert_eq!(texts(&left), ["there", "new"], "case {which}");
        assert_eq!((left[0].receipt, left[0].taken), (receipt, 0), "case {which}");
        assert_eq!(store.message_count(jobs).await.expect("counted"), 2, "case {which}");
    }
    done(&*store, jobs, deleting(&there)).await;
}

/// In order, in several queues.
pub async fn later_commands_see_earlier_messages(engine: &dyn Engine) {
    let (store, jobs) = open(engine).await;
    let owner = store.accounts().await.expect("listed")[0].id;
    let other = queue(&*store, owner, "other").await;
    let old = put(&*store, jobs, "old").await;
    let everything = MessageAction::Take { limit: 9, hide_seconds: 0 };
    let actions = [
        (jobs, putting("one", 0, None)),
        (other, putting("two", 0, None)),
        (jobs, deleting(&old)),
        (jobs, everything.clone()),
        (other, MessageAction::Clear),
        (other, everything.clone()),
        (jobs, putting("three", 5, None)),
        (jobs, everything),
    ];
    let messages = actions.map(|(queue, action)| MessageCommand { queue, action }).to_vec();
    let committed = commit(&*store, Batch { commands: Vec::new(), messages }).await;
    let told = committed.expect("all of it can be done").messages;
    assert_eq!(texts(&told), ["one", "two", "one", "three", "one"]);
    assert_eq!(told.iter().map(|message| message.taken).collect::<Vec<_>>(), [0, 0, 1, 0, 2]);
    assert!(told.iter().all(|message| message.receipt == told[0].receipt), "one commit, one time");
    assert_eq!(texts(&peek(&*store, jobs, 9).await), ["one"]);
    assert_eq!(texts(&peek(&*store, other, 9).await), Vec::<&str>::new());
    assert_eq!(store.message_count(jobs).await.expect("counted"), 2);
}

/// Whatever happens meanwhile: puts, takes, deletes, a clear, a drop.
pub async fn snapshot_shows_messages(engine: &dyn Engine) {
    let (store, jobs) = open(engine).await;
    let owner = store.accounts().await.expect("listed")[0].id;
    let dropped = queue(&*store, owner, "dropped").await;
    put(&*store, dropped, "dropped").await;
    for n in 0..10 {
        put_for(&*store, jobs, &n.to_string(), n % 3 * 5, (n % 4 != 0).then_some(1000)).await;
    }
    put_for(&*store, jobs, "expired", 0, Some(1)).await;
    engine.clock().advance(Duration::from_secs(2));
    let taken = take(&*store, jobs, 2, 100).await;
    let metadata = vec![("k".into(), "v".into())];
    store.set_metadata(jobs, metadata.clone()).await.expect("set");

    let view = store.snapshot().await.expect("a view can be taken");
    let before = listed(&*view, jobs).await;
    let mut said: Vec<_> = before.iter().map(|message| &*message.text).collect();
    said.sort_unstable();
    assert_eq!(said, ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]);
    for message in &taken {
        assert!(before.contains(message), "with its receipt: {message:?}");
    }
    done(&*store, jobs, deleting(&taken[0])).await;
    put(&*store, jobs, "later").await;
    assert_eq!(listed(&*view, jobs).await, before);
    done(&*store, jobs, MessageAction::Clear).await;
    store.drop_queue(dropped).await.expect("dropped");
    queue(&*store, owner, "later").await;
    store.set_metadata(jobs, Vec::new()).await.expect("set");
    assert_eq!(listed(&*view, jobs).await, before);
    assert_eq!(texts(&listed(&*view, dropped).await), ["dropped"]);
    let queues = view.queues(owner).await.expect("the view can be read");
    let names: Vec<_> = queues.iter().map(|queue| queue.name.as_str()).collect();
    assert_eq!(names, ["dropped", "jobs"]);
    assert_eq!(queues[1].metadata, metadata);
    let gone = view.messages(QueueId(1 << 40), None, 1, 1).await;
    assert_eq!(refusal(gone), (0, Conflict::QueueNotFound));
}

/// Bytes bound a page as the number does, but one message is always in it.
pub async fn pages_of_messages_are_bounded(engine: &dyn Engine) {
    let (store, jobs) = open(engine).await;
    for n in 0..7 {
        put(&*store, jobs, &n.to_string().repeat(1000)).await;
    }
    let view = store.snapshot().await.expect("a view can be taken");
    for (limit, max_bytes, most) in [(100, 2500, 3), (2, 1 << 20, 2), (100, 1, 1), (100, 0, 1)] {
        let (mut from, mut seen) = (None, Vec::new());
        loop {
            let page = view.messages(jobs, from, limit, max_bytes).await.expect("read");
            assert!((1..=most).contains(&page.messages.len()), "{}", page.messages.len());
            seen.extend(page.messages.into_iter().map(|message| message.text));
            match page.next {
                Some(next) => from = Some(next),
                None => break,
            }
        }
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 7, "each once");
    }
}

/// A message moves from one queue to the other, with an entity that says where it is.
pub async fn snapshot_cuts_no_batch_of_messages(engine: &dyn Engine) {
    let (store, left) = open(engine).await;
    let things = table_beside(&*store).await;
    let owner = store.accounts().await.expect("listed")[0].id;
    let right = queue(&*store, owner, "right").await;
    let place = key("p", "r");
    let entity = move |n| command(things, &place, Condition::Any, Write::Put(number(n)));
    let first = of(vec![entity(0)], left, vec![putting("it", 0, None)]);
    let mut message = commit(&*store, first).await.expect("put").messages.remove(0);
    let stop = Arc::new(AtomicBool::new(false));
    let mover = {
        let (store, stop) = (Arc::clone(&store), Arc::clone(&stop));
        tokio::spawn(async move {
            for n in 1.. {
                let (from, to) = if n % 2 == 1 { (left, right) } else { (right, left) };
                let messages = vec![
                    MessageCommand { queue: from, action: deleting(&message) },
                    MessageCommand { queue: to, action: putting("it", 0, None) },
                ];
                let moved = Batch { commands: vec![entity(n)], messages };
                message = commit(&*store, moved).await.expect("moved").messages.remove(0);
                if stop.load(Ordering::Acquire) {
                    return n;
                }
            }
            0
        })
    };
    for round in 0..30 {
        let view = store.snapshot().await.expect("a view can be taken");
        let (here, there) = (listed(&*view, left).await, listed(&*view, right).await);
        let mut scan = super::fixture::scan_all();
        scan.limit = 1;
        let page = view.scan(things, scan).await.expect("read");
        let record = page.rows.iter().next().expect("it is there").expect("it decodes").record;
        let n = super::fixture::n(&record.to_owned());
        let wanted = if n % 2 == 1 { (0, 1) } else { (1, 0) };
        assert_eq!((here.len(), there.len()), wanted, "round {round}, {n}");
        tokio::task::yield_now().await;
    }
    stop.store(true, Ordering::Release);
    assert!(mover.await.expect("the mover ended") > 0);
}

/// Into an empty queue, as a backup brings them, and again, as one that goes on does.
pub async fn restored_messages_are_as_they_were(engine: &dyn Engine) {
    let (store, jobs) = open(engine).await;
    let owner = account(&*store, "second").await.id;
    for text in ["a", "b", "c"] {
        put(&*store, jobs, text).await;
    }
    put_for(&*store, jobs, "hidden", 100, Some(1000)).await;
    take(&*store, jobs, 1, 5).await;
    let view = store.snapshot().await.expect("a view can be taken");
    let saved = listed(&*view, jobs).await;
    drop(view);

    let copy = queue(&*store, owner, "copy").await;
    for _ in 0..2 {
        let restore = saved.iter().cloned().map(MessageAction::Restore).collect();
        let committed = commit(&*store, batch(copy, restore)).await.expect("restored");
        assert_eq!(committed.messages, [], "nothing is given out");
        let view = store.snapshot().await.expect("a view can be taken");
        assert_eq!(listed(&*view, copy).await, saved);
        assert_eq!(store.message_count(copy).await.expect("counted"), 4);
    }
    engine.clock().advance(Duration::from_secs(50));
    assert_eq!(texts(&take(&*store, copy, 9, 5).await), ["b", "c", "a"]);
    let hidden = saved.iter().find(|message| &*message.text == "hidden").expect("saved");
    done(&*store, copy, deleting(hidden)).await;

    // A receipt ahead of the clock: all that come are later.
    let mut message = saved.iter().find(|message| &*message.text == "b").expect("saved").clone();
    message.id = new_id();
    message.receipt = message.receipt.plus_seconds(86_400);
    done(&*store, jobs, MessageAction::Restore(message.clone())).await;
    let later: Message = put(&*store, jobs, "later").await;
    assert!(message.receipt < later.receipt, "{} {}", message.receipt, later.receipt);
    let things = table_beside(&*store).await;
    let insert = command(things, &key("p", "r"), Condition::Absent, Write::Put(number(1)));
    let written: Timestamp = super::fixture::write(&*store, insert).await;
    assert!(message.receipt < written);
    done(&*store, jobs, deleting(&message)).await;
    let twice = act(&*store, jobs, deleting(&message)).await;
    assert_eq!(refusal(twice), (0, Conflict::MessageNotFound));
}
