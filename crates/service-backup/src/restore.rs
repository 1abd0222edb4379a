//! A full backup, and the incremental ones that follow it, into an empty store.
//!
//! Backups are read twice: once to know that they are in order and what they end in, and once to restore
//! them. Only accounts and tables of the last one are made, under the names that they had then; of the
//! entities and changes only theirs. Messages are those of the last one, as they were then.
//! Indexes are declared when these are in, and built by the store. Every step may be made twice, so a restore that was interrupted goes on
//! from where it last noted that it was ([`crate::marker`]).

use crate::apply::Applier;
use crate::catalogue::Catalogue;
use crate::error::{BackupError, FileError};
use crate::indexes::{self, Declared};
use crate::marker::{Marker, Place};
use crate::queues;
use crate::read::{Messages, Part, Reader};
use crate::survey::{Progress, Survey, check_chain};
use crate::ttl;
use rowhouse_store::{
    Account, AccountId, NewAccount, QueueId, Store, StoreError, Table, TableId, Ttl,
};
use rowhouse_types::Timestamp;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use tokio::io::AsyncRead;

/// After so many frames it is noted how far a restore has got.
const PARTS_BETWEEN_NOTES: u64 = 128;

/// What was restored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Accounts.
    pub accounts: u64,
    /// Tables.
    pub tables: u64,
    /// Queues.
    pub queues: u64,
    /// Entities of the full backup and changes of the others that were put into the store this time.
    pub items: u64,
    /// How many of these were changes.
    pub changes: u64,
    /// Messages that were put into the store this time.
    pub messages: u64,
    /// Secondary indexes that were declared; the store builds them.
    pub indexes: u64,
    /// Unique indexes that were left out, because the store spreads tables over nodes and PartitionKey is not in them.
    pub indexes_left_out: u64,
    /// Whether an earlier attempt had begun it.
    pub resumed: bool,
    /// Tables whose TTL was left off, because entities have expired since the backup was taken.
    pub ttls_left_off: Vec<TtlLeftOff>,
}

/// A table whose TTL was left off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TtlLeftOff {
    /// Its account.
    pub account: Box<str>,
    /// Its name.
    pub table: Box<str>,
    /// What it had.
    pub ttl: Ttl,
}

/// Restores the backups that were surveyed; `open` gives their bytes again, by their number.
///
/// The store must be empty, or hold an unfinished restore of the same backups. While it is at work, and until
/// it is finished, [`crate::unfinished`] tells so. The TTL of a table is left off if entities that existed when the last
/// backup was taken have expired by the time `expired_by`; without that time every table gets its TTL back.
pub async fn restore<R: AsyncRead + Unpin>(
    store: Arc<dyn Store>,
    surveys: &[Survey],
    expired_by: Option<Timestamp>,
    mut open: impl FnMut(usize) -> io::Result<R>,
    mut progress: impl FnMut(Progress),
) -> Result<Restored, BackupError> {
    check_chain(surveys)?;
    let Some(last) = surveys.last() else { return Ok(Restored::default()) };
    let marker = Marker::set(&*store, last.header.id, &last.catalogue).await?;
    let resumed = marker.reached != Place::default();
    let (tables, queues) = rebuild(&*store, &last.catalogue).await?;
    let applier = Applier::new(Arc::clone(&store));
    let last_file = surveys.len() - 1;
    let mut restore =
        Restore { applier, store, marker, tables, queues, last_file, done: Restored::default() };
    let mut before = Progress::default();
    for (index, survey) in surveys.iter().enumerate() {
        let file = u32::try_from(index).expect("nobody names so many files");
        if restore.marker.reached.file <= file {
            let mut reader = Reader::begin(open(index).map_err(FileError::Io)?).await?;
            if *reader.header() != survey.header {
                return Err(BackupError::Changed);
            }
            restore
                .file(file, &mut reader, |here| {
                    progress(Progress {
                        bytes: before.bytes + here.bytes,
                        content: before.content + here.content,
                        items: before.items + here.items,
                    });
                })
                .await?;
            before.content += reader.progress().content;
        }
        before.bytes += survey.bytes;
        before.items += survey.totals.items();
    }
    let ttls_left_off = restore.set_ttls(last, expired_by).await?;
    let Declared { kept, left_out } = restore.declare(&last.catalogue).await?;
    let done = restore.done;
    restore.marker.remove(&*restore.store).await?;
    let Catalogue { accounts, tables, queues } = &last.catalogue;
    Ok(Restored {
        accounts: accounts.len() as u64,
        tables: tables.len() as u64,
        queues: queues.len() as u64,
        indexes: kept,
        indexes_left_out: left_out,
        resumed,
        ttls_left_off,
        ..done
    })
}

/// A restore at work.
struct Restore {
    store: Arc<dyn Store>,
    applier: Applier,
    marker: Marker,
    /// The new id of each table, by the one that it had.
    tables: HashMap<TableId, TableId>,
    /// Likewise of each queue.
    queues: HashMap<QueueId, QueueId>,
    /// The number of the backup whose messages are restored.
    last_file: usize,
    /// Items, changes and messages of this time.
    done: Restored,
}

