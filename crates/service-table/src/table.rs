//! Operations on tables themselves: list, look, create, delete, access policies.

use crate::{Caller, TableError, TableService};
use rowhouse_query::Filter;
use rowhouse_store::Placement;
use rowhouse_types::{Access, FoldedName, StoredPolicy, TableName, ValueRef};

/// Some of the tables of an account, in the order of their folded names.
#[derive(Clone, Debug, Default)]
pub struct TablePage {
    /// Their names.
    pub names: Vec<TableName>,
    /// Where the next page starts; none after the last table.
    pub next: Option<FoldedName>,
}

impl TableService {
    /// At most `limit` tables that satisfy the filter, from `from` on. `TableName` is the only property
    /// that a table has.
    pub async fn list_tables(
        &self,
        caller: Caller<'_>,
        filter: Option<&Filter>,
        mut from: Option<FoldedName>,
        limit: usize,
    ) -> Result<TablePage, TableError> {
        const STEP: usize = 1000;
        caller.grant.check(Access::QueryTables, None)?;
        let mut page = TablePage::default();
        if limit == 0 {
            return Ok(page);
        }
        loop {
            let tables = self.store.tables(caller.account, from.as_ref(), STEP + 1).await?;
            let more = tables.len() > STEP;
            for table in tables.iter().take(STEP).filter(|table| table.is_whole()) {
                let name = table.name.as_str();
                let wanted = filter.is_none_or(|filter| {
                    filter.matches_with(&mut |property| {
                        (property == "TableName").then_some(ValueRef::String(name))
                    })
                });
                if !wanted {
                    continue;
                }
                if page.names.len() == limit {
                    page.next = Some(table.name.folded());
                    return Ok(page);
                }
                page.names.push(table.name.clone());
            }
            if !more {
                return Ok(page);
            }
            from = tables.get(STEP).map(|table| table.name.folded());
        }
    }

    /// The name of one table in the case it was created with.
    pub async fn get_table(
        &self,
        caller: Caller<'_>,
        name: &TableName,
    ) -> Result<TableName, TableError> {
        caller.grant.check(Access::QueryTables, Some(name))?;
        match self.whole(caller.account, name).await? {
            Some(table) => Ok(table.name.clone()),
            None => Err(TableError::ResourceNotFound),
        }
    }

    /// Whether the caller may do that and there is such a table, for a request that is wrong in every
    /// other way.
    pub async fn check_table(
        &self,
        caller: Caller<'_>,
        access: Access,
        name: &TableName,
    ) -> Result<(), TableError> {
        caller.grant.check(access, Some(name))?;
        self.table(caller, name).await.map(drop)
    }

    /// Creates a table.
    pub async fn create_table(
        &self,
        caller: Caller<'_>,
        name: &TableName,
    ) -> Result<(), TableError> {
        caller.grant.check(Access::CreateTable, Some(name))?;
        self.store.create_table(caller.account, name, Placement::default()).await?;
        Ok(())
    }

    /// Deletes a table with everything in it; its name is free at once. One that a restore has left half may be deleted too:
    /// nothing else gives its name free.
    pub async fn delete_table(
        &self,
        caller: Caller<'_>,
        name: &TableName,
    ) -> Result<(), TableError> {
        caller.grant.check(Access::DeleteTable, Some(name))?;
        let dropped = match self.store.table(caller.account, name).await? {
            Some(table) => self.store.drop_table(table.id).await.map_err(TableError::from),
            None => Err(TableError::TableNotFound),
        };
        // Here the table is the subject, not the place.
        dropped.map_err(|error| match error {
            TableError::TableNotFound => TableError::ResourceNotFound,
            error => error,
        })
    }

    /// The access policies of a table.
    pub async fn policies(
        &self,
        caller: Caller<'_>,
        name: &TableName,
    ) -> Result<Vec<StoredPolicy>, TableError> {
        caller.grant.check(Access::TablePolicies, Some(name))?;
        Ok(self.table(caller, name).await?.policies.clone())
    }

    /// Replaces the access policies of a table, at once for every signature that names one.
    pub async fn set_policies(
        &self,
        caller: Caller<'_>,
        name: &TableName,
        policies: Vec<StoredPolicy>,
    ) -> Result<(), TableError> {
        caller.grant.check(Access::TablePolicies, Some(name))?;
        let table = self.table(caller, name).await?;
        Ok(self.store.set_policies(table.id, policies).await?)
    }

    /// The policy that a signature names, before there is a grant to ask.
    pub async fn stored_policy(
        &self,
        account: rowhouse_store::AccountId,
        name: &TableName,
        id: &str,
    ) -> Result<Option<StoredPolicy>, TableError> {
        let table = self.whole(account, name).await?;
        Ok(table.and_then(|table| table.policies.iter().find(|p| *p.id == *id).cloned()))
    }
}
