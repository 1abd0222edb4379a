//! What a store carries while a backup is being restored into it.
//!
//! An account whose keys no release can open: a server on such a store refuses to start, and says why. It is
//! there before anything else and is removed last, so a store without it is empty or whole. That nobody else is on the
//! store meanwhile is left to whoever opens it. Its keys name the
//! backup, and a setting of it says how far the restore has got. Its name is one that the backup does not have.

use crate::catalogue::Catalogue;
use crate::error::BackupError;
use rowhouse_store::{Account, AccountId, NewAccount, Store, StoreError};
use rowhouse_types::{AccountName, Guid};
use std::sync::Arc;

/// The account is called so, with a number behind it if the backup has one of this name.
const ACCOUNT: &str = "rowhouserestoring";
const PROGRESS: &str = "progress";
/// No key begins so, sealed or not.
const KEY: &[u8] = b"\xffrestoring ";

/// How far a restore has got: all frames of earlier files, and so many of this one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) file: u32,
    pub(crate) parts: u64,
}

/// The mark on a store that is being restored.
#[derive(Debug)]
pub(crate) struct Marker {
    account: AccountId,
    pub(crate) reached: Place,
}

/// Which backup is being restored into the store, if one is and is not finished.
pub async fn unfinished(store: &dyn Store) -> Result<Option<Guid>, StoreError> {
    Ok(unfinished_in(&store.accounts().await?))
}

/// The same for a store that has these accounts.
pub fn unfinished_in(accounts: &[Arc<Account>]) -> Option<Guid> {
    accounts.iter().find_map(|account| backup_of(account))
}

impl Marker {
    /// Marks an empty store, or finds the mark of the same backup.
    pub(crate) async fn set(
        store: &dyn Store,
        backup: Guid,
        catalogue: &Catalogue,
    ) -> Result<Self, BackupError> {
        let accounts = store.accounts().await?;
        let mark = accounts.iter().find_map(|account| Some((account, backup_of(account)?)));
        match mark {
            Some((account, id)) if id == backup => {
                return Ok(Self { account: account.id, reached: progress_of(account) });
            }
            Some((_, id)) => return Err(BackupError::OtherRestore { id }),
            None if !accounts.is_empty() => return Err(BackupError::NotEmpty),
            None => {}
        }
        let key = || [KEY, &backup.0].concat().into_boxed_slice();
        let new = NewAccount { name: free_name(catalogue), keys: [key(), key()] };
        let account = store.create_account(new).await?;
        Ok(Self { account: account.id, reached: Place::default() })
    }

    /// Notes that everything up to there is in the store.
    pub(crate) async fn reach(
        &mut self,
        store: &dyn Store,
        place: Place,
    ) -> Result<(), StoreError> {
        let value = [&place.file.to_le_bytes()[..], &place.parts.to_le_bytes()].concat();
        store.set_account_setting(self.account, None, PROGRESS, Some(value.into())).await?;
        self.reached = place;
        Ok(())
    }

    /// The store is whole.
    pub(crate) async fn remove(self, store: &dyn Store) -> Result<(), StoreError> {
        store.remove_account(self.account).await
    }
}

fn free_name(catalogue: &Catalogue) -> AccountName {
    (0..u32::MAX)
        .map(|number| if number == 0 { ACCOUNT.to_owned() } else { format!("{ACCOUNT}{number}") })
        .map(|name| name.parse().expect("an account can have the name, and a few digits more"))
        .find(|name| catalogue.account(name).is_none())
        .expect("there are more numbers than accounts")
}

/// The backup that a mark names; none if it is an account like any other.
fn backup_of(account: &Account) -> Option<Guid> {
    let id = account.keys[0].strip_prefix(KEY)?;
    id.try_into().ok().map(Guid)
}

fn progress_of(account: &Account) -> Place {
    let read = |value: &[u8]| {
        let (file, parts) = value.split_first_chunk()?;
        let parts = parts.try_into().ok()?;
        Some(Place { file: u32::from_le_bytes(*file), parts: u64::from_le_bytes(parts) })
    };
    account.settings.get(PROGRESS).and_then(|value| read(value)).unwrap_or_default()
}
