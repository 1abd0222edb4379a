//! Indexes are declared and dropped: changes of the catalogue, run by the committer.

use crate::catalogue::state_number;
use crate::change::Draft;
use crate::committer::Fault;
use crate::jobs::Answer;
use rowhouse_query::index::IndexKeys;
use rowhouse_store::{Conflict, Index, IndexId, IndexState, TableId};
use rowhouse_types::{IndexName, limits};
use rusqlite::{Connection, params};

/// Declares an index. That of an empty table is ready at once.
pub(crate) fn create(
    conn: &Connection,
    draft: &mut Draft,
    table: TableId,
    name: IndexName,
    keys: IndexKeys,
) -> Result<Answer, Fault> {
    let Some(found) = draft.catalogue.table_by_id(table) else {
        return Err(Fault::Rejected(Conflict::TableNotFound));
    };
    if found.indexes.iter().any(|index| index.name == name) {
        return Err(Fault::Rejected(Conflict::IndexExists));
    }
    if limits::INDEXES_MAX <= found.indexes.len() {
        return Err(Fault::Rejected(Conflict::TooManyIndexes));
    }
    let is_empty = !conn
        .prepare_cached("SELECT 1 FROM entities WHERE table_id = ?1 LIMIT 1")?
        .exists([table.0.cast_signed()])?;
    let (state, expected) =
        if is_empty { (IndexState::Ready, Some(0)) } else { (IndexState::Building, None) };
    draft.marks.last_index += 1;
    let id = IndexId(draft.marks.last_index);
    conn.prepare_cached(
        "INSERT INTO indexes (id, table_id, name, is_unique, state, examined, expected)
         VALUES (?1, ?2, ?3, ?4, ?5, 0, ?6)",
    )?
    .execute(params![
        id.0.cast_signed(),
        table.0.cast_signed(),
        name.as_str(),
        keys.unique,
        state_number(state),
        expected,
    ])?;
    let mut insert = conn.prepare_cached(
        "INSERT INTO index_properties (index_id, position, name) VALUES (?1, ?2, ?3)",
    )?;
    for (position, property) in (0_i64..).zip(&keys.properties) {
        insert.execute(params![id.0.cast_signed(), position, &**property])?;
    }
    let index = Index { id, name, keys, state };
    draft.catalogue.change_table(table, |table| table.indexes.push(index.clone()));
    if !is_empty {
        draft.building.push((table, id));
    }
    Ok(Answer::Index(index))
}

/// Drops one index.
pub(crate) fn drop_one(
    conn: &Connection,
    draft: &mut Draft,
    table: TableId,
    index: IndexId,
) -> Result<Answer, Fault> {
    let found = draft.catalogue.table_by_id(table);
    if found.is_none_or(|table| super::find(table, index).is_none()) {
        return Err(Fault::Rejected(Conflict::IndexNotFound));
    }
    remove(conn, draft, index)?;
    draft.catalogue.change_table(table, |table| table.indexes.retain(|it| it.id != index));
    Ok(Answer::Done)
}

/// Removes an index from the database; the caller sees to the catalogue.
pub(crate) fn remove(
    conn: &Connection,
    draft: &mut Draft,
    index: IndexId,
) -> Result<(), rusqlite::Error> {
    let id = index.0.cast_signed();
    conn.prepare_cached("DELETE FROM index_properties WHERE index_id = ?1")?.execute([id])?;
    conn.prepare_cached("DELETE FROM indexes WHERE id = ?1")?.execute([id])?;
    give_up_entries(conn, draft, index)
}

/// Has the entries swept: nobody reads or keeps them any more.
pub(crate) fn give_up_entries(
    conn: &Connection,
    draft: &mut Draft,
    index: IndexId,
) -> Result<(), rusqlite::Error> {
    conn.prepare_cached(
        "INSERT INTO dropped_indexes (index_id) VALUES (?1) ON CONFLICT DO NOTHING",
    )?
    .execute([index.0.cast_signed()])?;
    draft.dropped_indexes.push(index);
    Ok(())
}

/// The index is in another state from now on.
pub(crate) fn set_state(
    conn: &Connection,
    draft: &mut Draft,
    table: TableId,
    index: IndexId,
    state: IndexState,
) -> Result<(), rusqlite::Error> {
    conn.prepare_cached("UPDATE indexes SET state = ?2 WHERE id = ?1")?
        .execute(params![index.0.cast_signed(), state_number(state)])?;
    draft.catalogue.change_table(table, |table| {
        for found in table.indexes.iter_mut().filter(|found| found.id == index) {
            found.state = state;
        }
    });
    draft.catalogue_changed = true;
    Ok(())
}
