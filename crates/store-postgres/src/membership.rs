//! A server among others on one database: its slot, its lease, and the changes that the others must have seen.
//!
//! A server renews its row twice a second. While its lease lasts it may act on what it caches of accounts and tables;
//! a change of them raises the catalogue's version and is answered when every other server has said that it has seen
//! that version, or its lease has run out. A server that cannot renew asks the database every time.

use crate::alone;
use crate::cache::Cache;
use crate::fault::Fault;
use crate::lease::Lease;
use crate::options::OpenError;
use crate::pool::{Pool, Session};
use crate::ticks::{AHEAD, Exhausted, SLOTS, Tick, Ticks};
use crate::time::{CLOCK, ExpiryTime};
use rowhouse_env::{Clock, Random};
use rowhouse_store::StoreError;
use rowhouse_types::Timestamp;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

/// How often a server renews its row.
const RENEW_EVERY: Duration = Duration::from_millis(500);
/// How long renewing may take.
const RENEW_WITHIN: Duration = Duration::from_secs(2);
/// How long a write waits until ticks can be given out again.
const EXTEND_WITHIN: Duration = Duration::from_secs(5);
/// How long others wait for it, in the database's time. SQL has the same number.
const LEASE: &str = "3 s";
/// How often a server that changed something looks whether the others have seen it.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Nothing can be written any more.
pub(crate) const NO_TICKS: &str =
    "the store has used the last Timestamp that there is, of the year 9999";

const CLAIM: &str = "UPDATE rowhouse.servers AS s
    SET holder = $1, since = now() - $4::text::interval, expires = now() + $2::text::interval, seen = 0,
        high = GREATEST(s.high, (SELECT max(high) FROM rowhouse.servers), $3)
    WHERE s.slot = (SELECT slot FROM rowhouse.servers WHERE expires < now()
                    ORDER BY slot LIMIT 1 FOR UPDATE SKIP LOCKED)
    RETURNING s.slot::bigint, s.high";
const RENEW: &str = "UPDATE rowhouse.servers
    SET expires = now() + $3::text::interval, seen = $4, high = GREATEST(high, $5)
    WHERE slot = $1::bigint AND holder = $2 RETURNING high";
const VERSION: &str = "SELECT version FROM rowhouse.catalogue";
const LEAVE: &str = "UPDATE rowhouse.servers SET expires = '-infinity', high = $3
    WHERE slot = $1::bigint AND holder = $2 AND high >= $3";
const BEHIND: &str = "SELECT EXISTS (SELECT FROM rowhouse.servers
    WHERE expires > now() AND seen < $1 AND holder <> $2)";

/// This server's place among those on the database.
#[derive(Debug)]
pub(crate) struct Membership {
    pool: Pool,
    clock: Arc<dyn Clock>,
    holder: i64,
    ticks: Ticks,
    /// Version of the catalogue that the cache is at, at least.
    seen: AtomicI64,
    /// For how long the cache may be trusted.
    lease: Lease,
    cache: Arc<Cache>,
    time: ExpiryTime,
}

impl Membership {
    /// Takes a free slot.
    pub(crate) async fn join(
        pool: Pool,
        cache: Arc<Cache>,
        time: ExpiryTime,
        clock: Arc<dyn Clock>,
        random: &dyn Random,
    ) -> Result<Self, OpenError> {
        let mut bytes = [0; 8];
        random.fill(&mut bytes);
        let holder = i64::from_le_bytes(bytes);
        let session = pool.first().await?;
        let claimed = claim(&session, holder, Duration::ZERO).await;
        let (slot, high) = claimed.map_err(Fault::of_opening)?.ok_or(OpenError::TooManyServers)?;
        drop(session);
        let this = Self {
            pool,
            clock,
            holder,
            ticks: Ticks::new(slot, high, high),
            seen: AtomicI64::new(0),
            lease: Lease::new(),
            cache,
            time,
        };
        this.renew().await.map_err(Fault::of_opening)?;
        Ok(this)
    }

