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

/// What an allocation takes beside its bytes, about.
const ALLOCATION_BYTES: usize = 32;

pub(crate) fn text_bytes(text: &str) -> usize {
    ALLOCATION_BYTES + text.len()
}

pub(crate) fn policies_bytes(policies: &[StoredPolicy]) -> usize {
    let bytes = |policy: &StoredPolicy| {
        let permission = policy.permission.as_deref().map_or(0, text_bytes);
        size_of::<StoredPolicy>() + text_bytes(&policy.id) + permission
    };
    policies.iter().map(bytes).sum()
}

impl Account {
    /// What it takes in memory, about.
    pub fn memory_bytes(&self) -> usize {
        let keys: usize = self.keys.iter().map(|key| ALLOCATION_BYTES + key.len()).sum();
        let settings: usize = self
            .settings
            .iter()
            .map(|(name, value)| text_bytes(name) + 2 * ALLOCATION_BYTES + value.len())
            .sum();
        size_of::<Self>() + text_bytes(self.name.as_str()) + keys + settings
    }
}

impl Table {
    /// What it takes in memory, about.
    pub fn memory_bytes(&self) -> usize {
        let index = |index: &Index| {
            let properties = index.keys.properties.iter();
            let properties: usize = properties.map(|it| size_of_val(it) + text_bytes(it)).sum();
            size_of::<Index>() + text_bytes(index.name.as_str()) + properties
        };
        let indexes: usize = self.indexes.iter().map(index).sum();
        let property = self.ttl.as_ref().and_then(|ttl| ttl.property.as_deref());
        let group = self.placement.group.as_deref();
        let optional: usize = [property, group].into_iter().flatten().map(text_bytes).sum();
        let name = text_bytes(self.name.as_str());
        size_of::<Self>() + name + optional + indexes + policies_bytes(&self.policies)
    }
}

/// Where partitions go; fixed when the table is created. Engines of one node keep it and need it not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// Tables of one group are co-located; by default a table is a group of its own.
    pub group: Option<Box<str>>,
    /// How many leading characters of the PartitionKey decide; all of it by default.
    pub route_chars: Option<u32>,
}
