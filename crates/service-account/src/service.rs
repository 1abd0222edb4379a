//! The account service: everything that happens to an account.

use crate::error::AccountError;
use crate::key::{AccountKey, KeySlot};
use crate::seal::{KeyForm, Sealer};
use crate::settings;
use arc_swap::ArcSwap;
use rowhouse_env::Random;
use rowhouse_store::{Account, AccountId, NewAccount, Store};
use rowhouse_types::{
    Access, AccountName, Denied, Grant, QueueAccess, Service, ServiceProperties,
    ServicePropertiesUpdate, Timestamp,
};
use std::sync::Arc;
use tokio::sync::Mutex;

/// An account as requests see it: keys opened, settings decoded. A snapshot that never changes.
#[derive(Debug)]
pub struct AccountView {
    /// Names it for ever.
    pub id: AccountId,
    /// Its name.
    pub name: AccountName,
    /// When it was created.
    pub created: Timestamp,
    /// Both keys; either signs. One that is none was left out of the backup that the account came from: nothing signs with it.
    pub keys: [Option<AccountKey>; 2],
    /// How each of them is stored.
    pub stored: [KeyForm; 2],
    /// Settings of its Table service.
    pub table_properties: ServiceProperties,
    /// Settings of its Queue service.
    pub queue_properties: ServiceProperties,
}

impl AccountView {
    /// Settings of one of its services, for the answers of that service. Who asks for them is told by
    /// [`AccountService::properties`].
    pub fn properties_of(&self, service: Service) -> &ServiceProperties {
        match service {
            Service::Table => &self.table_properties,
            Service::Queue => &self.queue_properties,
        }
    }
}

/// Creates, finds and changes accounts. One per server, shared behind an `Arc`.
///
/// Changes of one account are made one after the other, so that none is built on what another has
/// just replaced. That holds within one service: servers that share a store must not change the same account at
/// the same time.
#[derive(Debug)]
pub struct AccountService {
    store: Arc<dyn Store>,
    sealer: Sealer,
    random: Arc<dyn Random>,
    cache: ArcSwap<imbl::HashMap<AccountName, Cached>>,
    changing: Mutex<()>,
}

/// A view and the version of the account that it was made of.
#[derive(Clone, Debug)]
struct Cached {
    version: u64,
    view: Arc<AccountView>,
}

impl AccountService {
    /// A service over a store, with what seals its keys.
    pub fn new(store: Arc<dyn Store>, sealer: Sealer, random: Arc<dyn Random>) -> Self {
        let (cache, changing) = (ArcSwap::default(), Mutex::new(()));
        Self { store, sealer, random, cache, changing }
    }

    /// Looks an account up by name: its latest state, as every request needs it.
    ///
    /// Takes no lock, and opens keys only after the account has changed.
    pub async fn find(&self, name: &AccountName) -> Result<Option<Arc<AccountView>>, AccountError> {
        if let Some(account) = self.store.account(name).await? {
            return self.view(&account).map(Some);
        }
        self.forget(name);
        Ok(None)
    }

    /// All accounts, in the order of their names.
    pub async fn list(&self) -> Result<Vec<Arc<AccountView>>, AccountError> {
        let accounts = self.store.accounts().await?;
        accounts.iter().map(|account| self.view(account)).collect()
    }

    /// Creates an account with the given keys, or with two new ones.
    pub async fn create(
        &self,
        name: &AccountName,
        keys: Option<[AccountKey; 2]>,
    ) -> Result<Arc<AccountView>, AccountError> {
        let keys = keys
            .unwrap_or_else(|| KeySlot::ALL.map(|_| AccountKey::generate(self.random.as_ref())));
        let keys = self.seal(name, &keys.map(Some));
        let account = self.store.create_account(NewAccount { name: name.clone(), keys }).await?;
        self.view(&account)
    }

    /// Replaces one key by the given one, or by a new one, and returns it. The other stays valid, or absent.
    pub async fn rotate(
        &self,
        name: &AccountName,
        slot: KeySlot,
        key: Option<AccountKey>,
    ) -> Result<AccountKey, AccountError> {
        let key = key.unwrap_or_else(|| AccountKey::generate(self.random.as_ref()));
        let _changing = self.changing.lock().await;
        let account = self.find(name).await?.ok_or(AccountError::NotFound)?;
        let mut keys = account.keys.clone();
        keys[slot.index()] = Some(key.clone());
        // Both are sealed anew: a key from before there was a master key does not stay unsealed.
        self.store.set_account_keys(account.id, self.seal(name, &keys)).await?;
        Ok(key)
    }

