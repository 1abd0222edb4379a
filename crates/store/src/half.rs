//! The mark on a table that is being restored and is not whole yet.
//!
//! It is kept as an access policy of the table, under an id that is longer than a client can set: so it comes and goes with
//! the table in one change of the catalogue, in every engine and in every backup. A service takes a table that carries it for
//! one that is not there.

use crate::Table;
use rowhouse_types::{Guid, StoredPolicy};

/// What the id of the policy begins with: longer than [`rowhouse_types::limits::POLICY_ID_CHARS_MAX`].
const BEGINNING: &str =
    "This table is not whole: it is being restored, or a restore of it was broken off. ";

/// Whose half a table is, and how far it has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Half {
    /// The full backup that the restore began with.
    pub backup: Guid,
    /// The backup that was being read.
    pub reading: Guid,
    /// Its number; all before it are in the table.
    pub file: u32,
    /// So many of its frames are in the table, and perhaps more.
    pub parts: u64,
    /// Which attempt this is: none goes on when there is a later one.
    pub attempt: u64,
}

impl Half {
    /// The policies of a table that carries the mark.
    pub fn policies(&self) -> Vec<StoredPolicy> {
        let Self { backup, reading, file, parts, attempt } = self;
        let id = format!("{BEGINNING}{backup} {reading} {file} {parts} {attempt}").into();
        vec![StoredPolicy { id, start: None, expiry: None, permission: None }]
    }

    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let half = Self {
            backup: Guid::parse(words.next()?)?,
            reading: Guid::parse(words.next()?)?,
            file: words.next()?.parse().ok()?,
            parts: words.next()?.parse().ok()?,
            attempt: words.next()?.parse().ok()?,
        };
        words.next().is_none().then_some(half)
    }
}

impl Table {
    /// Whether everything that belongs into the table is in it.
    pub fn is_whole(&self) -> bool {
        !self.policies.iter().any(|policy| policy.id.starts_with(BEGINNING))
    }

    /// Whose half it is, if it is one.
    pub fn half(&self) -> Option<Half> {
        self.policies.iter().find_map(|policy| Half::parse(policy.id.strip_prefix(BEGINNING)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AccountId, Placement, TableId};
    use rowhouse_types::{Timestamp, limits};

    fn table(policies: Vec<StoredPolicy>) -> Table {
        Table {
            id: TableId(1),
            account: AccountId(1),
            name: "Half".parse().unwrap(),
            created: Timestamp::default(),
            placement: Placement::default(),
            policies,
            indexes: Vec::new(),
            ttl: None,
        }
    }

    #[test]
    fn the_mark_is_read_as_it_was_written() {
        let (backup, reading) = (Guid([7; 16]), Guid([8; 16]));
        let half = Half { backup, reading, file: 3, parts: u64::MAX, attempt: 2 };
        let marked = table(half.policies());
        assert_eq!((marked.half(), marked.is_whole()), (Some(half), false));
        let whole = table(Vec::new());
        assert_eq!((whole.half(), whole.is_whole()), (None, true));
    }

    #[test]
    fn no_client_can_set_the_mark() {
        assert!(BEGINNING.chars().count() > limits::POLICY_ID_CHARS_MAX);
    }
}
