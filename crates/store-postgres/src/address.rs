//! Reads the address of a database, with the modes of TLS that libpq knows.

use tokio_postgres::config::Host;
use tokio_postgres::{Config, Error};

/// What the parameter of the address is called.
const PARAMETER: &str = "sslmode";
const SCHEMES: [&str; 2] = ["postgres://", "postgresql://"];

/// How connections to the database are protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsMode {
    /// No encryption.
    Disable,
    /// Encryption if the database offers it, without checking its certificate. A database on another machine that offers
    /// none is refused. The default.
    Prefer,
    /// Encryption; the certificate comes from an authority that is trusted. The name in it is not checked.
    VerifyCa,
    /// Encryption; the certificate comes from an authority that is trusted, and is for the host of the address.
    VerifyFull,
}

impl TlsMode {
    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "disable" => Self::Disable,
            "prefer" => Self::Prefer,
            "verify-ca" => Self::VerifyCa,
            // Stricter than libpq, whose `require` checks no certificate.
            "require" | "verify-full" => Self::VerifyFull,
            _ => return None,
        })
    }
}

/// Where a database is, and how it is reached.
#[derive(Clone, Debug)]
pub struct Address {
    /// All but the mode of TLS.
    pub config: Config,
    /// As the address says.
    pub tls: TlsMode,
}

impl Address {
    /// Whether every host is this machine: its loopback addresses, and sockets.
    pub fn is_local(&self) -> bool {
        is_local(&self.config)
    }
}

/// Reads `postgres://user:password@host:port/database`, or the words of a connection string.
pub fn parse_address(text: &str) -> Result<Address, Error> {
    let found = if SCHEMES.iter().any(|scheme| text.starts_with(scheme)) {
        in_url(text)
    } else {
        in_words(text)
    };
    let known = found.and_then(|(range, value)| Some((range, TlsMode::parse(value)?)));
    match known {
        // What is not known is left in: the parser refuses it.
        None => Ok(Address { config: text.parse()?, tls: TlsMode::Prefer }),
        Some((range, tls)) => {
            let rest = format!("{}{}", &text[..range.start], &text[range.end..]);
            Ok(Address { config: rest.parse()?, tls })
        }
    }
}

fn is_local(config: &Config) -> bool {
    let is_loopback = |name: &str| {
        let address = name.trim_start_matches('[').trim_end_matches(']');
        name.eq_ignore_ascii_case("localhost")
            || address.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
    };
    // Addresses win over the names of hosts.
    if !config.get_hostaddrs().is_empty() {
        return config.get_hostaddrs().iter().all(std::net::IpAddr::is_loopback);
    }
    config.get_hosts().iter().all(|host| match host {
        Host::Tcp(name) => is_loopback(name),
        #[cfg(unix)]
        Host::Unix(_) => true,
    })
}

type Found<'a> = (std::ops::Range<usize>, &'a str);

/// The parameter of a URL with its separator, and its value. As in the parser, the last one counts; all others stay, and are
/// refused by it unless they are modes that it knows.
fn in_url(text: &str) -> Option<Found<'_>> {
    // A user's name before the '@' may hold a '?' that begins no parameters.
    let after_user = text.rfind('@').map_or(0, |at| at + 1);
    let mut start = after_user + text[after_user..].find('?')? + 1;
    let mut found = None;
    for pair in text[start..].split('&') {
        let end = start + pair.len();
        if let Some(value) = pair.strip_prefix(PARAMETER).and_then(|rest| rest.strip_prefix('=')) {
            // With the '&' behind it, or else the one before it.
            let range = match text[end..].starts_with('&') {
                true => start..end + 1,
                false if text[..start].ends_with('&') => start - 1..end,
                false => start..end,
            };
            found = Some((range, value));
        }
        start = end + 1;
    }
    found
}

/// The same in `key=value` pairs, whose values may be quoted.
fn in_words(text: &str) -> Option<Found<'_>> {
    let (mut at, mut found) = (0, None);
    let rest = |at: usize| text.get(at..).unwrap_or_default();
    let spaces = |at: usize| rest(at).len() - rest(at).trim_start().len();
    loop {
        at += spaces(at);
        let start = at;
        let name_end = rest(at).find(|c: char| c == '=' || c.is_whitespace());
        let Some(name_length) = name_end else { return found };
        let name = &rest(at)[..name_length];
        at += name_length;
        at += spaces(at);
        if !rest(at).starts_with('=') {
            return found;
        }
        at += 1;
        at += spaces(at);
        let (value, length) = value(rest(at));
        at += length;
        if name == PARAMETER {
            found = Some((start..at, value));
        }
    }
}

/// The value that a text begins with, without its quotes, and its length with them.
fn value(text: &str) -> (&str, usize) {
    let quoted = text.starts_with('\'');
    let inner = if quoted { &text[1..] } else { text };
    let mut is_escaped = false;
    let end = inner.find(|c: char| {
        let ends = !is_escaped && if quoted { c == '\'' } else { c.is_whitespace() };
        is_escaped = !is_escaped && c == '\\';
        ends
    });
    let end = end.unwrap_or(inner.len());
    let length = if quoted { (end + 2).min(text.len()) } else { end };
    (&inner[..end], length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_read_in_both_forms() {
        use TlsMode::{Disable, Prefer, VerifyCa, VerifyFull};
        for (text, tls) in [
            ("postgres://u@h/d", Prefer),
            ("postgres://u@h/d?sslmode=prefer", Prefer),
            ("postgres://u@h/d?sslmode=disable", Disable),
            ("postgresql://u@h/d?sslmode=verify-ca&connect_timeout=3", VerifyCa),
            ("postgres://u@h/d?connect_timeout=3&sslmode=verify-full", VerifyFull),
            ("postgres://u@h/d?connect_timeout=3&sslmode=verify-ca&application_name=x", VerifyCa),
            ("postgres://u?sslmode=disable@h/d?sslmode=require", VerifyFull),
            ("postgres://u@h/d?application_name=sslmode", Prefer),
            ("host=h user=u dbname=d", Prefer),
            ("host=h sslmode=verify-full user=u dbname=d", VerifyFull),
            ("host=h user=u dbname=d sslmode = 'verify-ca'", VerifyCa),
            ("sslmode=disable host=h user=u password='a \\' sslmode=require' dbname=d", Disable),
        ] {
            let address = parse_address(text).unwrap();
            assert_eq!(address.tls, tls, "{text}");
            assert_eq!(address.config.get_hosts(), [Host::Tcp("h".to_owned())], "{text}");
            assert_eq!(address.config.get_dbname(), Some("d"), "{text}");
        }
        for text in ["postgres://h/d?sslmode=never", "host=h sslmode=allow", "host=h sslmode="] {
            assert!(parse_address(text).is_err(), "{text}");
        }
    }

    #[test]
    fn this_machine_is_recognised() {
        for (text, local) in [
            ("postgres://localhost/d", true),
            ("postgres://127.0.0.1:5433/d", true),
            ("postgres://127.8.0.1,localhost/d", true),
            ("host=/var/run/postgresql", true),
            ("host=::1", true),
            ("host=db hostaddr=127.0.0.1", true),
            ("host=localhost hostaddr=10.0.0.1", false),
            ("postgres://localhost.example.org/d", false),
            ("postgres://10.0.0.1/d", false),
            ("postgres://localhost,db/d", false),
        ] {
            assert_eq!(parse_address(text).unwrap().is_local(), local, "{text}");
        }
    }
}
