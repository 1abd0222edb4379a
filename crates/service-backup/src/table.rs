//! A single table of a backup, under a new name, into a store that is in use.
//!
//! Queues are left out. The new table must not be there. While it fills it carries a mark, [`Half`], by which nobody takes it for
//! a whole one: services do not show it, and one that carried the mark when the backup was taken is refused here. The mark says
//! which backup it is of and how far it has got, and the next attempt with the same backup goes on from there; it is taken off
//! last, together with setting the policies of the original. What is wrong with the backup itself drops the half; a client, a
//! server or a store that fails leaves it. What no longer carries the mark of this attempt is neither written to nor dropped.

use crate::apply::Applier;
use crate::error::{BackupError, FileError, cause};
use crate::indexes::{self, Declared};
use crate::items::Header;
use crate::marker::Place;
use crate::read::{Part, Reader};
use crate::survey::check_header;
use crate::ttl;
use rowhouse_store::{AccountId, Conflict, Half, Store, StoreError, Table, TableId};
use rowhouse_types::{AccountName, Guid, RecordRef, TableName, Timestamp};
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
    /// The latest Timestamp that it may have; any without.
    pub until: Option<Timestamp>,
    /// Its TTL is left off if entities that existed when the backup was taken have expired by this time; never without.
    pub expired_by: Option<Timestamp>,
}

impl TableChoice {
    /// Account and table in the backup.
    fn wanted(&self) -> (AccountName, TableName) {
        (self.from_account.clone(), self.from_table.clone())
    }
}

/// After so many frames of the table it is noted how far it has got.
const PARTS_BETWEEN_NOTES: u64 = 128;
/// It has got all of the last backup, and may have settings and indexes of the original: nothing more is put into it.
const ALL_PARTS: u64 = u64::MAX;

/// What was restored, this time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestoredTable {
    /// Entities of the full backup and changes of the others.
    pub items: u64,
    /// How many of them are changes.
    pub changes: u64,
    /// Whether an earlier attempt had begun.
    pub resumed: bool,
    /// Secondary indexes that were declared; the store builds them.
    pub indexes: u64,
    /// Unique indexes that were left out, because the store spreads tables over nodes and PartitionKey is not in them.
    pub indexes_left_out: u64,
    /// Its TTL was left off, because entities have expired since the backup was taken.
    pub ttl_left_off: bool,
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
    let there = store.table(account.id, &choice.into_table).await?;
    if there.is_some_and(|table| table.is_whole()) {
        return Err(BackupError::TableExists(choice.into_table));
    }
    let reader = Reader::begin(source).await?;
    let backup = reader.header().id;
    let begun = find_half(&*store, account.id, &choice.into_table, backup).await?;
    let mut work = Work::new(store, account.id, choice, backup, begun);
    match work.run(reader).await {
        Ok(Declared { kept: indexes, left_out: indexes_left_out }) => {
            let Work { items, changes, resumed, ttl_left_off, .. } = work;
            Ok(RestoredTable { items, changes, resumed, indexes, indexes_left_out, ttl_left_off })
        }
        Err(error) => Err(work.give_up(error).await),
    }
}

/// The half that an earlier attempt with the same backup has left. Fails if any other table is there.
async fn find_half(
    store: &dyn Store,
    account: AccountId,
    name: &TableName,
    backup: Guid,
) -> Result<Option<(Arc<Table>, Half)>, BackupError> {
    let Some(table) = store.table(account, name).await? else { return Ok(None) };
    match table.half() {
        Some(half) if half.backup == backup => Ok(Some((table, half))),
        Some(half) => Err(BackupError::OtherHalf { table: name.clone(), id: half.backup }),
        None => Err(BackupError::TableExists(name.clone())),
    }
}

/// A table that is being filled.
#[derive(Clone, Debug)]
struct Target {
    table: TableId,
    /// The table in the backup, as the last catalogue has it.
    saved: Table,
}

