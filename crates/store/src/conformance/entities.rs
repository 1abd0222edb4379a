//! One entity: conditions, puts, merges, deletes.

use super::Engine;
use super::fixture::{
    command, commit, content, get, key, keys, number, open, page, put, record, refusal, scan_all,
    write,
};
use crate::{Condition, Conflict, Write};
use rowhouse_types::{Etag, Record, RecordBuilder, Timestamp, ValueRef, limits};

/// Every condition with every write on an absent entity, a present one and one that has changed since.
pub async fn conditions_decide(engine: &dyn Engine) {
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Tag {
        Absent,
        Exists,
        Current,
        Stale,
        Foreign,
        Any,
    }
    use Conflict::{ConditionNotMet, EntityExists, EntityNotFound};
    use Tag::{Absent, Any, Current, Exists, Foreign, Stale};
    let (store, table) = open(engine).await;
    // Condition, its answer on an absent entity, and on a present one.
    let cases = [
        (Absent, Ok(()), Err(EntityExists)),
        (Exists, Err(EntityNotFound), Ok(())),
        (Current, Err(EntityNotFound), Ok(())),
        (Stale, Err(EntityNotFound), Err(ConditionNotMet)),
        (Foreign, Err(EntityNotFound), Err(ConditionNotMet)),
        (Any, Ok(()), Ok(())),
    ];
    let writes = [Write::Put(number(2)), Write::Merge(number(2)), Write::Delete];
    let mut count = 0;
    for (tag, if_absent, if_present) in cases {
        for what in &writes {
            for (present, expected) in [(false, if_absent), (true, if_present)] {
                count += 1;
                let case = format!("{tag:?}, {what:?}, present: {present}");
                let key = key("p", &count.to_string());
                // The key has a past either way, so that a stale tag is one that it really had.
                let stale = write(&*store, put(table, &key, number(0))).await;
                let mut current = write(&*store, put(table, &key, number(1))).await;
                if !present {
                    let delete = command(table, &key, Condition::Exists, Write::Delete);
                    current = write(&*store, delete).await;
                }
                let condition = match tag {
                    Absent => Condition::Absent,
                    Exists => Condition::Exists,
                    Current => Condition::Matches(Etag::new(current)),
                    Stale => Condition::Matches(Etag::new(stale)),
                    Foreign => {
                        Condition::Matches("W/\"foreign\"".parse().expect("well-formed tag"))
                    }
                    Any => Condition::Any,
                };
                let before = get(&*store, table, &key).await;
                let result = commit(&*store, vec![command(table, &key, condition, what.clone())]);
                let result = result.await;
                let after = get(&*store, table, &key).await;
                match expected {
                    Ok(()) => {
                        let committed = result.unwrap_or_else(|error| panic!("{case}: {error}"));
                        let wanted = match what {
                            Write::Put(record) | Write::Restore(record) | Write::Merge(record) => {
                                let mut record = record.clone();
                                record.stamp(committed.timestamps[0]);
                                Some(record)
                            }
                            Write::Delete => None,
                        };
                        assert_eq!(after, wanted, "{case}");
                    }
                    Err(conflict) => {
                        assert_eq!(refusal(result), (0, conflict), "{case}");
                        assert_eq!(after, before, "{case}: nothing changed");
                    }
                }
            }
        }
    }
}

/// Nothing of the old record is left after a put.
pub async fn put_replaces_everything(engine: &dyn Engine) {
    let (store, table) = open(engine).await;
    let key = key("p", "r");
    let first = record(&[("a", ValueRef::Int32(1)), ("b", ValueRef::String("x"))]);
    let second = record(&[("c", ValueRef::Boolean(true)), ("a", ValueRef::Double(0.5))]);
    for wanted in [first, second, record(&[])] {
        write(&*store, put(table, &key, wanted.clone())).await;
        let found = get(&*store, table, &key).await.expect("the entity is there");
        assert_eq!(content(&found), wanted);
    }
}

