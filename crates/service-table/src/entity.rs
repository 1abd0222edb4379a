//! Operations on entities: read one, change one, change several at once.

use crate::{Caller, TableError, TableService};
use rowhouse_store::{
    Batch, Command, Committed, Condition, Message, MessageCommand, StoreError, Table, Write,
};
use rowhouse_types::{
    Access, EntityKey, Etag, Grant, LimitExceeded, Record, RecordRef, TableName, Timestamp,
};
use std::sync::Arc;

/// A change of one entity.
#[derive(Clone, Debug)]
pub struct Operation {
    /// In which table.
    pub table: TableName,
    /// Which entity.
    pub key: EntityKey,
    /// What is done to it.
    pub action: Action,
}

/// What is done to an entity. The service sets the Timestamp.
#[derive(Clone, Debug)]
pub enum Action {
    /// Create it; it must not be there.
    Insert(Record),
    /// Replace all its properties; it must be there.
    Update(Record, Match),
    /// Overwrite the properties named and keep the rest; it must be there.
    Merge(Record, Match),
    /// Replace it or create it.
    InsertOrReplace(Record),
    /// Merge into it or create it.
    InsertOrMerge(Record),
    /// Remove it; it must be there.
    Delete(Match),
}

/// Which version of an entity a change is meant for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Match {
    /// Any, `*`.
    Any,
    /// The one with this tag.
    Etag(Etag),
}

impl TableService {
    /// Reads one entity. A key outside the caller's range is not there.
    pub async fn get_entity(
        &self,
        caller: Caller<'_>,
        table: &TableName,
        key: &EntityKey,
    ) -> Result<Record, TableError> {
        caller.grant.check(Access::ReadEntities, Some(table))?;
        let table = self.table(caller, table).await?;
        if caller.grant.check_key(key.partition.as_str(), key.row.as_str()).is_err() {
            return Err(TableError::ResourceNotFound);
        }
        self.store.get(table.id, key).await?.ok_or(TableError::ResourceNotFound)
    }

    /// Changes one entity and returns its new Timestamp.
    pub async fn write(
        &self,
        caller: Caller<'_>,
        operation: Operation,
    ) -> Result<Timestamp, TableError> {
        operation.authorize(caller)?;
        operation.check_limits()?;
        let table = self.table(caller, &operation.table).await?;
        match self.store.commit(Batch::of(operation.into_command(table.id))).await {
            Ok(committed) => Ok(committed.timestamps.first().copied().unwrap_or_default()),
            Err(error) => Err(TableError::from(error).of_table(caller, &table)),
        }
    }

