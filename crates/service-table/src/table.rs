//! Operations on tables themselves: list, look, create, delete, access policies.

use crate::threads::INLINE_UNITS_MAX;
use crate::{Caller, TableError, TableService};
use rowhouse_query::Filter;
use rowhouse_store::{Placement, Table};
use rowhouse_types::{Access, FoldedName, StoredPolicy, TableName, ValueRef};
use std::sync::Arc;
use std::time::Instant;

/// Some of the tables of an account, in the order of their folded names.
#[derive(Clone, Debug, Default)]
pub struct TablePage {
    /// Their names.
    pub names: Vec<TableName>,
    /// Where the next page starts; none after the last table.
    pub next: Option<FoldedName>,
}

/// Tables that are looked at before others have their turn.
const STEP: usize = 1_000;
/// Tables that a long filter is evaluated on between turns of others on the same processor.
const TABLES_PER_TURN: usize = 16;

/// Some tables, and what is wanted of them.
struct Listing {
    tables: Vec<Arc<Table>>,
    filter: Option<Arc<Filter>>,
    limit: usize,
}

impl Listing {
    /// The first that satisfy the filter, and the one after them if there are more than the limit.
    fn run(self) -> TablePage {
        let Self { tables, filter, limit } = self;
        let filter = filter.as_deref();
        let turns = filter.is_some_and(|filter| INLINE_UNITS_MAX < filter.terms() * tables.len());
        let mut page = TablePage::default();
        for (at, table) in tables.iter().enumerate().filter(|(_, table)| table.is_whole()) {
            if turns && at % TABLES_PER_TURN == 0 {
                std::thread::yield_now();
            }
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
                break;
            }
            page.names.push(table.name.clone());
        }
        page
    }
}

impl TableService {
    /// At most `limit` tables that satisfy the filter, from `from` on. `TableName` is the only property
    /// that a table has. A page that is not done by the deadline is short, and says where to go on.
    pub async fn list_tables(
        &self,
        caller: Caller<'_>,
        filter: Option<Filter>,
        mut from: Option<FoldedName>,
        limit: usize,
        deadline: Instant,
    ) -> Result<TablePage, TableError> {
        caller.grant.check(Access::QueryTables, None)?;
        let mut page = TablePage::default();
        if limit == 0 {
            return Ok(page);
        }
        let filter = filter.map(Arc::new);
        let terms = filter.as_ref().map_or(0, |filter| filter.terms());
        let mut began = false;
        loop {
            let mut tables = self.store.tables(caller.account, from.as_ref(), STEP + 1).await?;
            let beyond = tables.get(STEP).map(|table| table.name.folded());
            tables.truncate(STEP);
            let units = terms.saturating_mul(tables.len());
            let limit = limit - page.names.len();
            let listing = Listing { tables, filter: filter.clone(), limit };
            let found = match self.threads.work(units, deadline, move || listing.run()).await {
                // What was found before is not lost.
                Err(TableError::Busy) if began => {
                    page.next = from;
                    return Ok(page);
                }
                found => found?,
            };
            page.names.extend(found.names);
            page.next = found.next;
            if page.next.is_some() || beyond.is_none() {
                return Ok(page);
            }
            if deadline <= Instant::now() {
                page.next = beyond;
                return Ok(page);
            }
            began = true;
            from = beyond;
            tokio::task::yield_now().await;
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

    /// Creates a table, unless the account has `most` tables already.
    pub async fn create_table(
        &self,
        caller: Caller<'_>,
        name: &TableName,
        most: u64,
    ) -> Result<(), TableError> {
        caller.grant.check(Access::CreateTable, Some(name))?;
        let (account, placement) = (caller.account, Placement::default());
        let policies = Vec::new();
        self.store.create_table_with_policies(account, name, placement, policies, most).await?;
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
