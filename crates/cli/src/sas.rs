//! `rowhouse sas`: shared access signatures, made and explained.

use crate::service::Service;
use crate::{Failure, output};
use clap::{Args, Subcommand};
use rowhouse_client::Target;
use rowhouse_client::sas::{self, Bound, Explained, Kind, Subject, Terms, Verdict};
use rowhouse_types::Timestamp;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Make and explain shared access signatures (SAS): URLs that allow something for a time.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SasCommand {
    #[command(subcommand)]
    action: Action,
}

const EXAMPLES: &str = "Examples:
  rowhouse sas create table People --permissions r --expires 7d
  rowhouse sas create table Orders --permissions raud --from-partition a --to-partition b
  rowhouse sas create queue jobs --permissions ap --expires 2030-01-01
  rowhouse sas create account --services tq --types sco --permissions rl --https-only
  rowhouse sas explain 'http://127.0.0.1:10002/devstoreaccount1/People?sv=...&sig=...'";

#[derive(Debug, Subcommand)]
#[expect(clippy::large_enum_variant, reason = "there is only one of it")]
enum Action {
    #[command(subcommand)]
    Create(Create),
    Explain(Explain),
}

/// Make a signature with a key of the account. Nothing is asked of the server, which keeps no list of signatures: one
/// ends when it expires, when its stored policy is removed, or when the key is rotated.
#[derive(Debug, Subcommand)]
enum Create {
    /// A signature for a table, or for a range of its keys.
    Table(OfTable),
    /// A signature for a queue.
    Queue(OfQueue),
    /// A signature for all tables, all queues, or both.
    Account(OfAccount),
}

#[derive(Debug, Args)]
#[command(mut_args(|argument| argument.hide_env_values(true)))]
struct OfTable {
    /// The table.
    table: String,

    /// What it allows: letters of raud for read, add, update and delete.
    #[arg(long, value_name = "LETTERS")]
    permissions: Option<String>,

    /// The first PartitionKey.
    #[arg(long, value_name = "KEY")]
    from_partition: Option<String>,

    /// The first RowKey in it.
    #[arg(long, value_name = "KEY", requires = "from_partition")]
    from_row: Option<String>,

    /// The last PartitionKey.
    #[arg(long, value_name = "KEY")]
    to_partition: Option<String>,

    /// The last RowKey in it.
    #[arg(long, value_name = "KEY", requires = "to_partition")]
    to_row: Option<String>,

    /// A stored access policy of the table, which says what is left out here.
    #[arg(long, value_name = "ID")]
    policy: Option<String>,

    #[command(flatten)]
    limits: Limits,
}

#[derive(Debug, Args)]
#[command(mut_args(|argument| argument.hide_env_values(true)))]
struct OfQueue {
    /// The queue.
    queue: String,

    /// What it allows: letters of raup for peek (r), put (a), update (u), and take and delete (p).
    #[arg(long, value_name = "LETTERS")]
    permissions: Option<String>,

    /// A stored access policy of the queue, which says what is left out here.
    #[arg(long, value_name = "ID")]
    policy: Option<String>,

    #[command(flatten)]
    limits: Limits,
}

#[derive(Debug, Args)]
#[command(mut_args(|argument| argument.hide_env_values(true)))]
struct OfAccount {
    /// Which services: t for tables, q for queues, or both.
    #[arg(long, value_name = "LETTERS", default_value = "tq")]
    services: String,

    /// Which kinds of resource: s for the service, c for tables and queues, o for entities and messages.
    #[arg(long, value_name = "LETTERS", default_value = "sco")]
    types: String,

    /// What it allows: letters of rwdlacup for read, write, delete, list, add, create, update and process.
    #[arg(long, value_name = "LETTERS")]
    permissions: String,

    #[command(flatten)]
    limits: Limits,
}

/// When, from where and over what.
#[derive(Debug, Args)]
struct Limits {
    /// Until when: a time from now such as 12h or 7d, or a date such as 2030-01-31 or 2030-01-31T12:00:00Z, in UTC.
    /// Default: one hour, unless a policy says it.
    #[arg(long, value_name = "WHEN")]
    expires: Option<String>,

