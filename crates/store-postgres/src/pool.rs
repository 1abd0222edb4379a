//! Connections: how they are made, lent and given back.

use crate::address::{Address, TlsMode, parse_address};
use crate::fault::Fault;
use crate::lanes::{Lanes, Shared};
use crate::options::{Durability, OpenError, Options, Url};
use crate::tls;
use deadpool_postgres::{
    Manager, ManagerConfig, Object, Pool as Deadpool, PoolError, QueueMode, RecyclingMethod,
    Runtime, TimeoutType, Timeouts,
};
use futures_util::TryStreamExt as _;
use rowhouse_store::StoreError;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio_postgres::config::SslMode;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Config, NoTls, Row, Statement};

/// How long making a connection may take.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// What the client library says of a database that offers no TLS.
const NO_TLS: &str = "server does not support TLS";
/// How long the other side may leave sent data unacknowledged.
const SILENT_FOR: Duration = Duration::from_secs(10);
/// What every session is told. Statements name keys, so an index finds and orders the rows of them all, but for keys
/// with equal beginnings: without statistics the planner would at times read and sort a table instead. A statement or a lock that takes too long is given up, so that
/// nobody waits for ever, and so is one whose client has gone.
const SESSION: &str = "-c jit=off -c timezone=UTC -c enable_seqscan=off -c enable_bitmapscan=off \
    -c enable_sort=off -c statement_timeout=30s -c lock_timeout=10s -c idle_in_transaction_session_timeout=60s \
    -c client_connection_check_interval=1s";

/// Parameters of a statement.
pub(crate) type Values<'a> = &'a [&'a (dyn ToSql + Sync)];

/// Connections to one database, at most as many as configured.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    connections: Deadpool,
    lanes: Arc<Lanes>,
    tls: TlsMode,
}

/// A connection for one operation. Given back when dropped, and closed instead if a transaction is open or an answer
/// has not been read: the next one must not wait for it, nor take part in it.
#[derive(Debug)]
pub(crate) struct Session {
    object: Option<Object>,
    lanes: Weak<Lanes>,
    /// A transaction is open, or something was left unread.
    unclean: AtomicBool,
    /// Statements whose answer nobody has read yet: whoever asked may have gone.
    in_flight: AtomicU32,
}

impl Pool {
    /// Makes no connection yet.
    pub(crate) fn new(url: &Url, options: &Options) -> Result<Self, OpenError> {
        let address = parse_address(url.as_str()).map_err(OpenError::Address)?;
        Self::of(address, options)
    }

    /// The same database on another node, as the same user.
    pub(crate) fn at(options: &Options, host: &str, port: u16) -> Result<Self, OpenError> {
        let Address { config: named, tls } =
            parse_address(options.url.as_str()).map_err(OpenError::Address)?;
        let mut config = Config::new();
        config.host(host).port(port);
        if let Some(user) = named.get_user() {
            config.user(user);
        }
        if let Some(password) = named.get_password() {
            config.password(password);
        }
        if let Some(database) = named.get_dbname().or(named.get_user()) {
            config.dbname(database);
        }
        if let Some(given) = named.get_options() {
            config.options(given);
        }
        Self::of(Address { config, tls }, options)
    }

    fn of(address: Address, options: &Options) -> Result<Self, OpenError> {
        let is_local = address.is_local();
        let Address { mut config, tls } = address;
        let given = config.get_options().unwrap_or_default().to_owned();
        config.options(format!("{SESSION} {given}"));
        if config.get_application_name().is_none() {
            config.application_name("rowhouse");
        }
        config.connect_timeout(CONNECT_WITHIN);
        // A database that vanished without a word is noticed within so many seconds, not within minutes.
        config.tcp_user_timeout(SILENT_FOR);
        config
            .keepalives_idle(SILENT_FOR)
            .keepalives_interval(Duration::from_secs(3))
            .keepalives_retries(3);
        let fast = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        // Plain text never leaves this machine unless the address says so.
        config.ssl_mode(match tls {
            TlsMode::Disable => SslMode::Disable,
            TlsMode::Prefer if is_local => SslMode::Prefer,
            TlsMode::Prefer | TlsMode::VerifyCa | TlsMode::VerifyFull => SslMode::Require,
        });
        let manager = if tls == TlsMode::Disable {
            Manager::from_config(config, NoTls, fast)
        } else {
            let connector = tls::connector(tls, options.authorities.as_deref())?;
            Manager::from_config(config, connector, fast)
        };
        let most = options.connections.max(2);
        let pool = Deadpool::builder(manager)
            .max_size(most)
            // The one that was used last: as few processes of the database as can do the work, whose memory the
            // processor still has at hand.
            .queue_mode(QueueMode::Lifo)
            .timeouts(Timeouts {
                wait: Some(options.patience),
                create: Some(CONNECT_WITHIN),
                recycle: Some(CONNECT_WITHIN),
            })
            .runtime(Runtime::Tokio1)
            .build();
        let connections = pool.map_err(|error| OpenError::Unreachable(error.to_string()))?;
        Ok(Self { connections, lanes: Lanes::of(most), tls })
    }

    /// A connection, when one is free.
    pub(crate) async fn session(&self) -> Result<Session, StoreError> {
        self.reach().await?.ok_or(StoreError::Busy)
    }

    /// As [`Pool::session`]; none if no connection can be made.
    pub(crate) async fn reach(&self) -> Result<Option<Session>, StoreError> {
        match self.connections.get().await {
            Ok(object) => Ok(Some(self.lend(object))),
            Err(PoolError::Closed) => Err(StoreError::unavailable("the store is closed")),
            Err(PoolError::Timeout(TimeoutType::Wait)) => Err(StoreError::Busy),
            Err(error) => {
                tracing::warn!(%error, "no connection to the database");
                Ok(None)
            }
        }
    }

