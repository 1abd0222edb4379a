//! `rowhouse restore`: a backup into an empty place, or single tables of it into a running server.

use crate::admin_client::{AdminClient, AdminOptions};
use crate::backup::{keys, left_out, verify, whole};
use crate::output::counted;
use crate::progress::{Line, Meter, Status, bytes};
use crate::serve::{Secret, offline_config};
use crate::{Failure, output};
use clap::Args;
use rowhouse_server::{
    BackupError, Catalogue, DatabaseAddress, KeysHeld, RestoreChoice, Restored, Survey, Table, Ttl,
    TtlLeftOff, quoted,
};
use serde_json::{Value, json};
use std::fmt::{self, Write as _};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

/// Restore a backup.
///
/// A full backup, and the incremental ones that follow it, into an empty data directory (--data) or an empty
/// PostgreSQL database (--store) that no server uses. Timestamps and ETags are those of the original. Every
/// file is verified before anything is changed. A restore that was interrupted goes on when the same command
/// is given again; until it is finished no server starts there.
///
/// With --table, single tables under new names into a running server. Nobody sees such a table before it is
/// whole, and what was interrupted goes on when the same command is given again. One that is refused does not stop the others.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, mut_args(|argument| argument.hide_env_values(true)))]
pub(crate) struct RestoreCommand {
    /// A full backup, and then the incremental ones that follow it, in order.
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,

    /// Restore this table under a new name into a running server. May be given several times.
    #[arg(long = "table", value_name = "[ACCOUNT/]OLD=[ACCOUNT/]NEW")]
    tables: Vec<Renamed>,

    /// The empty PostgreSQL database to restore into: postgres://user@host:port/database.
    #[arg(long, value_name = "URL", env = "ROWHOUSE_STORE")]
    store: Option<Secret>,

    /// The password for the database, on the first line of this file. PGPASSWORD may hold the password
    /// itself.
    #[arg(long, value_name = "FILE", env = "ROWHOUSE_STORE_PASSWORD_FILE")]
    store_password_file: Option<PathBuf>,

    /// Certificate authorities, in PEM, that vouch for the database.
    #[arg(long, value_name = "FILE", env = "ROWHOUSE_STORE_CA_FILE")]
    store_ca_file: Option<PathBuf>,

    /// Restore Timestamps that are more than 15 minutes ahead of this machine's clock. All later Timestamps of the store will
    /// be ahead of the clock as well.
    #[arg(long)]
    allow_future_timestamps: bool,

    /// Set the TTL of tables also if entities have expired since the backup was taken: the server removes these.
    #[arg(long)]
    keep_ttl: bool,

    #[command(flatten)]
    server: AdminOptions,
}

const EXAMPLES: &str = "Examples:
  rowhouse restore monday.rhb --data ./restored
  rowhouse restore monday.rhb tuesday.rhb --store postgres://rowhouse@db.example.org/rowhouse
  rowhouse restore monday.rhb --table People=PeopleOfMonday";

/// A table, and what it is to be called.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Renamed {
    old: Place,
    new: Place,
}

/// A table in an account, which need not be said if there is no doubt.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    account: Option<String>,
    table: String,
}

impl FromStr for Renamed {
    type Err = Failure;

    fn from_str(text: &str) -> Result<Self, Failure> {
        let wrong = || format!("{text:?} is not OLD=NEW, two names of tables");
        let (old, new) = text.split_once('=').ok_or_else(wrong)?;
        let place = |text: &str| {
            let (account, table) = match text.split_once('/') {
                Some((account, table)) => (Some(account), table),
                None => (None, text),
            };
            let is_name =
                |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric());
            let valid = is_name(table) && account.is_none_or(is_name);
            let place = Place { account: account.map(str::to_owned), table: table.to_owned() };
            if valid { Ok(place) } else { Err(wrong()) }
        };
        Ok(Self { old: place(old)?, new: place(new)? })
    }
}

impl fmt::Display for Renamed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.old, self.new)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { account, table } = self;
        match account {
            Some(account) => write!(f, "{account}/{table}"),
            None => f.write_str(table),
        }
    }
}

impl RestoreCommand {
    pub(crate) fn run(self) -> Result<(), Failure> {
        if self.tables.is_empty() { self.restore_all() } else { self.restore_tables() }
    }