    /// From when on; written the same way. Default: at once.
    #[arg(long, value_name = "WHEN")]
    starts: Option<String>,

    /// Only from this IPv4 address, or from a range such as 192.0.2.1-192.0.2.9.
    #[arg(long, value_name = "ADDRESS")]
    ip: Option<String>,

    /// Only over TLS.
    #[arg(long)]
    https_only: bool,

    /// Print JSON.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    service: Service,
}

/// Explain a signature: what it is for, what it allows and until when, and whether the key made it.
#[derive(Debug, Args)]
#[command(mut_args(|argument| argument.hide_env_values(true)))]
struct Explain {
    /// A URL with a signature, or the signature alone. In quotes, since it holds &.
    #[arg(value_name = "SAS")]
    signature: String,

    /// Print JSON.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    service: Service,
}

impl SasCommand {
    pub(crate) fn run(self) -> Result<(), Failure> {
        match self.action {
            Action::Create(Create::Table(table)) => table.run(),
            Action::Create(Create::Queue(queue)) => queue.run(),
            Action::Create(Create::Account(account)) => account.run(),
            Action::Explain(explain) => explain.run(),
        }
    }
}

impl OfTable {
    fn run(self) -> Result<(), Failure> {
        crate::transfer::check_table(&self.table)?;
        let target = self.limits.service.target()?;
        let from = Bound { partition: self.from_partition, row: self.from_row };
        let to = Bound { partition: self.to_partition, row: self.to_row };
        check_range(&from, &to)?;
        let subject = Subject::Table { table: self.table, from, to };
        self.limits.create(&target, &subject, ("raud", self.permissions), self.policy)
    }
}

impl OfQueue {
    fn run(self) -> Result<(), Failure> {
        crate::queue::check_queue(&self.queue)?;
        let target = self.limits.service.queue_target()?;
        let subject = Subject::Queue(self.queue);
        self.limits.create(&target, &subject, ("raup", self.permissions), self.policy)
    }
}

impl OfAccount {
    fn run(self) -> Result<(), Failure> {
        // In the order in which the protocol writes them.
        let services = ordered(&self.services, "qt", "--services")?;
        let types = ordered(&self.types, "sco", "--types")?;
        let target = if services == "q" {
            self.limits.service.queue_target()?
        } else {
            self.limits.service.target()?
        };
        let subject = Subject::Account { services, types };
        self.limits.create(&target, &subject, ("rwdlacup", Some(self.permissions)), None)
    }
}

impl Limits {
    fn create(
        &self,
        target: &Target,
        subject: &Subject,
        (letters, permissions): (&str, Option<String>),
        policy: Option<String>,
    ) -> Result<(), Failure> {
        if permissions.is_none() && policy.is_none() {
            return Err(format!("say what it allows with --permissions, letters of {letters}"));
        }
        if policy.as_deref() == Some("") {
            return Err(
                "--policy is empty: name a stored access policy, or leave --policy out".to_owned()
            );
        }
        let permissions = permissions.map(|given| ordered(&given, letters, "--permissions"));
        let now = now();
        let expiry = match (&self.expires, &policy) {
            (Some(text), _) => Some(when(text, now, "--expires")?),
            (None, Some(_)) => None,
            (None, None) => Some(now.plus_seconds(3600)),
        };
        if expiry.is_some_and(|expiry| expiry <= now) {
            return Err("--expires is in the past".to_owned());
        }
        let start = self.starts.as_deref().map(|text| when(text, now, "--starts")).transpose()?;
        if let (Some(start), Some(expiry)) = (start, expiry)
            && expiry <= start
        {
            return Err("--starts is after --expires".to_owned());
        }
        if let Some(ip) = &self.ip {
            check_addresses(ip)?;
        }
        let written = |time: Option<Timestamp>| time.map(seconds).unwrap_or_default();
        let terms = Terms {
            permissions: permissions.transpose()?.unwrap_or_default(),
            start: written(start),
            expiry: written(expiry),
            policy: policy.unwrap_or_default(),
            ip: self.ip.clone().unwrap_or_default(),
            protocol: if self.https_only { "https".to_owned() } else { String::new() },
        };
        let made = sas::create(target, subject, &terms).map_err(|error| error.to_string())?;
        output::print(&if self.json {
            let until = (!terms.expiry.is_empty()).then_some(&terms.expiry);
            format!(
                "{}\n",
                serde_json::json!({ "token": made.token, "url": made.url, "expires": until })
            )
        } else {
            format!("{}\n", made.url)
        });
        Ok(())
    }
}

