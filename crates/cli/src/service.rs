//! Which service a command asks, and with what: the same options for every command that needs one.

use crate::Failure;
use clap::Args;
use rowhouse_client::Target;
use rowhouse_types::Service as Kind;
use std::fs;
use std::path::PathBuf;

/// The service, by a connection string or piece by piece.
#[derive(Debug, Args)]
pub(crate) struct Service {
    /// The connection string of the account, or a URL with a shared access signature. Default: the
    /// development account of a server on this machine.
    #[arg(long, value_name = "STRING", env = "ROWHOUSE_CONNECTION", help_heading = "Service")]
    connection: Option<String>,

    /// The address of the account's Table or Queue service, whichever the command uses, instead of a connection string.
    #[arg(long, value_name = "URL", env = "ROWHOUSE_ENDPOINT", help_heading = "Service")]
    endpoint: Option<String>,

    /// The name of the account.
    #[arg(long, value_name = "NAME", env = "ROWHOUSE_ACCOUNT", help_heading = "Service")]
    account: Option<String>,

    /// A key of the account. Others on this machine can see it here: the variable or --key-file hides it.
    #[arg(long, value_name = "BASE64", env = "ROWHOUSE_KEY", help_heading = "Service")]
    key: Option<String>,

    /// A file with a key of the account on its first line.
    #[arg(long, value_name = "FILE", env = "ROWHOUSE_KEY_FILE", help_heading = "Service")]
    key_file: Option<PathBuf>,

    /// A shared access signature, instead of a key.
    #[arg(long, value_name = "SAS", env = "ROWHOUSE_SAS", help_heading = "Service")]
    sas: Option<String>,
}

impl Service {
    /// The Table service.
    pub(crate) fn target(&self) -> Result<Target, Failure> {
        self.target_of(Kind::Table)
    }

    /// The Queue service; --endpoint is its address.
    pub(crate) fn queue_target(&self) -> Result<Target, Failure> {
        self.target_of(Kind::Queue)
    }

    fn target_of(&self, kind: Kind) -> Result<Target, Failure> {
        let told = |error: rowhouse_client::TargetError| error.to_string();
        match (&self.connection, &self.endpoint) {
            (Some(_), Some(_)) => Err(
                "give --connection or --endpoint (or ROWHOUSE_CONNECTION or ROWHOUSE_ENDPOINT), not both"
                    .to_owned(),
            ),
            (Some(connection), None) => match kind {
                Kind::Table => connection.parse().map_err(told),
                Kind::Queue => Target::queues(connection).map_err(told),
            },
            (None, Some(endpoint)) => match (&self.account, self.read_key()?, &self.sas) {
                (_, None, Some(sas)) => {
                    Target::with_sas(endpoint, sas).map(|target| target.of_kind(kind)).map_err(told)
                }
                (Some(account), Some(key), None) => {
                    let target = Target::with_key(endpoint, account, &key);
                    target.map(|target| target.of_kind(kind)).map_err(told)
                }
                _ => {
                    Err("--endpoint needs --account with --key or --key-file, or --sas".to_owned())
                }
            },
            (None, None)
                if self.account.is_some()
                    || self.key.is_some()
                    || self.key_file.is_some()
                    || self.sas.is_some() =>
            {
                Err("name the service too: with --endpoint, or with --connection for all"
                    .to_owned())
            }
            (None, None) => Ok(match kind {
                Kind::Table => Target::development(),
                Kind::Queue => Target::development_queues(),
            }),
        }
    }

    fn read_key(&self) -> Result<Option<String>, Failure> {
        match (&self.key, &self.key_file) {
            (Some(_), Some(_)) => Err("give --key or --key-file, not both".to_owned()),
            (Some(key), None) => Ok(Some(key.clone())),
            (None, Some(path)) => {
                let text = fs::read_to_string(path)
                    .map_err(|error| format!("cannot read the key {}: {error}", path.display()))?;
                Ok(Some(text.lines().next().unwrap_or_default().trim().to_owned()))
            }
            (None, None) => Ok(None),
        }
    }
}
