//! Views of the whole store at one moment.
//!
//! A view is a read transaction on a connection and a thread of its own, that lets others go first, so it is in nobody's way. It keeps the
//! write-ahead log from starting again for as long as it lives (`checkpoint`), so the log grows meanwhile by what is written.

use crate::catalogue::Catalogue;
use crate::committer::Fault;
use crate::estimate;
use crate::log;
use crate::queue;
use crate::scan::{self, Role, Scans};
use crate::schema::{self, Marks};
use crate::store::{About, Shared, spawn};
use async_trait::async_trait;
use rowhouse_store::{
    Account, AccountId, Changes, ChangesWanted, Conflict, Estimate, MessagePage, MessagePlace,
    Page, Queue, QueueId, Scan, Snapshot, StoreError, Table, TableId,
};
use rowhouse_types::Timestamp;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Memory for pages of the database.
const CACHE_BYTES: u64 = 4 * 1024 * 1024;
/// Pages that may be asked for at the same time.
const PAGES: usize = 4;

/// The store as it was.
#[derive(Debug)]
pub(crate) struct Frozen {
    place: u64,
    tick: Timestamp,
    /// The time of queues.
    queue_time: Timestamp,
    catalogue: Catalogue,
    scans: Arc<Scans>,
    shared: Arc<Shared>,
}

impl Frozen {
    /// Takes a view of what is committed now.
    pub(crate) fn take(shared: &Arc<Shared>) -> Result<Self, Fault> {
        let conn = schema::reader(shared.database(), CACHE_BYTES, shared.fit.fits())?;
        conn.execute_batch("BEGIN DEFERRED")?;
        // The first thing that is read fixes the moment.
        let marks = Marks::load(&conn)?;
        shared.readers.advance(marks.sequence);
        let catalogue = Catalogue::load(&conn)?;
        let scans = Arc::new(Scans::default());
        let queue_time = shared.queue_time.now();
        let (work, of_thread) = (Arc::clone(&scans), Arc::clone(shared));
        shared.frozen.fetch_add(1, Ordering::AcqRel);
        spawn("rowhouse-view", move || {
            // Who reads everything must not hold up who reads one thing.
            rowhouse_env::step_back();
            let _thawed = Thaw(&of_thread.frozen);
            scan::run(&conn, &of_thread, &work);
        });
        let shared = Arc::clone(shared);
        Ok(Self { place: marks.sequence, tick: marks.tick, queue_time, catalogue, scans, shared })
    }
}

/// Counts a view off.
struct Thaw<'a>(&'a AtomicUsize);

impl Drop for Thaw<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        self.scans.close();
    }
}

#[async_trait]
impl Snapshot for Frozen {
    fn place(&self) -> u64 {
        self.place
    }

    async fn estimate(&self) -> Result<Option<Estimate>, StoreError> {
        let read = |conn: &_, _: &_, _: &dyn Fn() -> bool| estimate::read(conn);
        self.scans.ask(PAGES, read).await.map(|bytes| Some(Estimate::Bytes(bytes)))
    }

    async fn accounts(&self) -> Result<Vec<Arc<Account>>, StoreError> {
        Ok(self.catalogue.accounts().cloned().collect())
    }

    async fn tables(&self, account: AccountId) -> Result<Vec<Arc<Table>>, StoreError> {
        Ok(self.catalogue.tables(account, None).cloned().collect())
    }

    async fn scan(&self, table: TableId, scan: Scan) -> Result<Page, StoreError> {
        let Some(table) = self.catalogue.table_by_id(table).cloned() else {
            return Err(StoreError::rejected(Conflict::TableNotFound));
        };
        if scan.through.is_some() {
            return Err(StoreError::rejected(Conflict::IndexNotFound));
        }
        // What has expired is part of it: it may come back.
        let id = table.id;
        let (table, now) = (Table { ttl: None, ..Table::clone(&table) }, self.tick);
        let read = move |conn: &_, _: &_, abandoned: &dyn Fn() -> bool| {
            scan::read(conn, &table, &scan, now, abandoned, Role::Alone)
                .map_err(Fault::into_store_error)
        };
        self.shared.noticed(About::Table(id), self.scans.ask(PAGES, read).await)
    }

    async fn queues(&self, account: AccountId) -> Result<Vec<Arc<Queue>>, StoreError> {
        Ok(self.catalogue.queues(account, "").cloned().collect())
    }

    async fn messages(
        &self,
        queue: QueueId,
        from: Option<MessagePlace>,
        limit: usize,
        max_bytes: usize,
    ) -> Result<MessagePage, StoreError> {
        if self.catalogue.queue_by_id(queue).is_none() {
            return Err(StoreError::rejected(Conflict::QueueNotFound));
        }
        let now = self.queue_time;
        let read = move |conn: &_, _: &_, _: &dyn Fn() -> bool| {
            let page = queue::read::page(conn, queue, from, (limit, max_bytes), now);
            page.map_err(Fault::into_store_error)
        };
        self.shared.noticed(About::Queue(queue), self.scans.ask(PAGES, read).await)
    }

    async fn changes(&self, wanted: ChangesWanted) -> Result<Changes, StoreError> {
        let read = move |conn: &_, _: &_, _: &dyn Fn() -> bool| log::read_within(conn, &wanted);
        self.scans.ask(PAGES, read).await
    }
}
