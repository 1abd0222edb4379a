//! `rowhouse serve`: every option as a flag, as a variable and in a file.
//!
//! A flag wins over a variable, a variable over the file, the file over the default. The three have
//! the same names: `--table-port`, `ROWHOUSE_TABLE_PORT`, `table-port`. A name in the file that is
//! not an option is an error.

use crate::Failure;
use clap::builder::BoolishValueParser;
use clap::{Args, ValueEnum};
use rowhouse_server::{Config, KeepChanges, LogFormat, MasterKey, ServerError, StorePassword};
use rowhouse_types::Network;
use serde::Deserialize;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

/// The master key comes from here or from a file, never from the command line, which others can
/// see.
pub(crate) const MASTER_KEY_VARIABLE: &str = "ROWHOUSE_MASTER_KEY";
/// The variable in which PostgreSQL's own programs find a password.
const PASSWORD_VARIABLE: &str = "PGPASSWORD";
const MIB: u64 = 1024 * 1024;

/// Run the server.
///
/// Without options it is for your own machine: it listens on 127.0.0.1 only, keeps its data in
/// ./rowhouse-data and has the development account that every Azure SDK knows
/// (UseDevelopmentStorage=true).
///
/// Every option can also be set in the environment (shown below) or in a TOML file (--config) under
/// the name of its flag without dashes in front. Flags win over the environment, the environment
/// over the file.
#[derive(Debug, Args)]
#[command(
    after_help = EXAMPLES,
    next_line_help = true,
    mut_args(|argument| argument.hide_env_values(true))
)]
pub(crate) struct Serve {
    /// Read options from this TOML file.
    #[arg(long, value_name = "FILE", env = "ROWHOUSE_CONFIG")]
    config: Option<PathBuf>,

    #[command(flatten)]
    options: Options,
}

const EXAMPLES: &str = "Examples:
  rowhouse serve
      A server for development, with the data in ./rowhouse-data.
  rowhouse serve --ephemeral --table-port 0 --ready-file ready.json
      A server for a test run: any free ports, nothing is kept.
  rowhouse serve --data /srv/rowhouse --host 0.0.0.0 --development-account=false \\
      --tls-cert cert.pem --tls-key key.pem --master-key-file /etc/rowhouse.key
      A server for a network, with accounts made by 'rowhouse account create'.
  rowhouse serve --store postgres://rowhouse@db.example.org/rowhouse \\
      --store-password-file /etc/rowhouse.password
      One of several servers on a PostgreSQL database.

A file for --config:
  data = \"/srv/rowhouse\"
  host = \"0.0.0.0\"
  development-account = false";