/// The letters in the order of the protocol, each once.
fn ordered(given: &str, letters: &str, option: &str) -> Result<String, Failure> {
    let unknown = given.chars().find(|letter| !letters.contains(*letter));
    match unknown {
        Some(letter) => {
            Err(format!("{option} takes letters of {letters}, which {letter:?} is not"))
        }
        None if given.is_empty() => Err(format!("{option} takes letters of {letters}")),
        None => Ok(letters.chars().filter(|letter| given.contains(*letter)).collect()),
    }
}

/// An empty key would be signed as no limit, and nobody could use a range that ends before it begins.
fn check_range(from: &Bound, to: &Bound) -> Result<(), Failure> {
    for (bound, end) in [(from, "from"), (to, "to")] {
        if bound.row.as_deref() == Some("") {
            return Err(format!("--{end}-row is empty, which limits nothing: leave it out"));
        }
        // Next to a RowKey the empty PartitionKey is a key.
        if bound.partition.as_deref() == Some("") && bound.row.is_none() {
            return Err(format!("--{end}-partition is empty, which limits nothing: leave it out"));
        }
    }
    let reversed = |option: &str, first: &str, last: &str| {
        Err(format!(
            "--from-{option} {first:?} is after --to-{option} {last:?}, so the range has no keys: \
             swap them"
        ))
    };
    if let (Some(first), Some(last)) = (&from.partition, &to.partition) {
        if last < first {
            return reversed("partition", first, last);
        }
        if let (Some(first_row), Some(last_row)) = (&from.row, &to.row)
            && first == last
            && last_row < first_row
        {
            return reversed("row", first_row, last_row);
        }
    }
    Ok(())
}

fn check_addresses(text: &str) -> Result<(), Failure> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let parsed = |text: &str| text.parse::<std::net::Ipv4Addr>();
    match (parsed(first), parsed(last)) {
        (Ok(first), Ok(last)) if first <= last => Ok(()),
        _ => Err("--ip takes an IPv4 address or a range such as 192.0.2.1-192.0.2.9".to_owned()),
    }
}

fn now() -> Timestamp {
    Timestamp::from_unix(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// `2030-01-31T12:00:00Z`
fn seconds(time: Timestamp) -> String {
    format!("{}Z", &time.iso7()[..19])
}

/// A time from now, or a date.
fn when(text: &str, now: Timestamp, option: &str) -> Result<Timestamp, Failure> {
    if let Ok(time) = duration(text) {
        return Ok(now.plus_seconds(time.as_secs()));
    }
    Timestamp::parse_date_or_iso(text).map_err(|_| {
        format!("{option} takes a time from now such as 12h or 7d, or a date such as 2030-01-31T12:00:00Z")
    })
}

/// `30d`, `12h`, `90m`, `45s`
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || "must be a time such as 30d, 12h, 90m or 45s".to_owned();
    let unit = match text.chars().next_back().ok_or_else(wrong)? {
        'd' => 86_400,
        'h' => 3_600,
        'm' => 60,
        's' => 1,
        _ => return Err(wrong()),
    };
    let number: u32 = text[..text.len() - 1].parse().map_err(|_| wrong())?;
    Ok(Duration::from_secs(u64::from(number) * unit))
}

impl Explain {
    fn run(self) -> Result<(), Failure> {
        let target = self.service.target()?;
        let found =
            sas::explain(&self.signature, Some(&target)).map_err(|error| error.to_string())?;
        let now = now();
        output::print(&if self.json {
            format!("{:#}\n", as_json(&found, now))
        } else {
            as_text(&found, now)
        });
        Ok(())
    }
}

/// Whether a signature holds at a time, by its own start and expiry.
fn holds(found: &Explained, now: Timestamp) -> Option<&'static str> {
    let time = |name| Timestamp::parse_date_or_iso(found.get(name)).ok();
    if time("se").is_some_and(|expiry| expiry <= now) {
        return Some("expired");
    }
    time("st").is_some_and(|start| now < start).then_some("not yet valid")
}

