//! Changes of accounts, tables and queues, run by the committer between batches.
//!
//! A change looks at the draft of the catalogue first, so a refusal leaves no trace; then it
//! writes the database and the draft alike. The draft becomes visible when the group is committed.

use crate::catalogue::Catalogue;
use crate::committer::Fault;
use crate::index::declare;
use crate::jobs::Answer;
use crate::queue;
use crate::schema::Marks;
use rowhouse_query::index::IndexKeys;
use rowhouse_store::{
    Account, AccountId, Conflict, IndexId, Metadata, NewAccount, Placement, QueueId, Table,
    TableId, Ttl,
};
use rowhouse_types::{EntityKey, IndexName, QueueName, Record, StoredPolicy, TableName, Timestamp};
use rusqlite::{Connection, params};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// What can be done to accounts, tables and queues.
#[derive(Debug)]
pub(crate) enum Change {
    CreateTable {
        account: AccountId,
        name: TableName,
        placement: Placement,
        policies: Vec<StoredPolicy>,
        /// Tables that the account may have.
        most: u64,
    },
    DropTable(TableId),
    SetPolicies(TableId, Vec<StoredPolicy>),
    SetTtl(TableId, Option<Ttl>),
    CreateIndex {
        table: TableId,
        name: IndexName,
        keys: IndexKeys,
    },
    DropIndex(TableId, IndexId),
    CreateQueue {
        account: AccountId,
        name: QueueName,
        metadata: Metadata,
        /// Queues that the account may have.
        most: u64,
    },
    DropQueue(QueueId),
    SetMetadata(QueueId, Metadata),
    SetQueuePolicies(QueueId, Vec<StoredPolicy>),
    CreateAccount(NewAccount),
    SetKeys {
        account: AccountId,
        version: u64,
        keys: [Box<[u8]>; 2],
    },
    SetSetting {
        account: AccountId,
        version: Option<u64>,
        name: Box<str>,
        value: Option<Box<[u8]>>,
    },
    RemoveAccount(AccountId),
    /// How long changes of entities are kept, if at all.
    KeepChanges(Option<Duration>),
}

/// The state that a group works on until it is committed.
#[derive(Debug)]
pub(crate) struct Draft {
    pub(crate) marks: Marks,
    /// The time of queues at the last batch.
    pub(crate) queue_time: Timestamp,
    pub(crate) catalogue: Catalogue,
    pub(crate) catalogue_changed: bool,
    /// Tables dropped by this group: the sweep hears of them after the commit.
    pub(crate) dropped: Vec<TableId>,
    /// Indexes whose entries nobody needs any more; likewise.
    pub(crate) dropped_indexes: Vec<IndexId>,
    /// Piles of messages that were given up; likewise.
    pub(crate) dropped_piles: Vec<i64>,
    /// Indexes declared by this group that have to be built; likewise.
    pub(crate) building: Vec<(TableId, IndexId)>,
    /// Tables whose entities expire from now on, or otherwise than before; likewise.
    pub(crate) expiring: Vec<TableId>,
    /// Cached records that this group replaces: they are back in the cache after the commit.
    pub(crate) refreshed: Vec<Refreshed>,
    /// What the batch at hand leaves, for the log.
    pub(crate) log: Vec<u8>,
}

/// A draft as it was before something was run, without what only grows.
pub(crate) struct Mark {
    marks: Marks,
    queue_time: Timestamp,
    catalogue: Catalogue,
    catalogue_changed: bool,
    lengths: [usize; 6],
}

impl Draft {
    /// What [`Self::go_back_to`] needs: the catalogue shares what does not change, and lists are only added to, but for what
    /// the batch at hand has put there itself.
    pub(crate) fn mark(&self) -> Mark {
        Mark {
            marks: self.marks,
            queue_time: self.queue_time,
            catalogue: self.catalogue.clone(),
            catalogue_changed: self.catalogue_changed,
            lengths: [
                self.dropped.len(),
                self.dropped_indexes.len(),
                self.dropped_piles.len(),
                self.building.len(),
                self.expiring.len(),
                self.refreshed.len(),
            ],
        }
    }