/// Named properties change, also in type; the rest stays; new ones come last.
pub async fn merge_keeps_and_overwrites(engine: &dyn Engine) {
    let (store, table) = open(engine).await;
    let key = key("p", "r");
    let merge = |record: Record| command(table, &key, Condition::Any, Write::Merge(record));
    let base = record(&[("a", ValueRef::Int32(1)), ("b", ValueRef::String("x"))]);
    write(&*store, merge(base.clone())).await;
    let found = get(&*store, table, &key).await.expect("a merge into nothing inserts");
    assert_eq!(content(&found), base);

    let patch = record(&[("c", ValueRef::Boolean(true)), ("a", ValueRef::Int64(2))]);
    write(&*store, merge(patch)).await;
    let wanted = record(&[
        ("a", ValueRef::Int64(2)),
        ("b", ValueRef::String("x")),
        ("c", ValueRef::Boolean(true)),
    ]);
    let found = get(&*store, table, &key).await.expect("the entity is there");
    assert_eq!(content(&found), wanted);

    let before = found.as_ref().timestamp();
    write(&*store, merge(record(&[]))).await;
    let found = get(&*store, table, &key).await.expect("the entity is there");
    assert_eq!(content(&found), wanted, "an empty merge changes the Timestamp only");
    assert!(before < found.as_ref().timestamp());
}

/// 252 properties and 1 MiB pass, one more of either does not.
pub async fn merge_is_held_to_limits(engine: &dyn Engine) {
    let (store, table) = open(engine).await;
    let numbered = |from: usize, to: usize| {
        let mut builder = RecordBuilder::new();
        for n in from..to {
            builder.push(&format!("p{n}"), ValueRef::Boolean(true)).expect("a legal property");
        }
        builder.finish(Timestamp::default())
    };
    let merge = |key: &_, record| command(table, key, Condition::Any, Write::Merge(record));
    let many = key("p", "many");
    let max = limits::PROPERTIES_MAX;
    write(&*store, put(table, &many, numbered(0, max - 1))).await;
    write(&*store, merge(&many, numbered(max - 2, max))).await;
    let before = get(&*store, table, &many).await;
    let result = commit(&*store, vec![merge(&many, numbered(max, max + 1))]).await;
    assert_eq!(refusal(result), (0, Conflict::TooManyProperties));
    assert_eq!(get(&*store, table, &many).await, before);
    write(&*store, merge(&many, numbered(0, max))).await;

    let large = key("p", "large");
    let block = vec![7; 60 * 1024];
    let full = |blocks: usize, last: usize| {
        let mut builder = RecordBuilder::new();
        for n in 0..blocks {
            builder.push(&format!("b{n}"), ValueRef::Binary(&block)).expect("a legal property");
        }
        builder.push("last", ValueRef::Binary(&block[..last])).expect("a legal property");
        builder.finish(Timestamp::default())
    };
    let base = full(17, 0);
    let size = base.as_ref().size("p", "large").expect("the record decodes");
    let room = limits::ENTITY_BYTES_MAX - size;
    write(&*store, put(table, &large, base)).await;
    let last = |len: usize| record(&[("last", ValueRef::Binary(&block[..len]))]);
    write(&*store, merge(&large, last(room))).await;
    let before = get(&*store, table, &large).await;
    let result = commit(&*store, vec![put(table, &many, number(1)), merge(&large, last(room + 1))]);
    assert_eq!(refusal(result.await), (1, Conflict::EntityTooLarge));
    assert_eq!(get(&*store, table, &large).await, before);
    let others = get(&*store, table, &many).await.expect("the entity is there");
    assert_eq!(others.as_ref().len(), max, "the whole batch was refused");
}

/// What is deleted is not found by key, by scan or by condition, and can be inserted again.
pub async fn delete_removes(engine: &dyn Engine) {
    let (store, table) = open(engine).await;
    let (gone, stays) = (key("p", "gone"), key("p", "stays"));
    write(&*store, put(table, &gone, number(1))).await;
    write(&*store, put(table, &stays, number(2))).await;
    write(&*store, command(table, &gone, Condition::Exists, Write::Delete)).await;
    assert_eq!(get(&*store, table, &gone).await, None);
    assert_eq!(keys(&page(&*store, table, scan_all()).await), ["p/stays"]);
    let again = commit(&*store, vec![command(table, &gone, Condition::Exists, Write::Delete)]);
    assert_eq!(refusal(again.await), (0, Conflict::EntityNotFound));
    write(&*store, command(table, &gone, Condition::Absent, Write::Put(number(3)))).await;
    assert_eq!(keys(&page(&*store, table, scan_all()).await), ["p/gone", "p/stays"]);
}