impl Restore {
    async fn file<R: AsyncRead + Unpin>(
        &mut self,
        file: u32,
        reader: &mut Reader<R>,
        mut progress: impl FnMut(Progress),
    ) -> Result<(), BackupError> {
        let mut parts = 0;
        loop {
            let part = reader.next().await?;
            if let Part::End(_) = part {
                break;
            }
            parts += 1;
            let here = Place { file, parts };
            if self.marker.reached < here {
                self.part(file, part).await?;
                if parts.is_multiple_of(PARTS_BETWEEN_NOTES) {
                    self.note(here).await?;
                }
            }
            progress(reader.progress());
        }
        self.note(Place { file: file + 1, parts: 0 }).await
    }

    /// Returns the tables whose TTL was left off.
    async fn set_ttls(
        &self,
        last: &Survey,
        expired_by: Option<Timestamp>,
    ) -> Result<Vec<TtlLeftOff>, StoreError> {
        let mut left_off = Vec::new();
        for saved in &last.catalogue.tables {
            let Some(&table) = self.tables.get(&saved.id) else { continue };
            let (ttl, taken) = (saved.ttl.as_ref(), last.header.taken);
            if ttl::set(&*self.store, table, ttl, taken, expired_by).await? {
                continue;
            }
            let mut accounts = last.catalogue.accounts.iter();
            let account = accounts.find(|account| account.id == saved.account);
            if let (Some(account), Some(ttl)) = (account, ttl) {
                let (account, table) = (account.name.as_str().into(), saved.name.as_str().into());
                left_off.push(TtlLeftOff { account, table, ttl: ttl.clone() });
            }
        }
        Ok(left_off)
    }

    async fn declare(&self, catalogue: &Catalogue) -> Result<Declared, StoreError> {
        let mut all = Declared::default();
        for saved in &catalogue.tables {
            let Some(&table) = self.tables.get(&saved.id) else { continue };
            let Declared { kept, left_out } =
                indexes::declare(&*self.store, table, &saved.indexes).await?;
            all.kept += kept;
            all.left_out += left_out;
        }
        Ok(all)
    }

    async fn note(&mut self, place: Place) -> Result<(), BackupError> {
        self.applier.settle().await?;
        self.marker.reach(&*self.store, place).await?;
        Ok(())
    }

    async fn part(&mut self, file: u32, part: Part) -> Result<(), BackupError> {
        match part {
            Part::Messages(Messages { queue, messages }) => {
                let is_last = usize::try_from(file).is_ok_and(|file| file == self.last_file);
                let Some(&queue) = self.queues.get(&queue).filter(|_| is_last) else {
                    return Ok(());
                };
                self.done.messages += messages.len() as u64;
                for message in messages {
                    self.applier.message(queue, message).await?;
                }
            }
            Part::Entities(frame) => {
                let Some(&table) = self.tables.get(&frame.table) else { return Ok(()) };
                self.done.items += frame.count;
                for (key, record) in frame.iter() {
                    self.applier.entity(table, key, record).await?;
                }
            }
            Part::Changes(changes) => {
                for change in changes {
                    let Some(&table) = self.tables.get(&change.table) else { continue };
                    self.done.items += 1;
                    self.done.changes += 1;
                    self.applier.change(table, change).await?;
                }
            }
            Part::Accounts(_)
            | Part::Tables(_)
            | Part::Queues(_)
            | Part::TableEnd(_)
            | Part::End(_) => {}
        }
        Ok(())
    }
}

/// Makes what is missing of accounts, tables and queues, and returns the new ids of the tables and queues.
async fn rebuild(
    store: &dyn Store,
    catalogue: &Catalogue,
) -> Result<(HashMap<TableId, TableId>, HashMap<QueueId, QueueId>), BackupError> {
    let mut accounts = HashMap::new();
    for account in &catalogue.accounts {
        accounts.insert(account.id, rebuild_account(store, account).await?);
    }
    let mut tables = HashMap::new();
    for table in &catalogue.tables {
        if let Some(&account) = accounts.get(&table.account) {
            tables.insert(table.id, rebuild_table(store, account, table).await?);
        }
    }
    let queues = queues::rebuild(store, &catalogue.queues, &accounts).await?;
    Ok((tables, queues))
}

async fn rebuild_account(store: &dyn Store, saved: &Account) -> Result<AccountId, StoreError> {
    let account = if let Some(account) = store.account(&saved.name).await? {
        account
    } else {
        let new = NewAccount { name: saved.name.clone(), keys: saved.keys.clone() };
        store.create_account(new).await?
    };
    for (name, value) in &saved.settings {
        if account.settings.get(name) != Some(value) {
            let value = Some(value.clone());
            store.set_account_setting(account.id, None, name, value).await?;
        }
    }
    Ok(account.id)
}

async fn rebuild_table(
    store: &dyn Store,
    account: AccountId,
    saved: &Table,
) -> Result<TableId, StoreError> {
    let table = match store.table(account, &saved.name).await? {
        Some(table) => table,
        None => store.create_table(account, &saved.name, saved.placement.clone()).await?,
    };
    if table.policies != saved.policies {
        store.set_policies(table.id, saved.policies.clone()).await?;
    }
    Ok(table.id)
}
