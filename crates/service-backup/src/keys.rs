//! What a backup holds of the keys of accounts. How keys are sealed is not known here, so who knows it is asked.

use rowhouse_store::Account;
use std::fmt;
use std::sync::Arc;

/// Gives what a backup holds in the place of an account's stored keys: nothing that somebody could sign with who has the backup
/// and nothing else.
#[derive(Clone)]
pub struct KeepKeys(Arc<Keep>);

type Keep = dyn Fn(&Account) -> [Box<[u8]>; 2] + Send + Sync;

impl KeepKeys {
    /// Asks this for each account.
    pub fn new(keep: impl Fn(&Account) -> [Box<[u8]>; 2] + Send + Sync + 'static) -> Self {
        Self(Arc::new(keep))
    }

    pub(crate) fn of(&self, account: &Account) -> [Box<[u8]>; 2] {
        (self.0)(account)
    }
}

impl fmt::Debug for KeepKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeepKeys")
    }
}
