//! What a request to the Queue service can need a permission for.

use super::{Denied, Grant, Service};
use crate::name::QueueName;

/// Everything that a request to the Queue service can need a permission for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueAccess {
    /// Look at messages without taking them.
    PeekMessages,
    /// Put a message.
    PutMessage,
    /// Take messages.
    TakeMessages,
    /// Change a message, or when it is visible.
    UpdateMessage,
    /// Delete a message that was taken.
    DeleteMessage,
    /// Delete all messages.
    ClearMessages,
    /// Read the metadata of a queue and about how many messages it has.
    ReadMetadata,
    /// Change the metadata of a queue.
    WriteMetadata,
    /// List queues.
    ListQueues,
    /// Create a queue.
    CreateQueue,
    /// Delete a queue.
    DeleteQueue,
    /// Read or change a queue's access policies.
    QueuePolicies,
    /// Read service properties or statistics.
    ReadService,
    /// Change service properties.
    WriteService,
}

impl Grant {
    /// Whether the operation is allowed at all; `queue` is the one it works on, if it works on one.
    pub fn check_queue(
        &self,
        access: QueueAccess,
        queue: Option<&QueueName>,
    ) -> Result<(), Denied> {
        use QueueAccess::{
            ClearMessages, CreateQueue, DeleteMessage, DeleteQueue, ListQueues, PeekMessages,
            PutMessage, QueuePolicies, ReadMetadata, ReadService, TakeMessages, UpdateMessage,
            WriteMetadata, WriteService,
        };
        match self {
            Self::AccountKey => Ok(()),
            Self::AccountSignature { resource_types, permissions, .. } => {
                self.check_service(Service::Queue)?;
                let right_type = match access {
                    PeekMessages | PutMessage | TakeMessages | UpdateMessage | DeleteMessage
                    | ClearMessages => resource_types.object,
                    ReadMetadata | WriteMetadata | CreateQueue | DeleteQueue => {
                        resource_types.container
                    }
                    ListQueues | ReadService | WriteService => resource_types.service,
                    QueuePolicies => return Err(Denied::Operation),
                };
                if !right_type {
                    return Err(Denied::ResourceType);
                }
                let may = |letter| permissions.has(letter);
                let allowed = match access {
                    PeekMessages | ReadMetadata | ReadService => may('r'),
                    PutMessage => may('a'),
                    TakeMessages | DeleteMessage => may('p'),
                    UpdateMessage => may('u'),
                    ClearMessages | DeleteQueue => may('d'),
                    WriteMetadata | WriteService => may('w'),
                    CreateQueue => may('c') || may('w'),
                    ListQueues => may('l'),
                    QueuePolicies => false,
                };
                if allowed { Ok(()) } else { Err(Denied::Permission) }
            }
            Self::QueueSignature { queue: granted, permissions } => {
                if queue != Some(granted) {
                    return Err(Denied::Operation);
                }
                let may = |letter| permissions.has(letter);
                let allowed = match access {
                    PeekMessages | ReadMetadata => may('r'),
                    PutMessage => may('a'),
                    UpdateMessage => may('u'),
                    TakeMessages | DeleteMessage => may('p'),
                    ClearMessages | WriteMetadata | ListQueues | CreateQueue | DeleteQueue
                    | QueuePolicies | ReadService | WriteService => return Err(Denied::Operation),
                };
                if allowed { Ok(()) } else { Err(Denied::Permission) }
            }
            Self::TableSignature { .. } => Err(Denied::Operation),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::QueueAccess as A;
    use super::*;
    use crate::grant::{Access, Letters, ResourceTypes, Services};
    use crate::key::KeyRange;
    use crate::name::FoldedName;

    /// Each access with the letter that a signature of the queue needs, and type and letters of an account's.
    const TABLE: [(A, Option<char>, char, &str); 14] = [
        (A::PeekMessages, Some('r'), 'o', "r"),
        (A::PutMessage, Some('a'), 'o', "a"),
        (A::TakeMessages, Some('p'), 'o', "p"),
        (A::UpdateMessage, Some('u'), 'o', "u"),
        (A::DeleteMessage, Some('p'), 'o', "p"),
        (A::ClearMessages, None, 'o', "d"),
        (A::ReadMetadata, Some('r'), 'c', "r"),
        (A::WriteMetadata, None, 'c', "w"),
        (A::ListQueues, None, 's', "l"),
        (A::CreateQueue, None, 'c', "cw"),
        (A::DeleteQueue, None, 'c', "d"),
        (A::QueuePolicies, None, 'c', ""),
        (A::ReadService, None, 's', "r"),
        (A::WriteService, None, 's', "w"),
    ];

    #[test]
    fn a_signature_of_a_queue_allows_its_letters_there_only() {
        let name: QueueName = "orders".parse().unwrap();
        let other: QueueName = "others".parse().unwrap();
        for (access, needed, ..) in TABLE {
            for letter in "raup".chars() {
                let permissions = Letters::new(&letter.to_string());
                let grant = Grant::QueueSignature { queue: name.clone(), permissions };
                let expected = match needed {
                    Some(needed) if needed == letter => Ok(()),
                    Some(_) => Err(Denied::Permission),
                    None => Err(Denied::Operation),
                };
                assert_eq!(grant.check_queue(access, Some(&name)), expected, "{access:?} {letter}");
                let elsewhere = grant.check_queue(access, Some(&other));
                assert_eq!(elsewhere, Err(Denied::Operation), "{access:?} {letter}");
                assert_eq!(grant.check(Access::ReadEntities, None), Err(Denied::Operation));
            }
        }
    }

    #[test]
    fn a_signature_of_the_account_allows_what_the_table_says() {
        for (access, _, right, letters) in TABLE {
            for kind in "sco".chars() {
                for letter in "rwdlacup".chars() {
                    let resource_types = ResourceTypes {
                        service: kind == 's',
                        container: kind == 'c',
                        object: kind == 'o',
                    };
                    let permissions = Letters::new(&letter.to_string());
                    let grant = |queue| Grant::AccountSignature {
                        services: Services { table: true, queue },
                        resource_types,
                        permissions,
                    };
                    let expected = if access == A::QueuePolicies {
                        Err(Denied::Operation)
                    } else if kind != right {
                        Err(Denied::ResourceType)
                    } else if letters.contains(letter) {
                        Ok(())
                    } else {
                        Err(Denied::Permission)
                    };
                    let told = grant(true).check_queue(access, None);
                    assert_eq!(told, expected, "{access:?} {kind} {letter}");
                    let other = grant(false).check_queue(access, None);
                    assert_eq!(other, Err(Denied::Service), "{access:?}");
                }
            }
        }
    }

    #[test]
    fn a_signature_of_a_table_allows_nothing_here() {
        let grant = Grant::TableSignature {
            table: FoldedName::of("orders"),
            permissions: Letters::new("raud"),
            range: KeyRange::partition("p"),
        };
        let name: QueueName = "orders".parse().unwrap();
        for (access, ..) in TABLE {
            assert_eq!(
                grant.check_queue(access, Some(&name)),
                Err(Denied::Operation),
                "{access:?}"
            );
        }
    }
}
