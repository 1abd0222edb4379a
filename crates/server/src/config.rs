//! Every option of the server, with its default, and what must not be combined.

use crate::database::{DatabaseAddress, StorePassword};
use crate::error::ServerError;
use crate::master_key::MasterKey;
use rowhouse_http::PublicKey;
use rowhouse_types::{Network, limits};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// One for requests and one for what the store does beside them.
const STORE_CONNECTIONS_MIN: usize = 2;

/// How the log is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Lines for people.
    #[default]
    Text,
    /// A JSON object per line, for programs.
    Json,
}

/// Whether changes are kept for those who follow them, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepChanges {
    /// Not, and those that are kept are forgotten.
    Off,
    /// So long after they were made.
    For(Duration),
}

impl KeepChanges {
    /// As the store takes it.
    pub(crate) fn retention(self) -> Option<Duration> {
        match self {
            Self::Off => None,
            Self::For(time) => Some(time),
        }
    }
}

impl FromStr for KeepChanges {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const WRONG: &str = "must be a time such as 7d, 12h or 30m, or off";
        if text == "off" {
            return Ok(Self::Off);
        }
        let unit = text.chars().next_back().ok_or(WRONG)?;
        let seconds = match unit {
            'd' => 24 * 60 * 60,
            'h' => 60 * 60,
            'm' => 60,
            's' => 1,
            _ => return Err(WRONG),
        };
        let digits = &text[..text.len() - 1];
        let number = digits.parse::<u32>().ok().filter(|number| 0 < *number).ok_or(WRONG)?;
        Ok(Self::For(Duration::from_secs(u64::from(number) * seconds)))
    }
}

/// Everything that can be chosen. The default is for one's own machine: loopback only, with the
/// development account that every tool knows.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of its own on the command line"
)]
pub struct Config {
    /// Directory of the data, or with a database only of what belongs to this server alone. Created
    /// if it is not there.
    pub data: PathBuf,
    /// Keep nothing: a temporary directory without fsync, removed at the end. `data` is not
    /// touched. A database keeps what its own settings let it keep.
    pub ephemeral: bool,
    /// Memory for pages of the embedded database, in bytes.
    pub cache_bytes: u64,
    /// Whether changes are kept; as the store was told last if this says nothing.
    pub keep_changes: Option<KeepChanges>,

    /// The PostgreSQL database that holds the data instead of the data directory.
    pub store: Option<DatabaseAddress>,
    /// Its password, if the address holds none.
    pub store_password: StorePassword,
    /// Most connections to it.
    pub store_connections: usize,
    /// How long a start waits until it can be reached, in seconds.
    pub store_wait_seconds: u64,
    /// File of the authorities that vouch for the database's certificate, if the operating system's do not.
    pub store_ca_file: Option<PathBuf>,
    /// A replica of the database, which the secondary endpoint reads; the database itself without.
    pub store_replica: Option<DatabaseAddress>,

    /// Address of the Table service and the Queue service.
    pub host: IpAddr,
    /// Port of the Table service; 0 takes any free one.
    pub table_port: u16,
    /// Port of the Queue service; 0 takes any free one.
    pub queue_port: u16,
    /// Address of health, metrics and the admin API.
    pub admin_host: IpAddr,
    /// Their port; 0 takes any free one.
    pub admin_port: u16,

    /// Certificate chain in PEM form. Loaded again when it changes.
    pub tls_cert: Option<PathBuf>,
    /// Its key.
    pub tls_key: Option<PathBuf>,
    /// Make a certificate for this machine instead.
    pub tls_self_signed: bool,

    /// Whether the account with the public key exists.
    pub development_account: bool,
    /// Let everybody on the network use that key, and so read and change all its data.
    pub allow_development_key_on_network: bool,
    /// What account keys are sealed with.
    pub master_key: MasterKey,
    /// Tokens of the admin API; by default one is made in the data directory.
    pub admin_token_file: Option<PathBuf>,
    /// How far the date of a signed request may be off, in seconds.
    pub clock_skew_seconds: u64,
    /// Proxies whose `X-Forwarded-For` and `X-Forwarded-Proto` are believed.
    pub trusted_proxies: Vec<Network>,
    /// No extensions: answers are those of the original service to everything.
    pub strict: bool,
    /// Names by which clients call this server, beside addresses and `localhost`.
    pub host_suffixes: Vec<String>,

