//! About how many bytes of entities and messages a database holds, told by a handful of its pages.
//!
//! From the pages that are in use, less the changes that are kept, as far as a few of them tell. Entries of secondary indexes are among the rest:
//! a table with many of them holds less than this says.

use crate::committer::Fault;
use rowhouse_store::StoreError;
use rusqlite::Connection;

/// Of a page in use, so many hundredths are keys and records; the rest is what SQLite adds, and room that is left.
const FILLED: u64 = 85;
/// Kept changes whose length is looked at.
const CHANGES: &str = "SELECT
        coalesce((SELECT max(sequence) FROM changes) - (SELECT min(sequence) FROM changes) + 1, 0),
        coalesce((SELECT avg(length(batch)) FROM
            (SELECT batch FROM changes ORDER BY sequence DESC LIMIT 64)), 0.0)";
const PAGES: &str = "SELECT page_count - freelist_count, page_size
    FROM pragma_page_count(), pragma_freelist_count(), pragma_page_size()";

pub(crate) fn read(conn: &Connection) -> Result<u64, StoreError> {
    bytes(conn).map_err(Fault::into_store_error)
}

fn bytes(conn: &Connection) -> Result<u64, Fault> {
    let (pages, size): (i64, i64) =
        conn.query_row(PAGES, [], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let (batches, each): (i64, f64) =
        conn.query_row(CHANGES, [], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let used = pages.unsigned_abs().saturating_mul(size.unsigned_abs());
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a length")]
    let changes = batches.unsigned_abs().saturating_mul(each as u64);
    Ok((used.saturating_mul(FILLED) / 100).saturating_sub(changes))
}
