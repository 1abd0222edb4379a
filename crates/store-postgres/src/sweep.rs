//! The rows of dropped tables, indexes and queues, and messages that have expired: removed in small steps, by one server at a
//! time. Each of the four has its turn within a second or so, however much there is to do for another.
//!
//! A write that saw a table or an index before it was dropped may put a row there afterwards, and its commit may wait for a standby
//! for any time. So a table is forgotten only when no such write can be left: a server that finds it dropped waits
//! longer than any write needs to begin its transaction, then until every transaction that is open at that moment has
//! ended, and then finds no row. Counted from when it was found dropped, because only then others see that it is.
//!
//! Transactions are those of the database that was named. On a cluster other nodes have their own, and there only the
//! wait counts.

use crate::fault::Fault;
use crate::pool::{Pool, Session};
use crate::queue::{self, Now};
use std::collections::HashMap;
use std::time::{Duration, Instant};
use tokio_postgres::types::ToSql;

/// How often a server looks for something to sweep, also while there is much of something else.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Between two steps: others come first.
const PAUSE: Duration = Duration::from_millis(20);
/// Longer than a write that saw the table takes to begin writing, or is given up.
const GRACE: Duration = Duration::from_mins(2);
/// What is known of a table that is not forgotten by then is found out again.
const REMEMBER: Duration = Duration::from_hours(1);
/// Rows of a step.
const ROWS: i64 = 1000;
/// Held by whoever sweeps.
const LOCK: i64 = 0x726F_7768_6F75_7366;

/// The number of this transaction: every one that had a number before has a smaller one.
const MARK: &str = "SELECT pg_current_xact_id()::text::bigint";
/// Every transaction with a smaller number has ended.
const OLDEST: &str = "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint";

/// What is dropped and has rows.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Table,
    Index,
    Queue,
}

impl Kind {
    /// The first that is dropped, so many skipped.
    fn next(self) -> &'static str {
        match self {
            Self::Table => {
                "SELECT t.tid FROM rowhouse.tables t
                 WHERE t.dropped IS NOT NULL AND pg_try_advisory_xact_lock($1)
                 ORDER BY t.dropped OFFSET $2 LIMIT 1"
            }
            Self::Index => {
                "SELECT i.iid FROM rowhouse.indexes i
                 WHERE i.dropped IS NOT NULL AND pg_try_advisory_xact_lock($1)
                 ORDER BY i.iid OFFSET $2 LIMIT 1"
            }
            Self::Queue => {
                "SELECT q.qid FROM rowhouse.queues q
                 WHERE q.dropped IS NOT NULL AND pg_try_advisory_xact_lock($1)
                 ORDER BY q.dropped OFFSET $2 LIMIT 1"
            }
        }
    }

    /// The last key of a step; none if all that is left is one.
    fn bound(self) -> &'static str {
        match self {
            Self::Table => {
                "SELECT b.kp, b.kh FROM rowhouse.entities b WHERE b.tid = $1
                 ORDER BY b.kp, b.kh OFFSET $2 LIMIT 1"
            }
            Self::Index => {
                "SELECT b.entry, b.kp, b.kh FROM rowhouse.index_entries b WHERE b.iid = $1
                 ORDER BY b.entry, b.kp, b.kh OFFSET $2 LIMIT 1"
            }
            Self::Queue => {
                "SELECT b.id FROM rowhouse.messages b WHERE b.qid = $1 ORDER BY b.id OFFSET $2 LIMIT 1"
            }
        }
    }

    fn step(self) -> &'static str {
        match self {
            Self::Table => {
                "DELETE FROM rowhouse.entities e WHERE e.tid = $1 AND (e.kp, e.kh) <= ($2, $3)"
            }
            Self::Index => {
                "DELETE FROM rowhouse.index_entries x
                 WHERE x.iid = $1 AND (x.entry, x.kp, x.kh) <= ($2, $3, $4)"
            }
            Self::Queue => "DELETE FROM rowhouse.messages m WHERE m.qid = $1 AND m.id <= $2",
        }
    }

    fn last(self) -> &'static str {
        match self {
            Self::Table => "DELETE FROM rowhouse.entities e WHERE e.tid = $1",
            Self::Index => "DELETE FROM rowhouse.index_entries x WHERE x.iid = $1",
            Self::Queue => "DELETE FROM rowhouse.messages m WHERE m.qid = $1",
        }
    }

    fn forget(self) -> &'static str {
        match self {
            Self::Table => "DELETE FROM rowhouse.tables t WHERE t.tid = $1",
            Self::Index => "DELETE FROM rowhouse.indexes i WHERE i.iid = $1",
            Self::Queue => "DELETE FROM rowhouse.queues q WHERE q.qid = $1",
        }
    }
}

