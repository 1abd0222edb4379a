//! `rowhouse backup`: a backup of a running server into a file, and whether a file is a whole one.

use crate::admin_client::AdminOptions;
use crate::output::counted;
use crate::progress::{Line, bytes};
use crate::rate::{Limited, Rate};
use crate::{Failure, output};
use clap::{Args, Subcommand};
use rowhouse_server::{
    BackupError, Catalogue, Estimate, Extent, Header, KeysHeld, Survey, read_base, receive_backup,
    verify_backup,
};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

/// Take a backup of a running server, or verify one.
///
/// A backup holds all accounts, tables with their entities, queues with their messages, policies and settings as they
/// were at one moment, while the server goes on. The keys of accounts are in it if the server has a master key to seal them with; otherwise
/// they are left out, but for the public key of the development account. The file appears under its name when it is whole, and has been verified.
#[derive(Debug, Args)]
#[command(
    after_help = EXAMPLES,
    args_conflicts_with_subcommands = true,
    mut_args(|argument| argument.hide_env_values(true))
)]
pub(crate) struct BackupCommand {
    /// The file to write, which must not be there.
    #[arg(value_name = "DEST", required = true)]
    destination: Option<PathBuf>,

    /// Write only what has changed since this backup. The server must keep changes.
    #[arg(long, value_name = "BASE")]
    incremental: Option<PathBuf>,

    /// Take no more than so many bytes of the file a second, such as 5MB.
    #[arg(long, value_name = "RATE")]
    rate_limit: Option<Rate>,

    #[command(flatten)]
    server: AdminOptions,

    #[command(subcommand)]
    action: Option<Action>,
}

const EXAMPLES: &str = "Examples:
  rowhouse backup monday.rhb
  rowhouse backup tuesday.rhb --incremental monday.rhb
  rowhouse backup verify monday.rhb tuesday.rhb";

#[derive(Debug, Subcommand)]
enum Action {
    /// Read backups to their ends, and tell what is in them.
    ///
    /// Several are taken for a full backup and the incremental ones that follow it.
    Verify {
        /// The files.
        #[arg(value_name = "FILE", required = true)]
        files: Vec<PathBuf>,
    },
}

impl BackupCommand {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let surveys = match &self.action {
            Some(Action::Verify { files }) => verify(files)?,
            None => vec![self.take()?],
        };
        let text = if self.server.json {
            let values: Vec<Value> = surveys.iter().map(value).collect();
            format!("{}\n", Value::Array(values))
        } else {
            surveys.iter().map(tell).collect()
        };
        output::print(&text);
        Ok(())
    }

    fn take(&self) -> Result<Survey, Failure> {
        let destination = self.destination.as_deref().unwrap_or(Path::new(""));
        if destination.exists() {
            return Err(is_there(destination));
        }
        let base = match &self.incremental {
            Some(path) => Some(read_base(path).map_err(|error| error.to_string())?),
            None => None,
        };
        let client = self.server.client()?;
        let part = Unfinished::create(destination)?;
        let source = client.receive(&path(base.as_ref()))?;
        let mut line = Line::estimated(source.header("x-rowhouse-estimate").and_then(estimate));
        let source = Limited::new(source.body, self.rate_limit);
        let received = receive_backup(source, &part.file, base.as_ref(), |done| {
            line.show("saved", done);
        });
        drop(line);
        let survey = received.map_err(|error| explain(destination, &error))?;
        part.finish(destination)?;
        Ok(survey)
    }
}

/// Reads every file, and sees whether they follow each other.
pub(crate) fn verify(files: &[PathBuf]) -> Result<Vec<Survey>, Failure> {
    let mut line = Line::new(whole(files));
    let mut surveys = Vec::new();
    for file in files {
        let surveyed = verify_backup(file, |done| line.show("verified", done));
        surveys.push(surveyed.map_err(|error| error.to_string())?);
    }
    if 1 < surveys.len() {
        rowhouse_server::check_chain(&surveys).map_err(|error| error.to_string())?;
    }
    Ok(surveys)
}

/// How many bytes the files have together, if that can be known.
pub(crate) fn whole(files: &[PathBuf]) -> Option<u64> {
    files.iter().map(|file| fs::metadata(file).ok().map(|metadata| metadata.len())).sum()
}

fn path(base: Option<&(Header, Catalogue)>) -> String {
    match base {
        None => "/v1/backup".to_owned(),
        Some((header, _)) => format!("/v1/backup?base={}&place={}", header.id, header.place),
    }
}

/// What a server says of how much there will be, if it is something that is understood here.
fn estimate(text: &str) -> Option<Estimate> {
    let (what, count) = text.split_once('=')?;
    let count = count.parse().ok()?;
    match what {
        "items" => Some(Estimate::Items(count)),
        "bytes" => Some(Estimate::Bytes(count)),
        _ => None,
    }
}

