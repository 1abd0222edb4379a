//! Messages: their order, who gets them, for how long, and what it takes to change one.

use super::Engine;
use super::fixture::refusal;
use super::queued::{
    act, after, batch, commit, deleting, done, new_id, open, peek, put, put_for, putting, take,
    texts, updating,
};
use crate::{Conflict, Message, MessageAction, QueueId, Store};
use rowhouse_env::Clock;
use rowhouse_types::Timestamp;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const NONE: [&str; 0] = [];

fn advance(engine: &dyn Engine, seconds: u64) {
    engine.clock().advance(Duration::from_secs(seconds));
}

/// Whether the receipt is refused, for an update and for a delete.
async fn assert_refused(store: &dyn Store, queue: QueueId, message: &Message, why: &str) {
    for action in [updating(message, 0, Some("changed")), updating(message, 0, None)] {
        let refused = refusal(act(store, queue, action).await);
        assert_eq!(refused, (0, Conflict::MessageNotFound), "update: {why}");
    }
    let refused = refusal(act(store, queue, deleting(message)).await);
    assert_eq!(refused, (0, Conflict::MessageNotFound), "delete: {why}");
}

/// Texts of every kind and size; what put, peek and take tell of them.
pub async fn message_comes_back_as_put(engine: &dyn Engine) {
    let (store, jobs) = open(engine).await;
    let longest = "x".repeat(65_536);
    let wide = "ß😀".repeat(10_922);
    let all = ["", "plain", " \t\r\n <&> \u{FFFD} ", "😀\u{10FFFF}", &longest, &wide, "1", "NULL"];
    for (n, text) in (0..).zip(all) {
        advance(engine, 1);
        let now = engine.clock().now();
        let live = (n % 2 == 0).then_some(1000 + n);
        let message = put_for(&*store, jobs, text, 0, live).await;
        assert!(now <= message.inserted && message.inserted.seconds_from(now) < 1);
        let expires = live.map_or(Timestamp::MAX, |live| after(message.inserted, live));
        let Message { inserted, visible, receipt, taken, .. } = message;
        assert_eq!((&*message.text, message.expires), (text, expires));
        assert_eq!((visible, receipt, taken), (inserted, inserted, 0));
        let found = peek(&*store, jobs, 100).await;
        assert_eq!(found, std::slice::from_ref(&message), "peeked at");
        let given = take(&*store, jobs, 1, 50).await.remove(0);
        let Message { visible, receipt, .. } = given;
        assert!(inserted < receipt && visible == after(receipt, 50));
        assert_eq!(given, Message { visible, receipt, taken: 1, ..message });
        done(&*store, jobs, deleting(&given)).await;
    }
}

/// Puts and returns; several messages of one moment.
pub async fn messages_come_in_order(engine: &dyn Engine) {
    let (store, jobs) = open(engine).await;
    for text in ["a", "b", "c"] {
        put(&*store, jobs, text).await;
    }
    let more = ["d", "e"].map(|text| putting(text, 0, None)).to_vec();
    commit(&*store, batch(jobs, more)).await.expect("both are put");
    put_for(&*store, jobs, "in 20", 20, None).await;
    put_for(&*store, jobs, "in 10", 10, None).await;
    assert_eq!(texts(&peek(&*store, jobs, 3).await), ["a", "b", "c"]);
    assert_eq!(texts(&peek(&*store, jobs, 100).await), ["a", "b", "c", "d", "e"]);
    let first = take(&*store, jobs, 2, 15).await;
    assert_eq!(texts(&first), ["a", "b"]);
    assert_eq!(texts(&take(&*store, jobs, 1, 5).await), ["c"]);
    advance(engine, 30);
    put(&*store, jobs, "f").await;
    // As they became visible: c after 5, in 10, a and b after 15, in 20, then what was put now.
    let order = ["d", "e", "c", "in 10", "a", "b", "in 20", "f"];
    assert_eq!(texts(&peek(&*store, jobs, 100).await), order);
    let mut taken = Vec::new();
    for limit in [3, 1, 4, 1] {
        taken.extend(take(&*store, jobs, limit, 100).await);
    }
    assert_eq!(texts(&taken), order);
    // What is made visible at once stands behind what is.
    put(&*store, jobs, "g").await;
    done(&*store, jobs, updating(&taken[0], 0, None)).await;
    assert_eq!(texts(&peek(&*store, jobs, 100).await), ["g", "d"]);
}

