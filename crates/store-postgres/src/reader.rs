//! Reads, the same on the database and on a replica of it.

use crate::cache::{Cache, Known};
use crate::fault::Fault;
use crate::key::{self, DbKey};
use crate::load::{Kind, Meter};
use crate::nodes::Nodes;
use crate::pool::Session;
use crate::queue::{self, Now};
use crate::time::ExpiryTime;
use crate::{catalogue, entity, index, scan};
use rowhouse_store::{
    Account, AccountId, Built, Conflict, Expiry, Extent, IndexId, Message, Page, Queue, QueueId,
    Scan, Sort, StoreError, Table, TableId, Walk, WalkPage,
};
use rowhouse_types::{
    AccountName, EntityKey, FoldedName, KeyRange, QueueName, Record, TableName, limits,
};
use std::sync::Arc;
use std::time::Duration;

/// How long a read waits for those before it, and for its answer, on a connection that it shares; then it asks again on one of its
/// own. As long as others wait for a connection, so that a database that is merely slow is asked once.
pub(crate) const BESIDE_OTHERS: Duration = Duration::from_secs(2);

/// Reads on the connections to a database and its nodes, with a cache of accounts and tables.
#[derive(Debug)]
pub(crate) struct Reader {
    pub(crate) nodes: Arc<Nodes>,
    pub(crate) cache: Arc<Cache>,
    pub(crate) time: ExpiryTime,
}

impl Reader {
    /// Reads the catalogue on a connection; once more on another if it was lost.
    pub(crate) async fn read<T, F>(&self, work: impl Fn(Session) -> F) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, Fault>>,
    {
        self.read_on(self.nodes.first().session().await?, work).await
    }

    /// Reads on the connection; once more on another, to the database that was named, if it was lost, or if it is to a
    /// node of a cluster that has not heard of an index yet. The one that was named hears of it first.
    async fn read_on<T, F>(
        &self,
        session: Session,
        work: impl Fn(Session) -> F,
    ) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, Fault>>,
    {
        let read = Box::pin(async {
            match work(session).await {
                Err(Fault::Lost(error)) => {
                    tracing::debug!(%error, "a connection was lost; reading again");
                    let session = self.nodes.first().session().await?;
                    work(session).await
                }
                Err(Fault::Rejected(_, Conflict::IndexNotFound)) if self.nodes.is_cluster() => {
                    let session = self.nodes.first().session().await?;
                    work(session).await
                }
                result => result,
            }
        });
        self.in_time(read).await.map_err(Fault::of_a_read)
    }

    /// Waits for what only reads as long as a read is waited for.
    pub(crate) async fn in_time<T>(
        &self,
        read: impl Future<Output = Result<T, Fault>>,
    ) -> Result<T, Fault> {
        within(self.nodes.options().read_within, read).await
    }

    /// What is known of a table: for ever who it belongs to and where its partitions live, and otherwise what the
    /// database judges.
    pub(crate) async fn known(&self, id: TableId) -> Result<Known, Fault> {
        if let Some(table) = self.cache.table_of(id) {
            return Ok(table);
        }
        let read = self.cache.generation();
        let find = Box::pin(async {
            let session = self.nodes.first().session().await?;
            catalogue::table_of(&session, id).await
        });
        let known = self.in_time(find).await?.ok_or(Conflict::TableNotFound)?;
        self.cache.keep_table(read, &known);
        Ok(known)
    }

    /// A table as it is: from the cache if that may be trusted.
    async fn current(&self, id: TableId, trust: bool) -> Result<Arc<Table>, StoreError> {
        if trust {
            return Ok(self.known(id).await.map_err(Fault::of_a_read)?.table);
        }
        let found = self.read(|session| async move { catalogue::table_of(&session, id).await });
        let known = found.await?.ok_or_else(|| StoreError::rejected(Conflict::TableNotFound))?;
        Ok(known.table)
    }