    fn restore_all(self) -> Result<(), Failure> {
        if self.store.is_none() && self.server.data.is_none() {
            return Err("name where to restore to: an empty directory with --data, or an empty \
                        database with --store"
                .to_owned());
        }
        if self.server.data.as_deref().is_some_and(DatabaseAddress::is_meant_by) {
            return Err("--data takes a directory: name the database with --store".to_owned());
        }
        let config = offline_config(
            self.server.data.clone(),
            self.store,
            self.store_ca_file,
            self.store_password_file,
        )?;
        let mut line = Line::new(whole(&self.files));
        let restored = rowhouse_server::restore(
            &config,
            &self.files,
            RestoreChoice {
                allow_future_timestamps: self.allow_future_timestamps,
                keep_ttl: self.keep_ttl,
            },
            |what, done| {
                line.show(what, done);
            },
        );
        drop(line);
        let (restored, surveys) = restored.map_err(|error| error.to_string())?;
        let held = surveys.last().map(|survey| KeysHeld::of(&survey.catalogue)).unwrap_or_default();
        if self.server.json {
            let Restored { accounts, tables, items, changes, indexes, resumed, .. } = &restored;
            let value = json!({
                "accounts": accounts, "tables": tables, "items": items, "changes": changes,
                "indexes": indexes, "indexesLeftOut": restored.indexes_left_out,
                "queues": restored.queues, "messages": restored.messages, "resumed": resumed,
                "keysLeftOut": left_out(&held), "ttlsLeftOff": ttls_left_off(&restored.ttls_left_off),
            });
            output::print(&format!("{value}\n"));
            return Ok(());
        }
        let (everything, resumed) = (everything(&restored), rest_of_an_attempt(restored.resumed));
        output::print(&format!("Restored {everything}{resumed}.\nKeys      {}\n", keys(&held)));
        if restored.indexes > 0 {
            let indexes = counted(restored.indexes, "index", "indexes");
            output::print(&format!("Indexes   {indexes}, built while a server runs\n"));
        }
        output::print(&indexes_left_out(restored.indexes_left_out));
        for TtlLeftOff { account, table, ttl } in &restored.ttls_left_off {
            output::print(&ttl_left_off(account, table, ttl));
        }
        output::print(&renewals(&held, self.server.data.as_deref()));
        Ok(())
    }

    fn restore_tables(self) -> Result<(), Failure> {
        let client = self.server.client()?;
        let surveys = verify(&self.files)?;
        let Some(first) = surveys.first() else { return Ok(()) };
        rowhouse_server::check_chain(std::slice::from_ref(first)).map_err(|e| e.to_string())?;
        let length = surveys.iter().map(|survey: &Survey| survey.bytes).sum();
        let mut failures = Vec::new();
        for renamed in &self.tables {
            // The others are not to wait for it: the same command goes on with one that is half there.
            if let Err(failure) = self.restore_table(&client, renamed, &surveys, length) {
                failures.push((renamed, failure));
            }
        }
        not_restored(failures, self.tables.len())
    }

    fn restore_table(
        &self,
        client: &AdminClient,
        renamed: &Renamed,
        surveys: &[Survey],
        length: u64,
    ) -> Result<(), Failure> {
        let Some(Survey { catalogue, .. }) = surveys.last() else { return Ok(()) };
        let account = renamed.old.find_account(catalogue)?;
        let into = renamed.new.account.as_deref().unwrap_or(&account);
        let (old, new) = (&renamed.old.table, &renamed.new.table);
        let future = if self.allow_future_timestamps { "&allowFutureTimestamps=true" } else { "" };
        let keep_ttl = if self.keep_ttl { "&keepTtl=true" } else { "" };
        let path = format!(
            "/v1/accounts/{into}/tables/{new}/restore?account={account}&table={old}{future}{keep_ttl}"
        );
        let answer = client.upload(&path, length, Sent::new(concatenated(&self.files)?, length))?;
        if self.server.json {
            output::print(&format!("{answer}\n"));
            return Ok(());
        }
        let number = |name: &str| answer[name].as_u64().unwrap_or_default();
        let items = listed(&contents(number("items"), number("changes")));
        // An earlier attempt may not have got to the first place that is noted.
        let is_rest = number("items") < items_of(surveys, &account, old);
        let resumed = rest_of_an_attempt(answer["resumed"] == true && is_rest);
        output::print(&format!("Restored {account}/{old} as {into}/{new}: {items}{resumed}.\n"));
        output::print(&indexes_left_out(number("indexesLeftOut")));
        let ttl = find_table(surveys, &account, old).and_then(|saved| saved.ttl.as_ref());
        if let (Some(true), Some(ttl)) = (answer["ttlLeftOff"].as_bool(), ttl) {
            output::print(&ttl_left_off(into, new, ttl));
        }
        Ok(())
    }
}

