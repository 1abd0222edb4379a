//! Pages in the order of properties that no index has, read piece by piece within one read transaction.

use super::{Ask, View, read, rows_per_look};
use crate::checkpoint::Whole;
use crate::index;
use crate::store::Shared;
use rowhouse_store::{First, Sort, StoreError, TableId, WalkPage};
use rusqlite::Connection;
use std::sync::Arc;
use std::time::Instant;

/// Reads a page of what is committed now; none if there was not enough time.
pub(crate) fn page(
    conn: &Connection,
    shared: &Arc<Shared>,
    table: TableId,
    sort: &Sort,
    abandoned: &dyn Fn() -> bool,
) -> Result<Option<WalkPage>, StoreError> {
    let indexes: Vec<_> = sort.through.iter().flatten().map(|part| part.index).collect();
    index::guarded(shared, table, &indexes, |table| {
        let (_view, batch) = View::latest(conn, shared)?;
        let now = shared.now(table);
        let rows = rows_per_look(sort.filter.as_deref());
        let whole = Whole::new(shared, rows, abandoned);
        let abandoned = || whole.look();
        let mut first = First::new(sort);
        let mut piece = sort.piece();
        loop {
            let role = Ask { shared, table, now, batch }.role(&piece);
            let page = read(conn, table, &piece, now, &abandoned, role)?;
            first.take(&page)?;
            let Some(next) = page.next else { return Ok(Some(first.finish())) };
            if sort.deadline <= Instant::now() || abandoned() {
                return Ok(None);
            }
            piece.ranges = sort.rest(&next);
        }
    })
}
