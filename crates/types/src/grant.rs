//! What a request may do, once its credentials have been verified.
//!
//! Authentication ends in a [`Grant`]; services ask it before they act. A grant knows nothing of
//! signatures, and a service nothing of how the grant came about.

mod queue;

pub use queue::QueueAccess;

use crate::key::KeyRange;
use crate::name::{FoldedName, QueueName, TableName};

/// A service of an account, each with endpoints, settings and grants of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Tables and entities.
    Table,
    /// Queues and messages.
    Queue,
}

impl Service {
    /// What a host name has after the account: `acct.table.example.org`.
    pub fn label(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::Queue => "queue",
        }
    }

    /// The permissions that a signature of one table or queue can have, in the order in which they are written.
    pub fn letters(self) -> &'static str {
        match self {
            Self::Table => "raud",
            Self::Queue => "raup",
        }
    }
}

/// Everything that a request to the Table service can need a permission for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read entities.
    ReadEntities,
    /// Insert an entity.
    AddEntity,
    /// Replace or merge an entity that must exist.
    UpdateEntity,
    /// Replace or merge an entity that need not exist.
    UpsertEntity,
    /// Delete an entity.
    DeleteEntity,
    /// List tables or look at one.
    QueryTables,
    /// Create a table.
    CreateTable,
    /// Delete a table.
    DeleteTable,
    /// Read or change a table's access policies.
    TablePolicies,
    /// Read or change what only its owner settles about a table: indexes, and the record of costly queries.
    TableSettings,
    /// Read service properties or statistics.
    ReadService,
    /// Change service properties.
    WriteService,
}

/// Why a grant does not cover a request. Each has an answer of its own on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// An account signature that does not name this service.
    #[error("the signature does not cover this service")]
    Service,
    /// An account signature that does not name this kind of resource.
    #[error("the signature does not cover this resource type")]
    ResourceType,
    /// A permission letter is missing.
    #[error("the signature lacks a permission")]
    Permission,
    /// Never allowed with this kind of credential, another table, or a key outside the range.
    #[error("the credential does not allow this operation")]
    Operation,
}

/// Kinds of resource that an account signature names in `srt`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResourceTypes {
    /// `s`
    pub service: bool,
    /// `c`
    pub container: bool,
    /// `o`
    pub object: bool,
}

/// Services that an account signature names in `ss`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Services {
    /// `t`
    pub table: bool,
    /// `q`
    pub queue: bool,
}

/// Permission letters of a signature, `sp`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Letters(u32);

impl Letters {
    /// From the text of `sp`; characters other than `a` to `z` are not kept.
    pub fn new(text: &str) -> Self {
        let bits = text.bytes().filter(u8::is_ascii_lowercase);
        Self(bits.fold(0, |set, letter| set | 1 << (letter - b'a')))
    }

    /// True if the letter is among them.
    pub fn has(self, letter: char) -> bool {
        letter.is_ascii_lowercase() && self.0 & 1 << (letter as u32 - 'a' as u32) != 0
    }
}

/// What verified credentials allow within one account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Grant {
    /// Signed with a key of the account: everything.
    AccountKey,
    /// A shared access signature of the account.
    AccountSignature {
        /// `ss`
        services: Services,
        /// `srt`
        resource_types: ResourceTypes,
        /// `sp`
        permissions: Letters,
    },
    /// A shared access signature of one table.
    TableSignature {
        /// `tn`
        table: FoldedName,
        /// `sp`, or that of the stored policy.
        permissions: Letters,
        /// `spk` to `erk`.
        range: KeyRange,
    },
    /// A shared access signature of one queue.
    QueueSignature {
        /// The queue that the URL names.
        queue: QueueName,
        /// `sp`, or that of the stored policy.
        permissions: Letters,
    },
}

impl Grant {
    /// Whether the operation is allowed at all; `table` is the one it works on, if it works on one.
    pub fn check(&self, access: Access, table: Option<&TableName>) -> Result<(), Denied> {
        use Access::{
            AddEntity, CreateTable, DeleteEntity, DeleteTable, QueryTables, ReadEntities,
            ReadService, TablePolicies, TableSettings, UpdateEntity, UpsertEntity, WriteService,
        };
        match self {
            Self::AccountKey => Ok(()),
            Self::AccountSignature { resource_types, permissions, .. } => {
                self.check_service(Service::Table)?;
                let right_type = match access {
                    ReadEntities | AddEntity | UpdateEntity | UpsertEntity | DeleteEntity => {
                        resource_types.object
                    }
                    QueryTables | CreateTable | DeleteTable => resource_types.container,
                    ReadService | WriteService => resource_types.service,
                    TablePolicies | TableSettings => return Err(Denied::Operation),
                };
                if !right_type {
                    return Err(Denied::ResourceType);
                }
                let may = |letter| permissions.has(letter);
                let allowed = match access {
                    ReadEntities | ReadService => may('r'),
                    AddEntity => may('a'),
                    UpdateEntity => may('u'),
                    UpsertEntity => may('a') && may('u'),
                    DeleteEntity | DeleteTable => may('d'),
                    QueryTables => may('l'),
                    CreateTable => may('c') || may('w'),
                    WriteService => may('w'),
                    TablePolicies | TableSettings => false,
                };
                if allowed { Ok(()) } else { Err(Denied::Permission) }
            }
            Self::TableSignature { table: granted, permissions, .. } => {
                if table.is_none_or(|table| table.folded() != *granted) {
                    return Err(Denied::Operation);
                }
                let may = |letter| permissions.has(letter);
                let allowed = match access {
                    ReadEntities => may('r'),
                    AddEntity => may('a'),
                    UpdateEntity => may('u'),
                    UpsertEntity => may('a') && may('u'),
                    DeleteEntity => may('d'),
                    QueryTables | CreateTable | DeleteTable | TablePolicies | TableSettings
                    | ReadService | WriteService => return Err(Denied::Operation),
                };
                if allowed { Ok(()) } else { Err(Denied::Permission) }
            }
            Self::QueueSignature { .. } => Err(Denied::Operation),
        }
    }