/// How many entities and changes the backups have of a table, all together.
fn items_of(surveys: &[Survey], account: &str, table: &str) -> u64 {
    let saved = find_table(surveys, account, table);
    let items = |survey: &Survey| survey.items.get(&saved?.id).copied();
    surveys.iter().filter_map(items).sum()
}

/// A table as the last backup has it.
fn find_table<'a>(surveys: &'a [Survey], account: &str, table: &str) -> Option<&'a Table> {
    let Survey { catalogue, .. } = surveys.last()?;
    let mut named =
        catalogue.tables.iter().filter(|saved| saved.name.as_str().eq_ignore_ascii_case(table));
    named.find(|saved| catalogue.owner(saved) == Some(account))
}

/// That a table has no TTL now, and the command that sets it.
fn ttl_left_off(account: &str, table: &str, ttl: &Ttl) -> String {
    let seconds = ttl.after.as_secs();
    let property = ttl.property.as_ref().map(|property| format!(" --property {property}"));
    let after = (property.is_none() || 0 < seconds).then(|| format!(" --after {seconds}s"));
    let options = [property, after].into_iter().flatten().collect::<String>();
    format!(
        "TTL       off for {account}/{table}: entities have expired since the backup was taken, and are kept.\n          \
         This sets it, and removes them: rowhouse table ttl {table}{options} --yes\n"
    )
}

/// For programs.
fn ttls_left_off(tables: &[TtlLeftOff]) -> Vec<Value> {
    let value = |left: &TtlLeftOff| {
        let TtlLeftOff { account, table, ttl } = left;
        json!({
            "account": account, "table": table, "property": ttl.property,
            "seconds": ttl.after.as_secs(),
        })
    };
    tables.iter().map(value).collect()
}

/// Tells of every table why it was not restored.
fn not_restored(failures: Vec<(&Renamed, Failure)>, of: usize) -> Result<(), Failure> {
    if failures.is_empty() {
        return Ok(());
    }
    if of == 1 {
        return Err(failures.into_iter().map(|(_, failure)| failure).collect());
    }
    let mut text = format!("{} of {of} tables were not restored", failures.len());
    for (renamed, failure) in failures {
        // Writing to a string cannot fail.
        let _ = write!(text, "\n  {renamed}: {failure}");
    }
    Err(text)
}

/// How accounts without keys get new ones from the server that runs on what was restored, in a directory that nobody knows yet if that is a
/// database; nothing if all have theirs.
fn renewals(held: &KeysHeld, data: Option<&Path>) -> String {
    if held.left_out.is_empty() {
        return String::new();
    }
    let data = data.map_or_else(|| "DIR-OF-THE-SERVER".to_owned(), quoted);
    let mut text =
        "Nobody can sign for an account without keys. Start a server, and make new ones:\n"
            .to_owned();
    for (account, slots) in &held.left_out {
        for slot in slots {
            // Writing to a string cannot fail.
            let _ =
                writeln!(text, "  rowhouse account rotate {account} --slot {slot} --data {data}");
        }
    }
    text
}

/// That a cluster does not keep so many indexes; nothing if it keeps all.
fn indexes_left_out(count: u64) -> String {
    if count == 0 {
        return String::new();
    }
    let left_out = counted(count, "unique index", "unique indexes");
    format!("Left out  {left_out} without PartitionKey: tables are spread over nodes here\n")
}

/// What a whole restore has put back. Queues are told where there are some.
fn everything(restored: &Restored) -> String {
    let mut parts = vec![
        counted(restored.accounts, "account", "accounts"),
        counted(restored.tables, "table", "tables"),
    ];
    parts.extend(contents(restored.items, restored.changes));
    if restored.queues > 0 {
        parts.push(counted(restored.queues, "queue", "queues"));
        parts.push(counted(restored.messages, "message", "messages"));
    }
    listed(&parts)
}

