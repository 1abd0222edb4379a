//! What a person sees when the server is ready: where it is, and the connection string to paste.

use crate::announce::{Data, Started};
use rowhouse_service_account::{DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY};
use std::fmt::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Everything the banner tells.
#[derive(Debug)]
pub(crate) struct Banner {
    pub(crate) started: Started,
    pub(crate) notes: Vec<String>,
    /// Whether the output is a terminal.
    pub(crate) bold: bool,
}

impl fmt::Display for Banner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (bold, plain) = if self.bold { ("\x1b[1m", "\x1b[0m") } else { ("", "") };
        let Started { table, queue, admin, data, changes, token, trust, known, .. } = &self.started;
        let served = others(self.started.served_everywhere);
        let administered = others(self.started.admin_everywhere);
        let mut text = String::new();
        writeln!(text, "{bold}Rowhouse{plain} {}", crate::VERSION)?;
        writeln!(text)?;
        writeln!(text, "Table   {table}{served}")?;
        writeln!(text, "Queue   {queue}{served}")?;
        writeln!(text, "Admin   {admin}{administered}   token in {}", token.display())?;
        match data {
            Data::Directory(path) => writeln!(text, "Data    {}", path.display())?,
            Data::Nowhere => writeln!(text, "Data    nothing is kept: gone when the server stops")?,
            Data::Database(address) => writeln!(text, "Data    PostgreSQL at {address}")?,
            Data::LaxDatabase(address) => writeln!(
                text,
                "Data    PostgreSQL at {address}: a crash of the database may lose answered writes"
            )?,
        }
        if self.started.strict {
            writeln!(text, "Strict  no extensions: no indexes, TTL, order, counts or change feed")?;
        }
        if let Some(changes) = changes {
            writeln!(text, "Changes {changes}")?;
        }
        if let Some(trust) = trust {
            writeln!(text, "Trust   {}", trust.display())?;
        }
        writeln!(text)?;
        if known.development_key {
            writeln!(text, "Connection string of the development account:")?;
            writeln!(text, "{bold}{}{plain}", connection_string(table, queue))?;
        } else if known.accounts == 0 {
            writeln!(text, "There is no account yet: rowhouse account create NAME")?;
        } else {
            writeln!(text, "Connection strings: rowhouse account show NAME --keys")?;
        }
        if !self.notes.is_empty() {
            writeln!(text)?;
        }
        for note in &self.notes {
            writeln!(text, "Note: {note}")?;
        }
        writeln!(text)?;
        writeln!(text, "Ready. Ctrl-C stops.")?;
        for line in text.lines() {
            if line.is_empty() { writeln!(f)? } else { writeln!(f, "  {line}")? }
        }
        Ok(())
    }
}

/// What stands behind the URL by which a client on this machine reaches a listener.
fn others(everywhere: bool) -> &'static str {
    if everywhere { ", and every other address of this machine" } else { "" }
}

pub(crate) fn connection_string(table: &str, queue: &str) -> String {
    let scheme = table.split_once("://").map_or("http", |(scheme, _)| scheme);
    format!(
        "DefaultEndpointsProtocol={scheme};AccountName={DEVELOPMENT_ACCOUNT};\
         AccountKey={DEVELOPMENT_KEY};QueueEndpoint={queue}/{DEVELOPMENT_ACCOUNT};\
         TableEndpoint={table}/{DEVELOPMENT_ACCOUNT};"
    )
}

/// The URL by which a client on this machine reaches a listener.
pub(crate) fn url(address: SocketAddr, tls: bool) -> String {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    let scheme = if tls { "https" } else { "http" };
    format!("{scheme}://{}", SocketAddr::new(ip, address.port()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounts::Known;
    use crate::database::DatabaseAddress;

    #[test]
    fn urls_can_be_used() {
        let cases = [
            ("127.0.0.1:10002", false, "http://127.0.0.1:10002"),
            ("0.0.0.0:1", true, "https://127.0.0.1:1"),
            ("[::]:1", false, "http://[::1]:1"),
            ("192.0.2.1:1", false, "http://192.0.2.1:1"),
        ];
        for (address, tls, expected) in cases {
            assert_eq!(url(address.parse().unwrap(), tls), expected);
        }
    }

    #[test]
    fn the_banner_tells_what_to_paste() {
        let started = Started {
            table: "http://127.0.0.1:10002".into(),
            queue: "http://127.0.0.1:10001".into(),
            admin: "http://127.0.0.1:10003".into(),
            served_everywhere: false,
            admin_everywhere: false,
            data: Data::Directory("rowhouse-data".into()),
            changes: None,
            token: "rowhouse-data/admin-token".into(),
            trust: None,
            known: Known { development_key: true, accounts: 1, ..Known::default() },
            strict: false,
        };
        let mut banner = Banner { started, notes: vec![], bold: false };
        let expected = format!(
            "  Rowhouse {}

  Table   http://127.0.0.1:10002
  Queue   http://127.0.0.1:10001
  Admin   http://127.0.0.1:10003   token in rowhouse-data/admin-token
  Data    rowhouse-data

  Connection string of the development account:
  DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;AccountKey={DEVELOPMENT_KEY};\
QueueEndpoint=http://127.0.0.1:10001/devstoreaccount1;TableEndpoint=http://127.0.0.1:10002/devstoreaccount1;

  Ready. Ctrl-C stops.
",
            crate::VERSION
        );
        assert_eq!(banner.to_string(), expected);

        let everywhere = ", and every other address of this machine";
        banner.started.served_everywhere = true;
        for line in ["Table   http://127.0.0.1:10002", "Queue   http://127.0.0.1:10001"] {
            assert!(banner.to_string().contains(&format!("{line}{everywhere}\n")), "{banner}");
        }
        banner.started.admin_everywhere = true;
        let line = format!("Admin   http://127.0.0.1:10003{everywhere}   token in rowhouse-data");
        assert!(banner.to_string().contains(&line), "{banner}");

        banner.started.changes = Some("kept for 7 days".into());
        assert!(banner.to_string().contains("  Changes kept for 7 days\n"), "{banner}");
        banner.started.data = Data::Nowhere;
        banner.started.known = Known::default();
        banner.notes.push("be careful".into());
        let text = banner.to_string();
        for part in ["nothing is kept", "rowhouse account create NAME", "Note: be careful"] {
            assert!(text.contains(part), "{text}");
        }
        // The development account, with a key of its own.
        banner.started.known.accounts = 1;
        assert!(banner.to_string().contains("rowhouse account show NAME --keys"), "{banner}");

        let address: DatabaseAddress = "postgres://ann:secret@db/shop".parse().unwrap();
        banner.started.data = Data::Database(address.clone());
        assert!(banner.to_string().contains("Data    PostgreSQL at db:5432/shop\n"), "{banner}");
        banner.started.data = Data::LaxDatabase(address);
        let text = banner.to_string();
        assert!(text.contains("PostgreSQL at db:5432/shop: a crash of the database"), "{text}");
        assert!(!text.contains("secret"), "{text}");
    }
}
