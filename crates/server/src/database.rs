//! Where a PostgreSQL database is, and the password for it.
//!
//! Both are secrets: of an address only its place is ever shown, which is host, port and name of the database. What is
//! wrong with an address is told without quoting it.

use crate::error::ServerError;
use rowhouse_store_postgres::{TlsMode, Url, parse_address};
use std::fmt::{self, Write as _};
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use tokio_postgres::config::Host;

const SCHEMES: [&str; 2] = ["postgres://", "postgresql://"];
const PORT: u16 = 5432;

/// Where a database is: `postgres://user:password@host:port/database`.
#[derive(Clone, PartialEq, Eq)]
pub struct DatabaseAddress {
    url: String,
    place: String,
    has_password: bool,
    /// How connections are protected; none if they do not leave this machine.
    tls: Option<TlsMode>,
}

impl DatabaseAddress {
    /// Whether somebody who wrote this means a database and not a directory.
    pub fn is_meant_by(path: &Path) -> bool {
        let text = path.to_string_lossy();
        SCHEMES.iter().any(|scheme| text.starts_with(scheme))
    }

    /// Whether the address holds a password itself.
    pub(crate) fn has_password(&self) -> bool {
        self.has_password
    }

    /// What the operator should know about how connections are protected, if anything.
    pub(crate) fn tls_note(&self) -> Option<String> {
        let place = &self.place;
        match self.tls? {
            TlsMode::Disable => Some(format!(
                "connections to the database {place} are not encrypted: sslmode=disable."
            )),
            TlsMode::Prefer => Some(format!(
                "the certificate of the database {place} is not checked: add sslmode=verify-full to \
                 the address, and name an authority of your own with --store-ca-file."
            )),
            TlsMode::VerifyCa | TlsMode::VerifyFull => None,
        }
    }

    /// The address for the engine, with a password from elsewhere if it holds none.
    pub(crate) fn url(&self, password: Option<&str>) -> Url {
        Url::new(match password {
            Some(password) if !self.has_password => self.with_password(password),
            _ => self.url.clone(),
        })
    }

    fn with_password(&self, password: &str) -> String {
        // A user's name before the '@' may hold a '?' that begins no parameters.
        let after_user = self.url.rsplit_once('@').map_or(self.url.as_str(), |(_, rest)| rest);
        let separator = match after_user.split_once('?') {
            None => "?",
            Some((_, parameters)) if parameters.is_empty() || parameters.ends_with('&') => "",
            Some(_) => "&",
        };
        let mut url = format!("{}{separator}password=", self.url);
        for byte in password.bytes() {
            // Writing to a string cannot fail.
            let _ = write!(url, "%{byte:02X}");
        }
        url
    }
}

impl FromStr for DatabaseAddress {
    type Err = ServerError;

    fn from_str(text: &str) -> Result<Self, ServerError> {
        let refuse = |offence: &str| Err(ServerError::Refused(format!("--store {offence}")));
        if !Self::is_meant_by(Path::new(text)) {
            return refuse(
                "takes the address of a database, postgres://user@host:port/database: a directory \
                 is named with --data",
            );
        }
        // Whatever stands behind the first one would be taken for the host, and shown.
        if 1 < text.matches('@').count() {
            return refuse("holds '@' more than once: write those of user and password as %40");
        }
        let Ok(address) = parse_address(text) else {
            return refuse(
                "cannot be read: write postgres://user@host:port/database, with %XX for special \
                 characters of user and password",
            );
        };
        let config = &address.config;
        let Some(place) = place(config) else {
            return refuse("names no host: write postgres://user@host:port/database");
        };
        if place.contains(char::is_control) {
            return refuse("holds a control character: leave it out");
        }
        let has_password = config.get_password().is_some();
        let tls = if address.is_local() { None } else { Some(address.tls) };
        Ok(Self { url: text.to_owned(), place, has_password, tls })
    }
}

/// Hosts, each with its port, and the database; nothing if there is no host.
fn place(config: &tokio_postgres::Config) -> Option<String> {
    let ports = config.get_ports();
    let mut hosts = Vec::new();
    for (index, host) in config.get_hosts().iter().enumerate() {
        let port = ports.get(index).or(ports.first()).unwrap_or(&PORT);
        hosts.push(match host {
            Host::Tcp(name) if name.contains(':') => format!("[{name}]:{port}"),
            Host::Tcp(name) => format!("{name}:{port}"),
            #[cfg(unix)]
            Host::Unix(path) => format!("{}:{port}", path.display()),
        });
    }
    if hosts.is_empty() {
        return None;
    }
    // Without a name it is the database of the user's name.
    let database = config.get_dbname().or(config.get_user()).unwrap_or_default();
    Some(format!("{}/{database}", hosts.join(",")))
}

/// Shows host, port and database.
impl fmt::Display for DatabaseAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.place)
    }
}

