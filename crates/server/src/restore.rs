//! A restore into an empty data directory or database that no server uses.

use crate::backup::{self, verify_backup};
use crate::config::Config;
use crate::engine::Engine;
use crate::error::ServerError;
use rowhouse_env::{Clock as _, SystemClock, SystemRandom};
use rowhouse_service_backup::{
    BackupError, Progress, Restored, Survey, check_chain, check_times, unfinished,
};
use rowhouse_store::Store;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// What a restore does only if it is told to.
#[derive(Clone, Copy, Debug, Default)]
pub struct RestoreChoice {
    /// Restore Timestamps that are ahead of the clock.
    pub allow_future_timestamps: bool,
    /// Set the TTL of tables though entities have expired since the backup was taken.
    pub keep_ttl: bool,
}

/// Restores a full backup and the incremental ones behind it into the store of the configuration.
///
/// Every file is read whole before anything is changed, and refused if its Timestamps are further ahead of the clock than
/// signatures may be, unless that is allowed. The TTL of a table is left off if entities have expired since the backup was
/// taken, unless it is to be kept. What was interrupted goes on when it is called again
/// with the same files; until it is finished no server starts on it.
pub fn restore(
    config: &Config,
    files: &[PathBuf],
    RestoreChoice { allow_future_timestamps, keep_ttl }: RestoreChoice,
    mut progress: impl FnMut(&'static str, Progress),
) -> Result<(Restored, Vec<Survey>), ServerError> {
    config.check()?;
    let mut surveys = Vec::new();
    for file in files {
        surveys.push(verify_backup(file, |done| progress("verified", done))?);
    }
    check_chain(&surveys).map_err(ServerError::Backup)?;
    if !allow_future_timestamps {
        check_times(&surveys, SystemClock.now()).map_err(ServerError::Backup)?;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(ServerError::System)?;
    let restored = runtime.block_on(async {
        let (clock, random) = (Arc::new(SystemClock), Arc::new(SystemRandom));
        let engine = Engine::open_to_fill(config, &config.data, clock, random).await?;
        let open = |index: usize| backup::open(&files[index]).map_err(io::Error::other);
        let expired_by = (!keep_ttl).then(|| SystemClock.now());
        let store = engine.store();
        let restored =
            rowhouse_service_backup::restore(store, &surveys, expired_by, open, |done| {
                progress("restored", done);
            })
            .await;
        let closed = engine.close().await;
        let restored = restored.map_err(|error| explain(config, error))?;
        closed.map(|()| restored)
    })?;
    Ok((restored, surveys))
}

/// What the store refuses is not the fault of the backup.
fn explain(config: &Config, error: BackupError) -> ServerError {
    let place = match &config.store {
        Some(address) => address.to_string(),
        None => config.data.display().to_string(),
    };
    match error {
        BackupError::Store(source) => ServerError::Interrupted { place, source },
        error => ServerError::Backup(error),
    }
}

/// Half of a backup is not served.
pub(crate) async fn refuse_unfinished(
    config: &Config,
    store: &dyn Store,
) -> Result<(), ServerError> {
    let found = unfinished(store).await;
    let found = found.map_err(|error| ServerError::Backup(error.into()))?;
    let Some(backup) = found else { return Ok(()) };
    Err(ServerError::Refused(format!(
        "the restore of backup {backup} into {} is not finished: run the same 'rowhouse restore' \
         again, which goes on where it was",
        config.data_place()
    )))
}