struct Work {
    store: Arc<dyn Store>,
    /// The account to restore into.
    account: AccountId,
    choice: TableChoice,
    applier: Applier,
    target: Option<Target>,
    /// The half of an earlier attempt, until the backup comes to its place.
    begun: Option<TableId>,
    resumed: bool,
    /// What the mark of the table says, or is going to say.
    half: Half,
    items: u64,
    changes: u64,
    ttl_left_off: bool,
}

impl Work {
    fn new(
        store: Arc<dyn Store>,
        account: AccountId,
        choice: TableChoice,
        backup: Guid,
        begun: Option<(Arc<Table>, Half)>,
    ) -> Self {
        let applier = Applier::new(Arc::clone(&store));
        let empty = Half { backup, reading: backup, file: 0, parts: 0, attempt: 0 };
        let (begun, half) = begun.map_or((None, empty), |(table, half)| (Some(table.id), half));
        let (target, resumed) = (None, begun.is_some());
        Self {
            store,
            account,
            choice,
            applier,
            target,
            begun,
            resumed,
            half,
            items: 0,
            changes: 0,
            ttl_left_off: false,
        }
    }

    async fn run<R: AsyncRead + Unpin>(
        &mut self,
        first: Reader<R>,
    ) -> Result<Declared, BackupError> {
        let mut before: Option<Header> = None;
        let mut next = Some(first);
        let mut file = 0;
        while let Some(mut reader) = next {
            check_header(before.as_ref(), reader.header())?;
            self.file(file, &mut reader).await?;
            self.settle().await?;
            before = Some(reader.header().clone());
            next = Reader::begin_if_any(reader.into_inner()).await?;
            file += 1;
        }
        if self.begun.is_some() {
            return Err(BackupError::OtherChain(self.choice.into_table.clone()));
        }
        let Some(Target { table, saved }) = self.target.clone() else {
            let (account, table) = self.choice.wanted();
            return Err(BackupError::NoSuchTable { account, table });
        };
        // Only the last backup counts: it may have become whole since the one before.
        if !saved.is_whole() {
            let (account, table) = self.choice.wanted();
            return Err(BackupError::NotWhole { account, table });
        }
        // Changes that were made cannot be made again once an index is unique.
        self.mark(Half { parts: ALL_PARTS, ..self.half }).await?;
        let (ttl, expired_by) = (saved.ttl.as_ref(), self.choice.expired_by);
        let taken = before.map_or(Timestamp::MAX, |header| header.taken);
        self.ttl_left_off = !ttl::set(&*self.store, table, ttl, taken, expired_by).await?;
        let declared = indexes::declare(&*self.store, table, &saved.indexes).await?;
        self.check_mark().await?;
        self.store.set_policies(table, saved.policies).await?;
        Ok(declared)
    }

    async fn file<R: AsyncRead + Unpin>(
        &mut self,
        file: u32,
        reader: &mut Reader<R>,
    ) -> Result<(), BackupError> {
        let (mut account, mut found) = (None, None);
        let mut aimed = false;
        let (reading, mut parts) = (reader.header().id, 0);
        let mut unnoted = 0;
        loop {
            let part = reader.next().await?;
            parts += 1;
            let is_catalogue =
                matches!(part, Part::Accounts(_) | Part::Tables(_) | Part::Queues(_));
            if !is_catalogue && !std::mem::replace(&mut aimed, true) {
                self.aim(file, reading, found.take()).await?;
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
                part => {
                    let reached = Place { file: self.half.file, parts: self.half.parts };
                    if reached < (Place { file, parts }) && self.part(part).await? {
                        unnoted += 1;
                    }
                    if unnoted == PARTS_BETWEEN_NOTES {
                        unnoted = 0;
                        self.settle().await?;
                        self.mark(Half { file, parts, ..self.half }).await?;
                    }
                }
            }
        }
    }