/// Sweeps for as long as the store is open.
pub(crate) async fn keep_sweeping(pool: Pool, now: impl Fn() -> Now) {
    let mut sweeper = Sweeper::new(pool, GRACE);
    loop {
        let again = Instant::now() + LOOK_EVERY;
        sweeper.sweep(&now).await;
        tokio::time::sleep_until(again.into()).await;
    }
}

struct Sweeper {
    pool: Pool,
    grace: Duration,
    /// How long a look lasts at most.
    look: Duration,
    turns: [Turn; 4],
    /// What this server has seen dropped.
    dropped: HashMap<(Kind, i64), Dropped>,
}

/// What is swept in turn with the others.
#[derive(Clone, Copy)]
struct Turn {
    /// Messages that have expired, if it is nothing that was dropped.
    kind: Option<Kind>,
    /// How many of the kind wait, so that those behind them get theirs.
    skipped: i64,
    /// Nothing is left, or another server does it.
    is_over: bool,
}

impl Turn {
    const fn of(kind: Option<Kind>) -> Self {
        Self { kind, skipped: 0, is_over: false }
    }
}

/// What is known of writes to a dropped table, index or queue.
struct Dropped {
    seen: Instant,
    /// Every write that saw it has a transaction with a smaller number, or none any more.
    barrier: Option<i64>,
}

/// What a step did.
enum Swept {
    Rows,
    /// It is gone for good.
    All,
    /// It has no rows, but may get some from a write that is under way.
    Waits,
    Nothing,
}

impl Sweeper {
    fn new(pool: Pool, grace: Duration) -> Self {
        let kinds = [Some(Kind::Table), Some(Kind::Index), Some(Kind::Queue), None];
        let (turns, dropped) = (kinds.map(Turn::of), HashMap::new());
        Self { pool, grace, look: LOOK_EVERY, turns, dropped }
    }

    /// A step of each in turn, until nothing is left of any or the look is over. The next one goes on where this one ended,
    /// and asks again for what had nothing left.
    async fn sweep(&mut self, now: impl Fn() -> Now) {
        self.dropped.retain(|_, dropped| dropped.seen.elapsed() < REMEMBER);
        let began = Instant::now();
        for turn in &mut self.turns {
            if turn.is_over {
                *turn = Turn::of(turn.kind);
            }
        }
        while self.turns.iter().any(|turn| !turn.is_over) {
            for at in 0..self.turns.len() {
                let turn = self.turns[at];
                if !turn.is_over {
                    self.turns[at] = self.take_turn(turn, &now).await;
                }
            }
            if began.elapsed() >= self.look {
                return;
            }
        }
    }

    /// One step; what comes next. One kind that cannot be swept leaves the others their turns.
    async fn take_turn(&mut self, turn: Turn, now: impl Fn() -> Now) -> Turn {
        let swept = match turn.kind {
            Some(kind) => self.sweep_dropped(kind, turn.skipped).await,
            None => self.sweep_expired(now()).await,
        };
        match swept {
            Ok(Swept::Rows) => {
                tokio::time::sleep(PAUSE).await;
                turn
            }
            Ok(Swept::All) => turn,
            Ok(Swept::Waits) => Turn { skipped: turn.skipped + 1, ..turn },
            Ok(Swept::Nothing) => Turn { is_over: true, ..turn },
            Err(fault) => {
                tracing::debug!(?fault, "sweeping goes on later");
                Turn { is_over: true, ..turn }
            }
        }
    }

