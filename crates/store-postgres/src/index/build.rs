//! Entering what was there before an index: in small steps, by one server at a time.
//!
//! A step locks some entities in the order of their keys, enters them, and notes how far it came, all in one
//! transaction: whoever goes on, after a kill too, goes on from there. What is written meanwhile is kept by whoever writes
//! it, so a step only adds entries that are missing. Between two steps there is a pause as long as the step: others
//! come first.

use super::declare::{self, drain};
use super::{BUILDING, DECLARED, Entry, UNLESS_THERE, insert, keys};
use crate::batch::{self, Partition};
use crate::cache::Cache;
use crate::expire::Expirer;
use crate::fault::Fault;
use crate::key::{self, EntryKey};
use crate::nodes::Nodes;
use crate::pool::Session;
use crate::{catalogue, entity};
use rowhouse_query::index::{IndexKeys, entry};
use rowhouse_store::StoreError;
use rowhouse_types::{Record, Row};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// How often a server looks for something to build.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Between two steps, at least and at most.
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(200);
/// Entities of a step: of the first one, and of any; about so many bytes of them.
const FIRST_ROWS: i64 = 32;
const MOST_ROWS: i64 = 256;
const BYTES: usize = 1 << 20;
/// How often what has expired is removed for a step that meets a value twice.
const CLEARINGS: u32 = 2;
/// Held by whoever builds.
const LOCK: i64 = 0x726F_7768_6F75_7368;

const NEXT: &str =
    "SELECT i.iid, i.tid, i.properties, i.is_unique, i.state, i.place_kp, i.place_rest
    FROM rowhouse.indexes i
    WHERE i.dropped IS NULL AND i.state < 2 AND pg_try_advisory_xact_lock($1)
    ORDER BY i.iid LIMIT 1";
const COUNT: &str = "SELECT count(*) FROM rowhouse.entities e WHERE e.tid = $1";
const BEGIN: &str = "UPDATE rowhouse.indexes SET state = $2, expected = $3
    WHERE iid = $1 AND state = $4 AND dropped IS NULL";
const ENTITIES: &str = "SELECT e.kp, e.rest, e.pl, e.kh, e.dk, e.ts, e.names, e.props
    FROM rowhouse.entities e WHERE e.tid = $1 AND (e.kp, e.rest) > ($2, $3)
    ORDER BY e.kp, e.rest LIMIT $4 FOR SHARE OF e";
/// On a cluster rows can be locked only partition by partition.
const KEYS: &str = "SELECT e.kp, e.rest, e.pl, e.kh, e.dk
    FROM rowhouse.entities e WHERE e.tid = $1 AND (e.kp, e.rest) > ($2, $3)
    ORDER BY e.kp, e.rest LIMIT $4";
const NOTE: &str = "UPDATE rowhouse.indexes
    SET place_kp = $2, place_rest = $3, examined = examined + $4 WHERE iid = $1";

/// Builds indexes for as long as the store is open.
pub(crate) async fn keep_building(
    nodes: Arc<Nodes>,
    cache: Arc<Cache>,
    expirer: Expirer,
    wake: Arc<Notify>,
) {
    let mut builder = Builder { nodes, cache, expirer, rows: FIRST_ROWS, cleared: (0, 0) };
    loop {
        let _ = tokio::time::timeout(LOOK_EVERY, wake.notified()).await;
        if let Err(fault) = builder.build().await {
            tracing::debug!(?fault, "building an index goes on later");
        }
    }
}

struct Builder {
    nodes: Arc<Nodes>,
    cache: Arc<Cache>,
    expirer: Expirer,
    /// Entities of the next step.
    rows: i64,
    /// How often what has expired was removed for the next step of that index.
    cleared: (i64, u32),
}

/// An index that is being built.
struct Unfinished {
    id: i64,
    table: i64,
    keys: IndexKeys,
    place: (Vec<u8>, Vec<u8>),
}

/// What a step did.
enum Step {
    Entered,
    /// Nothing is left to enter.
    Last(i64),
    /// It can never be unique, unless one of the two has expired.
    NotUnique {
        index: i64,
        table: i64,
    },
    /// Writes may be under way that do not know of it.
    Declared {
        index: i64,
        table: i64,
    },
    Nothing,
}

impl Builder {
    /// Until nothing is left, or another server does it.
    async fn build(&mut self) -> Result<(), Fault> {
        loop {
            let began = Instant::now();
            let session = self.nodes.first().session().await?;
            session.begin("BEGIN").await?;
            let step = self.step(&session).await?;
            if let Step::NotUnique { .. } = step {
                session.roll_back().await;
            } else {
                session.end("COMMIT").await?;
            }
            drop(session);
            match step {
                Step::Entered => {}
                Step::Last(index) => self.change(index, true).await?,
                Step::NotUnique { index, table } => {
                    // What has expired must not keep others from having its values. But where something expires all
                    // the time, something is always removed: two that live would be tried without an end.
                    let times = if self.cleared.0 == index { self.cleared.1 } else { 0 };
                    if times < CLEARINGS && self.expirer.remove_all(table).await? {
                        self.cleared = (index, times + 1);
                        continue;
                    }
                    self.change(index, false).await?;
                }
                Step::Declared { index, table } => self.begin(index, table).await?,
                Step::Nothing => return Ok(()),
            }
            self.cleared = (0, 0);
            tokio::time::sleep(began.elapsed().clamp(PAUSE_MIN, PAUSE_MAX)).await;
        }
    }

    /// Once every write knows of the index.
    async fn begin(&self, index: i64, table: i64) -> Result<(), Fault> {
        drain(&self.nodes).await?;
        let session = self.nodes.first().session().await?;
        // Only to tell how far it is: if that takes too long, nobody is told.
        let counted = session.row(COUNT, &[&table]).await;
        let expected: Option<i64> = counted.ok().flatten().map(|row| row.get(0));
        session.execute(BEGIN, &[&index, &BUILDING, &expected, &DECLARED]).await?;
        Ok(())
    }