    /// Makes the new table for the one that this backup has, or goes on with the half that is there. If it is another one than
    /// that of the backup before, the old one was dropped in between, and so is what was restored of it.
    async fn aim(
        &mut self,
        file: u32,
        reading: Guid,
        saved: Option<Table>,
    ) -> Result<(), BackupError> {
        if let Some(table) = self.begun {
            if file < self.half.file {
                return Ok(());
            }
            let other = || BackupError::OtherChain(self.choice.into_table.clone());
            let saved = saved.filter(|_| reading == self.half.reading).ok_or_else(other)?;
            self.begun = None;
            self.target = Some(Target { table, saved });
            return self.mark(Half { attempt: self.half.attempt + 1, ..self.half }).await;
        }
        let known = self.target.as_ref().map(|target| target.saved.id);
        if known != saved.as_ref().map(|saved| saved.id) {
            self.discard().await?;
        }
        let Some(saved) = saved else { return Ok(()) };
        let half = Half { reading, file, parts: 0, ..self.half };
        if let Some(target) = &mut self.target {
            if self.half.parts == ALL_PARTS {
                return Err(BackupError::OtherChain(self.choice.into_table.clone()));
            }
            target.saved = saved;
            return self.mark(half).await;
        }
        let (name, placement) = (&self.choice.into_table, saved.placement.clone());
        let policies = half.policies();
        let created = self
            .store
            .create_table_with_policies(self.account, name, placement, policies, u64::MAX)
            .await;
        let table = match created {
            Ok(table) => table,
            Err(StoreError::Rejected { reason: Conflict::TableExists, .. }) => {
                return self.go_on_with(file, reading, saved).await;
            }
            Err(error) => return Err(error.into()),
        };
        self.half = half;
        self.target = Some(Target { table: table.id, saved });
        Ok(())
    }

    /// Takes over a table that was not there a moment ago: an attempt whose client has hung up may have made it since.
    async fn go_on_with(
        &mut self,
        file: u32,
        reading: Guid,
        saved: Table,
    ) -> Result<(), BackupError> {
        let name = &self.choice.into_table;
        let made = find_half(&*self.store, self.account, name, self.half.backup).await?;
        match made {
            Some((table, half)) if (half.file, half.reading) == (file, reading) => {
                (self.half, self.resumed) = (half, true);
                self.target = Some(Target { table: table.id, saved });
                self.mark(Half { attempt: half.attempt + 1, ..half }).await
            }
            _ => Err(BackupError::TableExists(name.clone())),
        }
    }

    /// Notes how far the table has got.
    async fn mark(&mut self, half: Half) -> Result<(), BackupError> {
        self.check_mark().await?;
        if let Some(target) = &self.target {
            self.store.set_policies(target.table, half.policies()).await?;
        }
        self.half = half;
        Ok(())
    }

    /// Returns when all that was read for the table is in it.
    async fn settle(&mut self) -> Result<(), BackupError> {
        if self.target.is_some() {
            self.check_mark().await?;
        }
        self.applier.settle().await
    }

    /// Fails unless the table is still there as this attempt has left or found it: through another server, somebody may have begun
    /// another attempt and even finished it, or dropped the table. Asked before everything that is done to the table, so
    /// that no more than what is on its way just then reaches one that is somebody else's by now.
    async fn check_mark(&self) -> Result<(), BackupError> {
        let table = self.store.table(self.account, &self.choice.into_table).await?;
        let known = self.begun.or(self.target.as_ref().map(|target| target.table));
        let name = || self.choice.into_table.clone();
        match table.filter(|table| Some(table.id) == known) {
            Some(table) if table.half() == Some(self.half) => Ok(()),
            Some(_) => Err(BackupError::TakenOver(name())),
            None => Err(BackupError::TableGone(name())),
        }
    }