    async fn sweep_expired(&self, now: Now) -> Result<Swept, Fault> {
        let session = self.pool.session().await?;
        session.begin("BEGIN").await?;
        let locked = session.row("SELECT pg_try_advisory_xact_lock($1)", &[&LOCK]).await?;
        let is_ours = locked.is_some_and(|row| row.get(0));
        let removed = if is_ours { queue::expiry::remove(&session, now, ROWS).await? } else { 0 };
        session.end("COMMIT").await?;
        Ok(if removed < ROWS.unsigned_abs() { Swept::Nothing } else { Swept::Rows })
    }

    async fn sweep_dropped(&mut self, kind: Kind, skipped: i64) -> Result<Swept, Fault> {
        let session = self.pool.session().await?;
        session.begin("BEGIN; SET LOCAL rowhouse.sweeping = 'on'").await?;
        let swept = self.step(&session, kind, skipped).await?;
        session.end("COMMIT").await?;
        Ok(swept)
    }

    async fn step(&mut self, session: &Session, kind: Kind, skip: i64) -> Result<Swept, Fault> {
        let Some(row) = session.row(kind.next(), &[&LOCK, &skip]).await? else {
            return Ok(Swept::Nothing);
        };
        let id: i64 = row.get(0);
        // Asked before the rows are: none can come between.
        let is_settled = self.is_settled(session, (kind, id)).await?;
        if remove_rows(session, kind, id).await? > 0 {
            return Ok(Swept::Rows);
        }
        if !is_settled {
            return Ok(Swept::Waits);
        }
        session.execute(kind.forget(), &[&id]).await?;
        self.dropped.remove(&(kind, id));
        Ok(Swept::All)
    }

    /// Whether every write that saw it has ended.
    async fn is_settled(&mut self, session: &Session, what: (Kind, i64)) -> Result<bool, Fault> {
        let unseen = || Dropped { seen: Instant::now(), barrier: None };
        let dropped = self.dropped.entry(what).or_insert_with(unseen);
        if dropped.seen.elapsed() < self.grace {
            return Ok(false);
        }
        let Some(barrier) = dropped.barrier else {
            dropped.barrier = session.row(MARK, &[]).await?.map(|row| row.get(0));
            return Ok(false);
        };
        let oldest: Option<i64> = session.row(OLDEST, &[]).await?.map(|row| row.get(0));
        Ok(oldest.is_some_and(|oldest| barrier <= oldest))
    }
}

