//! Queues that are too large for one statement: cleared in steps, and counted without reading all of them.

use crate::common;
use crate::common::{account, database, open};
use rowhouse_env::{Random, SystemRandom};
use rowhouse_store::{
    AccountId, Batch, Conflict, MessageAction, MessageCommand, QueueId, Store, StoreError,
};
use rowhouse_testkit::TestPostgres;
use std::sync::Arc;
use std::time::{Duration, Instant};

async fn queue(store: &dyn Store, account: AccountId, name: &str) -> QueueId {
    let name = name.parse().expect("a legal name");
    store.create_queue(account, &name, Vec::new()).await.expect("the queue is new").id
}

async fn clear(store: &dyn Store, queue: QueueId) -> Result<(), StoreError> {
    store.commit(Batch::of_message(queue, MessageAction::Clear)).await.map(drop)
}

/// Puts so many thousand.
async fn fill(store: &dyn Store, queue: QueueId, thousands: usize) {
    for _ in 0..thousands {
        let put = || MessageAction::Put {
            id: SystemRandom.guid(),
            text: "text".into(),
            hide_seconds: 0,
            live_seconds: None,
        };
        let messages = (0..1000).map(|_| MessageCommand { queue, action: put() }).collect();
        store.commit(Batch { commands: Vec::new(), messages }).await.expect("put");
    }
}

/// More than are deleted at a time, of which somebody has some in hand; those of another queue stay.
#[test]
fn a_large_queue_is_cleared() {
    common::run(async {
        let url = TestPostgres::shared().create_database();
        let store = open(&url).await;
        let account = account(&*store).await;
        let jobs = queue(&*store, account, "jobs").await;
        let other = queue(&*store, account, "other").await;
        fill(&*store, jobs, 11).await;
        fill(&*store, other, 1).await;
        let (client, connection) =
            tokio_postgres::connect(&url, tokio_postgres::NoTls).await.expect("connected");
        tokio::spawn(connection);
        client.batch_execute("BEGIN").await.expect("begun");
        let lock = "SELECT 1 FROM rowhouse.messages ORDER BY id LIMIT 50 FOR UPDATE";
        client.query(lock, &[]).await.expect("locked");
        let clearing = tokio::spawn({
            let store = Arc::clone(&store);
            async move { clear(&*store, jobs).await }
        });
        let give_up = Instant::now() + Duration::from_secs(20);
        while store.message_count(jobs).await.expect("counted") > 1100 {
            assert!(Instant::now() < give_up, "steps are not one moment");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        client.batch_execute("COMMIT").await.expect("let go");
        clearing.await.expect("no panic").expect("cleared");
        assert_eq!(store.message_count(jobs).await.expect("counted"), 0);
        assert_eq!(store.message_count(other).await.expect("counted"), 1000);
        store.drop_queue(jobs).await.expect("dropped");
        let gone = common::refused(clear(&*store, jobs).await);
        assert_eq!(gone, Err(Conflict::QueueNotFound));
    });
}

/// A database that refuses to leave fewer messages than that.
fn refuse_below(url: &str, messages: usize) {
    let sql = format!(
        "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN
             IF (SELECT count(*) FROM rowhouse.messages) < {messages} THEN RAISE 'full'; END IF;
             RETURN NULL;
         END $$;
         CREATE OR REPLACE TRIGGER refuse AFTER DELETE ON rowhouse.messages
             FOR EACH STATEMENT EXECUTE FUNCTION refuse();"
    );
    TestPostgres::shared().execute(database(url), &sql);
}

/// Busy says that nothing happened: true of the first step only.
#[test]
fn clearing_that_fails_half_done_is_not_said_to_have_done_nothing() {
    common::run(async {
        let url = TestPostgres::shared().create_database();
        let store = open(&url).await;
        let account = account(&*store).await;
        let jobs = queue(&*store, account, "jobs").await;
        fill(&*store, jobs, 11).await;
        // The first step, the second, and the statement that does the rest.
        for (refused_below, left, is_busy) in
            [(11_000, 11_000, true), (2_000, 6_000, false), (500, 1_000, false)]
        {
            refuse_below(&url, refused_below);
            let failed = clear(&*store, jobs).await.expect_err("the database refuses");
            assert_eq!(matches!(failed, StoreError::Busy), is_busy, "{left}: {failed:?}");
            assert_eq!(matches!(failed, StoreError::OutcomeUnknown(_)), !is_busy, "{failed:?}");
            assert_eq!(store.message_count(jobs).await.expect("counted"), left);
            fill(&*store, jobs, 11 - usize::try_from(left / 1000).expect("few")).await;
        }
    });
}

/// So many messages, with random ids that begin with a byte of these.
fn pour(url: &str, count: u32, (from, to): (u8, u8)) {
    let sql = format!(
        "INSERT INTO rowhouse.messages
         SELECT 1, set_byte(uuid_send(gen_random_uuid()), 0, {from} + floor(random() * ({to} - {from} + 1))::int),
             0, n, 1, 0, 3155378975999999999, 0, '' FROM generate_series(1, {count}) n"
    );
    TestPostgres::shared().execute(database(url), &sql);
}

/// Exact up to 100,000. Beyond, a little more than there are; also where clearing stopped half way, and what was put since
/// makes one half of the ids rarer than the other.
#[test]
fn a_large_queue_is_counted_without_reading_all_of_it() {
    common::run(async {
        let url = TestPostgres::shared().create_database();
        let store = open(&url).await;
        let account = account(&*store).await;
        let jobs = queue(&*store, account, "jobs").await;
        let count = async || store.message_count(jobs).await.expect("counted");
        assert_eq!(jobs, QueueId(1));
        pour(&url, 99_999, (100, 255));
        assert_eq!(count().await, 99_999);
        let mut there = 99_999;
        let mut estimated = 0;
        for (more, ids) in [(1, (0, 255)), (20_000, (0, 99)), (200_000, (0, 255))] {
            pour(&url, more, ids);
            there += u64::from(more);
            let counted = count().await;
            assert!((there..there + there / 12).contains(&counted), "{counted} of {there}");
            estimated += usize::from(counted > there);
        }
        assert_eq!(estimated, 3, "it was not all counted");
    });
}
