//! The rows of dropped tables, and changes that are too old: removed in small steps, by one server at a time.

use crate::fault::Fault;
use crate::log;
use crate::pool::{Pool, Session};
use std::time::Duration;

/// How often a server looks for something to sweep.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Between two steps: others come first.
const PAUSE: Duration = Duration::from_millis(20);
/// Rows of a step.
const ROWS: i64 = 1000;
/// Held by whoever sweeps.
const LOCK: i64 = 0x726F_7768_6F75_7366;
/// Held by whoever removes changes.
const TRIM_LOCK: i64 = 0x726F_7768_6F75_7367;

const NEXT: &str = "SELECT t.tid, t.dropped < now() - interval '2 minutes'
    FROM rowhouse.tables t WHERE t.dropped IS NOT NULL AND pg_try_advisory_xact_lock($1)
    ORDER BY t.dropped OFFSET $2 LIMIT 1";
/// The last key of a step; none if all that is left is one.
const BOUND: &str = "SELECT b.kp, b.kh FROM rowhouse.entities b WHERE b.tid = $1
    ORDER BY b.kp, b.kh OFFSET $2 LIMIT 1";
const STEP: &str = "DELETE FROM rowhouse.entities e WHERE e.tid = $1 AND (e.kp, e.kh) <= ($2, $3)";
const LAST: &str = "DELETE FROM rowhouse.entities e WHERE e.tid = $1";
/// A write that began before the drop may end after it, so a table's row stays for longer than any statement takes.
const FORGET: &str = "DELETE FROM rowhouse.tables t WHERE t.tid = $1";

/// Sweeps for as long as the store is open.
pub(crate) async fn keep_sweeping(pool: Pool) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        for swept in [sweep(&pool).await, trim(&pool).await] {
            if let Err(fault) = swept {
                tracing::debug!(?fault, "sweeping goes on later");
            }
        }
    }
}

/// Until nothing is left, or another server does it.
async fn sweep(pool: &Pool) -> Result<(), Fault> {
    let mut skipped = 0;
    loop {
        let session = pool.session().await?;
        session.begin("BEGIN; SET LOCAL rowhouse.sweeping = 'on'").await?;
        let swept = step(&session, skipped).await?;
        session.end("COMMIT").await?;
        drop(session);
        match swept {
            Swept::Rows => tokio::time::sleep(PAUSE).await,
            Swept::Table => {}
            Swept::Waits => skipped += 1,
            Swept::Nothing => return Ok(()),
        }
    }
}

/// Removes the changes that need not be kept, unless another server does.
async fn trim(pool: &Pool) -> Result<(), Fault> {
    loop {
        let session = pool.session().await?;
        session.begin("BEGIN").await?;
        let turn = session.row("SELECT pg_try_advisory_xact_lock($1)", &[&TRIM_LOCK]).await?;
        let more = turn.is_some_and(|row| row.get(0)) && log::trim(&session).await?;
        session.end("COMMIT").await?;
        drop(session);
        if !more {
            return Ok(());
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// What a step did.
enum Swept {
    Rows,
    /// A table is gone for good.
    Table,
    /// A table has no rows, but may get some from a write that is under way.
    Waits,
    Nothing,
}

async fn step(session: &Session, skip: i64) -> Result<Swept, Fault> {
    let Some(row) = session.row(NEXT, &[&LOCK, &skip]).await? else { return Ok(Swept::Nothing) };
    let (table, is_old): (i64, bool) = (row.get(0), row.get(1));
    let removed = match session.row(BOUND, &[&table, &(ROWS - 1)]).await? {
        Some(bound) => {
            let (prefix, hash): (&[u8], &[u8]) = (bound.get(0), bound.get(1));
            session.execute(STEP, &[&table, &prefix, &hash]).await?
        }
        None => session.execute(LAST, &[&table]).await?,
    };
    if removed > 0 {
        return Ok(Swept::Rows);
    }
    if !is_old {
        return Ok(Swept::Waits);
    }
    session.execute(FORGET, &[&table]).await?;
    Ok(Swept::Table)
}