/// How many rows a step removed.
async fn remove_rows(session: &Session, kind: Kind, id: i64) -> Result<u64, Fault> {
    let Some(bound) = session.row(kind.bound(), &[&id, &(ROWS - 1)]).await? else {
        return session.execute(kind.last(), &[&id]).await;
    };
    let columns: Vec<&[u8]> = (0..bound.len()).map(|column| bound.get(column)).collect();
    let mut values: Vec<&(dyn ToSql + Sync)> = vec![&id];
    values.extend(columns.iter().map(|column| column as &(dyn ToSql + Sync)));
    session.execute(kind.step(), &values).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{Durability, Options};
    use crate::schema;
    use rowhouse_testkit::TestPostgres;

    const DROPPED: &str =
        "INSERT INTO rowhouse.tables (tid, account, folded, name, created, dropped)
        VALUES (7, 1, '!7', 'Gone', 0, now() - interval '1 hour')";
    const LATE: &str = "INSERT INTO rowhouse.entities
        VALUES (1, 7, '\\x7000', '', '', 1, 1, 1, '{}', '{}')";
    const LEFT: &str =
        "SELECT (SELECT count(*) FROM rowhouse.tables), (SELECT count(*) FROM rowhouse.entities)";

    async fn with_dropped_table() -> (Pool, Session) {
        let url = TestPostgres::shared().create_database();
        let options = Options { durability: Durability::Ephemeral, ..Options::new(url) };
        let pool = Pool::new(&options.url, &options).unwrap();
        let session = pool.session().await.unwrap();
        schema::migrate(&session).await.unwrap();
        session.run(DROPPED).await.unwrap();
        (pool, session)
    }

    async fn left(session: &Session) -> (i64, i64) {
        let row = session.row(LEFT, &[]).await.unwrap().unwrap();
        (row.get(0), row.get(1))
    }

    /// As with a commit that waits for a standby, however long ago the table was dropped.
    #[tokio::test]
    async fn a_row_that_is_committed_long_after_the_drop_is_swept() {
        let (pool, session) = with_dropped_table().await;
        let writer = pool.session().await.unwrap();
        writer.begin("BEGIN").await.unwrap();
        writer.run(LATE).await.unwrap();
        let mut sweeper = Sweeper::new(pool, Duration::ZERO);
        for _ in 0..5 {
            sweeper.sweep(|| Now(None)).await;
        }
        assert_eq!(left(&session).await, (1, 0), "a write that saw the table has not ended");
        writer.end("COMMIT").await.unwrap();
        let began = Instant::now();
        // Transactions of other tests are waited for too.
        while left(&session).await.0 > 0 && began.elapsed() < Duration::from_secs(30) {
            sweeper.sweep(|| Now(None)).await;
            tokio::time::sleep(PAUSE).await;
        }
        assert_eq!(left(&session).await, (0, 0));
    }

    /// A write that has just seen the table may not have begun a transaction that can be told.
    #[tokio::test]
    async fn a_table_that_was_just_found_dropped_is_kept() {
        let (pool, session) = with_dropped_table().await;
        session.run(LATE).await.unwrap();
        let mut sweeper = Sweeper::new(pool, GRACE);
        for _ in 0..5 {
            sweeper.sweep(|| Now(None)).await;
        }
        assert_eq!(left(&session).await, (1, 0), "its rows go at once");
    }

    const LARGE: &str = "INSERT INTO rowhouse.entities
        SELECT 1, 7, int8send(n), '', '', 1, 1, 1, '{}', '{}' FROM generate_series(1, 30000) n";
    const EXPIRED: &str = "INSERT INTO rowhouse.messages
        VALUES (1, '\\x01', 0, 1, 1, 0, 1, 0, ''), (1, '\\x02', 0, 1, 1, 0, 3155378975999999999, 0, '')";
    const OF_QUEUE: &str = "INSERT INTO rowhouse.queues (qid, account, name, created, dropped)
            VALUES (2, 1, '!2', 0, now());
        INSERT INTO rowhouse.messages SELECT 2, int8send(n), 0, n, 1, 0, 3155378975999999999, 0, ''
            FROM generate_series(1, 10) n";

    /// What comes up while a large table is being swept does not wait for its end.
    #[tokio::test]
    async fn a_large_table_leaves_the_others_their_turns() {
        let (pool, session) = with_dropped_table().await;
        session.run(LARGE).await.unwrap();
        let mut sweeper = Sweeper::new(pool, GRACE);
        sweeper.look = 5 * PAUSE;
        for appears in [EXPIRED, OF_QUEUE] {
            session.run(appears).await.unwrap();
            sweeper.sweep(|| Now(None)).await;
            let messages = session.row("SELECT count(*) FROM rowhouse.messages", &[]).await;
            assert_eq!(messages.unwrap().unwrap().get::<_, i64>(0), 1, "one has not expired");
            let entities = left(&session).await.1;
            assert!((1..30_000).contains(&entities), "the table had its turns too: {entities}");
        }
    }
}
