//! A single table of a backup, under a new name, into a store that is in use.
//!
//! Queues are left out. The new table must not be there. It fills while others could already read it: it is whole when the restore
//! says so. One that fails takes back what it has made. One that is killed leaves a note in the settings of
//! the account, by which the next attempt with the same backup knows the half that it may throw away. The note is there before
//! the table, and names it before it has an entity: until then only an empty table is thrown away.

use crate::apply::Applier;
use crate::error::BackupError;
use crate::indexes::{self, Declared};
use crate::items::Header;
use crate::read::{Part, Reader};
use crate::survey::check_header;
use crate::{ttl, write};
use rowhouse_store::{Account, AccountId, Conflict, Store, StoreError, Table, TableId};
use rowhouse_types::{AccountName, Guid, KeyRange, TableName};
use std::sync::Arc;
use tokio::io::AsyncRead;

/// Which table, and where to.
#[derive(Clone, Debug)]
pub struct TableChoice {
    /// The account in the backup.
    pub from_account: AccountName,
    /// The table in the backup.
    pub from_table: TableName,
    /// The account to restore into, which must be there.
    pub into_account: AccountName,
    /// The name of the table there, which must be free.
    pub into_table: TableName,
}

/// What was restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestoredTable {
    /// Entities of the full backup and changes of the others.
    pub items: u64,
    /// Secondary indexes that were declared; the store builds them.
    pub indexes: u64,
    /// Unique indexes that were left out, because the store spreads tables over nodes and PartitionKey is not in them.
    pub indexes_left_out: u64,
}

/// Restores one table from a full backup, and the incremental ones that may follow it in the same stream.
pub async fn restore_table<R: AsyncRead + Unpin>(
    store: Arc<dyn Store>,
    choice: TableChoice,
    source: R,
) -> Result<RestoredTable, BackupError> {
    let account = store.account(&choice.into_account).await?;
    let account = account.ok_or_else(|| BackupError::NoSuchAccount(choice.into_account.clone()))?;
    // Before anything is read: whoever sends a large backup learns at once that it is in vain.
    let is_there = store.table(account.id, &choice.into_table).await?.is_some();
    if is_there && !account.settings.contains_key(note_name(&choice.into_table).as_str()) {
        return Err(BackupError::TableExists(choice.into_table));
    }
    let reader = Reader::begin(source).await?;
    let note = Note::new(&choice.into_table, account.id, reader.header().id);
    note.clear_way(&*store, &account, &choice.into_table).await?;
    let applier = Applier::new(Arc::clone(&store));
    let declared = Declared::default();
    let mut work = Work { store, choice, note, applier, target: None, items: 0, declared };
    match work.run(reader).await {
        Ok(()) => {
            let (items, Declared { kept, left_out }) = (work.items, work.declared);
            Ok(RestoredTable { items, indexes: kept, indexes_left_out: left_out })
        }
        Err(error) => {
            // What was on its way would only make what is thrown away larger.
            work.applier = Applier::new(Arc::clone(&work.store));
            if let Err(again) = work.discard().await {
                return Err(BackupError::LeftOver { reason: error.to_string(), again });
            }
            Err(error)
        }
    }
}

/// A table that is being filled.
#[derive(Debug)]
struct Target {
    table: Arc<Table>,
    /// The table in the backup, as the last catalogue has it.
    saved: Table,
}

struct Work {
    store: Arc<dyn Store>,
    choice: TableChoice,
    note: Note,
    applier: Applier,
    target: Option<Target>,
    items: u64,
    declared: Declared,
}

impl Work {
    async fn run<R: AsyncRead + Unpin>(&mut self, first: Reader<R>) -> Result<(), BackupError> {
        let mut before: Option<Header> = None;
        let mut next = Some(first);
        while let Some(mut reader) = next {
            check_header(before.as_ref(), reader.header())?;
            self.file(&mut reader).await?;
            self.applier.settle().await?;
            before = Some(reader.header().clone());
            next = Reader::begin_if_any(reader.into_inner()).await?;
        }
        let Some(target) = &self.target else {
            let (account, table) = (&self.choice.from_account, &self.choice.from_table);
            return Err(BackupError::NoSuchTable {
                account: account.clone(),
                table: table.clone(),
            });
        };
        self.store.set_policies(target.table.id, target.saved.policies.clone()).await?;
        ttl::set(&*self.store, target.table.id, target.saved.ttl.as_ref()).await?;
        let declared =
            indexes::declare(&*self.store, target.table.id, &target.saved.indexes).await?;
        self.declared = declared;
        self.note.remove(&*self.store).await?;
        Ok(())
    }