/// What arrived was checked, so what is wrong with it is wrong with the connection or with the disk.
fn explain(destination: &Path, error: &BackupError) -> Failure {
    use rowhouse_server::FileError::{Io, Truncated};
    let place = destination.display();
    match error {
        BackupError::File(Io(error)) => {
            format!("the backup into {place} failed ({error}): nothing of it was kept")
        }
        BackupError::File(Truncated { .. }) => format!(
            "the server ended the backup into {place} before it was whole: see the server's log; \
             nothing of it was kept"
        ),
        error => format!("{error}; nothing was kept in {place}"),
    }
}

/// A file that vanishes unless it is finished. Locked: nobody else writes to it.
struct Unfinished {
    path: PathBuf,
    file: File,
}

impl Unfinished {
    fn create(destination: &Path) -> Result<Self, Failure> {
        let mut path = OsString::from(destination);
        path.push(".part");
        let path = PathBuf::from(path);
        let mut options = OpenOptions::new();
        // What is in it stays until it is known that nobody writes to it.
        options.write(true).create(true).truncate(false);
        // It holds all data.
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(&path).map_err(|error| cannot_write(&path, &error))?;
        let busy = || {
            let place = destination.display();
            format!("another backup into {place} is at work: wait for it, or choose another name")
        };
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(busy()),
            // A file system without locks.
            Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => {}
            Err(TryLockError::Error(error)) => return Err(cannot_write(&path, &error)),
        }
        // Whoever had it may have finished between the two steps: then it has another name by now.
        if !is_at(&file, &path) {
            return Err(if destination.exists() { is_there(destination) } else { busy() });
        }
        let part = Self { path, file };
        part.file.set_len(0).map_err(|error| cannot_write(&part.path, &error))?;
        Ok(part)
    }

    /// Makes it durable, and then gives it its name, unless a file has that by now.
    fn finish(self, destination: &Path) -> Result<(), Failure> {
        let finish = || -> io::Result<()> {
            self.file.sync_all()?;
            name(&self.path, destination)?;
            drop(self);
            let parent = destination.parent().filter(|parent| !parent.as_os_str().is_empty());
            // Elsewhere directories cannot be opened, and renaming is durable by itself.
            if cfg!(unix) {
                File::open(parent.unwrap_or(Path::new(".")))?.sync_all()?;
            }
            Ok(())
        };
        finish().map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => is_there(destination),
            _ => cannot_write(destination, &error),
        })
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // After the end it has another name, and this one may be somebody else's.
        if is_at(&self.file, &self.path) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Gives a file a name that no other has; fails if one does.
fn name(path: &Path, destination: &Path) -> io::Result<()> {
    match fs::hard_link(path, destination) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            // A file system without links: an empty file of that name keeps others away.
            OpenOptions::new().write(true).create_new(true).open(destination)?;
            fs::rename(path, destination)
        }
        linked => linked,
    }
}

/// Whether the file is the one of that name.
#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let identity = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    match (file.metadata(), fs::metadata(path)) {
        (Ok(file), Ok(there)) => identity(file) == identity(there),
        _ => false,
    }
}

/// Elsewhere a file that is open keeps its name, until it is finished.
#[cfg(not(unix))]
fn is_at(_: &File, path: &Path) -> bool {
    path.exists()
}

fn is_there(destination: &Path) -> Failure {
    format!(
        "{} is there already: a backup never overwrites, choose another name",
        destination.display()
    )
}

fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    format!("cannot write {} ({error}): choose another place, or make room", path.display())
}

/// What people read of a backup.
fn tell(survey: &Survey) -> String {
    let Survey { header, totals, .. } = survey;
    let contents = match header.extent {
        Extent::Full => counted(totals.entities, "entity", "entities"),
        Extent::Incremental(base) => {
            let changes = counted(totals.changes, "change", "changes");
            format!("{changes} since backup {}", base.id)
        }
    };
    let accounts = counted(totals.accounts, "account", "accounts");
    let tables = counted(totals.tables, "table", "tables");
    let mut rows = vec![
        ("Backup", header.id.to_string()),
        ("Taken", format!("{} by Rowhouse {}", header.taken.iso7(), header.product)),
        ("Holds", format!("{accounts}, {tables}, {contents}")),
        ("Size", bytes(survey.bytes)),
        ("Keys", keys(&KeysHeld::of(&survey.catalogue))),
    ];
    if totals.queues > 0 {
        let queues = counted(totals.queues, "queue", "queues");
        let messages = counted(totals.messages, "message", "messages");
        rows.insert(3, ("Queues", format!("{queues}, {messages}")));
    }
    let halves = survey.catalogue.halves();
    if !halves.is_empty() {
        rows.insert(3, ("Half", half_restored(&halves)));
    }
    let lines: Vec<_> = rows.iter().map(|(name, value)| format!("{name:<9} {value}\n")).collect();
    lines.concat()
}