/// Declares every option once. A switch is written `--name`, `--name=false` or `ROWHOUSE_NAME=1`.
macro_rules! options {
    ($($(#[$meta:meta])* $name:ident: $type:ty,)*) => {
        /// Options of one source. What a source does not say is `None`.
        #[derive(Clone, Debug, Default, PartialEq, Args, Deserialize)]
        #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
        pub(crate) struct Options {
            $($(#[$meta])* $name: Option<$type>,)*
        }

        impl Options {
            /// What is said here, or else there.
            fn or(self, other: Self) -> Self {
                Self { $($name: self.$name.or(other.$name),)* }
            }
        }
    };
}

options! {
    /// Keep the data in this directory. Default: rowhouse-data.
    #[arg(long, value_name = "DIR", env = "ROWHOUSE_DATA", help_heading = "Data")]
    data: PathBuf,

    /// Keep the data in this PostgreSQL database instead: postgres://user@host:port/database.
    /// Several servers may share it; the data directory then holds only the admin token and the
    /// certificate of this one.
    #[arg(long, value_name = "URL", env = "ROWHOUSE_STORE", help_heading = "Data")]
    store: Secret,

    /// A replica of that database, which may be behind: requests to the secondary endpoint
    /// (ACCOUNT-secondary) read from it. Default: they read from the database itself.
    #[arg(long, value_name = "URL", env = "ROWHOUSE_STORE_REPLICA", help_heading = "Data")]
    store_replica: Secret,

    /// Most connections to the database. Default: 32.
    #[arg(long, value_name = "N", env = "ROWHOUSE_STORE_CONNECTIONS", help_heading = "Data")]
    store_connections: usize,

    /// The password for the database, on the first line of this file. PGPASSWORD may hold the password
    /// itself.
    #[arg(long, value_name = "FILE", env = "ROWHOUSE_STORE_PASSWORD_FILE", help_heading = "Data")]
    store_password_file: PathBuf,

    /// Certificate authorities, in PEM, that the certificate of the database is checked by when its
    /// address has sslmode=verify-full or verify-ca. Default: those that the operating system trusts.
    #[arg(long, value_name = "FILE", env = "ROWHOUSE_STORE_CA_FILE", help_heading = "Data")]
    store_ca_file: PathBuf,

    /// How long to wait at the start until the database can be reached, in seconds. Default: 30.
    #[arg(long, value_name = "SECONDS", env = "ROWHOUSE_STORE_WAIT_SECONDS", help_heading = "Data")]
    store_wait_seconds: u64,

    /// Keep nothing: use a temporary directory without fsync and remove it at the end. With --store the
    /// database keeps the data, and need not wait for its disk.
    #[arg(
        long, env = "ROWHOUSE_EPHEMERAL", help_heading = "Data", num_args = 0..=1,
        require_equals = true, default_missing_value = "true", value_name = "BOOL",
        hide_possible_values = true, value_parser = BoolishValueParser::new()
    )]
    ephemeral: bool,

    /// Memory for entities and pages of the data directory's database, in MiB. Default: 128.
    #[arg(long, value_name = "MIB", env = "ROWHOUSE_CACHE_MIB", help_heading = "Data")]
    cache_mib: u64,

    /// Keep every change of an entity for so long, for those who follow them ('rowhouse tail', incremental
    /// backups): 7d, 12h, 30m, or off, which forgets those that are kept. Default: as it was set last; off
    /// at first.
    #[arg(long, value_name = "TIME", env = "ROWHOUSE_KEEP_CHANGES", help_heading = "Data")]
    keep_changes: Keep,

    /// Address of the Table and the Queue service. Default: 127.0.0.1, this machine only.
    #[arg(long, value_name = "ADDRESS", env = "ROWHOUSE_HOST", help_heading = "Network")]
    host: Address,

    /// Port of the Table service; 0 takes any free one, for queues and administration too unless their ports are given.
    /// Default: 10002.
    #[arg(long, value_name = "PORT", env = "ROWHOUSE_TABLE_PORT", help_heading = "Network")]
    table_port: u16,

    /// Port of the Queue service; 0 takes any free one. Default: 10001, or any free one with
    /// --table-port 0.
    #[arg(long, value_name = "PORT", env = "ROWHOUSE_QUEUE_PORT", help_heading = "Network")]
    queue_port: u16,

    /// Address of health, metrics and the admin API. Another than 127.0.0.1 needs TLS. Default:
    /// 127.0.0.1.
    #[arg(long, value_name = "ADDRESS", env = "ROWHOUSE_ADMIN_HOST", help_heading = "Network")]
    admin_host: Address,

    /// Port of health, metrics and the admin API; 0 takes any free one. Default: 10003, or any free one
    /// with --table-port 0.
    #[arg(long, value_name = "PORT", env = "ROWHOUSE_ADMIN_PORT", help_heading = "Network")]
    admin_port: u16,

    /// A name by which clients call this server, such as storage.example.org: the development account is answered
    /// under it, and --tls-self-signed puts it into the certificate. Repeat it, or separate names by commas.
    #[arg(
        long, value_name = "NAME", env = "ROWHOUSE_HOST_SUFFIX", help_heading = "Network",
        value_delimiter = ','
    )]
    host_suffix: Vec<String>,

    /// Proxies whose X-Forwarded-For and X-Forwarded-Proto are believed, as addresses or networks such as 10.0.0.0/8.
    /// Repeat it, or separate them by commas. Requests from other addresses are taken as they come.
    #[arg(
        long, value_name = "NETWORK", env = "ROWHOUSE_TRUSTED_PROXIES", help_heading = "Network",
        value_delimiter = ','
    )]
    trusted_proxies: Vec<String>,

    /// Deprecated: believe every address as if it were a trusted proxy. Use --trusted-proxies.
    #[arg(
        long, env = "ROWHOUSE_TRUST_FORWARDED", help_heading = "Network", num_args = 0..=1,
        require_equals = true, default_missing_value = "true", value_name = "BOOL",
        hide_possible_values = true, value_parser = BoolishValueParser::new()
    )]
    trust_forwarded: bool,

    /// Answer as the original service does, without any extension (docs/extensions.md lists them) and without the
    /// header that tells the plan of a query.
    #[arg(
        long, env = "ROWHOUSE_STRICT", help_heading = "Network", num_args = 0..=1,
        require_equals = true, default_missing_value = "true", value_name = "BOOL",
        hide_possible_values = true, value_parser = BoolishValueParser::new()
    )]
    strict: bool,

    /// Certificate chain in PEM form. Loaded again when the file changes.
    #[arg(long, value_name = "FILE", env = "ROWHOUSE_TLS_CERT", help_heading = "TLS")]
    tls_cert: PathBuf,

    /// Private key of the certificate in PEM form.
    #[arg(long, value_name = "FILE", env = "ROWHOUSE_TLS_KEY", help_heading = "TLS")]
    tls_key: PathBuf,

    /// Make a certificate for localhost, *.table.localhost, *.queue.localhost and the names of --host-suffix; clients
    /// must be told to trust tls-cert.pem in the data directory.
    #[arg(
        long, env = "ROWHOUSE_TLS_SELF_SIGNED", help_heading = "TLS", num_args = 0..=1,
        require_equals = true, default_missing_value = "true", value_name = "BOOL",
        hide_possible_values = true, value_parser = BoolishValueParser::new()
    )]
    tls_self_signed: bool,

    /// Whether there is the account devstoreaccount1, whose key is public. Default: true.
    #[arg(
        long, env = "ROWHOUSE_DEVELOPMENT_ACCOUNT", help_heading = "Accounts", num_args = 0..=1,
        require_equals = true, default_missing_value = "true", value_name = "BOOL",
        hide_possible_values = true, value_parser = BoolishValueParser::new()
    )]
    development_account: bool,

    /// Let everybody who can reach the server use the public key, and so read and change all data
    /// of that account.
    #[arg(
        long, env = "ROWHOUSE_ALLOW_DEVELOPMENT_KEY_ON_NETWORK", help_heading = "Accounts",
        num_args = 0..=1, require_equals = true, default_missing_value = "true",
        value_name = "BOOL", hide_possible_values = true,
        value_parser = BoolishValueParser::new()
    )]
    allow_development_key_on_network: bool,

    /// Seal account keys with the key in this file: 32 bytes in Base64 or hexadecimal.
    /// ROWHOUSE_MASTER_KEY may hold the key itself. Servers that share a database need the same.
    #[arg(long, value_name = "FILE", env = "ROWHOUSE_MASTER_KEY_FILE", help_heading = "Accounts")]
    master_key_file: PathBuf,

    /// Tokens of the admin API, one per line, each alone or followed by scopes: 'TOKEN
    /// read,operate,keys,backup'. Default: a token is made in the data directory as admin-token.
    #[arg(long, value_name = "FILE", env = "ROWHOUSE_ADMIN_TOKEN_FILE", help_heading = "Accounts")]
    admin_token_file: PathBuf,

    /// How far the date of a signed request may be off, in seconds. Default: 900.
    #[arg(
        long, value_name = "SECONDS", env = "ROWHOUSE_CLOCK_SKEW_SECONDS",
        help_heading = "Accounts"
    )]
    clock_skew_seconds: u64,

    /// Most connections at a time, per listener. Default: 8192.
    #[arg(long, value_name = "N", env = "ROWHOUSE_MAX_CONNECTIONS", help_heading = "Limits")]
    max_connections: usize,

    /// Most connections at a time from one address. Default: 4096.
    #[arg(
        long, value_name = "N", env = "ROWHOUSE_MAX_CONNECTIONS_PER_ADDRESS",
        help_heading = "Limits"
    )]
    max_connections_per_address: usize,

    /// Most of them that had no request with a valid credential: one more closes the oldest idle one. Default: 1024.
    #[arg(
        long, value_name = "N", env = "ROWHOUSE_MAX_ANONYMOUS_PER_ADDRESS",
        help_heading = "Limits"
    )]
    max_anonymous_per_address: usize,

    /// Most tables of an account that has no limit of its own ('rowhouse account limits'). Default: 50000.
    #[arg(
        long, value_name = "N", env = "ROWHOUSE_MAX_TABLES_PER_ACCOUNT", help_heading = "Limits"
    )]
    max_tables_per_account: u64,

    /// Most queues of such an account. Default: 20000.
    #[arg(
        long, value_name = "N", env = "ROWHOUSE_MAX_QUEUES_PER_ACCOUNT", help_heading = "Limits"
    )]
    max_queues_per_account: u64,

    /// Most requests worked on at a time. Default: 1024.
    #[arg(long, value_name = "N", env = "ROWHOUSE_MAX_REQUESTS", help_heading = "Limits")]
    max_requests: usize,

    /// Most queries among them. Default: 16.
    #[arg(long, value_name = "N", env = "ROWHOUSE_MAX_SCANS", help_heading = "Limits")]
    max_scans: usize,

    /// Most memory for bodies of requests, in MiB. Default: 256.
    #[arg(long, value_name = "MIB", env = "ROWHOUSE_MAX_BODY_MIB", help_heading = "Limits")]
    max_body_mib: u64,

    /// How long running requests may take once the server is told to stop, in seconds. Default: 8.
    #[arg(long, value_name = "SECONDS", env = "ROWHOUSE_DRAIN_SECONDS", help_heading = "Limits")]
    drain_seconds: u64,

    /// How long after a table's TTL was set nothing is removed, in seconds: until then 'rowhouse table ttl TABLE --off'
    /// brings every entity back. Default: 60.
    #[arg(
        long, value_name = "SECONDS", env = "ROWHOUSE_TTL_GRACE_SECONDS", help_heading = "Limits"
    )]
    ttl_grace_seconds: u64,

    /// How the log on standard error is written. Default: text.
    #[arg(long, value_name = "FORMAT", env = "ROWHOUSE_LOG_FORMAT", help_heading = "Output")]
    log_format: Format,

    /// What is logged: error, warn, info, debug, trace, or directives such as info,audit=off.
    /// Default: info.
    #[arg(long, value_name = "LEVEL", env = "ROWHOUSE_LOG_LEVEL", help_heading = "Output")]
    log_level: String,

    /// Print no banner.
    #[arg(
        long, env = "ROWHOUSE_QUIET", help_heading = "Output", num_args = 0..=1,
        require_equals = true, default_missing_value = "true", value_name = "BOOL",
        hide_possible_values = true, value_parser = BoolishValueParser::new()
    )]
    quiet: bool,

    /// Write one line of JSON to this file when the server is ready: the addresses, the connection string of the
    /// development account, and the path of the admin token.
    #[arg(long, value_name = "FILE", env = "ROWHOUSE_READY_FILE", help_heading = "Output")]
    ready_file: PathBuf,
}