    /// Fails if an entity is ahead of the clock by too much: all later Timestamps of the store would be, too.
    fn check_time(&self, record: RecordRef<'_>) -> Result<(), BackupError> {
        let timestamp = record.timestamp();
        if self.choice.until.is_none_or(|until| timestamp <= until) {
            return Ok(());
        }
        let (account, table) = self.choice.wanted();
        Err(BackupError::FutureTimestamp {
            what: format!("the table {account}/{table}"),
            timestamp,
        })
    }

    /// Whether anything of it belongs into the table.
    async fn part(&mut self, part: Part) -> Result<bool, BackupError> {
        let Some(target) = &self.target else { return Ok(false) };
        let (table, saved) = (target.table, target.saved.id);
        let belongs = match &part {
            Part::Entities(frame) => frame.table == saved,
            Part::Changes(changes) => changes.iter().any(|change| change.table == saved),
            _ => false,
        };
        if !belongs {
            return Ok(false);
        }
        self.check_mark().await?;
        match part {
            Part::Entities(frame) => {
                self.items += frame.count;
                for (key, record) in frame.iter() {
                    self.check_time(record.as_ref())?;
                    self.applier.entity(table, key, record).await?;
                }
            }
            Part::Changes(changes) => {
                for change in changes.into_iter().filter(|change| change.table == saved) {
                    self.items += 1;
                    self.changes += 1;
                    if let Some(record) = &change.record {
                        self.check_time(record.as_ref())?;
                    }
                    self.applier.change(table, change).await?;
                }
            }
            _ => {}
        }
        Ok(true)
    }

    /// Drops what was made if the backup is not in order, or the store refuses what is in it. Whatever else was in the way may be
    /// gone when the same is tried again.
    async fn give_up(mut self, error: BackupError) -> BackupError {
        use BackupError as E;
        // What was on its way would only make what is thrown away larger.
        self.applier = Applier::new(Arc::clone(&self.store));
        let has_begun = self.begun.is_some() || self.target.is_some();
        match error {
            E::TableExists(_) | E::TakenOver(_) | E::TableGone(_) => error,
            // Between a look at the mark and the change that followed it.
            E::Store(StoreError::Rejected { reason: Conflict::TableNotFound, .. }) => {
                E::TableGone(self.choice.into_table)
            }
            E::Store(StoreError::Rejected { .. }) => self.take_back(error).await,
            E::Store(_) | E::File(FileError::Io(_)) if has_begun => {
                let reason = match &error {
                    E::Store(error) => cause(error).to_string(),
                    error => error.to_string(),
                };
                let halted = E::Halted { reason, table: self.choice.into_table.clone() };
                match self.check_mark().await {
                    Err(gone @ E::TableGone(_)) => gone,
                    // Another mark may be one of this attempt, of which nobody knew whether it was made.
                    _ => halted,
                }
            }
            error => self.take_back(error).await,
        }
    }

    /// Drops what was made, and tells why.
    async fn take_back(mut self, error: BackupError) -> BackupError {
        match self.discard().await {
            Ok(()) | Err(BackupError::TableGone(_)) => error,
            Err(BackupError::Store(again)) => {
                BackupError::LeftOver { reason: error.to_string(), again }
            }
            Err(not_ours) => not_ours,
        }
    }

    /// Takes back what was made, unless it is somebody else's by now.
    async fn discard(&mut self) -> Result<(), BackupError> {
        let made = self.target.as_ref().map(|target| target.table);
        let Some(table) = self.begun.or(made) else { return Ok(()) };
        self.check_mark().await?;
        (self.begun, self.target) = (None, None);
        (self.items, self.changes) = (0, 0);
        Ok(drop_if_there(&*self.store, table).await?)
    }
}

async fn drop_if_there(store: &dyn Store, table: TableId) -> Result<(), StoreError> {
    match store.drop_table(table).await {
        Err(StoreError::Rejected { reason: Conflict::TableNotFound, .. }) => Ok(()),
        outcome => outcome,
    }
}