/// By a take, by a put and by an update; until the very second.
pub async fn hidden_messages_are_not_given_out(engine: &dyn Engine) {
    let (store, jobs) = open(engine).await;
    put(&*store, jobs, "taken").await;
    let taken = take(&*store, jobs, 5, 30).await.remove(0);
    put_for(&*store, jobs, "put", 60, None).await;
    let seen = async || {
        let peeked = peek(&*store, jobs, 5).await;
        peeked.iter().map(|message| message.text.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(seen().await, NONE);
    assert_eq!(texts(&take(&*store, jobs, 5, 1).await), NONE);
    advance(engine, 29);
    assert_eq!(seen().await, NONE);
    assert_eq!(texts(&take(&*store, jobs, 5, 1).await), NONE);
    advance(engine, 2);
    assert_eq!(seen().await, ["taken"]);
    done(&*store, jobs, updating(&taken, 100, None)).await;
    advance(engine, 30);
    assert_eq!(seen().await, ["put"]);
    let put = take(&*store, jobs, 5, 604_800).await.remove(0);
    advance(engine, 71);
    assert_eq!(seen().await, ["taken"]);
    done(&*store, jobs, updating(&put, 0, None)).await;
    assert_eq!(seen().await, ["taken", "put"], "visible at once");
}

/// However often.
pub async fn peek_changes_nothing(engine: &dyn Engine) {
    let (store, jobs) = open(engine).await;
    let first = put(&*store, jobs, "first").await;
    let second = put(&*store, jobs, "second").await;
    for _ in 0..3 {
        assert_eq!(peek(&*store, jobs, 1).await, std::slice::from_ref(&first));
        assert_eq!(peek(&*store, jobs, 9).await, [first.clone(), second.clone()]);
    }
    done(&*store, jobs, deleting(&first)).await;
    assert_eq!(texts(&take(&*store, jobs, 9, 1).await), ["second"]);
}

/// Of puts, takes and updates; on the right message alone.
pub async fn only_the_latest_receipt_works(engine: &dyn Engine) {
    let (store, jobs) = open(engine).await;
    let put = put(&*store, jobs, "text").await;
    let other = super::queued::put(&*store, jobs, "other").await;
    let updated = done(&*store, jobs, updating(&put, 0, None)).await.remove(0);
    assert_refused(&*store, jobs, &put, "it was updated").await;
    let taken = take(&*store, jobs, 2, 0).await;
    assert_eq!(texts(&taken), ["other", "text"]);
    assert_refused(&*store, jobs, &updated, "it was taken").await;
    let again = take(&*store, jobs, 2, 0).await;
    assert_refused(&*store, jobs, &taken[1], "it was taken again").await;
    let strange = Message { id: new_id(), ..again[1].clone() };
    assert_refused(&*store, jobs, &strange, "there is no such message").await;
    let early = Message { receipt: other.receipt, ..again[1].clone() };
    assert_refused(&*store, jobs, &early, "it has the receipt of another").await;
    assert_eq!(texts(&peek(&*store, jobs, 9).await), ["other", "text"], "nothing was changed");
    let receipts = [put.receipt, updated.receipt, taken[1].receipt, again[1].receipt];
    assert!(receipts.is_sorted_by(|one, next| one < next), "{receipts:?}");
    done(&*store, jobs, deleting(&again[1])).await;
    assert_refused(&*store, jobs, &again[1], "it was deleted").await;
    assert_eq!(texts(&peek(&*store, jobs, 9).await), ["other"]);
}

/// Until somebody else takes it. That of a put works at once, while the message is hidden and when it is not.
pub async fn receipt_outlives_the_visibility(engine: &dyn Engine) {
    let (store, jobs) = open(engine).await;
    for (hide, wait) in [(0, 0), (10, 0), (10, 20)] {
        let message = put_for(&*store, jobs, "put", hide, None).await;
        advance(engine, wait);
        done(&*store, jobs, deleting(&message)).await;
    }
    put(&*store, jobs, "late").await;
    let taken = take(&*store, jobs, 1, 10).await.remove(0);
    advance(engine, 1000);
    assert_eq!(texts(&peek(&*store, jobs, 9).await), ["late"]);
    let kept = done(&*store, jobs, updating(&taken, 10, None)).await.remove(0);
    assert_eq!(texts(&peek(&*store, jobs, 9).await), NONE);
    advance(engine, 1000);
    done(&*store, jobs, deleting(&kept)).await;
    assert_eq!(texts(&peek(&*store, jobs, 9).await), NONE);
    assert_eq!(store.message_count(jobs).await.expect("counted"), 0);
}

/// The text where none is given, and what only a put or a take decides.
pub async fn update_keeps_what_it_is_not_given(engine: &dyn Engine) {
    let (store, jobs) = open(engine).await;
    let long = "long".repeat(16_000);
    let put = put_for(&*store, jobs, "short", 0, Some(10_000)).await;
    let mut last = take(&*store, jobs, 1, 5).await.remove(0);
    for text in [None, Some(&*long), None, Some("shorter"), Some(""), Some(&*long), None] {
        advance(engine, 7);
        let told = done(&*store, jobs, updating(&last, 20, text)).await.remove(0);
        let Message { visible, receipt, .. } = told;
        assert!(last.receipt < receipt && visible == after(receipt, 20), "{receipt} {visible}");
        let text = text.map_or(last.text.clone(), Into::into);
        assert_eq!(told, Message { text, visible, receipt, ..last });
        last = told;
    }
    advance(engine, 21);
    assert_eq!(peek(&*store, jobs, 9).await, std::slice::from_ref(&last), "it is as it was told");
    assert_eq!((last.inserted, last.expires, last.taken), (put.inserted, put.expires, 1));
}

/// For every operation, visible or hidden; behind and before others that live.
pub async fn expired_message_is_gone(engine: &dyn Engine) {
    let (store, jobs) = open(engine).await;
    let visible = put_for(&*store, jobs, "visible", 0, Some(30)).await;
    put_for(&*store, jobs, "for ever", 0, None).await;
    put_for(&*store, jobs, "longer", 0, Some(100)).await;
    let hidden = put_for(&*store, jobs, "hidden", 1000, Some(30)).await;
    let taken = {
        let first = take(&*store, jobs, 1, 1000).await.remove(0);
        assert_eq!(first.expires, visible.expires, "taking it does not make it live longer");
        first
    };
    let late = put_for(&*store, jobs, "late", 20, Some(30)).await;
    advance(engine, 29);
    assert_eq!(texts(&peek(&*store, jobs, 9).await), ["for ever", "longer", "late"]);
    let updated = done(&*store, jobs, updating(&taken, 0, None)).await.remove(0);
    assert_eq!(texts(&peek(&*store, jobs, 9).await), ["for ever", "longer", "late", "visible"]);
    advance(engine, 2);
    assert_eq!(texts(&peek(&*store, jobs, 9).await), ["for ever", "longer"]);
    for (message, why) in [(&updated, "visible"), (&hidden, "hidden"), (&late, "late")] {
        assert_refused(&*store, jobs, message, why).await;
    }
    assert_eq!(texts(&take(&*store, jobs, 9, 0).await), ["for ever", "longer"]);
    advance(engine, 100 * 365 * 86_400);
    assert_eq!(texts(&take(&*store, jobs, 9, 10).await), ["for ever"]);
}

/// Many that expire together are not in the way of what comes behind them.
pub async fn expired_messages_are_stepped_over(engine: &dyn Engine) {
    let (store, jobs) = open(engine).await;
    put(&*store, jobs, "first").await;
    for _ in 0..4 {
        let many = (0..100).map(|n| putting(&n.to_string(), 0, Some(10))).collect();
        commit(&*store, batch(jobs, many)).await.expect("they are put");
    }
    put(&*store, jobs, "behind").await;
    advance(engine, 11);
    let first = take(&*store, jobs, 1, 30).await.remove(0);
    assert_eq!(&*first.text, "first");
    assert_eq!(texts(&peek(&*store, jobs, 9).await), ["behind"]);
    let mut both = vec![
        MessageAction::Take { limit: 1, hide_seconds: 0 },
        MessageAction::Delete { id: new_id(), receipt: first.receipt },
    ];
    let failed = commit(&*store, batch(jobs, both.clone())).await;
    assert_eq!(refusal(failed), (1, Conflict::MessageNotFound));
    // Whatever was seen on the way to a failure, what stood before it is found again.
    both[0] = updating(&first, 0, None);
    both.insert(1, MessageAction::Take { limit: 2, hide_seconds: 30 });
    let failed = commit(&*store, batch(jobs, both)).await;
    assert_eq!(refusal(failed), (2, Conflict::MessageNotFound));
    advance(engine, 31);
    for _ in 0..3 {
        let mut found = take(&*store, jobs, 9, 0).await;
        found.sort_unstable_by(|one, other| one.text.cmp(&other.text));
        assert_eq!(texts(&found), ["behind", "first"]);
        assert_eq!(peek(&*store, jobs, 9).await.len(), 2);
    }
    let mut restored = put(&*store, jobs, "restored").await;
    done(&*store, jobs, deleting(&restored)).await;
    restored.visible = first.inserted;
    done(&*store, jobs, MessageAction::Restore(restored)).await;
    assert_eq!(texts(&peek(&*store, jobs, 1).await), ["restored"], "where it stood");
    assert_eq!(texts(&take(&*store, jobs, 1, 9).await), ["restored"], "where it stood");
}

/// By takes, and by nothing else.
pub async fn takes_are_counted(engine: &dyn Engine) {
    let (store, jobs) = open(engine).await;
    put(&*store, jobs, "text").await;
    for round in 1..=5 {
        peek(&*store, jobs, 1).await;
        let message = take(&*store, jobs, 1, 10).await.remove(0);
        assert_eq!(message.taken, round);
        let message = done(&*store, jobs, updating(&message, 0, None)).await.remove(0);
        assert_eq!(message.taken, round);
    }
}

/// Visible, hidden and taken ones; of this queue alone.
pub async fn clear_removes_all(engine: &dyn Engine) {
    let (store, jobs) = open(engine).await;
    let owner = store.accounts().await.expect("listed")[0].id;
    let other = super::queued::queue(&*store, owner, "other").await;
    put(&*store, other, "of another").await;
    put(&*store, jobs, "taken").await;
    let taken = take(&*store, jobs, 1, 10).await.remove(0);
    put(&*store, jobs, &"long".repeat(5000)).await;
    let hidden = put_for(&*store, jobs, "hidden", 10, None).await;
    done(&*store, jobs, MessageAction::Clear).await;
    assert_eq!(texts(&peek(&*store, jobs, 9).await), NONE);
    assert_eq!(store.message_count(jobs).await.expect("counted"), 0);
    assert_refused(&*store, jobs, &taken, "it was cleared").await;
    assert_refused(&*store, jobs, &hidden, "it was cleared").await;
    put(&*store, jobs, "new").await;
    advance(engine, 20);
    assert_eq!(texts(&take(&*store, jobs, 9, 0).await), ["new"]);
    assert_eq!(texts(&peek(&*store, other, 9).await), ["of another"]);
    done(&*store, jobs, MessageAction::Clear).await;
    done(&*store, jobs, MessageAction::Clear).await;
    assert_eq!(texts(&take(&*store, jobs, 9, 0).await), NONE);
}

/// As long as nothing expires it is exact, in every engine.
pub async fn count_is_never_too_low(engine: &dyn Engine) {
    let (store, jobs) = open(engine).await;
    let count = async || store.message_count(jobs).await.expect("counted");
    assert_eq!(count().await, 0);
    for n in 0..5 {
        put_for(&*store, jobs, "text", n % 2 * 10, None).await;
        assert_eq!(count().await, n + 1);
    }
    let taken = take(&*store, jobs, 2, 10).await;
    assert_eq!(count().await, 5, "hidden ones count");
    done(&*store, jobs, deleting(&taken[0])).await;
    assert_eq!(count().await, 4);
    let failing = vec![putting("text", 0, None), deleting(&taken[1]), deleting(&taken[0])];
    let failed = commit(&*store, batch(jobs, failing)).await;
    assert_eq!(refusal(failed), (2, Conflict::MessageNotFound));
    assert_eq!(count().await, 4, "what failed does not count");
    for _ in 0..3 {
        put_for(&*store, jobs, "short", 0, Some(5)).await;
    }
    advance(engine, 6);
    assert!((4..=7).contains(&count().await), "the expired ones may count");
    take(&*store, jobs, 9, 10).await;
    assert!((4..=7).contains(&count().await), "the expired ones may count");
    done(&*store, jobs, MessageAction::Clear).await;
    assert_eq!(count().await, 0);
}

/// Many takers, few messages: each goes to one of them, and all are given out.
pub async fn no_message_goes_to_two(engine: &dyn Engine) {
    const MESSAGES: usize = 120;
    let (store, jobs) = open(engine).await;
    let takers: Vec<_> = (0..8)
        .map(|taker| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                let (mut got, mut idle) = (Vec::new(), 0);
                while idle < 200 {
                    let taken = take(&*store, jobs, 1 + taker % 3, 1000).await;
                    idle = if taken.is_empty() { idle + 1 } else { 0 };
                    for (n, message) in taken.into_iter().enumerate() {
                        if n % 2 == 0 {
                            done(&*store, jobs, deleting(&message)).await;
                        }
                        got.push(message);
                    }
                    tokio::task::yield_now().await;
                }
                got
            })
        })
        .collect();
    let putters: Vec<_> = (0..4)
        .map(|putter| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                for n in 0..MESSAGES / 4 {
                    put(&*store, jobs, &format!("{putter}/{n}")).await;
                }
            })
        })
        .collect();
    for putter in putters {
        putter.await.expect("everything was put");
    }
    let mut got = BTreeMap::<String, usize>::new();
    for taker in takers {
        for message in taker.await.expect("the taker ended") {
            assert_eq!(message.taken, 1, "{}", message.text);
            *got.entry(message.text.into()).or_default() += 1;
        }
    }
    for message in take(&*store, jobs, MESSAGES, 1000).await {
        *got.entry(message.text.into()).or_default() += 1;
    }
    assert_eq!(got.len(), MESSAGES, "every message was given out");
    assert!(got.values().all(|times| *times == 1), "{got:?}");
}

