//! From a configuration to a running server, and to its end.

use crate::accounts::seed;
use crate::announce::{Data, Started, announce};
use crate::banner::url;
use crate::changes;
use crate::config::Config;
use crate::engine::{self, Engine};
use crate::error::ServerError;
use crate::figures::observe;
use crate::master_key::MasterKey;
use crate::{ADMIN_TOKEN_FILE, VERSION, files, logging, restore, signals};
use rowhouse_env::{Clock, Random, SystemClock, SystemRandom};
use rowhouse_http::admin::{Admin, ClusterSource, Endpoints, Tokens};
use rowhouse_http::listener::{Limits, Listener, Tls};
use rowhouse_http::telemetry::Metrics;
use rowhouse_http::{
    Front, FrontConfig, Outbox, QueueHandler, QueueHandlerConfig, TableHandler, TableHandlerConfig,
};
use rowhouse_service_account::{AccountLimits, AccountService};
use rowhouse_service_backup::{BackupService, KeepKeys};
use rowhouse_service_queue::QueueService;
use rowhouse_service_table::TableService;
use rowhouse_types::limits::QUEUE_HEADERS_MAX;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::sync::watch;

/// What says where tables are served.
const TABLE_FLAGS: [&str; 2] = ["--host", "--table-port"];
/// What says where queues are served.
const QUEUE_FLAGS: [&str; 2] = ["--host", "--queue-port"];
/// How often the file with the admin tokens is looked at.
const TOKENS_READ_EVERY: Duration = Duration::from_millis(500);
/// What says where administration is.
const ADMIN_FLAGS: [&str; 2] = ["--admin-host", "--admin-port"];

/// Runs a server until the process is told to stop, with a runtime, a log and signals of its own.
pub fn run_until_signalled(config: Config) -> Result<(), ServerError> {
    logging::start(&config)?;
    files::raise_descriptor_limit();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(ServerError::System)?;
    runtime.block_on(async {
        let stop = signals::stop_requested().map_err(ServerError::System)?;
        run(config, stop).await
    })
}

/// Runs a server until `shutdown` resolves, then drains and closes the store.
///
/// A start that still waits for its database ends then too. Returns once everything is released.
/// Nothing that was acknowledged depends on that.
pub async fn run(config: Config, shutdown: impl Future<Output = ()>) -> Result<(), ServerError> {
    config.check()?;
    if let Some(path) = &config.ready_file {
        // A file of an earlier run would say that this one is ready.
        match std::fs::remove_file(path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                return Err(ServerError::File { path: path.clone(), source });
            }
            Ok(()) | Err(_) => {}
        }
    }
    check_files(&config, &SystemRandom)?;
    let place = Place::choose(&config)?;
    if !place.path().exists() {
        check_ports(&config)?;
    }
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let random: Arc<dyn Random> = Arc::new(SystemRandom);
    let mut shutdown = pin!(shutdown);
    let opening = Engine::open(&config, place.path(), Arc::clone(&clock), Arc::clone(&random));
    let engine = tokio::select! {
        biased;
        engine = opening => engine?,
        () = &mut shutdown => return Ok(()),
    };
    let outcome = match Server::start(&config, &place, &engine, clock, random).await {
        Ok(server) => {
            shutdown.await;
            tracing::info!("stopping");
            server.stop().await;
            tracing::info!("drained");
            Ok(())
        }
        Err(error) => Err(error),
    };
    let closed = engine.close().await;
    if let Some(path) = &config.ready_file {
        let _ = std::fs::remove_file(path);
    }
    outcome.and(closed)
}

/// A start that will be refused a file must not leave a directory or an account behind. The files are read again
/// when they are used.
fn check_files(config: &Config, random: &dyn Random) -> Result<(), ServerError> {
    config.master_key.sealer(&config.data)?;
    if let Some(path) = &config.admin_token_file {
        Tokens::load(path, random)?;
    }
    if let (Some(certificate), Some(key)) = (&config.tls_cert, &config.tls_key) {
        Tls::from_files(certificate.clone(), key.clone())?;
    }
    config.store_password.read()?;
    config.store_ca_file.as_deref().map(files::read).transpose()?;
    Ok(())
}

/// A start that will be refused a port must not leave a new directory behind.
fn check_ports(config: &Config) -> Result<(), ServerError> {
    let ports = [
        (config.table_address(), TABLE_FLAGS),
        (config.queue_address(), QUEUE_FLAGS),
        (config.admin_address(), ADMIN_FLAGS),
    ];
    for (address, flags) in ports {
        TcpListener::bind(address).map_err(|source| ServerError::Bind {
            address,
            flags,
            source,
        })?;
    }
    Ok(())
}

/// Where the data directory is.
enum Place {
    Kept(PathBuf),
    Thrown(TempDir),
}

