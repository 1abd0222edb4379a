//! Nobody else on the database while a backup is restored into it.
//!
//! Whoever restores holds an advisory lock from before it changes anything until it closes, and goes on only if no server has a
//! lease. A server asks for the lock after it has taken its lease: whichever of the two comes second finds the first, and
//! is refused. The lock belongs to a connection, so nothing is left of it when its holder is killed. When that connection is lost, or a server is there all
//! the same, nothing more is written.

use crate::fault::Fault;
use crate::options::{OpenError, Options};
use crate::pool::{Pool, Session};
use rowhouse_store::StoreError;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Held by whoever restores.
const LOCK: i64 = 0x726F_7768_6F75_7369;
/// How long the lock and the leases of others are waited for: what a killed process leaves is gone before.
const PATIENCE: Duration = Duration::from_secs(6);
/// How often it is looked whether they are gone.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How often it is looked whether a server has come all the same.
const WATCH_EVERY: Duration = Duration::from_secs(1);

/// The connection stays for as long as a restore takes, and the database notices when the other side has vanished.
const SETTINGS: &str = "SET idle_session_timeout = 0; SET tcp_keepalives_idle = 10;
    SET tcp_keepalives_interval = 3; SET tcp_keepalives_count = 3";
const TAKE: &str = "SELECT pg_try_advisory_lock($1)";
const RELEASE: &str = "SELECT pg_advisory_unlock($1)";
/// Given back at once.
const IS_FREE: &str = "SELECT pg_try_advisory_xact_lock_shared($1)";
const HAS_SCHEMA: &str = "SELECT EXISTS (SELECT FROM pg_catalog.pg_tables
    WHERE schemaname = 'rowhouse' AND tablename = 'servers')";
const SERVERS: &str = "SELECT count(*) FROM rowhouse.servers WHERE expires > now()";
/// One that is about to be refused has a lease too, for a moment.
const STAYED: &str = "SELECT EXISTS (SELECT FROM rowhouse.servers
    WHERE expires > now() AND holder <> $1 AND since < now() - interval '15 s')";

const LOST: &str = "the connection to the database was lost that kept servers off it";
const INTRUDED: &str = "a server is running on the database: stop it";

/// Keeps others off the database until it is released.
#[derive(Debug)]
pub(crate) struct Alone {
    session: Session,
    /// Why others are no longer kept off.
    over: OnceLock<&'static str>,
}

impl Alone {
    /// Takes the lock; refused while another has it, or servers are on the database.
    pub(crate) async fn take(options: &Options) -> Result<Arc<Self>, OpenError> {
        let session = Pool::new(&options.url, options)?.first().await?;
        session.mark_unclean();
        session.run(SETTINGS).await.map_err(Fault::of_opening)?;
        let began = Instant::now();
        while !is(&session, TAKE).await? {
            if PATIENCE < began.elapsed() {
                return Err(OpenError::RestoredByAnother);
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        loop {
            let servers = servers(&session).await.map_err(Fault::of_opening)?;
            if servers == 0 {
                return Ok(Arc::new(Self { session, over: OnceLock::new() }));
            }
            if PATIENCE < began.elapsed() {
                return Err(OpenError::Served { servers });
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Looks for servers that are there all the same, for as long as the store is open: one that was cut off from the
    /// database for longer than its lease, and has come back. This one is `holder`.
    pub(crate) async fn keep_watching(self: Arc<Self>, holder: i64) {
        loop {
            tokio::time::sleep(WATCH_EVERY).await;
            match self.session.row(STAYED, &[&holder]).await {
                Ok(row) if row.as_ref().is_some_and(|row| row.get(0)) => {
                    let _ = self.over.set(INTRUDED);
                }
                Ok(_) => {}
                Err(fault) => tracing::debug!(?fault, "who else is there could not be asked"),
            }
        }
    }

    /// Refuses if others are no longer kept off.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        if !self.session.is_open() {
            let _ = self.over.set(LOST);
        }
        self.over.get().map_or(Ok(()), |&reason| Err(StoreError::unavailable(reason)))
    }

    /// Lets others come.
    pub(crate) async fn release(&self) {
        // Where the database does not answer, it does so when the connection is closed.
        if let Err(fault) = self.session.row(RELEASE, &[&LOCK]).await {
            tracing::debug!(?fault, "the lock goes with its connection");
        }
    }
}

/// Refuses a server while a backup is being restored; asked when it has its lease.
pub(crate) async fn check_free(session: &Session) -> Result<(), OpenError> {
    if is(session, IS_FREE).await? { Ok(()) } else { Err(OpenError::Restoring) }
}

async fn is(session: &Session, sql: &str) -> Result<bool, OpenError> {
    let row = session.row(sql, &[&LOCK]).await.map_err(Fault::of_opening)?;
    Ok(row.is_some_and(|row| row.get(0)))
}

/// How many servers have a lease.
async fn servers(session: &Session) -> Result<i64, Fault> {
    let schema = session.row(HAS_SCHEMA, &[]).await?;
    if !schema.is_some_and(|row| row.get(0)) {
        return Ok(0);
    }
    Ok(session.row(SERVERS, &[]).await?.map_or(0, |row| row.get(0)))
}
