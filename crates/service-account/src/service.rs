//! The account service: everything that happens to an account.

use crate::error::AccountError;
use crate::key::{AccountKey, KeySlot};
use crate::quota::{self, AccountLimits, OwnLimits};
use crate::seal::{KeyForm, Sealer};
use crate::settings;
use arc_swap::ArcSwap;
use rowhouse_env::Random;
use rowhouse_store::{Account, AccountId, Conflict, NewAccount, Store, StoreError};
use rowhouse_types::{
    Access, AccountName, Denied, Grant, QueueAccess, Service, ServiceProperties,
    ServicePropertiesUpdate, Timestamp, limits,
};
use std::sync::Arc;
use std::time::{Duration, Instant};
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
    /// How many tables and queues it may have.
    pub limits: AccountLimits,
    /// Those of its limits that were set for it alone.
    pub own_limits: OwnLimits,
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
/// A change is built on what the account was, and written only if it still is that: the store compares its version.
/// If another server was faster, the change is made again on what that one left.
#[derive(Debug)]
pub struct AccountService {
    store: Arc<dyn Store>,
    sealer: Sealer,
    random: Arc<dyn Random>,
    /// What an account without limits of its own may have.
    limits: AccountLimits,
    cache: ArcSwap<imbl::HashMap<AccountName, Cached>>,
    changing: Mutex<()>,
}

/// A view and the version of the account that it was made of.
#[derive(Clone, Debug)]
struct Cached {
    version: u64,
    view: Arc<AccountView>,
}

/// How far the keys of accounts have been sealed under the current master key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resealed {
    /// Accounts whose keys were sealed anew.
    pub resealed: usize,
    /// Accounts that are left.
    pub remaining: usize,
}

/// How often a change was tried that others may have been faster than.
#[derive(Debug, Default)]
struct Attempts(usize);

impl Attempts {
    /// True if the change took effect; false if it is to be made again, on what another server has left. Of those that
    /// change one account at a time one gets on, so that a few attempts are enough.
    fn succeeded(&mut self, change: Result<(), StoreError>) -> Result<bool, AccountError> {
        self.0 += 1;
        match change {
            Ok(()) => Ok(true),
            Err(StoreError::Rejected { reason: Conflict::AccountChanged, .. })
                if self.0 < limits::ACCOUNT_CHANGE_ATTEMPTS_MAX =>
            {
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }
}

impl AccountService {
    /// A service over a store, with what seals its keys.
    pub fn new(store: Arc<dyn Store>, sealer: Sealer, random: Arc<dyn Random>) -> Self {
        let (cache, changing) = (ArcSwap::default(), Mutex::new(()));
        let limits = AccountLimits::default();
        Self { store, sealer, random, limits, cache, changing }
    }

    /// Gives accounts without limits of their own these.
    pub fn with_limits(mut self, limits: AccountLimits) -> Self {
        self.limits = limits;
        self
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
        let mut attempts = Attempts::default();
        loop {
            let (account, view) = self.latest(name).await?;
            let mut keys = view.keys.clone();
            keys[slot.index()] = Some(key.clone());
            // Both are sealed anew: a key from before there was a master key does not stay unsealed.
            let keys = self.seal(name, &keys);
            let set = self.store.set_account_keys(account.id, account.version, keys).await;
            if attempts.succeeded(set)? {
                return Ok(key);
            }
        }
    }

    /// Seals the keys of all accounts under the current master key that are not, one account after the other, for
    /// about this long and one account at least. What was done stays if it is interrupted; others go on working meanwhile.
    pub async fn reseal(&self, within: Duration) -> Result<Resealed, AccountError> {
        if !self.sealer.seals() {
            return Err(AccountError::NoMasterKey);
        }
        let began = Instant::now();
        let accounts = self.store.accounts().await?;
        let mut left = accounts.iter().filter(|account| !self.is_current(account));
        let mut resealed = 0;
        while resealed == 0 || began.elapsed() < within {
            let Some(account) = left.next() else { break };
            self.reseal_one(&account.name).await?;
            resealed += 1;
        }
        Ok(Resealed { resealed, remaining: left.count() })
    }

    async fn reseal_one(&self, name: &AccountName) -> Result<(), AccountError> {
        let _changing = self.changing.lock().await;
        let mut attempts = Attempts::default();
        loop {
            let (account, view) = match self.latest(name).await {
                Err(AccountError::NotFound) => return Ok(()),
                latest => latest?,
            };
            if self.is_current(&account) {
                return Ok(());
            }
            let keys = self.seal(name, &view.keys);
            let set = self.store.set_account_keys(account.id, account.version, keys).await;
            match attempts.succeeded(set) {
                Ok(true) | Err(AccountError::NotFound) => return Ok(()),
                Ok(false) => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn is_current(&self, account: &Account) -> bool {
        KeySlot::ALL
            .into_iter()
            .all(|slot| self.sealer.is_current(&account.name, slot, &account.keys[slot.index()]))
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
        let mut attempts = Attempts::default();
        loop {
            let (latest, view) = self.latest(&account.name).await?;
            // The grant was for the account that was found then, not for a new one of the same name.
            if latest.id != account.id {
                return Err(AccountError::NotFound);
            }
            let mut properties = view.properties_of(service).clone();
            properties.apply(update.clone());
            let (name, bytes) = (settings::name(service), Some(settings::encode(&properties)));
            let version = Some(latest.version);
            let set = self.store.set_account_setting(latest.id, version, name, bytes).await;
            if attempts.succeeded(set)? {
                return Ok(());
            }
        }
    }

    /// Changes the limits of an account: those that are named, to a number or to none of its own. Tables and queues
    /// that are there stay, however many.
    pub async fn set_limits(
        &self,
        name: &AccountName,
        tables: Option<Option<u64>>,
        queues: Option<Option<u64>>,
    ) -> Result<Arc<AccountView>, AccountError> {
        let _changing = self.changing.lock().await;
        let mut attempts = Attempts::default();
        loop {
            let (latest, view) = self.latest(name).await?;
            let own = view.own_limits;
            let own = OwnLimits {
                tables: tables.unwrap_or(own.tables),
                queues: queues.unwrap_or(own.queues),
            };
            let value = (own != OwnLimits::default()).then(|| quota::encode(own));
            let (id, version) = (latest.id, Some(latest.version));
            let set = self.store.set_account_setting(id, version, quota::NAME, value).await;
            if attempts.succeeded(set)? {
                return Ok(self.latest(name).await?.1);
            }
        }
    }

    /// The latest state of an account that is there, with the version that a change of it names.
    async fn latest(
        &self,
        name: &AccountName,
    ) -> Result<(Arc<Account>, Arc<AccountView>), AccountError> {
        let account = self.store.account(name).await?.ok_or(AccountError::NotFound)?;
        let view = self.view(&account)?;
        Ok((account, view))
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
        let own_limits = quota::of(account)?;
        let open = |slot, envelope| self.sealer.open(&account.name, slot, envelope);
        let view = Arc::new(AccountView {
            id: account.id,
            name: account.name.clone(),
            created: account.created,
            keys: [open(KeySlot::First, first)?, open(KeySlot::Second, second)?],
            stored: account.keys.each_ref().map(|key| KeyForm::of(&account.name, key)),
            table_properties: settings::properties(account, Service::Table)?,
            queue_properties: settings::properties(account, Service::Queue)?,
            limits: own_limits.or(self.limits),
            own_limits,
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
