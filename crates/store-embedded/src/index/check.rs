//! Verifies that indexes and entities agree.
//!
//! Every entity is shown once. Its entry must be there, unless the index is being built and has not come so far. What
//! was found is counted: if an index has more entries than that, they belong to nothing.

use crate::catalogue::{Catalogue, LoadError};
use crate::index::build::{self, Progress};
use crate::sweep::Chore;
use rowhouse_query::index::entry;
use rowhouse_store::{Index, IndexId, IndexState, Table, TableId};
use rowhouse_types::Row;
use rusqlite::{Connection, params};
use std::collections::BTreeMap;

/// What is known of the indexes so far.
pub(crate) struct Indexes<'a> {
    conn: &'a Connection,
    tables: BTreeMap<TableId, Vec<Checked<'a>>>,
    count: u64,
}

struct Checked<'a> {
    table: &'a Table,
    index: &'a Index,
    progress: Progress,
    /// Entities whose entries are there.
    found: u64,
}

impl<'a> Indexes<'a> {
    pub(crate) fn new(conn: &'a Connection, catalogue: &'a Catalogue) -> Result<Self, LoadError> {
        let (mut tables, mut count) = (BTreeMap::<_, Vec<_>>::new(), 0);
        for table in catalogue.all_tables() {
            for index in &table.indexes {
                let progress = build::progress(conn, index.id)?.unwrap_or_default();
                count += 1;
                tables.entry(table.id).or_default().push(Checked {
                    table,
                    index,
                    progress,
                    found: 0,
                });
            }
        }
        Ok(Self { conn, tables, count })
    }

    /// How many there are.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Looks for the entries of an entity that is in order itself; what is wrong with them, if anything.
    pub(crate) fn entity(
        &mut self,
        table: TableId,
        row: &Row<'_>,
    ) -> Result<Option<String>, LoadError> {
        let mut problem = None;
        for checked in self.tables.get_mut(&table).into_iter().flatten() {
            if checked.index.state == IndexState::NotUnique {
                continue;
            }
            let Ok(Some(entry)) = entry(&checked.index.keys, row) else { continue };
            let is_there = self
                .conn
                .prepare_cached(
                    "SELECT 1 FROM entries
                     WHERE index_id = ?1 AND entry = ?2 AND pk = ?3 AND rk = ?4",
                )?
                .exists(params![checked.index.id.0.cast_signed(), entry, row.partition, row.row])?;
            if is_there {
                checked.found += 1;
            } else if checked.has_come_to(row) {
                problem = Some(format!("index {} has no entry for it", checked.index.name));
            }
        }
        Ok(problem)
    }

    /// What is wrong with the indexes themselves, after every entity was shown.
    pub(crate) fn finish(&self, dropped: &[Chore], last: u64) -> Result<Vec<String>, LoadError> {
        let is_swept = |index: IndexId| dropped.contains(&Chore::Entries(index));
        let mut problems = Vec::new();
        let mut known = BTreeMap::new();
        for checked in self.tables.values().flatten() {
            known.insert(checked.index.id, checked);
            if last < checked.index.id.0 {
                problems.push(format!("{}: its id was never given out", checked.name()));
            }
        }
        let mut next =
            self.conn.prepare("SELECT min(index_id) FROM entries WHERE index_id > ?1")?;
        let mut count = self.conn.prepare("SELECT count(*) FROM entries WHERE index_id = ?1")?;
        let mut id = i64::MIN;
        while let Some(found) = next.query_row([id], |row| row.get::<_, Option<i64>>(0))? {
            id = found;
            let index = IndexId(id.cast_unsigned());
            if is_swept(index) {
                continue;
            }
            let Some(checked) = known.get(&index) else {
                problems.push(format!("entries belong to no index (id {id})"));
                continue;
            };
            let entries: i64 = count.query_row([id], |row| row.get(0))?;
            let stale = entries.cast_unsigned().saturating_sub(checked.found);
            if stale > 0 {
                problems.push(format!("{}: {stale} entries belong to no entity", checked.name()));
            }
            let repeated = if checked.index.keys.unique { self.repeated(id)? } else { 0 };
            if repeated > 0 {
                let name = checked.name();
                problems
                    .push(format!("{name}: {repeated} values of a unique index are there twice"));
            }
        }
        Ok(problems)
    }

    fn repeated(&self, index: i64) -> Result<i64, LoadError> {
        let sql = "SELECT count(*) FROM
            (SELECT 1 FROM entries WHERE index_id = ?1 GROUP BY entry HAVING count(*) > 1)";
        Ok(self.conn.prepare_cached(sql)?.query_row([index], |row| row.get(0))?)
    }
}

impl Checked<'_> {
    /// Whether the entity must have been entered.
    fn has_come_to(&self, row: &Row<'_>) -> bool {
        let place = self.progress.place.as_ref();
        self.index.state == IndexState::Ready
            || place.is_some_and(|place| (row.partition, row.row) <= (&*place.0, &*place.1))
    }

    fn name(&self) -> String {
        format!("table {}, index {}", self.table.name, self.index.name)
    }
}