/// Of what was put back, so many are changes of what a full backup holds: they may replace or delete as well as add, so the
/// sum of both says nothing.
fn contents(items: u64, changes: u64) -> Vec<String> {
    let mut parts = vec![counted(items.saturating_sub(changes), "entity", "entities")];
    if changes > 0 {
        parts.push(counted(changes, "change", "changes"));
    }
    parts
}

/// One after the other, with a word before the last.
fn listed(parts: &[String]) -> String {
    match parts {
        [before @ .., last] if !before.is_empty() => format!("{} and {last}", before.join(", ")),
        parts => parts.concat(),
    }
}

/// The numbers beside it are those of this run.
fn rest_of_an_attempt(resumed: bool) -> &'static str {
    if resumed { " (the rest of an earlier attempt)" } else { "" }
}

impl Place {
    /// The account that was named, or the only one that has such a table.
    fn find_account(&self, catalogue: &Catalogue) -> Result<String, Failure> {
        let is_meant = |account: &str| self.account.as_deref().is_none_or(|name| name == account);
        let mut owners = catalogue
            .tables
            .iter()
            .filter(|table| table.name.as_str().eq_ignore_ascii_case(&self.table))
            .filter_map(|table| {
                let owner =
                    catalogue.accounts.iter().find(|account| account.id == table.account)?;
                Some((&owner.name, table))
            })
            .filter(|(owner, _)| is_meant(owner.as_str()));
        match (owners.next(), owners.next()) {
            // The server says so too, when it has received everything.
            (Some((owner, table)), None) if !table.is_whole() => {
                let (account, table) = (owner.clone(), table.name.clone());
                Err(BackupError::NotWhole { account, table }.to_string())
            }
            (Some((owner, _)), None) => Ok(owner.as_str().to_owned()),
            (None, _) => Err(format!(
                "the backup has no table {self}: 'rowhouse backup verify --json' lists what it has"
            )),
            (Some(_), Some(_)) => Err(format!(
                "several accounts of the backup have a table {0}: name one, as ACCOUNT/{0}",
                self.table
            )),
        }
    }
}

/// What is sent to a server, which tells how far it is.
struct Sent<R> {
    body: R,
    meter: Meter,
    so_far: u64,
    whole: u64,
}

impl<R> Sent<R> {
    /// So many bytes in all.
    fn new(body: R, whole: u64) -> Self {
        Self { body, meter: Meter::new(), so_far: 0, whole }
    }

    fn status(&self, elapsed: Duration) -> Status {
        let Self { so_far: sent, whole, .. } = self;
        let millis = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX).max(1);
        let rate = bytes(sent.saturating_mul(1000) / millis);
        let share = (0 < *whole).then(|| sent.min(whole).saturating_mul(1000) / whole);
        Status { text: format!("sent {} ({rate}/s)", bytes(*sent)), share }
    }
}

impl<R: Read> Read for Sent<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.body.read(buffer)?;
        self.so_far += read as u64;
        if self.meter.is_due() {
            let status = self.status(self.meter.elapsed());
            self.meter.show(&status);
        }
        Ok(read)
    }
}

