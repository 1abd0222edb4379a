//! What frames hold, to bytes and back. `docs/formats/backup.md` has the layout of each.

use crate::fields::{Fields, Offence, Put};
use crate::indexes::{self, FIRST_VERSION_WITH_INDEXES};
use crate::{queues, ttl};
use rowhouse_store::{Account, AccountId, Change, Placement, Queue, Table, TableId};
use rowhouse_types::{EntityKey, Guid, Record, RecordRef, Row, StoredPolicy, Timestamp};
use std::collections::BTreeMap;

/// What a backup begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Names this backup, and no other.
    pub id: Guid,
    /// When it was begun.
    pub taken: Timestamp,
    /// The place in the changes that belongs to it: an incremental backup goes on from here.
    pub place: u64,
    /// Full or incremental.
    pub extent: Extent,
    /// The release that wrote it.
    pub product: Box<str>,
}

/// How much a backup holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Everything.
    Full,
    /// What has changed since another one.
    Incremental(Base),
}

/// What an incremental backup goes on from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Base {
    /// Which backup.
    pub id: Guid,
    /// Its place in the changes.
    pub place: u64,
}

/// How much there is in a backup, as its end says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Accounts.
    pub accounts: u64,
    /// Tables.
    pub tables: u64,
    /// Entities; none in an incremental backup.
    pub entities: u64,
    /// Changes; none in a full backup.
    pub changes: u64,
    /// Queues.
    pub queues: u64,
    /// Messages in them.
    pub messages: u64,
}

const FULL: u8 = 1;
const INCREMENTAL: u8 = 2;
/// With this the last frame ends.
const DIGEST_BYTES: usize = 32;

impl Header {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend_from_slice(&self.id.0);
        out.put_u64(self.taken.ticks());
        out.put_u64(self.place);
        match self.extent {
            Extent::Full => out.put_u8(FULL),
            Extent::Incremental(base) => {
                out.put_u8(INCREMENTAL);
                out.extend_from_slice(&base.id.0);
                out.put_u64(base.place);
            }
        }
        out.put_short(self.product.as_bytes());
        out
    }

    pub(crate) fn decode(mut fields: Fields<'_>) -> Result<Self, Offence> {
        let id = Guid(fields.id()?);
        let taken = fields.time()?;
        let place = fields.u64()?;
        let extent = match fields.u8()? {
            FULL => Extent::Full,
            INCREMENTAL => {
                let base = Base { id: Guid(fields.id()?), place: fields.u64()? };
                if place < base.place {
                    return Err("it ends before it begins");
                }
                Extent::Incremental(base)
            }
            _ => return Err("it is neither full nor incremental"),
        };
        let product = fields.text()?.into();
        end(fields)?;
        Ok(Self { id, taken, place, extent, product })
    }

    /// What an incremental backup that follows this one goes on from.
    pub fn as_base(&self) -> Base {
        Base { id: self.id, place: self.place }
    }
}

impl Totals {
    /// Entities, changes and messages: what a restore puts into a store.
    pub fn items(&self) -> u64 {
        self.entities + self.changes + self.messages
    }

    pub(crate) fn encode(&self, digest: &[u8; 32]) -> Vec<u8> {
        let mut out = Vec::new();
        for count in [self.accounts, self.tables, self.entities, self.changes] {
            out.put_u64(count);
        }
        if self.queues > 0 {
            out.put_u64(self.queues);
            out.put_u64(self.messages);
        }
        out.extend_from_slice(digest);
        out
    }

    pub(crate) fn decode(mut fields: Fields<'_>) -> Result<(Self, [u8; 32]), Offence> {
        let mut totals = Self {
            accounts: fields.u64()?,
            tables: fields.u64()?,
            entities: fields.u64()?,
            changes: fields.u64()?,
            ..Self::default()
        };
        if DIGEST_BYTES < fields.len() {
            (totals.queues, totals.messages) = (fields.u64()?, fields.u64()?);
        }
        let digest = fields.digest()?;
        end(fields)?;
        Ok((totals, digest))
    }
}