    /// Forgets what was noted since.
    pub(crate) fn go_back_to(&mut self, mark: Mark) {
        let [dropped, dropped_indexes, dropped_piles, building, expiring, refreshed] = mark.lengths;
        (self.marks, self.queue_time) = (mark.marks, mark.queue_time);
        (self.catalogue, self.catalogue_changed) = (mark.catalogue, mark.catalogue_changed);
        self.dropped.truncate(dropped);
        self.dropped_indexes.truncate(dropped_indexes);
        self.dropped_piles.truncate(dropped_piles);
        self.building.truncate(building);
        self.expiring.truncate(expiring);
        self.refreshed.truncate(refreshed);
        self.log.clear();
    }

    /// Takes back what an earlier command of the same batch has put there. True if there was something.
    pub(crate) fn withdraw(&mut self, table: TableId, key: &EntityKey, batch: u64) -> bool {
        let same_batch = self.refreshed.iter().rev().take_while(|record| record.batch == batch);
        let found = same_batch.enumerate().find(|(_, it)| it.table == table && it.key == *key);
        match found.map(|(from_the_end, _)| self.refreshed.len() - 1 - from_the_end) {
            Some(at) => {
                self.refreshed.remove(at);
                true
            }
            None => false,
        }
    }
}

/// A record as a batch stored it.
#[derive(Clone, Debug)]
pub(crate) struct Refreshed {
    pub(crate) table: TableId,
    pub(crate) key: EntityKey,
    pub(crate) record: Record,
    pub(crate) batch: u64,
}

impl Change {
    /// What it holds in memory, roughly.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::SetPolicies(_, policies) | Self::SetQueuePolicies(_, policies) => {
                policies.len() * 256
            }
            Self::SetMetadata(_, metadata) | Self::CreateQueue { metadata, .. } => {
                metadata.iter().fold(256, |sum, (name, value)| sum + name.len() + value.len())
            }
            Self::CreateTable { policies, .. } => 256 + policies.len() * 256,
            Self::SetSetting { value, .. } => value.as_ref().map_or(0, |value| value.len()),
            Self::DropTable(_)
            | Self::SetTtl(..)
            | Self::CreateIndex { .. }
            | Self::DropIndex(..)
            | Self::DropQueue(_)
            | Self::CreateAccount(_)
            | Self::SetKeys { .. }
            | Self::RemoveAccount(_)
            | Self::KeepChanges(_) => 256,
        }
    }

    /// Makes the change in the database and in the draft.
    pub(crate) fn apply(
        self,
        conn: &Connection,
        draft: &mut Draft,
        now: Timestamp,
    ) -> Result<Answer, Fault> {
        let answer = match self {
            Self::CreateTable { account, name, placement, policies, most } => {
                check_tables(draft, account, &name, most)?;
                create_table(conn, draft, account, name, placement, policies, now)
            }
            Self::DropTable(table) => drop_table(conn, draft, table),
            Self::SetPolicies(table, policies) => set_policies(conn, draft, table, policies),
            Self::SetTtl(table, ttl) => set_ttl(conn, draft, table, ttl),
            Self::CreateIndex { table, name, keys } => {
                declare::create(conn, draft, table, name, keys)
            }
            Self::DropIndex(table, index) => declare::drop_one(conn, draft, table, index),
            Self::CreateQueue { account, name, metadata, most } => {
                queue::declare::check(draft, account, &name, most)?;
                queue::declare::create(conn, draft, account, name, metadata, now)
            }
            Self::DropQueue(queue) => queue::declare::drop_one(conn, draft, queue),
            Self::SetMetadata(queue, metadata) => {
                queue::declare::set_metadata(conn, draft, queue, metadata)
            }
            Self::SetQueuePolicies(queue, policies) => {
                queue::declare::set_policies(conn, draft, queue, policies)
            }
            Self::CreateAccount(account) => create_account(conn, draft, account, now),
            Self::SetKeys { account, version, keys } => {
                change_account(conn, draft, account, Some(version), |account| {
                    account.keys = keys;
                    Ok(())
                })
            }
            Self::SetSetting { account, version, name, value } => {
                set_setting(conn, draft, account, version, name, value)
            }
            Self::RemoveAccount(account) => remove_account(conn, draft, account),
            Self::KeepChanges(retention) => {
                keep_changes(&mut draft.marks, retention);
                return Ok(Answer::Done);
            }
        }?;
        draft.catalogue_changed = true;
        Ok(answer)
    }
}

/// What was kept while nothing was asked for is not complete, so it counts as gone.
fn keep_changes(marks: &mut Marks, retention: Option<Duration>) {
    if marks.retention.is_none() || retention.is_none() {
        marks.changes_after = marks.sequence;
    }
    marks.retention = retention;
}