    /// Every operation or none, each entity at most once, as far apart as `reach` allows. Commands of messages take effect with
    /// them, or not either; whether they are allowed was asked by whoever made them.
    ///
    /// A failure is a [`TableError::Operation`] that names the first operation at fault; the positions of messages go on
    /// where those of entities end.
    pub async fn transact(
        &self,
        caller: Caller<'_>,
        reach: Reach,
        operations: Vec<Operation>,
        messages: Vec<MessageCommand>,
    ) -> Result<Transacted, TableError> {
        let places = check(caller, reach, &operations)?;
        let mut tables: Vec<Arc<Table>> = Vec::with_capacity(1);
        for (index, (operation, place)) in operations.iter().zip(&places).enumerate() {
            if *place == tables.len() {
                let table = self.table(caller, &operation.table).await;
                tables.push(table.map_err(|error| error.at(index))?);
            }
        }
        let of = |index: usize| places.get(index).and_then(|place| tables.get(*place));
        let mut commands = Vec::with_capacity(operations.len());
        for (index, operation) in operations.into_iter().enumerate() {
            let Some(table) = of(index) else { return Err(TableError::TableNotFound.at(index)) };
            commands.push(operation.into_command(table.id));
        }
        match self.store.commit(Batch { commands, messages }).await {
            Ok(Committed { timestamps, messages, .. }) => Ok(Transacted { timestamps, messages }),
            Err(StoreError::Rejected { index, reason }) => {
                let error = TableError::from(StoreError::rejected(reason));
                Err(match of(index) {
                    Some(table) => error.of_table(caller, table).at(index),
                    None => error.at(index),
                })
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// How far apart the entities of a transaction may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// In one partition of one table: an entity group transaction, as the original has it.
    Partition,
    /// Anywhere in the account.
    Account,
}

/// Asks whether the operations may be one transaction. Answers with the place of the table of each among those that are named,
/// in the order in which they are first named.
fn check(
    caller: Caller<'_>,
    reach: Reach,
    operations: &[Operation],
) -> Result<Vec<usize>, TableError> {
    let first = operations.first();
    let mut tables: Vec<&TableName> = Vec::with_capacity(1);
    let mut places = Vec::with_capacity(operations.len());
    let mut entities = std::collections::HashSet::with_capacity(operations.len());
    for (index, operation) in operations.iter().enumerate() {
        operation.authorize(caller).map_err(|error| error.at(index))?;
        let together = first.is_none_or(|first| {
            operation.table.is_same(&first.table) && operation.key.partition == first.key.partition
        });
        if !together && reach == Reach::Partition {
            return Err(TableError::DifferentPartitions.at(index));
        }
        let place = tables.iter().position(|table| table.is_same(&operation.table));
        let place = place.unwrap_or_else(|| {
            tables.push(&operation.table);
            tables.len() - 1
        });
        if !entities.insert((place, &operation.key)) {
            return Err(TableError::DuplicateRow.at(index));
        }
        operation.check_limits().map_err(|error| error.at(index))?;
        places.push(place);
    }
    Ok(places)
}

/// A transaction that took effect.
#[derive(Clone, Debug)]
pub struct Transacted {
    /// The new Timestamps of the entities, in order.
    pub timestamps: Vec<Timestamp>,
    /// The messages that were put, in order.
    pub messages: Vec<Message>,
}

impl TableError {
    /// Names the unique index that refused a write, if there is only one and the caller holds the key of the account:
    /// whoever may see a part of a table learns nothing of the rest.
    fn of_table(self, caller: Caller<'_>, table: &Table) -> Self {
        match self {
            Self::NotUnique { index: None } if *caller.grant == Grant::AccountKey => {
                let mut unique = table.indexes.iter().filter(|index| index.keys.unique);
                let (first, second) = (unique.next(), unique.next());
                let known = first.filter(|_| second.is_none());
                Self::NotUnique { index: known.map(|index| index.name.clone()) }
            }
            error => error,
        }
    }
}

impl Operation {
    fn authorize(&self, caller: Caller<'_>) -> Result<(), TableError> {
        let access = match self.action {
            Action::Insert(_) => Access::AddEntity,
            Action::Update(..) | Action::Merge(..) => Access::UpdateEntity,
            Action::InsertOrReplace(_) | Action::InsertOrMerge(_) => Access::UpsertEntity,
            Action::Delete(_) => Access::DeleteEntity,
        };
        caller.grant.check(access, Some(&self.table))?;
        caller.grant.check_key(self.key.partition.as_str(), self.key.row.as_str())?;
        Ok(())
    }

    /// What is too large by itself is refused here; the result of a merge is judged by the store.
    fn check_limits(&self) -> Result<(), TableError> {
        let record: RecordRef<'_> = match &self.action {
            Action::Insert(record)
            | Action::Update(record, _)
            | Action::Merge(record, _)
            | Action::InsertOrReplace(record)
            | Action::InsertOrMerge(record) => record.as_ref(),
            Action::Delete(_) => return Ok(()),
        };
        match record.check_limits(self.key.partition.as_str(), self.key.row.as_str())? {
            None => Ok(()),
            Some(LimitExceeded::Properties) => Err(TableError::TooManyProperties),
            Some(LimitExceeded::Size) => Err(TableError::EntityTooLarge),
        }
    }

    fn into_command(self, table: rowhouse_store::TableId) -> Command {
        let condition = |wanted| match wanted {
            Match::Any => Condition::Exists,
            Match::Etag(etag) => Condition::Matches(etag),
        };
        let (condition, write) = match self.action {
            Action::Insert(record) => (Condition::Absent, Write::Put(record)),
            Action::Update(record, wanted) => (condition(wanted), Write::Put(record)),
            Action::Merge(record, wanted) => (condition(wanted), Write::Merge(record)),
            Action::InsertOrReplace(record) => (Condition::Any, Write::Put(record)),
            Action::InsertOrMerge(record) => (Condition::Any, Write::Merge(record)),
            Action::Delete(wanted) => (condition(wanted), Write::Delete),
        };
        Command::Entity { table, key: self.key, condition, write }
    }
}