pub(crate) fn put_account(out: &mut Vec<u8>, account: &Account) {
    out.put_u32(account.id.0);
    out.put_u64(account.created.ticks());
    out.put_short(account.name.as_str().as_bytes());
    for key in &account.keys {
        out.put_long(key);
    }
    out.put_u32(u32::try_from(account.settings.len()).expect("an account has few settings"));
    for (name, value) in &account.settings {
        out.put_short(name.as_bytes());
        out.put_long(value);
    }
}

fn account(fields: &mut Fields<'_>) -> Result<Account, Offence> {
    let id = AccountId(fields.u32()?);
    let created = fields.time()?;
    let name = fields.text()?.parse().map_err(|_| "an account has a name that none can have")?;
    let keys = [fields.long()?.into(), fields.long()?.into()];
    let mut settings = BTreeMap::new();
    for _ in 0..fields.u32()? {
        let name = fields.text()?.into();
        settings.insert(name, fields.long()?.into());
    }
    Ok(Account { id, name, created, keys, settings, version: 0 })
}

pub(crate) fn put_table(out: &mut Vec<u8>, table: &Table) {
    out.put_u64(table.id.0);
    out.put_u32(table.account.0);
    out.put_u64(table.created.ticks());
    out.put_short(table.name.as_str().as_bytes());
    out.put_option(table.placement.group.as_deref(), |out, group| out.put_short(group.as_bytes()));
    out.put_option(table.placement.route_chars, Put::put_u32);
    put_policies(out, &table.policies);
    indexes::put(out, &table.indexes);
    ttl::put(out, table.ttl.as_ref());
}

pub(crate) fn put_policies(out: &mut Vec<u8>, policies: &[StoredPolicy]) {
    out.put_u16(u16::try_from(policies.len()).expect("there are few policies"));
    for policy in policies {
        out.put_short(policy.id.as_bytes());
        out.put_option(policy.start, |out, time| out.put_u64(time.ticks()));
        out.put_option(policy.expiry, |out, time| out.put_u64(time.ticks()));
        out.put_option(policy.permission.as_deref(), |out, text| out.put_short(text.as_bytes()));
    }
}

fn table(fields: &mut Fields<'_>, version: u32) -> Result<Table, Offence> {
    let id = TableId(fields.u64()?);
    let account = AccountId(fields.u32()?);
    let created = fields.time()?;
    let name = fields.text()?.parse().map_err(|_| "a table has a name that none can have")?;
    let placement = Placement {
        group: fields.option(|fields| Ok(fields.text()?.into()))?,
        route_chars: fields.option(Fields::u32)?,
    };
    let policies = (0..fields.u16()?).map(|_| policy(fields)).collect::<Result<_, _>>()?;
    let (indexes, ttl) = if FIRST_VERSION_WITH_INDEXES <= version {
        (indexes::read(fields)?, ttl::read(fields)?)
    } else {
        (Vec::new(), None)
    };
    Ok(Table { id, account, name, created, placement, policies, indexes, ttl })
}

pub(crate) fn policy(fields: &mut Fields<'_>) -> Result<StoredPolicy, Offence> {
    Ok(StoredPolicy {
        id: fields.text()?.into(),
        start: fields.option(Fields::time)?,
        expiry: fields.option(Fields::time)?,
        permission: fields.option(|fields| Ok(fields.text()?.into()))?,
    })
}

/// What a frame of entities begins with: their table, and how many of it came before.
pub(crate) fn put_entities_head(out: &mut Vec<u8>, table: TableId, before: u64) {
    out.put_u64(table.0);
    out.put_u64(before);
}

pub(crate) fn put_entity(out: &mut Vec<u8>, row: &Row<'_>) {
    out.put_short(row.partition.as_bytes());
    out.put_short(row.row.as_bytes());
    out.put_long(row.record.as_bytes());
}

pub(crate) fn entities_head(fields: &mut Fields<'_>) -> Result<(TableId, u64), Offence> {
    Ok((TableId(fields.u64()?), fields.u64()?))
}

