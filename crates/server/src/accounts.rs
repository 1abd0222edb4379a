//! Accounts at the start: the development account, and where its public key must not be.

use crate::config::Config;
use crate::error::ServerError;
use rowhouse_http::PublicKey;
use rowhouse_service_account::{
    AccountError, AccountKey, AccountService, AccountView, DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY,
    KeyForm,
};
use rowhouse_types::AccountName;

/// What the start found out about accounts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    /// Whether the public key opens the development account.
    pub(crate) development_key: bool,
    /// How many there are.
    pub(crate) accounts: usize,
    /// Those with a secret that is not sealed, in the order of their names.
    pub(crate) unsealed: Vec<AccountName>,
    /// Those for which nobody can sign, because a backup left their keys out.
    pub(crate) without_keys: Vec<AccountName>,
}

/// Makes the development account if it is wanted and missing, and sees to it that its public key
/// opens nothing if it is not wanted. Opens every account's keys: a wrong master key shows now, not
/// later.
pub(crate) async fn seed(config: &Config, accounts: &AccountService) -> Result<Known, ServerError> {
    let development: AccountName =
        DEVELOPMENT_ACCOUNT.parse().expect("the name of the development account is valid");
    let key = || AccountKey::from_base64(DEVELOPMENT_KEY).expect("the public key is Base64");
    let cannot_open = |error| cannot_open(config, error);
    let mut all = accounts.list().await.map_err(cannot_open)?;
    if config.development_account && !all.iter().any(|account| account.name == development) {
        if config.store.is_some() && !all.is_empty() {
            return Err(ServerError::Refused(format!(
                "the database has accounts, but not {development}, and its public key would open it \
                 on every server of that database: add --development-account=false"
            )));
        }
        match accounts.create(&development, Some([key(), key()])).await {
            // Another server on the same database may have been faster, with keys of its own.
            Ok(_) | Err(AccountError::Exists) => {}
            Err(error) => return Err(cannot_open(error)),
        }
        all = accounts.list().await.map_err(cannot_open)?;
    }
    let public = key();
    let has_public_key = |account: &AccountView| {
        account.keys.iter().flatten().any(|key| key.as_bytes() == public.as_bytes())
    };
    let refused = config.public_key() == PublicKey::Refused;
    if refused && let Some(account) = all.iter().find(|account| has_public_key(account)) {
        let name = &account.name;
        return Err(ServerError::Refused(format!(
            "the account {name} in {} still has the public development key: start once on \
             loopback with the development account, and run 'rowhouse account rotate {name} --slot \
             1' and '--slot 2', or 'rowhouse account remove {name}'",
            config.data_place()
        )));
    }
    let named = |is_meant: fn(&AccountView) -> bool| -> Vec<AccountName> {
        let meant = all.iter().filter(|account| is_meant(account));
        meant.map(|account| account.name.clone()).collect()
    };
    Ok(Known {
        development_key: all
            .iter()
            .any(|account| account.name == development && has_public_key(account)),
        accounts: all.len(),
        unsealed: named(|account| account.stored.contains(&KeyForm::Readable)),
        without_keys: named(|account| account.keys.iter().all(Option::is_none)),
    })
}

/// Servers that share a database must share what its keys are sealed with.
fn cannot_open(config: &Config, error: AccountError) -> ServerError {
    match error {
        AccountError::Sealed(sentence) if config.store.is_some() => {
            ServerError::ForeignMasterKey(sentence)
        }
        error => ServerError::Accounts(error),
    }
}
