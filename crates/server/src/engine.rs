//! The engine that the configuration has chosen.
//!
//! Everything above works with the contract that all engines share. What differs between them for whoever runs a server
//! is here: how they are opened and closed, and what to do when one does not take writes.

use crate::config::Config;
use crate::database::DatabaseAddress;
use crate::error::ServerError;
use crate::files;
use rowhouse_env::{Clock, Random};
use rowhouse_store::{Store, StoreError};
use rowhouse_store_embedded::EmbeddedStore;
use rowhouse_store_postgres::{OpenError, PostgresReplica, PostgresStore};
use rowhouse_types::cluster::ClusterStatus;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How often a database that cannot be reached is tried again.
const RETRY_EVERY: Duration = Duration::from_millis(500);
/// How often the log says so.
const TELL_EVERY: Duration = Duration::from_secs(5);

/// The way out when the last Timestamp is used.
const NO_TIMESTAMPS: &str =
    "delete the table that has it, take a backup, and restore that into an empty place";

/// An open store.
#[derive(Clone, Debug)]
pub(crate) enum Engine {
    /// SQLite in the data directory.
    Embedded(Arc<EmbeddedStore>),
    /// A PostgreSQL database.
    Postgres(Arc<PostgresStore>),
}

impl Engine {
    /// Opens the store; `directory` is the data directory. Waits for a database that is not there yet.
    pub(crate) async fn open(
        config: &Config,
        directory: &Path,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
    ) -> Result<Self, ServerError> {
        let Some(address) = &config.store else {
            return Self::open_directory(embedded_options(config, directory), clock);
        };
        let options = postgres_options(config, address)?;
        let open = || PostgresStore::open(options.clone(), Arc::clone(&clock), Arc::clone(&random));
        Self::open_database(config, address, open).await
    }

    /// The same for whoever fills a store that nobody else uses, and tells nobody before it is closed: only then does a
    /// data directory have to be on the disk, and until then no server opens a database.
    pub(crate) async fn open_to_fill(
        config: &Config,
        directory: &Path,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
    ) -> Result<Self, ServerError> {
        if let Some(address) = &config.store {
            let options = postgres_options(config, address)?;
            let open = || {
                PostgresStore::open_alone(options.clone(), Arc::clone(&clock), Arc::clone(&random))
            };
            return Self::open_database(config, address, open).await;
        }
        let options = rowhouse_store_embedded::Options {
            durability: rowhouse_store_embedded::Durability::AtClose,
            // Whatever is in a backup comes back.
            account_bytes_max: u64::MAX,
            ..embedded_options(config, directory)
        };
        Self::open_directory(options, clock)
    }

    async fn open_database<F>(
        config: &Config,
        address: &DatabaseAddress,
        open: impl FnMut() -> F,
    ) -> Result<Self, ServerError>
    where
        F: Future<Output = Result<PostgresStore, OpenError>>,
    {
        let wait = Duration::from_secs(config.store_wait_seconds);
        let store = wait_for(address, wait, open).await?;
        Ok(Self::Postgres(Arc::new(store)))
    }

    fn open_directory(
        options: rowhouse_store_embedded::Options,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, ServerError> {
        Ok(Self::Embedded(Arc::new(EmbeddedStore::open(options, clock)?)))
    }

    /// The contract.
    pub(crate) fn store(&self) -> Arc<dyn Store> {
        match self {
            Self::Embedded(store) => Arc::<EmbeddedStore>::clone(store),
            Self::Postgres(store) => Arc::<PostgresStore>::clone(store),
        }
    }

    /// A word for logs and figures.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Embedded(_) => "embedded",
            Self::Postgres(_) => "postgres",
        }
    }

    /// What is wrong though it takes writes, in a sentence.
    pub(crate) fn warning(&self) -> Option<String> {
        match self {
            Self::Embedded(store) => damage(store),
            Self::Postgres(store) => store.warning(),
        }
    }

    /// What to do when it does not take writes.
    pub(crate) fn remedy(&self) -> &'static str {
        match self {
            Self::Embedded(store) if !store.has_timestamps() => NO_TIMESTAMPS,
            Self::Postgres(store) if !store.has_timestamps() => NO_TIMESTAMPS,
            Self::Embedded(store) if store.is_full() => {
                "make room; the server takes writes again by itself"
            }
            Self::Embedded(_) => "mend the cause, then restart the server",
            Self::Postgres(_) => "mend the database; the server recovers by itself",
        }
    }

    /// What it keeps the data in.
    pub(crate) async fn cluster(&self) -> Result<ClusterStatus, StoreError> {
        match self {
            Self::Embedded(store) => {
                let stats = store.stats();
                Ok(ClusterStatus::Embedded { bytes: stats.database_bytes + stats.log_bytes })
            }
            Self::Postgres(store) => store.cluster().await,
        }
    }

    /// Finishes what was accepted and releases everything.
    pub(crate) async fn close(&self) -> Result<(), ServerError> {
        match self {
            Self::Embedded(store) => store.close().await.map_err(ServerError::Close),
            Self::Postgres(store) => store.close().await.map_err(ServerError::Disconnect),
        }
    }
}

