//! Random sequences of operations, on the engine and on the model side by side.
//!
//! Few tables, few keys and few values, so that operations meet. Both stores get each operation in turn
//! and must give the same answer; Timestamps differ between stores, so each side is held to its own.
//!
//! What is read through indexes is read without them too, and must be the same. Messages are compared by what they say and by
//! times relative to their own.
//!
//! In some sequences entities expire. There the clock only goes forward: what an engine has removed does not come back.
//! A table keeps its first setting, because another one may bring back what nobody has removed yet. And what plans would
//! examine is not compared, because what has expired counts until it is removed.
//!
//! A failure prints the seed and the shortest sequence found. `ROWHOUSE_SEED=<seed>` repeats the run,
//! `ROWHOUSE_CASES=<n>` makes it longer.

mod post;
mod side;
mod steps;

use self::side::{Answer, Side};
use self::steps::{
    Change, INDEXES, QUEUES, Query, Ranges, Step, Steps, TABLES, What, When, any_key, create_index,
    record, set_ttl, step, table,
};
use super::Engine;
use crate::Conflict;
use crate::model::ModelStore;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};
use rowhouse_env::{Clock, Random, SimulatedClock, SystemRandom};
use rowhouse_types::{Direction, KeyRange, Timestamp};
use std::sync::Arc;

/// Runs the sequences; the first difference fails with its seed.
pub async fn behaves_as_the_model(engine: &dyn Engine) {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seed = number("ROWHOUSE_SEED").unwrap_or_else(|| {
        let mut bytes = [0; 8];
        SystemRandom.fill(&mut bytes);
        u64::from_le_bytes(bytes)
    });
    let cases = number("ROWHOUSE_CASES").and_then(|cases| u32::try_from(cases).ok()).unwrap_or(64);
    let config =
        Config { cases, failure_persistence: None, max_shrink_iters: 500, ..Config::default() };
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(config, rng);
    // Every table is there at first and holds something, so that short sequences meet something.
    let fill = vec((table(), any_key(), record()), 5..40).prop_map(|puts| {
        let put = |(table, key, record)| {
            Step::Commit(vec![Change { table, key, when: When::Any, what: What::Put(record) }])
        };
        puts.into_iter().map(put)
    });
    // Some indexes are there before that, and some have to enter it.
    let indexes = || vec(create_index(), 0..6);
    let ttl = || vec(set_ttl(), 0..2);
    let sequence = (indexes(), fill, indexes(), ttl(), vec(step(), 1..120));
    let steps = sequence.prop_map(|(early, fill, late, ttl, steps)| {
        let create = (0..TABLES.len()).map(Step::CreateTable);
        let create = create.chain((0..QUEUES.len()).map(Step::CreateQueue));
        Steps(create.chain(early).chain(fill).chain(late).chain(ttl).chain(steps).collect())
    });
    let runtime = tokio::runtime::Handle::current();
    let result = tokio::task::block_in_place(|| {
        runner.run(&steps, |Steps(steps)| runtime.block_on(compare(engine, steps)))
    });
    if let Err(error) = result {
        panic!("ROWHOUSE_SEED={seed} repeats this: {error}");
    }
}

async fn compare(engine: &dyn Engine, steps: Vec<Step>) -> Result<(), TestCaseError> {
    // An earlier case may have set it back: time passes only beyond that.
    engine.clock().set(engine.clock().latest());
    let clock = Arc::new(SimulatedClock::new(engine.clock().now()));
    let model = Arc::new(ModelStore::new(Arc::clone(&clock) as Arc<dyn Clock>));
    let began = clock.now();
    let mut left = Side::new(engine.open().await, began).await;
    let mut right = Side::new(model, began).await;
    let mut expires = [false; TABLES.len()];
    let expiring = steps.iter().any(|step| matches!(step, Step::SetTtl { ttl: Some(_), .. }));
    for (index, step) in steps.into_iter().enumerate() {
        match step {
            Step::Weigh { .. } if expiring => {}
            Step::SetTtl { table, .. } if expires[table] => {}
            Step::SetClock { millis } => {
                let millis = if expiring { millis.abs() / 10 * 10 } else { millis };
                if millis < 0 {
                    // A refused command may have taken the time of one side on.
                    left.note_the_time().await;
                    right.note_the_time().await;
                }
                let ticks = clock.now().ticks().saturating_add_signed(millis * 10_000);
                let now = Timestamp::from_ticks(ticks).unwrap_or(Timestamp::MAX);
                clock.set(now);
                engine.clock().set(now);
            }
            Step::Reopen => {
                if let Some(reopened) = engine.reopen(Arc::clone(&left.store)).await {
                    left.store = reopened;
                }
            }
            step => {
                let way = right.way(&step).await;
                let found = left.run(&step, way.as_ref()).await?;
                if found == Answer::Rejected(0, Conflict::UniqueAcrossNodes) {
                    continue;
                }
                let wanted = right.run(&step, way.as_ref()).await?;
                if let (Step::CountMessages(_), Answer::Count(found), Answer::Count(wanted)) =
                    (&step, &found, &wanted)
                {
                    // The expired ones may be among them.
                    prop_assert!(wanted <= found, "step {}: {:?}", index, step);
                    continue;
                }
                match &step {
                    Step::SetTtl { table, ttl } => expires[*table] |= ttl.is_some(),
                    Step::CreateTable(table) if wanted == Answer::Nothing => {
                        expires[*table] = false;
                    }
                    _ => {}
                }
                prop_assert_eq!(&found, &wanted, "step {}: {:?}, {:?}", index, step, way);
                if way.is_some() && matches!(step, Step::Scan { .. }) {
                    let plain = right.run(&step, None).await?;
                    prop_assert_eq!(
                        &wanted,
                        &plain,
                        "step {}, not through indexes: {:?}",
                        index,
                        step
                    );
                }
            }
        }
    }
    for table in 0..TABLES.len() {
        let step = everything(table);
        let (found, wanted) = (left.run(&step, None).await?, right.run(&step, None).await?);
        prop_assert_eq!(found, wanted, "in the end, table {}", table);
        for (name, direction) in (0..INDEXES.len())
            .flat_map(|name| [Direction::Ascending, Direction::Descending].map(|each| (name, each)))
        {
            let query = Query { direction, ..all() };
            let step = Step::Walk { table, name, query, whole: true };
            let (found, wanted) = (left.run(&step, None).await?, right.run(&step, None).await?);
            prop_assert_eq!(found, wanted, "in the end, table {}, index {}", table, name);
        }
    }
    for queue in 0..QUEUES.len() {
        for step in [Step::Peek(queue, 1000), Step::ViewMessages(queue)] {
            let (found, wanted) = (left.run(&step, None).await?, right.run(&step, None).await?);
            prop_assert_eq!(found, wanted, "in the end, queue {}", queue);
        }
    }
    left.store.close().await.map_err(|error| TestCaseError::fail(error.to_string()))
}

/// No limits.
fn all() -> Query {
    Query {
        ranges: Ranges(vec![KeyRange::all()]),
        filter: String::new(),
        direction: Direction::Ascending,
        limit: 1000,
        bytes: usize::MAX,
    }
}

fn everything(table: usize) -> Step {
    Step::Scan { table, query: all(), count: false, way: None }
}
