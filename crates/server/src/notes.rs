//! What whoever runs the server should know: shown at the start, and logged as warnings.

use crate::accounts::Known;
use crate::config::Config;
use crate::database::DatabaseAddress;
use crate::master_key::MasterKey;
use crate::shell::quoted;
use rowhouse_types::{AccountName, Network};

/// Most accounts that a note names.
const NAMES_MAX: usize = 3;

/// Each is one sentence, and names the option or the command that helps.
pub(crate) fn notes(config: &Config, known: &Known) -> Vec<String> {
    let mut notes = Vec::new();
    let on_network = !config.host.is_loopback();
    if known.development_key && on_network {
        notes.push(
            "everybody who can reach this server can read and change the development account."
                .to_owned(),
        );
    }
    if on_network && !config.uses_tls() {
        notes.push("tables and queues are on the network without TLS.".to_owned());
    }
    if config.trusted_proxies.contains(&Network::EVERY_V4) {
        notes.push(
            "every address is believed as a proxy, so that clients can pass for others: name the \
             proxies with --trusted-proxies."
                .to_owned(),
        );
    }
    for name in &config.service_links {
        notes.push(format!(
            "{name} is ignored, because Kubernetes set it to the address of a service: \
             enableServiceLinks: false in the pod removes it."
        ));
    }
    let databases = config.store.iter().chain(&config.store_replica);
    notes.extend(databases.filter_map(DatabaseAddress::tls_note));
    notes.extend(without_keys(config, known));
    notes.extend(unsealed(config, known));
    notes
}

/// Accounts of which a restore has brought everything but the keys.
fn without_keys(config: &Config, known: &Known) -> Option<String> {
    let accounts = known.without_keys.as_slice();
    let (has, it) = match accounts {
        [] => return None,
        [_] => ("has", "it"),
        _ => ("have", "them"),
    };
    let (who, rotate) = (named(accounts), rotate(config, accounts));
    Some(format!("{who} {has} no keys, so nobody can sign for {it}: {rotate}"))
}

/// Keys that whoever has the data can read.
fn unsealed(config: &Config, known: &Known) -> Option<String> {
    let place = config.data_place();
    let accounts = &known.unsealed;
    match (&config.master_key, accounts.as_slice()) {
        (MasterKey::None, []) if known.accounts == 0 => Some(format!(
            "account keys will be stored unsealed in {place}; --master-key-file seals them."
        )),
        (_, []) => None,
        (MasterKey::None, _) => Some(format!(
            "account keys are stored unsealed in {place}; start with --master-key-file, then rotate \
             both keys of each account."
        )),
        (_, accounts) => {
            let (whose, rotate) = (named(accounts), rotate(config, accounts));
            Some(format!(
                "the keys of {whose} still lie unsealed in {place}; this seals them: {rotate}"
            ))
        }
    }
}

/// One account by its name, several by their number and the first names.
fn named(accounts: &[AccountName]) -> String {
    if let [account] = accounts {
        return account.to_string();
    }
    let names: Vec<_> = accounts.iter().take(NAMES_MAX).map(AccountName::as_str).collect();
    let more = if accounts.len() > NAMES_MAX { ", ..." } else { "" };
    format!("{} accounts ({}{more})", accounts.len(), names.join(", "))
}