    /// As [`Membership::join`]; refused while a backup is being restored.
    pub(crate) async fn join_others(
        pool: Pool,
        cache: Arc<Cache>,
        time: ExpiryTime,
        clock: Arc<dyn Clock>,
        random: &dyn Random,
    ) -> Result<Self, OpenError> {
        let this = Self::join(pool.clone(), cache, time, clock, random).await?;
        let session = pool.first().await?;
        let free = alone::check_free(&session).await;
        drop(session);
        if let Err(error) = free {
            // Whoever restores need not wait until the lease runs out.
            if let Err(fault) = this.leave().await {
                tracing::debug!(?fault, "the lease runs out by itself");
            }
            return Err(error);
        }
        Ok(this)
    }

    /// Renews the row for as long as the store is open.
    pub(crate) async fn keep_renewing(self: Arc<Self>) {
        loop {
            tokio::time::sleep(RENEW_EVERY).await;
            match tokio::time::timeout(RENEW_WITHIN, self.renew()).await {
                Ok(Ok(())) => {}
                Ok(Err(fault)) => tracing::warn!(?fault, "the lease could not be renewed"),
                Err(_) => tracing::warn!("the lease could not be renewed in time"),
            }
        }
    }

    /// Renews the row, sees what changed, and says so.
    pub(crate) async fn renew(&self) -> Result<(), Fault> {
        let session = self.pool.session().await?;
        // Once more if something has changed, so that whoever changed it need not wait for the next time.
        while self.renew_once(&session).await? {}
        Ok(())
    }

    /// Whether the catalogue had changed.
    async fn renew_once(&self, session: &Session) -> Result<bool, Fault> {
        let requested = self.lease.now();
        let seen = self.seen.load(Ordering::SeqCst);
        let now = i64::try_from(self.clock.now().ticks()).unwrap_or(i64::MAX / 2);
        let mark = mark(now, self.ticks.last());
        let slot = self.ticks.slot();
        let renewed = session.row(RENEW, &[&slot, &self.holder, &LEASE, &seen, &mark]).await?;
        match renewed {
            Some(row) => self.ticks.raise(row.get(0)),
            None => self.claim_again(session).await?,
        }
        // The version is read after the lease is visible: a later change waits for this server.
        let row = session.row(VERSION, &[]).await?;
        let version: i64 = row.map_or(0, |row| row.get(0));
        let changed = seen < version;
        if changed {
            self.cache.forget();
            self.seen.fetch_max(version, Ordering::SeqCst);
        }
        self.lease.renew(requested);
        let before = self.clock.elapsed();
        if let Some(row) = session.row(CLOCK, &[]).await? {
            self.time.measure(row.get(0), before, self.clock.elapsed());
        }
        Ok(changed)
    }

    /// Its lease ran out and another server took the slot. Since when it is there has not changed: whoever must be alone
    /// notices by that.
    async fn claim_again(&self, session: &Session) -> Result<(), Fault> {
        tracing::warn!("the lease ran out and the slot was taken; taking another");
        self.cache.forget();
        let claimed = claim(session, self.holder, self.lease.age()).await?;
        let (slot, high) = claimed.ok_or(StoreError::Busy)?;
        self.ticks.take(slot, high, high);
        let mark = high.max(self.ticks.last()) + AHEAD / 100;
        let seen = 0i64;
        let row = session.row(RENEW, &[&slot, &self.holder, &LEASE, &seen, &mark]).await?;
        self.ticks.raise(row.map_or(high, |row| row.get(0)));
        Ok(())
    }

    /// Whether what is cached may be acted on.
    pub(crate) fn trusts_cache(&self) -> bool {
        !self.lease_left().is_zero()
    }

    /// Until when the lease lasts, from now; nothing if it has run out.
    pub(crate) fn lease_left(&self) -> Duration {
        self.lease.left()
    }

    /// The slot of this server, and the number that it holds it by.
    pub(crate) fn identity(&self) -> (i64, i64) {
        (self.ticks.slot(), self.holder)
    }

    /// A tick for a write.
    pub(crate) async fn tick(&self) -> Result<Tick, Fault> {
        self.tick_of(1).await
    }

    /// The latest tick that was given out here, or the time if that is later.
    pub(crate) fn now(&self) -> i64 {
        let now = i64::try_from(self.clock.now().ticks()).unwrap_or(i64::MAX / 2);
        now.max(self.ticks.last())
    }

    /// Whether ticks are left to give out.
    pub(crate) fn has_ticks(&self) -> bool {
        let last = u64::try_from(self.ticks.last()).unwrap_or(0);
        last.saturating_add(SLOTS.unsigned_abs()) <= Timestamp::MAX.ticks()
    }

