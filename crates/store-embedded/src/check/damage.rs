//! Names the damaged pages of a database, and what is on them.

use crate::catalogue::{Catalogue, LoadError};
use crate::pages::{self, PAGE_BYTES, tree};
use rowhouse_store::{QueueId, TableId};
use rusqlite::Connection;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;

/// Most damaged pages that are looked for: a database with more is beyond naming them one by one.
const DAMAGED_MAX: usize = 1000;
/// Most names in a sentence.
const NAMES_MAX: usize = 5;
/// Pages that are read at a time.
const AT_A_TIME: usize = 256;

/// Pages of the file that are not what was written, and those that may never have been written. Pages that the log has a
/// later version of do not count.
#[derive(Debug, Default)]
pub(super) struct Suspects {
    pub(super) damaged: BTreeSet<u32>,
    blank: BTreeSet<u32>,
}

impl Suspects {
    /// Blank pages are damaged if another page leads to them, and otherwise nobody's.
    pub(super) fn judge(&mut self, conn: &Connection, database: &Path) {
        if !self.blank.is_empty() {
            let found = places(conn, database, &self.blank);
            self.damaged.extend(found.into_keys());
        }
    }
}

/// Reads the whole file.
pub(super) fn suspects(database: &Path, log: &Path) -> io::Result<Suspects> {
    let in_log = pages::log::pages(log)?;
    let mut file = File::open(database)?;
    let mut buffer = vec![0; AT_A_TIME * PAGE_BYTES];
    let (mut found, mut number) = (Suspects::default(), 0_u32);
    loop {
        let mut length = 0;
        while length < buffer.len() {
            match file.read(&mut buffer[length..]) {
                Ok(0) => break,
                Ok(read) => length += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        for page in buffer[..length].chunks(PAGE_BYTES) {
            number += 1;
            let of = if pages::is_blank(page) { &mut found.blank } else { &mut found.damaged };
            if of.len() < DAMAGED_MAX
                && !pages::is_intact(number, page)
                && !in_log.contains(&number)
            {
                of.insert(number);
            }
        }
        if length < buffer.len() {
            return Ok(found);
        }
    }
}

/// A sentence for each damaged page: what is on it.
pub(super) fn name(
    conn: &Connection,
    database: &Path,
    damaged: &BTreeSet<u32>,
    catalogue: Option<&Catalogue>,
) -> Vec<String> {
    let places = places(conn, database, damaged);
    let describe = |number: &u32| {
        let what = match (places.get(number), catalogue) {
            (Some(place), Some(catalogue)) => held(conn, catalogue, place),
            (Some(place), None) => format!("it belongs to {}", place.tree),
            // A free page, one of SQLite's own, or one behind another damaged page.
            (None, _) => "no intact page leads to it".to_owned(),
        };
        format!("page {number} of the database is damaged: {what}")
    };
    damaged.iter().map(describe).collect()
}

/// Where pages are in the trees of the database; those that nothing leads to are not in it.
fn places(
    conn: &Connection,
    database: &Path,
    wanted: &BTreeSet<u32>,
) -> BTreeMap<u32, tree::Place> {
    let places = trees(conn).ok().zip(File::open(database).ok()).map(|(trees, mut file)| {
        tree::places(&trees, wanted, &mut |number| {
            let mut page = vec![0; PAGE_BYTES];
            let at = (u64::from(number).checked_sub(1)?) * PAGE_BYTES as u64;
            file.seek(SeekFrom::Start(at)).ok()?;
            file.read_exact(&mut page).ok()?;
            Some(page)
        })
    });
    places.unwrap_or_default()
}

/// The trees of the schema and their roots.
fn trees(conn: &Connection) -> Result<Vec<(String, u32)>, rusqlite::Error> {
    let mut statement =
        conn.prepare("SELECT name, rootpage FROM sqlite_schema WHERE rootpage > 0")?;
    let trees = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    std::iter::once(Ok(("sqlite_schema".to_owned(), 1))).chain(trees).collect()
}

/// What a page holds, in the words of those who use it.
fn held(conn: &Connection, catalogue: &Catalogue, place: &tree::Place) -> String {
    let within =
        |id: i64| place.from.is_none_or(|from| from <= id) && place.to.is_none_or(|to| id <= to);
    let tables = |ids: &mut dyn Iterator<Item = TableId>| {
        names(ids.filter_map(|id| {
            let table = catalogue.table_by_id(id)?;
            let account = catalogue.account_by_id(table.account)?;
            Some(format!("{}/{}", account.name, table.name))
        }))
    };
    let all_tables = || catalogue.all_tables().map(|table| table.id);
    match &*place.tree {
        "entities" => {
            let found = tables(&mut all_tables().filter(|id| within(id.0.cast_signed())));
            format!("entities of {}", or(found, "a table that was dropped"))
        }
        "entries" => {
            let of = |table: &&std::sync::Arc<rowhouse_store::Table>| {
                table.indexes.iter().any(|index| within(index.id.0.cast_signed()))
            };
            let found = tables(&mut catalogue.all_tables().filter(of).map(|table| table.id));
            format!("an index of {}", or(found, "a table, which was dropped"))
        }
        "large" => {
            let sql = "SELECT DISTINCT table_id FROM entities WHERE typeof(record) = 'integer'
                       AND record BETWEEN ?1 AND ?2";
            let ids = numbers(conn, sql, place).unwrap_or_default();
            let found = tables(&mut ids.into_iter().map(|id| TableId(id.cast_unsigned())));
            format!("large entities of {}", or(found, "a table, or long messages of a queue"))
        }
        "messages" => {
            let sql = "SELECT DISTINCT pile FROM messages INDEXED BY messages_by_place
                       WHERE number BETWEEN ?1 AND ?2";
            let piles = numbers(conn, sql, place).unwrap_or_default();
            let found = queues(conn, catalogue, &|pile| piles.contains(&pile));
            format!("messages of {}", or(found, "a queue"))
        }
        "messages_by_place" | "messages_by_receipt" => {
            format!("the order of messages of {}", or(queues(conn, catalogue, &within), "a queue"))
        }
        "messages_by_expiry" => "when messages expire".to_owned(),
        "changes" => "changes that are kept".to_owned(),
        other => format!("{other}, which is about all tables and queues"),
    }
}

/// What a statement finds in the range of a page; damage that it meets ends it.
fn numbers(conn: &Connection, sql: &str, place: &tree::Place) -> Result<BTreeSet<i64>, LoadError> {
    let mut statement = conn.prepare(sql)?;
    let range = (place.from.unwrap_or(i64::MIN), place.to.unwrap_or(i64::MAX));
    let mut rows = statement.query(range)?;
    let mut found = BTreeSet::new();
    while let Ok(Some(row)) = rows.next() {
        found.insert(row.get(0)?);
    }
    Ok(found)
}

/// The queues whose piles fit.
fn queues(conn: &Connection, catalogue: &Catalogue, fits: &dyn Fn(i64) -> bool) -> Option<String> {
    let mut statement = conn.prepare("SELECT id, pile FROM queues").ok()?;
    let rows = statement.query_map([], |row| Ok((row.get::<_, i64>(0)?, row.get(1)?))).ok()?;
    let piles: BTreeMap<i64, i64> = rows.flatten().collect();
    names(piles.into_iter().filter(|(_, pile)| fits(*pile)).filter_map(|(id, _)| {
        let queue = catalogue.queue_by_id(QueueId(id.cast_unsigned()))?;
        let account = catalogue.account_by_id(queue.account)?;
        Some(format!("{}/{}", account.name, queue.name))
    }))
}

fn names(all: impl Iterator<Item = String>) -> Option<String> {
    let mut all: Vec<_> = all.take(NAMES_MAX + 1).collect();
    if all.len() > NAMES_MAX {
        all.truncate(NAMES_MAX);
        all.push("others".to_owned());
    }
    (!all.is_empty()).then(|| all.join(", "))
}

fn or(found: Option<String>, otherwise: &str) -> String {
    found.unwrap_or_else(|| otherwise.to_owned())
}