/// The command that replaces a key, as it can be typed where the server was started.
fn rotate(config: &Config, accounts: &[AccountName]) -> String {
    let name = if let [account] = accounts { account.as_str() } else { "NAME" };
    let elsewhere = config.data != Config::default().data
        && config.admin_token_file.is_none()
        && !config.ephemeral;
    let data = if elsewhere { format!(" --data {}", quoted(&config.data)) } else { String::new() };
    format!("rowhouse account rotate {name} --slot 1{data}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<AccountName> {
        names.iter().map(|name| name.parse().unwrap()).collect()
    }

    fn told(known: &Known, change: fn(&mut Config)) -> Vec<String> {
        let mut config = Config::default();
        change(&mut config);
        notes(&config, known)
    }

    #[test]
    fn whoever_runs_the_server_is_told_of_dangers() {
        let laptop = Known { development_key: true, accounts: 1, ..Known::default() };
        let open: fn(&mut Config) = |config| config.host = "0.0.0.0".parse().unwrap();
        assert_eq!(told(&laptop, |_| {}), [""; 0]);
        assert_eq!(told(&laptop, open).len(), 2);
    }

    #[test]
    fn believing_everybody_is_told() {
        let laptop = Known { development_key: true, accounts: 1, ..Known::default() };
        let notes = told(&laptop, |config| {
            config.trusted_proxies = vec![Network::EVERY_V4, Network::EVERY_V6];
        });
        assert!(matches!(&notes[..], [note] if note.contains("--trusted-proxies")), "{notes:?}");
        let some: fn(&mut Config) = |config| config.trusted_proxies = vec!["::1".parse().unwrap()];
        assert_eq!(told(&laptop, some), [""; 0]);
    }

    #[test]
    fn ignored_variables_are_told() {
        let laptop = Known { development_key: true, accounts: 1, ..Known::default() };
        let notes =
            told(&laptop, |config| config.service_links = vec!["ROWHOUSE_QUEUE_PORT".into()]);
        assert!(
            matches!(&notes[..], [note] if note.starts_with("ROWHOUSE_QUEUE_PORT")),
            "{notes:?}"
        );
    }

    #[test]
    fn a_database_that_anybody_may_pass_for_is_told() {
        let known = Known { accounts: 1, ..Known::default() };
        let told = |url: &str| {
            let config = Config { store: Some(url.parse().unwrap()), ..Config::default() };
            notes(&config, &known)
        };
        for (url, expected) in [
            ("postgres://db/shop", "sslmode=verify-full"),
            ("postgres://db/shop?sslmode=prefer", "sslmode=verify-full"),
            ("postgres://db/shop?sslmode=disable", "not encrypted"),
        ] {
            let notes = told(url);
            assert!(matches!(&notes[..], [note] if note.contains(expected)), "{url}: {notes:?}");
        }
        for url in [
            "postgres://localhost/shop",
            "postgres://127.0.0.1/shop?sslmode=disable",
            "postgres://db/shop?sslmode=require",
            "postgres://db/shop?sslmode=verify-ca",
            "postgres://db/shop?sslmode=verify-full",
        ] {
            assert_eq!(told(url), [""; 0], "{url}");
        }
    }

    #[test]
    fn unsealed_keys_are_told_with_what_seals_them() {
        let sealing: fn(&mut Config) =
            |config| config.master_key = MasterKey::Text("secret".to_owned());
        let known = |accounts: &[&str]| Known {
            accounts: accounts.len(),
            unsealed: names(accounts),
            ..Known::default()
        };
        let none = Known { accounts: 2, ..Known::default() };
        assert_eq!(told(&none, |_| {}), [""; 0]);
        assert_eq!(told(&none, sealing), [""; 0]);

        assert_eq!(
            told(&known(&[]), |_| {}),
            [
                "account keys will be stored unsealed in the data directory; --master-key-file seals \
              them."
            ]
        );
        assert_eq!(told(&known(&[]), sealing), [""; 0]);

        assert_eq!(
            told(&known(&["shop"]), |config| {
                config.store = Some("postgres://ann@localhost/shop".parse().unwrap());
            }),
            [
                "account keys are stored unsealed in the database; start with --master-key-file, then \
              rotate both keys of each account."
            ]
        );
        assert_eq!(
            told(&known(&["shop"]), sealing),
            [
                "the keys of shop still lie unsealed in the data directory; this seals them: rowhouse \
              account rotate shop --slot 1"
            ]
        );
        assert_eq!(
            told(&known(&["bakery", "shop"]), sealing),
            [
                "the keys of 2 accounts (bakery, shop) still lie unsealed in the data directory; this \
              seals them: rowhouse account rotate NAME --slot 1"
            ]
        );
        let many = told(&known(&["aaa", "bbb", "ccc", "ddd"]), sealing);
        assert!(many[0].starts_with("the keys of 4 accounts (aaa, bbb, ccc, ...) "), "{many:?}");
    }

    #[test]
    fn accounts_without_keys_are_told_with_what_makes_some() {
        let known = |accounts: &[&str]| Known {
            accounts: accounts.len(),
            without_keys: names(accounts),
            ..Known::default()
        };
        assert_eq!(
            told(&known(&["shop"]), |config| config.data = "restored".into()),
            ["shop has no keys, so nobody can sign for it: rowhouse account rotate shop --slot 1 \
              --data restored"]
        );
        assert_eq!(
            told(&known(&["bakery", "shop"]), |_| {}),
            ["2 accounts (bakery, shop) have no keys, so nobody can sign for them: rowhouse \
              account rotate NAME --slot 1"]
        );
    }

    #[test]
    fn a_command_finds_the_token_of_the_server() {
        let mut config = Config { data: "a b".into(), ..Config::default() };
        let shop = names(&["shop"]);
        assert_eq!(rotate(&config, &shop), "rowhouse account rotate shop --slot 1 --data 'a b'");
        config.admin_token_file = Some("tokens".into());
        assert_eq!(rotate(&config, &shop), "rowhouse account rotate shop --slot 1");
    }
}
