//! The statements of the engine on bare connections, for measuring what the database can do.
//!
//! A [`Connection`] sends exactly what [`crate::PostgresStore`] sends, with the same values, by the same functions,
//! and reads the answers as it does. What a server needs beside that is missing: a pool, a cache, a lease, another
//! try after a race. So the difference between both is what the server costs.
//!
//! Ticks come from the last slot without claiming it: not for a database with as many servers as there can be.

use crate::batch::{self, Located, Partition};
use crate::entity::{self, Done, Place};
use crate::fault::Fault;
use crate::key::{self, DbKey};
use crate::options::Options;
use crate::pool::{Pool, Session};
use crate::ticks::{SLOTS, Ticks};
use crate::{catalogue, scan, statement};
use rowhouse_env::Clock;
use rowhouse_store::{Batch, Command, Conflict, Page, Scan, StoreError, Table};
use rowhouse_types::{AccountName, EntityKey, Record, TableName};
use std::sync::Arc;

/// How often a write that another was faster than is sent again, with a later tick.
const TRIES: u32 = 12;

/// A database whose schema a server has made.
#[derive(Debug)]
pub struct Direct {
    pool: Pool,
    ticks: Arc<Ticks>,
    clock: Arc<dyn Clock>,
}

/// One connection. Statements that are sent again are prepared on it.
pub struct Connection {
    session: Session,
    ticks: Arc<Ticks>,
    clock: Arc<dyn Clock>,
}

impl Direct {
    /// Makes no connection yet; at most as many as the options say.
    pub fn new(options: &Options, clock: Arc<dyn Clock>) -> Result<Self, StoreError> {
        let pool = Pool::new(&options.url, options).map_err(StoreError::unavailable)?;
        Ok(Self { pool, ticks: Arc::new(Ticks::new(SLOTS - 1, 0, i64::MAX)), clock })
    }

    /// Makes a connection, which is closed or lent to another when it is dropped.
    pub async fn connect(&self) -> Result<Connection, StoreError> {
        let session = self.pool.session().await?;
        Ok(Connection { session, ticks: Arc::clone(&self.ticks), clock: Arc::clone(&self.clock) })
    }
}

impl Connection {
    /// Looks a table up.
    pub async fn table(
        &self,
        account: &AccountName,
        name: &TableName,
    ) -> Result<Table, StoreError> {
        let found = async {
            let account = catalogue::account(&self.session, account).await?;
            let account = account.ok_or(Conflict::AccountNotFound)?;
            let table = catalogue::table(&self.session, account.id, &name.folded()).await?;
            let known = table.ok_or(Conflict::TableNotFound)?;
            Ok(Arc::unwrap_or_clone(known.table))
        };
        found.await.map_err(Fault::of_a_read)
    }

    /// Reads one entity.
    pub async fn get(&self, table: &Table, key: &EntityKey) -> Result<Option<Record>, StoreError> {
        let home = key::home(table.id, &table.placement, key.partition.as_str());
        let place = Place { home, table: number(table), key: &DbKey::new(key) };
        entity::get(&self.session, place).await.map_err(Fault::of_a_read)
    }

    /// Reads one page.
    pub async fn scan(&self, table: &Table, scan: &Scan) -> Result<Page, StoreError> {
        let (number, placement) = (number(table), &table.placement);
        // Of one database, not of a cluster.
        let (expiry, shards) = (None, 0);
        let source = scan::Source { id: table.id, number, placement, expiry, shards };
        scan::page(&self.session, source, scan).await.map_err(Fault::of_a_read)
    }

    /// Writes entities of one table, all or none, if one statement can do it.
    pub async fn commit(&self, table: &Table, batch: Batch) -> Result<(), StoreError> {
        let commands = batch::locate(batch.commands, |Command::Entity { key, .. }| Partition {
            table: number(table),
            home: key::home(table.id, &table.placement, key.partition.as_str()),
        });
        for _ in 0..TRIES {
            if self.write(&commands).await.map_err(Fault::of_a_write)? {
                return Ok(());
            }
        }
        Err(StoreError::Busy)
    }

    /// Whether the statement took effect.
    async fn write(&self, commands: &[Located]) -> Result<bool, Fault> {
        let tick = self.ticks.next(self.clock.now()).map_err(|_| StoreError::Busy)?;
        let [located] = commands else {
            return Ok(statement::run(&self.session, commands, tick).await?.is_some());
        };
        let Command::Entity { condition, write, .. } = &located.command;
        let Partition { home, table } = located.partition;
        let place = Place { home, table, key: &located.key };
        let done = entity::write(&self.session, place, *condition, write, tick).await?;
        Ok(matches!(done, Done::Written | Done::Nothing))
    }
}

fn number(table: &Table) -> i64 {
    catalogue::number(table.id).unwrap_or(-1)
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Connection")
    }
}