/// An address to listen on; `localhost` is one too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Address(IpAddr);

impl std::str::FromStr for Address {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.eq_ignore_ascii_case("localhost") {
            return Ok(Self(IpAddr::V4(Ipv4Addr::LOCALHOST)));
        }
        text.parse().map(Self).map_err(|_| "must be an IP address or localhost")
    }
}

impl TryFrom<String> for Address {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

/// How long changes are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Keep(KeepChanges);

impl std::str::FromStr for Keep {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

impl TryFrom<String> for Keep {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

/// A text that may hold a password, and is never shown.
#[derive(Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct Secret(String);

impl std::str::FromStr for Secret {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(text.to_owned()))
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

/// The configuration of a command that uses a store without serving it.
pub(crate) fn offline_config(
    data: Option<PathBuf>,
    store: Option<Secret>,
    store_ca_file: Option<PathBuf>,
    store_password_file: Option<PathBuf>,
) -> Result<Config, Failure> {
    let options = Options { data, store, store_password_file, store_ca_file, ..Options::default() };
    options.into_config(Secrets::from_environment())
}

/// What only the environment or a file may hold.
#[derive(Default)]
struct Secrets {
    master_key: Option<String>,
    store_password: Option<String>,
}

impl Secrets {
    fn from_environment() -> Self {
        let variable = |name| std::env::var(name).ok().filter(|text| !text.is_empty());
        Self {
            master_key: variable(MASTER_KEY_VARIABLE),
            store_password: variable(PASSWORD_VARIABLE),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Format {
    /// Lines for people.
    Text,
    /// A JSON object per line.
    Json,
}

impl Serve {
    /// Runs the server. `data_typed`: `--data` stands on the command line. `service_links`: variables that count as unset.
    pub(crate) fn run(self, data_typed: bool, service_links: Vec<String>) -> Result<(), Failure> {
        let file = match &self.config {
            Some(path) => read(path)?,
            None => Options::default(),
        };
        check_ephemeral(&self.options, &file, data_typed)?;
        let config = self.options.or(file).into_config(Secrets::from_environment())?;
        let config = Config { service_links, ..config };
        rowhouse_server::run_until_signalled(config).map_err(|error| error.to_string())
    }
}

/// A directory that was asked for would stay empty. The variable `ROWHOUSE_DATA` is not such a request: container images and
/// units set it for every command. With a database the data is there, whatever becomes of the server's own files.
fn check_ephemeral(options: &Options, file: &Options, data_typed: bool) -> Result<(), Failure> {
    let is_ephemeral = options.ephemeral.or(file.ephemeral) == Some(true);
    let in_file = options.data.is_none() && options.ephemeral.is_none() && file.data.is_some();
    let has_store = options.store.is_some() || file.store.is_some();
    if is_ephemeral && (data_typed || in_file) && !has_store {
        return Err("--ephemeral keeps nothing, so nothing would be kept in --data: leave one out"
            .to_owned());
    }
    Ok(())
}

fn read(path: &Path) -> Result<Options, Failure> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| format!("cannot read {} ({error}): check --config", path.display()))?;
    parse(&text).map_err(|error| format!("{}: {error}", path.display()))
}

/// The whole message of the parser is a picture of the line; what is wrong is its last line.
fn parse(text: &str) -> Result<Options, String> {
    toml::from_str(text).map_err(|error| {
        let line = error.span().map_or(1, |span| {
            1 + text.bytes().take(span.start).filter(|&byte| byte == b'\n').count()
        });
        format!("line {line}: {}", error.message().replace('\n', ", "))
    })
}

/// The option of earlier releases believed everybody, and still does.
fn trusted_proxies(
    networks: Option<Vec<String>>,
    everybody: Option<bool>,
) -> Result<Vec<Network>, Failure> {
    match (networks, everybody) {
        (Some(_), Some(true)) => {
            Err("--trust-forwarded believes everybody, --trusted-proxies only \
                                      those that it names: leave out --trust-forwarded"
                .to_owned())
        }
        (None, Some(true)) => Ok(vec![Network::EVERY_V4, Network::EVERY_V6]),
        (networks, Some(false) | None) => {
            let parse = |text: &String| text.trim().parse::<Network>();
            let networks = networks.iter().flatten().map(parse).collect::<Result<_, _>>();
            networks.map_err(|error| format!("--trusted-proxies: {error}"))
        }
    }
}

impl Options {
    /// Fills what nobody said with the defaults.
    fn into_config(self, secrets: Secrets) -> Result<Config, Failure> {
        let default = Config::default();
        let master_key = match (self.master_key_file, secrets.master_key) {
            (Some(_), Some(_)) => {
                return Err(format!(
                    "there are two master keys, in {MASTER_KEY_VARIABLE} and in \
                     --master-key-file: leave one out"
                ));
            }
            (Some(path), None) => MasterKey::File(path),
            (None, Some(text)) => MasterKey::Text(text),
            (None, None) => MasterKey::None,
        };
        let store_password = match (self.store_password_file, secrets.store_password) {
            (Some(path), _) => StorePassword::File(path),
            (None, Some(text)) => StorePassword::Text(text),
            (None, None) => StorePassword::None,
        };
        let any_port = self.table_port == Some(0);
        let store = self.store.map(|secret| secret.0.parse()).transpose();
        let replica = self.store_replica.map(|secret| secret.0.parse()).transpose();
        let trusted_proxies = trusted_proxies(self.trusted_proxies, self.trust_forwarded)?;
        let max_body_bytes = match self.max_body_mib {
            Some(mib) => usize::try_from(mib.saturating_mul(MIB)).unwrap_or(usize::MAX),
            None => default.max_body_bytes,
        };
        Ok(Config {
            data: self.data.unwrap_or(default.data),
            ephemeral: self.ephemeral.unwrap_or(default.ephemeral),
            cache_bytes: self.cache_mib.map_or(default.cache_bytes, |mib| mib.saturating_mul(MIB)),
            keep_changes: self.keep_changes.map(|keep| keep.0),
            store: store.map_err(|error: ServerError| error.to_string())?,
            store_replica: replica.map_err(|error: ServerError| error.to_string())?,
            store_ca_file: self.store_ca_file,
            store_password,
            store_connections: self.store_connections.unwrap_or(default.store_connections),
            store_wait_seconds: self.store_wait_seconds.unwrap_or(default.store_wait_seconds),
            host: self.host.map_or(default.host, |address| address.0),
            table_port: self.table_port.unwrap_or(default.table_port),
            // A server on any free port must not collide with another one on a fixed port.
            queue_port: self.queue_port.unwrap_or(if any_port { 0 } else { default.queue_port }),
            admin_host: self.admin_host.map_or(default.admin_host, |address| address.0),
            admin_port: self.admin_port.unwrap_or(if any_port { 0 } else { default.admin_port }),
            tls_cert: self.tls_cert,
            tls_key: self.tls_key,
            tls_self_signed: self.tls_self_signed.unwrap_or(default.tls_self_signed),
            development_account: self.development_account.unwrap_or(default.development_account),
            allow_development_key_on_network: self
                .allow_development_key_on_network
                .unwrap_or(default.allow_development_key_on_network),
            master_key,
            admin_token_file: self.admin_token_file,
            clock_skew_seconds: self.clock_skew_seconds.unwrap_or(default.clock_skew_seconds),
            trusted_proxies,
            strict: self.strict.unwrap_or(default.strict),
            host_suffixes: self.host_suffix.unwrap_or(default.host_suffixes),
            max_connections: self.max_connections.unwrap_or(default.max_connections),
            max_connections_per_address: self
                .max_connections_per_address
                .unwrap_or(default.max_connections_per_address),
            max_anonymous_per_address: self
                .max_anonymous_per_address
                .unwrap_or(default.max_anonymous_per_address),
            max_tables_per_account: self
                .max_tables_per_account
                .unwrap_or(default.max_tables_per_account),
            max_queues_per_account: self
                .max_queues_per_account
                .unwrap_or(default.max_queues_per_account),
            max_requests: self.max_requests.unwrap_or(default.max_requests),
            max_scans: self.max_scans.unwrap_or(default.max_scans),
            max_body_bytes,
            drain_seconds: self.drain_seconds.unwrap_or(default.drain_seconds),
            ttl_grace_seconds: self.ttl_grace_seconds.unwrap_or(default.ttl_grace_seconds),
            log_format: match self.log_format {
                Some(Format::Text) => LogFormat::Text,
                Some(Format::Json) => LogFormat::Json,
                None => default.log_format,
            },
            log_level: self.log_level.unwrap_or(default.log_level),
            quiet: self.quiet.unwrap_or(default.quiet),
            ready_file: self.ready_file,
            service_links: default.service_links,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use proptest::prelude::*;

    #[derive(Debug, Parser)]
    struct OnlyServe {
        #[command(flatten)]
        serve: Serve,
    }

    fn flags(arguments: &[&str]) -> Options {
        let arguments = [&["serve"], arguments].concat();
        OnlyServe::try_parse_from(arguments).unwrap().serve.options
    }

    #[test]
    fn nothing_said_is_the_default() {
        assert_eq!(flags(&[]).into_config(Secrets::default()), Ok(Config::default()));
        assert_eq!(parse("").unwrap().into_config(Secrets::default()), Ok(Config::default()));
    }

    /// The environment is tested with the built binary, where a process has its own.
    #[test]
    fn flags_win_over_the_file() {
        let file = "table-port = 1\nadmin-port = 2\nephemeral = true\nhost-suffix = [\"a\"]";
        let said = ["--table-port", "3", "--ephemeral=false", "--host-suffix", "b,c"];
        let config = flags(&said).or(parse(file).unwrap()).into_config(Secrets::default()).unwrap();
        assert_eq!((config.table_port, config.admin_port), (3, 2));
        assert!(!config.ephemeral);
        assert_eq!(config.host_suffixes, ["b", "c"]);
    }

    /// Whichever source says it; a port that is given stays.
    #[test]
    fn any_port_of_tables_is_any_port_of_all() {
        let ports = |options: Options| {
            let config = options.into_config(Secrets::default()).unwrap();
            [config.table_port, config.queue_port, config.admin_port]
        };
        assert_eq!(ports(flags(&["--table-port", "0"])), [0, 0, 0]);
        assert_eq!(ports(parse("table-port = 0").unwrap()), [0, 0, 0]);
        assert_eq!(ports(flags(&["--table-port", "0", "--admin-port", "7"])), [0, 0, 7]);
        assert_eq!(ports(flags(&["--table-port", "5"])), [5, 10001, 10003]);
    }

    #[test]
    fn proxies_are_networks() {
        let config = |said: &[&str]| flags(said).into_config(Secrets::default());
        let trusted = |said: &[&str]| {
            let trusted = config(said).unwrap().trusted_proxies;
            trusted.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(trusted(&[]), [""; 0]);
        assert_eq!(trusted(&["--trusted-proxies", "10.0.0.0/8,::1"]), ["10.0.0.0/8", "::1/128"]);
        assert_eq!(trusted(&["--trust-forwarded"]), ["0.0.0.0/0", "::/0"]);
        assert_eq!(trusted(&["--trust-forwarded=false"]), [""; 0]);
        for (said, expected) in [
            (&["--trusted-proxies", "proxy.example"][..], "neither an address nor a network"),
            (&["--trusted-proxies", "10.1.0.0/8"], "bits beyond its length"),
            (&["--trusted-proxies", "::1", "--trust-forwarded"], "leave out --trust-forwarded"),
        ] {
            let error = config(said).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn the_file_takes_every_option() {
        let file = r#"
            data = "d"
            ephemeral = true
            cache-mib = 1
            keep-changes = "12h"
            store = "postgres://ann@db/shop"
            store-replica = "postgres://ann@db2/shop"
            store-ca-file = "ca"
            store-connections = 10
            store-password-file = "p"
            store-wait-seconds = 11
            host = "localhost"
            table-port = 1
            queue-port = 12
            admin-host = "::1"
            admin-port = 2
            host-suffix = ["a", "b"]
            trusted-proxies = ["10.0.0.0/8", "::1"]
            trust-forwarded = false
            strict = true
            tls-cert = "c"
            tls-key = "k"
            tls-self-signed = false
            development-account = false
            allow-development-key-on-network = true
            master-key-file = "m"
            admin-token-file = "t"
            clock-skew-seconds = 3
            max-connections = 4
            max-connections-per-address = 5
            max-anonymous-per-address = 14
            max-tables-per-account = 15
            max-queues-per-account = 16
            max-requests = 6
            max-scans = 7
            max-body-mib = 8
            drain-seconds = 9
            ttl-grace-seconds = 13
            log-format = "json"
            log-level = "debug"
            quiet = true
            ready-file = "r"
        "#;
        let expected = Config {
            data: "d".into(),
            ephemeral: true,
            cache_bytes: MIB,
            keep_changes: Some(KeepChanges::For(std::time::Duration::from_hours(12))),
            store: "postgres://ann@db/shop".parse().ok(),
            store_replica: "postgres://ann@db2/shop".parse().ok(),
            store_ca_file: Some("ca".into()),
            store_connections: 10,
            store_password: StorePassword::File("p".into()),
            store_wait_seconds: 11,
            host: "127.0.0.1".parse().unwrap(),
            table_port: 1,
            queue_port: 12,
            admin_host: "::1".parse().unwrap(),
            admin_port: 2,
            host_suffixes: vec!["a".into(), "b".into()],
            trusted_proxies: vec!["10.0.0.0/8".parse().unwrap(), "::1".parse().unwrap()],
            strict: true,
            tls_cert: Some("c".into()),
            tls_key: Some("k".into()),
            tls_self_signed: false,
            development_account: false,
            allow_development_key_on_network: true,
            master_key: MasterKey::File("m".into()),
            admin_token_file: Some("t".into()),
            clock_skew_seconds: 3,
            max_connections: 4,
            max_connections_per_address: 5,
            max_anonymous_per_address: 14,
            max_tables_per_account: 15,
            max_queues_per_account: 16,
            max_requests: 6,
            max_scans: 7,
            max_body_bytes: 8 * 1024 * 1024,
            drain_seconds: 9,
            ttl_grace_seconds: 13,
            log_format: LogFormat::Json,
            log_level: "debug".into(),
            quiet: true,
            ready_file: Some("r".into()),
            service_links: Vec::new(),
        };
        assert_eq!(parse(file).unwrap().into_config(Secrets::default()), Ok(expected));
    }

    #[test]
    fn mistakes_in_the_file_are_named_with_their_line() {
        let cases = [
            ("data = \"d\"\nport = 1", "line 2: unknown field `port`"),
            ("table-port = 70000", "line 1:"),
            ("keep-changes = \"long\"", "line 1: must be a time such as 7d"),
            ("\n\nhost = \"nowhere\"", "line 3: must be an IP address or localhost"),
            ("data", "line 1:"),
            ("[section]\na = 1", "unknown field `section`"),
        ];
        for (text, expected) in cases {
            let error = parse(text).unwrap_err();
            assert!(error.contains(expected) && !error.contains('\n'), "{text}: {error}");
        }
    }

    #[test]
    fn a_directory_for_nothing_is_refused() {
        let none = Options::default();
        let check =
            |said: &[&str], file: &Options, typed| check_ephemeral(&flags(said), file, typed);
        let both = ["--ephemeral", "--data", "d"];
        let refused = check(&both, &none, true).unwrap_err();
        assert!(refused.contains("--ephemeral") && refused.contains("--data"), "{refused}");
        let file = parse("ephemeral = true\ndata = \"d\"").unwrap();
        assert!(check(&[], &file, false).is_err());
        assert!(check(&["--data", "d"], &parse("ephemeral = true").unwrap(), true).is_err());
        // A variable, flags over a file, a server on a database, and --data alone.
        assert_eq!(check(&both, &none, false), Ok(()));
        assert_eq!(check(&["--ephemeral"], &parse("data = \"d\"").unwrap(), false), Ok(()));
        assert_eq!(check(&["--ephemeral=false"], &file, false), Ok(()));
        let store = [&both[..], &["--store", "postgres://ann@db/shop"]].concat();
        assert_eq!(check(&store, &none, true), Ok(()));
        assert_eq!(check(&["--data", "d"], &none, true), Ok(()));
    }

    #[test]
    fn two_master_keys_are_one_too_many() {
        let master_key = || Secrets { master_key: Some("key".into()), ..Secrets::default() };
        let options = flags(&["--master-key-file", "m"]);
        assert!(options.into_config(master_key()).unwrap_err().contains("leave one out"));
        let config = flags(&[]).into_config(master_key()).unwrap();
        assert_eq!(config.master_key, MasterKey::Text("key".into()));
    }

    #[test]
    fn the_password_comes_from_a_file_or_the_environment() {
        let secrets = || Secrets { store_password: Some("secret".into()), ..Secrets::default() };
        let url = ["--store", "postgres://ann@db/shop"];
        let config = flags(&url).into_config(secrets()).unwrap();
        assert_eq!(config.store_password, StorePassword::Text("secret".into()));
        let both = [&url[..], &["--store-password-file", "p"]].concat();
        let config = flags(&both).into_config(secrets()).unwrap();
        assert_eq!(config.store_password, StorePassword::File("p".into()));
    }

    /// Whatever is wrong with it, and in whatever source.
    #[test]
    fn an_address_with_a_password_is_never_shown() {
        let url = "postgres://ann:secret@db/shop";
        let options = flags(&["--store", url]);
        assert!(!format!("{options:?}").contains("secret"));
        let config = options.into_config(Secrets::default()).unwrap();
        assert!(!format!("{config:?}").contains("secret"));
        for wrong in ["secret", "postgres://ann:x@secret@db/shop", "postgres://ann:secret/shop"] {
            let file = parse(&format!("store = \"{wrong}\"")).unwrap();
            for options in [flags(&["--store", wrong]), file] {
                let sentence = options.into_config(Secrets::default()).unwrap_err();
                assert!(sentence.starts_with("--store ") && !sentence.contains("secret"));
            }
        }
        let error = parse("store = [\"secret\"]").unwrap_err();
        assert!(!error.contains("secret"), "{error}");
    }

    proptest! {
        #[test]
        fn any_file_is_options_or_an_error(text in "[a-z=\"\\[\\]\n -]{0,60}") {
            let _ = parse(&text);
        }
    }
}