fn as_json(found: &Explained, now: Timestamp) -> serde_json::Value {
    let given = |name: &str| Some(found.get(name)).filter(|text| !text.is_empty());
    let (kind, name) = match &found.kind {
        Kind::Table(name) => ("table", Some(name.as_str())),
        Kind::Queue(name) => ("queue", name.as_deref()),
        Kind::Account(..) => ("account", None),
    };
    let bound = |bound: Option<Bound>| {
        bound.map(|key| serde_json::json!({ "partition": key.partition, "row": key.row }))
    };
    serde_json::json!({
        "kind": kind,
        "name": name,
        "account": found.account,
        "version": given("sv"),
        "permissions": given("sp"),
        "allows": allowed(found),
        "services": given("ss"),
        "types": given("srt"),
        "starts": given("st"),
        "expires": given("se"),
        "policy": given("si"),
        "ip": given("sip"),
        "protocol": given("spr"),
        "from": bound(found.from()),
        "to": bound(found.to()),
        "holds": holds(found, now).is_none(),
        "signature": match found.verdict {
            Verdict::Right => "right",
            Verdict::Wrong => "wrong",
            Verdict::Unchecked => "unchecked",
        },
    })
}

fn as_text(found: &Explained, now: Timestamp) -> String {
    let given = |name: &str| Some(found.get(name)).filter(|text| !text.is_empty());
    let mut lines: Vec<(&str, String)> = Vec::new();
    lines.push((
        "For",
        match &found.kind {
            Kind::Table(name) => format!("the table {name}"),
            Kind::Queue(Some(name)) => format!("the queue {name}"),
            Kind::Queue(None) => "a queue: give the URL to see which".to_owned(),
            Kind::Account(services, types) => {
                format!("{} of the account ({types})", services_in_words(services))
            }
        },
    ));
    lines.push(("Account", found.account.clone().unwrap_or_else(|| "not named".to_owned())));
    let allows = match (allowed(found), given("sp"), given("si")) {
        (words, Some(letters), _) => format!("{} ({letters})", words.join(", ")),
        (_, None, Some(_)) => "what the policy says".to_owned(),
        (_, None, None) => "nothing".to_owned(),
    };
    lines.push(("Allows", allows));
    if let Some(range) = range(found) {
        lines.push(("Keys", range));
    }
    if let Some(start) = given("st") {
        lines.push(("From", start.to_owned()));
    }
    let until = match (given("se"), holds(found, now)) {
        (Some(expiry), None) => format!("{expiry}{}", left(expiry, now)),
        (Some(expiry), Some(what)) => format!("{expiry} ({what})"),
        (None, _) if given("si").is_some() => "what the policy says".to_owned(),
        (None, _) => "never valid: it has no expiry".to_owned(),
    };
    lines.push(("Until", until));
    if let Some(policy) = given("si") {
        lines.push(("Policy", policy.to_owned()));
    }
    lines.push(("Addresses", given("sip").unwrap_or("any").to_owned()));
    let protocol = if given("spr") == Some("https") { "https only" } else { "https and http" };
    lines.push(("Protocol", protocol.to_owned()));
    lines.push(("Version", given("sv").unwrap_or("none").to_owned()));
    let verdict = match found.verdict {
        Verdict::Right => "made with this key of the account",
        Verdict::Wrong => {
            "NOT made with this key: it was changed, or made with another key of the account"
        }
        Verdict::Unchecked => "not checked: give the key of the account with --connection",
    };
    lines.push(("Signature", verdict.to_owned()));
    let text = |(name, value): (&str, String)| {
        format!("{name:10} {}\n", crate::columns::printable(&value))
    };
    lines.into_iter().map(text).collect()
}