/// Names tables, at least one, that are not whole.
pub(crate) fn half_restored(tables: &[String]) -> String {
    let count = counted(tables.len() as u64, "table is", "tables are");
    format!("{count} half restored: {}", tables.join(", "))
}

/// Which keys there are, and what a server needs that is to use what is restored.
pub(crate) fn keys(held: &KeysHeld) -> String {
    let mut parts = Vec::new();
    if held.sealed {
        parts.push("sealed: a server needs the master key that this one was taken with".to_owned());
    }
    if held.readable {
        parts.push("not sealed: whoever has the backup has the keys of its accounts".to_owned());
    }
    if !held.left_out.is_empty() {
        let accounts = counted(held.left_out.len() as u64, "account", "accounts");
        parts.push(format!(
            "left out for {accounts}: there were none, or no master key to seal them with"
        ));
    }
    match parts.as_slice() {
        [] if held.public => "the public one of the development account".to_owned(),
        [] => "none".to_owned(),
        parts => parts.join("; "),
    }
}

/// Accounts of which a key was left out, for programs.
pub(crate) fn left_out(held: &KeysHeld) -> Value {
    held.left_out.iter().map(|(account, _)| account.as_str()).collect()
}

/// What programs read of a backup.
fn value(survey: &Survey) -> Value {
    let Survey { header, catalogue, items, totals, bytes, .. } = survey;
    let held = KeysHeld::of(catalogue);
    let tables: Vec<Value> = catalogue
        .tables
        .iter()
        .map(|table| {
            json!({
                "account": catalogue.owner(table),
                "table": table.name.as_str(),
                "items": items.get(&table.id).copied().unwrap_or_default(),
            })
        })
        .collect();
    let base = match header.extent {
        Extent::Full => Value::Null,
        Extent::Incremental(base) => json!(base.id.to_string()),
    };
    json!({
        "id": header.id.to_string(),
        "taken": header.taken.iso7(),
        "product": &*header.product,
        "base": base,
        "sealed": held.sealed,
        "keysLeftOut": left_out(&held),
        "halfRestored": catalogue.halves(),
        "accounts": catalogue.accounts.iter().map(|a| a.name.as_str()).collect::<Vec<_>>(),
        "tables": tables,
        "entities": totals.entities,
        "changes": totals.changes,
        "queues": totals.queues,
        "messages": totals.messages,
        "bytes": bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimates_are_understood_or_nothing() {
        assert_eq!(estimate("items=7"), Some(Estimate::Items(7)));
        assert_eq!(estimate("bytes=0"), Some(Estimate::Bytes(0)));
        for text in ["", "7", "items", "items=", "items=-1", "rows=7", "items=99999999999999999999"]
        {
            assert_eq!(estimate(text), None, "{text}");
        }
    }

    #[test]
    fn halves_are_named() {
        let names = ["shop/New".to_owned(), "shop/Old".to_owned()];
        assert_eq!(half_restored(&names[..1]), "1 table is half restored: shop/New");
        assert_eq!(half_restored(&names), "2 tables are half restored: shop/New, shop/Old");
    }

    #[test]
    fn keys_are_told_in_a_line() {
        let left_out = |names: &[&str]| {
            names.iter().map(|name| (name.parse().unwrap(), vec![1, 2])).collect::<Vec<_>>()
        };
        let held = KeysHeld::default();
        let shop = || left_out(&["shop"]);
        let sealed = "sealed: a server needs the master key that this one was taken with";
        let one = "left out for 1 account: there were none, or no master key to seal them with";
        let cases = [
            (held.clone(), "none".to_owned()),
            (KeysHeld { sealed: true, public: true, ..held.clone() }, sealed.to_owned()),
            (
                KeysHeld { public: true, ..held.clone() },
                "the public one of the development account".to_owned(),
            ),
            (KeysHeld { left_out: shop(), public: true, ..held.clone() }, one.to_owned()),
            (
                KeysHeld { left_out: left_out(&["bakery", "shop"]), ..held.clone() },
                one.replace("1 account", "2 accounts"),
            ),
            (
                KeysHeld { left_out: shop(), sealed: true, ..held.clone() },
                format!("{sealed}; {one}"),
            ),
            (
                KeysHeld { readable: true, ..held },
                "not sealed: whoever has the backup has the keys of its accounts".to_owned(),
            ),
        ];
        for (held, expected) in cases {
            assert_eq!(keys(&held), expected);
        }
    }
}
