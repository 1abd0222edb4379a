//! Connections: how they are made, lent and given back.

use crate::fault::Fault;
use crate::options::{Durability, OpenError, Options, Url};
use deadpool_postgres::{
    Manager, ManagerConfig, Object, Pool as Deadpool, PoolError, RecyclingMethod, Runtime, Timeouts,
};
use rowhouse_store::StoreError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Config, NoTls, Row, Statement};

/// How long making a connection may take.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// What every session is told. Statements name keys, so an index finds and orders the rows of them all, but for keys
/// with equal beginnings: without statistics the planner would at times read and sort a table instead. A statement or a lock that takes too long is given up, so that
/// nobody waits for ever.
const SESSION: &str = "-c jit=off -c timezone=UTC -c enable_seqscan=off -c enable_bitmapscan=off \
    -c enable_sort=off -c statement_timeout=30s -c lock_timeout=10s -c idle_in_transaction_session_timeout=60s";

/// Parameters of a statement.
pub(crate) type Values<'a> = &'a [&'a (dyn ToSql + Sync)];

/// Connections to one database, at most as many as configured.
#[derive(Clone, Debug)]
pub(crate) struct Pool(Deadpool);

/// A connection for one operation. Given back when dropped, unless a transaction is open or something unread.
pub(crate) struct Session {
    object: Option<Object>,
    /// Set while it must not be lent to another.
    unclean: AtomicBool,
}

impl Pool {
    /// Makes no connection yet.
    pub(crate) fn new(url: &Url, options: &Options) -> Result<Self, OpenError> {
        let mut config: Config = url.as_str().parse().map_err(OpenError::Address)?;
        let given = config.get_options().unwrap_or_default().to_owned();
        config.options(format!("{SESSION} {given}"));
        if config.get_application_name().is_none() {
            config.application_name("rowhouse");
        }
        config.connect_timeout(CONNECT_WITHIN);
        config.keepalives_idle(Duration::from_secs(30));
        let fast = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = Manager::from_config(config, NoTls, fast);
        let pool = Deadpool::builder(manager)
            .max_size(options.connections.max(2))
            .timeouts(Timeouts {
                wait: Some(options.patience),
                create: Some(CONNECT_WITHIN),
                recycle: Some(CONNECT_WITHIN),
            })
            .runtime(Runtime::Tokio1)
            .build();
        let pool = pool.map_err(|error| OpenError::Unreachable(error.to_string()))?;
        Ok(Self(pool))
    }

    /// A connection, when one is free.
    pub(crate) async fn session(&self) -> Result<Session, StoreError> {
        match self.0.get().await {
            Ok(object) => Ok(Session::new(object)),
            Err(PoolError::Closed) => Err(StoreError::unavailable("the store is closed")),
            Err(PoolError::Timeout(_)) => Err(StoreError::Busy),
            Err(error) => {
                tracing::warn!(%error, "no connection to the database");
                Err(StoreError::Busy)
            }
        }
    }

    /// As [`Pool::session`], for whoever opens a store.
    pub(crate) async fn first(&self) -> Result<Session, OpenError> {
        let object = self.0.get().await;
        object.map(Session::new).map_err(|error| OpenError::Unreachable(error_chain(&error)))
    }

    /// Lends no more connections.
    pub(crate) fn close(&self) {
        self.0.close();
    }

    /// Connections that are open, idle, and requests that wait for one.
    pub(crate) fn usage(&self) -> (usize, usize, usize) {
        let status = self.0.status();
        (status.size, status.available, status.waiting)
    }
}

/// An error with what caused it, in one line.
pub(crate) fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.unclean.load(Ordering::Relaxed)
            && let Some(object) = self.object.take()
        {
            drop(Object::take(object));
        }
    }
}

impl Session {
    fn new(object: Object) -> Self {
        Self { object: Some(object), unclean: AtomicBool::new(false) }
    }

    fn object(&self) -> &Object {
        self.object.as_ref().expect("taken only when dropped")
    }

    /// Begins a transaction: `BEGIN` with its options.
    pub(crate) async fn begin(&self, sql: &str) -> Result<(), Fault> {
        self.mark_unclean();
        self.run(sql).await
    }

    /// Ends the transaction that was begun.
    pub(crate) async fn end(&self, sql: &str) -> Result<(), Fault> {
        self.run(sql).await?;
        self.unclean.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// From now on the connection is closed instead of given back.
    pub(crate) fn mark_unclean(&self) {
        self.unclean.store(true, Ordering::Relaxed);
    }

    /// A statement that this connection keeps prepared.
    pub(crate) async fn prepare(&self, sql: &str) -> Result<Statement, Fault> {
        Ok(self.object().prepare_cached(sql).await?)
    }

    /// All rows of a statement that the connection keeps prepared.
    pub(crate) async fn rows(&self, sql: &str, values: Values<'_>) -> Result<Vec<Row>, Fault> {
        let statement = self.prepare(sql).await?;
        Ok(self.object().query(&statement, values).await?)
    }

    /// The row of a statement that has at most one.
    pub(crate) async fn row(&self, sql: &str, values: Values<'_>) -> Result<Option<Row>, Fault> {
        Ok(self.rows(sql, values).await?.into_iter().next())
    }

    /// How many rows a statement changed.
    pub(crate) async fn execute(&self, sql: &str, values: Values<'_>) -> Result<u64, Fault> {
        let statement = self.prepare(sql).await?;
        Ok(self.object().execute(&statement, values).await?)
    }

    /// Statements without values.
    pub(crate) async fn run(&self, sql: &str) -> Result<(), Fault> {
        Ok(self.object().batch_execute(sql).await?)
    }

    /// The client itself, for what streams or pipelines.
    pub(crate) fn client(&self) -> &tokio_postgres::Client {
        self.object()
    }
}

/// Refuses a database that cannot keep what the store promises.
pub(crate) async fn examine(session: &Session, durability: Durability) -> Result<(), OpenError> {
    let setting = async |name: &str| -> Result<String, OpenError> {
        let found = session.row("SELECT current_setting($1)", &[&name]).await;
        let found = found.map_err(|fault| OpenError::Unreachable(format!("{fault:?}")))?;
        Ok(found.map(|row| row.get(0)).unwrap_or_default())
    };
    let encoding = setting("server_encoding").await?;
    if encoding != "UTF8" {
        return Err(OpenError::Encoding(encoding));
    }
    let version = setting("server_version_num").await?;
    if version.parse::<u32>().unwrap_or(0) < 150_000 {
        return Err(OpenError::Version(setting("server_version").await?));
    }
    if durability == Durability::Durable {
        for name in ["fsync", "full_page_writes", "synchronous_commit"] {
            if setting(name).await? == "off" {
                return Err(OpenError::NotDurable(name));
            }
        }
    }
    Ok(())
}
