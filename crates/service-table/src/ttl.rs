//! When the entities of a table expire: told and set with the key of the account only.

use crate::{Caller, TableError, TableService};
use rowhouse_store::Ttl;
use rowhouse_types::{Access, TableName};

impl TableService {
    /// When the entities of a table expire; never if none.
    pub async fn ttl(
        &self,
        caller: Caller<'_>,
        table: &TableName,
    ) -> Result<Option<Ttl>, TableError> {
        caller.grant.check(Access::TableSettings, Some(table))?;
        Ok(self.table(caller, table).await?.ttl.clone())
    }

    /// Has the entities of a table expire, or no longer.
    pub async fn set_ttl(
        &self,
        caller: Caller<'_>,
        table: &TableName,
        ttl: Option<Ttl>,
    ) -> Result<(), TableError> {
        caller.grant.check(Access::TableSettings, Some(table))?;
        let table = self.table(caller, table).await?;
        Ok(self.store.set_ttl(table.id, ttl).await?)
    }
}
