//! Verifies a data directory without changing it.
//!
//! Reads everything once: the pages by their checksums and by SQLite's own check, then every account, table and entity as the
//! store would, with its entries in indexes, and every queue with its messages. Problems name tables and positions, never keys or
//! values. What a damaged page keeps from being read is a problem too, and the rest is read all the same.

mod damage;

use crate::catalogue::{Catalogue, LoadError};
use crate::directory::{Directory, OpenError, check_version, explain, word};
use crate::entity::with_record;
use crate::index::check::Indexes;
use crate::pages::{self, Damage};
use crate::queue;
use crate::schema::{self, Marks};
use crate::sweep::{self, Chore};
use rowhouse_store::{Account, TableId};
use rowhouse_types::{EntityKey, RecordRef, Row, Timestamp, check_property_name, limits};
use rusqlite::Connection;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

/// Most problems that a report names.
const PROBLEMS_MAX: usize = 100;
/// How many entities are read between calls of the progress function.
const PROGRESS_STEP: u64 = 1000;

/// What a check found.
#[derive(Clone, Debug, Default)]
pub struct CheckReport {
    /// Accounts that exist.
    pub accounts: Vec<Arc<Account>>,
    /// Tables that exist.
    pub tables: u64,
    /// Those of them that are half restored, as `ACCOUNT/TABLE`: nothing is wrong with them, but services do not show them.
    pub half_restored: Vec<String>,
    /// Entities in them.
    pub entities: u64,
    /// Secondary indexes of the tables.
    pub indexes: u64,
    /// Queues that exist.
    pub queues: u64,
    /// Messages in them, those included that have expired and are not yet swept.
    pub messages: u64,
    /// What is wrong, a sentence each; empty if everything is in order, and never more than a hundred.
    pub problems: Vec<String>,
}

/// Verifies a data directory that no server uses. `progress` hears from time to time how many entities
/// have been read.
///
/// An error means that the check could not be made; what it found is in the report.
pub fn check(directory: &Path, progress: &mut dyn FnMut(u64)) -> Result<CheckReport, OpenError> {
    let directory = Directory::open_existing(directory)?;
    let path = directory.database();
    let conn =
        schema::reader(&path, 16 * 1024 * 1024, true).map_err(|error| explain(&path, error))?;
    let version = schema::version(&conn).map_err(|error| explain(&path, error))?;
    check_version(&path, version)?;
    let mut check = Check { conn: &conn, report: CheckReport::default(), damaged: BTreeSet::new() };
    check.log(&directory).map_err(|source| unreadable(&directory.log(), source))?;
    if schema::CHECKSUMS_SINCE <= version {
        let mut suspects = damage::suspects(&path, &directory.log())
            .map_err(|source| unreadable(&path, source))?;
        suspects.judge(&conn, &path);
        check.damaged = suspects.damaged;
    }
    match check.run(&path, progress) {
        Ok(()) => {}
        // What does not even load is the finding.
        Err(LoadError::Damaged(what)) => check.problem(what),
        Err(LoadError::Sqlite(error)) => match explain(&path, error) {
            OpenError::Corrupt { detail, .. } => check.problem(detail),
            other => return Err(other),
        },
    }
    Ok(check.report)
}

fn unreadable(path: &Path, source: std::io::Error) -> OpenError {
    OpenError::Unwritable { path: path.to_owned(), source }
}

struct Check<'a> {
    conn: &'a Connection,
    report: CheckReport,
    /// The pages that are not what was written.
    damaged: BTreeSet<u32>,
}

