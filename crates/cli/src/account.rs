//! `rowhouse account`: accounts of a running server, through its admin API.

use crate::admin_client::{AdminClient, AdminOptions};
use crate::{Failure, output};
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::{BufRead as _, IsTerminal as _};

/// Manage the accounts of a running server.
///
/// Without TLS the server must run on this machine; '--admin https://...' names another. The command reads the
/// admin token from the server's data directory, or from --admin-token-file.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, mut_args(|argument| argument.hide_env_values(true)))]
pub(crate) struct AccountCommand {
    #[command(flatten)]
    options: AdminOptions,

    #[command(subcommand)]
    action: Action,
}

const EXAMPLES: &str = "Examples:
  rowhouse account create warehouse
  rowhouse account list --json
  rowhouse account rotate warehouse --slot 1
  rowhouse account limits warehouse --tables 500 --queues default";

#[derive(Debug, Subcommand)]
enum Action {
    /// List all accounts.
    List,
    /// Create an account with two new keys.
    Create {
        /// 3 to 24 lower-case letters and digits.
        name: String,
        /// Use this key, at least 32 bytes in Base64, instead of a new one. Give it twice: for slot 1 and slot 2.
        #[arg(long = "key", value_name = "BASE64")]
        keys: Vec<String>,
    },
    /// Show an account.
    Show {
        /// Its name.
        name: String,
        /// Show its keys and its connection string too.
        #[arg(long)]
        keys: bool,
    },
    /// Replace one of the two keys by a new one. The other stays valid.
    Rotate {
        /// Name of the account.
        name: String,
        /// Which key.
        #[arg(long, value_parser = clap::value_parser!(u8).range(1..=2))]
        slot: u8,
        /// Use this key, at least 32 bytes in Base64, instead of a new one.
        #[arg(long, value_name = "BASE64")]
        key: Option<String>,
    },
    /// Show or change how many tables and queues an account may have. Those that are there stay.
    Limits {
        /// Name of the account.
        name: String,
        /// Most tables: a number, or 'default' for what the server allows every account.
        #[arg(long, value_name = "N", value_parser = limit)]
        tables: Option<Limit>,
        /// Most queues.
        #[arg(long, value_name = "N", value_parser = limit)]
        queues: Option<Limit>,
    },
    /// Seal the keys of all accounts with the first key of the server's master key file. Can be interrupted and repeated.
    Reseal,
    /// Remove an account with all its tables and queues.
    Remove {
        /// Its name.
        name: String,
        /// Do not ask.
        #[arg(long)]
        yes: bool,
    },
}

/// A limit of an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Limit {
    /// What the server allows every account.
    Default,
    Own(u64),
}

fn limit(text: &str) -> Result<Limit, String> {
    match text {
        "default" => Ok(Limit::Default),
        number => {
            number.parse().map(Limit::Own).map_err(|_| "must be a number, or 'default'".to_owned())
        }
    }
}

impl Limit {
    fn json(self) -> Value {
        match self {
            Self::Default => Value::Null,
            Self::Own(number) => json!(number),
        }
    }
}

impl AccountCommand {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let client = self.options.client()?;
        if let Action::Remove { name, yes: false } = &self.action {
            confirm(name)?;
        }
        let answer = ask(&client, &self.action)?;
        let text =
            if self.options.json { format!("{answer}\n") } else { tell(&self.action, &answer) };
        output::print(&text);
        Ok(())
    }
}

