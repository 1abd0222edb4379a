//! How much there is to read, counted up to a bound.

use crate::committer::Fault;
use crate::index::lookup::Stream;
use crate::index::{Way, guarded, walk, within};
use crate::scan::{FROM, Step, View, text};
use crate::store::Shared;
use rowhouse_store::{Extent, StoreError, TableId};
use rowhouse_types::{Direction, KeyRange};
use rusqlite::{Connection, params};

/// Entries outside the ranges that are passed between looks whether anybody still waits.
const PASSED_PER_LOOK: u64 = 256;

/// How many entities or entries within the ranges one would look at, no further than the bound.
pub(crate) fn weigh(
    conn: &Connection,
    shared: &Shared,
    table: TableId,
    extent: &Extent,
    bound: u64,
    abandoned: &dyn Fn() -> bool,
) -> Result<u64, StoreError> {
    let indexes: Vec<_> = match extent {
        Extent::Keys(_) => Vec::new(),
        Extent::Entries(parts, _) => parts.iter().map(|part| part.index).collect(),
    };
    guarded(shared, table, &indexes, |table| {
        let (_view, _) = View::latest(conn, shared)?;
        match extent {
            Extent::Keys(ranges) => entities(conn, table.id, ranges, bound, abandoned),
            Extent::Entries(parts, ranges) => {
                entries(conn, &Way::all(table, parts)?, ranges, bound, abandoned)
            }
        }
    })
}

fn entities(
    conn: &Connection,
    table: TableId,
    ranges: &[KeyRange],
    bound: u64,
    abandoned: &dyn Fn() -> bool,
) -> Result<u64, Fault> {
    let mut statement = conn.prepare_cached(FROM)?;
    let mut counted = 0;
    for range in ranges {
        if abandoned() {
            break;
        }
        let start = &range.start;
        let table = table.0.cast_signed();
        let mut rows = statement.query(params![table, &*start.partition, &*start.row])?;
        while counted < bound
            && let Some(row) = rows.next()?
            && range.contains(text(row, 0)?, text(row, 1)?)
        {
            counted += 1;
        }
    }
    Ok(counted)
}

fn entries(
    conn: &Connection,
    ways: &[Way<'_>],
    ranges: &[KeyRange],
    bound: u64,
    abandoned: &dyn Fn() -> bool,
) -> Result<u64, Fault> {
    let (mut counted, mut passed) = (0, 0_u64);
    for way in ways {
        for span in way.spans {
            if abandoned() {
                return Ok(counted);
            }
            if let Some(entry) = span.single() {
                let mut stream = Stream::new(way.id, entry, ranges, Direction::Ascending);
                while counted < bound && stream.next(conn)?.is_some() {
                    counted += 1;
                }
                continue;
            }
            walk::entries(conn, way.id, span, |_, partition, row| {
                if counted == bound {
                    return Ok(Step::Stop);
                }
                if within(ranges, partition, row) {
                    counted += 1;
                    return Ok(Step::Next);
                }
                passed += 1;
                let left = passed.is_multiple_of(PASSED_PER_LOOK) && abandoned();
                Ok(if left { Step::Stop } else { Step::Next })
            })?;
        }
    }
    Ok(counted)
}