/// The files, one behind the other.
fn concatenated(files: &[PathBuf]) -> Result<Box<dyn Read>, Failure> {
    let mut all: Box<dyn Read> = Box::new(io::empty());
    for path in files {
        let file = File::open(path);
        let file = file.map_err(|error| format!("{} cannot be read ({error})", path.display()))?;
        all = Box::new(all.chain(file));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_restored_is_told_in_a_line() {
        let mut restored = Restored { accounts: 1, tables: 2, items: 3, ..Restored::default() };
        assert_eq!(everything(&restored), "1 account, 2 tables and 3 entities");
        restored.changes = 2;
        assert_eq!(everything(&restored), "1 account, 2 tables, 1 entity and 2 changes");
        (restored.queues, restored.messages) = (1, 0);
        let expected = "1 account, 2 tables, 1 entity, 2 changes, 1 queue and 0 messages";
        assert_eq!(everything(&restored), expected);
        assert_eq!(listed(&contents(1, 0)), "1 entity");
    }

    #[test]
    fn whoever_restores_is_told_how_to_renew_keys() {
        assert_eq!(renewals(&KeysHeld::default(), None), "");
        let left_out =
            vec![("bakery".parse().unwrap(), vec![2]), ("shop".parse().unwrap(), vec![1, 2])];
        let held = KeysHeld { left_out, ..KeysHeld::default() };
        let expected = "Nobody can sign for an account without keys. Start a server, and make new ones:\n  \
            rowhouse account rotate bakery --slot 2 --data DIR-OF-THE-SERVER\n  \
            rowhouse account rotate shop --slot 1 --data DIR-OF-THE-SERVER\n  \
            rowhouse account rotate shop --slot 2 --data DIR-OF-THE-SERVER\n";
        assert_eq!(renewals(&held, None), expected);
        let told = renewals(&held, Some(Path::new("./restored")));
        assert!(
            told.contains("  rowhouse account rotate bakery --slot 2 --data ./restored\n"),
            "{told}"
        );
    }

    #[test]
    fn indexes_that_a_cluster_does_not_keep_are_told() {
        assert_eq!(indexes_left_out(0), "");
        let expected =
            "Left out  1 unique index without PartitionKey: tables are spread over nodes here\n";
        assert_eq!(indexes_left_out(1), expected);
        assert!(indexes_left_out(2).contains("2 unique indexes"));
    }

    #[test]
    fn a_directory_can_be_typed() {
        let left_out = vec![("shop".parse().unwrap(), vec![1])];
        let told = renewals(&KeysHeld { left_out, ..KeysHeld::default() }, Some(Path::new("a b")));
        assert!(told.ends_with(" --slot 1 --data 'a b'\n"), "{told}");
    }

    #[test]
    fn every_table_that_is_not_restored_is_told() {
        let renamed: Vec<Renamed> =
            ["People=Old", "a/B=c/D"].iter().map(|text| text.parse().unwrap()).collect();
        let failures = |count: usize| {
            renamed.iter().take(count).map(|it| (it, "it is there".to_owned())).collect()
        };
        assert_eq!(not_restored(failures(0), 2), Ok(()));
        assert_eq!(not_restored(failures(1), 1), Err("it is there".to_owned()));
        let expected = "1 of 2 tables were not restored\n  People=Old: it is there";
        assert_eq!(not_restored(failures(1), 2), Err(expected.to_owned()));
        let expected =
            "2 of 2 tables were not restored\n  People=Old: it is there\n  a/B=c/D: it is there";
        assert_eq!(not_restored(failures(2), 2), Err(expected.to_owned()));
    }

    #[test]
    fn what_is_sent_is_told() {
        let mut sent = Sent::new(&[0; 3000][..], 4000);
        let two = Duration::from_secs(2);
        let expected = |text: &str, share| Status { text: text.to_owned(), share: Some(share) };
        assert_eq!(sent.status(two), expected("sent 0 B (0 B/s)", 0));
        assert_eq!(io::copy(&mut sent, &mut io::sink()).unwrap(), 3000);
        assert_eq!(sent.status(two), expected("sent 3.0 kB (1.5 kB/s)", 750));
        assert_eq!(Sent::new(io::empty(), 0).status(two).share, None);
    }

    #[test]
    fn tables_get_new_names() {
        let place = |account: Option<&str>, table: &str| Place {
            account: account.map(str::to_owned),
            table: table.to_owned(),
        };
        let cases = [
            ("People=Old", Some((place(None, "People"), place(None, "Old")))),
            ("shop/People=Old", Some((place(Some("shop"), "People"), place(None, "Old")))),
            ("a/B=c/D", Some((place(Some("a"), "B"), place(Some("c"), "D")))),
            ("People", None),
            ("People=", None),
            ("=Old", None),
            ("a/b/c=d", None),
            ("Peo ple=Old", None),
            ("People=Old&table=Other", None),
            ("/People=Old", None),
        ];
        for (text, expected) in cases {
            let parsed: Result<Renamed, _> = text.parse();
            assert_eq!(parsed.ok().map(|renamed| (renamed.old, renamed.new)), expected, "{text}");
        }
    }
}