    /// It is ready, or never will be.
    async fn change(&self, index: i64, ready: bool) -> Result<(), Fault> {
        if self.nodes.is_cluster() {
            // A node that was lost may have entries that are not committed yet.
            drain(&self.nodes).await?;
        }
        let session = Arc::new(self.nodes.first().session().await?);
        let work = |session: Arc<Session>| async move {
            if ready {
                declare::finish(&session, index).await
            } else {
                declare::give_up(&session, index).await
            }
        };
        let changed = catalogue::change(session, work).await;
        self.cache.forget();
        changed?.1
    }

    async fn step(&mut self, session: &Session) -> Result<Step, Fault> {
        let Some(row) = session.row(NEXT, &[&LOCK]).await? else { return Ok(Step::Nothing) };
        let (index, table) = (row.get(0), row.get(1));
        if row.get::<_, i16>(4) == DECLARED {
            return Ok(Step::Declared { index, table });
        }
        let unfinished = Unfinished {
            id: index,
            table,
            keys: keys(row.get(2), row.get(3)),
            place: (row.get(5), row.get(6)),
        };
        let wanted = self.rows;
        let entered = if self.nodes.is_cluster() {
            unfinished.enter_by_partition(session, wanted).await
        } else {
            unfinished.enter(session, wanted).await
        };
        let (found, bytes) = match entered {
            Err(Fault::Duplicate) => return Ok(Step::NotUnique { index, table }),
            entered => entered?,
        };
        self.rows = if bytes > 2 * BYTES { wanted / 2 } else { 2 * wanted };
        self.rows =
            if bytes > BYTES { self.rows.min(wanted) } else { self.rows }.clamp(1, MOST_ROWS);
        Ok(if found < wanted { Step::Last(index) } else { Step::Entered })
    }
}

impl Unfinished {
    /// Enters the next entities; how many were looked at, and about how many bytes.
    async fn enter(&self, session: &Session, wanted: i64) -> Result<(i64, usize), Fault> {
        let (prefix, rest) = &self.place;
        let rows = session.rows(ENTITIES, &[&self.table, prefix, rest, &wanted]).await?;
        let mut entries = Vec::new();
        let mut bytes = 0;
        for row in &rows {
            let record = entity::record(row, 5)?;
            bytes += record.as_bytes().len();
            entries.extend(self.entry(row, &record)?);
        }
        self.write(session, &rows, &entries).await?;
        Ok((i64::try_from(rows.len()).unwrap_or(i64::MAX), bytes))
    }

    /// The same with the locks that a cluster has.
    async fn enter_by_partition(
        &self,
        session: &Session,
        wanted: i64,
    ) -> Result<(i64, usize), Fault> {
        let (prefix, rest) = &self.place;
        let rows = session.rows(KEYS, &[&self.table, prefix, rest, &wanted]).await?;
        let mut homes: BTreeMap<i64, Vec<&tokio_postgres::Row>> = BTreeMap::new();
        for row in &rows {
            homes.entry(row.get(4)).or_default().push(row);
        }
        let mut entries = Vec::new();
        let mut bytes = 0;
        for (home, keys) in homes {
            let prefixes: Vec<&[u8]> = keys.iter().map(|row| row.get(0)).collect();
            let hashes: Vec<&[u8]> = keys.iter().map(|row| row.get(3)).collect();
            let partition = Partition { table: self.table, home };
            for locked in batch::lock_rows(session, partition, &prefixes, &hashes).await? {
                let named = |row: &&&tokio_postgres::Row| {
                    row.get::<_, &[u8]>(0) == locked.get::<_, &[u8]>(0)
                        && row.get::<_, &[u8]>(3) == locked.get::<_, &[u8]>(1)
                };
                let Some(row) = keys.iter().find(named) else { continue };
                let record = entity::record(&locked, 2)?;
                bytes += record.as_bytes().len();
                entries.extend(self.entry(row, &record)?);
            }
        }
        self.write(session, &rows, &entries).await?;
        Ok((i64::try_from(rows.len()).unwrap_or(i64::MAX), bytes))
    }

    /// What the entity is entered under; the row starts with `kp, rest, pl, kh, dk`.
    fn entry(&self, row: &tokio_postgres::Row, record: &Record) -> Result<Option<Entry>, Fault> {
        let mut buffer = Vec::new();
        let (prefix, rest): (&[u8], &[u8]) = (row.get(0), row.get(1));
        let halves = key::split(prefix, rest, row.get(2), &mut buffer);
        let (partition, row_key) =
            halves.ok_or_else(|| StoreError::Corrupt("a key is none".to_owned()))?;
        let record = record.as_ref();
        let bytes = entry(&self.keys, &Row { partition, row: row_key, record })?;
        Ok(bytes.map(|bytes| Entry {
            home: row.get(4),
            index: self.id,
            bytes,
            key: EntryKey::new([prefix, rest].concat()),
            unique: self.keys.unique,
        }))
    }

    async fn write(
        &self,
        session: &Session,
        rows: &[tokio_postgres::Row],
        entries: &[Entry],
    ) -> Result<(), Fault> {
        insert(session, entries, UNLESS_THERE).await?;
        if let Some(last) = rows.last() {
            let (prefix, rest): (&[u8], &[u8]) = (last.get(0), last.get(1));
            let looked_at = i64::try_from(rows.len()).unwrap_or(i64::MAX);
            session.execute(NOTE, &[&self.id, &prefix, &rest, &looked_at]).await?;
        }
        Ok(())
    }
}
