//! Stored access policies: what a shared access signature may leave to the table.

use crate::time::Timestamp;

/// One entry of a table's access control list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredPolicy {
    /// Unique within the list, 1 to 64 characters.
    pub id: Box<str>,
    /// Valid from then on; from ever if absent.
    pub start: Option<Timestamp>,
    /// Valid until then; the signature must say so itself if absent.
    pub expiry: Option<Timestamp>,
    /// Letters of `raud` in that order; the signature must say so itself if absent.
    pub permission: Option<Box<str>>,
}
