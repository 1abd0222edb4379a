//! What a backup holds of the keys of its accounts.

use rowhouse_service_account::KeyForm;
use rowhouse_service_backup::Catalogue;
use rowhouse_types::AccountName;

/// Which keys there are in a backup.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeysHeld {
    /// Some need the master key that they were sealed with.
    pub sealed: bool,
    /// Some can be read by whoever has the backup: it was written by a release that left them so.
    pub readable: bool,
    /// The public key of the development account is there.
    pub public: bool,
    /// Accounts of which a key was left out, in the order of their names, and which of their keys, counted from 1.
    pub left_out: Vec<(AccountName, Vec<usize>)>,
}

impl KeysHeld {
    /// Those of a backup.
    pub fn of(catalogue: &Catalogue) -> Self {
        let mut held = Self::default();
        for account in &catalogue.accounts {
            let mut absent = Vec::new();
            for (key, slot) in account.keys.iter().zip(1..) {
                match KeyForm::of(&account.name, key) {
                    KeyForm::Absent => absent.push(slot),
                    KeyForm::Public => held.public = true,
                    KeyForm::Readable => held.readable = true,
                    KeyForm::Sealed => held.sealed = true,
                }
            }
            if !absent.is_empty() {
                held.left_out.push((account.name.clone(), absent));
            }
        }
        held
    }
}