    async fn file<R: AsyncRead + Unpin>(
        &mut self,
        reader: &mut Reader<R>,
    ) -> Result<(), BackupError> {
        let (mut account, mut found) = (None, None);
        let mut aimed = false;
        loop {
            let part = reader.next().await?;
            let is_catalogue =
                matches!(part, Part::Accounts(_) | Part::Tables(_) | Part::Queues(_));
            if !is_catalogue && !std::mem::replace(&mut aimed, true) {
                self.aim(found.take()).await?;
            }
            match part {
                Part::Accounts(accounts) => {
                    let mut named =
                        accounts.iter().filter(|account| account.name == self.choice.from_account);
                    account = account.or(named.next().map(|account| account.id));
                }
                Part::Tables(tables) => {
                    let wanted = |table: &Table| {
                        Some(table.account) == account
                            && table.name.is_same(&self.choice.from_table)
                    };
                    found = found.or(tables.into_iter().find(wanted));
                }
                Part::End(_) => return Ok(()),
                part => self.part(part).await?,
            }
        }
    }

    /// Makes the new table for the one that this backup has. If it is another one than that of the backup
    /// before, the old one was dropped in between, and so is what was restored of it.
    async fn aim(&mut self, saved: Option<Table>) -> Result<(), BackupError> {
        let known = self.target.as_ref().map(|target| target.saved.id);
        if known != saved.as_ref().map(|saved| saved.id) {
            self.discard().await?;
        }
        let Some(saved) = saved else { return Ok(()) };
        if let Some(target) = &mut self.target {
            target.saved = saved;
            return Ok(());
        }
        self.note.write(&*self.store, None).await?;
        let (name, placement) = (&self.choice.into_table, saved.placement.clone());
        let created = self.store.create_table(self.note.account, name, placement).await;
        let table = match created {
            Ok(table) => table,
            Err(StoreError::Rejected { reason: Conflict::TableExists, .. }) => {
                self.note.remove(&*self.store).await?;
                return Err(BackupError::TableExists(name.clone()));
            }
            Err(error) => return Err(error.into()),
        };
        let id = table.id;
        self.target = Some(Target { table, saved });
        self.note.write(&*self.store, Some(id)).await?;
        Ok(())
    }

    async fn part(&mut self, part: Part) -> Result<(), BackupError> {
        let Some(target) = &self.target else { return Ok(()) };
        let (table, saved) = (target.table.id, target.saved.id);
        match part {
            Part::Entities(frame) if frame.table == saved => {
                self.items += frame.count;
                for (key, record) in frame.iter() {
                    self.applier.entity(table, key, record).await?;
                }
            }
            Part::Changes(changes) => {
                for change in changes.into_iter().filter(|change| change.table == saved) {
                    self.items += 1;
                    self.applier.change(table, change).await?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Takes back what was made.
    async fn discard(&mut self) -> Result<(), StoreError> {
        let Some(target) = self.target.take() else { return Ok(()) };
        self.items = 0;
        drop_if_there(&*self.store, target.table.id).await?;
        self.note.remove(&*self.store).await
    }
}

/// What is kept beside the new table until it is whole: backup and table, in the settings of its account; the backup
/// alone until the table is made.
#[derive(Debug)]
struct Note {
    account: AccountId,
    setting: String,
    backup: Guid,
}

impl Note {
    fn new(table: &TableName, account: AccountId, backup: Guid) -> Self {
        Self { account, setting: note_name(table), backup }
    }

    fn value(&self, table: Option<TableId>) -> Box<[u8]> {
        let table = table.map(|table| table.0.to_le_bytes());
        [&self.backup.0[..], table.as_ref().map_or(&[], |table| &table[..])].concat().into()
    }

    /// Fails if the table is there, unless an earlier attempt with the same backup has left it.
    async fn clear_way(
        &self,
        store: &dyn Store,
        account: &Account,
        name: &TableName,
    ) -> Result<(), BackupError> {
        let Some(table) = store.table(self.account, name).await? else { return Ok(()) };
        let note = account.settings.get(self.setting.as_str());
        let is_named = note == Some(&self.value(Some(table.id)));
        if !is_named && (note != Some(&self.value(None)) || !is_new(store, &table).await?) {
            return Err(BackupError::TableExists(name.clone()));
        }
        drop_if_there(store, table.id).await?;
        Ok(())
    }

    async fn write(&self, store: &dyn Store, table: Option<TableId>) -> Result<(), StoreError> {
        store.set_account_setting(self.account, &self.setting, Some(self.value(table))).await
    }

    async fn remove(&self, store: &dyn Store) -> Result<(), StoreError> {
        store.set_account_setting(self.account, &self.setting, None).await
    }
}

/// Whether nothing was done to a table since it was made.
async fn is_new(store: &dyn Store, table: &Table) -> Result<bool, StoreError> {
    let bare = table.policies.is_empty() && table.indexes.is_empty() && table.ttl.is_none();
    let mut scan = write::page(KeyRange::all());
    scan.limit = 1;
    let page = store.scan(table.id, scan).await?;
    Ok(bare && page.rows.is_empty() && page.next.is_none())
}

fn note_name(table: &TableName) -> String {
    format!("restoring {}", table.folded().as_str())
}

async fn drop_if_there(store: &dyn Store, table: TableId) -> Result<(), StoreError> {
    match store.drop_table(table).await {
        Err(StoreError::Rejected { reason: Conflict::TableNotFound, .. }) => Ok(()),
        outcome => outcome,
    }
}