/// Refuses a new table of an account that has as many as it may, or whose tables and queues take all the memory that they
/// may. A restore may create any number.
fn check_tables(
    draft: &Draft,
    account: AccountId,
    name: &TableName,
    most: u64,
) -> Result<(), Fault> {
    let full = most <= draft.catalogue.held(account).tables
        || (most < u64::MAX && draft.catalogue.is_full(account));
    if full && draft.catalogue.table(account, name.folded()).is_none() {
        return Err(Fault::Rejected(Conflict::TooManyTables));
    }
    Ok(())
}

fn create_table(
    conn: &Connection,
    draft: &mut Draft,
    account: AccountId,
    name: TableName,
    placement: Placement,
    policies: Vec<StoredPolicy>,
    created: Timestamp,
) -> Result<Answer, Fault> {
    if draft.catalogue.account_by_id(account).is_none() {
        return Err(Fault::Rejected(Conflict::AccountNotFound));
    }
    let folded = name.folded();
    if draft.catalogue.table(account, folded.clone()).is_some() {
        return Err(Fault::Rejected(Conflict::TableExists));
    }
    draft.marks.last_table += 1;
    let id = TableId(draft.marks.last_table);
    conn.prepare_cached(
        "INSERT INTO tables (id, account, folded, name, created, placement_group, route_chars)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?
    .execute(params![
        id.0.cast_signed(),
        account.0,
        folded.as_str(),
        name.as_str(),
        created.ticks().cast_signed(),
        placement.group.as_deref(),
        placement.route_chars,
    ])?;
    insert_policies(conn, id, &policies)?;
    let indexes = Vec::new();
    let table = Table { id, account, name, created, placement, policies, indexes, ttl: None };
    let table = Arc::new(table);
    draft.catalogue.put_table(Arc::clone(&table));
    Ok(Answer::Table(table))
}

fn drop_table(conn: &Connection, draft: &mut Draft, table: TableId) -> Result<Answer, Fault> {
    let Some(found) = draft.catalogue.table_by_id(table).cloned() else {
        return Err(Fault::Rejected(Conflict::TableNotFound));
    };
    for index in &found.indexes {
        declare::remove(conn, draft, index.id)?;
    }
    let id = table.0.cast_signed();
    conn.prepare_cached("DELETE FROM policies WHERE table_id = ?1")?.execute([id])?;
    conn.prepare_cached("DELETE FROM tables WHERE id = ?1")?.execute([id])?;
    conn.prepare_cached("INSERT INTO dropped (table_id) VALUES (?1)")?.execute([id])?;
    draft.catalogue.remove_table(table);
    draft.dropped.push(table);
    Ok(Answer::Done)
}

fn set_policies(
    conn: &Connection,
    draft: &mut Draft,
    table: TableId,
    policies: Vec<StoredPolicy>,
) -> Result<Answer, Fault> {
    let Some(found) = draft.catalogue.table_by_id(table) else {
        return Err(Fault::Rejected(Conflict::TableNotFound));
    };
    let mut changed = Table::clone(found);
    changed.policies = policies;
    let grows = found.memory_bytes() < changed.memory_bytes();
    if grows && draft.catalogue.is_full(found.account) {
        return Err(Fault::Rejected(Conflict::TooManyTables));
    }
    let id = table.0.cast_signed();
    conn.prepare_cached("DELETE FROM policies WHERE table_id = ?1")?.execute([id])?;
    insert_policies(conn, table, &changed.policies)?;
    draft.catalogue.put_table(Arc::new(changed));
    Ok(Answer::Done)
}

fn insert_policies(
    conn: &Connection,
    table: TableId,
    policies: &[StoredPolicy],
) -> Result<(), Fault> {
    let mut insert = conn.prepare_cached(
        "INSERT INTO policies (table_id, position, id, start, expiry, permission)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?;
    for (position, policy) in (0_i64..).zip(policies) {
        insert.execute(params![
            table.0.cast_signed(),
            position,
            &*policy.id,
            policy.start.map(|time| time.ticks().cast_signed()),
            policy.expiry.map(|time| time.ticks().cast_signed()),
            policy.permission.as_deref(),
        ])?;
    }
    Ok(())
}

fn set_ttl(
    conn: &Connection,
    draft: &mut Draft,
    table: TableId,
    ttl: Option<Ttl>,
) -> Result<Answer, Fault> {
    if !draft.catalogue.has_table(table) {
        return Err(Fault::Rejected(Conflict::TableNotFound));
    }
    let property = ttl.as_ref().and_then(|ttl| ttl.property.as_deref());
    conn.prepare_cached("UPDATE tables SET ttl = ?2, ttl_property = ?3 WHERE id = ?1")?.execute(
        params![
            table.0.cast_signed(),
            ttl.as_ref().map(|ttl| ttl.ticks().cast_signed()),
            property,
        ],
    )?;
    if ttl.is_some() {
        draft.expiring.push(table);
    }
    draft.catalogue.change_table(table, |table| table.ttl = ttl);
    Ok(Answer::Done)
}

fn create_account(
    conn: &Connection,
    draft: &mut Draft,
    new: NewAccount,
    created: Timestamp,
) -> Result<Answer, Fault> {
    if draft.catalogue.account(&new.name).is_some() {
        return Err(Fault::Rejected(Conflict::AccountExists));
    }
    draft.marks.last_account += 1;
    let account = Arc::new(Account {
        id: AccountId(draft.marks.last_account),
        name: new.name,
        created,
        keys: new.keys,
        settings: BTreeMap::new(),
        version: 1,
    });
    conn.prepare_cached(
        "INSERT INTO accounts (id, name, created, key1, key2, version)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?
    .execute(params![
        account.id.0,
        account.name.as_str(),
        created.ticks().cast_signed(),
        &*account.keys[0],
        &*account.keys[1],
        account.version.cast_signed(),
    ])?;
    draft.catalogue.put_account(Arc::clone(&account));
    Ok(Answer::Account(account))
}

/// Changes an account under a new version; with an expected one, only if the account has it.
fn change_account(
    conn: &Connection,
    draft: &mut Draft,
    account: AccountId,
    expected: Option<u64>,
    change: impl FnOnce(&mut Account) -> Result<(), rusqlite::Error>,
) -> Result<Answer, Fault> {
    let Some(found) = draft.catalogue.account_by_id(account) else {
        return Err(Fault::Rejected(Conflict::AccountNotFound));
    };
    if expected.is_some_and(|expected| expected != found.version) {
        return Err(Fault::Rejected(Conflict::AccountChanged));
    }
    let mut found = Account::clone(found);
    change(&mut found)?;
    found.version += 1;
    conn.prepare_cached("UPDATE accounts SET key1 = ?2, key2 = ?3, version = ?4 WHERE id = ?1")?
        .execute(params![
            account.0,
            &*found.keys[0],
            &*found.keys[1],
            found.version.cast_signed()
        ])?;
    draft.catalogue.put_account(Arc::new(found));
    Ok(Answer::Done)
}

fn set_setting(
    conn: &Connection,
    draft: &mut Draft,
    account: AccountId,
    version: Option<u64>,
    name: Box<str>,
    value: Option<Box<[u8]>>,
) -> Result<Answer, Fault> {
    change_account(conn, draft, account, version, |found| {
        if let Some(value) = value {
            conn.prepare_cached(
                "INSERT INTO account_settings (account, name, value) VALUES (?1, ?2, ?3)
                 ON CONFLICT DO UPDATE SET value = excluded.value",
            )?
            .execute(params![account.0, &*name, &*value])?;
            found.settings.insert(name, value);
        } else {
            conn.prepare_cached("DELETE FROM account_settings WHERE account = ?1 AND name = ?2")?
                .execute(params![account.0, &*name])?;
            found.settings.remove(&name);
        }
        Ok(())
    })
}

fn remove_account(
    conn: &Connection,
    draft: &mut Draft,
    account: AccountId,
) -> Result<Answer, Fault> {
    if draft.catalogue.account_by_id(account).is_none() {
        return Err(Fault::Rejected(Conflict::AccountNotFound));
    }
    let tables: Vec<_> = draft.catalogue.tables(account, None).map(|table| table.id).collect();
    for table in tables {
        drop_table(conn, draft, table)?;
    }
    let queues: Vec<_> = draft.catalogue.queues(account, "").map(|queue| queue.id).collect();
    for queue in queues {
        queue::declare::drop_one(conn, draft, queue)?;
    }
    conn.prepare_cached("DELETE FROM account_settings WHERE account = ?1")?.execute([account.0])?;
    conn.prepare_cached("DELETE FROM accounts WHERE id = ?1")?.execute([account.0])?;
    draft.catalogue.remove_account(account);
    Ok(Answer::Done)
}
