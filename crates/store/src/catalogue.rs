//! What a store knows beside entities: accounts and tables.

use crate::index::Index;
use crate::ttl::Ttl;
use rowhouse_types::{AccountName, StoredPolicy, TableName, Timestamp};
use std::collections::BTreeMap;

/// Names an account for ever; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AccountId(pub u32);

/// Names a table for ever; never reused, so a table created under an old name sees no old entities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableId(pub u64);

/// A storage account. The keys are sealed: a store cannot sign anything.
#[derive(Clone, Debug)]
pub struct Account {
    /// Its id.
    pub id: AccountId,
    /// Its name.
    pub name: AccountName,
    /// When it was created.
    pub created: Timestamp,
    /// Both keys as the account service sealed them.
    pub keys: [Box<[u8]>; 2],
    /// Settings by name, as a service encoded them.
    pub settings: BTreeMap<Box<str>, Box<[u8]>>,
    /// Rises with every change of the account: whoever caches compares it.
    pub version: u64,
}

/// What is needed to create an account.
#[derive(Clone, Debug)]
pub struct NewAccount {
    /// Its name.
    pub name: AccountName,
    /// Both keys, sealed.
    pub keys: [Box<[u8]>; 2],
}

/// A table.
#[derive(Clone, Debug)]
pub struct Table {
    /// Its id.
    pub id: TableId,
    /// Whose it is.
    pub account: AccountId,
    /// Its name, in the case it was created with.
    pub name: TableName,
    /// When it was created.
    pub created: Timestamp,
    /// Where its partitions go on an engine of several nodes.
    pub placement: Placement,
    /// Access policies in the order in which they were set.
    pub policies: Vec<StoredPolicy>,
    /// Secondary indexes in the order in which they were declared, at most [`rowhouse_types::limits::INDEXES_MAX`].
    pub indexes: Vec<Index>,
    /// When its entities expire; never without.
    pub ttl: Option<Ttl>,
}

/// Where partitions go; fixed when the table is created. Engines of one node keep it and need it not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// Tables of one group are co-located; by default a table is a group of its own.
    pub group: Option<Box<str>>,
    /// How many leading characters of the PartitionKey decide; all of it by default.
    pub route_chars: Option<u32>,
}