fn services_in_words(letters: &str) -> String {
    let words = [('t', "tables"), ('q', "queues"), ('b', "blobs"), ('f', "files")];
    let named = words.iter().filter(|(letter, _)| letters.contains(*letter)).map(|(_, word)| *word);
    named.collect::<Vec<_>>().join(", ")
}

/// What the letters mean for that kind of signature.
fn allowed(found: &Explained) -> Vec<&'static str> {
    let words: &[(char, &str)] = match &found.kind {
        Kind::Table(_) => &[('r', "read"), ('a', "add"), ('u', "update"), ('d', "delete")],
        Kind::Queue(_) => &[('r', "peek"), ('a', "put"), ('u', "update"), ('p', "take and delete")],
        Kind::Account(..) => &[
            ('r', "read"),
            ('w', "write"),
            ('d', "delete"),
            ('l', "list"),
            ('a', "add"),
            ('c', "create"),
            ('u', "update"),
            ('p', "process"),
        ],
    };
    let letters = found.get("sp");
    words.iter().filter(|(letter, _)| letters.contains(*letter)).map(|(_, word)| *word).collect()
}

/// The keys that a table's signature is limited to.
fn range(found: &Explained) -> Option<String> {
    let written = |bound: Bound| {
        let partition = bound.partition.unwrap_or_default();
        let row = bound.row.map(|row| format!(", RowKey {row:?}")).unwrap_or_default();
        format!("PartitionKey {partition:?}{row}")
    };
    match (found.from().map(written), found.to().map(written)) {
        (None, None) => None,
        (Some(from), None) => Some(format!("from {from}")),
        (None, Some(to)) => Some(format!("to {to}")),
        (Some(from), Some(to)) => Some(format!("from {from} to {to}")),
    }
}