fn ask(client: &AdminClient, action: &Action) -> Result<Value, Failure> {
    match action {
        Action::List => client.send("GET", "/v1/accounts", None),
        Action::Create { name, keys } => {
            let body = match keys.as_slice() {
                [] => json!({ "name": name }),
                [first, second] => json!({ "name": name, "keys": [first, second] }),
                _ => return Err("an account has two keys: give --key twice, or not at all".into()),
            };
            client.send("POST", "/v1/accounts", Some(&body))
        }
        Action::Show { name, keys: false } => client.send("GET", &path(name, "")?, None),
        Action::Show { name, keys: true } => client.send("GET", &path(name, "/keys")?, None),
        Action::Rotate { name, slot, key } => {
            let body = key.as_ref().map(|key| json!({ "key": key }));
            let path = path(name, &format!("/keys/{slot}/rotate"))?;
            client.send("POST", &path, body.as_ref())
        }
        Action::Limits { name, tables: None, queues: None } => {
            client.send("GET", &path(name, "/limits")?, None)
        }
        Action::Limits { name, tables, queues } => {
            let mut body = serde_json::Map::new();
            for (kind, limit) in [("tables", tables), ("queues", queues)] {
                if let Some(limit) = limit {
                    body.insert(kind.to_owned(), limit.json());
                }
            }
            client.send("PATCH", &path(name, "/limits")?, Some(&Value::Object(body)))
        }
        Action::Reseal => {
            let mut resealed = 0;
            loop {
                let answer = client.send("POST", "/v1/master-key/reseal", None)?;
                let (now, left) = (&answer["resealed"], &answer["remaining"]);
                resealed += now.as_u64().unwrap_or(0);
                if left.as_u64().unwrap_or(0) == 0 {
                    return Ok(json!({ "resealed": resealed }));
                }
            }
        }
        Action::Remove { name, .. } => {
            client.send("DELETE", &path(name, "")?, None)?;
            Ok(json!({ "removed": name }))
        }
    }
}

/// A name that is none would become another path.
fn path(name: &str, rest: &str) -> Result<String, Failure> {
    if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return Err(format!(
            "{name:?} is not the name of an account: those are letters and digits"
        ));
    }
    Ok(format!("/v1/accounts/{name}{rest}"))
}

/// What people read.
fn tell(action: &Action, answer: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    match action {
        Action::List => {
            let accounts = answer["accounts"].as_array().map_or(&[][..], Vec::as_slice);
            if accounts.is_empty() {
                return "There is no account yet: rowhouse account create NAME\n".to_owned();
            }
            let rows: Vec<Vec<String>> = accounts
                .iter()
                .map(|account| {
                    let keys = key_count(&account["key_count"]);
                    vec![text(&account["name"]), text(&account["created"]), keys]
                })
                .collect();
            output::table(&["NAME", "CREATED", "KEYS"], &rows)
        }
        Action::Create { .. } | Action::Show { .. } => account(answer),
        Action::Rotate { name, slot, .. } => {
            format!("Key {slot} of {name} is now\n{}\n", text(&answer["key"]))
        }
        Action::Limits { .. } => {
            let line = |kind: &str| {
                let limit = answer[kind]["limit"].as_u64().unwrap_or(0);
                let default = answer[kind]["default"].as_bool() == Some(true);
                format!("{limit}{}", if default { " (default of the server)" } else { "" })
            };
            format!("Tables    {}\nQueues    {}\n", line("tables"), line("queues"))
        }
        Action::Reseal => {
            let accounts = match answer["resealed"].as_u64() {
                Some(1) => "1 account".to_owned(),
                number => format!("{} accounts", number.unwrap_or(0)),
            };
            format!("Sealed the keys of {accounts} anew: all are under the first master key.\n")
        }
        Action::Remove { name, .. } => format!("Removed {name} with all its tables and queues.\n"),
    }
}

/// Without any, nobody can sign for the account. A server of before does not tell.
fn key_count(count: &Value) -> String {
    match count.as_u64() {
        Some(0) => "none".to_owned(),
        Some(count) => count.to_string(),
        None => "?".to_owned(),
    }
}

