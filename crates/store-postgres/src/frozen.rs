//! Views of the whole database at one moment: a transaction that only reads, on a connection of its own.
//!
//! PostgreSQL keeps what the view shows for as long as it lives, so a view that lives long makes the database grow.

use crate::fault::Fault;
use crate::nodes::Nodes;
use crate::pool::Session;
use crate::queue::{self, Now};
use crate::{catalogue, log, scan};
use async_trait::async_trait;
use rowhouse_store::{
    Account, AccountId, Changes, ChangesWanted, Conflict, Estimate, MessagePage, MessagePlace,
    Page, Queue, QueueId, Scan, Snapshot, StoreError, Table, TableId,
};
use rowhouse_types::QueueName;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const BEGIN: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;
    SET LOCAL idle_in_transaction_session_timeout = '10min'";
/// Rows that a page asks for: of the first one, and of any.
const FIRST_ROWS: usize = 256;
const LEAST_ROWS: usize = 4;
const MOST_ROWS: usize = 16 * 1024;
/// Tables or queues that are read at a time.
const TABLES: usize = 1000;

/// How many rows there are as the database last counted some of them, for as many pages as there are now; null if it has not
/// counted yet. On a Citus cluster the rows are elsewhere, and there are none here.
const ESTIMATE: &str =
    "SELECT CASE WHEN bool_and(rows IS NOT NULL) THEN sum(rows)::bigint END FROM (
        SELECT CASE
            WHEN pg_catalog.pg_relation_size(c.oid) = 0 THEN 0
            WHEN c.reltuples > 0 AND c.relpages > 0 THEN c.reltuples::float8 / c.relpages
                * pg_catalog.pg_relation_size(c.oid) / pg_catalog.current_setting('block_size')::int
        END AS rows
        FROM pg_catalog.pg_class c
        WHERE c.oid IN ('rowhouse.entities'::regclass, 'rowhouse.messages'::regclass)
    ) AS counted";

/// The store as it was.
pub(crate) struct Frozen {
    session: Session,
    place: u64,
    /// When it was taken, for messages that have expired since.
    queue_now: Now,
    /// How many rows the next page may ask for: about as many as it has room for. What is asked for and does not fit
    /// has to be read all the same before the page after it.
    rows: AtomicUsize,
    /// How many shards of a cluster entities are on; none without one.
    shards: usize,
}

impl fmt::Debug for Frozen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frozen").field("place", &self.place).finish_non_exhaustive()
    }
}

impl Frozen {
    pub(crate) async fn take(nodes: &Nodes, queue_now: Now) -> Result<Self, StoreError> {
        let session = nodes.first().session().await?;
        let begin = async {
            // Before the view, which then has all of it.
            let place = log::own_place(&session).await?.unsigned_abs();
            session.begin(BEGIN).await?;
            // The first thing that is read fixes the moment.
            catalogue::accounts(&session).await?;
            let row = session.row("SELECT coalesce($1, rowhouse.clock())", &[&queue_now.0]).await?;
            Ok((place, Now(row.map(|row| row.get(0)))))
        };
        let (place, queue_now) = begin.await.map_err(Fault::of_a_read)?;
        let (rows, shards) = (AtomicUsize::new(FIRST_ROWS), nodes.shards());
        Ok(Self { session, place, queue_now, rows, shards })
    }
}

#[async_trait]
impl Snapshot for Frozen {
    fn place(&self) -> u64 {
        self.place
    }

    async fn estimate(&self) -> Result<Option<Estimate>, StoreError> {
        let row = self.session.row(ESTIMATE, &[]).await.map_err(Fault::of_a_read)?;
        let rows: Option<i64> = row.and_then(|row| row.get(0));
        Ok(rows.filter(|rows| 0 < *rows).map(|rows| Estimate::Items(rows.unsigned_abs())))
    }

    async fn accounts(&self) -> Result<Vec<Arc<Account>>, StoreError> {
        catalogue::accounts(&self.session).await.map_err(Fault::of_a_read)
    }

    async fn tables(&self, account: AccountId) -> Result<Vec<Arc<Table>>, StoreError> {
        let mut all: Vec<Arc<Table>> = Vec::new();
        loop {
            // The last one again, as the place to go on from.
            let from = all.pop().map(|table| table.name.folded());
            let more = catalogue::tables(&self.session, account, from.as_ref(), TABLES).await;
            let more = more.map_err(Fault::of_a_read)?;
            let is_last = more.len() < TABLES;
            all.extend(more);
            if is_last {
                return Ok(all);
            }
        }
    }

    async fn scan(&self, table: TableId, mut scan: Scan) -> Result<Page, StoreError> {
        scan.limit = scan.limit.min(self.rows.load(Ordering::Relaxed));
        let read = async {
            let known = catalogue::table_of(&self.session, table).await?;
            let known = known.ok_or(Conflict::TableNotFound)?;
            let number = catalogue::number(table).unwrap_or(-1);
            let placement = &known.table.placement;
            // What has expired is part of it: it may come back.
            let (expiry, shards) = (None, self.shards);
            let source = scan::Source { id: table, number, placement, expiry, shards };
            scan::page_within(&self.session, source, &scan).await
        };
        let page = read.await.map_err(Fault::of_a_read)?;
        let rows = page.rows.len();
        let next = if rows < scan.limit { rows + rows / 4 } else { 2 * scan.limit };
        self.rows.store(next.clamp(LEAST_ROWS, MOST_ROWS), Ordering::Relaxed);
        Ok(page)
    }

    async fn queues(&self, account: AccountId) -> Result<Vec<Arc<Queue>>, StoreError> {
        let mut all: Vec<Arc<Queue>> = Vec::new();
        loop {
            // The last one again, as the place to go on from.
            let from = all.pop().map(|queue| queue.name.clone());
            let from = from.as_ref().map_or("", QueueName::as_str);
            let more = queue::catalogue::queues(&self.session, account, from, TABLES).await;
            let more = more.map_err(Fault::of_a_read)?;
            let is_last = more.len() < TABLES;
            all.extend(more);
            if is_last {
                return Ok(all);
            }
        }
    }

    async fn messages(
        &self,
        queue: QueueId,
        from: Option<MessagePlace>,
        limit: usize,
        max_bytes: usize,
    ) -> Result<MessagePage, StoreError> {
        let page =
            queue::read::page(&self.session, queue, from, (limit, max_bytes), self.queue_now);
        page.await.map_err(Fault::of_a_read)
    }

    async fn changes(&self, wanted: ChangesWanted) -> Result<Changes, StoreError> {
        log::read_within(&self.session, &wanted).await.map_err(Fault::of_a_read)
    }
}