/// Shows host, port and database.
impl fmt::Debug for DatabaseAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DatabaseAddress").field(&self.place).finish()
    }
}

/// Where the password of the database comes from, if it is not in the address.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum StorePassword {
    /// Nowhere.
    #[default]
    None,
    /// The password. One in the address wins over it.
    Text(String),
    /// A file that holds it on its first line.
    File(PathBuf),
}

/// Shows where the password comes from, never the password.
impl fmt::Debug for StorePassword {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::Text(_) => f.write_str("Text"),
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
        }
    }
}

impl StorePassword {
    /// The password, if there is one.
    pub(crate) fn read(&self) -> Result<Option<String>, ServerError> {
        let path = match self {
            Self::None => return Ok(None),
            Self::Text(text) => return Ok(Some(text.clone())),
            Self::File(path) => path,
        };
        let refuse = |offence: String| {
            let path = path.display();
            Err(ServerError::Refused(format!("the password file {path} {offence}")))
        };
        match fs::read_to_string(path) {
            Ok(text) => match text.lines().next().filter(|line| !line.is_empty()) {
                Some(line) => Ok(Some(line.to_owned())),
                None => refuse("is empty: put the password on its first line".to_owned()),
            },
            Err(error) => refuse(format!("cannot be read ({error}): check --store-password-file")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn refusal(text: &str) -> String {
        text.parse::<DatabaseAddress>().unwrap_err().to_string()
    }

    #[test]
    fn host_port_and_database_are_shown() {
        let cases = [
            ("postgres://db.example.org/shop", "db.example.org:5432/shop", false),
            ("postgresql://ann:secret@db:6000/shop", "db:6000/shop", true),
            ("postgres://ann:se%40cret@[::1]:6000/shop", "[::1]:6000/shop", true),
            ("postgres://ann:secret@db", "db:5432/ann", true),
            ("postgres://ann:s/e?c=r@db/shop?connect_timeout=3", "db:5432/shop", true),
            ("postgres://db/shop?user=ann&password=secret", "db:5432/shop", true),
            ("postgres://ann@a:1,b/shop", "a:1,b:5432/shop", false),
            ("postgres:///shop?host=%2Frun%2Fpostgresql", "/run/postgresql:5432/shop", false),
        ];
        for (text, expected, has_password) in cases {
            let address: DatabaseAddress = text.parse().unwrap();
            assert_eq!(address.to_string(), expected, "{text}");
            assert_eq!(format!("{address:?}"), format!("DatabaseAddress({expected:?})"));
            assert_eq!(address.has_password(), has_password, "{text}");
        }
    }

    #[test]
    fn what_is_wrong_with_an_address_is_told_without_quoting_it() {
        let cases = [
            ("secret", "--data"),
            ("mysql://ann:secret@db/shop", "--data"),
            ("postgres://ann:sec@secret@db/shop", "%40"),
            ("postgres://ann:sec@sec/ret@db/shop", "%40"),
            ("postgres://ann:secret/shop", "cannot be read"),
            ("postgres://ann:secret@db/shop?secret=1", "cannot be read"),
            ("postgres://ann:secret@/shop", "names no host"),
            ("postgres://ann:secret@db%0A/shop", "control character"),
        ];
        for (text, expected) in cases {
            let sentence = refusal(text);
            assert!(sentence.contains(expected) && !sentence.contains('\n'), "{text}: {sentence}");
            assert!(!sentence.contains("sec"), "{text}: {sentence}");
        }
    }

    #[test]
    fn a_password_is_read_from_the_first_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("password");
        let file = StorePassword::File(path.clone());
        assert!(file.read().unwrap_err().to_string().contains("--store-password-file"));
        for (text, expected) in [("a b \n", Some("a b ")), ("a\r\nb", Some("a")), ("\n", None)] {
            fs::write(&path, text).unwrap();
            assert_eq!(file.read().ok().flatten().as_deref(), expected, "{text:?}");
        }
        let text = StorePassword::Text("secret".into());
        assert_eq!(text.read().unwrap().as_deref(), Some("secret"));
        assert_eq!(format!("{text:?}"), "Text");
    }

    proptest! {
        #[test]
        fn any_password_arrives(password in "\\PC{1,20}", parameters in "(\\?|\\?connect_timeout=3|\\?connect_timeout=3&)?") {
            for user in ["", "ann@", "a?n@"] {
                let url = format!("postgres://{user}db:1/shop{parameters}");
                let address: DatabaseAddress = url.parse().unwrap();
                let config: tokio_postgres::Config = address.with_password(&password).parse().unwrap();
                prop_assert_eq!(config.get_password(), Some(password.as_bytes()));
                prop_assert_eq!(config.get_dbname(), Some("shop"));
            }
        }

        #[test]
        fn any_text_is_an_address_or_none(text in "(postgres://)?[a-z:@/?=&%,\\[\\]]{0,40}") {
            let _ = text.parse::<DatabaseAddress>();
        }
    }
}