impl Place {
    fn choose(config: &Config) -> Result<Self, ServerError> {
        if !config.ephemeral {
            return Ok(Self::Kept(config.data.clone()));
        }
        let directory = tempfile::Builder::new().prefix("rowhouse-").tempdir();
        directory.map(Self::Thrown).map_err(ServerError::TemporaryDirectory)
    }

    /// Where the data themselves are.
    fn data(&self, config: &Config) -> Data {
        match (&config.store, self) {
            (None, Self::Kept(path)) => Data::Directory(path.clone()),
            (None, Self::Thrown(_)) => Data::Nowhere,
            (Some(address), Self::Kept(_)) => Data::Database(address.clone()),
            (Some(address), Self::Thrown(_)) => Data::LaxDatabase(address.clone()),
        }
    }

    fn path(&self) -> &Path {
        match self {
            Self::Kept(path) => path,
            Self::Thrown(directory) => directory.path(),
        }
    }
}

/// Listeners at work.
struct Server {
    stop: watch::Sender<bool>,
    listeners: Vec<tokio::task::JoinHandle<()>>,
    /// Counts the changes that are kept, and reads tokens again.
    background: Vec<tokio::task::JoinHandle<()>>,
}

impl Server {
    #[expect(
        clippy::too_many_lines,
        reason = "what a server is made of, in the order in which it is made"
    )]
    async fn start(
        config: &Config,
        place: &Place,
        engine: &Engine,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
    ) -> Result<Self, ServerError> {
        // The embedded engine has made it already.
        files::make_directory(place.path())?;
        if let MasterKey::File(path) = &config.master_key {
            files::warn_if_shared(path, "master key");
        }
        let sealer = config.master_key.sealer(place.path())?;
        let store = engine.store();
        restore::refuse_unfinished(config, &*store).await?;
        let accounts = AccountService::new(Arc::clone(&store), sealer, Arc::clone(&random));
        let accounts = Arc::new(accounts.with_limits(AccountLimits {
            tables: config.max_tables_per_account,
            queues: config.max_queues_per_account,
        }));
        let known = seed(config, &accounts).await?;
        let changes = changes::settle(config.keep_changes, &*store).await?;

        let (tokens, token_file) = tokens(config, place, &*random)?;
        let tokens = Arc::new(tokens);
        let tls = tls(config, place, &*clock)?;
        let metrics = Arc::new(Metrics::default());
        observe(&metrics, engine, &*clock);
        let limits = Limits {
            connections: config.max_connections,
            connections_per_address: config.max_connections_per_address,
            anonymous_per_address: config.max_anonymous_per_address,
            trusted_proxies: config.trusted_proxies.clone(),
            drain_time: Duration::from_secs(config.drain_seconds),
            ..Limits::default()
        };
        let bind = |address: SocketAddr, tls: Option<Tls>, flags: [&'static str; 2]| {
            Listener::bind(address, tls, limits.clone()).map_err(|source| ServerError::Bind {
                address,
                flags,
                source,
            })
        };
        let table = bind(config.table_address(), tls.clone(), TABLE_FLAGS)?
            .with_metrics(metrics.listener("table"));
        let queue = bind(config.queue_address(), tls.clone(), QUEUE_FLAGS)?
            .with_headers(QUEUE_HEADERS_MAX)
            .with_spelling()
            .with_metrics(metrics.listener("queue"));
        // The token never leaves the machine on loopback, so it needs no certificate there.
        let admin_tls = tls.clone().filter(|_| !config.admin_host.is_loopback());
        let admin = bind(config.admin_address(), admin_tls, ADMIN_FLAGS)?
            .with_metrics(metrics.listener("admin"));

        let (stop, stopped) = watch::channel(false);
        let table_url = url(table.local_addr(), table.is_tls());
        let queue_url = url(queue.local_addr(), queue.is_tls());
        let admin_url = url(admin.local_addr(), admin.is_tls());
        let front = Arc::new(Front::new(FrontConfig {
            accounts: Arc::clone(&accounts),
            clock: Arc::clone(&clock),
            random: Arc::clone(&random),
            metrics: Arc::clone(&metrics),
            clock_skew_seconds: config.clock_skew_seconds,
            max_requests: config.max_requests,
            max_scans: config.max_scans,
            max_body_bytes: config.max_body_bytes,
            trusted_proxies: config.trusted_proxies.clone(),
            strict: config.strict,
            public_key: config.public_key(),
            own_hosts: config.host_suffixes.clone(),
        }));
        let replica = engine::replica(config, engine, Arc::clone(&clock))?;
        let queues = |store| QueueService::new(store, Arc::clone(&random));
        let table_handler = TableHandler::new(TableHandlerConfig {
            front: Arc::clone(&front),
            tables: TableService::new(Arc::clone(&store)),
            secondary: replica.clone().map(TableService::new),
            outbox: Outbox { queues: queues(Arc::clone(&store)) },
            stopping: stopped.clone(),
        });
        let queue_handler = QueueHandler::new(QueueHandlerConfig {
            front,
            queues: queues(Arc::clone(&store)),
            secondary: replica.map(queues),
        });
        let counter = tokio::spawn(changes::count(Arc::downgrade(&store), &metrics));
        let asked = engine.clone();
        let owner = Arc::clone(&accounts);
        let keys = KeepKeys::new(move |account| owner.keys_for_backup(account));
        let backups = BackupService::new(Arc::clone(&store), clock, random, keys, VERSION);
        let admin_handler = Admin {
            accounts,
            backups: Arc::new(backups),
            readiness: Arc::new(move || {
                let ready = store.ready();
                ready.map_err(|error| format!("{error}: {}", asked.remedy()))?;
                Ok(asked.warning())
            }),
            cluster: cluster_source(engine.clone()),
            metrics,
            tokens: Arc::clone(&tokens),
            loopback: config.admin_host.is_loopback(),
            endpoints: Endpoints { table: table_url.clone(), queue: queue_url.clone() },
        };
        let listeners = vec![
            tokio::spawn(table.serve(Arc::new(table_handler), stopped.clone())),
            tokio::spawn(queue.serve(Arc::new(queue_handler), stopped.clone())),
            tokio::spawn(admin.serve(Arc::new(admin_handler), stopped)),
        ];
        let background = vec![counter, tokio::spawn(keep_reading(tokens))];
        let server = Self { stop, listeners, background };
        let name = engine.name();
        tracing::info!(
            table = table_url,
            queue = queue_url,
            admin = admin_url,
            engine = name,
            version = VERSION,
            "ready"
        );
        let started = Started {
            table: table_url,
            queue: queue_url,
            admin: admin_url,
            served_everywhere: config.host.is_unspecified(),
            admin_everywhere: config.admin_host.is_unspecified(),
            data: place.data(config),
            changes,
            token: token_file,
            trust: tls
                .filter(|_| config.tls_self_signed)
                .map(|tls| tls.certificate_file().to_owned()),
            known,
            strict: config.strict,
        };
        if let Err(error) = announce(config, started) {
            server.stop().await;
            return Err(error);
        }
        Ok(server)
    }

    /// Tells the listeners to stop and waits until the last connection is gone.
    async fn stop(self) {
        let _ = self.stop.send(true);
        for task in &self.background {
            task.abort();
        }
        for listener in self.listeners {
            if let Err(error) = listener.await {
                tracing::error!(%error, "a listener ended in a panic");
            }
        }
    }
}