    /// What has expired now. Nobody asks the clock for a table that keeps its entities.
    fn expiry<'a>(&self, table: &'a Table) -> Option<Expiry<'a>> {
        table.ttl.as_ref().map(|ttl| ttl.at(self.time.now()))
    }

    pub(crate) async fn get(
        &self,
        table: TableId,
        key: &EntityKey,
        trust: bool,
    ) -> Result<Option<Record>, StoreError> {
        let known = self.current(table, trust).await?;
        let number = catalogue::number(table).unwrap_or(-1);
        let home = key::home(table, &known.placement, key.partition.as_str());
        let key = &DbKey::new(key);
        let place = entity::Place { home, table: number, key };
        let found = match self.get_beside_others(place).await {
            Ok(found) => found?,
            Err(counted) => self.get_alone(place, counted).await?,
        };
        if let (Some(expiry), Some(record)) = (self.expiry(&known), &found)
            && expiry.has_expired(record.as_ref())?
        {
            return Ok(None);
        }
        Ok(found)
    }

    /// Reads on a connection that others read on, too. An error if there is none, or if it was lost or is slow; then the read is
    /// counted by what this holds.
    async fn get_beside_others(
        &self,
        place: entity::Place<'_>,
    ) -> Result<Result<Option<Record>, StoreError>, Option<Meter>> {
        let (shared, meter) = self.nodes.shared_at(place.home).ok_or(None)?;
        let get = entity::get(shared.session(), place);
        let Ok(read) = tokio::time::timeout(BESIDE_OTHERS, get).await else {
            return Err(Some(meter));
        };
        shared.answered();
        match read {
            Err(Fault::Lost(_)) => Err(Some(meter)),
            Err(fault) => Ok(Err(fault.of_a_read())),
            Ok(found) => {
                meter.answered(usize::from(found.is_some()));
                Ok(Ok(found))
            }
        }
    }

    /// Reads on a connection of its own, which others may share afterwards. It may be counted already.
    async fn get_alone(
        &self,
        place: entity::Place<'_>,
        counted: Option<Meter>,
    ) -> Result<Option<Record>, StoreError> {
        let (session, meter) = match counted {
            Some(meter) => (self.nodes.session_again_at(place.home).await?, meter),
            None => self.nodes.session_at(place.home, Kind::Read).await?,
        };
        let get = |session: Session| async move {
            let found = entity::get(&session, place).await?;
            session.share();
            Ok(found)
        };
        let found = self.read_on(session, get).await?;
        meter.answered(usize::from(found.is_some()));
        Ok(found)
    }

    pub(crate) async fn scan(
        &self,
        table: TableId,
        scan: &Scan,
        trust: bool,
    ) -> Result<Page, StoreError> {
        let known = self.current(table, trust).await?;
        let expiry = self.expiry(&known);
        let source = self.source(table, &known, expiry);
        let (session, meter) = self.session_for(source, scan.ranges.first()).await?;
        let page = |session| async move {
            let page = scan::page(&session, source, scan).await?;
            // Nothing is what a table shows that was dropped, too.
            if page.examined == 0 && catalogue::table_of(&session, table).await?.is_none() {
                return Err(Conflict::TableNotFound.into());
            }
            Ok(page)
        };
        let page = self.read_on(session, page).await?;
        meter.answered(page.rows.len());
        Ok(page)
    }

    fn source<'a>(
        &self,
        id: TableId,
        table: &'a Table,
        expiry: Option<Expiry<'a>>,
    ) -> scan::Source<'a> {
        let number = catalogue::number(id).unwrap_or(-1);
        let shards = self.nodes.shards();
        scan::Source { id, number, placement: &table.placement, expiry, shards }
    }

    /// A connection for reading ranges of which this is the first.
    async fn session_for(
        &self,
        source: scan::Source<'_>,
        first: Option<&KeyRange>,
    ) -> Result<(Session, Meter), StoreError> {
        match first.and_then(key::partition) {
            Some(partition) => {
                let home = key::home(source.id, source.placement, partition);
                self.nodes.session_at(home, Kind::Read).await
            }
            None => self.nodes.session().await,
        }
    }

    pub(crate) async fn walk(
        &self,
        table: TableId,
        walk: &Walk,
        trust: bool,
    ) -> Result<WalkPage, StoreError> {
        let known = self.current(table, trust).await?;
        let expiry = self.expiry(&known);
        let source = self.source(table, &known, expiry);
        let wanted = walk.wanted();
        let only = if let [range] = &wanted[..] { Some(range) } else { None };
        let (session, meter) = self.session_for(source, only).await?;
        let page = |session| async move { scan::walk(&session, source, walk).await };
        let page = self.read_on(session, page).await?;
        meter.answered(page.rows.len());
        Ok(page)
    }

    pub(crate) async fn sort(
        &self,
        table: TableId,
        sort: &Sort,
        trust: bool,
    ) -> Result<Option<WalkPage>, StoreError> {
        let known = self.current(table, trust).await?;
        let expiry = self.expiry(&known);
        let source = self.source(table, &known, expiry);
        let (session, meter) = self.session_for(source, sort.ranges.first()).await?;
        let page = |session| async move {
            let page = scan::sort(&session, source, sort).await?;
            // Nothing is what a table shows that was dropped, too.
            if page.as_ref().is_some_and(|page| page.examined == 0)
                && catalogue::table_of(&session, table).await?.is_none()
            {
                return Err(Conflict::TableNotFound.into());
            }
            Ok(page)
        };
        let page = self.read_on(session, page).await?;
        meter.answered(page.as_ref().map_or(0, |page| page.rows.len()));
        Ok(page)
    }

    pub(crate) async fn weigh(
        &self,
        table: TableId,
        extent: &Extent,
        bound: u64,
    ) -> Result<u64, StoreError> {
        let known = self.known(table).await.map_err(Fault::of_a_read)?.table;
        let source = self.source(table, &known, None);
        let (Extent::Keys(ranges) | Extent::Entries(_, ranges)) = extent;
        let only = if let [range] = &ranges[..] { Some(range) } else { None };
        let (session, meter) = self.session_for(source, only).await?;
        let weigh = |session| async move { scan::weigh(&session, source, extent, bound).await };
        let weight = self.read_on(session, weigh).await?;
        meter.answered(0);
        Ok(weight)
    }

    pub(crate) async fn built(&self, table: TableId, index: IndexId) -> Result<Built, StoreError> {
        let built = |session| async move { index::declare::built(&session, table, index).await };
        self.read(built).await
    }

    /// A table by name; from the cache if that may be trusted.
    pub(crate) async fn table(
        &self,
        account: AccountId,
        name: &TableName,
        trust: bool,
    ) -> Result<Option<Arc<Table>>, StoreError> {
        let folded = &name.folded();
        if trust && let Some(table) = self.cache.table(account, folded) {
            return Ok(Some(table));
        }
        let read = self.cache.generation();
        let found = self
            .read(|session| async move { catalogue::table(&session, account, folded).await })
            .await?;
        if let Some(known) = &found {
            self.cache.keep_table(read, known);
        }
        Ok(found.map(|known| known.table))
    }

    pub(crate) async fn tables(
        &self,
        account: AccountId,
        from: Option<&FoldedName>,
        limit: usize,
    ) -> Result<Vec<Arc<Table>>, StoreError> {
        let tables =
            |session| async move { catalogue::tables(&session, account, from, limit).await };
        self.read(tables).await
    }

    /// A queue by name; from the cache if that may be trusted.
    pub(crate) async fn queue(
        &self,
        account: AccountId,
        name: &QueueName,
        trust: bool,
    ) -> Result<Option<Arc<Queue>>, StoreError> {
        if trust && let Some(queue) = self.cache.queue(account, name) {
            return Ok(Some(queue));
        }
        let read = self.cache.generation();
        let find = |session| async move { queue::catalogue::queue(&session, account, name).await };
        let found = self.read(find).await?.map(Arc::new);
        if let Some(queue) = &found {
            self.cache.keep_queue(read, queue);
        }
        Ok(found)
    }

    pub(crate) async fn queues(
        &self,
        account: AccountId,
        from: &str,
        limit: usize,
    ) -> Result<Vec<Arc<Queue>>, StoreError> {
        let list =
            |session| async move { queue::catalogue::queues(&session, account, from, limit).await };
        self.read(list).await
    }

    pub(crate) async fn peek(
        &self,
        queue: QueueId,
        limit: usize,
        now: Now,
    ) -> Result<Vec<Message>, StoreError> {
        let (session, meter) = self.nodes.session_at(queue::number(queue), Kind::Read).await?;
        let peek = |session| async move { queue::read::peek(&session, queue, limit, now).await };
        let found = self.read_on(session, peek).await?;
        meter.answered(found.len());
        Ok(found)
    }

    pub(crate) async fn message_count(&self, queue: QueueId, now: Now) -> Result<u64, StoreError> {
        let (session, meter) = self.nodes.session_at(queue::number(queue), Kind::Read).await?;
        let count = |session| async move { queue::count::count(&session, queue, now).await };
        let count = self.read_on(session, count).await?;
        meter.answered(0);
        Ok(count)
    }

    /// An account by name; from the cache if that may be trusted.
    pub(crate) async fn account(
        &self,
        name: &AccountName,
        trust: bool,
    ) -> Result<Option<Arc<Account>>, StoreError> {
        if trust {
            if let Some(account) = self.cache.account(name) {
                return Ok(Some(account));
            }
            if self.is_stranger(name).await? {
                return Ok(None);
            }
        }
        let read = self.cache.generation();
        let found =
            self.read(|session| async move { catalogue::account(&session, name).await }).await?;
        let found = found.map(Arc::new);
        if let Some(account) = &found {
            self.cache.keep_account(read, account);
        }
        Ok(found)
    }

    /// Whether no account has the name. However many ask and whatever names they make up, the database is asked once for
    /// each time that accounts, tables or queues have changed.
    async fn is_stranger(&self, name: &AccountName) -> Result<bool, StoreError> {
        let names = &self.cache.names;
        if let Some(stranger) = names.is_stranger(name, self.cache.generation()) {
            return Ok(stranger);
        }
        let turn = self.in_time(async { Ok(names.turn().await) });
        let _turn = turn.await.map_err(Fault::of_a_read)?;
        let read = self.cache.generation();
        if let Some(stranger) = names.is_stranger(name, read) {
            return Ok(stranger);
        }
        let (after, limit) = (names.read_after(), limits::ACCOUNT_NAMES_REMEMBERED_MAX + 1);
        let find = |session| async move { catalogue::account_names(&session, after, limit).await };
        names.keep(read, after, &self.read(find).await?);
        // If everything was to be forgotten meanwhile, the database is asked for this one.
        Ok(names.is_stranger(name, self.cache.generation()).unwrap_or(false))
    }

    pub(crate) async fn accounts(&self) -> Result<Vec<Arc<Account>>, StoreError> {
        self.read(|session| async move { catalogue::accounts(&session).await }).await
    }
}

/// Waits so long for what writes nothing. The connection is closed then instead of given back: a database may hang without
/// closing it, and without ending the statement.
pub(crate) async fn within<T>(
    limit: Duration,
    read: impl Future<Output = Result<T, Fault>>,
) -> Result<T, Fault> {
    if let Ok(result) = tokio::time::timeout(limit, read).await {
        return result;
    }
    tracing::warn!("the database did not answer a read in time");
    Err(StoreError::Busy.into())
}