impl Check<'_> {
    fn run(&mut self, path: &Path, progress: &mut dyn FnMut(u64)) -> Result<(), LoadError> {
        if !self.damaged.is_empty() {
            let catalogue = Catalogue::load(self.conn).ok();
            let problems = damage::name(self.conn, path, &self.damaged, catalogue.as_ref());
            for problem in problems {
                self.problem(problem);
            }
        }
        let pages = self.pages();
        self.tolerate(pages)?;
        let marks = Marks::load(self.conn)?;
        let catalogue = Catalogue::load(self.conn)?;
        let dropped: Vec<_> = sweep::dropped(self.conn)?.into();
        self.catalogue(&catalogue, marks)?;
        let mut indexes = Indexes::new(self.conn, &catalogue)?;
        self.report.indexes = indexes.count();
        let mut texts = 0;
        if schema::QUEUES_SINCE <= schema::version(self.conn)? {
            let found = queue::check::check(self.conn, &catalogue, &dropped, marks);
            if let Some(found) = self.tolerate(found)? {
                (self.report.queues, self.report.messages) = (found.queues, found.messages);
                texts = found.large;
                for problem in found.problems {
                    self.problem(problem);
                }
            }
        }
        self.entities(&catalogue, &dropped, (marks.tick, texts), &mut indexes, progress)?;
        // Entities that cannot be read leave entries that seem to belong to nothing.
        if schema::INDEXES_SINCE <= schema::version(self.conn)? && self.damaged.is_empty() {
            for problem in indexes.finish(&dropped, marks.last_index)? {
                self.problem(problem);
            }
        }
        Ok(())
    }

    /// What SQLite would forget when it recovers the log.
    fn log(&mut self, directory: &Directory) -> std::io::Result<()> {
        if let Some(word) = word(&directory.database()) {
            self.problem(word);
        }
        if let Some(damage) = pages::log::damage(&directory.log())? {
            self.problem(format!("{damage}, and what was stored after it would be lost"));
        }
        Ok(())
    }

    /// Goes on behind what a damaged page ended, if that page was named already. Damage that has no checksum to tell of it
    /// is named here.
    fn tolerate<T>(&mut self, result: Result<T, LoadError>) -> Result<Option<T>, LoadError> {
        use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase};
        match result {
            Ok(found) => Ok(Some(found)),
            Err(LoadError::Sqlite(error))
                if matches!(error.sqlite_error_code(), Some(DatabaseCorrupt | NotADatabase)) =>
            {
                let damage = pages::take_last();
                if !matches!(damage, Some(Damage::Page(page)) if self.damaged.contains(&page)) {
                    let what = damage.map_or_else(|| error.to_string(), |it| it.to_string());
                    self.problem(what);
                }
                Ok(None)
            }
            Err(other) => Err(other),
        }
    }

    /// SQLite's own check, which sees more than checksums do where they are right, and little where they are not.
    fn pages(&mut self) -> Result<(), LoadError> {
        if !self.damaged.is_empty() {
            return Ok(());
        }
        let mut statement =
            self.conn.prepare(&format!("PRAGMA integrity_check({PROBLEMS_MAX})"))?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let text: String = row.get(0)?;
            if text != "ok" {
                self.problem(format!("the file: {text}"));
            }
        }
        Ok(())
    }

    fn catalogue(&mut self, catalogue: &Catalogue, marks: Marks) -> Result<(), LoadError> {
        for account in catalogue.accounts() {
            self.report.accounts.push(Arc::clone(account));
            if marks.last_account < account.id.0 {
                self.problem(format!("account {}: its id was never given out", account.name));
            }
            for table in catalogue.tables(account.id, None) {
                self.report.tables += 1;
                if !table.is_whole() {
                    self.report.half_restored.push(format!("{}/{}", account.name, table.name));
                }
                let name = format!("table {} of account {}", table.name, account.name);
                if marks.last_table < table.id.0 {
                    self.problem(format!("{name}: its id was never given out"));
                }
                if limits::INDEXES_MAX < table.indexes.len() {
                    self.problem(format!("{name}: it has too many indexes"));
                }
                if limits::POLICIES_MAX < table.policies.len() {
                    self.problem(format!("{name}: it has too many access policies"));
                }
            }
        }
        let stored: i64 =
            self.conn.query_row("SELECT count(*) FROM tables", [], |row| row.get(0))?;
        if u64::try_from(stored) != Ok(self.report.tables) {
            self.problem("a table belongs to no account, or two have one name".into());
        }
        let misfolded: i64 = self.conn.query_row(
            "SELECT count(*) FROM tables WHERE folded != lower(name)",
            [],
            |row| row.get(0),
        )?;
        if misfolded > 0 {
            self.problem(format!("{misfolded} tables are listed under a wrong name"));
        }
        Ok(())
    }

    fn entities(
        &mut self,
        catalogue: &Catalogue,
        dropped: &[Chore],
        (latest, texts): (Timestamp, u64),
        indexes: &mut Indexes<'_>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), LoadError> {
        let conn = self.conn;
        let mut statement = conn.prepare(
            "SELECT table_id, pk, rk, record FROM entities WHERE table_id >= ?1
             ORDER BY table_id, pk, rk",
        )?;
        let (mut read, mut large, mut number, mut current) = (0_u64, 0_u64, 0_u64, None);
        let mut from = i64::MIN;
        loop {
            let mut rows = statement.query([from])?;
            let ended = loop {
                let row = match rows.next() {
                    Ok(Some(row)) => row,
                    Ok(None) => break None,
                    Err(error) => break Some(error),
                };
                let table = TableId(row.get::<_, i64>(0)?.cast_unsigned());
                if current != Some(table) {
                    (current, number) = (Some(table), 0);
                }
                number += 1;
                read += 1;
                if read.is_multiple_of(PROGRESS_STEP) {
                    progress(read);
                }
                let column = row.get_ref(3)?;
                large += u64::from(column.as_i64().is_ok());
                let name = match catalogue.table_by_id(table) {
                    Some(found) => found.name.as_str(),
                    None if dropped.contains(&Chore::Entities(table)) => continue,
                    None => {
                        if number == 1 {
                            self.problem(format!("entities belong to no table (id {})", table.0));
                        }
                        continue;
                    }
                };
                self.report.entities += 1;
                let keys = (row.get_ref(1)?.as_str(), row.get_ref(2)?.as_str());
                let problem = match keys {
                    (Ok(partition), Ok(row)) => with_record(conn, column, |_, bytes| {
                        if let Some(problem) = entity_problem(partition, row, bytes, latest) {
                            return Ok(Some(problem));
                        }
                        let record = RecordRef::parse(bytes)?;
                        Ok(indexes.entity(table, &Row { partition, row, record })?)
                    })
                    .unwrap_or_else(|fault| Some(fault.into_store_error().to_string())),
                    _ => Some("its key is not text".into()),
                };
                if let Some(problem) = problem {
                    self.problem(format!("table {name}, entity {number} in key order: {problem}"));
                }
            };
            drop(rows);
            let Some(error) = ended else { break };
            self.tolerate::<()>(Err(LoadError::Sqlite(error)))?;
            // The rest of a table with a page that cannot be read is left out: of the one that was being read, or else of
            // the next.
            let unread = |table: &TableId| from <= table.0.cast_signed();
            let next = catalogue.all_tables().map(|table| table.id).filter(unread).min();
            let Some(broken) = current.filter(unread).or(next) else { break };
            if let Some(table) = catalogue.table_by_id(broken) {
                let seen = if current == Some(broken) { number } else { 0 };
                let name = &table.name;
                self.problem(format!(
                    "table {name}: entities behind number {seen} in key order were not read"
                ));
            }
            (from, current, number) = (broken.0.cast_signed().saturating_add(1), None, 0);
        }
        progress(read);
        if !self.damaged.is_empty() {
            return Ok(());
        }
        let stored: i64 = conn.query_row("SELECT count(*) FROM large", [], |row| row.get(0))?;
        if u64::try_from(stored) != Ok(large + texts) {
            self.problem(format!(
                "there are {stored} large records for {large} entities and {texts} messages"
            ));
        }
        Ok(())
    }

    fn problem(&mut self, what: String) {
        if self.report.problems.len() < PROBLEMS_MAX {
            self.report.problems.push(what);
        }
    }
}

/// What is wrong with an entity, if anything.
fn entity_problem(partition: &str, row: &str, bytes: &[u8], latest: Timestamp) -> Option<String> {
    if let Err(error) = EntityKey::new(partition, row) {
        return Some(format!("its key is not legal: {error}"));
    }
    let record = match RecordRef::parse(bytes) {
        Ok(record) => record,
        Err(error) => return Some(error.to_string()),
    };
    let mut names = BTreeSet::new();
    for property in record.iter() {
        match property {
            Err(error) => return Some(error.to_string()),
            Ok(property) => {
                if let Err(error) = check_property_name(property.name) {
                    return Some(format!("the name of a property is not legal: {error}"));
                }
                if !names.insert(property.name) {
                    return Some("two properties have one name".into());
                }
            }
        }
    }
    if latest < record.timestamp() {
        return Some("its Timestamp was never given out".into());
    }
    match record.check_limits(partition, row) {
        Ok(None) => None,
        Ok(Some(_)) => Some("it exceeds the limits of an entity".into()),
        Err(error) => Some(error.to_string()),
    }
}