    /// Most connections at a time, per listener.
    pub max_connections: usize,
    /// Most connections at a time from one address.
    pub max_connections_per_address: usize,
    /// Most of them that had no request with a valid credential.
    pub max_anonymous_per_address: usize,
    /// Most tables of an account that has no limit of its own.
    pub max_tables_per_account: u64,
    /// Most queues of such an account.
    pub max_queues_per_account: u64,
    /// Most requests worked on at a time.
    pub max_requests: usize,
    /// Most queries among them.
    pub max_scans: usize,
    /// Most memory for bodies of requests, in bytes.
    pub max_body_bytes: usize,
    /// Longest time that running requests get at the end, in seconds.
    pub drain_seconds: u64,
    /// Time between a table's TTL being set and the first removal, in seconds.
    pub ttl_grace_seconds: u64,

    /// How the log is written.
    pub log_format: LogFormat,
    /// What is logged: a level, or directives such as `info,audit=off`.
    pub log_level: String,
    /// Print no banner.
    pub quiet: bool,
    /// Written when the server is ready.
    pub ready_file: Option<PathBuf>,
    /// Variables that were ignored because Kubernetes set them for a service.
    pub service_links: Vec<String>,
}

impl Default for Config {
    fn default() -> Self {
        let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
        Self {
            data: PathBuf::from("rowhouse-data"),
            ephemeral: false,
            cache_bytes: 128 * 1024 * 1024,
            keep_changes: None,
            store: None,
            store_password: StorePassword::None,
            store_connections: 32,
            store_wait_seconds: 30,
            store_ca_file: None,
            store_replica: None,
            host: loopback,
            table_port: 10002,
            queue_port: 10001,
            admin_host: loopback,
            admin_port: 10003,
            tls_cert: None,
            tls_key: None,
            tls_self_signed: false,
            development_account: true,
            allow_development_key_on_network: false,
            master_key: MasterKey::None,
            admin_token_file: None,
            clock_skew_seconds: limits::CLOCK_SKEW_SECONDS,
            trusted_proxies: Vec::new(),
            strict: false,
            host_suffixes: Vec::new(),
            max_connections: limits::CONNECTIONS_MAX,
            max_connections_per_address: limits::CONNECTIONS_PER_ADDRESS_MAX,
            max_anonymous_per_address: limits::ANONYMOUS_CONNECTIONS_PER_ADDRESS_MAX,
            max_tables_per_account: limits::TABLES_PER_ACCOUNT_MAX,
            max_queues_per_account: limits::QUEUES_PER_ACCOUNT_MAX,
            max_requests: limits::REQUESTS_MAX,
            max_scans: limits::SCANS_MAX,
            max_body_bytes: limits::BODIES_BYTES_MAX,
            drain_seconds: limits::DRAIN_SECONDS_MAX,
            ttl_grace_seconds: limits::TTL_GRACE_SECONDS,
            log_format: LogFormat::Text,
            log_level: "info".to_owned(),
            quiet: false,
            ready_file: None,
            service_links: Vec::new(),
        }
    }
}

impl Config {
    /// What the key of the development account opens.
    pub(crate) fn public_key(&self) -> PublicKey {
        match (self.development_account, self.allow_development_key_on_network) {
            (true, true) => PublicKey::Accepted,
            (true, false) if self.host.is_loopback() => PublicKey::Guarded,
            _ => PublicKey::Refused,
        }
    }