    /// Whether anything may be asked of the service: an account signature says so in `ss`.
    pub fn check_service(&self, service: Service) -> Result<(), Denied> {
        let Self::AccountSignature { services, .. } = self else { return Ok(()) };
        let named = match service {
            Service::Table => services.table,
            Service::Queue => services.queue,
        };
        if named { Ok(()) } else { Err(Denied::Service) }
    }

    /// Whether a batch sent to the Table service may hold an operation that is allowed: one on an entity, or on a message
    /// of a queue.
    pub fn check_batch(&self) -> Result<(), Denied> {
        match self {
            Self::AccountKey => Ok(()),
            Self::AccountSignature { services, resource_types, permissions } => {
                self.check_service(Service::Table)?;
                if !resource_types.object {
                    return Err(Denied::ResourceType);
                }
                let entity = ['r', 'a', 'u', 'd'].iter().any(|letter| permissions.has(*letter));
                let message = services.queue && permissions.has('p');
                if entity || message { Ok(()) } else { Err(Denied::Permission) }
            }
            Self::TableSignature { permissions, .. } => {
                let any = ['r', 'a', 'u', 'd'].iter().any(|letter| permissions.has(*letter));
                if any { Ok(()) } else { Err(Denied::Permission) }
            }
            Self::QueueSignature { .. } => Err(Denied::Operation),
        }
    }

    /// The keys that may be read or written; everything unless the signature names a range.
    pub fn range(&self) -> Option<&KeyRange> {
        match self {
            Self::TableSignature { range, .. } => Some(range),
            Self::AccountKey | Self::AccountSignature { .. } | Self::QueueSignature { .. } => None,
        }
    }

    /// Whether an entity with this key may be written.
    pub fn check_key(&self, partition: &str, row: &str) -> Result<(), Denied> {
        match self.range() {
            Some(range) if !range.contains(partition, row) => Err(Denied::Operation),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Access; 12] = [
        Access::ReadEntities,
        Access::AddEntity,
        Access::UpdateEntity,
        Access::UpsertEntity,
        Access::DeleteEntity,
        Access::QueryTables,
        Access::CreateTable,
        Access::DeleteTable,
        Access::TablePolicies,
        Access::TableSettings,
        Access::ReadService,
        Access::WriteService,
    ];

    fn table_signature(letters: &str) -> Grant {
        Grant::TableSignature {
            table: FoldedName::of("people"),
            permissions: Letters::new(letters),
            range: KeyRange::partition("p"),
        }
    }

    #[test]
    fn table_signature_allows_entities_of_its_table_only() {
        let people: TableName = "People".parse().unwrap();
        let other: TableName = "other".parse().unwrap();
        for access in ALL {
            let entity = matches!(
                access,
                Access::ReadEntities
                    | Access::AddEntity
                    | Access::UpdateEntity
                    | Access::UpsertEntity
                    | Access::DeleteEntity
            );
            let grant = table_signature("raud");
            assert_eq!(grant.check(access, Some(&people)).is_ok(), entity, "{access:?}");
            assert_eq!(grant.check(access, Some(&other)), Err(Denied::Operation), "{access:?}");
        }
        let upsert = |letters| table_signature(letters).check(Access::UpsertEntity, Some(&people));
        assert_eq!(upsert("au"), Ok(()));
        assert_eq!(upsert("a"), Err(Denied::Permission));
        assert_eq!(upsert("u"), Err(Denied::Permission));
        assert_eq!(table_signature("a").check_key("p", "r"), Ok(()));
        assert_eq!(table_signature("a").check_key("q", "r"), Err(Denied::Operation));
    }

    #[test]
    fn account_signature_is_checked_in_the_order_of_the_protocol() {
        let grant = |table, object, letters: &str| Grant::AccountSignature {
            services: Services { table, queue: true },
            resource_types: ResourceTypes { object, ..ResourceTypes::default() },
            permissions: Letters::new(letters),
        };
        let check = |grant: Grant| grant.check(Access::ReadEntities, None);
        assert_eq!(check(grant(false, false, "")), Err(Denied::Service));
        assert_eq!(check(grant(true, false, "")), Err(Denied::ResourceType));
        assert_eq!(check(grant(true, true, "waud")), Err(Denied::Permission));
        assert_eq!(check(grant(true, true, "r")), Ok(()));
        let all = Grant::AccountSignature {
            services: Services { table: true, queue: false },
            resource_types: ResourceTypes { service: true, container: true, object: true },
            permissions: Letters::new("rwdlacu"),
        };
        for access in ALL {
            let expected = match access {
                Access::TablePolicies | Access::TableSettings => Err(Denied::Operation),
                _ => Ok(()),
            };
            assert_eq!(all.check(access, None), expected, "{access:?}");
        }
    }
}