    /// A connection that reads by key share, if there is one at the moment.
    pub(crate) fn shared(&self) -> Option<Shared> {
        self.lanes.enter(|| self.has_spare())
    }

    /// Whether fewer connections are used and waited for than there can be.
    fn has_spare(&self) -> bool {
        let status = self.connections.status();
        status.size + status.waiting < status.max_size + status.available
    }

    /// As [`Pool::session`], for whoever opens a store.
    pub(crate) async fn first(&self) -> Result<Session, OpenError> {
        match self.connections.get().await {
            Ok(object) => Ok(self.lend(object)),
            Err(PoolError::Backend(error)) => Err(match OpenError::of(&error) {
                OpenError::Misconfigured(reason)
                    if self.tls == TlsMode::Prefer && reason.contains(NO_TLS) =>
                {
                    OpenError::PlainText
                }
                reason => reason,
            }),
            Err(error) => Err(OpenError::Unreachable(error.to_string())),
        }
    }

    /// Lends no more connections; those that are lent are closed when they are given back.
    pub(crate) fn close(&self) {
        self.connections.close();
        self.lanes.end();
    }

    /// Connections that are open, idle, and requests that wait for one.
    pub(crate) fn usage(&self) -> (usize, usize, usize) {
        let status = self.connections.status();
        (status.size, status.available + self.lanes.idle(), status.waiting)
    }

    fn lend(&self, object: Object) -> Session {
        Session {
            object: Some(object),
            lanes: Arc::downgrade(&self.lanes),
            unclean: AtomicBool::new(false),
            in_flight: AtomicU32::new(0),
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if !self.is_clean()
            && let Some(object) = self.object.take()
        {
            drop(Object::take(object));
        }
    }
}

impl Session {
    fn object(&self) -> &Object {
        self.object.as_ref().expect("taken only when dropped")
    }

    /// Whether there is no transaction, and every answer has been read.
    fn is_clean(&self) -> bool {
        !self.unclean.load(Ordering::Relaxed) && self.in_flight.load(Ordering::Relaxed) == 0
    }

    /// Whether the connection is there, as far as is known.
    pub(crate) fn is_open(&self) -> bool {
        !self.object().is_closed()
    }

    /// Lets reads by key share the connection from now on, if too few are shared. It is given back otherwise.
    pub(crate) fn share(self) {
        if self.is_clean()
            && let Some(lanes) = self.lanes.upgrade()
        {
            lanes.offer(self);
        }
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

    /// Undoes the transaction that was begun. Where the database does not answer, closing the connection undoes it.
    pub(crate) async fn roll_back(&self) {
        if let Err(fault) = self.end("ROLLBACK").await {
            tracing::debug!(?fault, "a transaction is undone by closing its connection");
        }
    }

    /// From now on the connection is closed instead of given back.
    pub(crate) fn mark_unclean(&self) {
        self.unclean.store(true, Ordering::Relaxed);
    }

    /// Asks and reads the answer; if whoever waits for it goes, the connection is not lent again.
    pub(crate) async fn whole<T>(
        &self,
        work: impl Future<Output = Result<T, Fault>>,
    ) -> Result<T, Fault> {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        let result = work.await;
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
        result
    }

    /// A statement that this connection keeps prepared.
    async fn prepare(&self, sql: &str) -> Result<Statement, Fault> {
        Ok(self.object().prepare_cached(sql).await?)
    }

    /// All rows of a statement that the connection keeps prepared.
    pub(crate) async fn rows(&self, sql: &str, values: Values<'_>) -> Result<Vec<Row>, Fault> {
        self.whole(async {
            let statement = self.prepare(sql).await?;
            Ok(self.object().query(&statement, values).await?)
        })
        .await
    }

    /// The rows of a statement that the connection keeps prepared, one by one, for as long as more are wanted.
    pub(crate) async fn each(
        &self,
        sql: &str,
        values: Values<'_>,
        mut take: impl FnMut(&Row) -> Result<bool, Fault>,
    ) -> Result<(), Fault> {
        self.whole(async {
            let statement = self.prepare(sql).await?;
            let values = values.iter().copied();
            let mut rows = pin!(self.object().query_raw(&statement, values).await?);
            while let Some(row) = rows.try_next().await? {
                if !take(&row)? {
                    break;
                }
            }
            Ok(())
        })
        .await
    }

    /// The row of a statement that has at most one.
    pub(crate) async fn row(&self, sql: &str, values: Values<'_>) -> Result<Option<Row>, Fault> {
        Ok(self.rows(sql, values).await?.into_iter().next())
    }

    /// All rows of a statement that is not worth keeping.
    pub(crate) async fn rows_once(
        &self,
        sql: &str,
        values: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<Vec<Row>, Fault> {
        self.whole(async { Ok(self.object().query_typed(sql, values).await?) }).await
    }

    /// How many rows a statement changed.
    pub(crate) async fn execute(&self, sql: &str, values: Values<'_>) -> Result<u64, Fault> {
        self.whole(async {
            let statement = self.prepare(sql).await?;
            Ok(self.object().execute(&statement, values).await?)
        })
        .await
    }

    /// Statements without values.
    pub(crate) async fn run(&self, sql: &str) -> Result<(), Fault> {
        self.whole(async { Ok(self.object().batch_execute(sql).await?) }).await
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
        let found = found.map_err(Fault::of_opening)?;
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
    if setting("data_checksums").await? == "off" {
        tracing::warn!(
            "the database runs with data_checksums off, so that it cannot notice damaged pages: stop it and run \
             'pg_checksums --enable'"
        );
    }
    Ok(())
}
