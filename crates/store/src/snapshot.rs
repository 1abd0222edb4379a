//! Everything that a store holds, as it was at one moment.

use crate::{
    Account, AccountId, Changes, ChangesWanted, MessagePage, MessagePlace, Page, Queue, QueueId,
    Scan, StoreError, Table, TableId,
};
use async_trait::async_trait;
use std::fmt;
use std::sync::Arc;

/// About how much a view shows, in what an engine can tell without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Estimate {
    /// Entities and messages.
    Items(u64),
    /// Bytes that they take: of keys and records, not of what an engine adds to them.
    Bytes(u64),
}

/// A view of a store that no later change alters: what a backup is made from.
///
/// The whole store at one moment (*single-node*; each partition at one of its own otherwise). An engine
/// keeps what the view needs for as long as it lives, so whoever holds one hurries, and drops it.
#[async_trait]
pub trait Snapshot: fmt::Debug + Send + Sync {
    /// The place in the changes that belongs to it: what it lacks comes after ([`crate::Changes`]).
    fn place(&self) -> u64;

    /// About how much there is, for whoever waits for all of it: from what the engine knows of itself, never by reading entities.
    /// May be wrong either way; none if nothing is known.
    async fn estimate(&self) -> Result<Option<Estimate>, StoreError>;

    /// All accounts, in the order of their names.
    async fn accounts(&self) -> Result<Vec<Arc<Account>>, StoreError>;

    /// All tables of the account, in the order of their folded names.
    async fn tables(&self, account: AccountId) -> Result<Vec<Arc<Table>>, StoreError>;

    /// As [`crate::Store::scan`]; all pages are of the same moment. What had expired by then and was not removed yet is there,
    /// too: it comes back if it is to live longer. Indexes are not part of it: tables name theirs, and a [`Scan::through`] fails with [`crate::Conflict::IndexNotFound`].
    async fn scan(&self, table: TableId, scan: Scan) -> Result<Page, StoreError>;

    /// All queues of the account, in the order of their names.
    async fn queues(&self, account: AccountId) -> Result<Vec<Arc<Queue>>, StoreError>;

    /// Messages of a queue, visible or not: those from that place on, in an order of the engine's choosing, no more
    /// than so many and none after so many bytes of text, but at least one. Those that had expired by the latest commit are not
    /// among them. Fails with [`crate::Conflict::QueueNotFound`].
    async fn messages(
        &self,
        queue: QueueId,
        from: Option<MessagePlace>,
        limit: usize,
        max_bytes: usize,
    ) -> Result<MessagePage, StoreError>;

    /// What was changed after a place: all that the snapshot shows and nothing else, so what there was at that place
    /// becomes what the snapshot shows. Waits for nothing; an answer that goes no further than what was asked is the last.
    ///
    /// Where an engine has several servers, some may come after [`Snapshot::place`]: whoever goes on from there is told
    /// of them again. Fails with [`crate::Conflict::ChangesNotKept`] if some were not there at that moment.
    async fn changes(&self, wanted: ChangesWanted) -> Result<Changes, StoreError>;
}