/// A clock that is set back, also over a restart, gives nothing out again and no receipt twice.
pub async fn time_of_messages_never_goes_back(engine: &dyn Engine) {
    let (store, jobs) = open(engine).await;
    put(&*store, jobs, "text").await;
    put_for(&*store, jobs, "short", 0, Some(2000)).await;
    let now = engine.clock().now();
    advance(engine, 500);
    let taken = take(&*store, jobs, 1, 60).await.remove(0);
    engine.clock().set(now);
    assert_eq!(texts(&peek(&*store, jobs, 9).await), ["short"]);
    let next = take(&*store, jobs, 9, 60).await.remove(0);
    assert!(taken.receipt < next.receipt && taken.visible < next.visible);
    assert_eq!(texts(&take(&*store, jobs, 9, 60).await), NONE);
    let updated = done(&*store, jobs, updating(&taken, 0, None)).await.remove(0);
    assert!(next.receipt < updated.receipt);
    advance(engine, 600);
    let again = take(&*store, jobs, 9, 4000).await;
    assert_eq!(texts(&again), ["text", "short"]);
    let Some(store) = engine.reopen(store).await else { return };
    engine.clock().set(now);
    assert_eq!(texts(&peek(&*store, jobs, 9).await), NONE);
    assert_eq!(texts(&take(&*store, jobs, 9, 60).await), NONE);
    let last = done(&*store, jobs, updating(&again[0], 0, None)).await.remove(0);
    assert!(again[0].receipt < last.receipt);
    advance(engine, 2100);
    take(&*store, jobs, 9, 0).await;
    engine.clock().set(now);
    assert_eq!(texts(&take(&*store, jobs, 9, 60).await), ["text"], "what expired stays away");
}