/// An entity where it stands, checked in every part.
pub(crate) fn entity<'a>(fields: &mut Fields<'a>) -> Result<Row<'a>, Offence> {
    let (partition, row) = key(fields)?;
    Ok(Row { partition, row, record: record(fields.long()?)? })
}

/// A copy of an entity that was checked before.
pub(crate) fn checked_entity(fields: &mut Fields<'_>) -> Result<(EntityKey, Record), Offence> {
    let key = owned_key((fields.text()?, fields.text()?));
    let record = Record::from_bytes(fields.long()?.to_vec()).map_err(|corrupt| corrupt.0)?;
    Ok((key, record))
}

/// The end of a table: which, and how many entities it has.
pub(crate) fn encode_table_end(table: TableId, entities: u64) -> Vec<u8> {
    let mut out = Vec::new();
    out.put_u64(table.0);
    out.put_u64(entities);
    out
}

pub(crate) fn table_end(mut fields: Fields<'_>) -> Result<(TableId, u64), Offence> {
    let ended = (TableId(fields.u64()?), fields.u64()?);
    end(fields)?;
    Ok(ended)
}

pub(crate) fn put_change(out: &mut Vec<u8>, change: &Change) {
    out.put_u64(change.place);
    out.put_u64(change.table.0);
    out.put_u64(change.at.ticks());
    out.put_short(change.key.partition.as_str().as_bytes());
    out.put_short(change.key.row.as_str().as_bytes());
    out.put_option(change.record.as_ref(), |out, record| out.put_long(record.as_bytes()));
}

fn change(fields: &mut Fields<'_>) -> Result<Change, Offence> {
    Ok(Change {
        place: fields.u64()?,
        table: TableId(fields.u64()?),
        at: fields.time()?,
        key: owned_key(key(fields)?),
        record: fields.option(owned_record)?,
    })
}

pub(crate) fn accounts(fields: Fields<'_>) -> Result<Vec<Account>, Offence> {
    all(fields, account)
}

pub(crate) fn tables(fields: Fields<'_>, version: u32) -> Result<Vec<Table>, Offence> {
    all(fields, |fields| table(fields, version))
}

pub(crate) fn queues(fields: Fields<'_>) -> Result<Vec<Queue>, Offence> {
    all(fields, queues::read)
}

pub(crate) fn changes(fields: Fields<'_>) -> Result<Vec<Change>, Offence> {
    all(fields, change)
}

fn key<'a>(fields: &mut Fields<'a>) -> Result<(&'a str, &'a str), Offence> {
    let (partition, row) = (fields.text()?, fields.text()?);
    EntityKey::check(partition, row).map_err(|_| "an entity has a key that none can have")?;
    Ok((partition, row))
}

/// A copy of a key that was checked.
pub(crate) fn owned_key((partition, row): (&str, &str)) -> EntityKey {
    EntityKey::new(partition, row).expect("the key was checked")
}

/// Every text in a record is read too, so that nothing unreadable is ever put into a store.
fn record(bytes: &[u8]) -> Result<RecordRef<'_>, Offence> {
    let record = RecordRef::parse(bytes).map_err(|corrupt| corrupt.0)?;
    for property in record.iter() {
        property.map_err(|corrupt| corrupt.0)?;
    }
    Ok(record)
}

fn owned_record(fields: &mut Fields<'_>) -> Result<Record, Offence> {
    let bytes = record(fields.long()?)?.as_bytes().to_vec();
    Record::from_bytes(bytes).map_err(|corrupt| corrupt.0)
}

/// One thing after the other, to the end of the frame.
fn all<T>(
    mut fields: Fields<'_>,
    read: impl Fn(&mut Fields<'_>) -> Result<T, Offence>,
) -> Result<Vec<T>, Offence> {
    let mut things = Vec::new();
    while !fields.is_empty() {
        things.push(read(&mut fields)?);
    }
    Ok(things)
}

fn end(fields: Fields<'_>) -> Result<(), Offence> {
    if fields.is_empty() { Ok(()) } else { Err("a frame is longer than what it holds") }
}