fn account(answer: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (name, endpoint) = (text(&answer["name"]), text(&answer["endpoint"]));
    let mut out = format!("Name      {name}\nCreated   {}\n", text(&answer["created"]));
    if let Some(keys @ [first, second]) = answer["keys"].as_array().map(Vec::as_slice) {
        let shown = |key: &Value, slot: u8| match key.as_str() {
            Some(key) => key.to_owned(),
            None => format!("none: 'rowhouse account rotate {name} --slot {slot}' makes one"),
        };
        // Writing to a string cannot fail.
        let _ = write!(out, "Key 1     {}\nKey 2     {}\n", shown(first, 1), shown(second, 2));
        let Some(key) = keys.iter().find_map(Value::as_str) else { return out };
        let scheme = endpoint.split_once("://").map_or("http", |(scheme, _)| scheme);
        // A server of before had none.
        let queues = answer["queue_endpoint"].as_str();
        let queues = queues.map(|url| format!("QueueEndpoint={url};")).unwrap_or_default();
        let _ = write!(
            out,
            "\nConnection string:\n\
             DefaultEndpointsProtocol={scheme};AccountName={name};AccountKey={key};\
             {queues}TableEndpoint={endpoint};\n"
        );
    }
    out
}

/// All data of the account go with it, so a person is asked and a program must say that it means
/// it.
fn confirm(name: &str) -> Result<(), Failure> {
    let input = std::io::stdin();
    if !input.is_terminal() {
        return Err(format!(
            "removing {name} removes all its tables and queues: add --yes if that is what you want"
        ));
    }
    output::print(&format!("Remove {name} with all its tables and queues? Type its name: "));
    let mut line = String::new();
    let read = input.lock().read_line(&mut line);
    if read.is_ok() && line.trim() == name { Ok(()) } else { Err("nothing was removed".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_get_tables_and_connection_strings() {
        let answer = json!({ "accounts": [
            { "name": "bakery", "created": "today", "key_count": 2 },
            { "name": "shop", "created": "today", "key_count": 0 },
            { "name": "old", "created": "before" },
        ] });
        let expected = "NAME     CREATED   KEYS\nbakery   today     2\nshop     today     none\nold      before    ?\n";
        assert_eq!(tell(&Action::List, &answer), expected);
        assert!(tell(&Action::List, &json!({ "accounts": [] })).contains("account create"));
        let answer = json!({
            "name": "shop",
            "created": "today",
            "keys": ["YQ==", "Yg=="],
            "endpoint": "https://127.0.0.1:10002/shop",
            "queue_endpoint": "https://127.0.0.1:10001/shop",
        });
        let show = Action::Show { name: "shop".into(), keys: true };
        let expected = "Name      shop\nCreated   today\nKey 1     YQ==\nKey 2     Yg==\n\n\
            Connection string:\nDefaultEndpointsProtocol=https;AccountName=shop;AccountKey=YQ==;\
            QueueEndpoint=https://127.0.0.1:10001/shop;TableEndpoint=https://127.0.0.1:10002/shop;\n";
        assert_eq!(tell(&show, &answer), expected);
        let with = |keys: Value| {
            let mut answer = answer.clone();
            answer["keys"] = keys;
            tell(&show, &answer)
        };
        let none = with(json!([null, null]));
        assert!(
            none.ends_with("\nKey 2     none: 'rowhouse account rotate shop --slot 2' makes one\n"),
            "{none}"
        );
        assert!(!none.contains("AccountKey"), "{none}");
        assert!(with(json!([null, "Yg=="])).contains(";AccountKey=Yg==;"));
    }

    #[test]
    fn limits_are_numbers_or_the_default() {
        assert_eq!(limit("0"), Ok(Limit::Own(0)));
        assert_eq!(limit("default"), Ok(Limit::Default));
        for bad in ["", "-1", "1.5", "many", "18446744073709551616"] {
            assert!(limit(bad).is_err(), "{bad}");
        }
        let action = Action::Limits { name: "shop".into(), tables: None, queues: None };
        let answer = json!({
            "name": "shop",
            "tables": { "limit": 7, "default": false },
            "queues": { "limit": 20000, "default": true },
        });
        let expected = "Tables    7\nQueues    20000 (default of the server)\n";
        assert_eq!(tell(&action, &answer), expected);
    }

    #[test]
    fn a_name_cannot_become_another_path() {
        assert_eq!(path("shop", "/keys"), Ok("/v1/accounts/shop/keys".to_owned()));
        for name in ["", "a/b", "..", "a b", "a%2f"] {
            assert!(path(name, "").is_err(), "{name}");
        }
    }
}