    /// Refuses what would not work, or would be dangerous without saying so.
    pub(crate) fn check(&self) -> Result<(), ServerError> {
        let refuse = |sentence: &str| Err(ServerError::Refused(sentence.to_owned()));
        self.check_store()?;
        match (&self.tls_cert, &self.tls_key) {
            (Some(_), None) => return refuse("--tls-cert needs --tls-key: name both files"),
            (None, Some(_)) => return refuse("--tls-key needs --tls-cert: name both files"),
            (Some(_), Some(_)) if self.tls_self_signed => {
                return refuse(
                    "--tls-self-signed makes a certificate, so leave out --tls-cert and --tls-key",
                );
            }
            (Some(_), Some(_)) | (None, None) => {}
        }
        if self.development_account
            && !self.host.is_loopback()
            && !self.allow_development_key_on_network
        {
            return Err(ServerError::Refused(format!(
                "the key of the development account is public, so everybody who can reach {} could \
                 use it: add --development-account=false, or \
                 --allow-development-key-on-network if that is what you want",
                self.host
            )));
        }
        if !self.admin_host.is_loopback() && !self.uses_tls() {
            return Err(ServerError::Refused(format!(
                "the admin listener would send its token unencrypted over the network at {}: add \
                 --tls-cert and --tls-key or --tls-self-signed, or keep --admin-host on 127.0.0.1",
                self.admin_host
            )));
        }
        let ports = [
            ("--table-port", self.table_address()),
            ("--queue-port", self.queue_address()),
            ("--admin-port", self.admin_address()),
        ];
        for (index, (first, a)) in ports.iter().enumerate() {
            for (second, b) in &ports[index + 1..] {
                if a.port() != 0 && a.port() == b.port() && overlap(a.ip(), b.ip()) {
                    return Err(ServerError::Refused(format!(
                        "{first} and {second} are the same: choose two"
                    )));
                }
            }
        }
        let limits = [
            ("--max-connections", self.max_connections),
            ("--max-connections-per-address", self.max_connections_per_address),
            ("--max-anonymous-per-address", self.max_anonymous_per_address),
            ("--max-requests", self.max_requests),
            ("--max-scans", self.max_scans),
        ];
        for (flag, limit) in limits {
            if limit == 0 {
                return Err(ServerError::Refused(format!("{flag} must be at least 1")));
            }
        }
        if self.max_body_bytes < limits::BODY_BYTES_MAX {
            return refuse("--max-body-mib must be at least 4, the size of the largest request");
        }
        let strange = self.host_suffixes.iter().find(|suffix| !is_host_name(suffix));
        if let Some(suffix) = strange {
            return Err(ServerError::Refused(format!(
                "--host-suffix takes a name such as storage.example.org, which {suffix:?} is not"
            )));
        }
        Ok(())
    }