/// `, 3 days left`
fn left(expiry: &str, now: Timestamp) -> String {
    let Ok(expiry) = Timestamp::parse_date_or_iso(expiry) else { return String::new() };
    let seconds = expiry.seconds_from(now);
    let (unit, name) = match seconds {
        0..120 => (1, "second"),
        120..7_200 => (60, "minute"),
        7_200..172_800 => (3_600, "hour"),
        _ => (86_400, "day"),
    };
    format!(" ({} left)", output::counted(seconds / unit, name, &format!("{name}s")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        Timestamp::parse_iso(text).unwrap()
    }

    #[test]
    fn letters_are_put_in_order() {
        assert_eq!(ordered("dar", "raud", "--permissions").as_deref(), Ok("rad"));
        assert_eq!(ordered("rr", "raud", "--permissions").as_deref(), Ok("r"));
        assert!(ordered("rx", "raud", "--permissions").unwrap_err().contains("'x'"));
        assert!(ordered("", "raud", "--permissions").is_err());
    }

    #[test]
    fn times() {
        let now = at("2026-01-01T00:00:00Z");
        for (text, expected) in [
            ("2h", "2026-01-01T02:00:00Z"),
            ("2030-01-31", "2030-01-31T00:00:00Z"),
            ("2030-01-31T12:00:00Z", "2030-01-31T12:00:00Z"),
        ] {
            assert_eq!(when(text, now, "--expires").map(seconds).as_deref(), Ok(expected));
        }
        assert!(when("soon", now, "--expires").unwrap_err().starts_with("--expires takes"));
        assert_eq!(left("2026-01-04T00:00:00Z", now), " (3 days left)");
        assert_eq!(left("2026-01-01T00:01:00Z", now), " (60 seconds left)");
    }

    #[test]
    fn ranges_have_keys() {
        let bound = |partition: Option<&str>, row: Option<&str>| Bound {
            partition: partition.map(str::to_owned),
            row: row.map(str::to_owned),
        };
        let none = || bound(None, None);
        let (a, b) = (|| bound(Some("a"), None), || bound(Some("b"), None));
        let row = |row| bound(Some("a"), Some(row));
        for (from, to) in [
            (none(), none()),
            (a(), b()),
            (a(), a()),
            (b(), none()),
            (none(), a()),
            (row("1"), row("1")),
            (row("2"), a()),
            (row("2"), bound(Some("b"), Some("1"))),
            (bound(Some(""), Some("1")), bound(Some(""), Some("2"))),
        ] {
            assert_eq!(check_range(&from, &to), Ok(()), "{from:?} {to:?}");
        }
        for (from, to, expected) in [
            (bound(Some(""), None), none(), "--from-partition is empty"),
            (none(), bound(Some(""), None), "--to-partition is empty"),
            (bound(Some("a"), Some("")), b(), "--from-row is empty"),
            (none(), bound(Some("a"), Some("")), "--to-row is empty"),
            (bound(Some(""), Some("")), none(), "--from-row is empty"),
            (b(), a(), "--from-partition \"b\" is after --to-partition \"a\""),
            (row("2"), row("1"), "--from-row \"2\" is after --to-row \"1\""),
        ] {
            let sentence = check_range(&from, &to).unwrap_err();
            assert!(sentence.starts_with(expected), "{sentence}");
        }
    }

    #[test]
    fn empty_keys_are_explained_as_no_limit() {
        let found = |range: &str| {
            sas::explain(&format!("sv=2019-02-02&tn=People&sig=a{range}"), None).unwrap()
        };
        let now = at("2026-01-01T00:00:00Z");
        let empty = found("&spk=&srk=&epk=&erk=");
        assert_eq!(range(&empty), None);
        let json = as_json(&empty, now);
        assert!(json["from"].is_null() && json["to"].is_null(), "{json}");
        let half = found("&spk=a&srk=&epk=");
        assert_eq!(range(&half).as_deref(), Some("from PartitionKey \"a\""));
        assert!(as_json(&half, now)["from"]["row"].is_null());
    }

    #[test]
    fn a_signature_is_explained() {
        let target: Target =
            "AccountName=shop;AccountKey=c2VjcmV0;TableEndpoint=http://127.0.0.1:1/shop"
                .parse()
                .unwrap();
        let subject = Subject::Table {
            table: "People".to_owned(),
            from: Bound { partition: Some("a".to_owned()), row: Some("1".to_owned()) },
            to: Bound { partition: Some("b".to_owned()), row: None },
        };
        let terms = Terms {
            permissions: "ra".to_owned(),
            expiry: "2026-01-03T00:00:00Z".to_owned(),
            ip: "192.0.2.1".to_owned(),
            protocol: "https".to_owned(),
            ..Terms::default()
        };
        let made = sas::create(&target, &subject, &terms).unwrap();
        let found = sas::explain(&made.url, Some(&target)).unwrap();
        let text = as_text(&found, at("2026-01-01T00:00:00Z"));
        let expected = "For        the table People
Account    shop
Allows     read, add (ra)
Keys       from PartitionKey \"a\", RowKey \"1\" to PartitionKey \"b\"
Until      2026-01-03T00:00:00Z (2 days left)
Addresses  192.0.2.1
Protocol   https only
Version    2019-02-02
Signature  made with this key of the account
";
        assert_eq!(text, expected);
        let late = as_text(&found, at("2026-01-03T00:00:00Z"));
        assert!(late.contains("2026-01-03T00:00:00Z (expired)"), "{late}");
        let json = as_json(&found, at("2026-01-01T00:00:00Z"));
        assert_eq!((&json["holds"], &json["signature"]), (&true.into(), &"right".into()));
        assert_eq!(json["from"], serde_json::json!({ "partition": "a", "row": "1" }));
    }
}