/// What the secondary endpoint reads, if that is a replica.
pub(crate) fn replica(
    config: &Config,
    engine: &Engine,
    clock: Arc<dyn Clock>,
) -> Result<Option<Arc<dyn Store>>, ServerError> {
    let Some(address) = &config.store_replica else { return Ok(None) };
    let options = postgres_options(config, address)?;
    let replica = PostgresReplica::new(&options.url, &options, clock);
    let place = address.to_string();
    let replica = replica.map_err(|source| ServerError::Database { place, source })?;
    Ok(Some(Arc::new(match engine {
        Engine::Embedded(_) => replica,
        Engine::Postgres(store) => replica.with_time_of(store),
    })))
}

fn embedded_options(config: &Config, directory: &Path) -> rowhouse_store_embedded::Options {
    use rowhouse_store_embedded::{Durability, Options};
    Options {
        cache_bytes: config.cache_bytes,
        durability: if config.ephemeral { Durability::Ephemeral } else { Durability::Full },
        ttl_grace: Duration::from_secs(config.ttl_grace_seconds),
        ..Options::new(directory)
    }
}

fn postgres_options(
    config: &Config,
    address: &DatabaseAddress,
) -> Result<rowhouse_store_postgres::Options, ServerError> {
    use crate::database::StorePassword;
    use rowhouse_store_postgres::{Durability, Options};
    if let StorePassword::File(path) = &config.store_password {
        files::warn_if_shared(path, "password of the database");
    }
    let password = config.store_password.read()?;
    let authorities = config.store_ca_file.as_deref().map(files::read).transpose()?;
    Ok(Options {
        url: address.url(password.as_deref()),
        authorities,
        connections: config.store_connections,
        durability: if config.ephemeral { Durability::Ephemeral } else { Durability::Durable },
        ttl_grace: Duration::from_secs(config.ttl_grace_seconds),
        ..Options::new("")
    })
}

/// Tries until the database can be reached or the time is over: it may be starting at the same moment. Any other reason not
/// to open would be the same the next time.
async fn wait_for<S, F>(
    address: &DatabaseAddress,
    wait: Duration,
    mut open: impl FnMut() -> F,
) -> Result<S, ServerError>
where
    F: Future<Output = Result<S, OpenError>>,
{
    let began = Instant::now();
    let mut told: Option<Instant> = None;
    loop {
        let reason = match open().await {
            Ok(store) => return Ok(store),
            Err(OpenError::Unreachable(reason)) => reason,
            Err(source) => {
                return Err(ServerError::Database { place: address.to_string(), source });
            }
        };
        if wait <= began.elapsed() {
            let place = address.to_string();
            return Err(ServerError::Unreachable { place, seconds: wait.as_secs(), reason });
        }
        if told.is_none_or(|at| TELL_EVERY <= at.elapsed()) {
            told = Some(Instant::now());
            tracing::warn!(database = %address, reason, "waiting for the database");
        }
        tokio::time::sleep(RETRY_EVERY).await;
    }
}

/// What the embedded engine knows of damage to its file.
fn damage(store: &EmbeddedStore) -> Option<String> {
    match store.stats().damaged {
        0 if store.is_verified() => None,
        0 => Some(
            "the database is of an older release, and its pages have no checksums: stop the server and run \
             'rowhouse check --add-checksums' with the data directory"
                .to_owned(),
        ),
        damaged => {
            let places = if damaged == 1 { "place" } else { "places" };
            Some(format!(
                "stored data is damaged in {damaged} {places} that requests have met: the log names the tables \
                 and queues; stop the server and run 'rowhouse check' with the data directory"
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::ready;

    fn address() -> DatabaseAddress {
        "postgres://ann:secret@db/shop".parse().unwrap()
    }

    fn unreachable() -> OpenError {
        OpenError::Unreachable("nobody listens".into())
    }

    #[tokio::test(start_paused = true)]
    async fn a_database_that_comes_later_is_waited_for() {
        let mut attempts = 0;
        let opened = wait_for(&address(), Duration::from_secs(30), || {
            attempts += 1;
            ready(if attempts < 4 { Err(unreachable()) } else { Ok(attempts) })
        })
        .await;
        assert_eq!(opened.unwrap(), 4);
    }

    #[tokio::test(start_paused = true)]
    async fn what_waiting_does_not_mend_is_told_at_once() {
        let mut attempts = 0;
        let opened = wait_for(&address(), Duration::from_secs(30), || {
            attempts += 1;
            ready(Err::<(), _>(OpenError::Version("14.1".into())))
        })
        .await;
        let sentence = opened.unwrap_err().to_string();
        assert!(sentence.contains("db:5432/shop") && sentence.contains("14.1"), "{sentence}");
        assert_eq!(attempts, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_has_an_end() {
        let began = Instant::now();
        let opened =
            wait_for(&address(), Duration::from_secs(30), || ready(Err::<(), _>(unreachable())))
                .await;
        let sentence = opened.unwrap_err().to_string();
        assert_eq!(began.elapsed().as_secs(), 30);
        for part in ["db:5432/shop", "30 s", "nobody listens", "--store"] {
            assert!(sentence.contains(part), "{sentence}");
        }
        assert!(!sentence.contains("secret"), "{sentence}");
    }
}