    fn check_store(&self) -> Result<(), ServerError> {
        let refuse = |sentence: &str| Err(ServerError::Refused(sentence.to_owned()));
        if DatabaseAddress::is_meant_by(&self.data) {
            return refuse("--data takes a directory: name the database with --store");
        }
        if self.store_connections < STORE_CONNECTIONS_MIN {
            return refuse("--store-connections must be at least 2");
        }
        if self.store_ca_file.is_some() && self.store.is_none() {
            return refuse("--store-ca-file needs --store: name the database");
        }
        if self.store_replica.is_some() && self.store.is_none() {
            return refuse("--store-replica needs --store: name the database that it follows");
        }
        if let StorePassword::File(_) = self.store_password {
            match &self.store {
                None => return refuse("--store-password-file needs --store: name the database"),
                Some(address) if address.has_password() => {
                    return refuse(
                        "there are two passwords, in --store and in --store-password-file: leave \
                         one out",
                    );
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// Where accounts and tables are, in words.
    pub(crate) fn data_place(&self) -> &'static str {
        if self.store.is_some() { "the database" } else { "the data directory" }
    }

    /// Whether the services are encrypted.
    pub(crate) fn uses_tls(&self) -> bool {
        self.tls_self_signed || self.tls_cert.is_some()
    }

    pub(crate) fn table_address(&self) -> SocketAddr {
        SocketAddr::new(self.host, self.table_port)
    }

    pub(crate) fn queue_address(&self) -> SocketAddr {
        SocketAddr::new(self.host, self.queue_port)
    }

    pub(crate) fn admin_address(&self) -> SocketAddr {
        SocketAddr::new(self.admin_host, self.admin_port)
    }
}

/// Whether two listeners on these addresses would fight for a port.
fn overlap(a: IpAddr, b: IpAddr) -> bool {
    a == b || a.is_unspecified() || b.is_unspecified()
}

fn is_host_name(text: &str) -> bool {
    !text.is_empty()
        && text.split('.').all(|label| {
            !label.is_empty()
                && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(change: impl FnOnce(&mut Config)) -> Option<String> {
        let mut config = Config::default();
        change(&mut config);
        config.check().err().map(|error| error.to_string())
    }

    #[test]
    fn the_default_is_fine() {
        assert_eq!(refusal(|_| {}), None);
    }

    #[test]
    fn how_long_changes_are_kept() {
        let kept = |seconds| Ok(KeepChanges::For(Duration::from_secs(seconds)));
        let cases =
            [("7d", kept(604_800)), ("12h", kept(43_200)), ("30m", kept(1_800)), ("9s", kept(9))];
        for (text, expected) in cases {
            assert_eq!(text.parse(), expected, "{text}");
        }
        assert_eq!("off".parse(), Ok(KeepChanges::Off));
        for text in ["", "7", "d", "0d", "-1d", "1.5h", "7D", "7 d", "5000000000d", "7é", "on"] {
            assert!(text.parse::<KeepChanges>().is_err(), "{text}");
        }
    }

    #[test]
    fn secrets_are_not_shown() {
        let config = Config {
            store: "postgres://ann:secret@db/shop".parse().ok(),
            store_password: StorePassword::Text("secret".into()),
            master_key: MasterKey::Text("secret".into()),
            ..Config::default()
        };
        let shown = format!("{config:?}");
        assert!(shown.contains("db:5432/shop") && !shown.contains("secret"), "{shown}");
    }

    #[test]
    fn dangers_and_mistakes_are_refused_with_advice() {
        let anywhere: IpAddr = "0.0.0.0".parse().unwrap();
        let refused = |advice: &str, change: fn(&mut Config)| {
            let sentence = refusal(change).unwrap_or_default();
            assert!(sentence.contains(advice), "{advice}: {sentence}");
        };
        refused("--development-account=false", |config| config.host = "0.0.0.0".parse().unwrap());
        refused("--development-account=false", |config| config.host = "192.0.2.1".parse().unwrap());
        refused("--tls-self-signed", |config| config.admin_host = "::".parse().unwrap());
        refused("--tls-key", |config| config.tls_cert = Some("c".into()));
        refused("--tls-cert", |config| config.tls_key = Some("k".into()));
        refused("leave out --tls-cert", |config| {
            config.tls_cert = Some("c".into());
            config.tls_key = Some("k".into());
            config.tls_self_signed = true;
        });
        refused("choose two", |config| config.admin_port = config.table_port);
        refused("--table-port and --queue-port", |config| config.queue_port = config.table_port);
        refused("--queue-port and --admin-port", |config| config.queue_port = config.admin_port);
        refused("--max-scans must be at least 1", |config| config.max_scans = 0);
        refused("at least 4", |config| config.max_body_bytes = 1);
        refused("storage.example.org", |config| config.host_suffixes = vec!["a b".into()]);
        refused("with --store", |config| config.data = "postgres://ann:secret@db/shop".into());
        refused("--store-replica needs", |config| {
            config.store_replica = "postgres://ann@db2/shop".parse().ok();
        });
        refused("--store-connections must", |config| config.store_connections = 1);
        refused("needs --store", |config| config.store_password = StorePassword::File("f".into()));
        refused("leave one out", |config| {
            config.store = "postgres://ann:secret@db/shop".parse().ok();
            config.store_password = StorePassword::File("f".into());
        });

        let allowed: [fn(&mut Config); 6] = [
            |config| {
                config.store = "postgres://ann@db/shop".parse().ok();
                config.store_password = StorePassword::File("f".into());
            },
            |config| {
                config.store = "postgres://ann:secret@db/shop".parse().ok();
                config.store_password = StorePassword::Text("another".into());
            },
            |config| config.host = "::1".parse().unwrap(),
            |config| config.host = "127.1.2.3".parse().unwrap(),
            |config| (config.table_port, config.queue_port, config.admin_port) = (0, 0, 0),
            |config| config.host_suffixes = vec!["storage.example.org".into()],
        ];
        for change in allowed {
            assert_eq!(refusal(change), None);
        }
        assert_eq!(
            refusal(|config| (config.host, config.development_account) = (anywhere, false)),
            None
        );
        assert_eq!(
            refusal(|config| {
                (config.host, config.allow_development_key_on_network) = (anywhere, true);
            }),
            None
        );
    }
}