    /// Removes an account with everything in it.
    ///
    /// Works without the master key too: what cannot be opened can still be thrown away.
    pub async fn remove(&self, name: &AccountName) -> Result<(), AccountError> {
        let _changing = self.changing.lock().await;
        let account = self.store.account(name).await?.ok_or(AccountError::NotFound)?;
        self.store.remove_account(account.id).await?;
        self.forget(name);
        Ok(())
    }

    /// Changes those settings of a service that the update names.
    pub async fn set_properties(
        &self,
        grant: &Grant,
        account: &AccountView,
        service: Service,
        update: ServicePropertiesUpdate,
    ) -> Result<(), AccountError> {
        may_write(grant, service)?;
        let _changing = self.changing.lock().await;
        let latest = self.find(&account.name).await?.ok_or(AccountError::NotFound)?;
        // The grant was for the account that was found then, not for a new one of the same name.
        if latest.id != account.id {
            return Err(AccountError::NotFound);
        }
        let mut properties = latest.properties_of(service).clone();
        properties.apply(update);
        let bytes = Some(settings::encode(&properties));
        self.store.set_account_setting(latest.id, settings::name(service), bytes).await?;
        Ok(())
    }

    /// The settings of a service.
    pub fn properties<'a>(
        &self,
        grant: &Grant,
        account: &'a AccountView,
        service: Service,
    ) -> Result<&'a ServiceProperties, AccountError> {
        may_read(grant, service)?;
        Ok(account.properties_of(service))
    }

    /// What a backup holds in the place of the keys of an account, as they are stored: sealed, or nothing.
    pub fn keys_for_backup(&self, account: &Account) -> [Box<[u8]>; 2] {
        KeySlot::ALL.map(|slot| {
            let envelope = &account.keys[slot.index()];
            self.sealer.for_backup(self.random.as_ref(), &account.name, slot, envelope)
        })
    }

    /// The cached view if it is of this very version, otherwise a new one.
    fn view(&self, account: &Account) -> Result<Arc<AccountView>, AccountError> {
        if let Some(cached) = self.cache.load().get(&account.name)
            && cached.version == account.version
            && cached.view.id == account.id
        {
            return Ok(Arc::clone(&cached.view));
        }
        let [first, second] = &account.keys;
        let open = |slot, envelope| self.sealer.open(&account.name, slot, envelope);
        let view = Arc::new(AccountView {
            id: account.id,
            name: account.name.clone(),
            created: account.created,
            keys: [open(KeySlot::First, first)?, open(KeySlot::Second, second)?],
            stored: account.keys.each_ref().map(|key| KeyForm::of(&account.name, key)),
            table_properties: settings::properties(account, Service::Table)?,
            queue_properties: settings::properties(account, Service::Queue)?,
        });
        let cached = Cached { version: account.version, view: Arc::clone(&view) };
        self.cache.rcu(|cache| cache.update(account.name.clone(), cached.clone()));
        Ok(view)
    }

    fn forget(&self, name: &AccountName) {
        if self.cache.load().contains_key(name) {
            self.cache.rcu(|cache| cache.without(name));
        }
    }

    fn seal(&self, name: &AccountName, keys: &[Option<AccountKey>; 2]) -> [Box<[u8]>; 2] {
        KeySlot::ALL.map(|slot| {
            self.sealer.seal(self.random.as_ref(), name, slot, keys[slot.index()].as_ref())
        })
    }
}

fn may_read(grant: &Grant, service: Service) -> Result<(), Denied> {
    match service {
        Service::Table => grant.check(Access::ReadService, None),
        Service::Queue => grant.check_queue(QueueAccess::ReadService, None),
    }
}

fn may_write(grant: &Grant, service: Service) -> Result<(), Denied> {
    match service {
        Service::Table => grant.check(Access::WriteService, None),
        Service::Queue => grant.check_queue(QueueAccess::WriteService, None),
    }
}