/// Asks the engine what it keeps the data in.
fn cluster_source(engine: Engine) -> ClusterSource {
    Arc::new(move || {
        let engine = engine.clone();
        Box::pin(async move {
            let status = engine.cluster().await;
            status.map_err(|error| format!("{error}: {}", engine.remedy()))
        })
    })
}

/// Reads the tokens again when their file has changed, for as long as the server runs.
async fn keep_reading(tokens: Arc<Tokens>) {
    loop {
        tokio::time::sleep(TOKENS_READ_EVERY).await;
        let tokens = Arc::clone(&tokens);
        if let Err(error) = tokio::task::spawn_blocking(move || tokens.reload()).await {
            tracing::error!(%error, "the admin tokens could not be read again");
        }
    }
}

fn tokens(
    config: &Config,
    place: &Place,
    random: &dyn Random,
) -> Result<(Tokens, PathBuf), ServerError> {
    if let Some(path) = &config.admin_token_file {
        files::warn_if_shared(path, "admin token");
        return Ok((Tokens::load(path, random)?, path.clone()));
    }
    let path = place.path().join(ADMIN_TOKEN_FILE);
    Ok((Tokens::load_or_create(&path, random)?, path))
}

fn tls(config: &Config, place: &Place, clock: &dyn Clock) -> Result<Option<Tls>, ServerError> {
    if config.tls_self_signed {
        let mut names = Vec::new();
        if !config.host.is_loopback() && !config.host.is_unspecified() {
            names.push(config.host.to_string());
        }
        for suffix in &config.host_suffixes {
            names.extend([suffix.clone(), format!("*.{suffix}")]);
            names.extend([format!("*.table.{suffix}"), format!("*.queue.{suffix}")]);
        }
        return Ok(Some(Tls::self_signed(place.path(), &names, clock.now())?));
    }
    match (&config.tls_cert, &config.tls_key) {
        (Some(certificate), Some(key)) => {
            Ok(Some(Tls::from_files(certificate.clone(), key.clone())?))
        }
        _ => Ok(None),
    }
}