    /// By how much the latest tick that was given out here is ahead of this server's clock.
    pub(crate) fn ahead(&self) -> Duration {
        let last = u64::try_from(self.ticks.last()).unwrap_or(0);
        let ticks = last.saturating_sub(self.clock.now().ticks());
        Duration::from_nanos(ticks.saturating_mul(100))
    }

    /// The first of so many ticks for a write.
    pub(crate) async fn tick_of(&self, count: i64) -> Result<Tick, Fault> {
        loop {
            match self.ticks.next_of(self.clock.now(), count) {
                Ok(tick) if Timestamp::from_ticks(tick.at.unsigned_abs()).is_none() => {
                    let text = NO_TICKS;
                    return Err(StoreError::unavailable(text).into());
                }
                Ok(tick) => return Ok(tick),
                Err(exhausted) => self.extend_in_time(exhausted).await?,
            }
        }
    }

    /// Takes note of another server's tick: those that follow here are later.
    pub(crate) async fn observe(&self, tick: i64) -> Result<(), Fault> {
        match self.ticks.observe(tick) {
            Ok(()) => Ok(()),
            Err(exhausted) => self.extend_in_time(exhausted).await,
        }
    }

    /// Moves the mark before anything is written: if that fails, nothing was.
    async fn extend_in_time(&self, exhausted: Exhausted) -> Result<(), Fault> {
        match tokio::time::timeout(EXTEND_WITHIN, self.extend(exhausted)).await {
            Ok(result) => result.map_err(Fault::before_commit),
            Err(_) => Err(StoreError::Busy.into()),
        }
    }

    /// Moves the mark.
    async fn extend(&self, Exhausted(least): Exhausted) -> Result<(), Fault> {
        if least > i64::try_from(Timestamp::MAX.ticks()).unwrap_or(i64::MAX) {
            let text = NO_TICKS;
            return Err(StoreError::unavailable(text).into());
        }
        let session = self.pool.session().await?;
        let (slot, seen) = (self.ticks.slot(), self.seen.load(Ordering::SeqCst));
        let now = i64::try_from(self.clock.now().ticks()).unwrap_or(i64::MAX / 2);
        let mark = mark(now, least);
        match session.row(RENEW, &[&slot, &self.holder, &LEASE, &seen, &mark]).await? {
            Some(row) => self.ticks.raise(row.get(0)),
            None => self.claim_again(&session).await?,
        }
        Ok(())
    }

    /// This server changed the catalogue to the version: waits until no other can act on what was before.
    pub(crate) async fn announce(&self, version: i64) -> Result<(), Fault> {
        self.cache.forget();
        loop {
            let session = self.pool.session().await?;
            let behind = session.row(BEHIND, &[&version, &self.holder]).await?;
            drop(session);
            if !behind.is_some_and(|row| row.get(0)) {
                return Ok(());
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Gives the slot back, with what was given out.
    pub(crate) async fn leave(&self) -> Result<(), Fault> {
        self.lease.end();
        let leave = async {
            let session = self.pool.session().await?;
            let (slot, last) = (self.ticks.slot(), self.ticks.last());
            session.execute(LEAVE, &[&slot, &self.holder, &last]).await.map(drop)
        };
        let left = tokio::time::timeout(RENEW_WITHIN, leave).await;
        self.pool.close();
        let late = || StoreError::outcome_unknown("the database did not answer in time").into();
        left.unwrap_or_else(|_| Err(late()))
    }
}

/// How far ticks may go: ahead of the clock, and only a little beyond a tick that is ahead of it itself. Who joins
/// starts beyond every mark, so that marks which lead each other would run away from the clock.
fn mark(now: i64, last: i64) -> i64 {
    (now + AHEAD).max(last + AHEAD / 100)
}

/// A slot and the last tick that may have been given out before; none if all are taken.
async fn claim(
    session: &Session,
    holder: i64,
    joined_ago: Duration,
) -> Result<Option<(i64, i64)>, Fault> {
    let ago = format!("{} s", joined_ago.as_secs());
    let row = session.row(CLAIM, &[&holder, &LEASE, &0i64, &ago]).await?;
    Ok(row.map(|row| (row.get(0), row.get(1))))
}
